use super::*;
use crate::apteam::place::Place;
use crate::machine::{Flavors, Node};
use proptest::prelude::*;

fn machine(sizes: &[(u32, u32)]) -> Machine {
    let node = |&(nid, processors): &(u32, u32)| Node {
        nid: Nid(nid),
        processors,
        cpus: Vec::new(),
        memory: 0,
        flavors: if nid == 0 { Flavors::default().with(Flavor::Su) } else { Flavors::all() },
        host: String::new(),
    };
    Machine { nodes: sizes.iter().map(node).map(|n| (n.nid, n)).collect() }
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
    let mut occupancy = Occupancy::new(&machine(&[(0, 1), (1, 4), (7, 2)]));
    assert_eq!(occupancy.application_nodes(), BTreeSet::from([Nid(1), Nid(7)]));
    assert_eq!(occupancy.take(Apid(5), &places(&[(1, &[0, 3]), (7, &[0])])), Ok(()));
    assert_eq!(occupancy.take(Apid(4), &places(&[(1, &[1])])), Ok(()));
    assert_eq!((occupancy.free(Nid(1)), occupancy.used(Nid(1))), (1, 3));
    assert_eq!(occupancy.holders(Nid(1)), [Apid(4), Apid(5)]);
    assert_eq!(occupancy.free_processors(1).collect::<Vec<_>>(), [2]);
    assert_eq!(occupancy.held(Apid(5)).collect::<Vec<_>>(), [(1, 2), (2, 1)]);
    occupancy.release(Apid(5));
    occupancy.release(Apid(5));
    assert_eq!((occupancy.free(Nid(1)), occupancy.free(Nid(7))), (3, 2));
    assert_eq!(occupancy.holders(Nid(1)), [Apid(4)]);
    assert_eq!(occupancy.applications().collect::<Vec<_>>(), [Apid(4)]);
}

#[test]
fn a_conflict_changes_nothing() {
    let mut occupancy = Occupancy::new(&machine(&[(1, 4), (2, 2)]));
    occupancy.take(Apid(1), &places(&[(2, &[1])])).expect("an empty machine");
    for (nid, processor, list) in [
        (2, 1, places(&[(1, &[0, 1]), (2, &[0, 1])])),
        (2, 2, places(&[(1, &[0, 1]), (2, &[2])])),
        (3, 0, places(&[(1, &[0]), (3, &[0])])),
        (1, 2, places(&[(1, &[2, 2])])),
    ] {
        let conflict = Conflict { nid: Nid(nid), processor };
        assert_eq!(occupancy.take(Apid(2), &list), Err(conflict));
        assert_eq!((occupancy.free(Nid(1)), occupancy.free(Nid(2))), (4, 1));
        assert_eq!(occupancy.free_processors(0).count(), 4);
        assert_eq!(occupancy.holders(Nid(1)), []);
        assert_eq!(occupancy.applications().collect::<Vec<_>>(), [Apid(1)]);
    }
}

#[test]
fn nodes_are_closed_at_first_and_unknown_ones_stay_so() {
    let mut occupancy = Occupancy::new(&machine(&[(1, 4)]));
    assert!(!occupancy.is_open(Nid(1)));
    occupancy.set_open(Nid(1), true);
    occupancy.set_open(Nid(9), true);
    assert!(occupancy.is_open(Nid(1)) && !occupancy.is_open(Nid(9)));
    assert_eq!((occupancy.free(Nid(9)), occupancy.used(Nid(9))), (0, 0));
}

proptest! {
    /// Against the plainest bookkeeping there is: a map of processors to their holders.
    #[test]
    fn counts_agree_with_a_plain_map(
        steps in prop::collection::vec((0u64..4, prop::collection::vec((0u32..4, 0u32..4), 0..5)), 0..20)
    ) {
        let machine = machine(&[(0, 2), (1, 4), (3, 3)]);
        let mut occupancy = Occupancy::new(&machine);
        let mut plain: BTreeMap<(Nid, u32), Apid> = BTreeMap::new();
        for (apid, wanted) in steps {
            let apid = Apid(apid);
            if wanted.is_empty() {
                occupancy.release(apid);
                plain.retain(|_, holder| *holder != apid);
                continue;
            }
            let list: Vec<(u32, &[u32])> =
                wanted.iter().map(|(nid, p)| (*nid, std::slice::from_ref(p))).collect();
            let all: BTreeSet<_> = wanted.iter().collect();
            let good = all.len() == wanted.len() && wanted.iter().all(|&(nid, p)| {
                machine.nodes.get(&Nid(nid)).is_some_and(|n| p < n.processors)
                    && !plain.contains_key(&(Nid(nid), p))
            });
            prop_assert_eq!(occupancy.take(apid, &places(&list)).is_ok(), good);
            if good {
                plain.extend(wanted.iter().map(|&(nid, p)| ((Nid(nid), p), apid)));
            }
        }
        for node in machine.nodes.values() {
            let here: Vec<_> = plain.iter().filter(|((nid, _), _)| *nid == node.nid).collect();
            prop_assert_eq!(occupancy.used(node.nid) as usize, here.len());
            prop_assert_eq!(occupancy.free(node.nid) as usize, node.processors as usize - here.len());
            let holders: BTreeSet<Apid> = here.iter().map(|(_, a)| **a).collect();
            prop_assert_eq!(occupancy.holders(node.nid), holders.into_iter().collect::<Vec<_>>());
        }
    }
}
