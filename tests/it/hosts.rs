//! Several hosts, which know each other by certificates: psched on the first, an apinit on each.
//!
//! The hosts share nothing but the processors and the file system of this machine: each has a
//! network, /run, /dev/shm, /etc/passwd, a host name, a boot id and monotonic clocks of its own.

use crate::support::hosts::{Cluster, NETWORK, may_be};
use crate::support::programs::{copy_program, write_program};
use crate::support::users::{ANNA, BERT, Bins};
use crate::support::*;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A shell script on each of so many PEs, from a host.
fn script(cluster: &Cluster, host: usize, options: &str, script: &str) -> Running {
    let arguments = words(options).chain(["sh", "-c", script]);
    Running::start(&mut cluster.command(host, "aprun", arguments))
}

/// As torchrun and others set them.
#[test]
fn pes_know_their_host_and_that_of_pe_0() {
    if !may_be("hosts::pes_know_their_host_and_that_of_pe_0") {
        return;
    }
    let cluster = Cluster::start(3, 1);
    let show = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR";
    // (psched knows no address of its own host: that has its name.)
    for (nids, master) in [("0,1", "h0".to_owned()), ("1,2", format!("{NETWORK}.2"))] {
        let options = format!("-q -n 4 --flexible -L {nids}");
        let run = script(&cluster, 2, &options, show).wait(BOUND).expect(0);
        let line = |rank: u32| format!("{rank}/4 {}/2 {} {master}", rank % 2, rank / 2);
        assert_eq!(run.sorted(), [0, 1, 2, 3].map(line));
    }
}

#[test]
fn a_program_runs_on_all_hosts_of_a_cluster() {
    if !may_be("hosts::a_program_runs_on_all_hosts_of_a_cluster") {
        return;
    }
    let cluster = Cluster::start(3, 2);
    let said = "hostname; cat /proc/sys/kernel/random/boot_id";
    // From psched's host, from another one, and from one where PE 0 is not.
    for (from, options) in [(0, "-q -n 12"), (1, "-q -n 12"), (2, "-q -n 12 -N 2")] {
        let run = script(&cluster, from, options, said).wait(BOUND).expect(0);
        let mut expected = Vec::new();
        for host in 0..3 {
            expected.extend(vec![format!("00000000-0000-4000-8000-00000000000{host}"); 4]);
        }
        for host in 0..3 {
            expected.extend(vec![format!("h{host}"); 4]);
        }
        assert_eq!(run.sorted(), expected, "from h{from}");
    }
    cluster.wait_until_up();
    // PE 0 on a host where aprun is not: the node of psched's host is taken out.
    run(&mut cluster.command(0, "psmgr", words("drain 0-1"))).expect(0);
    for from in [0, 1, 2] {
        let mut command = cluster.command(
            from,
            "aprun",
            words("-q -n 8 sh -c").chain(["read line && echo $line; hostname; exit 7"]),
        );
        command.stdin(std::process::Stdio::piped());
        let mut running = Running::start(&mut command);
        let mut stdin = running.child.stdin.take().expect("piped");
        std::io::Write::write_all(&mut stdin, b"in\n").expect("written");
        drop(stdin);
        let run = running.wait(BOUND).expect(7);
        let mut expected = vec!["h1"; 4];
        expected.extend(["h2"; 4]);
        expected.push("in");
        assert_eq!(run.sorted(), expected, "from h{from}");
    }
}

#[test]
fn every_command_works_from_every_host() {
    if !may_be("hosts::every_command_works_from_every_host") {
        return;
    }
    let cluster = Cluster::start(2, 1);
    let sleeps = script(&cluster, 1, "-n 4", "echo $ALPS_APP_PE; exec sleep 1000");
    let apid = cluster.wait_for("running", 1)[0];
    let command = |name: &str, line: &str| run(&mut cluster.command(1, name, words(line)));
    let text = command("apstat", "").expect(0).out();
    assert!(text.contains(&format!("{apid}     - root ")), "{text}");
    let one = command("apstat", &format!("-A {apid}")).expect(0).out();
    assert!(one.lines().any(|line| words(line).eq(["aprun", "on:", "h1"])), "{one}");
    assert!(command("apstat", "-n -v").expect(0).out().contains("h1"));
    assert!(command("psview", "").expect(0).out().contains(&apid.to_string()));
    command("psmgr", "set kill_grace=3s").expect(0);
    assert!(command("psmgr", "show kill_grace").expect(0).out().contains("3s"));
    command("snflv", "").expect(0);
    command("apkill", &format!("-9 {apid}")).expect(0);
    let run = sleeps.wait(BOUND).expect(137);
    assert_eq!(run.sorted(), ["0", "1", "2", "3"]);
    cluster.wait_until_up();
}

/// The kernel of the host knows who calls; what a request says of it counts nowhere.
#[test]
fn a_user_of_another_host_is_who_he_is_there() {
    if !may_be("hosts::a_user_of_another_host_is_who_he_is_there") {
        return;
    }
    let cluster = Cluster::start(2, 1);
    let bins = Bins::new();
    let aprun = |uid: u32, line: &str| {
        let mut command = cluster.of_user(1, uid, &bins.path("aprun"));
        command.args(words(line));
        command
    };
    let run_1 = run(&mut aprun(ANNA.uid, "-q -n 4 id -u")).expect(0);
    assert_eq!(run_1.sorted(), vec![ANNA.uid.to_string(); 4]);
    let sleeps = Running::start(&mut aprun(ANNA.uid, "-q -n 1 sleep 1000"));
    let apid = cluster.wait_for("running", 1)[0];
    let kill = |uid: u32| {
        let mut command = cluster.of_user(1, uid, &bins.path("apkill"));
        run(command.args(["-9", &apid.to_string()]))
    };
    let refused = kill(BERT.uid);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.stderr.contains("belongs to"), "{}", refused.stderr);
    let set = run(cluster.of_user(1, BERT.uid, &bins.path("psmgr")).args(["set", "kill_grace=1s"]));
    assert_eq!(set.status, 1, "{set:?}");
    kill(ANNA.uid).expect(0);
    sleeps.wait(BOUND).expect(137);
}

#[test]
fn the_death_of_an_aprun_is_noticed_on_every_host() {
    if !may_be("hosts::the_death_of_an_aprun_is_noticed_on_every_host") {
        return;
    }
    let mut cluster = Cluster::start(2, 1);
    // One runs, one waits, whichever host PE 0 is on.
    let running = script(&cluster, 1, "-q -n 4 -F exclusive", "exec sleep 1000");
    cluster.wait_for("running", 1);
    let waiting = script(&cluster, 1, "-q -n 4 -F exclusive", "exec sleep 1000");
    cluster.wait_for("posted", 1);
    waiting.signal(9);
    waiting.wait(BOUND).expect(137);
    cluster.wait_for("posted", 0);
    // Also while psched is away.
    cluster.kill_psched();
    running.signal(9);
    running.wait(BOUND).expect(137);
    cluster.start_psched();
    eventually(BOUND, "the application has ended", || {
        cluster.apstat("")["applications"].as_array().expect("a list").is_empty()
    });
    cluster.wait_until_up();
}

/// Wherever PE 0 is, though its host does not watch an aprun of another host. Unread output of its
/// PEs keeps no node.
#[test]
fn an_application_ends_with_its_aprun_though_its_output_waits() {
    if !may_be("hosts::an_application_ends_with_its_aprun_though_its_output_waits") {
        return;
    }
    let cluster = Cluster::start(2, 1);
    for (from, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let file = cluster.folder().join(format!("pid-{from}-{head}"));
        let script = format!("echo $$ > {}; exec yes", file.display());
        let options = format!("-q -n 1 -L {head} sh -c");
        let mut command = cluster.command(from, "aprun", words(&options).chain([&*script]));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut aprun = command.spawn().expect("it starts");
        eventually(BOUND, "its PE waits for room", || {
            let pid = std::fs::read_to_string(&file).unwrap_or_default();
            pid.trim().parse().is_ok_and(waits_for_room)
        });
        aprun.kill().and_then(|()| aprun.wait()).expect("killed");
        eventually(BOUND, &format!("what was started on h{from} has left h{head}"), || {
            cluster.apstat("")["applications"].as_array().expect("a list").is_empty()
        });
    }
    cluster.wait_until_up();
}

#[test]
fn an_aprun_on_another_host_outlives_a_restart_of_psched() {
    if !may_be("hosts::an_aprun_on_another_host_outlives_a_restart_of_psched") {
        return;
    }
    let mut cluster = Cluster::start(2, 1);
    let first = script(&cluster, 1, "-q -n 4 -F exclusive", "sleep 3; echo one");
    cluster.wait_for("running", 1);
    let second = script(&cluster, 1, "-q -n 4 -F exclusive", "echo two");
    cluster.wait_for("posted", 1);
    cluster.kill_psched();
    cluster.start_psched();
    assert_eq!(first.wait(BOUND).expect(0).sorted(), ["one"; 4]);
    assert_eq!(second.wait(BOUND).expect(0).sorted(), ["two"; 4]);
    // And one of the apinit that passes on what it says.
    let third = script(&cluster, 1, "-q -n 4", "sleep 2; echo three");
    cluster.wait_for("running", 1);
    cluster.kill_apinit(1);
    cluster.start_apinit(1, 1);
    assert_eq!(third.wait(BOUND).expect(0).sorted(), ["three"; 4]);
    cluster.wait_until_up();
}

#[test]
fn a_host_offers_its_own_nodes_only() {
    if !may_be("hosts::a_host_offers_its_own_nodes_only") {
        return;
    }
    let mut cluster = Cluster::new(3, 1);
    cluster.certify();
    cluster.start_psched();
    // h2 has the files of h1: it is h1.
    let folder = cluster.root(2).join("run/certs");
    for name in ["host.pem", "host.key"] {
        std::fs::copy(cluster.root(1).join("run/certs").join(name), folder.join(name))
            .expect("copied");
    }
    cluster.start_apinit(2, 1);
    eventually(BOUND, "apinit is refused", || cluster.said("2").contains("refuses this node"));
    let said = cluster.said("2");
    assert!(
        said.contains("NID 2 is not of the host h1, whose certificate it presents: psched.yaml gives NID 2 to h2"),
        "{said}"
    );
    // A host that speaks for users only offers none.
    cluster.certs("host h2 --role login").expect(0);
    cluster.copy_certificates(2);
    cluster.start_apinit(2, 1);
    eventually(BOUND, "apinit refuses", || cluster.said("2").contains("apinit needs node"));
}

#[test]
fn a_cable_that_is_out_for_a_while_costs_nothing() {
    if !may_be("hosts::a_cable_that_is_out_for_a_while_costs_nothing") {
        return;
    }
    let cluster = Cluster::start(2, 1);
    let counts = "i=0; while [ $i -lt 80 ]; do i=$((i+1)); echo $i; sleep 0.1; done";
    let running = script(&cluster, 0, "-q -n 4", counts);
    cluster.wait_for("running", 1);
    cluster.cable(1, false);
    // Nothing new goes there, nothing is freed.
    eventually(BOUND, "the host is suspect", || cluster.states()[1] == "suspect");
    assert_eq!(cluster.wait_for("running", 1).len(), 1);
    std::thread::sleep(Duration::from_millis(500));
    cluster.cable(1, true);
    let run = running.wait(BOUND).expect(0);
    let mut expected: Vec<String> = (1..=80).flat_map(|i| vec![i.to_string(); 4]).collect();
    expected.sort();
    assert_eq!(run.sorted(), expected);
    cluster.wait_until_up();
}

/// psched and an apinit hang up on each other when they hear nothing, long before any network says so.
#[test]
fn who_stands_still_is_hung_up_on() {
    if !may_be("hosts::who_stands_still_is_hung_up_on") {
        return;
    }
    let cluster = Cluster::start(3, 1);
    run(&mut cluster.command(0, "psmgr", words("set host_silence=6s"))).expect(0);
    let sleeps = script(&cluster, 0, "-q -n 6", "read line; exec sleep 1000");
    let apid = cluster.wait_for("running", 1)[0];
    cluster.stand_still(Some(1), true);
    let silent = "it was silent for 6s (host_silence)";
    eventually(BOUND, "psched hangs up", || cluster.said("psched").contains(silent));
    assert_eq!(cluster.states()[1], "suspect");
    assert_eq!(cluster.wait_for("running", 1), [apid]);
    cluster.stand_still(Some(1), false);
    eventually(BOUND, "it is back", || !cluster.states().contains(&"suspect".to_owned()));
    cluster.stand_still(None, true);
    let silent = "psched was silent for 6s (host_silence)";
    eventually(BOUND, "apinit hangs up", || cluster.said("2").contains(silent));
    cluster.stand_still(None, false);
    eventually(BOUND, "all are back", || !cluster.states().contains(&"suspect".to_owned()));
    run(&mut cluster.command(2, "apkill", ["-9", &apid.to_string()])).expect(0);
    sleeps.wait(BOUND).expect(137);
    cluster.wait_until_up();
}

/// Hosts need not share the file of a program, also without copies of it (-b): what counts are its bytes.
#[test]
fn each_host_may_have_a_copy_of_its_own() {
    if !may_be("hosts::each_host_may_have_a_copy_of_its_own") {
        return;
    }
    let cluster = Cluster::start(3, 1);
    let program = "/run/own/program";
    let at = |host: usize| cluster.root(host).join(&program[1..]);
    for host in 0..3 {
        std::fs::create_dir(at(host).parent().expect("a folder")).expect("made");
        copy_program("/bin/hostname", at(host));
    }
    let aprun = |options: &str| {
        let arguments = words(options).chain([program]);
        run(&mut cluster.command(1, "aprun", arguments))
    };
    assert_eq!(aprun("-b -q -n 3 -N 1").expect(0).sorted(), ["h0", "h1", "h2"]);
    // Of several programs each is looked at.
    let arguments = words("-b -q -n 2 -N 1 true : -n 1").chain([program]);
    assert_eq!(run(&mut cluster.command(1, "aprun", arguments)).expect(0).sorted(), ["h2"]);
    // Another program of that name, as long, is not executed; nor is none.
    let mut bytes = std::fs::read(at(2)).expect("read");
    *bytes.last_mut().expect("it has bytes") ^= 1;
    write_program(at(2), &bytes, 0o755);
    let refused = aprun("-b -q -n 3 -N 1");
    assert_eq!(refused.status, 126, "{refused:?}");
    let why = "/run/own/program on host h2 is not the file that was posted: copy it there";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    std::fs::remove_file(at(2)).expect("removed");
    let missing = aprun("-b -q -n 3 -N 1");
    assert_eq!(missing.status, 127, "{missing:?}");
    assert!(missing.stderr.contains("/run/own/program: No such file"), "{}", missing.stderr);
    assert_eq!(aprun("-b -q -n 2 -N 1").expect(0).sorted(), ["h0", "h1"]);
    // With copies nothing is missing.
    assert_eq!(aprun("-q -n 3 -N 1").expect(0).sorted(), ["h0", "h1", "h2"]);
}

#[test]
fn a_revoked_host_is_out_of_the_cluster() {
    if !may_be("hosts::a_revoked_host_is_out_of_the_cluster") {
        return;
    }
    let cluster = Cluster::start(2, 1);
    cluster.certs("revoke h1").expect(0);
    eventually(BOUND, "its node is suspect", || cluster.states() == ["free", "suspect"]);
    eventually(BOUND, "it is told why", || cluster.said("1").contains("has been revoked"));
    eventually(BOUND, "psched says why", || cluster.said("psched").contains("has been revoked"));
    let nodes = run(&mut cluster.command(0, "apstat", words("-n"))).expect(0);
    let why = "the certificate of h1 was revoked";
    assert!(nodes.out().contains(why), "{nodes:?}");
    let waits = script(&cluster, 0, "-q -n 4", "true");
    let apid = cluster.wait_for("posted", 1)[0].to_string();
    let told = run(&mut cluster.command(0, "apstat", ["--why", &apid])).expect(0);
    assert!(told.out().contains(why), "{told:?}");
    // It gets another certificate.
    cluster.certs("host h1 --role node,login").expect(0);
    cluster.copy_certificates(1);
    cluster.wait_until_up();
    waits.wait(BOUND).expect(0);
    script(&cluster, 1, "-q -n 4", "true").wait(BOUND).expect(0);
}

/// With a fan-out of 2 the first host speaks with the third through the second. The apinits of these are killed while
/// PEs write, are interrupted and end: it is as if nothing had been between.
#[test]
fn a_host_on_the_way_to_others_is_lost_alone() {
    if !may_be("hosts::a_host_on_the_way_to_others_is_lost_alone") {
        return;
    }
    let mut cluster = Cluster::start(4, 1);
    run(&mut cluster.command(0, "psmgr", words("set fan_out=2"))).expect(0);
    let counts = "trap 'echo told' USR1; i=0; \
                  while [ $i -lt 40 ]; do i=$((i+1)); echo $i; sleep 0.1; done";
    let printed = cluster.folder().join("printed");
    let mut command = cluster.command(3, "aprun", words("-q -n 8 sh -c").chain([counts]));
    command.stdout(std::fs::File::create(&printed).expect("made")).stderr(Stdio::null());
    let mut aprun = command.spawn().expect("it starts");
    let lines = || -> Vec<String> {
        let text = std::fs::read_to_string(&printed).expect("read");
        text.lines().map(str::to_owned).collect()
    };
    let apid = cluster.wait_for("running", 1)[0].to_string();
    // The second host has a connection to the third, and the first has none.
    let to_third = |host: usize| {
        let mut ss = cluster.on(host, "ss".as_ref());
        let third = format!("{NETWORK}.3:7118");
        ss.args(["-Htn", "state", "established", "dst", &third]);
        !run(&mut ss).expect(0).out().trim().is_empty()
    };
    eventually(BOUND, "the second host leads on", || to_third(1));
    assert!(!to_third(0), "the first host speaks with the third itself");
    for (killed, told) in [(1, 1), (2, 2)] {
        cluster.kill_apinit(killed);
        run(&mut cluster.command(0, "apkill", ["-s", "USR1", &apid])).expect(0);
        cluster.start_apinit(killed, 1);
        eventually(BOUND, "everybody is told", || {
            lines().iter().filter(|line| *line == "told").count() >= 8 * told
        });
    }
    eventually(BOUND, "it ends", || aprun.try_wait().expect("asked").is_some());
    assert!(aprun.wait().expect("reaped").success());
    let mut expected: Vec<String> = (1..=40).flat_map(|i| vec![i.to_string(); 8]).collect();
    expected.extend(vec!["told".to_owned(); 16]);
    expected.sort();
    let mut lines = lines();
    lines.sort();
    assert_eq!(lines, expected);
    cluster.wait_until_up();
}

/// A user who names hosts that do not answer has few attempts at once, and delays no other user.
#[test]
fn hosts_that_do_not_answer_hold_nobody_up() {
    if !may_be("hosts::hosts_that_do_not_answer_hold_nobody_up") {
        return;
    }
    let cluster = Cluster::start(2, 1);
    let socket = cluster.root(1).join("run/psched/relay.sock");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
    let attach = |socket: std::path::PathBuf, n: usize| async move {
        let channel = psched::rpc::connect::connect(&socket).await.expect("connected");
        let mut request = tonic::Request::new(tokio_stream::pending());
        let head = format!("h9 10.77.0.{}:7118", 100 + n);
        request.metadata_mut().insert("psched-head", head.parse().expect("a header"));
        let mut client = psched::rpc::pb::apinit_client::ApinitClient::new(channel);
        client.attach(request).await.map(drop).expect_err("there is no such host")
    };
    let refused = runtime.block_on(async {
        let asked: Vec<_> = (0..20).map(|n| tokio::spawn(attach(socket.clone(), n))).collect();
        // Meanwhile everything works.
        let aprun = tokio::task::spawn_blocking(move || {
            let bins = Bins::new();
            let mut aprun = cluster.of_user(1, ANNA.uid, &bins.path("aprun"));
            let run = run(aprun.args(words("-q -n 4 echo here"))).expect(0);
            (run.sorted(), cluster)
        });
        let (lines, _cluster) = aprun.await.expect("it ran");
        assert_eq!(lines, ["here"; 4]);
        let mut said = Vec::new();
        for one in asked {
            said.push(one.await.expect("answered").message().to_owned());
        }
        said
    });
    let busy = refused.iter().filter(|text| text.contains("other hosts have not answered you"));
    assert_eq!(busy.count(), 12, "{refused:?}");
    let away = refused.iter().filter(|text| text.contains("h9 can't be reached from this host"));
    assert_eq!(away.count(), 8, "{refused:?}");
}

/// Clocks of the hosts are hours apart; each knows psched's within the time that a question takes.
#[test]
fn hosts_know_the_clock_of_psched_and_programs_take_turns_on_all_of_them() {
    if !may_be("hosts::hosts_know_the_clock_of_psched_and_programs_take_turns_on_all_of_them") {
        return;
    }
    let cluster = Cluster::start(4, 1);
    let view = || {
        let run = run(&mut cluster.command(0, "psview", ["--json"])).expect(0);
        serde_json::from_slice::<serde_json::Value>(&run.stdout).expect("JSON")
    };
    let errors = || -> Vec<u64> {
        let nodes = view()["nodes"].as_array().expect("a list").clone();
        nodes.iter().map(|node| node["clock_error_ns"].as_u64().expect("a number")).collect()
    };
    eventually(BOUND, "every host knows the clock of psched", || {
        let errors = errors();
        errors[0] == 0 && errors[1..].iter().all(|error| (1..20_000_000).contains(error))
    });
    run(&mut cluster.command(
        0,
        "psmgr",
        words("set application.time_slice=50ms application.max_resident=2"),
    ))
    .expect(0);
    // Two programs that want all processors of all hosts take turns.
    let start = |from: usize| {
        let count = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); sleep 0.05; done; echo $i";
        script(&cluster, from, "-q -n 8", count)
    };
    let (one, two) = (start(1), start(2));
    cluster.wait_for("running", 2);
    for run in [one, two].map(|running| running.wait(BOUND).expect(0)) {
        assert_eq!(run.sorted(), ["40"; 8]);
    }
    let all = view()["changes"]["all"].clone();
    assert!(all["switches"].as_u64().is_some_and(|changes| changes > 10), "{all}");
    // (The processors of all hosts are those of this machine, so that little can be said of times.)
    let skew = all["skew"]["median_ns"].as_u64().expect("a number");
    assert!(skew < 20_000_000, "changes of party are off by {skew} ns");
}

/// It gives right answers on every run, and ends by itself on one of a few.
///
/// (MPICH 4.0.2 of Debian 12, with UCX 1.13, does not end on every run if its ranks talk by TCP: most
/// ranks wait in MPI_Finalize for a barrier of PMI, in which they answer no other rank, and the rest
/// waits for such a rank, in `ucp_worker_progress`. Its own mpiexec.hydra hangs as well, on one host
/// too if UCX_TLS is tcp. MPICH 5.0.2 has not shown it, by UCX or by libfabric.)
#[test]
fn an_mpi_program_runs_on_two_hosts() {
    let test = "hosts::an_mpi_program_runs_on_two_hosts";
    if !may_be(test) {
        return;
    }
    let Some(ring) = mpi::program(test, "ring") else { return };
    let cluster = Cluster::start(2, 1);
    let printed = cluster.folder().join("printed");
    // With two ranks it ends on nearly every run.
    for (n, options, shared, ends) in [(4, "-q -n 4", 2, false), (2, "-q -n 2 -N 1", 1, true)] {
        let sum = n * (n + 1) / 2;
        let expected: Vec<String> =
            (0..n).map(|r| format!("rank {r} of {n} appnum 0 sum {sum} shared {shared}")).collect();
        let ended = (0..10).any(|_| {
            let mut command = cluster.command(0, "aprun", words(options));
            let file = std::fs::File::create(&printed).expect("made");
            let mut aprun =
                command.arg(&ring).stdout(file).stderr(Stdio::null()).spawn().expect("it starts");
            eventually(BOUND, &format!("{options}: every rank is right"), || {
                let text = std::fs::read_to_string(&printed).unwrap_or_default();
                let mut lines: Vec<&str> = text.lines().collect();
                lines.sort_unstable();
                lines == expected
            });
            let until = std::time::Instant::now() + Duration::from_secs(5);
            while std::time::Instant::now() < until {
                if let Some(status) = aprun.try_wait().expect("asked") {
                    assert!(status.success(), "{options}: {status}");
                    return true;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            // (It may have ended in this moment.)
            for row in cluster.apstat("-a")["applications"].as_array().expect("a list") {
                run(&mut cluster.command(0, "apkill", ["-9", &row["apid"].to_string()]));
            }
            aprun.wait().expect("reaped");
            !ends
        });
        assert!(ended, "{options}: has not ended by itself on ten runs");
        cluster.wait_until_up();
    }
}

/// Programs of mpirun name their hosts, and those of torchrun meet at rank 0's address and port.
#[test]
fn lists_of_hosts_and_the_rendezvous_hold_on_two_hosts() {
    let test = "hosts::lists_of_hosts_and_the_rendezvous_hold_on_two_hosts";
    if !may_be(test) {
        return;
    }
    let cluster = Cluster::start(3, 1);
    let hosts = cluster.folder().join("hosts");
    std::fs::write(&hosts, "h0 slots=2\nh1 slots=2\n").expect("written");
    let file = format!("-hostfile {} -np 4", hosts.display());
    let nodes = |options: &str| {
        let line = words(options).chain(["sh", "-c", "echo $NODE_RANK"]);
        run(&mut cluster.command(0, "mpirun", line)).expect(0).sorted()
    };
    for options in ["-host h0,h1 -np 4", "-hosts h[0-1] -n 4", &file] {
        assert_eq!(nodes(options), ["0", "0", "1", "1"], "{options}");
    }
    let names = |options: &str| {
        let hostname = words(options).chain(["uname", "-n"]);
        run(&mut cluster.command(0, "mpirun", hostname)).expect(0).sorted()
    };
    assert_eq!(names("-host h1 -np 2"), ["h1", "h1"]);
    assert_eq!(names("-host localhost -np 2"), ["h0", "h0"]);
    let meet = "import os, socket, time; place = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n\
                if os.environ['RANK'] == '0':\n    \
                    with socket.create_server(place) as door: peer, _ = door.accept()\n    \
                    print(peer.recv(9).decode())\n\
                else:\n    \
                    while True:\n        \
                        try: socket.create_connection(place).sendall(b'met'); break\n        \
                        except OSError: time.sleep(0.05)";
    // (The name of psched's own host, which stands for rank 0's there, is known to no resolver of these.)
    let line = words("-q -n 2 -N 1 -host h1,h2 python3 -c").chain([meet]);
    assert_eq!(run(&mut cluster.command(0, "aprun", line)).expect(0).out(), "met\n");
}

/// It is the apinit of the user's host that looks, and gates of regions go by it.
#[test]
fn a_terminal_on_another_host_is_one() {
    if !may_be("hosts::a_terminal_on_another_host_is_one") {
        return;
    }
    let program = |name: &str| Command::new(name).arg("--version").output().is_ok();
    if !program("script") || !program("setsid") {
        return skip(
            "hosts::a_terminal_on_another_host_is_one",
            "script and setsid are not installed (apt-get install bsdutils util-linux)",
        );
    }
    let mut cluster = Cluster::new(2, 1);
    let config = cluster.folder().join("psched.yaml");
    let regions = "regions:\n  - { name: day, nids: 0, gates: { mode: interactive } }\n  \
                   - { name: night, nids: 1, gates: { mode: batch } }\n";
    let text = std::fs::read_to_string(&config).expect("written") + regions;
    std::fs::write(&config, text).expect("written");
    cluster.certify();
    cluster.start_psched();
    cluster.start_apinit(0, 1);
    cluster.start_apinit(1, 1);
    cluster.wait_until_up();
    let aprun = binaries().join("aprun");
    for from in [1, 0] {
        let line = format!("{} -q -n 1 hostname", aprun.display());
        let mut terminal = cluster.on(from, "script".as_ref());
        let shown = run(terminal.args(["-qec", &line, "/dev/null"])).expect(0).out();
        assert_eq!(shown.trim(), "h0", "with a terminal, from h{from}");
        let mut none = cluster.on(from, "setsid".as_ref());
        let shown = run(none.arg("-w").arg(&aprun).args(words("-q -n 1 hostname")));
        assert_eq!(shown.expect(0).out().trim(), "h1", "without one, from h{from}");
    }
}

/// psched is restarted, or the network is: a command of a login host is not connected with psched, but with the
/// apinit there.
#[test]
fn a_command_on_another_host_asks_again() {
    if !may_be("hosts::a_command_on_another_host_asks_again") {
        return;
    }
    let mut cluster = Cluster::start(2, 1);
    let sleeps = script(&cluster, 1, "-q -n 1", "exec sleep 1000");
    let apid = cluster.wait_for("running", 1)[0].to_string();
    run(&mut cluster.command(1, "apstat", words(""))).expect(0);
    cluster.kill_psched();
    let began = Instant::now();
    let away = run(&mut cluster.command(1, "apstat", words("-n"))).expect(1);
    assert!(began.elapsed() >= Duration::from_secs(3), "it gave up at once: {away:?}");
    assert!(away.stderr.contains("can't be reached from this host"), "{}", away.stderr);
    let lines = ["apstat -n", "psview", "psmgr show", "psmgr set kill_grace=3s", "snflv"];
    let mut asked: Vec<Running> = Vec::new();
    let kill = format!("apkill -9 {apid}");
    for line in lines.into_iter().chain([&*kill]) {
        let mut words = words(line);
        let name = words.next().expect("a program").to_owned();
        asked.push(Running::start(&mut cluster.command(1, &name, words)));
    }
    cluster.start_psched();
    for running in asked {
        running.wait(BOUND).expect(0);
    }
    sleeps.wait(BOUND).expect(137);
    cluster.wait_until_up();
}

#[test]
fn a_host_stands_for_its_nodes() {
    if !may_be("hosts::a_host_stands_for_its_nodes") {
        return;
    }
    let cluster = Cluster::start(3, 2);
    let at = |from: usize, options: &str| {
        let run = script(&cluster, from, options, "hostname").wait(BOUND);
        (run.status, run.sorted(), run.stderr)
    };
    let on = |hosts: &[&str]| (0, hosts.iter().map(|h| (*h).to_owned()).collect(), String::new());
    assert_eq!(at(1, "-q -n 8 -L h2,h1"), on(&["h1", "h1", "h1", "h1", "h2", "h2", "h2", "h2"]));
    assert_eq!(at(0, "-q -n 4 -E h[0-1]"), on(&["h2", "h2", "h2", "h2"]));
    let (status, _, said) = at(0, "-q -n 1 -L h1,h7");
    assert_eq!(status, 125);
    let unknown = "psched.yaml has no node on a host \"h7\"";
    assert!(said.contains(&format!("aprun: -L: {unknown}")), "{said}");
    let psmgr = |line: &str| run(&mut cluster.command(1, "psmgr", words(line)));
    psmgr("drain h1,0 new disks").expect(0);
    let states = ["drained", "free", "drained", "drained", "free", "free"];
    assert_eq!(cluster.states(), states);
    let refused = psmgr("resume h[1-7]").expect(1);
    assert!(refused.stderr.contains("no node on a host \"h3\""), "{}", refused.stderr);
    assert_eq!(cluster.states(), states);
    psmgr("resume 0-3").expect(0);
    cluster.wait_until_up();
}

/// The name is that of psched's host: only it has one for this user.
#[test]
fn the_last_lines_name_the_user_who_has_killed_it() {
    if !may_be("hosts::the_last_lines_name_the_user_who_has_killed_it") {
        return;
    }
    let cluster = Cluster::start(2, 1);
    let bins = Bins::new();
    let mut aprun = cluster.of_user(1, 4_000, &bins.path("aprun"));
    let sleeps = Running::start(aprun.args(words("-n 1 sleep 1000")));
    let apid = cluster.wait_for("running", 1)[0];
    let mut kill = cluster.of_user(1, 4_000, &bins.path("apkill"));
    run(kill.args(["-9", &apid.to_string()])).expect(0);
    let ended = sleeps.wait(BOUND).expect(137);
    let line = format!("aprun: Apid {apid}: killed by only0: Killed (signal 9)");
    assert!(ended.stderr.contains(&line), "{}", ended.stderr);
}

/// Each of them tells of its own PEs.
#[test]
fn one_line_tells_of_an_interrupt_on_all_hosts() {
    if !may_be("hosts::one_line_tells_of_an_interrupt_on_all_hosts") {
        return;
    }
    let cluster = Cluster::start(3, 1);
    let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a folder");
    let out = folder.path().join("out");
    let options = format!("-n 6 --output {}", out.display());
    let runs = script(&cluster, 1, &options, "echo here; exec sleep 1000");
    // (Before its aprun has heard of PEs that go, a ^C withdraws it.)
    let told = || std::fs::read_to_string(&out).unwrap_or_default();
    eventually(BOUND, "aprun hears all PEs", || told().lines().count() == 6);
    runs.signal(2);
    let ended = runs.wait(BOUND).expect(130);
    let died = ended.stderr.lines().filter(|line| line.contains("died: Interrupt")).count();
    assert_eq!(died, 1, "{}", ended.stderr);
}
