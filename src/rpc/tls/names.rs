//! The addresses of a host's name.
//!
//! A lookup can't be cancelled before its name server answers, and holds a thread that long, also if the request that
//! needed it has gone. So there is one lookup for each name at a time, which all requests share. Names that users
//! choose have a bound ([`USERS_MAX`]), and so have those of one user: the lookup keeps the user's place to its end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::net::lookup_host;
use tokio::sync::watch;

/// Names that users have looked up at once. (The system's lookups have 512 threads, with all other work that waits.)
const USERS_MAX: usize = 64;

type Found = Result<Vec<SocketAddr>, String>;

/// Lookups that are under way.
static UNDER_WAY: Mutex<BTreeMap<String, watch::Receiver<Option<Found>>>> =
    Mutex::new(BTreeMap::new());

fn under_way() -> MutexGuard<'static, BTreeMap<String, watch::Receiver<Option<Found>>>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
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
pub(super) async fn addresses(address: &str) -> Found {
    look_up(address, usize::MAX, ()).await
}

/// As [`addresses`], for an address that a user has chosen. `place`: one of the user's places, kept to the end of the
/// lookup.
///
/// # Errors
/// As of others; and users have too many looked up already.
pub async fn addresses_for_user(address: &str, place: impl Send + 'static) -> Found {
    look_up(address, USERS_MAX, place).await
}

async fn look_up(address: &str, most: usize, place: impl Send + 'static) -> Found {
    if let Ok(known) = address.split(',').map(str::parse).collect() {
        return Ok(known);
    }
    let mut found = {
        let mut all = under_way();
        match all.get(address) {
            Some(found) => found.clone(),
            None if all.len() >= most => {
                return Err(format!(
                    "{most} names of other hosts are being looked up already: try again later"
                ));
            }
            None => {
                let (says, found) = watch::channel(None);
                all.insert(address.to_owned(), found.clone());
                let entry = Entry(address.to_owned());
                tokio::spawn(async move {
                    let _place = place;
                    let found = lookup_host(&entry.0).await.map(Iterator::collect);
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
    let gone = || format!("the lookup of {address} was given up");
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
}
