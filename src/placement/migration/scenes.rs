//! Small machines with applications on them, and moves made one by one on an occupancy that takes
//! nothing twice.

use super::*;
use crate::apteam::place::Place;
use crate::machine::{Machine, Members, Nid, Node, Region, RegionSet};
use crate::occupancy::{Held, Rules};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A small machine, and who sits there.
#[derive(Clone)]
pub(super) struct Scene {
    pub occupancy: Occupancy,
    pub movers: BTreeMap<Apid, Mover>,
    pub gate: MigrationLimits,
}

/// What is needed to see it, and no more.
impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for slot in self.occupancy.line() {
            write!(f, "\nnode {} of {}, {} bytes, ", slot.nid, slot.processors, slot.memory)?;
            write!(f, "open {}", slot.open)?;
        }
        for (apid, mover) in &self.movers {
            write!(f, "\n{apid} {:?} {:?} ", mover.places.0, mover.claim)?;
            write!(f, "{:?} stays {}", mover.bytes, mover.stays)?;
        }
        Ok(())
    }
}

impl Scene {
    pub fn situation(&self) -> Situation<'_> {
        Situation { occupancy: &self.occupancy, movers: &self.movers, gate: self.gate }
    }

    /// A node's place on the line.
    pub fn at(&self, nid: Nid) -> usize {
        self.occupancy.line().iter().position(|slot| slot.nid == nid).expect("a node")
    }
}

/// First node, PEs of each, quarters of a gigabyte of each, memory for each PE, how it sits.
type Drawn = (usize, Vec<u32>, u64, Option<u64>, u8);

prop_compose! {
    pub(super) fn scenes(max_resident: u32, nodes_max: usize, gangs_max: usize)(
        nodes in prop::collection::vec((1u32..3, 0u8..40), 3..=nodes_max),
        memory in prop_oneof![2 => Just(0u64), 1 => Just(6u64)],
        gangs in prop::collection::vec(
            (0..nodes_max, prop::collection::vec(1u32..3, 1..3), 0u64..40,
             prop_oneof![Just(None), (1u64..4).prop_map(Some)], 0u8..24),
            2..=gangs_max),
        regions in prop::option::weighted(0.3, (
            prop::collection::vec(0usize..3, nodes_max),
            prop::collection::vec((1usize..8, any::<bool>()), 6),
        )),
    ) -> Scene {
        let rules = Rules { max_resident, ..Rules::PLAIN };
        scene(rules, &nodes, memory, &gangs, regions.as_ref())
    }
}

/// The region of each node, and where each application may go.
type Regions = (Vec<usize>, Vec<(usize, bool)>);

fn reach(regions: Option<&Regions>, one: usize) -> Reach {
    regions.map_or(Reach::ALL, |(_, reaches)| {
        let (passes, spans) = reaches[one % reaches.len()];
        let passes = (0..3).filter(|i| passes >> i & 1 == 1);
        Reach { passes: passes.fold(RegionSet::default(), RegionSet::with), spans }
    })
}

fn scene(
    rules: Rules,
    nodes: &[(u32, u8)],
    memory: u64,
    gangs: &[Drawn],
    regions: Option<&Regions>,
) -> Scene {
    let mut nid = 0;
    let mut machine = Machine::default();
    let mut closed = BTreeSet::new();
    for (processors, kind) in nodes {
        // Some NIDs are not there.
        nid += if *kind == 0 { 2 } else { 1 };
        let node = Node { memory, ..Node::plain(Nid(nid), *processors) };
        if *kind == 1 {
            closed.insert(Nid(nid));
        }
        machine.nodes.insert(Nid(nid), node);
    }
    if let Some((of, _)) = regions {
        let region = |number: usize| {
            let its = machine.nodes.keys().zip(of).filter(|(_, of)| **of == number);
            let members = Members::Nids(its.map(|(nid, _)| *nid).collect());
            let domain = crate::variables::APPLICATION.into();
            Region { name: number.to_string(), domain, members, gate: Default::default() }
        };
        machine.regions = (0..3).map(region).collect();
    }
    let mut occupancy = Occupancy::new(&machine, rules);
    machine.nodes.keys().for_each(|nid| occupancy.set_open(*nid, !closed.contains(nid)));
    let mut movers = BTreeMap::new();
    for (apid, (first, pes, bytes, memory_per_pe, how)) in (1..).zip(gangs) {
        let shares = rules.max_resident > 1;
        let claim =
            Claim { shares, memory_per_pe: *memory_per_pe, exclusive: *how == 0 && !shares };
        let nids: Vec<Nid> = machine.nodes.keys().copied().skip(*first).take(pes.len()).collect();
        let place = |(nid, pes): (&Nid, &u32)| Place {
            nid: *nid,
            // Those with the fewest residents, and sometimes others.
            processors: {
                let at = occupancy.line().iter().position(|s| s.nid == *nid).expect("a node");
                let mut all: Vec<u32> = (0..occupancy.line()[at].processors).collect();
                all.sort_by_key(|p| {
                    (if *how < 16 { occupancy.residents(at)[*p as usize] } else { 0 }, *p)
                });
                all.truncate(*pes as usize);
                all
            },
            pes: *pes,
        };
        let places = PlacementList(nids.iter().zip(pes).map(place).collect());
        let whole = places.0.len() == pes.len()
            && nids.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0)
            && places.0.iter().all(|place| place.processors.len() == place.pes as usize);
        if !whole || occupancy.take(Apid(apid), &places, claim).is_err() {
            continue;
        }
        // Some were measured to have more or less.
        if *how > 20 {
            for nid in places.nids() {
                occupancy.set_memory(Apid(apid), nid, u64::from(*how) - 20);
            }
        }
        if occupancy.line().iter().any(|slot| slot.promised > slot.limit) {
            occupancy.release(Apid(apid));
            continue;
        }
        let mover = Mover {
            bytes: vec![bytes << 28; places.0.len()],
            places,
            claim,
            reach: reach(regions, apid as usize),
            stays: *how == 1,
        };
        movers.insert(Apid(apid), mover);
    }
    let gate = MigrationLimits {
        move_cost: Duration::from_secs(30),
        ..MigrationLimits::from(&Default::default())
    };
    Scene { occupancy, movers, gate }
}

/// Whether these nodes, by their place on the line, are where it may go.
pub(super) fn among(scene: &Scene, reach: Reach, nodes: impl Iterator<Item = usize>) -> bool {
    let line = scene.occupancy.line();
    let nodes: Vec<usize> = nodes.collect();
    reach.sets().any(|set| nodes.iter().all(|at| set.has(line[*at].region)))
}

/// Takes an application from wherever it is to this place; or what is wrong with that.
pub(super) fn go(
    scene: &Scene,
    occupancy: &mut Occupancy,
    apid: Apid,
    to: &PlacementList,
) -> Result<(), String> {
    let mover = &scene.movers[&apid];
    for (home, nid) in mover.places.nids().zip(to.nids()) {
        if home != nid && !occupancy.is_open(nid) {
            return Err(format!("{apid} can't come to {nid}"));
        }
    }
    occupancy.release(apid);
    occupancy.take(apid, to, mover.claim).map_err(|conflict| format!("{apid}: {conflict}"))?;
    // It counts with what it was measured to have: where it stays, with that and no more.
    let counted = scene.occupancy.held(apid);
    for ((home, nid), counted) in mover.places.nids().zip(to.nids()).zip(counted) {
        let less =
            |here: &Held| occupancy.line()[here.at].nid == nid && here.memory < counted.memory;
        if home == nid || occupancy.held(apid).iter().any(less) {
            occupancy.set_memory(apid, nid, counted.memory);
        }
    }
    match occupancy.line().iter().find(|slot| slot.promised > slot.limit) {
        Some(slot) => Err(format!("too much memory on {}", slot.nid)),
        None => Ok(()),
    }
}

/// Makes moves, and returns where each application is then, or what is wrong with the moves.
pub(super) fn make(scene: &Scene, moves: &[Move]) -> Result<BTreeMap<Apid, PlacementList>, String> {
    let mut occupancy = scene.occupancy.clone();
    let mut now: BTreeMap<Apid, PlacementList> =
        scene.movers.iter().map(|(apid, mover)| (*apid, mover.places.clone())).collect();
    let shape = |list: &PlacementList| -> Vec<(u32, usize)> {
        list.0.iter().map(|place| (place.pes, place.processors.len())).collect()
    };
    let in_a_row =
        |list: &PlacementList| list.0.windows(2).all(|pair| pair[0].nid.0 + 1 == pair[1].nid.0);
    for Move { apid, to, cost } in moves {
        let mover = &scene.movers[apid];
        let from = now.insert(*apid, to.clone()).ok_or("it is not there")?;
        let goes = from.0.iter().zip(to.0.iter()).enumerate().filter(|(_, (a, b))| a.nid != b.nid);
        let bytes: Vec<u64> = goes.map(|(i, _)| mover.bytes[i]).collect();
        let fixed = if bytes.is_empty() { 0 } else { 30_000_000_000 };
        let moved = u128::from(bytes.iter().sum::<u64>()) * 1_000_000_000 / (1 << 30);
        if cost.as_nanos() != fixed + moved {
            return Err(format!("{apid} costs {cost:?}"));
        }
        if shape(to) != shape(&mover.places) || !in_a_row(to) {
            return Err(format!("{apid} has lost its shape"));
        }
        go(scene, &mut occupancy, *apid, to)?;
    }
    Ok(now)
}
