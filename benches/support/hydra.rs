//! Debian's other way to start MPI programs (package mpich), beside which aprun is measured.

use std::process::{Command, Stdio};

/// Its program.
pub const PROGRAM: &str = "mpiexec.hydra";

/// Whether it is installed.
pub fn is_there() -> bool {
    let mut command = Command::new(PROGRAM);
    let status = command.arg("-version").stdout(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
