//! Worlds to try psched in: the seeded cluster, and recorded workloads in virtual time.
//!
//! Pure as well: everything that happens here follows from a seed or a log.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_macros,
        clippy::disallowed_types,
        clippy::unwrap_used
    )
)]

use psched_pure::{
    apinit, aprun, apshepherd, apteam, checkpoint, gang, machine, placement, psched, variables,
};

#[cfg(test)]
use psched_pure::config;

pub mod simulate;
pub mod torture;
