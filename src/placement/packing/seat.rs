//! A place as packing sees it: processors of the whole line in runs.

use crate::apteam::Apid;
use crate::apteam::place::{Place, PlacementList};
use crate::occupancy::Occupancy;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Where somebody sits. Processors are counted over all nodes of the line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// Its nodes by their place on the line, the processors that it has on each, and its PEs there.
    pub nodes: Vec<(u32, u32, u32)>,
    /// Its processors, ascending; no two runs touch.
    pub runs: Vec<Range<u32>>,
}

impl Seat {
    /// Of what an application holds; `pes`: on each of its nodes.
    pub fn of(occupancy: &Occupancy, apid: Apid, pes: &[u32]) -> Seat {
        let mut seat = Seat::default();
        for (i, held) in occupancy.held(apid).iter().enumerate() {
            let base = occupancy.first()[held.at] as u32;
            let pes = pes.get(i).copied().unwrap_or(1);
            seat.nodes.push((held.at as u32, held.processors.len() as u32, pes));
            held.processors.iter().for_each(|p| seat.push(base + p));
        }
        seat
    }

    /// On these places, which are by NID; `exclusive`: all processors of their nodes are its own.
    pub fn at(occupancy: &Occupancy, places: &[&Place], exclusive: bool) -> Seat {
        let mut seat = Seat::default();
        for place in places {
            let line = occupancy.line();
            let Ok(at) = line.binary_search_by_key(&place.nid, |slot| slot.nid) else { continue };
            let base = occupancy.first()[at] as u32;
            let mut processors = match exclusive {
                true => (0..line[at].processors).collect(),
                false => place.processors.clone(),
            };
            processors.sort_unstable();
            seat.nodes.push((at as u32, processors.len() as u32, place.pes));
            processors.iter().for_each(|p| seat.push(base + p));
        }
        seat
    }

    /// One more processor, behind the others.
    fn push(&mut self, processor: u32) {
        self.push_run(processor..processor + 1);
    }

    /// More processors, behind the others.
    pub(super) fn push_run(&mut self, more: Range<u32>) {
        match self.runs.last_mut() {
            Some(run) if run.end == more.start => run.end = more.end,
            _ => self.runs.push(more),
        }
    }

    /// From the first of its nodes to the last.
    pub(super) fn span(&self) -> Option<Range<usize>> {
        let (first, last) = (self.nodes.first()?, self.nodes.last()?);
        Some(first.0 as usize..last.0 as usize + 1)
    }

    /// Processors.
    pub fn width(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.end - run.start)).sum()
    }

    /// As a placement list.
    pub fn places(&self, occupancy: &Occupancy) -> PlacementList {
        let mut processors = self.runs.iter().flat_map(Clone::clone);
        let place = |(at, count, pes): &(u32, u32, u32)| {
            let at = *at as usize;
            let base = occupancy.first()[at] as u32;
            let own = processors.by_ref().take(*count as usize).map(|p| p - base).collect();
            Place { nid: occupancy.line()[at].nid, processors: own, pes: *pes }
        };
        PlacementList(self.nodes.iter().map(place).collect())
    }
}
