//! Workloads whose answers were found by hand, and what holds of any.

use super::*;
use proptest::prelude::*;

/// No workload here has so many arrivals, ends, decisions and changes of plan; slices are reckoned.
const STEPS_MAX: usize = 20_000;

/// What became of each job, in the order of the log, and where the capacity went.
fn replayed(setup: &Setup, jobs: &[Job]) -> (Vec<Outcome>, Capacity) {
    #[derive(Default)]
    struct Seen(Vec<Outcome>, Duration, usize);
    impl Watch for Seen {
        fn done(&mut self, outcome: Outcome) {
            self.0.push(outcome);
        }
        fn at(&mut self, now: Duration, _: u32, _: usize) {
            assert!(now >= self.1, "time went back");
            (self.1, self.2) = (now, self.2 + 1);
            assert!(self.2 < STEPS_MAX, "goes through every slice");
        }
    }
    let mut seen = Seen::default();
    let all = jobs.iter().cloned().map(Ok::<_, ()>);
    let capacity = replay(setup, all, &mut seen).expect("no job is refused");
    let mut outcomes = seen.0;
    outcomes.sort_by_key(|outcome| outcome.job.line);
    let end = outcomes.iter().map(|o| o.end.as_secs_f64()).fold(0.0, f64::max);
    let processors = setup.machine.nodes.len() as f64;
    let all = processors * (end - jobs.first().map_or(0.0, |job| job.submit.as_secs_f64()));
    assert!((capacity.total() - all).abs() < 1e-6 * all.max(1.0), "{capacity:?}, not {all}");
    let work: u64 = jobs.iter().map(|job| u64::from(job.width) * job.run.as_secs()).sum();
    assert!((capacity.useful - work as f64).abs() < 1e-3, "{capacity:?}, not {work}");
    (outcomes, capacity)
}

/// On so many nodes of one processor; costs in seconds.
fn setup(processors: u32, costs: (u64, u64), moves: Moves) -> Setup {
    let mut variables = crate::variables::Variables::default();
    variables.set("application.level.bound", "1m").expect("a time");
    variables.set("application.start_cost", &format!("{}s", costs.0)).expect("a time");
    variables.set("application.load_balance.move_cost", &format!("{}s", costs.1)).expect("a time");
    Setup {
        machine: crate::config::embedded(processors, 1).machine,
        variables,
        start_cost: Duration::from_secs(costs.0),
        move_cost: Duration::from_secs(costs.1),
        moves,
    }
}

fn jobs(all: &[(u64, u32, u64)]) -> Vec<Job> {
    let job = |(line, (submit, width, run)): (u64, &(u64, u32, u64))| Job {
        line,
        number: line as i64,
        submit: Duration::from_secs(*submit),
        width: *width,
        run: Duration::from_secs(*run),
        estimate: Duration::from_secs(*run),
        ..Job::default()
    };
    (1..).zip(all).map(job).collect()
}

/// Start, end, starts and moves of each.
fn told(outcomes: &[Outcome]) -> Vec<(f64, f64, u32, u32)> {
    let one = |o: &Outcome| {
        let turns = o.turns.expect("gangs take turns");
        (o.start.as_secs_f64(), o.end.as_secs_f64(), turns.starts, turns.moves)
    };
    outcomes.iter().map(one).collect()
}

#[test]
fn who_comes_second_waits_for_the_bound_of_the_first() {
    // The first leaves its level after 60 s, the second goes on in the next level as it runs already.
    let setup = setup(4, (1, 0), Moves::Daemon);
    let (outcomes, capacity) = replayed(&setup, &jobs(&[(0, 4, 100), (10, 4, 100)]));
    assert_eq!(told(&outcomes), [(0.0, 203.0, 2, 0), (61.0, 162.0, 1, 0)]);
    assert_eq!((capacity.useful, capacity.total()), (800.0, 812.0));
    let stopped = outcomes[0].turns.expect("turns").longest_stopped;
    assert_eq!(stopped, Duration::from_secs(101));
}

#[test]
fn a_newcomer_displaces_who_has_had_more_and_each_start_costs() {
    let setup = setup(4, (5, 30), Moves::Daemon);
    let (outcomes, capacity) = replayed(&setup, &jobs(&[(7, 4, 1000), (500, 4, 30)]));
    assert_eq!(told(&outcomes), [(7.0, 1052.0, 2, 0), (500.0, 535.0, 1, 0)]);
    assert_eq!((capacity.starts, capacity.moves, capacity.idle), (60.0, 0.0, 0.0));
}

#[test]
fn who_is_in_the_way_moves_aside_and_pays() {
    // Two single processors are left, with somebody between them.
    let all = [(0, 1, 100), (0, 1, 1000), (0, 1, 100), (0, 1, 1000), (200, 2, 50)];
    let (outcomes, capacity) = replayed(&setup(4, (5, 30), Moves::All), &jobs(&all));
    let mut long = [told(&outcomes)[1], told(&outcomes)[3]];
    long.sort_by(|a, b| a.1.total_cmp(&b.1));
    assert_eq!(long, [(0.0, 1005.0, 1, 0), (0.0, 1040.0, 2, 1)]);
    assert_eq!(told(&outcomes)[4], (200.0, 255.0, 1, 0));
    assert_eq!((capacity.starts, capacity.moves), (5.0 * (4.0 + 2.0 + 1.0), 30.0));
    // Where nobody can move, one of them stands meanwhile.
    let mut setup = setup(4, (5, 30), Moves::Daemon);
    setup.variables.set("application.load_balance.enabled", "no").expect("a word");
    let (outcomes, _) = replayed(&setup, &jobs(&all));
    assert!(outcomes.iter().all(|o| o.turns.is_some_and(|turns| turns.moves == 0)));
    assert_eq!(outcomes[1].end.max(outcomes[3].end), Duration::from_secs(1_065));
}

/// Where nodes have memory, it moves too: 1 GiB a second as the variable is, 2 GiB as the log says.
#[test]
fn the_memory_of_a_gang_is_paid_where_it_moves() {
    let mut all = jobs(&[(0, 1, 100), (0, 1, 1000), (0, 1, 100), (0, 1, 1000), (200, 2, 50)]);
    for job in &mut all {
        (job.memory_per_processor, job.used_per_processor) = (Some(4 << 30), Some(2 << 30));
    }
    let mut setup = setup(4, (5, 30), Moves::All);
    assert_eq!(replayed(&setup, &all).1.moves, 30.0);
    for node in setup.machine.nodes.values_mut() {
        node.memory = 64 << 30;
    }
    assert_eq!(replayed(&setup, &all).1.moves, 32.0);
    all.iter_mut().for_each(|job| job.used_per_processor = None);
    assert_eq!(replayed(&setup, &all).1.moves, 34.0);
}

#[test]
fn who_waits_has_a_quarter_of_each_slice() {
    let setup = setup(2, (0, 0), Moves::Daemon);
    let (outcomes, capacity) = replayed(&setup, &jobs(&[(0, 2, 100), (0, 2, 100)]));
    // The first leads until it has had its minute, after 80 s. Then the other does, and has had one at 133.3 s and
    // all at 186.7 s.
    for (outcome, end) in outcomes.iter().zip([200.0, 186.7]) {
        let turns = outcome.turns.expect("turns");
        assert!((outcome.end.as_secs_f64() - end).abs() < 0.5, "{outcome:?}");
        assert!((185..=190).contains(&turns.starts), "{outcome:?}");
        assert!(turns.longest_stopped < Duration::from_secs(2), "{outcome:?}");
    }
    assert_eq!(capacity.useful, 400.0);
}

/// Where a start costs, those who wait have a part only of slices so long that it is worth it.
#[test]
fn there_is_a_floor_only_where_a_start_costs_little_beside_it() {
    let two = jobs(&[(0, 2, 4_000), (0, 2, 4_000)]);
    for (slice, least) in [("10m", 6), ("1s", 1)] {
        let mut setup = setup(2, (5, 0), Moves::Daemon);
        setup.variables.set("application.time_slice", slice).expect("a time");
        let (outcomes, capacity) = replayed(&setup, &two);
        assert!(capacity.starts < 0.06 * capacity.total(), "{capacity:?}");
        let starts = outcomes.iter().map(|o| o.turns.map_or(0, |turns| turns.starts)).min();
        assert!(starts >= Some(least), "{outcomes:?}");
        // (Without a floor one is stopped when it leaves a level.)
        assert!(least > 1 || starts < Some(6), "{outcomes:?}");
    }
}

/// Jobs that are each submitted so many seconds after the one before.
fn one_after_the_other(mut all: Vec<(u64, u32, u64)>) -> Vec<(u64, u32, u64)> {
    let mut at = 0;
    for (submit, ..) in &mut all {
        at += *submit;
        *submit = at;
    }
    all
}

struct Nobody;

impl Watch for Nobody {
    fn done(&mut self, _: Outcome) {}
    fn at(&mut self, _: Duration, _: u32, _: usize) {}
}

#[test]
fn who_is_refused_is_named() {
    let wide = jobs(&[(0, 2, 10), (5, 3, 10)]).into_iter().map(Ok::<_, ()>);
    let stopped = replay(&setup(2, (0, 0), Moves::All), wide, &mut Nobody);
    assert!(matches!(stopped, Err(Stopped::Refused { line: 2, job: 2, .. })), "{stopped:?}");
}

/// Two hundred days of slices of a second: they are reckoned, not gone through.
#[test]
fn a_long_time_of_short_slices_is_soon_over() {
    let setup = setup(3, (0, 0), Moves::Daemon);
    let day = 86_400;
    let (outcomes, capacity) =
        replayed(&setup, &jobs(&[(0, 2, 100 * day), (0, 2, 100 * day), (7, 1, day)]));
    for outcome in &outcomes[..2] {
        let turns = outcome.turns.expect("turns");
        // (One that has waited for two days leads for a while.)
        assert!((198 * day..=200 * day).contains(&outcome.end.as_secs()), "{outcome:?}");
        assert!(u64::from(turns.starts) > 198 * day, "{outcome:?}");
    }
    // Somebody is moved aside, so that it runs beside whoever runs.
    assert!(outcomes[2].end.as_secs().abs_diff(day) <= 20, "{:?}", outcomes[2]);
    // After it a processor is idle while both others are there, for neither could have it.
    assert!(capacity.fragmented < 20.0, "{capacity:?}");
    let kept = outcomes[1].end.as_secs_f64() - day as f64;
    assert!((capacity.kept - kept).abs() < 30.0, "{capacity:?}");
}

/// psched does not know what starts cost here, and makes slices as short as they are set to be.
#[test]
fn who_never_gets_on_is_named() {
    let mut setup = setup(2, (5, 0), Moves::Daemon);
    setup.variables.set("application.start_cost", "0s").expect("a time");
    let two = jobs(&[(0, 2, 100), (0, 2, 100)]).into_iter().map(Ok::<_, ()>);
    let stopped = replay(&setup, two, &mut Nobody);
    let Err(Stopped::Refused { line: 1, why, .. }) = stopped else { panic!("{stopped:?}") };
    assert!(why.contains("--start-cost"), "{why}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// (That no processor is run by two is looked at inside, after every event.)
    #[test]
    fn every_job_ends_and_has_what_it_was_to_have(
        all in proptest::collection::vec((0u64..60, 1u32..=6, 1u64..400), 1..16),
        without: bool, moves: bool, costs in (1u64..6, 0u64..31),
    ) {
        let all = one_after_the_other(all);
        let moves = if moves { Moves::All } else { Moves::Daemon };
        let (mut setup, jobs) = (setup(6, costs, moves), jobs(&all));
        if !without {
            // So long that floors are worth a start.
            setup.variables.set("application.time_slice", "10m").expect("a time");
        }
        let (outcomes, capacity) = replayed(&setup, &jobs);
        prop_assert_eq!(outcomes.len(), jobs.len());
        for outcome in &outcomes {
            let turns = outcome.turns.expect("gangs take turns");
            prop_assert!(outcome.response() >= outcome.job.run);
            prop_assert!(turns.longest_stopped <= outcome.wait(), "{:?}", outcome);
            prop_assert!(turns.starts > 0);
        }
        prop_assert_eq!(replayed(&setup, &jobs), (outcomes, capacity));
    }

    /// All that is for hours and days happens within minutes here. (That a decision would come to nothing before
    /// it is due is looked at inside.)
    #[test]
    fn what_is_not_decided_would_come_to_nothing(
        all in proptest::collection::vec((0u64..60, 1u32..=6, 1u64..500), 8..30),
        moves: bool, costs in (1u64..6, 0u64..31),
    ) {
        let moves = if moves { Moves::All } else { Moves::Daemon };
        let mut setup = setup(6, costs, moves);
        for (name, value) in [
            ("reconsider", "1s"),
            ("compact_after", "7s"),
            ("load_balance.quiet_time", "12s"),
            ("load_balance.least_attained", "15s"),
            ("level.stickiness", "100s"),
            ("level.bound", "10s"),
            ("aging.after", "100s"),
            ("longest_wait", "500s"),
            // Then all happens at whole seconds.
            ("level.width_exponent", "0"),
        ] {
            setup.variables.set(&format!("application.{name}"), value).expect("in range");
        }
        let jobs = jobs(&one_after_the_other(all));
        prop_assert_eq!(replayed(&setup, &jobs).0.len(), jobs.len());
    }
}
