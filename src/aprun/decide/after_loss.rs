//! Whether an application that has lost a host is restarted from a checkpoint: `aprun --restart-from`.
//!
//! # Problem
//! A host dies, and with it days of work, although there is a checkpoint of yesterday. To restart from the wrong
//! one would be worse: from one of another application, or over and over from one whose restart takes a host down
//! again.
//!
//! # Approach
//! Only the loss of a node restarts ([`lost`]). What the program, its user or a limit has ended stays ended. The
//! checkpoint has to be one of the applications of this aprun ([`Chain`]): of the lost one, or of one before it, of
//! which the lost one was a restart. Apids are counted by a store of psched's, so the store counts too. That the
//! manifest tells the truth is not decided here: psched looks at its seal when the restart is posted.
//!
//! The same checkpoint is used again only if the application ran for [`RUN_MIN`] since. This time is an upper bound:
//! aprun hears of a loss when the host is back or is declared down. So a checkpoint is used at most [`TIMES`] times in
//! a row.

use super::closing::Ended;
use crate::apteam::Apid;
use crate::apteam::ending::Cause;
use crate::checkpoint::{Checksum, Manifest};
use crate::machine::Nid;
use crate::variables::units::format_duration;
use std::collections::VecDeque;
use std::time::Duration;

/// How long an application that was restarted has to run before it is restarted from the same checkpoint again.
pub const RUN_MIN: Duration = Duration::from_secs(60);
/// How often an application is restarted from the same checkpoint in a row.
pub const TIMES: u32 = 3;
/// Applications that are remembered: with one a minute, those of an hour.
const APIDS_MAX: usize = 64;

/// The node that an application has lost, and how, where that has ended it.
pub fn lost(ended: &Ended) -> Option<(Nid, &str)> {
    match &ended.end.first.as_ref()?.cause {
        Cause::NodeLost { nid, text } => Some((*nid, text)),
        _ => None,
    }
}

/// A checkpoint that was found, and whose manifest says this.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// What it says.
    pub manifest: &'a Manifest,
    /// The checksum of the manifest's text, which names the checksums of all files.
    pub sum: Checksum,
}

/// The applications of one aprun: each but the first is a restart of one before it.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    apids: VecDeque<Apid>,
    /// What the latest was restarted from, and how often in a row.
    used: Option<(Checksum, u32)>,
}

impl Chain {
    /// This is the latest application now.
    pub fn ran(&mut self, apid: Apid) {
        if self.apids.back() == Some(&apid) {
            return;
        }
        if self.apids.len() == APIDS_MAX {
            self.apids.pop_front();
        }
        self.apids.push_back(apid);
    }

    /// It is restarted from this one.
    pub fn uses(&mut self, sum: Checksum) {
        self.used = Some((sum, self.times(sum) + 1));
    }

    /// How often in a row it was restarted from this one, until now.
    fn times(&self, sum: Checksum) -> u32 {
        self.used.filter(|(used, _)| *used == sum).map_or(0, |(_, times)| times)
    }

    /// Whether the latest application, which ran for so long, is to be restarted from this checkpoint by this
    /// user. `store`: that of its psched; empty: psched has not said it.
    ///
    /// # Errors
    /// It is not; why, to be read after the name of the folder.
    pub fn may_use(
        &self,
        found: Found<'_>,
        uid: u32,
        store: &str,
        ran: Duration,
    ) -> Result<(), String> {
        let Found { manifest, sum } = found;
        let (of, owner) = (manifest.recovery.apid, manifest.recovery.owner.uid);
        let Some(apid) = self.apids.back() else {
            return Err("no application of this aprun has a number yet".to_owned());
        };
        if owner != uid {
            return Err(format!("the checkpoint is of an application of user {owner}, not yours"));
        }
        let other_store = !store.is_empty() && manifest.made.store != store;
        if other_store || !self.apids.contains(&of) {
            let whose = if other_store { " of another psched" } else { "" };
            return Err(format!(
                "the checkpoint is of application {of}{whose}, not of application {apid}"
            ));
        }
        let times = self.times(sum);
        if times >= TIMES {
            return Err(format!(
                "application {apid} was restarted from this checkpoint {times} times, and was lost each time; \
                 cpr -r restarts it once more"
            ));
        }
        if times > 0 && ran < RUN_MIN {
            return Err(format!(
                "application {apid} was restarted from this checkpoint, and ran for less than {} before it \
                 was lost, too; cpr -r restarts it once more",
                format_duration(RUN_MIN)
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::ending::{Decisive, HostEnd};
    use crate::checkpoint::example;

    const LONG: Duration = Duration::from_secs(3600);

    fn ended(cause: Option<Cause>) -> Ended {
        let first = cause.map(|cause| Decisive { at_ns: 1, cause });
        Ended {
            status: 125,
            end: HostEnd { first, ..HostEnd::default() },
            told: false,
            by_name: String::new(),
            host: String::new(),
            no_copy: false,
        }
    }

    #[test]
    fn only_a_lost_node_restarts() {
        let text = || "its host was restarted".to_owned();
        let found = ended(Some(Cause::NodeLost { nid: Nid(3), text: text() }));
        assert_eq!(lost(&found), Some((Nid(3), &text()[..])));
        let others = [
            Cause::PeExit { rank: 0, nid: Nid(3), code: 1 },
            Cause::PeSignal { rank: 0, nid: Nid(3), signal: 11 },
            Cause::Abort { rank: 0, nid: Nid(3), code: 1 },
            Cause::Kill { signal: 9, uid: 0 },
            Cause::TimeLimit { limit: LONG },
            Cause::FrontGone,
            Cause::StdoutClosed,
            Cause::ShepherdLost { nid: Nid(3), text: text(), fault: Default::default() },
            Cause::NoRecord,
            Cause::OverMemory { nid: Nid(3), pes: 1, per_pe: 1, largest: None },
            Cause::HostMemory { rank: 0, nid: Nid(3) },
            Cause::Purge { uid: 0 },
            Cause::Checkpointed { uid: 0 },
        ];
        for cause in others {
            assert_eq!(lost(&ended(Some(cause.clone()))), None, "{cause:?}");
        }
        assert_eq!(lost(&ended(None)), None);
    }

    #[test]
    fn a_checkpoint_of_another_application_is_not_used() {
        let (manifest, sum) = (example(), Checksum::of(b"1"));
        let (uid, store) = (manifest.recovery.owner.uid, manifest.made.store.clone());
        let of = |apids: &[u64]| {
            let mut chain = Chain::default();
            apids.iter().for_each(|apid| chain.ran(Apid(*apid)));
            chain
        };
        let may = |chain: &Chain, uid, store: &str| {
            chain.may_use(Found { manifest: &manifest, sum }, uid, store, LONG)
        };
        assert_eq!(may(&of(&[12]), uid, &store), Ok(()));
        assert_eq!(may(&of(&[12]), uid, ""), Ok(()));
        assert_eq!(may(&of(&[12, 15, 20]), uid, &store), Ok(()));
        let refused = may(&of(&[13]), uid, &store).expect_err("another");
        assert_eq!(refused, "the checkpoint is of application 12, not of application 13");
        let refused = may(&of(&[12]), uid, "another").expect_err("another");
        assert_eq!(
            refused,
            "the checkpoint is of application 12 of another psched, not of application 12"
        );
        let refused = may(&of(&[12]), uid + 1, &store).expect_err("another user's");
        assert_eq!(refused, "the checkpoint is of an application of user 1000, not yours");
        assert!(may(&of(&[]), uid, &store).is_err());
        // What is remembered is bounded.
        let many: Vec<u64> = (12..12 + 2 * APIDS_MAX as u64).collect();
        assert!(may(&of(&many), uid, &store).is_err());
    }

    #[test]
    fn the_same_checkpoint_is_used_again_after_a_while_only() {
        let manifest = example();
        let mut chain = Chain::default();
        chain.ran(manifest.recovery.apid);
        let may = |chain: &Chain, bytes: &[u8], ran| {
            let found = Found { manifest: &manifest, sum: Checksum::of(bytes) };
            chain.may_use(found, manifest.recovery.owner.uid, &manifest.made.store, ran)
        };
        // However short it ran: it was never restarted.
        assert_eq!(may(&chain, b"1", Duration::ZERO), Ok(()));
        chain.uses(Checksum::of(b"1"));
        chain.ran(Apid(20));
        let refused = may(&chain, b"1", RUN_MIN - Duration::from_nanos(1)).expect_err("too soon");
        assert!(refused.contains("application 20 was restarted from this checkpoint"), "{refused}");
        assert!(refused.contains("less than 1m"), "{refused}");
        assert_eq!(may(&chain, b"1", RUN_MIN), Ok(()));
        assert_eq!(may(&chain, b"2", Duration::ZERO), Ok(()));
        // Three times it is restarted, however late its losses are heard of.
        chain.uses(Checksum::of(b"1"));
        assert_eq!(may(&chain, b"1", LONG), Ok(()));
        chain.uses(Checksum::of(b"1"));
        let refused = may(&chain, b"1", LONG).expect_err("too often");
        assert!(refused.contains("from this checkpoint 3 times"), "{refused}");
        chain.uses(Checksum::of(b"2"));
        assert_eq!(may(&chain, b"1", LONG), Ok(()));
    }
}
