//! How PEs start, end and are ended: the part of the shepherd that the status depends on.

use super::pmi::Progress;
use super::{Action, FROZEN_MAX, LINGER, LINGER_STEP, SIGKILL, SIGTERM, Shepherd, Stage, after};
use crate::apteam::ending::{
    Cause, Decisive, EndCount, HostEnd, PeEnd, PeReport, Usage, count_end,
};
use crate::apteam::fault::Fault;
use crate::apteam::protocol::notice::Seen;
use crate::apteam::protocol::shepherd::FromShepherd;
use crate::machine::Nid;
use std::time::Duration;

/// errno when nothing better is known.
pub(super) const EINVAL: i32 = 22;

/// The time from TERM to KILL, of PEs that may be frozen in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grace {
    /// They are waited for no longer.
    until: u64,
    /// It is asked whether they are frozen.
    asked: bool,
    /// They were.
    frozen: bool,
}

impl Shepherd {
    pub(super) fn stopped(&mut self, rank: u32) {
        let Some(pe) = self.pes.get_mut(&rank) else { return };
        if pe.stopped || pe.ended || self.stage != Stage::Starting {
            return;
        }
        pe.stopped = true;
        self.starting -= 1;
        if self.starting == 0 && !self.ending {
            self.stage = Stage::Ready;
            self.send(|_| FromShepherd::Ready);
        }
    }

    pub(super) fn exec_failed(
        &mut self,
        now_ns: u64,
        rank: u32,
        errno: i32,
        text: String,
        fault: Fault,
    ) {
        if self.stage == Stage::Going || self.ending {
            return;
        }
        let nid = self.nid(rank);
        let cause = Cause::LaunchFailed { rank, nid, errno, text, fault };
        let first = Decisive { at_ns: now_ns, cause };
        self.first = Decisive::earlier(self.first.take(), Some(first));
        self.ending = true;
        if let Some(first) = self.first.clone() {
            self.tell(FromShepherd::Failed(first));
        }
        if self.empty_at.is_none() {
            self.kill_everything(now_ns);
        }
    }

    pub(super) fn pe_ended(&mut self, now_ns: u64, rank: u32, pid: u32, end: PeEnd, usage: Usage) {
        let Some(pe) = self.pes.get_mut(&rank).filter(|pe| !pe.ended) else { return };
        pe.ended = true;
        let nid = pe.nid;
        if !pe.stopped {
            self.starting -= 1;
        }
        self.alive -= 1;
        let went = self.stage == Stage::Going;
        self.memory.size(rank, usage.max_rss_kib);
        if went {
            self.usage = self.usage.and(usage);
            let consequence = self.ending;
            count_end(&mut self.ends, EndCount { end, count: 1, consequence });
            if self.reports {
                let elapsed = Duration::from_nanos(now_ns.saturating_sub(self.went_at));
                self.output.report(rank, nid, PeReport { pid, elapsed, end });
            }
        }
        let by_itself = !self.ending && matches!(end, PeEnd::Exit(_));
        self.ended_unmet(now_ns, rank, by_itself);
        if self.ending || self.killed_for_memory(now_ns, rank, nid, end) {
            return;
        }
        let progress = self.met(rank);
        match end {
            PeEnd::Signal(signal) => self.bad(now_ns, Cause::PeSignal { rank, nid, signal }),
            PeEnd::Exit(code) if progress == Progress::Inside => {
                self.bad(now_ns, Cause::NoFinalize { rank, nid, code })
            }
            PeEnd::Exit(_) if !went => {
                let text = "its process ended before the program was executed".to_owned();
                // (Its user may have killed it.)
                self.exec_failed(now_ns, rank, EINVAL, text, Fault::Busy);
            }
            PeEnd::Exit(0) => {}
            PeEnd::Exit(code) => self.bad(now_ns, Cause::PeExit { rank, nid, code }),
        }
    }

    /// A PE has done this.
    pub(super) fn bad(&mut self, now_ns: u64, cause: Cause) {
        self.bad_since(now_ns, now_ns, cause);
    }

    /// The same, of something that began earlier.
    pub(super) fn bad_since(&mut self, now_ns: u64, at_ns: u64, cause: Cause) {
        if self.ending {
            return;
        }
        let decisive = Decisive { at_ns, cause };
        let ends = decisive.cause.ends_application();
        if ends || self.first.is_none() {
            self.tell(FromShepherd::Decisive(decisive.clone()));
        }
        if let Some((nid, _)) = decisive.cause.notice().filter(|_| ends) {
            self.notice(nid, Seen::Ends(decisive.cause.clone()));
        }
        let cause = decisive.cause.clone();
        self.first = Decisive::earlier(self.first.take(), Some(decisive));
        if ends {
            self.end(now_ns, cause, self.kill_grace);
            let until = after(now_ns, FROZEN_MAX);
            self.grace = self.kill_at.map(|_| Grace { until, asked: false, frozen: false });
        }
    }

    /// Ends the application's part here: TERM (or the cause's own signal), KILL after `kill_after`.
    pub(super) fn end(&mut self, now_ns: u64, cause: Cause, kill_after: Duration) {
        // What came first decides.
        self.tell_memory(now_ns);
        if self.empty_at.is_some() {
            // It has ended by itself, and its status stands.
            return;
        }
        let signal = match cause {
            Cause::Kill { signal, .. } => Some(signal),
            _ if self.ending => None,
            _ => Some(SIGTERM),
        };
        self.first = Decisive::earlier(self.first.take(), Some(Decisive { at_ns: now_ns, cause }));
        self.ending = true;
        self.want_nothing(now_ns);
        if self.empty_at.is_some() {
            // Its PEs were still to be made.
        } else if self.stage == Stage::Waiting {
            // There is nothing to end, and there won't be.
            self.empty_at = Some(now_ns);
            self.absent_until = None;
        } else if self.stage != Stage::Going || kill_after.is_zero() || signal == Some(SIGKILL) {
            self.kill_everything(now_ns);
        } else {
            self.kill_by(after(now_ns, kill_after));
            if let Some(signal) = signal {
                self.actions.push(Action::Signal(signal));
            }
        }
    }

    pub(super) fn kill_by(&mut self, at: u64) {
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// The time of the KILL has come.
    pub(super) fn kill_unless_frozen(&mut self, now_ns: u64) {
        match &mut self.grace {
            Some(grace) if now_ns < grace.until => {
                grace.asked = true;
                self.actions.push(Action::LookFrozen);
            }
            _ => self.kill_everything(now_ns),
        }
    }

    /// Whoever was frozen when its grace was over has one when it runs.
    fn grace_looked(&mut self, now_ns: u64, mut grace: Grace, frozen: bool) {
        match (frozen, grace.frozen) {
            (true, _) => {
                (grace.asked, grace.frozen) = (false, true);
                self.grace = Some(grace);
                self.kill_by(after(now_ns, LINGER_STEP));
            }
            (false, true) => self.kill_by(after(now_ns, self.kill_grace)),
            (false, false) => self.kill_everything(now_ns),
        }
    }

    /// When the last PE has ended and others are left, they are given a moment to go by themselves.
    pub(super) fn wait_for_leavings(&mut self, now_ns: u64) {
        let gone = self.alive == 0 && self.spawned.is_empty();
        let left = self.stage == Stage::Going && gone && self.empty_at.is_none();
        if left && !self.swept && self.linger_until.is_none() {
            self.linger_until = Some(after(now_ns, LINGER));
        }
    }

    /// What is left is frozen: it has its moment when it has its turn.
    pub(super) fn left_frozen(&mut self, now_ns: u64) {
        let Some((ending, kill_at)) = self.before_sweep.take() else { return };
        (self.ending, self.kill_at, self.swept) = (ending, kill_at, false);
        self.thawed = Some(Duration::ZERO);
        self.linger_until = Some(after(now_ns, LINGER_STEP));
    }

    pub(super) fn look_frozen(&mut self, now_ns: u64, frozen: bool) {
        if std::mem::take(&mut self.limits_asked) {
            self.limits_looked(now_ns, frozen);
        }
        if let Some(grace) = self.grace.take_if(|grace| grace.asked) {
            return self.grace_looked(now_ns, grace, frozen);
        }
        let Some(thawed) = &mut self.thawed else { return };
        if !frozen {
            *thawed += LINGER_STEP;
        }
        if *thawed >= LINGER {
            self.thawed = None;
            self.sweep(now_ns);
        } else {
            self.linger_until = Some(after(now_ns, LINGER_STEP));
        }
    }

    /// What is left has had its moment.
    pub(super) fn sweep(&mut self, now_ns: u64) {
        self.before_sweep = Some((self.ending, self.kill_at));
        (self.ending, self.swept) = (true, true);
        self.actions.push(Action::SignalLeft(SIGTERM));
        self.kill_by(after(now_ns, self.kill_grace));
    }

    pub(super) fn no_child_left(&mut self, now_ns: u64) {
        if self.stage == Stage::Waiting || self.empty_at.is_some() {
            return;
        }
        self.tell_memory(now_ns);
        self.empty_at = Some(now_ns);
        self.kill_at = None;
        (self.linger_until, self.thawed) = (None, None);
        self.stuck.name_at = None;
    }

    pub(super) fn host_end(&self) -> HostEnd {
        let mut nids: Vec<Nid> = self.pes.values().map(|pe| pe.nid).collect();
        nids.sort_unstable();
        nids.dedup();
        let launched = self.stage == Stage::Going;
        let run = match (launched, self.empty_at) {
            (true, Some(at)) => Duration::from_nanos(at.saturating_sub(self.went_at)),
            _ => Duration::ZERO,
        };
        HostEnd {
            key: self.key,
            nids,
            launched,
            first: self.first.clone(),
            ends: self.ends.clone(),
            usage: self.usage,
            leftovers: self.leftovers,
            output_lost: false,
            run,
            // It knows neither.
            frozen: Duration::ZERO,
            peak_memory: 0,
            lost: Vec::new(),
        }
    }
}
