//! A process that does not die.

use crate::machine::Nid;

/// A process that does not die.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Which.
    pub pid: i32,
    /// Where.
    pub nid: Nid,
    /// The same and more, in words.
    pub text: String,
}
