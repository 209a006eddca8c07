//! Programs of the tests' own: tests/programs/*.c, built with the C compiler or with Debian's
//! mpicc.mpich.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds an MPI program into a folder of the build; `None` without the compiler: the test is
/// skipped, by name.
pub fn program(test: &str, name: &str) -> Option<PathBuf> {
    if !is_there() {
        super::skip(test, "mpicc.mpich is not installed (apt-get install mpich libmpich-dev)");
        return None;
    }
    Some(build("mpicc.mpich", &[], test, name))
}

/// The same for another library of MPICH's ABI, libmpi.so.12. (Debian's own is called libmpich.so.12.)
pub fn of_abi(test: &str, name: &str, library: &Path) -> Option<PathBuf> {
    if !is_there() {
        super::skip(test, "mpicc.mpich is not installed (apt-get install mpich libmpich-dev)");
        return None;
    }
    let library = library.to_str().expect("text");
    // What it has is not looked for in Debian's.
    let options = ["-Wl,--no-as-needed", library, "-Wl,--as-needed"];
    Some(build("mpicc.mpich", &options, test, name))
}

/// The same for Open MPI, by Debian's mpicc.openmpi.
pub fn open(test: &str, name: &str) -> Option<PathBuf> {
    if !open_is_there() {
        let install = "apt-get install openmpi-bin libopenmpi-dev libpmix2";
        super::skip(test, &format!("mpicc.openmpi is not installed ({install})"));
        return None;
    }
    Some(build("mpicc.openmpi", &[], test, name))
}

/// Whether MPI programs can be built here.
pub fn is_there() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| answers("mpicc.mpich", "-v"))
}

/// Whether programs of Open MPI can be.
pub fn open_is_there() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| answers("mpicc.openmpi", "--showme:version"))
}

/// The same for a program of C alone.
pub fn plain(test: &str, name: &str) -> Option<PathBuf> {
    built_plain(test, name, &[])
}

/// The same, with options of the compiler.
pub fn built_plain(test: &str, name: &str, options: &[&str]) -> Option<PathBuf> {
    static THERE: OnceLock<bool> = OnceLock::new();
    if !THERE.get_or_init(|| answers("cc", "--version")) {
        super::skip(test, "cc is not installed");
        return None;
    }
    Some(build("cc", options, test, name))
}

fn answers(compiler: &str, version: &str) -> bool {
    Command::new(compiler).arg(version).output().is_ok_and(|o| o.status.success())
}

/// Builds a program for a test.
pub fn build(compiler: &str, options: &[&str], test: &str, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{name}"));
    let output = Command::new(compiler)
        .args(["-O1", "-Wall", "-o"])
        .arg(&target)
        .args(options)
        .arg(&source)
        .output()
        .expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target
}
