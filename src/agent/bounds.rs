//! Front ends that are one too many, and what they are told.

use super::fronts::{Attached, Purpose};
use super::{Agent, Conn};
use crate::apteam::bounds::reserved;
use crate::variables::raise;

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
    pub(super) fn too_many_wait(&self, conn: Conn) -> Option<String> {
        let own = self.attached.get(&conn).filter(|a| !a.trusted)?;
        let waits =
            |a: &&Attached| a.uid == own.uid && matches!(a.purpose, Purpose::Waiting { .. });
        let most = self.bounds().launches_user;
        (self.attached.values().filter(waits).count() as u64 >= most).then(|| {
            let cure = raise("launches_user_max", most);
            format!(
                "as many launches of yours wait on this host for psched's word of their placement \
                 as one user's may: try again, or {cure}"
            )
        })
    }
}
