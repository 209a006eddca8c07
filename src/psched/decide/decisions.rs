//! Decisions: who runs next, and where.
//!
//! # Problem
//! Where long gangs give way to short ones a turn and a place are one question ([`packing`]); it is asked
//! for a whole domain of the machine at once, whenever the answer may have changed.
//!
//! # Approach
//! Events only note that there is something to decide. At the end of each the gangs and the postings are
//! put in order ([`levels`]) and packed; what comes out of that is carried out here:
//!
//! ```text
//!   a posting has a place       it is granted: the way of any placement, and runs when it is launched
//!   a gang has another place    it is told to move, and runs there when its nodes have said so (moves.rs)
//!   who runs has changed        the plans of their components are made anew (turns.rs)
//!   much would be idle          long programs that are in the way of wider ones stand (fuller.rs)
//!   too many sit somewhere      of those who stand the memory of the one of the highest level goes out: home.rs
//!                               says how nodes do it, out.rs how it is simulated where it may come in anywhere
//! ```
//!
//! A posting holds nothing until it is granted, so being admitted costs nobody anything; memory goes out
//! only when a place is needed. What nodes can't do ([`super::Abilities`]) is not decided.
//!
//! A decision is taken when a posting or a gang comes, when one ends, and when time changes who comes before whom
//! (`again.rs`). Its time grows with the gangs, with no more than 1,024 postings, and with the nodes that are
//! closed or full; what is looked for in it has bounds of its own ([`packing`]).
//!
//! [`packing`]: crate::placement::packing
//! [`levels`]: crate::gang::levels

mod again;
mod decision;
mod fuller;
mod home;
mod in_line;
mod line;
mod out;
mod rank;
mod ranks;
mod rolled;

use super::domain::DomainId;
use super::settings::RollsOut;
use super::{Effect, Now, Scheduler, Turns, domain};
use crate::apteam::Apid;
use crate::apteam::record::State;
use crate::placement::Wanted;
use crate::placement::packing::{self, Candidate, Packing, Seat, pack};
use crate::variables::units::nanos;
pub(super) use decision::{Decision, Seated, seated};
use in_line::{InLine, Stands};
pub(super) use ranks::Rank;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Searches for a window in one decision.
const SEARCHES_MAX: usize = 256;
/// Gangs for whom others are moved aside in one decision.
const COMPACTIONS_MAX: usize = 4;

impl Scheduler {
    /// There is something to decide in a domain.
    pub(super) fn want_decision(&mut self, domain: DomainId) {
        self.domain_mut(domain).wanted = true;
    }

    /// The same in all domains.
    pub(super) fn want_decisions(&mut self) {
        self.domains.iter_mut().for_each(|domain| domain.wanted = true);
    }

    /// The same in that of an application.
    pub(super) fn want_decision_for(&mut self, apid: Apid) {
        self.want_decision(self.domain_of(apid));
    }

    pub(super) fn decide_if_due(&mut self, now: Now, out: &mut Vec<Effect>) {
        for id in self.domain_ids() {
            let domain = self.domain(id);
            let due = domain.due_ns.is_some_and(|at| at <= now.mono_ns);
            if domain.wanted || due {
                self.decide(now, id, out);
            }
        }
    }

    /// What comes of a decision at some time.
    #[cfg(any(test, feature = "testing"))]
    pub fn decided_at(&mut self, now: Now) -> Vec<Effect> {
        self.want_decisions();
        self.apply(now, super::Event::Tick)
    }

    /// Notes where it sits.
    pub(super) fn seat(&mut self, apid: Apid) {
        if let Some(team) = self.teams.get(&apid).filter(|team| team.state.holds_processors()) {
            let moved_ns = self.schedule.decision.moved_ns.get(&apid).copied();
            let wanted = self.wanted_at_any_time(team);
            let seated = seated(&self.occupancy, team, wanted, moved_ns);
            self.schedule.decision.seats.insert(apid, seated);
        }
    }

    fn decide(&mut self, now: Now, domain: DomainId, out: &mut Vec<Effect>) {
        self.domain_mut(domain).wanted = false;
        self.place_choosers(now, domain, out);
        let mut early = self.schedule.early();
        // (Where there are floors, theirs are the next ones.)
        let floors = self.domain(domain).has_floors();
        early.retain(|apid| !floors && self.is_of(*apid, domain));
        let until_ns = now.mono_ns.saturating_add(nanos(self.domain(domain).turns.time_slice));
        let levels = self.schedule.levels.of_mut(domain);
        early.iter().for_each(|apid| levels.hurry(*apid, until_ns));
        self.rank(now, domain);
        let line = self.in_line(now, domain);
        let Packing { mut party, seats } = match self.as_they_are(&line) {
            Some(packing) => {
                debug_assert!(packing.is_same(&self.packed(now, domain, &line)), "{packing:?}");
                self.domain_mut(domain).fuller = false;
                packing
            }
            None => self.packed(now, domain, &line),
        };
        party.sort_unstable();
        let changed = self.realise(now, domain, &line, &party, seats, out);
        if changed {
            self.rank_of_new_party(now, domain);
        }
        let settled = !changed && early.is_empty();
        self.domain_mut(domain).due_ns = self.again(now, domain, &line, &party, settled);
        self.schedule.decision.line = line;
        self.seat_waiting(now, domain, out);
    }

    /// Whether anybody of a domain may be moved.
    pub(super) fn moves(&self, domain: DomainId) -> bool {
        self.settings.abilities.moves && self.domain(domain).turns.migration.enabled
    }

    /// What packing would say where all of the line run, and there is memory for all: that they go on as they are. (Else
    /// each of a thousand hosts that call would have the whole machine packed though nobody waits.)
    fn as_they_are(&self, line: &[InLine]) -> Option<Packing> {
        let away = &self.schedule.decision.away;
        let runs = |one: &InLine| match one.stands {
            Stands::Turn(turn) => turn.runs && !away.contains(&one.apid),
            _ => false,
        };
        (!self.schedule.is_tight() && line.iter().all(runs)).then(|| Packing {
            party: line.iter().map(|one| one.apid).collect(),
            seats: BTreeMap::new(),
        })
    }

    fn packed(&mut self, now: Now, domain: DomainId, line: &[InLine]) -> Packing {
        let mut room = std::mem::take(&mut self.schedule.decision.room);
        let none = emptied(std::mem::take(&mut self.schedule.decision.candidates));
        let candidates = match self.lined_up(now, domain, line, none) {
            Ok(candidates) => candidates,
            Err(unseated) => {
                unseated.into_iter().for_each(|apid| self.seat(apid));
                self.lined_up(now, domain, line, Vec::new()).unwrap_or_default()
            }
        };
        let moves = self.moves(domain);
        let of = self.domain(domain);
        let rules = packing::Rules {
            domain: of.regions,
            roll_out: self.rolls_out(domain),
            stay: !moves,
            compactions_max: if moves { COMPACTIONS_MAX } else { 0 },
            moved_max: of.turns.migration.moves_max,
            searches_max: SEARCHES_MAX,
        };
        let loses = |one: &Candidate| {
            let cost = move_cost(&of.turns, &one.wanted);
            let cost = cost.saturating_add(self.start_cost(one.apid));
            let ms = u64::try_from(cost.as_millis()).unwrap_or(u64::MAX);
            one.wanted.shape.processors().saturating_mul(ms.max(1))
        };
        let chosen = |one: &Candidate| match self.teams.get(&one.apid) {
            Some(team) => self.nodes_kept_for(&one.wanted, &team.posting),
            None => Vec::new(),
        };
        let mut candidates = candidates;
        let mut packing = pack(&self.occupancy, &candidates, &rules, &loses, &chosen, &mut room);
        let mut fuller = false;
        if let Some(least) = fuller::wanted(&packing, &candidates, of.processors) {
            fuller::wide_first(&mut candidates);
            let other = pack(&self.occupancy, &candidates, &rules, &loses, &chosen, &mut room);
            if fuller::held(&other, &candidates) >= least {
                (packing, fuller) = (other, true);
            }
        }
        let candidates = emptied(candidates);
        (self.schedule.decision.room, self.schedule.decision.candidates) = (room, candidates);
        self.domain_mut(domain).fuller = fuller;
        packing
    }

    /// What it loses by a start.
    fn start_cost(&self, apid: Apid) -> Duration {
        match self.schedule.cost(apid) {
            Duration::ZERO => self.domain(self.domain_of(apid)).turns.start_cost,
            measured => measured,
        }
    }

    /// Carries it out; returned: whether anything changes.
    fn realise(
        &mut self,
        now: Now,
        domain: DomainId,
        line: &[InLine],
        party: &[Apid],
        seats: BTreeMap<Apid, Seat>,
        out: &mut Vec<Effect>,
    ) -> bool {
        let mut new: Vec<Apid> = seats.keys().copied().collect();
        for (apid, seat) in seats {
            let Some(team) = self.teams.get(&apid) else { continue };
            let places = team.posting.spread(seat.places(&self.occupancy));
            match team.state {
                State::Posted => {
                    self.grant(now, apid, places, out);
                    self.seat(apid);
                }
                State::Running if self.schedule.decision.is_out(apid) => {
                    self.roll_in(now, apid, places, out);
                }
                // (Where it has to wait for another's move there is another decision after that.)
                State::Running => drop(self.move_to(now, apid, places, out)),
                _ => {}
            }
        }
        let start = self.change_party(now, domain, line, party);
        let changed = start.is_some() || !new.is_empty();
        let start = start.unwrap_or_default();
        self.come_home(&start);
        if self.rolls_out(domain) {
            // (Whoever ran on beneath one that was to come can go out now that it has.)
            new.extend(start);
            match self.settings.abilities.roll_out {
                RollsOut::AtHome => self.roll_out_at_home(now, &new, out),
                _ => self.roll_out(now, &new, out),
            }
        }
        changed
    }

    /// These run from now on, of the line; returned, where they are not those who did before: who of them
    /// did not.
    fn change_party(
        &mut self,
        now: Now,
        domain: DomainId,
        line: &[InLine],
        runs: &[Apid],
    ) -> Option<Vec<Apid>> {
        let decision = &self.schedule.decision;
        let (mut party, mut same) = (Vec::with_capacity(runs.len()), true);
        for one in line.iter().filter(|one| runs.binary_search(&one.apid).is_ok()) {
            // (A posting runs when it has been launched, and who is moved when it is there.)
            if let Stands::Turn(turn) = one.stands
                && !decision.away.contains(&one.apid)
            {
                party.push(one.apid);
                same &= turn.runs;
            }
        }
        let ran = decision.party.iter().copied().filter(|apid| self.is_of(*apid, domain));
        if same && party.iter().copied().eq(ran.clone()) {
            return None;
        }
        let mut party: BTreeSet<Apid> = party.into_iter().collect();
        // Whose place was given to one that has still to come runs on until then.
        let over = ran.filter(|apid| !party.contains(apid));
        let (stop, run_on): (Vec<Apid>, Vec<Apid>) = over.partition(|apid| {
            self.schedule.is_in_the_way(*apid, &party) || decision.away.contains(apid)
        });
        party.extend(run_on);
        let levels = self.schedule.levels.of(domain);
        let start = party.iter().copied().filter(|apid| !levels.runs(*apid));
        let start: Vec<(Apid, Duration)> =
            start.map(|apid| (apid, self.start_cost(apid))).collect();
        let rules = &domain::at(&self.domains, domain).turns.levels;
        let levels = self.schedule.levels.of_mut(domain);
        stop.iter().for_each(|apid| levels.stop(*apid, now.mono_ns));
        for (apid, cost) in &start {
            levels.start(*apid, *cost, rules, now.mono_ns);
        }
        let start: Vec<Apid> = start.into_iter().map(|(apid, _)| apid).collect();
        self.schedule.concern_all(&stop);
        self.schedule.concern_all(&start);
        let all = &mut self.schedule.decision.party;
        stop.iter().for_each(|apid| {
            all.remove(apid);
        });
        all.extend(party);
        Some(start)
    }

    /// It is on its way to another place.
    pub(super) fn goes(&mut self, now: Now, apid: Apid, seated: Seated) {
        let of = self.domain_of(apid);
        let cost = move_cost(&self.domain(of).turns, &seated.wanted);
        let decision = &mut self.schedule.decision;
        decision.away.insert(apid);
        decision.party.remove(&apid);
        decision.moved_ns.insert(apid, now.mono_ns);
        decision.seats.insert(apid, seated);
        self.schedule.levels.of_mut(of).moved(apid, cost, now.mono_ns);
    }
}

/// What one loses by a move, beside the start that follows it.
fn move_cost(turns: &Turns, wanted: &Wanted) -> Duration {
    let each = wanted.memory_per_pe.unwrap_or(0);
    let bytes = each.saturating_mul(u64::from(wanted.shape.width));
    turns.migration.cost_of_bytes(bytes)
}

/// The same vector without anybody, for candidates of another time. (It is collected in place, and keeps its
/// room.)
fn emptied<'a>(mut candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'a>> {
    candidates.clear();
    candidates.into_iter().map(|_| unreachable!("it is empty")).collect()
}
