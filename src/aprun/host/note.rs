//! What the tasks and threads of an aprun tell its loop.

use crate::aprun::decide::session::Event;
use tonic::transport::Channel;

/// What the tasks and threads tell the loop.
#[derive(Debug)]
pub enum Note {
    /// Of threads.
    Event(Event),
    /// Connected with psched: for looks and kills.
    Channel {
        /// Of this connection.
        link: u32,
        /// The channel.
        channel: Channel,
    },
    /// psched has the posting on record, there.
    Store(Store),
    /// From psched.
    Psched {
        /// On this connection.
        link: u32,
        /// What.
        event: Event,
    },
    /// From the apinit.
    Apinit {
        /// On this connection.
        link: u32,
        /// What.
        event: Event,
    },
}

/// Which records have the posting: another psched in this one's place has others, perhaps.
#[derive(Clone, Debug, Default)]
pub struct Store {
    /// Empty: not known yet.
    pub(super) id: String,
    pub(super) epoch: u64,
    pub(super) start_id: String,
}
