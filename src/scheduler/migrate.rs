//! Migration for a posting that waits behind fragments, under round robin.
//!
//! # Problem
//! Under round robin a posting is placed where it finds a window, and whoever has a place keeps it. So
//! there may be processors enough, here and there, and no window for a wide one, for as long as those in
//! between run.
//!
//! # Approach
//! Every `reconsider` while postings wait, those at the head of the line that have waited for
//! `compact_after` are tried in order: [`migration`] looks for the cheapest moves that make a window, and
//! its gate says whether they are worth it. What it gains counts by how long the posting has waited, so
//! that in time they are. The moves are told to the nodes ([`Effect::Move`]), and the posting has its window.
//!
//! Nodes that can't move anything ([`super::Abilities`]) are never asked to. (By least attained service
//! places are given by decisions, which move whom they must: `decide.rs`.)
//!
//! [`migration`]: crate::placement::migration

use super::domains::DomainId;
use super::ends::nanos;
use super::moves::{Purpose, Sequence};
use super::postings::COUNTED;
use super::{Effect, Now, Scheduler};
use crate::apteam::Apid;
use crate::apteam::record::{Apteam, State};
use crate::placement::migration::{Gate, Mover, Plan, Situation, Step, Waiting, Wall, try_plan};
use std::time::Duration;

/// Postings for which moves are looked for at one time: a bound on the work of that.
const TRIED_MAX: usize = 4;

impl Scheduler {
    /// Makes windows for those that have waited for long, where it is time.
    pub(super) fn migrate_if_due(&mut self, now: Now, out: &mut Vec<Effect>) {
        for domain in self.domain_ids() {
            if !self.domain(domain).decides() {
                self.migrate_in(now, domain, out);
            }
        }
    }

    fn migrate_in(&mut self, now: Now, domain: DomainId, out: &mut Vec<Effect>) {
        if !self.moves(domain) || self.line_of(domain).next().is_none() {
            self.domain_mut(domain).due_ns = None;
            return;
        }
        let of = self.domain_mut(domain);
        let again = now.mono_ns.saturating_add(nanos(of.turns.reconsider));
        match of.due_ns {
            Some(due) if due > now.mono_ns => return,
            before => {
                of.due_ns = Some(again);
                if before.is_none() {
                    return;
                }
            }
        }
        if self.is_moving() {
            return;
        }
        let waited =
            |team: &Apteam| Duration::from_nanos(now.wall_ns.saturating_sub(team.posted_at_ns));
        let compact_after = self.domain(domain).turns.compact_after;
        let long: Vec<(Apid, Duration)> = self
            .line_of(domain)
            .take(COUNTED)
            .filter_map(|apid| self.teams.get(&apid))
            // (A window is made on any nodes, by the shape alone.)
            .filter(|team| team.held.is_none() && team.is_plain())
            .map(|team| (team.apid, waited(team)))
            .filter(|(_, waited)| *waited >= compact_after)
            .take(TRIED_MAX)
            .collect();
        for (apid, waited) in long {
            let Some(plan) = self.plan_for(now, apid, waited) else { continue };
            let sequence = Sequence::of(plan.steps, Purpose::Window(apid, plan.window));
            return self.begin_moves(now, sequence, out);
        }
    }

    /// The cheapest moves that make a window.
    fn plan_for(&self, now: Now, apid: Apid, waited: Duration) -> Option<Plan> {
        let team = self.teams.get(&apid)?;
        let (wanted, turns) = (self.wanted(team), self.turns_of(team));
        // A move is followed by a start.
        let move_cost = turns.migration.move_cost.saturating_add(turns.start_cost);
        let movers = self.movers(now);
        let kept = self.kept_before(apid);
        let situation = Situation {
            occupancy: &self.occupancy,
            movers: &movers,
            kept: &kept,
            gate: Gate { move_cost, ..turns.migration },
            can_roll_out: false,
        };
        let plan = try_plan(&situation, &Waiting { wanted, attained: waited })?;
        plan.steps.iter().all(|step| matches!(step, Step::Move { .. })).then_some(plan)
    }

    /// What migration is to know of an application.
    pub(super) fn mover(&self, now: Now, team: &Apteam) -> Mover {
        let ended = team.doomed.is_some() || team.end.is_some();
        let wall = match team.state {
            State::Placed | State::Launching => Some(Wall::Launching),
            _ if ended || team.state != State::Running => Some(Wall::Ending),
            _ if self.schedule.decision.away.contains(&team.apid) => Some(Wall::Launching),
            _ if self.stays(team) => Some(Wall::Stays),
            _ => None,
        };
        let since = self.schedule.decision.moved_ns.get(&team.apid);
        Mover {
            places: team.places.clone(),
            claim: team.into(),
            reach: self.wanted(team).reach,
            bytes: self.occupancy.held(team.apid).iter().map(|held| held.memory).collect(),
            wall,
            since_move: since.map(|at| Duration::from_nanos(now.mono_ns.saturating_sub(*at))),
            attained: self.schedule.attained(team.apid, now.mono_ns),
        }
    }
}
