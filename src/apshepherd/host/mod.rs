//! apshepherd for real: one thread, one loop, and the driver around what decides.
//!
//! ```text
//!   apinit ==seqpacket== +-----------+ --stdin--> PE 0
//!   lifeline ----------> |           | <-stdout/stderr-- each PE
//!   SIGCHLD, SIGTERM --> | this loop | <====PMI====> each PE
//!   time --------------> |           | --fork, ptrace, kill--> each PE
//!                        +-----------+
//!                         |         ^
//!                events         actions
//!                         v         |
//!                        +-----------+
//!                        |  Driver   |
//!                        +-----------+
//! ```
//!
//! Readiness comes from epoll, level-triggered. The PEs' outputs have an epoll of their own within
//! the main one, so that all of them are switched off, when the window is full, by taking out one.
//!
//! The process is undumpable, so that its PEs, which have the same user, can't trace it; a subreaper,
//! so that nothing that they start gets away; and apinit (or root) alone may talk to it. An apinit of
//! root's starts it as root, and it becomes its owner's before it does anything else: at no instant is
//! it the owner's and dumpable.

pub mod appmix;
mod attaching;
mod debuggers;
mod descend;
mod diagnostics;
mod limits;
mod link;
mod loaded;
mod mix;
mod options;
mod outside;
mod packets;
mod pes;
mod pmi_port;
mod processes;
mod program;
mod spawned;
mod streams;
mod tracers;

use crate::apshepherd::decide::{Event, Left, NAMED_MAX};
use crate::apshepherd::drive::Driver;
use crate::apteam::ending::PeEnd;
use crate::apteam::launch::HostLaunch;
use crate::machine::Nid;
use crate::node::frames::PACKET_MAX;
use crate::os::fork::{Change, Child, Waited, high, session_of_ended, wait_any};
use crate::os::host::monotonic_ns;
use crate::os::inherit;
use crate::os::placing::Placing;
use crate::os::reset_inherited::become_user;
use crate::rpc::pb;
use bytes::{Buf, Bytes};
use debuggers::Debuggers;
use diagnostics::Diagnostics;
use limits::Limits;
use link::{Link, LinkError};
use mix::Mix;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::ptrace;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, killpg, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Uid;
use options::Options;
use pes::{Got, Pes, read_some, write_some};
use pmi_port::PmiPort;
use spawned::Spawned;
use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

/// Bytes read from a PE's output at once.
const READ: usize = 64 * 1024;
/// Frames, and reads of a PE's PMI connection, before others have their turn.
const TURNS: usize = 16;
/// Reads of a PE's PMI connection after its end: a child of its that holds the connection must not
/// keep us here.
const LAST_READS: usize = 64;
/// Events taken from the kernel at once.
const EVENTS: usize = 64;
/// How often it is looked whether PEs are traced that are to be.
const TRACERS_MS: u64 = 2;
/// How often an apinit that can't connect is tried again, and after how long: ten seconds in all, in which what is
/// missing (descriptors, memory) may come back.
const UNREACHABLE_MAX: u32 = 100;
const UNREACHABLE_WAIT: Duration = Duration::from_millis(100);

/// What an epoll event is about: kind in the upper half, PE in the lower.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Listen,
    Link,
    Signals,
    Lifeline,
    Outputs,
    Stdin,
    /// Forks that were refused in a node's group.
    Processes(usize),
    Pmi(usize),
    Stdout(usize),
    Stderr(usize),
    /// What a debugger writes.
    Debugger(usize),
    /// What appmix says.
    Mix,
    /// The port of PMI-1, and who has come there.
    PmiPort,
    PmiCaller(usize),
}

impl Token {
    fn number(self) -> u64 {
        let (kind, index) = match self {
            Token::Listen => (0, 0),
            Token::Link => (1, 0),
            Token::Signals => (2, 0),
            Token::Lifeline => (3, 0),
            Token::Outputs => (4, 0),
            Token::Stdin => (5, 0),
            Token::Pmi(i) => (6, i),
            Token::Stdout(i) => (7, i),
            Token::Stderr(i) => (8, i),
            Token::Processes(i) => (9, i),
            Token::Debugger(i) => (10, i),
            Token::Mix => (11, 0),
            Token::PmiPort => (12, 0),
            Token::PmiCaller(i) => (13, i),
        };
        kind << 32 | index as u64
    }

    fn parse(number: u64) -> Option<Token> {
        let index = (number & 0xffff_ffff) as usize;
        Some(match number >> 32 {
            0 => Token::Listen,
            1 => Token::Link,
            2 => Token::Signals,
            3 => Token::Lifeline,
            4 => Token::Outputs,
            5 => Token::Stdin,
            6 => Token::Pmi(index),
            7 => Token::Stdout(index),
            8 => Token::Stderr(index),
            9 => Token::Processes(index),
            10 => Token::Debugger(index),
            11 => Token::Mix,
            12 => Token::PmiPort,
            13 => Token::PmiCaller(index),
            _ => return None,
        })
    }
}

/// PE 0's stdin.
#[derive(Debug, Default)]
struct Stdin {
    pipe: Option<OwnedFd>,
    waiting: VecDeque<Bytes>,
    /// To be closed once that is written.
    closing: bool,
    /// epoll watches it, because it is full.
    watched: bool,
}

struct Shell {
    options: Options,
    diagnostics: Diagnostics,
    /// None: it is just being called.
    driver: Option<Box<Driver>>,
    epoll: Epoll,
    /// The PEs' outputs.
    outputs: Epoll,
    reading: bool,
    listen: OwnedFd,
    lifeline: Option<OwnedFd>,
    signals: SignalFd,
    groups: Vec<(Nid, OwnedFd)>,
    /// Its right to put PEs there, until it has.
    placing: Option<Placing>,
    limits: Limits,
    link: Option<Link>,
    link_waits: bool,
    /// How often in a row an apinit that wants to connect could not.
    unreachable: u32,
    launch: Option<Box<HostLaunch>>,
    /// One of which programs are waited for.
    launch_waits: Option<Box<HostLaunch>>,
    pes: Pes,
    /// PEs that stand and are not traced yet, each since when.
    tracing: Vec<(usize, u64)>,
    debuggers: Debuggers,
    spawned: Spawned,
    mix: Mix,
    pmi_port: Option<PmiPort>,
    /// (Without a child.) The outputs of PEs before this one are closed.
    drained: usize,
    stdin: Stdin,
    /// What the driver is to hear next.
    happened: Vec<Event>,
    /// To be done when no action is under way.
    reap_due: bool,
    timer: Option<u64>,
    /// The limit of open files that this process was started with.
    soft_files: u64,
    buffer: Vec<u8>,
    over: bool,
}

/// apshepherd, whole: the process's exit code.
pub fn main(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let arguments: Vec<String> = arguments.into_iter().collect();
    if arguments.first().is_some_and(|first| first == "--help") {
        // With stdout closed nobody reads it.
        let _ = writeln!(std::io::stdout(), "{}", options::USAGE);
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(arguments) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("apshepherd: {problem}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    // Before anything else: until then it is root's.
    // (It keeps the right to put its PEs into groups that are root's.)
    let placing = !options.groups.is_empty();
    let placing = match options.uid.map(|uid| become_user(uid, placing)).transpose() {
        Ok(placing) => placing.flatten(),
        Err(error) => {
            eprintln!("apshepherd: can't switch to the user of the application: {error}");
            return ExitCode::FAILURE;
        }
    };
    let diagnostics = Diagnostics::begin(options.key);
    match Shell::new(options, diagnostics, placing).and_then(Shell::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            diagnostics.say(e);
            ExitCode::FAILURE
        }
    }
}

impl Shell {
    fn new(
        options: Options,
        diagnostics: Diagnostics,
        placing: Option<Placing>,
    ) -> std::io::Result<Shell> {
        nix::sys::prctl::set_dumpable(false)?;
        nix::sys::prctl::set_child_subreaper(true)?;
        // No file system is kept busy by a process that needs none.
        std::env::set_current_dir("/")?;
        // Under high numbers: PEs are given low ones.
        let inherited = |fd| inherit::take(fd).and_then(high);
        let listen = inherited(options.listen)?;
        let lifeline = options.lifeline.map(inherited).transpose()?;
        let groups = options.groups.iter().map(|(nid, fd)| Ok((*nid, inherited(*fd)?)));
        let groups = groups.collect::<std::io::Result<_>>()?;
        // A terminal's signals are not for the shepherd, and TERM ends the application with it.
        let mut own = SigSet::empty();
        let signals = [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
        for signal in signals.into_iter().chain([Signal::SIGQUIT]) {
            own.add(signal);
        }
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&own), None)?;
        let signals = SignalFd::with_flags(&own, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let (soft_files, hard_files) = getrlimit(Resource::RLIMIT_NOFILE)?;
        // A PE takes four descriptors.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard_files, hard_files);
        let flags = EpollCreateFlags::EPOLL_CLOEXEC;
        let (epoll, outputs) = (Epoll::new(flags)?, Epoll::new(flags)?);
        watch(&epoll, listen.as_fd(), Token::Listen, EpollFlags::EPOLLIN)?;
        watch(&epoll, signals.as_fd(), Token::Signals, EpollFlags::EPOLLIN)?;
        watch(&epoll, outputs.0.as_fd(), Token::Outputs, EpollFlags::EPOLLIN)?;
        if let Some(lifeline) = &lifeline {
            watch(&epoll, lifeline.as_fd(), Token::Lifeline, EpollFlags::EPOLLIN)?;
        }
        let now = monotonic_ns();
        let driver = Some(Box::new(Driver::new(now, options.key)));
        let mut shell = Shell {
            driver,
            epoll,
            outputs,
            reading: true,
            listen,
            lifeline,
            signals,
            groups,
            placing,
            limits: Limits::default(),
            link: None,
            link_waits: false,
            unreachable: 0,
            launch: None,
            launch_waits: None,
            pes: Pes::default(),
            tracing: Vec::new(),
            debuggers: Debuggers::default(),
            spawned: Spawned::default(),
            mix: Mix::default(),
            pmi_port: None,
            drained: 0,
            stdin: Stdin::default(),
            happened: Vec::new(),
            reap_due: false,
            timer: None,
            soft_files,
            buffer: vec![0; PACKET_MAX + 1],
            over: false,
            options,
            diagnostics,
        };
        shell.drive(|driver, shell| driver.begin(shell));
        Ok(shell)
    }

    fn run(mut self) -> std::io::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS];
        while !self.over {
            let count = match self.epoll.wait(&mut events, self.timeout()) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(e) => return Err(e.into()),
            };
            // (It rings once: where nothing follows it is not set again.)
            if self.timer.take_if(|at| *at <= monotonic_ns()).is_some() {
                self.happens(Event::Tick);
            }
            for event in &events[..count] {
                if let Some(token) = Token::parse(event.data()) {
                    self.ready(token, event.events());
                }
            }
            while std::mem::take(&mut self.reap_due) {
                self.reap();
            }
            self.look_at_tracers();
            self.look_after_debuggers();
            self.look_after_mix();
            self.look_after_pmi_port();
        }
        // The last word, if the socket takes it.
        if let Some(link) = &mut self.link {
            let _ = link.flush();
        }
        Ok(())
    }

    fn timeout(&self) -> EpollTimeout {
        let looks_ms = (!self.tracing.is_empty()).then_some(TRACERS_MS);
        let after_ms = debuggers::AFTER_STEP.as_millis() as u64;
        let looks_ms = looks_ms.or(self.debuggers.look().then_some(after_ms));
        let left_ms = |at: u64| at.saturating_sub(monotonic_ns()).div_ceil(1_000_000);
        let port = self.pmi_port.as_ref().and_then(PmiPort::due_ns);
        let at = self.timer.into_iter().chain(self.mix.due()).chain(port).min();
        let Some(left_ms) = at.map(left_ms).into_iter().chain(looks_ms).min() else {
            return EpollTimeout::NONE;
        };
        EpollTimeout::try_from(left_ms.min(60_000)).unwrap_or(EpollTimeout::ZERO)
    }

    fn ready(&mut self, token: Token, flags: EpollFlags) {
        match token {
            Token::Listen => self.accept(),
            Token::Link => self.link_ready(),
            Token::Signals => self.signalled(),
            Token::Lifeline => {
                if let Some(lifeline) = self.lifeline.take() {
                    let _ = self.epoll.delete(lifeline);
                }
                self.happens(Event::LifelineGone);
            }
            Token::Outputs => self.outputs_ready(),
            Token::Stdin => {
                self.pour_stdin();
                self.settle();
            }
            Token::Processes(index) => {
                if let Some((nid, _)) = self.groups.get(index) {
                    self.look_at_processes(*nid);
                }
            }
            Token::Pmi(index) => self.pmi_ready(index, flags),
            Token::Stdout(index) => self.output_ready(index, false),
            Token::Stderr(index) => self.output_ready(index, true),
            Token::Debugger(slot) => self.debugger_ready(slot),
            Token::Mix => self.mix_ready(flags),
            Token::PmiPort => self.pmi_calls(),
            Token::PmiCaller(slot) => self.pmi_caller_ready(slot),
        }
    }

    /// Something has happened: what follows is done, with what follows from that. Within an action
    /// it waits until all actions before it are done.
    fn happens(&mut self, event: Event) {
        self.happened.push(event);
        self.settle();
    }

    fn settle(&mut self) {
        self.drive(|driver, shell| driver.settle(shell));
    }

    fn drive(&mut self, call: impl FnOnce(&mut Driver, &mut Shell)) {
        let Some(mut driver) = self.driver.take() else { return };
        call(&mut driver, self);
        self.driver = Some(driver);
        self.flush();
    }

    fn log(&self, text: impl std::fmt::Display) {
        self.diagnostics.say(text);
    }

    // ---- apinit ----

    fn accept(&mut self) {
        if self.link.is_some() {
            return;
        }
        let uid = Uid::effective().as_raw();
        match Link::accept(self.listen.as_fd(), uid) {
            Ok(link) => {
                self.unreachable = 0;
                // One at a time: the next waits in the backlog.
                let _ = self.epoll.delete(&self.listen);
                if let Err(e) = watch(&self.epoll, link.as_fd(), Token::Link, EpollFlags::EPOLLIN) {
                    self.log(format_args!("a connection can't be watched: {e}"));
                }
                self.link = Some(link);
                self.link_waits = false;
                self.happens(Event::Connected);
            }
            Err(LinkError::Socket(Errno::EAGAIN | Errno::ECONNABORTED | Errno::EINTR)) => {}
            Err(LinkError::Socket(e)) => self.unreachable(e),
            Err(e) => self.log(e),
        }
    }

    /// No apinit can connect. A PE may have caused that (it is of the same user, and can take away the right to
    /// open files), and then no KILL, no time limit and no end would come any more: this process ends, and apinit
    /// ends what it has left.
    fn unreachable(&mut self, error: Errno) {
        if self.unreachable == 0 {
            self.log(format_args!("no apinit can connect here: {error}"));
        }
        self.unreachable += 1;
        self.over = self.unreachable > UNREACHABLE_MAX;
        // (The apinit that waits is reported by epoll again at once.)
        std::thread::sleep(UNREACHABLE_WAIT);
    }

    fn link_ready(&mut self) {
        for _ in 0..TURNS {
            let Some(link) = &mut self.link else { return };
            match link.receive(&mut self.buffer) {
                Ok(Some(frame)) => self.happens(Event::Frame(frame)),
                Ok(None) => break,
                Err(e) => {
                    if !matches!(e, LinkError::Closed) {
                        self.log(e);
                    }
                    if self.disconnect() {
                        self.happens(Event::Disconnected);
                    }
                    return;
                }
            }
        }
        self.flush();
    }

    fn flush(&mut self) {
        let Some(link) = &mut self.link else { return };
        match link.flush() {
            Ok(all) => {
                if all == self.link_waits {
                    let mut flags = EpollFlags::EPOLLIN;
                    flags.set(EpollFlags::EPOLLOUT, !all);
                    let mut event = EpollEvent::new(flags, Token::Link.number());
                    let _ = self.epoll.modify(link.as_fd(), &mut event);
                    self.link_waits = !all;
                }
            }
            // apinit has gone: that is read as well, and dealt with there.
            Err(LinkError::Socket(Errno::EPIPE | Errno::ECONNRESET)) => {}
            Err(e) => self.log(e),
        }
    }

    /// Closes the connection, and listens for the next one. False: there was none.
    fn disconnect(&mut self) -> bool {
        let Some(link) = self.link.take() else { return false };
        // Before the other side sees that it is closed: it may be about to dump what is here.
        self.end_debuggers();
        let _ = self.epoll.delete(link.as_fd());
        drop(link);
        let listen = watch(&self.epoll, self.listen.as_fd(), Token::Listen, EpollFlags::EPOLLIN);
        if let Err(e) = listen {
            self.log(format_args!("the socket can't be watched: {e}"));
        }
        true
    }
}

fn watch(epoll: &Epoll, fd: BorrowedFd<'_>, token: Token, flags: EpollFlags) -> nix::Result<()> {
    epoll.add(fd, EpollEvent::new(flags, token.number()))
}
