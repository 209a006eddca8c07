//! Which thread reads and writes a connection: the loop's, or the one for users. And how many
//! requests it takes there.
//!
//! # Problem
//! Users may open as many connections as they are allowed, and ask and read on all of them: the
//! loop must not be held up by that, so a thread of its own accepts and serves them. But each
//! message between two threads wakes one of them: an application has a dozen, most of them with its
//! apinits, and took 4 % longer to launch.
//!
//! # Approach
//! The loop's own thread serves connections of psched's own user: those of apinits, and of
//! administrators as root. Users' connections can't hold them up there. The other thread accepts all
//! connections and serves those of users. Either serves both services, Psched and Nodes: what a caller may
//! do follows from the service and its uid, never from the thread.
//!
//! An answer that its caller does not read takes memory, as far as HTTP/2 lets there be requests on
//! the connection. A user may have many connections, or many requests on one, and not both: his
//! first connections, with [`REQUESTS_MAX`] requests in all, take as many each as `streams_max`
//! allows, and the others few ([`FEW`]). An aprun has two or three.

use crate::rpc::listen::{Incoming, PeerStream};
use std::io;
use std::pin::Pin;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};

/// Connections of a kind that are not served yet; one more is served with those of users. (The
/// thread that accepts them takes no more than half as many before another task of it runs.)
const WAITING_MAX: usize = 256;

/// Requests on all of those connections of a user that take many.
const REQUESTS_MAX: u32 = 16_384;
/// Requests on each of his other connections.
pub(super) const FEW: u32 = 8;

/// Connections of one kind.
pub(super) type Connections = Pin<Box<dyn Stream<Item = io::Result<PeerStream>> + Send>>;

/// The accepted connections, by what serves them.
pub(super) struct Split {
    /// Connections of users, for the thread that accepts them.
    pub users: Connections,
    /// Further connections of users with many, for the same thread: each takes [`FEW`] requests.
    pub few: Connections,
    /// Connections of psched's own user, which belong to the runtime that takes them.
    pub own: Connections,
}

/// Splits connections, of which each may take so many requests.
pub(super) fn split(connections: Incoming, streams_max: u32) -> Split {
    let own_uid = rustix::process::geteuid().as_raw();
    let many = (REQUESTS_MAX / streams_max.max(1)) as usize;
    let (to_own, own) = mpsc::channel::<PeerStream>(WAITING_MAX);
    let (to_few, few) = mpsc::channel::<PeerStream>(WAITING_MAX);
    let users = connections.filter_map(move |connection| {
        let one = match connection {
            Ok(one) if one.peer().turned.is_none() => one,
            other => return Some(other),
        };
        let uid = one.peer().uid;
        let to = match uid == own_uid {
            true => &to_own,
            false if uid != 0 && one.number() > many => &to_few,
            false => return Some(Ok(one)),
        };
        to.try_send(one).err().map(|full| Ok(full.into_inner()))
    });
    // An Err: it was closed meanwhile.
    let own = ReceiverStream::new(own).filter_map(|one| one.settled().ok().map(Ok));
    let few = ReceiverStream::new(few).map(Ok);
    Split { users: Box::pin(users), few: Box::pin(few), own: Box::pin(own) }
}
