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
    wanted: Wanted,
    /// When it was moved last.
    moved_ns: Option<u64>,
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
    /// Room for the next.
    line: Vec<InLine>,
    candidates: Vec<Candidate<'static>>,
    room: packing::Room,
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

/// One of the line: its place in the order of turn, and how it stands.
#[derive(Clone, Debug)]
struct InLine {
    place: Place,
    apid: Apid,
    stands: Stands,
}

/// How one of the line stands.
#[derive(Clone, Copy, Debug)]
enum Stands {
    /// It takes turns.
    Turn(Turn),
    /// It is on its way to its place.
    Comes,
    /// It has waited so long for a place.
    Waits(Duration),
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

    /// Who may run: the gangs by number, then others.
    fn in_line(&mut self, now: Now) -> Vec<InLine> {
        let rules = &self.settings.turns.levels;
        let mut line = std::mem::take(&mut self.schedule.decision.line);
        line.clear();
        let gang = |(place, turn): (Place, Turn)| InLine {
            place,
            apid: turn.apid,
            stands: Stands::Turn(turn),
        };
        line.extend(self.schedule.levels.turns(rules, now.mono_ns).map(gang));
        let moving = self.schedule.decision.away.difference(&self.schedule.decision.out);
        let coming = self.coming.iter().chain(moving).map(|apid| InLine {
            place: Place::of_coming(*apid),
            apid: *apid,
            stands: Stands::Comes,
        });
        line.extend(coming);
        let posted = |apid: &Apid| {
            let team = self.teams.get(apid).filter(|team| team.held.is_none())?;
            let waited = Duration::from_nanos(now.wall_ns.saturating_sub(team.posted_at_ns));
            let place = Place::of_new(*apid, waited, rules, now.mono_ns);
            Some(InLine { place, apid: *apid, stands: Stands::Waits(waited) })
        };
        line.extend(self.queue.iter().take(POSTINGS_MAX).filter_map(posted));
        line
    }

    /// Notes where it sits.
    fn seat(&mut self, apid: Apid) {
        if let Some(team) = self.teams.get(&apid).filter(|team| team.state.holds_processors()) {
            let decision = &mut self.schedule.decision;
            let moved_ns = decision.moved_ns.get(&apid).copied();
            decision.seats.insert(apid, seated(&self.occupancy, team, moved_ns));
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
        self.schedule.decision.line = line;
        let levels = &self.schedule.levels;
        let soon = || {
            let again = now.mono_ns.saturating_add(nanos(self.settings.turns.reconsider));
            let next = levels.next(&self.settings.turns.levels, now.mono_ns);
            next.map_or(again, |next| next.min(again))
        };
        self.schedule.decision.due_ns = waits.then(soon);
    }

    fn packed(&mut self, now: Now, line: &[InLine]) -> Packing {
        let mut room = std::mem::take(&mut self.schedule.decision.room);
        let none = emptied(std::mem::take(&mut self.schedule.decision.candidates));
        let candidates = match self.lined_up(now, line, none) {
            Ok(candidates) => candidates,
            Err(unseated) => {
                unseated.into_iter().for_each(|apid| self.seat(apid));
                self.lined_up(now, line, Vec::new()).unwrap_or_default()
            }
        };
        let abilities = self.settings.abilities;
        let gate = &self.settings.turns.migration;
        let moves = abilities.moves && gate.enabled;
        let rules = packing::Rules {
            // By another order whoever has a place keeps its memory there.
            roll_out: abilities.roll_out && self.decides(),
            stay: !moves,
            compactions_max: if moves { COMPACTIONS_MAX } else { 0 },
            moved_max: gate.moves_max,
            searches_max: SEARCHES_MAX,
        };
        let loses = |one: &Candidate| {
            let cost = self.move_cost(&one.wanted).saturating_add(self.start_cost(one.apid));
            let ms = u64::try_from(cost.as_millis()).unwrap_or(u64::MAX);
            one.wanted.shape.processors().saturating_mul(ms.max(1))
        };
        let packing = pack(&self.occupancy, &candidates, &rules, &loses, &mut room);
        let candidates = emptied(candidates);
        (self.schedule.decision.room, self.schedule.decision.candidates) = (room, candidates);
        packing
    }

    /// The line as packing sees it, in order of turn; or who sits somewhere, and it is not known where.
    /// `candidates`: none, with room for them.
    fn lined_up<'a>(
        &'a self,
        now: Now,
        line: &[InLine],
        mut candidates: Vec<Candidate<'a>>,
    ) -> Result<Vec<Candidate<'a>>, Vec<Apid>> {
        let seats = &self.schedule.decision.seats;
        // (Gangs stand by number, as the seats do: most need not be looked up.)
        let mut along = seats.iter().peekable();
        let seat_of = |one: &InLine| match one.stands {
            Stands::Turn(_) => {
                while along.next_if(|(apid, _)| **apid < one.apid).is_some() {}
                along.next_if(|(apid, _)| **apid == one.apid).map(|(_, seated)| seated)
            }
            _ => seats.get(&one.apid),
        };
        let seated: Vec<Option<&Seated>> = line.iter().map(seat_of).collect();
        let mut order: Vec<(Place, usize)> = line.iter().map(|one| one.place).zip(0..).collect();
        order.sort_unstable();
        let mut unseated = Vec::new();
        for (_, at) in order {
            let (one, seated) = (&line[at], seated[at]);
            if let (Stands::Turn(_), Some(seated)) = (one.stands, seated) {
                debug_assert_eq!(
                    self.teams.get(&one.apid).map(|team| team.incarnation),
                    Some(seated.incarnation)
                );
                candidates.push(self.candidate(now, one, seated.wanted, Some(seated)));
                continue;
            }
            let Some(team) = self.teams.get(&one.apid) else { continue };
            // (Of one whose memory is out it is known in what shape it sat.)
            let sits = matches!(one.stands, Stands::Comes) || team.state == State::Running;
            if sits && seated.is_none_or(|seated| seated.incarnation != team.incarnation) {
                unseated.push(one.apid);
            }
            let candidate = self.candidate(now, one, (&team.posting).into(), seated);
            let keeps = team.state == State::Posted && self.waits_too_long(team);
            candidates.push(Candidate { keeps, ..candidate });
        }
        if unseated.is_empty() { Ok(candidates) } else { Err(unseated) }
    }

    fn candidate<'a>(
        &'a self,
        now: Now,
        one: &InLine,
        wanted: Wanted,
        seated: Option<&'a Seated>,
    ) -> Candidate<'a> {
        let abilities = self.settings.abilities;
        let gate = &self.settings.turns.migration;
        let out = self.schedule.decision.out.contains(&one.apid);
        let width = wanted.shape.processors();
        let (stands, launched) = match one.stands {
            Stands::Turn(turn) if turn.runs => (packing::Now::Runs, true),
            Stands::Turn(_) => (packing::Now::Stands, true),
            Stands::Comes => (packing::Now::Comes, out),
            Stands::Waits(_) => (packing::Now::Stands, out),
        };
        let (pays, attained, waited, level) = match one.stands {
            Stands::Turn(turn) => (turn.pays, turn.attained, turn.waited, turn.level.min(20)),
            Stands::Comes => (true, Duration::ZERO, Duration::ZERO, 0),
            Stands::Waits(waited) => (false, Duration::ZERO, waited, 0),
        };
        let quiet = || {
            let moved = seated.and_then(|seated| seated.moved_ns);
            let ago = |at| Duration::from_nanos(now.mono_ns.saturating_sub(at));
            moved.is_none_or(|at| ago(at) >= gate.quiet_time)
        };
        let moves = abilities.moves && gate.enabled && !wanted.exclusive;
        let may_move = moves && !pays && quiet();
        let budget = || {
            let most = gate.work_max(&Waiting { wanted, attained }) / 1_000_000;
            u64::try_from(most).unwrap_or(u64::MAX)
        };
        let asks = moves
            && stands != packing::Now::Runs
            && waited >= self.settings.turns.compact_after
            && width >= gate.width_min;
        Candidate {
            apid: one.apid,
            wanted,
            home: seated.filter(|_| !out).map(|seated| &seated.seat),
            shape: seated.filter(|_| launched).map(|seated| &seated.pes[..]),
            now: stands,
            keeps: false,
            may_move,
            may_be_moved: may_move && attained >= gate.least_attained,
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
    fn move_cost(&self, wanted: &Wanted) -> Duration {
        let each = wanted.memory_per_pe.unwrap_or(0);
        let bytes = each.saturating_mul(u64::from(wanted.shape.width));
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
        let start = self.change_party(now, line, packing.party);
        if self.settings.abilities.roll_out {
            // (Whoever ran on beneath one that was to come can go out now that it has.)
            new.extend(start);
            self.roll_out(now, &new, out);
        }
    }

    /// These run from now on, of the line; returned: those of them who did not before.
    fn change_party(&mut self, now: Now, line: &[InLine], mut runs: Vec<Apid>) -> Vec<Apid> {
        let decision = &self.schedule.decision;
        runs.sort_unstable();
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
        let seated = seated(&self.occupancy, team, Some(now.mono_ns));
        self.relink(apid);
        let cost = self.move_cost(&seated.wanted);
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
fn seated(occupancy: &Occupancy, team: &Apteam, moved_ns: Option<u64>) -> Seated {
    let pes: Vec<u32> = team.places.0.iter().map(|place| place.pes).collect();
    Seated {
        incarnation: team.incarnation,
        seat: Seat::of(occupancy, team.apid, &pes),
        pes,
        wanted: (&team.posting).into(),
        moved_ns,
    }
}

/// The same vector without anybody, for candidates of another time. (It is collected in place, and keeps its
/// room.)
fn emptied<'a>(mut candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'a>> {
    candidates.clear();
    candidates.into_iter().map(|_| unreachable!("it is empty")).collect()
}
