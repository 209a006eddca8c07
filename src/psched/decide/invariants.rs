//! What is always so, whatever has happened.
//!
//! psched's driver looks once a minute ([`crate::psched::drive`]): a fault that no test has found is said in the log
//! before anybody wonders what psched does. A look goes through all applications once (some microseconds for a
//! hundred, a few milliseconds for 10,000). In a debug build, as the simulated cluster has, it is taken after every
//! event.

use super::Scheduler;
use crate::apteam::Apid;
use crate::apteam::record::{Apteam, State};

impl Scheduler {
    /// The first thing that should never be, in words.
    pub fn broken(&self) -> Option<String> {
        let of_one = self.teams.iter().find_map(|(apid, team)| self.broken_of(*apid, team));
        of_one.or_else(|| self.unknown()).or_else(|| {
            let linked = self.linked_rightly();
            (!linked).then(|| {
                "the apinits of an application are not the apinits of its nodes".to_owned()
            })
        })
    }

    fn broken_of(&self, apid: Apid, team: &Apteam) -> Option<String> {
        let holds = team.state.holds_processors();
        let sits = !self.occupancy.held(apid).is_empty();
        let wrong = match (holds, sits) {
            (true, false) if !self.schedule.decision.is_out(apid) => "has no processors",
            (false, true) => "has processors",
            _ if (team.state == State::Posted) != self.queue.contains(&apid) => {
                "is in the queue and does not wait, or waits and is not in the queue"
            }
            _ if !holds && self.schedule.decision.party.contains(&apid) => "runs by plan",
            _ => return None,
        };
        Some(format!("application {apid} is {} and {wrong}", team.state.name()))
    }

    /// Something of an application that is not there.
    fn unknown(&self) -> Option<String> {
        let is_unknown = |apid: &Apid| !self.teams.contains_key(apid);
        let party = &self.schedule.decision.party;
        let sets = [
            ("has processors", self.occupancy.applications().find(is_unknown)),
            ("waits", self.queue.iter().copied().find(is_unknown)),
            ("is to come", self.coming.iter().copied().find(is_unknown)),
            ("has a turn", party.iter().copied().find(is_unknown)),
            ("has a posting", self.requests.values().copied().find(is_unknown)),
        ];
        let found = sets.into_iter().find_map(|(what, apid)| Some((what, apid?)));
        found.map(|(what, apid)| format!("application {apid}, which is not there, {what}"))
    }
}
