//! Moves that an administrator has ordered.

use super::event::ReplyId;
use crate::apteam::Apid;
use crate::apteam::change::By;
use crate::apteam::place::PlacementList;
use crate::placement::migration::Move;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// An order of an administrator.
pub(super) struct Order {
    pub reply: ReplyId,
    pub dry_run: bool,
    pub by: By,
}

/// Moves that are made one after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sequence {
    pub(super) steps: VecDeque<(Apid, PlacementList)>,
    /// Who is being moved.
    pub(super) waits: Option<Apid>,
    /// The administrator who waits for the answer.
    pub(super) reply: ReplyId,
    pub(super) done: Vec<String>,
}

impl Sequence {
    /// The moves of an order.
    pub fn of(moves: Vec<Move>, reply: ReplyId) -> Sequence {
        let steps = moves.into_iter().map(|one| (one.apid, one.to)).collect();
        Sequence { steps, waits: None, reply, done: Vec::new() }
    }
}
