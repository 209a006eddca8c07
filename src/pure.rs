//! The pure rooms of psched: what there is, what runs, where, when, and what each process decides.
//!
//! *Pure* means: no clock, no randomness without a seed that is given, no input or output, no async, no
//! logging, no iteration over an order that a hash made. What comes from outside is an event, what is to be
//! done is an effect. The compiler is the judge: this crate depends on nothing that could do otherwise
//! (`Cargo.toml` beside this file), and `clippy.toml` bans the rest, with reasons.

// Tests read and write what they compare with.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_macros,
        clippy::disallowed_types,
        clippy::unwrap_used
    )
)]

pub mod apteam;
mod by_time;
pub mod checkpoint;
pub mod config;
pub mod gang;
pub mod machine;
pub mod occupancy;
mod pairs;
pub mod placement;
pub mod steering;
// Each process has a wing: what it decides, and what carries that out.
pub mod apinit {
    //! What apinit decides, and what carries it out.
    pub mod decide;
    pub mod drive;
}
pub mod aprun {
    //! What aprun, mpirun and mpiexec decide, and what carries it out.
    pub mod decide;
    pub mod drive;
}
pub mod apshepherd {
    //! What apshepherd decides, and what carries it out.
    pub mod decide;
    pub mod drive;
}
pub mod psched {
    //! What psched, the daemon, decides, and what carries its decisions out.
    pub mod decide;
    pub mod drive;
    pub mod reason;
}
pub mod variables;
