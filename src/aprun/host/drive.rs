//! The loop: what happens goes to the pure [`Front`], and what it wants is done.

use super::inside::Home;
use super::lanes::Lanes;
use super::stdin::Stdin;
use super::{Failure, attach, images, psched, report, signals};
use crate::aprun::decide::closing;
use crate::aprun::decide::course::{Action, Ended, Front, Happening, Looked, Setup};
use crate::aprun::decide::options::Options;
use crate::apteam::ending::STATUS_FAILED;
use crate::apteam::launch::Launch;
use crate::apteam::talk::attach::{FromApinit, ToApinit};
use crate::node::checkpoint::dir::Dir;
use crate::os::nudge::{Came, came};
use crate::rpc::pb;
use std::path::PathBuf;
use std::sync::Arc;
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

/// What the tasks and threads tell the loop.
#[derive(Debug)]
pub enum Note {
    /// Of threads.
    Happening(Happening),
    /// Connected with psched: for looks and kills.
    Channel {
        /// Of this connection.
        link: u32,
        /// The channel.
        channel: Channel,
    },
    /// psched has the posting on record, there.
    Store(psched::Store),
    /// From psched.
    Psched {
        /// On this connection.
        link: u32,
        /// What.
        happening: Happening,
    },
    /// From the apinit.
    Apinit {
        /// On this connection.
        link: u32,
        /// What.
        happening: Happening,
    },
}

/// A conversation: its number, and how to stop it. Those of older numbers are not heard.
#[derive(Default)]
struct Link {
    number: u32,
    task: Option<AbortHandle>,
}

impl Link {
    /// A new one in place of the old one.
    fn next(&mut self) -> u32 {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        self.number += 1;
        self.number
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

struct Shell {
    restart: Restart,
    /// --inside: this process is its own psched and apinit.
    home: Option<Home>,
    program: &'static str,
    begun: Instant,
    socket: PathBuf,
    request: pb::PostRequest,
    launch: Launch,
    quiet: bool,
    /// A socket that is not there is waited for.
    waits: bool,
    notes: mpsc::Sender<Note>,
    psched: Link,
    channel: Option<Channel>,
    store: psched::Store,
    apinit: Link,
    says: Option<mpsc::UnboundedSender<ToApinit>>,
    lanes: Lanes,
    stdin: Stdin,
    /// The sockets of the apinits that have it, but the first.
    others: Vec<PathBuf>,
    /// What has happened while something was done.
    pending: Vec<Happening>,
}

/// Posts, launches, and stays until the end. Gives the exit status.
pub async fn run(
    setup: Setup,
    options: &Options,
    socket: PathBuf,
    request: pb::PostRequest,
    restart: Restart,
    home: Option<Home>,
) -> Result<u8, Failure> {
    let mut signals = signals::catch().map_err(|e| {
        Failure::new(
            STATUS_FAILED,
            format!("signals can't be caught: {}", super::program::plain(&e)),
        )
    })?;
    let (notes, mut inbox) = mpsc::channel(NOTES_MAX);
    let mut shell = Shell {
        begun: Instant::now(),
        socket,
        request,
        launch: setup.launch.clone(),
        quiet: options.quiet,
        waits: setup.patience.is_some(),
        psched: Link::default(),
        channel: None,
        store: psched::Store::default(),
        apinit: Link::default(),
        says: None,
        lanes: Lanes::new(options, notes.clone()),
        stdin: match restart.no_stdin {
            true => Stdin::none(notes.clone()),
            false => Stdin::new(notes.clone()),
        },
        notes,
        restart,
        home,
        others: Vec::new(),
        program: setup.program(),
        pending: vec![Happening::Start],
    };
    // The application's, as every process of psched's has it.
    let span = tracing::info_span!("application", uid = setup.uid, apid = Empty, nid = Empty);
    // A field that is recorded anew would be shown twice.
    let (mut told_apid, mut told_nid) = (false, false);
    let mut front = Front::new(setup);
    let status = 'loop_: loop {
        // What is done at once may make more happen at once.
        while !shell.pending.is_empty() {
            for happening in std::mem::take(&mut shell.pending) {
                tracing::trace!(parent: &span, "{}", cut(&happening));
                let actions = front.apply(shell.now_ns(), happening);
                if let Some(apid) = front.apid().filter(|_| !told_apid) {
                    span.record("apid", apid.0);
                    told_apid = true;
                }
                if let Some(nid) = front.nid().filter(|_| !told_nid) {
                    span.record("nid", nid.0);
                    told_nid = true;
                }
                if shell.restart.images {
                    shell.others = front.other_sockets().map(PathBuf::from).collect();
                }
                for action in actions {
                    tracing::debug!(parent: &span, "{}", cut(&action));
                    if let Some(status) = shell.act(action) {
                        break 'loop_ status;
                    }
                }
            }
        }
        let deadline = front.deadline().map(|ns| shell.begun + Duration::from_nanos(ns));
        let timer = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(info) = signals.next() => {
                let Came { signal, sender, nudge } = came(&info);
                shell.pending.push(match nudge {
                    true => Happening::Nudged,
                    false => Happening::Signal { signal, sender },
                });
            }
            Some(note) = inbox.recv() => shell.noted(note),
            () = timer => shell.pending.push(Happening::Time),
        }
    };
    // The last lines; whoever stops their reader may still end this process.
    let mut flushed = shell.lanes.flush();
    loop {
        tokio::select! {
            biased;
            _ = &mut flushed => return Ok(status),
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

/// For the log: no launch with its whole environment, no output.
fn cut(what: &impl std::fmt::Debug) -> String {
    const SHOWN: usize = 160;
    let text = format!("{what:?}");
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

impl Shell {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn noted(&mut self, note: Note) {
        match note {
            Note::Happening(happening) => self.pending.push(happening),
            Note::Channel { link, channel } if link == self.psched.number => {
                self.channel = Some(channel);
            }
            Note::Store(store) => self.store = store,
            Note::Psched { link, happening } if link == self.psched.number => {
                self.pending.push(match (happening, &self.restart.name) {
                    (Happening::PschedRefused(text), Some(name)) => {
                        Happening::PschedRefused(format!("{name}: {text}"))
                    }
                    (happening, _) => happening,
                });
            }
            Note::Apinit { link, happening } if link == self.apinit.number => {
                if happening == Happening::Apinit(FromApinit::Going) {
                    self.restart.held = None;
                }
                self.pending.push(happening);
            }
            // Of a connection that has been given up.
            Note::Channel { .. } | Note::Psched { .. } | Note::Apinit { .. } => {}
        }
    }

    fn act(&mut self, action: Action) -> Option<u8> {
        match action {
            Action::Psched(_) if let Some(home) = &self.home => self.pending.extend(home.events()),
            Action::Psched(ask) => {
                let link = self.psched.next();
                self.channel = None;
                let (socket, request) = (self.socket.clone(), self.request.clone());
                let store = self.store.clone();
                let (waits, notes) = (self.waits, self.notes.clone());
                let events = psched::events(link, socket, waits, ask, request, store, notes);
                self.psched.task = Some(tokio::spawn(events).abort_handle());
                // Until it is known that it has come.
                self.request.again = true;
            }
            Action::Look(_) if let Some(home) = &self.home => {
                let placement = Looked::Placement(Box::new(home.placement()));
                self.pending.push(Happening::Looked(placement));
            }
            Action::Look(apid) => match self.channel.clone() {
                Some(channel) => {
                    let notes = self.notes.clone();
                    tokio::spawn(psched::look(self.psched.number, channel, apid, notes));
                }
                None => {
                    let failed = Looked::Failed("not connected with psched".to_owned());
                    self.pending.push(Happening::Looked(failed));
                }
            },
            Action::Kill { apid, signal } => match self.channel.clone() {
                Some(channel) => {
                    let notes = self.notes.clone();
                    tokio::spawn(psched::kill(self.psched.number, channel, apid, signal, notes));
                }
                None => self.pending.push(Happening::Killed),
            },
            Action::Deposit(apid) => {
                if let Some(channel) = self.channel.clone() {
                    tokio::spawn(psched::deposit(channel, apid, self.launch.clone()));
                }
            }
            Action::OpenFiles(placement) => {
                let made = self.lanes.make_files(placement.key.apid, &placement.places);
                self.pending.push(Happening::Files(made));
            }
            Action::Attach { first, .. } if let Some(home) = self.home.clone() => {
                let link = self.apinit.next();
                let (says, hears) = mpsc::unbounded_channel();
                self.says = Some(says);
                let talk = home.converse(link, *first, hears, self.notes.clone());
                self.apinit.task = Some(tokio::spawn(talk).abort_handle());
            }
            Action::Attach { socket, first } => {
                let link = self.apinit.next();
                let several = match &*first {
                    ToApinit::Launch { launch, .. } => launch.parts() > 1,
                    _ => false,
                };
                let passed = match &*first {
                    ToApinit::Launch { key, ticket, .. } if self.restart.images => {
                        Some((*key, *ticket))
                    }
                    _ => None,
                };
                let (says, hears) = mpsc::unbounded_channel();
                let _ = says.send(*first);
                self.says = Some(says);
                let (notes, socket) = (self.notes.clone(), PathBuf::from(socket));
                let folder = self.restart.held.clone();
                let others = self.others.clone();
                let talk = async move {
                    // Its apinits have the images before the first has the launch, which goes on to the others.
                    let mut doors = Vec::new();
                    if let Some((key, ticket)) = passed {
                        for socket in std::iter::once(&socket).chain(&others) {
                            match images::pass(socket, key, ticket, folder.clone()).await {
                                Ok(door) => doors.push(door),
                                Err(happening) => {
                                    let _ = notes.send(Note::Apinit { link, happening }).await;
                                    return;
                                }
                            }
                        }
                    }
                    // Who holds it until the application runs is the one above.
                    drop(folder);
                    attach::converse(link, socket, several, hears, notes, doors).await;
                };
                self.apinit.task = Some(tokio::spawn(talk).abort_handle());
            }
            Action::Send(message) => {
                if let Some(says) = &self.says {
                    // A conversation that has broken tells so itself.
                    let _ = says.send(message);
                }
            }
            Action::ReadStdin(most) => self.stdin.read(most, &mut self.pending),
            Action::Write(output) => self.lanes.write(output, &mut self.pending),
            Action::Say(line) => self.lanes.say(line, &mut self.pending),
            Action::Warn(text) => tracing::warn!("{text}"),
            Action::Report(rows) => {
                for line in report::table(&rows).lines() {
                    self.lanes.say(line.to_owned(), &mut self.pending);
                }
            }
            Action::Close(ended) => {
                for line in closing::lines(&ended, &stamp(&ended), self.quiet) {
                    let line = match line.strip_prefix("aprun: ") {
                        Some(text) => format!("{}: {text}", self.program),
                        None => line,
                    };
                    // The application itself tells of its end in the same words.
                    let line = match line.strip_prefix("Application ") {
                        Some(rest) if self.home.is_some() => format!("Inside application {rest}"),
                        _ => line,
                    };
                    self.lanes.say(line, &mut self.pending);
                }
            }
            Action::Exit(status) => return Some(status),
        }
        None
    }
}

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
    then.strftime("%Y-%m-%d %H:%M:%S").to_string()
}
