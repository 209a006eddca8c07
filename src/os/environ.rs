//! Environments of other processes, read in bounded time.
//!
//! `/proc/PID/environ` is read from the other process's memory, for which the kernel takes the lock
//! of that memory. A process that hangs in the kernel with the lock held (it was mapping a file of a
//! server that does not answer, say) makes whoever reads hang too, and not even a KILL ends that.
//! So another thread reads: where it does not come back within [`PATIENCE`] it is left behind, the
//! process counts as one that can't be looked at, and a new thread goes on with the rest. As long as
//! the thread that was left behind does not come back, nobody asks about its process again.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long one environment may take: a copy in memory, but of pages that may be in swap, and by a
/// thread that may not be given a processor at once.
const PATIENCE: Duration = Duration::from_millis(200);
/// And where so long has gone by with that, how long each further one.
const PATIENCE_ALL: Duration = Duration::from_secs(1);
const PATIENCE_LEAST: Duration = Duration::from_millis(20);
/// So many threads may be left behind. Beyond that nobody can be looked at until one comes back.
const LEFT_MAX: usize = 32;
/// What a process's environment may be long, in bytes: ARG_MAX is the kernel's bound.
const LENGTH_MAX: u64 = 4 * 1024 * 1024;
/// Environments that may wait for whoever asked.
const AHEAD: usize = 8;

type Told = Receiver<Vec<u8>>;

/// The threads that were left behind, each with the process over which it hangs.
static LEFT: Mutex<Vec<(i32, Told)>> = Mutex::new(Vec::new());

fn left<R>(f: impl FnOnce(&mut Vec<(i32, Told)>) -> R) -> R {
    f(&mut LEFT.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Gives `take` the environment of each process, strings that end with a zero byte each. It is empty
/// where there is no such process any more, where it has ended, or where it may not be read; `None`:
/// it can't be read for now.
pub fn each(pids: impl IntoIterator<Item = i32>, take: impl FnMut(i32, Option<&[u8]>)) {
    below(Path::new("/proc"), pids.into_iter().collect(), take);
}

fn below(proc: &Path, mut pids: VecDeque<i32>, mut take: impl FnMut(i32, Option<&[u8]>)) {
    let hanging: Vec<i32> = left(|left| {
        // Who has something to say again, or is gone.
        left.retain(|(_, told)| matches!(told.try_recv(), Err(TryRecvError::Empty)));
        left.iter().map(|(pid, _)| *pid).collect()
    });
    pids.retain(|pid| {
        let hangs = hanging.contains(pid);
        if hangs {
            take(*pid, None);
        }
        !hangs
    });
    let begun = Instant::now();
    while !pids.is_empty() {
        let reader = match left(|left| left.len() < LEFT_MAX) {
            true => reader(proc, pids.clone()).ok(),
            false => None,
        };
        let Some(told) = reader else {
            pids.drain(..).for_each(|pid| take(pid, None));
            return;
        };
        while let Some(pid) = pids.front().copied() {
            let rest = PATIENCE_ALL.saturating_sub(begun.elapsed());
            let environment = told.recv_timeout(rest.clamp(PATIENCE_LEAST, PATIENCE));
            pids.pop_front();
            take(pid, environment.as_deref().ok());
            match environment {
                Ok(_) => (),
                Err(RecvTimeoutError::Timeout) => {
                    left(|left| left.push((pid, told)));
                    break;
                }
                // It has died, which nothing that it does explains.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    }
}

/// A thread that reads them in this order.
fn reader(proc: &Path, pids: VecDeque<i32>) -> std::io::Result<Told> {
    let proc = proc.to_owned();
    let (tell, told) = sync_channel(AHEAD);
    let read = move || {
        for pid in pids {
            let mut environment = Vec::new();
            let file = File::open(proc.join(format!("{pid}/environ")));
            // Half of one is none.
            if file.and_then(|f| f.take(LENGTH_MAX).read_to_end(&mut environment)).is_err() {
                environment.clear();
            }
            // An Err: it was left behind.
            if tell.send(environment).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("environ".into()).stack_size(128 * 1024).spawn(read)?;
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;

    fn read(proc: &Path, pids: &[i32]) -> Vec<(i32, Option<Vec<u8>>)> {
        let mut found = Vec::new();
        below(proc, pids.iter().copied().collect(), |pid, environment| {
            found.push((pid, environment.map(<[u8]>::to_vec)));
        });
        found.sort();
        found
    }

    /// A thread that is not given a processor for long looks as if it hung: then once more.
    #[track_caller]
    fn reads(proc: &Path, expected: &[(i32, Option<Vec<u8>>)]) {
        let pids: Vec<i32> = expected.iter().map(|(pid, _)| *pid).collect();
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let found = read(proc, &pids);
            if found == expected {
                return;
            }
            assert!(Instant::now() < until, "{found:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_can_not_be_read_has_none() {
        let proc = Path::new("/proc");
        reads(proc, &[(i32::MAX, Some(Vec::new()))]);
        let own = std::process::id() as i32;
        let path = |environment: &[u8]| environment.windows(5).any(|w| w == b"PATH=");
        let until = Instant::now() + Duration::from_secs(20);
        while !read(proc, &[own])[0].1.as_deref().is_some_and(path) {
            assert!(Instant::now() < until, "this process has no PATH");
        }
    }

    #[test]
    fn one_that_hangs_holds_up_nobody() {
        // A FIFO that nobody writes to makes its reader hang as such a process does.
        let proc = tempfile::tempdir().expect("a directory");
        let (first, hung, last) = (2_000_000_001, 2_000_000_002, 2_000_000_003);
        let at = |pid: i32| proc.path().join(format!("{pid}/environ"));
        for pid in [first, hung, last] {
            std::fs::create_dir(proc.path().join(pid.to_string())).expect("made");
        }
        std::fs::write(at(first), "A=1\0").expect("written");
        std::fs::write(at(last), "B=2\0").expect("written");
        nix::unistd::mkfifo(&at(hung), Mode::S_IRWXU).expect("made");
        let of = |bytes: &[u8]| Some(bytes.to_vec());
        let expected = [(first, of(b"A=1\0")), (hung, None), (last, of(b"B=2\0"))];
        reads(proc.path(), &expected);
        // It is not waited for again: its thread is still there.
        let begun = Instant::now();
        for _ in 0..100 {
            assert_eq!(read(proc.path(), &[hung]), [(hung, None)]);
        }
        assert!(begun.elapsed() < PATIENCE_LEAST * 100, "it was waited for each time");
        assert_eq!(left(|left| left.iter().filter(|(pid, _)| *pid == hung).count()), 1);
        // As soon as that comes back the process can be looked at again.
        let writer = std::fs::OpenOptions::new().write(true).open(at(hung)).expect("it is read");
        std::fs::remove_file(at(hung)).expect("removed");
        std::fs::write(at(hung), "C=3\0").expect("written");
        assert_eq!(read(proc.path(), &[hung]), [(hung, None)]);
        drop(writer);
        reads(proc.path(), &[(hung, of(b"C=3\0"))]);
    }
}
