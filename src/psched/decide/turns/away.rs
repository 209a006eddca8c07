//! Nodes that went, and until when plans wait for them.

use crate::machine::Nid;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Nodes that are away. With a thousand hosts most may be, and each that comes back changes plans: so it is known
/// both when each is given up and who is given up last.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(Nid, u64)>", into = "Vec<(Nid, u64)>")]
pub(super) struct Away {
    /// Until when each is waited for, in nanoseconds of psched's monotonic clock.
    until: BTreeMap<Nid, u64>,
    /// The same, in order of time.
    by_time: BTreeSet<(u64, Nid)>,
}

impl From<Away> for Vec<(Nid, u64)> {
    fn from(away: Away) -> Vec<(Nid, u64)> {
        away.until.into_iter().collect()
    }
}

impl From<Vec<(Nid, u64)>> for Away {
    fn from(all: Vec<(Nid, u64)>) -> Away {
        let mut away = Away::default();
        all.into_iter().for_each(|(nid, until)| away.insert(nid, until));
        away
    }
}

impl Away {
    pub fn is_empty(&self) -> bool {
        self.until.is_empty()
    }

    pub fn len(&self) -> usize {
        self.until.len()
    }

    /// This one is waited for until then.
    pub fn insert(&mut self, nid: Nid, until: u64) {
        self.remove(nid);
        self.until.insert(nid, until);
        self.by_time.insert((until, nid));
    }

    /// It is back.
    pub fn remove(&mut self, nid: Nid) {
        if let Some(until) = self.until.remove(&nid) {
            self.by_time.remove(&(until, nid));
        }
    }

    /// Those that have not come by now are not waited for any more.
    pub fn give_up(&mut self, now_ns: u64) {
        while let Some((until, nid)) = self.by_time.first().copied().filter(|(at, _)| *at <= now_ns)
        {
            self.by_time.remove(&(until, nid));
            self.until.remove(&nid);
        }
    }

    /// Until when this one is waited for.
    pub fn until(&self, nid: Nid) -> Option<u64> {
        self.until.get(&nid).copied()
    }

    /// Until when the last of those is waited for of which that holds.
    pub fn last_of(&self, is_of: impl Fn(Nid) -> bool) -> Option<u64> {
        self.by_time.iter().rev().find(|(_, nid)| is_of(*nid)).map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The same as a map that is gone through each time.
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0_u8..4, 0_u32..12, 0_u64..20), 0..60)) {
            let (mut away, mut oracle) = (Away::default(), BTreeMap::new());
            for (kind, nid, at) in steps {
                match kind {
                    0 | 1 => {
                        away.insert(Nid(nid), at);
                        oracle.insert(Nid(nid), at);
                    }
                    2 => {
                        away.remove(Nid(nid));
                        oracle.remove(&Nid(nid));
                    }
                    _ => {
                        away.give_up(at);
                        oracle.retain(|_, until| *until > at);
                    }
                }
                let few = |nid: Nid| nid.0.is_multiple_of(3);
                let last = oracle.iter().filter(|(nid, _)| few(**nid)).map(|(_, until)| *until).max();
                prop_assert_eq!(away.last_of(few), last);
                prop_assert_eq!((away.len(), away.is_empty()), (oracle.len(), oracle.is_empty()));
                prop_assert_eq!(away.until(Nid(nid)), oracle.get(&Nid(nid)).copied());
                prop_assert_eq!(Vec::from(away.clone()), oracle.clone().into_iter().collect::<Vec<_>>());
            }
        }
    }
}
