//! Whose memory may go out, and when.
//!
//! psched says of whom it plans no turn for long. The plan by which that one stops may not have begun yet
//! when the order comes, and psched may have changed its mind when it has. So the order waits until the gang
//! stands, for [`WAITS`] at most, and is refused where its next turn is near: memory that has just gone would
//! have to come in again.
//!
//! ```text
//!   RollOut ----> it runs: the order waits ----> it stands, no turn in NEAR ----> RollOut to the driver
//!                        |                            |
//!                        +-- WAITS is over            +-- its turn is near   ---> NotOut, and why
//! ```
//!
//! To swap it goes beside everything else, and the kernel makes room for who runs meanwhile. Where it is taken out
//! by a checkpoint nothing makes room until that is done: so who is to run on its processors waits, no longer than
//! [`LEAVES`].

use super::{Action, State, Switcher};
use crate::apteam::Key;
use std::time::Duration;

/// How long an order waits for its gang to stand: more than it takes a plan to begin.
pub const WAITS: Duration = Duration::from_secs(10);
/// A turn so near is not worth it.
pub const NEAR: Duration = Duration::from_secs(2);
/// How long those who are to run on its processors wait for one that is taken out by a checkpoint.
pub const LEAVES: Duration = Duration::from_secs(120);

impl Switcher {
    /// Its memory is to go once it stands.
    pub(super) fn want_out(&mut self, now: u64, key: Key, out: &mut Vec<Action>) {
        match self.seats.get_mut(&key) {
            Some(seat) => seat.out_by_ns = Some(now.saturating_add(super::super::ns(WAITS))),
            None => out.push(Action::NotOut(key, "it is no longer here")),
        }
    }

    /// Lets those go that stand, and refuses what has waited for too long.
    pub(super) fn roll_out(&mut self, now: u64, concerned: &[Key], out: &mut Vec<Action>) {
        for key in concerned {
            let Some(seat) = self.seats.get_mut(key) else { continue };
            seat.leaves_by_ns.take_if(|by| *by <= now);
            let Some(by_ns) = seat.out_by_ns else { continue };
            if by_ns <= now {
                seat.out_by_ns = None;
                out.push(Action::NotOut(*key, "it runs"));
            } else if seat.state == State::Stopped {
                seat.out_by_ns = None;
                let near = now.saturating_add(super::super::ns(NEAR));
                out.push(match self.plans.next_turn(*key, now) {
                    Some(at) if at < near => Action::NotOut(*key, "its turn is near"),
                    _ if self.by_checkpoint => {
                        seat.leaves_by_ns = Some(now.saturating_add(super::super::ns(LEAVES)));
                        Action::TakeOut(*key)
                    }
                    _ => Action::RollOut(*key),
                });
            }
        }
    }
}
