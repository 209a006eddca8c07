//! The matrix of MPI libraries: every library runs the same programs, on one host and on two.
//!
//! Users bring MPI libraries of their own, whose PMI-1 and PMIx are of other releases than those of
//! Debian's libraries. The programs are built once for each ABI, by Debian's compilers, and run with each
//! library that `tests/it/mpis/fetch` has fetched into `target/mpis`. Each test is about one library, so
//! that a failure names the library. They run behind a shell and behind Python, too, where aprun can't see which library
//! they will load.

use crate::support::hosts::{Cluster, may_be};
use crate::support::mpi;
use crate::support::*;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An ABI of MPI libraries, by the name that programs look for.
#[derive(Clone, Copy)]
enum Abi {
    /// libmpich.so.12, as Debian calls it.
    DebianMpich,
    /// libmpi.so.12.
    Mpich,
    /// libmpi.so.40.
    OpenMpi,
}

/// The programs of the matrix, built for one ABI.
struct Programs {
    version: PathBuf,
    ring: PathBuf,
    abort: PathBuf,
    leave: PathBuf,
    /// (Only for MPICH: Debian's Open MPI has no sessions.)
    session: PathBuf,
}

impl Programs {
    /// Builds the programs; `None` without a compiler, and the test is skipped.
    fn built(sessions: bool, build: impl Fn(&str) -> Option<PathBuf>) -> Option<Programs> {
        Some(Programs {
            session: if sessions { build("session")? } else { PathBuf::new() },
            version: build("version")?,
            ring: build("ring")?,
            abort: build("abort")?,
            leave: build("leave")?,
        })
    }
}

/// A library, and how the programs find it.
struct Library {
    abi: Abi,
    /// Its version and its folder; `None`: it is Debian's, which programs find by themselves.
    fetched: Option<(&'static str, PathBuf)>,
    /// Variables that hold the folder, or a folder in it.
    variables: Vec<(&'static str, &'static str)>,
}

impl Library {
    /// A library of Debian's.
    fn debian(abi: Abi) -> Library {
        Library { abi, fetched: None, variables: Vec::new() }
    }

    /// A library that has been fetched; `None` without it, and the test is skipped.
    fn fetched(test: &str, abi: Abi, name: &'static str) -> Option<Library> {
        let folder = fetched(test, name)?;
        let (_, version) = name.rsplit_once('-').expect("its name ends with its version");
        let variables = vec![("LD_LIBRARY_PATH", "lib")];
        Some(Library { abi, fetched: Some((version, folder)), variables })
    }

    /// With a variable that holds a folder of the library.
    fn variable(mut self, name: &'static str, folder: &'static str) -> Library {
        self.variables.push((name, folder));
        self
    }

    /// The programs of its ABI.
    fn programs(&self, test: &str) -> Option<Programs> {
        match self.abi {
            Abi::DebianMpich => Programs::built(true, |name| mpi::program(test, name)),
            Abi::OpenMpi => Programs::built(false, |name| mpi::open(test, name)),
            Abi::Mpich => {
                let (_, folder) = self.fetched.as_ref().expect("Debian has none of this name");
                let library = folder.join("lib/libmpi.so.12");
                Programs::built(true, |name| mpi::of_abi(test, name, &library))
            }
        }
    }

    /// aprun with the library in its environment, of a program with an argument.
    fn aprun(&self, mut aprun: Command, program: &Path, argument: &str) -> Command {
        if let Some((_, own)) = &self.fetched {
            aprun.envs(self.variables.iter().map(|(name, folder)| (name, own.join(folder))));
        }
        aprun.arg(program).args(words(argument));
        aprun
    }

    /// PEs that find this library, and not another one of its ABI.
    #[track_caller]
    fn is_found(&self, programs: &Programs, aprun: Command) {
        let Some((version, _)) = &self.fetched else { return };
        let run = run(&mut self.aprun(aprun, &programs.version, "")).expect(0);
        let has = |line: &str| line.contains(version);
        assert!(run.out().lines().all(has) && !run.out().is_empty(), "{}", run.out());
    }

    /// The same programs where aprun can't see which library they will load: behind a shell, and in Python (mpi4py).
    #[track_caller]
    fn meets_behind_interpreters(&self, test: &str, programs: &Programs, one: &Instance) {
        self.meets(programs, SHARED, one.command("aprun", words("-n 2 sh -c")));
        let Some((version, _)) = &self.fetched else { return };
        let Some(mpi4py) = mpi4py(test) else { return };
        let abi = if let Abi::OpenMpi = self.abi { "openmpi" } else { "mpich" };
        let python = |line: &str, program: &Path| {
            let mut aprun = one.command("aprun", words(&format!("-q -n 2 python3 {line}")));
            aprun.env("PYTHONPATH", &mpi4py).env("MPI4PY_MPIABI", abi);
            run(&mut self.aprun(aprun, program, "")).expect(0)
        };
        let pool = one.directory().join("pool.py");
        std::fs::write(&pool, POOL).expect("written");
        assert_eq!(python("-m mpi4py.futures", &pool).out(), "55\n");
        let run = python("-c", Path::new(SUM));
        let lines = run.sorted();
        let right = |rank: usize, line: &String| {
            line.starts_with(&format!("rank {rank} of 2 sum 1 ")) && line.contains(version)
        };
        let all =
            lines.len() == 2 && lines.iter().enumerate().all(|(rank, line)| right(rank, line));
        assert!(all, "{lines:?}: {}", run.stderr);
    }

    /// PEs of MPICH that meet in sessions: no call of MPI_Init, and communicators of groups of PEs.
    #[track_caller]
    fn meets_in_sessions(&self, programs: &Programs, n: u32, aprun: Command) {
        if let Abi::OpenMpi = self.abi {
            return;
        }
        let run = run(&mut self.aprun(aprun, &programs.session, "")).expect(0);
        let (all, some) = (n * (n - 1) / 2, (n - 1) * (n - 2) / 2);
        let line = |rank: u32| {
            let some = if rank > 0 { some.to_string() } else { "-1".to_owned() };
            format!("rank {rank} of {n}: {all} {some}")
        };
        assert_eq!(run.sorted(), (0..n).map(line).collect::<Vec<_>>(), "{}", run.stderr);
    }

    /// PEs that meet: they pass a token around, add their ranks, and share the memory of their host.
    #[track_caller]
    fn meets(&self, programs: &Programs, n: u32, aprun: Command) {
        let run = run(&mut self.aprun(aprun, &programs.ring, "")).expect(0);
        assert_eq!(run.sorted(), ranks(n), "{}", run.stderr);
    }

    /// PEs that end badly: the status of aprun and what it says.
    #[track_caller]
    fn ends_badly(&self, programs: &Programs, hosts: usize, aprun: impl Fn() -> Command) {
        let aborts = run(&mut self.aprun(aprun(), &programs.abort, "3")).expect(3);
        aborts.says("called MPI_Abort(3)");
        let leaves = run(&mut self.aprun(aprun(), &programs.leave, "0"));
        // The library of a PE on another host may see that the connection has ended, and call MPI_Abort, before psched
        // has heard from the host of the PE that has left.
        let aborts = [0, 1].map(|rank| format!(": PE {rank} called MPI_Abort("));
        if hosts > 1 && aborts.iter().any(|words| leaves.stderr.contains(words)) {
            assert!(leaves.status > 0, "{}: {}", leaves.status, leaves.stderr);
        } else {
            leaves.expect(1).says("without calling MPI_Finalize");
        }
    }
}

/// A program in Python: the sum of the ranks, and which library it has. (A line in one piece, whatever buffers Python has.)
const SUM: &str = "import sys; from mpi4py import MPI; w = MPI.COMM_WORLD; \
                   sum, library = w.allreduce(w.rank), MPI.Get_library_version().split(chr(10))[0]; \
                   sys.stdout.write(f'rank {w.rank} of {w.size} sum {sum} {library}\\n')";

/// The folder of what `tests/it/mpis/fetch` has fetched under this name; `None` without it, which is said for this test.
pub fn fetched(test: &str, name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/mpis").join(name);
    if !folder.is_dir() {
        skip(test, &format!("there is no {name} (tests/it/mpis/fetch fetches it)"));
        return None;
    }
    Some(folder)
}

/// Where mpi4py is; `None` without it, or without the Python that it was built for, and that part is skipped.
pub fn mpi4py(test: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/mpis/mpi4py-4.1.2");
    if !folder.is_dir() {
        skip(test, "there is no mpi4py (tests/it/mpis/fetch fetches it)");
        return None;
    }
    let version = Command::new("python3").arg("--version").output();
    if !version.is_ok_and(|version| version.stdout.starts_with(b"Python 3.11.")) {
        skip(test, "python3 is not Python 3.11");
        return None;
    }
    Some(folder)
}

/// What aprun(1) advises for programs that are to do without MPI_Comm_spawn: PE 0 has the others for workers.
const POOL: &str = r#"
from mpi4py.futures import MPIPoolExecutor
if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        print(sum(pool.map(abs, range(-10, 1))))
"#;

/// The ranks of a host in each of the runs.
const SHARED: u32 = 2;

/// What `n` ranks of the ring print, sorted.
fn ranks(n: u32) -> Vec<String> {
    let sum = n * (n + 1) / 2;
    (0..n).map(|rank| format!("rank {rank} of {n} appnum 0 sum {sum} shared {SHARED}")).collect()
}

/// Runs all programs with a library, on one host and on two.
#[track_caller]
fn matrix(test: &str, library: Library) {
    let Some(programs) = library.programs(test) else { return };
    let one = instance(1, SHARED);
    let aprun = || one.command("aprun", words("-n 2"));
    library.is_found(&programs, aprun());
    library.meets(&programs, SHARED, aprun());
    library.ends_badly(&programs, 1, aprun);
    library.meets_behind_interpreters(test, &programs, &one);
    library.meets_in_sessions(&programs, SHARED, one.command("aprun", words("-q -n 2")));
    if let Abi::Mpich = library.abi {
        // What wrappers that close descriptors need.
        library.meets(&programs, SHARED, one.command("aprun", words("-n 2 --pmi=port")));
    }
    one.wait_until_free();
    drop(one);
    if !may_be(test) {
        return;
    }
    let two = Cluster::start(2, 1);
    let aprun = || two.command(0, "aprun", words("-n 4"));
    library.is_found(&programs, aprun());
    match library.abi {
        Abi::DebianMpich => {
            let mut aprun = library.aprun(aprun(), &programs.ring, "");
            mpi::meets_by_tcp(&mut aprun, &ranks(2 * SHARED));
        }
        Abi::Mpich | Abi::OpenMpi => {
            library.meets(&programs, 2 * SHARED, aprun());
            library.meets_in_sessions(&programs, 2 * SHARED, aprun());
        }
    }
    if let Abi::Mpich = library.abi {
        library.meets(&programs, 2 * SHARED, two.command(0, "aprun", words("-n 4 --pmi=port")));
    }
    library.ends_badly(&programs, 2, aprun);
    two.wait_until_up();
}

#[test]
fn debians_open_mpi() {
    matrix("mpis::debians_open_mpi", Library::debian(Abi::OpenMpi));
}

#[test]
fn open_mpi_4_1() {
    let test = "mpis::open_mpi_4_1";
    let Some(library) = Library::fetched(test, Abi::OpenMpi, "openmpi-4.1.8") else { return };
    matrix(test, library.variable("OPAL_PREFIX", ""));
}

#[test]
fn open_mpi_5_0() {
    let test = "mpis::open_mpi_5_0";
    let Some(library) = Library::fetched(test, Abi::OpenMpi, "openmpi-5.0.11") else { return };
    matrix(test, library.variable("OPAL_PREFIX", ""));
}

/// Younger releases of Linux have release 5 of libpmix for the server: here the one of a wheel, in the place of Debian's.
#[test]
fn a_server_of_pmix_5() {
    let test = "mpis::a_server_of_pmix_5";
    let debians = Path::new("/usr/lib/x86_64-linux-gnu/libpmix.so.2");
    let Some(library) = Library::fetched(test, Abi::OpenMpi, "openmpi-5.0.11") else { return };
    let Some(programs) = library.programs(test) else { return };
    let Ok(debians) = debians.canonicalize() else {
        return skip(test, "Debian's libpmix is elsewhere here");
    };
    if !may_be(test) {
        return;
    }
    let two = Cluster::start(2, 1);
    // A folder with it and with what it needs, over Debian's.
    let (_, wheel) = library.fetched.as_ref().expect("it is a wheel's");
    let folder = two.folder().join("pmix");
    std::fs::create_dir(&folder).expect("made");
    for file in std::fs::read_dir(wheel.join("lib/openmpi")).expect("there").flatten() {
        if file.path().is_file() {
            std::fs::copy(file.path(), folder.join(file.file_name())).expect("copied");
        }
    }
    let name = debians.file_name().expect("a file");
    std::fs::rename(folder.join("libpmix.so.2"), folder.join(name)).expect("renamed");
    // First the hosts have different releases.
    for (host, firsts) in [(1, ["4.", "4.", "5.", "5."]), (0, ["5."; 4])] {
        let mut mount = two.on(host, "mount".as_ref());
        run(mount.arg("--bind").arg(&folder).arg(debians.parent().expect("in a folder"))).expect(0);
        let version = words("-q -n 4 --pmi=pmix printenv PMIX_VERSION");
        let version = run(&mut two.command(0, "aprun", version)).expect(0).sorted();
        assert_eq!(version.len(), firsts.len());
        assert!(
            version.iter().zip(firsts).all(|(one, first)| one.starts_with(first)),
            "{version:?}"
        );
        // Its own programs, and those of Debian's release 4, whose PEs have the library of their host's server.
        for library in [&library, &Library::debian(Abi::OpenMpi)] {
            for (n, hosts) in [(2, 1), (4, 2)] {
                let aprun = || two.command(0, "aprun", words(&format!("-n {n}")));
                library.is_found(&programs, aprun());
                library.meets(&programs, n, aprun());
                library.ends_badly(&programs, hosts, aprun);
            }
        }
    }
    two.wait_until_up();
}

/// (On two hosts this release does not end on every run, under its own mpiexec neither: see [`crate::hosts`].)
#[test]
fn debians_mpich() {
    matrix("mpis::debians_mpich", Library::debian(Abi::DebianMpich));
}

#[test]
fn mpich_4_3() {
    let test = "mpis::mpich_4_3";
    let Some(library) = Library::fetched(test, Abi::Mpich, "mpich-4.3.2") else { return };
    matrix(test, library);
}

#[test]
fn mpich_5_0() {
    let test = "mpis::mpich_5_0";
    let Some(library) = Library::fetched(test, Abi::Mpich, "mpich-5.0.2") else { return };
    matrix(test, library);
}

#[test]
fn intel_mpi() {
    let test = "mpis::intel_mpi";
    let Some(library) = Library::fetched(test, Abi::Mpich, "impi-rt-2021.18.1") else { return };
    matrix(test, library.variable("I_MPI_ROOT", "").variable("FI_PROVIDER_PATH", "lib"));
}
