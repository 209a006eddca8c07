//! Lines for stderr.

use super::table::clean;
use super::wrap::at_blanks;
use std::io::{self, IsTerminal, Write};

/// Writes a line on stderr, with the name of this program in front. The text may quote what other
/// users and hosts say: it stays one line, and steers no terminal.
pub fn complain(name: &str, text: &str) {
    // (A closed stderr has no reader who could be told.)
    let _ = io::stderr().write_all(line(name, text, columns()).as_bytes());
}

/// Letters in a line of the terminal that stderr is; 0: it is none, or its size is not known.
pub fn columns() -> usize {
    let stderr = io::stderr();
    let size = stderr.is_terminal().then(|| rustix::termios::tcgetwinsize(&stderr).ok()).flatten();
    size.map_or(0, |size| usize::from(size.ws_col))
}

fn line(name: &str, text: &str, columns: usize) -> String {
    at_blanks(&format!("{name}: {}", clean(text)), columns, 2) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_whoever_has_written_it() {
        let text = "no node n1\u{1b}[2J\napstat: NID 0 is down\r";
        assert_eq!(line("apstat", text, 0), "apstat: no node n1?[2J?apstat: NID 0 is down?\n");
        // Colours, and what would show the text in another order than it has.
        let text = "no node \u{1b}[31mn1\u{1b}[m\u{202e}1n edon\u{2066}\u{200f}";
        assert_eq!(line("apstat", text, 0), "apstat: no node ?[31mn1?[m?1n edon??\n");
    }

    #[test]
    fn a_terminal_gets_lines_that_fit() {
        let text = "psched.yaml has no NIDs 3-5: change --nids or the configuration";
        let wrapped =
            "apstat: psched.yaml has no NIDs 3-5: change\n  --nids or the configuration\n";
        assert_eq!(line("apstat", text, 44), wrapped);
    }
}
