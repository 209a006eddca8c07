//! psched's answers as tables: one function a view. Pure: the time is in the answer.

mod nodes;
mod parse;

pub use nodes::nodes;
pub use parse::parse;

use crate::apteam::Apid;
use crate::apteam::ending::Decisive;
use crate::console::table::{Cell, Report, Table, moment, short, whole_seconds};
use crate::machine::{Nid, format_nids, nids_text};
use crate::rpc::pb;
use jiff::tz::TimeZone;
use std::collections::BTreeMap;

/// An age as ALPS writes it: `0h02m`.
fn age(from_ns: u64, now_ns: u64) -> Cell {
    if from_ns == 0 {
        return Cell::None;
    }
    let minutes = now_ns.saturating_sub(from_ns) / 60_000_000_000;
    Cell::Amount(format!("{}h{:02}m", minutes / 60, minutes % 60))
}

/// A length of time in seconds.
fn seconds(from_ns: u64, to_ns: u64) -> Cell {
    if from_ns == 0 || to_ns == 0 {
        return Cell::None;
    }
    Cell::Amount(format!("{:.3}s", to_ns.saturating_sub(from_ns) as f64 / 1e9))
}

fn apid(row: &pb::ApplicationRow) -> u64 {
    row.key.map_or(0, |k| k.apid)
}

fn user(row: &pb::ApplicationRow) -> Cell {
    Cell::text(user_name(row))
}

/// The name, or the number where it has none; empty: it is not told.
fn user_name(row: &pb::ApplicationRow) -> String {
    match &row.owner {
        Some(owner) if owner.name.is_empty() => owner.uid.to_string(),
        Some(owner) => owner.name.clone(),
        None => String::new(),
    }
}

/// `width:depth:per node`, `-` where that is free; `64:1:- on 4` of PEs that share processors.
fn shape(row: &pb::ApplicationRow) -> String {
    let s = row.shape.unwrap_or_default();
    let per_node = if s.per_node == 0 { "-".into() } else { s.per_node.to_string() };
    let on = match row.shared_processors {
        0 => String::new(),
        processors => format!(" on {processors}"),
    };
    format!("{}:{}:{per_node}{on}", s.width, s.depth)
}

fn nids(row: &pb::ApplicationRow) -> String {
    format_nids(row.places.iter().map(|p| Nid(p.nid)))
}

fn waits(row: &pb::ApplicationRow) -> bool {
    row.places.is_empty() && row.state != "ended"
}

/// Its state; `ending` and `held` come before the scheduler's own.
fn state(row: &pb::ApplicationRow) -> &str {
    match row {
        _ if row.kill_in_ns.is_some() => "ending",
        _ if row.held.is_some() => "held",
        _ => &row.state,
    }
}

/// The nodes of an application whose apinits do not answer.
fn unreachable(row: &pb::ApplicationRow) -> String {
    let is_away =
        |nid: &u32| row.unreachable.iter().any(|away| (away.first..=away.last).contains(nid));
    format_nids(row.places.iter().map(|place| place.nid).filter(is_away).map(Nid))
}

/// `KILL in 4m50s`, or that it has had it, of an application that is being ended.
fn ends(row: &pb::ApplicationRow) -> Option<String> {
    Some(match row.kill_in_ns? {
        // (What has not ended by that is stuck, or on a host that does not answer.)
        0 => "KILL sent".to_owned(),
        left_ns => format!("KILL in {}", whole_seconds(left_ns)),
    })
}

/// The words of a wait, as one line.
fn words(waiting: &pb::Explanation) -> String {
    let parts = [&waiting.obstacle, &waiting.holder, &waiting.cure];
    parts.into_iter().filter(|p| !p.is_empty()).cloned().collect::<Vec<_>>().join("; ")
}

/// What a user is called: the application's own as psched has it, and who has ended it; another one as the file of users
/// of this host has it.
fn name_of(row: &pb::ApplicationRow, uid: u32) -> Option<String> {
    match &row.owner {
        Some(owner) if owner.uid == uid => Some(user_name(row)).filter(|name| !is_number(name)),
        _ if !row.decisive_by_name.is_empty() => Some(row.decisive_by_name.clone()),
        _ => name_in(&std::fs::read_to_string("/etc/passwd").ok()?, uid),
    }
}

/// A user's name in this text of passwd(5). (The system's name service can't be asked: this program is linked
/// statically, and glibc crashes where it would have to load a module of that.)
fn name_in(passwd: &str, uid: u32) -> Option<String> {
    let number = uid.to_string();
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    })
}

/// Whether it stands for a user without a name.
fn is_number(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

fn decision(row: &pb::ApplicationRow) -> String {
    match &row.decisive {
        None => String::new(),
        // A kind that this apstat does not know yet.
        Some(d) => Decisive::try_from(d.clone()).map_or_else(
            |_| d.cause.as_ref().map_or_else(String::new, |c| c.text.clone()),
            |d| d.cause.words(|uid| name_of(row, uid)),
        ),
    }
}

/// `runs`, `frozen 0.8s` (until its next turn), `held`; of an application that is being ended, when
/// it gets KILL. `suspect` comes before its turn, of one on a node whose apinit does not answer, and `stopped`, of
/// one that its user has stopped.
fn turn(row: &pb::ApplicationRow) -> Cell {
    use pb::turn::Kind;
    if let Some(ends) = ends(row) {
        return Cell::Text(ends);
    }
    if !row.unreachable.is_empty() {
        return Cell::text("suspect");
    }
    let Some(turn) = &row.turn else { return Cell::None };
    match turn.kind() {
        Kind::Held => Cell::text("held"),
        _ if row.stopped.is_some() => Cell::text("stopped"),
        Kind::Unknown => Cell::None,
        Kind::Always | Kind::Leads | Kind::Promoted => Cell::text("runs"),
        Kind::Frozen if turn.left_ns == 0 => Cell::text("frozen"),
        Kind::Frozen => Cell::Text(format!("frozen {}", short(turn.left_ns))),
    }
}

/// Why one is frozen that takes turns, and when it runs again.
fn frozen(row: &pb::ApplicationRow) -> Option<(&'static str, String)> {
    let turn = row.turn.filter(|turn| turn.kind() == pb::turn::Kind::Frozen)?;
    let next = match turn.left_ns {
        0 => "its next turn is not planned yet".into(),
        left => format!("its next turn comes in {}", short(left)),
    };
    Some(("other applications have their turn on its processors", next))
}

/// Thousandths as a percentage.
fn percent(thousandths: u32) -> Cell {
    Cell::Amount(format!("{}.{}%", thousandths / 10, thousandths % 10))
}

/// When the next turn comes, the share had, its due, and the time run.
fn share(row: &pb::ApplicationRow) -> [Cell; 4] {
    let Some(turn) = &row.turn else { return [const { Cell::None }; 4] };
    let next = match turn.kind() {
        pb::turn::Kind::Frozen if turn.left_ns > 0 => Cell::Amount(short(turn.left_ns)),
        _ => Cell::None,
    };
    [next, percent(turn.had), percent(turn.due), Cell::Amount(short(turn.attained_ns))]
}

/// `-a`, and with `-v` what of its time each has had.
pub fn applications(reply: &pb::ListReply, verbose: bool) -> Table {
    let waiting = reply.applications.iter().filter(|a| waits(a)).count();
    let placed = reply.applications.len() - waiting;
    let mut title = format!("Total placed applications: {placed}");
    if waiting > 0 {
        title += &format!(", waiting: {waiting}");
    }
    let columns = match verbose {
        false => ">Apid >ResId <User >PEs >Nodes >Age <State <Turn <Command",
        true => ">Apid >ResId <User >PEs >Nodes >Age <State <Turn >Next >Had >Due >Run <Command",
    };
    let drops: &[&str] = match verbose {
        false => &["ResId", "Nodes", "Age", "PEs", "User", "State"],
        true => &["ResId", "Age", "Nodes", "PEs", "Next", "State", "User", "Run", "Due", "Had"],
    };
    let mut table = Table::new("applications", title, columns)
        .cuts(&[("Command", 12), ("User", 8)])
        .drops(drops);
    let row = |row| application_row(row, reply.now_ns, verbose);
    table.rows = reply.applications.iter().map(row).collect();
    table
}

fn application_row(row: &pb::ApplicationRow, now_ns: u64, verbose: bool) -> Vec<Cell> {
    let nodes = row.places.len() as u64;
    let mut cells = vec![
        Cell::Number(apid(row)),
        // Reservations are a batch system's; there are none yet.
        Cell::None,
        user(row),
        Cell::Number(row.shape.unwrap_or_default().width.into()),
        if nodes == 0 { Cell::None } else { Cell::Number(nodes) },
        age(row.posted_at_ns, now_ns),
        Cell::text(state(row)),
        match turn(row) {
            // (When it runs again has a column of its own.)
            Cell::Text(text) if verbose && text.starts_with("frozen") => Cell::text("frozen"),
            turn => turn,
        },
    ];
    if verbose {
        cells.extend(share(row));
    }
    cells.push(Cell::text(row.command.clone()));
    cells
}

/// `kept`, `kept in 6d`, `held`, `unknown`.
fn when(row: &pb::ApplicationRow, now_ns: u64) -> Cell {
    use pb::when::Kind;
    let when = row.when.unwrap_or_default();
    match when.kind() {
        Kind::Unknown => Cell::text("unknown"),
        Kind::Kept => Cell::text("kept"),
        Kind::KeptAt => {
            Cell::Text(format!("kept in {}", short(when.kept_at_ns.saturating_sub(now_ns))))
        }
        Kind::Held => Cell::text("held"),
    }
}

/// `-p`.
pub fn pending(reply: &pb::ListReply) -> Table {
    let rows: Vec<_> = reply.applications.iter().filter(|a| waits(a)).collect();
    let title = format!("Pending applications: {}", rows.len());
    let columns = ">Apid <User <w:d:N >Age <When <Command <Why";
    let mut table = Table::new("pending", title, columns)
        .cuts(&[("Command", 10), ("Why", 24), ("User", 8)])
        .drops(&["Age", "w:d:N", "When", "Command", "User"]);
    for row in rows {
        let why = row.waiting.as_ref().map(words).unwrap_or_default();
        table.rows.push(vec![
            Cell::Number(apid(row)),
            user(row),
            Cell::Text(shape(row)),
            age(row.posted_at_ns, reply.now_ns),
            when(row, reply.now_ns),
            Cell::text(row.command.clone()),
            Cell::text(why),
        ]);
    }
    table
}

/// Notices of psched's, as lines below a table.
fn said(notices: &[String]) -> impl Iterator<Item = String> {
    notices.iter().map(|notice| format!("psched: {notice}"))
}

/// What psched has to say, and with `nodes` what its nodes can't do, each thing once: the news
/// first, newest before older, and then what has no time.
pub fn notices(reply: &pb::ListReply, nodes: bool) -> Vec<String> {
    let mut lines: Vec<String> = said(&reply.notices).collect();
    let mut noted: BTreeMap<&str, (u64, Vec<Nid>)> = BTreeMap::new();
    for node in reply.nodes.iter().filter(|_| nodes) {
        for (n, note) in node.notes.iter().enumerate() {
            let at_ns = node.notes_at_ns.get(n).copied().unwrap_or(0);
            let (newest_ns, nids) = noted.entry(note).or_default();
            *newest_ns = at_ns.max(*newest_ns);
            nids.push(Nid(node.nid));
        }
    }
    let mut noted: Vec<_> = noted.into_iter().collect();
    noted.sort_by_key(|(_, (at_ns, _))| std::cmp::Reverse(*at_ns));
    let line = |(note, (_, nids)): (&str, (u64, Vec<Nid>))| {
        format!("{}: {note}", nids_text(nids.iter().copied()))
    };
    lines.extend(noted.into_iter().map(line));
    lines
}

/// The row of an application, alive or in the history.
fn find(reply: &pb::ListReply, wanted: Apid) -> Option<&pb::ApplicationRow> {
    reply.applications.iter().chain(&reply.history).find(|row| apid(row) == wanted.0)
}

/// `-A`: all about one; `None`: there is no such application.
pub fn application(reply: &pb::ListReply, wanted: Apid, zone: &TimeZone) -> Option<Report> {
    let row = find(reply, wanted)?;
    let mut facts = vec![
        ("Application", Cell::Number(wanted.0)),
        ("User", user(row)),
        ("Command", Cell::text(row.command.clone())),
        ("State", Cell::text(state(row))),
        ("w:d:N", Cell::Text(shape(row))),
        ("NIDs", Cell::text(nids(row))),
        ("Posted", moment(row.posted_at_ns, zone)),
        ("Launched", moment(row.launched_at_ns, zone)),
    ];
    if !row.unreachable.is_empty() {
        facts.push(("Suspect", Cell::Text(unreachable(row))));
    }
    if row.turn.is_some() {
        let [_, had, due, run] = share(row);
        facts.extend([("Turn", turn(row)), ("Share had", had), ("Share due", due), ("Run", run)]);
    }
    if !row.domain.is_empty() {
        facts.insert(2, ("Domain", Cell::text(row.domain.clone())));
    }
    if !row.account.is_empty() {
        facts.insert(2, ("Account", Cell::text(row.account.clone())));
    }
    if !row.saving.is_empty() {
        facts.push(("Checkpoint", Cell::text(row.saving.clone())));
    }
    if !row.front_host.is_empty() {
        facts.push(("aprun on", Cell::text(row.front_host.clone())));
    }
    if let Some(from) = row.restarted_from {
        facts.push(("Restarted from", Cell::Number(from.apid)));
    }
    if row.memory_per_pe > 0 {
        facts.push(("Memory per PE", Cell::Text(format!("{} KiB", row.memory_per_pe / 1024))));
    }
    if row.memory > 0 {
        facts.push(("Memory counted", Cell::Text(format!("{} KiB", row.memory.div_ceil(1024)))));
    }
    if row.flexible {
        facts.push(("Mode", Cell::Text("flexible".to_owned())));
    }
    if !row.stays.is_empty() {
        facts.push(("Stays", Cell::text(row.stays.clone())));
    }
    if row.time_limit_ms > 0 {
        let limit = format!("{} s", row.time_limit_ms as f64 / 1e3);
        facts.push(("Time limit", Cell::Text(limit)));
    }
    if let Some(waiting) = row.waiting.as_ref().filter(|_| waits(row) || row.held.is_some()) {
        facts.push(("Waits", Cell::text(words(waiting))));
    }
    if row.state == "ended" {
        facts.push(("Ended", moment(row.ended_at_ns, zone)));
        let until_ns = row.launched_at_ns.saturating_add(row.run_ns);
        facts.push(("Ran", seconds(row.launched_at_ns, until_ns)));
        facts.push(("Status", Cell::Number(row.status.into())));
    }
    facts.push(("Cause", Cell::text(decision(row))));
    facts.retain(|(name, cell)| *name != "Cause" || *cell != Cell::None);
    let mut places =
        Table::new("placement", "Placement", ">NID >PEs <Processors").wraps("Processors");
    for place in &row.places {
        let processors = place.processors.iter().map(|p| u64::from(*p)).collect();
        let pes = Cell::Number(place.pes.into());
        places.rows.push(vec![Cell::Number(place.nid.into()), pes, Cell::List(processors)]);
    }
    let tables = if places.rows.is_empty() { vec![] } else { vec![places] };
    Some(Report { facts, tables, notices: notices(reply, false) })
}

/// `--pids`: which process is which PE.
pub fn processes(reply: &pb::ProcessesReply, wanted: Apid) -> Report {
    let title = format!("Processes of application {wanted}");
    let mut table = Table::new("processes", title, ">Rank >NID <Host >PID <State");
    let pid = |row: &pb::ProcessRow| match row.pid {
        0 => Cell::None,
        pid => Cell::Number(pid.into()),
    };
    let row = |row: &pb::ProcessRow| {
        let (host, state) = (Cell::text(row.host.clone()), Cell::text(row.state.clone()));
        vec![Cell::Number(row.rank.into()), Cell::Number(row.nid.into()), host, pid(row), state]
    };
    table.rows = reply.processes.iter().map(row).collect();
    Report { tables: vec![table], notices: reply.notices.clone(), ..Report::default() }
}

/// `--why`: `None`: there is no such application.
pub fn why(reply: &pb::ListReply, wanted: Apid) -> Option<Report> {
    let row = find(reply, wanted)?;
    let waiting = row.waiting.clone().unwrap_or_default();
    let mut facts = vec![("Application", Cell::Number(wanted.0))];
    facts.push(("State", Cell::text(state(row))));
    if waits(row) {
        let flexible = if row.flexible { ", flexible" } else { "" };
        facts.push(("Wants", Cell::Text(format!("{} (w:d:N){flexible}", shape(row)))));
        facts.push(("Obstacle", Cell::text(waiting.obstacle)));
        facts.push(("Held by", Cell::text(waiting.holder)));
        facts.push(("Cure", Cell::text(waiting.cure)));
    } else if row.state == "ended" {
        facts.push(("Status", Cell::Number(row.status.into())));
        facts.push(("Cause", Cell::text(decision(row))));
    } else {
        // It has a place.
        facts.push(("NIDs", Cell::text(nids(row))));
        facts.push(("Cause", Cell::text(decision(row))));
        facts.push(("Turn", turn(row)));
        let [_, had, due, _] = share(row);
        facts.extend([("Share had", had), ("Share due", due)]);
        // It is held, its end takes long, or its memory is in swap; else it is frozen, if it is.
        let (obstacle, cure) = match frozen(row) {
            Some((obstacle, cure)) if waiting.obstacle.is_empty() => (obstacle.into(), cure),
            _ if waiting.obstacle.is_empty() && row.state == "running" => {
                ("none: it runs".into(), String::new())
            }
            _ => (waiting.obstacle, waiting.cure),
        };
        facts.push(("Obstacle", Cell::text(obstacle)));
        facts.push(("Held by", Cell::text(waiting.holder)));
        facts.push(("Cure", Cell::text(cure)));
        let optional = ["Cause", "Turn", "Share had", "Share due", "Obstacle", "Held by", "Cure"];
        facts.retain(|(name, cell)| !optional.contains(name) || *cell != Cell::None);
    }
    Some(Report { facts, notices: notices(reply, false), ..Report::default() })
}

/// `--events`.
pub fn events(reply: &pb::EventsReply, zone: &TimeZone) -> Report {
    // (Nothing else shows the whole detail.)
    let mut table =
        Table::new("events", "", "<Time <Event <Detail").wraps("Detail").drops(&["Time"]);
    for event in &reply.events {
        let name = Cell::text(event.name.clone());
        table.rows.push(vec![moment(event.at_ns, zone), name, Cell::text(event.detail.clone())]);
    }
    let notices = said(&reply.notices).collect();
    Report { tables: vec![table], notices, ..Report::default() }
}

/// `--history`.
pub fn history(reply: &pb::ListReply, zone: &TimeZone) -> Report {
    let columns = ">Apid <User >PEs >Nodes <Ended >Waited >Ran >Status <Command <Cause";
    let mut table = Table::new("history", "", columns)
        .cuts(&[("Command", 10), ("Cause", 16), ("User", 8)])
        .drops(&["Nodes", "PEs", "Waited", "User", "Ended", "Ran"]);
    for row in &reply.history {
        let nodes = row.places.len() as u64;
        table.rows.push(vec![
            Cell::Number(apid(row)),
            user(row),
            Cell::Number(row.shape.unwrap_or_default().width.into()),
            if nodes == 0 { Cell::None } else { Cell::Number(nodes) },
            moment(row.ended_at_ns, zone),
            seconds(row.posted_at_ns, row.launched_at_ns),
            seconds(row.launched_at_ns, row.launched_at_ns.saturating_add(row.run_ns)),
            Cell::Number(row.status.into()),
            Cell::text(row.command.clone()),
            Cell::text(decision(row)),
        ]);
    }
    Report { tables: vec![table], notices: notices(reply, false), facts: vec![] }
}

/// Processor seconds, as a time.
fn processor_time(seconds: f64) -> Cell {
    // (More than can be counted in nanoseconds is no less.)
    Cell::Amount(short((seconds * 1e9) as u64))
}

/// What each user, or account, has had of the processors.
pub fn shares(reply: &pb::SharesReply) -> Report {
    let (columns, whose) = match reply.by.as_str() {
        "account" => ("<Account >Weight >Apps >Had >Due", "accounts"),
        _ => ("<User >Weight >Apps >Had >Due", "users"),
    };
    let half_life = match reply.half_life_ns {
        0 => "which is forgotten at once".to_owned(),
        half_life => format!("which counts half after {}", whole_seconds(half_life)),
    };
    let title = format!("Processor time of {whose}, {half_life}");
    let mut table = Table::new("shares", title, columns).drops(&["Apps", "Weight"]);
    for row in &reply.rows {
        table.rows.push(vec![
            Cell::text(row.holder.clone()),
            Cell::Number(row.weight.into()),
            Cell::Number(row.applications.into()),
            processor_time(row.had_s),
            if row.applications == 0 { Cell::None } else { processor_time(row.due_s) },
        ]);
    }
    let mut notices = reply.notices.clone();
    if reply.by == "application" {
        let none = "there are no shares: the variables share.by and application.floor turn them on";
        notices.push(none.into());
    }
    Report { tables: vec![table], notices, facts: vec![] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who has ended it is called as psched calls him, or as this host does.
    #[test]
    fn users_have_names() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\n+::::::\nanna:x:61301:61401::/:/bin/sh\n";
        let names = [0, 61_301, 61_302].map(|uid| name_in(passwd, uid));
        assert_eq!(names, [Some("root".to_owned()), Some("anna".to_owned()), None]);
        let row = row(1, "carol", 1, "ended", "true");
        assert_eq!(name_of(&row, 61_234).as_deref(), Some("carol"));
        // (No host has a user of this number.)
        assert_eq!(name_of(&row, 4_000_000_001), None);
        let row = pb::ApplicationRow { decisive_by_name: "bert".into(), ..row };
        assert_eq!(name_of(&row, 4_000_000_001).as_deref(), Some("bert"));
    }

    /// 2026-11-20 12:00:00 UTC.
    pub(super) const NOW: u64 = 1_795_176_000_000_000_000;
    const MINUTE: u64 = 60_000_000_000;

    pub(super) fn row(
        apid: u64,
        name: &str,
        width: u32,
        state: &str,
        command: &str,
    ) -> pb::ApplicationRow {
        pb::ApplicationRow {
            key: Some(pb::ApplicationKey { apid, incarnation: 1 }),
            owner: Some(pb::Owner { uid: 61234, name: name.into(), ..Default::default() }),
            shape: Some(pb::Shape { width, depth: 1, per_node: 0 }),
            command: command.into(),
            state: state.into(),
            posted_at_ns: NOW - 2 * MINUTE,
            ..Default::default()
        }
    }

    pub(super) fn place(nid: u32, processors: &[u32], pes: u32) -> pb::Place {
        pb::Place { nid, processors: processors.to_vec(), pes }
    }

    pub(super) fn node(nid: u32, state: &str, used: u32, apids: &[u64]) -> pb::NodeRow {
        pb::NodeRow {
            nid,
            state: state.into(),
            processors: 2,
            used,
            memory: 4 << 20,
            apids: apids.to_vec(),
            pes: used,
            arch: if state == "suspect" { "" } else { "x86_64" }.into(),
            notes: vec!["no cgroups: the tree is not ours".into()],
            limits: apids.iter().map(|_| "memory".into()).collect(),
            ..Default::default()
        }
    }

    /// Two run, one waits, one has ended; three nodes.
    pub(super) fn reply() -> pb::ListReply {
        let mut running = row(7, "alice", 3, "running", "./a.out -x");
        running.places = vec![place(0, &[0, 1], 2), place(1, &[0], 1)];
        running.memory_per_pe = 1 << 20;
        running.account = "climate-2.b".into();
        running.saving = "SIGUSR1".into();
        running.launched_at_ns = NOW - MINUTE;
        running.time_limit_ms = 90_000;
        running.turn = Some(pb::Turn {
            kind: pb::turn::Kind::Frozen.into(),
            left_ns: 800_000_000,
            had: 498,
            due: 500,
            attained_ns: 29_000_000_000,
            ..Default::default()
        });
        let mut old = row(12, "", 1, "placed", "hostname");
        old.places = vec![place(1, &[1], 1)];
        old.posted_at_ns = NOW - 125 * 60 * MINUTE;
        let mut waiting = row(13, "bob", 8, "posted", "big");
        waiting.shape = Some(pb::Shape { width: 8, depth: 1, per_node: 2 });
        waiting.when = Some(pb::When {
            kind: pb::when::Kind::KeptAt.into(),
            kept_at_ns: NOW + 6 * 24 * 60 * MINUTE,
        });
        waiting.waiting = Some(pb::Explanation {
            obstacle: "needs 8 processors".into(),
            holder: "7 of alice".into(),
            cure: "-n 1 fits now".into(),
        });
        let mut ended = row(5, "alice", 2, "ended", "./bad");
        ended.places = vec![place(2, &[0, 1], 2)];
        ended.launched_at_ns = NOW - MINUTE;
        ended.ended_at_ns = NOW - MINUTE + 3_500_000_000;
        // And was frozen for two seconds.
        ended.run_ns = 1_500_000_000;
        ended.status = 139;
        let kind = pb::cause::Kind::PeSignal.into();
        let cause = pb::Cause { kind, rank: 1, nid: 2, signal: 11, ..Default::default() };
        ended.decisive = Some(pb::Decisive { at_mono_ns: 1, cause: Some(cause) });
        pb::ListReply {
            now_ns: NOW,
            applications: vec![running, old, waiting],
            nodes: vec![
                node(0, "busy", 2, &[7]),
                node(1, "busy", 2, &[7, 12]),
                node(2, "suspect", 0, &[]),
            ],
            history: vec![ended],
            notices: vec!["the store is nearly full".into()],
            ..Default::default()
        }
    }

    pub(super) fn text(tables: impl IntoIterator<Item = Table>) -> String {
        Report { tables: tables.into_iter().collect(), ..Report::default() }.text()
    }

    /// The text at 80 columns and at 40.
    pub(super) fn narrow(report: &Report) -> [String; 2] {
        let texts = [80, 40].map(|columns| report.text_within(columns));
        for columns in 1..200 {
            let text = report.text_within(columns);
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}: {text}");
        }
        texts
    }

    pub(super) fn of(tables: impl IntoIterator<Item = Table>) -> Report {
        Report { tables: tables.into_iter().collect(), ..Report::default() }
    }

    /// With long commands and reasons.
    pub(super) fn wordy() -> pb::ListReply {
        let mut reply = reply();
        for row in reply.applications.iter_mut().chain(&mut reply.history) {
            row.command = "/home/alice/bin/ocean --grid 4096x4096 --steps 100000".into();
        }
        if let Some(waiting) = &mut reply.applications[2].waiting {
            waiting.obstacle =
                "needs 8 processors, and 3 of the 8 that it may have are free".into();
            waiting.holder = "application 7 of alice has 3 of them, application 12 2".into();
        }
        reply.applications[0].places[0].processors = (0..48).collect();
        reply
    }

    #[test]
    fn narrow_applications() {
        let golden = [
            "\
Total placed applications: 2, waiting: 1
Apid ResId User  PEs Nodes     Age State   Turn        Command
   7     - alice   3     2   0h02m running frozen 0.8s /home/alice/bin/ocean --+
  12     - 61234   1     1 125h00m placed  -           /home/alice/bin/ocean --+
  13     - bob     8     -   0h02m posted  -           /home/alice/bin/ocean --+
",
            "\
Total placed applications: 2, waiting: 1
Apid State   Turn        Command
   7 running frozen 0.8s /home/alice/bi+
  12 placed  -           /home/alice/bi+
  13 posted  -           /home/alice/bi+
",
        ];
        assert_eq!(narrow(&of([applications(&wordy(), false)])), golden);
        let golden = [
            "\
Total placed applications: 2, waiting: 1
Apid User  PEs Nodes     Age State   Turn   Next   Had   Due Run Command
   7 alice   3     2   0h02m running frozen 0.8s 49.8% 50.0% 29s /home/alice/bi+
  12 61234   1     1 125h00m placed  -         -     -     -   - /home/alice/bi+
  13 bob     8     -   0h02m posted  -         -     -     -   - /home/alice/bi+
",
            "\
Total placed applications: 2, waiting: 1
Apid Turn     Had   Due Run Command
   7 frozen 49.8% 50.0% 29s /home/alice+
  12 -          -     -   - /home/alice+
  13 -          -     -   - /home/alice+
",
        ];
        assert_eq!(narrow(&of([applications(&wordy(), true)])), golden);
    }

    #[test]
    fn narrow_pending_ones() {
        let golden = [
            "\
Pending applications: 1
Apid User w:d:N   Age When       Command    Why
  13 bob  8:1:2 0h02m kept in 6d /home/ali+ needs 8 processors, and 3 of the 8 +
",
            "\
Pending applications: 1
Apid User Why
  13 bob  needs 8 processors, and 3 of +
",
        ];
        assert_eq!(narrow(&of([pending(&wordy())])), golden);
    }

    #[test]
    fn narrow_history() {
        let golden = [
            "\
Apid User  Ended                      Ran Status Command    Cause
   5 alice 2026-11-20 11:59:03.500 1.500s    139 /home/ali+ PE 1 on NID 2 died:+

psched: the store is nearly full
",
            "\
Apid Status Command    Cause
   5    139 /home/ali+ PE 1 on NID 2 di+

psched: the store is nearly full
",
        ];
        assert_eq!(narrow(&history(&wordy(), &TimeZone::UTC)), golden);
    }

    #[test]
    fn narrow_facts_of_one() {
        let report = application(&wordy(), Apid(7), &TimeZone::UTC).expect("it is there");
        let golden = [
            "\
Application:   7
User:          alice
Account:       climate-2.b
Command:       /home/alice/bin/ocean --grid 4096x4096 --steps 100000
State:         running
w:d:N:         3:1:-
NIDs:          0-1
Posted:        2026-11-20 11:58:00.000
Launched:      2026-11-20 11:59:00.000
Turn:          frozen 0.8s
Share had:     49.8%
Share due:     50.0%
Run:           29s
Checkpoint:    SIGUSR1
Memory per PE: 1024 KiB
Time limit:    90 s

Placement
NID PEs Processors
  0   2 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,
        27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47
  1   1 0

psched: the store is nearly full
",
            "\
Application:   7
User:          alice
Account:       climate-2.b
Command:       /home/alice/bin/ocean
               --grid 4096x4096 --steps
               100000
State:         running
w:d:N:         3:1:-
NIDs:          0-1
Posted:        2026-11-20 11:58:00.000
Launched:      2026-11-20 11:59:00.000
Turn:          frozen 0.8s
Share had:     49.8%
Share due:     50.0%
Run:           29s
Checkpoint:    SIGUSR1
Memory per PE: 1024 KiB
Time limit:    90 s

Placement
NID PEs Processors
  0   2 0,1,2,3,4,5,6,7,8,9,10,11,12,13,
        14,15,16,17,18,19,20,21,22,23,
        24,25,26,27,28,29,30,31,32,33,
        34,35,36,37,38,39,40,41,42,43,
        44,45,46,47
  1   1 0

psched: the store is nearly full
",
        ];
        assert_eq!(narrow(&report), golden);
        let golden = [
            "\
Application: 13
State:       posted
Wants:       8:1:2 (w:d:N)
Obstacle:    needs 8 processors, and 3 of the 8 that it may have are free
Held by:     application 7 of alice has 3 of them, application 12 2
Cure:        -n 1 fits now

psched: the store is nearly full
",
            "\
Application: 13
State:       posted
Wants:       8:1:2 (w:d:N)
Obstacle:    needs 8 processors, and 3
             of the 8 that it may have
             are free
Held by:     application 7 of alice has
             3 of them, application 12 2
Cure:        -n 1 fits now

psched: the store is nearly full
",
        ];
        assert_eq!(narrow(&why(&wordy(), Apid(13)).expect("it is there")), golden);
    }

    #[test]
    fn narrow_events() {
        let event = |name: &str, detail: &str| pb::EventRow {
            at_ns: NOW,
            name: name.into(),
            detail: detail.into(),
        };
        let detail = "on NIDs 0-3, 5, 7-12 by user alice, who may use the region overflow";
        let events = vec![event("posted", "-n 3"), event("placed", detail)];
        let report =
            super::events(&pb::EventsReply { events, ..Default::default() }, &TimeZone::UTC);
        let golden = [
            "\
Time                    Event  Detail
2026-11-20 12:00:00.000 posted -n 3
2026-11-20 12:00:00.000 placed on NIDs 0-3, 5, 7-12 by user alice, who may use
                               the region overflow
",
            "\
Event  Detail
posted -n 3
placed on NIDs 0-3, 5, 7-12 by user
       alice, who may use the region
       overflow
",
        ];
        assert_eq!(narrow(&report), golden);
    }

    #[test]
    fn narrow_shares() {
        let row = |holder: &str| pb::ShareRow {
            holder: holder.into(),
            weight: 1000,
            applications: 12_000,
            had_s: 7_300.5,
            due_s: 4_000.0,
        };
        let report = shares(&pb::SharesReply {
            by: "user".into(),
            half_life_ns: 3_600_000_000_000,
            rows: vec![row("alice"), row("somebody-with-a-long-name")],
            notices: Vec::new(),
        });
        let golden = [
            "\
Processor time of users, which counts half after 1h
User                      Weight  Apps  Had Due
alice                       1000 12000 2.0h 66m
somebody-with-a-long-name   1000 12000 2.0h 66m
",
            "\
Processor time of users, which counts
  half after 1h
User                       Had Due
alice                     2.0h 66m
somebody-with-a-long-name 2.0h 66m
",
        ];
        assert_eq!(narrow(&report), golden);
    }

    #[test]
    fn shares_of_users_and_of_accounts() {
        let row = |holder: &str, weight, applications, had_s, due_s| pb::ShareRow {
            holder: holder.into(),
            weight,
            applications,
            had_s,
            due_s,
        };
        let rows = vec![row("alice", 1, 100, 7_300.5, 4_000.0), row("bob", 20, 0, 0.25, 0.0)];
        let by = |by: &str| pb::SharesReply {
            by: by.into(),
            half_life_ns: 3_600_000_000_000,
            rows: rows.clone(),
            notices: Vec::new(),
        };
        let golden = "\
Processor time of users, which counts half after 1h
User  Weight Apps  Had Due
alice      1  100 2.0h 66m
bob       20    0 0.2s   -
";
        assert_eq!(shares(&by("user")).text(), golden);
        assert!(shares(&by("account")).text().contains("\nAccount Weight"));
        let none = shares(&by("application"));
        assert_eq!(none.notices.len(), 1, "{none:?}");
    }

    #[test]
    fn applications_as_alps_shows_them() {
        let golden = "\
Total placed applications: 2, waiting: 1
Apid ResId User  PEs Nodes     Age State   Turn        Command
   7     - alice   3     2   0h02m running frozen 0.8s ./a.out -x
  12     - 61234   1     1 125h00m placed  -           hostname
  13     - bob     8     -   0h02m posted  -           big
";
        assert_eq!(text([applications(&reply(), false)]), golden);
        let empty =
            "Total placed applications: 0\nApid ResId User PEs Nodes Age State Turn Command\n";
        assert_eq!(text([applications(&pb::ListReply::default(), false)]), empty);
        let golden = "\
Total placed applications: 2, waiting: 1
Apid ResId User  PEs Nodes     Age State   Turn   Next   Had   Due Run Command
   7     - alice   3     2   0h02m running frozen 0.8s 49.8% 50.0% 29s ./a.out -x
  12     - 61234   1     1 125h00m placed  -         -     -     -   - hostname
  13     - bob     8     -   0h02m posted  -         -     -     -   - big
";
        assert_eq!(text([applications(&reply(), true)]), golden);
    }

    #[test]
    fn an_application_that_is_stopped_or_out_of_reach_is_marked() {
        let mut told = reply();
        told.applications[0].stopped = Some(pb::By { uid: 61234, ..Default::default() });
        for verbose in [false, true] {
            let text = text([applications(&told, verbose)]);
            assert!(text.contains(" 0h02m running stopped "), "{text}");
        }
        let json = of([applications(&told, false)]).json();
        assert!(json.contains("\"turn\": \"stopped\""), "{json}");
        let word = |told: &pb::ListReply| turn(&told.applications[0]);
        told.applications[0].unreachable = vec![pb::NidRange { first: 1, last: u32::MAX }];
        assert_eq!(word(&told), Cell::text("suspect"));
        let report = application(&told, Apid(7), &TimeZone::UTC).expect("it is there");
        assert!(report.text().contains("\nSuspect:       1\n"), "{}", report.text());
        told.applications[0].kill_in_ns = Some(NOW);
        assert!(matches!(word(&told), Cell::Text(text) if text.starts_with("KILL in ")));
        told.applications[0] = pb::ApplicationRow {
            stopped: Some(pb::By::default()),
            turn: Some(pb::Turn { kind: pb::turn::Kind::Held.into(), ..Default::default() }),
            ..Default::default()
        };
        assert_eq!(word(&told), Cell::text("held"));
    }

    #[test]
    fn a_turn_in_a_word() {
        use pb::turn::Kind;
        let of = |turn| super::turn(&pb::ApplicationRow { turn, ..Default::default() });
        let word = |kind: Kind, left_ns| {
            of(Some(pb::Turn { kind: kind.into(), left_ns, ..Default::default() }))
        };
        let runs = Cell::text("runs");
        assert_eq!(word(Kind::Always, 0), runs);
        assert_eq!([word(Kind::Leads, 5), word(Kind::Promoted, 5)], [runs.clone(), runs]);
        assert_eq!(word(Kind::Frozen, 0), Cell::text("frozen"));
        assert_eq!(word(Kind::Held, 0), Cell::text("held"));
        assert_eq!([word(Kind::Unknown, 0), of(None)], [Cell::None, Cell::None]);
    }

    #[test]
    fn when_in_a_word() {
        use pb::when::Kind;
        let of = |when| super::when(&pb::ApplicationRow { when, ..Default::default() }, NOW);
        let word = |kind: Kind, kept_at_ns| of(Some(pb::When { kind: kind.into(), kept_at_ns }));
        let words = [
            (word(Kind::Unknown, 0), "unknown"),
            (of(None), "unknown"),
            (word(Kind::Kept, 0), "kept"),
            (word(Kind::KeptAt, NOW + 90 * MINUTE), "kept in 90m"),
            // The clock on the wall was set back, or psched looks in a moment.
            (word(Kind::KeptAt, NOW - 1), "kept in 0ms"),
            (word(Kind::Held, 0), "held"),
        ];
        for (cell, expected) in words {
            assert_eq!(cell, Cell::text(expected));
        }
    }

    #[test]
    fn pending_ones_say_why() {
        let golden = "\
Pending applications: 1
Apid User w:d:N   Age When       Command Why
  13 bob  8:1:2 0h02m kept in 6d big     needs 8 processors; 7 of alice; -n 1 fits now
";
        assert_eq!(text([pending(&reply())]), golden);
    }

    #[test]
    fn one_application_whole() {
        let golden = "\
Application:   7
User:          alice
Account:       climate-2.b
Command:       ./a.out -x
State:         running
w:d:N:         3:1:-
NIDs:          0-1
Posted:        2026-11-20 11:58:00.000
Launched:      2026-11-20 11:59:00.000
Turn:          frozen 0.8s
Share had:     49.8%
Share due:     50.0%
Run:           29s
Checkpoint:    SIGUSR1
Memory per PE: 1024 KiB
Time limit:    90 s

Placement
NID PEs Processors
  0   2 0,1
  1   1 0

psched: the store is nearly full
";
        let report = application(&reply(), Apid(7), &TimeZone::UTC).expect("it is there");
        assert_eq!(report.text(), golden);
        let mut reply_of_flexible = reply();
        reply_of_flexible.applications.iter_mut().for_each(|row| row.flexible = true);
        let report = application(&reply_of_flexible, Apid(7), &TimeZone::UTC).expect("there");
        let mode = "Time limit:    90 s\n";
        assert_eq!(
            report.text(),
            golden.replace(mode, &format!("Mode:          flexible\n{mode}"))
        );
        let wants = why(&reply_of_flexible, Apid(13)).expect("there").text();
        assert!(wants.contains("Wants:       8:1:2 (w:d:N), flexible\n"), "{wants}");
        assert_eq!(application(&reply(), Apid(8), &TimeZone::UTC), None);
        let mut restarted = reply();
        restarted.applications[0].front_host = "h2".to_owned();
        restarted.applications[0].restarted_from =
            Some(pb::ApplicationKey { apid: 3, incarnation: 2 });
        let report = application(&restarted, Apid(7), &TimeZone::UTC).expect("there");
        let both = [("aprun on", Cell::text("h2")), ("Restarted from", Cell::Number(3))];
        assert!(report.facts.windows(2).any(|facts| facts == both), "{:?}", report.facts);
    }

    #[test]
    fn why_it_waits_or_ended() {
        let golden = "\
Application: 13
State:       posted
Wants:       8:1:2 (w:d:N)
Obstacle:    needs 8 processors
Held by:     7 of alice
Cure:        -n 1 fits now

psched: the store is nearly full
";
        assert_eq!(why(&reply(), Apid(13)).expect("there").text(), golden);
        let golden = "\
Application: 5
State:       ended
Status:      139
Cause:       PE 1 on NID 2 died: Segmentation fault (signal 11)

psched: the store is nearly full
";
        assert_eq!(why(&reply(), Apid(5)).expect("there").text(), golden);
        let golden = "Application: 12\nState:       placed\nNIDs:        1\n\npsched: the store is nearly full\n";
        assert_eq!(why(&reply(), Apid(12)).expect("there").text(), golden);
        let golden = "\
Application: 7
State:       running
NIDs:        0-1
Turn:        frozen 0.8s
Share had:   49.8%
Share due:   50.0%
Obstacle:    other applications have their turn on its processors
Cure:        its next turn comes in 0.8s

psched: the store is nearly full
";
        assert_eq!(why(&reply(), Apid(7)).expect("there").text(), golden);
    }

    #[test]
    fn events_and_history() {
        let event = |at_ns, name: &str, detail: &str| pb::EventRow {
            at_ns,
            name: name.into(),
            detail: detail.into(),
        };
        let reply_events = pb::EventsReply {
            events: vec![event(NOW, "posted", "-n 3"), event(NOW + 1_500_000, "placed", "")],
            notices: vec!["the store is nearly full".into()],
            ..Default::default()
        };
        let golden = "\
Time                    Event  Detail
2026-11-20 12:00:00.000 posted -n 3
2026-11-20 12:00:00.001 placed -

psched: the store is nearly full
";
        assert_eq!(events(&reply_events, &TimeZone::UTC).text(), golden);
        let golden = "\
Apid User  PEs Nodes Ended                    Waited    Ran Status Command Cause
   5 alice   2     1 2026-11-20 11:59:03.500 60.000s 1.500s    139 ./bad   PE 1 on NID 2 died: Segmentation fault (signal 11)

psched: the store is nearly full
";
        assert_eq!(history(&reply(), &TimeZone::UTC).text(), golden);
    }
}
