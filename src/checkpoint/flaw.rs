//! Why a checkpoint is refused.

use super::{MANIFEST, VERSION};
use thiserror::Error;

/// What stands in the way of using a checkpoint; each one's text says what would cure it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Flaw {
    /// It has no manifest.
    #[error(
        "it has no {MANIFEST}: it is not a checkpoint, or was never finished; make the \
         checkpoint again"
    )]
    NoManifest,
    /// It is not there.
    #[error("there is no such folder")]
    NoFolder,
    /// It has the name of one that is not finished yet.
    #[error(
        "it is an unfinished checkpoint, or is being written or removed now; cpr -D removes an \
         unfinished checkpoint"
    )]
    Partial,
    /// Another process holds it.
    #[error(
        "another process is writing, restarting or removing it; wait until that process has ended"
    )]
    Busy,
    /// A psched that came later wrote it.
    #[error(
        "its manifest has version {version}, and this cpr reads up to {VERSION}: use the cpr of \
         the psched that made it"
    )]
    Newer {
        /// The version of its manifest.
        version: u64,
    },
    /// Bytes are not those that were written.
    #[error(
        "{file} is damaged: {how}; replace it from an undamaged copy, or make the checkpoint again"
    )]
    Damaged {
        /// Which file.
        file: String,
        /// How that is known.
        how: String,
    },
    /// A file is not there.
    #[error(
        "it is incomplete: {file} is missing; replace it from an undamaged copy, or make the \
         checkpoint again"
    )]
    Missing {
        /// Which file.
        file: String,
    },
    /// A file has fewer bytes than it had.
    #[error(
        "it is incomplete: {file} has {found} bytes of {size}; replace it from an undamaged copy, \
         or make the checkpoint again"
    )]
    Short {
        /// Which file.
        file: String,
        /// Bytes that it had, by the manifest.
        size: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// The seal is not by this key.
    #[error(
        "it is not sealed by the key of this machine: it was made on another machine, or \
         changed since; restart it where it was made from an unchanged copy, or make it again"
    )]
    Foreign,
    /// A file is there that the manifest does not have.
    #[error("{file} is not part of the checkpoint: move it elsewhere")]
    Strange {
        /// Which file.
        file: String,
    },
    /// Something is there that is no plain file of this checkpoint alone.
    #[error(
        "{file} is {what}, and a checkpoint has plain files only; replace the checkpoint from \
         an undamaged copy, or make it again"
    )]
    NotPlain {
        /// Which one.
        file: String,
        /// What it is instead.
        what: &'static str,
    },
    /// The application is another user's.
    #[error(
        "the application belongs to user {owner}, and you are user {caller}: only its owner can \
         restart it"
    )]
    NotOwner {
        /// Whose it is.
        owner: u32,
        /// Who asks.
        caller: u32,
    },
    /// The caller is its owner with other groups than the application had.
    #[error(
        "the application has group {group}, of which you are not a member: join it with newgrp \
         (id shows your groups), or ask an administrator to add you to it"
    )]
    NotMember {
        /// One that it had.
        group: u32,
    },
    /// It would be larger than it can be read.
    #[error("a checkpoint {0}")]
    Unfit(String),
    /// The system refuses.
    #[error("{doing}: {why}")]
    System {
        /// What could not be done.
        doing: String,
        /// The system's word.
        why: String,
    },
}

impl Flaw {
    /// The manifest is damaged, as is known by this.
    pub(super) fn manifest(how: impl Into<String>) -> Flaw {
        Flaw::Damaged { file: MANIFEST.into(), how: how.into() }
    }
}
