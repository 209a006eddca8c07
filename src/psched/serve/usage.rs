//! One line of the log for each application that has ended: what accounting wants.
//!
//! # Problem
//! Who has used how much of the machine is asked by programs that know nothing of psched, months after its
//! history has gone. They want one line an application with everything in it, once.
//!
//! # Approach
//! A tracing event of the target `usage`, whose fields are columns: in the journal each is a field
//! (`journalctl TARGET=usage -o json`), with `PSCHED_LOG_FORMAT=json` a key, else `name=value`. It is
//! written when the record of the end is on the disk, so an end that a crash takes back has no line; a
//! psched that is killed in that very moment has one too few, and never one too many.
//!
//! ```text
//!   INFO usage: application 12.1 ended with status 0 apid=12 incarnation=1 uid=1000 user="alice"
//!     command="./a.out" width=8 depth=1 per_node=2 nids="0-3" processors=8 posted="2026-11-20T11:58:00.000Z"
//!     started="2026-11-20T11:59:00.000Z" ended="2026-11-20T12:00:00.000Z" waited_ms=60000 ran_ms=60000
//!     processor_ms=480000 status=0 max_rss_kib=9496
//! ```
//!
//! A field without a value is not there: a posting that went without a place has no `nids`.

use super::committer::Answer;
use super::views;
use crate::apteam::record::{Apteam, State};
use crate::machine::format_nids;
use crate::psched::decide::Record;

/// The target of these events, to be named in a filter.
pub const TARGET: &str = "usage";

/// What is written of one application.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// `12.1`.
    key: String,
    apid: u64,
    incarnation: u32,
    uid: u32,
    user: Option<String>,
    account: Option<String>,
    command: String,
    width: u32,
    depth: u32,
    per_node: Option<u32>,
    nids: Option<String>,
    /// Those that its PEs had.
    processors: u64,
    posted: Option<String>,
    started: Option<String>,
    ended: Option<String>,
    /// From its posting until its PEs began, or until it went.
    waited_ms: u64,
    /// Without the time in which it was frozen.
    ran_ms: u64,
    processor_ms: u64,
    status: u8,
    /// Bytes, on all its nodes.
    peak_memory: Option<u64>,
    /// Of the largest PE.
    max_rss_kib: Option<u64>,
    /// What decided its end.
    cause: Option<String>,
}

/// What is to be written once these records are durable.
pub fn lines(records: &[Record]) -> Vec<Answer> {
    if !tracing::enabled!(target: TARGET, tracing::Level::INFO) {
        return Vec::new();
    }
    let ended = records.iter().filter_map(|record| match record {
        Record::Posted(team) | Record::Adopted(team) | Record::Update { team, .. }
            if team.state == State::Ended =>
        {
            Some(&**team)
        }
        _ => None,
    });
    let write = |team: &Apteam| -> Answer {
        let line = Line::of(team);
        Box::new(move |_| line.write())
    };
    ended.map(write).collect()
}

impl Line {
    fn of(team: &Apteam) -> Line {
        let end = team.end.clone().unwrap_or_default();
        let shape = team.posting.shape;
        // Placed once, and then not launched: it has had nothing.
        let ran = team.running_at_ns > 0;
        let places = team.places.0.iter().filter(|_| ran);
        let processors = places.map(|p| p.processors.len() as u64).sum();
        let ran_ms = if ran { views::ran_ns(team) / 1_000_000 } else { 0 };
        let began_ns = if ran { team.running_at_ns } else { team.ended_at_ns };
        let known = |amount: u64| (amount > 0).then_some(amount);
        let nids = format_nids(team.places.nids());
        Line {
            key: team.key().to_string(),
            apid: team.apid.0,
            incarnation: team.incarnation.0,
            uid: team.owner.uid,
            user: Some(team.owner.name.clone()).filter(|name| !name.is_empty()),
            account: team.posting.account.as_ref().map(|account| account.as_str().to_owned()),
            command: team.posting.command.clone(),
            width: shape.width,
            depth: shape.depth,
            per_node: shape.per_node,
            nids: (ran && !nids.is_empty()).then_some(nids),
            processors,
            posted: moment(team.posted_at_ns),
            started: moment(team.running_at_ns),
            ended: moment(team.ended_at_ns),
            waited_ms: began_ns.saturating_sub(team.posted_at_ns) / 1_000_000,
            ran_ms,
            processor_ms: processors.saturating_mul(ran_ms),
            status: end.status(),
            peak_memory: known(end.peak_memory),
            max_rss_kib: known(end.usage.max_rss_kib),
            cause: end.first.map(|decisive| decisive.cause.words_to(&team.owner)),
        }
    }

    fn write(&self) {
        // Texts are written between quotation marks: what a user types makes no field and no line.
        tracing::info!(
            target: TARGET,
            apid = self.apid,
            incarnation = self.incarnation,
            uid = self.uid,
            user = self.user.as_deref(),
            account = self.account.as_deref(),
            command = self.command.as_str(),
            width = self.width,
            depth = self.depth,
            per_node = self.per_node,
            nids = self.nids.as_deref(),
            processors = self.processors,
            posted = self.posted.as_deref(),
            started = self.started.as_deref(),
            ended = self.ended.as_deref(),
            waited_ms = self.waited_ms,
            ran_ms = self.ran_ms,
            processor_ms = self.processor_ms,
            status = self.status,
            peak_memory = self.peak_memory,
            max_rss_kib = self.max_rss_kib,
            cause = self.cause.as_deref(),
            "application {} ended with status {}",
            self.key,
            self.status
        );
    }
}

/// In UTC, to the millisecond.
fn moment(at_ns: u64) -> Option<String> {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(at_ns / 1_000_000).ok()?).ok()?;
    (at_ns > 0).then(|| format!("{at:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::change::By;
    use crate::apteam::ending::{Cause, Decisive, HostEnd, Usage};
    use crate::apteam::posting::Account;
    use crate::psched::serve::tests::team;
    use std::time::Duration;

    /// 2026-11-20 12:00:00 UTC.
    const NOW: u64 = 1_795_176_000_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn one_that_ran() {
        let mut team = team(12, State::Ended);
        team.restart = None;
        team.posting.account = Account::parse("climate").ok();
        team.posted_at_ns = NOW;
        team.running_at_ns = NOW + 60 * SECOND;
        team.ended_at_ns = NOW + 90 * SECOND + 500_000_000;
        let cause = Cause::Kill { signal: 15, uid: 0 };
        team.end = Some(HostEnd {
            first: Some(Decisive { at_ns: 1, cause }),
            // It was frozen for the rest.
            run: Duration::from_secs(20),
            frozen: Duration::from_millis(10_500),
            usage: Usage { max_rss_kib: 9_496, ..Usage::default() },
            peak_memory: 1 << 30,
            ..HostEnd::default()
        });
        let line = Line::of(&team);
        let golden = Line {
            key: "12.2".into(),
            apid: 12,
            incarnation: 2,
            uid: 1000,
            user: Some("alice".into()),
            account: Some("climate".into()),
            command: "./a.out -x".into(),
            width: 4,
            depth: 2,
            per_node: Some(2),
            nids: Some("3".into()),
            processors: 8,
            posted: Some("2026-11-20T12:00:00.000Z".into()),
            started: Some("2026-11-20T12:01:00.000Z".into()),
            ended: Some("2026-11-20T12:01:30.500Z".into()),
            waited_ms: 60_000,
            ran_ms: 20_000,
            processor_ms: 160_000,
            status: 143,
            peak_memory: Some(1 << 30),
            max_rss_kib: Some(9_496),
            cause: Some("killed by root: Terminated (signal 15)".into()),
        };
        assert_eq!(line, golden);
    }

    /// A place that it never ran on costs it nothing.
    #[test]
    fn a_posting_that_went() {
        let mut team = team(13, State::Ended);
        team.posted_at_ns = NOW;
        team.ended_at_ns = NOW + 7 * SECOND;
        team.held = None::<By>;
        let line = Line::of(&team);
        assert_eq!((line.nids, line.processors, line.started), (None, 0, None));
        assert_eq!((line.waited_ms, line.ran_ms, line.processor_ms), (7_000, 0, 0));
        assert_eq!((line.status, line.cause, line.peak_memory), (0, None, None));
        assert_eq!(line.ended.as_deref(), Some("2026-11-20T12:00:07.000Z"));
    }
}
