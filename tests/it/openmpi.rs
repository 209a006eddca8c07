//! Programs of Open MPI, as Debian's mpicc.openmpi builds them: their PEs find one another by PMIx.

use crate::support::hosts::{Cluster, may_be};
use crate::support::mpi;
use crate::support::*;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Such a program, in a place that its user can reach; `None`: this test is skipped.
fn built(test: &str, name: &str) -> Option<String> {
    Some(mpi::open(test, name)?.to_str().expect("text").to_owned())
}

/// What the ring prints.
fn ranks(n: u32, appnum: impl Fn(u32) -> u32, shared: u32) -> Vec<String> {
    let line = |rank| {
        let (appnum, sum) = (appnum(rank), n * (n + 1) / 2);
        format!("rank {rank} of {n} appnum {appnum} sum {sum} shared {shared}")
    };
    (0..n).map(line).collect()
}

#[test]
fn a_ring_and_a_sum() {
    let Some(ring) = built("openmpi::a_ring_and_a_sum", "ring") else { return };
    let instance = instance(2, 2);
    for options in ["-n 1", "-n 2", "-n 4", "-n 3 -N 2"] {
        let run = instance.aprun(words(&format!("-q {options}")).chain([ring.as_str()])).expect(0);
        let n: u32 = words(options).nth(1).expect("a width").parse().expect("a number");
        assert_eq!(run.sorted(), ranks(n, |_| 0, n), "{options}");
    }
}

/// mpirun of Open MPI in a PE starts processes of its own, as without aprun. (Many scripts have it in them.)
#[test]
fn its_own_mpirun_in_a_pe_is_none_of_psched_s() {
    let test = "openmpi::its_own_mpirun_in_a_pe_is_none_of_psched_s";
    let Some(ring) = built(test, "ring") else { return };
    if Command::new("mpirun.openmpi").arg("--version").output().is_err() {
        return skip(test, "there is no mpirun.openmpi (apt-get install openmpi-bin)");
    }
    let instance = instance(1, 2);
    let inner = "mpirun.openmpi --allow-run-as-root --oversubscribe -np 2";
    let wrapped: [&[&str]; 3] = [&[], &["--pmi=none"], &["sh", "-c", "\"$0\" \"$@\""]];
    for before in wrapped {
        let line = words("-q -n 1").chain(before.iter().copied()).chain(words(inner));
        let run = instance.aprun(line.chain([ring.as_str()])).expect(0);
        assert_eq!(run.sorted(), ranks(2, |_| 0, 2), "{before:?}: {}", run.stderr);
    }
}

/// appmix's folder goes with the application.
#[test]
fn nothing_is_left() {
    let test = "openmpi::nothing_is_left";
    let (Some(abort), instance) = (built(test, "abort"), instance(1, 2)) else { return };
    let print = "echo $PMIX_SERVER_TMPDIR; ls -d $PMIX_SERVER_TMPDIR";
    for (end, status) in [("true".to_owned(), 0), (format!("exec {abort} 3"), 3)] {
        let run = instance.script("-q -n 1", &format!("{print}; {end}")).expect(status);
        let out = run.out();
        let mut lines = out.lines();
        let folder = lines.next().expect("a folder").to_owned();
        assert_eq!(lines.next(), Some(folder.as_str()), "it was there: {}", run.stderr);
        instance.wait_until_free();
        eventually(BOUND, "its folder is gone", || !Path::new(&folder).exists());
    }
}

/// Also when what removes it as a rule is killed, or all of the instance.
#[test]
fn nothing_is_left_by_killed_ones() {
    let test = "openmpi::nothing_is_left_by_killed_ones";
    let (Some(_), mut instance) = (built(test, "ring"), instance(1, 2)) else { return };
    let told = instance.directory().join("told");
    let print = format!(
        "echo $PPID $PMIX_SERVER_TMPDIR > {0}.new; touch $PMIX_SERVER_TMPDIR/file; mv {0}.new {0}; exec sleep 1000",
        told.display()
    );
    let begin = |instance: &Instance| {
        let running = instance.start_script("-q -n 1", &print);
        eventually(BOUND, "it runs", || told.exists());
        let text = std::fs::read_to_string(&told).expect("told");
        std::fs::remove_file(&told).expect("there");
        let (shepherd, folder) = text.trim().split_once(' ').expect("both");
        let folder = Path::new(folder).to_owned();
        assert!(folder.join("file").exists());
        (running, shepherd.parse().expect("a pid"), folder)
    };
    let (running, shepherd, folder) = begin(&instance);
    kill(shepherd, 9);
    assert_eq!(running.wait(BOUND).status, 125);
    eventually(BOUND, "its folder is gone", || !folder.exists());
    let (running, _, folder) = begin(&instance);
    instance.end(9);
    assert_ne!(running.wait(BOUND).status, 0);
    eventually(BOUND, "its folder is gone", || !folder.exists());
}

/// Another user may have filled /tmp.
#[test]
fn a_full_tmp_keeps_none_from_starting() {
    let test = "openmpi::a_full_tmp_keeps_none_from_starting";
    let Some(ring) = built(test, "ring") else { return };
    if !is_root() {
        return skip(test, "only root can mount");
    }
    let base = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let script = "mount -t tmpfs -o nr_inodes=1 none /tmp && exec \"$0\" start --nodes 1 -- \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(binaries().join("psched"));
    command.args(["aprun", "-q", "-n", "2", &ring]).env("TMPDIR", base.path());
    let run = run(command.env_remove("XDG_RUNTIME_DIR").env_remove("PSCHED_LOG")).expect(0);
    assert_eq!(run.sorted(), ranks(2, |_| 0, 2), "{}", run.stderr);
}

#[test]
fn a_ring_of_several_programs() {
    let test = "openmpi::a_ring_of_several_programs";
    let (Some(ring), instance) = (built(test, "ring"), instance(2, 2)) else { return };
    let other = instance.directory().join("other");
    copy_program(&ring, &other);
    let other = other.to_str().expect("text");
    let line = ["-q", "-n", "1", &ring, ":", "-n", "2", other, ":", &ring];
    let run = instance.aprun(line).expect(0);
    assert_eq!(run.sorted(), ranks(4, |rank| [0, 1, 1, 2][rank as usize], 4));
}

/// What is executed tells nothing: both ways are offered. (MPICH 5 does not begin where it finds both and is told nothing.)
#[test]
fn behind_an_interpreter_they_meet_too() {
    let test = "openmpi::behind_an_interpreter_they_meet_too";
    let (Some(open), instance) = (built(test, "ring"), instance(1, 2)) else { return };
    let run = instance.aprun(["-q", "-n", "2", "sh", "-c", &open]).expect(0);
    assert_eq!(run.sorted(), ranks(2, |_| 0, 2));
    let told = |options: &str| {
        let print = "echo $MPIR_CVAR_PMI_VERSION";
        instance.script(&format!("-q -n 1 {options}"), print).expect(0).out()
    };
    let all = ["", "-e MPIR_CVAR_PMI_VERSION=2", "--pmi=pmi1", "--pmi=pmix"].map(told);
    assert_eq!(all, ["1\n", "2\n", "\n", "\n"]);
    if let Some(mpich) = mpi::program(test, "ring") {
        let mpich = mpich.to_str().expect("text");
        let run = instance.aprun(["-q", "-n", "2", "sh", "-c", mpich]).expect(0);
        assert_eq!(run.sorted(), ranks(2, |_| 0, 2));
        let run = instance.aprun(["-q", "-n", "2", "--pmi=all", mpich]).expect(0);
        assert_eq!(run.sorted(), ranks(2, |_| 0, 2));
    }
}

#[test]
fn an_abort_is_the_status() {
    let Some(abort) = built("openmpi::an_abort_is_the_status", "abort") else { return };
    let instance = instance(1, 2);
    // (A code whose low byte is 0 gives status 1.)
    for (code, status) in [("3", 3), ("0", 1), ("256", 1), ("259", 3)] {
        let run = instance.aprun(["-n", "2", &abort, code]).expect(status);
        run.says(&format!("called MPI_Abort({code})"));
        instance.wait_until_free();
    }
}

#[test]
fn an_exit_without_finalize_ends_it() {
    let Some(leave) = built("openmpi::an_exit_without_finalize_ends_it", "leave") else { return };
    let instance = instance(1, 2);
    for (code, status) in [("0", 1), ("5", 5)] {
        let run = instance.aprun(["-n", "2", &leave, code]).expect(status);
        run.says("without calling MPI_Finalize");
        instance.wait_until_free();
    }
}

#[test]
fn pmi_1_alone_is_refused() {
    let Some(ring) = built("openmpi::pmi_1_alone_is_refused", "ring") else { return };
    let run = instance(1, 2).aprun(["--pmi=pmi1", "-n", "2", &ring]).expect(125);
    run.says("give --pmi=pmix");
}

#[test]
fn without_pmi_each_is_a_world_of_its_own() {
    let test = "openmpi::without_pmi_each_is_a_world_of_its_own";
    let Some(ring) = built(test, "ring") else { return };
    let run = instance(1, 2).aprun(["-q", "--pmi=none", "-n", "2", &ring]).expect(0);
    let world = "rank 0 of 1 appnum 0 sum 1 shared 1";
    // (A singleton may have no appnum at all.)
    let out: Vec<String> =
        run.sorted().iter().map(|line| line.replace("appnum -1", "appnum 0")).collect();
    assert_eq!(out, [world, world], "{}", run.stderr);
}

#[test]
fn on_two_hosts_they_meet() {
    let test = "openmpi::on_two_hosts_they_meet";
    if !may_be(test) {
        return;
    }
    let Some(ring) = mpi::open(test, "ring") else { return };
    let cluster = Cluster::start(2, 1);
    for (n, options, shared) in [(4, "-q -n 4", 2), (2, "-q -n 2 -N 1", 1)] {
        let mut command = cluster.command(0, "aprun", words(options));
        let run = run(command.arg(&ring)).expect(0);
        assert_eq!(run.sorted(), ranks(n, |_| 0, shared), "{options}");
    }
    let Some(abort) = mpi::open(test, "abort") else { return };
    let mut command = cluster.command(0, "aprun", words("-n 4"));
    run(command.arg(&abort).arg("7")).expect(7).says("called MPI_Abort(7)");
    cluster.wait_until_up();
}

/// Fences of some PEs, and what one wants to know of one of another host, go by letters from host to host.
#[test]
fn some_pes_of_two_hosts_meet() {
    let test = "openmpi::some_pes_of_two_hosts_meet";
    if !may_be(test) {
        return;
    }
    let (Some(some), Some(ring)) = (mpi::open(test, "some"), mpi::open(test, "ring")) else {
        return;
    };
    let cluster = Cluster::start(2, 1);
    let run_there = |options: &str, program: &Path| {
        run(cluster.command(0, "aprun", words(options)).arg(program)).expect(0)
    };
    let learned = run_there("-q -n 4", &some);
    let between = |own: u32| (0..3).map(move |turn| format!("{own}: {turn} by {}", 3 - own));
    let mut expected: Vec<String> = between(1).chain(between(2)).collect();
    expected.insert(0, "0: put by 3".into());
    assert_eq!(learned.sorted(), expected, "{}", learned.stderr);
    // Each PE asks those that it speaks with, as in programs of thousands of PEs.
    let direct = "-q -n 4 -e OMPI_MCA_pmix_base_async_modex=1";
    assert_eq!(run_there(direct, &ring).sorted(), ranks(4, |_| 0, 2));
    cluster.wait_until_up();
}

const JOINED: [&str; 2] = ["round 0: 4 joined, sum 6", "round 1: 4 joined, sum 6"];

/// MPI_Publish_name and its kin, MPI_Comm_accept and MPI_Comm_connect.
#[test]
fn names_are_published_and_ports_joined() {
    let test = "openmpi::names_are_published_and_ports_joined";
    let (Some(names), Some(join)) = (built(test, "names"), built(test, "join")) else { return };
    let instance = instance(2, 2);
    let run = instance.aprun(["-q", "-n", "2", &names]).expect(0);
    assert_eq!(run.sorted(), ["found", "taken back"], "{}", run.stderr);
    let run = instance.aprun(["-q", "-n", "4", &join]).expect(0);
    assert_eq!(run.sorted(), JOINED, "{}", run.stderr);
}

/// What is published is kept at the host of PE 0, which those of another host ask by letters.
#[test]
fn names_are_published_and_ports_joined_on_two_hosts() {
    let test = "openmpi::names_are_published_and_ports_joined_on_two_hosts";
    if !may_be(test) {
        return;
    }
    let (Some(names), Some(join)) = (mpi::open(test, "names"), mpi::open(test, "join")) else {
        return;
    };
    let cluster = Cluster::start(2, 1);
    let run_there =
        |program: &Path| run(cluster.command(0, "aprun", words("-q -n 4")).arg(program)).expect(0);
    let run = run_there(&names);
    assert_eq!(run.sorted(), ["found", "taken back"], "{}", run.stderr);
    let run = run_there(&join);
    assert_eq!(run.sorted(), JOINED, "{}", run.stderr);
    cluster.wait_until_up();
}

/// When the last look at what its PEs have loaded is over, an apshepherd does nothing for a program that is idle.
#[test]
fn an_idle_program_costs_nothing() {
    let instance = instance(1, 2);
    let started = instance.directory().join("started");
    let script =
        format!("echo $PPID > {0}.new && mv {0}.new {0}; exec sleep 1000", started.display());
    let began = Instant::now();
    let running = instance.start_script("-q -n 2", &script);
    eventually(BOUND, "it runs", || started.exists());
    let text = std::fs::read_to_string(&started).expect("read");
    let shepherd: i32 = text.trim().parse().expect("a number");
    eventually(BOUND, "that was the last look", || began.elapsed() > Duration::from_secs(33));
    // In this time one that does nothing else takes 200 ticks, or on a busy machine a good part of them.
    let is_there = || {
        let name = std::fs::read_to_string(format!("/proc/{shepherd}/comm")).unwrap_or_default();
        assert_eq!(name, "apshepherd\n");
    };
    is_there();
    let before = ticks(shepherd, false);
    let since = Instant::now();
    eventually(BOUND, "some time goes by", || since.elapsed() > Duration::from_secs(2));
    let taken = ticks(shepherd, false) - before;
    is_there();
    assert!(taken < 10, "{taken} ticks of processor time");
    drop(running);
}

/// A process of the user's that may not be traced, and that ends as an application's process does.
#[test]
fn appmix_is_nobody_elses_and_its_death_is_told() {
    let test = "openmpi::appmix_is_nobody_elses_and_its_death_is_told";
    let Some(stay) = built(test, "stay") else { return };
    if !is_root() {
        return skip(test, "only root can become another user");
    }
    let instance = Plan::new().nodes(1, 2).for_user().start();
    let (own, told) = (instance.directory().join("stay"), instance.directory().join("told"));
    copy_program(&stay, &own);
    let line = ["-n", "2", own.to_str().expect("text"), told.to_str().expect("text")];
    let running = Running::start(&mut instance.command("aprun", line));
    let mut shepherd = None;
    eventually(BOUND, "its PEs have met", || {
        let text = std::fs::read_to_string(&told).unwrap_or_default();
        shepherd = text.strip_suffix('\n').and_then(|pid| pid.parse().ok());
        shepherd.is_some()
    });
    let children = children(shepherd.expect("told"));
    let (pid, _) = *children.iter().find(|(_, name)| name == "appmix").expect("it is there");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("read");
    for none in ["CapPrm:\t0000000000000000", "CapAmb:\t0000000000000000"] {
        assert!(status.contains(none), "{status}");
    }
    // (What no process of its user may trace is root's in /proc.)
    let owner = std::fs::metadata(format!("/proc/{pid}/environ")).expect("there").uid();
    assert_eq!(owner, 0);
    kill(pid, 9);
    let run = running.wait(BOUND);
    assert_eq!(run.status, 125);
    run.says("lost the server of PMIx: it has died by SIGKILL");
    instance.wait_until_free();
}

/// Whatever appmix does instead of serving, the user is told of it.
#[test]
fn an_appmix_that_does_not_serve_is_told_of() {
    if !is_root() {
        return skip(
            "openmpi::an_appmix_that_does_not_serve_is_told_of",
            "only root can become another user",
        );
    }
    let instance = Plan::new().nodes(1, 2).for_user().start();
    let appmix = instance.bins.join("appmix");
    let is_told = |why: &str| {
        let run = run(&mut instance.command("aprun", words("-n 2 --pmi=pmix true"))).expect(125);
        run.says("PMIx can't be served on host ").says(why);
        instance.wait_until_free();
    };
    std::fs::remove_file(&appmix).expect("removed");
    is_told(": appmix can't be executed: is it beside apshepherd?");
    for (does, why) in [
        ("exit 3", ": it has ended with exit code 3"),
        ("kill -SEGV $$", ": it has died by SIGSEGV"),
        // A packet with a header that there is not, and a message that is none.
        ("printf x >&3; exec sleep 1000", ": its connection has failed"),
        ("printf '\\001\\377\\377' >&3; exec sleep 1000", ": its message can't be decoded"),
        ("exec sleep 1000", ": it took too long to begin"),
    ] {
        write_program(&appmix, format!("#!/bin/sh\n{does}\n"), 0o755);
        is_told(why);
    }
}

/// The library waits for what a connection says of itself: those of another user are closed before.
#[test]
fn a_stranger_who_connects_holds_up_nobody() {
    let test = "openmpi::a_stranger_who_connects_holds_up_nobody";
    let Some(ring) = built(test, "ring") else { return };
    if !is_root() {
        return skip(test, "only root can become another user");
    }
    let instance = Plan::new().nodes(1, 2).for_user().start();
    let (told, go) = (instance.directory().join("told"), instance.directory().join("go"));
    let (own, theirs) = (instance.directory().join("ring"), told.display());
    copy_program(&ring, &own);
    let script = format!(
        "env | grep -o '127.0.0.1:[0-9]*' | head -n 1 > {theirs}.$PMIX_RANK && mv {theirs}.$PMIX_RANK {theirs}; \
         until [ -e {} ]; do sleep 0.05; done; exec {}",
        go.display(),
        own.display(),
    );
    let running = instance.start_script("-q -n 2 --pmi=pmix", &script);
    eventually(BOUND, "it runs", || told.exists());
    let port = std::fs::read_to_string(&told).expect("read");
    let silent: Vec<_> =
        (0..200).map(|_| std::net::TcpStream::connect(port.trim()).expect("it listens")).collect();
    std::fs::write(&go, "").expect("written");
    let run = running.wait(BOUND).expect(0);
    assert_eq!(run.sorted(), ranks(2, |_| 0, 2), "{}", run.stderr);
    drop(silent);
}

/// What needs PMIx and can't have it says which package is missing; what may do without goes on.
#[test]
fn without_the_library_the_package_is_named() {
    let test = "openmpi::without_the_library_the_package_is_named";
    let Some(ring) = built(test, "ring") else { return };
    let library = Path::new("/usr/lib/x86_64-linux-gnu/libpmix.so.2");
    if !is_root() || !library.exists() {
        return skip(test, "only root can hide the library, and it is elsewhere here");
    }
    let aprun = binaries().join("aprun");
    let script = format!(
        "mount --bind /dev/null {1} && exec {2} start -- sh -c '{0} -n 2 {ring}; echo $?; {0} -q -n 2 sh -c true; echo $?; \
         {0} -n 2 --pmi=pmix sh -c true; echo $?; {0} -q -n 2 sh -c {ring}; echo $?'",
        aprun.display(),
        library.display(),
        binaries().join("psched").display(),
    );
    let run =
        run(std::process::Command::new("unshare").args(["-m", "sh", "-c", &script])).expect(0);
    let out = run.out();
    // (Before it is ended, it may have said itself that it can't begin.)
    let statuses: Vec<&str> = out.lines().filter(|l| l.parse::<u8>().is_ok()).collect();
    assert_eq!(statuses[..3], ["125", "0", "125"], "{}", run.stderr);
    assert_ne!(statuses[3], "0");
    run.says("its program needs PMIx").says("loaded Open MPI").says("install libpmix2");
}

/// The same where one of its hosts does not have it.
#[test]
fn a_host_without_the_library_is_named() {
    let test = "openmpi::a_host_without_the_library_is_named";
    if !may_be(test) {
        return;
    }
    let library = "/usr/lib/x86_64-linux-gnu/libpmix.so.2";
    let Some(ring) = mpi::open(test, "ring").filter(|_| Path::new(library).exists()) else {
        return skip(test, "Open MPI's library of PMIx is elsewhere here");
    };
    let cluster = Cluster::start(2, 1);
    run(cluster.on(1, "mount".as_ref()).args(["--bind", "/dev/null", library])).expect(0);
    let aprun = |options: &str| run(cluster.command(0, "aprun", words(options)).arg(&ring));
    aprun("-n 4").expect(125).says("host h1 has no libpmix.so.2").says("install libpmix2");
    // Behind an interpreter it shows when they have begun. (They may have said themselves that they can't.)
    let run = aprun("-n 4 sh -c");
    assert_ne!(run.status, 0);
    run.says("host h1 has no libpmix.so.2");
    assert_eq!(aprun("-q -n 2 -L 0").expect(0).sorted(), ranks(2, |_| 0, 2));
    cluster.wait_until_up();
}

/// Where PEs share processors, one that waits lets the others run.
#[test]
fn pes_that_share_processors_yield() {
    let told = |processors: u32, options: &str| {
        let instance = instance(1, processors);
        let print = "echo ${OMPI_MCA_mpi_yield_when_idle-unset}";
        instance.script(&format!("-q --pmi=pmix {options}"), print).expect(0).sorted()
    };
    if built("openmpi::pes_that_share_processors_yield", "ring").is_none() {
        return;
    }
    let real = u32::try_from(std::thread::available_parallelism().expect("known").get());
    let real = real.expect("few");
    let width = 2 * real;
    assert_eq!(told(width, &format!("-n {width}")), vec!["1"; width as usize]);
    assert_eq!(told(1, "-n 1"), ["unset"]);
    let set = "-e OMPI_MCA_mpi_yield_when_idle=0";
    assert_eq!(told(width, &format!("-n {width} {set}")), vec!["0"; width as usize]);
}

/// On such a host some libraries are not loaded, unless the user wants to choose.
#[test]
fn without_a_fabric_its_libraries_are_not_loaded() {
    let test = "openmpi::without_a_fabric_its_libraries_are_not_loaded";
    if built(test, "ring").is_none() {
        return;
    }
    let fabric =
        std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut all| all.next().is_some());
    let instance = instance(1, 2);
    let told = |options: &str| {
        let print = "echo ${OMPI_MCA_mtl-unset}";
        instance.script(&format!("-q -n 1 --pmi=pmix {options}"), print).expect(0).out()
    };
    assert_eq!(told(""), if fabric { "unset\n" } else { "^ofi,psm,psm2\n" });
    assert_eq!(told("-e OMPI_MCA_pml=ob1"), "unset\n");
    assert_eq!(told("-e OMPI_MCA_mtl=ofi"), "ofi\n");
}

/// MPI_Comm_connect looks up a key in this way. What is published is kept at PE 0's host.
#[test]
fn a_lookup_that_waits_ends_in_time() {
    let test = "openmpi::a_lookup_that_waits_ends_in_time";
    let Some(lookup) = built(test, "lookup") else { return };
    let arguments = |n| words("-q --pmi=pmix -n").chain([n, lookup.as_str()]);
    let late = |n: u32| -> Vec<String> { (0..n).map(|rank| format!("rank {rank}: -24")).collect() };
    let one = instance(1, 2);
    let began = Instant::now();
    let run_one = one.aprun(arguments("2")).expect(0);
    assert_eq!(run_one.sorted(), late(2), "{}", run_one.stderr);
    assert!(began.elapsed() >= Duration::from_secs(1), "they have not waited");
    drop(one);
    if !may_be(test) {
        return;
    }
    let cluster = Cluster::start(2, 1);
    let two = run(&mut cluster.command(0, "aprun", arguments("4"))).expect(0);
    assert_eq!(two.sorted(), late(4), "{}", two.stderr);
    cluster.wait_until_up();
}

/// Two that want all processors go in turns, with an appmix each; the PEs of each are together.
#[test]
fn two_programs_take_turns() {
    let test = "openmpi::two_programs_take_turns";
    let Some(exchange) = built(test, "exchange") else { return };
    let instance = instance(1, 2);
    let set = words("set application.time_slice=20ms application.max_resident=2");
    run(&mut instance.command("psmgr", set)).expect(0);
    let line = || ["-q", "-n", "2", exchange.as_str(), "2"];
    let start = |_| Running::start(&mut instance.command("aprun", line()));
    for running in [0, 1].map(start) {
        let count = running.wait(BOUND).expect(0).out();
        assert!(count.trim().parse::<u64>().is_ok_and(|count| count > 100), "{count}");
    }
    assert_they_took_turns(&run(&mut instance.command("psview", ["--json"])).expect(0));
}

/// The same on two hosts; their ranks send messages by TCP.
#[test]
fn two_programs_take_turns_on_two_hosts() {
    let test = "openmpi::two_programs_take_turns_on_two_hosts";
    if !may_be(test) {
        return;
    }
    let Some(exchange) = built(test, "exchange") else { return };
    let cluster = Cluster::start(2, 1);
    let set = words("set application.time_slice=50ms application.max_resident=2");
    run(&mut cluster.command(0, "psmgr", set)).expect(0);
    let line = || words("-q -n 2 -N 1 -d 2").chain([exchange.as_str(), "2"]);
    let start = |_| Running::start(&mut cluster.command(0, "aprun", line()));
    for running in [0, 1].map(start) {
        let count = running.wait(BOUND).expect(0).out();
        assert!(count.trim().parse::<u64>().is_ok_and(|count| count > 100), "{count}");
    }
    assert_they_took_turns(&run(&mut cluster.command(0, "psview", ["--json"])).expect(0));
    cluster.wait_until_up();
}

#[track_caller]
fn assert_they_took_turns(psview: &Run) {
    let view: serde_json::Value = serde_json::from_slice(&psview.stdout).expect("JSON");
    let all = &view["changes"]["all"];
    assert!(all["switches"].as_u64().is_some_and(|switches| switches > 10), "{all}");
}

#[test]
fn a_spawn_without_room_is_refused_clearly() {
    let test = "openmpi::a_spawn_without_room_is_refused_clearly";
    let Some(spawn) = built(test, "spawn") else { return };
    let run = instance(1, 2).aprun(["-q", "-n", "1", &spawn]);
    assert_ne!(run.status, 0);
    run.says("called MPI_Comm_spawn in vain: a process for which it has no processor");
}

/// Open MPI 4 ends by itself where it finds ALPS_APP_ID and no server, and speaks of ALPS.
#[test]
fn one_that_is_loaded_without_pmix_is_told_of() {
    let test = "openmpi::one_that_is_loaded_without_pmix_is_told_of";
    let Some(ring) = built(test, "nap") else { return };
    let instance = instance(1, 2);
    let run = instance.aprun(["-q", "--pmi=pmi1", "-n", "2", "sh", "-c", &ring]);
    assert_ne!(run.status, 0);
    run.says("PMIx is not served to it: give --pmi=all");
}

/// Programs that could not meet are refused before any runs, and those behind a shell are told of.
#[test]
fn a_wire_up_that_a_program_does_not_speak_is_refused() {
    let test = "openmpi::a_wire_up_that_a_program_does_not_speak_is_refused";
    let open = mpi::open(&format!("{test}.open"), "ring");
    let (Some(mpich), Some(open)) = (mpi::program(test, "ring"), open) else { return };
    let [mpich, open] = [&mpich, &open].map(|path| path.to_str().expect("text"));
    let instance = instance(1, 2);
    let refused = |line: &[&str], why: &str| {
        let run = instance.aprun([&["-q", "-n", "1"], line].concat()).expect(125);
        assert!(run.stdout.is_empty(), "{run:?}");
        run.says(why);
    };
    refused(&["--pmi=pmi1", open], "does not speak PMI-1: leave out --pmi, or give --pmi=pmix");
    refused(&["--pmi=pmix", mpich], "does not speak PMIx as a rule: leave out --pmi");
    refused(&[mpich, ":", "-n", "1", open], "can't run in one MPI world");
    let Some(nap) = mpi::program(&format!("{test}.nap"), "nap") else { return };
    let run = instance.aprun(["-q", "-n", "2", "--pmi=pmix", "sh", "-c", &nap.to_string_lossy()]);
    run.expect(0).says("PMI-1 is not served to it: give --pmi=all");
}

/// A program that finds no server is a world of its own: its user is told.
#[test]
fn pes_that_do_not_meet_are_told_of() {
    let test = "openmpi::pes_that_do_not_meet_are_told_of";
    let open = mpi::open("openmpi::pes_that_do_not_meet_are_told_of.open", "nap");
    let (Some(nap), Some(open)) = (mpi::program(test, "nap"), open) else { return };
    for nap in [nap, open] {
        do_not_meet(nap.to_str().expect("text"));
    }
}

fn do_not_meet(nap: &str) {
    let instance = instance(1, 2);
    for (script, sizes, told) in [
        (format!("exec env -i PATH=/usr/bin:/bin {nap}"), ["1", "1"], true),
        (format!("exec {nap}"), ["2", "2"], false),
    ] {
        let run = instance.aprun(["-q", "-n", "2", "sh", "-c", &script]).expect(0);
        assert_eq!(run.sorted(), sizes);
        let lines = run.stderr.lines().filter(|line| line.contains("never met the other PEs"));
        assert_eq!(lines.count(), usize::from(told), "{}", run.stderr);
    }
    // Who wants it so is told nothing.
    let run = instance.aprun(["-q", "--pmi=none", "-n", "2", nap]).expect(0);
    assert_eq!((run.sorted(), run.stderr.as_str()), (vec!["1".to_owned(); 2], ""));
}
