//! The one table of aprun's options: parsing, `--help` and the check of the manual are drawn from
//! it.

use super::other_launchers::TAKEN;

/// Which option it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id {
    /// Width.
    Pes,
    /// Depth.
    Depth,
    /// PEs on each node.
    PerNode,
    /// Memory for each PE.
    Memory,
    /// Binding to processors.
    Binding,
    /// SMT siblings of each core.
    Siblings,
    /// CPU time of each PE.
    CpuTime,
    /// Time run.
    TimeLimit,
    /// The executable is not copied.
    NoTransfer,
    /// A variable for the PEs.
    Environment,
    /// Which variables of other launchers the PEs get.
    LauncherVariables,
    /// No closing lines.
    Quiet,
    /// Closing lines, whatever stands before it.
    Verbose,
    /// Whole lines.
    WholeLines,
    /// The rank in front of each line.
    Label,
    /// The form of the closing lines.
    Closing,
    /// How each PE ended.
    Report,
    /// Refuse instead of waiting.
    Immediate,
    /// How long a psched that is away is waited for.
    WaitForPsched,
    /// Whether others may be on its nodes.
    Access,
    /// The working directory of the PEs.
    Chdir,
    /// The account under which it runs.
    Account,
    /// How its program saves itself.
    Checkpoint,
    /// From which checkpoint it goes on after the loss of a host.
    RestartFrom,
    /// On so many nodes.
    Nodes,
    /// Only these nodes.
    NodeList,
    /// The same from a file.
    NodeListFile,
    /// None of these nodes.
    ExcludeList,
    /// On nodes that need not be contiguous.
    Flexible,
    /// PEs may share processors.
    Oversubscribe,
    /// In the application in which it runs.
    Inside,
    /// Show, start nothing.
    DryRun,
    /// File for stdout.
    Output,
    /// File for stderr.
    Error,
    /// How MPI programs are wired up.
    Pmi,
    /// Each PE under strace.
    Strace,
    /// Stacks of PEs that die by a signal.
    Stacks,
    /// Where its programs are listed.
    LoadFile,
    /// Hosts as other launchers list them.
    Hosts,
    /// The same from a file.
    HostFile,
    /// A variable for the PEs, or one that is there for them already.
    Export,
    /// PEs share no processors.
    NoOversubscribe,
    /// What is so without it, such as that variables travel.
    NoEffect,
    /// A parameter of Open MPI, which is a variable for the PEs.
    Parameter,
    /// Binding in the words of other launchers.
    BindTo,
    /// The order of ranks in the words of other launchers.
    MapBy,
    /// Help.
    Help,
    /// Version.
    Version,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Which.
    pub id: Id,
    /// How it is written, the usual way first. A name with one dash may be more than a letter.
    pub names: &'static [&'static str],
    /// What its argument is called; `None`: it has none. With a blank in it, two words are its value.
    pub argument: Option<&'static str>,
    /// A line of help.
    pub help: &'static str,
}

pub(super) const fn flag(
    id: Id,
    names: &'static [&'static str],
    argument: Option<&'static str>,
    help: &'static str,
) -> Flag {
    Flag { id, names, argument, help }
}

/// aprun's own options, in the order of `--help`. Those of [`TAKEN`] follow.
pub const FLAGS: &[Flag] = &[
    flag(Id::Pes, &["-n", "--pes"], Some("PES"), "width: number of PEs (processes); default 1"),
    flag(Id::Depth, &["-d", "--depth"], Some("DEPTH"), "depth: processors for each PE; default 1"),
    flag(
        Id::PerNode,
        &["-N", "--pes-per-node"],
        Some("PES"),
        "PEs on each node; default: psched chooses by the free space",
    ),
    flag(
        Id::Memory,
        &["-m", "--memory-per-pe"],
        Some("SIZE[K|M|G]"),
        "memory for each PE, in megabytes if no letter is given",
    ),
    flag(
        Id::Binding,
        &["-cc", "--cpu-binding"],
        Some("cpu|depth|numa_node|none|LISTS"),
        "bind each PE to its own processors (cpu and depth; the default, unless PEs share some), to the \
         application's in its NUMA node, not at all, or as lists say, by PE on each node: 0,1:2-3:x (x: not bound)",
    ),
    flag(
        Id::Siblings,
        &["-j", "--cpus-per-cu"],
        Some("1"),
        "SMT siblings of each core that a PE gets: always 1",
    ),
    flag(
        Id::CpuTime,
        &["-t", "--cpu-time-limit"],
        Some("SECONDS"),
        "CPU time that each PE may use",
    ),
    flag(
        Id::TimeLimit,
        &["--time-limit"],
        Some("DURATION"),
        "time that the application may run: TERM, then KILL; as in 90, 1h30m, 10min, 00:10:00",
    ),
    flag(
        Id::NoTransfer,
        &["-b", "--bypass-app-transfer"],
        None,
        "each host executes the file at the path: none gets a copy of the executable",
    ),
    flag(
        Id::Environment,
        &["-e", "--environment-override"],
        Some("VAR=VALUE"),
        "set a variable for the PEs; may be given again",
    ),
    flag(
        Id::LauncherVariables,
        &["--env"],
        Some("launcher|none"),
        "launcher (the default): the PEs get variables of other launchers, such as RANK and MASTER_ADDR; \
         none: they do not",
    ),
    flag(Id::Quiet, &["-q", "--quiet"], None, "no closing lines, and no line about a wait"),
    flag(
        Id::Verbose,
        &["-v", "--verbose", "-verbose"],
        None,
        "a closing line about time and memory also if all ended well; with no other word on the line: as \
         --version",
    ),
    flag(
        Id::WholeLines,
        &["-T", "--sync-output"],
        None,
        "keep lines whole, and stdout and stderr in order",
    ),
    flag(Id::Label, &["--label"], None, "put the rank in front of each line, as in 3: text"),
    flag(
        Id::Closing,
        &["--closing"],
        Some("plain|alps"),
        "print the last closing line, with units (plain, the default), or as ALPS prints it",
    ),
    flag(
        Id::Report,
        &["--report"],
        None,
        "at the end a table on stderr: name, rank, NID, PID, time, exit code or signal of each PE",
    ),
    flag(
        Id::Strace,
        &["--strace"],
        Some("OPTIONS"),
        "run each PE under strace with these options, as in '-f -e trace=file'; a file for each PE",
    ),
    flag(
        Id::Stacks,
        &["-g", "--stacks"],
        None,
        "a PE that dies by a signal leaves a file with the stack of each thread; needs gdb",
    ),
    flag(
        Id::Access,
        &["-F", "--access-mode"],
        Some("exclusive|share"),
        "exclusive: no other application on its nodes at any time; share: the default",
    ),
    flag(Id::Immediate, &["--immediate"], None, "do not wait: exit if there is no room now"),
    flag(
        Id::WaitForPsched,
        &["--wait-for-psched"],
        Some("DURATION"),
        "how long to wait for psched while it is restarted (0: do not wait)",
    ),
    flag(
        Id::Chdir,
        &["--chdir"],
        Some("DIR"),
        "run the PEs in this directory, which has to exist on every host",
    ),
    flag(
        Id::Account,
        &["--account"],
        Some("NAME"),
        "the account to which the application is charged",
    ),
    flag(
        Id::Checkpoint,
        &["--checkpoint"],
        Some("SIGNAL|COMMAND"),
        "how cpr makes the program save itself: by a signal, or by running a command",
    ),
    flag(
        Id::RestartFrom,
        &["--restart-from"],
        Some("DIR"),
        "if a host is lost, restart the application from its checkpoint in this folder (cpr -c DIR)",
    ),
    flag(
        Id::Nodes,
        &["--nodes"],
        Some("NODES"),
        "number of nodes over which the PEs are spread evenly",
    ),
    flag(
        Id::NodeList,
        &["-L", "--node-list"],
        Some("NIDS|HOSTS"),
        "use only these nodes, such as 1-5,9 (9,5-1: ranks begin at the high end), or those of these hosts: \
         h1,n[004-007]",
    ),
    flag(
        Id::NodeListFile,
        &["-l", "--node-list-file"],
        Some("FILE"),
        "read the list of -L from a file",
    ),
    flag(
        Id::ExcludeList,
        &["-E", "--exclude-node-list"],
        Some("NIDS|HOSTS"),
        "use none of these nodes, or of those of these hosts",
    ),
    flag(Id::Flexible, &["--flexible"], None, "the nodes need not be contiguous"),
    flag(
        Id::Oversubscribe,
        &["--oversubscribe"],
        None,
        "PEs share processors if there are too few for all of them: for tests, not for speed",
    ),
    flag(
        Id::Inside,
        &["--inside"],
        None,
        "in a program that is a PE: run COMMAND on the processors of that PE",
    ),
    flag(
        Id::DryRun,
        &["--dry-run"],
        None,
        "show where each PE would go now (rank, NID, processors); start nothing",
    ),
    flag(
        Id::Output,
        &["--output"],
        Some("FILE"),
        "write stdout there: %r rank, %n NID, %a apid, %% a percent sign",
    ),
    flag(Id::Error, &["--error"], Some("FILE"), "write stderr there, likewise"),
    flag(
        Id::Pmi,
        &["--pmi"],
        Some("pmi1|port|pmix|all|none"),
        "how the PEs of an MPI program find one another: PMI-1 (MPICH), the same by a port for wrappers that close \
         descriptors, PMIx (Open MPI), PMI-1 and PMIx, or none: independent processes; without this the program tells",
    ),
    flag(
        Id::LoadFile,
        &["--load-file"],
        Some("FILE"),
        "run the programs that this file lists, in place of COMMAND; a line each:\n\
         [-n PES] [-d DEPTH] [-N PES] COMMAND [ARGUMENT...]",
    ),
    flag(Id::Help, &["-h", "--help"], None, "print this"),
    flag(Id::Version, &["-V", "--version", "-version"], None, "print the version"),
];

/// What people coming from ALPS and its relatives know and psched does not have yet: refused by
/// name, never ignored. With what it would do.
pub const NOT_YET: &[(&str, &str)] = &[
    ("-B", "width, depth, shape and memory from the reservation"),
    ("--batch-args", "width, depth, shape and memory from the reservation"),
    ("-D", "debugging output; PSCHED_LOG=debug shows aprun's own; for srun's -D give --chdir"),
    ("--debug", "debugging output; PSCHED_LOG=debug shows aprun's own"),
    ("-r", "cores set aside for system services; for srun's -r give -L"),
    ("--specialized-cpus", "cores set aside for system services"),
    ("-S", "PEs on each NUMA node"),
    ("--pes-per-numa-node", "PEs on each NUMA node"),
    ("-sn", "NUMA nodes to use on each node"),
    ("-sl", "a list of NUMA nodes to use"),
    ("-ss", "memory from the PE's own NUMA node only"),
    ("-cp", "a file with the binding"),
    ("--cpu-binding-file", "a file with the binding"),
    ("-C", "going on when a node fails"),
    ("--reconnect", "going on when a node fails"),
    ("-R", "a relaunch with fewer PEs when a node fails"),
    ("--relaunch", "a relaunch with fewer PEs when a node fails"),
    ("-p", "a protection domain; psched has no partitions either"),
    ("--protection-domain", "a protection domain"),
];

/// Columns of the text of `--help`: of a terminal that nobody has made wider.
const HELP_WIDTH: usize = 80;
/// Columns before the help of an option.
const HELP_INDENT: usize = 8;

/// The text of `--help`.
pub fn help(program: &str) -> String {
    let usage = format!("usage: {program} [OPTIONS] COMMAND [ARGUMENT...] ");
    let indent = " ".repeat("usage: ".len() + program.len() + 1);
    let mut text =
        format!("{}\n{indent}[: [-n PES] COMMAND [ARGUMENT...]]...\n\n", usage.trim_end());
    wrap(
        "Runs COMMAND as a parallel application on nodes that psched has placed. Several programs, with a : \
         between them, are one application, whose ranks go on from one to the next.",
        0,
        &mut text,
    );
    text.push('\n');
    FLAGS.iter().for_each(|flag| describe(flag, &mut text));
    text.push_str("\nOptions of mpiexec, mpirun and srun:\n\n");
    TAKEN.iter().for_each(|flag| describe(flag, &mut text));
    text.push('\n');
    let end = format!(
        "Options end at COMMAND, or at --. The exit status is the application's; 125: {program} failed or the \
         application never started, 126: not executable, 127: not found, 124: time limit. The manual has the \
         rest: man {program}."
    );
    wrap(&end, 0, &mut text);
    text
}

/// Adds an option: its names in a line, and its help below them.
fn describe(flag: &Flag, text: &mut String) {
    let argument = flag.argument.map(|a| format!(" {a}")).unwrap_or_default();
    text.push_str(&format!("  {}{argument}\n", flag.names.join(", ")));
    for paragraph in flag.help.lines() {
        wrap(paragraph, HELP_INDENT, text);
    }
}

/// Adds a paragraph in lines of at most [`HELP_WIDTH`] columns, of which the first `indent` are blank.
fn wrap(paragraph: &str, indent: usize, text: &mut String) {
    let mut line = String::new();
    for word in paragraph.split_whitespace() {
        if !line.is_empty() && indent + line.len() + 1 + word.len() > HELP_WIDTH {
            text.push_str(&format!("{:indent$}{line}\n", ""));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(&format!("{:indent$}{line}\n", ""));
}
