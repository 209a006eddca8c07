//! The files of an application's own /dev/shm.
//!
//! CRIU takes what processes have open or mapped of a removed file into its images, and of a file with a
//! name only the name: that the file is still there is the caller's business. /dev/shm of an application is
//! a file system that ends with its last process, so its files are packed into one image while everything
//! stands still, and laid out again before anything is restored. The zeros of sparse files stay holes.
//!
//! ```text
//! image:   entry* 0
//! entry:   length of the head, head as JSON: what it is, name, owner, mode, times; then of
//!          a file       (offset, length > 0, bytes)* (0, 0)
//!          a directory  its entries, and 0
//! ```
//!
//! Numbers are of eight bytes, the lowest first.

use super::CheckpointError;
use super::images::Owner;
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid,
};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// The name of the image.
pub const FILE: &str = "shm.img";
/// Files and directories that are packed.
const FILES_MAX: usize = 100_000;
/// Directories within directories.
const DEPTH_MAX: usize = 16;
/// Bytes copied at once.
const PIECE: usize = 1024 * 1024;
/// The longest head, in bytes: a name of 255, escaped, and some numbers.
const HEAD_MAX: u64 = 4096;

/// What is known of an entry beside its data.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    directory: bool,
    name: Vec<u8>,
    uid: u32,
    gid: u32,
    mode: u32,
    /// Of the last access and the last change, each in seconds and nanoseconds.
    times: [(i64, i64); 2],
    /// Bytes of a file, holes too.
    length: u64,
}

impl Head {
    fn of(name: &CStr, stat: &Stat, directory: bool) -> Head {
        Head {
            directory,
            name: name.to_bytes().to_vec(),
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o7777,
            times: [
                (stat.st_atime, stat.st_atime_nsec as i64),
                (stat.st_mtime, stat.st_mtime_nsec as i64),
            ],
            length: u64::try_from(stat.st_size).unwrap_or(0),
        }
    }

    /// The name, if it is one in a directory.
    fn name(&self) -> io::Result<CString> {
        let bad = matches!(&self.name[..], b"" | b"." | b"..") || self.name.contains(&b'/');
        let name = CString::new(self.name.clone()).ok().filter(|_| !bad);
        name.ok_or_else(|| io::Error::other("a file has a malformed name"))
    }

    /// Makes it so.
    fn apply(&self, to: BorrowedFd<'_>) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        rustix::fs::fchown(to, Some(uid), Some(gid))?;
        // After the owner, for whom some bits of it go.
        rustix::fs::fchmod(to, Mode::from_raw_mode(self.mode & 0o7777))?;
        let [last_access, last_modification] =
            self.times.map(|(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec });
        Ok(rustix::fs::futimens(to, &Timestamps { last_access, last_modification })?)
    }
}

/// Packs what is in a directory; gives the bytes of data.
///
/// # Errors
/// The disk is full, say; or something is there that is neither a file nor a directory, or that is
/// not its owner's.
pub fn pack(
    from: BorrowedFd<'_>,
    to: &mut dyn Write,
    owner: &Owner,
) -> Result<u64, CheckpointError> {
    let mut packing = Packing { to, owner, files: 0, bytes: 0, buffer: vec![0; PIECE] };
    packing.directory(from, 0).map_err(|(name, error)| {
        CheckpointError::new(format!("/dev/shm/{name} can't be copied: {error}"))
    })?;
    Ok(packing.bytes)
}

struct Packing<'a> {
    to: &'a mut dyn Write,
    owner: &'a Owner,
    files: usize,
    bytes: u64,
    buffer: Vec<u8>,
}

type Failed = (String, io::Error);

/// Whether something of these ids is this owner's, or he is root: another's would be given to him
/// as an image.
fn his(owner: &Owner, uid: u32, gid: u32) -> io::Result<()> {
    if owner.uid == 0 || (uid == owner.uid && owner.has_group(gid)) {
        return Ok(());
    }
    let text =
        format!("it belongs to user {uid}, group {gid}, and the application to user {}", owner.uid);
    Err(io::Error::other(text))
}

impl Packing<'_> {
    fn number(&mut self, number: u64) -> io::Result<()> {
        self.to.write_all(&number.to_le_bytes())
    }

    fn directory(&mut self, from: BorrowedFd<'_>, depth: usize) -> Result<(), Failed> {
        let whole = |e: io::Error| (String::new(), e);
        for entry in Dir::read_from(from).map_err(|e| whole(e.into()))? {
            let entry = entry.map_err(|e| whole(e.into()))?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let shown = name.to_string_lossy().into_owned();
            self.files += 1;
            if self.files > FILES_MAX || depth > DEPTH_MAX {
                let text = format!(
                    "/dev/shm has more than {FILES_MAX} files, or more than {DEPTH_MAX} levels of \
                     directories"
                );
                return Err((shown, io::Error::other(text)));
            }
            self.entry(from, name, depth).map_err(|(inner, error)| {
                let path = if inner.is_empty() { shown } else { format!("{shown}/{inner}") };
                (path, error)
            })?;
        }
        self.number(0).map_err(whole)
    }

    fn entry(&mut self, from: BorrowedFd<'_>, name: &CStr, depth: usize) -> Result<(), Failed> {
        let failed = |e: io::Error| (String::new(), e);
        let errno = |e: rustix::io::Errno| failed(e.into());
        let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW).map_err(errno)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let directory = kind == FileType::Directory;
        if !directory && kind != FileType::RegularFile {
            let text = format!("it is neither a file nor a directory ({kind:?}): remove it");
            return Err(failed(io::Error::other(text)));
        }
        his(self.owner, stat.st_uid, stat.st_gid).map_err(failed)?;
        let only = if directory { OFlags::DIRECTORY } else { OFlags::empty() };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | only;
        let source = rustix::fs::openat(from, name, flags, Mode::empty()).map_err(errno)?;
        let head = serde_json::to_vec(&Head::of(name, &stat, directory));
        let head = head.map_err(|e| failed(e.into()))?;
        self.number(head.len() as u64).and_then(|()| self.to.write_all(&head)).map_err(failed)?;
        match directory {
            true => self.directory(source.as_fd(), depth + 1),
            false => self.file(&File::from(source), &stat).map_err(failed),
        }
    }

    /// The data of a file, without its holes.
    fn file(&mut self, from: &File, stat: &Stat) -> io::Result<()> {
        let length = u64::try_from(stat.st_size).unwrap_or(0);
        let mut at = 0;
        while at < length {
            at = match rustix::fs::seek(from, SeekFrom::Data(at)) {
                Ok(data) => data,
                // No more data, only a hole.
                Err(rustix::io::Errno::NXIO) => break,
                Err(e) => return Err(e.into()),
            };
            let end = rustix::fs::seek(from, SeekFrom::Hole(at))?.min(length);
            self.number(at)?;
            self.number(end - at)?;
            while at < end {
                let most = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
                let count = from.read_at(&mut self.buffer[..most], at)?;
                if count == 0 {
                    return Err(io::Error::other("it became shorter while it was copied"));
                }
                self.to.write_all(&self.buffer[..count])?;
                at += count as u64;
                self.bytes += count as u64;
            }
        }
        self.number(0)?;
        self.number(0)
    }
}

/// Lays out in a directory what has been packed.
///
/// # Errors
/// It is not what is packed, or memory is short.
pub fn unpack(
    from: &mut dyn Read,
    to: BorrowedFd<'_>,
    owner: &Owner,
) -> Result<(), CheckpointError> {
    let mut unpacking = Unpacking { from, owner, files: 0, buffer: vec![0; PIECE] };
    unpacking
        .directory(to, 0)
        .map_err(|error| CheckpointError::new(format!("/dev/shm can't be restored: {error}")))
}

struct Unpacking<'a> {
    from: &'a mut dyn Read,
    owner: &'a Owner,
    files: usize,
    buffer: Vec<u8>,
}

impl Unpacking<'_> {
    fn number(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.from.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn directory(&mut self, to: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        loop {
            let length = self.number()?;
            if length == 0 {
                return Ok(());
            }
            self.files += 1;
            if length > HEAD_MAX || self.files > FILES_MAX || depth > DEPTH_MAX {
                return Err(io::Error::other("it has an unknown format"));
            }
            let mut head = vec![0; length as usize];
            self.from.read_exact(&mut head)?;
            let head: Head = serde_json::from_slice(&head)?;
            his(self.owner, head.uid, head.gid)?;
            let name = head.name()?;
            let own = Mode::RUSR | Mode::WUSR | Mode::XUSR;
            let common = OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made: OwnedFd = match head.directory {
                true => {
                    rustix::fs::mkdirat(to, &name, own)?;
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | common;
                    let made = rustix::fs::openat(to, &name, flags, Mode::empty())?;
                    self.directory(made.as_fd(), depth + 1)?;
                    made
                }
                false => {
                    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | common;
                    let made = File::from(rustix::fs::openat(to, &name, flags, own)?);
                    made.set_len(head.length)?;
                    self.file(&made)?;
                    made.into()
                }
            };
            head.apply(made.as_fd())?;
        }
    }

    fn file(&mut self, to: &File) -> io::Result<()> {
        loop {
            let (mut at, mut left) = (self.number()?, self.number()?);
            if left == 0 {
                return Ok(());
            }
            while left > 0 {
                let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
                self.from.read_exact(&mut self.buffer[..most])?;
                to.write_all_at(&self.buffer[..most], at)?;
                (at, left) = (at.saturating_add(most as u64), left - most as u64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn own() -> Owner {
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        Owner { uid, gid, groups: vec![] }
    }

    #[test]
    fn what_is_not_its_owners_is_refused() {
        let (from, to) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
        std::fs::write(from.path().join("theirs"), "text").expect("written");
        let open = |path: &std::path::Path| File::open(path).expect("opened");
        let other = Owner { uid: own().uid + 1, ..own() };
        let mut image = Vec::new();
        let error = pack(open(from.path()).as_fd(), &mut image, &other).expect_err("not his");
        assert!(error.to_string().contains("/dev/shm/theirs"), "{error}");
        image.clear();
        pack(open(from.path()).as_fd(), &mut image, &own()).expect("packed");
        let error = unpack(&mut &image[..], open(to.path()).as_fd(), &other).expect_err("not his");
        assert!(error.to_string().contains("it belongs to user"), "{error}");
    }

    #[test]
    fn files_come_as_they_are_and_holes_stay_holes() {
        let (from, to) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
        let sparse = File::create(from.path().join("sparse")).expect("made");
        sparse.set_len(64 << 20).expect("sparse");
        sparse.write_all_at(b"here", 32 << 20).expect("written");
        std::fs::create_dir(from.path().join("below")).expect("made");
        std::fs::write(from.path().join("below/small"), "text").expect("written");
        let mode = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(from.path().join("below/small"), mode).expect("mode");
        let open = |path: &std::path::Path| File::open(path).expect("opened");
        let mut image = Vec::new();
        let bytes = pack(open(from.path()).as_fd(), &mut image, &own()).expect("packed");
        assert!(bytes < 2 << 20, "{bytes}");
        unpack(&mut &image[..], open(to.path()).as_fd(), &own()).expect("laid out");
        let copied = std::fs::read(to.path().join("sparse")).expect("read");
        assert_eq!(copied.len(), 64 << 20);
        assert_eq!(&copied[32 << 20..][..5], b"here\0");
        let small = std::fs::metadata(to.path().join("below/small")).expect("there");
        assert_eq!(small.mode() & 0o7777, 0o640);
        let before = std::fs::metadata(from.path().join("below/small")).expect("there");
        assert_eq!(small.modified().expect("a time"), before.modified().expect("a time"));
    }

    #[test]
    fn what_is_no_file_is_refused_by_name() {
        let from = tempfile::tempdir().expect("made");
        std::os::unix::fs::symlink("/etc/passwd", from.path().join("link")).expect("made");
        let open = |path: &std::path::Path| File::open(path).expect("opened");
        let error = pack(open(from.path()).as_fd(), &mut Vec::new(), &own()).expect_err("a link");
        assert!(error.to_string().contains("/dev/shm/link"), "{error}");
    }

    /// Nothing outside of the directory is touched, and what is cut off is no image.
    #[test]
    fn what_is_no_image_is_refused() {
        let (from, to) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
        std::fs::write(from.path().join("abcd"), "text").expect("written");
        let open = |path: &std::path::Path| File::open(path).expect("opened");
        let mut image = Vec::new();
        pack(open(from.path()).as_fd(), &mut image, &own()).expect("packed");
        let cut = &image[..image.len() - 1];
        assert!(unpack(&mut &*cut, open(to.path()).as_fd(), &own()).is_err());
        std::fs::remove_file(to.path().join("abcd")).expect("it was begun");
        // The name, as the head has it, is another one as long.
        let (name, other) = (b"97,98,99,100", b"46,46,47,120");
        let at = image.windows(name.len()).position(|bytes| bytes == name).expect("its name");
        image[at..at + name.len()].copy_from_slice(other);
        let error =
            unpack(&mut &image[..], open(to.path()).as_fd(), &own()).expect_err("elsewhere");
        assert!(error.to_string().contains("a file has a malformed name"), "{error}");
    }
}
