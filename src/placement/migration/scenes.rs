//! Small machines with applications on them, and plans made step by step on an occupancy that takes
//! nothing twice.

use super::*;
use crate::apteam::place::Place;
use crate::apteam::posting::Shape;
use crate::machine::{Machine, Members, Node, Region, RegionSet};
use crate::occupancy::{Held, Rules};
use proptest::prelude::*;

/// A small machine, who sits there, and who waits.
#[derive(Clone)]
pub(super) struct Scene {
    pub occupancy: Occupancy,
    pub movers: BTreeMap<Apid, Mover>,
    pub kept: BTreeSet<Nid>,
    pub gate: Gate,
    pub can_roll_out: bool,
    pub waiting: Waiting,
}

/// What is needed to see it, and no more.
impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for slot in self.occupancy.line() {
            let (open, kept) = (slot.open, self.kept.contains(&slot.nid));
            write!(f, "\nnode {} of {}, {} bytes, ", slot.nid, slot.processors, slot.memory)?;
            write!(f, "open {open}, kept {kept}")?;
        }
        for (apid, mover) in &self.movers {
            write!(f, "\n{apid} {:?} {:?} ", mover.places.0, mover.claim)?;
            write!(f, "{:?} {:?}", mover.bytes, self.gate.hindrance(mover))?;
        }
        write!(f, "\n{:?}, can roll out {}", self.waiting.wanted, self.can_roll_out)
    }
}

impl Scene {
    pub fn situation(&self) -> Situation<'_> {
        Situation {
            occupancy: &self.occupancy,
            movers: &self.movers,
            kept: &self.kept,
            gate: self.gate,
            can_roll_out: self.can_roll_out,
        }
    }
}

/// First node, PEs of each, quarters of a gigabyte of each, memory for each PE, what hinders it or how it sits.
type Drawn = (usize, Vec<u32>, u64, Option<u64>, u8);

prop_compose! {
    pub(super) fn scenes(max_resident: u32, nodes_max: usize, gangs_max: usize)(
        nodes in prop::collection::vec((1u32..3, 0u8..40), 3..=nodes_max),
        memory in prop_oneof![2 => Just(0u64), 1 => Just(6u64)],
        gangs in prop::collection::vec(
            (0..nodes_max, prop::collection::vec(1u32..3, 1..3), 0u64..40,
             prop_oneof![Just(None), (1u64..4).prop_map(Some)], 0u8..24),
            2..=gangs_max),
        wanted in (50u32..101, prop_oneof![3 => Just(None), 1 => (1u32..3).prop_map(Some)],
            prop_oneof![Just(None), (1u64..4).prop_map(Some)], 0u8..8),
        can_roll_out in any::<bool>(),
        regions in prop::option::weighted(0.3, (
            prop::collection::vec(0usize..3, nodes_max),
            prop::collection::vec((1usize..8, any::<bool>()), 6),
        )),
    ) -> Scene {
        let rules = Rules { max_resident, ..Rules::PLAIN };
        scene(rules, &nodes, memory, &gangs, wanted, can_roll_out, regions.as_ref())
    }
}

/// The region of each node, and where each may go: who waits first.
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
    (share, per_node, memory_per_pe, how): (u32, Option<u32>, Option<u64>, u8),
    can_roll_out: bool,
    regions: Option<&Regions>,
) -> Scene {
    let mut nid = 0;
    let mut machine = Machine::default();
    let (mut kept, mut closed) = (BTreeSet::new(), BTreeSet::new());
    for (processors, kind) in nodes {
        // Some NIDs are not there.
        nid += if *kind == 0 { 2 } else { 1 };
        let node = Node { memory, ..Node::plain(Nid(nid), *processors) };
        match kind {
            1 => drop(kept.insert(Nid(nid))),
            2 => drop(closed.insert(Nid(nid))),
            _ => {}
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
            wall: (*how == 1).then_some(Wall::Pinned),
            since_move: (*how == 2).then_some(Duration::from_secs(60)),
            attained: Duration::from_secs(if *how == 3 { 10 } else { 5_000 }),
        };
        movers.insert(Apid(apid), mover);
    }
    // As many as this share of the processors that there are for it, in percent.
    let most = rules.max_resident;
    let all = (0..occupancy.line().len()).flat_map(|at| occupancy.residents(at));
    let free: u32 = all.map(|r| most.saturating_sub(u32::from(*r))).sum();
    let shape = Shape { width: (free.div_ceil(most) * share / 100).max(1), depth: 1, per_node };
    let wanted = Wanted {
        shape,
        memory_per_pe,
        exclusive: how == 0,
        flexible: false,
        reach: reach(regions, 0),
    };
    let move_cost = Duration::from_secs(30);
    let gate = Gate { least_gain: 0, moves_max: 64, move_cost, ..Gate::from(&Default::default()) };
    let waiting = Waiting { wanted, attained: Duration::ZERO };
    Scene { occupancy, movers, kept, gate, can_roll_out, waiting }
}

/// Whether these nodes, by their place on the line, are where it may go.
pub(super) fn among(scene: &Scene, reach: Reach, nodes: impl Iterator<Item = usize>) -> bool {
    let line = scene.occupancy.line();
    let nodes: Vec<usize> = nodes.collect();
    reach.sets().any(|set| nodes.iter().all(|at| set.has(line[*at].region)))
}

/// Makes the steps of a plan, and says what is wrong with them.
pub(super) fn make(scene: &Scene, plan: &Plan) -> Result<(), String> {
    let mut occupancy = scene.occupancy.clone();
    let mut now: BTreeMap<Apid, PlacementList> =
        scene.movers.iter().map(|(apid, mover)| (*apid, mover.places.clone())).collect();
    let mut costs: BTreeMap<Apid, Duration> = BTreeMap::new();
    let shape = |list: &PlacementList| -> Vec<(u32, usize)> {
        list.0.iter().map(|place| (place.pes, place.processors.len())).collect()
    };
    let in_a_row =
        |list: &PlacementList| list.0.windows(2).all(|pair| pair[0].nid.0 + 1 == pair[1].nid.0);
    for step in &plan.steps {
        let apid = step.apid();
        let mover = &scene.movers[&apid];
        occupancy.release(apid);
        let from = now.remove(&apid);
        let (to, cost) = match step {
            Step::RollOut { .. } if scene.can_roll_out && from.is_some() => continue,
            Step::RollOut { .. } => return Err(format!("{apid} can't roll out")),
            Step::Move { to, cost, .. } => {
                let from = from.ok_or("nobody who is out moves")?;
                let goes =
                    from.0.iter().zip(to.0.iter()).enumerate().filter(|(_, (a, b))| a.nid != b.nid);
                let bytes: Vec<u64> = goes.map(|(i, _)| mover.bytes[i]).collect();
                let fixed = if bytes.is_empty() { 0 } else { 30_000_000_000 };
                let moved = u128::from(bytes.iter().sum::<u64>()) * 1_000_000_000 / (1 << 30);
                (to, (*cost, fixed + moved))
            }
            Step::RollIn { to, cost, .. } if from.is_none() => {
                let bytes = u128::from(mover.bytes.iter().sum::<u64>());
                (to, (*cost, 30_000_000_000 + 2 * bytes * 1_000_000_000 / (1 << 30)))
            }
            Step::RollIn { .. } => return Err(format!("{apid} is in")),
        };
        if cost.0.as_nanos() != cost.1 {
            return Err(format!("{apid} costs {cost:?}"));
        }
        *costs.entry(apid).or_default() += cost.0;
        if shape(to) != shape(&mover.places) || !in_a_row(to) {
            return Err(format!("{apid} has lost its shape"));
        }
        let goes = cost.1 > 0;
        if mover.wall.is_some() || goes && scene.gate.hindrance(mover).is_some() {
            return Err(format!("{apid} may not move"));
        }
        let at = |nid: Nid| scene.occupancy.line().iter().position(|s| s.nid == nid).unwrap_or(0);
        if !to.nids().eq(mover.places.nids()) && !among(scene, mover.reach, to.nids().map(at)) {
            return Err(format!("{apid} goes through a gate"));
        }
        for (before, place) in mover.places.0.iter().zip(to.0.iter()) {
            let stays = before.nid == place.nid;
            if !stays && (!occupancy.is_open(place.nid) || scene.kept.contains(&place.nid)) {
                return Err(format!("{apid} can't come to {}", place.nid));
            }
        }
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
        if let Some(slot) = occupancy.line().iter().find(|slot| slot.promised > slot.limit) {
            return Err(format!("too much memory on {}", slot.nid));
        }
        now.insert(apid, to.clone());
    }
    let moves: BTreeMap<Apid, &Move> = plan.moves.iter().map(|m| (m.apid, m)).collect();
    let mut work = 0;
    for (apid, mover) in &scene.movers {
        let there = now.get(apid).ok_or(format!("{apid} is out"))?;
        match moves.get(apid) {
            Some(m) if m.from == mover.places && m.to == *there && m.cost == costs[apid] => {
                work += u128::from(mover.processors()) * m.cost.as_nanos();
            }
            None if *there == mover.places => {}
            _ => return Err(format!("{apid} is elsewhere")),
        }
    }
    let wanted = &scene.waiting.wanted;
    let shares = occupancy.rules_in(RegionSet::ALL).max_resident > 1 && !wanted.exclusive;
    let claim = Claim { shares, memory_per_pe: wanted.memory_per_pe, exclusive: wanted.exclusive };
    if work != plan.work || !plan.window.fits(&wanted.shape) || !in_a_row(&plan.window) {
        return Err(format!("work {work}, window {:?}", plan.window));
    }
    let at = |nid: Nid| scene.occupancy.line().iter().position(|s| s.nid == nid).unwrap_or(0);
    if !among(scene, wanted.reach, plan.window.nids().map(at)) {
        return Err("the window is behind a gate".into());
    }
    let usable = |nid: Nid| occupancy.is_open(nid) && !scene.kept.contains(&nid);
    if !plan.window.nids().all(usable) {
        return Err("the window is on nodes that take nobody".into());
    }
    occupancy.take(Apid(999), &plan.window, claim).map_err(|conflict| conflict.to_string())?;
    match occupancy
        .line()
        .iter()
        .find(|s| s.promised > s.limit && plan.window.nids().any(|n| n == s.nid))
    {
        Some(slot) => Err(format!("too much memory on {}", slot.nid)),
        None => Ok(()),
    }
}
