//! What is told of an application while it runs, in words.

use super::*;
use crate::apteam::ending::TERMINATION;
use crate::apteam::protocol::notice::{Notice, Seen};
use crate::machine::Nid;

/// Causes that have been told and are kept: one more would only be shown twice.
const TOLD_MAX: usize = 64;

impl Front {
    pub(super) fn notice(&mut self, now_ns: u64, notice: Notice) {
        let Some(notice) = self.deaths(now_ns, notice) else { return };
        let named = self.named();
        match notice {
            Notice::Seen { nid, at_ns, what } => {
                let text = self.seen(nid, what);
                self.act(Action::SayOfNode { nid, at_ns, text });
            }
            Notice::Process(text) => {
                let text = self.of_application(&text);
                self.tell(text);
            }
            Notice::NoRecord => self.tell(format!("psched has no record of {named}")),
            Notice::MemoryNotLimited => self.tell(
                "-m counts for the placement only: the host can't limit memory (apstat -n says why)",
            ),
            Notice::Unreachable(nid) => self.tell_of_loss(format!(
                "{named}: the apinit of NID {nid} can't be reached; its output may not be complete"
            )),
            Notice::Silent { nids } => self.silent_hosts(&nids),
            Notice::Unheard(why) => self.tell(format!(
                "{named}: apinit can't talk to its apshepherd: {why}; until it can, the apshepherd keeps the \
                 output and the exit status"
            )),
            Notice::NotCopied { nid, why } => {
                // (A thousand hosts may say the same.)
                if !std::mem::replace(&mut self.not_copied, true) {
                    let file = match self.setup.parallel {
                        true => "the file at its path if this is the same program, else the copy in \
                                 PARALLEL_FILE_SYSTEM",
                        false => "the file at its path",
                    };
                    self.tell(format!(
                        "{named}: the host of NID {nid} has no copy of its program in memory, and executes \
                         {file}: {why}"
                    ));
                }
            }
            Notice::LaunchedAlready => self.tell(format!("{named} has been launched already")),
        }
    }

    /// What was seen on a node, and what ends the application is noted: its end need not say it again.
    fn seen(&mut self, nid: Nid, what: Seen) -> String {
        let text = match what {
            Seen::Ends(cause) => {
                let mut text = cause.notice().map_or_else(|| cause.to_string(), |(_, text)| text);
                // (The first that is told has ended it.)
                if !self.told.is_empty()
                    && let Some(short) = text.strip_suffix(TERMINATION)
                {
                    text.truncate(short.len());
                }
                self.has_told_of(cause);
                text
            }
            Seen::Pmi { rank, text } => format!("PE {rank} {text}"),
            Seen::ProcessLimit(most) => format!(
                "a fork failed on NID {nid}: the application has the maximum of {most} processes and threads \
                 there (variable pids_max)"
            ),
            Seen::Process(text) => text,
        };
        self.of_application(&text)
    }

    /// What ends the application is told, or will be before its end is.
    pub(super) fn has_told_of(&mut self, cause: Cause) {
        if self.told.len() < TOLD_MAX {
            self.told.push(cause);
        }
    }

    pub(super) fn of_application(&self, text: &str) -> String {
        match self.apid {
            Some(apid) => format!("Apid {apid}: {text}"),
            None => text.to_owned(),
        }
    }
}
