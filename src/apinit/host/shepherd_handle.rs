//! A shepherd, as the one task has it, and what it takes of its host.

use super::process_tracking::lives;
use super::runtime::Process;
use super::shepherd_writer::ShepherdWriter;
use crate::apteam::bounds::Bounds;
use crate::apteam::protocol::node::PlaceCommand;
use crate::apteam::protocol::shepherd::ToShepherd;
use crate::os::peer::is_running;
use crate::os::spawn::Failure;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The program.
pub(super) const PROGRAM: &str = "apshepherd";
/// Why an apshepherd that is dead could not be executed, if so, by what its pipe brings.
pub(super) fn not_executed(pipe: OwnedFd) -> Option<String> {
    let mut bytes = [0; Failure::SIZE];
    // It is dead, so the pipe is at its end.
    File::from(pipe).read_exact(&mut bytes).ok()?;
    let Failure { step, error } = Failure::parse(bytes);
    Some(match step {
        Some(step) => format!("it can't be isolated: {}", step.explain(&error)),
        None => format!("{PROGRAM} could not be executed: {error}"),
    })
}

/// Bytes of memory that an apshepherd takes at most: itself, and what it keeps for its application.
pub(super) fn room_of_shepherd(place: &PlaceCommand) -> u64 {
    const ITSELF: u64 = 128 << 20;
    let Bounds { output, stdin, pmi } = place.bounds;
    // Twice: what is kept is copied when it is sent.
    let kept = output.saturating_add(stdin).saturating_add(pmi).saturating_mul(2);
    kept.saturating_add(ITSELF)
}

/// A shepherd that is being talked with.
#[derive(Debug)]
pub(super) struct Shepherd {
    pub process: Process,
    pub pidfd: Option<Arc<OwnedFd>>,
    /// `None`: it is of a release that is not understood.
    pub(super) mouth: Option<ShepherdWriter>,
    /// Brings the errno if it could not be executed.
    pub(super) failure: Option<OwnedFd>,
    /// It closes because it was asked to: it is not waited for its death then.
    pub(super) hung_up: Arc<AtomicBool>,
}

impl Shepherd {
    /// Tells it; false: too much waits for it already.
    pub fn send(&self, message: ToShepherd) -> bool {
        self.mouth.as_ref().is_none_or(|mouth| mouth.send(message))
    }

    /// Why it could not be executed, if so.
    pub fn failure(&mut self) -> Option<String> {
        not_executed(self.failure.take()?)
    }

    /// Says what waits, and then nothing more: once it has heard all of it the shepherd closes, which is
    /// told as its silence. One that somebody has stopped goes on.
    pub fn hang_up(&mut self) {
        self.hung_up.store(true, Ordering::Relaxed);
        self.mouth = None;
        self.resume();
    }

    /// Whether it has ended, as far as can be told.
    pub fn has_ended(&self) -> bool {
        match &self.pidfd {
            Some(pidfd) => !is_running(pidfd),
            None => !lives(self.process.pid),
        }
    }

    pub fn kill(&self) {
        self.signal(rustix::process::Signal::KILL);
    }

    /// Lets it go on if it is stopped.
    pub fn resume(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(pidfd) = &self.pidfd {
            // An Err: it is dead.
            let _ = rustix::process::pidfd_send_signal(pidfd, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_killed_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().expect("it starts");
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
        let shepherd = Shepherd {
            process: Process { pid: child.id() as i32, started: 0 },
            pidfd: Some(Arc::new(pidfd.expect("open"))),
            mouth: None,
            failure: None,
            hung_up: Arc::default(),
        };
        assert!(!shepherd.has_ended());
        shepherd.kill();
        child.wait().expect("reaped");
        assert!(shepherd.has_ended());
        assert!(Shepherd { pidfd: None, ..shepherd }.has_ended());
    }
}
