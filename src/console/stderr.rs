//! Lines for stderr.

use super::table::clean;
use std::io::{self, Write};

/// Writes a line on stderr, with the name of this program in front. The text may quote what other
/// users and hosts say: it stays one line, and steers no terminal.
pub fn complain(name: &str, text: &str) {
    // (A closed stderr has no reader who could be told.)
    let _ = io::stderr().write_all(line(name, text).as_bytes());
}

fn line(name: &str, text: &str) -> String {
    format!("{name}: {}\n", clean(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_whoever_has_written_it() {
        let text = "no node n1\u{1b}[2J\napstat: NID 0 is down\r";
        assert_eq!(line("apstat", text), "apstat: no node n1?[2J?apstat: NID 0 is down?\n");
    }
}
