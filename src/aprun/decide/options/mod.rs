//! aprun's command line: arguments in, [`Options`] or a message out.
//!
//! The spelling is ALPS's: names of one dash may have more than one letter (`-cc`), a value that does not
//! begin with a letter may stick to its name (`-n8`), the letters `-b`, `-q` and `-T` may stick together
//! (`-qT`), and options end at the command, so that the command's own are left alone. No other word of one
//! dash is cut into letters: `-hostfile` begins with the letter of `-h`, and asks for no help. `mpirun` and `mpiexec` are the same program. Options
//! of mpiexec and srun are taken where they mean the same ([`other_launchers`]). An application may have several programs, its [`parts`], on the command line or in
//! a [load file](load).
//!
//! What psched's relatives have and psched has not yet is refused by name ([`table::NOT_YET`]):
//! an option that is silently ignored costs somebody a day of a machine.
//!
//! ```
//! use psched_pure::aprun::decide::options::{Environment, Parsed, Program, parse};
//! let words = |line: &str| line.split(' ').map(|w| w.as_bytes().to_vec()).collect::<Vec<_>>();
//! let none = Environment::default();
//! let Ok(Parsed::Run(options)) = parse(Program::Aprun, &words("-n8 -N 2 ./a.out -n 3"), &none)
//! else {
//!     panic!("a good line");
//! };
//! assert_eq!((options.posting.shape.width, options.posting.shape.per_node), (8, Some(2)));
//! assert_eq!(options.parts[0].command.len(), 3);
//! let Ok(Parsed::Run(options)) = parse(Program::Aprun, &words("./one : -n 15 ./other"), &none) else {
//!     panic!("a good line");
//! };
//! assert_eq!((options.posting.shape.width, options.parts.len()), (16, 2));
//! let refused = parse(Program::Aprun, &words("-L 1-x ./a.out"), &none).unwrap_err();
//! assert_eq!(refused, "-L: \"x\" is not a node number or a range such as 0-3");
//! ```

pub mod load;
pub mod other_launchers;
pub mod parts;
pub mod strace;
pub mod table;
pub mod values;

use super::closing::{Detail, Form};
use super::output::Template;
use crate::aprun::decide::wireup::Wireup;
use crate::apteam::binding::Binding;
use crate::apteam::choice::Choice;
use crate::apteam::launch::Strace;
use crate::apteam::layout::Layout;
use crate::apteam::oversubscribe::Oversubscribe;
use crate::apteam::posting::{Account, Posting};
use crate::apteam::saving::Saving;
use crate::apteam::shape::Shape;
use crate::machine::{Nid, names_hosts, with_numbers};
use load::Loading;
use other_launchers::TAKEN;
use parts::{Ends, Given, Part, read_options};
use std::time::Duration;
use table::{FLAGS, Flag, Id, NOT_YET};
use values::{SECONDS_MAX, shown};

/// Under which name it was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// aprun.
    Aprun,
    /// mpirun.
    Mpirun,
    /// mpiexec.
    Mpiexec,
}

impl Program {
    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Program::Aprun => "aprun",
            Program::Mpirun => "mpirun",
            Program::Mpiexec => "mpiexec",
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
    /// MPIEXEC_TIMEOUT: as --time-limit, as for mpiexec and mpirun.
    pub timeout: Option<Vec<u8>>,
    /// BATCH_PARTITION_ID: a reservation, which psched does not have yet.
    pub reservation: Option<Vec<u8>>,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What psched is asked: its number, its command and its executable are not known here, and its choice of nodes
    /// only once [`Options::listed`] was told what the file of -l says.
    pub posting: Posting,
    /// -cc.
    pub binding: Binding,
    /// -e: NAME=VALUE, in the order given.
    pub environment: Vec<Vec<u8>>,
    /// -x without a value: the names of variables that have to be set.
    pub exported: Vec<Vec<u8>>,
    /// The PEs get variables of other launchers (not --env=none).
    pub launcher_variables: bool,
    /// -q.
    pub quiet: bool,
    /// -v, or --closing: a closing line about resources also of what ended well.
    pub verbose: bool,
    /// -T.
    pub whole_lines: bool,
    /// --label.
    pub label: bool,
    /// --closing.
    pub closing: Form,
    /// --report.
    pub report: bool,
    /// --chdir.
    pub chdir: Option<Vec<u8>>,
    /// --strace.
    pub strace: Option<Strace>,
    /// -g.
    pub stacks: bool,
    /// -b: hosts get no copies of programs.
    pub bypass: bool,
    /// --wait-for-psched.
    pub wait_for_psched: Option<Duration>,
    /// --restart-from.
    pub restart_from: Option<Vec<u8>>,
    /// --inside.
    pub inside: bool,
    /// --nodes.
    pub nodes: Option<u32>,
    /// -l, or a host file, as long as it is not read.
    pub node_file: Option<NodeFile>,
    /// The lists of -L or -l, and of -E, that name hosts, as long as the nodes of these are not known: each with
    /// what a message about it begins with.
    pub host_lists: [Option<(String, String)>; 2],
    /// --dry-run.
    pub dry_run: bool,
    /// --output.
    pub output: Option<Template>,
    /// --error.
    pub error: Option<Template>,
    /// --pmi.
    pub pmi: Wireup,
    /// All soft limits travel (APRUN_XFER_LIMITS).
    pub all_limits: bool,
    /// The programs, in the order of their ranks; never empty.
    pub parts: Vec<Part>,
}

/// A file with a list of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFile {
    /// The option, as it was given.
    pub option: &'static str,
    /// The file's name.
    pub path: Vec<u8>,
    /// It has a host on each line, as other launchers read it.
    pub of_hosts: bool,
}

/// A command line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Run this.
    Run(Box<Options>),
    /// Read the load file, and run what it says.
    Load(Box<Loading>),
    /// Print this and exit.
    Help(String),
    /// Print the version and exit.
    Version,
}

/// Why reading ends before the command.
enum Stop {
    Parsed(Parsed),
    Wrong(String),
}

impl From<String> for Stop {
    fn from(text: String) -> Stop {
        Stop::Wrong(text)
    }
}

/// Reads a command line, without the program's own name. The error is the message, without the
/// program's name in front.
pub fn parse(
    program: Program,
    arguments: &[Vec<u8>],
    environment: &Environment,
) -> Result<Parsed, String> {
    let mut options = Options::default();
    let (mut given, mut file) = (Given::default(), None);
    let read = read_options(program, arguments, |flag, name, value| match flag.id {
        Id::Help => Err(Stop::Parsed(Parsed::Help(table::help(program.name())))),
        // ALPS's -v prints the version, and other launchers' asks for more words about an application.
        Id::Verbose if name == "-v" && arguments.len() == 1 => Err(Stop::Parsed(Parsed::Version)),
        Id::Version if arguments.len() > 1 => Err(Stop::Wrong(format!(
            "{name} prints the version and runs nothing: give it alone, or leave it out"
        ))),
        Id::Version => Err(Stop::Parsed(Parsed::Version)),
        Id::LoadFile if load::is_stdin(value) => Err(Stop::Wrong(format!(
            "{name}: {} is the standard input, which PE 0 reads: name a file, or in bash \
             {name} <(COMMAND)",
            shown(value)
        ))),
        Id::LoadFile => {
            file = Some(value.to_vec());
            Ok(())
        }
        id => {
            given.take(id, name, value).unwrap_or_else(|| apply(&mut options, id, name, value))?;
            if let Some(sharing) = given.sharing.take() {
                options.posting.oversubscribe = sharing;
            }
            Ok(())
        }
    });
    let ends = match read {
        Ok(ends) => ends,
        Err(Stop::Parsed(parsed)) => return Ok(parsed),
        Err(Stop::Wrong(text)) => return Err(text),
    };
    // (A variable that sets -m for all applications is no fault of this one.)
    options.may_be_inside()?;
    apply_environment(&mut options, environment)?;
    let Some(path) = file else {
        if let (Some(NodeFile { option: "-l", path, .. }), []) = (&options.node_file, ends.rest) {
            return Err(format!(
                "no command given: -l takes {} for a file with a list of nodes; for srun's -l give --label",
                shown(path)
            ));
        }
        options.take_parts(all_parts(program, given, &ends)?)?;
        return Ok(Parsed::Run(Box::new(options)));
    };
    if (Given { counts_elsewhere: None, of_one: None, ..given }) != Given::default() {
        return Err(
            "-n, -d and -N belong to the lines of the load file: give them there, for each line"
                .to_owned(),
        );
    }
    if let Some(command) = ends.rest.first() {
        return Err(format!(
            "{} is a command, but --load-file names the programs: give the command a line of that file, \
             or leave out --load-file",
            shown(command)
        ));
    }
    Ok(Parsed::Load(Box::new(Loading { path, program, options })))
}

/// The parts of a command line, of whose first the options have been read.
fn all_parts(program: Program, given: Given, ends: &Ends<'_>) -> Result<Vec<Part>, String> {
    let (command, mut more) = parts::split(ends);
    let several = |text| if more.is_some() { format!("part 1: {text}") } else { text };
    if let Some(name) = given.of_one.filter(|_| more.is_some()) {
        return Err(several(other_launchers::of_one_program(name)));
    }
    let shape = given.shape(None).map_err(several)?;
    parts::check_command(command).map_err(several)?;
    let name = if more.is_some() { "part 1" } else { "" };
    let depth_given = given.depth.is_some();
    let first = Part { name: name.to_owned(), shape, depth_given, command: command.to_vec() };
    let mut all = vec![first];
    while let Some(words) = more {
        let name = format!("part {}", all.len() + 1);
        let named = |text| format!("{name}: {text}");
        parts::check_count(&all).map_err(named)?;
        let cure = "give it before the first command";
        let read = parts::read(program, words, Some(shape), true, cure).map_err(named)?;
        all.push(read.part(name));
        more = read.more;
    }
    Ok(all)
}

impl Options {
    /// What the file of -l, or a host file, says.
    ///
    /// # Errors
    /// What is wrong with it, with its name.
    pub fn listed(&mut self, file: &str, of_hosts: bool, text: &[u8]) -> Result<(), String> {
        let named = |error: String| format!("{file}: {error}");
        if text.len() > NODE_FILE_MAX {
            return Err(named(format!(
                "the list is longer than {NODE_FILE_MAX} bytes, the maximum: write ranges, such as 0-99"
            )));
        }
        let mut text = String::from_utf8_lossy(text);
        if of_hosts {
            text = other_launchers::hosts_of_file(&text).map_err(named)?.into();
        }
        if names_hosts(&text) {
            self.host_lists[0] = Some((file.to_owned(), text.into_owned()));
            return Ok(());
        }
        let choice = std::mem::take(&mut self.posting.choice);
        self.posting.choice = choice.only(&text).map_err(named)?;
        Ok(())
    }

    /// Whether lists name hosts whose nodes are not known yet.
    pub fn names_hosts(&self) -> bool {
        self.host_lists.iter().any(Option::is_some)
    }

    /// What the nodes of this machine are, each with its host. `own` is the name of this host, which is called localhost,
    /// too.
    ///
    /// # Errors
    /// A list names a host that is not there, or is wrong otherwise.
    pub fn with_hosts(&mut self, nodes: &[(Nid, String)], own: &str) -> Result<(), String> {
        let [only, not] = std::mem::take(&mut self.host_lists);
        let mut choice = std::mem::take(&mut self.posting.choice);
        let steps = [(only, Choice::only as fn(Choice, &str) -> _), (not, Choice::not)];
        for (given, step) in steps {
            let Some((named, list)) = given else { continue };
            let list = with_numbers(&list, nodes, Some(own)).map_err(|error| error.to_string());
            let next = list.and_then(|list| step(choice, &list));
            choice = next.map_err(|error| format!("{named}: {error}"))?;
        }
        self.posting.choice = choice;
        Ok(())
    }

    /// Whether each PE is to have one thread: -d says that it has one processor, or it may share some, to which it is not
    /// bound. (What the first program is given holds for all that say nothing else.)
    pub fn one_thread_each(&self) -> bool {
        let given = self.parts.first().is_some_and(|part| part.depth_given);
        let given = given || self.posting.oversubscribe != Oversubscribe::No;
        given && self.posting.shape.depth == 1 && self.launcher_variables
    }

    /// How much the closing lines tell.
    pub fn detail(&self) -> Detail {
        match (self.quiet, self.verbose) {
            (true, _) => Detail::Little,
            (false, true) => Detail::All,
            (false, false) => Detail::Usual,
        }
    }

    /// The programs, and what has to be so of all of them together.
    fn take_parts(&mut self, parts: Vec<Part>) -> Result<(), String> {
        (self.posting.shape, self.posting.layout) = parts::one_shape(&parts)?;
        self.parts = parts;
        if self.stacks && self.strace.is_some() {
            return Err("-g and --strace exclude each other: a process has one tracer".to_owned());
        }
        if self.restart_from.is_some() {
            self.may_be_restarted()?;
        }
        if let Some(nodes) = self.nodes {
            if self.posting.shape.per_node.is_some() || !self.posting.layout.is_empty() {
                return Err("--nodes and -N exclude each other: give one of them".to_owned());
            }
            let even = Layout::even(self.posting.shape.width, nodes);
            let even =
                even.map_err(|error| format!("--nodes: {error}; lower it, or give a larger -n"));
            (self.posting.shape, self.posting.layout) = parts::laid(self.posting.shape, even?);
        }
        let shares = self.posting.oversubscribe != Oversubscribe::No;
        if shares {
            self.may_share()?;
        }
        if self.inside && (self.posting.shape.per_node.is_some() || !self.posting.layout.is_empty())
        {
            return Err(not_inside("-N, and a -d that differs among parts"));
        }
        let most = (!self.posting.layout.is_empty()).then(|| self.posting.layout.most());
        let widest = Shape { per_node: self.posting.shape.per_node.or(most), ..self.posting.shape };
        match shares || self.inside {
            // (How many processors it gets on a node is not known before it is placed.)
            true => Ok(()),
            false => self.binding.fits_shape(&widest),
        }
    }

    /// Whether all options are of some use with `--inside`: nothing is placed then.
    fn may_be_inside(&self) -> Result<(), String> {
        if !self.inside {
            return Ok(());
        }
        let chosen =
            !self.posting.choice.is_any() || self.node_file.is_some() || self.nodes.is_some();
        let chosen = chosen || self.names_hosts();
        let given = [
            (self.posting.memory_per_pe.is_some(), "-m"),
            (self.posting.time_limit.is_some(), "--time-limit"),
            (self.posting.account.is_some(), "--account"),
            (self.posting.saving.is_some(), "--checkpoint"),
            (self.restart_from.is_some(), "--restart-from"),
            (self.posting.exclusive, "-F exclusive"),
            (chosen, "-L, -l, -E and --nodes"),
            (self.posting.flexible, "--flexible"),
            // (Its files would have the names of this PE's own.)
            (self.strace.is_some(), "--strace"),
            (self.stacks, "-g"),
        ];
        match given.iter().find(|(given, _)| *given) {
            Some((_, names)) => Err(not_inside(names)),
            None => Ok(()),
        }
    }

    /// Whether there can be a checkpoint of the application while it runs and goes on: only such a one is
    /// there when a host is lost.
    fn may_be_restarted(&self) -> Result<(), String> {
        match &self.posting.saving {
            Some(Saving::Command(_)) => Ok(()),
            Some(saving @ Saving::Signal(_)) => Err(format!(
                "--restart-from needs a checkpoint of an application that goes on, and one that saves itself \
                 on {saving} ends: give --checkpoint a command instead of the signal, or leave out \
                 --restart-from"
            )),
            None => {
                let tracers = [(self.strace.is_some(), "--strace"), (self.stacks, "-g")];
                tracers.iter().find(|(given, _)| *given).map_or(Ok(()), |(_, name)| {
                    Err(format!(
                        "--restart-from needs a checkpoint of the application, and with {name} none can be \
                         made while it runs: leave out one of them, or let the program save itself \
                         (--checkpoint COMMAND)"
                    ))
                })
            }
        }
    }

    /// Whether PEs can share processors in this shape.
    fn may_share(&self) -> Result<(), String> {
        if self.posting.shape.depth > 1 || !self.posting.layout.one_depth() {
            return Err(format!(
                "--oversubscribe lets PEs share processors, and -d {} gives each PE several: leave out one of \
                 them",
                self.posting.shape.depth
            ));
        }
        if !self.posting.layout.is_empty() {
            return Err(
                "--oversubscribe needs the same -N for all parts, or none: change -N, or leave out --nodes"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

impl Default for Options {
    /// What holds where nothing is said; without a program.
    fn default() -> Options {
        let shape = Shape { width: 1, depth: 1, per_node: None };
        Options {
            posting: Posting::plain([0; 16], shape),
            binding: Binding::Usual,
            environment: Vec::new(),
            exported: Vec::new(),
            launcher_variables: true,
            quiet: false,
            verbose: false,
            whole_lines: false,
            label: false,
            closing: Form::Plain,
            report: false,
            chdir: None,
            strace: None,
            stacks: false,
            bypass: false,
            wait_for_psched: None,
            restart_from: None,
            inside: false,
            nodes: None,
            node_file: None,
            host_lists: [None, None],
            dry_run: false,
            output: None,
            error: None,
            pmi: Wireup::default(),
            all_limits: false,
            parts: Vec::new(),
        }
    }
}

/// The refusal of an option that has no meaning with `--inside`.
fn not_inside(names: &str) -> String {
    format!(
        "--inside runs the PEs in the application of this process, on its nodes and within its limits: \
         leave out {names}"
    )
}

/// The longest file of -l, in bytes.
pub const NODE_FILE_MAX: usize = 1024 * 1024;

/// The name in a word: all before its `=`.
fn name_of(word: &[u8]) -> &[u8] {
    word.split(|b| *b == b'=').next().unwrap_or(word)
}

/// The refusal of a word that is no option: with the option that was probably meant.
fn unknown(program: Program, word: &[u8]) -> String {
    let name = name_of(word);
    let text = String::from_utf8_lossy(name);
    let own = FLAGS.iter().flat_map(|flag| flag.names).copied();
    let cure = match (nearest(&text, own), value_apart(word)) {
        (Some(near), _) => format!("did you mean {near}?"),
        (None, Some(apart)) => format!("if it has a value, write {apart}"),
        (None, None) => format!("{} --help lists the options", program.name()),
    };
    format!("{} is not an option: {cure}", shown(name))
}

/// How a word is written that begins with an option whose value is a text: `-F e` for `-Fe`.
fn value_apart(word: &[u8]) -> Option<String> {
    // (Of -l it can be any word: -localhost is none.)
    let texts = [Id::Access, Id::Binding, Id::NodeList, Id::ExcludeList];
    let flags = FLAGS.iter().filter(|flag| texts.contains(&flag.id));
    let begins = flags.flat_map(|flag| flag.names).find_map(|name| {
        let rest = word.strip_prefix(name.as_bytes()).filter(|_| !name.starts_with("--"))?;
        Some((name, rest))
    });
    begins.map(|(name, rest)| format!("{name} {}", shown(rest).trim_matches('"')))
}

/// The option of two dashes that alone begins with this word, with one dash or two, or else that
/// looks most like it, if any does.
fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Of Jaro's measure, from 0 (nothing in common) to 1 (the same).
    const LIKE: f64 = 0.85;
    let word = word.trim_start_matches('-');
    let bare = |name: &'a str| Some((name, name.strip_prefix("--")?));
    let long: Vec<(&str, &str)> = names.filter_map(bare).collect();
    let likeness = |bare: &str| strsim::jaro_winkler(word, bare);
    let begins = |(_, bare): &(&str, &str)| word.len() > 2 && bare.starts_with(word);
    let mut begun = long.iter().filter(|named| begins(named));
    if let (Some((name, _)), None) = (begun.next(), begun.next()) {
        return Some(name);
    }
    let (name, bare) =
        long.into_iter().max_by(|(_, a), (_, b)| likeness(a).total_cmp(&likeness(b)))?;
    (word.len() > 1 && likeness(bare) >= LIKE).then_some(name)
}

/// The option that a word names, the name, and the value that sticks to it. A word of one dash is the name of an
/// option, or a letter with a value that no name of an option goes on with; it is never cut into letters.
fn find(
    program: Program,
    word: &[u8],
) -> Result<(&'static Flag, &'static str, Option<&[u8]>), String> {
    let flags = FLAGS.iter().chain(TAKEN);
    let known = flags.flat_map(|f| f.names.iter().map(move |name| (*name, Some(f))));
    let later = NOT_YET.iter().map(|(name, _)| (*name, None));
    let all: Vec<(&'static str, Option<&'static Flag>)> = known.chain(later).collect();
    let foreign = |shown: &str, name: &str| {
        let advice = other_launchers::advice(name)?;
        Some(format!("{shown} is not an option of {}: {advice}", program.name()))
    };
    let (given, value) = name_and_value(word);
    let whole = all.iter().find(|(name, _)| name.as_bytes() == given);
    let (name, flag, attached) = match whole {
        Some((name, flag)) => (*name, *flag, value),
        None => {
            let text = String::from_utf8_lossy(given);
            if let Some(refusal) = foreign(&text, &text) {
                return Err(refusal);
            }
            // The longest name that the word begins with: -cc0 is no -c.
            let stuck = all.iter().filter(|(name, flag)| sticks(name, *flag, word));
            match stuck.max_by_key(|(name, _)| name.len()) {
                Some((name, flag)) => (*name, *flag, word.get(name.len()..)),
                None => {
                    let letter = word.get(..2).filter(|_| is_value(word.get(2..)));
                    let letter = letter.and_then(|letter| std::str::from_utf8(letter).ok());
                    let refusal = letter.and_then(|letter| foreign(&text, letter));
                    return Err(refusal.unwrap_or_else(|| unknown(program, word)));
                }
            }
        }
    };
    match flag {
        Some(flag) => Ok((flag, name, attached)),
        None => {
            let what = NOT_YET.iter().find(|(n, _)| *n == name).map_or("", |(_, what)| what);
            Err(format!("{name} ({what}) is not yet supported: leave it out"))
        }
    }
}

/// The name in a word, and the value behind its equals sign. What follows a letter is its value, with the sign.
fn name_and_value(word: &[u8]) -> (&[u8], Option<&[u8]>) {
    match word.iter().position(|b| *b == b'=') {
        Some(at @ 3..) => (&word[..at], Some(&word[at + 1..])),
        _ => (word, None),
    }
}

/// Whether this word is the name of one dash with its value behind it.
fn sticks(name: &str, flag: Option<&Flag>, word: &[u8]) -> bool {
    /// Of -np and -cc, to which values stick; names of more letters are words.
    const LENGTH_MAX: usize = 3;
    let sticky = !name.starts_with("--") && name.len() <= LENGTH_MAX;
    let rest = word.strip_prefix(name.as_bytes()).filter(|_| sticky);
    match flag {
        None => is_value(rest),
        Some(Flag { argument: None, .. }) => false,
        Some(Flag { id: Id::Environment, .. }) => {
            // Names of options are of small letters: -env is one, -eA=1 is none.
            let variable = rest.and_then(|rest| rest.split(|b| *b == b'=').next());
            let is_name = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_';
            variable.is_some_and(|name| !name.is_empty() && name.iter().all(is_name))
                && rest.is_some_and(|rest| rest.contains(&b'='))
        }
        Some(_) => is_value(rest),
    }
}

/// Whether the rest of a word is a value: no name of an option has anything but a letter there.
fn is_value(rest: Option<&[u8]>) -> bool {
    rest.and_then(<[u8]>::first).is_some_and(|first| !first.is_ascii_alphabetic())
}

fn apply(options: &mut Options, id: Id, name: &'static str, value: &[u8]) -> Result<(), String> {
    let named = |error: String| format!("{name}: {error}");
    match id {
        Id::Memory if other_launchers::is_distribution(value) => {
            return Err(named(format!(
                "{} is no amount of memory; as srun's -m it has no counterpart: ranks fill one node after the \
                 other; give the PEs on each node with -N, or spread them with --nodes",
                shown(value)
            )));
        }
        Id::Memory => options.posting.memory_per_pe = Some(values::size(value).map_err(named)?),
        Id::Binding => options.binding = values::binding(value).map_err(named)?,
        Id::Siblings if value == b"1" => {}
        Id::Siblings => {
            return Err(named(format!(
                "{} is not supported: psched binds PEs to one SMT sibling of each core and leaves the others idle; give 1, or leave the option out",
                shown(value)
            )));
        }
        Id::CpuTime => {
            let seconds = values::count(value, "seconds of CPU time", SECONDS_MAX);
            let seconds = seconds.map_err(|text| match value.contains(&b':') {
                true => {
                    format!("{text}; for the time that the application may take give --time-limit")
                }
                false => text,
            });
            options.posting.cpu_limit = Some(Duration::from_secs(seconds.map_err(named)?));
        }
        Id::TimeLimit => options.posting.time_limit = Some(values::duration(value).map_err(named)?),
        Id::Export if !value.is_empty() && !value.contains(&b'=') => {
            options.exported.push(value.to_vec());
        }
        Id::NoEffect => {}
        Id::Parameter => match value.iter().position(|b| *b == b'=') {
            Some(1..) => match other_launchers::of_launcher(value) {
                Some(why) => return Err(named(format!("{}: {why}", shown(value)))),
                None => options.environment.push([b"OMPI_MCA_", value].concat()),
            },
            _ => return Err(named(format!("{} is not of the form NAME VALUE", shown(value)))),
        },
        Id::BindTo => options.binding = other_launchers::bind_to(value).map_err(named)?,
        Id::Environment | Id::Export => match value.iter().position(|b| *b == b'=') {
            Some(1..) => options.environment.push(value.to_vec()),
            _ => {
                return Err(named(format!("{} is not of the form VAR=VALUE", shown(value))));
            }
        },
        Id::LauncherVariables => {
            options.launcher_variables = match value {
                b"launcher" => true,
                b"none" => false,
                _ => {
                    return Err(named(format!(
                        "{} is neither launcher nor none; -e VAR=VALUE sets a variable",
                        shown(value)
                    )));
                }
            }
        }
        Id::Quiet => options.quiet = true,
        Id::Verbose => (options.quiet, options.verbose) = (false, true),
        Id::WholeLines => options.whole_lines = true,
        Id::Label => options.label = true,
        Id::Closing => {
            options.verbose = true;
            options.closing = match value {
                b"plain" => Form::Plain,
                b"alps" => Form::Alps,
                _ => return Err(named(format!("{} is neither plain nor alps", shown(value)))),
            }
        }
        Id::Report => options.report = true,
        Id::Stacks => options.stacks = true,
        Id::NoTransfer => options.bypass = true,
        Id::Strace => options.strace = Some(strace::parse(value).map_err(named)?),
        Id::Immediate => options.posting.immediate = true,
        Id::WaitForPsched if value == b"0" => options.wait_for_psched = Some(Duration::ZERO),
        Id::WaitForPsched => {
            options.wait_for_psched = Some(values::duration(value).map_err(named)?);
        }
        Id::Access => {
            options.posting.exclusive = match value {
                b"exclusive" | b"e" => true,
                b"share" | b"s" => false,
                _ => return Err(named(format!("{} is neither exclusive nor share", shown(value)))),
            }
        }
        Id::Chdir if value.is_empty() => {
            return Err(named("the name of the directory is empty; . is this one".to_owned()));
        }
        Id::Chdir => options.chdir = Some(value.to_vec()),
        Id::Account => {
            let parsed = std::str::from_utf8(value).map_err(|_| ()).map(Account::parse);
            let parsed = parsed.unwrap_or_else(|()| Account::parse(""));
            let wrong = |problem| named(format!("{} is not an account: {problem}", shown(value)));
            options.posting.account = Some(parsed.map_err(wrong)?);
        }
        Id::Checkpoint => {
            let no_text = |_| named(format!("{} is not a text in UTF-8", shown(value)));
            let text = std::str::from_utf8(value).map_err(no_text)?;
            let wrong = |problem| named(format!("{}: {problem}", shown(value)));
            options.posting.saving = Some(Saving::parse(text).map_err(wrong)?);
        }
        Id::RestartFrom if value.is_empty() => {
            return Err(named("the name of the folder is empty".to_owned()));
        }
        Id::RestartFrom => options.restart_from = Some(value.to_vec()),
        Id::NodeList | Id::NodeListFile | Id::Hosts | Id::HostFile
            if options.node_file.is_some()
                || options.posting.choice.names_some()
                || options.host_lists[0].is_some() =>
        {
            return Err(named("the list of nodes is given twice: give -L or -l, once".into()));
        }
        Id::NodeList | Id::Hosts => {
            let mut text = String::from_utf8_lossy(value);
            if id == Id::Hosts {
                text = other_launchers::hosts(&text).map_err(named)?.into();
            }
            if names_hosts(&text) {
                options.host_lists[0] = Some((name.to_owned(), text.into_owned()));
                return Ok(());
            }
            let choice = std::mem::take(&mut options.posting.choice);
            options.posting.choice = choice.only(&text).map_err(named)?;
        }
        Id::Nodes => {
            let count = values::count(value, "nodes", u64::from(values::WIDTH_MAX));
            options.nodes = u32::try_from(count.map_err(named)?).ok();
        }
        Id::Flexible => options.posting.flexible = true,
        Id::Oversubscribe => options.posting.oversubscribe = Oversubscribe::Allowed,
        Id::NoOversubscribe => options.posting.oversubscribe = Oversubscribe::No,
        Id::Inside => options.inside = true,
        Id::NodeListFile | Id::HostFile => {
            let (path, of_hosts) = (value.to_vec(), id == Id::HostFile);
            options.node_file = Some(NodeFile { option: name, path, of_hosts });
        }
        Id::ExcludeList => {
            let text = String::from_utf8_lossy(value);
            options.host_lists[1] = None;
            if names_hosts(&text) {
                options.host_lists[1] = Some((name.to_owned(), text.into_owned()));
                return Ok(());
            }
            let choice = std::mem::take(&mut options.posting.choice);
            options.posting.choice = choice.not(&text).map_err(named)?;
        }
        Id::DryRun => options.dry_run = true,
        Id::Output if other_launchers::is_form_of_output(value) => {
            let text = "is a form of output of Open MPI's mpirun, not a file: give --label for ranks in front of lines \
                        (or ./NAME for a file of that name)";
            return Err(named(format!("{} {text}", shown(value))));
        }
        Id::Output => options.output = Some(Template::parse(value).map_err(named)?),
        Id::Error => options.error = Some(Template::parse(value).map_err(named)?),
        Id::Pmi => {
            options.pmi = match value {
                b"none" => Wireup::None,
                b"pmi1" => Wireup::Pmi1,
                b"port" => Wireup::Port,
                b"pmix" => Wireup::Pmix,
                b"all" => Wireup::All,
                _ => {
                    let text =
                        format!("{} is unknown: give pmi1, port, pmix, all or none", shown(value));
                    return Err(named(text));
                }
            }
        }
        // They end the reading of the line, or belong to a part, or name where the parts are.
        Id::Help | Id::Version | Id::Pes | Id::Depth | Id::PerNode | Id::MapBy | Id::LoadFile => {}
    }
    Ok(())
}

fn apply_environment(options: &mut Options, environment: &Environment) -> Result<(), String> {
    let on = |value: &Option<Vec<u8>>| value.as_ref().is_some_and(|v| !v.is_empty() && v != b"0");
    options.whole_lines |= on(&environment.sync_tty);
    options.label |= on(&environment.label);
    options.all_limits = environment.transfer_limits.as_deref() == Some(b"1");
    if let (None, Some(text)) = (options.posting.memory_per_pe, &environment.default_memory)
        && !text.is_empty()
    {
        let bytes = values::size(text).map_err(|e| format!("APRUN_DEFAULT_MEMORY: {e}"))?;
        options.posting.memory_per_pe = Some(bytes);
    }
    // (0, or less: none.)
    let none = |text: &[u8]| matches!(text, [] | [b'-', ..]) || text.iter().all(|b| *b == b'0');
    if let (None, Some(text)) = (options.posting.time_limit, &environment.timeout)
        && !none(text)
    {
        let limit = values::duration(text).map_err(|e| format!("MPIEXEC_TIMEOUT: {e}"))?;
        options.posting.time_limit = Some(limit);
    }
    if on(&environment.reservation) {
        return Err("BATCH_PARTITION_ID is set, and reservations are not yet supported: unset it"
            .to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
