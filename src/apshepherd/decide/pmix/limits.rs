//! Time limits of questions about published data (PMIX_TIMEOUT of lookups), by their numbers.
//!
//! (Fences and PMIx_Get have none here: the library has timers of its own for them and would be answered twice, and one
//! answer is for all PEs of the host that ask about the same PE.)

use crate::variables::units::nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How many are answered in one step, so that many at once do not hold up everything else.
const PASSED_MAX: usize = 256;
/// How much longer a limit is that passes while the PEs are frozen: the PEs that they wait for may be frozen, too.
const PUT_OFF: Duration = Duration::from_secs(10);

/// When the limit of each question passes.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    until: BTreeMap<u64, u64>,
    in_order: BTreeSet<(u64, u64)>,
}

impl Limits {
    /// Sets the limit of this question.
    pub fn set(&mut self, id: u64, until_ns: u64) {
        self.clear(id);
        self.until.insert(id, until_ns);
        self.in_order.insert((until_ns, id));
    }

    /// This question has no limit any more.
    pub fn clear(&mut self, id: u64) {
        if let Some(at) = self.until.remove(&id) {
            self.in_order.remove(&(at, id));
        }
    }

    /// When the first limit passes.
    pub fn due_ns(&self) -> Option<u64> {
        self.in_order.first().map(|(at, _)| *at)
    }

    /// Extends the limits that have passed.
    pub fn put_off(&mut self, now_ns: u64) {
        let later = now_ns.saturating_add(nanos(PUT_OFF));
        while let Some((at, id)) = self.in_order.first().copied()
            && at <= now_ns
        {
            self.set(id, later);
        }
    }

    /// Takes out questions whose limit has passed: up to [`PASSED_MAX`] of them.
    pub fn passed(&mut self, now_ns: u64) -> Vec<u64> {
        let mut passed = Vec::new();
        while passed.len() < PASSED_MAX
            && let Some((at, id)) = self.in_order.first().copied()
            && at <= now_ns
        {
            self.clear(id);
            passed.push(id);
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_pass_in_their_order() {
        let mut limits = Limits::default();
        let [late, early, over] = [1, 2, 3];
        for (id, at) in [(late, 9), (early, 5), (over, 4)] {
            limits.set(id, at);
        }
        limits.clear(over);
        assert_eq!((limits.due_ns(), limits.passed(4)), (Some(5), vec![]));
        assert_eq!((limits.passed(5), limits.passed(5)), (vec![early], vec![]));
        assert_eq!((limits.due_ns(), limits.passed(20)), (Some(9), vec![late]));
        assert_eq!(limits.due_ns(), None);
    }

    #[test]
    fn some_pass_at_a_time() {
        let mut limits = Limits::default();
        (0..300).for_each(|number| limits.set(number, 5));
        assert_eq!([limits.passed(5).len(), limits.passed(5).len()], [PASSED_MAX, 44]);
    }

    #[test]
    fn those_of_frozen_pes_are_put_off() {
        let mut limits = Limits::default();
        limits.set(1, 5);
        limits.put_off(4);
        assert_eq!(limits.due_ns(), Some(5));
        limits.put_off(5);
        let later = 5 + nanos(PUT_OFF);
        assert_eq!((limits.passed(later - 1), limits.due_ns()), (vec![], Some(later)));
        assert_eq!(limits.passed(later), [1]);
    }
}
