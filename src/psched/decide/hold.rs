//! Applications that an administrator holds: `psmgr hold` and `release`.
//!
//! A posting that is held keeps its place in line and is not placed; no nodes are kept for it, for
//! it asks for nothing. An application that has a place keeps it, and runs in no slice; a component
//! of gangs that compete goes on without it.

use super::{Effect, Now, Record, ReplyId, Scheduler};
use crate::apteam::Apid;
use crate::apteam::change::{By, Change};
use crate::apteam::record::Apteam;
use crate::psched::reason::{Reason, Wait};
use std::collections::BTreeSet;

impl Scheduler {
    /// Holds applications, or releases them: all or none.
    pub(super) fn hold(
        &mut self,
        now: Now,
        reply: ReplyId,
        apids: &BTreeSet<Apid>,
        hold: bool,
        by: &By,
        out: &mut Vec<Effect>,
    ) {
        let unknown = apids.iter().filter(|apid| !self.teams.contains_key(apid));
        let problems: Vec<String> = unknown
            .map(|apid| {
                format!("there is no application {apid}, or it has ended (apstat --history)")
            })
            .collect();
        if !problems.is_empty() {
            out.push(Effect::Managed { reply, done: Vec::new(), problems });
            return;
        }
        let mut done = Vec::new();
        for apid in apids.iter().copied() {
            let Some(team) = self.teams.get_mut(&apid) else { continue };
            let what = format!("application {apid} of {}", team.owner.name);
            let (before, after) = if hold { ("free", "held") } else { ("held", "free") };
            if team.held.is_some() == hold {
                let already = if hold { "held already" } else { "was not held" };
                done.push(format!("{what}: {already}"));
                continue;
            }
            team.held = hold.then(|| by.clone());
            let name = if hold { "held" } else { "released" };
            done.push(format!("{what}: {name}"));
            self.save(apid, false, out);
            out.push(Effect::Log { apid, name, detail: format!("by {by}") });
            let (before, after) = (before.into(), after.into());
            out.push(Effect::Keep(Record::Change(Change { by: by.clone(), what, before, after })));
            self.turns_changed(now, apid);
        }
        out.push(Effect::Managed { reply, done, problems });
        // Nodes that were kept for one that is held are free for others.
        self.want_decisions();
    }

    /// Whether an administrator holds it.
    pub(super) fn is_held(&self, apid: Apid) -> bool {
        self.teams.get(&apid).is_some_and(|team| team.held.is_some())
    }

    /// Why an application does not go on, if an administrator holds it.
    pub(super) fn why_held(team: &Apteam) -> Option<Reason> {
        let by = team.held.clone()?;
        Some(Wait::Held { apid: team.apid, by }.into())
    }
}
