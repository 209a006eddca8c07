//! When it is decided again if nothing happens until then.
//!
//! # Problem
//! A decision depends on time: who has had enough leaves its level, who has waited for long comes first.
//! Deciding every few minutes finds that out, and most of those decisions come to what the last one came to.
//!
//! # Approach
//! Of itself time changes nothing but who has passed a bound. Some are passed at moments that matter to the
//! second ([`Levels::next`]): then it is decided. The others are about hours, and are looked at every `reconsider`
//! ([`Levels::later`], and here: waits and rests after moves). A decision that changed nothing changes nothing
//! when it is taken again with the same, so that of those looks all are passed over until one by which somebody
//! has passed a bound.
//!
//! ```text
//!   decided, nothing changed                      B has waited for compact_after
//!      |          look         look         look  |      look
//!      +-----------.------------.------------.----*-------|          decided here
//!      now      reconsider                               due
//! ```
//!
//! [`Levels::next`]: crate::gang::levels::Levels::next
//! [`Levels::later`]: crate::gang::levels::Levels::later

use super::in_line::{InLine, Stands};
use crate::apteam::Apid;
use crate::gang::levels::Place;
use crate::psched::decide::domain::DomainId;
use crate::psched::decide::{Now, Scheduler};
use crate::variables::units::nanos;
use std::time::Duration;

impl Scheduler {
    /// When this line is to be decided again, of whom these run, by number; none: nobody waits, or not before
    /// something happens. `settled`: by the decision that was just taken nothing has changed.
    pub(super) fn again(
        &self,
        now: Now,
        domain: DomainId,
        line: &[InLine],
        runs: &[Apid],
        settled: bool,
    ) -> Option<u64> {
        let waits = line.iter().filter(|one| runs.binary_search(&one.apid).is_err());
        let mut waiting: Vec<Place> = waits.map(|one| one.place).collect();
        if waiting.is_empty() {
            return None;
        }
        let turns = &self.domain(domain).turns;
        let every = nanos(turns.reconsider).max(1);
        let looks = match settled {
            true => self.passes(now, domain, line).map(|bound| bound.div_ceil(every).max(1)),
            false => Some(1),
        };
        let look = looks.map(|looks| now.mono_ns.saturating_add(looks.saturating_mul(every)));
        waiting.sort_unstable();
        let levels = self.schedule.levels.of(domain);
        let next = levels.next(&turns.levels, &waiting, now.mono_ns);
        let overtakes = self.domain(domain).overtakes.map(|(at, _)| at);
        // (After that a place is looked for beside those who run.)
        let slice = turns.time_slice;
        let seats = line.iter().filter_map(|one| match one.stands {
            Stands::Waits(waited) if turns.floors => slice.checked_sub(waited),
            _ => None,
        });
        let seats = seats.min().map(|left| now.mono_ns.saturating_add(nanos(left).max(1)));
        let shorts = self.looks_who_is_short(domain, line);
        look.into_iter().chain(next).chain(overtakes).chain(seats).chain(shorts).min()
    }

    /// In how many nanoseconds the first of the line passes a bound that is looked at every `reconsider`.
    fn passes(&self, now: Now, domain: DomainId, line: &[InLine]) -> Option<u64> {
        let turns = &self.domain(domain).turns;
        let gate = &turns.migration;
        let moves = self.moves(domain);
        let left = |bound: Duration, had: Duration| bound.checked_sub(had).filter(|d| !d.is_zero());
        let asks = |waited| left(turns.compact_after, waited).filter(|_| moves);
        let of = |one: &InLine| match one.stands {
            Stands::Comes => None,
            Stands::Waits(waited) => {
                left(turns.longest_wait, waited).into_iter().chain(asks(waited)).min()
            }
            Stands::Turn(turn) if !turn.runs => asks(turn.waited),
            // (When it has paid it can be moved.)
            Stands::Turn(turn) if turn.pays => moves.then_some(Duration::from_nanos(1)),
            Stands::Turn(turn) => left(gate.least_attained, turn.attained).filter(|_| moves),
        };
        let in_line = line.iter().filter_map(of).map(nanos);
        let later = self.schedule.levels.of(domain).later(&turns.levels, now.mono_ns);
        let moved = self.schedule.decision.moved_ns.iter().filter(|_| moves);
        let moved = moved.filter(|(apid, _)| self.is_of(**apid, domain));
        let rests = moved.filter_map(|(_, at)| {
            let until = at.saturating_add(nanos(gate.quiet_time));
            until.checked_sub(now.mono_ns).filter(|left| *left > 0)
        });
        in_line.chain(later).chain(rests).min()
    }
}
