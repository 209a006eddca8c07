//! What an executable file is, from its first bytes: an ELF program for which machine, with which
//! MPI; or a script, and for which interpreter; or nothing that can be executed.
//!
//! The MPI library is in the dynamic section: its strings (DT_NEEDED) name the libraries that the
//! program is linked with. Addresses there are those of memory, so that the load segments have to
//! say where in the file they are.
//!
//! The file is a stranger's: every offset is checked, every length is bounded ([`PHDRS_MAX`] and
//! the constants after it), and what does not add up in the dynamic section is no error, because
//! the kernel does not look at it either: such a program has no known MPI.

use super::wireup::may_have_mpi;
use crate::apteam::posting::Mpi;
use crate::steering::steers;

/// Program headers that are looked at.
pub const PHDRS_MAX: usize = 1024;
/// Bytes of the dynamic section that are looked at.
pub const DYNAMIC_MAX: u64 = 64 * 1024;
/// Libraries whose names are looked at.
pub const NEEDED_MAX: usize = 512;
/// Bytes of a library's name.
const NAME_MAX: usize = 128;
/// Bytes of the list of folders in which libraries are looked for.
const RUN_PATH_MAX: usize = 4096;
/// Bytes of the path of an interpreter.
const INTERPRETER_MAX: u64 = 4096;
/// How much of a script the kernel reads for its first line.
const SCRIPT_HEAD: usize = 256;

/// What can be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An ELF program.
    Elf(Elf),
    /// A script for this interpreter.
    Script {
        /// Path of the interpreter.
        interpreter: Vec<u8>,
    },
}

/// An ELF program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// e_machine.
    pub machine: u16,
    /// The dynamic loader; `None`: linked statically.
    pub interpreter: Option<Vec<u8>>,
    /// Which MPI it is linked with.
    pub mpi: Mpi,
    /// It may have an MPI that it does not name: it needs libraries that may be linked with one, or it has all of its
    /// libraries in it.
    pub may_have_mpi: bool,
    /// It looks for libraries beside itself ($ORIGIN): somewhere else it would not find them.
    pub beside: bool,
}

/// Why it can't be executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Reading failed.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// No bytes.
    #[error("not executable: the file is empty")]
    Empty,
    /// Text that does not begin with #!.
    #[error(
        "not executable: the file has no #! line; begin it with #! and the path of its interpreter"
    )]
    NoInterpreterLine,
    /// #! and nothing.
    #[error("not executable: its #! line names no interpreter; write it, as in #!/bin/sh")]
    EmptyInterpreterLine,
    /// The first line is longer than the kernel reads.
    #[error(
        "not executable: its #! line is longer than {SCRIPT_HEAD} bytes; give the interpreter a shorter path"
    )]
    LongInterpreterLine,
    /// Something else.
    #[error("not executable: the file is neither an ELF program nor a script")]
    Unknown,
    /// The file ends before its headers do.
    #[error("not executable: the ELF file is cut short; build or copy it again")]
    Truncated,
    /// A header that says nonsense.
    #[error("not executable: the ELF file is damaged ({0}); build or copy it again")]
    Damaged(&'static str),
    /// An object file or the like.
    #[error("not executable: the ELF file is {0}")]
    NoProgram(&'static str),
    /// For another machine.
    #[error("not executable: it is built for {}, this machine is {}; build it here",
        machine_name(*.theirs), machine_name(*.own))]
    WrongMachine {
        /// e_machine of the file.
        theirs: u16,
        /// e_machine of this machine.
        own: u16,
    },
}

/// e_machine of x86-64.
pub const X86_64: u16 = 62;
/// e_machine of 64-bit ARM.
pub const AARCH64: u16 = 183;
/// Names of machines, and which one runs on which other.
const MACHINES: &[(u16, &str, Option<u16>)] = &[
    (3, "i386", Some(X86_64)),
    (X86_64, "x86-64", None),
    (40, "ARM", Some(AARCH64)),
    (AARCH64, "AArch64", None),
    (21, "PowerPC64", None),
    (22, "s390x", None),
    (243, "RISC-V", None),
    (258, "LoongArch", None),
    (2, "SPARC", None),
    (8, "MIPS", None),
    (20, "PowerPC", None),
];

fn machine_name(machine: u16) -> String {
    match MACHINES.iter().find(|(m, ..)| *m == machine) {
        Some((_, name, _)) => (*name).to_owned(),
        None => format!("machine {machine}"),
    }
}

/// Reads a part of the file: fills the buffer as far as the file goes, and says how far.
pub type ReadAt<'a> = dyn FnMut(u64, &mut [u8]) -> Result<usize, String> + 'a;

/// Finds out what a file is. `own` is this machine's e_machine; 0: any will do.
pub fn examine(read: &mut ReadAt<'_>, own: u16) -> Result<Kind, Problem> {
    let mut file = File { read, wide: true, little: true };
    let head = file.upto(0, SCRIPT_HEAD)?;
    match head.as_slice() {
        [] => Err(Problem::Empty),
        [b'#', b'!', line @ ..] => script(line),
        [0x7f, b'E', b'L', b'F', rest @ ..] => {
            let (class, data) = match rest {
                [class, data, ..] => (*class, *data),
                _ => return Err(Problem::Truncated),
            };
            file.wide = match class {
                1 => false,
                2 => true,
                _ => return Err(Problem::Damaged("neither 32 nor 64 bits")),
            };
            file.little = match data {
                1 => true,
                2 => false,
                _ => return Err(Problem::Damaged("no byte order")),
            };
            file.elf(&head, own).map(Kind::Elf)
        }
        text if text.iter().all(|b| *b >= 0x20 && *b != 0x7f || b"\t\n\r\x0c\x1b".contains(b)) => {
            Err(Problem::NoInterpreterLine)
        }
        _ => Err(Problem::Unknown),
    }
}

/// What stands behind #!, as the kernel reads it.
fn script(line: &[u8]) -> Result<Kind, Problem> {
    let blank = |b: &u8| *b == b' ' || *b == b'\t';
    let end = line.iter().position(|b| *b == b'\n');
    let line_ended = end.is_some() || line.len() + 2 < SCRIPT_HEAD;
    let line = &line[..end.unwrap_or(line.len())];
    let start = line.iter().position(|b| !blank(b)).unwrap_or(line.len());
    let line = &line[start..];
    let word_end = line.iter().position(|b| blank(b) || *b == 0);
    let word = &line[..word_end.unwrap_or(line.len())];
    if word.is_empty() {
        return Err(Problem::EmptyInterpreterLine);
    }
    if word_end.is_none() && !line_ended {
        return Err(Problem::LongInterpreterLine);
    }
    Ok(Kind::Script { interpreter: word.to_vec() })
}

/// A program header: what is needed of it.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    file_size: u64,
}

/// What the libraries of a program tell.
struct Libraries {
    /// Which MPI is among them.
    mpi: Mpi,
    /// Whether one of them may be linked with an MPI.
    others: bool,
    /// Whether some are looked for beside the program.
    beside: bool,
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

struct File<'a, 'b> {
    read: &'a mut ReadAt<'b>,
    wide: bool,
    little: bool,
}

impl File<'_, '_> {
    /// Up to so many bytes from there; fewer only at the end of the file.
    fn upto(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, Problem> {
        let mut bytes = vec![0; len];
        let mut filled = 0;
        while filled < len {
            let Some(at) = offset.checked_add(filled as u64) else { break };
            match (self.read)(at, &mut bytes[filled..]).map_err(Problem::Unreadable)? {
                0 => break,
                more => filled = (filled + more).min(len),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// An unsigned number of `len` bytes at `at` of these bytes.
    fn number(&self, bytes: &[u8], at: usize, len: usize) -> Option<u64> {
        let bytes = bytes.get(at..at.checked_add(len)?)?;
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        Some(if self.little { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) })
    }

    fn elf(&mut self, head: &[u8], own: u16) -> Result<Elf, Problem> {
        let field = |at, len| self.number(head, at, len).ok_or(Problem::Truncated);
        let (header_len, phoff_at, word, phentsize_at) =
            if self.wide { (64, 32, 8, 54) } else { (52, 28, 4, 42) };
        if head.len() < header_len {
            return Err(Problem::Truncated);
        }
        let kind = field(16, 2)?;
        let machine = field(18, 2)? as u16;
        let phoff = field(phoff_at, word)?;
        let entry = field(phentsize_at, 2)? as usize;
        let count = field(phentsize_at + 2, 2)? as usize;
        match kind {
            2 | 3 => {}
            1 => return Err(Problem::NoProgram("an object file; link it")),
            4 => return Err(Problem::NoProgram("a core dump")),
            _ => return Err(Problem::NoProgram("of an unknown type")),
        }
        let runs_here = own == 0
            || machine == own
            || MACHINES.iter().any(|(m, _, on)| *m == machine && *on == Some(own));
        if !runs_here {
            return Err(Problem::WrongMachine { theirs: machine, own });
        }
        if entry != if self.wide { 56 } else { 32 } {
            return Err(Problem::Damaged("program headers of a strange size"));
        }
        if count == 0 {
            return Err(Problem::Damaged("no program headers"));
        }
        let count = count.min(PHDRS_MAX);
        let table = self.upto(phoff, count * entry)?;
        if table.len() < count * entry {
            return Err(Problem::Truncated);
        }
        let segments: Vec<Segment> =
            table.chunks_exact(entry).filter_map(|bytes| self.segment(bytes)).collect();
        let interpreter = match segments.iter().find(|s| s.kind == PT_INTERP) {
            Some(s) => Some(self.interpreter(s)?),
            None => None,
        };
        let Libraries { mpi, others, beside } = self.libraries(&segments)?;
        let may_have_mpi = others || interpreter.is_none();
        Ok(Elf { machine, interpreter, mpi, may_have_mpi, beside })
    }

    fn segment(&self, bytes: &[u8]) -> Option<Segment> {
        let kind = self.number(bytes, 0, 4)? as u32;
        let word = if self.wide { 8 } else { 4 };
        let (offset, address, file_size) = if self.wide { (8, 16, 32) } else { (4, 8, 16) };
        Some(Segment {
            kind,
            offset: self.number(bytes, offset, word)?,
            address: self.number(bytes, address, word)?,
            file_size: self.number(bytes, file_size, word)?,
        })
    }

    fn interpreter(&mut self, segment: &Segment) -> Result<Vec<u8>, Problem> {
        if !(2..=INTERPRETER_MAX).contains(&segment.file_size) {
            return Err(Problem::Damaged("the path of its loader is empty or too long"));
        }
        let path = self.upto(segment.offset, segment.file_size as usize)?;
        if path.len() < segment.file_size as usize {
            return Err(Problem::Truncated);
        }
        match path.split_last() {
            Some((0, path)) => Ok(path.split(|b| *b == 0).next().unwrap_or_default().to_vec()),
            _ => Err(Problem::Damaged("the path of its loader does not end")),
        }
    }

    /// What the dynamic section tells of libraries.
    fn libraries(&mut self, segments: &[Segment]) -> Result<Libraries, Problem> {
        let mut all = Libraries { mpi: Mpi::None, others: false, beside: false };
        let Some(dynamic) = segments.iter().find(|s| s.kind == PT_DYNAMIC) else {
            return Ok(all);
        };
        let bytes = self.upto(dynamic.offset, dynamic.file_size.min(DYNAMIC_MAX) as usize)?;
        let word = if self.wide { 8 } else { 4 };
        let entries: Vec<(u64, u64)> = bytes
            .chunks_exact(2 * word)
            .filter_map(|e| Some((self.number(e, 0, word)?, self.number(e, word, word)?)))
            .take_while(|(tag, _)| *tag != DT_NULL)
            .collect();
        let table = entries.iter().find(|(tag, _)| *tag == DT_STRTAB).and_then(|(_, address)| {
            let load = segments.iter().find(|s| {
                s.kind == PT_LOAD
                    && address.checked_sub(s.address).is_some_and(|within| within < s.file_size)
            })?;
            load.offset.checked_add(address - load.address)
        });
        let Some(table) = table else { return Ok(all) };
        for (_, path) in
            entries.iter().filter(|(tag, _)| [DT_RPATH, DT_RUNPATH].contains(tag)).take(2)
        {
            let Some(at) = table.checked_add(*path) else { continue };
            let path = self.upto(at, RUN_PATH_MAX)?;
            let path = path.split(|b| *b == 0).next().unwrap_or_default();
            let names = |word: &[u8]| path.windows(word.len()).any(|part| part == word);
            all.beside |= names(b"$ORIGIN") || names(b"${ORIGIN}");
        }
        let needed = entries.iter().filter(|(tag, _)| *tag == DT_NEEDED).take(NEEDED_MAX);
        for (_, name) in needed {
            let Some(at) = table.checked_add(*name) else { continue };
            let name = self.upto(at, NAME_MAX)?;
            let name = name.split(|b| *b == 0).next().unwrap_or_default();
            match mpi_of(name) {
                // Fortran programs need libmpi_mpifh.so.40 and libmpi.so.40: the first that is
                // known tells.
                Mpi::None => all.others |= may_have_mpi(name),
                mpi => {
                    all.mpi = mpi;
                    break;
                }
            }
        }
        Ok(all)
    }
}

/// Which MPI a library belongs to, by the name of its file. MPICH and the libraries of its ABI are version 12, Open MPI's
/// since 2.0 are 20 and 40.
pub fn mpi_of(library: &[u8]) -> Mpi {
    let Ok(name) = std::str::from_utf8(library) else { return Mpi::None };
    let Some((stem, version)) = name.split_once(".so") else { return Mpi::None };
    let major = version.trim_start_matches('.').split('.').next().unwrap_or_default();
    if stem.starts_with("libmpich") {
        Mpi::Mpich
    } else if stem.starts_with("libmpi") {
        match major {
            "12" => Mpi::Mpich,
            "20" | "40" => Mpi::OpenMpi,
            _ => Mpi::None,
        }
    } else {
        Mpi::None
    }
}

/// That the interpreter of a program was not found, in words; control characters in its name are
/// made visible.
pub fn no_interpreter(name: &str) -> String {
    let shown: String = name.chars().map(visible).collect();
    let why = match name.ends_with('\r') {
        true => ": the script has DOS line ends (CR LF), which dos2unix removes",
        false => "",
    };
    format!("its interpreter {shown} was not found{why}")
}

fn visible(c: char) -> String {
    if steers(c) { c.escape_default().to_string() } else { c.to_string() }
}

#[cfg(test)]
mod tests;
