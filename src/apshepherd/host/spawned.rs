//! What PEs spawn, as processes: each an `aprun --inside`, which starts the new PEs.
//!
//! It runs as a PE would: in the environment, the directory and the limits of the launch, on the processors of the PE that
//! has spawned it. What it and its PEs write goes where that PE's output goes, into the same pipes. Until it is in the
//! control group of the PE's node, it waits ([`super::attaching`]).

use super::attaching::{self, Attaching, Waiting};
use super::pes::pipe;
use super::program;
use super::*;
use crate::aprun::host::signals::PASSED_ON;
use crate::apshepherd::decide::spawn::Request;
use crate::apteam::launch::{Spawned as World, is_variable};
use crate::os::affinity;
use crate::os::fork::Failure;
use nix::unistd::{AccessFlags, Pid, access};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

/// The program.
const PROGRAM: &str = "aprun";
/// Variables that are options of an aprun: they were the outer one's.
const OPTIONS: [&str; 3] = ["APRUN_LABEL", "APRUN_SYNC_TTY", "MPIEXEC_TIMEOUT"];
/// Bytes of one word of a command line, with its null byte.
const WORD_MAX: usize = 128 * 1024;
/// Threads of a PE of which it is looked where they may run.
const THREADS_MAX: usize = 256;

/// The processes that have not ended, by the number of what was spawned.
#[derive(Debug, Default)]
pub(super) struct Spawned(BTreeMap<u64, One>);

#[derive(Debug)]
struct One {
    pid: Pid,
    /// The PE that has spawned it.
    rank: u32,
    nid: Nid,
    /// It waits there; `None`: no more.
    gate: Option<OwnedFd>,
    /// Where it says why it could not be executed.
    failure: OwnedFd,
}

impl Spawned {
    /// Whether this process is one.
    pub fn is_one(&self, pid: i32) -> bool {
        self.0.values().any(|one| one.pid.as_raw() == pid)
    }

    /// Lets it become aprun.
    pub fn let_run(&mut self, number: u64) {
        if let Some(gate) = self.0.get_mut(&number).and_then(|one| one.gate.take()) {
            attaching::open(gate);
        }
    }

    /// Kills it.
    pub fn end(&mut self, number: u64) {
        if let Some(one) = self.0.get(&number) {
            let _ = kill(one.pid, Signal::SIGKILL);
        }
    }

    /// Passes a signal on: aprun gets what it passes on itself, and its PEs the others.
    pub fn signal(&self, signal: Signal) {
        for one in self.0.values() {
            let (aprun, all) = (one.pid.as_raw(), || descend::descendants_of(one.pid.as_raw()));
            let to = match signal {
                // (It is no aprun yet, and would die of it.)
                _ if one.gate.is_some() => match signal {
                    Signal::SIGTERM => vec![one.pid],
                    _ => Vec::new(),
                },
                Signal::SIGSTOP | Signal::SIGCONT => all().into_iter().chain([one.pid]).collect(),
                signal if PASSED_ON.contains(&signal) => vec![one.pid],
                _ => {
                    let children = descend::children_of(aprun).into_iter();
                    children.flat_map(descend::descendants_of).collect()
                }
            };
            send(to, signal);
            if signal == Signal::SIGTERM {
                // A process that is stopped hears it only when it goes on.
                send(all().into_iter().chain([one.pid]), Signal::SIGCONT);
            }
        }
    }
}

/// Sends a signal to processes, of which some may have ended.
fn send(to: impl IntoIterator<Item = Pid>, signal: Signal) {
    for pid in to {
        let _ = kill(pid, signal);
    }
}

/// The program itself: beside this one, or in PATH of the PEs.
fn find(launch: &HostLaunch) -> Option<PathBuf> {
    let path = launch.launch.environment.iter().find_map(|item| item.strip_prefix(b"PATH="));
    let folders = std::env::split_paths(OsStr::from_bytes(path.unwrap_or_default()));
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    let mut all = beside.into_iter().chain(folders.map(|folder| folder.join(PROGRAM)));
    all.find(|file| file.is_file() && access(file, AccessFlags::X_OK).is_ok())
}

/// The command line for a request.
///
/// # Errors
/// It can't be written as one; in words.
fn command(launch: &HostLaunch, request: &Request) -> Result<Vec<Vec<u8>>, String> {
    let wireup = match (request.pmix.is_empty(), launch.launch.pmi_port) {
        // (appmix is there already, and the apshepherd of it is told.)
        (false, _) => "--pmi=none",
        (true, true) => "--pmi=port",
        (true, false) => "--pmi=pmi1",
    };
    // (How many there may be the apshepherd has decided. What is spawned at different times is to be on different
    // processors: Linux chooses them.)
    let options = [PROGRAM, "--inside", "-q", "--oversubscribe", "-cc", "none", wireup];
    let mut words: Vec<Vec<u8>> = options.iter().map(|word| word.as_bytes().to_vec()).collect();
    if launch.launch.rendezvous.is_none() {
        words.push(b"--env=none".to_vec());
    }
    if let Some(first) = request.programs.first().filter(|first| !first.folder.is_empty()) {
        words.extend([b"--chdir".to_vec(), first.folder.clone()]);
    }
    // (Open MPI gives each program the same ones.)
    let mut variables: Vec<&Vec<u8>> = Vec::new();
    for variable in request.programs.iter().flat_map(|program| &program.environment) {
        if !variables.contains(&variable) {
            variables.push(variable);
        }
    }
    words.extend(variables.into_iter().flat_map(|variable| [b"-e".to_vec(), variable.clone()]));
    for (index, program) in request.programs.iter().enumerate() {
        if index > 0 {
            words.push(b":".to_vec());
        }
        words.extend([b"-n".to_vec(), program.pes.to_string().into_bytes()]);
        if request.programs.len() == 1 {
            words.push(b"--".to_vec());
        } else if program.command.starts_with(b"-")
            || program.command == b":"
            || program.arguments.iter().any(|word| word == b":")
        {
            return Err("one of several programs has a name that begins with -, or a lone colon for its name or an argument".into());
        }
        words.push(program.command.clone());
        words.extend_from_slice(&program.arguments);
    }
    match words.iter().any(|word| word.len() >= WORD_MAX) {
        true => Err(format!("a word is longer than {WORD_MAX} bytes, the maximum of Linux")),
        false => Ok(words),
    }
}

/// Another writing end of a pipe of output. Where the pipe is at its end, a process has given its output another place:
/// that one, or /dev/null.
fn writing_end(pipe: Option<&OwnedFd>, process: Pid, number: RawFd) -> io::Result<OwnedFd> {
    let path = match pipe {
        Some(pipe) => format!("/proc/self/fd/{}", pipe.as_raw_fd()),
        None => match descriptor_of(process, number) {
            Some(own) => return high(own),
            None => "/dev/null".to_owned(),
        },
    };
    high(File::options().write(true).open(path)?.into())
}

/// A descriptor of a process of the same user's, if it can be had.
fn descriptor_of(process: Pid, number: RawFd) -> Option<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(process.as_raw())?;
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok()
}

impl Shell {
    pub(super) fn spawns(&mut self, number: u64, rank: u32, request: &Request) {
        let event = match self.try_spawn(number, rank, request) {
            Ok((nid, pid)) => Event::SpawnMade { number, nid, pid },
            Err(why) => Event::SpawnEnded { number, end: Err(why) },
        };
        self.happened.push(event);
    }

    fn try_spawn(
        &mut self,
        number: u64,
        rank: u32,
        request: &Request,
    ) -> Result<(Nid, u32), String> {
        let launch = self.launch.as_deref().ok_or("it has not been launched")?;
        let local = launch.pes.iter().find(|pe| pe.rank == rank).ok_or("it is not on this host")?;
        // (What it has spawned may spawn after its end.)
        let beside = self.spawned.0.values().find(|one| one.rank == rank).map(|one| one.pid);
        let (_, pe) = self.pes.of_rank(rank).ok_or("it has ended")?;
        let of = if pe.ended { beside.ok_or("it has ended")? } else { pe.pid };
        let path = find(launch).ok_or("its host has no aprun beside its apshepherd or in PATH")?;
        let words = command(launch, request)?;
        let mut program = program::in_place_of(launch, &path, &words, self.soft_files)
            .map_err(|refusal| refusal.text)?;
        let folder = request.programs.first().map(|program| &program.path[..]);
        let folder = folder.filter(|folder| !folder.is_empty());
        program.environment = for_aprun(&program.environment, folder)?;
        let (entries, pmix) = (request.entries.clone(), request.pmix.clone());
        let world = World { entries, pmix }.text(launch.launch.shares);
        let world = [World::VARIABLE.as_bytes(), b"=", &world].concat();
        if world.len() >= WORD_MAX {
            return Err(format!("what its PEs are to find takes more than {WORD_MAX} bytes"));
        }
        let mut environment = program::own_environment(launch, local);
        environment.push(CString::new(world).map_err(|_| "a null byte in a value".to_owned())?);
        let (cpus, nid) = (processors(of.as_raw(), &local.cpus), pe.nid);
        if cpus.is_empty() {
            return Err("it has ended".to_owned());
        }
        let made = || -> io::Result<One> {
            let (failure, fails) = pipe()?;
            super::pes::nonblocking(&failure)?;
            let null = high(File::options().read(true).open("/dev/null")?.into())?;
            let [stdout, stderr] = &pe.output;
            let stdout = writing_end(stdout.fd.as_ref(), of, libc::STDOUT_FILENO)?;
            let stderr = writing_end(stderr.fd.as_ref(), of, libc::STDERR_FILENO)?;
            let attaching = Attaching {
                index: 0,
                environment,
                cpus: &cpus,
                nice: local.nice,
                stdio: [null.as_fd(), stdout.as_fd(), stderr.as_fd()],
                group: None,
                placing: None,
                failures: fails.as_fd(),
            };
            let Waiting { pid, gate } = attaching.start(&program)?;
            Ok(One { pid, rank, nid, gate: Some(gate), failure })
        };
        let one = made().map_err(|e| format!("no process can be started: {e}"))?;
        let pid = one.pid.as_raw().unsigned_abs();
        self.spawned.0.insert(number, one);
        Ok((nid, pid))
    }

    /// It has been waited for.
    pub(super) fn spawned_ended(&mut self, pid: i32, change: Change) {
        let end = match change {
            Change::Stopped(_) => return,
            Change::Exited(code) => PeEnd::Exit(code),
            Change::Died(signal) => PeEnd::Signal(signal),
        };
        let number =
            self.spawned.0.iter().find(|(_, one)| one.pid.as_raw() == pid).map(|(n, _)| *n);
        let Some((number, one)) = number.and_then(|n| Some((n, self.spawned.0.remove(&n)?))) else {
            return;
        };
        let killed = end == PeEnd::Signal(Signal::SIGKILL as i32);
        if let Some(over_limit) = killed.then(|| self.limits.memory_kill(one.nid)).flatten() {
            self.happens(Event::MemoryKill { nid: one.nid, over_limit });
        }
        let mut record = [0; Failure::SIZE];
        let failed = nix::unistd::read(&one.failure, &mut record) == Ok(Failure::SIZE);
        let end = match Failure::parse(&record).filter(|_| failed) {
            Some(failure) => {
                Err(format!("aprun can't be executed: {}", Errno::from_raw(failure.errno).desc()))
            }
            None => Ok(end),
        };
        self.happens(Event::SpawnEnded { number, end });
    }
}

/// The processors of a PE: those of its launch, also if the program has bound all its threads to some of them; after the
/// PE has been moved, those on which its threads may run now. Empty: it has ended.
fn processors(pid: i32, launched: &[u32]) -> Vec<u32> {
    let threads = debuggers::threads_of(Pid::from_raw(pid)).take(THREADS_MAX);
    let own = threads.filter_map(|tid| affinity::get(tid.as_raw()).ok()).flatten();
    let own: BTreeSet<u32> = own.collect();
    match !own.is_empty() && own.iter().all(|cpu| launched.contains(cpu)) {
        true => launched.to_vec(),
        false => own.into_iter().collect(),
    }
}

/// An environment without what is an option of aprun's, and with this folder (or several, with colons) before the others
/// in PATH.
fn for_aprun(environment: &[CString], folder: Option<&[u8]>) -> Result<Rc<[CString]>, String> {
    let is = |item: &CString, name: &str| is_variable(item.as_bytes(), name.as_bytes());
    let (mut paths, mut others): (Vec<CString>, Vec<CString>) = environment
        .iter()
        .filter(|item| !OPTIONS.iter().any(|name| is(item, name)))
        .cloned()
        .partition(|item| is(item, "PATH"));
    if let Some(folder) = folder {
        let own = paths.pop().map(|path| [b":", &path.as_bytes()["PATH=".len()..]].concat());
        let whole = [b"PATH=", folder, &own.unwrap_or_default()].concat();
        paths = vec![CString::new(whole).map_err(|_| "a null byte in a path".to_owned())?];
    }
    others.extend(paths);
    Ok(others.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aprun_has_the_environment_of_the_pe_but_for_options() {
        let all = |items: &[&str]| -> Vec<CString> {
            items.iter().map(|item| CString::new(*item).expect("text")).collect()
        };
        let own = all(&["PATH=/bin", "APRUN_LABEL=1", "APRUN_LABELS=1", "A=1"]);
        let of = |folder: Option<&[u8]>| for_aprun(&own, folder).expect("no null byte").to_vec();
        assert_eq!(of(None), all(&["APRUN_LABELS=1", "A=1", "PATH=/bin"]));
        assert_eq!(of(Some(b"/a:/b")), all(&["APRUN_LABELS=1", "A=1", "PATH=/a:/b:/bin"]));
        assert_eq!(for_aprun(&[], Some(b"/a")).expect("good").to_vec(), all(&["PATH=/a"]));
    }

    #[test]
    fn a_pe_has_the_processors_of_its_launch_unless_it_was_moved() {
        let own = std::process::id() as i32;
        let all = affinity::get(own).expect("it lives");
        let more: Vec<u32> = all.iter().copied().chain([100_000]).collect();
        assert_eq!(processors(own, &more), more);
        assert_eq!(processors(own, &[100_000]), all);
        assert_eq!(processors(-1, &all), [0; 0]);
    }
}
