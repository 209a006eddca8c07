//! `psched simulate`: recorded workloads, and one whose answers are known.

mod figures;
mod golden;
mod known;
mod told;
mod wrong;

use crate::support::*;
use std::path::Path;
use std::process::Command;

/// `psched simulate` of this log, with these words.
pub fn simulate(log: &Path, words: &[&str]) -> Run {
    let psched = binaries().join("psched");
    run(Command::new(psched).arg("simulate").arg(log).args(words))
}
