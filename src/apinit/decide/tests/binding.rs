//! Which processors an apshepherd is told to bind each PE to.

use super::*;
use crate::apteam::binding::{Binding, Lists};

/// An apinit of one node, whose four processors are real ones of two NUMA nodes, and its application of
/// two PEs of depth 2 there.
fn with_wide() -> (Agent, Key) {
    let (key, nid) = (key(12, 1), Nid(0));
    let nodes = vec![NodeSpec {
        nid,
        processors: 4,
        cpus: vec![6, 4, 9, 7],
        first_processor: 0,
        memory: 1,
    }];
    let numa = [(4, 0), (6, 0), (7, 0), (9, 1)].into();
    let (nids, boot_id) = ([nid].into(), "boot".into());
    let mut agent = Agent::new(Me { nids, uid: 0, cpus: vec![0, 1], numa, boot_id }, None);
    let places = PlacementList([Place { nid, processors: vec![0, 1, 2, 3], pes: 2 }].into());
    let shape = Shape { width: 2, depth: 2, per_node: None };
    let place = PlaceCommand { places, shape, ..place(key, &[&[0]]) };
    let linked = Event::Linked(Box::new(Welcome { nodes, ..welcome() }));
    go_through(&mut agent, 0, [linked, placed(place), Event::ShepherdSpawned(key)]);
    agent.apply(S, opened(FRONT, OWNER));
    (agent, key)
}

fn bound(key: Key, binding: Binding) -> Event {
    let launch = Box::new(Launch { binding, ..*program() });
    Event::FrontMessage(FRONT, ToApinit::Launch { key, ticket: TICKET, launch })
}

fn lists(lists: &[&[(u32, u32)]]) -> Binding {
    Binding::Lists(Lists::new(lists.iter().map(|l| l.to_vec()).collect()).expect("good"))
}

/// The real processors of each PE; and an apshepherd of a release that knows only `cpu` and `none` is
/// told no other kind.
#[test]
fn each_kind_is_worked_out_here() {
    for (binding, cpus, told) in [
        (Binding::Cpu, [vec![4, 6], vec![7, 9]], Binding::Cpu),
        (Binding::Depth, [vec![4, 6], vec![7, 9]], Binding::Cpu),
        // The first processor of PE 1 is the real one 9.
        (Binding::NumaNode, [vec![4, 6, 7], vec![9]], Binding::Cpu),
        // Not at all: then to all that the application has there.
        (Binding::None, [vec![4, 6, 7, 9], vec![4, 6, 7, 9]], Binding::None),
        (lists(&[&[(2, 3)], &[]]), [vec![7, 9], vec![4, 6, 7, 9]], Binding::Cpu),
    ] {
        let (mut agent, key) = with_wide();
        let actions = act(&mut agent, S, bound(key, binding.clone()));
        let given = actions.iter().find_map(|action| match action {
            Action::SendShepherd(_, ToShepherd::Launch(launch)) => Some(launch),
            _ => None,
        });
        let given = given.expect("launched");
        let sets: Vec<_> = given.pes.iter().map(|pe| pe.cpus.clone()).collect();
        assert_eq!((&sets[..], &given.launch.binding), (&cpus[..], &told), "{binding:?}");
    }
}

#[test]
fn a_list_that_does_not_fit_is_not_launched() {
    let (mut agent, key) = with_wide();
    let text = "-cc: list 2 names processor 4, and the application has 4 processors, numbers 0 to 3, \
                on NID 0: name one of those, or ask for more (-n, -N, -d)";
    let beyond = lists(&[&[(0, 0)], &[(1, 4)]]);
    assert_eq!(act(&mut agent, S, bound(key, beyond)), refused(FRONT, text));
    assert_eq!(agent.apps[&key].phase(), Phase::Placed);
}
