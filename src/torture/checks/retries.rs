//! Launches that are tried again: never beside the one before, never on a node where one has failed, and no more
//! often than psched may.

use super::Checks;
use crate::apteam::record::Apteam;
use crate::torture::host::{Proc, ProcId};
use std::collections::BTreeMap;

/// The variable `launch_retries`, as no seed changes it.
const RETRIES_MAX: u32 = 3;

impl Checks {
    /// A record is on the disk. (That no PE had run before, [`Checks::begins`] sees.)
    pub(super) fn check_retries(&mut self, team: &Apteam, procs: &BTreeMap<ProcId, Proc>) {
        let Some(last) = &team.retries.last else { return };
        let key = team.key();
        if team.retries.count > RETRIES_MAX {
            return self.broken(format!("{key} is launched again {} times", team.retries.count));
        }
        let older = |p: &&Proc| p.key.apid == team.apid && p.key.incarnation <= last.incarnation;
        if let Some(proc) = procs.values().find(older) {
            let text =
                format!("{key} waits again, and a process of {} is on NID {}", proc.key, proc.nid);
            return self.broken(text);
        }
        let course = self.course(team.apid);
        course.struck_out.extend(last.cause.failed_launch().map(|(nid, _)| nid));
        let struck_out = team.places.nids().find(|nid| course.struck_out.contains(nid));
        if let Some(nid) = struck_out {
            self.broken(format!("{key} is placed on NID {nid} again, where its launch has failed"));
        }
    }
}
