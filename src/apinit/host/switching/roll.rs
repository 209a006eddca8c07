//! Memory of gangs that stand, brought to swap beside everything else.
//!
//! The kernel may take its time with that, or wait for a disk that does not answer: a thread of its own and of
//! ordinary priority does it ([`Roller`]), for one gang after the other. A gang that is to start does not wait
//! for it: [`Going`] is dropped, the thread ends with the next piece, and what has gone by then comes in as any
//! memory that was out ([`super::bring`]).

use super::{Order, Shared, lock, ring};
use crate::apteam::Key;
use crate::node::groups::{Memory, bring_out};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Memory that is on its way out; with this it ends.
#[derive(Debug)]
pub struct Going(Arc<AtomicBool>);

impl Drop for Going {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Job {
    key: Key,
    groups: Vec<PathBuf>,
    over: Arc<AtomicBool>,
}

/// The thread that does it.
#[derive(Debug)]
pub struct Roller(Sender<Job>);

impl Roller {
    /// Starts it. It ends when this is dropped.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn start(shared: Arc<Shared>) -> std::io::Result<Roller> {
        let (jobs, of_thread) = channel();
        std::thread::Builder::new().name("apinit-roll-out".into()).spawn(move || {
            run(&of_thread, &shared);
        })?;
        Ok(Roller(jobs))
    }

    /// Begins to bring the memory of this gang to swap; how it went is told by [`Order::WentOut`]. `None`:
    /// the thread is dead. (There is one for each gang at most: before another is asked for, this is dropped.)
    pub fn bring_out(&self, key: Key, memory: &Memory) -> Option<Going> {
        let over = Arc::new(AtomicBool::new(false));
        let groups = memory.groups().map(Path::to_owned).collect();
        self.0.send(Job { key, groups, over: Arc::clone(&over) }).ok()?;
        Some(Going(over))
    }
}

fn run(jobs: &Receiver<Job>, shared: &Shared) {
    // Signals are the one task's.
    let _ = nix::sys::signal::SigSet::all().thread_block();
    while let Ok(Job { key, groups, over }) = jobs.recv() {
        let out = bring_out(&groups, || over.load(Ordering::Relaxed));
        tracing::info!(%key, bytes = out.bytes, why = out.why, "rolled out");
        lock(&shared.inbox).push_back(Order::WentOut(key, out));
        ring(&shared.order);
    }
}
