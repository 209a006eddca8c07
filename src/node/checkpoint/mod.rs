//! Checkpoints of applications, by CRIU.
//!
//! # The problem
//! A running application is to be written into files, as it is, and brought back from them later: after
//! its host was started again, beside others that have its pids now, under another apinit. Neither the
//! program nor MPI know of it. CRIU can do that for a tree of processes; but a tree has ends that lead out
//! of it, and CRIU refuses each, or restores it as something dead.
//!
//! # The approach
//! The tree is the apshepherd with all below it ([`dump_application`]): it is their parent, has their pipes
//! and speaks PMI with them, so that all of that is inside. What leads out is little, and known:
//!
//! | what leads out | at the dump | at the restore |
//! | --- | --- | --- |
//! | the connection to apinit | apinit has hung up, and the shepherd has closed its end | apinit connects anew |
//! | the socket on which it listens | dumped as it is | inherited, as `socket:[INODE]`: apinit's new one, at whatever path |
//! | its lifeline, a pipe | dumped as it is | inherited, as `pipe:[INODE]`; else it would be at its end |
//! | /dev/null, the log, directories and events of its groups, opened before it had mounts of its own | `external`, as `file[MOUNT:INODE]` | inherited by that name |
//! | its mounts (it has a /dev/shm of its own) | CRIU runs in its mount namespace, which so is no part of the dump | a new one, /proc and /dev/shm mounted by us |
//! | files with a name in /dev/shm | copied by us while everything is frozen (`memory`) | laid out before CRIU runs |
//! | its IPC namespace | dumped by CRIU | made by CRIU |
//! | its pids | are those of its PID namespace | the same, in a new PID namespace with a first process of ours ([`within`]) |
//! | its clock | dumped by CRIU | CRIU makes a time namespace: CLOCK_MONOTONIC goes on where it was |
//! | TCP connections to other parts of it, on other apinits of this host | each part when all stand, and nothing is on its way (`tcp`) | CRIU waits at the stage `post-restore` until the other ends are there |
//! | the processors that threads are bound to | which, kept by us: CRIU leaves that out | bound to those of now, at the stage `pre-resume` (`binding`) |
//! | its control groups | left out; who was where is kept by us | each process is moved at the stage `pre-resume`, before it runs: into a frozen group, if the gang has no turn yet |
//!
//! Its stderr may not be a connection to the journal: an apshepherd lets go of that at its start.
//!
//! signalfd, epoll, the PMI socket pairs, pipes with what is in them, the undumpable flag, the death
//! signals and shared memory that has lost its name (ghost files) CRIU does by itself. Nobody is traced by
//! the shepherd any more once the PEs go.
//!
//! # An example
//! Dump, and go on; or end it, and bring it back:
//!
//! ```text
//! let criu = Criu::find(None)?;  criu.check()?;
//! // apinit hangs up its connection to the shepherd
//! dump_application(&criu, &running, images, DumpOptions { go_on: false, bound })?;
//! // later, elsewhere: groups are made and frozen, a socket listens
//! let restored = restore_application(&criu, images, &given, bound, &mut |_| Ok(()))?;
//! // apinit connects to the socket; the switcher thaws the groups when it is their turn
//! ```
//!
//! # What was found out
//! - CRIU runs a piece of code in each process, so that nothing may be frozen but the one group that it is
//!   told of, which it thaws meanwhile while it holds everybody by ptrace. Freezers of nodes are taken off
//!   below a frozen whole and put on again (`dump::Frozen`).
//! - CRIU may end the shepherd of a restored application, but not without being killed with it: that is the
//!   end of the PID namespace. So it leaves the processes stopped, and their group is killed by us.
//! - Whoever wants all hosts or none dumps with `go_on` unset only where it is all the same what becomes of
//!   it; dumping with `go_on` set in groups that stay frozen is the first half of two.
//! - CRIU opens files by the paths that they had, as root. Who may write to a directory above one can have
//!   put another file there meanwhile: so each open and mapped file is looked at before anything runs
//!   (`access`).
//! - At the stage `pre-resume` CRIU goes on whatever its client says; so the first process ends itself, and
//!   everybody with it, where something is wrong then.
//! - A program, library or mapped file whose size has changed is refused: after an upgrade of apshepherd
//!   or the C library, checkpoints of before can't be restored.
//! - CRIU keeps what it has found out of the kernel in /run/criu.kdat, if /run is a tmpfs. Where it is none, each
//!   CRIU that is asked to dump or to restore probes anew.
//! - CRIU opens no image of pages before its stage `pre-restore`, and it obeys there: what remains to be copied is
//!   copied while it starts and looks at the kernel ([`read_late`]).
//! - The first process that is put into another group waits for a grace period of the kernel (12 ms here), those
//!   after it do not: somebody else waits for it while CRIU makes processes ([`Eager`]).
//! - CRIU needs root and, for processes of others, CAP_SYS_RESOURCE. It checks its own needs, not this one.
//! - Memory that is restored is charged to the shepherd's group, in which CRIU runs, and stays so when its
//!   processes have moved.
//! - A CRIU that is killed in the midst of a dump may leave processes with its own code in them: they are
//!   lost. So its bound must be far longer than the disk takes.
//! - Unix sockets to others outside are refused by CRIU. TCP out of the application is dumped, and nobody is kept
//!   silent meanwhile: what was at the other end finds the connection broken. Not tried: System V shared memory,
//!   POSIX message queues. A private instance of an ordinary user has no checkpoints: all of this needs root.
//!
//! What it costs beside CRIU alone is measured by `cargo bench --bench checkpoints`, whose words tell how to
//! read it. An application stands from before its shepherd is hung up on; CRIU is started, and probes the kernel,
//! before that ([`Begun`]).
//!
//! [`Eager`]: crate::node::groups::Eager

mod access;
mod binding;
pub mod criu;
pub mod dir;
mod dump;
mod errors;
pub mod fd_channel;
mod image_files;
mod images;
mod known;
mod memory;
mod proc;
mod restore;
pub mod restore_order;
mod resume;
mod saved;
mod tcp;
pub mod within;

pub use dump::{Begun, DumpOptions, Dumped, Running, dump_application, has_own_space};
pub use images::Owner;
pub use known::Known;
pub use proc::host_pids;
pub use restore::{Given, Late, Restored, born_of, clock_ahead_ns, read_late, restore_application};
pub use resume::{Resume, keep_resume, read_resume};
pub use tcp::{Link, all_is_sent, break_off, leads_out, owner_by_table, quiet};

use std::os::fd::BorrowedFd;

/// Bytes of removed files that are still open which an application may have, where nobody says
/// otherwise: shared memory of MPI programs is such files.
pub const GHOST_LIMIT: u64 = 4 << 30;

/// What stands behind the name of a back end of a node where that can only have root's own
/// applications.
pub const OF_ROOT_ALONE: &str = " (root's applications only)";

/// Whether CRIU can dump processes of others than root: to read their limits takes
/// CAP_SYS_RESOURCE, which root of a container may lack. CRIU itself finds that out when everything
/// stands.
pub fn dumps_others() -> bool {
    const SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = rights.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    rights.is_some_and(|rights| rights >> SYS_RESOURCE & 1 == 1)
}

/// Why there is no checkpoint, or no restart, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CheckpointError(String);

impl CheckpointError {
    pub(crate) fn new(text: impl Into<String>) -> CheckpointError {
        CheckpointError(text.into())
    }
}

impl From<criu::CriuError> for CheckpointError {
    fn from(error: criu::CriuError) -> CheckpointError {
        CheckpointError(error.to_string())
    }
}

/// Whether only root can have put anything into this directory; and whether it is `empty`, if it is to be.
fn root_alone(images: BorrowedFd<'_>, empty: bool) -> Result<(), CheckpointError> {
    let failed = |e: rustix::io::Errno| {
        CheckpointError::new(format!("can't examine the directory of the images: {e}"))
    };
    if !nix::unistd::geteuid().is_root() {
        return Err(CheckpointError::new("only root can dump and restore with CRIU"));
    }
    let stat = rustix::fs::fstat(images).map_err(failed)?;
    if stat.st_uid != 0 || stat.st_mode & 0o077 != 0 {
        let text = "the directory of the images must belong to root and have mode 0700: its \
                    content is trusted";
        return Err(CheckpointError::new(text));
    }
    if empty {
        for entry in rustix::fs::Dir::read_from(images).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                let name = entry.file_name().to_string_lossy();
                let text = format!("the directory of the images is not empty: {name} is there");
                return Err(CheckpointError::new(text));
            }
        }
    }
    Ok(())
}
