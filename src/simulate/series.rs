//! A machine over time: what of it is held, and how many wait.
//!
//! A log may be of a day or of ten years, and nobody knows before its end. Time is cut into bins; when they are
//! used up, two become one, twice as long. So a series takes the same memory for any log.

use std::time::Duration;

/// Bins, at most.
pub const BINS: usize = 512;
/// How long each is at first, in seconds.
const BIN: f64 = 60.0;

/// A machine over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Since the log's zero, in seconds.
    first: f64,
    /// How long a bin is, in seconds.
    bin: f64,
    /// Processor seconds held, and jobs times seconds waited, in each.
    bins: Vec<(f64, f64)>,
    /// How it has been since when.
    last: Option<(f64, u32, usize)>,
}

/// A stretch of time, in days since the series began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Its middle.
    pub day: f64,
    /// Processors held, in the mean.
    pub held: f64,
    /// Jobs that did not run though they were there, in the mean.
    pub waiting: f64,
}

impl Default for Series {
    fn default() -> Series {
        Series { first: 0.0, bin: BIN, bins: Vec::new(), last: None }
    }
}

impl Series {
    /// From `now` on it is like this. `now` never goes back.
    pub fn at(&mut self, now: Duration, held: u32, waiting: usize) {
        let now = now.as_secs_f64();
        match self.last.replace((now, held, waiting)) {
            None => self.first = now,
            Some((since, held, waiting)) => {
                self.add(since - self.first, now - self.first, f64::from(held), waiting as f64);
            }
        }
    }

    fn add(&mut self, mut from: f64, until: f64, held: f64, waiting: f64) {
        while until > self.bin * BINS as f64 {
            let two = |pair: &[(f64, f64)]| {
                pair.iter().fold((0.0, 0.0), |sum, bin| (sum.0 + bin.0, sum.1 + bin.1))
            };
            self.bins = self.bins.chunks(2).map(two).collect();
            self.bin *= 2.0;
        }
        while from < until {
            let at = (from / self.bin) as usize;
            let end = until.min((at + 1) as f64 * self.bin);
            self.bins.resize(self.bins.len().max(at + 1), (0.0, 0.0));
            let (all_held, all_waiting) = &mut self.bins[at];
            *all_held += held * (end - from);
            *all_waiting += waiting * (end - from);
            from = end;
        }
    }

    /// Until the last change, in days.
    pub fn days(&self) -> f64 {
        self.last.map_or(0.0, |(until, ..)| (until - self.first) / DAY)
    }

    /// The day of a moment, since the log's zero.
    pub fn day(&self, at: Duration) -> f64 {
        (at.as_secs_f64() - self.first) / DAY
    }

    /// In order of time.
    pub fn stretches(&self) -> impl Iterator<Item = Stretch> {
        let end = self.days() * DAY;
        self.bins.iter().enumerate().map(move |(at, (held, waiting))| {
            let begin = at as f64 * self.bin;
            let long = self.bin.min(end - begin).max(f64::MIN_POSITIVE);
            let day = (begin + long / 2.0) / DAY;
            Stretch { day, held: held / long, waiting: waiting / long }
        })
    }
}

/// Seconds.
const DAY: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn series(changes: &[(u64, u32, usize)]) -> Series {
        let mut series = Series::default();
        for (at, held, waiting) in changes {
            series.at(Duration::from_secs(*at), *held, *waiting);
        }
        series
    }

    #[test]
    fn a_series_is_the_mean_of_each_stretch() {
        let stretches: Vec<Stretch> =
            series(&[(600, 4, 0), (630, 8, 2), (750, 0, 0)]).stretches().collect();
        let held: Vec<(f64, f64)> = stretches.iter().map(|s| (s.held, s.waiting)).collect();
        assert_eq!(held, [(6.0, 1.0), (8.0, 2.0), (8.0, 2.0)]);
        assert_eq!(stretches[2].day * 86_400.0, 135.0);
    }

    #[test]
    fn years_take_no_more_room_than_hours() {
        // Half of each day held, half of it not.
        let changes: Vec<(u64, u32, usize)> =
            (0..20_000).map(|n| (n * 43_200, (n % 2) as u32 * 10, 0)).collect();
        let series = series(&changes);
        let stretches: Vec<Stretch> = series.stretches().collect();
        assert!((BINS / 2..=BINS).contains(&stretches.len()), "{}", stretches.len());
        assert!(stretches.iter().all(|s| (4.0..=6.0).contains(&s.held)), "{stretches:?}");
        assert_eq!(series.days(), 9_999.5);
    }
}
