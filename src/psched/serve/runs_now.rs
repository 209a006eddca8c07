//! Whether an application runs now, as apstat and psview are told.

use crate::apteam::Apid;
use crate::apteam::protocol::turns::StopMeans;
use crate::psched::decide::{Scheduler, Turn};
use crate::rpc::pb;
use crate::variables::units::nanos;

/// How an apinit stops gangs, as `NodeRow` names it.
pub fn stops(means: StopMeans) -> &'static str {
    match means {
        StopMeans::Freezer => "freezer",
        StopMeans::Signals => "signals",
    }
}

/// Whether an application runs at this time of psched's monotonic clock; None: it is in no slice.
pub fn turn(scheduler: &Scheduler, apid: Apid, now_ns: u64) -> Option<pb::Turn> {
    use pb::turn::Kind;
    let left = |until_ns: u64| match until_ns {
        u64::MAX => 0,
        until_ns => until_ns.saturating_sub(now_ns).max(1),
    };
    let (kind, left_ns) = match scheduler.turn(apid, now_ns) {
        Turn::None => return None,
        Turn::Always => (Kind::Always, 0),
        Turn::Runs { leads: true, until_ns } => (Kind::Leads, left(until_ns)),
        Turn::Runs { leads: false, until_ns } => (Kind::Promoted, left(until_ns)),
        Turn::Waits { until_ns } => (Kind::Frozen, left(until_ns)),
        Turn::Held => (Kind::Held, 0),
    };
    let share = scheduler.share(apid, now_ns);
    let partial = scheduler.measured().partial(apid);
    let peaks = scheduler.measured().peaks(apid);
    Some(pb::Turn {
        kind: kind.into(),
        left_ns,
        had: share.had,
        // Nothing is due to one that is held.
        due: if kind == Kind::Held { 0 } else { share.due },
        attained_ns: nanos(scheduler.attained(apid, now_ns)),
        partial_ns: nanos(partial.total),
        partials: partial.times,
        partial_longest_ns: nanos(partial.longest),
        peak_memory: peaks.map(|(_, bytes)| bytes).fold(0, u64::saturating_add),
    })
}
