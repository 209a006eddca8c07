//! Programs of the tests' own: tests/programs/*.c, built with the C compiler or with Debian's
//! mpicc.mpich.

use super::{BOUND, Running, eventually};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long PEs that have met by TCP may take to end.
const ENDS: Duration = Duration::from_secs(10);

/// A ring (programs/ring.c) of Debian's MPICH over TCP, as aprun is to start it, prints these lines. About one run in fifty
/// does not come out of MPI_Finalize by a fault of the library, also under mpiexec.hydra: that one is ended.
#[track_caller]
pub fn meets_by_tcp(aprun: &mut Command, right: &[String]) {
    let mut running = Running::start(aprun);
    eventually(BOUND, "every rank is right", || running.lines_so_far() == right || !running.runs());
    let until = Instant::now() + ENDS;
    while running.runs() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let hangs = running.runs();
    if hangs {
        running.signal(9);
    }
    let run = running.wait(BOUND);
    assert_eq!(run.sorted(), right, "{}", run.stderr);
    if !hangs {
        run.expect(0);
    }
}

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
