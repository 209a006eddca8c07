//! Signals: which go down, which are kept, which withdraw the posting.

use super::*;

/// Signals that are kept for later; more are merged as the kernel merges them.
const KEPT_MAX: usize = 64;

/// After so many ^C a line on stderr says how to end the application.
const INTERRUPTS_TOLD: u32 = 3;

const SIGHUP: i32 = 1;
pub(super) const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
pub(super) const SIGUSR1: i32 = 10;
pub(super) const SIGTERM: i32 = 15;

/// A signal that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) signal: i32,
    pub(super) sender: Option<i32>,
    /// Passed on at this time at the latest; `None`: when the PEs go.
    pub(super) until: Option<u64>,
}

/// A ^C before the PEs go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Withdrawal {
    pub(super) signal: i32,
    pub(super) until: u64,
}

impl Front {
    pub(super) fn signal(&mut self, now_ns: u64, signal: i32, sender: Option<i32>) {
        if signal == SIGUSR1 && self.is_psched(sender) {
            return self.nudged();
        }
        let ends = matches!(signal, SIGHUP | SIGINT | SIGQUIT | SIGTERM);
        if self.ended.is_some() || self.done {
            // Nothing is left to pass it on to, but somebody wants this process to go.
            if ends {
                self.tell_of_loss(format!("{}: its output is not complete", self.named()));
                self.exit(by_signal(signal));
            }
        } else if self.step == Step::Going {
            if signal == SIGINT {
                self.interrupted();
            }
            // While psched is away, its next process may be the sender.
            let until = (signal == SIGUSR1 && sender.is_some() && !self.psched.up)
                .then_some(now_ns + HELD_NS);
            if until.is_some() || !self.apinit.up {
                self.keep(Kept { signal, sender, until });
            } else {
                self.pass(signal);
            }
        } else if ends {
            self.withdraw(now_ns, signal);
        } else {
            self.keep(Kept { signal, sender, until: None });
        }
    }

    /// A ^C that goes to the PEs: a user whose program goes on after several is told what ends it.
    fn interrupted(&mut self) {
        self.interrupts = self.interrupts.saturating_add(1);
        if let Some(apid) = self.apid.filter(|_| self.interrupts == INTERRUPTS_TOLD) {
            if self.setup.inside {
                return self.tell(format!(
                    "the program inside application {apid} got INT {INTERRUPTS_TOLD} times and \
                     runs on; kill -9 of this {} ends it",
                    self.setup.program()
                ));
            }
            self.tell(format!(
                "application {apid} got INT {INTERRUPTS_TOLD} times and has not ended; \
                 `apkill -9 {apid}` ends it, and `apstat --why {apid}` says what is in its way"
            ));
        }
    }

    /// psched says that there may be a placement.
    pub(super) fn nudged(&mut self) {
        match self.step {
            Step::Waiting => self.look(),
            Step::Looking => self.look_again = true,
            _ => {}
        }
    }

    pub(super) fn is_psched(&self, sender: Option<i32>) -> bool {
        sender.is_some_and(|pid| self.psched_pids.contains(&pid))
    }

    pub(super) fn keep(&mut self, kept: Kept) {
        let same = |k: &Kept| (k.signal, k.sender) == (kept.signal, kept.sender);
        if self.kept.len() < KEPT_MAX && !self.kept.iter().any(same) {
            self.kept.push(kept);
        }
    }

    /// Sends it down, and keeps it until all PEs are known to have it. When very many are under way
    /// it is merged with them, as the kernel merges signals.
    fn pass(&mut self, signal: i32) {
        if self.signals.len() < KEPT_MAX {
            self.signals_sent += 1;
            let signal = NumberedSignal { number: self.signals_sent, signal };
            self.signals.push_back(signal);
            self.send(ToApinit::Signal(signal));
        }
    }

    /// Passes on what is kept, but for psched's own, if the PEs can be reached.
    pub(super) fn pass_on(&mut self) {
        if !self.apinit.up {
            return;
        }
        for kept in std::mem::take(&mut self.kept) {
            if kept.until.is_some() && !self.psched.up {
                self.kept.push(kept);
            } else if kept.signal != SIGUSR1 || !self.is_psched(kept.sender) {
                self.pass(kept.signal);
            }
        }
    }

    /// The user wants out before the PEs go.
    pub(super) fn withdraw(&mut self, now_ns: u64, signal: i32) {
        if self.withdrawal.is_some() {
            return self.exit(by_signal(signal));
        }
        self.withdrawal = Some(Withdrawal { signal, until: now_ns + WITHDRAW_PATIENCE_NS });
        match self.apid {
            Some(apid) if self.psched.up => self.act(Action::Kill { apid, signal }),
            // A posting goes with its front end.
            _ if !self.is_launched() => self.exit(by_signal(signal)),
            _ => {}
        }
        if self.is_launched() {
            let reason = FrontReason::Withdrawn { signal };
            self.send(ToApinit::Terminate { reason, kill_after: KILL_AFTER });
        }
    }
}
