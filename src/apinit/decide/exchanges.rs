//! Schedules the questions about psched's clock on one link, and what becomes of the answers.
//!
//! A new link asks several times in quick succession and then every few seconds. What is known is read
//! twice a second, since its error grows with its age. The caller has the clock, the connection and a
//! timer.
//!
//! ```
//! # use psched_pure::apinit::decide::clock::{Exchange, Moment};
//! # use psched_pure::apinit::decide::exchanges::Exchanges;
//! let at = |mono_ns| Moment { mono_ns, raw_ns: mono_ns, apart_ns: 0 };
//! let mut exchanges = Exchanges::new(1_000);
//! assert!(exchanges.asks(1_000) && !exchanges.asks(1_001));
//! // psched's clock is ahead by 500 ns, and each way takes 20 ns.
//! let answer = Exchange { asked_ns: 1_000, received_ns: 1_520, told_ns: 1_520 };
//! let learned = exchanges.answered(answer, at(1_040)).expect("times that are possible");
//! assert_eq!(learned.reading.ahead_ns, 500);
//! assert!(learned.news.is_some());
//! ```

use super::clock::{Clock, Exchange, HELD_NS, Moment, Reading};
use crate::apteam::protocol::node::ClockTold;

/// Questions of a new link in quick succession.
const ASKED_FAST: u32 = 8;
/// The time between two of them, in nanoseconds.
const ASK_FAST_NS: u64 = 50_000_000;
/// The time between two later questions, likewise.
const ASK_NS: u64 = 5_000_000_000;

/// What follows from an answer, or from the age of the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learned {
    /// What the agent is to use until the next reading.
    pub reading: Reading,
    /// What psched is to be told; none: what it was told last still holds.
    pub news: Option<ClockTold>,
}

/// The exchanges of one link.
#[derive(Clone, Debug)]
pub struct Exchanges {
    clock: Clock,
    asked: u32,
    ask_at_ns: u64,
    read_at_ns: u64,
}

impl Exchanges {
    /// A link that was opened at this time of this host's clock. Its first question is due.
    pub fn new(now_ns: u64) -> Exchanges {
        Exchanges { clock: Clock::default(), asked: 0, ask_at_ns: now_ns, read_at_ns: now_ns }
    }

    /// When [`Exchanges::asks`] or [`Exchanges::reads`] is due, by this host's clock.
    pub fn next_ns(&self) -> u64 {
        self.ask_at_ns.min(self.read_at_ns)
    }

    /// Whether a question is due. The caller sends one with the time of its sending.
    pub fn asks(&mut self, now_ns: u64) -> bool {
        if now_ns < self.ask_at_ns {
            return false;
        }
        self.asked = self.asked.saturating_add(1);
        let wait = if self.asked < ASKED_FAST { ASK_FAST_NS } else { ASK_NS };
        self.ask_at_ns = now_ns.saturating_add(wait);
        true
    }

    /// Takes an answer that was there at this moment. None: its times are impossible.
    pub fn answered(&mut self, exchange: Exchange, at: Moment) -> Option<Learned> {
        let reading = self.clock.take(exchange, at)?;
        Some(self.learned(reading, at))
    }

    /// Reads what is known, if that is due. None: it is not, or there was no answer yet.
    pub fn reads(&mut self, at: Moment) -> Option<Learned> {
        if at.mono_ns < self.read_at_ns {
            return None;
        }
        self.read_at_ns = at.mono_ns.saturating_add(HELD_NS);
        let reading = self.clock.read(at)?;
        Some(self.learned(reading, at))
    }

    fn learned(&mut self, reading: Reading, at: Moment) -> Learned {
        Learned { reading, news: self.clock.news(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn moment(ns: u64) -> Moment {
        Moment { mono_ns: ns, raw_ns: ns, apart_ns: 0 }
    }

    #[test]
    fn a_new_link_asks_often_and_then_every_few_seconds() {
        let mut exchanges = Exchanges::new(7);
        let mut asked = Vec::new();
        while asked.len() < 10 {
            let now = exchanges.next_ns();
            if exchanges.asks(now) {
                asked.push((now - 7) / MS);
            }
            assert_eq!(exchanges.reads(moment(now)), None, "there was no answer");
        }
        assert_eq!(asked, [0, 50, 100, 150, 200, 250, 300, 350, 5_350, 10_350]);
    }

    #[test]
    fn what_is_known_is_read_twice_a_second_and_told_when_it_is_news() {
        let mut exchanges = Exchanges::new(0);
        assert!(exchanges.asks(0));
        let answer = Exchange { asked_ns: 0, received_ns: MS, told_ns: MS };
        let first = exchanges.answered(answer, moment(2 * MS)).expect("possible");
        assert!(first.news.is_some_and(|news| news.error_ns >= first.reading.error_ns));
        assert_eq!(exchanges.reads(moment(2 * MS)).expect("due").news, None);
        assert_eq!(exchanges.reads(moment(501 * MS)), None, "not yet");
        let later = exchanges.reads(moment(502 * MS)).expect("due");
        assert!(later.reading.error_ns > first.reading.error_ns, "an older answer is worth less");
    }

    #[test]
    fn an_answer_with_impossible_times_is_left_out() {
        let mut exchanges = Exchanges::new(0);
        let answer = Exchange { asked_ns: 9 * MS, received_ns: 0, told_ns: 0 };
        assert_eq!(exchanges.answered(answer, moment(8 * MS)), None);
    }
}
