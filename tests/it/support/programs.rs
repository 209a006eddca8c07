//! Programs that a test makes, to be executed at once.
//!
//! A file that is open for writing can't be executed (ETXTBSY), and all tests are threads of one
//! process: what one of them has open, a child that another forks at this moment has open too,
//! until it executes. So no test opens a program for writing itself; a child does, and waits.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A copy of a program, with its mode.
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (from, to) = (from.as_ref(), to.as_ref());
    super::run(Command::new("cp").arg("--preserve=mode").arg("--").arg(from).arg(to)).expect(0);
}

/// A program of this text and this mode, say 0o755.
#[track_caller]
pub fn write_program(to: impl AsRef<Path>, text: impl AsRef<[u8]>, mode: u32) {
    let mut install = Command::new("install");
    install.arg("-m").arg(format!("{mode:o}")).arg("/dev/stdin").arg(to.as_ref());
    let mut child = install.stdin(Stdio::piped()).spawn().expect("install");
    child.stdin.take().expect("a pipe").write_all(text.as_ref()).expect("written");
    assert!(child.wait().expect("waited for").success(), "{install:?}");
}
