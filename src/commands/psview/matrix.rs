//! The party matrix: the parties of a plan, one a row, by the nodes of its gangs.
//!
//! A node has a column. Where those do not fit, neighbours that look alike in every row share one; what
//! still does not fit goes below, under the same rows.

use super::lines::{Line, Role, Span, dotted, sentence, wrap};
use crate::console::table::short;
use crate::machine::{Nid, format_nids, nids_text};
use crate::rpc::pb;
use std::collections::{BTreeMap, BTreeSet};

/// Rows at most: those that come next are shown.
const ROWS_MAX: usize = 64;
/// Gangs of one party that are named on one node; there may be one for each processor.
const GANGS_MAX: usize = 3;
/// A heading of several nodes is not longer.
const LABEL_MAX: usize = 11;

/// Where a plan is.
pub struct Present {
    /// The slice that is on.
    pub number: usize,
    /// For how long it is still on, in nanoseconds.
    pub left_ns: u64,
}

/// Where a plan is then; None: it has no slices.
pub fn present(plan: &pb::TurnsPlan, now_ns: u64) -> Option<Present> {
    let whole: u64 = plan.slices.iter().map(|s| s.length_ns).fold(0, u64::saturating_add);
    let into = now_ns.max(plan.from_ns).saturating_sub(plan.begins_ns);
    let mut into = into.checked_rem(whole)?;
    for (number, slice) in plan.slices.iter().enumerate() {
        if into < slice.length_ns {
            return Some(Present { number, left_ns: slice.length_ns - into });
        }
        into -= slice.length_ns;
    }
    None
}

/// A cell: the gangs of a party on a node, by number, the leader first and marked.
type Cell = Vec<(u64, bool)>;

struct Row {
    number: usize,
    length: String,
    /// It is on.
    on: bool,
    when: String,
    /// By node.
    cells: Vec<Cell>,
}

struct Band {
    label: String,
    /// By row.
    cells: Vec<Span>,
}

impl Band {
    fn width(&self) -> usize {
        let cells = self.cells.iter().map(Span::width).max().unwrap_or(0);
        cells.max(self.label.chars().count())
    }
}

/// A plan's name: which start of psched, and which plan of that.
fn name(generation: u64) -> String {
    format!("{}.{}", generation >> 32, generation & u64::from(u32::MAX))
}

/// A component: its plan as a matrix, and who waits. `nids` are the nodes of each application.
pub fn component(
    plan: &pb::TurnsPlan,
    now_ns: u64,
    nids: &BTreeMap<u64, Vec<u32>>,
    width: usize,
) -> Vec<Line> {
    let of = |apid: &u64| nids.get(apid).map_or(&[][..], Vec::as_slice);
    let all: BTreeSet<u32> =
        plan.members.iter().flat_map(|apid| of(apid).iter().copied()).collect();
    let nodes = nids_text(all.iter().map(|nid| Nid(*nid)));
    let Some(on) = present(plan, now_ns) else {
        let members: Vec<String> = plan.members.iter().map(u64::to_string).collect();
        let text = format!(
            "Plan {}: {} on {nodes} held, in no slice",
            name(plan.generation),
            members.join(", ")
        );
        return sentence(&text, Role::Title, width);
    };
    let who = match &plan.members[..] {
        [apid] => format!("{apid} alone"),
        members => format!("{} applications take turns", members.len()),
    };
    let mut title = format!("Plan {}: {who} on {nodes}", name(plan.generation));
    match plan.from_ns.checked_sub(now_ns) {
        _ if !plan.agreed => title += ", being agreed",
        Some(until) if until > 0 => title += &format!(", in force in {}", short(until)),
        _ => {}
    }
    let mut lines = sentence(&title, Role::Title, width);
    // One alone, with whom others took turns before, is never stopped.
    if !plan.agreed || plan.slices.len() == 1 && plan.members.len() == 1 {
        return lines;
    }
    let all: Vec<u32> = all.into_iter().collect();
    let place: BTreeMap<u32, usize> = all.iter().enumerate().map(|(i, nid)| (*nid, i)).collect();
    let (rows, more) = rows(plan, &on, all.len(), |apid| {
        of(&apid).iter().filter_map(|nid| place.get(nid).copied())
    });
    lines.extend(matrix(&all, &rows, width));
    if more > 0 {
        lines.extend(sentence(&format!("({more} more parties)"), Role::Plain, width));
    }
    lines.extend(waiting(plan, &on, width));
    lines
}

/// How long a slice is: a quarter of a second is no fifth.
fn length(ns: u64) -> String {
    match ns / 1_000_000 {
        ms @ 0..1_000 if ms % 100 != 0 => format!("{ms}ms"),
        _ => short(ns),
    }
}

fn rows<I: Iterator<Item = usize>>(
    plan: &pb::TurnsPlan,
    on: &Present,
    nodes: usize,
    places: impl Fn(u64) -> I,
) -> (Vec<Row>, usize) {
    let slices = plan.slices.len();
    let mut comes_ns = on.left_ns;
    let mut shown = Vec::new();
    // In the order in which they come.
    for number in (on.number..slices).chain(0..on.number).take(ROWS_MAX) {
        let slice = &plan.slices[number];
        let when = match number == on.number {
            true => format!("on for {}", short(on.left_ns)),
            false => {
                let when = format!("in {}", short(comes_ns));
                comes_ns = comes_ns.saturating_add(slice.length_ns);
                when
            }
        };
        let mut cells = vec![Cell::new(); nodes];
        for (i, apid) in slice.party.iter().enumerate() {
            places(*apid).for_each(|at| cells[at].push((*apid, i == 0)));
        }
        let (number, on) = (number + 1, number == on.number);
        shown.push(Row { number, length: length(slice.length_ns), on, when, cells });
    }
    if slices <= ROWS_MAX {
        // All of them: then as the plan has them.
        shown.sort_by_key(|row| row.number);
    }
    let more = slices - shown.len();
    (shown, more)
}

fn cell(gangs: &Cell) -> Span {
    let mark = |(apid, leads): &(u64, bool)| format!("{}{apid}", if *leads { '*' } else { '+' });
    let mut text: Vec<String> = gangs.iter().take(GANGS_MAX).map(mark).collect();
    if gangs.len() > GANGS_MAX {
        text.push("..".into());
    }
    let role = match gangs.first() {
        None => return Span::plain("-"),
        Some((_, true)) => Role::Leads,
        Some((_, false)) => Role::Promoted,
    };
    Span::new(text.join(","), role)
}

/// Columns for these places on the line, neighbours together where that is wanted.
fn columns(nids: &[u32], rows: &[Row], together: bool) -> Vec<Band> {
    let same = |a: usize, b: usize| rows.iter().all(|row| row.cells[a] == row.cells[b]);
    let mut groups: Vec<(usize, usize)> = Vec::new();
    for at in 0..nids.len() {
        match groups.last_mut() {
            Some((first, last)) if together && same(*first, at) => *last = at,
            _ => groups.push((at, at)),
        }
    }
    let label = |first: usize, last: usize| {
        let label = format_nids(nids[first..=last].iter().map(|nid| Nid(*nid)));
        // With holes, of others.
        if label.len() > LABEL_MAX { format!("{}..{}", nids[first], nids[last]) } else { label }
    };
    let band = |(first, last): (usize, usize)| Band {
        label: label(first, last),
        cells: rows.iter().map(|row| cell(&row.cells[first])).collect(),
    };
    groups.into_iter().map(band).collect()
}

fn matrix(nids: &[u32], rows: &[Row], width: usize) -> Vec<Line> {
    let widest = |of: fn(&Row) -> String| rows.iter().map(|r| of(r).len()).max().unwrap_or(0);
    let number = widest(|row| row.number.to_string()).max("Party".len() - 2);
    let length = widest(|row| row.length.clone()).max("Slice".len());
    let when = widest(|row| row.when.clone());
    let sides = 2 + number + 1 + length + 1 + 1 + when;
    let room = width.saturating_sub(sides).max(4);
    let needed = |bands: &[Band]| bands.iter().map(|band| band.width() + 1).sum::<usize>();
    let mut bands = columns(nids, rows, false);
    if needed(&bands) > room {
        bands = columns(nids, rows, true);
    }
    let mut lines = Vec::new();
    let mut rest = &bands[..];
    let mut first = true;
    while !rest.is_empty() {
        let mut used = 0;
        let fit = rest.iter().take_while(|band| {
            used += band.width() + 1;
            used <= room
        });
        let (these, others) = rest.split_at(fit.count().max(1));
        let wide = |band: &Band| band.width().min(room.saturating_sub(1));
        let heads: String = these
            .iter()
            .map(|b| format!(" {:>w$}", dotted(&b.label, wide(b)), w = wide(b)))
            .collect();
        let head = format!("{:<w$} {:>length$}{heads}", "Party", "Slice", w = number + 2);
        if !first {
            lines.push(Line::new());
        }
        lines.push(vec![Span::new(head, Role::Title)]);
        for (at, row) in rows.iter().enumerate() {
            let role = if row.on { Role::On } else { Role::Plain };
            let sign = if row.on { '>' } else { ' ' };
            let begin = format!("{sign} {:>number$} {:>length$}", row.number, row.length);
            let mut line = vec![Span::new(begin, role)];
            for band in these {
                let cell = &band.cells[at];
                let text = format!(" {:>w$}", dotted(&cell.text, wide(band)), w = wide(band));
                // Only what runs now is marked as such.
                let role = if row.on { cell.role } else { Role::Plain };
                line.push(Span { text, role });
            }
            if first {
                line.push(Span::new(format!("  {}", row.when), role));
            }
            lines.push(line);
        }
        (rest, first) = (others, false);
    }
    lines
}

/// Who is frozen, and until when.
fn waiting(plan: &pb::TurnsPlan, on: &Present, width: usize) -> Vec<Line> {
    let runs = &plan.slices[on.number].party;
    let mut next: BTreeMap<u64, u64> = BTreeMap::new();
    let mut comes_ns = on.left_ns;
    for slice in plan.slices.iter().cycle().skip(on.number + 1).take(plan.slices.len() - 1) {
        for apid in &slice.party {
            next.entry(*apid).or_insert(comes_ns);
        }
        comes_ns = comes_ns.saturating_add(slice.length_ns);
    }
    let waits: Vec<&u64> = plan.members.iter().filter(|apid| !runs.contains(apid)).collect();
    if waits.is_empty() {
        return Vec::new();
    }
    let last = waits.len() - 1;
    let word = |(at, apid): (usize, &u64)| {
        let comma = if at < last { "," } else { "" };
        let text = match next.get(apid) {
            Some(ns) => format!("{apid} for {}{comma}", short(*ns)),
            None => format!("{apid} without a turn yet{comma}"),
        };
        Span::new(text, Role::Waits)
    };
    let words = waits.into_iter().enumerate().map(word);
    wrap([Span::plain("Frozen:")].into_iter().chain(words), width)
}
