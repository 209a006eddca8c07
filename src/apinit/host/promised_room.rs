//! Room that is promised to large files while they are written, on each file system.
//!
//! # Problem
//! Images of applications, files of checkpoints that come from other hosts, their copies for a
//! restart and copies of programs are written at the same time, and share file systems. Each
//! writer that looked only at what is free would find room, and together they would fill the file
//! system, which mostly is the host's memory.
//!
//! # Approach
//! Each writer asks one account before it writes. What is promised to others counts as taken. A
//! promise is for bytes that are still to be written: what is written statvfs counts itself, until
//! the file is gone. CRIU does not say how far it is with images. If there would be too little room
//! otherwise, the account looks how much of them is in their folder.

use super::image_space::space;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a file system that are free for users, and all that it has.
type Space = dyn Fn(&Path) -> io::Result<(u64, u64)> + Send + Sync;

/// The promises of this apinit.
#[derive(Clone)]
pub(super) struct PromisedRoom {
    /// Bytes, by the device of the file system.
    file_systems: Arc<Mutex<BTreeMap<u64, Promised>>>,
    space: Arc<Space>,
}

/// What is promised of one file system. (One of another host may be silent: nothing else waits for
/// it.)
type Promised = Arc<Mutex<Account>>;

#[derive(Debug, Default)]
struct Account {
    /// Bytes of all promises.
    bytes: u64,
    /// Promises of which part may have been written by now, each under a number of its own.
    writing: BTreeMap<u64, Writing>,
    /// Counts them.
    next: u64,
}

/// A folder into which files are being written.
#[derive(Debug)]
struct Writing {
    folder: PathBuf,
    /// Bytes that were there before.
    before: u64,
    /// The promise has so many bytes for this folder.
    most: u64,
}

/// Files and folders that are looked at to see how much of all promises is written: images of some
/// hundred processes. What is beyond counts as not yet written.
const LOOKS_MAX: usize = 4_096;

impl Account {
    /// The folders that are to be looked at, by the numbers of their promises.
    fn folders(&self) -> BTreeMap<u64, PathBuf> {
        self.writing.iter().map(|(number, of)| (*number, of.folder.clone())).collect()
    }

    /// Bytes of these promises that are written, where so many bytes have been seen in their
    /// folders. A promise that was made or has been given back meanwhile counts for nothing.
    fn written(&self, seen: &BTreeMap<u64, (PathBuf, u64)>) -> u64 {
        let each = self.writing.iter().map(|(number, of)| match seen.get(number) {
            Some((folder, now)) if *folder == of.folder => {
                now.saturating_sub(of.before).min(of.most)
            }
            _ => 0,
        });
        each.fold(0, u64::saturating_add)
    }
}

/// How many bytes these folders have.
fn look(folders: BTreeMap<u64, PathBuf>) -> BTreeMap<u64, (PathBuf, u64)> {
    let mut looks = LOOKS_MAX;
    let seen = folders.into_iter().map(|(number, folder)| {
        let bytes = bytes_in(&folder, &mut looks);
        (number, (folder, bytes))
    });
    seen.collect()
}

/// Bytes that a folder's files take of their file system, and those of the folders in it. `looks`: files and
/// folders that may still be looked at.
fn bytes_in(folder: &Path, looks: &mut usize) -> u64 {
    let (mut bytes, mut folders) = (0_u64, vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        // (An Err: it was removed meanwhile, with its files.)
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Some(left) = looks.checked_sub(1) else { return bytes };
            *looks = left;
            let Ok(file) = entry.metadata() else { continue };
            match file.is_dir() {
                true => folders.push(entry.path()),
                // (st_blocks counts units of 512 bytes, whatever the file system's own are.)
                false => bytes = bytes.saturating_add(file.blocks().saturating_mul(512)),
            }
        }
    }
    bytes
}

/// Bytes that may be written, until this is dropped.
#[derive(Debug)]
pub(super) struct Promise {
    all: Promised,
    bytes: u64,
    /// Its number in [`Account::writing`].
    writing: Option<u64>,
}

impl fmt::Debug for PromisedRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PromisedRoom").field(&self.file_systems).finish()
    }
}

impl Default for PromisedRoom {
    fn default() -> PromisedRoom {
        PromisedRoom { file_systems: Arc::default(), space: Arc::new(space) }
    }
}

impl PromisedRoom {
    /// Promises so many bytes for files in this folder. `kept`: how much of a file system of so
    /// many bytes is to stay free.
    ///
    /// # Errors
    /// There is not so much room: how much there is.
    pub fn take(
        &self,
        folder: &Path,
        bytes: u64,
        kept: impl FnOnce(u64) -> u64,
    ) -> io::Result<Result<Promise, u64>> {
        let device = std::fs::metadata(folder)?.dev();
        let all = {
            let mut known = self.file_systems.lock().unwrap_or_else(PoisonError::into_inner);
            // Entries that nobody uses go: a file system that is mounted again has another device number.
            known.retain(|_, all| Arc::strong_count(all) > 1);
            Arc::clone(known.entry(device).or_default())
        };
        let mut account = all.lock().unwrap_or_else(PoisonError::into_inner);
        // (With the lock: what another writer gives back now has been counted by now.)
        let (free, size) = (self.space)(folder)?;
        let kept = kept(size);
        let mut room = free.saturating_sub(kept).saturating_sub(account.bytes);
        if bytes > room && !account.writing.is_empty() {
            // (Without the lock: a file system may be slow, and others have to give back what they
            // have.)
            let folders = account.folders();
            drop(account);
            let seen = look(folders);
            account = all.lock().unwrap_or_else(PoisonError::into_inner);
            // What is written in between counts twice, and not never: it is looked at first.
            let written = account.written(&seen);
            let (free, _) = (self.space)(folder)?;
            let promised = account.bytes.saturating_sub(written);
            room = free.saturating_sub(kept).saturating_sub(promised);
        }
        if bytes > room {
            return Ok(Err(room));
        }
        account.bytes = account.bytes.saturating_add(bytes);
        drop(account);
        Ok(Ok(Promise { all, bytes, writing: None }))
    }
}

impl Promise {
    /// How many bytes it is for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// So many of these bytes are written: statvfs counts them.
    pub fn written(&mut self, bytes: u64) {
        self.lower(self.bytes.saturating_sub(bytes));
    }

    /// Up to `most` of these bytes are going to be written into this folder, by a writer that does
    /// not say how far it is. What appears there counts as written until [`Promise::keep`] is
    /// called.
    pub fn writes(&mut self, folder: &Path, most: u64) {
        let before = bytes_in(folder, &mut { LOOKS_MAX });
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *self.writing.get_or_insert_with(|| {
            all.next += 1;
            all.next
        });
        let most = most.min(self.bytes);
        all.writing.insert(number, Writing { folder: folder.to_owned(), before, most });
    }

    /// So many written bytes are gone, and are to be written again.
    pub fn removed(&mut self, bytes: u64) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.bytes = all.bytes.saturating_add(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// No more than these are still to be written, from now on.
    pub fn keep(&mut self, bytes: u64) {
        self.lower(bytes);
    }

    /// Gives back what it has beyond so many bytes.
    fn lower(&mut self, bytes: u64) {
        let back = self.bytes.saturating_sub(bytes);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.bytes = all.bytes.saturating_sub(back);
        // With one lock: what is given back is counted by statvfs, and not by its folder any more.
        if let Some(number) = self.writing.take() {
            all.writing.remove(&number);
        }
        self.bytes -= back;
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.keep(0);
    }
}

#[cfg(test)]
impl PromisedRoom {
    /// Where so many bytes are free.
    pub fn with(free: u64) -> PromisedRoom {
        PromisedRoom { space: Arc::new(move |_| Ok((free, 0))), ..PromisedRoom::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_counts_until_its_bytes_do() {
        let account = PromisedRoom::with(500);
        let here = std::env::temp_dir();
        let take = |bytes| account.take(&here, bytes, |_| 100).expect("a file system");
        assert_eq!(take(401).expect_err("so much stays free"), 400);
        let mut first = take(300).expect("there is room");
        assert_eq!(take(101).expect_err("it is promised"), 100);
        let second = take(100).expect("the rest");
        first.written(200);
        assert_eq!(take(201).expect_err("written bytes are no longer promised"), 200);
        // (More than it was promised for.)
        first.written(1_000);
        drop(second);
        let all = take(400).expect("all is given back");
        drop((all, first));
        assert_eq!(take(401).expect_err("no more"), 400);
        assert!(account.take(&here.join("is/not/there"), 1, |_| 0).is_err());
    }

    /// An account of a file system of so many bytes, of which those in a folder are used.
    fn used_by(folder: &Path, size: u64) -> PromisedRoom {
        let folder = folder.to_owned();
        let space = move |_: &Path| Ok((size - bytes_in(&folder, &mut { usize::MAX }), size));
        PromisedRoom { space: Arc::new(space), ..PromisedRoom::default() }
    }

    /// What CRIU has written of a dump is no longer promised, while it goes on.
    #[test]
    fn what_is_written_counts_once() {
        const MIB: u64 = 1 << 20;
        let folder = tempfile::tempdir().expect("a folder");
        let account = used_by(folder.path(), 10 * MIB + MIB / 2);
        let take = |mib| account.take(folder.path(), mib * MIB, |_| 0).expect("mounted");
        let write = |name: &str, mib: u64| {
            let bytes = vec![1; (mib * MIB) as usize];
            std::fs::write(folder.path().join(name), bytes).expect("written");
            std::fs::File::open(folder.path().join(name)).expect("there").sync_all().expect("done");
        };
        let images = folder.path().join("images");
        std::fs::create_dir_all(images.join("0")).expect("made");
        write("images/old", 1);
        let mut first = take(6).expect("there is room");
        // (For the images, and for a copy of them.)
        first.writes(&images, 3 * MIB);
        let room = take(4).expect_err("it is promised");
        assert!(room < 4 * MIB && room > 3 * MIB, "{room}");
        write("images/0/pages", 2);
        drop(take(3).expect("two of six are written"));
        // Images that are larger than was thought are no part of their copy.
        write("images/0/more", 2);
        let room = take(3).expect_err("three are promised still");
        assert!(room < 3 * MIB && room > 2 * MIB, "{room}");
        // They are written, and their copy is promised.
        first.keep(4 * MIB);
        assert!(take(2).is_err());
        drop(take(1).expect("it is free"));
        // Into the same folder again: what was there before counts for nothing.
        first.writes(&images, 4 * MIB);
        assert!(take(2).is_err());
        write("images/late", 1);
        drop(take(1).expect("one of four is written"));
        drop(first);
        assert!(account.file_systems.lock().expect("sound").values().all(|all| {
            let all = all.lock().expect("sound");
            all.bytes == 0 && all.writing.is_empty()
        }));
        drop(take(4).expect("it is free"));
    }

    #[test]
    fn no_more_files_are_looked_at_than_a_bound() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["a", "b", "c"] {
            std::fs::write(folder.path().join(name), [1; 4096]).expect("written");
        }
        let all = bytes_in(folder.path(), &mut 3);
        let mut looks = 2;
        assert!(bytes_in(folder.path(), &mut looks) < all, "{all}");
        assert_eq!(looks, 0);
        assert_eq!(bytes_in(&folder.path().join("none"), &mut looks), 0);
    }

    #[test]
    fn each_file_system_has_its_own_room() {
        let account = PromisedRoom::with(500);
        let take = |folder: &str| account.take(Path::new(folder), 500, |_| 0).expect("mounted");
        let _proc = take("/proc").expect("there is room");
        assert_eq!(take("/proc").expect_err("all is promised"), 0);
        let dev = take("/sys").expect("that is another one");
        drop(dev);
        let known = account.file_systems.lock().expect("sound").len();
        assert!(known <= 2, "{known}");
    }
}
