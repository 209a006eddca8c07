//! Programs that PEs spawn.

use super::*;
use crate::apshepherd::decide::pmix::{FromMix, NO_ROOM, NOT_FOUND, SPAWN_FAILED, SUCCESS, ToMix};
use crate::apshepherd::decide::spawn::{Program, Request};
use crate::apteam::launch::{LocalPe, ServePmix, Spawned};
use crate::apteam::protocol::letters::{Letter, LetterText, SpawnedPe, Spawning};
use crate::apteam::protocol::peers::PmiEntry;
use crate::apteam::protocol::stacks::{Made, Placed};

/// PEs of this depth, of the processors that each may run on.
fn deep(depth: u32, cpus: &[&[u32]]) -> HostLaunch {
    let mut launch = mpi_launch(cpus.len() as u32);
    for (pe, cpus) in launch.pes.iter_mut().zip(cpus) {
        (pe.nid, pe.cpus, pe.depth) = (Nid(7), cpus.to_vec(), depth);
    }
    launch
}

/// PE `rank` spawns so many.
fn spawn(shepherd: &mut Shepherd, rank: u32, pes: u32) -> Vec<Action> {
    let text =
        format!("mcmd=spawn\nnprocs={pes}\nexecname=./a\ntotspawns=1\nspawnssofar=1\nendcmd\n");
    shepherd.apply(MS, Event::Pmi { rank, data: text.into() })
}

fn spawned(actions: &[Action]) -> Option<(u64, Request)> {
    actions.iter().find_map(|action| match action {
        Action::Spawn { number, request, .. } => Some((*number, request.clone())),
        _ => None,
    })
}

fn answer(rank: u32, runs: bool) -> Action {
    let line =
        if runs { "cmd=spawn_result rc=0\n" } else { "cmd=spawn_result rc=-1 msg=not_spawned\n" };
    Action::PmiSend { rank, data: line.into() }
}

fn notice(actions: &[Action]) -> String {
    let text = |action: &Action| match action {
        Action::Notice { what: Seen::Pmi { text, .. }, .. } => Some(text.clone()),
        _ => None,
    };
    actions.iter().find_map(text).unwrap_or_default()
}

fn placed(number: u64, why_not: &str) -> Event {
    Event::Frame(ToShepherd::DebuggerPlaced(Placed {
        number,
        why_not: why_not.into(),
        spawned: true,
    }))
}

/// Spawned, made, placed, and runs.
fn runs(shepherd: &mut Shepherd, rank: u32, pes: u32) -> u64 {
    let (number, _) = spawned(&spawn(shepherd, rank, pes)).expect("there is room");
    shepherd.apply(MS, Event::SpawnMade { number, nid: Nid(7), pid: 99 });
    let actions = shepherd.apply(MS, placed(number, ""));
    assert_eq!(actions[..2], [Action::LetSpawnedRun(number), answer(rank, true)]);
    number
}

#[test]
fn what_is_spawned_runs_when_it_has_its_place() {
    let mut shepherd = going(deep(4, &[&[0, 1, 2, 3]]));
    let (number, request) = spawned(&spawn(&mut shepherd, 0, 3)).expect("there is room");
    assert_eq!((number, request.pes()), (1, 3));
    let made = Made { number, nid: Nid(7), pid: 99, spawned: true };
    let asks = Action::Send(FromShepherd::DebuggerMade(made));
    assert_eq!(shepherd.apply(MS, Event::SpawnMade { number, nid: Nid(7), pid: 99 })[0], asks);
    // apinit is another one before it has answered.
    shepherd.apply(MS, Event::Disconnected);
    shepherd.apply(MS, Event::Connected);
    assert!(shepherd.apply(MS, hello()).contains(&asks));
    assert_eq!(
        shepherd.apply(MS, placed(number, ""))[..2],
        [Action::LetSpawnedRun(number), answer(0, true)]
    );
    assert_eq!(shepherd.apply(MS, placed(number, "")), [], "said twice");
}

/// PE `rank` spawns so many, for which there would be room if others had ended: what follows after five seconds.
fn waits_in_vain(shepherd: &mut Shepherd, rank: u32, pes: u32) -> Vec<Action> {
    let actions = spawn(shepherd, rank, pes);
    assert!(actions.iter().all(|action| matches!(action, Action::SetTimer(_))), "{actions:?}");
    let actions = shepherd.apply(MS + 5 * SECOND, Event::Tick);
    assert!(actions.contains(&answer(rank, false)), "{actions:?}");
    actions
}

#[test]
fn a_request_waits_for_programs_that_end() {
    let mut shepherd = going(deep(2, &[&[0, 1], &[2, 3]]));
    let number = runs(&mut shepherd, 0, 1);
    assert_eq!(spawned(&spawn(&mut shepherd, 0, 1)), None);
    // Another PE has its own processors.
    runs(&mut shepherd, 1, 1);
    assert_eq!(spawned(&shepherd.apply(MS + 5 * SECOND - 1, Event::Tick)), None);
    let end = Event::SpawnEnded { number, end: Ok(PeEnd::Exit(0)) };
    assert!(spawned(&shepherd.apply(2 * SECOND, end)).is_some());
    // One whose PE has ended meanwhile.
    let mut shepherd = going(deep(2, &[&[0, 1], &[2, 3]]));
    let number = runs(&mut shepherd, 0, 1);
    spawn(&mut shepherd, 0, 1);
    shepherd.apply(MS, ended(0, PeEnd::Exit(0)));
    let end = Event::SpawnEnded { number, end: Ok(PeEnd::Exit(0)) };
    assert_eq!(spawned(&shepherd.apply(2 * SECOND, end)), None);
    // And where the application ends.
    let mut shepherd = going(deep(2, &[&[0, 1]]));
    let number = runs(&mut shepherd, 0, 1);
    spawn(&mut shepherd, 0, 1);
    let end = Event::SpawnEnded { number, end: Ok(PeEnd::Exit(3)) };
    assert!(notice(&shepherd.apply(2 * SECOND, end)).contains("the application ends"));
}

#[test]
fn there_is_room_beside_the_pes() {
    let none = "called MPI_Comm_spawn in vain: a process for which it has no processor but those on which PEs run: \
                give each PE as many as it needs, with its own (-d), or let PEs share processors (--oversubscribe)";
    let mut one = going(deep(1, &[&[0], &[1]]));
    let actions = spawn(&mut one, 0, 1);
    assert_eq!((&actions[0], notice(&actions)), (&answer(0, false), none.to_owned()));
    // With -d each has its own.
    let mut own = going(deep(3, &[&[0, 1, 2], &[3, 4, 5]]));
    assert!(
        notice(&spawn(&mut own, 0, 3))
            .contains("3 processes for which it has 2 processors beside those")
    );
    let first = runs(&mut own, 0, 2);
    assert!(notice(&waits_in_vain(&mut own, 0, 1)).contains("no processor but"));
    runs(&mut own, 1, 2);
    own.apply(MS, Event::SpawnEnded { number: first, end: Ok(PeEnd::Exit(0)) });
    runs(&mut own, 0, 1);
    // PEs that are not bound (-cc none) have together what is left.
    let all = [0, 1, 2, 3];
    let mut common = going(deep(2, &[&all, &all]));
    runs(&mut common, 0, 1);
    let actions = waits_in_vain(&mut common, 1, 2);
    assert!(notice(&actions).contains("it has 1 processor beside those"));
    // A PE that has ended needs no processor.
    common.apply(MS, ended(0, PeEnd::Exit(0)));
    runs(&mut common, 1, 2);
    // With --oversubscribe there is no limit.
    let mut shares = deep(1, &[&[0]]);
    shares.launch.shares = true;
    runs(&mut going(shares), 0, 1000);
}

#[test]
fn what_does_not_come_to_run_is_refused() {
    let mut shepherd = going(deep(2, &[&[0, 1]]));
    let refused = |actions: Vec<Action>, why: &str| {
        assert!(actions.contains(&answer(0, false)), "{actions:?}");
        assert_eq!(notice(&actions), format!("called MPI_Comm_spawn in vain: {why}"));
    };
    let (number, _) = spawned(&spawn(&mut shepherd, 0, 1)).expect("there is room");
    let end = Err("there is no aprun".to_owned());
    refused(shepherd.apply(MS, Event::SpawnEnded { number, end }), "there is no aprun");
    let waits = |shepherd: &mut Shepherd| {
        let (number, _) = spawned(&spawn(shepherd, 0, 1)).expect("there is room");
        shepherd.apply(MS, Event::SpawnMade { number, nid: Nid(7), pid: 99 });
        number
    };
    let number = waits(&mut shepherd);
    let actions = shepherd.apply(MS, placed(number, "no group"));
    assert_eq!(actions[0], Action::EndSpawned(number));
    refused(actions, "no group");
    assert!(
        notice(&waits_in_vain(&mut shepherd, 0, 1)).contains("no processor but"),
        "it has not ended yet"
    );
    shepherd.apply(MS, Event::SpawnEnded { number, end: Ok(PeEnd::Signal(9)) });
    // An apinit that does not answer.
    let number = waits(&mut shepherd);
    let actions = shepherd.apply(MS + 8 * SECOND, Event::Tick);
    assert!(
        actions.contains(&Action::EndSpawned(number)) && notice(&actions).contains("within 8 s")
    );
    shepherd.apply(9 * SECOND, Event::SpawnEnded { number, end: Ok(PeEnd::Signal(9)) });
    // It is killed before it has its place.
    let number = waits(&mut shepherd);
    let end = Ok(PeEnd::Signal(9));
    refused(shepherd.apply(MS, Event::SpawnEnded { number, end }), "its process was killed");
}

#[test]
fn programs_that_were_spawned_have_a_bound() {
    let mut launch = deep(1, &[&[0]]);
    launch.launch.shares = true;
    let mut shepherd = going(launch);
    (0..64).for_each(|_| {
        runs(&mut shepherd, 0, 1);
    });
    assert!(
        notice(&spawn(&mut shepherd, 0, 1))
            .contains("64 programs that have not ended, the maximum")
    );
}

#[test]
fn an_application_lasts_until_what_it_has_spawned_has_ended() {
    let mut shepherd = going(deep(2, &[&[0, 1]]));
    let number = runs(&mut shepherd, 0, 1);
    let actions = shepherd.apply(SECOND, ended(0, PeEnd::Exit(0)));
    let lingers = Action::SetTimer(Some(SECOND + LINGER.as_nanos() as u64));
    assert!(!actions.contains(&lingers), "{actions:?}");
    let end = Ok(PeEnd::Exit(0));
    let actions = shepherd.apply(SECOND, Event::SpawnEnded { number, end });
    assert!(actions.contains(&lingers), "{actions:?}");
}

#[test]
fn a_bad_end_of_what_was_spawned_ends_the_application() {
    let (rank, nid) = (0, Nid(7));
    for (end, cause) in [
        (Ok(PeEnd::Exit(3)), Cause::SpawnedEnd { rank, nid, code: 3 }),
        (Ok(PeEnd::Signal(9)), Cause::SpawnedEnd { rank, nid, code: 137 }),
        (
            Err("there is none".to_owned()),
            Cause::NotMet {
                rank,
                nid,
                text: "can't run what it has spawned: there is none".into(),
            },
        ),
    ] {
        let mut shepherd = going(deep(2, &[&[0, 1]]));
        let number = runs(&mut shepherd, 0, 1);
        let actions = shepherd.apply(SECOND, Event::SpawnEnded { number, end });
        assert_eq!(actions[0], Action::Send(FromShepherd::Decisive(decisive(SECOND, cause))));
        assert!(actions.contains(&Action::Signal(15)), "{actions:?}");
        assert!(notice(&spawn(&mut shepherd, 0, 1)).contains("the application ends"));
    }
}

/// What PEs have to do after TERM, those that were spawned have, too.
#[test]
fn what_was_spawned_has_the_grace_of_the_pes() {
    let mut shepherd = going(deep(2, &[&[0, 1]]));
    let number = runs(&mut shepherd, 0, 1);
    let (cause, kill_after) = (Cause::Kill { signal: 15, uid: 1 }, Duration::from_secs(5));
    shepherd.apply(SECOND, Event::Frame(ToShepherd::Terminate { cause, kill_after }));
    shepherd.apply(SECOND, ended(0, PeEnd::Signal(15)));
    let actions = shepherd.apply(2 * SECOND, Event::Tick);
    assert!(!actions.contains(&Action::SignalLeft(15)), "{actions:?}");
    assert!(shepherd.apply(6 * SECOND, Event::Tick).contains(&Action::KillEverything));
    shepherd.apply(6 * SECOND, Event::SpawnEnded { number, end: Ok(PeEnd::Signal(9)) });
}

/// aprun may be killed with the PEs for want of memory, and be waited for first.
#[test]
fn a_kill_for_want_of_memory_is_told_as_such() {
    let mut shepherd = going(deep(2, &[&[0, 1]]));
    let number = runs(&mut shepherd, 0, 1);
    let (nid, end) = (Nid(7), Ok(PeEnd::Signal(9)));
    shepherd.apply(SECOND, Event::MemoryKill { nid, over_limit: false });
    let mut actions = shepherd.apply(SECOND, Event::SpawnEnded { number, end });
    actions.extend(shepherd.apply(SECOND, ended(0, PeEnd::Signal(9))));
    actions.extend(shepherd.apply(SECOND, Event::NodeReaped(nid)));
    let causes = actions.iter().filter_map(|action| match action {
        Action::Send(FromShepherd::Decisive(decisive)) => Some(decisive.cause.clone()),
        _ => None,
    });
    assert_eq!(Vec::from_iter(causes), [Cause::HostMemory { rank: 0, nid }]);
}

#[test]
fn who_was_spawned_is_a_world_of_another_name() {
    let name = |spawned: Option<Spawned>| {
        let mut shepherd = going(HostLaunch { spawned, ..mpi_launch(1) });
        let said = |shepherd: &mut Shepherd, line| match &shepherd.apply(MS, pmi(0, line))[..] {
            [Action::PmiSend { data, .. }] => String::from_utf8_lossy(data).into_owned(),
            other => panic!("{other:?}"),
        };
        (said(&mut shepherd, "cmd=get_my_kvsname\n"), said(&mut shepherd, "cmd=get key=PORT\n"))
    };
    let (own, nothing) = name(None);
    let entries = vec![PmiEntry { key: "PORT".into(), value: "x".into() }];
    let (other, port) = name(Some(Spawned { entries, ..Spawned::default() }));
    assert_ne!(own, other);
    assert!(nothing.contains("key_not_found") && port.ends_with(" value=x\n"));
}

/// The application of a PE of Open MPI.
fn open_mpi(depth: u32) -> HostLaunch {
    let mut launch = deep(depth, &[&[0, 1, 2, 3]]);
    (launch.launch.pmix, launch.pmix_name) = (ServePmix::Needed, "name".to_owned());
    launch
}

/// PE 0 asks by PMIx for two programs, of two PEs and of one.
fn asks() -> Event {
    let program = |pes| Program { pes, command: b"./a".to_vec(), ..Program::default() };
    Event::Mix(FromMix::Spawn {
        number: 9,
        rank: 0,
        spawner: None,
        programs: vec![program(2), program(1)],
    })
}

/// What appmix is told of them.
fn spawning(space: &str) -> Spawning {
    Spawning { space: space.into(), width: 3, firsts: vec![2], parent: 0, spawner: None }
}

fn told(actions: &[Action]) -> Vec<ToMix> {
    let message = |action: &Action| match action {
        Action::TellMix(message) => Some(message.clone()),
        _ => None,
    };
    actions.iter().filter_map(message).collect()
}

fn over(status: i32, name: &str) -> ToMix {
    ToMix::Spawned { number: 9, status, name: name.to_owned() }
}

fn prepared(number: u64, why_not: &str) -> Event {
    let environment = vec![b"PMIX_A=1".to_vec()];
    Event::Mix(FromMix::Prepared { number, environment, why_not: why_not.to_owned() })
}

/// appmix knows of the new PEs before they are there, and until they have ended.
#[test]
fn what_is_spawned_by_pmix_is_known_to_appmix() {
    let mut shepherd = going(open_mpi(4));
    assert_eq!(
        told(&shepherd.apply(MS, asks())),
        [ToMix::Prepare { number: 1, spawning: spawning("name.0.1") }]
    );
    let actions = shepherd.apply(MS, prepared(1, ""));
    let (number, request) = spawned(&actions).expect("it is made");
    assert_eq!((number, request.pes(), &request.pmix[..]), (1, 3, &[b"PMIX_A=1".to_vec()][..]));
    assert_eq!(spawned(&shepherd.apply(MS, prepared(1, ""))), None, "said twice");
    shepherd.apply(MS, Event::SpawnMade { number, nid: Nid(7), pid: 99 });
    let actions = shepherd.apply(MS, placed(number, ""));
    assert_eq!(actions[0], Action::LetSpawnedRun(number));
    assert_eq!(told(&actions), [over(SUCCESS, "name.0.1")]);
    let end = Ok(PeEnd::Exit(0));
    let actions = shepherd.apply(MS, Event::SpawnEnded { number, end });
    assert_eq!(told(&actions), [ToMix::Forget("name.0.1".into())]);
    // The next has another name.
    assert!(matches!(&told(&shepherd.apply(MS, asks()))[..], [ToMix::Prepare { number: 2, .. }]));
}

#[test]
fn a_spawn_by_pmix_is_refused_with_a_reason() {
    let refused = |actions: Vec<Action>, why: &str| {
        assert_eq!(told(&actions).last(), Some(&over(SPAWN_FAILED, "")));
        assert!(notice(&actions).contains(why), "{}", notice(&actions));
    };
    let mut shepherd = going(open_mpi(2));
    refused(shepherd.apply(MS, asks()), "3 processes for which it has 1 processor");
    let mut shepherd = going(HostLaunch { alone: false, ..open_mpi(4) });
    refused(shepherd.apply(MS, asks()), "PEs on more than 1024 hosts can't spawn");
    let mut shepherd = going(of_three_hosts());
    shepherd.apply(MS, Event::Pmix3(0));
    refused(shepherd.apply(MS, asks()), "has PMIx 3, which can't connect them");
    let mut shepherd = going(of_three_hosts());
    shepherd.apply(MS, Event::Pmix3(1));
    assert_eq!(told(&shepherd.apply(MS, asks())).len(), 1, "of another PE");
    let mut many = open_mpi(4);
    many.launch.shares = true;
    let program = Program { pes: 16_385, command: b"./a".to_vec(), ..Program::default() };
    let asks_many = FromMix::Spawn { number: 9, rank: 0, spawner: None, programs: vec![program] };
    refused(going(many).apply(MS, Event::Mix(asks_many)), "16385 processes are more than 16384");
    let mut shepherd = going(open_mpi(4));
    shepherd.apply(MS, asks());
    let actions = shepherd.apply(MS, prepared(1, "no memory"));
    assert_eq!(told(&actions)[0], ToMix::Forget("name.0.1".into()));
    refused(actions, "no memory");
}

#[test]
fn an_abort_of_what_was_spawned_by_pmix_ends_the_application() {
    let mut shepherd = going(open_mpi(4));
    shepherd.apply(MS, asks());
    let actions = shepherd.apply(MS, Event::Mix(FromMix::SpawnedAbort { number: 1, code: 7 }));
    let cause = Cause::SpawnedEnd { rank: 0, nid: Nid(7), code: 7 };
    assert_eq!(actions[0], Action::Send(FromShepherd::Decisive(decisive(MS, cause))));
}

/// PEs 0 and 1 are here, 2 and 3 on another host each.
fn of_three_hosts() -> HostLaunch {
    let mut launch = HostLaunch { alone: false, others: vec![2, 3], width: 4, ..open_mpi(4) };
    launch.pes.push(LocalPe { rank: 1, cpus: vec![4, 5, 6, 7], ..launch.pes[0].clone() });
    launch
}

fn letters(actions: &[Action]) -> Vec<Letter> {
    let letter = |action: &Action| match action {
        Action::Send(FromShepherd::Letter(letter)) => Some(letter.clone()),
        _ => None,
    };
    actions.iter().filter_map(letter).collect()
}

/// The answer of the host of this PE to the question of this number.
fn answers(from: u32, number: u64, status: i32, why: &'static str) -> Event {
    let text = LetterText::Answer { status, data: why.into() };
    Event::Frame(ToShepherd::Letter(Letter { to: 0, from, number, text }))
}

/// PEs of other hosts may meet what is spawned.
#[test]
fn all_hosts_know_of_what_is_spawned_before_it_is_there() {
    let mut shepherd = going(of_three_hosts());
    let asked = letters(&shepherd.apply(MS, asks()));
    let question = |to, number| {
        let text = LetterText::Spawning(spawning("name.0.1"));
        Letter { to, from: 0, number, text }
    };
    assert_eq!(asked, [question(2, 1), question(3, 2)]);
    assert_eq!(spawned(&shepherd.apply(MS, answers(2, 1, SUCCESS, ""))), None);
    assert_eq!(spawned(&shepherd.apply(MS, prepared(1, ""))), None);
    assert_eq!(spawned(&shepherd.apply(MS, answers(2, 1, SUCCESS, ""))), None, "it comes twice");
    // (The PEs of the third host have ended.)
    let (number, _) =
        spawned(&shepherd.apply(MS, answers(3, 2, NOT_FOUND, ""))).expect("all know of it");
    shepherd.apply(MS, Event::SpawnMade { number, nid: Nid(7), pid: 99 });
    shepherd.apply(MS, placed(number, ""));
    let end = Ok(PeEnd::Exit(0));
    let actions = shepherd.apply(MS, Event::SpawnEnded { number, end });
    let over = |to, number| {
        let text = LetterText::SpawnedEnded("name.0.1".into());
        Letter { to, from: 0, number, text }
    };
    assert_eq!(letters(&actions), [over(2, 3), over(3, 4)]);
}

#[test]
fn a_spawn_is_refused_where_another_host_cant_know_of_it() {
    let mut shepherd = going(of_three_hosts());
    shepherd.apply(MS, asks());
    shepherd.apply(MS, prepared(1, ""));
    shepherd.apply(MS, answers(2, 1, NO_ROOM, "no memory"));
    let actions = shepherd.apply(MS, answers(3, 2, SUCCESS, ""));
    assert_eq!(
        told(&actions),
        [ToMix::Forget("name.0.1".into()), over(SPAWN_FAILED, "")],
        "after the last answer"
    );
    let text = "called MPI_Comm_spawn in vain: on another host of it, no memory";
    assert_eq!((notice(&actions), letters(&actions).len()), (text.to_owned(), 2));
}

/// A host that does not answer, and an appmix.
#[test]
fn a_spawn_is_refused_where_somebody_does_not_answer() {
    let late = MS + 600 * SECOND;
    let refused = |shepherd: &mut Shepherd, who: &str| {
        let actions = shepherd.apply(late, Event::Tick);
        assert_eq!(told(&actions).last(), Some(&over(SPAWN_FAILED, "")));
        let text = format!("called MPI_Comm_spawn in vain: {who} did not answer within 600 s");
        assert_eq!(notice(&actions), text);
    };
    let mut shepherd = going(of_three_hosts());
    shepherd.apply(MS, asks());
    shepherd.apply(MS, answers(2, 1, SUCCESS, ""));
    shepherd.apply(MS, prepared(1, ""));
    assert_eq!(told(&shepherd.apply(late - 1, Event::Tick)), []);
    refused(&mut shepherd, "another host of it");
    // It is not asked again, and its answer is too late.
    let again = letters(&shepherd.apply(late + 3600 * SECOND, Event::Tick));
    assert!(again.iter().all(|letter| matches!(letter.text, LetterText::SpawnedEnded(_))));
    assert_eq!(spawned(&shepherd.apply(late, answers(3, 2, SUCCESS, ""))), None);
    let mut shepherd = going(open_mpi(4));
    shepherd.apply(MS, asks());
    refused(&mut shepherd, "appmix");
    assert_eq!(spawned(&shepherd.apply(late, prepared(1, ""))), None);
}

/// The other side of it.
#[test]
fn what_another_host_spawns_is_known_until_it_has_ended() {
    let mut shepherd = going(of_three_hosts());
    let asks =
        |number, text| Event::Frame(ToShepherd::Letter(Letter { to: 0, from: 3, number, text }));
    let theirs = || Spawning { parent: 3, ..spawning("name.2.1") };
    let begins = |number| asks(number, LetterText::Spawning(theirs()));
    let answer = |number, status, why: &'static str| {
        let text = LetterText::Answer { status, data: why.into() };
        vec![Letter { to: 3, from: 0, number, text }]
    };
    let prepare = ToMix::Prepare { number: 1, spawning: theirs() };
    assert_eq!(shepherd.apply(MS, begins(5)), [Action::TellMix(prepare)]);
    assert_eq!(shepherd.apply(MS, begins(5)), [], "it is asked again");
    assert_eq!(letters(&shepherd.apply(MS, prepared(1, ""))), answer(5, SUCCESS, ""));
    assert_eq!(shepherd.apply(MS, prepared(1, "")), [], "said twice");
    assert_eq!(letters(&shepherd.apply(MS, begins(5))), answer(5, SUCCESS, ""));
    let ends = || asks(6, LetterText::SpawnedEnded("name.2.1".into()));
    let actions = shepherd.apply(MS, ends());
    assert_eq!(told(&actions), [ToMix::Forget("name.2.1".into())]);
    assert_eq!(letters(&actions), answer(6, SUCCESS, ""));
    let again = shepherd.apply(MS, ends());
    assert_eq!((told(&again), letters(&again)), (vec![], answer(6, SUCCESS, "")));
    // appmix can't.
    shepherd.apply(MS, begins(7));
    let no = || answer(7, NO_ROOM, "no memory");
    assert_eq!(letters(&shepherd.apply(MS, prepared(2, "no memory"))), no());
    assert_eq!(letters(&shepherd.apply(MS, begins(7))), no());
    shepherd.apply(MS, ends());
    // A host that does not serve PMIx has nobody who would meet them.
    shepherd.apply(MS, Event::NoMix("no library".into()));
    assert_eq!(letters(&shepherd.apply(MS, begins(8))), answer(8, SUCCESS, ""));
}

#[test]
fn what_other_hosts_spawn_has_a_bound() {
    let mut shepherd = going(of_three_hosts());
    let mut told = 0;
    for number in 0..1025 {
        let text = LetterText::Spawning(spawning(&format!("name.2.{number}")));
        let letter = Letter { to: 0, from: 3, number, text };
        let actions = shepherd.apply(MS, Event::Frame(ToShepherd::Letter(letter)));
        told += self::told(&actions).len();
        if number == 1024 {
            assert!(matches!(&letters(&actions)[..], [Letter {
                text: LetterText::Answer { status: NO_ROOM, data },
                ..
            }] if data.ends_with(b"have not ended, the maximum")));
        }
    }
    assert_eq!(told, 1024);
}

/// One that was spawned spawns in its turn: on the processors of the same PE.
#[test]
fn who_was_spawned_spawns() {
    let mut shepherd = going(open_mpi(4));
    let spawner = Some(SpawnedPe { space: "name.0.1".into(), rank: 1 });
    let program = |pes| Program { pes, command: b"./a".to_vec(), ..Program::default() };
    let asks = |pes| {
        let (spawner, programs) = (spawner.clone(), vec![program(pes)]);
        Event::Mix(FromMix::Spawn { number: 9, rank: 0, spawner, programs })
    };
    let [ToMix::Prepare { spawning, .. }] = &told(&shepherd.apply(MS, asks(2)))[..] else {
        panic!("it is refused")
    };
    assert_eq!((spawning.parent, &spawning.spawner), (0, &spawner));
    shepherd.apply(MS, asks(2));
    let actions = shepherd.apply(MS + 5 * SECOND, Event::Tick);
    assert!(notice(&actions).contains("it has 1 processor beside those"));
}
