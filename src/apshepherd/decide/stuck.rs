//! Processes that outlive their KILL.
//!
//! A KILL usually takes milliseconds. Where one does not ([`NAME_AFTER`]), the kernel holds the
//! process, and no number of further ones helps: so they become rare, and who it is and where it
//! waits is told, to the user on stderr and to everybody through psched. The application is not over
//! until that process is.

use super::left::Left;
use super::{Action, KILL_AGAIN, Shepherd, after};
use crate::apteam::protocol::notice::Seen;
use crate::apteam::protocol::shepherd::FromShepherd;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long after the first KILL what is left is named.
pub(super) const NAME_AFTER: Duration = Duration::from_secs(1);
/// How often it is looked at again.
pub(super) const NAME_AGAIN: Duration = Duration::from_secs(5);
/// The longest time from one KILL of what does not die to the next.
const KILL_RARELY: Duration = Duration::from_secs(5);
/// The most processes that are named at once.
pub const NAMED_MAX: usize = 16;

#[derive(Clone, Debug, Default)]
pub(super) struct Stuck {
    /// Since when everything is being killed.
    since: Option<u64>,
    pub name_at: Option<u64>,
    told: BTreeSet<i32>,
    /// What apinit knows.
    pub list: Vec<String>,
}

impl Shepherd {
    pub(super) fn kill_everything(&mut self, now_ns: u64) {
        self.grace = None;
        self.actions.push(Action::KillEverything);
        let since = *self.stuck.since.get_or_insert(now_ns);
        // As long again as it has been done in vain, within bounds.
        let pause =
            Duration::from_nanos(now_ns.saturating_sub(since)).clamp(KILL_AGAIN, KILL_RARELY);
        self.kill_at = Some(after(now_ns, pause));
        self.stuck.name_at.get_or_insert(after(since, NAME_AFTER));
    }

    pub(super) fn name_left(&mut self, now_ns: u64) {
        self.stuck.name_at = Some(after(now_ns, NAME_AGAIN));
        self.actions.push(Action::NameLeft);
    }

    pub(super) fn left_named(&mut self, left: Vec<Left>) {
        let mut list = Vec::new();
        for Left { pid, nid, text } in left.into_iter().take(NAMED_MAX) {
            if self.stuck.told.insert(pid) {
                self.notice(nid, Seen::Process(text.clone()));
            }
            list.push(text);
        }
        if list != self.stuck.list {
            self.stuck.list = list;
            self.send(|shepherd| FromShepherd::Stuck(shepherd.stuck.list.clone()));
        }
    }
}
