//! The places of users.

use crate::apteam::record::Apteam;
use crate::gang::levels::LEVELS_MAX;
use crate::gang::shares::Holder;
use crate::psched::decide::settings::Turns;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The places of a user.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(in crate::psched::decide) struct Rank {
    /// Of applications that wait, by level.
    pub(super) levels: [u32; LEVELS_MAX],
    /// The lowest level at which an application of the user waits.
    pub(super) waits: usize,
}

impl Rank {
    /// The rank of an application of this level.
    pub(in crate::psched::decide) fn of(&self, level: usize, runs: bool) -> u32 {
        self.levels[place(level, runs, self.waits)]
    }
}

/// At which of its user's places an application stands. One that waits stands at its level's. One
/// that runs stands at the first, unless an application of its user waits that is of a lower level:
/// then both stand at that level's place, and go by their levels.
pub(super) fn place(level: usize, runs: bool, waits: usize) -> usize {
    let place = match runs {
        true if level <= waits => 0,
        true => waits,
        false => level,
    };
    place.min(LEVELS_MAX - 1)
}

/// The places of users.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Ranks(pub(super) BTreeMap<Holder, Rank>);

impl Ranks {
    /// The rank of a posting; 0 where there are no shares.
    pub(super) fn of(&self, team: &Apteam, turns: &Turns) -> u32 {
        match self.0.is_empty() {
            true => 0,
            false => turns
                .holder(team)
                .and_then(|of| self.0.get(&of))
                .map_or(0, |rank| rank.of(0, false)),
        }
    }
}
