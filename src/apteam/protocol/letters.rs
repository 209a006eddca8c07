//! What hosts of an application say to one another about its PEs, through the head.
//!
//! A question of one apshepherd to another, and its answer. Apinits pass them on and keep none: what was in the hands of
//! one that died is lost, and so is what comes faster than a process or a host reads. So a question is asked again until
//! it is answered, and whoever answers may hear it twice.
//!
//! ```text
//! apshepherd     apinit        head         apinit     apshepherd
//!   --question--> ----------> by PE `to` ----------> ---->
//!   <------------ <---------- by PE `to` <---------- <-answer
//! ```

use bytes::Bytes;

/// The most data of a letter, in bytes. A host has few of them on their way, but a head may have those of thousands of hosts.
pub const LETTER_MAX: usize = 256 * 1024;

/// Bytes of a letter beside those of its data, as [`Letter::cost`] has them.
const REST_MAX: usize = 256 * 1024;
/// What a rank in a list costs.
const RANK_COST: usize = 5;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// It is for the host of this PE.
    pub to: u32,
    /// It comes from that of this one, to which the answer goes.
    pub from: u32,
    /// Of the question; whoever asks never uses one twice.
    pub number: u64,
    /// What it says.
    pub text: LetterText,
}

/// What a letter says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterText {
    /// What has PE `to` put by PMIx? It is waited for if it has put nothing yet.
    Modex,
    /// PEs of a host are in a fence of PMIx, which is gathered at the PE of the lowest rank in it. The answer, what all
    /// have given, is its end.
    Fence {
        /// Who takes part: they count up.
        ranks: Vec<u32>,
        /// Which fence of just these it is, from 1.
        turn: u64,
        /// Those of them who are in it.
        here: Vec<u32>,
        /// What they give.
        data: Bytes,
    },
    /// A name is published, which stands for a port (MPI_Publish_name). Names are kept at PE 0's host.
    Publish {
        /// The name.
        name: Bytes,
        /// What it stands for.
        port: Bytes,
    },
    /// Which port does a name stand for?
    LookUp(Bytes),
    /// A name stands for nothing any more.
    Unpublish(Bytes),
    /// The same by PMIx, where a key stands for data.
    PublishData {
        /// The key.
        key: Bytes,
        /// What it stands for.
        data: Bytes,
        /// Only the first who looks it up is to have it.
        once: bool,
    },
    /// What does a key stand for?
    LookUpData {
        /// The key.
        key: Bytes,
        /// If it stands for nothing yet, that is waited for.
        wait: bool,
    },
    /// A key stands for nothing any more.
    UnpublishData(Bytes),
    /// The answer to the question of this number.
    Answer {
        /// 0: it went well. Else in the numbers of the protocol that it is about.
        status: i32,
        /// What was asked for.
        data: Bytes,
    },
}

impl Letter {
    /// At least as many bytes as it takes in a message, within a few.
    pub fn cost(&self) -> usize {
        match &self.text {
            LetterText::Modex => 0,
            LetterText::Fence { ranks, here, data, .. } => {
                data.len() + RANK_COST * (ranks.len() + here.len())
            }
            LetterText::Publish { name, port } => name.len() + port.len(),
            LetterText::PublishData { key, data, .. } => key.len() + data.len(),
            LetterText::LookUp(name)
            | LetterText::Unpublish(name)
            | LetterText::LookUpData { key: name, .. }
            | LetterText::UnpublishData(name) => name.len(),
            LetterText::Answer { data, .. } => data.len(),
        }
    }

    /// It is no larger than one may be. (Others come only from what is not psched's.)
    pub fn fits(&self) -> bool {
        self.cost() <= LETTER_MAX + REST_MAX
    }

    /// It asks.
    pub fn is_question(&self) -> bool {
        !matches!(self.text, LetterText::Answer { .. })
    }
}
