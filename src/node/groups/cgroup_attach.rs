//! Processes that are put into groups without a wait.
//!
//! # Problem
//! While a process is put into another group nobody in the whole kernel may fork or end. For the first one the
//! kernel waits until everybody knows that (a grace period of RCU: 10 ms and more); for those that follow within
//! about as long it does not. A restored gang stands still meanwhile, with all that is around it.
//!
//! # Approach
//! A thread puts this process into the group in which it is already, which changes nothing, again and again
//! ([`PERIOD`]): so it is this thread that waits, while CRIU does something else. What takes longer than [`MOST`]
//! does not become long by a wait, and the rest of the host is not to be held up for it all the time.
//!
//! ```no_run
//! # use psched::node::groups::Eager;
//! # fn example(own_group: std::fs::File) {
//! let eager = Eager::of(&own_group);
//! // ... what takes long, and puts processes into groups in the end
//! drop(eager);
//! # }
//! ```

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shorter than any grace period.
const PERIOD: Duration = Duration::from_millis(4);
/// The thread ends after that.
const MOST: Duration = Duration::from_secs(1);

/// As long as it is there, and for [`MOST`], processes are put into groups without a wait.
#[derive(Debug)]
pub struct Eager {
    /// Nothing is ever said by it.
    until: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Eager {
    /// By this process, which is in this group. Where it can't be done nothing is lost but time.
    pub fn of(own_group: impl AsFd) -> Eager {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let procs = rustix::fs::openat(own_group, "cgroup.procs", flags, Mode::empty());
        let (until, over) = channel();
        let work = |procs: File| {
            let end = Instant::now() + MOST;
            let again = move || {
                // (0 is whoever writes it.)
                while procs.write_all_at(b"0", 0).is_ok()
                    && over.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout)
                    && Instant::now() < end
                {}
            };
            std::thread::Builder::new().name("eager".into()).spawn(again).ok()
        };
        Eager { until: Some(until), thread: procs.ok().and_then(|procs| work(File::from(procs))) }
    }
}

impl Drop for Eager {
    fn drop(&mut self) {
        drop(self.until.take());
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn it_is_written_again_and_again_until_it_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let procs = folder.path().join("cgroup.procs");
        std::fs::write(&procs, "").expect("written");
        let eager = Eager::of(File::open(folder.path()).expect("opened"));
        let until = Instant::now() + Duration::from_secs(30);
        for _ in 0..3 {
            while std::fs::read(&procs).expect("there") != b"0" {
                assert!(Instant::now() < until, "nothing is written");
                std::thread::sleep(Duration::from_millis(1));
            }
            std::fs::write(&procs, "").expect("written");
        }
        // (It waits for its thread.)
        drop(eager);
        std::fs::write(&procs, "").expect("written");
        assert_eq!(std::fs::read(&procs).expect("there"), b"", "it goes on");
    }

    #[test]
    fn without_a_group_there_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let eager = Eager::of(File::open(folder.path()).expect("opened"));
        assert!(eager.thread.is_none());
    }
}
