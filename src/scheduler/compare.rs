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

use super::foreign::nids_text;
use super::{Effect, Event, Now, Scheduler, Settings};
use crate::apteam::record::{Apteam, State};
use crate::machine::{Machine, Nid};

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
                Effect::Warn(text) => Some(text),
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
        let Some(then) = copy.team(team.apid) else { return Some(format!("{who} goes")) };
        if team.state == State::Posted && then.state != State::Posted {
            return Some(format!("{who} gets {}", nids_text(then.places.nids())));
        }
        if team.state == State::Posted {
            let fits = |scheduler: &Scheduler| scheduler.may_ever(&team.posting, &team.owner);
            let (_, why) = fits(copy).err().filter(|_| fits(self).is_ok())?;
            return Some(format!("{who} could not be placed any more: {why}"));
        }
        let retired = |nid: &Nid| copy.retired.contains(nid) && !self.retired.contains(nid);
        let keeps: Vec<Nid> = team.places.nids().filter(retired).collect();
        let take = if keeps.len() == 1 { "takes" } else { "take" };
        let keeps = (!keeps.is_empty()).then(|| nids_text(keeps))?;
        Some(format!("{who} keeps {keeps}, which {take} nothing new"))
    }
}
