//! Applications that come from a checkpoint: `cpr -r`.
//!
//! # Problem
//! An application that is brought back is to be scheduled as any other, and yet it differs from one that
//! aprun posts. Its images are of one host, and no process of them can go to another than its fellows. It has
//! run for some time already. And where it was still waiting when it was checkpointed, its user knows it by a
//! number which by now may stand for something else.
//!
//! # Approach
//! The record says where it comes from ([`Origin`]), and these are all differences:
//!
//! - *One host.* Of several apinits each is tried alone, first those of cpr's host, which has the folder, and of these that
//!   of the lowest NID; those of other hosts only where cpr says that it brings the images there ([`Scheduler::place_for`]). Gates,
//!   shape and what was chosen of nodes hold as before. Where its images are of several, each part goes to nodes of one
//!   apinit of cpr's host, no two to the same, in their order on the line: so its nodes lie across the borders of apinits
//!   as they did.
//! - *Time.* What it had run counts against its time limit (its nodes see to that) and as time that it has
//!   had.
//! - *Locked.* Until its processes are there nothing is done with it but that it gets a place: it is
//!   launching until its nodes say that it runs. Its log has these steps:
//!
//! ```text
//!   aprun:  posted ---------------> placed --> launched ---> running --> ended
//!   cpr -r: created --> managed --> placed --> recovering -> unlocked -> ended
//! ```
//!
//! - *Number.* One that ran gets a new number. One that waited gets its own again where that is free
//!   ([`Origin::Waiting`]), and a new one elsewhere.
//!
//! One whose program has saved itself comes as one that waited: it is executed.

use super::Scheduler;
use super::postings::place_of;
use super::scheduler::Link;
use crate::apteam::choice::Choice;
use crate::apteam::place::{HostPart, PlacementList};
use crate::apteam::posting::Posting;
use crate::apteam::record::Apteam;
use crate::apteam::{Apid, Incarnation};
use crate::machine::Nid;
use crate::placement::{self, Wanted};
use crate::psched::decide::{LinkId, Origin};
use crate::psched::reason::{Reason, Wait};
use std::collections::BTreeSet;

/// What the names of back ends begin with that restore images.
const CRIU: &str = "criu ";
/// Ways to lay the parts of a flexible application on apinits that are tried. (Where nodes have to be contiguous
/// there are no more than borders between apinits.)
const WAYS_MAX: usize = 256;
/// Apinits that are looked at for these.
const LOOKS_MAX: u32 = 20_000;

impl Scheduler {
    /// The number of a posting that comes from there, and the incarnation before its first: its own again
    /// where nobody has it, neither here nor, as far as is known, on a node that obeys another psched.
    pub(super) fn number_for(&mut self, origin: Option<&Origin>) -> (Apid, Incarnation) {
        if let Some(Origin::Waiting { apid, free: Some(last) }) = origin
            && self.has_nobody(*apid)
        {
            return (*apid, *last);
        }
        let taken = |s: &Scheduler, apid| s.strangers_have(apid) || s.teams.contains_key(&apid);
        while taken(self, Apid(self.next_apid)) {
            self.next_apid += 1;
        }
        let apid = Apid(self.next_apid);
        self.next_apid += 1;
        (apid, Incarnation(0))
    }

    /// Whether psched.yaml has nodes of a host, by the name in its certificate; `own`: it is that
    /// of psched. (A psched without a certificate does not know its host's name, and takes no
    /// apinits of other hosts.)
    pub fn has_nodes_of(&self, host: &str, own: bool) -> bool {
        let is_of = |name: &str| match host {
            "" => own,
            host => name == host || own && name.is_empty(),
        };
        self.machine.nodes.values().any(|node| is_of(&node.host))
    }

    /// Whether the apinit of this part of an application makes checkpoints for a cpr of another host.
    pub fn images_go_from(&self, part: &HostPart) -> bool {
        let of = |link: &&Link| link.hello.host == part.host && link.hello.socket == part.socket;
        let link = self.links.values().find(of);
        !part.address.is_empty() && link.is_some_and(|link| link.hello.images)
    }

    fn has_nobody(&self, apid: Apid) -> bool {
        // (A number from `next_apid` on is one that this psched has not given.)
        apid.0 < self.next_apid && !self.teams.contains_key(&apid) && !self.strangers_have(apid)
    }

    /// What the log calls a step of one that is executed, or of one that is restored.
    pub(super) fn step_name(
        &self,
        apid: Apid,
        executed: &'static str,
        restored: &'static str,
    ) -> &'static str {
        let restart = self.teams.get(&apid).and_then(|team| team.restart.as_ref());
        if restart.is_some() { restored } else { executed }
    }

    /// Where a waiting application goes now, if it has room.
    pub(super) fn place_for(
        &mut self,
        apid: Apid,
        wanted: &Wanted,
        kept: &BTreeSet<Nid>,
    ) -> Option<PlacementList> {
        let team = self.teams.get(&apid)?;
        let Some(each) = self.on_hosts(team) else {
            return place_of(&mut self.occupancy, wanted, &team.posting, kept);
        };
        each.into_iter().find_map(|posting| place_of(&mut self.occupancy, wanted, &posting, kept))
    }

    /// Why no host is near to having room for a checkpoint.
    fn no_host(&self, team: &Apteam) -> Wait {
        match team.front.as_ref() {
            Some(front) if !team.posting.brings_images && self.links.values().any(takes_images) => {
                let host = front.host_name();
                let connected = self.links.values().any(|link| is_of(link, host));
                Wait::ImagesStay { host: host.to_owned(), connected }
            }
            _ => Wait::NoHost,
        }
    }

    /// Of one that is restored where there are several apinits: its posting for the nodes of each alone, or for
    /// those of which each part has an apinit; those of its front end's host first, then by NID.
    fn on_hosts(&self, team: &Apteam) -> Option<Vec<Posting>> {
        let restart = team.restart.as_ref()?;
        // (Parts are connected with each other by addresses of their host.)
        let goes_far = restart.parts.is_empty() && team.posting.brings_images;
        let front = team.front.as_ref().map(|front| front.host_name());
        let is_there = |link: &Link| match front {
            None => true,
            _ if goes_far && takes_images(link) => true,
            Some(host) => is_of(link, host),
        };
        let restores = |link: &Link| link.hello.back_ends.iter().any(|name| name.starts_with(CRIU));
        let any = self.links.values().any(|link| is_there(link) && restores(link));
        let nids = |id: &LinkId, link: &Link| -> BTreeSet<Nid> {
            let nids = link.hello.nids.iter().copied();
            nids.filter(|nid| self.offered.get(nid) == Some(id)).collect()
        };
        // Where its images are already comes first.
        let mut hosts: Vec<(bool, BTreeSet<Nid>)> = self
            .links
            .iter()
            .filter(|(_, link)| is_there(link) && (restores(link) || !any))
            .map(|(id, link)| (front.is_some_and(|front| !is_of(link, front)), nids(id, link)))
            .filter(|(_, nids)| !nids.is_empty())
            .collect();
        hosts.sort();
        let mut hosts: Vec<BTreeSet<Nid>> = hosts.into_iter().map(|(_, nids)| nids).collect();
        // (Where others are away, a window over these and theirs is none for it.)
        let alone = hosts.len() == 1 && hosts[0].len() == self.machine.nodes.len();
        if alone && restart.parts.is_empty() {
            return None;
        }
        let posting = &team.posting;
        if !restart.parts.is_empty() {
            hosts = ways(&hosts, &restart.parts, posting);
        }
        let of = |nids: BTreeSet<Nid>| {
            let choice = among(&posting.choice, &nids)?;
            Some(Posting { choice, ..posting.clone() })
        };
        Some(hosts.into_iter().filter_map(of).collect())
    }

    /// Why a checkpoint that waits to be restored on one host has no room now; none: it has room.
    /// The reason is that of the host where the fewest applications have to end, among hosts
    /// without closed nodes in the way if there are any. (A window over several hosts is none
    /// for it.)
    pub(super) fn why_no_room_for(
        &self,
        team: &Apteam,
        wanted: &Wanted,
        kept: &BTreeSet<Nid>,
    ) -> Option<Reason> {
        let Some(each) = self.on_hosts(team) else {
            return self.why_no_room(wanted, &team.posting, kept);
        };
        let parts = team.restart.as_ref().map_or(0, |restart| restart.parts.len());
        if parts > 0 {
            let mut why = each.iter().map(|posting| self.why_no_room(wanted, posting, kept));
            return why.all(|why| why.is_some()).then(|| Wait::PartsFull { parts }.into());
        }
        // (Closed nodes last: what is kept, or held, is given back without anybody's doing.)
        let mut nearest: Option<((bool, usize), Reason)> = None;
        for posting in each {
            let (far, why) = if posting.layout.is_empty() {
                let among = self.occupancy.only(|nid| posting.choice.has(nid));
                let no_room = placement::why_not(&among, wanted, kept)?;
                if no_room.window.is_empty() {
                    continue;
                }
                let far = (!no_room.closed.is_empty(), no_room.holders.len());
                (far, self.explain(wanted, *no_room))
            } else {
                // (Where nobody is named it is not known that it could be.)
                let why = self.why_no_room(wanted, &posting, kept)?;
                if !why.names_holders() {
                    continue;
                }
                ((true, usize::MAX), why)
            };
            if nearest.as_ref().is_none_or(|(least, _)| far < *least) {
                nearest = Some((far, why));
            }
        }
        Some(match nearest {
            Some((_, why)) => why.on_one_host(),
            None => self.no_host(team).into(),
        })
    }
}

/// Whether this apinit is on the host of this name in its certificate; empty: on psched's.
fn is_of(link: &Link, host: &str) -> bool {
    match host {
        "" => !link.hello.remote,
        host => link.hello.host == host,
    }
}

/// Whether this apinit takes images that come from another host.
fn takes_images(link: &Link) -> bool {
    link.hello.images && !link.hello.address.is_empty()
}

/// Sets of nodes on which each part has an apinit of its own, and there what it needs: so many nodes with
/// consecutive NIDs, above those of the part before. Of one that needs neighbours all of them are consecutive.
fn ways(hosts: &[BTreeSet<Nid>], parts: &[u32], posting: &Posting) -> Vec<BTreeSet<Nid>> {
    let mut parts: Vec<u32> = parts.to_vec();
    if posting.choice.downwards() {
        // PE 0 is on the highest.
        parts.reverse();
    }
    let (used, taken, found) = (Vec::new(), Vec::new(), Vec::new());
    let contiguous = !posting.flexible;
    let mut ways = Ways { hosts, contiguous, used, taken, found, looks: 0 };
    (0..hosts.len()).for_each(|host| ways.lay(host, &parts));
    ways.found
}

/// How such sets are looked for.
struct Ways<'h> {
    hosts: &'h [BTreeSet<Nid>],
    contiguous: bool,
    /// The apinits of the parts so far, and their nodes.
    used: Vec<usize>,
    taken: Vec<Nid>,
    found: Vec<BTreeSet<Nid>>,
    looks: u32,
}

impl Ways<'_> {
    /// Lays the first of these parts on this apinit, wherever that has room, and the others on others.
    fn lay(&mut self, host: usize, parts: &[u32]) {
        let (Some((nodes, rest)), Some(nids)) = (parts.split_first(), self.hosts.get(host)) else {
            return;
        };
        let next = self.taken.last().map(|last| Nid(last.0.saturating_add(1)));
        let firsts = match next {
            Some(next) if self.contiguous => nids.range(next..=next),
            Some(next) => nids.range(next..),
            None => nids.range(..),
        };
        self.used.push(host);
        for first in firsts.copied() {
            let run = (0..*nodes).map_while(|n| first.0.checked_add(n)).map(Nid);
            let before = self.taken.len();
            self.taken.extend(run.take_while(|nid| nids.contains(nid)));
            if self.taken.len() - before == *nodes as usize {
                self.lay_rest(rest);
            }
            self.taken.truncate(before);
        }
        self.used.pop();
    }

    fn lay_rest(&mut self, rest: &[u32]) {
        if rest.is_empty() {
            self.found.push(self.taken.iter().copied().collect());
            return;
        }
        let last = self.taken.last().map_or(0, |last| last.0);
        let Some(next) = last.checked_add(1).map(Nid) else { return };
        if self.contiguous {
            // Of all windows that begin on one apinit only that which ends with it goes on on another.
            let own = self.used.last().and_then(|host| self.hosts.get(*host));
            if own.is_some_and(|own| own.contains(&next)) {
                return;
            }
            let host = self.hosts.iter().position(|nids| nids.contains(&next));
            if let Some(host) = host.filter(|host| !self.used.contains(host)) {
                self.lay(host, rest);
            }
            return;
        }
        for host in 0..self.hosts.len() {
            self.looks = self.looks.saturating_add(1);
            if self.looks > LOOKS_MAX || self.found.len() >= WAYS_MAX {
                return;
            }
            if !self.used.contains(&host) {
                self.lay(host, rest);
            }
        }
    }
}

/// Of the nodes that are asked for those among these; none: there are none.
fn among(choice: &Choice, nids: &BTreeSet<Nid>) -> Option<Choice> {
    let mut only: Vec<(Nid, Nid)> = Vec::new();
    for nid in nids.iter().copied().filter(|nid| choice.has(*nid)) {
        match only.last_mut() {
            Some((_, last)) if last.0.checked_add(1) == Some(nid.0) => *last = nid,
            _ => only.push((nid, nid)),
        }
    }
    if only.is_empty() {
        return None;
    }
    // More pieces than a list may have are more than an apinit has nodes.
    Choice::new(only, Vec::new(), choice.downwards()).ok()
}
