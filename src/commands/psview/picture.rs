//! The latest turns over time as an SVG picture: a row for each node, a colour for each application.
//!
//! Applications that run on a node at the same time share the height of its row. The picture has at most
//! [`AREAS_MAX`] areas: where there are more runs, it begins later.

use super::page::user;
use super::runs::{Run, by_node};
use crate::console::svg::{LINE, Picture, colour, escaped, round, ticks};
use crate::console::table::cut;
use crate::machine::{Nid, format_nids};
use crate::rpc::pb;
use crate::variables::units::count;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Of the picture, in pixels, as are all that follow.
const WIDTH: f64 = 800.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 24.0;
/// The most of the height of rows, with what is between them.
const ROWS: f64 = 640.0;
const ROW: f64 = 30.0;
/// The least area in which its application is named.
const NAMED: (f64, f64) = (24.0, 14.0);

/// The most rows; with more nodes neighbours that look alike share one.
const ROWS_MAX: usize = 64;
/// The most areas.
const AREAS_MAX: usize = 4_000;
/// The most areas that name their applications.
const NAMES_MAX: usize = 400;
/// The most applications in the legend, and the most letters of each.
const LEGEND_MAX: usize = 12;
const LEGEND_LETTERS: usize = 90;

/// A node, or neighbours.
struct Row {
    nids: Vec<Nid>,
    runs: Vec<Run>,
}

/// The picture's text.
pub fn svg(reply: &pb::TurnsReply) -> String {
    let nodes = by_node(reply).into_iter();
    let mut rows: Vec<Row> =
        nodes.map(|node| Row { nids: vec![Nid(node.nid)], runs: node.runs }).collect();
    rows.sort_by_key(|row| row.nids.first().copied());
    let nodes = rows.len();
    if nodes > ROWS_MAX {
        rows = merged(rows);
    }
    let more = rows.split_off(rows.len().min(ROWS_MAX));
    let more: usize = more.iter().map(|row| row.nids.len()).sum();
    let (begin_ns, end_ns) = span(&mut rows, reply.now_ns);

    let apids: BTreeSet<u64> = rows.iter().flat_map(|row| &row.runs).map(|run| run.apid).collect();
    let colours: BTreeMap<u64, usize> =
        apids.iter().enumerate().map(|(at, apid)| (*apid, colour(at))).collect();
    let legend = legend(reply, &colours);
    let pitch = (ROWS / rows.len().max(1) as f64).min(ROW);
    let top = 2.0 * LINE + LINE * legend.len() as f64;
    let bottom = top + pitch * rows.len() as f64;
    let title =
        format!("Turns of {} on {}", count(apids.len(), "application"), count(nodes, "node"));
    let mut out = Picture::new(WIDTH, bottom + 2.0 * LINE, LEFT, &title);
    for (at, (colour, text)) in legend.iter().enumerate() {
        let y = 2.0 * LINE + 4.0 + LINE * at as f64;
        if let Some(colour) = colour {
            let mark = y - 10.0;
            out.add(format_args!(
                "<rect class=\"f{colour}\" x=\"{LEFT}\" y=\"{mark}\" width=\"16\" height=\"12\"/>"
            ));
        }
        out.add(format_args!("<text x=\"{}\" y=\"{y}\">{}</text>", LEFT + 24.0, escaped(text)));
    }
    let scale = Scale { begin_ns, end_ns };
    axis(&mut out, &scale, top, bottom);
    let names = rows.iter().map(|row| row.runs.len()).sum::<usize>() <= NAMES_MAX;
    // Labels of neighbours must not touch.
    let every = (LINE / pitch).ceil().max(1.0) as usize;
    for (at, row) in rows.iter().enumerate() {
        let height = pitch * 0.8;
        let y = top + pitch * at as f64 + pitch * 0.1;
        if at % every == 0 {
            label(&mut out, row, y, height);
        }
        draw(&mut out, row, &scale, &colours, y, height, names);
    }
    if more > 0 {
        let text = format!("{} not shown", count(more, "more node"));
        let y = bottom + 2.0 * LINE - 4.0;
        out.add(format_args!("<text x=\"{LEFT}\" y=\"{y}\">{text}</text>"));
    }
    out.finish()
}

/// Neighbours that look alike in one row.
fn merged(rows: Vec<Row>) -> Vec<Row> {
    let mut merged: Vec<Row> = Vec::new();
    for row in rows {
        match merged.last_mut().filter(|last| last.runs == row.runs) {
            Some(last) => last.nids.extend(row.nids),
            None => merged.push(row),
        }
    }
    merged
}

/// When the picture begins and ends. Runs that end before it begins are taken out.
fn span(rows: &mut [Row], now_ns: u64) -> (u64, u64) {
    let runs = || rows.iter().flat_map(|row| &row.runs);
    let mut ends: Vec<u64> = runs().map(|run| run.until_ns).collect();
    ends.sort_unstable_by(|a, b| b.cmp(a));
    let earliest = runs().map(|run| run.since_ns).min().unwrap_or(now_ns);
    let begin_ns = ends.get(AREAS_MAX).map_or(earliest, |cut| earliest.max(*cut));
    let end_ns = ends.first().map_or(now_ns, |last| now_ns.max(*last));
    for row in rows {
        row.runs.retain(|run| run.until_ns > begin_ns);
    }
    (begin_ns, end_ns)
}

/// The colour and the text of each line; without a colour: applications that have no line.
fn legend(reply: &pb::TurnsReply, colours: &BTreeMap<u64, usize>) -> Vec<(Option<usize>, String)> {
    let rows = reply.applications.iter().map(|row| (row.key.map_or(0, |key| key.apid), row));
    let rows: BTreeMap<u64, &pb::ApplicationRow> = rows.collect();
    let line = |(apid, colour): (&u64, &usize)| {
        let text = match rows.get(apid) {
            Some(row) => {
                let pes = row.shape.unwrap_or_default().width as usize;
                let (user, pes) = (user(row), count(pes, "PE"));
                format!("Application {apid} ({user}, {pes}): {}", row.command)
            }
            None => format!("Application {apid} (ended)"),
        };
        (Some(*colour), cut(&text, LEGEND_LETTERS))
    };
    let mut lines: Vec<_> = colours.iter().take(LEGEND_MAX).map(line).collect();
    let more = colours.len().saturating_sub(LEGEND_MAX);
    if more > 0 {
        lines.push((None, format!("and {}", count(more, "more application"))));
    }
    lines
}

/// From when to when.
struct Scale {
    begin_ns: u64,
    end_ns: u64,
}

impl Scale {
    fn seconds(&self) -> f64 {
        (self.end_ns.saturating_sub(self.begin_ns) as f64 / 1e9).max(1e-3)
    }

    fn x(&self, at_ns: u64) -> f64 {
        let seconds = at_ns.saturating_sub(self.begin_ns) as f64 / 1e9;
        self.at(seconds)
    }

    fn at(&self, seconds: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (seconds / self.seconds()).clamp(0.0, 1.0)
    }
}

fn axis(out: &mut Picture, scale: &Scale, top: f64, bottom: f64) {
    for tick in ticks(scale.seconds()) {
        out.add(format_args!(
            "<path class=\"grid\" d=\"M{0:.1} {top:.1}V{bottom:.1}\"/>\
             <text class=\"below\" x=\"{0:.1}\" y=\"{1:.1}\">{2} s</text>",
            scale.at(tick),
            bottom + 16.0,
            round(tick)
        ));
    }
}

/// Where text stands in the middle of this height.
fn middle(y: f64, height: f64) -> f64 {
    y + height / 2.0 + 4.0
}

fn label(out: &mut Picture, row: &Row, y: f64, height: f64) {
    let nids = cut(&format!("NID {}", format_nids(row.nids.iter().copied())), 11);
    out.add(format_args!(
        "<text class=\"left\" x=\"{}\" y=\"{:.1}\">{nids}</text>",
        LEFT - 8.0,
        middle(y, height)
    ));
}

fn draw(
    out: &mut Picture,
    row: &Row,
    scale: &Scale,
    colours: &BTreeMap<u64, usize>,
    y: f64,
    height: f64,
    names: bool,
) {
    out.add(format_args!(
        "<rect class=\"idle\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{}\" height=\"{height:.1}\"/>",
        WIDTH - LEFT - RIGHT
    ));
    let mut areas: BTreeMap<u64, String> = BTreeMap::new();
    let mut named = Vec::new();
    for (run, (lane, lanes)) in row.runs.iter().zip(lanes(&row.runs)) {
        let (left, right) = (scale.x(run.since_ns), scale.x(run.until_ns));
        let part = height / lanes as f64;
        let y = y + part * lane as f64;
        let area = areas.entry(run.apid).or_default();
        let _ = write!(area, "M{left:.1} {y:.1}H{right:.1}v{part:.1}H{left:.1}z");
        if names && right - left >= NAMED.0 && part >= NAMED.1 {
            named.push(((left + right) / 2.0, middle(y, part), run.apid));
        }
    }
    for (apid, area) in areas {
        let colour = colours.get(&apid).copied().unwrap_or_default();
        out.add(format_args!("<path class=\"f{colour}\" d=\"{area}\"/>"));
    }
    for (x, y, apid) in named {
        out.add(format_args!("<text class=\"in\" x=\"{x:.1}\" y=\"{y:.1}\">{apid}</text>"));
    }
}

/// For each run its lane, and the number of lanes: runs that overlap, directly or through others, share
/// the height. The runs are in order of their beginnings.
fn lanes(runs: &[Run]) -> Vec<(usize, usize)> {
    let mut lanes = Vec::with_capacity(runs.len());
    let mut free_from: Vec<u64> = Vec::new();
    for run in runs {
        if free_from.iter().all(|at| *at <= run.since_ns) {
            share(&mut lanes, free_from.len());
            free_from.clear();
        }
        let lane = free_from.iter().position(|at| *at <= run.since_ns).unwrap_or_else(|| {
            free_from.push(0);
            free_from.len() - 1
        });
        free_from[lane] = run.until_ns;
        lanes.push((lane, 0));
    }
    share(&mut lanes, free_from.len());
    lanes
}

/// Tells the latest runs that so many lanes are what they share.
fn share(lanes: &mut [(usize, usize)], among: usize) {
    for (_, number) in lanes.iter_mut().rev().take_while(|(_, number)| *number == 0) {
        *number = among;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn run(apid: u64, since: u64, until: u64) -> Run {
        Run { apid, since_ns: since * SECOND, until_ns: until * SECOND, generation: 0 }
    }

    fn change(at: u64, stopped: u64, started: u64) -> pb::TurnsSwitch {
        pb::TurnsSwitch {
            began_ns: at * SECOND,
            stopped: vec![stopped],
            started: vec![started],
            ..Default::default()
        }
    }

    /// Two take turns on these nodes, in so many changes of a second each.
    fn reply(nodes: u32, changes: u64) -> pb::TurnsReply {
        let row = |apid: u64, command: &str| pb::ApplicationRow {
            key: Some(pb::ApplicationKey { apid, incarnation: 1 }),
            owner: Some(pb::Owner { uid: 7, name: "a<b".into(), ..Default::default() }),
            shape: Some(pb::Shape { width: 8, depth: 1, per_node: 2 }),
            command: command.into(),
            places: (0..nodes).map(|nid| pb::Place { nid, ..Default::default() }).collect(),
            ..Default::default()
        };
        pb::TurnsReply {
            now_ns: (changes + 1) * SECOND,
            nodes: (0..nodes).map(|nid| pb::NodeRow { nid, ..Default::default() }).collect(),
            applications: vec![row(1, "./one & all"), row(2, "\u{1b}</svg>")],
            switches: (1..=changes).map(|n| change(n, 1 + n % 2, 2 - n % 2)).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn runs_at_the_same_time_share_the_height() {
        let runs = [run(1, 0, 2), run(2, 2, 4), run(3, 3, 6), run(4, 4, 5), run(5, 6, 7)];
        assert_eq!(lanes(&runs), [(0, 1), (0, 2), (1, 2), (0, 2), (0, 1)]);
        assert_eq!(lanes(&[]), []);
    }

    #[test]
    fn two_gangs_in_turns() {
        let svg = svg(&reply(2, 4));
        assert!(svg.contains(">Turns of 2 applications on 2 nodes</text>"), "{svg}");
        assert!(svg.contains(">Application 1 (a&lt;b, 8 PEs): ./one &amp; all</text>"), "{svg}");
        assert!(svg.contains(": ?&lt;/svg&gt;</text>"), "{svg}");
        assert!(svg.contains(">NID 0</text>") && svg.contains(">NID 1</text>"), "{svg}");
        // 1 from 1 s to 2 s and from 3 s to 4 s of 4 s.
        assert!(
            svg.contains("d=\"M72.0 75.0H248.0v24.0H72.0zM424.0 75.0H600.0v24.0H424.0z\""),
            "{svg}"
        );
        assert_eq!(svg.matches("<path class=\"f0\"").count(), 2, "{svg}");
        assert_eq!(svg.matches("<text class=\"in\"").count(), 8, "{svg}");
        assert!(svg.contains(">4 s</text>"), "{svg}");
    }

    #[test]
    fn it_has_bounds() {
        let areas = |svg: &str| svg.matches('z').count();
        let long = svg(&reply(4, 10_000));
        assert!((3_990..=AREAS_MAX + 10).contains(&areas(&long)), "{}", areas(&long));
        assert!(!long.contains("class=\"in\""), "no names where there are many");
        let wide = svg(&reply(1_000, 2));
        assert!(wide.contains(">NID 0-999</text>"), "{wide}");
        let mut odd = reply(200, 2);
        odd.applications[1].places.retain(|place| place.nid % 2 == 0);
        assert!(svg(&odd).contains(">136 more nodes not shown</text>"));
        // Nothing has run yet, and there is nothing to run on.
        let none = pb::TurnsReply { now_ns: SECOND, ..Default::default() };
        assert!(svg(&none).contains(">Turns of 0 applications on 0 nodes</text>"));
    }
}
