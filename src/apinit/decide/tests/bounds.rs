//! What an apinit holds at most, and what whoever is refused is told.

use super::*;
use crate::apteam::bounds::HostBounds;
use crate::apteam::ending::NOT_THE_PROGRAM;
use crate::apteam::fault::Fault;

const OTHER: u32 = 1001;

/// One of the nodes 0 to 3 that may hold so much.
fn bounded(bounds: HostBounds) -> Agent {
    let mut agent = apinit(&[0, 1, 2, 3]);
    agent.apply(0, Event::Linked(Box::new(Welcome { bounds, ..welcome() })));
    agent
}

#[test]
fn launches_of_one_user_that_wait_keep_nobody_elses_out() {
    let mut agent = bounded(HostBounds { launches_user: 2, ..HostBounds::default() });
    for n in 0..2 {
        go_through(&mut agent, 0, [opened(Conn(n), OWNER)]);
        assert_eq!(act(&mut agent, 0, launch(Conn(n), key(n, 1))), []);
    }
    let more = Conn(99);
    go_through(&mut agent, 0, [opened(more, OWNER)]);
    assert_eq!(
        act(&mut agent, 0, launch(more, key(99, 1))),
        refused(
            more,
            "you have the maximum number of launches that wait on this host for their placement \
             from psched: try again, or have an administrator raise launches_user_max (2) with \
             psmgr set"
        )
    );
    // Another user's waits, and so do those of a head.
    go_through(&mut agent, 0, [opened(Conn(3), OTHER)]);
    assert_eq!(act(&mut agent, 0, launch(Conn(3), key(3, 1))), []);
    for conn in [4, 5, 6].map(Conn) {
        go_through(&mut agent, 0, [head_opened(conn)]);
        assert_eq!(act(&mut agent, 0, head_launch(conn, key(conn.0, 1))), []);
    }
    assert_eq!(agent.next_timer(), Some(10 * S));
    assert_eq!(act(&mut agent, 10 * S - 1, Event::Tick), []);
    assert_eq!(act(&mut agent, 10 * S, Event::Tick).len(), 2 * 6);
    assert_eq!(agent.held(), (0, 0));
}

/// A launch of so many bytes.
fn large(conn: Conn, key: Key, bytes: usize) -> Event {
    let arguments = vec![b"a.out".to_vec(), vec![b'x'; bytes]];
    let launch = Box::new(Launch { arguments, ..Launch::default() });
    Event::FrontMessage(conn, ToApinit::Launch { key, ticket: Ticket([9; 16]), launch })
}

#[test]
fn launches_that_wait_have_so_much_memory() {
    const MIB: u64 = 1024 * 1024;
    let bounds =
        HostBounds { launch_bytes: 5 * MIB, launch_bytes_user: 3 * MIB, ..HostBounds::default() };
    let mut agent = bounded(bounds);
    let send = |agent: &mut Agent, n, uid| {
        go_through(agent, 0, [opened(Conn(n), uid)]);
        act(agent, 0, large(Conn(n), key(n, 1), MIB as usize))
    };
    for n in 0..2 {
        assert_eq!(send(&mut agent, n, OWNER), []);
    }
    let own = "your launches that wait on this host for their placement from psched use the \
               maximum memory of one user: try again, give shorter arguments, or have an \
               administrator raise launch_memory_user_max (3M) with psmgr set";
    assert_eq!(send(&mut agent, 2, OWNER), refused(Conn(2), own));
    for n in 3..5 {
        assert_eq!(send(&mut agent, n, OTHER), []);
    }
    // No fault of his: it may be otherwise in a moment.
    let all = "the launches that wait on this host for their placement from psched use the \
               maximum memory: try again later, or have an administrator raise launch_memory_max \
               (5M) with psmgr set";
    assert_eq!(send(&mut agent, 5, 1002), not_now(Conn(5), all));
    // Those of heads count for themselves.
    go_through(&mut agent, 0, [head_opened(Conn(6))]);
    let Event::FrontMessage(_, ToApinit::Launch { key, ticket, launch }) =
        large(Conn(6), key(6, 1), MIB as usize)
    else {
        panic!("it is a launch")
    };
    let launch = ToPeer::Launch { key, ticket, launch };
    assert_eq!(act(&mut agent, 0, Event::HeadMessage(Conn(6), launch)), []);
    assert!((4 * MIB..6 * MIB).contains(&agent.waiting_bytes()), "{}", agent.waiting_bytes());
    // Many short arguments take more than they have.
    let many = vec![Vec::new(); 200_000];
    let many = Launch { arguments: many, ..Launch::default() };
    assert!(many.footprint() > 5 * MIB, "{}", many.footprint());
    // A launch that is given up makes room.
    act(&mut agent, 0, Event::StreamClosed(Conn(0)));
    assert_eq!(send(&mut agent, 7, OWNER), []);
    act(&mut agent, 10 * S, Event::Tick);
    assert_eq!((agent.held(), agent.waiting_bytes()), ((0, 0), 0));
}

/// A launch may be large, and what comes after it before it is taken must not be.
#[test]
fn what_follows_a_waiting_launch_is_small() {
    let mut agent = linked(&[0, 1]);
    let key = key(12, 1);
    let (early, eager) = (FRONT, Conn(2));
    go_through(&mut agent, 0, [opened(early, OWNER), launch(early, key)]);
    let signal = ToApinit::Signal(numbered(1, 10));
    assert_eq!(act(&mut agent, 0, Event::FrontMessage(early, signal)), []);
    go_through(&mut agent, 0, [opened(eager, OTHER), launch(eager, super::key(13, 1))]);
    assert_eq!(
        act(&mut agent, 0, Event::FrontMessage(eager, ToApinit::Stdin(piece(0, "x")))),
        refused(eager, "too much data was sent before the launch was accepted")
    );
    let taken = act(&mut agent, S, placed(place(key, &[&[0, 1]])));
    assert!(taken.contains(&to_front(FromApinit::Accepted)), "{taken:?}");
}

#[test]
fn streams_of_one_user_keep_nobody_else_out() {
    let bounds = HostBounds { connections: 8, connections_user: 3, ..HostBounds::default() };
    let mut agent = bounded(bounds);
    for conn in 0..3 {
        assert_eq!(act(&mut agent, 0, opened(Conn(conn), OWNER)), []);
    }
    assert_eq!(
        act(&mut agent, 0, opened(Conn(10), OWNER)),
        refused(
            Conn(10),
            "you have the maximum number of open launches of one user on this host: end some of \
             your apruns, or have an administrator raise connections_user_max (3) with psmgr set"
        )
    );
    for conn in 11..14 {
        assert_eq!(act(&mut agent, 0, opened(Conn(conn), OTHER)), []);
    }
    // The rest is for heads.
    let full = "this host has the maximum number of open launches: try again later, or have an \
                administrator raise connections_max (8) with psmgr set";
    assert_eq!(act(&mut agent, 0, opened(Conn(20), 1002)), refused(Conn(20), full));
    for conn in 21..23 {
        assert_eq!(act(&mut agent, 0, head_of(Conn(conn), &format!("n{conn}"))), []);
    }
    // A head would take a refusal for the last word.
    assert_eq!(act(&mut agent, 0, head_opened(Conn(23))), head_not_now(Conn(23), full));
    // Root's own front ends may come later too.
    assert_eq!(act(&mut agent, 0, opened(Conn(23), 0)), not_now(Conn(23), full));
    // A place comes back.
    act(&mut agent, 0, Event::StreamClosed(Conn(0)));
    act(&mut agent, 0, Event::StreamClosed(Conn(1)));
    act(&mut agent, 0, Event::StreamClosed(Conn(2)));
    assert_eq!(act(&mut agent, 0, opened(Conn(24), OWNER)), []);
}

/// A head on this host.
fn head_of(conn: Conn, host: &str) -> Event {
    Event::HeadOpened { conn, uid: 0, host: host.into() }
}

#[test]
fn streams_of_one_host_without_a_ticket_keep_no_other_host_out() {
    let mut agent = bounded(HostBounds { connections: 32, ..HostBounds::default() });
    let key = key(12, 1);
    go_through(&mut agent, 0, [placed(place(key, &[&[9], &[0]])), Event::ShepherdSpawned(key)]);
    for conn in 0..4 {
        assert_eq!(act(&mut agent, 0, head_of(Conn(conn), "n8")), []);
    }
    let full = "the host n8 has the maximum number of streams (4) that wait here for a launch or \
                its placement: try again later, or have an administrator raise connections_max \
                (32) with psmgr set";
    assert_eq!(act(&mut agent, 0, head_of(Conn(4), "n8")), head_not_now(Conn(4), full));
    assert_eq!(act(&mut agent, 0, head_of(Conn(5), "n9")), []);
    // One that has shown its ticket does not count.
    let launched = act(&mut agent, 0, head_launch(Conn(3), key));
    assert!(launched.contains(&Action::SendHead(Conn(3), FromPeer::Accepted)), "{launched:?}");
    assert_eq!(act(&mut agent, 0, head_of(Conn(6), "n8")), []);
}

#[test]
fn launches_of_one_host_that_wait_have_so_much_memory() {
    const MIB: u64 = 1024 * 1024;
    let bounds =
        HostBounds { launch_bytes: 5 * MIB, launch_bytes_user: 3 * MIB, ..HostBounds::default() };
    let mut agent = bounded(bounds);
    let send = |agent: &mut Agent, n, host: &str| {
        go_through(agent, 0, [head_of(Conn(n), host)]);
        let arguments = vec![b"a.out".to_vec(), vec![b'x'; MIB as usize]];
        let launch = Box::new(Launch { arguments, ..Launch::default() });
        let launch = ToPeer::Launch { key: key(n, 1), ticket: Ticket([9; 16]), launch };
        act(agent, 0, Event::HeadMessage(Conn(n), launch))
    };
    for n in 0..2 {
        assert_eq!(send(&mut agent, n, "n8"), []);
    }
    let own = "the launches of the host n8 that wait here for their placement from psched use \
               the maximum memory of one host: try again later, or have an administrator raise \
               launch_memory_user_max (3M) with psmgr set";
    assert_eq!(send(&mut agent, 2, "n8"), head_not_now(Conn(2), own));
    for n in 3..5 {
        assert_eq!(send(&mut agent, n, "n9"), []);
    }
    let all = "the launches of other hosts that wait here for their placement from psched use \
               the maximum memory: try again later, or have an administrator raise \
               launch_memory_max (5M) with psmgr set";
    assert_eq!(send(&mut agent, 5, "n7"), head_not_now(Conn(5), all));
}

/// All that is kept would wait for it anew each time.
#[test]
fn a_front_end_that_resumes_what_it_has_is_given_nothing_again() {
    let (mut agent, key) = with_launched();
    let kept = output(0, "hello\n");
    let said = from_shepherd(key, FromShepherd::Output(kept.clone()));
    go_through(&mut agent, 2 * S, [from_shepherd(key, FromShepherd::Ready), said]);
    assert_eq!(act(&mut agent, 3 * S, resume(FRONT, key, &[])), []);
    // On another stream it is.
    let back = Conn(2);
    go_through(&mut agent, 3 * S, [opened(back, OWNER)]);
    let resumed = act(&mut agent, 3 * S, resume(back, key, &[]));
    assert!(resumed.contains(&Action::CloseStream(FRONT)), "{resumed:?}");
    assert!(resumed.contains(&Action::SendFront(back, FromApinit::Output(kept))), "{resumed:?}");
}

#[test]
fn an_application_too_many_ends_and_the_others_go_on() {
    let mut agent = bounded(HostBounds { applications: 1, ..HostBounds::default() });
    let (first, second) = (key(12, 1), key(13, 1));
    let made = act(&mut agent, 0, placed(place(first, &[&[0]])));
    assert!(matches!(made[..], [Action::MakeAndSpawn { .. }]), "{made:?}");
    let text = "its host has the maximum number of applications: have an administrator raise \
                applications_max (1) with psmgr set";
    let (errno, fault) = (NOT_THE_PROGRAM, Fault::Busy);
    let cause = Cause::LaunchFailed { rank: 0, nid: Nid(1), errno, text: text.into(), fault };
    let first_end = Some(Decisive { at_ns: 0, cause });
    let end = HostEnd { key: second, first: first_end, ..HostEnd::default() };
    assert_eq!(act(&mut agent, 0, placed(place(second, &[&[1]]))), [reported(end, &[1])]);
    act(&mut agent, 0, Event::Command(2, Command::AcknowledgeEnd(second)));
    assert_eq!(agent.held().0, 1);
    // psched has more room for them now.
    let bounds = HostBounds { applications: 2, ..HostBounds::default() };
    let told = act(&mut agent, S, Event::Command(3, Command::Bounds(bounds)));
    assert_eq!(told, [Action::Remember(Welcome { bounds, ..welcome() })]);
    let made = act(&mut agent, S, placed(place(key(14, 1), &[&[1]])));
    assert!(matches!(made[..], [Action::MakeAndSpawn { .. }]), "{made:?}");
}

/// A psched that is not obeyed changes nothing, and a life later the bounds are the same.
#[test]
fn bounds_are_those_of_the_psched_that_is_obeyed() {
    let bounds = HostBounds { applications: 7, ..HostBounds::default() };
    let mut agent = bounded(bounds);
    let theirs = HostBounds { applications: 9, ..HostBounds::default() };
    let stranger = Welcome { store_id: "ffff".into(), epoch: 1, bounds: theirs, ..welcome() };
    go_through(&mut agent, S, [Event::Linked(Box::new(stranger))]);
    go_through(&mut agent, S, [Event::Command(1, Command::Bounds(theirs))]);
    assert_eq!(agent.bounds(), bounds);
    go_through(&mut agent, S, [Event::Command(2, Command::Adopt)]);
    assert_eq!(agent.bounds(), theirs);
    let me =
        Me { nids: [Nid(0)].into(), uid: 0, cpus: vec![], numa: [].into(), boot_id: "boot".into() };
    let again = Agent::new(me.clone(), Some(Welcome { bounds, ..welcome() }));
    assert_eq!(again.bounds(), bounds);
    assert_eq!(Agent::new(me, None).bounds(), HostBounds::default());
}

#[test]
fn what_a_shepherd_may_send_and_allow_is_bounded() {
    let (mut agent, key) = (linked(&[0, 1]), key(12, 1));
    let window = 2 * Bounds::default().output;
    let bounds = Bounds { output: window, stdin: 9, ..Bounds::default() };
    let place = PlaceCommand { bounds, ..place(key, &[&[0, 1]]) };
    go_through(&mut agent, 0, [placed(place), Event::ShepherdSpawned(key)]);
    go_through(&mut agent, S, [opened(FRONT, OWNER)]);
    let launched = act(&mut agent, S, launch(FRONT, key));
    let told = |a: &Action| matches!(a, Action::SendShepherd(_, ToShepherd::Launch(l)) if l.bounds == bounds);
    assert!(launched.iter().any(told), "{launched:?}");
    go_through(&mut agent, 2 * S, [from_shepherd(key, FromShepherd::Ready)]);
    // No more stdin than may be kept, whatever it says.
    let credits = |n| FromShepherd::StdinCredit(credit(n, 0));
    assert_eq!(
        act(&mut agent, 3 * S, from_shepherd(key, credits(10))),
        [to_front(FromApinit::StdinCredit(credit(9, 0)))]
    );
    // A frame more than the window: it may look before it adds one.
    let most = window + crate::apteam::protocol::shepherd::FRAME_MAX as u64;
    let of = |count| Output { data: vec![b'x'; count as usize].into(), ..output(0, "") };
    let all = act(&mut agent, 3 * S, from_shepherd(key, FromShepherd::Output(of(most))));
    assert_eq!(all, [to_front(FromApinit::Output(of(most)))]);
    let more = Output { offset: most, ..of(1) };
    let lost = act(&mut agent, 3 * S, from_shepherd(key, FromShepherd::Output(more)));
    assert!(lost.contains(&Action::KillGroups { key, shepherd: true }), "{lost:?}");
}

/// Its shepherd would send on and on to a front end that reads nothing.
#[test]
fn a_front_end_cannot_have_written_what_was_not_sent() {
    let (mut agent, key) = with_running();
    let say = |offset| {
        let taken = OutputTaken { source: 0, offset };
        Event::FrontMessage(FRONT, ToApinit::OutputTaken(taken))
    };
    let one = from_shepherd(key, FromShepherd::Output(output(0, "hello\n")));
    go_through(&mut agent, 3 * S, [one]);
    // It may have this from a former life of this apinit.
    let most = Bounds::default().output + crate::apteam::protocol::shepherd::FRAME_MAX as u64;
    assert_eq!(
        act(&mut agent, 3 * S, say(most)),
        [Action::SendShepherd(key, ToShepherd::OutputTaken(6))]
    );
    let more = most + 7;
    let text = format!("output is acknowledged up to byte {more}, which was never sent");
    assert_eq!(act(&mut agent, 3 * S, say(more)), refused(FRONT, &text));
    // Its process is still waited for.
    let back = Conn(2);
    go_through(&mut agent, 4 * S, [opened(back, OWNER)]);
    let resumed = act(&mut agent, 4 * S, resume(back, key, &[(0, 6)]));
    assert!(resumed.contains(&Action::SendFront(back, FromApinit::Accepted)), "{resumed:?}");
}

#[test]
fn what_may_wait_for_a_front_end() {
    let each = Bounds::default().output + crate::apteam::protocol::shepherd::FRAME_MAX as u64;
    let (agent, _) = with_running();
    assert_eq!((agent.output_room(FRONT), agent.output_room(Conn(9))), (each, u64::MAX));
}
