//! How often the log says that connections and requests are refused.
//!
//! A host whose certificate has been revoked calls for as long as it is on, and a stranger as often as he likes. The log
//! says each reason at once, and then more and more rarely, with the number of refusals since. A
//! reason is of a kind (`expired`) and concerns a host or an address. Kinds are few, and each has
//! places of its own: many addresses with one reason hide no other reason.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Until a reason is said again: the second time, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));
/// Hosts and addresses that are told apart of one kind. Beyond them all others count as one.
const OF_KIND: usize = 64;

/// Why something is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of the reason, which is a text of the program and none from outside.
    pub kind: &'static str,
    /// The host or the address that it concerns.
    pub of: String,
    /// The sentence.
    pub why: String,
}

#[derive(Debug)]
struct Said {
    at: Instant,
    again: Duration,
    left_out: u64,
}

/// What was said, by kind and by what it concerns.
#[derive(Debug, Default)]
struct Refusals(BTreeMap<&'static str, BTreeMap<String, Said>>);

impl Refusals {
    /// Something is refused: what the log is to say, if it is to say anything.
    fn refused(&mut self, now: Instant, what: &str, refusal: &Refusal) -> Option<String> {
        let of_kind = self.0.entry(refusal.kind).or_default();
        // (A reason that was not given for a long time counts as new.)
        of_kind.retain(|_, said| now.duration_since(said.at) < 2 * said.again.max(AGAIN.0 * 30));
        let known = of_kind.len() < OF_KIND || of_kind.contains_key(&refusal.of);
        let of = if known { refusal.of.as_str() } else { "" };
        let why = &refusal.why;
        let Some(said) = of_kind.get_mut(of) else {
            of_kind.insert(of.to_owned(), Said { at: now, again: AGAIN.0, left_out: 0 });
            return Some(format!("a {what} is refused: {why}"));
        };
        if now.duration_since(said.at) < said.again {
            said.left_out += 1;
            return None;
        }
        let before = std::mem::take(&mut said.left_out);
        *said = Said { at: now, again: (2 * said.again).min(AGAIN.1), left_out: 0 };
        Some(match before {
            0 => format!("a {what} is refused: {why}"),
            more => format!("a {what} is refused (and {more} before it): {why}"),
        })
    }
}

/// The log of what a listener refuses.
#[derive(Clone, Debug, Default)]
pub struct RefusalLog(Arc<Mutex<Refusals>>);

impl RefusalLog {
    /// Logs that a connection is refused, if it was not said a moment ago. Returned: whether it is
    /// logged.
    pub fn connection(&self, refusal: &Refusal) -> bool {
        self.say("connection", refusal)
    }

    /// Logs that a request is refused, likewise.
    pub fn request(&self, refusal: &Refusal) {
        self.say("request", refusal);
    }

    fn say(&self, what: &str, refusal: &Refusal) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = said.refused(Instant::now(), what, refusal);
        if let Some(line) = &line {
            tracing::warn!("{line}");
        }
        line.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(kind: &'static str, of: &str, why: &str) -> Refusal {
        Refusal { kind, of: of.to_owned(), why: why.to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reason_is_said_more_and_more_rarely() {
        let (mut refusals, begun) = (Refusals::default(), Instant::now());
        let mut said = Vec::new();
        for second in 0..86_400 {
            let now = begun + Duration::from_secs(second);
            let why = format!("10.77.0.4:{}: revoked", 30_000 + second);
            let refusal = refusal("revoked", "10.77.0.4", &why);
            if let Some(line) = refusals.refused(now, "connection", &refusal) {
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
        let mut says = |now, kind, of| {
            let line = refusals.refused(now, "connection", &refusal(kind, of, kind));
            line.is_some()
        };
        assert!(says(day, "expired", "10.77.0.5") && says(day, "expired", "10.77.0.4"));
        assert!(!says(day, "revoked", "10.77.0.4"));
        assert!(says(day + Duration::from_secs(10_000), "revoked", "10.77.0.4"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_addresses_of_a_reason_have_a_bound_and_hide_no_other_reason() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let mut says = |kind, n: usize| {
            let refusal = refusal(kind, &format!("10.0.0.{n}"), kind);
            refusals.refused(now, "connection", &refusal).is_some()
        };
        assert_eq!((0..10_000).filter(|n| says("late", *n)).count(), OF_KIND + 1);
        assert!(says("expired", 20_000), "a new reason is said at once");
        assert!(says("none", 1) && !says("none", 1));
        assert_eq!(refusals.0["late"].len(), OF_KIND + 1);
    }
}
