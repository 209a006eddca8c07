//! The plan: what is asked for, what may be done, and what is answered.

use super::search::{Found, Limits, Search};
use super::windows;
use super::{Gate, Hindrance, Mover, Plan, Refusal, Situation, Waiting, Wall};
use crate::apteam::Apid;
use crate::placement::{exhaustive, list};

/// The cheapest plan that the search finds, of those that the gate allows.
///
/// A window for the one that waits is filled from the left, as placement does it, after some others
/// were lifted off the line; these are then put back, the widest first, each where it fits best.
/// Which are lifted:
///
/// - Where at most six can be: every set of them, with every window and every way to put them back.
///   Then no plan is cheaper in which each goes straight to its place. (One in which somebody steps
///   aside for a while may be missed, or cost more than it need: see [`super::order`].)
/// - Else, and where six are too many for the work that may be done, those windows are tried that
///   have the cheapest applications on them: 48, by up to four bounds of what one may cost. Who
///   stands in one and need not stay is lifted, the cheap ones first, and put back in two ways at
///   most. Who is not in the window is not moved then, and processors are changed for nothing only
///   of those who are lifted. On small machines that finds nineteen of twenty plans, hardly dearer.
///
/// Each of the two looks at 150,000 nodes at most, those of whoever is put somewhere counted four
/// times, and ends with what it has then.
///
/// # Errors
/// What stood in the way. Finding that out costs a second search: [`try_plan`] leaves it out.
pub fn plan(situation: &Situation, waiting: &Waiting) -> Result<Plan, Refusal> {
    if let Some(plan) = fits_now(situation, waiting) {
        return Ok(plan);
    }
    check(situation, waiting)?;
    let gate = &situation.gate;
    let limits = Limits::of(gate, waiting);
    if let Some(plan) = cheapest(situation, waiting, limits).best {
        return Ok(plan);
    }
    let found = cheapest(situation, waiting, Limits::NONE);
    match found.best {
        Some(plan) if plan.moved() > limits.moves_max => {
            Err(Refusal::TooMany { moves: plan.moved(), moves_max: limits.moves_max })
        }
        Some(plan) if plan.work > limits.work_max => {
            let gain = Gate::gain(waiting).saturating_mul(1_000) / plan.work;
            let gain = u64::try_from(gain).unwrap_or(u64::MAX);
            Err(Refusal::TooDear { gain, least_gain: gate.least_gain })
        }
        Some(plan) => Ok(plan),
        None => {
            Err(windows::hindered(situation, waiting).or(found.failure).unwrap_or(Refusal::NoNodes))
        }
    }
}

/// As [`plan`], without the reasons: cheaper where there is none.
pub fn try_plan(situation: &Situation, waiting: &Waiting) -> Option<Plan> {
    if let Some(plan) = fits_now(situation, waiting) {
        return Some(plan);
    }
    check(situation, waiting).ok()?;
    cheapest(situation, waiting, Limits::of(&situation.gate, waiting)).best
}

/// Of all regions to which the one that waits may go. One that is tried later has to be cheaper.
fn cheapest(situation: &Situation, waiting: &Waiting, mut limits: Limits) -> Found {
    let mut all = Found::default();
    for regions in waiting.wanted.reach.sets() {
        let found = Search::new(*situation, waiting, regions, limits).run();
        all.failure = all.failure.or(found.failure);
        if let Some(plan) = found.best {
            limits.work_max = plan.work.saturating_sub(1);
            let free = plan.work == 0;
            all.best = Some(plan);
            if free {
                break;
            }
        }
    }
    all
}

/// It fits, and nobody need be moved.
fn fits_now(situation: &Situation, waiting: &Waiting) -> Option<Plan> {
    let (need, nodes) = exhaustive(situation.occupancy, &waiting.wanted, situation.kept)?;
    let window = list(situation.occupancy, &need, nodes);
    Some(Plan { window, moves: Vec::new(), steps: Vec::new(), work: 0 })
}

/// What is known without a search.
fn check(situation: &Situation, waiting: &Waiting) -> Result<(), Refusal> {
    let gate = &situation.gate;
    let processors = waiting.wanted.shape.processors();
    if !gate.enabled {
        return Err(Refusal::Disabled);
    }
    if processors < gate.width_min {
        return Err(Refusal::Narrow { processors, width_min: gate.width_min });
    }
    let occupancy = situation.occupancy;
    let most = waiting.wanted.rules(occupancy).max_resident.max(1);
    let on = |at: usize| match most {
        1 => u64::from(occupancy.line()[at].free),
        _ => occupancy
            .residents(at)
            .iter()
            .map(|r| u64::from(most.saturating_sub((*r).into())))
            .sum(),
    };
    let usable = |at: &usize| {
        let slot = &occupancy.line()[*at];
        // (In any region: who stands where it is to go may go to another.)
        slot.application && slot.open && !situation.kept.contains(&slot.nid)
    };
    // Who has nodes to itself may find smaller ones.
    let spare = |(apid, mover): (&Apid, &Mover)| {
        let held: usize = occupancy.held(*apid).iter().map(|held| held.processors.len()).sum();
        (held as u64).saturating_sub(mover.processors())
    };
    let exclusive = situation.movers.iter().filter(|(_, mover)| mover.claim.exclusive);
    let free = (0..occupancy.line().len()).filter(usable).map(on).sum::<u64>()
        + exclusive.map(spare).sum::<u64>();
    if free < processors {
        return Err(Refusal::TooFew { processors, free });
    }
    Ok(())
}

impl Situation<'_> {
    /// What keeps an application where it is.
    pub fn hindrance(&self, apid: Apid) -> Option<Hindrance> {
        match self.movers.get(&apid) {
            Some(mover) => self.gate.hindrance(mover),
            None => Some(Hindrance::Wall(Wall::Unknown)),
        }
    }
}

impl Plan {
    /// How many applications go to other nodes.
    pub fn moved(&self) -> usize {
        let goes = |m: &&super::Move| !m.from.nids().eq(m.to.nids());
        self.moves.iter().filter(goes).count()
    }
}
