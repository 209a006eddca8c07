//! Front ends, and the head where this host is another one.

use super::application::{App, End, Shepherd};
use super::bounds::NoRoom;
use super::{Action, Agent, Conn, Front, LAUNCH_WAIT, Out, ns};
use crate::apteam::ending::Cause;
use crate::apteam::launch::Launch;
use crate::apteam::protocol::attach::{FromApinit, OutputTaken, PSCHED_SIGNALS, ToApinit};
use crate::apteam::protocol::node::Report;
use crate::apteam::protocol::shepherd::ToShepherd;
use crate::apteam::{Key, Ticket};

/// Messages kept for a launch that waits for its placement: signals and the like.
const KEPT_MAX: usize = 64;

/// What is said of a part that its head takes for launched, and that is not.
const NEVER_CAME: &str = "its host was restarted, or the launch never came there";

/// What a stream is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// Nothing said yet.
    New,
    /// Its launch came before its placement.
    Waiting { key: Key, ticket: Ticket, launch: Box<Launch>, bytes: u64, more: Vec<ToApinit> },
    /// It has this application.
    Has(Key),
    /// It is being closed.
    Over,
}

/// An open stream.
#[derive(Debug)]
pub(super) struct Attached {
    pub uid: u32,
    pub trusted: bool,
    watched: bool,
    since_ns: u64,
    pub purpose: Purpose,
}

impl Attached {
    pub fn new(now: u64, uid: u32, trusted: bool, watched: bool) -> Attached {
        Attached { uid, trusted, watched, since_ns: now, purpose: Purpose::New }
    }

    /// Bytes of memory of the launch that waits, if one does.
    pub fn waiting_bytes(&self) -> Option<u64> {
        match self.purpose {
            Purpose::Waiting { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// When one that has no application yet is given up.
    pub fn deadline(&self) -> Option<u64> {
        match self.purpose {
            Purpose::New | Purpose::Waiting { .. } => {
                Some(self.since_ns.saturating_add(ns(LAUNCH_WAIT)))
            }
            Purpose::Has(_) | Purpose::Over => None,
        }
    }
}

/// Compares all of it always, so that the time taken tells nothing about where they differ.
fn same_ticket(a: &Ticket, b: &Ticket) -> bool {
    let differing = a.0.iter().zip(&b.0).fold(0u8, |d, (x, y)| d | (x ^ y));
    std::hint::black_box(differing) == 0
}

impl Agent {
    pub(super) fn attach_opened(
        &mut self,
        _now: u64,
        conn: Conn,
        attached: Attached,
        out: &mut Out,
    ) {
        if let Some(text) = self.too_many_streams(&attached) {
            // (Another user is told what is his to cure.)
            let message = match attached.trusted {
                true => FromApinit::NotNow(text),
                false => FromApinit::Refused { text, cause: None },
            };
            out.push(Action::SendFront(conn, message));
            out.push(Action::CloseFront(conn));
            return;
        }
        self.attached.insert(conn, attached);
    }

    pub(super) fn attach_message(
        &mut self,
        now: u64,
        conn: Conn,
        message: ToApinit,
        out: &mut Out,
    ) {
        let too_many = match &message {
            ToApinit::Launch { launch, .. } => self.too_many_wait(conn, launch),
            _ => None,
        };
        let Some(attached) = self.attached.get_mut(&conn) else { return };
        match (&mut attached.purpose, message) {
            (Purpose::New, ToApinit::Launch { key, ticket, launch }) => {
                if self.apps.contains_key(&key) {
                    self.launch(now, conn, key, ticket, launch, out);
                } else if let Some(why) = too_many {
                    match why {
                        NoRoom::OfUser(text) => self.refuse(conn, text, None, out),
                        NoRoom::OfAll(text) => self.put_off(conn, text, out),
                    }
                } else {
                    attached.since_ns = now;
                    let bytes = launch.footprint();
                    let more = Vec::new();
                    attached.purpose = Purpose::Waiting { key, ticket, launch, bytes, more };
                }
            }
            (Purpose::New, ToApinit::Resume { key, ticket, taken }) => {
                self.resume(now, conn, key, ticket, &taken, out);
            }
            (Purpose::New, _) => {
                let text = "the first message of a stream is a launch or a resumption";
                self.refuse(conn, text.into(), None, out);
            }
            // Small ones. (What is large comes only after the launch was taken.)
            (
                Purpose::Waiting { more, .. },
                message @ (ToApinit::Signal(_)
                | ToApinit::Terminate { .. }
                | ToApinit::OutputTaken(_)
                | ToApinit::StdinEnd(_)),
            ) if more.len() < KEPT_MAX => {
                more.push(match message {
                    // Of a front end's own reasons these two are all that counts, and they have no
                    // text.
                    ToApinit::Terminate { cause, kill_after } if !attached.trusted => {
                        let cause = match cause {
                            Cause::StdoutClosed => Cause::StdoutClosed,
                            _ => Cause::FrontGone,
                        };
                        ToApinit::Terminate { cause, kill_after }
                    }
                    other => other,
                });
            }
            (Purpose::Waiting { .. }, _) => {
                let text = "too much was sent before the launch was taken";
                self.refuse(conn, text.into(), None, out);
            }
            (Purpose::Has(key), message) => {
                let key = *key;
                self.front_message(now, conn, key, message, out);
            }
            (Purpose::Over, _) => {}
        }
    }

    /// Says no, and closes.
    pub(super) fn refuse(&mut self, conn: Conn, text: String, cause: Option<Cause>, out: &mut Out) {
        if let Some(attached) = self.attached.get_mut(&conn) {
            attached.purpose = Purpose::Over;
            out.push(Action::SendFront(conn, FromApinit::Refused { text, cause }));
        }
        self.close(conn, out);
    }

    /// Says no for a reason that may pass.
    fn put_off(&mut self, conn: Conn, text: String, out: &mut Out) {
        out.push(Action::SendFront(conn, FromApinit::NotNow(text)));
        self.close(conn, out);
    }

    pub(super) fn close(&mut self, conn: Conn, out: &mut Out) {
        self.attached.remove(&conn);
        out.push(Action::CloseFront(conn));
    }

    /// Whether somebody may say what an application is restored from: false, its placement has not come yet.
    ///
    /// # Errors
    /// He may not, or nothing is restored.
    pub fn may_restore(&self, key: Key, uid: u32, ticket: &Ticket) -> Result<bool, String> {
        let Some(app) = self.apps.get(&key) else { return Ok(false) };
        if uid != app.place.owner.uid {
            return Err(format!("application {key} is not user {uid}'s"));
        }
        if !same_ticket(ticket, &app.place.ticket) {
            return Err(format!("the ticket is not the one of application {key}"));
        }
        if app.launched_ns.is_some() {
            return Err(format!("application {key} is launched already"));
        }
        Ok(true)
    }

    /// The launches that have waited for this placement.
    pub(super) fn waiting_launches(&mut self, now: u64, key: Key, out: &mut Out) {
        let of_key =
            |a: &Attached| matches!(&a.purpose, Purpose::Waiting { key: k, .. } if *k == key);
        let conns: Vec<Conn> =
            self.attached.iter().filter(|(_, a)| of_key(a)).map(|(conn, _)| *conn).collect();
        for conn in conns {
            let Some(attached) = self.attached.get_mut(&conn) else { continue };
            let purpose = std::mem::replace(&mut attached.purpose, Purpose::New);
            if let Purpose::Waiting { key, ticket, launch, more, .. } = purpose {
                self.launch(now, conn, key, ticket, launch, out);
                for message in more {
                    self.attach_message(now, conn, message, out);
                }
            }
        }
    }

    /// What a caller must be to have this application's stream: its owner, at the head; an apinit,
    /// elsewhere. And it must know the secret.
    fn may_attach(&self, conn: Conn, app: &App, ticket: &Ticket) -> Result<(), String> {
        let key = app.key();
        let Some(attached) = self.attached.get(&conn) else { return Err(String::new()) };
        if app.head() {
            if attached.uid != app.place.owner.uid {
                return Err(format!("application {key} is not user {}'s", attached.uid));
            }
        } else if !attached.trusted {
            return Err(format!(
                "PE 0 of application {key} is on another node: launch it through that one's apinit"
            ));
        }
        if !same_ticket(ticket, &app.place.ticket) {
            return Err(format!("the ticket is not the one of application {key}"));
        }
        Ok(())
    }

    fn launch(
        &mut self,
        now: u64,
        conn: Conn,
        key: Key,
        ticket: Ticket,
        launch: Box<Launch>,
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get(&key) else { return };
        if let Err(text) = self.may_attach(conn, app, &ticket) {
            return self.refuse(conn, text, None, out);
        }
        // (aprun looks at that before. This one may be another, or say something else than it did.)
        // Where it is only shown it may be anything.
        let shown = app.place.restart.is_some();
        if let Err(text) = launch.binding.fits(&app.place.places)
            && !shown
        {
            return self.refuse(conn, text, None, out);
        }
        if let Err(text) = launch.fits(app.place.shape.width)
            && !shown
        {
            return self.refuse(conn, text, None, out);
        }
        if app.launched_ns.is_some() {
            // Its first launch was taken, only the answer was lost; or apinit was killed before
            // every host had it. (It may be here before its former stream is seen to be closed.)
            if app.needs_launch() {
                let Some(app) = self.apps.get_mut(&key) else { return };
                app.launch = Some(launch);
                let closed = app.peers.iter().filter(|p| !p.open && !p.done).map(|p| p.index);
                for index in closed.collect::<Vec<_>>() {
                    self.open_peer(now, key, index, out);
                }
            }
            return self.resume(now, conn, key, ticket, &[], out);
        }
        if app.end != End::Not || app.doom.is_some() {
            let cause = app.known_cause();
            let text = match &cause {
                Some(cause) => format!("application {key} has ended: {cause}"),
                None => format!("application {key} has ended"),
            };
            return self.refuse(conn, text, cause, out);
        }
        // (To the other hosts the head speaks, which took the launch in time.)
        if app.head() && now >= app.ticket_until_ns {
            let text = format!(
                "the ticket of application {key} has lapsed: ask psched for its placement again"
            );
            return self.refuse(conn, text, None, out);
        }
        let head = app.head();
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.launched_ns = Some(now);
        app.launch = Some(launch);
        let in_vain = head && self.unlimited && app.place.memory_per_pe.is_some();
        let peers: Vec<u32> = app.peers.iter().map(|p| p.index).collect();
        self.take_front(key, conn, out);
        out.push(Action::SendFront(conn, FromApinit::Accepted));
        if in_vain {
            let text = "-m counts for where this is placed, but its memory is not limited: its host can't \
                        (apstat -n says why)";
            out.push(Action::SendFront(conn, FromApinit::Notice(text.to_owned())));
        }
        if head {
            self.report(Report::Launched(key), out);
        }
        for index in peers {
            self.open_peer(now, key, index, out);
        }
        self.start_or_refuse(now, key, out);
    }

    /// This stream is now the application's.
    fn take_front(&mut self, key: Key, conn: Conn, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let before = std::mem::replace(&mut app.front, Front::Open(conn));
        app.done_said = false;
        if let Front::Open(old) | Front::Away { conn: old, .. } = before
            && old != conn
            && old != super::NO_CONN
        {
            self.close(old, out);
        }
        if let Some(attached) = self.attached.get_mut(&conn) {
            attached.purpose = Purpose::Has(key);
            if attached.watched && before != Front::Open(conn) {
                out.push(Action::KeepFront(key, conn));
            }
        }
    }

    fn resume(
        &mut self,
        now: u64,
        conn: Conn,
        key: Key,
        ticket: Ticket,
        taken: &[OutputTaken],
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get(&key) else {
            let text = format!("application {key} is not on this node, or no longer");
            return self.refuse(conn, text, None, out);
        };
        if let Err(text) = self.may_attach(conn, app, &ticket) {
            return self.refuse(conn, text, None, out);
        }
        if app.shepherd == Shepherd::Silent {
            // How much of output and stdin it has is not known before it speaks.
            let text =
                format!("the apshepherd of application {key} has not spoken to its apinit yet");
            return self.put_off(conn, text, out);
        }
        if app.launched_ns.is_none() {
            let text = format!("application {key} has not been launched here");
            let nid = app.nid();
            if !app.head() && app.running() {
                // Its head takes it for launched: this host has lost what ran here, and was given its
                // part once more, or the head was ended before its launch had come.
                let cause = Cause::NodeLost { nid, text: NEVER_CAME.into() };
                self.end_all(now, key, cause, std::time::Duration::ZERO, None, out);
            }
            let cause = self.apps.get(&key).and_then(App::known_cause);
            return self.refuse(conn, text, cause, out);
        }
        if app.needs_launch() {
            let text = format!("the launch of application {key} is needed once more");
            return self.refuse(conn, text, None, out);
        }
        if app.front == Front::Gone {
            let text = format!("application {key} has been ended: its front end was gone");
            return self.refuse(conn, text, Some(Cause::FrontGone), out);
        }
        self.take_front(key, conn, out);
        for one in taken {
            let Some(app) = self.apps.get(&key) else { return };
            let one = app.shifted_taken(*one);
            self.own_taken_floor(key, one);
            self.output_taken(key, one, out);
        }
        let Some(app) = self.apps.get(&key) else { return };
        let mut say = |message| out.push(Action::SendFront(conn, message));
        say(FromApinit::Accepted);
        if app.going_ns.is_some() {
            say(FromApinit::Going);
        }
        if app.stdin.credit > 0 && app.head() {
            say(FromApinit::StdinCredit(app.front_credit()));
        }
        for number in app.signals.taken(app.head()) {
            say(FromApinit::SignalsTaken(number));
        }
        for output in app.output.messages.iter().filter(|output| !app.is_imaged(output.offset)) {
            say(app.for_front(output.clone()));
        }
        if let Some(text) = &app.lost {
            say(FromApinit::Notice(text.clone()));
        }
        if !app.head() {
            if app.ready && app.going_ns.is_none() {
                say(FromApinit::Ready);
            }
            for arrival in app.arrivals.all() {
                say(FromApinit::BarrierIn(arrival.clone()));
            }
            if let Some(first) = app.first.as_ref().filter(|d| d.cause.ends_application()) {
                say(FromApinit::Decisive(first.clone()));
            }
        }
        self.rewind_peers(key, out);
        self.settle(now, key, out);
    }

    /// After a restart apinit does not know how much output has been written: the front end does.
    fn own_taken_floor(&mut self, key: Key, taken: OutputTaken) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if taken.source == app.index {
            app.output.skip(taken.offset, app.place.bounds.output);
        } else if let Some(peer) = app.peers.iter_mut().find(|p| p.index == taken.source) {
            peer.forwarded = peer.forwarded.max(taken.offset);
        }
    }

    fn front_message(&mut self, now: u64, conn: Conn, key: Key, message: ToApinit, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if app.front != Front::Open(conn) {
            return;
        }
        let hears = app.sent && app.running();
        let mut tell = |app: &mut App, message| {
            if hears {
                app.tell_shepherd(message, out);
            }
        };
        match app.shifted(message) {
            // Said again after a break: the shepherd has it.
            ToApinit::Stdin(piece) if app.index == 0 && piece.end() <= app.stdin_passed => {}
            ToApinit::Stdin(piece) if app.index == 0 => {
                let text = if piece.offset > app.stdin_passed {
                    "some of stdin was left out"
                } else if piece.end() > app.stdin_limit {
                    // It would fill our memory.
                    "more stdin than there was credit for"
                } else {
                    app.stdin_passed = piece.end();
                    return tell(app, ToShepherd::Stdin(piece));
                };
                // Nothing of ours does this.
                app.front = Front::Away { conn, since_ns: now, watched: false };
                self.refuse(conn, text.into(), None, out);
            }
            ToApinit::StdinEnd(length) if app.index == 0 && length == app.stdin_passed => {
                tell(app, ToShepherd::StdinEnd(length));
            }
            ToApinit::OutputTaken(taken) if app.is_claimed_too_much(taken) => {
                // Nothing of ours does this.
                let text = format!(
                    "byte {} of output can't be written: so much was not sent",
                    taken.offset
                );
                app.front = Front::Away { conn, since_ns: now, watched: false };
                self.refuse(conn, text, None, out);
            }
            ToApinit::OutputTaken(taken) => self.output_taken(key, taken, out),
            // psched's own come from psched, or from the head.
            ToApinit::Signal(signal) if signal.number <= PSCHED_SIGNALS || app.index != 0 => {
                self.signal(key, signal, out);
            }
            ToApinit::Terminate { cause, kill_after } => {
                // A front end can speak for itself only; the head speaks for everybody.
                let cause = if app.head() {
                    match cause {
                        Cause::StdoutClosed => Cause::StdoutClosed,
                        _ => Cause::FrontGone,
                    }
                } else {
                    cause
                };
                self.end_all(now, key, cause, kill_after, None, out);
            }
            ToApinit::Go if app.index != 0 => self.enter(now, key, out),
            // The shepherd knows whether it is for the barrier that its PEs are in.
            ToApinit::BarrierOut(piece) if app.index != 0 => {
                tell(app, ToShepherd::BarrierOut(piece));
            }
            ToApinit::Launch { .. } => {
                let text = format!("application {key} has been launched already");
                out.push(Action::SendFront(conn, FromApinit::Notice(text)));
            }
            // The head's own front end has come back: once more from here. (A front end that has
            // this stream has nothing to resume, and each time would have all that is kept queued
            // for it anew.)
            ToApinit::Resume { key: same, ticket, taken } if same == key && app.index != 0 => {
                let app = self.apps.get(&key);
                let may = app.map(|app| self.may_attach(conn, app, &ticket));
                if matches!(may, Some(Ok(()))) {
                    self.resume(now, conn, key, ticket, &taken, out);
                }
            }
            ToApinit::Stdin(_)
            | ToApinit::StdinEnd(_)
            | ToApinit::Go
            | ToApinit::Signal(_)
            | ToApinit::BarrierOut(_)
            | ToApinit::Resume { .. } => {}
        }
    }

    pub(super) fn attach_closed(&mut self, now: u64, conn: Conn, out: &mut Out) {
        let Some(attached) = self.attached.remove(&conn) else { return };
        let Purpose::Has(key) = attached.purpose else {
            out.push(Action::CloseFront(conn));
            return;
        };
        let Some(app) = self.apps.get_mut(&key).filter(|a| a.front == Front::Open(conn)) else {
            out.push(Action::CloseFront(conn));
            return;
        };
        let watched = attached.watched && app.head();
        app.front = Front::Away { conn, since_ns: now, watched };
        if app.done_said {
            // It has all there is, and has gone home.
            app.front = Front::Gone;
            out.push(Action::CloseFront(conn));
        }
        self.settle(now, key, out);
    }

    /// The process behind a stream is dead. (A head that is restarted comes back; a front end does
    /// not.)
    pub(super) fn front_died(&mut self, now: u64, conn: Conn, out: &mut Out) {
        let of_conn = |app: &&App| match app.front {
            Front::Open(c) | Front::Away { conn: c, .. } => c == conn && app.head(),
            Front::None | Front::Gone => false,
        };
        let key = self.apps.values().find(of_conn).map(App::key);
        match key {
            Some(key) => self.front_gone(now, key, conn, out),
            None => {
                let waits = |a: &Attached| !matches!(a.purpose, Purpose::Has(_));
                if self.attached.get(&conn).is_some_and(waits) {
                    self.close(conn, out);
                }
            }
        }
    }

    fn front_gone(&mut self, now: u64, key: Key, conn: Conn, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.front = Front::Gone;
        let grace = app.place.front_kill_grace;
        if conn != super::NO_CONN {
            self.close(conn, out);
        }
        self.end_all(now, key, Cause::FrontGone, grace, None, out);
        out.push(Action::KeepGone(key));
        self.drop_output(key, out);
        self.rewind_peers(key, out);
        self.settle(now, key, out);
    }

    /// A front end that can't be watched has been away for too long; or one that is away has
    /// nothing to come back for.
    pub(super) fn front_away_tick(&mut self, now: u64, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let Front::Away { conn, .. } = app.front else { return };
        if app.away_until_ns().is_none_or(|until| now < until) {
            return;
        }
        if app.empty() {
            app.front = Front::Gone;
            if conn != super::NO_CONN {
                self.close(conn, out);
            }
            // Other hosts may still keep output for it.
            self.rewind_peers(key, out);
        } else {
            self.front_gone(now, key, conn, out);
        }
    }

    pub(super) fn attached_tick(&mut self, now: u64, out: &mut Out) {
        let due = |a: &Attached| a.deadline().is_some_and(|at| at <= now);
        let due: Vec<Conn> =
            self.attached.iter().filter(|(_, a)| due(a)).map(|(conn, _)| *conn).collect();
        for conn in due {
            let text = match self.attached.get(&conn).map(|a| &a.purpose) {
                Some(Purpose::Waiting { key, .. }) => format!(
                    "psched has not placed application {key} on this node; is the link between \
                     psched and apinit up? (apstat -n)"
                ),
                _ => format!("nothing was said for {} s", LAUNCH_WAIT.as_secs()),
            };
            self.put_off(conn, text, out);
        }
    }
}
