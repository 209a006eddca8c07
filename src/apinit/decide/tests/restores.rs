//! Applications that are brought back from a checkpoint.

use super::*;
use crate::apinit::decide::switcher::News;
use crate::apteam::ending::NOT_THE_PROGRAM;
use crate::apteam::fault::Fault;
use crate::apteam::protocol::node::{Moved, Restart, Restoring, Shift};

const BEFORE: Duration = Duration::from_secs(100);
const SHIFT: Shift = Shift { output: 1000, stdin: 50, clock_ns: -7 };

fn from() -> Key {
    key(3, 2)
}

/// Of application 12.1, once 3.2, on node 1.
fn restart() -> PlaceCommand {
    PlaceCommand {
        restart: Some(Restart { from: from(), run: BEFORE, parts: Vec::new() }),
        ..own(place(key(12, 1), &[&[1]]), 0)
    }
}

fn at(place: PlaceCommand, restoring: Restoring, born: &[u32]) -> Box<PlaceCommand> {
    let born = born.iter().map(|nid| Nid(*nid)).collect();
    let moved = Moved { restoring, born, ..place.moved };
    Box::new(PlaceCommand { moved, ..place })
}

/// Its two processors of node 1 are the host's 2 and 3.
fn restore(place: PlaceCommand) -> Action {
    Action::Restore { place: at(place, Restoring::Begun, &[]), cpus: vec![vec![2, 3]] }
}

/// As its shepherd has it: it was on node 3, and all but 10 bytes of its output had been written.
fn back() -> Event {
    let hello = Hello {
        key: key(12, 1),
        launched: true,
        going: true,
        output_taken: 990,
        stdin_taken: 50,
        ..Hello::default()
    };
    let back = Back { born: vec![Nid(3)], hello, output: 1000, clock_ns: -7 };
    Event::Restored(key(12, 1), Ok(Box::new(back)))
}

fn failed(text: &str) -> Event {
    Event::Restored(key(12, 1), Err(text.into()))
}

fn said(message: ToApinit) -> Event {
    Event::FrontMessage(FRONT, message)
}

/// The launch of it has come.
fn restoring(place: PlaceCommand) -> Agent {
    let mut agent = linked(&[0, 1]);
    let key = place.key;
    go_through(&mut agent, 0, [placed(place), Event::ShepherdSpawned(key)]);
    go_through(&mut agent, S, [opened(FRONT, OWNER), launch(FRONT, key)]);
    agent
}

fn to_shepherd(message: ToShepherd) -> Action {
    Action::SendShepherd(key(12, 1), message)
}

#[test]
fn it_is_placed_launched_brought_back_and_goes() {
    let mut agent = linked(&[0, 1]);
    let (key, place) = (key(12, 1), restart());
    assert_eq!(
        act(&mut agent, 0, placed(place.clone())),
        [Action::MakeAndSpawn { place: Box::new(place.clone()), nids: vec![Nid(1)] }]
    );
    assert_eq!(act(&mut agent, 0, Event::ShepherdSpawned(key)), []);
    agent.apply(S, opened(FRONT, OWNER));
    assert_eq!(
        act(&mut agent, S, launch(FRONT, key)),
        [
            Action::KeepFront(key, FRONT),
            to_front(FromApinit::Accepted),
            Action::Report(Report::Launched(key)),
            restore(place.clone()),
        ]
    );
    // There is no shepherd yet that could hear this.
    assert_eq!(act(&mut agent, S, said(ToApinit::StdinEnd(0))), []);
    assert_eq!(act(&mut agent, S, said(ToApinit::Signal(numbered(1, 10)))), []);
    let mut actions = agent.apply(2 * S, back());
    actions.extend(agent.apply(2 * S, Event::PlacesVerified(key, Ok(()))));
    let comes = actions.iter().find_map(|action| match action {
        Action::Turns(switcher::Event::Comes { going, ran_ns, .. }) => Some((*going, *ran_ns)),
        _ => None,
    });
    assert_eq!(comes, Some((true, 100 * S)), "{actions:?}");
    let mut rest = actions;
    rest.retain(|a| !matches!(a, Action::SetTimer(_) | Action::Turns(_)));
    assert_eq!(
        rest,
        [
            Action::KeepPlace(at(place, Restoring::Done(SHIFT), &[3])),
            to_shepherd(ToShepherd::StdinEnd(50)),
            to_shepherd(ToShepherd::Signal(numbered(1, 10))),
            Action::VerifyPlaces { key, pes: vec![(Nid(1), 2)] },
            to_shepherd(ToShepherd::Go),
            Action::KeepGoing(key, 2 * S),
            to_front(FromApinit::Going),
            Action::Report(Report::Running(key)),
            Action::Report(Report::Movable { key, blocker: None }),
        ]
    );
}

#[test]
fn the_front_end_counts_from_its_own_beginning() {
    let mut agent = restoring(restart());
    let key = key(12, 1);
    all_well(&mut agent, 2 * S, back());
    let written = |offset, text| from_shepherd(key, FromShepherd::Output(output(offset, text)));
    // What the former front end has had, in whole and in part.
    assert_eq!(
        act(&mut agent, 3 * S, written(990, "before")),
        [to_shepherd(ToShepherd::OutputTaken(1000))]
    );
    let seen = Output { nid: Nid(0), ..output(0, "after") };
    assert_eq!(
        act(&mut agent, 3 * S, written(996, "foreafter")),
        [to_front(FromApinit::Output(seen.clone()))]
    );
    // After a break it comes again, and is counted in the same way.
    agent.apply(3 * S, Event::StreamClosed(FRONT));
    agent.apply(3 * S, opened(FRONT, OWNER));
    let resumed = act(&mut agent, 3 * S, resume(FRONT, key, &[(0, 2)]));
    let output = to_front(FromApinit::Output(seen));
    assert!(resumed.contains(&to_shepherd(ToShepherd::OutputTaken(1002))), "{resumed:?}");
    assert!(resumed.contains(&output), "{resumed:?}");
    let taken = |offset| said(ToApinit::OutputTaken(OutputTaken { source: 0, offset }));
    assert_eq!(act(&mut agent, 4 * S, taken(5)), [to_shepherd(ToShepherd::OutputTaken(1005))]);
    // stdin likewise.
    let told = from_shepherd(key, FromShepherd::StdinCredit(credit(60, 50)));
    let credit = to_front(FromApinit::StdinCredit(credit(10, 0)));
    assert_eq!(act(&mut agent, 5 * S, told), [credit]);
    assert_eq!(
        act(&mut agent, 5 * S, said(ToApinit::Stdin(piece(0, "in")))),
        [to_shepherd(ToShepherd::Stdin(piece(50, "in")))]
    );
    assert_eq!(
        act(&mut agent, 5 * S, said(ToApinit::StdinEnd(2))),
        [to_shepherd(ToShepherd::StdinEnd(52))]
    );
}

/// The window of output that it had was set when it was executed, and may have been made smaller since.
#[test]
fn it_may_send_as_much_as_it_could() {
    use crate::variables::Variables;
    let mut agent = restoring(restart());
    let key = key(12, 1);
    all_well(&mut agent, 2 * S, back());
    // As large as it can have been set.
    let most = 64 << 20;
    let mut variables = Variables::default();
    assert!(variables.set("output_max", &u64::to_string(&most)).is_ok());
    assert!(variables.set("output_max", &u64::to_string(&(most + 1))).is_err());
    let much = Output { data: vec![b'x'; 8 << 20].into(), ..output(1000, "") };
    assert!(much.end() < most);
    let told = act(&mut agent, 3 * S, from_shepherd(key, FromShepherd::Output(much)));
    assert!(matches!(told[..], [Action::SendFront(FRONT, FromApinit::Output(_))]), "{told:?}");
}

#[test]
fn where_it_sits_now_and_when_is_told_by_this_host() {
    let mut agent = restoring(restart());
    let key = key(12, 1);
    all_well(&mut agent, 2 * S, back());
    let abort = |nid, at_ns| {
        let cause = Cause::Abort { rank: 0, nid: Nid(nid), code: 1 };
        Decisive { at_ns, cause }
    };
    let first = Some(abort(3, 3 * S - 7));
    let end = HostEnd { first, ..end(key) };
    go_through(&mut agent, 4 * S, [from_shepherd(key, FromShepherd::Ended(Box::new(end.clone())))]);
    let told = act(&mut agent, 5 * S, Event::GroupsEmpty(key));
    let end = HostEnd { first: Some(abort(1, 3 * S)), ..end };
    assert_eq!(told[0], reported(end, &[1]));
}

#[test]
fn one_that_shares_stands_until_its_turn() {
    let mut agent = restoring(PlaceCommand { shares: true, ..restart() });
    let key = key(12, 1);
    let mut actions = agent.apply(2 * S, back());
    actions.extend(agent.apply(2 * S, Event::PlacesVerified(key, Ok(()))));
    let comes = |action: &Action| {
        matches!(action, Action::Turns(switcher::Event::Comes { going: false, .. }))
    };
    assert!(actions.iter().any(comes), "{actions:?}");
    assert!(!actions.contains(&to_front(FromApinit::Going)), "{actions:?}");
    let goes = act(&mut agent, 3 * S, Event::Turns(News::MayGo(key)));
    assert!(goes.contains(&Action::Report(Report::Running(key))), "{goes:?}");
}

#[test]
fn it_waits_for_its_processors() {
    let mut agent = linked(&[0, 1]);
    let (other, key) = (key(9, 1), key(12, 1));
    go_through(&mut agent, 0, [placed(place(other, &[&[1]])), Event::ShepherdSpawned(other)]);
    go_through(&mut agent, 0, [opened(Conn(9), OWNER), launch(Conn(9), other)]);
    go_through(&mut agent, 0, [placed(restart()), Event::ShepherdSpawned(key)]);
    agent.apply(S, opened(FRONT, OWNER));
    let restores = |actions: &[Action]| actions.iter().any(|a| matches!(a, Action::Restore { .. }));
    assert!(!restores(&agent.apply(S, launch(FRONT, key))));
    assert!(!restores(&agent.apply(2 * S, ended(other))));
    assert!(restores(&agent.apply(2 * S, Event::GroupsEmpty(other))));
}

#[test]
fn what_it_had_run_counts_against_its_limit() {
    let limit = Some(BEFORE + Duration::from_secs(5));
    let mut agent = restoring(PlaceCommand { time_limit: limit, ..restart() });
    all_well(&mut agent, 2 * S, back());
    let over = |actions: &[Action]| {
        actions.iter().any(|action| {
            matches!(
                action,
                Action::SendShepherd(
                    _,
                    ToShepherd::Terminate { cause: Cause::TimeLimit { .. }, .. }
                )
            )
        })
    };
    assert!(!over(&agent.apply(7 * S - 1, Event::Tick)));
    assert!(over(&agent.apply(7 * S, Event::Tick)));
}

fn cause(text: &str) -> Cause {
    let (errno, fault) = (NOT_THE_PROGRAM, Fault::User);
    Cause::LaunchFailed { rank: 0, nid: Nid(1), errno, text: text.into(), fault }
}

#[test]
fn what_stood_in_the_way_is_its_end() {
    let mut agent = restoring(restart());
    let key = key(12, 1);
    assert_eq!(
        act(&mut agent, 2 * S, failed("no such file")),
        [Action::KillGroups { key, shepherd: true }, Action::CheckGroupsEmpty(key)]
    );
    let actions = act(&mut agent, 3 * S, Event::GroupsEmpty(key));
    let end = end_of(&actions);
    assert_eq!(end.first.as_ref().map(|first| &first.cause), Some(&cause("no such file")));
    assert_eq!((end.status(), end.launched), (125, false));
    // Its end is known, and so it goes.
    agent.apply(4 * S, Event::Command(2, Command::AcknowledgeEnd(key)));
    assert_eq!(agent.held().0, 0);
}

#[test]
fn one_that_had_not_gone_is_no_use() {
    let mut agent = restoring(restart());
    let Event::Restored(key, Ok(mut back)) = back() else { unreachable!() };
    back.hello.going = false;
    let actions = act(&mut agent, 2 * S, Event::Restored(key, Ok(back)));
    assert_eq!(actions[0], Action::KillGroups { key, shepherd: true });
    let actions = act(&mut agent, 3 * S, Event::GroupsEmpty(key));
    assert_eq!(end_of(&actions).status(), 125);
}

/// Whether it comes back all the same or not: cpr was killed meanwhile.
#[test]
fn one_that_is_to_end_meanwhile_is_killed() {
    for outcome in [back(), failed("it was killed")] {
        let mut agent = restoring(restart());
        let key = key(12, 1);
        let kill = Action::KillGroups { key, shepherd: true };
        let died = act(&mut agent, 2 * S, Event::FrontDied(FRONT));
        assert!(died.contains(&kill), "{died:?}");
        let actions = act(&mut agent, 3 * S, outcome);
        assert_eq!(actions, [kill, Action::CheckGroupsEmpty(key)]);
        let actions = act(&mut agent, 4 * S, Event::GroupsEmpty(key));
        let first = end_of(&actions).first.as_ref();
        assert_eq!(first.map(|first| &first.cause), Some(&Cause::FrontGone));
    }
}

fn found(restoring: Restoring, born: &[u32], hello: Option<Hello>) -> Event {
    let going_ns = hello.as_ref().map(|_| S);
    let place = *at(restart(), restoring, born);
    Event::Found(Box::new(Found {
        place,
        going_ns,
        ran_ns: None,
        hello,
        silent: false,
        away: None,
        front: None,
        gone: false,
        adopted: false,
    }))
}

#[test]
fn another_life_finds_how_far_it_was() {
    let key = key(12, 1);
    // Not begun: it waits for its launch, as before.
    let mut agent = apinit(&[0, 1]);
    assert_eq!(act(&mut agent, 2 * S, found(Restoring::No, &[], None)), []);
    go_through(&mut agent, 2 * S, [Event::Linked(Box::new(welcome())), opened(FRONT, OWNER)]);
    let launched = act(&mut agent, 3 * S, launch(FRONT, key));
    assert!(launched.contains(&restore(restart())));

    // Begun: what is there is ended, and why is said.
    let mut agent = linked(&[0, 1]);
    assert_eq!(
        act(&mut agent, 2 * S, found(Restoring::Begun, &[], None)),
        [Action::KillGroups { key, shepherd: true }, Action::CheckGroupsEmpty(key)]
    );
    let actions = act(&mut agent, 3 * S, Event::GroupsEmpty(key));
    let end = end_of(&actions);
    let interrupted = cause(crate::apinit::decide::restores::INTERRUPTED);
    assert_eq!(end.first.as_ref().map(|first| &first.cause), Some(&interrupted));

    // Done: it goes on, and its front end counts as before.
    let mut agent = linked(&[0, 1]);
    let Event::Restored(_, Ok(back)) = back() else { unreachable!() };
    agent.apply(2 * S, found(Restoring::Done(SHIFT), &[3], Some(back.hello)));
    agent.apply(3 * S, opened(FRONT, OWNER));
    agent.apply(3 * S, resume(FRONT, key, &[(0, 0)]));
    let written = from_shepherd(key, FromShepherd::Output(output(990, "before.....after")));
    let seen = Output { nid: Nid(0), ..output(0, ".after") };
    assert_eq!(act(&mut agent, 3 * S, written), [to_front(FromApinit::Output(seen))]);
}
