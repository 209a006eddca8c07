//! The recorder: the scheduler's last events, and its state before the first of them.
//!
//! # Problem
//! The log says which place an application was given and when it was stopped, and not why. The scheduler is pure:
//! the same state and the same events give the same effects. So it is enough to keep both.
//!
//! # Approach
//! ```text
//!            copy        events      copy        events        now
//!             |  . . . . . . . . . .  |  . . . . . . .          |
//!             +---- older part -------+----- newer part --------+
//! ```
//!
//! A part is a copy of the scheduler and the events that came after it. A full part becomes the older one, and
//! the one before it is forgotten: there are always as many events to look back at as fill a part, and what is
//! kept has a bound. A copy takes about as long as a few dozen events, and is taken once for thousands of them.
//! Nothing is written before a [`Recording`] is asked for, which is written ([`form`]) beside the loop.
//!
//! # Secrets
//! Tickets are not written, and of commands only the program: of the arguments there is how long they are,
//! which is all that a decision may depend on. The key of checkpoints and the environment of programs never come
//! to the scheduler.

pub mod form;
#[cfg(test)]
mod tests;

use crate::apteam::protocol::node::{HostNote, Report};
use crate::psched::decide::{Effect, Event, Now, Scheduler};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Events of a part. A larger machine, whose copy takes longer, has more: see [`Recorder::is_full`].
const EVENTS_MAX: usize = 4_096;
/// Bytes of the events of a part, about.
const BYTES_MAX: usize = 8 << 20;

/// What the scheduler was told at one instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// When.
    pub now: Now,
    /// What.
    pub told: Told,
    /// What came of it; none: nothing came of it, for psched ended within it.
    pub gave: Option<Gave>,
}

/// What the scheduler is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Told {
    /// These events, in this order ([`Scheduler::apply_all`]).
    Events(Vec<Event>),
    /// psched is about to end ([`Scheduler::keep_shares`]).
    End,
}

/// A fingerprint of effects, by which one sees whether a replay gives the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gave {
    /// So many effects.
    pub effects: u32,
    /// A checksum of their kinds, in their order.
    pub kinds: u64,
}

impl Gave {
    /// The fingerprint of these effects.
    pub fn of(effects: &[Effect]) -> Gave {
        // FNV-1a.
        let start = 0xcbf2_9ce4_8422_2325_u64;
        let byte = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let kinds = effects
            .iter()
            .fold(start, |sum, effect| effect.kind().bytes().chain([0]).fold(sum, byte));
        Gave { effects: u32::try_from(effects.len()).unwrap_or(u32::MAX), kinds }
    }
}

impl Step {
    /// Has a scheduler do it again, and gives what comes of it.
    pub fn replay(&self, scheduler: &mut Scheduler) -> Vec<Effect> {
        match &self.told {
            Told::Events(events) => scheduler.apply_all(self.now, events.iter().cloned()),
            Told::End => scheduler.keep_shares(self.now).into_iter().collect(),
        }
    }
}

/// A step whose events are in the list of its part.
#[derive(Clone, Copy, Debug)]
struct Head {
    now: Now,
    /// The next so many; none: it is [`Told::End`].
    events: Option<u32>,
    gave: Option<Gave>,
}

/// A copy of the scheduler, and what came after it.
#[derive(Clone, Debug)]
struct Part {
    base: Arc<Scheduler>,
    heads: Vec<Head>,
    events: Vec<Event>,
    bytes: usize,
}

impl Part {
    fn of(scheduler: &Scheduler) -> Part {
        let base = Arc::new(scheduler.clone());
        Part { base, heads: Vec::new(), events: Vec::new(), bytes: 0 }
    }

    fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        let mut events = self.events.iter().cloned();
        self.heads.iter().map(move |head| {
            let Head { now, events: count, gave } = *head;
            let told = match count {
                Some(count) => Told::Events(events.by_ref().take(count as usize).collect()),
                None => Told::End,
            };
            Step { now, told, gave }
        })
    }
}

/// The last events, and how the scheduler was before them.
#[derive(Debug)]
pub struct Recorder {
    older: Option<Part>,
    newer: Part,
    /// Events of a part.
    events_max: usize,
}

impl Recorder {
    /// One that begins with this state.
    pub fn new(scheduler: &Scheduler) -> Recorder {
        Recorder::bounded(scheduler, EVENTS_MAX)
    }

    /// One with so many events in a part.
    pub fn bounded(scheduler: &Scheduler, events_max: usize) -> Recorder {
        Recorder { older: None, newer: Part::of(scheduler), events_max }
    }

    /// The scheduler is about to be told this.
    pub fn tells(&mut self, now: Now, scheduler: &Scheduler, events: &[Event]) {
        if self.is_full(scheduler) {
            self.older = Some(std::mem::replace(&mut self.newer, Part::of(scheduler)));
        }
        let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let part = &mut self.newer;
        part.heads.push(Head { now, events: Some(count), gave: None });
        part.events.extend_from_slice(events);
        part.bytes += size_of::<Head>() + events.iter().map(bytes).sum::<usize>();
    }

    /// psched is about to end.
    pub fn ends(&mut self, now: Now) {
        self.newer.heads.push(Head { now, events: None, gave: None });
    }

    /// This came of what it was told last.
    pub fn gave(&mut self, effects: &[Effect]) {
        if let Some(head) = self.newer.heads.last_mut() {
            head.gave = Some(Gave::of(effects));
        }
    }

    /// Whether it is time for a copy: where the events fill a part, but not before there are as many as make
    /// the time of a copy small beside theirs.
    fn is_full(&self, scheduler: &Scheduler) -> bool {
        let Part { events, bytes, .. } = &self.newer;
        if *bytes >= BYTES_MAX {
            return true;
        }
        // (The size of the state is not asked of each event.)
        events.len() >= self.events_max
            && events.len() >= scheduler.size().min(BYTES_MAX / size_of::<Event>())
    }

    /// All that is known.
    pub fn recording(&self) -> Recording {
        let parts = self.older.iter().chain([&self.newer]).cloned().collect();
        Recording { parts }
    }
}

/// A state of the scheduler, and what it was told from then on.
#[derive(Clone, Debug)]
pub struct Recording {
    /// At least one.
    parts: Vec<Part>,
}

impl Recording {
    /// The state before the first step.
    pub fn base(&self) -> Option<&Scheduler> {
        self.parts.first().map(|part| &*part.base)
    }

    /// What it was told, the oldest first.
    pub fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        self.parts.iter().flat_map(Part::steps)
    }

    /// How many steps there are.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.heads.len()).sum()
    }

    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes that an event takes, about.
fn bytes(event: &Event) -> usize {
    /// A node, an entry of a set, a key, a text's beginning.
    const EACH: usize = 32;
    let texts = |texts: &[String]| texts.iter().map(|text| EACH + text.len()).sum::<usize>();
    let noted = |notes: &[HostNote]| notes.iter().map(|note| EACH + note.text.len()).sum::<usize>();
    let more = match event {
        Event::Posted { posting, owner, .. } | Event::Restarted { posting, owner, .. } => {
            posting.kept_bytes() as usize + 4 * owner.groups.len()
        }
        Event::LinkOpened { hello, .. } => {
            let lists = hello.nids.len() + hello.cpus.len() + hello.banks.len() * EACH;
            1024 + 4 * lists + noted(&hello.notes) + texts(&hello.limits) + texts(&hello.back_ends)
        }
        Event::Inventory { items, .. } => EACH * items.len(),
        Event::Foreign { foreign, .. } => {
            let places = foreign.applications.iter().map(|one| one.place.places.0.len());
            places.map(|nodes| 1024 + 2 * EACH * nodes).sum()
        }
        Event::Manage { nids, used, .. } => EACH * (nids.len() + used.len()),
        Event::Nodes { nids, reason, .. } => EACH * nids.len() + reason.len(),
        Event::Flavors { nids, .. } => EACH * nids.len(),
        Event::Hold { apids, .. } => EACH * apids.len(),
        Event::Migrate { nids, .. } => EACH * nids.as_ref().map_or(0, |nids| nids.len()),
        Event::Kill { apids, .. } => 8 * apids.len(),
        Event::Noted { notes, .. } => noted(notes),
        Event::Report { report, .. } => match &**report {
            Report::Ended(end) => 512 + EACH * (end.nids.len() + end.ends.len() + end.lost.len()),
            Report::Switches(all) => {
                let keys = all.switches.iter().map(|one| one.stopped.len() + one.started.len());
                let lists = all.peaks.len() + all.ran.len() + all.idle.len();
                128 * all.switches.len() + 16 * keys.sum::<usize>() + EACH * lists
            }
            Report::Stuck { processes, .. } => texts(processes),
            _ => 128,
        },
        Event::Settings(settings) => 2048 + 1024 * settings.domains.len(),
        Event::Machine(machine) => 256 * (machine.nodes.len() + machine.regions.len()),
        Event::StoreRefused { why, .. } => why.len(),
        Event::Compact { region, .. } => region.len(),
        Event::Looked { .. }
        | Event::FrontGone { .. }
        | Event::Revoked { .. }
        | Event::LinkClosed { .. }
        | Event::RolledIn { .. }
        | Event::Tick => 0,
    };
    size_of::<Event>() + more
}
