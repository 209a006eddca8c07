//! The addresses of a host's name.
//!
//! A lookup can't be cancelled before its name server answers, and holds a thread that long, also if the request that
//! needed it has gone. So there is one lookup for each name at a time, which all requests share. Names that users
//! choose have a bound ([`USERS_MAX`]), and so have those of one user: the lookup keeps the user's place to its end.
//! A user may have many user ids, though (a user namespace has 65,536), whose lookups take all
//! places together. The hosts that run psched, on which applications of everybody may have their PE
//! 0, are looked up without a place ([`runs_psched`]).

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::net::lookup_host;
use tokio::sync::watch;

/// Names that users have looked up at once. (The system's lookups have 512 threads, with all other work that waits.)
const USERS_MAX: usize = 64;

/// Hosts that run psched and are remembered: the one that does now, and those before it.
const PSCHED_MAX: usize = 8;

/// The addresses of a name.
type Found = Result<Vec<IpAddr>, String>;
type UnderWay = BTreeMap<String, watch::Receiver<Option<Found>>>;

/// Lookups that are under way, by name.
static UNDER_WAY: Mutex<UnderWay> = Mutex::new(BTreeMap::new());
/// Names of hosts that run psched, the newest last.
static RUN_PSCHED: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn under_way() -> MutexGuard<'static, UnderWay> {
    lock(&UNDER_WAY)
}

/// The host of this name has shown a certificate with the role control: from now on its name can be
/// looked up however many other lookups are under way.
pub(super) fn runs_psched(name: &str) {
    let mut known = lock(&RUN_PSCHED);
    if known.iter().any(|one| one == name) {
        return;
    }
    if known.len() >= PSCHED_MAX {
        known.pop_front();
    }
    known.push_back(name.to_owned());
}

/// Ends a lookup's entry, also where its runtime goes.
struct Entry(String);

impl Drop for Entry {
    fn drop(&mut self) {
        under_way().remove(&self.0);
    }
}

/// All addresses of `HOST:PORT`, which an administrator has chosen; of numeric ones, with commas between them, these at
/// once.
///
/// # Errors
/// The name is not known, or its server says nothing.
pub(super) async fn addresses(address: &str) -> Result<Vec<SocketAddr>, String> {
    look_up(address, usize::MAX, ()).await
}

/// As [`addresses`], for an address that a user has chosen. `place`: one of the user's places, kept to the end of the
/// lookup.
///
/// # Errors
/// As of others; and users have too many looked up already.
pub async fn addresses_for_user(
    address: &str,
    place: impl Send + 'static,
) -> Result<Vec<SocketAddr>, String> {
    look_up(address, USERS_MAX, place).await
}

async fn look_up(
    address: &str,
    most: usize,
    place: impl Send + 'static,
) -> Result<Vec<SocketAddr>, String> {
    if let Ok(known) = address.split(',').map(str::parse).collect() {
        return Ok(known);
    }
    // (Of a name there is one lookup, whatever the port.)
    let named = address.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?)));
    let Some((name, port)) = named else {
        return Err(format!("the name of {address} is not known: the address has no port"));
    };
    let runs_psched = lock(&RUN_PSCHED).iter().any(|one| one == name);
    let most = if runs_psched { usize::MAX } else { most };
    let found = look_up_name(name, most, place).await?;
    Ok(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
}

async fn look_up_name(name: &str, most: usize, place: impl Send + 'static) -> Found {
    let mut found = {
        let mut all = under_way();
        match all.get(name) {
            Some(found) => found.clone(),
            None if all.len() >= most => {
                return Err(format!(
                    "{most} names of other hosts are being looked up already: try again later"
                ));
            }
            None => {
                let (says, found) = watch::channel(None);
                all.insert(name.to_owned(), found.clone());
                let entry = Entry(name.to_owned());
                tokio::spawn(async move {
                    let _place = place;
                    let found = lookup_host((entry.0.as_str(), 0)).await;
                    let found = found.map(|found| found.map(|at| at.ip()).collect());
                    let found =
                        found.map_err(|e| format!("the name of {} is not known: {e}", entry.0));
                    drop(entry);
                    let _ = says.send(Some(found));
                });
                found
            }
        }
    };
    let known = found.wait_for(Option::is_some).await;
    let gone = || format!("the lookup of {name} was given up");
    known.ok().and_then(|found| found.clone()).unwrap_or_else(|| Err(gone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::task::{Context, Waker};

    #[tokio::test]
    async fn a_name_is_looked_up_once_for_all_who_wait() {
        let numeric = addresses("[::1]:7117").await;
        assert_eq!(numeric, Ok(vec!["[::1]:7117".parse().expect("an address")]));
        let two = addresses("[::1]:7117,10.0.0.1:7118").await.expect("numeric");
        assert_eq!(two.len(), 2);
        let own = || under_way().keys().filter(|name| name.starts_with("localhost")).count();
        let (first, (one, second, still)) = tokio::join!(addresses("localhost:7117"), async {
            // The first has begun.
            let one = own();
            let second = addresses("localhost:7117");
            tokio::pin!(second);
            let mut once = Context::from_waker(Waker::noop());
            assert!(second.as_mut().poll(&mut once).is_pending());
            (one, second.await, own())
        });
        assert_eq!((one, still), (1, 0));
        assert_eq!(first, second);
        assert!(first.is_ok_and(|found| found.iter().all(|at| at.port() == 7117)));
        let wrong = addresses("localhost").await.expect_err("it has no port");
        assert!(wrong.contains("the name of localhost is not known"), "{wrong}");
        assert!(!under_way().keys().any(|name| name.starts_with("localhost")));
    }

    /// Lookups of users that do not end, until this is dropped.
    struct Hang;

    impl Hang {
        fn begin() -> Hang {
            for n in 0..USERS_MAX {
                under_way().insert(format!("hangs-{n}"), watch::channel(None).1);
            }
            Hang
        }
    }

    impl Drop for Hang {
        fn drop(&mut self) {
            under_way().retain(|name, _| !name.starts_with("hangs-"));
        }
    }

    /// One user may have as many user ids as there are places.
    #[tokio::test]
    async fn the_host_of_psched_is_looked_up_however_many_lookups_of_users_hang() {
        let hang = Hang::begin();
        // (A name for which no name server is asked.)
        let address = "127.1:7118";
        let refused = addresses_for_user(address, ()).await.expect_err("no place");
        assert!(refused.contains("64 names of other hosts are being looked up"), "{refused}");
        runs_psched("127.1");
        let found = addresses_for_user(address, ()).await.expect("it is looked up");
        assert_eq!(found, ["127.0.0.1:7118".parse().expect("an address")]);
        // Another name has none.
        let other = addresses_for_user("127.2:7118", ()).await;
        assert!(other.is_err_and(|why| why.contains("are being looked up")));
        drop(hang);
        // Few are remembered.
        for n in 0..2 * PSCHED_MAX {
            runs_psched(&format!("head-{n}"));
            runs_psched(&format!("head-{n}"));
        }
        let known = lock(&RUN_PSCHED).clone();
        assert!(
            known.len() <= PSCHED_MAX && known.contains(&format!("head-{}", 2 * PSCHED_MAX - 1))
        );
    }
}
