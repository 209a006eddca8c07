//! What is to be checkpointed, how, and what there is then.

use crate::apteam::Apid;
use crate::variables::units::about;
use std::path::PathBuf;
use std::time::Duration;

/// What becomes of an application that has been checkpointed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It goes on as if nothing had been (`-g`).
    GoOn,
    /// It is ended (`-k`).
    End,
}

/// What is to be checkpointed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Make {
    /// The folder that is to be the checkpoint.
    pub dir: PathBuf,
    /// The application.
    pub apid: Apid,
    /// An older checkpoint there is replaced (`-f`).
    pub force: bool,
    /// What becomes of it. None: nobody said; it goes on, unless it ends by saving itself.
    pub after: Option<After>,
}

/// What there is now.
pub(super) fn made(options: &Make, bytes: u64, total: Duration) -> String {
    format!(
        "application {} is checkpointed in {}: {}, in {:.2} s",
        options.apid,
        options.dir.display(),
        about(bytes),
        total.as_secs_f64()
    )
}
