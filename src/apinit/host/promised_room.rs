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
//! the file is gone.

use super::image_space::space;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
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

/// Bytes that are promised of one file system. (One of another host may be silent: nothing else
/// waits for it.)
type Promised = Arc<Mutex<u64>>;

/// Bytes that may be written, until this is dropped.
#[derive(Debug)]
pub(super) struct Promise {
    all: Promised,
    bytes: u64,
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
        let mut promised = all.lock().unwrap_or_else(PoisonError::into_inner);
        // (With the lock: what another writer gives back now has been counted by now.)
        let (free, size) = (self.space)(folder)?;
        let room = free.saturating_sub(kept(size)).saturating_sub(*promised);
        if bytes > room {
            return Ok(Err(room));
        }
        *promised += bytes;
        drop(promised);
        Ok(Ok(Promise { all, bytes }))
    }
}

impl Promise {
    /// So many of these bytes are written: statvfs counts them.
    pub fn written(&mut self, bytes: u64) {
        self.keep(self.bytes.saturating_sub(bytes));
    }

    /// So many written bytes are gone, and are to be written again.
    pub fn removed(&mut self, bytes: u64) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        *all = all.saturating_add(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// No more than these are still to be written.
    pub fn keep(&mut self, bytes: u64) {
        let back = self.bytes.saturating_sub(bytes);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        *all = all.saturating_sub(back);
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
