//! PEs that die by a signal that a user has sent: one line tells of all of them.
//!
//! A ^C goes to all PEs, and the apshepherd of each host tells of the first of its own that dies: on a hundred
//! hosts that were a hundred lines about one ^C. So what is told of such a signal waits for the other hosts, for
//! a moment that a user does not notice, and at most until the application has ended.

use super::*;
use crate::apteam::ending::{TERMINATION, signal_text};
use crate::apteam::protocol::notice::{Notice, Seen};
use crate::machine::{Nid, nids_text};

/// How long the line waits for other hosts.
pub(super) const DEATHS_WAIT_NS: u64 = 300_000_000;
/// Nodes that the line names; of the others it tells how many they are.
const NAMED_MAX: usize = 16;
/// Nodes that are counted: more than a machine has.
const NODES_MAX: usize = 1 << 20;
/// HUP, INT, QUIT, USR1, USR2 and TERM: what a terminal, aprun and apkill send.
const OF_USERS: [i32; 6] = [1, 2, 3, 10, 12, 15];

/// Deaths by one signal.
#[derive(Debug)]
pub(super) struct Deaths {
    signal: i32,
    /// Where the first was, when, and of which rank.
    first: (Nid, u64, u32),
    nids: BTreeSet<Nid>,
    /// The line is told at this time.
    pub(super) until: u64,
}

impl Front {
    /// Keeps a notice that has to wait; gives back any other, after the line of those that have waited.
    pub(super) fn deaths(&mut self, now_ns: u64, notice: Notice) -> Option<Notice> {
        let Notice::Seen { nid, at_ns, what: Seen::Ends(cause) } = &notice else {
            self.tell_deaths();
            return Some(notice);
        };
        let (nid, at_ns) = (*nid, *at_ns);
        let Cause::PeSignal { rank, signal, .. } = *cause else {
            self.tell_deaths();
            return Some(notice);
        };
        if !OF_USERS.contains(&signal) {
            self.tell_deaths();
            return Some(notice);
        }
        if self.deaths.as_ref().is_some_and(|deaths| deaths.signal != signal) {
            self.tell_deaths();
        }
        self.told_signals.insert(signal);
        let deaths = self.deaths.get_or_insert_with(|| Deaths {
            signal,
            first: (nid, at_ns, rank),
            nids: BTreeSet::new(),
            until: now_ns.saturating_add(DEATHS_WAIT_NS),
        });
        deaths.first = deaths.first.min((nid, at_ns, rank));
        if deaths.nids.len() < NODES_MAX {
            deaths.nids.insert(nid);
        }
        None
    }

    /// Tells of those that have waited.
    pub(super) fn tell_deaths(&mut self) {
        let Some(Deaths { signal, first: (nid, at_ns, rank), nids, .. }) = self.deaths.take()
        else {
            return;
        };
        let who = match nids.len() {
            0 | 1 => format!("PE {rank}"),
            all => {
                let more = match all.saturating_sub(NAMED_MAX) {
                    0 => String::new(),
                    more => format!(" and {more} more nodes"),
                };
                format!("PEs on {}{more}", nids_text(nids.into_iter().take(NAMED_MAX)))
            }
        };
        let text =
            self.of_application(&format!("{who} died: {}{TERMINATION}", signal_text(signal)));
        self.act(Action::SayOfNode { nid, at_ns, text });
    }
}
