//! Other hosts' apinits, to which this one is the head.

use super::events::{Events, TaskEvent};
use super::network::{Network, Reached, reach};
use super::peer_queue::{PeerQueue, PeerSender, Sent, queue};
use crate::apteam::Key;
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::node::frames::MESSAGE_MAX;
use crate::rpc::connect::status_text;
use crate::rpc::pb::peers_client::PeersClient;
use crate::rpc::tls::Cut;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

/// How long one may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// What is told of a host for which more waits than may.
const READS_NOTHING: &str = "it does not read its messages";

/// A stream to another apinit. Dropping it closes the stream.
#[derive(Debug)]
pub(super) struct Peer {
    key: Key,
    /// Its host, by its certificate; its socket on this host.
    name: String,
    /// What is said on an older stream to the same one is not heard.
    sender: PeerSender,
    /// Closes the connection once there is one. Other applications' streams are on it too.
    cut: Arc<OnceLock<Cut>>,
    /// Ends the stream.
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Peer {
    pub fn open(
        key: Key,
        index: u32,
        generation: u64,
        network: Option<Arc<Network>>,
        at: HostAddress,
        room: u64,
        events: Events,
    ) -> Peer {
        let name = if at.host.is_empty() { &at.socket } else { &at.host }.clone();
        let (sender, queue) = queue(room);
        let (cut, stop) = (Arc::<OnceLock<Cut>>::default(), CancellationToken::new());
        let (to_cut, stopped) = (Arc::clone(&cut), stop.clone());
        let task = tokio::spawn(async move {
            let talks = async {
                let reached = tokio::time::timeout(ANSWER, reach(network.as_deref(), &at)).await;
                let Reached { channel, cut } = reached.unwrap_or_else(|_| Err(late(&at)))?;
                if let Some(cut) = cut {
                    let _ = to_cut.set(cut);
                }
                talk(key, index, generation, &at, channel, queue, &events).await
            };
            let said = stopped.run_until_cancelled(talks).await;
            let text = match said.unwrap_or_else(|| Err(READS_NOTHING.into())) {
                Ok(()) => "it has closed the stream".to_string(),
                Err(text) => text,
            };
            let _ = events.send(TaskEvent::PeerLost { key, index, generation, text }).await;
        });
        Peer { key, name, sender, cut, stop, task }
    }

    /// Sends a message. If too much waits, the connection is closed, which is told as an event.
    pub fn send(&self, message: ToPeer) {
        if self.sender.send(message) == Sent::Full {
            tracing::warn!(
                key = %self.key,
                "the host {} does not read its messages: the connection to it is closed",
                self.name
            );
            // (HTTP/2 may hold a message and wait for room to send it.)
            if let Some(cut) = self.cut.get() {
                cut.cut();
            }
            self.stop.cancel();
        }
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
    queue: PeerQueue,
    events: &Events,
) -> Result<(), String> {
    let mut client = PeersClient::new(channel)
        // A launch, with its envelope.
        .max_encoding_message_size(2 * MESSAGE_MAX)
        // What the PEs of a host have put for a barrier comes in one message.
        .max_decoding_message_size(MESSAGE_MAX);
    let relay = client.relay(queue);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::protocol::attach::OutputTaken;
    use crate::apteam::{Apid, Incarnation};
    use std::time::Instant;
    use tokio::net::UnixListener;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn a_host_that_does_not_read_is_lost() {
        let folder = tempfile::tempdir().expect("made");
        let socket = folder.path().join("apinit.sock");
        let _listens = UnixListener::bind(&socket).expect("bound");
        let at = HostAddress { socket: socket.display().to_string(), ..HostAddress::default() };
        let (events, mut told) = mpsc::channel(4);
        let key = Key { apid: Apid(12), incarnation: Incarnation(1) };
        let begun = Instant::now();
        let peer = Peer::open(key, 1, 7, None, at, 1_000, events);
        for offset in 0..1_000 {
            peer.send(ToPeer::OutputTaken(OutputTaken { source: 1, offset }));
        }
        let Some(TaskEvent::PeerLost { generation: 7, text, .. }) = told.recv().await else {
            panic!("it is not told")
        };
        assert_eq!(text, READS_NOTHING);
        assert!(begun.elapsed() < ANSWER, "it is lost at once");
    }
}
