//! A psched that is not obeyed.
//!
//! A node remembers the store of the psched that it obeys, and how often that psched had started
//! on it (its epoch). One that comes with another store, or with an older start of the same one, is
//! a stranger: its state directory is empty, wrong, or an old copy, and its records know nothing of
//! what runs here. To obey it would end everything. So the node stays linked, tells what it holds,
//! and takes no command, until an administrator has said which it is to be:
//!
//! - *adopt*: the stranger, which has put what is here on its records, is obeyed from now on.
//! - *purge*: everything is ended, and each end told to the stranger until it has acknowledged it;
//!   once nothing is left, it is obeyed.
//!
//! An old copy is told from the store itself by the starts of psched, each of which has a random id:
//! whoever has gone on from what the node obeys has that start on record. A copy that was made
//! since that start has it too. It is told by the commits of the store, which psched counts: all
//! that it says carries how many are durable, and the node remembers the highest number. A command
//! leaves psched once its commit is durable, so a psched that goes on from all that the node was
//! told has as many at least, and any later start came after them. A copy that has been used since
//! may have more by now; its start came too early all the same.
//!
//! (Of a psched that counts no commits a copy is told by the numbers of the applications that it
//! lacks.)
//!
//! A psched that goes on from a damaged store may be unable to read the records of some applications. A node
//! that has one of them tells all that it holds in the same way, and psched adopts that by itself.
//!
//! Neither adoption nor purge is remembered before it is done: when psched, apinit or the link between them dies in
//! the middle, the node is foreign still, and the same command goes on from there.

use super::application::App;
use super::stranger::Stranger;
use super::{Action, Agent, Out};
use crate::apteam::ending::Cause;
use crate::apteam::protocol::node::{Command, Foreign, ForeignApplication, Welcome};
use crate::apteam::{Apid, Key};
use std::time::Duration;

/// Starts of old copies that are remembered.
const DISTRUSTED_MAX: usize = 64;

impl Agent {
    /// Takes these starts of psched, which a former life of this apinit has met, for old copies.
    pub fn distrusting(mut self, starts: Vec<String>) -> Agent {
        self.distrusted = starts;
        self
    }

    /// Why a psched is not obeyed, if it isn't.
    pub(super) fn why_not(&mut self, welcome: &Welcome, out: &mut Out) -> Option<String> {
        let known = self.welcome.as_ref().filter(|w| !w.store_id.is_empty())?;
        if known.store_id != welcome.store_id {
            return Some(format!(
                "apinit obeys the psched of store {}, not this one of store {}",
                short(&known.store_id),
                short(&welcome.store_id)
            ));
        }
        let copy = "this psched has an old copy of its state";
        let followed = match (known.start(known.epoch), welcome.start(known.epoch)) {
            (Some(obeyed), Some(told)) => obeyed == told,
            // Longer ago than anybody keeps, or of a release that told no starts.
            _ => welcome.epoch >= known.epoch,
        };
        if !followed {
            return Some(format!(
                "apinit has obeyed start {} of psched on this store, and the store here (start \
                 {}) lacks the commits of that start: {copy}",
                known.epoch, welcome.epoch
            ));
        }
        if let Some(why) = lacks_commits(known, welcome) {
            return Some(format!("{why}: {copy}"));
        }
        if welcome.starts.iter().any(|start| self.distrusted.contains(&start.id)) {
            return Some(format!(
                "an earlier start of psched on this store lacked applications of this apinit: \
                 {copy}"
            ));
        }
        let has = |apid: &&Apid| {
            self.apps.values().any(|app| app.key().apid == **apid && !app.over_with_psched())
        };
        if let Some(apid) = welcome.unreadable.iter().find(has) {
            return Some(format!(
                "apinit has application {apid}, whose record this psched can't read"
            ));
        }
        // Copied in the epoch that the node knows: the number tells. But only now, before others
        // are given; so it is remembered.
        let held = self.apps.values().filter(|app| !app.over_with_psched());
        let newest = held.map(|app| app.key().apid.0).max()?;
        if newest < welcome.next_apid {
            return None;
        }
        if let Some(start) = welcome.start(welcome.epoch)
            && self.distrusted.len() < DISTRUSTED_MAX
        {
            self.distrusted.push(start.to_owned());
            out.push(Action::Distrust(self.distrusted.clone()));
        }
        Some(format!(
            "apinit has application {newest}, and the highest number in this store is {}: {copy}",
            welcome.next_apid.saturating_sub(1)
        ))
    }

    /// psched says that its store has so many commits.
    pub(super) fn counted(&mut self, commits: u64, out: &mut Out) {
        let told = match &mut self.stranger {
            Some(stranger) => Some(&mut stranger.welcome),
            None => self.welcome.as_mut().filter(|_| self.linked),
        };
        let Some(welcome) = told.filter(|welcome| welcome.commits < commits) else { return };
        welcome.commits = commits;
        if self.stranger.is_none() {
            out.push(Action::RememberCommits(commits));
        }
    }

    pub(super) fn meet_stranger(&mut self, welcome: Welcome, why: String) {
        self.linked = false;
        self.stranger = Some(Stranger { welcome, purging: false, untold: Some(why) });
    }

    /// Tells one that has yet to be told what is here, as soon as that is known.
    pub(super) fn tell_stranger(&mut self, now: u64, out: &mut Out) {
        let untold = self.stranger.as_mut().map(|stranger| &mut stranger.untold);
        let Some(untold) = untold.filter(|untold| untold.is_some()) else { return };
        if self.apps.values().any(App::is_being_bound) {
            return;
        }
        let Some(why) = untold.take() else { return };
        let (store_id, epoch) = self.store();
        let (store_id, epoch) = (store_id.to_owned(), epoch);
        let applications = self
            .apps
            .values()
            .filter(|app| !app.over_with_psched())
            .map(|app| {
                let mut place = app.place.clone();
                place.ticket_left = Duration::from_nanos(app.ticket_until_ns.saturating_sub(now));
                let run = Duration::from_nanos(app.run_ns(now));
                ForeignApplication { place, phase: app.phase(), run }
            })
            .collect();
        out.push(Action::Foreign(Box::new(Foreign { store_id, epoch, why, applications })));
    }

    /// Ends are told: to the psched that is obeyed, or to the one that has the node purged.
    pub(super) fn reports_ends(&self) -> bool {
        self.linked || self.is_purged()
    }

    fn is_purged(&self) -> bool {
        self.stranger.as_ref().is_some_and(|s| s.purging)
    }

    pub(super) fn stranger_says(&mut self, now: u64, command: Command, out: &mut Out) {
        match command {
            Command::Adopt if !self.is_purged() => {
                self.adopt_fronts(now, out);
                if let Some(stranger) = self.stranger.take() {
                    self.obey(now, stranger.welcome, out);
                }
            }
            Command::Purge { uid } => self.purge(now, uid, out),
            Command::AcknowledgeEnd(key) if self.is_purged() => self.acknowledge(now, key, out),
            // For when it is obeyed.
            Command::Bounds(bounds) => {
                if let Some(stranger) = &mut self.stranger {
                    stranger.welcome.bounds = bounds;
                }
            }
            _ => {}
        }
    }

    fn purge(&mut self, now: u64, uid: u32, out: &mut Out) {
        let Some(stranger) = &mut self.stranger else { return };
        stranger.purging = true;
        let grace = stranger.welcome.kill_grace;
        // (No psched tells any more of the death of a front end on another host, which would be
        // waited for to take its output.)
        self.adopt_fronts(now, out);
        let keys: Vec<Key> = self.apps.keys().copied().collect();
        for key in keys {
            let cause = Cause::Purge { uid };
            if self.apps.get(&key).is_some_and(|app| !app.empty()) {
                self.tell_head(now, key, &cause, out);
                self.end_all(now, key, cause, grace, None, out);
            } else {
                self.report_end(now, key, out);
            }
        }
    }

    /// Obeys the psched that had the node purged, once every end is on its log.
    pub(super) fn finish_purge(&mut self, now: u64, out: &mut Out) {
        if !self.is_purged() || !self.apps.values().all(|app| app.over_with_psched()) {
            return;
        }
        if let Some(stranger) = self.stranger.take() {
            self.obey(now, stranger.welcome, out);
        }
    }
}

/// Why a psched can't go on from all that the node was told by the one that it obeys: its store has
/// too few commits, or a later start on it came before some of them.
fn lacks_commits(known: &Welcome, welcome: &Welcome) -> Option<String> {
    if known.commits == 0 || welcome.commits == 0 {
        return None;
    }
    let (epoch, heard) = (known.epoch, known.commits);
    if welcome.commits < heard {
        return Some(format!(
            "apinit knows commit {heard} of this store, and this psched's last commit is {}",
            welcome.commits
        ));
    }
    let later = welcome.starts.iter().filter(|start| start.epoch > epoch && start.commits > 0);
    let early = later.filter(|start| start.commits < heard).min_by_key(|start| start.epoch)?;
    Some(format!(
        "apinit knows commit {heard} of this store, and start {} of this psched came after commit \
         {}",
        early.epoch, early.commits
    ))
}

/// The first eight digits of a store's id, by which its groups are known too.
fn short(store_id: &str) -> &str {
    store_id.get(..8).unwrap_or(store_id)
}
