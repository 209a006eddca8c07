//! PMI-1: three PEs of a host that say anything, in pieces cut anywhere.
//!
//! - Where the reads are cut makes no difference.
//! - Whoever is in his senses and asks is answered, once.
//! - Barriers are left by all or by nobody, and only when they are complete.
//! - What goes up for a barrier fits in a frame.

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use psched::apshepherd::decide::pmi::{Effect, FRESH_MAX, Pmi};
use psched::apteam::protocol::peers::{BarrierOut, PmiEntry};

const RANKS: u32 = 3;
const QUESTIONS: [&str; 9] = [
    "cmd=init pmi_version=1 pmi_subversion=1\n",
    "cmd=get_maxes\n",
    "cmd=get_appnum\n",
    "cmd=get_my_kvsname\n",
    "cmd=get_universe_size\n",
    "cmd=put kvsname=psched_12_1 key=a value=b\n",
    "cmd=get kvsname=psched_12_1 key=a\n",
    "cmd=get kvsname=psched_12_1 key=PMI_process_mapping\n",
    "cmd=finalize\n",
];
const OTHERS: [&str; 8] = [
    // (With a line for the user, where there are other hosts.)
    "cmd=lookup_name service=x\n",
    "cmd=publish_name service=x port=y\n",
    "cmd=barrier_in\n",
    "cmd=abort exitcode=7\n",
    "mcmd=spawn\nnprocs=2\nexecname=a\ntotspawns=1\nspawnssofar=1\nendcmd\n",
    "rubbish\n",
    "cmd=put key=\n",
    "cmd=",
];

pub fn fuzz(data: &[u8]) {
    // An Err: the bytes are used up.
    let _ = history(&mut Unstructured::new(data));
}

fn server(alone: bool) -> Pmi {
    Pmi::new("psched_12_1".into(), 6, "(vector,(0,2,3))".into(), alone, 64 << 20, 0..RANKS)
}

fn history(u: &mut Unstructured<'_>) -> Result<()> {
    let alone = u.arbitrary()?;
    let (mut whole, mut cut) = (server(alone), server(alone));
    let mut left = [0u64; RANKS as usize];
    // Nothing unfinished, no barrier, no block, no rubbish: a question now has one answer.
    let mut sane = [true; RANKS as usize];
    while !u.is_empty() {
        let effects = match u.int_in_range(0..=9)? {
            0 => {
                let next = left[0] + 1;
                let out = BarrierOut {
                    generation: *u.choose(&[next, next, next, next + 1, next - 1, 0])?,
                    piece: *u.choose(&[0, 0, 0, 1, 2])?,
                    last: u.arbitrary()?,
                    entries: entries(u)?,
                };
                let effects = whole.barrier_out(out.clone());
                assert_eq!(effects, cut.barrier_out(out));
                assert!(!alone || effects.is_empty(), "{effects:?}");
                effects
            }
            kind => {
                let rank = u.int_in_range(0..=RANKS)?;
                let question = kind > 5;
                let text: Vec<u8> = match kind {
                    1 => {
                        let length = usize::from(u.arbitrary::<u8>()?).min(u.len());
                        u.bytes(length)?.to_vec()
                    }
                    2..=5 => u.choose(&OTHERS)?.as_bytes().to_vec(),
                    _ => u.choose(&QUESTIONS)?.as_bytes().to_vec(),
                };
                let effects = whole.read(rank, &text);
                let mut pieces = Vec::new();
                let mut rest = &text[..];
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(u.int_in_range(1..=rest.len())?);
                    pieces.extend(cut.read(rank, piece));
                    rest = after;
                }
                assert_eq!(effects, pieces, "cut otherwise");
                match sane.get_mut(rank as usize) {
                    Some(sane) if question && *sane => {
                        let answered = match &effects[..] {
                            [Effect::Reply(to, data)] => {
                                *to == rank && data.starts_with(b"cmd=") && data.ends_with(b"\n")
                            }
                            _ => false,
                        };
                        assert!(answered, "{:?} to {text:?}", effects);
                    }
                    Some(sane) if !question => *sane = false,
                    Some(_) => {}
                    None => assert_eq!(effects, [], "there is no such PE"),
                }
                effects
            }
        };
        for effect in &effects {
            match effect {
                Effect::Reply(rank, data) if data.starts_with(b"cmd=barrier_out") => {
                    left[*rank as usize] += 1;
                }
                Effect::BarrierIn(arrival) => {
                    assert!(!alone);
                    assert_eq!(arrival.generation, left[0] + 1);
                }
                Effect::FenceOver(_) => panic!("nobody is in a fence"),
                Effect::Reply(rank, _)
                | Effect::Abort { rank, .. }
                | Effect::Garbage { rank, .. }
                | Effect::Notice { rank, .. } => assert!(*rank < RANKS),
                Effect::Spawn { rank, request } => {
                    assert!(*rank < RANKS && request.pes() > 0);
                    let runs = u.arbitrary()?;
                    let answer = whole.spawned(*rank, runs);
                    assert_eq!((answer.len(), &answer), (1, &cut.spawned(*rank, runs)));
                }
                Effect::Ask { .. } | Effect::Answer(_) => panic!("PE 0 is here, and nobody asks"),
            }
        }
        assert!(left.iter().all(|n| *n == left[0]), "some are out of a barrier: {left:?}");
        let told = whole.barriers();
        assert!(told.len() <= 2 && (!alone || told.is_empty()));
        for arrival in &told {
            assert!((left[0]..=left[0] + 1).contains(&arrival.generation));
            let cost: usize = arrival.entries.iter().map(PmiEntry::cost).sum();
            assert!(cost <= FRESH_MAX, "{cost}");
        }
    }
    Ok(())
}

fn entries(u: &mut Unstructured<'_>) -> Result<Vec<PmiEntry>> {
    let mut all = Vec::new();
    for _ in 0..u.int_in_range(0..=3)? {
        let key = Bytes::copy_from_slice(u.bytes(1)?);
        all.push(PmiEntry { key, value: Bytes::from_static(b"v") });
    }
    Ok(all)
}
