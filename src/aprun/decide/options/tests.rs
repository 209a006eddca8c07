use super::values::{PER_NODE_MAX, WIDTH_MAX};
use super::*;
use crate::apteam::choice::Choice;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split_whitespace().map(|w| w.as_bytes().to_vec()).collect()
}

fn aprun(line: &str) -> Result<Parsed, String> {
    parse(Program::Aprun, &words(line), &Environment::default())
}

fn good(line: &str) -> Options {
    match aprun(line) {
        Ok(Parsed::Run(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

/// A lone program of one PE.
fn alone(command: &str) -> Part {
    let shape = Shape { width: 1, depth: 1, per_node: None };
    Part { name: String::new(), shape, depth_given: false, command: words(command) }
}

fn bad(line: &str) -> String {
    aprun(line).expect_err(line)
}

#[test]
fn defaults() {
    let expected = Options { parts: vec![alone("a.out")], ..Options::default() };
    assert_eq!(good("a.out"), expected);
    assert_eq!((expected.posting.shape.width, expected.posting.shape.depth), (1, 1));
}

#[test]
fn everything_at_once_in_several_spellings() {
    let shape = Shape { width: 64, depth: 2, per_node: Some(8) };
    let choice = Choice::default().only("9-1").and_then(|choice| choice.not("3")).expect("good");
    let posting = Posting {
        memory_per_pe: Some(3 << 30),
        cpu_limit: Some(Duration::from_secs(60)),
        time_limit: Some(Duration::from_secs(5400)),
        immediate: true,
        exclusive: true,
        account: Account::parse("climate-2.b").ok(),
        saving: Saving::parse("USR1").ok(),
        choice,
        flexible: true,
        ..Posting::plain([0; 16], shape)
    };
    let expected = Options {
        posting,
        binding: Binding::None,
        environment: vec![b"A=1".to_vec(), b"B=".to_vec()],
        exported: Vec::new(),
        launcher_variables: false,
        quiet: true,
        verbose: true,
        whole_lines: true,
        label: true,
        closing: Form::Alps,
        report: true,
        strace: Some(Strace { options: vec![b"-f".to_vec()] }),
        stacks: false,
        bypass: true,
        chdir: None,
        wait_for_psched: Some(Duration::from_secs(90)),
        restart_from: None,
        inside: false,
        nodes: None,
        node_file: None,
        host_lists: [None, None],
        dry_run: true,
        output: Some(Template::parse(b"out.%r").expect("good")),
        error: Some(Template::parse(b"err").expect("good")),
        pmi: Wireup::None,
        all_limits: false,
        parts: vec![Part { shape, depth_given: true, ..alone("./a.out -n 3 -- --label") }],
    };
    let spaced = "-n 64 -d 2 -N 8 -m 3G -cc none -t 60 --time-limit 1h30m -b -e A=1 -e B= --env none -q -T \
                  -F exclusive --account climate-2.b --checkpoint usr1 -L 9-1 -E 3 --flexible --label --closing alps --report --strace -f --immediate --wait-for-psched 90 --dry-run --output out.%r \
                  --error err --pmi none \
                  ./a.out -n 3 -- --label";
    let attached = "-n64 -d2 -N8 -m3G -cc=none -j1 -t60 --time-limit=1h30m -bqT -eA=1 -eB= --env=none -F e \
                    --account=climate-2.b --checkpoint=SIGUSR1 -E3 -L9-1 --flexible --label --closing=alps --report --strace=-f \
                    --immediate --wait-for-psched=1m30s --dry-run --output=out.%r --error=err --pmi=none \
                    ./a.out -n 3 -- --label";
    let long = "--pes 64 --depth=2 --pes-per-node 8 --memory-per-pe 3072 --cpu-binding none \
                --cpus-per-cu=1 \
                --cpu-time-limit 60 --time-limit 5400 --bypass-app-transfer \
                --environment-override A=1 --environment-override B= --env=none --quiet --sync-output \
                --access-mode exclusive --account climate-2.b --checkpoint 10 --node-list=9-1 --exclude-node-list 3 --flexible --label --closing alps --report --strace -f --immediate \
                --wait-for-psched 90s --dry-run --output=out.%r --error=err --pmi=none \
                -- ./a.out -n 3 -- --label";
    for line in [spaced, attached, long] {
        assert_eq!(good(line), expected, "{line}");
    }
}

#[test]
fn stacks_of_those_that_die() {
    assert!(good("-g a").stacks && good("--stacks a").stacks);
    assert!(!good("a -g").stacks);
    assert_eq!(
        bad("-g --strace -f a"),
        "-g and --strace exclude each other: a process has one tracer"
    );
}

#[test]
fn the_last_one_counts() {
    assert_eq!(good("-qT -n 4 a").posting.shape.width, 4);
    assert_eq!(good("-n 4 -n 2 a").posting.shape.width, 2);
}

/// Whatever begins with a letter of aprun's and is none of its options runs nothing and prints no help.
#[test]
fn words_of_one_dash_are_not_cut_into_letters() {
    for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ".chars() {
        let line = format!("-{letter}xyz 1 a");
        assert!(bad(&line).contains(&format!("-{letter}xyz\" is not an option: ")), "{line}");
    }
    for (line, list) in [("-L1-5,9 a", "-L 1-5,9"), ("-E3 a", "-E 3")] {
        assert_eq!(good(line).posting.choice.to_string(), list, "{line}");
    }
    assert_eq!(good("-m2g a").posting.memory_per_pe, Some(2 << 30));
    let file = NodeFile { option: "-l", path: b"./nodes".to_vec(), of_hosts: false };
    assert_eq!(good("-l./nodes a").node_file, Some(file));
    assert_eq!(good("-cc0,1 -n 2 a").binding, good("-cc 0,1 -n 2 a").binding);
    assert_eq!(good("-eOMP_NUM_THREADS=8 a").environment, [b"OMP_NUM_THREADS=8".to_vec()]);
    let options = good("-Tqb a");
    assert!(options.whole_lines && options.quiet && options.bypass);
}

#[test]
fn a_directory_for_the_pes() {
    assert_eq!(good("--chdir /x/y ./a").chdir.as_deref(), Some(b"/x/y".as_slice()));
    assert_eq!(good("--chdir=run ./a").chdir.as_deref(), Some(b"run".as_slice()));
    assert_eq!(good("./a --chdir x").chdir, None);
    assert_eq!(bad("--chdir= ./a"), "--chdir: the name of the directory is empty; . is this one");
    assert_eq!(good("-wdir x ./a"), good("--chdir x ./a"));
}

/// Command lines of other launchers, each with one of aprun's that means the same.
#[test]
fn options_of_other_launchers_mean_what_they_say() {
    for (theirs, ours) in [
        ("-np 4", "-n 4"),
        ("-np4", "-n 4"),
        ("--np 4", "-n 4"),
        ("--ntasks=4", "-n 4"),
        ("-np 8 -ppn 4", "-n 8 -N 4"),
        ("-np 8 -perhost 4", "-n 8 -N 4"),
        ("-np 8 --ntasks-per-node=4", "-n 8 -N 4"),
        ("-np 8 -map-by ppr:4:node", "-n 8 -N 4"),
        ("-np 8 --map-by ppr:4:node:PE=2", "-n 8 -N 4 -d 2"),
        ("--map-by slot --bind-to core", "-cc cpu"),
        ("-bind-to none", "-cc none"),
        ("--bind-to numa", "-cc numa_node"),
        ("--cpus-per-task 2", "-d 2"),
        ("-oversubscribe -np 9", "--oversubscribe -n 9"),
        ("--map-by :OVERSUBSCRIBE -np 9", "--oversubscribe -n 9"),
        ("--map-by ppr:2:node:PE=3 -n 2", "-N 2 -d 3 -n 2"),
        ("--map-by slot:OVERSUBSCRIBE -n 2 --nooversubscribe", "-n 2"),
        ("--oversubscribe -n 2 --map-by core:NOOVERSUBSCRIBE", "-n 2"),
        ("--oversubscribe -n 2 --nooversubscribe", "-n 2"),
        ("-nooversubscribe -n 9 --oversubscribe", "--oversubscribe -n 9"),
        ("-x A=1", "-e A=1"),
        ("-genv A 1 -env B= -genvall -envlist C,D", "-e A=1 -e B="),
        ("-genv A -n -n 2", "-e A=-n -n 2"),
        ("-wdir d", "--chdir d"),
        ("-n 2 -host 1-3", "-n 2 -L 1-3"),
    ] {
        for program in [Program::Aprun, Program::Mpirun] {
            let read = |line: &str| {
                parse(program, &words(&format!("{line} ./a -np 3")), &Environment::default())
            };
            assert!(read(theirs).is_ok(), "{theirs}: {:?}", read(theirs));
            assert_eq!(read(theirs), read(ours), "{theirs}");
        }
    }
    assert_eq!(good("-x A a").exported, [b"A".to_vec()]);
    let options = good("-H h1:4,h2:4,h1 -n 8 a");
    assert_eq!(options.host_lists[0], Some(("-H".to_owned(), "h1,h2".to_owned())));
    for option in ["-hostfile", "--hostfile", "-machinefile", "--machinefile", "-f"] {
        let mut options = good(&format!("{option} h -np 2 ./a"));
        let file = NodeFile { option, path: b"h".to_vec(), of_hosts: true };
        assert_eq!((options.node_file.take(), options.posting.shape.width), (Some(file), 2));
        options.listed("h", true, b"h1 slots=2\nh2\n").expect("hosts");
        assert_eq!(options.host_lists[0], Some(("h".to_owned(), "h1,h2".to_owned())));
    }
    let said = good("-f h -n 2 a").listed("h", true, b"h1\nh2 h3").expect_err("two in a line");
    assert!(said.starts_with("h: line 2: \"h3\" follows the host: "), "{said}");
    assert_eq!(
        bad("-hostfile h -L 1 a"),
        "-L: the list of nodes is given twice: give -L or -l, once"
    );
    // There they say how many PEs there are, which is not to become one in silence.
    for option in [
        "-ppn 2",
        "-npernode 2",
        "--ntasks-per-node 2",
        "--map-by ppr:2:node",
        "-H h1,h2",
        "-hostfile h",
    ] {
        let (name, _) = option.split_once(' ').expect("a value");
        let said = format!("{name} does not say how many PEs there are in all: give -n as well");
        assert_eq!(bad(&format!("{option} a")), said);
        assert_eq!(bad(&format!("{option} a : -n 2 b")), format!("part 1: {said}"));
    }
    let said = "part 3: -ppn does not say how many PEs there are in all: give -n as well";
    assert_eq!(bad("-n 2 b : -n 2 a : -ppn 2 a"), said);
    assert_eq!(good("-N 2 -L 1 a").posting.shape.width, 1);
    let mca = good("--mca btl tcp,self --allow-run-as-root --mca pml ob1 a");
    assert_eq!(mca.environment, [&b"OMPI_MCA_btl=tcp,self"[..], b"OMPI_MCA_pml=ob1"]);
    // (Not -l with the value ocalhost.)
    assert!(!bad("-localhost a").contains("-l "), "{}", bad("-localhost a"));
    for (line, said) in [
        (
            "-usize 4 a",
            "-usize is not an option of aprun: PEs spawn others on their own processors: give each PE enough with -d",
        ),
        ("--mca", "--mca needs a value: --mca NAME VALUE"),
        ("--mca=pml ob1 a", "--mca: \"pml\" is not of the form NAME VALUE"),
        (
            "--mca pml ob1 a : -n 1 b",
            "part 1: --mca would apply to all programs: give --gmca, or start this program by env, as in env \
             OMPI_MCA_NAME=VALUE ./a.out",
        ),
        ("-genv A", "-genv: \"A\" is not of the form VAR=VALUE"),
        ("-genv", "-genv needs a value: -genv VAR VALUE"),
        ("-x =1 a", "-x: \"=1\" is not of the form VAR=VALUE"),
        (
            "-host h1:x a",
            "-host: \"h1:x\" is not a host: give a name, as in h1 or h1:4 (apstat -n -v shows them)",
        ),
        (
            "--bind-to socket a",
            "--bind-to: \"socket\" is not supported: give none, core, hwthread, cpu or numa, -d for several \
             processors for each PE, or lists with -cc",
        ),
        (
            "--map-by node a",
            "--map-by: \"node\" is not supported: ranks fill one node after the other; give slot, core or \
             ppr:PES:node, or --nodes to spread the PEs over nodes",
        ),
        (
            "-genvnone a",
            "-genvnone is not an option of aprun: all variables travel with the application: call aprun by \
             env -i, with those that are to travel",
        ),
        (
            "-env A 1 a : b",
            "part 1: -env would apply to all programs: give -genv, or start this program by env, as in env \
             VAR=VALUE ./a.out",
        ),
        (
            "-n 1 -wdir d a : b",
            "part 1: -wdir would apply to all programs: give --chdir for all of them, or start this program by \
             env -C DIR",
        ),
        (
            "-n 1 -host h a : b",
            "part 1: -host would apply to all programs: give -hosts for all of them",
        ),
        (
            "a : -x A=1 b",
            "part 2: -x applies to the whole application: give it before the first command",
        ),
    ] {
        assert_eq!(bad(line), said, "{line}");
    }
}

#[test]
fn refusals() {
    for (line, said) in [
        ("", "no command given: name the program to run after the options"),
        (
            "-n 2 -l hostname",
            "no command given: -l takes \"hostname\" for a file with a list of nodes; for srun's -l give --label",
        ),
        (
            "-m cyclic:block a.out",
            "-m: \"cyclic:block\" is no amount of memory; as srun's -m it has no counterpart: ranks fill one \
             node after the other; give the PEs on each node with -N, or spread them with --nodes",
        ),
        (
            "-n 1 a : --map-by :OVERSUBSCRIBE -n 9 b",
            "part 2: --map-by applies to the whole application: give it before the first command",
        ),
        ("-n 4", "no command given: name the program to run after the options"),
        ("-n 4 --", "no command given: name the program to run after the options"),
        ("-n", "-n needs a value: -n PES"),
        ("-n 0 a", "-n: \"0\" is too small: the number of PEs is a whole number from 1 to 1048576"),
        (
            "-n -4 a",
            "-n: \"-4\" is negative: the number of PEs is a whole number from 1 to 1048576",
        ),
        (
            "-d x a",
            "-d: \"x\" is not a number: the number of processors for each PE is a whole number \
             from 1 to 4096",
        ),
        (
            "-N 99999999999999999999 a",
            "-N: \"99999999999999999999\" is too large: the number of PEs on each node is a whole \
             number from 1 to 4096",
        ),
        (
            "-t 0 a",
            "-t: \"0\" is too small: the number of seconds of CPU time is a whole number from 1 \
             to 315360000",
        ),
        (
            "-t 00:10:00 a",
            "-t: \"00:10:00\" is not a number: the number of seconds of CPU time is a whole number \
             from 1 to 315360000; for the time that the application may take give --time-limit",
        ),
        (
            "--env A=1 a",
            "--env: \"A=1\" is neither launcher nor none; -e VAR=VALUE sets a variable",
        ),
        ("-e A a", "-e: \"A\" is not of the form VAR=VALUE"),
        ("-e =A a", "-e: \"=A\" is not of the form VAR=VALUE"),
        (
            "-cc maybe a",
            "-cc: \"maybe\" is neither cpu, depth, numa_node or none, nor a list of processors for \
             each PE, as in 0,2-3:1:x",
        ),
        (
            "-cc 0,2 -n 2 a",
            "-cc: list 1 names processor 2, and the application has 2 processors, numbers 0 to 1, on \
             a node at most: name one of those, or ask for more (-n, -N, -d)",
        ),
        ("-L 1-3,3 a", "-L: node 3 is named twice"),
        (
            "-L 1-3,9-7 a",
            "-L: the list runs up and down: write it in one direction, which decides where PE 0 is",
        ),
        ("-E 0-x a", "-E: \"x\" is not a node number or a range such as 0-3"),
        ("-L 1 -l f a", "-l: the list of nodes is given twice: give -L or -l, once"),
        ("-l f -L 1 a", "-L: the list of nodes is given twice: give -L or -l, once"),
        (
            "--checkpoint KILL a",
            "--checkpoint: \"KILL\": no program can catch this signal: name another one, such as \
             USR1",
        ),
        (
            "--account a/b a",
            "--account: \"a/b\" is not an account: an account is 1 to 64 letters (of ASCII), digits, dots, \
             underscores and hyphens",
        ),
        (
            "-j 2 a",
            "-j: \"2\" is not supported: psched binds PEs to one SMT sibling of each core and leaves the others idle; give 1, or leave the option out",
        ),
        (
            "--output tag a",
            "--output: \"tag\" is a form of output of Open MPI's mpirun, not a file: give --label for ranks in front of \
             lines (or ./NAME for a file of that name)",
        ),
        ("--pmi=2 a", "--pmi: \"2\" is unknown: give pmi1, port, pmix, all or none"),
        ("--label=3 a", "--label takes no value, and \"3\" was given"),
        ("--frobnicate a", "\"--frobnicate\" is not an option: aprun --help lists the options"),
        ("-y a", "\"-y\" is not an option: aprun --help lists the options"),
        ("-q2 -n 2 a", "\"-q2\" is not an option: aprun --help lists the options"),
        ("--time-limt=3 a", "\"--time-limt\" is not an option: did you mean --time-limit?"),
        ("--tim 3 a", "\"--tim\" is not an option: did you mean --time-limit?"),
        ("-qx a", "\"-qx\" is not an option: aprun --help lists the options"),
        // Of other launchers: none of them is read as the letter that it begins with.
        ("-hold 1 true", "\"-hold\" is not an option: aprun --help lists the options"),
        ("-Th true", "\"-Th\" is not an option: aprun --help lists the options"),
        ("-qg true", "\"-qg\" is not an option: aprun --help lists the options"),
        ("-qn8 true", "\"-qn8\" is not an option: aprun --help lists the options"),
        ("-v2 true", "\"-v2\" is not an option: aprun --help lists the options"),
        ("-nx true", "\"-nx\" is not an option: aprun --help lists the options"),
        ("-enable true", "\"-enable\" is not an option: aprun --help lists the options"),
        ("-Fe true", "\"-Fe\" is not an option: if it has a value, write -F e"),
        ("-ccnone true", "\"-ccnone\" is not an option: if it has a value, write -cc none"),
        ("-Lh1 true", "\"-Lh1\" is not an option: if it has a value, write -L h1"),
        (
            "--mca rmaps_base_mapping_policy ppr:1:node true",
            "--mca: \"rmaps_base_mapping_policy=ppr:1:node\": it tells mpirun where PEs go, which aprun does: give -N, \
             --nodes, --map-by or --oversubscribe",
        ),
        ("-S4 true", "-S (PEs on each NUMA node) is not yet supported: leave it out"),
        (
            "-c4 true",
            "-c4 is not an option of aprun: give the number of PEs with -n, the processors for each PE with -d",
        ),
        (
            "-n8x true",
            "-n: \"8x\" is not a number: the number of PEs is a whole number from 1 to 1048576",
        ),
        (
            "-launcher fork true",
            "-launcher is not an option of aprun: psched's apinits start the PEs: leave it out",
        ),
        (
            "--nodes 3 -n 2 a",
            "--nodes: 2 PEs can't be spread over 3 nodes, because a node would have no PE; lower \
             it, or give a larger -n",
        ),
        ("--nodes 2 -N 2 -n 4 a", "--nodes and -N exclude each other: give one of them"),
        ("-F mine a", "-F: \"mine\" is neither exclusive nor share"),
    ] {
        assert_eq!(bad(line), said, "{line}");
    }
    // One program, whose argument the colon is.
    assert_eq!(good("-n 1 -- a : b").parts, [alone("a : b")]);
}

#[test]
fn what_goes_on_after_a_loss_can_be_checkpointed_while_it_runs() {
    assert_eq!(good("--restart-from /d a").restart_from.as_deref(), Some(&b"/d"[..]));
    assert_eq!(good("a").restart_from, None);
    good("--restart-from d --checkpoint ./save --strace -f a");
    assert_eq!(bad("--restart-from= a"), "--restart-from: the name of the folder is empty");
    let said = bad("--restart-from d --checkpoint USR1 a");
    assert!(
        said.contains("one that saves itself on SIGUSR1 ends: give --checkpoint a command"),
        "{said}"
    );
    for (options, name) in [("--strace -f", "--strace"), ("-g", "-g")] {
        let said = bad(&format!("--restart-from d {options} a"));
        assert!(said.contains(&format!("with {name} none can be made while it runs")), "{said}");
    }
    let said = bad("--inside --restart-from d a");
    assert!(said.ends_with("leave out --restart-from"), "{said}");
}

#[test]
fn what_is_not_yet_here_is_refused_whatever_follows() {
    for (name, _) in NOT_YET {
        for line in [format!("{name} a.out"), format!("{name} 1 a.out")] {
            let said = bad(&line);
            assert!(said.starts_with(&format!("{name} (")), "{said}");
            assert!(said.ends_with(") is not yet supported: leave it out"), "{said}");
        }
    }
}

#[test]
fn pes_may_share_processors() {
    let options = good("-n 64 --oversubscribe --nodes 2 -cc 0-99 a.out");
    assert_eq!(
        (options.posting.oversubscribe, options.posting.shape.per_node),
        (Oversubscribe::Allowed, Some(32))
    );
    let shared = good("--oversubscribe -n 1 a : -n 9 b").posting.oversubscribe;
    assert_eq!(shared, Oversubscribe::Allowed);
    let depth = "--oversubscribe lets PEs share processors, and -d 2 gives each PE several: leave out one \
                 of them";
    assert_eq!(bad("-n 9 --oversubscribe -d 2 a.out"), depth);
    let uneven =
        "--oversubscribe needs the same -N for all parts, or none: change -N, or leave out --nodes";
    assert_eq!(good("-n 9 --oversubscribe --nodes 2 a.out").posting.shape.per_node, Some(5));
    assert_eq!(bad("-n 10 --oversubscribe --nodes 4 a.out"), uneven);
    assert_eq!(bad("--oversubscribe -N 2 -n 4 a : -N 3 -n 6 b"), uneven);
}

#[test]
fn inside_has_no_place_and_no_limits_of_its_own() {
    assert!(good("--inside -n 4 -d 2 -cc 0-99 a.out").inside);
    assert!(good("--inside -n 1 a : -n 3 b").inside);
    for (line, names) in [
        ("-m 1G", "-m"),
        ("--time-limit 1h", "--time-limit"),
        ("--account x", "--account"),
        ("--checkpoint usr1", "--checkpoint"),
        ("-F e", "-F exclusive"),
        ("-L 1", "-L, -l, -E and --nodes"),
        ("-l list", "-L, -l, -E and --nodes"),
        ("-E 1", "-L, -l, -E and --nodes"),
        ("--nodes 1", "-L, -l, -E and --nodes"),
        ("--flexible", "--flexible"),
        ("--strace=-f", "--strace"),
        ("-N 1", "-N, and a -d that differs among parts"),
    ] {
        let said = bad(&format!("--inside {line} a.out"));
        assert!(said.ends_with(&format!("limits: leave out {names}")), "{line}: {said}");
    }
}

#[test]
fn no_name_is_given_twice() {
    let all: Vec<&str> = FLAGS
        .iter()
        .chain(TAKEN)
        .flat_map(|f| f.names)
        .copied()
        .chain(NOT_YET.iter().map(|(name, _)| *name))
        .collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
}

#[test]
fn variables() {
    let with = |set: fn(&mut Environment)| {
        let mut environment = Environment::default();
        set(&mut environment);
        parse(Program::Aprun, &words("a"), &environment)
    };
    let run = |parsed| match parsed {
        Ok(Parsed::Run(options)) => *options,
        other => panic!("{other:?}"),
    };
    assert!(run(with(|e| e.transfer_limits = Some(b"1".to_vec()))).all_limits);
    assert!(!run(with(|e| e.transfer_limits = Some(b"0".to_vec()))).all_limits);
    assert!(run(with(|e| e.sync_tty = Some(b"1".to_vec()))).whole_lines);
    assert!(run(with(|e| e.label = Some(b"1".to_vec()))).label);
    assert!(!run(with(|e| e.label = Some(b"0".to_vec()))).label);
    let memory = run(with(|e| e.default_memory = Some(b"100".to_vec()))).posting.memory_per_pe;
    assert_eq!(memory, Some(100 << 20));
    let wrong = with(|e| e.default_memory = Some(b"much".to_vec())).expect_err("no size");
    assert!(wrong.starts_with("APRUN_DEFAULT_MEMORY: \"much\" is not a size"), "{wrong}");
    let two = run(with(|e| e.timeout = Some(b"2".to_vec()))).posting.time_limit;
    assert_eq!(two, Some(Duration::from_secs(2)));
    let limit = |set: fn(&mut Environment)| run(with(set)).posting.time_limit;
    assert_eq!(limit(|e| e.timeout = Some(Vec::new())), None);
    assert_eq!(limit(|e| e.timeout = Some(b"0".to_vec())), None);
    assert_eq!(limit(|e| e.timeout = Some(b"-1".to_vec())), None);
    let wrong = with(|e| e.timeout = Some(b"soon".to_vec())).expect_err("no time");
    assert!(wrong.starts_with("MPIEXEC_TIMEOUT: \"soon\""), "{wrong}");
    let reserved = with(|e| e.reservation = Some(b"7".to_vec())).expect_err("not yet");
    assert!(reserved.starts_with("BATCH_PARTITION_ID"), "{reserved}");
    let environment =
        Environment { default_memory: Some(b"100".to_vec()), ..Environment::default() };
    let parsed = parse(Program::Aprun, &words("-m 1K a"), &environment);
    assert_eq!(run(parsed).posting.memory_per_pe, Some(1024));
    let environment = Environment { timeout: Some(b"2".to_vec()), ..Environment::default() };
    let parsed = parse(Program::Aprun, &words("--time-limit 9 a"), &environment);
    assert_eq!(run(parsed).posting.time_limit, Some(Duration::from_secs(9)));
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn help_names_every_option_and_value() {
    let Ok(Parsed::Help(text)) = aprun("-n 4 --help") else { panic!("no help") };
    for flag in FLAGS.iter().chain(TAKEN) {
        let names = flag.names.join(", ");
        let argument = flag.argument.map(|a| format!(" {a}")).unwrap_or_default();
        assert!(text.contains(&format!("  {names}{argument}\n")), "{names:?}");
        assert!(in_one_line(&text).contains(&in_one_line(flag.help)), "{names:?}");
    }
    let Ok(Parsed::Help(text)) = parse(Program::Mpirun, &words("--help"), &Environment::default())
    else {
        panic!("no help");
    };
    assert!(text.starts_with("usage: mpirun") && text.contains("  -np, --np, --n, --ntasks PES\n"));
}

#[test]
fn version() {
    assert_eq!(aprun("--version"), Ok(Parsed::Version));
    assert_eq!(aprun("-v"), Ok(Parsed::Version));
    assert_eq!(aprun("-V"), Ok(Parsed::Version));
    for (line, name) in [("--version -n 2 ./a.out", "--version"), ("-n 2 -V ./a.out", "-V")] {
        let text =
            format!("{name} prints the version and runs nothing: give it alone, or leave it out");
        assert_eq!(aprun(line), Err(text), "{line}");
    }
    // With a command it is a wish for more words, and runs the command.
    for name in ["-v", "-verbose", "--verbose"] {
        let expected = Options { verbose: true, ..good("-n 2 a") };
        assert_eq!(good(&format!("{name} -n 2 a")), expected, "{name}");
        // The last of the two counts.
        assert_eq!(good(&format!("-q {name} a")).detail(), Detail::All);
        assert_eq!(good(&format!("{name} -q a")).detail(), Detail::Little);
        assert!(bad(&format!("-n 2 {name}")).starts_with("no command given"), "{name}");
    }
    assert!(bad("--verbose").starts_with("no command given"));
    assert_eq!(good("a").detail(), Detail::Usual);
    assert_eq!(good("--closing plain a").detail(), Detail::All);
    assert_eq!(good("-q --closing alps a").detail(), Detail::Little);
}

/// The options that a manual page defines: names and argument on each tag line (after `.TP` or
/// `.TQ`) of its section OPTIONS.
fn in_manual(page: &str) -> BTreeSet<(String, String)> {
    let options = page.split("\n.SH ").find(|s| s.starts_with("OPTIONS")).expect("OPTIONS");
    let mut found = BTreeSet::new();
    let mut lines = options.lines();
    while let Some(line) = lines.next() {
        if line != ".TP" && line != ".TQ" {
            continue;
        }
        let tag = lines.next().unwrap_or_default().replace("\\-", "-").replace("\\fR", " ");
        let tag = tag.replace("\\fI", " ").replace("\\fB", " ").replace('"', " ");
        let (_, tag) = tag.split_once(' ').expect("a macro and its words");
        let words: Vec<&str> = tag.split([' ', ',']).filter(|w| !w.is_empty()).collect();
        let (names, argument): (Vec<&str>, Vec<&str>) =
            words.iter().partition(|word| word.starts_with('-'));
        for name in names {
            found.insert((name.to_owned(), argument.join(" ")));
        }
    }
    found
}

#[test]
fn the_manual_has_these_options_and_no_others() {
    for (page, mpirun) in [
        (include_str!("../../../../man/aprun.1"), false),
        (include_str!("../../../../man/mpirun.1"), true),
    ] {
        let table: BTreeSet<(String, String)> = FLAGS
            .iter()
            .chain(TAKEN)
            .flat_map(|f| {
                let argument = f.argument.unwrap_or_default();
                f.names.iter().map(move |name| ((*name).to_owned(), argument.to_owned()))
            })
            .collect();
        let manual = in_manual(page);
        if mpirun {
            // Its page has only what differs and refers to aprun's for the rest.
            assert!(manual.contains(&("-np".to_owned(), "PES".to_owned())), "{manual:?}");
            assert!(manual.is_subset(&table), "{manual:?}");
        } else {
            assert_eq!(manual, table);
        }
    }
}

#[test]
fn the_manual_names_what_is_not_yet_here() {
    let page = include_str!("../../../../man/aprun.1").replace("\\-", "-");
    for (name, _) in NOT_YET {
        let found = page.split([' ', ',', '\n', '"']).any(|word| word == *name);
        assert!(found, "{name}");
    }
}

proptest! {
    #[test]
    fn any_words_are_answered(line in proptest::collection::vec(
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..6),
            "-[a-zA-Z]{1,3}".prop_map(String::into_bytes),
            "--[a-z-]{1,9}(=.{0,4})?".prop_map(String::into_bytes),
            "[0-9]{1,22}[KMGhms]?".prop_map(String::into_bytes),
            Just(b":".to_vec()),
            Just(b"./a.out".to_vec()),
        ], 0..12))
    {
        match parse(Program::Aprun, &line, &Environment::default()) {
            Ok(Parsed::Run(options)) => {
                prop_assert!((1..=WIDTH_MAX).contains(&options.posting.shape.width));
                prop_assert!((1..=PER_NODE_MAX).contains(&options.posting.shape.depth));
                let widths = options.parts.iter().map(|part| part.shape.width);
                prop_assert_eq!(widths.sum::<u32>(), options.posting.shape.width);
                prop_assert!(options.parts.iter().all(|part| !part.command.is_empty()));
                // The command is the end of the line, untouched.
                let last = options.parts.last().map(|part| &part.command[..]);
                prop_assert!(line.ends_with(last.unwrap_or_default()));
            }
            Ok(Parsed::Help(_) | Parsed::Version | Parsed::Load(_)) => {}
            Err(said) => prop_assert!(!said.is_empty()),
        }
    }
}

#[test]
fn help_fits_a_terminal_of_80_columns() {
    for program in ["aprun", "mpirun", "mpiexec"] {
        let help = table::help(program);
        let widest = help.lines().max_by_key(|line| line.chars().count()).unwrap_or_default();
        assert!(widest.chars().count() <= 80, "{widest}");
        assert!(
            help.contains("\n        [-n PES] [-d DEPTH] [-N PES] COMMAND [ARGUMENT...]\n"),
            "{help}"
        );
    }
}

#[test]
fn hosts_in_lists_stand_for_their_nodes() {
    let nodes = [(0, "h0"), (1, "h1"), (2, "h1"), (3, "h2"), (4, "7")];
    let nodes = nodes.map(|(nid, host)| (Nid(nid), host.to_owned()));
    let read = |line: &str| {
        let mut options = good(line);
        assert!(options.names_hosts() && options.posting.choice.is_any(), "{line}");
        options.with_hosts(&nodes, "h2").map(|()| options.posting.choice.to_string())
    };
    assert_eq!(read("-L h1,0 a"), Ok("-L 0,1-2".into()));
    assert_eq!(read("-E h[0-1] a"), Ok("-E 0,1-2".into()));
    let unknown =
        "-L: psched.yaml has no node on a host \"h3\": apstat -n -v shows nodes and their hosts";
    assert_eq!(read("-L h3 a"), Err(unknown.into()));
    // A number is one, also where a host is called so.
    assert_eq!(read("-L h1,7 a"), Ok("-L 1-2,7".into()));
    assert_eq!(read("-n 1 -host localhost,h2 a"), read("-L h2 a"));
    assert!(read("-L h1,2 a").is_err_and(|text| text == "-L: node 2 is named twice"));
    // In the file of -l too.
    let mut options = good("-l list a");
    options.listed("list", false, b"h2\nh1\n").expect("names");
    options.with_hosts(&nodes, "h2").expect("known");
    assert_eq!(options.posting.choice.to_string(), "-L 1-2,3");
    let twice = bad("-L h1 -l f a");
    assert_eq!(twice, "-l: the list of nodes is given twice: give -L or -l, once");
    // The last one counts.
    assert_eq!(good("-E h1 -E 3 a").posting.choice.to_string(), "-E 3");
    assert!(!good("-E h1 -E 3 a").names_hosts());
}

#[test]
fn one_thread_is_asked_for_by_a_depth_of_one() {
    for (line, asked) in [
        ("a", false),
        ("-n 4 a", false),
        ("-d 1 a", true),
        ("-d 2 a", false),
        ("--oversubscribe -n 9 a", true),
        ("--map-by slot:PE=1 a", true),
        ("--env=none -d 1 a", false),
        ("-d 1 a : -n 2 b", true),
        ("a : -d 1 b", false),
        ("-N 2 -d 1 a : -N 1 -d 2 b", false),
    ] {
        assert_eq!(good(line).one_thread_each(), asked, "{line}");
    }
}
