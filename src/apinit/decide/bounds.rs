//! Front ends that are one too many, and what they are told.

use super::fronts::Attached;
use super::{Agent, Conn};
use crate::apteam::bounds::reserved;
use crate::apteam::launch::Launch;
use crate::variables::raise;
use crate::variables::units::format_size;

impl Agent {
    /// Why it has no room for one more. A connection may bring many streams, so that the bounds of
    /// connections are those of streams too.
    pub(super) fn too_many_streams(&self, new: &Attached) -> Option<String> {
        let (bounds, all) = (self.bounds(), self.attached.len() as u64);
        let own = self.attached.values().filter(|a| a.uid == new.uid).count() as u64;
        let kept = if new.trusted { 0 } else { reserved(bounds.connections) };
        if !new.trusted && own >= bounds.connections_user {
            let cure = raise("connections_user_max", bounds.connections_user);
            return Some(format!(
                "you have as many launches open on this host as one user may have: end some of \
                 your aprun, or {cure}"
            ));
        }
        (all >= bounds.connections.saturating_sub(kept)).then(|| {
            let cure = raise("connections_max", bounds.connections);
            format!("as many launches are open on this host as may be: try again later, or {cure}")
        })
    }

    /// Why the launch of this stream can't wait for its placement too. Those of a head are as many as
    /// the placements that it has: psched has bounded them.
    pub(super) fn too_many_wait(&self, conn: Conn, launch: &Launch) -> Option<NoRoom> {
        let own = self.attached.get(&conn).filter(|a| !a.trusted)?;
        let waiting = || self.attached.values().filter_map(|a| Some((a, a.waiting_bytes()?)));
        let of_user = || waiting().filter(|(a, _)| a.uid == own.uid && !a.trusted);
        let bounds = self.bounds();
        if of_user().count() as u64 >= bounds.launches_user {
            let cure = raise("launches_user_max", bounds.launches_user);
            return Some(NoRoom::OfUser(format!(
                "as many launches of yours wait on this host for psched's word of their placement \
                 as one user's may: try again, or {cure}"
            )));
        }
        let bytes = launch.footprint();
        let sum = |bytes: u64, (_, more): (&Attached, u64)| bytes.saturating_add(more);
        let most = bounds.launch_bytes_user;
        if of_user().fold(bytes, sum) > most {
            let cure = raise("launch_memory_user_max", format_size(most));
            return Some(NoRoom::OfUser(format!(
                "your launches that wait on this host for psched's word of their placement have as \
                 much memory as one user's may have: try again, give shorter arguments, or {cure}"
            )));
        }
        let most = bounds.launch_bytes;
        let of_users = waiting().filter(|(a, _)| !a.trusted);
        (of_users.fold(bytes, sum) > most).then(|| {
            let cure = raise("launch_memory_max", format_size(most));
            NoRoom::OfAll(format!(
                "the launches that wait on this host for psched's word of their placement have as \
                 much memory as they may have: try again later, or {cure}"
            ))
        })
    }

    /// Bytes of memory of the launches that wait for their placements.
    pub fn waiting_bytes(&self) -> u64 {
        self.attached.values().filter_map(Attached::waiting_bytes).fold(0, u64::saturating_add)
    }
}

/// Why a launch can't wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// Its own user's wait: nobody else is the reason.
    OfUser(String),
    /// It may have room soon.
    OfAll(String),
}
