mod silent_hosts;

use super::apinit::{HOLES_MAX, REFUSALS_MAX};
use super::signals::{SIGINT, SIGTERM, SIGUSR1};
use super::*;
use crate::apteam::binding::{Binding, Lists};
use crate::apteam::ending::{Decisive, HostEnd, PeEnd, PeReport};
use crate::apteam::fault::Fault;
use crate::apteam::launch::Launch;
use crate::apteam::place::{HostAddress, HostPart, Place, PlacementList};
use crate::apteam::protocol::attach::{Output, OutputTaken, StdinCredit, StdinPiece};
use crate::apteam::protocol::notice::{Notice, Seen};
use crate::apteam::protocol::programs::ProgramOf;
use crate::apteam::{Incarnation, Key, Ticket};
use crate::machine::Nid;
use bytes::Bytes;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const PSCHED: i32 = 77;
const APID: Apid = Apid(12);

fn setup() -> Setup {
    let launch = Launch { executable: b"/bin/true".to_vec(), ..Launch::default() };
    Setup { launch, uid: 1000, ..Setup::default() }
}

fn placement(incarnation: u32) -> Box<Placement> {
    Box::new(Placement {
        key: Key { apid: APID, incarnation: Incarnation(incarnation) },
        places: PlacementList([Place { nid: Nid(0), processors: vec![0], pes: 1 }].into()),
        hosts: vec![HostPart {
            nids: vec![Nid(0)],
            socket: "/run/a.sock".to_owned(),
            ..HostPart::default()
        }],
        ticket: Ticket([incarnation as u8; 16]),
        front_host: String::new(),
    })
}

fn ended(cause: Option<Cause>, launched: bool) -> Box<Ended> {
    let end = HostEnd {
        key: placement(1).key,
        launched,
        first: cause.map(|cause| Decisive { at_ns: 1, cause }),
        ..HostEnd::default()
    };
    Box::new(Ended {
        status: end.status(),
        end,
        told: false,
        by_name: String::new(),
        host: String::new(),
        no_copy: false,
    })
}

fn launch_of(incarnation: u32) -> Action {
    let placement = placement(incarnation);
    Action::Attach {
        at: HostAddress { socket: "/run/a.sock".to_owned(), ..HostAddress::default() },
        first: Box::new(ToApinit::Launch {
            key: placement.key,
            ticket: placement.ticket,
            launch: Box::new(setup().launch),
        }),
    }
}

fn resume(taken: Vec<OutputTaken>) -> Action {
    let Placement { key, ticket, .. } = *placement(1);
    Action::Attach {
        at: HostAddress { socket: "/run/a.sock".to_owned(), ..HostAddress::default() },
        first: Box::new(ToApinit::Resume { key, ticket, taken }),
    }
}

fn say(text: &str) -> Action {
    Action::Say(format!("aprun: {text}"))
}

fn down(text: &str) -> Event {
    Event::PschedDown { text: text.to_owned(), absent: false, answered: false }
}

/// psched says that it can't do it now.
fn can_not(text: &str) -> Event {
    Event::PschedDown { text: text.to_owned(), absent: false, answered: true }
}

/// A signal on its way down.
fn passed(number: u64, signal: i32) -> ToApinit {
    ToApinit::Signal(NumberedSignal { number, signal })
}

fn signal(signal: i32, sender: i32) -> Event {
    Event::Signal { signal, sender: Some(sender) }
}

fn apinit(message: FromApinit) -> Event {
    Event::Apinit(message)
}

fn event(event: PschedEvent) -> Event {
    Event::Psched(event)
}

fn output(offset: u64, text: &str) -> Output {
    Output {
        source: 0,
        offset,
        rank: 0,
        nid: Nid(0),
        stderr: false,
        data: Bytes::copy_from_slice(text.as_bytes()),
        report: None,
    }
}

/// A front end, and what it is given: each step with the exact actions.
struct Session {
    front: Front,
    now: u64,
}

impl Session {
    fn new() -> Session {
        Session { front: Front::new(setup()), now: 0 }
    }

    #[track_caller]
    fn gives(&mut self, event: Event, actions: &[Action]) -> &mut Session {
        let shown = format!("{event:?}");
        assert_eq!(self.front.apply(self.now, event), actions, "after {shown}");
        self
    }

    #[track_caller]
    fn at(&mut self, ms: u64, actions: &[Action]) -> &mut Session {
        self.now = ms * MS;
        self.gives(Event::Time, actions)
    }

    #[track_caller]
    fn posted() -> Session {
        let mut session = Session::new();
        session
            .gives(Event::Start, &[Action::Psched(Ask::Post)])
            .gives(Event::PschedUp { pid: PSCHED }, &[])
            .gives(event(PschedEvent::Accepted(APID)), &[]);
        session
    }

    #[track_caller]
    fn attaching() -> Session {
        let mut session = Session::posted();
        session
            .gives(event(PschedEvent::Placed(1)), &[Action::Look(APID)])
            .gives(Event::Looked(Looked::Placement(placement(1))), &[launch_of(1)]);
        session
    }

    #[track_caller]
    fn going() -> Session {
        let mut session = Session::attaching();
        session
            .gives(apinit(FromApinit::Accepted), &[])
            .gives(apinit(FromApinit::Going), &[])
            .gives(event(PschedEvent::Launched), &[]);
        session
    }
}

fn done() -> Event {
    apinit(FromApinit::Done)
}

#[test]
fn a_whole_course() {
    let end = ended(None, true);
    Session::going()
        .gives(
            apinit(FromApinit::Output(output(0, "hello\n"))),
            &[Action::Write(output(0, "hello\n"))],
        )
        .gives(
            Event::Written { source: 0, end: 6 },
            &[Action::Send(ToApinit::OutputTaken(OutputTaken { source: 0, offset: 6 }))],
        )
        .gives(done(), &[])
        .gives(event(PschedEvent::Ended(end.clone())), &[Action::Close(end), Action::Exit(0)])
        .gives(done(), &[]);
}

/// It is launched on nodes with so many PEs each, and how each of them ended is asked for.
fn asking(quiet: bool, pes: &[u32]) -> Front {
    let launch = Launch { executable: b"/bin/a.out".to_vec(), report: true, ..Launch::default() };
    let mut front = Front::new(Setup { launch, quiet, ..setup() });
    let place = |(nid, pes): (usize, &u32)| Place {
        nid: Nid(nid as u32 + 3),
        processors: (0..*pes).collect(),
        pes: *pes,
    };
    let places = PlacementList(pes.iter().enumerate().map(place).collect());
    let placement = Box::new(Placement { places, ..*placement(1) });
    goes(&mut front, placement);
    front
}

/// It is placed so, launched, and goes.
fn goes(front: &mut Front, placement: Box<Placement>) {
    for event in [
        Event::Start,
        Event::PschedUp { pid: PSCHED },
        event(PschedEvent::Accepted(APID)),
        event(PschedEvent::Placed(1)),
        Event::Looked(Looked::Placement(placement)),
        apinit(FromApinit::Accepted),
        apinit(FromApinit::Going),
    ] {
        front.apply(0, event);
    }
}

fn report(offset: u64, rank: u32, report: PeReport) -> Event {
    let output = Output { rank, report: Some(report), ..output(offset, "\n") };
    apinit(FromApinit::Output(output))
}

/// The rows that are told, and what is told after them.
fn told(mut actions: Vec<Action>) -> (Vec<ReportRow>, Vec<Action>) {
    match actions.remove(0) {
        Action::Report(rows) => (rows, actions),
        other => panic!("{other:?}"),
    }
}

#[test]
fn how_each_pe_ended_is_told_by_rank() {
    let end_of = |rank: u32| match rank % 3 {
        0 => PeEnd::Exit(0),
        1 => PeEnd::Exit(7),
        _ => PeEnd::Signal(9),
    };
    let of = |rank: u32| PeReport {
        pid: 5_000 + rank,
        elapsed: Duration::from_millis(rank.into()),
        end: end_of(rank),
    };
    // More than are ever kept as pieces of output on a host.
    const PES: [u32; 3] = [4_000, 8_000, 1];
    const WIDTH: u32 = 12_001;
    for quiet in [false, true] {
        let mut front = asking(quiet, &PES);
        let mut offset = 0;
        // In another order, one twice, one never, and one that there is not.
        for rank in (0..WIDTH).rev().filter(|rank| *rank != 4_000).chain([WIDTH, WIDTH + 1]) {
            let taken = OutputTaken { source: 0, offset: offset + 1 };
            let actions = front.apply(0, report(offset, rank, of(rank)));
            assert_eq!(actions, [Action::Send(ToApinit::OutputTaken(taken))], "as if written");
            offset += 1;
        }
        let again = front.apply(0, report(offset - 1, 0, of(1)));
        let taken = OutputTaken { source: 0, offset };
        assert_eq!(again, [Action::Send(ToApinit::OutputTaken(taken))]);
        assert_eq!(front.apply(0, done()), []);
        let end = ended(None, true);
        let (rows, rest) = told(front.apply(0, event(PschedEvent::Ended(end.clone()))));
        assert_eq!(rest, [Action::Close(end), Action::Exit(0)], "the table is first");
        let nid = |rank| {
            Nid(if rank < 4_000 {
                3
            } else if rank < 12_000 {
                4
            } else {
                5
            })
        };
        let row = |rank| ReportRow {
            name: "a.out".into(),
            rank,
            nid: nid(rank),
            report: (rank != 4_000).then(|| of(rank)),
        };
        assert!(rows.into_iter().eq((0..WIDTH).map(row)));
    }
}

/// An apshepherd of a release that does not know of it.
#[test]
fn where_nobody_tells_how_pes_ended_nobody_waits_for_it() {
    let mut front = asking(false, &[1, 1]);
    assert_eq!(front.apply(0, done()), []);
    let end = ended(Some(Cause::PeExit { rank: 1, nid: Nid(4), code: 3 }), true);
    let (rows, rest) = told(front.apply(0, event(PschedEvent::Ended(end.clone()))));
    assert_eq!(rest, [Action::Close(end), Action::Exit(3)]);
    let rows: Vec<_> = rows.iter().map(|row| (row.rank, row.nid.0, row.report)).collect();
    assert_eq!(rows, [(0, 3, None), (1, 4, None)]);
    // Nothing went: there is nothing to tell of.
    let mut front = asking(false, &[1, 1]);
    let end = ended(Some(Cause::NoRecord), false);
    let actions = front.apply(0, event(PschedEvent::Ended(end.clone())));
    assert_eq!(actions, [Action::Close(end), Action::Exit(125)]);
}

#[test]
fn the_end_may_come_before_the_output() {
    let end = ended(Some(Cause::PeExit { rank: 0, nid: Nid(0), code: 3 }), true);
    let mut session = Session::going();
    session
        .gives(event(PschedEvent::Ended(end.clone())), &[])
        .gives(apinit(FromApinit::Output(output(0, "x"))), &[Action::Write(output(0, "x"))])
        .gives(done(), &[]);
    // A reader of stdout may be slow for as long as it likes.
    session.at(60_000, &[]);
    assert_eq!(session.front.deadline(), None);
    session.gives(
        Event::Written { source: 0, end: 1 },
        &[
            Action::Send(ToApinit::OutputTaken(OutputTaken { source: 0, offset: 1 })),
            Action::Close(end),
            Action::Exit(3),
        ],
    );
}

#[test]
fn usr1_from_psched_says_look_and_is_not_passed_on() {
    Session::posted()
        .gives(signal(SIGUSR1, PSCHED), &[Action::Look(APID)])
        // The event is its twin.
        .gives(event(PschedEvent::Placed(1)), &[])
        .gives(Event::Looked(Looked::Placement(placement(1))), &[launch_of(1)])
        .gives(signal(SIGUSR1, PSCHED), &[])
        .gives(apinit(FromApinit::Accepted), &[])
        .gives(apinit(FromApinit::Going), &[])
        .gives(signal(SIGUSR1, PSCHED), &[]);
}

#[test]
fn a_look_that_came_too_early_is_repeated() {
    let why = Explanation { obstacle: "full".to_owned(), ..Explanation::default() };
    Session::posted()
        .gives(signal(SIGUSR1, PSCHED), &[Action::Look(APID)])
        .gives(event(PschedEvent::Placed(1)), &[])
        .gives(Event::Looked(Looked::Waiting(why.clone())), &[Action::Look(APID)])
        .gives(Event::Looked(Looked::Waiting(why)), &[]);
}

/// It may be of a psched that was started and has died while this process stood still.
#[test]
fn what_bears_the_mark_of_psched_is_not_passed_on_whoever_sent_it() {
    Session::posted().gives(Event::Nudged, &[Action::Look(APID)]).gives(Event::Nudged, &[]);
    Session::attaching()
        .gives(Event::Nudged, &[])
        .gives(apinit(FromApinit::Accepted), &[])
        .gives(apinit(FromApinit::Going), &[])
        .gives(Event::Nudged, &[]);
}

/// apkill with that number would end more than it runs.
#[test]
fn what_runs_inside_another_is_ended_by_its_own_aprun() {
    let inside = Setup { inside: true, ..setup() };
    let mut session = Session { front: Front::new(inside), now: 0 };
    session
        .gives(Event::Start, &[Action::Psched(Ask::Post)])
        .gives(Event::PschedUp { pid: -1 }, &[])
        .gives(event(PschedEvent::Accepted(APID)), &[])
        .gives(event(PschedEvent::Placed(1)), &[Action::Look(APID)])
        .gives(Event::Looked(Looked::Placement(placement(1))), &[launch_of(1)])
        .gives(apinit(FromApinit::Accepted), &[])
        .gives(apinit(FromApinit::Going), &[])
        .gives(signal(SIGINT, 500), &[Action::Send(passed(1, SIGINT))])
        .gives(signal(SIGINT, 500), &[Action::Send(passed(2, SIGINT))])
        .gives(
            signal(SIGINT, 500),
            &[
                say("the program inside application 12 got INT 3 times and runs on; \
                     kill -9 of this aprun ends it"),
                Action::Send(passed(3, SIGINT)),
            ],
        );
}

#[test]
fn other_signals_wait_for_the_pes() {
    Session::posted()
        .gives(signal(SIGUSR1, 500), &[])
        .gives(signal(12, 500), &[])
        .gives(Event::Signal { signal: 28, sender: None }, &[])
        .gives(Event::Signal { signal: 28, sender: None }, &[])
        .gives(event(PschedEvent::Placed(1)), &[Action::Look(APID)])
        .gives(Event::Looked(Looked::Placement(placement(1))), &[launch_of(1)])
        .gives(apinit(FromApinit::Accepted), &[])
        .gives(
            apinit(FromApinit::Going),
            &[
                Action::Send(passed(1, SIGUSR1)),
                Action::Send(passed(2, 12)),
                Action::Send(passed(3, 28)),
            ],
        )
        .gives(signal(SIGINT, 500), &[Action::Send(passed(4, SIGINT))])
        .gives(signal(SIGUSR1, 500), &[Action::Send(passed(5, SIGUSR1))])
        .gives(signal(SIGINT, 500), &[Action::Send(passed(6, SIGINT))])
        // A program that goes on in spite of three is ended otherwise.
        .gives(
            signal(SIGINT, 500),
            &[
                say(
                    "application 12 got INT 3 times and has not ended; `apkill -9 12` ends it, and \
                     `apstat --why 12` says what is in its way",
                ),
                Action::Send(passed(7, SIGINT)),
            ],
        )
        .gives(signal(SIGINT, 500), &[Action::Send(passed(8, SIGINT))]);
}

#[test]
fn usr1_from_a_psched_that_is_not_known_yet() {
    // psched has been restarted, and its new process signals before the connection is there.
    let mut session = Session::posted();
    session
        .gives(down("broken pipe"), &[])
        .gives(signal(SIGUSR1, 78), &[])
        .at(50, &[Action::Psched(Ask::Watch(APID))])
        .gives(Event::PschedUp { pid: 78 }, &[])
        .gives(event(PschedEvent::Placed(1)), &[Action::Look(APID)])
        .gives(Event::Looked(Looked::Placement(placement(1))), &[launch_of(1)])
        .gives(apinit(FromApinit::Accepted), &[])
        .gives(apinit(FromApinit::Going), &[]);
    // While the PEs run, such a signal is held until its sender is known, but not for long.
    session
        .gives(down("broken pipe"), &[])
        .gives(signal(SIGUSR1, 79), &[])
        .gives(signal(SIGUSR1, 500), &[])
        .gives(signal(12, 500), &[Action::Send(passed(1, 12))])
        .at(100, &[Action::Psched(Ask::Watch(APID))])
        .gives(Event::PschedUp { pid: 79 }, &[Action::Send(passed(2, SIGUSR1))]);
    session
        .gives(down("broken pipe"), &[])
        .gives(signal(SIGUSR1, 500), &[])
        .at(200, &[Action::Psched(Ask::Watch(APID))])
        .at(1_099, &[])
        .at(1_100, &[Action::Send(passed(3, SIGUSR1))]);
}

#[test]
fn interrupted_before_the_record_is_known() {
    Session::new()
        .gives(Event::Start, &[Action::Psched(Ask::Post)])
        .gives(Event::PschedUp { pid: PSCHED }, &[])
        .gives(signal(SIGINT, 1), &[Action::Exit(130)]);
}

#[test]
fn interrupted_while_it_waits() {
    let kill = Action::Kill { apid: APID, signal: SIGINT };
    Session::posted()
        .gives(signal(SIGINT, 1), std::slice::from_ref(&kill))
        .gives(Event::Killed, &[Action::Exit(130)]);
    // The end may be faster than the answer, and neither may come at all.
    let end = ended(Some(Cause::Kill { signal: SIGINT, uid: 0 }), false);
    Session::posted()
        .gives(signal(SIGTERM, 1), &[Action::Kill { apid: APID, signal: SIGTERM }])
        .gives(event(PschedEvent::Ended(end)), &[Action::Exit(143)]);
    Session::posted()
        .gives(signal(SIGINT, 1), std::slice::from_ref(&kill))
        .at(1_999, &[])
        .at(2_000, &[Action::Exit(130)]);
    Session::posted()
        .gives(signal(SIGINT, 1), std::slice::from_ref(&kill))
        .gives(signal(SIGINT, 1), &[Action::Exit(130)]);
    Session::posted().gives(down("gone"), &[]).gives(signal(SIGINT, 1), &[Action::Exit(130)]);
}

#[test]
fn interrupted_between_placement_and_go() {
    let kill = Action::Kill { apid: APID, signal: SIGINT };
    let terminate = Action::Send(ToApinit::Terminate {
        reason: FrontReason::Withdrawn { signal: SIGINT },
        kill_after: KILL_AFTER,
    });
    let end = ended(Some(Cause::Kill { signal: SIGINT, uid: 1000 }), false);
    // A look that is answered after the ^C is not followed.
    Session::posted()
        .gives(event(PschedEvent::Placed(1)), &[Action::Look(APID)])
        .gives(signal(SIGINT, 1), std::slice::from_ref(&kill))
        .gives(Event::Looked(Looked::Placement(placement(1))), &[])
        .gives(Event::Killed, &[Action::Exit(130)]);
    // A launch that is on its way may still be taken.
    Session::attaching()
        .gives(signal(SIGINT, 1), std::slice::from_ref(&kill))
        .gives(apinit(FromApinit::Accepted), std::slice::from_ref(&terminate))
        .gives(Event::Killed, &[])
        .gives(event(PschedEvent::Ended(end.clone())), &[Action::Exit(130)]);
    Session::attaching()
        .gives(apinit(FromApinit::Accepted), &[])
        .gives(signal(SIGINT, 1), &[kill, terminate])
        .gives(event(PschedEvent::Ended(end)), &[Action::Exit(130)]);
}

#[test]
fn no_psched() {
    let absent =
        Event::PschedDown { text: "no psched at /x".to_owned(), absent: true, answered: false };
    Session::new()
        .gives(Event::Start, &[Action::Psched(Ask::Post)])
        .gives(absent, &[say("no psched at /x"), Action::Exit(125)]);
    // One that is being restarted is waited for.
    let mut session = Session::new();
    session.gives(Event::Start, &[Action::Psched(Ask::Post)]);
    for (ms, pause) in [(0, 50), (50, 100), (150, 200), (350, 400), (750, 800)] {
        session.now = ms * MS;
        session.gives(down("refused"), &[]).at(ms + pause, &[Action::Psched(Ask::Post)]);
    }
    session
        .gives(down("refused"), &[])
        .at(2_000, &[say("psched does not answer (refused); nothing is posted yet; trying again")])
        .at(2_550, &[Action::Psched(Ask::Post)]);
    session.now = 5_000 * MS;
    session.gives(down("refused"), &[say("refused"), Action::Exit(125)]);
    // Also if it goes while it takes its time.
    let mut session = Session::new();
    session.gives(Event::Start, &[Action::Psched(Ask::Post)]);
    session.gives(Event::PschedUp { pid: 76 }, &[]);
    session.now = 6_000 * MS;
    session.gives(down("gone"), &[]).at(6_050, &[Action::Psched(Ask::Post)]);
    session.now = 11_000 * MS;
    session.gives(down("gone"), &[say("gone"), Action::Exit(125)]);
    // For as long as it is told to.
    let patience = Some(Duration::from_secs(60));
    let mut session = Session { front: Front::new(Setup { patience, ..setup() }), now: 0 };
    session.gives(Event::Start, &[Action::Psched(Ask::Post)]).gives(down("gone"), &[]);
    let waits = "psched does not answer (gone); nothing is posted yet; trying again for 1m \
                 (--wait-for-psched)";
    session.at(50, &[Action::Psched(Ask::Post)]).at(2_000, &[say(waits)]);
    session.now = 59_999 * MS;
    session.gives(down("gone"), &[]);
    session.now = 60_000 * MS;
    session.gives(down("gone"), &[say("gone"), Action::Exit(125)]);
    // By chance a process waits longer than others.
    let mut session = Session { front: Front::new(Setup { spread: 128, ..setup() }), now: 0 };
    session.gives(Event::Start, &[Action::Psched(Ask::Post)]);
    for (ms, pause) in [(0, 75), (75, 150), (225, 300)] {
        session.now = ms * MS;
        session.gives(down("refused"), &[]).at(ms + pause - 1, &[]);
        session.at(ms + pause, &[Action::Psched(Ask::Post)]);
    }
    // Or not at all.
    let patience = Some(Duration::ZERO);
    let mut session = Session { front: Front::new(Setup { patience, ..setup() }), now: 0 };
    session.gives(Event::Start, &[Action::Psched(Ask::Post)]);
    session.gives(down("gone"), &[say("gone"), Action::Exit(125)]);
}

/// One that hangs, or whose disk is full: it is connected, and does not take the posting.
#[test]
fn a_psched_that_says_nothing_is_waited_for_as_long_as_it_is_told_to() {
    let waits = say("psched has not accepted the posting yet; waiting");
    let hanging = |seconds| {
        let answer_within = Some(Duration::from_secs(seconds));
        let front = Front::new(Setup { patience: answer_within, answer_within, ..setup() });
        let mut session = Session { front, now: 0 };
        session.gives(Event::Start, &[Action::Psched(Ask::Post)]);
        session.gives(Event::PschedUp { pid: PSCHED }, &[]);
        session.at(2_000, std::slice::from_ref(&waits));
        session
    };
    let given_up = |time| {
        let text = format!("psched has not accepted the posting within {time} (--wait-for-psched)");
        [say(&text), Action::Exit(125)]
    };
    hanging(60).at(60_000, &given_up("1m"));
    // It has the time to answer at all.
    hanging(0).at(5_000, &given_up("0s"));
    // What it has taken is waited for.
    let mut taken = hanging(60);
    taken.gives(Event::Psched(PschedEvent::Accepted(APID)), &[]);
    assert!(taken.front.deadline().is_none_or(|at| at != 60_000 * MS));
    // Without a word of the user's, for ever.
    let mut patient = Session::new();
    patient.gives(Event::Start, &[Action::Psched(Ask::Post)]);
    patient.gives(Event::PschedUp { pid: PSCHED }, &[]).at(2_000, &[waits]);
    assert_eq!(patient.front.deadline(), None);
}

#[test]
fn refused_postings() {
    Session::new()
        .gives(Event::Start, &[Action::Psched(Ask::Post)])
        .gives(Event::PschedUp { pid: PSCHED }, &[])
        .gives(
            Event::PschedRefused("-n 1000: too wide".to_owned()),
            &[say("-n 1000: too wide"), Action::Exit(125)],
        );
    // What runs is not ended by that, for the psched may be the wrong one.
    let watch = Action::Psched(Ask::Watch(APID));
    let refused = Event::PschedRefused("not known".to_owned());
    Session::going()
        .gives(down("gone"), &[])
        .at(50, std::slice::from_ref(&watch))
        .gives(refused.clone(), &[])
        .at(150, std::slice::from_ref(&watch))
        .gives(done(), &[])
        .gives(refused, &[say("application 12: its record is lost: not known"), Action::Exit(125)]);
}

#[test]
fn psched_is_away_while_the_application_runs_and_ends() {
    let end = ended(None, true);
    let mut session = Session::going();
    session.gives(down("connection reset"), &[]).gives(done(), &[]);
    let watch = Action::Psched(Ask::Watch(APID));
    session.at(50, std::slice::from_ref(&watch)).gives(down("refused"), &[]);
    session.at(
        2_000,
        &[
            watch.clone(),
            say("psched does not answer (refused); application 12 has ended, and psched has its \
                 exit status; trying again"),
        ],
    );
    // For however long.
    session.gives(down("refused"), &[]).at(90_000, &[watch]);
    session.gives(Event::PschedUp { pid: 90 }, &[]).gives(
        event(PschedEvent::Ended(end.clone())),
        &[say("psched answers again"), Action::Close(end), Action::Exit(0)],
    );
}

/// It connects, and says that it has other records: that is no answer, and no end.
#[test]
fn another_psched_is_in_its_place() {
    let mut session = Session::going();
    session.gives(down("connection reset"), &[]);
    let watch = Action::Psched(Ask::Watch(APID));
    session.at(50, std::slice::from_ref(&watch));
    let said = "psched has answered: no record here; application 12 runs on; trying again";
    session.gives(Event::PschedUp { pid: 90 }, &[]).gives(can_not("no record here"), &[]);
    session.at(2_000, &[watch.clone(), say(said)]);
    // Once is enough.
    for seconds in 4..9 {
        session.gives(Event::PschedUp { pid: 90 }, &[]).gives(can_not("no record here"), &[]);
        session.at(seconds * 1_000, std::slice::from_ref(&watch));
    }
    session
        .gives(Event::PschedUp { pid: 91 }, &[])
        .gives(event(PschedEvent::Accepted(APID)), &[say("psched reports application 12 again")]);
}

#[test]
fn a_silence_says_what_is_known() {
    // Neither psched nor the apinit can be reached.
    let mut session = Session::going();
    session
        .gives(down("reset"), &[])
        .gives(Event::ApinitDown { text: "reset".to_owned(), connected: true }, &[])
        .at(50, &[Action::Psched(Ask::Watch(APID)), resume(vec![])])
        .at(
            2_000,
            &[
                say(
                    "psched does not answer (reset); whether application 12 runs on is not known; \
                     trying again",
                ),
                say("apinit does not answer (reset); trying again"),
            ],
        );
    // psched was asked, and has not said whether it has the posting.
    let post = Action::Psched(Ask::Post);
    Session::new()
        .gives(Event::Start, std::slice::from_ref(&post))
        .gives(Event::PschedUp { pid: PSCHED }, &[])
        .gives(down("reset"), &[])
        .at(50, std::slice::from_ref(&post))
        .gives(down("refused"), &[])
        .at(
            2_000,
            &[
                post.clone(),
                say("psched does not answer (refused); whether psched has the posting is not known; \
                     trying again"),
            ],
        );
    // It answers, and can't take it.
    Session::new()
        .gives(Event::Start, std::slice::from_ref(&post))
        .gives(Event::PschedUp { pid: PSCHED }, &[])
        .gives(can_not("the disk is full"), &[])
        .at(2_000, &[post.clone(), say("psched has answered: the disk is full; trying again")])
        .gives(Event::PschedUp { pid: PSCHED }, &[])
        .gives(event(PschedEvent::Accepted(APID)), &[say("psched accepts the posting now")]);
    // Who asks for --immediate does not wait for that.
    let mut session = Session { front: Front::new(Setup { immediate: true, ..setup() }), now: 0 };
    session
        .gives(Event::Start, std::slice::from_ref(&post))
        .gives(Event::PschedUp { pid: PSCHED }, &[])
        .gives(can_not("the disk is full"), &[say("the disk is full"), Action::Exit(125)]);
}

#[test]
fn every_silence_has_its_line() {
    let mut session = Session::new();
    session
        .gives(Event::Start, &[Action::Psched(Ask::Post)])
        .gives(Event::PschedUp { pid: PSCHED }, &[])
        .at(2_000, &[say("psched has not accepted the posting yet; waiting")]);
    Session::attaching()
        .at(1_999, &[])
        .at(
            2_000,
            &[say(
                "application 12 has a place, but its apinit has not accepted the launch yet; waiting",
            )],
        )
        .at(9_000, &[])
        .gives(apinit(FromApinit::Accepted), &[]);
    Session::attaching()
        .gives(apinit(FromApinit::Accepted), &[])
        .at(2_000, &[say("application 12 is launched, but its PEs are not all ready; waiting")]);
    let mut session = Session::going();
    assert_eq!(session.front.deadline(), None);
    session.gives(Event::Trouble("x".to_owned()), &[say("x")]);
}

#[test]
fn an_unanswered_posting_is_posted_again() {
    Session::new()
        .gives(Event::Start, &[Action::Psched(Ask::Post)])
        .gives(Event::PschedUp { pid: PSCHED }, &[])
        .gives(down("reset"), &[])
        .at(50, &[Action::Psched(Ask::Post)])
        .gives(Event::PschedUp { pid: 78 }, &[])
        .gives(event(PschedEvent::Accepted(APID)), &[])
        .gives(event(PschedEvent::Placed(1)), &[Action::Look(APID)]);
}

#[test]
fn a_wait_is_explained() {
    let why = Explanation {
        obstacle: "8 processors are needed".to_owned(),
        holder: "2 are free".to_owned(),
        cure: "wait".to_owned(),
    };
    Session::posted()
        .at(1_999, &[])
        .at(2_000, &[Action::Look(APID)])
        .gives(
            Event::Looked(Looked::Waiting(why.clone())),
            &[say("application 12 waits for a place: 8 processors are needed; 2 are free; wait")],
        )
        .at(9_000, &[])
        // Once only.
        .gives(event(PschedEvent::Placed(1)), &[Action::Look(APID)])
        .gives(Event::Looked(Looked::Waiting(why)), &[]);
    // Where it is started by a PE of another application that one may be in its way.
    let setup_within = Setup { within: Some(Apid(7)), ..setup() };
    let mut within = Session { front: Front::new(setup_within), now: 0 };
    within
        .gives(Event::Start, &[Action::Psched(Ask::Post)])
        .gives(Event::PschedUp { pid: PSCHED }, &[])
        .gives(event(PschedEvent::Accepted(APID)), &[])
        .at(2_000, &[Action::Look(APID)])
        .gives(
            Event::Looked(Looked::Waiting(Explanation::default())),
            &[say(
                "application 12 waits for a place: ; this aprun runs in application 7: if 7 holds the \
                 processors and waits for application 12, neither goes on; start application 12 outside of 7, \
                 give 7 fewer processors, or run the program on processors of 7 with --inside",
            )],
        );
    // There is a place when the answer comes: nothing to explain.
    Session::posted()
        .at(2_000, &[Action::Look(APID)])
        .gives(Event::Looked(Looked::Placement(placement(1))), &[launch_of(1)]);
    let mut quiet = Session { front: Front::new(Setup { quiet: true, ..setup() }), now: 0 };
    quiet
        .gives(Event::Start, &[Action::Psched(Ask::Post)])
        .gives(Event::PschedUp { pid: PSCHED }, &[])
        .gives(event(PschedEvent::Accepted(APID)), &[])
        .at(2_000, &[]);
}

#[test]
fn a_place_that_was_taken_back() {
    // This process was stopped; its launch is too late.
    let too_late = FromApinit::Refused { text: "not placed here".to_owned(), cause: None };
    let why = Explanation::default();
    Session::attaching()
        .gives(apinit(too_late.clone()), &[])
        .gives(Event::ApinitDown { text: "closed".to_owned(), connected: true }, &[])
        .at(100, &[Action::Look(APID)])
        .gives(Event::Looked(Looked::Waiting(why)), &[])
        .gives(event(PschedEvent::Placed(2)), &[Action::Look(APID)])
        .gives(Event::Looked(Looked::Placement(placement(2))), &[launch_of(2)])
        .gives(apinit(FromApinit::Accepted), &[]);
    // Or psched has said so before the apinit has.
    Session::attaching()
        .gives(event(PschedEvent::Placed(1)), &[])
        .gives(event(PschedEvent::Placed(2)), &[Action::Look(APID)])
        .gives(Event::Looked(Looked::Placement(placement(2))), &[launch_of(2)]);
    // But not for ever.
    let mut session = Session::attaching();
    for refusal in 1..=REFUSALS_MAX {
        session.gives(apinit(too_late.clone()), &[]);
        let later = session.now / MS + u64::from(refusal) * 100;
        session
            .at(later, &[Action::Look(APID)])
            .gives(Event::Looked(Looked::Placement(placement(1))), &[launch_of(1)]);
    }
    session.gives(
        apinit(too_late),
        &[say("application 12 was not launched: not placed here"), Action::Exit(125)],
    );
}

/// Nothing of it has run, and nobody has been asked to run it.
#[test]
fn a_place_that_the_binding_does_not_fit() {
    let binding = Binding::Lists(Lists::new(vec![vec![(0, 1)]]).expect("good"));
    let launch = Launch { binding, ..setup().launch };
    let mut session = Session { front: Front::new(Setup { launch, ..setup() }), now: 0 };
    let said = "-cc: list 1 names processor 1, and the application has 1 processor, number 0, on NID \
                0: name one of those, or ask for more (-n, -N, -d)";
    session
        .gives(Event::Start, &[Action::Psched(Ask::Post)])
        .gives(Event::PschedUp { pid: PSCHED }, &[])
        .gives(event(PschedEvent::Accepted(APID)), &[])
        .gives(event(PschedEvent::Placed(1)), &[Action::Look(APID)])
        .gives(Event::Looked(Looked::Placement(placement(1))), &[say(said), Action::Exit(125)]);
}

#[test]
fn a_launch_that_failed() {
    let cause = Cause::LaunchFailed {
        rank: 3,
        nid: Nid(1),
        errno: 13,
        text: "./a.out: permission denied".to_owned(),
        fault: Fault::User,
    };
    let end = ended(Some(cause.clone()), false);
    let refused =
        apinit(FromApinit::Refused { text: cause.to_string(), cause: Some(cause.clone()) });
    Session::attaching()
        .gives(refused.clone(), &[])
        .gives(event(PschedEvent::Ended(end.clone())), &[Action::Close(end), Action::Exit(126)]);
    Session::attaching().gives(refused, &[]).at(2_000, &[]).at(
        10_000,
        &[say(&format!("application 12 was not launched: {cause}")), Action::Exit(126)],
    );
}

#[test]
fn a_launch_that_failed_on_another_host_names_it() {
    let (text, fault) = ("./a.out: no such file".to_owned(), Fault::User);
    let cause = Cause::LaunchFailed { rank: 0, nid: Nid(0), errno: 2, text, fault };
    for (front_host, copies, host, no_copy) in
        [("h0", false, "h1", true), ("h0", true, "h1", false), ("h1", false, "", false)]
    {
        let mut session = Session::attaching();
        session.front.setup.launch.copies = copies;
        let placement = session.front.placement.as_mut().expect("it has a place");
        placement.hosts[0].host = "h1".to_owned();
        placement.front_host = front_host.to_owned();
        let end = ended(Some(cause.clone()), false);
        let told = Box::new(Ended { host: host.to_owned(), no_copy, ..*end.clone() });
        let (text, refusal) = (cause.to_string(), Some(cause.clone()));
        session
            .gives(apinit(FromApinit::Refused { text, cause: refusal }), &[])
            .gives(event(PschedEvent::Ended(end)), &[Action::Close(told), Action::Exit(127)]);
    }
}

fn retried(incarnation: u32, attempt: u32) -> Event {
    let (text, fault) = ("no space left".to_owned(), Fault::Node);
    let cause = Cause::ShepherdLost { nid: Nid(0), text, fault };
    event(PschedEvent::Retried(Retried { incarnation, cause, attempt, most: 3 }))
}

/// As if it had never been launched; whatever its apinit had said of the launch by then.
#[test]
fn a_launch_that_failed_by_a_node_s_fault_is_tried_again() {
    let said = "application 12 could not be started on NID 0: no space left; tried again elsewhere, 1 of 3";
    let then = |session: &mut Session| {
        session
            .gives(retried(1, 1), &[say(said)])
            // psched says it again to whoever watches anew.
            .gives(retried(1, 1), &[])
            .gives(Event::ApinitDown { text: "closed".to_owned(), connected: true }, &[])
            .gives(event(PschedEvent::Placed(3)), &[Action::Look(APID)])
            .gives(Event::Looked(Looked::Placement(placement(3))), &[launch_of(3)])
            .gives(apinit(FromApinit::Accepted), &[])
            .gives(apinit(FromApinit::Going), &[])
            .gives(done(), &[]);
    };
    then(&mut Session::attaching());
    let mut taken = Session::attaching();
    taken.gives(apinit(FromApinit::Accepted), &[]);
    then(&mut taken);
    let mut over = Session::attaching();
    over.gives(apinit(FromApinit::Accepted), &[]).gives(done(), &[]);
    then(&mut over);
    let mut refused = Session::attaching();
    let cause = Some(Cause::NodeLost { nid: Nid(0), text: String::new() });
    refused.gives(apinit(FromApinit::Refused { text: "gone".to_owned(), cause }), &[]);
    then(&mut refused);
    // It had not even looked for the place that was lost.
    Session::posted()
        .gives(retried(1, 1), &[say(said)])
        .gives(event(PschedEvent::Placed(3)), &[Action::Look(APID)]);
    // What runs has not failed.
    Session::going().gives(retried(1, 1), &[]);
}

/// With -q a retry is no news; a PE is named, and its host.
#[test]
fn a_retry_is_told_with_the_host() {
    let (text, fault) = ("no process is left".to_owned(), Fault::Busy);
    let cause = Cause::LaunchFailed { rank: 3, nid: Nid(0), errno: 11, text, fault };
    let retried = Retried { incarnation: 1, cause, attempt: 2, most: 3 };
    for quiet in [false, true] {
        let mut session = Session { front: Front::new(Setup { quiet, ..setup() }), now: 0 };
        let mut placement = placement(1);
        placement.hosts[0].host_id = "n7/boot".to_owned();
        session
            .gives(Event::Start, &[Action::Psched(Ask::Post)])
            .gives(Event::PschedUp { pid: PSCHED }, &[])
            .gives(event(PschedEvent::Accepted(APID)), &[])
            .gives(event(PschedEvent::Placed(1)), &[Action::Look(APID)])
            .gives(Event::Looked(Looked::Placement(placement)), &[launch_of(1)]);
        let said = say(
            "PE 3 of application 12 could not be started on NID 0 (host n7): no process is left; \
                        tried again elsewhere, 2 of 3",
        );
        let said = if quiet { vec![] } else { vec![said] };
        session.gives(event(PschedEvent::Retried(retried.clone())), &said);
    }
}

/// A ^C that the apinits could do nothing with ends the posting.
#[test]
fn interrupted_before_a_retry() {
    let kill = Action::Kill { apid: APID, signal: SIGINT };
    let terminate = Action::Send(ToApinit::Terminate {
        reason: FrontReason::Withdrawn { signal: SIGINT },
        kill_after: KILL_AFTER,
    });
    let mut session = Session::attaching();
    session
        .gives(apinit(FromApinit::Accepted), &[])
        .gives(signal(SIGINT, 1), &[kill.clone(), terminate]);
    let actions = session.front.apply(session.now, retried(1, 1));
    assert_eq!(actions[1..], [kill], "{actions:?}");
    session.gives(Event::Killed, &[Action::Exit(130)]);
}

/// What is read before the PEs go would be lost with a launch that fails.
#[test]
fn stdin_is_not_read_before_the_pes_go() {
    Session::attaching()
        .gives(apinit(FromApinit::Accepted), &[])
        .gives(apinit(credit(10, 0)), &[])
        .gives(apinit(FromApinit::Going), &[Action::ReadStdin(10)]);
}

#[test]
fn a_lost_apinit_is_resumed_and_nothing_is_doubled() {
    let lost = || Event::ApinitDown { text: "reset".to_owned(), connected: true };
    let taken = |offset| OutputTaken { source: 0, offset };
    let mut session = Session::going();
    session
        .gives(apinit(FromApinit::Output(output(0, "ab"))), &[Action::Write(output(0, "ab"))])
        .gives(apinit(FromApinit::Output(output(2, "cd"))), &[Action::Write(output(2, "cd"))])
        // Small pieces are reported together.
        .gives(Event::Written { source: 0, end: 2 }, &[])
        .gives(lost(), &[])
        .gives(signal(12, 5), &[])
        .at(50, &[resume(vec![taken(2)])])
        .gives(Event::ApinitDown { text: "refused".to_owned(), connected: false }, &[])
        .at(150, &[resume(vec![taken(2)])])
        .gives(apinit(FromApinit::Accepted), &[Action::Send(passed(1, 12))])
        // It repeats what was not taken: "cd" is on its way to stdout already.
        .gives(apinit(FromApinit::Output(output(2, "cdef"))), &[Action::Write(output(4, "ef"))])
        .gives(apinit(FromApinit::Output(output(2, "cdef"))), &[])
        .gives(Event::Written { source: 0, end: 4 }, &[])
        .gives(
            Event::Written { source: 0, end: 6 },
            &[Action::Send(ToApinit::OutputTaken(taken(6)))],
        );
}

#[test]
fn what_is_written_before_a_resumption_is_accepted_is_reported_with_it() {
    let lost = || Event::ApinitDown { text: "reset".to_owned(), connected: true };
    let taken = |offset| OutputTaken { source: 0, offset };
    Session::going()
        .gives(apinit(FromApinit::Output(output(0, "ab"))), &[Action::Write(output(0, "ab"))])
        .gives(lost(), &[])
        .at(50, &[resume(vec![taken(0)])])
        // A slow reader, at last. Nothing else may come that would be reported.
        .gives(Event::Written { source: 0, end: 2 }, &[])
        .gives(apinit(FromApinit::Accepted), &[Action::Send(ToApinit::OutputTaken(taken(2)))]);
}

/// The report was there before the output was said again to the apinit, which could make nothing of it.
#[test]
fn what_comes_again_although_it_is_written_is_reported_again() {
    let taken = |offset| Action::Send(ToApinit::OutputTaken(OutputTaken { source: 0, offset }));
    Session::going()
        .gives(apinit(FromApinit::Output(output(0, "one"))), &[Action::Write(output(0, "one"))])
        .gives(Event::Written { source: 0, end: 3 }, &[taken(3)])
        .gives(apinit(FromApinit::Output(output(0, "one"))), &[taken(3)])
        .gives(apinit(FromApinit::Output(output(3, "two"))), &[Action::Write(output(3, "two"))])
        .gives(apinit(FromApinit::Output(output(3, "two"))), &[])
        .gives(Event::Written { source: 0, end: 6 }, &[taken(6)]);
}

#[test]
fn a_launch_cut_off_is_first_resumed() {
    Session::attaching()
        .gives(Event::ApinitDown { text: "no".to_owned(), connected: false }, &[])
        .at(50, &[launch_of(1)])
        .gives(Event::ApinitDown { text: "reset".to_owned(), connected: true }, &[])
        .at(150, &[resume(vec![])])
        .gives(
            apinit(FromApinit::Refused { text: "not known".to_owned(), cause: None }),
            &[launch_of(1)],
        )
        .gives(apinit(FromApinit::Accepted), &[]);
}

/// psched died before it had the launch on record, and then the host was switched off: nobody knows of it any
/// more, and nobody would ever tell of its end.
#[test]
fn what_nobody_knows_of_any_more_is_lost() {
    let unknown = || apinit(FromApinit::Refused { text: "not on this node".into(), cause: None });
    let gone = || Event::ApinitDown { text: "closed".into(), connected: true };
    let lost = "application 12 is lost: its node and psched were both restarted after the launch, and \
                neither has a record of it; see what its program has done before you start it again";
    let exits = |session: &mut Session| {
        session.now += 3_000 * MS;
        let actions = session.front.apply(session.now, Event::Time);
        actions.ends_with(&[say(lost), Action::Exit(125)])
    };
    let mut session = Session::going();
    for event in [gone(), unknown(), event(PschedEvent::Placed(1))] {
        session.front.apply(session.now, event);
    }
    assert!(exits(&mut session));
    // Its end had been told here already.
    let mut launched = Session::attaching();
    launched.gives(apinit(FromApinit::Accepted), &[]);
    for mut over in [Session::going(), launched] {
        over.gives(done(), &[])
            .gives(gone(), &[])
            .gives(event(PschedEvent::Placed(1)), &[resume(vec![])]);
        over.front.apply(over.now, unknown());
        assert!(exits(&mut over));
    }
    // Where one of them does it is waited for.
    let mut known = Session::going();
    for event in [gone(), unknown(), event(PschedEvent::Placed(1)), event(PschedEvent::Launched)] {
        known.front.apply(known.now, event);
    }
    assert!(!exits(&mut known));
    let mut there = Session::going();
    for event in [gone(), unknown(), apinit(FromApinit::Accepted), event(PschedEvent::Placed(1))] {
        there.front.apply(there.now, event);
    }
    assert!(!exits(&mut there));
}

#[test]
fn an_apinit_that_stays_away_after_the_end() {
    let end = ended(Some(Cause::PeExit { rank: 0, nid: Nid(0), code: 9 }), true);
    let mut session = Session::going();
    session
        .gives(Event::ApinitDown { text: "reset".to_owned(), connected: true }, &[])
        .gives(event(PschedEvent::Ended(end.clone())), &[])
        .at(50, &[resume(vec![])])
        .at(2_000, &[say("apinit does not answer (reset); trying again")])
        .at(9_999, &[])
        .at(
            10_000,
            &[
                say("application 12 has ended, but its apinit has been silent for 10 s: its \
                     output may not be complete"),
                Action::Close(end),
                Action::Exit(9),
            ],
        );
}

/// It was put off, psched went away, and comes back with the news that its launch was taken after all.
#[test]
fn a_launch_that_was_taken_unheard_is_found_by_a_look() {
    Session::attaching()
        .gives(apinit(FromApinit::NotNow("not placed".to_owned())), &[])
        .gives(down("broken pipe"), &[])
        .gives(Event::PschedUp { pid: 78 }, &[])
        .gives(event(PschedEvent::Launched), &[Action::Look(APID)])
        .gives(Event::Looked(Looked::Placement(placement(1))), &[launch_of(1)]);
}

#[test]
fn output_that_another_host_has_thrown_away_is_told() {
    let mut end = ended(None, true);
    end.end.output_lost = true;
    Session::going().gives(event(PschedEvent::Ended(end.clone())), &[]).gives(
        apinit(FromApinit::Done),
        &[
            say(
                "the output of application 12 is not complete: what PEs wrote while this aprun, or the \
                 host of PE 0, could not be reached was discarded",
            ),
            Action::Close(end),
            Action::Exit(0),
        ],
    );
}

#[test]
fn an_apinit_that_took_it_for_dead_has_thrown_output_away() {
    let end = ended(None, true);
    let refused = |cause| apinit(FromApinit::Refused { text: "gone".to_owned(), cause });
    Session::going()
        .gives(Event::ApinitDown { text: "reset".to_owned(), connected: true }, &[])
        .at(50, &[resume(vec![])])
        .gives(refused(Some(Cause::FrontGone)), &[])
        .gives(event(PschedEvent::Ended(end.clone())), &[])
        .at(1_050, &[resume(vec![])])
        // It has forgotten it by now.
        .gives(
            refused(None),
            &[
                say("the output of application 12 may not be complete: its apinit lost contact with \
                     this aprun and keeps no more of it"),
                Action::Close(end),
                Action::Exit(0),
            ],
        );
}

/// The word that it can't be had now is no refusal, and the stream's end after it no second break.
/// Whether the place is still there psched knows: the node may wait for a word of one that was taken
/// back.
#[test]
fn an_apinit_that_can_not_be_had_now_is_asked_again() {
    let lost = || Event::ApinitDown { text: "closed".to_owned(), connected: true };
    let not_now = || apinit(FromApinit::NotNow("psched has not placed it".to_owned()));
    let looked = |incarnation| Event::Looked(Looked::Placement(placement(incarnation)));
    let mut session = Session::attaching();
    for n in 1..=u64::from(3 * REFUSALS_MAX) {
        let text = "apinit does not answer (psched has not placed it); trying again";
        let said = (n == 2).then(|| say(text));
        let again: Vec<Action> = [Action::Look(APID)].into_iter().chain(said).collect();
        session
            .gives(not_now(), &[])
            .gives(lost(), &[])
            .at(1_000 * n, &again)
            .gives(looked(1), &[launch_of(1)]);
    }
    let waits = Event::Looked(Looked::Waiting(Explanation::default()));
    session
        .gives(not_now(), &[])
        .at(16_000, &[Action::Look(APID)])
        .gives(waits, &[])
        .gives(event(PschedEvent::Placed(2)), &[Action::Look(APID)])
        .gives(looked(2), &[launch_of(2)]);
    // Where the launch may have been taken, that is found out first.
    let again = [resume(vec![])];
    Session::attaching()
        .gives(lost(), &[])
        .at(50, &again)
        .gives(not_now(), &[])
        .gives(lost(), &[])
        .at(150, &again);
}

/// What apinit said was lost, so that this aprun does not know that its launch was taken.
#[test]
fn an_apinit_that_was_never_heard_has_thrown_output_away() {
    let end = ended(None, true);
    let lost = || Event::ApinitDown { text: "reset".to_owned(), connected: true };
    let text = "gone".to_owned();
    let refused = apinit(FromApinit::Refused { text, cause: Some(Cause::FrontGone) });
    Session::attaching().gives(lost(), &[]).at(50, &[resume(vec![])]).gives(refused, &[]).gives(
        event(PschedEvent::Ended(end.clone())),
        &[
            say("the output of application 12 may not be complete: its apinit lost contact with \
                     this aprun and keeps no more of it"),
            Action::Close(end.clone()),
            Action::Exit(0),
        ],
    );
    let silent = "application 12 has ended, but its apinit has been silent for 10 s: its output may \
                  not be complete";
    Session::attaching()
        .gives(lost(), &[])
        .gives(event(PschedEvent::Ended(end.clone())), &[])
        .at(50, &[resume(vec![])])
        .at(
            10_000,
            &[
                say("apinit does not answer (reset); trying again"),
                say(silent),
                Action::Close(end),
                Action::Exit(0),
            ],
        );
}

#[test]
fn output_that_nobody_takes() {
    let terminate = |reason| Action::Send(ToApinit::Terminate { reason, kill_after: KILL_AFTER });
    let end = ended(Some(Cause::StdoutClosed), true);
    Session::going()
        .gives(Event::OutputLost(Loss::StdoutClosed), &[terminate(FrontReason::StdoutClosed)])
        .gives(Event::OutputLost(Loss::StdoutClosed), &[])
        .gives(done(), &[])
        .gives(event(PschedEvent::Ended(end.clone())), &[Action::Close(end), Action::Exit(141)]);
    // It may be noticed only when the application has ended well.
    let good = ended(None, true);
    Session::going().gives(done(), &[]).gives(Event::OutputLost(Loss::StdoutClosed), &[]).gives(
        event(PschedEvent::Ended(good.clone())),
        &[
            say("standard output was closed: output of application 12 is lost"),
            Action::Close(good),
            Action::Exit(141),
        ],
    );
    let full = Event::OutputLost(Loss::Failed("can't write standard output: no space".to_owned()));
    let end = ended(Some(Cause::FrontGone), true);
    Session::going()
        .gives(
            full,
            &[
                say("can't write standard output: no space; application 12 is ended"),
                terminate(FrontReason::Gone),
            ],
        )
        // Said again to an apinit that was restarted.
        .gives(Event::ApinitDown { text: "reset".to_owned(), connected: true }, &[])
        .at(50, &[resume(vec![])])
        .gives(apinit(FromApinit::Accepted), &[terminate(FrontReason::Gone)])
        .gives(done(), &[])
        .gives(
            event(PschedEvent::Ended(end.clone())),
            &[Action::Close(Box::new(Ended { told: true, ..*end })), Action::Exit(125)],
        );
}

#[test]
fn stdin_follows_its_credit() {
    let bytes = |n: usize| Bytes::from(vec![b'x'; n]);
    let mut session = Session::going();
    let piece = |offset, n| Action::Send(ToApinit::Stdin(StdinPiece { offset, data: bytes(n) }));
    session
        .gives(apinit(credit(10, 0)), &[Action::ReadStdin(10)])
        // One read at a time.
        .gives(apinit(credit(200_000, 0)), &[])
        .gives(Event::Stdin(bytes(4)), &[piece(0, 4), Action::ReadStdin(65_536)])
        .gives(Event::ApinitDown { text: "reset".to_owned(), connected: true }, &[])
        // Read, and not to be sent now: not lost.
        .gives(Event::Stdin(bytes(7)), &[])
        .at(50, &[resume(vec![])])
        // What was sent before may have been in the hands of the one that is gone.
        .gives(apinit(FromApinit::Accepted), &[piece(0, 4), piece(4, 7), Action::ReadStdin(65_536)])
        .gives(apinit(credit(200_000, 4)), &[])
        .gives(Event::StdinEnd, &[Action::Send(ToApinit::StdinEnd(11))])
        .gives(apinit(credit(400_000, 4)), &[])
        .gives(Event::ApinitDown { text: "reset".to_owned(), connected: true }, &[])
        .at(100, &[resume(vec![])])
        .gives(apinit(FromApinit::Accepted), &[piece(4, 7), Action::Send(ToApinit::StdinEnd(11))]);
    Session::going()
        .gives(apinit(credit(3, 0)), &[Action::ReadStdin(3)])
        .gives(Event::Stdin(bytes(3)), &[piece(0, 3)]);
}

#[test]
fn signals_are_said_again_until_all_pes_have_them() {
    let lost = || Event::ApinitDown { text: "reset".to_owned(), connected: true };
    let send = |number, signal| Action::Send(passed(number, signal));
    let mut session = Session::going();
    session
        .gives(signal(SIGUSR1, 500), &[send(1, SIGUSR1)])
        .gives(signal(SIGUSR1, 500), &[send(2, SIGUSR1)])
        .gives(signal(12, 500), &[send(3, 12)])
        .gives(apinit(FromApinit::SignalsTaken(1)), &[])
        .gives(lost(), &[])
        .gives(signal(28, 500), &[])
        .at(50, &[resume(vec![])])
        .gives(apinit(FromApinit::Accepted), &[send(2, SIGUSR1), send(3, 12), send(4, 28)])
        .gives(apinit(FromApinit::SignalsTaken(4)), &[])
        .gives(lost(), &[])
        .at(100, &[resume(vec![])])
        .gives(apinit(FromApinit::Accepted), &[]);
}

#[test]
fn stderr_flows_while_stdout_is_stuck() {
    let mut on_stderr = output(2, "err");
    on_stderr.stderr = true;
    Session::going()
        .gives(apinit(FromApinit::Output(output(0, "ou"))), &[Action::Write(output(0, "ou"))])
        .gives(apinit(FromApinit::Output(on_stderr.clone())), &[Action::Write(on_stderr)])
        .gives(Event::Written { source: 0, end: 5 }, &[])
        .gives(
            Event::Written { source: 0, end: 2 },
            &[Action::Send(ToApinit::OutputTaken(OutputTaken { source: 0, offset: 5 }))],
        );
}

#[test]
fn a_hole_in_the_output_is_asked_for_again() {
    let warned = Action::Warn("7 bytes of output before byte 10 of NID 0 did not come".to_owned());
    let late = || apinit(FromApinit::Output(output(10, "x")));
    let taken = |offset| OutputTaken { source: 0, offset };
    let mut session = Session::going();
    session
        .gives(apinit(FromApinit::Output(output(0, "one"))), &[Action::Write(output(0, "one"))])
        .gives(
            Event::Written { source: 0, end: 3 },
            &[Action::Send(ToApinit::OutputTaken(taken(3)))],
        )
        .gives(late(), &[warned.clone(), resume(vec![taken(3)])])
        .gives(apinit(FromApinit::Accepted), &[])
        // There it is.
        .gives(
            apinit(FromApinit::Output(output(3, "1234567"))),
            &[Action::Write(output(3, "1234567"))],
        )
        .gives(late(), &[Action::Write(output(10, "x"))]);
}

#[test]
fn a_hole_that_stays_is_told_and_decides_the_status() {
    let warned = Action::Warn("10 bytes of output before byte 10 of NID 0 did not come".to_owned());
    let late = || apinit(FromApinit::Output(output(10, "x")));
    let incomplete = || {
        let mut session = Session::going();
        for _ in 0..HOLES_MAX {
            session
                .gives(
                    late(),
                    &[warned.clone(), resume(vec![OutputTaken { source: 0, offset: 0 }])],
                )
                .gives(apinit(FromApinit::Accepted), &[]);
        }
        let lost = say("application 12: 10 bytes of output of its PEs on NID 0 are lost");
        session
            .gives(late(), &[warned.clone(), lost, Action::Write(output(10, "x"))])
            .gives(
                Event::Written { source: 0, end: 11 },
                &[Action::Send(ToApinit::OutputTaken(OutputTaken { source: 0, offset: 11 }))],
            )
            .gives(done(), &[]);
        session
    };
    let end = ended(None, true);
    incomplete()
        .gives(event(PschedEvent::Ended(end.clone())), &[Action::Close(end), Action::Exit(125)]);
    let end = ended(Some(Cause::PeExit { rank: 0, nid: Nid(0), code: 9 }), true);
    incomplete()
        .gives(event(PschedEvent::Ended(end.clone())), &[Action::Close(end), Action::Exit(9)]);
}

/// A line about one bad end is not the line about another.
#[test]
fn what_decided_is_told_whatever_else_was() {
    let died = Cause::PeSignal { rank: 1, nid: Nid(0), signal: 11 };
    let with_line = || {
        let mut session = Session::going();
        let (nid, at_ns) = (Nid(0), 1_800_000_000_000_000_000);
        let what = Seen::Ends(died.clone());
        let text = "Apid 12: PE 1 died: Segmentation fault (signal 11); initiated application \
                    termination";
        session.gives(
            apinit(FromApinit::Notice(Notice::Seen { nid, at_ns, what })),
            &[Action::SayOfNode { nid, at_ns, text: text.to_owned() }],
        );
        session.gives(done(), &[]);
        session
    };
    let told = Box::new(Ended { told: true, ..*ended(Some(died.clone()), true) });
    let end = Box::new(Ended { told: false, ..*told.clone() });
    with_line().gives(event(PschedEvent::Ended(end)), &[Action::Close(told), Action::Exit(139)]);
    let lost = Cause::NodeLost { nid: Nid(3), text: "it is gone".to_owned() };
    let end = ended(Some(lost), true);
    with_line()
        .gives(event(PschedEvent::Ended(end.clone())), &[Action::Close(end), Action::Exit(125)]);
    // psched was wrong about it, or an apinit was: then this process has to say so.
    let end = ended(Some(Cause::FrontGone), true);
    with_line()
        .gives(event(PschedEvent::Ended(end.clone())), &[Action::Close(end), Action::Exit(125)]);
}

/// Each host tells of a ^C.
#[test]
fn one_line_tells_of_a_signal_on_all_hosts() {
    let died = |rank, nid, signal| Cause::PeSignal { rank, nid: Nid(nid), signal };
    let told = |rank, nid, signal| {
        let what = Seen::Ends(died(rank, nid, signal));
        apinit(FromApinit::Notice(Notice::Seen { nid: Nid(nid), at_ns: 7, what }))
    };
    let line = |nid, who: &str| Action::SayOfNode {
        nid: Nid(nid),
        at_ns: 7,
        text: format!(
            "Apid 12: {who} died: Interrupt (signal 2); initiated application termination"
        ),
    };
    // The line comes before that of the end, which need not say it again.
    let mut session = Session::going();
    for (rank, nid) in [(4, 2), (0, 0), (2, 1), (0, 0)] {
        session.gives(told(rank, nid, SIGINT), &[]);
    }
    session.gives(done(), &[]);
    let end = ended(Some(died(2, 1, SIGINT)), true);
    let shown = Box::new(Ended { told: true, ..*end.clone() });
    session.gives(
        event(PschedEvent::Ended(end)),
        &[line(0, "PEs on NIDs 0-2"), Action::Close(shown), Action::Exit(130)],
    );
    // Of an application that goes on a while it comes soon; and a host that is late has its own.
    let mut session = Session::going();
    session.gives(told(4, 2, SIGINT), &[]);
    session.at(300, &[line(2, "PE 4")]);
    session.gives(told(6, 3, SIGINT), &[]);
    // Another signal does not wait, and comes after it.
    let nid = Nid(1);
    let text =
        "Apid 12: PE 2 died: Segmentation fault (signal 11); initiated application termination";
    let crashed = Action::SayOfNode { nid, at_ns: 7, text: text.to_owned() };
    session.gives(told(2, 1, 11), &[line(3, "PE 6"), crashed]);
    // Of very many nodes the first are named.
    let mut session = Session::going();
    for nid in 0..100 {
        session.gives(told(nid, 2 * nid, SIGINT), &[]);
    }
    let who = "PEs on NIDs 0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30 and 84 more nodes";
    session.at(300, &[line(0, who)]);
    // The end does not say it again, whichever of these hosts decided.
    session.gives(done(), &[]);
    let end = ended(Some(died(198, 99, SIGINT)), true);
    let shown = Box::new(Ended { told: true, ..*end.clone() });
    session.gives(event(PschedEvent::Ended(end)), &[Action::Close(shown), Action::Exit(130)]);
}

/// The words of what is told while it runs.
#[test]
fn notices() {
    let process = "pid 9 (D) of PE 3 waits".to_owned();
    for (notice, words) in [
        (Notice::Process(process), "Apid 12: pid 9 (D) of PE 3 waits"),
        (Notice::NoRecord, "psched has no record of application 12"),
        (
            Notice::MemoryNotLimited,
            "-m counts for the placement only: the host can't limit memory (apstat -n says why)",
        ),
        (
            Notice::Unreachable(Nid(3)),
            "application 12: the apinit of NID 3 can't be reached; its output may not be complete",
        ),
        (
            Notice::Unheard("it is of another release".to_owned()),
            "application 12: apinit can't talk to its apshepherd: it is of another release; until it can, \
             the apshepherd keeps the output and the exit status",
        ),
        (Notice::LaunchedAlready, "application 12 has been launched already"),
    ] {
        Session::going().gives(apinit(FromApinit::Notice(notice)), &[say(words)]);
    }
    let nid = Nid(8);
    for (what, words) in [
        (
            Seen::Pmi { rank: 3, text: "can't put a key".to_owned() },
            "Apid 12: PE 3 can't put a key",
        ),
        (
            Seen::ProcessLimit(40),
            "Apid 12: a fork failed on NID 8: the application has the maximum of 40 processes and threads \
             there (variable pids_max)",
        ),
        (Seen::Process("pid 9 waits".to_owned()), "Apid 12: pid 9 waits"),
    ] {
        let notice = Notice::Seen { nid, at_ns: 1, what };
        let said = Action::SayOfNode { nid, at_ns: 1, text: words.to_owned() };
        Session::going().gives(apinit(FromApinit::Notice(notice)), &[said]);
    }
}

/// Of a thousand hosts each may say it.
#[test]
fn a_host_without_a_copy_is_told_once() {
    let why = "no room".to_owned();
    let told =
        |nid| apinit(FromApinit::Notice(Notice::NotCopied { nid: Nid(nid), why: why.clone() }));
    let words = "application 12: the host of NID 3 has no copy of its program in memory, and executes the \
                 file at its path: no room";
    Session::attaching()
        .gives(apinit(FromApinit::Accepted), &[])
        .gives(told(3), &[say(words)])
        .gives(told(4), &[]);
    // With PARALLEL_FILE_SYSTEM it need not be the file at its path.
    let words = "application 12: the host of NID 3 has no copy of its program in memory, and executes the \
                 file at its path if this is the same program, else the copy in PARALLEL_FILE_SYSTEM: no room";
    let mut session = Session::attaching();
    session.front.setup.parallel = true;
    session.gives(apinit(FromApinit::Accepted), &[]).gives(told(3), &[say(words)]);
}

#[test]
fn programs_that_are_wanted_are_sent() {
    let of = |part| {
        let Placement { key, ticket, .. } = *placement(1);
        Action::Hand(ProgramOf { key, ticket, part })
    };
    Session::attaching()
        .gives(apinit(FromApinit::ProgramWanted(0)), &[of(0)])
        .gives(apinit(FromApinit::ProgramWanted(0)), &[of(0)])
        // It has no second program.
        .gives(apinit(FromApinit::ProgramWanted(1)), &[]);
}

/// While it was stopped it could not hear the last words.
#[test]
fn its_own_silence_is_not_the_apinits() {
    let end = ended(None, true);
    let mut session = Session::going();
    session.gives(event(PschedEvent::Ended(end.clone())), &[]).at(60_000, &[]);
    session.gives(done(), &[Action::Close(end.clone()), Action::Exit(0)]);
    let silent = say(
        "application 12 has ended, but its apinit has been silent for 10 s: its output may not be \
         complete",
    );
    let mut session = Session::going();
    session
        .gives(event(PschedEvent::Ended(end.clone())), &[])
        .at(60_000, &[])
        .at(70_000, &[silent, Action::Close(end), Action::Exit(0)]);
}

/// The launch was never taken, and its time is over: it is another place that it goes to.
#[test]
fn a_ticket_that_has_lapsed_during_a_resumption() {
    let lost = Event::ApinitDown { text: "reset".to_owned(), connected: true };
    let refused = |text: &str| apinit(FromApinit::Refused { text: text.to_owned(), cause: None });
    Session::attaching()
        .gives(lost, &[])
        .at(50, &[resume(vec![])])
        .gives(refused("it has not been launched here"), &[launch_of(1)])
        .gives(refused("its ticket has lapsed"), &[])
        .at(150, &[Action::Look(APID)])
        .gives(Event::Looked(Looked::Placement(placement(2))), &[launch_of(2)]);
}

#[test]
fn files_are_opened_before_the_launch() {
    let mut session = Session { front: Front::new(Setup { files: true, ..setup() }), now: 0 };
    session
        .gives(Event::Start, &[Action::Psched(Ask::Post)])
        .gives(Event::PschedUp { pid: PSCHED }, &[])
        .gives(event(PschedEvent::Accepted(APID)), &[])
        .gives(event(PschedEvent::Placed(1)), &[Action::Look(APID)])
        .gives(Event::Looked(Looked::Placement(placement(1))), &[Action::OpenFiles(placement(1))])
        .gives(Event::Files(Ok(())), &[launch_of(1)]);
    let mut session = Session::posted();
    session.gives(
        Event::Files(Err("out.0: permission denied".to_owned())),
        &[say("out.0: permission denied"), Action::Exit(125)],
    );
}

#[test]
fn a_signal_after_the_end_gives_up_what_is_not_written() {
    Session::going()
        .gives(apinit(FromApinit::Output(output(0, "x"))), &[Action::Write(output(0, "x"))])
        .gives(event(PschedEvent::Ended(ended(None, true))), &[])
        .gives(signal(12, 5), &[])
        .gives(
            signal(SIGINT, 5),
            &[say("application 12: its output is not complete"), Action::Exit(130)],
        );
}

#[test]
fn ended_before_its_launch() {
    let end = ended(Some(Cause::Kill { signal: 15, uid: 0 }), false);
    Session::posted()
        .gives(event(PschedEvent::Ended(end.clone())), &[Action::Close(end), Action::Exit(143)]);
    let end = ended(Some(Cause::NoRecord), false);
    Session::posted()
        .gives(event(PschedEvent::Placed(1)), &[Action::Look(APID)])
        .gives(Event::Looked(Looked::Ended(end.clone())), &[Action::Close(end), Action::Exit(125)]);
}

fn credit(credit: u64, received: u64) -> FromApinit {
    FromApinit::StdinCredit(StdinCredit { credit, received })
}

fn any_event() -> impl Strategy<Value = Event> {
    let text = || "[a-z]{0,3}";
    let apinit = prop_oneof![
        Just(FromApinit::Accepted),
        Just(FromApinit::Going),
        Just(FromApinit::Done),
        Just(FromApinit::Refused { text: "no".to_owned(), cause: None }),
        Just(FromApinit::Refused { text: "no".to_owned(), cause: Some(Cause::NoRecord) }),
        (0u64..300_000, 0u64..9).prop_map(|(more, received)| credit(received + more, received)),
        (0u64..5).prop_map(FromApinit::SignalsTaken),
        (0u64..40, text()).prop_map(|(offset, text)| FromApinit::Output(output(offset, &text))),
        text().prop_map(|text| FromApinit::Notice(Notice::Process(text))),
    ];
    prop_oneof![
        2 => Just(Event::PschedUp { pid: PSCHED }),
        1 => any::<(bool, bool)>().prop_map(|(absent, answered)| {
            Event::PschedDown { text: "down".to_owned(), absent, answered }
        }),
        1 => Just(Event::PschedRefused("no".to_owned())),
        3 => Just(event(PschedEvent::Accepted(APID))),
        3 => (1u32..4).prop_map(|i| event(PschedEvent::Placed(i))),
        1 => Just(event(PschedEvent::Waiting(Explanation::default()))),
        1 => any::<bool>().prop_map(|launched| event(PschedEvent::Ended(ended(None, launched)))),
        3 => (1u32..4).prop_map(|i| Event::Looked(Looked::Placement(placement(i)))),
        1 => Just(Event::Looked(Looked::Waiting(Explanation::default()))),
        1 => Just(Event::Looked(Looked::Failed("no".to_owned()))),
        1 => Just(Event::Killed),
        1 => any::<bool>()
            .prop_map(|connected| Event::ApinitDown { text: "no".to_owned(), connected }),
        8 => apinit.prop_map(Event::Apinit),
        2 => (1i32..30, proptest::option::of(76i32..79))
            .prop_map(|(signal, sender)| Event::Signal { signal, sender }),
        1 => Just(Event::Nudged),
        1 => Just(Event::StdinEnd),
        1 => text().prop_map(|t| Event::Stdin(Bytes::from(t))),
        3 => (0u32..2, 0u64..50).prop_map(|(source, end)| Event::Written { source, end }),
        1 => Just(Event::OutputLost(Loss::StdoutClosed)),
        1 => Just(Event::OutputLost(Loss::Failed("full".to_owned()))),
        4 => Just(Event::Time),
    ]
}

proptest! {
    #[test]
    fn whatever_happens(
        events in proptest::collection::vec((0u64..3_000, any_event()), 0..60))
    {
        let mut front = Front::new(setup());
        let mut now = 0;
        let (mut over, mut attached, mut reading) = (false, false, false);
        let mut written = Vec::new();
        let all = std::iter::once((0, Event::Start)).chain(events);
        for (ms, event) in all {
            now += ms * MS;
            let psched_s = matches!(&event, Event::Nudged
                | Event::Signal { signal: SIGUSR1, sender: Some(PSCHED) });
            let may_read = match &event {
                // Only one read is asked for at a time, so that only one is answered.
                Event::Stdin(_) | Event::StdinEnd => std::mem::take(&mut reading),
                _ => true,
            };
            if !may_read {
                continue;
            }
            let actions = front.apply(now, event);
            prop_assert!(!over || actions.is_empty(), "after the exit: {actions:?}");
            for (at, action) in actions.iter().enumerate() {
                match action {
                    Action::Exit(_) => {
                        prop_assert_eq!(at + 1, actions.len(), "the exit is the last");
                        over = true;
                    }
                    Action::Attach { .. } => attached = true,
                    Action::Send(message) => {
                        prop_assert!(attached, "nobody to say {message:?} to");
                        prop_assert!(!psched_s, "psched's USR1 has gone down");
                    }
                    Action::ReadStdin(most) => {
                        prop_assert!(!std::mem::replace(&mut reading, true));
                        prop_assert!((1..=STDIN_PIECE as usize).contains(most));
                    }
                    Action::Write(output) => {
                        // In order, and no byte twice.
                        let end: u64 = written.last().copied().unwrap_or(0);
                        prop_assert!(output.offset >= end && !output.data.is_empty());
                        written.push(output.offset + output.data.len() as u64);
                    }
                    _ => {}
                }
            }
            prop_assert!(!over || front.deadline().is_none());
            // What is due has been done.
            if let Some(deadline) = front.deadline() {
                prop_assert!(deadline > now, "{deadline} has come at {now}");
            }
        }
    }
}

/// cpr goes on with an application that it has not posted: it says which it is now, and speaks in its own name.
#[test]
fn what_cpr_restarts_is_told_by_its_name() {
    let say = |text: &str| Action::Say(text.to_owned());
    for (from, line) in [
        (Apid(7), "cpr: application 7 is restarted as 12"),
        (APID, "cpr: application 12 is posted again"),
    ] {
        let front = Front::new(Setup { restarts: Some(from), ..setup() });
        let mut session = Session { front, now: 0 };
        session
            .gives(Event::Start, &[Action::Psched(Ask::Post)])
            .gives(Event::PschedUp { pid: PSCHED }, &[])
            .gives(event(PschedEvent::Accepted(APID)), &[say(line)])
            // Said again after a break.
            .gives(event(PschedEvent::Accepted(APID)), &[])
            .gives(Event::Trouble("no room".into()), &[say("cpr: no room")])
            .gives(event(PschedEvent::Placed(1)), &[Action::Look(APID)])
            .gives(Event::Looked(Looked::Placement(placement(1))), &[launch_of(1)]);
    }
}

/// An aprun that has lost its application tells of the next one by its own name; with -q it does not.
#[test]
fn what_aprun_restarts_is_told_by_its_name() {
    let said = Action::Say("aprun: application 7 is restarted as 12".to_owned());
    for (quiet, said) in [(false, vec![said]), (true, vec![])] {
        let setup = Setup { restarts: Some(Apid(7)), recovers: true, quiet, ..setup() };
        let mut session = Session { front: Front::new(setup), now: 0 };
        session
            .gives(Event::Start, &[Action::Psched(Ask::Post)])
            .gives(Event::PschedUp { pid: PSCHED }, &[])
            .gives(event(PschedEvent::Accepted(APID)), &said);
    }
}

/// For a checkpoint: while it waits, and while it runs; there is none of what has ended.
#[test]
fn what_it_launches_is_said_when_psched_asks() {
    let mut session = Session::posted();
    session.gives(event(PschedEvent::AskLaunch), &[Action::Deposit(APID)]);
    let mut session = Session::going();
    session
        .gives(event(PschedEvent::AskLaunch), &[Action::Deposit(APID)])
        .gives(event(PschedEvent::AskLaunch), &[Action::Deposit(APID)]);
    let mut early = Session::new();
    early
        .gives(Event::Start, &[Action::Psched(Ask::Post)])
        .gives(event(PschedEvent::AskLaunch), &[]);
    session.front.apply(session.now, event(PschedEvent::Ended(ended(None, true))));
    session.gives(event(PschedEvent::AskLaunch), &[]);
}
