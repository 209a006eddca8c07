//! What is said between an apinit and the first process of a PID namespace in which an application comes back.

use super::images::Owner;
use super::saved::Role;
use serde::{Deserialize, Serialize};
use std::os::fd::RawFd;
use std::path::PathBuf;

/// The largest message.
pub(super) const MESSAGE_MAX: u64 = 1024 * 1024;

/// What the first process is told when all images are there.
pub(super) const GO: u8 = b'g';

/// What it is told when they are what they were.
pub(super) const SURE: u8 = b's';

/// What the first process is told. Descriptors are its own.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Order {
    pub criu: PathBuf,
    pub images: RawFd,
    pub files: Vec<(Role, RawFd)>,
    pub groups: Vec<(u32, RawFd)>,
    /// The group in which the first process is itself.
    pub own_group: RawFd,
    pub own_memory: bool,
    /// The processors of each node's part.
    pub cpus: Vec<(u32, Vec<u32>)>,
    pub owner: Owner,
    pub bound_ms: u64,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The shepherd's pid in the namespace.
    Restored(i32),
    Failed(String),
}

/// What its command line begins with, where that of a shepherd has its application.
pub const ARGUMENT: &str = "restore";
