//! Things of which each has a time, by both: when each one's time is, and whose is the first and the last. There may be
//! many, and looking does not go through all of them.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Keys with their times, in nanoseconds of a monotonic clock. Written as a list of pairs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Vec<(K, u64)>", into = "Vec<(K, u64)>")]
#[serde(bound = "K: Copy + Ord + Serialize + serde::de::DeserializeOwned")]
pub(crate) struct ByTime<K: Copy + Ord> {
    at: BTreeMap<K, u64>,
    in_order: BTreeSet<(u64, K)>,
}

impl<K: Copy + Ord> Default for ByTime<K> {
    fn default() -> ByTime<K> {
        ByTime { at: BTreeMap::new(), in_order: BTreeSet::new() }
    }
}

impl<K: Copy + Ord> From<ByTime<K>> for Vec<(K, u64)> {
    fn from(all: ByTime<K>) -> Vec<(K, u64)> {
        all.at.into_iter().collect()
    }
}

impl<K: Copy + Ord> From<Vec<(K, u64)>> for ByTime<K> {
    fn from(pairs: Vec<(K, u64)>) -> ByTime<K> {
        let mut all = ByTime::default();
        pairs.into_iter().for_each(|(key, at)| all.set(key, at));
        all
    }
}

impl<K: Copy + Ord> ByTime<K> {
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// Gives a key its time, for the one that it has.
    pub fn set(&mut self, key: K, at_ns: u64) {
        self.remove(key);
        self.at.insert(key, at_ns);
        self.in_order.insert((at_ns, key));
    }

    /// Takes a key out, if it is there.
    pub fn remove(&mut self, key: K) {
        if let Some(at) = self.at.remove(&key) {
            self.in_order.remove(&(at, key));
        }
    }

    /// The time of a key.
    pub fn of(&self, key: K) -> Option<u64> {
        self.at.get(&key).copied()
    }

    /// The first time of all.
    pub fn first_ns(&self) -> Option<u64> {
        self.in_order.first().map(|(at, _)| *at)
    }

    /// The last time of those keys of which this holds.
    pub fn last_of(&self, is_of: impl Fn(K) -> bool) -> Option<u64> {
        self.in_order.iter().rev().find(|(_, key)| is_of(*key)).map(|(at, _)| *at)
    }

    /// Takes out keys whose time has come, the first first, and at most so many.
    pub fn take(&mut self, now_ns: u64, most: usize) -> Vec<K> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some((at, key)) = self.in_order.first().copied()
            && at <= now_ns
        {
            self.remove(key);
            taken.push(key);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// It agrees with a map that is searched as a whole each time.
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0_u8..4, 0_u32..12, 0_u64..20), 0..60)) {
            let (mut all, mut oracle) = (ByTime::default(), BTreeMap::new());
            for (kind, key, at) in steps {
                match kind {
                    0 | 1 => {
                        all.set(key, at);
                        oracle.insert(key, at);
                    }
                    2 => {
                        all.remove(key);
                        oracle.remove(&key);
                    }
                    _ => {
                        let most = key as usize;
                        let mut passed: Vec<(u64, u32)> = oracle.iter().map(|(key, at)| (*at, *key)).collect();
                        passed.retain(|(time, _)| *time <= at);
                        passed.sort_unstable();
                        passed.truncate(most);
                        oracle.retain(|key, time| !passed.contains(&(*time, *key)));
                        let keys: Vec<u32> = passed.into_iter().map(|(_, key)| key).collect();
                        prop_assert_eq!(all.take(at, most), keys);
                    }
                }
                let few = |key: u32| key.is_multiple_of(3);
                let last = oracle.iter().filter(|(key, _)| few(**key)).map(|(_, at)| *at).max();
                prop_assert_eq!(all.last_of(few), last);
                prop_assert_eq!(all.first_ns(), oracle.values().min().copied());
                prop_assert_eq!((all.len(), all.is_empty()), (oracle.len(), oracle.is_empty()));
                prop_assert_eq!(all.of(key), oracle.get(&key).copied());
                let pairs = Vec::from(all.clone());
                prop_assert_eq!(&pairs, &oracle.clone().into_iter().collect::<Vec<_>>());
                prop_assert_eq!(ByTime::from(pairs).in_order, all.in_order.clone());
            }
        }
    }
}
