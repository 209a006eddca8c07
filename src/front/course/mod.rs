//! The course of an application as its front end sees it: from the posting to the exit status.
//!
//! ```text
//!   Posting --accepted--> Waiting --look--> Looking --placement--> (Opening) --> Attaching
//!                            ^                 |                                    |
//!                            +---- not yet ----+             accepted by the apinit v
//!                            |                                                   Launched
//!                            +---- refused: place taken back -------+              | going
//!                                                                                  v
//!     exit <-- Ended by psched, Done by the apinit, all output written <--------- Going
//! ```
//!
//! Three rules carry it:
//!
//! - *A signal only says "look".* SIGUSR1 from psched and the event `placed` mean the same, so that
//!   losing one is no hang; the placement is only what psched answers to a look. psched is known by
//!   the pid that the kernel names for its connection: its USR1 is never passed on. Any other that
//!   comes before the PEs go is kept and passed on when they do.
//! - *The status is psched's.* It comes with `Ended`, and is waited for while psched is away.
//!   Output is complete when the apinit has said `Done` and all is written; an apinit that can't be
//!   reached is waited for [`DONE_PATIENCE_NS`].
//! - *Output is counted.* The apshepherd keeps what has not been reported as taken, so a piece is
//!   reported only when it is written, and what comes twice after a break is known by its offset.

mod output;
mod words;

use crate::apteam::ending::{Cause, STATUS_FAILED, STATUS_STDOUT_CLOSED};
use crate::apteam::talk::attach::{FromApinit, ToApinit};
use crate::apteam::{Apid, posting::Explanation};
use bytes::Bytes;
use output::Received;
use std::time::Duration;
pub use words::{Action, Ask, Ended, Event, Happening, Looked, Loss, Placement, Setup};

const SECOND_NS: u64 = 1_000_000_000;
/// The first pause before a connection is tried again; it doubles up to [`RETRY_MAX_NS`].
pub const RETRY_MIN_NS: u64 = 50_000_000;
/// The longest pause.
pub const RETRY_MAX_NS: u64 = SECOND_NS;
/// How long a wait or a silence lasts before a line on stderr tells of it.
pub const SILENCE_NS: u64 = 2 * SECOND_NS;
/// How long a psched that is being restarted is waited for before it has taken the posting.
pub const FIRST_PATIENCE_NS: u64 = 5 * SECOND_NS;
/// How long a silent apinit is waited for after the end.
pub const DONE_PATIENCE_NS: u64 = 10 * SECOND_NS;
/// How long psched may take to confirm that a posting is withdrawn.
pub const WITHDRAW_PATIENCE_NS: u64 = 2 * SECOND_NS;
/// How long a USR1 of unknown origin is held while psched is away.
pub const HELD_NS: u64 = SECOND_NS;
/// From TERM to KILL when this process ends the application.
pub const KILL_AFTER: Duration = Duration::from_secs(5);
/// Signals that are kept for later; more are merged as the kernel merges them.
const KEPT_MAX: usize = 64;
/// Refusals of a launch before it is given up.
const REFUSALS_MAX: u32 = 5;
/// The most that is read from stdin at once, in bytes.
pub const STDIN_PIECE: u64 = 64 * 1024;

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGUSR1: i32 = 10;
const SIGTERM: i32 = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// The posting is on its way.
    Posting,
    /// It is on record.
    Waiting,
    /// A look is on its way.
    Looking,
    /// The files for its output are being opened.
    Opening,
    /// The launch is on its way.
    Attaching,
    /// The apinit has refused it, having tried; psched will tell of its end.
    Refused,
    /// The apinit has it.
    Launched,
    /// Its PEs run.
    Going,
}

/// How an attempt to reach a peer goes.
#[derive(Clone, Debug, Default)]
struct Peer {
    up: bool,
    /// When to try again.
    retry_at: Option<u64>,
    pause_ns: u64,
    /// Since when it is silent.
    down_since: Option<u64>,
    /// stderr was told.
    said: bool,
    text: String,
}

impl Peer {
    fn down(&mut self, now_ns: u64, text: String) {
        self.up = false;
        self.text = text;
        self.down_since.get_or_insert(now_ns);
        self.pause_ns = (self.pause_ns * 2).clamp(RETRY_MIN_NS, RETRY_MAX_NS);
        self.retry_at = Some(now_ns + self.pause_ns);
    }

    /// It answers; whether stderr was told that it does not.
    fn answers(&mut self) -> bool {
        let said = self.said;
        *self = Peer { up: true, ..Peer::default() };
        said
    }

    fn say_at(&self) -> Option<u64> {
        self.down_since.filter(|_| !self.said).map(|since| since + SILENCE_NS)
    }
}

/// Whether a moment has come.
fn due(at: Option<u64>, now_ns: u64) -> bool {
    at.is_some_and(|at| at <= now_ns)
}

/// A signal that waits.
#[derive(Clone, Copy, Debug)]
struct Kept {
    signal: i32,
    sender: Option<i32>,
    /// Passed on at this time at the latest; `None`: when the PEs go.
    until: Option<u64>,
}

/// A ^C before the PEs go.
#[derive(Clone, Copy, Debug)]
struct Withdrawal {
    signal: i32,
    until: u64,
}

/// A launch that was tried and failed: psched's word of it is waited for until then.
#[derive(Clone, Debug)]
struct Refused {
    text: String,
    status: u8,
    until: u64,
}

/// The state machine of aprun.
#[derive(Debug)]
pub struct Front {
    setup: Setup,
    step: Step,
    apid: Option<Apid>,
    placement: Option<Box<Placement>>,
    psched: Peer,
    /// When psched was tried first; until it has taken the posting.
    first_try_at: Option<u64>,
    /// psched's pids so far, the last few: it may have been restarted.
    psched_pids: Vec<i32>,
    /// A look was asked for while one was on its way.
    look_again: bool,
    look_at: Option<u64>,
    apinit: Peer,
    /// The last connection began with a resumption.
    resuming: bool,
    refusals: u32,
    refused: Option<Refused>,
    kept: Vec<Kept>,
    received: Received,
    stdin_sent: u64,
    stdin_credit: u64,
    stdin_busy: bool,
    /// Read while the apinit was away.
    stdin_held: Option<Bytes>,
    stdin_over: bool,
    /// To be said to the apinit, once it can be reached.
    terminate: Option<Cause>,
    /// Status of an output that failed, if the application has none of its own.
    output_status: Option<u8>,
    waiting: Option<Explanation>,
    wait_say_at: Option<u64>,
    withdrawal: Option<Withdrawal>,
    ended: Option<Box<Ended>>,
    done: bool,
    /// Since when nothing has come after the end.
    quiet_since: u64,
    over: bool,
    actions: Vec<Action>,
}

impl Front {
    /// Before anything has happened.
    pub fn new(setup: Setup) -> Front {
        Front {
            setup,
            step: Step::Posting,
            apid: None,
            placement: None,
            psched: Peer::default(),
            first_try_at: None,
            psched_pids: Vec::new(),
            look_again: false,
            look_at: None,
            apinit: Peer::default(),
            resuming: false,
            refusals: 0,
            refused: None,
            kept: Vec::new(),
            received: Received::default(),
            stdin_sent: 0,
            stdin_credit: 0,
            stdin_busy: false,
            stdin_held: None,
            stdin_over: false,
            terminate: None,
            output_status: None,
            waiting: None,
            wait_say_at: None,
            withdrawal: None,
            ended: None,
            done: false,
            quiet_since: 0,
            over: false,
            actions: Vec::new(),
        }
    }

    /// Takes what has happened and says what is to be done, in this order. `now_ns` never falls.
    pub fn apply(&mut self, now_ns: u64, happening: Happening) -> Vec<Action> {
        if self.over {
            return Vec::new();
        }
        match happening {
            Happening::Start => {
                self.first_try_at = Some(now_ns);
                self.wait_say_at = Some(now_ns + SILENCE_NS);
                self.act(Action::Psched(Ask::Post));
            }
            Happening::PschedUp { pid } => self.psched_up(pid),
            Happening::PschedDown { text, absent } => self.psched_down(now_ns, text, absent),
            Happening::PschedRefused(text) => self.psched_refused(&text),
            Happening::Event(event) => self.event(now_ns, event),
            Happening::Looked(looked) => self.looked(now_ns, looked),
            Happening::Killed => {
                if let Some(withdrawal) = self.withdrawal
                    && self.step < Step::Attaching
                {
                    self.exit(by_signal(withdrawal.signal));
                }
            }
            Happening::Files(Ok(())) if self.step == Step::Opening => self.launch(now_ns),
            Happening::Files(Ok(())) => {}
            Happening::Files(Err(text)) => self.fail(&text),
            Happening::ApinitDown { text, connected } => self.apinit_down(now_ns, text, connected),
            Happening::Apinit(message) => self.apinit_says(now_ns, message),
            Happening::Signal { signal, sender } => self.signal(now_ns, signal, sender),
            Happening::Stdin(bytes) => {
                self.stdin_busy = false;
                self.stdin_held = Some(bytes);
                self.send_stdin();
            }
            Happening::StdinEnd => {
                self.stdin_busy = false;
                self.stdin_over = true;
                self.send_stdin();
            }
            Happening::Trouble(text) => self.say(format!("aprun: {text}")),
            Happening::Written { source, end } => {
                self.quiet_since = now_ns;
                if let Some(taken) = self.received.written(source, end)
                    && self.apinit.up
                {
                    self.act(Action::Send(ToApinit::OutputTaken(taken)));
                }
            }
            Happening::OutputLost(loss) => self.output_lost(loss),
            Happening::Time => {}
        }
        self.timers(now_ns);
        self.finish(now_ns);
        std::mem::take(&mut self.actions)
    }

    /// When [`Happening::Time`] is wanted next.
    pub fn deadline(&self) -> Option<u64> {
        if self.over {
            return None;
        }
        let quiet = self.ended.as_ref().filter(|_| self.received.is_written());
        [
            self.psched.retry_at,
            self.psched.say_at(),
            self.apinit.retry_at,
            self.apinit.say_at(),
            self.look_at,
            self.wait_say_at,
            self.withdrawal.map(|w| w.until),
            self.refused.as_ref().map(|r| r.until),
            self.kept.iter().filter_map(|k| k.until).min(),
            quiet.map(|_| self.quiet_since + DONE_PATIENCE_NS),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn act(&mut self, action: Action) {
        if !self.over {
            self.actions.push(action);
        }
    }

    fn say(&mut self, text: String) {
        self.act(Action::Say(text));
    }

    fn exit(&mut self, status: u8) {
        self.act(Action::Exit(status));
        self.over = true;
    }

    /// Leaves before there is an end to tell of.
    fn fail(&mut self, text: &str) {
        self.say(format!("aprun: {text}"));
        self.exit(STATUS_FAILED);
    }

    /// The application's name in messages.
    fn named(&self) -> String {
        self.apid.map_or("the posting".to_owned(), |apid| format!("application {apid}"))
    }

    fn is_launched(&self) -> bool {
        self.step >= Step::Launched
    }

    // psched

    fn psched_up(&mut self, pid: i32) {
        if self.psched.answers() {
            self.say("aprun: psched answers again".to_owned());
        }
        if !self.psched_pids.contains(&pid) {
            const PIDS_MAX: usize = 8;
            if self.psched_pids.len() == PIDS_MAX {
                self.psched_pids.remove(0);
            }
            self.psched_pids.push(pid);
        }
        // Now it is known who sent what is kept. (Its own USR1 needs no look: the new stream
        // begins with the present state.)
        if self.step == Step::Going {
            self.pass_on();
        }
    }

    fn psched_down(&mut self, now_ns: u64, text: String, absent: bool) {
        self.psched.up = false;
        if self.ended.is_some() {
            // The stream ends with the application.
            return;
        }
        if let Some(first) = self.first_try_at
            && (absent || now_ns >= first + FIRST_PATIENCE_NS)
        {
            return self.fail(&text);
        }
        self.psched.down(now_ns, text);
        if self.step == Step::Looking {
            self.step = Step::Waiting;
        }
        if let Some(withdrawal) = self.withdrawal
            && self.step < Step::Attaching
        {
            self.exit(by_signal(withdrawal.signal));
        }
    }

    fn psched_refused(&mut self, text: &str) {
        match self.apid {
            None => self.fail(text),
            Some(apid) => {
                if self.is_launched() && !self.done {
                    let kill_after = KILL_AFTER;
                    self.send(ToApinit::Terminate { cause: Cause::NoRecord, kill_after });
                }
                self.fail(&format!("application {apid}: its record is lost: {text}"));
            }
        }
    }

    fn event(&mut self, now_ns: u64, event: Event) {
        match event {
            Event::Accepted(apid) => {
                self.first_try_at = None;
                if self.apid.is_none() {
                    self.apid = Some(apid);
                    self.step = Step::Waiting;
                    self.wait_say_at = Some(now_ns + SILENCE_NS);
                }
            }
            Event::Placed(incarnation) => match self.step {
                Step::Waiting => self.look(),
                Step::Looking => self.look_again = true,
                // The place that this launch was for has been taken back.
                Step::Opening | Step::Attaching
                    if self
                        .placement
                        .as_ref()
                        .is_some_and(|p| incarnation > p.key.incarnation.0) =>
                {
                    self.apinit = Peer::default();
                    self.look();
                }
                _ => {}
            },
            Event::Launched => {}
            Event::Waiting(why) => self.waits(why),
            Event::Ended(ended) => self.has_ended(now_ns, ended),
        }
    }

    fn waits(&mut self, why: Explanation) {
        self.waiting = Some(why);
    }

    fn has_ended(&mut self, now_ns: u64, ended: Box<Ended>) {
        if self.ended.is_none() {
            self.quiet_since = now_ns;
            self.ended = Some(ended);
        }
    }

    fn look(&mut self) {
        self.look_at = None;
        self.look_again = false;
        match self.apid {
            Some(apid) if self.psched.up && self.withdrawal.is_none() => {
                self.step = Step::Looking;
                self.act(Action::Look(apid));
            }
            _ => self.step = Step::Waiting,
        }
    }

    fn looked(&mut self, now_ns: u64, looked: Looked) {
        if let Looked::Ended(ended) = looked {
            return self.has_ended(now_ns, ended);
        }
        if self.step != Step::Looking {
            return;
        }
        self.step = Step::Waiting;
        match looked {
            // Withdrawn in the meantime: the place goes back with the posting.
            Looked::Placement(_) if self.withdrawal.is_some() => {}
            Looked::Placement(placement) if placement.hosts.is_empty() => {
                self.fail("psched's placement names no apinit: psched and aprun do not fit");
            }
            Looked::Placement(placement) => {
                self.placement = Some(placement.clone());
                if self.setup.files {
                    self.step = Step::Opening;
                    self.act(Action::OpenFiles(placement));
                } else {
                    self.launch(now_ns);
                }
            }
            Looked::Waiting(why) => {
                self.waits(why);
                if self.look_again {
                    self.look();
                }
            }
            Looked::Failed(text) => {
                if self.psched.up {
                    self.look_at = Some(now_ns + 2 * RETRY_MIN_NS);
                }
                self.waits(Explanation { obstacle: text, ..Explanation::default() });
            }
            Looked::Ended(_) => {}
        }
    }

    // apinit

    fn launch(&mut self, now_ns: u64) {
        let Some(placement) = &self.placement else { return };
        let first = ToApinit::Launch {
            key: placement.key,
            ticket: placement.ticket,
            launch: Box::new(self.setup.launch.clone()),
        };
        self.step = Step::Attaching;
        self.wait_say_at = Some(now_ns + SILENCE_NS);
        self.resuming = false;
        self.attach(first);
    }

    fn resume(&mut self) {
        let Some(placement) = &self.placement else { return };
        let first = ToApinit::Resume {
            key: placement.key,
            ticket: placement.ticket,
            taken: self.received.taken(),
            stdin_sent: self.stdin_sent,
        };
        self.resuming = true;
        self.attach(first);
    }

    fn attach(&mut self, first: ToApinit) {
        self.apinit.retry_at = None;
        let head = self.placement.as_ref().and_then(|p| p.hosts.first());
        let Some(socket) = head.map(|h| h.socket.clone()) else { return };
        self.act(Action::Attach { socket, first: Box::new(first) });
    }

    /// Says it if the apinit is there. What must not be lost is said again after a resumption.
    fn send(&mut self, message: ToApinit) {
        if self.apinit.up {
            self.act(Action::Send(message));
        }
    }

    fn apinit_down(&mut self, now_ns: u64, text: String, connected: bool) {
        if self.done || self.step < Step::Attaching || self.step == Step::Refused {
            return;
        }
        self.apinit.down(now_ns, text);
        // Whether the launch has come there is not known: a resumption tells.
        self.resuming |= connected;
    }

    fn apinit_says(&mut self, now_ns: u64, message: FromApinit) {
        if self.step < Step::Attaching {
            return;
        }
        if !matches!(message, FromApinit::Refused { .. }) {
            self.quiet_since = now_ns;
        }
        match message {
            FromApinit::Accepted => self.accepted(),
            FromApinit::Going => {
                self.accepted();
                self.step = Step::Going;
                self.wait_say_at = None;
                self.pass_on();
            }
            FromApinit::Refused { text, cause } => self.apinit_refused(now_ns, text, cause),
            FromApinit::Output(output) => {
                if let Some((new, lost)) = self.received.take(output) {
                    if lost > 0 {
                        self.say(format!("aprun: {lost} bytes of output were lost"));
                    }
                    self.act(Action::Write(new));
                }
            }
            FromApinit::StdinCredit(credit) => {
                self.stdin_credit = self.stdin_credit.max(credit);
                self.read_stdin();
            }
            FromApinit::Notice(text) => self.say(format!("aprun: {text}")),
            FromApinit::Done => self.done = true,
            // For a head's apinit only.
            FromApinit::Ready | FromApinit::BarrierIn(_) | FromApinit::Decisive(_) => {}
        }
    }

    fn accepted(&mut self) {
        if self.apinit.up {
            return;
        }
        if self.apinit.answers() {
            self.say("aprun: apinit answers again".to_owned());
        }
        self.step = self.step.max(Step::Launched);
        if let Some(withdrawal) = self.withdrawal
            && self.step < Step::Going
        {
            let cause = Cause::Kill { signal: withdrawal.signal, uid: self.setup.uid };
            self.send(ToApinit::Terminate { cause, kill_after: KILL_AFTER });
        }
        if let Some(cause) = self.terminate.clone() {
            self.send(ToApinit::Terminate { cause, kill_after: KILL_AFTER });
        }
        if self.step == Step::Going {
            self.pass_on();
        }
        self.send_stdin();
    }

    fn apinit_refused(&mut self, now_ns: u64, text: String, cause: Option<Cause>) {
        self.apinit.up = false;
        match (self.step, self.resuming, cause) {
            // The launch never came there.
            (Step::Attaching, true, None) => self.launch(now_ns),
            (Step::Attaching, _, Some(cause)) => {
                self.step = Step::Refused;
                let until = now_ns + DONE_PATIENCE_NS;
                self.refused = Some(Refused { text, status: cause.status(), until });
                self.apinit = Peer::default();
            }
            (Step::Attaching, false, None) => {
                self.refusals += 1;
                if self.refusals > REFUSALS_MAX {
                    let named = self.named();
                    return self.fail(&format!("{named} was not launched: {text}"));
                }
                // Its place may have been taken back: psched knows.
                self.step = Step::Waiting;
                self.apinit = Peer::default();
                self.look_at = Some(now_ns + u64::from(self.refusals) * 2 * RETRY_MIN_NS);
            }
            // An apinit that has just been restarted may not have found its application yet.
            _ => {
                self.apinit.down(now_ns, text);
                self.apinit.retry_at = Some(now_ns + RETRY_MAX_NS);
            }
        }
    }

    /// Sends what was read, and reads on where there is credit.
    fn send_stdin(&mut self) {
        if !self.apinit.up {
            return;
        }
        if let Some(bytes) = self.stdin_held.take() {
            self.stdin_sent += bytes.len() as u64;
            self.send(ToApinit::Stdin(bytes));
        }
        if self.stdin_over {
            self.send(ToApinit::StdinEnd);
        }
        self.read_stdin();
    }

    fn read_stdin(&mut self) {
        let credit = self.stdin_credit.saturating_sub(self.stdin_sent);
        if credit > 0 && !self.stdin_busy && !self.stdin_over && self.apinit.up && !self.done {
            self.stdin_busy = true;
            self.act(Action::ReadStdin(credit.min(STDIN_PIECE) as usize));
        }
    }

    fn output_lost(&mut self, loss: Loss) {
        if self.output_status.is_some() {
            return;
        }
        let cause = match loss {
            Loss::StdoutClosed => {
                self.output_status = Some(STATUS_STDOUT_CLOSED);
                Cause::StdoutClosed
            }
            Loss::Failed(text) => {
                self.say(format!("aprun: {text}; {} is ended", self.named()));
                self.output_status = Some(STATUS_FAILED);
                Cause::FrontGone
            }
        };
        if !self.done {
            self.send(ToApinit::Terminate { cause: cause.clone(), kill_after: KILL_AFTER });
            self.terminate = Some(cause);
        }
    }

    // signals

    fn signal(&mut self, now_ns: u64, signal: i32, sender: Option<i32>) {
        if signal == SIGUSR1 && self.is_psched(sender) {
            match self.step {
                Step::Waiting => self.look(),
                Step::Looking => self.look_again = true,
                _ => {}
            }
            return;
        }
        let ends = matches!(signal, SIGHUP | SIGINT | SIGQUIT | SIGTERM);
        if self.ended.is_some() || self.done {
            // Nothing is left to pass it on to, but somebody wants this process to go.
            if ends {
                self.say(format!("aprun: {}: its output is not complete", self.named()));
                self.exit(by_signal(signal));
            }
        } else if self.step == Step::Going {
            // While psched is away, its next process may be the sender.
            let until = (signal == SIGUSR1 && sender.is_some() && !self.psched.up)
                .then_some(now_ns + HELD_NS);
            if until.is_some() || !self.apinit.up {
                self.keep(Kept { signal, sender, until });
            } else {
                self.send(ToApinit::Signal(signal));
            }
        } else if ends {
            self.withdraw(now_ns, signal);
        } else {
            self.keep(Kept { signal, sender, until: None });
        }
    }

    fn is_psched(&self, sender: Option<i32>) -> bool {
        sender.is_some_and(|pid| self.psched_pids.contains(&pid))
    }

    fn keep(&mut self, kept: Kept) {
        let same = |k: &Kept| (k.signal, k.sender) == (kept.signal, kept.sender);
        if self.kept.len() < KEPT_MAX && !self.kept.iter().any(same) {
            self.kept.push(kept);
        }
    }

    /// Passes on what is kept, but for psched's own, if the PEs can be reached.
    fn pass_on(&mut self) {
        if !self.apinit.up {
            return;
        }
        for kept in std::mem::take(&mut self.kept) {
            if kept.until.is_some() && !self.psched.up {
                self.kept.push(kept);
            } else if kept.signal != SIGUSR1 || !self.is_psched(kept.sender) {
                self.send(ToApinit::Signal(kept.signal));
            }
        }
    }

    /// The user wants out before the PEs go.
    fn withdraw(&mut self, now_ns: u64, signal: i32) {
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
            let cause = Cause::Kill { signal, uid: self.setup.uid };
            self.send(ToApinit::Terminate { cause, kill_after: KILL_AFTER });
        }
    }

    // time

    fn timers(&mut self, now_ns: u64) {
        if self.over {
            return;
        }
        if due(self.psched.retry_at, now_ns) {
            self.psched.retry_at = None;
            self.act(Action::Psched(self.apid.map_or(Ask::Post, Ask::Watch)));
        }
        if due(self.apinit.retry_at, now_ns) {
            if self.is_launched() || self.resuming { self.resume() } else { self.launch(now_ns) }
        }
        if due(self.look_at, now_ns) {
            self.look_at = None;
            if self.step == Step::Waiting {
                self.look();
            }
        }
        if due(self.psched.say_at(), now_ns) {
            self.psched.said = true;
            let goes_on = if self.ended.is_some() {
                "has ended"
            } else if self.is_launched() {
                "runs on"
            } else {
                "waits"
            };
            let text = self.psched.text.clone();
            self.say(format!(
                "aprun: psched does not answer ({text}); {} {goes_on}; trying again",
                self.named()
            ));
        }
        if due(self.apinit.say_at(), now_ns) {
            self.apinit.said = true;
            let text = self.apinit.text.clone();
            self.say(format!("aprun: apinit does not answer ({text}); trying again"));
        }
        if due(self.wait_say_at, now_ns) {
            self.wait_say_at = None;
            if !self.setup.quiet && self.withdrawal.is_none() {
                self.say_what_is_waited_for();
            }
        }
        if self.kept.iter().any(|k| due(k.until, now_ns)) {
            self.kept.iter_mut().for_each(|k| k.until = k.until.filter(|u| *u > now_ns));
            self.pass_on();
        }
        if let Some(withdrawal) = self.withdrawal.filter(|w| w.until <= now_ns) {
            self.exit(by_signal(withdrawal.signal));
        }
        if let Some(refused) = self.refused.clone().filter(|r| r.until <= now_ns) {
            self.say(format!("aprun: {} was not launched: {}", self.named(), refused.text));
            self.exit(refused.status);
        }
    }

    /// A line about a silence of psched's, of an apinit's, or of a full machine.
    fn say_what_is_waited_for(&mut self) {
        let named = self.named();
        let line = match self.step {
            // These have lines of their own.
            _ if self.psched.down_since.is_some() || self.apinit.down_since.is_some() => return,
            Step::Posting => "psched has not taken the posting yet; waiting for it".to_owned(),
            Step::Waiting | Step::Looking => {
                let why = self.waiting.as_ref().map(|w| format!(": {w}")).unwrap_or_default();
                format!("{named} waits for a place{why}")
            }
            Step::Attaching => {
                format!("{named} has a place, but its apinit has not taken the launch yet; waiting")
            }
            Step::Launched => {
                format!("{named} is launched, but its PEs are not all ready; waiting")
            }
            Step::Opening | Step::Refused | Step::Going => return,
        };
        self.say(format!("aprun: {line}"));
    }

    /// Leaves when there is nothing to wait for any more.
    fn finish(&mut self, now_ns: u64) {
        let Some(ended) = &self.ended else { return };
        if self.over {
            return;
        }
        if let Some(withdrawal) = self.withdrawal {
            return self.exit(by_signal(withdrawal.signal));
        }
        let output_may_come = ended.end.launched && self.is_launched() && !self.done;
        let written = self.received.is_written();
        let given_up = now_ns >= self.quiet_since.saturating_add(DONE_PATIENCE_NS);
        if !written || output_may_come && !given_up {
            return;
        }
        let ended = ended.clone();
        if output_may_come {
            self.say(format!(
                "aprun: {} has ended, but its apinit has been silent for {} s: its output may not \
                 be complete",
                self.named(),
                DONE_PATIENCE_NS / SECOND_NS
            ));
        }
        let status = match (ended.status, self.output_status) {
            (0, Some(status)) => status,
            (status, _) => status,
        };
        self.act(Action::Close(ended));
        self.exit(status);
    }
}

/// What a shell says of a process that died by this signal.
fn by_signal(signal: i32) -> u8 {
    128u8.saturating_add(u8::try_from(signal).unwrap_or(127))
}

#[cfg(test)]
mod tests;
