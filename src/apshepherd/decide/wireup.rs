//! What PEs say to the servers of PMI and PMIx here, and what comes of it for the application: replies, barriers, letters
//! to other hosts and their answers, ends.

use super::asks::{Asker, TooMany};
use super::pmi::{Effect, Progress};
use super::pmix::{self, FromMix, NO_ROOM};
use super::spawn::By;
use super::{Action, Shepherd};
use crate::apteam::ending::Cause;
use crate::apteam::protocol::letters::{Letter, LetterText};
use crate::apteam::protocol::notice::Seen;
use crate::apteam::protocol::shepherd::FromShepherd;

impl Shepherd {
    pub(super) fn pmi_bytes(&mut self, now_ns: u64, rank: u32, data: &[u8]) {
        let Some(pmi) = &mut self.pmi else { return };
        let effects = pmi.read(rank, data);
        self.pmi_effects(now_ns, effects);
    }

    pub(super) fn pmi_effects(&mut self, now_ns: u64, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Reply(rank, data) => self.actions.push(Action::PmiSend { rank, data }),
                Effect::BarrierIn(barrier) => self.send(|_| FromShepherd::BarrierIn(barrier)),
                Effect::FenceOver(entries) => {
                    let effects = self.pmix.as_mut().map(|pmix| pmix.fence_over(entries));
                    self.pmix_effects(now_ns, effects.unwrap_or_default());
                }
                Effect::Abort { rank, code } => {
                    let nid = self.nid(rank);
                    self.bad(now_ns, Cause::Abort { rank, nid, code });
                }
                Effect::Garbage { rank, text } => {
                    let nid = self.nid(rank);
                    self.actions.push(Action::PmiClose { rank });
                    self.bad(now_ns, Cause::Garbage { rank, nid, text });
                }
                Effect::Notice { rank, text } => {
                    let nid = self.nid(rank);
                    self.unmet_is_told(rank);
                    self.notice(nid, Seen::Pmi { rank, text });
                }
                Effect::Ask { rank, text } => self.ask(now_ns, (rank, 0), text, Asker::Pe(rank)),
                Effect::Answer(letter) => self.send(|_| FromShepherd::Letter(letter)),
                Effect::Spawn { rank, request } => self.spawn(now_ns, rank, By::Pmi, request),
            }
        }
    }

    pub(super) fn ask(&mut self, now_ns: u64, between: (u32, u32), text: LetterText, asker: Asker) {
        if let Err(TooMany) = self.asks.ask(between, text, asker) {
            let (rank, _) = between;
            let text = "and the others on its host ask other hosts for too much at the same time";
            match asker {
                Asker::Spawning(program) => {
                    return self.known_elsewhere(
                        now_ns,
                        program,
                        NO_ROOM,
                        b"there are too many questions",
                    );
                }
                // (It costs a little memory there.)
                Asker::Nobody => return,
                _ => {}
            }
            let cause = Cause::NotMet { rank, nid: self.nid(rank), text: text.into() };
            return self.bad(now_ns, cause);
        }
        self.send_letters(now_ns);
    }

    pub(super) fn send_letters(&mut self, now_ns: u64) {
        for letter in self.asks.next(now_ns) {
            self.send(|_| FromShepherd::Letter(letter));
        }
    }

    pub(super) fn letter(&mut self, now_ns: u64, letter: Letter) {
        match letter.text {
            LetterText::Answer { status, data } => {
                match self.asks.answered(letter.number) {
                    None => {}
                    Some(Asker::Pe(rank)) => {
                        let effects =
                            self.pmi.as_mut().map(|pmi| pmi.answered(rank, status, &data));
                        self.pmi_effects(now_ns, effects.unwrap_or_default());
                    }
                    Some(Asker::Spawning(program)) => {
                        self.known_elsewhere(now_ns, program, status, &data);
                    }
                    Some(asker) => {
                        let effects =
                            self.pmix.as_mut().map(|pmix| pmix.answered(asker, status, data));
                        self.pmix_effects(now_ns, effects.unwrap_or_default());
                    }
                }
                self.send_letters(now_ns);
            }
            LetterText::Modex { .. }
            | LetterText::Fence { .. }
            | LetterText::PublishData { .. }
            | LetterText::LookUpData { .. }
            | LetterText::UnpublishData(_) => {
                let effects = self.pmix.as_mut().map(|pmix| pmix.asked(letter));
                self.pmix_effects(now_ns, effects.unwrap_or_default());
            }
            LetterText::Spawning(spawning) => {
                self.spawning_elsewhere((letter.from, letter.to, letter.number), spawning);
            }
            LetterText::SpawnedEnded(space) => {
                let asked = (letter.from, letter.to, letter.number);
                self.spawned_ended_elsewhere(now_ns, asked, space);
            }
            LetterText::Publish { .. } | LetterText::LookUp(_) | LetterText::Unpublish(_) => {
                let effects = self.pmi.as_mut().map(|pmi| pmi.asked(letter));
                self.pmi_effects(now_ns, effects.unwrap_or_default());
            }
        }
    }

    pub(super) fn mix_says(&mut self, now_ns: u64, said: FromMix) {
        let Some(said) = self.mix_spawns(now_ns, said) else { return };
        let effects = self.pmix.as_mut().map(|pmix| pmix.hear(now_ns, said));
        self.pmix_effects(now_ns, effects.unwrap_or_default());
    }

    /// Time limits have passed: of PEs that run.
    pub(super) fn limits_looked(&mut self, now_ns: u64, frozen: bool) {
        let effects = self.pmix.as_mut().map(|pmix| pmix.limits_passed(now_ns, frozen));
        self.pmix_effects(now_ns, effects.unwrap_or_default());
    }

    pub(super) fn pmix_effects(&mut self, now_ns: u64, effects: Vec<pmix::Effect>) {
        let first = self.pes.keys().next().copied().unwrap_or_default();
        for effect in effects {
            match effect {
                pmix::Effect::Tell(message) => self.actions.push(Action::TellMix(message)),
                pmix::Effect::Enter(entries) => {
                    let effects = self.pmi.as_mut().map(|pmi| pmi.fence(entries));
                    self.pmi_effects(now_ns, effects.unwrap_or_default());
                }
                pmix::Effect::Abort { rank, code } => {
                    let nid = self.nid(rank);
                    self.bad(now_ns, Cause::Abort { rank, nid, code });
                }
                pmix::Effect::Notice { rank, text } => {
                    self.notice(self.nid(rank), Seen::Pmi { rank, text });
                }
                pmix::Effect::Garbage(text) => {
                    let nid = self.nid(first);
                    self.bad(now_ns, Cause::NotMet { rank: first, nid, text });
                }
                pmix::Effect::Ask { to, from, text, asker } => {
                    self.ask(now_ns, (from, to), text, asker);
                }
                pmix::Effect::Instead { asker, text } => {
                    self.asks.instead(asker, text);
                    self.send_letters(now_ns);
                }
                pmix::Effect::Answer(letter) => self.send(|_| FromShepherd::Letter(letter)),
            }
        }
    }

    /// appmix has ended by itself. PEs that have begun with it would wait for ever; those that have not would each be a
    /// world of its own.
    pub(super) fn mix_ended(&mut self, now_ns: u64, text: &str) {
        let text = format!("lost the server of PMIx: {text}");
        let waits = |progress: Progress| match progress {
            Progress::Inside => true,
            Progress::Outside => self.pmix_needed,
            Progress::Finalized => false,
        };
        let alive = self.pes.iter().filter(|(_, pe)| !pe.ended).map(|(rank, _)| *rank);
        let mut alive =
            alive.filter(|rank| self.pmix.as_ref().is_some_and(|pmix| waits(pmix.progress(*rank))));
        match alive.next() {
            Some(rank) => self.bad(now_ns, Cause::NotMet { rank, nid: self.nid(rank), text }),
            None => self.no_pmix(text),
        }
    }
}
