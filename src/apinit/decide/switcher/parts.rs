//! Who has to do with whom, and when to look at them again.
//!
//! Two gangs that share a processor are of one part, and so are those whom a chain of such gangs joins. What
//! one does matters to its part, and to nobody else. A part may be larger than it need be for a while, which
//! costs time and nothing else: so who goes is taken out of his, who comes joins the one that has his
//! processors, and only who joins several, or moves, has all parts of the host found anew; and so have as many who
//! have gone as there are left.

use crate::apteam::Key;
use fixedbitset::FixedBitSet;
use std::collections::{BTreeMap, BTreeSet};

/// The parts, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    members: Vec<Vec<Key>>,
    of: BTreeMap<Key, usize>,
    /// The part that each processor is of, or was.
    processors: BTreeMap<usize, usize>,
    /// So many have gone since they were found.
    gone: usize,
    /// When each is to be looked at again, and the same in order.
    next: Vec<Option<u64>>,
    order: BTreeSet<(u64, usize)>,
    /// They are to be looked at now.
    touched: BTreeSet<usize>,
    all_touched: bool,
    /// They are to be found anew.
    stale: bool,
}

impl Parts {
    /// The time at which the next one is to be looked at.
    pub fn next_ns(&self) -> Option<u64> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Something has happened to a gang.
    pub fn touch(&mut self, key: Key) {
        if let Some(part) = self.of.get(&key) {
            self.touched.insert(*part);
        }
    }

    /// Something has happened that may matter to everybody.
    pub fn touch_all(&mut self) {
        self.all_touched = true;
    }

    /// A gang is new, and sits there.
    pub fn comes(&mut self, key: Key, on: &FixedBitSet) {
        let parts: BTreeSet<usize> =
            on.ones().filter_map(|p| self.processors.get(&p)).copied().collect();
        let part = match parts.len() {
            0 => {
                self.members.push(Vec::new());
                self.next.push(None);
                self.members.len() - 1
            }
            1 => parts.into_iter().next().unwrap_or_default(),
            _ => return self.stale = true,
        };
        self.members[part].push(key);
        self.of.insert(key, part);
        self.processors.extend(on.ones().map(|p| (p, part)));
        self.touched.insert(part);
    }

    /// A gang sits elsewhere.
    pub fn moves(&mut self) {
        self.stale = true;
    }

    /// A gang has gone.
    pub fn goes(&mut self, key: Key) {
        if let Some(part) = self.of.remove(&key) {
            self.members[part].retain(|member| *member != key);
            self.touched.insert(part);
        }
        self.gone += 1;
        self.stale |= self.gone > self.of.len();
    }

    /// Finds the parts anew.
    fn find<'s>(&mut self, seats: impl Iterator<Item = (Key, &'s FixedBitSet)>) {
        let keys_and_bits: Vec<(Key, &FixedBitSet)> = seats.collect();
        // Whoever had a processor first stands for all who have it, by way of who stands for him.
        let mut first: BTreeMap<usize, usize> = BTreeMap::new();
        let mut above: Vec<usize> = (0..keys_and_bits.len()).collect();
        fn root(above: &mut [usize], mut of: usize) -> usize {
            while above[of] != of {
                above[of] = above[above[of]];
                of = above[of];
            }
            of
        }
        for (index, (_, on)) in keys_and_bits.iter().enumerate() {
            for processor in on.ones() {
                let other = *first.entry(processor).or_insert(index);
                let (one, other) = (root(&mut above, index), root(&mut above, other));
                above[one.max(other)] = one.min(other);
            }
        }
        (self.members, self.of, self.order) = Default::default();
        (self.processors, self.gone) = Default::default();
        let mut number: BTreeMap<usize, usize> = BTreeMap::new();
        for (index, (key, on)) in keys_and_bits.iter().enumerate() {
            let root = root(&mut above, index);
            let part = *number.entry(root).or_insert(self.members.len());
            if part == self.members.len() {
                self.members.push(Vec::new());
            }
            self.members[part].push(*key);
            self.of.insert(*key, part);
            self.processors.extend(on.ones().map(|p| (p, part)));
        }
        self.next = vec![None; self.members.len()];
        self.touched.clear();
        self.all_touched = true;
        self.stale = false;
    }

    /// Who is to be looked at now, in order: the parts to which something has happened, and those whose
    /// time has come.
    pub fn concerned<'s>(
        &mut self,
        now: u64,
        seats: impl Iterator<Item = (Key, &'s FixedBitSet)>,
    ) -> Vec<Key> {
        if self.stale {
            self.find(seats);
        }
        if std::mem::take(&mut self.all_touched) {
            self.touched.extend(0..self.members.len());
        }
        let due = self.order.iter().take_while(|(at, _)| *at <= now);
        self.touched.extend(due.map(|(_, part)| *part));
        let parts = self.touched.iter().flat_map(|part| &self.members[*part]);
        let mut concerned: Vec<Key> = parts.copied().collect();
        concerned.sort_unstable();
        concerned
    }

    /// They have been looked at. `next` says when each is to be looked at again.
    pub fn looked_at(&mut self, next: impl Fn(&[Key]) -> Option<u64>) {
        for part in std::mem::take(&mut self.touched) {
            let new = next(&self.members[part]);
            let old = std::mem::replace(&mut self.next[part], new);
            if old == new {
                continue;
            }
            if let Some(at) = old {
                self.order.remove(&(at, part));
            }
            if let Some(at) = new {
                self.order.insert((at, part));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key::parse(&format!("{number}.1")).expect("a key")
    }

    #[test]
    fn whoever_shares_by_a_chain_is_of_one_part() {
        let on = |bits: &[usize]| bits.iter().copied().collect::<FixedBitSet>();
        let seats = [on(&[0]), on(&[3, 4]), on(&[0, 1]), on(&[5]), on(&[1, 2]), on(&[])];
        let seats = || (0..).map(key).zip(&seats);
        let mut parts = Parts::default();
        parts.moves();
        assert_eq!(parts.concerned(0, seats()).len(), 6);
        parts.looked_at(|keys| keys.contains(&key(3)).then_some(7));
        assert_eq!(parts.next_ns(), Some(7));
        assert!(parts.concerned(6, seats()).is_empty());
        parts.touch(key(4));
        assert_eq!(parts.concerned(6, seats()), [key(0), key(2), key(4)]);
        parts.looked_at(|_| Some(9));
        assert_eq!(parts.concerned(8, seats()), [key(3)]);
        parts.looked_at(|_| None);
        assert_eq!(parts.next_ns(), Some(9));
        parts.touch(key(99));
        assert!(parts.concerned(8, seats()).is_empty());
    }

    #[test]
    fn who_comes_joins_and_who_goes_leaves() {
        let on = |bits: &[usize]| bits.iter().copied().collect::<FixedBitSet>();
        let mut seats: BTreeMap<Key, FixedBitSet> = BTreeMap::new();
        let mut parts = Parts::default();
        for (number, bits) in [(0, [0, 1]), (1, [2, 3]), (2, [3, 4])] {
            seats.insert(key(number), on(&bits));
            parts.comes(key(number), &on(&bits));
        }
        let concerned = |parts: &mut Parts, seats: &BTreeMap<Key, FixedBitSet>| {
            let found = parts.concerned(0, seats.iter().map(|(key, on)| (*key, on)));
            parts.looked_at(|_| None);
            found
        };
        assert_eq!(concerned(&mut parts, &seats), [key(0), key(1), key(2)]);
        parts.touch(key(2));
        assert_eq!(concerned(&mut parts, &seats), [key(1), key(2)]);
        // One that joins two.
        seats.insert(key(3), on(&[1, 2]));
        parts.comes(key(3), &on(&[1, 2]));
        assert_eq!(concerned(&mut parts, &seats).len(), 4);
        parts.touch(key(0));
        assert_eq!(concerned(&mut parts, &seats).len(), 4);
        // Without it they are looked at together until enough have gone.
        seats.remove(&key(3));
        parts.goes(key(3));
        assert_eq!(concerned(&mut parts, &seats), [key(0), key(1), key(2)]);
        seats.remove(&key(1));
        parts.goes(key(1));
        seats.remove(&key(2));
        parts.goes(key(2));
        assert_eq!(concerned(&mut parts, &seats), [key(0)]);
    }
}
