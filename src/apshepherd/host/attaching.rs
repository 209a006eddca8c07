//! Processes that are to attach to a PE: strace and gdb, for `aprun --strace`, `aprun -g` and `apstat --stacks`; and those
//! that are to start what a PE spawns ([`super::spawned`]).
//!
//! # Problem
//! What traces a PE is to be frozen with it and bound by its node's limits. Had it executed its program elsewhere,
//! only for a moment, another program of the same user could take it over by ptrace and run outside of all turns.
//!
//! # Approach
//! Such a process is a fork of the apshepherd, which no program of the user's may trace, and waits at a gate
//! ([`Waiting`]). It executes its program once the gate is opened, and by then it is in the control group of the
//! PE's node. Two ways lead there:
//!
//! | the process is made | it gets into the group |
//! | --- | --- |
//! | with its PE, while the apshepherd has the right to give birth there | by its birth |
//! | later | by apinit, which alone may put processes there |

use super::pes::pipe;
use crate::os::fork::{PeSetup, Program, fork_pe};
use crate::os::placing::Placing;
use nix::unistd::{Pid, write};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What gdb is told before it attaches: to ask nobody, to read no file of the user's but the program's and its
/// libraries, and to say no more than stacks.
pub const GDB: [&str; 8] = [
    "set debuginfod enabled off",
    "set auto-load no",
    "set style enabled off",
    "set print thread-events off",
    "set print inferior-events off",
    "set width 0",
    "set height 0",
    "set confirm off",
];

/// How a process is to be that will attach to a PE.
#[derive(Debug)]
pub struct Attaching<'a> {
    /// By which a failure names it.
    pub index: u32,
    /// NAME=VALUE, beside the program's.
    pub environment: Vec<CString>,
    /// Processors; empty: any.
    pub cpus: &'a [u32],
    /// How much nicer than the apshepherd.
    pub nice: u32,
    /// stdin, stdout and stderr.
    pub stdio: [BorrowedFd<'a>; 3],
    /// The group to be born in; `None`: that of the apshepherd.
    pub group: Option<BorrowedFd<'a>>,
    /// The right to be born there, where the group is root's.
    pub placing: Option<&'a Placing>,
    /// Where a failure is written.
    pub failures: BorrowedFd<'a>,
}

/// A process at its gate.
#[derive(Debug)]
pub struct Waiting {
    /// Its process.
    pub pid: Pid,
    /// Its gate.
    pub gate: OwnedFd,
}

impl Attaching<'_> {
    /// Makes the process.
    ///
    /// # Errors
    /// The errors of fork and pipe.
    pub fn start(self, program: &Program) -> io::Result<Waiting> {
        let (waits, gate) = pipe()?;
        let Attaching { index, environment, cpus, nice, stdio, group, placing, failures } = self;
        let setup = PeSetup {
            index,
            environment,
            cpus,
            nice,
            stdio,
            pmi: None,
            group,
            placing: placing.filter(|_| group.is_some()),
            gate: Some(waits.as_fd()),
            lends: false,
            failures,
        };
        let pid = Pid::from_raw(fork_pe(program, &setup)?);
        Ok(Waiting { pid, gate })
    }
}

/// Opens a gate: the process executes its program.
pub fn open(gate: OwnedFd) {
    // (An Err: it has been killed.)
    let _ = write(&gate, &[1]);
}
