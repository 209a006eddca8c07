//! Decisions by least attained service: who runs next, and where.
//!
//! # Problem
//! Where long gangs give way to short ones a turn and a place are one question ([`packing`]); it is asked
//! for the whole machine at once, whenever the answer may have changed.
//!
//! # Approach
//! Events only note that there is something to decide. At the end of each the gangs and the postings are
//! put in order ([`levels`]) and packed; what comes out of that is carried out here:
//!
//! ```text
//!   a posting has a place       it is granted: the way of any placement, and runs when it is launched
//!   a gang has another place    Move, and it runs there when its nodes have said that it is there
//!   who runs has changed        the plans of their components are made anew (turns.rs)
//!   too many sit somewhere      RollOut, of those who stand the one of the highest level
//! ```
//!
//! A posting holds nothing until it is granted, so being admitted costs nobody anything; memory goes out
//! only when a place is needed. What nodes can't do ([`super::Abilities`]) is not decided.
//!
//! A decision is taken when a posting comes, when a gang comes, ends, leaves its level or has paid for its start, and
//! every `reconsider` while somebody waits. Its time grows with the gangs, with no more than 1,024
//! postings, and with the nodes that are closed or full; what is looked for in it has bounds of its own
//! ([`packing`]).
//!
//! [`packing`]: crate::placement::packing
//! [`levels`]: crate::gang::levels

mod out;

use super::ends::nanos;
use super::{Effect, Now, Scheduler};
use crate::apteam::place::PlacementList;
use crate::apteam::record::{Apteam, State};
use crate::apteam::{Apid, Incarnation, Key};
use crate::gang::levels::{Place, Turn};
use crate::occupancy::Occupancy;
use crate::placement::Wanted;
use crate::placement::migration::Waiting;
use crate::placement::packing::{self, Candidate, Packing, Seat, pack};
use crate::variables::Order;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Postings that are looked at in one decision, from the head of the line: a bound on its time.
const POSTINGS_MAX: usize = 1_024;
/// Searches for a window in one decision.
const SEARCHES_MAX: usize = 256;
/// Gangs for whom others are moved aside in one decision.
const COMPACTIONS_MAX: usize = 4;

/// Where an application sits, as packing sees it.
#[derive(Clone, Debug)]
pub(super) struct Seated {
    incarnation: Incarnation,
    seat: Seat,
    /// PEs on each of its nodes.
    pes: Vec<u32>,
}

/// The last decision, and what is known for the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Decision {
    /// Something has changed.
    pub wanted: bool,
    /// When the next is to be taken if nothing happens.
    pub due_ns: Option<u64>,
    /// Who runs.
    pub party: BTreeSet<Apid>,
    /// Who is being moved, or is rolled out: they have no turn.
    pub away: BTreeSet<Apid>,
    /// Those of them whose memory is out.
    out: BTreeSet<Apid>,
    /// When each was moved last.
    pub moved_ns: BTreeMap<Apid, u64>,
    /// Where each sits.
    pub seats: BTreeMap<Apid, Seated>,
}

impl Decision {
    /// Its memory is out.
    pub(super) fn is_out(&self, apid: Apid) -> bool {
        self.out.contains(&apid)
    }

    pub(super) fn forget(&mut self, apid: Apid) {
        self.party.remove(&apid);
        self.away.remove(&apid);
        self.out.remove(&apid);
        self.seats.remove(&apid);
        self.moved_ns.remove(&apid);
    }
}

/// One of the line: how it stands in order, and what of its turn is known.
struct InLine {
    place: Place,
    apid: Apid,
    turn: Option<Turn>,
    waited: Duration,
    coming: bool,
}

impl Scheduler {
    /// Whether places are given by decisions.
    pub(super) fn decides(&self) -> bool {
        self.settings.turns.order == Order::LeastAttainedService
    }

    /// There is something to decide.
    pub(super) fn want_decision(&mut self) {
        self.schedule.decision.wanted = true;
    }

    pub(super) fn decide_if_due(&mut self, now: Now, out: &mut Vec<Effect>) {
        let decision = &self.schedule.decision;
        let due = decision.due_ns.is_some_and(|at| at <= now.mono_ns);
        if self.decides() && (decision.wanted || due) {
            self.decide(now, out);
        }
    }

    /// Who may run, in order of turn.
    fn in_line(&mut self, now: Now) -> Vec<InLine> {
        let rules = &self.settings.turns.levels;
        let turns = self.schedule.levels.turns(rules, now.mono_ns);
        let posted = self.queue.len().min(POSTINGS_MAX);
        let mut line: Vec<InLine> = Vec::with_capacity(turns.len() + self.coming.len() + posted);
        let gang = |(place, turn): (Place, Turn)| InLine {
            place,
            apid: turn.apid,
            turn: Some(turn),
            waited: turn.waited,
            coming: false,
        };
        line.extend(turns.into_iter().map(gang));
        let moving = self.schedule.decision.away.difference(&self.schedule.decision.out);
        let coming = self.coming.iter().chain(moving).map(|apid| InLine {
            place: Place::of_coming(*apid),
            apid: *apid,
            turn: None,
            waited: Duration::ZERO,
            coming: true,
        });
        line.extend(coming);
        let posted = |apid: &Apid| {
            let team = self.teams.get(apid).filter(|team| team.held.is_none())?;
            let waited = Duration::from_nanos(now.wall_ns.saturating_sub(team.posted_at_ns));
            let place = Place::of_new(*apid, waited, rules, now.mono_ns);
            Some(InLine { place, apid: *apid, turn: None, waited, coming: false })
        };
        line.extend(self.queue.iter().take(POSTINGS_MAX).filter_map(posted));
        line.sort_unstable_by_key(|one| one.place);
        line
    }

    /// Notes where it sits.
    fn seat(&mut self, apid: Apid) {
        if let Some(team) = self.teams.get(&apid).filter(|team| team.state.holds_processors()) {
            let seated = seated(&self.occupancy, team);
            self.schedule.decision.seats.insert(apid, seated);
        }
    }

    fn decide(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.schedule.decision.wanted = false;
        let early = self.schedule.early();
        let until_ns = now.mono_ns.saturating_add(nanos(self.settings.turns.time_slice));
        early.iter().for_each(|apid| self.schedule.levels.hurry(*apid, until_ns));
        let line = self.in_line(now);
        let packing = self.packed(now, &line);
        let waits = line.len() > packing.party.len();
        self.realise(now, &line, packing, out);
        let levels = &self.schedule.levels;
        let soon = || {
            let again = now.mono_ns.saturating_add(nanos(self.settings.turns.reconsider));
            let next = levels.next(&self.settings.turns.levels, now.mono_ns);
            next.map_or(again, |next| next.min(again))
        };
        self.schedule.decision.due_ns = waits.then(soon);
    }

    fn packed(&mut self, now: Now, line: &[InLine]) -> Packing {
        let candidates = match self.lined_up(now, line) {
            Ok(candidates) => candidates,
            Err(unseated) => {
                unseated.into_iter().for_each(|apid| self.seat(apid));
                self.lined_up(now, line).unwrap_or_default()
            }
        };
        let abilities = self.settings.abilities;
        let gate = &self.settings.turns.migration;
        let moves = abilities.moves && gate.enabled;
        let rules = packing::Rules {
            // By another order whoever has a place keeps its memory there.
            roll_out: abilities.roll_out && self.decides(),
            compactions_max: if moves { COMPACTIONS_MAX } else { 0 },
            moved_max: gate.moves_max,
            searches_max: SEARCHES_MAX,
        };
        pack(&self.occupancy, &candidates, &rules)
    }

    /// The line as packing sees it; or who sits somewhere, and it is not known where.
    fn lined_up(&self, now: Now, line: &[InLine]) -> Result<Vec<Candidate<'_>>, Vec<Apid>> {
        let (mut candidates, mut unseated) = (Vec::with_capacity(line.len()), Vec::new());
        // (What a move costs is asked only for the sake of those who have waited for long.)
        let aside = line.iter().any(|one| self.may_ask(one));
        for one in line {
            let Some(team) = self.teams.get(&one.apid) else { continue };
            let seated = self.schedule.decision.seats.get(&one.apid);
            // (Of one whose memory is out it is known in what shape it sat.)
            let sits = one.coming || team.state == State::Running;
            if sits && seated.is_none_or(|seated| seated.incarnation != team.incarnation) {
                unseated.push(one.apid);
            }
            candidates.push(self.candidate(now, one, team, seated, aside));
        }
        if unseated.is_empty() { Ok(candidates) } else { Err(unseated) }
    }

    /// It has waited for so long that others may be moved for it.
    fn may_ask(&self, one: &InLine) -> bool {
        one.waited >= self.settings.turns.compact_after && !one.turn.is_some_and(|turn| turn.runs)
    }

    /// `aside`: whether what it loses by being moved aside is of any interest.
    fn candidate<'a>(
        &'a self,
        now: Now,
        one: &InLine,
        team: &Apteam,
        seated: Option<&'a Seated>,
        aside: bool,
    ) -> Candidate<'a> {
        let decision = &self.schedule.decision;
        let abilities = self.settings.abilities;
        let gate = &self.settings.turns.migration;
        let out = decision.out.contains(&one.apid);
        let wanted = Wanted::from(&team.posting);
        let width = wanted.shape.processors();
        let attained = one.turn.map_or(Duration::ZERO, |turn| turn.attained);
        let runs = one.turn.is_some_and(|turn| turn.runs);
        let pays = one.turn.is_some_and(|turn| turn.pays);
        let quiet = || {
            let ago = |at: &u64| Duration::from_nanos(now.mono_ns.saturating_sub(*at));
            let moved = decision.moved_ns.get(&one.apid).map(ago);
            moved.is_none_or(|ago| ago >= gate.quiet_time)
        };
        let moves = abilities.moves && gate.enabled && !wanted.exclusive;
        let may_move = moves && !pays && !one.coming && quiet();
        let loses = || {
            let cost = self.move_cost(team).saturating_add(self.start_cost(one.apid));
            let ms = u64::try_from(cost.as_millis()).unwrap_or(u64::MAX);
            width.saturating_mul(ms.max(1))
        };
        let budget = || {
            let most = gate.work_max(&Waiting { wanted, attained }) / 1_000_000;
            u64::try_from(most).unwrap_or(u64::MAX)
        };
        let asks = moves && self.may_ask(one) && width >= gate.width_min;
        let level = one.turn.map_or(0, |turn| turn.level).min(20);
        Candidate {
            apid: one.apid,
            wanted,
            home: seated.filter(|_| !out).map(|seated| &seated.seat),
            shape: seated.map(|seated| &seated.pes[..]).filter(|_| one.turn.is_some() || out),
            now: match (one.coming, runs) {
                (true, _) => packing::Now::Comes,
                (false, true) => packing::Now::Runs,
                (false, false) => packing::Now::Stands,
            },
            keeps: team.state == State::Posted && self.waits_too_long(team),
            may_move,
            may_be_moved: (aside && may_move && attained >= gate.least_attained).then(loses),
            may_move_others: asks.then(budget),
            displaced: 1_000_000 + (width.saturating_mul(1_000_000) >> level),
        }
    }

    /// What it loses by a start.
    fn start_cost(&self, apid: Apid) -> Duration {
        match self.schedule.cost(apid) {
            Duration::ZERO => self.settings.turns.start_cost,
            measured => measured,
        }
    }

    /// What it loses by a move, beside the start that follows it.
    fn move_cost(&self, team: &Apteam) -> Duration {
        let each = team.posting.memory_per_pe.unwrap_or(0);
        let bytes = each.saturating_mul(u64::from(team.posting.shape.width));
        self.settings.turns.migration.cost_of_bytes(bytes)
    }

    fn realise(&mut self, now: Now, line: &[InLine], packing: Packing, out: &mut Vec<Effect>) {
        let mut new: Vec<Apid> = packing.seats.keys().copied().collect();
        for (apid, seat) in packing.seats {
            let Some(team) = self.teams.get(&apid) else { continue };
            let places = seat.places(&self.occupancy);
            match team.state {
                State::Posted => {
                    self.grant(now, apid, places, out);
                    self.seat(apid);
                }
                State::Running => self.move_to(now, apid, places, out),
                _ => {}
            }
        }
        let start = self.change_party(now, line, &packing.party);
        if self.settings.abilities.roll_out {
            // (Whoever ran on beneath one that was to come can go out now that it has.)
            new.extend(start);
            self.roll_out(now, &new, out);
        }
    }

    /// These run from now on, of the line in its order; returned: those of them who did not before.
    fn change_party(&mut self, now: Now, line: &[InLine], runs: &[Apid]) -> Vec<Apid> {
        let decision = &self.schedule.decision;
        let (mut party, mut same) = (Vec::with_capacity(runs.len()), true);
        let mut runs = runs.iter().peekable();
        for one in line {
            if runs.next_if(|apid| **apid == one.apid).is_none() {
                continue;
            }
            // (A posting runs when it has been launched, and who is moved when it is there.)
            if let Some(turn) = one.turn.filter(|_| !decision.away.contains(&one.apid)) {
                party.push(one.apid);
                same &= turn.runs;
            }
        }
        party.sort_unstable();
        if same && party.iter().eq(&decision.party) {
            return Vec::new();
        }
        let mut party: BTreeSet<Apid> = party.into_iter().collect();
        // Whose place was given to one that has still to come runs on until then.
        let (stop, run_on): (Vec<Apid>, Vec<Apid>) =
            self.schedule.decision.party.difference(&party).partition(|apid| {
                self.schedule.is_in_the_way(**apid, &party)
                    || self.schedule.decision.away.contains(apid)
            });
        party.extend(run_on);
        for apid in &stop {
            self.schedule.levels.stop(*apid, now.mono_ns);
        }
        let start: Vec<Apid> =
            party.iter().copied().filter(|apid| !self.schedule.levels.runs(*apid)).collect();
        for apid in &start {
            let cost = self.start_cost(*apid);
            let rules = &self.settings.turns.levels;
            self.schedule.levels.start(*apid, cost, rules, now.mono_ns);
        }
        self.schedule.concern_all(&stop);
        self.schedule.concern_all(&start);
        self.schedule.decision.party = party;
        start
    }

    /// It sits elsewhere from now on, and does not run until its nodes say that it is there.
    pub(super) fn move_to(
        &mut self,
        now: Now,
        apid: Apid,
        to: PlacementList,
        out: &mut Vec<Effect>,
    ) {
        let hosts = self.hosts_of(&to);
        let Some(team) = self.teams.get_mut(&apid) else { return };
        let was_out = self.schedule.decision.out.contains(&apid);
        let from = if was_out { PlacementList::default() } else { team.places.clone() };
        self.occupancy.release(apid);
        if let Err(conflict) = self.occupancy.take_found(apid, &to, (&*team).into()) {
            out.push(Effect::Warn(format!("application {apid} was not moved: {conflict}")));
            let _ = self.occupancy.take_found(apid, &from, (&*team).into());
            return;
        }
        team.places = to.clone();
        team.hosts = hosts.into();
        let key = team.key();
        let seated = seated(&self.occupancy, team);
        self.relink(apid);
        let cost = self.teams.get(&apid).map(|team| self.move_cost(team)).unwrap_or_default();
        let decision = &mut self.schedule.decision;
        decision.out.remove(&apid);
        decision.away.insert(apid);
        decision.party.remove(&apid);
        decision.moved_ns.insert(apid, now.mono_ns);
        decision.seats.insert(apid, seated);
        self.schedule.levels.moved(apid, cost, now.mono_ns);
        self.turns_changed(now, apid);
        let nids = crate::machine::format_nids(to.nids());
        let name = if was_out { "rolling-in" } else { "moving" };
        out.push(Effect::Log { apid, name, detail: format!("to NIDs {nids}") });
        out.push(Effect::Move { key, from, to });
    }

    /// It is where it was to be.
    pub(super) fn moved(&mut self, now: Now, key: Key, out: &mut Vec<Effect>) {
        let is = self.teams.get(&key.apid).is_some_and(|team| team.key() == key);
        if is && self.schedule.decision.away.remove(&key.apid) {
            self.save(key.apid, true, out);
            out.push(Effect::Log { apid: key.apid, name: "moved", detail: String::new() });
            self.turns_changed(now, key.apid);
        }
    }

    /// Turns are taken by another order from now on.
    pub(super) fn order_changed(&mut self, now: Now) {
        let running: Vec<Apid> =
            self.teams.values().filter(|t| t.state == State::Running).map(|t| t.apid).collect();
        if self.decides() {
            for apid in &running {
                let had = self.schedule.attained(*apid, now.mono_ns);
                let weight = self.schedule.weight(*apid);
                self.schedule.levels.add(*apid, weight, had, Duration::ZERO, now.mono_ns);
            }
        } else {
            for apid in &running {
                let had = self.schedule.levels.attained(*apid, now.mono_ns);
                self.schedule.resume(*apid, had, now.mono_ns);
            }
            self.schedule.levels.clear();
            // (Those whose memory is out are brought in: `bring_in`.)
            let decision = &mut self.schedule.decision;
            decision.party.clear();
            (decision.due_ns, decision.wanted) = (None, false);
        }
        for apid in running {
            self.turns_changed(now, apid);
        }
    }
}

/// Where it sits, by what it holds.
fn seated(occupancy: &Occupancy, team: &Apteam) -> Seated {
    let pes: Vec<u32> = team.places.0.iter().map(|place| place.pes).collect();
    Seated { incarnation: team.incarnation, seat: Seat::of(occupancy, team.apid, &pes), pes }
}
