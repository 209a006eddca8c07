//! Plans against every way there is, on small machines: the cheapest sequence of single moves, each
//! of which is allowed where it is made, that ends with a window. And each plan is made, step by
//! step, on an occupancy that takes nothing twice.

use super::search::{Limits, Search};
use super::*;
use crate::apteam::place::Place;
use crate::apteam::posting::Shape;
use crate::machine::{Flavors, Machine, Node};
use crate::occupancy::Rules;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Clone)]
struct Scene {
    occupancy: Occupancy,
    movers: BTreeMap<Apid, Mover>,
    kept: BTreeSet<Nid>,
    gate: Gate,
    can_roll_out: bool,
    waiting: Waiting,
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
    fn situation(&self) -> Situation<'_> {
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
    fn scenes(max_resident: u32, nodes_max: usize, gangs_max: usize)(
        nodes in prop::collection::vec((1u32..3, 0u8..40), 3..=nodes_max),
        memory in prop_oneof![2 => Just(0u64), 1 => Just(6u64)],
        gangs in prop::collection::vec(
            (0..nodes_max, prop::collection::vec(1u32..3, 1..3), 0u64..40,
             prop_oneof![Just(None), (1u64..4).prop_map(Some)], 0u8..24),
            2..=gangs_max),
        wanted in (50u32..101, prop_oneof![3 => Just(None), 1 => (1u32..3).prop_map(Some)],
            prop_oneof![Just(None), (1u64..4).prop_map(Some)], 0u8..8),
        can_roll_out in any::<bool>(),
    ) -> Scene {
        let rules = Rules { max_resident, memory_overcommit: 1_000 };
        scene(rules, &nodes, memory, &gangs, wanted, can_roll_out)
    }
}

fn scene(
    rules: Rules,
    nodes: &[(u32, u8)],
    memory: u64,
    gangs: &[Drawn],
    (share, per_node, memory_per_pe, how): (u32, Option<u32>, Option<u64>, u8),
    can_roll_out: bool,
) -> Scene {
    let mut nid = 0;
    let mut machine = Machine::default();
    let (mut kept, mut closed) = (BTreeSet::new(), BTreeSet::new());
    for (processors, kind) in nodes {
        // Some NIDs are not there.
        nid += if *kind == 0 { 2 } else { 1 };
        let node = Node {
            nid: Nid(nid),
            processors: *processors,
            cpus: Vec::new(),
            memory,
            flavors: Flavors::all(),
            host: String::new(),
        };
        match kind {
            1 => drop(kept.insert(Nid(nid))),
            2 => drop(closed.insert(Nid(nid))),
            _ => {}
        }
        machine.nodes.insert(Nid(nid), node);
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
    let wanted = Wanted { shape, memory_per_pe, exclusive: how == 0 };
    let gate = Gate { least_gain: 0, moves_max: 64, ..Gate::from(&Default::default()) };
    let waiting = Waiting { wanted, attained: Duration::ZERO };
    Scene { occupancy, movers, kept, gate, can_roll_out, waiting }
}

/// Where one may be: its first node, and its processors on each as bits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Spot(usize, Vec<u32>);

/// Every way.
struct Oracle<'a> {
    scene: &'a Scene,
    gangs: Vec<(Apid, &'a Mover, Vec<Spot>)>,
}

/// Which spot each is at; the last number: rolled out.
type State = Vec<usize>;
const OUT: usize = usize::MAX;

impl<'a> Oracle<'a> {
    fn new(scene: &'a Scene) -> Oracle<'a> {
        let one = |(apid, mover): (&Apid, &'a Mover)| (*apid, mover, spots(scene, mover));
        Oracle { scene, gangs: scene.movers.iter().map(one).collect() }
    }

    fn shared(&self) -> bool {
        self.scene.occupancy.rules().max_resident > 1
    }

    fn home(&self) -> State {
        let at = |(_, mover, spots): &(Apid, &Mover, Vec<Spot>)| {
            let home = spot(self.scene, &mover.places);
            spots.iter().position(|spot| *spot == home).expect("its own place")
        };
        self.gangs.iter().map(at).collect()
    }

    /// Bytes with which a gang counts on the i-th of its nodes, which is this one.
    fn memory(&self, gang: usize, i: usize, at: usize) -> u64 {
        let (apid, mover, _) = &self.gangs[gang];
        let place = &mover.places.0[i];
        let slot = &self.scene.occupancy.line()[at];
        let counted = self.scene.occupancy.held(*apid)[i].memory;
        let count = match mover.claim.exclusive {
            true => slot.processors as usize,
            false => place.processors.len(),
        };
        match place.nid == slot.nid {
            true => counted,
            false => slot.memory_of(mover.claim.memory_per_pe, place.pes, count).max(counted),
        }
    }

    /// Residents of each processor of a node (one that shares with nobody counts as many), and its
    /// memory, with those that count.
    fn load(&self, state: &State, at: usize, counts: impl Fn(usize) -> bool) -> (Vec<u32>, u64) {
        let slot = &self.scene.occupancy.line()[at];
        let mut residents = vec![0; slot.processors as usize];
        let mut memory = 0;
        for (i, spot) in state.iter().enumerate().filter(|(_, spot)| **spot != OUT) {
            let Spot(first, masks) = &self.gangs[i].2[*spot];
            if !counts(i) || at < *first || at >= first + masks.len() {
                continue;
            }
            memory += self.memory(i, at - first, at);
            let weight = if self.gangs[i].1.claim.shares { 1 } else { 100 };
            let mask = masks[at - first];
            if self.gangs[i].1.claim.exclusive {
                residents.iter_mut().for_each(|residents| *residents += weight);
            } else if self.shared() {
                let its = (0..).zip(&mut residents).filter(|(p, _)| mask >> p & 1 == 1);
                its.for_each(|(_, residents)| *residents += weight);
            } else {
                // Which processors they are makes no difference.
                for _ in 0..mask.count_ones() {
                    let free = residents.iter().position(|r| *r == 0);
                    residents[free.unwrap_or(0)] += weight;
                }
            }
        }
        (residents, memory)
    }

    /// Whether a gang may be where it is.
    fn is_legal(&self, state: &State, gang: usize) -> bool {
        let Spot(first, masks) = &self.gangs[gang].2[state[gang]];
        (*first..first + masks.len()).all(|at| {
            let slot = &self.scene.occupancy.line()[at];
            let (residents, memory) = self.load(state, at, |_| true);
            let most = if self.gangs[gang].1.claim.shares {
                self.scene.occupancy.rules().max_resident
            } else {
                100
            };
            // A PE that is there already may stay.
            let stays = self.gangs[gang].1.places.0[at - first].nid == slot.nid;
            residents.iter().all(|r| *r <= most)
                && (slot.memory == 0 || memory <= slot.limit)
                && (stays || slot.open && !self.scene.kept.contains(&slot.nid))
        })
    }

    /// Whether the one that waits has a window. It is filled before those that have moved are put
    /// back: they have what it leaves.
    fn is_goal(&self, state: &State) -> bool {
        if state.contains(&OUT) {
            return false;
        }
        let home = self.home();
        let line = self.scene.occupancy.line();
        let wanted = &self.scene.waiting.wanted;
        let level = match wanted.exclusive {
            true => 0,
            false => self.scene.occupancy.rules().max_resident - 1,
        };
        let room = |at: usize, all: bool| {
            let slot = &line[at];
            let (residents, memory) = self.load(state, at, |i| all || state[i] == home[i]);
            let mut processors = residents.iter().filter(|r| **r <= level).count() as u32;
            if !slot.open
                || self.scene.kept.contains(&slot.nid)
                || wanted.exclusive && processors < slot.processors
            {
                processors = 0;
            }
            let share = slot.memory
                / u64::from(slot.processors)
                / u64::from(self.scene.occupancy.rules().max_resident);
            let by_memory = match slot
                .limit
                .saturating_sub(memory)
                .checked_div(wanted.memory_per_pe.unwrap_or(share))
            {
                Some(pes) if slot.memory > 0 => pes as u32,
                _ => u32::MAX,
            };
            processors.min(by_memory).min(wanted.shape.per_node.unwrap_or(u32::MAX))
        };
        (0..line.len()).any(|first| {
            let mut rest = wanted.shape.width;
            for at in first..line.len() {
                if at > first && line[at].nid.0 != line[at - 1].nid.0 + 1 {
                    return false;
                }
                let pes = room(at, false).min(rest);
                if pes == 0
                    || pes < rest && wanted.shape.per_node.is_some_and(|n| pes < n)
                    || room(at, true) < pes
                {
                    return false;
                }
                rest -= pes;
                if rest == 0 {
                    return true;
                }
            }
            false
        })
    }

    /// What the cheapest sequence costs. `straight`: nobody goes anywhere but to its last place.
    fn cheapest(&self, straight: bool) -> Option<u128> {
        let home = self.home();
        let gate = &self.scene.gate;
        let mut least: BTreeMap<State, u128> = BTreeMap::from([(home.clone(), 0)]);
        let mut queue = BinaryHeap::from([Reverse((0u128, home.clone()))]);
        while let Some(Reverse((cost, state))) = queue.pop() {
            if least[&state] < cost {
                continue;
            }
            if self.is_goal(&state) {
                return Some(cost);
            }
            for (i, (_, mover, spots)) in self.gangs.iter().enumerate() {
                let may_leave = gate.hindrance(mover).is_none();
                if mover.wall.is_some() || straight && state[i] != home[i] {
                    continue;
                }
                let mut next = state.clone();
                let mut reach = |next: &State, more: Duration| {
                    let cost = cost + u128::from(mover.processors()) * more.as_nanos();
                    if least.get(next).is_none_or(|least| cost < *least) {
                        least.insert(next.clone(), cost);
                        queue.push(Reverse((cost, next.clone())));
                    }
                };
                for (to, spot) in spots.iter().enumerate().filter(|(to, _)| *to != state[i]) {
                    next[i] = to;
                    let same = state[i] != OUT && spots[state[i]].0 == spot.0;
                    if !self.is_legal(&next, i) || !may_leave && !same {
                        continue;
                    }
                    let more = match state[i] {
                        OUT => gate.cost_of_roll_out(mover),
                        _ if same => Duration::ZERO,
                        _ => gate.cost_of_all(mover),
                    };
                    reach(&next, more);
                }
                if self.scene.can_roll_out && !straight && may_leave && state[i] != OUT {
                    next[i] = OUT;
                    reach(&next, Duration::ZERO);
                }
            }
        }
        None
    }
}

fn spot(scene: &Scene, list: &PlacementList) -> Spot {
    let line = scene.occupancy.line();
    let first = line.iter().position(|slot| slot.nid == list.0[0].nid).expect("a node");
    let mask = |place: &Place| match scene.occupancy.rules().max_resident {
        1 => (1 << place.pes) - 1,
        _ => place.processors.iter().map(|p| 1 << p).sum(),
    };
    Spot(first, list.0.iter().map(mask).collect())
}

fn spots(scene: &Scene, mover: &Mover) -> Vec<Spot> {
    let line = scene.occupancy.line();
    let pes: Vec<u32> = mover.places.0.iter().map(|place| place.pes).collect();
    let mut all = Vec::new();
    for first in 0..=line.len().saturating_sub(pes.len()) {
        let mut heads = vec![Vec::new()];
        for (at, pes) in (first..).zip(&pes) {
            let here = line[at].processors;
            let joins = at == first || line[at].nid.0 == line[at - 1].nid.0 + 1;
            let masks: Vec<u32> = match scene.occupancy.rules().max_resident {
                _ if !joins || here < *pes => Vec::new(),
                1 => vec![(1 << pes) - 1],
                _ => (0..1u32 << here).filter(|mask| mask.count_ones() == *pes).collect(),
            };
            heads = heads
                .iter()
                .flat_map(|head| masks.iter().map(move |mask| [head.as_slice(), &[*mask]].concat()))
                .collect();
        }
        all.extend(heads.into_iter().map(|masks| Spot(first, masks)));
    }
    all
}

/// Makes the steps of a plan, and says what is wrong with them.
fn make(scene: &Scene, plan: &Plan) -> Result<(), String> {
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
        for (before, place) in mover.places.0.iter().zip(to.0.iter()) {
            let stays = before.nid == place.nid;
            if !stays && (!occupancy.is_open(place.nid) || scene.kept.contains(&place.nid)) {
                return Err(format!("{apid} can't come to {}", place.nid));
            }
        }
        occupancy.take(apid, to, mover.claim).map_err(|conflict| format!("{apid}: {conflict}"))?;
        // It counts with what it was measured to have.
        for (nid, held) in to.nids().zip(scene.occupancy.held(apid)) {
            if occupancy
                .held(apid)
                .iter()
                .any(|here| occupancy.line()[here.at].nid == nid && here.memory < held.memory)
            {
                occupancy.set_memory(apid, nid, held.memory);
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
    let shares = occupancy.rules().max_resident > 1 && !wanted.exclusive;
    let claim = Claim { shares, memory_per_pe: wanted.memory_per_pe, exclusive: wanted.exclusive };
    if work != plan.work || !plan.window.fits(&wanted.shape) || !in_a_row(&plan.window) {
        return Err(format!("work {work}, window {:?}", plan.window));
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

/// What a plan costs, the cheapest sequence of straight moves, the cheapest of any.
type Costs = [Option<u128>; 3];

/// The plan against every way.
fn compare(scene: &Scene) -> Result<Costs, TestCaseError> {
    let planned = plan(&scene.situation(), &scene.waiting);
    prop_assert_eq!(planned.clone().ok(), try_plan(&scene.situation(), &scene.waiting));
    if let Ok(plan) = &planned {
        prop_assert_eq!(make(scene, plan), Ok(()), "{:?}", plan);
    }
    let oracle = Oracle::new(scene);
    Ok([planned.ok().map(|plan| plan.work), oracle.cheapest(true), oracle.cheapest(false)])
}

fn is_no_dearer(plan: Option<u128>, than: Option<u128>) -> bool {
    than.is_none_or(|than| plan.is_some_and(|plan| plan <= than))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Where nobody shares: no plan of straight moves is cheaper, no sequence whatever is cheaper
    /// than what the plan says that it costs.
    #[test]
    fn a_plan_costs_the_least_where_nobody_shares(scene in scenes(1, 6, 4)) {
        let [plan, straight, any] = compare(&scene)?;
        prop_assert!(is_no_dearer(plan, straight), "{:?} {:?} {:?}", plan, straight, any);
        prop_assert!(is_no_dearer(any, plan), "{:?} {:?} {:?}", plan, straight, any);
    }

    #[test]
    fn a_plan_costs_the_least_where_processors_are_shared(scene in scenes(2, 4, 3)) {
        let [plan, straight, any] = compare(&scene)?;
        prop_assert!(is_no_dearer(plan, straight), "{:?} {:?} {:?}", plan, straight, any);
        prop_assert!(is_no_dearer(any, plan), "{:?} {:?} {:?}", plan, straight, any);
    }
}

/// What is done where there are many applications may miss a plan, or find a dearer one: how often,
/// of those of these machines on which somebody has to move.
#[test]
fn the_bounded_search_finds_most_plans_and_good_ones() {
    let mut runner = TestRunner::deterministic();
    let scenes = prop_oneof![scenes(1, 6, 4), scenes(2, 4, 3)];
    let (mut all, mut found, mut work, mut least) = (0, 0, 0, 0);
    for _ in 0..2_000 {
        let scene = scenes.new_tree(&mut runner).expect("a scene").current();
        let (situation, waiting) = (scene.situation(), &scene.waiting);
        let Some(best) = try_plan(&situation, waiting).filter(|plan| plan.work > 0) else {
            continue;
        };
        all += 1;
        if let Some(plan) = Search::new(situation, waiting, Limits::NONE).run_bounded().best {
            assert_eq!(make(&scene, &plan), Ok(()), "{scene:?}");
            found += 1;
            work += plan.work;
            least += best.work;
        }
    }
    println!("{found} of {all} found, for {work} instead of {least}");
    assert!(all >= 100 && found * 100 >= all * 85, "{found} of {all}");
    assert!(work * 100 <= least * 103, "{work} for {least}");
}
