//! Lines with parts that mean something: what a text writes plainly and a terminal in colours.
//!
//! What is made here fits a width in letters, whatever it is: columns that matter less go, what is too
//! long is cut, sentences are wrapped.

use crate::console::table::{clean, cut};

/// What a part of a line is, for whoever can show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Role {
    /// Nothing special.
    #[default]
    Plain,
    /// A heading.
    Title,
    /// Is on now.
    On,
    /// Leads its party.
    Leads,
    /// Was promoted into it.
    Promoted,
    /// Waits.
    Waits,
    /// Wants attention.
    Warns,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Span {
    /// What is written.
    pub text: String,
    /// What it is.
    pub role: Role,
}

/// One line.
pub type Line = Vec<Span>;

impl Span {
    /// A part that is that.
    pub fn new(text: impl AsRef<str>, role: Role) -> Span {
        Span { text: clean(text.as_ref()), role }
    }

    /// A part that is nothing special.
    pub fn plain(text: impl AsRef<str>) -> Span {
        Span::new(text, Role::Plain)
    }

    /// How wide it is.
    pub fn width(&self) -> usize {
        self.text.chars().count()
    }
}

/// As text, without blanks at the ends of lines.
pub fn text(lines: &[Line]) -> String {
    let line = |line: &Line| {
        let text: String = line.iter().map(|span| span.text.as_str()).collect();
        text.trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

/// At most so wide; text that is cut ends with two dots. (In a plan `+` means something else.)
pub fn dotted(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    let kept = width.saturating_sub(2);
    text.chars().take(kept).chain("..".chars().take(width)).collect()
}

/// Of each line what fits.
pub fn fit(lines: &mut [Line], width: usize) {
    for line in lines {
        let mut room = width;
        for span in line {
            if span.width() > room {
                span.text = span.text.chars().take(room).collect();
            }
            room -= span.width();
        }
    }
}

/// Words one after the other in as many lines as it takes; all but the first are set in.
pub fn wrap(words: impl IntoIterator<Item = Span>, width: usize) -> Vec<Line> {
    let mut lines = vec![Line::new()];
    let mut used = 0;
    for mut word in words {
        word.text = cut(&word.text, width.saturating_sub(2).max(1));
        let line = lines.last_mut().filter(|line| !line.is_empty());
        match line {
            Some(line) if used + 1 + word.width() <= width => {
                line.push(Span::plain(" "));
                used += 1 + word.width();
                line.push(word);
            }
            Some(_) => {
                used = 2 + word.width();
                lines.push(vec![Span::plain("  "), word]);
            }
            None => {
                used = word.width();
                lines = vec![vec![word]];
            }
        }
    }
    lines
}

/// A sentence, wrapped.
pub fn sentence(text: &str, role: Role, width: usize) -> Vec<Line> {
    wrap(text.split_whitespace().map(|word| Span::new(word, role)), width)
}

/// A column of a table.
pub struct Column {
    heading: &'static str,
    right: bool,
    /// The least goes first where there is no room.
    matters: u8,
    cells: Vec<Span>,
}

impl Column {
    /// `>Apid`, `<User`: the sign says how it stands.
    pub fn new(heading: &'static str, matters: u8, cells: Vec<Span>) -> Column {
        let right = heading.starts_with('>');
        let heading = heading.trim_start_matches(['<', '>']);
        Column { heading, right, matters, cells }
    }

    fn width(&self) -> usize {
        self.cells.iter().map(Span::width).max().unwrap_or(0).max(self.heading.chars().count())
    }
}

/// The least width that is left to the last column, before others go.
const LAST_MIN: usize = 8;

/// Columns beside each other, each a blank from the next; the last may be cut.
pub fn table(mut columns: Vec<Column>, width: usize) -> Vec<Line> {
    let needed = |columns: &[Column]| {
        let widths = columns.iter().map(Column::width);
        let last = widths.clone().next_back().unwrap_or(0);
        widths.sum::<usize>() + columns.len().saturating_sub(1) - last + last.min(LAST_MIN)
    };
    while columns.len() > 1 && needed(&columns) > width {
        let least = columns.iter().enumerate().min_by_key(|(_, column)| column.matters);
        let Some((least, _)) = least else { break };
        columns.remove(least);
    }
    let mut room = width;
    let widths: Vec<usize> = columns
        .iter()
        .map(|column| {
            let width = column.width().min(room);
            room = room.saturating_sub(width + 1);
            width
        })
        .collect();
    let rows = columns.iter().map(|column| column.cells.len()).max().unwrap_or(0);
    let mut lines = Vec::with_capacity(rows + 1);
    for row in 0..=rows {
        let mut line = Line::new();
        for (column, width) in columns.iter().zip(&widths) {
            let heading = || Span::new(column.heading, Role::Title);
            let cell = match row.checked_sub(1) {
                Some(row) => column.cells.get(row).cloned().unwrap_or_default(),
                None => heading(),
            };
            let text = cut(&cell.text, *width);
            let text = match column.right {
                true => format!("{text:>width$}"),
                false => format!("{text:<width$}"),
            };
            if !line.is_empty() {
                line.push(Span::plain(" "));
            }
            line.push(Span { text, role: cell.role });
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        let cells = |texts: &[&str]| texts.iter().map(Span::plain).collect();
        vec![
            Column::new(">Apid", 9, cells(&["5", "1234"])),
            Column::new("<User", 1, cells(&["alice", "bob"])),
            Column::new("<Command", 5, cells(&["./a.out with words", "x\x1b[2J"])),
        ]
    }

    #[test]
    fn a_table_fits() {
        let of = |width| text(&table(columns(), width));
        let wide = "Apid User  Command\n   5 alice ./a.out with words\n1234 bob   x?[2J\n";
        assert_eq!(of(80), wide);
        assert_eq!(of(20), "Apid User  Command\n   5 alice ./a.out +\n1234 bob   x?[2J\n");
        assert_eq!(of(18), "Apid Command\n   5 ./a.out with+\n1234 x?[2J\n");
        assert_eq!(of(4), "Apid\n   5\n1234\n");
        assert_eq!(of(1), "+\n5\n+\n");
    }

    #[test]
    fn sentences_are_wrapped() {
        let of = |width| text(&sentence("one two three  four", Role::Plain, width));
        assert_eq!(of(80), "one two three four\n");
        assert_eq!(of(9), "one two\n  three\n  four\n");
        assert_eq!(of(5), "one\n  two\n  th+\n  fo+\n");
        assert_eq!(text(&wrap([], 10)), "\n");
        let cut = [dotted("abcd", 4), dotted("abcde", 4), dotted("abc", 1)];
        assert_eq!(cut, ["abcd", "ab..", "."]);
    }
}
