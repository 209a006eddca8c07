//! PMIx, by which the PEs of an Open MPI program find one another, without its wire protocol.
//!
//! PEs talk to a server of the PMIx library ("appmix"), a process of the apshepherd's own: it serves the PEs of this
//! host and leaves to us what concerns others. What it says and is told is [`FromMix`] and [`ToMix`].
//!
//! ```text
//! PEs            appmix                    apshepherd                 other hosts
//!  --fence-->     all PEs here are in it
//!                 Fence 1, what they gave -->  barrier with entries -->
//!                                          <-- what all have given --
//!  <--out---  <-- FenceOver 1
//! ```
//!
//! A fence is a barrier with data that nobody but the library understands. One of all PEs goes through the barriers of
//! PMI-1 ([`super::pmi`]), which the deaths of apinits do no harm: what a host gives is cut into entries, whose keys
//! begin with a zero byte, as no key of PMI-1 does. A library has several fences in the air at the same time only if its
//! program has: they wait for one another in the order in which they came.
//!
//! A fence of some PEs is over at once if all of them are here. One of PEs of several hosts, and what one PE wants to know
//! of one of another host before a fence has brought it ("direct modex"), go by letters from host to host
//! ([`crate::apteam::protocol::letters`]). So does what PEs publish ([`published`]).
//!
//! PEs that were spawned ([`super::spawn`]) are served by the appmix of their host, too. Where they are in a fence, the PE
//! that has spawned them stands for them: they are where it is, and appmix waits for them all.

mod limits;
mod partial;
mod published;

use super::asks::Asker;
use super::pmi::{Progress, too_much};
use super::spawn::Program;
use crate::apteam::protocol::letters::{LETTER_MAX, Letter, LetterText, SpawnedPe, Spawning};
use crate::apteam::protocol::peers::PmiEntry;
use crate::variables::raise;
use crate::variables::units::{format_size, nanos};
use bytes::{Bytes, BytesMut};
use limits::Limits;
use partial::{Arrival, Partial, Who, Whom, too_large};
use published::{Answered, Published, Question};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Bytes that the PEs of one host may give to one fence: they must fit in a frame.
pub const GIVEN_MAX: usize = 2 * 1024 * 1024 - 1024;
/// Bytes in one [`ToMix::FenceOver`].
const OVER_PIECE: usize = 1024 * 1024;
/// Bytes of one entry's value.
const PIECE: usize = 64 * 1024;
/// Fences that wait for others: a program has one or two.
const WAITING_MAX: usize = 64;
/// PEs of this host of which others want to know at a time, and questions for each.
const LOOKED_UP_MAX: usize = 64 * 1024;

/// PMIx's word for success.
pub const SUCCESS: i32 = 0;
/// Its word for a program that can't be spawned (any error).
pub const SPAWN_FAILED: i32 = -1;
/// Its word for what is not there.
pub const NOT_FOUND: i32 = -46;
/// Its word for what did not come in time.
pub const TIMED_OUT: i32 = -24;
/// Its word for what a server does not do.
pub const NOT_SUPPORTED: i32 = -47;
/// Its word for more than there is room for.
pub const NO_ROOM: i32 = -32;
/// Its word for a key that stands for something already.
pub const DUPLICATE_KEY: i32 = -53;

/// What appmix says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromMix {
    /// It serves: by these variables (NAME=VALUE) PEs find it.
    Serves {
        /// The variables, that of the rank apart.
        environment: Vec<Vec<u8>>,
        /// Its release, in the library's words.
        version: String,
    },
    /// It can't.
    Fails {
        /// The library is not here.
        missing: bool,
        /// Why, in the words of the loader or the library.
        text: String,
    },
    /// A PE has begun with PMIx.
    Connected(u32),
    /// A PE has ended with it.
    Finalized(u32),
    /// A PE aborts the application.
    Abort {
        /// Which.
        rank: u32,
        /// Its status.
        code: i32,
    },
    /// All PEs of this host that take part are in a fence.
    Fence {
        /// By which it is answered.
        number: u64,
        /// The PEs that take part, and those that have spawned others that do; empty: all of the application.
        ranks: Vec<u32>,
        /// PEs of what was spawned that take part, those of each program in one: its namespace, a colon, its ranks.
        spawned: Vec<Vec<u8>>,
        /// What they give.
        data: Bytes,
    },
    /// A PE has called MPI_Comm_spawn.
    Spawn {
        /// By which it is answered.
        number: u64,
        /// Which.
        rank: u32,
        /// It is one that this PE has spawned.
        spawner: Option<SpawnedPe>,
        /// What it wants.
        programs: Vec<Program>,
    },
    /// The answer to [`ToMix::Prepare`].
    Prepared {
        /// Of which program.
        number: u64,
        /// By these variables (NAME=VALUE) its PEs find appmix, that of the rank apart.
        environment: Vec<Vec<u8>>,
        /// Why they can't; empty: they can.
        why_not: String,
    },
    /// A PE of what was spawned has called MPI_Abort.
    SpawnedAbort {
        /// Of which program.
        number: u64,
        /// With this code.
        code: i32,
    },
    /// What this PE of another host has put is asked for.
    Modex {
        /// By which it is answered.
        number: u64,
        /// Whose.
        rank: u32,
        /// Not that of the PE itself, but of one that it has spawned.
        spawned: Option<SpawnedPe>,
    },
    /// The answer to [`ToMix::LookUp`].
    Found {
        /// Of which question.
        number: u64,
        /// How it went, in PMIx's numbers.
        status: i32,
        /// What the PE has put.
        data: Bytes,
    },
    /// A PE publishes data ([`LetterText::PublishData`]).
    Publish {
        /// By which it is answered, with the key: a PE may ask about several keys by one number.
        number: u64,
        /// The key.
        key: Bytes,
        /// What it stands for.
        data: Bytes,
        /// Only the first who looks it up is to have it.
        once: bool,
    },
    /// What does a key stand for?
    LookUp {
        /// As above.
        number: u64,
        /// The key.
        key: Bytes,
        /// If it stands for nothing yet, that is waited for.
        wait: bool,
        /// For at most so many seconds; 0: for ever.
        seconds: u32,
    },
    /// A key stands for nothing any more.
    Unpublish {
        /// As above.
        number: u64,
        /// The key.
        key: Bytes,
    },
}

/// What appmix is to know of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The name of the PMIx namespace.
    pub name: String,
    /// Its PEs.
    pub width: u32,
    /// On which hosts they are ([`super::mapping`]).
    pub mapping: String,
    /// The first PE of each program but the first.
    pub firsts: Vec<u32>,
    /// The PEs that it serves, which count up.
    pub ranks: Vec<u32>,
    /// A folder that it makes, for its files and those of PEs, and removes in the end.
    pub folder: String,
    /// MPI_UNIVERSE_SIZE.
    pub universe: u32,
}

/// What appmix is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToMix {
    /// Before anything else.
    Begin(Job),
    /// The fence is over.
    FenceOver {
        /// Which.
        number: u64,
        /// How it went, in PMIx's numbers.
        status: i32,
        /// What all have given, or a piece of it.
        data: Bytes,
        /// No further piece follows.
        last: bool,
    },
    /// What the PE of another host has put.
    ModexFound {
        /// Of which question.
        number: u64,
        /// How it went, in PMIx's numbers.
        status: i32,
        /// What it has put.
        data: Bytes,
    },
    /// Look up what this PE of this host has put, and wait for it if it has not.
    LookUp {
        /// By which it is answered.
        number: u64,
        /// Whose.
        rank: u32,
        /// As above.
        spawned: Option<SpawnedPe>,
    },
    /// The answer to a question about published data.
    Answered {
        /// Of which question.
        number: u64,
        /// About which key.
        key: Bytes,
        /// How it went, in PMIx's numbers.
        status: i32,
        /// What was looked up.
        data: Bytes,
    },
    /// This will be spawned; if here, its PEs will be its own, too. Answered by [`FromMix::Prepared`].
    Prepare {
        /// By which the apshepherd knows it.
        number: u64,
        /// The program.
        spawning: Spawning,
    },
    /// The answer to [`FromMix::Spawn`].
    Spawned {
        /// Of which question.
        number: u64,
        /// How it went, in PMIx's numbers.
        status: i32,
        /// The name of its namespace.
        name: String,
    },
    /// What had this namespace has ended.
    Forget(String),
}

/// What follows from what appmix says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is told.
    Tell(ToMix),
    /// All PEs of this host are in the barrier, with these entries.
    Enter(Vec<PmiEntry>),
    /// MPI_Abort.
    Abort {
        /// Of this PE.
        rank: u32,
        /// With this code.
        code: i32,
    },
    /// Its user is told something about a PE.
    Notice {
        /// Which.
        rank: u32,
        /// What.
        text: String,
    },
    /// The application can't go on: why.
    Garbage(String),
    /// The host of PE `to` is asked, for PE `from` of this one.
    Ask {
        /// A PE of the host that is asked.
        to: u32,
        /// A PE of this host.
        from: u32,
        /// The question.
        text: LetterText,
        /// To whom the answer goes.
        asker: Asker,
    },
    /// This is asked in place of what was asked for this one.
    Instead {
        /// For whom.
        asker: Asker,
        /// The question.
        text: LetterText,
    },
    /// The answer to another host's question.
    Answer(Letter),
}

/// A PE of this host, or one that it has spawned.
type Whose = (u32, Option<SpawnedPe>);

/// PMIx of one host's part of an application.
#[derive(Clone, Debug)]
pub struct Pmix {
    progress: BTreeMap<u32, Progress>,
    width: u32,
    /// No other host has PEs.
    alone: bool,
    /// Bytes that all PEs may give to a fence (variable `pmi_max`).
    most: u64,
    /// Fences of all PEs, the first of which is in the barrier.
    fences: VecDeque<(u64, Bytes)>,
    partial: Partial,
    published: Published,
    /// PEs of this host of whom appmix was asked what they have put, by the number of that question; and whom of other
    /// hosts it is for.
    looked_up: BTreeMap<u64, (Whose, Vec<(u32, u64)>)>,
    last_look_up: u64,
    /// Time limits of questions about published data.
    limits: Limits,
    /// The user was told why something could not be published: each reason once.
    told: BTreeSet<String>,
}

impl Pmix {
    /// For PEs of these ranks, of `width`.
    pub fn new(alone: bool, most: u64, width: u32, ranks: impl IntoIterator<Item = u32>) -> Pmix {
        Pmix {
            progress: ranks.into_iter().map(|rank| (rank, Progress::Outside)).collect(),
            width,
            alone,
            most,
            fences: VecDeque::new(),
            partial: Partial::default(),
            published: Published::default(),
            looked_up: BTreeMap::new(),
            last_look_up: 0,
            limits: Limits::default(),
            told: BTreeSet::new(),
        }
    }

    /// How far a PE is.
    pub fn progress(&self, rank: u32) -> Progress {
        self.progress.get(&rank).copied().unwrap_or_default()
    }

    /// Takes what appmix says at this time.
    pub fn hear(&mut self, now_ns: u64, said: FromMix) -> Vec<Effect> {
        match said {
            // (How it begins is the host's business.)
            FromMix::Serves { .. } | FromMix::Fails { .. } => Vec::new(),
            FromMix::Connected(rank) => self.is_now(rank, Progress::Inside),
            FromMix::Finalized(rank) => self.is_now(rank, Progress::Finalized),
            FromMix::Abort { rank, code } => vec![Effect::Abort { rank, code }],
            // (The apshepherd's own.)
            FromMix::Spawn { .. } | FromMix::Prepared { .. } | FromMix::SpawnedAbort { .. } => {
                Vec::new()
            }
            FromMix::Fence { number, ranks, spawned, data } => {
                self.fence(number, Who { ranks, spawned }, data)
            }
            FromMix::Modex { number, rank, spawned } => {
                let other = rank < self.width && !self.progress.contains_key(&rank);
                if self.alone || !other {
                    let (status, data) = (NOT_FOUND, Bytes::new());
                    return vec![Effect::Tell(ToMix::ModexFound { number, status, data })];
                }
                let (from, asker) = (self.lowest(), Asker::Modex(number));
                vec![Effect::Ask { to: rank, from, text: LetterText::Modex { spawned }, asker }]
            }
            FromMix::Found { number, status, data } => self.found(number, status, data),
            FromMix::Publish { number, key, data, once } => {
                let question = LetterText::PublishData { key: key.clone(), data, once };
                self.about_data(number, key, question, None)
            }
            FromMix::LookUp { number, key, wait, seconds } => {
                let limit = Duration::from_secs(seconds.into());
                let until = (wait && seconds > 0).then(|| now_ns.saturating_add(nanos(limit)));
                let question = LetterText::LookUpData { key: key.clone(), wait };
                self.about_data(number, key, question, until)
            }
            FromMix::Unpublish { number, key } => {
                self.about_data(number, key.clone(), LetterText::UnpublishData(key), None)
            }
        }
    }

    /// When the first time limit of a PE has passed.
    pub fn due_ns(&self) -> Option<u64> {
        self.limits.due_ns()
    }

    /// Time limits have passed. Those of frozen PEs are put off.
    pub fn limits_passed(&mut self, now_ns: u64, frozen: bool) -> Vec<Effect> {
        if frozen {
            self.limits.put_off(now_ns);
        }
        let mut effects = Vec::new();
        for id in self.limits.passed(now_ns) {
            let Some(question) = self.published.run_out(id) else { continue };
            if self.keeps_data() {
                let answers = self.published.asked(Whom::Here(id), question, self.most);
                effects.extend(self.data_answers(answers));
            } else {
                effects.push(Effect::Instead { asker: Asker::Published(id), text: question });
            }
        }
        effects
    }

    /// Takes another host's question.
    pub fn asked(&mut self, letter: Letter) -> Vec<Effect> {
        let Letter { to, from, number, text } = letter;
        match text {
            LetterText::Modex { spawned } => {
                let mut looked_up = self.looked_up.values_mut();
                let whose = (to, spawned);
                if let Some((_, whom)) = looked_up.find(|(one, _)| *one == whose) {
                    if !whom.contains(&(from, number)) && whom.len() < LOOKED_UP_MAX {
                        whom.push((from, number));
                    }
                    return Vec::new();
                }
                if !self.progress.contains_key(&to) || self.looked_up.len() >= LOOKED_UP_MAX {
                    return vec![answer(to, (from, number), NOT_FOUND, Bytes::new())];
                }
                self.last_look_up += 1;
                let (number, whom, (rank, spawned)) =
                    (self.last_look_up, vec![(from, number)], whose.clone());
                self.looked_up.insert(number, (whose, whom));
                vec![Effect::Tell(ToMix::LookUp { number, rank, spawned })]
            }
            LetterText::Fence { ranks, spawned, turn, here, data } => {
                let (who, whom) = (Who { ranks, spawned }, Whom::Host(from, number));
                self.arrive(Arrival { who: &who, turn, here: &here, whom, data })
            }
            LetterText::PublishData { .. }
            | LetterText::LookUpData { .. }
            | LetterText::UnpublishData(_) => {
                if from >= self.width {
                    return Vec::new();
                }
                let answers = self.published.asked(Whom::Host(from, number), text, self.most);
                self.data_answers(answers)
            }
            // (These are not about PMIx.)
            LetterText::Publish { .. }
            | LetterText::LookUp(_)
            | LetterText::Unpublish(_)
            | LetterText::Spawning(_)
            | LetterText::SpawnedEnded(_)
            | LetterText::Answer { .. } => Vec::new(),
        }
    }

    /// The program of this namespace has ended. Questions about data of its PEs are answered: there is none.
    pub fn spawned_ended(&mut self, space: String) -> Vec<Effect> {
        let of_it = |_: &u64, ((_, spawned), _): &mut (Whose, _)| {
            spawned.as_ref().is_some_and(|pe: &SpawnedPe| pe.space == space)
        };
        let ended: Vec<_> = self.looked_up.extract_if(.., of_it).collect();
        self.partial.ended(space);
        let answers = |(_, ((rank, _), whom)): (u64, (Whose, Vec<(u32, u64)>))| {
            whom.into_iter().map(move |whom| answer(rank, whom, NOT_FOUND, Bytes::new()))
        };
        ended.into_iter().flat_map(answers).collect()
    }

    /// appmix's question was answered.
    pub fn answered(&mut self, asker: Asker, status: i32, data: Bytes) -> Vec<Effect> {
        match asker {
            Asker::Published(id) => self.data_answered(id, status, data),
            Asker::Modex(number) => vec![Effect::Tell(ToMix::ModexFound { number, status, data })],
            Asker::Fence(number) => over(number, status, data).collect(),
            Asker::Pe(_) | Asker::Spawning(_) | Asker::Nobody => Vec::new(),
        }
    }

    fn found(&mut self, number: u64, status: i32, data: Bytes) -> Vec<Effect> {
        let Some(((rank, _), whom)) = self.looked_up.remove(&number) else { return Vec::new() };
        let (status, data) = match data.len() {
            0..=LETTER_MAX => (status, data),
            _ => (NO_ROOM, Bytes::new()),
        };
        whom.into_iter().map(|whom| answer(rank, whom, status, data.clone())).collect()
    }

    /// Whether published data is kept here: at PE 0's host.
    fn keeps_data(&self) -> bool {
        self.alone || self.progress.contains_key(&0)
    }

    /// PEs of this host say or ask something about published data, and wait until then at most.
    fn about_data(
        &mut self,
        number: u64,
        key: Bytes,
        question: LetterText,
        until_ns: Option<u64>,
    ) -> Vec<Effect> {
        let Some(id) = self.published.open(number, &question) else {
            let (status, data) = (NO_ROOM, Bytes::new());
            let tell = Effect::Tell(ToMix::Answered { number, key, status, data });
            let publishes = matches!(question, LetterText::PublishData { .. });
            let most = format_size(LETTER_MAX as u64);
            let why = format!("it is larger than {most}, or there are too many of them");
            let notice = publishes.then(|| self.notice_of_room(why)).flatten();
            return [tell].into_iter().chain(notice).collect();
        };
        if let Some(until_ns) = until_ns {
            self.limits.set(id, until_ns);
        }
        if self.keeps_data() {
            let answers = self.published.asked(Whom::Here(id), question, self.most);
            return self.data_answers(answers);
        }
        match self.published.ask(id, &question) {
            true => vec![self.ask_data(id, question)],
            false => Vec::new(),
        }
    }

    fn ask_data(&self, id: u64, text: LetterText) -> Effect {
        Effect::Ask { to: 0, from: self.lowest(), text, asker: Asker::Published(id) }
    }

    fn data_answers(&mut self, answers: Vec<Answered>) -> Vec<Effect> {
        let tell = |(whom, status, data)| match whom {
            Whom::Host(rank, number) => vec![answer(0, (rank, number), status, data)],
            Whom::Here(id) => self.data_answered(id, status, data),
        };
        answers.into_iter().flat_map(tell).collect()
    }

    /// The user is told, once, why something could not be published.
    fn notice_of_room(&mut self, why: String) -> Option<Effect> {
        let text = format!("or another PE of its host can't publish a value by PMIx: {why}");
        self.told.insert(why).then(|| Effect::Notice { rank: self.lowest(), text })
    }

    fn data_answered(&mut self, id: u64, status: i32, data: Bytes) -> Vec<Effect> {
        self.limits.clear(id);
        let (question, next) = self.published.close(id);
        let full =
            status == NO_ROOM && question.as_ref().is_some_and(|question| question.publishes);
        let most = self.most;
        let notice = full.then(|| self.notice_of_room(too_much(most))).flatten();
        let tell = question.map(|Question { number, key, ran_out, .. }| {
            let status = if ran_out && status == NOT_FOUND { TIMED_OUT } else { status };
            ToMix::Answered { number, key, status, data }
        });
        let next = next.map(|(id, question)| self.ask_data(id, question));
        tell.map(Effect::Tell).into_iter().chain(next).chain(notice).collect()
    }

    fn lowest(&self) -> u32 {
        self.progress.keys().next().copied().unwrap_or_default()
    }

    fn is_now(&mut self, rank: u32, progress: Progress) -> Vec<Effect> {
        if let Some(now) = self.progress.get_mut(&rank) {
            *now = progress;
        }
        Vec::new()
    }

    fn fence(&mut self, number: u64, who: Who, data: Bytes) -> Vec<Effect> {
        let ranks = &who.ranks;
        if ranks.iter().any(|rank| *rank >= self.width) {
            // (Ranks that stand for many are none of these.)
            return over(number, NOT_SUPPORTED, Bytes::new()).collect();
        }
        let here = !ranks.is_empty() && ranks.iter().all(|rank| self.progress.contains_key(rank));
        if self.alone || here {
            return match data.len() {
                0..=GIVEN_MAX => over(number, SUCCESS, data).collect(),
                // (appmix has left some of it away.)
                _ => vec![too_much_given(GIVEN_MAX as u64)],
            };
        }
        if !who.ranks.is_empty() || !who.spawned.is_empty() {
            return self.partial_fence(number, who, data);
        }
        let most = self.most.min(GIVEN_MAX as u64);
        if data.len() as u64 > most {
            return vec![too_much_given(most)];
        }
        if self.fences.len() >= WAITING_MAX {
            return vec![Effect::Garbage(format!(
                "has more than {WAITING_MAX} fences of PMIx at the same time"
            ))];
        }
        self.fences.push_back((number, data));
        self.enter_if_first()
    }

    /// A fence of some PEs, who are on several hosts.
    fn partial_fence(&mut self, number: u64, mut who: Who, data: Bytes) -> Vec<Effect> {
        if who.ranks.is_empty() {
            who.ranks = (0..self.width).collect();
        }
        who.ranks.sort_unstable();
        who.ranks.dedup();
        who.spawned.sort_unstable();
        let ranks = &who.ranks;
        let here: Vec<u32> =
            ranks.iter().copied().filter(|rank| self.progress.contains_key(rank)).collect();
        let (Some(lowest), Some(from)) = (ranks.first().copied(), here.first().copied()) else {
            return over(number, NOT_SUPPORTED, Bytes::new()).collect();
        };
        if data.len() > LETTER_MAX {
            return vec![Effect::Garbage(too_large(LETTER_MAX as u64))];
        }
        let turn = match self.partial.enter(&who) {
            Ok(turn) => turn,
            Err(text) => return vec![Effect::Garbage(text)],
        };
        if lowest == from {
            let (who, here, whom) = (&who, &here, Whom::Here(number));
            return self.arrive(Arrival { who, turn, here, whom, data });
        }
        let Who { ranks, spawned } = who;
        let text = LetterText::Fence { ranks, spawned, turn, here, data };
        let letter = Letter { to: lowest, from, number: 0, text };
        if !letter.fits() {
            let text = "is in a fence of PMIx of too many of the PEs: let all take part".to_owned();
            return vec![Effect::Garbage(text)];
        }
        let text = letter.text;
        vec![Effect::Ask { to: lowest, from, text, asker: Asker::Fence(number) }]
    }

    /// PEs of this host or of another one are in a fence that is gathered here.
    fn arrive(&mut self, arrival: Arrival<'_>) -> Vec<Effect> {
        let lowest = arrival.who.ranks.first().copied().unwrap_or_default();
        let most = self.most.min(LETTER_MAX as u64);
        let (end, whom) = match self.partial.arrive(arrival, most) {
            Ok(None) => return Vec::new(),
            Ok(Some(over)) => over,
            Err(text) => return vec![Effect::Garbage(text)],
        };
        let tell = |whom| match whom {
            Whom::Host(rank, number) => {
                vec![answer(lowest, (rank, number), SUCCESS, end.clone())]
            }
            Whom::Here(number) => over(number, SUCCESS, end.clone()).collect(),
        };
        whom.into_iter().flat_map(tell).collect()
    }

    fn enter_if_first(&self) -> Vec<Effect> {
        match &self.fences.front() {
            Some((_, data)) if self.fences.len() == 1 => vec![Effect::Enter(self.entries(data))],
            _ => Vec::new(),
        }
    }

    /// What this host gives, in entries: their keys count up, behind the lowest rank of the host.
    fn entries(&self, data: &Bytes) -> Vec<PmiEntry> {
        let lowest = self.progress.keys().next().copied().unwrap_or_default();
        let piece = |index: usize| {
            let mut key = BytesMut::from(&[0][..]);
            key.extend_from_slice(&lowest.to_be_bytes());
            key.extend_from_slice(&(index as u32).to_be_bytes());
            let from = index * PIECE;
            let value = data.slice(from..data.len().min(from + PIECE));
            PmiEntry { key: key.freeze(), value }
        };
        // (At least one: a barrier of PMI-1 has none of these.)
        (0..data.len().div_ceil(PIECE).max(1)).map(piece).collect()
    }

    /// The barrier is complete on all hosts: what all have given.
    pub fn fence_over(&mut self, mut given: Vec<PmiEntry>) -> Vec<Effect> {
        let Some((number, _)) = self.fences.pop_front() else { return Vec::new() };
        // The pieces of a host follow each other.
        given.sort_by(|a, b| a.key.cmp(&b.key));
        let mut data = BytesMut::new();
        given.iter().for_each(|entry| data.extend_from_slice(&entry.value));
        let mut effects: Vec<Effect> = over(number, SUCCESS, data.freeze()).collect();
        if let Some((_, data)) = self.fences.front() {
            effects.push(Effect::Enter(self.entries(data)));
        }
        effects
    }
}

/// The PEs of a host may give this much to a fence at most.
fn too_much_given(most: u64) -> Effect {
    let cure = match most < GIVEN_MAX as u64 {
        true => format!(", or {}", raise("pmi_max", format_size(most))),
        false => String::new(),
    };
    let most = format_size(most);
    Effect::Garbage(format!(
        "and the others on its host give more than {most} to a fence of PMIx: run fewer PEs on each host{cure}"
    ))
}

/// The end of a fence, in pieces.
fn over(number: u64, status: i32, data: Bytes) -> impl Iterator<Item = Effect> {
    let pieces = data.len().div_ceil(OVER_PIECE).max(1);
    (0..pieces).map(move |index| {
        let data = data.slice(index * OVER_PIECE..data.len().min((index + 1) * OVER_PIECE));
        let last = index + 1 == pieces;
        Effect::Tell(ToMix::FenceOver { number, status, data, last })
    })
}

/// The answer of the host of a PE to another host's question.
fn answer(from: u32, (to, number): (u32, u64), status: i32, data: Bytes) -> Effect {
    Effect::Answer(Letter { to, from, number, text: LetterText::Answer { status, data } })
}

/// Whether an entry of a barrier is a piece of a fence.
pub fn is_of_fence(entry: &PmiEntry) -> bool {
    entry.key.first() == Some(&0)
}

#[cfg(test)]
mod tests;
