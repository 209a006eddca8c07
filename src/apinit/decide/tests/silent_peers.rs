//! What a front end is told of hosts that do not answer.

use super::*;
use crate::apinit::decide::{SILENT_AFTER, SILENT_PAUSE};
use crate::apteam::protocol::peers::FromPeer;

const AGAIN: Conn = Conn(3);

/// A head with PEs on three other hosts, all of which go.
fn four_hosts() -> (Agent, Key) {
    let mut agent = linked(&[0]);
    let key = key(12, 1);
    go_through(
        &mut agent,
        0,
        [
            placed(place(key, &[&[0], &[1], &[2], &[3]])),
            Event::ShepherdSpawned(key),
            opened(FRONT, OWNER),
            launch(FRONT, key),
        ],
    );
    for index in 1..4 {
        let from = |message| Event::PeerMessage(key, index, message);
        go_through(&mut agent, S, [from(FromPeer::Accepted), from(FromPeer::Ready)]);
    }
    go_through(&mut agent, S, [from_shepherd(key, FromShepherd::Ready)]);
    (agent, key)
}

/// The lists that front ends are told at a moment.
fn lists(agent: &mut Agent, now: u64, event: Event) -> Vec<Vec<u32>> {
    let list = |action: Action| match action {
        Action::SendFront(_, FromApinit::Notice(Notice::Silent { nids })) => {
            Some(nids.iter().map(|nid| nid.0).collect())
        }
        _ => None,
    };
    act(agent, now, event).into_iter().filter_map(list).collect()
}

fn lost(key: Key, index: u32) -> Event {
    Event::PeerLost { key, index, text: "timed out".into() }
}

fn back(key: Key, index: u32) -> Event {
    Event::PeerMessage(key, index, FromPeer::Accepted)
}

const NONE: [Vec<u32>; 0] = [];

#[test]
fn it_is_told_of_each_outage_once_and_of_its_end() {
    let (mut agent, key) = four_hosts();
    let at = 10 * S;
    assert_eq!(lists(&mut agent, at, lost(key, 2)), NONE);
    assert_eq!(lists(&mut agent, at + S, lost(key, 3)), NONE);
    let due = at + ns(SILENT_AFTER);
    assert_eq!(lists(&mut agent, due - 1, Event::Tick), NONE);
    assert_eq!(lists(&mut agent, due, Event::Tick), [[2]]);
    // Attempts fail: that is no news.
    for second in 4..10 {
        assert_eq!(lists(&mut agent, at + second * S, lost(key, 2)), NONE);
        assert_eq!(lists(&mut agent, at + second * S + S / 2, Event::Tick), NONE);
    }
    // The next list comes after a pause, with all that has changed.
    assert_eq!(lists(&mut agent, due + ns(SILENT_PAUSE) - 1, Event::Tick), NONE);
    assert_eq!(lists(&mut agent, due + ns(SILENT_PAUSE), Event::Tick), [[2, 3]]);
    let at = due + 10 * ns(SILENT_PAUSE);
    go_through(&mut agent, at, [Event::Tick, back(key, 2)]);
    assert_eq!(lists(&mut agent, at, Event::Tick), [[3]]);
    assert_eq!(lists(&mut agent, at + ns(SILENT_PAUSE), back(key, 3)), NONE);
    assert_eq!(lists(&mut agent, at + ns(SILENT_PAUSE), Event::Tick), [[0; 0]]);
    assert_eq!(lists(&mut agent, at + 9 * ns(SILENT_PAUSE), Event::Tick), NONE);
}

#[test]
fn what_is_back_soon_is_not_told() {
    let (mut agent, key) = four_hosts();
    for round in 1..20 {
        let at = round * 10 * S;
        assert_eq!(lists(&mut agent, at, lost(key, 1)), NONE);
        go_through(&mut agent, at + S, [Event::Tick]);
        assert_eq!(lists(&mut agent, at + 2 * S, back(key, 1)), NONE);
        assert_eq!(lists(&mut agent, at + 5 * S, Event::Tick), NONE);
    }
}

/// A host that comes and goes all the time.
#[test]
fn there_is_a_pause_between_two_lists() {
    let (mut agent, key) = four_hosts();
    let mut told = Vec::new();
    for second in 2..200 {
        let event = if second / 7 % 2 == 0 { back(key, 1) } else { lost(key, 1) };
        for event in [event, Event::Tick] {
            told.extend(lists(&mut agent, second * S, event).iter().map(|_| second * S));
        }
    }
    assert!(told.len() > 5, "{told:?}");
    assert!(told.windows(2).all(|two| two[1] - two[0] >= ns(SILENT_PAUSE)), "{told:?}");
}

#[test]
fn one_that_has_ended_there_is_not_missed() {
    let (mut agent, key) = four_hosts();
    go_through(&mut agent, 2 * S, [Event::PeerMessage(key, 1, FromPeer::Done), lost(key, 1)]);
    assert_eq!(lists(&mut agent, 60 * S, Event::Tick), NONE);
}

/// Only the front end knows what it was told in a former life of its apinit, or before its stream
/// broke.
#[test]
fn a_front_end_that_comes_back_is_told_all() {
    let (mut agent, key) = four_hosts();
    go_through(&mut agent, 10 * S, [lost(key, 2), Event::StreamClosed(FRONT)]);
    assert_eq!(lists(&mut agent, 20 * S, Event::Tick), NONE, "nobody hears it");
    go_through(&mut agent, 21 * S, [opened(AGAIN, OWNER), resume(AGAIN, key, &[])]);
    assert_eq!(lists(&mut agent, 24 * S - 1, Event::Tick), NONE, "this host may have been away");
    assert_eq!(lists(&mut agent, 24 * S, Event::Tick), [[2]]);
    go_through(&mut agent, 40 * S, [back(key, 2), Event::StreamClosed(AGAIN)]);
    go_through(&mut agent, 41 * S, [opened(FRONT, OWNER), resume(FRONT, key, &[])]);
    for index in 1..4 {
        assert_eq!(lists(&mut agent, 44 * S, Event::Tick), NONE, "host {index} has not answered");
        go_through(&mut agent, 44 * S, [back(key, index)]);
    }
    assert_eq!(lists(&mut agent, 44 * S, Event::Tick), [[0; 0]]);
}
