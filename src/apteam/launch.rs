//! What is to be executed: everything of the caller's that a PE is given.

use super::binding::Binding;
use std::time::Duration;

/// A file as it was when aprun opened it: one that has changed since is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FileIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Time of last change, in nanoseconds since the epoch.
    pub mtime_ns: i64,
}

/// A soft limit of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// RLIMIT_ number as Linux has it.
    pub resource: u32,
    /// The soft limit; `u64::MAX` is none.
    pub soft: u64,
}

/// The launch, as the front end sends it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Launch {
    /// Path of the executable, absolute or relative to `directory`.
    pub executable: Vec<u8>,
    /// Arguments from argv[0] on.
    pub arguments: Vec<Vec<u8>>,
    /// NAME=VALUE.
    pub environment: Vec<Vec<u8>>,
    /// Working directory.
    pub directory: Vec<u8>,
    /// File mode creation mask.
    pub umask: u32,
    /// Soft limits.
    pub limits: Vec<Limit>,
    /// Binding to processors. What an apinit gives to its shepherd has none or [`Binding::Cpu`]: each
    /// [`LocalPe`] has its set, and an older shepherd need not know of more.
    pub binding: Binding,
    /// Serve PMI-1.
    pub pmi: bool,
    /// Send output up in whole lines (-T).
    pub whole_lines: bool,
    /// Send up how each PE has ended (`aprun --report`). An older shepherd does not know of it, and sends
    /// none.
    pub report: bool,
    /// What the executable was when it was posted.
    pub identity: Option<FileIdentity>,
}

/// One PE of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPe {
    /// Its rank.
    pub rank: u32,
    /// Its node.
    pub nid: crate::machine::Nid,
    /// Real processors to bind it to; empty: not bound.
    pub cpus: Vec<u32>,
}

/// The launch of one host's part, as apinit gives it to its shepherd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLaunch {
    /// Which application.
    pub key: super::Key,
    /// PEs of the whole application.
    pub width: u32,
    /// Processors for each.
    pub depth: u32,
    /// What is to be executed.
    pub launch: Launch,
    /// The PEs of this host.
    pub pes: Vec<LocalPe>,
    /// MPICH's PMI_process_mapping.
    pub process_mapping: String,
    /// No other host has PEs: barriers end here.
    pub alone: bool,
    /// CPU time of each PE.
    pub cpu_limit: Option<Duration>,
    /// PE 0 is here and reads stdin.
    pub stdin: bool,
    /// From TERM to KILL.
    pub kill_grace: Duration,
    /// Value of PSCHED_APPLICATION in each PE's environment: by it stray processes are found.
    pub marker: String,
    /// What a node's PEs may have of memory, for each of them.
    pub memory_per_pe: Option<u64>,
    /// Processes and threads that they may have on a node.
    pub pids_max: Option<u64>,
    /// What may be kept of it.
    pub bounds: super::bounds::Bounds,
}
