//! The disk under psched, and its store thread.
//!
//! The thread is the shipped [`Keeper`]; here are only its waits and the disk: a transaction is
//! written, then synced, and what psched dies between the two may be kept or not, but whole. While
//! the disk is full no transaction succeeds.

use super::psched::Question;
use super::wire::Pid;
use super::world::{Ev, World};
use super::{MS, US};
use crate::apteam::Apid;
use crate::apteam::change::Orders;
use crate::apteam::protocol::node::Start;
use crate::apteam::record::{Apteam, State};
use crate::machine::Nid;
use crate::psched::decide::Record;
use crate::psched::decide::outbox::{BATCH_MAX, COMMITS_MAX, Commit, Keeper, Outcome};
use std::collections::{BTreeMap, VecDeque};

/// What is on the disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// By number; the newest stays for ever.
    pub teams: BTreeMap<Apid, Apteam>,
    pub boots: BTreeMap<Nid, String>,
    /// What administrators have said of nodes.
    pub orders: Orders,
    pub epoch: u64,
    /// psched's starts on it.
    pub starts: Vec<Start>,
    /// Transactions so far.
    pub commits: u64,
    /// Nothing more can be written.
    pub full: bool,
}

impl Disk {
    /// What a psched that starts goes on from.
    pub fn restore(&self) -> (Vec<Apteam>, BTreeMap<Nid, String>, u64) {
        let live = self.teams.values().filter(|t| t.state != State::Ended).cloned().collect();
        let next = self.teams.keys().next_back().map_or(1, |a| a.0 + 1);
        (live, self.boots.clone(), next)
    }

    /// One transaction.
    fn keep(&mut self, records: &[Record]) {
        for record in records {
            match record {
                Record::Posted(team) | Record::Adopted(team) => {
                    drop(self.teams.insert(team.apid, (**team).clone()))
                }
                Record::Update { team, .. } => {
                    if let Some(known) = self.teams.get_mut(&team.apid) {
                        *known = (**team).clone();
                    }
                }
                Record::Nodes(nids, Some(order)) => {
                    self.orders.closed.extend(nids.iter().map(|nid| (*nid, (**order).clone())));
                }
                Record::Nodes(nids, None) => {
                    self.orders.closed.retain(|nid, _| !nids.contains(nid));
                }
                Record::Flavors(nids, Some(order)) => {
                    self.orders.flavors.extend(nids.iter().map(|nid| (*nid, (**order).clone())));
                }
                Record::Flavors(nids, None) => {
                    self.orders.flavors.retain(|nid, _| !nids.contains(nid));
                }
                // Nobody reads them here.
                Record::Log { .. }
                | Record::Variable { .. }
                | Record::Change(_)
                | Record::Shares(_) => {}
                Record::Boot(nids, boot) => {
                    self.boots.extend(nids.iter().map(|nid| (*nid, boot.clone())));
                }
            }
        }
    }
}

/// How the thread is.
#[derive(Debug, PartialEq)]
enum Doing {
    /// It waits for a commit.
    Waits,
    /// A transaction is on its way.
    Writes,
    /// It has failed and is tried again.
    Pauses,
}

/// psched's store thread.
#[derive(Debug)]
pub struct Thread {
    keeper: Keeper<Question>,
    queue: VecDeque<Commit<Question>>,
    doing: Doing,
    /// Which wait counts.
    number: u64,
    /// On its way back to the loop.
    pub back: VecDeque<Outcome<Question>>,
    /// The store fails: the gate refuses postings.
    pub trouble: bool,
    /// psched dies between the next write and its sync.
    pub dies_writing: bool,
}

impl Default for Thread {
    fn default() -> Thread {
        Thread {
            keeper: Keeper::default(),
            queue: VecDeque::new(),
            doing: Doing::Waits,
            number: 0,
            back: VecDeque::new(),
            trouble: false,
            dies_writing: false,
        }
    }
}

impl World {
    /// psched hands over a commit.
    pub fn store_is_given(&mut self, commit: Commit<Question>) {
        self.store.queue.push_back(commit);
        let queued = self.store.queue.len();
        let takes = matches!(self.store.doing, Doing::Waits | Doing::Pauses);
        self.checks.bound("commits on their way to the disk", queued, COMMITS_MAX);
        if takes {
            self.store_gathers();
        }
    }

    /// The thread takes what there is.
    fn store_gathers(&mut self) {
        let store = &mut self.store;
        let count = store.queue.len().min(BATCH_MAX);
        let batch: Vec<_> = store.queue.drain(..count).collect();
        let (outcomes, to_write) = store.keeper.take(batch);
        let pauses = store.doing == Doing::Pauses;
        self.store_gives(outcomes);
        match to_write {
            // It is not time to try again.
            _ if pauses => {}
            true => self.store_writes(),
            false => self.store_waits(),
        }
    }

    fn store_writes(&mut self) {
        let time = self.work.u64(100 * US..3 * MS);
        self.store_wakes(Doing::Writes, time);
    }

    /// The thread goes on after this time, unless something else comes first.
    fn store_wakes(&mut self, doing: Doing, time: u64) {
        let number = self.number();
        self.store.doing = doing;
        self.store.number = number;
        self.after(time, Ev::StoreDone(self.around.pid, number));
    }

    fn store_waits(&mut self) {
        if !self.store.queue.is_empty() {
            return self.store_gathers();
        }
        let patience = self.store.keeper.patience();
        self.store.doing = Doing::Waits;
        self.store.number = 0;
        if let Some(time) = patience {
            self.store_wakes(Doing::Waits, time.as_nanos() as u64);
        }
    }

    /// Outcomes go back to the loop, which takes them up one after the other.
    fn store_gives(&mut self, outcomes: Vec<Outcome<Question>>) {
        for outcome in outcomes {
            let late = self.work.u64(5 * US..80 * US);
            self.store.back.push_back(outcome);
            self.after(late, Ev::StoreOutcome(self.around.pid));
        }
    }

    /// A wait of the thread's is over.
    pub fn store_done(&mut self, pid: Pid, number: u64) {
        if self.around.pid != pid || self.store.number != number {
            return;
        }
        match self.store.doing {
            Doing::Waits => self.store_gathers(),
            Doing::Pauses => self.store_writes(),
            Doing::Writes if self.store.dies_writing => {
                self.counts.killed_between += 1;
                self.kill_psched();
            }
            Doing::Writes if self.disk.full => {
                self.store.trouble = true;
                let failed = self.store.keeper.failed("the file system is full: make room there");
                self.counts.refused_by_disk += failed.outcomes.len() as u64;
                self.store_gives(failed.outcomes);
                self.store_wakes(Doing::Pauses, failed.again.as_nanos() as u64);
                self.store_has_failed();
            }
            Doing::Writes => {
                let records: Vec<Record> =
                    self.store.keeper.records().into_iter().cloned().collect();
                let outcomes = self.store.keeper.written();
                let more = self.store.keeper.is_in_trouble();
                self.store.trouble = more;
                self.synced(&records);
                self.store_gives(outcomes);
                match more {
                    true => self.store_writes(),
                    false => self.store_waits(),
                }
            }
        }
    }

    /// Records are on the disk.
    fn synced(&mut self, records: &[Record]) {
        self.disk.keep(records);
        self.disk.commits += 1;
        for record in records {
            if let Some(team) = record.team() {
                self.note(|| format!("on disk: {} {}", team.key(), team.state.name()));
                self.checks.recorded(self.now, &self.disk, team, &self.procs);
            }
        }
    }

    /// psched dies now: what had been written and not synced is kept whole, or lost whole.
    pub fn store_dies(&mut self) {
        if self.store.doing == Doing::Writes && !self.disk.full && self.faults.bool() {
            let records: Vec<Record> = self.store.keeper.records().into_iter().cloned().collect();
            self.counts.kept_at_death += 1;
            self.synced(&records);
        } else if self.store.doing == Doing::Writes {
            self.counts.lost_at_death += 1;
        }
    }
}
