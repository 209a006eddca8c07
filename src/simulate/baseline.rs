//! What gangs are compared with: first come first served, and EASY backfilling.
//!
//! Both start a job as a whole on any processors that are free, and let it run to its end. EASY (Lifka
//! 1995) lets a later job go before the first that does not fit, if by the users' estimates that one is
//! not later for it: the later job is over by then, or needs only processors that the first one leaves.
//!
//! At an instant all ends count, then all submissions; then there is one pass over those that wait.

use super::Outcome;
use super::workload::Job;
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// In which order jobs that wait are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Strictly in order of arrival.
    Fcfs,
    /// Later ones too, where that does not keep the first waiting.
    Easy,
}

/// A machine, with who runs and who waits.
struct Batch<F> {
    free: u32,
    queue: VecDeque<Job>,
    /// By end, then in order of start.
    ends: BinaryHeap<Reverse<(u64, u64)>>,
    /// Width and estimated end of those that run, by number of their start.
    running: BTreeMap<u64, (u32, u64)>,
    /// Processors that come free at each estimated end, and of how many jobs.
    estimated: BTreeMap<u64, (u32, u32)>,
    starts: u64,
    done: F,
}

/// Replays these jobs, in their order of submission, on so many processors; each is told when it is
/// started, at once with its end.
///
/// # Errors
/// Those of the jobs.
pub fn replay<E>(
    processors: u32,
    policy: Policy,
    jobs: impl Iterator<Item = Result<Job, E>>,
    done: impl FnMut(Outcome),
) -> Result<(), E> {
    let mut batch = Batch {
        free: processors,
        queue: VecDeque::new(),
        ends: BinaryHeap::new(),
        running: BTreeMap::new(),
        estimated: BTreeMap::new(),
        starts: 0,
        done,
    };
    let mut jobs = jobs.peekable();
    loop {
        let next = match jobs.peek() {
            Some(Ok(job)) => Some(job.submit),
            Some(Err(_)) => return jobs.next().map_or(Ok(()), |job| job.map(drop)),
            None => None,
        };
        let end = batch.ends.peek().map(|Reverse((end, _))| *end);
        let Some(now) = next.into_iter().chain(end).min() else { return Ok(()) };
        batch.end(now);
        while let Some(Ok(job)) = jobs.next_if(|job| job.as_ref().is_ok_and(|j| j.submit <= now)) {
            batch.queue.push_back(job);
        }
        batch.pass(now, policy);
    }
}

impl<F: FnMut(Outcome)> Batch<F> {
    /// All ends until then.
    fn end(&mut self, now: u64) {
        while let Some(Reverse((_, number))) = self.ends.peek().filter(|Reverse(e)| e.0 <= now) {
            let number = *number;
            self.ends.pop();
            let Some((width, estimated)) = self.running.remove(&number) else { continue };
            self.free += width;
            if let Entry::Occupied(mut at) = self.estimated.entry(estimated) {
                let (widths, jobs) = at.get_mut();
                (*widths, *jobs) = (*widths - width, *jobs - 1);
                if *jobs == 0 {
                    at.remove();
                }
            }
        }
    }

    fn start(&mut self, now: u64, job: Job) {
        self.free -= job.width;
        self.starts += 1;
        let end = now.saturating_add(job.run);
        self.ends.push(Reverse((end, self.starts)));
        let estimated = now.saturating_add(job.estimate);
        self.running.insert(self.starts, (job.width, estimated));
        let (widths, jobs) = self.estimated.entry(estimated).or_default();
        (*widths, *jobs) = (*widths + job.width, *jobs + 1);
        (self.done)(Outcome { job, start: now, end });
    }

    fn pass(&mut self, now: u64, policy: Policy) {
        while let Some(job) = self.queue.pop_front_if(|job| job.width <= self.free) {
            self.start(now, job);
        }
        if policy == Policy::Easy && self.queue.len() > 1 && self.free > 0 {
            self.backfill(now);
        }
    }

    /// When the first that waits has room at the latest, by the estimates, and how many processors it then
    /// leaves.
    fn shadow(&self) -> Option<(u64, u32)> {
        let head = self.queue.front()?;
        let mut free = self.free;
        self.estimated.iter().find_map(|(at, (widths, _))| {
            free += widths;
            Some((*at, free.checked_sub(head.width)?))
        })
    }

    fn backfill(&mut self, now: u64) {
        let Some((shadow, mut extra)) = self.shadow() else { return };
        let mut at = 1;
        while at < self.queue.len() && self.free > 0 {
            let job = &self.queue[at];
            let over_by_then = now.saturating_add(job.estimate) <= shadow;
            if job.width > self.free || !over_by_then && job.width > extra {
                at += 1;
                continue;
            }
            if !over_by_then {
                extra -= job.width;
            }
            if let Some(job) = self.queue.remove(at) {
                self.start(now, job);
            }
        }
    }
}
