//! Applications that share their processors: when they go, what they run, and how they end.

use super::*;
use crate::apinit::decide::clock::Reading;
use crate::apinit::decide::switcher::News;
use crate::apinit::decide::switcher::Ran;
use crate::apinit::decide::switcher::{Event as TurnEvent, Gang};
use crate::apinit::decide::turns::TURN_WAIT;
use crate::apteam::protocol::turns::{PlannedSlice, Switch, Switches};

fn sharing(number: u64) -> PlaceCommand {
    PlaceCommand { shares: true, ..place(key(number, 1), &[&[0]]) }
}

/// An application of its own front end that stands ready.
fn stands(agent: &mut Agent, number: u64, place: PlaceCommand) -> Vec<Action> {
    let (key, conn) = (place.key, Conn(number));
    go_through(agent, 0, [placed(place), Event::ShepherdSpawned(key)]);
    go_through(agent, 0, [opened(conn, OWNER), launch(conn, key)]);
    all_well(agent, S, from_shepherd(key, FromShepherd::Ready))
}

fn told(actions: &[Action]) -> Vec<&TurnEvent> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::Turns(event) => Some(event),
            _ => None,
        })
        .collect()
}

fn go(key: Key) -> Action {
    Action::SendShepherd(key, ToShepherd::Go)
}

fn comes(number: u64, going: bool) -> TurnEvent {
    let gang = Gang {
        key: key(number, 1),
        processors: vec![(Nid(0), 0), (Nid(0), 1)],
        spread: false,
        whole: true,
    };
    TurnEvent::Comes { gang, going, frozen: false, ran_ns: 0 }
}

fn may_go(number: u64) -> Event {
    Event::Turns(News::MayGo(key(number, 1)))
}

/// Two that share all; both go.
fn two() -> Agent {
    let mut agent = linked(&[0]);
    for number in [1, 2] {
        stands(&mut agent, number, sharing(number));
        agent.apply(S, may_go(number));
    }
    agent
}

#[test]
fn who_shares_goes_when_the_switcher_says_so() {
    let mut agent = linked(&[0]);
    for number in [1, 2] {
        let key = key(number, 1);
        let ready = stands(&mut agent, number, sharing(number));
        assert_eq!(told(&ready), [&comes(number, false)]);
        assert!(!ready.contains(&go(key)));
        let goes = agent.apply(S, may_go(number));
        assert!(goes.contains(&go(key)) && goes.contains(&Action::Report(Report::Running(key))));
        assert_eq!(agent.apply(S, may_go(number)), []);
    }
}

#[test]
fn who_shares_with_nobody_waits_for_all_and_goes_at_once() {
    let mut agent = linked(&[0]);
    stands(&mut agent, 1, sharing(1));
    agent.apply(S, may_go(1));
    let alone = PlaceCommand { shares: false, ..sharing(2) };
    assert_eq!(stands(&mut agent, 2, alone), [], "it has not got its launch");
    let last = [ended(key(1, 1)), Event::GroupsEmpty(key(1, 1))];
    let actions: Vec<Action> = last.into_iter().flat_map(|h| agent.apply(2 * S, h)).collect();
    assert!(told(&actions).contains(&&TurnEvent::Goes(key(1, 1))));
    let launch = |a: &Action| matches!(a, Action::SendShepherd(_, ToShepherd::Launch(_)));
    assert!(actions.iter().any(launch), "{actions:?}");
    let ready = all_well(&mut agent, 3 * S, from_shepherd(key(2, 1), FromShepherd::Ready));
    assert_eq!(told(&ready), [&comes(2, true)]);
    assert!(ready.contains(&go(key(2, 1))));
    // And who shares waits for it.
    let third = sharing(3);
    go_through(&mut agent, 4 * S, [placed(third.clone()), Event::ShepherdSpawned(third.key)]);
    go_through(&mut agent, 4 * S, [opened(Conn(3), OWNER)]);
    assert!(!agent.apply(4 * S, super::launch(Conn(3), third.key)).iter().any(launch));
}

#[test]
fn one_that_is_found_again_is_known_with_what_it_has_run() {
    let mut agent = apinit(&[0]);
    let place = sharing(1);
    let hello = Hello { key: place.key, launched: true, going: true, ..Hello::default() };
    let found = Found {
        place,
        going_ns: Some(S),
        ran_ns: Some(2 * S),
        hello: Some(hello),
        silent: false,
        away: None,
        front: None,
        gone: false,
        adopted: false,
    };
    let actions = agent.apply(9 * S, Event::Found(Box::new(found)));
    let TurnEvent::Comes { gang, .. } = comes(1, true) else { unreachable!() };
    let known = TurnEvent::Comes { gang, going: true, frozen: false, ran_ns: 2 * S };
    assert_eq!(told(&actions), [&known]);
}

fn plan(generation: u64, agreed: bool, members: &[u64]) -> SlicePlan {
    let party: Vec<Key> = members.iter().map(|number| key(*number, 1)).collect();
    SlicePlan {
        generation,
        begins_ns: 5 * S,
        from_ns: 5 * S,
        agreed,
        members: party.clone(),
        slices: vec![PlannedSlice { length: Duration::from_secs(1), party }],
        takers: Vec::new(),
    }
}

fn planned(plan: SlicePlan) -> Event {
    Event::Command(9, Command::Plan(Box::new(plan)))
}

#[test]
fn plans_are_kept_as_long_as_somebody_may_obey_them() {
    let mut agent = two();
    let first = plan(7, true, &[1, 2]);
    let actions = act(&mut agent, 2 * S, planned(first.clone()));
    let expected = [
        Action::Turns(TurnEvent::Plan(first.clone())),
        Action::KeepPlans(vec![first.clone()]),
        Action::Report(Report::PlanTaken(7)),
    ];
    assert_eq!(actions, expected);
    let second = plan(8, false, &[1, 2]);
    act(&mut agent, 6 * S, planned(second.clone()));
    let agreed = SlicePlan { agreed: true, ..second };
    let actions = act(&mut agent, 6 * S, Event::Command(10, Command::AgreePlan(8)));
    let expected = [
        Action::Turns(TurnEvent::Agree(8)),
        Action::Turns(TurnEvent::Withdraw(7)),
        Action::KeepPlans(vec![agreed]),
    ];
    assert_eq!(actions, expected);
    let actions = act(&mut agent, 6 * S, Event::Command(11, Command::WithdrawPlan(8)));
    assert_eq!(actions, [Action::Turns(TurnEvent::Withdraw(8)), Action::KeepPlans(vec![])]);
    assert_eq!(act(&mut agent, 6 * S, Event::Command(12, Command::WithdrawPlan(8))), []);
    // It names nobody who is here any more.
    act(&mut agent, 7 * S, planned(plan(9, true, &[1])));
    go_through(&mut agent, 7 * S, [ended(key(1, 1)), Event::GroupsEmpty(key(1, 1))]);
    let acknowledged = Event::Command(13, Command::AcknowledgeEnd(key(1, 1)));
    let actions = act(&mut agent, 7 * S, acknowledged);
    assert!(actions.contains(&Action::Turns(TurnEvent::Withdraw(9))), "{actions:?}");
}

#[test]
fn times_of_plans_and_changes_are_of_two_clocks() {
    let mut agent = apinit(&[0]);
    let away = Welcome { boot_id: "another".into(), mono_ns: 100 * S, ..welcome() };
    agent.apply(10 * S, Event::Linked(Box::new(away)));
    let begins = |actions: &[Action]| match told(actions)[..] {
        [TurnEvent::Plan(plan)] => plan.begins_ns,
        _ => panic!("{actions:?}"),
    };
    let at = |begins_ns| planned(SlicePlan { begins_ns, ..plan(7, true, &[1]) });
    assert_eq!(begins(&agent.apply(10 * S, at(101 * S))), 11 * S);
    // Before this host was there: as far in its round.
    assert_eq!(begins(&agent.apply(10 * S, at(S / 4))), S / 4);
    let switch = Switch { due_ns: 11 * S, began_ns: 12 * S, ..Switch::default() };
    let switches = Switches { switches: vec![switch.clone()], ..Switches::default() };
    let news = Event::Turns(News::Switches(Box::new(switches.clone())));
    let switch = Switch { due_ns: 101 * S, began_ns: 102 * S, ..switch };
    let switches = Switches { switches: vec![switch], ..switches };
    let reported = Action::Report(Report::Switches(Box::new(switches)));
    assert_eq!(act(&mut agent, 13 * S, news), [reported]);
}

/// What is known of psched's clock gets better with each exchange, and clocks drift.
#[test]
fn plans_follow_what_is_known_of_psched_s_clock() {
    let mut agent = apinit(&[0]);
    let away = Welcome { boot_id: "another".into(), mono_ns: 100 * S, ..welcome() };
    agent.apply(10 * S, Event::Linked(Box::new(away.clone())));
    let from = SlicePlan { begins_ns: 101 * S, from_ns: 102 * S, ..plan(7, true, &[1]) };
    agent.apply(10 * S, planned(from));
    let read = |ahead_ns| Event::Clock(Reading { ahead_ns, error_ns: 1 });
    let ahead = 90 * i128::from(S);
    let times = |actions: &[Action]| match told(actions)[..] {
        [TurnEvent::Plan(plan)] => Some((plan.begins_ns, plan.from_ns)),
        [] => None,
        _ => panic!("{actions:?}"),
    };
    // psched's welcome was three milliseconds on the way.
    let better = ahead + 3_000_000;
    let stepped = agent.apply(11 * S, read(better));
    assert_eq!(times(&stepped), Some((11 * S - 3_000_000, 12 * S - 3_000_000)));
    assert!(stepped.iter().any(|action| matches!(action, Action::KeepPlans(_))));
    assert_eq!(times(&agent.apply(11 * S, read(better + 10_000))), None, "no step at all");
    // Another connection of the same psched knows no better.
    agent.apply(12 * S, Event::Linked(Box::new(away)));
    assert_eq!(times(&agent.apply(12 * S, read(better))), None);
}

/// Times of plans that a former life of this apinit has kept are right, whatever this one knows yet.
#[test]
fn plans_of_a_former_life_keep_their_times() {
    let kept = SlicePlan { begins_ns: 5 * S, from_ns: 5 * S, ..plan(3, true, &[1]) };
    let mut agent = apinit(&[0]).planned(vec![kept]);
    let away = Welcome { boot_id: "another".into(), mono_ns: 100 * S, ..welcome() };
    agent.apply(10 * S, Event::Linked(Box::new(away)));
    let read = |ahead_ns| Event::Clock(Reading { ahead_ns, error_ns: 1 });
    let ahead = 90 * i128::from(S) + 3_000_000;
    assert!(told(&agent.apply(11 * S, read(ahead))).is_empty());
    // From now on it is as good as a new one.
    let later = agent.apply(12 * S, read(ahead + 1_000_000));
    let [TurnEvent::Plan(plan)] = told(&later)[..] else { panic!("{later:?}") };
    assert_eq!(plan.begins_ns, 5 * S - 1_000_000);
}

#[test]
fn a_time_limit_counts_time_run() {
    let mut agent = linked(&[0]);
    let limit = Duration::from_secs(10);
    stands(&mut agent, 1, PlaceCommand { time_limit: Some(limit), ..sharing(1) });
    agent.apply(S, may_go(1));
    let key = key(1, 1);
    let asks = |actions: &[Action]| actions.contains(&Action::TellRan(key));
    assert!(!asks(&agent.apply(10 * S, Event::Tick)));
    assert!(asks(&agent.apply(11 * S, Event::Tick)));
    // (Who is busy is not asked all the time.)
    assert_eq!(agent.apply(11 * S, Event::Tick), []);
    assert!(asks(&agent.apply(11 * S + 10_000_000, Event::Tick)));
    let ran = |ns| Event::Ran(key, Ran { ns, since_ns: None });
    assert_eq!(agent.apply(11 * S, ran(4 * S)), [Action::SetTimer(Some(17 * S))]);
    assert!(asks(&agent.apply(17 * S, Event::Tick)));
    let over = agent.apply(17 * S, ran(10 * S));
    assert!(told(&over).contains(&&TurnEvent::Watch(key)), "{over:?}");
    let ends = agent.apply(18 * S, Event::Turns(News::HasTurn(key)));
    let terminate = ToShepherd::Terminate { cause: Cause::TimeLimit { limit }, kill_after: GRACE };
    assert!(ends.contains(&Action::SendShepherd(key, terminate)), "{ends:?}");
}

#[test]
fn what_it_has_run_is_in_its_end() {
    let mut agent = two();
    let key = key(1, 1);
    go_through(&mut agent, 3 * S, [ended(key)]);
    let ran = Event::Ran(key, Ran { ns: S / 4, since_ns: None });
    go_through(&mut agent, 3 * S, [ran]);
    let run = Duration::from_millis(250);
    // The rest of the time others had their turn.
    let end = HostEnd { run, frozen: end(key).run - run, ..end(key) };
    let actions = act(&mut agent, 3 * S, Event::GroupsEmpty(key));
    assert!(actions.contains(&reported(end, &[0])), "{actions:?}");
}

/// psched has not heard of it otherwise.
#[test]
fn a_signal_of_its_front_end_asks_for_an_early_turn() {
    let mut agent = two();
    let signal = Event::FrontMessage(Conn(1), ToApinit::Signal(numbered(1, 2)));
    let key = key(1, 1);
    assert_eq!(
        act(&mut agent, 10 * S, signal),
        [
            Action::SendShepherd(key, ToShepherd::Signal(numbered(1, 2))),
            Action::Report(Report::ToHear { key, ends: false })
        ]
    );
}

/// Its shepherd may wait for ever for what its user has laid in its way, and no output is lost by
/// its death.
#[test]
fn the_backstop_ends_the_shepherd_of_one_that_has_not_gone() {
    let cause = Cause::Kill { uid: 0, signal: 9 };
    for gone in [false, true] {
        let (mut agent, key) = if gone { with_running() } else { with_launched() };
        let cause = cause.clone();
        let kill_after = Duration::ZERO;
        act(&mut agent, 10 * S, Event::Command(9, Command::Terminate { key, cause, kill_after }));
        let actions = act(&mut agent, 10 * S + ns(BACKSTOP), Event::Tick);
        assert!(actions.contains(&Action::KillGroups { key, shepherd: !gone }), "{actions:?}");
    }
}

#[test]
fn a_grace_begins_with_the_next_turn() {
    let cause = Cause::Kill { uid: 0, signal: 15 };
    let key = key(1, 1);
    let end = |kill_after| {
        Event::Command(9, Command::Terminate { key, cause: cause.clone(), kill_after })
    };
    let tell = |kill_after| {
        Action::SendShepherd(key, ToShepherd::Terminate { cause: cause.clone(), kill_after })
    };
    let watch = Action::Turns(TurnEvent::Watch(key));
    let mut agent = two();
    let early = Action::Report(Report::ToHear { key, ends: true });
    assert_eq!(act(&mut agent, 10 * S, end(GRACE)), [watch, early]);
    let turn = Event::Turns(News::HasTurn(key));
    assert_eq!(act(&mut agent, 14 * S, turn.clone()), [tell(GRACE)]);
    assert_eq!(act(&mut agent, 14 * S, turn), []);
    let backstop = |agent: &mut Agent, at| !act(agent, at, Event::Tick).is_empty();
    let (grace, wait) = (ns(GRACE) + ns(BACKSTOP), ns(TURN_WAIT));
    assert!(!backstop(&mut agent, 14 * S + grace - 1) && backstop(&mut agent, 14 * S + grace));
    // KILL waits for nobody, not even where TERM does.
    let mut agent = two();
    act(&mut agent, 10 * S, end(GRACE));
    assert_eq!(act(&mut agent, 11 * S, end(Duration::ZERO)), [tell(Duration::ZERO)]);
    // It has no turn; and to say it again does not put it off.
    let mut agent = two();
    act(&mut agent, 10 * S, end(GRACE));
    act(&mut agent, 20 * S, end(GRACE));
    assert_eq!(act(&mut agent, 10 * S + wait - 1, Event::Tick), []);
    assert_eq!(act(&mut agent, 10 * S + wait, Event::Tick), [tell(GRACE)]);
}
