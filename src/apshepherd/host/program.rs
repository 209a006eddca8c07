//! What is to be executed: looked at before the fork, checked after execve, explained on failure.
//!
//! A program is executed by its path, so that `ps` and the program itself see its name. That it is
//! the one that was posted is checked twice: the path before the fork, and, where the file itself
//! becomes the process (a script's doesn't), /proc/PID/exe while the PE stands still before user code. So a
//! file that is exchanged between the two does not run either.
//!
//! Of an application of several programs, those are looked at which PEs of this host run. What is wrong
//! with one is told with its number, from 1.

use super::mix;
use crate::aprun::decide::elf::no_interpreter;
use crate::apshepherd::decide::Event;
use crate::apteam::ending::{NO_INTERPRETER, NOT_THE_PROGRAM};
use crate::apteam::fault::Fault;
use crate::apteam::launch::{self, FileIdentity, HostLaunch, Launch, LocalPe, ServePmix};
use crate::apteam::protocol::programs::{GivenProgram, WantedProgram, name_of};
use crate::apteam::{launcher_variables, library_variables};
use crate::node::file_identity::identity;
use crate::os::claims::list;
use crate::os::fork::{PMI_FD, Program, SetLimit, Step};
use crate::os::host::hostname;
use crate::os::instance;
use crate::os::regular::{self, open_regular};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// From a PE's soft limit of CPU time (XCPU) to the hard one (KILL).
const CPU_GRACE_S: u64 = 5;
/// Names that the shepherd gives to PEs, and those by which an outer PMI server would be found.
const OWN_NAMES: [&str; 12] = [
    "ALPS_APP_PE",
    "ALPS_APP_DEPTH",
    "ALPS_APP_ID",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_FD",
    "PMI_PORT",
    "PMI_ID",
    "PMI_SPAWNED",
    launch::Spawned::VARIABLE,
    instance::APPLICATION,
    instance::INSTANCE,
];

/// Bytes that a PE of Open MPI puts, as measured (86 to 204), and some more.
const PUT_BYTES: u64 = 256;

/// Why a program can't be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// An errno, [`NO_INTERPRETER`] or [`NOT_THE_PROGRAM`].
    pub errno: i32,
    /// Names the file and the cure.
    pub text: String,
    /// Whose fault it is.
    pub fault: Fault,
}

impl Refusal {
    fn of_user(errno: Errno, text: String) -> Refusal {
        Refusal { errno: errno as i32, text, fault: Fault::User }
    }

    /// Of what is to trace PEs, which their user has asked for.
    pub fn of_tracer(text: String) -> Refusal {
        Refusal { errno: NOT_THE_PROGRAM, text, fault: Fault::User }
    }

    /// This PE is the first that could not be executed.
    pub fn of_pe(self, rank: u32) -> Event {
        let Refusal { errno, text, fault } = self;
        Event::ExecFailed { rank, errno, text, fault }
    }
}

/// The first PE of this host that runs each part.
fn first_of_parts(launch: &HostLaunch) -> BTreeMap<usize, u32> {
    let mut first: BTreeMap<usize, u32> = BTreeMap::new();
    for pe in &launch.pes {
        first.entry(launch.launch.part_of(pe.rank)).or_insert(pe.rank);
    }
    first
}

/// Looks which programs of a launch are here under their paths. Of the others copies are wanted, if the launch allows
/// that.
///
/// # Errors
/// One isn't here, with the first PE that was to run it.
pub fn look(launch: &mut HostLaunch) -> Result<Vec<WantedProgram>, (u32, Refusal)> {
    let mut wanted = Vec::new();
    for (part, rank) in first_of_parts(launch) {
        let found = own_file(&mut launch.launch, part).map_err(|refusal| (rank, refusal))?;
        wanted.extend(found);
    }
    Ok(wanted)
}

/// Puts copies in the place of programs that are not here. Of which there is none, that is taken which is at its path, if
/// it is the same.
///
/// # Errors
/// It is another, with the first PE that was to run it.
pub fn take(launch: &mut HostLaunch, programs: Vec<GivenProgram>) -> Result<(), (u32, Refusal)> {
    let first = first_of_parts(launch);
    let launch = &mut launch.launch;
    // What has not been given by now does not come.
    launch.copies = false;
    for GivenProgram { part, path, identity, why_not, digest } in programs {
        let part = part as usize;
        let Some(rank) = first.get(&part) else { continue };
        // (Of a small program the front end has said the digest itself.)
        let posted = launch.program(part).identity.and_then(|posted| posted.digest);
        let is_it = !path.is_empty() && posted.is_none_or(|posted| digest == Some(posted));
        match identity.filter(|_| is_it) {
            Some(identity) => launch.execute_copy(part, path, identity),
            None => {
                if let Some(Some(identity)) = launch.identity_mut(part) {
                    identity.digest = identity.digest.or(digest);
                }
                if let Err(mut refusal) = own_file(launch, part)
                    && !instead(launch, part)
                {
                    refusal.text = format!("{} (no copy of it was made: {why_not})", refusal.text);
                    return Err((*rank, refusal));
                }
            }
        }
    }
    Ok(())
}

/// The programs of a launch, by part, ready for forking: each that a PE of this host runs.
///
/// # Errors
/// One isn't there, or not what it was; with the first PE that was to run it.
pub fn prepare(
    launch: &HostLaunch,
    soft_files: u64,
) -> Result<BTreeMap<usize, Program>, (u32, Refusal)> {
    let first = first_of_parts(launch);
    let directory = &launch.launch.directory;
    let of_all = |refusal| (launch.pes.first().map_or(0, |pe| pe.rank), refusal);
    if let (Err(e), Some(pe)) =
        (std::fs::metadata(OsStr::from_bytes(directory)), launch.pes.first())
    {
        let errno = e.raw_os_error().unwrap_or(Errno::EINVAL as i32);
        return Err(of_all(explain(launch, pe, Step::Directory, errno)));
    }
    let environment = environment_of_all(&launch.launch).map_err(of_all)?;
    let limits = limits(launch, soft_files);
    let one = |part: usize| -> Result<Program, Refusal> {
        let launch::Program { executable, arguments, .. } = launch.launch.program(part);
        let path = path_of(&launch.launch, part);
        let file = std::fs::metadata(&path).map_err(|e| missing(&launch.launch, part, &e))?;
        check_identity(&launch.launch, part, file)?;
        let argv0 = [executable.to_vec()];
        let arguments = if arguments.is_empty() { &argv0 } else { arguments };
        Ok(Program {
            executable: no_null(executable)?,
            arguments: arguments.iter().map(|item| no_null(item)).collect::<Result<_, _>>()?,
            environment: Rc::clone(&environment),
            directory: no_null(directory)?,
            umask: launch.launch.umask,
            limits: limits.clone(),
        })
    };
    let all = first.into_iter().map(|(part, rank)| match one(part) {
        Ok(program) => Ok((part, program)),
        Err(refusal) => Err((rank, refusal)),
    });
    all.collect()
}

/// What PEs have of the user's environment.
fn environment_of_all(launch: &Launch) -> Result<Rc<[CString]>, Refusal> {
    let ours = |item: &&Vec<u8>| {
        OWN_NAMES.iter().any(|name| launch::is_variable(item, name.as_bytes()))
            || mix::NAMES.iter().any(|name| item.starts_with(name.as_bytes()))
    };
    let theirs = launch.environment.iter().filter(|item| !ours(item));
    theirs.map(|item| no_null(item)).collect()
}

/// Another program as PEs of this launch run theirs: in their environment and directory, within their limits.
///
/// # Errors
/// A null byte.
pub fn in_place_of(
    launch: &HostLaunch,
    executable: &Path,
    arguments: &[Vec<u8>],
    soft_files: u64,
) -> Result<Program, Refusal> {
    Ok(Program {
        executable: no_null(executable.as_os_str().as_bytes())?,
        arguments: arguments.iter().map(|item| no_null(item)).collect::<Result<_, _>>()?,
        environment: environment_of_all(&launch.launch)?,
        directory: no_null(&launch.launch.directory)?,
        umask: launch.launch.umask,
        limits: limits(launch, soft_files),
    })
}

/// This host may have a program that was posted on another host under another device number, or a file of its own
/// with the same bytes: then the identity in the launch becomes that of the file here. Else a copy is wanted, if the
/// launch allows that.
fn own_file(launch: &mut Launch, part: usize) -> Result<Option<WantedProgram>, Refusal> {
    let Some(posted) = launch.program(part).identity else { return Ok(None) };
    let path = path_of(launch, part);
    let there = std::fs::metadata(&path);
    if there.as_ref().is_ok_and(|there| identity(there).is_same_file(&posted)) {
        return Ok(None);
    }
    let wanted = name_of(launch.program(part).executable)
        .filter(|_| launch.copies)
        .map(|name| WantedProgram { part: part as u32, size: posted.size, name: name.to_vec() });
    if posted.digest.is_none() {
        // (What is wrong with it is told with the rest.)
        return Ok(wanted);
    }
    match same_bytes(&path, &posted) {
        Ok(Some(own)) => {
            launch.identity_mut(part).into_iter().for_each(|identity| *identity = Some(own));
            Ok(None)
        }
        Ok(None) | Err(_) if wanted.is_some() => Ok(wanted),
        Ok(None) => {
            let text = format!(
                "{} on host {} is not the file that was posted: copy it there, and post it again",
                shown(launch, part),
                hostname()
            );
            Err(Refusal::of_user(Errno::ESTALE, text))
        }
        Err(error) => Err(missing(launch, part, &error)),
    }
}

/// Has a part execute the file in the launch's folder for that. False: there is none, or it is another program.
fn instead(launch: &mut Launch, part: usize) -> bool {
    let posted = launch.program(part).identity;
    let name = name_of(launch.program(part).executable).filter(|_| !launch.instead.is_empty());
    let Some((name, posted)) = name.zip(posted) else { return false };
    let folder = PathBuf::from(OsStr::from_bytes(&launch.instead)).join(part.to_string());
    let path = folder.join(OsStr::from_bytes(name));
    match same_bytes(&path, &posted) {
        Ok(Some(own)) => {
            launch.execute_copy(part, path.into_os_string().into_vec(), own);
            true
        }
        Ok(None) | Err(_) => false,
    }
}

/// What a file is, if it has the bytes that were posted.
fn same_bytes(path: &Path, posted: &FileIdentity) -> std::io::Result<Option<FileIdentity>> {
    let mut file = open_regular(path)?;
    let before = identity(&file.metadata()?);
    if before.size != posted.size || Some(regular::digest(&mut file)?) != posted.digest {
        return Ok(None);
    }
    Ok((identity(&file.metadata()?) == before).then_some(before))
}

fn no_null(what: &[u8]) -> Result<CString, Refusal> {
    CString::new(what).map_err(|_| {
        let shown = String::from_utf8_lossy(what).into_owned();
        Refusal::of_user(Errno::EINVAL, format!("{shown:?} holds a null byte"))
    })
}

/// What the shepherd adds to the environment of a PE.
pub fn own_environment(launch: &HostLaunch, pe: &LocalPe) -> Vec<CString> {
    let depth = if pe.depth == 0 { launch.depth } else { pe.depth };
    let mut own = vec![
        format!("ALPS_APP_PE={}", pe.rank),
        format!("ALPS_APP_DEPTH={depth}"),
        format!("PMI_RANK={}", pe.rank),
        format!("PMI_SIZE={}", launch.width),
        format!("PSCHED_APPLICATION={}", launch.marker),
    ];
    if launch.launch.pmi && !launch.launch.pmi_port {
        own.push(format!("PMI_FD={PMI_FD}"));
    }
    if launch.spawned.is_some() {
        own.push("PMI_SPAWNED=1".to_owned());
    }
    if is_met(launch) {
        own.push(format!("ALPS_APP_ID={}", launch.key.apid));
    }
    own.extend(
        launcher_variables::of(launch, pe).iter().map(|(name, value)| format!("{name}={value}")),
    );
    let mut own: Vec<_> = own.into_iter().filter_map(|item| CString::new(item).ok()).collect();
    // What ends with a private instance is known by this, also if its aprun was called from
    // elsewhere.
    if let Some(folder) = std::env::var_os(instance::RUNTIME) {
        let item = [instance::INSTANCE.as_bytes(), b"=", folder.as_bytes()].concat();
        own.extend(CString::new(item).ok());
    }
    own
}

/// Whether PEs ask each one that they speak with for what it has put, because what all have put is more than a fence
/// carries. (Up to there it is cheaper to bring all to all, by the tree of hosts, than to ask through the head.)
fn asks_each(alone: bool, width: u32, pmi_max: u64) -> bool {
    !alone && u64::from(width).saturating_mul(PUT_BYTES) > pmi_max
}

/// Whether PEs find one another in one way or the other (not `--pmi=none`). If not, Open MPI 4 does not begin where it
/// finds ALPS_APP_ID.
fn is_met(launch: &HostLaunch) -> bool {
    let by_another = launch.spawned.as_ref().is_some_and(|spawned| !spawned.pmix.is_empty());
    launch.launch.pmi || launch.launch.pmix != ServePmix::No || by_another
}

/// The same, with what leads the PE to appmix, if there is one.
pub fn pe_environment(launch: &HostLaunch, pe: &LocalPe, mix: &[CString]) -> Vec<CString> {
    let mut own = own_environment(launch, pe);
    let unless_told = |(name, value): (&str, &str)| {
        let item = CString::new(format!("{name}={value}")).ok();
        item.filter(|_| !launch.launch.sets(name.as_bytes()))
    };
    if !mix.is_empty() {
        own.extend_from_slice(mix);
        own.extend(CString::new(format!("PMIX_RANK={}", pe.rank)).ok());
        if launch.launch.pmi {
            own.extend(unless_told(library_variables::PMI_1));
        }
        if asks_each(launch.alone, launch.width, launch.bounds.pmi) {
            own.extend(unless_told(library_variables::DIRECT));
        }
    }
    if !is_met(launch) {
        own.extend(unless_told(library_variables::ISOLATED));
    }
    own
}

fn limits(launch: &HostLaunch, soft_files: u64) -> Vec<SetLimit> {
    let given = &launch.launch.limits;
    // The shepherd has raised its own limit of open files; PEs are to have the one before.
    let files = SetLimit::soft(libc::RLIMIT_NOFILE, soft_files);
    let mut limits: Vec<SetLimit> = files.into_iter().collect();
    limits.extend(given.iter().filter_map(|limit| SetLimit::soft(limit.resource, limit.soft)));
    if let Some(limit) = launch.cpu_limit {
        let seconds = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
        let hard = seconds.saturating_add(CPU_GRACE_S);
        limits.extend(SetLimit::both(libc::RLIMIT_CPU, seconds, hard));
    }
    limits
}

/// Where a part's executable is, whatever this process's own directory.
fn path_of(launch: &Launch, part: usize) -> PathBuf {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    path(&launch.directory).join(path(launch.program(part).executable))
}

/// The same for messages, with the part's number where there are several.
fn shown(launch: &Launch, part: usize) -> String {
    let path = path_of(launch, part);
    match launch.parts() {
        1 => path.display().to_string(),
        _ => format!("part {}, {}", part + 1, path.display()),
    }
}

fn check_identity(launch: &Launch, part: usize, now: Metadata) -> Result<(), Refusal> {
    match launch.program(part).identity {
        Some(posted) if !identity(&now).is_same_file(&posted) => Err(changed(launch, part)),
        _ => Ok(()),
    }
}

/// Whether the process that now stands before user code is of the file that was posted. One that is
/// of another file is its interpreter's (of a script, say), as long as the path still leads to what
/// was posted.
///
/// # Errors
/// It is another one.
pub fn check_process(launch: &Launch, part: usize, pid: i32) -> Result<(), Refusal> {
    let Some(posted) = launch.program(part).identity else { return Ok(()) };
    // Not readable: a program that may be executed and not read, as the kernel guards it.
    let Ok(exe) = std::fs::metadata(format!("/proc/{pid}/exe")) else { return Ok(()) };
    if identity(&exe).is_same_file(&posted) {
        return Ok(());
    }
    let now = std::fs::metadata(path_of(launch, part)).map_err(|_| changed(launch, part))?;
    check_identity(launch, part, now)
}

fn changed(launch: &Launch, part: usize) -> Refusal {
    let text = format!("{} has changed since it was posted; post it again", shown(launch, part));
    Refusal::of_user(Errno::ESTALE, text)
}

fn missing(launch: &Launch, part: usize, error: &std::io::Error) -> Refusal {
    let errno = error.raw_os_error().unwrap_or(Errno::EINVAL as i32);
    let hint = own_shm(&path_of(launch, part).to_string_lossy(), errno);
    let text = format!("{}: {}{hint}", shown(launch, part), Errno::from_raw(errno).desc());
    Refusal { errno, text, fault: fault_of(Step::Exec, errno) }
}

/// What may lie behind a path that its user can see, and a PE can't.
fn own_shm(path: &str, errno: i32) -> &'static str {
    if path.starts_with("/dev/shm") && errno == Errno::ENOENT as i32 {
        " (an application has a /dev/shm of its own, which is empty when it begins: put the file \
         elsewhere)"
    } else {
        ""
    }
}

/// Why a PE could not be executed, for its user.
pub fn explain(launch: &HostLaunch, pe: &LocalPe, step: Step, errno: i32) -> Refusal {
    let why = Errno::from_raw(errno).desc();
    let part = launch.launch.part_of(pe.rank);
    let directory = String::from_utf8_lossy(&launch.launch.directory).into_owned();
    let text = match step {
        Step::Directory => {
            format!(
                "it can't enter its working directory {directory} on host {}: {why}{}; make it there, or \
                 give another one with --chdir",
                hostname(),
                own_shm(&directory, errno)
            )
        }
        Step::Affinity => {
            format!("it can't be bound to processors {}: {why}", list(pe.cpus.iter().copied()))
        }
        Step::Yield => format!("it can't be made nicer (nice: {why})"),
        Step::Rights => format!("it can't drop the rights of its apshepherd (capset: {why})"),
        Step::Session => format!("it can't have a session of its own: {why}"),
        Step::Files => format!("its standard files can't be set up: {why}"),
        Step::Limits => format!("its limits can't be set: {why}"),
        Step::Trace => format!(
            "it can't be held before its start (ptrace: {why}); kernel.yama.ptrace_scope must be \
             below 2, and no other process may trace it (strace -f)"
        ),
        Step::Exec => return explain_exec(&launch.launch, part, errno),
    };
    Refusal { errno: NOT_THE_PROGRAM, text, fault: fault_of(step, errno) }
}

/// Why a program could not be executed.
fn explain_exec(launch: &Launch, part: usize, errno: i32) -> Refusal {
    let why = Errno::from_raw(errno).desc();
    let path = path_of(launch, part);
    let shown = shown(launch, part);
    let fault = fault_of(Step::Exec, errno);
    let text = match (Errno::from_raw(errno), interpreter(&path)) {
        (Errno::ENOENT, Some(interpreter)) if path.exists() => {
            let text =
                format!("{shown}: {} (on host {})", no_interpreter(&interpreter), hostname());
            return Refusal { errno: NO_INTERPRETER, text, fault };
        }
        (Errno::EACCES, _) if path.is_dir() => format!("{shown} is a directory"),
        (Errno::EACCES, Some(interpreter)) if is_executable(&path) => {
            format!("{shown}: {why}; may its interpreter {interpreter} be executed?")
        }
        (Errno::EACCES, _) => format!("{shown}: {why}; is it executable (chmod +x)?"),
        (Errno::ENOEXEC, _) => format!(
            "{shown}: {why}; it is not a program for this machine, nor a script that begins with #! (a \
             source file has to be compiled first)"
        ),
        (Errno::E2BIG, _) => {
            format!("{shown}: its arguments and environment are too long: shorten them")
        }
        _ => format!("{shown}: {why}"),
    };
    Refusal { errno, text, fault }
}

/// Whose fault it is that a step has failed. What a program or a directory is the user's business to have
/// on each host; what a user may bring about is not held against the node.
fn fault_of(step: Step, errno: i32) -> Fault {
    match step {
        Step::Affinity | Step::Yield | Step::Rights | Step::Session | Step::Trace => Fault::Node,
        Step::Limits => Fault::User,
        Step::Directory | Step::Files | Step::Exec => match Errno::from_raw(errno) {
            Errno::EAGAIN | Errno::ENOMEM | Errno::ENFILE | Errno::EIO | Errno::ENOSPC => {
                Fault::Busy
            }
            _ => Fault::User,
        },
    }
}

/// Why what is to trace a PE could not be executed.
pub fn explain_tracer(launch: &HostLaunch, errno: i32) -> Refusal {
    let tool = if launch.launch.strace.is_some() { "strace" } else { "gdb" };
    Refusal::of_tracer(format!("{tool} can't be executed: {}", Errno::from_raw(errno).desc()))
}

/// How a fork failed.
pub fn explain_fork(pe: &LocalPe, error: &std::io::Error) -> Refusal {
    let text = format!("the process for PE {} could not be made: {error}", pe.rank);
    Refusal { errno: NOT_THE_PROGRAM, text, fault: Fault::Busy }
}

fn is_executable(path: &Path) -> bool {
    nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

/// Up to the first 4 KiB of a regular file.
fn head(path: &Path) -> Vec<u8> {
    let mut head = Vec::new();
    if let Ok(file) = open_regular(path) {
        let _ = file.take(4096).read_to_end(&mut head);
    }
    head
}

/// The interpreter that a script's first line names, or an ELF file's headers.
fn interpreter(path: &Path) -> Option<String> {
    let head = head(path);
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|b| *b == b'\n').next()?;
        let name = line.split(|b| b" \t".contains(b)).find(|word| !word.is_empty())?;
        return Some(String::from_utf8_lossy(name).into_owned());
    }
    elf_interpreter(&head)
}

/// PT_INTERP of a 64-bit ELF file of this byte order, if it is near the file's beginning (where
/// linkers put it).
fn elf_interpreter(head: &[u8]) -> Option<String> {
    const CLASS_64: u8 = 2;
    const PT_INTERP: u64 = 3;
    let number = |at: usize, size: usize| -> Option<u64> {
        let bytes = head.get(at..at.checked_add(size)?)?;
        let mut word = [0; 8];
        match cfg!(target_endian = "little") {
            true => word[..size].copy_from_slice(bytes),
            false => word[8 - size..].copy_from_slice(bytes),
        }
        Some(u64::from_ne_bytes(word))
    };
    if !head.starts_with(b"\x7fELF") || head.get(4) != Some(&CLASS_64) {
        return None;
    }
    let (offset, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let headers =
        (0..count.min(64)).filter_map(|i| usize::try_from(offset.checked_add(i * size)?).ok());
    let found = headers.into_iter().find(|at| number(*at, 4) == Some(PT_INTERP))?;
    let from = usize::try_from(number(found.checked_add(8)?, 8)?).ok()?;
    let length = usize::try_from(number(found.checked_add(32)?, 8)?).ok()?;
    let name = head.get(from..from.checked_add(length)?)?;
    Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::Key;
    use crate::apteam::bounds::Bounds;
    use crate::machine::Nid;
    use std::time::Duration;

    #[test]
    fn interpreters_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("script");
        std::fs::write(&script, "#! /opt/no/such -x\necho\n").expect("written");
        assert_eq!(interpreter(&script).as_deref(), Some("/opt/no/such"));
        let plain = folder.path().join("plain");
        std::fs::write(&plain, "echo\n").expect("written");
        assert_eq!(interpreter(&plain), None);
        let own = std::env::current_exe().expect("this test");
        let found = interpreter(&own).expect("a dynamic program");
        assert!(Path::new(&found).exists(), "{found}");
    }

    #[test]
    fn more_pes_than_a_fence_carries_ask_each_other() {
        let default = 64 << 20;
        assert!(!asks_each(false, 262_144, default));
        assert!(asks_each(false, 262_145, default));
        assert!(!asks_each(true, 262_145, default));
        assert!(asks_each(false, 4_097, 1 << 20));
    }

    #[test]
    fn open_mpi_is_told_so_unless_its_user_has_set_it() {
        let pe = LocalPe { rank: 3, nid: Nid(0), cpus: Vec::new(), nice: 0, depth: 1 };
        let told = |width: u32, environment: &[&str]| {
            let environment = environment.iter().map(|item| item.as_bytes().to_vec()).collect();
            let launch = HostLaunch {
                key: Key::default(),
                width,
                depth: 1,
                launch: Launch { environment, ..Launch::default() },
                pes: Vec::new(),
                process_mapping: String::new(),
                alone: false,
                others: Vec::new(),
                cpu_limit: None,
                stdin: false,
                kill_grace: Duration::default(),
                marker: String::new(),
                memory_per_pe: None,
                pids_max: None,
                bounds: Bounds::default(),
                host_index: 0,
                pmix_folder: String::new(),
                spawned: None,
                pmix_name: String::new(),
            };
            let mix = [c"PMIX_NAMESPACE=name".to_owned()];
            let all = pe_environment(&launch, &pe, &mix);
            let (name, value) = library_variables::DIRECT;
            let item = format!("{name}={value}");
            all.iter().filter(|own| own.to_bytes() == item.as_bytes()).count()
        };
        let wide = 262_145;
        assert_eq!(told(wide, &[]), 1);
        assert_eq!(told(wide, &["OMPI_MCA_pmix_base_async_modex=0"]), 0);
        assert_eq!(told(8, &[]), 0);
    }

    /// Both have status 127, and not the same cure.
    #[test]
    fn a_missing_interpreter_is_not_a_missing_program() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("script"), "#! /opt/no/such\n").expect("written");
        let errno = |name: &str| {
            let directory = folder.path().as_os_str().as_bytes().to_vec();
            let launch = Launch { directory, executable: name.into(), ..Launch::default() };
            explain_exec(&launch, 0, Errno::ENOENT as i32).errno
        };
        assert_eq!((errno("script"), errno("missing")), (NO_INTERPRETER, Errno::ENOENT as i32));
    }

    #[test]
    fn a_fifo_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("made");
        assert_eq!(interpreter(&fifo), None);
    }

    #[test]
    fn damaged_headers_do_no_harm() {
        let own = head(&std::env::current_exe().expect("this test"));
        for end in 0..own.len() {
            let _ = elf_interpreter(&own[..end]);
        }
        let mut wild = own.clone();
        wild[32..64].fill(0xff);
        assert_eq!(elf_interpreter(&wild), None);
    }
}
