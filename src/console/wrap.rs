//! Lines that a terminal would break in the middle of a word.

/// The least room in which a line is wrapped.
const WRAPS_FROM: usize = 40;

/// The text in lines of at most `columns` letters, broken at blanks; all but the first begin with
/// `indent` blanks. A longer word stays whole: it may be a path. 0 columns: as it is, for it goes
/// to no terminal.
///
/// ```
/// # use psched::console::wrap::at_blanks;
/// let text = "psched: NID 3 is not in psched.yaml: change --nids or it";
/// let wrapped = "psched: NID 3 is not in psched.yaml:\n  change --nids or it";
/// assert_eq!(at_blanks(text, 40, 2), wrapped);
/// assert_eq!(at_blanks(text, 0, 2), text);
/// ```
pub fn at_blanks(text: &str, columns: usize, indent: usize) -> String {
    if columns < WRAPS_FROM || text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    // Letters on this line, and whether there is a word among them.
    let (mut length, mut has_word) = (0, false);
    for (n, word) in text.split(' ').enumerate() {
        let letters = word.chars().count();
        if n > 0 && has_word && length + 1 + letters > columns {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            (length, has_word) = (indent, false);
        } else if n > 0 {
            out.push(' ');
            length += 1;
        }
        out.push_str(word);
        length += letters;
        has_word |= letters > 0;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_word_stays_whole() {
        let path = "x".repeat(60);
        let text = format!("a file {path} is not there");
        assert_eq!(at_blanks(&text, 40, 4), format!("a file\n    {path}\n    is not there"));
        assert_eq!(at_blanks(&text, 20, 4), text, "too narrow");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_line_is_too_long(
            words in proptest::collection::vec("[a-z]{1,12}", 0..60), columns in 40usize..120, indent in 0usize..9)
        {
            let text = words.join(" ");
            let wrapped = at_blanks(&text, columns, indent);
            prop_assert!(wrapped.lines().all(|line| line.chars().count() <= columns), "{wrapped}");
            prop_assert_eq!(wrapped.split_whitespace().collect::<Vec<_>>(), words);
        }
    }
}
