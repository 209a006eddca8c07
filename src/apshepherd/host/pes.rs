//! The PEs of this host: their processes, pipes and PMI connections.

use super::attaching::{Attaching, Waiting};
use super::pmi_port::PmiPort;
use super::program::{self, Refusal};
use super::tracers::{Kind, Tool, Tracer};
use crate::apteam::fault::Fault;
use crate::apteam::launch::{HostLaunch, LocalPe};
use crate::apteam::protocol::processes::PeProcess;
use crate::machine::Nid;
use crate::os::fork::{Failure, PeSetup, Program, fork_pe, high};
use crate::os::placing::Placing;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{Pid, pipe2, read, write};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Pipes of output are enlarged as far as all of them together stay within this: they hold what a
/// PE writes while its shepherd is busy elsewhere.
const PIPES_BYTES: usize = 8 * 1024 * 1024;
/// The largest that one pipe is made.
const PIPE_MAX: usize = 256 * 1024;
/// What a pipe has by itself.
const PIPE_DEFAULT: usize = 64 * 1024;

/// In the index of a failure: it is what traces this PE that has failed. (There are fewer PEs.)
const TRACER: u32 = 1 << 31;

/// One PE, from its fork on.
#[derive(Debug)]
pub struct Pe {
    /// Its rank.
    pub rank: u32,
    /// Its node.
    pub nid: Nid,
    /// Its process, which is also its process group.
    pub pid: Pid,
    /// It stands after execve, or goes.
    pub executed: bool,
    /// It has been reaped.
    pub ended: bool,
    /// What traces it from before its first instruction on.
    pub tracer: Option<Tracer>,
    /// Signals that came before execve.
    pub early_signals: Vec<i32>,
    /// A user has stopped it, as far as that is known here.
    pub stop_wanted: bool,
    /// stdout and stderr.
    pub output: [OutputPipe; 2],
    /// Our end of its PMI connection.
    pub pmi: Option<OwnedFd>,
    /// Answers that it has not taken yet. Nothing more is read of it meanwhile.
    pub answers: VecDeque<u8>,
}

/// The reading end of a PE's stdout or stderr.
///
/// A line that a PE has written at once is passed on whole: where a read ends within a line because
/// the buffer is full, what has begun is kept for the next read, which has the rest.
#[derive(Debug)]
pub struct OutputPipe {
    /// `None`: at its end.
    pub fd: Option<OwnedFd>,
    /// A line that has begun, and of which more is in the pipe.
    begun: Vec<u8>,
}

impl OutputPipe {
    fn new(fd: OwnedFd) -> OutputPipe {
        OutputPipe { fd: Some(fd), begun: Vec::new() }
    }

    /// Reads without waiting.
    pub fn read(&mut self, buffer: &mut [u8]) -> Got {
        let Some(fd) = &self.fd else { return Got::End };
        let begun = self.begun.len();
        buffer[..begun].copy_from_slice(&self.begun);
        self.begun.clear();
        match read_some(fd.as_fd(), &mut buffer[begun..]) {
            Got::Some(count) => {
                let count = begun + count;
                let more = count == buffer.len()
                    && rustix::io::ioctl_fionread(fd).is_ok_and(|waiting| waiting > 0);
                let lines = buffer[..count].iter().rposition(|b| *b == b'\n').map(|last| last + 1);
                let Some(lines) = lines.filter(|_| more) else { return Got::Some(count) };
                self.begun.extend_from_slice(&buffer[lines..count]);
                Got::Some(lines)
            }
            Got::Nothing | Got::End if begun > 0 => Got::Some(begun),
            nothing => nothing,
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Pes {
    /// In the order of the launch.
    pub all: Vec<Pe>,
    by_pid: BTreeMap<i32, usize>,
    by_tracer: BTreeMap<i32, usize>,
    by_rank: BTreeMap<u32, usize>,
    /// Where children say why they could not execute.
    failures: Option<OwnedFd>,
}

/// How PEs find one another, beside PMI-1 by a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Ways<'a> {
    /// What leads them to appmix.
    pub mix: &'a [CString],
    /// In the descriptor's place.
    pub port: Option<&'a PmiPort>,
}

/// What a fork of all PEs has come to.
#[derive(Debug)]
pub struct Forked {
    /// Those that were made.
    pub pes: Pes,
    /// The writing end of PE 0's stdin.
    pub stdin: Option<OwnedFd>,
    /// The rank that could not be made, and why; those after it have not been tried.
    pub failed: Option<(u32, Refusal)>,
}

/// Forks every PE of a launch. `programs` has that of each part which has a PE here. `placing` is
/// the right to put them into their groups, where these are root's.
pub fn fork_all(
    launch: &HostLaunch,
    programs: &BTreeMap<usize, Program>,
    groups: &[(Nid, OwnedFd)],
    placing: Option<&Placing>,
    tool: Option<&Tool>,
    ways: Ways<'_>,
) -> Forked {
    let mut forked = Forked { pes: Pes::default(), stdin: None, failed: None };
    let first = launch.pes.first().map_or(0, |pe| pe.rank);
    let common = (|| -> io::Result<_> {
        let (failures, to) = pipe()?;
        nonblocking(&failures)?;
        Ok((failures, to, high(File::open("/dev/null")?.into())?))
    })();
    let (failures, to_failures, null) = match common {
        Ok(common) => common,
        Err(e) => {
            let text = format!("the files of the PEs can't be opened: {e}");
            let errno = e.raw_os_error().unwrap_or(0);
            forked.failed = Some((first, Refusal { errno, text, fault: Fault::Busy }));
            return forked;
        }
    };
    forked.pes.failures = Some(failures);
    let room = (PIPES_BYTES / (2 * launch.pes.len().max(1))).min(PIPE_MAX);
    for (index, local) in launch.pes.iter().enumerate() {
        let made = (|| -> io::Result<(Pe, Option<OwnedFd>)> {
            let program = programs.get(&launch.launch.part_of(local.rank));
            let program = program.ok_or(io::ErrorKind::NotFound)?;
            let group = groups.iter().find(|(nid, _)| *nid == local.nid);
            let (from_stdout, stdout) = output_pipe(room)?;
            let (from_stderr, stderr) = output_pipe(room)?;
            let stdin = (launch.stdin && local.rank == 0).then(pipe).transpose()?;
            let by_descriptor = launch.launch.pmi && ways.port.is_none();
            let pmi = by_descriptor.then(pmi_pair).transpose()?;
            let mut environment = program::pe_environment(launch, local, ways.mix);
            environment.extend(ways.port.into_iter().flat_map(|port| port.environment(index)));
            let reads = stdin.as_ref().map_or(&null, |(reads, _)| reads);
            let setup = PeSetup {
                index: index as u32,
                environment,
                cpus: &local.cpus,
                nice: local.nice,
                stdio: [reads.as_fd(), stdout.as_fd(), stderr.as_fd()],
                pmi: pmi.as_ref().map(|(_, theirs)| theirs.as_fd()),
                group: group.map(|(_, fd)| fd.as_fd()),
                placing: placing.filter(|_| group.is_some()),
                gate: None,
                // A debugger, for apstat --stacks, is no ancestor of it.
                lends: true,
                failures: to_failures.as_fd(),
            };
            let pid = Pid::from_raw(fork_pe(program, &setup)?);
            let pe = Pe {
                rank: local.rank,
                nid: local.nid,
                pid,
                executed: false,
                ended: false,
                tracer: None,
                early_signals: Vec::new(),
                stop_wanted: false,
                output: [OutputPipe::new(from_stdout), OutputPipe::new(from_stderr)],
                pmi: pmi.map(|(ours, _)| ours),
                answers: VecDeque::new(),
            };
            Ok((pe, stdin.map(|(_, writes)| writes)))
        })();
        match made {
            Ok((pe, stdin)) => {
                forked.pes.by_pid.insert(pe.pid.as_raw(), index);
                forked.pes.by_rank.insert(pe.rank, index);
                forked.pes.all.push(pe);
                if let Some(stdin) = stdin {
                    let _ = nonblocking(&stdin);
                    forked.stdin = Some(stdin);
                }
                let Some(tool) = tool else { continue };
                let group = groups.iter().find(|(nid, _)| *nid == local.nid);
                let group = group.map(|(_, fd)| fd.as_fd());
                let files = [null.as_fd(), to_failures.as_fd()];
                if let Err(refusal) =
                    forked.pes.beside(tool, launch, index, (group, placing), files)
                {
                    forked.failed = Some((local.rank, refusal));
                    break;
                }
            }
            Err(e) => {
                forked.failed = Some((local.rank, program::explain_fork(local, &e)));
                break;
            }
        }
    }
    forked
}

impl Pes {
    /// Makes what traces a PE, in the PE's group: it waits until the PE stands.
    fn beside(
        &mut self,
        tool: &Tool,
        launch: &HostLaunch,
        index: usize,
        (group, placing): (Option<BorrowedFd<'_>>, Option<&Placing>),
        [null, failures]: [BorrowedFd<'_>; 2],
    ) -> Result<(), Refusal> {
        let (Some(local), Some(pe)) = (launch.pes.get(index), self.all.get_mut(index)) else {
            return Ok(());
        };
        let (file, path) = tool.file(launch, local)?;
        let made = || -> io::Result<Tracer> {
            let file = high(file)?;
            let commands = (tool.kind() == Kind::Gdb).then(pipe).transpose()?;
            // (gdb says on stdout what strace says on stderr.)
            commands.iter().try_for_each(|(_, writes)| Tracer::prepares(writes))?;
            let stdio = match &commands {
                Some((reads, _)) => [reads.as_fd(), file.as_fd(), file.as_fd()],
                None => [null, null, file.as_fd()],
            };
            let attaching = Attaching {
                index: TRACER | index as u32,
                environment: program::own_environment(launch, local),
                cpus: &local.cpus,
                nice: local.nice,
                stdio,
                group,
                placing,
                failures,
            };
            let Waiting { pid, gate } = attaching.start(&tool.tracing(pe.pid))?;
            let commands = commands.map(|(_, writes)| writes);
            Ok(Tracer {
                kind: tool.kind(),
                pid,
                gate: Some(gate),
                attached: false,
                file: Some(file),
                path,
                commands,
            })
        };
        let tracer = made().map_err(|e| program::explain_fork(local, &e))?;
        self.by_tracer.insert(tracer.pid.as_raw(), index);
        pe.tracer = Some(tracer);
        Ok(())
    }

    /// The PE that this process traces.
    pub fn of_tracer(&self, pid: i32) -> Option<usize> {
        self.by_tracer.get(&pid).copied()
    }

    /// The PE with this process.
    pub fn of_pid(&self, pid: i32) -> Option<usize> {
        self.by_pid.get(&pid).copied()
    }

    /// The PE of this rank.
    pub fn of_rank(&mut self, rank: u32) -> Option<(usize, &mut Pe)> {
        let index = *self.by_rank.get(&rank)?;
        self.all.get_mut(index).map(|pe| (index, pe))
    }

    /// The processes of those of these ranks.
    pub fn named(&self, ranks: impl Fn(u32) -> bool) -> Vec<PeProcess> {
        let pes = self.by_rank.iter().filter(|(rank, _)| ranks(**rank));
        let pid = |pe: &Pe| if pe.ended { 0 } else { pe.pid.as_raw().unsigned_abs() };
        pes.map(|(rank, index)| PeProcess { rank: *rank, pid: pid(&self.all[*index]) }).collect()
    }

    /// What children have said about their failures, with the PE concerned.
    pub fn failures(&self, launch: &HostLaunch) -> Vec<(u32, Refusal)> {
        let mut found = Vec::new();
        let Some(pipe) = &self.failures else { return found };
        let mut record = [0; Failure::SIZE];
        // Records are written whole: they are shorter than PIPE_BUF.
        while read(pipe, &mut record) == Ok(Failure::SIZE) {
            let Some(Failure { index, step, errno }) = Failure::parse(&record) else { continue };
            let pe: Option<&LocalPe> = launch.pes.get((index & !TRACER) as usize);
            if let Some(pe) = pe {
                let refusal = match index & TRACER {
                    0 => program::explain(launch, pe, step, errno),
                    _ => program::explain_tracer(launch, errno),
                };
                found.push((pe.rank, refusal));
            }
        }
        found
    }
}

/// A pipe whose ends a child may be given.
///
/// # Errors
/// No more files can be opened.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reads, writes) = pipe2(OFlag::O_CLOEXEC)?;
    Ok((high(reads)?, high(writes)?))
}

fn output_pipe(room: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    let (reads, writes) = pipe()?;
    nonblocking(&reads)?;
    if room > PIPE_DEFAULT {
        // Refused to a user with many pipes: then it stays as it is.
        let _ = fcntl(&reads, FcntlArg::F_SETPIPE_SZ(room as i32));
    }
    Ok((reads, writes))
}

/// Our end, that never waits, and the PE's, that does.
fn pmi_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags)?;
    nonblocking(&ours)?;
    Ok((ours, high(theirs)?))
}

/// Reads and writes of this never wait.
///
/// # Errors
/// Those of fcntl.
pub fn nonblocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// What a read that does not wait has come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Got {
    /// So many bytes.
    Some(usize),
    /// None now.
    Nothing,
    /// None ever again.
    End,
}

/// Reads without waiting.
pub fn read_some(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Got {
    match read(fd, buffer) {
        Ok(0) => Got::End,
        Ok(count) => Got::Some(count),
        Err(Errno::EAGAIN | Errno::EINTR) => Got::Nothing,
        Err(_) => Got::End,
    }
}

/// Writes without waiting: how many bytes went, and whether the other side is still there.
pub fn write_some(fd: BorrowedFd<'_>, data: &[u8]) -> Result<usize, Errno> {
    match write(fd, data) {
        Ok(count) => Ok(count),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read, read by read, of a pipe with this in it that is closed.
    fn reads(written: &str) -> Vec<String> {
        let (reading, writing) = output_pipe(PIPE_MAX).expect("a pipe");
        assert_eq!(write(&writing, written.as_bytes()), Ok(written.len()), "it has room");
        drop(writing);
        let mut pipe = OutputPipe::new(reading);
        let mut buffer = [0; 16];
        let next = || match pipe.read(&mut buffer) {
            Got::Some(count) => Some(String::from_utf8_lossy(&buffer[..count]).into_owned()),
            Got::Nothing | Got::End => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_read_ends_with_a_line_where_more_is_there() {
        assert_eq!(reads("one line\nand one more"), ["one line\n", "and one more"]);
        assert_eq!(reads("just 16 bytes..\nx"), ["just 16 bytes..\n", "x"]);
        assert_eq!(reads("prompt\nand more> "), ["prompt\n", "and more> "]);
        // Nothing is there that could be waited for.
        assert_eq!(reads("prompt\nand more>"), ["prompt\nand more>"]);
        assert_eq!(reads("0123456789abcdefghij"), ["0123456789abcdef", "ghij"]);
        let long: String = (0..200).map(|n| format!("{n}\n")).collect();
        let read = reads(&long);
        assert!(read.iter().all(|piece| piece.ends_with('\n')), "{read:?}");
        assert_eq!(read.concat(), long);
    }
}
