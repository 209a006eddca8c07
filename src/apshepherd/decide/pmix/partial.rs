//! Fences of some PEs of an application, which are on several hosts.
//!
//! PEs of what they have spawned may take part, too: where they are, those are who have spawned them.
//!
//! They are gathered at the host of the lowest rank that takes part: the others ask it for the end, with what their PEs
//! give. Fences of the same PEs follow each other, and each host counts them. Two ends are kept, for hosts whose answer was
//! lost: while some are in the next fence, others may not have heard the end of the one before.

use crate::variables::units::format_size;
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};

/// So many sets of PEs may have fences: a program has a few, or one for each pair of PEs that MPI_Comm_connect joins. (None
/// of the application's own is forgotten: its hosts count its fences.)
const SETS_MAX: usize = 16_384;
/// Ranks of all of them.
const RANKS_MAX: usize = 1 << 20;
/// Bytes of all ends that are kept; and of what waits for PEs that are not in their fences yet.
const KEPT_MAX: u64 = 64 * 1024 * 1024;

/// So many programs that were spawned have ended before the fences of the first are forgotten: no host asks about them
/// any more.
const ENDED_KEPT: usize = 256;
/// The same bound, where all sets together have very many ranks.
const ENDED_KEPT_LEAST: usize = 4;

/// Who is to hear of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whom {
    /// The PEs of this host, in appmix's fence of this number.
    Here(u64),
    /// The host of this PE, which has asked by this number.
    Host(u32, u64),
}

/// The PEs that take part in a fence.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Who {
    /// PEs of the application, which count up: those that take part, and those that have spawned others that do.
    pub ranks: Vec<u32>,
    /// These others, those of each program in one: its namespace, a colon, its ranks.
    pub spawned: Vec<Vec<u8>>,
}

impl Who {
    /// Whether PEs of this namespace take part.
    fn has(&self, space: &str) -> bool {
        let is_of = |pes: &Vec<u8>| {
            pes.strip_prefix(space.as_bytes()).is_some_and(|rest| rest.starts_with(b":"))
        };
        self.spawned.iter().any(is_of)
    }
}

/// The PEs of a host, who are in a fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrival<'a> {
    /// The PEs that take part.
    pub who: &'a Who,
    /// Which fence of these it is, from 1.
    pub turn: u64,
    /// Those of the host.
    pub here: &'a [u32],
    /// Who is to hear of the end.
    pub whom: Whom,
    /// What they give.
    pub data: Bytes,
}

/// The fences of one set of PEs.
#[derive(Clone, Debug, Default)]
struct Set {
    /// How many the PEs of this host have entered.
    entered: u64,
    /// (Of those that are gathered here.) The one that is, or was last.
    turn: u64,
    /// Hosts that are in it, by their lowest PE that is.
    arrived: BTreeMap<u32, (Whom, Bytes)>,
    /// PEs of these.
    count: usize,
    /// It is over: what all have given.
    end: Option<Bytes>,
    /// What all had given to the one before.
    before: Option<Bytes>,
}

impl Set {
    /// Bytes that those have given who wait for others.
    fn waiting(&self) -> u64 {
        self.arrived.values().map(|(_, data)| size(data)).sum()
    }
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Partial {
    sets: BTreeMap<Who, Set>,
    ranks: usize,
    /// Namespaces whose PEs have ended, the last ones.
    ended: VecDeque<String>,
    /// Bytes of all ends that are kept.
    kept: u64,
    /// Bytes of all that waits.
    waiting: u64,
}

impl Partial {
    fn set(&mut self, who: &Who) -> Result<&mut Set, String> {
        if !self.sets.contains_key(who) {
            self.ranks += who.ranks.len();
            if self.sets.len() >= SETS_MAX || self.ranks > RANKS_MAX {
                return Err(format!(
                    "has had fences of PMIx of too many sets of PEs: more than {SETS_MAX} sets, or sets of more than {RANKS_MAX} PEs together"
                ));
            }
        }
        Ok(self.sets.entry(who.clone()).or_default())
    }

    /// The PEs of this namespace have ended. Their fences are forgotten after a while, when no host asks for them again.
    pub fn ended(&mut self, space: String) {
        self.ended.push_back(space);
        while self.ended.len() > ENDED_KEPT
            || self.ended.len() > ENDED_KEPT_LEAST && self.ranks > RANKS_MAX / 4
        {
            let Some(oldest) = self.ended.pop_front() else { return };
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, space: &str) {
        let Partial { sets, ranks, kept, waiting, .. } = self;
        sets.retain(|who, set| {
            let stays = !who.has(space);
            if !stays {
                *ranks -= who.ranks.len();
                *kept -= set.before.iter().chain(&set.end).map(size).sum::<u64>();
                *waiting -= set.waiting();
            }
            stays
        });
    }

    /// The PEs of this host enter the next fence of this set: which it is.
    ///
    /// # Errors
    /// Why the application can't go on.
    pub fn enter(&mut self, who: &Who) -> Result<u64, String> {
        let set = self.set(who)?;
        set.entered += 1;
        Ok(set.entered)
    }

    /// (At the host of the lowest rank.) PEs of a host are in one, or say so again. Once all are: what they have given,
    /// which is `most` bytes at most, and who is to hear of it.
    ///
    /// # Errors
    /// Why the application can't go on.
    pub fn arrive(
        &mut self,
        arrival: Arrival<'_>,
        most: u64,
    ) -> Result<Option<(Bytes, Vec<Whom>)>, String> {
        let Arrival { who, turn, here, whom, data } = arrival;
        self.set(who)?;
        let Partial { sets, kept, waiting, .. } = self;
        let Some(set) = sets.get_mut(who) else { return Ok(None) };
        if turn < set.turn {
            // (Of one before that it has heard the answer: it was in the next.)
            let before = set.before.clone().filter(|_| turn + 1 == set.turn);
            return Ok(before.map(|end| (end, vec![whom])));
        }
        let Some(lowest) = here.first().copied() else { return Ok(None) };
        if turn > set.turn {
            *kept -= set.before.iter().map(size).sum::<u64>();
            *waiting -= set.waiting();
            let before = set.end.take();
            *set = Set { entered: set.entered, turn, before, ..Set::default() };
        }
        if let Some(end) = &set.end {
            return Ok(Some((end.clone(), vec![whom])));
        }
        *waiting += size(&data);
        match set.arrived.insert(lowest, (whom, data)) {
            Some((_, again)) => *waiting -= size(&again),
            None => set.count += here.len(),
        }
        if set.count < who.ranks.len() {
            return match *waiting > KEPT_MAX {
                true => Err(format!(
                    "and others give more than {} to fences of PMIx that not all of their PEs have entered",
                    format_size(KEPT_MAX)
                )),
                false => Ok(None),
            };
        }
        let given = set.waiting();
        *waiting -= given;
        let arrived = std::mem::take(&mut set.arrived);
        if given > most {
            return Err(too_large(most));
        }
        if *kept > KEPT_MAX {
            let most = format_size(KEPT_MAX);
            return Err(format!(
                "gives more than {most} to fences of PMIx of different sets of PEs"
            ));
        }
        let mut end = BytesMut::with_capacity(given as usize);
        arrived.values().for_each(|(_, data)| end.extend_from_slice(data));
        let end = end.freeze();
        // (So it may exceed KEPT_MAX by one fence.)
        *kept += given;
        set.end = Some(end.clone());
        Ok(Some((end, arrived.into_values().map(|(whom, _)| whom).collect())))
    }
}

/// Why an application can't go on whose PEs give more than this to one.
pub(super) fn too_large(most: u64) -> String {
    let most = format_size(most);
    format!("and others give more than {most} to a fence of PMIx of some PEs")
}

fn size(data: &Bytes) -> u64 {
    data.len() as u64
}
