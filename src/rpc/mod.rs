//! Generated protobuf, conversions, connecting, and who is calling.

pub mod connect;
pub mod convert;
pub mod listen;

pub use convert::Malformed;

/// Code generated from `proto/`, which documents it.
pub mod pb {
    #![allow(missing_docs, clippy::all, clippy::pedantic)]
    tonic::include_proto!("psched.v1");
}
