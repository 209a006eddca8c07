//! How much of psched's records the applications of each user take that have not ended.

use crate::apteam::record::Apteam;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes by user; no entry is 0. What was posted counts, which does not change: not the place, which the
/// machine bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptBytes(BTreeMap<u32, u64>);

impl KeptBytes {
    /// Those of this user's applications.
    pub fn of(&self, uid: u32) -> u64 {
        self.0.get(&uid).copied().unwrap_or(0)
    }

    /// An application that has come.
    pub fn add(&mut self, team: &Apteam) {
        *self.0.entry(team.owner.uid).or_default() += team.posting.kept_bytes();
    }

    /// One that has gone.
    pub fn remove(&mut self, team: &Apteam) {
        let left = self.of(team.owner.uid).saturating_sub(team.posting.kept_bytes());
        match left {
            0 => drop(self.0.remove(&team.owner.uid)),
            left => drop(self.0.insert(team.owner.uid, left)),
        }
    }
}
