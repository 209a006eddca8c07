//! Tables of typed cells, written as text or as JSON.

use crate::steering::{is_bidi_control, steers};
use crate::variables::units::format_duration;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

/// What a user typed must not steer another's terminal.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if steers(c) { '?' } else { c }).collect()
}

/// JSON for programs, and for terminals: serde_json lets DEL and the control characters above ASCII
/// pass, of which one begins an escape sequence too.
pub fn json_text(value: &Value) -> String {
    // Maps of strings are always written.
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let mut out = String::with_capacity(text.len() + 1);
    for letter in text.chars() {
        match letter {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            _ if is_bidi_control(letter) => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
    out + "\n"
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

/// The narrowest room in which text is wrapped, in letters.
const WRAPS_FROM: usize = 24;

/// The mark at the end of text that was cut.
const CUT: char = '+';

/// The first `width` letters of a text; the last of them is [`CUT`] if the text is longer.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    text.chars().take(width.saturating_sub(1)).chain(Some(CUT).filter(|_| width > 0)).collect()
}

/// How a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// What happens to a column's text if the table is wider than the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Narrowing {
    /// It keeps its width.
    Keeps,
    /// It is cut to this width at least; columns with a lower number give up room first.
    Cuts(usize, usize),
    /// It is wrapped, in a room of [`WRAPS_FROM`] letters at least.
    Wraps,
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// What stands above it.
    pub heading: &'static str,
    align: Align,
    narrowing: Narrowing,
    /// Its place in the order in which columns are dropped; `None`: it is never dropped.
    drop: Option<usize>,
}

impl Column {
    /// The least width that it can have, if its widest cell has this one.
    fn least(&self, width: usize) -> usize {
        match self.narrowing {
            Narrowing::Keeps => width,
            Narrowing::Cuts(least, _) => width.min(least.max(self.heading.chars().count())),
            Narrowing::Wraps => width.min(WRAPS_FROM),
        }
    }
}

/// A titled table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name in JSON.
    pub name: &'static str,
    /// The line above it; empty: none.
    pub title: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Rows, each with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// `columns` as `>Apid <User`: the sign says how each stands.
    pub fn new(name: &'static str, title: impl Into<String>, columns: &'static str) -> Table {
        let columns = columns.split(' ').map(|column| {
            let (heading, align) = match column.strip_prefix('>') {
                Some(heading) => (heading, Align::Right),
                None => (column.trim_start_matches('<'), Align::Left),
            };
            Column { heading, align, narrowing: Narrowing::Keeps, drop: None }
        });
        Table { name, title: title.into(), columns: columns.collect(), rows: Vec::new() }
    }

    /// Marks columns whose text is cut where the terminal is too narrow, each with its least width, the
    /// first to be cut first. Text that is cut ends with [`CUT`].
    pub fn cuts(mut self, columns: &[(&str, usize)]) -> Table {
        for (at, (heading, least)) in columns.iter().enumerate() {
            self.column(heading, |column| column.narrowing = Narrowing::Cuts(*least, at));
        }
        self
    }

    /// Marks a column whose text is wrapped where the terminal is too narrow.
    pub fn wraps(mut self, heading: &str) -> Table {
        self.column(heading, |column| column.narrowing = Narrowing::Wraps);
        self
    }

    /// Marks columns that are left out where cutting is not enough, in this order.
    pub fn drops(mut self, columns: &[&str]) -> Table {
        for (at, heading) in columns.iter().enumerate() {
            self.column(heading, |column| column.drop = Some(at));
        }
        self
    }

    fn column(&mut self, heading: &str, change: impl FnOnce(&mut Column)) {
        let found = self.columns.iter_mut().find(|column| column.heading == heading);
        debug_assert!(found.is_some(), "there is no column {heading}");
        if let Some(column) = found {
            change(column);
        }
    }

    /// The columns that are shown, each with its width, in this many letters; 0: in any number.
    fn layout(&self, shown: &[Vec<String>], room: usize) -> Vec<(usize, usize)> {
        let natural = |(at, column): (usize, &Column)| {
            let cells = shown.iter().filter_map(|row| row.get(at)).map(|c| c.chars().count());
            (at, cells.max().unwrap_or(0).max(column.heading.chars().count()))
        };
        let mut columns: Vec<(usize, usize)> =
            self.columns.iter().enumerate().map(natural).collect();
        if room == 0 {
            return columns;
        }
        let least = |(at, width): &(usize, usize)| self.columns[*at].least(*width);
        let gaps = |columns: &[(usize, usize)]| columns.len().saturating_sub(1);
        while gaps(&columns) + columns.iter().map(least).sum::<usize>() > room {
            let order = |(_, (at, _)): &(usize, &(usize, usize))| self.columns[*at].drop;
            let droppable = columns.iter().enumerate().filter(|column| order(column).is_some());
            let Some((next, _)) = droppable.min_by_key(order) else { break };
            columns.remove(next);
        }
        let mut excess = (gaps(&columns) + columns.iter().map(|(_, width)| width).sum::<usize>())
            .saturating_sub(room);
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by_key(|n| match self.columns[columns[*n].0].narrowing {
            Narrowing::Cuts(_, at) => at,
            Narrowing::Keeps | Narrowing::Wraps => usize::MAX,
        });
        for n in order {
            let given = excess.min(columns[n].1 - least(&columns[n]));
            columns[n].1 -= given;
            excess -= given;
        }
        columns
    }

    /// Writes lines of at most `room` letters, 0: of any length. Where the table is wider, columns that
    /// are marked so are cut or wrapped, then dropped; lines that are still too long are cut.
    fn text(&self, out: &mut String, room: usize) {
        if !self.title.is_empty() {
            for line in wrapped_to(&clean(&self.title), room, 0, 2) {
                let _ = writeln!(out, "{line}");
            }
        }
        let shown: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(Cell::shown).collect()).collect();
        let columns = self.layout(&shown, room);
        let whole = if room == 0 { usize::MAX } else { room };
        let mut line = |cells: &[&str]| {
            let mut text = String::new();
            for (n, ((at, width), cell)) in columns.iter().zip(cells).enumerate() {
                let separator = if n == 0 { "" } else { " " };
                let cell = cut(cell, *width);
                // (The width of a format has 16 bits, and panics beyond.)
                let fill = " ".repeat(width.saturating_sub(cell.chars().count()));
                let [before, after] = match self.columns[*at].align {
                    Align::Left => ["", &*fill],
                    Align::Right => [&*fill, ""],
                };
                let _ = write!(text, "{separator}{before}{cell}{after}");
            }
            let _ = writeln!(out, "{}", cut(text.trim_end(), whole));
        };
        line(&columns.iter().map(|(at, _)| self.columns[*at].heading).collect::<Vec<_>>());
        for row in &shown {
            // What each column has on each line of this row.
            let lines = |(at, width): &(usize, usize)| {
                let cell = row.get(*at).map_or("", String::as_str);
                match self.columns[*at].narrowing {
                    Narrowing::Wraps if cell.chars().count() > *width => wrapped(cell, *width),
                    _ => vec![cell.to_owned()],
                }
            };
            let cells: Vec<Vec<String>> = columns.iter().map(lines).collect();
            for n in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
                let nth = |lines: &'_ Vec<String>| lines.get(n).cloned().unwrap_or_default();
                let cells: Vec<String> = cells.iter().map(nth).collect();
                line(&cells.iter().map(String::as_str).collect::<Vec<_>>());
            }
        }
    }

    fn value(&self) -> Value {
        let row = |cells: &Vec<Cell>| {
            let fields = self.columns.iter().zip(cells);
            Value::Object(fields.map(|(column, c)| (key(column.heading), c.value())).collect())
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
            let lines = |(name, cell): &(&str, Cell)| {
                let fact = format!("{:<width$} {}", format!("{name}:"), cell.shown());
                wrapped_to(&fact, columns, width + 1, width + 1)
            };
            parts.push(
                self.facts.iter().flat_map(lines).map(|line| line + "\n").collect::<String>(),
            );
        }
        for table in &self.tables {
            let mut text = String::new();
            table.text(&mut text, columns);
            parts.push(text);
        }
        if !self.notices.is_empty() {
            let of = |notice: &String| wrapped_to(&clean(notice), columns, 0, 2);
            let lines = self.notices.iter().flat_map(of);
            parts.push(lines.map(|line| line + "\n").collect());
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
        json_text(&Value::Object(object))
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

/// The number of letters that a line on stdout may have: the environment's COLUMNS, else that of the
/// terminal that stdout is; 0: any number, for stdout is no terminal, or its size is not known.
pub fn terminal_columns() -> usize {
    columns(std::env::var("COLUMNS").ok().as_deref(), window().map_or(0, |(columns, _)| columns))
}

/// COLUMNS if it is a number greater than 0, else the terminal's.
fn columns(variable: Option<&str>, terminal: usize) -> usize {
    let wanted = variable.and_then(|text| text.trim().parse().ok());
    wanted.filter(|columns| *columns > 0).unwrap_or(terminal)
}

/// Columns and rows of the terminal that stdout is, if it is one and they are known.
pub fn window() -> Option<(usize, usize)> {
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok()).flatten()?;
    let size = (usize::from(size.ws_col), usize::from(size.ws_row));
    (size.0 > 0 && size.1 > 0).then_some(size)
}

/// Breaks a text into lines of at most `columns` letters, between words; a longer word after commas in
/// it, and if that is not enough it is cut.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let parts: Vec<&str> = match word.chars().count() > columns {
            true => word.split_inclusive(',').collect(),
            false => vec![word],
        };
        for (at, part) in parts.into_iter().enumerate() {
            let part = cut(part, columns);
            let length = part.chars().count();
            match lines.last_mut() {
                Some(line) if line.is_empty() => line.push_str(&part),
                Some(line) if at == 0 && line.chars().count() + 1 + length <= columns => {
                    line.extend([" ", &part]);
                }
                Some(line) if at > 0 && line.chars().count() + length <= columns => {
                    line.push_str(&part);
                }
                _ => lines.push(part),
            }
        }
    }
    lines
}

/// A text in lines of at most `columns` letters, 0: of any length. The first `head` letters stay as they
/// are, and all lines but the first begin with `indent` blanks. Where less than [`WRAPS_FROM`] letters of
/// room are left the text is cut.
fn wrapped_to(text: &str, columns: usize, head: usize, indent: usize) -> Vec<String> {
    if columns == 0 || text.chars().count() <= columns {
        return vec![text.into()];
    }
    let room = columns.saturating_sub(indent);
    if room < WRAPS_FROM {
        return vec![cut(text, columns)];
    }
    let first: String = text.chars().take(head).collect();
    let rest: String = text.chars().skip(head).collect();
    let mut lines = wrapped(&rest, room);
    for (at, line) in lines.iter_mut().enumerate() {
        *line = if at == 0 { format!("{first}{line}") } else { format!("{:indent$}{line}", "") };
    }
    lines
}

/// A length of time to the second: `4m50s`, `1h5s`; less than a second counts as one.
pub fn whole_seconds(ns: u64) -> String {
    format_duration(Duration::from_secs(ns.div_ceil(1_000_000_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of an application: a command and a reason.
    fn things() -> Table {
        let mut table = Table::new("things", "", ">Apid <User >PEs <Command <Why");
        let text = |t: &str| Cell::Text(t.into());
        let why = "its processors are those of application 7; it has them until Friday";
        let command = text("./a.out --with many words");
        table.rows.push(vec![Cell::Number(7), text("alice"), Cell::Number(64), command, text(why)]);
        let (command, why) = (text("hostname"), text("none"));
        table.rows.push(vec![Cell::Number(8), text("bob"), Cell::Number(1), command, why]);
        table
    }

    fn within(table: &Table, columns: usize) -> String {
        Report { tables: vec![table.clone()], ..Report::default() }.text_within(columns)
    }

    #[test]
    fn a_narrow_terminal_cuts_then_drops() {
        let table = things().cuts(&[("Command", 8), ("Why", 10)]).drops(&["PEs", "User"]);
        let whole = within(&table, 0);
        assert_eq!(whole, within(&table, 200));
        assert!(
            whole.contains("words its processors are those of application 7; it has them until F")
        );
        let golden = [
            "\
Apid User  PEs Command  Why
   7 alice  64 ./a.out+ its processors are those of application 7; it has them +
   8 bob     1 hostname none
",
            "\
Apid User  PEs Command  Why
   7 alice  64 ./a.out+ its processors +
   8 bob     1 hostname none
",
            "\
Apid User  Command  Why
   7 alice ./a.out+ its proces+
   8 bob   hostname none
",
            "\
Apid Command  Why
   7 ./a.out+ its proce+
   8 hostname none
",
        ];
        assert_eq!([80, 40, 31, 24].map(|columns| within(&table, columns)), golden);
        // What still does not fit is cut.
        assert_eq!(within(&table, 10), "Apid Comm+\n   7 ./a.+\n   8 host+\n");
        for columns in 1..200 {
            let text = within(&table, columns);
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
        }
    }

    #[test]
    fn a_cell_may_be_wider_than_a_format() {
        let mut table = Table::new("things", "", "<Why >Age");
        table.rows.push(vec![Cell::text("z".repeat(70_000)), Cell::Number(1)]);
        table.rows.push(vec![Cell::text("a"), Cell::Number(2)]);
        let mut out = String::new();
        table.text(&mut out, 0);
        let lines: Vec<usize> = out.lines().map(str::len).collect();
        assert_eq!(lines, [70_004, 70_004, 70_004]);
    }

    #[test]
    fn a_narrow_terminal_wraps() {
        let table = things().wraps("Why").cuts(&[("Command", 4)]).drops(&["PEs"]);
        assert_eq!(
            [43, 24].map(|columns| within(&table, columns)),
            [
                "\
Apid User  Command Why
   7 alice ./a.ou+ its processors are those
                   of application 7; it has
                   them until Friday
   8 bob   hostna+ none
",
                "\
Apid User  Command Why
   7 alice ./a.ou+ its +
                   of a+
                   them+
   8 bob   hostna+ none
"
            ]
        );
    }

    #[test]
    fn lists_are_wrapped_after_commas() {
        assert_eq!(wrapped("a 1,22,333,4444 b", 7), ["a 1,22,", "333,", "4444 b"]);
        assert_eq!(wrapped("12345678 1", 4), ["123+", "1"]);
        assert_eq!(wrapped("", 4), [""]);
    }

    #[test]
    fn facts_and_notices_are_wrapped() {
        let why = Cell::text("its processors are those of application 7; it has them until Friday");
        let report = Report {
            facts: vec![("Application", Cell::Number(7)), ("Obstacle", why)],
            tables: vec![],
            notices: vec!["psched: the store is nearly full, and so is the disk below it".into()],
        };
        let golden = "\
Application: 7
Obstacle:    its processors are those of
             application 7; it has them
             until Friday

psched: the store is nearly full, and
  so is the disk below it
";
        assert_eq!(report.text_within(40), golden);
        assert_eq!(report.text().lines().count(), 4);
        assert!(report.text_within(30).lines().all(|line| line.chars().count() <= 30));
    }

    #[test]
    fn columns_of_the_environment_come_first() {
        assert_eq!(columns(None, 0), 0);
        assert_eq!(columns(None, 80), 80);
        assert_eq!(columns(Some("132"), 80), 132);
        assert_eq!(columns(Some("132"), 0), 132);
        for bad in ["", "0", "-3", "many"] {
            assert_eq!(columns(Some(bad), 80), 80, "{bad}");
        }
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

    /// Notes of hosts are among the notices, and a title may have a name in it.
    #[test]
    fn no_line_is_steered_or_begun_by_what_it_quotes() {
        let forged = "n1\u{1b}[2J\nNID 0: declared down by root\u{9b}31m";
        let table = Table::new("things", forged, ">Apid");
        let report = Report {
            tables: vec![table],
            notices: vec![format!("NID 2: {forged}")],
            ..Report::default()
        };
        let shown = "n1?[2J?NID 0: declared down by root?31m";
        assert_eq!(report.text(), format!("{shown}\nApid\n\nNID 2: {shown}\n"));
        for columns in [30, 60] {
            let text = report.text_within(columns);
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
            assert!(!text.contains("\nNID 0"), "{text:?}");
        }
        let json = report.json();
        assert!(!json.contains(|c: char| c.is_control() && c != '\n'), "{json:?}");
        let value: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(value["notices"][0], format!("NID 2: {forged}"));
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
}
