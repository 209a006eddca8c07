//! An apteam as the bytes that the store keeps.
//!
//! Its times are those of the wall clock, but for two, which are on the monotonic clock: when a
//! ticket lapses, and when the first thing went wrong. That clock begins anew with each boot of
//! psched's host. So the boot is kept with them. For any other boot the ticket's time is kept by
//! the wall clock too, and what has gone wrong has done so before all that this boot can hear of.
//!
//! Whatever psched takes in can be read again: what a message may have at most, a record may have
//! too, and texts that psched itself makes longer are cut.

use crate::apteam::ending::{Cause, Decisive, HostEnd};
use crate::apteam::record::{Apteam, FailedLaunch, FrontProcess, Moves, Retries, State};
use crate::apteam::{Incarnation, Key, Ticket};
use crate::config;
use crate::os::host;
use crate::rpc::convert::{
    LIST_MAX, NODES_MAX, end_with_runs, host_with_runs, place_runs, places_of,
};
use crate::rpc::{Malformed, pb};
use prost::Message;
use std::sync::OnceLock;

// Each node that psched.yaml can describe has room in a record, and so have its processors.
const _: () = assert!(config::NODES_MAX <= NODES_MAX);
const _: () = assert!(config::PROCESSORS_MAX as usize <= LIST_MAX);

/// The clocks by which a ticket's time is kept.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// The boot of psched's host.
    pub boot_id: String,
    /// Since that boot.
    pub mono_ns: u64,
    /// Since the epoch.
    pub wall_ns: u64,
}

impl Clocks {
    /// As they are now.
    pub fn now() -> Clocks {
        static BOOT_ID: OnceLock<String> = OnceLock::new();
        let boot_id = BOOT_ID.get_or_init(host::boot_id).clone();
        Clocks { boot_id, mono_ns: host::monotonic_ns(), wall_ns: host::wall_ns() }
    }
}

/// The record as bytes.
pub fn encode(team: &Apteam) -> Vec<u8> {
    encode_at(team, &Clocks::now())
}

/// The same by these clocks.
pub fn encode_at(team: &Apteam, clocks: &Clocks) -> Vec<u8> {
    let left_ns = team.ticket_until_ns.saturating_sub(clocks.mono_ns);
    let record = pb::ApteamRecord {
        key: Some(team.key().into()),
        state: team.state.name().into(),
        posting: Some(team.posting.clone().into()),
        owner: Some(team.owner.clone().into()),
        front_pid: team.front.as_ref().map_or(0, |f| f.pid),
        front_started: team.front.as_ref().map_or(0, |f| f.started),
        front_host: team.front.as_ref().map(|f| f.host.to_string()).unwrap_or_default(),
        front_gone: team.front_gone,
        places: Vec::new(),
        place_runs: place_runs(&team.places),
        hosts: team.hosts.iter().map(host_with_runs).collect(),
        ticket: team.ticket.0.to_vec().into(),
        ticket_until_ns: team.ticket_until_ns,
        boot_id: clocks.boot_id.clone(),
        ticket_lapses_at_ns: clocks.wall_ns.saturating_add(left_ns),
        ticket_left_ns: left_ns,
        posted_at_ns: team.posted_at_ns,
        running_at_ns: team.running_at_ns,
        ended_at_ns: team.ended_at_ns,
        end: team.end.as_ref().map(end_with_runs),
        doomed: team.doomed.clone().map(Into::into),
        signals: team.signals.iter().copied().map(Into::into).collect(),
        last_signal: team.last_signal,
        held: team.held.clone().map(Into::into),
        stopped: team.stopped.clone().map(Into::into),
        shares: team.shares,
        domain: team.domain.to_string(),
        moves_told: team.moves.told,
        moves_to: Vec::new(),
        moves_to_runs: team.moves.to.as_ref().map(place_runs).unwrap_or_default(),
        restart: team.restart.clone().map(Into::into),
        retries: team.retries.count,
        failed_incarnation: team.retries.last.as_ref().map_or(0, |last| last.incarnation.0),
        failed_cause: team.retries.last.as_ref().map(|last| last.cause.clone().into()),
        may_have_run: team.retries.may_have_run,
    };
    record.encode_to_vec()
}

/// Why bytes are not a record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not protobuf.
    #[error("a record can't be read: {0}")]
    Protobuf(#[from] prost::DecodeError),
    /// Not an application.
    #[error("a record is malformed: {0}")]
    Malformed(#[from] Malformed),
    /// A state that this release does not know.
    #[error("a record has the unknown state \"{0}\"")]
    State(String),
    /// Something is not there.
    #[error("a record lacks its {0}")]
    Missing(&'static str),
}

/// The record of these bytes.
///
/// # Errors
/// What is wrong with them.
pub fn decode(bytes: &[u8]) -> Result<Apteam, RecordError> {
    decode_at(bytes, &Clocks::now())
}

/// When a ticket lapses, on this boot's monotonic clock. (A wall clock that was set back gives it
/// no more time than it had.)
fn ticket_until(record: &pb::ApteamRecord, clocks: &Clocks) -> u64 {
    if is_of_boot(record, clocks) {
        return record.ticket_until_ns;
    }
    let left = record.ticket_lapses_at_ns.saturating_sub(clocks.wall_ns);
    clocks.mono_ns.saturating_add(left.min(record.ticket_left_ns))
}

/// Whether its monotonic times are those of this boot. (A release that did not tell is believed.)
fn is_of_boot(record: &pb::ApteamRecord, clocks: &Clocks) -> bool {
    record.boot_id.is_empty() || record.boot_id == clocks.boot_id
}

/// The same by these clocks.
///
/// # Errors
/// What is wrong with them.
pub fn decode_at(bytes: &[u8], clocks: &Clocks) -> Result<Apteam, RecordError> {
    let record = pb::ApteamRecord::decode(bytes)?;
    let key = Key::try_from(record.key.ok_or(RecordError::Missing("key"))?)?;
    let ticket: [u8; 16] =
        record.ticket.as_ref().try_into().map_err(|_| RecordError::Missing("ticket"))?;
    let ticket_until_ns = ticket_until(&record, clocks);
    let of_boot = is_of_boot(&record, clocks);
    let on_this_boot = |decisive: &mut Decisive| {
        if !of_boot {
            decisive.at_ns = 0;
        }
    };
    let mut end: Option<HostEnd> = record.end.map(TryInto::try_into).transpose()?;
    end.iter_mut().filter_map(|end| end.first.as_mut()).for_each(on_this_boot);
    let mut doomed: Option<Decisive> = record.doomed.map(TryInto::try_into).transpose()?;
    doomed.iter_mut().for_each(on_this_boot);
    let front = (record.front_pid > 0).then(|| FrontProcess {
        pid: record.front_pid,
        started: record.front_started,
        host: record.front_host.into(),
    });
    let failed: Option<Cause> = record.failed_cause.map(TryInto::try_into).transpose()?;
    let incarnation = Incarnation(record.failed_incarnation);
    Ok(Apteam {
        apid: key.apid,
        incarnation: key.incarnation,
        state: State::parse(&record.state).ok_or(RecordError::State(record.state))?,
        posting: record.posting.ok_or(RecordError::Missing("posting"))?.try_into()?,
        owner: record.owner.ok_or(RecordError::Missing("owner"))?.try_into()?,
        front,
        front_gone: record.front_gone,
        places: places_of(record.places, record.place_runs)?,
        hosts: record.hosts.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
        ticket: Ticket(ticket),
        ticket_until_ns,
        posted_at_ns: record.posted_at_ns,
        running_at_ns: record.running_at_ns,
        ended_at_ns: record.ended_at_ns,
        end,
        doomed,
        signals: record.signals.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
        last_signal: record.last_signal,
        held: record.held.map(TryInto::try_into).transpose()?,
        stopped: record.stopped.map(TryInto::try_into).transpose()?,
        shares: record.shares,
        domain: record.domain.into(),
        moves: Moves {
            told: record.moves_told,
            to: match record.moves_to.is_empty() && record.moves_to_runs.is_empty() {
                true => None,
                false => Some(places_of(record.moves_to, record.moves_to_runs)?),
            },
        },
        restart: record.restart.map(TryInto::try_into).transpose()?,
        retries: Retries {
            count: record.retries,
            last: failed.map(|cause| FailedLaunch { incarnation, cause }),
            may_have_run: record.may_have_run,
        },
    })
}
