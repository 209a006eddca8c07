//! How each PE has ended (`--report`).
//!
//! The reports come among the output of their hosts, once each; those of an apshepherd that was lost, or
//! is too old to send any, do not come. So the table is made of the placement, which has every PE, and of
//! what is known of it.

use super::*;
use crate::apteam::ending::PeReport;
use crate::apteam::protocol::attach::Output;
use crate::machine::Nid;
use std::collections::BTreeMap;

impl Front {
    /// A report has come in the place of output: nobody writes it out, so it counts as written.
    pub(super) fn reported(&mut self, output: &Output, report: PeReport) {
        // One of a PE that there is not would be an apshepherd's fault, and be kept for nothing.
        let pes = self.placement.iter().flat_map(|p| p.places.0.iter().map(|place| place.pes));
        if output.rank < pes.fold(0, u32::saturating_add) {
            self.reports.insert(output.rank, report);
        }
        if let Some(taken) = self.received.written(output.source, output.end(), self.apinit.up) {
            self.act(Action::Send(ToApinit::OutputTaken(taken)));
        }
    }

    /// A row for each PE, by rank.
    pub(super) fn report(&mut self) -> Vec<ReportRow> {
        let reports = std::mem::take(&mut self.reports);
        let places = self.placement.iter().flat_map(|p| p.places.0.iter());
        let nids = places.flat_map(|place| (0..place.pes).map(|_| place.nid));
        let launch = &self.setup.launch;
        let names: Vec<String> =
            (0..launch.parts()).map(|part| file_name(launch.program(part).executable)).collect();
        let row = |(rank, nid): (u32, Nid)| {
            let name = names.get(launch.part_of(rank)).cloned().unwrap_or_default();
            ReportRow { name, rank, nid, report: reports.get(&rank).copied() }
        };
        (0..).zip(nids).map(row).collect()
    }
}

fn file_name(path: &[u8]) -> String {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    String::from_utf8_lossy(name).into_owned()
}

/// Those that have come, by rank.
pub(super) type Reports = BTreeMap<u32, PeReport>;
