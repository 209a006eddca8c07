//! The words of a reason, on aprun's stderr, in `apstat` and in a log: all of them for `apstat --why`, fewer
//! where many applications wait in one list, and one short line for a waiting aprun.

use super::{
    AppName, Barred, Denial, Full, NoRollOut, Obstacle, Reason, Sees, There, Wait, sees_all,
};
use crate::apteam::Apid;
use crate::apteam::posting::Explanation;
use crate::apteam::shape::Shape;
use crate::machine::{Nid, nids_text};
use crate::variables::raise;
use crate::variables::units::{about, count, format_size};
use std::fmt;

/// What stands for an application that the reader may not know of.
const ANOTHER: &str = "(another user's)";

impl AppName {
    /// `12 of alice`, or `(another user's)`.
    pub fn words(&self, sees: Sees<'_>) -> String {
        match &self.owner {
            Some((_, name)) => self.or_another(sees, format_args!("{} of {name}", self.apid)),
            None => self.apid.to_string(),
        }
    }

    /// This, or `(another user's)`.
    pub fn or_another(&self, sees: Sees<'_>, shown: impl fmt::Display) -> String {
        match self.owner.as_ref().is_none_or(|(uid, _)| sees(*uid)) {
            true => shown.to_string(),
            false => ANOTHER.to_owned(),
        }
    }
}

impl Barred {
    fn words(barred: &[Barred]) -> String {
        let each = barred.iter().map(|Barred { region, rule }| format!("region {region} {rule}"));
        each.collect::<Vec<_>>().join(", and ")
    }
}

impl NoRollOut {
    fn words(&self, sees: Sees<'_>) -> String {
        match self {
            NoRollOut::Nodes(nodes) => {
                let each = nodes.iter().map(|(why, nids)| {
                    let has = if nids.len() == 1 { "has" } else { "have" };
                    format!("{} {has} {why}", nids_text(nids.iter().copied()))
                });
                each.collect::<Vec<_>>().join(", ")
            }
            NoRollOut::Stays(name, why) => {
                format!("application {} stays in memory: {why}", name.words(sees))
            }
        }
    }
}

impl Full {
    fn words(&self, sees: Sees<'_>) -> Explanation {
        let no_roll_out = self.no_roll_out.as_ref().map(|why| why.words(sees));
        let name = |apid| self.name(apid, sees);
        let mut why = self.no_room.explain(&self.domain, name, &self.shut, no_roll_out.as_deref());
        if !self.flexible.is_empty() {
            let there = nids_text(self.flexible.iter().copied());
            why.cure.push_str(&format!("; with --flexible it fits on {there} now"));
        }
        why
    }

    /// The first obstacle in a few words.
    fn brief(&self, sees: Sees<'_>) -> Explanation {
        let name = |apid| self.name(apid, sees);
        self.no_room.brief(name, &self.shut, !self.flexible.is_empty())
    }

    fn name(&self, apid: Apid, sees: Sees<'_>) -> String {
        let known = self.holders.iter().find(|holder| holder.apid == apid);
        known.map_or_else(|| apid.to_string(), |holder| holder.words(sees))
    }
}

fn plain(obstacle: impl Into<String>) -> Explanation {
    with_cure(obstacle, "")
}

fn with_cure(obstacle: impl Into<String>, cure: impl Into<String>) -> Explanation {
    held(obstacle, "", cure)
}

fn held(
    obstacle: impl Into<String>,
    holder: impl Into<String>,
    cure: impl Into<String>,
) -> Explanation {
    Explanation { obstacle: obstacle.into(), holder: holder.into(), cure: cure.into() }
}

/// `12 of alice, 13 of bob and others`.
fn first_of(names: &[AppName], more: bool, sees: Sees<'_>) -> String {
    let more = if more && !names.is_empty() { " and others" } else { "" };
    let names: Vec<String> = names.iter().map(|name| name.words(sees)).collect();
    format!("{}{more}", names.join(", "))
}

/// A shape in the options of aprun.
pub fn shape_text(shape: &Shape) -> String {
    let per_node = shape.per_node.map(|n| format!(" -N {n}")).unwrap_or_default();
    format!("-n {} -d {}{per_node}", shape.width, shape.depth)
}

impl Reason {
    /// In words, for a reader who may know of the applications of some users.
    pub fn words(&self, sees: Sees<'_>) -> Explanation {
        let mut why = match &self.obstacle {
            Obstacle::Denied(denial) => denial.words(),
            Obstacle::Waits(wait) => wait.words(sees),
            Obstacle::There(there) => there.words(),
        };
        if let Some(choice) = &self.scope.among {
            why.obstacle = format!("with {choice}, {}", why.obstacle);
        }
        if let Some((pes, processors)) = self.scope.shares {
            let processors = count(processors, "processor");
            why.obstacle =
                format!("{pes} PEs share {processors} (--oversubscribe): {}", why.obstacle);
        }
        if self.scope.one_host {
            why.obstacle = format!("on one host, as a checkpoint is restored, {}", why.obstacle);
        }
        if !self.barred.is_empty() {
            let and = if why.holder.is_empty() { "" } else { ", and " };
            why.holder = format!("{}{and}{}", why.holder, Barred::words(&self.barred));
        }
        if let Some(processors) = self.could_share {
            let processors = count(processors, "processor");
            why.cure = format!("{}; or let PEs share {processors} with --oversubscribe", why.cure);
        }
        why
    }
}

impl Reason {
    /// For a list of applications: without why no application's memory is rolled out for it.
    pub fn listed(&self, sees: Sees<'_>) -> Explanation {
        match &self.obstacle {
            Obstacle::Waits(Wait::Full(full)) if full.no_roll_out.is_some() => {
                let full = Full { no_roll_out: None, ..(**full).clone() };
                let obstacle = Obstacle::Waits(Wait::Full(Box::new(full)));
                Reason { obstacle, ..self.clone() }.words(sees)
            }
            _ => self.words(sees),
        }
    }

    /// For the aprun of this application, which waits: the first obstacle, and where the others stand.
    pub fn brief(&self, apid: Apid, sees: Sees<'_>) -> Explanation {
        match &self.obstacle {
            Obstacle::Waits(Wait::Full(full)) => {
                Explanation { cure: format!("apstat --why {apid} tells more"), ..full.brief(sees) }
            }
            _ => self.words(sees),
        }
    }
}

impl fmt::Display for Reason {
    /// For a reader who sees everything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words(&sees_all).fmt(f)
    }
}

impl Denial {
    fn words(&self) -> Explanation {
        match self {
            Denial::Zero => plain("-n, -d and -N must be at least 1"),
            Denial::OtherUser { only } => with_cure(
                format!(
                    "this psched runs as user {only} and can start programs only for that user"
                ),
                "start a private one with `psched start`",
            ),
            Denial::QueueFull { most } => with_cure(
                format!("the queue is full ({most} waiting)"),
                format!("try again later, or {}", raise("postings_max", most)),
            ),
            Denial::QueueFullOfUser { most } => with_cure(
                format!("your part of the queue is full ({most} waiting)"),
                format!("try again later, or {}", raise("postings_user_max", most)),
            ),
            Denial::RecordsFull { most } => with_cure(
                format!(
                    "the records of your applications that have not ended would exceed {}, the \
                     maximum of one user",
                    format_size(*most)
                ),
                format!(
                    "try again when some of them have ended, or {}",
                    raise("records_user_max", format_size(*most))
                ),
            ),
            Denial::RequestInUse => plain("another posting has this request number"),
            Denial::NoApplication(apid) => plain(format!("there is no application {apid}")),
            Denial::NoAdministrator { uid } => with_cure(
                format!("user {uid} is not an administrator of this psched"),
                "root, the user that psched runs as and the administrators of psched.yaml may adopt and purge \
                 nodes",
            ),
            Denial::CantShare => with_cure(
                "--oversubscribe needs -d 1, and one -N for all programs",
                "leave out -d, an uneven --nodes and a -N that differs among parts, or --oversubscribe",
            ),
            Denial::Unshared(why) => why.explain(),
            Denial::Account { name, people, own } => with_cure(
                match people {
                    Some(people) => format!("account {name} is only for {people}"),
                    None => format!("there is no account {name}"),
                },
                match own.is_empty() {
                    true => "leave --account out".to_owned(),
                    false => format!("yours: {}", own.join(", ")),
                },
            ),
            Denial::Impossible(why) => why.explain(),
            Denial::NoRegion => with_cure(
                "no region of this machine lets this application in",
                "ask for what one of its regions lets in",
            ),
            Denial::LayoutImpossible { choice, layout, flexible } => {
                let chosen =
                    if choice.is_any() { String::new() } else { format!("with {choice}, ") };
                let contiguous = if *flexible { "" } else { "contiguous " };
                with_cure(
                    format!(
                        "{chosen}PEs laid out as {layout} need {} {contiguous}nodes with that \
                         room, and this machine has no such nodes",
                        layout.nodes()
                    ),
                    "ask for fewer PEs, fewer nodes, or fewer on a node",
                )
            }
            Denial::NoNodeChosen { choice, instead: Some(all) } => with_cure(
                format!(
                    "{choice} names no node of this machine ({})",
                    nids_text(all.iter().copied())
                ),
                "name some of these",
            ),
            Denial::NoNodeChosen { choice, instead: None } => {
                let does = if choice.names_some() { "names no" } else { "leaves no" };
                with_cure(
                    format!("{choice} {does} node on which this application may be placed"),
                    "apstat -n -v shows nodes, their flavors and regions",
                )
            }
        }
    }
}

impl Wait {
    fn words(&self, sees: Sees<'_>) -> Explanation {
        match self {
            Wait::NoRoom => plain("it does not fit now"),
            Wait::Full(full) => full.words(sees),
            Wait::LayoutFull { layout, flexible, nids, holders, more } => {
                let nodes = if *flexible { "nodes" } else { "contiguous nodes" };
                let names = first_of(holders, *more, sees);
                held(
                    format!("no {nodes} have room now for PEs laid out as {layout}"),
                    match names.is_empty() {
                        true => String::new(),
                        false => format!("{names} hold {}", nids_text(nids.iter().copied())),
                    },
                    "it is placed when enough of these have ended",
                )
            }
            Wait::PartsFull { parts } => with_cure(
                format!(
                    "its checkpoint is of {parts} apinits, and there are not {parts} apinits \
                     now that each have room for one of its parts"
                ),
                "it is placed when enough applications have ended, or more apinits are up",
            ),
            Wait::NoHost => with_cure(
                "no host alone has room for it, and a checkpoint is restored on one host",
                "it is placed when one host has enough free nodes (apstat -n)",
            ),
            Wait::ImagesStay { host, connected } => {
                let host = match &host[..] {
                    "" => "psched's host".to_owned(),
                    host => format!("host {host}"),
                };
                let (lacks, comes) = match connected {
                    true => ("which has no room for it", "has enough free nodes"),
                    false => (
                        "of which no apinit is connected",
                        "has a connected apinit with enough free nodes",
                    ),
                };
                with_cure(
                    format!(
                        "its checkpoint is on {host}, {lacks}, and its cpr or aprun, which is of an older release, \
                         can't bring the images to another host"
                    ),
                    format!(
                        "it is placed when {host} {comes} (apstat -n); to restart it elsewhere, end it and run cpr -r \
                         of psched's release"
                    ),
                )
            }
            Wait::Hours(barred) => {
                with_cure(Barred::words(barred), "it is placed there when those hours begin")
            }
            Wait::Turn { shape, running, more } => held(
                format!(
                    "{} waits for its turn: the running applications have as little attained \
                     service",
                    shape_text(shape)
                ),
                first_of(running, *more, sees),
                "it is placed when one of them ends, or has attained more service",
            ),
            Wait::Held { apid, by } => held(
                format!("application {apid} is held"),
                format!("administrator {by} holds it"),
                format!("an administrator lets it go on with psmgr release {apid}"),
            ),
            Wait::Lapsed { apid, pid } => held(
                format!("application {apid} lost its place because its aprun did not answer"),
                pid.map_or_else(String::new, |pid| format!("aprun is process {pid}")),
                "continue that aprun (kill -CONT), and it waits again",
            ),
        }
    }
}

impl There {
    fn words(&self) -> Explanation {
        let on = |nids: &[Nid]| nids_text(nids.iter().copied());
        match self {
            There::Placed(nids) => {
                plain(format!("it is placed on {}; its aprun has to launch it", on(nids)))
            }
            There::TakingBack(nids) => {
                plain(format!("its place on {} is being taken back", on(nids)))
            }
            There::Launching(nids) => plain(format!("it is being launched on {}", on(nids))),
            There::Runs(nids) => plain(format!("it runs on {}", on(nids))),
            There::Stopped { apid, by } => held(
                format!("application {apid} is stopped"),
                format!("{by} has stopped it (apkill -STOP)"),
                format!("apkill -CONT {apid} lets it go on"),
            ),
            There::Out => with_cure(
                "its memory is rolled out: other applications ran on its nodes",
                "it is rolled in when it has a place",
            ),
            There::GoingOut { nids, way, bytes } => {
                let so_far = match bytes {
                    0 => String::new(),
                    bytes => format!(" ({} so far)", about(*bytes)),
                };
                with_cure(
                    format!("it is stopped on {}, and its memory goes {way}{so_far}", on(nids)),
                    "it is rolled in before its next turn",
                )
            }
            There::Stuck(said) => plain(format!("it is being ended, and {}", said.join("; "))),
            There::Away { nids, hosts, why, revoked } => {
                let away = on(nids);
                let (is, its) = if nids.len() == 1 { ("is", "its") } else { ("are", "their") };
                let why = match why.is_empty() {
                    true => format!("{its} apinit does not answer"),
                    false => why.join("; "),
                };
                let hosts = match &hosts[..] {
                    [] => String::new(),
                    [host] => format!(" (host {host})"),
                    [first, second] => format!(" (hosts {first} and {second})"),
                    [first, more @ ..] => format!(" (host {first} and {} others)", more.len()),
                };
                let new = match &revoked[..] {
                    [] => String::new(),
                    [host] => format!(", which takes a new certificate (psched certs host {host})"),
                    [host, ..] => format!(
                        ", which takes new certificates (psched certs host {host}, and so for the others)"
                    ),
                };
                let first = nids.first().map_or(0, |nid| nid.0);
                with_cure(
                    format!(
                        "{away}{hosts} {is} suspect ({why}): its PEs there may run on, and their output \
                         and their ends are not heard"
                    ),
                    format!(
                        "it goes on when the apinit there answers again{new}; an administrator can say \
                         that the host is off, which ends it: psmgr down {first}"
                    ),
                )
            }
            There::Ended => plain("it has ended"),
        }
    }
}
