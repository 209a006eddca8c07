//! Places for streams on which copies are passed on: a host has so many, and each that asks a share of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Streams on which copies are passed on at once. (A host has its program from one other, and as a rule passes it on to
/// four.)
pub(super) const ALL: usize = 256;
/// And to one host, for all of its applications: one that reads nothing takes the places of no other.
pub(super) const OF_HOST: usize = 32;

/// How many are taken, by each host that has some.
#[derive(Clone, Debug, Default)]
pub(in crate::apinit::host) struct Places(Arc<Mutex<BTreeMap<String, usize>>>);

/// A place that is taken, until it is dropped.
#[derive(Debug)]
pub(in crate::apinit::host) struct Place {
    places: Places,
    host: String,
}

impl Places {
    fn taken(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One for this host (empty: an apinit of the same host), if there is one.
    pub fn take(&self, host: &str) -> Option<Place> {
        let mut taken = self.taken();
        let of_host = taken.get(host).copied().unwrap_or(0);
        if taken.values().sum::<usize>() >= ALL || of_host >= OF_HOST {
            return None;
        }
        taken.insert(host.to_owned(), of_host + 1);
        Some(Place { places: self.clone(), host: host.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(count) = taken.get_mut(&self.host) {
            *count -= 1;
        }
        taken.retain(|_, count| *count > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL, OF_HOST, Place, Places};

    #[test]
    fn one_host_takes_the_place_of_no_other() {
        let places = Places::default();
        let of = |host: &str| -> Vec<Place> { std::iter::from_fn(|| places.take(host)).collect() };
        let first = of("a");
        assert_eq!(first.len(), OF_HOST);
        let others: Vec<_> = (0..ALL).flat_map(|n| of(&format!("b{n}"))).collect();
        assert_eq!(first.len() + others.len(), ALL);
        assert!(places.take("c").is_none());
        drop(first);
        assert_eq!(of("c").len(), OF_HOST);
        drop(others);
        assert!(places.taken().is_empty());
    }
}
