//! What a psched.yaml says.

use crate::machine::Machine;
use crate::variables::Variables;
use std::fmt;
use std::net::SocketAddr;

/// Nodes of a machine.
pub const NODES_MAX: usize = 1_000_000;

/// Processors of a node.
pub const PROCESSORS_MAX: u32 = 4_096;

/// What psched.yaml says.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Config {
    /// The nodes.
    pub machine: Machine,
    /// What was set, the rest at its default.
    pub variables: Variables,
    /// Who may act on everybody's applications, beside root and the instance's owner.
    pub administrators: Vec<Administrator>,
    /// Path of psched's unix socket.
    pub listen: Option<String>,
    /// Folder of the store.
    pub state: Option<String>,
    /// Where psched takes connections of other hosts; none: it takes none.
    pub network: Option<SocketAddr>,
    /// Folder of the certificates of its host.
    pub certificates: Option<String>,
}

/// An administrator, as the file names him. Whether there is such a user is not asked here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Administrator {
    /// By user id.
    Uid(u32),
    /// By name.
    Name(String),
}

impl fmt::Display for Administrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Administrator::Uid(uid) => uid.fmt(f),
            Administrator::Name(name) => name.fmt(f),
        }
    }
}
