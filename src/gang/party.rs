//! Who runs in one slice.
//!
//! # The problem
//!
//! One gang has its turn. Processors that it leaves idle are to be used, by as many others as can run
//! beside it, and those who have waited longer come first.
//!
//! # The approach
//!
//! Everybody of the component is tried once, in order of turn: who competes with nobody taken so far,
//! and fits in the memory of its nodes beside them, is taken too. Nobody who could run is then left
//! out. Each that is taken marks its competitors, so that the next look costs nothing; memory is
//! counted on crowded nodes only, since everywhere else all fit.

use super::competition::Competition;
use crate::apteam::Apid;
use std::collections::{BTreeMap, BTreeSet};

/// The party of those who stand in `order`: first the leader, then the promoted, in that order. Empty
/// only where `order` is.
///
/// A leader whose memory is more than a node has runs all the same, alone on that node: it was admitted.
pub fn party(competition: &Competition, order: impl IntoIterator<Item = Apid>) -> Vec<Apid> {
    let mut taken = Vec::new();
    let mut barred: BTreeSet<Apid> = BTreeSet::new();
    let mut used: BTreeMap<u32, u64> = BTreeMap::new();
    for apid in order {
        if competition.gang(apid).is_none() || barred.contains(&apid) {
            continue;
        }
        let fits = competition.crowded(apid).all(|(node, bytes)| {
            let room = |used: &u64| used.saturating_add(bytes) <= competition.memory(node);
            used.get(&node).is_none_or(room)
        });
        if !fits {
            continue;
        }
        for (node, bytes) in competition.crowded(apid) {
            // (Who needs nothing there still sits there.)
            let used = used.entry(node).or_default();
            *used = used.saturating_add(bytes);
        }
        barred.insert(apid);
        barred.extend(competition.competitors(apid));
        taken.push(apid);
    }
    taken
}
