//! The written form of a recording: lines of JSON.
//!
//! ```text
//! {"recording":1,"psched":"0.1.0","why":"...","written_ns":...,"steps":2,"snapshot_sha256":"..."}
//! {...}                                                      the scheduler
//! {"now":{...},"told":{"Events":[{"Posted":{...}}]},"gave":{"effects":6,"kinds":...}}
//! {"now":{...},"told":{"Events":["Tick"]},"gave":{"effects":0,"kinds":...}}
//! {"end":2,"sha256":"..."}
//! ```
//!
//! The state is believed only where its checksum is right: the scheduler takes any event, and not any state. A
//! recording that is cut is read up to there; the last line has the checksum of all before it.

use super::{Recording, Step};
use crate::psched::decide::Scheduler;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::{self, BufRead, Read, Write};

/// The number of this form. Another number: nothing of it is read.
pub const FORM: u32 = 1;
/// The longest header or end.
const SHORT_MAX: u64 = 64 << 10;
/// The longest step.
const STEP_MAX: u64 = 64 << 20;
/// The longest state: of a million nodes.
const STATE_MAX: u64 = 1 << 30;

/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORM`].
    pub recording: u32,
    /// The version of the psched that has written it.
    pub psched: String,
    /// For what it was written.
    pub why: String,
    /// When, in nanoseconds since the epoch.
    pub written_ns: u64,
    /// Steps that follow.
    pub steps: usize,
    /// The checksum of the line with the state.
    pub snapshot_sha256: String,
}

/// What is read of a header whose form may be another one.
#[derive(Deserialize)]
struct Any {
    recording: u32,
    #[serde(default)]
    psched: String,
}

/// The last line.
#[derive(Serialize, Deserialize)]
struct End {
    end: usize,
    sha256: String,
}

/// Why a recording can't be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file can't be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It does not begin as one does.
    #[error("this is not a recording of psched: its first line is malformed ({0})")]
    NoRecording(String),
    /// Its form is another one.
    #[error(
        "it was written in form {form} by psched {psched}, and this psched (version {}) reads form {FORM}: replay it \
         with the psched that has written it", env!("CARGO_PKG_VERSION")
    )]
    Form {
        /// Its number.
        form: u32,
        /// Who has written it.
        psched: String,
    },
    /// The state is not what was written.
    #[error("line 2, the state of the scheduler, is damaged: its checksum is wrong")]
    State,
    /// A line has a right checksum, or is whole, and can't be understood.
    #[error(
        "line {line} can't be understood: {why}; it was written by psched {psched}, and this is psched {}",
        env!("CARGO_PKG_VERSION")
    )]
    Line {
        /// Which.
        line: usize,
        /// What is wrong.
        why: String,
        /// Who has written it.
        psched: String,
    },
    /// It ends too soon.
    #[error("it is cut: {told} of {steps} steps are there")]
    Cut {
        /// Those that are there.
        told: usize,
        /// Those that should be.
        steps: usize,
    },
    /// Its last line says that something before it is not what was written.
    #[error("it is damaged: the checksum of the whole is wrong")]
    Damaged,
    /// A recording, and something else behind it.
    #[error("there is more data after its end")]
    More,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn json(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

impl Recording {
    /// Writes it.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, why: &str, written_ns: u64, to: &mut impl Write) -> io::Result<()> {
        let Some(base) = self.base() else { return Ok(()) };
        let state = json(base)?;
        let header = Header {
            recording: FORM,
            psched: env!("CARGO_PKG_VERSION").to_owned(),
            why: why.to_owned(),
            written_ns,
            steps: self.len(),
            snapshot_sha256: hex(&Sha256::digest(&state)),
        };
        let mut sum = Sha256::new();
        let mut put = |line: Vec<u8>| {
            sum.update(&line);
            to.write_all(&line)
        };
        put(json(&header)?)?;
        put(state)?;
        self.steps().try_for_each(|step| put(json(&step)?))?;
        let end = End { end: self.len(), sha256: hex(&sum.finalize()) };
        to.write_all(&json(&end)?)?;
        to.flush()
    }
}

/// A recording that is read step by step.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    sum: Sha256,
    /// Lines read.
    lines: usize,
    header: Header,
    steps: usize,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header and the state.
    ///
    /// # Errors
    /// It is no recording, or not one that this psched reads, or its state is damaged.
    pub fn open(mut from: R) -> Result<(Reader<R>, Scheduler), Unreadable> {
        let first = line(&mut from, SHORT_MAX)?.unwrap_or_default();
        let wrong = |error: serde_json::Error| Unreadable::NoRecording(error.to_string());
        let any: Any = serde_json::from_slice(&first).map_err(wrong)?;
        if any.recording != FORM {
            return Err(Unreadable::Form { form: any.recording, psched: any.psched });
        }
        let header: Header = serde_json::from_slice(&first).map_err(wrong)?;
        let cut = || Unreadable::Cut { told: 0, steps: header.steps };
        let state = line(&mut from, STATE_MAX)?.ok_or_else(cut)?;
        if hex(&Sha256::digest(&state)) != header.snapshot_sha256 {
            return Err(if state.ends_with(b"\n") { Unreadable::State } else { cut() });
        }
        let mut sum = Sha256::new();
        sum.update(&first);
        sum.update(&state);
        let (steps, ended) = (0, false);
        let reader = Reader { from, sum, lines: 2, header, steps, ended };
        let scheduler = serde_json::from_slice(&state).map_err(|error| reader.wrong(error))?;
        Ok((reader, scheduler))
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    fn wrong(&self, error: serde_json::Error) -> Unreadable {
        let psched = self.header.psched.clone();
        Unreadable::Line { line: self.lines, why: error.to_string(), psched }
    }

    fn step(&mut self) -> Result<Option<Step>, Unreadable> {
        let (told, steps) = (self.steps, self.header.steps);
        let cut = || Unreadable::Cut { told, steps };
        let read = line(&mut self.from, STEP_MAX)?.ok_or_else(cut)?;
        if !read.ends_with(b"\n") {
            return Err(cut());
        }
        self.lines += 1;
        if told < steps {
            let step = serde_json::from_slice(&read).map_err(|error| self.wrong(error))?;
            self.sum.update(&read);
            self.steps += 1;
            return Ok(Some(step));
        }
        let end: End = serde_json::from_slice(&read).map_err(|error| self.wrong(error))?;
        let sum = std::mem::take(&mut self.sum);
        if end.end != steps || end.sha256 != hex(&sum.finalize()) {
            return Err(Unreadable::Damaged);
        }
        match line(&mut self.from, 1)? {
            None => Ok(None),
            Some(_) => Err(Unreadable::More),
        }
    }
}

/// The steps; after an error there are no more.
impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Step, Unreadable>;

    fn next(&mut self) -> Option<Result<Step, Unreadable>> {
        if self.ended {
            return None;
        }
        let step = self.step().transpose();
        self.ended = !matches!(step, Some(Ok(_)));
        step
    }
}

/// A line with its end; without one where it is longer than it may be, or the last. None: there are no more.
fn line(from: &mut impl BufRead, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = from.take(most).read_until(b'\n', &mut line)?;
    Ok((read > 0).then_some(line))
}
