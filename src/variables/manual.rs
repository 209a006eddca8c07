//! What the manuals are to say of the variables: psched.yaml(5) of all that the table says,
//! psmgr(8) of each what it is. The pages have it word for word; where one has not, the failure shows
//! what belongs there.

use super::Definition;
use super::table::all;

/// Columns of a line of a page.
const COLUMNS: usize = 80;

/// `Time between TERM and KILL.`
fn sentence(meaning: &str) -> String {
    let mut letters = meaning.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['.']).collect()
}

/// Sentences on lines of their own, none too long.
fn lines(text: &str) -> String {
    let mut lines = String::new();
    for sentence in text.trim().split_inclusive(". ") {
        let mut column = 0;
        for word in sentence.split_whitespace() {
            if column > 0 && column + 1 + word.len() > COLUMNS {
                lines.push('\n');
                column = 0;
            }
            if column > 0 {
                lines.push(' ');
                column += 1;
            }
            lines += word;
            column += word.len();
        }
        lines.push('\n');
    }
    lines
}

/// The entry of psched.yaml(5).
fn entry(row: &Definition) -> String {
    let (kind, range, default) = (row.kind.name(), row.range(), row.default_text());
    let at_start = if row.at_start { "Read when psched starts." } else { "" };
    let text = format!("{} {} {at_start}", sentence(row.meaning), row.more);
    let name = row.name;
    format!(".It Va {name} Pq {kind} , {range} , default {default}\n{}", lines(&text))
}

/// The entry of psmgr(8).
fn brief(row: &Definition) -> String {
    let (kind, range, default) = (row.kind.name(), row.range(), row.default_text());
    let text = format!("{} ({kind}, {range}, default {default})", row.meaning);
    format!(".TP\n.B {}\n{}", row.name, lines(&text)).replace('-', "\\-")
}

/// What is between two lines of a page.
#[track_caller]
fn between<'a>(page: &'a str, first: &str, last: &str) -> &'a str {
    let (_, rest) = page.split_once(first).expect("the list begins");
    rest.split_once(last).expect("the list ends").0
}

#[test]
fn the_manuals_say_what_the_table_says() {
    let page = include_str!("../../man/psched.yaml.5");
    let said = between(page, ".Sh VARIABLES\n", ".Sh FILES\n");
    let said = between(said, ".Bl -tag -width Ds\n", ".El\n");
    let wanted: String = all().map(entry).collect();
    assert!(said == wanted, "psched.yaml(5) is to say:\n{wanted}");
    let page = include_str!("../../man/psmgr.8");
    let said = between(page, ".SH VARIABLES\n", ".SH OPTIONS\n");
    let (_, said) = said.split_at(said.find(".TP\n").expect("a list"));
    let wanted: String = all().map(brief).collect();
    assert!(said == wanted, "psmgr(8) is to say:\n{wanted}");
}

#[test]
fn text_is_broken_at_sentences_and_columns() {
    let long = "word ".repeat(20);
    assert_eq!(lines("One. Two (a.b) x."), "One.\nTwo (a.b) x.\n");
    assert!(lines(&long).lines().all(|line| line.len() <= COLUMNS));
}
