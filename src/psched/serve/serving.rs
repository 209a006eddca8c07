//! Which thread reads and writes a connection: the loop's, or the one for users.
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

use crate::rpc::listen::{Incoming, PeerStream};
use std::io;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};

/// Connections that the loop's thread has not taken yet; one more is served with the users'.
const WAITING_MAX: usize = 256;

/// The connections of users, for the thread that accepts them; and those of psched's own user,
/// which settle in the runtime in which they are taken.
pub(super) fn split(
    connections: Incoming,
) -> (impl Stream<Item = io::Result<PeerStream>>, impl Stream<Item = io::Result<PeerStream>>) {
    let own_uid = rustix::process::geteuid().as_raw();
    let (to_own, own) = mpsc::channel::<PeerStream>(WAITING_MAX);
    let others = connections.filter_map(move |connection| match connection {
        Ok(one) if one.peer().uid == own_uid && one.peer().turned.is_none() => {
            to_own.try_send(one).err().map(|full| Ok(full.into_inner()))
        }
        other => Some(other),
    });
    // An Err: it was closed meanwhile.
    let own = ReceiverStream::new(own).filter_map(|one| one.settled().ok().map(Ok));
    (others, own)
}
