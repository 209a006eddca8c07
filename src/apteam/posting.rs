//! What aprun asks for.

use super::choice::Choice;
use super::layout::Layout;
use super::oversubscribe::Oversubscribe;
use super::place::PlacementList;
use super::saving::Saving;
use super::shape::Shape;
use super::struck_out::without_arguments;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Whose it is, as the kernel said when the posting came.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// The name, or the number where it has none.
    pub name: String,
    /// Its front end has a controlling terminal.
    pub terminal: bool,
}

/// The account under which an application runs (`--account`): 1 to 64 letters and digits of ASCII, dots,
/// underscores and hyphens. psched keeps it and shows it.
///
/// ```
/// # use psched_pure::apteam::posting::Account;
/// assert_eq!(Account::parse("climate-2.b").unwrap().as_str(), "climate-2.b");
/// assert!(Account::parse("two words").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Account(String);

impl Account {
    /// The longest, in bytes.
    pub const LENGTH_MAX: usize = 64;

    /// One from its name.
    ///
    /// # Errors
    /// It is none; what would be one, in words.
    pub fn parse(name: &str) -> Result<Account, String> {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        match name.len() {
            1..=Account::LENGTH_MAX if name.bytes().all(fits) => Ok(Account(name.to_owned())),
            _ => Err(format!(
                "an account is 1 to {} letters (of ASCII), digits, dots, underscores and hyphens",
                Account::LENGTH_MAX
            )),
        }
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Which MPI an executable is linked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Mpi {
    /// None that is known.
    #[default]
    None,
    /// libmpich.so.12 and its relatives: PMI-1.
    Mpich,
    /// libmpi.so.40.
    OpenMpi,
}

/// What aprun read of the executable.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Executable {
    /// Its path.
    pub path: String,
    /// e_machine of its ELF header; 0 for a script.
    pub machine: u16,
    /// The program interpreter, of an ELF file or of a script; empty: none.
    pub interpreter: String,
    /// Begins with #!.
    pub script: bool,
    /// Which MPI it is linked with.
    pub mpi: Mpi,
}

/// The longest command that is kept and shown, in bytes. (What is executed goes with the launch, whole.)
pub const COMMAND_MAX: usize = 1024;
/// The longest path that is kept of an executable or its interpreter, in bytes: the kernel's PATH_MAX.
pub const PATH_MAX: usize = 4096;
/// What stands at the end of a text that has been cut.
const CUT: &str = "...";

/// Cuts a text for display to at most so many bytes, at a character's end, and marks it with `...`.
///
/// ```
/// # use psched_pure::apteam::posting::cut;
/// assert_eq!(cut("short".into(), 8), "short");
/// assert_eq!(cut("äääää".into(), 8), "ää...");
/// ```
pub fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub(CUT.len())));
        text.push_str(CUT);
        text.shrink_to_fit();
    }
    text
}

/// A request for placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posting {
    /// Random, from the front end: the same posting sent twice is one application.
    pub request_id: [u8; 16],
    /// How many processors, and in what layout.
    pub shape: Shape,
    /// `-m`: bytes for each PE.
    pub memory_per_pe: Option<u64>,
    /// For display: the command as typed, [`COMMAND_MAX`] bytes at most.
    #[serde(serialize_with = "without_arguments")]
    pub command: String,
    /// `-t`: CPU time of each PE.
    pub cpu_limit: Option<Duration>,
    /// `--time-limit`: time run.
    pub time_limit: Option<Duration>,
    /// No room now: refuse instead of waiting.
    pub immediate: bool,
    /// Its front end knows that it waits again after a launch that failed by a node's fault.
    #[serde(default)]
    pub tries_again: bool,
    /// A restart from images: the front end can bring the images to another host. (A front end of an older release
    /// can't.)
    #[serde(default)]
    pub brings_images: bool,
    /// `-F exclusive`: nobody else is to sit on its nodes.
    pub exclusive: bool,
    /// `--account`.
    pub account: Option<Account>,
    /// `-L`, `-l`, `-E`.
    pub choice: Choice,
    /// `--flexible`: its nodes need not be contiguous.
    pub flexible: bool,
    /// PEs of each node, where no count per node says them: `--nodes`, or parts that differ in `-N`. The
    /// shape has none then.
    pub layout: Layout,
    /// `--oversubscribe`: whether its PEs share processors.
    pub oversubscribe: Oversubscribe,
    /// `--checkpoint`: how it saves itself.
    pub saving: Option<Saving>,
    /// What is to be run.
    pub executable: Executable,
}

impl Posting {
    /// Whether it is placed by its shape alone, on any nodes: what the index of occupancy and a decision
    /// know.
    pub fn is_plain(&self) -> bool {
        self.choice.is_any() && self.layout.is_empty()
    }

    /// The shape that is placed: its own, or of PEs that share processors that of these.
    pub fn placed_shape(&self) -> Shape {
        match self.oversubscribe {
            Oversubscribe::Shares(sharing) => sharing.shape(),
            Oversubscribe::No | Oversubscribe::Allowed => self.shape,
        }
    }

    /// Bytes that each PE of the shape that is placed counts with, if `-m` was given.
    pub fn placed_memory(&self) -> Option<u64> {
        let pes = match self.oversubscribe {
            Oversubscribe::Shares(sharing) => sharing.most(&self.shape),
            Oversubscribe::No | Oversubscribe::Allowed => 1,
        };
        self.memory_per_pe.map(|bytes| bytes.saturating_mul(pes.into()))
    }

    /// Its PEs on what placement has given it.
    pub fn spread(&self, given: PlacementList) -> PlacementList {
        match self.oversubscribe {
            Oversubscribe::Shares(sharing) => sharing.spread(&self.shape, &given),
            Oversubscribe::No | Oversubscribe::Allowed => given,
        }
    }

    /// Bytes that the records of its application take, about: with its lines in the log of events.
    pub fn kept_bytes(&self) -> u64 {
        // Numbers, owner, place, end; the usual lines of its log.
        const EACH: usize = 1024;
        // The command is in the record, in its column and in the line of its posting.
        let texts = 3 * self.command.len()
            + self.executable.path.len()
            + self.executable.interpreter.len()
            + self.saving.as_ref().map_or(0, |saving| saving.to_string().len());
        let lists = 12 * self.choice.ranges() + 18 * self.layout.rows().len();
        (EACH + texts + lists) as u64
    }

    /// One that asks for nothing but this.
    pub fn plain(request_id: [u8; 16], shape: Shape) -> Posting {
        Posting {
            request_id,
            shape,
            memory_per_pe: None,
            command: String::new(),
            cpu_limit: None,
            time_limit: None,
            immediate: false,
            tries_again: false,
            brings_images: false,
            exclusive: false,
            account: None,
            choice: Choice::default(),
            flexible: false,
            layout: Layout::default(),
            oversubscribe: Oversubscribe::No,
            saving: None,
            executable: Executable::default(),
        }
    }
}

/// Words that explain a refusal or a wait; the same ones everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Explanation {
    /// What stood in the way.
    pub obstacle: String,
    /// Who holds it; empty: nobody.
    pub holder: String,
    /// What would make it fit.
    pub cure: String,
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [&self.obstacle, &self.holder, &self.cure];
        let said: Vec<&str> =
            parts.into_iter().map(String::as_str).filter(|p| !p.is_empty()).collect();
        f.write_str(&said.join("; "))
    }
}
