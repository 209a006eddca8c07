//! Domains: who is of which, that each goes by its own variables, and that none feels another.

use super::decided::Play;
use super::*;
use crate::apteam::Apid;
use crate::apteam::record::Apteam;
use crate::apteam::record::State;
use crate::config;
use crate::machine::Nid;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// NIDs 0-3 without floors, two on a processor; 4-5 with cycles of 100 ms, three on one, for who is narrow.
const TWO: &str = "
nodes:
  - { nids: 0, processors: 2, flavors: [su, os, ap] }
  - { nids: 1-3, processors: 2 }
  - { nids: 4-5, processors: 1 }
regions:
  - { name: quick, nids: 4-5, domain: quick, gates: { width: 1-2 } }
  - { name: long, nids: 0-3 }
variables:
  application.level.bound: 1m
  application.max_resident: 2
  quick.level.bound: 1m
  quick.time_slice: 100ms
  quick.max_resident: 3
";

fn play(text: &str) -> Play {
    let config = config::read(text).expect("a good file");
    let mut settings = Settings::from(&config.variables);
    settings.turns.floors = false;
    settings.domains.values_mut().for_each(|turns| turns.floors = false);
    Play::on(config.machine, settings)
}

/// The same, and the narrow ones have floors.
fn play_with_floors() -> Play {
    let mut play = play(TWO);
    play.set(|settings| settings.domains.get_mut("quick").expect("it").floors = true);
    play
}

fn domain(play: &Play, apid: u64) -> &str {
    &play.s.team(Apid(apid)).expect("it is there").domain
}

/// The lengths of the slices of each plan, in milliseconds, and who is in them.
fn slices(play: &Play) -> Vec<Vec<(u64, Vec<u64>)>> {
    let plan = |plan: PlanView<'_>| {
        let slice = |slice: &crate::gang::plan::Slice| {
            let party = slice.party.iter().map(|apid| apid.0).collect();
            (slice.length.as_millis() as u64, party)
        };
        plan.slices.iter().map(slice).collect()
    };
    play.s.plans().map(plan).collect()
}

#[test]
fn each_goes_by_variables_of_its_own() {
    let mut play = play_with_floors();
    // Three of two PEs sit on each other, and two of them have a quarter of 100 ms in turns; a fourth waits.
    (1..=4).for_each(|number| play.post(number, 2));
    play.pass(1);
    assert_eq!([1, 2, 3].map(|apid| play.nids(apid)), ["4-5"; 3]);
    let slice = |apid: u64, ms: u64| (ms, vec![apid]);
    let quick = [slice(1, 75), slice(2, 25), slice(1, 75), slice(3, 25)];
    assert_eq!(slices(&play), [quick]);
    assert_eq!((domain(&play, 1), domain(&play, 4)), ("quick", "quick"));
    assert_eq!(play.party(), [1]);
    // Two of eight: who came first runs until it has had enough.
    (5..=6).for_each(|number| play.post(number, 8));
    assert_eq!([5, 6].map(|apid| play.nids(apid)), ["0-3", ""]);
    assert_eq!((domain(&play, 5), play.party()), ("application", vec![1, 5]));
    play.pass(70);
    assert_eq!(play.nids(6), "0-3", "a minute is the bound of the first level");
    assert_eq!(play.party(), [1, 6]);
    // (Cycles of 100 ms went on meanwhile.)
    let had = |apid| play.s.attained(Apid(apid), 71 * SECOND).as_millis() as u64;
    let [one, two, three] = [1, 2, 3].map(had);
    assert!(one.abs_diff(53_275) <= 100, "{one}");
    assert!(two.abs_diff(8_862) <= 100 && two.abs_diff(three) <= 100, "{two} {three}");
    // Other variables of one of them.
    play.set(|settings| {
        let quick = settings.domains.get_mut("quick").expect("it has variables");
        (quick.time_slice, quick.max_resident) = (Duration::from_millis(200), 4);
    });
    play.pass(1);
    let quick = slices(&play).into_iter().find(|plan| plan[0].1 != [6]).expect("a plan");
    let lengths: BTreeSet<u64> = quick.iter().map(|(length, _)| *length).collect();
    assert_eq!((play.nids(4).as_str(), lengths), ("4-5", [50, 150].into()));
    play.set(|settings| {
        settings.domains.get_mut("quick").expect("it").floors = false;
        settings.turns.floors = true;
    });
    // Of the narrow ones only one runs now; of the long ones both have turns.
    let all = slices(&play);
    assert!(all.contains(&vec![(750, vec![6]), (250, vec![5])]), "{all:?}");
    assert!(all.iter().any(|plan| plan[0].0 == 600_000), "{all:?}");
}

#[test]
fn a_posting_is_of_the_first_domain_that_lets_it_in_and_could_hold_it() {
    let mut play = play_with_floors();
    play.post(1, 3);
    assert_eq!((domain(&play, 1), play.nids(1).as_str()), ("application", "0-1"));
    // Nine processors in a row there are, but not of one domain.
    let effects = play.s.apply(at(1), posted(2, 9));
    let refused = |effect: &Effect| match effect {
        Effect::Refuse { reason, .. } => Some(reason.to_string()),
        _ => None,
    };
    let said = effects.iter().find_map(refused).expect("refused");
    assert!(said.contains("can hold at most 8 PEs of this shape (NIDs 0-3)"), "{said}");
    // Gates of one domain say nothing of another: two PEs that would fit on 0-3 wait for 4-5.
    (3..=6).for_each(|number| play.post(number, 2));
    play.pass(1);
    let why = play.s.why(Apid(5)).expect("it waits").to_string();
    assert!(why.contains("NIDs 4-5"), "{why}");
}

/// NID 3 goes over.
fn other(nids: &str, rest: &str) -> Event {
    let text = TWO.replace("nids: 4-5, domain", &format!("nids: {nids}, domain"));
    let text = text.replace("nids: 0-3 }", &format!("nids: {rest} }}"));
    Event::Machine(Box::new(config::read(&text).expect("a good file").machine))
}

#[test]
fn a_node_in_use_goes_over_to_another_domain_when_it_is_empty() {
    let mut play = play_with_floors();
    play.post(1, 8);
    let Event::Machine(machine) = other("3-5", "0-2") else { unreachable!() };
    let told = play.s.compared(at(1), *machine, play.s.settings().clone());
    assert_eq!(told, ["application 1 of alice keeps NID 3, which takes no new applications"]);
    play.take(other("3-5", "0-2"));
    // Who runs stays of its domain, and beside it nobody of the other is placed.
    assert_eq!((domain(&play, 1), play.nids(1).as_str()), ("application", "0-3"));
    (2..=7).for_each(|number| play.post(number, 1));
    play.pass(1);
    assert!((2..=7).all(|apid| play.nids(apid) != "3"), "somebody is on NID 3");
    let note = |play: &Play| {
        let nodes: Vec<_> = play.s.nodes().collect();
        nodes
            .iter()
            .find(|view| view.node.nid == Nid(3))
            .map(|n| notes_said(&n.notes))
            .expect("it is there")
            .join("; ")
    };
    assert!(note(&play).contains("moves to another domain"), "{}", note(&play));
    play.post(8, 1);
    play.pass(1);
    assert_eq!(play.nids(8), "", "it waits");
    let why = |play: &Play, apid| play.s.why(Apid(apid)).expect("it waits").to_string();
    assert!(why(&play, 8).contains("(at most 3 on each: quick.max_resident)"), "{}", why(&play, 8));
    play.ends(1);
    assert_eq!((play.nids(8).as_str(), note(&play).as_str()), ("3", ""));
    // Back again: what sits there is of the other domain until it ends.
    play.take(other("4-5", "0-3"));
    play.post(9, 7);
    assert_eq!(play.nids(9), "", "NIDs 0-2 hold six");
    let said = why(&play, 9);
    assert!(said.contains("NID 3 is in use by applications of another domain"), "{said}");
    play.ends(8);
    assert_eq!(play.nids(9), "0-3");
}

/// It was known to two domains, once its own was there again, and each let it run and stand by itself; and what it
/// had had was forgotten.
#[test]
fn who_outlives_its_domain_takes_along_what_it_has_had_and_back() {
    for floors in [false, true] {
        let mut play = play(TWO);
        play.set(|settings| settings.domains.get_mut("quick").expect("it").floors = floors);
        (1..=2).for_each(|number| play.post(number, 8));
        play.pass(70);
        let had = |play: &Play, seconds: u64| {
            [1, 2].map(|apid| {
                let had = play.s.attained(Apid(apid), (70 + seconds) * SECOND);
                (had.as_millis() + 500) / 1_000
            })
        };
        assert_eq!((had(&play, 0), play.party()), ([60, 10], vec![2]));
        // There is one domain, whose name is none of theirs.
        let one = TWO.replace("name: long, nids: 0-3", "name: long, nids: 0-3, domain: quick");
        let of = |text: &str| config::read(text).expect("a good file").machine;
        play.take(Event::Machine(Box::new(of(&one))));
        assert!(play.s.levels_are_of_their_domains());
        assert_eq!(had(&play, 0), [60, 10]);
        assert_eq!(play.party(), [2]);
        play.pass(10);
        // (With floors the other has a quarter of it.)
        let then = if floors { [62, 18] } else { [60, 20] };
        assert_eq!(had(&play, 10), then);
        play.take(Event::Machine(Box::new(of(TWO))));
        assert!(play.s.levels_are_of_their_domains());
        assert_eq!((had(&play, 10), play.party()), (then, vec![2]));
    }
}

/// Any reload took one that had been held since psched was started for one that had had nothing, and let it run
/// before everybody.
#[test]
fn one_that_is_held_since_a_start_is_no_newcomer_after_a_reload() {
    let mut play = play(TWO);
    play.post(1, 8);
    play.pass(100);
    play.hold(1, true);
    let records: Vec<Apteam> = play.s.teams().cloned().collect();
    let (machine, settings) = (play.s.machine().clone(), play.s.settings().clone());
    let (boots, orders) = (BTreeMap::new(), Default::default());
    (play.s, _) = Scheduler::restore(machine, settings, records, boots, orders, 3, at(100));
    play.set(|settings| settings.turns.time_slice = Duration::from_secs(7));
    play.hold(1, false);
    let had = play.s.attained(Apid(1), 100 * SECOND);
    assert!(had >= Duration::from_secs(90), "{had:?}");
}

#[test]
fn the_domain_is_on_record() {
    let mut play = play(TWO);
    play.post(1, 8);
    play.post(2, 1);
    let records: Vec<Apteam> = play.s.teams().cloned().collect();
    let Event::Machine(machine) = other("3-5", "0-2") else { unreachable!() };
    let settings = play.s.settings().clone();
    let restore = |records| {
        let orders = Default::default();
        let boots = BTreeMap::new();
        let (machine, settings) = (*machine.clone(), settings.clone());
        Scheduler::restore(machine, settings, records, boots, orders, 3, at(5)).0
    };
    let s = restore(records.clone());
    let domains =
        |s: &Scheduler| [1, 2].map(|a| s.team(Apid(a)).expect("there").domain.to_string());
    assert_eq!(domains(&s), ["application", "quick"]);
    // A release that knew none has none on record: it is that of the first of its nodes.
    let without = records.into_iter().map(|team| Apteam { domain: Default::default(), ..team });
    assert_eq!(domains(&restore(without.collect())), ["application", "quick"]);
}

/// What happens after so many milliseconds: a posting of this width, or the end of the so-manieth that runs.
#[derive(Clone, Debug)]
enum Act {
    Post(u32),
    End(usize),
    Drain(u32, bool),
}

fn acts(
    widths: std::ops::Range<u32>,
    nids: std::ops::Range<u32>,
) -> BoxedStrategy<Vec<(u64, Act)>> {
    let act = prop_oneof![
        3 => widths.prop_map(Act::Post),
        2 => (0usize..6).prop_map(Act::End),
        1 => (nids, any::<bool>()).prop_map(|(nid, open)| Act::Drain(nid, open)),
    ];
    proptest::collection::vec((0u64..90, act), 0..14).boxed()
}

/// Plays the acts of both domains, each at its seconds, and says what came of those of `domain`.
fn seen(acts: [&[(u64, Act)]; 2], domain: &str) -> Vec<String> {
    let mut play = play(TWO);
    let mut line: Vec<(u64, usize, &Act)> = Vec::new();
    for (of, acts) in acts.into_iter().enumerate() {
        let mut second = 0;
        for (after, act) in acts {
            second += after;
            line.push((second, of, act));
        }
    }
    line.sort_by_key(|(second, of, _)| (*second, *of));
    let (mut now, mut number, mut said) = (0, [0u8, 100], Vec::new());
    for (second, of, act) in line {
        play.pass(second - now);
        now = second;
        let mine = ["quick", "application"][of];
        let runs = |team: &&Apteam| team.state == State::Running && &*team.domain == mine;
        match act {
            Act::Post(width) => {
                number[of] += 1;
                play.post(number[of], *width);
            }
            Act::End(which) => {
                let running: Vec<u64> = play.s.teams().filter(runs).map(|t| t.apid.0).collect();
                if let Some(apid) = running.get(which % running.len().max(1)) {
                    play.ends(*apid);
                }
            }
            Act::Drain(nid, open) => {
                let to = match open {
                    true => NodesTo::Resume,
                    false => NodesTo::Close(crate::apteam::change::Closed::Drained),
                };
                let (reply, reason, by) = (ReplyId(1), String::new(), By::default());
                play.take(Event::Nodes { reply, to, nids: [Nid(*nid)].into(), reason, by });
            }
        }
        if mine != domain {
            continue;
        }
        // By the number of the posting: apids are given to both.
        for team in play.s.teams().filter(|team| &*team.domain == domain) {
            let had = play.s.attained(team.apid, now * SECOND).as_micros();
            said.push(format!(
                "{now}: {} {} {} on {} had {had}",
                team.posting.request_id[0],
                team.state.name(),
                play.s.schedule.decision.party.contains(&team.apid),
                format_nids(team.places.nids()),
            ));
        }
    }
    said
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn no_domain_feels_another(
        quick in acts(1..3, 4..6),
        long in acts(3..9, 0..4),
    ) {
        let (both, none) = ([&quick[..], &long[..]], &[][..]);
        prop_assert_eq!(seen(both, "quick"), seen([&quick, none], "quick"));
        prop_assert_eq!(seen(both, "application"), seen([none, &long], "application"));
    }
}
