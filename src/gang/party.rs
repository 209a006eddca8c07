//! Who runs in one slice.
//!
//! # The problem
//!
//! One gang has its turn. Processors that it leaves idle are to be used, by as many others as can run
//! beside it, and those who have waited longer come first.
//!
//! # The approach
//!
//! Everybody of the component is tried once, in order of turn: who competes with nobody taken so far,
//! and fits in the memory of its nodes beside them, is taken too. Nobody who could run is then left
//! out. Each that is taken marks its competitors, so that the next look costs a bit; memory is
//! counted on crowded nodes only, since everywhere else all fit. A plan has hundreds of slices, so who
//! competes is asked once for all of them, and members go by their place in the component.

use super::competition::Competition;
use crate::apteam::Apid;
use fixedbitset::FixedBitSet;
use std::collections::BTreeMap;

/// The parties of one component. Members are named by their place in it.
#[derive(Debug)]
pub(super) struct Parties<'a> {
    competition: &'a Competition,
    members: Vec<Member>,
    /// The competitors of each as a set.
    rows: Vec<FixedBitSet>,
    barred: FixedBitSet,
}

#[derive(Debug, Default)]
struct Member {
    /// It takes turns.
    takes: bool,
    /// Its nodes on which not everybody fits at once, and its bytes there.
    crowded: Vec<(u32, u64)>,
    /// The gangs that may keep it from running, where these are not its competitors only.
    rivals: Option<FixedBitSet>,
}

impl<'a> Parties<'a> {
    /// Of these, who stand by number, as they are now.
    pub fn new(competition: &'a Competition, members: &[Apid]) -> Parties<'a> {
        let rows = competition.among(members);
        let of = |apid: &Apid| {
            let crowded: Vec<(u32, u64)> = competition.crowded(*apid).collect();
            let rivals = (!crowded.is_empty()).then(|| {
                let rivals = competition.rivals(*apid).into_iter();
                let mut set = FixedBitSet::with_capacity(members.len());
                set.extend(rivals.filter_map(|rival| members.binary_search(&rival).ok()));
                set
            });
            Member { takes: competition.gang(*apid).is_some(), crowded, rivals }
        };
        let all: Vec<Member> = members.iter().map(of).collect();
        let barred = FixedBitSet::with_capacity(all.len());
        Parties { competition, members: all, rows, barred }
    }

    /// Whether it takes turns.
    pub fn takes(&self, member: u32) -> bool {
        self.members[member as usize].takes
    }

    /// The gangs that may keep it from running.
    pub fn rivals(&self, member: u32) -> &FixedBitSet {
        self.members[member as usize].rivals.as_ref().unwrap_or(&self.rows[member as usize])
    }

    /// The party of those who stand in `first`, and then of all others but those who are `out`, in
    /// order of `key`: first the leader, then the promoted. Empty only where nobody of them takes turns. (Most
    /// of the others compete with one of the first, and need not be put in order.)
    ///
    /// A leader whose memory is more than a node has runs all the same, alone on that node: it was
    /// admitted.
    pub fn party_and<K: Ord>(
        &mut self,
        first: impl IntoIterator<Item = u32>,
        out: &FixedBitSet,
        key: impl Fn(u32) -> K,
    ) -> Vec<u32> {
        let mut taken = Taken::default();
        self.barred.clear();
        self.take(first, &mut taken);
        self.barred.union_with(out);
        let free = self.barred.zeroes().map(|member| member as u32);
        let mut others: Vec<(K, u32)> = Vec::with_capacity(self.barred.count_zeroes(..));
        others.extend(free.map(|member| (key(member), member)));
        others.sort_unstable();
        self.take(others.into_iter().map(|(_, member)| member), &mut taken);
        taken.members
    }

    fn take(&mut self, order: impl IntoIterator<Item = u32>, taken: &mut Taken) {
        for number in order {
            let member = &self.members[number as usize];
            if self.barred.contains(number as usize) || !member.takes {
                continue;
            }
            let used = &mut taken.used;
            let fits = member.crowded.iter().all(|(node, bytes)| {
                let room =
                    |used: &u64| used.saturating_add(*bytes) <= self.competition.memory(*node);
                used.get(node).is_none_or(room)
            });
            if !fits {
                continue;
            }
            for (node, bytes) in &member.crowded {
                // (Who needs nothing there still sits there.)
                let used = used.entry(*node).or_default();
                *used = used.saturating_add(*bytes);
            }
            self.barred.insert(number as usize);
            self.barred.union_with(&self.rows[number as usize]);
            taken.members.push(number);
        }
    }
}

/// A party that is being made, and the bytes that it needs on crowded nodes.
#[derive(Default)]
struct Taken {
    members: Vec<u32>,
    used: BTreeMap<u32, u64>,
}
