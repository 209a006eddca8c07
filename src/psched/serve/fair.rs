//! What users ask of the loop, taken by turns: one of each user's, then one of the next.
//!
//! Each user has a short line of his own. Whoever asks more than the loop answers waits for himself alone, and
//! somebody else's question waits for one of each user's at most.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Questions of one user that may wait for the loop; one more waits where it came from.
const EACH_MAX: usize = 64;

struct Shared<T> {
    lines: Mutex<Lines<T>>,
    came: Notify,
}

struct Lines<T> {
    /// By user. What is in a line has its place there until it is taken.
    of: BTreeMap<u32, VecDeque<(T, OwnedSemaphorePermit)>>,
    places: BTreeMap<u32, Arc<Semaphore>>,
    /// Users with something in their line, in the order in which they are asked.
    turns: VecDeque<u32>,
    senders: usize,
    closed: bool,
}

impl<T> Shared<T> {
    fn lines(&self) -> MutexGuard<'_, Lines<T>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where questions come in.
pub struct Sender<T>(Arc<Shared<T>>);

/// Where the loop takes them.
pub struct Receiver<T>(Arc<Shared<T>>);

/// Both ends.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let lines = Lines {
        of: BTreeMap::new(),
        places: BTreeMap::new(),
        turns: VecDeque::new(),
        senders: 1,
        closed: false,
    };
    let shared = Arc::new(Shared { lines: Mutex::new(lines), came: Notify::new() });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Sender<T> {
    /// Puts it into this user's line, once there is a place.
    ///
    /// # Errors
    /// Nobody takes it any more.
    pub async fn send(&self, uid: u32, item: T) -> Result<(), T> {
        let places = {
            let mut lines = self.0.lines();
            if lines.closed {
                return Err(item);
            }
            if lines.places.len() > 64 {
                lines.places.retain(|_, places| Arc::strong_count(places) > 1);
            }
            let new = || Arc::new(Semaphore::new(EACH_MAX));
            Arc::clone(lines.places.entry(uid).or_insert_with(new))
        };
        let Ok(place) = places.acquire_owned().await else { return Err(item) };
        let mut lines = self.0.lines();
        if lines.closed {
            return Err(item);
        }
        let line = lines.of.entry(uid).or_default();
        line.push_back((item, place));
        if line.len() == 1 {
            lines.turns.push_back(uid);
        }
        drop(lines);
        self.0.came.notify_one();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.lines().senders += 1;
        Sender(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.lines().senders -= 1;
        self.0.came.notify_one();
    }
}

impl<T> Receiver<T> {
    /// What comes next, if something waits.
    pub fn try_recv(&mut self) -> Option<T> {
        let mut lines = self.0.lines();
        let uid = lines.turns.pop_front()?;
        let line = lines.of.get_mut(&uid)?;
        let next = line.pop_front();
        match line.is_empty() {
            true => drop(lines.of.remove(&uid)),
            false => lines.turns.push_back(uid),
        }
        next.map(|(item, _place)| item)
    }

    /// What comes next; `None`: nobody is there to send anything.
    pub async fn recv(&mut self) -> Option<T> {
        loop {
            if let Some(item) = self.try_recv() {
                return Some(item);
            }
            if self.0.lines().senders == 0 {
                return None;
            }
            // (A word that came since is kept for this.)
            self.0.came.notified().await;
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let left = {
            let mut lines = self.0.lines();
            lines.closed = true;
            lines.places.values().for_each(|places| places.close());
            lines.turns.clear();
            std::mem::take(&mut lines.of)
        };
        // (What is in there may have a sender of its own.)
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_user_has_his_turn() {
        let (sender, mut receiver) = channel();
        for n in 0..3 {
            sender.send(1, n).await.expect("taken");
        }
        sender.send(2, 10).await.expect("taken");
        sender.send(3, 20).await.expect("taken");
        let mut all = Vec::new();
        while let Some(n) = receiver.try_recv() {
            all.push(n);
        }
        assert_eq!(all, [0, 10, 20, 1, 2]);
        drop(sender);
        assert_eq!(receiver.recv().await, None);
    }

    #[tokio::test]
    async fn a_full_line_is_its_users_alone() {
        let (sender, mut receiver) = channel();
        for n in 0..EACH_MAX {
            sender.send(1, n).await.expect("taken");
        }
        let other = sender.clone();
        let waits = tokio::spawn(async move { other.send(1, 1_000).await });
        tokio::task::yield_now().await;
        sender.send(2, 2_000).await.expect("another's is empty");
        assert_eq!((receiver.recv().await, receiver.recv().await), (Some(0), Some(2_000)));
        waits.await.expect("no panic").expect("there is a place now");
        drop(receiver);
        assert_eq!(sender.send(1, 7).await, Err(7));
    }
}
