//! Anything may happen in any order: what must hold whatever comes.

use super::*;
use crate::apinit::decide::out_stage::OutStage;
use crate::apinit::decide::switcher::News;
use crate::apinit::decide::switcher::Ran;
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::node::Restart;
use crate::apteam::protocol::peers::{BarrierIn, BarrierOut};
use crate::apteam::protocol::programs::{GivenProgram, WantedProgram};
use crate::apteam::protocol::turns::{Switch, Switches};
use proptest::prelude::*;
use std::collections::BTreeMap;

const NIDS: [u32; 2] = [0, 1];

#[derive(Clone, Debug)]
enum Step {
    After(u64),
    Do(Box<Event>),
}

fn any_key() -> impl Strategy<Value = Key> {
    (1..4u64, 1..3u32).prop_map(|(apid, incarnation)| key(apid, incarnation))
}

fn any_conn() -> impl Strategy<Value = Conn> {
    (0..5u64).prop_map(Conn)
}

fn any_cause() -> impl Strategy<Value = Cause> {
    prop_oneof![
        Just(Cause::FrontGone),
        Just(Cause::Abort { rank: 0, nid: Nid(0), code: 1 }),
        Just(Cause::PeExit { rank: 0, nid: Nid(0), code: 1 }),
    ]
}

fn any_place() -> impl Strategy<Value = PlaceCommand> {
    let hosts = prop_oneof![
        Just(vec![vec![0]]),
        Just(vec![vec![1]]),
        Just(vec![vec![0, 1]]),
        Just(vec![vec![0, 1], vec![2]]),
        Just(vec![vec![2], vec![0]]),
        Just(vec![vec![3]]),
    ];
    let more = (proptest::option::of(0..4u64), any::<bool>(), 0..4u64);
    (any_key(), hosts, more).prop_map(|(key, hosts, (limit, shares, restart))| {
        let hosts: Vec<&[u32]> = hosts.iter().map(Vec::as_slice).collect();
        let run = Duration::from_secs(1);
        let parts = hosts.iter().map(|nids| nids.len() as u32).collect();
        let restart = (restart == 0).then_some(Restart { from: key, run, parts });
        let time_limit = limit.map(Duration::from_secs);
        PlaceCommand { time_limit, shares, restart, ..place(key, &hosts) }
    })
}

fn any_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => any_place().prop_map(|place| Command::Place(Box::new(place))),
        1 => any_key().prop_map(|key| Command::TakeBack { key, number: 1 }),
        1 => (any_key(), 0..4u64).prop_map(|(key, n)| {
            let number = if n == 0 { 0 } else { PSCHED_SIGNALS + n };
            Command::Signal { key, signal: numbered(number, 10) }
        }),
        1 => (any_key(), any_cause(), 0..3u64).prop_map(|(key, cause, after)| {
            Command::Terminate { key, cause, kill_after: Duration::from_secs(after) }
        }),
        2 => any_key().prop_map(Command::AcknowledgeEnd),
        1 => any_key().prop_map(Command::Discard),
        1 => Just(Command::Adopt),
        1 => Just(Command::Purge { uid: 0 }),
        1 => (1..6u64, 0..9 * S, any::<bool>(), proptest::collection::vec(any_key(), 0..3)).prop_map(
            |(generation, from_ns, agreed, members)| Command::Plan(Box::new(SlicePlan {
                generation, begins_ns: from_ns, from_ns, agreed, members, slices: vec![], takers: vec![]
            }))
        ),
        1 => (1..6u64).prop_map(Command::AgreePlan),
        1 => (1..6u64).prop_map(Command::WithdrawPlan),
    ]
}

/// What was brought back, on as many nodes as it has or not, or why not.
fn any_restored() -> impl Strategy<Value = Event> {
    let back = (any::<bool>(), 1..3u32, 0..9u64).prop_map(|(going, nodes, output)| {
        let hello = Hello { launched: true, going, output_taken: 4, ..Hello::default() };
        let born = (7..7 + nodes).map(Nid).collect();
        Box::new(Back { born, hello, output, clock_ns: 1 })
    });
    let result = prop_oneof![3 => back.prop_map(Ok), 1 => Just(Err("no".to_owned()))];
    (any_key(), result).prop_map(|(key, result)| Event::Restored(key, result))
}

/// Memory goes out by a checkpoint, or not, and comes in again, or not.
fn any_away() -> impl Strategy<Value = Event> {
    let hello = Hello { launched: true, going: true, ..Hello::default() };
    let back = CameBack { hello, bytes: 7, clock_ns: 1 };
    let no = || Err("no".to_owned());
    prop_oneof![
        2 => any_key().prop_map(|key| Event::Turns(News::GoesOut(key))),
        2 => any_key().prop_map(|key| Event::Turns(News::ComesIn(key))),
        2 => any_key().prop_map(|key| Event::TakenOut(key, Ok(7))),
        1 => any_key().prop_map(move |key| Event::TakenOut(key, no())),
        2 => any_key().prop_map(move |key| Event::CameBack(key, Ok(Box::new(back.clone())))),
        1 => any_key().prop_map(|key| Event::CameBack(key, Err("no".to_owned()))),
    ]
}

/// A checkpoint is asked for, made or not, and what becomes of it is said.
fn any_dump() -> impl Strategy<Value = Event> {
    use crate::apinit::decide::DumpWord::{AllImaged, Gone, Named};
    let word = prop_oneof![Just(AllImaged), Just(Named), Just(Gone)];
    prop_oneof![
        (any_key(), 0..3u64, any::<bool>()).prop_map(|(key, number, end)| {
            Event::DumpAsked { number, uid: 0, key, end, afar: number % 3 == 0 }
        }),
        (any_key(), any::<bool>()).prop_map(|(key, stands)| Event::Turns(News::Held(key, stands))),
        (any_key(), 0..3u64, any::<bool>()).prop_map(|(key, number, made)| Event::Dumped {
            key,
            number,
            made
        }),
        (0..3u64, word).prop_map(|(number, word)| Event::DumpSaid { number, word }),
    ]
}

/// How changes of gangs went. (What the switcher tells may be of gangs that have gone since.)
fn any_switches() -> impl Strategy<Value = Switches> {
    let keys = || proptest::collection::vec(any_key(), 0..2);
    let switch = (keys(), keys(), 0..9 * S).prop_map(|(stopped, started, began_ns)| {
        let due_ns = began_ns.saturating_sub(S);
        Switch { generation: 1, due_ns, began_ns, stopped, started, ..Switch::default() }
    });
    let peaks = proptest::collection::vec((any_key(), 0..2u32, 0..9u64), 0..2);
    (proptest::collection::vec(switch, 0..3), peaks).prop_map(|(switches, peaks)| {
        let peaks = peaks.into_iter().map(|(key, nid, bytes)| (key, Nid(nid), bytes)).collect();
        Switches { switches, peaks, ..Switches::default() }
    })
}

fn any_news() -> impl Strategy<Value = Event> {
    let ran = |ns| Ran { ns, since_ns: None };
    prop_oneof![
        4 => any_key().prop_map(|key| Event::Turns(News::MayGo(key))),
        4 => (any_key(), prop::bool::weighted(0.9)).prop_map(|(key, well)| {
            Event::PlacesVerified(key, if well { Ok(()) } else { Err("no".to_owned()) })
        }),
        1 => any_key().prop_map(|key| Event::Turns(News::HasTurn(key))),
        2 => any_switches().prop_map(|told| Event::Turns(News::Switches(Box::new(told)))),
        1 => (any_key(), 0..9u64, any::<bool>()).prop_map(|(key, bytes, all)| {
            Event::Turns(News::RolledOut(key, bytes, (!all).then(|| "no".to_owned())))
        }),
        1 => (any_key(), 0..5 * S).prop_map(move |(key, ns)| Event::Ran(key, ran(ns))),
    ]
}

fn any_to_apinit() -> impl Strategy<Value = ToApinit> {
    let launch = |key| ToApinit::Launch { key, ticket: TICKET, launch: program() };
    let taken = |(source, offset)| OutputTaken { source, offset };
    prop_oneof![
        5 => any_key().prop_map(launch),
        2 => (any_key(), (0..2u32, 0..20u64).prop_map(taken)).prop_map(|(key, taken)| {
            ToApinit::Resume { key, ticket: TICKET, taken: vec![taken] }
        }),
        1 => (0..3u32, 0..20u64).prop_map(move |t| ToApinit::OutputTaken(taken(t))),
        1 => (0..4u64).prop_map(|number| ToApinit::Signal(numbered(number, 2))),
        1 => (0..8u64).prop_map(|offset| ToApinit::Stdin(piece(offset, "in"))),
        1 => (0..8u64).prop_map(ToApinit::StdinEnd),
        1 => any::<bool>().prop_map(|gone| {
            let reason = if gone { FrontReason::Gone } else { FrontReason::StdoutClosed };
            ToApinit::Terminate { reason, kill_after: GRACE }
        }),
    ]
}

fn any_to_peer() -> impl Strategy<Value = ToPeer> {
    let launch = |key| ToPeer::Launch { key, ticket: TICKET, launch: program() };
    let taken = |(source, offset)| OutputTaken { source, offset };
    prop_oneof![
        5 => any_key().prop_map(launch),
        2 => (any_key(), (0..2u32, 0..20u64).prop_map(taken)).prop_map(|(key, taken)| {
            ToPeer::Resume { key, ticket: TICKET, taken: vec![taken] }
        }),
        1 => (0..3u32, 0..20u64).prop_map(move |t| ToPeer::OutputTaken(taken(t))),
        1 => Just(ToPeer::Go),
        1 => (1..4u64, 0..2u32, any::<bool>()).prop_map(|(generation, piece, last)| {
            ToPeer::BarrierOut(BarrierOut { generation, piece, last, entries: vec![] })
        }),
        1 => (0..4u64).prop_map(|number| ToPeer::Signal(numbered(number, 2))),
        1 => any_cause().prop_map(|cause| ToPeer::Terminate { cause, kill_after: GRACE }),
    ]
}

fn any_arrival() -> impl Strategy<Value = BarrierIn> {
    (1..4u64).prop_map(|generation| BarrierIn { generation, entries: vec![] })
}

fn any_from_shepherd() -> impl Strategy<Value = FromShepherd> {
    let decisive = || any_cause().prop_map(|cause| Decisive { at_ns: 5, cause });
    prop_oneof![
        4 => Just(FromShepherd::Ready),
        2 => (0..4u64).prop_map(|n| FromShepherd::Output(output(n * 4, "four"))),
        1 => decisive().prop_map(FromShepherd::Failed),
        1 => decisive().prop_map(FromShepherd::Decisive),
        1 => any_arrival().prop_map(FromShepherd::BarrierIn),
        1 => (0..8u64).prop_map(|received| FromShepherd::StdinCredit(credit(5, received))),
        1 => (0..4u64).prop_map(FromShepherd::SignalsTaken),
        3 => any_key().prop_map(|key| FromShepherd::Ended(Box::new(end(key)))),
    ]
}

fn any_from_peer() -> impl Strategy<Value = FromPeer> {
    prop_oneof![
        3 => Just(FromPeer::Accepted),
        3 => Just(FromPeer::Ready),
        1 => any_arrival().prop_map(FromPeer::BarrierIn),
        1 => Just(FromPeer::Going),
        1 => (0..4u64).prop_map(FromPeer::SignalsTaken),
        1 => Just(FromPeer::Done),
        1 => Just(FromPeer::Refused { text: String::new(), cause: None }),
        1 => Just(FromPeer::NotNow(String::new())),
        1 => (0..4u64).prop_map(|n| FromPeer::Output(output(n * 4, "four"))),
        1 => any_cause().prop_map(|cause| FromPeer::Decisive(Decisive { at_ns: 5, cause })),
    ]
}

fn any_of_programs() -> impl Strategy<Value = Event> {
    let wanted = |part| WantedProgram { part, size: 9, name: b"a".to_vec() };
    let given = |part| GivenProgram { part, ..GivenProgram::default() };
    let sources = |hosts| ToPeer::Sources { hosts: vec![HostAddress::default(); hosts] };
    prop_oneof![
        (any_key(), 0..3u32).prop_map(move |(key, part)| Event::ProgramAsked(key, wanted(part))),
        (any_key(), 0..3u32)
            .prop_map(move |(key, part)| Event::ProgramTaken(key, Box::new(given(part)))),
        (any_key(), 0..3u32).prop_map(move |(key, part)| {
            let programs = vec![wanted(part), wanted(0)];
            Event::ShepherdMessage(key, FromShepherd::ProgramsWanted { programs })
        }),
        (any_conn(), 0..3usize)
            .prop_map(move |(conn, hosts)| Event::HeadMessage(conn, sources(hosts))),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let lost = |key| Event::ShepherdLost { key, text: String::new() };
    let uid = prop_oneof![Just(OWNER), Just(0), Just(5)];
    let watch = prop_oneof![Just(Watch::No), Just(Watch::Here), Just(Watch::Elsewhere)];
    let event = prop_oneof![
        1 => Just(Event::Linked(Box::new(welcome()))),
        1 => Just(Event::Unlinked),
        1 => Just(Event::Linked(Box::new(Welcome { epoch: 1, ..welcome() }))),
        1 => Just(Event::Linked(Box::new(Welcome { store_id: "ffff".into(), ..welcome() }))),
        8 => (1..99u64, any_command()).prop_map(|(seq, c)| Event::Command(seq, c)),
        6 => (any_conn(), uid, watch).prop_map(|(conn, uid, watch)| {
            Event::FrontOpened { conn, uid, watch }
        }),
        10 => (any_conn(), any_to_apinit()).prop_map(|(c, m)| Event::FrontMessage(c, m)),
        2 => any_conn().prop_map(Event::StreamClosed),
        3 => (any_conn(), prop_oneof![4 => Just(0), 1 => Just(OWNER)])
            .prop_map(|(conn, uid)| Event::HeadOpened { conn, uid, host: "n1".into() }),
        5 => (any_conn(), any_to_peer()).prop_map(|(c, m)| Event::HeadMessage(c, m)),
        1 => any_conn().prop_map(Event::FrontDied),
        8 => any_key().prop_map(Event::ShepherdSpawned),
        1 => any_key().prop_map(|key| Event::SpawnFailed { key, text: String::new() }),
        12 => (any_key(), any_from_shepherd()).prop_map(|(k, m)| Event::ShepherdMessage(k, m)),
        1 => any_key().prop_map(lost),
        5 => (any_key(), 0..3u32, any_from_peer())
            .prop_map(|(key, index, m)| Event::PeerMessage(key, index, m)),
        1 => (any_key(), 0..3u32).prop_map(|(key, index)| Event::PeerLost {
            key, index, text: String::new()
        }),
        4 => any_of_programs(),
        6 => any_key().prop_map(Event::GroupsEmpty),
        1 => any_key().prop_map(|key| Event::GroupsStuck { key, processes: 1, named: vec![] }),
        1 => any_place().prop_map(|place| {
            let place = PlaceCommand { restart: None, ..place };
            let hello = Hello { key: place.key, launched: true, ..Hello::default() };
            Event::Found(Box::new(Found {
                place, going_ns: None, ran_ns: None, hello: Some(hello), silent: false, away: None, front: None, gone: false, adopted: false
            }))
        }),
        4 => Just(Event::Tick),
        4 => any_news(),
        4 => any_restored(),
        4 => any_dump(),
        4 => any_away(),
    ];
    prop_oneof![
        1 => (0..12 * S).prop_map(Step::After),
        6 => event.prop_map(|event| Step::Do(Box::new(event))),
    ]
}

/// What an onlooker knows of an application from the actions alone.
#[derive(Default, Debug)]
struct Seen {
    processors: Vec<(Nid, u32)>,
    shares: bool,
    launches: u32,
    ready: bool,
    /// The switcher knows it, and has let it go.
    came: bool,
    may_go: bool,
    goes: u32,
    groups_empty: bool,
    acknowledged: bool,
    /// It stands, or is to, until it is seated.
    lifted: bool,
    /// Other hosts have a part in it. As long as they can't be reached its end is told again, until
    /// psched says that all of it has ended.
    spread: bool,
}

#[derive(Default)]
struct Onlooker {
    seen: BTreeMap<Key, Seen>,
    open: BTreeMap<Conn, ()>,
    linked: bool,
    /// The node does not obey the psched that it is linked to, and is being purged for it.
    foreign: bool,
    purging: bool,
}

fn of_place(place: &PlaceCommand) -> Seen {
    let here = place.places.0.iter().filter(|p| NIDS.contains(&p.nid.0));
    let processors = here.flat_map(|p| p.processors.iter().map(move |n| (p.nid, *n))).collect();
    let (spread, shares) = (place.hosts.len() > 1, place.shares);
    Seen { processors, spread, shares, ..Seen::default() }
}

impl Onlooker {
    fn happens(&mut self, event: &Event) {
        match event {
            Event::Unlinked => (self.linked, self.foreign, self.purging) = (false, false, false),
            Event::Command(_, Command::Purge { .. }) if self.foreign => self.purging = true,
            Event::FrontOpened { conn, .. } | Event::HeadOpened { conn, .. } => {
                self.open.insert(*conn, ());
            }
            Event::StreamClosed(conn) => {
                self.open.remove(conn);
            }
            Event::Command(_, Command::Place(place)) => {
                self.seen.entry(place.key).or_insert_with(|| of_place(place));
            }
            Event::Found(found) => {
                let seen = Seen { launches: 1, ..of_place(&found.place) };
                self.seen.entry(found.place.key).or_insert(seen);
            }
            Event::PlacesVerified(key, Ok(())) => {
                if let Some(seen) = self.seen.get_mut(key).filter(|s| s.launches > 0) {
                    seen.ready = true;
                }
            }
            Event::Turns(News::MayGo(key)) => {
                if let Some(seen) = self.seen.get_mut(key).filter(|s| s.came) {
                    seen.may_go = true;
                }
            }
            Event::GroupsEmpty(key) => {
                if let Some(seen) = self.seen.get_mut(key) {
                    seen.groups_empty = true;
                }
            }
            _ => {}
        }
    }

    /// It is launched, or brought back: once, and where nobody else runs who does not share.
    fn launched(&mut self, key: Key) {
        let shares = self.seen[&key].shares;
        let others = self.seen.iter().filter(|(k, s)| {
            **k != key && s.launches > 0 && !s.groups_empty && !(shares && s.shares)
        });
        let mine = &self.seen[&key].processors;
        for (other, seen) in others {
            let shared = seen.processors.iter().find(|p| mine.contains(p));
            assert_eq!(shared, None, "{key} and {other} share a processor");
        }
        let seen = self.seen.get_mut(&key).expect("it is there");
        seen.launches += 1;
        seen.groups_empty = false;
        assert_eq!(seen.launches, 1, "{key} is launched twice");
    }

    fn does(&mut self, action: &Action) {
        let about = match action {
            Action::SendShepherd(key, _)
            | Action::KeepFront(key, _)
            | Action::KeepGoing(key, _)
            | Action::SendPeers(key, _, _)
            | Action::CheckGroupsEmpty(key)
            | Action::TellRan(key)
            | Action::Turns(switcher::Event::Goes(key) | switcher::Event::Watch(key))
            | Action::Remove(key)
            | Action::OpenPeer { key, .. }
            | Action::VerifyPlaces { key, .. }
            | Action::Yield { key, .. }
            | Action::KillGroups { key, .. } => Some(*key),
            Action::Report(Report::Ended(end)) => Some(end.key),
            Action::Report(Report::Launched(key) | Report::Running(key)) => Some(*key),
            _ => None,
        };
        if let Some(key) = about {
            assert!(self.seen.contains_key(&key), "{action:?} is about nothing that is here");
        }
        match action {
            Action::SendShepherd(key, ToShepherd::Launch(_)) => self.launched(*key),
            Action::Restore { place, .. } => self.launched(place.key),
            Action::SendShepherd(key, ToShepherd::Go) => {
                let seen = self.seen.get_mut(key).expect("it is there");
                seen.goes += 1;
                assert!(seen.ready && seen.goes == 1, "{key} goes {seen:?}");
                assert!(seen.came && (seen.may_go || !seen.shares), "{key} goes {seen:?}");
            }
            Action::SendFront(conn, _) | Action::SendHead(conn, _) => {
                assert!(self.open.contains_key(conn), "{action:?} to a closed stream");
            }
            Action::Turns(switcher::Event::Comes { gang, .. }) => {
                let seen = self.seen.get_mut(&gang.key).expect("it is there");
                assert_eq!(gang.processors, seen.processors);
                assert!(!std::mem::replace(&mut seen.came, true), "{} comes twice", gang.key);
            }
            Action::Turns(switcher::Event::Goes(key)) => {
                let seen = self.seen.get_mut(key).expect("it is there");
                assert!(std::mem::take(&mut seen.came), "{key} goes and has not come");
            }
            Action::Turns(switcher::Event::Hold(key)) => {
                let seen = self.seen.get_mut(key).expect("it is there");
                assert!(!std::mem::replace(&mut seen.lifted, true), "{key} is lifted twice");
            }
            Action::Turns(switcher::Event::Rebind(gang)) => {
                self.seen.get_mut(&gang.key).expect("it is there").lifted = false;
            }
            Action::Dump { key, .. } => assert!(self.seen[key].lifted, "{key} does not stand"),
            Action::CloseStream(conn) => {
                self.open.remove(conn);
            }
            Action::Report(report) => {
                assert!(self.linked || self.purging, "{report:?} to nobody");
                if let Report::Ended(end) = report {
                    let seen = &self.seen[&end.key];
                    assert!(!seen.acknowledged || seen.spread, "{} again", end.key);
                }
            }
            Action::Remember(_) => {
                (self.linked, self.foreign, self.purging) = (true, false, false);
            }
            Action::Foreign(foreign) => {
                (self.linked, self.foreign, self.purging) = (false, true, false);
                let held = foreign.applications.iter().map(|a| a.place.key);
                held.for_each(|key| assert!(self.seen.contains_key(&key), "{key} is not here"));
            }
            Action::Remove(key) => {
                self.seen.remove(key);
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens(steps in proptest::collection::vec(any_step(), 1..120)) {
        let mut agent = apinit(&NIDS);
        let mut onlooker = Onlooker::default();
        let mut now = 0;
        let mut timer = None;
        for step in steps {
            let event = match step {
                Step::After(ns) => {
                    now += ns;
                    // The shell's clock.
                    if timer.is_some_and(|at| at <= now) { Event::Tick } else { continue }
                }
                Step::Do(event) => *event,
            };
            // The shell never uses a number twice while its stream is open.
            if let Event::FrontOpened { conn, .. } | Event::HeadOpened { conn, .. } = &event
                && onlooker.open.contains_key(conn)
            {
                continue;
            }
            // A stream that the agent has closed says nothing.
            if let Event::FrontMessage(conn, _)
                | Event::HeadMessage(conn, _)
                | Event::StreamClosed(conn) = &event
                && !onlooker.open.contains_key(conn)
            {
                continue;
            }
            // What is found is found before psched says anything of it.
            if let Event::Found(found) = &event
                && onlooker.seen.contains_key(&found.place.key)
            {
                continue;
            }
            onlooker.happens(&event);
            let acknowledged = match &event {
                Event::Command(_, Command::AcknowledgeEnd(key)) => Some(*key),
                _ => None,
            };
            // (A head asks again where another host can't be reached: `report_due_ns`.)
            let alone = |app: &App| app.empty() && app.peers.is_empty();
            let ended = acknowledged.is_some_and(|k| agent.apps.get(&k).is_some_and(alone))
                && (!onlooker.foreign || onlooker.purging);
            let ignored = onlooker.foreign && !onlooker.purging
                && matches!(&event, Event::Command(_, c)
                    if !matches!(c, Command::Adopt | Command::Purge { .. }));
            let adopts = onlooker.foreign && !onlooker.purging
                && matches!(event, Event::Command(_, Command::Adopt));
            for action in agent.apply(now, event) {
                if !matches!(action, Action::SetTimer(_)) {
                    prop_assert!(!ignored, "{:?} by the word of a stranger", action);
                    let told = matches!(
                        action, Action::Remember(_) | Action::Inventory { .. } | Action::Report(_)
                            | Action::KeepAdopted(_)
                            // The plans of the other store.
                            | Action::Turns(switcher::Event::Withdraw(_)) | Action::KeepPlans(_)
                    );
                    prop_assert!(!adopts || told, "{:?} by an adoption", action);
                }
                onlooker.does(&action);
                if let Action::SetTimer(at) = action {
                    timer = at;
                }
            }
            if let Some(seen) = acknowledged.filter(|_| ended).and_then(|k| onlooker.seen.get_mut(&k)) {
                seen.acknowledged = true;
            }
            prop_assert!(agent.apps.len() <= 6 && agent.fronts.len() + agent.heads.len() <= 5);
            for app in agent.apps.values() {
                prop_assert!(app.output.end - app.output.taken <= 2 * Bounds::default().output);
                prop_assert!(app.stdin_passed <= app.stdin_limit);
                prop_assert!(app.stdin_limit - app.shift().stdin <= Bounds::default().stdin);
                prop_assert!(app.arrivals.all().len() <= 2 && app.signals.kept().count() <= 128);
                prop_assert!(app.held.len() <= 64);
                // Nobody stands for ever, and who is dumped stands.
                let lifted = onlooker.seen[&app.key()].lifted;
                let over = app.doom.is_some() || !app.running();
                prop_assert!(app.dumping.is_none() || lifted, "{} runs", app.key());
                let leaves = app.away == Some(OutStage::Leaves);
                let why = app.dumping.is_some() || leaves;
                prop_assert!(!lifted || why || over, "{} stands", app.key());
                let holds = app.dumping.is_some_and(|dumping| dumping.holds());
                prop_assert!(!holds || over || app.dump_until_ns().is_some(), "{} waits", app.key());
            }
        }
        // A timer that is due is used up by its tick: the shell can't spin.
        now += 100_000 * S;
        for _ in 0..4 {
            agent.apply(now, Event::Tick);
        }
        prop_assert!(agent.next_timer().is_none_or(|at| at > now), "{:?}", agent.next_timer());
    }
}
