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
//! With regions all postings have -N and -m, and go to an ordinary region, to one of the last fiftieth of the
//! nodes, or may span both. What the last lines are for: no number of nodes is in the cost. On 2 processors
//! (AMD EPYC) that had other work at the same time, so that the largest are its:
//!
//! ```text
//!     nodes  on                    p50      p99  largest   first of a kind, ms
//!      1000  free processors       9.2     18.0  12121.4   0.1
//!      1000  others               10.0     18.0   8083.5   0.0
//!      1000  free, regions         4.5      9.7   8086.1   0.0
//!      1000  others, regions       5.1     10.0   4114.7   0.0
//!     10000  free processors      11.6     32.8  12110.8   0.4
//!     10000  others               12.0     31.1  12127.1   0.4
//!     10000  free, regions         5.3     10.0   4095.7   0.2
//!     10000  others, regions       5.8     16.9  12110.3   0.5
//!    100000  free processors      15.8     46.8  12148.4   7.8
//!    100000  others               16.1     50.3  12086.7   11.5
//!    100000  free, regions         6.8     22.2   8715.1   2.7
//!    100000  others, regions       7.3     21.8   8102.0   7.9
//!   1000000  free processors      20.4     60.8   8226.5   72.6
//!   1000000  others               22.4     70.1  22024.0   117.8
//!   1000000  free, regions         7.6     22.3   8158.9   37.1
//!   1000000  others, regions       8.4     26.6   8178.4   106.9
//! 1,000,000 nodes against 100,000, times as much
//!            free processors      1.30     1.30
//!            others               1.40     1.39
//!            free, regions        1.11     1.00
//!            others, regions      1.15     1.22
//! ```

#[path = "support/figures.rs"]
mod figures;

use anyhow::{Context, ensure};
use figures::{Sample, is_bench, machine};
use psched::apteam::Apid;
use psched::apteam::place::{Place, PlacementList};
use psched::apteam::posting::Shape;
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
}

const SCENES: [Scene; 4] = [
    Scene { name: "free processors", full: false, regions: false },
    Scene { name: "others", full: true, regions: false },
    Scene { name: "free, regions", full: false, regions: true },
    Scene { name: "others, regions", full: true, regions: true },
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

/// The posting with this number, where there are regions: in the one, in the other, or in both.
fn posting_in_regions(number: usize, dice: &mut fastrand::Rng) -> Wanted {
    let (ordinary, overflow) = (RegionSet::of(0), RegionSet::of(1));
    let reach = match number % 8 {
        3 => Reach { passes: overflow, spans: false },
        0 | 4 => Reach { passes: ordinary.with(1), spans: true },
        _ => Reach { passes: ordinary, spans: false },
    };
    Wanted {
        shape: Shape { width: dice.u32(1..=64), depth: 1, per_node: Some(8) },
        memory_per_pe: Some(1 << 30),
        exclusive: false,
        flexible: false,
        reach,
    }
}

/// The posting with this number.
fn posting(number: usize, dice: &mut fastrand::Rng) -> Wanted {
    let width = dice.u32(1..=64);
    let (depth, per_node, memory_per_pe) = match number % 4 {
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
        let wanted = match scene.regions {
            true => posting_in_regions(number, &mut dice),
            false => posting(number, &mut dice),
        };
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
