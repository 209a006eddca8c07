//! Checkpoints of what runs.

use super::*;
use crate::apinit::decide::switcher::{Event as Turn, News};
use crate::apinit::decide::{DumpWord, NAME_WAIT, PARTS_WAIT};
use crate::apteam::protocol::node::MoveCommand;

/// 12 runs on nodes 0 and 1.
fn running() -> (Agent, Key) {
    let mut agent = linked(&[0, 1, 2, 3]);
    let key = key(12, 1);
    go_through(&mut agent, 0, [placed(place(key, &[&[0, 1]])), opened(FRONT, OWNER)]);
    let hello = FromShepherd::Hello(Hello { key, several: true, ..Hello::default() });
    let events = [Event::ShepherdSpawned(key), from_shepherd(key, hello), launch(FRONT, key)];
    go_through(&mut agent, S, events);
    go_through(&mut agent, 2 * S, [from_shepherd(key, FromShepherd::Ready)]);
    (agent, key)
}

fn asked(number: u64, uid: u32, key: Key, end: bool) -> Event {
    Event::DumpAsked { number, uid, key, end, afar: false }
}

fn lifted(key: Key, stands: bool) -> Event {
    Event::Turns(News::Held(key, stands))
}

fn dumped(key: Key, number: u64, made: bool) -> Event {
    Event::Dumped { key, number, made }
}

fn is_seated(actions: &[Action]) -> bool {
    actions.iter().any(|a| matches!(a, Action::Turns(Turn::Rebind(_))))
}

/// Why the question of this number was refused.
fn refusal(actions: &[Action], number: u64) -> &str {
    let why = actions.iter().find_map(|action| match action {
        Action::RefuseDump(of, why) if *of == number => Some(&why[..]),
        _ => None,
    });
    why.unwrap_or_else(|| panic!("{actions:?}"))
}

#[test]
fn it_stands_is_dumped_and_goes_on() {
    let (mut agent, key) = running();
    assert_eq!(
        act(&mut agent, 5 * S, asked(1, OWNER, key, false)),
        [Action::Turns(Turn::Hold(key))]
    );
    // Meanwhile nobody else takes hold of it.
    let other = act(&mut agent, 5 * S, asked(2, OWNER, key, false));
    assert!(refusal(&other, 2).contains("by another cpr"), "{other:?}");
    let order = MoveCommand { key, number: 1, places: place(key, &[&[2, 3]]).places };
    let other = act(&mut agent, 5 * S, Event::Command(9, Command::Move(Box::new(order))));
    let [Action::Report(Report::MoveFailed { why, .. })] = &other[..] else { panic!("{other:?}") };
    assert_eq!(why.to_string(), "it is being checkpointed");
    assert_eq!(act(&mut agent, 5 * S, lifted(key, true)), [Action::Dump { key, number: 1 }]);
    assert!(is_seated(&act(&mut agent, 6 * S, dumped(key, 1, true))));
    // And once more; one that can't be made leaves it as it was, too.
    act(&mut agent, 7 * S, asked(3, 0, key, true));
    act(&mut agent, 7 * S, lifted(key, true));
    assert!(is_seated(&act(&mut agent, 8 * S, dumped(key, 3, false))));
    act(&mut agent, 9 * S, asked(4, OWNER, key, true));
    let actions = act(&mut agent, 9 * S, lifted(key, false));
    assert!(refusal(&actions, 4).contains("can't be frozen") && is_seated(&actions));
}

#[test]
fn one_that_is_to_end_stands_until_its_checkpoint_has_its_name() {
    let stands = |number| {
        let (mut agent, key) = running();
        act(&mut agent, 5 * S, asked(number, OWNER, key, true));
        act(&mut agent, 5 * S, lifted(key, true));
        assert_eq!(act(&mut agent, 6 * S, dumped(key, number, true)), []);
        (agent, key)
    };
    let (mut agent, key) = stands(1);
    let actions = act(&mut agent, 7 * S, Event::DumpSaid { number: 1, word: DumpWord::Named });
    let cause = Cause::Checkpointed { uid: OWNER };
    let ended = ToShepherd::Terminate { cause, kill_after: Duration::ZERO };
    assert_eq!(actions, [Action::SendShepherd(key, ended), Action::DumpEnds(1)]);
    // Whoever asked is gone: it goes on.
    let (mut agent, _) = stands(2);
    assert!(is_seated(&act(
        &mut agent,
        7 * S,
        Event::DumpSaid { number: 2, word: DumpWord::Gone }
    )));
    let late = act(&mut agent, 8 * S, Event::DumpSaid { number: 2, word: DumpWord::Named });
    assert!(refusal(&late, 2).contains("was not ended"));
    // He says nothing.
    let (mut agent, _) = stands(3);
    let wait = NAME_WAIT.as_nanos() as u64;
    assert!(!is_seated(&act(&mut agent, 5 * S + wait, Event::Tick)));
    let actions = act(&mut agent, 6 * S + wait, Event::Tick);
    assert!(refusal(&actions, 3).contains("the application goes on") && is_seated(&actions));
    // He was gone before the images were there.
    let (mut agent, key) = running();
    act(&mut agent, 5 * S, asked(4, OWNER, key, true));
    act(&mut agent, 5 * S, lifted(key, true));
    assert_eq!(act(&mut agent, 5 * S, Event::DumpSaid { number: 4, word: DumpWord::Gone }), []);
    assert!(is_seated(&act(&mut agent, 6 * S, dumped(key, 4, true))));
}

/// Its shepherd isn't frozen: what it reads when images of it are made is in them, and comes once.
#[test]
fn what_is_in_its_images_is_shown_once() {
    let said = |key, offset, text| from_shepherd(key, FromShepherd::Output(output(offset, text)));
    let imaged = |end| {
        let (mut agent, key) = running();
        act(&mut agent, 3 * S, said(key, 0, "one "));
        act(&mut agent, 5 * S, asked(1, OWNER, key, end));
        act(&mut agent, 5 * S, lifted(key, true));
        assert_eq!(agent.resume_point(key).0, 4);
        (agent, key)
    };
    let shown = |text: &'static str| Action::SendFront(FRONT, FromApinit::Output(output(4, text)));
    let taken = |key, to| Action::SendShepherd(key, ToShepherd::OutputTaken(to));
    // The application goes on after its checkpoint (-g).
    let (mut agent, key) = imaged(false);
    assert_eq!(act(&mut agent, 6 * S, said(key, 4, "two")), [shown("two")]);
    // The checkpoint can't be made, or gets no name: the application goes on.
    for end in [dumped(key, 1, false), Event::DumpSaid { number: 1, word: DumpWord::Gone }] {
        let (mut agent, key) = imaged(true);
        assert_eq!(act(&mut agent, 6 * S, said(key, 4, "two")), []);
        if !matches!(end, Event::Dumped { .. }) {
            act(&mut agent, 6 * S, dumped(key, 1, true));
        }
        let actions = act(&mut agent, 7 * S, end);
        assert!(actions.contains(&shown("two")) && is_seated(&actions), "{actions:?}");
    }
    // The application is killed by apkill while it waits for its checkpoint to get its name.
    let (mut agent, key) = imaged(true);
    act(&mut agent, 6 * S, said(key, 4, "two"));
    act(&mut agent, 6 * S, dumped(key, 1, true));
    let kill = Cause::Kill { uid: 0, signal: 9 };
    let actions = act(
        &mut agent,
        7 * S,
        Event::Command(9, Command::Terminate { key, cause: kill, kill_after: Duration::ZERO }),
    );
    assert!(actions.contains(&shown("two")), "{actions:?}");
    // One that ends by them: its front end takes what was said before, and then the rest counts as
    // taken.
    let (mut agent, key) = imaged(true);
    act(&mut agent, 6 * S, said(key, 4, "two"));
    act(&mut agent, 6 * S, dumped(key, 1, true));
    let actions = act(&mut agent, 7 * S, Event::DumpSaid { number: 1, word: DumpWord::Named });
    assert!(!actions.contains(&shown("two")) && !actions.contains(&taken(key, 7)), "{actions:?}");
    let again = Conn(77);
    act(&mut agent, 7 * S, opened(again, OWNER));
    let actions = act(&mut agent, 7 * S, resume(again, key, &[]));
    let shows = |a: &&Action| matches!(a, Action::SendFront(_, FromApinit::Output(_)));
    assert_eq!(actions.iter().filter(shows).count(), 1, "{actions:?}");
    let wrote = ToApinit::OutputTaken(OutputTaken { source: 0, offset: 4 });
    let actions = act(&mut agent, 7 * S, Event::FrontMessage(again, wrote));
    assert_eq!(actions, [taken(key, 4), taken(key, 7)]);
    assert_eq!(act(&mut agent, 7 * S, said(key, 7, "end")), [taken(key, 10)]);
}

/// A part of one stands until all parts are dumped, whoever has asked it alone.
#[test]
fn a_part_goes_on_when_all_are_dumped() {
    let parted = |end| {
        let mut agent = linked(&[2]);
        let key = key(12, 1);
        let heads = Conn(50);
        let place = place(key, &[&[0, 1], &[2]]);
        go_through(&mut agent, 0, [placed(place), Event::ShepherdSpawned(key)]);
        go_through(&mut agent, 0, [head_opened(heads), head_launch(heads, key)]);
        go_through(&mut agent, S, [from_shepherd(key, FromShepherd::Ready)]);
        go_through(&mut agent, S, [Event::HeadMessage(heads, ToPeer::Go)]);
        assert_eq!(agent.part(key), Some((1, 2)));
        let asked = act(&mut agent, 5 * S, asked(1, OWNER, key, end));
        assert_eq!(asked, [Action::Turns(Turn::Hold(key))]);
        assert_eq!(act(&mut agent, 5 * S, lifted(key, true)), [Action::Dump { key, number: 1 }]);
        (agent, key, heads)
    };
    let said = |word| Event::DumpSaid { number: 1, word };
    let (mut agent, key, _) = parted(false);
    assert_eq!(act(&mut agent, 6 * S, dumped(key, 1, true)), []);
    assert!(is_seated(&act(&mut agent, 7 * S, said(DumpWord::AllImaged))));
    // The word came before its shepherd was heard again; and a part that could not be dumped.
    let (mut agent, key, _) = parted(false);
    assert_eq!(act(&mut agent, 6 * S, said(DumpWord::AllImaged)), []);
    assert!(is_seated(&act(&mut agent, 6 * S, dumped(key, 1, true))));
    let (mut agent, key, _) = parted(true);
    assert!(is_seated(&act(&mut agent, 6 * S, dumped(key, 1, false))));
    // One that is to end stands on, until there is a name: then the head hears of it too.
    let (mut agent, key, heads) = parted(true);
    assert_eq!(act(&mut agent, 6 * S, dumped(key, 1, true)), []);
    assert_eq!(act(&mut agent, 6 * S, said(DumpWord::AllImaged)), []);
    let cause = Cause::Checkpointed { uid: OWNER };
    let decisive = Decisive { at_ns: 7 * S, cause: cause.clone() };
    let terminate = ToShepherd::Terminate { cause, kill_after: Duration::ZERO };
    assert_eq!(
        act(&mut agent, 7 * S, said(DumpWord::Named)),
        [
            Action::SendHead(heads, FromPeer::Decisive(decisive)),
            Action::SendShepherd(key, terminate),
            Action::DumpEnds(1),
        ]
    );
    // Whoever asked is gone, or says nothing for ever.
    for gone in [true, false] {
        let (mut agent, key, _) = parted(gone);
        assert_eq!(act(&mut agent, 6 * S, dumped(key, 1, true)), []);
        let wait = PARTS_WAIT.as_nanos() as u64;
        let event = if gone { said(DumpWord::Gone) } else { Event::Tick };
        assert!(is_seated(&act(&mut agent, 6 * S + wait, event)));
    }
}

#[test]
fn whose_checkpoint_can_not_be_made() {
    let (mut agent, key) = running();
    let mut refused = |key, uid, words: &str| {
        let actions = act(&mut agent, 5 * S, asked(7, uid, key, false));
        assert!(refusal(&actions, 7).contains(words), "{actions:?}");
        assert_eq!(actions.len(), 1, "{actions:?}");
    };
    refused(super::key(13, 1), OWNER, "has ended here");
    refused(key, OWNER + 1, "has ended here, or belongs to another user");
    let (mut agent, key) = running();
    act(&mut agent, 5 * S, asked(1, OWNER, key, true));
    act(&mut agent, 5 * S, lifted(key, true));
    act(&mut agent, 6 * S, dumped(key, 1, true));
    // It is killed while it stands.
    let kill = Cause::Kill { signal: 15, uid: 0 };
    let kill = Command::Terminate { key, cause: kill, kill_after: Duration::ZERO };
    act(&mut agent, 7 * S, Event::Command(2, kill));
    let actions = act(&mut agent, 7 * S, asked(2, OWNER, key, false));
    assert!(refusal(&actions, 2).contains("is ending"), "{actions:?}");
    go_through(&mut agent, 8 * S, [ended(key), Event::GroupsEmpty(key)]);
    assert_eq!(agent.owner(key).map(|owner| owner.uid), Some(OWNER));
}
