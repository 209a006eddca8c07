//! Decisions against the rules as they are written, on small machines: every processor, every first node.
//!
//! What is promised of each candidate, given those before it in the order (compaction apart, which may
//! move them afterwards):
//!
//! - at home if nobody has taken any of it (and memory does not stand in the way), and nowhere else;
//! - else, if it may, in a window if there is one at all: without displacing anybody if there is such a
//!   one, and else at no more cost than any window has. On a node of which it takes a part, those
//!   displaced are the cheapest first until there is room, which may be one more than need be.

use super::*;
use crate::apteam::place::{Place, PlacementList};
use crate::apteam::shape::Shape;
use crate::machine::Nid;
use crate::machine::{Machine, Members, Node, Reach, Region, RegionSet};
use crate::occupancy::{Claim, Rules as OccupancyRules, Terms};
use crate::variables::{Allocator, End};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// One who wants to run, before it is known where it sits.
#[derive(Clone, Debug)]
struct Asks {
    shape: Shape,
    memory: Option<u64>,
    exclusive: bool,
    reach: Reach,
    /// Where it would sit: the first node, the first processor on each; how it sits.
    sits: Option<(usize, u32, Now)>,
    may_move: bool,
    aside: Option<u64>,
    budget: Option<u64>,
    displaced: u64,
}

/// Where one sits, and its PEs on each node.
type Home = Option<(Seat, Vec<u32>)>;

#[derive(Debug)]
struct Scene {
    occupancy: Occupancy,
    asks: Vec<Asks>,
    homes: Vec<Home>,
}

impl Scene {
    fn new(nodes: &[(u32, u32, u32)], memory: u64, most: u32, asks: Vec<Asks>) -> Scene {
        let mut machine = Machine::default();
        let (mut nid, mut closed) = (0, BTreeSet::new());
        for (step, processors, kind) in nodes {
            nid += step;
            if *kind < 2 {
                closed.insert(Nid(nid));
            }
            let node = Node { memory, ..Node::plain(Nid(nid), *processors) };
            machine.nodes.insert(node.nid, node);
        }
        // Those who may not go anywhere tell that there are regions.
        if asks.iter().any(|one| one.reach != Reach::ALL) {
            let kinds = || machine.nodes.keys().zip(nodes.iter().map(|(.., kind)| kind / 5));
            let region = |number: u32| Region {
                domain: crate::variables::APPLICATION.into(),
                name: number.to_string(),
                members: Members::Nids(
                    kinds().filter(|(_, kind)| *kind == number).map(|(nid, _)| *nid).collect(),
                ),
                gate: Default::default(),
            };
            machine.regions = (0..3).map(region).collect();
        }
        let rules = OccupancyRules { max_resident: most, ..OccupancyRules::PLAIN };
        let mut occupancy = Occupancy::new(&machine, rules);
        for nid in machine.nodes.keys() {
            occupancy.set_open(*nid, !closed.contains(nid));
        }
        // Nobody runs where another runs, nor comes where another comes.
        let mut taken: [BTreeSet<(Nid, u32)>; 3] = Default::default();
        for (number, one) in (0..).zip(&asks) {
            let Some((first, from, now)) = one.sits else { continue };
            let Some(list) = laid(&machine, &one.shape, first, from, one.exclusive) else {
                continue;
            };
            let all: BTreeSet<(Nid, u32)> =
                list.0.iter().flat_map(|p| p.processors.iter().map(|q| (p.nid, *q))).collect();
            let of = &mut taken[now as usize];
            if now != Now::Stands && !of.is_disjoint(&all) {
                continue;
            }
            let claim = Claim {
                shares: !one.exclusive,
                memory_per_pe: one.memory,
                exclusive: one.exclusive,
            };
            if occupancy.take_found(Apid(number), &list, claim).is_ok() {
                of.extend(all);
            }
        }
        let home = |(number, one): (u64, &Asks)| {
            let held = occupancy.held(Apid(number));
            if held.is_empty() {
                return None;
            }
            let mut rest = one.shape.width;
            let pes = held.iter().map(|held| {
                let most = one.shape.per_node.unwrap_or(u32::MAX);
                let here = (held.processors.len() as u32 / one.shape.depth).min(most).min(rest);
                rest -= here;
                here
            });
            let pes: Vec<u32> = pes.collect();
            Some((Seat::of(&occupancy, Apid(number), &pes), pes))
        };
        let homes = (0..).zip(&asks).map(home).collect();
        Scene { occupancy, asks, homes }
    }

    /// How much one loses that is moved aside.
    fn loses(&self) -> impl Fn(&Candidate<'_>) -> u64 {
        |one| self.asks[one.apid.0 as usize].aside.unwrap_or(u64::MAX / 2)
    }

    fn candidates(&self) -> Vec<Candidate<'_>> {
        let of = |(number, (one, home)): (u64, (&Asks, &Home))| Candidate {
            apid: Apid(number),
            wanted: Wanted {
                shape: one.shape,
                memory_per_pe: one.memory,
                exclusive: one.exclusive,
                flexible: false,
                reach: one.reach,
            },
            home: None,
            shape: None,
            now: match (home, one.sits) {
                (Some(_), Some((.., now))) => now,
                // (It found no place: it has no turn.)
                (None, Some((.., Now::Comes))) => Now::Comes,
                _ => Now::Stands,
            },
            keeps: false,
            chosen: false,
            may_move: one.may_move && !one.exclusive,
            may_be_moved: one.aside.is_some() && !one.exclusive,
            may_move_others: one.budget.filter(|_| !one.exclusive),
            gives_way: false,
            displaced: one.displaced,
        };
        let mut all: Vec<Candidate> =
            (0..).zip(self.asks.iter().zip(&self.homes)).map(of).collect();
        for (candidate, home) in all.iter_mut().zip(&self.homes) {
            candidate.home = home.as_ref().map(|(seat, _)| seat);
            candidate.shape = home.as_ref().map(|(_, pes)| &pes[..]);
            if candidate.now == Now::Comes {
                candidate.may_be_moved = false;
            }
        }
        all
    }

    fn node_of(&self, p: u32) -> usize {
        self.occupancy.first().partition_point(|first| *first <= p as usize) - 1
    }

    fn takes_new(&self, p: u32) -> bool {
        let at = self.node_of(p);
        let slot = &self.occupancy.line()[at];
        let residents = self.occupancy.residents(at)[p as usize - self.occupancy.first()[at]];
        slot.open && u32::from(residents) <= self.occupancy.rules_in(RegionSet::ALL).highest_level()
    }
}

/// A place from this node on, from this processor on on each.
fn laid(
    machine: &Machine,
    shape: &Shape,
    first: usize,
    from: u32,
    exclusive: bool,
) -> Option<PlacementList> {
    let nodes: Vec<&Node> = machine.nodes.values().collect();
    let mut rest = shape.width;
    let mut list: Vec<Place> = Vec::new();
    for at in first..nodes.len() {
        let node = nodes[at];
        if at > first && node.nid.0 != nodes[at - 1].nid.0 + 1 {
            return None;
        }
        let from = if exclusive { 0 } else { from };
        let most = shape
            .per_node
            .unwrap_or(u32::MAX)
            .min(node.processors.saturating_sub(from) / shape.depth);
        let pes = most.min(rest);
        if pes == 0 || shape.per_node.is_some_and(|n| pes < n.min(rest)) {
            return None;
        }
        let end = if exclusive { node.processors } else { from + pes * shape.depth };
        list.push(Place { nid: node.nid, processors: (from..end).collect(), pes });
        rest -= pes;
        if rest == 0 {
            return Some(PlacementList(list.into()));
        }
    }
    None
}

/// Who has taken each processor, and who runs there whose turn is still to come.
struct Line {
    taken: Vec<Option<usize>>,
    runner: Vec<Option<usize>>,
    /// Bytes of those who have taken something of a node, and are new there.
    new: Vec<u64>,
}

/// The most that sit on a processor of the window from this node on among these regions, and what it costs;
/// none: there is none. `idle`: nobody may be displaced.
fn cost(
    scene: &Scene,
    line: &Line,
    one: &Candidate,
    set: RegionSet,
    first: usize,
    idle: bool,
) -> Option<(u16, u64)> {
    let slots = scene.occupancy.line();
    let shape = one.wanted.shape;
    let (mut rest, mut hit, mut sit) = (shape.width, BTreeSet::new(), 0);
    for at in first..slots.len() {
        if at > first && slots[at].nid.0 != slots[at - 1].nid.0 + 1 {
            return None;
        }
        sit = sit.max(most_on(scene, at));
        let base = scene.occupancy.first()[at] as u32;
        let all: Vec<u32> = (base..base + slots[at].processors)
            .filter(|p| scene.takes_new(*p) && line.taken[*p as usize].is_none())
            .filter(|p| !idle || line.runner[*p as usize].is_none())
            .collect();
        if one.wanted.exclusive
            && (slots[at].free < slots[at].processors || all.len() < slots[at].processors as usize)
        {
            return None;
        }
        let terms =
            &one.wanted.need(scene.occupancy.rules_in(RegionSet::ALL).highest_level(), set).terms;
        let promised = slots[at].promised + line.new[at];
        let here = slots[at].room(terms, all.len() as u32, promised).pes;
        let by_shape = one.shape.map(|pes| pes[at - first]);
        let pes = match (by_shape, shape.per_node) {
            (Some(pes), _) => pes,
            (None, Some(n)) => n.min(rest),
            (None, None) => here.min(rest),
        };
        let terms = Terms { per_node: None, ..*terms };
        let room = slots[at].room(&terms, all.len() as u32, promised).pes;
        if pes == 0 || pes > room {
            return None;
        }
        let mut on: Vec<(u64, usize)> = all
            .iter()
            .filter_map(|p| line.runner[*p as usize])
            .map(|runner| (scene.asks[runner].displaced, runner))
            .collect();
        on.sort_unstable();
        let unused = all.len() - on.len();
        let wanted = ((pes * shape.depth) as usize).saturating_sub(unused);
        hit.extend(on.iter().take(wanted).map(|(_, runner)| *runner));
        rest -= pes;
        if rest == 0 {
            return Some((sit, hit.iter().map(|runner| scene.asks[*runner].displaced).sum()));
        }
    }
    None
}

fn most_on(scene: &Scene, at: usize) -> u16 {
    scene.occupancy.residents(at).iter().copied().max().unwrap_or(0)
}

prop_compose! {
    fn asked()(
        width in 1u32..7,
        depth in prop_oneof![4 => Just(1u32), 1 => 2u32..4],
        per_node in prop_oneof![2 => Just(None), 1 => (1u32..4).prop_map(Some)],
        memory in prop_oneof![2 => Just(None), 1 => (0u64..40).prop_map(Some)],
        exclusive in prop::bool::weighted(0.1),
        sits in prop_oneof![
            1 => Just(None),
            2 => (0usize..8, 0u32..3, prop_oneof![4 => Just(Now::Runs), 2 => Just(Now::Stands), 1 => Just(Now::Comes)])
                .prop_map(Some)
        ],
        may_move in any::<bool>(),
        aside in prop_oneof![Just(None), (0u64..9).prop_map(Some)],
        budget in prop_oneof![3 => Just(None), 1 => (0u64..20).prop_map(Some)],
        displaced in 1u64..9,
        (passes, spans) in (0usize..8, any::<bool>()),
    ) -> Asks {
        let shape = Shape { width, depth, per_node };
        let passes = (0..3).filter(|i| passes >> i & 1 == 1);
        let reach = Reach { passes: passes.fold(RegionSet::default(), RegionSet::with), spans };
        Asks { shape, memory, exclusive, reach, sits, may_move, aside, budget, displaced }
    }
}

prop_compose! {
    fn scenes()(
        nodes in prop::collection::vec((prop_oneof![5 => Just(1u32), 1 => Just(2)], 1u32..5, 0u32..16), 1..8),
        alike in any::<bool>(),
        memory in prop_oneof![Just(0u64), 1u64..200],
        most in 1u32..4,
        asks in prop::collection::vec(asked(), 1..9),
        regions in any::<bool>(),
        (allocator, allocator_wide) in (0..Allocator::ALL.len(), 1u64..7),
    ) -> Scene {
        let anywhere = |one: Asks| Asks { reach: if regions { one.reach } else { Reach::ALL }, ..one };
        let asks = asks.into_iter().map(anywhere);
        let size = nodes[0].1;
        // Who comes stands before all others.
        let (mut order, others): (Vec<_>, Vec<_>) =
            asks.partition(|one| matches!(one.sits, Some((.., Now::Comes))));
        order.extend(others);
        let nodes: Vec<_> = nodes
            .into_iter()
            .map(|(step, processors, kind)| (step, if alike { size } else { processors }, kind))
            .collect();
        let mut scene = Scene::new(&nodes, memory, most, order);
        let rules = scene.occupancy.rules_in(RegionSet::ALL);
        let allocator = Allocator::ALL[allocator].0;
        scene.occupancy.set_rules(OccupancyRules { allocator, allocator_wide, ..rules });
        scene
    }
}

const RULES: Rules = Rules {
    domain: RegionSet::ALL,
    roll_out: false,
    stay: false,
    compactions_max: 0,
    moved_max: 8,
    searches_max: 256,
};

/// What holds of every decision.
fn is_sound(scene: &Scene, order: &[Candidate], packing: &Packing) -> Result<(), TestCaseError> {
    let mut taken: BTreeMap<u32, Apid> = BTreeMap::new();
    let mut coming: BTreeSet<u32> = BTreeSet::new();
    let mut new: BTreeMap<usize, u64> = BTreeMap::new();
    for (number, one) in order.iter().enumerate() {
        if one.now == Now::Comes {
            coming.extend(one.home.iter().flat_map(|home| home.runs.iter().flat_map(Clone::clone)));
        }
        let seat = packing.seats.get(&one.apid);
        let runs = packing.party.contains(&one.apid);
        prop_assert!(seat.is_none() || runs, "{} sits and does not run", one.apid);
        if !runs {
            continue;
        }
        prop_assert!(one.now != Now::Comes, "{} runs, and has not come", one.apid);
        let seat = match (seat, one.home) {
            (Some(seat), home) => {
                let moved_aside = one.may_be_moved;
                prop_assert!(home.is_none() || one.may_move || moved_aside, "{} stays", one.apid);
                let list = seat.places(&scene.occupancy);
                let pes: Vec<u32> = list.0.iter().map(|place| place.pes).collect();
                match one.shape {
                    Some(shape) => prop_assert_eq!(&pes[..], shape),
                    None => prop_assert!(list.fits(&one.wanted.shape), "{:?}", list),
                }
                let nids: Vec<u32> = list.nids().map(|nid| nid.0).collect();
                prop_assert!(nids.windows(2).all(|w| w[0] + 1 == w[1]), "{:?}", nids);
                let line = scene.occupancy.line();
                let among = |set: RegionSet| {
                    seat.nodes.iter().all(|(at, ..)| set.has(line[*at as usize].region))
                };
                prop_assert!(
                    one.wanted.reach.sets().any(among),
                    "{} goes through a gate",
                    one.apid
                );
                for p in seat.runs.iter().flat_map(Clone::clone) {
                    prop_assert!(scene.takes_new(p), "{} sits on {}", one.apid, p);
                    prop_assert!(!coming.contains(&p), "{} sits on what is kept", one.apid);
                }
                for place in list.0.iter() {
                    prop_assert_eq!(
                        place.processors.len() as u32,
                        place.pes * one.wanted.shape.depth
                    );
                    let at = scene
                        .occupancy
                        .line()
                        .iter()
                        .position(|s| s.nid == place.nid)
                        .expect("a node");
                    let slot = &scene.occupancy.line()[at];
                    let bytes =
                        slot.memory_of(one.wanted.memory_per_pe, place.pes, place.processors.len());
                    *new.entry(at).or_default() += bytes;
                }
                seat
            }
            (None, Some(home)) => home,
            (None, None) => return Err(TestCaseError::fail(format!("{number} runs nowhere"))),
        };
        let whole = |at: usize| {
            let base = scene.occupancy.first()[at] as u32;
            base..base + scene.occupancy.line()[at].processors
        };
        let all: Vec<u32> = match one.wanted.exclusive {
            true => seat.nodes.iter().flat_map(|(at, ..)| whole(*at as usize)).collect(),
            false => seat.runs.iter().flat_map(Clone::clone).collect(),
        };
        for p in all {
            if let Some(other) = taken.insert(p, one.apid) {
                return Err(TestCaseError::fail(format!("{p} is {}'s and {other}'s", one.apid)));
            }
        }
    }
    for (at, bytes) in new {
        let slot = &scene.occupancy.line()[at];
        prop_assert!(
            slot.memory == 0 || bytes == 0 || slot.promised + bytes <= slot.limit,
            "{:?} {}",
            slot,
            bytes
        );
    }
    Ok(())
}

/// Whether there are gaps for those who go from a window, by a look at each node of the line.
fn has_gaps(packer: &Packer, form: &Form, window: &Range<usize>, who: &[u32]) -> bool {
    let blocks = packer.board.known_blocks();
    let block = |at: usize| blocks.iter().find(|b| b.at <= at && at < b.end()).expect("a block");
    let line = packer.board.line();
    let joins = |at: usize| line.get(at + 1).is_some_and(|next| next.nid.0 == line[at].nid.0 + 1);
    let each = |at: usize| match block(at) {
        block if block.mixed || who.contains(&block.taken) => u64::from(block.all),
        block => u64::from(block.free),
    };
    let need = form.need();
    let all: u64 = window.clone().map(|at| u64::from(block(at).all)).sum();
    let left = all.saturating_sub(need.width * u64::from(need.terms.depth));
    let (mut gaps, mut open) = (Vec::new(), 0);
    for at in 0..line.len() {
        let mut end = false;
        if at == window.start {
            // What is left over of it is at one of its ends, or within.
            open += left;
            if left < window.len() as u64 {
                gaps.push(open);
                open = left;
            }
        }
        if !window.contains(&at) {
            open += each(at);
            end = each(at) == 0;
        }
        if end || !joins(at) && (!window.contains(&at) || at + 1 == window.end) {
            gaps.push(std::mem::take(&mut open));
        }
    }
    let wide = |one: &u32| packer.order[*one as usize].wanted.shape.processors().max(1);
    let mut widths: Vec<u64> = who.iter().map(wide).collect();
    widths.sort_unstable();
    let hold = |width: u64| gaps.iter().map(|gap| gap / width).sum::<u64>();
    (1..).zip(widths.iter().rev()).all(|(count, width)| hold(*width) >= count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn each_has_its_home_or_the_best_window_there_is(scene in scenes(), stay in any::<bool>()) {
        let order = scene.candidates();
        let rules = Rules { stay, ..RULES };
        let packing = pack(&scene.occupancy, &order, &rules, &scene.loses(), &|_| Vec::new(), &mut Room::default());
        is_sound(&scene, &order, &packing)?;
        let processors: usize = scene.occupancy.line().iter().map(|s| s.processors as usize).sum();
        let mut line = Line {
            taken: vec![None; processors],
            runner: vec![None; processors],
            new: vec![0; scene.occupancy.line().len()],
        };
        for (number, one) in order.iter().enumerate().filter(|(_, one)| one.now == Now::Runs) {
            for p in one.home.iter().flat_map(|home| home.runs.iter().flat_map(Clone::clone)) {
                line.runner[p as usize] = Some(number);
            }
        }
        let tight = !scene.occupancy.notable().tight.is_empty();
        for (number, one) in order.iter().enumerate() {
            let seat = packing.seats.get(&one.apid);
            let runs = packing.party.contains(&one.apid);
            let home: Vec<u32> =
                one.home.iter().flat_map(|home| home.runs.iter().flat_map(Clone::clone)).collect();
            let by: BTreeSet<usize> = home.iter().filter_map(|p| line.taken[*p as usize]).collect();
            let free = one.home.is_some() && by.is_empty();
            let comes = by.iter().all(|by| order[*by].now == Now::Comes);
            let runs_on = one.home.is_some() && comes && one.now == Now::Runs;
            if one.now == Now::Comes {
                prop_assert!(!runs);
            } else if (free || runs_on) && !tight {
                prop_assert!(runs && seat.is_none(), "{} is not at home", one.apid);
            }
            let at_home = runs && seat.is_none() || one.now == Now::Comes && free;
            if !at_home && one.now != Now::Comes && (one.home.is_none() || one.may_move) {
                // (Where others are moved it does not count how many sit somewhere.)
                let of = |(sit, cost)| (if stay { sit } else { 0 }, cost);
                let costs = |idle| {
                    let in_set = |set| {
                        let all = 0..line.new.len();
                        all.filter_map(|at| cost(&scene, &line, one, set, at, idle)).map(of).min()
                    };
                    one.wanted.reach.sets().find_map(in_set)
                };
                let (idle, least) = (costs(true), costs(false));
                prop_assert_eq!(runs, least.is_some(), "{}: {:?}", one.apid, packing);
                if let Some(seat) = seat {
                    let here = seat.nodes[0].0 as usize;
                    let hit: BTreeSet<usize> = seat
                        .runs
                        .iter()
                        .flat_map(Clone::clone)
                        .filter_map(|p| line.runner[p as usize])
                        .collect();
                    let hit: u64 = hit.iter().map(|runner| scene.asks[*runner].displaced).sum();
                    let sit = seat.nodes.iter().map(|node| most_on(&scene, node.0 as usize)).max();
                    let is = of((sit.unwrap_or(0), hit));
                    let most = if idle.is_some() { (u16::MAX, 0) } else { least.unwrap_or_default() };
                    let right = is.1 == 0 && idle.is_some() || idle.is_none() && is <= most;
                    prop_assert!(right, "{} costs {:?} from {}, not {:?}", one.apid, is, here, most);
                    let starts = |set| {
                        let all = 0..line.new.len();
                        let idle = |at: &usize| cost(&scene, &line, one, set, *at, true).is_some();
                        Some(all.filter(idle).collect::<Vec<_>>()).filter(|all| !all.is_empty())
                    };
                    let starts = one.wanted.reach.sets().find_map(starts).unwrap_or_default();
                    let nearest = match scene.occupancy.rules_in(RegionSet::ALL).end_for(one.wanted.shape.width.into()) {
                        Some(End::Low) => starts.first(),
                        Some(End::High) => starts.last(),
                        None => None,
                    };
                    prop_assert!(nearest.is_none_or(|at| *at == here), "{} from {}", one.apid, here);
                }
            } else if !at_home {
                prop_assert!(!runs, "{} runs elsewhere", one.apid);
            }
            // As it is for those who follow.
            for p in line.runner.iter_mut().filter(|p| **p == Some(number)) {
                *p = None;
            }
            let taken: Vec<u32> = match seat {
                Some(seat) => seat.runs.iter().flat_map(Clone::clone).collect(),
                None if at_home => home,
                None => Vec::new(),
            };
            for p in taken {
                line.taken[p as usize].get_or_insert(number);
            }
            for (at, processors, pes) in seat.iter().flat_map(|seat| &seat.nodes) {
                let at = *at as usize;
                let slot = &scene.occupancy.line()[at];
                line.new[at] += slot.memory_of(one.wanted.memory_per_pe, *pes, *processors as usize);
                if one.wanted.exclusive {
                    let base = scene.occupancy.first()[at];
                    line.taken[base..base + slot.processors as usize].fill(Some(number));
                }
            }
        }
    }

    /// Who is moved aside may be, loses no more in sum than was allowed, and runs.
    #[test]
    fn only_those_are_moved_aside_who_may_be(scene in scenes(), roll_out in any::<bool>()) {
        let order = scene.candidates();
        let rules = Rules { roll_out, compactions_max: 1, moved_max: 3, ..RULES };
        let packing = pack(&scene.occupancy, &order, &rules, &scene.loses(), &|_| Vec::new(), &mut Room::default());
        if !roll_out {
            is_sound(&scene, &order, &packing)?;
        }
        let aside: Vec<&Candidate> = order
            .iter()
            .filter(|one| packing.seats.contains_key(&one.apid))
            .filter(|one| one.home.is_some() && !one.may_move)
            .collect();
        prop_assert!(aside.len() <= 3);
        let budgets = order.iter().filter_map(|one| one.may_move_others).max().unwrap_or(0);
        let lost = aside.iter().map(|one| scene.loses()(one)).sum::<u64>();
        prop_assert!(lost <= budgets, "{} of {}", lost, budgets);
    }

    /// A window that could not be cleared leaves no trace, and gaps are seen as if each node were
    /// looked at.
    #[test]
    fn what_was_tried_in_vain_is_undone(scene in scenes(), roll_out in any::<bool>()) {
        let order = scene.candidates();
        let rules = Rules { roll_out, ..RULES };
        let loses = scene.loses();
        let mut packer = Packer::new(&scene.occupancy, &order, &rules, &loses, Room::default());
        for (at, one) in order.iter().enumerate() {
            let runs = packer.turn(at);
            if !runs && one.now != Now::Comes && one.home.is_none() && !one.wanted.exclusive {
                let Some(set) = one.wanted.reach.sets().next() else { continue };
                let form = Form::of(one, packer.level, set);
                for window in packer.windows_to_compact(&form, u64::MAX / 4) {
                    let before = (packer.board.state(), packer.seats.clone());
                    let who = packer.in_the_way(&form, &window.nodes);
                    let gaps = packer.has_gaps(&form, &window.nodes, &who);
                    prop_assert_eq!(gaps, has_gaps(&packer, &form, &window.nodes, &who));
                    if packer.exchange(at, &form, window.nodes, who) {
                        prop_assert!(gaps, "refused at sight");
                        break;
                    }
                    prop_assert_eq!(before, (packer.board.state(), packer.seats.clone()));
                }
            }
            packer.board.passed(at);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Blocks that are made anew where something has changed are those of the whole line.
    #[test]
    fn blocks_are_those_of_the_line(
        scene in scenes(),
        (roll_out, stay) in any::<(bool, bool)>(),
        looks in prop::collection::vec(any::<bool>(), 8),
    ) {
        let order = scene.candidates();
        let compactions_max = if stay { 0 } else { 2 };
        let rules = Rules { roll_out, stay, compactions_max, ..RULES };
        let loses = scene.loses();
        let mut packer = Packer::new(&scene.occupancy, &order, &rules, &loses, Room::default());
        for (at, one) in order.iter().enumerate() {
            if !packer.turn(at) && one.displaced % 3 == 0 {
                packer.board.keep(|| usable_runs(scene.occupancy.line(), &one.wanted));
            }
            packer.board.passed(at);
            if looks[at] {
                packer.board.blocks();
                prop_assert_eq!(packer.board.known_blocks(), packer.board.blocks_anew());
            }
        }
    }
}

/// A decision of a large line is bounded however many ask in vain.
#[test]
fn many_who_ask_in_vain_are_bounded() {
    let nodes: Vec<(u32, u32, u32)> = vec![(1, 4, 9); 4_000];
    let mut asks = Vec::new();
    let one = |width, sits| Asks {
        shape: Shape { width, depth: 1, per_node: None },
        memory: None,
        exclusive: false,
        reach: Reach::ALL,
        sits,
        may_move: false,
        aside: Some(1),
        budget: None,
        displaced: 1,
    };
    // Every other processor is taken for good: nobody finds two nodes in a row empty.
    asks.extend((0..4_000).map(|at| one(3, Some((at, 0, Now::Runs)))));
    asks.extend((0..1_000).map(|n| Asks { budget: Some(9), ..one(9_000 - n, None) }));
    let scene = Scene::new(&nodes, 0, 4, asks);
    let order = scene.candidates();
    let rules = Rules { compactions_max: 4, ..RULES };
    let loses = scene.loses();
    let mut packer = Packer::new(&scene.occupancy, &order, &rules, &loses, Room::default());
    let party = (0..order.len()).filter(|at| packer.turn(*at)).count();
    assert_eq!(party, 4_000);
    assert!(packer.searches <= rules.searches_max && packer.compactions <= 4);
}
