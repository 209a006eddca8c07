//! A recording as the stream on which it is sent.

use crate::rpc::pb;
use std::io::{self, Write};
use std::pin::Pin;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

/// A recording in pieces.
pub type Pieces = Pin<Box<dyn Stream<Item = Result<pb::RecordPiece, Status>> + Send>>;

/// Bytes in a piece.
pub(super) const PIECE: usize = 256 << 10;

/// Waits for a client that reads slowly.
pub(super) struct ToClient<'a>(pub &'a mpsc::Sender<Result<pb::RecordPiece, Status>>);

impl Write for ToClient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let data = bytes[..bytes.len().min(PIECE)].to_vec();
        let (size, gone) = (data.len(), |_| io::Error::from(io::ErrorKind::BrokenPipe));
        self.0.blocking_send(Ok(pb::RecordPiece { data: data.into() })).map_err(gone)?;
        Ok(size)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
