//! Frames between apinit and apshepherd: messages of any length over a seqpacket socket.
//!
//! A seqpacket goes whole or not at all, and only as far as the socket's buffer takes it; a launch
//! with a large environment is larger than that. So a message is cut into packets of at most
//! [`PACKET_MAX`] bytes, each with one byte in front: [`MORE`] or [`LAST`].
//!
//! ```
//! # use psched::node::frames::{Joiner, split};
//! let message = vec![7u8; 300_000];
//! let packets: Vec<Vec<u8>> = split(&message).collect();
//! assert_eq!(packets.len(), 3);
//! let mut joiner = Joiner::default();
//! assert_eq!(joiner.push(&packets[0]), Ok(None));
//! assert_eq!(joiner.push(&packets[1]), Ok(None));
//! assert_eq!(joiner.push(&packets[2]), Ok(Some(message.into())));
//! ```

use bytes::Bytes;

/// Bytes of a message in one packet, the header apart.
pub const PAYLOAD_MAX: usize = 128 * 1024;
/// The largest packet: what a receiver's buffer must hold.
pub const PACKET_MAX: usize = PAYLOAD_MAX + 1;
/// The largest message. The kernel lets arguments and environment of one execve be 6 MiB at most.
pub const MESSAGE_MAX: usize = 8 * 1024 * 1024;

/// Header: more packets of this message follow.
pub const MORE: u8 = 0;
/// Header: this packet is the last of its message.
pub const LAST: u8 = 1;

/// Why a packet can't be taken. The connection is of no use after this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not even a header.
    #[error("an empty packet")]
    Empty,
    /// The header is neither [`MORE`] nor [`LAST`].
    #[error("a packet with the unknown header {0}")]
    Header(u8),
    /// A packet of more than [`PACKET_MAX`] bytes.
    #[error("a packet of {0} bytes, more than the maximum of {PACKET_MAX}")]
    Packet(usize),
    /// A message of more than [`MESSAGE_MAX`] bytes.
    #[error("a message of more than {MESSAGE_MAX} bytes")]
    Message,
}

/// The packets of a message: at least one, an empty message being one too.
pub fn split(message: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    pieces(message).map(|(header, payload)| {
        let mut packet = Vec::with_capacity(payload.len() + 1);
        packet.push(header);
        packet.extend_from_slice(payload);
        packet
    })
}

/// The same without copying: header and payload of each packet, for sendmsg with two buffers.
pub fn pieces(message: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let count = message.len().div_ceil(PAYLOAD_MAX).max(1);
    (0..count).map(move |i| {
        let from = i * PAYLOAD_MAX;
        let to = message.len().min(from + PAYLOAD_MAX);
        (if i + 1 == count { LAST } else { MORE }, &message[from..to])
    })
}

/// Puts packets together again.
#[derive(Debug, Default)]
pub struct Joiner {
    /// What has come of the message that is under way.
    begun: Vec<u8>,
}

impl Joiner {
    /// Takes a packet; gives the message when it was the last one.
    ///
    /// # Errors
    /// The packet is malformed, or the message too long: hang up.
    pub fn push(&mut self, packet: &[u8]) -> Result<Option<Bytes>, FrameError> {
        let (&header, payload) = packet.split_first().ok_or(FrameError::Empty)?;
        if packet.len() > PACKET_MAX {
            return Err(FrameError::Packet(packet.len()));
        }
        if self.begun.len() + payload.len() > MESSAGE_MAX {
            return Err(FrameError::Message);
        }
        match header {
            LAST if self.begun.is_empty() => Ok(Some(Bytes::copy_from_slice(payload))),
            LAST => {
                let mut whole = std::mem::take(&mut self.begun);
                whole.extend_from_slice(payload);
                Ok(Some(whole.into()))
            }
            MORE => {
                self.begun.extend_from_slice(payload);
                Ok(None)
            }
            other => Err(FrameError::Header(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn join(packets: impl IntoIterator<Item = Vec<u8>>) -> Vec<Bytes> {
        let mut joiner = Joiner::default();
        packets.into_iter().filter_map(|p| joiner.push(&p).expect("own packets")).collect()
    }

    #[test]
    fn border_lengths_come_back_and_use_no_packet_too_many() {
        for (length, packets) in
            [(0, 1), (1, 1), (PAYLOAD_MAX, 1), (PAYLOAD_MAX + 1, 2), (2 * PAYLOAD_MAX, 2)]
        {
            let message: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            let cut: Vec<Vec<u8>> = split(&message).collect();
            assert_eq!(cut.len(), packets, "{length}");
            assert!(cut.iter().all(|p| p.len() <= PACKET_MAX));
            assert_eq!(join(cut), [Bytes::from(message)]);
        }
    }

    #[test]
    fn malformed_packets_are_errors() {
        let mut joiner = Joiner::default();
        assert_eq!(joiner.push(&[]), Err(FrameError::Empty));
        assert_eq!(joiner.push(&[9, 1]), Err(FrameError::Header(9)));
        let long = vec![LAST; PACKET_MAX + 1];
        assert_eq!(joiner.push(&long), Err(FrameError::Packet(PACKET_MAX + 1)));
    }

    #[test]
    fn a_message_without_end_is_refused() {
        let mut joiner = Joiner::default();
        let packet = vec![MORE; PACKET_MAX];
        for _ in 0..MESSAGE_MAX / PAYLOAD_MAX {
            assert_eq!(joiner.push(&packet), Ok(None));
        }
        assert_eq!(joiner.push(&[LAST, 0]), Err(FrameError::Message));
    }

    proptest! {
        #[test]
        fn messages_come_back_in_order(lengths in prop::collection::vec(0usize..300_000, 0..5)) {
            let messages: Vec<Vec<u8>> =
                lengths.iter().enumerate().map(|(i, n)| vec![i as u8; *n]).collect();
            let back = join(messages.iter().flat_map(|m| split(m).collect::<Vec<_>>()));
            prop_assert_eq!(back, messages.into_iter().map(Bytes::from).collect::<Vec<_>>());
        }
    }
}
