//! Nodes that are drained, down and resumed; applications that are held and released.

use super::*;
use crate::apteam::Apid;
use crate::apteam::change::Orders;
use crate::apteam::change::{By, Closed};
use crate::apteam::protocol::node::Command;
use crate::apteam::record::State;
use crate::machine::Nid;
use crate::psched::reason::sees_all;
use std::collections::BTreeMap;

const DRAIN: NodesTo = NodesTo::Close(Closed::Drained);
const DOWN: NodesTo = NodesTo::Close(Closed::Down);

fn carol() -> By {
    By { uid: 9, name: "carol".into(), at_ns: 77 }
}

fn order(s: &mut Scheduler, to: NodesTo, nids: &[u32]) -> Vec<Effect> {
    let nids = nids.iter().map(|n| Nid(*n)).collect();
    let (reply, reason) = (ReplyId(7), "bad memory".into());
    s.apply(at(5), Event::Nodes { reply, to, nids, reason, by: carol() })
}

fn hold(s: &mut Scheduler, hold: bool, apids: &[u64]) -> Vec<Effect> {
    let apids = apids.iter().map(|a| Apid(*a)).collect();
    s.apply(at(5), Event::Hold { reply: ReplyId(7), apids, hold, by: carol() })
}

fn state(s: &Scheduler, nid: u32) -> &'static str {
    s.nodes().find(|n| n.node.nid == Nid(nid)).expect("there").state
}

fn runs(s: &mut Scheduler, apid: u64) {
    report(s, 1, Report::Launched(key(apid, 1)));
    report(s, 1, Report::Running(key(apid, 1)));
}

#[test]
fn a_drained_node_takes_nothing_new_and_keeps_what_is_there() {
    let mut s = ready(2, 2);
    s.apply(at(1), posted(1, 1));
    runs(&mut s, 1);
    let drained = order(&mut s, DRAIN, &[0, 1]);
    assert_eq!(
        brief(&drained),
        ["warn", "change NIDs 0-1", "nodes 0-1 drained", "managed 7 1 0"],
        "records come before the answer"
    );
    assert_eq!(answer(&drained).0, ["NIDs 0-1: drained by carol: bad memory; before: open"]);
    assert_eq!((state(&s, 0), state(&s, 1)), ("draining", "drained"));
    let notes: Vec<String> = s.nodes().flat_map(|n| notes_said(&n.notes)).collect();
    assert_eq!(notes, ["drained by carol: bad memory", "drained by carol: bad memory"]);
    let given = s.nodes().all(|n| n.notes.iter().all(|note| note.at_ns() == Some(carol().at_ns)));
    assert!(given, "the newest notes are shown first");
    s.apply(at(6), posted(2, 1));
    let why = s.why(Apid(2)).expect("it waits").words(&sees_all);
    assert!(why.holder.contains("drained by carol: bad memory"), "{why:?}");
    assert!(why.cure.contains("psmgr resume "), "{why:?}");
    // What runs there ends as ever, and its apinit may go and come.
    report(&mut s, 1, ended(key(1, 1), &[0], None));
    assert_eq!((state(&s, 0), s.team(Apid(2)).map(|t| t.state)), ("drained", Some(State::Posted)));
    s.apply(at(6), Event::LinkClosed { link: LinkId(1) });
    assert_eq!(brief(&link(&mut s, 2, &[0, 1], &[])), [""; 0]);
    let resumed = order(&mut s, NodesTo::Resume, &[1]);
    assert_eq!(
        brief(&resumed)[..5],
        ["warn", "change NID 1", "nodes 1 open", "managed 7 1 0", "save 2.1 placed"]
    );
    assert_eq!((state(&s, 0), state(&s, 1)), ("drained", "pending"));
    let again = order(&mut s, NodesTo::Resume, &[1]);
    assert_eq!(answer(&again).0, ["NID 1: open already"]);
}

#[test]
fn an_order_with_one_wrong_node_changes_none() {
    let mut s = ready(2, 1);
    s.apply(at(1), Event::LinkClosed { link: LinkId(1) });
    link(&mut s, 2, &[0], &[]);
    for (to, nids, problem) in [
        (DRAIN, &[1, 2][..], "NID 2: not in psched.yaml (apstat -n lists the nodes)"),
        (
            DOWN,
            &[0, 1],
            "NID 0: connected, so not down: use psmgr drain 0, and apkill to end its applications",
        ),
        (NodesTo::Resume, &[], "no nodes to resume: name some"),
    ] {
        let refused = order(&mut s, to, nids);
        assert_eq!(brief(&refused), ["managed 7 0 1"]);
        assert_eq!(answer(&refused).1, [problem]);
    }
    assert_eq!((state(&s, 0), state(&s, 1)), ("free", "suspect"));
    order(&mut s, DOWN, &[1]);
    let refused = order(&mut s, DRAIN, &[1]);
    assert_eq!(answer(&refused).1, ["NID 1: already down: psmgr resume 1 first"]);
    assert_eq!(state(&s, 1), "down");
}

/// Promise 5: what it held is released when an administrator says that it is gone.
#[test]
fn what_ran_on_a_node_that_is_down_ends() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    runs(&mut s, 1);
    s.apply(at(2), Event::LinkClosed { link: LinkId(1) });
    s.apply(at(2), posted(2, 2));
    assert_eq!(state(&s, 0), "suspect");
    let down = order(&mut s, DOWN, &[0]);
    assert_eq!(
        brief(&down),
        [
            "warn",
            "change NID 0",
            "nodes 0 down",
            "log 1 lost",
            "save 1.1 ended",
            "log 1 ended",
            "tell 1 ended 125",
            "managed 7 2 0"
        ]
    );
    let lost = down.iter().find_map(|e| match e {
        Effect::Log { name: "lost", detail, .. } => Some(detail.as_str()),
        _ => None,
    });
    let text = "NID 0 lost the application: it was declared down by carol: bad memory";
    assert_eq!(lost, Some(text));
    assert_eq!(answer(&down).0[1], "application 1 of alice lost nodes that are down");
    assert_eq!((state(&s, 0), s.nodes().next().expect("one").used), ("down", 0));
    // It was alive: what it has is not on record any more; and it stays down until it is resumed.
    let effects = brief(&link(&mut s, 2, &[0], &[(key(1, 1), Phase::Running)]));
    assert_eq!(effects, ["warn", "-> 2 discard 1.1"]);
    assert_eq!((state(&s, 0), s.team(Apid(2)).map(|t| t.state)), ("down", Some(State::Posted)));
    let resumed = brief(&order(&mut s, NodesTo::Resume, &[0]));
    assert!(resumed.contains(&"save 2.1 placed".to_owned()), "{resumed:?}");
}

#[test]
fn what_ran_there_and_elsewhere_is_ended_elsewhere() {
    let mut s = Scheduler::new(machine(2, 1), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    s.apply(at(1), posted(1, 2));
    runs(&mut s, 1);
    s.apply(at(2), Event::LinkClosed { link: LinkId(2) });
    let down = brief(&order(&mut s, DOWN, &[1]));
    assert!(down.contains(&"-> 1 terminate 1.1 5".to_owned()), "{down:?}");
    let records = s.teams().cloned().collect::<Vec<_>>();
    let orders = Orders { closed: s.closed.clone(), ..Orders::default() };
    let over = report(&mut s, 1, ended(key(1, 1), &[0], None));
    assert!(over.contains(&"save 1.1 ended".to_owned()), "{over:?}");
    // A psched that is killed before that goes on from there, and it is down as before.
    let (mut s, effects) =
        Scheduler::restore(machine(2, 1), alone(), records, BTreeMap::new(), orders, 2, at(6));
    assert_eq!((effects, state(&s, 1)), (vec![], "down"));
    link(&mut s, 3, &[0], &[(key(1, 1), Phase::Running)]);
    let over = report(&mut s, 3, ended(key(1, 1), &[0], None));
    assert!(over.contains(&"save 1.1 ended".to_owned()), "{over:?}");
    link(&mut s, 4, &[1], &[]);
    assert_eq!((state(&s, 0), state(&s, 1)), ("free", "down"));
}

#[test]
fn what_was_only_placed_there_waits_for_another_place() {
    let mut s = Scheduler::new(machine(2, 1), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    s.apply(at(1), posted(1, 2));
    s.apply(at(2), Event::LinkClosed { link: LinkId(2) });
    let down = brief(&order(&mut s, DOWN, &[1]));
    assert!(down.contains(&"-> 1 take-back 1.1".to_owned()), "{down:?}");
    assert!(!down.contains(&"log 1 lost".to_owned()), "{down:?}");
    // Also for a psched that knows of it from its records only.
    let records = s.teams().cloned().collect();
    let boots = BTreeMap::new();
    let orders = Orders { closed: s.closed.clone(), ..Orders::default() };
    let (mut again, effects) =
        Scheduler::restore(machine(2, 1), alone(), records, boots, orders, 2, at(6));
    assert_eq!(effects, []);
    let asked = brief(&link(&mut again, 1, &[0], &[(key(1, 1), Phase::Placed)]));
    assert!(asked.contains(&"-> 1 take-back 1.1".to_owned()), "{asked:?}");
    for s in [&mut s, &mut again] {
        let back = report(s, 1, taken_back(key(1, 1)));
        assert_eq!(back[..2], ["save 1.1 lapsed", "log 1 lapsed"]);
        assert_eq!(s.nodes().map(|n| n.used).sum::<u32>(), 0);
    }
    // Its head was launched in the same moment.
    let mut s = Scheduler::new(machine(2, 1), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    s.apply(at(1), posted(1, 2));
    s.apply(at(2), Event::LinkClosed { link: LinkId(2) });
    order(&mut s, DOWN, &[1]);
    let launched = report(&mut s, 1, Report::Launched(key(1, 1)));
    assert!(launched.contains(&"log 1 lost".to_owned()), "{launched:?}");
    assert!(launched.contains(&"-> 1 terminate 1.1 5".to_owned()), "{launched:?}");
}

#[test]
fn a_held_posting_keeps_its_place_in_line() {
    let mut s = Scheduler::new(machine(1, 1), kept_after_a_minute(alone()));
    s.apply(at(1), posted(1, 1));
    let held = hold(&mut s, true, &[1]);
    assert_eq!(
        brief(&held),
        ["save 1.0 posted", "log 1 held", "change application 1 of alice", "managed 7 1 0"]
    );
    let why = s.why(Apid(1)).expect("it waits");
    assert_eq!(
        why.to_string(),
        "application 1 is held; administrator carol holds it; an administrator lets it go on \
         with psmgr release 1"
    );
    link(&mut s, 1, &[0], &[]);
    assert_eq!(s.team(Apid(1)).map(|t| t.state), Some(State::Posted));
    // Others pass it, and nothing is kept for it, however long it has waited.
    for number in 2..=3 {
        s.apply(at(70), posted(number, 1));
        let key = key(number.into(), 1);
        assert_eq!(s.team(key.apid).map(|t| t.state), Some(State::Placed));
        report(&mut s, 1, Report::Running(key));
        report(&mut s, 1, ended(key, &[0], None));
    }
    assert_eq!(answer(&hold(&mut s, true, &[1])).0, ["application 1 of alice: held already"]);
    let refused = hold(&mut s, false, &[1, 9]);
    assert_eq!(brief(&refused), ["managed 7 0 1"]);
    assert!(s.is_held(Apid(1)), "nothing was changed");
    let released = hold(&mut s, false, &[1]);
    assert_eq!(answer(&released).0, ["application 1 of alice: released"]);
    let released = brief(&released);
    assert_eq!(released[..2], ["save 1.0 posted", "log 1 released"]);
    assert!(released.contains(&"save 1.1 placed".to_owned()), "{released:?}");
    let again = hold(&mut s, false, &[1]);
    assert_eq!(answer(&again).0, ["application 1 of alice: was not held"]);
}

#[test]
fn a_node_is_not_kept_for_one_that_is_held() {
    let mut s = Scheduler::new(machine(2, 1), kept_after_a_minute(alone()));
    link(&mut s, 1, &[0, 1], &[]);
    s.apply(at(1), posted(1, 1));
    s.apply(at(1), posted(2, 2));
    s.apply(at(1), posted(3, 1));
    report(&mut s, 1, Report::Running(key(3, 1)));
    report(&mut s, 1, ended(key(3, 1), &[1], None));
    s.apply(at(70), posted(4, 1));
    assert_eq!(s.team(Apid(4)).map(|t| t.state), Some(State::Posted), "kept for 2");
    hold(&mut s, true, &[2]);
    assert_eq!(s.team(Apid(4)).map(|t| t.state), Some(State::Placed));
}

#[test]
fn a_held_application_keeps_its_place_and_does_not_run() {
    let mut s = ready(1, 1);
    s.apply(at(1), posted(1, 1));
    runs(&mut s, 1);
    let slices = |effects: &[Effect]| {
        effects.iter().find_map(|e| match e {
            Effect::Command { command: Command::Plan(plan), .. } => {
                Some((plan.members.clone(), plan.slices.len()))
            }
            _ => None,
        })
    };
    let held = hold(&mut s, true, &[1]);
    assert_eq!(slices(&held), Some((vec![key(1, 1)], 0)), "{held:?}");
    assert_eq!((state(&s, 0), s.nodes().next().expect("one").used), ("busy", 1));
    assert!(s.why(Apid(1)).expect("why").to_string().contains("carol holds it"));
    let released = hold(&mut s, false, &[1]);
    assert_eq!(slices(&released), Some((vec![key(1, 1)], 1)), "{released:?}");
    // One that is held before its PEs go does not go on when they are there.
    let mut s = ready(1, 1);
    s.apply(at(1), posted(1, 1));
    hold(&mut s, true, &[1]);
    report(&mut s, 1, Report::Launched(key(1, 1)));
    let running = report(&mut s, 1, Report::Running(key(1, 1)));
    assert!(running.contains(&"-> 1 plan".to_owned()), "{running:?}");
}

/// A node may be taken out of psched.yaml and put back: what was ordered of it stays, and is said where the file
/// is read.
#[test]
fn a_node_that_comes_back_is_as_it_was_ordered() {
    let mut s = ready(3, 1);
    order(&mut s, DRAIN, &[1, 2]);
    let mut less = machine(3, 1);
    less.nodes.retain(|nid, _| nid.0 == 0);
    assert_eq!(s.nodes_that_stay_closed(&less), [""; 0]);
    s.apply(at(6), Event::Machine(Box::new(less)));
    let line = "NIDs 1-2 still drained by carol: bad memory (psmgr resume 1-2 opens them)";
    assert_eq!(s.nodes_that_stay_closed(&machine(3, 1)), [line]);
    s.apply(at(7), Event::Machine(Box::new(machine(3, 1))));
    assert_eq!((state(&s, 1), state(&s, 2)), ("drained", "drained"));
    // They are there: nothing new.
    assert_eq!(s.nodes_that_stay_closed(&machine(3, 1)), [""; 0]);
}
