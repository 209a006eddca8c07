//! Flavors that are given to nodes and taken back.

use super::*;
use crate::apteam::Apid;
use crate::apteam::change::Orders;
use crate::apteam::protocol::node::Command;
use crate::apteam::protocol::node::Yields;
use crate::apteam::record::State;
use crate::machine::Machine;
use crate::machine::Nid;
use crate::machine::{Flavor, Flavors};
use std::collections::BTreeMap;

fn carol() -> By {
    By { uid: 9, name: "carol".into(), at_ns: 77 }
}

fn flavors(names: &str) -> Flavors {
    names.split(' ').map(|name| Flavor::parse(name).expect("a flavor")).collect()
}

/// NID 0 for the system, and so many others for applications, of as many processors.
fn usual(others: u32, processors: u32) -> Machine {
    let mut machine = machine(others + 1, processors);
    for node in machine.nodes.values_mut() {
        node.flavors = flavors(if node.nid == Nid(0) { "su os" } else { "ap" });
    }
    machine
}

/// All of them offered on link 1.
fn offered(machine: Machine) -> Scheduler {
    let nids: Vec<u32> = machine.nodes.keys().map(|nid| nid.0).collect();
    let mut s = Scheduler::new(machine, alone());
    link(&mut s, 1, &nids, &[]);
    s
}

fn event(nids: &[u32], to: Option<&str>) -> Event {
    let nids = nids.iter().map(|n| Nid(*n)).collect();
    Event::Flavors { reply: ReplyId(7), nids, to: to.map(flavors), by: carol() }
}

fn order(s: &mut Scheduler, nids: &[u32], to: Option<&str>) -> Vec<Effect> {
    s.apply(at(5), event(nids, to))
}

fn in_force(s: &Scheduler) -> Vec<String> {
    s.nodes().map(|node| node.node.flavors.to_string()).collect()
}

fn state(s: &Scheduler, apid: u64) -> Option<State> {
    s.team(Apid(apid)).map(|team| team.state)
}

#[test]
fn a_node_that_gains_ap_takes_what_waits_and_one_that_loses_it_keeps_what_it_has() {
    let mut s = offered(usual(2, 1));
    for number in 1..=3 {
        s.apply(at(1), posted(number, 1));
    }
    assert_eq!(
        [1, 2, 3].map(|n| state(&s, n)),
        [State::Placed, State::Placed, State::Posted].map(Some)
    );
    let gains = order(&mut s, &[0], Some("su os ap"));
    assert_eq!(
        brief(&gains)[..5],
        [
            "warn",
            "change flavors of NID 0",
            "flavors 0 su os ap",
            "managed 7 1 0",
            "save 3.1 placed"
        ],
        "records come before the answer, and no link is closed: {:?}",
        brief(&gains)
    );
    assert_eq!(answer(&gains).0, ["NID 0: su os ap, set by carol; before: su os (psched.yaml)"]);
    let loses = order(&mut s, &[0, 1], Some("su os"));
    assert_eq!(
        answer(&loses).0,
        [
            "NID 1: su os, set by carol; before: ap (psched.yaml)",
            "NID 0: su os, set by carol; before: su os ap, set by carol",
            "application 1 of alice keeps NID 1, which takes no new applications",
            "application 3 of alice keeps NID 0, which takes no new applications",
        ]
    );
    // They end as ever, and nobody comes after them.
    for apid in [1, 3] {
        report(&mut s, 1, Report::Running(key(apid, 1)));
        let nids = if apid == 1 { [1] } else { [0] };
        report(&mut s, 1, ended(key(apid, 1), &nids, None));
    }
    s.apply(at(6), posted(4, 1));
    assert_eq!(state(&s, 4), Some(State::Posted));
    let notes: Vec<String> = s.nodes().flat_map(|n| notes_said(&n.notes)).collect();
    assert_eq!(
        notes,
        [
            "flavors su os, set by carol; psched.yaml: su os",
            "flavors su os, set by carol; psched.yaml: ap"
        ]
    );
    let reset = order(&mut s, &[1], None);
    assert_eq!(answer(&reset).0, ["NID 1: ap (psched.yaml); before: su os, set by carol"]);
    assert!(brief(&reset).contains(&"flavors 1 reset".to_owned()), "{reset:?}");
    assert_eq!(state(&s, 4), Some(State::Placed));
    let again = order(&mut s, &[1], None);
    assert_eq!(brief(&again), ["managed 7 1 0"]);
    assert_eq!(answer(&again).0, ["NID 1: ap (psched.yaml) already"]);
}

#[test]
fn the_last_node_of_a_flavor_keeps_it() {
    let mut s = offered(usual(2, 1));
    let needs = |nids: &str, name: &str| {
        format!(
            "{nids}: no other node has flavor {name}, and at least one node must have it: give \
             it to another node first (snflv NIDS FLAVORS)"
        )
    };
    for (nids, to, problems) in [
        (&[1, 2][..], Some("os"), vec![needs("NIDs 1-2", "ap")]),
        (&[0], Some("ap"), vec![needs("NID 0", "su"), needs("NID 0", "os")]),
        (&[0, 1, 2], Some("os ap"), vec![needs("NID 0", "su")]),
        (&[0, 9], Some("ap"), vec!["NID 9: not in psched.yaml (apstat -n lists the nodes)".into()]),
        (&[9], None, vec!["NID 9: not in psched.yaml (apstat -n lists the nodes)".into()]),
        (&[], None, vec!["no nodes are named: name the nodes that get the flavors".into()]),
    ] {
        let refused = order(&mut s, nids, to);
        assert_eq!(brief(&refused).len(), 1, "nothing but the answer: {refused:?}");
        assert_eq!(answer(&refused).1, problems);
    }
    assert_eq!(in_force(&s), ["su os", "ap", "ap"]);
    // Handed on, it may go; and then the other has the last.
    order(&mut s, &[2], Some("su os ap"));
    assert_eq!(answer(&order(&mut s, &[0], Some("ap"))).1, [""; 0]);
    assert_eq!(answer(&order(&mut s, &[2], None)).1, [needs("NID 2", "su"), needs("NID 2", "os")]);
    assert_eq!(answer(&order(&mut s, &[0, 2], None)).1, [""; 0]);
    assert_eq!(in_force(&s), ["su os", "ap", "ap"]);
}

/// As a reload treats them: they wait on, and are told why.
#[test]
fn what_can_not_be_held_any_more_waits_and_is_named() {
    let mut s = offered(usual(2, 2));
    s.apply(at(1), posted(1, 4));
    report(&mut s, 1, Report::Running(key(1, 1)));
    s.apply(at(1), posted(2, 3));
    s.apply(at(1), posted(3, 2));
    let impossible = "application 2 of alice could no longer be placed: 3 PEs of depth 1 need 3 \
                      processors; this machine can hold at most 2 PEs of this shape (NID 1); ask \
                      for -n 2 or less";
    let keeps = "application 1 of alice keeps NID 2, which takes no new applications";
    let line = "NID 2: os, set by carol; before: ap (psched.yaml)";
    // First it is only asked.
    let (done, problems) = s.would(at(5), event(&[2], Some("os")));
    assert_eq!((done, problems), (vec![line.into(), keeps.into(), impossible.into()], vec![]));
    assert_eq!(in_force(&s), ["su os", "ap", "ap"]);
    assert_eq!(answer(&order(&mut s, &[2], Some("os"))).0, [line, keeps, impossible]);
    assert_eq!((state(&s, 2), state(&s, 3)), (Some(State::Posted), Some(State::Posted)));
    report(&mut s, 1, ended(key(1, 1), &[1, 2], None));
    assert_eq!((state(&s, 2), state(&s, 3)), (Some(State::Posted), Some(State::Placed)));
    // A new one of that width is not taken.
    assert!(brief(&s.apply(at(6), posted(4, 3))).contains(&"refuse 4 Impossible".to_owned()));
    // What would be placed is told, too.
    let (done, _) = s.would(at(6), event(&[0], Some("su os ap")));
    assert_eq!(done.len(), 1, "{done:?}");
    // It is number 4: the one before was refused.
    s.apply(at(6), posted(5, 2));
    let (done, _) = s.would(at(6), event(&[0], Some("su os ap")));
    assert_eq!(done[1], "application 4 of alice gets NID 0");
}

#[test]
fn an_order_stands_before_psched_yaml_and_outlives_psched() {
    let mut s = offered(usual(2, 1));
    order(&mut s, &[1], Some("os"));
    s.apply(at(1), posted(1, 1));
    let mut other = usual(3, 1);
    for nid in [0, 1] {
        other.nodes.get_mut(&Nid(nid)).expect("there").flavors = flavors("su os ap");
    }
    assert_eq!(
        s.flavors_without_effect(&other),
        ["flavors of NID 1: ap -> su os ap has no effect: snflv has set them to os"]
    );
    let said = s.compared(at(5), other.clone(), alone());
    assert_eq!(said, [""; 0], "nobody is concerned");
    s.apply(at(6), Event::Machine(Box::new(other.clone())));
    assert_eq!(in_force(&s), ["su os ap", "os", "ap", "ap"]);
    let orders = Orders { flavors: s.flavors.clone(), ..Orders::default() };
    let records = s.teams().cloned().collect();
    let (mut again, effects) =
        Scheduler::restore(other, alone(), records, BTreeMap::new(), orders, 2, at(7));
    assert_eq!((effects, in_force(&again)), (vec![], in_force(&s)));
    // Taken out of the file it waits for the node to come back; it can be taken back as well.
    let gone = without(usual(2, 1), 1);
    again.apply(at(8), Event::Machine(Box::new(gone.clone())));
    assert_eq!(in_force(&again), ["su os", "ap"]);
    assert_eq!(
        again.flavors_without_effect(&usual(2, 1)),
        ["flavors of NID 1: ap has no effect: snflv has set them to os"]
    );
    again.apply(at(8), Event::Machine(Box::new(usual(2, 1))));
    assert_eq!(in_force(&again), ["su os", "os", "ap"]);
    again.apply(at(8), Event::Machine(Box::new(gone)));
    let reset = order(&mut again, &[1], None);
    assert_eq!(answer(&reset).0, ["NID 1: not in psched.yaml; before: os, set by carol"]);
    again.apply(at(8), Event::Machine(Box::new(usual(2, 1))));
    assert_eq!(in_force(&again), ["su os", "ap", "ap"]);
}

fn without(mut machine: Machine, nid: u32) -> Machine {
    machine.nodes.remove(&Nid(nid));
    machine
}

/// psched.yaml loses the other node that had it.
#[test]
fn no_file_leaves_a_flavor_on_no_node() {
    let mut s = offered(usual(2, 1));
    order(&mut s, &[2], Some("os"));
    let less = without(usual(2, 1), 1);
    let said = s.compared(at(5), less.clone(), alone());
    let warning = "NID 2 keeps flavor ap by psched.yaml, against snflv: no other node has";
    assert!(said[0].starts_with(warning), "{said:?}");
    let effects = s.apply(at(6), Event::Machine(Box::new(less.clone())));
    assert!(brief(&effects).contains(&"warn".to_owned()), "{effects:?}");
    assert_eq!(in_force(&s), ["su os", "os ap"]);
    let notes: Vec<String> = s.nodes().flat_map(|n| notes_said(&n.notes)).collect();
    assert_eq!(
        notes,
        ["flavors os, set by carol (and ap, which no other node has); psched.yaml: ap"]
    );
    let orders = Orders { flavors: s.flavors.clone(), ..Orders::default() };
    let (again, effects) =
        Scheduler::restore(less, alone(), vec![], BTreeMap::new(), orders, 1, at(7));
    assert_eq!((brief(&effects), in_force(&again)), (vec!["warn".into()], in_force(&s)));
    // An order that takes it from nobody is none of that.
    assert_eq!(answer(&order(&mut s, &[0], Some("su"))).1, [""; 0]);
    assert_eq!(answer(&order(&mut s, &[0], None)).1, [""; 0]);
    // With another it obeys its order.
    s.apply(at(8), Event::Machine(Box::new(usual(2, 1))));
    assert_eq!(in_force(&s), ["su os", "ap", "os"]);
}

/// Of a node that is taken out while it is in use nothing is placed, whatever is ordered.
#[test]
fn a_retired_node_takes_nothing_by_an_order() {
    let mut s = offered(usual(2, 1));
    order(&mut s, &[2], Some("os ap"));
    s.apply(at(1), posted(1, 2));
    report(&mut s, 1, Report::Running(key(1, 1)));
    s.apply(at(2), Event::Machine(Box::new(without(usual(2, 1), 2))));
    assert_eq!(in_force(&s), ["su os", "ap", ""]);
    let refused = order(&mut s, &[2], Some("ap"));
    assert_eq!(answer(&refused).1, ["NID 2: not in psched.yaml (apstat -n lists the nodes)"]);
    // What the machine can hold is what is configured, with what is ordered.
    order(&mut s, &[0], Some("su os ap"));
    s.apply(at(3), posted(2, 2));
    assert_eq!(state(&s, 2), Some(State::Posted), "possible");
    assert!(brief(&s.apply(at(3), posted(3, 3))).contains(&"refuse 3 Impossible".to_owned()));
}

#[test]
fn pes_give_way_on_nodes_that_are_the_systems_too() {
    let mut machine = usual(4, 1);
    for (nid, names) in [(2, "os su ap"), (3, "su ap"), (4, "os ap")] {
        machine.nodes.get_mut(&Nid(nid)).expect("a node").flavors = flavors(names);
    }
    // What the node is told of an application that has all nodes from 1 on.
    let told = |nice: u32, orders: &[(u32, &str)]| {
        let mut s = Scheduler::new(machine.clone(), Settings { yield_nice: nice, ..alone() });
        link(&mut s, 1, &[0, 1, 2, 3, 4], &[]);
        for (nid, names) in orders {
            order(&mut s, &[*nid], Some(names));
        }
        let effects = s.apply(at(6), posted(1, 4));
        let yields = effects.iter().find_map(|effect| match effect {
            Effect::Command { command: Command::Place(place), .. } => Some(place.yields.clone()),
            _ => None,
        });
        yields.expect("placed")
    };
    let on = |nids: &[u32]| Yields { nice: 10, nids: nids.iter().map(|n| Nid(*n)).collect() };
    assert_eq!(told(0, &[]), Yields::default());
    assert_eq!(told(10, &[]), on(&[2, 3, 4]));
    assert_eq!(told(10, &[(2, "ap"), (1, "ap su")]), on(&[1, 3, 4]), "as snflv has set them");
    let yields = on(&[2, 3]);
    assert_eq!([1, 2, 3].map(|nid| yields.on(Nid(nid))), [0, 10, 10]);
}

#[test]
fn a_node_that_no_region_would_take_keeps_its_flavors() {
    let yaml = "nodes:
  - { nids: 0, processors: 1, flavors: [su, os] }
  - { nids: 1-2, processors: 1 }
regions:
  - { name: all, flavors: [ap] }
";
    let mut s = offered(crate::config::read(yaml).expect("a good file").machine);
    let refused = order(&mut s, &[0, 2], Some("su os ap"));
    assert_eq!(
        answer(&refused).1,
        ["NIDs 0,2: would have flavor ap and be in no region, so no application could be \
             placed there: give the flavors of a region (apstat -n -v shows them), or leave out \
             ap"]
    );
    assert_eq!(in_force(&s), ["su os", "ap", "ap"]);
    let taken = order(&mut s, &[2], Some("su os"));
    assert!(answer(&taken).1.is_empty());
    assert_eq!(in_force(&s), ["su os", "ap", "su os"]);
}
