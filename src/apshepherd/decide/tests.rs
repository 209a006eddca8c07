mod mpi;
mod restart;
mod spawn;

use super::*;
use crate::apteam::bounds::Bounds;
use crate::apteam::ending::{Cause, HostEnd, PeEnd, PeReport};
use crate::apteam::launch::{Launch, LocalPe, Part};
use crate::apteam::protocol::attach::{Output, PSCHED_SIGNALS, StdinCredit, StdinPiece};
use crate::apteam::protocol::notice::Seen;
use crate::apteam::protocol::peers::{BarrierIn, BarrierOut, PmiEntry};
use crate::apteam::protocol::programs::{GivenProgram, WantedProgram};
use bytes::Bytes;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

fn key() -> Key {
    Key::parse("12.1").expect("a key")
}

fn launch(width: u32) -> HostLaunch {
    HostLaunch {
        key: key(),
        width,
        depth: 1,
        launch: Launch::default(),
        pes: (0..width)
            .map(|rank| LocalPe { rank, nid: Nid(rank + 7), cpus: vec![], nice: 0, depth: 0 })
            .collect(),
        process_mapping: String::new(),
        alone: true,
        others: Vec::new(),
        cpu_limit: None,
        stdin: false,
        kill_grace: Duration::from_secs(5),
        marker: String::new(),
        memory_per_pe: None,
        pids_max: None,
        bounds: Bounds::default(),
        pmix_name: String::new(),
        host_index: 0,
        pmix_folder: String::new(),
        spawned: None,
    }
}

fn hello() -> Event {
    Event::Frame(ToShepherd::Hello(Hello { key: key(), ..Hello::default() }))
}

fn greeting(launched: bool, going: bool, ended: bool) -> Action {
    let hello =
        Hello { protocol: PROTOCOL, key: key(), launched, going, ended, ..Hello::default() };
    Action::Send(FromShepherd::Hello(hello))
}

/// Connected and launched.
fn starting(launch: HostLaunch) -> Shepherd {
    let mut shepherd = Shepherd::new(0, key());
    shepherd.apply(0, Event::Connected);
    shepherd.apply(0, hello());
    let launch = Box::new(launch);
    let actions = shepherd.apply(0, Event::Frame(ToShepherd::Launch(launch.clone())));
    assert_eq!(actions[0], Action::Fork(launch));
    shepherd
}

/// All PEs are told to go at time 0, and what follows.
fn told_to_go(launch: HostLaunch) -> (Shepherd, Vec<Action>) {
    let ranks: Vec<u32> = launch.pes.iter().map(|pe| pe.rank).collect();
    let mut shepherd = starting(launch);
    for rank in ranks {
        shepherd.apply(0, Event::Stopped { rank });
    }
    let actions = shepherd.apply(0, Event::Frame(ToShepherd::Go));
    assert_eq!(actions.first(), Some(&Action::Go));
    (shepherd, actions)
}

/// All PEs go, since time 0.
fn going(launch: HostLaunch) -> Shepherd {
    told_to_go(launch).0
}

/// The launch of a program to which PMI-1 is served.
fn mpi_launch(width: u32) -> HostLaunch {
    let mut launch = launch(width);
    launch.launch.pmi = true;
    launch
}

fn ended(rank: u32, end: PeEnd) -> Event {
    Event::PeEnded { rank, pid: 4000 + rank, end, usage: Usage::default() }
}

fn pmi(rank: u32, text: &'static str) -> Event {
    Event::Pmi { rank, data: Bytes::from_static(text.as_bytes()) }
}

fn decisive(at_ns: u64, cause: Cause) -> Decisive {
    Decisive { at_ns, cause }
}

/// Closes all output and gives the end, if it is told now.
fn close(shepherd: &mut Shepherd, now: u64, width: u32) -> Option<HostEnd> {
    let mut all = Vec::new();
    for rank in 0..width {
        for stderr in [false, true] {
            all.extend(shepherd.apply(now, Event::OutputEof { rank, stderr }));
        }
    }
    all.into_iter().find_map(|action| match action {
        Action::Send(FromShepherd::Ended(end)) => Some(*end),
        _ => None,
    })
}

#[test]
fn the_gate_opens_when_all_stand() {
    let mut shepherd = starting(launch(2));
    assert_eq!(shepherd.apply(1, Event::Frame(ToShepherd::Go)), []);
    let early = Event::Frame(ToShepherd::Signal(NumberedSignal { number: 0, signal: 10 }));
    assert_eq!(shepherd.apply(1, early.clone()), []);
    assert_eq!(shepherd.apply(1, early), []);
    assert_eq!(shepherd.apply(2, Event::Stopped { rank: 1 }), []);
    assert_eq!(shepherd.apply(3, Event::Stopped { rank: 0 }), [Action::Send(FromShepherd::Ready)]);
    assert_eq!(shepherd.apply(4, Event::Frame(ToShepherd::Go)), [Action::Go, Action::Signal(10)]);
    assert_eq!(shepherd.apply(5, Event::Frame(ToShepherd::Go)), []);
}

#[test]
fn which_processes_pes_are_is_told_to_its_own_apinit() {
    use crate::apteam::protocol::processes::Question;
    let question = Question { number: 5, key: key(), first: 0, count: 2 };
    let asks = || Event::Frame(ToShepherd::Processes(question));
    let mut shepherd = going(launch(2));
    assert_eq!(shepherd.apply(MS, asks()), [Action::TellProcesses(question)]);
    // Until it has said hello nobody knows about whom it would speak.
    shepherd.apply(MS, Event::Disconnected);
    shepherd.apply(MS, Event::Connected);
    assert_eq!(shepherd.apply(MS, asks()), []);
}

/// Stacks of PEs that run, for the apinit that is connected, until the application ends.
#[test]
fn stacks_are_had_of_pes_that_run() {
    use crate::apteam::protocol::stacks::{Answer, Placed, Question};
    let question = |rank| Question { number: 5, key: key(), rank, uid: 1, administrator: false };
    let asks = |rank| Event::Frame(ToShepherd::Stacks(question(rank)));
    let answer =
        |rank, why: &str| Action::Send(FromShepherd::Stacks(Answer::none(question(rank), why)));
    let looked = || {
        let looked = Looked { pid: 77, standing: Standing::Runs };
        Event::PesLooked([(1, looked)].into())
    };
    let mut early = starting(launch(2));
    assert_eq!(early.apply(MS, asks(1)), [answer(1, "it has not begun to run")]);
    let mut shepherd = going(launch(2));
    assert_eq!(shepherd.apply(MS, asks(7)), [answer(7, "it is not on this host")]);
    let looks = [Action::LookAtPes(vec![1]), Action::SetTimer(Some(21 * MS))];
    assert_eq!(shepherd.apply(MS, asks(1)), looks);
    let begins = Action::StartDebugger { number: 5, rank: 1 };
    assert_eq!(shepherd.apply(MS, looked()), std::slice::from_ref(&begins));
    let placed = Placed { number: 5, why_not: String::new(), spawned: false };
    let placed = Event::Frame(ToShepherd::DebuggerPlaced(placed));
    assert_eq!(shepherd.apply(MS, placed), [Action::LetDebuggerWork(5)]);
    let again = [Action::LookAtPes(vec![1]), Action::SetTimer(Some(41 * MS))];
    assert_eq!(shepherd.apply(21 * MS, Event::Tick), again);
    // The connection has gone, and with it who has asked.
    let gone = shepherd.apply(22 * MS, Event::Disconnected);
    assert_eq!(gone, [Action::SetTimer(None)]);
    let said = || Ok(("#0 main\n".to_owned(), false));
    let ended = || Event::DebuggerEnded { number: 5, said: said() };
    assert_eq!(shepherd.apply(23 * MS, ended()), []);
    // Another apinit's.
    shepherd.apply(24 * MS, Event::Connected);
    assert_eq!(shepherd.apply(24 * MS, asks(1)), []);
    let hello = Hello { key: key(), ..Hello::default() };
    shepherd.apply(24 * MS, Event::Frame(ToShepherd::Hello(hello)));
    shepherd.apply(24 * MS, asks(1));
    assert_eq!(shepherd.apply(24 * MS, looked()), [begins]);
    // The application ends: nobody waits for a debugger.
    let terminate = ToShepherd::Terminate {
        cause: Cause::Kill { signal: 9, uid: 1 },
        kill_after: Duration::ZERO,
    };
    let actions = shepherd.apply(25 * MS, Event::Frame(terminate));
    assert!(actions.contains(&Action::EndDebugger(5)), "{actions:?}");
    let actions = shepherd.apply(26 * MS, ended());
    let text = Answer { pid: 77, text: "#0 main\n".into(), ..Answer::none(question(1), "") };
    let timer = Action::SetTimer(Some(125 * MS));
    assert_eq!(actions, [Action::Send(FromShepherd::Stacks(text)), timer]);
    assert_eq!(shepherd.apply(27 * MS, asks(1)), [answer(1, "the application ends")]);
}

#[test]
fn without_processes_nothing_goes() {
    let mut shepherd = starting(launch(2));
    shepherd.apply(1, Event::NoChildLeft);
    shepherd.apply(2, ended(1, PeEnd::Signal(9)));
    shepherd.apply(3, Event::Stopped { rank: 0 });
    assert_eq!(shepherd.apply(4, Event::Frame(ToShepherd::Go)), []);
}

fn failed_exec(rank: u32) -> Event {
    Event::ExecFailed { rank, errno: 2, text: String::new(), fault: Fault::User }
}

#[test]
fn one_that_cannot_be_executed_stops_all() {
    let mut shepherd = starting(launch(2));
    shepherd.apply(1, Event::Stopped { rank: 0 });
    let text = "a.out: No such file".to_owned();
    let failed = Event::ExecFailed { rank: 1, errno: 2, text: text.clone(), fault: Fault::Busy };
    let fault = Fault::Busy;
    let first = decisive(2, Cause::LaunchFailed { rank: 1, nid: Nid(8), errno: 2, text, fault });
    assert_eq!(
        shepherd.apply(2, failed.clone()),
        [
            Action::Send(FromShepherd::Failed(first.clone())),
            Action::KillEverything,
            Action::SetTimer(Some(2 + 100 * MS)),
        ]
    );
    assert_eq!(shepherd.apply(3, failed), []);
    assert_eq!(shepherd.apply(3, ended(0, PeEnd::Signal(9))), []);
    assert_eq!(shepherd.apply(3, ended(1, PeEnd::Exit(127))), []);
    assert_eq!(shepherd.apply(4, Event::NoChildLeft), [Action::SetTimer(None)]);
    let end = close(&mut shepherd, 5, 2).expect("the end");
    let nids = vec![Nid(7), Nid(8)];
    assert_eq!(end, HostEnd { key: key(), nids, first: Some(first), ..HostEnd::default() });
}

#[test]
fn a_plain_bad_exit_is_told_once_and_ends_nobody() {
    let mut shepherd = going(launch(3));
    let first = decisive(1, Cause::PeExit { rank: 1, nid: Nid(8), code: 4 });
    assert_eq!(
        shepherd.apply(1, ended(1, PeEnd::Exit(4))),
        [Action::Send(FromShepherd::Decisive(first.clone()))]
    );
    assert_eq!(shepherd.apply(2, ended(2, PeEnd::Exit(5))), []);
    assert_eq!(shepherd.apply(3, ended(0, PeEnd::Exit(0))), [Action::SetTimer(Some(3 + 100 * MS))]);
    shepherd.apply(4, Event::NoChildLeft);
    let end = close(&mut shepherd, 5, 3).expect("the end");
    assert_eq!((end.first, end.run, end.launched), (Some(first), Duration::from_nanos(4), true));
    let counts: Vec<_> = end.ends.iter().map(|e| (e.end, e.count, e.consequence)).collect();
    let exit = |code| (PeEnd::Exit(code), 1, false);
    assert_eq!(counts, [exit(0), exit(4), exit(5)]);
}

#[test]
fn a_death_ends_the_others_by_term_then_kill() {
    let mut shepherd = going(launch(2));
    let first = decisive(SECOND, Cause::PeSignal { rank: 0, nid: Nid(7), signal: 11 });
    let seen = Seen::Ends(first.cause.clone());
    assert_eq!(
        shepherd.apply(SECOND, ended(0, PeEnd::Signal(11))),
        [
            Action::Send(FromShepherd::Decisive(first.clone())),
            Action::Signal(15),
            Action::Notice { nid: Nid(7), what: seen },
            Action::SetTimer(Some(6 * SECOND)),
        ]
    );
    // The same, told from above: no second TERM, but an earlier KILL.
    let terminate = |kill_after| {
        let cause = first.cause.clone();
        Event::Frame(ToShepherd::Terminate { cause, kill_after })
    };
    let at = 2 * SECOND;
    assert_eq!(shepherd.apply(at, terminate(Duration::from_secs(60))), []);
    assert_eq!(
        shepherd.apply(at, terminate(Duration::from_secs(2))),
        [Action::SetTimer(Some(4 * SECOND))]
    );
    assert_eq!(
        shepherd.apply(4 * SECOND, Event::Tick),
        [Action::KillEverything, Action::SetTimer(Some(4 * SECOND + 100 * MS))]
    );
    shepherd.apply(4 * SECOND, ended(1, PeEnd::Signal(9)));
    shepherd.apply(4 * SECOND, Event::NoChildLeft);
    let end = close(&mut shepherd, 5 * SECOND, 2).expect("the end");
    assert_eq!(end.first, Some(first));
    let signal =
        |signal, consequence| EndCount { end: PeEnd::Signal(signal), count: 1, consequence };
    assert_eq!(end.ends, [signal(9, true), signal(11, false)]);
}

#[test]
fn one_that_is_frozen_has_its_grace_when_it_runs() {
    let dies = || {
        let mut shepherd = going(launch(2));
        shepherd.apply(SECOND, ended(0, PeEnd::Signal(9)));
        assert_eq!(shepherd.apply(6 * SECOND, Event::Tick)[0], Action::LookFrozen);
        shepherd
    };
    let mut runs = dies();
    assert_eq!(runs.apply(6 * SECOND, Event::Frozen(false))[0], Action::KillEverything);

    let mut frozen = dies();
    let mut at = 6 * SECOND;
    for _ in 0..3 {
        let again = frozen.apply(at, Event::Frozen(true));
        assert_eq!(again, [Action::SetTimer(Some(at + 10 * MS))]);
        at += 10 * MS;
        assert_eq!(frozen.apply(at, Event::Tick)[0], Action::LookFrozen);
    }
    let has_its_turn = frozen.apply(at, Event::Frozen(false));
    assert_eq!(has_its_turn, [Action::SetTimer(Some(at + 5 * SECOND))]);
    assert_eq!(frozen.apply(at + 5 * SECOND, Event::Tick)[0], Action::KillEverything);

    // But not for ever.
    let mut for_ever = dies();
    for_ever.apply(6 * SECOND, Event::Frozen(true));
    assert_eq!(for_ever.apply(31 * SECOND, Event::Tick)[0], Action::KillEverything);
}

#[test]
fn kill_has_its_own_signal() {
    let mut shepherd = going(launch(1));
    let kill = |signal, seconds| {
        let cause = Cause::Kill { signal, uid: 1000 };
        let kill_after = Duration::from_secs(seconds);
        Event::Frame(ToShepherd::Terminate { cause, kill_after })
    };
    assert_eq!(
        shepherd.apply(0, kill(2, 300)),
        [Action::Signal(2), Action::SetTimer(Some(300 * SECOND))]
    );
    assert_eq!(
        shepherd.apply(SECOND, kill(9, 300)),
        [Action::KillEverything, Action::SetTimer(Some(SECOND + 100 * MS))]
    );
    shepherd.apply(SECOND, ended(0, PeEnd::Signal(9)));
    shepherd.apply(SECOND, Event::NoChildLeft);
    assert_eq!(close(&mut shepherd, SECOND, 1).map(|end| end.status()), Some(130));
}

#[test]
fn ended_before_it_went_it_is_killed_at_once() {
    let mut shepherd = starting(launch(1));
    let terminate =
        ToShepherd::Terminate { cause: Cause::FrontGone, kill_after: Duration::from_secs(2) };
    assert_eq!(shepherd.apply(1, Event::Frame(terminate))[0], Action::KillEverything);
    assert_eq!(shepherd.apply(2, Event::Stopped { rank: 0 }), []);
    shepherd.apply(3, ended(0, PeEnd::Signal(9)));
    shepherd.apply(3, Event::NoChildLeft);
    let end = close(&mut shepherd, 4, 1).expect("the end");
    assert_eq!((end.launched, end.ends.len(), end.status()), (false, 0, 125));
}

#[test]
fn ended_before_its_launch_it_is_over() {
    let mut shepherd = Shepherd::new(0, key());
    shepherd.apply(0, Event::Connected);
    shepherd.apply(0, hello());
    let terminate = ToShepherd::Terminate { cause: Cause::FrontGone, kill_after: Duration::ZERO };
    let actions = shepherd.apply(1, Event::Frame(terminate));
    assert!(matches!(&actions[..], [Action::Send(FromShepherd::Ended(end))] if !end.launched));
    let late = Event::Frame(ToShepherd::Launch(Box::new(launch(1))));
    assert_eq!(shepherd.apply(2, late), []);
}

fn several(width: u32, firsts: &[u32]) -> HostLaunch {
    let mut launch = mpi_launch(width);
    let part = |first: &u32| Part { first: *first, ..Part::default() };
    launch.launch.more = firsts.iter().map(part).collect();
    launch
}

/// Also where the first of a host's PEs is not the first of its part.
#[test]
fn a_pe_is_told_which_program_it_runs() {
    let mut launch = several(6, &[1, 4]);
    launch.pes.drain(..3);
    let mut shepherd = going(launch);
    for (rank, appnum) in [(3, 1), (4, 2), (5, 2)] {
        let data = Bytes::from_static(b"cmd=get_appnum\n");
        let answer = format!("cmd=appnum rc=0 appnum={appnum}\n").into();
        let actions = shepherd.apply(1, Event::Pmi { rank, data });
        assert_eq!(actions, [Action::PmiSend { rank, data: answer }]);
    }
}

#[test]
fn a_program_without_a_pe_is_refused() {
    for firsts in [&[2][..], &[0], &[1, 1]] {
        let mut shepherd = Shepherd::new(0, key());
        shepherd.apply(0, Event::Connected);
        shepherd.apply(0, hello());
        let wrong = Box::new(several(2, firsts));
        let actions = shepherd.apply(1, Event::Frame(ToShepherd::Launch(wrong)));
        let [Action::Send(FromShepherd::Failed(failed)), ..] = &actions[..] else {
            panic!("{firsts:?}: {actions:?}");
        };
        assert!(
            failed.cause.to_string().contains("the launch does not match its posting"),
            "{failed:?}"
        );
        assert!(!actions.iter().any(|action| matches!(action, Action::Fork(_))));
        // Whatever is said of its PEs: none was made.
        assert_eq!(shepherd.apply(2, Event::Stopped { rank: 1 }), []);
    }
}

#[test]
fn a_list_of_pes_out_of_order_is_refused() {
    for wrong in [
        HostLaunch { pes: vec![], ..launch(1) },
        HostLaunch { width: 1, ..launch(2) },
        HostLaunch { pes: [launch(1).pes, launch(1).pes].concat(), ..launch(2) },
    ] {
        let mut shepherd = Shepherd::new(0, key());
        shepherd.apply(0, Event::Connected);
        shepherd.apply(0, hello());
        let actions = shepherd.apply(1, Event::Frame(ToShepherd::Launch(Box::new(wrong))));
        assert!(
            matches!(
                &actions[..],
                [Action::Send(FromShepherd::Failed(_)), Action::Send(FromShepherd::Ended(_)),]
            ),
            "{actions:?}"
        );
    }
}

#[test]
fn mpi_ends_as_the_status_rules_say() {
    for (said, end, status) in [
        ("cmd=init pmi_version=1\n", PeEnd::Exit(0), 1),
        ("cmd=init pmi_version=1\n", PeEnd::Exit(7), 7),
        ("cmd=init pmi_version=1\ncmd=finalize\n", PeEnd::Exit(0), 0),
        ("cmd=init pmi_version=1\ncmd=finalize\n", PeEnd::Exit(7), 7),
        ("cmd=init pmi_version=1\ncmd=abort exitcode=3\n", PeEnd::Exit(9), 3),
        ("cmd=init pmi_version=1\ncmd=abort exitcode=256\n", PeEnd::Exit(9), 1),
        ("rubbish\n", PeEnd::Exit(0), 1),
    ] {
        let mut shepherd = going(mpi_launch(1));
        shepherd.apply(1, pmi(0, said));
        shepherd.apply(2, ended(0, end));
        shepherd.apply(2, Event::NoChildLeft);
        let end = close(&mut shepherd, 3, 1).expect("the end");
        assert_eq!(end.status(), status, "{said} {:?}", end.first);
    }
}

#[test]
fn garbage_closes_the_connection_and_ends_the_application() {
    let mut shepherd = going(mpi_launch(2));
    let actions = shepherd.apply(1, pmi(1, "rubbish\n"));
    let cause =
        Cause::Garbage { rank: 1, nid: Nid(8), text: "\"rubbish\" is not a command".into() };
    assert_eq!(
        actions[..3],
        [
            Action::PmiClose { rank: 1 },
            Action::Send(FromShepherd::Decisive(decisive(1, cause))),
            Action::Signal(15),
        ]
    );
}

#[test]
fn leavings_get_a_moment_then_term_then_kill() {
    let mut shepherd = going(launch(1));
    assert_eq!(
        shepherd.apply(SECOND, ended(0, PeEnd::Exit(0))),
        [Action::SetTimer(Some(SECOND + 100 * MS))]
    );
    assert_eq!(
        shepherd.apply(SECOND + 100 * MS, Event::Tick),
        [Action::SignalLeft(15), Action::SetTimer(Some(6 * SECOND + 100 * MS))]
    );
    assert_eq!(shepherd.apply(2 * SECOND, Event::LeftFound(2)), []);
    assert_eq!(
        shepherd.apply(6 * SECOND + 100 * MS, Event::Tick),
        [Action::KillEverything, Action::SetTimer(Some(6 * SECOND + 200 * MS))]
    );
    assert_eq!(shepherd.apply(7 * SECOND, Event::NoChildLeft), [Action::SetTimer(None)]);
    let end = close(&mut shepherd, 7 * SECOND, 1).expect("the end");
    assert_eq!((end.leftovers, end.first, end.run), (2, None, Duration::from_secs(7)));
}

#[test]
fn leavings_that_are_frozen_get_their_moment_later() {
    let mut shepherd = going(launch(1));
    shepherd.apply(SECOND, ended(0, PeEnd::Exit(0)));
    let mut at = SECOND + 100 * MS;
    assert_eq!(shepherd.apply(at, Event::Tick)[0], Action::SignalLeft(15));
    let again = shepherd.apply(at, Event::LeftFrozen);
    assert_eq!(again, [Action::SetTimer(Some(at + 10 * MS))]);
    let mut look = |shepherd: &mut Shepherd, frozen| {
        at += 10 * MS;
        assert_eq!(shepherd.apply(at, Event::Tick)[0], Action::LookFrozen);
        shepherd.apply(at, Event::Frozen(frozen))[0].clone()
    };
    for turn in 0..9 {
        for _ in 0..turn {
            assert!(matches!(look(&mut shepherd, true), Action::SetTimer(Some(_))));
        }
        assert!(matches!(look(&mut shepherd, false), Action::SetTimer(Some(_))));
    }
    assert_eq!(look(&mut shepherd, false), Action::SignalLeft(15));
    shepherd.apply(at, Event::LeftFrozen);
    // It has gone by itself.
    assert_eq!(shepherd.apply(2 * SECOND, Event::NoChildLeft), [Action::SetTimer(None)]);
    let end = close(&mut shepherd, 2 * SECOND, 1).expect("the end");
    assert_eq!((end.leftovers, end.first), (0, None));
}

#[test]
fn leavings_of_an_ended_application_get_their_term_too() {
    let mut shepherd = going(launch(1));
    shepherd.apply(SECOND, ended(0, PeEnd::Signal(11)));
    assert_eq!(
        shepherd.apply(SECOND + 100 * MS, Event::Tick),
        // KILL stays where it was.
        [Action::SignalLeft(15), Action::SetTimer(Some(6 * SECOND))]
    );
}

#[test]
fn how_each_pe_ended_is_told_where_it_is_asked_for() {
    let reports = |actions: Vec<Action>| -> Vec<(u64, u32, Nid, PeReport)> {
        let report = |action| match action {
            Action::Send(FromShepherd::Output(o)) => Some((o.offset, o.rank, o.nid, o.report?)),
            _ => None,
        };
        actions.into_iter().filter_map(report).collect()
    };
    let report = |pid, ms, end| PeReport { pid, elapsed: Duration::from_millis(ms), end };
    for asked in [false, true] {
        let mut launch = launch(2);
        launch.launch.report = asked;
        let nids = [0, 1].map(|i| launch.pes[i].nid);
        let mut shepherd = going(launch);
        let first = reports(shepherd.apply(1_500 * MS, ended(1, PeEnd::Exit(3))));
        let second = reports(shepherd.apply(2_010 * MS, ended(0, PeEnd::Signal(9))));
        if !asked {
            assert_eq!((first, second), (vec![], vec![]));
            continue;
        }
        assert_eq!(first, [(0, 1, nids[1], report(4001, 1_500, PeEnd::Exit(3)))]);
        assert_eq!(second, [(1, 0, nids[0], report(4000, 2_010, PeEnd::Signal(9)))]);
        // The end comes when they are taken, as all output.
        let end = |actions: Vec<Action>| {
            actions.iter().any(|a| matches!(a, Action::Send(FromShepherd::Ended(_))))
        };
        for (rank, stderr) in [(0, false), (0, true), (1, false), (1, true)] {
            assert!(!end(shepherd.apply(3 * SECOND, Event::OutputEof { rank, stderr })));
        }
        assert!(!end(shepherd.apply(3 * SECOND, Event::NoChildLeft)));
        let taken = |offset| Event::Frame(ToShepherd::OutputTaken(offset));
        assert!(!end(shepherd.apply(3 * SECOND, taken(1))));
        assert!(end(shepherd.apply(3 * SECOND, taken(2))));
    }
    // Of one that could not be executed there is nothing to tell.
    let mut launch = launch(2);
    launch.launch.report = true;
    let mut shepherd = starting(launch);
    let failed = failed_exec(0);
    assert_eq!(reports(shepherd.apply(0, failed)), []);
    assert_eq!(reports(shepherd.apply(0, ended(0, PeEnd::Exit(1)))), []);
}

#[test]
fn the_end_waits_for_the_output_to_be_taken() {
    let mut shepherd = going(launch(1));
    let data = Bytes::from_static(b"hello");
    let out = Event::Output { rank: 0, stderr: false, data: data.clone() };
    let sent = Action::Send(FromShepherd::Output(Output {
        source: 0,
        offset: 0,
        rank: 0,
        nid: Nid(7),
        stderr: false,
        data,
        report: None,
    }));
    let sent = [sent];
    assert_eq!(shepherd.apply(1, out), sent);
    shepherd.apply(2, ended(0, PeEnd::Exit(0)));
    shepherd.apply(2, Event::NoChildLeft);
    assert_eq!(close(&mut shepherd, 3, 1), None);
    // A lost connection: the output is sent again, then taken.
    assert_eq!(shepherd.apply(4, Event::Disconnected), []);
    assert_eq!(shepherd.apply(5, Event::Connected), [greeting(true, true, false)]);
    assert_eq!(shepherd.apply(6, hello()), sent);
    let taken = Event::Frame(ToShepherd::OutputTaken(5));
    let told = shepherd.apply(7, taken);
    assert!(matches!(&told[..], [Action::Send(FromShepherd::Ended(_))]), "{told:?}");
    // The end is told on each connection, until it is released.
    shepherd.apply(8, Event::Disconnected);
    let actions = shepherd.apply(9, Event::Connected);
    assert!(matches!(&actions[..], [Action::Send(FromShepherd::Hello(hello))] if hello.ended));
    assert_eq!(shepherd.apply(10, hello()), told);
    assert_eq!(shepherd.apply(11, Event::Frame(ToShepherd::Release)), [Action::Exit]);
}

#[test]
fn a_full_window_stops_reading() {
    let mut shepherd = going(launch(1));
    let piece = Bytes::from(vec![b'x'; 1024 * 1024]);
    let out = Event::Output { rank: 0, stderr: false, data: piece };
    assert_eq!(shepherd.apply(1, out.clone()).len(), 1);
    assert_eq!(shepherd.apply(2, out)[1..], [Action::ReadOutput(false)]);
    let taken = Event::Frame(ToShepherd::OutputTaken(1));
    assert_eq!(shepherd.apply(3, taken), [Action::ReadOutput(true)]);
}

#[test]
fn a_new_apinit_is_told_what_it_missed() {
    let mut ready = starting(launch(1));
    ready.apply(1, Event::Disconnected);
    assert_eq!(ready.apply(2, Event::Stopped { rank: 0 }), []);
    assert_eq!(ready.apply(3, Event::Connected), [greeting(true, false, false)]);
    assert_eq!(ready.apply(3, hello()), [Action::Send(FromShepherd::Ready)]);

    let mut barrier = going(HostLaunch { alone: false, ..mpi_launch(1) });
    let entry = |value: &'static str| PmiEntry {
        key: Bytes::from_static(b"k"),
        value: Bytes::from_static(value.as_bytes()),
    };
    let first = BarrierIn { generation: 1, entries: vec![entry("v")] };
    let inside = [Action::Send(FromShepherd::BarrierIn(first))];
    barrier.apply(1, pmi(0, "cmd=put key=k value=v\n"));
    assert_eq!(barrier.apply(2, pmi(0, "cmd=barrier_in\n")), inside);
    barrier.apply(3, Event::Disconnected);
    barrier.apply(3, Event::Connected);
    assert_eq!(barrier.apply(3, hello()), inside);
    let out = |generation| BarrierOut { generation, piece: 0, last: true, entries: vec![] };
    let out = |generation| Event::Frame(ToShepherd::BarrierOut(out(generation)));
    let data = Bytes::from_static(b"cmd=barrier_out rc=0\n");
    assert_eq!(barrier.apply(4, out(2)), []);
    assert_eq!(barrier.apply(4, out(1)), [Action::PmiSend { rank: 0, data }]);
    assert_eq!(barrier.apply(4, out(1)), []);
    // Another host may still be in it.
    barrier.apply(5, Event::Disconnected);
    barrier.apply(5, Event::Connected);
    assert_eq!(barrier.apply(5, hello()), inside);

    let mut dying = going(launch(3));
    let exit = decisive(0, Cause::PeExit { rank: 2, nid: Nid(9), code: 1 });
    dying.apply(0, ended(2, PeEnd::Exit(1)));
    dying.apply(1, Event::Disconnected);
    assert_eq!(dying.apply(2, ended(0, PeEnd::Signal(6)))[0], Action::Signal(15));
    dying.apply(3, Event::Connected);
    let first = decisive(2, Cause::PeSignal { rank: 0, nid: Nid(7), signal: 6 });
    let told = dying.apply(3, hello());
    assert_eq!(told[0], Action::Send(FromShepherd::Decisive(exit)));
    assert_eq!(told[1], Action::Send(FromShepherd::Decisive(first)));
    assert!(matches!(told[2], Action::Notice { .. }));
}

#[test]
fn stdin_has_its_credit() {
    let mut shepherd = starting(HostLaunch { stdin: true, ..launch(1) });
    let some = |count: u64| Bytes::from(vec![b'x'; count as usize]);
    let stdin =
        |offset, count| Event::Frame(ToShepherd::Stdin(StdinPiece { offset, data: some(count) }));
    let step = Bounds::default().stdin / 4;
    assert_eq!(shepherd.apply(1, stdin(0, step)), [Action::WriteStdin(some(step))]);
    let rest = Bounds::default().stdin - step;
    // Said again, in whole or in part: only what is new is written.
    assert_eq!(shepherd.apply(1, stdin(0, step)), []);
    assert_eq!(shepherd.apply(1, stdin(1, step - 1 + rest)), [Action::WriteStdin(some(rest))]);
    // No word for every few bytes, but one for every step.
    assert_eq!(shepherd.apply(2, Event::StdinWritten(step - 1)), []);
    let credit = |credit, received| {
        Action::Send(FromShepherd::StdinCredit(StdinCredit { credit, received }))
    };
    let window = Bounds::default().stdin;
    assert_eq!(shepherd.apply(3, Event::StdinWritten(1)), [credit(window + step, window)]);
    assert_eq!(shepherd.apply(4, stdin(window, step + 1)), [Action::Hangup]);
    assert_eq!(shepherd.apply(4, stdin(window + 1, 1)), [Action::Hangup]);
    let end = |length| Event::Frame(ToShepherd::StdinEnd(length));
    assert_eq!(shepherd.apply(5, end(window + 1)), [Action::Hangup]);
    assert_eq!(shepherd.apply(5, end(window)), [Action::CloseStdin]);
    // What comes after PE 0 has closed it goes nowhere, and stops nobody.
    assert_eq!(shepherd.apply(6, Event::StdinClosed), [credit(2 * window, window)]);
    let all = window + step;
    assert_eq!(shepherd.apply(7, stdin(window, step)), [credit(all + window, all)]);
    assert_eq!(shepherd.apply(8, end(all)), []);
}

#[test]
fn stdin_that_was_closed_is_not_opened_again() {
    let mut shepherd = Shepherd::new(0, key());
    shepherd.apply(0, Event::Connected);
    shepherd.apply(0, hello());
    let piece = |offset| Event::Frame(ToShepherd::Stdin(StdinPiece { offset, data: "ab".into() }));
    shepherd.apply(1, Event::StdinClosed);
    shepherd.apply(2, piece(0));
    let launch = Box::new(HostLaunch { stdin: true, ..launch(1) });
    shepherd.apply(3, Event::Frame(ToShepherd::Launch(launch)));
    // Its beginning would be missing.
    let actions = shepherd.apply(4, piece(2));
    assert!(!actions.iter().any(|a| matches!(a, Action::WriteStdin(_))), "{actions:?}");
}

#[test]
fn a_signal_that_is_said_again_is_passed_on_once() {
    let mut shepherd = going(launch(1));
    let said = |number| Event::Frame(ToShepherd::Signal(NumberedSignal { number, signal: 10 }));
    let taken = |number| Action::Send(FromShepherd::SignalsTaken(number));
    assert_eq!(shepherd.apply(1, said(1)), [Action::Signal(10), taken(1)]);
    assert_eq!(shepherd.apply(1, said(1)), [taken(1)]);
    assert_eq!(shepherd.apply(1, said(2)), [Action::Signal(10), taken(2)]);
    // psched's are counted by themselves.
    let by_psched = PSCHED_SIGNALS + 9;
    assert_eq!(shepherd.apply(2, said(by_psched)), [Action::Signal(10), taken(by_psched)]);
    assert_eq!(shepherd.apply(2, said(by_psched)), [taken(by_psched)]);
    assert_eq!(shepherd.apply(2, said(3)), [Action::Signal(10), taken(3)]);
    assert_eq!(shepherd.apply(2, said(0)), [Action::Signal(10)]);
    shepherd.apply(3, Event::Disconnected);
    shepherd.apply(3, Event::Connected);
    assert_eq!(shepherd.apply(3, hello()), [taken(3), taken(by_psched)]);
}

#[test]
fn without_a_launch_nobody_is_waited_for_for_ever() {
    let mut shepherd = Shepherd::new(0, key());
    assert_eq!(shepherd.apply(0, Event::Tick), [Action::SetTimer(Some(120 * SECOND))]);
    shepherd.apply(SECOND, Event::Connected);
    assert_eq!(shepherd.apply(SECOND, hello()), [Action::SetTimer(None)]);
    assert_eq!(
        shepherd.apply(2 * SECOND, Event::Disconnected),
        [Action::SetTimer(Some(122 * SECOND))]
    );
    assert_eq!(shepherd.apply(122 * SECOND, Event::Tick), [Action::Exit]);
}

#[test]
fn without_the_lifeline_it_kills_and_goes() {
    let mut shepherd = going(launch(1));
    assert_eq!(
        shepherd.apply(0, Event::LifelineGone),
        [Action::KillEverything, Action::SetTimer(Some(100 * MS))]
    );
    assert_eq!(shepherd.apply(100 * MS, Event::Tick)[0], Action::KillEverything);
    // A process that can't be killed keeps it no longer than this.
    assert_eq!(shepherd.apply(3 * SECOND, Event::Tick)[0], Action::Exit);
    assert_eq!(shepherd.apply(3 * SECOND, Event::NoChildLeft), [Action::Exit]);
}

#[test]
fn a_stranger_to_this_application_is_hung_up_on() {
    let mut shepherd = Shepherd::new(0, key());
    shepherd.apply(0, Event::Connected);
    let wrong = Hello { key: Key::parse("13.1").expect("a key"), ..Hello::default() };
    assert_eq!(shepherd.apply(0, Event::Frame(ToShepherd::Hello(wrong))), [Action::Hangup]);
}

/// Anything, in any order.
fn any_event() -> impl Strategy<Value = Event> {
    let rank = 0u32..3;
    let data = prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    let cause = prop_oneof![
        Just(Cause::FrontGone),
        (1..32i32).prop_map(|signal| Cause::Kill { signal, uid: 0 })
    ];
    let end = prop_oneof![any::<u8>().prop_map(PeEnd::Exit), (1..32i32).prop_map(PeEnd::Signal)];
    let text = prop_oneof![
        Just("cmd=init pmi_version=1\n"),
        Just("cmd=barrier_in\n"),
        Just("cmd=finalize\n"),
        Just("cmd=abort exitcode=2\n"),
        Just("rubbish\n")
    ];
    prop_oneof![
        Just(Event::Connected),
        Just(Event::Disconnected),
        Just(hello()),
        (0..4u32, any::<bool>()).prop_map(|(n, stdin)| {
            let launch = HostLaunch { stdin, ..mpi_launch(n) };
            Event::Frame(ToShepherd::Launch(Box::new(launch)))
        }),
        Just(Event::Frame(ToShepherd::Go)),
        (cause, 0..3u64).prop_map(|(cause, s)| {
            let kill_after = Duration::from_secs(s);
            Event::Frame(ToShepherd::Terminate { cause, kill_after })
        }),
        (0..40u64, data.clone()).prop_map(|(offset, data)| {
            Event::Frame(ToShepherd::Stdin(StdinPiece { offset, data }))
        }),
        (0..3u64).prop_map(|number| {
            Event::Frame(ToShepherd::Signal(NumberedSignal { number, signal: 10 }))
        }),
        any::<u64>().prop_map(|n| Event::Frame(ToShepherd::OutputTaken(n))),
        (0..3u64, 0..2u32, any::<bool>()).prop_map(|(generation, piece, last)| {
            let out = BarrierOut { generation, piece, last, entries: vec![] };
            Event::Frame(ToShepherd::BarrierOut(out))
        }),
        rank.clone().prop_map(|rank| Event::Stopped { rank }),
        rank.clone().prop_map(failed_exec),
        (rank.clone(), end).prop_map(|(rank, end)| ended(rank, end)),
        (rank.clone(), text).prop_map(|(rank, text)| pmi(rank, text)),
        (rank.clone(), any::<bool>(), data).prop_map(|(rank, stderr, data)| Event::Output {
            rank,
            stderr,
            data
        }),
        (rank, any::<bool>()).prop_map(|(rank, stderr)| Event::OutputEof { rank, stderr }),
        any::<u64>().prop_map(Event::StdinWritten),
        Just(Event::StdinClosed),
        Just(Event::NoChildLeft),
        Just(Event::Tick),
        Just(Event::LifelineGone),
    ]
}

proptest! {
    /// No order of things brings it down, nor makes it fork twice, go unready or run after an end.
    #[test]
    fn any_order_is_survived(events in prop::collection::vec(any_event(), 0..60)) {
        let mut shepherd = Shepherd::new(0, key());
        let (mut forks, mut stopped, mut killed) = (0, std::collections::BTreeSet::new(), false);
        let mut width = 0;
        for (now, event) in (0..).step_by(50 * MS as usize).zip(events) {
            match &event {
                Event::Stopped { rank } if forks > 0 => drop(stopped.insert(*rank)),
                _ => {}
            }
            for action in shepherd.apply(now, event) {
                match action {
                    Action::Fork(launch) => {
                        forks += 1;
                        width = launch.pes.len();
                    }
                    Action::KillEverything => killed = true,
                    Action::Go => {
                        prop_assert!(!killed, "goes after it was killed");
                        prop_assert!(stopped.len() >= width, "goes before all stand");
                    }
                    _ => {}
                }
            }
            prop_assert!(forks <= 1);
        }
    }
}

/// A PE that the kernel killed, with this resident set.
fn killed(rank: u32, max_rss_kib: u64) -> Event {
    let usage = Usage { max_rss_kib, ..Usage::default() };
    Event::PeEnded { rank, pid: 4000 + rank, end: PeEnd::Signal(9), usage }
}

/// The decisive end that is told among these.
fn told(actions: &[Action]) -> Option<Decisive> {
    actions.iter().find_map(|action| match action {
        Action::Send(FromShepherd::Decisive(decisive)) => Some(decisive.clone()),
        _ => None,
    })
}

/// Four PEs on two nodes, 7 and 8, each with 4 GiB.
fn limited() -> Shepherd {
    let pes = |rank| LocalPe { rank, nid: Nid(7 + rank / 2), cpus: vec![], nice: 0, depth: 0 };
    let pes = (0..4).map(pes).collect();
    going(HostLaunch { pes, memory_per_pe: Some(4 << 30), ..launch(4) })
}

#[test]
fn who_went_over_the_memory_is_told_when_all_have_died() {
    let nid = Nid(8);
    let mut shepherd = limited();
    assert_eq!(shepherd.apply(5, Event::MemoryKill { nid, over_limit: true }), []);
    assert_eq!(told(&shepherd.apply(5, killed(2, 1 << 20))), None);
    assert_eq!(told(&shepherd.apply(6, killed(3, 3000))), None);
    // What PE 3 had started is larger than itself.
    shepherd.apply(7, Event::OrphanKilled { rank: 3, max_rss_kib: 5 << 20 });
    let actions = shepherd.apply(8, Event::NodeReaped(nid));
    let cause = Cause::OverMemory { nid, pes: 2, per_pe: 4 << 30, largest: Some((3, 5 << 30)) };
    let text = "NID 8 went over 8G (2 PEs x 4G); largest: PE 3, 5G";
    assert_eq!((cause.to_string().as_str(), cause.status()), (text, 137));
    assert_eq!(told(&actions), Some(decisive(5, cause.clone())), "at the time of the first");
    let what = Seen::Ends(cause.clone());
    assert!(actions.contains(&Action::Notice { nid, what }), "{actions:?}");
    // The others are ended in consequence.
    assert!(actions.contains(&Action::Signal(15)), "{actions:?}");
    for rank in [0, 1] {
        assert_eq!(told(&shepherd.apply(9, ended(rank, PeEnd::Signal(15)))), None);
    }
    shepherd.apply(9, Event::NoChildLeft);
    let end = close(&mut shepherd, 9, 4).expect("all told");
    assert_eq!(end.first, Some(decisive(5, cause)));
    let counts: Vec<_> = end.ends.iter().map(|e| (e.end, e.count, e.consequence)).collect();
    assert_eq!(counts, [(PeEnd::Signal(9), 2, false), (PeEnd::Signal(15), 2, true)]);
}

#[test]
fn a_death_for_memory_is_not_kept_back_for_long() {
    let nid = Nid(7);
    let after = limits::GATHER.as_nanos() as u64 + 5;
    let mut shepherd = limited();
    shepherd.apply(5, Event::MemoryKill { nid, over_limit: true });
    let actions = shepherd.apply(5, killed(0, 1 << 20));
    assert_eq!(actions.last(), Some(&Action::SetTimer(Some(after))));
    // PE 1 waits in the kernel. PE 0's size is known.
    let cause = |largest| Cause::OverMemory { nid, pes: 2, per_pe: 4 << 30, largest };
    let first = Some(decisive(5, cause(Some((0, 1 << 30)))));
    assert_eq!(told(&shepherd.apply(after, Event::Tick)), first);

    // Something else ends the application meanwhile: this came first.
    let mut shepherd = limited();
    shepherd.apply(5, Event::MemoryKill { nid, over_limit: true });
    shepherd.apply(5, killed(1, 0));
    let cause_of_end = Cause::Kill { signal: 15, uid: 0 };
    let kill_after = Duration::from_secs(5);
    let terminate = ToShepherd::Terminate { cause: cause_of_end, kill_after };
    let actions = shepherd.apply(6, Event::Frame(terminate));
    assert_eq!(told(&actions), Some(decisive(5, cause(None))));
}

#[test]
fn other_deaths_by_kill_are_what_they_were() {
    // The host's memory, not the group's.
    let nid = Nid(7);
    let mut shepherd = limited();
    shepherd.apply(5, Event::MemoryKill { nid, over_limit: false });
    shepherd.apply(5, killed(1, 4000));
    let first = Some(decisive(5, Cause::HostMemory { rank: 1, nid }));
    assert_eq!(told(&shepherd.apply(5, Event::NodeReaped(nid))), first);
    // Somebody's KILL, on a node on which the kernel has done nothing.
    let mut shepherd = limited();
    shepherd.apply(5, Event::MemoryKill { nid, over_limit: true });
    let first = Some(decisive(6, Cause::PeSignal { rank: 2, nid: Nid(8), signal: 9 }));
    assert_eq!(told(&shepherd.apply(6, ended(2, PeEnd::Signal(9)))), first);
}

#[test]
fn a_node_full_of_processes_is_told_once() {
    let mut shepherd = going(HostLaunch { pids_max: Some(40), ..launch(2) });
    let notice = Action::Notice { nid: Nid(8), what: Seen::ProcessLimit(40) };
    assert_eq!(shepherd.apply(5, Event::ProcessLimit { nid: Nid(8) }), [notice]);
    assert_eq!(shepherd.apply(6, Event::ProcessLimit { nid: Nid(8) }), []);
}

#[test]
fn what_outlives_its_kill_is_named_and_killed_less_often() {
    const MS: u64 = 1_000_000;
    let mut shepherd = going(launch(2));
    let kill = ToShepherd::Terminate {
        cause: Cause::Kill { signal: 9, uid: 0 },
        kill_after: Duration::ZERO,
    };
    let actions = shepherd.apply(0, Event::Frame(kill));
    assert!(actions.contains(&Action::KillEverything));
    let (mut kills, mut named) = (0, Vec::new());
    for ms in 1..20_000 {
        for action in shepherd.apply(ms * MS, Event::Tick) {
            match action {
                Action::KillEverything => kills += 1,
                Action::NameLeft => named.push(ms),
                _ => {}
            }
        }
    }
    assert!((5..15).contains(&kills), "{kills}");
    assert_eq!(named, [1_000, 6_000, 11_000, 16_000]);
    let left = |pid: i32| Left { pid, nid: Nid(8), text: format!("pid {pid} waits") };
    let notice =
        |pid: i32| Action::Notice { nid: Nid(8), what: Seen::Process(format!("pid {pid} waits")) };
    let stuck = |pids: &[i32]| {
        let texts = pids.iter().map(|pid| format!("pid {pid} waits")).collect();
        Action::Send(FromShepherd::Stuck(texts))
    };
    let now = 20_000 * MS;
    let actions = shepherd.apply(now, Event::LeftNamed(vec![left(7)]));
    assert_eq!(actions, [stuck(&[7]), notice(7)]);
    // Nothing new; one more; each is told once, and apinit knows all.
    assert_eq!(shepherd.apply(now, Event::LeftNamed(vec![left(7)])), []);
    let actions = shepherd.apply(now, Event::LeftNamed(vec![left(7), left(9)]));
    assert_eq!(actions, [stuck(&[7, 9]), notice(9)]);
    shepherd.apply(now, Event::Disconnected);
    shepherd.apply(now, Event::Connected);
    assert!(shepherd.apply(now, hello()).contains(&stuck(&[7, 9])), "said again");
    // At last.
    let actions = shepherd.apply(now, Event::NoChildLeft);
    assert!(!actions.contains(&Action::NameLeft), "{actions:?}");
    let actions = shepherd.apply(now + 60_000 * MS, Event::Tick);
    assert!(!actions.contains(&Action::NameLeft), "{actions:?}");
}

fn wanted() -> Vec<WantedProgram> {
    vec![WantedProgram { part: 0, size: 7, name: b"a.out".to_vec() }]
}

#[test]
fn pes_are_made_once_their_programs_are_here() {
    let mut shepherd = starting(launch(1));
    let told = Action::Send(FromShepherd::ProgramsWanted { programs: wanted() });
    assert_eq!(shepherd.apply(1, Event::ProgramsWanted(wanted())), std::slice::from_ref(&told));
    // Said again to an apinit that comes back.
    shepherd.apply(1, Event::Disconnected);
    shepherd.apply(1, Event::Connected);
    assert_eq!(shepherd.apply(1, hello()), [told]);
    let given = vec![GivenProgram { path: b"/copy".to_vec(), ..GivenProgram::default() }];
    let come = Event::Frame(ToShepherd::Programs { programs: given.clone() });
    assert_eq!(shepherd.apply(2, come.clone()), [Action::ForkWith(given)]);
    assert_eq!(shepherd.apply(2, come), []);
    assert_eq!(shepherd.apply(3, Event::Stopped { rank: 0 }), [Action::Send(FromShepherd::Ready)]);
}

/// No PE has been made, and none will tell of its end.
#[test]
fn one_that_is_ended_before_its_programs_have_come_is_over() {
    let kill = Cause::Kill { signal: 9, uid: 7 };
    let terminate = |kill_after| ToShepherd::Terminate { cause: kill.clone(), kill_after };
    for kill_after in [Duration::ZERO, Duration::from_secs(5)] {
        let mut shepherd = starting(launch(2));
        shepherd.apply(1, Event::ProgramsWanted(wanted()));
        let actions = shepherd.apply(2, Event::Frame(terminate(kill_after)));
        let ended = actions.iter().any(|a| matches!(a, Action::Send(FromShepherd::Ended(_))));
        assert!(ended, "{actions:?}");
        let come = ToShepherd::Programs { programs: vec![GivenProgram::default()] };
        assert_eq!(shepherd.apply(3, Event::Frame(come)), []);
        assert_eq!(shepherd.apply(4, Event::Frame(ToShepherd::Release)), [Action::Exit]);
    }
    // Ended while it was looked for them; told to go while it waits.
    let mut shepherd = starting(launch(1));
    shepherd.apply(1, Event::Frame(terminate(Duration::ZERO)));
    let actions = shepherd.apply(1, Event::ProgramsWanted(wanted()));
    assert!(
        actions.iter().any(|a| matches!(a, Action::Send(FromShepherd::Ended(_)))),
        "{actions:?}"
    );
    let mut shepherd = starting(launch(1));
    shepherd.apply(1, Event::ProgramsWanted(wanted()));
    assert_eq!(shepherd.apply(2, Event::LifelineGone), [Action::Exit]);
}
