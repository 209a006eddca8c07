//! Memory of a gang that has gone to swap, brought in before it runs.
//!
//! # The problem
//!
//! A gang whose memory made room for others would find its pages missing one by one, on each of its nodes
//! at another time, and all its PEs would wait for each of them. Reading them in at once, before it runs,
//! takes less, and takes it from nobody's turn. But it takes as long as the disk wants, and may hang: a
//! process in the middle of a page fault on a dead file system lets nobody look at its memory.
//!
//! # The approach
//!
//! One thread of ordinary priority ([`Bringer`]) reads a byte of each page that is in swap, which the
//! kernel then has to fetch. Which these are is in `/proc/PID/pagemap`, of the mappings that have any by
//! `smaps`. (Pages of shared memory are not seen there, nor are those that only the page cache had: they
//! come when they are used.)
//!
//! The thread that changes gangs looks after each second whether anything has come ([`Coming::look`]). If
//! not, the gang is let run as it is. It also gives up when the turn is over.

use super::{Order, Shared, lock, ring};
use crate::apteam::Key;
use crate::node::groups::{Memory, processes_in};
use crate::os::host::monotonic_ns;
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Memory that does not come on for so long is not waited for, in nanoseconds.
const STANDS: u64 = 1_000_000_000;
/// Pages that are fetched by one call, at most: as many as it takes.
const AT_ONCE: usize = 1024;
/// In a word of pagemap: the page is in swap.
const SWAPPED: u64 = 1 << 62;

/// How far one is.
#[derive(Debug, Default)]
pub struct Progress {
    bytes: AtomicU64,
    /// Nobody wants it any more.
    over: AtomicBool,
}

/// Memory that is being brought in; with this it ends.
#[derive(Debug)]
pub struct Coming {
    progress: Arc<Progress>,
    seen: u64,
    look_ns: u64,
}

impl Coming {
    /// Bytes that have come so far.
    pub fn bytes(&self) -> u64 {
        self.progress.bytes.load(Ordering::Relaxed)
    }

    /// Whether it is this one.
    pub fn is(&self, progress: &Arc<Progress>) -> bool {
        Arc::ptr_eq(&self.progress, progress)
    }

    /// When to look again; `None`: it does not come on.
    pub fn look(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns >= self.look_ns {
            let bytes = self.bytes();
            if bytes == self.seen {
                return None;
            }
            (self.seen, self.look_ns) = (bytes, now_ns.saturating_add(STANDS));
        }
        Some(self.look_ns)
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.progress.over.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Job {
    key: Key,
    groups: Vec<PathBuf>,
    progress: Arc<Progress>,
}

/// The thread that does it.
#[derive(Debug)]
pub struct Bringer(Sender<Job>);

impl Bringer {
    /// Starts it. It ends when this is dropped.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn start(shared: Arc<Shared>) -> std::io::Result<Bringer> {
        let (jobs, of_thread) = channel();
        std::thread::Builder::new().name("apinit-memory".into()).spawn(move || {
            run(&of_thread, &shared);
        })?;
        Ok(Bringer(jobs))
    }

    /// Begins to bring in what of this gang is in swap; it is told by [`Order::Brought`]. `None`: the
    /// thread is dead.
    pub fn bring(&self, key: Key, memory: &Memory) -> Option<Coming> {
        let progress = Arc::new(Progress::default());
        let groups = memory.groups().map(Path::to_owned).collect();
        self.0.send(Job { key, groups, progress: Arc::clone(&progress) }).ok()?;
        Some(Coming { progress, seen: 0, look_ns: monotonic_ns().saturating_add(STANDS) })
    }
}

fn run(jobs: &Receiver<Job>, shared: &Shared) {
    // Signals are the one task's.
    let _ = nix::sys::signal::SigSet::all().thread_block();
    while let Ok(Job { key, groups, progress }) = jobs.recv() {
        for pid in groups.iter().flat_map(|group| processes_in(group)) {
            bring_process(Pid::from_raw(pid), &progress);
        }
        if !progress.over.load(Ordering::Relaxed) {
            lock(&shared.inbox).push_back(Order::Brought(key, progress));
            ring(&shared.order);
        }
    }
}

/// What of a process is in swap. One that has gone, or that may not be looked at, has nothing.
fn bring_process(pid: Pid, progress: &Progress) {
    let Ok(smaps) = fs::read_to_string(format!("/proc/{pid}/smaps")) else { return };
    let Ok(pagemap) = File::open(format!("/proc/{pid}/pagemap")) else { return };
    let page = rustix::param::page_size() as u64;
    let mut words = vec![0u8; AT_ONCE * 8];
    for Range { start, end } in swapped(&smaps) {
        let mut at = start / page;
        while at < end / page && !progress.over.load(Ordering::Relaxed) {
            let left = usize::try_from(end / page - at).unwrap_or(AT_ONCE).min(AT_ONCE);
            let Ok(read) = pagemap.read_at(&mut words[..left * 8], at * 8) else { break };
            if read < 8 {
                break;
            }
            let out = words[..read].chunks_exact(8).zip(at..).filter_map(|(word, number)| {
                let word = u64::from_ne_bytes(word.try_into().ok()?);
                (word & SWAPPED != 0).then_some(number * page)
            });
            if fetch(pid, &out.collect::<Vec<u64>>(), page, progress).is_err() {
                return;
            }
            at += read as u64 / 8;
        }
    }
}

/// The readable mappings of which something is in swap.
fn swapped(smaps: &str) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut mapping = None;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if let Some((start, end)) = first.split_once('-') {
            let address = |text| u64::from_str_radix(text, 16).ok();
            let range = address(start).zip(address(end)).map(|(start, end)| start..end);
            mapping = range.filter(|_| second.starts_with('r'));
        } else if first == "Swap:" && second != "0" {
            found.extend(mapping.take());
        }
    }
    found
}

/// Has the kernel fetch the pages at these addresses.
fn fetch(pid: Pid, pages: &[u64], page: u64, progress: &Progress) -> nix::Result<()> {
    let mut into = [0u8; AT_ONCE];
    let mut left = pages;
    while !left.is_empty() && !progress.over.load(Ordering::Relaxed) {
        let remote: Vec<RemoteIoVec> = left
            .iter()
            .filter_map(|at| Some(RemoteIoVec { base: usize::try_from(*at).ok()?, len: 1 }))
            .collect();
        let mut local = [IoSliceMut::new(&mut into[..remote.len()])];
        let read = match process_vm_readv(pid, &mut local, &remote) {
            Ok(read) => read,
            Err(Errno::EFAULT) => 0,
            Err(error) => return Err(error),
        };
        progress.bytes.fetch_add(read as u64 * page, Ordering::Relaxed);
        // The one that it stopped at is not there any more.
        left = left.get(read + usize::from(read < left.len())..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_with_something_in_swap_are_found() {
        let smaps = "7f00-7f10 rw-p 00000000 00:00 0\nSize: 64 kB\nSwap: 12 kB\nSwapPss: 12 kB\n\
             8000-9000 rw-p 00000000 00:00 0   [heap]\nSwap:                  0 kB\n\
             a000-b000 ---p 00000000 00:00 0\nSwap: 4 kB\n\
             c000-d000 r--p 00000000 08:01 77 /a b\nSwap: 4 kB\nnonsense\n";
        assert_eq!(swapped(smaps), [0x7f00..0x7f10, 0xc000..0xd000]);
    }

    #[test]
    fn pages_of_another_process_are_fetched_past_one_that_is_not_there() {
        let page = rustix::param::page_size() as u64;
        let here = vec![7u8; 4 * page as usize];
        let first = (here.as_ptr() as u64).next_multiple_of(page);
        let progress = Progress::default();
        let pages = [first, 8, first + page];
        fetch(Pid::this(), &pages, page, &progress).expect("it may look at itself");
        assert_eq!(progress.bytes.load(Ordering::Relaxed), 2 * page);
        // Its own pagemap can be read as well.
        bring_process(Pid::this(), &progress);
    }

    #[test]
    fn what_does_not_come_on_is_not_waited_for() {
        let progress = Arc::new(Progress::default());
        let mut coming = Coming { progress: Arc::clone(&progress), seen: 0, look_ns: STANDS };
        assert_eq!(coming.look(5), Some(STANDS));
        progress.bytes.store(4096, Ordering::Relaxed);
        assert_eq!(coming.look(STANDS), Some(2 * STANDS));
        assert_eq!(coming.look(2 * STANDS), None);
        drop(coming);
        assert!(progress.over.load(Ordering::Relaxed));
    }
}
