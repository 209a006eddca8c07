//! When a gang runs by a plan, which repeats.

use crate::apteam::Apid;
use crate::apteam::protocol::turns::SlicePlan;
use crate::gang::member_index::MemberIndex;
use crate::simulate::nanos;

/// When a gang runs, in nanoseconds of psched's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RunIntervals {
    /// It does not.
    #[default]
    Never,
    /// Nobody keeps it from running.
    Always,
    /// In turns.
    Turns(Turns),
}

/// What of a round a gang runs, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turns {
    round: Round,
    /// Positions of the plan are so much less than those of the stretches.
    ahead: u64,
    /// From when until when in a round: in order, and neither empty nor touching each other, the last not
    /// the first of the next round either.
    stretches: Vec<(u64, u64)>,
}

/// How a plan repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// When its first slice began.
    begins: u64,
    /// Until then nodes are in the slice that is on then.
    from: u64,
    /// How long it takes once; 0: it has no slices.
    length: u64,
}

impl Round {
    /// That of this plan.
    pub fn of(plan: &SlicePlan) -> Round {
        let length =
            plan.slices.iter().map(|slice| nanos(slice.length)).fold(0, u64::saturating_add);
        Round { begins: plan.begins_ns, from: plan.from_ns, length }
    }

    /// When it is followed by its own times, and how long it takes once.
    pub fn from(self) -> (u64, u64) {
        (self.from, self.length)
    }

    /// Then, or when the plan is followed; and how far into it that is.
    pub fn into(self, at: u64) -> (u64, u64) {
        let at = at.max(self.from);
        (at, at.saturating_sub(self.begins).checked_rem(self.length).unwrap_or_default())
    }
}

impl RunIntervals {
    /// Those of the members of a plan, by number.
    pub fn all(plan: &SlicePlan) -> Vec<(Apid, RunIntervals)> {
        let round = Round::of(plan);
        let mut all: Vec<(Apid, Vec<(u64, u64)>)> =
            plan.members.iter().map(|key| (key.apid, Vec::new())).collect();
        all.sort_unstable_by_key(|(apid, _)| *apid);
        let index = MemberIndex::of(all.iter().map(|(apid, _)| *apid));
        let mut begins = 0u64;
        for slice in plan.slices.iter().filter(|slice| !slice.length.is_zero()) {
            let ends = begins.saturating_add(nanos(slice.length));
            for key in &slice.party {
                let Some(at) = index.get(key.apid) else { continue };
                let stretches = &mut all[at].1;
                match stretches.last_mut().filter(|(_, end)| *end == begins) {
                    Some((_, end)) => *end = ends,
                    None => stretches.push((begins, ends)),
                }
            }
            begins = ends;
        }
        all.into_iter()
            .map(|(apid, stretches)| (apid, RunIntervals::new(round, stretches)))
            .collect()
    }

    fn new(round: Round, mut stretches: Vec<(u64, u64)>) -> RunIntervals {
        let mut ahead = 0;
        match stretches[..] {
            [] => return RunIntervals::Never,
            [(0, end)] if end == round.length => return RunIntervals::Always,
            // The last goes on in the first: a round is taken to begin with it.
            [(0, _), .., (last, end)] if end == round.length => {
                ahead = end - last;
                stretches.pop();
                stretches
                    .iter_mut()
                    .for_each(|(begin, end)| (*begin, *end) = (*begin + ahead, *end + ahead));
                stretches[0].0 = 0;
            }
            _ => {}
        }
        RunIntervals::Turns(Turns { round, ahead, stretches })
    }

    /// Whether it runs then, and until when that stays so; `u64::MAX`: for ever.
    pub fn at(&self, at: u64) -> (bool, u64) {
        match self {
            RunIntervals::Never => (false, u64::MAX),
            RunIntervals::Always => (true, u64::MAX),
            RunIntervals::Turns(turns) => turns.at(at),
        }
    }

    /// The stretches from then on, one after the other.
    pub fn stretches(&self, at: u64) -> Stretches<'_> {
        match self {
            RunIntervals::Never | RunIntervals::Always => {
                Stretches { way: self, at, next: 0, into: 0 }
            }
            RunIntervals::Turns(turns) => {
                let (at, into) = turns.position(at);
                let next = turns.stretches.partition_point(|(_, end)| *end <= into);
                Stretches { way: self, at, next, into }
            }
        }
    }

    /// From when on it repeats, and after how long; none: it does not change.
    pub fn repeats(&self) -> Option<(u64, u64)> {
        match self {
            RunIntervals::Never | RunIntervals::Always => None,
            RunIntervals::Turns(turns) => Some(turns.round.from()),
        }
    }
}

/// When a gang runs, stretch by stretch.
#[derive(Debug)]
pub struct Stretches<'a> {
    way: &'a RunIntervals,
    /// When the last one was over, and how far into the round that was.
    at: u64,
    into: u64,
    /// The first in which it runs that is not over.
    next: usize,
}

impl Stretches<'_> {
    /// Whether it runs in the next stretch, and until when; `u64::MAX`: for ever.
    pub fn next(&mut self) -> (bool, u64) {
        let RunIntervals::Turns(turns) = self.way else { return self.way.at(self.at) };
        let length = turns.round.length;
        let (begin, end) = match turns.stretches.get(self.next) {
            Some(stretch) => *stretch,
            None => {
                let (begin, end) = turns.stretches[0];
                (begin + length, end + length)
            }
        };
        let runs = begin <= self.into;
        let until = if runs { end } else { begin };
        self.at = self.at.saturating_add(until - self.into);
        self.into = until;
        if self.next == turns.stretches.len() {
            (self.next, self.into) = (0, until - length);
        }
        self.next += usize::from(runs);
        (runs, self.at)
    }
}

impl Turns {
    /// Then, or when the plan is followed; and how far into a round of the stretches that is.
    fn position(&self, at: u64) -> (u64, u64) {
        let (at, into) = self.round.into(at);
        (at, (into + self.ahead) % self.round.length)
    }

    fn at(&self, at: u64) -> (bool, u64) {
        let (at, into) = self.position(at);
        let length = self.round.length;
        let after = |position: u64| at.saturating_add(position - into);
        let next = self.stretches.partition_point(|(_, end)| *end <= into);
        match self.stretches.get(next) {
            Some((begin, end)) if *begin <= into => (true, after(*end)),
            Some((begin, _)) => (false, after(*begin)),
            None => (false, after(length + self.stretches[0].0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Round = Round { begins: 100, from: 103, length: 10 };

    /// From 100 on.
    fn drawn(stretches: &[(u64, u64)]) -> String {
        let way = RunIntervals::new(ROUND, stretches.to_vec());
        let mut drawn = String::new();
        let mut stays = (way.at(100).0, 0);
        let mut stretches = way.stretches(100);
        let mut at = 100;
        while at < 125 {
            let next = stretches.next();
            assert_eq!(next, way.at(at), "{way:?} after {at}");
            at = next.1;
        }
        for at in 100..125 {
            let (runs, until) = way.at(at);
            assert!(until > at && (runs, until) == stays || at >= stays.1, "{way:?} at {at}");
            stays = (runs, until);
            drawn.push(if runs { '#' } else { '.' });
        }
        drawn
    }

    #[test]
    fn a_round_comes_again_and_again() {
        // (Until 103 it is as then.)
        assert_eq!(drawn(&[(0, 2), (4, 7)]), "....###...##..###...##..#");
        assert_eq!(drawn(&[(3, 5), (9, 10)]), "#####....#...##....#...##");
        // The end of one and the beginning of the next are one stretch.
        assert_eq!(drawn(&[(0, 2), (4, 5), (8, 10)]), "....#...####..#...####..#");
        assert_eq!(RunIntervals::new(ROUND, vec![(0, 2), (8, 10)]).at(118), (true, 122));
        assert_eq!(RunIntervals::new(ROUND, vec![(0, 10)]), RunIntervals::Always);
        assert_eq!(RunIntervals::new(ROUND, vec![]), RunIntervals::Never);
    }
}
