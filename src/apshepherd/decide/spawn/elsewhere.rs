//! What PEs of other hosts spawn by PMIx, as far as this host is concerned: its PEs may meet the new ones, so appmix is to
//! know them before they are there, and until they have ended.
//!
//! The host of the PE that spawns asks, and may ask again ([`crate::apteam::protocol::letters`]).

use super::super::Shepherd;
use super::super::pmix::{NO_ROOM, SUCCESS, ToMix};
use crate::apshepherd::decide::Action;
use crate::apteam::protocol::letters::{Letter, LetterText, Spawning};
use crate::apteam::protocol::shepherd::FromShepherd;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Programs that are known at a time.
const PROGRAMS_MAX: usize = 1024;

/// By their namespaces.
#[derive(Clone, Debug, Default)]
pub(super) struct Elsewhere(BTreeMap<String, One>);

#[derive(Clone, Debug)]
struct One {
    /// By which appmix is told of it.
    number: u64,
    /// The letter that asked for it (from, to, number), until appmix has answered.
    asked: Option<(u32, u32, u64)>,
    /// Why appmix can't; empty: it can.
    why_not: String,
}

impl Shepherd {
    /// A PE of another host is about to spawn this.
    pub(in super::super) fn spawning_elsewhere(
        &mut self,
        asked: (u32, u32, u64),
        spawning: Spawning,
    ) {
        if let Some(one) = self.spawned.elsewhere.0.get_mut(&spawning.space) {
            match &mut one.asked {
                Some(waits) => *waits = asked,
                None => {
                    let why_not = one.why_not.clone();
                    self.answer_host(asked, &why_not);
                }
            }
            return;
        }
        // (Without PMIx, no PE of this host can meet the new ones.)
        if self.pmix.is_none() || self.unmet.no_pmix.is_some() || self.empty_at.is_some() {
            return self.answer_host(asked, "");
        }
        if self.spawned.elsewhere.0.len() >= PROGRAMS_MAX {
            let why_not = format!(
                "PEs of other hosts have spawned {PROGRAMS_MAX} programs that have not ended, the maximum"
            );
            return self.answer_host(asked, &why_not);
        }
        self.spawned.last += 1;
        let number = self.spawned.last;
        let one = One { number, asked: Some(asked), why_not: String::new() };
        self.spawned.elsewhere.0.insert(spawning.space.clone(), one);
        self.actions.push(Action::TellMix(ToMix::Prepare { number, spawning }));
    }

    /// appmix knows of it, or can't.
    pub(super) fn known_here(&mut self, number: u64, why_not: String) {
        let mut all = self.spawned.elsewhere.0.values_mut();
        let Some(one) = all.find(|one| one.number == number) else { return };
        if let Some(asked) = one.asked.take() {
            one.why_not.clone_from(&why_not);
            self.answer_host(asked, &why_not);
        }
    }

    /// What had this namespace has ended there.
    pub(in super::super) fn spawned_ended_elsewhere(
        &mut self,
        now_ns: u64,
        asked: (u32, u32, u64),
        space: String,
    ) {
        if self.spawned.elsewhere.0.remove(&space).is_some() {
            self.spawned_is_gone(now_ns, space);
        }
        self.answer_host(asked, "");
    }

    fn answer_host(&mut self, (from, to, number): (u32, u32, u64), why_not: &str) {
        let status = if why_not.is_empty() { SUCCESS } else { NO_ROOM };
        let text = LetterText::Answer { status, data: Bytes::copy_from_slice(why_not.as_bytes()) };
        let answer = Letter { to: from, from: to, number, text };
        self.send(|_| FromShepherd::Letter(answer));
    }

    /// appmix of this host need not know this namespace any more.
    pub(super) fn spawned_is_gone(&mut self, now_ns: u64, space: String) {
        let effects = self.pmix.as_mut().map(|pmix| pmix.spawned_ended(space.clone()));
        self.pmix_effects(now_ns, effects.unwrap_or_default());
        self.actions.push(Action::TellMix(ToMix::Forget(space)));
    }
}
