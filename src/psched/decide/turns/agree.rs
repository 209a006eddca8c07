//! How the nodes of a component come to follow one plan, or all stay with the former.

use super::planned::{Planned, Round};
use crate::apteam::Apid;
use crate::apteam::Key;
use crate::apteam::protocol::node::Command;
use crate::apteam::protocol::turns::PlannedSlice;
use crate::apteam::protocol::turns::SlicePlan;
use crate::gang::member_index::MemberIndex;
use crate::gang::plan::Plan;
use crate::gang::plan::Slice;
use crate::machine::Nid;
use crate::psched::decide::{Effect, LinkId, Now, Scheduler};
use crate::variables::units::nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long nodes that are away are waited for before a plan is made without them.
const AWAY: Duration = Duration::from_secs(2);

impl Scheduler {
    /// These nodes are not heard any more.
    pub(in crate::psched::decide) fn turns_away(&mut self, now: Now, nids: &[Nid]) {
        let until = now.mono_ns.saturating_add(nanos(AWAY));
        nids.iter().for_each(|nid| self.schedule.away.set(*nid, until));
    }

    /// An apinit is back, or there for the first time: it is told the plans of what it holds.
    pub(in crate::psched::decide) fn turns_back(
        &mut self,
        link: LinkId,
        nids: &[Nid],
        out: &mut Vec<Effect>,
    ) {
        for nid in nids {
            self.schedule.away.remove(*nid);
        }
        let holders = nids.iter().flat_map(|nid| self.occupancy.holders(*nid));
        let apids: BTreeSet<Apid> = holders.collect();
        let plan_of = |apid: &Apid| self.schedule.plan_of.get(apid).copied();
        let generations: BTreeSet<u64> = apids.iter().filter_map(plan_of).collect();
        for generation in generations {
            let Some(planned) = self.schedule.plans.get(&generation) else { continue };
            let plan = Box::new(part(self, generation, planned, link, true));
            out.push(Effect::Command { link, command: Command::Plan(plan) });
        }
    }

    /// An apinit has a plan.
    pub(in crate::psched::decide) fn plan_taken(
        &mut self,
        link: LinkId,
        generation: u64,
        out: &mut Vec<Effect>,
    ) {
        self.schedule.silent.remove(&link);
        let Some(planned) = self.schedule.plans.get_mut(&generation) else { return };
        if let Some((missing, _)) = &mut planned.missing {
            missing.remove(&link);
            if missing.is_empty() {
                self.agreed(generation, out);
            }
        }
    }

    /// All have it.
    fn agreed(&mut self, generation: u64, out: &mut Vec<Effect>) {
        let schedule = &mut self.schedule;
        schedule.asking.remove(&generation);
        let Some(mut planned) = schedule.remove(generation) else { return };
        planned.missing = None;
        // Who has gone meanwhile is in no plan any more; its end has the others planned anew.
        let mut there = planned.members.clone();
        there.retain(|apid| schedule.asked_of.remove(apid).is_some());
        schedule.have(&there, generation);
        schedule.insert(generation, planned);
        self.say_agreed(generation, false, out);
    }

    /// Tells all nodes that it is agreed; `told`: those that were asked know.
    pub(super) fn say_agreed(&self, generation: u64, told: bool, out: &mut Vec<Effect>) {
        if told && self.schedule.silent.is_empty() {
            // All were asked.
            return;
        }
        let Some(planned) = self.schedule.plans.get(&generation) else { return };
        for link in self.links_of_all(&planned.members) {
            let command = match planned.asked.contains(&link) {
                true if told => continue,
                true => Command::AgreePlan(generation),
                // It was silent, or has come since.
                false => Command::Plan(Box::new(part(self, generation, planned, link, true))),
            };
            out.push(Effect::Command { link, command });
        }
    }

    /// The links that stand of these applications' nodes.
    pub(super) fn links_of_all(&self, members: &[Apid]) -> BTreeSet<LinkId> {
        let mut links: Vec<LinkId> = Vec::new();
        for link in
            members.iter().filter_map(|apid| self.linked.get(apid)).flat_map(BTreeMap::values)
        {
            // (Mostly all are on the same.)
            if links.last() != Some(link) {
                links.push(*link);
            }
        }
        links.sort_unstable();
        links.dedup();
        links.retain(|link| self.links.get(link).is_some_and(|l| l.known));
        links.into_iter().collect()
    }

    pub(in crate::psched::decide) fn turns_tick(&mut self, now: Now, out: &mut Vec<Effect>) {
        while let Some((_, generation)) =
            self.schedule.due.first().copied().filter(|(at, _)| *at <= now.mono_ns)
        {
            if self.schedule.asking.contains(&generation) {
                self.withdraw(now, generation, out);
                continue;
            }
            // Its nodes begin again with it until they have the next.
            self.schedule.due.pop_first();
            let planned = self.schedule.plans.get(&generation);
            let members = planned.map_or_else(Vec::new, |planned| planned.members.clone());
            self.schedule.changed.extend(members);
        }
    }

    /// Not all have answered in time: those are silent, and the others are asked again.
    pub(super) fn withdraw(&mut self, now: Now, generation: u64, out: &mut Vec<Effect>) {
        self.schedule.asking.remove(&generation);
        let Some(planned) = self.schedule.remove(generation) else { return };
        for apid in &planned.members {
            if self.schedule.asked_of.remove(apid).is_some() {
                self.schedule.concern(*apid);
            }
        }
        for apid in &planned.early {
            if self.schedule.plan_of.contains_key(apid) {
                self.schedule.early.insert(*apid);
            }
        }
        for link in planned.asked.iter().filter(|link| self.links.contains_key(link)) {
            out.push(Effect::Command { link: *link, command: Command::WithdrawPlan(generation) });
        }
        for apid in &planned.members {
            self.let_wait(now, *apid, out);
        }
        self.schedule.silent.extend(planned.missing.into_iter().flat_map(|(missing, _)| missing));
    }

    /// One that has come, and whose component can't be planned now, would run where its processors are
    /// free and wait where they are not: on several apinits it waits on all of them.
    pub(super) fn let_wait(&mut self, now: Now, apid: Apid, out: &mut Vec<Effect>) {
        let schedule = &mut self.schedule;
        let known = schedule.plan_of.contains_key(&apid)
            || schedule.asked_of.contains_key(&apid)
            || schedule.alone.contains_key(&apid)
            || schedule.inherited.get(&apid) == Some(&true);
        let spread = self.teams.get(&apid).is_some_and(|team| team.hosts.len() > 1);
        if known || !spread {
            return;
        }
        schedule.generation += 1;
        let generation = schedule.generation;
        schedule.plan_of.insert(apid, generation);
        let asked = self.links_of_all(&[apid]);
        let planned = Planned {
            members: vec![apid],
            plan: Plan { slices: Vec::new(), repeats: true },
            round: Round::default(),
            begins_ns: now.mono_ns,
            from_ns: now.mono_ns,
            lead_ns: 0,
            accounted_ns: now.mono_ns,
            asked,
            missing: None,
            floors: false,
            early: BTreeSet::new(),
            takers: Vec::new(),
        };
        for link in &planned.asked {
            let plan = Box::new(part(self, generation, &planned, *link, true));
            out.push(Effect::Command { link: *link, command: Command::Plan(plan) });
        }
        self.schedule.insert(generation, planned);
    }
}

/// The part of a plan that an apinit is told: its members there, and what of each slice is theirs.
pub(super) fn part(
    s: &Scheduler,
    generation: u64,
    planned: &Planned,
    link: LinkId,
    agreed: bool,
) -> SlicePlan {
    let here = |apid: &Apid| {
        let team = s.teams.get(apid)?;
        s.linked.get(apid)?.values().any(|of| *of == link).then(|| team.key())
    };
    // (By number, as those of the plan are.)
    let members: Vec<Key> = planned.members.iter().filter_map(here).collect();
    let own: MemberIndex;
    let index = match members.len() == planned.members.len() {
        true => &planned.round.index,
        false => {
            own = MemberIndex::of(members.iter().map(|key| key.apid));
            &own
        }
    };
    let key = |apid: &Apid| Some(members[index.get(*apid)?]);
    let slice = |slice: &Slice| PlannedSlice {
        length: slice.length,
        party: slice.party.iter().filter_map(key).collect(),
    };
    let slices = planned.plan.slices.iter().map(slice).collect();
    let takers = planned.takers.iter().filter_map(key).collect();
    SlicePlan {
        generation,
        begins_ns: planned.begins_ns,
        from_ns: planned.from_ns,
        agreed,
        slices,
        takers,
        members,
    }
}
