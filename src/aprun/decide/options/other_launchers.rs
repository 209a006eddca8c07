//! Options of other launchers (srun, mpiexec, mpirun): those that mean the same as one of aprun's are taken,
//! the others are refused with what to give in their place.
//!
//! A command line that was written for another launcher runs as it is, or is changed in one step. What is taken
//! must not mean less here than there: `--map-by node` numbers ranks across nodes, which psched does not, so it
//! is refused. Sources: the manuals of Slurm's srun, of MPICH's mpiexec and of Open MPI's mpirun.

use super::table::{Flag, Id, flag};
use super::values::{self, PER_NODE_MAX, shown};
use crate::apteam::binding::Binding;
use crate::apteam::oversubscribe::Oversubscribe;

/// Those that are taken, in the order of `--help`. Each is aprun's own option under other names, or is put into the
/// words of one.
pub const TAKEN: &[Flag] = &[
    flag(Id::Pes, &["-np", "--np", "--n", "--ntasks"], Some("PES"), "the same as -n"),
    flag(
        Id::PerNode,
        &["-ppn", "--ppn", "-perhost", "-npernode", "--npernode"],
        Some("PES"),
        "the same as -N",
    ),
    flag(Id::PerNode, &["--ntasks-per-node", "--tasks-per-node"], Some("PES"), "the same as -N"),
    flag(
        Id::Depth,
        &["--cpus-per-task", "--cpus-per-rank", "--cpus-per-proc"],
        Some("DEPTH"),
        "the same as -d",
    ),
    flag(
        Id::Hosts,
        &["-host", "--host", "-hosts", "--hosts", "-H"],
        Some("HOSTS"),
        "as -L: only the nodes of these hosts; numbers of slots (h1:4) have no effect",
    ),
    flag(
        Id::HostFile,
        &["-hostfile", "--hostfile", "-machinefile", "--machinefile", "-f"],
        Some("FILE"),
        "the same from a file with a host on each line, as in h1, h1:4 or h1 slots=4",
    ),
    flag(
        Id::MapBy,
        &["-map-by", "--map-by"],
        Some("slot|core|hwthread|ppr:PES:node"),
        "slot, core, hwthread: as without it; ppr:PES:node: as -N; behind it :PE=DEPTH: as -d, \
         :OVERSUBSCRIBE: as --oversubscribe",
    ),
    flag(
        Id::BindTo,
        &["-bind-to", "--bind-to"],
        Some("none|core|hwthread|cpu|numa"),
        "none: as -cc none; core, hwthread, cpu: as -cc cpu; numa: as -cc numa_node",
    ),
    flag(Id::Oversubscribe, &["-oversubscribe"], None, "the same as --oversubscribe"),
    flag(
        Id::Export,
        &["-x"],
        Some("VAR[=VALUE]"),
        "with a value as -e; without one nothing, because all variables travel, but VAR has to be set",
    ),
    flag(Id::Environment, &["-env", "-genv", "--genv"], Some("VAR VALUE"), "as -e VAR=VALUE"),
    flag(
        Id::NoEffect,
        &["-genvlist", "--genvlist", "-envlist"],
        Some("VARS"),
        "nothing: all variables travel",
    ),
    flag(
        Id::NoEffect,
        &["-genvall", "--genvall", "-envall"],
        None,
        "nothing: all variables travel",
    ),
    flag(
        Id::Parameter,
        &["-mca", "--mca", "-gmca", "--gmca", "-omca", "--omca"],
        Some("NAME VALUE"),
        "as -e OMPI_MCA_NAME=VALUE",
    ),
    flag(
        Id::NoEffect,
        &["-allow-run-as-root", "--allow-run-as-root"],
        None,
        "nothing: root can run programs as well",
    ),
    flag(
        Id::NoOversubscribe,
        &["-nooversubscribe", "--nooversubscribe"],
        None,
        "PEs share no processors, as without --oversubscribe; if both are given, the last counts",
    ),
    flag(Id::Chdir, &["-wdir", "--wdir", "-wd", "--wd"], Some("DIR"), "the same as --chdir"),
    flag(Id::TimeLimit, &["-timeout", "--timeout"], Some("SECONDS"), "the same as --time-limit"),
    flag(
        Id::Label,
        &["-prepend-rank", "--prepend-rank", "-tag-output", "--tag-output"],
        None,
        "the same as --label",
    ),
];

/// Options that belong to one program of several there, and to all of them here.
pub(super) const OF_ONE_PROGRAM: [&str; 11] = [
    "-env", "-wdir", "--wdir", "-wd", "--wd", "-host", "--host", "-mca", "--mca", "-omca", "--omca",
];

/// Why one of these is not taken where there are several programs.
pub(super) fn of_one_program(name: &str) -> String {
    let cure = match name {
        "-env" => "give -genv, or start this program by env, as in env VAR=VALUE ./a.out",
        "-host" | "--host" => "give -hosts for all of them",
        "-mca" | "--mca" | "-omca" | "--omca" => {
            "give --gmca, or start this program by env, as in env OMPI_MCA_NAME=VALUE ./a.out"
        }
        _ => "give --chdir for all of them, or start this program by env -C DIR",
    };
    format!("{name} would apply to all programs: {cure}")
}

/// Whether a value of `--output` is what Open MPI 5 takes for a form of the output: here it would be a file.
pub(super) fn is_form_of_output(value: &[u8]) -> bool {
    let first = value.split(|byte| [b',', b'='].contains(byte)).next().unwrap_or_default();
    let forms: [&[u8]; 10] = [
        b"tag",
        b"tag-detailed",
        b"tag-fullname",
        b"rank",
        b"timestamp",
        b"xml",
        b"merge-stderr-to-stdout",
        b"directory",
        b"filename",
        b"raw",
    ];
    forms.contains(&first)
}

/// Whether another launcher takes from this option how many PEs there are, as aprun does not: so many on each node that
/// there is, or one for each slot. aprun's own -N and -L have always left that to -n.
pub(super) fn counts_pes(id: Id, name: &str, value: &[u8]) -> bool {
    match id {
        Id::PerNode | Id::Hosts | Id::HostFile => {
            TAKEN.iter().any(|flag| flag.names.contains(&name))
        }
        Id::MapBy => value.starts_with(b"ppr:"),
        _ => false,
    }
}

/// Why a parameter of Open MPI is not taken: it tells its launcher, which is not run, what aprun has an option for. (Others
/// that are for the launcher change nothing that its user sees.)
pub(super) fn of_launcher(parameter: &[u8]) -> Option<&'static str> {
    let begins = |with: &str| parameter.starts_with(with.as_bytes());
    if begins("rmaps_") {
        Some(
            "it tells mpirun where PEs go, which aprun does: give -N, --nodes, --map-by or --oversubscribe",
        )
    } else if begins("hwloc_base_binding_policy") {
        Some("it tells mpirun how to bind PEs, which aprun does: give -cc or --bind-to")
    } else if begins("orte_tag_output") {
        Some("it tells mpirun to label the output: give --label")
    } else {
        None
    }
}

/// Hosts as a list of -L: without numbers of slots, each once.
///
/// # Errors
/// An entry is empty, or something else than a number follows its colon.
pub(super) fn hosts(list: &str) -> Result<String, String> {
    let mut names: Vec<&str> = Vec::new();
    add_hosts(&mut names, list)?;
    Ok(names.join(","))
}

/// Adds the hosts of a list that are not there yet.
fn add_hosts<'a>(names: &mut Vec<&'a str>, list: &'a str) -> Result<(), String> {
    for word in entries(list) {
        let name = host(word)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(())
}

/// The entries of a list, which commas separate that stand in no brackets.
fn entries(list: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    list.split(move |c| {
        inside = c == '[' || (inside && c != ']');
        c == ',' && !inside
    })
}

/// The host of an entry such as `h1:4`.
fn host(word: &str) -> Result<&str, String> {
    let (name, slots) = word.split_once(':').unwrap_or((word, "1"));
    match !name.is_empty() && !slots.is_empty() && slots.bytes().all(|b| b.is_ascii_digit()) {
        true => Ok(name),
        false => Err(format!(
            "{} is not a host: give a name, as in h1 or h1:4 (apstat -n -v shows them)",
            shown(word.as_bytes())
        )),
    }
}

/// The hosts of a host file as a list of -L. A line has a host, `slots=4` and the like behind it, and a comment.
///
/// # Errors
/// A line has something else, or there is no host.
pub(super) fn hosts_of_file(text: &str) -> Result<String, String> {
    let mut names: Vec<&str> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(first) = words.next() else { continue };
        let named = |error: String| format!("line {}: {error}", at + 1);
        if let Some(word) = words.find(|word| !word.contains('=')) {
            let word = shown(word.as_bytes());
            return Err(named(format!(
                "{word} follows the host: give each host a line of its own, as in h1 slots=4"
            )));
        }
        add_hosts(&mut names, first).map_err(named)?;
    }
    match names.is_empty() {
        true => Err("it names no host: give it lines such as h1 or h1 slots=4".to_owned()),
        false => Ok(names.join(",")),
    }
}

/// Whether this is what srun's -m takes: an order of ranks.
pub(super) fn is_distribution(value: &[u8]) -> bool {
    let first = value.split(|byte| b":,=".contains(byte)).next().unwrap_or_default();
    [&b"block"[..], b"cyclic", b"plane", b"arbitrary"].contains(&first)
}

/// The binding that `--bind-to` asks for.
///
/// # Errors
/// There is no such binding here.
pub(super) fn bind_to(value: &[u8]) -> Result<Binding, String> {
    match value {
        b"none" => Ok(Binding::None),
        b"core" | b"hwthread" | b"cpu" => Ok(Binding::Cpu),
        b"numa" => Ok(Binding::NumaNode),
        _ => Err(format!(
            "{} is not supported: give none, core, hwthread, cpu or numa, -d for several processors for each \
             PE, or lists with -cc",
            shown(value)
        )),
    }
}

/// What `--map-by` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct MapBy {
    /// PEs on each node.
    pub per_node: Option<u32>,
    /// Processors for each PE.
    pub depth: Option<u32>,
    /// Whether PEs may share processors.
    pub sharing: Option<Oversubscribe>,
}

/// Reads the value of `--map-by`: what is counted, and behind a colon how (`slot`, `ppr:2:node:PE=3`, `:OVERSUBSCRIBE`).
///
/// # Errors
/// psched does not number ranks in this order.
pub(super) fn map_by(value: &[u8]) -> Result<MapBy, String> {
    let refused = || {
        format!(
            "{} is not supported: ranks fill one node after the other; give slot, core or ppr:PES:node, or \
             --nodes to spread the PEs over nodes",
            shown(value)
        )
    };
    let text = std::str::from_utf8(value).map_err(|_| refused())?;
    let count = |digits: &str, what: &str| {
        let count = values::count(digits.as_bytes(), what, u64::from(PER_NODE_MAX))?;
        Ok::<u32, String>(u32::try_from(count).unwrap_or(PER_NODE_MAX))
    };
    let mut map = MapBy::default();
    let mut words = text.split(':');
    match words.next() {
        Some("slot" | "core" | "hwthread") => {}
        Some("") if text.starts_with(':') => {}
        Some("ppr") => {
            let pes = words.next().filter(|pes| !pes.is_empty());
            let (Some(pes), Some("node")) = (pes, words.next()) else { return Err(refused()) };
            map.per_node = Some(count(pes, "PEs on each node")?);
        }
        _ => return Err(refused()),
    }
    for word in words.flat_map(|words| words.split(',')) {
        match word.to_ascii_uppercase().as_str() {
            "OVERSUBSCRIBE" => map.sharing = Some(Oversubscribe::Allowed),
            "NOOVERSUBSCRIBE" => map.sharing = Some(Oversubscribe::No),
            upper => {
                let digits = upper.strip_prefix("PE=").ok_or_else(refused)?;
                map.depth = Some(count(digits, "processors for each PE")?);
            }
        }
    }
    Ok(map)
}

/// Those that are refused, by what they are for: how the other launchers write them, and what to do instead.
const FOREIGN: &[(&[&str], &str)] = &[
    // How many PEs, and where.
    (&["-c"], "give the number of PEs with -n, the processors for each PE with -d"),
    (
        &["-rank-by", "--rank-by", "--distribution", "-bynode", "--bynode", "-byslot", "--byslot"],
        "ranks fill one node after the other; give the PEs on each node with -N, or spread them with --nodes",
    ),
    (
        &[
            "-order-nodes",
            "--order-nodes",
            "-w",
            "--nodelist",
            "--nodefile",
            "-rf",
            "-rankfile",
            "--rankfile",
        ],
        "psched chooses the nodes; give -L to name some by number or host, as in -L h1 (apstat -n -v shows both)",
    ),
    (
        &["--exclude", "-nolocal", "--nolocal"],
        "give -E to leave out nodes, by number or host, as in -E h1",
    ),
    (
        &[
            "--ntasks-per-core",
            "-pernode",
            "--pernode",
            "-npersocket",
            "--npersocket",
            "--ntasks-per-socket",
        ],
        "give the number of PEs with -n, and those on each node with -N",
    ),
    (
        &["--partition", "--qos", "--queue", "--constraint"],
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
        &[
            "--gres",
            "--gpus",
            "-G",
            "-gpus-per-proc",
            "--gpus-per-proc",
            "--gpus-per-task",
            "--gpus-per-node",
        ],
        "psched does not place GPUs: leave it out",
    ),
    // What each PE gets.
    (&["--mem", "--mem-per-cpu"], "give the memory for each PE with -m"),
    (
        &[
            "--cpu-bind",
            "--cpu_bind",
            "-binding",
            "--cpu-set",
            "--cpu-list",
            "-bind-to-core",
            "--bind-to-core",
            "-bycore",
            "--bycore",
        ],
        "each PE is bound to its own processors, unless PEs share some; give -cc for another binding",
    ),
    (&["-cpus-per-proc", "-cpus-per-rank"], "give the processors for each PE with -d"),
    (
        &["--mem-bind", "-membind", "--membind"],
        "the kernel chooses memory near the processor of a PE: leave it out",
    ),
    (
        &[
            "-print-rank-map",
            "--print-rank-map",
            "-report-bindings",
            "--report-bindings",
            "-display-map",
            "--display-map",
            "-display-allocation",
            "--display-allocation",
            "--display",
        ],
        "give --dry-run, which shows nodes and processors",
    ),
    (&["--export"], "all variables travel with the application; give -e VAR=VALUE for others"),
    (
        &["-genvnone", "--genvnone", "-envnone"],
        "all variables travel with the application: call aprun by env -i, with those that are to travel",
    ),
    // Times, names and accounts.
    (&["--reservation"], "reservations are not supported yet: leave it out"),
    (&["--propagate"], "give APRUN_XFER_LIMITS=1 in the environment for all soft limits"),
    (&["-umask", "--umask"], "PEs have aprun's: call umask before"),
    (&["-info", "--info"], "give --version"),
    (&["--time"], "give --time-limit, as in --time-limit 00:10:00"),
    (&["--dependency"], "start the second aprun after the first in a script"),
    (&["-A"], "give --account NAME"),
    (&["-J", "--job-name"], "applications are known by number and command: leave it out"),
    // Input and output.
    (
        &[
            "-o",
            "-outfile-pattern",
            "--outfile-pattern",
            "-output-filename",
            "--output-filename",
            "--output-directory",
        ],
        "give --output FILE, with %r for the rank",
    ),
    (&["-errfile-pattern", "--errfile-pattern"], "give --error FILE, with %r for the rank"),
    (
        &["-i", "--input", "-s", "-stdin", "--stdin"],
        "PE 0 reads aprun's standard input: use < FILE",
    ),
    (&["-u", "--unbuffered"], "aprun writes output as soon as it comes: leave it out"),
    (&["--pty"], "PEs have no terminal of their own: run psched start, or a shell, without it"),
    // Several programs.
    (
        &["--multi-prog", "-configfile", "--configfile", "--app", "-app"],
        "give --load-file FILE, a line for each program",
    ),
    (
        &["-get-stack-traces", "--get-stack-traces"],
        "give -g, or call apstat --stacks while the application runs",
    ),
    // MPI.
    (&["--mpi"], "give --pmi (pmi1, port, pmix, all or none)"),
    (&["-pmi-port", "--pmi-port"], "give --pmi=port"),
    (
        &["-pmca", "--prtemca", "--pmixmca"],
        "it sets a parameter of Open MPI's launcher, which is not run: leave it out",
    ),
    (
        &["-am", "--am", "-tune", "--tune"],
        "it names a file with parameters of Open MPI: give --mca NAME VALUE for each of them",
    ),
    (
        &["-prefix", "--prefix", "-path", "--path"],
        "programs are looked for in PATH, and all variables travel: set PATH and LD_LIBRARY_PATH",
    ),
    (
        &[
            "-report-pid",
            "--report-pid",
            "-personality",
            "--personality",
            "-leave-session-attached",
            "--leave-session-attached",
        ],
        "aprun has no counterpart; leave it out",
    ),
    (
        &["-iface", "--iface"],
        "name the network to the MPI library, as in -e UCX_NET_DEVICES=eth0 (MPICH, Open MPI over UCX)",
    ),
    (&["-I"], "give --immediate"),
    (&["-Q"], "give -q"),
    (&["--test-only", "-do-not-launch", "--do-not-launch"], "give --dry-run"),
    (
        &["-gdb"],
        "give -g for the stacks of PEs that die, or call apstat --stacks while the application runs",
    ),
    (
        &["--timestamp-output", "-timestamp-output"],
        "aprun writes no times: pipe the output through ts (moreutils)",
    ),
    (&["-W", "--wait"], "aprun ends all PEs when one has ended badly: leave it out"),
    (
        &[
            "--merge-stderr-to-stdout",
            "-merge-stderr-to-stdout",
            "--xml",
            "-xml",
            "--tv",
            "-tv",
            "--enable-recovery",
            "-enable-recovery",
            "--max-restarts",
            "--forward-signals",
            "--preload-binary",
            "--show-progress",
            "--hnp",
            "--dvm",
            "-ckpoint-interval",
            "-gtool",
            "--jobid",
            "--exact",
            "--het-group",
            "--signal",
            "--quit-on-interrupt",
            "--accel-bind",
            "--prolog",
            "--begin",
            "--contiguous",
            "--resv-ports",
            "--report-state-on-timeout",
            "-topolib",
            "--topolib",
            "-profile",
            "--profile",
            "-skip-launch-node",
            "--skip-launch-node",
        ],
        "aprun has no counterpart; leave it out",
    ),
    (&["-print-all-exitcodes", "--print-all-exitcodes"], "give --report for a table of all PEs"),
    (
        &["-prepend-pattern", "--prepend-pattern"],
        "give --label, which puts the rank before each line",
    ),
    (&["-localhost", "--localhost"], "psched knows the names of its hosts: leave it out"),
    (
        &["-usize", "--usize"],
        "PEs spawn others on their own processors: give each PE enough with -d",
    ),
    (&["-nameserver", "--nameserver"], "MPI_Publish_name needs no server: leave it out"),
    (
        &[
            "-rmk",
            "--rmk",
            "-launcher",
            "--launcher",
            "-launcher-exec",
            "--launcher-exec",
            "-bootstrap",
            "--bootstrap",
            "-bootstrap-exec",
            "--bootstrap-exec",
            "--bcast",
        ],
        "psched's apinits start the PEs: leave it out",
    ),
    (
        &["-K", "--kill-on-bad-exit", "-k", "--no-kill", "-disable-auto-cleanup"],
        "aprun has no counterpart; leave it out",
    ),
];

/// What to give aprun in place of this option; `None`: it is no option of another launcher that is known.
///
/// ```
/// # use psched_pure::aprun::decide::options::other_launchers::advice;
/// assert_eq!(advice("-c"), Some("give the number of PEs with -n, the processors for each PE with -d"));
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
        let own = FLAGS.iter().chain(TAKEN).flat_map(|flag| flag.names).copied();
        for name in own.chain(NOT_YET.iter().map(|(name, _)| *name)) {
            assert!(!all.contains(&name), "{name} is aprun's own");
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn hosts_have_no_slots_and_stand_once() {
        for (list, nodes) in [
            ("h1", "h1"),
            ("h1:4,h2,h1:4", "h1,h2"),
            ("n[004-007,9]:2,h1", "n[004-007,9],h1"),
            ("3,h1", "3,h1"),
        ] {
            assert_eq!(hosts(list), Ok(nodes.to_owned()), "{list}");
        }
        for wrong in ["", "h1,", "h1:", "h1:x", ":4", "h1:4:4"] {
            assert!(hosts(wrong).expect_err(wrong).contains("is not a host"), "{wrong}");
        }
    }

    #[test]
    fn a_host_file_has_a_host_a_line() {
        let text = "# all of them\n\nh1 slots=4 max_slots=8  # the first\nh2:4\n  h3\nh1\n";
        assert_eq!(hosts_of_file(text), Ok("h1,h2,h3".to_owned()));
        assert_eq!(
            hosts_of_file("h1\nh2 h3\n"),
            Err("line 2: \"h3\" follows the host: give each host a line of its own, as in h1 slots=4".into())
        );
        assert_eq!(
            hosts_of_file(" # h1\n"),
            Err("it names no host: give it lines such as h1 or h1 slots=4".into())
        );
    }

    #[test]
    fn maps_that_mean_the_same_here() {
        let (of, yes, no) = (MapBy::default(), Oversubscribe::Allowed, Oversubscribe::No);
        for (text, seen) in [
            ("slot", of),
            ("core", of),
            ("hwthread", of),
            ("slot:PE=4", MapBy { depth: Some(4), ..of }),
            ("ppr:8:node", MapBy { per_node: Some(8), ..of }),
            ("ppr:2:node:pe=3", MapBy { per_node: Some(2), depth: Some(3), ..of }),
            (":OVERSUBSCRIBE", MapBy { sharing: Some(yes), ..of }),
            ("slot:nooversubscribe", MapBy { sharing: Some(no), ..of }),
            ("core:PE=2,NOOVERSUBSCRIBE", MapBy { depth: Some(2), sharing: Some(no), ..of }),
        ] {
            assert_eq!(map_by(text.as_bytes()), Ok(seen), "{text}");
        }
        for wrong in [
            "node",
            "socket",
            "ppr:2:socket",
            "ppr:2",
            "ppr::node:x",
            "",
            ":",
            "slot:",
            "slot:SPAN",
            "slot:PE",
            "\u{e4}",
        ] {
            let said = map_by(wrong.as_bytes()).expect_err(wrong);
            assert!(said.contains("ranks fill one node after the other"), "{said}");
        }
        let zero = map_by(b"ppr:0:node").expect_err("too few");
        assert!(zero.starts_with("\"0\" is too small"), "{zero}");
        assert_eq!(bind_to(b"hwthread"), Ok(Binding::Cpu));
        assert!(
            bind_to(b"socket").is_err_and(|text| text.starts_with("\"socket\" is not supported"))
        );
    }
}
