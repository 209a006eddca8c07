//! Tables of typed cells, written as text or as JSON.

use crate::variables::units::format_duration;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

/// What a user typed must not steer another's terminal.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// One thing in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Words, to the left.
    Text(String),
    /// A number, to the right.
    Number(u64),
    /// Words to the right: a time, an amount.
    Amount(String),
    /// Numbers, written `1,2,3`.
    List(Vec<u64>),
    /// Nothing: `-`, and null.
    None,
}

impl Cell {
    /// Text, or nothing where it is empty.
    pub fn text(text: impl Into<String>) -> Cell {
        let text = text.into();
        if text.is_empty() { Cell::None } else { Cell::Text(text) }
    }

    /// As text.
    pub fn shown(&self) -> String {
        match self {
            Cell::Text(text) | Cell::Amount(text) => clean(text),
            Cell::Number(n) => n.to_string(),
            Cell::List(list) if list.is_empty() => "-".into(),
            Cell::List(list) => list.iter().map(u64::to_string).collect::<Vec<_>>().join(","),
            Cell::None => "-".into(),
        }
    }

    fn value(&self) -> Value {
        match self {
            Cell::Text(text) | Cell::Amount(text) => text.clone().into(),
            Cell::Number(n) => (*n).into(),
            Cell::List(list) => list.clone().into(),
            Cell::None => Value::Null,
        }
    }
}

/// A moment, to the millisecond.
pub fn moment(at_ns: u64, zone: &TimeZone) -> Cell {
    let time = i128::from(at_ns);
    match jiff::Timestamp::from_nanosecond(time) {
        Ok(t) if at_ns != 0 => {
            Cell::Text(t.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S.%3f").to_string())
        }
        _ => Cell::None,
    }
}

/// The narrowest room in which the text of a table's last column is wrapped, in letters.
const WRAPS_FROM: usize = 24;

/// How a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A titled table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name in JSON.
    pub name: &'static str,
    /// The line above it; empty: none.
    pub title: String,
    /// Headings.
    pub columns: Vec<(&'static str, Align)>,
    /// Rows, each with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// `columns` as `>Apid <User`: the sign says how each stands.
    pub fn new(name: &'static str, title: impl Into<String>, columns: &'static str) -> Table {
        let columns = columns
            .split(' ')
            .map(|c| match c.strip_prefix('>') {
                Some(heading) => (heading, Align::Right),
                None => (c.trim_start_matches('<'), Align::Left),
            })
            .collect();
        Table { name, title: title.into(), columns, rows: Vec::new() }
    }

    /// Writes lines of at most `columns` letters, 0: of any length. The text of the last column is
    /// wrapped if it has [`WRAPS_FROM`] letters of room; else lines are cut.
    fn text(&self, out: &mut String, columns: usize) {
        if !self.title.is_empty() {
            let _ = writeln!(out, "{}", self.title);
        }
        let shown: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(Cell::shown).collect()).collect();
        let width = |i: usize, heading: &str| {
            let cells = shown.iter().filter_map(|row| row.get(i)).map(|c| c.chars().count());
            cells.max().unwrap_or(0).max(heading.chars().count())
        };
        let widths: Vec<usize> =
            self.columns.iter().enumerate().map(|(i, (heading, _))| width(i, heading)).collect();
        let before: usize = widths.iter().rev().skip(1).map(|width| width + 1).sum();
        let last = match columns.saturating_sub(before) {
            _ if columns == 0 => usize::MAX,
            room if room < WRAPS_FROM => usize::MAX,
            room => room,
        };
        let cut = if columns == 0 { usize::MAX } else { columns };
        let mut line = |cells: &[&str]| {
            let mut text = String::new();
            for ((cell, (_, align)), width) in cells.iter().zip(&self.columns).zip(&widths) {
                let separator = if text.is_empty() { "" } else { " " };
                let _ = match align {
                    Align::Left => write!(text, "{separator}{cell:<width$}"),
                    Align::Right => write!(text, "{separator}{cell:>width$}"),
                };
            }
            let shown: String = text.trim_end().chars().take(cut).collect();
            let _ = writeln!(out, "{}", shown.trim_end());
        };
        line(&self.columns.iter().map(|(heading, _)| *heading).collect::<Vec<_>>());
        for row in &shown {
            let mut cells: Vec<&str> = row.iter().map(String::as_str).collect();
            let Some(words) = cells.pop_if(|words| words.chars().count() > last) else {
                line(&cells);
                continue;
            };
            let words = wrapped(words, last);
            for words in &words {
                cells.push(words);
                line(&cells);
                cells.fill("");
                cells.pop();
            }
        }
    }

    fn value(&self) -> Value {
        let row = |cells: &Vec<Cell>| {
            let fields = self.columns.iter().zip(cells);
            Value::Object(fields.map(|((h, _), c)| (key(h), c.value())).collect())
        };
        self.rows.iter().map(row).collect()
    }
}

/// A heading as a name in JSON.
fn key(heading: &str) -> String {
    heading.to_lowercase().replace([':', '-'], "_")
}

/// What is shown: tables, or things of one application, and notices below them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Report {
    /// Named values, one a line, above the tables.
    pub facts: Vec<(&'static str, Cell)>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Lines below.
    pub notices: Vec<String>,
}

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        self.text_within(0)
    }

    /// The text for a terminal with this number of columns; 0: no terminal, lines of any length.
    pub fn text_within(&self, columns: usize) -> String {
        let mut parts = Vec::new();
        if !self.facts.is_empty() {
            let width = self.facts.iter().map(|(name, _)| name.len() + 1).max().unwrap_or(0);
            let line = |(name, cell): &(&str, Cell)| {
                format!("{:<width$} {}\n", format!("{name}:"), cell.shown())
            };
            parts.push(self.facts.iter().map(line).collect::<String>());
        }
        for table in &self.tables {
            let mut text = String::new();
            table.text(&mut text, columns);
            parts.push(text);
        }
        if !self.notices.is_empty() {
            parts.push(self.notices.iter().map(|n| format!("{n}\n")).collect());
        }
        parts.join("\n")
    }

    /// For programs: an object with each fact, each table as a list of objects, and the notices.
    pub fn json(&self) -> String {
        let mut object = Map::new();
        for (name, cell) in &self.facts {
            object.insert(key(name), cell.value());
        }
        for table in &self.tables {
            object.insert(table.name.into(), table.value());
        }
        object.insert("notices".into(), self.notices.clone().into());
        // Maps of strings are always written.
        serde_json::to_string_pretty(&Value::Object(object)).unwrap_or_default() + "\n"
    }
}

/// A length of time in a few letters, to two digits: `20ms`, `0.8s`, `42s`, `1.6m`, `12m`, `3.1h`,
/// `30h`, `5d`.
pub fn short(ns: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let seconds = ns / SECOND;
    let tenths =
        |unit: u64, name: &str| format!("{}.{}{name}", seconds / unit, seconds % unit * 10 / unit);
    match seconds {
        0 if ns < SECOND / 10 => format!("{}ms", ns / 1_000_000),
        0..10 => format!("{}.{}s", seconds, ns % SECOND / (SECOND / 10)),
        10..100 => format!("{seconds}s"),
        100..600 => tenths(60, "m"),
        600..6_000 => format!("{}m", seconds / 60),
        6_000..36_000 => tenths(3_600, "h"),
        36_000..360_000 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The number of columns of the terminal that stdout is; 0: stdout is no terminal, or its size is
/// not known.
pub fn terminal_columns() -> usize {
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok()).flatten();
    size.map_or(0, |size| size.ws_col.into())
}

/// Breaks a text into lines of at most `columns` letters; a longer word has a line of its own, and is
/// cut.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let word: String = word.chars().take(columns).collect();
        let line = lines.last_mut().filter(|line| {
            line.is_empty() || line.chars().count() + 1 + word.chars().count() <= columns
        });
        match line {
            Some(line) if line.is_empty() => line.push_str(&word),
            Some(line) => line.extend([" ", &word]),
            None => lines.push(word),
        }
    }
    lines
}

/// A length of time to the second: `4m50s`, `1h5s`; less than a second counts as one.
pub fn whole_seconds(ns: u64) -> String {
    format_duration(Duration::from_secs(ns.div_ceil(1_000_000_000)))
}

/// As much of a text as a terminal of this size shows: lines cut, not wrapped; the last line free
/// for the cursor. A size of 0 is unknown: all of it.
pub fn clip(text: &str, columns: usize, rows: usize) -> String {
    if columns == 0 || rows == 0 {
        return text.into();
    }
    let lines: Vec<String> = text.lines().map(|l| l.chars().take(columns).collect()).collect();
    let room = rows - 1;
    if lines.len() <= room {
        return lines.iter().map(|l| format!("{l}\n")).collect();
    }
    let shown = room.saturating_sub(1);
    let more: String =
        format!("({} more lines)", lines.len() - shown).chars().take(columns).collect();
    lines.iter().take(shown).chain([&more]).map(|l| format!("{l}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_narrow_terminal_columns_are_kept() {
        let mut table = Table::new("things", "", ">Apid <User <Why");
        let text = |t: &str| Cell::Text(t.into());
        let why = "its processors are those of application 7; it has them until Friday";
        table.rows.push(vec![Cell::Number(7), text("alice"), text(why)]);
        table.rows.push(vec![Cell::Number(8), text("bob"), text("none")]);
        let report = Report { tables: vec![table], ..Report::default() };
        let wrapped = "\
Apid User  Why
   7 alice its processors are those of
           application 7; it has them
           until Friday
   8 bob   none
";
        assert_eq!(report.text_within(40), wrapped);
        let cut = "Apid User  Why\n   7 alice its process\n   8 bob   none\n";
        assert_eq!(report.text_within(22), cut);
        assert_eq!(report.text(), report.text_within(200));
        assert!(report.text().contains(why));
    }

    #[test]
    fn text_and_json_say_the_same() {
        let mut table = Table::new("things", "Things: 2", ">Apid <User >Age <Apids w:d:N");
        let text = |t: &str| Cell::Text(t.into());
        table.rows.push(vec![
            Cell::Number(7),
            text("alice"),
            Cell::Amount("0h02m".into()),
            Cell::List(vec![1, 2]),
            text("x\x1b[2J"),
        ]);
        table.rows.push(vec![
            Cell::Number(1234567),
            Cell::None,
            Cell::Amount("120h00m".into()),
            Cell::List(vec![]),
            text("y"),
        ]);
        let report = Report {
            facts: vec![("Application", Cell::Number(7)), ("State", text("running"))],
            tables: vec![table],
            notices: vec!["psched: a word".into()],
        };
        assert_eq!(
            report.text(),
            "Application: 7\n\
             State:       running\n\
             \n\
             Things: 2\n   \
             Apid User      Age Apids w:d:N\n      \
             7 alice   0h02m 1,2   x?[2J\n\
             1234567 -     120h00m -     y\n\
             \n\
             psched: a word\n"
        );
        let value: Value = serde_json::from_str(&report.json()).expect("JSON");
        assert_eq!(
            value,
            serde_json::json!({
                "application": 7, "state": "running", "notices": ["psched: a word"],
                "things": [
                    {"apid": 7, "user": "alice", "age": "0h02m", "apids": [1, 2], "w_d_n": "x\x1b[2J"},
                    {"apid": 1234567, "user": null, "age": "120h00m", "apids": [], "w_d_n": "y"},
                ],
            })
        );
    }

    #[test]
    fn times_in_a_few_letters() {
        let of = |ms: u64| short(ms * 1_000_000);
        let few = [0, 20, 99, 100, 850, 9_999, 10_000, 99_999, 100_000, 5_999_000].map(of);
        let golden = ["0ms", "20ms", "99ms", "0.1s", "0.8s", "9.9s", "10s", "99s", "1.6m", "99m"];
        assert_eq!(few, golden);
        let long = [600_000, 6_000_000, 35_999_000, 36_000_000, 400_000_000].map(of);
        assert_eq!(long, ["10m", "1.6h", "9.9h", "10h", "4d"]);
    }

    #[test]
    fn a_small_terminal_shows_what_it_can() {
        let text = "abcdef\nghi\njkl\n";
        assert_eq!(clip(text, 4, 10), "abcd\nghi\njkl\n");
        assert_eq!(clip(text, 80, 3), "abcdef\n(2 more lines)\n");
        assert_eq!(clip(text, 80, 4), text);
        assert_eq!(clip(text, 0, 0), text);
        assert_eq!(clip(text, 3, 1), "(3 \n");
    }
}
