//! The files, and how far each has come.

use crate::apinit::host::promised_room::{Promise, PromisedRoom};
use crate::apteam::Key;
use crate::apteam::bounds::HostBounds;
use crate::apteam::protocol::programs::{GivenProgram, WantedProgram, name_of};
use crate::node::file_identity::identity;
use crate::os::access::{is_open_for_writing, let_user_execute};
use crate::variables::units::about;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio_util::task::AbortOnDropHandle;

/// How far a copy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::apinit::host) enum Progress {
    /// So many bytes are there, or have been if there is no room for them.
    Coming(u64),
    /// All are, and this is their SHA-256.
    Whole([u8; 32]),
    /// It does not come, and why.
    Failed(String),
}

/// A file, and the room for what has not come yet.
#[derive(Debug)]
struct Growing {
    file: File,
    room: Promise,
}

impl Growing {
    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.file.write_all(data)?;
        self.room.written(data.len() as u64);
        Ok(())
    }

    /// All of these bytes are to come again.
    fn begin_again(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(0)?;
        self.room.removed(bytes);
        io::Seek::rewind(&mut self.file)
    }
}

/// The file that is being written.
#[derive(Debug)]
struct Writing {
    /// `None`: there is no room, or it is whole. (A file that is open for writing can't be executed.)
    file: Option<Growing>,
    /// For those to whom it is passed on.
    reader: Option<File>,
    hash: Sha256,
    bytes: u64,
    /// Why there is no room.
    no_room: Option<String>,
}

/// One program.
#[derive(Debug)]
pub(in crate::apinit::host) struct Copy {
    pub key: Key,
    pub program: WantedProgram,
    owner: u32,
    path: PathBuf,
    writing: Mutex<Writing>,
    progress: watch::Sender<Progress>,
    /// For front ends that bring it.
    fronts: Semaphore,
}

impl Copy {
    /// A place for a front end that brings it, if there is one.
    pub fn front(&self) -> Option<SemaphorePermit<'_>> {
        self.fronts.try_acquire().ok()
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far it is, now and later.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Bytes that need not come again.
    pub fn bytes(&self) -> u64 {
        self.writing().bytes
    }

    /// Why its bytes are not kept.
    pub fn no_room(&self) -> Option<String> {
        self.writing().no_room.clone()
    }

    /// Reads some of its bytes from there on, at most as many as fit.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.writing().reader {
            Some(file) => file.read_at(buffer, offset),
            None => Ok(0),
        }
    }

    /// Whether some process still has it open for writing: a child of this one that has not executed its program yet.
    pub fn is_written(&self) -> bool {
        self.writing().reader.as_ref().is_some_and(is_open_for_writing)
    }

    /// The application is over: nothing of the copy stays, also while a host sends or receives it. Returns its file,
    /// if it has one.
    fn close(&self) -> Option<File> {
        let mut writing = self.writing();
        writing.file = None;
        let file = writing.reader.take();
        drop(writing);
        self.progress.send_replace(Progress::Failed("its application is over here".into()));
        file
    }

    /// Takes bytes that begin at this offset. Those that have come before are skipped.
    ///
    /// # Errors
    /// They leave a gap, or are more than the program has.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), String> {
        let mut writing = self.writing();
        if let Progress::Failed(why) = &*self.progress.borrow() {
            return Err(why.clone());
        }
        let end = offset.saturating_add(data.len() as u64);
        if offset > writing.bytes {
            return Err(format!("bytes {} to {offset} are missing", writing.bytes));
        }
        if end > self.program.size {
            return Err(format!("it has more than the {} bytes of its posting", self.program.size));
        }
        let known = usize::try_from(writing.bytes - offset).unwrap_or(usize::MAX);
        let Some(new) = data.get(known..).filter(|new| !new.is_empty()) else { return Ok(()) };
        writing.hash.update(new);
        writing.bytes = end;
        if let Some(file) = &mut writing.file
            && let Err(error) = file.write(new)
        {
            writing.no_room = Some(format!("its file can't be written: {error}"));
            writing.file = None;
        }
        drop(writing);
        self.progress.send_if_modified(|progress| match progress {
            Progress::Coming(bytes) => {
                *bytes = end;
                true
            }
            Progress::Whole(_) | Progress::Failed(_) => false,
        });
        Ok(())
    }

    /// There are no more bytes, and this is their SHA-256.
    ///
    /// # Errors
    /// It is not, or some are missing. Then all are to come again.
    pub fn end(&self, digest: [u8; 32]) -> Result<(), String> {
        let mut writing = self.writing();
        match &*self.progress.borrow() {
            Progress::Whole(whole) if *whole == digest => return Ok(()),
            Progress::Failed(why) => return Err(why.clone()),
            Progress::Whole(_) | Progress::Coming(_) => {}
        }
        let own: [u8; 32] = writing.hash.clone().finalize().into();
        if writing.bytes != self.program.size || own != digest {
            let text = match writing.bytes == self.program.size {
                true => "its bytes are not those of the program".to_owned(),
                false => format!("only {} of {} bytes have come", writing.bytes, self.program.size),
            };
            self.begin_again(&mut writing);
            return Err(text);
        }
        if let Some(file) = writing.file.take()
            && let Err(error) = let_user_execute(&file.file, self.owner)
        {
            writing.no_room =
                Some(format!("its user can't be given the right to execute it: {error}"));
        }
        drop(writing);
        self.progress.send_replace(Progress::Whole(digest));
        Ok(())
    }

    fn begin_again(&self, writing: &mut Writing) {
        writing.hash = Sha256::new();
        let bytes = std::mem::take(&mut writing.bytes);
        if let Some(file) = &mut writing.file
            && let Err(error) = file.begin_again(bytes)
        {
            writing.no_room = Some(format!("its file can't be written: {error}"));
            writing.file = None;
        }
    }

    /// Its bytes are not to be had, but this is their SHA-256.
    pub fn end_without(&self, digest: [u8; 32], no_room: String) {
        let mut writing = self.writing();
        writing.file = None;
        writing.no_room.get_or_insert(no_room);
        drop(writing);
        self.progress.send_replace(Progress::Whole(digest));
    }

    /// It does not come.
    pub fn fail(&self, why: String) {
        self.writing().file = None;
        self.progress.send_if_modified(|progress| match progress {
            Progress::Coming(_) => {
                *progress = Progress::Failed(why);
                true
            }
            Progress::Whole(_) | Progress::Failed(_) => false,
        });
    }

    /// What its apshepherd is given, once it is whole or has failed.
    pub fn given(&self) -> GivenProgram {
        let of = |why_not: String, digest| GivenProgram {
            part: self.program.part,
            why_not,
            digest,
            ..GivenProgram::default()
        };
        let digest = match &*self.progress.borrow() {
            Progress::Whole(digest) => *digest,
            Progress::Failed(why) => return of(why.clone(), None),
            Progress::Coming(_) => return of("it has not come".into(), None),
        };
        if let Some(no_room) = self.no_room() {
            return of(no_room, Some(digest));
        }
        match fs::metadata(&self.path) {
            Ok(file) => GivenProgram {
                path: self.path.clone().into_os_string().into_vec(),
                identity: Some(identity(&file)),
                ..of(String::new(), Some(digest))
            },
            Err(error) => of(format!("its file is gone: {error}"), Some(digest)),
        }
    }
}

/// All programs of this host.
#[derive(Debug)]
pub(in crate::apinit::host) struct Store {
    /// `None`: none are kept here, and why.
    folder: Result<PathBuf, String>,
    all: BTreeMap<(Key, u32), Held>,
    /// Bytes of all, and of each user.
    bytes: u64,
    of_users: BTreeMap<u32, u64>,
    /// Files of applications that are over.
    leaving: Vec<Leaving>,
    /// What a former life of this apinit has left, of applications that go on: their owners, and bytes.
    kept: BTreeMap<Key, (u32, u64)>,
    /// What is promised of the file system, to others too.
    promised: PromisedRoom,
}

/// Streams on which front ends bring one copy: the one that does, and one of which it is not known yet that it is broken.
const FRONTS: usize = 2;
/// A file takes whole pages.
const PAGE: u64 = 4_096;
/// A copy counts for so many bytes at least: it takes files too.
const LEAST: u64 = 64 << 10;

#[derive(Debug)]
struct Held {
    copy: Arc<Copy>,
    /// What its files were counted as.
    bytes: u64,
    _take: Option<AbortOnDropHandle<()>>,
}

/// A file that some process of its user still executes: it counts until it can be emptied. (There are no more than have
/// room.)
#[derive(Debug)]
struct Leaving {
    file: File,
    owner: u32,
    bytes: u64,
}

/// Gives the memory of a file back whose application is over. Its user may have it open, and would keep the memory
/// although the file has no name any more. False: a process executes it (ETXTBSY).
fn empty(file: &File) -> bool {
    // (An apinit that is not root's could not open its own file, whose mode lets no user write.)
    let _ = file.set_permissions(Permissions::from_mode(0o600));
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let emptied = File::options().write(true).open(again).and_then(|file| file.set_len(0));
    !emptied.is_err_and(|error| error.kind() == io::ErrorKind::ExecutableFileBusy)
}

/// What may be kept, in bytes.
#[derive(Clone, Copy, Debug)]
pub(in crate::apinit::host) struct Room {
    pub all: u64,
    pub user: u64,
}

impl From<HostBounds> for Room {
    fn from(bounds: HostBounds) -> Room {
        Room { all: bounds.programs, user: bounds.programs_user }
    }
}

impl Store {
    /// One that keeps nothing, for this reason.
    pub fn none(why: &str) -> Store {
        Store {
            folder: Err(why.into()),
            all: BTreeMap::new(),
            bytes: 0,
            of_users: BTreeMap::new(),
            leaving: Vec::new(),
            kept: BTreeMap::new(),
            promised: PromisedRoom::default(),
        }
    }

    /// In a folder that is there.
    #[cfg(test)]
    pub fn in_folder(folder: PathBuf, known: &BTreeMap<Key, u32>) -> Store {
        let found = keep_only(&folder, known);
        Store::with(folder, found)
    }

    /// With this room.
    #[cfg(test)]
    pub fn within(self, promised: PromisedRoom) -> Store {
        Store { promised, ..self }
    }

    /// In this folder, over which root's apinit mounts a tmpfs. What is there of applications other than these, each with
    /// its owner, goes.
    pub fn open(folder: PathBuf, known: &BTreeMap<Key, u32>, promised: PromisedRoom) -> Store {
        let made = make(&folder);
        let found = made.and_then(|()| keep_only(&folder, known));
        Store { promised, ..Store::with(folder, found) }
    }

    fn with(folder: PathBuf, found: io::Result<BTreeMap<Key, (u32, u64)>>) -> Store {
        let mut kept = BTreeMap::new();
        let folder = match found {
            Ok(found) => {
                kept = found;
                Ok(folder)
            }
            Err(error) => {
                tracing::warn!("no copies of programs are kept in {}: {error}", folder.display());
                Err(format!("its host has no place for copies: {error}"))
            }
        };
        let mut store = Store { folder, ..Store::none("") };
        for (owner, bytes) in kept.values().copied() {
            store.count(owner, bytes);
        }
        Store { kept, ..store }
    }

    fn count(&mut self, owner: u32, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        let of_user = self.of_users.entry(owner).or_default();
        *of_user = of_user.saturating_add(bytes);
    }

    fn discount(&mut self, owner: u32, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(of_user) = self.of_users.get_mut(&owner) {
            *of_user = of_user.saturating_sub(bytes);
        }
        self.of_users.retain(|_, bytes| *bytes > 0);
    }

    /// Whether an application executes a copy, or is to.
    pub fn has(&self, key: Key) -> bool {
        let path = self.folder.as_ref().map(|folder| folder.join(key.to_string()));
        path.is_ok_and(|path| path.is_dir())
    }

    /// One that is here, or comes.
    pub fn find(&self, key: Key, part: u32) -> Option<Arc<Copy>> {
        self.all.get(&(key, part)).map(|held| Arc::clone(&held.copy))
    }

    /// No more than this may be kept from now on: the file system has a bound, too.
    pub fn bound(&self, room: Room) {
        let Ok(folder) = &self.folder else { return };
        if nix::unistd::geteuid().is_root() && is_mount(folder) {
            let flags = MsFlags::MS_REMOUNT | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            let options = format!("{OPTIONS},size={}k", room.all.div_ceil(1024).max(LEAST / 1024));
            // (An Err: more is there than it may have. The count knows.)
            let _ = mount(None::<&str>, folder, None::<&str>, flags, Some(&options[..]));
        }
    }

    /// A new one of an application of this user, of which nothing has come. `room`: what may be kept of all.
    pub fn add(&mut self, key: Key, program: WantedProgram, owner: u32, room: Room) -> Arc<Copy> {
        self.let_leave();
        let place = (key, program.part);
        let size = program.size.max(LEAST).next_multiple_of(PAGE);
        self.forget(place);
        let opened = self.room(owner, size, room).and_then(|()| {
            let folder = self.folder.clone()?;
            let room = self.take_room(&folder, size)?;
            let opened = open(&folder, key, &program);
            let (path, file, reader) =
                opened.map_err(|e| format!("its file can't be made: {e}"))?;
            Ok((path, Growing { file, room }, reader))
        });
        let (path, file, reader, no_room) = match opened {
            Ok((path, file, reader)) => (path, Some(file), Some(reader), None),
            Err(why) => (PathBuf::new(), None, None, Some(why)),
        };
        let bytes = if no_room.is_none() { size } else { 0 };
        self.count(owner, bytes);
        let writing = Writing { file, reader, hash: Sha256::new(), bytes: 0, no_room };
        let copy = Arc::new(Copy {
            key,
            program,
            owner,
            path,
            writing: Mutex::new(writing),
            progress: watch::Sender::new(Progress::Coming(0)),
            fronts: Semaphore::new(FRONTS),
        });
        self.all.insert(place, Held { copy: Arc::clone(&copy), bytes, _take: None });
        copy
    }

    /// What brings it: it ends with the copy.
    pub fn brought_by(&mut self, copy: &Copy, task: tokio::task::JoinHandle<()>) {
        if let Some(held) = self.all.get_mut(&(copy.key, copy.program.part)) {
            held._take = Some(AbortOnDropHandle::new(task));
        }
    }

    /// Room for a copy. (Where apinit is not root's, other files are on that file system, too.)
    fn take_room(&self, folder: &Path, size: u64) -> Result<Promise, String> {
        let taken = self.promised.take(folder, size, |_| 0);
        let taken = taken.map_err(|e| format!("{}: {e}", folder.display()))?;
        taken.map_err(|room| {
            format!("{} has room for {} (No space left on device)", folder.display(), about(room))
        })
    }

    fn room(&self, owner: u32, size: u64, room: Room) -> Result<(), String> {
        let of_user = self.of_users.get(&owner).copied().unwrap_or(0);
        let over = |have: u64, most: u64| have.saturating_add(size) > most;
        if over(self.bytes, room.all) {
            return Err(format!(
                "copies of programs may take {} MiB of its host's memory (program_memory_max)",
                room.all >> 20
            ));
        }
        match owner != 0 && over(of_user, room.user) {
            true => Err(format!(
                "copies of its user's programs may take {} MiB of its host's memory \
                 (program_memory_user_max)",
                room.user >> 20
            )),
            false => Ok(()),
        }
    }

    fn forget(&mut self, place: (Key, u32)) {
        let Some(held) = self.all.remove(&place) else { return };
        let kept = held.copy.close();
        match kept.filter(|file| !empty(file)) {
            Some(file) => {
                self.leaving.push(Leaving { file, owner: held.copy.owner, bytes: held.bytes });
            }
            None => self.discount(held.copy.owner, held.bytes),
        }
    }

    /// Files that were still executed when their applications were over: those that can be emptied by now count no more.
    pub fn let_leave(&mut self) {
        for Leaving { file, owner, bytes } in std::mem::take(&mut self.leaving) {
            match empty(&file) {
                true => self.discount(owner, bytes),
                false => self.leaving.push(Leaving { file, owner, bytes }),
            }
        }
    }

    /// Removes those of an application, which is over.
    pub fn remove(&mut self, key: Key) {
        let own: Vec<_> = self.all.range((key, 0)..=(key, u32::MAX)).map(|(at, _)| *at).collect();
        for place in own {
            self.forget(place);
        }
        if let Some((owner, mut left)) = self.kept.remove(&key) {
            let own = self.folder.as_ref().map(|folder| folder.join(key.to_string()));
            for (path, size) in own.iter().flat_map(|own| files_below(own)) {
                if let Some(file) = File::open(path).ok().filter(|file| !empty(file)) {
                    let bytes = size.max(LEAST).min(left);
                    left -= bytes;
                    self.leaving.push(Leaving { file, owner, bytes });
                }
            }
            self.discount(owner, left);
        }
        if let Ok(folder) = &self.folder {
            // An Err: it had none.
            let _ = fs::remove_dir_all(folder.join(key.to_string()));
        }
    }

    /// This apinit goes. If nothing is kept, nothing is left.
    pub fn close(self) {
        let Ok(folder) = self.folder else { return };
        if fs::read_dir(&folder).is_ok_and(|mut all| all.next().is_none()) {
            if is_mount(&folder) && nix::unistd::geteuid().is_root() {
                let _ = umount2(&folder, MntFlags::MNT_DETACH);
            }
            let _ = fs::remove_dir(&folder);
        }
    }
}

/// Of the tmpfs.
const OPTIONS: &str = "mode=0711,nr_inodes=256k";

/// The folder, and over it root's tmpfs, if that is not there yet.
fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o711).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::other("it is not a folder of this apinit"));
    }
    if nix::unistd::geteuid().is_root() && !is_mount(folder) {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("psched-programs"), folder, Some("tmpfs"), flags, Some(OPTIONS))?;
    }
    fs::set_permissions(folder, Permissions::from_mode(0o711))
}

/// Whether something is mounted there.
fn is_mount(folder: &Path) -> bool {
    let above = folder.parent().and_then(|above| fs::metadata(above).ok());
    let own = fs::metadata(folder).ok();
    above.zip(own).is_some_and(|(above, own)| above.dev() != own.dev())
}

/// Removes the folders of all applications but these, each with its owner; what is kept of them, in bytes.
fn keep_only(folder: &Path, known: &BTreeMap<Key, u32>) -> io::Result<BTreeMap<Key, (u32, u64)>> {
    let mut kept = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let key = entry.file_name().to_str().and_then(Key::parse);
        match key.and_then(|key| known.get(&key).map(|owner| (key, *owner))) {
            Some((key, owner)) => {
                kept.insert(key, (owner, bytes_below(&entry.path())));
            }
            None => {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
    Ok(kept)
}

/// Bytes of the files in the folders of an application's parts.
fn bytes_below(folder: &Path) -> u64 {
    files_below(folder).map(|(_, bytes)| bytes.max(LEAST)).sum()
}

/// These files, and their bytes.
fn files_below(folder: &Path) -> impl Iterator<Item = (PathBuf, u64)> {
    fn entries(folder: &Path) -> impl Iterator<Item = fs::DirEntry> + use<> {
        fs::read_dir(folder).into_iter().flatten().flatten()
    }
    let files = entries(folder).flat_map(|part| entries(&part.path()));
    files.filter_map(|file| Some((file.path(), file.metadata().ok()?.len())))
}

/// The file of a new copy: where it is, to be written, and to be read.
fn open(folder: &Path, key: Key, program: &WantedProgram) -> io::Result<(PathBuf, File, File)> {
    if name_of(&program.name) != Some(&program.name[..]) {
        return Err(io::Error::other("its name is no name of a file"));
    }
    let own = folder.join(key.to_string());
    let folder = own.join(program.part.to_string());
    // (Of a former attempt.)
    let _ = fs::remove_dir_all(&folder);
    DirBuilder::new().recursive(true).mode(0o711).create(&folder)?;
    // Whatever the file mode creation mask.
    for made in [&own, &folder] {
        fs::set_permissions(made, Permissions::from_mode(0o711))?;
    }
    let path = folder.join(std::ffi::OsStr::from_bytes(&program.name));
    let file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
    let reader = File::open(&path)?;
    Ok((path, file, reader))
}
