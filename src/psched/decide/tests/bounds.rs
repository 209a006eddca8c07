//! Bounds, what whoever is refused is told, and what nodes are told of theirs.

use super::*;
use crate::apteam::Apid;
use crate::apteam::bounds::{Bounds, HostBounds};
use crate::apteam::protocol::node::Command;
use crate::machine::Nid;
use std::collections::BTreeSet;

fn refusal(effects: &[Effect]) -> String {
    let [Effect::Refuse { refusal: Refusal::TooMany, reason, .. }] = effects else {
        panic!("{effects:?}")
    };
    reason.to_string()
}

#[test]
fn postings_beyond_the_bounds_are_refused_and_the_others_kept() {
    let settings = Settings { postings_user_max: 2, postings_max: 3, ..alone() };
    let mut s = Scheduler::new(machine(1, 1), settings);
    for number in 1..=2 {
        s.apply(at(0), posted(number, 1));
    }
    assert_eq!(
        refusal(&s.apply(at(0), posted(3, 1))),
        "your part of the queue is full (2 waiting); try again later, or have an administrator \
         raise postings_user_max (2) with psmgr set"
    );
    let theirs = |number| match posted(number, 1) {
        Event::Posted { reply, posting, owner, front, secret } => {
            let owner = Owner { uid: 1000 + u32::from(number), ..owner };
            Event::Posted { reply, posting, owner, front, secret }
        }
        other => other,
    };
    let taken = brief(&s.apply(at(0), theirs(4)));
    assert!(taken.contains(&"accept 4 3".to_owned()), "{taken:?}");
    assert_eq!(
        refusal(&s.apply(at(0), theirs(5))),
        "the queue is full (3 waiting); try again later, or have an administrator raise \
         postings_max (3) with psmgr set"
    );
    assert_eq!(s.teams().count(), 3);
}

#[test]
fn the_records_of_one_user_are_bounded() {
    let settings = Settings { records_user_max: 5_000, ..alone() };
    let mut s = Scheduler::new(machine(1, 1), settings);
    let long = |number: u8, uid: u32| match posted(number, 1) {
        Event::Posted { reply, mut posting, owner, front, secret } => {
            posting.command = "x".repeat(400);
            let owner = Owner { uid, ..owner };
            Event::Posted { reply, posting, owner, front, secret }
        }
        other => other,
    };
    for number in 1..=2 {
        s.apply(at(0), long(number, 1_000));
    }
    assert_eq!(
        refusal(&s.apply(at(0), long(3, 1_000))),
        "the records of your applications that have not ended would exceed 5000, the maximum of \
         one user; try again when some of them have ended, or have an administrator raise \
         records_user_max (5000) with psmgr set"
    );
    // Another has his own, and what has ended counts no more.
    assert!(brief(&s.apply(at(0), long(4, 1_001))).contains(&"accept 4 3".to_owned()));
    s.apply(at(0), Event::FrontGone { apid: Apid(1) });
    assert!(brief(&s.apply(at(0), long(5, 1_000))).contains(&"accept 5 4".to_owned()));
}

#[test]
fn nodes_are_told_of_their_bounds_when_these_change() {
    let mut s = ready(1, 1);
    assert_eq!(brief(&s.apply(at(1), Event::Settings(Box::new(alone())))), [""; 0]);
    let host_bounds = HostBounds { applications: 3, ..HostBounds::default() };
    let settings = Settings { host_bounds, ..alone() };
    assert_eq!(
        s.apply(at(1), Event::Settings(Box::new(settings.clone()))),
        [Effect::Command { link: LinkId(1), command: Command::Bounds(host_bounds) }]
    );
    assert_eq!(s.apply(at(2), Event::Settings(Box::new(settings))), []);
}

#[test]
fn an_application_goes_with_its_bounds() {
    let bounds = Bounds { output: 1, stdin: 2, pmi: 3 };
    let front_kill_grace = Duration::from_millis(7);
    let settings = Settings { bounds, front_kill_grace, ..alone() };
    let mut s = Scheduler::new(machine(1, 1), settings);
    link(&mut s, 1, &[0], &[]);
    let effects = s.apply(at(1), posted(1, 1));
    let place = effects.iter().find_map(|e| match e {
        Effect::Command { command: Command::Place(place), .. } => Some(place),
        _ => None,
    });
    let place = place.expect("placed");
    assert_eq!((place.bounds, place.front_kill_grace), (bounds, front_kill_grace));
}

#[test]
fn orders_of_psmgr_beyond_the_bound_are_refused() {
    let settings = Settings { orders_max: 1, ..alone() };
    let mut s = Scheduler::new(machine(2, 1), settings);
    let order = |s: &mut Scheduler, nid| {
        let (reply, by, administrator) = (ReplyId(7), By::default(), true);
        let (what, nids, used) = (Manage::Adopt, [Nid(nid)].into(), BTreeSet::new());
        s.apply(at(5), Event::Manage { reply, what, nids, by, administrator, used })
    };
    for nid in 0..2u32 {
        let link = LinkId(u64::from(nid));
        s.apply(at(0), Event::LinkOpened { link, hello: hello(&[nid]) });
        let foreign = Foreign {
            store_id: "ab".into(),
            epoch: 3,
            why: "apinit obeys another".into(),
            applications: vec![],
        };
        s.apply(at(0), Event::Foreign { link, foreign: Box::new(foreign) });
    }
    assert_eq!(brief(&order(&mut s, 0)), ["warn", "change NID 0", "-> 0 adopt"]);
    let refused = order(&mut s, 1);
    let [Effect::Managed { problems, .. }] = &refused[..] else { panic!("{refused:?}") };
    assert_eq!(
        problems[..],
        ["1 such orders wait for their nodes: try again later, or have an administrator raise \
          orders_max (1) with psmgr set"]
    );
    // The first is done, and then the second.
    let inventory = Event::Inventory { link: LinkId(0), items: vec![] };
    assert!(brief(&s.apply(at(6), inventory)).contains(&"managed 7 1 0".to_owned()));
    assert_eq!(brief(&order(&mut s, 1)), ["warn", "change NID 1", "-> 1 adopt"]);
}
