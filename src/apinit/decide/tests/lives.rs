//! One host: from placement to being forgotten, and its front end.

use super::*;
use crate::apinit::decide::launching::pmix_name;
use crate::apteam::binding::Binding;
use crate::apteam::fault::Fault;

#[test]
fn a_whole_life() {
    let mut agent = linked(&[0, 1]);
    let key = key(12, 1);
    let place = place(key, &[&[0, 1]]);
    assert_eq!(
        act(&mut agent, 0, placed(place.clone())),
        [Action::MakeAndSpawn { place: Box::new(own(place, 0)), nids: vec![Nid(0), Nid(1)] }]
    );
    assert_eq!(act(&mut agent, 0, Event::ShepherdSpawned(key)), []);
    assert_eq!(act(&mut agent, S, opened(FRONT, OWNER)), []);
    let pe = |rank: u32, nid: u32, cpu: u32| LocalPe {
        rank,
        nid: Nid(nid),
        cpus: vec![cpu],
        nice: 0,
        depth: 1,
    };
    assert_eq!(
        act(&mut agent, S, launch(FRONT, key)),
        [
            Action::KeepFront(key, FRONT),
            to_front(FromApinit::Accepted),
            Action::Report(Report::Launched(key)),
            Action::SendShepherd(
                key,
                ToShepherd::Launch(Box::new(HostLaunch {
                    key,
                    width: 4,
                    depth: 1,
                    launch: Launch { binding: Binding::Cpu, ..*program() },
                    pes: vec![pe(0, 0, 0), pe(1, 0, 1), pe(2, 1, 2), pe(3, 1, 3)],
                    process_mapping: "(vector,(0,1,4))".into(),
                    alone: true,
                    others: Vec::new(),
                    cpu_limit: None,
                    stdin: true,
                    kill_grace: GRACE,
                    marker: String::new(),
                    memory_per_pe: None,
                    pids_max: None,
                    bounds: Bounds::default(),
                    pmix_name: pmix_name(key, &TICKET),
                    host_index: 0,
                    pmix_folder: String::new(),
                    spawned: None,
                }))
            ),
        ]
    );
    assert_eq!(
        act(&mut agent, 2 * S, from_shepherd(key, FromShepherd::Ready)),
        [
            Action::SendShepherd(key, ToShepherd::Go),
            Action::KeepGoing(key, 2 * S),
            to_front(FromApinit::Going),
            Action::Report(Report::Running(key)),
            Action::Report(Report::Movable { key, blocker: None }),
        ]
    );
    assert_eq!(
        act(&mut agent, 3 * S, from_shepherd(key, FromShepherd::Output(output(0, "hello\n")))),
        [to_front(FromApinit::Output(output(0, "hello\n")))]
    );
    let taken = ToApinit::OutputTaken(OutputTaken { source: 0, offset: 6 });
    assert_eq!(
        act(&mut agent, 3 * S, Event::FrontMessage(FRONT, taken)),
        [Action::SendShepherd(key, ToShepherd::OutputTaken(6))]
    );
    assert_eq!(act(&mut agent, 4 * S, ended(key)), [Action::CheckGroupsEmpty(key)]);
    assert_eq!(
        act(&mut agent, 4 * S, Event::GroupsEmpty(key)),
        [reported(end(key), &[0, 1]), to_front(FromApinit::Done)]
    );
    // Repeated each second, on the new link too, until it is acknowledged.
    assert_eq!(agent.next_timer(), Some(5 * S));
    assert_eq!(act(&mut agent, 5 * S - 1, Event::Tick), []);
    assert_eq!(act(&mut agent, 5 * S, Event::Tick), [reported(end(key), &[0, 1])]);
    assert_eq!(act(&mut agent, 5 * S, Event::Unlinked), []);
    assert_eq!(act(&mut agent, 7 * S, Event::Tick), []);
    assert_eq!(
        act(&mut agent, 8 * S, Event::Linked(Box::new(welcome()))),
        [
            Action::Remember(welcome()),
            Action::Inventory { items: vec![(key, Phase::Ended)], last_command: 1 },
            reported(end(key), &[0, 1]),
        ]
    );
    assert_eq!(
        act(&mut agent, 8 * S, Event::Command(2, Command::AcknowledgeEnd(key))),
        [Action::CloseStream(FRONT), Action::Remove(key),]
    );
    assert_eq!((agent.held(), agent.next_timer(), agent.last_command()), ((0, 0), None, 2));
    assert_eq!(act(&mut agent, 9 * S, ended(key)), []);
}

#[test]
fn a_launch_waits_for_its_placement() {
    let mut agent = linked(&[0, 1]);
    let key = key(12, 1);
    go_through(&mut agent, 0, [opened(FRONT, OWNER)]);
    assert_eq!(act(&mut agent, 0, launch(FRONT, key)), []);
    let signal = Event::FrontMessage(FRONT, ToApinit::Signal(numbered(1, 10)));
    assert_eq!(act(&mut agent, 0, signal), []);
    let actions = act(&mut agent, 9 * S, placed(place(key, &[&[0, 1]])));
    assert!(actions.contains(&to_front(FromApinit::Accepted)), "{actions:?}");
    // Without a shepherd there is nobody to give it to.
    let is_launch =
        |a: &Action| matches!(a, Action::SendShepherd(k, ToShepherd::Launch(_)) if *k == key);
    assert!(!actions.iter().any(is_launch));
    assert!(act(&mut agent, 9 * S, Event::ShepherdSpawned(key)).iter().any(is_launch));
}

/// Not even that it is there; whoever has the ticket, too.
#[test]
fn another_users_application_is_as_one_that_is_not_there() {
    let (mut agent, placed_key) = with_placed();
    let absent = key(13, 1);
    let mut hears = |key: Key, says: &dyn Fn(Conn) -> Event, conn: u64| {
        let conn = Conn(conn);
        go_through(&mut agent, 0, [opened(conn, 4242)]);
        let mut said = act(&mut agent, 0, says(conn));
        said.extend(act(&mut agent, LAUNCH_WAIT.as_nanos() as u64, Event::Tick));
        let said = format!("{said:?}").replace(&format!("{conn:?}"), "it");
        said.replace(&format!("application {key}"), "it")
    };
    let (launched, none) = (
        hears(placed_key, &|c| launch(c, placed_key), 5),
        hears(absent, &|c| launch(c, absent), 6),
    );
    assert!(none.contains("has not placed"), "{none}");
    assert_eq!(launched, none);
    let resumed = hears(placed_key, &|c| resume(c, placed_key, &[]), 7);
    let none = hears(absent, &|c| resume(c, absent, &[]), 8);
    assert!(none.contains("is not on this node"), "{none}");
    assert_eq!(resumed, none);
    let dumped = agent.hinders_dump(4242, placed_key).map(|text| text.replace("12.1", "it"));
    let none = agent.hinders_dump(4242, absent).map(|text| text.replace("13.1", "it"));
    assert!(none.is_some());
    assert_eq!(dumped, none);
    let restored = [placed_key, absent].map(|key| agent.may_restore(key, 4242, &TICKET));
    assert_eq!(restored, [Ok(false), Ok(false)]);
    // Its owner's own launch is what it was.
    go_through(&mut agent, 0, [opened(FRONT, OWNER)]);
    let owners = act(&mut agent, 0, launch(FRONT, placed_key));
    assert!(owners.contains(&to_front(FromApinit::Accepted)), "{owners:?}");
}

/// A stranger who waits for the number of a posting does not go in when that one is placed.
#[test]
fn a_stranger_who_waits_is_not_let_in() {
    let mut agent = linked(&[0, 1]);
    let (key, stranger) = (key(12, 1), Conn(5));
    go_through(&mut agent, 0, [opened(stranger, 4242), launch(stranger, key)]);
    let actions = act(&mut agent, S, placed(place(key, &[&[0, 1]])));
    assert!(!actions.iter().any(|a| matches!(a, Action::SendFront(..))), "{actions:?}");
    go_through(&mut agent, S, [opened(FRONT, OWNER)]);
    let owners = act(&mut agent, S, launch(FRONT, key));
    assert!(owners.contains(&to_front(FromApinit::Accepted)), "{owners:?}");
}

#[test]
fn who_may_launch() {
    let (mut agent, key) = with_placed();
    let guesser = Conn(6);
    go_through(&mut agent, 0, [opened(guesser, OWNER)]);
    let guess = ToApinit::Launch { key, ticket: Ticket([8; 16]), launch: program() };
    assert_eq!(
        act(&mut agent, 0, Event::FrontMessage(guesser, guess)),
        refused(guesser, "the ticket is not the one of application 12.1")
    );
    let late = Conn(7);
    go_through(&mut agent, 60 * S, [opened(late, OWNER)]);
    assert_eq!(
        act(&mut agent, 60 * S, launch(late, key)),
        refused(
            late,
            "the ticket of application 12.1 has lapsed: ask psched for its placement again"
        )
    );
    let chatter = Conn(8);
    go_through(&mut agent, 60 * S, [opened(chatter, OWNER)]);
    assert_eq!(
        act(&mut agent, 60 * S, Event::FrontMessage(chatter, ToApinit::Signal(numbered(1, 2)))),
        refused(chatter, "the first message of a stream must be a launch or a resumption")
    );
    assert_eq!(agent.held(), (1, 0));
    // Said again by psched, the placement has a new ticket's time.
    go_through(&mut agent, 61 * S, [placed(place(key, &[&[0, 1]])), opened(FRONT, OWNER)]);
    let actions = act(&mut agent, 61 * S, launch(FRONT, key));
    assert!(actions.contains(&Action::Report(Report::Launched(key))), "{actions:?}");
}

/// A psched on an old copy of its store has given the key again, to another place. (This one is taken back
/// when its ticket lapses.)
#[test]
fn a_ticket_launches_its_own_placement_only() {
    let mut agent = linked(&[0, 1, 2]);
    let key = key(12, 1);
    let other = PlaceCommand { ticket: Ticket([8; 16]), ..place(key, &[&[1, 2]]) };
    go_through(&mut agent, 0, [placed(place(key, &[&[0, 1]])), placed(other)]);
    go_through(&mut agent, S, [opened(FRONT, OWNER), opened(Conn(8), OWNER)]);
    let other = ToApinit::Launch { key, ticket: Ticket([8; 16]), launch: program() };
    let actions = act(&mut agent, S, Event::FrontMessage(Conn(8), other));
    assert_eq!(actions, refused(Conn(8), "the ticket is not the one of application 12.1"));
    let actions = act(&mut agent, S, launch(FRONT, key));
    assert!(actions.contains(&Action::Report(Report::Launched(key))), "{actions:?}");
}

/// The stream of the first launch broke, aprun launched again on another, and the network was slow
/// with the first: it comes, and its end is not seen yet.
#[test]
fn a_launch_that_comes_again_is_a_return() {
    let (mut agent, key) = with_launched();
    let again = Conn(9);
    go_through(&mut agent, 2 * S, [opened(again, OWNER)]);
    assert_eq!(
        act(&mut agent, 2 * S, launch(again, key)),
        [
            Action::CloseStream(FRONT),
            Action::KeepFront(key, again),
            Action::SendFront(again, FromApinit::Accepted),
        ]
    );
    assert_eq!(act(&mut agent, 3 * S, Event::StreamClosed(FRONT)), []);
    let actions = act(&mut agent, 3 * S, from_shepherd(key, FromShepherd::Ready));
    assert!(actions.contains(&Action::SendFront(again, FromApinit::Going)), "{actions:?}");
}

#[test]
fn a_front_end_comes_back_for_what_it_has_not_written() {
    let (mut agent, key) = with_running();
    let outputs = [output(0, "one\n"), output(4, "two\n")];
    for one in outputs.clone() {
        go_through(&mut agent, 3 * S, [from_shepherd(key, FromShepherd::Output(one))]);
    }
    go_through(
        &mut agent,
        3 * S,
        [from_shepherd(key, FromShepherd::StdinCredit(credit(99, 0))), Event::StreamClosed(FRONT)],
    );
    let third = FromShepherd::Output(output(8, "three\n"));
    assert_eq!(act(&mut agent, 4 * S, from_shepherd(key, third.clone())), []);
    // After a reconnection the shepherd says again what it does not know to be written.
    assert_eq!(act(&mut agent, 4 * S, from_shepherd(key, third)), []);
    let back = Conn(2);
    go_through(&mut agent, 400 * S, [opened(back, OWNER)]);
    let say = |message| Action::SendFront(back, message);
    assert_eq!(
        act(&mut agent, 400 * S, resume(back, key, &[(0, 4)])),
        [
            Action::CloseStream(FRONT),
            Action::KeepFront(key, back),
            Action::SendShepherd(key, ToShepherd::OutputTaken(4)),
            say(FromApinit::Accepted),
            say(FromApinit::Going),
            say(FromApinit::StdinCredit(credit(99, 0))),
            say(FromApinit::Output(output(4, "two\n"))),
            say(FromApinit::Output(output(8, "three\n"))),
        ]
    );
    let stdin = ToApinit::Stdin(piece(0, "in"));
    assert_eq!(
        act(&mut agent, 400 * S, Event::FrontMessage(back, stdin)),
        [Action::SendShepherd(key, ToShepherd::Stdin(piece(0, "in")))]
    );
    assert_eq!(
        act(&mut agent, 400 * S, Event::FrontMessage(back, ToApinit::Signal(numbered(1, 10)))),
        [Action::SendShepherd(key, ToShepherd::Signal(numbered(1, 10)))]
    );
}

/// An apinit that was killed has taken the word with it, or the word came before what it is about
/// had been said again: nobody would say it a second time.
#[test]
fn a_shepherd_that_says_again_what_is_written_is_told_so_again() {
    let (mut agent, key) = with_running();
    let one = || from_shepherd(key, FromShepherd::Output(output(0, "hello\n")));
    let taken = ToApinit::OutputTaken(OutputTaken { source: 0, offset: 6 });
    go_through(&mut agent, 3 * S, [one(), Event::FrontMessage(FRONT, taken)]);
    assert_eq!(
        act(&mut agent, 4 * S, one()),
        [Action::SendShepherd(key, ToShepherd::OutputTaken(6))]
    );
    // What is not written is not.
    let two = || from_shepherd(key, FromShepherd::Output(output(6, "more\n")));
    go_through(&mut agent, 5 * S, [two()]);
    assert_eq!(act(&mut agent, 5 * S, two()), []);
}

/// The ticket's time is for the launch. One that was taken in time stays taken.
#[test]
fn a_launch_outlives_its_ticket() {
    let (last, late) = (60 * S - 1, 3600 * S);
    let (mut agent, key) = with_placed();
    let text = "application 12.1 has not been launched here";
    go_through(&mut agent, last, [opened(FRONT, OWNER)]);
    assert_eq!(act(&mut agent, last, resume(FRONT, key, &[])), refused(FRONT, text));
    let second = Conn(2);
    go_through(&mut agent, last, [opened(second, OWNER)]);
    let accepted = Action::SendFront(second, FromApinit::Accepted);
    assert!(act(&mut agent, last, launch(second, key)).contains(&accepted));
    // The answer was lost: at any time later, by a resumption and by the same launch.
    for (conn, again) in [(Conn(3), resume(Conn(3), key, &[])), (Conn(4), launch(Conn(4), key))] {
        go_through(&mut agent, late, [Event::StreamClosed(Conn(conn.0 - 1)), opened(conn, OWNER)]);
        let actions = act(&mut agent, late, again);
        assert!(actions.contains(&Action::SendFront(conn, FromApinit::Accepted)), "{actions:?}");
    }
    // In the moment when it is over it is over, for both.
    let (mut agent, key) = with_placed();
    for conn in [Conn(5), Conn(6)] {
        go_through(&mut agent, 60 * S, [opened(conn, OWNER)]);
    }
    let lapsed = "the ticket of application 12.1 has lapsed: ask psched for its placement again";
    assert_eq!(act(&mut agent, 60 * S, resume(Conn(5), key, &[])), refused(Conn(5), text));
    assert_eq!(act(&mut agent, 60 * S, launch(Conn(6), key)), refused(Conn(6), lapsed));
}

#[test]
fn a_front_end_dies() {
    let (mut agent, key) = with_running();
    go_through(&mut agent, 3 * S, [from_shepherd(key, FromShepherd::Output(output(0, "lost\n")))]);
    // Its stream being closed is not its death.
    assert_eq!(act(&mut agent, 3 * S, Event::StreamClosed(FRONT)), []);
    assert_eq!(agent.next_timer(), None);
    let terminate = ToShepherd::Terminate { cause: Cause::FrontGone, kill_after: FRONT_GRACE };
    assert_eq!(
        act(&mut agent, 4 * S, Event::FrontDied(FRONT)),
        [
            Action::CloseStream(FRONT),
            Action::SendShepherd(key, terminate),
            Action::KeepGone(key),
            Action::SendShepherd(key, ToShepherd::OutputTaken(5)),
        ]
    );
    // What still comes is dropped, and the shepherd told so that it can end.
    assert_eq!(
        act(&mut agent, 5 * S, from_shepherd(key, FromShepherd::Output(output(5, "more\n")))),
        [Action::SendShepherd(key, ToShepherd::OutputTaken(10))]
    );
    go_through(&mut agent, 6 * S, [ended(key)]);
    let lost = HostEnd { output_lost: true, ..end(key) };
    assert_eq!(act(&mut agent, 6 * S, Event::GroupsEmpty(key)), [reported(lost, &[0, 1])]);
    assert_eq!(
        act(&mut agent, 6 * S, Event::Command(2, Command::AcknowledgeEnd(key))),
        [Action::Remove(key)]
    );
}

/// The apinit of its host watches it. When psched says that it has died, its unread output is
/// thrown away, for whatever reason the application has been ended before.
#[test]
fn a_front_end_of_another_host_is_given_up_when_psched_says_so() {
    let killed = || Cause::Kill { signal: 9, uid: OWNER };
    for (before, open) in [(None, false), (Some(killed()), false), (Some(killed()), true)] {
        let (mut agent, key) = with_running();
        let output = FromShepherd::Output(output(0, "lost\n"));
        go_through(&mut agent, 3 * S, [from_shepherd(key, output)]);
        let gone = |actions: Vec<Action>| {
            let taken = Action::SendShepherd(key, ToShepherd::OutputTaken(5));
            actions.contains(&Action::KeepGone(key)) && actions.contains(&taken)
        };
        let terminate = |cause| Command::Terminate { key, cause, kill_after: FRONT_GRACE };
        if !open {
            go_through(&mut agent, 3 * S, [Event::StreamClosed(FRONT)]);
        }
        for cause in before.into_iter() {
            go_through(&mut agent, 4 * S, [Event::Command(1, terminate(cause))]);
        }
        assert!(
            !gone(act(&mut agent, 3 * S + ns(AWAY_MAX), Event::Tick)),
            "psched has not said so"
        );
        let at = 30 * S;
        let mut said = act(&mut agent, at, Event::Command(2, terminate(Cause::FrontGone)));
        if open {
            said.extend(act(&mut agent, at, Event::StreamClosed(FRONT)));
            assert!(!gone(said), "it may come back for a moment");
            said = act(&mut agent, at + ns(AWAY_MAX), Event::Tick);
        } else {
            said.extend(act(&mut agent, at, Event::Tick));
        }
        assert!(gone(said));
    }
}

#[test]
fn a_front_end_that_cannot_be_watched_is_given_ten_seconds() {
    let (mut agent, key) = with_placed();
    let unwatched = Event::FrontOpened { conn: FRONT, uid: OWNER, watch: Watch::No };
    go_through(&mut agent, S, [unwatched, launch(FRONT, key), Event::StreamClosed(FRONT)]);
    assert_eq!(act(&mut agent, 11 * S - 1, Event::Tick), []);
    let actions = act(&mut agent, 11 * S, Event::Tick);
    assert!(
        actions.contains(&Action::SendShepherd(
            key,
            ToShepherd::Terminate { cause: Cause::FrontGone, kill_after: FRONT_GRACE }
        )),
        "{actions:?}"
    );
}

#[test]
fn output_beyond_the_window_ends_the_shepherd() {
    let (mut agent, key) = with_running();
    let big = Bytes::from(vec![b'x'; 128 * 1024]);
    let mut offset = 0;
    let mut lost = false;
    for _ in 0..32 {
        let one = Output { data: big.clone(), ..output(offset, "") };
        offset += big.len() as u64;
        let actions = act(&mut agent, 3 * S, from_shepherd(key, FromShepherd::Output(one)));
        lost |= actions.contains(&Action::KillGroups { key, shepherd: true });
    }
    assert!(lost);
}

#[test]
fn a_processor_is_not_given_twice() {
    let (mut agent, first) = with_running();
    let second = key(13, 1);
    let front = Conn(2);
    let is_launch = |a: &Action| matches!(a, Action::SendShepherd(_, ToShepherd::Launch(_)));
    go_through(
        &mut agent,
        3 * S,
        [placed(place(second, &[&[1]])), Event::ShepherdSpawned(second), opened(front, OWNER)],
    );
    // Its head is another one's index here: the same apinit, the same nodes.
    let actions = act(&mut agent, 3 * S, launch(front, second));
    assert!(!actions.iter().any(is_launch), "{actions:?}");
    assert_eq!(act(&mut agent, 4 * S, ended(first)), [Action::CheckGroupsEmpty(first)]);
    let actions = act(&mut agent, 4 * S, Event::GroupsEmpty(first));
    assert!(actions.iter().any(is_launch), "{actions:?}");
}

/// What an aprun that is given up has not written is thrown away. When it comes back after all it
/// hears of that, also from the next life of this apinit.
#[test]
fn a_front_end_that_was_given_up_hears_of_it_from_the_next_life() {
    let key = key(12, 1);
    let mut agent = apinit(&[0, 1]);
    let found = Found { gone: true, ..found_at_work(key) };
    assert_eq!(act(&mut agent, 2 * S, Event::Found(Box::new(found))), []);
    assert_eq!(
        act(&mut agent, 2 * S, from_shepherd(key, FromShepherd::Output(output(0, "lost\n")))),
        [Action::SendShepherd(key, ToShepherd::OutputTaken(5))]
    );
    go_through(&mut agent, 3 * S, [opened(FRONT, OWNER)]);
    let text = "application 12.1 has been ended: its front end was gone".into();
    assert_eq!(
        act(&mut agent, 3 * S, resume(FRONT, key, &[])),
        [
            to_front(FromApinit::Refused { text, cause: Some(Cause::FrontGone) }),
            Action::CloseStream(FRONT)
        ]
    );
}

#[test]
fn a_former_life_is_taken_up() {
    let mut agent = Agent::new(
        Me {
            nids: [Nid(0), Nid(1)].into(),
            uid: 0,
            cpus: vec![0, 1],
            numa: [].into(),
            boot_id: "boot".into(),
        },
        Some(welcome()),
    );
    let key = key(12, 1);
    let hello = Hello { key, launched: true, going: true, output_taken: 100, ..Hello::default() };
    let mut place = place(key, &[&[0, 1]]);
    place.time_limit = Some(Duration::from_secs(30));
    let found = Found {
        place,
        going_ns: Some(5 * S),
        ran_ns: None,
        hello: Some(hello),
        silent: false,
        away: None,
        front: Some(Conn(77)),
        gone: false,
        adopted: false,
    };
    assert_eq!(act(&mut agent, 10 * S, Event::Found(Box::new(found))), []);
    assert_eq!(
        act(&mut agent, 10 * S, Event::Linked(Box::new(welcome()))),
        [
            Action::Remember(welcome()),
            Action::Inventory { items: vec![(key, Phase::Running)], last_command: 0 },
            Action::Report(Report::Movable { key, blocker: None }),
        ]
    );
    assert_eq!(
        act(&mut agent, 11 * S, from_shepherd(key, FromShepherd::Output(output(100, "on\n")))),
        []
    );
    go_through(&mut agent, 12 * S, [opened(FRONT, OWNER)]);
    assert_eq!(
        act(&mut agent, 12 * S, resume(FRONT, key, &[(0, 101)])),
        [
            Action::CloseStream(Conn(77)),
            Action::KeepFront(key, FRONT),
            Action::SendShepherd(key, ToShepherd::OutputTaken(101)),
            to_front(FromApinit::Accepted),
            to_front(FromApinit::Going),
            to_front(FromApinit::Output(output(100, "on\n"))),
        ]
    );
    // The front end may have more than the new life has seen: the repetition is not for it.
    let back = Conn(78);
    go_through(&mut agent, 13 * S, [Event::StreamClosed(FRONT), opened(back, OWNER)]);
    let actions = act(&mut agent, 13 * S, resume(back, key, &[(0, 106)]));
    assert!(actions.contains(&Action::SendShepherd(key, ToShepherd::OutputTaken(106))));
    let again = FromShepherd::Output(output(100, "on\nxyzmore"));
    assert_eq!(
        act(&mut agent, 13 * S, from_shepherd(key, again)),
        [Action::SendFront(back, FromApinit::Output(output(106, "more")))]
    );
    // The time limit counts from the go, not from the restart.
    let limit = Duration::from_secs(30);
    assert_eq!(act(&mut agent, 35 * S - 1, Event::Tick), []);
    assert_eq!(
        act(&mut agent, 35 * S, Event::Tick),
        [Action::SendShepherd(
            key,
            ToShepherd::Terminate { cause: Cause::TimeLimit { limit }, kill_after: GRACE }
        )]
    );
}

/// It is stopped, or its host is busy: not dead.
#[test]
fn a_shepherd_that_says_nothing_yet_is_waited_for() {
    let key = key(12, 1);
    let found = |going_ns| {
        let (place, front) = (place(key, &[&[0, 1]]), Some(Conn(77)));
        Event::Found(Box::new(Found {
            ran_ns: None,
            place,
            going_ns,
            hello: None,
            silent: true,
            away: None,
            front,
            gone: false,
            adopted: false,
        }))
    };
    let mut agent = apinit(&[0, 1]);
    assert_eq!(act(&mut agent, 10 * S, found(Some(5 * S))), []);
    let inventory = Action::Inventory { items: vec![(key, Phase::Running)], last_command: 0 };
    assert!(act(&mut agent, 10 * S, Event::Linked(Box::new(welcome()))).contains(&inventory));
    // How far output and stdin are is not known: the front end is to try again.
    go_through(&mut agent, 11 * S, [opened(FRONT, OWNER)]);
    assert_eq!(
        act(&mut agent, 11 * S, resume(FRONT, key, &[(0, 100)])),
        not_now(FRONT, "the apshepherd of application 12.1 has not connected to its apinit yet")
    );
    let hello = Hello { key, launched: true, going: true, output_taken: 97, ..Hello::default() };
    go_through(
        &mut agent,
        12 * S,
        [
            from_shepherd(key, FromShepherd::Hello(hello)),
            from_shepherd(key, FromShepherd::Output(output(97, "on\n"))),
            opened(Conn(78), OWNER),
        ],
    );
    let actions = act(&mut agent, 12 * S, resume(Conn(78), key, &[(0, 100)]));
    assert!(actions.contains(&Action::SendShepherd(key, ToShepherd::OutputTaken(100))));
    assert!(actions.contains(&Action::SendFront(Conn(78), FromApinit::Accepted)), "{actions:?}");
    // Where nothing of the program has run, nothing is lost with it.
    let mut agent = apinit(&[0, 1]);
    let actions = act(&mut agent, 10 * S, found(None));
    assert!(actions.contains(&Action::KillGroups { key, shepherd: true }), "{actions:?}");
}

/// One that has run since 5 s, and whose apshepherd says nothing: it is stopped, or dead with the front end gone.
fn found_mute(key: Key, gone: bool) -> Event {
    Event::Found(Box::new(Found {
        place: place(key, &[&[0, 1]]),
        going_ns: Some(5 * S),
        ran_ns: None,
        hello: None,
        silent: !gone,
        away: None,
        front: None,
        gone,
        adopted: false,
    }))
}

/// It is not known which process its front end is. One that asks is there, though it can be told nothing yet.
#[test]
fn a_front_end_that_asks_is_there() {
    let key = key(12, 1);
    let mut agent = apinit(&[0, 1]);
    act(&mut agent, 10 * S, found_mute(key, false));
    let last = 10 * S + 3 * ns(AWAY_MAX);
    for (conn, at) in (100..).zip((10 * S..=last).step_by(S as usize)) {
        act(&mut agent, at, opened(Conn(conn), OWNER));
        let text = "the apshepherd of application 12.1 has not connected to its apinit yet";
        let answer = act(&mut agent, at, resume(Conn(conn), key, &[]));
        assert!(answer.starts_with(&not_now(Conn(conn), text)), "{answer:?}");
        assert_eq!(act(&mut agent, at + S / 2, Event::Tick), []);
    }
    let ended = |actions: Vec<Action>| {
        let gone = |a: &Action| matches!(a, Action::KeepGone(of) if *of == key);
        actions.iter().any(gone)
    };
    assert!(!ended(act(&mut agent, last + ns(AWAY_MAX) - 1, Event::Tick)));
    assert!(ended(act(&mut agent, last + ns(AWAY_MAX), Event::Tick)));
}

/// A former apinit has ended it because its front end was gone, and was killed in its turn.
#[test]
fn one_that_was_ended_for_its_front_end_has_ended_for_that() {
    let key = key(12, 1);
    let mut agent = apinit(&[0, 1]);
    act(&mut agent, 10 * S, found_mute(key, true));
    act(&mut agent, 10 * S, Event::Linked(Box::new(welcome())));
    let actions = act(&mut agent, 11 * S, Event::GroupsEmpty(key));
    let first = actions.iter().find_map(|action| match action {
        Action::Report(Report::Ended(end)) => end.first.clone(),
        _ => None,
    });
    assert_eq!(first, Some(Decisive { at_ns: 10 * S, cause: Cause::FrontGone }), "{actions:?}");
}

/// The life before died when its PEs went, before it had that on the disk. A later one may find it without
/// its apshepherd, whose memory is out.
#[test]
fn that_it_goes_is_kept_by_whoever_finds_it() {
    let key = key(12, 1);
    let found = |going_ns, going| {
        let place = place(key, &[&[0, 1]]);
        let hello = Some(Hello { key, launched: true, going, ..Hello::default() });
        let (ran_ns, away, front) = (None, None, Some(Conn(77)));
        let found = Found {
            place,
            going_ns,
            ran_ns,
            hello,
            silent: false,
            away,
            front,
            gone: false,
            adopted: false,
        };
        act(&mut apinit(&[0, 1]), 2 * S, Event::Found(Box::new(found)))
    };
    assert_eq!(found(None, true), [Action::KeepGoing(key, 2 * S)]);
    assert_eq!(found(Some(S), true), []);
    assert_eq!(found(None, false), []);
}

#[test]
fn a_former_life_whose_front_end_or_shepherd_died_meanwhile() {
    let key = key(12, 1);
    let found = |hello| {
        let front = Some(Conn(77));
        let place = place(key, &[&[0, 1]]);
        Event::Found(Box::new(Found {
            place,
            going_ns: Some(S),
            ran_ns: None,
            hello,
            silent: false,
            away: None,
            front,
            gone: false,
            adopted: false,
        }))
    };
    let mut agent = apinit(&[0, 1]);
    let hello = Hello { key, launched: true, going: true, ..Hello::default() };
    go_through(&mut agent, 2 * S, [found(Some(hello))]);
    let actions = act(&mut agent, 2 * S, Event::FrontDied(Conn(77)));
    let cause = Cause::FrontGone;
    let terminate = ToShepherd::Terminate { cause, kill_after: FRONT_GRACE };
    assert!(actions.contains(&Action::SendShepherd(key, terminate)), "{actions:?}");

    let mut agent = apinit(&[0, 1]);
    assert_eq!(
        act(&mut agent, 2 * S, found(None)),
        [Action::KillGroups { key, shepherd: true }, Action::CheckGroupsEmpty(key)]
    );
    go_through(&mut agent, 2 * S, [Event::GroupsEmpty(key)]);
    let text = "it died while apinit was being restarted".into();
    let first = Decisive {
        at_ns: 2 * S,
        cause: Cause::ShepherdLost { nid: Nid(0), text, fault: Fault::User },
    };
    let lost = HostEnd {
        first: Some(first),
        run: Duration::from_secs(1),
        lost: vec![Nid(0), Nid(1)],
        ..end(key)
    };
    let actions = act(&mut agent, 2 * S, Event::Linked(Box::new(welcome())));
    assert!(actions.contains(&reported(lost, &[0, 1])), "{actions:?}");

    // It is lost after it was found. That its PEs don't go is what this life knows: the former one may have
    // let them go, and nothing is launched twice.
    let mut agent = apinit(&[0, 1]);
    let hello = Hello { key, launched: true, ..Hello::default() };
    go_through(&mut agent, 2 * S, [found(Some(hello))]);
    let text = "it was killed".to_owned();
    go_through(
        &mut agent,
        3 * S,
        [Event::ShepherdLost { key, text: text.clone() }, Event::GroupsEmpty(key)],
    );
    let cause = Cause::ShepherdLost { nid: Nid(0), text, fault: Fault::User };
    let actions = act(&mut agent, 3 * S, Event::Linked(Box::new(welcome())));
    let told = |action: &Action| {
        matches!(action, Action::Report(Report::Ended(end))
            if end.first.as_ref().is_some_and(|first| first.cause == cause))
    };
    assert!(actions.iter().any(told), "{actions:?}");
}

#[test]
fn stdin_beyond_its_credit_is_not_kept() {
    let (mut agent, key) = with_running();
    let stdin = |offset, text| Event::FrontMessage(FRONT, ToApinit::Stdin(piece(offset, text)));
    go_through(&mut agent, 3 * S, [from_shepherd(key, FromShepherd::StdinCredit(credit(4, 0)))]);
    assert_eq!(
        act(&mut agent, 3 * S, stdin(0, "four")),
        [Action::SendShepherd(key, ToShepherd::Stdin(piece(0, "four")))]
    );
    // Said again: the shepherd has it.
    assert_eq!(act(&mut agent, 3 * S, stdin(0, "four")), []);
    assert_eq!(
        act(&mut agent, 3 * S, stdin(4, "!")),
        refused(FRONT, "aprun sent more stdin than its credit allows")
    );
    assert_eq!(agent.next_timer(), Some(13 * S));
}

#[test]
fn pes_give_way_on_the_nodes_that_psched_names() {
    let mut agent = linked(&[0, 1]);
    let key = key(12, 1);
    let place = place(key, &[&[0, 1], &[2]]);
    let yields = Yields { nice: 7, nids: vec![Nid(1), Nid(2)] };
    act(&mut agent, 0, placed(PlaceCommand { yields, ..place }));
    act(&mut agent, 0, Event::ShepherdSpawned(key));
    act(&mut agent, S, opened(FRONT, OWNER));
    let actions = act(&mut agent, S, launch(FRONT, key));
    let nices = actions.iter().find_map(|action| match action {
        Action::SendShepherd(_, ToShepherd::Launch(launch)) => {
            Some(launch.pes.iter().map(|pe| (pe.nid.0, pe.nice)).collect::<Vec<_>>())
        }
        _ => None,
    });
    assert_eq!(nices, Some(vec![(0, 0), (0, 0), (1, 7), (1, 7)]));
    // Before user code runs; of the other host's nodes it says nothing.
    assert_eq!(
        act(&mut agent, 2 * S, from_shepherd(key, FromShepherd::Ready))[..1],
        [Action::Yield { key, nids: vec![Nid(1)], nice: 7 }]
    );
}
