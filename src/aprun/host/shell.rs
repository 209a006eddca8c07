//! The event loop, and the world around aprun's [`Driver`]: connections, terminal, files.

use super::attach::Target;
use super::from_checkpoint::{Next, Recovery};
use super::hand::hand;
use super::inside::Home;
use super::note::{Note, Store};
use super::output_writers::OutputWriters;
use super::parallel::{self, Copies};
use super::program::Program;
use super::stdin::Stdin;
use super::{Failure, attach, images, program, psched, report, signals};
use crate::aprun::decide::after_loss;
use crate::aprun::decide::closing::{self, Detail, Form};
use crate::aprun::decide::options::Options;
use crate::aprun::decide::session::{
    Action, Ask, Ended, Event, Front, Looked, Placement, ReportRow, Setup,
};
use crate::aprun::drive::{Driver, Others, Outside};
use crate::apteam::Apid;
use crate::apteam::ending::{STATUS_FAILED, signal_text};
use crate::apteam::launch::Launch;
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::attach::{Output, ToApinit};
use crate::apteam::protocol::programs::ProgramOf;
use crate::console::stderr::columns;
use crate::machine::Nid;
use crate::node::checkpoint::dir::Dir;
use crate::os::dispositions::end_by;
use crate::os::nudge::{Came, came};
use crate::rpc::pb;
use nix::sys::signal::Signal;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;
use signal_hook_tokio::SignalsInfo;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tracing::field::Empty;

/// What may wait for the loop: more makes the tasks and threads wait.
const NOTES_MAX: usize = 256;
/// HUP, INT, QUIT, TERM: what ends this process while it does nothing but write its last lines.
const ENDING: [i32; 4] = [1, 2, 3, 15];
/// INT, QUIT: what a terminal shows when it sends them.
const ECHOED: [i32; 2] = [2, 3];

type Signals = SignalsInfo<WithRawSiginfo>;
type Inbox = mpsc::Receiver<Note>;

/// Stops a conversation. Notes that it has left in the queue have an old number.
#[derive(Default)]
struct Task(Option<AbortHandle>);

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl Task {
    /// It goes on in place of the one before.
    fn replace(&mut self, conversation: impl Future<Output = ()> + Send + 'static) {
        if let Some(task) = self.0.replace(tokio::spawn(conversation).abort_handle()) {
            task.abort();
        }
    }
}

/// What `cpr -r` has beside that which aprun has.
#[derive(Debug, Default)]
pub struct Restart {
    /// The checkpoint, for messages about it.
    pub name: Option<String>,
    /// Its folder, which nobody else may use until the application runs.
    pub held: Option<Arc<Dir>>,
    /// There are images in it: its apinits are given the folder before the launch.
    pub images: bool,
    /// stdin is at its end from the beginning.
    pub no_stdin: bool,
}

/// What the first application begins with.
pub struct Begins {
    /// What its course depends on.
    pub setup: Setup,
    /// What it executes.
    pub programs: Vec<Program>,
    /// What is posted.
    pub request: pb::PostRequest,
    /// The checkpoint that it is restarted from.
    pub restart: Restart,
    /// --inside.
    pub home: Option<Home>,
    /// --restart-from.
    pub recovery: Option<Recovery>,
}

struct Shell {
    restart: Restart,
    /// --restart-from: another application may take the place of this one.
    recovery: Option<Recovery>,
    /// How the application has ended, as long as it is not known whether another one takes its place.
    lost: Option<Box<Ended>>,
    /// Since when its PEs have run.
    going_since: Option<Instant>,
    /// A signal has come that was to end it.
    to_end: Option<i32>,
    /// INT has come.
    interrupted: bool,
    /// The terminal may show `^C` or `^\\` where this process writes next.
    echoed: bool,
    /// --inside: this process is its own psched and apinit.
    home: Option<Home>,
    program: &'static str,
    begun: Instant,
    socket: PathBuf,
    request: pb::PostRequest,
    launch: Launch,
    detail: Detail,
    closing: Form,
    /// A socket that is not there is waited for.
    waits: bool,
    notes: mpsc::Sender<Note>,
    psched: Task,
    /// The connection with psched, of the conversation of this number.
    channel: Option<(u32, Channel)>,
    store: Store,
    apinit: Task,
    /// Where the apinit of this conversation is.
    target: Option<(u32, Target)>,
    /// What brings it programs.
    hands: BTreeMap<u32, Task>,
    programs: Arc<[Program]>,
    /// What of them all hosts find elsewhere.
    copies: Arc<Mutex<Option<Copies>>>,
    says: Option<mpsc::UnboundedSender<ToApinit>>,
    lanes: OutputWriters,
    stdin: Stdin,
    span: tracing::Span,
    /// Whether the span has the field already: a field that is recorded again is shown twice.
    told_apid: bool,
    told_nid: bool,
}

/// Posts, launches, and stays until the end: that of the application which has taken the place of the first, if one
/// has. Gives the exit status.
pub async fn run(begins: Begins, options: &Options, socket: PathBuf) -> Result<u8, Failure> {
    let Begins { setup, programs, request, restart, home, recovery } = begins;
    let mut signals = signals::catch().map_err(|e| {
        Failure::new(STATUS_FAILED, format!("can't catch signals: {}", super::program::plain(&e)))
    })?;
    let (notes, mut inbox) = mpsc::channel(NOTES_MAX);
    let mut shell = Shell {
        begun: Instant::now(),
        socket,
        request,
        launch: setup.launch.clone(),
        detail: options.detail(),
        closing: options.closing,
        waits: setup.patience.is_some(),
        psched: Task::default(),
        channel: None,
        store: Store::default(),
        apinit: Task::default(),
        target: None,
        hands: BTreeMap::new(),
        programs: programs.into(),
        copies: Arc::default(),
        says: None,
        lanes: OutputWriters::new(options, recovery.is_some(), notes.clone()),
        stdin: match restart.no_stdin {
            true => Stdin::none(notes.clone()),
            false => Stdin::new(notes.clone()),
        },
        notes,
        restart,
        recovery,
        lost: None,
        going_since: None,
        to_end: None,
        interrupted: false,
        echoed: false,
        home,
        program: setup.program(),
        span: span(setup.uid),
        told_apid: false,
        told_nid: false,
    };
    let mut driver = Driver::new(setup);
    let status = loop {
        let status = shell.course(&mut driver, &mut signals, &mut inbox).await;
        let Some(ended) = shell.lost.take() else { break status };
        match shell.after_loss(ended, &driver, &mut signals).await {
            Some(setup) => driver = driver.next(setup),
            None => break status,
        }
    };
    drop(shell.copies.lock().unwrap_or_else(PoisonError::into_inner).take());
    // The last lines; whoever stops their reader may still end this process.
    let mut flushed = shell.lanes.flush();
    loop {
        tokio::select! {
            biased;
            // A shell leaves its loop only if a program in it has ended by INT, not with its status.
            _ = &mut flushed => match shell.interrupted && status == 128 + Signal::SIGINT as u8 {
                true => end_by(Signal::SIGINT),
                false => return Ok(status),
            },
            Some(info) = signals.next() => {
                let signal = came(&info).signal;
                if ENDING.contains(&signal) {
                    return Ok(128 + signal as u8);
                }
            }
            // So that the threads, which tell of what they have written, do not wait for the loop.
            Some(_) = inbox.recv() => {}
        }
    }
}

/// The application's, as every process of psched's has it.
fn span(uid: u32) -> tracing::Span {
    tracing::info_span!("application", uid, apid = Empty, nid = Empty)
}

/// For the log: no launch with its whole environment, no output.
fn cut(what: &impl std::fmt::Debug) -> String {
    const SHOWN: usize = 160;
    let text = format!("{what:?}");
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// A launch for other hosts. (A large program takes a while to read: what else there is to do goes on.) `kept`: what
/// goes with this process.
async fn for_others(
    first: ToApinit,
    programs: Arc<[Program]>,
    kept: Arc<Mutex<Option<Copies>>>,
    notes: &mpsc::Sender<Note>,
) -> ToApinit {
    let ToApinit::Launch { key, ticket, launch } = first else { return first };
    let as_it_was = launch.clone();
    let says = notes.clone();
    let make = move || {
        let mut launch = program::with_digests(*launch, &programs);
        if let Some(below) = parallel::folder() {
            match Copies::make(&below, &mut launch, &programs) {
                Ok(copies) => {
                    *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(copies);
                }
                Err(text) => {
                    let _ = says.blocking_send(Note::Event(Event::Trouble(text)));
                }
            }
        }
        Box::new(launch)
    };
    let made = tokio::task::spawn_blocking(make).await;
    ToApinit::Launch { key, ticket, launch: made.unwrap_or(as_it_was) }
}

impl Shell {
    /// The course of one application: its exit status.
    async fn course(
        &mut self,
        driver: &mut Driver,
        signals: &mut Signals,
        inbox: &mut Inbox,
    ) -> u8 {
        let mut over = driver.happens(self, Event::Start);
        loop {
            if let Some(status) = over {
                return status;
            }
            let deadline = driver.deadline_ns().map(|ns| self.begun + Duration::from_nanos(ns));
            let timer = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            over = tokio::select! {
                biased;
                Some(info) = signals.next() => {
                    let Came { signal, sender, nudge } = came(&info);
                    self.echoed |= sender.is_none() && ECHOED.contains(&signal);
                    self.interrupted |= signal == Signal::SIGINT as i32;
                    let event = match nudge {
                        true => Event::Nudged,
                        false => {
                            self.to_end = self.to_end.or(Some(signal).filter(|s| ENDING.contains(s)));
                            Event::Signal { signal, sender }
                        }
                    };
                    driver.happens(self, event)
                }
                Some(note) = inbox.recv() => self.noted(driver, note),
                () = timer => driver.happens(self, Event::Time),
            };
        }
    }

    /// An application has lost a node. What its next one begins with, or none: then the loss is told as any end is.
    async fn after_loss(
        &mut self,
        ended: Box<Ended>,
        driver: &Driver,
        signals: &mut Signals,
    ) -> Option<Setup> {
        let apid = ended.end.key.apid;
        let next = match self.next(apid, signals).await {
            Ok(next) => next,
            Err(why) => {
                self.tell_end(&ended);
                self.tell(format!("application {apid} is not restarted: {why}"));
                return None;
            }
        };
        let (nid, how) = after_loss::lost(&ended)?;
        let of = driver.host_of(nid).map(|host| format!(" of host {host}")).unwrap_or_default();
        let (at_ns, from) = next.made;
        let which = if from == apid { String::new() } else { format!(" of application {from}") };
        let dir = next.restart.name.clone().unwrap_or_default();
        self.tell(format!(
            "application {apid} was lost with NID {nid}{of}: {how}; it is restarted from its checkpoint \
             {dir}{which}, made {}",
            local(at_ns).strftime(STAMP)
        ));
        if let Some(recovery) = &mut self.recovery {
            recovery.uses(&next);
        }
        let Next { setup, programs, request, restart, .. } = next;
        drop(self.copies.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.lanes.next();
        self.stdin.next();
        (self.psched, self.apinit) = (Task::default(), Task::default());
        (self.channel, self.target, self.says) = (None, None, None);
        self.hands.clear();
        self.going_since = None;
        (self.request, self.restart, self.programs) = (request, restart, programs.into());
        self.launch = setup.launch.clone();
        (self.told_apid, self.told_nid, self.span) = (false, false, span(setup.uid));
        Some(setup)
    }

    /// What takes the place of the application. Signals are heard meanwhile.
    async fn next(&mut self, apid: Apid, signals: &mut Signals) -> Result<Next, String> {
        let gone = |signal: i32| format!("this aprun was sent {}", signal_text(signal));
        if let Some(signal) = self.to_end {
            return Err(gone(signal));
        }
        let Some(recovery) = &mut self.recovery else { return Err(String::new()) };
        recovery.ran(apid);
        let (recovery, store) = (recovery.clone(), self.store.id.clone());
        let ran = self.going_since.map(|since| since.elapsed()).unwrap_or_default();
        let shown = recovery.shown();
        let mut looks = tokio::task::spawn_blocking(move || recovery.next(&store, ran));
        loop {
            tokio::select! {
                biased;
                Some(info) = signals.next() => {
                    let Came { signal, nudge, .. } = came(&info);
                    if !nudge && ENDING.contains(&signal) {
                        self.interrupted |= signal == Signal::SIGINT as i32;
                        return Err(gone(signal));
                    }
                }
                found = &mut looks => {
                    let found = found.unwrap_or_else(|error| Err(error.to_string()));
                    return found.map_err(|why| format!("{shown}: {why}"));
                }
            }
        }
    }

    /// A line that begins with the name of this program.
    fn tell(&mut self, text: String) {
        self.lanes.say(&format!("{}: {text}", self.program), &mut Vec::new());
    }

    /// Tells on stderr how the application ended.
    fn tell_end(&mut self, ended: &Ended) -> Vec<Event> {
        let mut at_once = Vec::new();
        let stacks = self.launch.stacks && self.detail != Detail::Little;
        let stacks = stacks.then(|| closing::stacks_line(ended)).flatten();
        let lines = closing::lines(ended, &stamp(ended), self.detail, self.closing);
        for line in stacks.into_iter().chain(lines) {
            let line = line.words(self.program, self.home.is_some());
            self.lanes.say(&line, &mut at_once);
        }
        at_once
    }

    fn noted(&mut self, driver: &mut Driver, note: Note) -> Option<u8> {
        match note {
            Note::Event(event) => match self.stdin.came(event) {
                Some(event) => driver.happens(self, event),
                None => None,
            },
            Note::Channel { link, channel } => {
                if self.channel.as_ref().is_none_or(|(known, _)| *known < link) {
                    self.channel = Some((link, channel));
                }
                None
            }
            Note::Store(store) => {
                self.store = store;
                None
            }
            Note::Psched { link, event } => {
                let event = match (event, &self.restart.name) {
                    (Event::PschedRefused(text), Some(name)) => {
                        Event::PschedRefused(format!("{name}: {text}"))
                    }
                    (event, _) => event,
                };
                driver.psched(self, link, event)
            }
            Note::Apinit { link, event } => driver.apinit(self, link, event),
        }
    }

    /// The connection of this conversation.
    fn channel(&self, link: u32) -> Option<Channel> {
        let (of, channel) = self.channel.as_ref()?;
        (*of == link).then(|| channel.clone())
    }
}

impl Outside for Shell {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn hears(&mut self, event: &Event) {
        tracing::trace!(parent: &self.span, "{}", cut(event));
    }

    fn decides(&mut self, front: &Front, actions: &[Action]) {
        if let Some(apid) = front.apid().filter(|_| !self.told_apid) {
            self.span.record("apid", apid.0);
            self.told_apid = true;
        }
        if let Some(nid) = front.nid().filter(|_| !self.told_nid) {
            self.span.record("nid", nid.0);
            self.told_nid = true;
        }
        for action in actions {
            tracing::debug!(parent: &self.span, "{}", cut(action));
        }
    }

    fn converse(&mut self, link: u32, ask: Ask, again: bool) -> Vec<Event> {
        if let Some(home) = &self.home {
            return home.events().into();
        }
        self.request.again = again;
        let (socket, request) = (self.socket.clone(), self.request.clone());
        let store = self.store.clone();
        let (waits, notes) = (self.waits, self.notes.clone());
        self.psched.replace(psched::events(link, socket, waits, ask, request, store, notes));
        Vec::new()
    }

    fn look(&mut self, link: u32, apid: Apid) -> Vec<Event> {
        if let Some(home) = &self.home {
            return vec![Event::Looked(Looked::Placement(Box::new(home.placement())))];
        }
        match self.channel(link) {
            Some(channel) => {
                tokio::spawn(psched::look(link, channel, apid, self.notes.clone()));
                Vec::new()
            }
            None => vec![Event::Looked(Looked::Failed("not connected with psched".to_owned()))],
        }
    }

    fn kill(&mut self, link: u32, apid: Apid, signal: i32) -> Vec<Event> {
        match self.channel(link) {
            Some(channel) => {
                tokio::spawn(psched::kill(link, channel, apid, signal, self.notes.clone()));
                Vec::new()
            }
            None => vec![Event::Killed],
        }
    }

    fn deposit(&mut self, apid: Apid) {
        if let Some((_, channel)) = self.channel.clone() {
            tokio::spawn(psched::deposit(channel, apid, self.launch.clone()));
        }
    }

    fn make_files(&mut self, placement: &Placement) -> Result<(), String> {
        self.lanes.make_files(placement.key.apid, &placement.places)
    }

    fn attach(&mut self, link: u32, at: HostAddress, mut first: Box<ToApinit>, others: Others) {
        if let ToApinit::Launch { launch, .. } = &mut *first {
            // On this host a program that has changed since it was posted is not executed, also no copy of what it was.
            launch.copies &= others.elsewhere;
        }
        let (says, hears) = mpsc::unbounded_channel();
        if let Some(home) = self.home.clone() {
            self.says = Some(says);
            return self.apinit.replace(home.converse(link, *first, hears, self.notes.clone()));
        }
        let several = match &*first {
            ToApinit::Launch { launch, .. } => launch.parts() > 1,
            _ => false,
        };
        let passed = match &*first {
            ToApinit::Launch { key, ticket, .. } if self.restart.images => Some((*key, *ticket)),
            _ => None,
        };
        self.says = Some(says.clone());
        let notes = self.notes.clone();
        let target = attach::Target::new(at, &self.socket);
        self.target = Some((link, target.clone()));
        self.hands.clear();
        let (folder, programs) = (self.restart.held.clone(), Arc::clone(&self.programs));
        let kept = Arc::clone(&self.copies);
        let Others { hosts, elsewhere } = others;
        let others = hosts.into_iter().map(|at| attach::Target::new(at, &self.socket));
        let others: Vec<attach::Target> = others.collect();
        self.apinit.replace(async move {
            let first = match elsewhere {
                true => for_others(*first, programs, kept, &notes).await,
                false => *first,
            };
            let _ = says.send(first);
            drop(says);
            // Its apinits have the images before the first has the launch, which goes on to the others.
            let mut doors = Vec::new();
            if let Some((key, ticket)) = passed {
                for target in std::iter::once(&target).chain(&others) {
                    match images::pass(target, key, ticket, folder.clone()).await {
                        Ok(door) => doors.push(door),
                        Err(event) => {
                            let _ = notes.send(Note::Apinit { link, event }).await;
                            return;
                        }
                    }
                }
            }
            // Who holds it until the application runs is the one above.
            drop(folder);
            attach::converse(link, target, several, hears, notes, doors).await;
        });
    }

    fn send(&mut self, message: ToApinit) {
        if let Some(says) = &self.says {
            let _ = says.send(message);
        }
    }

    fn hand(&mut self, link: u32, of: ProgramOf) {
        let Some((_, target)) = self.target.clone().filter(|(at, _)| *at == link) else { return };
        let hands = self.hands.entry(of.part).or_default();
        hands.replace(hand(target, of, Arc::clone(&self.programs)));
    }

    fn let_go(&mut self) {
        self.going_since.get_or_insert_with(Instant::now);
        self.restart.held = None;
    }

    fn read_stdin(&mut self, most: usize) -> Vec<Event> {
        let mut at_once = Vec::new();
        self.stdin.read(most, &mut at_once);
        at_once
    }

    fn write(&mut self, output: Output) -> Vec<Event> {
        let mut at_once = Vec::new();
        self.lanes.write(output, &mut at_once);
        at_once
    }

    fn say(&mut self, line: String) -> Vec<Event> {
        let mut at_once = Vec::new();
        // (Where stderr is no terminal, no ^C stands there.)
        if std::mem::take(&mut self.echoed) && columns() > 0 {
            self.lanes.say("", &mut at_once);
        }
        self.lanes.say(&line, &mut at_once);
        at_once
    }

    fn say_of_node(&mut self, nid: Nid, at_ns: u64, text: &str) -> Vec<Event> {
        let stamp = local(at_ns).strftime(STAMP).to_string();
        self.say(closing::of_node(nid, &stamp, text))
    }

    fn warn(&mut self, text: String) {
        tracing::warn!("{text}");
    }

    fn report(&mut self, rows: Vec<ReportRow>) -> Vec<Event> {
        report::table(&rows).lines().flat_map(|line| self.say(line.to_owned())).collect()
    }

    fn close(&mut self, ended: Box<Ended>) -> Vec<Event> {
        if self.recovery.is_some() && after_loss::lost(&ended).is_some() {
            self.lost = Some(ended);
            return Vec::new();
        }
        self.tell_end(&ended)
    }
}

/// A time since the epoch, as it is here.
fn local(at_ns: u64) -> jiff::Zoned {
    let at = jiff::Timestamp::from_nanosecond(at_ns.into());
    at.unwrap_or_else(|_| jiff::Timestamp::now()).to_zoned(jiff::tz::TimeZone::system())
}

/// How a time is written.
const STAMP: &str = "%Y-%m-%d %H:%M:%S";

/// The local time of what decided the end; of now, where that is not told by this host's clock.
fn stamp(ended: &Ended) -> String {
    // Finding out the time zone takes longer than all else here.
    let Some(first) = &ended.end.first else { return String::new() };
    let now = jiff::Zoned::now();
    let monotonic = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .map(|t| Duration::from(t).as_nanos() as u64)
        .unwrap_or(0);
    let ago = Duration::from_nanos(monotonic.saturating_sub(first.at_ns));
    // Another host's clock may have begun at any time.
    const PLAUSIBLE: Duration = Duration::from_secs(24 * 3600);
    let then = if ago < PLAUSIBLE { now.checked_sub(ago).unwrap_or(now) } else { now };
    then.strftime(STAMP).to_string()
}
