//! Whether an application may have what it is given back.
//!
//! # The problem
//! CRIU runs as root, and opens each file by the path that it had. The images are root's, so that
//! nobody can have changed the path; but a folder above the file may be the user's, who can have
//! put something else there since. CRIU compares sizes and types, and no owners. Restored, the
//! program would have that file open. And CRIU gives each process the ids that its image says.
//!
//! # The approach
//! Three walls, one behind the other:
//!
//! | when | what | |
//! | --- | --- | --- |
//! | before CRIU opens anything | each path in the images, and each id | [`before`] |
//! | while it does | no symbolic link is followed | [`NoLinks`] |
//! | when everybody is there and nobody has run an instruction | what each process really has: ids, namespaces, open and mapped files, its program and folders | [`after`] |
//!
//! A file of whatever kind (a FIFO, a socket and a device too) may be had if its owner can reach it
//! by its path, without a link, with his own rights, finds there the same file, and may open it in
//! the same way. Nothing is opened for that: to open may do something. A file without a name any
//! more must be one of those of which the images say so, and be his or open to him.
//!
//! That is stricter than it was when the program opened it: one that has been closed to its owner
//! since, or that a set-user-ID program has opened, is refused too. So an application that stands
//! to be dumped is looked at in the same way ([`standing`]): what could not be brought back is not
//! taken out, and what its user may not read, as the memory of a set-user-ID program that it runs,
//! does not come into his hands as an image.
//!
//! Root's own applications are looked at as well: what root may open it may have, but not by a path
//! that leads elsewhere by now, and no process among them may be another's, who could have
//! something put into its place.
//!
//! [`NoLinks`]: crate::os::mounts::NoLinks

use super::images::{Images, Limits, Owner};
use crate::os::acting::with_rights_of;
use rustix::fs::{Access, AtFlags, Mode, OFlags, ResolveFlags, fstat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files that an application may have, each counted once: more are not looked at.
const FILES_MAX: usize = 1 << 20;
/// Files that are held at once while they are looked at.
const AT_ONCE: usize = 128;
/// What the kernel writes behind the path of a file that has lost it.
const DELETED: &[u8] = b" (deleted)";
/// What CRIU adds to the name of a removed file when another file has that name.
const ANOTHER: &[u8] = b".cr_link";
/// How it is held, without being opened.
const HELD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// Namespaces that each process shares with the one that looks.
const NAMESPACES: [&str; 6] = ["user", "mnt", "net", "uts", "pid", "cgroup"];

/// A file by its numbers.
pub(super) type Number = (u64, u64);

/// How a process uses a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Used {
    /// As the kernel says it.
    path: PathBuf,
    number: Number,
    reads: bool,
    writes: bool,
    /// It is mapped, and not open.
    mapped: bool,
}

/// All that is used, and a link of /proc by which each is found.
type All = BTreeMap<Used, PathBuf>;

/// A path that leads through no link, below this folder, held.
fn hold(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let below = path.strip_prefix("/").unwrap_or(path);
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    loop {
        match rustix::fs::openat2(root, below, HELD, Mode::empty(), resolve) {
            // Something was renamed meanwhile.
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Whether the caller may open this file so.
fn may(file: BorrowedFd<'_>, reads: bool, writes: bool) -> rustix::io::Result<()> {
    let mut access = Access::EXISTS;
    access.set(Access::READ_OK, reads);
    access.set(Access::WRITE_OK, writes);
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::accessat(rustix::fs::CWD, path, access, AtFlags::EACCESS)
}

fn open_root(pid: &str) -> Result<OwnedFd, String> {
    let path = format!("/proc/{pid}/root");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| format!("{path}: {e}"))
}

fn number(fd: BorrowedFd<'_>) -> Option<Number> {
    fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// With the rights of this owner.
fn acting<T: Send>(
    owner: &Owner,
    act: impl FnOnce() -> Result<T, String> + Send,
) -> Result<T, String> {
    let done = with_rights_of(owner.uid, owner.gid, &owner.groups, act);
    done.map_err(|e| format!("can't examine its files as user {}: {e}", owner.uid))?
}

fn refused(owner: &Owner, path: &Path, error: Errno) -> String {
    let shown = path.display();
    match error {
        Errno::LOOP => format!(
            "the application had {shown} open, and its path has a symbolic link now; links are \
             not followed: put back what was there"
        ),
        Errno::NOENT => {
            format!("a file that was open is missing: put it back where it was ({shown})")
        }
        error => format!(
            "the application has {shown} open, which user {} may not open ({error}): the owner of \
             the file can give access to it",
            owner.uid
        ),
    }
}

/// What is no user's, and is given to an application all the same: files by their numbers, and what
/// CRIU calls them.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    pub numbers: BTreeSet<Number>,
    pub keys: BTreeSet<String>,
    /// appmix, which its user may execute and not read. Only processes of PEs may not have it.
    pub appmix: Option<Number>,
    /// The processes of PEs.
    pub pes: BTreeSet<i32>,
}

impl Given {
    /// The sockets among them, by their numbers.
    pub fn sockets(&self) -> Vec<u32> {
        let number = |key: &String| key.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
        self.keys.iter().filter_map(number).collect()
    }

    fn has_key(&self, path: &[u8]) -> bool {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        self.keys.iter().any(|key| key.as_bytes() == path)
    }
}

/// Whether this owner could have what images say that his application has, where it says nothing
/// yet: CRIU has opened nothing.
///
/// # Errors
/// The first thing that he could not have, and why.
pub(super) fn before(owner: &Owner, images: &Images, given: &Given) -> Result<(), String> {
    images.check(owner, &given.sockets())?;
    let root = open_root("self")?;
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    // What is root's own and given: looked at as root.
    let ours = |bytes: &[u8]| {
        let held = hold(root.as_fd(), &path(bytes)).ok();
        let number = held.and_then(|held| number(held.as_fd()));
        number.is_some_and(|n| given.numbers.contains(&n) || given.appmix == Some(n))
    };
    let of_proc = |bytes: &[u8]| bytes.starts_with(b"/proc/");
    let named = images
        .named
        .iter()
        .filter(|file| !given.has_key(&file.path) && !of_proc(&file.path) && !ours(&file.path));
    let named: BTreeSet<(PathBuf, bool, bool)> = named
        .map(|file| {
            let (reads, writes) = ways(file.flags as i32);
            (path(&file.path), reads, writes)
        })
        .collect();
    let listener = given.sockets();
    let sockets = images.sockets.iter().filter(|socket| !listener.contains(&socket.ino));
    let sockets: Vec<PathBuf> = sockets.map(|socket| path(&socket.path)).collect();
    let of_his = |uid: u32| uid == owner.uid;
    let ghosts = images.removed.iter().filter(|r| r.ghost.is_some_and(|(uid, ..)| of_his(uid)));
    let ghosts: Vec<PathBuf> = ghosts.map(|removed| path(&removed.path)).collect();
    acting(owner, || {
        for (path, reads, writes) in &named {
            let there = hold(root.as_fd(), path);
            let there = there.and_then(|held| may(held.as_fd(), *reads, *writes));
            there.map_err(|error| refused(owner, path, error))?;
        }
        for socket in &sockets {
            can_make(root.as_fd(), owner, socket)?;
            // CRIU removes what has the name.
            let Ok(held) = hold(root.as_fd(), socket) else { continue };
            let found = fstat(&held).map_err(|error| refused(owner, socket, error))?;
            if owner.uid != 0 && found.st_uid != owner.uid {
                return Err(format!(
                    "the application listened at {}, which belongs to user {} now",
                    socket.display(),
                    found.st_uid
                ));
            }
        }
        ghosts.iter().try_for_each(|ghost| can_make(root.as_fd(), owner, ghost))
    })
}

/// Whether the caller could make a file with this path: in the folder above, or the nearest that
/// there is.
fn can_make(root: BorrowedFd<'_>, owner: &Owner, path: &Path) -> Result<(), String> {
    for folder in path.ancestors().skip(1) {
        match hold(root, folder) {
            Err(Errno::NOENT) => {}
            Err(error) => return Err(refused(owner, path, error)),
            Ok(held) => {
                return may(held.as_fd(), false, true).map_err(|error| {
                    format!(
                        "{} must be made again, and user {} may not write to {} ({error})",
                        path.display(),
                        owner.uid,
                        folder.display()
                    )
                });
            }
        }
    }
    Ok(())
}

/// Whether all that these processes have is their owner's, or open to him: ids, namespaces, files,
/// programs, folders. They stand. `shepherd` may have what it is given.
///
/// # Errors
/// The first that is not, and why.
pub(super) fn after(
    owner: &Owner,
    images: &Images,
    given: &Given,
    shepherd: i32,
) -> Result<(), String> {
    let root = number(open_root("self")?.as_fd());
    let mut all = All::new();
    for pid in &images.pids {
        let Some(used) = (match ids(owner, *pid).and_then(|()| used_by(*pid)) {
            Ok(used) => Some(used),
            Err(_) if is_over(*pid) => None,
            Err(why) => return Err(why),
        }) else {
            continue;
        };
        for kind in NAMESPACES {
            let read = |of: &str| fs::read_link(format!("/proc/{of}/ns/{kind}")).ok();
            if read(&pid.to_string()) != read("self") {
                return Err(format!("a restored process is in a {kind} namespace of its own"));
            }
        }
        if number(open_root(&pid.to_string())?.as_fd()) != root {
            return Err("a restored process has another root directory".into());
        }
        let is_given = |used: &Used| {
            *pid == shepherd && given.numbers.contains(&used.number)
                || given.appmix == Some(used.number) && !given.pes.contains(pid)
        };
        all.extend(used.into_iter().filter(|(used, _)| !is_given(used)));
    }
    let removed: BTreeSet<&[u8]> = images.removed.iter().map(|removed| &removed.path[..]).collect();
    let known = |path: &[u8]| {
        removed.contains(path) || path.strip_suffix(ANOTHER).is_some_and(|p| removed.contains(p))
    };
    look(owner, "self", all, &known)?;
    let listener = given.sockets();
    let named = images.sockets.iter().filter(|s| !listener.contains(&s.ino) && !s.deleted);
    let named: Vec<PathBuf> =
        named.map(|socket| PathBuf::from(OsStr::from_bytes(&socket.path))).collect();
    let root = open_root("self")?;
    acting(owner, || {
        for path in &named {
            let held = hold(root.as_fd(), path).map_err(|error| refused(owner, path, error))?;
            let found = fstat(&held).map_err(|error| refused(owner, path, error))?;
            if owner.uid != 0 && found.st_uid != owner.uid {
                return Err(format!(
                    "the socket {} belongs to user {} now",
                    path.display(),
                    found.st_uid
                ));
            }
        }
        Ok(())
    })
}

/// Whether what these processes, of one application that stands, have could be given back to it,
/// and is its owner's to read: bytes of the removed files that they have open or mapped.
///
/// # Errors
/// The first that could not, and why.
pub(super) fn standing(owner: &Owner, pids: &[i32]) -> Result<u64, String> {
    let (mut all, mut removed, mut bytes) = (All::new(), BTreeSet::new(), 0_u64);
    let memory = memory_device();
    let mut first = None;
    for pid in pids {
        let used = match ids(owner, *pid).and_then(|()| used_by(*pid)) {
            Ok(used) => used,
            Err(_) if is_over(*pid) => continue,
            Err(why) => return Err(why),
        };
        first = first.or(Some(*pid));
        for (used, link) in used {
            let gone = used.path.as_os_str().as_bytes().ends_with(DELETED);
            if gone && memory != Some(used.number.0) && removed.insert(used.number) {
                let found = fs::metadata(&link).map_or(0, |found| found.blocks());
                bytes = bytes.saturating_add(found.saturating_mul(512));
            }
            all.insert(used, link);
        }
        if all.len() > FILES_MAX {
            return Err(format!("the application has more than {FILES_MAX} files open"));
        }
    }
    match first {
        Some(first) => look(owner, &first.to_string(), all, &|_| true).map(|()| bytes),
        None => Ok(bytes),
    }
}

/// Whether each thread of a process has the ids of its owner, and no capabilities if that is not
/// root.
fn ids(owner: &Owner, pid: i32) -> Result<(), String> {
    let own = Limits::own();
    let folder = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&folder).map_err(|e| format!("{folder}: {e}"))?;
    for task in tasks {
        let task = task.map_err(|e| format!("{folder}: {e}"))?;
        let path = task.path().join("status");
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let numbers = |name: &str| -> Option<Vec<u32>> {
            line(name)?.split_whitespace().map(|id| id.parse().ok()).collect()
        };
        let set = |name: &str| u64::from_str_radix(line(name)?.trim(), 16).ok();
        let program = line("Name:").unwrap_or_default().trim();
        let strange = || format!("{} does not show its user and group ids", path.display());
        let (uids, gids, groups) = (numbers("Uid:"), numbers("Gid:"), numbers("Groups:"));
        let (uids, gids, groups) =
            (uids.ok_or_else(strange)?, gids.ok_or_else(strange)?, groups.ok_or_else(strange)?);
        if let Some(uid) = uids.iter().find(|uid| **uid != owner.uid) {
            return Err(format!(
                "a process of the application ({program}) has the rights of user {uid}, and the \
                 application belongs to user {}: only processes with the rights of its owner can \
                 be checkpointed",
                owner.uid
            ));
        }
        if let Some(gid) = gids.iter().chain(&groups).find(|gid| !owner.has_group(**gid)) {
            return Err(format!(
                "a process of the application ({program}) has the rights of group {gid}, in which \
                 user {} is not: only processes with the rights of its owner can be checkpointed",
                owner.uid
            ));
        }
        if owner.uid == 0 {
            continue;
        }
        let none = |name: &str| set(name).ok_or_else(strange).map(|set| set == 0);
        let inherits = own.inherits(set("CapInh:").ok_or_else(strange)?);
        if !(none("CapPrm:")? && none("CapEff:")? && none("CapAmb:")? && inherits) {
            return Err(format!(
                "a process of the application ({program}) has capabilities: only processes \
                 without them can be checkpointed"
            ));
        }
    }
    Ok(())
}

/// Whether their owner could have all of these, which are found by their paths below the root
/// directory of this process; of files that were removed those that are known.
fn look(owner: &Owner, pid: &str, all: All, known: &dyn Fn(&[u8]) -> bool) -> Result<(), String> {
    if all.len() > FILES_MAX {
        return Err(format!("the application has more than {FILES_MAX} files open"));
    }
    let root = open_root(pid)?;
    let memory = memory_device();
    let all: Vec<(Used, PathBuf)> = all.into_iter().collect();
    for some in all.chunks(AT_ONCE) {
        // What they have, and whether it may have been removed: held as root, and looked at as its
        // owner.
        let mut held = Vec::new();
        for (used, link) in some {
            let fd = rustix::fs::open(link, HELD, Mode::empty())
                .map_err(|e| format!("{}: {e}", link.display()))?;
            if number(fd.as_fd()) != Some(used.number) {
                return Err(format!(
                    "{} is another file now: put back what was there",
                    used.path.display()
                ));
            }
            let path = used.path.as_os_str().as_bytes().strip_suffix(DELETED);
            let gone = path.is_some_and(|path| known(path) || internal(used, fd.as_fd(), memory));
            held.push((used, fd, gone));
        }
        acting(owner, || {
            held.iter().try_for_each(|(used, fd, gone)| {
                let memory = internal(used, fd.as_fd(), memory);
                looked_at(owner, root.as_fd(), used, fd.as_fd(), *gone, memory)
            })
        })?;
    }
    Ok(())
}

/// One of them, with its owner's rights.
fn looked_at(
    owner: &Owner,
    root: BorrowedFd<'_>,
    used: &Used,
    fd: BorrowedFd<'_>,
    gone: bool,
    memory: bool,
) -> Result<(), String> {
    let at_path = hold(root, &used.path);
    if let Ok(found) = &at_path
        && number(found.as_fd()) == Some(used.number)
    {
        let found = may(found.as_fd(), used.reads, used.writes);
        return found.map_err(|error| refused(owner, &used.path, error));
    }
    let shown = used.path.display();
    if gone {
        let his = fstat(fd).is_ok_and(|found| found.st_uid == owner.uid);
        if his || (memory && used.mapped) {
            return Ok(());
        }
        return may(fd, used.reads, used.writes).map_err(|error| refused(owner, &used.path, error));
    }
    match at_path {
        Err(error @ (Errno::ACCESS | Errno::PERM)) => Err(refused(owner, &used.path, error)),
        // Another error: it is said by what its inode allows, if that is an answer.
        Err(error) => match may(fd, used.reads, used.writes) {
            Err(denied) => Err(refused(owner, &used.path, denied)),
            Ok(()) => Err(format!("{shown} is missing ({error}): put it back where it was")),
        },
        Ok(_) => match may(fd, used.reads, used.writes) {
            Err(denied) => Err(refused(owner, &used.path, denied)),
            Ok(()) => Err(format!("{shown} is another file now: put back what was there")),
        },
    }
}

/// Where the kernel keeps memory that is shared and has no name in any file system.
fn memory_device() -> Option<u64> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let fd = rustix::fs::memfd_create(c"", flags).ok()?;
    number(fd.as_fd()).map(|(device, _)| device)
}

/// Whether it is memory, and was never a file that somebody could open by a path.
fn internal(used: &Used, fd: BorrowedFd<'_>, memory: Option<u64>) -> bool {
    const HUGE: i64 = 0x9584_58f6;
    let path = used.path.as_os_str().as_bytes();
    let at_top = || path.iter().filter(|b| **b == b'/').count() == 1;
    let huge = || rustix::fs::fstatfs(fd).is_ok_and(|found| found.f_type == HUGE);
    memory == Some(used.number.0) || (at_top() && huge()) || path == b"/[aio] (deleted)"
}

/// How a file is used that is open in this way.
fn ways(flags: i32) -> (bool, bool) {
    let way = flags & libc::O_ACCMODE;
    match flags & libc::O_PATH {
        0 => (way != libc::O_WRONLY, way != libc::O_RDONLY),
        _ => (false, false),
    }
}

/// Whether a process has ended: all that it had is gone.
fn is_over(pid: i32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind its name, which may have anything in it.
    let end = stat.iter().rposition(|b| *b == b')').unwrap_or(0);
    matches!(stat.get(end + 2), None | Some(b'Z' | b'X'))
}

/// What a process has open or mapped, is in, and runs.
fn used_by(pid: i32) -> Result<All, String> {
    let failed = |path: &str, e: std::io::Error| format!("{path}: {e}");
    let mut all = All::new();
    let folder = format!("/proc/{pid}/fd");
    for entry in fs::read_dir(&folder).map_err(|e| failed(&folder, e))? {
        let name = entry.map_err(|e| failed(&folder, e))?.file_name();
        let info = format!("/proc/{pid}/fdinfo/{}", name.display());
        let text = fs::read_to_string(&info).map_err(|e| failed(&info, e))?;
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
        let (reads, writes) = ways(flags.ok_or_else(|| format!("{info} has no flags"))?);
        all.extend(used(Path::new(&folder).join(name), reads, writes, false)?);
    }
    let folder = format!("/proc/{pid}/map_files");
    let maps = format!("/proc/{pid}/maps");
    let bytes = fs::read(&maps).map_err(|e| failed(&maps, e))?;
    let text = String::from_utf8_lossy(&bytes);
    // `FROM-TO rwxs OFFSET DEVICE INODE   PATH`; a program or library has several.
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), Some(rights)) = (fields.next(), fields.next()) else { continue };
        let file: Vec<&str> = fields.skip(1).collect();
        if file.get(2).is_none_or(|path| !path.starts_with('/')) {
            continue;
        }
        let shared = rights.as_bytes().get(1..4).is_some_and(|r| r[0] == b'w' && r[2] == b's');
        if !seen.insert((file, shared)) {
            continue;
        }
        // Leading zeros are not in the names of the links.
        let part = |hex: &str| u64::from_str_radix(hex, 16).map(|n| format!("{n:x}")).ok();
        let name =
            range.split_once('-').and_then(|(a, b)| Some(format!("{}-{}", part(a)?, part(b)?)));
        let name = name.ok_or_else(|| format!("{maps} can't be parsed"))?;
        all.extend(used(Path::new(&folder).join(name), true, shared, true)?);
    }
    for (link, reads) in [("cwd", false), ("root", false), ("exe", true)] {
        all.extend(used(format!("/proc/{pid}/{link}").into(), reads, false, reads)?);
    }
    Ok(all)
}

/// The file behind a link of /proc, if it is one that has or had a path.
fn used(
    link: PathBuf,
    reads: bool,
    writes: bool,
    mapped: bool,
) -> Result<Option<(Used, PathBuf)>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", link.display());
    let path = fs::read_link(&link).map_err(failed)?;
    if !path.as_os_str().as_bytes().starts_with(b"/") {
        return Ok(None);
    }
    let found = fs::metadata(&link).map_err(failed)?;
    let number = (found.dev(), found.ino());
    Ok(Some((Used { path, number, reads, writes, mapped }, link)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Child, Command, Stdio};

    const ANNA: (u32, u32) = (61_301, 61_401);

    fn anna() -> Owner {
        Owner { uid: ANNA.0, gid: ANNA.1, groups: vec![] }
    }

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A process of hers that has this file as its stdin, and has mapped all that it maps.
    fn sleeper(stdin: fs::File) -> Sleeper {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=61301", "--regid=61401", "--clear-groups", "--"]);
        command.args(["/bin/sh", "-c", "echo; kill -STOP $$"]).current_dir("/").stdin(stdin);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut sleeper = Sleeper(command.spawn().expect("a shell starts"));
        let mut said = [0];
        let out = sleeper.0.stdout.as_mut().expect("a pipe");
        std::io::Read::read_exact(out, &mut said).expect("it says so");
        sleeper
    }

    fn images(sleeper: &Sleeper) -> Images {
        Images { pids: [sleeper.0.id() as i32].into(), ..Images::default() }
    }

    fn checked(images: &Images) -> Result<(), String> {
        after(&anna(), images, &Given::default(), 0)
    }

    /// A folder of hers, and a file of this mode there, which is hers or root's.
    fn folder() -> Option<tempfile::TempDir> {
        if !nix::unistd::geteuid().is_root() {
            return None;
        }
        let folder = tempfile::tempdir_in("/tmp").expect("made");
        own(folder.path(), 0o755);
        Some(folder)
    }

    fn own(path: &Path, mode: u32) {
        std::os::unix::fs::chown(path, Some(ANNA.0), Some(ANNA.1)).expect("root may");
        set(path, mode);
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    }

    fn file(path: &Path, mode: u32) -> PathBuf {
        fs::write(path, "text").expect("written");
        set(path, mode);
        path.to_owned()
    }

    fn open(path: &Path, reads: bool, writes: bool) -> fs::File {
        let mut options = fs::File::options();
        options.read(reads).write(writes).open(path).expect("root may")
    }

    #[test]
    fn what_its_owner_could_not_open_is_refused() {
        let Some(folder) = folder() else { return };
        let path = file(&folder.path().join("a"), 0o644);
        let name = path.display().to_string();
        let reads = sleeper(open(&path, true, false));
        let writes = sleeper(open(&path, false, true));
        assert_eq!(checked(&images(&reads)), Ok(()));
        let why = checked(&images(&writes)).expect_err("he may only read it");
        assert!(why.contains(&name) && why.contains("61301"), "{why}");
        set(&path, 0o600);
        assert!(checked(&images(&reads)).is_err());
        assert!(standing(&anna(), &[reads.0.id() as i32]).is_err());
        // Root's own it is no more.
        let root = Owner { uid: 0, gid: 0, groups: vec![] };
        let why = after(&root, &images(&reads), &Given::default(), 0).expect_err("hers");
        assert!(why.contains("has the rights of user 61301"), "{why}");
        // So may the shepherd, of what it is given.
        let found = fs::metadata(&path).expect("there");
        let given = Given { numbers: [(found.dev(), found.ino())].into(), ..Given::default() };
        let pid = reads.0.id() as i32;
        assert_eq!(after(&anna(), &images(&reads), &given, pid), Ok(()));
        assert!(after(&anna(), &images(&reads), &given, pid + 1).is_err());
        // And appmix, which is no PE.
        let mut given = Given { appmix: given.numbers.first().copied(), ..Given::default() };
        assert_eq!(after(&anna(), &images(&reads), &given, 0), Ok(()));
        assert_eq!(before(&anna(), &images(&reads), &given), Ok(()));
        given.pes.insert(pid);
        assert!(after(&anna(), &images(&reads), &given, 0).is_err());
        // A process of another user.
        let bert = Owner { uid: 61_302, ..anna() };
        let why = after(&bert, &images(&reads), &Given::default(), 0).expect_err("not his");
        assert!(why.contains("has the rights of user 61301"), "{why}");
    }

    #[test]
    fn nodes_of_every_kind_are_looked_at_and_nothing_is_opened() {
        let Some(folder) = folder() else { return };
        let (fifo, device) = (folder.path().join("fifo"), folder.path().join("device"));
        let (mode, own_mode) = (Mode::from_raw_mode(0o600), Mode::from_raw_mode(0o666));
        let node = |path: &Path, kind, mode, device| {
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, device).expect("root may");
        };
        node(&fifo, rustix::fs::FileType::Fifo, mode, 0);
        // The random one, say: a device as any other.
        node(&device, rustix::fs::FileType::CharacterDevice, mode, rustix::fs::makedev(1, 8));
        for path in [&fifo, &device] {
            let held = sleeper(open(path, true, path == &fifo));
            let why = checked(&images(&held)).expect_err("root's alone");
            assert!(why.contains("may not open"), "{why}");
            set(path, own_mode.as_raw_mode());
            assert_eq!(checked(&images(&held)), Ok(()));
        }
    }

    /// What has been put into the place of a file after it was opened, or before.
    #[test]
    fn what_was_replaced_is_refused() {
        let Some(folder) = folder() else { return };
        let at = |name: &str| folder.path().join(name);
        let secret = file(&at("secret"), 0o600);
        own(&file(&at("a"), 0o600), 0o600);
        // CRIU had opened the secret by the name of hers.
        let held = sleeper(open(&secret, true, false));
        fs::remove_file(&secret).expect("ours");
        own(&file(&at("secret"), 0o600), 0o600);
        let why = checked(&images(&held)).expect_err("it was another one");
        assert!(why.contains("may not open"), "{why}");
        // Hers, but somewhere else by now.
        let held = sleeper(open(&at("a"), true, false));
        assert_eq!(checked(&images(&held)), Ok(()));
        fs::rename(at("secret"), at("a")).expect("moved");
        let why = checked(&images(&held)).expect_err("removed");
        assert!(why.contains("is missing"), "{why}");
        // That it was removed the images may say.
        let mut said = images(&held);
        said.removed.push(super::super::images::Removed {
            path: at("a").as_os_str().as_bytes().to_owned(),
            ghost: Some((ANNA.0, ANNA.1, 0o100_600)),
        });
        assert_eq!(checked(&said), Ok(()));
        // But not of what is not hers.
        let secret = file(&at("b"), 0o600);
        let held = sleeper(open(&secret, true, false));
        fs::remove_file(&secret).expect("ours");
        let mut said = images(&held);
        said.removed.push(super::super::images::Removed {
            path: at("b").as_os_str().as_bytes().to_owned(),
            ghost: Some((ANNA.0, ANNA.1, 0o100_600)),
        });
        assert!(checked(&said).is_err());
    }

    #[test]
    fn what_is_to_be_opened_is_looked_at_before() {
        let Some(folder) = folder() else { return };
        let at = |name: &str| folder.path().join(name);
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_owned();
        let named = |path: &Path, flags: i32| {
            let file = super::super::images::Named { path: bytes(path), flags: flags as u32 };
            let images = Images { named: vec![file], ..Images::default() };
            before(&anna(), &images, &Given::default())
        };
        own(&file(&at("a"), 0o400), 0o400);
        assert_eq!(named(&at("a"), libc::O_RDONLY), Ok(()));
        let why = named(&at("a"), libc::O_RDWR).expect_err("it is closed to her");
        assert!(why.contains("may not open"), "{why}");
        std::os::unix::fs::symlink(at("a"), at("link")).expect("linked");
        let why = named(&at("link"), libc::O_RDONLY).expect_err("a link");
        assert!(why.contains("symbolic link"), "{why}");
        assert!(named(&at("none"), libc::O_RDONLY).is_err());
        // Its shepherd has a log, which is root's.
        let given = Given { keys: ["file[1:2]".to_owned()].into(), ..Given::default() };
        let file = super::super::images::Named { path: b"file[1:2]".into(), flags: 1 };
        let images = Images { named: vec![file], ..Images::default() };
        assert_eq!(before(&anna(), &images, &given), Ok(()));
        // What is made is made where she could make it.
        let ghost = |path: &Path| {
            let ghost = Some((ANNA.0, ANNA.1, 0o100_600));
            let removed = super::super::images::Removed { path: bytes(path), ghost };
            let images = Images { removed: vec![removed], ..Images::default() };
            before(&anna(), &images, &Given::default())
        };
        assert_eq!(ghost(&at("gone")), Ok(()));
        assert_eq!(ghost(&at("below/and/gone")), Ok(()));
        let why = ghost(Path::new("/etc/gone")).expect_err("not there");
        assert!(why.contains("may not write to /etc"), "{why}");
        std::os::unix::fs::symlink("/etc", at("etc")).expect("linked");
        assert!(ghost(&at("etc/gone")).is_err());
    }

    #[test]
    fn removed_files_are_counted_once() {
        let Some(folder) = folder() else { return };
        let path = folder.path().join("a");
        fs::write(&path, vec![1; 100_000]).expect("written");
        own(&path, 0o600);
        let two = [0, 1].map(|_| sleeper(open(&path, true, false)));
        let pids = two.each_ref().map(|sleeper| sleeper.0.id() as i32);
        assert_eq!(standing(&anna(), &pids), Ok(0));
        fs::remove_file(&path).expect("ours");
        let bytes = standing(&anna(), &pids).expect("hers");
        assert!((100_000..200_000).contains(&bytes), "{bytes}");
    }
}
