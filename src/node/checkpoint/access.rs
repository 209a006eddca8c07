//! Whether an application may have the files that it was given back.
//!
//! # The problem
//! CRIU runs as root, and opens each file by the path that it had. The images are root's, so that nobody
//! can have changed the path; but a directory above the file may be the user's, who can have put something
//! else there since: a symbolic link to a file that only root may read, say. CRIU compares sizes and types,
//! and no owners. Restored, the program would have that file open.
//!
//! # The approach
//! When everybody is there and nobody has run an instruction yet, each open file and each mapped one of each
//! process is opened once more: at the path where the kernel says that it is now, with the rights of the
//! application's owner and in the same way (to read, to write). What he can open there himself, and is the
//! same file, he may have; for anything else the restart is refused, by name. Files without a name any more
//! come from the images.
//!
//! That is stricter than it was when the program opened it: one that has been closed to its owner since, or
//! that a set-user-ID program has opened, is refused too.

use crate::os::acting::with_rights_of;
use rustix::fs::{Access, AtFlags, Mode, OFlags};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A file, and how it is used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Used {
    path: PathBuf,
    writes: bool,
    reads: bool,
    /// To open one might do something: the rights to it are asked for.
    device: bool,
    dev: u64,
    ino: u64,
}

/// Whose files these may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl Owner {
    /// That of a process.
    ///
    /// # Errors
    /// It can't be looked at.
    pub fn of(pid: i32) -> Result<Owner, String> {
        let path = format!("/proc/{pid}/status");
        let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        let ids = |name: &str| -> Option<Vec<u32>> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().map(|id| id.parse().ok()).collect()
        };
        let owner = || {
            let (uid, gid) = (*ids("Uid:")?.first()?, *ids("Gid:")?.first()?);
            Some(Owner { uid, gid, groups: ids("Groups:")? })
        };
        owner().ok_or_else(|| format!("{path} does not tell its ids"))
    }
}

/// Whether this owner could open every file that these processes have.
///
/// # Errors
/// The first that he could not, and why.
pub(super) fn check(owner: &Owner, pids: &[i32]) -> Result<(), String> {
    if owner.uid == 0 {
        return Ok(());
    }
    let mut all = BTreeSet::new();
    for pid in pids {
        all.extend(used_by(*pid)?);
    }
    let refused = |used: &Used| -> Option<String> {
        let shown = used.path.display();
        match open(used) {
            Ok(same) => (!same).then(|| format!("{shown} is another file by now")),
            Err(error) => Some(format!(
                "it has {shown} open, which user {} may not open ({error}): who owns it can let him",
                owner.uid
            )),
        }
    };
    let looked = || all.iter().find_map(refused);
    match with_rights_of(owner.uid, owner.gid, &owner.groups, looked) {
        Ok(None) => Ok(()),
        Ok(Some(why)) => Err(why),
        Err(error) => Err(format!("its files can't be looked at as user {}: {error}", owner.uid)),
    }
}

/// Opens it; whether it is the same file.
fn open(used: &Used) -> std::io::Result<bool> {
    if used.device {
        let mut access = Access::EXISTS;
        access.set(Access::READ_OK, used.reads);
        access.set(Access::WRITE_OK, used.writes);
        rustix::fs::accessat(rustix::fs::CWD, &used.path, access, AtFlags::EACCESS)?;
    }
    let way = match (used.reads && !used.device, used.writes && !used.device) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        (true, false) => OFlags::RDONLY,
        (false, false) => OFlags::PATH,
    };
    let flags = way | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let fd = rustix::fs::open(&used.path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&fd)?;
    Ok((found.st_dev, found.st_ino) == (used.dev, used.ino))
}

/// What a process has open or mapped, or is in.
fn used_by(pid: i32) -> Result<Vec<Used>, String> {
    let failed = |path: &str, e: std::io::Error| format!("{path}: {e}");
    let mut all = Vec::new();
    let folder = format!("/proc/{pid}/fd");
    for entry in fs::read_dir(&folder).map_err(|e| failed(&folder, e))? {
        let name = entry.map_err(|e| failed(&folder, e))?.file_name();
        let info = format!("/proc/{pid}/fdinfo/{}", name.display());
        let text = fs::read_to_string(&info).map_err(|e| failed(&info, e))?;
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
        let flags = flags.ok_or_else(|| format!("{info} has no flags"))?;
        let way = flags & libc::O_ACCMODE;
        let (reads, writes) = match flags & libc::O_PATH {
            0 => (way != libc::O_WRONLY, way != libc::O_RDONLY),
            _ => (false, false),
        };
        all.extend(used(&Path::new(&folder).join(name), reads, writes)?);
    }
    let folder = format!("/proc/{pid}/map_files");
    let maps = format!("/proc/{pid}/maps");
    let text = fs::read_to_string(&maps).map_err(|e| failed(&maps, e))?;
    // `FROM-TO rwxs OFFSET DEVICE INODE   PATH`
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), Some(rights)) = (fields.next(), fields.next()) else { continue };
        if fields.nth(3).is_none_or(|path| !path.starts_with('/')) {
            continue;
        }
        let shared = rights.as_bytes().get(1..4).is_some_and(|r| r[0] == b'w' && r[2] == b's');
        // Leading zeros are not in the names of the links.
        let part = |hex: &str| u64::from_str_radix(hex, 16).map(|n| format!("{n:x}")).ok();
        let name =
            range.split_once('-').and_then(|(a, b)| Some(format!("{}-{}", part(a)?, part(b)?)));
        let name = name.ok_or_else(|| format!("{maps} is not understood"))?;
        all.extend(used(&Path::new(&folder).join(name), true, shared)?);
    }
    all.extend(used(Path::new(&format!("/proc/{pid}/cwd")), false, false)?);
    Ok(all)
}

/// The file behind a link of /proc, if it is one with a name: pipes and sockets are not looked at, nor
/// what was removed, which came from the images.
fn used(link: &Path, reads: bool, writes: bool) -> Result<Option<Used>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", link.display());
    let path = fs::read_link(link).map_err(failed)?;
    let bytes = path.as_os_str().as_bytes();
    if !bytes.starts_with(b"/") || bytes.ends_with(b" (deleted)") {
        return Ok(None);
    }
    let found = fs::metadata(link).map_err(failed)?;
    let kind = found.file_type();
    let device = kind.is_block_device() || kind.is_char_device();
    let named = kind.is_file() || kind.is_dir() || device;
    Ok(named.then(|| Used { path, reads, writes, device, dev: found.dev(), ino: found.ino() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Child, Command, Stdio};

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn sleeper(stdin: fs::File) -> Sleeper {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo; kill -STOP $$"]).current_dir("/").stdin(stdin);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut sleeper = Sleeper(command.spawn().expect("a shell starts"));
        // Until it has mapped all that it maps.
        let mut said = [0];
        let out = sleeper.0.stdout.as_mut().expect("a pipe");
        std::io::Read::read_exact(out, &mut said).expect("it says so");
        sleeper
    }

    #[test]
    fn what_its_owner_could_not_open_is_refused() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let anna = Owner { uid: 61_301, gid: 61_401, groups: vec![] };
        let file = tempfile::NamedTempFile::new_in("/tmp").expect("made");
        let set = |mode| {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(file.path(), mode).expect("ours");
        };
        let name = file.path().display().to_string();
        let reads = sleeper(fs::File::open(file.path()).expect("opened"));
        let writes = fs::File::options().write(true).open(file.path()).expect("opened");
        let writes = sleeper(writes);
        let checked = |sleeper: &Sleeper| check(&anna, &[sleeper.0.id() as i32]);
        set(0o644);
        assert_eq!(checked(&reads), Ok(()));
        let why = checked(&writes).expect_err("he may only read it");
        assert!(why.contains(&name) && why.contains("61301"), "{why}");
        set(0o600);
        assert!(checked(&reads).is_err());
        // Root may have what it likes.
        let root = Owner { uid: 0, gid: 0, groups: vec![] };
        assert_eq!(check(&root, &[reads.0.id() as i32]), Ok(()));
        // One without a name any more comes from the images.
        drop(file);
        assert_eq!(checked(&writes), Ok(()));
    }

    #[test]
    fn owners_are_told() {
        let own = Owner::of(std::process::id() as i32).expect("readable");
        assert_eq!(own.uid, nix::unistd::getuid().as_raw());
    }
}
