//! What psview and apstat are told of turns, made of the scheduler's state.

use super::private::Viewer;
use super::views;
use crate::apteam::Apid;
use crate::apteam::record::Apteam;
use crate::gang::plan::Slice;
use crate::psched::decide::{Figures, Histogram, Latest, Now, PlanView, Scheduler, Turns};
use crate::rpc::pb;
use crate::variables::units::nanos;

/// Names of gangs in the parties of all plans of one answer, at most: two megabytes or so. After that
/// only leaders are told.
const PARTIES_MAX: usize = 500_000;

/// What comes before applications and nodes, with at most so many of the latest changes.
pub fn head(scheduler: &Scheduler, now: Now, switches: u32) -> pb::TurnsReply {
    let domain = |(name, turns): (&str, &Turns)| pb::TurnsDomain {
        name: name.into(),
        time_slice_ns: nanos(turns.time_slice),
        max_resident: turns.max_resident,
    };
    let domains: Vec<pb::TurnsDomain> = scheduler.domains().map(domain).collect();
    let first = domains.first().cloned().unwrap_or_default();
    let (plans, parties_cut) = plans(scheduler.plans());
    let measured = scheduler.measured();
    let mut all = Figures::default();
    measured.apinits().for_each(|(_, of)| all.merge(of));
    let latest = measured.latest();
    let skipped = latest.len().saturating_sub(switches as usize);
    pb::TurnsReply {
        version: env!("CARGO_PKG_VERSION").into(),
        now_ns: now.mono_ns,
        wall_ns: now.wall_ns,
        time_slice_ns: first.time_slice_ns,
        max_resident: first.max_resident,
        plans,
        parties_cut,
        waiting: scheduler.teams().filter(|team| team.places.0.is_empty()).count() as u64,
        figures: measured.apinits().map(|(nid, of)| figures(nid.0, of)).collect(),
        all: Some(figures(0, &all)),
        switches: latest.skip(skipped).map(switch).collect(),
        domains: if scheduler.has_domains() { domains } else { Vec::new() },
        ..Default::default()
    }
}

/// An application with a place.
pub fn application(
    scheduler: &Scheduler,
    team: &Apteam,
    now_ns: u64,
    viewer: &Viewer,
) -> pb::ApplicationRow {
    let mut row = views::application(scheduler, team, now_ns, viewer, false);
    // Where it is says enough, and these can be many.
    row.places.iter_mut().for_each(|place| place.processors.clear());
    row
}

/// The plans, and of how many parties only the leader is told.
fn plans<'a>(views: impl Iterator<Item = PlanView<'a>>) -> (Vec<pb::TurnsPlan>, u64) {
    let (mut room, mut cut) = (PARTIES_MAX, 0);
    let apids = |apids: &[Apid]| apids.iter().map(|apid| apid.0).collect();
    let plan = |view: PlanView<'a>| {
        let slice = |slice: &'a Slice| {
            let told = match room.checked_sub(slice.party.len()) {
                Some(_) => slice.party.len(),
                None => 1,
            };
            room = room.saturating_sub(told);
            cut += u64::from(told < slice.party.len());
            pb::TurnsSlice { length_ns: nanos(slice.length), party: apids(&slice.party[..told]) }
        };
        pb::TurnsPlan {
            generation: view.generation,
            slices: view.slices.iter().map(slice).collect(),
            members: apids(view.members),
            begins_ns: view.begins_ns,
            from_ns: view.from_ns,
            agreed: view.agreed,
        }
    };
    let plans = views.map(plan).collect();
    (plans, cut)
}

fn figures(apinit: u32, of: &Figures) -> pb::TurnsFigures {
    let spread = |times: &Histogram| pb::Spread {
        count: times.count(),
        median_ns: times.quantile(500).unwrap_or(0),
        p99_ns: times.quantile(990).unwrap_or(0),
    };
    pb::TurnsFigures {
        apinit,
        switches: of.switches,
        left_out: of.left_out,
        not_yet_frozen: of.not_yet_frozen,
        freeze: Some(spread(&of.freeze)),
        gap: Some(spread(&of.gap)),
        skew: Some(spread(&of.skew)),
        bringing: Some(spread(&of.bringing)),
        brought_bytes: of.brought,
    }
}

fn switch(latest: &Latest) -> pb::TurnsSwitch {
    let of = &latest.switch;
    pb::TurnsSwitch {
        apinit: latest.apinit.0,
        generation: of.generation,
        due_ns: of.due_ns,
        began_ns: of.began_ns,
        freeze_ns: of.freeze_ns,
        gap_ns: of.gap_ns,
        not_yet_frozen: of.not_yet_frozen,
        stopped: of.stopped.iter().map(|key| key.apid.0).collect(),
        started: of.started.iter().map(|key| key.apid.0).collect(),
        brought_bytes: of.brought,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::psched::serve::Duration;

    #[test]
    fn of_too_many_names_the_leaders_are_left() {
        let gangs: Vec<Apid> = (1..=PARTIES_MAX as u64 / 2).map(Apid).collect();
        let slice = || Slice { party: gangs.clone(), length: Duration::from_secs(1), floor: false };
        let slices = [slice(), slice(), slice()];
        let view = PlanView {
            generation: 7,
            members: &gangs,
            slices: &slices,
            begins_ns: 5,
            from_ns: 6,
            agreed: true,
        };
        let (plans, cut) = plans([view].into_iter());
        let told: Vec<usize> = plans[0].slices.iter().map(|slice| slice.party.len()).collect();
        assert_eq!((told, cut), (vec![gangs.len(), gangs.len(), 1], 1));
        assert!(plans[0].slices.iter().all(|slice| slice.length_ns == 1_000_000_000));
    }
}
