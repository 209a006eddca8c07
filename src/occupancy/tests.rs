use super::*;
use crate::apteam::place::Place;
use crate::apteam::shape::Shape;
use crate::machine::{Flavor, Flavors, Node};
use proptest::prelude::*;

/// Nobody shares.
const ONE: Rules = Rules::PLAIN;
/// As many as may by default.
const FOUR: Rules = Rules { max_resident: 4, ..Rules::PLAIN };
const ALONE: Claim = Claim { shares: false, memory_per_pe: None, exclusive: false };
const SHARES: Claim = Claim { shares: true, memory_per_pe: None, exclusive: false };

fn free_processors(occupancy: &Occupancy, at: usize) -> Vec<u32> {
    let all = (0..).zip(occupancy.residents(at));
    all.filter(|(_, residents)| **residents == 0).map(|(processor, _)| processor).collect()
}

fn machine(sizes: &[(u32, u32)]) -> Machine {
    let node = |&(nid, processors): &(u32, u32)| Node {
        flavors: if nid == 0 { Flavors::default().with(Flavor::Su) } else { Flavors::all() },
        ..Node::plain(Nid(nid), processors)
    };
    sizes.iter().map(node).collect()
}

fn places(places: &[(u32, &[u32])]) -> PlacementList {
    let place = |&(nid, processors): &(u32, &[u32])| Place {
        nid: Nid(nid),
        processors: processors.to_vec(),
        pes: processors.len() as u32,
    };
    PlacementList(places.iter().map(place).collect())
}

#[test]
fn what_is_taken_is_held_until_it_is_released() {
    let mut occupancy = Occupancy::new(&machine(&[(0, 1), (1, 4), (7, 2)]), ONE);
    assert_eq!(occupancy.application_nodes(), BTreeSet::from([Nid(1), Nid(7)]));
    assert_eq!(occupancy.take(Apid(5), &places(&[(1, &[0, 3]), (7, &[0])]), ALONE), Ok(()));
    assert_eq!(occupancy.take(Apid(4), &places(&[(1, &[1])]), ALONE), Ok(()));
    assert_eq!((occupancy.free(Nid(1)), occupancy.used(Nid(1))), (1, 3));
    assert_eq!(occupancy.holders(Nid(1)), [Apid(4), Apid(5)]);
    assert_eq!(free_processors(&occupancy, 1), [2]);
    let held = |at, processors: &[u32]| Held { at, processors: processors.to_vec(), memory: 0 };
    assert_eq!(occupancy.held(Apid(5)), [held(1, &[0, 3]), held(2, &[0])]);
    occupancy.release(Apid(5));
    occupancy.release(Apid(5));
    assert_eq!((occupancy.free(Nid(1)), occupancy.free(Nid(7))), (3, 2));
    assert_eq!(occupancy.holders(Nid(1)), [Apid(4)]);
    assert_eq!(occupancy.applications().collect::<Vec<_>>(), [Apid(4)]);
}

#[test]
fn a_conflict_changes_nothing() {
    let mut occupancy = Occupancy::new(&machine(&[(1, 4), (2, 2)]), ONE);
    occupancy.take(Apid(1), &places(&[(2, &[1])]), ALONE).expect("an empty machine");
    for (nid, processor, list) in [
        (2, 1, places(&[(1, &[0, 1]), (2, &[0, 1])])),
        (2, 2, places(&[(1, &[0, 1]), (2, &[2])])),
        (3, 0, places(&[(1, &[0]), (3, &[0])])),
        (1, 2, places(&[(1, &[2, 2])])),
    ] {
        let conflict = Conflict { nid: Nid(nid), processor };
        assert_eq!(occupancy.take(Apid(2), &list, ALONE), Err(conflict));
        assert_eq!((occupancy.free(Nid(1)), occupancy.free(Nid(2))), (4, 1));
        assert_eq!(free_processors(&occupancy, 0).len(), 4);
        assert_eq!(occupancy.holders(Nid(1)), []);
        assert_eq!(occupancy.applications().collect::<Vec<_>>(), [Apid(1)]);
    }
}

#[test]
fn nodes_are_closed_at_first_and_unknown_ones_stay_so() {
    let mut occupancy = Occupancy::new(&machine(&[(1, 4)]), ONE);
    assert!(!occupancy.is_open(Nid(1)));
    occupancy.set_open(Nid(1), true);
    occupancy.set_open(Nid(9), true);
    assert!(occupancy.is_open(Nid(1)) && !occupancy.is_open(Nid(9)));
    assert_eq!((occupancy.free(Nid(9)), occupancy.used(Nid(9))), (0, 0));
}

#[test]
fn as_many_share_a_processor_as_may() {
    let mut occupancy = Occupancy::new(&machine(&[(1, 2)]), FOUR);
    let both = places(&[(1, &[0, 1])]);
    let first = places(&[(1, &[0])]);
    for apid in 1..=4 {
        assert_eq!(occupancy.take(Apid(apid), &first, SHARES), Ok(()));
    }
    let conflict = Err(Conflict { nid: Nid(1), processor: 0 });
    assert_eq!(occupancy.take(Apid(5), &both, SHARES), conflict);
    assert_eq!(occupancy.residents(0), [4, 0]);
    assert_eq!((occupancy.free(Nid(1)), occupancy.used(Nid(1))), (1, 1));
    // What is found there may be more than a new one would find: the variable was higher.
    occupancy.set_rules(Rules { max_resident: 2, ..FOUR });
    assert_eq!(occupancy.take_found(Apid(5), &both, SHARES), Ok(()));
    assert_eq!(occupancy.residents(0), [5, 1]);
    assert_eq!(occupancy.take(Apid(6), &places(&[(1, &[1])]), SHARES), Ok(()));
    assert_eq!(
        occupancy.take(Apid(7), &places(&[(1, &[1])]), SHARES),
        Err(Conflict { nid: Nid(1), processor: 1 })
    );
    occupancy.release(Apid(5));
    assert_eq!(occupancy.residents(0), [4, 1]);
    assert_eq!(occupancy.holders(Nid(1)), [1, 2, 3, 4, 6].map(Apid));
}

#[test]
fn who_shares_with_nobody_sits_alone() {
    let mut occupancy = Occupancy::new(&machine(&[(1, 3)]), FOUR);
    occupancy.take(Apid(1), &places(&[(1, &[0])]), ALONE).expect("free");
    occupancy.take(Apid(2), &places(&[(1, &[1])]), SHARES).expect("free");
    for (processor, claim) in [(0, SHARES), (0, ALONE), (1, ALONE)] {
        let list = places(&[(1, &[processor])]);
        let conflict = Err(Conflict { nid: Nid(1), processor });
        assert_eq!(occupancy.take(Apid(3), &list, claim), conflict);
        assert_eq!(occupancy.take_found(Apid(3), &list, claim), conflict);
    }
    for occupant in [occupancy.clone(), occupancy] {
        let most = Terms::of(&Shape { width: 1, depth: 1, per_node: None }, None, 3);
        let mut open = occupant;
        open.set_open(Nid(1), true);
        assert_eq!(open.room(0, &most), Room { processors: 2, pes: 2 });
    }
}

#[test]
fn memory_is_promised_and_given_back() {
    let mut with_memory = machine(&[(1, 4), (2, 4)]);
    for node in with_memory.nodes.values_mut() {
        node.memory = 1_600;
    }
    let mut occupancy = Occupancy::new(&with_memory, FOUR);
    let promised = |o: &Occupancy| [o.line()[0].promised, o.line()[1].promised];
    let list = places(&[(1, &[0, 1]), (2, &[3])]);
    // A processor's share of a quarter of a quarter.
    occupancy.take(Apid(1), &list, SHARES).expect("free");
    assert_eq!(promised(&occupancy), [200, 100]);
    // By PE: the list has one for each processor.
    let much = Claim { memory_per_pe: Some(300), ..SHARES };
    occupancy.take(Apid(2), &list, much).expect("shared");
    assert_eq!(promised(&occupancy), [800, 400]);
    let counted = Some(Counted { at: 1, before: 100, now: 150 });
    assert_eq!(occupancy.set_memory(Apid(1), Nid(2), 150), counted);
    assert_eq!(occupancy.set_memory(Apid(1), Nid(9), 150), None);
    assert_eq!(occupancy.set_memory(Apid(9), Nid(2), 150), None);
    assert_eq!(promised(&occupancy), [800, 450]);
    // What it would count with if nothing were known of it.
    let shares = [(1, 1), (1, 2), (1, 9), (9, 1)];
    assert_eq!(shares.map(|(apid, nid)| occupancy.share(Apid(apid), Nid(nid))), [200, 100, 0, 0]);
    // More than there is counts as all.
    let counted = Some(Counted { at: 1, before: 150, now: 1_600 });
    assert_eq!(occupancy.set_memory(Apid(1), Nid(2), u64::MAX), counted);
    assert_eq!(promised(&occupancy), [800, 1_900]);
    occupancy.set_memory(Apid(1), Nid(2), 150);

    for nid in [1, 2] {
        occupancy.set_open(Nid(nid), true);
    }
    let shape = Shape { width: 1, depth: 1, per_node: None };
    let pes = |o: &Occupancy, memory_per_pe, level| {
        [0, 1].map(|at| o.room(at, &Terms::of(&shape, memory_per_pe, level)).pes)
    };
    assert_eq!(pes(&occupancy, None, 3), [4, 4]);
    assert_eq!(pes(&occupancy, Some(400), 3), [2, 2]);
    assert_eq!(pes(&occupancy, Some(400), 0), [2, 2]);
    assert_eq!(pes(&occupancy, Some(1_000), 3), [0, 1]);
    // More than there is, as the variable says; what is promised stays.
    occupancy.set_rules(Rules { memory_overcommit: 2_000, ..FOUR });
    assert_eq!(pes(&occupancy, Some(1_000), 3), [2, 2]);
    assert_eq!(promised(&occupancy), [800, 450]);
    // Less: a share is smaller too, so that processors are taken before memory is.
    occupancy.set_rules(Rules { memory_overcommit: 500, ..FOUR });
    assert_eq!((occupancy.line()[0].limit, occupancy.line()[0].share), (800, 50));
    assert_eq!(pes(&occupancy, None, 3), [0, 4]);
    occupancy.release(Apid(2));
    occupancy.release(Apid(1));
    assert_eq!(promised(&occupancy), [0, 0]);
    assert_eq!(pes(&occupancy, None, 0), [4, 4]);
}

proptest! {
    /// Against the plainest bookkeeping there is: a map of processors to their holders. Of the
    /// applications the even ones share.
    #[test]
    fn counts_agree_with_a_plain_map(
        max_resident in 1u32..4,
        steps in prop::collection::vec(
            (0u64..6, any::<bool>(), prop::collection::vec((0u32..4, 0u32..4), 0..5)), 0..20)
    ) {
        let machine = machine(&[(0, 2), (1, 4), (3, 3)]);
        let mut occupancy = Occupancy::new(&machine, Rules { max_resident, ..ONE });
        let mut plain: BTreeMap<(Nid, u32), BTreeSet<Apid>> = BTreeMap::new();
        let shares = |apid: &Apid| apid.0.is_multiple_of(2);
        for (apid, found, wanted) in steps {
            let apid = Apid(apid);
            if wanted.is_empty() {
                occupancy.release(apid);
                plain.values_mut().for_each(|holders| holders.retain(|holder| *holder != apid));
                continue;
            }
            let list: Vec<(u32, &[u32])> =
                wanted.iter().map(|(nid, p)| (*nid, std::slice::from_ref(p))).collect();
            let all: BTreeSet<_> = wanted.iter().collect();
            let good = all.len() == wanted.len() && wanted.iter().all(|&(nid, p)| {
                let none = BTreeSet::new();
                let there = plain.get(&(Nid(nid), p)).unwrap_or(&none);
                machine.nodes.get(&Nid(nid)).is_some_and(|n| p < n.processors)
                    && !there.contains(&apid)
                    && (there.is_empty() || shares(&apid) && there.iter().all(shares))
                    && (found || there.len() < max_resident as usize)
            });
            let claim = Claim { shares: shares(&apid), memory_per_pe: None, exclusive: false };
            let taken = match found {
                true => occupancy.take_found(apid, &places(&list), claim),
                false => occupancy.take(apid, &places(&list), claim),
            };
            prop_assert_eq!(taken.is_ok(), good);
            if good {
                for (nid, p) in wanted {
                    plain.entry((Nid(nid), p)).or_default().insert(apid);
                }
            }
        }
        for (at, node) in machine.nodes.values().enumerate() {
            let here = || plain.iter().filter(|((nid, _), _)| *nid == node.nid);
            let used = here().filter(|(_, holders)| !holders.is_empty()).count();
            prop_assert_eq!(occupancy.used(node.nid) as usize, used);
            prop_assert_eq!(occupancy.free(node.nid) as usize, node.processors as usize - used);
            let holders: BTreeSet<Apid> = here().flat_map(|(_, a)| a).copied().collect();
            prop_assert_eq!(occupancy.holders(node.nid), holders.into_iter().collect::<Vec<_>>());
            for ((_, p), holders) in here() {
                let counted = occupancy.residents(at)[*p as usize] & COUNTED_MAX;
                prop_assert_eq!(usize::from(counted), holders.len());
            }
        }
    }
}
