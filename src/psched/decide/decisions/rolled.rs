//! How far the memory of a gang is that was to go out.

use crate::machine::Nid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How far the memory of one is that was to go out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Rolled {
    /// Its nodes have been told; those that have answered, by their lowest NID, with the bytes in swap.
    Out(BTreeMap<Nid, u64>),
    /// It runs again, or is about to: what of it is in swap comes in.
    In,
    /// It did not go, and why.
    Stays(String),
}
