//! Memory that goes out where more sit than may, and comes in again.

use super::seated;
use crate::apteam::place::PlacementList;
use crate::apteam::record::Apteam;
use crate::apteam::{Apid, Key};
use crate::machine::nids_text;
use crate::psched::decide::{Effect, Now, Scheduler};
use std::collections::BTreeSet;

impl Scheduler {
    /// Where more sit than may, now that these have come: who stands there and is of the highest level
    /// goes out, and of those who has stood longest.
    pub(super) fn roll_out(&mut self, now: Now, new: &[Apid], out: &mut Vec<Effect>) {
        let Some(first) = new.first() else { return };
        // (They are of one domain.)
        let most = self.domain(self.domain_of(*first)).turns.max_resident;
        let full = self.occupancy.notable().full.clone();
        let nodes: BTreeSet<usize> = new
            .iter()
            .flat_map(|apid| self.occupancy.held(*apid))
            .map(|held| held.at)
            .filter(|at| full.contains(at))
            .collect();
        for at in nodes {
            loop {
                let over = |(_, residents): &(u32, &u16)| u32::from(**residents) > most;
                let processor = (0..).zip(self.occupancy.residents(at)).find(over);
                let Some(processor) = processor.map(|(processor, _)| processor) else { break };
                let Some(apid) = self.to_roll_out(at, processor, now) else { break };
                self.roll_out_one(apid, out);
            }
        }
    }

    /// Of those who stand on a processor.
    fn to_roll_out(&self, at: usize, processor: u32, now: Now) -> Option<Apid> {
        let holders = self.occupancy.holders_at(at).iter().copied();
        let sits = |apid: &Apid| {
            let held = self.occupancy.held(*apid);
            let here = held.iter().find(|held| held.at == at);
            here.is_some_and(|held| held.processors.binary_search(&processor).is_ok())
        };
        let levels = |apid: &Apid| self.schedule.levels.with(*apid);
        let stands = |apid: &Apid| {
            levels(apid).is_some_and(|levels| !levels.runs(*apid))
                && !self.schedule.decision.away.contains(apid)
                && !self.is_held(*apid)
                // (It would come in where there is a window.)
                && !self.teams.get(apid).is_some_and(Apteam::stays_put)
        };
        let rank = |apid: &Apid| levels(apid).map(|levels| levels.stands(*apid, now.mono_ns));
        holders.filter(|apid| stands(apid) && sits(apid)).max_by_key(rank)
    }

    fn roll_out_one(&mut self, apid: Apid, out: &mut Vec<Effect>) {
        let Some(team) = self.teams.get(&apid) else { return };
        let key = team.key();
        let left = team.places.clone();
        self.occupancy.release(apid);
        self.note_left(&left);
        self.schedule.competition_without(apid);
        self.schedule.decision.out.insert(apid);
        self.schedule.concern(apid);
        out.push(Effect::Log { apid, name: "rolled-out", detail: String::new() });
        out.push(Effect::RollOut { key });
    }

    /// It sits there from now on, and does not run until its nodes say that it is in.
    pub(super) fn roll_in(
        &mut self,
        now: Now,
        apid: Apid,
        to: PlacementList,
        out: &mut Vec<Effect>,
    ) {
        let hosts = self.hosts_of(&to);
        let Some(team) = self.teams.get(&apid) else { return };
        let wanted = self.wanted_at_any_time(team);
        let Some(team) = self.teams.get_mut(&apid) else { return };
        if let Err(conflict) = self.occupancy.take_found(apid, &to, (&*team).into()) {
            out.push(Effect::Warn(format!("application {apid} was not brought in: {conflict}")));
            return;
        }
        (team.places, team.hosts) = (to.clone(), hosts.into());
        let key = team.key();
        let seated = seated(&self.occupancy, team, wanted, Some(now.mono_ns));
        self.relink(apid);
        self.goes(now, apid, seated);
        self.schedule.decision.out.remove(&apid);
        self.turns_changed(now, apid);
        let nids = nids_text(to.nids());
        out.push(Effect::Log { apid, name: "rolling-in", detail: format!("to {nids}") });
        out.push(Effect::RollIn { key, to });
    }

    /// It is in.
    pub(in crate::psched::decide) fn rolled_in(
        &mut self,
        now: Now,
        key: Key,
        out: &mut Vec<Effect>,
    ) {
        let is = self.teams.get(&key.apid).is_some_and(|team| team.key() == key);
        if is && self.schedule.decision.away.remove(&key.apid) {
            self.save(key.apid, true, out);
            out.push(Effect::Log { apid: key.apid, name: "rolled-in", detail: String::new() });
            self.turns_changed(now, key.apid);
        }
    }
}
