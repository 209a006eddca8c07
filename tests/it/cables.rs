//! Faults of the cable between hosts, while applications are posted, launched, wired up, switched,
//! heard and ended: a cable that is out, that carries one direction only, that loses packets, that is slow.
//!
//! A moment is made, and not hit by chance: the fault is there before the application goes on, and the
//! application goes on before the fault ends.

use crate::support::cables::*;
use crate::support::hosts::Cluster;
use crate::support::*;
use crate::turns::rig::{overlaps, runs_of, stamper};
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The exit code of the PEs: no other has it.
const CODE: i32 = 7;
/// Lines of stdin.
const LINES: usize = 200;

/// PEs that go from phase to phase as the test lets them (tests/programs/phases.c).
struct Life {
    pes: u32,
    aprun: Running,
    /// Where its marks are, and what it is let do.
    folder: PathBuf,
}

impl Life {
    /// Posts it, with more options of aprun. Each PE is `up.RANK` first, and goes on to its wire-up when `wire` is there.
    /// `lines`: then it writes so many lines. Otherwise it writes until `go` is there.
    #[track_caller]
    fn start(
        cluster: &Cluster,
        (from, options): (usize, &str),
        pes: u32,
        lines: Option<usize>,
    ) -> Option<Life> {
        static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
        let program = PROGRAM.get_or_init(|| mpi::plain("cables", "phases")).as_ref()?;
        let lives = (0..).map(|life| cluster.folder().join(format!("life-{life}")));
        let own = lives.into_iter().find(|folder| std::fs::create_dir(folder).is_ok());
        let own = own.expect("a folder");
        let (program, folder) = (program.display(), own.display());
        let up =
            format!("touch {folder}/up.$PMI_RANK; until [ -e {folder}/wire ]; do sleep 0.01; done");
        let script = match lines {
            None => format!("{up}; exec {program} {folder} 10 {CODE}"),
            Some(lines) => format!(
                "{up}; {program} {folder} 10 0 || exit 90; i=1; while [ $i -le {lines} ]; do \
                 echo $PMI_RANK O $i; echo $PMI_RANK E $i >&2; i=$((i+1)); done; exit {CODE}"
            ),
        };
        let options = format!("-q {options} -n {pes} sh -c");
        let mut command = cluster.command(from, "aprun", words(&options).chain([&*script]));
        let mut aprun = Running::start(command.stdin(Stdio::piped()));
        let mut stdin = aprun.child.stdin.take().expect("piped");
        // (A pipe holds more than that.)
        let text: String = (0..LINES).map(|line| format!("line {line}\n")).collect();
        stdin.write_all(text.as_bytes()).expect("written");
        Some(Life { pes, aprun, folder: own })
    }

    /// How many PEs have come so far.
    fn marks(&self, name: &str) -> usize {
        (0..self.pes).filter(|rank| self.folder.join(format!("{name}.{rank}")).exists()).count()
    }

    #[track_caller]
    fn wait_for(&self, name: &str) {
        eventually(BOUND, &format!("every PE is {name}"), || self.marks(name) == self.pes as usize);
    }

    /// Lets its PEs go on.
    fn let_go(&self, name: &str) {
        std::fs::write(self.folder.join(name), "").expect("written");
    }

    /// The cables of these hosts break, its PEs are let go on, and that is noticed: it has not gone on.
    #[track_caller]
    fn stands_without(&mut self, cluster: &Cluster, hosts: &[usize], fault: Fault, name: &str) {
        let before = cluster.sent_again();
        hosts.iter().for_each(|host| break_cable(cluster, *host, fault));
        self.let_go(name);
        wait_for_noticed(cluster, before);
        match name {
            "wire" => assert_eq!(self.marks("wired"), 0, "{fault:?}: wired up without {hosts:?}"),
            _ => {
                assert!(self.aprun.runs(), "{fault:?}: it ended without what {hosts:?} have to say")
            }
        }
    }

    /// It ends by itself with its status; every line is there once, and each PE's are in order.
    #[track_caller]
    fn ends_well(self, cluster: &Cluster, lines: Option<usize>) {
        let pes = self.pes;
        let run = self.aprun.wait(BOUND).expect(CODE);
        let out = run.out();
        let of = |text: &str, start: &str| -> Vec<String> {
            text.lines().filter_map(|line| line.strip_prefix(start)).map(str::to_owned).collect()
        };
        let (mut outs, mut errs) = (LINES, 0);
        let read: Vec<String> = (0..LINES).map(|line| line.to_string()).collect();
        assert_eq!(of(&out, "IN line "), read, "stdin");
        for rank in 0..pes {
            for (stream, text, all) in [("O", &out, &mut outs), ("E", &run.stderr, &mut errs)] {
                let found = of(text, &format!("{rank} {stream} "));
                let expected: Vec<String> = match lines {
                    None => {
                        let count = found.len().saturating_sub(1);
                        let numbers = (0..count).map(|n| n.to_string());
                        numbers.chain([format!("end {count}")]).collect()
                    }
                    Some(lines) => {
                        let numbers = (1..=lines).map(|n| n.to_string());
                        ["end 0".to_owned()].into_iter().chain(numbers).collect()
                    }
                };
                assert_eq!(found, expected, "PE {rank} on {stream}");
                *all += found.len();
            }
        }
        assert_eq!(out.lines().count(), outs, "nothing else on stdout");
        // aprun says that it has waited for psched, or for the apinit of its first PE.
        let own = run.stderr.lines().filter(|line| {
            line.ends_with("(--wait-for-psched)")
                || *line == "aprun: psched accepts the posting now"
                || line.starts_with("aprun: apinit does not answer (")
                || *line == "aprun: apinit answers again"
        });
        errs += own.count();
        assert_eq!(run.stderr.lines().count(), errs, "nothing else on stderr: {}", run.stderr);
        nothing_is_left(cluster, cluster.count());
    }
}

fn touch(cluster: &Cluster, name: &str) {
    std::fs::write(cluster.folder().join(name), "").expect("written");
}

/// All nodes are free, and no process of an application is left on a host.
#[track_caller]
fn nothing_is_left(cluster: &Cluster, hosts: usize) {
    cluster.wait_until_up();
    let until = Instant::now() + BOUND;
    for host in 0..hosts {
        while let left @ [_, ..] = &cluster.others(host)[..] {
            assert!(Instant::now() < until, "still on h{host}: {left:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let all = cluster.apstat("");
    assert!(all["applications"].as_array().expect("a list").is_empty(), "{all}");
}

/// Whether psched has an application.
fn is_posted(cluster: &Cluster) -> bool {
    !cluster.apstat("-a")["applications"].as_array().expect("a list").is_empty()
}

/// An application of all hosts, whose aprun is on h1. psched and PE 0 are on h0, so the cable of h1 is that of aprun, and
/// the cable of h2 that of a part of the PEs.
fn is_cut_at_each_moment(test: &str, fault: Fault) {
    if !faults_may_be(test) {
        return;
    }
    let cluster = Cluster::start(3, 1);
    let before = cluster.sent_again();
    // At the posting.
    break_cable(&cluster, 1, fault);
    let Some(mut life) = Life::start(&cluster, (1, ""), 6, None) else { return };
    wait_for_noticed(&cluster, before);
    // (What a deaf host sends does arrive.)
    assert!(!is_posted(&cluster) || fault == Fault::Deaf, "posted without its cable");
    // At the launch.
    break_cable(&cluster, 2, fault);
    mend_cable(&cluster, 1, fault);
    eventually(BOUND, "it is posted", || is_posted(&cluster));
    wait_for_noticed(&cluster, cluster.sent_again());
    assert!(life.marks("up") < 6, "launched without h2");
    mend_cable(&cluster, 2, fault);
    life.wait_for("up");
    // At the wire-up, which passes barriers.
    while_cut(&cluster, 2, fault, || life.let_go("wire"));
    life.wait_for("wired");
    // At output and input.
    while_cut(&cluster, 2, fault, || ());
    while_cut(&cluster, 1, fault, || ());
    // At the exit.
    life.stands_without(&cluster, &[2, 1], fault, "go");
    mend_cable(&cluster, 2, fault);
    wait_for_noticed(&cluster, cluster.sent_again());
    // (What is sent to a mute host does arrive.)
    assert!(life.aprun.runs() || fault == Fault::Mute, "aprun ended without its cable");
    mend_cable(&cluster, 1, fault);
    life.ends_well(&cluster, None);
}

#[test]
fn a_cable_may_be_out_at_each_moment() {
    is_cut_at_each_moment("cables::a_cable_may_be_out_at_each_moment", Fault::Out);
}

#[test]
fn a_host_may_be_deaf_at_each_moment() {
    is_cut_at_each_moment("cables::a_host_may_be_deaf_at_each_moment", Fault::Deaf);
}

#[test]
fn a_host_may_be_mute_at_each_moment() {
    is_cut_at_each_moment("cables::a_host_may_be_mute_at_each_moment", Fault::Mute);
}

/// The head is h1 and aprun is on h2, so that the cable of h0 is that of psched alone. What psched is not asked for goes
/// on without its cable; what the head is asked for waits for its own.
#[test]
fn the_cables_of_psched_and_of_the_head_may_be_out_at_each_moment() {
    if !faults_may_be("cables::the_cables_of_psched_and_of_the_head_may_be_out_at_each_moment") {
        return;
    }
    let cluster = Cluster::start(3, 1);
    cluster.set("host_silence=6s");
    for fault in CUTS {
        // At the posting.
        let before = cluster.sent_again();
        break_cable(&cluster, 0, fault);
        let Some(mut life) = Life::start(&cluster, (2, "-L 1,2"), 4, None) else { return };
        wait_for_noticed(&cluster, before);
        // (What is sent to a mute host does arrive.)
        let posted = is_posted(&cluster);
        assert!(!posted || fault == Fault::Mute, "{fault:?}: posted without psched's cable");
        // At the launch.
        break_cable(&cluster, 1, fault);
        mend_cable(&cluster, 0, fault);
        eventually(BOUND, "it is posted", || is_posted(&cluster));
        wait_for_noticed(&cluster, cluster.sent_again());
        assert_eq!(life.marks("up"), 0, "{fault:?}: launched without its head");
        mend_cable(&cluster, 1, fault);
        life.wait_for("up");
        // At the wire-up. The hosts find each other again without psched.
        life.stands_without(&cluster, &[1], fault, "wire");
        break_cable(&cluster, 0, fault);
        mend_cable(&cluster, 1, fault);
        life.wait_for("wired");
        wait_for_noticed(&cluster, cluster.sent_again());
        mend_cable(&cluster, 0, fault);
        // At output and input.
        while_cut(&cluster, 1, fault, || ());
        while_cut(&cluster, 0, fault, || ());
        // At the exit.
        life.stands_without(&cluster, &[0, 1], fault, "go");
        mend_cable(&cluster, 1, fault);
        wait_for_noticed(&cluster, cluster.sent_again());
        mend_cable(&cluster, 0, fault);
        life.ends_well(&cluster, None);
    }
}

/// With a fan-out of 2 the head, h0, speaks with h1 and h3, which lead on to h2 and h4. The cable of h1 has the faults.
#[test]
fn the_cable_of_an_inner_host_may_be_bad_at_each_moment() {
    if !faults_may_be("cables::the_cable_of_an_inner_host_may_be_bad_at_each_moment") {
        return;
    }
    let cluster = Cluster::start(5, 1);
    cluster.set("host_silence=6s fan_out=2");
    for fault in [Fault::Out, Fault::Deaf] {
        // At the launch.
        let before = cluster.sent_again();
        break_cable(&cluster, 1, fault);
        let Some(mut life) = Life::start(&cluster, (4, ""), 10, None) else { return };
        eventually(BOUND, "it is posted", || is_posted(&cluster));
        wait_for_noticed(&cluster, before);
        assert_eq!(life.marks("up"), 0, "{fault:?}: launched without h1");
        mend_cable(&cluster, 1, fault);
        life.wait_for("up");
        // At the wire-up.
        life.stands_without(&cluster, &[1], fault, "wire");
        mend_cable(&cluster, 1, fault);
        life.wait_for("wired");
        // At output.
        while_cut(&cluster, 1, fault, || ());
        // At the exit.
        life.stands_without(&cluster, &[1], fault, "go");
        mend_cable(&cluster, 1, fault);
        life.ends_well(&cluster, None);
    }
    // Slow for a whole life.
    break_cable(&cluster, 1, Fault::Slow);
    let Some(life) = Life::start(&cluster, (4, ""), 10, Some(100)) else { return };
    life.let_go("go");
    life.let_go("wire");
    life.ends_well(&cluster, Some(100));
}

/// Cables of all hosts but psched's are bad for the whole life of an application.
fn is_bad_for_a_life(test: &str, fault: Fault, lines: usize) {
    if !faults_may_be(test) {
        return;
    }
    let cluster = Cluster::start(3, 1);
    for host in [1, 2] {
        break_cable(&cluster, host, fault);
    }
    let Some(life) = Life::start(&cluster, (1, ""), 6, Some(lines)) else { return };
    life.let_go("go");
    life.wait_for("up");
    life.let_go("wire");
    life.ends_well(&cluster, Some(lines));
}

#[test]
fn a_fifth_of_the_packets_may_be_lost() {
    is_bad_for_a_life("cables::a_fifth_of_the_packets_may_be_lost", Fault::Lossy, 500);
}

#[test]
fn cables_may_be_slow() {
    is_bad_for_a_life("cables::cables_may_be_slow", Fault::Slow, 500);
}

/// Two programs take turns on all hosts, and each fault in turn is on the cable of one.
#[test]
fn programs_take_turns_over_bad_cables() {
    let test = "cables::programs_take_turns_over_bad_cables";
    if !faults_may_be(test) {
        return;
    }
    let Some(stamp) = stamper("turns") else { return };
    let cluster = Cluster::start(3, 1);
    cluster.set("application.time_slice=50ms application.max_resident=2");
    let (stamp, folder) = (stamp.display(), cluster.folder().display());
    let gangs = [0, 1].map(|gang| {
        let script = format!("exec {stamp} {folder}/stamps-{gang}-$ALPS_APP_PE spin");
        let arguments = words("-q -n 6 sh -c").chain([&*script]);
        Running::start(&mut cluster.command(gang, "aprun", arguments))
    });
    let apids = cluster.wait_for("running", 2);
    let runs =
        |gang: usize, pe: usize| runs_of(&cluster.folder().join(format!("stamps-{gang}-{pe}")));
    // How often the processor of each PE has been passed on.
    let passed_on = || {
        (0..6).map(|pe| {
            let of = |gang| runs(gang, pe).into_iter().map(move |run| (run, gang));
            let mut all: Vec<_> = of(0).chain(of(1)).collect();
            all.sort_unstable();
            all.windows(2).filter(|two| two[0].1 != two[1].1).count()
        })
    };
    let go_on = |what: &str| {
        let before: Vec<usize> = passed_on().collect();
        eventually(BOUND, &format!("turns go on {what}"), || {
            passed_on().zip(&before).all(|(now, before)| now >= before + 4)
        });
    };
    go_on("at first");
    for fault in CUTS {
        while_cut(&cluster, 1, fault, || ());
        go_on(&format!("after {fault:?}"));
    }
    for fault in [Fault::Lossy, Fault::Slow] {
        break_cable(&cluster, 2, fault);
        go_on(&format!("during {fault:?}"));
        mend_cable(&cluster, 2, fault);
    }
    // The end of both comes to h2 when its cable is back.
    while_cut(&cluster, 2, Fault::Out, || {
        let apids = apids.iter().map(u64::to_string);
        run(&mut cluster.command(0, "apkill", ["-9".to_owned()].into_iter().chain(apids)))
            .expect(0);
    });
    for gang in gangs {
        gang.wait(BOUND).expect(137);
    }
    nothing_is_left(&cluster, 3);
    for pe in 0..6 {
        let found = overlaps(runs(0, pe), runs(1, pe));
        assert_eq!(found, [], "both programs ran on the processor of PE {pe}");
    }
}

/// A host that psched holds for suspect: nothing of it is given away, and what ended meanwhile is told in the end.
#[test]
fn a_host_that_is_suspect_at_the_end_loses_nothing() {
    let test = "cables::a_host_that_is_suspect_at_the_end_loses_nothing";
    if !faults_may_be(test) {
        return;
    }
    let cluster = Cluster::start(2, 2);
    let folder = cluster.folder().display();
    let start = |options: &str, script: &str| {
        let arguments = words(options).chain(["sh", "-c", script]);
        Running::start(&mut cluster.command(0, "aprun", arguments))
    };
    let lines = "for i in 1 2 3; do echo $ALPS_APP_PE $i; done";
    let ends = format!("until [ -e {folder}/go ]; do sleep 0.01; done; {lines}; exit {CODE}");
    let ends = start("-q -n 4 --flexible -L 0,2", &ends);
    cluster.wait_for("running", 1);
    let killed = format!("{lines}; touch {folder}/said.$ALPS_APP_PE; exec sleep 100000");
    let killed = start("-q -n 4 --flexible -L 1,3", &killed);
    let apid = *cluster.wait_for("running", 2).iter().max().expect("two");
    eventually(BOUND, "the second has said all", || {
        (0..4).all(|pe| cluster.folder().join(format!("said.{pe}")).exists())
    });
    break_cable(&cluster, 1, Fault::Out);
    touch(&cluster, "go");
    run(&mut cluster.command(0, "apkill", ["-9".to_owned(), apid.to_string()])).expect(0);
    let third = start("-q -n 8 -F exclusive", "echo third");
    eventually(BOUND, "the host is suspect", || {
        cluster.states()[2..].iter().all(|state| state == "suspect")
    });
    assert_eq!(cluster.wait_for("posted", 1).len(), 1, "the third waits");
    mend_cable(&cluster, 1, Fault::Out);
    let mut expected: Vec<String> =
        (0..4).flat_map(|pe| (1..=3).map(move |i| format!("{pe} {i}"))).collect();
    expected.sort();
    let run = ends.wait(BOUND).expect(CODE);
    assert_eq!(run.sorted(), expected, "{}", run.stderr);
    let run = killed.wait(BOUND).expect(137);
    if run.sorted() != expected {
        // aprun(1): "other hosts may have dropped output of their PEs; a line on stderr says so".
        eprintln!("{}", run.stderr);
        run.says("complete");
    }
    assert_eq!(third.wait(BOUND).expect(0).sorted(), ["third"; 8]);
    nothing_is_left(&cluster, 2);
}

/// MPI_Init of a real MPI program, with each fault but a cable that is out: UCX uses no device whose link is down, so
/// MPI_Init fails then, by whatever the program was started.
///
/// (Debian's MPICH does not end on every run if its ranks talk by TCP: see [`crate::hosts`].)
#[test]
fn an_mpi_program_is_wired_up_over_bad_cables() {
    let test = "cables::an_mpi_program_is_wired_up_over_bad_cables";
    if !faults_may_be(test) {
        return;
    }
    let Some(ring) = mpi::program(test, "ring") else { return };
    let cluster = Cluster::start(2, 1);
    let (folder, printed) = (cluster.folder().display(), cluster.folder().join("printed"));
    let file = |name: String| cluster.folder().join(name);
    let expected = [0, 1].map(|rank| format!("rank {rank} of 2 appnum 0 sum 3 shared 1"));
    for fault in [Fault::Deaf, Fault::Mute, Fault::Lossy, Fault::Slow] {
        let ended = (0..10).any(|number| {
            let name = format!("{fault:?}-{number}");
            let script = format!(
                "touch {folder}/up-{name}.$PMI_RANK; until [ -e {folder}/wire-{name} ]; do sleep 0.01; done; \
                 exec {}",
                ring.display()
            );
            let arguments = words("-q -n 2 -N 1 sh -c").chain([&*script]);
            let mut command = cluster.command(0, "aprun", arguments);
            let out = std::fs::File::create(&printed).expect("made");
            let mut aprun = command.stdout(out).stderr(Stdio::null()).spawn().expect("it starts");
            eventually(BOUND, "both PEs are up", || {
                [0, 1].iter().all(|rank| file(format!("up-{name}.{rank}")).exists())
            });
            let cut = CUTS.contains(&fault);
            match cut {
                true => while_cut(&cluster, 1, fault, || touch(&cluster, &format!("wire-{name}"))),
                false => {
                    break_cable(&cluster, 1, fault);
                    touch(&cluster, &format!("wire-{name}"));
                }
            }
            eventually(BOUND, &format!("{fault:?}: both ranks are right"), || {
                let text = std::fs::read_to_string(&printed).unwrap_or_default();
                let mut lines: Vec<&str> = text.lines().collect();
                lines.sort_unstable();
                lines == expected
            });
            if !cut {
                mend_cable(&cluster, 1, fault);
            }
            let until = Instant::now() + Duration::from_secs(5);
            while Instant::now() < until {
                if let Some(status) = aprun.try_wait().expect("asked") {
                    assert!(status.success(), "{fault:?}: {status}");
                    return true;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            // (It may have ended in this moment.)
            for row in cluster.apstat("-a")["applications"].as_array().expect("a list") {
                run(&mut cluster.command(0, "apkill", ["-9", &row["apid"].to_string()]));
            }
            aprun.wait().expect("reaped");
            false
        });
        assert!(ended, "{fault:?}: has not ended by itself on ten runs");
        nothing_is_left(&cluster, 2);
    }
}
