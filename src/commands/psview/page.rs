//! All of what psview shows, as lines that fit a width: the same for a text and for a live terminal.
//! Pure: the time is in psched's answer.

use super::lines::{Column, Line, Role, Span, fit, sentence, table};
use super::matrix;
use crate::console::table::short;
use crate::machine::{Nid, format_nids, nids_text};
use crate::rpc::pb;
use crate::rpc::pb::turn::Kind;
use crate::variables::units;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Apinits whose figures stand beside those of all; with more only `-n` has each.
const APINITS_MAX: usize = 4;

/// What to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Who runs when.
    Turns,
    /// Nodes, with what they can do.
    Nodes,
}

/// The page, at most so wide.
pub fn page(reply: &pb::TurnsReply, page: Page, width: usize) -> Vec<Line> {
    let width = width.max(1);
    let parts = match page {
        Page::Turns => {
            let mut parts = vec![head(reply, width)];
            parts.extend(plans(reply, width));
            parts.push(applications(reply, width));
            parts.push(switches(reply, APINITS_MAX, width));
            parts
        }
        Page::Nodes => vec![nodes(reply, width), switches(reply, usize::MAX, width)],
    };
    let parts: Vec<Vec<Line>> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let mut lines = parts.join(&Line::new());
    // A terminal may be narrower than anything fits.
    fit(&mut lines, width);
    lines
}

fn head(reply: &pb::TurnsReply, width: usize) -> Vec<Line> {
    let kinds = || reply.applications.iter().filter_map(|a| a.turn.as_ref()).map(pb::Turn::kind);
    let [alone, held] =
        [Kind::Always, Kind::Held].map(|of| kinds().filter(|kind| *kind == of).count());
    let turns = kinds().count() - alone - held;
    let mut text = format!("{}: ", units::count(reply.nodes.len(), "node"));
    let some = [(turns, "in turns"), (alone, "alone"), (held, "held")];
    let mut some = some.into_iter().filter(|(number, _)| *number > 0);
    text += &match some.next() {
        None => "nothing runs".into(),
        Some((number, how)) => format!("{} {how}", units::count(number, "application")),
    };
    text.extend(some.map(|(number, how)| format!(", {number} {how}")));
    if reply.waiting > 0 {
        let waiting = usize::try_from(reply.waiting).unwrap_or(usize::MAX);
        text += &format!("; {} without a place", units::count(waiting, "posting"));
    }
    if reply.domains.is_empty() {
        text += &format!("; {}", rules(reply.time_slice_ns, reply.max_resident));
    }
    for domain in &reply.domains {
        let rules = rules(domain.time_slice_ns, domain.max_resident);
        text += &format!("; {}: {rules}", domain.name);
    }
    sentence(&text, Role::Plain, width)
}

/// How a domain takes turns.
fn rules(time_slice_ns: u64, max_resident: u32) -> String {
    let slice = units::format_duration(Duration::from_nanos(time_slice_ns));
    let gangs = units::count(max_resident as usize, "gang");
    format!("slices of {slice}, at most {gangs} on a processor")
}

/// Each component, one below the other.
fn plans(reply: &pb::TurnsReply, width: usize) -> Vec<Vec<Line>> {
    let nids = |row: &pb::ApplicationRow| {
        let nids = row.places.iter().map(|place| place.nid).collect();
        (apid(row), nids)
    };
    let nids: BTreeMap<u64, Vec<u32>> = reply.applications.iter().map(nids).collect();
    let one = |plan| matrix::component(plan, reply.now_ns, &nids, width);
    let mut parts: Vec<Vec<Line>> = reply.plans.iter().map(one).collect();
    if let Some(last) = parts.last_mut() {
        last.extend(sentence("> on now, * leads, + promoted", Role::Plain, width));
        if reply.parties_cut > 0 {
            let cut = format!("{} parties are shown by their leader only", reply.parties_cut);
            last.extend(sentence(&cut, Role::Warns, width));
        }
    }
    parts
}

fn apid(row: &pb::ApplicationRow) -> u64 {
    row.key.map_or(0, |key| key.apid)
}

/// PEs, and after a slash the processors that they share.
fn pes(row: &pb::ApplicationRow) -> String {
    let pes = row.shape.unwrap_or_default().width;
    match row.shared_processors {
        0 => pes.to_string(),
        processors => format!("{pes}/{processors}"),
    }
}

/// Whose it is.
pub fn user(row: &pb::ApplicationRow) -> String {
    let owner = row.owner.clone().unwrap_or_default();
    if owner.name.is_empty() { owner.uid.to_string() } else { owner.name }
}

/// `leads`, `promoted`, `frozen`, `held`, or the state where it is not running; before that:
/// `suspect`, of an application on a node whose apinit does not answer, and `stopped`, of one that
/// its user has stopped.
pub fn turn(row: &pb::ApplicationRow) -> &str {
    if !row.unreachable.is_empty() {
        return "suspect";
    }
    if row.stopped.is_some() && row.held.is_none() && row.turn.is_some() {
        return "stopped";
    }
    match row.turn.as_ref().map(pb::Turn::kind) {
        None | Some(Kind::Unknown) => &row.state,
        Some(Kind::Always) => "runs",
        Some(Kind::Leads) => "leads",
        Some(Kind::Promoted) => "promoted",
        Some(Kind::Frozen) => "frozen",
        Some(Kind::Held) => "held",
    }
}

fn nids(row: &pb::ApplicationRow) -> String {
    format_nids(row.places.iter().map(|place| Nid(place.nid)))
}

fn applications(reply: &pb::TurnsReply, width: usize) -> Vec<Line> {
    let rows = &reply.applications;
    if rows.is_empty() {
        return Vec::new();
    }
    let column = |of: &dyn Fn(&pb::ApplicationRow) -> String| {
        rows.iter().map(|row| Span::plain(of(row))).collect::<Vec<_>>()
    };
    let some = |of: &dyn Fn(&pb::Turn) -> String| {
        let cell = |row: &pb::ApplicationRow| row.turn.as_ref().map_or("-".into(), of);
        column(&cell)
    };
    let percent = |of: u32| format!("{}.{}%", of / 10, of % 10);
    let long = |ns: u64| if ns == 0 { "-".into() } else { short(ns) };
    let turns = rows.iter().map(|row| {
        let told = turn(row);
        let role = match row.turn.as_ref().map(pb::Turn::kind) {
            _ if matches!(told, "suspect" | "stopped") => Role::Warns,
            Some(Kind::Always | Kind::Leads) => Role::Leads,
            Some(Kind::Promoted) => Role::Promoted,
            Some(Kind::Frozen) => Role::Waits,
            Some(Kind::Held) => Role::Warns,
            None | Some(Kind::Unknown) => Role::Plain,
        };
        Span::new(told, role)
    });
    let mut columns = vec![
        Column::new(">Apid", 9, column(&|row| apid(row).to_string())),
        Column::new("<User", 3, column(&user)),
        Column::new(">PEs", 2, column(&pes)),
        Column::new("<NIDs", 4, column(&nids)),
        Column::new("<Turn", 9, turns.collect()),
        Column::new(">For", 8, some(&|turn| long(turn.left_ns))),
        Column::new(">Had", 7, some(&|turn| percent(turn.had))),
        Column::new(">Due", 7, some(&|turn| percent(turn.due))),
        Column::new(">Run", 5, some(&|turn| short(turn.attained_ns))),
        Column::new(">Part", 1, some(&|turn| long(turn.partial_ns))),
    ];
    if rows.iter().any(|row| row.memory > 0) {
        let memory = |row: &pb::ApplicationRow| match row.memory {
            0 => "-".into(),
            bytes => units::about(bytes),
        };
        columns.push(Column::new(">Memory", 2, column(&memory)));
    }
    columns.push(Column::new("<Command", 6, column(&|row| row.command.clone())));
    table(columns, width)
}

/// Milliseconds, to three figures or so.
fn ms(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    match ms {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 100.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

/// Figures of changes of party, of all apinits and, if they are so few, of each.
fn switches(reply: &pb::TurnsReply, apinits_max: usize, width: usize) -> Vec<Line> {
    let all = reply.all.unwrap_or_default();
    if (all.switches, all.left_out) == (0, 0) {
        return Vec::new();
    }
    let mut on: BTreeMap<u32, BTreeSet<Nid>> = BTreeMap::new();
    // (A node without an apinit names none: it would count as one of the first apinit's.)
    for node in reply.nodes.iter().filter(|node| !node.stops.is_empty()) {
        on.entry(node.apinit).or_default().insert(Nid(node.nid));
    }
    let mut rows = vec![("all".to_owned(), &all)];
    if reply.figures.len() <= apinits_max && reply.figures.len() > 1 {
        let of = |figures: &pb::TurnsFigures| {
            let nids = on.get(&figures.apinit).cloned();
            format_nids(nids.unwrap_or_else(|| [Nid(figures.apinit)].into()))
        };
        rows.extend(reply.figures.iter().map(|figures| (of(figures), figures)));
    }
    type Of = fn(&pb::TurnsFigures) -> String;
    let column = |of: Of| rows.iter().map(|(_, row)| Span::plain(of(row))).collect::<Vec<_>>();
    fn median(spread: &Option<pb::Spread>) -> String {
        spread.filter(|s| s.count > 0).map_or("-".into(), |s| ms(s.median_ns))
    }
    fn p99(spread: &Option<pb::Spread>) -> String {
        spread.filter(|s| s.count > 0).map_or("-".into(), |s| ms(s.p99_ns))
    }
    let heads = [">Freeze", ">p99", ">Gap", ">p99", ">Skew", ">p99"];
    let times: [Of; 6] = [
        |row| median(&row.freeze),
        |row| p99(&row.freeze),
        |row| median(&row.gap),
        |row| p99(&row.gap),
        |row| median(&row.skew),
        |row| p99(&row.skew),
    ];
    let mut columns = vec![
        Column::new("<NIDs", 9, rows.iter().map(|(nids, _)| Span::plain(nids)).collect()),
        Column::new(">Changes", 8, column(|row| row.switches.to_string())),
    ];
    for ((head, of), matters) in heads.into_iter().zip(times).zip([4, 3, 7, 6, 5, 2]) {
        columns.push(Column::new(head, matters, column(of)));
    }
    columns.push(Column::new(">Late", 8, column(|row| row.not_yet_frozen.to_string())));
    columns.push(Column::new(">Untold", 1, column(|row| row.left_out.to_string())));
    let mut lines = sentence(
        "Changes of party: median and p99 in ms until frozen, until next ran, off plan",
        Role::Title,
        width,
    );
    lines.extend(table(columns, width));
    lines.extend(in_part(reply, width));
    lines.extend(brought(&all, width));
    lines
}

/// Memory that was out when a gang was to run.
fn brought(all: &pb::TurnsFigures, width: usize) -> Vec<Line> {
    let Some(bringing) = all.bringing.filter(|spread| spread.count > 0) else {
        return Vec::new();
    };
    let text = format!(
        "Memory brought in: {} in {}, in {} ms (p99 {} ms)",
        units::about(all.brought_bytes),
        units::count(usize::try_from(bringing.count).unwrap_or(usize::MAX), "start"),
        ms(bringing.median_ns),
        ms(bringing.p99_ns)
    );
    sentence(&text, Role::Plain, width)
}

/// Gangs that ran on some of their nodes and not on others.
fn in_part(reply: &pb::TurnsReply, width: usize) -> Vec<Line> {
    let turns = || reply.applications.iter().filter_map(|row| row.turn.as_ref());
    let times: u64 = turns().map(|turn| turn.partials).fold(0, u64::saturating_add);
    if times == 0 {
        return Vec::new();
    }
    let total = turns().map(|turn| turn.partial_ns).fold(0, u64::saturating_add);
    let longest = turns().map(|turn| turn.partial_longest_ns).max().unwrap_or(0);
    let text = format!(
        "In part: {}, for {} ms in all and {} ms at most",
        units::count(usize::try_from(times).unwrap_or(usize::MAX), "time"),
        ms(total),
        ms(longest)
    );
    sentence(&text, Role::Plain, width)
}

/// Nodes, and what they can do.
fn nodes(reply: &pb::TurnsReply, width: usize) -> Vec<Line> {
    let rows = &reply.nodes;
    let column = |of: &dyn Fn(&pb::NodeRow) -> String| {
        let cell = |row| match of(row) {
            text if text.is_empty() => Span::plain("-"),
            text => Span::plain(text),
        };
        rows.iter().map(cell).collect::<Vec<_>>()
    };
    let apids =
        |row: &pb::NodeRow| row.apids.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let stops = |row: &pb::NodeRow| match row.stops.as_str() {
        "signals" => Span::new("SIGSTOP", Role::Warns),
        "" => Span::plain("-"),
        other => Span::plain(other),
    };
    let mut columns = vec![
        Column::new(">NID", 9, column(&|row| row.nid.to_string())),
        Column::new("<Host", 2, column(&|row| row.host.clone())),
        Column::new("<State", 7, column(&|row| row.state.clone())),
        Column::new(">HW", 4, column(&|row| row.processors.to_string())),
        Column::new(">Pl", 4, column(&|row| row.used.to_string())),
        Column::new("<Stops", 8, rows.iter().map(stops).collect()),
        Column::new("<Limits", 3, column(&|row| row.limits.join(","))),
        Column::new("<Apids", 6, column(&apids)),
    ];
    // Most machines have nothing there.
    if rows.iter().any(|row| !row.back_ends.is_empty()) {
        let back_ends = column(&|row| row.back_ends.join(","));
        columns.insert(columns.len() - 1, Column::new("<Checkpoints", 3, back_ends));
    }
    if rows.iter().any(|row| row.clock_error_ns > 0) {
        let error = |row: &pb::NodeRow| match row.clock_error_ns {
            0 => String::new(),
            ns => format!("{}us", ns.div_ceil(1_000)),
        };
        // (An apinit of a release before does not tell it.)
        let ahead = |row: &pb::NodeRow| match row.clock_ahead_ns {
            0 => String::new(),
            _ => format!("{:+.6}s", row.clock_ahead_ns as f64 / 1e9),
        };
        columns.insert(columns.len() - 1, Column::new(">Clock", 3, column(&error)));
        columns.insert(columns.len() - 2, Column::new(">Ahead", 1, column(&ahead)));
    }
    let mut lines = table(columns, width);
    let mut noted: BTreeMap<&str, Vec<Nid>> = BTreeMap::new();
    for node in rows {
        if node.stops == "signals" {
            noted.entry(WEAKER).or_default().push(Nid(node.nid));
        }
        for note in &node.notes {
            noted.entry(note).or_default().push(Nid(node.nid));
        }
    }
    if !noted.is_empty() {
        lines.push(Line::new());
    }
    for (note, nids) in noted {
        let note = format!("{}: {note}", nids_text(nids));
        lines.extend(sentence(&note, Role::Warns, width));
    }
    lines
}

/// Of nodes without the freezer.
const WEAKER: &str =
    "gangs are stopped by SIGSTOP, not by the freezer: programs can see it and undo it";
