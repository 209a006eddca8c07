//! What a user or an administrator would see, on real processes.

mod apinit;
mod aprun_cli;
mod bad;
mod daemon;
mod ends;
mod launch;
mod logs;
mod manuals;
mod mpi;
mod recovery;
mod shepherd;
mod start;
mod support;
mod waiting;
