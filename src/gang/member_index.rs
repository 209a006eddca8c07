//! The index of an application among the members of a slice plan.
//!
//! A plan names its members hundreds of times, and each of its readers needs the index of the member
//! each time. Members are in the order of their numbers. A table answers where these numbers are close
//! to each other, as they mostly are; a binary search elsewhere.
//!
//! ```
//! use psched_pure::apteam::Apid;
//! use psched_pure::gang::member_index::MemberIndex;
//!
//! let members = MemberIndex::of([3, 4, 9].map(Apid));
//! let found = [3, 9, 5, 2, 10].map(|apid| members.get(Apid(apid)));
//! assert_eq!(found, [Some(0), Some(2), None, None, None]);
//! ```

use crate::apteam::Apid;
use serde::{Deserialize, Serialize};

/// Entries of a table at most: to make a larger one takes longer than to search.
const SPAN_MAX: u64 = 8_192;

/// The members of a plan, by number.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MemberIndex {
    members: Vec<Apid>,
    /// The index of each, by its number less the first member's; empty: they are searched.
    table: Vec<u32>,
}

/// In a table: no member has this number.
const NO_MEMBER: u32 = u32::MAX;

impl MemberIndex {
    /// Indexes these members, which are in the order of their numbers.
    pub fn of(members: impl IntoIterator<Item = Apid>) -> MemberIndex {
        let members: Vec<Apid> = members.into_iter().collect();
        debug_assert!(members.is_sorted());
        let (first, last) = (members.first().map_or(0, |a| a.0), members.last().map_or(0, |a| a.0));
        let mut table = Vec::new();
        if last - first < SPAN_MAX {
            table.resize((last - first) as usize + 1, NO_MEMBER);
            for (index, apid) in (0..).zip(&members) {
                table[(apid.0 - first) as usize] = index;
            }
        }
        MemberIndex { members, table }
    }

    /// The index of an application; `None`: it is no member.
    pub fn get(&self, apid: Apid) -> Option<usize> {
        if self.table.is_empty() {
            return self.members.binary_search(&apid).ok();
        }
        let number = apid.0.checked_sub(self.members.first()?.0)?;
        let index = self.table.get(usize::try_from(number).ok()?)?;
        (*index != NO_MEMBER).then_some(*index as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn an_index_is_what_a_search_finds(
            members in proptest::collection::btree_set(prop_oneof![0u64..40, 0..20_000u64], 0..20),
            others in proptest::collection::vec(0u64..20_000, 20),
        ) {
            let all: Vec<u64> = members.iter().copied().collect();
            let indexed = MemberIndex::of(members.into_iter().map(Apid));
            let asked: BTreeSet<u64> = others.into_iter().chain(0..45).chain(all.clone()).collect();
            for apid in asked {
                let index = all.iter().position(|other| *other == apid);
                prop_assert_eq!(indexed.get(Apid(apid)), index);
            }
        }
    }
}
