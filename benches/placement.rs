//! How long it takes to place an application and to remove it again, on machines of 1,000 to
//! 1,000,000 nodes of 16 processors, 30 % of them partly used and 1 % closed.
//!
//! `cargo bench --bench placement`. Placement and occupancy alone, without records and messages:
//! what is measured is `try_place`, `take` and `release` together, for postings of four kinds (with
//! -N, -d, -m and without any), of 1 to 64 PEs, so that each posting finds the changes of those
//! before it. Once on free processors, and once on a machine where none is free, with up to three
//! residents on each. The first posting of a kind builds its part of the index: that is told apart.
//! PSCHED_BENCH_PLACEMENTS changes how many there are (20,000).
//!
//! With regions postings go to an ordinary region, to one of the last fiftieth of the nodes, or may span both:
//! in the lines "regions" all have -N and -m, in the lines "both" they are of all kinds. What the last lines are
//! for: no number of nodes is in the cost. On 2 processors (AMD EPYC) that had nothing else to do; the largest of
//! the lines "both" are first ones of a kind, too:
//!
//! ```text
//!     nodes  on                    p50      p99  largest   first of a kind, ms
//!      1000  free processors       9.3     15.3     91.8   0.0
//!      1000  others               10.4     15.8     69.9   0.0
//!      1000  free, regions         4.8      6.4     75.7   0.0
//!      1000  others, regions       5.4      7.4    106.0   0.0
//!      1000  free, both            8.3     28.8     67.1   0.0
//!      1000  others, both          9.9     30.0     59.8   0.1
//!     10000  free processors      11.0     19.2     89.7   0.4
//!     10000  others               11.3     17.7     58.9   0.4
//!     10000  free, regions         5.5      7.7     76.3   0.2
//!     10000  others, regions       5.9      9.6     94.4   0.3
//!     10000  free, both           10.4     36.3    287.8   0.2
//!     10000  others, both         10.9     34.1    452.2   0.3
//!    100000  free processors      15.0     29.0     85.4   4.3
//!    100000  others               14.4     27.4     72.3   3.9
//!    100000  free, regions         6.7     11.1     58.1   2.3
//!    100000  others, regions       6.9     12.9     73.5   3.1
//!    100000  free, both           14.3     48.3   2997.4   2.3
//!    100000  others, both         13.6     40.1   3842.3   3.8
//!   1000000  free processors      17.1     32.5     83.0   45.7
//!   1000000  others               19.4     42.1    127.6   50.1
//!   1000000  free, regions         7.3     12.6     80.4   26.2
//!   1000000  others, regions       7.7     16.6     65.6   57.3
//!   1000000  free, both           18.6     62.7  33390.2   25.3
//!   1000000  others, both         19.7     52.8  46601.0   42.1
//! 1,000,000 nodes against 100,000, times as much
//!            free processors      1.14     1.12
//!            others               1.35     1.53
//!            free, regions        1.10     1.13
//!            others, regions      1.12     1.29
//!            free, both           1.30     1.30
//!            others, both         1.45     1.32
//! ```

#[path = "support/figures.rs"]
mod figures;

use anyhow::{Context, ensure};
use figures::{Sample, is_bench, machine};
use psched::apteam::Apid;
use psched::apteam::place::{Place, PlacementList};
use psched::apteam::shape::Shape;
use psched::machine::gates::Gate;
use psched::machine::{Machine, Members, Nid, Node, Reach, Region, RegionSet};
use psched::occupancy::{Claim, Occupancy, Rules};
use psched::placement::{Wanted, try_place};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const PROCESSORS: u32 = 16;
const RULES: Rules = Rules { max_resident: 4, ..Rules::PLAIN };
const CLAIM: Claim = Claim { shares: true, memory_per_pe: None, exclusive: false };
/// Applications that are there at once, of those that come and go.
const PRESENT: usize = 32;

fn main() -> anyhow::Result<ExitCode> {
    if !is_bench("placement") {
        return Ok(ExitCode::SUCCESS);
    }
    let count: usize = match std::env::var("PSCHED_BENCH_PLACEMENTS") {
        Ok(number) => number.parse().context("PSCHED_BENCH_PLACEMENTS")?,
        Err(_) => 20_000,
    };
    println!("{}", machine());
    println!("{count} applications placed and removed; microseconds for both together");
    println!(
        "{:>9}  {:<16} {:>8} {:>8} {:>8}   first of a kind, ms",
        "nodes", "on", "p50", "p99", "largest"
    );
    let mut last: [Option<[f64; 2]>; SCENES.len()] = [None; SCENES.len()];
    let mut ratios = Vec::new();
    for nodes in [1_000, 10_000, 100_000, 1_000_000] {
        for (scene, last) in SCENES.iter().zip(&mut last) {
            let now = measure(nodes, *scene, count)?;
            if let Some(before) = last.replace(now).filter(|_| nodes == 1_000_000) {
                ratios.push((scene.name, now[0] / before[0], now[1] / before[1]));
            }
        }
    }
    println!("1,000,000 nodes against 100,000, times as much");
    for (name, p50, p99) in ratios {
        println!("{:>9}  {name:<16} {p50:>8.2} {p99:>8.2}", "");
    }
    Ok(ExitCode::SUCCESS)
}

/// On what is placed.
#[derive(Clone, Copy)]
struct Scene {
    name: &'static str,
    /// No processor is free.
    full: bool,
    /// There is an ordinary region, and one of the last fiftieth of the nodes.
    regions: bool,
    /// Postings are of all kinds, also there.
    kinds: bool,
}

const SCENES: [Scene; 6] = [
    Scene { name: "free processors", full: false, regions: false, kinds: true },
    Scene { name: "others", full: true, regions: false, kinds: true },
    Scene { name: "free, regions", full: false, regions: true, kinds: false },
    Scene { name: "others, regions", full: true, regions: true, kinds: false },
    Scene { name: "free, both", full: false, regions: true, kinds: true },
    Scene { name: "others, both", full: true, regions: true, kinds: true },
];

/// An ordinary region, and the last fiftieth of the nodes, whose gate nobody asks here.
fn regions(nodes: u32) -> Vec<Region> {
    let border = nodes - nodes / 50;
    let region = |name: &str, nids: std::ops::Range<u32>| Region {
        name: name.into(),
        domain: psched::variables::APPLICATION.into(),
        members: Members::Nids(nids.map(Nid).collect()),
        gate: Gate::default(),
    };
    vec![region("ordinary", 0..border), region("overflow", border..nodes)]
}

/// A machine and who is on it.
fn occupied(nodes: u32, scene: Scene, dice: &mut fastrand::Rng) -> anyhow::Result<Occupancy> {
    let full = scene.full;
    let node = |nid| Node { memory: 64 << 30, ..Node::plain(Nid(nid), PROCESSORS) };
    let mut machine: Machine = (0..nodes).map(node).collect();
    if scene.regions {
        machine.regions = regions(nodes);
    }
    let mut occupancy = Occupancy::new(&machine, RULES);
    let mut apid = 0;
    let mut seat = |occupancy: &mut Occupancy, nids: std::ops::Range<u32>, processors: u32| {
        apid += 1;
        let place =
            |nid| Place { nid: Nid(nid), processors: (0..processors).collect(), pes: processors };
        let list = PlacementList(nids.map(place).collect());
        occupancy.take(Apid(apid), &list, CLAIM)
    };
    for nid in 0..nodes {
        occupancy.set_open(Nid(nid), dice.u32(..100) != 0);
        if dice.u32(..100) < 30 {
            seat(&mut occupancy, nid..nid + 1, dice.u32(1..PROCESSORS))?;
        }
    }
    let mut next = 0;
    while full && next < nodes {
        let end = (next + dice.u32(1..64)).min(nodes);
        for _ in 0..dice.u32(1..3) {
            seat(&mut occupancy, next..end, PROCESSORS)?;
        }
        next = end;
    }
    Ok(occupancy)
}

/// Where the posting with this number may go, where there are regions: to the one, to the other, or to both.
fn reach(number: usize) -> Reach {
    let (ordinary, overflow) = (RegionSet::of(0), RegionSet::of(1));
    match number % 8 {
        3 => Reach { passes: overflow, spans: false },
        0 | 4 => Reach { passes: ordinary.with(1), spans: true },
        _ => Reach { passes: ordinary, spans: false },
    }
}

/// A posting of the kind with this number.
fn posting(kind: usize, dice: &mut fastrand::Rng) -> Wanted {
    let width = dice.u32(1..=64);
    let (depth, per_node, memory_per_pe) = match kind % 4 {
        0 => (1, None, None),
        1 => (1, Some(8), Some(1 << 30)),
        2 => (4, None, None),
        _ => (1, Some(PROCESSORS), None),
    };
    Wanted {
        shape: Shape { width, depth, per_node },
        memory_per_pe,
        exclusive: false,
        flexible: false,
        reach: Reach::ALL,
    }
}

/// Returned: the median and the 99th percentile.
fn measure(nodes: u32, scene: Scene, count: usize) -> anyhow::Result<[f64; 2]> {
    let mut dice = fastrand::Rng::with_seed(u64::from(nodes));
    let mut occupancy = occupied(nodes, scene, &mut dice)?;
    let nothing_kept = BTreeSet::new();
    let mut times = Vec::with_capacity(count);
    let mut firsts: Vec<Duration> = Vec::new();
    for number in 0..count + 4 {
        let kind = match (scene.kinds, scene.regions) {
            (false, _) => 1,
            (true, false) => number,
            // (Not the same kind for the same region each time.)
            (true, true) => number + number / 8,
        };
        let mut wanted = posting(kind, &mut dice);
        if scene.regions {
            wanted.reach = reach(number);
        }
        let apid = |number: usize| Apid(1_000_000_000 + number as u64);
        let begun = Instant::now();
        let places = try_place(&mut occupancy, &wanted, &nothing_kept);
        let places = places.with_context(|| format!("no room for {wanted:?}"))?;
        let claim = Claim { memory_per_pe: wanted.memory_per_pe, ..CLAIM };
        occupancy.take(apid(number), &places, claim)?;
        if let Some(oldest) = number.checked_sub(PRESENT) {
            occupancy.release(apid(oldest));
        }
        let took = begun.elapsed();
        ensure!(places.fits(&wanted.shape), "{places:?} for {wanted:?}");
        if number < 4 { firsts.push(took) } else { times.push(took) }
    }
    let first_ms = firsts.iter().map(Duration::as_secs_f64).fold(0.0, f64::max) * 1e3;
    let sample = Sample::new(times);
    let micros = |percent| sample.percentile_ms(percent) * 1e3;
    let p50 = sample.median_ms() * 1e3;
    let [p99, largest] = [99, 100].map(micros);
    println!("{nodes:>9}  {:<16} {p50:>8.1} {p99:>8.1} {largest:>8.1}   {first_ms:.1}", scene.name,);
    Ok([p50, p99])
}
