//! `cpr`: checkpoints of applications, as on IRIX.
//!
//! A checkpoint is a folder; what is in it and how it is kept is told by [`crate::checkpoint`] and
//! [`crate::node::checkpoint::dir`]. To look at one (`-i`) and to remove one (`-D`) is done here,
//! as the user who asks; psched is asked only where its key is. To restart one (`-r`) is what aprun
//! does, of a posting and a program that are in there: [`restart`].
//!
//! ```text
//! $ cpr -i tonight
//! Checkpoint Whole Seal     Kind    Apid User  PEs Size Made                    Host Back-end Command
//! tonight    yes   verified running   12 alice   2 1.2G 2026-05-28 20:26:40.000 n0   criu 4.2 ./ring 1000
//! ```

mod endings;
mod info;
mod make;
mod parts;
mod restart;
mod saving;
mod wanted;

pub use restart::Restart;
pub use wanted::{After, Make};

use super::apkill::parse_apid;
use super::question::{ended, parsed};
use crate::apteam::Apid;
use crate::checkpoint::{Flaw, MANIFEST};
use crate::console::table::clean;
use crate::node::checkpoint::dir::{self, Spot};
use clap::{ArgGroup, Parser};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Checkpoints applications, and restarts them.
#[derive(Parser, Debug)]
#[command(
    name = "cpr",
    version,
    max_term_width = 80,
    override_usage = "cpr -c DIR -p APID [-f] [-g|-k]\n       cpr -i DIR... [--json]\n       \
    cpr -r DIR [--output FILE]\n       cpr -D DIR...",
    group = ArgGroup::new("what").required(true)
        .args(["checkpoint", "info", "restart", "delete"]),
    long_about = "Checkpoints applications, and restarts them.\n\n\
    cpr makes a checkpoint of an application that runs or waits (-c), restarts the application (-r), \
    describes checkpoints (-i) and removes them (-D). The exit status is 0 if all was done and is \
    well; 1 if not: each problem has a line on stderr; 2 if the command line is wrong. With -r it is \
    the application's, as aprun's, or 125 if the application was not restarted."
)]
struct Cli {
    /// Checkpoint an application into this folder, which is made
    #[arg(short = 'c', long, value_name = "DIR", requires = "apid")]
    checkpoint: Option<PathBuf>,
    /// Which application: its number, as apstat shows it
    #[arg(short = 'p', long, value_name = "APID", value_parser = parse_apid,
          requires = "checkpoint", conflicts_with_all = ["info", "restart", "delete"])]
    apid: Option<u64>,
    /// Replace an older checkpoint in DIR
    #[arg(short = 'f', long, requires = "checkpoint",
          conflicts_with_all = ["info", "restart", "delete"])]
    force: bool,
    /// The application goes on afterwards (the default, unless it saves itself and ends)
    #[arg(short = 'g', long, requires = "checkpoint",
          conflicts_with_all = ["kill", "info", "restart", "delete"])]
    go: bool,
    /// The application is ended afterwards
    #[arg(short = 'k', long, requires = "checkpoint",
          conflicts_with_all = ["info", "restart", "delete"])]
    kill: bool,
    /// Tell what is in these checkpoints, and whether they are whole
    #[arg(short = 'i', long, value_name = "DIR", num_args = 1..)]
    info: Vec<PathBuf>,
    /// Restart the application of this checkpoint, and be its aprun
    #[arg(short = 'r', long, value_name = "DIR")]
    restart: Option<PathBuf>,
    /// Where its output goes, both streams; its stdin is empty then
    #[arg(long, value_name = "FILE", requires = "restart",
          conflicts_with_all = ["checkpoint", "info", "delete"])]
    output: Option<PathBuf>,
    /// Remove these checkpoints, and what is left beside them of some that were never finished
    #[arg(short = 'D', long, value_name = "DIR", num_args = 1..)]
    delete: Vec<PathBuf>,
    /// With --info: as JSON
    #[arg(long, requires = "info", conflicts_with_all = ["checkpoint", "restart", "delete"])]
    json: bool,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
enum Task {
    Checkpoint(Make),
    Restart(Restart),
    Info { dirs: Vec<PathBuf>, json: bool },
    Delete(Vec<PathBuf>),
}

/// The words of a command line. `-i` takes all that follows it, up to the next option: so what
/// stands between it and its folders, of which there is only one thing, is brought before it.
fn in_order(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    if let Some(at) = words[..end].iter().position(|word| word == "--json") {
        let json = words.remove(at);
        words.insert(1.min(words.len()), json);
    }
    words
}

impl Cli {
    /// clap has seen to it that it is one.
    fn task(self) -> Task {
        match (self.checkpoint.zip(self.apid), self.restart) {
            (Some((dir, apid)), _) => {
                let end = self.kill.then_some(After::End);
                let after = end.or(self.go.then_some(After::GoOn));
                Task::Checkpoint(Make { dir, apid: Apid(apid), force: self.force, after })
            }
            (None, Some(dir)) => Task::Restart(Restart { dir, output: self.output }),
            (None, None) if self.delete.is_empty() => {
                Task::Info { dirs: self.info, json: self.json }
            }
            (None, None) => Task::Delete(self.delete),
        }
    }
}

/// Runs it with this command line, and gives the status to exit with.
pub fn run(words: Vec<OsString>) -> ExitCode {
    match parsed("cpr", Cli::try_parse_from(in_order(words)), 2).map(Cli::task) {
        Ok(Task::Checkpoint(options)) => make::checkpoint(options),
        Ok(Task::Restart(options)) => restart::restart(options),
        Ok(Task::Info { dirs, json }) => ended("cpr", info::info(&dirs, json)),
        Ok(Task::Delete(dirs)) => ended("cpr", delete(&dirs)),
        Err(status) => status,
    }
}

/// # Errors
/// What stood in the way, for each of them.
fn delete(dirs: &[PathBuf]) -> Result<(), Vec<String>> {
    let mut problems = Vec::new();
    for dir in dirs {
        if let Err(flaws) = delete_one(dir) {
            problems.extend(flaws.iter().map(|flaw| undeleted(dir, flaw)));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// A line about one that is still there: what cures a damaged one is of no use to a user who wants
/// it away.
fn undeleted(dir: &Path, flaw: &Flaw) -> String {
    match flaw {
        Flaw::Damaged { file, how } if file == MANIFEST => clean(&format!(
            "{}: {file} is damaged: {how}; nothing was removed, because the files of the \
             checkpoint are unknown: look into the folder, and remove it with rm -r",
            dir.display()
        )),
        _ => problem(dir, flaw),
    }
}

fn delete_one(path: &Path) -> Result<(), Vec<Flaw>> {
    let one = |flaw| vec![flaw];
    let spot = Spot::of(path).map_err(one)?;
    let leftovers = dir::leftovers(&spot).map_err(one)?;
    let mut flaws = Vec::new();
    // One that has the name of a leftover is among them.
    let is_there = !spot.is_partial() && spot.open().map_err(one)?.is_some();
    if is_there || leftovers.is_empty() {
        flaws.extend(dir::remove(&spot).err());
    }
    for leftover in &leftovers {
        flaws.extend(dir::remove_leftover(&spot, leftover).err());
    }
    if flaws.is_empty() { Ok(()) } else { Err(flaws) }
}

/// A line about a checkpoint. Names in it can be anything, and must not steer a terminal.
fn problem(dir: &Path, flaw: &Flaw) -> String {
    clean(&format!("{}: {flaw}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Task, clap::Error> {
        Cli::try_parse_from(in_order(words.split(' ').map(Into::into))).map(Cli::task)
    }

    #[test]
    fn command_lines() {
        let make =
            |force, after| Task::Checkpoint(Make { dir: "d".into(), apid: Apid(3), force, after });
        let good = [
            ("cpr -c d -p 3", make(false, None)),
            ("cpr -p 3 -g -f -c d", make(true, Some(After::GoOn))),
            ("cpr -c d -p 3 -k", make(false, Some(After::End))),
            ("cpr -r d", Task::Restart(Restart { dir: "d".into(), output: None })),
            (
                "cpr --output o -r d",
                Task::Restart(Restart { dir: "d".into(), output: Some("o".into()) }),
            ),
            ("cpr -i d e --json", Task::Info { dirs: vec!["d".into(), "e".into()], json: true }),
            ("cpr -i --json d", Task::Info { dirs: vec!["d".into()], json: true }),
            ("cpr -D d e", Task::Delete(vec!["d".into(), "e".into()])),
        ];
        for (words, task) in good {
            assert_eq!(parse(words).expect(words), task, "{words}");
        }
    }

    /// What is wrong is named.
    #[test]
    fn wrong_command_lines() {
        for (words, named) in [
            ("cpr", "--checkpoint <DIR>|--info <DIR>...|--restart <DIR>|--delete <DIR>..."),
            ("cpr d", "'d'"),
            ("cpr -c d", "--apid"),
            ("cpr -c d -p 0", "not the number of an application"),
            ("cpr -p 3", "--checkpoint"),
            ("cpr -c d -p 3 -g -k", "cannot be used with '--kill'"),
            ("cpr -c d -p 3 --json", "cannot be used"),
            ("cpr -c d -p 3 --output o", "cannot be used"),
            ("cpr -c d -p 3 -r d", "cannot be used"),
            ("cpr -i d -D d", "cannot be used"),
            ("cpr -i d -r d", "cannot be used"),
            ("cpr -i d -p 3", "cannot be used"),
            ("cpr -i d -f", "cannot be used"),
            ("cpr -D d -g", "cannot be used"),
            ("cpr -r d -k", "cannot be used"),
            ("cpr -D d --output o", "cannot be used"),
            ("cpr -D d --json", "cannot be used"),
            ("cpr -i", "a value is required"),
            ("cpr -D", "a value is required"),
        ] {
            let said = parse(words).expect_err(words).to_string();
            assert!(said.contains(named), "{words}: {said}");
        }
    }
}
