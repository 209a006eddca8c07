//! How many connections are kept, and who is turned away.
//!
//! One user's idle connections must lock nobody else out, and whoever is refused is to be told why:
//! a connection beyond the bound is taken all the same for a moment, and its first request is
//! answered with the reason ([`admitted`]). Only when too many want that at once is one closed
//! without a word.

use super::Peer;
use crate::apteam::bounds::reserved;
use crate::variables::{Variables, raise};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tonic::{Request, Status};

/// Connections that may wait to be told why they are refused: of all users, and of one. Each goes
/// when it has been told, or after [`Bounds::preface_wait`], so that this limits nobody for long.
const TURNED: (usize, usize) = (256, 64);
/// Descriptors that are for other things than connections: files, timers, those who are refused.
const FILES_KEPT: u64 = 768;
/// The limit of open files where nobody has raised it: what is taken for it when it is not known.
pub const FILES_USUAL: u64 = 1_024;
/// Bytes that are read in a turn: less than a hundred requests, which have some thirty bytes at
/// least.
const PORTION: usize = 2 * 1024;
/// So many connections there are always, however low the limit of open files.
const LEAST: u64 = 16;

/// How many connections are kept at a time, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Of all users together.
    pub connections: usize,
    /// It is the limit of open files that allows no more, not the variable.
    pub by_files: bool,
    /// Of all, so many are kept for root and for our own uid: nodes, administrators.
    pub reserved: usize,
    /// Of one user, who is neither root nor our own uid.
    pub per_uid: usize,
    /// How long a connection may take until it has sent HTTP/2's preface. One that never speaks
    /// would hold its place for ever: keepalive begins after the preface. One that is refused has
    /// this long in all.
    pub preface_wait: Duration,
    /// Bytes of one user's connections that are read in a turn ([`reading`](super::reading)). Small
    /// where he is answered with others on one thread; a request has less, mostly.
    pub portion: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        let variables = Variables::default();
        let (all, user) = (variables.connections_max(), variables.connections_user_max());
        Bounds::new(all, user, u64::MAX, 1)
    }
}

impl Bounds {
    /// These many in all and of one user, as far as the limit of open files allows: `files` in all,
    /// of which a connection takes `each`, with what it brings along.
    pub fn new(all: u64, user: u64, files: u64, each: u64) -> Bounds {
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let allowed = (files.saturating_sub(FILES_KEPT) / each.max(1)).max(LEAST);
        let connections = all.min(allowed);
        // Bounds are made again whenever a variable may have changed: what is new is said.
        static SAID: AtomicU64 = AtomicU64::new(0);
        if allowed < all && SAID.swap(all, Ordering::Relaxed) != all {
            tracing::info!(
                "the limit of open files, {files}, allows {allowed} connections here, fewer than \
                 connections_max ({all}): LimitNOFILE= of the unit, or ulimit -Hn, raises it"
            );
        }
        Bounds {
            connections: count(connections),
            by_files: allowed < all,
            reserved: count(reserved(connections)),
            // (A limit of open files must not make one user's part the whole.)
            per_uid: count(if allowed < all { user.min((connections / 4).max(1)) } else { user }),
            preface_wait: Duration::from_secs(10),
            portion: PORTION,
        }
    }

    /// Whether one more of this user's fits, who has `own` of `all`.
    fn admit(&self, privileged: bool, all: usize, own: usize) -> Result<(), Full> {
        if !privileged && own >= self.per_uid {
            return Err(Full::User(self.per_uid));
        }
        let kept = if privileged { 0 } else { self.reserved };
        match all < self.connections.saturating_sub(kept) {
            true => Ok(()),
            false if self.by_files => Err(Full::Files),
            false => Err(Full::All(self.connections)),
        }
    }
}

/// Which bound is reached, and what it is. Its Display is a sentence with the cure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    User(usize),
    All(usize),
    Files,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Full::User(most) => write!(
                f,
                "you have the maximum number of connections of one user: end some of your \
                 commands, or {}",
                raise("connections_user_max", most)
            ),
            Full::All(most) => write!(
                f,
                "the maximum number of connections is reached: try again later, or {}",
                raise("connections_max", most)
            ),
            Full::Files => f.write_str(
                "the daemon's limit of open files allows no more connections: try again later, \
                 or have an administrator raise it (LimitNOFILE= of its unit, ulimit -Hn)",
            ),
        }
    }
}

/// Says no to the requests of a connection that was only taken to be told so. To be called before
/// all else that answers requests.
///
/// # Errors
/// Why this connection is one too many.
pub fn admitted(request: Request<()>) -> Result<Request<()>, Status> {
    match request.extensions().get::<Peer>().and_then(|peer| peer.turned.as_deref()) {
        // Not for good: a place may be free in a moment.
        Some(why) => Err(Status::unavailable(why)),
        None => Ok(request),
    }
}

/// Raises the limit of open files to what is allowed, and says what it is now: each connection
/// takes two descriptors (the socket and the pidfd of its peer), and the usual soft limit of 1,024
/// would not do for [`Bounds::default`].
///
/// # Errors
/// Those of getrlimit and setrlimit; then the limit is as it was.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

/// Connections by user; no entry is 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts(Arc<Mutex<BTreeMap<u32, usize>>>);

impl Counts {
    /// A place, if one more of this user's fits.
    pub fn take(&self, bounds: &Bounds, uid: u32) -> Result<Slot, Full> {
        let privileged = uid == 0 || uid == nix::unistd::geteuid().as_raw();
        self.slot(uid, |all, own| bounds.admit(privileged, all, own))
    }

    /// A place among those who are told why they are refused.
    pub fn take_turned(&self, uid: u32) -> Option<Slot> {
        let fits = |all, own| if all < TURNED.0 && own < TURNED.1 { Ok(()) } else { Err(()) };
        self.slot(uid, fits).ok()
    }

    fn slot<E>(
        &self,
        uid: u32,
        fits: impl FnOnce(usize, usize) -> Result<(), E>,
    ) -> Result<Slot, E> {
        let mut by_uid = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = by_uid.get(&uid).copied().unwrap_or(0);
        fits(by_uid.values().sum(), own)?;
        by_uid.insert(uid, own + 1);
        Ok(Slot { counts: self.clone(), uid, number: own + 1 })
    }
}

/// A place among the connections, which is given back when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    counts: Counts,
    uid: u32,
    number: usize,
}

impl Slot {
    /// How many places its user had when it was taken, with this one.
    pub fn number(&self) -> usize {
        self.number
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut by_uid = self.counts.0.lock().unwrap_or_else(PoisonError::into_inner);
        match by_uid.get_mut(&self.uid) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(by_uid.remove(&self.uid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_locks_nobody_out() {
        let bounds = Bounds { connections: 10, reserved: 2, per_uid: 5, ..Bounds::default() };
        assert_eq!(bounds.admit(false, 4, 4), Ok(()));
        assert_eq!(bounds.admit(false, 5, 5), Err(Full::User(5)));
        assert_eq!(bounds.admit(false, 7, 0), Ok(()));
        assert_eq!(bounds.admit(false, 8, 0), Err(Full::All(10)), "the rest is reserved");
        assert_eq!(bounds.admit(true, 9, 9), Ok(()));
        assert_eq!(bounds.admit(true, 10, 0), Err(Full::All(10)), "nobody gets more than all");
    }

    #[test]
    fn open_files_allow_what_they_allow() {
        let of = |files, each| Bounds::new(8_192, 2_048, files, each);
        assert_eq!(of(524_288, 2), Bounds::default());
        assert_eq!(of(u64::MAX, 8), Bounds::default());
        let few = of(4_768, 2);
        assert_eq!((few.connections, few.by_files, few.reserved), (2_000, true, 64));
        assert_eq!(few.admit(true, 2_000, 0), Err(Full::Files));
        // One user has no more than a quarter of them.
        assert_eq!(few.admit(false, 500, 499), Ok(()));
        assert_eq!(few.admit(false, 500, 500), Err(Full::User(500)));
        // Some there must be.
        let least = of(64, 2);
        assert_eq!((least.connections, least.reserved), (16, 4));
    }

    #[test]
    fn refusals_name_the_variable_and_the_cure() {
        assert_eq!(
            Full::User(4).to_string(),
            "you have the maximum number of connections of one user: end some of your commands, \
             or have an administrator raise connections_user_max (4) with psmgr set"
        );
        assert!(Full::All(16).to_string().contains("raise connections_max (16) with psmgr set"));
        assert!(Full::Files.to_string().contains("LimitNOFILE="));
    }

    #[test]
    fn those_who_are_told_are_few() {
        let counts = Counts::default();
        let own: Vec<_> = std::iter::from_fn(|| counts.take_turned(1)).collect();
        let others: Vec<_> = (2..).map_while(|uid| counts.take_turned(uid)).collect();
        assert_eq!((own.len(), own.len() + others.len()), (TURNED.1, TURNED.0));
        drop(own);
        assert!(counts.take_turned(1).is_some());
    }
}
