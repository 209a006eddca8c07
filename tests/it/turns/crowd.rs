//! A crowd: busy programs of others, streams of short ones, programs that sleep. Real programs, by the order that
//! is the default.

use super::rig::{now_ns, runs_of, stamper};
use crate::support::hand::Hand;
use crate::support::users::{self, ANNA, BERT, Bins, User};
use crate::support::*;
use std::path::Path;
use std::time::Duration;

/// One node of two processors, with default variables but for these.
fn config(memory: &str, variables: &str) -> String {
    format!(
        "nodes:\n  - {{ nids: 0, processors: 2, flavors: [su, os, ap]{memory} }}\nvariables:\n  \
         application.max_resident: 1024\n{variables}"
    )
}

fn crowd(test: &str, variables: &str) -> Option<(Hand, Bins)> {
    crowd_in(test, "", variables)
}

/// The same on a node with so much memory.
fn crowd_in(test: &str, memory: &str, variables: &str) -> Option<(Hand, Bins)> {
    users::daemons(&format!("turns::crowd::{test}"), &config(memory, variables), "0")
}

fn start(hand: &Hand, bins: &Bins, user: User, line: &[&str]) -> Running {
    let mut command = user.command(bins.path("aprun"), line);
    Running::start(command.env("PSCHED_SOCKET", hand.socket()))
}

fn end_all(hand: &Hand, all: Vec<Running>) {
    let apids: Vec<String> = hand.apstat("-a")["applications"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|row| Some(row["apid"].as_u64()?.to_string()))
        .collect();
    let line = std::iter::once("-9").chain(apids.iter().map(String::as_str));
    run(&mut hand.command("apkill", line)).expect(0);
    all.into_iter().for_each(|aprun| drop(aprun.wait(BOUND).expect(137)));
}

/// None of the crowd ends: a newcomer that waited for one of them would wait for ever.
#[test]
fn a_newcomer_waits_for_none_of_many() {
    let Some((hand, bins)) = crowd("a_newcomer_waits_for_none_of_many", "") else { return };
    let mut all = Vec::new();
    for count in 1..=40 {
        let busy = if count % 2 == 0 { "while :; do :; done" } else { "exec sleep 1000" };
        all.push(start(&hand, &bins, ANNA, &["-q", "-n", "2", "sh", "-c", busy]));
    }
    hand.wait_for("running", 40);
    for width in ["1", "2"] {
        let short = start(&hand, &bins, BERT, &["-q", "-n", width, "echo", "here"]);
        let lines = "here\n".repeat(width.parse().expect("a number"));
        assert_eq!(short.wait(BOUND).expect(0).out(), lines);
    }
    // It has what it needs of processor time too.
    let work = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done";
    let long = start(&hand, &bins, BERT, &["-q", "sh", "-c", work]);
    assert_eq!(long.wait(BOUND).expect(0).out(), "done\n");
    assert_eq!(hand.wait_for("running", 40).len(), 40);
    end_all(&hand, all);
    hand.end();
}

/// The longest time in which none of its processes ran.
fn longest_silence(table: &Path, until_ns: u64) -> Duration {
    let mut runs = runs_of(table);
    runs.sort_unstable();
    let ends = runs.iter().map(|run| run.1);
    let begins = runs.iter().skip(1).map(|run| run.0).chain([until_ns]);
    let gap = ends.zip(begins).map(|(end, begin)| begin.saturating_sub(end)).max();
    Duration::from_nanos(gap.expect("it has run"))
}

#[test]
fn a_stream_of_newcomers_silences_nobody() {
    let Some(stamp) = stamper("turns") else { return };
    let slice = "  application.time_slice: 100ms\n";
    let Some((hand, bins)) = crowd("a_stream_of_newcomers_silences_nobody", slice) else { return };
    let folder = ANNA.folder();
    let table = folder.path().join("stamps");
    let stamp = bins.add(&stamp);
    let script = format!("exec {} {} spin", stamp.display(), table.display());
    let hers = start(&hand, &bins, ANNA, &["-q", "-n", "2", "sh", "-c", &script]);
    hand.wait_for("running", 1);
    eventually(BOUND, "it runs", || !runs_of(&table).is_empty());
    // Six at once, sixteen each, as another user.
    let stream = format!(
        "i=0; while [ $i -lt 16 ]; do {} -q -n 2 sleep 0.1 || exit 1; i=$((i+1)); done",
        bins.path("aprun").display()
    );
    let one = || {
        let mut command = BERT.command("sh", ["-c", &stream]);
        Running::start(command.env("PSCHED_SOCKET", hand.socket()))
    };
    let streams: Vec<Running> = (0..6).map(|_| one()).collect();
    streams.into_iter().for_each(|stream| drop(stream.wait(BOUND).expect(0)));
    // Two users: at most two slices. (On a loaded machine whatever runs is late.)
    let silence = longest_silence(&table, now_ns());
    assert!(silence < Duration::from_secs(2), "it was silent for {silence:?}");
    end_all(&hand, vec![hers]);
    hand.end();
}

/// How long each has run, in nanoseconds.
fn attained(hand: &Hand) -> Vec<u64> {
    let all = run(&mut hand.command("psview", ["--json"])).expect(0).out();
    let all: serde_json::Value = serde_json::from_str(&all).expect("JSON");
    let rows = all["applications"].as_array().expect("a list").iter();
    rows.filter_map(|row| row["attained_ns"].as_u64()).collect()
}

#[test]
fn who_sleeps_costs_who_computes_next_to_nothing() {
    let test = "who_sleeps_costs_who_computes_next_to_nothing";
    let Some((hand, bins)) = crowd(test, "") else { return };
    let freezes = run(&mut hand.command("psview", ["--json"])).expect(0).out();
    if !freezes.contains("\"freezer\"") {
        skip(&format!("turns::crowd::{test}"), "there are no control groups");
        return hand.end();
    }
    let all: Vec<Running> = [["exec sleep 1000"; 3].as_slice(), &["while :; do :; done"]]
        .concat()
        .into_iter()
        .map(|script| start(&hand, &bins, ANNA, &["-q", "-n", "2", "sh", "-c", script]))
        .collect();
    hand.wait_for("running", 4);
    let before = attained(&hand);
    eventually(BOUND, "some seconds", || {
        let sum = |all: &[u64]| all.iter().sum::<u64>();
        sum(&attained(&hand)) > sum(&before) + 12_000_000_000
    });
    let had: Vec<u64> =
        attained(&hand).iter().zip(&before).map(|(now, before)| now - before.min(now)).collect();
    let (all_ns, most) = (had.iter().sum::<u64>(), had.iter().max().copied().unwrap_or(0));
    // Without it: a quarter.
    assert!(most > all_ns / 10 * 8, "{had:?}");
    end_all(&hand, all);
    hand.end();
}

/// What each user has had, in seconds, and what is due, by number.
fn shares(hand: &Hand) -> Vec<(String, String, String)> {
    let text = |row: &serde_json::Value, of: &str| row[of].as_str().unwrap_or("-").to_owned();
    let rows = hand.apstat("--shares")["shares"].as_array().expect("a list").clone();
    rows.iter().map(|row| (text(row, "user"), text(row, "had"), text(row, "due"))).collect()
}

#[test]
fn what_users_have_had_outlives_psched() {
    let test = "what_users_have_had_outlives_psched";
    let variables = "  share.half_life: 365d\n  weight.user.61302: 2\n";
    let Some((mut hand, bins)) = crowd(test, variables) else { return };
    let line = ["-q", "-n", "2", "sh", "-c", "while :; do :; done"];
    let hers = start(&hand, &bins, ANNA, &line);
    let name = ANNA.uid.to_string();
    let had_ten = |(user, had, _): &(String, String, String)| {
        let seconds = had.strip_suffix('s').and_then(|had| had.parse::<f64>().ok());
        *user == name && seconds.is_some_and(|had| had >= 10.0)
    };
    eventually(BOUND, "she has had something", || shares(&hand).iter().any(had_ten));
    end_all(&hand, vec![hers]);
    hand.stop_psched();
    hand.start_psched();
    hand.wait_until_up();
    let after = shares(&hand);
    assert!(after.len() == 1 && had_ten(&after[0]) && after[0].2 == "-", "{after:?}");
    // He comes before her, and half as much would be due to her as to him.
    let his = start(&hand, &bins, BERT, &line);
    hand.wait_for("running", 1);
    let rows = shares(&hand);
    let weight = |row: &serde_json::Value| (row["weight"].as_u64(), row["apps"].as_u64());
    let all = hand.apstat("--shares")["shares"].as_array().expect("a list").clone();
    let of = |uid: u32| all.iter().find(|row| row["user"] == uid.to_string().as_str());
    assert_eq!(of(BERT.uid).map(weight), Some((Some(2), Some(1))), "{rows:?}");
    assert_eq!(of(ANNA.uid).map(weight), Some((Some(1), Some(0))), "{rows:?}");
    end_all(&hand, vec![his]);
    hand.end();
}

#[test]
fn as_many_sit_on_a_processor_as_have_memory() {
    let Some((hand, bins)) =
        crowd_in("as_many_sit_on_a_processor_as_have_memory", ", memory: 4G", "")
    else {
        return;
    };
    // 10 MB each, of files in memory.
    let script = "head -c 10000000 /dev/zero > /dev/shm/x; exec sleep 1000";
    let one = |_| start(&hand, &bins, ANNA, &["-q", "sh", "-c", script]);
    let all: Vec<Running> = (0..200).map(one).collect();
    hand.wait_for("running", 200);
    end_all(&hand, all);
    hand.end();
}
