//! The load file of an application of several programs (`--load-file`), as Cplant's yod had one.
//!
//! ```text
//! # one line a part; ranks go on from line to line
//! -n 1          ./master --port 7000
//! -n 15         ./worker 'a word with blanks' \
//!                        and a line that goes on
//! ```
//!
//! Words are a simple shell's: separated by blanks; `'...'` is taken as it is; in `"..."` a backslash
//! takes the meaning of `"`, `\`, `$` and a backquote, outside of quotes that of any character, and at
//! the end of a line that of the line's end; `#` at the beginning of a word begins a comment. Nothing is
//! expanded: `$HOME`, `*` and `~` are what they are. A quote ends on its line. A `:` is an argument like
//! any other.

use super::parts::{self, Part, check_count};
use super::values::shown;
use super::{Options, Program};

/// The longest load file, in bytes.
pub const LOAD_MAX: usize = 1024 * 1024;

/// A command line that names a load file, whose text is needed to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loading {
    /// The file's name.
    pub path: Vec<u8>,
    pub(super) program: Program,
    /// Without parts yet.
    pub(super) options: Options,
}

impl Loading {
    /// The file's name, for messages.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }

    /// The whole command line, with this text in the file.
    ///
    /// # Errors
    /// A line is wrong, or there is none.
    pub fn read(self, text: &[u8]) -> Result<Box<Options>, String> {
        let (file, Loading { program, mut options, .. }) = (self.name(), self);
        if text.len() > LOAD_MAX {
            return Err(format!(
                "{file} is longer than {LOAD_MAX} bytes, the maximum of a load file: write programs that \
                 are alike as one line, with a larger -n"
            ));
        }
        let mut lexer = Lexer { text, at: 0, line: 1 };
        let mut found: Vec<Part> = Vec::new();
        loop {
            let name = format!("{file}:{}", lexer.line);
            let named = |error: String| format!("{name}: {error}");
            let Some(words) = lexer.words().map_err(named)? else { break };
            if words.is_empty() {
                continue;
            }
            check_count(&found).map_err(named)?;
            let (first, cure) = (found.first().map(|f| f.shape), "give it on the command line");
            let read = parts::read(program, &words, first, false, cure).map_err(named)?;
            found.push(read.part(name));
        }
        if found.is_empty() {
            return Err(format!(
                "{file} names no program: give it lines of the form [-n PES] COMMAND [ARGUMENT...]"
            ));
        }
        options.take_parts(found)?;
        Ok(Box::new(options))
    }
}

/// The words of one line.
///
/// # Errors
/// A quote is not closed, or there is another line.
pub(super) fn words(text: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let words = lexer.words()?.unwrap_or_default();
    match lexer.peek() {
        None => Ok(words),
        Some(_) => Err("it has more than one line: write it as one".to_owned()),
    }
}

/// Whether a file of this name is aprun's own stdin, which is PE 0's.
pub(super) fn is_stdin(path: &[u8]) -> bool {
    matches!(path, b"-" | b"/dev/stdin" | b"/dev/fd/0" | b"/proc/self/fd/0")
}

/// Cuts a text into the words of its lines.
struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = self.text.get(self.at).copied()?;
        self.at += 1;
        self.line += usize::from(byte == b'\n');
        Some(byte)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The words of the next line; `None` at the end of the text.
    fn words(&mut self) -> Result<Option<Vec<Vec<u8>>>, String> {
        if self.peek().is_none() {
            return Ok(None);
        }
        let (mut words, mut word) = (Vec::new(), None::<Vec<u8>>);
        while let Some(byte) = self.next() {
            match byte {
                b'\n' => break,
                b' ' | b'\t' => words.extend(word.take()),
                b'#' if word.is_none() => {
                    while self.peek().is_some_and(|b| b != b'\n') {
                        self.next();
                    }
                }
                b'\'' | b'"' => self.quoted(byte, word.get_or_insert_default())?,
                b'\\' => match self.next() {
                    Some(b'\n') => {}
                    Some(byte) => word.get_or_insert_default().push(plain(byte)?),
                    None => {
                        return Err(
                            "a backslash ends the file: remove it, or double it to have a \
                                    backslash in the word"
                                .to_owned(),
                        );
                    }
                },
                b'\r' if matches!(self.peek(), None | Some(b'\n')) => {
                    return Err(
                        "the line ends with a carriage return: give the file Unix line ends \
                                (sed -i 's/\\r$//')"
                            .to_owned(),
                    );
                }
                byte => word.get_or_insert_default().push(plain(byte)?),
            }
        }
        words.extend(word);
        Ok(Some(words))
    }

    fn quoted(&mut self, quote: u8, word: &mut Vec<u8>) -> Result<(), String> {
        let begun = self.at;
        loop {
            match self.next() {
                Some(byte) if byte == quote => return Ok(()),
                None | Some(b'\n') => {
                    let text = self.text.get(begun - 1..self.at).unwrap_or_default();
                    return Err(format!(
                        "the quote of {} is not closed on its line: close it, or put a backslash before it",
                        shown(text.trim_ascii_end())
                    ));
                }
                Some(b'\\') if quote == b'"' => match self.peek() {
                    Some(b'\n') => {
                        self.next();
                    }
                    Some(byte @ (b'"' | b'\\' | b'$' | b'`')) => {
                        self.next();
                        word.push(byte);
                    }
                    _ => word.push(b'\\'),
                },
                Some(byte) => word.push(plain(byte)?),
            }
        }
    }
}

/// A byte that may be in a word.
fn plain(byte: u8) -> Result<u8, String> {
    match byte {
        0 => {
            Err("the line holds a null byte, which no argument can have: give a text file"
                .to_owned())
        }
        byte => Ok(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aprun::decide::options::{Environment, Parsed, parse};
    use crate::apteam::launch::PARTS_MAX;
    use proptest::prelude::*;

    fn given(line: &str) -> Result<Loading, String> {
        let words: Vec<Vec<u8>> = line.split_whitespace().map(|w| w.as_bytes().to_vec()).collect();
        match parse(Program::Aprun, &words, &Environment::default())? {
            Parsed::Load(loading) => Ok(*loading),
            other => panic!("{line}: {other:?}"),
        }
    }

    fn load(text: &[u8]) -> Result<Box<Options>, String> {
        given("-q --load-file jobs/f")?.read(text)
    }

    /// The only line's words.
    fn words(line: &str) -> Vec<String> {
        let options = load(line.as_bytes()).expect(line);
        let [part] = &options.parts[..] else { panic!("{line}: {:?}", options.parts) };
        part.command.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    #[test]
    fn lines_are_parts() {
        let text = b"# a master\n\n-n 2 -d 3\t./master  --port 7000 # the usual\n  # more\n\
                     -n 4 \\\n  ./worker 'two words'\n./last : x";
        let options = load(text).expect("a good file");
        let seen: Vec<(&str, u32, u32, usize)> = options
            .parts
            .iter()
            .map(|part| (&part.name[..], part.shape.width, part.shape.depth, part.command.len()))
            .collect();
        let expected = [("jobs/f:3", 2, 3, 3), ("jobs/f:5", 4, 3, 2), ("jobs/f:7", 1, 3, 3)];
        assert_eq!(seen, expected);
        assert_eq!(
            (options.posting.shape.width, options.posting.shape.depth, options.quiet),
            (7, 3, true)
        );
    }

    #[test]
    fn words_are_a_shells() {
        for (line, expected) in [
            ("a b\tc", &["a", "b", "c"][..]),
            ("a 'b  c' d", &["a", "b  c", "d"]),
            ("a '' \"\" b", &["a", "", "", "b"]),
            (r#"a "b 'c' \"d\" \\ \$e \f""#, &["a", r#"b 'c' "d" \ $e \f"#]),
            (r"a b\ c \' \# \\", &["a", "b c", "'", "#", r"\"]),
            ("a b#c #d", &["a", "b#c"]),
            ("a x'y z'w", &["a", "xy zw"]),
            ("a $HOME * ~ : ; | & `x`", &["a", "$HOME", "*", "~", ":", ";", "|", "&", "`x`"]),
            ("a b\\\nc \"d\\\ne\"", &["a", "bc", "de"]),
            ("-- a -n : 3", &["a", "-n", ":", "3"]),
        ] {
            assert_eq!(words(line), expected, "{line}");
        }
    }

    #[test]
    fn bad_lines_are_named() {
        let cure = "close it, or put a backslash before it";
        for (text, said) in [
            (
                "a\n-n 0 b",
                "2: -n: \"0\" is too small: the number of PEs is a whole number from 1 to 1048576",
            ),
            ("a\n\n-n 3 # b", "3: no command given: name the program to run after the options"),
            ("a\n'' b", "2: the command is an empty word: name the program to run"),
            ("a\n-q b", "2: -q applies to the whole application: give it on the command line"),
            ("a \\\n b\n-y c", "3: \"-y\" is not an option: aprun --help lists the options"),
            (
                "a\n-d 2 b",
                "2: -d is 2 here and 1 in the first part: give each part -N, because parts with \
                           different -d use different nodes",
            ),
            ("a 'b\nc' d", &format!("1: the quote of \"'b\" is not closed on its line: {cure}")),
            ("a\nb \"c", &format!("2: the quote of \"\\\"c\" is not closed on its line: {cure}")),
            (
                "a\nb \\",
                "2: a backslash ends the file: remove it, or double it to have a backslash in the word",
            ),
            (
                "a\r\nb\r\n",
                "1: the line ends with a carriage return: give the file Unix line ends \
                            (sed -i 's/\\r$//')",
            ),
            (
                "a b\0",
                "1: the line holds a null byte, which no argument can have: give a text file",
            ),
            (
                "a 'b\0'",
                "1: the line holds a null byte, which no argument can have: give a text file",
            ),
        ] {
            assert_eq!(
                load(text.as_bytes()).expect_err(text),
                format!("jobs/f:{said}"),
                "{text:?}"
            );
        }
        for text in ["", "\n# nothing\n\n"] {
            assert_eq!(
                load(text.as_bytes()).expect_err("no program"),
                "jobs/f names no program: give it lines of the form [-n PES] COMMAND [ARGUMENT...]"
            );
        }
    }

    #[test]
    fn there_are_bounds() {
        assert!(load("a\n".repeat(PARTS_MAX).as_bytes()).is_ok());
        let said = load("a\n".repeat(PARTS_MAX + 1).as_bytes()).expect_err("one more");
        assert!(
            said.starts_with("jobs/f:257: an application has at most 256 programs: "),
            "{said}"
        );
        let long = "#".repeat(LOAD_MAX);
        assert!(load(long.as_bytes()).expect_err("nothing in it").contains("names no program"));
        let longer = load(format!("{long}#").as_bytes()).expect_err("too long");
        assert!(longer.starts_with("jobs/f is longer than 1048576 bytes, "), "{longer}");
    }

    #[test]
    fn a_load_file_and_a_command_are_exclusive() {
        assert_eq!(
            given("--load-file f ./a.out").expect_err("both"),
            "\"./a.out\" is a command, but --load-file names the programs: give the command a line of that file, or \
             leave out --load-file"
        );
        for option in ["-n 4", "-d 2", "-N 1"] {
            assert_eq!(
                given(&format!("{option} --load-file f")).expect_err(option),
                "-n, -d and -N belong to the lines of the load file: give them there, for each line"
            );
        }
        for stdin in ["-", "/dev/stdin"] {
            assert_eq!(
                given(&format!("--load-file {stdin}")).expect_err("PE 0's"),
                format!(
                    "--load-file: {stdin:?} is the standard input, which PE 0 reads: name a file, or in \
                     bash --load-file <(COMMAND)"
                )
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in proptest::collection::vec(
            prop_oneof![any::<u8>(), Just(b'\n'), Just(b'\\'), Just(b'\''), Just(b'"'), Just(b' ')], 0..60))
        {
            match load(&text) {
                Ok(options) => {
                    prop_assert!(options.parts.iter().all(|part| !part.command.is_empty()));
                    prop_assert!(options.parts.iter().flat_map(|p| &p.command).all(|w| !w.contains(&0)));
                }
                Err(said) => prop_assert!(said.starts_with("jobs/f"), "{}", said),
            }
        }

        /// What a shell quotes comes back.
        #[test]
        fn quoted_words_come_back(words in proptest::collection::vec("[ -~\t]{0,9}", 1..5)) {
            let quoted: Vec<String> =
                words.iter().map(|w| format!("'{}'", w.replace('\'', "'\\''"))).collect();
            let line = format!("a {}\n", quoted.join(" "));
            let options = load(line.as_bytes()).expect("good");
            let seen: Vec<&[u8]> = options.parts[0].command.iter().skip(1).map(|w| &w[..]).collect();
            let expected: Vec<&[u8]> = words.iter().map(|w| w.as_bytes()).collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
