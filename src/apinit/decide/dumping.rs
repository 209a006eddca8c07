//! A checkpoint that is being made.

use std::time::Duration;

/// How long one that is to end stands and waits for its checkpoint to get its name.
pub const NAME_WAIT: Duration = Duration::from_secs(60);

/// The same where others of its parts may have far more memory to write, or its files have to go to another host.
pub const PARTS_WAIT: Duration = Duration::from_secs(2 * 3600);

/// What whoever has asked for a checkpoint says once it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpWord {
    /// All parts are dumped: it goes on, unless it is to end.
    AllImaged,
    /// The checkpoint has its name.
    Named,
    /// He is gone.
    Gone,
}

/// A checkpoint that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dumping {
    /// Of the question.
    pub number: u64,
    /// Who asked.
    pub(super) uid: u32,
    /// It is ended once that has its name.
    pub(super) end: bool,
    /// Whoever asked is on another host.
    pub(super) afar: bool,
    /// It stands when its images are made, until it is said what becomes of it.
    pub(super) holds: bool,
    /// Its images are made: it waits for that until then.
    pub(super) until_ns: Option<u64>,
}

impl Dumping {
    /// Its images are to be its end.
    pub fn ends(&self) -> bool {
        self.end
    }

    /// It is dumped, and it is waited what becomes of it.
    #[cfg(test)]
    pub fn holds(&self) -> bool {
        self.until_ns.is_some()
    }
}
