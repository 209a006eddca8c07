//! Protobuf to plain data and back.
//!
//! The pure rooms know nothing of protobuf, and what comes over a socket is only a guess at what
//! was meant: a field may be absent, a number of no kind, a list absurdly long. So each message has
//! one place where it is judged: `TryFrom<pb::X>` gives plain data in which everything that must be
//! there is there and everything is bounded, or [`Malformed`], which names the message and the
//! field. The other way, `From<X>`, never fails. Both are made of one table: see `table.rs`; what no table can say (a
//! message whose fields are not those of its type) is written by hand beside it.
//!
//! ```
//! use psched::apteam::shape::Shape;
//! use psched::rpc::{Malformed, pb};
//!
//! let shape = Shape { width: 8, depth: 1, per_node: None };
//! assert_eq!(pb::Shape::from(shape), pb::Shape { width: 8, depth: 1, per_node: 0 });
//! let nothing: Result<Shape, Malformed> = pb::Shape { width: 0, depth: 1, per_node: 0 }.try_into();
//! assert_eq!(nothing.unwrap_err().to_string(), "Shape.width: 0 is too small, at least 1 is needed");
//! ```
//!
//! Bytes that PEs write are `bytes::Bytes` on both sides and are passed on without a copy.

mod attach;
mod codec;
mod common;
mod letters;
mod migration_blocker;
mod mix;
mod node;
mod notice;
mod peers;
mod posting;
mod runs;
mod shepherd;
mod table;
#[cfg(test)]
mod tests;
mod turns;

pub use common::{placement_list, wire_places};
pub use node::wire_roll_out;
pub use runs::{end_with_runs, host_with_runs, place_runs, places_of};

use crate::variables::units::nanos;
use std::fmt::Display;
use std::time::Duration;

/// The longest text in a message, in bytes: names, paths, explanations.
pub const TEXT_MAX: usize = 64 * 1024;
/// The longest list of supplementary groups, of a node's processors, or of what one host has.
pub const LIST_MAX: usize = 65_536;
/// The longest list of nodes, or of hosts: more than any machine can have (a list of NIDs in
/// psched.yaml has a million at most), so that each placement that psched makes can be read again.
pub const NODES_MAX: usize = 1 << 20;
/// The longest list of one for each PE, of arguments or of environment variables.
pub const LONG_LIST_MAX: usize = 1 << 20;
/// The most stdin or output in one message, in bytes.
pub const DATA_MAX: usize = 2 * 1024 * 1024;
/// The largest count of processes; more than any host's pids (Linux stops at 4,194,304).
pub const COUNT_MAX: u32 = 1 << 22;

/// A message that can't be what its sender meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}.{field}: {problem}")]
pub struct Malformed {
    /// The protobuf message.
    pub message: &'static str,
    /// Its field.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl Malformed {
    /// For what only a service can judge.
    pub fn new(message: &'static str, field: &'static str, problem: impl Display) -> Malformed {
        Malformed { message, field, problem: problem.to_string() }
    }
}

impl From<Malformed> for tonic::Status {
    fn from(malformed: Malformed) -> tonic::Status {
        tonic::Status::invalid_argument(format!("a malformed request: {malformed}"))
    }
}

/// One field of one message: where the problems that are found get their address from.
#[derive(Clone, Copy)]
struct Field(&'static str, &'static str);

impl Field {
    fn wrong<T>(self, problem: impl Display) -> Result<T, Malformed> {
        Err(Malformed::new(self.0, self.1, problem))
    }

    /// A message that has to be there.
    fn need<W, T: TryFrom<W, Error = Malformed>>(self, value: Option<W>) -> Result<T, Malformed> {
        match value {
            Some(value) => T::try_from(value),
            None => self.wrong("it is missing"),
        }
    }

    /// A message that may be there.
    fn maybe<W, T: TryFrom<W, Error = Malformed>>(
        self,
        value: Option<W>,
    ) -> Result<Option<T>, Malformed> {
        value.map(T::try_from).transpose()
    }

    /// The variant of a `oneof`.
    fn variant<T>(self, value: Option<T>) -> Result<T, Malformed> {
        match value {
            Some(value) => Ok(value),
            None => self.wrong("it is empty, or of a kind that this release does not know"),
        }
    }

    fn bounded<T>(self, list: &[T], most: usize) -> Result<(), Malformed> {
        match list.len() {
            n if n > most => self.wrong(format_args!("{n} entries, more than {most}")),
            _ => Ok(()),
        }
    }

    /// A list of messages.
    fn list<W, T: TryFrom<W, Error = Malformed>>(
        self,
        list: Vec<W>,
        most: usize,
    ) -> Result<Vec<T>, Malformed> {
        self.bounded(&list, most)?;
        list.into_iter().map(T::try_from).collect()
    }

    fn text(self, text: String) -> Result<String, Malformed> {
        match text.len() {
            n if n > TEXT_MAX => self.wrong(format_args!("{n} bytes, more than {TEXT_MAX}")),
            _ => Ok(text),
        }
    }

    fn between<T: PartialOrd + Display>(self, n: T, least: T, most: T) -> Result<T, Malformed> {
        if n < least {
            return self.wrong(format_args!("{n} is too small, at least {least} is needed"));
        }
        if n > most {
            return self.wrong(format_args!("{n} is too large, at most {most} is allowed"));
        }
        Ok(n)
    }
}

/// A length of time in whole milliseconds.
fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A number that is "not given" when it is 0.
fn given(n: u64) -> Option<u64> {
    Some(n).filter(|n| *n != 0)
}

/// Every element converted.
fn all<T, W: From<T>>(list: Vec<T>) -> Vec<W> {
    list.into_iter().map(W::from).collect()
}
