//! The names of an application.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// An application's number: counted up by the store, never used again.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Apid(pub u64);

impl fmt::Display for Apid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which placement of an application this is, from 1. Every report carries it; a stale one has no
/// effect.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Incarnation(pub u32);

/// An application and its incarnation, written `12.1`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Key {
    /// The application.
    pub apid: Apid,
    /// Which placement of it.
    pub incarnation: Incarnation,
}

impl Key {
    /// The name as a directory or a group bears it: `12.1`.
    pub fn parse(text: &str) -> Option<Key> {
        let (apid, incarnation) = text.split_once('.')?;
        Some(Key {
            apid: Apid(apid.parse().ok()?),
            incarnation: Incarnation(incarnation.parse().ok()?),
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.apid, self.incarnation.0)
    }
}

/// What checkpoints are sealed with ([`crate::checkpoint`]): root's daemons have it, and nobody else.
#[derive(Clone, PartialEq, Eq)]
pub struct SealKey(pub [u8; 32]);

impl fmt::Debug for SealKey {
    /// A secret is not printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(..)")
    }
}

/// The secret with which a front end proves to an apinit that psched gave it this placement.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Ticket(pub [u8; 16]);

/// A secret is not written; what is read is the ticket of nobody.
impl Serialize for Ticket {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

impl<'de> Deserialize<'de> for Ticket {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Ticket, D::Error> {
        <()>::deserialize(from).map(|()| Ticket::default())
    }
}

impl fmt::Debug for Ticket {
    /// A secret is not printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket(..)")
    }
}
