//! Ends of every kind.

use super::*;
use crate::apteam::ending::{NOT_THE_PROGRAM, Usage};
use crate::apteam::fault::Fault;

fn terminated(key: Key, cause: Cause, kill_after: Duration) -> Action {
    Action::SendShepherd(key, ToShepherd::Terminate { cause, kill_after })
}

#[test]
fn psched_ends_it_and_only_a_sooner_kill_is_passed_on() {
    let (mut agent, key) = with_running();
    let kill = |signal| Cause::Kill { signal, uid: 0 };
    let terminate = |signal, secs| {
        let kill_after = Duration::from_secs(secs);
        Event::Command(2, Command::Terminate { key, cause: kill(signal), kill_after })
    };
    let secs = Duration::from_secs;
    assert_eq!(act(&mut agent, 3 * S, terminate(15, 300)), [terminated(key, kill(15), secs(300))]);
    assert_eq!(act(&mut agent, 4 * S, terminate(15, 300)), []);
    assert_eq!(act(&mut agent, 5 * S, terminate(9, 0)), [terminated(key, kill(9), secs(0))]);
    assert_eq!(
        act(&mut agent, 5 * S, Event::Command(3, Command::Signal { key, signal: numbered(0, 10) })),
        [Action::SendShepherd(key, ToShepherd::Signal(numbered(0, 10)))]
    );
}

#[test]
fn ended_before_its_launch() {
    let (mut agent, key) = with_placed();
    let cause = Cause::Kill { signal: 15, uid: 0 };
    let terminate = Command::Terminate { key, cause: cause.clone(), kill_after: Duration::ZERO };
    let first = Some(Decisive { at_ns: S, cause: cause.clone() });
    let unlaunched = HostEnd { key, first, ..HostEnd::default() };
    assert_eq!(act(&mut agent, S, Event::Command(2, terminate)), [reported(unlaunched, &[0, 1])]);
    go_through(&mut agent, S, [opened(FRONT, OWNER)]);
    let text = "application 12.1 has ended: killed by root: Terminated (signal 15)".into();
    assert_eq!(
        act(&mut agent, S, launch(FRONT, key)),
        [to_front(FromApinit::Refused { text, cause: Some(cause) }), Action::CloseStream(FRONT)]
    );
    assert_eq!(
        act(&mut agent, S, Event::Command(3, Command::AcknowledgeEnd(key))),
        [Action::Remove(key)]
    );
}

#[test]
fn a_time_limit_counts_from_the_go() {
    let mut agent = linked(&[0]);
    let key = key(12, 1);
    let limit = Duration::from_secs(3);
    let place = PlaceCommand { time_limit: Some(limit), ..place(key, &[&[0]]) };
    go_through(
        &mut agent,
        0,
        [placed(place), Event::ShepherdSpawned(key), opened(FRONT, OWNER), launch(FRONT, key)],
    );
    assert_eq!(agent.next_timer(), None);
    go_through(&mut agent, 10 * S, [from_shepherd(key, FromShepherd::Ready)]);
    assert_eq!(agent.next_timer(), Some(13 * S));
    assert_eq!(act(&mut agent, 13 * S - 1, Event::Tick), []);
    assert_eq!(
        act(&mut agent, 13 * S, Event::Tick),
        [terminated(key, Cause::TimeLimit { limit }, GRACE)]
    );
    assert_eq!(act(&mut agent, 14 * S, Event::Tick), []);
}

/// What was decided before its shepherd was lost gives the status, whether or not anything had been
/// done about it.
#[test]
fn a_time_limit_before_the_loss_of_a_shepherd_decides() {
    let limit = Duration::from_secs(3);
    for (ticked, lost_at, status) in [(true, 14, 124), (false, 14, 124), (false, 12, 125)] {
        let mut agent = linked(&[0]);
        let key = key(12, 1);
        let place = PlaceCommand { time_limit: Some(limit), ..place(key, &[&[0]]) };
        let launched = [placed(place), Event::ShepherdSpawned(key), opened(FRONT, OWNER)];
        go_through(&mut agent, 0, launched);
        go_through(&mut agent, 0, [launch(FRONT, key)]);
        go_through(&mut agent, 10 * S, [from_shepherd(key, FromShepherd::Ready)]);
        if ticked {
            go_through(&mut agent, 13 * S, [Event::Tick]);
        }
        let text = "it died: Killed (signal 9)".into();
        go_through(&mut agent, lost_at * S, [Event::ShepherdLost { key, text }]);
        let actions = act(&mut agent, lost_at * S, Event::GroupsEmpty(key));
        let ended = actions.iter().find_map(|action| match action {
            Action::Report(Report::Ended(end)) => Some(end.status()),
            _ => None,
        });
        assert_eq!(ended, Some(status), "{actions:?}");
    }
}

#[test]
fn what_a_shepherd_does_not_kill_its_apinit_kills() {
    let (mut agent, key) = with_running();
    let kill = |signal| Cause::Kill { signal, uid: 0 };
    let terminate = |signal, secs| {
        let kill_after = Duration::from_secs(secs);
        Event::Command(2, Command::Terminate { key, cause: kill(signal), kill_after })
    };
    act(&mut agent, 3 * S, terminate(15, 300));
    assert_eq!(agent.next_timer(), Some(308 * S));
    act(&mut agent, 4 * S, terminate(9, 0));
    assert_eq!(agent.next_timer(), Some(9 * S));
    let killed = [Action::KillGroups { key, shepherd: false }];
    assert_eq!(act(&mut agent, 9 * S - 1, Event::Tick), []);
    assert_eq!(act(&mut agent, 9 * S, Event::Tick), killed);
    assert_eq!(agent.next_timer(), Some(39 * S));
    assert_eq!(act(&mut agent, 39 * S, Event::Tick), killed);
    // It was stopped, and sees its PEs dead before it reads why. The first decision stands.
    let cause = Cause::PeSignal { rank: 0, nid: Nid(0), signal: 9 };
    let seen = Decisive { at_ns: 39 * S, cause };
    let told = from_shepherd(key, FromShepherd::Decisive(seen.clone()));
    assert_eq!(act(&mut agent, 39 * S, told), []);
    let late = HostEnd { first: Some(seen), ..end(key) };
    let told = from_shepherd(key, FromShepherd::Ended(Box::new(late)));
    assert_eq!(act(&mut agent, 39 * S, told), [Action::CheckGroupsEmpty(key)]);
    assert_eq!(agent.next_timer(), None);
    let first = Some(Decisive { at_ns: 3 * S, cause: kill(15) });
    let ended = reported(HostEnd { first, ..end(key) }, &[0, 1]);
    assert!(act(&mut agent, 40 * S, Event::GroupsEmpty(key)).contains(&ended));
}

/// The PEs had ended by themselves, and their shepherd only waited for its output to be taken.
#[test]
fn an_end_before_the_kill_stands() {
    for first in
        [None, Some(Decisive { at_ns: S, cause: Cause::PeExit { rank: 0, nid: Nid(0), code: 3 } })]
    {
        let (mut agent, key) = with_running();
        let kill_after = Duration::ZERO;
        let cause = Cause::Kill { signal: 9, uid: 0 };
        let kill = Event::Command(2, Command::Terminate { key, cause, kill_after });
        go_through(&mut agent, 3 * S, [kill]);
        go_through(&mut agent, 8 * S, [Event::Tick]);
        let own = HostEnd { first, ..end(key) };
        let told = from_shepherd(key, FromShepherd::Ended(Box::new(own.clone())));
        go_through(&mut agent, 9 * S, [told]);
        let actions = act(&mut agent, 9 * S, Event::GroupsEmpty(key));
        assert!(actions.contains(&reported(own, &[0, 1])), "{actions:?}");
    }
}

#[test]
fn stdout_closed() {
    let (mut agent, key) = with_running();
    // A front end can speak of itself only.
    for (said, believed) in [
        (FrontReason::StdoutClosed, Cause::StdoutClosed),
        (FrontReason::Withdrawn { signal: 9 }, Cause::FrontGone),
    ] {
        let kill_after = match said {
            FrontReason::StdoutClosed => Duration::from_secs(5),
            _ => Duration::from_secs(1),
        };
        let message = ToApinit::Terminate { reason: said, kill_after };
        assert_eq!(
            act(&mut agent, 3 * S, Event::FrontMessage(FRONT, message)),
            [terminated(key, believed, kill_after)]
        );
    }
}

#[test]
fn a_pe_decides_on_one_host() {
    let (mut agent, key) = with_running();
    let decisive =
        |cause| from_shepherd(key, FromShepherd::Decisive(Decisive { at_ns: 3 * S, cause }));
    let exit = Cause::PeExit { rank: 0, nid: Nid(0), code: 3 };
    let abort = Cause::Abort { rank: 0, nid: Nid(0), code: 3 };
    assert_eq!(act(&mut agent, 3 * S, decisive(exit)), []);
    // The shepherd has begun to end the others here by itself.
    assert_eq!(act(&mut agent, 3 * S, decisive(abort)), []);
    // It is too late for anything that would take longer.
    let cause = Cause::Kill { signal: 15, uid: 0 };
    let late = Command::Terminate { key, cause, kill_after: Duration::from_secs(300) };
    assert_eq!(act(&mut agent, 3 * S, Event::Command(2, late)), []);
}

#[test]
fn what_does_not_die_is_told() {
    let (mut agent, key) = with_running();
    let said = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
    let stuck =
        |texts: &[&str]| Action::Report(Report::Stuck { key, nid: Nid(0), processes: said(texts) });
    let from = |texts: &[&str]| from_shepherd(key, FromShepherd::Stuck(said(texts)));
    assert_eq!(act(&mut agent, 3 * S, from(&["pid 7"])), [stuck(&["pid 7"])]);
    assert_eq!(act(&mut agent, 3 * S, from(&["pid 7"])), []);
    // psched keeps no record of it.
    act(&mut agent, 4 * S, Event::Unlinked);
    let welcome = agent.welcome.clone().expect("it has one");
    assert!(act(&mut agent, 4 * S, Event::Linked(Box::new(welcome))).contains(&stuck(&["pid 7"])));
    // Its shepherd is lost: the groups tell, and here is nobody else to tell the front end.
    let text = "killed".into();
    act(&mut agent, 5 * S, Event::ShepherdLost { key, text });
    let left = |texts: &[&str]| Event::GroupsStuck { key, processes: 1, named: said(texts) };
    let again = [Action::KillGroups { key, shepherd: true }, Action::CheckGroupsEmpty(key)];
    assert_eq!(act(&mut agent, 6 * S, left(&["pid 7"])), again);
    let actions = act(&mut agent, 7 * S, left(&["pid 7", "pid 8"]));
    let line = to_front(FromApinit::Notice(Notice::Process("pid 8".into())));
    assert_eq!(actions, [again.as_slice(), &[line, stuck(&["pid 7", "pid 8"])]].concat());
    // It is over: nothing is stuck any more.
    act(&mut agent, 8 * S, Event::GroupsEmpty(key));
    act(&mut agent, 8 * S, Event::Unlinked);
    let welcome = agent.welcome.clone().expect("it has one");
    let actions = act(&mut agent, 9 * S, Event::Linked(Box::new(welcome)));
    assert!(!actions.contains(&stuck(&["pid 7", "pid 8"])), "{actions:?}");
}

#[test]
fn the_groups_know_what_was_used() {
    let seconds = Duration::from_secs;
    for (utime, stime, known) in [(3, 2, (3, 2)), (1, 0, (2, 1))] {
        let (mut agent, key) = with_running();
        let usage =
            Usage { utime: seconds(2), stime: seconds(1), max_rss_kib: 7, ..Usage::default() };
        let ended = HostEnd { usage, ..end(key) };
        let message = from_shepherd(key, FromShepherd::Ended(Box::new(ended)));
        act(&mut agent, 2 * S, message);
        let (utime, stime) = (seconds(utime), seconds(stime));
        assert_eq!(act(&mut agent, 2 * S, Event::GroupsUsed { key, utime, stime }), []);
        let usage = Usage { utime: seconds(known.0), stime: seconds(known.1), ..usage };
        assert_eq!(
            act(&mut agent, 2 * S, Event::GroupsEmpty(key))[0],
            reported(HostEnd { usage, ..end(key) }, &[0, 1])
        );
    }
}

/// A PE that no freezer holds would run beside other gangs.
#[test]
fn nothing_runs_where_a_pe_is_outside_of_its_group() {
    let (mut agent, key) = with_launched();
    assert_eq!(
        agent.apply(2 * S, from_shepherd(key, FromShepherd::Ready)),
        [Action::VerifyPlaces { key, pes: vec![(Nid(0), 2), (Nid(1), 2)] }]
    );
    let found = || Event::PlacesVerified(key, Err("process 7 of it was found in /x".into()));
    let actions = act(&mut agent, 2 * S, found());
    let text = "process 7 of it was found in /x".to_owned();
    let cause = Cause::LaunchFailed {
        rank: 0,
        nid: Nid(0),
        errno: NOT_THE_PROGRAM,
        text,
        fault: Fault::Busy,
    };
    assert!(actions.contains(&terminated(key, cause, Duration::ZERO)), "{actions:?}");
    let go = Action::SendShepherd(key, ToShepherd::Go);
    let later = [Event::PlacesVerified(key, Ok(())), Event::Tick];
    for event in later {
        assert!(!agent.apply(2 * S, event).contains(&go));
    }
    // Nor is it ended twice.
    assert!(!act(&mut agent, 3 * S, found()).iter().any(|a| matches!(a, Action::SendShepherd(..))));
}

#[test]
fn a_launch_fails() {
    let (mut agent, key) = with_launched();
    let cause = Cause::LaunchFailed {
        rank: 1,
        nid: Nid(0),
        errno: 2,
        text: "no such file".into(),
        fault: Fault::User,
    };
    let first = Decisive { at_ns: 2 * S, cause };
    assert_eq!(act(&mut agent, 2 * S, from_shepherd(key, FromShepherd::Failed(first.clone()))), []);
    // Ready that comes now makes nothing go.
    assert_eq!(act(&mut agent, 2 * S, from_shepherd(key, FromShepherd::Ready)), []);
    let failed = HostEnd { key, first: Some(first), ..HostEnd::default() };
    let message = FromShepherd::Ended(Box::new(failed.clone()));
    assert_eq!(
        act(&mut agent, 2 * S, from_shepherd(key, message)),
        [Action::CheckGroupsEmpty(key)]
    );
    assert_eq!(
        act(&mut agent, 2 * S, Event::GroupsEmpty(key)),
        [reported(failed, &[0, 1]), to_front(FromApinit::Done)]
    );
}

#[test]
fn a_shepherd_cannot_be_made() {
    let mut agent = linked(&[0]);
    let key = key(12, 1);
    go_through(&mut agent, 0, [placed(place(key, &[&[0]]))]);
    let text = "apshepherd is not there".to_string();
    let cause = Cause::ShepherdLost { nid: Nid(0), text: text.clone(), fault: Fault::Node };
    let first = Some(Decisive { at_ns: S, cause });
    assert_eq!(
        act(&mut agent, S, Event::SpawnFailed { key, text }),
        [reported(HostEnd { key, first, lost: vec![Nid(0)], ..HostEnd::default() }, &[0])]
    );
    assert_eq!(
        act(&mut agent, S, Event::Command(2, Command::AcknowledgeEnd(key))),
        [Action::Remove(key)]
    );
}

#[test]
fn a_shepherd_is_lost() {
    let (mut agent, key) = with_running();
    let text = "killed by signal 9".to_string();
    assert_eq!(
        act(&mut agent, 5 * S, Event::ShepherdLost { key, text: text.clone() }),
        [Action::KillGroups { key, shepherd: true }, Action::CheckGroupsEmpty(key)]
    );
    assert_eq!(
        act(&mut agent, 5 * S, Event::GroupsStuck { key, processes: 2, named: vec![] }),
        [Action::KillGroups { key, shepherd: true }, Action::CheckGroupsEmpty(key)]
    );
    let cause = Cause::ShepherdLost { nid: Nid(0), text, fault: Fault::Busy };
    let lost = HostEnd {
        first: Some(Decisive { at_ns: 5 * S, cause }),
        leftovers: 2,
        run: Duration::from_secs(3),
        lost: vec![Nid(0), Nid(1)],
        ..end(key)
    };
    assert_eq!(
        act(&mut agent, 6 * S, Event::GroupsEmpty(key)),
        [reported(lost, &[0, 1]), to_front(FromApinit::Done)]
    );
    assert_eq!(
        act(&mut agent, 6 * S, Event::Command(2, Command::AcknowledgeEnd(key))),
        [Action::CloseStream(FRONT), Action::Remove(key)]
    );
}

#[test]
fn a_shepherd_that_goes_home_is_not_lost() {
    let (mut agent, key) = with_running();
    go_through(&mut agent, 5 * S, [ended(key), Event::GroupsEmpty(key)]);
    let text = "exited".to_string();
    assert_eq!(act(&mut agent, 5 * S, Event::ShepherdLost { key, text }), []);
}

#[test]
fn processes_that_hide_are_found_in_the_groups() {
    let (mut agent, key) = with_running();
    go_through(&mut agent, 5 * S, [ended(key)]);
    assert_eq!(
        act(&mut agent, 5 * S, Event::GroupsStuck { key, processes: 3, named: vec![] }),
        [Action::KillGroups { key, shepherd: false }, Action::CheckGroupsEmpty(key)]
    );
    assert_eq!(
        act(&mut agent, 5 * S, Event::GroupsEmpty(key)),
        [reported(HostEnd { leftovers: 3, ..end(key) }, &[0, 1]), to_front(FromApinit::Done)]
    );
}

#[test]
fn a_front_end_that_stays_away_does_not_keep_the_record_for_ever() {
    let (mut agent, key) = with_running();
    go_through(
        &mut agent,
        5 * S,
        [Event::StreamClosed(FRONT), ended(key), Event::GroupsEmpty(key)],
    );
    // The shepherd stays: an apinit that is killed now finds its hello, and knows the end.
    assert_eq!(act(&mut agent, 6 * S, Event::Command(2, Command::AcknowledgeEnd(key))), []);
    assert_eq!(agent.next_timer(), Some(35 * S));
    assert_eq!(
        act(&mut agent, 35 * S, Event::Tick),
        [Action::CloseStream(FRONT), Action::Remove(key)]
    );
}

#[test]
fn a_front_end_that_comes_back_after_the_end_is_told_that_it_is_over() {
    let (mut agent, key) = with_running();
    go_through(
        &mut agent,
        5 * S,
        [Event::StreamClosed(FRONT), ended(key), Event::GroupsEmpty(key)],
    );
    let back = Conn(2);
    go_through(&mut agent, 6 * S, [opened(back, OWNER)]);
    assert_eq!(
        act(&mut agent, 6 * S, resume(back, key, &[])),
        [
            Action::CloseStream(FRONT),
            Action::KeepFront(key, back),
            Action::SendFront(back, FromApinit::Accepted),
            Action::SendFront(back, FromApinit::Going),
            Action::SendFront(back, FromApinit::Done),
        ]
    );
}

#[test]
fn an_end_is_stamped_with_the_clock_of_psched() {
    let mut agent = apinit(&[0, 1]);
    let key = key(12, 1);
    // Another host's, which has been up for longer.
    let theirs = Welcome { mono_ns: 1_000 * S, boot_id: "theirs".into(), ..welcome() };
    go_through(
        &mut agent,
        10 * S,
        [
            Event::Linked(Box::new(theirs)),
            placed(place(key, &[&[0, 1]])),
            Event::SpawnFailed { key, text: "no".into() },
        ],
    );
    let again = act(&mut agent, 12 * S, Event::Tick);
    let at = again.iter().find_map(|a| match a {
        Action::Report(Report::Ended(end)) => end.first.as_ref().map(|d| d.at_ns),
        _ => None,
    });
    assert_eq!(at, Some(1_000 * S), "{again:?}");
}
