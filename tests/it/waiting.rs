//! Postings that wait, and why.

use crate::support::hand::Hand;
use crate::support::*;
use std::time::Duration;

#[test]
fn a_full_machine_says_why() {
    let instance = instance(2, 2);
    let long = instance.start_script("-q -n 3", "exec sleep 1000");
    let holder = instance.wait_for("running", 1)[0];
    let run = instance.script("-q -n 2 --immediate", "true").expect(125);
    assert!(run.stderr.contains(&format!("application {holder}")), "{}", run.stderr);
    assert!(instance.apids("posted").is_empty());
    let waits = instance.start_script("-n 2", "echo done");
    let waiting = instance.wait_for("posted", 1)[0];
    let why = instance.run("apstat", ["--why", &waiting.to_string()]).expect(0);
    let text = why.out();
    assert!(text.contains("State:") && text.contains("posted"), "{text}");
    assert!(text.contains("Obstacle:"), "{text}");
    assert!(text.contains(&format!("application {holder}")), "{text}");
    // The same words in the list of those that wait.
    let pending = instance.apstat("-p");
    let words = pending["pending"][0]["why"].as_str().expect("words").to_owned();
    let obstacle = instance.apstat(&format!("--why {waiting}"));
    assert!(words.starts_with(obstacle["obstacle"].as_str().expect("words")), "{words}");
    // What still fits starts at once, past it.
    instance.script("-q -n 1 --immediate", "true").expect(0);
    // After two seconds aprun tells it by itself.
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    instance.run("apkill", ["-9", &holder.to_string()]).expect(0);
    long.wait(BOUND).expect(137);
    let run = waits
        .wait(BOUND)
        .expect(0)
        .says(&format!("waits for a place: 2 PEs need 2 processors; application {holder} of "));
    let run = run.says(&format!("; apstat --why {waiting} tells more"));
    assert_eq!(run.out(), "done\ndone\n");
    let why = instance.run("apstat", ["--why", &waiting.to_string()]).expect(0);
    assert!(why.out().contains("ended"), "{}", why.out());
    instance.run("apstat", ["--why", "4711"]).expect(1).says("no application 4711");
}

#[test]
fn one_that_waits_inside_another_names_it() {
    let instance = instance(1, 1);
    let folder = tempfile::tempdir().expect("made");
    let said = folder.path().join("said");
    let said = said.display();
    let aprun = binaries().join("aprun");
    let aprun = aprun.display();
    let script = format!(
        "{aprun} -n 1 true 2> {said} & until grep -q 'neither goes on' {said}; do sleep 0.1; done; \
         kill $!; wait $!; cat {said}"
    );
    let run = instance.start_script("-q -n 1", &script).wait(BOUND).expect(0);
    let words =
        "this aprun runs in application 1: if 1 holds the processors and waits for application 2";
    assert!(run.out().contains(words), "{}", run.out());
}

#[test]
fn an_application_is_shown_long_after_its_end() {
    let instance = instance(1, 1);
    for status in [3, 0, 0] {
        instance.script("-q", &format!("exit {status}")).expect(status);
    }
    assert_eq!(instance.apstat("-A 1")["status"], 3);
    let why = instance.run("apstat", ["--why", "1"]).expect(0);
    assert!(why.out().contains("exited with code 3"), "{}", why.out());
    instance.run("apstat", ["-A", "4711"]).expect(1).says("no application 4711");
}

#[test]
fn the_impossible_is_refused_with_the_largest_possible() {
    let instance = instance(4, 2);
    let run = instance.script("-q -n 1000", "true").expect(125);
    assert!(run.stderr.contains("8 PEs") && run.stderr.contains("-n 8"), "{}", run.stderr);
    instance.script("-q -n 5 -N 1", "true").expect(125).says("4 PEs");
    instance.script("-q -d 3", "true").expect(125).says("-d 2");
    let run = instance.aprun(words("-q -n 1000 --dry-run true")).expect(125);
    assert!(run.stderr.contains("8 PEs"), "{}", run.stderr);
    assert!(instance.apstat("-a")["applications"].as_array().expect("a list").is_empty());
}

#[test]
fn postings_go_in_order_of_arrival() {
    let instance = instance(1, 1);
    let long = instance.start_script("-q", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0].to_string();
    let file = instance.directory().join("order");
    let script = format!("echo $ALPS_APP_ID >> {}", file.display());
    let waits: Vec<Running> = (0..4)
        .map(|i| {
            let running = instance.start_script("-q", &script);
            instance.wait_for("posted", i + 1);
            running
        })
        .collect();
    instance.run("apkill", ["-9", &apid]).expect(0);
    long.wait(BOUND).expect(137);
    for running in waits {
        running.wait(BOUND).expect(0);
    }
    let text = std::fs::read_to_string(file).expect("written");
    let order: Vec<u64> = text.lines().map(|l| l.parse().expect("a number")).collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(order.len(), 4);
    assert_eq!(order, sorted);
}

#[test]
fn a_waiting_posting_is_not_passed_for_ever() {
    let base = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a base");
    let config = base.path().join("psched.yaml");
    let text = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n\
                variables:\n  application.longest_wait: 1m\n";
    std::fs::write(&config, unshared(text)).expect("written");
    let instance = Plan::new().arg("--config").arg(&config).start();
    let long = instance.start_script("-q -n 1", "exec sleep 1000");
    let holder = instance.wait_for("running", 1)[0].to_string();
    let wide = instance.start_script("-q -n 2", "true");
    instance.wait_for("posted", 1);
    // Others may pass for a minute; then none may, though there is room.
    for _ in 0..3 {
        instance.script("-q -n 1 --immediate", "true").expect(0);
        instance.wait_for("running", 1);
    }
    eventually(Duration::from_secs(60) + BOUND, "nodes are kept for it", || {
        instance.script("-q -n 1 --immediate", "true").status == 125
    });
    instance.run("apkill", ["-9", &holder]).expect(0);
    long.wait(BOUND).expect(137);
    wide.wait(BOUND).expect(0);
    instance.script("-q -n 1 --immediate", "true").expect(0);
}

#[test]
fn a_stopped_front_end_gets_its_turn_when_it_goes_on() {
    let instance = instance(1, 1);
    let long = instance.start_script("-q", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0].to_string();
    let waits = instance.start_script("-q", "echo done");
    instance.wait_for("posted", 1);
    waits.signal(19);
    instance.run("apkill", ["-9", &apid]).expect(0);
    long.wait(BOUND).expect(137);
    instance.wait_for("placed", 1);
    // Its place is kept for it: no one else has it.
    instance.script("-q --immediate", "true").expect(125);
    waits.signal(18);
    assert_eq!(waits.wait(BOUND).expect(0).out(), "done\n");
}

#[test]
fn a_front_end_that_stays_silent_loses_its_place_and_waits_again() {
    let base = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a base");
    let config = base.path().join("psched.yaml");
    let text = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n\
                variables:\n  ticket_time: 1s\n";
    std::fs::write(&config, unshared(text)).expect("written");
    let instance = Plan::new().arg("--config").arg(&config).start();
    let long = instance.start_script("-q", "exec sleep 1000");
    let holder = instance.wait_for("running", 1)[0].to_string();
    let silent = instance.start_script("-q", "echo done");
    instance.wait_for("posted", 1);
    silent.signal(19);
    instance.run("apkill", ["-9", &holder]).expect(0);
    long.wait(BOUND).expect(137);
    instance.wait_for("lapsed", 1);
    // Its place is another's now.
    let other = instance.start_script("-q", "exec sleep 1000");
    let holder = instance.wait_for("running", 1)[0].to_string();
    silent.signal(18);
    instance.wait_for("posted", 1);
    instance.run("apkill", ["-9", &holder]).expect(0);
    other.wait(BOUND).expect(137);
    assert_eq!(silent.wait(BOUND).expect(0).out(), "done\n");
}

#[test]
fn the_events_of_an_application() {
    let instance = instance(1, 1);
    instance.script("-q", "exit 3").expect(3);
    let events = instance.apstat("--events 1");
    let names: Vec<&str> = events["events"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|e| e["event"].as_str())
        .collect();
    for name in ["posted", "placed", "ended"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let text = instance.run("apstat", ["--events", "1"]).expect(0).out();
    assert_eq!(text.lines().count(), names.len() + 1, "{text}");
    instance.run("apstat", ["--events", "99"]).expect(1);
}

#[test]
fn json_says_what_the_tables_say() {
    let instance = instance(2, 2);
    let long = instance.start_script("-q -n 3", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0];
    let text = instance.run("apstat", ["-a", "-n"]).expect(0).out();
    let all = instance.apstat("-a -n");
    let row = &all["applications"][0];
    assert_eq!(
        (row["apid"].as_u64(), row["pes"].as_u64(), row["nodes"].as_u64()),
        (Some(apid), Some(3), Some(2))
    );
    assert!(text.starts_with("Total placed applications: 1\nApid ResId User"), "{text}");
    assert!(text.contains("Compute node summary"), "{text}");
    assert_eq!(all["nodes"][0]["apids"][0], apid);
    assert_eq!(all["summary"][0]["config"], 2);
    instance.run("apkill", ["-9", &apid.to_string()]).expect(0);
    long.wait(BOUND).expect(137);
}

#[test]
fn apstat_watches() {
    let instance = instance(1, 1);
    let running = Running::start(&mut instance.command("apstat", ["-w"]));
    std::thread::sleep(std::time::Duration::from_millis(2500));
    running.signal(2);
    let run = running.wait(BOUND).expect(0);
    assert!(run.out().matches("Total placed applications: 0").count() >= 2, "{}", run.out());
}

#[test]
fn a_psched_that_is_being_upgraded_is_waited_for() {
    let nodes = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n";
    let mut hand = Hand::start(nodes, &[("0", None)]);
    hand.wait_until_up();
    // Ended as systemd ends it: its socket goes too.
    hand.stop_psched();
    assert!(!hand.socket().exists());
    let at_once = hand.start_script("-n 1", "true").wait(BOUND).expect(125);
    at_once.says("no psched answers on").says("or start a private psched with `psched start`");
    hand.start_script("--wait-for-psched 0 -n 1", "true").wait(BOUND).expect(125);
    let waits = hand.start_script("--wait-for-psched 10m -n 1", "exit 3");
    let mut more = hand.command("aprun", ["--wait-for-psched=10m", "echo", "here"]);
    let more = Running::start(&mut more);
    // Longer than the time after which a wait is said.
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    hand.start_psched();
    let run = waits.wait(BOUND).expect(3);
    let said = "nothing is posted yet; trying again for 10m (--wait-for-psched)";
    assert_eq!(run.stderr.matches(said).count(), 1, "{}", run.stderr);
    assert_eq!(more.wait(BOUND).expect(0).out(), "here\n");
    hand.end();
}
