//! aprun's command line: arguments in, [`Options`] or a message out.
//!
//! The spelling is ALPS's: names of one dash may have more than one letter (`-cc`), a value may
//! stick to its name (`-n8`), letters without values may stick together (`-qT`), and options end
//! at the command, so that the command's own are left alone. `mpirun` is the same program, which
//! also knows `-np`.
//!
//! What psched's relatives have and psched has not yet is refused by name ([`table::NOT_YET`]):
//! an option that is silently ignored costs somebody a day of a machine.
//!
//! ```
//! use psched::front::options::{Environment, Parsed, Program, parse};
//! let words = |line: &str| line.split(' ').map(|w| w.as_bytes().to_vec()).collect::<Vec<_>>();
//! let none = Environment::default();
//! let Ok(Parsed::Run(options)) = parse(Program::Aprun, &words("-n8 -N 2 ./a.out -n 3"), &none)
//! else {
//!     panic!("a good line");
//! };
//! assert_eq!((options.shape.width, options.shape.per_node), (8, Some(2)));
//! assert_eq!(options.command.len(), 3);
//! let refused = parse(Program::Aprun, &words("-L 1-5 ./a.out"), &none).unwrap_err();
//! assert_eq!(refused, "-L is not yet supported: a list of candidate nodes");
//! ```

pub mod table;
pub mod values;

use super::output::Template;
use crate::apteam::binding::Binding;
use crate::apteam::posting::{Account, Shape};
use std::time::Duration;
use table::{FLAGS, Flag, Id, NOT_YET};
use values::{PER_NODE_MAX, SECONDS_MAX, WIDTH_MAX, shown};

/// Under which name it was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// aprun.
    Aprun,
    /// mpirun, which has -np too.
    Mpirun,
}

impl Program {
    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Program::Aprun => "aprun",
            Program::Mpirun => "mpirun",
        }
    }
}

/// The variables that aprun reads, as they are set.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Environment {
    /// APRUN_XFER_LIMITS: 1: all soft limits travel, else only those of core and CPU.
    pub transfer_limits: Option<Vec<u8>>,
    /// APRUN_DEFAULT_MEMORY: as -m.
    pub default_memory: Option<Vec<u8>>,
    /// APRUN_SYNC_TTY: as -T.
    pub sync_tty: Option<Vec<u8>>,
    /// APRUN_LABEL: as --label.
    pub label: Option<Vec<u8>>,
    /// BATCH_PARTITION_ID: a reservation, which psched does not have yet.
    pub reservation: Option<Vec<u8>>,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// -n, -d, -N.
    pub shape: Shape,
    /// -m, in bytes for each PE.
    pub memory_per_pe: Option<u64>,
    /// -cc.
    pub binding: Binding,
    /// -t.
    pub cpu_limit: Option<Duration>,
    /// --time-limit.
    pub time_limit: Option<Duration>,
    /// -e: NAME=VALUE, in the order given.
    pub environment: Vec<Vec<u8>>,
    /// -q.
    pub quiet: bool,
    /// -T.
    pub whole_lines: bool,
    /// --label.
    pub label: bool,
    /// --report.
    pub report: bool,
    /// --immediate.
    pub immediate: bool,
    /// -F exclusive.
    pub exclusive: bool,
    /// --account.
    pub account: Option<Account>,
    /// --dry-run.
    pub dry_run: bool,
    /// --output.
    pub output: Option<Template>,
    /// --error.
    pub error: Option<Template>,
    /// Serve PMI-1 (not --pmi=none).
    pub pmi: bool,
    /// All soft limits travel (APRUN_XFER_LIMITS).
    pub all_limits: bool,
    /// The command and its arguments; never empty.
    pub command: Vec<Vec<u8>>,
}

/// A command line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Run this.
    Run(Box<Options>),
    /// Print this and exit.
    Help(String),
    /// Print the version and exit.
    Version,
}

/// Reads a command line, without the program's own name. The error is the message, without the
/// program's name in front.
pub fn parse(
    program: Program,
    arguments: &[Vec<u8>],
    environment: &Environment,
) -> Result<Parsed, String> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    let mut after_dashes = false;
    let command = loop {
        let Some(word) = rest.next() else { break None };
        if word == b"--" {
            after_dashes = true;
            break rest.next();
        }
        if word.first() != Some(&b'-') || word.len() == 1 {
            break Some(word);
        }
        let mut word = word.as_slice();
        // Letters that stick together are read one after the other.
        let mut letters;
        loop {
            let (flag, name, attached) = find(program, word)?;
            let value = match (flag.argument, attached) {
                (None, None) => None,
                (None, Some(more)) if name.starts_with("--") => {
                    return Err(format!("{name} takes no value, and {} was given", shown(more)));
                }
                (None, Some(more)) => {
                    apply(&mut options, flag.id, name, b"")?;
                    letters = [b"-", more].concat();
                    word = &letters;
                    continue;
                }
                (Some(_), Some(value)) => Some(value),
                (Some(what), None) => match rest.next() {
                    Some(value) => Some(value.as_slice()),
                    None => return Err(format!("{name} needs a value: {name} {what}")),
                },
            };
            match flag.id {
                Id::Help => {
                    let mpirun = program == Program::Mpirun;
                    return Ok(Parsed::Help(table::help(program.name(), mpirun)));
                }
                Id::Version => return Ok(Parsed::Version),
                id => apply(&mut options, id, name, value.unwrap_or_default())?,
            }
            break;
        }
    };
    apply_environment(&mut options, environment)?;
    options.binding.fits_shape(&options.shape)?;
    let Some(command) = command else {
        return Err("no command given: name the program to run after the options".to_owned());
    };
    if command.is_empty() {
        return Err("the command is an empty word: name the program to run".to_owned());
    }
    options.command = std::iter::once(command).chain(rest).cloned().collect();
    // After -- a colon is the command's own.
    if !after_dashes && options.command.iter().any(|word| word == b":") {
        return Err(
            "several programs in one application (:) are not yet supported; where : is an \
             argument of the command, put -- before the command"
                .to_owned(),
        );
    }
    Ok(Parsed::Run(Box::new(options)))
}

impl Default for Options {
    /// What holds where nothing is said; the command is empty.
    fn default() -> Options {
        Options {
            shape: Shape { width: 1, depth: 1, per_node: None },
            memory_per_pe: None,
            binding: Binding::Cpu,
            cpu_limit: None,
            time_limit: None,
            environment: Vec::new(),
            quiet: false,
            whole_lines: false,
            label: false,
            report: false,
            immediate: false,
            exclusive: false,
            account: None,
            dry_run: false,
            output: None,
            error: None,
            pmi: true,
            all_limits: false,
            command: Vec::new(),
        }
    }
}

/// The option that a word names, the name, and the value that sticks to it.
fn find(
    program: Program,
    word: &[u8],
) -> Result<(&'static Flag, &'static str, Option<&[u8]>), String> {
    let mpirun = program == Program::Mpirun;
    let known = FLAGS.iter().flat_map(|f| f.names_in(mpirun).map(move |name| (name, Some(f))));
    let later = NOT_YET.iter().map(|(name, _)| (*name, None));
    let all = known.chain(later);
    let unknown = || {
        let name = word.split(|b| *b == b'=').next().unwrap_or(word);
        format!("{} is not an option: {} --help lists them", shown(name), program.name())
    };
    if word == b"-np" && !mpirun {
        return Err("-np is mpirun's: say -n".to_owned());
    }
    let (name, flag, attached) = if word.starts_with(b"--") {
        let mut parts = word.splitn(2, |b| *b == b'=');
        let given = parts.next().unwrap_or(word);
        let found = all.into_iter().find(|(name, _)| name.as_bytes() == given);
        let (name, flag) = found.ok_or_else(unknown)?;
        (name, flag, parts.next())
    } else {
        // The longest name that the word begins with: -cc is no -c.
        let found = all
            .filter(|(name, _)| !name.starts_with("--") && word.starts_with(name.as_bytes()))
            .max_by_key(|(name, _)| name.len());
        let (name, flag) = found.ok_or_else(unknown)?;
        (name, flag, Some(&word[name.len()..]).filter(|v| !v.is_empty()))
    };
    match flag {
        Some(flag) => Ok((flag, name, attached)),
        None => {
            let what = NOT_YET.iter().find(|(n, _)| *n == name).map_or("", |(_, what)| what);
            Err(format!("{name} is not yet supported: {what}"))
        }
    }
}

fn apply(options: &mut Options, id: Id, name: &str, value: &[u8]) -> Result<(), String> {
    let named = |error: String| format!("{name}: {error}");
    let count = |what: &str, max: u32| -> Result<u32, String> {
        let n = values::count(value, what, u64::from(max)).map_err(named)?;
        Ok(u32::try_from(n).unwrap_or(max))
    };
    match id {
        Id::Pes => options.shape.width = count("PEs", WIDTH_MAX)?,
        Id::Depth => options.shape.depth = count("processors for each PE", PER_NODE_MAX)?,
        Id::PerNode => options.shape.per_node = Some(count("PEs on each node", PER_NODE_MAX)?),
        Id::Memory => options.memory_per_pe = Some(values::size(value).map_err(named)?),
        Id::Binding => options.binding = values::binding(value).map_err(named)?,
        Id::Siblings if value == b"1" => {}
        Id::Siblings => {
            return Err(named(format!(
                "{} is not what psched does: a processor is a core, of which PEs are bound to one SMT \
                 sibling, and the others go to nobody; say 1, or leave it out",
                shown(value)
            )));
        }
        Id::CpuTime => {
            let seconds = values::count(value, "seconds of CPU time", SECONDS_MAX);
            options.cpu_limit = Some(Duration::from_secs(seconds.map_err(named)?));
        }
        Id::TimeLimit => options.time_limit = Some(values::duration(value).map_err(named)?),
        Id::NoTransfer => {}
        Id::Environment => match value.iter().position(|b| *b == b'=') {
            Some(1..) => options.environment.push(value.to_vec()),
            _ => {
                return Err(named(format!("{} is not of the form VAR=VALUE", shown(value))));
            }
        },
        Id::Quiet => options.quiet = true,
        Id::WholeLines => options.whole_lines = true,
        Id::Label => options.label = true,
        Id::Report => options.report = true,
        Id::Immediate => options.immediate = true,
        Id::Access => {
            options.exclusive = match value {
                b"exclusive" | b"e" => true,
                b"share" | b"s" => false,
                _ => return Err(named(format!("{} is neither exclusive nor share", shown(value)))),
            }
        }
        Id::Account => {
            let parsed = std::str::from_utf8(value).map_err(|_| ()).map(Account::parse);
            let parsed = parsed.unwrap_or_else(|()| Account::parse(""));
            let wrong = |problem| named(format!("{} is none: {problem}", shown(value)));
            options.account = Some(parsed.map_err(wrong)?);
        }
        Id::DryRun => options.dry_run = true,
        Id::Output => options.output = Some(Template::parse(value).map_err(named)?),
        Id::Error => options.error = Some(Template::parse(value).map_err(named)?),
        Id::Pmi => {
            options.pmi = match value {
                b"none" => false,
                b"pmi1" => true,
                _ => return Err(named(format!("{} is neither pmi1 nor none", shown(value)))),
            }
        }
        // They end the reading of the line.
        Id::Help | Id::Version => {}
    }
    Ok(())
}

fn apply_environment(options: &mut Options, environment: &Environment) -> Result<(), String> {
    let on = |value: &Option<Vec<u8>>| value.as_ref().is_some_and(|v| !v.is_empty() && v != b"0");
    options.whole_lines |= on(&environment.sync_tty);
    options.label |= on(&environment.label);
    options.all_limits = environment.transfer_limits.as_deref() == Some(b"1");
    if let (None, Some(text)) = (options.memory_per_pe, &environment.default_memory)
        && !text.is_empty()
    {
        let bytes = values::size(text).map_err(|e| format!("APRUN_DEFAULT_MEMORY: {e}"))?;
        options.memory_per_pe = Some(bytes);
    }
    if on(&environment.reservation) {
        return Err("BATCH_PARTITION_ID is set, and reservations are not yet supported: unset it"
            .to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
