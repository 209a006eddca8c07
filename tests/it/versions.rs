//! Daemons of two releases on one machine: an application outlives the upgrade of its apinit, and a
//! shepherd that is not understood does no harm and comes to none.

use crate::support::hosts::{Cluster, may_be};
use crate::support::machine::{Daemon, Machine, Way};
use crate::support::phases::{Flow, Kind, Meets};
use crate::support::release::Later;
use crate::support::*;
use psched::apteam::protocol::shepherd::PROTOCOL;
use std::path::Path;
use std::time::Duration;

/// An apinit and its apshepherd side by side, each of this release or the next.
struct Pair(tempfile::TempDir);

impl Pair {
    fn new(apinit: &Path, apshepherd: &Path) -> Pair {
        let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a folder");
        for (from, name) in [(apinit, "apinit"), (apshepherd, "apshepherd")] {
            let to = folder.path().join(name);
            if std::fs::hard_link(from.join(name), &to).is_err() {
                std::fs::copy(from.join(name), &to).expect("copied");
            }
        }
        Pair(folder)
    }
}

/// Later releases, unless they can't be made here.
fn later(test: &str) -> Option<&'static Later> {
    release::later().map_err(|why| skip(test, why)).ok()
}

/// kill -9 of the apinit of NID 0, and the one from this folder in its place.
fn replace_apinit(machine: &mut Machine, from: &Path) {
    if let Machine::Hand(hand) = machine {
        hand.upgrade_apinit(from.join("apinit"));
    }
    machine.kill(Daemon::Apinit(0), Duration::ZERO);
}

fn said(machine: &Machine) -> String {
    std::fs::read_to_string(machine.folder().join("log")).unwrap_or_default()
}

#[track_caller]
fn wait_until_up(machine: &Machine) {
    eventually(BOUND, "every node takes applications again", || {
        let all = machine.apstat("-n");
        all["nodes"].as_array().expect("a list").iter().all(|n| n["state"] != "suspect")
    });
}

/// Starts one that runs until it is let go: on NID 0, or on both.
#[track_caller]
fn start(machine: &Machine, spread: bool) -> Flow {
    Flow::running(machine, Kind { spread, meets: Meets::ByHand })
}

/// It ends as if nothing had been.
#[track_caller]
fn expect_good_end(machine: &Machine, mut flow: Flow) {
    flow.app_folders(machine);
    let ended = flow.ends_well(machine);
    machine.wait_until_clear(&ended.groups);
}

/// Its shepherd there.
fn shepherd(machine: &Machine, flow: &mut Flow) -> i32 {
    flow.app_folders(machine).iter().find_map(|app| app.shepherd()).expect("it runs")
}

#[test]
fn an_application_outlives_an_upgrade() {
    let test = "versions::an_application_outlives_an_upgrade";
    let Some(Later { next, .. }) = later(test) else { return };
    for spread in [false, true] {
        let mut machine = Machine::start(Way::ByHand);
        let flow = start(&machine, spread);
        replace_apinit(&mut machine, next);
        wait_until_up(&machine);
        let of = |release: &str| said(&machine).contains(&format!("of the {release} release"));
        // It has read in this release's hello what it does not say.
        assert!(of("first") && !of("next"), "{}", said(&machine));
        replace_apinit(&mut machine, next);
        expect_good_end(&machine, flow);
        // A new one has a shepherd of the new release; on the other node the old one is at work.
        expect_good_end(&machine, start(&machine, spread));
        assert!(said(&machine).contains("of the next release"), "{}", said(&machine));
        machine.end();
    }
}

/// apinit is of the next release, apshepherd not yet.
#[test]
fn a_shepherd_a_release_older_runs_applications() {
    let test = "versions::a_shepherd_a_release_older_runs_applications";
    let Some(Later { next, .. }) = later(test) else { return };
    let mixed = Pair::new(next, binaries());
    let mut machine = Machine::start(Way::ByHand);
    replace_apinit(&mut machine, mixed.0.path());
    wait_until_up(&machine);
    for spread in [false, true] {
        let flow = start(&machine, spread);
        replace_apinit(&mut machine, mixed.0.path());
        expect_good_end(&machine, flow);
    }
    assert!(!said(&machine).contains("of the next release"));
    let mut command = machine.command("aprun", ["-q", "-n", "2", "sh", "-c", "kill -SEGV $$"]);
    run(&mut command).expect(139);
    // What it would read of a launch of several programs is the first one; it is not given it. (The next
    // release asks for that in other words.)
    let mark = machine.folder().join("mark");
    let mark = mark.to_str().expect("text");
    // (Without --immediate it would be launched elsewhere.)
    for options in ["--immediate -n 1", "--immediate -n 1 -N 1"] {
        let line = words(options).chain(["touch", mark, ":", "touch", mark]);
        let run = run(&mut machine.command("aprun", line)).expect(125);
        run.says(
            "too old for applications of several programs: install the apshepherd of \
                  apinit's release",
        );
        assert!(!Path::new(mark).exists(), "no PE has gone");
        machine.wait_until_clear(&[]);
    }
    expect_good_end(&machine, start(&machine, false));
    machine.end();
}

/// One of the two was not installed.
#[test]
fn nothing_is_launched_with_a_newer_or_much_older_shepherd() {
    let test = "versions::nothing_is_launched_with_a_newer_or_much_older_shepherd";
    let Some(Later { next, much_later }) = later(test) else { return };
    let newer = (PROTOCOL + 1, "restart apinit from the apshepherd's release");
    let older = (PROTOCOL, "install the apshepherd of apinit's release");
    for (apinit, apshepherd, (version, cure)) in
        [(binaries(), next.as_path(), newer), (much_later, binaries(), older)]
    {
        let words = format!("it speaks version {version} of the shepherd protocol, this apinit ");
        let mixed = Pair::new(apinit, apshepherd);
        let mut machine = Machine::start(Way::ByHand);
        replace_apinit(&mut machine, mixed.0.path());
        wait_until_up(&machine);
        let mark = machine.folder().join("mark");
        // (Without --immediate it would be launched elsewhere.)
        for options in ["--immediate -n 2", "--immediate -n 2 -N 1"] {
            let program = ["touch", mark.to_str().expect("text")];
            let mut command =
                machine.command("aprun", crate::support::words(options).chain(program));
            run(&mut command).expect(125).says(&words).says(cure);
            assert!(!mark.exists(), "no PE has gone");
            machine.wait_until_clear(&[]);
            assert!(machine.apstat("-a")["applications"].as_array().is_some_and(Vec::is_empty));
        }
        replace_apinit(&mut machine, apshepherd);
        expect_good_end(&machine, start(&machine, true));
        machine.end();
    }
}

/// An upgrade over too many releases, or one that is taken back, while applications run.
#[test]
fn one_that_runs_and_is_not_understood_is_left_alone() {
    let test = "versions::one_that_runs_and_is_not_understood_is_left_alone";
    let Some(Later { next, much_later }) = later(test) else { return };
    for (from, to, version) in
        [(next.as_path(), binaries(), PROTOCOL + 1), (binaries(), much_later, PROTOCOL)]
    {
        let mut machine = Machine::start(Way::ByHand);
        replace_apinit(&mut machine, from);
        wait_until_up(&machine);
        let mut flow = start(&machine, false);
        let pid = shepherd(&machine, &mut flow);
        replace_apinit(&mut machine, to);
        wait_until_up(&machine);
        let words = format!("it speaks version {version} of the shepherd protocol");
        let note = "its apshepherd does not answer";
        let nodes = machine.apstat("-n").to_string();
        assert!(nodes.contains(note) && nodes.contains(&words), "{nodes}");
        assert!(said(&machine).contains(&words), "{}", said(&machine));
        // It has its processors still, and nobody else gets them.
        let waits = Running::start(&mut machine.command("aprun", ["-q", "-n", "4", "echo", "on"]));
        eventually(BOUND, "another waits", || {
            let all = machine.apstat("-a");
            let rows = all["applications"].as_array().expect("a list").iter();
            rows.filter_map(|row| row["state"].as_str()).collect::<Vec<_>>()
                == ["running", "posted"]
        });
        assert_eq!(shepherd(&machine, &mut flow), pid);
        eventually(BOUND, "its aprun is back, and told", || {
            said(&machine).matches("front end attached").count() >= 2
        });
        // It ends, and that keeps, until one comes that understands it.
        flow.let_go();
        replace_apinit(&mut machine, from);
        wait_until_up(&machine);
        let nodes = machine.apstat("-n").to_string();
        assert!(!nodes.contains(note), "{nodes}");
        let ended = flow.ends_well(&machine);
        assert!(ended.run.stderr.contains(&words), "its aprun is told: {}", ended.run.stderr);
        assert_eq!(waits.wait(BOUND).expect(0).out(), "on\n".repeat(4));
        machine.end();
    }
}

/// Whoever does not want to wait for that can end it.
#[test]
fn one_with_a_newer_shepherd_can_be_ended() {
    let test = "versions::one_with_a_newer_shepherd_can_be_ended";
    let Some(Later { next, .. }) = later(test) else { return };
    for spread in [false, true] {
        let mut machine = Machine::start(Way::ByHand);
        replace_apinit(&mut machine, next);
        wait_until_up(&machine);
        let mut flow = start(&machine, spread);
        flow.app_folders(&machine);
        replace_apinit(&mut machine, binaries());
        wait_until_up(&machine);
        let noted = || machine.apstat("-n").to_string().contains("its apshepherd does not answer");
        assert!(noted());
        let apid = machine.apstat("-a")["applications"][0]["apid"].to_string();
        run(&mut machine.command("apkill", [apid])).expect(0);
        eventually(BOUND, "its note goes with it", || !noted());
        let ended = flow.wait(&machine);
        assert_eq!(ended.run.status, 143, "{}", ended.run.stderr);
        machine.wait_until_clear(&ended.groups);
        expect_good_end(&machine, start(&machine, spread));
        machine.end();
    }
}

/// Such a one knows neither its part of a placement nor trees of hosts: among others that do, applications
/// are launched, take turns and end on it as on them, also those whose head it is.
#[test]
fn an_apinit_of_the_release_before_is_one_of_several_hosts() {
    let test = "versions::an_apinit_of_the_release_before_is_one_of_several_hosts";
    if !may_be(test) {
        return;
    }
    let Some(Later { much_later, .. }) = later(test) else { return };
    let mut cluster = Cluster::new(4, 1);
    cluster.certify();
    cluster.start_psched();
    for host in [0, 2, 3] {
        cluster.start_apinit(host, 1);
    }
    // Of a current one h3 would be led to through it.
    cluster.start_apinit_of(1, 1, much_later);
    cluster.wait_until_up();
    let command = |host: usize, name: &str, line: &str| cluster.command(host, name, words(line));
    let variables = "set fan_out=2 application.time_slice=20ms application.max_resident=8";
    run(&mut command(0, "psmgr", variables)).expect(0);
    let start = |host, options: &str, script: &str| {
        let line = words("-q").chain(words(options)).chain(["sh", "-c", script]);
        Running::start(&mut cluster.command(host, "aprun", line))
    };
    let counts = "i=0; while [ $i -lt 20 ]; do i=$((i+1)); sleep 0.02; done; echo $i";
    for _ in 0..3 {
        let all = [
            (0, "-n 8", 8),
            (1, "-n 8", 8),
            (2, "-n 4 -L 1,3 --flexible", 4),
            (3, "-n 2 -L 1", 2),
            (1, "-n 4 -L 2-3", 4),
        ];
        let runs = all.map(|(host, options, pes)| (start(host, options, counts), options, pes));
        for (running, options, pes) in runs {
            let ended = running.wait(BOUND).expect(0);
            assert_eq!(ended.sorted(), vec!["20"; pes], "{options}: {}", ended.stderr);
        }
    }
    let view = run(&mut command(0, "psview", "--json")).expect(0);
    let view: serde_json::Value = serde_json::from_slice(&view.stdout).expect("JSON");
    let changes = &view["changes"]["all"]["switches"];
    assert!(changes.as_u64().is_some_and(|changes| changes > 10), "{changes}");
    // All of much output comes, and what ends two at once.
    let writers = [0, 1].map(|host| start(host, "-n 8", "seq 2000"));
    for writer in writers {
        assert_eq!(writer.wait(BOUND).expect(0).out().lines().count(), 8 * 2000);
    }
    let stay =
        [(0, "-n 8"), (2, "-n 2 -L 1")].map(|(host, options)| start(host, options, "sleep 1000"));
    let apids = cluster.wait_for("running", 2);
    for apid in &apids {
        // It can't answer, and psched says so for its PEs; those of others have stacks, or why not.
        let told = run(&mut command(0, "apstat", &format!("--stacks {apid}")));
        let text = format!("{}{}", told.out(), told.stderr);
        assert!(text.contains("is of a release that does not know --stacks: upgrade"), "{text}");
    }
    for apid in apids {
        run(&mut command(3, "apkill", &format!("-9 {apid}"))).expect(0);
    }
    for running in stay {
        running.wait(BOUND).expect(137);
    }
    // It is upgraded when nothing runs there (its apshepherd is of another release).
    cluster.wait_until_up();
    cluster.kill_apinit(1);
    cluster.start_apinit(1, 1);
    cluster.wait_until_up();
    let line = words("-q -n 8 echo good");
    assert_eq!(run(&mut cluster.command(1, "aprun", line)).expect(0).sorted(), ["good"; 8]);
}
