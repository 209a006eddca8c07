//! A fuller machine: long programs that are in the way of wider ones stand for a part of the time.
//!
//! # Problem
//! The user who has had least comes first. Users with narrow programs have always had less than one with wide ones, and
//! so their programs always run; where a few of them sit here and there none of the wide ones fits beside them, and
//! half of the machine is idle although dozens wait. Users get what is due to them, and all wait longer for that: a log
//! whose jobs take 83 % of a machine could not be kept up with.
//!
//! # Approach
//! When a tenth of the processors or more would be idle, those are put in order once more: programs of the last level
//! come after all others, the widest first, whosever they are. If the machine is fuller by a tenth then, it is done so.
//! Programs of lower levels are not touched, so nobody waits longer for an answer; nor are those of a user who is
//! short of what was due ([`Dues`]): who has had less than a third of it has his place in the order until it is half.
//! And those that stand have their floor.
//!
//! ```text
//!   128 processors, all of the last level     A 3, B 25, C 32: each the only one of its user; D, E 64: of one user
//!   in the order of users                     A A A B B ... C C C . . .      60 of 128: D and E fit nowhere
//!   the widest first                          D D D D D D D D E E E E E E    128; A, B and C stand
//!   when A's user is short                    A . . . D D D D D D D B B C    then that of B and so on
//! ```
//!
//! [`Dues`]: crate::gang::dues::Dues

use super::line::{InLine, Stands};
use crate::placement::packing::{Candidate, Packing};
use crate::psched::decide::Scheduler;
use crate::psched::decide::domains::DomainId;
use std::cmp::Reverse;

/// By which part of all processors the machine has to be fuller. With a twentieth or a fifth a recorded log had response
/// times 1 % lower and 10 % higher.
const PART: u64 = 10;

/// So many processors more have to be held.
pub(super) fn gain(processors: u64) -> u64 {
    processors.div_ceil(PART).max(1)
}

/// Processors that are held by those who run, of candidates that stand in the order of the packing.
pub(super) fn held(packing: &Packing, candidates: &[Candidate<'_>]) -> u64 {
    let (running, _) = parted(packing, candidates);
    running.map(processors).sum()
}

/// Whether it may be worth while to look for a fuller machine: enough is idle, and one stands that is as wide.
pub(super) fn may_be(packing: &Packing, candidates: &[Candidate<'_>], processors_all: u64) -> bool {
    let gain = gain(processors_all);
    let (_, standing) = parted(packing, candidates);
    let mut standing = standing.filter(|one| one.gives_way);
    standing.any(|one| processors(one) >= gain)
        && held(packing, candidates) + gain <= processors_all
}

/// Who gives way comes after all others, the widest first; else the order is kept.
pub(super) fn wide_first(candidates: &mut [Candidate<'_>]) {
    candidates.sort_by_key(|one| one.gives_way.then(|| Reverse(processors(one))));
}

fn processors(one: &Candidate<'_>) -> u64 {
    one.wanted.shape.processors()
}

/// Who runs, and who stands: the party is in the order of the candidates.
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
    /// Whether one of the line may stand for the sake of a fuller machine.
    pub(super) fn gives_way(&self, domain: DomainId, one: &InLine) -> bool {
        self.is_short(domain, one) == Some(false)
    }

    /// Whether the user of one of the last level is short of what was due; none: it is not of that level.
    fn is_short(&self, domain: DomainId, one: &InLine) -> Option<bool> {
        let levels = &self.domain(domain).turns.levels;
        if !matches!(one.stands, Stands::Turn(_)) || !one.place.is_of_last_level(levels) {
            return None;
        }
        let (holder, _) = self.schedule.share_of(one.apid)?;
        Some(self.schedule.dues.is_short(holder))
    }

    /// When it is to be looked who is short of what was due; none: it would make no difference. It does where somebody
    /// stands who may become short, or somebody is short who would stand.
    pub(super) fn looks_who_is_short(&self, domain: DomainId, line: &[InLine]) -> Option<u64> {
        let may_differ = self.domain(domain).fuller
            || line.iter().any(|one| self.is_short(domain, one) == Some(true));
        may_differ.then(|| self.schedule.dues.looks_ns()).flatten()
    }
}
