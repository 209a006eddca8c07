//! psched's commands, and where records and node disagree.

use super::*;

fn command(seq: u64, command: Command) -> Event {
    Event::Command(seq, command)
}

#[test]
fn taken_back() {
    let (mut agent, key) = with_placed();
    assert_eq!(
        act(&mut agent, S, command(2, Command::TakeBack { key, number: 72 })),
        [Action::Remove(key), Action::Report(Report::TakenBack { key, number: 72 })]
    );
    // Said again, or never placed here.
    assert_eq!(
        act(&mut agent, S, command(3, Command::TakeBack { key, number: 73 })),
        [Action::Report(Report::TakenBack { key, number: 73 })]
    );
    go_through(&mut agent, S, [opened(FRONT, OWNER)]);
    assert_eq!(act(&mut agent, S, launch(FRONT, key)), []);
    assert_eq!(act(&mut agent, 11 * S, Event::Tick).len(), 2);
}

#[test]
fn taken_back_too_late() {
    let (mut agent, key) = with_launched();
    assert_eq!(
        act(&mut agent, S, command(2, Command::TakeBack { key, number: 72 })),
        [Action::Report(Report::Launched(key))]
    );
}

#[test]
fn a_newer_incarnation_ends_the_older() {
    let (mut agent, old) = with_running();
    let new = key(12, 2);
    let actions = act(&mut agent, 3 * S, command(5, Command::Place(Box::new(place(new, &[&[0]])))));
    let terminate = ToShepherd::Terminate { cause: Cause::NoRecord, kill_after: GRACE };
    assert!(actions.contains(&Action::SendShepherd(old, terminate)), "{actions:?}");
    // It waits until the old one is empty; nobody hears of that one's end.
    go_through(&mut agent, 3 * S, [Event::ShepherdSpawned(new), opened(Conn(2), OWNER)]);
    let is_launch = |a: &Action| matches!(a, Action::SendShepherd(_, ToShepherd::Launch(_)));
    assert!(!act(&mut agent, 3 * S, launch(Conn(2), new)).iter().any(is_launch));
    go_through(&mut agent, 3 * S, [ended(old)]);
    let actions = act(&mut agent, 4 * S, Event::GroupsEmpty(old));
    assert!(actions.iter().any(is_launch), "{actions:?}");
    assert!(actions.contains(&Action::Remove(old)), "{actions:?}");
    let is_report = |a: &Action| matches!(a, Action::Report(_));
    assert!(!actions.iter().any(is_report), "{actions:?}");
    // An older one is stale.
    assert_eq!(act(&mut agent, 4 * S, placed(place(old, &[&[0, 1]]))), []);
}

#[test]
fn discarded() {
    let (mut agent, key) = with_running();
    let terminate = ToShepherd::Terminate { cause: Cause::NoRecord, kill_after: GRACE };
    assert_eq!(
        act(&mut agent, 3 * S, command(2, Command::Discard(key))),
        [to_front(FromApinit::Notice(Notice::NoRecord)), Action::SendShepherd(key, terminate),]
    );
    assert_eq!(
        act(&mut agent, 3 * S, Event::Linked(Box::new(welcome()))),
        [Action::Remember(welcome()), Action::Inventory { items: vec![], last_command: 2 },]
    );
    go_through(&mut agent, 4 * S, [ended(key)]);
    assert_eq!(
        act(&mut agent, 4 * S, Event::GroupsEmpty(key)),
        [to_front(FromApinit::Done), Action::CloseStream(FRONT), Action::Remove(key),]
    );
}

#[test]
fn placements_that_cannot_be() {
    let ends_with = |agent: &mut Agent, place: PlaceCommand, needle: &str| {
        let actions = act(agent, 0, placed(place));
        let [Action::Report(Report::Ended(end))] = &actions[..] else { panic!("{actions:?}") };
        let text = end.first.as_ref().map(|d| d.cause.to_string()).unwrap_or_default();
        assert!(text.contains(needle) && !end.launched, "{text}");
        let acknowledge = Command::AcknowledgeEnd(end.key);
        let forgotten = [Action::Remove(end.key)];
        assert_eq!(act(agent, 0, Event::Command(2, acknowledge)), forgotten);
    };
    let mut agent = linked(&[0, 1]);
    ends_with(&mut agent, place(key(1, 1), &[&[2]]), "does not fit the nodes of this apinit");
    let mut odd = place(key(2, 1), &[&[0]]);
    odd.shape.width = 7;
    ends_with(&mut agent, odd, "does not fit the nodes of this apinit");
    let me = Me {
        nids: [Nid(0)].into(),
        uid: 77,
        cpus: vec![0],
        numa: [].into(),
        boot_id: "boot".into(),
    };
    let mut ordinary = Agent::new(me, None);
    ordinary.apply(0, Event::Linked(Box::new(welcome())));
    let needle = "apinit runs as user 77 and can't run an application of user 1000";
    ends_with(&mut ordinary, place(key(3, 1), &[&[0]]), needle);
}

#[test]
fn unknown_names_have_no_effect() {
    let mut agent = linked(&[0]);
    let key = key(9, 9);
    for event in [
        command(1, Command::AcknowledgeEnd(key)),
        command(2, Command::Discard(key)),
        command(3, Command::Signal { key, signal: numbered(0, 9) }),
        command(4, Command::Terminate { key, cause: Cause::NoRecord, kill_after: Duration::ZERO }),
        Event::ShepherdSpawned(key),
        from_shepherd(key, FromShepherd::Ready),
        Event::ShepherdLost { key, text: String::new() },
        Event::PeerMessage(key, 1, FromPeer::Ready),
        Event::PeerLost { key, index: 1, text: String::new() },
        Event::GroupsEmpty(key),
        Event::GroupsStuck { key, processes: 1, named: vec![] },
        Event::FrontMessage(Conn(3), ToApinit::StdinEnd(0)),
        Event::HeadMessage(Conn(3), ToPeer::Go),
        Event::StreamClosed(Conn(3)),
        Event::FrontDied(Conn(3)),
    ] {
        assert_eq!(agent.apply(0, event.clone()), [], "{event:?}");
    }
}
