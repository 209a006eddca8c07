//! One application over several apinits: the head and the others.

use super::*;
use crate::apinit::decide::switcher::News;
use crate::apshepherd::decide::pmix;
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::letters::{LETTER_MAX, Letter, LetterText};
use crate::apteam::protocol::peers::{BarrierIn, BarrierOut, Onward, PmiEntry};

const HEADS: Conn = Conn(50);

fn entry(text: &'static str) -> PmiEntry {
    PmiEntry {
        key: Bytes::from_static(text.as_bytes()),
        value: Bytes::from_static(text.as_bytes()),
    }
}

/// All PEs of a host are in the first barrier, and have put these.
fn arrival(entries: Vec<PmiEntry>) -> BarrierIn {
    BarrierIn { generation: 1, entries }
}

/// The leave of the first barrier, in one piece.
fn leave(entries: Vec<PmiEntry>) -> BarrierOut {
    BarrierOut { generation: 1, piece: 0, last: true, entries }
}

/// The head, `12.1` being on its nodes 0 and 1 and on node 2 of another, launched.
fn head() -> (Agent, Key, Vec<Action>) {
    let mut agent = linked(&[0, 1]);
    let key = key(12, 1);
    go_through(
        &mut agent,
        0,
        [placed(place(key, &[&[0, 1], &[2]])), Event::ShepherdSpawned(key), opened(FRONT, OWNER)],
    );
    let actions = act(&mut agent, S, launch(FRONT, key));
    (agent, key, actions)
}

fn from_peer(key: Key, message: FromPeer) -> Event {
    Event::PeerMessage(key, 1, message)
}

fn to_peer(key: Key, message: ToPeer) -> Action {
    Action::SendPeers(key, vec![1], message)
}

fn open(key: Key, at: &HostAddress) -> Action {
    let fan_out = u32::MAX;
    Action::OpenPeer { key, index: 1, at: at.clone(), beyond: Vec::new(), fan_out }
}

fn running_head() -> (Agent, Key) {
    let (mut agent, key, _) = head();
    go_through(
        &mut agent,
        2 * S,
        [
            from_peer(key, FromPeer::Accepted),
            from_peer(key, FromPeer::Ready),
            from_shepherd(key, FromShepherd::Ready),
        ],
    );
    (agent, key)
}

/// The other apinit, with the head's stream, launched.
fn other() -> (Agent, Key) {
    let mut agent = linked(&[2]);
    let key = key(12, 1);
    go_through(
        &mut agent,
        0,
        [
            placed(place(key, &[&[0, 1], &[2]])),
            Event::ShepherdSpawned(key),
            head_opened(HEADS),
            head_launch(HEADS, key),
        ],
    );
    (agent, key)
}

#[test]
fn the_head_passes_the_launch_on_and_all_go_together() {
    let (mut agent, key, actions) = head();
    let passed = ToPeer::Launch { key, ticket: TICKET, launch: program() };
    let at = HostAddress { socket: "/run/apinit-2.sock".into(), ..HostAddress::default() };
    assert!(
        actions.windows(2).any(|two| two == [open(key, &at), to_peer(key, passed.clone())]),
        "{actions:?}"
    );
    assert_eq!(act(&mut agent, S, from_peer(key, FromPeer::Accepted)), []);
    assert_eq!(act(&mut agent, S, from_shepherd(key, FromShepherd::Ready)), []);
    assert_eq!(
        act(&mut agent, 2 * S, from_peer(key, FromPeer::Ready)),
        [
            Action::SendShepherd(key, ToShepherd::Go),
            Action::KeepGoing(key, 2 * S),
            to_peer(key, ToPeer::Go),
            to_front(FromApinit::Going),
            Action::Report(Report::Running(key)),
            Action::Report(Report::Movable {
                key,
                blocker: Some(crate::apteam::migration_blocker::MigrationBlocker::SeveralHosts)
            }),
        ]
    );
}

/// Its host is perhaps lost with its PEs: those of the other hosts do not go without them.
#[test]
fn none_goes_while_a_host_whose_pes_are_ready_is_away() {
    let (mut agent, key, _) = head();
    go_through(
        &mut agent,
        2 * S,
        [
            from_peer(key, FromPeer::Accepted),
            from_peer(key, FromPeer::Ready),
            Event::PeerLost { key, index: 1, text: "reset".into() },
        ],
    );
    let goes = |actions: &[Action]| actions.contains(&Action::SendShepherd(key, ToShepherd::Go));
    assert!(!goes(&act(&mut agent, 2 * S, from_shepherd(key, FromShepherd::Ready))));
    // It is tried again, and has not answered yet.
    assert!(!goes(&act(&mut agent, 4 * S, Event::Tick)));
    assert!(!goes(&act(&mut agent, 4 * S, from_peer(key, FromPeer::Accepted))));
    let actions = act(&mut agent, 4 * S, from_peer(key, FromPeer::Ready));
    assert!(goes(&actions) && actions.contains(&to_peer(key, ToPeer::Go)), "{actions:?}");
}

/// Nor do those who share their processors, whose turn may come much later.
#[test]
fn none_goes_in_its_turn_while_a_host_is_away() {
    let mut agent = linked(&[0, 1]);
    let key = key(12, 1);
    let place = PlaceCommand { shares: true, ..place(key, &[&[0, 1], &[2]]) };
    go_through(&mut agent, 0, [placed(place), Event::ShepherdSpawned(key), opened(FRONT, OWNER)]);
    go_through(
        &mut agent,
        2 * S,
        [
            launch(FRONT, key),
            from_peer(key, FromPeer::Accepted),
            from_peer(key, FromPeer::Ready),
            from_shepherd(key, FromShepherd::Ready),
            Event::PeerLost { key, index: 1, text: "reset".into() },
        ],
    );
    let goes = |actions: &[Action]| actions.contains(&Action::SendShepherd(key, ToShepherd::Go));
    assert!(!goes(&act(&mut agent, 3 * S, Event::Turns(News::MayGo(key)))));
    go_through(&mut agent, 4 * S, [Event::Tick, from_peer(key, FromPeer::Accepted)]);
    let actions = act(&mut agent, 4 * S, from_peer(key, FromPeer::Ready));
    assert!(goes(&actions) && actions.contains(&to_peer(key, ToPeer::Go)), "{actions:?}");
}

/// Whatever its apinit is: where PE 0 is, the front end launches.
#[test]
fn no_head_launches_where_pe_0_is() {
    let (mut agent, key) = with_placed();
    go_through(&mut agent, 0, [head_opened(HEADS)]);
    let text = "PE 0 of application 12.1 is here: its front end launches it";
    assert_eq!(act(&mut agent, 0, head_launch(HEADS, key)), head_refused(HEADS, text));
}

#[test]
fn the_other_does_as_the_head_says() {
    let mut agent = linked(&[2]);
    let key = key(12, 1);
    go_through(&mut agent, 0, [placed(place(key, &[&[0, 1], &[2]])), Event::ShepherdSpawned(key)]);
    // A user, also the owner, can't go past the head, nor say that he is one.
    go_through(&mut agent, 0, [opened(FRONT, OWNER)]);
    let text = "PE 0 of application 12.1 is on another node: launch it through the apinit of \
                that node";
    assert_eq!(act(&mut agent, 0, launch(FRONT, key)), refused(FRONT, text));
    let text = format!("user {OWNER} runs no apinit of this machine");
    let claims = Event::HeadOpened { conn: HEADS, uid: OWNER, host: "n1".into() };
    assert_eq!(act(&mut agent, 0, claims), head_refused(HEADS, &text));
    assert_eq!(act(&mut agent, 0, head_launch(HEADS, key)), []);
    go_through(&mut agent, 0, [head_opened(HEADS)]);
    let actions = act(&mut agent, 0, head_launch(HEADS, key));
    assert!(
        matches!(
            &actions[..],
            [
                Action::SendHead(HEADS, FromPeer::Accepted),
                Action::SendShepherd(_, ToShepherd::Launch(launch)),
            ] if !launch.alone && !launch.stdin
                && launch.pes.iter().map(|pe| pe.rank).collect::<Vec<_>>() == [4, 5]
                && launch.process_mapping == "(vector,(0,1,4),(1,1,2))"
                && launch.host_index == 1
        ),
        "{actions:?}"
    );
    let to_head = |message| Action::SendHead(HEADS, message);
    let from_head = |message| Event::HeadMessage(HEADS, message);
    assert_eq!(
        act(&mut agent, S, from_shepherd(key, FromShepherd::Ready)),
        [to_head(FromPeer::Ready)]
    );
    assert_eq!(
        act(&mut agent, S, from_head(ToPeer::Go)),
        [Action::SendShepherd(key, ToShepherd::Go), Action::KeepGoing(key, S)]
    );
    assert_eq!(act(&mut agent, S, from_head(ToPeer::Go)), []);
    assert_eq!(
        act(&mut agent, S, from_shepherd(key, FromShepherd::BarrierIn(arrival(vec![entry("b")])))),
        [to_head(FromPeer::BarrierIn(arrival(vec![entry("b")])))]
    );
    let letter = Letter { to: 0, from: 4, number: 1, text: LetterText::Modex { spawned: None } };
    assert_eq!(
        act(&mut agent, S, from_shepherd(key, FromShepherd::Letter(letter.clone()))),
        [to_head(FromPeer::Letter(letter.clone()))]
    );
    assert_eq!(
        act(&mut agent, S, from_head(ToPeer::Letter(letter.clone()))),
        [Action::SendShepherd(key, ToShepherd::Letter(letter))]
    );
    let merged = leave(vec![entry("a"), entry("b")]);
    assert_eq!(
        act(&mut agent, S, from_head(ToPeer::BarrierOut(merged.clone()))),
        [Action::SendShepherd(key, ToShepherd::BarrierOut(merged.clone()))]
    );
    // Said again: whether it counts is the shepherd's to know.
    assert_eq!(
        act(&mut agent, S, from_head(ToPeer::BarrierOut(merged.clone()))),
        [Action::SendShepherd(key, ToShepherd::BarrierOut(merged))]
    );
    let source = Output { source: 1, ..output(0, "x\n") };
    assert_eq!(
        act(&mut agent, S, from_shepherd(key, FromShepherd::Output(output(0, "x\n")))),
        [to_head(FromPeer::Output(source))]
    );
    let cause = Cause::Abort { rank: 4, nid: Nid(2), code: 1 };
    let abort = Decisive { at_ns: S, cause: cause.clone() };
    assert_eq!(
        act(&mut agent, S, from_shepherd(key, FromShepherd::Decisive(abort.clone()))),
        [to_head(FromPeer::Decisive(abort))]
    );
    assert_eq!(
        act(
            &mut agent,
            S,
            from_head(ToPeer::Terminate { cause: cause.clone(), kill_after: GRACE })
        ),
        [Action::SendShepherd(key, ToShepherd::Terminate { cause, kill_after: GRACE })]
    );
    go_through(&mut agent, S, [ended(key)]);
    assert_eq!(
        act(&mut agent, 2 * S, Event::GroupsEmpty(key)),
        [reported(end(key), &[2]), to_head(FromPeer::Done)]
    );
}

#[test]
fn barriers_are_merged_at_the_head() {
    let (mut agent, key) = running_head();
    let own = from_shepherd(key, FromShepherd::BarrierIn(arrival(vec![entry("a")])));
    let peers = from_peer(key, FromPeer::BarrierIn(arrival(vec![entry("b")])));
    let merged = leave(vec![entry("a"), entry("b")]);
    let out = [
        Action::SendShepherd(key, ToShepherd::BarrierOut(merged.clone())),
        to_peer(key, ToPeer::BarrierOut(merged)),
    ];
    assert_eq!(act(&mut agent, 3 * S, own.clone()), []);
    assert_eq!(act(&mut agent, 3 * S, peers.clone()), out);
    // A host that says again that it is in the barrier has not heard of its end: it is told soon.
    let soon = Action::SetTimer(Some(3 * S + ns(BARRIER_AGAIN)));
    assert_eq!(agent.apply(3 * S, peers.clone()), [soon]);
    assert_eq!(act(&mut agent, 3 * S + ns(BARRIER_AGAIN), Event::Tick), out[1..]);
    assert_eq!(act(&mut agent, 3 * S, own), []);
    assert_eq!(act(&mut agent, 3 * S + ns(BARRIER_AGAIN), Event::Tick), out[..1]);
    assert_eq!(act(&mut agent, 3 * S, peers), []);
    // The next one, the other way round: nothing of the first is left.
    let second = |text| BarrierIn { generation: 2, entries: vec![entry(text)] };
    assert_eq!(act(&mut agent, 3 * S, from_peer(key, FromPeer::BarrierIn(second("d")))), []);
    let out =
        BarrierOut { generation: 2, piece: 0, last: true, entries: vec![entry("c"), entry("d")] };
    assert_eq!(
        act(&mut agent, 3 * S, from_shepherd(key, FromShepherd::BarrierIn(second("c")))),
        [
            Action::SendShepherd(key, ToShepherd::BarrierOut(out.clone())),
            to_peer(key, ToPeer::BarrierOut(out)),
        ]
    );
    // Every host is in the second: none waits for the first.
    assert_eq!(act(&mut agent, 4 * S, Event::Tick), []);
}

/// (`12.1` has PEs 0 to 3 here, and 4 and 5 on the other host.)
#[test]
fn letters_go_through_the_head_by_their_pe() {
    let (mut agent, key) = running_head();
    let letter = |to| Letter { to, from: 9, number: 4, text: LetterText::Modex { spawned: None } };
    let own = |to| from_shepherd(key, FromShepherd::Letter(letter(to)));
    let peers = |to| from_peer(key, FromPeer::Letter(letter(to)));
    let here = |to| [Action::SendShepherd(key, ToShepherd::Letter(letter(to)))];
    let there = |to| [to_peer(key, ToPeer::Letter(letter(to)))];
    assert_eq!(act(&mut agent, 3 * S, own(4)), there(4));
    assert_eq!(act(&mut agent, 3 * S, peers(3)), here(3));
    assert_eq!(act(&mut agent, 3 * S, peers(5)), there(5));
    // For nobody.
    assert_eq!(act(&mut agent, 3 * S, peers(6)), []);
    // Nobody is left there: the head answers.
    let (mut ended, _) = running_head();
    go_through(&mut ended, 3 * S, [from_peer(key, FromPeer::Done)]);
    let text = LetterText::Answer { status: pmix::NOT_FOUND, data: Bytes::new() };
    let none = Letter { to: 1, from: 4, number: 4, text };
    let asks = Letter { from: 1, ..letter(4) };
    assert_eq!(
        act(&mut ended, 3 * S, from_shepherd(key, FromShepherd::Letter(asks))),
        [Action::SendShepherd(key, ToShepherd::Letter(none.clone()))]
    );
    // An answer is for nobody then.
    let answer = Letter { to: 4, from: 1, ..none };
    assert_eq!(act(&mut ended, 3 * S, from_shepherd(key, FromShepherd::Letter(answer))), []);
    // No letter is so large.
    let data = vec![0; 2 * LETTER_MAX + 1].into();
    let text = LetterText::Answer { status: 0, data };
    let large = Letter { text, ..letter(4) };
    assert_eq!(act(&mut agent, 3 * S, from_shepherd(key, FromShepherd::Letter(large))), []);
    // It can't be reached: whoever asks asks again.
    go_through(&mut agent, 3 * S, [Event::PeerLost { key, index: 1, text: "out".into() }]);
    assert_eq!(act(&mut agent, 3 * S, own(4)), []);
}

/// When the front end comes back, all hosts say their barriers again: the answer to all is one.
#[test]
fn hosts_that_say_a_barrier_again_are_answered_together() {
    let key = key(12, 1);
    let mut agent = linked(&[0]);
    let hosts: Vec<Vec<u32>> = (0..6).map(|nid| vec![nid]).collect();
    let hosts: Vec<&[u32]> = hosts.iter().map(Vec::as_slice).collect();
    go_through(
        &mut agent,
        0,
        [placed(place(key, &hosts)), Event::ShepherdSpawned(key), opened(FRONT, OWNER)],
    );
    go_through(&mut agent, S, [launch(FRONT, key)]);
    let from = |index, message| Event::PeerMessage(key, index, message);
    let told = |index| from(index, FromPeer::BarrierIn(arrival(vec![entry("b")])));
    for index in 1..=5 {
        let begun = [from(index, FromPeer::Accepted), from(index, FromPeer::Ready)];
        go_through(&mut agent, S, begun);
    }
    go_through(&mut agent, S, [from_shepherd(key, FromShepherd::Ready)]);
    let own = arrival(vec![entry("a")]);
    go_through(&mut agent, 2 * S, [from_shepherd(key, FromShepherd::BarrierIn(own))]);
    go_through(&mut agent, 2 * S, (1..=5).map(told));
    for (at, index) in (1..=5).enumerate() {
        assert_eq!(act(&mut agent, 3 * S + at as u64, told(index)), []);
    }
    act(&mut agent, 3 * S, Event::PeerLost { key, index: 4, text: "gone".into() });
    let out = leave([vec![entry("a")], vec![entry("b"); 5]].concat());
    let again = Action::SendPeers(key, vec![1, 2, 3, 5], ToPeer::BarrierOut(out));
    assert_eq!(act(&mut agent, 3 * S + ns(BARRIER_AGAIN), Event::Tick), [again]);
    let ticked = act(&mut agent, 4 * S, Event::Tick);
    let outs = |a: &&Action| matches!(a, Action::SendPeers(_, _, ToPeer::BarrierOut(_)));
    assert_eq!(ticked.iter().find(outs), None);
}

#[test]
fn one_hosts_end_is_everybodys() {
    let (mut agent, key) = running_head();
    let cause = Cause::PeSignal { rank: 5, nid: Nid(2), signal: 11 };
    let decisive = Decisive { at_ns: 3 * S, cause: cause.clone() };
    assert_eq!(
        act(&mut agent, 3 * S, from_peer(key, FromPeer::Decisive(decisive))),
        [Action::SendShepherd(
            key,
            ToShepherd::Terminate { cause: cause.clone(), kill_after: GRACE }
        )]
    );
    let (mut agent, key) = running_head();
    let decisive = Decisive { at_ns: 3 * S, cause: cause.clone() };
    assert_eq!(
        act(&mut agent, 3 * S, from_shepherd(key, FromShepherd::Decisive(decisive))),
        [to_peer(key, ToPeer::Terminate { cause, kill_after: GRACE })]
    );
}

#[test]
fn signals_and_output_go_through_the_head() {
    let (mut agent, key) = running_head();
    let usr1 = ToPeer::Signal(numbered(1, 10));
    let said = Event::FrontMessage(FRONT, ToApinit::Signal(numbered(1, 10)));
    assert_eq!(
        act(&mut agent, 3 * S, said),
        [Action::SendShepherd(key, ToShepherd::Signal(numbered(1, 10))), to_peer(key, usr1)]
    );
    let output = |offset, text| Output { source: 1, ..output(offset, text) };
    let theirs = |offset, text| FromPeer::Output(output(offset, text));
    assert_eq!(
        act(&mut agent, 3 * S, from_peer(key, theirs(0, "abc"))),
        [to_front(FromApinit::Output(output(0, "abc")))]
    );
    // Again: the front end does not see it.
    assert_eq!(act(&mut agent, 3 * S, from_peer(key, theirs(0, "abc"))), []);
    let taken = |offset| ToPeer::OutputTaken(OutputTaken { source: 1, offset });
    let written = |offset| {
        let taken = OutputTaken { source: 1, offset };
        Event::FrontMessage(FRONT, ToApinit::OutputTaken(taken))
    };
    assert_eq!(act(&mut agent, 3 * S, written(2)), [to_peer(key, taken(2))]);
    // The front end comes back: the other host says the rest again.
    go_through(&mut agent, 3 * S, [Event::StreamClosed(FRONT), opened(Conn(2), OWNER)]);
    let again = OutputTaken { source: 1, offset: 2 };
    let actions = act(&mut agent, 4 * S, resume(Conn(2), key, &[(1, 2)]));
    let again = ToPeer::Resume { key, ticket: TICKET, taken: vec![again] };
    assert!(actions.contains(&to_peer(key, again)), "{actions:?}");
    // It dies: the other host's output is taken for it.
    let actions = act(&mut agent, 5 * S, Event::FrontDied(Conn(2)));
    let terminate = ToPeer::Terminate { cause: Cause::FrontGone, kill_after: FRONT_GRACE };
    assert!(actions.contains(&to_peer(key, terminate)), "{actions:?}");
    assert_eq!(act(&mut agent, 5 * S, from_peer(key, theirs(2, "cde"))), [to_peer(key, taken(5))]);
}

#[test]
fn signals_of_psched_are_said_to_have_come_when_everybody_has_them() {
    let (mut agent, key) = running_head();
    let number = PSCHED_SIGNALS + 5;
    let said = || Event::Command(3, Command::Signal { key, signal: numbered(number, 10) });
    let signal = ToPeer::Signal(numbered(number, 10));
    assert_eq!(
        act(&mut agent, 3 * S, said()),
        [Action::SendShepherd(key, ToShepherd::Signal(numbered(number, 10))), to_peer(key, signal)]
    );
    assert_eq!(act(&mut agent, 3 * S, from_shepherd(key, FromShepherd::SignalsTaken(number))), []);
    assert_eq!(act(&mut agent, 3 * S, said()), [], "it is on its way");
    let taken = || Action::Report(Report::SignalsTaken { key, number });
    assert_eq!(act(&mut agent, 3 * S, from_peer(key, FromPeer::SignalsTaken(number))), [taken()]);
    // psched has not heard that; the front end, which counts for itself, need not.
    assert_eq!(act(&mut agent, 3 * S, said()), [taken()]);
    go_through(&mut agent, 3 * S, [Event::StreamClosed(FRONT), opened(Conn(2), OWNER)]);
    let resumed = act(&mut agent, 3 * S, resume(Conn(2), key, &[]));
    let told = |a: &Action| matches!(a, Action::SendFront(_, FromApinit::SignalsTaken(_)));
    assert!(!resumed.iter().any(told), "{resumed:?}");
    // Nor may it speak in psched's name.
    let signal = ToApinit::Signal(numbered(number, 10));
    assert_eq!(act(&mut agent, 3 * S, Event::FrontMessage(Conn(2), signal)), []);
}

#[test]
fn output_of_others_is_not_kept_for_a_front_end_that_has_gone() {
    let (mut agent, key) = running_head();
    act(&mut agent, 3 * S, from_peer(key, FromPeer::Output(output(0, "ab"))));
    act(&mut agent, 3 * S, Event::StreamClosed(FRONT));
    // It may come back: this stays with the other host.
    assert_eq!(act(&mut agent, 3 * S, from_peer(key, FromPeer::Output(output(2, "cd")))), []);
    let gone = act(&mut agent, 4 * S, Event::FrontDied(FRONT));
    let taken = vec![OutputTaken { source: 1, offset: 0 }];
    let again = to_peer(key, ToPeer::Resume { key, ticket: TICKET, taken });
    assert!(gone.contains(&again), "{gone:?}");
    let written = |offset| to_peer(key, ToPeer::OutputTaken(OutputTaken { source: 1, offset }));
    // Also where something before it is missing, which was written in a former life of this head.
    for (offset, text, end) in [(0, "ab", 2), (2, "cd", 4), (9, "ef", 11)] {
        let more = from_peer(key, FromPeer::Output(output(offset, text)));
        assert_eq!(act(&mut agent, 4 * S, more), [written(end)]);
    }
}

#[test]
fn done_is_said_when_all_are() {
    let (mut agent, key) = running_head();
    go_through(&mut agent, 3 * S, [ended(key)]);
    assert_eq!(act(&mut agent, 3 * S, Event::GroupsEmpty(key)), [reported(end(key), &[0, 1])]);
    // psched has this host's end on record; the others are not through yet. The shepherd stays: an
    // apinit that is killed now finds its hello, and ends nobody else.
    assert_eq!(act(&mut agent, 3 * S, Event::Command(2, Command::AcknowledgeEnd(key))), []);
    assert_eq!(
        act(&mut agent, 3 * S, Event::FrontMessage(FRONT, ToApinit::Signal(numbered(1, 2)))),
        [to_peer(key, ToPeer::Signal(numbered(1, 2)))]
    );
    assert_eq!(
        act(&mut agent, 4 * S, from_peer(key, FromPeer::Done)),
        [to_front(FromApinit::Done), Action::CloseStream(FRONT), Action::Remove(key)]
    );
}

/// Beyond as many as it speaks with the others are reached through these; whoever is lost is reached at once.
#[test]
fn many_hosts_are_a_tree() {
    let key = key(12, 1);
    let mut agent = linked(&[0]);
    let hosts: Vec<Vec<u32>> = (0..6).map(|nid| vec![nid]).collect();
    let hosts: Vec<&[u32]> = hosts.iter().map(Vec::as_slice).collect();
    let place = PlaceCommand { fan_out: 2, ..place(key, &hosts) };
    let at = |index: u32| place.hosts[index as usize].at();
    let onward = |index: u32| Onward { index, at: at(index) };
    go_through(
        &mut agent,
        0,
        [placed(place.clone()), Event::ShepherdSpawned(key), opened(FRONT, OWNER)],
    );
    let actions = act(&mut agent, S, launch(FRONT, key));
    let open = |index: u32, beyond: Vec<Onward>| Action::OpenPeer {
        key,
        index,
        at: at(index),
        beyond,
        fan_out: 2,
    };
    let passed = ToPeer::Launch { key, ticket: TICKET, launch: program() };
    let tree = [
        open(1, vec![onward(2), onward(3)]),
        open(4, vec![onward(5)]),
        Action::SendPeers(key, vec![1, 2, 3, 4, 5], passed.clone()),
    ];
    assert!(actions.windows(3).any(|three| three == tree), "{actions:?}");
    let from = |index, message| Event::PeerMessage(key, index, message);
    for index in 1..=5 {
        act(&mut agent, S, from(index, FromPeer::Accepted));
        act(&mut agent, S, from(index, FromPeer::Ready));
    }
    // What is for everybody is one message.
    let actions = act(&mut agent, S, from_shepherd(key, FromShepherd::Ready));
    let go = Action::SendPeers(key, vec![1, 2, 3, 4, 5], ToPeer::Go);
    assert!(actions.contains(&go), "{actions:?}");
    // One host is lost, and another with it: it speaks with each of them itself.
    for index in [4, 5] {
        act(&mut agent, 2 * S, Event::PeerLost { key, index, text: "gone".into() });
    }
    let actions = act(&mut agent, 2 * S + ns(PEER_AGAIN), Event::Tick);
    let opened = actions.iter().filter(|a| matches!(a, Action::OpenPeer { .. }));
    assert_eq!(opened.collect::<Vec<_>>(), [&open(4, vec![]), &open(5, vec![])]);
}

#[test]
fn another_host_is_reached_again_or_given_up() {
    let (mut agent, key, _) = head();
    let lost = || Event::PeerLost { key, index: 1, text: "refused".into() };
    let at = HostAddress { socket: "/run/apinit-2.sock".into(), ..HostAddress::default() };
    let open = open(key, &at);
    let again = ToPeer::Launch { key, ticket: TICKET, launch: program() };
    assert_eq!(act(&mut agent, S, lost()), []);
    assert_eq!(
        act(&mut agent, S + ns(PEER_AGAIN), Event::Tick),
        [open.clone(), to_peer(key, again)]
    );
    let text = "its apinit can't be reached: refused".to_string();
    let cause = Cause::NodeLost { nid: Nid(2), text };
    assert_eq!(
        act(&mut agent, 11 * S, lost()),
        [Action::SendShepherd(key, ToShepherd::Terminate { cause, kill_after: GRACE })]
    );

    // One that runs PEs is never given up from here: only psched knows whether it is lost.
    let (mut agent, key) = running_head();
    for n in (3..60).step_by(3) {
        assert_eq!(act(&mut agent, n * S, lost()), []);
        let resume = ToPeer::Resume {
            key,
            ticket: TICKET,
            taken: vec![OutputTaken { source: 1, offset: 0 }],
        };
        // Its user is told once.
        let silent = FromApinit::Notice(Notice::Silent { nids: vec![Nid(2)] });
        let told = (n == 6).then(|| Action::SendFront(FRONT, silent));
        let actions: Vec<_> =
            [open.clone(), to_peer(key, resume)].into_iter().chain(told).collect();
        assert_eq!(act(&mut agent, n * S + ns(PEER_AGAIN_MAX), Event::Tick), actions);
    }
}

#[test]
fn a_refusal_of_another_host_ends_all() {
    let (mut agent, key, _) = head();
    let refused = FromPeer::Refused { text: "taken back".into(), cause: None };
    let cause = Cause::NodeLost { nid: Nid(2), text: "taken back".into() };
    assert_eq!(
        act(&mut agent, 2 * S, from_peer(key, refused)),
        [Action::SendShepherd(key, ToShepherd::Terminate { cause, kill_after: GRACE })]
    );
}

/// A head takes a refusal for the last word; a placement that is not here yet is none.
#[test]
fn what_may_pass_is_no_refusal() {
    let mut agent = linked(&[2]);
    let [silent, early, own] = [60, 61, 62].map(Conn);
    let key = key(12, 1);
    go_through(
        &mut agent,
        S,
        [
            head_opened(silent),
            head_opened(early),
            head_launch(early, key),
            opened(own, OWNER),
            launch(own, key),
        ],
    );
    let text = "psched has not placed application 12.1 on this node; is the link between psched and \
                apinit up? (apstat -n)";
    let expected = [
        not_now(own, text),
        head_not_now(silent, "no launch was received within 10 s"),
        head_not_now(early, text),
    ];
    assert_eq!(act(&mut agent, 11 * S, Event::Tick), expected.concat());
    // It tries again, and what is not here and never comes is refused.
    go_through(&mut agent, 12 * S, [head_opened(HEADS)]);
    let text = "application 12.1 is not on this node, or has ended, or belongs to another user";
    assert_eq!(
        act(&mut agent, 12 * S, head_resume(HEADS, key, &[(1, 0)])),
        head_refused(HEADS, text)
    );
}

#[test]
fn a_host_that_is_away_for_long_is_called_less_often() {
    let (mut agent, key, _) = head();
    act(&mut agent, S, from_peer(key, FromPeer::Accepted));
    let (mut at, mut waits) = (2 * S, Vec::new());
    while at < 20 * S {
        act(&mut agent, at, Event::PeerLost { key, index: 1, text: "refused".into() });
        let calls = |agent: &mut Agent, at: u64| {
            let actions = act(agent, at, Event::Tick);
            actions.iter().any(|action| matches!(action, Action::OpenPeer { index: 1, .. }))
        };
        let wait = (1..=20).map(|n| n * S / 8).find(|wait| calls(&mut agent, at + wait));
        waits.push(wait.expect("it is called") * 8 / S);
        at += waits[waits.len() - 1] * S / 8;
    }
    // In eighths of a second.
    assert!(waits.is_sorted(), "{waits:?}");
    assert_eq!((waits[0], waits[waits.len() - 1]), (2, 16), "{waits:?}");
}

/// An apinit that waits for psched's word is asked for as long as it takes: only one that can't be
/// reached is given up.
#[test]
fn a_host_that_can_not_be_had_now_is_asked_again() {
    let (mut agent, key, _) = head();
    for at in (S..100 * S).step_by(S as usize) {
        assert_eq!(act(&mut agent, at, from_peer(key, FromPeer::NotNow("psched".into()))), []);
        let actions = act(&mut agent, at + ns(PEER_AGAIN), Event::Tick);
        assert!(matches!(actions[0], Action::OpenPeer { index: 1, .. }), "{actions:?}");
    }
    let lost = Event::PeerLost { key, index: 1, text: "refused".into() };
    assert_eq!(act(&mut agent, 100 * S, lost), []);
}

#[test]
fn the_head_comes_back_to_the_other() {
    let (mut agent, key) = other();
    go_through(
        &mut agent,
        S,
        [
            from_shepherd(key, FromShepherd::Ready),
            from_shepherd(key, FromShepherd::BarrierIn(arrival(vec![entry("b")]))),
            Event::StreamClosed(HEADS),
        ],
    );
    // The head being dead ends nothing here.
    assert_eq!(act(&mut agent, 2 * S, Event::FrontDied(HEADS)), []);
    let back = Conn(51);
    go_through(&mut agent, 60 * S, [head_opened(back)]);
    let say = |message| Action::SendHead(back, message);
    assert_eq!(
        act(&mut agent, 60 * S, head_resume(back, key, &[(1, 0)])),
        [
            Action::CloseStream(HEADS),
            say(FromPeer::Accepted),
            say(FromPeer::Ready),
            say(FromPeer::BarrierIn(arrival(vec![entry("b")]))),
        ]
    );
    // psched ends it here: the head hears of it.
    let cause = Cause::Kill { signal: 9, uid: 0 };
    let command = Command::Terminate { key, cause: cause.clone(), kill_after: Duration::ZERO };
    assert_eq!(
        act(&mut agent, 61 * S, Event::Command(2, command)),
        [
            say(FromPeer::Decisive(Decisive { at_ns: 61 * S, cause: cause.clone() })),
            Action::SendShepherd(key, ToShepherd::Terminate { cause, kill_after: Duration::ZERO }),
        ]
    );
}

/// The head's apinit was killed, and is back before its former stream is seen to be closed.
#[test]
fn a_launch_that_is_repeated_is_taken_as_a_return() {
    let (mut agent, key) = other();
    let back = Conn(51);
    go_through(&mut agent, S, [head_opened(back)]);
    let actions = act(&mut agent, S, head_launch(back, key));
    assert!(actions.contains(&Action::SendHead(back, FromPeer::Accepted)), "{actions:?}");
    let actions = act(&mut agent, S, from_shepherd(key, FromShepherd::Ready));
    assert!(actions.contains(&Action::SendHead(back, FromPeer::Ready)), "{actions:?}");
}

/// The head's shepherd died while its apinit was dead, before all could go: those who wait for the
/// go must hear of the end, and the head must not wait for them for ever.
#[test]
fn a_head_that_comes_back_without_its_shepherd_ends_the_others() {
    let mut agent = linked(&[0, 1]);
    let key = key(12, 1);
    let place = place(key, &[&[0, 1], &[2]]);
    let found = Found {
        place,
        going_ns: None,
        ran_ns: None,
        hello: None,
        silent: false,
        away: None,
        front: Some(Conn(77)),
        gone: false,
        adopted: false,
    };
    act(&mut agent, 2 * S, Event::Found(Box::new(found)));
    let actions = act(&mut agent, 2 * S, Event::Tick);
    let is_terminate = |a: &Action| matches!(a, Action::SendPeers(_, _, ToPeer::Terminate { .. }));
    assert!(actions.iter().any(is_terminate), "{actions:?}");
    let refused = FromPeer::Refused { text: "it is not here".into(), cause: None };
    go_through(
        &mut agent,
        3 * S,
        [
            from_peer(key, refused),
            Event::GroupsEmpty(key),
            Event::FrontDied(Conn(77)),
            Event::Command(2, Command::AcknowledgeEnd(key)),
        ],
    );
    assert_eq!(agent.held(), (0, 0));
}

/// A host was switched off after the go, and psched, which did not know of the go, has given it its
/// part again: there nothing is launched any more, and psched is told so.
#[test]
fn a_part_that_was_lost_is_not_waited_for() {
    let mut agent = linked(&[2]);
    let key = key(12, 1);
    go_through(
        &mut agent,
        S,
        [placed(place(key, &[&[0, 1], &[2]])), Event::ShepherdSpawned(key), head_opened(HEADS)],
    );
    let actions = act(&mut agent, 2 * S, head_resume(HEADS, key, &[(1, 0)]));
    let cause = Cause::NodeLost {
        nid: Nid(2),
        text: "its host was restarted, or never received the launch".into(),
    };
    let first = Some(Decisive { at_ns: 2 * S, cause });
    let end = HostEnd { key, nids: vec![], first, ..HostEnd::default() };
    assert!(actions.contains(&reported(end, &[2])), "{actions:?}");
}

/// The head's own PEs have ended, and another host, whose PEs wait in a barrier, can't be reached for
/// long. It is not given up, for nobody else could let them out: psched is asked whether it has the
/// whole application's end on record.
#[test]
fn another_host_whose_pes_wait_is_not_given_up() {
    let (mut agent, key) = running_head();
    go_through(&mut agent, 3 * S, [ended(key), Event::GroupsEmpty(key)]);
    act(&mut agent, 3 * S, Event::Command(2, Command::AcknowledgeEnd(key)));
    let lost = || Event::PeerLost { key, index: 1, text: "refused".into() };
    let asks = reported(end(key), &[0, 1]);
    for n in (4..60).step_by(3) {
        act(&mut agent, n * S, lost());
        let at = n * S + ns(PEER_AGAIN_MAX);
        let actions = act(&mut agent, at, Event::Tick);
        let is_open = |a: &Action| matches!(a, Action::OpenPeer { .. });
        assert!(actions.iter().any(is_open), "at {n} s: {actions:?}");
        assert_eq!(actions.contains(&asks), at >= 14 * S, "at {n} s: {actions:?}");
        act(&mut agent, at, Event::Command(n, Command::AcknowledgeEnd(key)));
    }
    // It is back, and its PEs are let out of the barrier that those of the head have left.
    let actions = act(&mut agent, 61 * S, from_peer(key, FromPeer::Accepted));
    assert_eq!(actions, []);
    act(&mut agent, 62 * S, from_peer(key, FromPeer::Done));
    assert_eq!(agent.held().0, 0);

    // Or psched knows that all has ended.
    let (mut agent, key) = running_head();
    go_through(&mut agent, 3 * S, [ended(key), Event::GroupsEmpty(key)]);
    act(&mut agent, 3 * S, Event::Command(2, Command::AcknowledgeEnd(key)));
    act(&mut agent, 4 * S, lost());
    act(&mut agent, 5 * S, Event::Command(3, Command::Discard(key)));
    assert_eq!(agent.held().0, 1, "its output may still come");
    act(&mut agent, 14 * S, Event::Tick);
    assert_eq!(agent.held().0, 0);
}

/// A host that is given up while the front end may still come back must not stop the clock of all.
#[test]
fn another_host_that_is_given_up_is_due_no_more() {
    let (mut agent, key) = running_head();
    go_through(&mut agent, 3 * S, [ended(key), Event::GroupsEmpty(key)]);
    act(&mut agent, 3 * S, Event::Command(2, Command::Discard(key)));
    act(&mut agent, 3 * S, Event::StreamClosed(FRONT));
    let lost = || Event::PeerLost { key, index: 1, text: "gone".into() };
    let mut timer = None;
    let mut now = 3 * S;
    let mut next = vec![lost()];
    for _ in 0..400 {
        let Some(event) = next.pop() else {
            let Some(at) = timer else { break };
            assert!(at > now, "it is {now}, and the timer stands at {at}");
            now = at;
            next.push(Event::Tick);
            continue;
        };
        for action in agent.apply(now, event) {
            match action {
                Action::SetTimer(at) => timer = at,
                Action::OpenPeer { .. } => next.push(lost()),
                _ => {}
            }
        }
    }
    assert_eq!((timer, agent.held().0), (None, 0), "everything is forgotten at {now}");
}

/// Its apinit was killed, and has not heard it.
#[test]
fn another_host_that_says_again_what_is_written_is_told_so_again() {
    let (mut agent, key) = running_head();
    let one = || from_peer(key, FromPeer::Output(output(0, "hello\n")));
    let taken = OutputTaken { source: 1, offset: 6 };
    let said = Event::FrontMessage(FRONT, ToApinit::OutputTaken(taken));
    go_through(&mut agent, 3 * S, [one(), said]);
    assert_eq!(act(&mut agent, 4 * S, one()), [to_peer(key, ToPeer::OutputTaken(taken))]);
    // What is not written is not.
    let two = || from_peer(key, FromPeer::Output(output(6, "more\n")));
    go_through(&mut agent, 5 * S, [two()]);
    assert_eq!(act(&mut agent, 5 * S, two()), []);
}

/// Taken as it is, a piece after a hole would have what is missing count as sent.
#[test]
fn output_with_a_hole_is_asked_for_again() {
    let (mut agent, key) = running_head();
    let said = |offset, text| from_peer(key, FromPeer::Output(output(offset, text)));
    let again = |offset| {
        let taken = vec![OutputTaken { source: 1, offset }];
        to_peer(key, ToPeer::Resume { key, ticket: TICKET, taken })
    };
    let warned = |missing, offset| {
        let text = format!(
            "{missing} bytes of output of NID 2 before byte {offset} were not \
                            received"
        );
        Action::Warn(key, text)
    };
    let shown =
        |offset, text| to_front(FromApinit::Output(Output { source: 1, ..output(offset, text) }));
    assert_eq!(act(&mut agent, 3 * S, said(6, "two\n")), [warned(6, 6), again(0)]);
    // On its way before it could hear that.
    assert_eq!(act(&mut agent, 3 * S, said(10, "three\n")), []);
    assert_eq!(act(&mut agent, 3 * S, from_peer(key, FromPeer::Accepted)), []);
    assert_eq!(act(&mut agent, 3 * S, said(0, "hello\n")), [shown(0, "hello\n")]);
    assert_eq!(act(&mut agent, 3 * S, said(6, "two\n")), [shown(6, "two\n")]);
    // Only so often: then the front end sees it, and tells.
    for _ in 0..crate::apinit::decide::output::HOLES_MAX {
        assert_eq!(act(&mut agent, 4 * S, said(16, "end\n")), [warned(6, 16), again(0)]);
        go_through(&mut agent, 4 * S, [from_peer(key, FromPeer::Accepted)]);
    }
    assert_eq!(act(&mut agent, 4 * S, said(16, "end\n")), [warned(6, 16), shown(16, "end\n")]);
}

/// What a front end has not read would be put before it again at each break between the hosts.
#[test]
fn what_has_gone_to_the_front_end_does_not_go_again_after_a_break_between_the_hosts() {
    let (mut agent, key) = running_head();
    let one = || from_peer(key, FromPeer::Output(output(0, "hello\n")));
    assert_eq!(act(&mut agent, 3 * S, one()).len(), 1);
    let lost = Event::PeerLost { key, index: 1, text: "reset".into() };
    go_through(&mut agent, 3 * S, [lost]);
    let again = act(&mut agent, 4 * S, Event::Tick);
    let taken = vec![OutputTaken { source: 1, offset: 0 }];
    assert!(
        again.contains(&to_peer(key, ToPeer::Resume { key, ticket: TICKET, taken })),
        "{again:?}"
    );
    go_through(&mut agent, 4 * S, [from_peer(key, FromPeer::Accepted)]);
    assert_eq!(act(&mut agent, 4 * S, one()), []);
    // On another stream it does.
    let back = Conn(2);
    go_through(&mut agent, 5 * S, [opened(back, OWNER), resume(back, key, &[])]);
    go_through(&mut agent, 5 * S, [from_peer(key, FromPeer::Accepted)]);
    let to_back =
        |text| Action::SendFront(back, FromApinit::Output(Output { source: 1, ..output(0, text) }));
    assert_eq!(act(&mut agent, 5 * S, one()), [to_back("hello\n")]);
}
