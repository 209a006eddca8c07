//! What is kept for each caller that has something under way: users by uid, hosts by name.
//!
//! A caller that has nothing any more is to be forgotten, and a look at all callers with each
//! request would make all of them pay for their number. So the map is looked through only when it
//! has doubled since the last look: that costs each new caller a constant time on average. There
//! are never more than [`ALWAYS`] entries, or twice as many as had something at the last look.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Entries that are kept without a look.
const ALWAYS: usize = 64;

/// The entries of all callers.
#[derive(Debug)]
pub struct Kept<K, V>(Arc<Mutex<Entries<K, V>>>);

#[derive(Debug)]
struct Entries<K, V> {
    of: BTreeMap<K, Arc<V>>,
    /// How many entries there are when they are looked through next.
    look_at: usize,
}

impl<K, V> Clone for Kept<K, V> {
    fn clone(&self) -> Kept<K, V> {
        Kept(Arc::clone(&self.0))
    }
}

impl<K, V> Default for Kept<K, V> {
    fn default() -> Kept<K, V> {
        Kept(Arc::new(Mutex::new(Entries { of: BTreeMap::new(), look_at: ALWAYS })))
    }
}

impl<K: Ord, V> Kept<K, V> {
    /// The entry of a caller, made by `new` if there is none. It is kept at least until the last
    /// returned reference is dropped.
    pub fn of(&self, key: K, new: impl FnOnce() -> V) -> Arc<V> {
        self.of_unless(key, new, |_| true)
    }

    /// The same; without references, too, an entry is forgotten only if it is `idle`.
    pub fn of_unless(&self, key: K, new: impl FnOnce() -> V, idle: impl Fn(&V) -> bool) -> Arc<V> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.of.get(&key) {
            return Arc::clone(entry);
        }
        if entries.of.len() >= entries.look_at {
            entries.of.retain(|_, entry| Arc::strong_count(entry) > 1 || !idle(entry));
            entries.look_at = ALWAYS.max(2 * entries.of.len());
        }
        let entry = Arc::new(new());
        entries.of.insert(key, Arc::clone(&entry));
        entry
    }

    /// How many entries there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).of.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn callers_that_have_nothing_are_forgotten() {
        let kept = Kept::<u32, ()>::default();
        let held = kept.of(0, || ());
        for caller in 1..10_000 {
            kept.of(caller, || ());
            assert!(kept.len() <= ALWAYS + 1);
        }
        assert!(Arc::ptr_eq(&held, &kept.of(0, || unreachable!("it is kept"))));
    }

    /// However many callers there are.
    #[test]
    fn an_entry_costs_few_looks_at_others() {
        const CALLERS: u32 = 10_000;
        let (kept, looks) = (Kept::default(), Cell::new(0));
        let mut ask = |caller| {
            let idle = |(): &()| {
                looks.set(looks.get() + 1);
                false
            };
            kept.of_unless(caller, || (), idle);
        };
        (0..CALLERS).for_each(&mut ask);
        (0..CALLERS).for_each(&mut ask);
        assert!(looks.get() <= 2 * CALLERS, "{}", looks.get());
    }
}
