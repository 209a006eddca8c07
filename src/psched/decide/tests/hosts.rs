//! One application on several hosts, of which some are late or away.

use super::*;
use crate::apteam::Apid;
use crate::apteam::part::MapRun;
use crate::apteam::protocol::node::{Command, PlaceCommand};
use crate::apteam::record::State;
use crate::machine::Nid;

/// The apinit of a host that is not the head's died before it had heard of the placement.
#[test]
fn a_host_that_missed_the_placement_is_told_again_while_it_is_launched() {
    let mut s = Scheduler::new(machine(2, 2), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    s.apply(at(0), posted(1, 4));
    s.apply(at(1), Event::LinkClosed { link: LinkId(2) });
    let launched = Box::new(Report::Launched(key(1, 1)));
    s.apply(at(1), Event::Report { link: LinkId(1), report: launched });
    assert_eq!(brief(&link(&mut s, 3, &[1], &[])), ["-> 3 place 1.1"]);
    // Once they run, a host that does not know it has lost it; so has the head, at any time.
    s.apply(at(2), Event::Report { link: LinkId(1), report: Box::new(Report::Running(key(1, 1))) });
    let effects = brief(&link(&mut s, 4, &[1], &[]));
    assert!(effects.contains(&"log 1 lost".to_owned()), "{effects:?}");
}

/// Apinits of four hosts with five nodes each; the last one is of the release before.
fn four_hosts(s: &mut Scheduler) {
    for host in 0..4u32 {
        let nids: Vec<u32> = (host * 5..host * 5 + 5).collect();
        let hello = Hello {
            socket: format!("/run/{host}.sock"),
            hostname: format!("h{host}"),
            parts: host < 3,
            ..*hello(&nids)
        };
        let link = LinkId(host.into());
        s.apply(at(0), Event::LinkOpened { link, hello: Box::new(hello) });
        s.apply(at(0), Event::Inventory { link, items: Vec::new() });
    }
}

fn told(effects: &[Effect]) -> Vec<&PlaceCommand> {
    let mut places = Vec::new();
    for effect in effects {
        if let Effect::Command { command: Command::Place(place), .. } = effect {
            places.push(&**place);
        }
    }
    places
}

#[test]
fn each_apinit_is_told_its_own_part_and_one_map_of_all() {
    let mut s = Scheduler::new(machine(20, 2), alone());
    four_hosts(&mut s);
    let effects = s.apply(at(1), posted(1, 40));
    let told = told(&effects);
    let own = |at: usize| told[at].places.nids().map(|nid| nid.0).collect::<Vec<_>>();
    assert_eq!([own(0), own(1)], [vec![0, 1, 2, 3, 4], vec![5, 6, 7, 8, 9]]);
    // The head reaches the others; these are reached.
    assert_eq!(told.iter().map(|place| place.hosts.len()).collect::<Vec<_>>(), [4, 1, 1, 4]);
    assert_eq!(told[2].hosts[0].socket, "/run/2.sock");
    for (index, place) in told.iter().enumerate() {
        let run = MapRun { first_nid: Nid(0), nodes: 5, pes: 2, first_host: 0, hosts: 4 };
        assert_eq!(place.part.map.0[..], [run]);
        assert_eq!(place.part.process_mapping, "(vector,(0,4,10))");
        // One of the release before is told everything.
        assert_eq!(place.part.index, (index < 3).then_some(index as u32));
        assert!(place.fits());
    }
    assert_eq!(told[3].places.0.len(), 20);
    assert_eq!(told[2].mapped().next().map(|(_, node)| node.first_rank), Some(20));
}

/// What a host is told does not grow with the others.
#[test]
fn a_part_is_as_long_among_many_hosts_as_among_few() {
    let length = |hosts: u64| {
        let mut s = Scheduler::new(machine(hosts as u32 * 2, 2), alone());
        for host in 0..hosts {
            let nids = [host as u32 * 2, host as u32 * 2 + 1];
            let hello = Hello { parts: true, ..*hello(&nids) };
            let link = LinkId(host);
            s.apply(at(0), Event::LinkOpened { link, hello: Box::new(hello) });
            s.apply(at(0), Event::Inventory { link, items: Vec::new() });
        }
        let effects = s.apply(at(1), posted(1, hosts as u32 * 4));
        let last = (*told(&effects).last().expect("it is placed")).clone();
        (last.places.0.len(), last.hosts.len(), last.part.map.0.len())
    };
    assert_eq!(length(200), (2, 1, 1));
    assert_eq!(length(200), length(3));
}

#[test]
fn a_lost_link_frees_nothing() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 1));
    s.apply(at(1), Event::LinkClosed { link: LinkId(1) });
    assert_eq!(s.nodes().next().expect("a node").state, "suspect");
    assert!(!brief(&s.apply(at(2), posted(2, 1))).iter().any(|e| e.contains("place")));
    // The node comes back without it: the placement is sent again, and the other one placed.
    let effects = brief(&link(&mut s, 2, &[0], &[]));
    assert!(
        effects.contains(&"-> 2 place 1.1".into()) && effects.contains(&"-> 2 place 2.1".into())
    );
}

/// One node has it no more for it has ended there, the other because it was taken back.
#[test]
fn a_place_half_ended_and_half_taken_back_is_free() {
    for taken_back_first in [true, false] {
        let mut s = Scheduler::new(machine(2, 1), alone());
        link(&mut s, 1, &[0], &[]);
        link(&mut s, 2, &[1], &[]);
        s.apply(at(0), posted(1, 2));
        let refused = not_launched(key(1, 1), &[0], None);
        if !taken_back_first {
            report(&mut s, 1, refused.clone());
        }
        s.apply(at(61), Event::Tick);
        report(&mut s, 2, taken_back(key(1, 1)));
        if taken_back_first {
            report(&mut s, 1, refused);
        }
        assert!(s.team(Apid(1)).is_none(), "{taken_back_first}");
        assert_eq!(s.nodes().map(|n| n.used).sum::<u32>(), 0);
    }
}

#[test]
fn a_part_that_can_not_be_made_ends_the_others_before_the_launch() {
    let mut s = spread();
    assert_eq!(
        report(&mut s, 1, not_launched(key(1, 1), &[0], Some(bad(0)))),
        ["-> 2 terminate 1.1 5", "save 1.1 placed", "-> 1 acknowledge 1.1"]
    );
    // The node that has forgotten it is not given it again when it calls; the other is told again.
    assert_eq!(brief(&link(&mut s, 3, &[0], &[])), Vec::<String>::new());
    let again = brief(&link(&mut s, 4, &[1], &[(key(1, 1), Phase::Placed)]));
    assert_eq!(again, ["-> 4 terminate 1.1 5"]);
    let over = report(&mut s, 4, ended(key(1, 1), &[1], Some(bad(0))));
    assert_eq!(over[0], "save 1.1 ended");
}

#[test]
fn a_place_is_back_when_its_nodes_have_given_it_back_or_nothing_of_it() {
    let mut s = spread();
    s.apply(at(70), Event::Tick);
    assert_eq!(report(&mut s, 2, taken_back(key(1, 1))), Vec::<String>::new());
    let over = report(&mut s, 1, not_launched(key(1, 1), &[0], Some(bad(0))));
    assert!(over.contains(&"save 1.1 ended".to_owned()), "{over:?}");
    assert!(over.contains(&"-> 1 acknowledge 1.1".to_owned()), "{over:?}");
}

#[test]
fn a_host_that_took_back_what_the_head_has_launched_is_given_it_again() {
    let mut s = spread();
    s.apply(at(70), Event::Tick);
    report(&mut s, 1, Report::Launched(key(1, 1)));
    let effects =
        s.apply(at(70), Event::Report { link: LinkId(2), report: Box::new(taken_back(key(1, 1))) });
    let [Effect::Command { link: LinkId(2), command: Command::Place(place) }] = &effects[..] else {
        panic!("{effects:?}");
    };
    // Its own ticket has lapsed, and that does not matter any more.
    assert_eq!(place.ticket_left, alone().ticket_time);
}

#[test]
fn it_is_given_again_also_where_the_head_speaks_last() {
    let mut s = spread();
    s.apply(at(70), Event::Tick);
    report(&mut s, 2, taken_back(key(1, 1)));
    let effects = report(&mut s, 1, Report::Launched(key(1, 1)));
    assert_eq!(effects, ["save 1.1 launching lazy", "log 1 launched", "-> 2 place 1.1"]);
    // One that is to end has nothing there any more.
    let mut s = spread();
    let kill = |signal| Event::Kill {
        reply: ReplyId(9),
        apids: vec![Apid(1)],
        signal,
        uid: 1000,
        administrator: false,
    };
    s.apply(at(2), kill(2));
    report(&mut s, 2, taken_back(key(1, 1)));
    report(&mut s, 1, Report::Launched(key(1, 1)));
    let over = report(&mut s, 1, ended(key(1, 1), &[0], Some(bad(0))));
    assert_eq!(over[0], "save 1.1 ended");
}

/// A report that comes once more is of the time before the host was given the place again. (An
/// apinit of a release before, which repeats no number of a question.)
#[test]
fn an_application_that_runs_is_lost_only_by_a_host_that_was_asked_for_it() {
    let mut s = spread();
    s.apply(at(70), Event::Tick);
    report(&mut s, 2, taken_back(key(1, 1)));
    report(&mut s, 1, Report::Launched(key(1, 1)));
    report(&mut s, 1, Report::Running(key(1, 1)));
    let back = || taken_back(key(1, 1));
    assert_eq!(report(&mut s, 2, back()), ["-> 2 take-back 1.1"]);
    assert_eq!(report(&mut s, 2, Report::Launched(key(1, 1))), [""; 0]);
    // What it has said is forgotten.
    assert_eq!(report(&mut s, 2, back()), ["-> 2 take-back 1.1"]);
    let lost = report(&mut s, 2, back());
    assert!(lost.contains(&"-> 1 terminate 1.1 5".to_owned()), "{lost:?}");
}

/// Its part was given again and has run to its end, of which psched hears before the head says that
/// all have gone; or while the question is under way. The host has forgotten it then, and lost
/// nothing.
#[test]
fn a_part_that_has_ended_is_not_lost() {
    let end = || ended(key(1, 1), &[1], None);
    let again = |s: &mut Scheduler| {
        // Its apinit has not heard of the place, and is given it again.
        assert!(brief(&link(s, 3, &[1], &[])).contains(&"-> 3 place 1.1".to_owned()));
        report(s, 1, Report::Launched(key(1, 1)));
    };
    let mut s = spread();
    again(&mut s);
    report(&mut s, 3, end());
    let runs = report(&mut s, 1, Report::Running(key(1, 1)));
    assert!(!runs.contains(&"-> 3 take-back 1.1".to_owned()), "{runs:?}");
    let mut s = spread();
    again(&mut s);
    let runs = report(&mut s, 1, Report::Running(key(1, 1)));
    assert!(runs.contains(&"-> 3 take-back 1.1".to_owned()), "{runs:?}");
    report(&mut s, 3, end());
    for _ in 0..2 {
        assert_eq!(report(&mut s, 3, taken_back(key(1, 1))), [""; 0]);
    }
    assert_eq!(s.team(Apid(1)).map(|team| team.state), Some(State::Running));
    let over = report(&mut s, 1, ended(key(1, 1), &[0], None));
    assert_eq!(over[0], "save 1.1 ended");
}

/// The head was killed after it had said that the launch had come, and before its shepherd had it.
#[test]
fn a_launch_that_was_lost_again_goes_with_its_front_end() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    report(&mut s, 1, Report::Launched(key(1, 1)));
    let gone = brief(&s.apply(at(2), Event::FrontGone { apid: Apid(1) }));
    assert_eq!(gone, ["save 1.1 launching", "-> 1 terminate 1.1 2"]);
    let back = brief(&link(&mut s, 2, &[0], &[(key(1, 1), Phase::Placed)]));
    assert!(back.contains(&"-> 2 terminate 1.1 2".to_owned()), "{back:?}");
}

/// A front end on psched's host is watched by an apinit there; of one on a login host psched tells
/// the nodes, and so it does if PE 0 is on another host.
#[test]
fn a_running_application_ends_with_a_front_end_that_its_head_does_not_watch() {
    let told = || vec!["-> 1 terminate 1.1 2"];
    let cases = [
        ("", false, vec![]),
        ("login/boot", false, told()),
        ("", true, told()),
        ("login/boot", true, told()),
    ];
    for (host, remote, told) in cases {
        let mut s = Scheduler::new(machine(1, 2), alone());
        let hello = Box::new(Hello { remote, ..*hello(&[0]) });
        s.apply(at(0), Event::LinkOpened { link: LinkId(1), hello });
        s.apply(at(0), Event::Inventory { link: LinkId(1), items: Vec::new() });
        let mut event = posted(1, 2);
        if let Event::Posted { front, .. } = &mut event {
            front.host = host.into();
        }
        s.apply(at(1), event);
        report(&mut s, 1, Report::Launched(key(1, 1)));
        report(&mut s, 1, Report::Running(key(1, 1)));
        let gone = brief(&s.apply(at(2), Event::FrontGone { apid: Apid(1) }));
        let said: Vec<_> = gone.iter().filter(|said| said.starts_with("->")).collect();
        assert_eq!(said, told, "{host} {remote}");
    }
}

/// Both go with a restart of psched's own host, and the application ends for that.
#[test]
fn a_front_end_that_has_gone_with_its_head_is_no_cause() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    report(&mut s, 1, Report::Launched(key(1, 1)));
    report(&mut s, 1, Report::Running(key(1, 1)));
    s.apply(at(2), Event::LinkClosed { link: LinkId(1) });
    s.apply(at(2), Event::FrontGone { apid: Apid(1) });
    assert!(s.team(Apid(1)).is_some_and(|team| team.doomed.is_none()));
}

/// An application of an aprun on a login host, which runs.
fn of_login_host() -> Scheduler {
    let mut s = ready(1, 2);
    let mut event = posted(1, 2);
    if let Event::Posted { front, .. } = &mut event {
        front.host = "login/boot".into();
    }
    s.apply(at(1), event);
    report(&mut s, 1, Report::Launched(key(1, 1)));
    report(&mut s, 1, Report::Running(key(1, 1)));
    s
}

fn kill(s: &mut Scheduler, signal: i32) -> Vec<Effect> {
    let (reply, apids) = (ReplyId(7), vec![Apid(1)]);
    s.apply(at(3), Event::Kill { reply, apids, signal, uid: 1000, administrator: true })
}

fn causes(effects: Vec<Effect>) -> Vec<Cause> {
    let cause = |effect| match effect {
        Effect::Command { command: Command::Terminate { cause, .. }, .. } => Some(cause),
        _ => None,
    };
    effects.into_iter().filter_map(cause).collect()
}

/// Its head, which has been away meanwhile, is told so whatever it is ended for; also by a psched
/// that has been started anew.
#[test]
fn a_front_end_that_is_gone_is_told_beside_the_cause() {
    let mut s = of_login_host();
    s.apply(at(2), Event::LinkClosed { link: LinkId(1) });
    kill(&mut s, 9);
    s.apply(at(3), Event::FrontGone { apid: Apid(1) });
    let mut again = started_again(&s, machine(1, 2));
    for s in [&mut s, &mut again] {
        let back = causes(link(s, 2, &[0], &[(key(1, 1), Phase::Running)]));
        assert!(matches!(&back[..], [Cause::Kill { signal: 9, .. }, Cause::FrontGone]), "{back:?}");
    }
}

/// Whether the hosts are there when it is decided, or connect afterwards.
#[test]
fn each_cause_has_its_own_time_to_kill() {
    let mut s = of_login_host();
    let killed = brief(&kill(&mut s, 0));
    assert!(killed.contains(&"-> 1 terminate 1.1 300".to_owned()), "{killed:?}");
    let gone = brief(&s.apply(at(3), Event::FrontGone { apid: Apid(1) }));
    assert_eq!(gone, ["save 1.1 running", "-> 1 terminate 1.1 300", "-> 1 terminate 1.1 2"]);
    let back = brief(&link(&mut s, 2, &[0], &[(key(1, 1), Phase::Running)]));
    assert_eq!(back, ["-> 2 terminate 1.1 300", "-> 2 terminate 1.1 2"]);
}

/// However many reports come once more: only what answers the question counts.
#[test]
fn answers_to_older_commands_lose_no_application_that_runs() {
    let mut s = spread();
    let told = |effects: &[Effect]| {
        let command = effects.iter().find_map(|effect| match effect {
            Effect::Command { link: LinkId(2), command } => Some(command.clone()),
            _ => None,
        });
        match command {
            Some(Command::TakeBack { key: of, number }) if of == key(1, 1) => number,
            other => panic!("{other:?}"),
        }
    };
    let back = |s: &mut Scheduler, number| {
        let report = Box::new(Report::TakenBack { key: key(1, 1), number });
        s.apply(at(70), Event::Report { link: LinkId(2), report })
    };
    let lapsed = told(&s.apply(at(70), Event::Tick));
    back(&mut s, lapsed);
    report(&mut s, 1, Report::Launched(key(1, 1)));
    report(&mut s, 1, Report::Running(key(1, 1)));
    let asked = told(&back(&mut s, lapsed));
    assert!(asked != lapsed && asked != 0 && lapsed != 0, "{lapsed} {asked}");
    for older in [lapsed, lapsed, asked - 1, asked + 1] {
        assert_eq!(brief(&back(&mut s, older)), [""; 0]);
    }
    assert_eq!(s.team(Apid(1)).map(|team| team.state), Some(State::Running));
    // It has it; asked anew, the answer to the first question is an older one, too.
    report(&mut s, 2, Report::Launched(key(1, 1)));
    let anew = told(&back(&mut s, asked));
    assert_eq!(brief(&back(&mut s, asked)), [""; 0]);
    let lost = brief(&back(&mut s, anew));
    assert!(lost.contains(&"-> 1 terminate 1.1 5".to_owned()), "{lost:?}");
}
