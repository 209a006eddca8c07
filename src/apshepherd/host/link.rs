//! The connection to apinit: frames in, frames out, nothing that waits.

use crate::apteam::protocol::shepherd::{FromShepherd, ToShepherd};
use crate::node::frames::{Joiner, PACKET_MAX, pieces};
use crate::rpc::pb;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, sendmsg, setsockopt, sockopt};
use prost::Message;
use rustix::net::SocketFlags;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Asked of the kernel for what is sent; it gives an ordinary user less.
const SEND_BUFFER: usize = 1024 * 1024;

/// Why a connection is at its end.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The other side has hung up.
    #[error("apinit has closed the connection")]
    Closed,
    /// The socket failed.
    #[error("the connection to apinit failed: {0}")]
    Socket(#[from] Errno),
    /// What came is no frame.
    #[error("apinit sent {0}")]
    Frame(#[from] crate::node::frames::FrameError),
    /// It is a frame of something else.
    #[error("apinit sent a message that can't be decoded: {0}")]
    Message(String),
    /// Who connected is neither root nor this user.
    #[error("user {0} has connected, and is neither root nor the user of this application")]
    Stranger(u32),
}

/// An open connection.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    joiner: Joiner,
    /// Encoded messages that wait, and how many packets of the first have gone.
    waiting: VecDeque<Vec<u8>>,
    gone: usize,
    /// It was said that the other side has gone.
    reset: bool,
}

impl Link {
    /// Takes a connection from the listening socket.
    ///
    /// # Errors
    /// There is none, or it is a stranger's.
    pub fn accept(listen: BorrowedFd<'_>, own_uid: u32) -> Result<Link, LinkError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::accept_with(listen, flags)
            .map_err(|e| Errno::from_raw(e.raw_os_error()))?;
        let uid = nix::sys::socket::getsockopt(&fd, sockopt::PeerCredentials)?.uid();
        if uid != 0 && uid != own_uid {
            return Err(LinkError::Stranger(uid));
        }
        // Refused: then there are more wake-ups.
        let _ = setsockopt(&fd, sockopt::SndBuf, &SEND_BUFFER);
        Ok(Link { fd, joiner: Joiner::default(), waiting: VecDeque::new(), gone: 0, reset: false })
    }

    /// Queues a message; [`Link::flush`] sends it.
    pub fn push(&mut self, message: FromShepherd) {
        self.waiting.push_back(pb::FromShepherd::from(message).encode_to_vec());
    }

    /// Sends as much as the socket takes; whether all is gone.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn flush(&mut self) -> Result<bool, LinkError> {
        while let Some(message) = self.waiting.front() {
            for (header, payload) in pieces(message).skip(self.gone) {
                let header = [header];
                let parts = [IoSlice::new(&header), IoSlice::new(payload)];
                let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
                match sendmsg::<()>(self.fd.as_raw_fd(), &parts, &[], flags, None) {
                    Ok(_) => self.gone += 1,
                    Err(Errno::EAGAIN | Errno::ENOBUFS) => return Ok(false),
                    Err(Errno::EINTR) => return Ok(false),
                    Err(e) => return Err(e.into()),
                }
            }
            self.gone = 0;
            self.waiting.pop_front();
        }
        Ok(true)
    }

    /// The next message that has come, if one has.
    ///
    /// # Errors
    /// The connection is at its end.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<ToShepherd>, LinkError> {
        debug_assert!(buffer.len() > PACKET_MAX);
        loop {
            let count = match recv(self.fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err(LinkError::Closed),
                // It went without reading all of ours. What it said before is still to be read.
                Err(Errno::ECONNRESET) if !self.reset => {
                    self.reset = true;
                    continue;
                }
                Ok(count) => count,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => continue,
                Err(e) => return Err(e.into()),
            };
            if let Some(whole) = self.joiner.push(&buffer[..count])? {
                let message =
                    pb::ToShepherd::decode(whole).map_err(|e| LinkError::Message(e.to_string()))?;
                if message.message.is_none() {
                    // Something that a newer apinit says.
                    continue;
                }
                let message =
                    ToShepherd::try_from(message).map_err(|e| LinkError::Message(e.to_string()))?;
                return Ok(Some(message));
            }
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
