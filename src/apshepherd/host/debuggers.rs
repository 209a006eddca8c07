//! Debuggers that write the stacks of PEs which run: `apstat --stacks`.
//!
//! # Problem
//! The program is to go on as if nothing had been, whatever becomes of the debugger. And a debugger reads files that
//! the program names; what it does it may do with the rights of the program's user only.
//!
//! # Approach
//! It is a child of the apshepherd, which is the user's and has no right that the user has not. It reads no file of
//! commands and loads no script that comes with the program, and is looked for in [`FOLDERS`], where only
//! administrators put programs. It works in the control group of its PE's node ([`super::attaching`]): it is frozen
//! with its PE, and what it uses counts there. It has the processors of its PE, which stands meanwhile, and is as nice.
//! Where the node has a limit of memory it may have a part of what is left ([`memory_left`]): beyond the limit the
//! kernel would kill the PEs.
//!
//! ptrace attaches by SIGSTOP, for each thread. If the debugger dies before its PE has taken that, the PE would stop
//! for good when it comes: so after a debugger that was killed the PE is looked at for a while ([`AFTER`]), and gets
//! SIGCONT, which takes back all of these. It would take back a user's SIGSTOP too: where there was one meanwhile,
//! the PE gets no SIGCONT. (That of a debugger is a thread's, that of a user the process's.)
//!
//! A debugger that waits in the kernel does not die by SIGKILL (state D). It keeps its place for a second, and is
//! waited for when it ends: only then can its PE go on.

use super::attaching::{self, Attaching, Waiting};
use super::pes::{Got, Pe, nonblocking, pipe, read_some};
use super::tracers::stop_waits;
use super::*;
use crate::apshepherd::decide::{Looked, Standing, Tool, stacks_in};
use crate::apshepherd::drive::Outside;
use crate::apteam::protocol::shepherd::FromShepherd;
use crate::apteam::protocol::stacks::{AT_ONCE, Made, TEXT_MAX};
use crate::node::tracer::tracer as tracer_of;
use crate::os::fork::{Failure, Program, SetLimit};
use crate::os::host::hostname;
use crate::steering::steers;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{AccessFlags, Pid, access};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Where debuggers are.
const FOLDERS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];
/// The most frames of a thread.
const FRAMES: &str = "128";
/// What is kept of what a debugger writes, in bytes: its stacks, and what it says before them.
const KEPT: usize = 2 * TEXT_MAX;
/// What is read at its end, at most: a child of its may hold its output.
const LAST: usize = 4 << 20;
/// Processor time of a debugger, and its data: bounds for one that goes astray.
const CPU_S: u64 = 60;
const DATA: u64 = 4 << 30;
/// Debuggers at once: for questions of the user, and of administrators.
const SLOTS: usize = 2 * AT_ONCE;
/// The least memory with which one can do its work.
const LEAST: u64 = 32 << 20;
/// Debuggers that do not end, at most, before no more are begun.
const LEFT_MAX: usize = 16;
/// The most threads that gdb attaches to one by one.
const THREADS: usize = 64;
/// For how long it is looked whether a PE stands because of a debugger that was killed.
const AFTER: Duration = Duration::from_secs(2);
/// How often.
pub(super) const AFTER_STEP: Duration = Duration::from_millis(5);
/// How long a debugger that was killed may take to die before the connection to apinit is closed.
const DYING: Duration = Duration::from_millis(500);

/// What gdb is told beside [`attaching::GDB`]: to make no threads.
const ALONE: &str = "maint set worker-threads 0";

/// Those that work.
#[derive(Debug, Default)]
pub(super) struct Debuggers {
    /// By the slot of their token.
    running: BTreeMap<usize, Running>,
    /// Debuggers that were killed and do not end, each with its PE.
    left: BTreeMap<i32, Pid>,
    /// PEs whose debugger was killed: each until when it is looked at.
    after: Vec<(Pid, u64)>,
}

#[derive(Debug)]
struct Running {
    number: u64,
    pe: Pid,
    pid: Pid,
    /// It waits there; `None`: no more.
    gate: Option<OwnedFd>,
    tool: Tool,
    output: OwnedFd,
    /// Where it says why it could not be executed.
    failure: OwnedFd,
    said: Vec<u8>,
    cut: bool,
}

impl Running {
    /// Takes what it has written; how many bytes.
    fn read(&mut self, buffer: &mut [u8]) -> Got {
        let got = read_some(self.output.as_fd(), buffer);
        if let Got::Some(count) = got {
            let kept = count.min(KEPT.saturating_sub(self.said.len()));
            self.said.extend_from_slice(&buffer[..kept]);
            self.cut |= kept < count;
        }
        got
    }

    fn signal(&self, signal: Signal) {
        // (It leads a session, in which is what it has started.)
        let _ = killpg(self.pid, signal);
        let _ = kill(self.pid, signal);
    }

    /// Why it could not be executed, if so.
    fn failed(&self) -> Option<String> {
        let mut record = [0; Failure::SIZE];
        let count = nix::unistd::read(&self.failure, &mut record);
        let errno = (count == Ok(Failure::SIZE)).then(|| Failure::parse(&record)).flatten()?.errno;
        Some(format!("{} can't be executed: {}", self.tool.name(), Errno::from_raw(errno).desc()))
    }
}

impl Debuggers {
    /// Whether this process is one.
    pub fn is_one(&self, pid: i32) -> bool {
        self.running.values().any(|one| one.pid.as_raw() == pid) || self.left.contains_key(&pid)
    }

    /// PEs are looked at whose debugger was killed.
    pub fn look(&self) -> bool {
        !self.after.is_empty()
    }

    fn of(&mut self, number: u64) -> Option<(usize, &mut Running)> {
        let mut all = self.running.iter_mut();
        all.find(|(_, one)| one.number == number).map(|(slot, one)| (*slot, one))
    }

    /// The debugger of this PE has died: the PE is looked at for a while.
    fn looks_after(&mut self, pe: Pid, how_long: Duration) {
        self.after.push((pe, monotonic_ns().saturating_add(how_long.as_nanos() as u64)));
    }

    /// Its end is waited for no more, and its slot is free.
    fn leave(&mut self, slot: usize) -> Option<Running> {
        let one = self.running.remove(&slot)?;
        self.left.insert(one.pid.as_raw(), one.pe);
        Some(one)
    }

    /// Lets PEs go on that stand because of a debugger that was killed, unless it is wanted that they stand.
    fn let_go_on(&mut self, now_ns: u64, stop_wanted: impl Fn(Pid) -> bool) {
        self.after.retain(|(pe, until_ns)| {
            if stop_wanted(*pe) {
                return false;
            }
            let attaches = tracer_of_any(*pe).is_some();
            if !attaches && stopped_by_debugger(*pe) {
                let _ = kill(*pe, Signal::SIGCONT);
                return false;
            }
            *until_ns > now_ns
        });
    }
}

/// The tool that is on this host.
fn find() -> Option<(Tool, PathBuf)> {
    let at = |tool: Tool| {
        let mut all = FOLDERS.iter().map(|folder| Path::new(folder).join(tool.name()));
        let file = all.find(|file| file.is_file() && access(file, AccessFlags::X_OK).is_ok())?;
        Some((tool, file))
    };
    at(Tool::Gdb).or_else(|| at(Tool::EuStack))
}

/// The command line of a debugger. A process whose main thread has ended can't be attached to as a whole: `threads`
/// has its threads then, and is empty else.
fn command(tool: Tool, pe: Pid, threads: &[Pid]) -> Vec<String> {
    let backtrace = format!("thread apply all backtrace {FRAMES}");
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    match tool {
        Tool::Gdb => {
            let mut all = words(&["gdb", "-q", "-nx", "-batch"]);
            let before = attaching::GDB.into_iter().chain([ALONE]);
            all.extend(before.flat_map(|command| words(&["-iex", command])));
            let pes = [pe];
            for at in if threads.is_empty() { &pes } else { threads } {
                let attach = format!("attach {at}");
                all.extend(words(&["-ex", &attach, "-ex", &backtrace, "-ex", "detach"]));
            }
            all
        }
        Tool::EuStack => words(&["eu-stack", "-n", FRAMES, "-p", &pe.to_string()]),
    }
}

/// The letter for what a thread does, as the kernel tells it.
fn state_of(tid: Pid) -> Option<u8> {
    let stat = std::fs::read(format!("/proc/{tid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    stat.rsplit_once(')')?.1.trim_start().bytes().next()
}

/// Whether a thread, or what was one, has ended.
fn is_over(state: u8) -> bool {
    matches!(state, b'Z' | b'X')
}

pub(super) fn threads_of(pid: Pid) -> impl Iterator<Item = Pid> {
    let all = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    all.filter_map(|thread| thread.file_name().to_str()?.parse().ok()).map(Pid::from_raw)
}

/// A thread of a process that has not ended, and what it does: the main one, while there is that.
fn alive(pid: Pid) -> Option<(Pid, u8)> {
    let of = |tid: Pid| Some((tid, state_of(tid).filter(|state| !is_over(*state))?));
    of(pid).or_else(|| threads_of(pid).find_map(of))
}

/// The threads that are to be attached to one by one.
fn one_by_one(pid: Pid) -> Vec<Pid> {
    if state_of(pid).is_none_or(|state| !is_over(state)) {
        return Vec::new();
    }
    let lives = |tid: &Pid| state_of(*tid).is_some_and(|state| !is_over(state));
    threads_of(pid).filter(lives).take(THREADS).collect()
}

/// What traces a thread of this process.
fn tracer_of_any(pid: Pid) -> Option<i32> {
    threads_of(pid).find_map(|tid| tracer_of(tid.as_raw()))
}

/// The memory that a debugger may have in this group: a part of what its limit leaves. `None`: it has no limit.
fn memory_left(group: BorrowedFd<'_>) -> Option<u64> {
    let read = |name: &str| {
        let file = File::from(limits::open(group, name)?);
        let mut text = String::new();
        file.take(16 << 10).read_to_string(&mut text).ok()?;
        Some(text)
    };
    part_of(&read("memory.max")?, &read("memory.current")?, &read("memory.stat")?)
}

/// The same, from the contents of the group's files. (The kernel can reclaim pages of files, but not of shared memory.)
fn part_of(max: &str, current: &str, stat: &str) -> Option<u64> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let of = |name: &str| {
        let mut lines = stat.lines().filter_map(|line| line.strip_prefix(name));
        lines.find_map(number).unwrap_or(0)
    };
    let used = number(current)?.saturating_sub(of("file ").saturating_sub(of("shmem ")));
    Some(number(max)?.saturating_sub(used) / (SLOTS as u64 + 1))
}

/// Whether a process has been stopped, or a SIGSTOP waits for one of its threads.
fn stopped_by_debugger(pid: Pid) -> bool {
    const STOP: u64 = 1 << (libc::SIGSTOP - 1);
    let waits = |status: &[u8]| {
        let status = String::from_utf8_lossy(status);
        let set = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
        set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0) & STOP != 0
    };
    let mut threads = threads_of(pid);
    threads.any(|tid| {
        state_of(tid) == Some(b'T')
            || std::fs::read(format!("/proc/{tid}/status")).is_ok_and(|status| waits(&status))
    })
}

fn text(word: impl Into<Vec<u8>>) -> io::Result<CString> {
    CString::new(word).map_err(|_| io::ErrorKind::InvalidInput.into())
}

impl Shell {
    pub(super) fn looks_at_pes(&mut self, ranks: &[u32]) -> BTreeMap<u32, Looked> {
        for one in self.debuggers.running.values() {
            // (It waits as long as the debugger holds the PE.)
            let index = self.pes.of_pid(one.pe.as_raw());
            if let Some(pe) = index.and_then(|index| self.pes.all.get_mut(index)) {
                pe.stop_wanted |= stop_waits(pe.pid);
            }
        }
        let frozen: Vec<Nid> = self.frozen_nodes().collect();
        let wanted = self.pes.all.iter().filter(|pe| ranks.binary_search(&pe.rank).is_ok());
        wanted.map(|pe| (pe.rank, looked(pe, frozen.contains(&pe.nid)))).collect()
    }

    pub(super) fn starts_debugger(&mut self, number: u64, rank: u32) {
        if let Err(why) = self.try_debugger(number, rank) {
            self.happened.push(Event::DebuggerEnded { number, said: Err(why) });
        }
    }

    fn try_debugger(&mut self, number: u64, rank: u32) -> Result<(), String> {
        let free = |slot: &usize| !self.debuggers.running.contains_key(slot);
        let slot = (0..SLOTS).find(free).ok_or("too many debuggers work already: ask again")?;
        if self.debuggers.left.len() >= LEFT_MAX {
            return Err(format!(
                "{LEFT_MAX} debuggers of this application on host {} were killed and do not end \
                 (state D): ask again when they have",
                hostname()
            ));
        }
        let (_, pe) = self.pes.of_rank(rank).filter(|(_, pe)| !pe.ended).ok_or("it has ended")?;
        // It runs: what has stopped it before is over.
        pe.stop_wanted = stop_waits(pe.pid);
        let (pe, nid) = (pe.pid, pe.nid);
        let (tid, _) = alive(pe).ok_or("it has ended")?;
        let group = self.groups.iter().find(|(of, _)| *of == nid).map(|(_, group)| group.as_fd());
        let data = group.and_then(memory_left).map_or(DATA, |left| left.min(DATA));
        if data < LEAST {
            return Err(format!(
                "the memory limit of its node leaves {} MiB for a debugger, which needs {} MiB: \
                 launch it with more (aprun -m)",
                data >> 20,
                LEAST >> 20
            ));
        }
        let (tool, path) = find().ok_or_else(|| {
            format!(
                "neither gdb nor eu-stack is on host {} in {}: install the package gdb there (or \
                 elfutils)",
                hostname(),
                FOLDERS.join(", ")
            )
        })?;
        let launch = self.launch.as_deref().ok_or("it has not been launched")?;
        let local = launch.pes.iter().find(|pe| pe.rank == rank).ok_or("it is not on this host")?;
        // (By the kernel, for one that has bound itself elsewhere too.)
        let cpus = crate::os::affinity::get(tid.as_raw()).unwrap_or_default();
        let cpus: Vec<u32> = cpus.into_iter().collect();
        let made = || -> io::Result<Running> {
            let (output, writes) = pipe()?;
            let (failure, fails) = pipe()?;
            nonblocking(&output)?;
            nonblocking(&failure)?;
            let null = high(File::options().read(true).open("/dev/null")?.into())?;
            let command = command(tool, pe, &one_by_one(pe));
            let arguments: io::Result<_> = command.into_iter().map(text).collect();
            let environment = [format!("PATH={}", FOLDERS.join(":")), "LC_ALL=C".into()];
            let environment: io::Result<Vec<CString>> = environment.into_iter().map(text).collect();
            let limits = [
                SetLimit::both(libc::RLIMIT_CPU, CPU_S, CPU_S),
                SetLimit::both(libc::RLIMIT_DATA, data, data),
                SetLimit::both(libc::RLIMIT_CORE, 0, 0),
            ];
            let program = Program {
                executable: text(path.as_os_str().as_encoded_bytes())?,
                arguments: arguments?,
                environment: environment?.into(),
                directory: c"/".to_owned(),
                umask: 0o077,
                limits: limits.into_iter().flatten().collect(),
            };
            let attaching = Attaching {
                index: 0,
                // (By its mark it is found where there are no groups.)
                environment: program::own_environment(launch, local),
                cpus: &cpus,
                nice: local.nice,
                stdio: [null.as_fd(), writes.as_fd(), writes.as_fd()],
                group: None,
                placing: None,
                failures: fails.as_fd(),
            };
            let Waiting { pid, gate } = attaching.start(&program)?;
            let (gate, said, cut) = (Some(gate), Vec::new(), false);
            Ok(Running { number, pe, pid, gate, tool, output, failure, said, cut })
        };
        let made = made().map_err(|e| format!("no debugger can be started: {e}"))?;
        let output = made.output.as_fd();
        let watched = watch(&self.epoll, output, Token::Debugger(slot), EpollFlags::EPOLLIN);
        if watched.is_err() {
            made.signal(Signal::SIGKILL);
        }
        let pid = made.pid.as_raw().unsigned_abs();
        self.debuggers.running.insert(slot, made);
        self.tell(FromShepherd::DebuggerMade(Made { number, nid, pid, spawned: false }));
        Ok(())
    }

    /// Its output has come.
    pub(super) fn debugger_ready(&mut self, slot: usize) {
        let Some(one) = self.debuggers.running.get_mut(&slot) else { return };
        for _ in 0..TURNS {
            match one.read(&mut self.buffer) {
                Got::Some(_) => {}
                Got::Nothing => return,
                Got::End => {
                    let _ = self.epoll.delete(&one.output);
                    return;
                }
            }
        }
    }

    pub(super) fn lets_debugger_work(&mut self, number: u64) {
        if let Some(gate) = self.debuggers.of(number).and_then(|(_, one)| one.gate.take()) {
            attaching::open(gate);
        }
    }

    pub(super) fn ends_debugger(&mut self, number: u64) {
        if let Some((_, one)) = self.debuggers.of(number) {
            one.signal(Signal::SIGKILL);
        }
    }

    pub(super) fn leaves_debugger(&mut self, number: u64) {
        let slot = self.debuggers.of(number).map(|(slot, _)| slot);
        if let Some(one) = slot.and_then(|slot| self.debuggers.leave(slot)) {
            let _ = self.epoll.delete(&one.output);
        }
    }

    /// A debugger has been waited for.
    pub(super) fn debugger_ended(&mut self, pid: i32, change: Change) {
        if matches!(change, Change::Stopped(_)) {
            return;
        }
        if let Some(pe) = self.debuggers.left.remove(&pid) {
            return self.look_after(pe);
        }
        let all = self.debuggers.running.iter();
        let of = all.map(|(slot, one)| (*slot, one.pid.as_raw())).find(|(_, of)| *of == pid);
        let Some(mut one) = of.and_then(|(slot, _)| self.debuggers.running.remove(&slot)) else {
            return;
        };
        // What it has started ends with it.
        let _ = killpg(one.pid, Signal::SIGKILL);
        let mut left = LAST;
        while let Got::Some(count) = one.read(&mut self.buffer) {
            left = left.saturating_sub(count);
            if left == 0 {
                break;
            }
        }
        let _ = self.epoll.delete(&one.output);
        // (A debugger that has failed may not have detached either.)
        if one.gate.is_none() && change != Change::Exited(0) {
            self.look_after(one.pe);
        }
        let said = match (one.failed(), change) {
            (Some(why), _) => Err(why),
            (None, Change::Died(signal)) => {
                let (name, host) = (one.tool.name(), hostname());
                Err(format!("{name} was killed by signal {signal} on host {host}: ask again"))
            }
            (None, _) => stacks_in(one.tool, &one.said, one.cut),
        };
        self.happens(Event::DebuggerEnded { number: one.number, said });
    }

    /// The debugger of this PE has died. Without control groups gangs are stopped by signals, too: what stops later
    /// may be the end of its turn, and it is looked once.
    fn look_after(&mut self, pe: Pid) {
        let how_long = if self.groups.is_empty() { Duration::ZERO } else { AFTER };
        self.debuggers.looks_after(pe, how_long);
    }

    /// The PEs of those that were killed.
    pub(super) fn look_after_debuggers(&mut self) {
        if self.debuggers.look() {
            let pes = &self.pes;
            let of = |pid: Pid| pes.all.get(pes.of_pid(pid.as_raw())?).filter(|pe| !pe.ended);
            self.debuggers.after.retain(|(pe, _)| of(*pe).is_some());
            let wanted = |pid: Pid| of(pid).is_some_and(|pe| pe.stop_wanted);
            self.debuggers.let_go_on(monotonic_ns(), wanted);
        }
    }

    /// Nobody waits for them any more: they are gone when this returns, unless the kernel holds them.
    pub(super) fn end_debuggers(&mut self) {
        for one in self.debuggers.running.values() {
            one.signal(Signal::SIGKILL);
        }
        let begun = monotonic_ns();
        let late = || Duration::from_nanos(monotonic_ns().saturating_sub(begun)) > DYING;
        let flags = Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL);
        while let Some((slot, pid)) =
            self.debuggers.running.iter().map(|(slot, one)| (*slot, one.pid)).next()
        {
            match waitpid(pid, flags) {
                Ok(WaitStatus::StillAlive) if !late() => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                // (Waited for when it ends; its PE is looked at then.)
                Ok(WaitStatus::StillAlive) => {
                    if let Some(one) = self.debuggers.leave(slot) {
                        let _ = self.epoll.delete(&one.output);
                    }
                }
                _ => {
                    if let Some(one) = self.debuggers.running.remove(&slot) {
                        let _ = self.epoll.delete(&one.output);
                        // (At its gate it has done nothing.)
                        if one.gate.is_none() {
                            self.look_after(one.pe);
                        }
                    }
                }
            }
        }
        self.look_after_debuggers();
    }
}

fn looked(pe: &Pe, frozen: bool) -> Looked {
    let Some((tid, state)) = (!pe.ended).then(|| alive(pe.pid)).flatten() else {
        return Looked { pid: 0, standing: Standing::Ended };
    };
    let pid = pe.pid.as_raw();
    let standing = match () {
        () if pe.tracer.as_ref().is_some_and(|own| tracer_of(pid) == Some(own.pid.as_raw())) => {
            let kind = pe.tracer.as_ref().map_or("", |own| own.kind.described());
            Standing::Traced(kind.to_owned())
        }
        () => match tracer_of(tid.as_raw()) {
            Some(tracer) if !frozen => Standing::Traced(named(tracer)),
            _ if frozen => Standing::Frozen,
            _ if state == b'T' => Standing::Stopped,
            _ => Standing::Runs,
        },
    };
    Looked { pid: pid.unsigned_abs(), standing }
}

/// A process, for people.
fn named(pid: i32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    let name: String = name.trim().chars().filter(|c| !steers(*c)).take(16).collect();
    if name.is_empty() { format!("process {pid}") } else { format!("{name} (process {pid})") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    impl Sleeper {
        fn new() -> Sleeper {
            Sleeper(Command::new("sleep").arg("1000").spawn().expect("a sleep"))
        }

        fn pid(&self) -> Pid {
            Pid::from_raw(self.0.id() as i32)
        }
    }

    fn until(what: &str, holds: impl Fn() -> bool) {
        let begun = std::time::Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_a_killed_debugger_has_stopped_goes_on() {
        let sleeper = Sleeper::new();
        let pid = sleeper.pid();
        assert!(!stopped_by_debugger(pid));
        kill(pid, Signal::SIGSTOP).expect("ours");
        until("it stops", || state_of(pid) == Some(b'T'));
        let mut debuggers = Debuggers { after: vec![(pid, u64::MAX)], ..Debuggers::default() };
        debuggers.let_go_on(0, |_| false);
        assert!(!debuggers.look());
        until("it goes on", || state_of(pid) == Some(b'S'));
        // One that does not stand is looked at for a while, and left alone.
        debuggers.after.push((pid, 10));
        debuggers.let_go_on(9, |_| false);
        assert!(debuggers.look());
        debuggers.let_go_on(10, |_| false);
        assert!(!debuggers.look());
        // Nor one that a user has stopped meanwhile.
        kill(pid, Signal::SIGSTOP).expect("ours");
        until("it stops", || state_of(pid) == Some(b'T'));
        debuggers.after.push((pid, u64::MAX));
        debuggers.let_go_on(0, |pe| pe == pid);
        assert_eq!((debuggers.look(), state_of(pid)), (false, Some(b'T')));
    }

    #[test]
    fn the_pe_of_a_debugger_that_is_left_is_looked_at_when_that_ends() {
        let (output, _writes) = pipe().expect("a pipe");
        let (failure, _fails) = pipe().expect("a pipe");
        let (pe, pid) = (Pid::from_raw(7), Pid::from_raw(8));
        let (gate, tool, said, cut) = (None, Tool::Gdb, Vec::new(), false);
        let one = Running { number: 5, pe, pid, gate, tool, output, failure, said, cut };
        let mut debuggers = Debuggers { running: [(0, one)].into(), ..Debuggers::default() };
        assert!(debuggers.is_one(8));
        assert!(debuggers.leave(0).is_some());
        // It has no place any more, and is no other process's child.
        assert!(debuggers.running.is_empty() && debuggers.is_one(8));
        assert_eq!(debuggers.left.remove(&8), Some(pe));
    }

    #[test]
    fn it_has_a_part_of_the_memory_that_a_limit_leaves() {
        let of = |max: &str| part_of(max, "3000\n", "anon 500\nfile 2500\nshmem 500\n");
        assert_eq!(of("10000\n"), Some(1000));
        assert_eq!((of("max\n"), of("900\n")), (None, Some(0)));
        assert_eq!(part_of("1800", "0", ""), Some(200));
    }

    #[test]
    fn it_is_told_to_read_nothing_of_the_users() {
        let pe = Pid::from_raw(7);
        let line = command(Tool::Gdb, pe, &[]).join(" ");
        for word in ["-nx", "-batch", "set auto-load no", "debuginfod enabled off", "attach 7 "] {
            assert!(line.contains(word), "{line}");
        }
        assert_eq!(command(Tool::EuStack, pe, &[]).join(" "), "eu-stack -n 128 -p 7");
        let line = command(Tool::Gdb, pe, &[Pid::from_raw(8), Pid::from_raw(9)]).join(" ");
        assert!(!line.contains("attach 7") && line.contains("attach 8 -ex thread"), "{line}");
        assert!(line.contains("detach -ex attach 9 "), "{line}");
    }
}
