//! What gangs are for: two 2-rank MPI programs in constant exchange on the same two processors, against
//! one of them alone, and against both left to Linux; with MPICH and with Open MPI, by the launcher of each.
//!
//! `cargo bench --bench exchange`. A library without its compiler (Debian: libmpich-dev, libopenmpi-dev) is left out.
//! Messages a second of both together, in percent of what one alone has in
//! the same round; the arrangements are gone through in rounds, since the machine is not the same from
//! minute to minute, and medians of the rounds are shown. With and without a foreign busy process, bound
//! and with `-cc none`, with time slices of 10, 20, 50 and 100 ms. PSCHED_BENCH_ROUNDS changes how many rounds
//! there are (5), PSCHED_BENCH_SECONDS how long each run is (2).

// It needs no client of its own.
#[path = "support/programs.rs"]
mod programs;
#[allow(dead_code, unused_imports)]
mod support;

use anyhow::{Context, bail, ensure};
use programs::MPIRUN;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use support::{is_bench, machine, number, within_instance};

/// How the two are run.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// By psched, with this time slice.
    Turns(&'static str),
    /// By the library's own launcher, both at once.
    Linux,
}

/// A library, with how its programs are built and started without psched.
struct Library {
    name: &'static str,
    compiler: &'static str,
    launcher: &'static [&'static str],
    /// To bind, and not to.
    binding: [&'static [&'static str]; 2],
    /// Shared memory and nothing else: the exchange is all that is measured.
    transport: (&'static str, &'static str),
}

const LIBRARIES: [Library; 2] = [
    Library {
        name: "MPICH",
        compiler: "mpicc.mpich",
        launcher: &["mpiexec.hydra"],
        binding: [&["-bind-to", "core"], &[]],
        transport: ("UCX_TLS", "posix,self"),
    },
    Library {
        name: "Open MPI",
        compiler: "mpicc.openmpi",
        launcher: &MPIRUN,
        binding: [&["--bind-to", "core"], &["--bind-to", "none"]],
        transport: ("OMPI_MCA_btl", "vader,self"),
    },
];

const WAYS: [Way; 5] =
    [Way::Turns("10ms"), Way::Turns("20ms"), Way::Turns("50ms"), Way::Turns("100ms"), Way::Linux];

fn main() -> anyhow::Result<ExitCode> {
    if !is_bench("exchange") {
        return Ok(ExitCode::SUCCESS);
    }
    let options = ["--nodes", "1", "--processors", "2"];
    within_instance(&options, &[], measure)
}

fn measure() -> anyhow::Result<()> {
    let rounds = number("PSCHED_BENCH_ROUNDS", 5u32)?;
    let seconds = number("PSCHED_BENCH_SECONDS", 2u32)?;
    let folder = tempfile::tempdir()?;
    println!("{}", machine());
    for library in LIBRARIES {
        if programs::is_there(library.compiler) {
            let program = programs::build(folder.path(), library.compiler, "exchange")?;
            println!("\n{}", library.name);
            with(&library, &program, rounds, seconds)?;
        }
    }
    Ok(())
}

fn with(library: &Library, program: &Path, rounds: u32, seconds: u32) -> anyhow::Result<()> {
    println!(
        "messages a second of both together, in percent of one alone (medians of {rounds} rounds)\n"
    );
    println!(
        "{:32}{:>9}{:>9}{:>9}{:>9}{:>9}{:>14}",
        "", "10ms", "20ms", "50ms", "100ms", "Linux", "alone, 1/s"
    );
    for busy in [0, 1] {
        let _busy: Vec<Busy> = (0..busy).map(|_| Busy::start()).collect::<Result<_, _>>()?;
        for bound in [true, false] {
            let mut shares: Vec<Vec<f64>> = vec![Vec::new(); WAYS.len()];
            let mut alone = Vec::new();
            for _ in 0..rounds {
                let one = together(library, program, Way::Turns("100ms"), bound, 1, seconds)?;
                for (way, shares) in WAYS.into_iter().zip(&mut shares) {
                    let both = together(library, program, way, bound, 2, seconds)?;
                    shares.push(both / one * 100.0);
                }
                alone.push(one / f64::from(seconds));
            }
            let name = format!(
                "{}{}",
                if bound { "bound" } else { "-cc none" },
                if busy > 0 { ", a busy process" } else { "" }
            );
            let cells: Vec<String> =
                shares.into_iter().map(|shares| format!("{:9.1}", median(shares))).collect();
            println!("{name:32}{}{:14.0}", cells.concat(), median(alone));
        }
    }
    Ok(())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How many messages so many programs exchange in that time, all of them together.
fn together(
    library: &Library,
    program: &Path,
    way: Way,
    bound: bool,
    programs: u32,
    seconds: u32,
) -> anyhow::Result<f64> {
    if let Way::Turns(slice) = way {
        let set = format!("application.time_slice={slice}");
        let status = Command::new("psmgr").args(["set", &set]).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "psmgr set {set}");
    }
    let start = |_| {
        let mut command = match way {
            Way::Turns(_) => {
                let mut aprun = Command::new("aprun");
                aprun.args(["-q", "-n", "2"]);
                if !bound {
                    aprun.args(["-cc", "none"]);
                }
                aprun
            }
            Way::Linux => {
                let (launcher, options) = library.launcher.split_first().expect("a command");
                let mut command = Command::new(launcher);
                command.args(options).args(library.binding[usize::from(!bound)]);
                command.args(["-n", "2"]);
                command
            }
        };
        let (name, value) = library.transport;
        command.arg(program).arg(seconds.to_string()).env(name, value);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("an MPI program")
    };
    let started: Vec<Child> = (0..programs).map(start).collect::<anyhow::Result<_>>()?;
    let mut sum = 0.0;
    for child in started {
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match text.trim().parse::<f64>() {
            Ok(count) if output.status.success() => sum += count,
            _ => bail!("{}: {text}", output.status),
        }
    }
    Ok(sum)
}

/// A process of somebody else's that takes what it can get.
struct Busy(Child);

impl Busy {
    fn start() -> anyhow::Result<Busy> {
        Ok(Busy(Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
