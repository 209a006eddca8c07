//! clone3's arguments, which libc has no type for: what [`super::fork`] and [`super::spawn`] share.

/// Born in the control group of `cgroup`. (From linux/sched.h: libc's constant has overflowed its
/// type.)
pub(super) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// Puts a pidfd where `pidfd` points.
pub(super) const CLONE_PIDFD: u64 = 0x1000;

/// clone3's arguments (88 bytes, Linux 5.7).
#[repr(C, align(8))]
#[derive(Default)]
pub(super) struct CloneArgs {
    /// CLONE_ flags.
    pub(super) flags: u64,
    /// Address of an int.
    pub(super) pidfd: u64,
    pub(super) child_tid: u64,
    pub(super) parent_tid: u64,
    /// What the parent is sent at its end.
    pub(super) exit_signal: u64,
    pub(super) stack: u64,
    pub(super) stack_size: u64,
    pub(super) tls: u64,
    pub(super) set_tid: u64,
    pub(super) set_tid_size: u64,
    /// Descriptor of a group's directory.
    pub(super) cgroup: u64,
}
