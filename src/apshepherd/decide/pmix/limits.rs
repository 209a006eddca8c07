//! Time limits of questions about published data (PMIX_TIMEOUT of lookups), by their numbers.
//!
//! (Fences and PMIx_Get have none here: the library has timers of its own for them and would be answered twice, and one
//! answer is for all PEs of the host that ask about the same PE.)

use crate::by_time::ByTime;
use crate::variables::units::nanos;
use std::time::Duration;

/// How many are answered in one step, so that many at once do not hold up everything else.
const PASSED_MAX: usize = 256;
/// How much longer a limit is that passes while the PEs are frozen: the PEs that they wait for may be frozen, too.
const PUT_OFF: Duration = Duration::from_secs(10);

/// When the limit of each question passes.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits(ByTime<u64>);

impl Limits {
    /// Sets the limit of this question.
    pub fn set(&mut self, id: u64, until_ns: u64) {
        self.0.set(id, until_ns);
    }

    /// This question has no limit any more.
    pub fn clear(&mut self, id: u64) {
        self.0.remove(id);
    }

    /// When the first limit passes.
    pub fn due_ns(&self) -> Option<u64> {
        self.0.first_ns()
    }

    /// Extends the limits that have passed.
    pub fn put_off(&mut self, now_ns: u64) {
        let later = now_ns.saturating_add(nanos(PUT_OFF));
        self.0.take(now_ns, usize::MAX).into_iter().for_each(|id| self.0.set(id, later));
    }

    /// Takes out questions whose limit has passed: up to [`PASSED_MAX`] of them.
    pub fn passed(&mut self, now_ns: u64) -> Vec<u64> {
        self.0.take(now_ns, PASSED_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
