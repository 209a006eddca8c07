//! The door of this apinit, where cpr passes it a folder ([`crate::node::checkpoint::fd_channel`]).
//!
//! One thread for each question: it reads what is asked and its descriptor, tells the one task, and
//! goes on to listen, so that the one task hears when whoever asked is gone. How many there may be
//! is bounded, in all and for each user, and some are root's alone. Each step has its time: whoever
//! says nothing for longer is as good as gone.

use super::asker::{Asker, Deadline};
use super::coming::Coming;
use super::events::{Events, TaskEvent};
use crate::node::checkpoint::fd_channel::{Answer, Ask, hear_first, hear_next, say};
use crate::os::{peer, rights};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::oneshot;

/// Questions at once.
const ASKS_MAX: usize = 64;
/// Of these root's alone.
const ASKS_ROOT: usize = 16;
/// Of one user who is not root.
const ASKS_USER_MAX: usize = 8;
/// How long the one task may take to look at what was asked.
const FIRST_WAIT: Duration = Duration::from_secs(60);
/// How long one who asks may take to read an answer: they are small, and have room in the socket.
const SAY_WAIT: Duration = Duration::from_secs(1);
/// How long nothing is accepted after the system had no descriptor for it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Numbers for questions.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// How many ask, by user.
pub(super) type Askers = Arc<Mutex<BTreeMap<u32, usize>>>;

/// Why a question has no place.
pub(super) const FULL: &str =
    "this apinit has the maximum number of checkpoint requests: try again later";

/// One place among those who ask.
pub(super) struct Slot {
    askers: Askers,
    uid: u32,
}

impl Slot {
    pub fn take(askers: &Askers, uid: u32) -> Option<Slot> {
        let mut counts = askers.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = counts.values().sum();
        let own = counts.entry(uid).or_default();
        let full = if uid == 0 {
            all >= ASKS_MAX
        } else {
            all >= ASKS_MAX - ASKS_ROOT || *own >= ASKS_USER_MAX
        };
        if full {
            counts.retain(|_, own| *own > 0);
            return None;
        }
        *own += 1;
        Some(Slot { askers: Arc::clone(askers), uid })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.askers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = counts.get_mut(&self.uid) {
            *own -= 1;
        }
        counts.retain(|_, own| *own > 0);
    }
}

/// Answers at this door, for ever.
pub(super) async fn serve(listener: UnixListener, events: Events, askers: Askers) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (Ok(stream), askers, events) = (stream.into_std(), askers.clone(), events.clone())
        else {
            continue;
        };
        let ready = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_write_timeout(Some(SAY_WAIT)))
            .and_then(|()| peer::credentials(&stream));
        let Ok(ids) = ready else { continue };
        tokio::task::spawn_blocking(move || {
            let mut stream = stream;
            let Some(_slot) = Slot::take(&askers, ids.uid) else {
                let _ = say(&mut stream, Answer::Refused(FULL.into()));
                // (It has no place here in which it could be waited for.)
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return rights::close_aside(stream.into());
            };
            listen_to(stream, ids.uid, ids.gid, &events);
        });
    }
}

fn listen_to(mut stream: UnixStream, uid: u32, gid: u32, events: &Events) {
    let (ask, descriptor) = match hear_first(&mut stream) {
        // (What is no folder may be slow to close, which the one task must not wait for.)
        Ok((_, descriptor)) if !is_folder(&descriptor) => {
            let why = "the descriptor that was passed is not a folder";
            let _ = say(&mut stream, Answer::Refused(why.into()));
            return;
        }
        Ok(asked) => asked,
        Err(error) => {
            let _ = say(
                &mut stream,
                Answer::Refused(format!(
                    "the request can't be decoded: \
                                                              {error}"
                )),
            );
            return;
        }
    };
    hear(stream, (uid, gid), None, (ask, descriptor), events);
}

/// Passes on a question of this user, who is here or `afar`, and all that follows on the connection on which it has come, until that ends.
pub(super) fn hear(
    mut stream: UnixStream,
    (uid, gid): (u32, u32),
    afar: Option<Coming>,
    (ask, descriptor): (Ask, OwnedFd),
    events: &Events,
) {
    let Ok(own) = stream.try_clone() else {
        let why = "no descriptor is left for the request: try again later";
        let _ = say(&mut stream, Answer::Refused(why.into()));
        return;
    };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let deadline = Deadline::after(FIRST_WAIT);
    let (back, closes) = oneshot::channel();
    let (own, back) = (Some(own), Some(back));
    let asker = Asker { number, uid, gid, afar, stream: own, back, deadline: deadline.clone() };
    if events.blocking_send(TaskEvent::Asked { asker, ask, descriptor }).is_err() {
        return;
    }
    hear_the_rest(&mut stream, number, &deadline, events);
    // (An Err: the one task is gone.)
    drop(closes.blocking_recv());
}

fn is_folder(descriptor: &OwnedFd) -> bool {
    rustix::fs::fstat(descriptor)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
}

fn hear_the_rest(stream: &mut UnixStream, number: u64, deadline: &Deadline, events: &Events) {
    loop {
        // An Err: he says what is not understood, which is as good as going, as it is to say
        // nothing.
        let next = hear_next(stream, || deadline.get()).unwrap_or_default();
        let gone = next.is_none();
        if events.blocking_send(TaskEvent::AskedMore(number, next)).is_err() || gone {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn slots_are_shared_and_some_are_roots() {
        let askers = Askers::default();
        let take = |uid| Slot::take(&askers, uid);
        let mut held: Vec<Slot> = (0..ASKS_USER_MAX).filter_map(|_| take(7)).collect();
        assert_eq!(held.len(), ASKS_USER_MAX);
        assert!(take(7).is_none());
        held.extend((100..100 + ASKS_MAX as u32).filter_map(take));
        assert_eq!(held.len(), ASKS_MAX - ASKS_ROOT);
        assert!(take(8).is_none());
        held.extend((0..ASKS_MAX).filter_map(|_| take(0)));
        assert_eq!(held.len(), ASKS_MAX);
        assert!(take(0).is_none());
        drop(held);
        assert!(askers.lock().expect("whole").is_empty());
        assert!(take(7).is_some());
    }

    /// A first frame that is right buys no place for ever: the next step has its time too.
    #[test]
    fn one_who_says_nothing_more_is_given_up() {
        let (own, his) = UnixStream::pair().expect("a pair");
        let mut heard = own.try_clone().expect("another");
        let deadline = Deadline::after(FIRST_WAIT);
        let asker = Asker {
            number: 7,
            uid: 1,
            gid: 1,
            afar: None,
            stream: Some(own),
            back: None,
            deadline: deadline.clone(),
        };
        let (events, mut told) = tokio::sync::mpsc::channel(4);
        let listens = std::thread::spawn(move || hear_the_rest(&mut heard, 7, &deadline, &events));
        asker.expect_within(Duration::from_millis(50));
        let begun = Instant::now();
        let gone = told.blocking_recv();
        assert!(matches!(gone, Some(TaskEvent::AskedMore(7, None))), "{gone:?}");
        assert!(begun.elapsed() < FIRST_WAIT / 2, "it had the time of the step before");
        listens.join().expect("ended");
        drop((asker, his));
    }
}
