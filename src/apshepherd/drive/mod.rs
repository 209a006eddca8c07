//! apshepherd's driver: what happens goes to the pure [`Shepherd`], and what it wants is done through
//! [`Outside`].
//!
//! # Problem
//! The end of an application is a matter of order: a PE's last PMI words come before its end, all ends
//! before the word that no child is left, and that before the end of the output, which a process that a
//! PE has left behind may hold open for ever. While actions are under way nothing new may be heard.
//!
//! # Approach
//! One driver, generic over the world outside: apshepherd and the simulated cluster run it.
//!
//! - *What happens within an action waits* until all actions before it are done.
//! - *Without a child, what the pipes hold now is all.* It is read piece by piece, as far as output may be
//!   read, and then the pipes are closed, even if a process elsewhere still has their other ends.
//! - *A signal for what is left is not sent to frozen processes*: their time is not running.

mod outside;

pub use outside::Outside;

use crate::apshepherd::decide::{Action, Event, Shepherd};
use crate::apteam::Key;
use crate::apteam::protocol::processes::{Answer, Question};
use crate::apteam::protocol::shepherd::FromShepherd;
use std::collections::VecDeque;

/// apshepherd around its pure self. (A checkpoint has a copy of it, as of all memory.)
#[derive(Clone, Debug)]
pub struct Driver {
    shepherd: Shepherd,
    /// What has happened while something was done.
    pending: VecDeque<Event>,
    /// PEs have been forked, and there is no child any more.
    childless: bool,
    /// The pipes have been closed after that.
    drained: bool,
    /// Output is read.
    reading: bool,
}

impl Driver {
    /// The shepherd of this application, born now. [`Driver::begin`] is to follow.
    pub fn new(now_ns: u64, key: Key) -> Driver {
        Driver {
            shepherd: Shepherd::new(now_ns, key),
            pending: VecDeque::new(),
            childless: false,
            drained: false,
            reading: true,
        }
    }

    /// Sets the first timer.
    pub fn begin(&mut self, out: &mut impl Outside) {
        self.happens(out, Event::Tick);
    }

    /// Hears an event, and carries out everything that follows from it at once.
    pub fn happens(&mut self, out: &mut impl Outside, event: Event) {
        self.pending.push_back(event);
        self.settle(out);
    }

    /// There is no child, and PEs have been forked.
    pub fn no_child(&mut self, out: &mut impl Outside) {
        if !std::mem::replace(&mut self.childless, true) {
            self.happens(out, Event::NoChildLeft);
        }
    }

    /// Hears the results of calls, and carries out everything that follows from them.
    pub fn settle(&mut self, out: &mut impl Outside) {
        loop {
            self.pending.extend(out.happened());
            if let Some(next) = self.pending.pop_front() {
                out.hears(&next);
                for action in self.shepherd.apply(out.now_ns(), next) {
                    self.act(out, action);
                }
            } else if self.childless && self.reading && !self.drained {
                self.drained = !out.drain();
            } else {
                return;
            }
        }
    }

    fn act(&mut self, out: &mut impl Outside, action: Action) {
        out.does(&action);
        match action {
            Action::Fork(launch) => out.fork(launch),
            Action::ForkWith(programs) => out.fork_with(programs),
            Action::Go => out.go(),
            Action::Signal(signal) => out.signal(signal),
            Action::SignalLeft(signal) => {
                let done = match out.is_frozen() {
                    true => Event::LeftFrozen,
                    false => Event::LeftFound(out.signal_left(signal)),
                };
                self.pending.push_back(done);
            }
            Action::LookFrozen => self.pending.push_back(Event::Frozen(out.is_frozen())),
            Action::NameLeft => self.pending.push_back(Event::LeftNamed(out.left())),
            Action::KillEverything => out.kill_everything(),
            Action::Send(message) => out.tell(message),
            Action::Notice { nid, what } => out.notice(nid, what),
            Action::TellProcesses(question) => {
                let Question { number, key, .. } = question;
                let (processes, why_not) = (out.processes(&question), String::new());
                let answer = Answer { number, key, processes, why_not };
                out.tell(FromShepherd::Processes(answer));
            }
            Action::LookAtPes(ranks) => {
                self.pending.push_back(Event::PesLooked(out.look_at_pes(&ranks)));
            }
            Action::StartDebugger { number, rank } => out.start_debugger(number, rank),
            Action::LetDebuggerWork(number) => out.let_debugger_work(number),
            Action::EndDebugger(number) => out.end_debugger(number),
            Action::LeaveDebugger(number) => out.leave_debugger(number),
            Action::Spawn { number, rank, request } => out.spawn(number, rank, request),
            Action::LetSpawnedRun(number) => out.let_spawned_run(number),
            Action::EndSpawned(number) => out.end_spawned(number),
            Action::Rekeyed(key) => out.rekeyed(key),
            Action::Hangup => {
                if out.hang_up() {
                    self.pending.push_back(Event::Disconnected);
                }
            }
            Action::PmiSend { rank, data } => out.answer_pmi(rank, data),
            Action::PmiClose { rank } => out.close_pmi(rank),
            Action::LookForMpi(ranks) => {
                self.pending.push_back(Event::MpiFound(out.look_for_mpi(&ranks)));
            }
            Action::TellMix(message) => out.tell_mix(message),
            Action::ReadOutput(on) => {
                self.reading = on;
                out.read_output(on);
            }
            Action::WriteStdin(data) => out.write_stdin(data),
            Action::CloseStdin => out.close_stdin(),
            Action::SetTimer(at) => out.set_timer(at),
            Action::Exit => out.exit(),
        }
    }
}
