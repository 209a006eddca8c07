//! How often something took how long, in little room.
//!
//! A bucket is an eighth of a power of two wide, so that what is told of one, its middle, is at most
//! 1/16 (6 %) off; below eight every number has its own. Only buckets that have something in them are
//! kept, and there are never more than 496.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Buckets to a power of two, as a power of two.
const FINE: u32 = 3;

/// Counts of numbers by their size.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Histogram {
    buckets: BTreeMap<u16, u64>,
    count: u64,
}

fn bucket(value: u64) -> u16 {
    let exponent = value.checked_ilog2().unwrap_or(0);
    let number = match exponent.checked_sub(FINE) {
        None => value,
        Some(shift) => (u64::from(shift) << FINE) + (value >> shift),
    };
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// The middle of a bucket.
fn middle(bucket: u16) -> u64 {
    let number = u64::from(bucket);
    match (number >> FINE).checked_sub(1) {
        None | Some(0) => number,
        Some(shift) => {
            let first = (number - (shift << FINE)) << shift;
            first + (1 << shift) / 2
        }
    }
}

impl Histogram {
    /// One more.
    pub fn add(&mut self, value: u64) {
        let in_it = self.buckets.entry(bucket(value)).or_default();
        *in_it = in_it.saturating_add(1);
        self.count = self.count.saturating_add(1);
    }

    /// All of another's too.
    pub fn merge(&mut self, other: &Histogram) {
        for (bucket, count) in &other.buckets {
            let in_it = self.buckets.entry(*bucket).or_default();
            *in_it = in_it.saturating_add(*count);
        }
        self.count = self.count.saturating_add(other.count);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What so many thousandths of them do not exceed (500: the median), about 6 % off at most. None
    /// where there is nothing.
    pub fn quantile(&self, thousandths: u64) -> Option<u64> {
        let wanted = (u128::from(self.count) * u128::from(thousandths)).div_ceil(1_000).max(1);
        let mut seen = 0u128;
        let at = self.buckets.iter().find(|(_, count)| {
            seen += u128::from(**count);
            seen >= wanted
        });
        at.map(|(bucket, _)| middle(*bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_numbers_are_exact() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(500), None);
        for value in [0, 1, 1, 7] {
            histogram.add(value);
        }
        let told = |thousandths| histogram.quantile(thousandths);
        assert_eq!(
            (told(0), told(500), told(750), told(990)),
            (Some(0), Some(1), Some(1), Some(7))
        );
        assert_eq!(histogram.count(), 4);
    }

    #[test]
    fn there_are_few_buckets_and_no_gaps_between_them() {
        assert_eq!(bucket(u64::MAX), 495);
        for value in 0..100_000u64 {
            let step = bucket(value + 1) - bucket(value);
            assert!(step <= 1, "{value}");
        }
    }

    proptest! {
        #[test]
        fn a_bucket_tells_its_numbers_to_a_sixteenth(shift in 0u32..64, value: u64) {
            let value = value >> shift;
            let told = middle(bucket(value));
            prop_assert!(told.abs_diff(value) <= value / 16, "{value} is told as {told}");
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_numbers(
            values in prop::collection::vec(0u64..1 << 40, 1..200),
            more in prop::collection::vec(0u64..1 << 20, 0..50),
            thousandths in 1u64..=1_000,
        ) {
            let (mut histogram, mut other) = (Histogram::default(), Histogram::default());
            values.iter().for_each(|value| histogram.add(*value));
            more.iter().for_each(|value| other.add(*value));
            histogram.merge(&other);
            let mut all = [values, more].concat();
            all.sort_unstable();
            let rank = (all.len() * thousandths as usize).div_ceil(1_000).max(1);
            let told = histogram.quantile(thousandths).expect("there are some");
            let right = all[rank - 1];
            prop_assert!(told.abs_diff(right) <= right / 16, "{told} for {right}");
            prop_assert_eq!(histogram.count(), all.len() as u64);
        }
    }
}
