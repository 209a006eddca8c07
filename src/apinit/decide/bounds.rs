//! Front ends that are one too many, and what they are told.

use super::Agent;
use super::events::Conn;
use super::streams::{FrontEnd, HeadStream, Stream};
use crate::apteam::bounds::reserved;
use crate::apteam::launch::Launch;
use crate::variables::raise;
use crate::variables::units::format_size;

/// Of all streams, one host may have one in so many without a ticket.
const SHARE_OF_HOST: u64 = 8;

/// A head's host, in words.
fn host_text(host: &str) -> String {
    match host {
        "" => "apinits of this host".into(),
        host => format!("the host {host}"),
    }
}

impl Agent {
    /// Why it has no room for one more front end of this user. A connection may bring many streams, so that the bounds
    /// of connections are those of streams too.
    pub(super) fn too_many_fronts(&self, uid: u32) -> Option<String> {
        if self.is_own(uid) {
            return self.too_many_streams(0);
        }
        let bounds = self.bounds();
        let own = self.fronts.values().filter(|front| front.uid == uid).count() as u64;
        if own >= bounds.connections_user {
            let cure = raise("connections_user_max", bounds.connections_user);
            return Some(format!(
                "you have the maximum number of open launches of one user on this host: end \
                 some of your apruns, or {cure}"
            ));
        }
        self.too_many_streams(reserved(bounds.connections))
    }

    /// Why it has no room for one more head of this host. Streams that have shown no ticket are bounded by host: a host
    /// that opens streams and says nothing keeps no other host out.
    pub(super) fn too_many_heads(&self, host: &str) -> Option<String> {
        let early = self.heads_of(host).filter(|head| head.opening.is_early()).count() as u64;
        let connections = self.bounds().connections;
        let most = (connections / SHARE_OF_HOST).max(1);
        if early >= most {
            let cure = raise("connections_max", connections);
            return Some(format!(
                "{} {} the maximum number of streams ({most}) that wait here for a launch or its \
                 placement: try again later, or {cure}",
                host_text(host),
                if host.is_empty() { "have" } else { "has" }
            ));
        }
        self.too_many_streams(0)
    }

    fn heads_of(&self, host: &str) -> impl Iterator<Item = &HeadStream> {
        self.heads.values().filter(move |head| head.host == host)
    }

    /// Why no stream more can be taken, if so many are kept for others.
    fn too_many_streams(&self, kept: u64) -> Option<String> {
        let all = (self.fronts.len() + self.heads.len()) as u64;
        let most = self.bounds().connections;
        (all >= most.saturating_sub(kept)).then(|| {
            let cure = raise("connections_max", most);
            format!("this host has the maximum number of open launches: try again later, or {cure}")
        })
    }

    /// Why the launch of this stream can't wait for its placement too.
    pub(super) fn too_many_wait(&self, stream: Stream, launch: &Launch) -> Option<NoRoom> {
        match stream {
            Stream::Front(conn) => self.front_cannot_wait(conn, launch),
            Stream::Head(conn) => self.head_cannot_wait(conn, launch).map(NoRoom::OfAll),
        }
    }

    /// Launches of heads have as much memory as those of front ends: of one host, as much as those of one user. The
    /// head tries again.
    fn head_cannot_wait(&self, conn: Conn, launch: &Launch) -> Option<String> {
        let host = &self.heads.get(&conn)?.host;
        let bytes = launch.footprint();
        let wait = |heads: &mut dyn Iterator<Item = &HeadStream>| {
            let waiting = heads.filter_map(|head| head.opening.waiting_bytes());
            waiting.fold(bytes, u64::saturating_add)
        };
        let bounds = self.bounds();
        let most = bounds.launch_bytes_user;
        if wait(&mut self.heads_of(host)) > most {
            let cure = raise("launch_memory_user_max", format_size(most));
            return Some(format!(
                "the launches of {} that wait here for their placement from psched use the \
                 maximum memory of one host: try again later, or {cure}",
                host_text(host)
            ));
        }
        let most = bounds.launch_bytes;
        (wait(&mut self.heads.values()) > most).then(|| {
            let cure = raise("launch_memory_max", format_size(most));
            format!(
                "the launches of other hosts that wait here for their placement from psched use \
                 the maximum memory: try again later, or {cure}"
            )
        })
    }

    fn front_cannot_wait(&self, conn: Conn, launch: &Launch) -> Option<NoRoom> {
        let uid = self.fronts.get(&conn).map(|front| front.uid).filter(|uid| !self.is_own(*uid))?;
        let waiting = || {
            let bounded = self.fronts.values().filter(|front| !self.is_own(front.uid));
            bounded.filter_map(|front| Some((front, front.opening.waiting_bytes()?)))
        };
        let of_user = || waiting().filter(|(front, _)| front.uid == uid);
        let bounds = self.bounds();
        if of_user().count() as u64 >= bounds.launches_user {
            let cure = raise("launches_user_max", bounds.launches_user);
            return Some(NoRoom::OfUser(format!(
                "you have the maximum number of launches that wait on this host for their \
                 placement from psched: try again, or {cure}"
            )));
        }
        let bytes = launch.footprint();
        let sum = |bytes: u64, (_, more): (&FrontEnd, u64)| bytes.saturating_add(more);
        let most = bounds.launch_bytes_user;
        if of_user().fold(bytes, sum) > most {
            let cure = raise("launch_memory_user_max", format_size(most));
            return Some(NoRoom::OfUser(format!(
                "your launches that wait on this host for their placement from psched use the \
                 maximum memory of one user: try again, give shorter arguments, or {cure}"
            )));
        }
        let most = bounds.launch_bytes;
        (waiting().fold(bytes, sum) > most).then(|| {
            let cure = raise("launch_memory_max", format_size(most));
            NoRoom::OfAll(format!(
                "the launches that wait on this host for their placement from psched use the \
                 maximum memory: try again later, or {cure}"
            ))
        })
    }

    /// Bytes of memory of the launches that wait for their placements.
    pub fn waiting_bytes(&self) -> u64 {
        let fronts = self.fronts.values().filter_map(|front| front.opening.waiting_bytes());
        let heads = self.heads.values().filter_map(|head| head.opening.waiting_bytes());
        fronts.chain(heads).fold(0, u64::saturating_add)
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
