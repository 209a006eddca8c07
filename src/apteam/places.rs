//! At which place each of some applications stands among them.
//!
//! A plan names its members hundreds of times, and whoever reads it asks each time which of them
//! that is. Members stand by number, and mostly their numbers are close to each other: then a table
//! has the answer, else a search.
//!
//! ```
//! use psched::apteam::{Apid, places::Places};
//!
//! let places = Places::of([3, 4, 9].map(Apid));
//! let found = [3, 9, 5, 2, 10].map(|apid| places.get(Apid(apid)));
//! assert_eq!(found, [Some(0), Some(2), None, None, None]);
//! ```

use super::Apid;

/// Entries of a table: beyond that it would take longer to make than to search.
const SPAN_MAX: u64 = 8_192;

/// The places of some applications.
#[derive(Clone, Debug, Default)]
pub struct Places {
    members: Vec<Apid>,
    /// From the first of their numbers on, the place of each; empty: they are searched.
    table: Vec<u32>,
}

/// In a table: nobody's number.
const NOBODY: u32 = u32::MAX;

impl Places {
    /// Of these, who stand by number.
    pub fn of(members: impl IntoIterator<Item = Apid>) -> Places {
        let members: Vec<Apid> = members.into_iter().collect();
        debug_assert!(members.is_sorted());
        let (first, last) = (members.first().map_or(0, |a| a.0), members.last().map_or(0, |a| a.0));
        let mut table = Vec::new();
        if last - first < SPAN_MAX {
            table.resize((last - first) as usize + 1, NOBODY);
            for (place, apid) in (0..).zip(&members) {
                table[(apid.0 - first) as usize] = place;
            }
        }
        Places { members, table }
    }

    /// The place of one; none: it is not among them.
    pub fn get(&self, apid: Apid) -> Option<usize> {
        if self.table.is_empty() {
            return self.members.binary_search(&apid).ok();
        }
        let number = apid.0.checked_sub(self.members.first()?.0)?;
        let place = self.table.get(usize::try_from(number).ok()?)?;
        (*place != NOBODY).then_some(*place as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_place_is_what_a_search_finds(
            members in proptest::collection::btree_set(prop_oneof![0u64..40, 0..20_000u64], 0..20),
            others in proptest::collection::vec(0u64..20_000, 20),
        ) {
            let all: Vec<u64> = members.iter().copied().collect();
            let places = Places::of(members.into_iter().map(Apid));
            let asked: BTreeSet<u64> = others.into_iter().chain(0..45).chain(all.clone()).collect();
            for apid in asked {
                let place = all.iter().position(|other| *other == apid);
                prop_assert_eq!(places.get(Apid(apid)), place);
            }
        }
    }
}
