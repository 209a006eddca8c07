//! The messages of all commands and daemons, collected from the source: each is plain technical English.
//!
//! `PSCHED_MESSAGES=FILE cargo test --test it messages` writes the list: path, line and text of each.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Words that make a reader look for the noun, and better ones.
const RULES: [(&str, &str); 16] = [
    ("whoever", "name the user or the process"),
    ("nobody", "no user, no process, no application"),
    ("somebody", "a user, another process, another application"),
    ("who has", "name the user or the process"),
    ("who have", "name the users or the processes"),
    ("as many as may", "say which maximum is reached"),
    ("as may be", "say which maximum is reached"),
    ("as one user may", "the maximum of one user"),
    ("that of which", "name the thing"),
    ("is none of", "is not a ... of"),
    ("as it seems", "leave it out"),
    ("by now", "now"),
    ("not here any more", "is no longer here, or has ended"),
    ("what is not understood", "a message that can't be decoded"),
    ("hung up on", "its connection is closed"),
    ("sent what", "name what was sent"),
];

/// Parts of the source whose texts no user reads; and the variables, whose descriptions the manual has.
const LEFT_OUT: [&str; 4] = ["src/torture", "src/simulate", "src/worlds", "src/variables/table.rs"];
/// Files and folders of tests.
const OF_TESTS: [&str; 7] =
    ["tests", "golden", "random", "tests.rs", "golden.rs", "oracle.rs", "world.rs"];

/// A string literal that reads as a message.
struct Message {
    at: PathBuf,
    line: usize,
    text: String,
}

#[test]
fn messages_are_plain_technical_english() {
    let messages = messages();
    assert!(messages.len() > 1_000, "{} messages found", messages.len());
    if let Some(file) = std::env::var_os("PSCHED_MESSAGES") {
        let mut list = String::new();
        for Message { at, line, text } in &messages {
            let _ = writeln!(list, "{}:{line}: {text}", at.display());
        }
        std::fs::write(file, list).expect("the list is written");
    }
    let mut wrong = String::new();
    for Message { at, line, text } in &messages {
        for (words, better) in RULES.iter().filter(|(words, _)| has(text, words)) {
            let _ = writeln!(wrong, "{}:{line}: {text:?}: {words:?}: {better}", at.display());
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Whether these words are in a text, as whole words.
fn has(text: &str, words: &str) -> bool {
    let text = text.to_lowercase();
    let is_part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let whole = |(at, _): (usize, &str)| {
        !is_part(text[..at].chars().next_back())
            && !is_part(text[at + words.len()..].chars().next())
    };
    text.match_indices(words).any(whole)
}

/// All of them, in order of their files.
fn messages() -> Vec<Message> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("src")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let shown = path.strip_prefix(root).expect("below it");
            let name = path.file_name().unwrap_or_default();
            if LEFT_OUT.iter().any(|part| shown.starts_with(part))
                || OF_TESTS.iter().any(|of| name == *of)
            {
                continue;
            }
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|e| e == "rs") => files.push(path),
                false => {}
            }
        }
    }
    files.sort();
    let mut found = Vec::new();
    for path in files {
        let source = std::fs::read_to_string(&path).expect("read");
        let at = path.strip_prefix(root).expect("below it");
        let literals =
            literals(without_tests(&source)).into_iter().filter(|(_, text)| is_message(text));
        found.extend(literals.map(|(line, text)| Message { at: at.to_owned(), line, text }));
    }
    found
}

/// The source before its unit tests, which are at the end of a file.
fn without_tests(source: &str) -> &str {
    const TEST: &str = "#[cfg(test)]\n";
    let is_module = |at: usize| {
        let line = source[at + TEST.len()..].lines().next().unwrap_or_default();
        line.contains("mod ") && line.ends_with('{')
    };
    let end = source.match_indices(TEST).map(|(at, _)| at).find(|at| is_module(*at));
    &source[..end.unwrap_or(source.len())]
}

/// Three words or more, that are neither SQL nor PMI.
fn is_message(text: &str) -> bool {
    const OTHER: [&str; 10] = [
        "SELECT", "INSERT", "DELETE", "UPDATE", "CREATE", "PRAGMA", "ALTER", "VACUUM", "DROP",
        "cmd=",
    ];
    let mut words = text.split_whitespace();
    !words.next().is_some_and(|first| OTHER.iter().any(|other| first.starts_with(other)))
        && words.count() >= 2
}

/// String literals of Rust source, each with its line, without comments.
fn literals(source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut rest = source;
    let line_of = |rest: &str| source[..source.len() - rest.len()].matches('\n').count() + 1;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let before = &rest[..at];
        let here = &rest[at..];
        rest = if here.starts_with("//") {
            here.split_once('\n').map_or("", |(_, next)| next)
        } else if let Some(text) = here.strip_prefix('"') {
            let hashes = before.len() - before.trim_end_matches('#').len();
            let is_raw = before[..before.len() - hashes].ends_with('r');
            let end =
                if is_raw { text.find(&format!("\"{}", "#".repeat(hashes))) } else { quoted(text) };
            let end = end.unwrap_or(text.len());
            let joined = if is_raw { text[..end].to_owned() } else { join(&text[..end]) };
            found.push((line_of(here), joined));
            text.get(end + 1..).unwrap_or_default()
        } else if here.starts_with('\'') {
            // A character, or a lifetime.
            let character = match here.strip_prefix("'\\") {
                Some(escaped) => escaped.get(1..).and_then(|e| e.find('\'')).map(|n| n + 4),
                None => {
                    let mut letters = here.char_indices().skip(2);
                    letters.next().filter(|(_, c)| *c == '\'').map(|(n, _)| n + 1)
                }
            };
            &here[character.unwrap_or(1)..]
        } else {
            &here[1..]
        };
    }
    found
}

/// Where a literal ends.
fn quoted(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })
}

/// Without the line breaks that a literal is written with.
fn join(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |joined, line| joined + line.trim_start())
}

#[test]
fn literals_are_found() {
    let source = "let a = \"one two\\\" \\\n   three\"; // \"no\"\nlet b = ('\"', '\\'', 'x'); f::<'a>(r#\"x \"y\" z\"#)";
    let found = literals(source);
    assert_eq!(found, [(1, "one two\\\" three".to_owned()), (3, "x \"y\" z".to_owned())]);
    assert!(has("Nobody waits", "nobody") && !has("by nowhere", "by now"));
}
