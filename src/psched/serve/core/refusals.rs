//! Which refusals of apinits have been logged: one that is refused calls again every second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The same is said again after this time.
const AGAIN: Duration = Duration::from_secs(600);
/// Refusals that are remembered; beyond that the one said first is forgotten.
const REMEMBERED: usize = 64;

/// What was said, and when.
#[derive(Debug, Default)]
pub(super) struct Refusals(BTreeMap<String, Instant>);

impl Refusals {
    /// Whether it is to be said.
    pub fn is_new(&mut self, why: &str) -> bool {
        let now = Instant::now();
        self.0.retain(|_, said| now.duration_since(*said) < AGAIN);
        if self.0.contains_key(why) {
            return false;
        }
        if self.0.len() >= REMEMBERED {
            let first = self.0.iter().min_by_key(|(_, said)| **said).map(|(why, _)| why.clone());
            first.and_then(|first| self.0.remove(&first));
        }
        self.0.insert(why.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once() {
        let mut refusals = Refusals::default();
        assert!(refusals.is_new("a") && !refusals.is_new("a") && refusals.is_new("b"));
        (0..1_000).for_each(|n| assert!(refusals.is_new(&n.to_string())));
        assert!(refusals.0.len() <= REMEMBERED);
    }
}
