//! Whose the other end of a TCP connection within this host is.
//!
//! # Problem
//! Any user of a host can connect to a TCP port of it, and a connection does not tell its user. The kernel's tables
//! (/proc/net/tcp) do, but reading them takes milliseconds even if they are almost empty, for each PE.
//!
//! # Approach
//! The kernel is asked about one connection, by the socket that ss(8) uses (sock_diag(7)): microseconds. Where there is
//! no such socket, the tables are read.

use super::checkpoint::owner_by_table;
use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP, TCP_ESTABLISHED};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Room for an answer, which is about one connection.
const ANSWER_MAX: usize = 4096;
/// This kernel answers such questions: if it does not know a connection, there is none.
static ANSWERS: AtomicBool = AtomicBool::new(false);
/// In place of a number that the kernel has given a socket before: any.
const ANY: [u8; 8] = [0xff; 8];

/// The user of the process of this host that has the end `here` of a connection that stands, as the kernel says.
///
/// The other end, `there`, is this process's: a kernel that does not know of that one either answers no such questions.
pub fn owner_of_connection(here: SocketAddr, there: SocketAddr) -> Option<u32> {
    // (What is IPv4 in IPv6 is IPv4.)
    let [here, there] =
        [here, there].map(|end| SocketAddr::new(end.ip().to_canonical(), end.port()));
    let asked = asked(here, there);
    if let Ok(Some(owner)) = asked {
        ANSWERS.store(true, Ordering::Relaxed);
        return Some(owner);
    }
    // (In any state: the tables must not be read for a stranger who hangs up at once, and has filled them.)
    if !ANSWERS.load(Ordering::Relaxed) && found(there, here).is_ok_and(|own| own.is_some()) {
        ANSWERS.store(true, Ordering::Relaxed);
    }
    match ANSWERS.load(Ordering::Relaxed) && asked.is_ok() {
        true => None,
        false => owner_by_table(here, there),
    }
}

/// The same, as sock_diag answers it. An error: this kernel has no sock_diag.
fn asked(here: SocketAddr, there: SocketAddr) -> Result<Option<u32>, Errno> {
    let end = found(here, there)?;
    Ok(end.filter(|(state, _)| *state == TCP_ESTABLISHED).map(|(_, owner)| owner))
}

/// The state of this end of a connection, and its user.
fn found(here: SocketAddr, there: SocketAddr) -> Result<Option<(u8, u32)>, Errno> {
    let (flags, protocol) = (SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag);
    let kernel = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
    let family = if here.is_ipv4() { AF_INET } else { AF_INET6 };
    let socket_id = SocketId {
        source_port: here.port(),
        destination_port: there.port(),
        source_address: here.ip(),
        destination_address: there.ip(),
        interface_id: 0,
        cookie: ANY,
    };
    let question = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id: socket_id.clone(),
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let payload = NetlinkPayload::from(SockDiagMessage::InetRequest(question));
    let mut packet = NetlinkMessage::new(header, payload);
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    sendto(kernel.as_raw_fd(), &bytes, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    // (It has answered by now.)
    let mut answer = vec![0; ANSWER_MAX];
    let count = recv(kernel.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
    answer.truncate(count);
    let answer = NetlinkMessage::<SockDiagMessage>::deserialize(&answer);
    match answer.map_err(|_| Errno::EPROTO)?.payload {
        NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(found)) => {
            let found = found.header;
            // (Where there is no such connection, the kernel names a socket that listens at that port.)
            let same = found.socket_id.destination_port == socket_id.destination_port;
            Ok(same.then_some((found.state, found.uid)))
        }
        NetlinkPayload::Error(error) => match Errno::from_raw(-error.raw_code()) {
            Errno::ENOENT => Ok(None),
            other => Err(other),
        },
        _ => Err(Errno::EPROTO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    #[test]
    fn the_kernel_names_the_owner_of_a_connection_that_stands() {
        for own in ["127.0.0.1:0", "[::1]:0"] {
            // (A host without IPv6.)
            let Ok(listener) = TcpListener::bind(own) else { continue };
            let there = listener.local_addr().expect("known");
            let client = TcpStream::connect(there).expect("connected");
            let here = client.local_addr().expect("known");
            let (came, _) = listener.accept().expect("it came");
            let me = Some(nix::unistd::geteuid().as_raw());
            for ways in [asked, |here, there| Ok(owner_by_table(here, there))] {
                assert_eq!(ways(here, there), Ok(me));
                assert_eq!(ways(there, here), Ok(me));
                // No connection has this end.
                let other = SocketAddr::new(here.ip(), 1);
                assert_eq!(ways(there, other), Ok(None));
                assert_eq!(ways(other, there), Ok(None));
            }
            assert_eq!(owner_of_connection(here, there), me);
            assert!(ANSWERS.load(Ordering::Relaxed), "the tables would be read");
            // A stranger hangs up before he is looked up: the kernel still knows of this end.
            drop(client);
            let state = || found(there, here).expect("asked").map(|(state, _)| state);
            let until = Instant::now() + Duration::from_secs(10);
            while state() == Some(TCP_ESTABLISHED) && Instant::now() < until {
                std::thread::yield_now();
            }
            assert!(state().is_some_and(|state| state != TCP_ESTABLISHED));
            drop(came);
            assert_eq!(owner_of_connection(here, there), None);
        }
    }
}
