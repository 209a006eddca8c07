//! A copy of psched's store that was made while it ran, and is put in its place later.
//!
//! The copy lacks what psched has committed since, and knows all of its starts: only the number of
//! commits tells. Here psched is killed, and for some seconds the apinits that dial it reach one
//! that has been started on the copy: the scheduler that ships, which restores that state and
//! judges by it what it hears from the nodes. No apinit may do as it says. (One that has heard of
//! nothing since may, for it can't know, and it holds nothing that the copy does not; such ones do
//! not reach it here, since they would not obey their own psched again before an administrator says
//! so.)

use super::store::Disk;
use super::wire::{Msg, Who, WireId};
use super::world::{Ev, World};
use super::{MS, SECOND};
use crate::apteam::protocol::node::Start;
use crate::psched::decide::{Effect, Event, LinkId, Scheduler};
use std::collections::BTreeMap;

/// The copy, and the psched that was started on it.
#[derive(Debug, Default)]
pub struct Copies {
    /// As it was made.
    kept: Option<Disk>,
    started: Option<Box<Started>>,
}

#[derive(Debug)]
struct Started {
    disk: Disk,
    /// No other has it.
    number: u64,
    /// Commits when it was made.
    before: u64,
    scheduler: Scheduler,
    links: BTreeMap<LinkId, (WireId, u64)>,
    /// Until then apinits reach it.
    until: u64,
}

impl Disk {
    /// psched starts on it.
    pub fn start(&mut self, id: String) {
        self.epoch += 1;
        self.starts.push(Start { epoch: self.epoch, id, commits: self.commits });
        self.commits += 1;
    }

    /// The id of psched's last start on it.
    pub fn start_id(&self) -> &str {
        self.starts.last().map_or("", |start| &start.id)
    }
}

impl World {
    /// Somebody makes a copy of the store, or puts the last one in psched's place.
    pub fn copy_or_put_back(&mut self) {
        if self.copies.kept.is_none() || self.chance_of_copies.u32(0..3) == 0 {
            self.copies.kept = Some(self.disk.clone());
            return;
        }
        let Some(mut disk) = self.copies.kept.clone().filter(|_| !self.disk.full) else { return };
        self.counts.add("copies");
        let before = disk.commits;
        let number = self.number();
        disk.start(format!("copy-{number}"));
        // It may have been used since.
        if self.chance_of_copies.bool() {
            disk.commits += self.chance_of_copies.u64(0..1_000);
        }
        let (teams, boots, next) = disk.restore();
        let (machine, settings) = (self.machine.clone(), self.settings.clone());
        let (orders, now) = (disk.orders.clone(), self.psched_now());
        let (mut scheduler, _) =
            Scheduler::restore(machine, settings, teams, boots, orders, next, now);
        scheduler.started(disk.epoch, disk.start_id());
        let until = self.now + self.chance_of_copies.u64(SECOND..8 * SECOND);
        let links = BTreeMap::new();
        self.copies.started =
            Some(Box::new(Started { disk, number, before, scheduler, links, until }));
        if self.psched.is_some() {
            self.kill_psched();
        }
    }

    /// The psched on the copy, by its number, if an apinit that dials psched now reaches that one.
    pub fn reaches_copy(&self, slot: usize) -> Option<u64> {
        let (started, proc) = (self.copies.started.as_ref()?, self.slots[slot].proc.as_ref()?);
        let there = self.now < started.until && !self.ending;
        (there && proc.agent()?.commits() > started.before).then_some(started.number)
    }

    /// An apinit has dialled the psched on a copy: that may be gone by now, and another be there.
    pub fn copy_opened(&mut self, wire: WireId, number: u64) -> Option<Who> {
        let link = LinkId(self.number());
        let started = self.copies.started.as_mut().filter(|started| started.number == number)?;
        started.links.insert(link, (wire, 0));
        let late = self.chance_of_copies.u64(10 * MS..3_000 * MS);
        self.after(late, Ev::Lost(wire, 1));
        self.after(late, Ev::Lost(wire, 0));
        Some(Who::Copy(link))
    }

    /// What the psched on the copy hears.
    pub fn copy_hears(&mut self, link: LinkId, msg: Msg) {
        let event = match msg {
            Msg::Hello(hello) => Event::LinkOpened { link, hello },
            Msg::Inventory(items) => Event::Inventory { link, items },
            Msg::Report(report) => Event::Report { link, report },
            Msg::Eof => Event::LinkClosed { link },
            _ => return,
        };
        let now = self.psched_now();
        let Some(started) = &mut self.copies.started else { return };
        if !started.links.contains_key(&link) {
            // It was one's before this.
            return;
        }
        for effect in started.scheduler.apply(now, event) {
            self.copy_does(effect);
        }
    }

    fn copy_does(&mut self, effect: Effect) {
        let Some(started) = &mut self.copies.started else { return };
        match effect {
            Effect::Command { link, command } => {
                if let Some((wire, seq)) = started.links.get_mut(&link) {
                    *seq += 1;
                    let (wire, seq, commits) = (*wire, *seq, started.disk.commits);
                    self.send(wire, 1, Msg::Command(seq, commits, Box::new(command)));
                }
            }
            Effect::Welcome { link, nids } => {
                let next_apid = started.scheduler.next_apid();
                let (wire, disk) = (started.links.get(&link).copied(), started.disk.clone());
                if let Some((wire, _)) = wire {
                    let welcome = self.welcome_of(&disk, next_apid, &nids);
                    self.send(wire, 1, Msg::Welcome(Box::new(welcome)));
                }
            }
            _ => {}
        }
    }
}
