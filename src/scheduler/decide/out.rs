//! Memory that goes out where more sit than may, and comes in again.

use super::line::{InLine, Stands};
use crate::apteam::Apid;
use crate::apteam::record::Apteam;
use crate::gang::levels::Place;
use crate::scheduler::domains::DomainId;
use crate::scheduler::{Effect, Now, Scheduler};
use std::collections::BTreeSet;
use std::time::Duration;

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
                let over = |(_, residents): &(u32, &u8)| u32::from(**residents) > most;
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

    /// Whose memory is out while nothing is decided any more comes in as soon as it has a place, before
    /// anybody new is placed there: a decision took it out, and no other would bring it in.
    pub(in crate::scheduler) fn bring_in(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.schedule.decision.is_anybody_out() {
            for domain in self.domain_ids() {
                self.bring_in_to(now, domain, out);
            }
        }
    }

    fn bring_in_to(&mut self, now: Now, domain: DomainId, out: &mut Vec<Effect>) {
        let one = |apid: Apid| InLine {
            place: Place::of_coming(apid),
            apid,
            stands: Stands::Waits(Duration::ZERO),
        };
        let line: Vec<InLine> = self.out_for_good(domain).map(one).collect();
        if line.is_empty() {
            return;
        }
        for (apid, seat) in self.packed(now, domain, &line).seats {
            let places = seat.places(&self.occupancy);
            self.move_to(now, apid, places, out);
        }
    }

    /// Those of a domain whose memory is out, and of whom nothing is decided.
    pub(in crate::scheduler) fn out_for_good(
        &self,
        domain: DomainId,
    ) -> impl Iterator<Item = Apid> {
        let decides = self.domain(domain).decides();
        let out = self.schedule.decision.out.iter().copied().filter(move |_| !decides);
        out.filter(move |apid| self.is_of(*apid, domain) && !self.is_held(*apid))
    }
}
