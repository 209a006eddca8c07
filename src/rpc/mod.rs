//! Generated protobuf, conversions, connecting on a host and between hosts, and who is calling.

pub mod arrivals;
pub mod bodies;
pub mod caller;
pub mod connect;
pub mod convert;
pub mod kept;
pub mod listen;
pub mod node_list;
pub mod partial_messages;
pub mod pieces;
#[cfg(test)]
pub(crate) mod raw_requests;
pub mod relayed;
pub mod request_turns;
pub mod rounds;
pub mod tls;

pub use convert::Malformed;

/// The largest request of a user's to psched, in bytes. A posting has no arguments and no environment, which go
/// to the node: a few texts of [`convert::TEXT_MAX`] at most, or the manifest of a checkpoint, which has the
/// environment and a line for each of its files.
pub const REQUEST_MAX: usize = 4 * 1024 * 1024;

/// Code generated from `proto/`, which documents it.
pub mod pb {
    #![allow(missing_docs, clippy::all, clippy::pedantic)]
    tonic::include_proto!("psched.v1");
}
