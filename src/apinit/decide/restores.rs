//! Bringing an application back from a checkpoint.
//!
//! # Problem
//! A placement may say that nothing is to be executed: the processes come out of images, with the apshepherd
//! that they had. It has counted output and stdin from the beginning of a run whose front end is long gone,
//! by a clock of its own; its processes run as soon as nobody holds them. And an apinit that is killed in the
//! middle leaves something of which nobody knows how far it is.
//!
//! # Approach
//! Everything up to the launch is as for others: groups are made, the launch is waited for, and the
//! processors. Then the shell restores it, with the groups of its nodes frozen, and the agent takes it for one
//! whose PEs stand ready: it is let run when it is its turn, or at once where it shares with nobody.
//!
//! ```text
//!   psched  Place, restart --> MakeAndSpawn           groups, no shepherd
//!   cpr     Launch         --> Restore                kept with its placement: it has begun
//!   shell   Restored       --> KeepPlace, Comes ...   kept: it is done; it runs when it may
//!           or what failed --> KillGroups             it ends, and says why
//! ```
//!
//! What the shepherd counts is kept as it is, and shifted on its way to and from the front end ([`Shift`]):
//!
//! ```text
//!   shepherd   0 ............ 1000 | 1000 ........ 1500
//!                 written before   |  the front end's 0 ... 500
//! ```
//!
//! What had been sent of output and had not been written when it was dumped comes once more from the shepherd,
//! and is thrown away: whoever ran the application then has had it.
//!
//! Where it is on several apinits each brings its own part back, and all are let run together, as PEs that stand
//! before their first instruction are. One that can't be brought back ends all.
//!
//! The next life of an apinit finds with the placement how far the former one was ([`Restoring`]): what had
//! only begun is ended, with the reason, and what was done is as any other.

use super::application::{App, End, Shepherd};
use super::back::Back;
use super::{Action, Agent, Out, ns};
use crate::apteam::Key;
use crate::apteam::ending::{Cause, Decisive, HostEnd, NOT_THE_PROGRAM};
use crate::apteam::fault::Fault;
use crate::apteam::protocol::attach::{OutputTaken, StdinCredit, ToApinit};
use crate::apteam::protocol::node::{Restoring, Shift};
use crate::apteam::protocol::shepherd::ToShepherd;
use std::time::Duration;

/// Messages kept for a shepherd that is being brought back: signals, and the end of stdin.
const HELD_MAX: usize = 64;
/// Why one whose apinit was killed meanwhile is ended.
pub(super) const INTERRUPTED: &str = "apinit was restarted while it restored the application; \
                                      the checkpoint is unchanged: restart it again (cpr -r)";

impl App {
    /// What its shepherd counts more than its front end and this apinit.
    pub fn shift(&self) -> Shift {
        match self.place.moved.restoring {
            Restoring::Done(shift) => shift,
            Restoring::No | Restoring::Begun => Shift::default(),
        }
    }

    /// How long it had run when its checkpoint was made, in nanoseconds.
    pub fn ran_before(&self) -> u64 {
        self.place.restart.as_ref().map_or(0, |restart| ns(restart.run))
    }

    /// Nothing of it has been brought back yet.
    pub fn is_to_be_restored(&self) -> bool {
        self.place.restart.is_some() && self.place.moved.restoring == Restoring::No
    }

    /// What the front end says, as the shepherd counts.
    pub fn shifted(&self, message: ToApinit) -> ToApinit {
        let Shift { stdin, .. } = self.shift();
        match message {
            ToApinit::Stdin(mut piece) => {
                piece.offset = piece.offset.saturating_add(stdin);
                ToApinit::Stdin(piece)
            }
            ToApinit::StdinEnd(length) => ToApinit::StdinEnd(length.saturating_add(stdin)),
            ToApinit::OutputTaken(taken) => ToApinit::OutputTaken(self.shifted_taken(taken)),
            other => other,
        }
    }

    /// The same of output of the shepherd here.
    pub fn shifted_taken(&self, taken: OutputTaken) -> OutputTaken {
        if taken.source != self.index {
            return taken;
        }
        OutputTaken { offset: taken.offset.saturating_add(self.shift().output), ..taken }
    }

    /// What the shepherd allows of stdin, as the front end counts.
    pub fn front_credit(&self) -> StdinCredit {
        let Shift { stdin, .. } = self.shift();
        let StdinCredit { credit, received } = self.stdin;
        StdinCredit {
            credit: credit.saturating_sub(stdin),
            received: received.saturating_sub(stdin),
        }
    }

    /// Tells its shepherd; one that is being brought back, when it is there.
    pub fn tell_shepherd(&mut self, message: ToShepherd, out: &mut Out) {
        if self.shepherd != Shepherd::Restoring {
            out.push(Action::SendShepherd(self.key(), message));
        } else if self.held.len() < HELD_MAX && !self.held.contains(&message) {
            self.held.push(message);
        }
    }
}

impl Agent {
    /// Its launch has come, and its processors are free.
    pub(super) fn restore(&mut self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get(&key) else { return };
        let cpus = self.cpus_of(app);
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.sent = true;
        app.shepherd = Shepherd::Restoring;
        app.place.moved.restoring = Restoring::Begun;
        out.push(Action::Restore { place: Box::new(app.place.clone()), cpus });
        self.drop_launch(key);
    }

    /// It is back, or why not.
    pub(super) fn restored(
        &mut self,
        now: u64,
        key: Key,
        result: Result<Box<Back>, String>,
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if app.shepherd != Shepherd::Restoring || !app.running() {
            return;
        }
        let whole = |back: &Back| back.born.len() == app.nids.len() && back.hello.going;
        let back = match result {
            Ok(back) if app.doom.is_some() => {
                Err(format!("the application was to end before {} was restored", back.hello.key))
            }
            Ok(back) if !whole(&back) => {
                Err("its checkpoint was made before the application had started".to_owned())
            }
            other => other,
        };
        let back = match back {
            Ok(back) => *back,
            Err(text) => return self.not_restored(now, key, text, out),
        };
        app.heard_of(&back.hello);
        app.output.skip_to(back.output);
        let output = app.output.end;
        app.several = Some(back.hello.several);
        app.place.moved.born = back.born;
        app.place.moved.restoring = Restoring::Done(Shift {
            output,
            stdin: back.hello.stdin_taken,
            clock_ns: back.clock_ns,
        });
        out.push(Action::KeepPlace(Box::new(app.place.clone())));
        let stdin = app.shift().stdin;
        for message in std::mem::take(&mut app.held) {
            let message = match message {
                ToShepherd::StdinEnd(length) => ToShepherd::StdinEnd(length.saturating_add(stdin)),
                other => other,
            };
            out.push(Action::SendShepherd(key, message));
        }
        self.own_ready(key, out);
    }

    /// It can't be brought back, or has been only in part: whatever is there of it is killed.
    pub(super) fn not_restored(&mut self, now: u64, key: Key, text: String, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.shepherd = Shepherd::Gone;
        app.held.clear();
        app.launch = None;
        let (rank, nid) = (app.first_rank(), app.nid());
        // (Its images belong to one host, and are no launch to be tried again.)
        let (errno, fault) = (NOT_THE_PROGRAM, Fault::User);
        let cause = Cause::LaunchFailed { rank, nid, errno, text, fault };
        // It may have been killed because it was to end.
        let decided = app.decided(now);
        let failed = decided.or(Some(Decisive { at_ns: now, cause: cause.clone() }));
        app.first = failed.clone();
        let nids = app.nids.clone();
        app.end = End::Emptying(HostEnd { key, nids, first: failed, ..HostEnd::default() });
        out.push(Action::KillGroups { key, shepherd: true });
        out.push(Action::CheckGroupsEmpty(key));
        // The other parts stand, and none of them has run an instruction that could wait for the end.
        self.tell_head(now, key, &cause, out);
        self.end_all(now, key, cause, Duration::ZERO, Some(0), out);
    }
}
