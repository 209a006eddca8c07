//! Applications moved aside for one that waits, and as an administrator wants.

use super::*;
use crate::apteam::Apid;
use crate::apteam::change::Orders;
use crate::apteam::choice::Choice;
use crate::apteam::migration_blocker::MigrationBlocker;
use crate::apteam::protocol::node::Command;
use crate::apteam::record::Apteam;
use crate::apteam::record::State;
use crate::machine::Nid;
use crate::psched::decide::Abilities;
use std::collections::BTreeMap;

/// Four nodes of a processor: 1 to 4 run, then 1 and 3 end, and 5, two wide, waits.
fn fragments(abilities: Abilities) -> Scheduler {
    fragments_for(abilities, posted(5, 2))
}

/// A move costs half a minute.
fn dear() -> Settings {
    let mut settings = alone();
    settings.turns.migration.move_cost = Duration::from_secs(30);
    settings
}

/// The same, where this one waits.
fn fragments_for(abilities: Abilities, fifth: Event) -> Scheduler {
    let mut s = two_apart(Settings { abilities, ..dear() });
    s.apply(at(2_000), fifth);
    assert_eq!(s.team(Apid(5)).map(|team| team.state), Some(State::Posted));
    s
}

/// The same before that one comes: 2 runs on NID 1, and 4 on NID 3.
fn two_apart(settings: Settings) -> Scheduler {
    let mut s = Scheduler::new(machine(4, 1), settings);
    link(&mut s, 1, &[0, 1, 2, 3], &[]);
    for number in 1..=4 {
        s.apply(at(1), posted(number, 1));
        for said in [Report::Launched, Report::Running] {
            let report = Box::new(said(key(number.into(), 1)));
            s.apply(at(1), Event::Report { link: LinkId(1), report });
        }
    }
    for (apid, nid) in [(1, 0), (3, 2)] {
        let report = Box::new(ended(key(apid, 1), &[nid], None));
        s.apply(at(2_000), Event::Report { link: LinkId(1), report });
    }
    s
}

/// Where several may sit on a processor, 5 has its place over 2, which is moved aside; and what is done for that.
fn displaced() -> (Scheduler, Vec<Effect>) {
    let mut s = two_apart(Settings { abilities: able(), ..plain() });
    let effects = s.apply(at(2_000), posted(5, 2));
    assert_eq!(told(&effects), Some((2, 1, vec![Nid(2)])));
    (s, effects)
}

/// What is done at each deadline until then.
fn until(s: &mut Scheduler, seconds: u64) -> Vec<(u64, Vec<Effect>)> {
    let mut done = Vec::new();
    while let Some(ns) = s.deadline().filter(|ns| *ns <= seconds * SECOND) {
        let now = Now { mono_ns: ns, wall_ns: ns + 7 };
        let effects = s.apply(now, Event::Tick);
        if !effects.is_empty() {
            done.push((ns / SECOND, effects));
        }
    }
    done
}

#[test]
fn one_is_moved_aside_for_a_newcomer() {
    let (mut s, effects) = displaced();
    assert!(brief(&effects).contains(&"save 5.1 placed".to_owned()), "{:?}", brief(&effects));
    assert_eq!(sits(&s, 5), [Nid(0), Nid(1)]);
    // It stands before its node has moved it, and holds both places.
    let now = at(2_001);
    assert_ne!(s.turn(Apid(2), now.mono_ns), Turn::Always);
    assert_eq!(sits(&s, 2), [Nid(1)]);
    for nid in [1, 2] {
        assert!(s.occupancy.holders(Nid(nid)).contains(&Apid(2)), "it holds both places");
    }
    let said = report_at(&mut s, 2_001, 1, moved(key(2, 1), 1));
    let expected = ["log 2 moved", "save 2.1 running lazy"];
    assert!(expected.iter().all(|one| said.iter().any(|said| said == one)), "{said:?}");
    assert_eq!(s.turn(Apid(2), now.mono_ns + SECOND), Turn::Always);
    assert_eq!(sits(&s, 2), [Nid(2)]);
    assert_eq!(s.occupancy.holders(Nid(1)), [Apid(5)]);
    // Said again it has no effect.
    assert_eq!(report_at(&mut s, 2_001, 1, moved(key(2, 1), 1)), Vec::<String>::new());
}

/// Who is moved by these effects, as which move, and where to.
fn told(effects: &[Effect]) -> Option<(u64, u32, Vec<Nid>)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Command { command: Command::Move(order), .. } => {
            Some((order.key.apid.0, order.number, order.places.nids().collect()))
        }
        _ => None,
    })
}

fn sits(s: &Scheduler, apid: u64) -> Vec<Nid> {
    s.team(Apid(apid)).map(|team| team.places.nids().collect()).unwrap_or_default()
}

fn able() -> Abilities {
    Abilities { moves: true, ..Abilities::default() }
}

#[test]
fn one_that_can_t_be_moved_stays_and_is_left_alone_after_that() {
    let (mut s, _) = displaced();
    let why = MigrationBlocker::NotBound("its processors are taken".into());
    let failed = Report::MoveFailed { key: key(2, 1), number: 1, why };
    let said = report_at(&mut s, 2_001, 1, failed);
    assert!(said.contains(&"log 2 not-moved".to_owned()), "{said:?}");
    assert_eq!(sits(&s, 2), [Nid(1)]);
    // What was held for it is free again.
    s.apply(at(2_002), posted(6, 1));
    assert_eq!(sits(&s, 6), [Nid(2)]);
    let done = until(&mut s, 9_000);
    assert!(!done.iter().any(|(_, effects)| told(effects).is_some_and(|(apid, ..)| apid == 2)));
}

#[test]
fn one_that_ends_on_its_way_holds_neither_place() {
    let (mut s, _) = displaced();
    report_at(&mut s, 2_001, 1, ended(key(2, 1), &[1], None));
    assert_eq!(s.occupancy.holders(Nid(1)), [Apid(5)]);
    assert_eq!(s.occupancy.holders(Nid(2)), []);
}

/// The same records, and a node that has answered, or has not.
#[test]
fn a_psched_that_is_started_again_goes_on_with_a_move() {
    for has_moved in [false, true] {
        let (s, _) = displaced();
        let records: Vec<Apteam> = s.teams().cloned().collect();
        let (mut s, _) = Scheduler::restore(
            machine(4, 1),
            Settings { abilities: able(), ..plain() },
            records,
            BTreeMap::new(),
            Orders::default(),
            7,
            at(2_010),
        );
        // Both places are its own until its node has said where it is.
        assert_eq!(s.occupancy.holders(Nid(2)), [Apid(2)]);
        assert_ne!(s.turn(Apid(2), 2_011 * SECOND), Turn::Always);
        s.apply(at(2_011), Event::LinkOpened { link: LinkId(9), hello: hello(&[0, 1, 2, 3]) });
        if has_moved {
            report(&mut s, 9, moved(key(2, 1), 1));
            assert_eq!(sits(&s, 2), [Nid(2)]);
        }
        let items = [2, 4].map(|apid| (key(apid, 1), Phase::Running)).to_vec();
        let effects = s.apply(at(2_011), Event::Inventory { link: LinkId(9), items });
        let again = (!has_moved).then(|| (2, 1, vec![Nid(2)]));
        assert_eq!(told(&effects), again);
        report(&mut s, 9, moved(key(2, 1), 1));
        assert_eq!(sits(&s, 2), [Nid(2)]);
        assert!(s.occupancy.holders(Nid(1)).iter().all(|apid| *apid != Apid(2)));
    }
}

/// Nobody is moved of whom nodes have not said that they can move him.
#[test]
fn blockers_are_what_nodes_say() {
    let named = Some(MigrationBlocker::ProcessorsNamed);
    for (said, moves) in [(None, false), (Some(None), true), (Some(named), false)] {
        let abilities = Abilities { says: true, ..able() };
        let mut s = two_apart(Settings { abilities, ..plain() });
        if let Some(blocker) = said.clone() {
            report(&mut s, 1, Report::Movable { key: key(2, 1), blocker });
        }
        let effects = s.apply(at(2_000), posted(5, 2));
        let later = until(&mut s, 9_000);
        let all = [&effects].into_iter().chain(later.iter().map(|(_, effects)| effects));
        assert_eq!(all.filter_map(|effects| told(effects)).next().is_some(), moves, "{said:?}");
    }
}

fn ordered(s: &mut Scheduler, event: Event) -> Vec<String> {
    let effects = s.apply(at(2_100), event);
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Managed { done, problems, .. } => {
                let all = done.iter().chain(problems);
                Some(all.cloned().collect::<Vec<_>>())
            }
            _ => None,
        })
        .flatten()
        .collect()
}

fn migrate(apid: u64, nids: Option<&[u32]>, dry_run: bool) -> Event {
    let nids = nids.map(|nids| nids.iter().map(|n| Nid(*n)).collect());
    Event::Migrate { reply: ReplyId(3), apid: Apid(apid), nids, dry_run, by: By::default() }
}

#[test]
fn an_administrator_moves_one() {
    let mut s = fragments(able());
    let plan = ordered(&mut s, migrate(2, Some(&[2]), true));
    assert_eq!(
        plan,
        [
            "application 2 of alice: NID 1 to NID 2, 1 PE",
            "1 move, estimated with 31s of processor time (application.load_balance.move_cost)"
        ]
    );
    assert_eq!(sits(&s, 2), [Nid(1)]);
    // The answer comes with the node's.
    assert_eq!(ordered(&mut s, migrate(2, Some(&[2]), false)), Vec::<String>::new());
    for nid in [1, 2] {
        assert_eq!(s.occupancy.holders(Nid(nid)), [Apid(2)], "it holds both places");
    }
    let busy = ordered(&mut s, migrate(4, None, false));
    assert!(busy[0].contains("other moves are in progress"), "{busy:?}");
    let effects = s
        .apply(at(2_101), Event::Report { link: LinkId(1), report: Box::new(moved(key(2, 1), 1)) });
    let done = effects.iter().find_map(|effect| match effect {
        Effect::Managed { reply, done, problems } => Some((*reply, done.clone(), problems.len())),
        _ => None,
    });
    let text = "application 2 of alice: on NID 2".to_owned();
    assert_eq!(done, Some((ReplyId(3), vec![text], 0)));
    // Both that run now fit nowhere else but on 0 or 1.
    assert_eq!(sits(&s, 2), [Nid(2)]);
}

/// The application that [`displaced`] moves aside, where it has just been moved.
#[test]
fn one_that_was_moved_a_moment_ago_is_left_alone() {
    let mut s = two_apart(Settings { abilities: able(), ..plain() });
    for (number, nid) in [(1, 2), (2, 1)] {
        ordered(&mut s, migrate(2, Some(&[nid]), false));
        report_at(&mut s, 2_100, 1, moved(key(2, 1), number));
        assert_eq!(sits(&s, 2), [Nid(nid)]);
    }
    let early = until(&mut s, 3_000);
    let effects = s.apply(at(3_000), posted(5, 2));
    assert!(told(&effects).is_none_or(|(apid, ..)| apid != 2), "{:?}", told(&effects));
    let later = until(&mut s, 2_100 + 3_599);
    assert!(
        !early.iter().chain(&later).any(|(_, done)| told(done).is_some_and(|(apid, ..)| apid == 2))
    );
}

#[test]
fn what_an_administrator_can_t_have_moved_is_said() {
    let mut s = fragments(able());
    let mut said = |event| ordered(&mut s, event).join("\n");
    let cases = [
        (migrate(9, None, true), "there is no application 9"),
        (migrate(5, None, true), "application 5 of alice can't be moved: it has no place yet"),
        (migrate(2, Some(&[0, 2]), true), "keeps its shape, on 1 node: NIDs 0,2 are 2"),
        (migrate(2, Some(&[7]), true), "NID 7: not in psched.yaml"),
        (migrate(2, Some(&[3]), true), "does not fit on NID 3 (application 4 of alice)"),
    ];
    for (event, expected) in cases {
        let text = said(event);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn nobody_is_moved_where_nodes_can_move_nobody_or_the_gate_says_no() {
    for (moves, enabled) in [(false, true), (true, false)] {
        let mut s = fragments(Abilities { moves, ..Abilities::default() });
        let mut settings =
            Settings { abilities: Abilities { moves, ..Abilities::default() }, ..alone() };
        settings.turns.migration.enabled = enabled;
        s.apply(at(2_001), Event::Settings(Box::new(settings)));
        let moved =
            |effect: &Effect| matches!(effect, Effect::Command { command: Command::Move(_), .. });
        assert!(!until(&mut s, 9_000).iter().any(|(_, effects)| effects.iter().any(moved)));
        assert_eq!(s.team(Apid(5)).map(|team| team.state), Some(State::Posted));
    }
}

#[test]
fn no_window_is_made_elsewhere_for_one_that_has_chosen_its_nodes() {
    let mut fifth = posted(5, 2);
    let Event::Posted { posting, .. } = &mut fifth else { unreachable!() };
    posting.choice = Choice::default().only("1-2").expect("a list");
    let mut s = fragments_for(Abilities { moves: true, ..Abilities::default() }, fifth);
    let moved =
        |effect: &Effect| matches!(effect, Effect::Command { command: Command::Move(_), .. });
    assert!(!until(&mut s, 9_000).iter().any(|(_, effects)| effects.iter().any(moved)));
    assert_eq!(s.team(Apid(5)).map(|team| team.state), Some(State::Posted));
}

fn compact(dry_run: bool) -> Event {
    Event::Compact { reply: ReplyId(3), region: "all".into(), dry_run, by: By::default() }
}

/// Six nodes of a processor, on which up to four may sit, with an application on each; then these end.
fn six(links: &[&[u32]], end: &[u64]) -> Scheduler {
    let settings = Settings { abilities: Abilities { says: true, ..able() }, ..plain() };
    let mut s = Scheduler::new(machine(6, 1), settings);
    for (number, nids) in (1..).zip(links) {
        link(&mut s, number, nids, &[]);
    }
    let of = |nid: u32| (1..).zip(links).find(|(_, nids)| nids.contains(&nid)).expect("a link").0;
    for number in 1..=6u32 {
        s.apply(at(1), posted(number as u8, 1));
        let key = key(number.into(), 1);
        for said in
            [Report::Launched(key), Report::Running(key), Report::Movable { key, blocker: None }]
        {
            report(&mut s, of(number - 1), said);
        }
        assert_eq!(sits(&s, number.into()), [Nid(number - 1)]);
    }
    for apid in end {
        let nid = *apid as u32 - 1;
        report(&mut s, of(nid), ended(key(*apid, 1), &[nid], None));
    }
    s
}

fn moves(said: &[String]) -> Vec<&str> {
    let moves = said.iter().filter(|line| line.contains(" to "));
    moves.filter_map(|line| Some(line.split_once(": ")?.1.split_once(',')?.0)).collect()
}

#[test]
fn nobody_is_brought_on_anothers_processors() {
    let mut s = six(&[&[0, 1, 2, 3, 4, 5]], &[1, 3, 5]);
    let said = ordered(&mut s, compact(true));
    assert_eq!(moves(&said), ["NID 1 to NID 0", "NID 5 to NID 2", "NID 3 to NID 1"]);
    let said = ordered(&mut s, migrate(2, None, true));
    // The smallest gap that suffices: NIDs 0 to 2 are one when it has left.
    assert_eq!(moves(&said), ["NID 1 to NID 4"]);
    let mut s = six(&[&[0, 1, 2, 3, 4, 5]], &[4]);
    let said = ordered(&mut s, migrate(2, None, true));
    assert_eq!(moves(&said), ["NID 1 to NID 3"]);
    // Where there is none free it may share.
    let mut s = six(&[&[0, 1, 2, 3, 4, 5]], &[]);
    assert_eq!(moves(&ordered(&mut s, migrate(2, None, true))).len(), 1);
    let said = ordered(&mut s, compact(true));
    let why = "nothing to move: no movable application would find enough free processors at \
               lower NIDs";
    assert_eq!(said, [why]);
}

#[test]
fn each_is_brought_together_among_the_nodes_of_its_apinit() {
    let mut s = six(&[&[0, 1, 2], &[3, 4, 5]], &[1, 2, 5]);
    let said = ordered(&mut s, compact(true));
    assert_eq!(moves(&said), ["NID 2 to NID 0", "NID 5 to NID 4"]);
    // What is free on the other is out of reach, and that is said.
    let mut s = six(&[&[0, 1, 2], &[3, 4, 5]], &[2, 3, 5, 6]);
    report(
        &mut s,
        2,
        Report::Movable {
            key: key(4, 1),
            blocker: Some(MigrationBlocker::NotBound("it has a tty".into())),
        },
    );
    let said = ordered(&mut s, compact(true));
    let why = "nothing to move: no movable application would find enough free processors at \
               lower NIDs, each stays on the nodes of its apinit (NIDs 0-2; NIDs 3-5), some \
               can't be moved (application 4 of alice: it has a tty)";
    assert_eq!(said, [why]);
    let mut s = six(&[&[0, 1, 2, 3, 4, 5]], &[1, 2, 3, 4, 5, 6]);
    assert_eq!(ordered(&mut s, compact(true)), ["nothing to move: no application runs there"]);
}
