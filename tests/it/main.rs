//! What a user or an administrator would see, on real processes.

mod apinit;
mod aprun_cli;
mod daemon;
mod shepherd;
