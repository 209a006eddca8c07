//! stdin on its way to PE 0.
//!
//! ```text
//!      written             received               credit      bytes from the start
//! --------|-------------------|----------------------|
//!   read  |  waits for PE 0,  |  may be under way,   |
//!  by PE 0|  kept here        |  kept by the sender  |
//! ```
//!
//! Each piece says where it begins, so that what is sent again after a lost connection is known.

use super::{Action, Shepherd};
use crate::apteam::protocol::attach::{StdinCredit, StdinPiece};
use crate::apteam::protocol::shepherd::FromShepherd;
use bytes::Buf;

/// Credit is told anew when it has grown by so much.
const STEP: u64 = 64 * 1024;

/// How far it is, in bytes from the start.
#[derive(Clone, Debug, Default)]
pub(super) struct Stdin {
    /// PE 0 is here and reads it.
    pub wanted: bool,
    pub closed: bool,
    /// All of it has come: what comes still is another's, and thrown away.
    pub over: bool,
    /// The most bytes that may be on their way (variable `stdin_max`).
    pub window: u64,
    pub received: u64,
    pub written: u64,
    pub credit: u64,
}

impl Stdin {
    pub fn told(&self) -> StdinCredit {
        StdinCredit { credit: self.credit, received: self.received }
    }
}

impl Shepherd {
    pub(super) fn stdin(&mut self, mut piece: StdinPiece) {
        let end = piece.end();
        if end <= self.stdin.received {
            // Said again after a break.
            return;
        }
        let thrown_away = self.stdin.closed || self.stdin.over;
        if piece.offset > self.stdin.received || !thrown_away && end > self.stdin.credit {
            // A hole, or more than was allowed, for which there is no room: nothing of ours does
            // that, and going on would give PE 0 something else than was typed.
            self.actions.push(Action::Hangup);
            return;
        }
        piece.data.advance((self.stdin.received - piece.offset) as usize);
        self.stdin.received = end;
        if thrown_away {
            self.stdin.written = end;
            self.grant_stdin();
        } else {
            self.actions.push(Action::WriteStdin(piece.data));
        }
    }

    /// So many bytes were all.
    pub(super) fn stdin_end(&mut self, length: u64) {
        if length > self.stdin.received {
            // A hole, as above.
            self.actions.push(Action::Hangup);
        } else if self.stdin.wanted && !self.stdin.closed && !self.stdin.over {
            self.stdin.over = true;
            self.actions.push(Action::CloseStdin);
        }
    }

    /// PE 0's pipe has taken so many more.
    pub(super) fn stdin_written(&mut self, count: u64) {
        let written = self.stdin.written.saturating_add(count);
        self.stdin.written = written.min(self.stdin.received);
        self.grant_stdin();
    }

    /// PE 0 does not read any more: the rest is thrown away as it comes.
    pub(super) fn stdin_closed(&mut self) {
        self.stdin.closed = true;
        self.stdin.written = self.stdin.received;
        self.grant_stdin();
    }

    pub(super) fn grant_stdin(&mut self) {
        let credit = self.stdin.written.saturating_add(self.stdin.window);
        if self.stdin.wanted && credit >= self.stdin.credit + STEP {
            self.stdin.credit = credit;
            let told = self.stdin.told();
            self.send(|_| FromShepherd::StdinCredit(told));
        }
    }
}
