//! What users' programs do: run, write, meet in MPI's barriers, leave children behind, and end.

use super::{MS, SECOND};
use crate::apteam::Key;
use crate::apteam::ending::{Cause, PeEnd};
use crate::machine::Nid;
use bytes::Bytes;
use fastrand::Rng;
use std::collections::VecDeque;
use std::sync::LazyLock;

/// What a PE does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Computes for so long.
    Work(u64),
    /// Reads its stdin to the end.
    Read,
    /// Writes so many bytes to its stdout.
    Say(usize),
    /// MPI_Init.
    Init,
    /// Tells the others of itself.
    Put,
    /// Waits for all.
    Barrier,
    /// Reads what another rank told in this round.
    Get,
    /// MPI_Finalize.
    Finalize,
    /// Starts a process that lives for so long.
    Leave { lives: u64, ignores_term: bool },
    /// MPI_Abort.
    Abort(i32),
    /// Ends by itself.
    End(PeEnd),
}

/// What a process still has to do.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub steps: VecDeque<Step>,
    /// The answer that it waits for on its PMI connection.
    pub waits: Option<&'static str>,
    /// Barriers that it has been through.
    pub round: u32,
    /// Bytes that it has written.
    pub said: u64,
    /// When it does its next step, if it waits for nobody.
    pub wakes_at: u64,
    /// As which application it was executed: its PMI names are of that one for good.
    pub born_as: Key,
}

/// One PE of a plan.
#[derive(Clone, Debug)]
pub struct PePlan {
    pub steps: Vec<Step>,
    pub ignores_term: bool,
    /// It can't be executed.
    pub bad: Option<i32>,
}

/// A program as its user wrote it.
#[derive(Clone, Debug)]
pub struct Plan {
    pub mpi: bool,
    /// Bytes that its user types.
    pub stdin: u64,
    pub pes: Vec<PePlan>,
}

impl Plan {
    /// It runs until somebody ends it.
    pub fn is_endless(&self) -> bool {
        let steps = self.pes.first().map(|pe| &pe.steps);
        steps.is_none_or(|steps| {
            steps.iter().any(|step| matches!(step, Step::Work(time) if *time > 600 * SECOND))
        })
    }

    /// Some program of so many PEs.
    pub fn any(rng: &mut Rng, width: u32) -> Plan {
        let mpi = rng.u32(0..3) == 0;
        let rounds = if mpi { rng.u32(1..=3) } else { 0 };
        let length = match rng.u32(0..12) {
            0..4 => rng.u64(MS..200 * MS),
            4..10 => rng.u64(200 * MS..20 * SECOND),
            10 => rng.u64(20 * SECOND..90 * SECOND),
            _ => 3_600 * SECOND,
        };
        let bad = (rng.u32(0..40) == 0).then(|| if rng.bool() { 2 } else { 8 });
        let bad_rank = rng.u32(0..width);
        let trouble = rng.u32(0..4) == 0;
        let chatty = rng.u32(0..120) == 0;
        let stdin = if rng.u32(0..6) == 0 { rng.u64(1..90_000) } else { 0 };
        let pes = (0..width).map(|rank| {
            let mut steps = Vec::new();
            if stdin > 0 && rank == 0 {
                steps.push(Step::Read);
            }
            let mut work = |steps: &mut Vec<Step>, parts: u64| {
                steps.push(Step::Work(rng_part(rng, length / parts)));
            };
            if mpi {
                steps.push(Step::Init);
                for _ in 0..rounds {
                    steps.extend([Step::Put, Step::Barrier, Step::Get, Step::Barrier]);
                    work(&mut steps, u64::from(rounds));
                }
            } else {
                work(&mut steps, 1);
            }
            for _ in 0..rng.u32(0..3) {
                steps.push(Step::Say(rng.usize(1..300)));
            }
            if chatty && rank == 0 {
                steps.extend((0..60).map(|_| Step::Say(64 * 1024)));
            }
            if rng.u32(0..12) == 0 {
                let lives = rng.u64(MS..4 * SECOND);
                steps.push(Step::Leave { lives, ignores_term: rng.u32(0..3) == 0 });
                // One that lives on at the end is what matters.
                steps.push(Step::Work(rng.u64(0..20 * MS)));
            }
            let end = if trouble && rng.u32(0..3) == 0 {
                match rng.u32(0..5) {
                    0 | 1 => Step::End(PeEnd::Exit(rng.u8(1..120))),
                    2 => Step::End(PeEnd::Signal(if rng.bool() { 11 } else { 6 })),
                    3 if mpi => Step::Abort(rng.i32(-3..300)),
                    // Leaves without MPI_Finalize.
                    3 => Step::End(PeEnd::Exit(7)),
                    _ => Step::End(PeEnd::Exit(0)),
                }
            } else {
                if mpi {
                    steps.push(Step::Finalize);
                }
                Step::End(PeEnd::Exit(0))
            };
            steps.push(end);
            PePlan {
                steps,
                ignores_term: rng.u32(0..10) == 0,
                bad: bad.filter(|_| rank == bad_rank),
            }
        });
        Plan { mpi, stdin, pes: pes.collect() }
    }
}

fn rng_part(rng: &mut Rng, length: u64) -> u64 {
    rng.u64(length / 2..=length.max(2))
}

/// Bytes after which the pattern of what PEs write begins again; no piece is longer.
const PATTERN: usize = 64 * 1024;

/// The pattern twice, so that every piece of it lies in one.
static PATTERNS: LazyLock<Bytes> = LazyLock::new(|| {
    let at = |i: usize| ((i % PATTERN) * 7 + ((i % PATTERN) >> 8)) as u8;
    (0..2 * PATTERN).map(at).collect()
});

/// The rank, so to speak, that writes what users type.
pub const STDIN: u32 = 7_919;

fn begin(rank: u32, at: u64) -> usize {
    ((u64::from(rank) * 31 + at) % PATTERN as u64) as usize
}

/// Byte number `at` of what a rank writes.
pub fn byte(rank: u32, at: u64) -> u8 {
    PATTERNS[begin(rank, at)]
}

/// A piece of what a rank writes, at most [`PATTERN`] bytes: nothing is copied.
pub fn piece(rank: u32, from: u64, count: usize) -> Bytes {
    let begin = begin(rank, from);
    PATTERNS.slice(begin..begin + count.min(PATTERN))
}

/// The status that a PE's own end gives, if it is a bad one. `inside`: between MPI's init and
/// finalize.
pub fn status_of(end: PeEnd, inside: bool) -> Option<u8> {
    let (rank, nid) = (0, Nid(0));
    let cause = match end {
        PeEnd::Signal(signal) => Cause::PeSignal { rank, nid, signal },
        PeEnd::Exit(code) if inside => Cause::NoFinalize { rank, nid, code },
        PeEnd::Exit(0) => return None,
        PeEnd::Exit(code) => Cause::PeExit { rank, nid, code },
    };
    Some(cause.status())
}
