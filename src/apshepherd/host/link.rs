//! The connection to apinit: messages in, messages out, nothing that waits.

use super::packets::{Packets, PacketsError};
use crate::apteam::protocol::shepherd::{FromShepherd, ToShepherd};
use crate::rpc::pb;
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use prost::Message;
use rustix::net::SocketFlags;
use std::os::fd::{AsFd, BorrowedFd};

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

impl From<PacketsError> for LinkError {
    fn from(error: PacketsError) -> LinkError {
        match error {
            PacketsError::Closed => LinkError::Closed,
            PacketsError::Socket(errno) => LinkError::Socket(errno),
            PacketsError::Frame(error) => LinkError::Frame(error),
        }
    }
}

/// An open connection.
#[derive(Debug)]
pub struct Link(Packets);

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
        Ok(Link(Packets::new(fd)))
    }

    /// Queues a message; [`Link::flush`] sends it.
    pub fn push(&mut self, message: FromShepherd) {
        self.0.push(pb::FromShepherd::from(message).encode_to_vec());
    }

    /// Sends as much as the socket takes; whether all is gone.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn flush(&mut self) -> Result<bool, LinkError> {
        Ok(self.0.flush()?)
    }

    /// The next message that has come, if one has.
    ///
    /// # Errors
    /// The connection is at its end.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<ToShepherd>, LinkError> {
        let unreadable = |e: String| LinkError::Message(e);
        while let Some(whole) = self.0.receive(buffer)? {
            let message = pb::ToShepherd::decode(whole).map_err(|e| unreadable(e.to_string()))?;
            if message.message.is_none() {
                // Something that a newer apinit says.
                continue;
            }
            let message = ToShepherd::try_from(message).map_err(|e| unreadable(e.to_string()))?;
            return Ok(Some(message));
        }
        Ok(None)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
