//! The questions of this host to those of other PEs, until they are answered.
//!
//! A letter may be lost with the apinit that has it ([`crate::apteam::protocol::letters`]), and nobody says so. So each
//! question is asked again after a while, which doubles, and at once where our own apinit has come anew. A few are asked
//! at a time: the others wait, so that no program fills the memory of apinits with its questions.

use crate::apteam::protocol::letters::{Letter, LetterText};
use crate::variables::units::nanos;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Questions that are asked at a time.
const ASKED_MAX: usize = 16;
/// Those that wait for that: some for each PE of a large host.
const WAITING_MAX: usize = 64 * 1024;
/// From one time that a question is asked to the next, at first and in the end.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// Who wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// appmix, which has numbered it: what a PE has put.
    Modex(u64),
    /// appmix: the end of a fence.
    Fence(u64),
    /// A PE, by PMI-1.
    Pe(u32),
}

/// One that is asked.
#[derive(Clone, Debug)]
struct Asked {
    letter: Letter,
    asker: Asker,
    at_ns: u64,
    wait: Duration,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Asks {
    last: u64,
    asked: BTreeMap<u64, Asked>,
    waiting: VecDeque<(Letter, Asker)>,
}

/// There are as many questions as may be.
pub(super) struct TooMany;

impl Asks {
    /// Asks the host of PE `to` for that of PE `from`: the letter, unless it has to wait for others.
    pub fn ask(
        &mut self,
        now_ns: u64,
        (from, to): (u32, u32),
        text: LetterText,
        asker: Asker,
    ) -> Result<Option<Letter>, TooMany> {
        if self.waiting.len() >= WAITING_MAX {
            return Err(TooMany);
        }
        self.last += 1;
        self.waiting.push_back((Letter { to, from, number: self.last, text }, asker));
        Ok(self.next(now_ns))
    }

    fn next(&mut self, now_ns: u64) -> Option<Letter> {
        if self.asked.len() >= ASKED_MAX {
            return None;
        }
        let (letter, asker) = self.waiting.pop_front()?;
        let at_ns = now_ns.saturating_add(nanos(AGAIN));
        let asked = Asked { letter: letter.clone(), asker, at_ns, wait: AGAIN };
        self.asked.insert(letter.number, asked);
        Some(letter)
    }

    /// Whose question the answer of this number is for, unless it was answered before; and the next to be asked.
    pub fn answered(&mut self, now_ns: u64, number: u64) -> (Option<Asker>, Option<Letter>) {
        match self.asked.remove(&number) {
            Some(asked) => (Some(asked.asker), self.next(now_ns)),
            None => (None, None),
        }
    }

    /// When one is to be asked again.
    pub fn due_ns(&self) -> Option<u64> {
        self.asked.values().map(|asked| asked.at_ns).min()
    }

    /// Those that are to be asked again now.
    pub fn again(&mut self, now_ns: u64) -> Vec<Letter> {
        let due = self.asked.values_mut().filter(|asked| asked.at_ns <= now_ns);
        due.map(|asked| {
            asked.wait = (2 * asked.wait).min(AGAIN_MAX);
            asked.at_ns = now_ns.saturating_add(nanos(asked.wait));
            asked.letter.clone()
        })
        .collect()
    }

    /// An apinit has come that knows of none.
    pub fn all(&self) -> impl Iterator<Item = &Letter> {
        self.asked.values().map(|asked| &asked.letter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn ask(asks: &mut Asks, now_ns: u64, to: u32) -> Option<u64> {
        let letter = asks.ask(now_ns, (0, to), LetterText::Modex, Asker::Modex(to.into()));
        letter.unwrap_or_else(|_| panic!("too many")).map(|letter| letter.number)
    }

    fn numbers(letters: Vec<Letter>) -> Vec<u64> {
        letters.into_iter().map(|letter| letter.number).collect()
    }

    #[test]
    fn a_question_is_asked_again_until_it_is_answered() {
        let mut asks = Asks::default();
        assert_eq!(ask(&mut asks, 0, 7), Some(1));
        assert_eq!(asks.due_ns(), Some(S));
        assert!(asks.again(S - 1).is_empty());
        let mut times = Vec::new();
        while times.len() < 8 {
            let now = asks.due_ns().expect("it waits");
            assert_eq!(numbers(asks.again(now)), [1]);
            times.push(now / S);
        }
        assert_eq!(times, [1, 3, 7, 15, 31, 61, 91, 121]);
        assert_eq!(asks.answered(200 * S, 1), (Some(Asker::Modex(7)), None));
        assert_eq!(asks.due_ns(), None);
        assert_eq!(asks.answered(201 * S, 1), (None, None), "the answer comes twice");
    }

    #[test]
    fn a_few_are_asked_at_a_time_and_all_in_the_end() {
        let mut asks = Asks::default();
        let sent: Vec<u64> = (0..20).filter_map(|to| ask(&mut asks, 0, to)).collect();
        assert_eq!(sent, (1..=16).collect::<Vec<u64>>());
        assert_eq!(numbers(asks.all().cloned().collect()), sent);
        let (asker, next) = asks.answered(S, 3);
        assert_eq!((asker, next.map(|letter| letter.number)), (Some(Asker::Modex(2)), Some(17)));
        assert_eq!(ask(&mut asks, S, 99), None, "in its turn");
        for number in (1..=21).filter(|number| *number != 3) {
            let (asker, _) = asks.answered(2 * S, number);
            assert!(asker.is_some(), "{number}");
        }
        assert_eq!(asks.due_ns(), None);
    }

    #[test]
    fn what_waits_has_a_bound() {
        let mut asks = Asks::default();
        let mut ask = || asks.ask(0, (0, 1), LetterText::Modex, Asker::Pe(0)).is_ok();
        let taken = (0..100_000).filter(|_| ask()).count();
        assert_eq!(taken, ASKED_MAX + WAITING_MAX);
    }
}
