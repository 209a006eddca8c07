//! Which real processors of this host others bind their programs to: whoever binds says so, for all to see.
//!
//! # Problem
//! Two pscheds on one host know nothing of each other: each binds to the first processors that it may use, and
//! gangs of both run there at once.
//!
//! # Approach
//! In a folder to which everybody may write ([`folder`]) everyone who binds has a file, and holds its exclusive
//! lock ([flock(2)]) for as long as it lives: a file whose lock can be had is of one that is dead. The file says
//! which psched it is of and which processors it takes ([`Claim`]). Who begins reads all of them ([`others`]), and
//! takes others where there are any ([`spare`]).
//!
//! # Hostile files
//! What others write may be anything. So files are opened without following links or waiting, only plain ones are
//! read, so many bytes of so many of them; the owner is whom the kernel says. Who is not root and not the caller
//! is mentioned, and takes no processor away from anybody: see [`spare`].
//!
//! [flock(2)]: https://man7.org/linux/man-pages/man2/flock.2.html

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat};
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The folder, where the environment names another; empty: nobody is looked for, and nothing is said.
pub const VARIABLE: &str = "PSCHED_CLAIMS";
/// Where it is else: a file system in memory, which everybody may write to.
const FOLDER: &str = "/dev/shm";
/// How the files are called: this, the user, the process, a number.
const PREFIX: &str = "psched-cpus.";
/// The first line of a file.
const MAGIC: &str = "psched processors 1";
/// Bytes of a file that are read, entries of the folder that are looked at, and files that are read.
const BYTES_MAX: u64 = 16 * 1024;
const ENTRIES_MAX: usize = 100_000;
const FILES_MAX: usize = 1_024;
/// The largest number of a processor that is believed.
const CPU_MAX: u32 = 1 << 16;
/// Characters of a name that are shown.
const NAME_MAX: usize = 120;
/// A file without a lock whose process can't be told from another of its number is of a dead one,
/// if it is older.
const STALE: Duration = Duration::from_secs(60);

/// The folder in which claims are.
pub fn folder() -> Option<PathBuf> {
    match std::env::var_os(VARIABLE) {
        Some(named) if named.is_empty() => None,
        Some(named) => Some(named.into()),
        None => Some(FOLDER.into()),
    }
}

/// What one says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Says {
    /// What it is, for people: `psched start`.
    pub name: String,
    /// Its psched, by the path of its socket: those of one psched know of each other.
    pub psched: String,
    /// The processors that it binds to.
    pub cpus: BTreeSet<u32>,
    /// Those among which its psched chooses.
    pub among: Vec<u32>,
}

/// Another's claim, which lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// Whose file it is, as the kernel says.
    pub uid: u32,
    /// Its process, as it says itself.
    pub pid: i32,
    /// The rest.
    pub says: Says,
    /// The name of its file, by which two that begin at once are in an order.
    file: String,
}

impl Other {
    /// As others are told of it: `psched start (process 12 of user 1000)`.
    pub fn name(&self) -> String {
        format!("{} (process {} of user {})", self.says.name, self.pid, self.uid)
    }

    /// Whether what it says decides anything for this user: it is root's, or his own.
    fn is_believed(&self, uid: u32) -> bool {
        self.uid == 0 || self.uid == uid
    }
}

/// Processors that are said to be taken, by a process, for as long as this lives.
#[derive(Debug)]
pub struct Claim {
    file: File,
    path: PathBuf,
}

impl Claim {
    /// A new one in a folder.
    ///
    /// # Errors
    /// It can't be made there.
    pub fn new(folder: &Path, says: &Says) -> io::Result<Claim> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let uid = rustix::process::geteuid().as_raw();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{PREFIX}{uid}.{}.{number}", std::process::id()));
        let make = || {
            fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)
        };
        let file = make().or_else(|error| {
            // (Of a process that had this number before, if it is the caller's own.)
            if error.kind() == io::ErrorKind::AlreadyExists {
                let _ = fs::remove_file(&path);
                return make();
            }
            Err(error)
        })?;
        let claim = Claim { file, path };
        flock(&claim.file, FlockOperation::NonBlockingLockExclusive)?;
        claim.say(says)?;
        claim.file.set_permissions(Permissions::from_mode(0o644))?;
        Ok(claim)
    }

    /// It says this from now on.
    ///
    /// # Errors
    /// There is no room, say.
    pub fn say(&self, says: &Says) -> io::Result<()> {
        let list = |cpus: &mut dyn Iterator<Item = u32>| {
            cpus.map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",")
        };
        let text = format!(
            "{MAGIC}\n{}\n{}\n{}\n{}\n{}\n",
            std::process::id(),
            line(&says.name),
            line(&says.psched),
            list(&mut says.cpus.iter().copied()),
            list(&mut says.among.iter().copied())
        );
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)
    }

    /// Of these the ones that came before this one: where two begin at once, the later one gives way.
    pub fn before(&self, others: Vec<Other>) -> Vec<Other> {
        let own = self.path.file_name().map(|name| name.to_string_lossy().into_owned());
        let own = own.unwrap_or_default();
        others.into_iter().filter(|other| other.file < own).collect()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// One line of a file: no more than may be shown.
fn line(text: &str) -> String {
    let odd = |c: char| c.is_control() || c == '\u{fffd}';
    text.chars().filter(|c| !odd(*c)).take(NAME_MAX).collect()
}

/// All claims of others that live, by the names of their files. Those of the caller's dead are removed.
pub fn others(folder: &Path) -> Vec<Other> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(at) = rustix::fs::open(folder, flags, Mode::empty()) else { return Vec::new() };
    let uid = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES_MAX);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(PREFIX)).collect();
    // Those that can decide something first, however many there are of others: by their owners, for anyone can
    // give a file any name.
    let decides = |name: &String| {
        let file = rustix::fs::statat(&at, &**name, AtFlags::SYMLINK_NOFOLLOW);
        file.is_ok_and(|file| file.st_uid == 0 || file.st_uid == uid)
    };
    names.sort_by_cached_key(|name| (!decides(name), name.clone()));
    names.truncate(FILES_MAX);
    let mut found: Vec<Other> = Vec::new();
    for name in names {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = openat(&at, &*name, flags, Mode::empty()).map(File::from) else { continue };
        let Ok(metadata) = file.metadata() else { continue };
        if !metadata.is_file() {
            continue;
        }
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            let old = metadata.modified().ok().and_then(|at| at.elapsed().ok());
            // Without a lock it is of one that has died, or of one that has just made it and lives.
            if metadata.uid() == uid && (!has_process(&name) || old.is_some_and(|o| o > STALE)) {
                let _ = rustix::fs::unlinkat(&at, &*name, AtFlags::empty());
            }
            continue;
        }
        // Who may read a file can lock it: its lock says nothing once its process is gone.
        if !is_of_its_owner(&name, metadata.uid()) {
            continue;
        }
        let mut text = String::new();
        // (What is no text says nothing.)
        if file.take(BYTES_MAX).read_to_string(&mut text).is_ok()
            && let Some((pid, says)) = read(&text)
        {
            found.push(Other { uid: metadata.uid(), pid, says, file: name });
        }
    }
    let own = format!("{PREFIX}{uid}.{}.", std::process::id());
    found.retain(|other| !other.file.starts_with(&own));
    found.sort_by(|a, b| a.file.cmp(&b.file));
    found
}

/// The process by which a file is called.
fn pid_in(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('.').nth(1)?.parse().ok()
}

/// Whether the process by which a file is called, or another of its number, lives.
fn has_process(name: &str) -> bool {
    let Some(pid) = pid_in(name) else { return true };
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        // A zombie holds nothing any more.
        Ok(stat) => !stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X'])),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Whether the process by which a file is called lives and is its owner's; true where that can't be told.
fn is_of_its_owner(name: &str, owner: u32) -> bool {
    let Some(pid) = pid_in(name) else { return true };
    match fs::metadata(format!("/proc/{pid}")) {
        // (/proc gives one that can't be traced to root, whosever it is.)
        Ok(process) => [owner, 0].contains(&process.uid()) && has_process(name),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Removes the claims of the caller's processes that have died.
pub fn clear_dead() {
    if let Some(folder) = folder() {
        drop(others(&folder));
    }
}

/// What a file says.
fn read(text: &str) -> Option<(i32, Says)> {
    let mut lines = text.lines();
    if lines.next()? != MAGIC {
        return None;
    }
    let pid = lines.next()?.parse().ok()?;
    let (name, psched) = (line(lines.next()?), line(lines.next()?));
    let list = |text: &str| -> Option<Vec<u32>> {
        let numbers = text.split(',').filter(|text| !text.is_empty());
        numbers.map(|n| n.parse().ok().filter(|cpu| *cpu <= CPU_MAX)).collect()
    };
    let cpus = list(lines.next()?)?.into_iter().collect();
    let among = list(lines.next()?)?;
    Some((pid, Says { name, psched, cpus, among }))
}

/// The processors to take of these, and what is to be said of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Those to take, of those that may be used, in their order; at least one if there was one.
    pub cpus: Vec<u32>,
    /// Sentences, for stderr.
    pub warnings: Vec<String>,
}

/// Of these processors those that nobody else takes, where there are any; `wanted`: how many are of use, if that
/// is known. What root and this user have said counts. A stranger's processors are passed over too where others
/// are enough; where they are not, they are used all the same, and that is said: so that a stranger takes nothing
/// away by what he writes.
pub fn spare(cpus: &[u32], others: &[Other], uid: u32, wanted: Option<usize>) -> Choice {
    let here = |other: &&Other| cpus.iter().any(|cpu| other.says.cpus.contains(cpu));
    let others: Vec<&Other> = others.iter().filter(here).collect();
    if others.is_empty() {
        return Choice { cpus: cpus.to_vec(), warnings: Vec::new() };
    }
    let without = |believed: bool| -> Vec<u32> {
        let takes = |cpu: &u32| {
            let mut who = others.iter().filter(|other| !believed || other.is_believed(uid));
            who.any(|other| other.says.cpus.contains(cpu))
        };
        cpus.iter().copied().filter(|cpu| !takes(cpu)).collect()
    };
    let (free, not_believed) = (without(false), without(true));
    let enough = wanted.is_some_and(|wanted| free.len() >= wanted.min(cpus.len()));
    let taken = match () {
        () if enough || free == not_believed && !free.is_empty() => free,
        () if !not_believed.is_empty() => not_believed,
        () => cpus.to_vec(),
    };
    let say = |other: &&Other| {
        let here = cpus.iter().copied().filter(|cpu| other.says.cpus.contains(cpu));
        match shared_with(other, &taken) {
            Some(text) => format!("{text}, and no others are free"),
            None => {
                let (name, here) = (other.name(), list(here));
                format!(
                    "processors {here} are used by {name}: using {} instead",
                    list(taken.iter().copied())
                )
            }
        }
    };
    // (Each of many of one user would say the same.)
    let warnings = others.iter().take(WARNINGS_MAX).map(say).collect();
    Choice { cpus: taken, warnings }
}

/// Others that are named.
const WARNINGS_MAX: usize = 4;

/// What is to be said of those who use some of these processors, which can't be others.
pub fn shared(cpus: &[u32], others: &[Other]) -> Vec<String> {
    let said = others.iter().filter_map(|other| shared_with(other, cpus));
    said.take(WARNINGS_MAX).collect()
}

fn shared_with(other: &Other, cpus: &[u32]) -> Option<String> {
    let both = || cpus.iter().copied().filter(|cpu| other.says.cpus.contains(cpu));
    both().next()?;
    let (name, both) = (other.name(), list(both()));
    Some(format!(
        "processors {both} are used by {name} too: programs of both will run there at once"
    ))
}

/// `0-3,8`.
pub fn list(cpus: impl Iterator<Item = u32>) -> String {
    let cpus: BTreeSet<u32> = cpus.collect();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let range = |(first, last): (u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.into_iter().map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(uid: u32, cpus: &[u32]) -> Other {
        let says = Says {
            name: "psched start".into(),
            cpus: cpus.iter().copied().collect(),
            ..Says::default()
        };
        Other { uid, pid: 7, says, file: String::new() }
    }

    #[test]
    fn processors_that_others_take_are_passed_over() {
        let choose = |others: &[Other], wanted| spare(&[0, 1, 2, 3], others, 1000, wanted);
        assert_eq!(
            choose(&[other(1000, &[4])], None),
            Choice { cpus: vec![0, 1, 2, 3], warnings: vec![] }
        );
        let choice = choose(&[other(1000, &[0]), other(0, &[3])], None);
        assert_eq!(choice.cpus, [1, 2]);
        assert_eq!(
            choice.warnings,
            [
                "processors 0 are used by psched start (process 7 of user 1000): using 1-2 instead",
                "processors 3 are used by psched start (process 7 of user 0): using 1-2 instead"
            ]
        );
        // None is left.
        let choice = choose(&[other(1000, &[0, 1]), other(0, &[2, 3])], Some(2));
        assert_eq!(choice.cpus, [0, 1, 2, 3]);
        assert!(
            choice.warnings.iter().all(|text| text.contains("will run there at once")),
            "{choice:?}"
        );
        // A stranger's are passed over where that costs nothing.
        assert_eq!(choose(&[other(5, &[0, 1])], Some(2)).cpus, [2, 3]);
        for (wanted, takes) in
            [(Some(3), vec![0, 1]), (None, vec![0, 1, 2]), (Some(1), vec![0, 1, 2, 3])]
        {
            let choice = choose(&[other(5, &takes)], wanted);
            assert_eq!(choice.cpus, [0, 1, 2, 3], "{wanted:?}");
            assert!(choice.warnings[0].contains("of user 5) too"), "{choice:?}");
        }
        assert_eq!(choose(&[other(5, &[0, 1]), other(0, &[2])], None).cpus, [0, 1, 3]);
    }

    #[test]
    fn claims_are_seen_while_they_live_and_odd_files_say_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let says = Says {
            name: "psched\nstart".into(),
            psched: "/run/psched.sock".into(),
            cpus: [3, 1].into(),
            among: vec![0, 1, 3],
        };
        let claim = Claim::new(folder, &says).expect("made");
        // One's own is not another's. (It is made to look so.)
        assert_eq!(others(folder), []);
        let uid = rustix::process::geteuid().as_raw();
        let mut lives = std::process::Command::new("sleep").arg("1000").spawn().expect("it runs");
        let path = folder.join(format!("{PREFIX}{uid}.{}.0", lives.id()));
        fs::rename(&claim.path, &path).expect("renamed");
        let found = others(folder);
        let expected = Says { name: "pschedstart".into(), ..says.clone() };
        assert_eq!(found.iter().map(|other| other.says.clone()).collect::<Vec<_>>(), [expected]);
        assert_eq!(found[0].pid, std::process::id() as i32);
        claim.say(&Says::default()).expect("said");
        assert_eq!(others(folder)[0].says, Says::default());
        // Its process is gone, and another one keeps its lock, which it may do if it can read the file.
        let gone = folder.join(format!("{PREFIX}{uid}.{}.0", u32::MAX >> 2));
        fs::rename(&path, &gone).expect("renamed");
        assert_eq!(others(folder), [], "the lock is not its own any more");
        fs::rename(&gone, &path).expect("renamed");
        drop(claim);
        assert_eq!(others(folder), [], "nobody holds its lock");
        // It is removed if there is no such process; else it may have been made just now.
        let mut ended = std::process::Command::new("true").spawn().expect("it runs");
        let dead = folder.join(format!("{PREFIX}{uid}.{}.0", ended.id()));
        fs::write(&dead, "").expect("written");
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while dead.exists() && std::time::Instant::now() < until {
            // (Until it is a zombie.)
            assert_eq!(others(folder), []);
        }
        assert!(!dead.exists(), "that of a zombie");
        ended.wait().expect("it ended");
        fs::write(&dead, "").expect("written");
        assert_eq!(others(folder), []);
        assert!(!dead.exists(), "that of one that is gone");
        assert!(path.exists(), "its process lives");
        lives.kill().expect("it runs");
        lives.wait().expect("it ended");
        // A link, a pipe, a folder, a long one, one that is no text, none of them with an end in sight.
        let of = |name: &str| folder.join(format!("{PREFIX}{name}"));
        std::os::unix::fs::symlink("/etc/passwd", of("1.2.3")).expect("a link");
        nix::unistd::mkfifo(&of("1.2.4"), nix::sys::stat::Mode::all()).expect("a pipe");
        fs::create_dir(of("1.2.5")).expect("a folder");
        let held: Vec<File> =
            [&b"\xff\xff"[..], &[b'x'; 100_000], b"psched processors 1\n7\na\nb\n99999999\n\n"]
                .iter()
                .zip(6..)
                .map(|(text, number)| {
                    fs::write(of(&format!("1.2.{number}")), text).expect("written");
                    let file = File::open(of(&format!("1.2.{number}"))).expect("opened");
                    flock(&file, FlockOperation::NonBlockingLockExclusive).expect("locked");
                    file
                })
                .collect();
        assert_eq!(others(folder), []);
        drop(held);
    }
}
