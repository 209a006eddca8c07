//! Plans against every way there is, on small machines: the cheapest sequence of single moves, each
//! of which is allowed where it is made, that ends with a window.

use super::scenes::{Scene, among, make, scenes};
use super::search::{Limits, Search};
use super::*;
use crate::apteam::place::Place;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
        self.scene.occupancy.rules_in(crate::machine::RegionSet::ALL).max_resident > 1
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
        let mover = self.gangs[gang].1;
        let nodes = *first..first + masks.len();
        let home = spot(self.scene, &mover.places).0;
        if *first != home && !among(self.scene, mover.reach, nodes.clone()) {
            return false;
        }
        nodes.into_iter().all(|at| {
            let slot = &self.scene.occupancy.line()[at];
            let (residents, memory) = self.load(state, at, |_| true);
            let most = if self.gangs[gang].1.claim.shares {
                self.scene.occupancy.rules_in(crate::machine::RegionSet::ALL).max_resident
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
            false => self.scene.occupancy.rules_in(crate::machine::RegionSet::ALL).max_resident - 1,
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
                / u64::from(
                    self.scene.occupancy.rules_in(crate::machine::RegionSet::ALL).max_resident,
                );
            let left = slot.limit.saturating_sub(memory);
            let reserved = wanted.memory_per_pe.is_none() && memory > 0 && left < slot.limit / 16;
            let by_memory = match left.checked_div(wanted.memory_per_pe.unwrap_or(share)) {
                Some(_) if slot.memory > 0 && reserved => 0,
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
                    return among(self.scene, wanted.reach, first..at + 1);
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
    let mask =
        |place: &Place| match scene.occupancy.rules_in(crate::machine::RegionSet::ALL).max_resident
        {
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
            let masks: Vec<u32> =
                match scene.occupancy.rules_in(crate::machine::RegionSet::ALL).max_resident {
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

/// What a plan costs, the cheapest sequence of straight moves, the cheapest of any.
type Costs = [Option<u128>; 3];

/// Everybody where a plan brings him; `but`: without this one.
fn after(scene: &Scene, plan: &Plan, but: Apid) -> Occupancy {
    let mut occupancy = scene.occupancy.clone();
    let there = |apid: &Apid| plan.moves.iter().find(|m| m.apid == *apid).map(|m| &m.to);
    scene.movers.keys().for_each(|apid| occupancy.release(*apid));
    for (apid, mover) in scene.movers.iter().filter(|(apid, _)| **apid != but) {
        let to = there(apid).unwrap_or(&mover.places);
        occupancy.take_found(*apid, to, mover.claim).expect("its place");
        for ((home, nid), held) in
            mover.places.nids().zip(to.nids()).zip(scene.occupancy.held(*apid))
        {
            let at = scene.occupancy.line().iter().position(|s| s.nid == nid).expect("a node");
            let less = occupancy.held(*apid).iter().any(|h| h.at == at && h.memory < held.memory);
            if home == nid || less {
                occupancy.set_memory(*apid, nid, held.memory);
            }
        }
    }
    occupancy
}

/// How many sit on each processor of a place.
fn residents(occupancy: &Occupancy, list: &PlacementList) -> Vec<u16> {
    let at = |nid: Nid| occupancy.line().iter().position(|s| s.nid == nid).expect("a node");
    let on = |place: &Place| {
        let residents = occupancy.residents(at(place.nid));
        place.processors.iter().map(|p| residents[*p as usize]).collect::<Vec<u16>>()
    };
    list.0.iter().flat_map(on).collect()
}

/// Whether a mover would have room on free processors of other nodes than those where it sits, by the rules
/// alone: any first node.
fn fits_free(
    scene: &Scene,
    occupancy: &Occupancy,
    apid: Apid,
    may: impl Fn(usize) -> bool,
) -> bool {
    let mover = &scene.movers[&apid];
    let line = occupancy.line();
    let counted = scene.occupancy.held(apid);
    let pes: Vec<u32> = mover.places.0.iter().map(|place| place.pes).collect();
    let home = spot(scene, &mover.places).0;
    (0..=line.len().saturating_sub(pes.len())).filter(|first| *first != home).any(|first| {
        let nodes = first..first + pes.len();
        among(scene, mover.reach, nodes.clone())
            && nodes.clone().all(&may)
            && nodes.clone().zip(&pes).zip(counted).all(|((at, pes), counted)| {
                let slot = &line[at];
                let joins = at == first || slot.nid.0 == line[at - 1].nid.0 + 1;
                let stays = mover.places.nids().nth(at - first) == Some(slot.nid);
                let free = occupancy.residents(at).iter().filter(|r| **r == 0).count() as u32;
                let memory = slot.memory_of(mover.claim.memory_per_pe, *pes, *pes as usize);
                let memory = if stays { counted.memory } else { memory.max(counted.memory) };
                joins
                    && slot.open
                    && !scene.kept.contains(&slot.nid)
                    && free >= *pes
                    && (slot.memory == 0 || slot.promised + memory <= slot.limit)
            })
    })
}

/// Free processors come before shared ones: nobody is moved to nodes where he shares, while there is a place
/// without anybody, with all others where the plan brings them.
fn shares_for_nothing(scene: &Scene, plan: &Plan) -> Option<Apid> {
    let goes = plan.moves.iter().filter(|m| !m.from.nids().eq(m.to.nids()));
    goes.map(|m| m.apid).find(|apid| {
        let mut occupancy = after(scene, plan, *apid);
        let to = &plan.moves.iter().find(|m| m.apid == *apid).expect("its move").to;
        let wanted = &scene.waiting.wanted;
        let claim = Claim {
            shares: !wanted.exclusive,
            memory_per_pe: wanted.memory_per_pe,
            exclusive: wanted.exclusive,
        };
        occupancy.take(Apid(999), &plan.window, claim).expect("the window");
        residents(&occupancy, to).iter().any(|r| *r > 0)
            && fits_free(scene, &occupancy, *apid, |_| true)
    })
}

/// The plan against every way.
fn compare(scene: &Scene) -> Result<Costs, TestCaseError> {
    let planned = plan(&scene.situation(), &scene.waiting);
    prop_assert_eq!(planned.clone().ok(), try_plan(&scene.situation(), &scene.waiting));
    if let Ok(plan) = &planned {
        prop_assert_eq!(make(scene, plan), Ok(()), "{:?}", plan);
        prop_assert_eq!(shares_for_nothing(scene, plan), None, "{:?}", plan);
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

proptest! {
    /// Whoever is brought together comes on free processors and further to the left, and there is an order for
    /// that; who is to go elsewhere shares only where he must.
    #[test]
    fn free_processors_come_before_shared_ones(scene in scenes(3, 6, 6)) {
        let all: BTreeSet<Nid> = scene.occupancy.line().iter().map(|slot| slot.nid).collect();
        let targets = compacted(&scene.situation(), &all, |_, _| true);
        let moves = |t: &Target| Move {
            apid: t.apid,
            from: scene.movers[&t.apid].places.clone(),
            to: t.to.clone(),
            cost: Duration::ZERO,
        };
        let moves: Vec<Move> = targets.iter().map(moves).collect();
        let window = PlacementList([].into());
        let plan = Plan { window, moves, steps: Vec::new(), work: 0 };
        for m in &plan.moves {
            let sits = residents(&after(&scene, &plan, m.apid), &m.to);
            prop_assert!(sits.iter().all(|r| *r == 0), "{:?}", m);
            prop_assert!(m.to.nids().min() < m.from.nids().min(), "{:?}", m);
        }
        let steps = order(&scene.situation(), &targets);
        prop_assert_eq!(steps.map(|steps| steps.len()), Ok(targets.len()));
        for (apid, mover) in &scene.movers {
            let own: BTreeSet<Nid> = mover.places.nids().collect();
            let alone = after(&scene, &Plan { moves: Vec::new(), ..plan.clone() }, *apid);
            let elsewhere = elsewhere(&scene.situation(), *apid, None, |_| true);
            let off = |at: usize| !own.contains(&alone.line()[at].nid);
            let fits = fits_free(&scene, &alone, *apid, off);
            let free = elsewhere.map(|to| residents(&alone, &to).iter().all(|r| *r == 0));
            prop_assert_eq!(free == Some(true), fits, "{}: {:?}", apid, free);
        }
    }
}

proptest! {
    /// What is not allowed is not planned; what is, as if all were.
    #[test]
    fn the_gate_is_kept(
        scene in scenes(1, 6, 4),
        moves_max in 1usize..3,
        least_gain in 0u64..8_000,
    ) {
        let any = try_plan(&scene.situation(), &scene.waiting);
        let gate = Gate { moves_max, least_gain, ..scene.gate };
        let allowed = |plan: &Plan| {
            plan.moved() <= moves_max && plan.work <= gate.work_max(&scene.waiting)
        };
        let kept = try_plan(&Situation { gate, ..scene.situation() }, &scene.waiting);
        prop_assert!(kept.as_ref().is_none_or(allowed), "{:?}", kept);
        if let Some(any) = any.filter(allowed) {
            prop_assert_eq!(kept.map(|plan| plan.work), Some(any.work));
        }
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
        let bounded = |set| Search::new(situation, waiting, set, Limits::NONE).run_bounded().best;
        if let Some(plan) = waiting.wanted.reach.sets().find_map(bounded) {
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
