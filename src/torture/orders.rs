//! Administrators: nodes that they drain, resume and declare down, applications that they hold.

use super::wire::Who;
use super::world::World;
use crate::apteam::Apid;
use crate::apteam::change::{By, Closed};
use crate::apteam::record::{Apteam, State};
use crate::machine::Nid;
use crate::psched::decide::{Effect, Event, NodesTo, ReplyId, Scheduler};
use std::collections::BTreeSet;

/// An order that is made with the number of its reply.
type Order = Box<dyn FnOnce(ReplyId) -> Event>;

impl World {
    /// An administrator drains a node or resumes it, holds an application or releases it. A host
    /// without power he declares down.
    pub fn administrator_comes(&mut self) {
        let Some(psched) = &self.psched else { return };
        if self.store.trouble || self.paused_until(Who::PschedFront(0)).is_some() {
            return;
        }
        self.counts.add("orders");
        let apids: Vec<Apid> = psched.driver.scheduler().teams().map(|t| t.apid).collect();
        let nids: Vec<Nid> = self.machine.nodes.keys().copied().collect();
        let off = self.slots.iter().filter(|slot| !self.hosts[slot.host].up);
        let off: BTreeSet<Nid> = off.flat_map(|slot| slot.nids.iter().copied()).collect();
        let by = By::default();
        let order = |to, nids| -> Order {
            let (reason, by) = (String::new(), by.clone());
            Box::new(move |reply| Event::Nodes { reply, to, nids, reason, by })
        };
        let event: Order = match self.faults.u32(0..12) {
            8 if !self.machine.regions.is_empty() => {
                let region = super::world::REGION.to_owned();
                Box::new(move |reply| Event::Compact { reply, region, dry_run: false, by })
            }
            8.. => {
                // To nodes that he names, of which it may not fit any, or anywhere else on its host.
                let run =
                    psched.driver.scheduler().teams().filter(|team| team.state == State::Running);
                let run: Vec<Apid> = run.map(|team| team.apid).collect();
                let Some(apid) = self.faults.choice(&run).copied() else { return };
                let team = psched.driver.scheduler().team(apid);
                let wide = team.map_or(0, |team| team.places.0.len());
                let sits = team.and_then(|team| team.places.nids().next());
                // (It goes to no other host.)
                let own =
                    self.slots.iter().find(|slot| sits.is_some_and(|n| slot.nids.contains(&n)));
                let own: Vec<Nid> = own.map_or(nids, |slot| slot.nids.iter().copied().collect());
                let first = self.faults.usize(0..own.len().max(1));
                let named = own.iter().skip(first).take(wide).copied().collect();
                let nids = Some(named).filter(|_| wide > 0 && self.faults.bool());
                Box::new(move |reply| Event::Migrate { reply, apid, nids, dry_run: false, by })
            }
            0..4 if !off.is_empty() => order(NodesTo::Close(Closed::Down), off),
            0 => order(NodesTo::Close(Closed::Drained), self.some(&nids)),
            1..4 => order(NodesTo::Resume, self.some(&nids)),
            n => {
                let (apids, hold) = (self.some(&apids), n == 4);
                Box::new(move |reply| Event::Hold { reply, apids, hold, by })
            }
        };
        self.psched_manages(event);
    }

    /// One of these, or none where there are none.
    fn some<T: Copy + Ord>(&mut self, of: &[T]) -> BTreeSet<T> {
        self.faults.choice(of).copied().into_iter().collect()
    }

    /// All nodes are resumed, and all applications released.
    pub fn orders_are_over(&mut self) {
        let Some(psched) = &self.psched else { return };
        let apids = psched.driver.scheduler().teams().map(|t| t.apid).collect();
        let nids = self.machine.nodes.keys().copied().collect();
        let (reply, reason, by) = (ReplyId(0), String::new(), By::default());
        let to = NodesTo::Resume;
        self.psched_event(Event::Nodes { reply, to, nids, reason, by: by.clone() });
        self.psched_event(Event::Hold { reply, apids, hold: false, by });
    }

    /// Nodes that psched has drained meanwhile, because launches failed there, are resumed.
    pub fn open_all_nodes(&mut self) {
        let closed = |nid| self.psched.iter().any(|p| p.driver.scheduler().closed(nid).is_some());
        if self.machine.nodes.keys().any(|nid| closed(*nid)) {
            self.orders_are_over();
        }
    }

    /// Nothing new is placed on a node that is closed, and nobody who is held.
    pub fn check_places(&mut self, s: &Scheduler, effects: &[Effect]) {
        let placed = effects.iter().filter_map(|effect| match effect {
            Effect::Log { apid, name: "placed", .. } => s.team(*apid),
            _ => None,
        });
        let wrong = |team: &&Apteam| {
            team.held.is_some() || team.places.nids().any(|nid| s.closed(nid).is_some())
        };
        let mut wrong = placed.filter(wrong).map(|team| {
            format!("{} is placed, which is held, or its nodes are closed", team.key())
        });
        if let Some(text) = wrong.next() {
            self.checks.broken(text);
        }
    }
}
