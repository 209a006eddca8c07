//! `psched simulate` and `psched torture`: psched becomes `psched-worlds`, which stands beside it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The program that does it.
const PROGRAM: &str = "psched-worlds";

/// The words of its command line.
#[derive(clap::Args, Debug)]
pub struct Words {
    /// As `psched-worlds` has them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Runs `psched-worlds NAME WORDS...` in this program's place. It comes back only where that can't be: status 1.
pub fn run(name: &str, words: Words) -> ExitCode {
    // (Under which name and by which PATH psched was called does not matter.)
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let program = beside.as_deref().unwrap_or(Path::new(PROGRAM));
    let error = Command::new(program).arg(name).args(words.words).exec();
    super::question::ended(
        &format!("psched {name}"),
        Err(vec![format!("can't run {}: {error}; install it beside psched", program.display())]),
    )
}

/// The words of `psched help simulate`, for which psched itself knows no options.
pub fn help_for(mut words: impl Iterator<Item = OsString>) -> Option<&'static str> {
    (words.next()? == "help").then_some(())?;
    let of = words.next()?;
    ["simulate", "torture"].into_iter().find(|name| of == *name)
}

impl Words {
    /// What asks for help.
    pub fn help() -> Words {
        Words { words: vec!["--help".into()] }
    }
}
