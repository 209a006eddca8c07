//! Launches that fail by a node's fault: tried again elsewhere, and counted against the node.
//!
//! # Problem
//! A host may fail while it launches an application: its apshepherd can't be started, it has no process left,
//! its apinit dies. The user can do nothing about that, and another node may do better. But a second try must
//! not run a program twice; and what users can bring about must not take nodes away from others.
//!
//! # Approach
//! Hosts say with the cause whose fault it was ([`Fault`]). Three rules follow:
//!
//! - *Tried again only if no PE has run.* psched waits until every host of the application has said that its
//!   part is empty, and that no PE ran there. Where the host of PE 0 was lost nobody can say so: its PEs, which
//!   go first, may have run. Then the application ends as before.
//! - *Not there again.* The application waits at its old place in the queue, with a new incarnation and
//!   without the nodes of the host where it failed (or, where there is no other host, without those that it
//!   had there). It ends if no open nodes are left that could hold it, and after `launch_retries` tries.
//! - *A node that fails on and on is drained.* Launches of `launch_failures_to_drain` applications must have
//!   failed there in a row by the node's own fault, and these must be of two users: what one user does alone,
//!   however often, drains no node. (Root's applications, and those of an instance with one user, count
//!   without a second user.) An application counts once on each node. A launch that succeeds on the node sets
//!   its count back, and so does `psmgr resume`.
//!   What a host says of another's node does not count against that.
//!   The last host with open nodes is not drained: there an error is of more use than a wait without end.
//!
//! ```text
//!   Launching --all hosts empty, none ran, fault of NID 2--> Posted, without NID 2
//!        Keep(12 posted)  Log(retried)  Tell(Retried)         ... Keep(12 placed) ...
//! ```
//!
//! An application that comes from a checkpoint, or that was posted with --immediate, is not tried again.

use super::{Effect, News, Now, Record, Scheduler};
use crate::apteam::change::{By, Change, Closed, NodeOrder};
use crate::apteam::choice::Choice;
use crate::apteam::ending::{Cause, Decisive, HostEnd};
use crate::apteam::fault::Fault;
use crate::apteam::place::PlacementList;
use crate::apteam::posting::{Posting, cut};
use crate::apteam::record::{Apteam, FailedLaunch, Retries, State};
use crate::apteam::{Apid, Key};
use crate::machine::{Nid, nids_text};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The longest reason for which psched drains a node, in bytes: it is shown on one line.
const REASON_MAX: usize = 200;

/// A launch that failed by a node's fault before any PE ran.
struct Failed {
    cause: Cause,
    /// The nodes that the application had on the host that failed.
    own: Vec<Nid>,
    /// All nodes of that host.
    host: Vec<Nid>,
}

/// For each node, the applications whose launches have failed there in a row by its fault, with their users.
/// No record: after a restart of psched nodes are counted anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FailedLaunches {
    nodes: BTreeMap<Nid, Vec<(Apid, u32)>>,
    /// Of applications that are not over yet, the nodes whose own host has said that the launch failed there, or
    /// that psched has found so. What another host says of a node is hearsay, and does not count against it.
    own: BTreeSet<(Key, Nid)>,
}

impl FailedLaunches {
    /// One more; how many have failed there now, and of how many users.
    fn add(&mut self, nid: Nid, apid: Apid, uid: u32, most: usize) -> (usize, usize) {
        let failed = self.nodes.entry(nid).or_default();
        if failed.len() < most && failed.iter().all(|(known, _)| *known != apid) {
            failed.push((apid, uid));
        } else if failed.iter().all(|(_, known)| *known != uid) {
            // As many as count are of others: the first of them makes room for another user.
            failed.remove(0);
            failed.push((apid, uid));
        }
        let users: BTreeSet<u32> = failed.iter().map(|(_, uid)| *uid).collect();
        (failed.len(), users.len())
    }

    fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.own.is_empty()
    }

    /// psched has found that a launch failed at this node.
    pub fn found(&mut self, key: Key, nid: Nid) {
        self.own.insert((key, nid));
    }

    /// A host has said how its part of an application ended.
    pub fn note(&mut self, end: &HostEnd) {
        let cause = end.first.as_ref().map(|first| &first.cause);
        if let Some((nid, _)) = cause.and_then(Cause::failed_launch)
            && end.nids.contains(&nid)
        {
            self.own.insert((end.key, nid));
        }
    }

    fn is_known(&self, key: Key, nid: Nid) -> bool {
        self.own.contains(&(key, nid))
    }

    /// This launch is over.
    pub fn over(&mut self, key: Key) {
        let its = self.own.range((key, Nid(0))..=(key, Nid(u32::MAX)));
        for one in its.copied().collect::<Vec<_>>() {
            self.own.remove(&one);
        }
    }

    /// Of these it is known that they work, or an administrator has said so.
    pub fn forget(&mut self, nids: impl IntoIterator<Item = Nid>) {
        nids.into_iter().for_each(|nid| drop(self.nodes.remove(&nid)));
    }
}

/// Notes why an application is to end. What a host has said of a launch that it failed stands back behind
/// what somebody wants: it would be tried again.
pub(super) fn doom(team: &mut Apteam, doom: Decisive) {
    team.doomed = match team.doomed.take() {
        Some(before) if may_be_tried_again(team, &before) => Some(doom),
        before => Decisive::earlier(before, Some(doom)),
    };
}

/// Whether an application that is to end for this reason may wait for another place instead.
pub(super) fn may_be_tried_again(team: &Apteam, doomed: &Decisive) -> bool {
    team.state != State::Running && doomed.cause.fault().may_pass_elsewhere()
}

impl Scheduler {
    /// Whether there are nodes against which failed launches count: a psched that is started anew knows of none.
    pub fn counts_failed_launches(&self) -> bool {
        !self.failed_launches.is_empty()
    }

    /// All parts of an application are empty: whether it waits for another place now, instead of having ended.
    pub(super) fn is_tried_again(&mut self, now: Now, apid: Apid, out: &mut Vec<Effect>) -> bool {
        let Some(failed) = self.failed_launch(apid) else { return false };
        self.count_against(now, apid, &failed, out);
        let Some(choice) = self.elsewhere(apid, &failed) else { return false };
        self.wait_again(now, apid, failed.cause, choice, out);
        true
    }

    /// What failed, if that was a launch and a node's fault, and no PE has run anywhere.
    fn failed_launch(&self, apid: Apid) -> Option<Failed> {
        let team = self.teams.get(&apid)?;
        let begins = matches!(team.state, State::Placed | State::TakingBack | State::Launching);
        let end = team.end.clone()?.decided(team.doomed.clone());
        let may_have_run = end.launched || team.running_at_ns != 0 || team.retries.may_have_run;
        let cause = end.first?.cause;
        if !begins || may_have_run || !cause.fault().may_pass_elsewhere() {
            return None;
        }
        let (nid, _) = cause.failed_launch()?;
        let part = team.hosts.iter().find(|host| host.nids.contains(&nid));
        let own = part.map_or_else(|| vec![nid], |part| part.nids.clone());
        let link = self.offered.get(&nid).and_then(|link| self.links.get(link));
        let host = link.map_or_else(|| own.clone(), |link| link.hello.nids.clone());
        Some(Failed { cause, own, host })
    }

    /// The nodes on which it may be tried again; none: it is not.
    fn elsewhere(&self, apid: Apid, failed: &Failed) -> Option<Choice> {
        let team = self.teams.get(&apid)?;
        let Posting { tries_again, immediate, choice, .. } = &team.posting;
        let wanted = |doomed: &Decisive| !may_be_tried_again(team, doomed);
        if !tries_again
            || *immediate
            || team.restart.is_some()
            || team.front.is_none()
            || team.doomed.as_ref().is_some_and(wanted)
            || team.retries.count >= self.settings.launch_retries
        {
            return None;
        }
        let shut: Vec<Nid> =
            self.machine.nodes.keys().copied().filter(|nid| !self.is_open(*nid)).collect();
        [&failed.host, &failed.own].into_iter().find_map(|struck_out| {
            let left = choice.clone().without(struck_out)?;
            let open = left.clone().without(&shut)?;
            let posting = Posting { choice: open, ..team.posting.clone() };
            self.may_ever(&posting, &team.owner).is_ok().then_some(left)
        })
    }

    /// It waits again, at its old place in the queue.
    fn wait_again(
        &mut self,
        now: Now,
        apid: Apid,
        cause: Cause,
        choice: Choice,
        out: &mut Vec<Effect>,
    ) {
        let most = self.settings.launch_retries;
        let Some(team) = self.teams.get_mut(&apid) else { return };
        let (key, left) = (team.key(), team.places.clone());
        self.kept_bytes.remove(team);
        team.posting.choice = choice;
        self.kept_bytes.add(team);
        team.places = PlacementList::default();
        team.hosts = Arc::default();
        (team.end, team.doomed) = (None, None);
        let count = team.retries.count.saturating_add(1);
        let last = FailedLaunch { incarnation: key.incarnation, cause };
        team.retries = Retries { count, last: Some(last.clone()), may_have_run: false };
        self.become_state(apid, State::Posted);
        if let Some(team) = self.teams.get_mut(&apid) {
            // What hosts say of the launch that has failed has no effect any more.
            team.incarnation.0 += 1;
        }
        self.failed_launches.over(key);
        self.taken_back.remove(&key);
        self.placed_again.remove(&key);
        self.migration_blockers.remove(&apid);
        self.stuck.remove(&apid);
        self.measured.forget(apid);
        self.occupancy.release(apid);
        self.note_left(&left);
        self.relink(apid);
        self.schedule.decision.forget(apid);
        self.turns_changed(now, apid);
        self.save(apid, false, out);
        let detail = format!("{count} of {most}: {}", last.cause);
        out.push(Effect::Log { apid, name: "retried", detail });
        out.push(Effect::Tell {
            apid,
            news: News::Retried { failed: Box::new(last), count, most },
        });
        self.want_decisions();
    }

    /// A launch has failed by this node's fault: if that has happened too often in a row, it is drained.
    fn count_against(&mut self, now: Now, apid: Apid, failed: &Failed, out: &mut Vec<Effect>) {
        let most = self.settings.launch_failures_to_drain;
        let Some(team) = self.teams.get(&apid) else { return };
        let Some((at, _)) = failed.cause.failed_launch() else { return };
        let is_known = self.failed_launches.is_known(team.key(), at);
        if failed.cause.fault() != Fault::Node || most == 0 || !is_known {
            return;
        }
        let elsewhere = |nid: &Nid| !failed.host.contains(nid) && self.is_open(*nid);
        let is_last = !self.machine.nodes.keys().any(elsewhere);
        let uid = team.owner.uid;
        let trusted = uid == 0 || self.settings.only_uid.is_some();
        let mut drained = Vec::new();
        for nid in failed.own.iter().copied().filter(|nid| !self.closed.contains_key(nid)) {
            let (count, users) = self.failed_launches.add(nid, apid, uid, most);
            if count >= most && (users > 1 || trusted) && !is_last {
                drained.push(nid);
            }
        }
        if let Some((_, text)) = failed.cause.failed_launch()
            && !drained.is_empty()
        {
            let reason = format!("{most} launches in a row failed here; the last one: {text}");
            self.drain_for(now, drained, cut(reason, REASON_MAX), out);
        }
    }

    /// psched drains these nodes.
    fn drain_for(&mut self, now: Now, nids: Vec<Nid>, reason: String, out: &mut Vec<Effect>) {
        let by = By { uid: 0, name: "psched".to_owned(), at_ns: now.wall_ns };
        let order = NodeOrder { closed: Closed::Drained, reason, by: by.clone() };
        for nid in &nids {
            self.closed.insert(*nid, order.clone());
            self.open_or_not(*nid);
        }
        self.failed_launches.forget(nids.iter().copied());
        let (what, after) = (nids_text(nids.iter().copied()), order.to_string());
        out.push(Effect::Warn(format!("{what}: {after}; psmgr resume takes it back")));
        let before = "open".to_owned();
        out.push(Effect::Keep(Record::Change(Change { by, what, before, after })));
        out.push(Effect::Keep(Record::Nodes(nids, Some(Box::new(order)))));
        self.want_decisions();
    }
}
