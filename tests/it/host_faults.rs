//! Faults of whole hosts of a cluster: a second psched on the same records, a psched that comes back to half of the
//! hosts, a host that is revoked under its applications, and one that dies in the middle of a launch.

use crate::support::hosts::{Cluster, may_be};
use crate::support::*;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A shell script on each of so many PEs, from a host.
fn script(cluster: &Cluster, host: usize, options: &str, script: &str) -> Running {
    let arguments = words(options).chain(["sh", "-c", script]);
    Running::start(&mut cluster.command(host, "aprun", arguments))
}

fn psmgr(cluster: &Cluster, line: &str) -> Run {
    run(&mut cluster.command(0, "psmgr", words(line)))
}

fn touch(cluster: &Cluster, name: &str) {
    std::fs::write(cluster.folder().join(name), "").expect("written");
}

/// Each PE says so in a file of its own, waits for the file, and says a line.
fn waits(cluster: &Cluster, name: &str) -> String {
    let folder = cluster.folder().display();
    format!(
        "touch {folder}/up-{name}.$ALPS_APP_PE; until [ -e {folder}/{name} ]; do sleep 0.01; done; \
         echo {name}"
    )
}

#[track_caller]
fn wait_until_begun(cluster: &Cluster, name: &str, pes: u32) {
    eventually(BOUND, &format!("all PEs of {name} have begun"), || {
        (0..pes).all(|pe| cluster.folder().join(format!("up-{name}.{pe}")).exists())
    });
}

/// No process of an application is left on these hosts, and psched has none on record.
#[track_caller]
pub fn nothing_is_left(cluster: &Cluster, hosts: impl Iterator<Item = usize>) {
    for host in hosts {
        let mut left = Vec::new();
        let until = Instant::now() + BOUND;
        while Instant::now() < until {
            left = cluster.others(host);
            if left.is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(left.is_empty(), "still on h{host}: {left:?}");
    }
    eventually(BOUND, "no application is on record", || {
        cluster.apstat("")["applications"].as_array().expect("a list").is_empty()
    });
}

/// On the host of the first psched and on another one: it is refused, says why, and the first one does not notice.
#[test]
fn a_second_psched_on_the_same_records_is_refused() {
    if !may_be("host_faults::a_second_psched_on_the_same_records_is_refused") {
        return;
    }
    let cluster = Cluster::start(2, 1);
    let runs = script(&cluster, 1, "-q -n 4 -N 2", &waits(&cluster, "runs"));
    wait_until_begun(&cluster, "runs", 4);
    let waiting = script(&cluster, 1, "-q -n 4 -F exclusive", "echo second");
    cluster.wait_for("posted", 1);
    let own = cluster.folder().join("psched.yaml");
    // The same, but for addresses of its own: nothing but the records keeps it off.
    let text = std::fs::read_to_string(&own).expect("read");
    let other = cluster.folder().join("other.yaml");
    let lines = text.lines().filter(|line| !line.starts_with("network:"));
    let lines = lines.map(|line| line.replace("/run/psched/psched.sock", "/run/psched/other.sock"));
    std::fs::write(&other, lines.collect::<Vec<_>>().join("\n") + "\n").expect("written");
    for (host, config) in [(0, &own), (0, &other), (1, &other)] {
        let mut command =
            cluster.command(host, "psched", [OsStr::new("--config"), config.as_os_str()]);
        let refused = Running::start(&mut command).wait(BOUND);
        assert_ne!(refused.status, 0, "{refused:?}");
        assert!(refused.stderr.contains("is in use by another psched"), "{}", refused.stderr);
        assert_eq!(cluster.apstat("")["applications"].as_array().map(Vec::len), Some(2));
    }
    touch(&cluster, "runs");
    assert_eq!(runs.wait(BOUND).expect(0).sorted(), ["runs"; 4]);
    assert_eq!(waiting.wait(BOUND).expect(0).sorted(), ["second"; 4]);
    cluster.wait_until_up();
    nothing_is_left(&cluster, 0..2);
}

/// psched comes back when half of the hosts are gone. What runs there is neither lost nor given up, and an aprun of a
/// login host that waits for its turn waits on.
#[test]
fn a_psched_that_comes_back_to_half_of_the_hosts_loses_nothing() {
    if !may_be("host_faults::a_psched_that_comes_back_to_half_of_the_hosts_loses_nothing") {
        return;
    }
    let mut cluster = Cluster::start(4, 1);
    let runs = script(&cluster, 0, "-q -n 8 -F exclusive", &waits(&cluster, "runs"));
    wait_until_begun(&cluster, "runs", 8);
    let mut waiting = script(&cluster, 3, "-q -n 8 -F exclusive", "hostname");
    cluster.wait_for("posted", 1);
    cluster.kill_psched();
    for host in [1, 2] {
        cluster.cable(host, false);
    }
    cluster.start_psched();
    eventually(BOUND, "half of the hosts are there", || {
        let states = cluster.states();
        let gone = |nid: usize| states[nid] == "suspect";
        gone(1) && gone(2) && !gone(0) && !gone(3)
    });
    assert_eq!(cluster.wait_for("posted", 1).len(), 1);
    // One that fits on those that are there is not held up. (It takes turns with nobody: it waits too.)
    let third = script(&cluster, 3, "-q -n 2 --immediate", "true").wait(BOUND);
    assert_ne!(third.status, 0, "processors were given twice: {third:?}");
    assert!(waiting.runs());
    // A host comes back with a killed apinit, one as it was.
    cluster.kill_apinit(1);
    for host in [1, 2] {
        cluster.cable(host, true);
    }
    cluster.start_apinit(1, 1);
    touch(&cluster, "runs");
    assert_eq!(runs.wait(BOUND).expect(0).sorted(), ["runs"; 8]);
    let expected: Vec<String> = (0..4).flat_map(|host| vec![format!("h{host}"); 2]).collect();
    assert_eq!(waiting.wait(BOUND).expect(0).sorted(), expected);
    cluster.wait_until_up();
    nothing_is_left(&cluster, 0..4);
}

/// A revoked host is out; what runs there is neither lost nor given away until an administrator says so, and then
/// named. What others run and wait for goes on.
#[test]
fn a_host_is_revoked_under_its_applications() {
    if !may_be("host_faults::a_host_is_revoked_under_its_applications") {
        return;
    }
    let cluster = Cluster::start(3, 1);
    let own = script(&cluster, 0, "-n 2 -L 1", &waits(&cluster, "own"));
    wait_until_begun(&cluster, "own", 2);
    let spread = script(&cluster, 0, "-n 2 -N 1 --flexible -L 0,2", &waits(&cluster, "spread"));
    wait_until_begun(&cluster, "spread", 2);
    let waiting = script(&cluster, 2, "-q -n 4 --flexible -L 0,2 -F exclusive", "hostname");
    let wide = script(&cluster, 2, "-n 6 -F exclusive", "echo wide");
    cluster.wait_for("posted", 2);
    cluster.certs("revoke h1").expect(0);
    cluster.copy_certificates(2);
    eventually(BOUND, "its node is suspect", || cluster.states()[1] == "suspect");
    let why = "(host h1) has gone: the certificate of its host has been revoked";
    eventually(BOUND, "the log says why", || cluster.said("psched").contains(why));
    // The others are not concerned.
    touch(&cluster, "spread");
    assert_eq!(spread.wait(BOUND).expect(0).sorted(), ["spread"; 2]);
    assert_eq!(waiting.wait(BOUND).expect(0).sorted(), ["h0", "h0", "h2", "h2"]);
    // What is on the host still holds it.
    assert_eq!(cluster.wait_for("running", 1).len(), 1);
    assert_eq!(cluster.wait_for("posted", 1).len(), 1);
    psmgr(&cluster, "down 1 stolen").expect(0);
    let lost = own.wait(BOUND);
    assert_eq!(lost.status, 125, "{lost:?}");
    assert!(lost.stderr.contains("NID 1"), "{}", lost.stderr);
    // And the wide one is told that it can't be, or waits until the host is back with another certificate.
    cluster.certs("host h1 --role node,login").expect(0);
    cluster.copy_certificates(1);
    psmgr(&cluster, "resume 1").expect(0);
    let run = wide.wait(BOUND).expect(0);
    assert_eq!(run.sorted(), ["wide"; 6], "{}", run.stderr);
    cluster.wait_until_up();
    nothing_is_left(&cluster, 0..3);
}

/// Whether an apinit that is started again on a host would find an application there.
fn is_on_record(cluster: &Cluster, host: usize) -> bool {
    let below = |folder: &Path| -> Vec<PathBuf> {
        listing(folder).into_iter().map(|name| folder.join(name)).collect()
    };
    let runtime = below(&cluster.root(host).join("run/psched"));
    runtime.iter().flat_map(|folder| below(folder)).any(|app| app.join("place").exists())
}

/// An application of all five hosts, in whose launch the second host dies, with its apinit and all that it had. `held`
/// holds the launch up, its apinit being stopped, until `until` says of the processes of the second host that it has come
/// as far as it is to come.
#[track_caller]
fn dies_in_a_launch(
    cluster: &mut Cluster,
    name: &str,
    held: usize,
    until: impl Fn(&[(i32, String)]) -> bool,
) -> Run {
    let folder = cluster.folder().display();
    // (Which PE has run is seen from outside, and none runs twice.)
    let once = format!("mkdir {folder}/{name}.$ALPS_APP_PE || exit 9; echo $ALPS_APP_PE");
    cluster.stand_still(Some(held), true);
    let aprun = script(cluster, 0, "-n 10", &once);
    // (Its apshepherd is there a moment before its apinit has the application on record. An apinit
    // that is started again without that record is given the place once more, and the launch goes
    // on.)
    eventually(BOUND, "the launch has come to the second host", || {
        is_on_record(cluster, 1) && until(&cluster.others(1))
    });
    cluster.kill_apinit(1);
    for (pid, _) in cluster.others(1) {
        kill(pid, 9);
    }
    cluster.stand_still(Some(held), false);
    cluster.start_apinit(1, 1);
    let run = aprun.wait(BOUND);
    cluster.wait_until_up();
    nothing_is_left(cluster, 0..5);
    run
}

/// The PEs that have run, by their names there.
fn ran(cluster: &Cluster, name: &str) -> usize {
    let mark = format!("{name}.");
    let all = listing(cluster.folder()).into_iter();
    all.filter(|file| file.to_string_lossy().starts_with(&mark)).count()
}

/// With a fan-out of 2 the third and the fourth host are reached through others. One of these dies while a launch is on
/// its way: no PE of the application runs. Its apshepherd is gone with the host, which may have let its PEs run, and there
/// is no other host for its part.
#[test]
fn a_host_on_the_way_dies_in_the_middle_of_a_launch() {
    if !may_be("host_faults::a_host_on_the_way_dies_in_the_middle_of_a_launch") {
        return;
    }
    let mut cluster = Cluster::start(5, 1);
    // (An apinit stands still until the launch has come so far, however long that takes: its
    // silence is not to end its connection before.)
    cluster.set("fan_out=2 host_silence=5m");
    let count =
        |all: &[(i32, String)], of: &str| all.iter().filter(|(_, line)| line.contains(of)).count();
    // The last host holds the launch up: its part does not become ready. On the second host both PEs have been exec'd,
    // and stand before their first instruction.
    let stand = |all: &[(i32, String)]| count(all, "sh -c mkdir") == 2;
    // The head holds it up: the second host knows its part, and has no PEs.
    let wait = |all: &[(i32, String)]| count(all, "apshepherd") == 1;
    /// Of the processes of a host: whether it is so.
    type Seen<'a> = &'a dyn Fn(&[(i32, String)]) -> bool;
    let points: [(&str, usize, Seen<'_>); 2] = [("launched", 4, &stand), ("placed", 0, &wait)];
    for (name, held, until) in points {
        let run = dies_in_a_launch(&mut cluster, name, held, until).expect(125);
        let named = ["NID 1", "NID 00001"].iter().any(|nid| run.stderr.contains(nid));
        assert!(named, "{name}: {}", run.stderr);
        assert_eq!((&*run.out(), ran(&cluster, name)), ("", 0), "{name}: {}", run.stderr);
    }
    let all = script(&cluster, 4, "-q -n 10 -F exclusive", "hostname").wait(BOUND).expect(0);
    assert_eq!(all.sorted().len(), 10);
}

/// An application of three hosts, started from the third, whose second host is lost: it ends on all of them, and says
/// why; `lost` gives the reason, `back` has the host come back.
fn an_application_ends_with_its_host(
    test: &str,
    reason: &str,
    lost: impl FnOnce(&mut Cluster),
    back: impl FnOnce(&mut Cluster),
) {
    if !may_be(test) {
        return;
    }
    let mut cluster = Cluster::start(3, 2);
    let mut aprun = script(&cluster, 2, "-n 6 --flexible -L 0,2,4", &waits(&cluster, "never"));
    wait_until_begun(&cluster, "never", 6);
    let apid = cluster.wait_for("running", 1)[0];
    let beside = script(&cluster, 0, "-q -n 2 -N 1 --flexible -L 1,5", &waits(&cluster, "beside"));
    cluster.wait_for("running", 2);
    assert!(aprun.runs());
    lost(&mut cluster);
    let ended = aprun.wait(BOUND).expect(125).says(reason);
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.contains(reason)).collect();
    assert!(lines.len() == 1 && lines[0].contains(&format!("Apid {apid}: ")), "{}", ended.stderr);
    assert_eq!(ended.out(), "");
    // The other hosts are there for others, and only for these.
    touch(&cluster, "beside");
    assert_eq!(beside.wait(BOUND).expect(0).sorted(), ["beside"; 2]);
    nothing_is_left(&cluster, [0, 2].into_iter());
    back(&mut cluster);
    cluster.wait_until_up();
    nothing_is_left(&cluster, 0..3);
    let all = script(&cluster, 1, "-q -n 12 -F exclusive", "hostname").wait(BOUND).expect(0);
    assert_eq!(all.sorted(), ["h0", "h1", "h2"].map(|host| [host; 4]).concat());
    let history = run(&mut cluster.command(0, "apstat", ["--history"])).expect(0).out();
    assert!(history.contains(reason.rsplit(": ").next().expect("some")), "{history}");
}

/// It comes back with another boot: nothing of what it had is there any more.
#[test]
fn an_application_of_several_hosts_ends_with_the_boot_of_one() {
    an_application_ends_with_its_host(
        "host_faults::an_application_of_several_hosts_ends_with_the_boot_of_one",
        "the node (host h1) lost the application: its host was restarted",
        |cluster| {
            cluster.loses_power(1);
            eventually(BOUND, "the host is suspect", || cluster.states()[2] == "suspect");
            assert_eq!(cluster.wait_for("running", 2).len(), 2, "by silence alone");
            cluster.boots_anew(1);
            cluster.start_apinit(1, 2);
        },
        |_| (),
    );
}

/// It is cut off, and declared down: its PEs run until the cable is back.
#[test]
fn an_application_of_several_hosts_ends_with_one_that_is_declared_down() {
    an_application_ends_with_its_host(
        "host_faults::an_application_of_several_hosts_ends_with_one_that_is_declared_down",
        "the node (host h1) lost the application: it was declared down by root: no power",
        |cluster| {
            cluster.cable(1, false);
            eventually(BOUND, "the host is suspect", || cluster.states()[2] == "suspect");
            assert_eq!(cluster.wait_for("running", 2).len(), 2, "by silence alone");
            psmgr(cluster, "down 2-3 no power").expect(0);
        },
        |cluster| {
            assert!(!cluster.others(1).is_empty(), "it has ended without being told");
            cluster.cable(1, true);
            psmgr(cluster, "resume 2-3").expect(0);
        },
    );
}
