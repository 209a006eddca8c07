//! Checkpointing a running application.
//!
//! # Problem
//! A checkpoint is all or nothing: what is written is the application at one moment, and nothing is ended
//! whose checkpoint might never get its name. Who asks for it may be killed, and so may the application.
//!
//! # Approach
//! The gang is lifted, as for a move: it stands, with its turn or without, and is not let run before it is
//! seated again. The shell hangs up its shepherd's connection, dumps, and connects anew.
//!
//! ```text
//!   cpr       DumpAsked(end)  ->  Hold
//!   switcher  Held          ->  Dump
//!   shell     Dumped          ->  Seat                 it goes on (-g)
//!                                 nothing              it is to end (-k): it stands until ...
//!   cpr       DumpSaid(named) ->  end                  ... its checkpoint has its name,
//!             DumpSaid(gone)  ->  Seat                 or never will
//! ```
//!
//! Who is to end has run no instruction since its images were made. Should whoever asked neither say so nor
//! go, it goes on after [`NAME_WAIT`].
//!
//! One that is on nodes of several apinits is lifted and dumped by each of them, and none knows of the others:
//! whoever asks them all says when the next step may be. (The shell waits before it dumps until all stand.) A
//! part that is dumped stands until all are, whatever becomes of it then; and it goes on when he is gone.

use super::application::App;
use super::dumping::{DumpWord, Dumping, NAME_WAIT, PARTS_WAIT};
use super::switcher::Event as TurnEvent;
use super::{Action, Agent, Out, ns};
use crate::apteam::Key;
use crate::apteam::ending::Cause;
use std::time::Duration;

impl Agent {
    /// Why this user can have no checkpoint of it now, in words; none: he can.
    pub fn hinders_dump(&self, uid: u32, key: Key) -> Option<String> {
        // (Another user gets the answer that there would be if it were not here.)
        match self.apps.get(&key).filter(|app| uid == 0 || uid == app.place.owner.uid) {
            None => Some(format!("application {key} has ended here, or belongs to another user")),
            Some(_) if self.stranger.is_some() => {
                Some("apinit does not obey this psched (apstat -n shows why)".to_owned())
            }
            Some(app) => app.undumpable().map(|why| format!("application {} {why}", key.apid)),
        }
    }

    /// Somebody wants a checkpoint of it.
    pub(super) fn dump_asked(&mut self, asked: Dumping, key: Key, out: &mut Out) {
        let Dumping { number, uid, end, .. } = asked;
        if let Some(why) = self.hinders_dump(uid, key) {
            return out.push(Action::RefuseDump(number, why));
        }
        if let Some(app) = self.apps.get_mut(&key) {
            let holds = end || app.place.host_count() > 1;
            app.dumping = Some(Dumping { holds, ..asked });
        }
        out.push(Action::Turns(TurnEvent::Hold(key)));
    }

    /// It stands; or it can't be stopped.
    pub(super) fn lifted_for_dump(&mut self, key: Key, stands: bool, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let Some(number) = app.dumping.map(|dumping| dumping.number) else { return };
        if stands && app.is_away() {
            // It is dumped when it is back.
            return self.comes_in(key, out);
        }
        if stands {
            return out.push(Action::Dump { key, number });
        }
        app.dumping = None;
        let why = "the application can't be frozen (apstat -n shows why)";
        out.push(Action::RefuseDump(number, why.to_owned()));
        self.seat(key, out);
    }

    /// Its images are made, or could not be; its shepherd is heard again.
    pub(super) fn dumped(&mut self, now: u64, key: Key, number: u64, made: bool, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let wait = app.dump_wait();
        let Some(dumping) = app.dumping.as_mut().filter(|d| d.number == number) else { return };
        if made && dumping.holds {
            dumping.until_ns = Some(now.saturating_add(ns(wait)));
            return;
        }
        app.dumping = None;
        self.goes_on(key, out);
    }

    /// It goes on from where its images were made.
    fn goes_on(&mut self, key: Key, out: &mut Out) {
        self.pass_imaged(key, out);
        self.seat(key, out);
    }

    /// What becomes of it, or of its checkpoint.
    pub(super) fn dump_said(&mut self, now: u64, number: u64, word: DumpWord, out: &mut Out) {
        let of = |app: &&App| app.dumping.is_some_and(|dumping| dumping.number == number);
        let key = self.apps.values().find(of).map(App::key);
        let Some(app) = key.and_then(|key| self.apps.get_mut(&key)) else {
            // It has ended by itself, or whoever asked took too long; only he who is there is told.
            if word == DumpWord::Named {
                let why = "the application is no longer frozen: it was not ended (-k)";
                out.push(Action::RefuseDump(number, why.to_owned()));
            }
            return;
        };
        let key = app.key();
        let Some(dumping) = &mut app.dumping else { return };
        if word == DumpWord::AllImaged && dumping.end {
            return;
        }
        if dumping.until_ns.is_none() {
            // It is still being made, for nobody; or its shepherd is not heard yet.
            (dumping.end, dumping.holds) = (false, false);
            return;
        }
        let uid = dumping.uid;
        app.dumping = None;
        if word == DumpWord::Named {
            let cause = Cause::Checkpointed { uid };
            self.tell_head(now, key, &cause, out);
            self.end_all(now, key, cause, Duration::ZERO, None, out);
            self.drop_imaged(key, out);
            out.push(Action::DumpEnds(number));
        } else {
            self.goes_on(key, out);
        }
    }

    /// Nobody has said what becomes of one that stands.
    pub(super) fn dump_tick(&mut self, now: u64, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let seconds = app.dump_wait().as_secs();
        let due = |d: &mut Dumping| d.until_ns.is_some_and(|at| at <= now);
        if let Some(Dumping { number, .. }) = app.dumping.take_if(due) {
            let why = format!(
                "cpr did not name the checkpoint within {seconds} s: the application \
                         goes on"
            );
            out.push(Action::RefuseDump(number, why));
            self.goes_on(key, out);
        }
    }
}

impl App {
    /// It is ended because its images have their name.
    pub(super) fn ends_by_dump(&self) -> bool {
        self.doom.as_ref().is_some_and(|doom| matches!(doom.cause, Cause::Checkpointed { .. }))
    }

    /// Why no checkpoint of it can be made now.
    pub(super) fn undumpable(&self) -> Option<&'static str> {
        if self.going_ns.is_none() {
            Some("does not run yet: try again when it does")
        } else if !self.running() || self.doom.is_some() {
            Some("is ending")
        } else if self.dumping.is_some() {
            Some("is being checkpointed by another cpr: try again when that has ended")
        } else if self.moving.is_some() {
            Some("is being moved: try again in a second")
        } else if self.on_its_way() {
            Some("is being rolled out or in: try again in a second")
        } else if self.shepherd != super::application::Shepherd::Up && !self.is_away() {
            Some("has an apshepherd that does not answer (apstat -n shows why)")
        } else {
            None
        }
    }

    /// How long it stands when it is dumped.
    fn dump_wait(&self) -> Duration {
        let afar = self.dumping.is_some_and(|dumping| dumping.afar);
        if afar || self.place.host_count() > 1 { PARTS_WAIT } else { NAME_WAIT }
    }

    /// When it goes on, if nobody says anything.
    pub(super) fn dump_until_ns(&self) -> Option<u64> {
        self.dumping.filter(|_| self.running())?.until_ns
    }
}
