//! What the PEs have written, kept until the front end has it.
//!
//! ```text
//!            taken               next                  end        bytes from the start
//! ------------|-------------------|---------------------|
//!   forgotten |  sent, may be     |  waits for room in  |  partial lines (-T)
//!             |  sent again       |  the window         |
//! ```
//!
//! At most a window of bytes (variable `output_max`) is sent and not taken. When as many are kept in all, nothing
//! more is read from the PEs, whose pipes fill, and they wait: that is how a front end that does not
//! read stops its PEs, and how memory stays bounded. After a lost connection everything that isn't
//! taken is sent again, with the same offsets, so that the receiver can tell what it has.
//!
//! How PEs have ended (`aprun --report`) goes the same way, each as a piece of one byte: so it is neither
//! lost nor doubled, and stays behind what that PE's shepherd had read before. There is one for each PE, so
//! that they are bounded too.

use crate::apteam::ending::PeReport;
use crate::apteam::protocol::attach::{Output, REPORT_DATA};
use crate::machine::Nid;
use bytes::{Buf, Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};

/// The longest line that is kept whole, in bytes: a longer one is passed on as it comes.
pub const LINE_MAX: usize = 64 * 1024;
/// Bytes of begun lines, over all PEs: beyond, they are passed on as they come.
pub const PARTIAL_MAX: usize = 4 * 1024 * 1024;
/// Pieces kept, whatever their size: each costs memory beside its bytes, which the variable
/// `output_max` does not count.
pub const PIECES_MAX: usize = 8192;

/// A PE's stdout or stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// Whose.
    pub rank: u32,
    /// Where it is.
    pub nid: Nid,
    /// stderr, else stdout.
    pub stderr: bool,
}

/// All output of one host's part.
#[derive(Clone, Debug, Default)]
pub struct OutputLog {
    /// In whole lines.
    whole_lines: bool,
    /// The most bytes kept.
    window: u64,
    /// Kept pieces in order, contiguous from `taken` to `end`.
    kept: VecDeque<Output>,
    /// How many of them have been sent on this connection.
    sent: usize,
    /// Up to where they have been sent on any.
    sent_max: u64,
    taken: u64,
    end: u64,
    /// Begun lines.
    partial: BTreeMap<Source, BytesMut>,
    partial_bytes: usize,
}

impl OutputLog {
    /// An empty one.
    pub fn new(whole_lines: bool, window: u64) -> OutputLog {
        OutputLog { whole_lines, window, ..OutputLog::default() }
    }

    /// Bytes taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether more should be read from the PEs.
    pub fn wants_more(&self) -> bool {
        self.end - self.taken < self.window && self.kept.len() < PIECES_MAX
    }

    /// Whether all that came has been taken.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.partial_bytes == 0
    }

    /// Takes what a PE wrote.
    pub fn push(&mut self, source: Source, data: Bytes) {
        if !self.whole_lines {
            self.keep(source, data);
            return;
        }
        let lines = data.iter().rposition(|b| *b == b'\n').map_or(0, |last| last + 1);
        let (lines, rest) = (data.slice(..lines), data.slice(lines..));
        if !lines.is_empty() {
            let begun = self.take_partial(source);
            let whole = if begun.is_empty() { lines } else { joined(begun, &lines) };
            self.keep(source, whole);
        }
        if rest.is_empty() {
            return;
        }
        let partial = self.partial.entry(source).or_default();
        partial.extend_from_slice(&rest);
        self.partial_bytes += rest.len();
        if partial.len() > LINE_MAX || self.partial_bytes > PARTIAL_MAX {
            let begun = self.take_partial(source);
            self.keep(source, begun.freeze());
        }
    }

    /// Takes how a PE has ended.
    pub fn report(&mut self, rank: u32, nid: Nid, report: PeReport) {
        self.keep_as(Source { rank, nid, stderr: false }, REPORT_DATA, Some(report));
    }

    /// Nothing more comes from there: an unfinished line goes as it is.
    pub fn end_of(&mut self, source: Source) {
        let begun = self.take_partial(source);
        if !begun.is_empty() {
            self.keep(source, begun.freeze());
        }
    }

    /// The front end has everything up to here.
    pub fn take(&mut self, offset: u64) {
        let offset = offset.clamp(self.taken, self.sent_max.max(self.taken));
        self.taken = offset;
        while let Some(first) = self.kept.front_mut() {
            let had = offset.saturating_sub(first.offset);
            if had < first.data.len() as u64 {
                first.data.advance(had as usize);
                first.offset += had;
                break;
            }
            self.kept.pop_front();
            self.sent = self.sent.saturating_sub(1);
        }
    }

    /// The connection is a new one: everything that is kept is to be sent again.
    pub fn rewind(&mut self) {
        self.sent = 0;
    }

    /// The next piece to send, if the window has room for it.
    pub fn next_piece(&mut self) -> Option<Output> {
        let next = self.kept.get(self.sent)?;
        let end = next.end();
        if end - self.taken > self.window {
            return None;
        }
        self.sent += 1;
        self.sent_max = self.sent_max.max(end);
        Some(next.clone())
    }

    fn take_partial(&mut self, source: Source) -> BytesMut {
        let begun = self.partial.remove(&source).unwrap_or_default();
        self.partial_bytes -= begun.len();
        begun
    }

    fn keep(&mut self, source: Source, data: Bytes) {
        self.keep_as(source, data, None);
    }

    fn keep_as(&mut self, source: Source, data: Bytes, report: Option<PeReport>) {
        let Source { rank, nid, stderr } = source;
        let offset = self.end;
        self.end += data.len() as u64;
        if !data.is_empty() {
            self.kept.push_back(Output { source: 0, offset, rank, nid, stderr, data, report });
        }
    }
}

fn joined(mut begun: BytesMut, rest: &[u8]) -> Bytes {
    begun.extend_from_slice(rest);
    begun.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::ending::PeEnd;
    use proptest::prelude::*;
    use std::time::Duration;

    const WINDOW: u64 = 2 << 20;

    fn source(rank: u32) -> Source {
        Source { rank, nid: Nid(0), stderr: false }
    }

    fn sent(log: &mut OutputLog) -> Vec<(u64, u32, String)> {
        std::iter::from_fn(|| log.next_piece())
            .map(|o| (o.offset, o.rank, String::from_utf8_lossy(&o.data).into_owned()))
            .collect()
    }

    #[test]
    fn lines_stay_whole() {
        let mut log = OutputLog::new(true, WINDOW);
        log.push(source(0), "one\ntw".into());
        log.push(source(1), "uno\n".into());
        log.push(source(0), "o\nthree\nfo".into());
        log.end_of(source(0));
        assert_eq!(
            sent(&mut log),
            [
                (0, 0, "one\n".into()),
                (4, 1, "uno\n".into()),
                (8, 0, "two\nthree\n".into()),
                (18, 0, "fo".into())
            ]
        );
        log.take(20);
        assert!(log.is_empty());
    }

    #[test]
    fn an_overlong_line_goes_as_it_comes() {
        let mut log = OutputLog::new(true, WINDOW);
        log.push(source(0), vec![b'x'; LINE_MAX].into());
        assert_eq!(log.next_piece(), None);
        log.push(source(0), "y".into());
        assert_eq!(log.next_piece().map(|o| o.data.len()), Some(LINE_MAX + 1));
    }

    #[test]
    fn begun_lines_of_many_pes_are_bounded() {
        let mut log = OutputLog::new(true, WINDOW);
        for rank in 0..1000 {
            log.push(source(rank), vec![b'x'; LINE_MAX].into());
            log.sent = log.kept.len();
            assert!(log.partial_bytes <= PARTIAL_MAX);
        }
    }

    #[test]
    fn the_window_bounds_what_is_sent_and_then_what_is_read() {
        let mut log = OutputLog::new(false, WINDOW);
        let piece = 64 * 1024;
        let mut pushed = 0;
        while log.wants_more() {
            log.push(source(0), vec![b'x'; piece].into());
            pushed += piece as u64;
        }
        assert_eq!(pushed, WINDOW);
        log.push(source(0), "one more".into());
        let count = std::iter::from_fn(|| log.next_piece()).count() as u64;
        assert_eq!(count * piece as u64, WINDOW);
        log.take(piece as u64);
        assert_eq!(log.next_piece().map(|o| (o.offset, o.data)), Some((pushed, "one more".into())));
        assert!(log.wants_more());
    }

    #[test]
    fn many_small_pieces_are_bounded_too() {
        let mut log = OutputLog::new(false, WINDOW);
        let count = (0..).take_while(|_| {
            let more = log.wants_more();
            log.push(source(0), "x".into());
            more
        });
        assert_eq!(count.count(), PIECES_MAX);
    }

    #[test]
    fn a_new_connection_gets_what_was_not_taken_and_a_late_word_counts() {
        let mut log = OutputLog::new(false, WINDOW);
        log.push(source(0), "abcd".into());
        log.push(source(0), "efgh".into());
        assert_eq!(sent(&mut log).len(), 2);
        log.take(2);
        log.rewind();
        assert_eq!(sent(&mut log), [(2, 0, "cd".into()), (4, 0, "efgh".into())]);
        log.rewind();
        // The front end had all of it before the connection broke.
        log.take(8);
        assert_eq!(sent(&mut log), []);
        // Nobody can have what was never sent.
        log.push(source(0), "ij".into());
        log.take(100);
        assert_eq!((log.taken(), sent(&mut log)), (8, vec![(8, 0, "ij".into())]));
    }

    #[test]
    fn a_report_has_its_place_among_the_output() {
        let end = PeEnd::Exit(3);
        let report = PeReport { pid: 4711, elapsed: Duration::from_millis(1234), end };
        for whole_lines in [false, true] {
            let mut log = OutputLog::new(whole_lines, WINDOW);
            log.push(source(0), "last words\n".into());
            log.report(0, Nid(7), report);
            log.push(source(1), "more\n".into());
            let pieces: Vec<Output> = std::iter::from_fn(|| log.next_piece()).collect();
            let reports: Vec<_> = pieces.iter().map(|o| (o.offset, o.report)).collect();
            assert_eq!(reports, [(0, None), (11, Some(report)), (12, None)]);
            assert_eq!((pieces[1].rank, pieces[1].nid), (0, Nid(7)));
            // On another connection it comes again, until it is taken.
            log.take(11);
            log.rewind();
            assert_eq!(log.next_piece().and_then(|o| o.report), Some(report));
            log.take(12);
            log.rewind();
            assert_eq!(log.next_piece().map(|o| (o.offset, o.report)), Some((12, None)));
        }
    }

    /// However many there are, no more are sent ahead than the window holds.
    #[test]
    fn reports_wait_for_room_in_the_window() {
        let mut log = OutputLog::new(false, 4);
        let report = PeReport { pid: 1, elapsed: Duration::ZERO, end: PeEnd::Exit(0) };
        (0..10).for_each(|rank| log.report(rank, Nid(0), report));
        assert!(!log.wants_more());
        let mut came = Vec::new();
        for taken in [4, 8, 10] {
            came.extend(std::iter::from_fn(|| log.next_piece()).map(|o| o.rank));
            assert_eq!(came.len() as u64, taken);
            log.take(taken);
        }
        assert!(came.into_iter().eq(0..10) && log.is_empty());
    }

    proptest! {
        #[test]
        fn every_byte_comes_once_and_in_order(
            whole_lines: bool,
            steps in prop::collection::vec((0u32..3, "[a\n]{0,9}", 0u64..12, any::<bool>()), 0..60),
        ) {
            let mut log = OutputLog::new(whole_lines, WINDOW);
            let mut wrote = BTreeMap::<u32, String>::new();
            let mut got = BTreeMap::<u32, String>::new();
            let mut have = 0;
            let mut receive = |log: &mut OutputLog, have: &mut u64| {
                while let Some(o) = log.next_piece() {
                    assert!(o.offset <= *have, "a gap");
                    let skip = (*have - o.offset).min(o.data.len() as u64) as usize;
                    let new = String::from_utf8_lossy(&o.data[skip..]);
                    got.entry(o.rank).or_default().push_str(&new);
                    *have = (*have).max(o.offset + o.data.len() as u64);
                }
            };
            for (rank, text, take, broken) in steps {
                wrote.entry(rank).or_default().push_str(&text);
                log.push(source(rank), text.into());
                if broken {
                    log.rewind();
                }
                receive(&mut log, &mut have);
                log.take(take.min(have));
            }
            for rank in 0..3 {
                log.end_of(source(rank));
            }
            receive(&mut log, &mut have);
            log.take(have);
            prop_assert!(log.is_empty());
            got.retain(|_, text| !text.is_empty());
            wrote.retain(|_, text| !text.is_empty());
            prop_assert_eq!(got, wrote);
        }
    }
}
