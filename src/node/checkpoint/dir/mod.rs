//! The folder of a checkpoint.
//!
//! It is a user's, in a folder of his, and root's daemons write it and read it. So nothing is done by a
//! path: a [`Spot`] is the folder above, opened by who was asked (as the user), and a name in it; what
//! follows goes by descriptors and follows no link. Only plain files with no other name are a checkpoint's,
//! in the folder itself or in one below it: a link, a FIFO or a device is refused, by name.
//!
//! ```text
//! parent/                         opened by the user, given as a descriptor
//!   .NAME.partial-1f2e3d4c5b6a7988/   while it is written, or removed; flock(2)ed by who does that
//!   NAME/                         the checkpoint, once it is whole
//!     manifest.json
//!     host-0/pages-1.img ...
//! ```
//!
//! **Writing** ([`Partial`], [`Dir::seal`]): beside it, under another name; each file and the
//! folder are on disk before they are renamed. While root writes them they are in a folder that
//! only root may enter. What a back end has written is summed up in a folder of root's own, and
//! then copied there ([`Dir::seal_copies`]): what is sealed is what was written, whatever file
//! system the user's folder is on. Then the files are given to the user, for they count against his
//! quota, and he is to look at them and remove them. A folder of FUSE, whose file system is a
//! user's program, is refused ([`refuse_fuse`]).
//!
//! **Reading** ([`Dir`]): the user could change a file between the look at it and its use. Root therefore
//! restores from a copy of its own, which is compared while it is made ([`Dir::fetch`]).
//!
//! **Removing** ([`remove`]): renamed to a partial one first, so that a checkpoint of which files are gone
//! never looks like one, and only files that the manifest lists.

mod borrowed_dir;
mod each;
mod key;
mod partial;
mod pieces;
mod remove;
mod sealing;
#[cfg(test)]
mod tests;

pub use borrowed_dir::BorrowedDir;
pub use key::{KEY_FILE, load_key, load_or_make_key};
pub use partial::{Partial, publish};
pub use pieces::{Incoming, PIECE_MAX};
pub use remove::{Leftover, leftovers, remove, remove_leftover};

use crate::checkpoint::{FILES_MAX, Files, Flaw, Image, Summing, folders};
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, openat, statat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Take, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long it may take until one who has held a checkpoint has let go of it.
const LET_GO: Duration = Duration::from_millis(500);
/// Bytes that are read at once.
const PIECE: usize = 1 << 18;

/// A flag set for folders: they are opened, and no link to one.
const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What the system refuses, with the cure where there is one that is known.
fn system(doing: impl Into<String>, error: impl Into<std::io::Error>) -> Flaw {
    let error = error.into();
    let cure = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => "; make room there, or name a folder elsewhere",
        Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) => "; name a folder that you may write to",
        Some(Errno::NAMETOOLONG) => "; give it a shorter name",
        _ => "",
    };
    Flaw::System { doing: doing.into(), why: format!("{error}{cure}") }
}

/// A folder of this owner, if that is known, can't be opened: another user's by those who may not
/// read it. (To read it is more than to write there, so that another folder to write to is no
/// cure.)
fn unopened(shown: &str, owner: Option<u32>, error: Errno) -> Flaw {
    let doing = format!("opening {shown}");
    let another = owner.filter(|owner| *owner != rustix::process::geteuid().as_raw());
    match another {
        Some(owner) if matches!(error, Errno::ACCESS | Errno::PERM) => {
            let why = format!(
                "{}: it belongs to user {owner}, and you may not read it: ask its owner, or root",
                std::io::Error::from(error)
            );
            Flaw::System { doing, why }
        }
        _ => system(doing, error),
    }
}

/// A name in a folder, where a checkpoint is or is to be.
#[derive(Debug)]
pub struct Spot {
    parent: OwnedFd,
    name: OsString,
}

impl Spot {
    /// Of a folder that has been opened, as it comes from a process that asks for a checkpoint.
    ///
    /// # Errors
    /// It is no folder, or the name is not one.
    pub fn new(parent: OwnedFd, name: &OsStr) -> Result<Spot, Flaw> {
        let bytes = name.as_bytes();
        if matches!(bytes, b"" | b"." | b"..") || bytes.contains(&b'/') || bytes.contains(&0) {
            return Err(Flaw::Unfit(format!("is a folder, and {name:?} is not a name for one")));
        }
        let found = fstat(&parent).map_err(|e| system("looking at the folder above", e))?;
        match is_folder(&found) {
            true => Ok(Spot { parent, name: name.to_owned() }),
            false => {
                Err(Flaw::Unfit("is in a folder, and what is above it is not a folder".into()))
            }
        }
    }

    /// Of a path, as this process sees it. Links on the way are followed, the last name is none.
    ///
    /// # Errors
    /// The folder above can't be opened.
    pub fn of(path: &Path) -> Result<Spot, Flaw> {
        let shown = path.display();
        // `.` and what ends in `..` are folders that have names elsewhere.
        let whole = match path.file_name() {
            Some(_) => path.to_owned(),
            None => {
                std::fs::canonicalize(path).map_err(|e| system(format!("opening {shown}"), e))?
            }
        };
        let name = whole.file_name().ok_or_else(|| {
            Flaw::Unfit(format!("is a folder in another one, and {shown} is in none"))
        })?;
        let parent = match whole.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(parent, flags, Mode::empty()).map_err(|e| {
            let owner = std::fs::metadata(parent).ok().map(|found| found.uid());
            unopened(&parent.display().to_string(), owner, e)
        })?;
        Spot::new(opened, name)
    }

    /// The name.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// The folder above.
    pub fn parent(&self) -> BorrowedFd<'_> {
        self.parent.as_fd()
    }

    fn shown(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// What is there; none: nothing.
    ///
    /// # Errors
    /// It is no folder, or the system refuses.
    pub fn open(&self) -> Result<Option<Dir>, Flaw> {
        match openat(&self.parent, &self.name, FOLDER, Mode::empty()) {
            Ok(fd) => Dir::new(fd).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => match stat(self.parent(), &self.name)? {
                Some(found) if !is_folder(&found) => {
                    let what = kind(&found);
                    Err(Flaw::Unfit(format!("is a folder, and {} is {what}", self.shown())))
                }
                found => Err(unopened(&self.shown(), found.map(|found| found.st_uid), error)),
            },
        }
    }
}

/// Refuses a folder whose file system is a program of a user's (FUSE): it gives back what it likes,
/// or nothing, and whoever waits for it waits as long as it likes. Nothing is asked of it here, if
/// its mount is one of ours.
///
/// # Errors
/// It is one.
pub fn refuse_fuse(folder: BorrowedFd<'_>) -> Result<(), Flaw> {
    const FUSE: i64 = 0x6573_5546;
    let flaw = || {
        Flaw::Unfit(
            "can't be in a folder of a FUSE file system, whose program could give back other \
             bytes than were written; name a folder on another file system"
                .into(),
        )
    };
    let read = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
    let info = read(&format!("/proc/self/fdinfo/{}", folder.as_raw_fd()));
    let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(str::trim);
    let mounts = read("/proc/self/mountinfo");
    let of_kind = |line: &'_ str| {
        let own = line.split(' ').next() == mount;
        line.split_once(" - ").filter(|_| own).map(|(_, rest)| rest.starts_with("fuse"))
    };
    match mounts.lines().find_map(of_kind) {
        Some(true) => return Err(flaw()),
        Some(false) => return Ok(()),
        None => {}
    }
    let found = rustix::fs::fstatfs(folder).map_err(|e| system("looking at the folder", e))?;
    if found.f_type == FUSE { Err(flaw()) } else { Ok(()) }
}

/// The folder of a checkpoint, opened.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    uid: u32,
}

impl Dir {
    /// One that has been opened.
    ///
    /// # Errors
    /// It is no folder.
    pub fn new(fd: OwnedFd) -> Result<Dir, Flaw> {
        let found = fstat(&fd).map_err(|e| system("looking at the folder", e))?;
        match is_folder(&found) {
            true => Ok(Dir { fd, uid: found.st_uid }),
            false => Err(Flaw::Unfit("is a folder".into())),
        }
    }

    /// The user whose folder it is.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Keeps it from being used or removed by others as long as this is open, also in a process that is given
    /// the descriptor: of two restarts at once one is refused.
    ///
    /// For a moment ([`LET_GO`]) it is waited for: who has just made a checkpoint may hold it a little longer than
    /// it takes to hear of it, as a process does that was begun by then and has yet to become another program.
    ///
    /// # Errors
    /// Another holds it.
    pub fn hold(&self) -> Result<(), Flaw> {
        let until = Instant::now() + LET_GO;
        loop {
            match flock(self, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LET_GO / 50),
                Err(Errno::WOULDBLOCK) => return Err(Flaw::Busy),
                // Where there are no locks (on some network file systems) nobody can be told.
                _ => return Ok(()),
            }
        }
    }

    /// The folder of a file, and its name in there; none: there is no such folder.
    fn place<'n>(&self, name: &'n str) -> Result<Option<(OwnedFd, &'n str)>, Flaw> {
        let (folder, rest) = name.split_once('/').unwrap_or((".", name));
        match openat(&self.fd, folder, FOLDER, Mode::empty()) {
            Ok(fd) => Ok(Some((fd, rest))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(match stat(self.fd.as_fd(), folder)? {
                Some(found) if !is_folder(&found) => {
                    Flaw::NotPlain { file: folder.into(), what: kind(&found) }
                }
                _ => system(format!("opening {folder}"), error),
            }),
        }
    }

    /// Copies these files of its manifest into a folder which nobody else may enter, in which they are not yet,
    /// and compares them on the way: what is there then is what was sealed, whatever becomes of this folder.
    ///
    /// # Errors
    /// A file is not as it was, or the system refuses; what has been copied is still there.
    pub fn fetch(&self, files: &[Image], into: BorrowedFd<'_>) -> Result<(), Flaw> {
        self.copy(files, into, |image, from, mut to| {
            let (mut sum, mut written) = (Summing::default(), Ok(()));
            let read = pour(from, &image.name, &mut |piece| {
                sum.add(piece);
                if written.is_ok() {
                    written = to.write_all(piece);
                }
            })?;
            written.map_err(|e| system(copying(image), e))?;
            image.compare(Some(read), sum)
        })
    }

    /// The same, and no more than their sizes is compared: what is there then may be anything, until
    /// [`compare_copies`] has looked at it. That is quicker where somebody else does something meanwhile.
    ///
    /// # Errors
    /// As of [`Dir::fetch`].
    pub fn fetch_unseen(&self, files: &[Image], into: BorrowedFd<'_>) -> Result<(), Flaw> {
        self.copy(files, into, |image, mut from, mut to| {
            // (Within the kernel, where the file systems can.)
            let read = std::io::copy(&mut from, &mut to).map_err(|e| system(copying(image), e))?;
            image.has_size(Some(read))
        })
    }

    /// Copies each of these by `each`, which gets no more than one byte too many.
    fn copy(
        &self,
        files: &[Image],
        into: BorrowedFd<'_>,
        each: impl Fn(&Image, Take<File>, File) -> Result<(), Flaw> + Sync,
    ) -> Result<(), Flaw> {
        for folder in folders(files) {
            match rustix::fs::mkdirat(into, folder, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(system(format!("making a folder {folder}"), e)),
            }
        }
        let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let copied = |image: &Image| {
            let from = self.open(&image.name)?;
            let from = from.ok_or_else(|| Flaw::Missing { file: image.name.clone() })?;
            // (Its folder, if it is in one, has just been made in one that is ours.)
            let to = openat(into, &image.name, create | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
            let to = File::from(to.map_err(|e| system(copying(image), e))?);
            each(image, from.take(image.size.saturating_add(1)), to)
        };
        each::at_once(files, copied).map(drop)
    }

    /// One of its files, for reading; none: it is not there.
    fn open(&self, name: &str) -> Result<Option<File>, Flaw> {
        let Some((folder, file)) = self.place(name)? else { return Ok(None) };
        open_plain(folder.as_fd(), file, name)
    }
}

fn copying(image: &Image) -> String {
    format!("copying {}", image.name)
}

/// Whether these files, copied into this folder of ours by [`Dir::fetch_unseen`], are what was sealed.
///
/// # Errors
/// One is not, or can't be read.
pub fn compare_copies(files: &[Image], folder: BorrowedFd<'_>) -> Result<(), Flaw> {
    let folder = folder.try_clone_to_owned();
    let folder = Dir::new(folder.map_err(|e| system("looking at the copy", e))?)?;
    let compared = |image: &Image| {
        let mut sum = Summing::default();
        let read = folder.read(&image.name, u64::MAX, &mut |piece| sum.add(piece))?;
        image.compare(read, sum)
    };
    each::at_once(files, compared).map(drop)
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Files for Dir {
    fn names(&self) -> Result<Vec<String>, Flaw> {
        let mut names = Vec::new();
        walk(self.as_fd(), &mut |name, found| {
            // A file that is linked elsewhere too could be changed by its other name. A folder is none of
            // the names that the manifest has.
            match plain(found) {
                Err(what) if !is_folder(found) => Err(Flaw::NotPlain { file: name, what }),
                _ => {
                    names.push(name);
                    Ok(())
                }
            }
        })?;
        Ok(names)
    }

    fn read(
        &self,
        name: &str,
        at_most: u64,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<u64>, Flaw> {
        let Some(file) = self.open(name)? else { return Ok(None) };
        pour(file.take(at_most), name, each).map(Some)
    }
}

/// Gives what is in a file piece by piece, and says how many bytes there were.
fn pour(mut file: impl Read, shown: &str, each: &mut dyn FnMut(&[u8])) -> Result<u64, Flaw> {
    let mut piece = vec![0; PIECE];
    let mut all = 0;
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(all),
            Ok(n) => {
                all += n as u64;
                each(&piece[..n]);
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(system(format!("reading {shown}"), e)),
        }
    }
}

/// What a name stands for, no link being followed; none: nothing.
fn stat(folder: BorrowedFd<'_>, name: impl rustix::path::Arg + Copy) -> Result<Option<Stat>, Flaw> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(system(format!("looking at {}", name.to_string_lossy()), e)),
    }
}

/// What something is, in words.
fn kind(found: &Stat) -> &'static str {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile if found.st_nlink > 1 => {
            "a file that has another name too (hard link)"
        }
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::BlockDevice | FileType::CharacterDevice => "a device",
        _ => "something else",
    }
}

fn is_folder(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Directory
}

/// Whether it is a plain file with one name; what it is instead.
fn plain(found: &Stat) -> Result<(), &'static str> {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile if found.st_nlink == 1 => Ok(()),
        _ => Err(kind(found)),
    }
}

/// A plain file, for reading; none: it is not there. `shown` is its name for people.
fn open_plain(folder: BorrowedFd<'_>, name: &str, shown: &str) -> Result<Option<File>, Flaw> {
    let not_plain = |what| Flaw::NotPlain { file: shown.into(), what };
    // To open a device can do something; so it is looked at before, and again when it is open.
    let Some(found) = stat(folder, name)? else { return Ok(None) };
    plain(&found).map_err(not_plain)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = match openat(folder, name, flags | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(system(format!("opening {shown}"), e)),
    };
    let found = fstat(&fd).map_err(|e| system(format!("looking at {shown}"), e))?;
    plain(&found).map_err(not_plain)?;
    Ok(Some(File::from(fd)))
}

/// Everything in a folder and in those below it, by name; a folder that has nothing in it, or is below one
/// that is, is told itself. As many as there may be at the most.
fn walk(
    folder: BorrowedFd<'_>,
    each: &mut dyn FnMut(String, &Stat) -> Result<(), Flaw>,
) -> Result<(), Flaw> {
    let mut left = FILES_MAX + 1;
    let mut told = |name: String, found: &Stat| {
        let full = || Flaw::Unfit(format!("has at most {FILES_MAX} files, and there are more"));
        left = left.checked_sub(1).ok_or_else(full)?;
        each(name, found)
    };
    for (name, found) in entries(folder)? {
        if !is_folder(&found) {
            told(name, &found)?;
            continue;
        }
        let below = openat(folder, &name, FOLDER, Mode::empty());
        let below = below.map_err(|e| system(format!("opening {name}"), e))?;
        let inner = entries(below.as_fd())?;
        if inner.is_empty() {
            told(name.clone(), &found)?;
        }
        for (file, found) in inner {
            told(format!("{name}/{file}"), &found)?;
        }
    }
    Ok(())
}

/// What is in one folder, in order of names, and what it is.
fn entries(folder: BorrowedFd<'_>) -> Result<Vec<(String, Stat)>, Flaw> {
    let reading = |e| system("reading a folder", e);
    let mut all = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder).map_err(reading)? {
        let entry = entry.map_err(reading)?;
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        // A name that is no text is no checkpoint's; it is shown as well as can be.
        if let Some(found) = stat(folder, entry.file_name())? {
            all.push((entry.file_name().to_string_lossy().into_owned(), found));
        }
        if all.len() > FILES_MAX + 1 {
            return Err(Flaw::Unfit(format!("has at most {FILES_MAX} files, and there are more")));
        }
    }
    all.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(all)
}

/// Sixteen hexadecimal digits that nobody can guess.
fn chance() -> Result<String, Flaw> {
    let mut bytes = [0; 8];
    random(&mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

fn random(bytes: &mut [u8]) -> Result<(), Flaw> {
    let wanted = bytes.len();
    match rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(got) if got == wanted => Ok(()),
        Ok(_) => Err(system("asking for random numbers", Errno::AGAIN)),
        Err(e) => Err(system("asking for random numbers", e)),
    }
}
