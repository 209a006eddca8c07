//! The questions of this host to those of other PEs, until they are answered.
//!
//! A letter may be lost with the apinit that has it ([`crate::apteam::protocol::letters`]), and nobody says so. So each
//! question is asked again after a while, which doubles, and at once where our own apinit has come anew.
//!
//! Few are sent at a time, so that no program fills the memory of apinits with its questions: one that has no answer
//! after a second makes room for the next. (It may wait for another PE, which waits for the answer to that one.)

use crate::apteam::protocol::letters::{Letter, LetterText};
use crate::variables::units::nanos;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Questions that are sent at a time.
const SENT_MAX: usize = 16;
/// All of them: some for each PE of a large host.
const ASKED_MAX: usize = 64 * 1024;
/// From one time that a question is asked to the next, at first and in the end; and how long one may keep others waiting.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// For whom a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asker {
    /// appmix, which has numbered it: what a PE has put.
    Modex(u64),
    /// appmix: the end of a fence.
    Fence(u64),
    /// PEs, about what is published by PMIx, in the question of this number.
    Published(u64),
    /// A PE, by PMI-1.
    Pe(u32),
    /// Whether others know the program of this number that is to be spawned.
    Spawning(u64),
    /// The answer is not needed.
    Nobody,
}

/// A question without an answer yet.
#[derive(Clone, Debug)]
struct Asked {
    letter: Letter,
    asker: Asker,
    /// (Of one that has been sent.) When it is to be sent again.
    at_ns: u64,
    /// How long after it is sent.
    wait: Duration,
}

/// All questions of this host.
#[derive(Clone, Debug, Default)]
pub(super) struct Asks {
    last: u64,
    asked: BTreeMap<u64, Asked>,
    /// The number of the last question of each asker.
    numbers: BTreeMap<Asker, u64>,
    /// Numbers of questions that are to be sent, in their order; some may have been answered since.
    waiting: VecDeque<u64>,
    /// When those that have been sent are to be sent again, with their numbers.
    again: BTreeSet<(u64, u64)>,
    /// Numbers of questions that were sent, each with the time until which it keeps others waiting.
    sent: BTreeMap<u64, u64>,
}

/// There are as many questions as may be.
pub(super) struct TooMany;

impl Asks {
    /// Asks the host of PE `to` for that of PE `from`. What is to be sent now says [`Asks::next`].
    pub fn ask(
        &mut self,
        (from, to): (u32, u32),
        text: LetterText,
        asker: Asker,
    ) -> Result<(), TooMany> {
        if self.asked.len() >= ASKED_MAX {
            return Err(TooMany);
        }
        self.last += 1;
        let letter = Letter { to, from, number: self.last, text };
        self.asked.insert(self.last, Asked { letter, asker, at_ns: 0, wait: AGAIN });
        self.numbers.insert(asker, self.last);
        self.waiting.push_back(self.last);
        Ok(())
    }

    /// Asks something else in place of what was asked for this one, by the same number, and at once.
    pub fn instead(&mut self, asker: Asker, text: LetterText) {
        let Some(number) = self.numbers.get(&asker) else { return };
        let Some(asked) = self.asked.get_mut(number) else { return };
        asked.letter.text = text;
        asked.wait = AGAIN;
        if self.again.remove(&(asked.at_ns, *number)) {
            self.sent.remove(number);
            self.waiting.push_front(*number);
        }
    }

    /// Whose question the answer of this number is for, unless it was answered before.
    pub fn answered(&mut self, number: u64) -> Option<Asker> {
        let asked = self.asked.remove(&number)?;
        self.sent.remove(&number);
        self.again.remove(&(asked.at_ns, number));
        if self.numbers.get(&asked.asker) == Some(&number) {
            self.numbers.remove(&asked.asker);
        }
        Some(asked.asker)
    }

    /// The answers to the questions of this one are not needed any more.
    pub fn withdraw(&mut self, asker: Asker) {
        let all = self.asked.iter().filter(|(_, asked)| asked.asker == asker);
        let numbers: Vec<u64> = all.map(|(number, _)| *number).collect();
        for number in numbers {
            self.answered(number);
        }
    }

    /// What is to be sent at this time.
    pub fn next(&mut self, now_ns: u64) -> Vec<Letter> {
        self.sent.retain(|_, until| *until > now_ns);
        while let Some((at, number)) = self.again.first().copied().filter(|(at, _)| *at <= now_ns) {
            self.again.remove(&(at, number));
            self.waiting.push_back(number);
        }
        let mut letters = Vec::new();
        while self.sent.len() < SENT_MAX
            && let Some(number) = self.waiting.pop_front()
        {
            let Some(asked) = self.asked.get_mut(&number) else { continue };
            asked.at_ns = now_ns.saturating_add(nanos(asked.wait));
            self.again.insert((asked.at_ns, number));
            asked.wait = (2 * asked.wait).min(AGAIN_MAX);
            self.sent.insert(number, now_ns.saturating_add(nanos(AGAIN)));
            letters.push(asked.letter.clone());
        }
        letters
    }

    /// When there is something to be sent again.
    pub fn due_ns(&self) -> Option<u64> {
        let again = self.again.first().map(|(at, _)| *at);
        let room = self.sent.values().min().filter(|_| !self.waiting.is_empty());
        again.into_iter().chain(room.copied()).min()
    }

    /// An apinit has come that knows of none: all are to be sent.
    pub fn begin_again(&mut self) {
        self.sent.clear();
        self.again.clear();
        self.waiting = self.asked.keys().copied().collect();
        self.asked.values_mut().for_each(|asked| asked.wait = AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn ask(asks: &mut Asks, now_ns: u64, to: u32) -> Vec<u64> {
        let asked = asks.ask((0, to), LetterText::Modex { spawned: None }, Asker::Modex(to.into()));
        asked.unwrap_or_else(|_| panic!("too many"));
        numbers(asks.next(now_ns))
    }

    fn numbers(letters: Vec<Letter>) -> Vec<u64> {
        letters.into_iter().map(|letter| letter.number).collect()
    }

    #[test]
    fn a_question_is_asked_again_until_it_is_answered() {
        let mut asks = Asks::default();
        assert_eq!(ask(&mut asks, 0, 7), [1]);
        assert_eq!(asks.due_ns(), Some(S));
        assert!(asks.next(S - 1).is_empty());
        let mut times = Vec::new();
        while times.len() < 8 {
            let now = asks.due_ns().expect("it waits");
            assert_eq!(numbers(asks.next(now)), [1]);
            times.push(now / S);
        }
        assert_eq!(times, [1, 3, 7, 15, 31, 61, 91, 121]);
        // A new apinit hears it at once.
        asks.begin_again();
        assert_eq!(numbers(asks.next(122 * S)), [1]);
        assert_eq!(asks.due_ns(), Some(123 * S));
        assert_eq!(asks.answered(1), Some(Asker::Modex(7)));
        assert_eq!(asks.due_ns(), None);
        assert_eq!(asks.answered(1), None, "the answer comes twice");
    }

    #[test]
    fn a_few_are_sent_at_a_time_and_none_keeps_others_waiting_for_ever() {
        let mut asks = Asks::default();
        let sent: Vec<u64> = (0..40).flat_map(|to| ask(&mut asks, 0, to)).collect();
        assert_eq!(sent, (1..=16).collect::<Vec<u64>>());
        assert_eq!(asks.answered(3), Some(Asker::Modex(2)));
        assert_eq!(numbers(asks.next(0)), [17]);
        assert!(asks.next(S - 1).is_empty());
        // Those without an answer come after those that have not been asked.
        assert_eq!(asks.due_ns(), Some(S));
        assert_eq!(numbers(asks.next(S)), (18..=33).collect::<Vec<u64>>());
        assert_eq!(numbers(asks.next(2 * S))[..9], [34, 35, 36, 37, 38, 39, 40, 1, 2]);
        // A late answer is one.
        assert_eq!(asks.answered(5), Some(Asker::Modex(4)));
    }

    #[test]
    fn something_else_is_asked_at_once() {
        let mut asks = Asks::default();
        assert_eq!(ask(&mut asks, 0, 7), [1]);
        let at = asks.due_ns().expect("it waits");
        assert_eq!(numbers(asks.next(at)), [1]);
        asks.instead(Asker::Modex(7), LetterText::LookUp("b".into()));
        asks.instead(Asker::Modex(8), LetterText::LookUp("c".into()));
        let letters = asks.next(at + 1);
        assert_eq!(letters[0].text, LetterText::LookUp("b".into()));
        assert_eq!(numbers(letters), [1]);
        assert_eq!(asks.due_ns(), Some(at + 1 + S));
    }

    #[test]
    fn what_waits_has_a_bound() {
        let mut asks = Asks::default();
        let mut ask =
            || asks.ask((0, 1), LetterText::Modex { spawned: None }, Asker::Pe(0)).is_ok();
        assert_eq!((0..100_000).filter(|_| ask()).count(), ASKED_MAX);
    }
}
