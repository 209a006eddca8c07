//! MPI programs of the tests', built for a figure with the compilers that Debian names mpicc.mpich and mpicc.openmpi.

use anyhow::Context;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Open MPI's way to start programs, beside which aprun is measured: also as root, and with more PEs than processors.
pub const MPIRUN: [&str; 3] = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"];

/// Whether a compiler is installed, and so what starts its programs.
pub fn is_there(compiler: &str) -> bool {
    let mut command = Command::new(compiler);
    let status = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// The program of tests/programs/NAME.c, in this folder.
///
/// # Errors
/// It can't be built.
pub fn build(folder: &Path, compiler: &str, name: &str) -> anyhow::Result<PathBuf> {
    build_with(folder, compiler, name, &[])
}

/// As [`build`], with these options after the name of the source.
///
/// # Errors
/// As there.
#[allow(dead_code, reason = "not every bench needs it")]
pub fn build_with(
    folder: &Path,
    compiler: &str,
    name: &str,
    options: &[&OsStr],
) -> anyhow::Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let target = folder.join(format!("{name}.{compiler}"));
    let mut command = Command::new(compiler);
    let status = command.args(["-O2", "-o"]).arg(&target).arg(&source).args(options).status();
    let status = status.with_context(|| compiler.to_owned())?;
    anyhow::ensure!(status.success(), "{compiler} of {}: {status}", source.display());
    Ok(target)
}
