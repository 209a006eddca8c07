//! The right to give birth to processes in control groups of root's.
//!
//! # Problem
//! clone3 puts a child into a group if its caller may write `cgroup.procs` of that group and of the
//! nearest group above both. An apshepherd is its user's, and so are the PEs that it makes. Were
//! those files the user's too, if only while the PEs are made, any other process of the same user
//! could put them elsewhere.
//!
//! # Approach
//! The files stay root's. When the shepherd becomes its user's, it keeps one capability,
//! CAP_DAC_OVERRIDE, and no other right of root's. It is effective only within the call of clone3;
//! each child drops it as its first act, and the shepherd drops it for good when all PEs are made,
//! before one of them has run an instruction. As long as it has it, the kernel lets no process of
//! the same user trace it.

use super::capabilities::{NONE, Sets, set};
use std::io;

/// Passes over the permissions of files. (From linux/capability.h.)
const CAP_DAC_OVERRIDE: u32 = 1;

/// It is permitted, and nothing else is.
fn only(effective: bool) -> Sets {
    let bit = |on: bool| u32::from(on) << CAP_DAC_OVERRIDE;
    [[bit(effective), bit(true), 0], [0; 3]]
}

/// The right, of a process that was root's and is a user's. Its children have to
/// [`Placing::disown`] it.
#[derive(Debug)]
pub struct Placing(());

impl Placing {
    /// Has this process keep it when it gives up root's ids.
    ///
    /// # Errors
    /// Those of prctl.
    pub(super) fn outlast_ids() -> io::Result<()> {
        // SAFETY: no pointers.
        match unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Keeps it, and no other: no program that this process executes has it, and it has no effect
    /// but within [`Placing::within`].
    ///
    /// # Errors
    /// This process does not have it: a container may have taken CAP_DAC_OVERRIDE from apinit.
    pub(super) fn take() -> io::Result<Placing> {
        match set(&only(false)) {
            true => Ok(Placing(())),
            false => Err(io::Error::last_os_error()),
        }
    }

    /// Does something with it: the kernel is asked with it in effect.
    ///
    /// # Errors
    /// It can't be put into effect.
    pub(super) fn within<T>(&self, call: impl FnOnce() -> T) -> io::Result<T> {
        if !set(&only(true)) {
            return Err(io::Error::last_os_error());
        }
        let done = call();
        // In the child this is the first thing too.
        set(&only(false));
        Ok(done)
    }

    /// A child that executes a program has it there, too. Whether that worked.
    pub(super) fn outlasts_execve() -> bool {
        let bit = 1 << CAP_DAC_OVERRIDE;
        // SAFETY: no pointers.
        set(&[[0, bit, bit], [0; 3]])
            && unsafe {
                let which = CAP_DAC_OVERRIDE as libc::c_ulong;
                libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, which, 0, 0) == 0
            }
    }

    /// A child has none of it. Whether that worked: it must not go on else.
    pub(super) fn disown() -> bool {
        set(&NONE)
    }
}

impl Drop for Placing {
    fn drop(&mut self) {
        // (It can't fail: less is always allowed.)
        set(&NONE);
    }
}
