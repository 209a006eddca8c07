//! The search against the plainest one there is: every first node, every last node, by the rules
//! as they are written.

use super::*;
use crate::machine::{Flavor, Flavors, Node};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Free processors of the usable nodes.
type Free = BTreeMap<u32, u32>;

/// One way to place: nodes and PEs on each.
type Way = Vec<(u32, u32)>;

fn holds(free: u32, shape: &Shape) -> u32 {
    (free / shape.depth).min(shape.per_node.unwrap_or(u32::MAX))
}

/// The window from `first` to `last`, if there is one.
fn way(free: &Free, shape: &Shape, first: u32, last: u32) -> Option<Way> {
    let mut rest = shape.width;
    let mut way = Way::new();
    for nid in first..=last {
        let here = holds(*free.get(&nid)?, shape);
        let pes = if nid < last { shape.per_node.unwrap_or(here) } else { rest };
        if pes == 0 || pes > here || (nid < last && pes >= rest) {
            return None;
        }
        rest -= pes;
        way.push((nid, pes));
    }
    Some(way)
}

fn ways(free: &Free, shape: &Shape) -> Vec<Way> {
    let nids: Vec<u32> = free.keys().copied().collect();
    let pairs = nids.iter().flat_map(|a| nids.iter().map(move |b| (*a, *b)));
    pairs.filter(|(a, b)| a <= b).filter_map(|(a, b)| way(free, shape, a, b)).collect()
}

/// The best way by the four rules.
fn best(free: &Free, shape: &Shape) -> Option<Way> {
    let rank = |way: &Way| {
        let (first, last) = (way[0].0, way[way.len() - 1].0);
        let all: u32 = way.iter().map(|(nid, _)| free[nid]).sum();
        let good = |nid: &u32| free.get(nid).is_some_and(|f| holds(*f, shape) > 0);
        let left = (0..first).rev().take_while(good).map(|nid| free[&nid]).sum::<u32>();
        let right = (last + 1..).take_while(good).map(|nid| free[&nid]).sum::<u32>();
        (all - shape.width * shape.depth, left + all + right, way.len(), first)
    };
    ways(free, shape).into_iter().min_by_key(rank)
}

fn largest(free: &Free, shape: &Shape) -> u32 {
    let all: u32 = free.values().sum();
    let fits = |w: &u32| !ways(free, &Shape { width: *w, ..*shape }).is_empty();
    (1..=all).filter(fits).max().unwrap_or(0)
}

#[derive(Debug, Clone)]
struct Scene {
    machine: Machine,
    occupancy: Occupancy,
    kept: BTreeSet<Nid>,
    shape: Shape,
}

impl Scene {
    fn free(&self, usable: impl Fn(Nid) -> bool) -> Free {
        let nids = self.occupancy.application_nodes().into_iter().filter(|n| usable(*n));
        nids.map(|n| (n.0, self.occupancy.free(n))).collect()
    }

    fn free_now(&self) -> Free {
        self.free(|n| self.occupancy.is_open(n) && !self.kept.contains(&n))
    }

    fn free_if_empty(&self) -> Free {
        let nodes = self.machine.nodes.values().filter(|n| n.flavors.has(Flavor::Ap));
        nodes.map(|n| (n.nid.0, n.processors)).collect()
    }

    fn without(&self, apid: Apid) -> Scene {
        let mut scene = self.clone();
        scene.occupancy.release(apid);
        scene
    }
}

prop_compose! {
    /// Up to eight nodes with their distance to the one before, size, and a number that makes some
    /// closed, kept or not for applications; who sits there; and a shape.
    fn scenes()(
        nodes in prop::collection::vec((1u32..8, 1u32..6, 0u32..16), 1..8),
        seats in prop::collection::vec((1u64..5, 0usize..8, 0u32..5), 0..16),
        width in 1u32..14,
        depth in prop_oneof![3 => Just(1u32), 2 => 1u32..7],
        per_node in prop_oneof![Just(None), (1u32..5).prop_map(Some)],
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
                2 | 3 => drop(kept.insert(Nid(nid))),
                _ => {}
            }
            let node = Node {
                nid: Nid(nid),
                processors,
                cpus: Vec::new(),
                memory: 0,
                flavors: Flavors::default().with(flavor),
                host: String::new(),
            };
            machine.nodes.insert(node.nid, node);
        }
        let mut occupancy = Occupancy::new(&machine);
        for nid in machine.nodes.keys() {
            occupancy.set_open(*nid, !closed.contains(nid));
        }
        for (apid, at, processor) in seats {
            if let Some(nid) = machine.nodes.keys().nth(at) {
                let place = Place { nid: *nid, processors: vec![processor], pes: 1 };
                // A seat that is taken, or not there, stays as it is.
                let _ = occupancy.take(Apid(apid), &PlacementList(vec![place]));
            }
        }
        Scene { machine, occupancy, kept, shape: Shape { width, depth, per_node } }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_best_window_is_found(scene in scenes()) {
        let Scene { occupancy, kept, shape, .. } = &scene;
        let free = scene.free_now();
        let found = place(occupancy, shape, kept);
        let expected = best(&free, shape);
        match (&found, &expected) {
            (Ok(list), Some(way)) => {
                let pes: Way = list.0.iter().map(|p| (p.nid.0, p.pes)).collect();
                prop_assert_eq!(&pes, way);
                prop_assert!(list.fits(shape));
                for place in &list.0 {
                    // The lowest free ones: all others that are free lie above them.
                    let at = occupancy.line().iter().position(|s| s.nid == place.nid);
                    let free = occupancy.free_processors(at.expect("on the line"));
                    prop_assert_eq!(free.take(place.processors.len()).collect::<Vec<_>>(), place.processors.clone());
                }
                prop_assert!(occupancy.clone().take(Apid(99), list).is_ok());
            }
            (Err(no_room), None) => {
                prop_assert_eq!(no_room.largest_width_now, largest(&free, shape));
            }
            _ => prop_assert!(false, "found {:?}, expected {:?}", found, expected),
        }
        prop_assert_eq!(try_place(occupancy, shape, kept), found.ok());
    }

    #[test]
    fn the_possible_is_told_from_the_impossible(scene in scenes()) {
        let Scene { machine, shape, .. } = &scene;
        let empty = scene.free_if_empty();
        let all: BTreeSet<Nid> = ways(&empty, shape).into_iter().flatten().map(|(n, _)| Nid(n)).collect();
        prop_assert_eq!(usable(machine, shape), all);
        let most = largest(&empty, shape);
        match possible(machine, shape) {
            Ok(()) => prop_assert!(shape.width <= most),
            Err(impossible) => {
                prop_assert!(shape.width > most);
                prop_assert_eq!(impossible.largest_width, most);
                prop_assert_eq!(impossible.largest_depth, empty.values().copied().max().unwrap_or(0));
                let there = best(&empty, &Shape { width: most, ..*shape }).filter(|_| most > 0);
                let there: Vec<Nid> = there.unwrap_or_default().iter().map(|(n, _)| Nid(*n)).collect();
                prop_assert_eq!(impossible.largest_nids, there);
                prop_assert_eq!(impossible.cures.is_empty(), empty.is_empty());
                for cure in impossible.cures {
                    let fits = |s: &Shape| !ways(&empty, s).is_empty();
                    let Shape { per_node, .. } = *shape;
                    let (good, too_much) = match cure {
                        Cure::Width(w) => (Shape { width: w, ..*shape }, Some(Shape { width: w + 1, ..*shape })),
                        Cure::Depth(d) => (Shape { depth: d, ..*shape }, Some(Shape { depth: d + 1, ..*shape })),
                        Cure::WithoutPerNode => (Shape { per_node: None, ..*shape }, None),
                        Cure::Smaller { depth, width } => {
                            let other = |depth, per_node| Shape { depth, per_node, ..*shape };
                            prop_assert!((1..=shape.depth).all(|d| !fits(&other(d, per_node))));
                            prop_assert!(per_node.is_none() || !fits(&other(shape.depth, None)));
                            let good = Shape { width, depth, per_node: None };
                            (good, Some(Shape { width: width + 1, ..good }))
                        }
                    };
                    prop_assert!(fits(&good), "{:?}", good);
                    prop_assert!(too_much.is_none_or(|s| !fits(&s)), "{:?}", too_much);
                }
            }
        }
    }

    #[test]
    fn what_would_make_room_does(scene in scenes()) {
        let Scene { occupancy, kept, shape, machine } = &scene;
        let (Ok(()), Err(no_room)) = (possible(machine, shape), place(occupancy, shape, kept)) else {
            return Ok(());
        };
        let window: BTreeSet<u32> = no_room.window.iter().map(|n| n.0).collect();
        let inside = |scene: &Scene| {
            let free = scene.free(|n| window.contains(&n.0));
            !ways(&free, shape).is_empty()
        };
        let on_open = |s: &Scene| ways(&s.free(|n| s.occupancy.is_open(n)), shape);

        // It is enough, and none of those named could stay.
        let ended = no_room.holders.iter().fold(scene.clone(), |s, a| s.without(*a));
        prop_assert!(inside(&ended), "{:?}", no_room);
        for stays in &no_room.holders {
            let others = no_room.holders.iter().filter(|a| *a != stays);
            let fewer = others.fold(scene.clone(), |s, a| s.without(*a));
            prop_assert!(!inside(&fewer), "{} could stay: {:?}", stays, no_room);
        }

        // Nobody, or one, exactly when that is enough; and then the lowest window.
        let singles: Vec<(u32, Apid)> = occupancy
            .applications()
            .flat_map(|a| on_open(&scene.without(a)).into_iter().map(move |w| (w[0].0, a)))
            .collect();
        if !on_open(&scene).is_empty() {
            prop_assert!(no_room.holders.is_empty() && !no_room.kept.is_empty());
        } else if let Some((nid, _)) = singles.iter().min() {
            prop_assert_eq!(no_room.holders.len(), 1);
            prop_assert_eq!(no_room.window[0].0, *nid);
        }

        // Closed nodes are named only where there is no other way.
        let all_ended = occupancy.applications().fold(scene.clone(), |s, a| s.without(a));
        prop_assert_eq!(no_room.closed.is_empty(), !on_open(&all_ended).is_empty());
        let closed = no_room.window.iter().filter(|n| !occupancy.is_open(**n)).copied();
        prop_assert_eq!(&no_room.closed, &closed.collect::<Vec<_>>());
        let kept_there = no_room.window.iter().filter(|n| kept.contains(n)).copied();
        prop_assert_eq!(&no_room.kept, &kept_there.collect::<Vec<_>>());

        // There are words for all of it.
        let words = no_room.explain(|a| a.to_string(), |n| n.0 % 3 == 0, |_| None);
        prop_assert!(![words.obstacle, words.holder, words.cure].contains(&String::new()));
    }
}

#[test]
fn zeros_and_giants_are_survived() {
    let mut machine = Machine::default();
    for nid in [0, 1, u32::MAX] {
        let node = Node {
            nid: Nid(nid),
            processors: 4_096,
            cpus: Vec::new(),
            memory: 0,
            flavors: Flavors::all(),
            host: String::new(),
        };
        machine.nodes.insert(node.nid, node);
    }
    let mut occupancy = Occupancy::new(&machine);
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
        let shape = Shape { width, depth, per_node };
        assert!(possible(&machine, &shape).is_err());
        assert!(place(&occupancy, &shape, &none).is_err());
        assert!(usable(&machine, &shape).is_empty());
    }
    let zero = Shape { width: 0, depth: 0, per_node: Some(0) };
    assert_eq!(place(&occupancy, &zero, &none).map(|l| l.0.len()), Ok(1));
}
