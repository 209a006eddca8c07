//! Options of other launchers (srun, mpiexec, mpirun), and what to give aprun in their place.
//!
//! An option that aprun lacks is refused with its counterpart, so that a command line that was written for
//! another launcher is changed in one step. Sources: the manuals of Slurm's srun, of MPICH's mpiexec and of
//! Open MPI's mpirun.

/// All of them, by what they are for: how the other launchers write them, and what to do instead.
const FOREIGN: &[(&[&str], &str)] = &[
    // How many PEs, and where.
    (&["--ntasks", "--np"], "give the number of PEs with -n"),
    (
        &["-c", "--cpus-per-task", "--cpus-per-proc", "--cpus-per-rank"],
        "give the processors for each PE with -d",
    ),
    (
        &[
            "--ntasks-per-node",
            "--tasks-per-node",
            "-ppn",
            "--ppn",
            "-perhost",
            "-npernode",
            "--npernode",
        ],
        "give the PEs on each node with -N",
    ),
    (
        &["-map-by", "--map-by", "-rank-by", "--rank-by", "--distribution"],
        "ranks fill one node after the other; give the PEs on each node with -N, or spread them with --nodes",
    ),
    (
        &[
            "-w",
            "--nodelist",
            "--nodefile",
            "-f",
            "-hosts",
            "--hosts",
            "-host",
            "--host",
            "-H",
            "-hostfile",
            "--hostfile",
            "-machinefile",
            "--machinefile",
        ],
        "psched chooses the nodes; give -L to name some by number or host, as in -L h1 (apstat -n -v shows both)",
    ),
    (
        &["-x", "--exclude"],
        "give -E to leave out nodes, by number or host, as in -E h1; -e VAR=VALUE to set a variable",
    ),
    (
        &["--partition", "--qos", "--queue"],
        "psched has regions, and their gates choose: leave it out",
    ),
    (&["--exclusive"], "give -F exclusive"),
    (
        &["--overlap", "--overcommit", "-O"],
        "applications take turns by themselves; give --oversubscribe for more PEs than processors",
    ),
    (
        &["--use-hwthread-cpus", "--threads-per-core", "--hint"],
        "psched.yaml says which SMT threads are processors: leave it out",
    ),
    (
        &["--gres", "--gpus", "-G", "--gpus-per-task", "--gpus-per-node"],
        "psched does not place GPUs: leave it out",
    ),
    // What each PE gets.
    (&["--mem", "--mem-per-cpu"], "give the memory for each PE with -m"),
    (
        &["--cpu-bind", "--cpu_bind", "-bind-to", "--bind-to", "-binding", "--mem-bind"],
        "each PE is bound to its own processors; give -cc for another binding",
    ),
    (&["-report-bindings", "--report-bindings"], "give --dry-run, which shows processors"),
    (
        &["-env", "-genv", "--genv", "--export"],
        "all variables travel with the application; give -e VAR=VALUE for others",
    ),
    (
        &["-genvall", "--genvall", "-envall", "-genvlist", "--genvlist", "-envlist"],
        "all variables travel with the application: leave it out",
    ),
    (&["-wdir", "--wdir", "-wd"], "give --chdir DIR"),
    // Times, names and accounts.
    (&["--time", "--timeout", "-timeout"], "give --time-limit, as in --time-limit 00:10:00"),
    (&["-A"], "give --account NAME"),
    (&["-J", "--job-name"], "applications are known by number and command: leave it out"),
    // Input and output.
    (&["-o", "-outfile-pattern", "--outfile-pattern"], "give --output FILE, with %r for the rank"),
    (&["-errfile-pattern", "--errfile-pattern"], "give --error FILE, with %r for the rank"),
    (&["-i", "--input", "-s", "--stdin"], "PE 0 reads aprun's standard input: use < FILE"),
    (
        &["-prepend-rank", "--prepend-rank", "-tag-output", "--tag-output"],
        "give --label, which puts the rank in front of each line",
    ),
    (&["-u", "--unbuffered"], "aprun writes output as soon as it comes: leave it out"),
    (&["--pty"], "PEs have no terminal of their own: run psched start, or a shell, without it"),
    (&["-verbose", "--verbose"], "give --report for a table of all PEs at the end"),
    // Several programs.
    (
        &["--multi-prog", "-configfile", "--configfile", "--app", "-app"],
        "give --load-file FILE, a line for each program",
    ),
    // MPI.
    (&["--mpi"], "give --pmi (pmi1, pmix, all or none)"),
    (
        &["-mca", "--mca", "--gmca", "--prtemca", "--pmixmca"],
        "it sets a parameter of Open MPI: set OMPI_MCA_NAME=VALUE in the environment",
    ),
    (
        &["-rmk", "--rmk", "-launcher", "--launcher", "-bootstrap", "--bootstrap"],
        "psched's apinits start the PEs: leave it out",
    ),
    (
        &[
            "--allow-run-as-root",
            "-K",
            "--kill-on-bad-exit",
            "-k",
            "--no-kill",
            "-disable-auto-cleanup",
        ],
        "aprun has no counterpart; leave it out",
    ),
];

/// What to give aprun in place of this option; `None`: it is no option of another launcher that is known.
///
/// ```
/// # use psched_pure::aprun::decide::options::other_launchers::advice;
/// assert_eq!(advice("-c"), Some("give the processors for each PE with -d"));
/// assert_eq!(advice("--no-such"), None);
/// ```
pub fn advice(name: &str) -> Option<&'static str> {
    FOREIGN.iter().find(|(names, _)| names.contains(&name)).map(|(_, advice)| *advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aprun::decide::options::table::{FLAGS, NOT_YET};

    /// An option of aprun's own is never taken for another launcher's, and each name stands once.
    #[test]
    fn no_name_is_aprun_s_own_or_stands_twice() {
        let mut all: Vec<&str> = FOREIGN.iter().flat_map(|(names, _)| *names).copied().collect();
        let own = FLAGS.iter().flat_map(|flag| flag.names_in(true));
        for name in own.chain(NOT_YET.iter().map(|(name, _)| *name)) {
            assert!(!all.contains(&name), "{name} is aprun's own");
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
