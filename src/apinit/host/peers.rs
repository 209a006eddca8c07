//! Other hosts' apinits, to which this one is the head.

use super::events::{Events, TaskEvent};
use super::network::{Network, reach};
use crate::apteam::Key;
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::node::frames::MESSAGE_MAX;
use crate::rpc::connect::status_text;
use crate::rpc::pb;
use crate::rpc::pb::peers_client::PeersClient;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;

/// How long one may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// A stream to another apinit. Dropping it closes the stream.
#[derive(Debug)]
pub(super) struct Peer {
    /// What is said on an older stream to the same one is not heard.
    /// Bounded by what there is to say: stdin does not go to other hosts, and their output is
    /// acknowledged within its window.
    sender: mpsc::UnboundedSender<pb::ToPeer>,
    task: tokio::task::JoinHandle<()>,
}

impl Peer {
    pub fn open(
        key: Key,
        index: u32,
        generation: u64,
        network: Option<Arc<Network>>,
        at: HostAddress,
        events: Events,
    ) -> Peer {
        let (sender, receiver) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let channel = tokio::time::timeout(ANSWER, reach(network.as_deref(), &at)).await;
            let channel = channel.unwrap_or_else(|_| Err(late(&at)));
            let said = match channel {
                Ok(channel) => talk(key, index, generation, &at, channel, receiver, &events).await,
                Err(text) => Err(text),
            };
            let text = match said {
                Ok(()) => "it has closed the stream".to_string(),
                Err(text) => text,
            };
            let _ = events.send(TaskEvent::PeerLost { key, index, generation, text }).await;
        });
        Peer { sender, task }
    }

    pub fn send(&self, message: ToPeer) {
        // An Err: the stream has ended, which is told as an event.
        let _ = self.sender.send(message.into());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn late(at: &HostAddress) -> String {
    format!("{} does not answer", if at.address.is_empty() { &at.socket } else { &at.address })
}

async fn talk(
    key: Key,
    index: u32,
    generation: u64,
    at: &HostAddress,
    channel: Channel,
    receiver: mpsc::UnboundedReceiver<pb::ToPeer>,
    events: &Events,
) -> Result<(), String> {
    let mut client = PeersClient::new(channel)
        // A launch, with its envelope.
        .max_encoding_message_size(2 * MESSAGE_MAX)
        // What the PEs of a host have put for a barrier comes in one message.
        .max_decoding_message_size(MESSAGE_MAX);
    let relay = client.relay(UnboundedReceiverStream::new(receiver));
    let answer = tokio::time::timeout(ANSWER, relay).await.map_err(|_| late(at))?;
    let mut stream = answer.map_err(status_text)?.into_inner();
    while let Some(message) = stream.message().await.map_err(status_text)? {
        if message.message.is_none() {
            continue;
        }
        let message = FromPeer::try_from(message).map_err(|e| e.to_string())?;
        if events.send(TaskEvent::PeerSaid { key, index, generation, message }).await.is_err() {
            break;
        }
    }
    Ok(())
}
