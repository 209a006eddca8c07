//! Which links offer the nodes of an application: who is to be told when something of it changes.
//!
//! That is asked for each member of a component when its turns are planned, and changes only when an
//! application gets its place or a link comes or goes. So it is kept, and not searched for along the nodes
//! of a placement, of which there may be thousands.

use super::{LinkId, Scheduler};
use crate::apteam::Apid;
use crate::apteam::place::PlacementList;
use crate::apteam::record::Apteam;
use crate::machine::{Nid, NidSet};
use std::collections::{BTreeMap, BTreeSet};

/// The links that offer nodes of an application, by the place of the first of these in its placement.
pub(super) type Linked = BTreeMap<usize, LinkId>;

impl Scheduler {
    /// The links that stand now of an application's nodes, that of PE 0 first, each once.
    pub(super) fn links_of(&self, team: &Apteam) -> Vec<LinkId> {
        let links = self.linked.get(&team.apid).into_iter().flat_map(BTreeMap::values).copied();
        links.filter(|link| self.links.get(link).is_some_and(|l| l.known)).collect()
    }

    /// Those of them that offer one of these of its nodes.
    pub(super) fn links_with(&self, team: &Apteam, which: impl Fn(Nid) -> bool) -> Vec<LinkId> {
        let (mut with, mut latest) = (BTreeSet::new(), None);
        for (nid, link) in self.offering(&team.places) {
            if link != latest && which(nid) {
                with.extend(link);
                latest = link;
            }
        }
        self.links_of(team).into_iter().filter(|link| with.contains(link)).collect()
    }

    /// Those of them whose nodes have not told its end.
    pub(super) fn links_left(&self, apid: Apid) -> Vec<LinkId> {
        let Some(team) = self.teams.get(&apid) else { return Vec::new() };
        let ended: NidSet = team.end.iter().flat_map(|end| end.nids.iter().copied()).collect();
        self.links_with(team, |nid| !ended.contains(nid))
    }

    /// An application has got its place, or lost it.
    pub(super) fn relink(&mut self, apid: Apid) {
        let links =
            self.teams.get(&apid).map_or_else(Linked::new, |team| self.offering_links(team));
        match links.is_empty() {
            true => self.linked.remove(&apid),
            false => self.linked.insert(apid, links),
        };
    }

    /// A link offers these nodes now.
    pub(super) fn relink_opened(&mut self, link: LinkId, nids: &[Nid]) {
        let Some((least, most)) = nids.iter().min().copied().zip(nids.iter().max().copied()) else {
            return;
        };
        // (Most links are of one node, or of nodes in a row, and most nodes of other links.)
        let its = |nid: Nid| nid >= least && nid <= most && self.offered.get(&nid) == Some(&link);
        let concerned = self
            .teams
            .values()
            .filter_map(|team| team.places.nids().position(its).map(|first| (team.apid, first)));
        for (apid, first) in concerned.collect::<Vec<_>>() {
            self.linked.entry(apid).or_default().insert(first, link);
        }
    }

    /// A link offers nothing any more.
    pub(super) fn relink_closed(&mut self, link: LinkId) {
        self.linked.retain(|_, links| {
            links.retain(|_, of| *of != link);
            !links.is_empty()
        });
    }

    /// The links that offer an application's nodes, that of PE 0 first.
    fn offering_links(&self, team: &Apteam) -> Linked {
        let (mut links, mut seen, mut latest) = (Linked::new(), BTreeSet::new(), None);
        for (place, (_, link)) in self.offering(&team.places).enumerate() {
            // Nodes of one apinit mostly follow each other.
            if link != std::mem::replace(&mut latest, link) {
                links.extend(link.filter(|link| seen.insert(*link)).map(|link| (place, link)));
            }
        }
        links
    }

    /// Whether what is kept is what would be found: a fault where it is not.
    pub(super) fn linked_rightly(&self) -> bool {
        let found = |team: &Apteam| (team.apid, self.offering_links(team));
        let found = self.teams.values().map(found).filter(|(_, links)| !links.is_empty());
        found.eq(self.linked.iter().map(|(apid, links)| (*apid, links.clone())))
    }

    /// The nodes of a placement, each with the link that offers it now.
    pub(super) fn offering(
        &self,
        places: &PlacementList,
    ) -> impl Iterator<Item = (Nid, Option<LinkId>)> {
        // Nodes that follow each other do so here too: only the first of them is searched for.
        let mut following = self.offered.range(Nid(0)..Nid(0));
        places.nids().map(move |nid| {
            let mut offered = following.next().filter(|(at, _)| **at == nid);
            if offered.is_none() {
                following = self.offered.range(nid..);
                offered = following.next().filter(|(at, _)| **at == nid);
            }
            (nid, offered.map(|(_, link)| *link))
        })
    }
}
