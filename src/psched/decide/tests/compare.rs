//! What another configuration would change, by examples; and nothing changes by asking.

use super::*;
use crate::apteam::record::State;
use crate::machine::Machine;
use crate::machine::Nid;

/// Two nodes of two processors: 1 runs on both, 2 on the second, 3 and 4 wait for room.
fn busy() -> Scheduler {
    let mut s = ready(2, 2);
    for (apid, width) in [(1, 3), (2, 1), (3, 4), (4, 1)] {
        s.apply(at(0), posted(apid, width));
    }
    report(&mut s, 1, Report::Running(key(1, 1)));
    s
}

fn compared(s: &Scheduler, machine: Machine) -> Vec<String> {
    let before = format!("{s:?}");
    let lines = s.compared(at(9), machine, alone());
    assert_eq!(format!("{s:?}"), before, "it was only asked");
    lines
}

#[test]
fn the_same_concerns_nobody() {
    assert_eq!(compared(&busy(), machine(2, 2)), [""; 0]);
}

#[test]
fn who_keeps_a_node_and_who_could_never_be_placed() {
    let mut less = machine(2, 2);
    less.nodes.remove(&Nid(1));
    assert_eq!(
        compared(&busy(), less),
        [
            "application 1 of alice keeps NID 1, which takes no new applications",
            "application 2 of alice keeps NID 1, which takes no new applications",
            "application 3 of alice could no longer be placed: 4 PEs of depth 1 need 4 \
             processors; this machine can hold at most 2 PEs of this shape (NID 0); ask for -n 2 \
             or less",
        ]
    );
}

/// Where three may share a processor all have a place.
#[test]
fn who_gets_a_place() {
    let mut one = machine(1, 1);
    one.nodes.values_mut().for_each(|node| node.memory = 0);
    let mut s = Scheduler::new(one.clone(), with_floors(sharing(2)));
    link(&mut s, 1, &[0], &[]);
    for apid in 1..=2 {
        s.apply(at(0), posted_at_once(apid, 1));
    }
    for apid in 3..=4 {
        s.apply(at(0), posted(apid, 1));
    }
    let lines = s.compared(at(9), one, with_floors(sharing(3)));
    assert_eq!(lines, ["application 3 of alice gets NID 0"]);
    assert_eq!(s.teams().filter(|team| team.state == State::Posted).count(), 2);
}
