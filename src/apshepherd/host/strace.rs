//! PEs under strace (`aprun --strace`): one strace for each, and a file for each.
//!
//! # Problem
//! What runs under strace is to run as without it. If strace started the program, the PE would be strace: it
//! would get the signals, say the status, have the pid, and nobody could say before the first instruction
//! whether the program can be executed at all.
//!
//! # Approach
//! The PE is what it always is, a child of the apshepherd that stands after its execve. strace is a process
//! beside it, which is made with it, in the same control group (so it is frozen in turns of others, and counts
//! for the limits of the node), and attaches to it there:
//!
//! ```text
//!   PE       fork -- execve, stands -- detached with SIGSTOP ..... SIGCONT -- first instruction
//!   strace   fork -- waits -------------- execve strace -p PE: attached
//!                                                                  ^ when all PEs of all hosts are so far
//! ```
//!
//! A stop by SIGSTOP outlives the end of one tracer and the beginning of the next: between the two the PE
//! runs no instruction. If strace does not attach (it does not know an option, or may not trace a program
//! that nobody may read), no PE runs.
//!
//! The file is opened here, with the user's rights and no others, and is strace's stderr. In a folder where
//! others may write, a link or a file of somebody else's may have its name: it has to be a file of the user's
//! own, with this name only.

use super::program::Refusal;
use crate::apteam::launch::{HostLaunch, LocalPe};
use crate::os::fork::Program;
use crate::os::host::hostname;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{AccessFlags, Pid, Uid, access, ftruncate};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// How long it may take until strace has attached.
pub const ATTACH: Duration = Duration::from_secs(30);
/// Bytes of the program's name in the file's.
const NAME_MAX: usize = 180;
/// Where it is looked for if the user has no PATH.
const PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// strace, with what all PEs have in common.
#[derive(Debug)]
pub struct Strace {
    program: CString,
    options: Vec<CString>,
    environment: Rc<[CString]>,
    directory: PathBuf,
}

impl Strace {
    /// That of a launch, if its PEs are to run under strace.
    ///
    /// # Errors
    /// It is not on this host.
    pub fn of(launch: &HostLaunch, environment: Rc<[CString]>) -> Result<Option<Strace>, Refusal> {
        let Some(strace) = &launch.launch.strace else { return Ok(None) };
        let missing = || {
            let text = format!(
                "strace is not on host {}: install the package strace there, or leave out --strace",
                hostname()
            );
            Refusal::of_strace(text)
        };
        let program = find(&launch.launch.environment).ok_or_else(missing)?;
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| missing());
        let options = strace.options.iter().map(|option| text(option));
        Ok(Some(Strace {
            program: text(program.as_os_str().as_bytes())?,
            options: options.collect::<Result<_, _>>()?,
            environment,
            directory: OsStr::from_bytes(&launch.launch.directory).into(),
        }))
    }

    /// What traces this process.
    pub fn tracing(&self, pe: Pid) -> Program {
        let mut arguments = vec![c"strace".to_owned()];
        arguments.extend(self.options.iter().cloned());
        arguments.push(c"-p".to_owned());
        arguments.extend(CString::new(pe.to_string()).ok());
        Program {
            executable: self.program.clone(),
            arguments,
            environment: Rc::clone(&self.environment),
            directory: c"/".to_owned(),
            umask: 0o077,
            // Those of PEs (-t, say) are not for it.
            limits: Vec::new(),
        }
    }

    /// The file of a PE, empty.
    ///
    /// # Errors
    /// It can't be made, or what is there is not to be written to.
    pub fn file(&self, launch: &HostLaunch, pe: &LocalPe) -> Result<OwnedFd, Refusal> {
        let path = self.directory.join(name(launch, pe));
        open_own(&path).map_err(|(errno, why)| {
            let why = why.unwrap_or(errno.desc());
            Refusal::of_strace(format!("its strace file {}: {why}", path.display()))
        })
    }
}

/// `a.out.12.3.strace`
fn name(launch: &HostLaunch, pe: &LocalPe) -> PathBuf {
    let part = launch.launch.part_of(pe.rank);
    let program = Path::new(OsStr::from_bytes(launch.launch.program(part).executable));
    let program = program.file_name().unwrap_or_default().as_bytes();
    let program = &program[..program.len().min(NAME_MAX)];
    let rest = format!(".{}.{}.strace", launch.key.apid, pe.rank);
    OsStr::from_bytes(&[program, rest.as_bytes()].concat()).into()
}

/// Opens a file of this user's own, new or emptied.
fn open_own(path: &Path) -> Result<OwnedFd, (Errno, Option<&'static str>)> {
    let plain = |errno| (errno, None);
    // (One that is no file is not waited for.)
    let flags = OFlag::O_RDWR
        | OFlag::O_CREAT
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY
        | OFlag::O_CLOEXEC;
    let file = open(path, flags, Mode::S_IRUSR | Mode::S_IWUSR).map_err(|errno| match errno {
        Errno::ELOOP => (errno, Some("it is a symbolic link: remove it")),
        errno => (errno, None),
    })?;
    let stat = fstat(&file).map_err(plain)?;
    let regular = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    if !regular || stat.st_uid != Uid::effective().as_raw() || stat.st_nlink != 1 {
        return Err((
            Errno::EEXIST,
            Some("what has this name is not a file of yours alone: remove it"),
        ));
    }
    ftruncate(file.as_fd(), 0).map_err(plain)?;
    Ok(file)
}

/// Where strace is.
fn find(environment: &[Vec<u8>]) -> Option<PathBuf> {
    let path = environment.iter().rev().find_map(|item| item.strip_prefix(b"PATH="));
    let folders = path.unwrap_or(PATH).split(|byte| *byte == b':');
    let mut all = folders.map(|folder| Path::new(OsStr::from_bytes(folder)).join("strace"));
    all.find(|file| file.is_absolute() && file.is_file() && access(file, AccessFlags::X_OK).is_ok())
}

/// Whether a SIGSTOP waits for a process that stands: it is to stay where it is.
pub fn stop_waits(pid: Pid) -> bool {
    const STOP: u64 = 1 << (libc::SIGSTOP - 1);
    let status = std::fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let waits = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    waits.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0) & STOP != 0
}

/// Why strace has ended before it had attached, by the first line that it has written.
pub fn explain(file: Option<OwnedFd>) -> String {
    let mut text = [0; 300];
    let count = file.and_then(|file| nix::sys::uio::pread(file, &mut text, 0).ok()).unwrap_or(0);
    let text = String::from_utf8_lossy(&text[..count]);
    let line = text.lines().next().map(|line| line.strip_prefix("strace: ").unwrap_or(line));
    let line = line.filter(|line| !line.is_empty()).unwrap_or("it says nothing");
    format!("strace has ended before it traced anything: {line}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_the_users_own_or_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        assert!(open_own(&at("new")).is_ok());
        std::fs::write(at("old"), "text").expect("written");
        assert!(open_own(&at("old")).is_ok());
        assert_eq!(std::fs::read(at("old")).expect("there"), b"");
        std::fs::write(at("secret"), "kept").expect("written");
        symlink(at("secret"), at("link")).expect("made");
        std::fs::hard_link(at("secret"), at("second")).expect("made");
        nix::unistd::mkfifo(&at("fifo"), Mode::S_IRWXU).expect("made");
        std::fs::create_dir(at("folder")).expect("made");
        for name in ["link", "second", "fifo", "folder", "none/there"] {
            assert!(open_own(&at(name)).is_err(), "{name}");
        }
        assert_eq!(std::fs::read(at("secret")).expect("there"), b"kept");
    }

    #[test]
    fn it_is_looked_for_where_the_user_looks() {
        let path = |text: &str| find(&[b"A=b".to_vec(), format!("PATH={text}").into_bytes()]);
        assert_eq!(path("/no/such/folder:relative:"), None);
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("strace"), "").expect("written");
        // (Nobody may execute it.)
        assert_eq!(path(folder.path().to_str().expect("text")), None);
    }

    #[test]
    fn its_first_line_says_why() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "strace: invalid system call 'x'\nmore\n").expect("written");
        let fd: OwnedFd = std::fs::File::open(file.path()).expect("there").into();
        assert_eq!(
            explain(Some(fd)),
            "strace has ended before it traced anything: invalid system call 'x'"
        );
        assert!(explain(None).ends_with("it says nothing"));
    }
}
