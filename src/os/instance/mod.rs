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
//! [`RUNTIME`]`=FOLDER`, the user's command and everything that it started has
//! [`INSTANCE`]`=FOLDER`, PEs have that too (their apshepherd sees to it, wherever their aprun was
//! called) and [`APPLICATION`]`=MARK.…`. Control groups are known by a path in the file `groups`.
//! (Groups and PEs of other apinits have the beginning of their store's id for a mark. An instance has
//! one of its own, [`mark`]: on a copy of some psched's state it ends none of that psched's applications.)
//! `PSCHED_SOCKET=FOLDER/psched.sock` alone makes only an aprun or cpr a member, which goes with
//! its application: other shells export it to use the instance.
//!
//! A new folder is made under another name, locked, and renamed only then, so that no one takes it
//! for a dead one in between.
//!
//! [flock(2)]: https://man7.org/linux/man-pages/man2/flock.2.html

mod groups;
mod place;
mod processes;

pub use groups::{mark, own_group};
pub use place::bases;
pub use processes::end_command;

use super::{claims, pmix_folder};
use groups::{end_group, mark_of_group};
use place::{Folder, unfit};
use processes::{Whose, end_processes};
use rustix::fs::{FlockOperation, OFlags, flock};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// In the environment of an instance's daemons: its folder.
pub const RUNTIME: &str = "PSCHED_RUNTIME";
/// In the environment of an instance's command and of its PEs: its folder.
pub const INSTANCE: &str = "PSCHED_INSTANCE";
/// In the environment of an instance's commands: its socket.
pub const SOCKET: &str = "PSCHED_SOCKET";
/// In the environment of PEs: `<8 hex of the store's id>.<apid>.<incarnation>`.
pub const APPLICATION: &str = "PSCHED_APPLICATION";

/// How the runtime directories of apinits are called, with a number behind it.
pub const RUNTIMES: &str = "apps-";
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
/// How long a daemon whose lifeline has ended waits for the others, and how long it clears. Together
/// with what each takes to end, at most 5 s, all is gone within 10 s.
pub const LEAVE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(3));
/// Who still holds a lock after this long is not just dying.
const DYING_MAX: Duration = Duration::from_millis(500);
/// What a folder is called until it is locked.
const UNFINISHED: &str = ".new";
/// An unfinished folder that is older was left by a process killed in the middle.
const UNFINISHED_MAX: Duration = Duration::from_secs(60);

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

/// A process that belongs to a private instance, for as long as this lives.
///
/// Dropping it gives the lock up without clearing anything; see [`Member::leave`].
#[derive(Debug)]
pub struct Member {
    folder: Folder,
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
            let inside = Folder::open(&unfinished)?;
            let new = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            let (lock, founder) = (inside.file(LOCK_FILE, new)?, inside.file(FOUNDER_FILE, new)?);
            flock(&lock, FlockOperation::NonBlockingLockShared)?;
            flock(&founder, FlockOperation::NonBlockingLockExclusive)?;
            fs::rename(&unfinished, folder)?;
            Ok(Member { folder: Folder::open(folder)?, lock, founder: Some(founder) })
        };
        make().inspect_err(|_: &io::Error| {
            let _ = fs::remove_dir_all(&unfinished);
        })
    }

    /// Joins the instance of a folder.
    ///
    /// # Errors
    /// The folder is gone, is no instance's, is not the caller's alone, or is being cleared
    /// (`WouldBlock`).
    pub fn join(folder: &Path) -> io::Result<Member> {
        let folder = Folder::open(folder)?;
        let lock = folder.file(LOCK_FILE, OFlags::RDONLY)?;
        flock(&lock, FlockOperation::NonBlockingLockShared)?;
        Ok(Member { folder, lock, founder: None })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Records the control group below which the instance's applications are, for whoever clears.
    ///
    /// # Errors
    /// What stood in the way of writing it.
    pub fn record_group(&self, group: &Path) -> io::Result<()> {
        let append = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
        let mut file = self.folder.file(GROUPS_FILE, append)?;
        writeln!(file, "{}", group.display())
    }

    /// Says that the founder ends the instance and will wait for the others: they needn't wait.
    /// To be called before the lifeline is closed.
    pub fn announce_end(&self) {
        // Without it they wait a moment in vain.
        let _ = self.folder.file(ENDING_FILE, OFlags::WRONLY | OFlags::CREATE);
    }

    /// Leaves; the last one clears the folder and all that belongs to it. Waits for the others to
    /// be gone for at most about `wait`, and clears for at most about `bound`.
    pub fn leave(self, wait: Duration, bound: Duration) {
        let Member { folder, lock, founder } = self;
        if founder.is_some() {
            // It has been heeded; who is still there must wait for us now.
            let _ = fs::remove_file(folder.path().join(ENDING_FILE));
        }
        // Given up first: two who leave at once must not both wait for the other's lock.
        drop(founder);
        if flock(&lock, FlockOperation::Unlock).is_ok() {
            clear_when_last(&folder, &lock, wait, bound);
        }
    }
}

/// Clears as soon as nobody else belongs to the folder; whether it has. Once the founder has said
/// that it ends, it is the founder who waits for the others, and not they for it.
fn clear_when_last(folder: &Folder, lock: &File, wait: Duration, bound: Duration) -> bool {
    let began = Instant::now();
    loop {
        if flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let there = folder.path().exists();
            clear(folder, bound);
            return there;
        }
        // Who was killed may hold its locks for a while: until its last write is on the disk, and
        // after the kernel has closed the lifeline. So a founder must be seen alive for longer.
        let waited = began.elapsed();
        if folder.has(ENDING_FILE)
            || !folder.path().exists()
            || (waited > DYING_MAX && founder_lives(folder))
            || waited > wait
        {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the folder's founder holds its lock.
fn founder_lives(folder: &Folder) -> bool {
    folder
        .file(FOUNDER_FILE, OFlags::RDONLY)
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
            let Ok(folder) = Folder::open(&entry.path()) else { continue };
            if rest.ends_with(UNFINISHED) {
                let made = entry.metadata().and_then(|metadata| metadata.modified()).ok();
                let age = made.and_then(|made| SystemTime::now().duration_since(made).ok());
                if age.is_some_and(|a| a > UNFINISHED_MAX) {
                    cleared += usize::from(fs::remove_dir_all(folder.path()).is_ok());
                }
                continue;
            }
            if founder_lives(&folder) {
                continue;
            }
            let Ok(lock) = folder.file(LOCK_FILE, OFlags::RDONLY) else { continue };
            cleared += usize::from(clear_when_last(&folder, &lock, bound, bound));
        }
    }
    cleared
}

/// Ends everything that belongs to the folder, and removes it. Only for who holds its exclusive
/// lock.
fn clear(folder: &Folder, bound: Duration) {
    let until = Instant::now() + bound;
    let mut groups = String::new();
    if let Ok(mut file) = folder.file(GROUPS_FILE, OFlags::RDONLY) {
        // An Err: nobody else knows them either.
        let _ = file.read_to_string(&mut groups);
    }
    let folder = folder.path();
    let groups: Vec<PathBuf> =
        groups.lines().map(PathBuf::from).filter(|g| mark_of_group(g).is_some()).collect();
    for group in &groups {
        end_group(group, until);
    }
    let marks: Vec<&str> = groups.iter().filter_map(|g| mark_of_group(g)).collect();
    end_processes(folder, &marks, Whose::Everything, Duration::from_secs(1), until);
    for group in &groups {
        end_group(group, until);
    }
    remove_pmix_folders(folder);
    // Tried until nothing more appears in it: a process that was just killed may have been writing.
    while fs::remove_dir_all(folder).is_err_and(|e| e.kind() != io::ErrorKind::NotFound)
        && Instant::now() < until
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Of a founder that was killed, and could not take it back.
    claims::clear_dead();
}

/// The folders of PMIx of which apinits have records, each in a directory of an application.
fn remove_pmix_folders(folder: &Path) {
    let inside = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let runtimes = inside(folder)
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(RUNTIMES.as_bytes()));
    for application in runtimes.flat_map(|runtime| inside(&runtime.path())) {
        pmix_folder::Record::remove_in(&application.path());
    }
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
    use std::os::unix::fs::MetadataExt;
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
        first.leave(Duration::from_secs(1), Duration::from_secs(1));
        assert!(folder.exists(), "the second is there");
        assert_eq!(clear_stale(&bases, Duration::from_secs(1)), 0);
        second.leave(Duration::from_secs(1), Duration::from_secs(1));
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
        let mut mine =
            [Sleep::marked(RUNTIME, folder.clone()), Sleep::marked(INSTANCE, folder.clone())];
        let mut others = [
            Sleep::marked(INSTANCE, folder.with_extension("x")),
            Sleep::marked(SOCKET, folder.join(SOCKET_FILE)),
        ];
        let application = folder.join("apps-0/1.1");
        fs::create_dir_all(&application).expect("made");
        let path = pmix_folder::make(&pmix_folder::new_path().expect("random")).expect("made");
        let uid = rustix::process::geteuid().as_raw();
        let record = pmix_folder::Record { uid, path: path.clone() };
        fs::write(application.join(pmix_folder::Record::FILE), record.line()).expect("written");
        drop(member);
        // Another test's thread may be forking, and its child hold the lock until it executes.
        let until = Instant::now() + Duration::from_secs(10);
        while clear_stale(&bases, Duration::from_secs(5)) == 0 && Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(!folder.exists() && !Path::new(&path).exists());
        for child in &mut mine {
            assert!(!child.0.wait().expect("it ended").success());
        }
        for other in &mut others {
            assert!(other.0.try_wait().expect("asked").is_none(), "another's process was ended");
        }
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
    fn what_others_could_have_made_is_left_alone() {
        let base = base();
        let bases = [base.path().to_owned()];
        let uid = rustix::process::geteuid().as_raw();
        // A directory of ours to which others may write can be moved here by them, and filled.
        let outside = base.path().join("psched.0123abcd");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("cgroup.kill"), "x").expect("written");
        let folder = base.path().join(format!("psched-{uid}-abcdef"));
        fs::create_dir(&folder).expect("made");
        for (name, text) in [(LOCK_FILE, ""), (GROUPS_FILE, outside.to_str().expect("a name"))] {
            fs::write(folder.join(name), text).expect("written");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("ours");
        assert_eq!(clear_stale(&bases, Duration::from_secs(1)), 0);
        assert!(Member::join(&folder).is_err());
        // Nor is a link followed, and nobody waits for a FIFO.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("ours");
        fs::rename(folder.join(LOCK_FILE), base.path().join("lock")).expect("moved");
        std::os::unix::fs::symlink("../lock", folder.join(LOCK_FILE)).expect("made");
        nix::unistd::mkfifo(&folder.join(FOUNDER_FILE), nix::sys::stat::Mode::S_IRWXU)
            .expect("made");
        assert_eq!(clear_stale(&bases, Duration::from_secs(1)), 0);
        assert!(Member::join(&folder).is_err() && folder.exists());
        assert_eq!(fs::read_to_string(outside.join("cgroup.kill")).expect("read"), "x");
    }
}
