//! Programs that are on one host only, and are copied into the memory of the others.
//!
//! All hosts of the rig have one file system. A folder below /run is a host's own.

use crate::support::cables::{Fault, break_cable, faults_may_be, mend_cable, wait_for_noticed};
use crate::support::hosts::{Cluster, may_be};
use crate::support::programs::copy_program;
use crate::support::users::{ANNA, BERT, Bins, User};
use crate::support::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where it is on its host.
const PROGRAM: &str = "/run/own/program";
/// Its length in bytes.
const PROGRAM_SIZE: u64 = 12 << 20;
/// Where a host has copies: its only node is the one of its number.
fn store(cluster: &Cluster, host: usize) -> PathBuf {
    cluster.root(host).join(format!("run/psched/programs-{host}"))
}

/// This program at that path of a host, made longer: it is more than a megabyte.
#[track_caller]
fn large(cluster: &Cluster, host: usize, from: &str) {
    let to = cluster.root(host).join(&PROGRAM[1..]);
    std::fs::create_dir_all(to.parent().expect("a folder")).expect("made");
    copy_program(from, &to);
    let mut longer = Command::new("truncate");
    run(longer.args(["-s", "12M", "--"]).arg(&to)).expect(0);
}

/// A command of a user on a host.
fn of_user(cluster: &Cluster, host: usize, user: User) -> Command {
    let mut setpriv = cluster.on(host, "setpriv".as_ref());
    let uid = user.uid.to_string();
    setpriv.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"]);
    setpriv.env_remove("PSCHED_SOCKET").env_remove("PSCHED_LOG").env("HOME", "/");
    setpriv
}

/// Bytes of the copies on a host.
fn part(cluster: &Cluster, host: usize) -> u64 {
    let folders = std::fs::read_dir(store(cluster, host)).into_iter().flatten().flatten();
    let sizes = folders.filter_map(|app| std::fs::metadata(app.path().join("0/program")).ok());
    sizes.map(|file| file.len()).sum()
}

/// Nothing is kept on any host.
#[track_caller]
fn is_empty(cluster: &Cluster, hosts: usize) {
    eventually(BOUND, "the copies are gone", || {
        let all = (0..hosts).map(|host| std::fs::read_dir(store(cluster, host)));
        all.flatten().all(|mut folder| folder.next().is_none())
    });
}

#[test]
fn a_program_of_one_host_runs_on_all() {
    if !may_be("copies::a_program_of_one_host_runs_on_all") {
        return;
    }
    let cluster = Cluster::start(6, 1);
    large(&cluster, 2, "/bin/hostname");
    let all: [&str; 6] = ["h0", "h1", "h2", "h3", "h4", "h5"];
    let sent = || [0, 1, 2, 3, 4, 5].map(|host| cluster.sent_bytes(host));
    // The third host, where aprun is, gives one to the first, where PE 0 is, and executes its own
    // file. The first gives one to each of the other three among its four next, and the second
    // gives one to the last. (If the second has not heard of the program in time, as on a busy
    // machine, the last has it from the first: then the launch is tried again.)
    let (by_the_tree, by_the_head) = ([3, 1, 1, 0, 0, 0], [4, 0, 1, 0, 0, 0]);
    let copies_of_a_launch = || {
        let arguments = words("-q -n 6 -N 1").chain([PROGRAM]);
        let before = sent();
        let run_1 = run(&mut cluster.command(2, "aprun", arguments)).expect(0);
        let mut copies = sent();
        let each = copies.iter_mut().zip(before);
        each.for_each(|(now, before)| *now = (*now - before) / PROGRAM_SIZE);
        assert_eq!((run_1.sorted(), &*run_1.stderr), (all.map(str::to_owned).to_vec(), ""));
        copies
    };
    let mut launches = std::iter::repeat_with(copies_of_a_launch).take(10);
    let tree = launches.find(|copies| {
        assert!([by_the_tree, by_the_head].contains(copies), "each host has sent {copies:?}");
        *copies == by_the_tree
    });
    assert!(tree.is_some(), "the last host never had its copy from the second");
    // Of several programs, one of which is everywhere; and a small one, which is a script.
    let arguments = words("-q -n 5 -N 1 hostname : -n 1 -N 1").chain([PROGRAM]);
    assert_eq!(run(&mut cluster.command(2, "aprun", arguments)).expect(0).sorted(), all);
    let script = cluster.root(2).join("run/own/script");
    let text = "#!/bin/sh\nhostname; echo \"$1 ${0##*/}\"\n";
    crate::support::programs::write_program(script, text, 0o755);
    let arguments = words("-q -n 6 -N 1 /run/own/script said");
    let said = run(&mut cluster.command(2, "aprun", arguments)).expect(0).sorted();
    let expected: Vec<&str> = all.into_iter().chain(["said script"; 6]).collect();
    assert_eq!(said, expected);
    is_empty(&cluster, 6);
    // Without copies it has to be there.
    let refused = run(&mut cluster.command(2, "aprun", words("-b -q -n 6 -N 1").chain([PROGRAM])));
    assert_eq!(refused.status, 127, "{refused:?}");
    assert!(refused.stderr.contains("/run/own/program: No such file"), "{}", refused.stderr);
    cluster.wait_until_up();
}

/// A copy is its owner's to execute, nobody's to change, and nobody else's to read.
#[test]
fn a_copy_is_its_owners_and_cannot_be_changed() {
    if !may_be("copies::a_copy_is_its_owners_and_cannot_be_changed") {
        return;
    }
    let cluster = Cluster::start(2, 1);
    large(&cluster, 0, "/bin/sleep");
    let bins = Bins::new();
    let mut sleeps = of_user(&cluster, 0, ANNA);
    sleeps.arg(bins.path("aprun")).args(words("-q -n 2 -N 1")).args([PROGRAM, "1000"]);
    let sleeps = Running::start(&mut sleeps);
    let apid = cluster.wait_for("running", 1)[0];
    // Host 0 executes its own file, and has the bytes for the other one.
    let copy = PathBuf::from(format!("/run/psched/programs-1/{apid}.1/0/program"));
    let seen = cluster.root(1).join(copy.strip_prefix("/").expect("absolute"));
    eventually(BOUND, "it is there", || seen.exists());
    let executes = |exe: &Path| {
        let links = std::fs::read_dir("/proc").expect("read").flatten();
        links.filter(|e| std::fs::read_link(e.path().join("exe")).is_ok_and(|l| l == exe)).count()
    };
    eventually(BOUND, "it is executed", || executes(&copy) == 1);
    let shell =
        |user: User, script: &str| run(of_user(&cluster, 1, user).args(["sh", "-c", script]));
    let copy = copy.display();
    shell(ANNA, &format!("cmp -n 1000 {copy} /bin/sleep && test -x {copy}")).expect(0);
    for tried in
        ["echo >> {}", "chmod 700 {}", "rm -f {}", "mv {} $(dirname {})/y", "touch $(dirname {})/x"]
    {
        let changed = shell(ANNA, &tried.replace("{}", &copy.to_string()));
        assert_ne!(changed.status, 0, "{tried}: {changed:?}");
    }
    for tried in ["cat {}", "{} 0", "ls /run/psched/programs-1"] {
        let read = shell(BERT, &tried.replace("{}", &copy.to_string()));
        assert_ne!(read.status, 0, "{tried}: {read:?}");
        assert!(read.stderr.contains("ermission denied"), "{tried}: {read:?}");
    }
    run(&mut cluster.command(0, "apkill", ["-9", &apid.to_string()])).expect(0);
    sleeps.wait(BOUND).expect(137);
    is_empty(&cluster, 2);
}

/// A checkpoint would be without it.
#[test]
fn an_application_that_executes_a_copy_has_no_checkpoint() {
    if !may_be("copies::an_application_that_executes_a_copy_has_no_checkpoint") {
        return;
    }
    let cluster = Cluster::start(2, 1);
    large(&cluster, 0, "/bin/sleep");
    let arguments = words("-q -n 2 -L 1").chain([PROGRAM, "1000"]);
    let sleeps = Running::start(&mut cluster.command(0, "aprun", arguments));
    let apid = cluster.wait_for("running", 1)[0].to_string();
    let folder = cluster.folder().join("checkpoint");
    let refused = run(cluster.command(1, "cpr", ["-c"]).arg(&folder).args(["-p", &apid]));
    assert_ne!(refused.status, 0, "{refused:?}");
    let why = "it executes a copy of its program in its host's memory";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    assert!(!folder.exists(), "a folder is left");
    assert_eq!(cluster.wait_for("running", 1).len(), 1, "it runs on");
    run(&mut cluster.command(0, "apkill", ["-9", &apid])).expect(0);
    sleeps.wait(BOUND).expect(137);
    is_empty(&cluster, 2);
}

#[test]
fn what_has_no_room_is_executed_at_its_path() {
    if !may_be("copies::what_has_no_room_is_executed_at_its_path") {
        return;
    }
    let cluster = Cluster::start(2, 1);
    large(&cluster, 0, "/bin/hostname");
    run(&mut cluster.command(0, "psmgr", words("set program_memory_max=4M"))).expect(0);
    let refused = run(&mut cluster.command(0, "aprun", words("-q -n 2 -N 1").chain([PROGRAM])));
    assert_eq!(refused.status, 127, "{refused:?}");
    let why = "no copy of it was made: copies of programs may take 4 MiB of its host's memory \
               (program_memory_max)";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    // It has a file of its own, which is the same.
    large(&cluster, 1, "/bin/hostname");
    let ran = run(&mut cluster.command(0, "aprun", words("-q -n 2 -N 1").chain([PROGRAM])));
    let ran = ran.expect(0);
    assert_eq!(ran.sorted(), ["h0", "h1"]);
    let told = "the host of NID 1 has no copy of its program in memory, and executes the file at its \
                path";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    // So it is with a folder that all hosts have.
    std::fs::remove_file(cluster.root(1).join(&PROGRAM[1..])).expect("removed");
    let shared = cluster.folder().join("shared");
    std::fs::create_dir(&shared).expect("made");
    let mut aprun = cluster.command(0, "aprun", words("-q -n 2 -N 1").chain([PROGRAM]));
    let ran = run(aprun.env("PARALLEL_FILE_SYSTEM", &shared));
    let ran = ran.expect(0);
    assert_eq!(ran.sorted(), ["h0", "h1"]);
    let told = "and executes the file at its path if this is the same program, else the copy in \
                PARALLEL_FILE_SYSTEM: copies of programs may take 4 MiB";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    assert_eq!(std::fs::read_dir(&shared).expect("there").count(), 0, "what was copied is left");
    let mut aprun = cluster.command(0, "aprun", words("-q -n 2 -N 1").chain([PROGRAM]));
    let missing = run(aprun.env("PARALLEL_FILE_SYSTEM", "/nowhere"));
    assert_eq!(missing.status, 127, "{missing:?}");
    let why = "aprun: PARALLEL_FILE_SYSTEM: no copies in /nowhere: No such file or directory";
    assert!(missing.stderr.contains(why), "{}", missing.stderr);
    // One that is another is not executed.
    large(&cluster, 1, "/bin/true");
    let refused = run(&mut cluster.command(0, "aprun", words("-q -n 2 -N 1").chain([PROGRAM])));
    assert_eq!(refused.status, 126, "{refused:?}");
    let why = "/run/own/program on host h1 is not the file that was posted";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    // Of a user's own room root has as much as all.
    run(&mut cluster.command(0, "psmgr", words("set program_memory_max=1G"))).expect(0);
    run(&mut cluster.command(0, "psmgr", words("set program_memory_user_max=4M"))).expect(0);
    run(&mut cluster.command(0, "aprun", words("-q -n 2 -N 1").chain([PROGRAM]))).expect(0);
    let bins = Bins::new();
    let mut refused = of_user(&cluster, 0, ANNA);
    let refused = refused.arg(bins.path("aprun")).args(words("-q -n 2 -N 1")).arg(PROGRAM);
    let refused = run(refused);
    assert!(refused.stderr.contains("program_memory_user_max"), "{}", refused.stderr);
    is_empty(&cluster, 2);
}

/// The apinits of the head and of another host are killed, and so is aprun, while a program is on its way over a slow
/// cable.
#[test]
fn a_copy_outlives_the_death_of_an_apinit() {
    if !may_be("copies::a_copy_outlives_the_death_of_an_apinit") {
        return;
    }
    let mut cluster = Cluster::start(3, 1);
    large(&cluster, 0, "/bin/hostname");
    // The cable of the second host, towards it.
    let mut slow = cluster.on_switch("tc");
    run(slow.args(words("qdisc add dev p1 root tbf rate 16mbit burst 32k latency 100ms")))
        .expect(0);
    for killed in [1, 0] {
        let mut aprun = cluster.command(0, "aprun", words("-q -n 3 -N 1").chain([PROGRAM]));
        let aprun = aprun.stdout(Stdio::piped()).spawn().expect("it starts");
        eventually(BOUND, "some of it is there", || part(&cluster, 1) > 0);
        assert!(part(&cluster, 1) < 12 << 20, "all of it is there already");
        cluster.kill_apinit(killed);
        cluster.start_apinit(killed, 1);
        let done = aprun.wait_with_output().expect("waited for");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{done:?}");
        let mut said: Vec<&str> = said.lines().collect();
        said.sort_unstable();
        assert_eq!(said, ["h0", "h1", "h2"]);
        cluster.wait_until_up();
    }
    // Its user has had enough.
    let mut aprun = cluster.command(0, "aprun", words("-q -n 3 -N 1").chain([PROGRAM]));
    let mut aprun = aprun.spawn().expect("it starts");
    eventually(BOUND, "some of it is there", || part(&cluster, 1) > 0);
    aprun.kill().expect("killed");
    aprun.wait().expect("reaped");
    cluster.wait_until_up();
    is_empty(&cluster, 3);
}

/// The last of six hosts has its copy from the second. The cable of that one is cut while it has a part of the program,
/// and then it and the last host's lose packets.
#[test]
fn copies_come_over_bad_cables() {
    if !faults_may_be("copies::copies_come_over_bad_cables") {
        return;
    }
    let cluster = Cluster::start(6, 1);
    let all = ["h0", "h1", "h2", "h3", "h4", "h5"];
    large(&cluster, 0, "/bin/hostname");
    let start = || {
        let arguments = words("-q -n 6 -N 1").chain([PROGRAM]);
        Running::start(&mut cluster.command(0, "aprun", arguments))
    };
    for fault in [Fault::Out, Fault::Deaf, Fault::Mute] {
        let slow = |what: &str| {
            let options = words("qdisc").chain(words(what));
            run(cluster.on_switch("tc").args(options)).expect(0);
        };
        slow("add dev p1 root tbf rate 4mbit burst 32k latency 100ms");
        let aprun = start();
        eventually(BOUND, "some of it is there", || part(&cluster, 1) > 0);
        let before = cluster.sent_again();
        break_cable(&cluster, 1, fault);
        wait_for_noticed(&cluster, before);
        let (second, last) = (part(&cluster, 1), part(&cluster, 5));
        assert!(second < 12 << 20, "{fault:?}: all of it was there");
        assert!(last <= second, "{fault:?}: h5 has {last} bytes, h1 {second}");
        mend_cable(&cluster, 1, fault);
        slow("del dev p1 root");
        assert_eq!(aprun.wait(BOUND).expect(0).sorted(), all, "{fault:?}");
        is_empty(&cluster, 6);
    }
    // With losses TCP waits most of the time: it is enough that some of it has come through both cables.
    let before = cluster.sent_again();
    for host in [1, 5] {
        break_cable(&cluster, host, Fault::Lossy);
    }
    let aprun = start();
    eventually(BOUND, "the last host has some of it", || part(&cluster, 5) > 64 << 10);
    wait_for_noticed(&cluster, before);
    assert!(part(&cluster, 5) < 12 << 20, "the cables have lost nothing");
    for host in [1, 5] {
        mend_cable(&cluster, host, Fault::Lossy);
    }
    assert_eq!(aprun.wait(BOUND).expect(0).sorted(), all, "after losses");
    is_empty(&cluster, 6);
    cluster.wait_until_up();
}
