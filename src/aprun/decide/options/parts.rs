//! The parts of an application: a program each, with its own width.
//!
//! On the command line a lone `:` separates them; in a [load file](super::load) each has a line. Either
//! way a part is options, a command and its arguments; its PEs are numbered after those of the part
//! before, and -d and -N carry on from the first part to those that do not give them (ALPS's rule).
//!
//! ```text
//!   aprun -q -d 2 ./master : -n 15 ./worker fast
//!         \______________/   \_________________/
//!             part 1               part 2, of depth 2 too
//! ```
//!
//! What is not a part's own, as -q here, is the whole application's and stands in front of the first
//! command; elsewhere it is refused, so that nobody thinks that it holds for one part only.

use super::table::{Flag, Id};
use super::values::{self, PER_NODE_MAX, WIDTH_MAX};
use super::{Program, find, other_launchers};
use crate::apteam::launch::PARTS_MAX;
use crate::apteam::layout::Layout;
use crate::apteam::oversubscribe::Oversubscribe;
use crate::apteam::shape::Shape;

/// One program, and how its PEs are to be laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it was read, for messages: `part 2`, or a load file's name and line; empty where there is
    /// one program only.
    pub name: String,
    /// -n, -d, -N.
    pub shape: Shape,
    /// Its own options name a depth.
    pub depth_given: bool,
    /// The command and its arguments; never empty.
    pub command: Vec<Vec<u8>>,
}

/// -n, -d and -N, as far as they are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Given {
    pub width: Option<u32>,
    pub depth: Option<u32>,
    pub per_node: Option<u32>,
    /// An option from which another launcher takes how many PEs there are.
    pub counts_elsewhere: Option<&'static str>,
    /// An option by which another launcher means one program of several.
    pub of_one: Option<&'static str>,
    /// What `--map-by` says of sharing processors, until it is applied: it is not of one program only.
    pub sharing: Option<Oversubscribe>,
}

impl Given {
    /// Takes an option in, if it is one of these.
    pub fn take(&mut self, id: Id, name: &'static str, value: &[u8]) -> Option<Result<(), String>> {
        if other_launchers::counts_pes(id, name, value) {
            self.counts_elsewhere = Some(name);
        }
        if other_launchers::OF_ONE_PROGRAM.contains(&name) {
            self.of_one = Some(name);
        }
        if id == Id::MapBy {
            let asked = other_launchers::map_by(value).map_err(|error| format!("{name}: {error}"));
            return Some(asked.map(|asked| {
                self.per_node = asked.per_node.or(self.per_node);
                self.depth = asked.depth.or(self.depth);
                self.sharing = asked.sharing.or(self.sharing);
            }));
        }
        let (field, what, max) = match id {
            Id::Pes => (&mut self.width, "PEs", WIDTH_MAX),
            Id::Depth => (&mut self.depth, "processors for each PE", PER_NODE_MAX),
            Id::PerNode => (&mut self.per_node, "PEs on each node", PER_NODE_MAX),
            _ => return None,
        };
        let count = values::count(value, what, u64::from(max));
        Some(count.map_err(|error| format!("{name}: {error}")).map(|n| {
            *field = Some(u32::try_from(n).unwrap_or(max));
        }))
    }

    /// The shape, with what carries on from the first part.
    ///
    /// # Errors
    /// It would have one PE where another launcher has more.
    pub fn shape(self, first: Option<Shape>) -> Result<Shape, String> {
        let depth = self.depth.or(first.map(|f| f.depth)).unwrap_or(1);
        let per_node = self.per_node.or(first.and_then(|f| f.per_node));
        match (self.width, self.counts_elsewhere) {
            (None, Some(name)) => {
                Err(format!("{name} does not say how many PEs there are in all: give -n as well"))
            }
            (width, _) => Ok(Shape { width: width.unwrap_or(1), depth, per_node }),
        }
    }
}

/// The letters of a word such as `-qT`. Only these three stick together, as they always did: with more of them, names
/// of other launchers' options would be words of letters.
fn cluster(word: &[u8]) -> Option<&[u8]> {
    let letters = word.get(1..).filter(|letters| letters.len() > 1)?;
    letters.iter().all(|letter| b"bqT".contains(letter)).then_some(letters)
}

/// Where the options in front of a command end.
pub(super) struct Ends<'a> {
    /// From the command on; empty: there is none.
    pub rest: &'a [Vec<u8>],
    /// `--` stands before it.
    pub dashes: bool,
}

/// Reads the options in front of a command. `take` gets each with its name and value.
pub(super) fn read_options<'a, E: From<String>>(
    program: Program,
    words: &'a [Vec<u8>],
    mut take: impl FnMut(&'static Flag, &'static str, &[u8]) -> Result<(), E>,
) -> Result<Ends<'a>, E> {
    let mut rest = words;
    while let Some((word, after)) = rest.split_first() {
        if word == b"--" {
            return Ok(Ends { rest: after, dashes: true });
        }
        if word.first() != Some(&b'-') || word.len() == 1 {
            break;
        }
        rest = after;
        if let Some(letters) = cluster(word) {
            for letter in letters {
                let (flag, name, _) = find(program, &[b'-', *letter])?;
                take(flag, name, b"")?;
            }
            continue;
        }
        let (flag, name, attached) = find(program, word)?;
        let joined;
        let value = match (flag.argument, attached) {
            (None, None) => &[],
            (None, Some(more)) => {
                let more = values::shown(more);
                return Err(format!("{name} takes no value, and {more} was given").into());
            }
            (Some(_), Some(value)) => value,
            (Some(what), None) => match rest {
                // (mpiexec takes VAR=VALUE as one word there, too.)
                [variable, value, after @ ..]
                    if what.contains(' ') && !variable.contains(&b'=') =>
                {
                    rest = after;
                    joined = [&variable[..], b"=", &value[..]].concat();
                    &joined
                }
                [value, after @ ..] => {
                    rest = after;
                    value.as_slice()
                }
                [] => return Err(format!("{name} needs a value: {name} {what}").into()),
            },
        };
        take(flag, name, value)?;
    }
    Ok(Ends { rest, dashes: false })
}

/// The command that begins here, and what follows the `:` behind it, if there is one. After `--` a colon
/// is the command's own.
pub(super) fn split<'a>(ends: &Ends<'a>) -> (&'a [Vec<u8>], Option<&'a [Vec<u8>]>) {
    match ends.rest.iter().position(|word| word == b":").filter(|_| !ends.dashes) {
        Some(at) => (&ends.rest[..at], Some(&ends.rest[at + 1..])),
        None => (ends.rest, None),
    }
}

/// A part, read.
pub(super) struct Read<'a> {
    pub shape: Shape,
    depth_given: bool,
    pub command: &'a [Vec<u8>],
    /// What follows its `:`, if there is one.
    pub more: Option<&'a [Vec<u8>]>,
}

impl Read<'_> {
    /// As data.
    pub fn part(&self, name: String) -> Part {
        let Read { shape, depth_given, .. } = *self;
        Part { name, shape, depth_given, command: self.command.to_vec() }
    }
}

/// A part after those in front of which the options of the whole application may stand. `cure` says where
/// they do; `colons`: a `:` ends it.
pub(super) fn read<'a>(
    program: Program,
    words: &'a [Vec<u8>],
    first: Option<Shape>,
    colons: bool,
    cure: &str,
) -> Result<Read<'a>, String> {
    let mut given = Given::default();
    let ends = read_options(program, words, |flag, name, value| {
        let whole = || format!("{name} applies to the whole application: {cure}");
        given.take(flag.id, name, value).unwrap_or_else(|| Err(whole()))?;
        if given.sharing.is_some() { Err(whole()) } else { Ok(()) }
    })?;
    let (command, more) = if colons { split(&ends) } else { (ends.rest, None) };
    check_command(command)?;
    let depth_given = given.depth.is_some();
    Ok(Read { shape: given.shape(first)?, depth_given, command, more })
}

/// Whether there is a command.
pub(super) fn check_command(command: &[Vec<u8>]) -> Result<(), String> {
    match command.first() {
        None => Err("no command given: name the program to run after the options".to_owned()),
        Some(name) if name.is_empty() => {
            Err("the command is an empty word: name the program to run".to_owned())
        }
        Some(_) => Ok(()),
    }
}

/// Whether one more may be added.
pub(super) fn check_count(parts: &[Part]) -> Result<(), String> {
    match parts.len() {
        ..PARTS_MAX => Ok(()),
        _ => Err(format!(
            "an application has at most {PARTS_MAX} programs: give programs that are alike as one part, \
             with a larger -n"
        )),
    }
}

/// The shape of all parts together, which is what is placed. Where they agree in all but their width they share
/// nodes, as those of mpiexec do; where they differ in -N or -d each begins on nodes of its own, and the layout
/// says how many PEs are on each, and how deep. The shape has the greatest depth.
///
/// # Errors
/// They differ, and one has no -N; or they are too wide.
pub(super) fn one_shape(parts: &[Part]) -> Result<(Shape, Layout), String> {
    let mut whole = match parts.first() {
        Some(first) => first.shape,
        None => Given::default().shape(None)?,
    };
    for part in parts.iter().skip(1) {
        let named = |text: String| format!("{}: {text}", part.name);
        let Shape { width, depth, per_node } = part.shape;
        let first = parts[0].shape.depth;
        if depth != first && (per_node.is_none() || whole.per_node.is_none()) {
            return Err(named(format!(
                "-d is {depth} here and {first} in the first part: give each part -N, because parts with \
                 different -d use different nodes"
            )));
        }
        whole.depth = whole.depth.max(depth);
        if let Some(per_node) = per_node.filter(|_| whole.per_node.is_none()) {
            return Err(named(format!(
                "-N is {per_node} here, and the first part has no -N: give it there too, because parts \
                 with different -N use different nodes"
            )));
        }
        whole.width = whole.width.saturating_add(width);
        if whole.width > WIDTH_MAX {
            return Err(named(format!(
                "the application has more than {WIDTH_MAX} PEs with this part, the maximum: lower -n"
            )));
        }
    }
    let kind = |part: &Part| (part.shape.per_node, part.shape.depth);
    if parts.iter().all(|part| kind(part) == (whole.per_node, whole.depth)) {
        return Ok((whole, Layout::default()));
    }
    let one = parts.iter().all(|part| part.shape.depth == whole.depth);
    let depth = |part: &Part| if one { 0 } else { part.shape.depth };
    let rows =
        parts.iter().filter_map(|part| Some((part.shape.width, part.shape.per_node?, depth(part))));
    let layout = Layout::of_parts(rows)?;
    Ok(laid(whole, layout))
}

/// The layout, or what -N says as well.
pub(super) fn laid(shape: Shape, layout: Layout) -> (Shape, Layout) {
    match layout.per_node() {
        Some(per_node) => (Shape { per_node: Some(per_node), ..shape }, Layout::default()),
        None => (Shape { per_node: None, ..shape }, layout),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aprun::decide::options::{Environment, Options, Parsed, parse};

    fn line(line: &str) -> Result<Options, String> {
        let words: Vec<Vec<u8>> = line.split_whitespace().map(|w| w.as_bytes().to_vec()).collect();
        match parse(Program::Aprun, &words, &Environment::default())? {
            Parsed::Run(options) => Ok(*options),
            other => panic!("{line}: {other:?}"),
        }
    }

    fn golden(options: &Options) -> Vec<String> {
        let part = |part: &Part| {
            let Shape { width, depth, per_node } = part.shape;
            let words: Vec<_> = part.command.iter().map(|w| String::from_utf8_lossy(w)).collect();
            let per_node = per_node.map(|n| format!(" -N {n}")).unwrap_or_default();
            format!("{}: -n {width} -d {depth}{per_node} {}", part.name, words.join(" "))
        };
        options.parts.iter().map(part).collect()
    }

    #[test]
    fn parts_of_a_line() {
        for (text, parts, shape) in [
            (
                "./master : -n 15 ./worker",
                &["part 1: -n 1 -d 1 ./master", "part 2: -n 15 -d 1 ./worker"][..],
                Shape { width: 16, depth: 1, per_node: None },
            ),
            // -n does not carry on; -d and -N do, and may be said again.
            (
                "-q -n 2 -d 3 -N 4 a x : b -n 5 : -n3 -d3 --pes-per-node=4 c -- -q",
                &[
                    "part 1: -n 2 -d 3 -N 4 a x",
                    "part 2: -n 1 -d 3 -N 4 b -n 5",
                    "part 3: -n 3 -d 3 -N 4 c -- -q",
                ],
                Shape { width: 6, depth: 3, per_node: Some(4) },
            ),
            // After -- a colon is the command's, so that this part is the last.
            (
                "a : -n 2 -- b : c",
                &["part 1: -n 1 -d 1 a", "part 2: -n 2 -d 1 b : c"],
                Shape { width: 3, depth: 1, per_node: None },
            ),
            // Only a lone one separates; one that is an option's value does not.
            (
                "-e A=: a b: :c : d",
                &["part 1: -n 1 -d 1 a b: :c", "part 2: -n 1 -d 1 d"],
                Shape { width: 2, depth: 1, per_node: None },
            ),
        ] {
            let options = line(text).expect(text);
            assert_eq!(golden(&options), parts, "{text}");
            assert_eq!(options.posting.shape, shape, "{text}");
        }
        assert!(line("-q a : b").expect("good").quiet);
    }

    #[test]
    fn mpiruns_np_is_in_every_part() {
        let words = "-np 2 a : -np 3 b".split(' ').map(|w| w.as_bytes().to_vec());
        let words: Vec<Vec<u8>> = words.collect();
        let parsed = parse(Program::Mpirun, &words, &Environment::default());
        let Ok(Parsed::Run(options)) = parsed else { panic!("{parsed:?}") };
        assert_eq!(golden(&options), ["part 1: -n 2 -d 1 a", "part 2: -n 3 -d 1 b"]);
    }

    #[test]
    fn parts_that_differ_in_n_are_laid_out_node_by_node() {
        for (text, per_node, layout) in [
            ("-N 4 -n 5 a : -N 1 -n 2 b", None, "4 on a node, 1 on each of 3 nodes"),
            ("-N 4 -n 8 a : -N 2 -n 2 b", Some(4), ""),
            ("-N 2 a : b : -N 1 b", Some(1), ""),
            ("--nodes 3 -n 4 a : -n 3 b", None, "3 on a node, 2 on each of 2 nodes"),
            ("--nodes 4 -n 8 a", Some(2), ""),
            (
                "-N 2 -n 4 -d 2 a : -d 1 -n 2 b",
                None,
                "2 of depth 2 on each of 2 nodes, 2 of depth 1 on a node",
            ),
        ] {
            let options = line(text).expect(text);
            let found = (options.posting.shape.per_node, options.posting.layout.to_string());
            assert_eq!(found, (per_node, layout.to_owned()), "{text}");
        }
        assert_eq!(line("-N 2 a : -d 3 b : -d 2 c").expect("good").posting.shape.depth, 3);
    }

    #[test]
    fn refusals_name_the_part() {
        let none = "no command given: name the program to run after the options";
        for (text, said) in [
            (": a", format!("part 1: {none}")),
            ("-n 2 : a", format!("part 1: {none}")),
            ("a :", format!("part 2: {none}")),
            ("a : : b", format!("part 2: {none}")),
            ("a : b : -n 3", format!("part 3: {none}")),
            (
                "a : -n 0 b",
                "part 2: -n: \"0\" is too small: the number of PEs is a whole number from 1 to 1048576"
                    .to_owned(),
            ),
            ("a : -n", "part 2: -n needs a value: -n PES".to_owned()),
            ("a : -y b", "part 2: \"-y\" is not an option: aprun --help lists the options".to_owned()),
            (
                "a : -R 3 b",
                "part 2: -R (a relaunch with fewer PEs when a node fails) is not yet supported: leave it out"
                    .to_owned(),
            ),
            (
                "-d 2 a : -d 3 -N 1 b",
                "part 2: -d is 3 here and 2 in the first part: give each part -N, because parts with \
                 different -d use different nodes"
                    .to_owned(),
            ),
            (
                "a : -N 1 b",
                "part 2: -N is 1 here, and the first part has no -N: give it there too, because parts \
                 with different -N use different nodes"
                    .to_owned(),
            ),
            (
                "-n 1048576 a : b",
                "part 2: the application has more than 1048576 PEs with this part, the maximum: lower -n"
                    .to_owned(),
            ),
            // Of all PEs together.
            (
                "-cc 0,5 a : -n 3 b",
                "-cc: list 1 names processor 5, and the application has 4 processors, numbers 0 to 3, on \
                 a node at most: name one of those, or ask for more (-n, -N, -d)"
                    .to_owned(),
            ),
        ] {
            assert_eq!(line(text).expect_err(text), said, "{text}");
        }
    }

    #[test]
    fn what_is_the_whole_applications_stands_in_front() {
        for option in [
            "-m 1G",
            "-t 5",
            "-q",
            "-T",
            "-F exclusive",
            "-cc none",
            "--time-limit 5",
            "--account x",
            "--checkpoint USR1",
            "-e A=1",
            "--label",
            "--immediate",
            "--dry-run",
            "--output f",
            "--error f",
            "--pmi none",
            "-b",
            "-j 1",
            "--load-file f",
            "--help",
            "--version",
        ] {
            let name = option.split(' ').next().unwrap_or_default();
            assert_eq!(
                line(&format!("a : {option} b")).expect_err(option),
                format!(
                    "part 2: {name} applies to the whole application: give it before the first command"
                )
            );
        }
    }

    #[test]
    fn there_is_a_bound() {
        let of = |count: usize| line(&vec!["a"; count].join(" : "));
        assert_eq!(of(PARTS_MAX).expect("as many as there may be").parts.len(), PARTS_MAX);
        assert_eq!(
            of(PARTS_MAX + 1).expect_err("one more"),
            "part 257: an application has at most 256 programs: give programs that are alike as one part, \
             with a larger -n"
        );
    }
}
