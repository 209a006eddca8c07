//! Places and moves against what is plain to see, on small machines.

use super::scenes::{Scene, among, go, make, scenes};
use super::scratch::Scratch;
use super::*;
use crate::apteam::place::Place;
use crate::machine::Nid;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Puts each application at its target, or where it sits if it has none; `but`: without this one.
fn after(scene: &Scene, targets: &[Target], but: Apid) -> Occupancy {
    let mut occupancy = scene.occupancy.clone();
    let there = |apid: &Apid| targets.iter().find(|t| t.apid == *apid).map(|t| &t.to);
    scene.movers.keys().for_each(|apid| occupancy.release(*apid));
    for (apid, mover) in scene.movers.iter().filter(|(apid, _)| **apid != but) {
        let to = there(apid).unwrap_or(&mover.places);
        occupancy.take_found(*apid, to, mover.claim).expect("its place");
        for ((home, nid), held) in
            mover.places.nids().zip(to.nids()).zip(scene.occupancy.held(*apid))
        {
            let at = scene.at(nid);
            let less = occupancy.held(*apid).iter().any(|h| h.at == at && h.memory < held.memory);
            if home == nid || less {
                occupancy.set_memory(*apid, nid, held.memory);
            }
        }
    }
    occupancy
}

/// How many sit on each processor of a place.
fn residents(scene: &Scene, occupancy: &Occupancy, list: &PlacementList) -> Vec<u16> {
    let on = |place: &Place| {
        let residents = occupancy.residents(scene.at(place.nid));
        place.processors.iter().map(|p| residents[*p as usize]).collect::<Vec<u16>>()
    };
    list.0.iter().flat_map(on).collect()
}

/// Whether a mover would have room on free processors of other nodes than those where it sits, by
/// the rules alone: any first node.
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
    let home = scene.at(mover.places.0[0].nid);
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
                    && free >= *pes
                    && (slot.memory == 0 || slot.promised + memory <= slot.limit)
            })
    })
}

proptest! {
    /// An application that is compacted comes on free processors and further to the left, and there
    /// is an order for that. An application that is to go elsewhere shares only where it must.
    #[test]
    fn free_processors_come_before_shared_ones(scene in scenes(3, 6, 6)) {
        let all: BTreeSet<Nid> = scene.occupancy.line().iter().map(|slot| slot.nid).collect();
        let targets = compacted(&scene.situation(), &all, |_, _| true);
        for Target { apid, to } in &targets {
            let sits = residents(&scene, &after(&scene, &targets, *apid), to);
            prop_assert!(sits.iter().all(|r| *r == 0), "{apid}: {to:?}");
            let from = &scene.movers[apid];
            prop_assert!(!from.stays && to.nids().min() < from.places.nids().min(), "{apid}: {to:?}");
        }
        let moves = order(&scene.situation(), &targets).expect("an order");
        prop_assert_eq!(moves.len(), targets.len());
        let there = make(&scene, &moves).map_err(TestCaseError::fail)?;
        prop_assert!(targets.iter().all(|target| there[&target.apid] == target.to), "{moves:?}");
        for (apid, mover) in &scene.movers {
            let own: BTreeSet<Nid> = mover.places.nids().collect();
            let alone = after(&scene, &[], *apid);
            let elsewhere = elsewhere(&scene.situation(), *apid, None, |_| true);
            let off = |at: usize| !own.contains(&alone.line()[at].nid);
            let fits = fits_free(&scene, &alone, *apid, off);
            let free = elsewhere.map(|to| residents(&scene, &alone, &to).iter().all(|r| *r == 0));
            prop_assert_eq!(free == Some(true), fits, "{}: {:?}", apid, free);
        }
    }
}

/// Random places for all applications that can be moved: `dice` choose the order in which these are
/// put on the line, and one of the places that then fit each. `None`: one of them fits nowhere.
fn shuffled(scene: &Scene, dice: &[usize]) -> Option<Vec<Target>> {
    let mut movers: Vec<(Apid, usize)> = scene
        .movers
        .iter()
        .zip(dice.iter().cycle())
        .filter(|((_, mover), _)| !mover.stays)
        .map(|((apid, _), die)| (*apid, *die))
        .collect();
    movers.sort_by_key(|(apid, die)| (*die, *apid));
    let situation = scene.situation();
    let mut scratch = Scratch::new(situation);
    movers.iter().for_each(|(apid, _)| scratch.lift(*apid));
    let mut targets = Vec::new();
    for (apid, die) in movers {
        let mover = &scene.movers[&apid];
        let piece = scratch.piece(apid, mover);
        let fits = |start: &usize| scratch.fits_all(*start, &piece);
        let starts: Vec<usize> = (0..scene.occupancy.line().len()).filter(fits).collect();
        let start = *starts.get(die % starts.len().max(1))?;
        let to = scratch.list(start, &piece);
        if !scratch.seat(apid, mover, &to) {
            return None;
        }
        targets.push(Target { apid, to });
    }
    Some(targets)
}

/// Whether there is a sequence in which each application goes straight to its target.
fn goes_straight(scene: &Scene, occupancy: &Occupancy, left: &[&Target]) -> bool {
    left.is_empty()
        || left.iter().enumerate().any(|(i, target)| {
            let mut next = occupancy.clone();
            let rest = [&left[..i], &left[i + 1..]].concat();
            go(scene, &mut next, target.apid, &target.to).is_ok()
                && goes_straight(scene, &next, &rest)
        })
}

/// Fails unless all moves of an order can be made, one by one, and bring each application to its
/// target. Where processors are not shared, there is an order if each application can go straight
/// to its target, and then each does.
fn is_in_order(scene: &Scene, targets: &[Target], shared: bool) -> Result<(), TestCaseError> {
    let moves = order(&scene.situation(), targets);
    let goes: Vec<&Target> =
        targets.iter().filter(|t| scene.movers[&t.apid].places != t.to).collect();
    if let Ok(moves) = &moves {
        let there = make(scene, moves).map_err(TestCaseError::fail)?;
        prop_assert!(targets.iter().all(|target| there[&target.apid] == target.to), "{moves:?}");
    }
    if !shared && goes_straight(scene, &scene.occupancy, &goes) {
        prop_assert_eq!(moves.map(|moves| moves.len()), Ok(goes.len()));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    #[test]
    fn an_order_can_be_made_where_nobody_shares(
        scene in scenes(1, 7, 7),
        dice in prop::collection::vec(0usize..60, 7),
    ) {
        if let Some(targets) = shuffled(&scene, &dice) {
            is_in_order(&scene, &targets, false)?;
        }
    }

    #[test]
    fn an_order_can_be_made_where_processors_are_shared(
        scene in scenes(2, 5, 7),
        dice in prop::collection::vec(0usize..60, 7),
    ) {
        if let Some(targets) = shuffled(&scene, &dice) {
            is_in_order(&scene, &targets, true)?;
        }
    }
}
