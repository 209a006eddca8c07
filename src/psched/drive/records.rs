//! Records on their way to the disk, and what waits for them.

use super::{Driver, Killed, Managed, Note, Outside, Refused, Waiter};
use crate::psched::decide::outbox::{Commit, Held, Kept, Outcome, Release};
use crate::psched::decide::{Effect, Event, Record};

impl<O: Outside> Driver<O> {
    /// Whether records are with the store.
    pub fn is_busy(&self) -> bool {
        self.outbox.under_way() > 0
    }

    /// Whether as many records wait for the disk as may.
    pub fn is_full(&self) -> bool {
        self.outbox.is_full()
    }

    /// Lets leave what may leave at once, and has the store keep what is to be kept.
    pub(super) fn take(&mut self, out: &mut O, effects: Vec<Effect>) {
        self.look_at_invariants(out);
        if effects.is_empty() {
            return;
        }
        out.decided(&self.scheduler, &effects);
        let leaving = self.outbox.take(out.now().wall_ns, effects);
        for effect in leaving.now {
            self.perform(out, effect);
        }
        if let Some(commit) = leaving.commit {
            out.commit(commit);
        }
        self.give_if_it_waits(out);
    }

    /// Keeps records that are not of an event.
    pub fn keep(&mut self, out: &mut O, records: Vec<Record>) {
        let commit: Commit<O::Look> = self.outbox.keep(records);
        out.commit(commit);
    }

    /// The last word on what users have had, before psched ends.
    pub fn keep_shares(&mut self, out: &mut O) {
        let now = out.now();
        self.recorder.ends(now);
        let shares: Vec<Effect> = self.scheduler.keep_shares(now).into_iter().collect();
        self.recorder.gave(&shares);
        self.take(out, shares);
    }

    /// Gives a question its answer when all before it is durable, or known to wait.
    pub fn look(&mut self, out: &mut O, look: O::Look) {
        match self.outbox.hold(look) {
            Err(look) => out.look(look, Kept::Yes),
            Ok(()) => self.give_if_it_waits(out),
        }
    }

    /// The store has answered.
    pub fn outcomes(&mut self, out: &mut O, outcomes: Vec<Outcome<O::Look>>) {
        for outcome in outcomes {
            self.outbox.came_back(&outcome);
            self.outcome(out, outcome);
            while let Some(held) = self.outbox.kept() {
                self.give(out, held, Kept::Yes);
            }
        }
        self.give_if_it_waits(out);
        for link in self.outbox.to_hang_up() {
            out.note(Note::SayAgain(link));
            self.close(out, link);
            self.event(out, Event::LinkClosed { link });
        }
    }

    /// Answers all that wait for records, if the disk is known not to take these.
    pub fn give_if_it_waits(&mut self, out: &mut O) {
        if out.waits().is_some() {
            for held in self.outbox.unheld() {
                self.give(out, held, Kept::Waits);
            }
        }
    }

    fn outcome(&mut self, out: &mut O, outcome: Outcome<O::Look>) {
        match outcome {
            Outcome::Release(releases) => {
                for release in releases {
                    match release {
                        Release::Effect(effect) => self.perform(out, effect),
                        Release::Answer(look) => out.look(look, Kept::Yes),
                    }
                }
            }
            Outcome::Refused { apid, why, releases } => {
                self.outbox.refused(apid, &why);
                for release in releases {
                    if let Release::Effect(accept @ Effect::Accept { .. }) = release {
                        // It is refused there.
                        self.perform(out, accept);
                    }
                }
                self.event(out, Event::StoreRefused { apid, why });
            }
        }
    }

    pub(super) fn give(&mut self, out: &mut O, held: Held<O::Look>, kept: Kept) {
        match held {
            Held::Look(look) => out.look(look, kept),
            Held::Reply(Effect::Killed { reply, problems }) => {
                if let Some(Waiter::Kill(caller)) = self.waiters.remove(&reply) {
                    out.answer(caller, Killed { problems, kept });
                }
            }
            Held::Reply(Effect::Managed { reply, done, problems }) => {
                if let Some(Waiter::Manage(caller)) = self.waiters.remove(&reply) {
                    let managed: Result<_, Refused> = Ok(Managed { done, problems, kept });
                    out.answer(caller, managed);
                }
            }
            // There are no others.
            Held::Reply(_) => {}
        }
    }
}
