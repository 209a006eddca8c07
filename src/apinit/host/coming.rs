//! Files of a checkpoint that come from another host, while its application is launched already: who restores it waits for
//! them.

use super::promised_room::Promise;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The files have come, or why not.
type Come = Result<(), String>;

/// Whether they have come, for both: who writes them, and who waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Coming {
    come: Arc<(Mutex<Option<Come>>, Condvar)>,
    /// For the copy that is made of them, where it is written.
    room: Arc<Mutex<Option<Promise>>>,
    /// Nobody waits for them any more.
    over: CancellationToken,
}

impl Coming {
    /// They have come, or why not. The first word counts.
    pub fn ends(&self, result: Come) {
        let (come, told) = &*self.come;
        come.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(result);
        told.notify_all();
    }

    /// Keeps this room for the copy of the files, until the copy takes it; `None`: gives the room back.
    pub fn promises(&self, room: Option<Promise>) {
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) = room;
    }

    /// Until nobody waits for them any more.
    pub async fn given_up(&self) {
        self.over.cancelled().await;
    }

    /// Blocks until they have come. (Who writes them is bound to a pace.)
    fn wait(&self) -> Come {
        let (come, told) = &*self.come;
        let mut now = come.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*now {
                Some(result) => return result.clone(),
                None => now = told.wait(now).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// What an application is restored from. Dropped, whoever brings it is told that it is wanted no more.
#[derive(Debug)]
pub(super) struct RestoreFrom {
    pub folder: OwnedFd,
    coming: Option<(Coming, DropGuard)>,
}

impl RestoreFrom {
    pub fn new(folder: OwnedFd, coming: Option<Coming>) -> RestoreFrom {
        let guarded = |coming: Coming| {
            let guard = coming.over.clone().drop_guard();
            (coming, guard)
        };
        RestoreFrom { folder, coming: coming.map(guarded) }
    }

    /// Blocks until all of it is there.
    ///
    /// # Errors
    /// It did not come, and why.
    pub fn wait(&self) -> Result<(), String> {
        self.coming.as_ref().map_or(Ok(()), |(coming, _)| coming.wait())
    }

    /// What is promised for a copy of it already.
    pub fn promised(&self) -> Option<Promise> {
        let (coming, _) = self.coming.as_ref()?;
        coming.room.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> OwnedFd {
        std::fs::File::open("/").expect("there").into()
    }

    #[tokio::test]
    async fn who_restores_waits_and_who_brings_hears_that_nobody_does() {
        let coming = Coming::default();
        let from = RestoreFrom::new(folder(), Some(coming.clone()));
        let waits = tokio::task::spawn_blocking(move || (from.wait(), from));
        coming.ends(Ok(()));
        coming.ends(Err("too late".into()));
        let (result, from) = waits.await.expect("done");
        assert_eq!(result, Ok(()));
        assert!(!coming.over.is_cancelled());
        drop(from);
        coming.given_up().await;
        // What lies on this host is there.
        assert_eq!(RestoreFrom::new(folder(), None).wait(), Ok(()));
    }
}
