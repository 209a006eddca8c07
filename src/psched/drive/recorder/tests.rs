//! What is written and read again.

use super::form::{Reader, Unreadable};
use super::{Gave, Recorder, Recording, Step, Told};
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::protocol::node::{Command, Hello, PROTOCOL, Report};
use crate::apteam::record::FrontProcess;
use crate::apteam::saving::Saving;
use crate::apteam::shape::Shape;
use crate::apteam::{Apid, Ticket};
use crate::machine::{Machine, Nid, Node};
use crate::psched::decide::{Effect, Event, LinkId, Now, ReplyId, Scheduler, Settings};
use proptest::prelude::*;
use std::collections::VecDeque;

/// A scheduler, a node that does at once what it is told, and the recorder.
struct Driven {
    scheduler: Scheduler,
    recorder: Recorder,
    mono_ns: u64,
    given: Vec<Vec<Effect>>,
}

const LINK: LinkId = LinkId(7);

impl Driven {
    fn new(events_max: usize) -> Driven {
        let machine: Machine = (0..4).map(|nid| Node::plain(Nid(nid), 2)).collect();
        let scheduler = Scheduler::new(machine, Settings::default());
        let recorder = Recorder::bounded(&scheduler, events_max);
        let mut driven = Driven { scheduler, recorder, mono_ns: 1, given: Vec::new() };
        let hello = Hello {
            protocol: PROTOCOL,
            hostname: "n0".into(),
            nids: (0..4).map(Nid).collect(),
            ..Hello::default()
        };
        driven.tell(Event::LinkOpened { link: LINK, hello: Box::new(hello) });
        driven.tell(Event::Inventory { link: LINK, items: Vec::new() });
        driven
    }

    fn tell(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.mono_ns += 1_000_000;
            let now = Now { mono_ns: self.mono_ns, wall_ns: 9 + self.mono_ns };
            self.recorder.tells(now, &self.scheduler, std::slice::from_ref(&event));
            let effects = self.scheduler.apply(now, event);
            self.recorder.gave(&effects);
            let report = |report| Event::Report { link: LINK, report: Box::new(report) };
            for effect in &effects {
                if let Effect::Command { command: Command::Place(place), .. } = effect {
                    events.push_back(report(Report::Launched(place.key)));
                    events.push_back(report(Report::Running(place.key)));
                }
            }
            self.given.push(effects);
        }
    }

    fn post(&mut self, number: u8) {
        let shape = Shape { width: 4, depth: 1, per_node: None };
        let posting = Posting {
            command: "./a.out --password=hunter2 -x".into(),
            saving: Some(Saving::Command("save hunter2".into())),
            ..Posting::plain([number; 16], shape)
        };
        self.tell(Event::Posted {
            reply: ReplyId(number.into()),
            posting: Box::new(posting),
            owner: Owner { uid: 1000, name: "ann".into(), ..Owner::default() },
            front: FrontProcess::here(4, 5),
            secret: Ticket([0xab; 16]),
        });
    }
}

/// Some applications come, and turns are taken.
fn driven(events_max: usize) -> Driven {
    let mut driven = Driven::new(events_max);
    for number in 1..=6 {
        driven.post(number);
        for _ in 0..3 {
            let due = driven.scheduler.deadline();
            driven.mono_ns = due.map_or(driven.mono_ns, |due| due.max(driven.mono_ns));
            driven.tell(Event::Tick);
        }
    }
    driven.tell(Event::Kill {
        reply: ReplyId(90),
        apids: vec![Apid(1)],
        signal: 0,
        uid: 1000,
        administrator: false,
    });
    driven
}

fn written(recording: &Recording) -> Vec<u8> {
    let mut written = Vec::new();
    recording.write("a test", 3, &mut written).unwrap();
    written
}

fn read(written: &[u8]) -> Result<Vec<(Step, Vec<Effect>)>, Unreadable> {
    let (steps, mut scheduler) = Reader::open(written)?;
    steps
        .map(|step| {
            let step = step?;
            let effects = step.replay(&mut scheduler);
            Ok((step, effects))
        })
        .collect()
}

/// A replay gives the effects that were given, from the first event on and from the middle.
#[test]
fn the_effects_are_the_same() {
    for events_max in [1_000, 9, 2] {
        let driven = driven(events_max);
        let recording = driven.recorder.recording();
        let replayed = read(&written(&recording)).unwrap();
        assert_eq!(replayed.len(), recording.len());
        let whole = events_max == 1_000;
        assert!(whole == (replayed.len() == driven.given.len()) && replayed.len() > 2);
        let given = &driven.given[driven.given.len() - replayed.len()..];
        for (given, (step, effects)) in given.iter().zip(&replayed) {
            assert_eq!(step.gave, Some(Gave::of(effects)));
            // Of tickets and arguments nothing is left in a debug text either.
            let text = |effects: &[Effect]| {
                format!("{effects:?}")
                    .replace("--password=hunter2 -x", "****************** **")
                    .replace("hunter2", "*******")
            };
            assert_eq!(text(given), text(effects), "{step:?}");
        }
    }
}

#[test]
fn no_secret_is_written() {
    let text = String::from_utf8(written(&driven(1_000).recorder.recording())).unwrap();
    assert!(text.contains("./a.out ****"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("171,171"), "{text}");
}

/// As many steps as fill a part, and no more than fill two.
#[test]
fn what_is_remembered_has_a_bound() {
    // (An event may not be more than the size of the state, which a copy is measured by.)
    const PART: usize = 16;
    let mut driven = Driven::new(PART);
    for n in 1..200 {
        driven.tell(Event::Tick);
        let recording = driven.recorder.recording();
        assert!((PART.min(n)..=2 * PART + 2).contains(&recording.len()), "{}", recording.len());
    }
}

#[test]
fn psched_ends() {
    let mut driven = driven(1_000);
    let now = Now { mono_ns: driven.mono_ns + 5, wall_ns: driven.mono_ns };
    driven.recorder.ends(now);
    let kept: Vec<Effect> = driven.scheduler.keep_shares(now).into_iter().collect();
    driven.recorder.gave(&kept);
    let replayed = read(&written(&driven.recorder.recording())).unwrap();
    let (step, effects) = replayed.last().unwrap();
    assert_eq!((&step.told, step.gave), (&Told::End, Some(Gave::of(effects))));
    assert_eq!(*effects, kept);
}

/// A step within which psched has died has no fingerprint.
#[test]
fn the_last_step_may_have_no_end() {
    let mut driven = driven(1_000);
    let now = Now { mono_ns: driven.mono_ns + 5, wall_ns: 0 };
    driven.recorder.tells(now, &driven.scheduler, &[Event::Tick]);
    let replayed = read(&written(&driven.recorder.recording())).unwrap();
    assert_eq!(replayed.last().unwrap().0.gave, None);
}

#[test]
fn what_can_not_be_read_says_why() {
    let whole = written(&driven(1_000).recorder.recording());
    let said = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert!(said(b"").contains("not a recording"));
    assert!(said(b"SQLite format 3").contains("not a recording"));
    assert!(said(b"{\"recording\":1}\n").contains("missing field"));
    let newer = b"{\"recording\":2,\"psched\":\"9.1.0\",\"more\":[]}\n";
    assert!(said(newer).contains("form 2 by psched 9.1.0"), "{}", said(newer));
    let text = String::from_utf8(whole.clone()).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let steps = lines.len() - 3;
    let first = |count| lines[..count].concat();
    assert_eq!(said(first(1).as_bytes()), format!("it is cut: 0 of {steps} steps are there"));
    assert_eq!(said(first(5).as_bytes()), format!("it is cut: 3 of {steps} steps are there"));
    let end = lines.len() - 1;
    assert_eq!(
        said(first(end).as_bytes()),
        format!("it is cut: {steps} of {steps} steps are there")
    );
    let state = text.replacen("\"next_apid\":1,", "\"next_apid\":2,", 1);
    assert_ne!(state, text);
    assert!(said(state.as_bytes()).contains("line 2"));
    let event = text.replacen("\"ann\"", "\"bob\"", 1);
    assert!(said(event.as_bytes()).contains("the checksum of the whole is wrong"));
    let unknown = text.replacen("\"Tick\"", "\"Tock\"", 1);
    assert!(said(unknown.as_bytes()).contains("unknown variant `Tock`"));
}

proptest! {
    /// Whatever is in a file, it is an error or steps, and no panic.
    #[test]
    fn garbage_is_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(read(&bytes).is_err());
    }

    /// Nor where a recording is changed in one place or cut.
    #[test]
    fn a_damaged_one_is_an_error(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut whole = written(&driven(1_000).recorder.recording());
        let at = at.index(whole.len());
        prop_assume!(whole[at] != byte);
        match cut {
            true => whole.truncate(at),
            false => whole[at] = byte,
        }
        prop_assert!(read(&whole).is_err());
    }
}
