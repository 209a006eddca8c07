use super::*;
use crate::apshepherd::decide::asks::Asks;
use crate::apshepherd::decide::pmi::{self, Pmi};
use crate::apteam::protocol::peers::{BarrierIn, BarrierOut};
use proptest::prelude::*;
use std::collections::BTreeSet;

const MOST: u64 = 64 << 20;

fn fence(number: u64, ranks: &[u32], data: &[u8]) -> FromMix {
    let (ranks, data) = (ranks.to_vec(), Bytes::copy_from_slice(data));
    FromMix::Fence { number, ranks, spawned: Vec::new(), data }
}

fn over(number: u64, status: i32, data: &[u8]) -> Effect {
    let data = Bytes::copy_from_slice(data);
    Effect::Tell(ToMix::FenceOver { number, status, data, last: true })
}

#[test]
fn on_a_lone_host_a_fence_is_over_at_once() {
    let mut pmix = Pmix::new(true, MOST, 2, 0..2);
    assert_eq!(pmix.hear(0, fence(1, &[], b"ab")), [over(1, SUCCESS, b"ab")]);
    assert_eq!(pmix.hear(0, fence(2, &[0, 1], b"")), [over(2, SUCCESS, b"")]);
}

#[test]
fn a_fence_of_pes_of_this_host_is_over_at_once() {
    let mut pmix = Pmix::new(false, MOST, 4, 0..2);
    assert_eq!(pmix.hear(0, fence(1, &[0, 1], b"x")), [over(1, SUCCESS, b"x")]);
}

/// No PE has one of these ranks, or none of them is on this host: who waits is told.
#[test]
fn a_fence_of_pes_that_are_not_there_ends_at_once() {
    for alone in [false, true] {
        let mut pmix = Pmix::new(alone, MOST, 4, 0..2);
        for ranks in [&[0, 4][..], &[u32::MAX - 2]] {
            assert_eq!(pmix.hear(0, fence(1, ranks, b"x")), [over(1, NOT_SUPPORTED, b"")]);
        }
    }
    let mut pmix = Pmix::new(false, MOST, 4, 0..2);
    assert_eq!(pmix.hear(0, fence(1, &[2, 3], b"x")), [over(1, NOT_SUPPORTED, b"")]);
}

/// Asks for what a PE has put, or its answer.
fn letter((from, to): (u32, u32), number: u64, text: LetterText) -> Letter {
    Letter { to, from, number, text }
}

fn put(data: &'static [u8]) -> LetterText {
    LetterText::Answer { status: SUCCESS, data: Bytes::from_static(data) }
}

#[test]
fn what_a_pe_of_another_host_has_put_is_asked_of_its_host() {
    let mut pmix = Pmix::new(false, MOST, 4, 2..4);
    let (to, from, text, asker) = (1, 2, LetterText::Modex { spawned: None }, Asker::Modex(9));
    let asks = Effect::Ask { to, from, text, asker };
    assert_eq!(pmix.hear(0, FromMix::Modex { number: 9, rank: 1, spawned: None }), [asks]);
    let data = Bytes::from_static(b"put");
    let found = Effect::Tell(ToMix::ModexFound { number: 9, status: SUCCESS, data: data.clone() });
    assert_eq!(pmix.answered(Asker::Modex(9), SUCCESS, data), [found]);
    // Of nobody, and of a PE of this host, which appmix knows.
    for rank in [4, 3] {
        let effects = pmix.hear(0, FromMix::Modex { number: 1, rank, spawned: None });
        let (number, status, data) = (1, NOT_FOUND, Bytes::new());
        assert_eq!(effects, [Effect::Tell(ToMix::ModexFound { number, status, data })]);
    }
}

#[test]
fn a_pe_that_many_ask_for_is_looked_up_once() {
    let mut pmix = Pmix::new(false, MOST, 9, 0..2);
    let asks = |from, number| letter((from, 1), number, LetterText::Modex { spawned: None });
    assert_eq!(
        pmix.asked(asks(2, 5)),
        [Effect::Tell(ToMix::LookUp { number: 1, rank: 1, spawned: None })]
    );
    assert_eq!(pmix.asked(asks(4, 5)), []);
    assert_eq!(pmix.asked(asks(2, 5)), [], "it is asked again");
    let data = Bytes::from_static(b"put");
    let found = FromMix::Found { number: 1, status: SUCCESS, data };
    let told = [2, 4].map(|to| Effect::Answer(letter((1, to), 5, put(b"put"))));
    assert_eq!(pmix.hear(0, found.clone()), told);
    assert_eq!(pmix.hear(0, found), []);
    // An answer may have been lost: it is looked up anew.
    assert_eq!(
        pmix.asked(asks(4, 5)),
        [Effect::Tell(ToMix::LookUp { number: 2, rank: 1, spawned: None })]
    );
    // More than a letter holds, and a PE that is not here.
    let found = FromMix::Found { number: 2, status: 0, data: vec![0; LETTER_MAX + 1].into() };
    let none = |status| LetterText::Answer { status, data: Bytes::new() };
    assert_eq!(pmix.hear(0, found), [Effect::Answer(letter((1, 4), 5, none(NO_ROOM)))]);
    let effects = pmix.asked(letter((4, 7), 6, LetterText::Modex { spawned: None }));
    assert_eq!(effects, [Effect::Answer(letter((7, 4), 6, none(NOT_FOUND)))]);
}

/// The ends of fences that a host's PEs were told of, by their numbers.
type Ends = Vec<(u64, Vec<u8>)>;

/// Hosts of two PEs each whose letters may be lost, or come twice and in any order, until all that was asked is
/// answered: what PEs were told of the fences that they were in, host by host.
fn fences_over_bad_cables(
    sets: &[Vec<u32>],
    hosts: u32,
    mut choice: impl FnMut() -> u8,
) -> Vec<Ends> {
    let new = |host| Pmix::new(false, MOST, 2 * hosts, [2 * host, 2 * host + 1]);
    let mut all: Vec<(Pmix, Asks, Ends)> =
        (0..hosts).map(|host| (new(host), Asks::default(), Vec::new())).collect();
    let mut letters: Vec<Letter> = Vec::new();
    let mut effects: VecDeque<(usize, Effect)> = VecDeque::new();
    // Each host goes to its next fence when the last one is over, as PEs do.
    let mut next = vec![0; hosts as usize];
    let mut now = 0;
    for _ in 0..100_000 {
        for (host, (pmix, _, over)) in all.iter_mut().enumerate() {
            let own = |set: &&Vec<u32>| set.iter().any(|rank| rank / 2 == host as u32);
            let mine: Vec<&Vec<u32>> = sets.iter().filter(own).collect();
            if next[host] == over.len()
                && let Some(set) = mine.get(next[host])
            {
                next[host] += 1;
                let given = [host as u8, next[host] as u8];
                let number = next[host] as u64;
                let more = pmix.hear(0, fence(number, set, &given));
                effects.extend(more.into_iter().map(|effect| (host, effect)));
            }
        }
        while let Some((host, effect)) = effects.pop_front() {
            let (_, asks, over) = &mut all[host];
            match effect {
                Effect::Ask { to, from, text, asker } => {
                    assert!(asks.ask((from, to), text, asker).is_ok());
                    letters.extend(asks.next(now));
                }
                Effect::Answer(letter) => letters.push(letter),
                Effect::Tell(ToMix::FenceOver { number, data, last: true, .. }) => {
                    over.push((number, data.to_vec()));
                }
                other => panic!("{other:?}"),
            }
        }
        if letters.is_empty() {
            let Some(due) = all.iter().filter_map(|(_, asks, _)| asks.due_ns()).min() else {
                if next.iter().zip(&all).all(|(next, (_, _, over))| *next == over.len()) {
                    let done = all.iter().enumerate().all(|(host, (_, _, over))| {
                        let own = |set: &&Vec<u32>| set.iter().any(|rank| rank / 2 == host as u32);
                        over.len() == sets.iter().filter(own).count()
                    });
                    if done {
                        return all.into_iter().map(|(_, _, over)| over).collect();
                    }
                }
                continue;
            };
            now = due;
            all.iter_mut().for_each(|(_, asks, _)| letters.extend(asks.next(now)));
        }
        let letter = letters.swap_remove(usize::from(choice()) % letters.len());
        match choice() % 4 {
            0 => continue,
            1 => letters.push(letter.clone()),
            _ => {}
        }
        let host = letter.to as usize / 2;
        let (pmix, asks, _) = &mut all[host];
        let more = match letter.text {
            LetterText::Answer { status, data } => {
                let asker = asks.answered(letter.number);
                letters.extend(asks.next(now));
                asker.map(|asker| pmix.answered(asker, status, data)).unwrap_or_default()
            }
            _ => pmix.asked(letter),
        };
        effects.extend(more.into_iter().map(|effect| (host, effect)));
    }
    panic!("some wait for ever: {letters:?}");
}

proptest! {
    /// Whoever is in a fence of some PEs gets what all hosts of that set have given, each host's once, whatever
    /// becomes of letters.
    #[test]
    fn fences_of_some_pes_end_for_all_of_them(
        sets in prop::collection::vec(prop::collection::btree_set(0u32..8, 1..8), 1..3),
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
        choices in prop::collection::vec(any::<u8>(), 1..96),
    ) {
        // (Most sets have several fences, which follow each other.)
        let one = |index: &prop::sample::Index| index.get(&sets).iter().copied().collect();
        let sets: Vec<Vec<u32>> = order.iter().map(one).collect();
        // (The last choice is one that loses nothing: in the end all letters come.)
        let mut choices = choices.into_iter().chain(std::iter::repeat(2));
        let over = fences_over_bad_cables(&sets, 4, || choices.next().unwrap_or(2));
        // Of each host, by the order of its own fences: those of set `at`.
        let mut taken = [0; 4];
        for set in &sets {
            let hosts: BTreeSet<u32> = set.iter().map(|rank| rank / 2).collect();
            let given: Vec<u8> = hosts
                .iter()
                .flat_map(|host| [*host as u8, taken[*host as usize] as u8 + 1])
                .collect();
            for host in hosts {
                let host = host as usize;
                let (number, data) = &over[host][taken[host]];
                prop_assert_eq!(*number, taken[host] as u64 + 1);
                prop_assert_eq!(data, &given, "{:?} at host {}", set, host);
                taken[host] += 1;
            }
        }
    }
}

#[test]
fn fences_of_some_pes_have_bounds() {
    let ended = |effects: Vec<Effect>| matches!(&effects[..], [Effect::Garbage(_)]);
    // Whether it is gathered here or there.
    for own in [0..2, 2..4] {
        let mut pmix = Pmix::new(false, MOST, 4000, own);
        assert!(ended(pmix.hear(0, fence(1, &[1, 2], &vec![0; LETTER_MAX + 1]))));
    }
    let mut pmix = Pmix::new(false, MOST, 4000, 0..2);
    assert_eq!(pmix.hear(0, fence(1, &[1, 2], &vec![0; LETTER_MAX])), []);
    let data = vec![0; LETTER_MAX].into();
    let (ranks, here) = (vec![1, 2], vec![2]);
    assert!(ended(pmix.asked(letter(
        (2, 1),
        1,
        LetterText::Fence { ranks, spawned: vec![], turn: 1, here, data }
    ))));
    let mut pmix = Pmix::new(false, MOST, 40_000, 2..4);
    let sets = (10..40_000).take_while(|rank| !ended(pmix.hear(0, fence(1, &[2, *rank], b"x"))));
    assert_eq!(sets.count(), 16_384);
}

/// Data of fences that some PEs never enter, and the ends of fences, which are kept for hosts that may ask again.
#[test]
fn the_data_of_fences_of_some_pes_has_bounds() {
    const FENCES: u32 = 64 * 1024 * 1024 / LETTER_MAX as u32;
    let ended = |effects: &[Effect]| matches!(effects, [Effect::Garbage(_)]);
    let large = vec![0; LETTER_MAX];
    let mut pmix = Pmix::new(false, MOST, 4000, 0..2);
    let waits = (10..4000).take_while(|rank| !ended(&pmix.hear(0, fence(1, &[0, *rank], &large))));
    assert_eq!(waits.count(), FENCES as usize);
    // What is over waits no more. (Two ends of each set are kept.)
    let mut pmix = Pmix::new(false, MOST, 4000, 0..2);
    let mut over = |rank: u32, turn: u64| {
        let entered = pmix.hear(0, fence(1, &[0, rank], &large));
        let text = LetterText::Fence {
            ranks: vec![0, rank],
            spawned: vec![],
            turn,
            here: vec![rank],
            data: Bytes::new(),
        };
        !ended(&entered) && !ended(&pmix.asked(letter((rank, 0), 1, text)))
    };
    assert!((1..1000).all(|turn| over(10, turn)));
    let sets = (11..4000).take_while(|rank| over(*rank, 1)).count();
    assert_eq!(sets, FENCES as usize - 1);
}

#[test]
fn fences_wait_for_one_another() {
    let mut pmix = Pmix::new(false, MOST, 4, 0..2);
    let entry = |value: &'static [u8]| PmiEntry {
        key: Bytes::from_static(&[0; 9]),
        value: Bytes::from_static(value),
    };
    assert_eq!(pmix.hear(0, fence(1, &[], b"one")), [Effect::Enter(vec![entry(b"one")])]);
    assert_eq!(pmix.hear(0, fence(2, &[], b"two")), []);
    let entered = Effect::Enter(vec![entry(b"two")]);
    assert_eq!(pmix.fence_over(vec![entry(b"one")]), [over(1, SUCCESS, b"one"), entered]);
    assert_eq!(pmix.fence_over(vec![]), [over(2, SUCCESS, b"")]);
    assert_eq!(pmix.fence_over(vec![]), []);
}

/// The program sees only a number.
#[test]
fn who_publishes_too_much_is_told_once() {
    let mut pmix = Pmix::new(true, 100, 2, 0..2);
    let publish = |number: u64, size: usize| FromMix::Publish {
        number,
        key: Bytes::from_static(b"key"),
        data: vec![0; size].into(),
        once: false,
    };
    let effects = pmix.hear(0, publish(1, 200));
    let [Effect::Tell(ToMix::Answered { status: NO_ROOM, .. }), Effect::Notice { rank: 0, text }] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert!(text.contains("pmi_max"), "{text}");
    assert!(matches!(&pmix.hear(0, publish(2, 200))[..], [Effect::Tell(_)]));
    let mut pmix = Pmix::new(true, MOST, 2, 0..2);
    let effects = pmix.hear(0, publish(1, LETTER_MAX + 1));
    let [Effect::Tell(ToMix::Answered { status: NO_ROOM, .. }), Effect::Notice { text, .. }] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert!(text.contains("larger than 256K"), "{text}");
}

#[test]
fn everything_has_a_bound() {
    let mut pmix = Pmix::new(false, MOST, 4, 0..2);
    let effects = pmix.hear(0, fence(1, &[], &vec![0; GIVEN_MAX + 1]));
    assert!(
        matches!(&effects[..], [Effect::Garbage(text)] if text.ends_with("run fewer PEs on each host"))
    );
    // Of PEs that are all on this host.
    for (mut pmix, ranks) in
        [(Pmix::new(true, MOST, 2, 0..2), &[][..]), (Pmix::new(false, MOST, 4, 0..2), &[0, 1][..])]
    {
        let whole = pmix.hear(0, fence(1, ranks, &vec![0; GIVEN_MAX]));
        assert!(matches!(&whole[..], [Effect::Tell(_), ..]));
        let cut = pmix.hear(0, fence(2, ranks, &vec![0; GIVEN_MAX + 1]));
        assert!(matches!(&cut[..], [Effect::Garbage(text)] if text.contains("give more than")));
    }
    let mut narrow = Pmix::new(false, 1024, 4, 0..2);
    let effects = narrow.hear(0, fence(1, &[], &[0; 1025]));
    assert!(matches!(&effects[..], [Effect::Garbage(text)] if text.contains("pmi_max")));
    let mut pmix = Pmix::new(false, MOST, 4, 0..2);
    for number in 0..WAITING_MAX as u64 {
        pmix.hear(0, fence(number, &[], b""));
    }
    let effects = pmix.hear(0, fence(99, &[], b""));
    assert!(matches!(&effects[..], [Effect::Garbage(_)]));
}

#[test]
fn progress_and_an_abort_are_heard() {
    let mut pmix = Pmix::new(true, MOST, 2, 0..2);
    pmix.hear(0, FromMix::Connected(1));
    assert_eq!((pmix.progress(0), pmix.progress(1)), (Progress::Outside, Progress::Inside));
    let abort = pmix.hear(0, FromMix::Abort { rank: 1, code: 3 });
    assert_eq!(abort, [Effect::Abort { rank: 1, code: 3 }]);
    pmix.hear(0, FromMix::Finalized(1));
    assert_eq!(pmix.progress(1), Progress::Finalized);
    // (Of nobody's PE.)
    pmix.hear(0, FromMix::Connected(7));
    assert_eq!(pmix.progress(7), Progress::Outside);
}

/// Hosts in the same fence, each with PMI-1 around it; the head gathers and sends in pieces.
fn across(given: &[Vec<u8>], piece: usize) -> Vec<Vec<u8>> {
    let mut hosts: Vec<(Pmi, Pmix)> = (0..given.len() as u32)
        .map(|host| {
            let ranks = [2 * host, 2 * host + 1];
            let pmi =
                Pmi::new("k".into(), 2 * given.len() as u32, String::new(), false, MOST, ranks);
            (pmi, Pmix::new(false, MOST, 2 * given.len() as u32, ranks))
        })
        .collect();
    let mut entries = Vec::new();
    for ((pmi, pmix), data) in hosts.iter_mut().zip(given) {
        let effects = pmix.hear(0, fence(1, &[], data));
        let [Effect::Enter(own)] = &effects[..] else { panic!("{effects:?}") };
        let effects = pmi.fence(own.clone());
        let [pmi::Effect::BarrierIn(BarrierIn { generation: 1, entries: own })] = &effects[..]
        else {
            panic!("{effects:?}")
        };
        // An apinit that comes now is told the same.
        assert_eq!(pmi.barriers(), [BarrierIn { generation: 1, entries: own.clone() }]);
        entries.extend(own.iter().cloned());
    }
    entries.reverse();
    let mut pieces: Vec<Vec<PmiEntry>> = entries.chunks(piece).map(<[_]>::to_vec).collect();
    if pieces.is_empty() {
        pieces.push(Vec::new());
    }
    let count = pieces.len();
    hosts
        .into_iter()
        .map(|(mut pmi, mut pmix)| {
            let mut all = Vec::new();
            for (number, entries) in pieces.iter().cloned().enumerate() {
                let last = number + 1 == count;
                let out = BarrierOut { generation: 1, piece: number as u32, last, entries };
                for effect in pmi.barrier_out(out.clone()) {
                    let pmi::Effect::FenceOver(given) = effect else { panic!("{effect:?}") };
                    for effect in pmix.fence_over(given) {
                        let Effect::Tell(ToMix::FenceOver { data, .. }) = effect else {
                            panic!("{effect:?}")
                        };
                        all.extend_from_slice(&data);
                    }
                    // Said again it has no effect.
                    assert_eq!(pmi.barrier_out(out.clone()), []);
                }
            }
            all
        })
        .collect()
}

proptest! {
    /// Everybody gets what all have given, host by host, however it was cut.
    #[test]
    fn a_fence_gathers_what_all_give(
        given in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..5),
        piece in 1usize..4,
    ) {
        let whole = given.concat();
        for got in across(&given, piece) {
            prop_assert_eq!(&got, &whole);
        }
    }
}

#[test]
fn large_gifts_are_cut() {
    let given: Vec<Vec<u8>> = (0..3).map(|host| vec![host; 3 * PIECE + 5]).collect();
    assert_eq!(across(&given, 2), vec![given.concat(); 3]);
    let large = vec![vec![1; GIVEN_MAX], vec![2; GIVEN_MAX]];
    assert_eq!(across(&large, 100), vec![large.concat(); 2]);
}

/// A program of both at once is none that anybody knows: it is ended with the reason, and doesn't hang.
#[test]
fn a_barrier_and_a_fence_do_not_mix() {
    let new = || Pmi::new("k".into(), 4, String::new(), false, MOST, 0..2);
    let both = |effects: Vec<pmi::Effect>| matches!(&effects[..], [pmi::Effect::Garbage { text, .. }] if text.contains("PMIx"));
    let mut pmi = new();
    assert_eq!(pmi.read(0, b"cmd=barrier_in\n"), []);
    assert!(matches!(&pmi.read(1, b"cmd=barrier_in\n")[..], [pmi::Effect::BarrierIn(_)]));
    assert!(both(pmi.fence(vec![])));
    let mut pmi = new();
    assert!(matches!(&pmi.fence(vec![])[..], [pmi::Effect::BarrierIn(_)]));
    assert_eq!(pmi.read(0, b"cmd=barrier_in\n"), []);
    assert!(both(pmi.read(1, b"cmd=barrier_in\n")));
    let entry = |key: &'static [u8]| PmiEntry { key: key.into(), value: Bytes::new() };
    let out = |key| BarrierOut { generation: 1, piece: 0, last: true, entries: vec![entry(key)] };
    let mut pmi = new();
    pmi.fence(vec![]);
    assert!(both(pmi.barrier_out(out(b"P0"))));
    let mut pmi = new();
    pmi.read(0, b"cmd=barrier_in\n");
    pmi.read(1, b"cmd=barrier_in\n");
    assert!(both(pmi.barrier_out(out(b"\0P0"))));
}

/// PEs of many hosts meet what is spawned again and again: each time is a set of PEs of its own.
#[test]
fn fences_with_those_who_have_ended_are_forgotten() {
    let mut pmix = Pmix::new(false, MOST, 5000, 0..2);
    for number in 0..2000 {
        let space = format!("name.0.{number}");
        let spawned = vec![format!("{space}:0").into_bytes()];
        let own =
            FromMix::Fence { number, ranks: vec![], spawned: spawned.clone(), data: "x".into() };
        assert_eq!(pmix.hear(0, own), []);
        let (ranks, here) = ((0..5000).collect(), (2..5000).collect());
        let text = LetterText::Fence { ranks, spawned, turn: 1, here, data: "y".into() };
        let answer = Effect::Answer(letter((0, 2), 7, put(b"xy")));
        let effects = pmix.asked(letter((2, 0), 7, text));
        assert_eq!(effects, [over(number, SUCCESS, b"xy"), answer], "{number}");
        assert_eq!(pmix.spawned_ended(space), []);
    }
}

/// appmix would wait for it.
#[test]
fn what_one_who_has_ended_has_put_is_not_waited_for() {
    let mut pmix = Pmix::new(false, MOST, 4, 0..2);
    let spawned = Some(SpawnedPe { space: "name.0.1".into(), rank: 3 });
    let asks = |number| letter((2, 1), number, LetterText::Modex { spawned: spawned.clone() });
    let look_up = ToMix::LookUp { number: 1, rank: 1, spawned: spawned.clone() };
    assert_eq!(pmix.asked(asks(5)), [Effect::Tell(look_up)]);
    let own = letter((3, 1), 6, LetterText::Modex { spawned: None });
    assert_eq!(pmix.asked(own).len(), 1, "another one's, as that PE's own");
    let none = LetterText::Answer { status: NOT_FOUND, data: Bytes::new() };
    let ended = Effect::Answer(letter((1, 2), 5, none));
    assert_eq!(pmix.spawned_ended("name.0.1".into()), [ended]);
}
