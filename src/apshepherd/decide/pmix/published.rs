//! What PEs publish by PMIx: MPI_Publish_name of Open MPI, and what its MPI_Comm_accept and MPI_Comm_connect tell each other.
//!
//! A key stands for data until somebody takes it back, or (published for one reader) until it is read. All is kept at PE
//! 0's host, which the others ask by letters. A letter may come twice:
//!
//! - who looks up is answered anew; but what only the first may read is kept a while for the one who has read it, and is
//!   for nobody who has had another answer;
//! - a host publishes and takes back one after the other, and the answer to its last question is kept.

use super::{DUPLICATE_KEY, NO_ROOM, NOT_FOUND, SUCCESS, Whom};
use crate::apteam::protocol::letters::{LETTER_MAX, LetterText};
use crate::apteam::protocol::peers::PMI_ENTRY_COST;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Questions of the PEs of a host without an answer: a PE has one or two.
const OPEN_MAX: usize = 64 * 1024;
/// Questions that wait at PE 0's host for a key.
const WAITING_MAX: usize = 64 * 1024;
/// The longest key of those who look one up: PMIx allows 511 bytes.
const KEY_MAX: usize = 1024;
/// Bytes of what is to be published at PE 0's host.
const TELLING_MAX: usize = 16 * 1024 * 1024;
/// Bytes that those who wait for a key are told at a time; the others are told that there is no room.
const TOLD_MAX: usize = 64 * 1024 * 1024;
/// What was read by the only one who may is kept so long in case his question comes again: until so many others have
/// been, or have these bytes.
const READ_MAX: usize = 1024;
const READ_BYTES: usize = 16 * 1024 * 1024;
/// Questions with another answer, whose numbers are kept.
const ANSWERED_MAX: usize = 16 * 1024;

/// Data begins with the rank of the PE that publishes it, in so many bytes.
const PUBLISHER: usize = 4;

/// A question of appmix's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// By which it is answered, with the key.
    pub number: u64,
    pub key: Bytes,
    /// It publishes something.
    pub publishes: bool,
    /// It has waited as long as it may.
    pub ran_out: bool,
}
/// What is to be asked next, by its number here.
pub(super) type Next = (u64, LetterText);
/// An answer: to whom, how it went, and the data.
pub(super) type Answered = (Whom, i32, Bytes);

/// Data that was published, and questions about it.
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    last: u64,
    /// Questions of PEs of this host, by their number here.
    open: BTreeMap<u64, Question>,
    /// Of these, what is published and taken back, which other hosts are asked to do one after the other: the first has
    /// been asked for.
    telling: VecDeque<(u64, LetterText)>,
    telling_bytes: usize,
    // (The rest is used at PE 0's host.)
    kept: BTreeMap<Bytes, (Bytes, bool)>,
    bytes: u64,
    /// Questions that wait for a key, each by its number in the order of arrival.
    waiting: BTreeMap<Bytes, BTreeMap<u64, Whom>>,
    /// The number of each of them.
    waiters: BTreeMap<Whom, u64>,
    /// The last of these numbers.
    arrived: u64,
    read: VecDeque<(Whom, Bytes)>,
    read_bytes: usize,
    answered: BTreeSet<Whom>,
    in_order: VecDeque<Whom>,
    /// What each host was told last about what it has published or taken back, by the number of its question.
    told: BTreeMap<u32, (u64, i32)>,
}

impl Published {
    /// A PE of this host asks, in appmix's question of this number: the number that it has here. `None`: there are too
    /// many, or it is too large.
    pub fn open(&mut self, number: u64, question: &LetterText) -> Option<u64> {
        let (key, size) = size_of(question)?;
        let telling = self.telling_bytes + size;
        let room = self.open.len() < OPEN_MAX && size <= LETTER_MAX && telling <= TELLING_MAX;
        // (All keys that are waited for together have a bound.)
        if !room || key.len() > KEY_MAX {
            return None;
        }
        self.last += 1;
        let key = key.clone();
        let publishes = matches!(question, LetterText::PublishData { .. });
        self.open.insert(self.last, Question { number, key, publishes, ran_out: false });
        Some(self.last)
    }

    /// The time limit of this question has passed: what is asked instead. (PE 0's host answers: it may have sent the data
    /// already, to this question alone.)
    pub fn run_out(&mut self, id: u64) -> Option<LetterText> {
        let question = self.open.get_mut(&id)?;
        question.ran_out = true;
        Some(LetterText::LookUpData { key: question.key.clone(), wait: false })
    }

    /// The question of this number here is for PE 0's host: whether it is to be asked now.
    pub fn ask(&mut self, id: u64, question: &LetterText) -> bool {
        if let LetterText::LookUpData { .. } = question {
            return true;
        }
        self.telling_bytes += size_of(question).map_or(0, |(_, size)| size);
        self.telling.push_back((id, question.clone()));
        self.telling.len() == 1
    }

    /// The question of this number here is answered; and what is to be asked now.
    pub fn close(&mut self, id: u64) -> (Option<Question>, Option<Next>) {
        let mut next = None;
        if self.telling.front().is_some_and(|(first, _)| *first == id) {
            if let Some((_, question)) = self.telling.pop_front() {
                self.telling_bytes -= size_of(&question).map_or(0, |(_, size)| size);
            }
            next = self.telling.front().cloned();
        }
        (self.open.remove(&id), next)
    }

    /// (At PE 0's host.) Takes a question, and returns the answers that can be given now.
    pub fn asked(&mut self, whom: Whom, question: LetterText, most: u64) -> Vec<Answered> {
        if let LetterText::LookUpData { key, wait } = question {
            return self.look_up(whom, key, wait).into_iter().collect();
        }
        if let Whom::Host(from, number) = whom
            && let Some((last, status)) = self.told.get(&from)
        {
            match *last {
                last if last == number => return vec![(whom, *status, Bytes::new())],
                // (It waits for this one no more.)
                last if last > number => return Vec::new(),
                _ => {}
            }
        }
        let (status, others) = match question {
            LetterText::PublishData { key, data, once } => self.publish(key, data, once, most),
            LetterText::UnpublishData(key) if self.forget(&key) => (SUCCESS, Vec::new()),
            _ => (NOT_FOUND, Vec::new()),
        };
        if let Whom::Host(from, number) = whom {
            self.told.insert(from, (number, status));
        }
        [vec![(whom, status, Bytes::new())], others].concat()
    }

    fn publish(&mut self, key: Bytes, data: Bytes, once: bool, most: u64) -> (i32, Vec<Answered>) {
        let cost = cost(&key, &data);
        match self.kept.get(&key) {
            // (Its publisher gave up before anybody had read it: MPI_Comm_accept is called again.)
            Some((old, true)) if once && old.get(..PUBLISHER) == data.get(..PUBLISHER) => {
                self.forget(&key);
            }
            Some(_) => return (DUPLICATE_KEY, Vec::new()),
            None => {}
        }
        if self.bytes + cost > most {
            return (NO_ROOM, Vec::new());
        }
        self.bytes += cost;
        self.kept.insert(key.clone(), (data, once));
        let mut waiting = self.waiting.remove(&key).unwrap_or_default();
        let mut others = Vec::new();
        while let Some((place, whom)) = waiting.pop_first() {
            self.waiters.remove(&whom);
            if others.len() * (cost as usize) > TOLD_MAX {
                others.push((whom, NO_ROOM, Bytes::new()));
                continue;
            }
            match self.look_up(whom, key.clone(), true) {
                Some(answered) => others.push(answered),
                // (Another one has it; those who come after wait as it does.)
                None => {
                    waiting.insert(place, whom);
                    self.waiters.insert(whom, place);
                    self.waiting.insert(key, waiting);
                    break;
                }
            }
        }
        (SUCCESS, others)
    }

    fn look_up(&mut self, whom: Whom, key: Bytes, wait: bool) -> Option<Answered> {
        if let Some((_, data)) = self.read.iter().find(|(reader, _)| *reader == whom) {
            return Some((whom, SUCCESS, data.clone()));
        }
        let again = self.answered.contains(&whom);
        let found = self.kept.get(&key).filter(|(_, once)| !(again && *once)).cloned();
        if let Some((data, once)) = found {
            if once {
                self.forget(&key);
                self.was_read(whom, &data);
            } else {
                self.was_answered(whom);
            }
            return Some((whom, SUCCESS, data));
        }
        if !wait || again {
            self.waits_no_more(whom, &key);
            self.was_answered(whom);
            return Some((whom, NOT_FOUND, Bytes::new()));
        }
        if self.waiters.contains_key(&whom) {
            return None;
        }
        if self.waiters.len() >= WAITING_MAX {
            return Some((whom, NO_ROOM, Bytes::new()));
        }
        self.arrived += 1;
        self.waiters.insert(whom, self.arrived);
        self.waiting.entry(key).or_default().insert(self.arrived, whom);
        None
    }

    fn waits_no_more(&mut self, whom: Whom, key: &Bytes) {
        let Some(place) = self.waiters.remove(&whom) else { return };
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.remove(&place);
            if waiting.is_empty() {
                self.waiting.remove(key);
            }
        }
    }

    /// (What is told to PEs of this host is not lost.)
    fn was_read(&mut self, whom: Whom, data: &Bytes) {
        if let Whom::Host(..) = whom {
            self.read_bytes += data.len();
            self.read.push_back((whom, data.clone()));
        }
        while (self.read.len() > READ_MAX || self.read_bytes > READ_BYTES)
            && let Some((_, data)) = self.read.pop_front()
        {
            self.read_bytes -= data.len();
        }
    }

    fn was_answered(&mut self, whom: Whom) {
        if let Whom::Host(..) = whom
            && self.answered.insert(whom)
        {
            self.in_order.push_back(whom);
        }
        if self.in_order.len() > ANSWERED_MAX
            && let Some(first) = self.in_order.pop_front()
        {
            self.answered.remove(&first);
        }
    }

    /// Whether it stood for something.
    fn forget(&mut self, key: &Bytes) -> bool {
        let Some((data, _)) = self.kept.remove(key) else { return false };
        self.bytes -= cost(key, &data);
        true
    }
}

/// The key of a question about published data, and its bytes with those of what it publishes.
fn size_of(question: &LetterText) -> Option<(&Bytes, usize)> {
    match question {
        LetterText::PublishData { key, data, .. } => Some((key, key.len() + data.len())),
        LetterText::LookUpData { key, .. } | LetterText::UnpublishData(key) => {
            Some((key, key.len()))
        }
        _ => None,
    }
}

fn cost(key: &Bytes, data: &Bytes) -> u64 {
    (key.len() + data.len() + PMI_ENTRY_COST) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: u64 = 10_000;

    fn text(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn publish(data: &'static str, once: bool) -> LetterText {
        LetterText::PublishData { key: text("key"), data: text(data), once }
    }

    fn look_up(wait: bool) -> LetterText {
        LetterText::LookUpData { key: text("key"), wait }
    }

    fn unpublish() -> LetterText {
        LetterText::UnpublishData(text("key"))
    }

    /// The host of PE 4 asks by this number, and these are answered.
    fn asked(published: &mut Published, number: u64, question: LetterText) -> Vec<Answered> {
        published.asked(Whom::Host(4, number), question, MOST)
    }

    fn to(number: u64, status: i32, data: &'static str) -> Answered {
        (Whom::Host(4, number), status, text(data))
    }

    #[test]
    fn a_key_stands_for_data_until_it_is_taken_back() {
        let mut all = Published::default();
        assert_eq!(asked(&mut all, 1, look_up(false)), [to(1, NOT_FOUND, "")]);
        assert_eq!(asked(&mut all, 2, publish("data", false)), [to(2, SUCCESS, "")]);
        assert_eq!(asked(&mut all, 3, publish("other", false)), [to(3, DUPLICATE_KEY, "")]);
        for number in [4, 5] {
            assert_eq!(asked(&mut all, number, look_up(false)), [to(number, SUCCESS, "data")]);
        }
        assert_eq!(asked(&mut all, 6, unpublish()), [to(6, SUCCESS, "")]);
        assert_eq!(asked(&mut all, 7, unpublish()), [to(7, NOT_FOUND, "")]);
        assert_eq!(asked(&mut all, 8, look_up(false)), [to(8, NOT_FOUND, "")]);
        assert_eq!(all.bytes, 0);
    }

    #[test]
    fn a_key_has_a_bound() {
        let question =
            |length| LetterText::LookUpData { key: Bytes::from(vec![b'k'; length]), wait: true };
        let mut all = Published::default();
        assert_eq!(all.open(1, &question(KEY_MAX + 1)), None);
        assert_eq!(all.open(1, &question(KEY_MAX)), Some(1));
    }

    #[test]
    fn a_letter_that_comes_twice_changes_nothing() {
        let mut all = Published::default();
        for _ in 0..2 {
            assert_eq!(asked(&mut all, 1, look_up(false)), [to(1, NOT_FOUND, "")]);
            assert_eq!(asked(&mut all, 2, publish("data", true)), [to(2, SUCCESS, "")]);
        }
        // It has found nothing: the data is not for this question.
        assert_eq!(asked(&mut all, 1, look_up(false)), [to(1, NOT_FOUND, "")]);
        for _ in 0..2 {
            assert_eq!(asked(&mut all, 3, look_up(false)), [to(3, SUCCESS, "data")]);
        }
        assert_eq!(asked(&mut all, 4, look_up(false)), [to(4, NOT_FOUND, "")]);
        for _ in 0..2 {
            assert_eq!(asked(&mut all, 5, publish("more", false)), [to(5, SUCCESS, "")]);
        }
        assert_eq!(asked(&mut all, 2, publish("data", true)), [], "it is late");
        for _ in 0..2 {
            assert_eq!(asked(&mut all, 6, unpublish()), [to(6, SUCCESS, "")]);
        }
    }

    #[test]
    fn who_waits_for_a_key_gets_it_in_turn() {
        let mut all = Published::default();
        for number in [1, 2, 1, 3] {
            assert_eq!(asked(&mut all, number, look_up(true)), []);
        }
        assert_eq!(all.waiters.len(), 3);
        let here = Whom::Here(9);
        let published = all.asked(here, publish("one", true), MOST);
        assert_eq!(published, [(here, SUCCESS, text("")), to(1, SUCCESS, "one")]);
        assert_eq!(all.waiters.len(), 2);
        let published = all.asked(here, publish("all", false), MOST);
        let told = [to(2, SUCCESS, "all"), to(3, SUCCESS, "all")];
        assert_eq!(published, [&[(here, SUCCESS, text(""))][..], &told].concat());
        assert_eq!((all.waiters.len(), all.waiting.len()), (0, 0));
    }

    #[test]
    fn who_has_waited_as_long_as_it_may_gets_nothing_any_more() {
        let mut all = Published::default();
        assert_eq!(asked(&mut all, 1, look_up(true)), []);
        assert_eq!(asked(&mut all, 2, look_up(true)), []);
        // (In any order, and again: it waits no more.)
        for wait in [false, false, true] {
            assert_eq!(asked(&mut all, 1, look_up(wait)), [to(1, NOT_FOUND, "")]);
        }
        assert_eq!(
            asked(&mut all, 3, publish("one", true)),
            [to(3, SUCCESS, ""), to(2, SUCCESS, "one")]
        );
        assert_eq!((all.waiters.len(), all.waiting.len()), (0, 0));
        // The data was on its way when it gave up.
        assert_eq!(asked(&mut all, 2, look_up(false)), [to(2, SUCCESS, "one")]);
    }

    /// MPI_Comm_accept that has timed out is called again: what it published for one reader is still there.
    #[test]
    fn what_nobody_has_read_may_be_published_again_by_the_same_pe() {
        let mut all = Published::default();
        let publish = |data| publish(data, true);
        assert_eq!(asked(&mut all, 1, publish("PE 0 first")), [to(1, SUCCESS, "")]);
        assert_eq!(asked(&mut all, 2, publish("PE 1 first")), [to(2, DUPLICATE_KEY, "")]);
        assert_eq!(asked(&mut all, 3, publish("PE 0 again")), [to(3, SUCCESS, "")]);
        assert_eq!(asked(&mut all, 4, look_up(false)), [to(4, SUCCESS, "PE 0 again")]);
        assert_eq!(all.bytes, 0);
    }

    #[test]
    fn a_question_that_runs_out_is_asked_without_waiting() {
        let mut all = Published::default();
        let id = all.open(75, &look_up(true)).expect("room");
        assert_eq!(all.run_out(id), Some(look_up(false)));
        let ran_out = Question { number: 75, key: text("key"), publishes: false, ran_out: true };
        assert_eq!(all.close(id), (Some(ran_out), None));
        assert_eq!(all.run_out(id), None);
    }

    #[test]
    fn a_host_publishes_one_after_the_other() {
        let mut all = Published::default();
        let question = |all: &mut Published, number, question| {
            let id = all.open(number, &question).expect("room");
            (id, all.ask(id, &question))
        };
        assert_eq!(question(&mut all, 70, publish("a", false)), (1, true));
        assert_eq!(question(&mut all, 71, unpublish()), (2, false));
        assert_eq!(question(&mut all, 72, look_up(true)), (3, true));
        let closed = |number, publishes| {
            Some(Question { number, key: text("key"), publishes, ran_out: false })
        };
        assert_eq!(all.close(3), (closed(72, false), None));
        assert_eq!(all.close(1), (closed(70, true), Some((2, unpublish()))));
        assert_eq!(all.close(2), (closed(71, false), None));
        assert_eq!(all.close(2), (None, None));
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let mut all = Published::default();
        let large = |key: &'static str| LetterText::PublishData {
            key: text(key),
            data: vec![0; MOST as usize / 2].into(),
            once: false,
        };
        assert_eq!(asked(&mut all, 1, large("a"))[0].1, SUCCESS);
        assert_eq!(asked(&mut all, 2, large("b"))[0].1, NO_ROOM);
        let too_large = LetterText::PublishData {
            key: text("c"),
            data: vec![0; LETTER_MAX].into(),
            once: false,
        };
        assert_eq!(all.open(1, &too_large), None);
        assert_eq!((0..100_000).filter(|_| all.open(1, &unpublish()).is_some()).count(), OPEN_MAX);
        let waits = (0..100_000).filter(|n| asked(&mut all, *n, look_up(true)).is_empty());
        assert_eq!(waits.count(), WAITING_MAX);
    }

    proptest! {
        /// Questions of three hosts, of which some come once more: the answers are those of a plain map.
        #[test]
        fn letters_that_come_again_are_answered_as_before(
            asks in proptest::collection::vec((1u32..4, 0u8..4, any::<Option<u8>>()), 1..60),
        ) {
            let mut all = Published::default();
            let mut simple: BTreeMap<Bytes, (Bytes, bool)> = BTreeMap::new();
            let mut sent: Vec<(Whom, LetterText)> = Vec::new();
            for (number, (host, what, again)) in (1u64..).zip(asks) {
                let (whom, key) = (Whom::Host(host, number), text("key"));
                let question = match what {
                    0 | 1 => publish(["once", "more"][what as usize], what == 0),
                    2 => look_up(false),
                    _ => unpublish(),
                };
                let expected = match &question {
                    LetterText::PublishData { data, once, .. } => match simple.get(&key) {
                        // (All have the same publisher.)
                        Some((_, unread)) if !(*once && *unread) => (DUPLICATE_KEY, text("")),
                        _ => {
                            simple.insert(key, (data.clone(), *once));
                            (SUCCESS, text(""))
                        }
                    },
                    LetterText::LookUpData { .. } => match simple.get(&key).cloned() {
                        Some((data, true)) => {
                            simple.remove(&key);
                            (SUCCESS, data)
                        }
                        Some((data, false)) => (SUCCESS, data),
                        None => (NOT_FOUND, text("")),
                    },
                    _ => (if simple.remove(&key).is_some() { SUCCESS } else { NOT_FOUND }, text("")),
                };
                let answers = all.asked(whom, question.clone(), MOST);
                prop_assert_eq!(answers, [(whom, expected.0, expected.1)]);
                sent.push((whom, question));
                if let Some(again) = again {
                    let (whom, question) = sent[again as usize % sent.len()].clone();
                    for (told, ..) in all.asked(whom, question, MOST) {
                        prop_assert_eq!(told, whom);
                    }
                }
            }
        }
    }
}
