//! Seeds, on all processors.

use super::faults::CHOSEN;
use super::{Counts, Failure, Options, run};

/// Tries seeds on two threads, and counts what happened in them; panics with the first that fails.
fn seeds(
    range: std::ops::Range<u64>,
    of: impl Fn(u64) -> Options + Sync,
    least: (u64, u64),
) -> Counts {
    let next = std::sync::atomic::AtomicU64::new(range.start);
    let work = || -> Result<Counts, Box<Failure>> {
        let mut all = Counts::default();
        loop {
            let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if seed >= range.end {
                return Ok(all);
            }
            let counts = run(&of(seed))?.counts;
            let (events, postings) = (counts.events, counts.postings);
            assert!(events >= least.0 && postings >= least.1, "seed {seed} is small: {counts:?}");
            all.and(&counts);
        }
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        let mut all = Counts::default();
        for thread in threads {
            match thread.join().expect("no panic") {
                Ok(counts) => all.and(&counts),
                Err(failure) => panic!("{failure}"),
            }
        }
        all
    })
}

#[test]
fn nothing_goes_wrong_where_nothing_goes_wrong() {
    let of = |seed| Options { faults: Some(Default::default()), ..Options::new(seed) };
    let counts = seeds(1..40, of, (1, 100));
    // Nobody is frozen for longer than turns take.
    assert!(counts.let_run_in_time > 100, "{counts:?}");
    // Some do not fit on a node together, and some have to wait for their memory.
    assert!(counts.crowded > 1_000 && counts.brought > 1_000, "{counts:?}");
    // And nobody runs in part for longer than a plan takes to be agreed.
    assert!(counts.partial > 100, "{counts:?}");
}

/// Each seed chooses its faults: `psched torture` tries more of them.
#[test]
fn nothing_is_lost_whatever_goes_wrong() {
    let counts = seeds(29..241, Options::new, (5_000, 100));
    assert!(counts.let_run > 100_000, "gangs take no turns: {counts:?}");
    assert!(counts.moved > 100, "nobody is moved: {counts:?}");
    assert!(counts.rolled_out > 1_000, "nobody's memory goes out: {counts:?}");
    assert!(counts.taken_out > 300 && counts.returned > 300, "nor by a checkpoint: {counts:?}");
    assert!(counts.found_away > 3, "no apinit is started while one is out: {counts:?}");
    assert!(counts.kept_off > 100, "nobody is checkpointed and ended: {counts:?}");
    assert!(counts.brought_back > 500, "nobody is brought back: {counts:?}");
}

/// Tries seeds with a class of faults beside those that each chooses, and wants more than so many
/// of each of these counts.
fn seeds_with(class: &str, range: std::ops::Range<u64>, more_than: &[(&'static str, u64)]) {
    let faults = [CHOSEN, class].map(str::to_owned);
    let of = |seed| Options { faults: Some(faults.clone().into()), ..Options::new(seed) };
    let counts = seeds(range, of, (5_000, 100));
    for (what, least) in more_than {
        let count = counts.faults.get(what).copied().unwrap_or(0);
        assert!(count > *least, "{what}: {count}, not more than {least}: {counts:?}");
    }
}

/// Copies of the store are put in its place: no apinit obeys them.
#[test]
fn no_copy_is_obeyed() {
    seeds_with("copies", 1..25, &[("copies", 300)]);
}

/// Hosts can start nothing for a time: launches are tried again elsewhere, and psched drains nodes.
#[test]
fn launches_that_fail_are_tried_again() {
    let more_than = [("launches tried again", 100), ("nodes drained by psched", 10)];
    seeds_with("launches", 1..33, &more_than);
}

/// apruns are on other hosts than psched's, some read slowly, and what is between them and the
/// others breaks. Also while faults go on the ends of those are due whose aprun has died.
#[test]
fn nothing_is_lost_of_apruns_on_other_hosts() {
    let more_than = [
        ("logins", 200),
        ("slow readers", 100),
        ("revoked certificates", 30),
        ("deaths looked at", 100),
    ];
    seeds_with("logins", 1..25, &more_than);
}

/// The clocks of hosts are off and drift, and hosts learn psched's by exchanges that take longer on
/// one way than on the other. The errors that they claim hold, and set their gangs apart by no
/// more.
#[test]
fn clocks_are_as_right_as_is_claimed() {
    let more_than = [
        ("clock exchanges", 10_000),
        ("leads of plans", 300),
        ("steady parts", 50),
        ("parts of changes", 500),
    ];
    seeds_with("exchanges", 41..57, &more_than);
}

/// Connections between hosts are narrow for a time, heartbeats wait there behind what is large, and
/// heads find other hosts full.
#[test]
fn nothing_is_lost_on_narrow_connections() {
    // A host is full only where messages to it wait unread, and mostly it reads them at once: of a
    // hundred narrow connections a few find their host full. (How often: src/torture/narrow.rs,
    // FULL_ONE_IN.)
    const FULL_PEERS: u64 = 5;
    let more_than = [
        ("narrow", 100),
        ("full peers", FULL_PEERS),
        ("silent apinits", 50),
        ("silent psched", 10),
    ];
    seeds_with("narrow", 1..13, &more_than);
}

/// Histories in which something once went wrong: a place lapsed before its apinit had heard of it,
/// and cpr asked that apinit for ever; a psched gave signals numbers that the one before had given,
/// whose records a full disk had not taken; a host was switched off after its application had
/// ended, psched had no record of the launch, and nobody told the front end; an application that an
/// apinit had found at work went out to its checkpoint, and the next apinit did not know that it
/// had begun; one ended while it was to go out, and its apshepherd was not released; a clock was
/// set back, and postings kept the nodes of an empty machine from each other; a host that was given
/// a place again lost the application when an older report of it came once more; a checkpoint that
/// waited was told of a node that was down, though another was only kept; a host whose part had
/// ended was asked for it, had forgotten it, and was taken to have lost it. In 377586661 memory
/// that came in was taken for a gang in part; in 389800070 of logins an application that got a place as
/// another front end of its login host was given up was taken to have ended for no reason; in 149907312 of
/// copies one whose place was taken back had ended well, though the host of PE 0 had been switched off with it.
#[test]
fn what_went_wrong_once_does_not_again() {
    for seed in [327, 503, 1836, 757923091, 616467269, 3001531, 91300144] {
        run(&Options::new(seed)).unwrap_or_else(|failure| panic!("{failure}"));
    }
    for (classes, seed) in [
        (["chosen", "copies"], 277),
        (["chosen", "copies"], 377586661),
        (["chosen", "copies"], 149907312),
        (["apinit", "hosts"], 264),
        (["chosen", "exchanges"], 8),
        (["chosen", "logins"], 389800070),
    ] {
        let faults = Some(classes.map(str::to_owned).into());
        run(&Options { faults, ..Options::new(seed) })
            .unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_seed_is_the_same_history_each_time() {
    let [a, b] = [run(&Options::new(7)), run(&Options::new(7))];
    assert_eq!(a, b);
    assert!(a.is_ok());
}
