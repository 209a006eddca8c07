//! Launches that fail by a node's fault: tried again elsewhere, and counted against the node.

use super::*;
use crate::apteam::change::Closed;
use crate::apteam::fault::Fault;
use crate::apteam::record::{Apteam, State};
use std::collections::BTreeSet;

/// Four hosts with a node each, on links 1 to 4.
fn hosts() -> Scheduler {
    hosts_with(alone())
}

fn hosts_with(settings: Settings) -> Scheduler {
    let mut s = Scheduler::new(machine(4, 2), settings);
    for nid in 0..4 {
        link(&mut s, u64::from(nid) + 1, &[nid], &[]);
    }
    s
}

/// A posting whose front end knows of retries, of the user with this number.
fn by_user(number: u8, width: u32, uid: u32) -> Event {
    let mut event = posted(number, width);
    if let Event::Posted { posting, owner, .. } = &mut event {
        posting.tries_again = true;
        (owner.uid, owner.name) = (uid, format!("user{uid}"));
    }
    event
}

fn tries_again(number: u8, width: u32) -> Event {
    by_user(number, width, 1000)
}

/// Its host could not start an apshepherd, or for this reason.
fn failed(nid: u32, fault: Fault) -> Option<Decisive> {
    let cause = Cause::ShepherdLost { nid: Nid(nid), text: "no space left".into(), fault };
    Some(Decisive { at_ns: 7, cause })
}

fn team(s: &Scheduler, apid: u64) -> &Apteam {
    s.team(Apid(apid)).expect("it has not ended")
}

fn nids(s: &Scheduler, apid: u64) -> Vec<u32> {
    team(s, apid).places.nids().map(|nid| nid.0).collect()
}

/// An application is posted and launched, on this node, and its launch fails there.
fn fails_on(s: &mut Scheduler, number: u8, uid: u32, fault: Fault) -> Vec<String> {
    s.apply(at(1), by_user(number, 2, uid));
    let apid = u64::from(number);
    let nid = nids(s, apid)[0];
    let k = team(s, apid).key();
    report(s, u64::from(nid) + 1, Report::Launched(k));
    report(s, u64::from(nid) + 1, not_launched(k, &[nid], failed(nid, fault)))
}

/// Its user does not wait for the next try, on NID 1.
fn gives_up(s: &mut Scheduler, number: u8) {
    s.apply(at(1), Event::FrontGone { apid: Apid(number.into()) });
    let k = team(s, number.into()).key();
    report(s, 2, taken_back(k));
}

#[test]
fn a_launch_that_fails_by_a_node_s_fault_is_tried_again_elsewhere() {
    let mut s = hosts();
    s.apply(at(1), tries_again(1, 2));
    report(&mut s, 1, Report::Launched(key(1, 1)));
    let told = report(&mut s, 1, not_launched(key(1, 1), &[0], failed(0, Fault::Node)));
    assert_eq!(
        told,
        [
            "save 1.2 posted",
            "log 1 retried",
            "tell 1 retried 1 1/3",
            "-> 1 acknowledge 1.1",
            "save 1.3 placed",
            "log 1 placed",
            "-> 2 place 1.3",
            "tell 1 placed",
            "usr1 1"
        ]
    );
    assert_eq!(nids(&s, 1), [1]);
    assert_eq!(team(&s, 1).posting.choice.to_string(), "-E 0");
    // What the first host says again has no effect.
    let again = not_launched(key(1, 1), &[0], failed(0, Fault::Node));
    assert_eq!(report(&mut s, 1, again), ["-> 1 discard 1.1"]);
    assert_eq!(report(&mut s, 1, Report::Running(key(1, 1))), Vec::<String>::new());
}

/// Each host is tried once, and the last word is that of the last one.
#[test]
fn it_ends_after_three_retries() {
    let mut s = hosts();
    s.apply(at(1), tries_again(1, 2));
    for nid in 0..3 {
        let k = team(&s, 1).key();
        assert_eq!(nids(&s, 1), [nid]);
        report(&mut s, u64::from(nid) + 1, Report::Launched(k));
        let end = not_launched(k, &[nid], failed(nid, Fault::Busy));
        let told = report(&mut s, u64::from(nid) + 1, end);
        assert!(told.contains(&"log 1 retried".to_owned()), "{told:?}");
    }
    let k = team(&s, 1).key();
    let told = report(&mut s, 4, not_launched(k, &[3], failed(3, Fault::Busy)));
    assert_eq!(
        told,
        ["save 1.7 ended", "log 1 ended", "now: tell 1 ended 125", "-> 4 acknowledge 1.7"]
    );
}

/// There is no other host: the nodes that it had are left out. With none left it ends.
#[test]
fn on_one_host_it_is_tried_on_other_nodes() {
    let mut s = ready(2, 2);
    s.apply(at(1), tries_again(1, 2));
    report(&mut s, 1, not_launched(key(1, 1), &[0], failed(0, Fault::Busy)));
    assert_eq!(nids(&s, 1), [1]);
    let told = report(&mut s, 1, not_launched(key(1, 3), &[1], failed(1, Fault::Busy)));
    assert!(told.contains(&"log 1 ended".into()), "{told:?}");
}

/// A host with several nodes is left out as a whole where there are others.
#[test]
fn the_other_nodes_of_the_host_are_left_out_too() {
    let mut s = Scheduler::new(machine(3, 2), alone());
    link(&mut s, 1, &[0, 1], &[]);
    link(&mut s, 2, &[2], &[]);
    s.apply(at(1), tries_again(1, 2));
    report(&mut s, 1, not_launched(key(1, 1), &[0], failed(0, Fault::Busy)));
    assert_eq!((nids(&s, 1), team(&s, 1).posting.choice.to_string()), (vec![2], "-E 0-1".into()));
}

/// All hosts have to be empty first, and none may say that PEs ran.
#[test]
fn it_waits_until_every_host_has_said_that_no_pe_ran() {
    let both = |ran: bool| {
        let mut s = hosts();
        s.apply(at(1), tries_again(1, 4));
        report(&mut s, 1, Report::Launched(key(1, 1)));
        let told = report(&mut s, 2, not_launched(key(1, 1), &[1], failed(1, Fault::Node)));
        let first = "-> 1 terminate 1.1 5";
        assert_eq!(told, [first, "save 1.1 launching", "-> 2 acknowledge 1.1"]);
        let end = match ran {
            true => ended(key(1, 1), &[0], None),
            false => not_launched(key(1, 1), &[0], failed(1, Fault::User)),
        };
        let told = report(&mut s, 1, end);
        (told, s.team(Apid(1)).map(|team| team.state))
    };
    let (told, state) = both(false);
    assert_eq!(state, Some(State::Placed), "{told:?}");
    let (told, state) = both(true);
    assert_eq!(state, None, "{told:?}");
}

/// Hosts without the program, programs that are none, and hosts of a release before.
#[test]
fn what_is_the_user_s_fault_ends_it() {
    let mut s = hosts();
    s.apply(at(1), tries_again(1, 2));
    let told = report(&mut s, 1, not_launched(key(1, 1), &[0], failed(0, Fault::User)));
    assert!(told.contains(&"save 1.1 ended".into()), "{told:?}");
}

/// The front end of a release before knows no retries; others are not to wait, or come from a checkpoint, or
/// have no front end any more.
#[test]
fn not_every_application_is_tried_again() {
    let ends = |change: fn(&mut Scheduler, &mut Event)| {
        let mut s = hosts();
        let mut event = tries_again(1, 2);
        change(&mut s, &mut event);
        s.apply(at(1), event);
        report(&mut s, 1, Report::Launched(key(1, 1)));
        let told = report(&mut s, 1, not_launched(key(1, 1), &[0], failed(0, Fault::Node)));
        assert!(told.contains(&"save 1.1 ended".into()), "{told:?}");
    };
    ends(|_, event| {
        if let Event::Posted { posting, .. } = event {
            posting.tries_again = false;
        }
    });
    ends(|_, event| {
        if let Event::Posted { posting, .. } = event {
            posting.immediate = true;
        }
    });
    ends(|s, _| {
        let settings = Settings { launch_retries: 0, ..alone() };
        s.apply(at(0), Event::Settings(Box::new(settings)));
    });
}

/// A user who has ended it meanwhile does not want another try, nor does one whose aprun is dead.
#[test]
fn a_kill_is_not_undone_by_a_retry() {
    for by_hand in [true, false] {
        let mut s = hosts();
        s.apply(at(1), tries_again(1, 4));
        report(&mut s, 1, Report::Launched(key(1, 1)));
        report(&mut s, 2, not_launched(key(1, 1), &[1], failed(1, Fault::Node)));
        let (reply, apids) = (ReplyId(7), vec![Apid(1)]);
        let kill = Event::Kill { reply, apids, signal: 0, uid: 1000, administrator: false };
        let told = match by_hand {
            true => brief(&s.apply(at(2), kill)),
            false => brief(&s.apply(at(2), Event::FrontGone { apid: Apid(1) })),
        };
        assert!(told.contains(&"save 1.1 launching".into()), "{told:?}");
        let told = report(&mut s, 1, not_launched(key(1, 1), &[0], failed(1, Fault::User)));
        assert!(told.contains(&"save 1.1 ended".into()), "{told:?}");
    }
}

/// Its PEs go first, and psched may not have heard of it.
#[test]
fn where_the_host_of_pe_0_is_lost_it_may_have_run() {
    let lost = |head: bool| {
        let mut s = hosts();
        s.apply(at(1), tries_again(1, 4));
        report(&mut s, 1, Report::Launched(key(1, 1)));
        let nid = u32::from(!head);
        let (link, other) = (u64::from(nid) + 1, u64::from(1 - nid) + 1);
        s.apply(at(2), Event::LinkClosed { link: LinkId(link) });
        let hello = Box::new(Hello { boot_id: "boot-2".into(), ..*hello(&[nid]) });
        let back = LinkId(9);
        s.apply(at(3), Event::LinkOpened { link: back, hello });
        s.apply(at(3), Event::Inventory { link: back, items: vec![] });
        let cause = Cause::NodeLost { nid: Nid(nid), text: "its host was restarted".into() };
        let first = Some(Decisive { at_ns: 4 * SECOND, cause });
        report(&mut s, other, not_launched(key(1, 1), &[1 - nid], first));
        s.team(Apid(1)).map(|team| team.state)
    };
    assert_eq!(lost(true), None);
    // The head says that none ran: the nodes 0 and 2, 3 are left, of which two are contiguous.
    assert_eq!(lost(false), Some(State::Placed));
}

#[test]
fn a_node_that_fails_on_and_on_is_drained() {
    let mut s = hosts();
    // One user alone drains nothing, however often his launches fail.
    for number in 1..=4 {
        let told = fails_on(&mut s, number, 1000, Fault::Node);
        assert!(!told.contains(&"warn".into()), "{told:?}");
        gives_up(&mut s, number);
    }
    assert_eq!(s.closed(Nid(0)), None);
    let told = fails_on(&mut s, 5, 1001, Fault::Node);
    assert_eq!(told[..3], ["warn", "change NID 0", "nodes 0 drained"]);
    let order = s.closed(Nid(0)).expect("drained");
    assert_eq!(
        order.to_string(),
        "drained by psched: 3 launches in a row failed here; the last one: no space left"
    );
    assert_eq!(order.closed, Closed::Drained);
    // An administrator resumes it, and counts anew.
    let by = By { uid: 0, name: "root".into(), at_ns: 9 };
    let (to, nids, reason) = (NodesTo::Resume, BTreeSet::from([Nid(0)]), String::new());
    s.apply(at(2), Event::Nodes { reply: ReplyId(7), to, nids, reason, by });
    let told = fails_on(&mut s, 6, 1000, Fault::Node);
    assert!(!told.contains(&"warn".into()), "{told:?}");
}

/// What users can bring about does not count, whoever they are.
#[test]
fn what_users_can_bring_about_drains_nothing() {
    let mut s = hosts();
    for number in 1..=9 {
        let fault = if number % 2 == 0 { Fault::Busy } else { Fault::User };
        fails_on(&mut s, number, 1000 + u32::from(number), fault);
        if s.team(Apid(number.into())).is_some() {
            gives_up(&mut s, number);
        }
    }
    assert!((0..4).all(|nid| s.closed(Nid(nid)).is_none()));
}

#[test]
fn a_launch_that_succeeds_sets_the_count_back() {
    let mut s = hosts_with(Settings { launch_failures_to_drain: 2, ..alone() });
    fails_on(&mut s, 1, 1000, Fault::Node);
    gives_up(&mut s, 1);
    s.apply(at(1), by_user(2, 2, 1001));
    assert_eq!(nids(&s, 2), [0]);
    report(&mut s, 1, Report::Running(key(2, 1)));
    report(&mut s, 1, ended(key(2, 1), &[0], None));
    fails_on(&mut s, 3, 1001, Fault::Node);
    assert_eq!(s.closed(Nid(0)), None);
    gives_up(&mut s, 3);
    fails_on(&mut s, 4, 1000, Fault::Node);
    assert!(s.closed(Nid(0)).is_some());
}

/// Its users are better served by errors than by a wait without end.
#[test]
fn the_last_host_is_not_drained() {
    let mut s = hosts_with(Settings {
        only_uid: Some(1000),
        launch_failures_to_drain: 1,
        launch_retries: 0,
        ..alone()
    });
    for number in 1..=5 {
        fails_on(&mut s, number, 1000, Fault::Node);
    }
    let closed = [0, 1, 2, 3].map(|nid| s.closed(Nid(nid)).is_some());
    assert_eq!(closed, [true, true, true, false]);
}

/// There nobody else could bear him out.
#[test]
fn the_only_user_counts_alone() {
    let mut s = hosts_with(Settings {
        only_uid: Some(1000),
        launch_failures_to_drain: 1,
        launch_retries: 0,
        ..alone()
    });
    let told = fails_on(&mut s, 1, 1000, Fault::Node);
    assert!(told.contains(&"nodes 0 drained".into()), "{told:?}");
    let mut s =
        hosts_with(Settings { launch_failures_to_drain: 0, only_uid: Some(1000), ..alone() });
    fails_on(&mut s, 1, 1000, Fault::Node);
    assert_eq!(s.closed(Nid(0)), None);
}
