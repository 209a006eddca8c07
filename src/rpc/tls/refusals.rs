//! How often the log says that connections are refused.
//!
//! A host whose certificate has been revoked calls for as long as it is on, and a stranger as often as he likes. The log
//! says each reason at once, and then more and more rarely, with the number of connections since.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Until a reason is said again: the second time, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));
/// Reasons that are told apart. Beyond them all others count as one.
const REASONS: usize = 64;

#[derive(Debug)]
struct Said {
    at: Instant,
    again: Duration,
    left_out: u64,
}

/// What was said, by reason.
#[derive(Debug, Default)]
pub(super) struct Refusals(BTreeMap<String, Said>);

/// The reason without the numbers of ports, which are other ones for each connection.
fn reason(why: &str) -> String {
    let mut pieces = why.split(':');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| {
        text + ":" + piece.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

impl Refusals {
    /// A connection is refused: what the log is to say, if it is to say anything.
    pub fn refused(&mut self, now: Instant, why: &str) -> Option<String> {
        // (A reason that was not given for a long time counts as new.)
        self.0.retain(|_, said| now.duration_since(said.at) < 2 * said.again.max(AGAIN.0 * 30));
        let mut key = reason(why);
        if self.0.len() >= REASONS && !self.0.contains_key(&key) {
            key = String::new();
        }
        let Some(said) = self.0.get_mut(&key) else {
            self.0.insert(key, Said { at: now, again: AGAIN.0, left_out: 0 });
            return Some(format!("a connection is refused: {why}"));
        };
        if now.duration_since(said.at) < said.again {
            said.left_out += 1;
            return None;
        }
        let before = std::mem::take(&mut said.left_out);
        *said = Said { at: now, again: (2 * said.again).min(AGAIN.1), left_out: 0 };
        Some(match before {
            0 => format!("a connection is refused: {why}"),
            more => format!("a connection is refused (and {more} before it): {why}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reason_is_said_more_and_more_rarely() {
        let (mut refusals, begun) = (Refusals::default(), Instant::now());
        let mut said = Vec::new();
        for second in 0..86_400 {
            let now = begun + Duration::from_secs(second);
            let why = format!("10.77.0.4:{}: revoked", 30_000 + second);
            if let Some(line) = refusals.refused(now, &why) {
                said.push((second, line));
            }
        }
        let first: Vec<u64> = said.iter().map(|(at, _)| *at).take(5).collect();
        assert_eq!(first, [0, 1, 3, 7, 15]);
        assert_eq!(
            said[4].1,
            "a connection is refused (and 7 before it): 10.77.0.4:30015: revoked"
        );
        assert!(said.len() < 40, "{} lines in a day", said.len());
        // Another reason is said at once, and this one after it has been quiet.
        let day = begun + Duration::from_secs(86_400);
        assert!(refusals.refused(day, "10.77.0.5:1: expired").is_some());
        assert!(refusals.refused(day, "10.77.0.4:1: revoked").is_none());
        let later = day + Duration::from_secs(10_000);
        assert!(refusals.refused(later, "10.77.0.4:1: revoked").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_reasons_have_a_bound() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let said = (0..10_000).filter_map(|n| refusals.refused(now, &format!("{n}.0: no")));
        assert_eq!(said.count(), REASONS + 1);
        assert_eq!(refusals.0.len(), REASONS + 1);
    }
}
