//! The search against the plainest one there is: every first node, every last node, by the rules
//! as they are written; for each allocator. One that is flexible may have any nodes: every set of them.

use super::*;
use crate::machine::{Flavor, Flavors, Machine, Members, Node, Region};
use crate::occupancy::{Claim, empty_line};
use crate::variables::Allocator;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Room of the usable nodes: processors, and PEs.
type Rooms = BTreeMap<u32, (u32, u32)>;

/// One way to place: nodes and PEs on each.
type Layout = Vec<(u32, u32)>;

/// The window from `first` to `last`, if there is one.
fn way(rooms: &Rooms, shape: &Shape, first: u32, last: u32) -> Option<Layout> {
    let mut rest = shape.width;
    let mut way = Layout::new();
    for nid in first..=last {
        let here = rooms.get(&nid)?.1;
        let pes = if nid < last { shape.per_node.unwrap_or(here) } else { rest };
        if pes == 0 || pes > here || (nid < last && pes >= rest) {
            return None;
        }
        rest -= pes;
        way.push((nid, pes));
    }
    Some(way)
}

fn ways(rooms: &Rooms, shape: &Shape) -> Vec<Layout> {
    let nids: Vec<u32> = rooms.keys().copied().collect();
    let pairs = nids.iter().flat_map(|a| nids.iter().map(move |b| (*a, *b)));
    pairs.filter(|(a, b)| a <= b).filter_map(|(a, b)| way(rooms, shape, a, b)).collect()
}

/// Every way, contiguous or not: all nodes of some are full but one.
fn scattered(rooms: &Rooms, shape: &Shape) -> Vec<Layout> {
    let nids: Vec<u32> = rooms.keys().copied().collect();
    let all = (1u32..1 << nids.len()).flat_map(|set| {
        let of: Vec<u32> = (0..nids.len()).filter(|i| set >> i & 1 == 1).map(|i| nids[i]).collect();
        of.clone().into_iter().filter_map(move |last| {
            let full = of.iter().filter(|nid| **nid != last);
            let full: Vec<u32> = full.map(|nid| shape.per_node.unwrap_or(rooms[nid].1)).collect();
            let rest = shape.width.checked_sub(full.iter().sum()).filter(|rest| *rest > 0)?;
            let mut full = full.into_iter();
            let way = of.iter().map(|nid| match *nid == last {
                true => (*nid, rest),
                false => (*nid, full.next().expect("as many")),
            });
            let way: Layout = way.collect();
            way.iter().all(|(nid, pes)| *pes <= rooms[nid].1).then_some(way)
        })
    });
    all.collect()
}

/// Every way that it may be placed.
fn any_ways(rooms: &Rooms, wanted: &Wanted) -> Vec<Layout> {
    match wanted.flexible {
        true => scattered(rooms, &wanted.shape),
        false => ways(rooms, &wanted.shape),
    }
}

/// In how many rows of neighbours it is.
fn pieces(way: &Layout) -> usize {
    1 + way.windows(2).filter(|two| two[1].0 != two[0].0 + 1).count()
}

/// The way of one that is flexible, by the rule; `window`: how one window is chosen.
fn by_pieces(
    rooms: &Rooms,
    shape: &Shape,
    window: impl Fn(&Rooms, &Shape) -> Option<Layout>,
) -> Option<Layout> {
    let (mut rooms, mut shape, mut way) = (rooms.clone(), *shape, Layout::new());
    loop {
        if let Some(last) = window(&rooms, &shape) {
            way.extend(last);
            way.sort_unstable();
            return Some(way);
        }
        // The full nodes from each one on, as far as they go: the most PEs, the lowest.
        let full = |nid: &u32| {
            rooms.get(nid).map(|room| room.1).filter(|pes| shape.per_node.is_none_or(|n| n == *pes))
        };
        let from =
            |first: u32| (first..).map_while(|nid| Some((nid, full(&nid)?))).collect::<Layout>();
        let sum = |way: &Layout| way.iter().map(|(_, pes)| pes).sum::<u32>();
        let first = rooms.keys().copied().max_by_key(|nid| (sum(&from(*nid)), u32::MAX - nid))?;
        let gap = from(first);
        if gap.is_empty() {
            return None;
        }
        shape.width -= sum(&gap);
        rooms.retain(|nid, _| gap.iter().all(|(taken, _)| taken != nid));
        way.extend(gap);
    }
}

/// The way on free processors that an allocator has, by its rule.
fn allocated(rooms: &Rooms, shape: &Shape, rules: Rules) -> Option<Layout> {
    let all = ways(rooms, shape).into_iter();
    match rules.allocator {
        Allocator::BestFit => best(rooms, shape),
        Allocator::WideFromOneEnd if u64::from(shape.width) >= rules.allocator_wide => {
            all.max_by_key(|way| way[0].0)
        }
        Allocator::FirstFit | Allocator::WideFromOneEnd => all.min_by_key(|way| way[0].0),
    }
}

/// The best way on free processors, by the four rules.
fn best(rooms: &Rooms, shape: &Shape) -> Option<Layout> {
    let rank = |way: &Layout| {
        let (first, last) = (way[0].0, way[way.len() - 1].0);
        let all: u32 = way.iter().map(|(nid, _)| rooms[nid].0).sum();
        let good = |nid: &u32| rooms.get(nid).is_some_and(|r| r.1 > 0);
        let left = (0..first).rev().take_while(good).map(|nid| rooms[&nid].0).sum::<u32>();
        let right = (last + 1..).take_while(good).map(|nid| rooms[&nid].0).sum::<u32>();
        (all - shape.width * shape.depth, left + all + right, way.len(), first)
    };
    ways(rooms, shape).into_iter().min_by_key(rank)
}

fn largest(rooms: &Rooms, wanted: &Wanted) -> u32 {
    let all: u32 = rooms.values().map(|r| r.1).sum();
    let of = |width: u32| wanted.with_shape(Shape { width, ..wanted.shape });
    let fits = |w: &u32| !any_ways(rooms, &of(*w)).is_empty();
    (1..=all).rev().find(fits).unwrap_or(0)
}

/// An application's processor, with the memory that it counts with there.
#[derive(Debug, Clone, Copy)]
struct Seat {
    apid: Apid,
    nid: u32,
    processor: u32,
    bytes: u64,
}

/// Those whose number is 1 share with nobody.
fn shares(apid: Apid) -> bool {
    apid != Apid(1)
}

#[derive(Debug, Clone)]
struct Scene {
    machine: Machine,
    rules: Rules,
    occupancy: Occupancy,
    seats: Vec<Seat>,
    kept: BTreeSet<Nid>,
    wanted: Wanted,
}

impl Scene {
    /// Bytes of a node that may be promised.
    fn limit(&self, node: &Node) -> u64 {
        node.memory * self.rules.memory_overcommit / 1_000
    }

    /// PEs for which a node's memory is enough.
    fn by_memory(&self, node: &Node, promised: u64) -> u32 {
        let share = node.memory.min(self.limit(node))
            / u64::from(node.processors)
            / u64::from(self.rules.max_resident);
        let each = self.wanted.memory_per_pe.unwrap_or(share * u64::from(self.wanted.shape.depth));
        let left = self.limit(node).saturating_sub(promised);
        let unsaid = node.memory > 0 && self.wanted.memory_per_pe.is_none() && promised > 0;
        if unsaid && left < self.limit(node) / 16 {
            return 0;
        }
        match left.checked_div(each) {
            Some(pes) if node.memory > 0 => pes as u32,
            _ => u32::MAX,
        }
    }

    fn room(&self, node: &Node, processors: u32, promised: u64) -> Option<(u32, (u32, u32))> {
        let shape = self.wanted.shape;
        let most = shape.per_node.unwrap_or(u32::MAX);
        let pes = (processors / shape.depth).min(most).min(self.by_memory(node, promised));
        (pes > 0).then_some((node.nid.0, (processors, pes)))
    }

    fn on(&self, nid: Nid) -> impl Iterator<Item = &Seat> {
        self.seats.iter().filter(move |s| s.nid == nid.0)
    }

    /// Residents of a processor; beyond all levels where one shares with nobody.
    fn residents(&self, nid: u32, processor: u32) -> u32 {
        let here = self.on(Nid(nid)).filter(|s| s.processor == processor);
        here.map(|s| if shares(s.apid) { 1 } else { 1_000 }).sum()
    }

    /// Application nodes of these regions.
    fn nodes(&self, set: RegionSet) -> impl Iterator<Item = &Node> {
        let nodes = self.machine.nodes.values().filter(|n| n.flavors.has(Flavor::Ap));
        nodes.filter(move |n| set.has(self.machine.region_of(n)))
    }

    fn sets(&self) -> Vec<RegionSet> {
        self.wanted.reach.sets().collect()
    }

    fn rooms(&self, level: u32, set: RegionSet, usable: impl Fn(Nid) -> bool) -> Rooms {
        let nodes = self.nodes(set);
        nodes
            .filter(|n| usable(n.nid))
            .filter_map(|n| {
                let below = |p: &u32| self.residents(n.nid.0, *p) <= level;
                let processors = (0..n.processors).filter(below).count() as u32;
                self.room(n, processors, self.on(n.nid).map(|s| s.bytes).sum())
            })
            .collect()
    }

    fn takes_new(&self, nid: Nid) -> bool {
        self.occupancy.is_open(nid)
    }

    fn rooms_now(&self, level: u32, set: RegionSet) -> Rooms {
        self.rooms(level, set, |n| self.takes_new(n) && !self.kept.contains(&n))
    }

    fn rooms_if_empty(&self, set: RegionSet) -> Rooms {
        self.nodes(set).filter_map(|n| self.room(n, n.processors, 0)).collect()
    }

    /// Each way to place it if nobody sat anywhere.
    fn ways_if_empty(&self) -> Vec<Layout> {
        let of = |set| any_ways(&self.rooms_if_empty(set), &self.wanted);
        self.sets().into_iter().flat_map(of).collect()
    }

    fn largest_if_empty(&self) -> u32 {
        let of = |set| largest(&self.rooms_if_empty(set), &self.wanted);
        self.sets().into_iter().map(of).max().unwrap_or(0)
    }

    fn highest(&self) -> u32 {
        self.rules.max_resident - 1
    }

    /// The processors that an application gets on a node.
    fn processors(&self, nid: u32, level: u32, pes: u32) -> Vec<u32> {
        let node = &self.machine.nodes[&Nid(nid)];
        let mut all: Vec<u32> =
            (0..node.processors).filter(|p| self.residents(nid, *p) <= level).collect();
        all.sort_by_key(|p| (self.residents(nid, *p), *p));
        all.truncate((pes * self.wanted.shape.depth) as usize);
        all.sort_unstable();
        all
    }

    /// The way that it has at a level, by its rules.
    fn at_level(&self, rooms: &Rooms, level: u32) -> Option<Layout> {
        let window = |rooms: &Rooms, shape: &Shape| match level {
            0 => allocated(rooms, shape, self.rules),
            _ => self.best_over(rooms, shape, level),
        };
        match self.wanted.flexible {
            true => by_pieces(rooms, &self.wanted.shape, window),
            false => window(rooms, &self.wanted.shape),
        }
    }

    /// The best way over others, by the four rules.
    fn best_over(&self, rooms: &Rooms, shape: &Shape, level: u32) -> Option<Layout> {
        let apids = |nid: u32| self.on(Nid(nid)).map(|s| s.apid).collect::<BTreeSet<_>>();
        let rank = |way: &Layout| {
            let residents = |&(nid, pes): &(u32, u32)| {
                let taken = self.processors(nid, level, pes);
                taken.iter().map(|p| self.residents(nid, *p)).sum::<u32>()
            };
            let later = way.windows(2).map(|w| apids(w[1].0).difference(&apids(w[0].0)).count());
            let applications = apids(way[0].0).len() + later.sum::<usize>();
            (way.iter().map(residents).sum::<u32>(), applications, way.len(), way[0].0)
        };
        ways(rooms, shape).into_iter().min_by_key(rank)
    }

    fn without(&self, apid: Apid) -> Scene {
        let mut scene = self.clone();
        scene.occupancy.release(apid);
        scene.seats.retain(|seat| seat.apid != apid);
        scene
    }
}

prop_compose! {
    /// Up to eight nodes with their distance to the one before, size, and a number that makes some
    /// closed, kept or not for applications; who sits there; how many may; and what is wanted.
    fn scenes()(
        nodes in prop::collection::vec((1u32..8, 1u32..6, 0u32..16), 1..8),
        any_kept in any::<bool>(),
        memory in prop_oneof![Just(0u64), 1u64..200],
        rules in (1u32..5, prop_oneof![Just(1_000u64), Just(500), Just(2_500)]),
        (allocator, allocator_wide) in (0..Allocator::ALL.len(), 1u64..14),
        seats in prop::collection::vec((1u64..6, 0usize..8, 0u32..5, 0u64..50), 0..24),
        width in 1u32..14,
        depth in prop_oneof![3 => Just(1u32), 2 => 1u32..7],
        per_node in prop_oneof![Just(None), (1u32..5).prop_map(Some)],
        memory_per_pe in prop_oneof![2 => Just(None), 1 => (0u64..100).prop_map(Some)],
        flexible in prop_oneof![2 => Just(false), 1 => Just(true)],
        // The region of each node, of three (or none); which it may go to, and whether it may span them.
        regions in prop::option::of((prop::collection::vec(0usize..4, 8), 0u8..8, any::<bool>())),
    ) -> Scene {
        let mut machine = Machine::default();
        let (mut closed, mut kept) = (BTreeSet::new(), BTreeSet::new());
        let mut nid = 0;
        for (step, processors, kind) in nodes {
            // Mostly neighbours.
            nid += if step > 5 { 2 } else { 1 };
            let flavor = if kind == 0 { Flavor::Su } else { Flavor::Ap };
            match kind {
                1 => drop(closed.insert(Nid(nid))),
                2 | 3 if any_kept => drop(kept.insert(Nid(nid))),
                _ => {}
            }
            let node = Node {
                // Not known of some.
                memory: if kind == 5 { 0 } else { memory },
                flavors: Flavors::default().with(flavor),
                ..Node::plain(Nid(nid), processors)
            };
            machine.nodes.insert(node.nid, node);
        }
        let mut reach = Reach::ALL;
        if let Some((of, passes, spans)) = regions {
            let nids: Vec<Nid> = machine.nodes.keys().copied().collect();
            let region = |number: usize| {
                let members = nids.iter().zip(&of).filter(|(_, of)| **of == number);
                Region {
                    domain: crate::variables::APPLICATION.into(),
                    name: number.to_string(),
                    members: Members::Nids(members.map(|(nid, _)| *nid).collect()),
                    gate: Default::default(),
                }
            };
            machine.regions = (0..3).map(region).collect();
            let passes = (0..3).filter(|i| passes >> i & 1 == 1);
            let passes = passes.fold(RegionSet::default(), RegionSet::with);
            reach = Reach { passes, spans };
        }
        let rules = Rules {
            max_resident: rules.0,
            memory_overcommit: rules.1,
            allocator: Allocator::ALL[allocator].0,
            allocator_wide,
        };
        let mut occupancy = Occupancy::new(&machine, rules);
        for nid in machine.nodes.keys() {
            occupancy.set_open(*nid, !closed.contains(nid));
        }
        let mut taken = Vec::new();
        for (apid, at, processor, bytes) in seats {
            if let Some(node) = machine.nodes.values().nth(at) {
                let place = Place { nid: node.nid, processors: vec![processor], pes: 1 };
                let apid = Apid(apid);
                let claim = Claim { shares: shares(apid), memory_per_pe: Some(bytes), exclusive: false };
                // A seat that is taken, or not there, stays as it is.
                if occupancy.take_found(apid, &PlacementList([place].into()), claim).is_ok() {
                    let limit = node.memory * rules.memory_overcommit / 1_000;
                    let bytes = bytes.min(limit);
                    taken.push(Seat { apid, nid: node.nid.0, processor, bytes });
                }
            }
        }
        let shape = Shape { width, depth, per_node };
        let wanted = Wanted { shape, memory_per_pe, exclusive: false, flexible, reach };
        Scene { machine, rules, occupancy, seats: taken, kept, wanted }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn the_best_window_is_found(scene in scenes()) {
        let Scene { kept, wanted, .. } = &scene;
        let mut occupancy = scene.occupancy.clone();
        let found = place(&mut occupancy, wanted, kept);
        let sets = scene.sets();
        let tries = (0..=scene.highest()).flat_map(|level| sets.iter().map(move |set| (level, *set)));
        let expected = tries.into_iter().find_map(|(level, set)| {
            Some((level, scene.at_level(&scene.rooms_now(level, set), level)?))
        });
        match (&found, &expected) {
            (Ok(list), Some((level, way))) => {
                let pes: Layout = list.0.iter().map(|p| (p.nid.0, p.pes)).collect();
                prop_assert_eq!(&pes, way);
                if wanted.flexible && wanted.shape.per_node.is_none() {
                    let set = sets.iter().find(|set| {
                        scene.at_level(&scene.rooms_now(*level, **set), *level).is_some()
                    });
                    let rooms = scene.rooms_now(*level, *set.expect("where it was found"));
                    let fewest = scattered(&rooms, &wanted.shape).iter().map(pieces).min();
                    prop_assert_eq!(fewest, Some(pieces(way)));
                }
                prop_assert!(list.fits(&wanted.shape));
                for place in list.0.iter() {
                    let taken = scene.processors(place.nid.0, *level, place.pes);
                    prop_assert_eq!(&place.processors, &taken);
                }
                let claim = Claim { shares: *level > 0, memory_per_pe: wanted.memory_per_pe, exclusive: false };
                prop_assert!(occupancy.take(Apid(99), list, claim).is_ok());
                for slot in occupancy.line().iter().filter(|s| list.nids().any(|n| n == s.nid)) {
                    // What was there already may be more.
                    let before = scene.on(slot.nid).map(|s| s.bytes).sum();
                    prop_assert!(slot.promised <= slot.limit.max(before), "{:?}", slot);
                }
            }
            (Err(no_room), None) => {
                let most = |set| largest(&scene.rooms_now(scene.highest(), set), wanted);
                let most = scene.sets().into_iter().map(most).max().unwrap_or(0);
                prop_assert_eq!(no_room.largest_width_now, most);
            }
            _ => prop_assert!(false, "found {:?}, expected {:?}", found, expected),
        }
        // Every node looked at, or what the index leads to: the same.
        let all = looked(&scene.occupancy, wanted, &Kept::new(scene.occupancy.line(), kept));
        prop_assert_eq!(&all, &found.clone().ok());
        prop_assert_eq!(try_place(&mut scene.occupancy.clone(), wanted, kept), found.clone().ok());
        prop_assert_eq!(why_not(&scene.occupancy, wanted, kept), found.err());
    }

    #[test]
    fn the_possible_is_told_from_the_impossible(scene in scenes()) {
        let Scene { machine, wanted, rules, .. } = &scene;
        let shape = &wanted.shape;
        let all: BTreeSet<Nid> = scene.ways_if_empty().into_iter().flatten().map(|(n, _)| Nid(n)).collect();
        prop_assert_eq!(usable(&empty_line(machine, &(*rules).into()), wanted), all);
        let most = scene.largest_if_empty();
        match possible(&empty_line(machine, &(*rules).into()), wanted) {
            Ok(()) => prop_assert!(shape.width <= most),
            Err(impossible) => {
                prop_assert!(shape.width > most);
                prop_assert_eq!(impossible.largest_width, most);
                let nodes = || scene.nodes(wanted.reach.passes);
                let deepest = nodes().map(|n| n.processors).max().unwrap_or(0);
                prop_assert_eq!(impossible.largest_depth, deepest);
                let there = scene.sets().into_iter().filter(|_| most > 0).find_map(|set| {
                    let (rooms, shape) = (scene.rooms_if_empty(set), Shape { width: most, ..*shape });
                    match wanted.flexible {
                        true => by_pieces(&rooms, &shape, best),
                        false => best(&rooms, &shape),
                    }
                });
                let there: Vec<Nid> = there.unwrap_or_default().iter().map(|(n, _)| Nid(*n)).collect();
                prop_assert_eq!(&impossible.largest_nids, &there);
                prop_assert_eq!(impossible.cures.is_empty(), nodes().count() == 0);
                let fits = |wanted: Wanted| {
                    let scene = Scene { wanted, ..scene.clone() };
                    !scene.ways_if_empty().is_empty()
                };
                let any_memory = Wanted { memory_per_pe: None, ..*wanted };
                let without = Scene { wanted: any_memory, ..scene.clone() }.largest_if_empty();
                let short = wanted.memory_per_pe.filter(|_| without > most);
                prop_assert_eq!(impossible.short_of_memory, short);
                for cure in &impossible.cures {
                    let Shape { per_node, .. } = *shape;
                    let to = |shape: Shape| wanted.with_shape(shape);
                    let (good, too_much) = match *cure {
                        Cure::Width(w) => (to(Shape { width: w, ..*shape }), Some(to(Shape { width: w + 1, ..*shape }))),
                        Cure::Depth(d) => (to(Shape { depth: d, ..*shape }), Some(to(Shape { depth: d + 1, ..*shape }))),
                        Cure::Flexible => (Wanted { flexible: true, ..*wanted }, None),
                        Cure::WithoutPerNode => (to(Shape { per_node: None, ..*shape }), None),
                        Cure::Memory(bytes) => {
                            let of = |bytes| Wanted { memory_per_pe: Some(bytes), ..*wanted };
                            (of(bytes), Some(of(bytes + (1 << 10))))
                        }
                        Cure::Smaller { depth, width, without_memory } => {
                            let other = |depth, per_node| to(Shape { depth, per_node, ..*shape });
                            prop_assert!((1..=shape.depth).all(|d| !fits(other(d, per_node))));
                            prop_assert!(per_node.is_none() || !fits(other(shape.depth, None)));
                            prop_assert_eq!(without_memory, wanted.memory_per_pe.is_some());
                            let good = Shape { width, depth, per_node: None };
                            let any = |shape| Wanted { shape, ..any_memory };
                            (any(good), Some(any(Shape { width: width + 1, ..good })))
                        }
                    };
                    prop_assert!(fits(good), "{:?}", good);
                    prop_assert!(too_much.is_none_or(|s| !fits(s)), "{:?}", too_much);
                }
                let words = impossible.explain();
                prop_assert![!words.obstacle.is_empty() && !words.cure.is_empty()];
            }
        }
    }

    #[test]
    fn what_would_make_room_does(scene in scenes()) {
        let Scene { kept, wanted, machine, rules, .. } = &scene;
        let mut occupancy = scene.occupancy.clone();
        let found = place(&mut occupancy, wanted, kept);
        let (Ok(()), Err(no_room)) = (possible(&empty_line(machine, &(*rules).into()), wanted), found) else {
            return Ok(());
        };
        let highest = scene.highest();
        let window: BTreeSet<u32> = no_room.window.iter().map(|n| n.0).collect();
        let inside = |scene: &Scene| {
            scene.sets().into_iter().any(|set| {
                let rooms = scene.rooms(highest, set, |n| window.contains(&n.0));
                !any_ways(&rooms, wanted).is_empty()
            })
        };
        let on_open_of = |s: &Scene, set| any_ways(&s.rooms(highest, set, |n| s.takes_new(n)), wanted);
        let on_open = |s: &Scene| -> Vec<Layout> {
            s.sets().into_iter().flat_map(|set| on_open_of(s, set)).collect()
        };

        // It is enough, and none of those named could stay.
        let ended = no_room.holders.iter().fold(scene.clone(), |s, a| s.without(*a));
        prop_assert!(inside(&ended), "{:?}", no_room);
        for stays in &no_room.holders {
            let others = no_room.holders.iter().filter(|a| *a != stays);
            let fewer = others.fold(scene.clone(), |s, a| s.without(*a));
            prop_assert!(!inside(&fewer), "{} could stay: {:?}", stays, no_room);
        }

        // Nobody, or one, exactly when that is enough; and then the lowest window.
        let lowest = |set: RegionSet| {
            let ends = occupancy.applications().flat_map(|a| on_open_of(&scene.without(a), set));
            ends.map(|way| way[0].0).min()
        };
        if !on_open(&scene).is_empty() {
            prop_assert!(no_room.holders.is_empty() && !no_room.kept.is_empty());
        } else if wanted.flexible {
            let enough = |set| occupancy.applications().find(|a| !on_open_of(&scene.without(*a), set).is_empty());
            match scene.sets().into_iter().find_map(enough) {
                Some(one) => prop_assert_eq!(&no_room.holders, &[one]),
                None => prop_assert!(no_room.holders.len() != 1 || !no_room.closed.is_empty()),
            }
        } else if let Some(nid) = scene.sets().into_iter().find_map(lowest) {
            prop_assert_eq!(no_room.holders.len(), 1);
            prop_assert_eq!(no_room.window[0].0, nid);
        }

        // Closed nodes are named only where there is no other way.
        let all_ended = occupancy.applications().fold(scene.clone(), |s, a| s.without(a));
        prop_assert_eq!(no_room.closed.is_empty(), !on_open(&all_ended).is_empty());
        let closed = no_room.window.iter().filter(|n| !occupancy.is_open(**n)).copied();
        prop_assert_eq!(&no_room.closed, &closed.collect::<Vec<_>>());
        let kept_there = no_room.window.iter().filter(|n| kept.contains(n)).copied();
        prop_assert_eq!(&no_room.kept, &kept_there.collect::<Vec<_>>());

        // Memory is named where it alone stands in the way.
        let mut forgetful = scene.clone();
        forgetful.seats.iter_mut().for_each(|seat| seat.bytes = 0);
        // (It is asked of the regions that the window is in.)
        let enough = |set| !any_ways(&forgetful.rooms_now(highest, set), wanted).is_empty();
        let sets = scene.sets();
        let enough = [sets.iter().any(|set| enough(*set)), sets.iter().all(|set| enough(*set))];
        let said = enough.map(|enough| enough && !no_room.holders.is_empty());
        prop_assert!(said.contains(&no_room.short_of_memory.is_some()));

        // There are words for all of it.
        let closed = |kind| no_room.closed.iter().copied().filter(|nid| nid.0 % 3 == kind).collect();
        let (foreign, silent, leaving) = (closed(0), closed(1), closed(2));
        let shut = Shut { foreign, silent, leaving, ..Shut::default() };
        let words = no_room.explain("application", |a| a.to_string(), &shut, None);
        prop_assert!(![words.obstacle, words.holder, words.cure].contains(&String::new()));
    }
}

#[test]
fn zeros_and_giants_are_survived() {
    let mut machine = Machine::default();
    for nid in [0, 1, u32::MAX] {
        let node = Node::plain(Nid(nid), 4_096);
        machine.nodes.insert(node.nid, node);
    }
    let rules = Rules { max_resident: 4, ..Rules::PLAIN };
    let mut occupancy = Occupancy::new(&machine, rules);
    for nid in machine.nodes.keys() {
        occupancy.set_open(*nid, true);
    }
    let none = BTreeSet::new();
    for (width, depth, per_node) in [
        (u32::MAX, u32::MAX, None),
        (u32::MAX, u32::MAX, Some(u32::MAX)),
        (u32::MAX, 1, Some(1)),
        (1, u32::MAX, None),
    ] {
        for memory_per_pe in [None, Some(0), Some(u64::MAX)] {
            let wanted = Wanted {
                shape: Shape { width, depth, per_node },
                memory_per_pe,
                exclusive: false,
                flexible: false,
                reach: Reach::ALL,
            };
            assert!(possible(&empty_line(&machine, &rules.into()), &wanted).is_err());
            assert!(place(&mut occupancy, &wanted, &none).is_err());
            assert!(usable(&empty_line(&machine, &rules.into()), &wanted).is_empty());
        }
    }
    let zero = Shape { width: 0, depth: 0, per_node: Some(0) };
    let zero = Wanted {
        shape: zero,
        memory_per_pe: Some(0),
        exclusive: false,
        flexible: false,
        reach: Reach::ALL,
    };
    assert_eq!(place(&mut occupancy, &zero, &none).map(|l| l.0.len()), Ok(1));
}
