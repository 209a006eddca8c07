//! The configuration is read again, by examples.

use super::*;
use crate::apteam::Apid;
use crate::apteam::change::Orders;
use crate::apteam::protocol::node::HostNote;
use crate::apteam::record::Apteam;
use crate::apteam::record::State;
use crate::machine::Machine;
use crate::machine::Nid;
use crate::psched::reason::sees_all;
use std::collections::BTreeMap;

fn reconfigure(s: &mut Scheduler, machine: Machine) -> Vec<String> {
    brief(&s.apply(at(9), Event::Machine(Box::new(machine))))
}

fn without(mut machine: Machine, nid: u32) -> Machine {
    machine.nodes.remove(&Nid(nid));
    machine
}

/// What a node can't do may change while its link is open.
#[test]
fn notes_are_those_that_were_told_last() {
    let mut s = ready(2, 2);
    let notes = |s: &Scheduler| s.nodes().flat_map(|n| notes_said(&n.notes)).collect::<Vec<_>>();
    assert_eq!(notes(&s), [""; 0]);
    for told in [vec!["no cgroups".to_owned()], vec![]] {
        let notes_now = Event::Noted {
            link: LinkId(1),
            notes: told.iter().map(HostNote::of_host).collect(),
            roll_out: Default::default(),
            clock: Default::default(),
        };
        assert_eq!(brief(&s.apply(at(1), notes_now)), [""; 0]);
        // Of each of its nodes.
        assert_eq!(notes(&s), [told.clone(), told].concat());
    }
    let stranger = Event::Noted {
        link: LinkId(7),
        notes: vec![HostNote::of_host("x")],
        roll_out: Default::default(),
        clock: Default::default(),
    };
    s.apply(at(1), stranger);
    assert_eq!(notes(&s), [""; 0]);
}

#[test]
fn the_same_machine_is_no_change() {
    let mut s = ready(2, 1);
    s.apply(at(0), posted(1, 2));
    assert_eq!(reconfigure(&mut s, machine(2, 1)), [""; 0]);
}

#[test]
fn a_node_more_takes_what_waits() {
    let mut s = ready(1, 1);
    s.apply(at(0), posted(1, 1));
    s.apply(at(0), posted(2, 1));
    assert_eq!(reconfigure(&mut s, machine(2, 1)), [""; 0]);
    let effects = brief(&link(&mut s, 2, &[1], &[]));
    assert!(effects.contains(&"-> 2 place 2.1".into()), "{effects:?}");
}

/// Promise 5: what is in use is not freed because a file says so.
#[test]
fn a_node_that_is_taken_out_keeps_what_runs_there() {
    let mut s = ready(2, 1);
    s.apply(at(0), posted(1, 2));
    report(&mut s, 1, Report::Running(key(1, 1)));
    // Its apinit is to hear of its other nodes.
    assert_eq!(reconfigure(&mut s, without(machine(2, 1), 1)), ["close-link 1"]);
    let node = s.nodes().find(|n| n.node.nid == Nid(1)).expect("still there");
    assert_eq!((node.apids, node.used), (vec![Apid(1)], 1));
    let notes = notes_said(&node.notes);
    assert!(notes[0].contains("no longer in psched.yaml"), "{notes:?}");
    // It calls with the same nodes, and goes on.
    assert_eq!(brief(&link(&mut s, 2, &[0, 1], &[(key(1, 1), Phase::Running)])), [""; 0]);
    s.apply(at(9), posted(2, 1));
    report(&mut s, 2, ended(key(1, 1), &[0, 1], None));
    let placed = s.team(Apid(2)).expect("placed").places.nids().collect::<Vec<_>>();
    assert_eq!(placed, [Nid(0)], "nothing new on what was taken out");
    // Read once more, it is gone.
    let empty = s.nodes().find(|n| n.node.nid == Nid(1)).expect("still there");
    assert!(notes_said(&empty.notes)[0].contains("psmgr reload"), "{:?}", empty.notes);
    reconfigure(&mut s, without(machine(2, 1), 1));
    assert_eq!(s.nodes().count(), 1);
}

/// An apinit that offers a node that is not there any more is refused: that is told before, and of
/// its other nodes and to what waits for them it is the reason.
#[test]
fn an_apinit_refused_for_one_node_is_named_for_the_others() {
    let mut s = ready(2, 1);
    let new = without(machine(2, 1), 1);
    let says = s.apinits_refused_by(&new);
    let text = "the apinit that offers NIDs 0-1 on host h is refused until it is started with --nids 0: \
                psched.yaml does not have NID 1";
    assert_eq!(says, [text]);
    assert_eq!(s.apinits_refused_by(&machine(2, 1)), [""; 0]);
    assert_eq!(reconfigure(&mut s, new), ["close-link 1"]);
    let opened = Event::LinkOpened { link: LinkId(2), hello: hello(&[0, 1]) };
    assert_eq!(brief(&s.apply(at(9), opened)), ["refuse-link 2"]);
    let why = "the apinit of NIDs 0-1 on host h: psched.yaml has no NID 1: change --nids or the \
               configuration";
    let node = s.nodes().next().expect("NID 0");
    assert_eq!(node.state, "suspect");
    assert_eq!(node.why.to_string(), format!("psched refuses the apinit that offers it: {why}"));
    s.apply(at(10), posted(1, 1));
    let explained = s.why(Apid(1)).expect("it waits").words(&sees_all);
    assert_eq!(explained.holder, format!("psched refuses the apinit that offers NID 0 ({why})"));
    // Started as it is to be.
    link(&mut s, 3, &[0], &[]);
    assert_eq!(s.team(Apid(1)).map(|team| team.state), Some(State::Placed));
    assert_eq!(s.nodes().next().map(|node| node.state), Some("pending"));
}

#[test]
fn a_node_with_fewer_processors_than_are_in_use() {
    let mut s = ready(1, 4);
    s.apply(at(0), posted(1, 3));
    reconfigure(&mut s, machine(1, 2));
    let node = s.nodes().next().expect("one");
    assert_eq!((node.node.processors, node.used), (4, 3));
    let notes = notes_said(&node.notes);
    assert!(notes[0].contains("fewer processors than are in use"), "{notes:?}");
    link(&mut s, 2, &[0], &[(key(1, 1), Phase::Running)]);
    s.apply(at(9), posted(2, 1));
    s.apply(at(9), posted(3, 2));
    assert_eq!(s.team(Apid(2)).expect("it waits").state, State::Posted);
    // When they are free it is what it is to be, and its apinit hears of that; what waits gets its
    // place.
    let over = report(&mut s, 2, ended(key(1, 1), &[0], None));
    assert!(over.contains(&"close-link 2".to_owned()), "{over:?}");
    let node = s.nodes().next().expect("one");
    assert_eq!((node.node.processors, notes_said(&node.notes)), (2, vec![]));
    let opened = brief(&link(&mut s, 3, &[0], &[]));
    assert!(opened.contains(&"-> 3 place 2.1".to_owned()), "{opened:?}");
}

/// Its apinit is hung up on when a node changes: so they change together. A node that is not configured is not
/// taken away from an apinit that offers others, and keeps no node of another one.
#[test]
fn nodes_change_with_all_of_their_apinit() {
    let mut s = Scheduler::new(machine(5, 2), alone());
    link(&mut s, 1, &[0, 1], &[]);
    link(&mut s, 2, &[2, 3], &[]);
    link(&mut s, 3, &[4], &[]);
    for apid in 1..=5 {
        s.apply(at(0), posted(apid, 2));
    }
    let nid = |apid: u64| u32::try_from(apid - 1).expect("a few");
    let on = |of: &[u64]| of.iter().map(|a| (key(*a, 1), Phase::Running)).collect::<Vec<_>>();
    reconfigure(&mut s, without(machine(5, 1), 3));
    for (number, of) in [(11, &[1, 2][..]), (12, &[3, 4]), (13, &[5])] {
        link(&mut s, number, &of.iter().map(|a| nid(*a)).collect::<Vec<_>>(), &on(of));
    }
    let ends = |s: &mut Scheduler, link, apid| {
        let effects = report(s, link, ended(key(apid, 1), &[nid(apid)], None));
        let processors: Vec<u32> = s.nodes().map(|n| n.node.processors).collect();
        (effects.iter().any(|effect| effect.starts_with("close-link")), processors)
    };
    assert_eq!(ends(&mut s, 12, 4), (false, vec![2, 2, 2, 2, 2]), "not configured");
    assert_eq!(ends(&mut s, 11, 1), (false, vec![2, 2, 2, 2, 2]), "its neighbour is in use");
    assert_eq!(ends(&mut s, 13, 5), (true, vec![2, 2, 2, 2, 1]));
    assert_eq!(ends(&mut s, 11, 2), (true, vec![1, 1, 2, 2, 1]));
    // (Nodes without cpus have others, as those before them have fewer.)
    link(&mut s, 14, &[2, 3], &on(&[3]));
    assert_eq!(ends(&mut s, 14, 3), (true, vec![1, 1, 1, 2, 1]));
}

/// The same where psched was restarted with the other file.
#[test]
fn a_restart_without_the_node_keeps_what_runs_there() {
    let mut s = ready(2, 1);
    s.apply(at(0), posted(1, 2));
    report(&mut s, 1, Report::Running(key(1, 1)));
    let records: Vec<Apteam> = s.teams().cloned().collect();
    let machine = without(machine(2, 1), 1);
    let boots = BTreeMap::new();
    let (mut s, effects) =
        Scheduler::restore(machine, alone(), records, boots, Orders::default(), 1, at(2));
    assert_eq!(effects, []);
    assert_eq!(
        brief(&link(&mut s, 2, &[0, 1], &[(key(1, 1), Phase::Running)])),
        ["boot boot-1", "-> 2 plan"]
    );
    assert_eq!(
        report(&mut s, 2, ended(key(1, 1), &[0, 1], None)),
        ["save 1.1 ended", "log 1 ended", "now: tell 1 ended 0", "-> 2 acknowledge 1.1"]
    );
}
