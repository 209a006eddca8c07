//! The options for strace (`--strace`): those that aprun can pass on.
//!
//! Each PE has an strace of its own, which is attached before the first instruction and writes to a file of its
//! own. So what says whom strace traces, as whom, and where it writes, is not the user's here; any other
//! option is strace's business, which names its own errors.
//!
//! ```
//! use psched_pure::aprun::decide::options::strace::parse;
//! let words = |text: &str| parse(text.as_bytes()).map(|found| found.options.len());
//! assert_eq!(words("-f -e trace=file"), Ok(3));
//! assert!(words("-fo log").unwrap_err().contains("-o"));
//! ```

use super::load::words;
use super::values::shown;
use crate::apteam::launch::Strace;

/// Bytes of all options, at most.
const BYTES_MAX: usize = 4096;
/// Letters of strace that have an argument.
const WITH_ARGUMENT: &[u8] = b"abeEIoOpPsSuUX";
/// What is not passed on, and why.
const REFUSED: [(&str, &str, &str); 8] = [
    ("o", "output", "the file of each PE is PROGRAM.APID.RANK.strace in the working directory"),
    ("p", "attach", "each PE is traced, and nothing else"),
    ("D", "daemonize", "each strace runs beside its PE"),
    ("u", "user", "PEs run as you"),
    ("E", "env", "give variables with -e of aprun"),
    ("h", "help", "see strace(1)"),
    ("V", "version", "see strace(1)"),
    ("ff", "output-separately", "each PE has one file: give -f"),
];

/// The options in one word of aprun's command line; words in it are a simple shell's.
///
/// # Errors
/// One can't be passed on, or there are too many.
pub fn parse(text: &[u8]) -> Result<Strace, String> {
    if text.len() > BYTES_MAX {
        return Err(format!(
            "the options have {} bytes, and the maximum is {BYTES_MAX}",
            text.len()
        ));
    }
    let options = words(text)?;
    let mut left = options.iter();
    while let Some(word) = left.next() {
        if word.contains(&0) {
            return Err(format!("{} holds a null byte", shown(word)));
        }
        let more = match word.strip_prefix(b"--") {
            Some(name) => long(name, word)?,
            None => short(word)?,
        };
        if more && left.next().is_none() {
            return Err(format!("{} lacks its argument", shown(word)));
        }
    }
    Ok(Strace { options })
}

/// Whether its argument is the next word.
fn long(name: &[u8], word: &[u8]) -> Result<bool, String> {
    let given = name.split(|b| *b == b'=').next().unwrap_or(name);
    if given.is_empty() {
        return Err(no_option(word));
    }
    // (As getopt_long has it: an abbreviation counts where it is long enough to be one.)
    let is = |full: &str| full.as_bytes().starts_with(given);
    match REFUSED.iter().find(|(_, full, _)| is(full) || given.starts_with(full.as_bytes())) {
        Some(refused) => Err(why(refused)),
        None => Ok(false),
    }
}

fn short(word: &[u8]) -> Result<bool, String> {
    let Some(letters) = word.strip_prefix(b"-").filter(|letters| !letters.is_empty()) else {
        return Err(no_option(word));
    };
    for (at, letter) in letters.iter().enumerate() {
        let refused = |(short, ..): &&(&str, &str, &str)| short.as_bytes() == [*letter];
        if let Some(refused) = REFUSED.iter().find(refused) {
            return Err(why(refused));
        }
        if WITH_ARGUMENT.contains(letter) {
            return Ok(at + 1 == letters.len());
        }
    }
    let forks = letters.iter().filter(|letter| **letter == b'f').count();
    match REFUSED.iter().find(|(short, ..)| *short == "ff" && forks > 1) {
        Some(refused) => Err(why(refused)),
        None => Ok(false),
    }
}

fn no_option(word: &[u8]) -> String {
    format!(
        "{} is not an option of strace: quote all options together, '-f -e trace=file'",
        shown(word)
    )
}

fn why((short, long, why): &(&str, &str, &str)) -> String {
    format!("-{short} (--{long}) is not passed to strace: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(line: &str) -> Result<Vec<String>, String> {
        let text = |word: Vec<u8>| String::from_utf8(word).expect("text");
        parse(line.as_bytes()).map(|strace| strace.options.into_iter().map(text).collect())
    }

    #[test]
    fn what_strace_knows_is_passed_on() {
        assert_eq!(said(""), Ok(vec![]));
        assert_eq!(said("-f -e trace=file"), Ok(["-f", "-e", "trace=file"].map(Into::into).into()));
        let quoted = ["-tt", "-P", "/a b", "--trace=open"].map(Into::into);
        assert_eq!(said("-tt -P '/a b' --trace=open"), Ok(quoted.into()));
        // The letter behind one that has an argument is that argument.
        for line in ["-yyTes", "-s 10 -c", "-X raw", "-eo", "-Po", "-e -o"] {
            assert!(said(line).is_ok(), "{line}: {:?}", said(line));
        }
    }

    #[test]
    fn what_aprun_decides_is_not() {
        for (line, word) in [
            ("-o log", "-o"),
            ("-folog", "-o"),
            ("-fp 1", "-p"),
            ("--attach=1", "-p"),
            ("--att 1", "-p"),
            ("--output=x", "-o"),
            ("-DDD", "-D"),
            ("--daemonize=pgroup", "-D"),
            ("-u root", "-u"),
            ("-E A=b", "-E"),
            ("-ff", "-ff"),
            ("--output-separately", "-o"),
        ] {
            let told = said(line).expect_err(line);
            assert!(told.starts_with(&format!("{word} (")), "{line}: {told}");
        }
        assert!(said("ls -l").is_err_and(|t| t.contains("\"ls\" is not an option of strace")
            || t.contains("ls is not an option of strace")));
        for line in ["-", "--", "-f ls", "-e", "-s", "'-f"] {
            assert!(said(line).is_err(), "{line}");
        }
        assert!(said(&"-f ".repeat(2000)).is_err_and(|text| text.contains("4096")));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(&text);
        }
    }
}
