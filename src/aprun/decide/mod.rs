//! What aprun does, as pure functions and one state machine.
//!
//! aprun is the part of psched that its users see. Here is everything about it that needs no
//! operating system: its command line ([`options`]), what it reads of an executable ([`elf`]), how its PEs
//! are to find one another ([`wireup`], and in [`containers`]), how output is labelled and filed ([`output`]), how an end is told ([`closing`]), whether what
//! has lost a host is restarted ([`after_loss`]), and the order of things from the posting to the exit status
//! ([`session`]). [`drive`](super::drive) feeds the machine, and
//! `aprun::host` makes the system calls.

pub mod after_loss;
pub mod closing;
pub mod containers;
pub mod elf;
pub mod inside;
pub mod options;
pub mod output;
pub mod session;
pub mod wireup;
