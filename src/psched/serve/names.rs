//! Names of users and groups, which a name service may be slow to tell, or never tell.
//!
//! # Problem
//! A look-up may go over the network, and there it takes as long as it likes: psched's one thread would
//! stand still for everybody.
//!
//! # Approach
//! Two threads look up; nobody waits for them longer than a deadline. What is not known by then goes on
//! without: a user's number stands for the name, a group that is not found lets nobody in. The threads go
//! on, and what they find is there for the next caller, for a time ([`FOUND_TIME`]). While both hang,
//! whoever asks for something new is answered at once. Everything has a bound: names that are kept, questions
//! that wait.

use crate::apteam::ending::Cause;
use nix::unistd::{Group, Uid, User};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a call waits for a name that it shows.
const CALL_WAIT: Duration = Duration::from_secs(1);
/// How long the configuration waits for a number that it is about. (All of them together wait at most a few
/// times as long: once both threads hang nobody waits.)
const CONFIGURATION_WAIT: Duration = Duration::from_secs(3);
/// How long an answer counts.
const FOUND_TIME: Duration = Duration::from_secs(600);
/// The same where there was nothing.
const NONE_TIME: Duration = Duration::from_secs(60);
/// Threads that look up.
const THREADS: usize = 2;
/// Answers that are kept.
const KEPT_MAX: usize = 10_000;
/// Questions that wait for a thread: one more is answered at once.
const QUESTIONS_MAX: usize = 256;
/// Callers who wait for the same answer.
const CALLERS_MAX: usize = 1_024;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Question {
    NameOf(u32),
    UserId(String),
    GroupId(String),
}

/// What there is: of a user id a name, of a name a number.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Name(String),
    Number(u32),
}

/// The outcome of a look-up by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// It has this number.
    Is(u32),
    /// There is no such user, or group.
    None,
    /// The name service does not answer.
    NoAnswer,
}

type Answer = Option<Found>;
/// Called with an answer; `None`: there is none.
type Caller = Box<dyn FnOnce(Option<Answer>) + Send>;
/// Asks the system; `None`: it can't be told.
type Ask = dyn Fn(&Question) -> Option<Answer> + Send + Sync;

#[derive(Default)]
struct State {
    known: HashMap<Question, (Answer, Instant)>,
    /// Questions on their way, since when a thread has each, and who waits.
    asked: HashMap<Question, (Option<Instant>, Vec<Caller>)>,
    waiting: VecDeque<Question>,
    threads: usize,
}

struct Inner {
    state: Mutex<State>,
    more: Condvar,
    ask: Box<Ask>,
    /// A number of the configuration was not told in time.
    missed: AtomicBool,
}

/// Those who look up.
#[derive(Clone)]
pub struct Names(Arc<Inner>);

/// This process's.
pub fn names() -> &'static Names {
    static NAMES: LazyLock<Names> = LazyLock::new(|| Names::new(Box::new(ask_the_system)));
    &NAMES
}

fn ask_the_system(question: &Question) -> Option<Answer> {
    let number = |number: Option<u32>| number.map(Found::Number);
    match question {
        Question::NameOf(uid) => {
            let user = User::from_uid(Uid::from_raw(*uid)).ok()?;
            Some(user.map(|user| Found::Name(user.name)))
        }
        Question::UserId(name) => {
            User::from_name(name).ok().map(|user| number(user.map(|user| user.uid.as_raw())))
        }
        Question::GroupId(name) => {
            Group::from_name(name).ok().map(|group| number(group.map(|group| group.gid.as_raw())))
        }
    }
}

impl Names {
    fn new(ask: Box<Ask>) -> Names {
        Names(Arc::new(Inner {
            state: Mutex::default(),
            more: Condvar::new(),
            ask,
            missed: false.into(),
        }))
    }

    /// The name of a user for display; the number where there is none, or none is told soon.
    pub async fn user_name(&self, uid: u32) -> String {
        let (answer, found) = tokio::sync::oneshot::channel();
        let question = Question::NameOf(uid);
        let caller = Box::new(move |found| drop(answer.send(found)));
        self.ask(question.clone(), CALL_WAIT, caller);
        let found = tokio::time::timeout(CALL_WAIT, found).await;
        let found = found.ok().and_then(Result::ok).flatten().or_else(|| self.old(&question));
        match found.flatten() {
            Some(Found::Name(name)) => name,
            _ => uid.to_string(),
        }
    }

    /// The name of a user, as far as it was told before; never waits.
    pub fn known_name(&self, uid: u32) -> Option<String> {
        match self.old(&Question::NameOf(uid))?? {
            Found::Name(name) => Some(name),
            Found::Number(_) => None,
        }
    }

    /// The same of the user whom the cause of an end names; empty: it names none, or the name is not known.
    pub fn known_name_in(&self, cause: Option<&Cause>) -> String {
        let Some(Cause::Kill { uid, .. } | Cause::Purge { uid } | Cause::Checkpointed { uid }) =
            cause
        else {
            return String::new();
        };
        self.known_name(*uid).unwrap_or_default()
    }

    /// The number of the user with this name. Blocks for a few seconds at most.
    pub fn user_id(&self, name: &str) -> Number {
        self.number(Question::UserId(name.to_owned()), CONFIGURATION_WAIT)
    }

    /// The number of the group with this name. Blocks for a few seconds at most.
    pub fn group_id(&self, name: &str) -> Number {
        self.number(Question::GroupId(name.to_owned()), CONFIGURATION_WAIT)
    }

    fn number(&self, question: Question, wait: Duration) -> Number {
        let (answer, found) = std::sync::mpsc::sync_channel(1);
        let caller = Box::new(move |found| drop(answer.try_send(found)));
        self.ask(question.clone(), wait, caller);
        let found = found.recv_timeout(wait).ok().flatten().or_else(|| self.old(&question));
        match found {
            Some(Some(Found::Number(number))) => Number::Is(number),
            Some(_) => Number::None,
            None => {
                self.0.missed.store(true, Ordering::Relaxed);
                Number::NoAnswer
            }
        }
    }

    /// Whether the configuration lacks a number because none was told in time; asked once, it is forgotten.
    pub fn missed(&self) -> bool {
        self.0.missed.swap(false, Ordering::Relaxed)
    }

    /// What was known once, however long ago.
    fn old(&self, question: &Question) -> Option<Answer> {
        self.state().known.get(question).map(|(answer, _)| answer.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the caller told, now or later; at once without an answer where none can be expected within `wait`.
    fn ask(&self, question: Question, wait: Duration, caller: Caller) {
        let now = Instant::now();
        let hangs = |since: &Option<Instant>| since.is_some_and(|since| now > since + wait);
        let mut state = self.state();
        if let Some((answer, at)) = state.known.get(&question) {
            let lasts = if answer.is_some() { FOUND_TIME } else { NONE_TIME };
            if now < *at + lasts {
                let answer = answer.clone();
                drop(state);
                return caller(Some(answer));
            }
        }
        let all_hang = state.asked.values().filter(|(since, _)| hangs(since)).count() >= THREADS;
        let room = state.asked.len() < QUESTIONS_MAX;
        if let Some((since, callers)) = state.asked.get_mut(&question) {
            if !all_hang && !hangs(since) && callers.len() < CALLERS_MAX {
                return callers.push(caller);
            }
            drop(state);
            return caller(None);
        }
        if !room {
            drop(state);
            return caller(None);
        }
        state.waiting.push_back(question.clone());
        if state.threads < THREADS && state.threads < state.asked.len() + 1 {
            let own = self.clone();
            let thread = std::thread::Builder::new().name("names".into());
            state.threads += usize::from(thread.spawn(move || own.look_up()).is_ok());
        }
        self.0.more.notify_one();
        if all_hang || state.threads == 0 {
            state.asked.insert(question, (None, Vec::new()));
            drop(state);
            return caller(None);
        }
        state.asked.insert(question, (None, vec![caller]));
    }

    /// A thread's life.
    fn look_up(&self) {
        let mut state = self.state();
        loop {
            let Some(question) = state.waiting.pop_front() else {
                state = self.0.more.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if let Some((since, _)) = state.asked.get_mut(&question) {
                *since = Some(Instant::now());
            }
            drop(state);
            let answer = (self.0.ask)(&question);
            state = self.state();
            let callers = state.asked.remove(&question).map(|(_, callers)| callers);
            if let Some(answer) = &answer {
                if state.known.len() >= KEPT_MAX {
                    state.known.clear();
                }
                state.known.insert(question, (answer.clone(), Instant::now()));
            }
            drop(state);
            for caller in callers.unwrap_or_default() {
                caller(answer.clone());
            }
            state = self.state();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    /// Knows user 7 at once, and everybody else when it is told to go on.
    fn slow() -> (Names, std::sync::mpsc::Sender<()>) {
        let (go, wait): (_, Receiver<()>) = channel();
        let wait = Mutex::new(wait);
        let names = Names::new(Box::new(move |question| {
            if *question != Question::NameOf(7) {
                let _ = wait.lock().expect("whole").recv();
            }
            Some(match question {
                Question::NameOf(uid) => Some(Found::Name(format!("user{uid}"))),
                Question::UserId(_) => Some(Found::Number(9)),
                Question::GroupId(_) => None,
            })
        }));
        (names, go)
    }

    #[test]
    fn who_is_known_has_a_name() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let root = runtime.expect("a runtime").block_on(names().user_name(0));
        assert_eq!(root, "root");
        assert_eq!(names().known_name(0).as_deref(), Some("root"));
        assert_eq!(names().known_name(61_998), None);
        assert_eq!(names().user_id("root"), Number::Is(0));
        assert_eq!(names().group_id("root"), Number::Is(0));
        assert_eq!(names().user_id("no such user"), Number::None);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_service_that_hangs() {
        let (names, go) = slow();
        // Others are answered while one hangs.
        let number = tokio::spawn({
            let names = names.clone();
            async move { names.user_name(1).await }
        });
        assert_eq!(names.user_name(7).await, "user7");
        assert_eq!(number.await.expect("answered"), "1");
        assert_eq!(names.number(Question::UserId("x".into()), Duration::ZERO), Number::NoAnswer);
        // Both hang now: no more than one wait for each, and none for what comes after.
        let many: Vec<_> = (100..400)
            .map(|uid| {
                let names = names.clone();
                tokio::spawn(async move { names.user_name(uid).await })
            })
            .collect();
        for (uid, name) in (100..400).zip(many) {
            assert_eq!(name.await.expect("answered"), uid.to_string());
        }
        assert!(names.state().asked.len() <= QUESTIONS_MAX);
        assert_eq!(names.user_name(7).await, "user7");
        // When it is back, what was asked is known.
        drop(go);
        let until = Instant::now() + Duration::from_secs(60);
        while names.user_name(1).await != "user1" {
            assert!(Instant::now() < until);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(names.number(Question::UserId("x".into()), FOUND_TIME), Number::Is(9));
        assert_eq!(names.number(Question::GroupId("x".into()), FOUND_TIME), Number::None);
    }
}
