//! What another configuration would change for applications, were it read now.
//!
//! # Problem
//! An administrator wants to know before SIGHUP who is concerned: who goes on on nodes that are taken out, who
//! gets a place by nodes that come, who could never be placed any more.
//!
//! # Approach
//! A copy of the scheduler is told of the new configuration, as the scheduler would be. What is another there is
//! what would change; of a second set of rules there is none. Effects go nowhere, but for warnings.
//!
//! ```text
//!   [ Scheduler ] --clone--> [ copy ] <-- Machine, Settings
//!        |                      |
//!        +------ compared ------+---> "application 12 of alice keeps NID 3, which takes nothing new"
//! ```
//!
//! It costs a copy of all that psched knows, and as much as reading the configuration would.

use super::{Effect, Event, Now, Scheduler, Settings};
use crate::apteam::record::{Apteam, State};
use crate::machine::{Machine, Nid, nids_text};

/// Applications that are named; the others are counted.
const NAMED_MAX: usize = 1_000;

impl Scheduler {
    /// What this configuration would change for applications: a sentence for each that it concerns, by number,
    /// and what would be warned of.
    pub fn compared(&self, now: Now, machine: Machine, settings: Settings) -> Vec<String> {
        let mut copy = self.clone();
        let events = [Event::Machine(Box::new(machine)), Event::Settings(Box::new(settings))];
        let effects = events.into_iter().flat_map(|event| copy.apply(now, event));
        let warnings: Vec<String> = effects
            .filter_map(|effect| match effect {
                Effect::Warn(text) | Effect::Fault(text) => Some(text),
                _ => None,
            })
            .collect();
        let concerned = self.teams().filter_map(|team| self.concerns(&copy, team));
        let mut lines: Vec<String> = concerned.collect();
        if lines.len() > NAMED_MAX {
            let others = lines.len() - NAMED_MAX;
            lines.truncate(NAMED_MAX);
            lines.push(format!("and {others} other applications"));
        }
        lines.extend(warnings);
        lines
    }

    /// What is another for this one in a copy with another configuration.
    fn concerns(&self, copy: &Scheduler, team: &Apteam) -> Option<String> {
        let who = format!("application {} of {}", team.apid, team.owner.name);
        if copy.team(team.apid).is_none() {
            return Some(format!("{who} would be removed"));
        }
        if let Some(gets) = Scheduler::gets(copy, team) {
            return Some(gets);
        }
        if team.state == State::Posted {
            self.may_ever(&team.posting, &team.owner).ok()?;
            return copy.impossible(team);
        }
        let retired = |nid: &Nid| copy.retired.contains(nid) && !self.retired.contains(nid);
        let loses = |nid: &Nid| self.is_for_applications(*nid) && !copy.is_for_applications(*nid);
        let leaves = |nid: &Nid| copy.leaving.contains(nid) && !self.leaving.contains(nid);
        self.keeps(team, |nid| retired(nid) || loses(nid) || leaves(nid))
    }

    /// What is said of a posting that could be placed, and can't be any more, whoever ends.
    pub(super) fn impossible(&self, team: &Apteam) -> Option<String> {
        let (_, why) = self.may_ever(&team.posting, &team.owner).err()?;
        let who = self.name_of(team.apid);
        Some(format!("application {who} could no longer be placed: {why}"))
    }

    /// That it stays on those of its nodes which take nothing new from now on.
    pub(super) fn keeps(&self, team: &Apteam, shut: impl Fn(&Nid) -> bool) -> Option<String> {
        let keeps: Vec<Nid> = team.places.nids().filter(shut).collect();
        let take = if keeps.len() == 1 { "takes" } else { "take" };
        let keeps = (!keeps.is_empty()).then(|| nids_text(keeps))?;
        Some(format!(
            "application {} keeps {keeps}, which {take} no new applications",
            self.name_of(team.apid)
        ))
    }

    /// Where an application that waits here has a place in the copy.
    pub(super) fn gets(copy: &Scheduler, team: &Apteam) -> Option<String> {
        let then = copy.team(team.apid)?;
        let placed = team.state == State::Posted && then.state != State::Posted;
        let nids = placed.then(|| nids_text(then.places.nids()))?;
        Some(format!("application {} gets {nids}", copy.name_of(team.apid)))
    }
}
