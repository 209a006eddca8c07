//! Which output has come, and which has been written.

use crate::apteam::protocol::attach::{Output, OutputTaken};
use std::collections::{BTreeMap, VecDeque};

/// How many bytes may have been written and not yet been reported as taken, while more is waiting
/// to be written: a report for each small piece would cost more than the piece.
pub const REPORT_BYTES: u64 = 128 * 1024;

/// The most sources, one for each host.
const SOURCES_MAX: usize = 1 << 16;

/// Output of all sources.
#[derive(Debug, Default)]
pub struct Received(BTreeMap<u32, Source>);

#[derive(Debug, Default)]
struct Source {
    /// Bytes that have come.
    received: u64,
    /// Bytes from the start without a gap that are written.
    written: u64,
    /// Bytes that have been reported as taken.
    reported: u64,
    /// Ends of the pieces that have come and are not written, or are written with an older one that
    /// is not: stdout may be stuck while stderr flows.
    pieces: VecDeque<(u64, bool)>,
}

/// What a piece of output is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// To be written: what is new of it.
    New(Output),
    /// Nothing new.
    Known,
    /// Nothing new, and written: the apinit has not heard that, or could make nothing of it before it
    /// had this piece itself.
    Written(OutputTaken),
    /// So many bytes before it never came.
    Hole(u64),
}

impl Received {
    /// Takes a piece. One after a hole is not taken.
    pub fn take(&mut self, mut output: Output) -> Came {
        if self.0.len() >= SOURCES_MAX && !self.0.contains_key(&output.source) {
            return Came::Known;
        }
        let number = output.source;
        let source = self.0.entry(number).or_default();
        let end = output.end();
        if end <= source.received || output.data.is_empty() {
            return match end <= source.written && !output.data.is_empty() {
                true => Came::Written(OutputTaken { source: number, offset: source.written }),
                false => Came::Known,
            };
        }
        if output.offset > source.received {
            return Came::Hole(output.offset - source.received);
        }
        let known = (source.received - output.offset) as usize;
        // `known` is less than the length, since the end is beyond what was received.
        output.data = output.data.split_off(known.min(output.data.len()));
        output.offset += known as u64;
        source.received = end;
        source.pieces.push_back((end, false));
        Came::New(output)
    }

    /// What lies before this offset of a source never comes: it counts as written.
    pub fn give_up(&mut self, source: u32, offset: u64) {
        let Some(at) = self.0.get_mut(&source).filter(|at| offset > at.received) else { return };
        at.received = offset;
        at.pieces.push_back((offset, true));
        at.advance();
    }

    /// A piece has been written; what is now to be reported to an apinit that hears, if anything.
    pub fn written(&mut self, source: u32, end: u64, hears: bool) -> Option<OutputTaken> {
        let at = self.0.get_mut(&source)?;
        let piece = at.pieces.binary_search_by_key(&end, |(end, _)| *end).ok()?;
        at.pieces[piece].1 = true;
        at.advance();
        let unreported = at.written - at.reported;
        if !hears || unreported == 0 || unreported < REPORT_BYTES && !at.pieces.is_empty() {
            return None;
        }
        Some(at.report(source))
    }

    /// What has been written and not reported: an apinit that hears again is told. It repeats none
    /// of it, so that no piece that comes would bring it to mind.
    pub fn unreported(&mut self) -> Vec<OutputTaken> {
        let late = self.0.iter_mut().filter(|(_, at)| at.reported < at.written);
        late.map(|(source, at)| at.report(*source)).collect()
    }

    /// All that has come is written.
    pub fn is_written(&self) -> bool {
        self.0.values().all(|s| s.pieces.is_empty())
    }

    /// What has been written, of all sources: for a resumption.
    pub fn taken(&mut self) -> Vec<OutputTaken> {
        self.0.iter_mut().map(|(source, at)| at.report(*source)).collect()
    }
}

impl Source {
    /// All that is written, which counts as reported with this.
    fn report(&mut self, source: u32) -> OutputTaken {
        self.reported = self.written;
        OutputTaken { source, offset: self.written }
    }

    fn advance(&mut self) {
        while let Some((end, true)) = self.pieces.front() {
            self.written = *end;
            self.pieces.pop_front();
        }
    }
}
