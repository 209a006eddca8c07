//! Recordings of psched's last events: for an administrator who asks, and in the state directory after a fault.

use super::input::Input;
use super::record_pieces::{PIECE, Pieces, ToClient};
use super::services::{Service, ending};
use crate::rpc::pb;
use std::io::BufWriter;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Pieces on their way to a client.
const PIECES_MAX: usize = 4;
impl Service {
    /// psmgr record.
    pub(super) async fn recorded(
        &self,
        request: Request<pb::RecordRequest>,
    ) -> Result<Response<Pieces>, Status> {
        let by = self.administrator(&request).await?;
        let (answer, recording) = oneshot::channel();
        self.ask(by.uid, Input::Record { answer }).await?;
        let recording = recording.await.map_err(|_| ending())?;
        let (pieces, stream) = mpsc::channel(PIECES_MAX);
        tokio::task::spawn_blocking(move || {
            let why = format!("psmgr record, by {}", by.name);
            let mut to = BufWriter::with_capacity(PIECE, ToClient(&pieces));
            if let Err(error) = recording.write(&why, by.at_ns, &mut to) {
                // (An Err: the client has gone.)
                let _ = pieces.blocking_send(Err(Status::internal(error.to_string())));
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}
