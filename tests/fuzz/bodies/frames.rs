//! Frames between apinit and apshepherd, and what is in them.
//!
//! - Messages of any length come out of the packets as they went in.
//! - Packets of anything are refused or taken, and nothing grows beyond its bound.
//! - What is understood can be said again: printed and parsed it is the same.

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use prost::Message;
use psched::apteam::protocol::attach::{FromApinit, ToApinit};
use psched::apteam::protocol::node::PlaceCommand;
use psched::apteam::protocol::shepherd::{FromShepherd, ToShepherd};
use psched::node::frames::{Joiner, MESSAGE_MAX, PACKET_MAX, PAYLOAD_MAX, pieces, split};
use psched::rpc::pb;

pub fn fuzz(data: &[u8]) {
    // An Err: the bytes are used up.
    let _ = there_and_back(&mut Unstructured::new(data));
    let _ = anything(&mut Unstructured::new(data));
    understood(data);
}

fn there_and_back(u: &mut Unstructured<'_>) -> Result<()> {
    let mut joiner = Joiner::default();
    for _ in 0..u.int_in_range(0..=3)? {
        let length = match u.int_in_range(0..=9)? {
            0 => PAYLOAD_MAX * u.int_in_range(1..=2)? - 1 + u.int_in_range(0..=2)?,
            _ => usize::from(u.arbitrary::<u16>()? % 600),
        };
        let fill: u8 = u.arbitrary()?;
        let message: Vec<u8> = (0..length).map(|i| fill.wrapping_add(i as u8)).collect();
        let packets: Vec<Vec<u8>> = split(&message).collect();
        assert_eq!(packets.len(), length.div_ceil(PAYLOAD_MAX).max(1));
        let same = pieces(&message)
            .zip(&packets)
            .all(|((header, payload), packet)| packet[0] == header && packet[1..] == *payload);
        assert!(same && packets.iter().all(|packet| packet.len() <= PACKET_MAX));
        for (at, packet) in packets.iter().enumerate() {
            let joined = joiner.push(packet).expect("own packets");
            let expected = (at + 1 == packets.len()).then(|| Bytes::from(message.clone()));
            assert!(joined == expected, "packet {at} of {}", packets.len());
        }
    }
    Ok(())
}

fn anything(u: &mut Unstructured<'_>) -> Result<()> {
    let mut joiner = Joiner::default();
    // The packets of the message that is under way, their headers taken off.
    let mut begun = 0;
    while !u.is_empty() {
        let length = usize::from(u.arbitrary::<u8>()?).min(u.len());
        let packet = u.bytes(length)?;
        match joiner.push(packet) {
            Ok(None) => begun += packet.len() - 1,
            Ok(Some(message)) => {
                assert_eq!(message.len(), begun + packet.len() - 1);
                assert!(message.len() <= MESSAGE_MAX);
                understood(&message);
                begun = 0;
            }
            // The connection is of no use any more.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Parsed, printed and parsed again it is the same.
fn understood(data: &[u8]) {
    again::<pb::ToShepherd, ToShepherd>(data);
    again::<pb::FromShepherd, FromShepherd>(data);
    again::<pb::ToApinit, ToApinit>(data);
    again::<pb::FromApinit, FromApinit>(data);
    again::<pb::PlaceCommand, PlaceCommand>(data);
}

fn again<W, T>(data: &[u8])
where
    W: Message + Default + From<T>,
    T: TryFrom<W> + Clone + PartialEq + std::fmt::Debug,
{
    let Ok(wire) = W::decode(data) else { return };
    let Ok(plain) = T::try_from(wire) else { return };
    let printed = W::from(plain.clone()).encode_to_vec();
    let read = W::decode(&printed[..]).expect("what was printed").try_into();
    assert!(
        read.is_ok_and(|read: T| read == plain),
        "{plain:?} is not the same when it is said again"
    );
}
