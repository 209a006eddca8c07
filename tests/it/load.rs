//! Applications of all kinds under load while daemons, apshepherds and apruns are killed at random: by
//! hand, where two of those who post are other users if root runs the tests, and under `psched start`.
//!
//! `PSCHED_LOOP_S=600 cargo test --test it load::` goes on for ten minutes; .ci/run gives it 60 s. Both
//! go on at the same time.

use crate::support::dice::Dice;
use crate::support::machine::{Daemon, Machine, Way};
use crate::support::users::{ANNA, BERT, Bins, User};
use crate::support::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

/// How long without PSCHED_LOOP_S.
const LOOP: Duration = Duration::from_secs(20);
/// Who post at the same time: whoever runs the tests, and others where that is possible.
const USERS: [Option<User>; 4] = [None, Some(ANNA), None, Some(BERT)];
/// Between two kills, at most.
const PEACE: Duration = Duration::from_millis(1200);

/// A kind of application: options of aprun, script, status, output of each PE.
const KINDS: [(&str, &str, i32, &str); 8] = [
    ("-n 1", "exit 0", 0, ""),
    ("-n 2 -N 1", "echo both; exit 3", 3, "both\n"),
    ("-n 2", "seq 1 3000 | tail -1; seq 1 3000 | md5sum", 0, "3000\nLINES\n"),
    ("-n 1", "kill -SEGV $$", 139, ""),
    ("-n 2 -N 1", "sleep 0.3; echo late", 0, "late\n"),
    ("-n 1 -d 2", "cat | wc -c", 0, "0\n"),
    ("-n 4", "sleep 0.0$ALPS_APP_PE; echo four >&2; echo four; exit 5", 5, "four\n"),
    ("-n 2 --time-limit=1s", "while :; do sleep 0.1; done", 124, ""),
];

/// What has been done, for the report.
#[derive(Default)]
struct Counts {
    kills: Mutex<BTreeMap<&'static str, u64>>,
    posted: AtomicU64,
    true_ends: AtomicU64,
    with_shepherd: AtomicU64,
    with_aprun: AtomicU64,
}

impl Counts {
    fn killed(&self, who: &'static str) {
        *self.kills.lock().expect("whole").entry(who).or_default() += 1;
    }
}

/// Whoever is killed again and again may have to ask for another place when his ticket has lapsed, more
/// than once: late, not lost.
const ENDS: Duration = Duration::from_secs(120);

/// Applications by number, with the status that their aprun gave.
type Told = Mutex<BTreeMap<u64, i32>>;

/// Pids of the apruns that run, and whether each was killed.
type Apruns = Mutex<BTreeMap<i32, bool>>;

/// The number in `Application N took ...`, or in a line about what ended it.
fn apid_in(stderr: &str) -> Option<u64> {
    let after = |word: &str| stderr.split(word).nth(1)?.split([' ', ':']).next()?.parse().ok();
    after("Application ").or_else(|| after("Apid "))
}

fn user(
    machine: &RwLock<Machine>,
    other: Option<(User, &Bins)>,
    mut dice: Dice,
    over: &AtomicBool,
    counts: &Counts,
    told: &Told,
    apruns: &Apruns,
) {
    let sum = run(std::process::Command::new("sh").args(["-c", "seq 1 3000 | md5sum"])).out();
    while !over.load(Ordering::Relaxed) {
        let (options, script, status, output) = *dice.one_of(&KINDS);
        let arguments: Vec<&str> =
            words("-v").chain(words(options)).chain(["sh", "-c", script]).collect();
        let mut command = match other {
            None => machine.read().expect("whole").command("aprun", arguments),
            Some((user, bins)) => {
                let mut command = user.command(bins.path("aprun"), arguments);
                let socket = machine.read().expect("whole").folder().join("psched.sock");
                command.env("PSCHED_SOCKET", socket);
                command
            }
        };
        let running = Running::start(&mut command);
        let pid = running.pid();
        apruns.lock().expect("whole").insert(pid, false);
        counts.posted.fetch_add(1, Ordering::Relaxed);
        let run = running.wait(ENDS);
        let killed = apruns.lock().expect("whole").remove(&pid).expect("it was there");
        let pes: usize = match options {
            o if o.starts_with("-n 4") => 4,
            o if o.starts_with("-n 2") => 2,
            _ => 1,
        };
        if run.stderr.contains("no psched answers on") && run.status == 125 {
            // It had been started when psched was killed, and had not asked for anything.
            counts.posted.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let said = apid_in(&run.stderr);
        // One that is killed at its last word has its own status, not its application's.
        let own = killed && run.status == 137;
        if let Some(apid) = said.filter(|_| !own) {
            let before = told.lock().expect("whole").insert(apid, run.status);
            assert_eq!(before, None, "application {apid} ended twice");
        }
        let lost = run.stderr.contains("apshepherd") && run.stderr.contains(" was lost: ");
        if own {
            counts.with_aprun.fetch_add(1, Ordering::Relaxed);
        } else if lost || run.stderr.contains(" lost its apshepherd on NID") {
            // Its shepherd was killed; what had ended it before decides. (How it died is known only
            // to the apinit whose child it was.)
            assert!(run.status == 125 || run.status == status, "{run:?}");
            counts.with_shepherd.fetch_add(1, Ordering::Relaxed);
        } else {
            assert_eq!(run.status, status, "{options} {script}: {run:?}");
            let mut expected: Vec<String> = Vec::new();
            for _ in 0..pes {
                expected.extend(output.replace("LINES", sum.trim_end()).lines().map(str::to_owned));
            }
            expected.sort();
            assert_eq!(run.sorted(), expected, "{options} {script}: {run:?}");
            assert!(said.is_some(), "it says its number: {run:?}");
            counts.true_ends.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn killer(
    machine: &RwLock<Machine>,
    mut dice: Dice,
    over: &AtomicBool,
    counts: &Counts,
    apruns: &Apruns,
) {
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(dice.time(PEACE));
        if over.load(Ordering::Relaxed) {
            return;
        }
        let daemon = |which, name, dice: &mut Dice| {
            let pause = dice.time(Duration::from_millis(50));
            machine.write().expect("whole").kill(which, pause);
            counts.killed(name);
        };
        match dice.below(6) {
            0 => daemon(Daemon::Psched, "psched", &mut dice),
            1 => daemon(Daemon::Apinit(0), "apinit", &mut dice),
            2 => daemon(Daemon::Apinit(1), "apinit", &mut dice),
            3 | 4 => {
                let all = machine.read().expect("whole").applications();
                let shepherds: Vec<i32> = all.iter().filter_map(|app| app.shepherd()).collect();
                if !shepherds.is_empty() {
                    kill(*dice.one_of(&shepherds), 9);
                    counts.killed("apshepherd");
                }
            }
            _ => {
                let mut apruns = apruns.lock().expect("whole");
                // One that has just ended may have left its pid to another.
                let own = children(std::process::id() as i32);
                let is_own = |pid: &i32| own.iter().any(|(own, n)| own == pid && n == "aprun");
                let pids: Vec<i32> = apruns.keys().copied().filter(is_own).collect();
                if !pids.is_empty() {
                    let pid = *dice.one_of(&pids);
                    kill(pid, 9);
                    apruns.insert(pid, true);
                    counts.killed("aprun");
                }
            }
        }
    }
}

fn under_load(test: &str, way: Way) {
    let mut dice = Dice::of_this_run(test);
    let given = std::env::var("PSCHED_LOOP_S").ok().and_then(|text| text.parse().ok());
    let time = given.map_or(LOOP, Duration::from_secs);
    let machine = Machine::start(way);
    let bins = match &machine {
        Machine::Hand(hand) if is_root() => {
            hand.open_to_all();
            Some(Bins::new())
        }
        // A private instance is its user's alone.
        _ => None,
    };
    let machine = RwLock::new(machine);
    let (over, counts) = (AtomicBool::new(false), Counts::default());
    let (told, apruns) = (Told::default(), Apruns::default());
    std::thread::scope(|scope| {
        let mut all = Vec::new();
        for other in USERS {
            let dice = dice.split();
            let other = other.and_then(|user| Some((user, bins.as_ref()?)));
            let (machine, over, counts) = (&machine, &over, &counts);
            let (told, apruns) = (&told, &apruns);
            all.push(scope.spawn(move || user(machine, other, dice, over, counts, told, apruns)));
        }
        let dice = dice.split();
        let (machine, over, counts, apruns) = (&machine, &over, &counts, &apruns);
        let killing = scope.spawn(move || killer(machine, dice, over, counts, apruns));
        let until = Instant::now() + time;
        while Instant::now() < until && all.iter().all(|user| !user.is_finished()) {
            std::thread::sleep(Duration::from_millis(100));
        }
        over.store(true, Ordering::Relaxed);
        let failed = all.into_iter().chain([killing]).filter_map(|t| t.join().err()).count();
        assert_eq!(failed, 0, "threads failed, as said above");
    });
    let machine = machine.into_inner().expect("whole");
    // Every application has ended, once, with the status that was told.
    eventually(BOUND, "no application is on record as running", || {
        machine.apstat("-a")["applications"].as_array().is_some_and(Vec::is_empty)
    });
    machine.wait_until_clear(&[]);
    let told = told.into_inner().expect("whole");
    let history = machine.apstat("--history 100000");
    let mut recorded = BTreeMap::new();
    for row in history["history"].as_array().expect("a list") {
        let apid = row["apid"].as_u64().expect("a number");
        let status = row["status"].as_i64().expect("a number") as i32;
        assert_eq!(recorded.insert(apid, status), None, "application {apid} is there twice");
    }
    let oldest = recorded.keys().next().copied().unwrap_or(0);
    for (apid, status) in told.range(oldest..) {
        assert_eq!(recorded.get(apid), Some(status), "application {apid}");
    }
    eprintln!(
        "{test}: {} s: {} applications posted, {} ended as they should, {} with their apshepherd, {} \
         with their aprun; {} on record; kills: {:?}",
        time.as_secs(),
        counts.posted.load(Ordering::Relaxed),
        counts.true_ends.load(Ordering::Relaxed),
        counts.with_shepherd.load(Ordering::Relaxed),
        counts.with_aprun.load(Ordering::Relaxed),
        recorded.len(),
        counts.kills.lock().expect("whole"),
    );
    // (A daemon that has just been started again would die of TERM.)
    machine.wait_until_up();
    machine.end();
}

#[test]
fn kills_under_load_by_hand() {
    under_load("load::kills_under_load_by_hand", Way::ByHand);
}

#[test]
fn kills_under_load_under_start() {
    under_load("load::kills_under_load_under_start", Way::UnderStart);
}
