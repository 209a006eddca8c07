//! Nodes that obey another psched, by examples.

use super::*;
use crate::apteam::Apid;
use crate::apteam::Key;
use crate::apteam::bounds::Bounds;
use crate::apteam::change::Orders;
use crate::apteam::part::{Part, RankMap};
use crate::apteam::place::{HostPart, Place, PlacementList};
use crate::apteam::posting::Account;
use crate::apteam::protocol::node::{ForeignApplication, PlaceCommand, Restart};
use crate::apteam::record::{Apteam, State};
use crate::machine::Nid;
use crate::psched::decide::foreign::{APID_MAX, LEAP_MAX, next_of};
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// An application of another store: one PE on processor 0 of each of these nodes.
fn stranger(apid: u64, nids: &[u32], phase: Phase) -> ForeignApplication {
    let place = |nid: &u32| Place { nid: Nid(*nid), processors: vec![0], pes: 1 };
    let nid_list: Vec<Nid> = nids.iter().map(|n| Nid(*n)).collect();
    let places = PlacementList(nids.iter().map(place).collect());
    let hosts = [HostPart { nids: nid_list, ..HostPart::default() }];
    let place = PlaceCommand {
        part: Part { map: RankMap::of(&places, &hosts), ..Part::default() },
        key: key(apid, 1),
        owner: Owner { uid: 1001, gid: 1001, groups: vec![], name: "bob".into(), terminal: false },
        shape: Shape { width: nids.len() as u32, depth: 1, per_node: None },
        places,
        hosts: hosts.into(),
        ticket: Ticket([9; 16]),
        ticket_left: Duration::from_secs(30),
        cpu_limit: None,
        time_limit: None,
        kill_grace: Duration::from_secs(5),
        memory_per_pe: None,
        pids_max: None,
        front_kill_grace: Duration::from_secs(2),
        bounds: Bounds::default(),
        isolation: Default::default(),
        user_bus: false,
        fan_out: 0,
        request_id: [99; 16],
        command: "b.out".into(),
        shares: false,
        exclusive: false,
        account: None,
        yields: Default::default(),
        moved: Default::default(),
        restart: None,
    };
    ForeignApplication { place, phase, run: Duration::from_secs(1) }
}

/// An apinit calls that obeys another psched.
fn call(s: &mut Scheduler, number: u64, nids: &[u32], has: Vec<ForeignApplication>) -> Vec<String> {
    let link = LinkId(number);
    s.apply(at(0), Event::LinkOpened { link, hello: hello(nids) });
    let foreign = Foreign {
        store_id: "ab".into(),
        epoch: 3,
        why: "apinit obeys the psched of store ab, not this one of store cd".into(),
        applications: has,
    };
    brief(&s.apply(at(0), Event::Foreign { link, foreign: Box::new(foreign) }))
}

/// What a foreign node holds it tells once: each time costs as much as it has applications.
#[test]
fn a_node_that_says_twice_that_it_is_foreign_is_hung_up_on() {
    let words = ["warn", "close-link 1"];
    let foreign = || {
        let (store_id, why) = ("ab".into(), "it obeys another".into());
        let foreign = Foreign { store_id, epoch: 3, why, applications: Vec::new() };
        Event::Foreign { link: LinkId(1), foreign: Box::new(foreign) }
    };
    let mut s = Scheduler::new(machine(2, 1), alone());
    call(&mut s, 1, &[0], vec![stranger(7, &[0], Phase::Running)]);
    assert_eq!(brief(&s.apply(at(1), foreign())), words);
    // Nor does one say so that has said that it obeys.
    s.apply(at(2), Event::LinkOpened { link: LinkId(1), hello: hello(&[0]) });
    inventory(&mut s, 1, &[]);
    assert_eq!(brief(&s.apply(at(7), foreign())), words);
}

fn order(s: &mut Scheduler, what: Manage, nids: &[u32]) -> Vec<Effect> {
    let (reply, by, administrator) = (ReplyId(7), By::default(), true);
    let nids = nids.iter().map(|n| Nid(*n)).collect();
    let used = BTreeSet::new();
    s.apply(at(5), Event::Manage { reply, what, nids, by, administrator, used })
}

#[track_caller]
fn refused(effects: &[Effect], words: &[&str]) {
    let [Effect::Managed { done, problems, .. }] = effects else { panic!("{effects:?}") };
    assert!(done.is_empty(), "{done:?}");
    assert_eq!(problems.len(), words.len(), "{problems:?}");
    for (problem, words) in problems.iter().zip(words) {
        assert!(problem.contains(words), "{problem}");
    }
}

#[track_caller]
fn answered(effects: &[Effect], words: &str) {
    let found = effects.iter().find_map(|e| match e {
        Effect::Managed { done, problems, .. } => Some((done.join("; "), problems)),
        _ => None,
    });
    let Some((done, problems)) = found else { panic!("no answer in {effects:?}") };
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(done, words);
}

fn inventory(s: &mut Scheduler, link: u64, items: &[(Key, Phase)]) -> Vec<Effect> {
    s.apply(at(6), Event::Inventory { link: LinkId(link), items: items.to_vec() })
}

/// Each apinit has told its own part: together they are the application.
#[test]
fn parts_are_put_together() {
    let whole = stranger(12, &[0, 1], Phase::Running);
    let host = |nid| HostPart { nids: vec![Nid(nid)], ..HostPart::default() };
    let hosts = [host(0), host(1)];
    let map = RankMap::of(&whole.place.places, &hosts);
    let part = Part { map, ..Part::default() };
    let place = PlaceCommand { hosts: hosts.into(), part, ..whole.place.clone() };
    let part = |index| ForeignApplication {
        place: place.part_of(index).expect("it has two"),
        phase: Phase::Running,
        run: whole.run,
    };
    let mut s = Scheduler::new(machine(2, 2), alone());
    assert_eq!(call(&mut s, 1, &[0], vec![part(0)]), ["warn"]);
    refused(&order(&mut s, Manage::Adopt, &[0]), &["its part on NID 1 is missing"]);
    // (The other node obeys already and does not have it: there is nothing left to adopt with it.)
    let mut lost = s.clone();
    link(&mut lost, 2, &[1], &[]);
    let cure = "its part on NID 1 is lost: psmgr purge 0 ends what is left of it";
    refused(&order(&mut lost, Manage::Adopt, &[0]), &[cure]);
    assert_eq!(call(&mut s, 2, &[1], vec![part(1)]), ["warn"]);
    order(&mut s, Manage::Adopt, &[0, 1]);
    let team = s.team(Apid(12)).expect("it is on record");
    assert_eq!(team.places, whole.place.places);
    let nids: Vec<&[Nid]> = team.hosts.iter().map(|host| &host.nids[..]).collect();
    assert_eq!(nids, [[Nid(0)], [Nid(1)]]);
    // One that says that it is elsewhere is another.
    let mut s = Scheduler::new(machine(2, 2), alone());
    call(&mut s, 1, &[0], vec![part(0)]);
    call(&mut s, 2, &[1], vec![stranger(12, &[1], Phase::Running)]);
    let Effect::Managed { problems, .. } = &order(&mut s, Manage::Adopt, &[0, 1])[0] else {
        panic!("it is adopted");
    };
    assert!(problems[0].contains("runs twice"), "{problems:?}");
}

/// Of an application whose record can't be read its nodes know enough. Those of another store are no such nodes.
#[test]
fn an_application_whose_record_is_unreadable_is_taken_from_its_nodes() {
    let mut s = Scheduler::new(machine(3, 2), alone());
    s.can_not_read("ab", &[Apid(11), Apid(12)]);
    let both = || vec![stranger(12, &[0, 1], Phase::Running)];
    assert_eq!(call(&mut s, 1, &[0], both()), ["warn", "warn"], "its other node is missing");
    assert_eq!(
        call(&mut s, 2, &[1], both()),
        [
            "warn",
            "save-adopted 12.1 running",
            "log 12 adopted",
            "warn",
            "change NID 0",
            "-> 1 adopt",
            "change NID 1",
            "-> 2 adopt",
        ]
    );
    assert_eq!(s.unreadable().collect::<Vec<_>>(), [Apid(11)]);
    assert_eq!(call(&mut s, 3, &[2], vec![stranger(7, &[2], Phase::Running)]), ["warn"]);
    for link in [1, 2] {
        inventory(&mut s, link, &[(key(12, 1), Phase::Running)]);
    }
    assert_eq!(s.team(Apid(12)).map(|team| team.state), Some(State::Running));
    // It has a record now, and so it has when it has ended.
    report(&mut s, 1, ended(key(12, 1), &[0], None));
    report(&mut s, 2, ended(key(12, 1), &[1], None));
    assert!(s.team(Apid(12)).is_none());
    assert_eq!(s.unreadable().collect::<Vec<_>>(), [Apid(11)]);
    let mut s = Scheduler::new(machine(3, 2), alone());
    s.can_not_read("cd", &[Apid(12)]);
    assert_eq!(call(&mut s, 1, &[0, 1], both()), ["warn"]);
}

#[test]
fn nothing_is_placed_on_a_foreign_node_and_nothing_commanded() {
    let mut s = Scheduler::new(machine(1, 2), alone());
    let effects = call(&mut s, 1, &[0], vec![stranger(12, &[0], Phase::Running)]);
    assert_eq!(effects, ["warn"]);
    let node = s.nodes().next().expect("one");
    assert_eq!(node.state, "foreign");
    assert_eq!(
        notes_said(&node.notes),
        ["foreign: apinit obeys the psched of store ab, not this one of store cd; it runs \
             application 12 of bob: psmgr adopt 0 takes it over with them, psmgr purge 0 ends them"]
    );
    // Its number is given to no other.
    assert_eq!(
        brief(&s.apply(at(1), posted(1, 1))),
        ["save 13.0 posted", "log 13 posted", "accept 1 13"]
    );
    let why = s.why(Apid(13)).expect("it waits").to_string();
    assert!(why.contains("NID 0 is foreign: its apinit obeys another psched"), "{why}");
    assert!(why.contains("psmgr adopt 0, or psmgr purge 0"), "{why}");
    // What it says of its own has no effect.
    assert_eq!(report(&mut s, 1, ended(key(12, 1), &[0], None)), ["warn", "-> 1 acknowledge 12.1"]);
    assert_eq!(report(&mut s, 1, Report::Running(key(13, 1))), [""; 0]);
}

/// One apinit obeys as a whole, so the cure names its other nodes too.
#[test]
fn the_cure_names_all_nodes_of_a_foreign_apinit() {
    let mut s = Scheduler::new(machine(3, 2), alone());
    call(&mut s, 1, &[0, 1], vec![]);
    call(&mut s, 2, &[2], vec![]);
    s.apply(at(1), posted(1, 1));
    let why = s.why(Apid(1)).expect("it waits").to_string();
    assert!(why.contains("NID 0 is foreign: its apinit obeys another psched"), "{why}");
    assert!(why.contains("psmgr adopt 0-1, or psmgr purge 0-1"), "{why}");
}

#[test]
fn adopted_with_what_runs_there() {
    let mut s = Scheduler::new(machine(2, 1), alone());
    call(&mut s, 1, &[0, 1], vec![stranger(12, &[0, 1], Phase::Running)]);
    let effects = order(&mut s, Manage::Adopt, &[0, 1]);
    assert_eq!(
        brief(&effects),
        ["save-adopted 12.1 running", "log 12 adopted", "warn", "change NIDs 0-1", "-> 1 adopt"]
    );
    let team = s.team(Apid(12)).expect("on record");
    assert_eq!((team.owner.uid, team.posting.command.as_str()), (1001, "b.out"));
    assert_eq!(team.running_at_ns, at(5).wall_ns - SECOND);
    // Killed and started again before the node has heard of it: the same once more.
    let records = s.teams().cloned().collect();
    let (mut s, _) = Scheduler::restore(
        machine(2, 1),
        alone(),
        records,
        BTreeMap::new(),
        Orders::default(),
        1,
        at(6),
    );
    call(&mut s, 1, &[0, 1], vec![stranger(12, &[0, 1], Phase::Running)]);
    assert_eq!(
        brief(&order(&mut s, Manage::Adopt, &[0, 1])),
        ["warn", "change NIDs 0-1", "-> 1 adopt"]
    );
    let effects = inventory(&mut s, 1, &[(key(12, 1), Phase::Running)]);
    assert_eq!(brief(&effects), ["boot boot-1", "managed 7 1 0", "-> 1 plan"]);
    answered(
        &effects,
        "NIDs 0-1: its apinit obeys this psched now; application 12 of bob on \
                        record here",
    );
    answered(
        &order(&mut s, Manage::Adopt, &[0, 1]),
        "NIDs 0-1: its apinit obeys this psched \
                                                      already",
    );
    assert_eq!(
        report(&mut s, 1, ended(key(12, 1), &[0, 1], None)),
        ["save 12.1 ended", "log 12 ended", "now: tell 12 ended 0", "-> 1 acknowledge 12.1"]
    );
}

/// psched does not know its aprun, which may be alive: the head is told of no death, neither by the
/// psched that has adopted the application nor after a restart of this psched.
#[test]
fn the_unknown_aprun_of_an_adopted_application_is_not_told_to_be_dead() {
    let mut s = Scheduler::new(machine(2, 1), alone());
    call(&mut s, 1, &[0, 1], vec![stranger(12, &[0, 1], Phase::Running)]);
    order(&mut s, Manage::Adopt, &[0, 1]);
    let mut again = started_again(&s, machine(2, 1));
    for s in [&mut s, &mut again] {
        link(s, 2, &[0, 1], &[(key(12, 1), Phase::Running)]);
        let (reply, apids) = (ReplyId(8), vec![Apid(12)]);
        s.apply(at(7), Event::Kill { reply, apids, signal: 0, uid: 0, administrator: true });
        let back = brief(&link(s, 3, &[0, 1], &[(key(12, 1), Phase::Running)]));
        let ends: Vec<_> = back.iter().filter(|said| said.contains("terminate")).collect();
        assert_eq!(ends, ["-> 3 terminate 12.1 300"]);
    }
}

/// Two that have changed places since the records were copied, and one that is here already.
#[test]
fn an_old_copy_follows_those_that_were_moved_since() {
    let found = |apid, nid, number| {
        let mut found = stranger(apid, &[nid], Phase::Running);
        found.place.moved.number = number;
        found
    };
    let adopted = |has: Vec<ForeignApplication>| {
        let mut s = Scheduler::new(machine(3, 1), alone());
        call(&mut s, 1, &[0, 1, 2], vec![found(12, 0, 0), found(13, 1, 0)]);
        order(&mut s, Manage::Adopt, &[0, 1, 2]);
        s.apply(at(6), Event::LinkClosed { link: LinkId(1) });
        call(&mut s, 2, &[0, 1, 2], has);
        let effects = order(&mut s, Manage::Adopt, &[0, 1, 2]);
        (s, brief(&effects))
    };
    let (s, done) = adopted(vec![found(12, 1, 2), found(13, 0, 1)]);
    assert!(done.contains(&"save 12.1 running".to_owned()), "{done:?}");
    for (apid, nid, told) in [(12, 1, 2), (13, 0, 1)] {
        let team = s.team(Apid(apid)).expect("on record");
        assert_eq!(team.places.nids().collect::<Vec<_>>(), [Nid(nid)]);
        assert_eq!((team.moves.told, s.occupancy.holders(Nid(nid))), (told, vec![Apid(apid)]));
    }
    assert_eq!(s.occupancy.holders(Nid(2)), []);
    // Who moved to where another still is could not be: that is said, and nothing is changed.
    let (s, done) = adopted(vec![found(12, 1, 1), found(13, 1, 0)]);
    assert_eq!(done, ["managed 7 0 1"]);
    assert_eq!(s.occupancy.holders(Nid(0)), [Apid(12)]);
}

#[test]
fn one_that_had_its_nodes_to_itself_keeps_them() {
    let mut s = Scheduler::new(machine(1, 2), plain());
    let mut own = stranger(12, &[0], Phase::Running);
    own.place.exclusive = true;
    own.place.account = Account::parse("climate").ok();
    call(&mut s, 1, &[0], vec![own]);
    order(&mut s, Manage::Adopt, &[0]);
    inventory(&mut s, 1, &[(key(12, 1), Phase::Running)]);
    let posting = &s.team(Apid(12)).expect("on record").posting;
    assert!(posting.exclusive);
    assert_eq!(posting.account.as_ref().map(Account::as_str), Some("climate"));
    // Its only PE leaves a processor free, and nobody is to have that.
    s.apply(at(7), posted(1, 1));
    let why = s.why(Apid(13)).expect("it waits").to_string();
    assert!(why.contains("application 12"), "{why}");
    report(&mut s, 1, ended(key(12, 1), &[0], None));
    assert_eq!(s.team(Apid(13)).expect("on record").state, State::Placed);
}

#[test]
fn placed_and_not_launched_it_is_taken_back_and_gone() {
    let mut s = Scheduler::new(machine(1, 1), alone());
    call(&mut s, 1, &[0], vec![stranger(12, &[0], Phase::Placed)]);
    assert_eq!(
        brief(&order(&mut s, Manage::Adopt, &[0])),
        ["save-adopted 12.1 taking-back", "log 12 adopted", "warn", "change NID 0", "-> 1 adopt"]
    );
    assert_eq!(
        brief(&inventory(&mut s, 1, &[(key(12, 1), Phase::Placed)])),
        ["-> 1 take-back 12.1", "boot boot-1", "managed 7 1 0"]
    );
    // Nobody here knows its aprun, so nobody would ever ask for another place.
    assert_eq!(
        report(&mut s, 1, taken_back(key(12, 1))),
        ["save 12.1 ended", "log 12 ended", "tell 12 ended 125"]
    );
}

#[test]
fn launched_before_its_place_is_taken_back_it_goes_on() {
    let mut s = Scheduler::new(machine(1, 1), alone());
    call(&mut s, 1, &[0], vec![stranger(12, &[0], Phase::Placed)]);
    order(&mut s, Manage::Adopt, &[0]);
    let effects = brief(&inventory(&mut s, 1, &[(key(12, 1), Phase::Launched)]));
    assert_eq!(effects[..2], ["save 12.1 launching lazy", "log 12 launched"]);
    assert_eq!(
        report(&mut s, 1, Report::Running(key(12, 1))),
        ["save 12.1 running lazy", "log 12 running", "tell 12 running"]
    );
}

#[test]
fn an_adoption_is_whole_or_not_at_all() {
    let mut s = Scheduler::new(machine(3, 1), alone());
    call(&mut s, 1, &[0], vec![stranger(12, &[0, 1], Phase::Running)]);
    call(&mut s, 2, &[1], vec![stranger(12, &[0, 1], Phase::Running)]);
    refused(
        &order(&mut s, Manage::Adopt, &[0]),
        &["application 12 of bob on NID 0: its part on NID 1 is missing: psmgr adopt 0-1 adopts"],
    );
    refused(
        &order(&mut s, Manage::Adopt, &[0, 1, 2, 9]),
        &["NID 9: not in psched.yaml", "NID 2: no apinit offers it"],
    );
    call(&mut s, 3, &[1, 2], vec![]);
    refused(&order(&mut s, Manage::Adopt, &[0, 1]), &["NIDs 1-2 belong to one apinit"]);
    assert_eq!(s.teams().count(), 0);
}

#[test]
fn numbers_that_collide() {
    let mut s = Scheduler::new(machine(2, 1), alone());
    s.apply(at(0), posted(1, 1));
    call(&mut s, 1, &[0], vec![stranger(1, &[0], Phase::Running)]);
    refused(
        &order(&mut s, Manage::Adopt, &[0]),
        &[
            "application 1 of bob on NID 0: this psched has another application 1, of alice: psmgr purge",
        ],
    );
    let mut other = stranger(7, &[1], Phase::Running);
    other.place.request_id = [1; 16];
    call(&mut s, 1, &[0], vec![stranger(7, &[0], Phase::Running)]);
    call(&mut s, 2, &[1], vec![other]);
    refused(&order(&mut s, Manage::Adopt, &[0, 1]), &["there are two applications 7, 7 of bob on"]);
    // One that has ended here.
    let (nids, used) = ([Nid(0)].into(), [Apid(7)].into());
    let (reply, what, by, administrator) = (ReplyId(7), Manage::Adopt, By::default(), true);
    refused(
        &s.apply(at(5), Event::Manage { reply, what, nids, by, administrator, used }),
        &["this psched's history has another application 7"],
    );
}

#[test]
fn an_old_copy_gives_way_to_what_runs() {
    // The copy has 1.1 on the node, which has long ended there, and 2 runs instead.
    let mut s = ready(1, 1);
    s.apply(at(0), posted(1, 1));
    report(&mut s, 1, Report::Running(key(1, 1)));
    call(&mut s, 2, &[0], vec![stranger(2, &[0], Phase::Running)]);
    assert_eq!(
        brief(&order(&mut s, Manage::Adopt, &[0])),
        [
            "log 1 lost",
            "save 1.1 ended",
            "log 1 ended",
            "tell 1 ended 125",
            "save-adopted 2.1 running",
            "log 2 adopted",
            "warn",
            "change NID 0",
            "-> 2 adopt"
        ]
    );
    // Placed only, its aprun is there still: it waits for its turn.
    let mut s = ready(1, 1);
    s.apply(at(0), posted(1, 1));
    call(&mut s, 2, &[0], vec![stranger(2, &[0], Phase::Running)]);
    assert_eq!(
        brief(&order(&mut s, Manage::Adopt, &[0])),
        [
            "save 1.1 taking-back",
            "save 1.1 lapsed",
            "log 1 lapsed",
            "tell 1 placed",
            "save-adopted 2.1 running",
            "log 2 adopted",
            "warn",
            "change NID 0",
            "-> 2 adopt"
        ]
    );
    // A processor that the configuration does not give the node any more.
    let mut s = Scheduler::new(machine(1, 1), alone());
    let mut wide = stranger(2, &[0], Phase::Running);
    let place = Place { processors: vec![3], ..wide.place.places.0[0].clone() };
    wide.place.places = PlacementList([place].into());
    call(&mut s, 2, &[0], vec![wide]);
    refused(&order(&mut s, Manage::Adopt, &[0]), &["it has processor 3 of NID 0, and psched.yaml"]);
}

/// Old records place an application on two nodes, and one of them, which is adopted, has never heard
/// of it.
#[test]
fn what_an_adopted_node_has_not_is_asked_back_from_the_others() {
    let mut s = spread();
    call(&mut s, 3, &[0], vec![]);
    let effects = brief(&order(&mut s, Manage::Adopt, &[0]));
    let asked =
        ["-> 2 take-back 1.1", "save 1.1 taking-back", "warn", "change NID 0", "-> 3 adopt"];
    assert_eq!(effects, asked);
    assert_eq!(
        report(&mut s, 2, taken_back(key(1, 1))),
        ["save 1.1 lapsed", "log 1 lapsed", "tell 1 placed"]
    );
}

#[test]
fn an_old_copy_takes_back_what_another_node_may_launch_still() {
    // The copy has 1.1 placed on both nodes. Node 1 obeys the copy, and is sent it again; node 0 has
    // obeyed a later start, and has nothing.
    let mut s = Scheduler::new(machine(2, 1), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    s.apply(at(0), posted(1, 2));
    call(&mut s, 3, &[0], vec![]);
    assert_eq!(
        brief(&order(&mut s, Manage::Adopt, &[0])),
        ["-> 2 take-back 1.1", "save 1.1 taking-back", "warn", "change NID 0", "-> 3 adopt"]
    );
    assert_eq!(brief(&inventory(&mut s, 3, &[])), ["-> 3 take-back 1.1", "managed 7 1 0"]);
    assert_eq!(
        report(&mut s, 2, taken_back(key(1, 1))),
        ["save 1.1 lapsed", "log 1 lapsed", "tell 1 placed"]
    );
    let looked = s.apply(at(7), Event::Looked { reply: ReplyId(9), apid: Apid(1) });
    assert!(brief(&looked).contains(&"save 1.2 placed".to_owned()), "{:?}", brief(&looked));
}

#[test]
fn purged() {
    let mut s = Scheduler::new(machine(1, 1), alone());
    s.apply(at(0), posted(1, 1));
    call(&mut s, 1, &[0], vec![stranger(1, &[0], Phase::Running)]);
    assert_eq!(brief(&order(&mut s, Manage::Purge, &[0])), ["change NID 0", "warn", "-> 1 purge"]);
    refused(&order(&mut s, Manage::Adopt, &[0]), &["NID 0: already being purged"]);
    // Its end is not that of the application with the same number here.
    let cause = Cause::Purge { uid: 0 };
    for _ in 0..2 {
        let end = ended(key(1, 1), &[0], Some(Decisive { at_ns: 1, cause: cause.clone() }));
        assert_eq!(report(&mut s, 1, end), ["warn", "-> 1 acknowledge 1.1"]);
    }
    // But its front end, which knows the number of its posting, is told of it.
    let purged = s.purged_end(&[99; 16]).expect("known");
    assert_eq!((purged.owner, purged.end.status()), ((Apid(1), 1001), 125));
    assert_eq!(purged.end.nids, [Nid(0)]);
    assert!(s.purged_end(&[1; 16]).is_none() && s.purged_end(&[]).is_none());
    let effects = inventory(&mut s, 1, &[]);
    assert_eq!(
        brief(&effects),
        [
            "boot boot-1",
            "managed 7 1 0",
            "save 1.1 placed",
            "log 1 placed",
            "-> 1 place 1.1",
            "tell 1 placed",
            "usr1 1"
        ]
    );
    answered(&effects, "NID 0: its apinit obeys this psched now; application 1 of bob ended");
}

#[test]
fn the_end_of_a_purged_part_commands_no_foreign_node() {
    // An old copy has 1.1 on two nodes, which have obeyed a later start. Node 0 is purged.
    let mut s = Scheduler::new(machine(2, 1), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    s.apply(at(0), posted(1, 2));
    report(&mut s, 1, Report::Running(key(1, 1)));
    let mut same = stranger(1, &[0, 1], Phase::Running);
    same.place.request_id = [1; 16];
    call(&mut s, 3, &[0], vec![same.clone()]);
    call(&mut s, 4, &[1], vec![same]);
    order(&mut s, Manage::Purge, &[0]);
    let first = Decisive { at_ns: 1, cause: Cause::Purge { uid: 0 } };
    assert_eq!(
        report(&mut s, 3, ended(key(1, 1), &[0], Some(first))),
        ["warn", "save 1.1 running", "-> 3 acknowledge 1.1"]
    );
    // It hears of it as soon as it obeys.
    order(&mut s, Manage::Adopt, &[1]);
    let effects = brief(&inventory(&mut s, 4, &[(key(1, 1), Phase::Running)]));
    assert!(effects.contains(&"-> 4 terminate 1.1 5".to_owned()), "{effects:?}");
}

#[test]
fn a_link_that_breaks_is_said() {
    let mut s = Scheduler::new(machine(1, 1), alone());
    call(&mut s, 1, &[0], vec![stranger(1, &[0], Phase::Running)]);
    order(&mut s, Manage::Purge, &[0]);
    let effects = s.apply(at(6), Event::LinkClosed { link: LinkId(1) });
    refused(&effects, &["the connection of an apinit broke before it had answered"]);
    assert_eq!(s.nodes().next().expect("one").state, "suspect");
}

#[test]
fn managing_is_for_administrators() {
    let mut s = Scheduler::new(machine(1, 1), alone());
    call(&mut s, 1, &[0], vec![]);
    for what in [Manage::Adopt, Manage::Purge] {
        let (reply, by, administrator) = (ReplyId(7), By { uid: 1000, ..By::default() }, false);
        let (nids, used) = ([Nid(0)].into(), BTreeSet::new());
        let event = Event::Manage { reply, what, nids, by, administrator, used };
        assert_eq!(brief(&s.apply(at(1), event)), ["refuse 7 NotAllowed"]);
    }
}

/// A psched that adopts one which was restored knows that it was, and when it began here.
#[test]
fn what_was_restored_is_adopted_as_that() {
    let mut s = Scheduler::new(machine(1, 2), alone());
    let restart = Restart { from: key(7, 2), run: Duration::from_secs(900), parts: Vec::new() };
    let mut theirs = stranger(12, &[0], Phase::Running);
    (theirs.place.restart, theirs.run) = (Some(restart.clone()), Duration::from_secs(902));
    call(&mut s, 1, &[0], vec![theirs]);
    order(&mut s, Manage::Adopt, &[0]);
    let team = s.team(Apid(12)).expect("on record");
    assert_eq!(team.restart, Some(restart));
    assert_eq!(team.running_at_ns, at(3).wall_ns);
}

/// A number that one has which runs there stands for that one, whatever the records here say.
#[test]
fn the_number_of_a_stranger_is_not_used_again() {
    let mut s = Scheduler::new(machine(1, 2), alone());
    call(&mut s, 1, &[0], vec![stranger(12, &[0], Phase::Running)]);
    let mut again = |number, apid| {
        let Event::Posted { reply, posting, owner, front, secret } = posted(number, 1) else {
            unreachable!()
        };
        let origin = Origin::Waiting { apid: Apid(apid), free: Some(Default::default()) };
        let event = Event::Restarted { reply, posting, owner, front, secret, origin };
        brief(&s.apply(at(1), event))[0].clone()
    };
    assert_eq!(again(1, 12), "save 13.0 posted");
    assert_eq!(again(2, 11), "save 11.0 posted");
}

/// Wherever it stands among the applications that a node tells.
#[test]
fn a_number_of_a_stranger_is_found_in_any_order() {
    let mut s = Scheduler::new(machine(1, 2), alone());
    let far = |apid: u64| stranger((1 << 40) + apid, &[0], Phase::Running);
    call(&mut s, 1, &[0], [7, 2, 9, 4, 2, 1].map(far).into());
    let has = |apid: u64| s.strangers_have(Apid((1 << 40) + apid));
    assert_eq!((0..12).filter(|apid| has(*apid)).collect::<Vec<_>>(), [1, 2, 4, 7, 9]);
    assert!(!s.strangers_have(Apid(7)));
}

/// Root of one host can have it tell any number: that does not use up those below, and is given to no other.
#[test]
fn a_number_without_measure_uses_up_none() {
    let mut s = ready(4, 2);
    for far in [u64::MAX, i64::MAX as u64, 1 << 60] {
        let both = [stranger(far, &[3], Phase::Running), stranger(2, &[3], Phase::Running)];
        call(&mut s, 2, &[3], both.into());
        assert_eq!(s.next_apid(), 3);
        let effects = order(&mut s, Manage::Adopt, &[3]);
        let Effect::Managed { problems, .. } = &effects[0] else { panic!("{effects:?}") };
        let why = "no psched gives numbers above 4503599627370496: psmgr purge 3";
        assert_eq!(*problems, [format!("application {far} of bob on NID 3: {why}")]);
    }
    let number = |s: &mut Scheduler, posting| brief(&s.apply(at(1), posted(posting, 1)))[0].clone();
    assert_eq!(number(&mut s, 1), "save 3.0 posted");
    s.next_apid = 1 << 60;
    assert_eq!(number(&mut s, 2), format!("save {}.0 posted", (1_u64 << 60) + 1));
}

/// Else one host's number, once it is adopted, would leave no numbers that another psched adopts.
#[test]
fn an_adopted_number_that_is_far_above_does_not_move_the_next() {
    let mut s = ready(1, 4);
    let far = APID_MAX;
    call(&mut s, 2, &[0], vec![stranger(far, &[0], Phase::Running)]);
    order(&mut s, Manage::Adopt, &[0]);
    assert!(s.team(Apid(far)).is_some());
    assert_eq!((s.next_apid(), s.apids_below()), (1, far + 1));
    // Nor after a restart; and the node's number is below what psched says in its welcome.
    let teams: Vec<Apteam> = s.teams.values().cloned().collect();
    let (boots, orders) = (Default::default(), Default::default());
    let (again, _) = Scheduler::restore(machine(1, 4), alone(), teams, boots, orders, 1, at(9));
    assert_eq!((again.next_apid(), again.apids_below()), (1, far + 1));
    // One within reach does.
    let mut s = ready(1, 4);
    s.next_apid = 5;
    call(&mut s, 2, &[0], vec![stranger(LEAP_MAX + 5, &[0], Phase::Running)]);
    order(&mut s, Manage::Adopt, &[0]);
    assert_eq!((s.next_apid(), s.apids_below()), (LEAP_MAX + 6, LEAP_MAX + 6));
}

#[test]
fn the_next_number_of_a_store_is_after_its_own() {
    let next = |all: &[u64]| {
        let all: BTreeSet<u64> = all.iter().copied().collect();
        let up_to = |most| Ok::<_, ()>(all.range(..=most).next_back().copied());
        next_of(1, up_to).expect("no error")
    };
    assert_eq!(next(&[]), 1);
    assert_eq!(next(&[1, 2, 7]), 8);
    assert_eq!(next(&[7, LEAP_MAX + 8, 2 * LEAP_MAX + 9, APID_MAX]), 2 * LEAP_MAX + 10);
    assert_eq!(next(&[7, LEAP_MAX + 9]), 8);
    assert_eq!(next(&[APID_MAX, u64::MAX]), 1);
}

/// A number that an adopted application has is not given when the others have come so far.
#[test]
fn the_number_of_an_adopted_application_is_not_given_again() {
    let mut s = ready(1, 4);
    let far = 3 * LEAP_MAX;
    call(&mut s, 2, &[0], vec![stranger(far, &[0], Phase::Running)]);
    order(&mut s, Manage::Adopt, &[0]);
    s.next_apid = far;
    assert_eq!(brief(&s.apply(at(1), posted(1, 1)))[0], format!("save {}.0 posted", far + 1));
}
