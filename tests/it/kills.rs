//! apinit, apshepherd and psched killed with -9 at random moments of an application's life.
//!
//! A moment is had in two steps: a mark that can be seen from outside says that a phase has begun
//! ([`Phase`]), and then a random part of the time passes that the phase takes here and now. So all
//! of it is hit, however fast the machine is; no sleep stands for anything that could be waited for.
//!
//! What must be so after each:
//! - a daemon (psched, apinit): the application has not noticed. aprun ends with the PEs' status, and
//!   no byte of stdin, stdout or stderr is lost, doubled or out of order;
//! - an apshepherd: the application has ended with 125 and the words `its apshepherd was lost`, or
//!   had already ended by itself and has its own status;
//! - psched has it on record as ended, once, with aprun's status; nothing is left of it; and the next
//!   application runs.

use crate::support::dice::Dice;
use crate::support::machine::{Daemon, Machine, Way};
use crate::support::phases::{self, CODE, Flow, Kind, Meets, PHASES, Phase};
use crate::support::*;
use std::time::{Duration, Instant};

/// Moments of each phase; PSCHED_MOMENTS=N tries N, .ci/run 8, .ci/soak 20.
const MOMENTS: u32 = 6;
/// Kills after which a machine is ended and looked at: `psched start` waits longer and longer before
/// it starts a daemon again that dies again and again.
const KILLS: u32 = 4;
/// The longest pause before a daemon is started again by hand.
const PAUSE: Duration = Duration::from_millis(30);

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Psched,
    Apinit,
    Apshepherd,
}

fn kill_at_random_moments(test: &str, victim: Victim, way: Way) {
    let mut dice = Dice::of_this_run(test);
    let kinds = kinds(test);
    let mut machine = Machine::start(way);
    let lengths: Vec<_> = kinds.iter().map(|kind| phases::lengths(&machine, *kind)).collect();
    eprintln!("{test}: the phases take {lengths:?}");
    let given = std::env::var("PSCHED_MOMENTS").ok();
    let moments = given.and_then(|text| text.parse().ok()).unwrap_or(MOMENTS);
    let mut kills = 0;
    let mut newest = newest_of(&machine);
    for (number, phase) in PHASES.into_iter().enumerate() {
        for moment in 0..moments {
            // A real MPI program where its wire-up is the point; it takes longer.
            let wires_up = phase == Phase::WireUp;
            let of = if wires_up { moment as usize % kinds.len() } else { 0 };
            let Kind { spread: may_spread, meets } = kinds[of];
            let kind = Kind { spread: may_spread && dice.below(2) == 0, meets };
            let delay = dice.time(lengths[of][number]);
            eprintln!("{test}: {phase:?} {moment}: {kind:?}, after {delay:?}");
            one(&mut machine, &mut newest, victim, phase, kind, delay, &mut dice);
            kills += 1;
            if way == Way::UnderStart && victim != Victim::Apshepherd && kills % KILLS == 0 {
                std::mem::replace(&mut machine, Machine::start(way)).end();
                newest = 0;
            }
        }
    }
    machine.end();
}

/// The applications that can be here, of which the first is in all phases; whether they can be on two hosts.
fn kinds(test: &str) -> Vec<Kind> {
    let mut kinds = vec![Kind { spread: true, meets: Meets::ByHand }];
    if mpi::is_there() {
        // On one host only: across hosts MPICH 4.0 with UCX over TCP hangs in MPI_Finalize one time in ten, one
        // rank in the last barrier and the other in what it waits for of the first.
        kinds.push(Kind { spread: false, meets: Meets::Mpich });
    } else {
        skip(test, "no program of MPICH, for mpicc.mpich is not installed");
    }
    if mpi::open_is_there() {
        kinds.push(Kind { spread: true, meets: Meets::OpenMpi });
    } else {
        skip(test, "no program of Open MPI, for mpicc.openmpi is not installed");
    }
    kinds
}

/// One application, one kill.
fn one(
    machine: &mut Machine,
    newest: &mut u64,
    victim: Victim,
    phase: Phase,
    kind: Kind,
    delay: Duration,
    dice: &mut Dice,
) {
    let mut flow = Flow::start(machine, kind);
    let reached = flow.wait_for(machine, phase);
    assert!(reached, "aprun ended before {phase:?}: {:?}", flow.wait(machine).run);
    std::thread::sleep(delay);
    let killed = match victim {
        Victim::Psched => {
            machine.kill(Daemon::Psched, dice.time(PAUSE));
            true
        }
        Victim::Apinit => {
            let nid = if kind.spread { dice.below(2) as u32 } else { 0 };
            machine.kill(Daemon::Apinit(nid), dice.time(PAUSE));
            true
        }
        Victim::Apshepherd => kill_shepherd(machine, &mut flow, dice),
    };
    flow.app_folders(machine);
    flow.let_go();
    let ended = flow.wait(machine);
    let run = &ended.run;
    let died = " was lost: it died: Killed (signal 9)";
    if victim == Victim::Apshepherd && killed && run.status != CODE {
        assert_eq!(run.status, 125, "{}", run.stderr);
        assert!(run.stderr.contains("apshepherd"), "{}", run.stderr);
        assert!(run.stderr.contains(died), "{}", run.stderr);
    } else if victim == Victim::Apshepherd && run.stderr.contains(" lost its apshepherd on NID") {
        // A PE had ended badly before: that decides, and what else was lost is said.
        assert_eq!(run.status, CODE, "{}", run.stderr);
    } else {
        assert_eq!(run.status, CODE, "{}", run.stderr);
        ended.expect_every_byte();
    }
    machine.wait_until_clear(&ended.groups);
    run_next(machine);
    *newest = expect_on_record(machine, *newest, &[0, i64::from(run.status)]);
}

/// Kills a shepherd of the application as soon as there is one; false: it has ended before.
fn kill_shepherd(machine: &Machine, flow: &mut Flow, dice: &mut Dice) -> bool {
    let mut found = Vec::new();
    eventually(BOUND, "it has a shepherd, or has ended", || {
        found = flow.app_folders(machine).iter().filter_map(|app| app.shepherd()).collect();
        !found.is_empty() || !flow.runs()
    });
    if found.is_empty() {
        return false;
    }
    kill(*dice.one_of(&found), 9);
    true
}

/// Runs another application, on all nodes.
fn run_next(machine: &Machine) {
    let script = ["-q", "-n", "2", "-N", "1", "sh", "-c", "echo $ALPS_APP_PE"];
    let run = run(&mut machine.command("aprun", script)).expect(0);
    assert_eq!(run.sorted(), ["0", "1"]);
}

/// The number of the application that ended last.
fn newest_of(machine: &Machine) -> u64 {
    let history = machine.apstat("--history 10");
    let rows = history["history"].as_array().expect("a list").iter();
    rows.filter_map(|row| row["apid"].as_u64()).max().unwrap_or(0)
}

/// The applications that have ended since have these statuses, the newest first, each once; gives
/// the number of the newest.
#[track_caller]
fn expect_on_record(machine: &Machine, since: u64, statuses: &[i64]) -> u64 {
    let until = Instant::now() + BOUND;
    loop {
        let history = machine.apstat("--history 10");
        let rows = history["history"].as_array().expect("a list").iter();
        let new = rows.filter(|row| row["apid"].as_u64() > Some(since));
        let (apids, found): (Vec<_>, Vec<_>) =
            new.filter_map(|row| Some((row["apid"].as_u64()?, row["status"].as_i64()?))).unzip();
        if found == statuses {
            return apids.into_iter().max().unwrap_or(since);
        }
        assert!(Instant::now() < until, "on record: {found:?}, not {statuses:?}");
    }
}

#[test]
fn psched_under_start() {
    kill_at_random_moments("kills::psched_under_start", Victim::Psched, Way::UnderStart);
}

#[test]
fn psched_by_hand() {
    kill_at_random_moments("kills::psched_by_hand", Victim::Psched, Way::ByHand);
}

#[test]
fn apinit_under_start() {
    kill_at_random_moments("kills::apinit_under_start", Victim::Apinit, Way::UnderStart);
}

#[test]
fn apinit_by_hand() {
    kill_at_random_moments("kills::apinit_by_hand", Victim::Apinit, Way::ByHand);
}

#[test]
fn apshepherd_under_start() {
    kill_at_random_moments("kills::apshepherd_under_start", Victim::Apshepherd, Way::UnderStart);
}

#[test]
fn apshepherd_by_hand() {
    kill_at_random_moments("kills::apshepherd_by_hand", Victim::Apshepherd, Way::ByHand);
}
