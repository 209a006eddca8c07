//! Nodes that an administrator has closed: `psmgr drain`, `down` and `resume`.
//!
//! Drained, a node takes nothing new, and what is there stays. Down says more: the host is gone, and
//! what was there with it. psched itself never concludes that from silence, for a host that only its
//! network is cut off from runs its applications on; so somebody who knows has to say it. What such a
//! node holds is lost then as if the host had been restarted. Should it be alive all the same, its
//! apinit discards when it calls what there is no record of any more; and nothing is placed there
//! until an administrator resumes the node.
//!
//! All or nothing: an order in which one node is wrong changes none.

use super::{Effect, LinkId, Now, Record, ReplyId, Scheduler};
use crate::apteam::Apid;
use crate::apteam::change::{By, Change, Closed, NodeOrder};
use crate::apteam::protocol::node::Command;
use crate::apteam::record::State;
use crate::machine::{Machine, Nid, format_nids, nids_text};
use crate::psched::decide::NodesTo;
use std::collections::{BTreeMap, BTreeSet};

impl Scheduler {
    /// How an administrator has closed a node, if he has.
    pub fn closed(&self, nid: Nid) -> Option<&NodeOrder> {
        self.closed.get(&nid)
    }

    /// Nodes that this psched.yaml has anew and that stay closed, because the order of an administrator outlives
    /// the file: said where it is read.
    pub fn nodes_that_stay_closed(&self, machine: &Machine) -> Vec<String> {
        let mut alike: BTreeMap<String, Vec<Nid>> = BTreeMap::new();
        let anew = |nid: &Nid| !self.configured.nodes.contains_key(nid);
        for nid in machine.nodes.keys().copied().filter(anew) {
            if let Some(order) = self.closed(nid) {
                alike.entry(order.to_string()).or_default().push(nid);
            }
        }
        let line = |(order, nids): (String, Vec<Nid>)| {
            let list = format_nids(nids.iter().copied());
            let them = if nids.len() == 1 { "it" } else { "them" };
            format!("{} still {order} (psmgr resume {list} opens {them})", nids_text(nids))
        };
        alike.into_iter().map(line).collect()
    }

    pub(super) fn is_down(&self, nid: Nid) -> bool {
        self.closed.get(&nid).is_some_and(|order| order.closed == Closed::Down)
    }

    /// Opens a node where its apinit offers it, nobody has closed it and it does not go over to another
    /// domain, else closes it.
    pub(super) fn open_or_not(&mut self, nid: Nid) {
        let open = self.is_open(nid);
        self.occupancy.set_open(nid, open);
    }

    pub(super) fn is_open(&self, nid: Nid) -> bool {
        let link = self.offered.get(&nid).and_then(|link| self.links.get(link));
        link.is_some_and(|link| link.known)
            && !self.closed.contains_key(&nid)
            && !self.leaving.contains(&nid)
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn order_nodes(
        &mut self,
        now: Now,
        reply: ReplyId,
        to: NodesTo,
        nids: &BTreeSet<Nid>,
        reason: String,
        by: By,
        out: &mut Vec<Effect>,
    ) {
        let problems = self.problems_of_nodes(to, nids);
        if !problems.is_empty() {
            out.push(Effect::Managed { reply, done: Vec::new(), problems });
            return;
        }
        let order = match to {
            NodesTo::Close(closed) => Some(NodeOrder { closed, reason, by: by.clone() }),
            NodesTo::Resume => None,
        };
        self.failed_launches.forget(nids.iter().copied());
        // Nodes that were alike are one line of the log.
        let mut before: BTreeMap<String, Vec<Nid>> = BTreeMap::new();
        let mut changed = Vec::new();
        for nid in nids {
            let old = match &order {
                Some(order) => self.closed.insert(*nid, order.clone()),
                None => self.closed.remove(nid),
            };
            if old.is_some() || order.is_some() {
                changed.push(*nid);
                let old = old.map_or_else(|| "open".to_owned(), |old| old.to_string());
                before.entry(old).or_default().push(*nid);
            }
            self.open_or_not(*nid);
        }
        let after = order.as_ref().map_or_else(|| "open".to_owned(), NodeOrder::to_string);
        let mut done = Vec::new();
        for (before, nids) in before {
            let (what, after) = (nids_text(nids), after.clone());
            done.push(format!("{what}: {after}; before: {before}"));
            // (An order says who has given it.)
            let actor = if order.is_some() { String::new() } else { format!(", by {by}") };
            out.push(Effect::Warn(format!("{what}: {after}{actor}")));
            out.push(Effect::Keep(Record::Change(Change { by: by.clone(), what, before, after })));
        }
        let idle: Vec<Nid> = nids.iter().copied().filter(|n| !changed.contains(n)).collect();
        if !idle.is_empty() {
            done.push(format!("{}: open already", nids_text(idle)));
        }
        if !changed.is_empty() {
            out.push(Effect::Keep(Record::Nodes(changed, order.map(Box::new))));
        }
        if to == NodesTo::Close(Closed::Down) {
            done.extend(self.lose_all_down(now, nids, out));
        }
        out.push(Effect::Managed { reply, done, problems });
        self.want_decisions();
    }

    /// What is wrong with an order.
    fn problems_of_nodes(&self, to: NodesTo, nids: &BTreeSet<Nid>) -> Vec<String> {
        let (mut unknown, mut connected, mut down) = (vec![], vec![], vec![]);
        for nid in nids {
            match to {
                _ if !self.machine.nodes.contains_key(nid) && !self.closed.contains_key(nid) => {
                    unknown.push(*nid);
                }
                NodesTo::Close(Closed::Down) if self.offered.contains_key(nid) => {
                    connected.push(*nid);
                }
                NodesTo::Close(Closed::Drained) if self.is_down(*nid) => down.push(*nid),
                _ => {}
            }
        }
        let mut problems = Vec::new();
        let mut add = |nids: Vec<Nid>, text: &dyn Fn(&str) -> String| {
            if !nids.is_empty() {
                let list = format_nids(nids.iter().copied());
                problems.push(format!("{}: {}", nids_text(nids), text(&list)));
            }
        };
        add(unknown, &|_| "not in psched.yaml (apstat -n lists the nodes)".into());
        add(connected, &|list| {
            format!(
                "connected, so not down: use psmgr drain {list}, and apkill to end its \
                 applications"
            )
        });
        add(down, &|list| format!("already down: psmgr resume {list} first"));
        if nids.is_empty() {
            problems.push(format!("no nodes to {}: name some", to.verb()));
        }
        problems
    }

    /// The applications of nodes that have been declared down have lost them.
    fn lose_all_down(
        &mut self,
        now: Now,
        nids: &BTreeSet<Nid>,
        out: &mut Vec<Effect>,
    ) -> Option<String> {
        let apids: BTreeSet<Apid> =
            nids.iter().flat_map(|nid| self.occupancy.holders(*nid)).collect();
        let names: Vec<String> = apids.iter().map(|apid| self.name_of(*apid)).collect();
        for apid in apids {
            self.lose_down(now, apid, out);
        }
        (!names.is_empty()).then(|| {
            format!("{} lost nodes that are down", crate::psched::reason::name_list(names))
        })
    }

    /// An application has lost those of its nodes that are down and have not told its end.
    pub(super) fn lose_down(&mut self, now: Now, apid: Apid, out: &mut Vec<Effect>) {
        let Some(team) = self.teams.get(&apid) else { return };
        let ended = |nid: &Nid| team.end.as_ref().is_some_and(|end| end.nids.contains(nid));
        let down: Vec<Nid> =
            team.places.nids().filter(|nid| self.is_down(*nid) && !ended(nid)).collect();
        let Some(order) = down.first().and_then(|nid| self.closed.get(nid)) else { return };
        match team.state {
            // Nothing has run there, and nothing will: it waits for another place.
            State::Placed => {
                self.take_back(apid, out);
                self.save(apid, false, out);
                self.part_gone(now, apid, out);
            }
            State::TakingBack => self.part_gone(now, apid, out),
            State::Launching | State::Running => {
                let (why, key) = (format!("it was {order}"), team.key());
                // One that is heard all the same is not to go on with what no record names.
                let rest = self.links_with(team, |nid| !down.contains(&nid));
                let heard: Vec<LinkId> =
                    self.links_of(team).into_iter().filter(|l| !rest.contains(l)).collect();
                self.lose_nodes(now, apid, Some(&down), &why, out);
                for link in heard {
                    out.push(Effect::Command { link, command: Command::Discard(key) });
                }
            }
            State::Posted | State::Lapsed | State::Ended => {}
        }
    }
}
