//! TCP connections between the parts of an application.
//!
//! # Problem
//! Where an application is on several apinits each of them has CRIU dump its part, and one end of a connection is
//! in one dump, the other in another. An end is what has been sent and not acknowledged, and what has come and
//! was not read; and the kernel goes on with it while the processes stand: what one end sends again after the
//! other was dumped, and is acknowledged before it is dumped itself, would be in neither.
//!
//! When they are brought back, one end is there before the other. The kernel probes what is beyond it at once;
//! where there is nobody it is told so, and the connection is gone.
//!
//! # Approach
//! - Before a dump, when all parts stand, it is waited until nothing is on its way: no end of a connection has its
//!   timer of retransmission set ([`quiet`]). Nobody sends any more then, and so it stays. (One that waits for
//!   the other's window may probe that, which brings nothing new.)
//! - The other ends that are in other parts are kept with the images ([`Link`]). CRIU makes all sockets, silent,
//!   asks at the stage `post-restore` whether to go on, and only then lets them speak. There it is waited until
//!   those other ends are there too ([`wait_for`]).
//! - What had never been sent CRIU sends as it makes the socket, before it asks anybody. So the images say before a
//!   restore that all has been sent ([`all_is_sent`]): it is put back in silence then, and sent again until it is
//!   acknowledged, as what was lost is.
//! - An end of a connection keeps its port for a minute after its process was killed, so that the connection could
//!   not be made again at once. So those of an application that ends with its checkpoint are broken off
//!   ([`break_off`]).

use super::images::{self, Entries};
use super::{CheckpointError, image_files, proc};
use crate::node::groups::AppGroups;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, decode_key, skip_field, uint32};
use rustix::fs::Dir;
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{Seek, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// How long what is on its way may take. On a host that is its own peer it is an acknowledgement that is put off
/// for 40 ms, or a retransmission of 200 ms.
const QUIET: Duration = Duration::from_secs(2);
/// How long the other end of a connection may take to come back: as long as the images of its part.
const OTHER_END: Duration = Duration::from_secs(600);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(2);
/// The state of a connection that stands (`TCP_ESTABLISHED`), in the kernel's table.
const ESTABLISHED: &str = "01";
/// States of an end that no process has accepted: it stands, the last packet of its handshake has not come, or its other
/// end has closed its half (`TCP_ESTABLISHED`, `TCP_SYN_RECV`, `TCP_CLOSE_WAIT`).
const NOT_ACCEPTED: [&str; 3] = [ESTABLISHED, "03", "08"];
/// States of what is no connection, or none any more (`TCP_TIME_WAIT`, `TCP_LISTEN`).
const NO_CONNECTION: [&str; 2] = ["06", "0A"];
/// The timer of retransmission, there.
const RETRANSMITS: &str = "01";

/// A connection to a process of another part, as it is seen from this one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Link {
    /// This end.
    pub here: SocketAddr,
    /// The other.
    pub there: SocketAddr,
}

impl Link {
    fn turned(&self) -> Link {
        Link { here: self.there, there: self.here }
    }
}

/// One end of a connection on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    link: Link,
    /// The connection stands.
    stands: bool,
    /// No process has it, and one may still come that accepts it.
    waits: bool,
    retransmits: bool,
    uid: u32,
    inode: u64,
}

/// `NUMBER: LOCAL REMOTE STATE QUEUES TIMER RETRANSMISSIONS UID TIMEOUT INODE ...`
fn end_of(line: &str) -> Option<End> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (here, there) = (address(fields.next()?)?, address(fields.next()?)?);
    let state = fields.next().filter(|state| !NO_CONNECTION.contains(state))?;
    let timer = fields.nth(1)?.split(':').next()?;
    let uid = fields.nth(1)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    let link = Link { here, there };
    let waits = inode == 0 && NOT_ACCEPTED.contains(&state);
    let stands = state == ESTABLISHED;
    Some(End { link, stands, waits, retransmits: timer == RETRANSMITS, uid, inode })
}

/// `0100007F:B809`: words of four bytes in the order of this machine, and a number. What is IPv4 in IPv6 is IPv4.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for word in address.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let address: IpAddr = match bytes.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into(),
        16 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(address.to_canonical(), port))
}

/// The ends of all connections of this host's that stand.
fn ends() -> Result<Vec<End>, CheckpointError> {
    let mut all = ends_in_all_states()?;
    all.retain(|end| end.stands);
    Ok(all)
}

fn ends_in_all_states() -> Result<Vec<End>, CheckpointError> {
    let mut all = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match std::fs::read_to_string(table) {
            Ok(text) => all.extend(text.lines().filter_map(end_of)),
            // A kernel without IPv6.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(CheckpointError::new(format!("{table}: {e}"))),
        }
    }
    Ok(all)
}

/// The user of the process of this host that has this end of a connection, by a table of all connections.
pub fn owner_by_table(here: SocketAddr, there: SocketAddr) -> Option<u32> {
    let link = Link { here, there };
    ends().ok()?.into_iter().find(|end| end.link == link).map(|end| end.uid)
}

/// All that is dumped: the PEs and what they have made, and the shepherd and appmix, which serve some PEs by ports.
fn processes(groups: &AppGroups) -> impl Iterator<Item = i32> {
    groups.left().into_iter().map(|(_, pid)| pid).chain(groups.shepherds())
}

/// The sockets of an application.
fn sockets(groups: &AppGroups) -> Result<BTreeSet<u64>, CheckpointError> {
    sockets_of(processes(groups))
}

fn sockets_of(processes: impl Iterator<Item = i32>) -> Result<BTreeSet<u64>, CheckpointError> {
    let mut all = BTreeSet::new();
    for pid in processes {
        let open = proc::open_files(pid)?.into_iter();
        let number = |path: &str| -> Option<u64> {
            path.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        };
        all.extend(open.filter_map(|file| number(&file.path)));
    }
    Ok(all)
}

/// Waits until nothing is on its way on the connections of an application all of which stands still, and gives
/// those that lead to other parts of it: to a process of the same user's, on this host, that is not in here.
///
/// # Errors
/// Its connections can't be looked at.
pub fn quiet(groups: &AppGroups) -> Result<Vec<Link>, CheckpointError> {
    let own = sockets(groups)?;
    let until = Instant::now() + QUIET;
    loop {
        let all = ends()?;
        let ours: Vec<&End> = all.iter().filter(|end| own.contains(&end.inode)).collect();
        let others: BTreeSet<Link> = ours.iter().map(|end| end.link.turned()).collect();
        let busy = |end: &&End| {
            end.retransmits && (own.contains(&end.inode) || others.contains(&end.link))
        };
        match all.iter().find(busy) {
            Some(_) if Instant::now() < until => std::thread::sleep(LOOK),
            busy => {
                if let Some(End { link: Link { here, there }, .. }) = busy {
                    // Its peer takes nothing: as good as quiet, most likely.
                    tracing::warn!("{here} still sends to {there} when it is dumped");
                }
                let outside = |end: &&End| !own.contains(&end.inode);
                let uids: BTreeSet<u32> = ours.iter().map(|end| end.uid).collect();
                let in_parts = all.iter().filter(outside).filter(|end| uids.contains(&end.uid));
                let links = in_parts.filter(|end| others.contains(&end.link));
                return Ok(links.map(|end| end.link.turned()).collect());
            }
        }
    }
}

/// Where one of the connections of an application leads that has its other end outside; none: all are within. (Any user
/// can connect to the port of a shepherd: that one is no connection of the application's.)
///
/// # Errors
/// Its connections can't be looked at.
pub fn leads_out(groups: &AppGroups) -> Result<Option<SocketAddr>, CheckpointError> {
    let own = sockets(groups)?;
    let all = ends()?;
    let ours = || all.iter().filter(|end| own.contains(&end.inode));
    let within: BTreeSet<Link> = ours().map(|end| end.link.turned()).collect();
    let uids: BTreeSet<u32> = ours().map(|end| end.uid).collect();
    let others = all.iter().filter(|end| !uids.contains(&end.uid));
    let of_strangers: BTreeSet<Link> = others.map(|end| end.link.turned()).collect();
    let served = sockets_of(groups.shepherds().into_iter())?;
    let strange = |end: &End| served.contains(&end.inode) && of_strangers.contains(&end.link);
    let outside = ours().find(|end| !within.contains(&end.link) && !strange(end));
    Ok(outside.map(|end| end.link.there))
}

/// Refuses if a connection of an application that stands has not been accepted at its other end: CRIU leaves out those
/// that wait for it. (A connection whose end the application has closed is left out.)
///
/// # Errors
/// One has not, or its connections can't be looked at.
pub fn all_accepted(groups: &AppGroups) -> Result<(), CheckpointError> {
    let own = sockets(groups)?;
    let all = ends_in_all_states()?;
    let others: BTreeSet<Link> =
        all.iter().filter(|end| own.contains(&end.inode)).map(|end| end.link.turned()).collect();
    let waits = |end: &&End| end.waits && others.contains(&end.link);
    match all.iter().find(waits) {
        None => Ok(()),
        Some(end) => Err(CheckpointError::new(format!(
            "its connection to {} has not been accepted yet: try again",
            end.link.here
        ))),
    }
}

/// Lets the connections of an application that stands and is about to be killed end at once, with no farewell:
/// whoever is at the other end finds them reset.
pub fn break_off(groups: &AppGroups) {
    let Ok(all) = ends() else { return };
    let connected: BTreeSet<String> =
        all.iter().map(|end| format!("socket:[{}]", end.inode)).collect();
    for pid in processes(groups) {
        let found = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        // One that has ended meanwhile has none.
        let (Some(Ok(process)), Ok(open)) = (found, proc::open_files(pid)) else { continue };
        for file in open.iter().filter(|file| connected.contains(&file.path)) {
            let own = pidfd_getfd(&process, file.number, PidfdGetfdFlags::empty());
            let done = own.and_then(|own| set_socket_linger(own, Some(Duration::ZERO)));
            if let Err(error) = done {
                tracing::info!(%error, "a connection keeps its port for a while");
            }
        }
    }
}

/// Waits until the other ends of these are there.
///
/// # Errors
/// One has not come, and what would help.
pub(super) fn wait_for(links: &[Link]) -> Result<(), String> {
    let until = Instant::now() + OTHER_END;
    loop {
        let there: BTreeSet<Link> = match ends() {
            _ if links.is_empty() => return Ok(()),
            Ok(all) => all.into_iter().map(|end| end.link).collect(),
            Err(error) => return Err(error.to_string()),
        };
        let missing = links.iter().find(|link| !there.contains(&link.turned()));
        let Some(Link { there, .. }) = missing else { return Ok(()) };
        if Instant::now() >= until {
            return Err(format!(
                "it was connected to {there}, and no process came back there within {} s: if \
                 that was not one of its PEs, close the connection before the checkpoint is made",
                OTHER_END.as_secs()
            ));
        }
        std::thread::sleep(LOOK);
    }
}

/// What the names of images of connections begin with.
const STREAM: &str = "tcp-stream-";
/// The largest of them that is read: two queues, which the kernel bounds by its `tcp_rmem` and `tcp_wmem`.
const STREAM_MAX: u64 = 256 * 1024 * 1024;
/// The field of such an image that has the number of bytes that were never sent.
const UNSENT: u32 = 12;

/// Has the images of connections say that nothing in them is unsent: those of a folder that is root's alone, before
/// they are restored.
///
/// # Errors
/// One can't be read or written, or is none.
pub fn all_is_sent(images: BorrowedFd<'_>) -> Result<(), CheckpointError> {
    let failed = |name: &str, e: std::io::Error| CheckpointError::new(format!("{name}: {e}"));
    let folder = |e: rustix::io::Errno| failed("the images", e.into());
    for entry in Dir::read_from(images).map_err(folder)? {
        let entry = entry.map_err(folder)?;
        let name = entry.file_name().to_str().unwrap_or_default();
        if !name.starts_with(STREAM) {
            continue;
        }
        let bytes = image_files::read(images, name, STREAM_MAX).map_err(|e| failed(name, e))?;
        let sent = sent(&bytes).ok_or_else(|| {
            CheckpointError::new(format!("{name}: this is not an image of a connection"))
        })?;
        if sent != bytes {
            let write = || {
                let mut file = image_files::change(images, name)?;
                file.write_all(&sent)?;
                let length = file.stream_position()?;
                file.set_len(length)
            };
            write().map_err(|e| failed(name, e))?;
        }
    }
    Ok(())
}

/// An image of a connection, by which nothing of it is unsent.
fn sent(image: &[u8]) -> Option<Vec<u8>> {
    let mut entries = Entries::of(image, images::TCP_STREAM)?;
    let said = entries.bytes()?;
    let mut entry = Vec::with_capacity(said.len());
    let mut rest = said;
    while rest.has_remaining() {
        let field = rest;
        let (tag, wire) = decode_key(&mut rest).ok()?;
        skip_field(wire, tag, &mut rest, DecodeContext::default()).ok()?;
        match tag {
            UNSENT => uint32::encode(UNSENT, &0, &mut entry),
            _ => entry.extend(&field[..field.len() - rest.len()]),
        }
    }
    let head = image.len() - entries.rest().len() - said.len() - size_of::<u32>();
    let mut all = image[..head].to_vec();
    all.extend(u32::try_from(entry.len()).ok()?.to_le_bytes());
    all.extend(entry);
    all.extend(entries.rest());
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// With two bytes that have come, three that were sent and 300 that were not.
    #[test]
    fn what_was_unsent_is_sent() {
        let image = |unsent: &[u8]| {
            let mut entry = vec![8, 2, 16, 200, 1, 24, 175, 2, 32, 7];
            entry.extend(unsent);
            entry.extend([112, 255, 255, 3]);
            let mut image = [0x5456_4319_u32, 0x5146_5506].map(u32::to_le_bytes).concat();
            image.extend((entry.len() as u32).to_le_bytes());
            image.extend(entry);
            image.extend([9; 305]);
            image
        };
        let (before, after) = (image(&[96, 172, 2]), image(&[96, 0]));
        assert_eq!(sent(&before).as_ref(), Some(&after));
        assert_eq!(sent(&after).as_ref(), Some(&after));
        // Whatever it is, it does no harm.
        for length in 0..before.len() {
            let _ = sent(&before[..length]);
        }
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let others = image(&[]);
        for (name, bytes) in [("tcp-stream-1a", &before), ("files.img", &others)] {
            std::fs::write(at(name), bytes).expect("written");
        }
        let images = std::fs::File::open(folder.path()).expect("opened");
        all_is_sent(images.as_fd()).expect("done");
        assert_eq!(std::fs::read(at("tcp-stream-1a")).expect("read"), after);
        assert_eq!(std::fs::read(at("files.img")).expect("read"), others);
        std::fs::write(at("tcp-stream-2"), "").expect("written");
        let error = all_is_sent(images.as_fd()).expect_err("it is none").to_string();
        assert_eq!(error, "tcp-stream-2: this is not an image of a connection");
    }

    fn link(here: &str, there: &str) -> Link {
        Link { here: here.parse().expect("one"), there: there.parse().expect("one") }
    }

    #[test]
    fn the_kernels_table_is_read() {
        let line = "   2: 0100007F:B809 0100007F:DDA0 01 00000004:00000000 01:00000014 00000000  1000        0 \
                    29812 3 000000001749b490 20 4 1 376 -1";
        let end = end_of(line).expect("a connection");
        assert_eq!(end.link, link("127.0.0.1:47113", "127.0.0.1:56736"));
        assert_eq!((end.retransmits, end.uid, end.inode), (true, 1000, 29812));
        assert!(!end_of(&line.replace(" 01:", " 04:")).expect("one").retransmits);
        // In other states, such as that of a connection whose other end has closed its half before it was accepted.
        let in_state = |state: &str, inode: &str| {
            let line = line.replace(" 01 0", &format!(" {state} 0")).replace("29812", inode);
            end_of(&line).map(|end| (end.stands, end.waits))
        };
        assert_eq!(in_state("01", "29812"), Some((true, false)));
        assert_eq!(in_state("01", "0"), Some((true, true)));
        for (state, waits) in [("03", true), ("08", true), ("05", false), ("09", false)] {
            assert_eq!(in_state(state, "0"), Some((false, waits)));
        }
        assert_eq!(in_state("06", "0"), None);
        // One that listens, and the head of the table.
        assert_eq!(end_of(&line.replace(" 01 0", " 0A 0")), None);
        assert_eq!(
            end_of("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when"),
            None
        );
        let mapped = line.replace("0100007F", "0000000000000000FFFF00000100007F");
        assert_eq!(end_of(&mapped), Some(end));
        assert_eq!(address("00000000000000000000000001000000:0016"), "[::1]:22".parse().ok());
    }

    #[test]
    fn it_is_waited_until_both_ends_are_there() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let there = listener.local_addr().expect("known");
        let stream = std::net::TcpStream::connect(there).expect("connected");
        let here = stream.local_addr().expect("known");
        let link = Link { here, there };
        assert!(ends().expect("readable").iter().any(|end| end.link == link));
        // Both are: it does not take ten minutes.
        assert_eq!(wait_for(&[link.clone(), link.turned()]), Ok(()));
        assert_eq!(wait_for(&[]), Ok(()));
    }
}
