//! apshepherd for real: one thread, one loop, and the pure [`Shepherd`] that decides.
//!
//! ```text
//!   apinit ==seqpacket== +-----------+ --stdin--> PE 0
//!   lifeline ----------> |           | <-stdout/stderr-- each PE
//!   SIGCHLD, SIGTERM --> | this loop | <====PMI====> each PE
//!   time --------------> |           | --fork, ptrace, kill--> each PE
//!                        +-----------+
//!                         |         ^
//!                happenings         actions
//!                         v         |
//!                        +-----------+
//!                        | Shepherd  |
//!                        +-----------+
//! ```
//!
//! Readiness comes from epoll, level-triggered. The PEs' outputs have an epoll of their own within
//! the main one, so that all of them are switched off, when the window is full, by taking out one.
//!
//! The process is undumpable, so that its PEs, which have the same user, can't trace it; a subreaper,
//! so that nothing that they start gets away; and apinit (or root) alone may talk to it.

mod descend;
mod link;
mod options;
mod pes;
mod program;

use crate::apteam::ending::PeEnd;
use crate::apteam::launch::HostLaunch;
use crate::apteam::talk::shepherd::FromShepherd;
use crate::machine::Nid;
use crate::node::frames::PACKET_MAX;
use crate::os::fork::{Change, Child, Waited, inherited, wait_any};
use crate::shepherd::{Action, Happening, Shepherd};
use bytes::{Buf, Bytes};
use link::{Link, LinkError};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::ptrace;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, killpg, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Uid;
use options::Options;
use pes::{Got, Pes, read_some, write_some};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

/// Bytes read from a PE's output at once.
const READ: usize = 64 * 1024;
/// Frames, and reads of a PE's PMI connection, before others have their turn.
const TURNS: usize = 16;
/// Reads of a PE's PMI connection after its end: a child of its that holds the connection must not
/// keep us here.
const LAST_READS: usize = 64;
/// Events taken from the kernel at once.
const EVENTS: usize = 64;

/// What an epoll event is about: kind in the upper half, PE in the lower.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Listen,
    Link,
    Signals,
    Lifeline,
    Outputs,
    Stdin,
    Pmi(usize),
    Stdout(usize),
    Stderr(usize),
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
    core: Shepherd,
    epoll: Epoll,
    /// The PEs' outputs.
    outputs: Epoll,
    reading: bool,
    listen: OwnedFd,
    lifeline: Option<OwnedFd>,
    signals: SignalFd,
    groups: Vec<(Nid, OwnedFd)>,
    link: Option<Link>,
    link_waits: bool,
    launch: Option<Box<HostLaunch>>,
    pes: Pes,
    /// There is no child and there won't be: what the pipes hold now is all.
    childless: bool,
    stdin: Stdin,
    happenings: VecDeque<Happening>,
    /// They are being dealt with.
    settling: bool,
    /// To be done when no action is under way: reap, and read what childless pipes hold.
    reap_due: bool,
    sweep_due: bool,
    timer: Option<u64>,
    /// The limit of open files that this process was started with.
    soft_files: u64,
    buffer: Vec<u8>,
    over: bool,
}

/// apshepherd, whole: the process's exit code.
pub fn main(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let options = match Options::parse(arguments) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("apshepherd: {problem}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    let key = options.key;
    match Shell::new(options).and_then(Shell::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("apshepherd {key}: {e}");
            ExitCode::FAILURE
        }
    }
}

impl Shell {
    fn new(options: Options) -> std::io::Result<Shell> {
        nix::sys::prctl::set_dumpable(false)?;
        nix::sys::prctl::set_child_subreaper(true)?;
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
        let now = program::now_ns();
        let core = Shepherd::new(now, options.key);
        let mut shell = Shell {
            core,
            epoll,
            outputs,
            reading: true,
            listen,
            lifeline,
            signals,
            groups,
            link: None,
            link_waits: false,
            launch: None,
            pes: Pes::default(),
            childless: false,
            stdin: Stdin::default(),
            happenings: VecDeque::new(),
            settling: false,
            reap_due: false,
            sweep_due: false,
            timer: None,
            soft_files,
            buffer: vec![0; PACKET_MAX + 1],
            over: false,
            options,
        };
        // Sets the first timer.
        shell.happens(Happening::Tick);
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
            if self.timer.is_some_and(|at| at <= program::now_ns()) {
                self.happens(Happening::Tick);
            }
            for event in &events[..count] {
                if let Some(token) = Token::parse(event.data()) {
                    self.ready(token, event.events());
                }
            }
            while self.reap_due || self.sweep_due {
                if std::mem::take(&mut self.reap_due) {
                    self.reap();
                }
                if std::mem::take(&mut self.sweep_due) {
                    self.sweep_outputs();
                }
            }
        }
        // The last word, if the socket takes it.
        if let Some(link) = &mut self.link {
            let _ = link.flush();
        }
        Ok(())
    }

    fn timeout(&self) -> EpollTimeout {
        let Some(at) = self.timer else { return EpollTimeout::NONE };
        let left_ms = at.saturating_sub(program::now_ns()).div_ceil(1_000_000);
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
                self.happens(Happening::LifelineGone);
            }
            Token::Outputs => self.outputs_ready(),
            Token::Stdin => self.write_stdin(),
            Token::Pmi(index) => self.pmi_ready(index, flags),
            Token::Stdout(index) => self.read_output(index, false),
            Token::Stderr(index) => self.read_output(index, true),
        }
    }

    /// Something has happened: what follows is done, with what follows from that. Within an action
    /// it waits until all actions before it are done.
    fn happens(&mut self, happening: Happening) {
        self.happenings.push_back(happening);
        self.settle();
    }

    fn settle(&mut self) {
        if std::mem::replace(&mut self.settling, true) {
            return;
        }
        while let Some(next) = self.happenings.pop_front() {
            for action in self.core.apply(program::now_ns(), next) {
                self.act(action);
            }
        }
        self.settling = false;
        self.flush();
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Fork(launch) => self.fork(launch),
            Action::Go => self.go(),
            Action::Signal(signal) => self.signal(signal),
            Action::SignalLeft(signal) => {
                let found = Signal::try_from(signal).map_or(0, descend::signal_all);
                self.happenings.push_back(Happening::LeftFound(found));
            }
            Action::KillEverything => self.kill_everything(),
            Action::Send(message) => self.send(message),
            Action::Notice { nid, text } => {
                let date = jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S");
                let apid = self.options.key.apid;
                let line = format!("[NID {:05}] {date} Apid {apid}: {text}", nid.0);
                self.send(FromShepherd::Notice(line));
            }
            Action::Hangup => self.hang_up(),
            Action::PmiSend { rank, data } => {
                if let Some((index, pe)) = self.pes.of_rank(rank) {
                    pe.answers.extend(&data[..]);
                    self.answer(index);
                }
            }
            Action::PmiClose { rank } => {
                if let Some((index, _)) = self.pes.of_rank(rank) {
                    self.close_pmi(index);
                }
            }
            Action::ReadOutput(on) => self.set_reading(on),
            Action::WriteStdin(data) => {
                self.stdin.waiting.push_back(data);
                self.write_stdin();
            }
            Action::CloseStdin => {
                self.stdin.closing = true;
                self.write_stdin();
            }
            Action::SetTimer(at) => self.timer = at,
            Action::Exit => self.over = true,
        }
    }

    fn log(&self, text: impl std::fmt::Display) {
        eprintln!("apshepherd {}: {text}", self.options.key);
    }

    // ---- apinit ----

    fn accept(&mut self) {
        if self.link.is_some() {
            return;
        }
        let uid = Uid::effective().as_raw();
        match Link::accept(self.listen.as_fd(), uid) {
            Ok(link) => {
                // One at a time: the next waits in the backlog.
                let _ = self.epoll.delete(&self.listen);
                if let Err(e) = watch(&self.epoll, link.as_fd(), Token::Link, EpollFlags::EPOLLIN) {
                    self.log(format_args!("a connection can't be watched: {e}"));
                }
                self.link = Some(link);
                self.link_waits = false;
                self.happens(Happening::Connected);
            }
            Err(LinkError::Socket(Errno::EAGAIN | Errno::ECONNABORTED | Errno::EINTR)) => {}
            Err(e) => self.log(e),
        }
    }

    fn link_ready(&mut self) {
        for _ in 0..TURNS {
            let Some(link) = &mut self.link else { return };
            match link.receive(&mut self.buffer) {
                Ok(Some(frame)) => self.happens(Happening::Frame(frame)),
                Ok(None) => break,
                Err(e) => {
                    if !matches!(e, LinkError::Closed) {
                        self.log(e);
                    }
                    self.hang_up();
                    self.settle();
                    return;
                }
            }
        }
        self.flush();
    }

    fn send(&mut self, message: FromShepherd) {
        if let Some(link) = &mut self.link {
            link.push(message);
        }
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

    /// Closes the connection, and listens for the next one.
    fn hang_up(&mut self) {
        if let Some(link) = self.link.take() {
            let _ = self.epoll.delete(link.as_fd());
            drop(link);
            let listen =
                watch(&self.epoll, self.listen.as_fd(), Token::Listen, EpollFlags::EPOLLIN);
            if let Err(e) = listen {
                self.log(format_args!("the socket can't be watched: {e}"));
            }
            self.happenings.push_back(Happening::Disconnected);
        }
    }

    // ---- processes ----

    fn fork(&mut self, launch: Box<HostLaunch>) {
        let prepared = program::prepare(&launch, self.soft_files);
        let failed = match prepared {
            Ok(program) => {
                let forked = pes::fork_all(&launch, &program, &self.groups);
                self.pes = forked.pes;
                self.stdin.pipe = forked.stdin;
                forked.failed
            }
            Err(refusal) => launch.pes.first().map(|pe| (pe.rank, refusal)),
        };
        let mut watched = Ok(());
        for (index, pe) in self.pes.all.iter().enumerate() {
            let [stdout, stderr] = &pe.output;
            let streams =
                [(stdout, Token::Stdout(index)), (stderr, Token::Stderr(index))].into_iter();
            for (fd, token) in streams.filter_map(|(fd, token)| fd.as_ref().map(|fd| (fd, token))) {
                watched = watched.and(watch(&self.outputs, fd.as_fd(), token, EpollFlags::EPOLLIN));
            }
            if let Some(pmi) = &pe.pmi {
                let pmi = watch(&self.epoll, pmi.as_fd(), Token::Pmi(index), EpollFlags::EPOLLIN);
                watched = watched.and(pmi);
            }
        }
        let watched = watched.map_err(|e| {
            let rank = launch.pes.first().map_or(0, |pe| pe.rank);
            (rank, (e as i32, format!("its pipes can't be watched: {e}")))
        });
        if let Some((rank, (errno, text))) = failed.or(watched.err()) {
            self.happenings.push_back(Happening::ExecFailed { rank, errno, text });
            // Those that were not made say nothing and can't end.
            for pe in &launch.pes[self.pes.all.len().min(launch.pes.len())..] {
                for stderr in [false, true] {
                    self.happenings.push_back(Happening::OutputEof { rank: pe.rank, stderr });
                }
            }
        }
        self.launch = Some(launch);
        self.reap_due = true;
    }

    fn signalled(&mut self) {
        let mut end = false;
        while let Ok(Some(info)) = self.signals.read_signal() {
            end |= info.ssi_signo == Signal::SIGTERM as u32;
        }
        self.reap();
        if end {
            self.happens(Happening::LifelineGone);
        }
    }

    fn reap(&mut self) {
        if self.launch.is_none() {
            return;
        }
        loop {
            match wait_any() {
                Waited::News(child) => self.child(child),
                Waited::Nothing => break,
                Waited::NoChild if self.childless => break,
                Waited::NoChild => {
                    self.childless = true;
                    self.sweep_due = true;
                    self.happens(Happening::NoChildLeft);
                    break;
                }
            }
        }
    }

    fn child(&mut self, child: Child) {
        let Some(index) = self.pes.of_pid(child.pid) else {
            // Somebody's child that has come to us; it has ended, and that is all.
            return;
        };
        let (rank, executed) = (self.pes.all[index].rank, self.pes.all[index].executed);
        let end = match child.change {
            Change::Stopped(signal) => return self.stopped(index, signal),
            Change::Exited(code) => PeEnd::Exit(code),
            Change::Died(signal) => PeEnd::Signal(signal),
        };
        self.pes.all[index].ended = true;
        if !executed {
            self.tell_failures();
        }
        // What it said before it ended comes before its end.
        self.read_pmi(index, LAST_READS);
        self.close_pmi(index);
        self.happens(Happening::PeEnded { rank, end, usage: child.usage });
    }

    fn tell_failures(&mut self) {
        let Some(launch) = &self.launch else { return };
        for (rank, (errno, text)) in self.pes.failures(launch) {
            self.happens(Happening::ExecFailed { rank, errno, text });
        }
    }

    /// A PE stands: after execve, or because of a signal before it.
    fn stopped(&mut self, index: usize, signal: i32) {
        let pe = &mut self.pes.all[index];
        let (rank, pid) = (pe.rank, pe.pid);
        if pe.executed {
            return;
        }
        if signal != Signal::SIGTRAP as i32 {
            pe.early_signals.push(signal);
            let _ = ptrace::cont(pid, None);
            return;
        }
        pe.executed = true;
        // Should this process be killed now, the PE must not go on.
        let _ = ptrace::setoptions(pid, ptrace::Options::PTRACE_O_EXITKILL);
        let refused = self
            .launch
            .as_ref()
            .and_then(|launch| program::check_process(&launch.launch, pid.as_raw()).err());
        self.happens(match refused {
            Some((errno, text)) => Happening::ExecFailed { rank, errno, text },
            None => Happening::Stopped { rank },
        });
    }

    fn go(&mut self) {
        for pe in self.pes.all.iter().filter(|pe| !pe.ended && !pe.early_signals.is_empty()) {
            for signal in pe.early_signals.iter().filter_map(|s| Signal::try_from(*s).ok()) {
                let _ = kill(pe.pid, signal);
            }
        }
        for pe in self.pes.all.iter().filter(|pe| !pe.ended) {
            // One that was killed meanwhile is not there.
            let _ = ptrace::detach(pe.pid, None);
        }
    }

    fn signal(&self, signal: i32) {
        let Ok(signal) = Signal::try_from(signal) else { return };
        for pe in self.pes.all.iter().filter(|pe| !pe.ended) {
            let _ = killpg(pe.pid, signal);
            if signal == Signal::SIGTERM {
                // One that is stopped hears it only when it goes on.
                let _ = killpg(pe.pid, Signal::SIGCONT);
            }
        }
    }

    fn kill_everything(&mut self) {
        for pe in self.pes.all.iter().filter(|pe| !pe.ended) {
            let _ = kill(pe.pid, Signal::SIGKILL);
        }
        // Quickest by group, where apinit has given us the right.
        for (_, group) in &self.groups {
            let _ = kill_group(group.as_fd());
        }
        descend::signal_all(Signal::SIGKILL);
    }

    // ---- output ----

    fn set_reading(&mut self, on: bool) {
        if self.reading == on {
            return;
        }
        self.reading = on;
        let done = match on {
            true => watch(&self.epoll, self.outputs.0.as_fd(), Token::Outputs, EpollFlags::EPOLLIN),
            false => self.epoll.delete(self.outputs.0.as_fd()),
        };
        if let Err(e) = done {
            self.log(format_args!("output can't be switched: {e}"));
        }
        self.sweep_due |= on && self.childless;
    }

    fn outputs_ready(&mut self) {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = self.outputs.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            if !self.reading {
                break;
            }
            match Token::parse(event.data()) {
                Some(Token::Stdout(index)) => self.read_output(index, false),
                Some(Token::Stderr(index)) => self.read_output(index, true),
                _ => {}
            }
        }
    }

    /// Reads one piece, so that each PE has its turn.
    fn read_output(&mut self, index: usize, stderr: bool) {
        let Some(pe) = self.pes.all.get(index) else { return };
        let rank = pe.rank;
        let Some(fd) = &pe.output[usize::from(stderr)] else { return };
        match read_some(fd.as_fd(), &mut self.buffer[..READ]) {
            Got::Some(count) => {
                let data = Bytes::copy_from_slice(&self.buffer[..count]);
                self.happens(Happening::Output { rank, stderr, data });
            }
            Got::Nothing if !self.childless => {}
            // Without children what is left of writers is none of the application's: somebody whom
            // a PE has handed its stdout. He is not waited for.
            Got::Nothing | Got::End => {
                if let Some(fd) = self.pes.all[index].output[usize::from(stderr)].take() {
                    let _ = self.outputs.delete(fd);
                }
                self.happens(Happening::OutputEof { rank, stderr });
            }
        }
    }

    /// After the last child: takes what is left, as far as reading is on, and closes.
    fn sweep_outputs(&mut self) {
        for index in 0..self.pes.all.len() {
            for stderr in [false, true] {
                while self.reading && self.pes.all[index].output[usize::from(stderr)].is_some() {
                    self.read_output(index, stderr);
                }
            }
        }
    }

    // ---- stdin ----

    fn write_stdin(&mut self) {
        let Some(pipe) = &self.stdin.pipe else {
            self.stdin.waiting.clear();
            return;
        };
        let mut written = 0;
        let mut lost = false;
        while let Some(first) = self.stdin.waiting.front_mut() {
            match write_some(pipe.as_fd(), first) {
                Ok(0) if !first.is_empty() => break,
                Ok(count) => {
                    first.advance(count);
                    written += count as u64;
                    if first.is_empty() {
                        self.stdin.waiting.pop_front();
                    }
                }
                Err(_) => {
                    lost = true;
                    break;
                }
            }
        }
        let full = !lost && !self.stdin.waiting.is_empty();
        if lost || self.stdin.closing && !full {
            if self.stdin.watched {
                let _ = self.epoll.delete(pipe);
            }
            self.stdin = Stdin::default();
        } else if full != self.stdin.watched {
            let done = match full {
                true => watch(&self.epoll, pipe.as_fd(), Token::Stdin, EpollFlags::EPOLLOUT),
                false => self.epoll.delete(pipe),
            };
            self.stdin.watched = full && done.is_ok();
        }
        if written > 0 {
            self.happenings.push_back(Happening::StdinWritten(written));
        }
        if lost {
            self.happenings.push_back(Happening::StdinClosed);
        }
        self.settle();
    }

    // ---- PMI ----

    fn pmi_ready(&mut self, index: usize, flags: EpollFlags) {
        if flags.contains(EpollFlags::EPOLLOUT) {
            self.answer(index);
        }
        self.read_pmi(index, TURNS);
        self.flush();
    }

    fn read_pmi(&mut self, index: usize, turns: usize) {
        for _ in 0..turns {
            let Some(pe) = self.pes.all.get(index) else { return };
            // A PE that does not take its answers is not asked for more questions.
            let (rank, Some(fd), true) = (pe.rank, &pe.pmi, pe.answers.is_empty()) else { return };
            match read_some(fd.as_fd(), &mut self.buffer[..READ]) {
                Got::Some(count) => {
                    let data = Bytes::copy_from_slice(&self.buffer[..count]);
                    self.happens(Happening::Pmi { rank, data });
                }
                Got::Nothing => return,
                Got::End => return self.close_pmi(index),
            }
        }
    }

    /// Sends what a PE is to be answered, as far as it takes it.
    fn answer(&mut self, index: usize) {
        let Some(pe) = self.pes.all.get_mut(index) else { return };
        let Some(fd) = &pe.pmi else {
            pe.answers.clear();
            return;
        };
        while !pe.answers.is_empty() {
            let (part, _) = pe.answers.as_slices();
            match write_some(fd.as_fd(), part) {
                Ok(0) => break,
                Ok(count) => drop(pe.answers.drain(..count)),
                Err(_) => return self.close_pmi(index),
            }
        }
        let flags = match pe.answers.is_empty() {
            true => EpollFlags::EPOLLIN,
            false => EpollFlags::EPOLLOUT,
        };
        let mut event = EpollEvent::new(flags, Token::Pmi(index).number());
        let _ = self.epoll.modify(fd, &mut event);
    }

    fn close_pmi(&mut self, index: usize) {
        if let Some(pe) = self.pes.all.get_mut(index) {
            pe.answers.clear();
            if let Some(fd) = pe.pmi.take() {
                let _ = self.epoll.delete(fd);
            }
        }
    }
}

fn watch(epoll: &Epoll, fd: BorrowedFd<'_>, token: Token, flags: EpollFlags) -> nix::Result<()> {
    epoll.add(fd, EpollEvent::new(flags, token.number()))
}

/// Writes 1 to cgroup.kill.
fn kill_group(group: BorrowedFd<'_>) -> nix::Result<()> {
    let flags = nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_CLOEXEC;
    let file = nix::fcntl::openat(group, "cgroup.kill", flags, nix::sys::stat::Mode::empty())?;
    nix::unistd::write(file, b"1").map(|_| ())
}
