//! A psched that is not obeyed, by examples.

use super::*;
use crate::apteam::protocol::node::{Foreign, ForeignApplication};

fn other() -> Welcome {
    Welcome { store_id: "ffffffffff".into(), epoch: 1, ..welcome() }
}

/// Of a release that counts no commits.
fn start(epoch: u64, id: &str) -> Start {
    Start { epoch, id: id.into(), commits: 0 }
}

fn older() -> Welcome {
    Welcome { epoch: 2, starts: vec![start(2, "two")], ..welcome() }
}

/// Of a copy made in epoch 2, and started often since.
fn branched() -> Welcome {
    let starts = [start(2, "two"), start(3, "other"), start(4, "another")];
    Welcome { epoch: 4, starts: starts.into(), ..welcome() }
}

/// The next start.
fn next() -> Welcome {
    let starts = [start(3, "three"), start(4, "four")];
    Welcome { epoch: 4, starts: starts.into(), ..welcome() }
}

/// Of a copy made in epoch 3, before the application was posted.
fn copied() -> Welcome {
    let starts = [start(3, "three"), start(4, "copy")];
    Welcome { epoch: 4, next_apid: 12, starts: starts.into(), ..welcome() }
}

fn command(command: Command) -> Event {
    Event::Command(7, command)
}

fn told(actions: &[Action]) -> &Foreign {
    match actions {
        [Action::Foreign(foreign)] => foreign,
        _ => panic!("{actions:?}"),
    }
}

/// `12.1` runs since 2 s, and a psched of another store calls at 5 s.
fn with_stranger() -> (Agent, Key) {
    let (mut agent, key) = with_running();
    agent.apply(3 * S, Event::Unlinked);
    agent.apply(5 * S, Event::Linked(Box::new(other())));
    (agent, key)
}

#[test]
fn another_store_or_an_older_copy_is_not_obeyed() {
    let (mut agent, key) = with_running();
    agent.apply(3 * S, Event::Unlinked);
    for (stranger, why) in [
        (other(), "apinit obeys the psched of store 01234567, not this one of store ffffffff"),
        (
            older(),
            "apinit has obeyed start 3 of psched on this store, and the store here (start 2) lacks \
             the commits of that start: this psched has an old copy of its state",
        ),
        (
            branched(),
            "apinit has obeyed start 3 of psched on this store, and the store here (start 4) lacks \
             the commits of that start: this psched has an old copy of its state",
        ),
    ] {
        let actions = act(&mut agent, 5 * S, Event::Linked(Box::new(stranger)));
        let foreign = told(&actions);
        assert_eq!((foreign.why.as_str(), foreign.epoch), (why, 3));
        assert_eq!(foreign.store_id, "0123456789abcdef");
        let place =
            PlaceCommand { ticket_left: Duration::from_secs(55), ..own(place(key, &[&[0, 1]]), 0) };
        let run = Duration::from_secs(3);
        let phase = Phase::Running;
        assert_eq!(foreign.applications, [ForeignApplication { place, phase, run }]);
        agent.apply(5 * S, Event::Unlinked);
    }
    // What happens meanwhile is told to no one.
    go_through(&mut agent, 6 * S, [Event::Linked(Box::new(other())), ended(key)]);
    assert_eq!(act(&mut agent, 6 * S, Event::GroupsEmpty(key)), [to_front(FromApinit::Done)]);
    assert_eq!(act(&mut agent, 9 * S, Event::Tick), []);
    agent.apply(9 * S, Event::Unlinked);
    let actions = act(&mut agent, 9 * S, Event::Linked(Box::new(next())));
    assert!(actions.contains(&reported(end(key), &[0, 1])), "{actions:?}");
}

/// A psched that can't read the record of an application here is told all, and not obeyed before it has it.
#[test]
fn what_psched_can_not_read_it_is_told() {
    let (mut agent, key) = with_running();
    agent.apply(3 * S, Event::Unlinked);
    let unread = |apid| Welcome { unreadable: vec![Apid(4), apid], ..next() };
    let actions = act(&mut agent, 5 * S, Event::Linked(Box::new(unread(key.apid))));
    let foreign = told(&actions);
    let why = format!("apinit has application {}, whose record this psched can't read", key.apid);
    assert_eq!((&foreign.why, foreign.applications.len()), (&why, 1));
    agent.apply(6 * S, Event::Unlinked);
    let actions = act(&mut agent, 7 * S, Event::Linked(Box::new(unread(Apid(999)))));
    assert!(!actions.iter().any(|a| matches!(a, Action::Foreign(_))), "{actions:?}");
}

/// A copy made in the epoch that the node obeys is told by its numbers, and known from then on.
#[test]
fn a_young_copy_is_not_obeyed() {
    let (mut agent, key) = with_running();
    agent.apply(3 * S, Event::Unlinked);
    let actions = act(&mut agent, 5 * S, Event::Linked(Box::new(copied())));
    let [Action::Distrust(starts), told @ ..] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(starts, &["copy"]);
    assert_eq!(
        self::told(told).why,
        "apinit has application 12, and the highest number in this store is 11: this psched has \
         an old copy of its state"
    );
    // Other numbers have been given on it meanwhile, and it was started again.
    let mut later = Welcome { epoch: 5, next_apid: 40, ..copied() };
    later.starts.push(start(5, "later"));
    for next in [Welcome { next_apid: 40, ..copied() }, later.clone()] {
        agent.apply(5 * S, Event::Unlinked);
        let actions = act(&mut agent, 5 * S, Event::Linked(Box::new(next)));
        assert!(
            self::told(&actions).why.contains("an earlier start of psched on this store lacked")
        );
    }
    // Also by an apinit that was started again.
    let me = Me {
        nids: [Nid(0), Nid(1)].into(),
        uid: 0,
        cpus: vec![0],
        numa: [].into(),
        boot_id: "boot".into(),
    };
    let mut again = Agent::new(me, Some(welcome())).distrusting(starts.clone());
    told_by(&mut again, later);
    // The store itself comes back.
    agent.apply(6 * S, Event::Unlinked);
    let actions = act(&mut agent, 6 * S, Event::Linked(Box::new(next())));
    let items = vec![(key, Phase::Running)];
    let inventory = Action::Inventory { items, last_command: 1 };
    let movable = Action::Report(Report::Movable { key, blocker: None });
    assert_eq!(actions, [Action::Remember(next()), inventory, movable]);
}

/// The store that the node obeys, with the starts that led to it, each with the commits before it.
fn counted(commits: u64, starts: [(u64, &str, u64); 2]) -> Welcome {
    let epoch = starts[1].0;
    let start = |(epoch, id, commits): (u64, &str, u64)| Start { epoch, id: id.into(), commits };
    Welcome { epoch, commits, starts: starts.map(start).into(), ..welcome() }
}

/// A copy made while psched ran lacks commits that the node has heard of, or was started before
/// them.
#[test]
fn a_copy_made_without_a_start_is_not_obeyed() {
    let own = [(2, "two", 10), (3, "three", 20)];
    let (mut agent, key) = with_running();
    agent.apply(3 * S, Event::Linked(Box::new(counted(21, own))));
    // Each command, and the answer to each heartbeat, may tell more; never fewer.
    assert_eq!(act(&mut agent, 3 * S, Event::Counted(30)), [Action::RememberCommits(30)]);
    assert_eq!(act(&mut agent, 3 * S, Event::Counted(29)), []);
    assert_eq!(act(&mut agent, 3 * S, Event::Counted(30)), []);
    agent.apply(4 * S, Event::Unlinked);
    // Not from one that it is not linked to.
    assert_eq!(act(&mut agent, 4 * S, Event::Counted(99)), []);
    let started = |before, commits| counted(commits, [(3, "three", 20), (4, "four", before)]);
    let few = "apinit knows commit 30 of this store, and this psched's last commit is 28: this \
               psched has an old copy of its state";
    let early = "apinit knows commit 30 of this store, and start 4 of this psched came after \
                 commit 29: this psched has an old copy of its state";
    for (copy, why) in [
        (counted(28, own), few),
        (started(27, 28), few),
        // It has been used since, as much as one likes.
        (started(29, 30), early),
        (started(29, 1_000), early),
    ] {
        let actions = act(&mut agent, 5 * S, Event::Linked(Box::new(copy.clone())));
        assert_eq!(told(&actions).why, why);
        // What it says of its own commits the node does not take for those of its store.
        assert_eq!(act(&mut agent, 5 * S, Event::Counted(2_000)), []);
        assert_eq!(agent.commits(), 30);
        agent.apply(5 * S, Event::Unlinked);
        // A later life of this apinit remembers it.
        let remembered = Welcome { commits: 30, ..counted(21, own) };
        let mut again = Agent::new(agent.me.clone(), Some(remembered));
        told_by(&mut again, copy);
    }
    // The next start came after all of them; one of a release that does not count says nothing.
    for next in [started(30, 31), counted(31, [(3, "three", 20), (5, "five", 0)])] {
        let actions = act(&mut agent, 6 * S, Event::Linked(Box::new(next.clone())));
        assert_eq!(actions[0], Action::Remember(next));
        assert!(matches!(&actions[1], Action::Inventory { items, .. } if items[0].0 == key));
    }
}

/// Adopted with what it had committed by then.
#[test]
fn an_adopted_copy_counts_on() {
    let own = [(2, "two", 10), (3, "three", 20)];
    let (mut agent, key) = with_running();
    agent.apply(3 * S, Event::Linked(Box::new(counted(40, own))));
    agent.apply(4 * S, Event::Unlinked);
    let copy = counted(30, [(3, "three", 20), (4, "copy", 29)]);
    agent.apply(5 * S, Event::Linked(Box::new(copy.clone())));
    agent.apply(5 * S, Event::Counted(33));
    let actions = act(&mut agent, 5 * S, command(Command::Adopt));
    let obeyed = Action::Remember(Welcome { commits: 33, ..copy });
    assert_eq!(actions[..2], [Action::KeepAdopted(key), obeyed]);
    // Now it is the one that it obeyed which is foreign.
    agent.apply(6 * S, Event::Unlinked);
    told_by(&mut agent, counted(50, own));
}

#[track_caller]
fn told_by(agent: &mut Agent, welcome: Welcome) {
    told(&act(agent, 5 * S, Event::Linked(Box::new(welcome))));
}

#[test]
fn a_stranger_commands_nothing() {
    let (mut agent, key) = with_stranger();
    let terminate = Command::Terminate { key, cause: Cause::NoRecord, kill_after: Duration::ZERO };
    for said in [
        Command::Place(Box::new(place(super::key(13, 1), &[&[0]]))),
        Command::TakeBack { key, number: 1 },
        Command::Signal { key, signal: numbered(0, 9) },
        terminate,
        Command::AcknowledgeEnd(key),
        Command::Discard(key),
    ] {
        assert_eq!(act(&mut agent, 5 * S, command(said.clone())), [], "{said:?}");
    }
}

/// The psched that knew its front end, and would say that this has died on a login host, is obeyed
/// no more. What is watched here is not concerned.
#[test]
fn the_front_end_of_an_adopted_application_is_given_ten_seconds() {
    let opened = |conn, watch| Event::FrontOpened { conn, uid: OWNER, watch };
    let resume = |conn, key| {
        Event::FrontMessage(conn, ToApinit::Resume { key, ticket: TICKET, taken: Vec::new() })
    };
    for (watch, open, ends) in [
        (Watch::Elsewhere, true, true),
        (Watch::Elsewhere, false, true),
        (Watch::Here, true, false),
        (Watch::Here, false, false),
    ] {
        let (mut agent, key) = with_stranger();
        let (second, third) = (Conn(71), Conn(72));
        go_through(&mut agent, 6 * S, [opened(second, watch), resume(second, key)]);
        if !open {
            // Long before.
            go_through(&mut agent, 7 * S, [Event::StreamClosed(second)]);
        }
        let at = 60 * S;
        go_through(&mut agent, at, [command(Command::Adopt), Event::Tick]);
        let gone = |actions: Vec<Action>| actions.contains(&Action::KeepGone(key));
        if open {
            // The front end connects again before it goes.
            go_through(&mut agent, at, [opened(third, watch), resume(third, key)]);
            go_through(&mut agent, at, [Event::StreamClosed(second), Event::StreamClosed(third)]);
        }
        assert!(!gone(act(&mut agent, at + ns(AWAY_MAX) - 1, Event::Tick)), "{watch:?} {open}");
        assert_eq!(gone(act(&mut agent, at + ns(AWAY_MAX), Event::Tick)), ends, "{watch:?} {open}");
    }
}

/// A purge waits for no aprun that has died on a login host with output left: the psched that would
/// tell of its death is not obeyed any more.
#[test]
fn a_purge_gives_front_ends_on_other_hosts_up() {
    for (watch, ends) in [(Watch::Elsewhere, true), (Watch::Here, false)] {
        let (mut agent, key) = with_stranger();
        let second = Conn(71);
        let opened = Event::FrontOpened { conn: second, uid: OWNER, watch };
        let resume = ToApinit::Resume { key, ticket: TICKET, taken: Vec::new() };
        go_through(&mut agent, 6 * S, [opened, Event::FrontMessage(second, resume)]);
        let left = FromShepherd::Output(output(0, "done\n"));
        go_through(&mut agent, 7 * S, [Event::StreamClosed(second), from_shepherd(key, left)]);
        go_through(&mut agent, 60 * S, [command(Command::Purge { uid: 0 })]);
        let actions = act(&mut agent, 60 * S + ns(AWAY_MAX), Event::Tick);
        let thrown = Action::SendShepherd(key, ToShepherd::OutputTaken(5));
        assert_eq!(actions.contains(&thrown), ends, "{actions:?}");
    }
}

/// The next life of this apinit knows that, too.
#[test]
fn an_adopted_application_is_adopted_for_the_next_life() {
    let key = key(12, 1);
    for adopted in [true, false] {
        let mut agent = apinit(&[0, 1]);
        let found = Found { adopted, ..found_at_work(key) };
        let opened = Event::FrontOpened { conn: FRONT, uid: OWNER, watch: Watch::Elsewhere };
        go_through(&mut agent, 2 * S, [Event::Found(Box::new(found)), opened]);
        go_through(&mut agent, 3 * S, [resume(FRONT, key, &[]), Event::StreamClosed(FRONT)]);
        let actions = act(&mut agent, 3 * S + ns(AWAY_MAX), Event::Tick);
        assert_eq!(actions.contains(&Action::KeepGone(key)), adopted, "{actions:?}");
    }
}

#[test]
fn adopted() {
    let (mut agent, key) = with_stranger();
    assert_eq!(
        act(&mut agent, 6 * S, command(Command::Adopt)),
        [
            Action::KeepAdopted(key),
            Action::Remember(other()),
            Action::Inventory { items: vec![(key, Phase::Running)], last_command: 7 },
            Action::Report(Report::Movable { key, blocker: None }),
        ]
    );
    // Said again, or a purge that comes too late: it is so already.
    for late in [Command::Adopt, Command::Purge { uid: 0 }] {
        assert_eq!(act(&mut agent, 6 * S, command(late)), []);
    }
    go_through(&mut agent, 7 * S, [ended(key)]);
    let actions = act(&mut agent, 7 * S, Event::GroupsEmpty(key));
    assert!(actions.contains(&reported(end(key), &[0, 1])), "{actions:?}");
    // Its former psched is the stranger now.
    agent.apply(8 * S, Event::Unlinked);
    let actions = act(&mut agent, 8 * S, Event::Linked(Box::new(welcome())));
    assert_eq!(told(&actions).store_id, "ffffffffff");
}

#[test]
fn purged() {
    let (mut agent, key) = with_stranger();
    let cause = Cause::Purge { uid: 77 };
    assert_eq!(
        act(&mut agent, 6 * S, command(Command::Purge { uid: 77 })),
        [
            Action::KeepAdopted(key),
            Action::SendShepherd(key, ToShepherd::Terminate { cause, kill_after: GRACE }),
        ]
    );
    // Once more, and an adoption, change nothing.
    for again in [Command::Purge { uid: 77 }, Command::Adopt] {
        assert_eq!(act(&mut agent, 6 * S, command(again)), []);
    }
    go_through(&mut agent, 7 * S, [ended(key)]);
    let report = reported(end(key), &[0, 1]);
    let done = to_front(FromApinit::Done);
    assert_eq!(act(&mut agent, 7 * S, Event::GroupsEmpty(key)), [report.clone(), done]);
    // Each end is told until it is heard.
    assert_eq!(act(&mut agent, 8 * S, Event::Tick), [report]);
    assert_eq!(
        act(&mut agent, 8 * S, command(Command::AcknowledgeEnd(key))),
        [
            Action::CloseStream(FRONT),
            Action::Remove(key),
            Action::Remember(other()),
            Action::Inventory { items: vec![], last_command: 7 },
        ]
    );
}

#[test]
fn a_purge_that_is_cut_off_is_begun_again() {
    let (mut agent, key) = with_stranger();
    go_through(&mut agent, 6 * S, [command(Command::Purge { uid: 0 }), Event::Unlinked]);
    go_through(&mut agent, 7 * S, [ended(key), Event::GroupsEmpty(key)]);
    let actions = act(&mut agent, 8 * S, Event::Linked(Box::new(Welcome { epoch: 2, ..other() })));
    assert_eq!(told(&actions).applications[0].phase, Phase::Ended);
    let actions = act(&mut agent, 8 * S, command(Command::Purge { uid: 0 }));
    assert_eq!(actions, [reported(end(key), &[0, 1])]);
    let actions = act(&mut agent, 8 * S, command(Command::AcknowledgeEnd(key)));
    assert!(matches!(actions[..], [.., Action::Remember(_), Action::Inventory { .. }]));
}

#[test]
fn purged_of_nothing() {
    let mut agent = linked(&[0]);
    go_through(&mut agent, S, [Event::Unlinked, Event::Linked(Box::new(other()))]);
    assert_eq!(
        act(&mut agent, S, command(Command::Purge { uid: 0 })),
        [Action::Remember(other()), Action::Inventory { items: vec![], last_command: 7 }]
    );
}
