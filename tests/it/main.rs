//! What a user or an administrator would see, on real processes.

mod apinit;
mod aprun_cli;
mod bad;
mod daemon;
mod disks;
mod ends;
mod fronts;
mod hand;
mod launch;
mod limits;
mod logs;
mod manuals;
mod mpi;
mod programs;
mod recovery;
mod shepherd;
mod start;
mod support;
mod views;
mod waiting;
