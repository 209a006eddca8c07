//! Examples with exact effects: what leaves, and that nothing else does.

mod again;
mod bounds;
mod chosen;
mod compare;
mod decided;
mod depths;
mod domains;
mod ends;
mod flavors;
mod flexible;
mod floors;
mod foreign;
mod fuller;
mod hosts;
mod invariants;
mod measured;
mod memory;
mod migrate;
mod nodes;
mod orders;
mod oversubscribe;
mod postings;
mod reconfigure;
mod regions;
mod restarts;
mod retries;
mod retuned;
mod shares;
mod sharing;
mod swap;
mod together;
mod turns;
mod words;

use super::*;
use crate::apteam::Apid;
use crate::apteam::Key;
use crate::apteam::Ticket;
use crate::apteam::change::By;
use crate::apteam::ending::{Cause, Decisive, EndCount, HostEnd, PeEnd};
use crate::apteam::fault::Fault;
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::protocol::attach::PSCHED_SIGNALS;
use crate::apteam::protocol::node::{Command, Hello};
use crate::apteam::protocol::node::{Foreign, Phase, Report};
use crate::apteam::record::FrontProcess;
use crate::apteam::shape::Shape;
use crate::machine::Machine;
use crate::machine::Nid;
use crate::machine::{Node, format_nids};
use crate::psched::reason::NodeNote;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

pub(super) fn machine(nodes: u32, processors: u32) -> Machine {
    let node = |nid| Node { memory: 1 << 30, ..Node::plain(Nid(nid), processors) };
    (0..nodes).map(node).collect()
}

/// Four on a processor; levels by minutes, without floors.
pub(super) fn plain() -> Settings {
    let mut variables = crate::variables::Variables::default();
    for (name, value) in [
        ("application.floor", "no"),
        ("application.max_resident", "4"),
        ("application.level.bound", "1m"),
    ] {
        variables.set(name, value).expect("a value");
    }
    Settings { turns: (&variables).into(), ..Settings::default() }
}

/// Nobody shares a processor.
fn alone() -> Settings {
    sharing(1)
}

/// So many share a processor.
pub(super) fn sharing(max_resident: u32) -> Settings {
    Settings { turns: Turns { max_resident, ..plain().turns }, ..plain() }
}

/// What is said of a node.
fn notes_said(notes: &[NodeNote]) -> Vec<String> {
    notes.iter().map(NodeNote::to_string).collect()
}

/// A host gives its part back. (It repeats no number, as an apinit of a release before does.)
fn taken_back(key: Key) -> Report {
    Report::TakenBack { key, number: 0 }
}

fn at(seconds: u64) -> Now {
    Now { mono_ns: seconds * SECOND, wall_ns: seconds * SECOND + 7 }
}

fn posting(number: u8, width: u32) -> Posting {
    let shape = Shape { width, depth: 1, per_node: None };
    Posting { command: "a.out".into(), ..Posting::plain([number; 16], shape) }
}

pub(super) fn posted(number: u8, width: u32) -> Event {
    Event::Posted {
        reply: ReplyId(u64::from(number)),
        posting: Box::new(posting(number, width)),
        owner: Owner {
            uid: 1000,
            gid: 1000,
            groups: Vec::new(),
            name: "alice".into(),
            terminal: false,
        },
        front: FrontProcess::here(4000 + i32::from(number), 1),
        secret: Ticket([number; 16]),
    }
}

/// The same of a user of this name, with two PEs.
pub(super) fn posted_by(number: u8, user: &str) -> Event {
    let mut event = posted(number, 2);
    if let Event::Posted { owner, .. } = &mut event {
        owner.name = user.into();
    }
    event
}

/// The same of one that is placed at once, over others where the fewest sit, or refused.
pub(super) fn posted_at_once(number: u8, width: u32) -> Event {
    let mut event = posted(number, width);
    let Event::Posted { posting, .. } = &mut event else { unreachable!() };
    posting.immediate = true;
    event
}

/// These, for one who has waited for a minute.
fn kept_after_a_minute(mut settings: Settings) -> Settings {
    settings.turns.longest_wait = Duration::from_secs(60);
    settings.turns.levels.longest_wait = settings.turns.longest_wait;
    settings
}

/// These, with floors.
fn with_floors(mut settings: Settings) -> Settings {
    settings.turns.floors = true;
    settings
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

/// The scheduler of a psched that is started with the records of this one.
fn started_again(s: &Scheduler, machine: Machine) -> Scheduler {
    let records = s.teams().cloned().collect();
    let (boots, orders) = Default::default();
    Scheduler::restore(machine, alone(), records, boots, orders, 3, at(4)).0
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
fn moved(key: Key, number: u32) -> Report {
    Report::Moved { key, number, frozen: Duration::ZERO }
}

fn brief(effects: &[Effect]) -> Vec<String> {
    effects
        .iter()
        .map(|e| match e {
            Effect::Keep(record @ (Record::Posted(team) | Record::Update { team, .. })) => {
                format!(
                    "save {} {}{}",
                    team.key(),
                    team.state.name(),
                    if record.is_lazy() { " lazy" } else { "" }
                )
            }
            Effect::Keep(Record::Adopted(team)) => {
                format!("save-adopted {} {}", team.key(), team.state.name())
            }
            Effect::Managed { reply, done, problems } => {
                format!("managed {} {} {}", reply.0, done.len(), problems.len())
            }
            Effect::Log { apid, name, .. } => format!("log {apid} {name}"),
            Effect::Keep(Record::Boot(_, boot_id)) => format!("boot {boot_id}"),
            Effect::Keep(Record::Nodes(nids, order)) => {
                let closed = order.as_ref().map_or("open", |order| order.closed.name());
                format!("nodes {} {closed}", format_nids(nids.iter().copied()))
            }
            Effect::Keep(Record::Flavors(nids, order)) => {
                let flavors =
                    order.as_ref().map_or_else(|| "reset".into(), |o| o.flavors.to_string());
                format!("flavors {} {flavors}", format_nids(nids.iter().copied()))
            }
            Effect::Keep(Record::Change(change)) => format!("change {}", change.what),
            Effect::Keep(Record::Shares(record)) => format!("shares {}", record.had.len()),
            Effect::Keep(other) => format!("{other:?}"),
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
                    Command::TakeBack { key, .. } => format!("take-back {key}"),
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
                    Command::Move(order) => {
                        let nids = format_nids(order.places.nids());
                        format!("move {} {} to {nids}", order.key, order.number)
                    }
                    Command::RollOut(k) => format!("roll out {k}"),
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
                News::Retried { failed, count, most } => {
                    format!("tell {apid} retried {} {count}/{most}", failed.incarnation.0)
                }
                News::Ended(end) => format!("tell {apid} ended {}", end.status()),
            },
            Effect::TellEnd { apid, end } => format!("now: tell {apid} ended {}", end.status()),
            Effect::RollIn { key, .. } => format!("roll in {}", key.apid),
            Effect::RollOut { key } => format!("roll out {}", key.apid),
            Effect::Warn(_) => "warn".into(),
            Effect::Fault(_) => "fault".into(),
        })
        .collect()
}

/// What an order is answered with.
#[track_caller]
fn answer(effects: &[Effect]) -> (Vec<&str>, Vec<&str>) {
    let found = effects.iter().find_map(|e| match e {
        Effect::Managed { reply: ReplyId(7), done, problems } => Some((done, problems)),
        _ => None,
    });
    let (done, problems) = found.expect("an answer");
    (done.iter().map(String::as_str).collect(), problems.iter().map(String::as_str).collect())
}

fn report(s: &mut Scheduler, link: u64, report: Report) -> Vec<String> {
    report_at(s, 1, link, report)
}

/// The same at another second.
fn report_at(s: &mut Scheduler, seconds: u64, link: u64, report: Report) -> Vec<String> {
    brief(&s.apply(at(seconds), Event::Report { link: LinkId(link), report: Box::new(report) }))
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

/// Two nodes of two apinits, links 1 and 2, and application 1 with a PE on each processor.
fn spread() -> Scheduler {
    let mut s = Scheduler::new(machine(2, 2), alone());
    link(&mut s, 1, &[0], &[]);
    link(&mut s, 2, &[1], &[]);
    s.apply(at(1), posted(1, 4));
    s
}

fn bad(nid: u32) -> Decisive {
    let (text, fault) = ("no process".into(), Fault::User);
    Decisive { at_ns: 7, cause: Cause::ShepherdLost { nid: Nid(nid), text, fault } }
}
