//! Output that is kept until it is written out.

use crate::apteam::protocol::attach::Output;
use crate::apteam::protocol::shepherd::FRAME_MAX;
use bytes::Buf;
use std::collections::VecDeque;

/// The output of the shepherd here that is not known to be written out.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// In order, without gaps, the last one ending at `end`.
    pub messages: VecDeque<Output>,
    /// Bytes written out.
    pub taken: u64,
    /// Bytes that have come.
    pub end: u64,
}

impl Kept {
    /// Takes in a message; gives what is new of it, or nothing for a repetition.
    ///
    /// # Errors
    /// What the shepherd did that it must not.
    pub(super) fn add(
        &mut self,
        mut output: Output,
        window: u64,
    ) -> Result<Option<Output>, &'static str> {
        let end = output.end();
        if output.offset > self.end {
            return Err("it skipped a part of its output");
        }
        // A frame more: it may look at the window before it adds one.
        if end > self.taken.saturating_add(window.saturating_add(FRAME_MAX as u64)) {
            return Err("it sent more output than its window allows");
        }
        if end <= self.end {
            return Ok(None);
        }
        output.data.advance((self.end - output.offset) as usize);
        output.offset = self.end;
        self.end = end;
        self.messages.push_back(output.clone());
        Ok(Some(output))
    }

    /// Output is written up to there, of which nothing has come to this life of apinit yet: the
    /// shepherd is about to repeat it.
    pub fn skip(&mut self, offset: u64, window: u64) {
        if offset > self.end && offset - self.taken <= window {
            self.end = offset;
        }
    }

    /// Nothing up to there is anybody's any more: where that comes, it counts as written.
    pub fn skip_to(&mut self, offset: u64) {
        self.taken = self.taken.max(offset);
        self.end = self.end.max(offset);
    }

    /// Output is written up to there; says whether that is news.
    pub(super) fn take(&mut self, offset: u64) -> bool {
        let offset = offset.min(self.end);
        if offset <= self.taken {
            return false;
        }
        self.taken = offset;
        let written = |o: &Output| o.end() <= offset;
        while self.messages.front().is_some_and(written) {
            self.messages.pop_front();
        }
        true
    }
}
