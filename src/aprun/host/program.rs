//! Finding the executable as execvp does, opening it, and looking at its first bytes.
//!
//! It stays open, so that what was looked at can't be replaced under another file's number before
//! the application has been launched; each apinit executes the path only if the file there is
//! still the same ([`FileIdentity`]).

use super::Failure;
use crate::aprun::decide::elf::{self, Kind, no_interpreter};
use crate::aprun::decide::options::Options;
use crate::aprun::decide::options::parts::Part;
use crate::aprun::decide::wireup::{Seen, Wireup, seen};
use crate::apteam::ending::{STATUS_FAILED, STATUS_NOT_EXECUTABLE, STATUS_NOT_FOUND};
use crate::apteam::launch::{FileIdentity, Launch};
use crate::apteam::posting::{Executable, Mpi};
use crate::apteam::protocol::programs::LARGE;
use crate::node::file_identity::identity;
use crate::os::regular::digest;
use nix::unistd::{AccessFlags, eaccess};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where execvp looks when PATH is not set.
const PATH_DEFAULT: &str = "/bin:/usr/bin";
/// What tells MPICH by which protocol its PEs find one another: `x` is PMIx.
const PMI_VERSION: &str = "MPIR_CVAR_PMI_VERSION";

/// The executable, found and open.
#[derive(Debug)]
pub struct Program {
    /// Its path, absolute or relative to the working directory.
    pub path: PathBuf,
    /// Keeps it: while it is open, its inode's number is not given to another file.
    pub file: Arc<File>,
    /// It may be executed somewhere else. (What finds its libraries beside itself, and a script, which may find other
    /// files so, are executed at their paths, where these lead to them.)
    pub moves: bool,
    /// Which file it is.
    pub identity: FileIdentity,
    /// What it tells of its MPI.
    pub seen: Seen,
    /// What goes with the posting.
    pub executable: Executable,
}

/// e_machine of this machine; 0: not known here, anything will do.
fn own_machine() -> u16 {
    match std::env::consts::ARCH {
        "x86_64" => elf::X86_64,
        "aarch64" => elf::AARCH64,
        _ => 0,
    }
}

/// Finds, opens and judges the command of each part.
///
/// # Errors
/// One can't be executed: nothing is run then; of several, the message begins with the part's name.
pub fn open_all(options: &Options) -> Result<Vec<Program>, Failure> {
    let path = std::env::var_os("PATH");
    let one = |part: &Part| {
        let command = part.command.first().map(Vec::as_slice).unwrap_or_default();
        let opened = open(command, path.clone(), options.pmi, &options.environment);
        opened.map_err(|failure| match part.name.as_str() {
            "" => failure,
            name => Failure { text: format!("{name}: {}", failure.text), ..failure },
        })
    };
    let found: Vec<Program> = options.parts.iter().map(one).collect::<Result<_, _>>()?;
    let linked = |mpi| found.iter().find(|program| program.executable.mpi == mpi);
    match (linked(Mpi::Mpich), linked(Mpi::OpenMpi)) {
        (Some(mpich), Some(open)) if options.pmi != Wireup::None => Err(Failure::failed(format!(
            "{} (linked with MPICH or a relative of it) and {} (Open MPI) can't run in one MPI world: link all programs \
             with one library, or give --pmi=none for a world of each PE",
            mpich.path.display(),
            open.path.display()
        ))),
        _ => Ok(found),
    }
}

/// Finds, opens and judges the command. `set`: what -e sets.
pub fn open(
    command: &[u8],
    path: Option<OsString>,
    wireup: Wireup,
    set: &[Vec<u8>],
) -> Result<Program, Failure> {
    let found = find(command, path)?;
    let shown = found.display();
    let not_executable = |why: &dyn std::fmt::Display| {
        Failure::new(STATUS_NOT_EXECUTABLE, format!("{shown}: {why}"))
    };
    let (file, metadata) =
        File::open(&found)
            .and_then(|file| file.metadata().map(|m| (file, m)))
            .map_err(|e| not_executable(&format!("cannot be read: {}", plain(&e))))?;
    let mut read = |offset, buffer: &mut [u8]| file.read_at(buffer, offset).map_err(|e| plain(&e));
    let kind = elf::examine(&mut read, own_machine()).map_err(|e| not_executable(&e))?;
    let moves = matches!(&kind, Kind::Elf(elf) if !elf.beside);
    let seen = match &kind {
        Kind::Elf(elf) => seen(&found.to_string_lossy(), elf.mpi, elf.may_have_mpi),
        Kind::Script { .. } => Seen::Unknown,
    };
    let executable = describe(&found, kind);
    if executable.mpi == Mpi::OpenMpi && matches!(wireup, Wireup::Pmi1 | Wireup::Port) {
        return Err(Failure::new(
            STATUS_FAILED,
            format!(
                "{shown} is linked with Open MPI, which does not speak PMI-1: leave out --pmi, or give --pmi=pmix"
            ),
        ));
    }
    // (It can be built for PMIx, and told so.)
    let value = |item: &'_ Vec<u8>| {
        item.strip_prefix(PMI_VERSION.as_bytes())?.strip_prefix(b"=").map(|value| value == b"x")
    };
    let inherited = || std::env::var_os(PMI_VERSION).is_some_and(|version| version == "x");
    let told = set.iter().rev().find_map(value).unwrap_or_else(inherited);
    if executable.mpi == Mpi::Mpich && wireup == Wireup::Pmix && !told {
        return Err(Failure::new(
            STATUS_FAILED,
            format!(
                "{shown} is linked with MPICH or a relative of it, which does not speak PMIx as a rule: leave out --pmi, or \
                 set {PMI_VERSION}=x"
            ),
        ));
    }
    let interpreter = Path::new(OsStr::from_bytes(executable.interpreter.as_bytes()));
    if !executable.interpreter.is_empty() && !interpreter.exists() {
        return Err(Failure::new(
            STATUS_NOT_FOUND,
            format!("{shown}: {}", no_interpreter(&executable.interpreter)),
        ));
    }
    Ok(Program {
        path: found,
        file: Arc::new(file),
        moves,
        identity: identity(&metadata),
        seen,
        executable,
    })
}

fn describe(path: &Path, kind: Kind) -> Executable {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let path = path.to_string_lossy().into_owned();
    match kind {
        Kind::Elf(elf) => Executable {
            path,
            machine: elf.machine,
            interpreter: elf.interpreter.as_deref().map(text).unwrap_or_default(),
            script: false,
            mpi: elf.mpi,
        },
        Kind::Script { interpreter } => Executable {
            path,
            interpreter: text(&interpreter),
            script: true,
            ..Executable::default()
        },
    }
}

/// The launch with the digests of its programs, by which other hosts know them: of those that hosts are to compare with
/// what is at their paths. A large program that may be executed somewhere else has none if hosts get copies: its digest
/// is made while it is sent. One that has changed since it was opened has none either, and no other host executes it.
pub fn with_digests(mut launch: Launch, programs: &[Program]) -> Launch {
    for (part, program) in programs.iter().enumerate() {
        let sent = launch.copies && program.moves && program.identity.size >= LARGE;
        if let Some(Some(identity)) = launch.identity_mut(part)
            && !sent
        {
            identity.digest = digest_of(program).ok();
        }
    }
    launch
}

/// SHA-256 of a program, which is to be unchanged.
fn digest_of(program: &Program) -> std::io::Result<[u8; 32]> {
    let digest = digest(&mut program.reader())?;
    program.unchanged()?;
    Ok(digest)
}

/// The bytes of a file that others read too.
pub struct FileReader<'a> {
    file: &'a File,
    offset: u64,
}

impl std::io::Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl Program {
    /// Its bytes, from the first.
    pub fn reader(&self) -> FileReader<'_> {
        FileReader { file: &self.file, offset: 0 }
    }

    /// # Errors
    /// It has changed since it was opened.
    pub fn unchanged(&self) -> std::io::Result<()> {
        match identity(&self.file.metadata()?).is_same_file(&self.identity) {
            true => Ok(()),
            false => Err(std::io::Error::other("it has changed since it was posted")),
        }
    }
}

/// What the system says, without its number.
pub fn plain(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => nix::errno::Errno::from_raw(number).desc().to_owned(),
        None => error.to_string(),
    }
}

/// The path of a command: as it is, if it has a slash; else the first in PATH that can be executed.
fn find(command: &[u8], path: Option<OsString>) -> Result<PathBuf, Failure> {
    let name = Path::new(OsStr::from_bytes(command));
    if command.contains(&b'/') {
        return judge(name).map(|()| name.to_owned()).map_err(|problem| problem.failure(name));
    }
    let path = path.unwrap_or_else(|| PATH_DEFAULT.into());
    let mut nearest = None;
    for directory in path.as_bytes().split(|b| *b == b':') {
        // An empty one is the working directory; so that it stays one with a slash:
        let directory = if directory.is_empty() { b".".as_slice() } else { directory };
        let mut candidate = directory.to_vec();
        candidate.push(b'/');
        candidate.extend_from_slice(command);
        let candidate = PathBuf::from(OsString::from_vec(candidate));
        match judge(&candidate) {
            Ok(()) => return Ok(candidate),
            // As a shell has it: a folder of PATH that is closed to the caller has nothing for him.
            Err(Problem::Absent | Problem::Closed) => {}
            Err(problem) => nearest = nearest.or(Some((candidate, problem))),
        }
    }
    Err(match nearest {
        Some((candidate, problem)) => problem.failure(&candidate),
        None => {
            let name = name.display();
            let text = match Path::new(&format!("./{name}")).is_file() {
                true => {
                    format!(
                        "{name}: not found in PATH; give ./{name} for the file in this directory"
                    )
                }
                false => format!("{name}: not found in PATH; give its path"),
            };
            Failure::new(STATUS_NOT_FOUND, text)
        }
    })
}

/// Why a path can't be executed.
enum Problem {
    Absent,
    /// A directory on its path cannot be searched, so that nobody can tell.
    Closed,
    Other(String),
}

impl Problem {
    fn failure(self, path: &Path) -> Failure {
        match self {
            Problem::Absent => {
                Failure::new(STATUS_NOT_FOUND, format!("{}: not found", path.display()))
            }
            Problem::Closed => Failure::new(
                STATUS_NOT_EXECUTABLE,
                format!(
                    "{}: permission denied: a directory on its path cannot be searched",
                    path.display()
                ),
            ),
            Problem::Other(why) => {
                Failure::new(STATUS_NOT_EXECUTABLE, format!("{}: {why}", path.display()))
            }
        }
    }
}

fn judge(path: &Path) -> Result<(), Problem> {
    let other = |why: &str| Err(Problem::Other(why.to_owned()));
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Err(Problem::Absent);
        }
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            return Err(Problem::Closed);
        }
        Err(e) => return Err(Problem::Other(plain(&e))),
    };
    if metadata.is_dir() {
        return other("not executable: it is a directory");
    }
    if !metadata.is_file() {
        return other("not executable: it is not a regular file");
    }
    match eaccess(path, AccessFlags::X_OK) {
        Ok(()) => Ok(()),
        Err(nix::errno::Errno::EACCES) => {
            other("not executable: no permission to execute it (chmod +x gives it)")
        }
        Err(e) => Err(Problem::Other(e.desc().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).expect("a file in our own directory");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("our file");
    }

    #[test]
    fn the_path_is_searched_as_execvp_does() {
        let directory = tempfile::tempdir().expect("a directory");
        let [a, b] = ["a", "b"].map(|n| directory.path().join(n));
        for d in [&a, &b] {
            std::fs::create_dir(d).expect("a directory");
        }
        std::fs::create_dir(a.join("job")).expect("a directory of the command's name");
        write(&b.join("job"), "#!/bin/sh\n", 0o755);
        write(&a.join("other"), "#!/bin/sh\n", 0o644);
        let path = std::env::join_paths([&a, &b]).expect("a path");
        let found = open(b"job", Some(path.clone()), Wireup::Found, &[]).expect("in b");
        assert_eq!(found.path, b.join("job"));
        assert!(found.executable.script);
        assert_eq!(found.executable.interpreter, "/bin/sh");
        assert_eq!(found.identity.size, 10);
        let other =
            open(b"other", Some(path.clone()), Wireup::Found, &[]).expect_err("not executable");
        assert_eq!(other.status, 126, "{other:?}");
        let absent = open(b"third", Some(path), Wireup::Found, &[]).expect_err("not there");
        assert_eq!(absent, Failure::new(127, "third: not found in PATH; give its path"));
    }

    #[test]
    fn judgements() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        write(&at("text"), "echo\n", 0o755);
        write(&at("lost"), "#!/nope/sh\n", 0o755);
        write(&at("dos"), "#!/bin/sh\r\necho\r\n", 0o755);
        write(&at("empty"), "", 0o755);
        let said = |name: &str| {
            let failure =
                open(at(name).as_os_str().as_bytes(), None, Wireup::Found, &[]).expect_err("bad");
            (failure.status, failure.text.replace(&format!("{}/", directory.path().display()), ""))
        };
        let line = "begin it with #! and the path of its interpreter";
        assert_eq!(
            said("text"),
            (126, format!("text: not executable: the file has no #! line; {line}"))
        );
        assert_eq!(said("lost"), (127, "lost: its interpreter /nope/sh was not found".to_owned()));
        let dos = "dos: its interpreter /bin/sh\\r was not found: the script has DOS line ends (CR LF), which \
                   dos2unix removes";
        assert_eq!(said("dos"), (127, dos.to_owned()));
        assert_eq!(said("empty"), (126, "empty: not executable: the file is empty".to_owned()));
        assert_eq!(said("none"), (127, "none: not found".to_owned()));
        let here = open(directory.path().as_os_str().as_bytes(), None, Wireup::Found, &[])
            .expect_err("bad");
        assert_eq!(here.status, 126);
        assert!(here.text.ends_with("not executable: it is a directory"), "{here:?}");
        let own = std::env::current_exe().expect("this program");
        let own = open(own.as_os_str().as_bytes(), None, Wireup::Found, &[]).expect("executable");
        assert_eq!((own.executable.machine, own.executable.mpi), (own_machine(), Mpi::None));
        assert!(own.executable.interpreter.contains("ld-linux"), "{own:?}");
    }

    #[test]
    fn a_program_of_mpich() {
        let directory = tempfile::tempdir().expect("a directory");
        let source = directory.path().join("a.c");
        let text = "#include <mpi.h>\nint main(int n, char **a) { return MPI_Init(&n, &a); }\n";
        std::fs::write(&source, text).expect("our directory");
        let program = directory.path().join("a.out");
        let mut compiler = std::process::Command::new("mpicc.mpich");
        match compiler.arg("-o").arg(&program).arg(&source).status() {
            Ok(status) => assert!(status.success(), "mpicc.mpich failed"),
            Err(e) => return eprintln!("skipped a_program_of_mpich: no mpicc.mpich ({e})"),
        }
        let found =
            open(program.as_os_str().as_bytes(), None, Wireup::Found, &[]).expect("executable");
        assert_eq!(found.executable.mpi, Mpi::Mpich);
    }
}
