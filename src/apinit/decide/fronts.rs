//! Streams to applications: of front ends, and of the head where this host is another one.

use super::application::{App, End, Shepherd};
use super::bounds::NoRoom;
use super::streams::{First, FrontEnd, HeadStream, Heard, Opening, Purpose, Stream, Told};
use super::{Action, Agent, Conn, Front, LAUNCH_WAIT, Out, Watch};
use crate::apteam::ending::Cause;
use crate::apteam::launch::Launch;
use crate::apteam::protocol::attach::{FromApinit, OutputTaken, PSCHED_SIGNALS, ToApinit};
use crate::apteam::protocol::node::Report;
use crate::apteam::protocol::notice::Notice;
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::apteam::protocol::shepherd::ToShepherd;
use crate::apteam::{Key, Ticket};

/// What is said of a part that its head takes for launched, and that is not.
const NEVER_CAME: &str = "its host was restarted, or never received the launch";

/// Compares all of it always, so that the time taken tells nothing about where they differ.
pub(super) fn same_ticket(a: &Ticket, b: &Ticket) -> bool {
    let differing = a.0.iter().zip(&b.0).fold(0u8, |d, (x, y)| d | (x ^ y));
    std::hint::black_box(differing) == 0
}

impl Agent {
    /// Root's front ends, and those of the user who runs this apinit, are bounded with all others only: nobody is to be
    /// protected from them.
    pub(super) fn is_own(&self, uid: u32) -> bool {
        uid == 0 || uid == self.me.uid
    }

    pub(super) fn front_opened(
        &mut self,
        now: u64,
        conn: Conn,
        uid: u32,
        watch: Watch,
        out: &mut Out,
    ) {
        if let Some(text) = self.too_many_fronts(uid) {
            // (Another user is told what is his to cure.)
            return match self.is_own(uid) {
                true => self.put_off(Stream::Front(conn), text, out),
                false => self.refuse(Stream::Front(conn), text, None, out),
            };
        }
        self.fronts.insert(conn, FrontEnd { uid, watch, opening: Opening::new(now) });
    }

    /// Another apinit, it says.
    pub(super) fn head_opened(
        &mut self,
        now: u64,
        conn: Conn,
        uid: u32,
        host: String,
        out: &mut Out,
    ) {
        let head = Stream::Head(conn);
        if !self.is_own(uid) {
            let text = format!("user {uid} runs no apinit of this machine");
            return self.refuse(head, text, None, out);
        }
        if let Some(text) = self.too_many_heads(&host) {
            return self.put_off(head, text, out);
        }
        self.heads.insert(conn, HeadStream { host, opening: Opening::new(now) });
    }

    pub(super) fn front_message(&mut self, now: u64, conn: Conn, message: ToApinit, out: &mut Out) {
        let Some(front) = self.fronts.get_mut(&conn) else { return };
        match front.opening.hear(message) {
            Heard::First(first) => self.first(now, Stream::Front(conn), first, out),
            Heard::Of(key, message) => self.front_says(now, conn, key, message, out),
            Heard::Refused(text) => self.refuse(Stream::Front(conn), text.into(), None, out),
            Heard::Nothing => {}
        }
    }

    pub(super) fn head_message(&mut self, now: u64, conn: Conn, message: ToPeer, out: &mut Out) {
        let Some(head) = self.heads.get_mut(&conn) else { return };
        match head.opening.hear(message) {
            Heard::First(first) => self.first(now, Stream::Head(conn), first, out),
            Heard::Of(key, message) => self.head_says(now, conn, key, message, out),
            Heard::Refused(text) => self.refuse(Stream::Head(conn), text.into(), None, out),
            Heard::Nothing => {}
        }
    }

    /// A conversation begins.
    fn first(&mut self, now: u64, stream: Stream, first: First, out: &mut Out) {
        let (key, ticket, launch) = match first {
            First::Resume { key, ticket, taken } => {
                return self.resume(now, stream, key, ticket, &taken, out);
            }
            First::Launch { key, ticket, launch } => (key, ticket, launch),
        };
        if self.known_to(stream, key).is_some() {
            return self.launch(now, stream, key, ticket, launch, out);
        }
        match self.too_many_wait(stream, &launch) {
            Some(NoRoom::OfUser(text)) => return self.refuse(stream, text, None, out),
            Some(NoRoom::OfAll(text)) => return self.put_off(stream, text, out),
            None => {}
        }
        let bytes = launch.footprint();
        let waits = Purpose::Waiting { key, ticket, launch, bytes };
        self.set_purpose(stream, waits);
        match stream {
            Stream::Front(conn) => {
                if let Some(front) = self.fronts.get_mut(&conn) {
                    front.opening.since_ns = now;
                }
            }
            Stream::Head(conn) => {
                if let Some(head) = self.heads.get_mut(&conn) {
                    head.opening.since_ns = now;
                }
            }
        }
    }

    /// Gives a stream this purpose; the one that it had.
    fn set_purpose(&mut self, stream: Stream, new: Purpose) -> Option<Purpose> {
        let purpose = match stream {
            Stream::Front(conn) => &mut self.fronts.get_mut(&conn)?.opening.purpose,
            Stream::Head(conn) => &mut self.heads.get_mut(&conn)?.opening.purpose,
        };
        Some(std::mem::replace(purpose, new))
    }

    /// Says no, and closes.
    pub(super) fn refuse(
        &mut self,
        stream: Stream,
        text: String,
        cause: Option<Cause>,
        out: &mut Out,
    ) {
        out.push(stream.tell(Told::Refused { text, cause }));
        self.close(stream.conn(), out);
    }

    /// Says no for a reason that may pass.
    fn put_off(&mut self, stream: Stream, text: String, out: &mut Out) {
        out.push(stream.tell(Told::NotNow(text)));
        self.close(stream.conn(), out);
    }

    pub(super) fn close(&mut self, conn: Conn, out: &mut Out) {
        self.fronts.remove(&conn);
        self.heads.remove(&conn);
        out.push(Action::CloseStream(conn));
    }

    /// Whether somebody may say what an application is restored from: false, its placement has not come yet.
    ///
    /// # Errors
    /// He may not, or nothing is restored.
    pub fn may_restore(&self, key: Key, uid: u32, ticket: &Ticket) -> Result<bool, String> {
        // A caller that names another user's application waits as for a placement that never comes.
        let app = self.apps.get(&key).filter(|app| uid == app.place.owner.uid);
        let Some(app) = app else { return Ok(false) };
        if !same_ticket(ticket, &app.place.ticket) {
            return Err(format!("the ticket is not the one of application {key}"));
        }
        if app.place.restart.is_none() {
            return Err(format!("application {key} is not restored from a checkpoint"));
        }
        if app.launched_ns.is_some() {
            return Err(format!("application {key} is launched already"));
        }
        Ok(true)
    }

    /// The launches that have waited for this placement.
    pub(super) fn waiting_launches(&mut self, now: u64, key: Key, out: &mut Out) {
        let fronts = self.fronts.iter().filter(|(_, front)| front.opening.waits_for(key));
        let heads = self.heads.iter().filter(|(_, head)| head.opening.waits_for(key));
        let fronts = fronts.map(|(conn, _)| Stream::Front(*conn));
        let streams = fronts.chain(heads.map(|(conn, _)| Stream::Head(*conn)));
        let known = |stream: &Stream| self.known_to(*stream, key).is_some();
        let streams: Vec<Stream> = streams.filter(known).collect();
        for stream in streams {
            let Some(Purpose::Waiting { key, ticket, launch, .. }) =
                self.set_purpose(stream, Purpose::New)
            else {
                continue;
            };
            // (One that is refused is forgotten with what it has said.)
            match stream {
                Stream::Front(conn) => {
                    let front = self.fronts.get_mut(&conn);
                    let kept = front.map(|front| std::mem::take(&mut front.opening.kept));
                    self.launch(now, stream, key, ticket, launch, out);
                    for message in kept.into_iter().flatten() {
                        self.front_message(now, conn, message, out);
                    }
                }
                Stream::Head(conn) => {
                    let head = self.heads.get_mut(&conn);
                    let kept = head.map(|head| std::mem::take(&mut head.opening.kept));
                    self.launch(now, stream, key, ticket, launch, out);
                    for message in kept.into_iter().flatten() {
                        self.head_message(now, conn, message, out);
                    }
                }
            }
        }
    }

    /// An application, for a stream that may know of it. A front end may know of its own user's applications:
    /// for any other it gets the answer that it would get if there were no such application.
    fn known_to(&self, stream: Stream, key: Key) -> Option<&App> {
        let app = self.apps.get(&key)?;
        let known = match stream {
            Stream::Front(conn) => {
                self.fronts.get(&conn).is_some_and(|front| front.uid == app.place.owner.uid)
            }
            Stream::Head(_) => true,
        };
        known.then_some(app)
    }

    /// What a caller that [knows of](Self::known_to) an application must be to have its stream: a front end, at the
    /// head; its head, elsewhere. And it must know the secret.
    fn may_attach(stream: Stream, app: &App, ticket: &Ticket) -> Result<(), String> {
        let key = app.key();
        match stream {
            Stream::Front(_) if !app.head() => {
                return Err(format!(
                    "PE 0 of application {key} is on another node: launch it through the apinit \
                     of that node"
                ));
            }
            Stream::Head(_) if app.head() => {
                return Err(format!(
                    "PE 0 of application {key} is here: its front end launches it"
                ));
            }
            Stream::Front(_) | Stream::Head(_) => {}
        }
        if !same_ticket(ticket, &app.place.ticket) {
            return Err(format!("the ticket is not the one of application {key}"));
        }
        Ok(())
    }

    fn launch(
        &mut self,
        now: u64,
        stream: Stream,
        key: Key,
        ticket: Ticket,
        launch: Box<Launch>,
        out: &mut Out,
    ) {
        let Some(app) = self.known_to(stream, key) else { return };
        if let Err(text) = Self::may_attach(stream, app, &ticket) {
            return self.refuse(stream, text, None, out);
        }
        // (aprun looks at that before. This one may be another, or say something else than it did.)
        // Where it is only shown it may be anything.
        let shown = app.place.restart.is_some();
        if let Err(text) = launch.binding.fits(&app.place.places)
            && !shown
        {
            return self.refuse(stream, text, None, out);
        }
        if let Err(text) = launch.fits(app.place.shape.width)
            && !shown
        {
            return self.refuse(stream, text, None, out);
        }
        if app.launched_ns.is_some() {
            // Its first launch was taken, only the answer was lost; or apinit was killed before
            // every host had it. (It may be here before its former stream is seen to be closed.)
            let again = app.needs_launch();
            let Some(app) = self.apps.get_mut(&key) else { return };
            app.programs.launched(&launch);
            if again {
                app.launch = Some(launch);
                let closed = app.peers.iter().filter(|p| !p.open && !p.done).map(|p| p.index);
                let closed = closed.collect();
                self.open_peers(now, key, closed, out);
            }
            return self.resume(now, stream, key, ticket, &[], out);
        }
        if app.end != End::Not || app.doom.is_some() {
            let cause = app.known_cause();
            let text = match &cause {
                Some(cause) => format!("application {key} has ended: {cause}"),
                None => format!("application {key} has ended"),
            };
            return self.refuse(stream, text, cause, out);
        }
        // (To the other hosts the head speaks, which took the launch in time.)
        if app.head() && now >= app.ticket_until_ns {
            let text = format!(
                "the ticket of application {key} has lapsed: ask psched for its placement again"
            );
            return self.refuse(stream, text, None, out);
        }
        let head = app.head();
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.launched_ns = Some(now);
        app.programs.launched(&launch);
        app.launch = Some(launch);
        let in_vain = head && self.unlimited && app.place.memory_per_pe.is_some();
        let peers: Vec<u32> = app.peers.iter().map(|p| p.index).collect();
        self.take_stream(key, stream, out);
        out.push(stream.tell(Told::Accepted));
        if in_vain {
            out.push(stream.tell(Told::Notice(Notice::MemoryNotLimited)));
        }
        if head {
            self.report(Report::Launched(key), out);
        }
        self.open_peers(now, key, peers, out);
        self.start_or_refuse(now, key, out);
    }

    /// This stream is now the application's.
    fn take_stream(&mut self, key: Key, stream: Stream, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let before = std::mem::replace(&mut app.front, Front::Open(stream));
        app.done_said = false;
        let old = match before {
            Front::Open(old) => Some(old.conn()),
            Front::Away { conn: old, .. } => Some(old),
            Front::None | Front::Gone => None,
        };
        if let Some(old) = old.filter(|old| *old != stream.conn() && *old != super::NO_CONN) {
            self.close(old, out);
        }
        self.set_purpose(stream, Purpose::Has(key));
        if let Stream::Front(conn) = stream
            && self.fronts.get(&conn).is_some_and(|front| front.watch != Watch::No)
            && before != Front::Open(stream)
        {
            out.push(Action::KeepFront(key, conn));
        }
    }

    fn resume(
        &mut self,
        now: u64,
        stream: Stream,
        key: Key,
        ticket: Ticket,
        taken: &[OutputTaken],
        out: &mut Out,
    ) {
        let Some(app) = self.known_to(stream, key) else {
            let text = format!(
                "application {key} is not on this node, or has ended, or belongs to another user"
            );
            return self.refuse(stream, text, None, out);
        };
        if let Err(text) = Self::may_attach(stream, app, &ticket) {
            return self.refuse(stream, text, None, out);
        }
        if app.shepherd == Shepherd::Silent {
            // How much of output and stdin it has is not known before it speaks. Its front end is there, and is
            // waited for as long as it asks.
            if let Some(Front::Away { since_ns, .. }) =
                self.apps.get_mut(&key).map(|app| &mut app.front)
            {
                *since_ns = now;
            }
            let text =
                format!("the apshepherd of application {key} has not connected to its apinit yet");
            return self.put_off(stream, text, out);
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
            return self.refuse(stream, text, cause, out);
        }
        if app.needs_launch() {
            let text = format!("application {key} must be launched again");
            return self.refuse(stream, text, None, out);
        }
        if app.front == Front::Gone {
            let text = format!("application {key} has been ended: its front end was gone");
            return self.refuse(stream, text, Some(Cause::FrontGone), out);
        }
        self.take_stream(key, stream, out);
        if let Some(app) = self.apps.get_mut(&key) {
            app.silent_peers.front_is_back(now);
        }
        for one in taken {
            let Some(app) = self.apps.get(&key) else { return };
            let one = app.shifted_taken(*one);
            self.own_taken_floor(key, one);
            self.output_taken(key, one, out);
        }
        let Some(app) = self.apps.get(&key) else { return };
        let mut say = |told| out.push(stream.tell(told));
        say(Told::Accepted);
        if app.going_ns.is_some() {
            say(Told::Going);
        }
        if app.stdin.credit > 0 {
            out.extend(stream.tell_front(FromApinit::StdinCredit(app.front_credit())));
        }
        let mut say = |told| out.push(stream.tell(told));
        for number in app.signals.taken(app.head()) {
            say(Told::SignalsTaken(number));
        }
        for output in app.output.messages.iter().filter(|output| !app.is_imaged(output.offset)) {
            say(Told::Output(app.as_front_counts(output.clone())));
        }
        if let Some(notice) = &app.lost {
            say(Told::Notice(notice.clone()));
        }
        if app.ready && app.going_ns.is_none() {
            out.extend(stream.tell_head(FromPeer::Ready));
        }
        for arrival in app.arrivals.all() {
            out.extend(stream.tell_head(FromPeer::BarrierIn(arrival.clone())));
        }
        if let Some(first) = app.first.as_ref().filter(|d| d.cause.ends_application()) {
            out.extend(stream.tell_head(FromPeer::Decisive(first.clone())));
        }
        self.ask_for_programs(key, out);
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

    /// A front end says something of its application. (It is at the head.)
    fn front_says(&mut self, now: u64, conn: Conn, key: Key, message: ToApinit, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let front = Stream::Front(conn);
        if app.front != Front::Open(front) {
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
            ToApinit::Stdin(piece) if piece.end() <= app.stdin_passed => {}
            ToApinit::Stdin(piece) => {
                let text = if piece.offset > app.stdin_passed {
                    "a part of stdin before this one is missing"
                } else if piece.end() > app.stdin_limit {
                    // It would fill our memory.
                    "aprun sent more stdin than its credit allows"
                } else {
                    app.stdin_passed = piece.end();
                    return tell(app, ToShepherd::Stdin(piece));
                };
                // Nothing of ours does this.
                app.front = Front::Away { conn, since_ns: now, watch: Watch::No };
                self.refuse(front, text.into(), None, out);
            }
            ToApinit::StdinEnd(length) if length == app.stdin_passed => {
                tell(app, ToShepherd::StdinEnd(length));
            }
            ToApinit::OutputTaken(taken) if app.is_claimed_too_much(taken) => {
                // Nothing of ours does this.
                let text = format!(
                    "output is acknowledged up to byte {}, which was never sent",
                    taken.offset
                );
                app.front = Front::Away { conn, since_ns: now, watch: Watch::No };
                self.refuse(front, text, None, out);
            }
            ToApinit::OutputTaken(taken) => self.output_taken(key, taken, out),
            // psched's own come from psched.
            ToApinit::Signal(signal) if signal.number <= PSCHED_SIGNALS => {
                self.signal(key, signal, out);
            }
            ToApinit::Terminate { reason, kill_after } => {
                self.end_all(now, key, reason.into(), kill_after, None, out);
            }
            ToApinit::Launch { .. } => out.push(front.tell(Told::Notice(Notice::LaunchedAlready))),
            // A front end that has this stream has nothing to resume, and each time would have all that is kept
            // queued for it anew.
            ToApinit::Resume { .. } | ToApinit::StdinEnd(_) | ToApinit::Signal(_) => {}
        }
    }

    /// The head of an application says something of the part that is here.
    fn head_says(&mut self, now: u64, conn: Conn, key: Key, message: ToPeer, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let head = Stream::Head(conn);
        if app.front != Front::Open(head) {
            return;
        }
        match message {
            ToPeer::OutputTaken(taken) => {
                let taken = app.shifted_taken(taken);
                self.output_taken(key, taken, out);
            }
            ToPeer::Signal(signal) => self.signal(key, signal, out),
            ToPeer::Terminate { cause, kill_after } => {
                self.end_all(now, key, cause, kill_after, None, out);
            }
            ToPeer::Go => self.enter(now, key, out),
            // The shepherd knows whether it is for the barrier that its PEs are in.
            ToPeer::BarrierOut(piece) => {
                if app.sent && app.running() {
                    app.tell_shepherd(ToShepherd::BarrierOut(piece), out);
                }
            }
            ToPeer::Letter(letter) => self.letter_arrives(key, letter, out),
            ToPeer::Sources { hosts } => self.sources_told(key, hosts, out),
            // (Who passes them on has read these.)
            ToPeer::Lead { .. } | ToPeer::Pass(_) => {}
            ToPeer::Launch { .. } => out.push(head.tell(Told::Notice(Notice::LaunchedAlready))),
            // The head's own front end has come back: once more from here.
            ToPeer::Resume { key: same, ticket, taken } => {
                let app = self.apps.get(&key).filter(|_| same == key);
                let may = app.map(|app| Self::may_attach(head, app, &ticket));
                if matches!(may, Some(Ok(()))) {
                    self.resume(now, head, key, ticket, &taken, out);
                }
            }
        }
    }

    /// A stream of either kind is closed.
    pub(super) fn stream_closed(&mut self, now: u64, conn: Conn, out: &mut Out) {
        let (stream, purpose, watch) = match (self.fronts.remove(&conn), self.heads.remove(&conn)) {
            (Some(front), _) => (Stream::Front(conn), front.opening.purpose, front.watch),
            // (A head that is restarted comes back.)
            (None, Some(head)) => (Stream::Head(conn), head.opening.purpose, Watch::No),
            (None, None) => return,
        };
        let app = match purpose {
            Purpose::Has(key) => self.apps.get_mut(&key),
            _ => None,
        };
        let Some(app) = app.filter(|app| app.front == Front::Open(stream)) else {
            out.push(Action::CloseStream(conn));
            return;
        };
        let key = app.key();
        let watch = if app.adopted { watch.of_adopted() } else { watch };
        app.front = Front::Away { conn, since_ns: now, watch };
        if app.done_said {
            // It has all there is, and has gone home.
            app.front = Front::Gone;
            out.push(Action::CloseStream(conn));
        }
        self.settle(now, key, out);
    }

    /// The process of a front end is dead: it does not come back.
    pub(super) fn front_died(&mut self, now: u64, conn: Conn, out: &mut Out) {
        let of_conn = |app: &&App| match app.front {
            Front::Open(stream) => stream == Stream::Front(conn),
            Front::Away { conn: c, .. } => c == conn && app.head(),
            Front::None | Front::Gone => false,
        };
        let key = self.apps.values().find(of_conn).map(App::key);
        match key {
            Some(key) => self.front_gone(now, key, conn, out),
            None => {
                if self.fronts.get(&conn).is_some_and(|front| front.opening.is_early()) {
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

    /// psched says that a front end does not come back. The death of one on another host is told by
    /// psched only.
    pub(super) fn front_stays_away(&mut self, key: Key) {
        let Some(app) = self.apps.get_mut(&key).filter(|app| app.head()) else { return };
        match &mut app.front {
            Front::Away { watch, .. } => *watch = Watch::No,
            // (What psched has not heard of: it is given up once it has gone.)
            Front::Open(Stream::Front(conn)) => {
                if let Some(front) = self.fronts.get_mut(conn) {
                    front.watch = Watch::No;
                }
            }
            Front::Open(Stream::Head(_)) | Front::None | Front::Gone => {}
        }
    }

    /// Another psched has adopted what is here, or has it purged. It does not tell when front ends
    /// on other hosts die: one that is away has [`AWAY_MAX`](super::AWAY_MAX) to come back, as one
    /// that nobody watches.
    pub(super) fn adopt_fronts(&mut self, now: u64, out: &mut Out) {
        let keys: Vec<Key> = self.apps.keys().copied().collect();
        for key in keys {
            let Some(app) = self.apps.get_mut(&key) else { continue };
            // Its numbers of moves are its own.
            app.not_moved = None;
            if app.head() && !std::mem::replace(&mut app.adopted, true) {
                out.push(Action::KeepAdopted(key));
            }
            if let Front::Away { since_ns, watch, .. } = &mut app.front
                && *watch == Watch::Elsewhere
            {
                (*since_ns, *watch) = (now, Watch::No);
            }
        }
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

    pub(super) fn streams_tick(&mut self, now: u64, out: &mut Out) {
        let due = |at: Option<u64>| at.is_some_and(|at| at <= now);
        let text = |purpose: &Purpose| match purpose {
            Purpose::Waiting { key, .. } => format!(
                "psched has not placed application {key} on this node; is the link between \
                 psched and apinit up? (apstat -n)"
            ),
            _ => format!("no launch was received within {} s", LAUNCH_WAIT.as_secs()),
        };
        let fronts = self.fronts.iter().filter(|(_, front)| due(front.opening.deadline()));
        let fronts =
            fronts.map(|(conn, front)| (Stream::Front(*conn), text(&front.opening.purpose)));
        let heads = self.heads.iter().filter(|(_, head)| due(head.opening.deadline()));
        let heads = heads.map(|(conn, head)| (Stream::Head(*conn), text(&head.opening.purpose)));
        for (stream, text) in fronts.chain(heads).collect::<Vec<_>>() {
            self.put_off(stream, text, out);
        }
    }
}
