//! How a program saves itself: aprun's `--checkpoint`.
//!
//! Many programs that run for long write what they need to go on, and go on from there when they are started
//! again. Of such a program nothing has to be dumped. What has to be known is how it is told to save itself:
//! by a signal, or by a command that its user gives (one that makes the file which the program looks for, say).
//! The word is a signal where it is the name or number of one, and a command for the shell otherwise:
//!
//! ```
//! # use psched_pure::apteam::saving::Saving;
//! assert_eq!(Saving::parse("usr1"), Ok(Saving::Signal(10)));
//! assert_eq!(Saving::parse("SIGTERM").unwrap().to_string(), "SIGTERM");
//! assert_eq!(Saving::parse("touch STOP"), Ok(Saving::Command("touch STOP".into())));
//! assert!(Saving::parse("KILL").unwrap_err().contains("no program can catch"));
//! ```

use super::signal::{self, KILL, STOP};
use super::struck_out::without_arguments;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest command, in bytes.
pub const COMMAND_MAX: usize = 4096;

/// How a program is told to save itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Saving {
    /// Each of its PEs gets this signal, saves itself and ends.
    Signal(i32),
    /// The shell runs this, as the user, in the application's directory.
    Command(#[serde(serialize_with = "without_arguments")] String),
}

impl Saving {
    /// One from its word.
    ///
    /// # Errors
    /// There can be no such; why, in words.
    pub fn parse(word: &str) -> Result<Saving, String> {
        match signal::parse(word) {
            Some(number) => Saving::by_signal(number),
            // A number is never meant to be a command.
            None if word.parse::<i64>().is_ok() => Err("there is no such signal".into()),
            None => Saving::by_command(word),
        }
    }

    /// By this signal.
    ///
    /// # Errors
    /// There is none, or it is never handed to a program.
    pub fn by_signal(number: i32) -> Result<Saving, String> {
        match number {
            KILL | STOP => {
                Err("no program can catch this signal: name another one, such as USR1".into())
            }
            _ if signal::is_one(number) => Ok(Saving::Signal(number)),
            _ => Err("there is no such signal".into()),
        }
    }

    /// By this command.
    ///
    /// # Errors
    /// It is empty, too long, or no text.
    pub fn by_command(command: &str) -> Result<Saving, String> {
        match command.len() {
            1..=COMMAND_MAX if !command.contains('\0') && !command.trim().is_empty() => {
                Ok(Saving::Command(command.to_owned()))
            }
            _ => Err(format!("a command is 1 to {COMMAND_MAX} bytes of text")),
        }
    }
}

/// As [`Saving::parse`] takes it.
impl fmt::Display for Saving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Saving::Signal(number) => f.write_str(&signal::shown(*number)),
            Saving::Command(command) => f.write_str(command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let command = |text: &str| Ok(Saving::Command(text.into()));
        for (word, saving) in [
            ("10", Ok(Saving::Signal(10))),
            ("64", Ok(Saving::Signal(64))),
            ("int", Ok(Saving::Signal(2))),
            ("sigusr2", Ok(Saving::Signal(12))),
            // One that is called as a signal is asked for by its path.
            ("./USR1", command("./USR1")),
            ("save 10", command("save 10")),
            ("SIG", command("SIG")),
            ("0", Err("there is no such signal".into())),
            ("65", Err("there is no such signal".into())),
            ("-1", Err("there is no such signal".into())),
            (
                "STOP",
                Err("no program can catch this signal: name another one, such as USR1".into()),
            ),
            ("9", Err("no program can catch this signal: name another one, such as USR1".into())),
            ("", Err("a command is 1 to 4096 bytes of text".into())),
            (" ", Err("a command is 1 to 4096 bytes of text".into())),
            ("a\0b", Err("a command is 1 to 4096 bytes of text".into())),
        ] {
            assert_eq!(Saving::parse(word), saving, "{word}");
        }
        let long = "x".repeat(COMMAND_MAX);
        assert_eq!(Saving::parse(&long), command(&long));
        assert!(Saving::parse(&(long + "x")).is_err());
    }

    #[test]
    fn what_is_shown_can_be_said() {
        for number in (1..=64).filter(|n| ![KILL, STOP].contains(n)) {
            let saving = Saving::Signal(number);
            assert_eq!(Saving::parse(&saving.to_string()), Ok(saving));
        }
    }
}
