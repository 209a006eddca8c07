//! How applications end here, and how that is told.

use super::application::{App, Doom, End};
use super::peer::Peer;
use super::streams::Told;
use super::{Action, Agent, BACKSTOP, BACKSTOP_AGAIN, Front, Out, ns};
use crate::apteam::Key;
use crate::apteam::ending::{Cause, Decisive, HostEnd};
use crate::apteam::protocol::node::Report;
use crate::apteam::protocol::notice::Notice;
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use std::time::Duration;

impl Agent {
    /// Ends the application here and, at the head, everywhere. `known_to` is the host that knows
    /// already. A second decision counts only if it kills sooner than the first.
    pub(super) fn end_all(
        &mut self,
        now: u64,
        key: Key,
        cause: Cause,
        kill_after: Duration,
        known_to: Option<u32>,
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let kill_at_ns = now.saturating_add(ns(kill_after));
        if app.doom.as_ref().is_some_and(|d| d.kill_at_ns <= kill_at_ns) {
            return;
        }
        let first = app.doom.take().map(|doom| doom.first);
        app.doom = Some(Doom {
            cause: cause.clone(),
            kill_at_ns,
            first: first.unwrap_or(Decisive { at_ns: now, cause: cause.clone() }),
            backstop_ns: kill_at_ns.saturating_add(ns(BACKSTOP)),
        });
        // Hosts that this head has not reached yet, in this life of its apinit, must hear of it too.
        let unreached = |p: &&mut Peer| !p.open && !p.done && p.again_ns.is_none();
        app.peers.iter_mut().filter(unreached).for_each(|p| p.again_ns = Some(now));
        let sent = app.sent;
        if app.running() && sent && known_to != Some(app.index) {
            self.terminate_in_turn(now, key, cause.clone(), kill_after, out);
        }
        self.tell_peers(
            key,
            known_to,
            &ToPeer::Terminate { cause: cause.clone(), kill_after },
            out,
        );
        if !matches!(cause, Cause::Checkpointed { .. }) {
            self.pass_imaged(key, out);
        }
        if !sent && let Some(app) = self.apps.get_mut(&key).filter(|app| app.running()) {
            // Nothing runs here yet, and nothing will.
            app.end = End::Emptying(HostEnd {
                key,
                nids: app.nids.clone(),
                first: Some(Decisive { at_ns: now, cause }),
                ..HostEnd::default()
            });
            app.launch = None;
            self.groups_empty(now, key, out);
        }
    }

    /// (Not the head.) The head must hear that the application is to end.
    pub(super) fn tell_head(&self, now: u64, key: Key, cause: &Cause, out: &mut Out) {
        self.tell_head_of(key, Decisive { at_ns: now, cause: cause.clone() }, out);
    }

    pub(super) fn tell_head_of(&self, key: Key, decisive: Decisive, out: &mut Out) {
        let Some(app) = self.apps.get(&key).filter(|app| !app.head()) else { return };
        if let Some(stream) = app.open_front() {
            out.extend(stream.tell_head(FromPeer::Decisive(decisive)));
        }
    }

    pub(super) fn time_limit_tick(&mut self, now: u64, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let due = app.time_limit_ns().filter(|at| *at <= now);
        let Some(limit) = app.place.time_limit.filter(|_| due.is_some()) else { return };
        if app.time_is_over(now) {
            let grace = app.place.kill_grace;
            self.end_all(now, key, Cause::TimeLimit { limit }, grace, None, out);
        } else {
            app.ran_asked_ns = Some(now);
            out.push(Action::TellRan(key));
        }
    }

    /// The time of the KILL is well past, and the shepherd has not said that it is over. A PE may
    /// have stopped it (both are the user's), or have started processes of another user, whom only
    /// apinit may kill. The shepherd is spared: it may be alive, and wait for a stopped aprun to
    /// take the output. Not before they went: then there is no output, and it may wait for ever for
    /// what its user has laid in its way (a file system of his own, say).
    pub(super) fn backstop_tick(&mut self, now: u64, key: Key, out: &mut Out) {
        let due = |app: &&App| app.backstop_ns().is_some_and(|at| at <= now);
        let Some(app) = self.apps.get(&key).filter(due) else { return };
        let shepherd = app.going_ns.is_none();
        if let Some(doom) = self.apps.get_mut(&key).and_then(|app| app.doom.as_mut()) {
            doom.backstop_ns = now.saturating_add(ns(BACKSTOP_AGAIN));
        }
        out.push(Action::KillGroups { key, shepherd });
    }

    /// The groups know better than the shepherd, which has only what was waited for. (What a PE used
    /// before its execve is theirs alone: a program that did nothing has not used less for it.)
    pub(super) fn groups_used(&mut self, key: Key, utime: Duration, stime: Duration) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let End::Emptying(end) = &mut app.end else { return };
        if end.launched && utime + stime > end.usage.utime + end.usage.stime {
            (end.usage.utime, end.usage.stime) = (utime, stime);
        }
    }

    pub(super) fn groups_empty(&mut self, now: u64, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let End::Emptying(end) = &mut app.end else { return };
        let mut end = std::mem::take(end);
        end.output_lost = app.output_lost;
        if let Some((ran, _)) = app.ran {
            let ran = end.run.min(Duration::from_nanos(ran));
            (end.run, end.frozen) = (ran, end.run - ran);
        }
        app.end = End::Empty { end, reported_ns: 0, acknowledged: false };
        self.goes(key, out);
        self.report_end(now, key, out);
        self.settle(now, key, out);
        self.start_others(out);
    }

    /// Processes are left that should not be: what PEs left behind, and out of the shepherd's
    /// sight.
    pub(super) fn groups_stuck(
        &mut self,
        key: Key,
        processes: u32,
        named: Vec<String>,
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let lost = app.shepherd == super::application::Shepherd::Gone;
        let End::Emptying(end) = &mut app.end else { return };
        end.leftovers = end.leftovers.max(processes);
        out.push(Action::KillGroups { key, shepherd: lost });
        out.push(Action::CheckGroupsEmpty(key));
        if let Some(stream) = app.open_front() {
            for text in named.iter().filter(|text| !app.stuck.contains(text)) {
                out.push(stream.tell(Told::Notice(Notice::Process(text.clone()))));
            }
        }
        self.stuck(key, named, out);
    }

    /// Its user is told what was found of it.
    pub(super) fn strayed(&self, key: Key, text: String, out: &mut Out) {
        if let Some(stream) = self.apps.get(&key).and_then(App::open_front) {
            out.push(stream.tell(Told::Notice(Notice::Process(text))));
        }
    }

    /// Processes outlive their KILL.
    pub(super) fn stuck(&mut self, key: Key, processes: Vec<String>, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key).filter(|app| app.stuck != processes) else {
            return;
        };
        app.stuck = processes;
        self.report_stuck(key, out);
    }

    /// Tells psched of them, if there are any.
    pub(super) fn report_stuck(&self, key: Key, out: &mut Out) {
        let known = |app: &&App| !app.discarded && !app.empty() && !app.stuck.is_empty();
        let Some(app) = self.apps.get(&key).filter(known) else { return };
        let processes = app.stuck.clone();
        self.report(Report::Stuck { key, nid: app.nid(), processes }, out);
    }

    /// Tells psched, if it can hear, how it ended; again and again until it says what it knows.
    pub(super) fn report_end(&mut self, now: u64, key: Key, out: &mut Out) {
        let (linked, heard) = (self.linked, self.reports_ends());
        let Some(app) = self.apps.get_mut(&key).filter(|app| !app.discarded) else { return };
        let due = app.report_due_ns().is_some_and(|at| at <= now);
        let End::Empty { end, reported_ns, acknowledged } = &mut app.end else { return };
        if *acknowledged && !due {
            return;
        }
        *reported_ns = now;
        // Who has a node purged wants no end that is on record elsewhere.
        let heard = if *acknowledged { linked } else { heard };
        if heard {
            let mut end = Box::new(end.clone());
            if let Some(first) = &mut end.first {
                // The first bad end of all hosts decides: psched compares them by one clock.
                first.at_ns = self.on_psched_clock(first.at_ns);
            }
            out.push(Action::Report(Report::Ended(end)));
        }
    }

    /// What follows once everything has ended: the front end is told that nothing more comes, and
    /// when all who must know do, the application is forgotten.
    pub(super) fn settle(&mut self, now: u64, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key).filter(|app| app.empty()) else { return };
        let over = app.over_with_psched();
        if !app.peers.iter().all(|p| p.over(now, app.discarded)) {
            return;
        }
        if let Some(peer) = app.peers.iter().find(|p| !p.done && p.ready) {
            app.lost = Some(Notice::Unreachable(app.nid_of(peer.index)));
            if let (Front::Open(stream), Some(notice)) = (app.front, &app.lost) {
                out.push(stream.tell(Told::Notice(notice.clone())));
            }
        }
        for peer in &mut app.peers {
            // Given up: it is not tried again, and nothing of it is due.
            (peer.done, peer.again_ns) = (true, None);
        }
        if let Front::Open(stream) = app.front
            && !app.done_said
        {
            app.done_said = true;
            out.push(stream.tell(Told::Done));
        }
        if over && !matches!(app.front, Front::Away { .. }) {
            self.forget(key, out);
        }
    }

    /// Nothing of it is left to do.
    pub(super) fn forget(&mut self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.remove(&key) else { return };
        if let Some(stream) = App::open_front(&app) {
            self.close(stream.conn(), out);
        }
        out.push(Action::Remove(key));
        self.plans_of_gone(key, out);
    }
}
