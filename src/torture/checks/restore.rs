//! The restart property: a psched that goes on from the records decides as the one that wrote them.
//!
//! At some moment both are made: a copy of the scheduler that runs, whose links are all closed, and
//! one restored from its records. Both then hear the same, and must do the same.

use crate::apteam::ending::HostEnd;
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::protocol::node::{Command, Hello, PROTOCOL, Phase, Report};
use crate::apteam::record::{Apteam, FrontProcess, State};
use crate::apteam::shape::Shape;
use crate::apteam::{Apid, Key, Ticket};
use crate::machine::Nid;
use crate::psched::decide::{Effect, Event, LinkId, Now, ReplyId, Scheduler};
use crate::torture::SECOND;
use crate::torture::world::World;

fn is_plan(effect: &Effect) -> bool {
    use Command::{AgreePlan, Plan, WithdrawPlan};
    let Effect::Command { command, .. } = effect else { return false };
    matches!(command, Plan(_) | AgreePlan(_) | WithdrawPlan(_))
}

/// Leaves out the number of a question to a host.
fn without_number(effect: &mut Effect) {
    if let Effect::Command { command: Command::TakeBack { number, .. }, .. } = effect {
        *number = 0;
    }
}

impl World {
    /// Compares the two, where nothing is on its way to the disk.
    pub fn check_restart(&mut self) {
        let Some(psched) = &self.psched else { return };
        // Which nodes have given a place back already is asked again after a restart.
        let taking = psched.driver.scheduler().teams().any(|t| t.state == State::TakingBack);
        // And how much memory applications have, which is on no record.
        let measured = psched.driver.scheduler().measured();
        let known =
            psched.driver.scheduler().teams().any(|t| measured.peaks(t.apid).next().is_some());
        // And what each has had and how long each has waited for its turn, which decides who is
        // placed next of those who wait, and beside whom where applications share processors.
        let decided = |t: &Apteam| t.shares || matches!(t.state, State::Running | State::Posted);
        let by_time = psched.driver.scheduler().teams().any(decided);
        // And how many launches have failed on a node in a row.
        let counts = psched.driver.scheduler().counts_failed_launches();
        if taking || known || by_time || counts || psched.driver.is_busy() {
            return;
        }
        let mut old = psched.driver.scheduler().clone();
        let now = Now { mono_ns: self.mono(0), wall_ns: self.hosts[0].wall(self.now) };
        for link in psched.driver.links() {
            old.apply(now, Event::LinkClosed { link });
        }
        let records = old.teams().cloned().collect();
        let (machine, settings) = (self.machine.clone(), self.settings.clone());
        let (_, boots, _) = self.disk.restore();
        let orders = self.disk.orders.clone();
        let next = old.next_apid();
        let (mut new, effects) =
            Scheduler::restore(machine, settings, records, boots, orders, next, now);
        if !effects.is_empty() {
            return self.checks.broken(format!("a restart alone does something: {effects:?}"));
        }
        // (Tickets differ between starts.)
        old.started(0, "next");
        new.started(0, "next");
        let mut later = now;
        for event in self.what_follows(&old) {
            later.mono_ns += SECOND / 3;
            let (mut a, mut b) = (old.apply(later, event.clone()), new.apply(later, event.clone()));
            // Slice plans are on no record: they are made anew.
            a.retain(|effect| !is_plan(effect));
            b.retain(|effect| !is_plan(effect));
            // Nor are the numbers of questions, which no other psched has used.
            a.iter_mut().chain(&mut b).for_each(without_number);
            if a != b {
                let event = super::super::trace::cut(&event);
                let text = format!("after a restart {event} gives {b:?} in place of {a:?}");
                return self.checks.broken(text);
            }
        }
        self.checks.restored += 1;
    }

    /// What both hear: nodes that call with most of what they should have, looks, ends, kills.
    fn what_follows(&mut self, s: &Scheduler) -> Vec<Event> {
        let mut events = Vec::new();
        let teams: Vec<_> = s.teams().cloned().collect();
        for (slot, at) in self.slots.iter().enumerate() {
            let host = &self.hosts[at.host];
            // Now and then from another boot.
            let boot = if self.faults.u32(0..6) == 0 { "other".into() } else { host.boot_id() };
            let nids: Vec<Nid> = at.nids.iter().copied().collect();
            let link = LinkId(1_000_000 + slot as u64);
            let hello = Hello {
                protocol: PROTOCOL,
                socket: super::super::apinit::Slot::socket(slot),
                hostname: host.name.clone(),
                boot_id: boot,
                nids: nids.clone(),
                ..Hello::default()
            };
            events.push(Event::LinkOpened { link, hello: Box::new(hello) });
            let mut items: Vec<(Key, Phase)> = Vec::new();
            for team in teams.iter().filter(|t| t.places.nids().any(|n| nids.contains(&n))) {
                let phase = match team.state {
                    State::Placed => Phase::Placed,
                    State::Launching => Phase::Launched,
                    _ => Phase::Running,
                };
                if self.faults.u32(0..5) > 0 {
                    items.push((team.key(), phase));
                }
            }
            events.push(Event::Inventory { link, items });
            for team in teams.iter().filter(|t| t.places.nids().any(|n| nids.contains(&n))) {
                if self.faults.u32(0..2) == 0 {
                    let own = team.places.nids().filter(|n| nids.contains(n)).collect();
                    let end = HostEnd { key: team.key(), nids: own, ..HostEnd::default() };
                    let report = Box::new(Report::Ended(Box::new(end)));
                    events.push(Event::Report { link, report });
                }
            }
        }
        for team in &teams {
            let (reply, apid) = (ReplyId(9), team.apid);
            match self.faults.u32(0..4) {
                0 => events.push(Event::Looked { reply, apid }),
                1 => events.push(Event::FrontGone { apid }),
                2 => events.push(Event::Kill {
                    reply,
                    apids: vec![apid, Apid(999_999)],
                    signal: 0,
                    uid: team.owner.uid,
                    administrator: false,
                }),
                _ => {}
            }
        }
        let shape = Shape { width: 2, depth: 1, per_node: None };
        let posting = Posting { command: "next".into(), ..Posting::plain([255; 16], shape) };
        events.push(Event::Posted {
            reply: ReplyId(1),
            posting: Box::new(posting),
            owner: Owner { uid: 1, name: "next".into(), ..Owner::default() },
            front: FrontProcess::here(1, 1),
            secret: Ticket([1; 16]),
        });
        events.extend((0..30).map(|_| Event::Tick));
        events
    }
}
