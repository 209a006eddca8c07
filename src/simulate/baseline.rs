//! What gangs are compared with: first come first served, and EASY backfilling.
//!
//! Both start a job as a whole on any processors that are free, and let it run to its end. EASY (Lifka
//! 1995) lets a later job go before the first that does not fit, if by the users' estimates that one is
//! not later for it: the later job is over by then, or needs only processors that the first one leaves.
//!
//! At an instant all ends count, then all submissions; then there is one pass over those that wait.

use super::workload::Job;
use super::{Capacity, Outcome, Watch, nanos};
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

/// In which order jobs that wait are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Strictly in order of arrival.
    Fcfs,
    /// Later ones too, where that does not keep the first waiting.
    Easy,
}

/// A machine, with who runs and who waits.
struct Batch<'w, W> {
    processors: u32,
    free: u32,
    queue: VecDeque<Job>,
    /// By end, in nanoseconds of the log as all times here, then in order of start.
    ends: BinaryHeap<Reverse<(u64, u64)>>,
    /// Width and estimated end of those that run, by number of their start.
    running: BTreeMap<u64, (u32, u64)>,
    /// Processors that come free at each estimated end, and of how many jobs.
    estimated: BTreeMap<u64, (u32, u32)>,
    starts: u64,
    watch: &'w mut W,
    capacity: Capacity,
    /// Until when capacity is counted.
    counted: Option<u64>,
}

/// Replays these jobs, in their order of submission, on so many processors. A job is told of when it
/// is started, at once with its end. Nothing costs anything, and no processor is where it is of no use.
///
/// # Errors
/// Those of the jobs.
pub fn replay<E>(
    processors: u32,
    policy: Policy,
    jobs: impl Iterator<Item = Result<Job, E>>,
    watch: &mut impl Watch,
) -> Result<Capacity, E> {
    let mut batch = Batch {
        processors,
        free: processors,
        queue: VecDeque::new(),
        ends: BinaryHeap::new(),
        running: BTreeMap::new(),
        estimated: BTreeMap::new(),
        starts: 0,
        watch,
        capacity: Capacity::default(),
        counted: None,
    };
    let mut next = jobs.fuse();
    let mut job = next.next().transpose()?;
    loop {
        let end = batch.ends.peek().map(|Reverse((end, _))| *end);
        let submit = job.as_ref().map(|job| nanos(job.submit));
        let Some(now) = submit.into_iter().chain(end).min() else { return Ok(batch.capacity) };
        batch.count(now);
        batch.end(now);
        while let Some(come) = job.take_if(|job| nanos(job.submit) <= now) {
            batch.queue.push_back(come);
            job = next.next().transpose()?;
        }
        batch.pass(now, policy);
        let held = processors - batch.free;
        batch.watch.at(Duration::from_nanos(now), held, batch.queue.len());
    }
}

impl<W: Watch> Batch<'_, W> {
    /// What the machine did until then.
    fn count(&mut self, now: u64) {
        let since = self.counted.replace(now).unwrap_or(now);
        let for_secs = Duration::from_nanos(now.saturating_sub(since)).as_secs_f64();
        self.capacity.useful += f64::from(self.processors - self.free) * for_secs;
        let idle = match self.queue.is_empty() {
            true => &mut self.capacity.idle,
            false => &mut self.capacity.kept,
        };
        *idle += f64::from(self.free) * for_secs;
    }

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
        let end = now.saturating_add(nanos(job.run));
        self.ends.push(Reverse((end, self.starts)));
        let estimated = now.saturating_add(nanos(job.estimate));
        self.running.insert(self.starts, (job.width, estimated));
        let (widths, jobs) = self.estimated.entry(estimated).or_default();
        (*widths, *jobs) = (*widths + job.width, *jobs + 1);
        let (start, end) = (Duration::from_nanos(now), Duration::from_nanos(end));
        self.watch.done(Outcome { job, start, end, turns: None });
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
            let over_by_then = now.saturating_add(nanos(job.estimate)) <= shadow;
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PROCESSORS: u32 = 6;

    /// Starts as the rules have them word by word, second by second, with no state but the starts.
    fn slow(policy: Policy, jobs: &[Job]) -> Vec<u64> {
        let mut starts: Vec<Option<u64>> = vec![None; jobs.len()];
        let runs = |starts: &[Option<u64>], i: usize, now| {
            starts[i].is_some_and(|start| start <= now && now < start + jobs[i].run.as_secs())
        };
        let free = |starts: &[Option<u64>], now| {
            let held = (0..jobs.len()).filter(|i| runs(starts, *i, now)).map(|i| jobs[i].width);
            PROCESSORS - held.sum::<u32>()
        };
        let mut now = 0;
        while starts.contains(&None) {
            let come = |i: &usize| jobs[*i].submit.as_secs() <= now;
            let waits: Vec<usize> =
                (0..jobs.len()).filter(come).filter(|i| starts[*i].is_none()).collect();
            let mut waits = waits.into_iter().peekable();
            while let Some(i) = waits.next_if(|i| jobs[*i].width <= free(&starts, now)) {
                starts[i] = Some(now);
            }
            if let (Policy::Easy, Some(head)) = (policy, waits.next()) {
                let mut ends: Vec<(u64, u32)> = (0..jobs.len())
                    .filter(|i| runs(&starts, *i, now))
                    .map(|i| {
                        (starts[i].unwrap_or_default() + jobs[i].estimate.as_secs(), jobs[i].width)
                    })
                    .collect();
                ends.sort_unstable();
                let by = |end: u64| -> u32 {
                    let over = ends.iter().filter(|(at, _)| *at <= end).map(|(_, width)| width);
                    free(&starts, now) + over.sum::<u32>()
                };
                let first = ends.iter().find(|(end, _)| by(*end) >= jobs[head].width);
                let shadow = first.expect("alone it fits").0;
                let mut extra = by(shadow) - jobs[head].width;
                for i in waits {
                    let soon = now + jobs[i].estimate.as_secs() <= shadow;
                    if jobs[i].width <= free(&starts, now) && (soon || jobs[i].width <= extra) {
                        extra -= if soon { 0 } else { jobs[i].width };
                        starts[i] = Some(now);
                    }
                }
            }
            now += 1;
        }
        starts.into_iter().flatten().collect()
    }

    #[derive(Default)]
    struct Seen {
        outcomes: Vec<Outcome>,
        largest: u32,
    }

    impl Watch for Seen {
        fn done(&mut self, outcome: Outcome) {
            self.outcomes.push(outcome);
        }

        fn at(&mut self, _: Duration, held: u32, _: usize) {
            self.largest = self.largest.max(held);
        }
    }

    fn jobs() -> impl Strategy<Value = Vec<Job>> {
        let job = (0u64..8, 1..=PROCESSORS, 1u64..20, 0u64..20);
        proptest::collection::vec(job, 1..40).prop_map(|jobs| {
            let mut submit = 0;
            let jobs = (1..).zip(jobs).map(|(line, (after, width, run, more))| {
                submit += after;
                let [submit, run, estimate] = [submit, run, run + more].map(Duration::from_secs);
                Job { line, submit, width, run, estimate, ..Job::default() }
            });
            jobs.collect()
        })
    }

    proptest! {
        #[test]
        fn starts_are_those_of_the_rules(jobs in jobs(), easy: bool) {
            let policy = if easy { Policy::Easy } else { Policy::Fcfs };
            let mut seen = Seen::default();
            let all = jobs.iter().cloned().map(Ok::<_, ()>);
            let capacity = replay(PROCESSORS, policy, all, &mut seen).expect("good jobs");
            seen.outcomes.sort_by_key(|outcome| outcome.job.line);
            let starts: Vec<u64> = seen.outcomes.iter().map(|o| o.start.as_secs()).collect();
            prop_assert_eq!(starts, slow(policy, &jobs));
            prop_assert!(seen.largest <= PROCESSORS);
            let work: u64 = jobs.iter().map(|job| u64::from(job.width) * job.run.as_secs()).sum();
            prop_assert_eq!(capacity.useful, work as f64);
            let end = seen.outcomes.iter().map(|o| o.end.as_secs()).max().unwrap_or_default();
            let all = f64::from(PROCESSORS) * (end - jobs[0].submit.as_secs()) as f64;
            prop_assert_eq!(capacity.total(), all);
        }
    }
}
