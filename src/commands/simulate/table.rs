//! The figures as tables: a row for each setting beneath the others, so that they can be compared.

use super::Told;
use crate::console::table::{Cell, Report, Table, terminal_columns};
use crate::simulate::classes::{Class, Classes};
use crate::simulate::figures::{Felt, Spread};
use crate::variables::units::format_duration;
use std::time::Duration;

/// The least width of a setting's label.
const SETTING: &[(&str, usize)] = &[("Setting", 24)];

/// All of it.
pub fn text(log: &str, all: &[Told]) -> String {
    let mut report = Report { facts: vec![("Log", Cell::text(log))], ..Report::default() };
    let tables = &mut report.tables;
    tables.push(settings(all));
    tables.push(spreads("Wait, s", all, 0, |felt| felt.wait));
    tables.push(spreads("Response, s", all, 0, |felt| felt.response));
    tables.push(spreads(&slowdown_title(all), all, 2, |felt| felt.bounded_slowdown));
    tables.push(capacity(all));
    tables.push(longest(all));
    tables.extend(turns(all));
    tables.push(classes("By width", all, |classes| &classes.width));
    tables.push(classes("By run time", all, |classes| &classes.run));
    tables.push(classes("By width, runs over 2h", all, |classes| &classes.long_by_width));
    for told in all {
        tables.extend(worst(told));
    }
    tables.retain(|table| !table.rows.is_empty());
    report.text_within(terminal_columns())
}

/// With the bound, where all have the same: else it is in the label of each that has another.
fn slowdown_title(all: &[Told]) -> String {
    match all.first().map(|told| told.setting.bound) {
        Some(bound) if all.iter().all(|told| told.setting.bound == bound) => {
            let bound = format_duration(bound);
            format!("Bounded slowdown (a run under {bound} counts as {bound})")
        }
        _ => "Bounded slowdown".to_owned(),
    }
}

fn number(value: f64, digits: usize) -> Cell {
    Cell::Amount(format!("{value:.digits$}"))
}

fn percent(part: f64) -> Cell {
    number(100.0 * part, 2)
}

/// Hours, as waits of days are told.
fn hours(time: Duration) -> Cell {
    number(time.as_secs_f64() / 3600.0, 1)
}

fn label(told: &Told) -> Cell {
    Cell::Text(told.setting.label())
}

fn settings(all: &[Told]) -> Table {
    let columns = "<Setting >Nodes >Processors >Jobs >Left-out >Days >Offered-load";
    let mut table = Table::new("settings", "", columns).cuts(SETTING).drops(&[
        "Days",
        "Left-out",
        "Processors",
        "Nodes",
    ]);
    for told in all {
        let summary = &told.summary;
        table.rows.push(vec![
            label(told),
            Cell::Number(told.nodes as u64),
            Cell::Number(summary.processors.into()),
            Cell::Number(summary.felt.jobs as u64),
            Cell::Number(told.left_out),
            number(summary.span.as_secs_f64() / 86_400.0, 1),
            summary.offered_load.map_or(Cell::None, |load| number(load, 3)),
        ]);
    }
    table
}

fn spreads(title: &str, all: &[Told], digits: usize, of: fn(&Felt) -> Spread) -> Table {
    let columns = "<Setting >Mean >Median >P95 >P99 >P99.9 >Largest";
    let mut table = Table::new("", title, columns).cuts(SETTING).drops(&["P99.9", "P95", "Median"]);
    for told in all {
        let Spread { mean, median, p95, p99, p999, max } = of(&told.summary.felt);
        let mut row = vec![label(told), number(mean, digits.max(1))];
        row.extend([median, p95, p99, p999, max].map(|value| number(value, digits)));
        table.rows.push(row);
    }
    table
}

fn capacity(all: &[Told]) -> Table {
    let columns = "<Setting >Useful >Starts >Moves >Fragmented >Kept >Idle >Processor-hours";
    let title = "Where the machine's time went, in percent";
    let mut table = Table::new("", title, columns).cuts(SETTING).drops(&[
        "Processor-hours",
        "Kept",
        "Fragmented",
        "Moves",
        "Starts",
    ]);
    for told in all {
        let c = told.summary.capacity;
        let all = c.total().max(f64::MIN_POSITIVE);
        let mut row = vec![label(told)];
        let parts = [c.useful, c.starts, c.moves, c.fragmented, c.kept, c.idle];
        row.extend(parts.map(|part| percent(part / all)));
        row.push(number(all / 3600.0, 0));
        table.rows.push(row);
    }
    table
}

fn longest(all: &[Told]) -> Table {
    let columns = "<Setting >Not-running >Of-job >Waited >By-job >Better-% >Worse-%";
    let title = "Longest stretch not running and longest wait in all, in hours; jobs over a minute better or worse \
                 off than with EASY";
    let mut table = Table::new("", title, columns)
        .cuts(SETTING)
        .drops(&["By-job", "Of-job", "Worse-%", "Better-%"]);
    for told in all {
        let summary = &told.summary;
        let (stopped, stopped_job) = summary.longest_stopped;
        let (wait, wait_job) = summary.longest_wait;
        let against = summary.against.as_ref();
        table.rows.push(vec![
            label(told),
            hours(stopped),
            Cell::Amount(stopped_job.to_string()),
            hours(wait),
            Cell::Amount(wait_job.to_string()),
            against.map_or(Cell::None, |against| percent(against.better)),
            against.map_or(Cell::None, |against| percent(against.worse)),
        ]);
    }
    table
}

fn turns(all: &[Told]) -> Option<Table> {
    let columns = "<Setting >Starts >Most-starts >Moves >Most-moves";
    let mut table = Table::new("", "Starts and moves of a job", columns)
        .cuts(SETTING)
        .drops(&["Most-moves", "Most-starts"]);
    for told in all {
        let Some(turns) = told.summary.turns else { continue };
        let ((starts, most_starts), (moves, most_moves)) = (turns.starts, turns.moves);
        table.rows.push(vec![
            label(told),
            number(starts, 2),
            Cell::Number(most_starts.into()),
            number(moves, 2),
            Cell::Number(most_moves.into()),
        ]);
    }
    Some(table)
}

/// The settings of a class beneath each other, in the order of the first setting's classes.
fn classes(title: &str, all: &[Told], of: fn(&Classes) -> &Vec<Class>) -> Table {
    let columns = "<Class <Setting >Jobs >Wait >Response >R-median >R-P95 >Slowdown >S-median >S-P95 \
                   >S-P99 >S-largest >Longest-wait-h";
    let mut table = Table::new("", title, columns).cuts(SETTING).drops(&[
        "S-largest",
        "R-median",
        "S-median",
        "R-P95",
        "S-P99",
        "Longest-wait-h",
        "S-P95",
        "Jobs",
        "Wait",
        "Response",
    ]);
    let mut names: Vec<&str> = Vec::new();
    for class in all.iter().flat_map(|told| of(&told.summary.classes)) {
        if !names.contains(&class.name.as_str()) {
            names.push(&class.name);
        }
    }
    for name in names {
        for told in all {
            let Some(class) = of(&told.summary.classes).iter().find(|class| class.name == name)
            else {
                continue;
            };
            let Felt { jobs, wait, response, bounded_slowdown } = class.felt;
            table.rows.push(vec![
                Cell::text(name),
                label(told),
                Cell::Number(jobs as u64),
                number(wait.mean, 0),
                number(response.mean, 0),
                number(response.median, 0),
                number(response.p95, 0),
                number(bounded_slowdown.mean, 2),
                number(bounded_slowdown.median, 2),
                number(bounded_slowdown.p95, 2),
                number(bounded_slowdown.p99, 2),
                number(bounded_slowdown.max, 2),
                number(wait.max / 3600.0, 1),
            ]);
        }
    }
    table
}

fn worst(told: &Told) -> Option<Table> {
    let against = told.summary.against.as_ref()?;
    let title = format!("Worst off against EASY: {}", told.setting.label());
    let columns = ">Job >Width >Run-h >Response-h >With-EASY-h >Later-h";
    let mut table = Table::new("", title, columns).drops(&["Later-h", "With-EASY-h", "Run-h"]);
    for worse in &against.worst {
        table.rows.push(vec![
            Cell::Amount(worse.job.to_string()),
            Cell::Number(worse.width.into()),
            hours(worse.run),
            hours(worse.response),
            hours(worse.there),
            hours(worse.response.saturating_sub(worse.there)),
        ]);
    }
    Some(table)
}
