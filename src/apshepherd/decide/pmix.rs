//! PMIx, by which the PEs of an Open MPI program find one another, without its wire protocol.
//!
//! PEs talk to a server of the PMIx library ("appmix"), a process of the apshepherd's own: it serves the PEs of this
//! host and leaves to us what concerns others. What it says and is told is [`FromMix`] and [`ToMix`].
//!
//! ```text
//! PEs            appmix                    apshepherd                 other hosts
//!  --fence-->     all PEs here are in it
//!                 Fence 1, what they gave -->  barrier with entries -->
//!                                          <-- what all have given --
//!  <--out---  <-- FenceOver 1
//! ```
//!
//! A fence is a barrier with data that nobody but the library understands. One of all PEs goes through the barriers of
//! PMI-1 ([`super::pmi`]), which the deaths of apinits do no harm: what a host gives is cut into entries, whose keys
//! begin with a zero byte, as no key of PMI-1 does. A library has several fences in the air at the same time only if its
//! program has: they wait for one another in the order in which they came.
//!
//! A fence of some PEs is over at once if all of them are here.

use super::pmi::Progress;
use crate::apteam::protocol::peers::PmiEntry;
use crate::variables::raise;
use crate::variables::units::format_size;
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};

/// Bytes that the PEs of one host may give to one fence: they must fit in a frame.
pub const GIVEN_MAX: usize = 2 * 1024 * 1024 - 1024;
/// Bytes in one [`ToMix::FenceOver`].
const OVER_PIECE: usize = 1024 * 1024;
/// Bytes of one entry's value.
const PIECE: usize = 64 * 1024;
/// Fences that wait for others: a program has one or two.
const WAITING_MAX: usize = 64;

/// PMIx's word for success.
pub const SUCCESS: i32 = 0;
/// Its word for what a server does not do.
pub const NOT_SUPPORTED: i32 = -47;

/// What appmix says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromMix {
    /// It serves: by these variables (NAME=VALUE) PEs find it.
    Serves {
        /// The variables, that of the rank apart.
        environment: Vec<Vec<u8>>,
        /// Its release, in the library's words.
        version: String,
    },
    /// It can't.
    Fails {
        /// The library is not here.
        missing: bool,
        /// Why, in the words of the loader or the library.
        text: String,
    },
    /// A PE has begun with PMIx.
    Connected(u32),
    /// A PE has ended with it.
    Finalized(u32),
    /// A PE aborts the application.
    Abort {
        /// Which.
        rank: u32,
        /// Its status.
        code: i32,
    },
    /// All PEs of this host that take part are in a fence.
    Fence {
        /// By which it is answered.
        number: u64,
        /// Who takes part; empty: all PEs of the application.
        ranks: Vec<u32>,
        /// What they give.
        data: Bytes,
    },
    /// What this PE of another host has put is asked for.
    Modex {
        /// By which it is answered.
        number: u64,
        /// Whose.
        rank: u32,
    },
    /// The answer to [`ToMix::LookUp`].
    Found {
        /// Of which question.
        number: u64,
        /// How it went, in PMIx's numbers.
        status: i32,
        /// What the PE has put.
        data: Bytes,
    },
}

/// What appmix is to know of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The name of the PMIx namespace.
    pub name: String,
    /// Its PEs.
    pub width: u32,
    /// On which hosts they are ([`super::mapping`]).
    pub mapping: String,
    /// The first PE of each program but the first.
    pub firsts: Vec<u32>,
    /// The PEs that it serves, which count up.
    pub ranks: Vec<u32>,
    /// A folder that it makes, for its files and those of PEs, and removes in the end.
    pub folder: String,
}

/// What appmix is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToMix {
    /// Before anything else.
    Begin(Job),
    /// The fence is over.
    FenceOver {
        /// Which.
        number: u64,
        /// How it went, in PMIx's numbers.
        status: i32,
        /// What all have given, or a piece of it.
        data: Bytes,
        /// No further piece follows.
        last: bool,
    },
    /// What the PE of another host has put.
    ModexFound {
        /// Of which question.
        number: u64,
        /// How it went, in PMIx's numbers.
        status: i32,
        /// What it has put.
        data: Bytes,
    },
    /// Look up what this PE of this host has put, and wait for it if it has not.
    LookUp {
        /// By which it is answered.
        number: u64,
        /// Whose.
        rank: u32,
    },
}

/// What follows from what appmix says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is told.
    Tell(ToMix),
    /// All PEs of this host are in the barrier, with these entries.
    Enter(Vec<PmiEntry>),
    /// MPI_Abort.
    Abort {
        /// Of this PE.
        rank: u32,
        /// With this code.
        code: i32,
    },
    /// The application can't go on: why.
    Garbage(String),
    /// A line for the user.
    Notice {
        /// About this PE.
        rank: u32,
        /// What follows its name.
        text: String,
    },
}

/// PMIx of one host's part of an application.
#[derive(Clone, Debug)]
pub struct Pmix {
    progress: BTreeMap<u32, Progress>,
    /// No other host has PEs.
    alone: bool,
    /// Bytes that all PEs may give to a fence (variable `pmi_max`).
    most: u64,
    /// Fences of all PEs, the first of which is in the barrier.
    fences: VecDeque<(u64, Bytes)>,
    /// It was told that something is not served.
    told: bool,
}

impl Pmix {
    /// For PEs of these ranks.
    pub fn new(alone: bool, most: u64, ranks: impl IntoIterator<Item = u32>) -> Pmix {
        let progress = ranks.into_iter().map(|rank| (rank, Progress::Outside)).collect();
        Pmix { progress, alone, most, fences: VecDeque::new(), told: false }
    }

    /// How far a PE is.
    pub fn progress(&self, rank: u32) -> Progress {
        self.progress.get(&rank).copied().unwrap_or_default()
    }

    /// Takes what appmix says.
    pub fn hear(&mut self, said: FromMix) -> Vec<Effect> {
        match said {
            // (How it begins is the host's business.)
            FromMix::Serves { .. } | FromMix::Fails { .. } => Vec::new(),
            FromMix::Connected(rank) => self.is_now(rank, Progress::Inside),
            FromMix::Finalized(rank) => self.is_now(rank, Progress::Finalized),
            FromMix::Abort { rank, code } => vec![Effect::Abort { rank, code }],
            FromMix::Fence { number, ranks, data } => self.fence(number, &ranks, data),
            FromMix::Modex { number, .. } => {
                let text = "asks for what a PE of another host has put, which psched does not serve: leave out \
                            OMPI_MCA_pmix_base_async_modex";
                let answer =
                    ToMix::ModexFound { number, status: NOT_SUPPORTED, data: Bytes::new() };
                let own = self.progress.keys().next().copied().unwrap_or_default();
                self.not_served(own, text, answer)
            }
            FromMix::Found { .. } => Vec::new(),
        }
    }

    fn is_now(&mut self, rank: u32, progress: Progress) -> Vec<Effect> {
        if let Some(now) = self.progress.get_mut(&rank) {
            *now = progress;
        }
        Vec::new()
    }

    fn fence(&mut self, number: u64, ranks: &[u32], data: Bytes) -> Vec<Effect> {
        let here = !ranks.is_empty() && ranks.iter().all(|rank| self.progress.contains_key(rank));
        if self.alone || here {
            let over = ToMix::FenceOver { number, status: SUCCESS, data, last: true };
            return vec![Effect::Tell(over)];
        }
        if !ranks.is_empty() {
            let rank = ranks.iter().find(|rank| self.progress.contains_key(rank));
            let text = "calls a fence of some PEs of several hosts, which psched does not serve: let all PEs take part";
            let (status, data) = (NOT_SUPPORTED, Bytes::new());
            let answer = ToMix::FenceOver { number, status, data, last: true };
            return self.not_served(rank.copied().unwrap_or_default(), text, answer);
        }
        let most = self.most.min(GIVEN_MAX as u64);
        if data.len() as u64 > most {
            let most = format_size(most);
            let cure = raise("pmi_max", &most);
            return vec![Effect::Garbage(format!(
                "and the others on its host give more than {most} to a fence of PMIx: run fewer PEs on each host, or {cure}"
            ))];
        }
        if self.fences.len() >= WAITING_MAX {
            return vec![Effect::Garbage(format!(
                "has more than {WAITING_MAX} fences of PMIx at the same time"
            ))];
        }
        self.fences.push_back((number, data));
        self.enter_if_first()
    }

    fn enter_if_first(&self) -> Vec<Effect> {
        match &self.fences.front() {
            Some((_, data)) if self.fences.len() == 1 => vec![Effect::Enter(self.entries(data))],
            _ => Vec::new(),
        }
    }

    /// What this host gives, in entries: their keys count up, behind the lowest rank of the host.
    fn entries(&self, data: &Bytes) -> Vec<PmiEntry> {
        let lowest = self.progress.keys().next().copied().unwrap_or_default();
        let piece = |index: usize| {
            let mut key = BytesMut::from(&[0][..]);
            key.extend_from_slice(&lowest.to_be_bytes());
            key.extend_from_slice(&(index as u32).to_be_bytes());
            let from = index * PIECE;
            let value = data.slice(from..data.len().min(from + PIECE));
            PmiEntry { key: key.freeze(), value }
        };
        // (At least one: a barrier of PMI-1 has none of these.)
        (0..data.len().div_ceil(PIECE).max(1)).map(piece).collect()
    }

    /// The barrier is complete on all hosts: what all have given.
    pub fn fence_over(&mut self, mut given: Vec<PmiEntry>) -> Vec<Effect> {
        let Some((number, _)) = self.fences.pop_front() else { return Vec::new() };
        // The pieces of a host follow each other.
        given.sort_by(|a, b| a.key.cmp(&b.key));
        let mut data = BytesMut::new();
        given.iter().for_each(|entry| data.extend_from_slice(&entry.value));
        let data = data.freeze();
        let pieces = data.len().div_ceil(OVER_PIECE).max(1);
        let piece = |index: usize| {
            let data = data.slice(index * OVER_PIECE..data.len().min((index + 1) * OVER_PIECE));
            let last = index + 1 == pieces;
            Effect::Tell(ToMix::FenceOver { number, status: SUCCESS, data, last })
        };
        let mut effects: Vec<Effect> = (0..pieces).map(piece).collect();
        if let Some((_, data)) = self.fences.front() {
            effects.push(Effect::Enter(self.entries(data)));
        }
        effects
    }

    /// It is told once why its program will fail.
    fn not_served(&mut self, rank: u32, text: &str, answer: ToMix) -> Vec<Effect> {
        let mut effects = vec![Effect::Tell(answer)];
        if !std::mem::replace(&mut self.told, true) {
            effects.push(Effect::Notice { rank, text: text.to_owned() });
        }
        effects
    }
}

/// Whether an entry of a barrier is a piece of a fence.
pub fn is_of_fence(entry: &PmiEntry) -> bool {
    entry.key.first() == Some(&0)
}

#[cfg(test)]
mod tests;
