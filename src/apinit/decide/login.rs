//! Front ends of this host that a psched on another host waits for.
//!
//! psched names processes on its connection. Each is opened, so that its end is seen; one that has
//! ended already is told at once. One that can't be opened now counts as alive and is tried again.

use std::collections::{BTreeMap, BTreeSet};

/// Processes that are watched at once, and those that can't be opened and are tried again.
pub const WATCHED_MAX: usize = 65_536;
const UNSURE_MAX: usize = 65_536;

/// A process by its pid and start time.
pub type ProcessId = (i32, u64);

/// What comes of opening a process.
#[derive(Debug)]
pub enum Opened<H> {
    /// It is watched as long as this is kept.
    Watched(H),
    /// It has ended.
    Ended,
    /// It can't be opened now: no file descriptor is left, for example.
    NotNow,
}

/// The processes that psched has named on a connection.
#[derive(Debug)]
pub struct LoginWatch<H> {
    watched: BTreeMap<ProcessId, H>,
    /// Those that could not be opened.
    unsure: BTreeSet<ProcessId>,
}

impl<H> Default for LoginWatch<H> {
    fn default() -> LoginWatch<H> {
        LoginWatch { watched: BTreeMap::new(), unsure: BTreeSet::new() }
    }
}

impl<H> LoginWatch<H> {
    /// Watches processes, and returns those that have ended already.
    pub fn watch(
        &mut self,
        ids: impl IntoIterator<Item = ProcessId>,
        mut open: impl FnMut(ProcessId) -> Opened<H>,
    ) -> Vec<ProcessId> {
        let mut ended = Vec::new();
        for id in ids {
            if self.watched.contains_key(&id) {
                continue;
            }
            let opened = match self.watched.len() < WATCHED_MAX {
                true => open(id),
                false => Opened::NotNow,
            };
            match opened {
                Opened::Watched(handle) => {
                    self.unsure.remove(&id);
                    self.watched.insert(id, handle);
                }
                Opened::Ended => {
                    self.unsure.remove(&id);
                    ended.push(id);
                }
                // (psched names them all again on the next connection.)
                Opened::NotNow if self.unsure.len() < UNSURE_MAX => drop(self.unsure.insert(id)),
                Opened::NotNow => {}
            }
        }
        ended
    }

    /// Tries again to open those that could not be opened, and returns those that have ended.
    pub fn again(&mut self, open: impl FnMut(ProcessId) -> Opened<H>) -> Vec<ProcessId> {
        let unsure: Vec<ProcessId> = self.unsure.iter().copied().collect();
        self.watch(unsure, open)
    }

    /// A process has ended. False: it was not watched.
    pub fn ended(&mut self, id: ProcessId) -> bool {
        self.watched.remove(&id).is_some()
    }

    /// By which a process is watched.
    pub fn handle(&self, id: ProcessId) -> Option<&H> {
        self.watched.get(&id)
    }

    /// How many are watched, and how many could not be opened.
    pub fn counts(&self) -> (usize, usize) {
        (self.watched.len(), self.unsure.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_be_opened_is_not_dead() {
        let mut watch = LoginWatch::default();
        assert_eq!(watch.watch([(1, 1), (2, 1)], |_| Opened::<()>::NotNow), []);
        assert_eq!(watch.counts(), (0, 2));
        let open = |id| if id == (1, 1) { Opened::Ended } else { Opened::Watched(()) };
        assert_eq!(watch.again(open), [(1, 1)]);
        assert_eq!(watch.counts(), (1, 0));
        assert_eq!(watch.watch([(2, 1)], |_| Opened::Ended), [], "it is watched already");
        assert!(watch.handle((2, 1)).is_some() && watch.ended((2, 1)) && !watch.ended((2, 1)));
    }
}
