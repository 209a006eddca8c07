//! A connection whose other end sends bytes, and no descriptors ([`crate::os::rights`]).

use crate::os::rights;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

/// Bytes that are thrown away at once.
const PIECE: usize = 4_096;

/// Whoever sends a descriptor on it is hung up on.
#[derive(Debug)]
pub(super) struct Connection {
    /// None: it is being dropped.
    stream: Option<UnixStream>,
    /// The kernel lets no descriptor come.
    refuses: bool,
}

impl Connection {
    /// `refuses`: the kernel refuses descriptors that are sent to it.
    pub fn new(stream: UnixStream, refuses: bool) -> Connection {
        Connection { stream: Some(stream), refuses }
    }

    /// Moves the connection to the runtime of the caller.
    ///
    /// # Errors
    /// The runtime of the caller can't watch the socket (epoll_ctl(2)). The connection is closed then.
    pub fn settle(&mut self) -> io::Result<()> {
        let stream = self.stream.take().ok_or(io::ErrorKind::NotConnected)?;
        self.stream = Some(UnixStream::from_std(stream.into_std()?)?);
        Ok(())
    }

    /// The socket.
    ///
    /// # Errors
    /// None before it is dropped.
    pub fn stream(&mut self) -> io::Result<Pin<&mut UnixStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// What has come.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let refuses = self.refuses;
        let stream = self.stream()?;
        if refuses {
            return stream.poll_read(cx, buffer);
        }
        loop {
            ready!(stream.poll_read_ready(cx))?;
            let room = buffer.initialize_unfilled();
            match stream.try_io(Interest::READABLE, || rights::read(&stream.as_fd(), room)) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        if self.refuses {
            return;
        }
        let Ok(stream) = stream.into_std() else { return };
        // Nothing more comes; something may wait.
        let _ = stream.shutdown(Shutdown::Both);
        let mut piece = [0; PIECE];
        loop {
            match rights::read(&stream, &mut piece) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return rights::close_aside(stream.into()),
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }
}
