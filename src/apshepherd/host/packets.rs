//! Messages over a seqpacket socket, in packets ([`crate::node::frames`]), of which none waits.

use crate::node::frames::{FrameError, Joiner, PACKET_MAX, pieces};
use bytes::Bytes;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, sendmsg};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Bytes that wait from which on a connection is full.
const FULL: usize = 8 * 1024 * 1024;

/// Why a connection is at its end.
#[derive(Debug)]
pub enum PacketsError {
    /// The other side has hung up.
    Closed,
    /// The socket failed.
    Socket(Errno),
    /// What came is no frame.
    Frame(FrameError),
}

/// An open connection.
#[derive(Debug)]
pub struct Packets {
    fd: OwnedFd,
    joiner: Joiner,
    /// Encoded messages that wait, and how many packets of the first have gone.
    waiting: VecDeque<Vec<u8>>,
    gone: usize,
    /// Bytes of those that wait.
    bytes: usize,
    /// It was said that the other side has gone.
    reset: bool,
}

impl Packets {
    /// Over this socket.
    pub fn new(fd: OwnedFd) -> Packets {
        Packets {
            fd,
            joiner: Joiner::default(),
            waiting: VecDeque::new(),
            gone: 0,
            bytes: 0,
            reset: false,
        }
    }

    /// Queues an encoded message; [`Packets::flush`] sends it.
    pub fn push(&mut self, message: Vec<u8>) {
        self.bytes += message.len();
        self.waiting.push_back(message);
    }

    /// So much waits that nothing more is to be asked for.
    pub fn is_full(&self) -> bool {
        self.bytes > FULL
    }

    /// Sends as much as the socket takes; whether all is gone.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn flush(&mut self) -> Result<bool, PacketsError> {
        while let Some(message) = self.waiting.front() {
            for (header, payload) in pieces(message).skip(self.gone) {
                let header = [header];
                let parts = [IoSlice::new(&header), IoSlice::new(payload)];
                let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
                match sendmsg::<()>(self.fd.as_raw_fd(), &parts, &[], flags, None) {
                    Ok(_) => self.gone += 1,
                    Err(Errno::EAGAIN | Errno::ENOBUFS) => return Ok(false),
                    Err(Errno::EINTR) => return Ok(false),
                    Err(e) => return Err(PacketsError::Socket(e)),
                }
            }
            self.gone = 0;
            self.bytes -= message.len();
            self.waiting.pop_front();
        }
        Ok(true)
    }

    /// The next encoded message that has come, if one has.
    ///
    /// # Errors
    /// The connection is at its end.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Bytes>, PacketsError> {
        debug_assert!(buffer.len() > PACKET_MAX);
        loop {
            let count = match recv(self.fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err(PacketsError::Closed),
                // It went without reading all of ours. What it said before is still to be read.
                Err(Errno::ECONNRESET) if !self.reset => {
                    self.reset = true;
                    continue;
                }
                Ok(count) => count,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => continue,
                Err(e) => return Err(PacketsError::Socket(e)),
            };
            match self.joiner.push(&buffer[..count]) {
                Ok(None) => {}
                Ok(whole) => return Ok(whole),
                Err(e) => return Err(PacketsError::Frame(e)),
            }
        }
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
