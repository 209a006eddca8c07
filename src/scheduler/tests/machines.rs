//! The configuration is read again, by examples.

use super::*;

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
    let notes = |s: &Scheduler| s.nodes().flat_map(|n| n.notes).collect::<Vec<_>>();
    assert_eq!(notes(&s), [""; 0]);
    for told in [vec!["no cgroups".to_owned()], vec![]] {
        let notes_now =
            Event::Noted { link: LinkId(1), notes: told.clone(), roll_out: Default::default() };
        assert_eq!(brief(&s.apply(at(1), notes_now)), [""; 0]);
        // Of each of its nodes.
        assert_eq!(notes(&s), [told.clone(), told].concat());
    }
    let stranger =
        Event::Noted { link: LinkId(7), notes: vec!["x".to_owned()], roll_out: Default::default() };
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
    assert!(node.notes[0].contains("not in psched.yaml any more"), "{:?}", node.notes);
    // It calls with the same nodes, and goes on.
    assert_eq!(brief(&link(&mut s, 2, &[0, 1], &[(key(1, 1), Phase::Running)])), [""; 0]);
    s.apply(at(9), posted(2, 1));
    report(&mut s, 2, ended(key(1, 1), &[0, 1], None));
    let placed = s.team(Apid(2)).expect("placed").places.nids().collect::<Vec<_>>();
    assert_eq!(placed, [Nid(0)], "nothing new on what was taken out");
    // Read once more, it is gone.
    reconfigure(&mut s, without(machine(2, 1), 1));
    assert_eq!(s.nodes().count(), 1);
}

#[test]
fn a_node_with_fewer_processors_than_are_in_use() {
    let mut s = ready(1, 4);
    s.apply(at(0), posted(1, 3));
    reconfigure(&mut s, machine(1, 2));
    let node = s.nodes().next().expect("one");
    assert_eq!((node.node.processors, node.used), (4, 3));
    link(&mut s, 2, &[0], &[(key(1, 1), Phase::Placed)]);
    s.apply(at(9), posted(2, 1));
    assert_eq!(s.team(Apid(2)).expect("it waits").state, State::Posted);
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
