//! How long it takes to plan a migration, or to find out that there is none, on machines of 1,000
//! and 10,000 nodes of 1 and 16 processors with about 1,000 applications.
//!
//! `cargo bench --bench migration`. The machine is filled by placement with applications of random
//! widths, then some end here and there until a fifth of it is free; the one that waits wants more
//! than the widest window, and less than is free. What is measured is `try_plan`, and `plan`, which
//! also finds the reasons where there is none, each for PSCHED_BENCH_SCENES machines (40), once by
//! the gate's defaults and once where any gain is worth any cost.

#[path = "support/figures.rs"]
mod figures;

use anyhow::Context;
use figures::{Sample, is_bench, machine};
use psched::apteam::Apid;
use psched::apteam::posting::Shape;
use psched::machine::{Machine, Nid, Node, Reach};
use psched::occupancy::{Claim, Occupancy, Rules};
use psched::placement::migration::{Gate, Mover, Situation, Waiting, plan, try_plan};
use psched::placement::{Wanted, place, try_place};
use psched::variables::Variables;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Applications that a full machine has, about.
const APPLICATIONS: u32 = 1_250;

fn main() -> anyhow::Result<ExitCode> {
    if !is_bench("migration") {
        return Ok(ExitCode::SUCCESS);
    }
    let scenes: u64 = match std::env::var("PSCHED_BENCH_SCENES") {
        Ok(number) => number.parse().context("PSCHED_BENCH_SCENES")?,
        Err(_) => 40,
    };
    println!("{}", machine());
    println!("{scenes} machines each; milliseconds");
    println!(
        "{:>6} {:>10} {:>8} {:<8} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "nodes",
        "processors",
        "resident",
        "gate",
        "plans",
        "try p50",
        "largest",
        "plan p50",
        "largest",
        "moves"
    );
    for nodes in [1_000, 10_000] {
        for (processors, max_resident) in [(1, 1), (16, 1), (16, 4)] {
            for open in [false, true] {
                measure(nodes, processors, max_resident, open, scenes)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

struct Scene {
    occupancy: Occupancy,
    movers: BTreeMap<Apid, Mover>,
    wanted: Wanted,
}

fn scene(nodes: u32, processors: u32, max_resident: u32, seed: u64) -> anyhow::Result<Scene> {
    let mut dice = fastrand::Rng::with_seed(seed);
    let node = |nid| Node::plain(Nid(nid), processors);
    let machine: Machine = (0..nodes).map(node).collect();
    let mut occupancy = Occupancy::new(&machine, Rules { max_resident, ..Rules::PLAIN });
    (0..nodes).for_each(|nid| occupancy.set_open(Nid(nid), true));
    let none = BTreeSet::new();
    let claim = Claim { shares: max_resident > 1, memory_per_pe: None, exclusive: false };
    let all = nodes * processors * max_resident;
    let mut movers = BTreeMap::new();
    let mut apid = 0;
    let mut used = 0;
    let wanted = |width| Wanted {
        shape: Shape { width, depth: 1, per_node: None },
        memory_per_pe: None,
        exclusive: false,
        flexible: false,
        reach: Reach::ALL,
    };
    // Some do not fit near the end.
    for _ in 0..4 * APPLICATIONS {
        let width = dice.u32(1..=2 * all / APPLICATIONS).max(1);
        let Some(places) = try_place(&mut occupancy, &wanted(width), &none) else { continue };
        apid += 1;
        used += width;
        occupancy.take(Apid(apid), &places, claim)?;
        let attained = Duration::from_secs(dice.u64(0..40_000));
        let bytes = vec![dice.u64(0..8) << 30; places.0.len()];
        let reach = Reach::ALL;
        let mover = Mover { places, claim, reach, bytes, wall: None, since_move: None, attained };
        movers.insert(Apid(apid), mover);
    }
    while used > all / 5 * 4 {
        let apid = Apid(dice.u64(1..=apid));
        if let Some(mover) = movers.remove(&apid) {
            used -= mover.processors() as u32;
            occupancy.release(apid);
        }
    }
    let widest = match place(&mut occupancy, &wanted(all), &none) {
        Ok(_) => all,
        Err(no_room) => no_room.largest_width_now,
    };
    let most = (widest * 3).min((all - used) / max_resident).max(widest + 1);
    let width = dice.u32(widest + 1..=most);
    Ok(Scene { occupancy, movers, wanted: wanted(width) })
}

fn measure(
    nodes: u32,
    processors: u32,
    max_resident: u32,
    open: bool,
    scenes: u64,
) -> anyhow::Result<()> {
    let kept = BTreeSet::new();
    let gate = Gate::from(&Variables::default());
    let gate = if open { Gate { least_gain: 0, ..gate } } else { gate };
    let (mut tried, mut planned, mut plans, mut moves) = (Vec::new(), Vec::new(), 0, 0);
    for seed in 0..scenes {
        let Scene { occupancy, movers, wanted } = scene(nodes, processors, max_resident, seed)?;
        let situation = Situation {
            occupancy: &occupancy,
            movers: &movers,
            kept: &kept,
            gate,
            can_roll_out: false,
        };
        let waiting = Waiting { wanted, attained: Duration::from_secs(1_800) };
        let begun = Instant::now();
        let found = try_plan(&situation, &waiting);
        tried.push(begun.elapsed());
        let begun = Instant::now();
        let answer = plan(&situation, &waiting);
        planned.push(begun.elapsed());
        anyhow::ensure!(answer.ok() == found, "two answers for one question");
        plans += usize::from(found.is_some());
        moves += found.map_or(0, |plan| plan.moves.len());
    }
    let (tried, planned) = (Sample::new(tried), Sample::new(planned));
    println!(
        "{nodes:>6} {processors:>10} {max_resident:>8} {:<8} {plans:>6} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.1}",
        if open { "any gain" } else { "default" },
        tried.median_ms(),
        tried.percentile_ms(100),
        planned.median_ms(),
        planned.percentile_ms(100),
        moves as f64 / plans as f64,
    );
    Ok(())
}
