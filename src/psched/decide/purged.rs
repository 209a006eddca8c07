//! How applications have ended of which foreign nodes were purged.

use crate::apteam::Apid;
use crate::apteam::ending::HostEnd;
use crate::apteam::protocol::node::PlaceCommand;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Ends of purged applications that are remembered, for their front ends.
const PURGED_MAX: usize = 1024;

/// How a purged application has ended, as far as its purged nodes know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PurgedEnd {
    /// The random number of its posting.
    pub(super) request_id: [u8; 16],
    /// Its number and its user.
    pub owner: (Apid, u32),
    /// Its end.
    pub end: HostEnd,
}

/// The ends of the applications that were purged last: no store of this psched's has them, and
/// their front ends ask for them. They ask again every second, so that a restart of psched loses
/// few.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PurgedEnds(pub(super) VecDeque<PurgedEnd>);

impl PurgedEnds {
    pub(super) fn add(&mut self, place: &PlaceCommand, end: HostEnd) {
        let request_id = place.request_id;
        if let Some(known) = self.0.iter_mut().find(|known| known.request_id == request_id) {
            // (A report that is repeated says nothing new.)
            if !end.nids.iter().any(|nid| known.end.nids.contains(nid)) {
                known.end = std::mem::take(&mut known.end).and(end);
            }
            return;
        }
        if self.0.len() == PURGED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(PurgedEnd { request_id, owner: (place.key.apid, place.owner.uid), end });
    }
}
