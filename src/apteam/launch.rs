//! What is to be executed: everything of the caller's that a PE is given.
//!
//! An application may be made of several programs (`aprun ./master : -n 15 ./worker`), its *parts*. Their
//! PEs are numbered in the order of the parts, so that a part is known by the rank of its first PE, and
//! each host finds for itself what its PEs run:
//!
//! ```
//! use psched_pure::apteam::launch::{Launch, Part};
//! let worker = Part { first: 1, executable: b"./worker".to_vec(), ..Part::default() };
//! let launch = Launch { executable: b"./master".to_vec(), more: vec![worker], ..Launch::default() };
//! let run_by = |rank| launch.program(launch.part_of(rank)).executable;
//! assert_eq!((run_by(0), run_by(1), run_by(15)), (&b"./master"[..], &b"./worker"[..], &b"./worker"[..]));
//! assert!(launch.fits(16).is_ok() && launch.fits(1).is_err());
//! ```

use super::binding::Binding;
use super::launcher_variables::Rendezvous;
use super::protocol::peers::PmiEntry;
use std::time::Duration;

/// A file as it was when aprun opened it: one that has changed since is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FileIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Time of last change, in nanoseconds since the epoch.
    pub mtime_ns: i64,
    /// SHA-256 of its bytes, where some PEs run on other hosts: each of these may have a copy of its own, or the
    /// same file under another device number. None: also an older aprun, and a large file of a launch with copies.
    pub digest: Option<[u8; 32]>,
}

impl FileIdentity {
    /// Whether both are of one file of one host, unchanged.
    ///
    /// ```
    /// # use psched_pure::apteam::launch::FileIdentity;
    /// let posted = FileIdentity { inode: 7, size: 3, digest: Some([1; 32]), ..FileIdentity::default() };
    /// assert!(posted.is_same_file(&FileIdentity { digest: None, ..posted }));
    /// assert!(!posted.is_same_file(&FileIdentity { inode: 8, ..posted }));
    /// ```
    pub fn is_same_file(&self, other: &FileIdentity) -> bool {
        FileIdentity { digest: None, ..*self } == FileIdentity { digest: None, ..*other }
    }
}

/// The most programs of an application: aprun holds the file of each of them open, and as a rule a process
/// may have 1024 files.
pub const PARTS_MAX: usize = 256;

/// The most bytes of a launch with several programs: they have to fit in one message of 8 MiB, with room
/// for what an apinit adds for its apshepherd. (What the kernel lets one execve have is less.)
pub const LAUNCH_MAX: usize = 7 * 1024 * 1024;

/// A program after the first one, which the PEs from a rank on run, up to the next part or the last PE.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Part {
    /// The rank of its first PE; at least 1.
    pub first: u32,
    /// Path of the executable, absolute or relative to the launch's directory.
    pub executable: Vec<u8>,
    /// Arguments from argv[0] on.
    pub arguments: Vec<Vec<u8>>,
    /// What the executable was when it was posted.
    pub identity: Option<FileIdentity>,
}

/// What the PEs of one part execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program<'a> {
    /// Path of the executable, absolute or relative to the launch's directory.
    pub executable: &'a [u8],
    /// Arguments from argv[0] on.
    pub arguments: &'a [Vec<u8>],
    /// What the executable was when it was posted.
    pub identity: Option<FileIdentity>,
}

/// A soft limit of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// RLIMIT_ number as Linux has it.
    pub resource: u32,
    /// The soft limit; `u64::MAX` is none.
    pub soft: u64,
}

/// Options for strace, under which each PE runs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Strace {
    /// Words.
    pub options: Vec<Vec<u8>>,
}

/// Whether PMIx is served to PEs. It takes a library that a host need not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ServePmix {
    /// It is not.
    #[default]
    No,
    /// Where the host has the library.
    Offered,
    /// A host without the library refuses the launch.
    Needed,
}

/// The launch, as the front end sends it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Launch {
    /// Path of the executable, absolute or relative to `directory`.
    pub executable: Vec<u8>,
    /// Arguments from argv[0] on.
    pub arguments: Vec<Vec<u8>>,
    /// NAME=VALUE.
    pub environment: Vec<Vec<u8>>,
    /// Working directory.
    pub directory: Vec<u8>,
    /// File mode creation mask.
    pub umask: u32,
    /// Soft limits.
    pub limits: Vec<Limit>,
    /// Binding to processors. What an apinit gives to its shepherd has none or [`Binding::Cpu`]: each
    /// [`LocalPe`] has its set, and an older shepherd need not know of more.
    pub binding: Binding,
    /// Serve PMI-1.
    pub pmi: bool,
    /// By a port of each host, and not by a descriptor. An older shepherd does not know of it, and gives a descriptor.
    pub pmi_port: bool,
    /// Serve PMIx. An older apinit does not know of it, and serves none.
    pub pmix: ServePmix,
    /// Send output up in whole lines (-T).
    pub whole_lines: bool,
    /// Send up how each PE has ended (`aprun --report`). An older shepherd does not know of it, and sends
    /// none.
    pub report: bool,
    /// Each PE runs under strace, which writes a file for each.
    pub strace: Option<Strace>,
    /// A PE that dies by a signal leaves a file with the stacks of its threads (`aprun -g`). Not together with
    /// `strace`.
    pub stacks: bool,
    /// A host that has not an executable gets a copy of it ([`super::protocol::programs`]). An older shepherd does not
    /// know of it.
    pub copies: bool,
    /// A folder that all hosts are to have, in which a host without a copy finds each executable as PART/NAME; empty:
    /// none. An older shepherd does not know of it.
    pub instead: Vec<u8>,
    /// PEs may share processors (`--oversubscribe`), and so may what they spawn. An older shepherd does not know of it.
    pub shares: bool,
    /// Where PEs can meet, if they get the variables of other launchers ([`super::launcher_variables`]); None: they get
    /// none of these. An older aprun does not know of it.
    pub rendezvous: Option<Rendezvous>,
    /// What the executable was when it was posted.
    pub identity: Option<FileIdentity>,
    /// The programs after the first, which is the one above: each begins at a higher rank than the one
    /// before it. At most [`PARTS_MAX`] in all.
    pub more: Vec<Part>,
}

/// Whether such an item (NAME=VALUE) is the variable of this name.
pub fn is_variable(item: &[u8], name: &[u8]) -> bool {
    item.strip_prefix(name).is_some_and(|rest| rest.starts_with(b"="))
}

/// Whether such a list has a variable of this name.
pub fn sets(environment: &[Vec<u8>], name: &[u8]) -> bool {
    environment.iter().any(|item| is_variable(item, name))
}

impl Launch {
    /// Whether its environment has a variable of this name.
    pub fn sets(&self, name: &[u8]) -> bool {
        sets(&self.environment, name)
    }

    /// How many programs there are, at least 1.
    pub fn parts(&self) -> usize {
        1 + self.more.len()
    }

    /// Which part a PE belongs to: its index, from 0. It is what MPI calls the PE's appnum.
    pub fn part_of(&self, rank: u32) -> usize {
        self.more.partition_point(|part| part.first <= rank)
    }

    /// What the PEs of a part execute; of one that is not there, the first one's.
    pub fn program(&self, part: usize) -> Program<'_> {
        match part.checked_sub(1).and_then(|index| self.more.get(index)) {
            Some(Part { executable, arguments, identity, .. }) => {
                Program { executable, arguments, identity: *identity }
            }
            None => {
                let Launch { executable, arguments, identity, .. } = self;
                Program { executable, arguments, identity: *identity }
            }
        }
    }

    /// Whatever its executables were, what is there will be executed.
    pub fn forget_identities(&mut self) {
        let more = self.more.iter_mut().map(|part| &mut part.identity);
        more.chain([&mut self.identity]).for_each(|identity| *identity = None);
    }

    /// Has the PEs of a part execute this copy of their program. The name by which the program was called stays its
    /// first argument.
    pub fn execute_copy(&mut self, part: usize, path: Vec<u8>, identity: FileIdentity) {
        let (executable, arguments, posted) = match part.checked_sub(1) {
            None => (&mut self.executable, &mut self.arguments, &mut self.identity),
            Some(more) => match self.more.get_mut(more) {
                Some(part) => (&mut part.executable, &mut part.arguments, &mut part.identity),
                None => return,
            },
        };
        let called = std::mem::replace(executable, path);
        if arguments.is_empty() {
            arguments.push(called);
        }
        *posted = Some(identity);
    }

    /// What the executable of a part was when it was posted, to be changed.
    pub fn identity_mut(&mut self, part: usize) -> Option<&mut Option<FileIdentity>> {
        match part.checked_sub(1) {
            None => Some(&mut self.identity),
            Some(more) => self.more.get_mut(more).map(|part| &mut part.identity),
        }
    }

    /// Whether each part has at least one of so many PEs.
    ///
    /// # Errors
    /// One has none; in words.
    pub fn fits(&self, width: u32) -> Result<(), String> {
        let mut least = 1;
        for (part, Part { first, .. }) in (2..).zip(&self.more) {
            if *first < least || *first >= width {
                return Err(format!(
                    "part {part} of the programs would begin with PE {first}, and the \
                     application has {width}: the launch does not match its posting"
                ));
            }
            least = first.saturating_add(1);
        }
        Ok(())
    }

    /// How many bytes all that is given to PEs has, the terminating null bytes too.
    pub fn bytes(&self) -> usize {
        let of = |list: &[Vec<u8>]| list.iter().map(|item| item.len() + 1).sum::<usize>();
        let programs = (0..self.parts()).map(|part| {
            let program = self.program(part);
            program.executable.len() + 1 + of(program.arguments)
        });
        let strace = self.strace.as_ref().map_or(0, |strace| of(&strace.options));
        programs.sum::<usize>() + of(&self.environment) + strace + self.directory.len() + 1
    }

    /// About how many bytes of memory it takes while it is kept: short arguments take more than
    /// they have.
    pub fn footprint(&self) -> u64 {
        let items = self.environment.len()
            + self.strace.as_ref().map_or(0, |strace| strace.options.len())
            + (0..self.parts()).map(|part| self.program(part).arguments.len() + 2).sum::<usize>();
        let limits = self.limits.len() * size_of::<Limit>();
        (self.bytes() + items * ITEM_BYTES + limits + self.binding.footprint()) as u64
    }
}

/// Bytes that the memory of an argument takes beside its text: where it is, and what the allocator
/// adds.
const ITEM_BYTES: usize = 48;

/// One PE of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPe {
    /// Its rank.
    pub rank: u32,
    /// Its node.
    pub nid: crate::machine::Nid,
    /// Real processors to bind it to; empty: not bound.
    pub cpus: Vec<u32>,
    /// How much nicer it is than its apshepherd, 0 to 19. An older shepherd does not know of it.
    pub nice: u32,
    /// Processors that are its own; 0: as many as [`HostLaunch::depth`] says.
    pub depth: u32,
}

/// The launch of one host's part, as apinit gives it to its shepherd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLaunch {
    /// Which application.
    pub key: super::Key,
    /// PEs of the whole application.
    pub width: u32,
    /// Processors for each.
    pub depth: u32,
    /// What is to be executed.
    pub launch: Launch,
    /// The PEs of this host.
    pub pes: Vec<LocalPe>,
    /// MPICH's PMI_process_mapping.
    pub process_mapping: String,
    /// No other host has PEs: barriers end here.
    pub alone: bool,
    /// The first PE of each other host, if these are not too many for PEs to spawn by PMIx ([`HostLaunch::OTHERS_MAX`]).
    pub others: Vec<u32>,
    /// CPU time of each PE.
    pub cpu_limit: Option<Duration>,
    /// PE 0 is here and reads stdin.
    pub stdin: bool,
    /// From TERM to KILL.
    pub kill_grace: Duration,
    /// Value of PSCHED_APPLICATION in each PE's environment: by it stray processes are found.
    pub marker: String,
    /// What a node's PEs may have of memory, for each of them.
    pub memory_per_pe: Option<u64>,
    /// Processes and threads that they may have on a node.
    pub pids_max: Option<u64>,
    /// What may be kept of it.
    pub bounds: super::bounds::Bounds,
    /// The name of the PMIx namespace, the same on all hosts: with 128 bits that nobody can guess, for a process of
    /// another user could join who knows it.
    pub pmix_name: String,
    /// Which of the application's hosts it is, from 0 for the host of PE 0.
    pub host_index: u32,
    /// A path that no other user can guess, for the folder of files of PMIx. The sender removes the folder at the end if the
    /// apshepherd could not. Empty: the apshepherd chooses one.
    pub pmix_folder: String,
    /// PEs of another program have spawned this one (MPI_Comm_spawn).
    pub spawned: Option<Spawned>,
}

impl HostLaunch {
    /// Other hosts of an application whose PEs spawn by PMIx: each of them is told of each program.
    pub const OTHERS_MAX: usize = 1023;

    /// MPI_UNIVERSE_SIZE: the PEs that there are, and as many more as one of them can spawn at the same time on
    /// the processors that it does not need itself. (mpi4py's MPIPoolExecutor() spawns as many workers.)
    pub fn universe(&self) -> u32 {
        self.width.saturating_add(self.depth.saturating_sub(1))
    }
}

/// What PEs find by PMI-1 that were spawned.
///
/// ```
/// # use psched_pure::apteam::{launch::Spawned, protocol::peers::PmiEntry};
/// let entries = vec![PmiEntry { key: "PORT".into(), value: "tag#0$a=b".into() }];
/// let spawned = Spawned { entries, pmix: vec![b"PMIX_A=1".to_vec()] };
/// let text = spawned.text(true);
/// assert_eq!(text, b"shares\nPORT=tag#0$a=b\n\tPMIX_A=1\n");
/// assert_eq!(Spawned::parse(&text), Some((spawned, true)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Spawned {
    /// Keys and values that are there from the beginning: how to reach the PE that has spawned them, at most
    /// [`Spawned::ENTRIES_MAX`].
    pub entries: Vec<PmiEntry>,
    /// Variables (NAME=VALUE) by which they find the appmix of the PE that has spawned them; empty: they are served PMI-1.
    pub pmix: Vec<Vec<u8>>,
}

impl Spawned {
    /// MPICH gives one.
    pub const ENTRIES_MAX: usize = 64;
    /// By this variable an apshepherd tells an aprun of it; PEs never have it.
    pub const VARIABLE: &str = "PSCHED_SPAWNED";

    /// Its value; `shares`: what is spawned may share processors with what that spawns.
    pub fn text(&self, shares: bool) -> Vec<u8> {
        let mut text = if shares { b"shares\n".to_vec() } else { b"own\n".to_vec() };
        for PmiEntry { key, value } in &self.entries {
            text.extend([&key[..], b"=", value, b"\n"].concat());
        }
        for variable in &self.pmix {
            text.extend([b"\t", &variable[..], b"\n"].concat());
        }
        text
    }

    /// It, and whether it may share, from that value.
    pub fn parse(text: &[u8]) -> Option<(Spawned, bool)> {
        let mut lines = text.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
        let shares = match lines.next()? {
            b"shares" => true,
            b"own" => false,
            _ => return None,
        };
        let entry = |line: &[u8]| {
            let cut = line.iter().position(|byte| *byte == b'=')?;
            let (key, value) = (line[..cut].to_vec(), line[cut + 1..].to_vec());
            Some(PmiEntry { key: key.into(), value: value.into() })
        };
        let (of_pmix, others): (Vec<&[u8]>, Vec<&[u8]>) =
            lines.partition(|line| line.starts_with(b"\t"));
        let entries: Vec<PmiEntry> = others.into_iter().map(entry).collect::<Option<_>>()?;
        let pmix = of_pmix.into_iter().map(|line| line[1..].to_vec()).collect();
        (entries.len() <= Spawned::ENTRIES_MAX).then_some((Spawned { entries, pmix }, shares))
    }
}
