//! The course of an application as its front end sees it, aprun or `cpr -r`: from the posting to the exit
//! status.
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
//! These rules carry it:
//!
//! - *A signal only says "look".* SIGUSR1 from psched and the event `placed` mean the same, so that
//!   losing one is no hang; the placement is only what psched answers to a look. psched is known by
//!   the mark that its signal bears, and one of the release before, which has none, by the pid that
//!   the kernel names for its connection: its USR1 is never passed on. Any other that comes before
//!   the PEs go is kept and passed on when they do.
//! - *The status is psched's.* It comes with `Ended`, and is waited for while psched is away.
//!   Output is complete when the apinit has said `Done` and all is written; an apinit that can't be
//!   reached is waited for [`DONE_PATIENCE_NS`].
//! - *Output is counted.* The apshepherd keeps what has not been reported as taken, so a piece is
//!   reported only when it is written, and what comes twice after a break is known by its offset.
//!   So is a hole: what is missing is asked for by a resumption, a few times, and then given up: a
//!   line says so, and the status is 125 if the application has none of its own.
//! - *The ticket's time is for the launch.* A launch that was taken in time stays taken, and its
//!   stream may be resumed as long as the application is there. One that was not is refused, as if it
//!   had never come; then psched is asked for another place.
//! - *A launch that fails by a node's fault is tried again.* psched says so once every host is empty, and
//!   that no PE has run. Then the application waits for another place as if it had never been launched:
//!   nothing has been read of stdin, and no signal passed on, before its PEs go.
//! - *What goes down is counted too.* stdin and signals are kept until the apshepherds have them, and
//!   said again to an apinit that comes back.

mod apinit;
mod deaths;
mod events;
mod notices;
mod output;
mod psched;
mod report;
mod report_row;
mod retried;
mod signals;
mod silent_hosts;
mod stdin;

use crate::apteam::ending::{Cause, STATUS_FAILED, STATUS_STDOUT_CLOSED};
use crate::apteam::place::{HostAddress, HostPart};
use crate::apteam::protocol::attach::{FromApinit, FrontReason, NumberedSignal, ToApinit};
use crate::apteam::{Apid, posting::Explanation};
use crate::variables::units::format_duration;
use deaths::Deaths;
pub use events::{Action, Ask, Ended, Event, Looked, Loss, Placement, PschedEvent, Retried, Setup};
use output::Received;
use report::Reports;
pub use report_row::ReportRow;
use signals::{Kept, Withdrawal};
use silent_hosts::SilentHosts;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

const SECOND_NS: u64 = 1_000_000_000;
/// The first pause before a connection is tried again; it doubles up to [`RETRY_MAX_NS`]. [`Setup::spread`] is added.
pub const RETRY_MIN_NS: u64 = 50_000_000;
/// The longest pause, to which [`Setup::spread`] is added.
pub const RETRY_MAX_NS: u64 = SECOND_NS;
/// A connection that held for so long does not break each time.
const STEADY_NS: u64 = SECOND_NS;
/// So many that did are tried again as soon as one that held.
const BREAKS_AT_ONCE: u32 = 3;
/// After so many that did, a line on stderr says why.
const BREAKS_SAID: u32 = 8;
/// How long a wait or a silence lasts before a line on stderr tells of it.
pub const SILENCE_NS: u64 = 2 * SECOND_NS;
/// How long a psched that is being restarted is waited for before it has taken the posting, where
/// [`Setup::patience`] does not say it.
pub const FIRST_PATIENCE_NS: u64 = 5 * SECOND_NS;
/// How long a silent apinit is waited for after the end.
pub const DONE_PATIENCE_NS: u64 = 10 * SECOND_NS;
/// A deadline that is noticed so much later: this process was stopped, and the silence was its own.
pub const LATE_NS: u64 = SECOND_NS;
/// How long psched may take to confirm that a posting is withdrawn.
pub const WITHDRAW_PATIENCE_NS: u64 = 2 * SECOND_NS;
/// How long a USR1 of unknown origin is held while psched is away.
pub const HELD_NS: u64 = SECOND_NS;
/// From TERM to KILL when this process ends the application.
pub const KILL_AFTER: Duration = Duration::from_secs(5);
/// The most that is read from stdin at once, in bytes.
pub const STDIN_PIECE: u64 = 64 * 1024;

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
    /// Since when.
    up_since: Option<u64>,
    /// Connections in a row that broke before [`STEADY_NS`].
    breaks: u32,
    /// When to try again.
    retry_at: Option<u64>,
    pause_ns: u64,
    /// Since when it is silent.
    down_since: Option<u64>,
    /// stderr was told.
    said: bool,
    text: String,
    /// It was reached the last time, and said itself that it can't do now what it was asked.
    answered: bool,
}

impl Peer {
    fn down(&mut self, now_ns: u64, text: String, spread: u8) {
        self.up = false;
        // (A connection that breaks as soon as it is there is tried as rarely as one that can't be
        // made.)
        let was_up = self.up_since.is_some();
        match self.up_since.take() {
            Some(since) if now_ns.saturating_sub(since) >= STEADY_NS => self.breaks = 0,
            Some(_) => self.breaks = self.breaks.saturating_add(1),
            None => {}
        }
        if was_up && self.breaks <= BREAKS_AT_ONCE {
            self.pause_ns = 0;
        }
        self.text = text;
        self.down_since.get_or_insert(now_ns);
        self.pause_ns = (self.pause_ns * 2).clamp(RETRY_MIN_NS, RETRY_MAX_NS);
        self.retry_at = Some(now_ns + self.pause_ns + self.pause_ns * u64::from(spread) / 256);
    }

    /// It answers; whether stderr was told that it does not.
    fn answers(&mut self, now_ns: u64) -> bool {
        let said = self.said;
        let (pause_ns, breaks) = (self.pause_ns, self.breaks);
        *self = Peer { up: true, up_since: Some(now_ns), pause_ns, breaks, ..Peer::default() };
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
    silent_hosts: SilentHosts,
    /// The last connection began with a resumption.
    resuming: bool,
    refusals: u32,
    refused: Option<Refused>,
    /// The last placement of which psched has said that its launch failed and is tried again.
    retried: u32,
    /// The apinit did not know of the launch when it was asked to resume.
    launch_again: bool,
    /// It knows nothing of what it had let go: its host was switched off, most likely.
    unknown_there: bool,
    /// psched, too, knows of no launch: it died before it had that on record.
    unlaunched: bool,
    /// Both say so: it is given up then.
    lost_at: Option<u64>,
    kept: Vec<Kept>,
    /// Passed on, and not known to have come to all PEs.
    signals: VecDeque<NumberedSignal>,
    signals_sent: u64,
    /// How often the PEs have been sent INT.
    interrupts: u32,
    received: Received,
    /// The user was told that some of the output is missing, or may be.
    lacks_output: bool,
    /// The user was told that a host has no copy of its program.
    not_copied: bool,
    reports: Reports,
    stdin: stdin::Unreceived,
    stdin_busy: bool,
    stdin_over: bool,
    /// To be said to the apinit, once it can be reached.
    terminate: Option<FrontReason>,
    /// Status of an output that failed, if the application has none of its own.
    output_status: Option<u8>,
    waiting: Option<Explanation>,
    /// Psched has been asked why there is no place yet: its answer is to be shown.
    say_why: bool,
    wait_say_at: Option<u64>,
    withdrawal: Option<Withdrawal>,
    ended: Option<Box<Ended>>,
    /// What ends it, as far as it has been shown.
    told: Vec<Cause>,
    /// Signals of users of which a line tells, or will: one line for the PEs of all hosts.
    told_signals: BTreeSet<i32>,
    /// PEs that have died by a signal of a user's, of which a line is to tell.
    deaths: Option<Deaths>,
    /// Resumptions since the last piece of output that was in its place.
    holes: u32,
    /// Some output is lost.
    incomplete: bool,
    done: bool,
    /// The apinit has taken this process for dead, or has forgotten the application without a word.
    given_up: bool,
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
            silent_hosts: SilentHosts::default(),
            resuming: false,
            refusals: 0,
            refused: None,
            retried: 0,
            launch_again: false,
            unknown_there: false,
            unlaunched: false,
            lost_at: None,
            kept: Vec::new(),
            signals: VecDeque::new(),
            signals_sent: 0,
            interrupts: 0,
            received: Received::default(),
            lacks_output: false,
            not_copied: false,
            reports: Reports::default(),
            stdin: stdin::Unreceived::default(),
            stdin_busy: false,
            stdin_over: false,
            terminate: None,
            output_status: None,
            waiting: None,
            say_why: false,
            wait_say_at: None,
            withdrawal: None,
            ended: None,
            told: Vec::new(),
            told_signals: BTreeSet::new(),
            deaths: None,
            holes: 0,
            incomplete: false,
            done: false,
            given_up: false,
            quiet_since: 0,
            over: false,
            actions: Vec::new(),
        }
    }

    /// Takes what has happened and says what is to be done, in this order. `now_ns` never falls.
    pub fn apply(&mut self, now_ns: u64, event: Event) -> Vec<Action> {
        if self.over {
            return Vec::new();
        }
        if now_ns > self.quiet_since.saturating_add(DONE_PATIENCE_NS + LATE_NS) {
            // This process was stopped: what the apinit has said meanwhile is still to be read.
            self.quiet_since = now_ns;
        }
        match event {
            Event::Start => {
                self.first_try_at = Some(now_ns);
                self.wait_say_at = Some(now_ns + SILENCE_NS);
                self.act(Action::Psched(Ask::Post));
            }
            Event::PschedUp { pid } => self.psched_up(pid),
            Event::PschedDown { text, absent, answered } => {
                let absent = absent || answered && self.setup.immediate;
                self.psched_down(now_ns, text, absent, answered);
            }
            Event::PschedRefused(text) => self.psched_refused(now_ns, text),
            Event::Psched(event) => self.event(now_ns, event),
            Event::Looked(looked) => self.looked(now_ns, looked),
            Event::Killed => {
                if let Some(withdrawal) = self.withdrawal
                    && self.step < Step::Attaching
                {
                    self.exit(by_signal(withdrawal.signal));
                }
            }
            Event::Files(Ok(())) if self.step == Step::Opening => self.launch(now_ns),
            Event::Files(Ok(())) => {}
            Event::Files(Err(text)) => self.fail(&text),
            Event::ApinitDown { text, connected } => self.apinit_down(now_ns, text, connected),
            Event::Apinit(message) => self.apinit_says(now_ns, message),
            Event::Nudged => self.nudged(),
            Event::Signal { signal, sender } => self.signal(now_ns, signal, sender),
            Event::Stdin(bytes) => {
                self.stdin_busy = false;
                let piece = self.stdin.read(bytes);
                self.send(ToApinit::Stdin(piece));
                self.read_stdin();
            }
            Event::StdinEnd => {
                self.stdin_busy = false;
                self.stdin_over = true;
                self.send(ToApinit::StdinEnd(self.stdin.length()));
            }
            Event::Trouble(text) => self.tell(text),
            Event::Written { source, end } => {
                self.quiet_since = now_ns;
                if let Some(taken) = self.received.written(source, end, self.apinit.up) {
                    self.act(Action::Send(ToApinit::OutputTaken(taken)));
                }
            }
            Event::OutputLost(loss) => self.output_lost(loss),
            Event::Time => {}
        }
        self.timers(now_ns);
        self.finish(now_ns);
        self.give_up_lost(now_ns);
        std::mem::take(&mut self.actions)
    }

    /// Whether the user was told that some of its output is missing, or may be.
    pub fn lacks_output(&self) -> bool {
        self.lacks_output
    }

    /// Its number, once it has one.
    pub fn apid(&self) -> Option<Apid> {
        self.apid
    }

    /// The node of its first PE, while it has a place.
    pub fn nid(&self) -> Option<crate::machine::Nid> {
        self.placement.as_ref()?.hosts.first()?.nids.first().copied()
    }

    /// The host of a node of its, by its certificate, while it has a place.
    pub fn host_of(&self, nid: crate::machine::Nid) -> Option<&str> {
        let hosts = &self.placement.as_ref()?.hosts;
        let host = hosts.iter().find(|host| host.nids.contains(&nid))?;
        Some(&host.host[..]).filter(|name| !name.is_empty())
    }

    /// The host of a node, as [`Session::host_of`], if it is another one than that of this process.
    fn other_host_of(&self, nid: crate::machine::Nid) -> Option<&str> {
        let here = &self.placement.as_ref()?.front_host;
        self.host_of(nid).filter(|host| host != here)
    }

    /// Where the apinits are reached that have it but the first, while it has a place.
    pub fn other_hosts(&self) -> Vec<HostAddress> {
        let Some(placement) = &self.placement else { return Vec::new() };
        let others = placement.hosts.iter().skip(1);
        others.map(|host| host.reached_from(&placement.front_host)).collect()
    }

    /// Whether some of its PEs have a place on another host than this one.
    pub fn is_elsewhere(&self) -> bool {
        self.placement.as_ref().is_some_and(|placement| {
            let other = |host: &HostPart| !host.reached_from(&placement.front_host).host.is_empty();
            placement.hosts.iter().any(other)
        })
    }

    /// When [`Event::Time`] is wanted next.
    pub fn deadline(&self) -> Option<u64> {
        if self.over {
            return None;
        }
        let quiet = self.ended.as_ref().filter(|_| self.received.is_written());
        [
            self.psched.retry_at,
            self.psched.say_at(),
            self.apinit.retry_at,
            self.apinit_say_at(),
            self.look_at,
            self.wait_say_at,
            self.give_up_at(),
            self.lost_at,
            self.withdrawal.map(|w| w.until),
            self.refused.as_ref().map(|r| r.until),
            self.kept.iter().filter_map(|k| k.until).min(),
            self.deaths.as_ref().map(|deaths| deaths.until),
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

    /// A line that begins with the name of this program.
    fn tell(&mut self, text: impl std::fmt::Display) {
        self.say(format!("{}: {text}", self.setup.program()));
    }

    /// Takes over that output of the application before this one was lost or could not be written: the exit status
    /// tells of that, too.
    pub fn keeps_failures_of(&mut self, before: &Front) {
        (self.incomplete, self.output_status) = (before.incomplete, before.output_status);
    }

    /// Tells of output that is missing or may be, so that the status is not 0.
    fn tell_of_loss(&mut self, text: impl std::fmt::Display) {
        self.lacks_output = true;
        self.tell(text);
    }

    fn exit(&mut self, status: u8) {
        self.tell_deaths();
        self.act(Action::Exit(status));
        self.over = true;
    }

    /// Leaves before there is an end to tell of.
    fn fail(&mut self, text: &str) {
        self.tell(text);
        self.exit(STATUS_FAILED);
    }

    /// The application's name in messages.
    fn named(&self) -> String {
        self.apid.map_or("the posting".to_owned(), |apid| format!("application {apid}"))
    }

    /// When a posting that psched has not taken is given up.
    fn give_up_at(&self) -> Option<u64> {
        Some(self.first_try_at?.saturating_add(self.setup.answer_within_ns()?))
    }

    fn is_launched(&self) -> bool {
        self.step >= Step::Launched
    }

    fn timers(&mut self, now_ns: u64) {
        if self.over {
            return;
        }
        if due(self.deaths.as_ref().map(|deaths| deaths.until), now_ns) {
            self.tell_deaths();
        }
        if due(self.psched.retry_at, now_ns) {
            self.psched.retry_at = None;
            self.act(Action::Psched(self.apid.map_or(Ask::Post, Ask::Watch)));
        }
        if due(self.apinit.retry_at, now_ns) {
            let resume = (self.is_launched() || self.resuming) && !self.launch_again;
            if resume { self.resume() } else { self.launch(now_ns) }
        }
        if due(self.look_at, now_ns) {
            self.look_at = None;
            if self.step == Step::Waiting {
                self.look();
            }
        }
        if due(self.psched.say_at(), now_ns) {
            self.psched.said = true;
            self.tell(self.psched_silence());
        }
        if due(self.apinit_say_at(), now_ns) {
            self.apinit.said = true;
            self.tell_apinit_silent(now_ns);
        }
        if due(self.give_up_at(), now_ns) {
            let time = format_duration(self.setup.answer_within.unwrap_or_default());
            return self.fail(&format!(
                "psched has not accepted the posting within {time} (--wait-for-psched)"
            ));
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
            self.tell(format!("{} was not launched: {}", self.named(), refused.text));
            self.exit(refused.status);
        }
    }

    /// The line about a psched that does not answer, or answers that it can't do what it was asked.
    fn psched_silence(&self) -> String {
        let Peer { text, answered, .. } = &self.psched;
        let what = match answered {
            // (The apinit of this host says that psched can't be reached.)
            true if text.starts_with("psched on ") => text.clone(),
            true => format!("psched has answered: {text}"),
            false => format!("psched does not answer ({text})"),
        };
        let named = self.named();
        let state = match self.apid {
            None if *answered => String::new(),
            None if self.psched_pids.is_empty() => "; nothing is posted yet".to_owned(),
            None => "; whether psched has the posting is not known".to_owned(),
            Some(_) if self.done => {
                format!("; {named} has ended, and psched has its exit status")
            }
            Some(_) if self.is_launched() && self.apinit.up => format!("; {named} runs on"),
            Some(_) if self.is_launched() => format!("; whether {named} runs on is not known"),
            Some(_) => format!("; {named} waits"),
        };
        let bound = match (self.apid, self.setup.patience) {
            (None, Some(time)) => format!(" for {} (--wait-for-psched)", format_duration(time)),
            _ => String::new(),
        };
        format!("{what}{state}; trying again{bound}")
    }

    /// A line about a silence of psched's, of an apinit's, or of a full machine.
    fn say_what_is_waited_for(&mut self) {
        let named = self.named();
        let line = match self.step {
            // These have lines of their own.
            _ if self.psched.down_since.is_some() || self.apinit.down_since.is_some() => return,
            Step::Posting => "psched has not accepted the posting yet; waiting".to_owned(),
            // Why is asked now: what stood in the way at the beginning may have gone.
            Step::Waiting if !self.say_why => {
                self.say_why = true;
                return self.look();
            }
            Step::Looking if !self.say_why => {
                self.say_why = true;
                return;
            }
            Step::Waiting | Step::Looking => {
                self.say_why = false;
                let why = self.waiting.as_ref().map(|w| format!(": {w}")).unwrap_or_default();
                let within = self.setup.within.map(|parent| {
                    format!(
                        "; this {} runs in application {parent}: if {parent} holds the processors and waits \
                         for {named}, neither goes on; start {named} outside of {parent}, give {parent} \
                         fewer processors, or run the program on processors of {parent} with --inside",
                        self.setup.program()
                    )
                });
                format!("{named} waits for a place{why}{}", within.unwrap_or_default())
            }
            Step::Attaching => {
                format!(
                    "{named} has a place, but its apinit has not accepted the launch yet; waiting"
                )
            }
            Step::Launched => {
                format!("{named} is launched, but its PEs are not all ready; waiting")
            }
            Step::Opening | Step::Refused | Step::Going => return,
        };
        self.tell(line);
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
        let output_may_come = ended.end.launched && self.step != Step::Refused && !self.done;
        let written = self.received.is_written();
        let given_up = now_ns >= self.quiet_since.saturating_add(DONE_PATIENCE_NS);
        if !written || output_may_come && !given_up {
            return;
        }
        let mut ended = ended.clone();
        self.tell_deaths();
        ended.told |= self.has_told(&ended);
        if ended.end.output_lost {
            self.tell_of_loss(format!(
                "the output of {} is not complete: what PEs wrote while this {}, or the host of PE 0, could \
                 not be reached was discarded",
                self.named(),
                self.setup.program()
            ));
        } else if self.given_up && ended.end.launched {
            self.tell_of_loss(format!(
                "the output of {} may not be complete: its apinit lost contact with this {} and keeps no \
                 more of it",
                self.named(),
                self.setup.program()
            ));
        } else if output_may_come {
            self.tell_of_loss(format!(
                "{} has ended, but its apinit has been silent for {} s: its output may not \
                 be complete",
                self.named(),
                DONE_PATIENCE_NS / SECOND_NS
            ));
        }
        let status = match (ended.status, self.output_status) {
            (0, Some(status)) => status,
            (0, None) if self.incomplete => STATUS_FAILED,
            (status, _) => status,
        };
        let cause = ended.end.first.as_ref().map(|first| &first.cause);
        if status == STATUS_STDOUT_CLOSED
            && self.output_status == Some(STATUS_STDOUT_CLOSED)
            && cause != Some(&Cause::StdoutClosed)
        {
            // It was noticed when the PEs had ended: nothing else says why the status is not theirs.
            self.tell(format!("standard output was closed: output of {} is lost", self.named()));
        }
        if self.setup.launch.report && ended.end.launched {
            let rows = self.report();
            self.act(Action::Report(rows));
        }
        self.act(Action::Close(ended));
        self.exit(status);
    }

    /// Nobody knows any more that it was launched: neither the apinit, whose host was switched off, nor psched,
    /// which died before it had that on record. It is not launched anew: it has run, and what it did is done.
    /// (Its end may be on its way still.)
    fn give_up_lost(&mut self, now_ns: u64) {
        if !self.unknown_there || !self.unlaunched || self.ended.is_some() || self.over {
            self.lost_at = None;
        } else if due(Some(*self.lost_at.get_or_insert(now_ns + SILENCE_NS)), now_ns) {
            let named = self.named();
            self.fail(&format!(
                "{named} is lost: its node and psched were both restarted after the launch, and neither has a \
                 record of it; see what its program has done before you start it again"
            ));
        }
    }

    /// Whether stderr has what decided the end already.
    fn has_told(&self, ended: &Ended) -> bool {
        match ended.end.first.as_ref().map(|d| &d.cause) {
            // This process has ended it, or was taken for dead, and has said why.
            Some(Cause::FrontGone) => {
                self.terminate.is_some() || self.given_up && ended.end.launched
            }
            // (Whichever host's PE decided: one line has told of this signal on all hosts.)
            Some(Cause::PeSignal { signal, .. }) if self.told_signals.contains(signal) => true,
            Some(cause) => self.told.contains(cause),
            None => false,
        }
    }
}

/// What a shell says of a process that died by this signal.
fn by_signal(signal: i32) -> u8 {
    128u8.saturating_add(u8::try_from(signal).unwrap_or(127))
}

#[cfg(test)]
mod tests;
