//! A map whose entries each may have a deadline, and the next deadline of all.
//!
//! An apinit holds up to thousands of applications, and after each event it must know when it has to
//! look at one of them again. To ask all of them each time made what happens to one cost as much as
//! there are others. So the map notes which entries were lent out to be changed, and asks only those
//! anew; the deadlines stand in an ordered set.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::ops::Deref;

/// The map. It reads like a `BTreeMap`; what changes it goes through the methods here.
#[derive(Debug)]
pub(super) struct Timed<K, V> {
    entries: BTreeMap<K, V>,
    /// When each is due, in both orders.
    due: BTreeMap<K, u64>,
    order: BTreeSet<(u64, K)>,
    /// May have changed since [`Timed::next`].
    touched: BTreeSet<K>,
}

impl<K, V> Default for Timed<K, V> {
    fn default() -> Timed<K, V> {
        Timed {
            entries: BTreeMap::new(),
            due: BTreeMap::new(),
            order: BTreeSet::new(),
            touched: BTreeSet::new(),
        }
    }
}

impl<K, V> Deref for Timed<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &BTreeMap<K, V> {
        &self.entries
    }
}

impl<K: Copy + Ord, V> Timed<K, V> {
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let entry = self.entries.get_mut(key)?;
        self.touched.insert(*key);
        Some(entry)
    }

    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.touched.insert(key);
        self.entries.insert(key, value)
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.touched.insert(*key);
        self.entries.remove(key)
    }

    /// All of them, to be asked anew: what their deadlines depend on besides themselves has changed.
    pub fn touch_all(&mut self) {
        self.touched.extend(self.entries.keys());
    }

    /// The next deadline of all, where `deadline` says that of one.
    pub fn next(&mut self, deadline: impl Fn(&V) -> Option<u64>) -> Option<u64> {
        for key in std::mem::take(&mut self.touched) {
            let new = self.entries.get(&key).and_then(&deadline);
            let old = match new {
                Some(at) => self.due.insert(key, at),
                None => self.due.remove(&key),
            };
            if old == new {
                continue;
            }
            if let Some(at) = old {
                self.order.remove(&(at, key));
            }
            if let Some(at) = new {
                self.order.insert((at, key));
            }
        }
        self.order.first().map(|(at, _)| *at)
    }
}

impl<'a, K, V> IntoIterator for &'a Timed<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = btree_map::Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_next_is_the_least_of_all(
            steps in proptest::collection::vec((0u8..4, 0u8..6, proptest::option::of(0u64..9)), 0..80))
        {
            let mut map: Timed<u8, Option<u64>> = Timed::default();
            for (step, key, at) in steps {
                match step {
                    0 => drop(map.insert(key, at)),
                    1 => drop(map.remove(&key)),
                    2 => map.get_mut(&key).into_iter().for_each(|entry| *entry = at),
                    _ => map.touch_all(),
                }
                let least = map.values().flatten().min().copied();
                prop_assert_eq!(map.next(|entry| *entry), least);
                prop_assert_eq!(map.next(|entry| *entry), least);
            }
        }
    }
}
