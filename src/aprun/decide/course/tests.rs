use super::apinit::{HOLES_MAX, REFUSALS_MAX};
use super::signals::{SIGINT, SIGTERM, SIGUSR1};
use super::*;
use crate::apteam::binding::{Binding, Lists};
use crate::apteam::ending::{Decisive, HostEnd, PeEnd, PeReport};
use crate::apteam::launch::Launch;
use crate::apteam::place::{HostPart, Place, PlacementList};
use crate::apteam::talk::attach::{Output, OutputTaken, StdinCredit, StdinPiece};
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
    })
}

fn ended(cause: Option<Cause>, launched: bool) -> Box<Ended> {
    let end = HostEnd {
        key: placement(1).key,
        launched,
        first: cause.map(|cause| Decisive { at_ns: 1, cause }),
        ..HostEnd::default()
    };
    Box::new(Ended { status: end.status(), end, told: false })
}

fn launch_of(incarnation: u32) -> Action {
    let placement = placement(incarnation);
    Action::Attach {
        socket: "/run/a.sock".to_owned(),
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
        socket: "/run/a.sock".to_owned(),
        first: Box::new(ToApinit::Resume { key, ticket, taken }),
    }
}

fn say(text: &str) -> Action {
    Action::Say(format!("aprun: {text}"))
}

fn down(text: &str) -> Happening {
    Happening::PschedDown { text: text.to_owned(), absent: false, answered: false }
}

/// psched says that it can't do it now.
fn can_not(text: &str) -> Happening {
    Happening::PschedDown { text: text.to_owned(), absent: false, answered: true }
}

/// A signal on its way down.
fn passed(number: u64, signal: i32) -> ToApinit {
    ToApinit::Signal(NumberedSignal { number, signal })
}

fn signal(signal: i32, sender: i32) -> Happening {
    Happening::Signal { signal, sender: Some(sender) }
}

fn apinit(message: FromApinit) -> Happening {
    Happening::Apinit(message)
}

fn event(event: Event) -> Happening {
    Happening::Event(event)
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
struct Course {
    front: Front,
    now: u64,
}

impl Course {
    fn new() -> Course {
        Course { front: Front::new(setup()), now: 0 }
    }

    #[track_caller]
    fn gives(&mut self, happening: Happening, actions: &[Action]) -> &mut Course {
        let shown = format!("{happening:?}");
        assert_eq!(self.front.apply(self.now, happening), actions, "after {shown}");
        self
    }

    #[track_caller]
    fn at(&mut self, ms: u64, actions: &[Action]) -> &mut Course {
        self.now = ms * MS;
        self.gives(Happening::Time, actions)
    }

    #[track_caller]
    fn posted() -> Course {
        let mut course = Course::new();
        course
            .gives(Happening::Start, &[Action::Psched(Ask::Post)])
            .gives(Happening::PschedUp { pid: PSCHED }, &[])
            .gives(event(Event::Accepted(APID)), &[]);
        course
    }

    #[track_caller]
    fn attaching() -> Course {
        let mut course = Course::posted();
        course
            .gives(event(Event::Placed(1)), &[Action::Look(APID)])
            .gives(Happening::Looked(Looked::Placement(placement(1))), &[launch_of(1)]);
        course
    }

    #[track_caller]
    fn going() -> Course {
        let mut course = Course::attaching();
        course
            .gives(apinit(FromApinit::Accepted), &[])
            .gives(apinit(FromApinit::Going), &[])
            .gives(event(Event::Launched), &[]);
        course
    }
}

fn done() -> Happening {
    apinit(FromApinit::Done)
}

#[test]
fn a_whole_course() {
    let end = ended(None, true);
    Course::going()
        .gives(
            apinit(FromApinit::Output(output(0, "hello\n"))),
            &[Action::Write(output(0, "hello\n"))],
        )
        .gives(
            Happening::Written { source: 0, end: 6 },
            &[Action::Send(ToApinit::OutputTaken(OutputTaken { source: 0, offset: 6 }))],
        )
        .gives(done(), &[])
        .gives(event(Event::Ended(end.clone())), &[Action::Close(end), Action::Exit(0)])
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
    for happening in [
        Happening::Start,
        Happening::PschedUp { pid: PSCHED },
        event(Event::Accepted(APID)),
        event(Event::Placed(1)),
        Happening::Looked(Looked::Placement(placement)),
        apinit(FromApinit::Accepted),
        apinit(FromApinit::Going),
    ] {
        front.apply(0, happening);
    }
    front
}

fn report(offset: u64, rank: u32, report: PeReport) -> Happening {
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
        let (rows, rest) = told(front.apply(0, event(Event::Ended(end.clone()))));
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
    let (rows, rest) = told(front.apply(0, event(Event::Ended(end.clone()))));
    assert_eq!(rest, [Action::Close(end), Action::Exit(3)]);
    let rows: Vec<_> = rows.iter().map(|row| (row.rank, row.nid.0, row.report)).collect();
    assert_eq!(rows, [(0, 3, None), (1, 4, None)]);
    // Nothing went: there is nothing to tell of.
    let mut front = asking(false, &[1, 1]);
    let end = ended(Some(Cause::NoRecord), false);
    let actions = front.apply(0, event(Event::Ended(end.clone())));
    assert_eq!(actions, [Action::Close(end), Action::Exit(125)]);
}

#[test]
fn the_end_may_come_before_the_output() {
    let end = ended(Some(Cause::PeExit { rank: 0, nid: Nid(0), code: 3 }), true);
    let mut course = Course::going();
    course
        .gives(event(Event::Ended(end.clone())), &[])
        .gives(apinit(FromApinit::Output(output(0, "x"))), &[Action::Write(output(0, "x"))])
        .gives(done(), &[]);
    // A reader of stdout may be slow for as long as it likes.
    course.at(60_000, &[]);
    assert_eq!(course.front.deadline(), None);
    course.gives(
        Happening::Written { source: 0, end: 1 },
        &[
            Action::Send(ToApinit::OutputTaken(OutputTaken { source: 0, offset: 1 })),
            Action::Close(end),
            Action::Exit(3),
        ],
    );
}

#[test]
fn usr1_from_psched_says_look_and_is_not_passed_on() {
    Course::posted()
        .gives(signal(SIGUSR1, PSCHED), &[Action::Look(APID)])
        // The event is its twin.
        .gives(event(Event::Placed(1)), &[])
        .gives(Happening::Looked(Looked::Placement(placement(1))), &[launch_of(1)])
        .gives(signal(SIGUSR1, PSCHED), &[])
        .gives(apinit(FromApinit::Accepted), &[])
        .gives(apinit(FromApinit::Going), &[])
        .gives(signal(SIGUSR1, PSCHED), &[]);
}

#[test]
fn a_look_that_came_too_early_is_repeated() {
    let why = Explanation { obstacle: "full".to_owned(), ..Explanation::default() };
    Course::posted()
        .gives(signal(SIGUSR1, PSCHED), &[Action::Look(APID)])
        .gives(event(Event::Placed(1)), &[])
        .gives(Happening::Looked(Looked::Waiting(why.clone())), &[Action::Look(APID)])
        .gives(Happening::Looked(Looked::Waiting(why)), &[]);
}

/// It may be of a psched that was started and has died while this process stood still.
#[test]
fn what_bears_the_mark_of_psched_is_not_passed_on_whoever_sent_it() {
    Course::posted().gives(Happening::Nudged, &[Action::Look(APID)]).gives(Happening::Nudged, &[]);
    Course::attaching()
        .gives(Happening::Nudged, &[])
        .gives(apinit(FromApinit::Accepted), &[])
        .gives(apinit(FromApinit::Going), &[])
        .gives(Happening::Nudged, &[]);
}

/// apkill with that number would end more than it runs.
#[test]
fn what_runs_inside_another_is_ended_by_its_own_aprun() {
    let inside = Setup { inside: true, ..setup() };
    let mut course = Course { front: Front::new(inside), now: 0 };
    course
        .gives(Happening::Start, &[Action::Psched(Ask::Post)])
        .gives(Happening::PschedUp { pid: -1 }, &[])
        .gives(event(Event::Accepted(APID)), &[])
        .gives(event(Event::Placed(1)), &[Action::Look(APID)])
        .gives(Happening::Looked(Looked::Placement(placement(1))), &[launch_of(1)])
        .gives(apinit(FromApinit::Accepted), &[])
        .gives(apinit(FromApinit::Going), &[])
        .gives(signal(SIGINT, 500), &[Action::Send(passed(1, SIGINT))])
        .gives(signal(SIGINT, 500), &[Action::Send(passed(2, SIGINT))])
        .gives(
            signal(SIGINT, 500),
            &[
                say("what runs here inside application 12 has been sent INT 3 times and runs on; \
                     kill -9 of this aprun ends it"),
                Action::Send(passed(3, SIGINT)),
            ],
        );
}

#[test]
fn other_signals_wait_for_the_pes() {
    Course::posted()
        .gives(signal(SIGUSR1, 500), &[])
        .gives(signal(12, 500), &[])
        .gives(Happening::Signal { signal: 28, sender: None }, &[])
        .gives(Happening::Signal { signal: 28, sender: None }, &[])
        .gives(event(Event::Placed(1)), &[Action::Look(APID)])
        .gives(Happening::Looked(Looked::Placement(placement(1))), &[launch_of(1)])
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
                say("application 12 has been sent INT 3 times and runs on; `apkill -9 12` ends it"),
                Action::Send(passed(7, SIGINT)),
            ],
        )
        .gives(signal(SIGINT, 500), &[Action::Send(passed(8, SIGINT))]);
}

#[test]
fn usr1_from_a_psched_that_is_not_known_yet() {
    // psched has been restarted, and its new process signals before the connection is there.
    let mut course = Course::posted();
    course
        .gives(down("broken pipe"), &[])
        .gives(signal(SIGUSR1, 78), &[])
        .at(50, &[Action::Psched(Ask::Watch(APID))])
        .gives(Happening::PschedUp { pid: 78 }, &[])
        .gives(event(Event::Placed(1)), &[Action::Look(APID)])
        .gives(Happening::Looked(Looked::Placement(placement(1))), &[launch_of(1)])
        .gives(apinit(FromApinit::Accepted), &[])
        .gives(apinit(FromApinit::Going), &[]);
    // While the PEs run, such a signal is held until its sender is known, but not for long.
    course
        .gives(down("broken pipe"), &[])
        .gives(signal(SIGUSR1, 79), &[])
        .gives(signal(SIGUSR1, 500), &[])
        .gives(signal(12, 500), &[Action::Send(passed(1, 12))])
        .at(100, &[Action::Psched(Ask::Watch(APID))])
        .gives(Happening::PschedUp { pid: 79 }, &[Action::Send(passed(2, SIGUSR1))]);
    course
        .gives(down("broken pipe"), &[])
        .gives(signal(SIGUSR1, 500), &[])
        .at(200, &[Action::Psched(Ask::Watch(APID))])
        .at(1_099, &[])
        .at(1_100, &[Action::Send(passed(3, SIGUSR1))]);
}

#[test]
fn interrupted_before_the_record_is_known() {
    Course::new()
        .gives(Happening::Start, &[Action::Psched(Ask::Post)])
        .gives(Happening::PschedUp { pid: PSCHED }, &[])
        .gives(signal(SIGINT, 1), &[Action::Exit(130)]);
}

#[test]
fn interrupted_while_it_waits() {
    let kill = Action::Kill { apid: APID, signal: SIGINT };
    Course::posted()
        .gives(signal(SIGINT, 1), std::slice::from_ref(&kill))
        .gives(Happening::Killed, &[Action::Exit(130)]);
    // The end may be faster than the answer, and neither may come at all.
    let end = ended(Some(Cause::Kill { signal: SIGINT, uid: 0 }), false);
    Course::posted()
        .gives(signal(SIGTERM, 1), &[Action::Kill { apid: APID, signal: SIGTERM }])
        .gives(event(Event::Ended(end)), &[Action::Exit(143)]);
    Course::posted()
        .gives(signal(SIGINT, 1), std::slice::from_ref(&kill))
        .at(1_999, &[])
        .at(2_000, &[Action::Exit(130)]);
    Course::posted()
        .gives(signal(SIGINT, 1), std::slice::from_ref(&kill))
        .gives(signal(SIGINT, 1), &[Action::Exit(130)]);
    Course::posted().gives(down("gone"), &[]).gives(signal(SIGINT, 1), &[Action::Exit(130)]);
}

#[test]
fn interrupted_between_placement_and_go() {
    let kill = Action::Kill { apid: APID, signal: SIGINT };
    let terminate = Action::Send(ToApinit::Terminate {
        cause: Cause::Kill { signal: SIGINT, uid: 1000 },
        kill_after: KILL_AFTER,
    });
    let end = ended(Some(Cause::Kill { signal: SIGINT, uid: 1000 }), false);
    // A look that is answered after the ^C is not followed.
    Course::posted()
        .gives(event(Event::Placed(1)), &[Action::Look(APID)])
        .gives(signal(SIGINT, 1), std::slice::from_ref(&kill))
        .gives(Happening::Looked(Looked::Placement(placement(1))), &[])
        .gives(Happening::Killed, &[Action::Exit(130)]);
    // A launch that is on its way may still be taken.
    Course::attaching()
        .gives(signal(SIGINT, 1), std::slice::from_ref(&kill))
        .gives(apinit(FromApinit::Accepted), std::slice::from_ref(&terminate))
        .gives(Happening::Killed, &[])
        .gives(event(Event::Ended(end.clone())), &[Action::Exit(130)]);
    Course::attaching()
        .gives(apinit(FromApinit::Accepted), &[])
        .gives(signal(SIGINT, 1), &[kill, terminate])
        .gives(event(Event::Ended(end)), &[Action::Exit(130)]);
}

#[test]
fn no_psched() {
    let absent =
        Happening::PschedDown { text: "no psched at /x".to_owned(), absent: true, answered: false };
    Course::new()
        .gives(Happening::Start, &[Action::Psched(Ask::Post)])
        .gives(absent, &[say("no psched at /x"), Action::Exit(125)]);
    // One that is being restarted is waited for.
    let mut course = Course::new();
    course.gives(Happening::Start, &[Action::Psched(Ask::Post)]);
    for (ms, pause) in [(0, 50), (50, 100), (150, 200), (350, 400), (750, 800)] {
        course.now = ms * MS;
        course.gives(down("refused"), &[]).at(ms + pause, &[Action::Psched(Ask::Post)]);
    }
    course
        .gives(down("refused"), &[])
        .at(2_000, &[say("psched does not answer (refused); nothing is posted yet; trying again")])
        .at(2_550, &[Action::Psched(Ask::Post)]);
    course.now = 5_000 * MS;
    course.gives(down("refused"), &[say("refused"), Action::Exit(125)]);
    // For as long as it is told to.
    let patience = Some(Duration::from_secs(60));
    let mut course = Course { front: Front::new(Setup { patience, ..setup() }), now: 0 };
    course.gives(Happening::Start, &[Action::Psched(Ask::Post)]).gives(down("gone"), &[]);
    let waits = "psched does not answer (gone); nothing is posted yet; trying again for 1m \
                 (--wait-for-psched)";
    course.at(50, &[Action::Psched(Ask::Post)]).at(2_000, &[say(waits)]);
    course.now = 59_999 * MS;
    course.gives(down("gone"), &[]);
    course.now = 60_000 * MS;
    course.gives(down("gone"), &[say("gone"), Action::Exit(125)]);
    // Or not at all.
    let patience = Some(Duration::ZERO);
    let mut course = Course { front: Front::new(Setup { patience, ..setup() }), now: 0 };
    course.gives(Happening::Start, &[Action::Psched(Ask::Post)]);
    course.gives(down("gone"), &[say("gone"), Action::Exit(125)]);
}

#[test]
fn refused_postings() {
    Course::new()
        .gives(Happening::Start, &[Action::Psched(Ask::Post)])
        .gives(Happening::PschedUp { pid: PSCHED }, &[])
        .gives(
            Happening::PschedRefused("-n 1000: too wide".to_owned()),
            &[say("-n 1000: too wide"), Action::Exit(125)],
        );
    // What runs is not ended by that, for the psched may be the wrong one.
    let watch = Action::Psched(Ask::Watch(APID));
    let refused = Happening::PschedRefused("not known".to_owned());
    Course::going()
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
    let mut course = Course::going();
    course.gives(down("connection reset"), &[]).gives(done(), &[]);
    let watch = Action::Psched(Ask::Watch(APID));
    course.at(50, std::slice::from_ref(&watch)).gives(down("refused"), &[]);
    course.at(
        2_000,
        &[
            watch.clone(),
            say("psched does not answer (refused); application 12 has ended, its exit status is \
                 psched's to say; trying again"),
        ],
    );
    // For however long.
    course.gives(down("refused"), &[]).at(90_000, &[watch]);
    course.gives(Happening::PschedUp { pid: 90 }, &[]).gives(
        event(Event::Ended(end.clone())),
        &[say("psched answers again"), Action::Close(end), Action::Exit(0)],
    );
}

/// It connects, and says that it has other records: that is no answer, and no end.
#[test]
fn another_psched_is_in_its_place() {
    let mut course = Course::going();
    course.gives(down("connection reset"), &[]);
    let watch = Action::Psched(Ask::Watch(APID));
    course.at(50, std::slice::from_ref(&watch));
    let said = "psched has answered: no record here; application 12 runs on; trying again";
    course.gives(Happening::PschedUp { pid: 90 }, &[]).gives(can_not("no record here"), &[]);
    course.at(2_000, &[watch.clone(), say(said)]);
    // Once is enough.
    for seconds in 4..9 {
        course.gives(Happening::PschedUp { pid: 90 }, &[]).gives(can_not("no record here"), &[]);
        course.at(seconds * 1_000, std::slice::from_ref(&watch));
    }
    course
        .gives(Happening::PschedUp { pid: 91 }, &[])
        .gives(event(Event::Accepted(APID)), &[say("psched tells of application 12 now")]);
}

#[test]
fn a_silence_says_what_is_known() {
    // Neither psched nor the apinit can be reached.
    let mut course = Course::going();
    course
        .gives(down("reset"), &[])
        .gives(Happening::ApinitDown { text: "reset".to_owned(), connected: true }, &[])
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
    Course::new()
        .gives(Happening::Start, std::slice::from_ref(&post))
        .gives(Happening::PschedUp { pid: PSCHED }, &[])
        .gives(down("reset"), &[])
        .at(50, std::slice::from_ref(&post))
        .gives(down("refused"), &[])
        .at(
            2_000,
            &[
                post.clone(),
                say("psched does not answer (refused); whether it has the posting is not known; \
                     trying again"),
            ],
        );
    // It answers, and can't take it.
    Course::new()
        .gives(Happening::Start, std::slice::from_ref(&post))
        .gives(Happening::PschedUp { pid: PSCHED }, &[])
        .gives(can_not("the disk is full"), &[])
        .at(2_000, &[post.clone(), say("psched has answered: the disk is full; trying again")])
        .gives(Happening::PschedUp { pid: PSCHED }, &[])
        .gives(event(Event::Accepted(APID)), &[say("psched takes the posting now")]);
    // Who asks for --immediate does not wait for that.
    let mut course = Course { front: Front::new(Setup { immediate: true, ..setup() }), now: 0 };
    course
        .gives(Happening::Start, std::slice::from_ref(&post))
        .gives(Happening::PschedUp { pid: PSCHED }, &[])
        .gives(can_not("the disk is full"), &[say("the disk is full"), Action::Exit(125)]);
}

#[test]
fn every_silence_has_its_line() {
    let mut course = Course::new();
    course
        .gives(Happening::Start, &[Action::Psched(Ask::Post)])
        .gives(Happening::PschedUp { pid: PSCHED }, &[])
        .at(2_000, &[say("psched has not taken the posting yet; waiting for it")]);
    Course::attaching()
        .at(1_999, &[])
        .at(
            2_000,
            &[say(
                "application 12 has a place, but its apinit has not taken the launch yet; waiting",
            )],
        )
        .at(9_000, &[])
        .gives(apinit(FromApinit::Accepted), &[]);
    Course::attaching()
        .gives(apinit(FromApinit::Accepted), &[])
        .at(2_000, &[say("application 12 is launched, but its PEs are not all ready; waiting")]);
    let mut course = Course::going();
    assert_eq!(course.front.deadline(), None);
    course.gives(Happening::Trouble("x".to_owned()), &[say("x")]);
}

#[test]
fn an_unanswered_posting_is_posted_again() {
    Course::new()
        .gives(Happening::Start, &[Action::Psched(Ask::Post)])
        .gives(Happening::PschedUp { pid: PSCHED }, &[])
        .gives(down("reset"), &[])
        .at(50, &[Action::Psched(Ask::Post)])
        .gives(Happening::PschedUp { pid: 78 }, &[])
        .gives(event(Event::Accepted(APID)), &[])
        .gives(event(Event::Placed(1)), &[Action::Look(APID)]);
}

#[test]
fn a_wait_is_explained() {
    let why = Explanation {
        obstacle: "8 processors are needed".to_owned(),
        holder: "2 are free".to_owned(),
        cure: "wait".to_owned(),
    };
    Course::posted()
        .at(1_999, &[])
        .at(2_000, &[Action::Look(APID)])
        .gives(
            Happening::Looked(Looked::Waiting(why.clone())),
            &[say("application 12 waits for a place: 8 processors are needed; 2 are free; wait")],
        )
        .at(9_000, &[])
        // Once only.
        .gives(event(Event::Placed(1)), &[Action::Look(APID)])
        .gives(Happening::Looked(Looked::Waiting(why)), &[]);
    // Where it is started by a PE of another application that one may be in its way.
    let setup_within = Setup { within: Some(Apid(7)), ..setup() };
    let mut within = Course { front: Front::new(setup_within), now: 0 };
    within
        .gives(Happening::Start, &[Action::Psched(Ask::Post)])
        .gives(Happening::PschedUp { pid: PSCHED }, &[])
        .gives(event(Event::Accepted(APID)), &[])
        .at(2_000, &[Action::Look(APID)])
        .gives(
            Happening::Looked(Looked::Waiting(Explanation::default())),
            &[say(
                "application 12 waits for a place: ; this aprun runs in application 7: if 7 holds what is \
                 waited for, and waits for application 12, neither goes on; start it outside of 7, give 7 fewer \
                 processors, or run it on those of 7 with --inside",
            )],
        );
    // There is a place when the answer comes: nothing to explain.
    Course::posted()
        .at(2_000, &[Action::Look(APID)])
        .gives(Happening::Looked(Looked::Placement(placement(1))), &[launch_of(1)]);
    let mut quiet = Course { front: Front::new(Setup { quiet: true, ..setup() }), now: 0 };
    quiet
        .gives(Happening::Start, &[Action::Psched(Ask::Post)])
        .gives(Happening::PschedUp { pid: PSCHED }, &[])
        .gives(event(Event::Accepted(APID)), &[])
        .at(2_000, &[]);
}

#[test]
fn a_place_that_was_taken_back() {
    // This process was stopped; its launch is too late.
    let too_late = FromApinit::Refused { text: "not placed here".to_owned(), cause: None };
    let why = Explanation::default();
    Course::attaching()
        .gives(apinit(too_late.clone()), &[])
        .gives(Happening::ApinitDown { text: "closed".to_owned(), connected: true }, &[])
        .at(100, &[Action::Look(APID)])
        .gives(Happening::Looked(Looked::Waiting(why)), &[])
        .gives(event(Event::Placed(2)), &[Action::Look(APID)])
        .gives(Happening::Looked(Looked::Placement(placement(2))), &[launch_of(2)])
        .gives(apinit(FromApinit::Accepted), &[]);
    // Or psched has said so before the apinit has.
    Course::attaching()
        .gives(event(Event::Placed(1)), &[])
        .gives(event(Event::Placed(2)), &[Action::Look(APID)])
        .gives(Happening::Looked(Looked::Placement(placement(2))), &[launch_of(2)]);
    // But not for ever.
    let mut course = Course::attaching();
    for refusal in 1..=REFUSALS_MAX {
        course.gives(apinit(too_late.clone()), &[]);
        let later = course.now / MS + u64::from(refusal) * 100;
        course
            .at(later, &[Action::Look(APID)])
            .gives(Happening::Looked(Looked::Placement(placement(1))), &[launch_of(1)]);
    }
    course.gives(
        apinit(too_late),
        &[say("application 12 was not launched: not placed here"), Action::Exit(125)],
    );
}

/// Nothing of it has run, and nobody has been asked to run it.
#[test]
fn a_place_that_the_binding_does_not_fit() {
    let binding = Binding::Lists(Lists::new(vec![vec![(0, 1)]]).expect("good"));
    let launch = Launch { binding, ..setup().launch };
    let mut course = Course { front: Front::new(Setup { launch, ..setup() }), now: 0 };
    let said = "-cc: list 1 names processor 1, and the application has 1 processor, number 0, on NID \
                0: name one of those, or ask for more (-n, -N, -d)";
    course
        .gives(Happening::Start, &[Action::Psched(Ask::Post)])
        .gives(Happening::PschedUp { pid: PSCHED }, &[])
        .gives(event(Event::Accepted(APID)), &[])
        .gives(event(Event::Placed(1)), &[Action::Look(APID)])
        .gives(Happening::Looked(Looked::Placement(placement(1))), &[say(said), Action::Exit(125)]);
}

#[test]
fn a_launch_that_failed() {
    let cause = Cause::LaunchFailed {
        rank: 3,
        nid: Nid(1),
        errno: 13,
        text: "./a.out: permission denied".to_owned(),
    };
    let end = ended(Some(cause.clone()), false);
    let refused =
        apinit(FromApinit::Refused { text: cause.to_string(), cause: Some(cause.clone()) });
    Course::attaching()
        .gives(refused.clone(), &[])
        .gives(event(Event::Ended(end.clone())), &[Action::Close(end), Action::Exit(126)]);
    Course::attaching().gives(refused, &[]).at(2_000, &[]).at(
        10_000,
        &[say(&format!("application 12 was not launched: {cause}")), Action::Exit(126)],
    );
}

#[test]
fn a_lost_apinit_is_resumed_and_nothing_is_doubled() {
    let lost = || Happening::ApinitDown { text: "reset".to_owned(), connected: true };
    let taken = |offset| OutputTaken { source: 0, offset };
    let mut course = Course::going();
    course
        .gives(apinit(FromApinit::Output(output(0, "ab"))), &[Action::Write(output(0, "ab"))])
        .gives(apinit(FromApinit::Output(output(2, "cd"))), &[Action::Write(output(2, "cd"))])
        // Small pieces are reported together.
        .gives(Happening::Written { source: 0, end: 2 }, &[])
        .gives(lost(), &[])
        .gives(signal(12, 5), &[])
        .at(50, &[resume(vec![taken(2)])])
        .gives(Happening::ApinitDown { text: "refused".to_owned(), connected: false }, &[])
        .at(150, &[resume(vec![taken(2)])])
        .gives(apinit(FromApinit::Accepted), &[Action::Send(passed(1, 12))])
        // It repeats what was not taken: "cd" is on its way to stdout already.
        .gives(apinit(FromApinit::Output(output(2, "cdef"))), &[Action::Write(output(4, "ef"))])
        .gives(apinit(FromApinit::Output(output(2, "cdef"))), &[])
        .gives(Happening::Written { source: 0, end: 4 }, &[])
        .gives(
            Happening::Written { source: 0, end: 6 },
            &[Action::Send(ToApinit::OutputTaken(taken(6)))],
        );
}

#[test]
fn what_is_written_before_a_resumption_is_accepted_is_reported_with_it() {
    let lost = || Happening::ApinitDown { text: "reset".to_owned(), connected: true };
    let taken = |offset| OutputTaken { source: 0, offset };
    Course::going()
        .gives(apinit(FromApinit::Output(output(0, "ab"))), &[Action::Write(output(0, "ab"))])
        .gives(lost(), &[])
        .at(50, &[resume(vec![taken(0)])])
        // A slow reader, at last. Nothing else may come that would be reported.
        .gives(Happening::Written { source: 0, end: 2 }, &[])
        .gives(apinit(FromApinit::Accepted), &[Action::Send(ToApinit::OutputTaken(taken(2)))]);
}

/// The report was there before the output was said again to the apinit, which could make nothing of it.
#[test]
fn what_comes_again_although_it_is_written_is_reported_again() {
    let taken = |offset| Action::Send(ToApinit::OutputTaken(OutputTaken { source: 0, offset }));
    Course::going()
        .gives(apinit(FromApinit::Output(output(0, "one"))), &[Action::Write(output(0, "one"))])
        .gives(Happening::Written { source: 0, end: 3 }, &[taken(3)])
        .gives(apinit(FromApinit::Output(output(0, "one"))), &[taken(3)])
        .gives(apinit(FromApinit::Output(output(3, "two"))), &[Action::Write(output(3, "two"))])
        .gives(apinit(FromApinit::Output(output(3, "two"))), &[])
        .gives(Happening::Written { source: 0, end: 6 }, &[taken(6)]);
}

#[test]
fn a_launch_cut_off_is_first_resumed() {
    Course::attaching()
        .gives(Happening::ApinitDown { text: "no".to_owned(), connected: false }, &[])
        .at(50, &[launch_of(1)])
        .gives(Happening::ApinitDown { text: "reset".to_owned(), connected: true }, &[])
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
    let gone = || Happening::ApinitDown { text: "closed".into(), connected: true };
    let lost = "application 12 is lost: it was launched, and neither its node nor psched, which both were \
                restarted, knows of it any more";
    let exits = |course: &mut Course| {
        course.now += 3_000 * MS;
        let actions = course.front.apply(course.now, Happening::Time);
        actions.ends_with(&[say(lost), Action::Exit(125)])
    };
    let mut course = Course::going();
    for happening in [gone(), unknown(), event(Event::Placed(1))] {
        course.front.apply(course.now, happening);
    }
    assert!(exits(&mut course));
    // Its end had been told here already.
    let mut launched = Course::attaching();
    launched.gives(apinit(FromApinit::Accepted), &[]);
    for mut over in [Course::going(), launched] {
        over.gives(done(), &[])
            .gives(gone(), &[])
            .gives(event(Event::Placed(1)), &[resume(vec![])]);
        over.front.apply(over.now, unknown());
        assert!(exits(&mut over));
    }
    // Where one of them does it is waited for.
    let mut known = Course::going();
    for happening in [gone(), unknown(), event(Event::Placed(1)), event(Event::Launched)] {
        known.front.apply(known.now, happening);
    }
    assert!(!exits(&mut known));
    let mut there = Course::going();
    for happening in [gone(), unknown(), apinit(FromApinit::Accepted), event(Event::Placed(1))] {
        there.front.apply(there.now, happening);
    }
    assert!(!exits(&mut there));
}

#[test]
fn an_apinit_that_stays_away_after_the_end() {
    let end = ended(Some(Cause::PeExit { rank: 0, nid: Nid(0), code: 9 }), true);
    let mut course = Course::going();
    course
        .gives(Happening::ApinitDown { text: "reset".to_owned(), connected: true }, &[])
        .gives(event(Event::Ended(end.clone())), &[])
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
    Course::attaching()
        .gives(apinit(FromApinit::NotNow("not placed".to_owned())), &[])
        .gives(down("broken pipe"), &[])
        .gives(Happening::PschedUp { pid: 78 }, &[])
        .gives(event(Event::Launched), &[Action::Look(APID)])
        .gives(Happening::Looked(Looked::Placement(placement(1))), &[launch_of(1)]);
}

#[test]
fn output_that_another_host_has_thrown_away_is_told() {
    let mut end = ended(None, true);
    end.end.output_lost = true;
    Course::going().gives(event(Event::Ended(end.clone())), &[]).gives(
        apinit(FromApinit::Done),
        &[
            say(
                "what PEs of application 12 wrote while this aprun, or the host of PE 0, could not \
                 be reached was thrown away: its output is not complete",
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
    Course::going()
        .gives(Happening::ApinitDown { text: "reset".to_owned(), connected: true }, &[])
        .at(50, &[resume(vec![])])
        .gives(refused(Some(Cause::FrontGone)), &[])
        .gives(event(Event::Ended(end.clone())), &[])
        .at(1_050, &[resume(vec![])])
        // It has forgotten it by now.
        .gives(
            refused(None),
            &[
                say("the apinit of application 12 could not hear from this aprun and has nothing \
                     more of it: its output may not be complete"),
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
    let lost = || Happening::ApinitDown { text: "closed".to_owned(), connected: true };
    let not_now = || apinit(FromApinit::NotNow("psched has not placed it".to_owned()));
    let looked = |incarnation| Happening::Looked(Looked::Placement(placement(incarnation)));
    let mut course = Course::attaching();
    for n in 1..=u64::from(3 * REFUSALS_MAX) {
        let text = "apinit does not answer (psched has not placed it); trying again";
        let said = (n == 2).then(|| say(text));
        let again: Vec<Action> = [Action::Look(APID)].into_iter().chain(said).collect();
        course
            .gives(not_now(), &[])
            .gives(lost(), &[])
            .at(1_000 * n, &again)
            .gives(looked(1), &[launch_of(1)]);
    }
    let waits = Happening::Looked(Looked::Waiting(Explanation::default()));
    course
        .gives(not_now(), &[])
        .at(16_000, &[Action::Look(APID)])
        .gives(waits, &[])
        .gives(event(Event::Placed(2)), &[Action::Look(APID)])
        .gives(looked(2), &[launch_of(2)]);
    // Where the launch may have been taken, that is found out first.
    let again = [resume(vec![])];
    Course::attaching()
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
    let lost = || Happening::ApinitDown { text: "reset".to_owned(), connected: true };
    let text = "gone".to_owned();
    let refused = apinit(FromApinit::Refused { text, cause: Some(Cause::FrontGone) });
    Course::attaching().gives(lost(), &[]).at(50, &[resume(vec![])]).gives(refused, &[]).gives(
        event(Event::Ended(end.clone())),
        &[
            say("the apinit of application 12 could not hear from this aprun and has nothing \
                     more of it: its output may not be complete"),
            Action::Close(end.clone()),
            Action::Exit(0),
        ],
    );
    let silent = "application 12 has ended, but its apinit has been silent for 10 s: its output may \
                  not be complete";
    Course::attaching()
        .gives(lost(), &[])
        .gives(event(Event::Ended(end.clone())), &[])
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
    let terminate = |cause| Action::Send(ToApinit::Terminate { cause, kill_after: KILL_AFTER });
    let end = ended(Some(Cause::StdoutClosed), true);
    Course::going()
        .gives(Happening::OutputLost(Loss::StdoutClosed), &[terminate(Cause::StdoutClosed)])
        .gives(Happening::OutputLost(Loss::StdoutClosed), &[])
        .gives(done(), &[])
        .gives(event(Event::Ended(end.clone())), &[Action::Close(end), Action::Exit(141)]);
    // It may be noticed only when the application has ended well.
    let good = ended(None, true);
    Course::going().gives(done(), &[]).gives(Happening::OutputLost(Loss::StdoutClosed), &[]).gives(
        event(Event::Ended(good.clone())),
        &[
            say("standard output was closed: output of application 12 is lost"),
            Action::Close(good),
            Action::Exit(141),
        ],
    );
    let full = Happening::OutputLost(Loss::Failed("standard output: no space".to_owned()));
    let end = ended(Some(Cause::FrontGone), true);
    Course::going()
        .gives(
            full,
            &[
                say("standard output: no space; application 12 is ended"),
                terminate(Cause::FrontGone),
            ],
        )
        // Said again to an apinit that was restarted.
        .gives(Happening::ApinitDown { text: "reset".to_owned(), connected: true }, &[])
        .at(50, &[resume(vec![])])
        .gives(apinit(FromApinit::Accepted), &[terminate(Cause::FrontGone)])
        .gives(done(), &[])
        .gives(
            event(Event::Ended(end.clone())),
            &[Action::Close(Box::new(Ended { told: true, ..*end })), Action::Exit(125)],
        );
}

#[test]
fn stdin_follows_its_credit() {
    let bytes = |n: usize| Bytes::from(vec![b'x'; n]);
    let mut course = Course::going();
    let piece = |offset, n| Action::Send(ToApinit::Stdin(StdinPiece { offset, data: bytes(n) }));
    course
        .gives(apinit(credit(10, 0)), &[Action::ReadStdin(10)])
        // One read at a time.
        .gives(apinit(credit(200_000, 0)), &[])
        .gives(Happening::Stdin(bytes(4)), &[piece(0, 4), Action::ReadStdin(65_536)])
        .gives(Happening::ApinitDown { text: "reset".to_owned(), connected: true }, &[])
        // Read, and not to be sent now: not lost.
        .gives(Happening::Stdin(bytes(7)), &[])
        .at(50, &[resume(vec![])])
        // What was sent before may have been in the hands of the one that is gone.
        .gives(apinit(FromApinit::Accepted), &[piece(0, 4), piece(4, 7), Action::ReadStdin(65_536)])
        .gives(apinit(credit(200_000, 4)), &[])
        .gives(Happening::StdinEnd, &[Action::Send(ToApinit::StdinEnd(11))])
        .gives(apinit(credit(400_000, 4)), &[])
        .gives(Happening::ApinitDown { text: "reset".to_owned(), connected: true }, &[])
        .at(100, &[resume(vec![])])
        .gives(apinit(FromApinit::Accepted), &[piece(4, 7), Action::Send(ToApinit::StdinEnd(11))]);
    Course::going()
        .gives(apinit(credit(3, 0)), &[Action::ReadStdin(3)])
        .gives(Happening::Stdin(bytes(3)), &[piece(0, 3)]);
}

#[test]
fn signals_are_said_again_until_all_pes_have_them() {
    let lost = || Happening::ApinitDown { text: "reset".to_owned(), connected: true };
    let send = |number, signal| Action::Send(passed(number, signal));
    let mut course = Course::going();
    course
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
    Course::going()
        .gives(apinit(FromApinit::Output(output(0, "ou"))), &[Action::Write(output(0, "ou"))])
        .gives(apinit(FromApinit::Output(on_stderr.clone())), &[Action::Write(on_stderr)])
        .gives(Happening::Written { source: 0, end: 5 }, &[])
        .gives(
            Happening::Written { source: 0, end: 2 },
            &[Action::Send(ToApinit::OutputTaken(OutputTaken { source: 0, offset: 5 }))],
        );
}

#[test]
fn a_hole_in_the_output_is_asked_for_again() {
    let warned = Action::Warn("7 bytes of output before byte 10 of NID 0 did not come".to_owned());
    let late = || apinit(FromApinit::Output(output(10, "x")));
    let taken = |offset| OutputTaken { source: 0, offset };
    let mut course = Course::going();
    course
        .gives(apinit(FromApinit::Output(output(0, "one"))), &[Action::Write(output(0, "one"))])
        .gives(
            Happening::Written { source: 0, end: 3 },
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
        let mut course = Course::going();
        for _ in 0..HOLES_MAX {
            course
                .gives(
                    late(),
                    &[warned.clone(), resume(vec![OutputTaken { source: 0, offset: 0 }])],
                )
                .gives(apinit(FromApinit::Accepted), &[]);
        }
        let lost = say("application 12: 10 bytes of what its PEs on NID 0 wrote are lost");
        course
            .gives(late(), &[warned.clone(), lost, Action::Write(output(10, "x"))])
            .gives(
                Happening::Written { source: 0, end: 11 },
                &[Action::Send(ToApinit::OutputTaken(OutputTaken { source: 0, offset: 11 }))],
            )
            .gives(done(), &[]);
        course
    };
    let end = ended(None, true);
    incomplete().gives(event(Event::Ended(end.clone())), &[Action::Close(end), Action::Exit(125)]);
    let end = ended(Some(Cause::PeExit { rank: 0, nid: Nid(0), code: 9 }), true);
    incomplete().gives(event(Event::Ended(end.clone())), &[Action::Close(end), Action::Exit(9)]);
}

/// A line about one bad end is not the line about another.
#[test]
fn what_decided_is_told_whatever_else_was() {
    let died = Cause::PeSignal { rank: 1, nid: Nid(0), signal: 11 };
    let line = || {
        let text = "[NID 00000] 2026-11-21 22:21:27 Apid 12: PE 1 died: Segmentation fault \
                    (signal 11); initiated application termination";
        text.to_owned()
    };
    let with_line = || {
        let mut course = Course::going();
        course.gives(apinit(FromApinit::Notice(line())), &[Action::Say(line())]);
        course.gives(done(), &[]);
        course
    };
    let told = Box::new(Ended { told: true, ..*ended(Some(died), true) });
    let end = Box::new(Ended { told: false, ..*told.clone() });
    with_line().gives(event(Event::Ended(end)), &[Action::Close(told), Action::Exit(139)]);
    let lost = Cause::NodeLost { nid: Nid(3), text: "it is gone".to_owned() };
    let end = ended(Some(lost), true);
    with_line().gives(event(Event::Ended(end.clone())), &[Action::Close(end), Action::Exit(125)]);
    // psched was wrong about it, or an apinit was: then this process has to say so.
    let end = ended(Some(Cause::FrontGone), true);
    with_line().gives(event(Event::Ended(end.clone())), &[Action::Close(end), Action::Exit(125)]);
}

/// While it was stopped it could not hear the last words.
#[test]
fn its_own_silence_is_not_the_apinits() {
    let end = ended(None, true);
    let mut course = Course::going();
    course.gives(event(Event::Ended(end.clone())), &[]).at(60_000, &[]);
    course.gives(done(), &[Action::Close(end.clone()), Action::Exit(0)]);
    let silent = say(
        "application 12 has ended, but its apinit has been silent for 10 s: its output may not be \
         complete",
    );
    let mut course = Course::going();
    course
        .gives(event(Event::Ended(end.clone())), &[])
        .at(60_000, &[])
        .at(70_000, &[silent, Action::Close(end), Action::Exit(0)]);
}

/// The launch was never taken, and its time is over: it is another place that it goes to.
#[test]
fn a_ticket_that_has_lapsed_during_a_resumption() {
    let lost = Happening::ApinitDown { text: "reset".to_owned(), connected: true };
    let refused = |text: &str| apinit(FromApinit::Refused { text: text.to_owned(), cause: None });
    Course::attaching()
        .gives(lost, &[])
        .at(50, &[resume(vec![])])
        .gives(refused("it has not been launched here"), &[launch_of(1)])
        .gives(refused("its ticket has lapsed"), &[])
        .at(150, &[Action::Look(APID)])
        .gives(Happening::Looked(Looked::Placement(placement(2))), &[launch_of(2)]);
}

#[test]
fn files_are_opened_before_the_launch() {
    let mut course = Course { front: Front::new(Setup { files: true, ..setup() }), now: 0 };
    course
        .gives(Happening::Start, &[Action::Psched(Ask::Post)])
        .gives(Happening::PschedUp { pid: PSCHED }, &[])
        .gives(event(Event::Accepted(APID)), &[])
        .gives(event(Event::Placed(1)), &[Action::Look(APID)])
        .gives(
            Happening::Looked(Looked::Placement(placement(1))),
            &[Action::OpenFiles(placement(1))],
        )
        .gives(Happening::Files(Ok(())), &[launch_of(1)]);
    let mut course = Course::posted();
    course.gives(
        Happening::Files(Err("out.0: permission denied".to_owned())),
        &[say("out.0: permission denied"), Action::Exit(125)],
    );
}

#[test]
fn a_signal_after_the_end_gives_up_what_is_not_written() {
    Course::going()
        .gives(apinit(FromApinit::Output(output(0, "x"))), &[Action::Write(output(0, "x"))])
        .gives(event(Event::Ended(ended(None, true))), &[])
        .gives(signal(12, 5), &[])
        .gives(
            signal(SIGINT, 5),
            &[say("application 12: its output is not complete"), Action::Exit(130)],
        );
}

#[test]
fn ended_before_its_launch() {
    let end = ended(Some(Cause::Kill { signal: 15, uid: 0 }), false);
    Course::posted()
        .gives(event(Event::Ended(end.clone())), &[Action::Close(end), Action::Exit(143)]);
    let end = ended(Some(Cause::NoRecord), false);
    Course::posted().gives(event(Event::Placed(1)), &[Action::Look(APID)]).gives(
        Happening::Looked(Looked::Ended(end.clone())),
        &[Action::Close(end), Action::Exit(125)],
    );
}

fn credit(credit: u64, received: u64) -> FromApinit {
    FromApinit::StdinCredit(StdinCredit { credit, received })
}

fn any_happening() -> impl Strategy<Value = Happening> {
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
        text().prop_map(FromApinit::Notice),
    ];
    prop_oneof![
        2 => Just(Happening::PschedUp { pid: PSCHED }),
        1 => any::<(bool, bool)>().prop_map(|(absent, answered)| {
            Happening::PschedDown { text: "down".to_owned(), absent, answered }
        }),
        1 => Just(Happening::PschedRefused("no".to_owned())),
        3 => Just(event(Event::Accepted(APID))),
        3 => (1u32..4).prop_map(|i| event(Event::Placed(i))),
        1 => Just(event(Event::Waiting(Explanation::default()))),
        1 => any::<bool>().prop_map(|launched| event(Event::Ended(ended(None, launched)))),
        3 => (1u32..4).prop_map(|i| Happening::Looked(Looked::Placement(placement(i)))),
        1 => Just(Happening::Looked(Looked::Waiting(Explanation::default()))),
        1 => Just(Happening::Looked(Looked::Failed("no".to_owned()))),
        1 => Just(Happening::Killed),
        1 => any::<bool>()
            .prop_map(|connected| Happening::ApinitDown { text: "no".to_owned(), connected }),
        8 => apinit.prop_map(Happening::Apinit),
        2 => (1i32..30, proptest::option::of(76i32..79))
            .prop_map(|(signal, sender)| Happening::Signal { signal, sender }),
        1 => Just(Happening::Nudged),
        1 => Just(Happening::StdinEnd),
        1 => text().prop_map(|t| Happening::Stdin(Bytes::from(t))),
        3 => (0u32..2, 0u64..50).prop_map(|(source, end)| Happening::Written { source, end }),
        1 => Just(Happening::OutputLost(Loss::StdoutClosed)),
        1 => Just(Happening::OutputLost(Loss::Failed("full".to_owned()))),
        4 => Just(Happening::Time),
    ]
}

proptest! {
    #[test]
    fn whatever_happens(
        happenings in proptest::collection::vec((0u64..3_000, any_happening()), 0..60))
    {
        let mut front = Front::new(setup());
        let mut now = 0;
        let (mut over, mut attached, mut reading) = (false, false, false);
        let mut written = Vec::new();
        let all = std::iter::once((0, Happening::Start)).chain(happenings);
        for (ms, happening) in all {
            now += ms * MS;
            let psched_s = matches!(&happening, Happening::Nudged
                | Happening::Signal { signal: SIGUSR1, sender: Some(PSCHED) });
            let may_read = match &happening {
                // Only one read is asked for at a time, so that only one is answered.
                Happening::Stdin(_) | Happening::StdinEnd => std::mem::take(&mut reading),
                _ => true,
            };
            if !may_read {
                continue;
            }
            let actions = front.apply(now, happening);
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
        let mut course = Course { front, now: 0 };
        course
            .gives(Happening::Start, &[Action::Psched(Ask::Post)])
            .gives(Happening::PschedUp { pid: PSCHED }, &[])
            .gives(event(Event::Accepted(APID)), &[say(line)])
            // Said again after a break.
            .gives(event(Event::Accepted(APID)), &[])
            .gives(Happening::Trouble("no room".into()), &[say("cpr: no room")])
            .gives(event(Event::Placed(1)), &[Action::Look(APID)])
            .gives(Happening::Looked(Looked::Placement(placement(1))), &[launch_of(1)]);
    }
}

/// For a checkpoint: while it waits, and while it runs; there is none of what has ended.
#[test]
fn what_it_launches_is_said_when_psched_asks() {
    let mut course = Course::posted();
    course.gives(event(Event::AskLaunch), &[Action::Deposit(APID)]);
    let mut course = Course::going();
    course
        .gives(event(Event::AskLaunch), &[Action::Deposit(APID)])
        .gives(event(Event::AskLaunch), &[Action::Deposit(APID)]);
    let mut early = Course::new();
    early.gives(Happening::Start, &[Action::Psched(Ask::Post)]).gives(event(Event::AskLaunch), &[]);
    course.front.apply(course.now, event(Event::Ended(ended(None, true))));
    course.gives(event(Event::AskLaunch), &[]);
}
