//! A fuller machine: long programs that are in the way of wider ones stand for a part of the time.
//!
//! # Problem
//! The user who has had least comes first. Users with narrow programs have always had less than a
//! user with wide ones, so the narrow programs always ran. A few of them, here and there, leave no
//! place for a wide program: half of the machine was idle while dozens waited, and psched fell
//! behind on a log whose jobs need 83 % of a machine.
//!
//! # Approach
//! If at least a tenth of the processors would be idle, psched packs a second time: programs of the
//! last level come after all others, the widest first, whichever user they have. psched takes that
//! packing if it fills the machine better by a tenth. Programs of lower levels keep their order, so
//! no answer takes longer. So do the programs of a user who is short of what was due ([`Dues`]:
//! below a third of it, until it is half). Programs that stand keep their floor.
//!
//! ```text
//!   128 processors, all of the last level     A 3, B 25, C 32: each the only one of its user; D, E 64: of one user
//!   in the order of users                     A A A B B ... C C C . . .      60 of 128: D and E fit nowhere
//!   the widest first                          D D D D D D D D E E E E E E    128; A, B and C stand
//!   when A's user is short                    A . . . D D D D D D D B B C    then that of B and so on
//! ```
//!
//! [`Dues`]: crate::gang::dues::Dues

use super::in_line::{InLine, Stands};
use crate::placement::packing::{Candidate, Packing};
use crate::psched::decide::Scheduler;
use crate::psched::decide::domain::DomainId;
use std::cmp::Reverse;

/// The part of all processors by which the machine must be fuller. On a recorded log a twentieth had
/// response times 1 % lower, and a fifth 10 % higher.
const PART: u64 = 10;

/// The processors by which a packing must hold more.
fn gain(processors: u64) -> u64 {
    processors.div_ceil(PART).max(1)
}

/// The processors that a packing holds. The candidates are in its order.
pub(super) fn held(packing: &Packing, candidates: &[Candidate<'_>]) -> u64 {
    let (running, _) = parted(packing, candidates);
    running.map(processors).sum()
}

/// The processors that a fuller packing must hold; none: too few are idle, or none of the programs
/// that stand is wide enough.
pub(super) fn wanted(
    packing: &Packing,
    candidates: &[Candidate<'_>],
    processors_all: u64,
) -> Option<u64> {
    let gain = gain(processors_all);
    let (_, standing) = parted(packing, candidates);
    let mut standing = standing.filter(|one| one.gives_way);
    let least = held(packing, candidates) + gain;
    (least <= processors_all && standing.any(|one| processors(one) >= gain)).then_some(least)
}

/// Sorts candidates that give way behind all others, the widest first; the rest keeps its order.
pub(super) fn wide_first(candidates: &mut [Candidate<'_>]) {
    candidates.sort_by_key(|one| one.gives_way.then(|| Reverse(processors(one))));
}

fn processors(one: &Candidate<'_>) -> u64 {
    one.wanted.shape.processors()
}

/// The candidates that run, and those that stand. The party is in the order of the candidates.
fn parted<'a, 'b>(
    packing: &'a Packing,
    candidates: &'a [Candidate<'b>],
) -> (impl Iterator<Item = &'a Candidate<'b>>, impl Iterator<Item = &'a Candidate<'b>>) {
    let runs = || {
        let mut party = packing.party.iter().peekable();
        move |one: &&Candidate<'_>| party.next_if(|apid| **apid == one.apid).is_some()
    };
    let (mut in_party, mut not_in_party) = (runs(), runs());
    (
        candidates.iter().filter(move |one| in_party(one)),
        candidates.iter().filter(move |one| !not_in_party(one)),
    )
}

impl Scheduler {
    /// Whether a program may stand for a fuller machine.
    pub(super) fn gives_way(&self, domain: DomainId, one: &InLine) -> bool {
        self.is_short(domain, one) == Some(false)
    }

    /// Whether the user of a program of the last level is short; none: the program is of another level.
    fn is_short(&self, domain: DomainId, one: &InLine) -> Option<bool> {
        let levels = &self.domain(domain).turns.levels;
        if !matches!(one.stands, Stands::Turn(_)) || !one.place.is_of_last_level(levels) {
            return None;
        }
        let (holder, _) = self.schedule.share_of(one.apid)?;
        Some(self.schedule.dues.is_short(holder))
    }

    /// The time of the next look for short users; none: it would change nothing. It may if a program
    /// stands whose user may become short, or the user of a program of the last level is short.
    pub(super) fn looks_who_is_short(&self, domain: DomainId, line: &[InLine]) -> Option<u64> {
        let may_differ = self.domain(domain).fuller
            || line.iter().any(|one| self.is_short(domain, one) == Some(true));
        may_differ.then(|| self.schedule.dues.looks_ns()).flatten()
    }
}
