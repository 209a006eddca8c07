//! PMI-1, the protocol by which the ranks of an MPI program find one another.
//!
//! Each PE has a socket to its shepherd (PMI_FD) and sends lines, `cmd=put kvsname=K key=k value=v`;
//! nearly each has one line for an answer. Between them the PEs fill a space of keys and values:
//! everybody puts how to reach him, all wait in a barrier, everybody gets what he wants to know.
//!
//! ```text
//! PE                                      shepherd
//! cmd=init pmi_version=1 pmi_subversion=1
//!                                         cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
//! cmd=put kvsname=psched_12_1 key=P0 value=tcp#10.0.0.1
//!                                         cmd=put_result rc=0 msg=success
//! cmd=barrier_in                          (when all are there)
//!                                         cmd=barrier_out rc=0
//! cmd=get kvsname=psched_12_1 key=P1
//!                                         cmd=get_result rc=0 msg=success value=tcp#10.0.0.2
//! cmd=finalize
//!                                         cmd=finalize_ack rc=0
//! ```
//!
//! Across hosts it is the barrier that carries the keys: what the PEs of a host have put since the
//! last one goes up with their arrival, and what all hosts have put comes down with the leave to go
//! on. On a lone host the barrier ends here.
//!
//! Barriers are counted. An apinit may die with an arrival or a leave in its hands, and all of it is
//! said again to the next one: a leave for another barrier than the one that the PEs are in has no
//! effect. What the PEs here had put for the last barrier that they have left is kept until the next
//! is over as well: another host may still be in it, and the head that knew has died.
//!
//! A fence of PMIx ([`super::pmix`]) is a barrier of its own with entries of its own ([`Pmi::fence`]): PEs are in one or
//! the other.
//!
//! What isn't PMI-1 is [`Effect::Garbage`], and ends that application and nothing else: a client
//! that waits for an answer to something that nobody understands would wait for ever. Everything is
//! bounded: lines, keys, values, and the whole space.

mod spawn;

use super::pmix;
use super::spawn::Request;
use crate::apteam::protocol::letters::{Letter, LetterText};
use crate::apteam::protocol::peers::{BarrierIn, BarrierOut, PMI_ENTRY_COST, PmiEntry};
use crate::variables::raise;
use crate::variables::units::{about, format_size};
use bytes::Bytes;
use spawn::{Reading, Reads};
use std::collections::BTreeMap;

/// The longest line that is read, in bytes. MPICH's own are at most 4,096.
pub const LINE_MAX: usize = 16 * 1024;
/// The longest name of a key-value space, as get_maxes tells it.
pub const NAME_MAX: usize = 256;
/// The longest key.
pub const KEY_MAX: usize = 64;
/// The longest value.
pub const VALUE_MAX: usize = 1024;
/// Bytes of keys and values (as [`PmiEntry::cost`] has them) that the PEs of one host may put
/// between two barriers: they must fit in a frame.
pub const FRESH_MAX: usize = 4 * 1024 * 1024;
/// Why a barrier of the one while a fence of the other waits can't be served.
const BOTH: &str = "a barrier of PMI-1 and a fence of PMIx at the same time";
/// What is said of a PE that asks for another version.
const VERSION: &str = "asked for a PMI that psched does not serve (PMI-2): if it goes on, it is a world of its own (its MPI \
                       library has to use PMI-1 or PMIx)";
/// As much of a bad line as a message shows.
const SHOWN_MAX: usize = 64;

/// How far a PE is with MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Progress {
    /// It has not said init.
    #[default]
    Outside,
    /// After init: an exit now is one without finalize.
    Inside,
    /// After finalize.
    Finalized,
}

/// What follows from a PE's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// To be sent to this PE.
    Reply(u32, Bytes),
    /// All PEs of this host are in the barrier, and the others are to be asked.
    BarrierIn(BarrierIn),
    /// A fence is over: the entries of all hosts.
    FenceOver(Vec<PmiEntry>),
    /// MPI_Abort.
    Abort { rank: u32, code: i32 },
    /// Not the protocol. Nothing more is read from this PE.
    Garbage { rank: u32, text: String },
    /// A line for the user.
    Notice { rank: u32, text: String },
    /// PE 0's host is asked, for this PE.
    Ask { rank: u32, text: LetterText },
    /// The answer to another host's question.
    Answer(Letter),
    /// MPI_Comm_spawn, which [`Pmi::spawned`] answers.
    Spawn { rank: u32, request: Request },
}

/// One PE's connection.
#[derive(Clone, Debug, Default)]
struct Client {
    progress: Progress,
    /// Which of the application's programs it runs, from 0.
    appnum: usize,
    /// Bytes without their newline yet.
    begun: Vec<u8>,
    /// It waits in the barrier.
    waits: bool,
    /// It has sent garbage.
    dead: bool,
    /// A request to spawn programs has begun.
    request: Option<Reading>,
    /// A request waits for its answer.
    spawns: bool,
    /// It waits for what PE 0's host says about a name.
    asks: Option<NameQuestion>,
}

/// What a PE wants with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameQuestion {
    Publish,
    LookUp,
    Unpublish,
}

/// The server of one host's part of an application.
#[derive(Clone, Debug)]
pub struct Pmi {
    name: String,
    width: u32,
    /// What MPI_UNIVERSE_SIZE is.
    universe: u32,
    mapping: String,
    /// No other host has PEs.
    alone: bool,
    /// Bytes that the space may hold.
    space_max: u64,
    /// It was told that something is full.
    full_told: bool,
    /// The user was told that a PE has asked for another version.
    version_told: bool,
    clients: BTreeMap<u32, Client>,
    space: BTreeMap<Bytes, Bytes>,
    space_bytes: usize,
    /// Bytes of requests that have begun and are not whole.
    requests_bytes: usize,
    /// Put since the last barrier.
    fresh: BTreeMap<Bytes, Bytes>,
    fresh_bytes: usize,
    /// Names that PEs have published, with their ports.
    names: BTreeMap<Bytes, Bytes>,
    /// What each PE of another host was told last about a name, by the number of its question, which may come twice.
    names_answered: BTreeMap<u32, (u64, i32)>,
    /// How many PEs wait in the barrier.
    waiting: usize,
    /// How many barriers they have left.
    passed: u64,
    /// What they had put for the last of those, where there are other hosts.
    last: Vec<PmiEntry>,
    /// Pieces of the leave that have come for the barrier that they are in.
    pieces: u32,
    /// The barrier that they are in is a fence of PMIx, for which these were put.
    fence: Option<Vec<PmiEntry>>,
    /// What has come of its leave.
    gathered: Vec<PmiEntry>,
}

impl Pmi {
    /// The server for PEs of these ranks, of `width` in the whole application. `name` is that of
    /// its key-value space, `mapping` the value of PMI_process_mapping (empty: none), `space_max` how
    /// many bytes of keys and values it may hold (as [`PmiEntry::cost`] has them; variable
    /// `pmi_max`).
    pub fn new(
        name: String,
        width: u32,
        mapping: String,
        alone: bool,
        space_max: u64,
        ranks: impl IntoIterator<Item = u32>,
    ) -> Pmi {
        Pmi {
            name,
            width,
            universe: width,
            mapping,
            alone,
            space_max,
            full_told: false,
            version_told: false,
            clients: ranks.into_iter().map(|r| (r, Client::default())).collect(),
            space: BTreeMap::new(),
            space_bytes: 0,
            requests_bytes: 0,
            fresh: BTreeMap::new(),
            fresh_bytes: 0,
            names: BTreeMap::new(),
            names_answered: BTreeMap::new(),
            waiting: 0,
            passed: 0,
            last: Vec::new(),
            pieces: 0,
            fence: None,
            gathered: Vec::new(),
        }
    }

    /// The same, of an application of several programs: `appnum` says which one a rank runs, from 0.
    #[must_use]
    pub fn with_appnums(mut self, appnum: impl Fn(u32) -> usize) -> Pmi {
        for (rank, client) in &mut self.clients {
            client.appnum = appnum(*rank);
        }
        self
    }

    /// The same server with this MPI_UNIVERSE_SIZE. Without this call it is the width.
    #[must_use]
    pub fn with_universe(self, universe: u32) -> Pmi {
        Pmi { universe, ..self }
    }

    /// The same server, with these entries in its key-value space from the beginning.
    #[must_use]
    pub fn with_entries(mut self, entries: &[PmiEntry]) -> Pmi {
        for PmiEntry { key, value } in entries {
            // (An Err: there is no room. The PE that asks for it is told.)
            let _ = self.insert(key.clone(), value.clone());
        }
        self
    }

    /// How far a PE is.
    pub fn progress(&self, rank: u32) -> Progress {
        self.clients.get(&rank).map_or(Progress::Outside, |c| c.progress)
    }

    /// What an apinit that has just come has to know: the last barrier that the PEs have left, and
    /// the one that all of them are in.
    pub fn barriers(&self) -> Vec<BarrierIn> {
        if self.alone {
            return Vec::new();
        }
        let left = BarrierIn { generation: self.passed, entries: self.last.clone() };
        let inside = self.all_wait().then(|| self.arrival());
        (self.passed > 0).then_some(left).into_iter().chain(inside).collect()
    }

    fn all_wait(&self) -> bool {
        self.fence.is_some() || self.all_in_barrier()
    }

    fn all_in_barrier(&self) -> bool {
        self.waiting > 0 && self.waiting == self.clients.len()
    }

    fn arrival(&self) -> BarrierIn {
        let entries = self.fence.clone().unwrap_or_else(|| self.fresh_entries());
        BarrierIn { generation: self.passed + 1, entries }
    }

    /// All PEs of this host are in a fence of PMIx, to which they give these; [`Effect::FenceOver`] is its end.
    pub fn fence(&mut self, entries: Vec<PmiEntry>) -> Vec<Effect> {
        if self.alone {
            return vec![Effect::FenceOver(entries)];
        }
        if self.all_in_barrier() {
            let rank = self.clients.keys().next().copied().unwrap_or_default();
            return vec![Effect::Garbage { rank, text: BOTH.to_owned() }];
        }
        self.fence = Some(entries);
        vec![Effect::BarrierIn(self.arrival())]
    }

    /// Takes bytes of a PE, cut anywhere.
    pub fn read(&mut self, rank: u32, mut bytes: &[u8]) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some(client) = self.clients.get_mut(&rank) {
            if client.dead {
                break;
            }
            let end = bytes.iter().position(|b| *b == b'\n');
            let more = end.unwrap_or(bytes.len());
            if client.begun.len() + more > LINE_MAX {
                self.garbage(rank, format!("a line of more than {LINE_MAX} bytes"), &mut effects);
                break;
            }
            client.begun.extend_from_slice(&bytes[..more]);
            let Some(end) = end else { break };
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut client.begun);
            if let Err(text) = self.line(rank, &line, &mut effects) {
                self.garbage(rank, text, &mut effects);
            }
        }
        effects
    }

    /// A piece of the leave: the barrier is complete on all hosts, and these were put for it.
    pub fn barrier_out(&mut self, out: BarrierOut) -> Vec<Effect> {
        if self.alone || !self.all_wait() || out.generation != self.passed + 1 {
            // Said again, and they have left already.
            return Vec::new();
        }
        if out.piece == 0 {
            self.pieces = 0;
            self.gathered.clear();
        }
        if out.piece != self.pieces {
            return Vec::new();
        }
        self.pieces += 1;
        for entry in out.entries {
            let refused = match (self.fence.is_some(), pmix::is_of_fence(&entry)) {
                (true, true) => {
                    self.gathered.push(entry);
                    continue;
                }
                (false, false) => match self.insert(entry.key, entry.value) {
                    Ok(()) => continue,
                    Err(Full) => too_much(self.space_max),
                },
                _ => BOTH.to_owned(),
            };
            let rank = self.clients.keys().next().copied().unwrap_or_default();
            return vec![Effect::Garbage { rank, text: refused }];
        }
        if out.last { self.let_out() } else { Vec::new() }
    }

    fn let_out(&mut self) -> Vec<Effect> {
        if let Some(entries) = self.fence.take() {
            self.last = entries;
            self.passed += 1;
            self.pieces = 0;
            return vec![Effect::FenceOver(std::mem::take(&mut self.gathered))];
        }
        if !self.alone {
            self.last = self.fresh_entries();
        }
        self.passed += 1;
        self.pieces = 0;
        self.fresh.clear();
        self.fresh_bytes = 0;
        self.waiting = 0;
        let waiting = self.clients.iter_mut().filter(|(_, c)| c.waits);
        waiting
            .map(|(rank, client)| {
                client.waits = false;
                Effect::Reply(*rank, Bytes::from_static(b"cmd=barrier_out rc=0\n"))
            })
            .collect()
    }

    fn fresh_entries(&self) -> Vec<PmiEntry> {
        let entry =
            |(key, value): (&Bytes, &Bytes)| PmiEntry { key: key.clone(), value: value.clone() };
        self.fresh.iter().map(entry).collect()
    }

    fn garbage(&mut self, rank: u32, text: String, effects: &mut Vec<Effect>) {
        if let Some(client) = self.clients.get_mut(&rank) {
            client.dead = true;
            client.begun = Vec::new();
        }
        effects.push(Effect::Garbage { rank, text });
    }

    fn line(&mut self, rank: u32, line: &[u8], effects: &mut Vec<Effect>) -> Result<(), String> {
        let Some(client) = self.clients.get_mut(&rank) else { return Ok(()) };
        if let Some(reading) = &mut client.request {
            let before = reading.bytes();
            let read = reading.line(line)?;
            self.requests_bytes += reading.bytes() - before;
            if self.requests_bytes as u64 > self.space_max {
                return Err("a spawn that is too large beside those of other PEs".into());
            }
            if read == Reads::All {
                self.requests_bytes -= reading.bytes();
                let request = client.request.take().map(Reading::end).unwrap_or_default();
                client.spawns = true;
                effects.push(Effect::Spawn { rank, request });
            }
            return Ok(());
        }
        let words = Words::parse(line)?;
        match (words.first, words.command) {
            (b"mcmd", b"spawn") => {
                if client.spawns {
                    return Err("a spawn before the last one was answered".into());
                }
                client.request = Some(Reading::default());
                Ok(())
            }
            (b"cmd", command) => self.command(rank, command, &words, effects),
            _ => Err(format!("{} is not a command", shown(line))),
        }
    }

    fn command(
        &mut self,
        rank: u32,
        command: &[u8],
        words: &Words<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let Some(client) = self.clients.get_mut(&rank) else { return Ok(()) };
        let answer: String = match command {
            b"init" => {
                // Version 1.1 is the only one there is; a client of another is told so by rc, and goes without.
                let known = words.get(b"pmi_version") == Some(b"1");
                if known {
                    client.progress = Progress::Inside;
                } else if !std::mem::replace(&mut self.version_told, true) {
                    effects.push(Effect::Notice { rank, text: VERSION.into() });
                }
                let rc = if known { 0 } else { -1 };
                format!("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={rc}\n")
            }
            b"get_maxes" => format!(
                "cmd=maxes rc=0 kvsname_max={NAME_MAX} keylen_max={KEY_MAX} vallen_max={VALUE_MAX}\n"
            ),
            b"get_appnum" => format!("cmd=appnum rc=0 appnum={}\n", client.appnum),
            b"get_my_kvsname" => format!("cmd=my_kvsname rc=0 kvsname={}\n", self.name),
            b"get_universe_size" => format!("cmd=universe_size rc=0 size={}\n", self.universe),
            b"put" => self.put(rank, words, effects)?,
            b"get" => return self.get(rank, words, effects),
            b"getbyidx" => "cmd=getbyidx_results rc=-1 reason=not_supported\n".into(),
            b"create_kvs" => "cmd=newkvs rc=-1 msg=not_supported\n".into(),
            b"destroy_kvs" => "cmd=kvs_destroyed rc=0\n".into(),
            b"publish_name" => return self.name(rank, NameQuestion::Publish, words, effects),
            b"lookup_name" => return self.name(rank, NameQuestion::LookUp, words, effects),
            b"unpublish_name" => return self.name(rank, NameQuestion::Unpublish, words, effects),
            b"barrier_in" => {
                if client.waits {
                    return Err("barrier_in twice without a barrier_out between".into());
                }
                client.waits = true;
                self.waiting += 1;
                if self.waiting == self.clients.len() {
                    if self.fence.is_some() {
                        return Err(BOTH.into());
                    }
                    if self.alone {
                        effects.extend(self.let_out());
                    } else {
                        effects.push(Effect::BarrierIn(self.arrival()));
                    }
                }
                return Ok(());
            }
            b"finalize" => {
                client.progress = Progress::Finalized;
                "cmd=finalize_ack rc=0\n".into()
            }
            b"abort" => {
                let code = words.number(b"exitcode")?.unwrap_or(1);
                effects.push(Effect::Abort { rank, code });
                return Ok(());
            }
            other => return Err(format!("the unknown command {}", shown(other))),
        };
        effects.push(Effect::Reply(rank, answer.into()));
        Ok(())
    }

    fn put(
        &mut self,
        rank: u32,
        words: &Words<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<String, String> {
        let key = words.get(b"key").ok_or("a put without a key")?;
        let value = words.get(b"value").ok_or("a put without a value")?;
        let size = key.len() + value.len() + PMI_ENTRY_COST;
        let refusal = if !self.is_ours(words) {
            "unknown_kvsname"
        } else if key.len() > KEY_MAX {
            "key_too_long"
        } else if value.len() > VALUE_MAX {
            "value_too_long"
        } else if self.fresh_bytes + size > FRESH_MAX {
            self.tell_full(
                rank,
                format_args!(
                    "the PEs of a host may put {} between two barriers: put less, or put a barrier \
                     in between",
                    about(FRESH_MAX as u64)
                ),
                effects,
            );
            "kvs_full"
        } else {
            let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
            match self.insert(key.clone(), value.clone()) {
                Err(Full) => {
                    self.tell_full(rank, format_args!("{}", too_much(self.space_max)), effects);
                    "kvs_full"
                }
                Ok(()) => {
                    // A key put twice is counted twice, which errs on the safe side.
                    self.fresh_bytes += size;
                    self.fresh.insert(key, value);
                    return Ok("cmd=put_result rc=0 msg=success\n".into());
                }
            }
        };
        Ok(format!("cmd=put_result rc=-1 msg={refusal}\n"))
    }

    /// The program sees only that a put has failed: why, its user is told, once.
    fn tell_full(&mut self, rank: u32, why: std::fmt::Arguments<'_>, effects: &mut Vec<Effect>) {
        if !std::mem::replace(&mut self.full_told, true) {
            let text = format!("can't put a key and its value by PMI: {why}");
            effects.push(Effect::Notice { rank, text });
        }
    }

    // ---- names ----

    /// A PE says something about a name. They are kept at PE 0's host: there is no barrier that would bring them to all.
    fn name(
        &mut self,
        rank: u32,
        question: NameQuestion,
        words: &Words<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let word = |key: &str| {
            let value = words.get(key.as_bytes()).map(Bytes::copy_from_slice);
            value.ok_or_else(|| format!("a question about a name without a {key}"))
        };
        let name = word("service")?;
        let text = match question {
            NameQuestion::Publish => LetterText::Publish { name, port: word("port")? },
            NameQuestion::LookUp => LetterText::LookUp(name),
            NameQuestion::Unpublish => LetterText::Unpublish(name),
        };
        if self.alone || self.clients.contains_key(&0) {
            let (status, port) = self.names_say(&text);
            if status == FULL {
                self.tell_full(rank, format_args!("{}", too_much(self.space_max)), effects);
            }
            effects.push(Effect::Reply(rank, question.reply(status, &port)));
            return Ok(());
        }
        let Some(client) = self.clients.get_mut(&rank) else { return Ok(()) };
        if client.asks.replace(question).is_some() {
            return Err("a question about a name before the last one was answered".into());
        }
        effects.push(Effect::Ask { rank, text });
        Ok(())
    }

    /// What is done about a name: how it went, and the port that it stands for.
    fn names_say(&mut self, text: &LetterText) -> (i32, Bytes) {
        let none = |status| (status, Bytes::new());
        match text {
            LetterText::Publish { name, port } => {
                let size = name.len() + port.len() + PMI_ENTRY_COST;
                if self.names.contains_key(name) {
                    return none(DUPLICATE);
                }
                if (self.space_bytes + size) as u64 > self.space_max {
                    return none(FULL);
                }
                self.space_bytes += size;
                self.names.insert(name.clone(), port.clone());
                none(0)
            }
            LetterText::LookUp(name) => match self.names.get(name) {
                Some(port) => (0, port.clone()),
                None => none(UNKNOWN),
            },
            LetterText::Unpublish(name) => match self.names.remove(name) {
                Some(port) => {
                    self.space_bytes -= name.len() + port.len() + PMI_ENTRY_COST;
                    none(0)
                }
                None => none(UNKNOWN),
            },
            _ => none(UNKNOWN),
        }
    }

    /// (At PE 0's host.) A PE of another host says something about a name, perhaps again.
    pub fn asked(&mut self, letter: Letter) -> Vec<Effect> {
        let Letter { to, from, number, text } = letter;
        if from >= self.width {
            return Vec::new();
        }
        let last = self.names_answered.get(&from).filter(|(last, _)| *last >= number);
        let (status, data) = match (last, &text) {
            // (It waits for this one no more.)
            (Some((last, _)), _) if *last > number => return Vec::new(),
            (Some((_, status)), LetterText::Publish { .. } | LetterText::Unpublish(_)) => {
                (*status, Bytes::new())
            }
            _ => self.names_say(&text),
        };
        self.names_answered.insert(from, (number, status));
        let text = LetterText::Answer { status, data };
        vec![Effect::Answer(Letter { to: from, from: to, number, text })]
    }

    /// What a PE wanted to spawn runs (its codes are then all 0), or does not.
    pub fn spawned(&mut self, rank: u32, runs: bool) -> Vec<Effect> {
        let waits = self.clients.get_mut(&rank).map(|client| std::mem::take(&mut client.spawns));
        let answer = match runs {
            true => "cmd=spawn_result rc=0\n",
            false => "cmd=spawn_result rc=-1 msg=not_spawned\n",
        };
        waits
            .filter(|waits| *waits)
            .map(|_| Effect::Reply(rank, answer.into()))
            .into_iter()
            .collect()
    }

    /// PE 0's host has answered this PE's question.
    pub fn answered(&mut self, rank: u32, status: i32, port: &[u8]) -> Vec<Effect> {
        let question = self.clients.get_mut(&rank).and_then(|client| client.asks.take());
        let mut effects = Vec::new();
        if let Some(question) = question {
            if status == FULL {
                self.tell_full(rank, format_args!("{}", too_much(self.space_max)), &mut effects);
            }
            effects.push(Effect::Reply(rank, question.reply(status, port)));
        }
        effects
    }

    fn get(&self, rank: u32, words: &Words<'_>, effects: &mut Vec<Effect>) -> Result<(), String> {
        let key = words.get(b"key").ok_or("a get without a key")?;
        let mapping = self.mapping.as_bytes();
        let found = if !self.is_ours(words) {
            None
        } else if key == b"PMI_process_mapping" {
            // Without it, or when it is longer than a value may be, MPICH goes by host names.
            Some(mapping).filter(|m| !m.is_empty() && m.len() <= VALUE_MAX)
        } else {
            self.space.get(key).map(|v| &v[..])
        };
        let answer = match found {
            Some(value) => [b"cmd=get_result rc=0 msg=success value=", value, b"\n"].concat(),
            None => b"cmd=get_result rc=-1 msg=key_not_found value=unknown\n".to_vec(),
        };
        effects.push(Effect::Reply(rank, answer.into()));
        Ok(())
    }

    /// Whether a command means our key-value space: by its name, or by none.
    fn is_ours(&self, words: &Words<'_>) -> bool {
        words.get(b"kvsname").is_none_or(|name| name == self.name.as_bytes())
    }

    fn insert(&mut self, key: Bytes, value: Bytes) -> Result<(), Full> {
        let cost = |value: &Bytes| key.len() + value.len() + PMI_ENTRY_COST;
        let old = self.space.get(&key).map_or(0, cost);
        let size = self.space_bytes - old + cost(&value);
        if size as u64 > self.space_max {
            return Err(Full);
        }
        self.space_bytes = size;
        self.space.insert(key, value);
        Ok(())
    }
}

/// What is said of a name beside 0, that it went well.
const UNKNOWN: i32 = 1;
const DUPLICATE: i32 = 2;
const FULL: i32 = 3;

impl NameQuestion {
    fn reply(self, status: i32, port: &[u8]) -> Bytes {
        let what = match self {
            NameQuestion::Publish => "publish",
            NameQuestion::LookUp => "lookup",
            NameQuestion::Unpublish => "unpublish",
        };
        let refusal = match status {
            0 => None,
            DUPLICATE => Some("duplicate_service"),
            FULL => Some("kvs_full"),
            _ => Some("service_not_found"),
        };
        // (MPICH of old looks at `info`, that of today at `rc`.)
        let mut line = match refusal {
            None => format!("cmd={what}_result info=ok rc=0 msg=success"),
            Some(msg) => format!("cmd={what}_result info={msg} rc=-1 msg={msg}"),
        };
        if self == NameQuestion::LookUp && status == 0 {
            // (It has come as text, or as what only a hostile program makes of it.)
            line += &format!(" port={}", String::from_utf8_lossy(port));
        }
        line.push('\n');
        line.into()
    }
}

/// The key-value space holds as many bytes as it may.
struct Full;

/// A line, taken apart.
struct Words<'a> {
    /// `cmd` or `mcmd`.
    first: &'a [u8],
    /// What it is set to.
    command: &'a [u8],
    /// The others.
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    fn parse(line: &'a [u8]) -> Result<Words<'a>, String> {
        let mut words = words(line);
        let is_no_command = || format!("{} is not a command", shown(line));
        let (first, command) = words.next().and_then(cut).ok_or_else(is_no_command)?;
        if first != b"cmd" && first != b"mcmd" {
            return Err(is_no_command());
        }
        if let Some(bad) = words.find(|word| cut(word).is_none()) {
            return Err(format!("{} in a command, where key=value belongs", shown(bad)));
        }
        Ok(Words { first, command, rest: line })
    }

    fn get(&self, key: &[u8]) -> Option<&'a [u8]> {
        words(self.rest).filter_map(cut).find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    fn number(&self, key: &[u8]) -> Result<Option<i32>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
        number.map(Some).ok_or_else(|| format!("{} where a number belongs", shown(value)))
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| *b == b' ').filter(|word| !word.is_empty())
}

fn cut(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = word.iter().position(|b| *b == b'=')?;
    Some((&word[..at], &word[at + 1..]))
}

/// Why no more keys and values are taken.
pub fn too_much(space_max: u64) -> String {
    let most = format_size(space_max);
    let cure = raise("pmi_max", &most);
    format!("the keys and values of all PEs may take {most}: put fewer, or {cure}")
}

/// Foreign bytes, fit for a message: short, and nothing that a terminal obeys.
fn shown(bytes: &[u8]) -> String {
    let text = bytes[..bytes.len().min(SHOWN_MAX)].escape_ascii();
    let more = if bytes.len() > SHOWN_MAX { "..." } else { "" };
    format!("\"{text}{more}\"")
}

#[cfg(test)]
mod tests;
