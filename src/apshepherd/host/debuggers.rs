//! Debuggers that write the stacks of PEs which run: `apstat --stacks`.
//!
//! # Problem
//! The program is to go on as if nothing had been, whatever becomes of the debugger. And a debugger reads files that
//! the program names; what it does it may do with the rights of the program's user only.
//!
//! # Approach
//! It is a child of the apshepherd, which is the user's and has no right that the user has not. It reads no file of
//! commands and loads no script that comes with the program. It is looked for in [`FOLDERS`], where only
//! administrators put programs, and not in the user's PATH: it is in the group of the apshepherd, which nobody
//! freezes, so no other program of the user's may be there. It has the processors of its PE, which stands meanwhile,
//! is as nice, and is stopped while its PE is frozen (`decide::stacks`).
//!
//! ptrace attaches by SIGSTOP, for each thread. If the debugger dies before its PE has taken that, the PE would stop
//! for good when it comes: so after a debugger that was killed the PE is looked at for a while ([`AFTER`]), and gets
//! SIGCONT, which takes back all of these.

use super::pes::{Got, Pe, nonblocking, pipe, read_some};
use super::*;
use crate::apshepherd::decide::{Looked, Standing, Tool, stacks_in};
use crate::apteam::protocol::stacks::{AT_ONCE, TEXT_MAX};
use crate::node::tracer::tracer as tracer_of;
use crate::os::fork::{Failure, PeSetup, Program, SetLimit, fork_pe};
use crate::os::host::hostname;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{AccessFlags, Pid, access};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
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
/// For how long it is looked whether a PE stands because of a debugger that was killed.
const AFTER: Duration = Duration::from_secs(2);
/// How often.
pub(super) const AFTER_STEP: Duration = Duration::from_millis(5);
/// How long a debugger that was killed may take to die before the connection to apinit is closed.
const DYING: Duration = Duration::from_millis(500);

/// What gdb is told: to ask nobody, to load nothing that comes with the program, to look nothing up on the network,
/// to make no threads.
const GDB: [&str; 9] = [
    "set debuginfod enabled off",
    "set auto-load no",
    "set style enabled off",
    "set print thread-events off",
    "set print inferior-events off",
    "set width 0",
    "set height 0",
    "set confirm off",
    "maint set worker-threads 0",
];

/// Those that work.
#[derive(Debug, Default)]
pub(super) struct Debuggers {
    /// By the slot of their token.
    running: BTreeMap<usize, Running>,
    /// PEs whose debugger was killed: each until when it is looked at.
    after: Vec<(Pid, u64)>,
}

#[derive(Debug)]
struct Running {
    number: u64,
    pe: Pid,
    pid: Pid,
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
        self.running.values().any(|one| one.pid.as_raw() == pid)
    }

    /// PEs are looked at whose debugger was killed.
    pub fn look(&self) -> bool {
        !self.after.is_empty()
    }

    fn of(&self, number: u64) -> Option<&Running> {
        self.running.values().find(|one| one.number == number)
    }

    /// Lets PEs go on that stand because of a debugger that was killed.
    fn let_go_on(&mut self, now_ns: u64) {
        self.after.retain(|(pe, until_ns)| {
            let attaches = tracer_of(pe.as_raw()).is_some();
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

fn command(tool: Tool, pe: Pid) -> Vec<String> {
    let (pe, backtrace) = (pe.to_string(), format!("thread apply all backtrace {FRAMES}"));
    let words: Vec<&str> = match tool {
        Tool::Gdb => {
            let before = GDB.iter().flat_map(|command| ["-iex", command]);
            let all = ["gdb", "-q", "-nx", "-batch"].into_iter().chain(before);
            all.chain(["-p", &pe, "-ex", &backtrace, "-ex", "detach"]).collect()
        }
        Tool::EuStack => vec!["eu-stack", "-n", FRAMES, "-p", &pe],
    };
    words.into_iter().map(str::to_owned).collect()
}

/// The letter for what a process does, as the kernel tells it.
fn state_of(pid: Pid) -> Option<u8> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    stat.rsplit_once(')')?.1.trim_start().bytes().next()
}

/// Whether a process has been stopped, or a SIGSTOP waits for one of its threads.
fn stopped_by_debugger(pid: Pid) -> bool {
    const STOP: u64 = 1 << (libc::SIGSTOP - 1);
    let waits = |status: &[u8]| {
        let status = String::from_utf8_lossy(status);
        let set = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
        set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0) & STOP != 0
    };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut statuses =
        threads.filter_map(|thread| std::fs::read(thread.path().join("status")).ok());
    state_of(pid) == Some(b'T') || statuses.any(|status| waits(&status))
}

fn text(word: impl Into<Vec<u8>>) -> io::Result<CString> {
    CString::new(word).map_err(|_| io::ErrorKind::InvalidInput.into())
}

impl Shell {
    pub(super) fn looks_at_pes(&self, ranks: &[u32]) -> BTreeMap<u32, Looked> {
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
        let slot = (0..AT_ONCE).find(free).ok_or("too many debuggers work already: ask again")?;
        let pe = self.pes.of_rank(rank).filter(|(_, pe)| !pe.ended).ok_or("it has ended")?.1.pid;
        let (tool, path) = find().ok_or_else(|| {
            format!(
                "neither gdb nor eu-stack is on host {} in {}: install the package gdb there (or \
                 elfutils)",
                hostname(),
                FOLDERS.join(", ")
            )
        })?;
        let all = self.launch.as_ref().map_or(&[][..], |launch| &launch.pes);
        let nice = all.iter().find(|pe| pe.rank == rank).map_or(0, |pe| pe.nice);
        // (By the kernel, for one that has bound itself elsewhere too.)
        let cpus = crate::os::affinity::get(pe.as_raw()).unwrap_or_default();
        let cpus: Vec<u32> = cpus.into_iter().collect();
        let made = || -> io::Result<Running> {
            let (output, writes) = pipe()?;
            let (failure, fails) = pipe()?;
            let (gate, opens) = pipe()?;
            nonblocking(&output)?;
            nonblocking(&failure)?;
            let null = high(File::options().read(true).open("/dev/null")?.into())?;
            let arguments: io::Result<_> = command(tool, pe).into_iter().map(text).collect();
            let environment = [format!("PATH={}", FOLDERS.join(":")), "LC_ALL=C".into()];
            let environment: io::Result<Vec<CString>> = environment.into_iter().map(text).collect();
            let limits = [
                SetLimit::both(libc::RLIMIT_CPU, CPU_S, CPU_S),
                SetLimit::both(libc::RLIMIT_DATA, DATA, DATA),
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
            let setup = PeSetup {
                index: 0,
                environment: Vec::new(),
                cpus: &cpus,
                nice,
                stdio: [null.as_fd(), writes.as_fd(), writes.as_fd()],
                pmi: None,
                group: None,
                placing: None,
                gate: Some(gate.as_fd()),
                lends: false,
                failures: fails.as_fd(),
            };
            nix::unistd::write(opens, &[1])?;
            let pid = Pid::from_raw(fork_pe(&program, &setup)?);
            let (said, cut) = (Vec::new(), false);
            Ok(Running { number, pe, pid, tool, output, failure, said, cut })
        };
        let made = made().map_err(|e| format!("no debugger can be started: {e}"))?;
        let output = made.output.as_fd();
        let watched = watch(&self.epoll, output, Token::Debugger(slot), EpollFlags::EPOLLIN);
        if watched.is_err() {
            made.signal(Signal::SIGKILL);
        }
        self.debuggers.running.insert(slot, made);
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

    pub(super) fn pauses_debugger(&mut self, number: u64, pause: bool) {
        if let Some(one) = self.debuggers.of(number) {
            one.signal(if pause { Signal::SIGSTOP } else { Signal::SIGCONT });
        }
    }

    pub(super) fn ends_debugger(&mut self, number: u64) {
        if let Some(one) = self.debuggers.of(number) {
            one.signal(Signal::SIGKILL);
        }
    }

    /// A debugger has been waited for.
    pub(super) fn debugger_ended(&mut self, pid: i32, change: Change) {
        let all = self.debuggers.running.iter();
        let of = all.map(|(slot, one)| (*slot, one.pid.as_raw())).find(|(_, of)| *of == pid);
        if matches!(change, Change::Stopped(_)) {
            return;
        }
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
        let said = match (one.failed(), change) {
            (Some(why), _) => Err(why),
            (None, Change::Died(signal)) => {
                let until_ns = monotonic_ns().saturating_add(AFTER.as_nanos() as u64);
                self.debuggers.after.push((one.pe, until_ns));
                let (name, host) = (one.tool.name(), hostname());
                Err(format!("{name} was killed by signal {signal} on host {host}: ask again"))
            }
            (None, _) => stacks_in(one.tool, &one.said, one.cut),
        };
        self.happens(Event::DebuggerEnded { number: one.number, said });
    }

    /// The PEs of those that were killed.
    pub(super) fn look_after_debuggers(&mut self) {
        if self.debuggers.look() {
            let pes = &self.pes;
            let lives = |pid: Pid| pes.of_pid(pid.as_raw()).is_some_and(|at| !pes.all[at].ended);
            self.debuggers.after.retain(|(pe, _)| lives(*pe));
            self.debuggers.let_go_on(monotonic_ns());
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
                // (Waited for when it ends, as somebody's child.)
                Ok(WaitStatus::StillAlive) => {
                    self.debuggers.running.remove(&slot);
                }
                _ => {
                    if let Some(one) = self.debuggers.running.remove(&slot) {
                        let _ = self.epoll.delete(&one.output);
                        let until_ns = monotonic_ns().saturating_add(AFTER.as_nanos() as u64);
                        self.debuggers.after.push((one.pe, until_ns));
                    }
                }
            }
        }
        self.look_after_debuggers();
    }
}

fn looked(pe: &Pe, frozen: bool) -> Looked {
    let state = (!pe.ended).then(|| state_of(pe.pid)).flatten();
    let pid = pe.pid.as_raw();
    let standing = match state {
        None | Some(b'Z' | b'X') => return Looked { pid: 0, standing: Standing::Ended },
        Some(_)
            if pe.tracer.as_ref().is_some_and(|own| tracer_of(pid) == Some(own.pid.as_raw())) =>
        {
            let kind = pe.tracer.as_ref().map_or("", |own| own.kind.described());
            Standing::Traced(kind.to_owned())
        }
        Some(state) => match tracer_of(pid) {
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
    let name: String = name.trim().chars().filter(|c| !c.is_control()).take(16).collect();
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
        debuggers.let_go_on(0);
        assert!(!debuggers.look());
        until("it goes on", || state_of(pid) == Some(b'S'));
        // One that does not stand is looked at for a while, and left alone.
        debuggers.after.push((pid, 10));
        debuggers.let_go_on(9);
        assert!(debuggers.look());
        debuggers.let_go_on(10);
        assert!(!debuggers.look());
    }

    #[test]
    fn it_is_told_to_read_nothing_of_the_users() {
        let line = command(Tool::Gdb, Pid::from_raw(7)).join(" ");
        for word in ["-nx", "-batch", "set auto-load no", "debuginfod enabled off", "-p 7"] {
            assert!(line.contains(word), "{line}");
        }
        assert_eq!(command(Tool::EuStack, Pid::from_raw(7)).join(" "), "eu-stack -n 128 -p 7");
    }
}
