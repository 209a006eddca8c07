//! The line of those who may run, and each of them as packing sees it.

use super::Seated;
use crate::apteam::Apid;
use crate::apteam::record::{Apteam, State};
use crate::gang::levels::{Place, Turn};
use crate::placement::Wanted;
use crate::placement::migration::Waiting;
use crate::placement::packing::{self, Candidate};
use crate::psched::decide::decisions::InLine;
use crate::psched::decide::decisions::Stands;
use crate::psched::decide::domain::DomainId;
use crate::psched::decide::{Now, Scheduler, domain};
use std::time::Duration;

/// Postings that are looked at in one decision, from the head of the line: a bound on its time.
pub(super) const POSTINGS_MAX: usize = 1_024;

impl Scheduler {
    /// Who may run: the gangs by number, then others.
    pub(super) fn in_line(&mut self, now: Now, domain: DomainId) -> Vec<InLine> {
        let rules = &domain::at(&self.domains, domain).turns.levels;
        let mut line = std::mem::take(&mut self.schedule.decision.line);
        line.clear();
        let gang = |(place, turn): (Place, Turn)| InLine {
            place,
            apid: turn.apid,
            stands: Stands::Turn(turn),
        };
        line.extend(self.schedule.levels.of_mut(domain).turns(rules, now.mono_ns).map(gang));
        let decision = &self.schedule.decision;
        let moving = decision.away.difference(&decision.out);
        let coming = self.coming.iter().chain(moving);
        let turns = &domain::at(&self.domains, domain).turns;
        let place = |apid: Apid| match self.teams.get(&apid) {
            // It has the place of a new posting: no processor stays idle until it is launched.
            Some(team) if decision.beside.contains(&apid) => {
                let rank = decision.ranks.of(team, turns);
                Place::of_new(apid, Duration::ZERO, rank, rules, now.mono_ns)
            }
            _ => Place::of_coming(apid),
        };
        let coming = coming.filter(|apid| self.is_of(**apid, domain)).map(|apid| InLine {
            place: place(*apid),
            apid: *apid,
            stands: Stands::Comes,
        });
        line.extend(coming);
        let posted = |(team, waited): (&Apteam, Duration)| {
            // (It has been looked at: `place_choosers`. Here nodes are only kept for it.)
            if !team.is_plain() && waited < turns.longest_wait {
                return None;
            }
            let rank = self.schedule.decision.ranks.of(team, turns);
            let place = Place::of_new(team.apid, waited, rank, rules, now.mono_ns);
            Some(InLine { place, apid: team.apid, stands: Stands::Waits(waited) })
        };
        line.extend(self.waits(domain, POSTINGS_MAX).filter_map(posted));
        line
    }

    /// The line as packing sees it, in order of turn; or who sits somewhere, and it is not known where.
    /// `candidates`: none, with room for them.
    pub(super) fn lined_up<'a>(
        &'a self,
        now: Now,
        domain: DomainId,
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
        let longest = self.domain(domain).turns.longest_wait;
        let mut unseated = Vec::new();
        for (_, at) in order {
            let (one, seated) = (&line[at], seated[at]);
            if let (Stands::Turn(_), Some(seated)) = (one.stands, seated) {
                debug_assert_eq!(
                    self.teams.get(&one.apid).map(|team| team.incarnation),
                    Some(seated.incarnation)
                );
                candidates.push({
                    let wanted = seated.wanted;
                    let wanted = Wanted { reach: self.now_open(wanted.reach), ..wanted };
                    self.candidate(now, domain, one, wanted, Some(seated))
                });
                continue;
            }
            let Some(team) = self.teams.get(&one.apid) else { continue };
            // (Of one whose memory is out it is known in what shape it sat.)
            let sits = matches!(one.stands, Stands::Comes) || team.state == State::Running;
            if sits && seated.is_none_or(|seated| seated.incarnation != team.incarnation) {
                unseated.push(one.apid);
            }
            let candidate = self.candidate(now, domain, one, self.wanted(team), seated);
            let keeps = matches!(one.stands, Stands::Waits(waited) if waited >= longest);
            let chosen = keeps && !team.is_plain();
            candidates.push(Candidate { keeps, chosen, ..candidate });
        }
        if unseated.is_empty() { Ok(candidates) } else { Err(unseated) }
    }

    fn candidate<'a>(
        &'a self,
        now: Now,
        domain: DomainId,
        one: &InLine,
        wanted: Wanted,
        seated: Option<&'a Seated>,
    ) -> Candidate<'a> {
        let turns = &self.domain(domain).turns;
        let gate = &turns.migration;
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
        let stays = || self.teams.get(&one.apid).is_some_and(|team| self.stays(team));
        let moves = self.moves(domain) && !wanted.exclusive && !stays();
        let may_move = moves && !pays && quiet();
        let budget = || {
            let most = gate.work_max(&Waiting { wanted, attained }) / 1_000_000;
            u64::try_from(most).unwrap_or(u64::MAX)
        };
        // (One that is flexible takes gaps as they are.)
        let asks = moves
            && !wanted.flexible
            && stands != packing::Now::Runs
            && waited >= turns.compact_after
            && width >= gate.width_min;
        Candidate {
            apid: one.apid,
            wanted,
            home: seated.filter(|_| !out).map(|seated| &seated.seat),
            shape: seated.filter(|_| launched).map(|seated| &seated.pes[..]),
            now: stands,
            keeps: false,
            chosen: false,
            may_move,
            may_be_moved: may_move && attained >= gate.least_attained,
            may_move_others: asks.then(budget),
            gives_way: self.gives_way(domain, one),
            displaced: 1_000_000 + (width.saturating_mul(1_000_000) >> level),
        }
    }
}
