//! Checkpoints and restarts: an application goes on where it was, and one that is ended for its checkpoint
//! has run nothing since.

use super::Checks;
use super::output::Shown;
use crate::apteam::{Apid, Key};
use crate::torture::program::Plan;
use crate::torture::wire::Pid;
use std::collections::{BTreeMap, BTreeSet};

/// What was known of an application when its checkpoint was made. (By each rank: what it had done, when that
/// was does not matter any more.)
#[derive(Clone, Debug)]
pub struct Past {
    /// Its PEs that had ended, with the status of those that ended badly.
    ends: BTreeMap<u32, Option<u8>>,
    other: Vec<u8>,
    /// Statuses that something from outside had excused.
    excused: BTreeSet<u8>,
    inside: BTreeSet<u32>,
    rounds: BTreeMap<u32, u32>,
    wrote: BTreeMap<u32, u64>,
    stream: Vec<(u32, u64)>,
    /// What had left its shepherd: whoever ran it then has had that.
    shown: BTreeMap<u32, u64>,
    /// Bytes that PE 0 had been given to read.
    pub read: u64,
}

impl Checks {
    /// What is known of one of which a checkpoint is made, and its program; so much of its output, in bytes,
    /// had left its shepherd.
    pub fn past(&self, key: Key, output: u64) -> Option<(Past, Plan)> {
        let course = self.courses.get(&key.apid)?;
        let plan = self.lives.get(&course.front)?.plan.clone();
        let mut shown = BTreeMap::new();
        let mut left = output;
        for (rank, count) in &course.stream {
            let had = left.min(*count);
            *shown.entry(*rank).or_default() += had;
            left -= had;
        }
        let past = Past {
            ends: course.ends.iter().map(|(rank, (_, _, status))| (*rank, *status)).collect(),
            other: course.other.iter().map(|(_, status)| *status).collect(),
            excused: course.excused.clone(),
            inside: course.inside.clone(),
            rounds: course.rounds.clone(),
            wrote: course.wrote.clone(),
            stream: course.stream.clone(),
            shown,
            read: course.read,
        };
        Some((past, plan))
    }

    /// A front end has its number: what it restarts goes on from its checkpoint.
    pub(super) fn goes_on_from(&mut self, apid: Apid, front: Pid) {
        let Some(past) = self.lives.get(&front).and_then(|life| life.past.clone()) else { return };
        let course = self.course(apid);
        if std::mem::replace(&mut course.restarted, true) {
            return;
        }
        let ends = past.ends.into_iter().map(|(rank, status)| (rank, (0, 0, status)));
        course.ends = ends.collect();
        course.other = past.other.into_iter().map(|status| (0, status)).collect();
        course.excused.extend(past.excused);
        course.inside = past.inside;
        course.rounds = past.rounds;
        course.wrote = past.wrote;
        course.stream = past.stream;
        course.shown = Shown(past.shown);
        course.read = past.read;
    }

    /// It could not be brought back, for a reason that is no fault of psched's.
    pub fn not_restored(&mut self, apid: Apid) {
        self.course(apid).not_restored = true;
    }

    /// Images were made of one that is to be ended for them.
    pub fn imaged(&mut self, key: Key) {
        self.imaged.insert(key);
    }

    /// It is let run.
    pub fn goes_on(&mut self, key: Key) {
        self.imaged.remove(&key);
    }

    /// Its checkpoint has its name, and its apinit is told so: the application may end for it.
    pub fn may_end_by_dump(&mut self, apid: Apid) {
        self.excuse(apid, 137);
    }

    /// It is ended for its checkpoint.
    pub fn ends_by_dump(&mut self, key: Key) {
        if !self.imaged.contains(&key) {
            return self.broken(format!("{key} is ended for a checkpoint since which it has run"));
        }
        let course = self.course(key.apid);
        course.checkpointed = true;
    }
}
