//! Idle time is given away.
//!
//! # The problem
//!
//! A gang whose processes all sleep keeps its processors until its turn is over, while others wait that would
//! compute. A notebook without work would halve the machine.
//!
//! # The approach
//!
//! While others wait that could run instead, the processor time that the gang has used is looked at
//! ([`Action::Look`]). A gang that has used less than a tenth of one processor for `after` *gives*: it stands, and
//! its processors go to the gang that would lead without it, which the plan names, or else to the gang that has the
//! next turn by the plan, as if that turn had begun. (The plan names it because a program that sleeps would else cost
//! its own user the place before others.) A process that blocks for microseconds, in MPI say, uses much more.
//!
//! ```text
//!   the plan    [ A                                  ][ B            ]
//!   runs         A  B              A  B                 B
//!                 ^  gives 50 ms  ^  gives 100 ms
//! ```
//!
//! A gang that gives has its processors back after [`GIVES_MIN`], for twice as long each time up to [`GIVES_MAX`], as
//! long as its turn lasts: whatever it has to do then it does at once, and goes on. A gang that was found idle takes
//! nobody's time until ten times as long is over: time does not go round and round among those who sleep.
//!
//! A gang for whose processors no other gang waits is looked at too, every [`ALONE`]. Its idle time is not charged
//! ([`Action::WasIdle`]): else a user with a notebook that was left open overnight would come last in the morning. Nor
//! is the time that a gang gives and no other gang takes, for all others that wait are idle too.
//!
//! Only gangs that are whole on this apinit give and take: others' parts elsewhere might wait for them. What a look
//! costs is bounded by looking less often where many run ([`LOOK_COST`]).

#[cfg(test)]
mod tests;

use super::super::ns;
use super::{Action, Hold, Seat, State, Switcher, Turn};
use crate::apteam::Key;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a gang gives its processors away, the first time and the longest.
pub const GIVES_MIN: Duration = Duration::from_millis(50);
/// See [`GIVES_MIN`].
pub const GIVES_MAX: Duration = Duration::from_millis(200);
/// A gang that computes is looked at half as often each time, down to so many times less often.
const BUSY_TIMES: u64 = 16;
/// A gang that was idle takes nobody's time for so many times as long as it gives.
const RESTS_TIMES: u64 = 10;
/// One look for each gang in so long: with many gangs they are looked at less often.
const LOOK_COST: Duration = Duration::from_millis(1);
/// How often a gang is looked at for whose processors no other gang waits.
pub const ALONE: Duration = Duration::from_secs(10);
/// A gang is idle that uses less than one of so many parts of a processor.
const IDLE_PART: u64 = 10;

/// What is known of how busy a gang is.
#[derive(Clone, Debug, Default)]
pub(super) struct Idle {
    /// The processor time that it had used, and when that was.
    looked: Option<(u64, u64)>,
    /// The same, for the time that is charged: also while it gives and is not stopped.
    charged: Option<(u64, u64)>,
    /// When to look again.
    pub look_ns: Option<u64>,
    /// It gives its processors away until then.
    pub gives_ns: Option<u64>,
    /// For how long it gave last; zero: it was busy when last looked at.
    gave_ns: u64,
    /// It takes nobody's time until then.
    rests_ns: u64,
    /// It has been busy: looked at so many times less often.
    busy: u64,
    window: Window,
}

/// Whether another gang has waited for the processors of a gang since it was last looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Window {
    /// One has.
    #[default]
    Wanted,
    /// None has.
    Alone,
    /// None has until now. The gang is being looked at, and after that another gang waits.
    Over,
}

impl Idle {
    /// It runs no more: what it has used is to be looked at from its next start on.
    pub fn stops(&mut self) {
        self.look_anew();
        self.charged = None;
    }

    /// For how long it has given since it was last looked at: it counts as idle for that time too.
    pub fn slept_on(&self, now: u64) -> Option<u64> {
        let (_, since) = self.charged.filter(|_| self.gives_ns.is_some())?;
        Some(now.saturating_sub(since))
    }

    /// Whether it is idle is to be seen in time that is still to come.
    fn look_anew(&mut self) {
        (self.looked, self.look_ns, self.window) = (None, None, Window::Wanted);
    }

    /// Whether it is time to look at a gang that runs. `wanted`: another gang waits for its processors.
    fn is_due(&mut self, wanted: bool, now: u64) -> bool {
        match (self.window, wanted) {
            (Window::Wanted, false) => {
                self.look_anew();
                self.window = Window::Alone;
                // (A short program ends before.)
                self.look_ns = Some(now.saturating_add(ns(ALONE)));
            }
            (Window::Over, false) => self.window = Window::Alone,
            (Window::Alone, true) if self.looked.is_none() => self.look_anew(),
            (Window::Alone, true) => {
                self.window = Window::Over;
                return true;
            }
            (Window::Wanted | Window::Over, true) | (Window::Alone, false) => {}
        }
        let gives = self.gives_ns.is_some_and(|until| until > now);
        !gives && self.look_ns.is_none_or(|at| at <= now)
    }
}

/// The gangs that give, and the next turns of the gangs that may take.
#[derive(Debug, Default)]
pub(super) struct Given {
    gives: Vec<Key>,
    /// A gang gave until now.
    over: bool,
    takers: BTreeMap<Key, (usize, u64)>,
}

impl Given {
    /// Whether a gang gives its turn away.
    pub fn gives(&self, key: &Key) -> bool {
        self.gives.contains(key)
    }

    /// Its place among those whom its plan names for what is given, and when it would have its turn; none: it takes
    /// nothing.
    pub fn takes(&self, key: &Key) -> Option<(usize, u64)> {
        self.takers.get(key).copied()
    }

    /// Whether what changes now comes of what is given, and not of a plan.
    pub fn changes(&self) -> bool {
        self.over || !self.gives.is_empty()
    }
}

impl Switcher {
    /// Whether its time can go to others, and others' time to it.
    fn may_share(seat: &Seat) -> bool {
        seat.whole && seat.lift == Hold::No && seat.leaves_by_ns.is_none()
    }

    /// The gangs of these that give now, and those that may run before their turn.
    pub(super) fn given(&mut self, now: u64, turns: &BTreeMap<Key, Turn>) -> Given {
        let mut given = Given::default();
        if self.idle_after.is_none() {
            return given;
        }
        for (key, turn) in turns {
            let Some(seat) = self.seats.get_mut(key) else { continue };
            if seat.idle.gives_ns.is_some_and(|until| until <= now) {
                seat.idle.gives_ns = None;
                given.over = true;
            }
            let its = matches!(turn, Turn::Its { .. });
            if its && seat.idle.gives_ns.is_some() && Switcher::may_share(seat) {
                given.gives.push(*key);
            }
        }
        if given.gives.is_empty() {
            return given;
        }
        for (key, _) in turns.iter().filter(|(_, turn)| matches!(turn, Turn::Others { .. })) {
            let takes = |seat: &&Seat| {
                Switcher::may_share(seat)
                    && seat.idle.rests_ns <= now
                    && given.gives.iter().any(|giver| {
                        self.seats.get(giver).is_some_and(|giver| !giver.on.is_disjoint(&seat.on))
                    })
            };
            if self.seats.get(key).filter(takes).is_some()
                && let Some(at) = self.plans.next_turn(*key, now)
            {
                given.takers.insert(*key, (self.plans.takes(*key, now), at));
            }
        }
        given
    }

    /// Asks how much those have used of whom it is to be known.
    pub(super) fn look(&mut self, now: u64, turns: &BTreeMap<Key, Turn>, out: &mut Vec<Action>) {
        let Some(after) = self.idle_after else { return };
        let mut keys = Vec::new();
        for key in turns.keys() {
            let Some(seat) = self.seats.get(key).filter(|s| s.state == State::Running) else {
                continue;
            };
            let waits = |(other, turn): (&Key, &Turn)| {
                *turn != Turn::Unplanned
                    && self.seats.get(other).is_some_and(|other| {
                        other.state == State::Stopped
                            && Switcher::may_share(other)
                            && !other.on.is_disjoint(&seat.on)
                    })
            };
            // (It runs, so it is none of those.)
            let wanted = Switcher::may_share(seat) && turns.iter().any(waits);
            let Some(seat) = self.seats.get_mut(key) else { continue };
            if !Switcher::may_share(seat) {
                seat.idle.stops();
            } else if seat.idle.is_due(wanted, now) {
                // (Until it is answered.)
                seat.idle.look_ns = Some(now.saturating_add(ns(after)));
                keys.push(*key);
            }
        }
        if !keys.is_empty() {
            out.push(Action::Look(keys));
        }
    }

    /// A gang has used so much processor time in all; none: that can't be known. `looked_at`: how many gangs are.
    pub(super) fn used(
        &mut self,
        now: u64,
        key: Key,
        used: Option<u64>,
        looked_at: u64,
        out: &mut Vec<Action>,
    ) {
        let Some(after) = self.idle_after else { return };
        let Some(seat) = self.seats.get_mut(&key).filter(|s| s.state == State::Running) else {
            return;
        };
        let least = ns(after).max(looked_at.saturating_mul(ns(LOOK_COST)));
        let idle = &mut seat.idle;
        let Some(used) = used else {
            idle.look_ns = Some(u64::MAX);
            return;
        };
        let slept = |(had, since): (u64, u64)| {
            let (used, time) = (used.saturating_sub(had), now.saturating_sub(since));
            (used.saturating_mul(IDLE_PART) < time).then_some(time)
        };
        if let Some(time) = idle.charged.replace((used, now)).and_then(slept) {
            out.push(Action::WasIdle(key, time));
        }
        let before = idle.looked.replace((used, now));
        // (A gang that was idle finds its work as soon as it runs: half the time is enough to see that.)
        let next = match (idle.window, idle.gave_ns) {
            (Window::Alone, _) => ns(ALONE),
            (Window::Wanted | Window::Over, 0) => least.saturating_mul(idle.busy.max(1)),
            (Window::Wanted | Window::Over, _) => least / 2,
        };
        idle.look_ns = Some(now.saturating_add(next));
        let Some((had, since)) = before else { return };
        if idle.window != Window::Wanted {
            if idle.window == Window::Over {
                idle.window = Window::Wanted;
            }
            return;
        }
        if slept((had, since)).is_some() {
            idle.gave_ns = idle.gave_ns.saturating_mul(2).clamp(ns(GIVES_MIN), ns(GIVES_MAX));
            idle.gives_ns = Some(now.saturating_add(idle.gave_ns));
            idle.busy = 0;
            idle.rests_ns = now.saturating_add(idle.gave_ns.saturating_mul(RESTS_TIMES));
            idle.look_anew();
            return;
        }
        (idle.gave_ns, idle.rests_ns) = (0, 0);
        let (used, time) = (used.saturating_sub(had), now.saturating_sub(since));
        idle.busy = match used.saturating_mul(2) >= time {
            true => idle.busy.saturating_mul(2).clamp(1, BUSY_TIMES),
            false => 1,
        };
        idle.look_ns = Some(now.saturating_add(least.saturating_mul(idle.busy)));
    }

    /// How many gangs are looked at for whose processors others wait.
    pub(super) fn looked_at(&self) -> u64 {
        let often = |idle: &Idle| idle.looked.is_some() && idle.window == Window::Wanted;
        self.seats.values().filter(|seat| often(&seat.idle)).count() as u64
    }
}
