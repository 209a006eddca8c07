//! The shepherds of this host.

use super::application::{End, Shepherd};
use super::streams::Told;
use super::{Action, Agent, Out};
use crate::apteam::Key;
use crate::apteam::ending::{Cause, Decisive, HostEnd};
use crate::apteam::fault::Fault;
use crate::apteam::protocol::attach::FromApinit;
use crate::apteam::protocol::peers::FromPeer;
use crate::apteam::protocol::shepherd::{FromShepherd, ToShepherd, misfit};
use std::time::Duration;

impl Agent {
    pub(super) fn shepherd_spawned(&mut self, _now: u64, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if app.shepherd != Shepherd::Spawning {
            return;
        }
        app.shepherd = Shepherd::Up;
        self.try_start(key, out);
    }

    pub(super) fn shepherd_message(
        &mut self,
        now: u64,
        key: Key,
        message: FromShepherd,
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        match message {
            // What else it says of itself was taken in when it was found, unless it was silent then;
            // a new one has no more to say.
            FromShepherd::Hello(hello) => {
                if let Some(text) = misfit(hello.protocol) {
                    self.shepherd_lost(now, key, text, Fault::Node, out);
                    return;
                }
                if app.shepherd == Shepherd::Silent {
                    app.heard_of(&hello);
                }
                app.several = Some(hello.several);
                app.stacks = hello.stacks;
                if app.has_several() {
                    self.start_or_refuse(now, key, out);
                }
            }
            FromShepherd::Ready => self.own_ready(key, out),
            FromShepherd::ProgramsWanted { programs } => self.programs_wanted(key, programs, out),
            FromShepherd::Failed(decisive) | FromShepherd::Decisive(decisive) => {
                self.own_decisive(now, key, decisive, out);
            }
            FromShepherd::Output(mut output) => {
                output.nid = app.now_on(output.nid);
                self.own_output(now, key, output, out);
            }
            FromShepherd::StdinCredit(mut credit) => {
                // More would fill our memory.
                let most = app.stdin_passed.saturating_add(app.place.bounds.stdin);
                credit.credit = credit.credit.min(most);
                app.stdin = credit;
                app.stdin_limit = app.stdin_limit.max(credit.credit);
                if let Some(stream) = app.open_front() {
                    let credit = app.front_credit();
                    out.extend(stream.tell_front(FromApinit::StdinCredit(credit)));
                }
            }
            FromShepherd::BarrierIn(arrival) => self.own_barrier(now, key, arrival, out),
            FromShepherd::Letter(letter) => self.own_letter(key, letter, out),
            FromShepherd::SignalsTaken(number) => self.own_signals_taken(key, number, out),
            FromShepherd::Notice(notice) => {
                if let Some(stream) = app.open_front() {
                    out.push(stream.tell(Told::Notice(app.moved_notice(notice))));
                }
            }
            FromShepherd::Stuck(processes) => self.stuck(key, processes, out),
            FromShepherd::Ended(end) => self.own_end(key, *end, out),
            // The shell passes it on to whoever has asked.
            FromShepherd::Processes(_)
            | FromShepherd::Stacks(_)
            | FromShepherd::DebuggerMade(_) => {}
        }
    }

    pub(super) fn own_decisive(&mut self, now: u64, key: Key, decisive: Decisive, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let decisive = app.moved_decisive(decisive);
        app.first = Decisive::earlier(app.first.take(), Some(decisive.clone()));
        if !decisive.cause.ends_application() {
            return;
        }
        let grace = app.place.kill_grace;
        if app.head() {
            let new = app.doom.is_none();
            self.end_all(now, key, decisive.cause, grace, Some(0), out);
            if new {
                self.backstop_waits(key);
            }
        } else if let Some(head) = app.open_front() {
            out.extend(head.tell_head(FromPeer::Decisive(decisive)));
        }
    }

    fn own_end(&mut self, key: Key, mut end: HostEnd, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key).filter(|app| app.running()) else { return };
        (end.key, end.nids) = (key, app.nids.clone());
        end.first = end.first.map(|first| app.moved_decisive(first));
        if end.first.is_some() {
            // A shepherd that was stopped sees the PEs that were killed meanwhile before it reads why.
            // (Where nothing bad happened the PEs had ended by themselves, and their status stands.)
            let doom = app.doom.as_ref().map(|doom| doom.first.clone());
            end.first = Decisive::earlier(end.first, doom);
        }
        app.end = End::Emptying(end);
        app.launch = None;
        out.push(Action::CheckGroupsEmpty(key));
    }

    /// The shepherd is dead or could not be made. Its PEs are killed, what they wrote last is lost.
    pub(super) fn shepherd_lost(
        &mut self,
        now: u64,
        key: Key,
        text: String,
        fault: Fault,
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        // A former life of this apinit may have let its PEs go without telling this one.
        let fault = if app.was_found { Fault::User } else { fault };
        let had_one =
            matches!(app.shepherd, Shepherd::Up | Shepherd::Silent | Shepherd::Strange) || app.sent;
        app.shepherd = Shepherd::Gone;
        if !app.running() {
            return;
        }
        // What it had written before it was taken out has come, and it has run nothing since.
        let whole = app.is_away() && app.doom.is_some();
        let cause = Cause::ShepherdLost { nid: app.nid(), text, fault };
        let lost = Decisive { at_ns: now, cause: cause.clone() };
        // It may have been killed because it did not end what was to end.
        let decided = Decisive::earlier(app.first.take(), app.decided(now));
        app.first = Decisive::earlier(decided, Some(lost.clone()));
        app.end = End::Emptying(HostEnd {
            key,
            nids: app.nids.clone(),
            launched: app.going_ns.is_some(),
            first: app.first.clone(),
            run: Duration::from_nanos(app.run_ns(now)),
            // Something else may have come first and decide the status; this must be said too.
            lost: if whole { Vec::new() } else { app.nids.clone() },
            ..HostEnd::default()
        });
        app.launch = None;
        app.output.messages.clear();
        let grace = app.place.kill_grace;
        if had_one {
            out.push(Action::KillGroups { key, shepherd: true });
            out.push(Action::CheckGroupsEmpty(key));
        }
        self.tell_head_of(key, lost, out);
        self.end_all(now, key, cause, grace, Some(0), out);
        if !had_one {
            self.groups_empty(now, key, out);
        }
    }

    /// Ends an application here. A shepherd that is not understood can't be told: it and its PEs are
    /// killed.
    pub(super) fn terminate(
        &mut self,
        now: u64,
        key: Key,
        cause: Cause,
        kill_after: Duration,
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if app.shepherd == Shepherd::Strange {
            app.first = Decisive::earlier(app.first.take(), Some(Decisive { at_ns: now, cause }));
            // Its death is heard of, and the rest follows from that.
            out.push(Action::KillGroups { key, shepherd: true });
        } else if app.shepherd == Shepherd::Restoring {
            // Nobody is there who could hear. What is there of it goes, and the restore fails by that.
            out.push(Action::KillGroups { key, shepherd: true });
        } else if app.is_away() && kill_after.is_zero() {
            self.end_away(key, out);
        } else {
            out.push(Action::SendShepherd(key, ToShepherd::Terminate { cause, kill_after }));
        }
    }
}
