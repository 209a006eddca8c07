//! What is told of a workload whose answers are known: figures, tables, pictures.

use super::known::{TIMES, compressed, log, write};
use super::simulate;
use crate::support::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

fn known(folder: &Path) -> PathBuf {
    write(folder, "known.swf", log(TIMES).as_bytes())
}

fn told(log: &Path, words: &[&str]) -> Value {
    let ran = simulate(log, &[words, &["--json"]].concat()).expect(0);
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

#[test]
fn figures_are_those_found_by_hand() {
    let folder = tempfile::tempdir().expect("made");
    let words = ["--policy", "easy", "--compare", "policy=fcfs"];
    let all = told(&known(folder.path()), &words);
    // Waits of an episode: 0, 90, 0, 125, 20, 190, 0, 190; it runs for 1,430 s in all.
    let wait = json!({
        "mean": 615.0 / 8.0, "median": 90.0, "p95": 190.0, "p99": 190.0, "p999": 190.0, "max": 190.0,
    });
    assert_eq!(all["wait"], wait);
    assert_eq!(all["response"]["mean"], json!((615.0 + 1430.0) / 8.0));
    // The sixth runs for 10 s, after 190.
    assert_eq!(all["bounded_slowdown"]["max"], json!(20.0));
    assert_eq!((&all["jobs"], &all["left_out"]), (&json!(8 * TIMES), &json!(3 * TIMES)));
    assert_eq!((&all["policy"], &all["moves"]), (&json!("easy"), &Value::Null));
    let seconds = &all["processor_seconds"];
    // It begins with the first submission, and ends 860 s into the last episode.
    assert_eq!(seconds["all"], json!((10 * (1_000 * (TIMES - 1) + 860)) as f64));
    assert_eq!(seconds["useful"], json!((3_480 * TIMES) as f64));
    // Idle processors while a job waits: 4 from second 10, 2 from 50, 4 from 90 to 100; then 7 from
    // 160, and 5 from 170 to 350.
    let kept = 4 * 10 + 2 * 40 + 4 * 10 + 7 * 10 + 5 * 180;
    assert_eq!(seconds["kept"], json!((kept * TIMES) as f64));
    let widths: Vec<(&Value, &Value)> = all["by_width"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|class| (&class["class"], &class["jobs"]))
        .collect();
    let expected =
        [("1", 1), ("2", 2), ("3-5", 2), ("6-10", 3)].map(|(c, n)| (json!(c), json!(n * TIMES)));
    assert_eq!(widths, expected.each_ref().map(|(class, jobs)| (class, jobs)));

    let fcfs = &all["compare"][0];
    assert_eq!((&fcfs["setting"], &fcfs["policy"]), (&json!("fcfs"), &json!("fcfs")));
    // The third, the fifth and the seventh of each are worse off; the last by most, 180 s.
    let against = &fcfs["against_easy"];
    assert_eq!((&against["better"], &against["worse"]), (&json!(0.0), &json!(0.375)));
    let first = json!({ "job": 10, "width": 2, "run": 500.0, "response": 680.0, "easy": 500.0 });
    assert_eq!(against["worst"][0], first);
}

#[test]
fn shorter_runs_than_the_bound_count_as_it() {
    let folder = tempfile::tempdir().expect("made");
    let log = known(folder.path());
    let words = ["--policy", "easy", "--bound", "40s", "--compare", "bound=1s"];
    let all = told(&log, &words);
    let other = &all["compare"][0];
    // The third runs for 30 s at once; the sixth for 10 s, after 190; the fifth for 40 s, after 20.
    let most = |figures: &Value| figures["bounded_slowdown"]["max"].clone();
    assert_eq!((most(&all), &all["slowdown_bound"]), (json!(5.0), &json!(40.0)));
    assert_eq!((most(other), &other["slowdown_bound"]), (json!(20.0), &json!(1.0)));
    assert_eq!(other["setting"], json!("easy bound=1s"));
    let table =
        |words: &[&str]| String::from_utf8(simulate(&log, words).expect(0).stdout).expect("UTF-8");
    let title = "Bounded slowdown (a run under 40s counts as 40s)";
    assert!(table(&words[..4]).contains(title));
    assert!(!table(&words).contains(title));
}

#[test]
fn a_second_of_the_log_may_be_any_time() {
    let folder = tempfile::tempdir().expect("made");
    let out = folder.path().join("out.tsv");
    let words = ["--policy", "easy", "--unit", "1ms", "--bound", "1ms", "--compare", "policy=gang"];
    let words =
        [&words[..], &["--start-cost", "0s", "--out", out.to_str().expect("text")]].concat();
    let all = told(&known(folder.path()), &words);
    assert_eq!(all["wait"]["max"], json!(0.19));
    assert_eq!(all["bounded_slowdown"]["max"], json!(20.0));
    let seconds = &all["processor_seconds"];
    assert_eq!(seconds["useful"].as_f64().map(f64::round), Some((3.48 * TIMES as f64).round()));
    // The scheduler's slices are as long as ever: the whole log takes 40 s.
    let gang = &all["compare"][0];
    let span = gang["span"].as_f64().expect("a number");
    assert!((39.5..43.0).contains(&span), "{span}");
    let lines = std::fs::read_to_string(&out).expect("written");
    let first = lines.lines().nth(2).expect("a second job");
    assert_eq!(first, "5\t0.010\t10\t0.050\t0.060\t0.100\t0.150\t1\t0\t0.090\teasy");
}

#[test]
fn sharing_at_no_cost_is_a_bound() {
    let folder = tempfile::tempdir().expect("made");
    let words = ["--policy", "ideal", "--compare", "policy=easy"];
    let all = told(&known(folder.path()), &words);
    // The jobs do the same work under both, and none of them ever waits.
    let work = |figures: &Value| figures["processor_seconds"]["useful"].as_f64().expect("a number");
    assert!((work(&all) - work(&all["compare"][0])).abs() < 1e-3);
    assert_eq!(all["processor_seconds"]["kept"], json!(0.0));
    // Up to 25 of the 10 processors are wanted at once: no job is slowed down by more than that.
    let most = all["bounded_slowdown"]["max"].as_f64().expect("a number");
    assert!(most > 1.0 && most < 2.6, "{most}");
    assert_eq!((&all["policy"], &all["turns"]), (&json!("ideal"), &Value::Null));
}

#[test]
fn a_load_is_what_was_asked_for() {
    let folder = tempfile::tempdir().expect("made");
    let log = known(folder.path());
    let all = told(
        &log,
        &["--policy", "easy", "--compare", "load=0.7", "--compare", "load=0.2,nodes=5x2"],
    );
    let load = |of: &Value| of["offered_load"].as_f64().expect("a number");
    // 3,480 processor seconds in 1,000 s, but for the last.
    assert!((load(&all) - 0.3549).abs() < 1e-3, "{}", load(&all));
    assert!((load(&all["compare"][0]) - 0.7).abs() < 1e-3, "{}", load(&all["compare"][0]));
    assert!((load(&all["compare"][1]) - 0.2).abs() < 1e-3, "{}", load(&all["compare"][1]));
    let machine = |of: &Value| (of["nodes"].clone(), of["processors"].clone());
    assert_eq!(machine(&all["compare"][0]), (json!(10), json!(10)));
    assert_eq!(machine(&all["compare"][1]), (json!(5), json!(10)));
    let wait = |of: &Value| of["wait"]["mean"].as_f64().expect("a number");
    assert!(wait(&all["compare"][0]) > wait(&all) && wait(&all["compare"][1]) < wait(&all));
}

#[test]
fn a_configuration_is_read_as_psched_reads_it() {
    let folder = tempfile::tempdir().expect("made");
    let log = known(folder.path());
    // Node 0 is for no application.
    let good = "nodes:\n  - { nids: 0, processors: 4, flavors: [su, os] }\n  \
                - { nids: 1-5, processors: 4, flavors: [ap] }\n";
    let config = write(folder.path(), "psched.yaml", good.as_bytes());
    let config = config.to_str().expect("text");
    assert_eq!(told(&log, &["--config", config])["processors"], json!(20));
    assert_eq!(told(&log, &["--config", config, "--procs", "10"])["processors"], json!(10));
    write(
        folder.path(),
        "psched.yaml",
        format!("{good}variables: {{ kill_grase: 5s }}\n").as_bytes(),
    );
    let ran = simulate(&log, &["--config", config]).expect(1);
    ran.says("variables.kill_grase: there is no variable kill_grase; did you mean kill_grace?");
}

#[test]
fn the_same_settings_are_the_same_bytes() {
    let folder = tempfile::tempdir().expect("made");
    let log = known(folder.path());
    let (tsv, svg) = (folder.path().join("out.tsv"), folder.path().join("out.svg"));
    let (tsv, svg) = (tsv.to_str().expect("text"), svg.to_str().expect("text"));
    let ran = |more: &[&str]| {
        let words = [
            "--out",
            tsv,
            "--plot",
            svg,
            "--compare",
            "policy=fcfs,load=0.9",
            "--compare",
            "policy=easy",
        ];
        let ran = simulate(&log, &[&words, more].concat()).expect(0);
        let read = |file| std::fs::read(file).expect("written");
        (ran.stdout, read(tsv), read(svg))
    };
    let first = ran(&[]);
    assert!(first == ran(&[]));
    assert_eq!(ran(&["--json"]), ran(&["--json"]));
    let text = String::from_utf8(first.0).expect("text");
    let gang = "Worst off against EASY: gang moves=daemon";
    for words in ["easy", "fcfs load=0.9", "Worst off against EASY: fcfs load=0.9", gang] {
        assert!(text.contains(words), "{text}");
    }
    let svg = String::from_utf8(first.2).expect("text");
    assert_eq!(svg.matches("<polyline").count(), 9, "three lines in each of three panels");
}

#[test]
fn gangs_are_told_with_the_moves_there_are() {
    let folder = tempfile::tempdir().expect("made");
    let (log, out) = (known(folder.path()), folder.path().join("out.tsv"));
    let words = ["--moves", "all", "--out"];
    let still = "moves=daemon,application.load_balance.enabled=no";
    let words = [&words[..], &[out.to_str().expect("text"), "--compare", still]].concat();
    let all = told(&log, &words);
    let label = "gang moves=all";
    assert_eq!((&all["setting"], &all["policy"]), (&json!(label), &json!("gang")));
    assert_eq!((&all["moves"], &all["compare"][0]["moves"]), (&json!("all"), &json!("daemon")));
    assert_eq!(all["compare"][0]["turns"]["moves"], json!({ "mean": 0.0, "max": 0 }));
    assert!(all["against_easy"]["worst"].is_array());
    let seconds = &all["processor_seconds"];
    assert_eq!(seconds["useful"].as_f64(), Some((3_480 * TIMES) as f64));
    let tsv = std::fs::read_to_string(&out).expect("written");
    assert_eq!(tsv.lines().count() as u64, 1 + 8 * TIMES);
    assert!(tsv.lines().skip(1).all(|line| line.ends_with("\tgang moves=all")), "{tsv}");
}

/// One whose memory no node has is named, and where it stands in the log.
#[test]
fn a_job_that_is_refused_is_named() {
    let folder = tempfile::tempdir().expect("made");
    let nodes = "nodes:\n  - { nids: 0-3, processors: 4, memory: 1G, flavors: [su, os, ap] }\n";
    let config = write(folder.path(), "psched.yaml", nodes.as_bytes());
    let text = "1 0 -1 9 2 -1 -1 2 60 1000 1 1 -1 -1 -1 -1 -1 -1\n\
                7 5 -1 9 2 -1 -1 2 60 9000000 1 1 -1 -1 -1 -1 -1 -1\n";
    let log = write(folder.path(), "memory.swf", text.as_bytes());
    let ran = simulate(&log, &["--config", config.to_str().expect("text")]).expect(1);
    ran.says("line 2: psched refuses job 7: ");
    // Where nodes do not say what memory they have, nobody asks.
    simulate(&log, &["--procs", "4"]).expect(0);
}

#[test]
fn who_reads_only_the_beginning_is_told_of_no_error() {
    let folder = tempfile::tempdir().expect("made");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(binaries().join("psched"));
    command.arg("simulate").arg(known(folder.path())).stdout(writer);
    let output = command.stderr(std::process::Stdio::piped()).output().expect("it runs");
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

/// Remarks and jobs that do not count leave nothing behind, however many they are.
#[test]
fn memory_does_not_grow_with_the_log() {
    let folder = tempfile::tempdir().expect("made");
    let remark = format!("; {}\n", "x".repeat(4_000)).repeat(27_000);
    let left_out = "1 0 -1 0 4 -1 -1 4 60 -1 1 1 -1 -1 -1 -1 -1 -1\n".repeat(50_000);
    let text = format!("; MaxProcs: 10\n{remark}{left_out}{}", log(1));
    assert!(text.len() > 100 << 20);
    let log = write(folder.path(), "long.swf.gz", &compressed(text.as_bytes()));
    let psched = binaries().join("psched");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -d 32768 && exec \"$0\" simulate \"$1\" --policy easy --json"]);
    let ran = run(command.arg(psched).arg(log)).expect(0);
    let told: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!((&told["jobs"], &told["left_out"]), (&json!(8), &json!(50_003)));
}

#[test]
fn a_terminal_sees_how_far_it_is() {
    let test = "simulate::told::a_terminal_sees_how_far_it_is";
    if !Command::new("script").arg("--version").output().is_ok_and(|o| o.status.success()) {
        return skip(test, "there is no script(1)");
    }
    let folder = tempfile::tempdir().expect("made");
    let log = write(folder.path(), "long.swf", log(20_000).as_bytes());
    let psched = binaries().join("psched");
    let line =
        format!("'{}' simulate '{}' --policy easy >/dev/null", psched.display(), log.display());
    let mut command = Command::new("script");
    let ran = run(command.args(["-qec", &line, "/dev/null"])).expect(0);
    let seen = ran.out();
    assert!(seen.contains("\reasy: ") && seen.contains(" % of the log, day "), "{seen:?}");
    assert!(seen.ends_with("\r\u{1b}[K"), "{seen:?}");
}
