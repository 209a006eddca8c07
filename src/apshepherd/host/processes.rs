//! The loop's dealings with processes: forking PEs, hearing of them, letting them go, ending them.

use super::attaching;
use super::pes::{self, Ways};
use super::program::{self, Refusal};
use super::tracers::{self, Kind, Tool};
use super::*;
use crate::apteam::ending::Usage;
use crate::apteam::fault::Fault;
use crate::apteam::protocol::programs::GivenProgram;
use crate::node::tracer::tracer as tracer_of;
use crate::os::fork::{Program, Used};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The most messages of appmix about one PE that may wait to be read.
const MIX_MESSAGES: usize = 4;

impl Shell {
    pub(super) fn make_pes(&mut self, mut launch: Box<HostLaunch>) {
        match program::look(&mut launch) {
            Ok(wanted) if wanted.is_empty() => {
                if let Some(launch) = self.first_mix(launch) {
                    self.fork_pes(launch, Ok(()));
                }
            }
            Ok(wanted) => {
                self.launch_waits = Some(launch);
                self.happened.push(Event::ProgramsWanted(wanted));
            }
            Err(refused) => self.fork_pes(launch, Err(refused)),
        }
    }

    /// The same once programs have come that were not here.
    pub(super) fn make_pes_with(&mut self, programs: Vec<GivenProgram>) {
        let Some(mut launch) = self.launch_waits.take() else { return };
        match program::take(&mut launch, programs) {
            Ok(()) => {
                if let Some(launch) = self.first_mix(launch) {
                    self.fork_pes(launch, Ok(()));
                }
            }
            refused => self.fork_pes(launch, refused),
        }
    }

    pub(super) fn fork_pes(&mut self, launch: Box<HostLaunch>, looked: Result<(), (u32, Refusal)>) {
        self.limits = Limits::open(&launch, &self.groups);
        for (index, file) in self.limits.watched() {
            // Refused: then it is looked at when a PE ends.
            let _ = watch(&self.epoll, file, Token::Processes(index), EpollFlags::EPOLLPRI);
        }
        // Once: afterwards this process has no right that its user has not.
        let placing = self.placing.take();
        let prepared = looked.and_then(|()| program::prepare(&launch, self.soft_files));
        let first = launch.pes.first().map_or(0, |pe| pe.rank);
        let with_tool = |programs: BTreeMap<usize, Program>| {
            let environment =
                programs.values().next().map(|program| Rc::clone(&program.environment));
            let tool = Tool::of(&launch, environment.unwrap_or_else(|| Rc::new([])));
            tool.map(|tool| (programs, tool)).map_err(|refusal| (first, refusal))
        };
        let opened = match launch.launch.pmi && launch.launch.pmi_port {
            true => self.open_pmi_port(launch.pes.len()),
            false => Ok(()),
        };
        let opened = opened.map_err(|e| {
            let text = format!("a port for PMI can't be opened: {e}");
            let errno = e.raw_os_error().unwrap_or(0);
            (first, Refusal { errno, text, fault: Fault::Busy })
        });
        let failed = match opened.and(prepared).and_then(with_tool) {
            Ok((programs, tool)) => {
                let (groups, placing) = (&self.groups, placing.as_ref());
                let ways = Ways { mix: &self.mix.environment, port: self.pmi_port.as_ref() };
                let forked =
                    pes::fork_all(&launch, &programs, groups, placing, tool.as_ref(), ways);
                self.pes = forked.pes;
                self.stdin.pipe = forked.stdin;
                forked.failed
            }
            Err(refused) => Some(refused),
        };
        drop(placing);
        let mut watched = Ok(());
        for (index, pe) in self.pes.all.iter().enumerate() {
            let [stdout, stderr] = &pe.output;
            let streams =
                [(stdout, Token::Stdout(index)), (stderr, Token::Stderr(index))].into_iter();
            for (fd, token) in streams.filter_map(|(pipe, token)| Some((pipe.fd.as_ref()?, token)))
            {
                watched = watched.and(watch(&self.outputs, fd.as_fd(), token, EpollFlags::EPOLLIN));
            }
            if let Some(pmi) = &pe.pmi {
                let pmi = watch(&self.epoll, pmi.as_fd(), Token::Pmi(index), EpollFlags::EPOLLIN);
                watched = watched.and(pmi);
            }
        }
        let watched = watched.map_err(|e| {
            let rank = launch.pes.first().map_or(0, |pe| pe.rank);
            let text = format!("its pipes can't be watched: {e}");
            (rank, Refusal { errno: e as i32, text, fault: Fault::Busy })
        });
        if let Some((rank, refused)) = failed.or(watched.err()) {
            self.happened.push(refused.of_pe(rank));
            // Those that were not made say nothing and can't end.
            for pe in &launch.pes[self.pes.all.len().min(launch.pes.len())..] {
                for stderr in [false, true] {
                    self.happened.push(Event::OutputEof { rank: pe.rank, stderr });
                }
            }
        }
        self.launch = Some(launch);
        self.reap_due = true;
    }

    pub(super) fn signalled(&mut self) {
        let mut end = false;
        while let Ok(Some(info)) = self.signals.read_signal() {
            end |= info.ssi_signo == Signal::SIGTERM as u32;
        }
        self.reap();
        if end {
            self.happens(Event::LifelineGone);
        }
    }

    pub(super) fn reap(&mut self) {
        if self.launch.is_none() && !self.mix.is_there() {
            return;
        }
        loop {
            // Asked before it is reaped: then it has none any more.
            let session = self.limits.memory_limited().then(session_of_ended).flatten();
            match wait_any() {
                Waited::News(child) => {
                    let session = session.filter(|(pid, _)| *pid == child.pid);
                    self.child(child, session.map(|(_, session)| session));
                }
                Waited::Nothing => {
                    self.end_mix_if_last();
                    break;
                }
                Waited::NoChild => {
                    self.drive(|driver, shell| driver.no_child(shell));
                    break;
                }
            }
        }
        for nid in self.limits.reaped(&self.pes) {
            self.happens(Event::NodeReaped(nid));
        }
    }

    /// appmix ends when nothing else is left.
    fn end_mix_if_last(&mut self) {
        let forked = self.launch.is_some();
        if forked && self.mix.is_there() && self.pes.all.iter().all(|pe| pe.ended) {
            let left = descend::descendants(&self.groups);
            if left.iter().all(|pid| self.mix.is_it(pid.as_raw())) {
                self.end_mix();
            }
        }
    }

    pub(super) fn child(&mut self, child: Child, session: Option<i32>) {
        if let Some(index) = self.pes.of_tracer(child.pid) {
            return self.tracer_ended(index, child.change);
        }
        if self.debuggers.is_one(child.pid) {
            return self.debugger_ended(child.pid, child.change);
        }
        if self.mix.is_it(child.pid) {
            return self.mix_ended(child.change);
        }
        if self.spawned.is_one(child.pid) {
            return self.spawned_ended(child.pid, child.change);
        }
        let killed = child.change == Change::Died(Signal::SIGKILL as i32);
        let Some(index) = self.pes.of_pid(child.pid) else {
            // Somebody's child that has come to us; it has ended, and that is all.
            let of = session.filter(|_| killed).and_then(|leader| self.pes.of_pid(leader));
            if let Some(index) = of {
                let (rank, max_rss_kib) = (self.pes.all[index].rank, child.used.max_rss_kib);
                self.happens(Event::OrphanKilled { rank, max_rss_kib });
            }
            return;
        };
        let (rank, executed) = (self.pes.all[index].rank, self.pes.all[index].executed);
        let end = match child.change {
            Change::Stopped(signal) => return self.stopped(index, signal),
            Change::Exited(code) => PeEnd::Exit(code),
            Change::Died(signal) => PeEnd::Signal(signal),
        };
        self.pes.all[index].ended = true;
        if let Some(tracer) = &mut self.pes.all[index].tracer {
            tracer.keeps_or_not(end);
        }
        let nid = self.pes.all[index].nid;
        if let Some(over_limit) = killed.then(|| self.limits.memory_kill(nid)).flatten() {
            self.happens(Event::MemoryKill { nid, over_limit });
        }
        self.look_at_processes(nid);
        if !executed {
            self.tell_failures();
        }
        // What it said before it ended comes before its end.
        self.read_pmi(index, LAST_READS);
        // (All PEs of this host share that connection.)
        self.read_mix(LAST_READS + MIX_MESSAGES * self.pes.all.len());
        self.mix_lost_first();
        self.close_pmi_of(index);
        let pid = self.pes.all[index].pid.as_raw().unsigned_abs();
        self.happens(Event::PeEnded { rank, pid, end, usage: usage_of(child.used) });
    }

    /// Tells if a fork has failed on this node because of its limit.
    pub(super) fn look_at_processes(&mut self, nid: Nid) {
        if self.limits.forks_refused(nid) {
            self.happens(Event::ProcessLimit { nid });
        }
    }

    pub(super) fn tell_failures(&mut self) {
        let Some(launch) = &self.launch else { return };
        for (rank, refused) in self.pes.failures(launch) {
            self.happens(refused.of_pe(rank));
        }
    }

    /// A PE stands: after execve, or because of a signal before it.
    pub(super) fn stopped(&mut self, index: usize, signal: i32) {
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
        let refused = self.launch.as_ref().and_then(|launch| {
            let part = launch.launch.part_of(rank);
            program::check_process(&launch.launch, part, pid.as_raw()).err()
        });
        match refused {
            Some(refused) => self.happens(refused.of_pe(rank)),
            None if self.pes.all[index].tracer.is_some() => self.hand_over(index),
            None => self.happens(Event::Stopped { rank }),
        }
    }

    /// Lets what is to trace a PE attach to it.
    fn hand_over(&mut self, index: usize) {
        let pe = &mut self.pes.all[index];
        // It stands on; if this process should be killed now, so is the PE.
        let _ = ptrace::detach(pe.pid, Signal::SIGSTOP);
        if let Some(gate) = pe.tracer.as_mut().and_then(|tracer| tracer.gate.take()) {
            attaching::open(gate);
        }
        self.tracing.push((index, monotonic_ns()));
    }

    /// Those that are traced by now stand as they are to; one that is not after a while never will.
    pub(super) fn look_at_tracers(&mut self) {
        let (waiting, now) = (std::mem::take(&mut self.tracing), monotonic_ns());
        for (index, since) in waiting {
            let pe = &mut self.pes.all[index];
            let Some(tracer) = pe.tracer.as_mut().filter(|_| !pe.ended) else { continue };
            let rank = pe.rank;
            if tracer_of(pe.pid.as_raw()) == Some(tracer.pid.as_raw()) {
                tracer.attached = true;
                // (Of gdb's it is looked at the end what is in it.)
                if tracer.kind == Kind::Strace {
                    tracer.file = None;
                }
                self.happened.push(Event::Stopped { rank });
            } else if Duration::from_nanos(now.saturating_sub(since)) > tracers::ATTACH {
                let (tool, most) = (tracer.kind.name(), tracers::ATTACH.as_secs());
                let text = format!("{tool} has not attached within {most} s");
                self.happened.push(Refusal::of_tracer(text).of_pe(rank));
            } else {
                self.tracing.push((index, since));
            }
        }
        if !self.happened.is_empty() {
            self.settle();
        }
    }

    /// What traces a PE has ended: with it, as a rule. Before it had attached, none runs.
    fn tracer_ended(&mut self, index: usize, change: Change) {
        let pe = &mut self.pes.all[index];
        let ended = matches!(change, Change::Exited(_) | Change::Died(_));
        let Some(tracer) = pe.tracer.as_mut().filter(|tracer| ended && !tracer.attached) else {
            return;
        };
        tracer.attached = true;
        let (rank, tool, file) = (pe.rank, tracer.kind, tracer.file.take());
        self.tracing.retain(|(waiting, _)| *waiting != index);
        self.tell_failures();
        let text = tracers::explain(tool, file);
        self.happens(Refusal::of_tracer(text).of_pe(rank));
    }

    pub(super) fn let_go(&mut self) {
        for pe in self.pes.all.iter().filter(|pe| !pe.ended && !pe.early_signals.is_empty()) {
            for signal in pe.early_signals.iter().filter_map(|s| Signal::try_from(*s).ok()) {
                let _ = kill(pe.pid, signal);
            }
        }
        for pe in self.pes.all.iter_mut().filter(|pe| !pe.ended) {
            // One that was killed meanwhile is not there.
            let Some(tracer) = &mut pe.tracer else {
                let _ = ptrace::detach(pe.pid, None);
                continue;
            };
            // (One for which a SIGSTOP waits is to stay stopped: it may be the turn of another gang.)
            if !tracer.lets_run() && !tracers::stop_waits(pe.pid) {
                let _ = kill(pe.pid, Signal::SIGCONT);
            }
        }
    }

    pub(super) fn signal_pes(&mut self, signal: i32) {
        let Ok(signal) = Signal::try_from(signal) else { return };
        for pe in self.pes.all.iter_mut().filter(|pe| !pe.ended) {
            match signal {
                Signal::SIGSTOP => pe.stop_wanted = true,
                Signal::SIGCONT | Signal::SIGTERM => pe.stop_wanted = false,
                _ => {}
            }
            let _ = killpg(pe.pid, signal);
            if signal == Signal::SIGTERM {
                // One that is stopped hears it only when it goes on.
                let _ = killpg(pe.pid, Signal::SIGCONT);
            }
        }
        self.spawned.signal(signal);
    }

    /// What descends from this process and lives. Its session tells whose it is, if it has not made
    /// one of its own.
    pub(super) fn descendants(&self) -> Vec<Left> {
        let named =
            descend::descendants(&self.groups).into_iter().take(NAMED_MAX).filter_map(|pid| {
                if self.mix.is_it(pid.as_raw()) {
                    return None;
                }
                let session = nix::unistd::getsid(Some(pid)).ok();
                let pe =
                    session.and_then(|s| self.pes.of_pid(s.as_raw())).map(|i| &self.pes.all[i]);
                let first = self.launch.as_ref().and_then(|launch| launch.pes.first());
                let nid = pe.map(|pe| pe.nid).or(first.map(|pe| pe.nid)).unwrap_or_default();
                let pid = pid.as_raw();
                let text = crate::node::stuck::describe(pid, pe.map(|pe| pe.rank), nid)?;
                Some(Left { pid, nid, text })
            });
        named.collect()
    }

    /// Whether a node's processes are frozen, for others have their turn there.
    pub(super) fn frozen(&self) -> bool {
        self.frozen_nodes().next().is_some()
    }

    /// The nodes on which it was launched whose processes are frozen.
    pub(super) fn frozen_nodes(&self) -> impl Iterator<Item = Nid> {
        let frozen = |group: &OwnedFd| {
            let mut set = [0; 1];
            let file = limits::open(group.as_fd(), "cgroup.freeze");
            file.is_some_and(|file| nix::unistd::read(&file, &mut set) == Ok(1) && set == *b"1")
        };
        self.groups.iter().filter(move |(_, group)| frozen(group)).map(|(nid, _)| *nid)
    }

    pub(super) fn kill_all(&mut self) {
        self.give_up_mix();
        for pe in self.pes.all.iter().filter(|pe| !pe.ended) {
            let _ = kill(pe.pid, Signal::SIGKILL);
        }
        // Quickest by group, where that is ours: an apinit of root's keeps it to itself.
        for (_, group) in &self.groups {
            let _ = kill_group(group.as_fd());
        }
        descend::signal_all(Signal::SIGKILL, &self.groups);
    }
}

/// Writes 1 to cgroup.kill.
fn kill_group(group: BorrowedFd<'_>) -> nix::Result<()> {
    let flags = nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_CLOEXEC;
    let file = nix::fcntl::openat(group, "cgroup.kill", flags, nix::sys::stat::Mode::empty())?;
    nix::unistd::write(file, b"1").map(|_| ())
}

/// As reports have it.
fn usage_of(used: Used) -> Usage {
    let Used { utime, stime, max_rss_kib, inblocks, outblocks } = used;
    Usage { utime, stime, max_rss_kib, inblocks, outblocks }
}
