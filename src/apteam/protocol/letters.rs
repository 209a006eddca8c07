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

/// A PE of a program that another PE has spawned by PMIx. It is on the host of that one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpawnedPe {
    /// The PMIx namespace of its program.
    pub space: String,
    /// Its rank there.
    pub rank: u32,
}

/// A program that a PE spawns by PMIx, as those are told of it whose PEs may meet the new ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spawning {
    /// Its PMIx namespace, of which there is no other.
    pub space: String,
    /// Its PEs, at least one.
    pub width: u32,
    /// The first PE of each program but the first.
    pub firsts: Vec<u32>,
    /// The PE of the application on whose processors they run.
    pub parent: u32,
    /// `None`: that PE spawns it. Else a PE that it has spawned earlier does.
    pub spawner: Option<SpawnedPe>,
}

/// What a letter says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterText {
    /// Asks for the data that PE `to`, or a PE that it has spawned, has put by PMIx; waits until there is some.
    Modex {
        /// The spawned PE; `None`: PE `to` itself.
        spawned: Option<SpawnedPe>,
    },
    /// PEs of a host are in a fence of PMIx, which is gathered at the PE of the lowest rank in it. The answer, what all
    /// have given, is its end.
    Fence {
        /// Who takes part: they count up.
        ranks: Vec<u32>,
        /// PEs of what was spawned that take part, as the servers of PMIx write them.
        spawned: Vec<Vec<u8>>,
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
    /// PE `from` spawns a program by PMIx: the server of PMIx at PE `to` is to know it before it is there. The answer has
    /// the reason why it can't, if its status is not 0.
    Spawning(Spawning),
    /// What had this PMIx namespace has ended.
    SpawnedEnded(String),
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
            LetterText::Modex { spawned } => spawned.as_ref().map_or(0, |pe| pe.space.len()),
            LetterText::Fence { ranks, spawned, here, data, .. } => {
                let spawned: usize = spawned.iter().map(|pes| pes.len() + RANK_COST).sum();
                data.len() + spawned + RANK_COST * (ranks.len() + here.len())
            }
            LetterText::Spawning(Spawning { space, firsts, spawner, .. }) => {
                let spawner = spawner.as_ref().map_or(0, |pe| pe.space.len());
                space.len() + spawner + RANK_COST * firsts.len()
            }
            LetterText::SpawnedEnded(space) => space.len(),
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
