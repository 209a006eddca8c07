//! Turns by the real psched, on two nodes with an apinit each: what its users and administrators see.

use super::rig::{self, MS, Run, now_ns, overlaps, runs_of, stamper};
use crate::support::hand::Hand;
use crate::support::users::{ANNA, BERT, Bins, User};
use crate::support::*;
use psched::apteam::protocol::turns::StopMeans;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Two nodes of one processor; `variables` besides.
fn config(variables: &str) -> String {
    format!(
        "nodes:\n  - {{ nids: 0, processors: 1, flavors: [su, os, ap] }}\n  - {{ nids: 1, \
         processors: 1 }}\nvariables:\n  application.max_resident: 4\n{variables}"
    )
}

fn start(variables: &str) -> Hand {
    Hand::start(&config(variables), &[("0", None), ("1", None)])
}

/// Two, each with a PE on both nodes, which are whole: they take turns.
struct Gangs {
    aprun: Vec<Running>,
    apids: Vec<u64>,
    folder: PathBuf,
}

impl Gangs {
    fn start(hand: &Hand, stamp: &Path) -> Gangs {
        let folder = hand.folder().to_owned();
        let (mut aprun, mut apids) = (Vec::new(), Vec::new());
        for number in 0..2 {
            let table = format!("{}/stamps-{number}-$ALPS_APP_PE", folder.display());
            let script = format!("exec {} {table} spin", stamp.display());
            aprun.push(hand.start_script("-q -n 2 -N 1", &script));
            apids = hand.wait_for("running", number + 1);
        }
        Gangs { aprun, apids, folder }
    }

    fn runs(&self, number: usize, nid: usize) -> Vec<Run> {
        runs_of(&self.folder.join(format!("stamps-{number}-{nid}")))
    }

    /// When it was last seen to run on a node.
    fn last(&self, number: usize, nid: usize) -> u64 {
        self.runs(number, nid).iter().map(|run| run.1).max().unwrap_or(0)
    }

    /// When turns began on a node since then: of one and the other, alternately.
    fn turns(&self, nid: usize, since: u64) -> Vec<u64> {
        let of = |number| self.runs(number, nid).into_iter().map(move |run| (run, number));
        let mut runs: Vec<(Run, usize)> = (0..2).flat_map(of).collect();
        runs.retain(|((first, _), _)| *first >= since);
        runs.sort_unstable();
        runs.chunk_by(|a, b| a.1 == b.1).map(|turn| turn[0].0.0).collect()
    }

    /// Waits for so many turns on each node since then, which are of about this length.
    #[track_caller]
    fn take_turns(&self, since: u64, length: Duration) {
        const TURNS: usize = 12;
        for nid in 0..2 {
            eventually(BOUND, "they take turns", || self.turns(nid, since).len() >= TURNS);
            let turns = self.turns(nid, since);
            // From one turn of a gang to its next: for how long each is seen says more of who else wants
            // the processor.
            let rounds = turns.windows(3).map(|of| Duration::from_nanos(of[2] - of[0]));
            let mut lengths: Vec<Duration> = rounds.map(|round| round / 2).collect();
            lengths.sort_unstable();
            let middle = lengths[lengths.len() / 2];
            let (least, most) = (length.mul_f64(0.45), length.mul_f64(1.75));
            assert!((least..most).contains(&middle), "{middle:?} and not {length:?}: {turns:?}");
        }
        self.check();
    }

    /// On no node did both run at once.
    #[track_caller]
    fn check(&self) {
        for nid in 0..2 {
            let found = overlaps(self.runs(0, nid), self.runs(1, nid));
            assert!(found.is_empty(), "both ran on NID {nid}: {found:?}");
        }
    }

    fn end(self, hand: &Hand) {
        for (aprun, apid) in self.aprun.into_iter().zip(self.apids) {
            run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
            aprun.wait(BOUND).expect(137);
        }
    }
}

#[track_caller]
fn does(hand: &Hand, command: &str, arguments: &str) -> String {
    run(&mut hand.command(command, words(arguments))).expect(0).out()
}

#[track_caller]
fn seen(hand: &Hand) -> serde_json::Value {
    serde_json::from_str(&does(hand, "psview", "--json")).expect("JSON")
}

/// Whether a gang leads, is frozen, held...
#[track_caller]
fn turn(hand: &Hand, apid: u64) -> String {
    let all = seen(hand);
    let mut rows = all["applications"].as_array().expect("a list").iter();
    let row = rows.find(|row| row["apid"] == apid);
    row.map_or(String::new(), |row| row["turn"].as_str().unwrap_or("").to_owned())
}

/// The lengths of slices in milliseconds by the plan that is followed, the longest first.
fn slices(hand: &Hand) -> Vec<u64> {
    let all = seen(hand);
    let slices = all["plans"][0]["slices"].as_array().cloned().unwrap_or_default();
    let length = |slice: &serde_json::Value| Some(slice["length_ns"].as_u64()? / MS);
    let mut lengths: Vec<u64> = slices.iter().filter_map(length).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    lengths
}

/// Where there is no freezer exclusivity is not promised.
fn freezes(test: &str, hand: &Hand) -> bool {
    let freezes = seen(hand)["nodes"][0]["stops"] == "freezer";
    rig::freezes(test, if freezes { StopMeans::Freezer } else { StopMeans::Signals })
}

#[test]
fn the_pace_is_changed_while_they_run_and_psched_need_not_be_there() {
    let test = "turns::whole::the_pace_is_changed_while_they_run_and_psched_need_not_be_there";
    let Some(stamp) = stamper("turns") else { return };
    let mut hand = start("  application.time_slice: 200ms\n");
    if !freezes(test, &hand) {
        return hand.end();
    }
    let gangs = Gangs::start(&hand, &stamp);
    // One has three quarters of each slice, the other one: each half of it, on average.
    let (slow, fast) = (Duration::from_millis(100), Duration::from_millis(25));
    gangs.take_turns(now_ns(), slow);
    let told = does(&hand, "psmgr", "set application.time_slice=50ms");
    assert_eq!(told, "application.time_slice: 200ms -> 50ms\n");
    eventually(BOUND, "the new pace", || slices(&hand) == [37, 12]);
    // The slice that was on is over.
    gangs.take_turns(now_ns() + 400 * MS, fast);

    // They go on by themselves, and by what was set when psched is back.
    hand.kill_psched();
    gangs.take_turns(now_ns() + 100 * MS, fast);
    hand.start_psched();
    eventually(BOUND, "a new plan", || slices(&hand) == [37, 12]);
    gangs.take_turns(now_ns(), fast);
    // None has had all of the time, also of that before: its nodes have said so.
    let all = seen(&hand);
    for (number, row) in all["applications"].as_array().expect("a list").iter().enumerate() {
        let began = gangs.runs(number, 0).first().expect("it has run").0;
        let (had, there) = (row["attained_ns"].as_u64().expect("a time"), now_ns() - began);
        assert!(had < there / 10 * 9, "{had} ns of {there}: {row}");
    }
    kill(hand.psched_pid(), 19);
    gangs.take_turns(now_ns() + 100 * MS, fast);
    kill(hand.psched_pid(), 18);

    // Without a floor there is no time slice: a gang leads until it has had much.
    does(&hand, "psmgr", "set application.floor=no");
    eventually(BOUND, "one leads for long", || slices(&hand).first().is_some_and(|ms| *ms > 5_000));
    let told = does(&hand, "psmgr", "set --reset application.floor application.time_slice");
    assert!(told.contains("application.time_slice: 50ms -> 200ms (psched.yaml)\n"), "{told}");
    // At once, and not when its minute is over.
    eventually(BOUND / 3, "the old pace", || slices(&hand) == [150, 50]);
    gangs.take_turns(now_ns() + 400 * MS, slow);
    gangs.end(&hand);
    hand.end();
}

/// Slices of an hour: nothing of this comes by itself.
#[test]
fn a_signal_is_heard_at_once() {
    let hand = start("  application.time_slice: 1h\n");
    let folder = hand.folder().display().to_string();
    let made = |name: &str| {
        let all = [0, 1].map(|pe| Path::new(&folder).join(format!("{name}-{pe}")).exists());
        all == [true, true]
    };
    let touch = |name: &str| format!(">{folder}/{name}-$ALPS_APP_PE");
    let script = format!(
        "trap '{}' USR1; trap '{}; exit 0' TERM; {}; while :; do sleep 0.01; done",
        touch("told"),
        touch("heard"),
        touch("ready")
    );
    let hears = hand.start_script("-q -n 2 -N 1", &script);
    let first = hand.wait_for("running", 1)[0];
    eventually(BOUND, "its traps are set", || made("ready"));
    let other = hand.start_script("-q -n 2 -N 1", "while :; do :; done");
    let second = hand.wait_for("running", 2)[1];
    eventually(BOUND, "the newcomer leads", || turn(&hand, second) == "leads");
    assert_eq!(turn(&hand, first), "frozen");
    let all = hand.apstat("-a");
    let shown = all["applications"][0]["turn"].as_str().expect("a word").to_owned();
    assert!(shown.starts_with("frozen ") && shown.ends_with('m'), "{shown}");

    does(&hand, "apkill", &format!("-USR1 {first}"));
    eventually(BOUND, "it is told at once", || made("told"));
    assert_eq!([turn(&hand, first), turn(&hand, second)], ["leads", "frozen"]);
    // KILL needs no turn; psched need not be there when it has said so.
    does(&hand, "apkill", &format!("-9 {second}"));
    other.wait(BOUND).expect(137);

    let mut other = hand.start_script("-q -n 2 -N 1", "while :; do :; done");
    let third = hand.wait_for("running", 2)[1];
    eventually(BOUND, "the newcomer leads", || turn(&hand, third) == "leads");
    does(&hand, "apkill", &first.to_string());
    hears.wait(BOUND).expect(143);
    assert!(made("heard"));
    // ^C at its aprun while it is frozen; KILL to its aprun.
    for (signal, status) in [(2, 130), (9, 137)] {
        let newcomer = hand.start_script("-q -n 2 -N 1", "while :; do :; done");
        let apid = hand.wait_for("running", 2)[1];
        eventually(BOUND, "the newcomer leads", || turn(&hand, apid) == "leads");
        let before = std::mem::replace(&mut other, newcomer);
        let begun = Instant::now();
        before.signal(signal);
        before.wait(BOUND).expect(status);
        assert_eq!(hand.wait_for("running", 1), [apid]);
        assert!(begun.elapsed() < BOUND / 3, "{:?}", begun.elapsed());
    }
    let last = hand.wait_for("running", 1)[0];
    does(&hand, "apkill", &format!("-9 {last}"));
    other.wait(BOUND).expect(137);
    hand.end();
}

#[test]
fn a_gang_that_is_held_stands_until_it_is_released() {
    let test = "turns::whole::a_gang_that_is_held_stands_until_it_is_released";
    let Some(stamp) = stamper("turns") else { return };
    let mut hand = start("  application.time_slice: 50ms\n");
    if !freezes(test, &hand) {
        return hand.end();
    }
    let gangs = Gangs::start(&hand, &stamp);
    gangs.take_turns(now_ns(), Duration::from_millis(50));
    let apid = gangs.apids[0];
    let told = does(&hand, "psmgr", &format!("hold {apid}"));
    assert!(told.ends_with(": held\n"), "{told}");
    let second = 1_000 * MS;
    let stands = || (0..2).all(|nid| gangs.last(0, nid) + second < gangs.last(1, nid));
    eventually(BOUND, "it stands, and the other runs", stands);
    assert_eq!(turn(&hand, apid), "held");
    assert_eq!(turn(&hand, gangs.apids[1]), "runs");
    assert!(does(&hand, "psview", "").contains(" held, in no slice"));
    let why = does(&hand, "apstat", &format!("--why {apid}"));
    assert!(why.contains(&format!("psmgr release {apid}")), "{why}");
    // Through a death of psched's too.
    hand.kill_psched();
    hand.start_psched();
    let back = now_ns();
    eventually(BOUND, "psched knows it again", || turn(&hand, apid) == "held");
    eventually(BOUND, "the other runs on", || gangs.last(1, 0) > back + second);
    assert!(stands(), "it runs again");
    does(&hand, "psmgr", &format!("release {apid}"));
    gangs.take_turns(now_ns() + 100 * MS, Duration::from_millis(50));
    gangs.end(&hand);
    hand.end();
}

#[test]
fn two_users_take_turns_by_their_weights() {
    if !is_root() {
        let test = "turns::whole::two_users_take_turns_by_their_weights";
        return skip(test, "only root can be two users");
    }
    let hand = start("  application.time_slice: 50ms\n");
    hand.open_to_all();
    let bins = Bins::new();
    let of = |user: User, name: &str, line: &[&str]| {
        let mut command = user.command(bins.path(name), line);
        command.env("PSCHED_SOCKET", hand.socket());
        command
    };
    let line = ["-q", "-n", "2", "-N", "1", "sh", "-c", "while :; do :; done"];
    let (mut both, mut apids) = (Vec::new(), Vec::new());
    for user in [ANNA, BERT] {
        both.push(Running::start(&mut of(user, "aprun", &line)));
        apids = hand.wait_for("running", both.len());
    }
    does(&hand, "psmgr", &format!("set weight.user.{}=3", ANNA.uid));
    let had = || {
        let all = seen(&hand);
        [0, 1].map(|at| all["applications"][at]["attained_ns"].as_u64().expect("a time"))
    };
    eventually(BOUND, "she leads", || turn(&hand, apids[0]) == "leads");
    let before = had();
    let since = || {
        let now = had();
        [0, 1].map(|at| now[at].saturating_sub(before[at]))
    };
    eventually(BOUND, "time for both", || since().iter().sum::<u64>() > 2_000 * MS);
    let [hers, his] = since().map(|time| time as f64);
    let share = hers / (hers + his);
    assert!((0.65..0.85).contains(&share), "{share:.2}");
    let all = seen(&hand);
    let due = [0, 1].map(|at| all["applications"][at]["due"].as_f64().expect("a share"));
    assert_eq!(due, [0.75, 0.25], "{all}");
    // Neither has a say in the other's turns.
    let hers = apids[0].to_string();
    for signal in ["-USR1", "-9"] {
        run(&mut of(BERT, "apkill", &[signal, &hers])).expect(1).says("only its owner");
    }
    run(&mut of(BERT, "psmgr", &["hold", &hers])).expect(1).says("is not an administrator");
    does(&hand, "apkill", &format!("-9 {} {}", apids[0], apids[1]));
    for aprun in both {
        aprun.wait(BOUND).expect(137);
    }
    hand.end();
}

/// One node has no control groups.
#[test]
fn the_weaker_means_are_named_with_figures_of_their_own() {
    let test = "turns::whole::the_weaker_means_are_named_with_figures_of_their_own";
    if !is_root() {
        return skip(test, "only root can hide the groups");
    }
    let hide = "case \"$*\" in *'--nids 1'*) umount -a -t cgroup2;; esac; PSCHED_LOG=info exec \"$0\" \"$@\"";
    let prefix = ["unshare", "-m", "sh", "-c", hide].map(Into::into);
    let config = config("  application.time_slice: 50ms\n");
    let hand = Hand::start_by(&prefix, &config, &[("0", None), ("1", None)]);
    let spin = "while :; do :; done";
    let both = [0, 1].map(|_| hand.start_script("-q -n 2 -N 1", spin));
    let apids = hand.wait_for("running", 2);
    let changes = |at: usize| {
        let of = &seen(&hand)["changes"]["apinits"][at];
        (of["apinit"].as_u64(), of["gap"]["count"].as_u64().unwrap_or(0))
    };
    for nid in 0..2 {
        eventually(BOUND, "changes are measured", || {
            let (apinit, count) = changes(nid);
            apinit == Some(nid as u64) && count > 5
        });
    }
    let text = does(&hand, "psview", "-n");
    let line = |nid: &str, word: &str| {
        let mut lines = text.lines().filter(|line| words(line).next() == Some(nid));
        lines.any(|line| words(line).any(|w| w == word))
    };
    assert!(line("1", "SIGSTOP") && !line("0", "SIGSTOP"), "{text}");
    assert!(text.contains("NID 1: gangs are stopped by SIGSTOP, not by the freezer"), "{text}");
    let (_, figures) = text.split_once("Changes of party").expect("figures");
    for nids in ["all", "0", "1"] {
        assert!(figures.lines().any(|line| words(line).next() == Some(nids)), "{text}");
    }
    does(&hand, "apkill", &format!("-9 {} {}", apids[0], apids[1]));
    for aprun in both {
        aprun.wait(BOUND).expect(137);
    }
    hand.end();
}

/// Each wants the whole machine, and exchanges messages all the time.
#[test]
fn two_mpi_programs_make_progress_in_turns() {
    let test = "turns::whole::two_mpi_programs_make_progress_in_turns";
    let Some(program) = mpi::program(test, "exchange") else { return };
    let config = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n\
                  variables:\n  application.max_resident: 2\n  application.time_slice: 100ms\n";
    let hand = Hand::start(config, &[("0", None)]);
    let both = [0, 1].map(|_| {
        let program = program.to_str().expect("text");
        let mut aprun = hand.command("aprun", ["-q", "-n", "2", program, "4"]);
        // Nothing else is between them.
        Running::start(aprun.env("UCX_TLS", "posix,self"))
    });
    let apids = hand.wait_for("running", 2);
    for pace in ["100ms", "30ms"] {
        does(&hand, "psmgr", &format!("set application.time_slice={pace}"));
        for leader in 0..2 {
            eventually(BOUND, "it leads, and the other is frozen", || {
                let all = seen(&hand);
                let rows = all["applications"].as_array().expect("a list");
                let turn = |at: usize| rows.get(at).map(|row| (&row["apid"], &row["turn"]));
                let is =
                    |at: usize, word: &str| turn(at) == Some((&apids[at].into(), &word.into()));
                is(leader, "leads") && is(1 - leader, "frozen")
            });
        }
    }
    for aprun in both {
        let messages: u64 = aprun.wait(BOUND).expect(0).out().trim().parse().expect("a number");
        assert!(messages > 1_000, "{messages} messages");
    }
    hand.end();
}
