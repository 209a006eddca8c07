//! Examples with exact effects: what leaves, and that nothing else does.

mod bounds;
mod decided;
mod foreign;
mod machines;
mod measured;
mod memory;
mod migrate;
mod orders;
mod retuned;
mod sharing;
mod turns;

use super::*;
use crate::apteam::Ticket;
use crate::apteam::change::By;
use crate::apteam::ending::{Cause, Decisive, EndCount, HostEnd, PeEnd};
use crate::apteam::posting::{Owner, Posting, Shape};
use crate::apteam::record::FrontProcess;
use crate::apteam::talk::attach::PSCHED_SIGNALS;
use crate::apteam::talk::node::{Foreign, Phase, Report};
use crate::machine::{Flavors, Node, format_nids};
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

pub(super) fn machine(nodes: u32, processors: u32) -> Machine {
    let node = |nid| Node {
        nid: Nid(nid),
        processors,
        cpus: Vec::new(),
        memory: 1 << 30,
        flavors: Flavors::all(),
        host: String::new(),
    };
    Machine { nodes: (0..nodes).map(|n| (Nid(n), node(n))).collect() }
}

/// Nobody shares a processor.
fn alone() -> Settings {
    sharing(1)
}

/// So many share a processor.
pub(super) fn sharing(max_resident: u32) -> Settings {
    Settings { turns: Turns { max_resident, ..Turns::default() }, ..Settings::default() }
}

fn at(seconds: u64) -> Now {
    Now { mono_ns: seconds * SECOND, wall_ns: seconds * SECOND + 7 }
}

fn posting(number: u8, width: u32) -> Posting {
    Posting {
        request_id: [number; 16],
        shape: Shape { width, depth: 1, per_node: None },
        memory_per_pe: None,
        command: "a.out".into(),
        cpu_limit: None,
        time_limit: None,
        immediate: false,
        exclusive: false,
        executable: Default::default(),
    }
}

pub(super) fn posted(number: u8, width: u32) -> Event {
    Event::Posted {
        reply: ReplyId(u64::from(number)),
        posting: Box::new(posting(number, width)),
        owner: Owner { uid: 1000, gid: 1000, groups: Vec::new(), name: "alice".into() },
        front: FrontProcess { pid: 4000 + i32::from(number), started: 1 },
        secret: Ticket([number; 16]),
    }
}

pub(super) fn hello(nids: &[u32]) -> Box<Hello> {
    Box::new(Hello {
        protocol: 1,
        socket: "/run/psched/apinit-0.sock".into(),
        hostname: "h".into(),
        boot_id: "boot-1".into(),
        nids: nids.iter().map(|n| Nid(*n)).collect(),
        cpus: vec![0, 1],
        ..Hello::default()
    })
}

/// A machine whose nodes are all offered on link 1.
fn ready(nodes: u32, processors: u32) -> Scheduler {
    let mut s = Scheduler::new(machine(nodes, processors), alone());
    link(&mut s, 1, &(0..nodes).collect::<Vec<_>>(), &[]);
    s
}

fn link(s: &mut Scheduler, number: u64, nids: &[u32], items: &[(Key, Phase)]) -> Vec<Effect> {
    let link = LinkId(number);
    s.apply(at(0), Event::LinkOpened { link, hello: hello(nids) });
    s.apply(at(0), Event::Inventory { link, items: items.to_vec() })
}

fn key(apid: u64, incarnation: u32) -> Key {
    Key { apid: Apid(apid), incarnation: crate::apteam::Incarnation(incarnation) }
}

/// Effects in short, for comparison.
fn brief(effects: &[Effect]) -> Vec<String> {
    effects
        .iter()
        .map(|e| match e {
            Effect::Save { team, lazy } => {
                format!(
                    "save {} {}{}",
                    team.key(),
                    team.state.name(),
                    if *lazy { " lazy" } else { "" }
                )
            }
            Effect::SaveAdopted { team } => {
                format!("save-adopted {} {}", team.key(), team.state.name())
            }
            Effect::Managed { reply, done, problems } => {
                format!("managed {} {} {}", reply.0, done.len(), problems.len())
            }
            Effect::SavePassedOver { apid, passed_over } => format!("passed {apid} {passed_over}"),
            Effect::Log { apid, name, .. } => format!("log {apid} {name}"),
            Effect::SaveBoot { boot_id, .. } => format!("boot {boot_id}"),
            Effect::SaveNodes { nids, order } => {
                let closed = order.as_ref().map_or("open", |order| order.closed.name());
                format!("nodes {} {closed}", format_nids(nids.iter().copied()))
            }
            Effect::SaveChange(change) => format!("change {}", change.what),
            Effect::Accept { reply, apid } => format!("accept {} {apid}", reply.0),
            Effect::Refuse { reply, refusal, .. } => format!("refuse {} {refusal:?}", reply.0),
            Effect::Look { reply, looked } => match looked {
                Looked::Placed(team) => format!("look {} placed {}", reply.0, team.key()),
                Looked::Waiting(_) => format!("look {} waiting", reply.0),
            },
            Effect::Killed { problems, .. } => format!("killed {problems:?}"),
            Effect::Command { link, command } => {
                let what = match command {
                    Command::Place(p) => format!("place {}", p.key),
                    Command::TakeBack(k) => format!("take-back {k}"),
                    Command::Signal { key, signal } => format!("signal {key} {}", signal.signal),
                    Command::Terminate { key, kill_after, .. } => {
                        format!("terminate {key} {}", kill_after.as_secs())
                    }
                    Command::AcknowledgeEnd(k) => format!("acknowledge {k}"),
                    Command::Discard(k) => format!("discard {k}"),
                    Command::Adopt => "adopt".into(),
                    Command::Purge { .. } => "purge".into(),
                    Command::Bounds(_) => "bounds".into(),
                    Command::Plan(_) => "plan".into(),
                    Command::AgreePlan(_) => "agree plan".into(),
                    Command::WithdrawPlan(_) => "withdraw plan".into(),
                };
                format!("-> {} {what}", link.0)
            }
            Effect::Welcome { link, .. } => format!("welcome {}", link.0),
            Effect::RefuseLink { link, .. } => format!("refuse-link {}", link.0),
            Effect::CloseLink { link } => format!("close-link {}", link.0),
            Effect::SignalFront { apid, .. } => format!("usr1 {apid}"),
            Effect::Tell { apid, news } => match news {
                News::Placed => format!("tell {apid} placed"),
                News::Running => format!("tell {apid} running"),
                News::Ended { status, .. } => format!("tell {apid} ended {status}"),
            },
            Effect::TellEnd { apid, status, .. } => format!("now: tell {apid} ended {status}"),
            Effect::Move { key, .. } => format!("move {}", key.apid),
            Effect::RollOut { key } => format!("roll out {}", key.apid),
            Effect::Warn(_) => "warn".into(),
        })
        .collect()
}

fn report(s: &mut Scheduler, link: u64, report: Report) -> Vec<String> {
    brief(&s.apply(at(1), Event::Report { link: LinkId(link), report: Box::new(report) }))
}

fn ended(k: Key, nids: &[u32], first: Option<Decisive>) -> Report {
    Report::Ended(Box::new(HostEnd {
        key: k,
        nids: nids.iter().map(|n| Nid(*n)).collect(),
        launched: true,
        first,
        ..HostEnd::default()
    }))
}

fn not_launched(k: Key, nids: &[u32], first: Option<Decisive>) -> Report {
    match ended(k, nids, first) {
        Report::Ended(end) => Report::Ended(Box::new(HostEnd { launched: false, ..*end })),
        other => other,
    }
}

#[test]
fn a_posting_on_an_idle_machine_lives_and_ends() {
    let mut s = ready(2, 2);
    let effects = brief(&s.apply(at(1), posted(1, 3)));
    assert_eq!(
        effects,
        [
            "save 1.0 posted",
            "log 1 posted",
            "accept 1 1",
            "save 1.1 placed",
            "log 1 placed",
            "-> 1 place 1.1",
            "tell 1 placed",
            "usr1 1",
        ]
    );
    let looked = s.apply(at(1), Event::Looked { reply: ReplyId(9), apid: Apid(1) });
    assert_eq!(brief(&looked), ["look 9 placed 1.1"]);
    assert_eq!(
        report(&mut s, 1, Report::Launched(key(1, 1))),
        ["save 1.1 launching lazy", "log 1 launched"]
    );
    assert_eq!(
        report(&mut s, 1, Report::Running(key(1, 1))),
        ["save 1.1 running lazy", "log 1 running", "tell 1 running"]
    );
    let bad = Decisive { at_ns: 5, cause: Cause::PeExit { rank: 2, nid: Nid(1), code: 3 } };
    let end = ended(key(1, 1), &[0, 1], Some(bad));
    assert_eq!(
        report(&mut s, 1, end.clone()),
        ["save 1.1 ended", "log 1 ended", "now: tell 1 ended 3", "-> 1 acknowledge 1.1"]
    );
    // Repeated because the acknowledgement was lost: the node need wait for nothing of it.
    assert_eq!(report(&mut s, 1, end), ["-> 1 discard 1.1"]);
    assert_eq!(s.teams().count(), 0);
}

#[test]
fn the_same_posting_twice_is_one_application() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 1));
    assert_eq!(brief(&s.apply(at(1), posted(1, 1))), ["accept 1 1", "tell 1 placed"]);
    assert_eq!(s.teams().count(), 1);
}

#[test]
fn an_impossible_posting_is_refused_and_leaves_no_record() {
    let mut s = ready(2, 2);
    assert_eq!(brief(&s.apply(at(1), posted(1, 5))), ["refuse 1 Impossible"]);
    assert_eq!(s.teams().count(), 0);
}

#[test]
fn a_posting_waits_and_a_smaller_one_passes() {
    let mut s = ready(2, 2);
    s.apply(at(1), posted(1, 3));
    assert_eq!(
        brief(&s.apply(at(1), posted(2, 2))),
        ["save 2.0 posted", "log 2 posted", "accept 2 2"]
    );
    let third = brief(&s.apply(at(1), posted(3, 1)));
    assert!(third.contains(&"passed 2 1".into()), "{third:?}");
    assert!(third.contains(&"-> 1 place 3.1".into()), "{third:?}");
    let why = s.why(Apid(2)).expect("it waits").to_string();
    assert!(why.contains("1 of alice"), "{why}");
    let freed = report(&mut s, 1, ended(key(1, 1), &[0, 1], None));
    assert!(freed.contains(&"-> 1 place 2.1".into()), "{freed:?}");
}

#[test]
fn one_passed_over_too_often_is_waited_for() {
    let settings = Settings { passed_over_max: 2, ..alone() };
    let mut s = Scheduler::new(machine(1, 2), settings);
    link(&mut s, 1, &[0], &[]);
    s.apply(at(1), posted(1, 1));
    s.apply(at(1), posted(2, 2));
    let started = |e: Vec<Effect>| brief(&e).iter().any(|b| b.contains("place"));
    assert!(started(s.apply(at(1), posted(3, 1))));
    report(&mut s, 1, ended(key(3, 1), &[0], None));
    assert!(started(s.apply(at(1), posted(4, 1))));
    report(&mut s, 1, ended(key(4, 1), &[0], None));
    // Twice passed: now a processor stays free for the wide one.
    assert!(!started(s.apply(at(1), posted(5, 1))));
    assert!(report(&mut s, 1, ended(key(1, 1), &[0], None)).contains(&"-> 1 place 2.1".into()));
}

/// Its aprun was cut off before it had the answer: it has not heard of its place either.
#[test]
fn a_posting_sent_again_is_told_that_it_has_a_place() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    assert_eq!(brief(&s.apply(at(2), posted(1, 2))), ["accept 1 1", "tell 1 placed"]);
    assert_eq!(brief(&s.apply(at(3), posted(2, 2)))[2..], ["accept 2 2"]);
    assert_eq!(brief(&s.apply(at(4), posted(2, 2))), ["accept 2 2"]);
}

#[test]
fn a_silent_front_end_loses_its_place_and_waits_again() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    assert_eq!(s.deadline(), Some(61 * SECOND));
    assert_eq!(brief(&s.apply(at(60), Event::Tick)), Vec::<String>::new());
    let taken = brief(&s.apply(at(61), Event::Tick));
    assert_eq!(taken, ["-> 1 take-back 1.1", "save 1.1 taking-back", "log 1 silent"]);
    // Nothing is anybody else's before the node has said so.
    assert!(!brief(&s.apply(at(62), posted(2, 2))).contains(&"-> 1 place 2.1".into()));
    let back = report(&mut s, 1, Report::TakenBack(key(1, 1)));
    assert!(back.contains(&"save 1.1 lapsed".into()) && back.contains(&"-> 1 place 2.1".into()));
    let looked = brief(&s.apply(at(70), Event::Looked { reply: ReplyId(9), apid: Apid(1) }));
    assert_eq!(looked, ["save 1.1 posted", "log 1 waiting", "look 9 waiting"]);
    // It is again before those that came later, and gets a new incarnation.
    s.apply(at(71), posted(3, 2));
    let placed = report(&mut s, 1, ended(key(2, 1), &[0], None));
    assert!(placed.contains(&"-> 1 place 1.2".into()), "{placed:?}");
}

#[test]
fn a_launch_that_crosses_the_taking_back_stands() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    s.apply(at(61), Event::Tick);
    assert_eq!(
        report(&mut s, 1, Report::Launched(key(1, 1))),
        ["save 1.1 launching lazy", "log 1 launched"]
    );
    // The late acknowledgement of an older question changes nothing of it... it can't come from a
    // node that launched; a stale incarnation has no effect either.
    assert_eq!(report(&mut s, 1, Report::TakenBack(key(1, 9))), Vec::<String>::new());
    assert_eq!(s.team(Apid(1)).expect("there").state, State::Launching);
}

#[test]
fn a_report_of_an_older_incarnation_has_no_effect() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    s.apply(at(61), Event::Tick);
    report(&mut s, 1, Report::TakenBack(key(1, 1)));
    s.apply(at(70), Event::Looked { reply: ReplyId(9), apid: Apid(1) });
    s.apply(at(140), Event::Tick);
    assert_eq!(s.team(Apid(1)).map(|t| (t.key(), t.state)), Some((key(1, 2), State::TakingBack)));
    for stale in
        [Report::TakenBack(key(1, 1)), Report::Launched(key(1, 1)), Report::Running(key(1, 1))]
    {
        assert_eq!(report(&mut s, 1, stale), Vec::<String>::new());
    }
    // An old end is not wanted: the node forgets it. The present one is not ended by it.
    assert_eq!(report(&mut s, 1, ended(key(1, 1), &[0], None)), ["-> 1 discard 1.1"]);
    assert_eq!(s.team(Apid(1)).map(|t| t.state), Some(State::TakingBack));
}

/// psched was dead while a posting was launched and went: the end of one host's part is the first
/// that it hears. What is on the other hosts is not to be taken back any more.
#[test]
fn an_end_after_the_go_tells_that_all_went() {
    let mut s = Scheduler::new(machine(2, 2), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    s.apply(at(1), posted(1, 4));
    let told = report(&mut s, 1, ended(key(1, 1), &[0], None));
    assert!(told.contains(&"save 1.1 running lazy".into()), "{told:?}");
    assert_eq!(brief(&s.apply(at(99), Event::Tick)), Vec::<String>::new(), "no ticket lapses");
    // The other host was switched off meanwhile.
    s.apply(at(99), Event::LinkClosed { link: LinkId(2) });
    let hello = Box::new(Hello { boot_id: "boot-2".into(), ..*hello(&[1]) });
    s.apply(at(99), Event::LinkOpened { link: LinkId(3), hello });
    let told = s.apply(at(99), Event::Inventory { link: LinkId(3), items: vec![] });
    assert!(brief(&told).contains(&"tell 1 ended 125".into()), "{told:?}");
}

/// A host that was switched off while its place was asked back has said that it has nothing of it;
/// then the head, which could not be heard, tells that all went.
#[test]
fn what_was_given_back_and_had_gone_is_lost() {
    let mut s = spread();
    s.apply(at(70), Event::Tick);
    report(&mut s, 2, Report::TakenBack(key(1, 1)));
    let told = report(&mut s, 1, Report::Running(key(1, 1)));
    assert!(told.contains(&"-> 1 terminate 1.1 5".into()), "{told:?}");
    let told = report(&mut s, 1, ended(key(1, 1), &[0], None));
    assert!(told.contains(&"now: tell 1 ended 125".into()), "{told:?}");
    // The other way round it is given its part again, and says to its head what has come of it.
    let mut s = spread();
    s.apply(at(70), Event::Tick);
    report(&mut s, 1, Report::Running(key(1, 1)));
    assert_eq!(report(&mut s, 2, Report::TakenBack(key(1, 1))), ["-> 2 place 1.1"]);
}

/// The host of PE 0 was switched off when its own part had ended: the others would wait for it for
/// ever, in a barrier or with their output.
#[test]
fn a_head_that_is_gone_ends_the_rest() {
    let mut s = spread();
    report(&mut s, 1, Report::Running(key(1, 1)));
    report(&mut s, 1, ended(key(1, 1), &[0], None));
    let back = |s: &mut Scheduler, link, boot: &str| {
        let link = LinkId(link);
        let hello = Box::new(Hello { boot_id: boot.into(), ..*hello(&[0]) });
        s.apply(at(9), Event::LinkOpened { link, hello });
        brief(&s.apply(at(9), Event::Inventory { link, items: vec![] }))
    };
    assert_eq!(back(&mut s, 3, "boot-1"), Vec::<String>::new());
    let told = back(&mut s, 4, "boot-2");
    assert_eq!(told[1..3], ["-> 2 terminate 1.1 5", "save 1.1 running"]);
    let told = report(&mut s, 2, ended(key(1, 1), &[1], None));
    assert!(told.contains(&"tell 1 ended 125".into()), "{told:?}");
}

/// A front end that has heard of the end goes before psched has it on record, and psched dies: what
/// it decides then, of all PEs that have ended by themselves, changes nothing.
#[test]
fn a_decision_that_comes_after_the_end_is_not_its_cause() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    report(&mut s, 1, Report::Launched(key(1, 1)));
    s.apply(at(2), Event::FrontGone { apid: Apid(1) });
    let all = EndCount { end: PeEnd::Exit(0), count: 2, consequence: false };
    let end = |count| HostEnd {
        key: key(1, 1),
        nids: vec![Nid(0)],
        launched: true,
        ends: vec![EndCount { count, ..all }],
        ..HostEnd::default()
    };
    let status = |s: &Scheduler, count| {
        let told = report(&mut s.clone(), 1, Report::Ended(Box::new(end(count))));
        told.into_iter().find(|effect| effect.contains("tell 1 ended")).unwrap_or_default()
    };
    assert_eq!(status(&s, 2), "now: tell 1 ended 0");
    assert_eq!(status(&s, 1), "tell 1 ended 125");
}

#[test]
fn a_dead_front_end_takes_its_posting_with_it() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    s.apply(at(1), posted(2, 1));
    assert_eq!(
        brief(&s.apply(at(2), Event::FrontGone { apid: Apid(2) })),
        ["save 2.0 ended", "log 2 ended", "tell 2 ended 125"]
    );
    assert_eq!(
        brief(&s.apply(at(2), Event::FrontGone { apid: Apid(1) })),
        ["-> 1 take-back 1.1", "save 1.1 taking-back"]
    );
    let back = report(&mut s, 1, Report::TakenBack(key(1, 1)));
    assert_eq!(back, ["save 1.1 ended", "log 1 ended", "tell 1 ended 125"]);
}

#[test]
fn killing_is_for_owners_and_administrators() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    s.apply(at(1), posted(2, 2));
    report(&mut s, 1, Report::Running(key(1, 1)));
    let mut kill = |apid, signal, uid, administrator| {
        let apids = vec![Apid(apid)];
        brief(&s.apply(at(2), Event::Kill { reply: ReplyId(7), apids, signal, uid, administrator }))
    };
    assert!(kill(1, 0, 1001, false)[0].contains("belongs to alice"));
    assert!(kill(9, 0, 1000, false)[0].contains("there is no application 9"));
    assert!(kill(2, 10, 1000, false)[0].contains("has not started"));
    assert_eq!(
        kill(1, 0, 0, true),
        ["save 1.1 running", "-> 1 terminate 1.1 300", "log 1 signal", "killed [None]"]
    );
    assert_eq!(
        kill(1, 10, 1000, false),
        ["save 1.1 running", "-> 1 signal 1.1 10", "log 1 signal", "killed [None]"]
    );
    let waiting = kill(2, 0, 1000, false);
    assert!(waiting.contains(&"tell 2 ended 143".into()), "{waiting:?}");
}

/// Its nodes say it again to a psched that has died meanwhile, but not what that one had decided.
#[test]
fn what_psched_has_decided_is_told_when_it_is_on_record() {
    let by_node = Decisive { at_ns: 5, cause: Cause::PeExit { rank: 0, nid: Nid(0), code: 3 } };
    let told = |killed: bool| {
        let mut s = ready(1, 2);
        s.apply(at(1), posted(1, 2));
        report(&mut s, 1, Report::Running(key(1, 1)));
        if killed {
            let (reply, apids) = (ReplyId(7), vec![Apid(1)]);
            s.apply(
                Now { mono_ns: 4, ..at(2) },
                Event::Kill { reply, apids, signal: 9, uid: 1000, administrator: false },
            );
        }
        report(&mut s, 1, ended(key(1, 1), &[0], Some(by_node.clone())))
    };
    assert!(told(false).contains(&"now: tell 1 ended 3".into()), "{:?}", told(false));
    assert!(told(true).contains(&"tell 1 ended 137".into()), "{:?}", told(true));
}

/// A host stamps by its own clock what it has only heard of another, whose own word came later.
#[test]
fn what_a_host_has_heard_does_not_decide_against_the_host_itself() {
    let mut s = spread();
    report(&mut s, 1, Report::Running(key(1, 1)));
    let signal = Cause::PeSignal { rank: 3, nid: Nid(1), signal: 11 };
    let heard = Decisive { at_ns: 4, cause: signal };
    report(&mut s, 1, ended(key(1, 1), &[0], Some(heard)));
    let own = Decisive { at_ns: 5, cause: Cause::PeExit { rank: 1, nid: Nid(1), code: 57 } };
    let told = report(&mut s, 2, ended(key(1, 1), &[1], Some(own)));
    assert!(told.contains(&"now: tell 1 ended 57".into()), "{told:?}");
}

/// It is said again to a head that comes back, and by a psched that does, until all have it.
#[test]
fn a_signal_is_kept_until_it_has_come() {
    let mut s = spread();
    let usr1 = || {
        let (reply, apids) = (ReplyId(7), vec![Apid(1)]);
        Event::Kill { reply, apids, signal: 10, uid: 1000, administrator: false }
    };
    report(&mut s, 1, Report::Launched(key(1, 1)));
    let kept = ["save 1.1 launching", "log 1 signal", "killed [None]"];
    assert_eq!(brief(&s.apply(at(2), usr1())), kept, "nobody is there to take it");
    let running = report(&mut s, 1, Report::Running(key(1, 1)));
    assert!(running.contains(&"-> 1 signal 1.1 10".into()), "{running:?}");
    let numbers = |s: &Scheduler| -> Vec<u64> {
        s.team(Apid(1)).into_iter().flat_map(|t| &t.signals).map(|s| s.number).collect()
    };
    // The head is away.
    s.apply(at(3), Event::LinkClosed { link: LinkId(1) });
    let kept = ["save 1.1 running", "log 1 signal", "killed [None]"];
    assert_eq!(brief(&s.apply(at(3), usr1())), kept);
    let [first, second] = numbers(&s)[..] else { panic!("{:?}", numbers(&s)) };
    assert!(PSCHED_SIGNALS < first && first < second, "{first} {second}");
    let records = s.teams().cloned().collect();
    let (mut s, _) = Scheduler::restore(
        machine(2, 2),
        alone(),
        records,
        BTreeMap::new(),
        BTreeMap::new(),
        2,
        at(4),
    );
    let again = brief(&link(&mut s, 3, &[0], &[(key(1, 1), Phase::Running)]));
    assert_eq!(again.iter().filter(|e| *e == "-> 3 signal 1.1 10").count(), 2, "{again:?}");
    let other = brief(&link(&mut s, 4, &[1], &[(key(1, 1), Phase::Running)]));
    assert!(!other.iter().any(|e| e.contains("signal")), "{other:?}");
    let taken = |number| Report::SignalsTaken { key: key(1, 1), number };
    assert_eq!(report(&mut s, 3, taken(first)), ["save 1.1 running lazy"]);
    assert_eq!(numbers(&s), [second]);
    assert_eq!(report(&mut s, 3, taken(first)), [""; 0]);
    // There is an end to what is kept.
    let full = (0..20).map(|_| brief(&s.apply(at(5), usr1())).concat());
    assert_eq!(full.filter(|said| said.contains("have not come to all its nodes")).count(), 5);
}

/// It passes signals on to the other hosts, also when its own part has ended and it speaks of it no more.
#[test]
fn a_head_that_was_away_hears_of_signals_after_its_own_end() {
    let mut s = spread();
    report(&mut s, 1, Report::Running(key(1, 1)));
    report(&mut s, 1, ended(key(1, 1), &[0], None));
    s.apply(at(2), Event::LinkClosed { link: LinkId(1) });
    let (reply, apids) = (ReplyId(7), vec![Apid(1)]);
    s.apply(at(2), Event::Kill { reply, apids, signal: 10, uid: 1000, administrator: false });
    let back = brief(&link(&mut s, 3, &[0], &[]));
    assert!(back.contains(&"-> 3 signal 1.1 10".into()), "{back:?}");
}

#[test]
fn a_kill_after_a_term_reaches_a_node_that_was_away() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    report(&mut s, 1, Report::Running(key(1, 1)));
    s.apply(at(2), Event::LinkClosed { link: LinkId(1) });
    for (seconds, signal) in [(3, 0), (4, 9)] {
        let apids = vec![Apid(1)];
        let reply = ReplyId(7);
        let kill = Event::Kill { reply, apids, signal, uid: 0, administrator: true };
        s.apply(at(seconds), kill);
    }
    let effects = brief(&link(&mut s, 2, &[0], &[(key(1, 1), Phase::Running)]));
    assert_eq!(effects, ["-> 2 terminate 1.1 0"]);
}

#[test]
fn the_time_run_is_what_the_nodes_measured() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    report(&mut s, 1, Report::Running(key(1, 1)));
    let Report::Ended(end) = ended(key(1, 1), &[0], None) else { panic!("an end") };
    let (run, frozen) = (Duration::from_secs(3), Duration::from_secs(2));
    let end = Box::new(HostEnd { run, frozen, ..*end });
    let late = Event::Report { link: LinkId(1), report: Box::new(Report::Ended(end)) };
    let effects = s.apply(at(90), late);
    let Effect::Save { team, .. } = &effects[0] else { panic!("{effects:?}") };
    // It ended then, and not when it would have if it had never been frozen.
    assert_eq!(team.ended_at_ns - team.running_at_ns, 5 * SECOND);
}

/// One host's part has ended badly, and its apinit has lost sight of the others.
#[test]
fn a_bad_end_of_one_host_is_told_to_the_others() {
    let mut s = Scheduler::new(machine(2, 2), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    s.apply(at(0), posted(1, 4));
    let launched = Box::new(Report::Launched(key(1, 1)));
    s.apply(at(1), Event::Report { link: LinkId(1), report: launched });
    let cause = Cause::ShepherdLost { nid: Nid(0), text: "it died".into() };
    let first = Some(Decisive { at_ns: 1, cause });
    let end = HostEnd { key: key(1, 1), nids: vec![Nid(0)], first, ..HostEnd::default() };
    let report = Box::new(Report::Ended(Box::new(end.clone())));
    let effects = brief(&s.apply(at(1), Event::Report { link: LinkId(1), report }));
    assert!(effects.contains(&"-> 2 terminate 1.1 5".to_owned()), "{effects:?}");
    // Again to one that was away, but not with each repetition.
    let effects = brief(&link(&mut s, 3, &[1], &[(key(1, 1), Phase::Launched)]));
    assert!(effects.contains(&"-> 3 terminate 1.1 5".to_owned()), "{effects:?}");
    let report = Box::new(Report::Ended(Box::new(end)));
    let effects = brief(&s.apply(at(2), Event::Report { link: LinkId(1), report }));
    assert_eq!(effects, ["-> 1 acknowledge 1.1"]);
}

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

#[test]
fn the_table_of_records_and_nodes() {
    // A node that has something of which there is no record.
    let mut s = ready(1, 2);
    let effects = brief(&link(&mut s, 2, &[0], &[(key(77, 1), Phase::Running)]));
    assert_eq!(effects, ["warn", "-> 2 discard 77.1"]);
    // Running in the records, not there, same boot.
    s.apply(at(1), posted(1, 2));
    report(&mut s, 2, Report::Running(key(1, 1)));
    let effects = brief(&link(&mut s, 3, &[0], &[]));
    assert_eq!(effects, ["log 1 lost", "save 1.1 ended", "log 1 ended", "tell 1 ended 125"]);
    // An older incarnation.
    s.apply(at(1), posted(2, 2));
    let effects =
        brief(&link(&mut s, 4, &[0], &[(key(2, 0), Phase::Running), (key(2, 1), Phase::Running)]));
    assert_eq!(
        effects,
        ["warn", "-> 4 discard 2.0", "save 2.1 running lazy", "log 2 running", "tell 2 running"]
    );
}

#[test]
fn two_hosts_end_one_after_the_other_and_the_earliest_cause_counts() {
    let mut s = Scheduler::new(machine(2, 1), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    let placed = brief(&s.apply(at(1), posted(1, 2)));
    assert!(placed.contains(&"-> 1 place 1.1".into()) && placed.contains(&"-> 2 place 1.1".into()));
    report(&mut s, 1, Report::Running(key(1, 1)));
    let cause =
        |code, at_ns| Some(Decisive { at_ns, cause: Cause::PeExit { rank: 0, nid: Nid(0), code } });
    let half = report(&mut s, 1, ended(key(1, 1), &[0], cause(5, 20)));
    assert_eq!(half, ["save 1.1 running", "-> 1 acknowledge 1.1"]);
    let whole = report(&mut s, 2, ended(key(1, 1), &[1], cause(6, 10)));
    assert_eq!(whole[2], "now: tell 1 ended 6");
}

#[test]
fn what_does_not_die_is_shown_as_long_as_it_is_there() {
    let mut s = Scheduler::new(machine(2, 1), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    s.apply(at(1), posted(1, 2));
    let stuck = |number, nid: u32| {
        let processes = vec![format!("pid {nid}")];
        (number, Report::Stuck { key: key(1, 1), nid: Nid(nid), processes })
    };
    for (number, said) in [stuck(1, 0), stuck(2, 1)] {
        assert_eq!(report(&mut s, number, said), Vec::<String>::new());
    }
    let why = |s: &Scheduler| s.why(Apid(1)).map(|why| why.obstacle);
    assert_eq!(why(&s).as_deref(), Some("it is being ended, and pid 0; pid 1"));
    let notes = |s: &Scheduler| s.nodes().flat_map(|n| n.notes).collect::<Vec<_>>();
    let line = |pid: u32| format!("application 1 is being ended, and pid {pid}");
    assert_eq!(notes(&s), [line(0), line(1)]);
    report(&mut s, 1, ended(key(1, 1), &[0], None));
    assert_eq!(notes(&s), [line(1)]);
    report(&mut s, 2, ended(key(1, 1), &[1], None));
    assert_eq!((notes(&s).len(), why(&s)), (0, None));
    // Too late, or of another launch.
    let (number, said) = stuck(1, 0);
    report(&mut s, number, said);
    assert!(notes(&s).is_empty());
}

#[test]
fn what_was_killed_goes_on_as_it_was() {
    let mut s = ready(2, 2);
    s.apply(at(1), posted(1, 3));
    report(&mut s, 1, Report::Running(key(1, 1)));
    s.apply(at(1), posted(2, 2));
    let records: Vec<Apteam> = s.teams().cloned().collect();
    let (mut again, effects) = Scheduler::restore(
        machine(2, 2),
        alone(),
        records,
        BTreeMap::new(),
        BTreeMap::new(),
        3,
        at(2),
    );
    assert_eq!(effects, []);
    link(&mut again, 1, &[0, 1], &[(key(1, 1), Phase::Running)]);
    link(&mut s, 2, &[0, 1], &[(key(1, 1), Phase::Running)]);
    let end = ended(key(1, 1), &[0, 1], None);
    assert_eq!(report(&mut again, 1, end.clone()), {
        let mut told = report(&mut s, 2, end);
        told.iter_mut().for_each(|e| *e = e.replace("-> 2", "-> 1"));
        told
    });
    assert_eq!(again.next_apid(), s.next_apid());
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
        report(&mut s, 2, Report::TakenBack(key(1, 1)));
        if taken_back_first {
            report(&mut s, 1, refused);
        }
        assert!(s.team(Apid(1)).is_none(), "{taken_back_first}");
        assert_eq!(s.nodes().map(|n| n.used).sum::<u32>(), 0);
    }
}

#[test]
fn a_refused_store_leaves_nothing() {
    let mut s = ready(1, 1);
    s.apply(at(1), posted(1, 1));
    let undone = s.apply(at(1), Event::StoreRefused { apid: Apid(1), why: "full".into() });
    assert_eq!(brief(&undone), ["-> 1 discard 1.1", "warn"]);
    assert!(brief(&s.apply(at(1), posted(1, 1))).contains(&"-> 1 place 2.1".into()));
}

#[test]
fn one_user_only_where_there_is_no_privilege() {
    let settings = Settings { only_uid: Some(61234), ..alone() };
    let mut s = Scheduler::new(machine(1, 1), settings);
    assert_eq!(brief(&s.apply(at(1), posted(1, 1))), ["refuse 1 NotAllowed"]);
}

#[test]
fn ends_are_counted_by_kind() {
    let mut ends = Vec::new();
    let end = |code| crate::apteam::ending::EndCount {
        end: PeEnd::Exit(code),
        count: 1,
        consequence: false,
    };
    for code in [1, 0, 1] {
        crate::apteam::ending::count_end(&mut ends, end(code));
    }
    assert_eq!(
        ends.iter().map(|e| (e.end, e.count)).collect::<Vec<_>>(),
        [(PeEnd::Exit(0), 1), (PeEnd::Exit(1), 2)]
    );
}

/// Two nodes of two apinits, links 1 and 2, and application 1 with a PE on each processor.
fn spread() -> Scheduler {
    let mut s = Scheduler::new(machine(2, 2), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    s.apply(at(1), posted(1, 4));
    s
}

fn bad(nid: u32) -> Decisive {
    Decisive { at_ns: 7, cause: Cause::ShepherdLost { nid: Nid(nid), text: "no process".into() } }
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
    assert_eq!(report(&mut s, 2, Report::TakenBack(key(1, 1))), Vec::<String>::new());
    let over = report(&mut s, 1, not_launched(key(1, 1), &[0], Some(bad(0))));
    assert!(over.contains(&"save 1.1 ended".to_owned()), "{over:?}");
    assert!(over.contains(&"-> 1 acknowledge 1.1".to_owned()), "{over:?}");
}

#[test]
fn a_host_that_took_back_what_the_head_has_launched_is_given_it_again() {
    let mut s = spread();
    s.apply(at(70), Event::Tick);
    report(&mut s, 1, Report::Launched(key(1, 1)));
    let effects = s.apply(
        at(70),
        Event::Report { link: LinkId(2), report: Box::new(Report::TakenBack(key(1, 1))) },
    );
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
    report(&mut s, 2, Report::TakenBack(key(1, 1)));
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
    report(&mut s, 2, Report::TakenBack(key(1, 1)));
    report(&mut s, 1, Report::Launched(key(1, 1)));
    let over = report(&mut s, 1, ended(key(1, 1), &[0], Some(bad(0))));
    assert_eq!(over[0], "save 1.1 ended");
}

/// The head was killed after it had said that the launch had come, and before its shepherd had it.
#[test]
fn a_launch_that_was_lost_again_goes_with_its_front_end() {
    let mut s = ready(1, 2);
    s.apply(at(1), posted(1, 2));
    report(&mut s, 1, Report::Launched(key(1, 1)));
    let gone = brief(&s.apply(at(2), Event::FrontGone { apid: Apid(1) }));
    assert_eq!(gone, ["save 1.1 launching", "-> 1 terminate 1.1 5"]);
    let back = brief(&link(&mut s, 2, &[0], &[(key(1, 1), Phase::Placed)]));
    assert!(back.contains(&"-> 2 terminate 1.1 5".to_owned()), "{back:?}");
}
