//! Rows for apstat, made of the scheduler's state.

use crate::apteam::ending::HostEnd;
use crate::apteam::oversubscribe::Oversubscribe;
use crate::apteam::record::{Apteam, State};
use crate::machine::{Flavors, Nid};
use crate::psched::decide::{NodeView, Scheduler, When};
use crate::psched::reason::Reason;
use crate::psched::serve::clock::now;
use crate::psched::serve::private::Viewer;
use crate::rpc::convert::{place_runs, wire_places};
use crate::rpc::pb;
use crate::variables::units::nanos;

/// An application that has not ended, at this time of psched's monotonic clock, for this reader; `alone`: he
/// has asked for it alone, and is told all of why it waits.
pub fn application(
    scheduler: &Scheduler,
    team: &Apteam,
    now_ns: u64,
    viewer: &Viewer,
    alone: bool,
) -> pb::ApplicationRow {
    let stuck = !scheduler.stuck_of(team.apid).is_empty();
    let unreachable = scheduler.away_of(team);
    let waiting =
        stuck || team.held.is_some() || matches!(team.state, State::Posted | State::Lapsed);
    let told = waiting
        || team.stopped.is_some()
        || scheduler.in_swap(team.apid).is_some()
        || !unreachable.is_empty();
    let why = if told { scheduler.why_and_when(team.apid) } else { None };
    let words = |why: &Reason| if alone { viewer.explanation(why) } else { viewer.listed(why) };
    let (why, when) = why.map(|(why, when)| (words(&why).into(), when_row(when))).unzip();
    let waits = matches!(team.state, State::Posted | State::Lapsed);
    let turn = super::runs_now::turn(scheduler, team.apid, now_ns);
    let memory = scheduler.memory(team.apid).map(|(_, bytes)| bytes).fold(0, u64::saturating_add);
    let when = when.filter(|_| waits);
    let domain = if scheduler.has_domains() { team.domain.to_string() } else { String::new() };
    let stays = scheduler.why_it_stays(team).map(|why| why.to_string()).unwrap_or_default();
    let kill_in_ns = scheduler.kill_in(team, now_ns).map(nanos);
    let row = pb::ApplicationRow {
        kill_in_ns,
        waiting: why,
        when,
        turn,
        memory,
        domain,
        stays,
        unreachable: ranges(&unreachable),
        ..row(team)
    };
    viewer.application(team, row)
}

/// Nodes as ranges of their numbers.
fn ranges(nids: &[Nid]) -> Vec<pb::NidRange> {
    let mut ranges: Vec<pb::NidRange> = Vec::new();
    for Nid(nid) in nids.iter().copied() {
        match ranges.last_mut().filter(|range| range.last.checked_add(1) == Some(nid)) {
            Some(range) => range.last = nid,
            None => ranges.push(pb::NidRange { first: nid, last: nid }),
        }
    }
    ranges
}

fn when_row(when: When) -> pb::When {
    use pb::when::Kind;
    let (kind, kept_at_ns) = match when {
        When::Unknown => (Kind::Unknown, 0),
        When::Kept => (Kind::Kept, 0),
        When::KeptAt(at_ns) => (Kind::KeptAt, at_ns),
        When::Held => (Kind::Held, 0),
    };
    pb::When { kind: kind.into(), kept_at_ns }
}

/// One that has.
pub fn ended_application(team: &Apteam) -> pb::ApplicationRow {
    let run_ns = ran_ns(team);
    let end = team.end.clone().unwrap_or_default();
    let cause = end.first.as_ref().map(|first| &first.cause);
    pb::ApplicationRow {
        run_ns,
        decisive_by_name: super::names::names().known_name_in(cause),
        status: u32::from(end.status()),
        usage: Some(end.usage.into()),
        decisive: end.first.map(Into::into),
        ..row(team)
    }
}

/// How long one that has ended ran, without the time in which it was frozen, and without that before a
/// checkpoint from which it was restored: that was another's.
pub fn ran_ns(team: &Apteam) -> u64 {
    let run = |end: &HostEnd| nanos(end.run.saturating_sub(team.run_before()));
    match team.end.as_ref().map_or(0, run) {
        // Nobody could say: it was lost with its nodes, say.
        0 if team.running_at_ns > 0 => team.ended_at_ns.saturating_sub(team.running_at_ns),
        ran_ns => ran_ns,
    }
}

fn row(team: &Apteam) -> pb::ApplicationRow {
    let millis = |t: Option<std::time::Duration>| {
        t.map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX))
    };
    pb::ApplicationRow {
        key: Some(team.key().into()),
        owner: Some(team.owner.clone().into()),
        shape: Some(team.posting.shape.into()),
        memory_per_pe: team.posting.memory_per_pe.unwrap_or(0),
        command: team.posting.command.clone(),
        state: team.state.name().into(),
        places: wire_places(&team.places),
        posted_at_ns: team.posted_at_ns,
        launched_at_ns: team.running_at_ns,
        ended_at_ns: team.ended_at_ns,
        time_limit_ms: millis(team.posting.time_limit),
        held: team.held.clone().map(Into::into),
        stopped: team.stopped.clone().map(Into::into),
        account: team.posting.account.as_ref().map_or_else(String::new, |a| a.as_str().to_owned()),
        flexible: team.posting.flexible,
        saving: team.posting.saving.as_ref().map_or_else(String::new, |saving| saving.to_string()),
        front_host: team.front.as_ref().map_or_else(String::new, |f| f.host_name().to_owned()),
        restarted_from: team.restart.as_ref().map(|restart| restart.from.into()),
        shared_processors: match team.posting.oversubscribe {
            Oversubscribe::Shares(sharing) => sharing.processors,
            Oversubscribe::No | Oversubscribe::Allowed => 0,
        },
        ..pb::ApplicationRow::default()
    }
}

/// A time in nanoseconds since the epoch, in local time.
pub(super) fn local_time(wall_ns: u64) -> String {
    let at = jiff::Timestamp::from_nanosecond(i128::from(wall_ns)).unwrap_or_default();
    at.to_zoned(jiff::tz::TimeZone::system()).strftime("%F %T").to_string()
}

/// A node, for this reader.
pub fn node(scheduler: &Scheduler, view: NodeView<'_>, viewer: &Viewer) -> pb::NodeRow {
    let sees = |uid| viewer.sees(uid);
    let why = view.why.words(&sees);
    let mut notes: Vec<String> = view.notes.iter().map(|note| note.words(&sees)).collect();
    let mut notes_at_ns: Vec<u64> =
        view.notes.iter().map(|note| note.at_ns().unwrap_or(0)).collect();
    if view.state == "suspect" {
        let now = now();
        let wall_ns = |at_ns| now.wall_ns.saturating_sub(now.mono_ns.saturating_sub(at_ns));
        let since = view.silent_since_ns.map(wall_ns);
        notes_at_ns.push(since.unwrap_or(0));
        let since = since.map(|at_ns| format!(", since {}", local_time(at_ns)));
        notes.push(format!("suspect: {why}{}", since.unwrap_or_default()));
    }
    let real = scheduler.cpus_of(view.node.nid);
    let first = scheduler.first_processor(view.node.nid);
    let spec = crate::apteam::protocol::node::NodeSpec {
        nid: view.node.nid,
        processors: view.node.processors,
        cpus: view.node.cpus.clone(),
        first_processor: first,
        memory: view.node.memory,
    };
    let (clock_ahead_ns, clock_error_ns) = view.clock.at(now().mono_ns);
    let machine = scheduler.machine();
    let region = machine.region_of(view.node).index().and_then(|at| machine.regions.get(at));
    pb::NodeRow {
        nid: view.node.nid.0,
        host: view.host,
        state: view.state.into(),
        flavors: names(view.node.flavors),
        region: region.map_or_else(String::new, |region| region.name.clone()),
        domain: region
            .filter(|_| scheduler.has_domains())
            .map_or_else(String::new, |region| region.domain.clone()),
        configured_flavors: names(view.configured_flavors),
        flavors_by: view.flavor_order.map(|order| order.by.clone().into()),
        processors: view.node.processors,
        used: view.used,
        memory: view.memory,
        apids: view
            .apids
            .iter()
            .map(|apid| apid.0)
            .filter(|apid| viewer.sees_apid(scheduler, *apid))
            .collect(),
        pes: view.pes,
        notes,
        notes_at_ns,
        limits: view.limits,
        back_ends: view.back_ends,
        roll_out: view.roll_out,
        clock_error_ns,
        clock_ahead_ns,
        stops: view.apinit.map_or("", |(stops, _)| super::runs_now::stops(stops)).into(),
        apinit: view.apinit.map_or(0, |(_, lowest)| lowest.0),
        arch: view.arch,
        why,
        room: view.room,
        residents: view.residents,
        seen: view.seen,
        retired: view.retired,
        cpus: (0..view.node.processors).filter_map(|p| spec.cpu(p, real)).collect(),
    }
}

fn names(flavors: Flavors) -> Vec<String> {
    flavors.iter().map(|flavor| flavor.name().to_owned()).collect()
}

/// Up to so many places go to a front end as they are: one of a release before, which waits for its placement
/// while psched is replaced, knows no runs.
const PLACES_SHORT: usize = 256;

/// A placement, for its front end.
pub fn placement(team: &Apteam) -> pb::Placement {
    let left = team.ticket_until_ns.saturating_sub(crate::os::host::monotonic_ns());
    let (places, place_runs) = match team.places.0.len() <= PLACES_SHORT {
        true => (wire_places(&team.places), Vec::new()),
        false => (Vec::new(), place_runs(&team.places)),
    };
    pb::Placement {
        key: Some(team.key().into()),
        places,
        place_runs,
        hosts: team.hosts.iter().cloned().map(Into::into).collect(),
        ticket: team.ticket.0.to_vec().into(),
        ticket_left_ms: left / 1_000_000,
        front_host: String::new(),
    }
}
