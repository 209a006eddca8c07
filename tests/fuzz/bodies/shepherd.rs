//! A shepherd to which anything happens in any order.
//!
//! - It forks once, lets its PEs go only when all stand, and never after it has killed them.
//! - No more output is under way than the window holds, and its bytes have the numbers of their places.
//! - stdin is written as it was sent, whatever is said twice.
//! - Each numbered signal is passed on at most once.

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use psched::apshepherd::decide::pmix::FromMix;
use psched::apshepherd::decide::{Action, Event, Shepherd};
use psched::apteam::Key;
use psched::apteam::bounds::Bounds;
use psched::apteam::ending::{Cause, PeEnd, Usage};
use psched::apteam::fault::Fault;
use psched::apteam::launch::{HostLaunch, Launch, LocalPe, Part, ServePmix};
use psched::apteam::posting::Mpi;
use psched::apteam::protocol::attach::{NumberedSignal, PSCHED_SIGNALS, StdinPiece};
use psched::apteam::protocol::letters::{Letter, LetterText, SpawnedPe, Spawning};
use psched::apteam::protocol::peers::BarrierOut;
use psched::apteam::protocol::shepherd::{FromShepherd, Hello, ToShepherd};
use psched::machine::Nid;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const WIDTH: u32 = 3;

pub fn fuzz(data: &[u8]) {
    // An Err: the bytes are used up.
    let _ = history(&mut Unstructured::new(data));
}

fn key() -> Key {
    Key::parse("12.1").expect("a key")
}

fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

fn launch(u: &mut Unstructured<'_>) -> Result<HostLaunch> {
    let count = u.int_in_range(0..=WIDTH)?;
    let part = Part { first: u.int_in_range(1..=WIDTH)?, ..Part::default() };
    let more = if u.ratio(1, 4)? { vec![part] } else { Vec::new() };
    Ok(HostLaunch {
        key: key(),
        width: WIDTH,
        depth: 1,
        launch: Launch {
            pmi: u.arbitrary()?,
            pmix: if u.arbitrary()? { ServePmix::Offered } else { ServePmix::No },
            whole_lines: u.arbitrary()?,
            report: u.arbitrary()?,
            more,
            ..Launch::default()
        },
        pes: (0..count)
            .map(|rank| LocalPe { rank, nid: Nid(rank / 2), cpus: vec![], nice: 0, depth: 0 })
            .collect(),
        process_mapping: String::new(),
        alone: u.arbitrary()?,
        others: if u.arbitrary()? { vec![WIDTH] } else { Vec::new() },
        cpu_limit: None,
        stdin: u.arbitrary()?,
        kill_grace: Duration::from_secs(u.int_in_range(0..=5)?),
        marker: String::new(),
        memory_per_pe: None,
        pids_max: None,
        bounds: Bounds::default(),
        host_index: 0,
        pmix_name: String::new(),
        pmix_folder: String::new(),
        spawned: None,
    })
}

/// A PE that another host's has spawned.
fn spawned() -> SpawnedPe {
    SpawnedPe { space: "name.1.1".into(), rank: 0 }
}

fn letter(u: &mut Unstructured<'_>, to: u32) -> Result<Letter> {
    let name = || Bytes::from_static(b"name");
    let text = match u.int_in_range(0..=7)? {
        0 => LetterText::Modex { spawned: u.arbitrary::<bool>()?.then(spawned) },
        1 => LetterText::Fence {
            ranks: vec![0, 1, to],
            spawned: if u.arbitrary()? { vec![b"name.1.1:0".to_vec()] } else { Vec::new() },
            turn: u.int_in_range(0..=3)?,
            here: vec![u.int_in_range(0..=WIDTH)?],
            data: Bytes::from_static(b"given"),
        },
        2 => LetterText::Publish { name: name(), port: Bytes::from_static(b"port") },
        3 => LetterText::LookUp(name()),
        4 => LetterText::Unpublish(name()),
        5 => LetterText::Spawning(Spawning {
            space: spawned().space,
            width: u.int_in_range(1..=9)?,
            firsts: Vec::new(),
            parent: to,
            spawner: u.arbitrary::<bool>()?.then(spawned),
        }),
        6 => LetterText::SpawnedEnded(spawned().space),
        _ => LetterText::Answer { status: u.arbitrary()?, data: Bytes::from_static(b"found") },
    };
    let (from, number) = (u.int_in_range(0..=WIDTH)?, u.int_in_range(0..=9)?);
    Ok(Letter { to, from, number, text })
}

fn event(u: &mut Unstructured<'_>) -> Result<Event> {
    let rank = u.int_in_range(0..=WIDTH)?;
    let frame = Event::Frame;
    Ok(match u.int_in_range(0..=29)? {
        28 => Event::Mix(match u.arbitrary()? {
            true => FromMix::Modex {
                number: u.int_in_range(0..=9)?,
                rank,
                spawned: u.arbitrary::<bool>()?.then(spawned),
            },
            false => FromMix::Found {
                number: u.int_in_range(0..=9)?,
                status: u.arbitrary()?,
                data: Bytes::from_static(b"put"),
            },
        }),
        29 => frame(ToShepherd::Letter(letter(u, rank)?)),
        24 => Event::Mix(match u.int_in_range(0..=2)? {
            0 => FromMix::Connected(rank),
            1 => FromMix::Finalized(rank),
            _ => FromMix::Abort { rank, code: u.arbitrary()? },
        }),
        25 => Event::Mix(FromMix::Fence {
            number: u.int_in_range(0..=9)?,
            ranks: if u.arbitrary()? { vec![rank] } else { vec![] },
            spawned: if u.arbitrary()? { vec![b"name.1.1:0".to_vec()] } else { Vec::new() },
            data: Bytes::from_static(b"given"),
        }),
        26 => Event::MixEnded("it has died".into()),
        27 => match u.arbitrary()? {
            true => Event::MpiFound(BTreeMap::from([(rank, Mpi::OpenMpi)])),
            false => Event::NoMix("no library".into()),
        },
        0 => Event::Connected,
        1 => Event::Disconnected,
        2 | 3 => frame(ToShepherd::Hello(Hello { key: key(), ..Hello::default() })),
        4 => frame(ToShepherd::Launch(Box::new(launch(u)?))),
        5 => frame(ToShepherd::Go),
        6 => {
            let cause = match u.arbitrary()? {
                true => Cause::FrontGone,
                false => Cause::Kill { signal: u.int_in_range(1..=31)?, uid: 0 },
            };
            let kill_after = Duration::from_secs(u.int_in_range(0..=3)?);
            frame(ToShepherd::Terminate { cause, kill_after })
        }
        7 => {
            let number = match u.ratio(1, 3)? {
                true => PSCHED_SIGNALS + u.int_in_range(1..=9)?,
                false => u.int_in_range(0..=9)?,
            };
            let signal = u.int_in_range(1..=31)?;
            frame(ToShepherd::Signal(NumberedSignal { number, signal }))
        }
        8 | 9 => {
            let offset = u64::from(u.arbitrary::<u8>()?);
            let end = offset + u64::from(u.arbitrary::<u8>()?);
            let data = (offset..end).map(byte).collect();
            frame(ToShepherd::Stdin(StdinPiece { offset, data }))
        }
        10 => frame(ToShepherd::StdinEnd(u.arbitrary::<u8>()?.into())),
        11 => frame(ToShepherd::OutputTaken(u.arbitrary::<u32>()?.into())),
        12 => frame(ToShepherd::BarrierOut(BarrierOut {
            generation: u.int_in_range(0..=3)?,
            piece: u.int_in_range(0..=1)?,
            last: u.arbitrary()?,
            entries: vec![],
        })),
        13 | 14 => Event::Stopped { rank },
        15 => Event::ExecFailed { rank, errno: 2, text: String::new(), fault: Fault::Busy },
        16 => {
            let end = match u.arbitrary()? {
                true => PeEnd::Exit(u.int_in_range(0..=2)?),
                false => PeEnd::Signal(9),
            };
            Event::PeEnded { rank, pid: 7, end, usage: Usage::default() }
        }
        17 => {
            let lines: [&[u8]; 4] =
                [b"cmd=init pmi_version=1\n", b"cmd=barrier_in\n", b"cmd=finalize\n", b"no\n"];
            Event::Pmi { rank, data: Bytes::from_static(u.choose(&lines)?) }
        }
        18 => {
            let length = usize::from(u.arbitrary::<u8>()?) << u.int_in_range(0..=10)?;
            let mut data = vec![b'x'; length];
            if let Some(last) = data.last_mut() {
                *last = if u.arbitrary()? { b'\n' } else { b'y' };
            }
            Event::Output { rank, stderr: u.arbitrary()?, data: data.into() }
        }
        19 => Event::OutputEof { rank, stderr: u.arbitrary()? },
        20 => match u.int_in_range(0..=3)? {
            0 => Event::StdinClosed,
            1 => Event::LeftFound(u.int_in_range(0..=9)?),
            _ => Event::StdinWritten(u.arbitrary::<u8>()?.into()),
        },
        21 => match u.int_in_range(0..=3)? {
            0 => Event::LifelineGone,
            _ => Event::NoChildLeft,
        },
        22 => frame(ToShepherd::Rekey(key())),
        _ => Event::Tick,
    })
}

fn history(u: &mut Unstructured<'_>) -> Result<()> {
    let mut shepherd = Shepherd::new(0, key());
    let (mut now, mut timer) = (0u64, None);
    let (mut forks, mut width, mut stopped, mut killed) = (0, 0, BTreeSet::new(), false);
    let (mut taken, mut sent) = (0u64, 0u64);
    let mut stdin = Vec::new();
    let mut numbers = BTreeSet::new();
    while !u.is_empty() {
        now += u64::from(u.arbitrary::<u8>()?) * 20_000_000;
        let event = event(u)?;
        if event == Event::Tick && timer.is_none_or(|at| at > now) {
            continue;
        }
        let (mut connected, mut known) = (false, false);
        match &event {
            Event::Stopped { rank } if forks > 0 => drop(stopped.insert(*rank)),
            Event::Connected => connected = true,
            Event::Frame(ToShepherd::Signal(signal)) if signal.number > 0 => {
                // Those of psched's have numbers of their own.
                let own = signal.number > PSCHED_SIGNALS;
                let same = |n: &&u64| (**n > PSCHED_SIGNALS) == own;
                known = numbers.iter().filter(same).any(|n| *n >= signal.number);
                numbers.insert(signal.number);
            }
            Event::Frame(ToShepherd::OutputTaken(offset)) => {
                taken = taken.max((*offset).min(sent));
            }
            _ => {}
        }
        let mut next = None;
        for action in shepherd.apply(now, event) {
            match action {
                Action::Fork(launch) => {
                    forks += 1;
                    width = launch.pes.len();
                }
                Action::KillEverything => killed = true,
                Action::Go => {
                    assert!(!killed, "goes after it was killed");
                    assert!(stopped.len() >= width, "goes before all stand");
                }
                Action::Rekeyed(_) => {
                    connected = true;
                    numbers.clear();
                }
                Action::Send(FromShepherd::Hello(hello)) => {
                    assert!(connected && hello.output_taken == taken, "{hello:?}, not {taken}");
                }
                Action::Send(FromShepherd::Output(output)) => {
                    // After a break all that is not taken comes again, from there.
                    let begins = output.offset;
                    assert!(
                        next.map_or(begins == sent || begins == taken, |next| next == begins),
                        "{begins} follows on {next:?}, {sent} sent and {taken} taken"
                    );
                    let next = next.insert(begins);
                    *next += output.data.len() as u64;
                    sent = sent.max(*next);
                    assert!(
                        *next - taken <= Bounds::default().output,
                        "more than the window holds"
                    );
                }
                Action::Send(FromShepherd::StdinCredit(credit)) => {
                    assert!(credit.credit <= credit.received + Bounds::default().stdin);
                    assert!(stdin.len() as u64 <= credit.received);
                }
                Action::Send(FromShepherd::SignalsTaken(number)) => {
                    assert!(numbers.contains(&number), "{number} of {numbers:?}");
                }
                Action::WriteStdin(data) => stdin.extend_from_slice(&data),
                Action::Signal(_) => assert!(!known, "a signal is passed on twice"),
                Action::SetTimer(at) => timer = at,
                _ => {}
            }
        }
        assert!(forks <= 1, "forked twice");
        let right = stdin.iter().enumerate().all(|(at, b)| *b == byte(at as u64));
        assert!(right, "stdin is not what was sent");
    }
    Ok(())
}
