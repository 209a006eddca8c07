//! PEs that something traces: strace (`aprun --strace`) or gdb (`aprun -g`); one for each, and a file for each.
//!
//! # Problem
//! What is traced is to run as without it. If strace or gdb started the program, the PE would be strace: it
//! would get the signals, say the status, have the pid, and nobody could say before the first instruction
//! whether the program can be executed at all.
//!
//! # Approach
//! The PE is what it always is, a child of the apshepherd that stands after its execve. The tracer is a process
//! beside it, which is made with it, in the same control group (so it is frozen in turns of others, and counts
//! for the limits of the node), and attaches to it there:
//!
//! ```text
//!   PE       fork -- execve, stands -- detached with SIGSTOP ..... SIGCONT -- first instruction
//!   strace   fork -- waits -------------- execve strace -p PE: attached
//!   gdb      fork -- waits -------------- execve gdb -p PE: attached ..... continue
//!                                                                  ^ when all PEs of all hosts are so far
//! ```
//!
//! A stop by SIGSTOP outlives the end of one tracer and the beginning of the next: between the two the PE
//! runs no instruction. If the tracer does not attach (strace does not know an option, or may not trace a program
//! that nobody may read), no PE runs.
//!
//! gdb itself ends that stop, and holds the PE from then on; so it is told by a pipe when to go on. The pipe has all
//! that it is to do: let the PE run until a signal comes by which programs die, write the stacks of its threads, and
//! pass the signal on. A program with a handler of its own for that signal goes on, eight times at most. The
//! file of a PE that does not die so is removed at its end.
//!
//! The file is opened here, with the user's rights and no others, and is what the tracer writes to. In a folder where
//! others may write, a link or a file of somebody else's may have its name: it has to be a file of the user's
//! own, with this name only.

use super::attaching;
use super::program::Refusal;
use crate::apteam::ending::PeEnd;
use crate::apteam::launch::{HostLaunch, LocalPe};
use crate::os::fork::Program;
use crate::os::host::hostname;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat, lstat};
use nix::unistd::{AccessFlags, Pid, Uid, access, ftruncate, unlink, write};
use std::ffi::{CString, OsStr};
use std::io::Seek;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// How long it may take until a tracer has attached.
pub const ATTACH: Duration = Duration::from_secs(30);
/// Bytes of the program's name in the file's.
const NAME_MAX: usize = 180;
/// Where a tracer is looked for if the user has no PATH.
const PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";
/// What gdb is told as soon as it is there: by which signals programs die with a core. (In a command of its own it
/// shows no table of them. "all" is without SIGTRAP, which is gdb's own, and SIGINT.)
const SIGNALS: &str = "\
define signals
handle all nostop noprint pass
handle SIGINT nostop noprint pass
handle SIGSEGV SIGBUS SIGFPE SIGILL SIGABRT SIGSYS SIGQUIT SIGXCPU stop print pass
end
signals
set $stop = 0
";
/// What it does when the PE may run: it lets it run, and writes the stacks once it stops. At the end of the PE the
/// loop ends with an error.
const STACKS: &str = "\
while $stop < 8
continue
thread apply all backtrace 256
set $stop = $stop + 1
end
";
/// What of the file is looked at for a stack, in bytes: before it stands what gdb says of new programs (execve).
const LOOKED_AT: usize = 64 << 10;
/// Of a file that is so long, in bytes, what gdb says of its beginning is taken out.
const CLEANED_MAX: usize = 1 << 20;

/// What traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// System calls.
    Strace,
    /// The stacks of those that die by a signal.
    Gdb,
}

impl Kind {
    /// Of the program, and of its package.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Strace => "strace",
            Kind::Gdb => "gdb",
        }
    }

    /// aprun's.
    fn option(self) -> &'static str {
        match self {
            Kind::Strace => "--strace",
            Kind::Gdb => "-g",
        }
    }

    /// In a message about a PE that it traces.
    pub fn described(self) -> &'static str {
        match self {
            Kind::Strace => "strace (aprun --strace)",
            Kind::Gdb => "gdb (aprun -g)",
        }
    }

    /// What the name of a file ends with.
    fn suffix(self) -> &'static str {
        match self {
            Kind::Strace => "strace",
            Kind::Gdb => "stack",
        }
    }
}

/// What traces a PE, beside it.
#[derive(Debug)]
pub struct Tracer {
    /// What it is.
    pub kind: Kind,
    /// Its process.
    pub pid: Pid,
    /// It waits there; `None`: no more.
    pub gate: Option<OwnedFd>,
    /// It has attached, or has ended before.
    pub attached: bool,
    /// What it writes to: strace until it has attached, gdb to the end of the PE.
    pub file: Option<OwnedFd>,
    /// The name of that file.
    pub path: PathBuf,
    /// Where gdb waits for what it is to do; `None`: it has it, or it is no gdb.
    pub commands: Option<OwnedFd>,
}

impl Tracer {
    /// Says to gdb what has to be said before.
    pub fn prepares(commands: &OwnedFd) -> nix::Result<()> {
        write(commands, SIGNALS.as_bytes()).map(drop)
    }

    /// Has gdb let its PE run. False: it is no gdb.
    pub fn lets_run(&mut self) -> bool {
        let Some(commands) = self.commands.take() else { return false };
        // What it has said of its beginning is of no interest.
        if let Some(file) = &self.file {
            let _ = ftruncate(file.as_fd(), 0);
        }
        // (An Err: it has ended, and its PE runs without it.)
        let _ = write(&commands, STACKS.as_bytes());
        true
    }

    /// The PE has ended so: gdb's file stays if there is a stack of it.
    pub fn keeps_or_not(&mut self, end: PeEnd) {
        self.commands = None;
        let Some(file) = self.file.take().filter(|_| self.kind == Kind::Gdb) else { return };
        if matches!(end, PeEnd::Signal(_)) && has_stack(&file) {
            // (An Err: what it says of its beginning stays.)
            let _ = drop_beginning(&file);
        } else {
            // (Unless something else has its name by now.)
            let same = fstat(&file).is_ok_and(|own| {
                lstat(&self.path)
                    .is_ok_and(|there| (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino))
            });
            if same {
                let _ = unlink(&self.path);
            }
        }
    }
}

/// What traces all PEs, with what they have in common.
#[derive(Debug)]
pub struct Tool {
    kind: Kind,
    program: CString,
    options: Vec<CString>,
    environment: Rc<[CString]>,
    directory: PathBuf,
}

impl Tool {
    /// The tool of a launch; `None`: its PEs are not traced.
    ///
    /// # Errors
    /// It is not on this host.
    pub fn of(launch: &HostLaunch, environment: Rc<[CString]>) -> Result<Option<Tool>, Refusal> {
        let kind = match &launch.launch.strace {
            Some(_) => Kind::Strace,
            None if launch.launch.stacks => Kind::Gdb,
            None => return Ok(None),
        };
        let missing = || {
            let (name, option) = (kind.name(), kind.option());
            let text = format!(
                "{name} is not on host {}: install the package {name} there, or leave out {option}",
                hostname()
            );
            Refusal::of_tracer(text)
        };
        let program = find(kind.name(), &launch.launch.environment).ok_or_else(missing)?;
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| missing());
        let options: Vec<CString> = match &launch.launch.strace {
            Some(strace) => {
                strace.options.iter().map(|option| text(option)).collect::<Result<_, _>>()?
            }
            None => {
                let before = attaching::GDB.into_iter().chain(["set prompt"]);
                let before = before.flat_map(|command| ["-iex", command]);
                let all = ["-q", "-nx"].into_iter().chain(before);
                all.map(|word| text(word.as_bytes())).collect::<Result<_, _>>()?
            }
        };
        Ok(Some(Tool {
            kind,
            program: text(program.as_os_str().as_bytes())?,
            options,
            environment,
            directory: OsStr::from_bytes(&launch.launch.directory).into(),
        }))
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What traces this process.
    pub fn tracing(&self, pe: Pid) -> Program {
        let mut arguments: Vec<CString> = CString::new(self.kind.name()).into_iter().collect();
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

    /// The file of a PE, empty, and its name.
    ///
    /// # Errors
    /// It can't be made, or what is there is not to be written to.
    pub fn file(&self, launch: &HostLaunch, pe: &LocalPe) -> Result<(OwnedFd, PathBuf), Refusal> {
        let path = self.directory.join(name(launch, pe, self.kind));
        match open_own(&path) {
            Ok(file) => Ok((file, path)),
            Err((errno, why)) => {
                let (kind, why) = (self.kind.suffix(), why.unwrap_or(errno.desc()));
                Err(Refusal::of_tracer(format!("its {kind} file {}: {why}", path.display())))
            }
        }
    }
}

/// `a.out.12.3.strace`
fn name(launch: &HostLaunch, pe: &LocalPe, kind: Kind) -> PathBuf {
    let part = launch.launch.part_of(pe.rank);
    let program = Path::new(OsStr::from_bytes(launch.launch.program(part).executable));
    let program = program.file_name().unwrap_or_default().as_bytes();
    let program = &program[..program.len().min(NAME_MAX)];
    let rest = format!(".{}.{}.{}", launch.key.apid, pe.rank, kind.suffix());
    OsStr::from_bytes(&[program, rest.as_bytes()].concat()).into()
}

/// Whether gdb has written a stack.
fn has_stack(file: &OwnedFd) -> bool {
    let mut text = vec![0; LOOKED_AT];
    let count = nix::sys::uio::pread(file, &mut text, 0).unwrap_or(0);
    String::from_utf8_lossy(&text[..count]).lines().any(|line| line.starts_with("#0 "))
}

/// Takes out what stands before the line about the first signal: what gdb says while it attaches,
/// and the prompts of its commands. (gdb may be about to write its last lines: they come behind.)
fn drop_beginning(file: &OwnedFd) -> std::io::Result<()> {
    use std::io::{Read, Write};
    // One that does not write behind the end only.
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut own = std::fs::OpenOptions::new().read(true).write(true).open(own)?;
    let mut text = Vec::new();
    (&own).take(CLEANED_MAX as u64).read_to_end(&mut text)?;
    let is_signal = |line: &[u8]| String::from_utf8_lossy(line).contains(" received signal SIG");
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines.take_while(|line| !is_signal(line)).map(<[u8]>::len).sum();
    if before == 0 || before == text.len() || text.len() == CLEANED_MAX {
        return Ok(());
    }
    own.rewind()?;
    own.write_all(&text[before..])?;
    own.set_len((text.len() - before) as u64)
}

/// Opens a file of this user's own, new or emptied.
fn open_own(path: &Path) -> Result<OwnedFd, (Errno, Option<&'static str>)> {
    let plain = |errno| (errno, None);
    // (One that is no file is not waited for.)
    let flags = OFlag::O_RDWR
        | OFlag::O_CREAT
        // (What gdb has written is thrown away before it goes on.)
        | OFlag::O_APPEND
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

/// Where a program of this name is, by the user's PATH.
fn find(name: &str, environment: &[Vec<u8>]) -> Option<PathBuf> {
    let path = environment.iter().rev().find_map(|item| item.strip_prefix(b"PATH="));
    let folders = path.unwrap_or(PATH).split(|byte| *byte == b':');
    let mut all = folders.map(|folder| Path::new(OsStr::from_bytes(folder)).join(name));
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

/// Why a tracer has ended before it had attached, by the first line that it has written.
pub fn explain(kind: Kind, file: Option<OwnedFd>) -> String {
    let name = kind.name();
    let mut text = [0; 300];
    let count = file.and_then(|file| nix::sys::uio::pread(file, &mut text, 0).ok()).unwrap_or(0);
    let text = String::from_utf8_lossy(&text[..count]);
    let own = format!("{name}: ");
    let line = text.lines().next().map(|line| line.strip_prefix(&own).unwrap_or(line));
    let line = line.filter(|line| !line.is_empty()).unwrap_or("it says nothing");
    format!("{name} has ended before it traced anything: {line}")
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
    fn a_stack_begins_with_its_signal() {
        let stack =
            "Thread 1 \"a\" received signal SIGSEGV, Segmentation fault.\n#0  0x1 in boom ()\n";
        for (before, left) in [("Reading symbols from a...\n>>>> >\n\n", stack), ("", stack)] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("a.1.0.stack");
            let file = open_own(&path).expect("made");
            write(&file, format!("{before}{stack}").as_bytes()).expect("written");
            assert!(has_stack(&file));
            drop_beginning(&file).expect("done");
            write(&file, b"last\n").expect("written");
            assert_eq!(std::fs::read_to_string(&path).expect("there"), format!("{left}last\n"));
        }
        // Without such a line it stays as it is.
        let folder = tempfile::tempdir().expect("a folder");
        let file = open_own(&folder.path().join("b")).expect("made");
        write(&file, b"#0  0x1 in boom ()\n").expect("written");
        drop_beginning(&file).expect("done");
        assert_eq!(std::fs::read(folder.path().join("b")).expect("there"), b"#0  0x1 in boom ()\n");
    }

    #[test]
    fn it_is_looked_for_where_the_user_looks() {
        let path =
            |text: &str| find("strace", &[b"A=b".to_vec(), format!("PATH={text}").into_bytes()]);
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
            explain(Kind::Strace, Some(fd)),
            "strace has ended before it traced anything: invalid system call 'x'"
        );
        assert!(explain(Kind::Gdb, None).ends_with("it says nothing"));
    }

    #[test]
    fn a_file_stays_if_there_is_a_stack_of_one_that_died() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.1.0.stack");
        let tracer = |kind, text: &str| {
            let file = Some(open_own(&path).expect("made"));
            std::fs::write(&path, text).expect("written");
            let (pid, path) = (Pid::from_raw(1), path.clone());
            Tracer { kind, pid, gate: None, attached: true, file, path, commands: None }
        };
        let stays = |kind, text: &str, end| {
            tracer(kind, text).keeps_or_not(end);
            path.exists()
        };
        let stack = "Program received signal SIGSEGV\n\nThread 1:\n#0  0x12 in main () at a.c:3\n";
        assert!(stays(Kind::Gdb, stack, PeEnd::Signal(11)));
        assert!(!stays(Kind::Gdb, stack, PeEnd::Exit(1)), "it had a handler");
        assert!(!stays(Kind::Gdb, "Continuing.\n", PeEnd::Signal(9)));
        assert!(stays(Kind::Strace, "", PeEnd::Exit(0)));
        // Another that has its name is not removed.
        let mut tracer = tracer(Kind::Gdb, "");
        std::fs::remove_file(&path).expect("there");
        std::fs::write(&path, "kept").expect("written");
        tracer.keeps_or_not(PeEnd::Exit(0));
        assert!(path.exists());
    }
}
