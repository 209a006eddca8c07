//! MPI programs: tests/programs/*.c, built with Debian's mpicc.mpich.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds a program into a folder of the build, once; `None` without the compiler: the test is
/// skipped, by name.
pub fn program(test: &str, name: &str) -> Option<PathBuf> {
    static COMPILER: OnceLock<bool> = OnceLock::new();
    let there = COMPILER.get_or_init(|| {
        Command::new("mpicc.mpich").arg("-v").output().is_ok_and(|o| o.status.success())
    });
    if !there {
        super::skip(test, "mpicc.mpich is not installed (apt-get install mpich libmpich-dev)");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{name}"));
    let output = Command::new("mpicc.mpich")
        .args(["-O1", "-Wall", "-o"])
        .args([&target, &source])
        .output()
        .expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(target)
}
