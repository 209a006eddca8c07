//! MPI programs: those whose library is found out, PMIx, and letters from host to host.

use super::*;
use crate::apshepherd::decide::pmix::{FromMix, NOT_FOUND, TIMED_OUT, ToMix};
use crate::apteam::launch::ServePmix;
use crate::apteam::posting::Mpi;
use crate::apteam::protocol::letters::{Letter, LetterText};

/// A launch of which it is not known which MPI it will load.
fn offered(width: u32) -> HostLaunch {
    let mut launch = mpi_launch(width);
    launch.launch.pmix = ServePmix::Offered;
    launch
}

/// Its PEs go, and the first look for an MPI has been asked for: at these PEs.
fn looked(launch: HostLaunch) -> (Shepherd, Vec<u32>) {
    let (mut shepherd, actions) = told_to_go(launch);
    let Some(Action::SetTimer(Some(at))) = actions.last() else { panic!("{actions:?}") };
    let actions = shepherd.apply(*at, Event::Tick);
    let Some(Action::LookForMpi(ranks)) = actions.first() else { panic!("{actions:?}") };
    (shepherd, ranks.clone())
}

fn notices(actions: &[Action]) -> Vec<String> {
    let text = |action: &Action| match action {
        Action::Notice { what: Seen::Pmi { text, .. }, .. } => Some(text.clone()),
        _ => None,
    };
    actions.iter().filter_map(text).collect()
}

#[test]
fn pes_that_never_meet_are_told_of_once() {
    let (mut shepherd, ranks) = looked(offered(3));
    assert_eq!(ranks, [0, 1, 2]);
    let found = BTreeMap::from([(0, Mpi::Mpich), (1, Mpi::Mpich), (2, Mpi::Mpich)]);
    assert_eq!(notices(&shepherd.apply(MS, Event::MpiFound(found))), [""; 0]);
    // PE 0 has begun with PMIx since.
    shepherd.apply(MS, Event::Mix(FromMix::Connected(0)));
    shepherd.apply(MS, Event::Mix(FromMix::Finalized(0)));
    assert_eq!(notices(&shepherd.apply(2 * MS, ended(0, PeEnd::Exit(0)))), [""; 0]);
    let told = notices(&shepherd.apply(2 * MS, ended(1, PeEnd::Exit(0))));
    assert!(told[0].contains("never met the other PEs"), "{told:?}");
    assert_eq!(notices(&shepherd.apply(2 * MS, ended(2, PeEnd::Exit(0)))), [""; 0]);
}

/// A host can have more PEs than it is looked at once, of several programs.
#[test]
fn all_pes_are_looked_at() {
    let (mut shepherd, first) = looked(offered(20));
    let mut next = || match &shepherd.apply(SECOND, Event::Tick)[..] {
        [Action::LookForMpi(ranks), ..] => ranks.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(first, Vec::from_iter(0..16));
    assert_eq!(next(), Vec::from_iter((16..20).chain(0..12)));
    assert_eq!(next(), Vec::from_iter((12..20).chain(0..8)));
}

/// A script's next program can have another library.
#[test]
fn the_library_that_a_pe_has_loaded_last_is_named() {
    let (mut shepherd, _) = looked(offered(2));
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        shepherd.apply(MS, Event::MpiFound(BTreeMap::from([(0, mpi)])));
    }
    let told = notices(&shepherd.apply(2 * MS, ended(0, PeEnd::Exit(0))));
    assert!(told[0].contains("libmpi.so.12"), "{told:?}");
}

/// The user of a long run is told before its end.
#[test]
fn pes_that_go_on_without_having_met_are_told_of() {
    let (mut shepherd, _) = looked(offered(2));
    let found = || Event::MpiFound(BTreeMap::from([(0, Mpi::Mpich), (1, Mpi::Mpich)]));
    for (at, tells) in [(SECOND, 0), (30 * SECOND, 0), (60 * SECOND, 1), (61 * SECOND, 0)] {
        let told = notices(&shepherd.apply(at, found()));
        assert_eq!(told.len(), tells, "{at} {told:?}");
    }
}

/// A PE that is killed early may not have called MPI_Init yet.
#[test]
fn pes_that_are_killed_without_having_met_are_told_of_after_a_while() {
    for (at, tells) in [(2 * SECOND, 0), (10 * SECOND, 1)] {
        let (mut shepherd, _) = looked(offered(2));
        shepherd.apply(SECOND, Event::MpiFound(BTreeMap::from([(0, Mpi::OpenMpi)])));
        let told = notices(&shepherd.apply(at, ended(0, PeEnd::Signal(9))));
        assert_eq!(told.len(), tells, "{told:?}");
    }
}

/// `--pmi=pmi1`, or a program that aprun took for one without MPI: what it has loaded may be for nothing of its own.
#[test]
fn open_mpi_to_which_pmix_is_not_served_is_told_of() {
    let (mut shepherd, _) = looked(mpi_launch(2));
    let found = Event::MpiFound(BTreeMap::from([(1, Mpi::OpenMpi)]));
    assert!(shepherd.apply(MS, found).is_empty());
    let told = notices(&shepherd.apply(2 * MS, ended(1, PeEnd::Exit(0))));
    assert!(told[0].contains("give --pmi=all"), "{told:?}");
    // With --pmi=none it is as its user wants it.
    assert_eq!(told_to_go(launch(2)).1, [Action::Go]);
}

/// All looks: at first often, then in each second, in the end each minute, and not for ever.
#[test]
fn looks_have_an_end() {
    for launch in [offered(2), mpi_launch(2)] {
        let (count, end) = (47, 600);
        let (mut shepherd, mut actions) = told_to_go(launch);
        let (mut looks, mut last) = (0, 0);
        while let Some(Action::SetTimer(Some(at))) = actions.last().cloned() {
            actions = shepherd.apply(at, Event::Tick);
            looks += usize::from(matches!(&actions[0], Action::LookForMpi(_)));
            assert!(at <= end * SECOND && looks <= count, "{at} {looks}");
            let apart = if at <= 30 * SECOND { SECOND } else { 60 * SECOND };
            assert!(at - last <= apart, "{last} {at}");
            last = at;
        }
        assert_eq!((looks, last), (count, end * SECOND));
    }
}

#[test]
fn a_port_that_stays_shut_is_told_of() {
    let (mut shepherd, _) = looked(mpi_launch(2));
    let told = notices(&shepherd.apply(MS, Event::PortShut("no descriptors".into())));
    assert!(
        told[0].contains("waits in MPI_Init") && told[0].contains("no descriptors"),
        "{told:?}"
    );
}

#[test]
fn one_pe_alone_is_not_looked_at() {
    assert_eq!(told_to_go(offered(1)).1, [Action::Go]);
}

#[test]
fn open_mpi_without_its_server_ends_the_application() {
    let launch = offered(2);
    let (mut shepherd, _) = looked(launch);
    shepherd.apply(MS, Event::NoMix("host h has no libpmix.so.2".into()));
    let actions = shepherd.apply(MS, Event::MpiFound(BTreeMap::from([(1, Mpi::OpenMpi)])));
    let cause = actions.iter().find_map(|action| match action {
        Action::Send(FromShepherd::Decisive(decisive)) => Some(decisive.cause.clone()),
        _ => None,
    });
    let Some(Cause::NotMet { rank: 1, text, .. }) = &cause else { panic!("{actions:?}") };
    assert!(text.contains("libpmix.so.2"), "{text}");
    assert_eq!(cause.map(|cause| cause.status()), Some(125));
    // One of MPICH goes on.
    let (mut shepherd, _) = looked(offered(2));
    shepherd.apply(MS, Event::NoMix("none".into()));
    let found = Event::MpiFound(BTreeMap::from([(1, Mpi::Mpich)]));
    assert!(shepherd.apply(MS, found).is_empty());
}

#[test]
fn the_end_of_appmix_ends_who_is_with_it() {
    let gone = || Event::MixEnded("it has died by SIGSEGV".into());
    let (mut shepherd, _) = looked(offered(2));
    assert!(shepherd.apply(MS, gone()).is_empty());
    let (mut shepherd, _) = looked(offered(2));
    shepherd.apply(MS, Event::Mix(FromMix::Connected(0)));
    let actions = shepherd.apply(MS, gone());
    assert!(actions.iter().any(|action| matches!(
        action,
        Action::Send(FromShepherd::Decisive(Decisive { cause: Cause::NotMet { .. }, .. }))
    )));
}

#[test]
fn a_fence_of_all_hosts_is_a_barrier() {
    let mut launch = offered(2);
    (launch.alone, launch.width) = (false, 4);
    let (mut shepherd, _) = looked(launch);
    let fence = FromMix::Fence {
        number: 5,
        ranks: vec![],
        spawned: vec![],
        data: Bytes::from_static(b"own"),
    };
    let actions = shepherd.apply(MS, Event::Mix(fence));
    let Some(Action::Send(FromShepherd::BarrierIn(arrival))) = actions.first() else {
        panic!("{actions:?}")
    };
    assert_eq!(arrival.generation, 1);
    let out = BarrierOut { generation: 1, piece: 0, last: true, entries: arrival.entries.clone() };
    let actions = shepherd.apply(MS, Event::Frame(ToShepherd::BarrierOut(out)));
    let data = Bytes::from_static(b"own");
    let over = ToMix::FenceOver { number: 5, status: 0, data, last: true };
    assert_eq!(actions, [Action::TellMix(over)]);
}

/// A question to another host is asked until it is answered, and again by each apinit that comes.
#[test]
fn questions_to_other_hosts_outlive_apinits() {
    let mut launch = offered(2);
    (launch.alone, launch.width) = (false, 4);
    let (mut shepherd, _) = looked(launch);
    let asked = Event::Mix(FromMix::Modex { number: 5, rank: 3, spawned: None });
    let actions = shepherd.apply(MS, asked);
    let Some(Action::Send(FromShepherd::Letter(question))) = actions.first() else {
        panic!("{actions:?}")
    };
    let question = question.clone();
    assert_eq!((question.to, question.from), (3, 0));
    let is_asked = |actions: &[Action]| {
        actions.contains(&Action::Send(FromShepherd::Letter(question.clone())))
    };
    let at = 2_000 * MS;
    assert!(is_asked(&shepherd.apply(at, Event::Tick)));
    shepherd.apply(at, Event::Disconnected);
    shepherd.apply(at, Event::Connected);
    let hello = Hello { key: shepherd.key, ..Hello::default() };
    assert!(is_asked(&shepherd.apply(at, Event::Frame(ToShepherd::Hello(hello)))));
    let answer = Letter {
        to: 0,
        from: 3,
        number: question.number,
        text: LetterText::Answer { status: 0, data: Bytes::from_static(b"put") },
    };
    let actions = shepherd.apply(at, Event::Frame(ToShepherd::Letter(answer.clone())));
    let found = ToMix::ModexFound { number: 5, status: 0, data: Bytes::from_static(b"put") };
    assert!(actions.contains(&Action::TellMix(found)), "{actions:?}");
    let again = shepherd.apply(at, Event::Frame(ToShepherd::Letter(answer)));
    assert!(!again.iter().any(|action| matches!(action, Action::TellMix(_))), "{again:?}");
}

/// The names of MPI_Publish_name are at PE 0's host, for PEs of others as well.
#[test]
fn a_letter_about_a_name_is_answered() {
    let mut launch = offered(2);
    (launch.alone, launch.width) = (false, 4);
    let (mut shepherd, _) = looked(launch);
    let mut says = |number, text| {
        let letter = Letter { to: 0, from: 3, number, text };
        let actions = shepherd.apply(MS, Event::Frame(ToShepherd::Letter(letter)));
        match &actions[..] {
            [Action::Send(FromShepherd::Letter(Letter { to: 3, from: 0, number: n, text }))] => {
                assert_eq!(*n, number);
                text.clone()
            }
            other => panic!("{other:?}"),
        }
    };
    let name = || Bytes::from_static(b"name");
    let port = Bytes::from_static(b"port");
    let answer = |data: &Bytes| LetterText::Answer { status: 0, data: data.clone() };
    let publish = LetterText::Publish { name: name(), port: port.clone() };
    assert_eq!(says(1, publish), answer(&Bytes::new()));
    assert_eq!(says(2, LetterText::LookUp(name())), answer(&port));
}

/// MPI_Comm_connect, where nobody accepts; the data is at another host.
#[test]
fn a_lookup_ends_when_it_has_waited_as_long_as_it_may() {
    let mut launch = offered(2);
    (launch.alone, launch.width) = (false, 4);
    launch.pes.iter_mut().for_each(|pe| pe.rank += 2);
    let (mut shepherd, _) = looked(launch);
    let key = Bytes::from_static(b"key");
    let asks = FromMix::LookUp { number: 5, key: key.clone(), wait: true, seconds: 3 };
    let letters = |actions: &[Action]| -> Vec<Letter> {
        let letter = |action: &Action| match action {
            Action::Send(FromShepherd::Letter(letter)) => Some(letter.clone()),
            _ => None,
        };
        actions.iter().filter_map(letter).collect()
    };
    let asked = letters(&shepherd.apply(MS, Event::Mix(asks)));
    let text = LetterText::LookUpData { key: key.clone(), wait: true };
    assert_eq!(asked, [Letter { to: 0, from: 2, number: 1, text }]);
    let again = letters(&shepherd.apply(3_000 * MS, Event::Tick));
    assert_eq!(again, asked);
    let at = 3_001 * MS;
    assert!(shepherd.apply(at, Event::Tick).contains(&Action::LookFrozen));
    assert_eq!(letters(&shepherd.apply(at, Event::Frozen(true))), []);
    let at = 13_001 * MS;
    shepherd.apply(at, Event::Tick);
    let text = LetterText::LookUpData { key: key.clone(), wait: false };
    assert_eq!(
        letters(&shepherd.apply(at, Event::Frozen(false))),
        [Letter { text, ..asked[0].clone() }]
    );
    let text = LetterText::Answer { status: NOT_FOUND, data: Bytes::new() };
    let answer = Letter { to: 2, from: 0, number: 1, text };
    let told = shepherd.apply(at, Event::Frame(ToShepherd::Letter(answer)));
    let data = Bytes::new();
    let over = ToMix::Answered { number: 5, key, status: TIMED_OUT, data };
    assert!(told.contains(&Action::TellMix(over)), "{told:?}");
}
