//! How an application ends, and the status that aprun makes of it.
//!
//! *The first bad end decides.* A bad end is a PE that exits with a code other than 0, dies by a
//! signal, aborts or leaves without PMI's finalize; or something that psched does to the whole
//! application (apkill, a time limit, ...). Whoever sees one stamps it with a time; the earliest
//! stamp of all hosts is the *decisive* one ([`Decisive`]), and its cause gives the status
//! ([`Cause::status`]). PEs that are ended in consequence (TERM, KILL to the others) don't count.

use super::Key;
use super::fault::Fault;
use super::posting::Owner;
use crate::machine::Nid;
use crate::variables::units;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Why an application ended, or will end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// A PE ended with a code other than 0. Alone it does not end the application.
    PeExit { rank: u32, nid: Nid, code: u8 },
    /// A PE died by a signal.
    PeSignal { rank: u32, nid: Nid, signal: i32 },
    /// MPI_Abort(code).
    Abort { rank: u32, nid: Nid, code: i32 },
    /// A PE ended after PMI's init without its finalize.
    NoFinalize { rank: u32, nid: Nid, code: u8 },
    /// What a PE sent on its PMI connection is not the protocol.
    Garbage { rank: u32, nid: Nid, text: String },
    /// The PEs of an MPI program can't find one another, or can't go on with that: what about this PE. The text goes on
    /// from "PE 3".
    NotMet { rank: u32, nid: Nid, text: String },
    /// A program that this PE has spawned (MPI_Comm_spawn) ended with a code other than 0, or 128 and its signal.
    SpawnedEnd { rank: u32, nid: Nid, code: u8 },
    /// apkill, by this user.
    Kill { signal: i32, uid: u32 },
    /// The time limit of the posting.
    TimeLimit { limit: Duration },
    /// aprun died.
    FrontGone,
    /// aprun's stdout was closed.
    StdoutClosed,
    /// A PE could not be executed, `errno` being why; `text` names the file and the cure.
    LaunchFailed {
        rank: u32,
        nid: Nid,
        errno: i32,
        text: String,
        #[serde(default)]
        fault: Fault,
    },
    /// apshepherd died, or could not be started. `fault`: whose it is if no PE has run.
    ShepherdLost {
        nid: Nid,
        text: String,
        #[serde(default)]
        fault: Fault,
    },
    /// A node lost the application, or died with it.
    NodeLost { nid: Nid, text: String },
    /// psched has no record of it.
    NoRecord,
    /// The PEs of a node went over their memory (-m), and the kernel killed them. `largest` is the
    /// PE with the largest process and that one's resident set in bytes, where it is known.
    OverMemory { nid: Nid, pes: u32, per_pe: u64, largest: Option<(u32, u64)> },
    /// The host ran out of memory, and the kernel killed a PE.
    HostMemory { rank: u32, nid: Nid },
    /// psmgr purge, by this user.
    Purge { uid: u32 },
    /// cpr -k, by this user: its checkpoint is made.
    Checkpointed { uid: u32 },
}

/// aprun's status when aprun itself failed, or the application never started, or its node,
/// shepherd or record was lost.
pub const STATUS_FAILED: u8 = 125;
/// In place of an errno, where a launch failed by nothing of the program's: its directory, a limit.
pub const NOT_THE_PROGRAM: i32 = 0;
/// errno ELIBACC, which no execve gives: the program is there, and its interpreter is not.
pub const NO_INTERPRETER: i32 = 79;
/// The executable can't be executed.
pub const STATUS_NOT_EXECUTABLE: u8 = 126;
/// The executable was not found.
pub const STATUS_NOT_FOUND: u8 = 127;
/// The time limit was reached.
pub const STATUS_TIME_LIMIT: u8 = 124;
/// What a shell reports of a process that died by SIGPIPE.
pub const STATUS_STDOUT_CLOSED: u8 = 141;

/// errno ENOENT on every Linux: the one that means "not found".
const ENOENT: i32 = 2;

impl Cause {
    /// The same of a PE that has been moved since it was launched: with the node where it is now.
    #[must_use]
    pub fn moved(mut self, now: impl Fn(Nid) -> Nid) -> Cause {
        if let Cause::PeExit { nid, .. }
        | Cause::PeSignal { nid, .. }
        | Cause::Abort { nid, .. }
        | Cause::NoFinalize { nid, .. }
        | Cause::Garbage { nid, .. }
        | Cause::NotMet { nid, .. }
        | Cause::SpawnedEnd { nid, .. }
        | Cause::OverMemory { nid, .. }
        | Cause::HostMemory { nid, .. } = &mut self
        {
            *nid = now(*nid);
        }
        self
    }

    /// aprun's exit status.
    ///
    /// ```
    /// # use psched_pure::{apteam::ending::Cause, machine::Nid};
    /// let abort = |code| Cause::Abort { rank: 0, nid: Nid(0), code };
    /// assert_eq!((abort(3).status(), abort(256).status(), abort(-1).status()), (3, 1, 255));
    /// assert_eq!(Cause::Kill { signal: 15, uid: 0 }.status(), 143);
    /// ```
    pub fn status(&self) -> u8 {
        let by_signal = |signal: i32| 128u8.saturating_add(u8::try_from(signal).unwrap_or(127));
        match self {
            Cause::PeExit { code, .. } | Cause::SpawnedEnd { code, .. } => *code,
            Cause::PeSignal { signal, .. } | Cause::Kill { signal, .. } => by_signal(*signal),
            Cause::Abort { code, .. } => (code.rem_euclid(256) as u8).max(1),
            Cause::NoFinalize { code, .. } => (*code).max(1),
            Cause::Garbage { .. } => 1,
            Cause::NotMet { .. } => STATUS_FAILED,
            // What the kernel kills, it kills with KILL; and so does cpr.
            Cause::OverMemory { .. } | Cause::HostMemory { .. } | Cause::Checkpointed { .. } => {
                by_signal(9)
            }
            Cause::TimeLimit { .. } => STATUS_TIME_LIMIT,
            Cause::StdoutClosed => STATUS_STDOUT_CLOSED,
            Cause::LaunchFailed { errno: ENOENT | NO_INTERPRETER, .. } => STATUS_NOT_FOUND,
            Cause::LaunchFailed { errno: NOT_THE_PROGRAM, .. } => STATUS_FAILED,
            Cause::LaunchFailed { .. } => STATUS_NOT_EXECUTABLE,
            Cause::FrontGone
            | Cause::ShepherdLost { .. }
            | Cause::NodeLost { .. }
            | Cause::NoRecord
            | Cause::Purge { .. } => STATUS_FAILED,
        }
    }

    /// Whose fault it is, if no PE of the application has run.
    pub fn fault(&self) -> Fault {
        match self {
            Cause::LaunchFailed { fault, .. } | Cause::ShepherdLost { fault, .. } => *fault,
            Cause::NodeLost { .. } => Fault::Node,
            _ => Fault::User,
        }
    }

    /// The node at which it happened, and what, in the words that follow the node's name: of a launch that
    /// has failed.
    pub fn failed_launch(&self) -> Option<(Nid, &str)> {
        match self {
            Cause::LaunchFailed { nid, text, .. }
            | Cause::ShepherdLost { nid, text, .. }
            | Cause::NodeLost { nid, text } => Some((*nid, text)),
            _ => None,
        }
    }

    /// Whether it ends the application: everything but a PE's plain exit.
    pub fn ends_application(&self) -> bool {
        !matches!(self, Cause::PeExit { .. })
    }
}

impl Cause {
    /// In words; `name` tells what a user is called, if it knows.
    ///
    /// ```
    /// # use psched_pure::apteam::ending::Cause;
    /// let kill = |uid| Cause::Kill { signal: 15, uid };
    /// let alice = |uid| (uid == 1000).then(|| "alice".to_owned());
    /// assert_eq!(kill(1000).words(alice), "killed by alice: Terminated (signal 15)");
    /// assert_eq!(kill(0).to_string(), "killed by root: Terminated (signal 15)");
    /// assert_eq!(kill(7).words(alice), "killed by user 7: Terminated (signal 15)");
    /// ```
    pub fn words(&self, name: impl Fn(u32) -> Option<String>) -> String {
        let who = |uid| match (name(uid), uid) {
            (Some(name), _) => name,
            (None, 0) => "root".to_owned(),
            (None, _) => format!("user {uid}"),
        };
        match self {
            Cause::Kill { signal, uid } => {
                format!("killed by {}: {}", who(*uid), signal_text(*signal))
            }
            Cause::Purge { uid } => format!("its node was purged by {} (psmgr purge)", who(*uid)),
            Cause::Checkpointed { uid } => {
                format!("checkpointed and ended by {} (cpr -k)", who(*uid))
            }
            _ => self.to_string(),
        }
    }

    /// In words; the application's owner is named.
    pub fn words_to(&self, owner: &Owner) -> String {
        let is_named = owner.name.bytes().any(|byte| !byte.is_ascii_digit());
        let known = |uid| uid == owner.uid && is_named;
        self.words(|uid| known(uid).then(|| owner.name.clone()))
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cause::PeExit { rank, nid, code } => {
                write!(f, "PE {rank} on NID {nid} exited with code {code}")
            }
            Cause::PeSignal { rank, nid, signal } => {
                write!(f, "PE {rank} on NID {nid} died: {}", signal_text(*signal))
            }
            Cause::Abort { rank, nid, code } => {
                write!(f, "PE {rank} on NID {nid} called MPI_Abort({code})")
            }
            Cause::NoFinalize { rank, nid, code } => write!(
                f,
                "PE {rank} on NID {nid} exited with code {code} without calling MPI_Finalize"
            ),
            Cause::Garbage { rank, nid, text } => write!(
                f,
                "PE {rank} on NID {nid} sent something on its PMI connection that is not PMI-1: {text}"
            ),
            Cause::NotMet { rank, nid, text } => write!(f, "PE {rank} on NID {nid} {text}"),
            Cause::SpawnedEnd { rank, nid, code } => write!(
                f,
                "a program that PE {rank} on NID {nid} has spawned ended with code {code}"
            ),
            Cause::Kill { .. } | Cause::Purge { .. } | Cause::Checkpointed { .. } => {
                f.write_str(&self.words(|_| None))
            }
            Cause::TimeLimit { limit } => {
                write!(f, "its time limit of {} s is over", limit.as_secs_f64())
            }
            Cause::FrontGone => f.write_str("its aprun has died"),
            Cause::StdoutClosed => f.write_str("aprun's standard output was closed"),
            Cause::LaunchFailed { rank, nid, text, .. } => {
                write!(f, "PE {rank} on NID {nid} could not be started: {text}")
            }
            Cause::ShepherdLost { nid, text, .. } => {
                write!(f, "apshepherd on NID {nid} was lost: {text}")
            }
            Cause::NodeLost { nid, text } => write!(f, "NID {nid} lost the application: {text}"),
            Cause::NoRecord => f.write_str("psched has no record of it"),
            Cause::OverMemory { nid, pes, per_pe, largest } => {
                f.write_str(&over_memory(*nid, *pes, *per_pe, *largest))
            }
            Cause::HostMemory { rank, nid } => f.write_str(&host_memory(*rank, *nid)),
        }
    }
}

/// What ends the line about a bad end that has ended the other PEs too (ALPS's wording).
pub const TERMINATION: &str = "; initiated application termination";

impl Cause {
    /// What a PE did that ends its application, and where: the line that is told at once, while the
    /// others are being ended. `None` for what no shepherd sees.
    pub fn notice(&self) -> Option<(Nid, String)> {
        let (nid, what) = match self {
            Cause::PeSignal { rank, nid, signal } => {
                (nid, format!("PE {rank} died: {}", signal_text(*signal)))
            }
            Cause::Abort { rank, nid, code } => {
                (nid, format!("PE {rank} called MPI_Abort({code})"))
            }
            Cause::NoFinalize { rank, nid, code } => {
                (nid, format!("PE {rank} exited with code {code} without calling MPI_Finalize"))
            }
            Cause::Garbage { rank, nid, text } => (
                nid,
                format!("PE {rank} sent something on its PMI connection that is not PMI-1: {text}"),
            ),
            Cause::NotMet { rank, nid, text } => (nid, format!("PE {rank} {text}")),
            Cause::SpawnedEnd { rank, nid, code } => {
                (nid, format!("a program that PE {rank} has spawned ended with code {code}"))
            }
            Cause::OverMemory { nid, pes, per_pe, largest } => {
                (nid, over_memory(*nid, *pes, *per_pe, *largest))
            }
            Cause::HostMemory { rank, nid } => (nid, host_memory(*rank, *nid)),
            _ => return None,
        };
        Some((*nid, format!("{what}{TERMINATION}")))
    }
}

/// `NID 2 went over 8G (2 PEs x 4G); largest: PE 3, 6.1G`.
fn over_memory(nid: Nid, pes: u32, per_pe: u64, largest: Option<(u32, u64)>) -> String {
    let limit = units::about(per_pe.saturating_mul(pes.into()));
    let (each, s) = (units::about(per_pe), if pes == 1 { "" } else { "s" });
    let largest = largest
        .map(|(rank, bytes)| format!("; largest: PE {rank}, {}", units::about(bytes)))
        .unwrap_or_default();
    format!("NID {nid} went over {limit} ({pes} PE{s} x {each}){largest}")
}

fn host_memory(rank: u32, nid: Nid) -> String {
    format!("the host of NID {nid} ran out of memory, and the kernel killed PE {rank}")
}

/// A signal as the closing lines name it: `Segmentation fault (signal 11)`.
pub fn signal_text(signal: i32) -> String {
    match signal_name(signal) {
        Some(name) => format!("{name} (signal {signal})"),
        None => format!("signal {signal}"),
    }
}

/// What a shell calls a death by this signal: `Killed`, `Segmentation fault`.
pub fn signal_name(signal: i32) -> Option<&'static str> {
    // Linux numbers on every architecture but alpha, mips, parisc and sparc.
    const NAMES: [&str; 31] = [
        "Hangup",
        "Interrupt",
        "Quit",
        "Illegal instruction",
        "Trace/breakpoint trap",
        "Aborted",
        "Bus error",
        "Floating point exception",
        "Killed",
        "User defined signal 1",
        "Segmentation fault",
        "User defined signal 2",
        "Broken pipe",
        "Alarm clock",
        "Terminated",
        "Stack fault",
        "Child exited",
        "Continued",
        "Stopped (signal)",
        "Stopped",
        "Stopped (tty input)",
        "Stopped (tty output)",
        "Urgent I/O condition",
        "CPU time limit exceeded",
        "File size limit exceeded",
        "Virtual timer expired",
        "Profiling timer expired",
        "Window changed",
        "I/O possible",
        "Power failure",
        "Bad system call",
    ];
    NAMES.get(usize::try_from(signal).ok()?.checked_sub(1)?).copied()
}

/// A cause and when it came, in nanoseconds of psched's CLOCK_MONOTONIC (on one host, of the
/// host's).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decisive {
    /// When.
    pub at_ns: u64,
    /// What.
    pub cause: Cause,
}

impl Decisive {
    /// The earlier of two; the first on a tie.
    pub fn earlier(first: Option<Decisive>, second: Option<Decisive>) -> Option<Decisive> {
        match (first, second) {
            (Some(a), Some(b)) => Some(if b.at_ns < a.at_ns { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

/// How a PE ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PeEnd {
    /// Its exit code.
    Exit(u8),
    /// The signal that ended it.
    Signal(i32),
}

/// How one PE has ended, for the table of `aprun --report`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeReport {
    /// Its process, by the number that it had on its host.
    pub pid: u32,
    /// From the moment in which all PEs of its host were let go until it had ended, by the clock on the
    /// wall: the time in which it was frozen counts.
    pub elapsed: Duration,
    /// How.
    pub end: PeEnd,
}

/// How many PEs ended in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndCount {
    /// Which way.
    pub end: PeEnd,
    /// How many.
    pub count: u32,
    /// psched ended them in consequence of something else.
    pub consequence: bool,
}

/// Resources used, summed over PEs (`max_rss_kib`: the largest).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// User CPU time.
    pub utime: Duration,
    /// System CPU time.
    pub stime: Duration,
    /// Largest resident set of a PE, in KiB.
    pub max_rss_kib: u64,
    /// Blocks read.
    pub inblocks: u64,
    /// Blocks written.
    pub outblocks: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Usage) -> Usage {
        Usage {
            utime: self.utime.saturating_add(other.utime),
            stime: self.stime.saturating_add(other.stime),
            max_rss_kib: self.max_rss_kib.max(other.max_rss_kib),
            inblocks: self.inblocks.saturating_add(other.inblocks),
            outblocks: self.outblocks.saturating_add(other.outblocks),
        }
    }
}

/// How one host's part of an application ended, or the whole of it when merged.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostEnd {
    /// Which application.
    pub key: Key,
    /// The nodes that it speaks of.
    pub nids: Vec<Nid>,
    /// PEs ran user code.
    pub launched: bool,
    /// The first bad thing seen there.
    pub first: Option<Decisive>,
    /// How the PEs ended, by end.
    pub ends: Vec<EndCount>,
    /// What they used.
    pub usage: Usage,
    /// Processes left behind by PEs, which psched ended.
    pub leftovers: u32,
    /// Some of the PEs' output was thrown away: aprun, or the host of PE 0, could not be reached.
    pub output_lost: bool,
    /// Time from go to empty, without the time in which it was frozen.
    pub run: Duration,
    /// The time from go to empty in which it was frozen.
    pub frozen: Duration,
    /// Those of the nodes where its apshepherd, or all of it, was lost before it could tell how it
    /// ended: what PEs wrote last there may be missing.
    pub lost: Vec<Nid>,
    /// The most memory in bytes that it had on all these nodes, as psched was told while it ran; 0: not
    /// measured.
    pub peak_memory: u64,
}

impl HostEnd {
    /// This end and another host's, as one. What a host has only heard of another it stamps by its own
    /// clock; what came first there that one knows.
    ///
    /// ```
    /// # use psched_pure::{apteam::ending::{Cause, Decisive, HostEnd}, machine::Nid};
    /// let end = |nid, at_ns, cause| HostEnd {
    ///     nids: vec![Nid(nid)],
    ///     first: Some(Decisive { at_ns, cause }),
    ///     ..HostEnd::default()
    /// };
    /// let own = end(4, 700, Cause::PeExit { rank: 7, nid: Nid(4), code: 103 });
    /// let heard = end(2, 600, Cause::PeSignal { rank: 6, nid: Nid(4), signal: 11 });
    /// assert_eq!(own.clone().and(heard.clone()).status(), 103);
    /// assert_eq!(heard.and(own).status(), 103);
    /// ```
    #[must_use]
    pub fn and(mut self, other: HostEnd) -> HostEnd {
        let there = self.there().max(other.there());
        self.first = match (self.has_heard_from(&other), other.has_heard_from(&self)) {
            (true, false) => other.first,
            (false, true) => self.first,
            _ => Decisive::earlier(self.first, other.first),
        };
        self.nids.extend(other.nids);
        self.lost.extend(other.lost);
        self.launched |= other.launched;
        for end in other.ends {
            count_end(&mut self.ends, end);
        }
        self.usage = self.usage.and(other.usage);
        self.leftovers = self.leftovers.saturating_add(other.leftovers);
        self.output_lost |= other.output_lost;
        self.run = self.run.max(other.run);
        // (Where hosts did not hear of the same turns, the longest run and the longest time without
        // a turn are of two hosts, and together more than it was there.)
        self.frozen = there.saturating_sub(self.run);
        self.peak_memory = self.peak_memory.saturating_add(other.peak_memory);
        self
    }

    /// From go to empty.
    fn there(&self) -> Duration {
        self.run.saturating_add(self.frozen)
    }

    /// With what psched has decided, or was the first to hear of; what it has only heard of a PE counts
    /// as hearsay does in [`HostEnd::and`].
    #[must_use]
    pub fn decided(mut self, doom: Option<Decisive>) -> HostEnd {
        let heard = HostEnd { first: doom, ..HostEnd::default() };
        if !heard.has_heard_from(&self) {
            self.first = Decisive::earlier(self.first, heard.first);
        }
        self
    }

    /// Its first bad thing is a PE's on the other's nodes, ended in consequence and stamped by a clock
    /// that is not quite the other's, which knows better what came first there.
    fn has_heard_from(&self, other: &HostEnd) -> bool {
        let named = self.first.as_ref().and_then(|first| first.cause.notice());
        other.first.is_some()
            && named.is_some_and(|(nid, _)| other.nids.contains(&nid) && !self.nids.contains(&nid))
    }

    /// aprun's exit status.
    pub fn status(&self) -> u8 {
        self.first.as_ref().map_or(0, |d| d.cause.status())
    }
}

/// Adds to the counts of ends, which stay sorted by end.
pub fn count_end(ends: &mut Vec<EndCount>, more: EndCount) {
    let same = ends.binary_search_by_key(&(more.end, more.consequence), |e| (e.end, e.consequence));
    match same {
        Ok(i) => ends[i].count = ends[i].count.saturating_add(more.count),
        Err(i) => ends.insert(i, more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One host was frozen in turns of others, and the other did not hear of them: it was there for
    /// 24 seconds.
    #[test]
    fn an_application_was_not_there_for_longer_than_each_of_its_hosts() {
        let seconds = Duration::from_secs;
        let of = |run, frozen| HostEnd {
            run: seconds(run),
            frozen: seconds(frozen),
            ..HostEnd::default()
        };
        let ends = [of(20, 4), of(24, 0), of(0, 0), of(19, 3)];
        for rotated in 0..ends.len() {
            let mut ends = ends.clone();
            ends.rotate_left(rotated);
            let all = ends.into_iter().reduce(HostEnd::and).expect("four");
            assert_eq!((all.run, all.frozen), (seconds(24), seconds(0)), "{rotated}");
        }
        let all = of(20, 4).and(of(19, 5));
        assert_eq!((all.run, all.frozen), (seconds(20), seconds(4)));
    }
}
