//! stdin on its way: kept until the apshepherd has it.
//!
//! An apinit may die with some of it in its hands. So what has been read is kept here, numbered in
//! bytes from the start, until the credit that comes back says that it has arrived; after a break all
//! of that is sent again, and the apshepherd knows by the numbers what it has. The credit bounds what
//! is kept.

use crate::apteam::protocol::attach::{StdinCredit, StdinPiece};
use bytes::Bytes;
use std::collections::VecDeque;

/// What has been read and is not known to have arrived.
#[derive(Debug, Default)]
pub(super) struct Unreceived {
    kept: VecDeque<StdinPiece>,
    /// Bytes read in all.
    read: u64,
    /// Bytes that may be.
    credit: u64,
}

impl Unreceived {
    /// Takes what has been read, as it is to be sent.
    pub fn read(&mut self, data: Bytes) -> StdinPiece {
        let piece = StdinPiece { offset: self.read, data };
        self.read = piece.end();
        self.kept.push_back(piece.clone());
        piece
    }

    /// So much may be sent, so much has arrived.
    pub fn credit(&mut self, credit: StdinCredit) {
        self.credit = self.credit.max(credit.credit);
        while self.kept.front().is_some_and(|piece| piece.end() <= credit.received) {
            self.kept.pop_front();
        }
    }

    /// How much more may be read.
    pub fn room(&self) -> u64 {
        self.credit.saturating_sub(self.read)
    }

    /// Bytes read in all.
    pub fn length(&self) -> u64 {
        self.read
    }

    /// What is to be sent to an apinit that has just come (back).
    pub fn again(&self) -> Vec<StdinPiece> {
        self.kept.iter().cloned().collect()
    }
}
