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
        let order = self.schedule.levels.order(rules, now.mono_ns);
        let mut line: Vec<InLine> = Vec::with_capacity(order.len() + self.coming.len());
        let gang = |(place, turn): (Place, Turn)| InLine {
            place,
            apid: turn.apid,
            turn: Some(turn),
            waited: turn.waited,
            coming: false,
        };
        line.extend(order.into_iter().map(gang));
        let moving = self.schedule.decision.away.difference(&self.schedule.decision.out);
        let coming = self.coming.iter().chain(moving).map(|apid| InLine {
            place: Place::of_coming(*apid),
            apid: *apid,
            turn: None,
            waited: Duration::ZERO,
            coming: true,
        });
        line.extend(coming);
        line.reserve(self.queue.len().min(POSTINGS_MAX));
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

    /// Sees to it that it is known where each sits.
    fn seat_all(&mut self, line: &[InLine]) {
        let decision = &mut self.schedule.decision;
        for one in line {
            let Some(team) = self.teams.get(&one.apid) else { continue };
            // (Of one whose memory is out it is known in what shape it sat.)
            let sits = one.coming || team.state == State::Running;
            let known = decision.seats.get(&one.apid);
            if !sits || known.is_some_and(|seated| seated.incarnation == team.incarnation) {
                continue;
            }
            let seated = seated(&self.occupancy, team);
            decision.seats.insert(one.apid, seated);
        }
    }

    fn decide(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.schedule.decision.wanted = false;
        let early = self.schedule.early();
        let until_ns = now.mono_ns.saturating_add(nanos(self.settings.turns.time_slice));
        early.iter().for_each(|apid| self.schedule.levels.hurry(*apid, until_ns));
        let line = self.in_line(now);
        self.seat_all(&line);
        let packing = self.packed(now, &line);
        let waits = line.len() > packing.party.len();
        self.realise(now, packing, out);
        let levels = &self.schedule.levels;
        let soon = || {
            let again = now.mono_ns.saturating_add(nanos(self.settings.turns.reconsider));
            let next = levels.next(&self.settings.turns.levels, now.mono_ns);
            next.map_or(again, |next| next.min(again))
        };
        self.schedule.decision.due_ns = waits.then(soon);
    }

    fn packed(&self, now: Now, line: &[InLine]) -> Packing {
        let mut candidates: Vec<Candidate> = Vec::with_capacity(line.len());
        candidates.extend(line.iter().filter_map(|one| self.candidate(now, one)));
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

    fn candidate<'a>(&'a self, now: Now, one: &InLine) -> Option<Candidate<'a>> {
        let team = self.teams.get(&one.apid)?;
        let decision = &self.schedule.decision;
        let (abilities, turns) = (self.settings.abilities, &self.settings.turns);
        let gate = &turns.migration;
        let seated = decision.seats.get(&one.apid);
        let out = decision.out.contains(&one.apid);
        let home = seated.filter(|_| !out).map(|seated| &seated.seat);
        let wanted = Wanted::from(&team.posting);
        let width = wanted.shape.processors();
        let attained = one.turn.map_or(Duration::ZERO, |turn| turn.attained);
        let runs = one.turn.is_some_and(|turn| turn.runs);
        let pays = one.turn.is_some_and(|turn| turn.pays);
        let ago = |at: &u64| Duration::from_nanos(now.mono_ns.saturating_sub(*at));
        let moved = decision.moved_ns.get(&one.apid).map(ago);
        let quiet = moved.is_none_or(|ago| ago >= gate.quiet_time);
        let moves = abilities.moves && gate.enabled && !team.posting.exclusive;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let cost = || ms(self.move_cost(team).saturating_add(self.start_cost(one.apid))).max(1);
        let may_move = moves && quiet && !pays && !one.coming;
        let budget = || {
            let most = gate.work_max(&Waiting { wanted, attained }) / 1_000_000;
            u64::try_from(most).unwrap_or(u64::MAX)
        };
        let asks = moves && !runs && one.waited >= turns.compact_after && width >= gate.width_min;
        let level = one.turn.map_or(0, |turn| turn.level).min(20);
        Some(Candidate {
            apid: one.apid,
            wanted,
            home,
            shape: seated.map(|seated| &seated.pes[..]).filter(|_| one.turn.is_some() || out),
            now: match (one.coming, runs) {
                (true, _) => packing::Now::Comes,
                (false, true) => packing::Now::Runs,
                (false, false) => packing::Now::Stands,
            },
            keeps: team.state == State::Posted && self.waits_too_long(team),
            may_move,
            may_be_moved: (may_move && attained >= gate.least_attained)
                .then(|| width.saturating_mul(cost())),
            may_move_others: asks.then(budget),
            displaced: 1_000_000 + (width.saturating_mul(1_000_000) >> level),
        })
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

    fn realise(&mut self, now: Now, packing: Packing, out: &mut Vec<Effect>) {
        let mut new: Vec<Apid> = packing.seats.keys().copied().collect();
        for (apid, seat) in packing.seats {
            let Some(team) = self.teams.get(&apid) else { continue };
            let places = seat.places(&self.occupancy);
            match team.state {
                State::Posted => self.grant(now, apid, places, out),
                State::Running => self.move_to(now, apid, places, out),
                _ => {}
            }
        }
        let decision = &self.schedule.decision;
        let runs =
            |apid: &Apid| !decision.away.contains(apid) && self.schedule.levels.contains(*apid);
        let mut party: BTreeSet<Apid> = packing.party.into_iter().filter(runs).collect();
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
        if self.settings.abilities.roll_out {
            // (Whoever ran on beneath one that was to come can go out now that it has.)
            new.extend(start);
            self.roll_out(now, &new, out);
        }
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

    /// Where more sit than may, now that these have come: who stands there and is of the highest level
    /// goes out, and of those who has stood longest.
    fn roll_out(&mut self, now: Now, new: &[Apid], out: &mut Vec<Effect>) {
        let most = self.settings.turns.max_resident;
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
        let levels = &self.schedule.levels;
        let stands = |apid: &Apid| {
            levels.contains(*apid)
                && !levels.runs(*apid)
                && !self.schedule.decision.away.contains(apid)
                && !self.is_held(*apid)
        };
        let rank = |apid: &Apid| levels.stands(*apid, now.mono_ns);
        holders.filter(|apid| stands(apid) && sits(apid)).max_by_key(rank)
    }

    fn roll_out_one(&mut self, apid: Apid, out: &mut Vec<Effect>) {
        let Some(team) = self.teams.get(&apid) else { return };
        let key = team.key();
        self.occupancy.release(apid);
        self.schedule.competition_without(apid);
        self.schedule.decision.out.insert(apid);
        self.schedule.concern(apid);
        out.push(Effect::Log { apid, name: "rolled-out", detail: String::new() });
        out.push(Effect::RollOut { key });
    }

    /// Whose memory is out while nothing is decided any more comes in as soon as it has a place, before
    /// anybody new is placed there: a decision took it out, and no other would bring it in.
    pub(super) fn bring_in(&mut self, now: Now, out: &mut Vec<Effect>) {
        let one = |apid: Apid| InLine {
            place: Place::of_coming(apid),
            apid,
            turn: None,
            waited: Duration::ZERO,
            coming: false,
        };
        let line: Vec<InLine> = self.out_for_good().map(one).collect();
        if line.is_empty() {
            return;
        }
        self.seat_all(&line);
        for (apid, seat) in self.packed(now, &line).seats {
            let places = seat.places(&self.occupancy);
            self.move_to(now, apid, places, out);
        }
    }

    /// Those whose memory is out, and of whom nothing is decided.
    pub(super) fn out_for_good(&self) -> impl Iterator<Item = Apid> {
        let out = self.schedule.decision.out.iter().copied();
        out.filter(|apid| !self.decides() && !self.is_held(*apid))
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
