use super::*;
use crate::apshepherd::decide::pmi::{self, Pmi};
use crate::apteam::protocol::peers::{BarrierIn, BarrierOut};
use proptest::prelude::*;

const MOST: u64 = 64 << 20;

fn fence(number: u64, ranks: &[u32], data: &[u8]) -> FromMix {
    FromMix::Fence { number, ranks: ranks.to_vec(), data: Bytes::copy_from_slice(data) }
}

fn over(number: u64, status: i32, data: &[u8]) -> Effect {
    let data = Bytes::copy_from_slice(data);
    Effect::Tell(ToMix::FenceOver { number, status, data, last: true })
}

#[test]
fn on_a_lone_host_a_fence_is_over_at_once() {
    let mut pmix = Pmix::new(true, MOST, 0..2);
    assert_eq!(pmix.hear(fence(1, &[], b"ab")), [over(1, SUCCESS, b"ab")]);
    assert_eq!(pmix.hear(fence(2, &[0, 1], b"")), [over(2, SUCCESS, b"")]);
}

#[test]
fn a_fence_of_pes_of_this_host_is_over_at_once() {
    let mut pmix = Pmix::new(false, MOST, 0..2);
    assert_eq!(pmix.hear(fence(1, &[0, 1], b"x")), [over(1, SUCCESS, b"x")]);
}

#[test]
fn what_is_not_served_is_told_once() {
    let mut pmix = Pmix::new(false, MOST, 2..4);
    let effects = pmix.hear(fence(1, &[1, 2], b"x"));
    assert_eq!(effects[0], over(1, NOT_SUPPORTED, b""));
    assert!(matches!(&effects[1], Effect::Notice { rank: 2, .. }), "{effects:?}");
    assert_eq!(pmix.hear(fence(2, &[1, 2], b"x")), [over(2, NOT_SUPPORTED, b"")]);
}

#[test]
fn fences_wait_for_one_another() {
    let mut pmix = Pmix::new(false, MOST, 0..2);
    let entry = |value: &'static [u8]| PmiEntry {
        key: Bytes::from_static(&[0; 9]),
        value: Bytes::from_static(value),
    };
    assert_eq!(pmix.hear(fence(1, &[], b"one")), [Effect::Enter(vec![entry(b"one")])]);
    assert_eq!(pmix.hear(fence(2, &[], b"two")), []);
    let entered = Effect::Enter(vec![entry(b"two")]);
    assert_eq!(pmix.fence_over(vec![entry(b"one")]), [over(1, SUCCESS, b"one"), entered]);
    assert_eq!(pmix.fence_over(vec![]), [over(2, SUCCESS, b"")]);
    assert_eq!(pmix.fence_over(vec![]), []);
}

#[test]
fn everything_has_a_bound() {
    let mut pmix = Pmix::new(false, MOST, 0..2);
    let effects = pmix.hear(fence(1, &[], &vec![0; GIVEN_MAX + 1]));
    assert!(matches!(&effects[..], [Effect::Garbage(text)] if text.contains("pmi_max")));
    let mut pmix = Pmix::new(false, MOST, 0..2);
    for number in 0..WAITING_MAX as u64 {
        pmix.hear(fence(number, &[], b""));
    }
    let effects = pmix.hear(fence(99, &[], b""));
    assert!(matches!(&effects[..], [Effect::Garbage(_)]));
}

#[test]
fn progress_and_an_abort_are_heard() {
    let mut pmix = Pmix::new(true, MOST, 0..2);
    pmix.hear(FromMix::Connected(1));
    assert_eq!((pmix.progress(0), pmix.progress(1)), (Progress::Outside, Progress::Inside));
    let abort = pmix.hear(FromMix::Abort { rank: 1, code: 3 });
    assert_eq!(abort, [Effect::Abort { rank: 1, code: 3 }]);
    pmix.hear(FromMix::Finalized(1));
    assert_eq!(pmix.progress(1), Progress::Finalized);
    // (Of nobody's PE.)
    pmix.hear(FromMix::Connected(7));
    assert_eq!(pmix.progress(7), Progress::Outside);
}

/// Hosts in the same fence, each with PMI-1 around it; the head gathers and sends in pieces.
fn across(given: &[Vec<u8>], piece: usize) -> Vec<Vec<u8>> {
    let mut hosts: Vec<(Pmi, Pmix)> = (0..given.len() as u32)
        .map(|host| {
            let ranks = [2 * host, 2 * host + 1];
            let pmi =
                Pmi::new("k".into(), 2 * given.len() as u32, String::new(), false, MOST, ranks);
            (pmi, Pmix::new(false, MOST, ranks))
        })
        .collect();
    let mut entries = Vec::new();
    for ((pmi, pmix), data) in hosts.iter_mut().zip(given) {
        let effects = pmix.hear(fence(1, &[], data));
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
