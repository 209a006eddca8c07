//! A private instance's folder: who belongs to it, and how it goes.
//!
//! # The problem
//! `psched start` makes a folder with the sockets, the configuration and (unless told otherwise)
//! the state of a private instance. Whatever ends the instance, nothing of it may stay: no process,
//! no group, no folder. But any of its processes may be killed at any moment, `psched start` first
//! of all, so none of them can be *the* one that clears up.
//!
//! # The rule
//! Everyone who belongs to the instance (`psched start`, psched, each apinit) holds a shared lock
//! ([flock(2)]) on the folder's `lock` file, as a [`Member`]. Who leaves gives it up and then tries
//! for the exclusive one: only the last can get it, and the last one clears. The kernel drops the
//! locks of the dead, so a folder whose exclusive lock can be had belongs to nobody: the caller's
//! next `psched start` clears it ([`clear_stale`]).
//!
//! Who leaves waits for the rest, in bounds: some of them may have been killed, and hold their locks
//! until the kernel is done with them. But when the founder, `psched start`, ends the instance itself,
//! it says so ([`Member::announce_end`]) and waits for all others, and they needn't wait for it. The
//! founder also has a lock of its own, by which [`clear_stale`] tells a living instance from one that
//! is just being cleared.
//!
//! ```text
//! psched start  SH ---------------x (killed)
//! psched        SH ------------------ sees the lifeline end; unlocks; EX? no: apinit is there ...
//! apinit        SH ------------------------ its groups are empty; unlocks; EX? yes: clears
//! ```
//!
//! # What belongs to an instance
//! Processes are known by their environment, which the kernel shows in /proc: daemons have
//! [`RUNTIME`]`=FOLDER`, everything that the user's command started has
//! `PSCHED_SOCKET=FOLDER/psched.sock` (PEs too, for they get aprun's environment), PEs also
//! [`APPLICATION`]`=STORE.…`. Control groups are known by a path in the file `groups`.
//!
//! A new folder is made under another name, locked, and renamed only then, so that no one takes it
//! for a dead one in between.
//!
//! [flock(2)]: https://man7.org/linux/man-pages/man2/flock.2.html

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// In the environment of an instance's daemons: its folder.
pub const RUNTIME: &str = "PSCHED_RUNTIME";
/// In the environment of an instance's commands: its socket.
pub const SOCKET: &str = "PSCHED_SOCKET";
/// In the environment of PEs: `<8 hex of the store's id>.<apid>.<incarnation>`.
pub const APPLICATION: &str = "PSCHED_APPLICATION";

/// psched's socket in a folder.
pub const SOCKET_FILE: &str = "psched.sock";
/// The file that members lock.
const LOCK_FILE: &str = "lock";
/// The file that the founder locks for itself: tells whether it lives.
const FOUNDER_FILE: &str = "founder";
/// The file with the paths of control groups, one a line.
const GROUPS_FILE: &str = "groups";
/// The file that says that the founder is about to end the instance, and waits for the others.
const ENDING_FILE: &str = "ending";
/// Who still holds a lock after this long is not just dying.
const DYING_MAX: Duration = Duration::from_millis(500);
/// What a folder is called until it is locked.
const UNFINISHED: &str = ".new";
/// An unfinished folder that is older was left by a process killed in the middle.
const UNFINISHED_MAX: Duration = Duration::from_secs(60);
/// The longest path of a base directory in bytes. A socket's path holds 107 bytes, and below the
/// base comes `psched-4294967295-XXXXXX/apps-4095/1234567890.1/shepherd.sock`.
const BASE_LENGTH_MAX: usize = 107 - 62;
/// What a process's environment may be long: ARG_MAX is the kernel's bound.
const ENVIRONMENT_MAX: u64 = 4 * 1024 * 1024;

/// What can go wrong with a folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// No directory will do; each with its reason.
    #[error(
        "no place for the instance's folder: {0}; set XDG_RUNTIME_DIR or TMPDIR to a short path \
         that you can write to"
    )]
    NoBase(String),
    /// The folder could not be made.
    #[error("can't make the instance's folder {path}: {error}")]
    Make {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Directories in which folders are looked for, the preferred one first: `$XDG_RUNTIME_DIR`,
/// `$TMPDIR`, `/tmp`.
pub fn bases() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for name in ["XDG_RUNTIME_DIR", "TMPDIR"] {
        if let Some(value) = std::env::var_os(name).filter(|v| !v.is_empty()) {
            found.push(value.into());
        }
    }
    found.push("/tmp".into());
    found
}

/// Why a directory can't hold folders; `None`: it can.
fn unfit(base: &Path, uid: u32) -> Option<String> {
    if !base.is_absolute() {
        return Some("not an absolute path".into());
    }
    if base.as_os_str().len() > BASE_LENGTH_MAX {
        return Some(format!("longer than {BASE_LENGTH_MAX} bytes, too long for a socket's path"));
    }
    let metadata = match fs::metadata(base) {
        Ok(m) if m.is_dir() => m,
        Ok(_) => return Some("not a directory".into()),
        Err(e) => return Some(e.to_string()),
    };
    // Another user's directory that is not sticky: he could replace what we put there.
    if metadata.uid() != uid && metadata.mode() & 0o1000 == 0 {
        return Some(format!("belongs to uid {}", metadata.uid()));
    }
    if metadata.mode() & 0o1002 == 0o002 {
        return Some("everybody may change it".into());
    }
    rustix::fs::access(base, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .err()
        .map(|e| e.to_string())
}

/// A process that belongs to a private instance, for as long as this lives.
///
/// Dropping it gives the lock up without clearing anything; see [`Member::leave`].
#[derive(Debug)]
pub struct Member {
    folder: PathBuf,
    lock: File,
    /// Only the founder's: the file that it alone locks.
    founder: Option<File>,
}

impl Member {
    /// Makes a new folder, `psched-UID-XXXXXX` with mode 0700, in the first of `bases` that will
    /// do, and becomes its first member.
    ///
    /// # Errors
    /// Why none will do.
    pub fn found(bases: &[PathBuf]) -> Result<Member, FolderError> {
        let uid = rustix::process::geteuid().as_raw();
        let mut reasons = Vec::new();
        for base in bases {
            match unfit(base, uid) {
                None => return Member::found_in(base, uid),
                Some(why) => reasons.push(format!("{}: {why}", base.display())),
            }
        }
        Err(FolderError::NoBase(reasons.join("; ")))
    }

    fn found_in(base: &Path, uid: u32) -> Result<Member, FolderError> {
        // Six characters of 36: a collision is improbable, a few in a row are something else.
        for attempt in 0.. {
            let folder = base.join(format!("psched-{uid}-{}", random_name()));
            match Member::found_as(&folder) {
                Err(e) if attempt < 8 && folder.exists() => drop(e),
                Err(error) => return Err(FolderError::Make { path: folder, error }),
                Ok(member) => return Ok(member),
            }
        }
        unreachable!("the loop returns")
    }

    fn found_as(folder: &Path) -> io::Result<Member> {
        let mut unfinished = folder.as_os_str().to_owned();
        unfinished.push(UNFINISHED);
        let unfinished = PathBuf::from(unfinished);
        DirBuilder::new().mode(0o700).create(&unfinished)?;
        let make = || {
            fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o700))?;
            let file = |name| {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create_new(true).mode(0o600);
                options.open(unfinished.join(name))
            };
            let (lock, founder) = (file(LOCK_FILE)?, file(FOUNDER_FILE)?);
            flock(&lock, FlockOperation::NonBlockingLockShared)?;
            flock(&founder, FlockOperation::NonBlockingLockExclusive)?;
            fs::rename(&unfinished, folder)?;
            Ok(Member { folder: folder.to_owned(), lock, founder: Some(founder) })
        };
        make().inspect_err(|_: &io::Error| {
            let _ = fs::remove_dir_all(&unfinished);
        })
    }

    /// Joins the instance of a folder.
    ///
    /// # Errors
    /// The folder is gone, is no instance's, or is being cleared (`WouldBlock`).
    pub fn join(folder: &Path) -> io::Result<Member> {
        let lock = OpenOptions::new().read(true).open(folder.join(LOCK_FILE))?;
        flock(&lock, FlockOperation::NonBlockingLockShared)?;
        Ok(Member { folder: folder.to_owned(), lock, founder: None })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Records the control group below which the instance's applications are, for whoever clears.
    ///
    /// # Errors
    /// What stood in the way of writing it.
    pub fn record_group(&self, group: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(self.folder.join(GROUPS_FILE))?;
        writeln!(file, "{}", group.display())
    }

    /// Says that the founder ends the instance and will wait for the others: they needn't wait.
    /// To be called before the lifeline is closed.
    pub fn announce_end(&self) {
        // Without it they wait a moment in vain.
        let _ = File::create(self.folder.join(ENDING_FILE));
    }

    /// Leaves; the last one clears the folder and all that belongs to it. Waits for the others to
    /// be gone, and clears, each for at most about `bound`.
    pub fn leave(self, bound: Duration) {
        let Member { folder, lock, founder } = self;
        if founder.is_some() {
            // It has been heeded; who is still there must wait for us now.
            let _ = fs::remove_file(folder.join(ENDING_FILE));
        }
        // Given up first: two who leave at once must not both wait for the other's lock.
        drop(founder);
        if flock(&lock, FlockOperation::Unlock).is_ok() {
            clear_when_last(&folder, &lock, bound);
        }
    }
}

/// Clears as soon as nobody else belongs to the folder; whether it has. Once the founder has said
/// that it ends, it is the founder who waits for the others, and not they for it.
fn clear_when_last(folder: &Path, lock: &File, bound: Duration) -> bool {
    let began = Instant::now();
    loop {
        if flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let there = folder.exists();
            clear(folder, bound);
            return there;
        }
        // Who was killed may hold its locks for a while: until its last write is on the disk, and
        // after the kernel has closed the lifeline. So a founder must be seen alive for longer.
        let waited = began.elapsed();
        if folder.join(ENDING_FILE).exists()
            || !folder.exists()
            || (waited > DYING_MAX && founder_lives(folder))
            || waited > bound
        {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the folder's founder holds its lock.
fn founder_lives(folder: &Path) -> bool {
    OpenOptions::new()
        .read(true)
        .open(folder.join(FOUNDER_FILE))
        .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}

/// Clears the folders in `bases` that belong to the caller's uid and to no living process; gives
/// the number of them.
pub fn clear_stale(bases: &[PathBuf], bound: Duration) -> usize {
    let uid = rustix::process::geteuid().as_raw();
    let prefix = format!("psched-{uid}-");
    let mut cleared = 0;
    let mut seen = BTreeSet::new();
    // In others somebody else could exchange what is looked at here.
    for base in bases.iter().filter(|b| unfit(b, uid).is_none() && seen.insert(b.as_path())) {
        for entry in fs::read_dir(base).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(rest) = name.to_str().and_then(|n| n.strip_prefix(&prefix)) else { continue };
            // Not followed: a link that another user put there is none of ours.
            let Ok(metadata) = fs::symlink_metadata(entry.path()) else { continue };
            if !metadata.is_dir() || metadata.uid() != uid {
                continue;
            }
            if rest.ends_with(UNFINISHED) {
                let age =
                    metadata.modified().ok().and_then(|t| SystemTime::now().duration_since(t).ok());
                if age.is_some_and(|a| a > UNFINISHED_MAX) {
                    cleared += usize::from(fs::remove_dir_all(entry.path()).is_ok());
                }
                continue;
            }
            if founder_lives(&entry.path()) {
                continue;
            }
            let Ok(lock) = OpenOptions::new().read(true).open(entry.path().join(LOCK_FILE)) else {
                continue;
            };
            cleared += usize::from(clear_when_last(&entry.path(), &lock, bound));
        }
    }
    cleared
}

/// Ends everything that belongs to the folder, and removes it. Only for who holds its exclusive
/// lock.
fn clear(folder: &Path, bound: Duration) {
    let until = Instant::now() + bound;
    let groups: Vec<PathBuf> = fs::read_to_string(folder.join(GROUPS_FILE))
        .unwrap_or_default()
        .lines()
        .map(PathBuf::from)
        .filter(|g| store_of_group(g).is_some())
        .collect();
    for group in &groups {
        end_group(group, until);
    }
    let stores: Vec<&str> = groups.iter().filter_map(|g| store_of_group(g)).collect();
    end_processes(folder, &stores, Whose::Everything, Duration::from_secs(1), until);
    for group in &groups {
        end_group(group, until);
    }
    // Tried until nothing more appears in it: a process that was just killed may have been writing.
    while fs::remove_dir_all(folder).is_err_and(|e| e.kind() != io::ErrorKind::NotFound)
        && Instant::now() < until
    {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The store's eight digits in a group's path `…/psched.0123abcd`.
fn store_of_group(group: &Path) -> Option<&str> {
    let store = group.file_name()?.to_str()?.strip_prefix("psched.")?;
    (group.is_absolute() && store.len() == 8 && store.bytes().all(|b| b.is_ascii_hexdigit()))
        .then_some(store)
}

/// Kills all processes of a control group and removes it with the groups below it.
fn end_group(group: &Path, until: Instant) {
    loop {
        if !group.exists() {
            return;
        }
        // Refused where the group is not ours: nothing to be done about that here.
        let _ = fs::write(group.join("cgroup.kill"), "1");
        remove_group(group);
        if !group.exists() || Instant::now() >= until {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Removes empty groups from the leaves up. (Files of a group are the kernel's and go with it.)
fn remove_group(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove_group(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// Where this process's own control group (v2) is in the file system; `None`: there is no v2 tree.
pub fn own_group() -> Option<PathBuf> {
    group_path(
        &fs::read_to_string("/proc/self/mountinfo").ok()?,
        &fs::read_to_string("/proc/self/cgroup").ok()?,
    )
}

/// From the texts of /proc/self/mountinfo and /proc/self/cgroup.
fn group_path(mountinfo: &str, cgroup: &str) -> Option<PathBuf> {
    let own = Path::new(cgroup.lines().find_map(|l| l.strip_prefix("0::"))?);
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        if kind.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = own.strip_prefix(root).ok()?;
        // An empty component would leave a slash at the end.
        Some(if below.as_os_str().is_empty() { point.into() } else { Path::new(point).join(below) })
    })
}

/// Which of an instance's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// What the user's command started, itself included.
    Command,
    /// Daemons, shepherds and PEs too.
    Everything,
}

/// Ends what the user's command of an instance left running: TERM, and KILL after `grace`; gives up
/// at `bound`.
pub fn end_command(folder: &Path, grace: Duration, bound: Duration) {
    end_processes(folder, &[], Whose::Command, grace, Instant::now() + bound);
}

fn end_processes(folder: &Path, stores: &[&str], whose: Whose, grace: Duration, until: Instant) {
    let kill_at = Instant::now() + grace;
    let mut asked = BTreeSet::new();
    // One that is executing a program has no environment for an instant: to be sure that there is
    // no one, one looks twice.
    let mut empty = 0;
    loop {
        let found = processes(folder, stores, whose);
        empty = if found.is_empty() { empty + 1 } else { 0 };
        if empty == 2 || (empty == 1 && whose == Whose::Command) || Instant::now() >= until {
            return;
        }
        if empty == 1 {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        }
        for (pid, process, daemon) in found {
            // A daemon has no one left to serve, and nothing to save: its store is durable.
            if daemon || Instant::now() >= kill_at {
                let _ = pidfd_send_signal(&process, Signal::KILL);
            } else if asked.insert(pid) {
                let _ = pidfd_send_signal(&process, Signal::TERM);
                // An interactive shell does not care for TERM, but for its terminal.
                let _ = pidfd_send_signal(&process, Signal::HUP);
                let _ = pidfd_send_signal(&process, Signal::CONT);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Living processes of an instance, without the caller: pid, pidfd, whether it is a daemon.
fn processes(folder: &Path, stores: &[&str], whose: Whose) -> Vec<(i32, OwnedFd, bool)> {
    let own = std::process::id() as i32;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        if pid == own || membership(pid, folder, stores).is_none() {
            continue;
        }
        // Its pid may have become another's: what the pidfd stands for is asked again.
        let Some(process) =
            Pid::from_raw(pid).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok())
        else {
            continue;
        };
        match membership(pid, folder, stores) {
            Some(true) if whose == Whose::Command => (),
            Some(daemon) => found.push((pid, process, daemon)),
            None => (),
        }
    }
    found
}

/// Whether a process belongs to an instance, and if so whether as a daemon.
fn membership(pid: i32, folder: &Path, stores: &[&str]) -> Option<bool> {
    let mut environment = Vec::new();
    File::open(format!("/proc/{pid}/environ"))
        .ok()?
        .take(ENVIRONMENT_MAX)
        .read_to_end(&mut environment)
        .ok()?;
    environment_membership(&environment, folder, stores)
}

fn environment_membership(environment: &[u8], folder: &Path, stores: &[&str]) -> Option<bool> {
    use std::os::unix::ffi::OsStrExt;
    let folder = folder.as_os_str().as_bytes();
    let socket = [folder, b"/", SOCKET_FILE.as_bytes()].concat();
    let mut member = None;
    for variable in environment.split(|b| *b == 0) {
        let Some(equals) = variable.iter().position(|b| *b == b'=') else { continue };
        let (name, value) = (&variable[..equals], &variable[equals + 1..]);
        if name == RUNTIME.as_bytes() && value == folder {
            return Some(true);
        }
        let of_application = || {
            stores
                .iter()
                .any(|s| value.strip_prefix(s.as_bytes()).is_some_and(|r| r.first() == Some(&b'.')))
        };
        if (name == SOCKET.as_bytes() && value == socket)
            || (name == APPLICATION.as_bytes() && of_application())
        {
            member = Some(false);
        }
    }
    member
}

/// Six characters that nobody else has.
fn random_name() -> String {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut bytes = [0u8; 6];
    let read = File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes));
    if read.is_err() {
        // The name need not be secret, mkdir refuses one that is taken.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        bytes.copy_from_slice(
            &(now.as_nanos() as u64 ^ u64::from(std::process::id()) << 20).to_le_bytes()[..6],
        );
    }
    bytes.iter().map(|b| char::from(ALPHABET[usize::from(*b) % ALPHABET.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn base() -> tempfile::TempDir {
        tempfile::Builder::new().prefix("pi").tempdir_in("/tmp").expect("a directory in /tmp")
    }

    #[test]
    fn the_last_member_clears() {
        let base = base();
        let bases = [base.path().to_owned()];
        let first = Member::found(&bases).expect("a folder");
        let folder = first.folder().to_owned();
        assert_eq!(fs::metadata(&folder).expect("it is there").mode() & 0o7777, 0o700);
        let second = Member::join(&folder).expect("joined");
        assert_eq!(clear_stale(&bases, Duration::from_secs(1)), 0);
        first.leave(Duration::from_secs(1));
        assert!(folder.exists(), "the second is there");
        assert_eq!(clear_stale(&bases, Duration::from_secs(1)), 0);
        second.leave(Duration::from_secs(1));
        // Another test's thread may be forking, and its child hold the lock until it executes.
        let until = Instant::now() + Duration::from_secs(10);
        while folder.exists() && Instant::now() < until {
            clear_stale(&bases, Duration::from_secs(1));
        }
        assert!(!folder.exists());
    }

    /// A process that ends with the test, however that ends.
    struct Sleep(std::process::Child);

    impl Sleep {
        fn marked(name: &str, value: PathBuf) -> Sleep {
            let mut command = Command::new("sleep");
            command.arg("1000").env(name, value).stdin(Stdio::null()).stdout(Stdio::null());
            Sleep(command.stderr(Stdio::null()).spawn().expect("sleep starts"))
        }
    }

    impl Drop for Sleep {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_dead_instance_is_cleared_with_its_processes() {
        let base = base();
        let bases = [base.path().to_owned()];
        let member = Member::found(&bases).expect("a folder");
        let folder = member.folder().to_owned();
        let mut mine = [
            Sleep::marked(RUNTIME, folder.clone()),
            Sleep::marked(SOCKET, folder.join(SOCKET_FILE)),
        ];
        let mut other = Sleep::marked(SOCKET, folder.with_extension("x").join(SOCKET_FILE));
        drop(member);
        // Another test's thread may be forking, and its child hold the lock until it executes.
        let until = Instant::now() + Duration::from_secs(10);
        while clear_stale(&bases, Duration::from_secs(5)) == 0 && Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(!folder.exists());
        for child in &mut mine {
            assert!(!child.0.wait().expect("it ended").success());
        }
        assert!(other.0.try_wait().expect("asked").is_none(), "another's process was ended");
    }

    #[test]
    fn a_folder_that_is_just_being_made_is_left_alone() {
        let base = base();
        let uid = rustix::process::geteuid().as_raw();
        let unfinished = base.path().join(format!("psched-{uid}-abcdef.new"));
        fs::create_dir(&unfinished).expect("made");
        assert_eq!(clear_stale(&[base.path().to_owned()], Duration::from_secs(1)), 0);
        assert!(unfinished.exists());
    }

    #[test]
    fn a_base_must_be_short_and_ours() {
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(unfit(Path::new("/tmp"), uid), None);
        for bad in ["relative", "/tmp/not/there", "/proc/version", &format!("/{}", "x".repeat(60))]
        {
            assert!(unfit(Path::new(bad), uid).is_some(), "{bad}");
        }
        // The longest socket below the longest base fits sun_path with its final zero.
        let below = "psched-4294967295-XXXXXX/apps-4095/1234567890.1/shepherd.sock";
        assert!(BASE_LENGTH_MAX + 1 + below.len() < 108);
    }

    #[test]
    fn processes_are_known_by_their_environment() {
        let folder = Path::new("/tmp/psched-0-abcdef");
        let of = |text: &str| {
            environment_membership(text.replace('|', "\0").as_bytes(), folder, &["0123abcd"])
        };
        assert_eq!(of("A=1|PSCHED_RUNTIME=/tmp/psched-0-abcdef|B=2|"), Some(true));
        assert_eq!(of("PSCHED_SOCKET=/tmp/psched-0-abcdef/psched.sock"), Some(false));
        assert_eq!(of("PSCHED_APPLICATION=0123abcd.7.1|"), Some(false));
        assert_eq!(of("PSCHED_APPLICATION=0123abcde.7.1|PSCHED_RUNTIME=/tmp/psched-0-abc"), None);
        assert_eq!(
            of("X=PSCHED_RUNTIME=/tmp/psched-0-abcdef|PSCHED_SOCKET=/tmp/psched-0-abcdef"),
            None
        );
    }

    #[test]
    fn the_own_group_is_found_in_hybrid_and_unified_trees() {
        let hybrid = "36 31 0:32 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let own = "8:pids:/\n0::/\n";
        assert_eq!(group_path(hybrid, own), Some("/sys/fs/cgroup/unified".into()));
        let unified = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let slice = "0::/user.slice/user-1000.slice/session-1.scope\n";
        assert_eq!(
            group_path(unified, slice),
            Some("/sys/fs/cgroup/user.slice/user-1000.slice/session-1.scope".into())
        );
        assert_eq!(group_path("", own), None);
        assert_eq!(store_of_group(Path::new("/sys/fs/cgroup/psched.0123abcd")), Some("0123abcd"));
        assert_eq!(store_of_group(Path::new("/sys/fs/cgroup")), None);
        assert_eq!(store_of_group(Path::new("/sys/fs/cgroup/psched.0123abcd/1.1")), None);
    }
}
