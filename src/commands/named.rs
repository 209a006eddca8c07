//! The commands that are one program, `psched-commands`: which of them it is, its first argument's file name says.
//!
//! The programs of their names (`src/os/launcher.rs`) execute it so; a link of such a name to it does as well.

use crate::console::stdout::write_out;
use crate::os::name;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// The program.
const PROGRAM: &str = "psched-commands";

type Run = fn(Vec<OsString>) -> ExitCode;

/// Each command, and what runs it with its command line.
const COMMANDS: [(&str, Run); 6] = [
    ("apkill", super::apkill::run),
    ("apstat", super::apstat::run),
    ("cpr", super::cpr::run),
    ("psmgr", super::psmgr::run),
    ("psview", super::psview::run),
    ("snflv", super::snflv::run),
];

/// Runs the command that the command line names, and gives the status to exit with.
pub fn run(mut words: Vec<OsString>) -> ExitCode {
    let called = words.first().and_then(|word| Path::new(word).file_name()).unwrap_or_default();
    let (name, run) = match (command(called), words.get(1)) {
        (Some(command), _) => command,
        (None, Some(option)) if option == "--version" || option == "-V" => {
            let text = format!("{PROGRAM} {}\n", env!("CARGO_PKG_VERSION"));
            return super::question::ended(PROGRAM, write_out(&text).map_err(|text| vec![text]));
        }
        (None, Some(first)) if command(first).is_some() => {
            words.remove(0);
            return self::run(words);
        }
        (None, _) => return unknown(called),
    };
    // As it was before this program took the command's place: for ps, and for who looks for front ends.
    name::set(name);
    run(words)
}

fn command(called: &OsStr) -> Option<(&'static str, Run)> {
    COMMANDS.into_iter().find(|(name, _)| called == *name)
}

/// A program of another release may have called it by a name that this one does not know.
fn unknown(called: &OsStr) -> ExitCode {
    let names = COMMANDS.map(|(name, _)| name).join(", ");
    let is = match called == PROGRAM {
        true => format!("no command is named: type one of {names}, or {PROGRAM} NAME ARGUMENTS"),
        false => format!(
            "called as {}, which is not one of {names}: install all programs of one release in one folder",
            called.display()
        ),
    };
    let _ = super::question::ended(PROGRAM, Err(vec![is]));
    ExitCode::from(127)
}
