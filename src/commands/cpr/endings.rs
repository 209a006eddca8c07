//! How the making of a checkpoint ends before its time, and how its application ends.

use crate::node::checkpoint::CheckpointError;
use crate::node::checkpoint::fd_channel::{Answer, Ask, Door};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long psched may take to answer.
pub(super) const ANSWER_BOUND: Duration = Duration::from_secs(30);

/// How long the dump and the seal may take: longer than apinit gives CRIU. Or a program to save itself.
pub(super) const DUMP_BOUND: Duration = Duration::from_secs(2 * 3600);

/// How long the end of the application may take to be begun.
const END_BOUND: Duration = Duration::from_secs(60);

/// The signals that give it up.
pub(super) struct Ends {
    int: Signal,
    term: Signal,
    hup: Signal,
}

impl Ends {
    pub fn catch() -> std::io::Result<Ends> {
        Ok(Ends {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    /// One has come: in words.
    pub async fn came(&mut self) -> &'static str {
        tokio::select! {
            _ = self.int.recv() => "interrupted",
            _ = self.term.recv() => "ended by SIGTERM",
            _ = self.hup.recv() => "ended by SIGHUP",
        }
    }
}

/// It was given up.
pub(super) fn no_checkpoint(why: &str) -> String {
    format!("{why}: no checkpoint was made, and the application goes on")
}

/// Has it ended.
pub(super) fn ended(mut door: Door) -> Result<(), String> {
    let answer = door.say(&Ask::Published).and_then(|()| door.answer(END_BOUND));
    match answer.map_err(|e: CheckpointError| e.to_string())? {
        Answer::Ended => Ok(()),
        Answer::Refused(why) => Err(why),
        _ => {
            Err("apinit gave an unexpected answer; install cpr and apinit of one release"
                .to_owned())
        }
    }
}
