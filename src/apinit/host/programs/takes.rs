//! How bytes come here, and how they go on.

use super::store::{Copy, Progress};
use crate::apinit::host::events::{Events, TaskEvent};
use crate::apinit::host::network::{Network, Reached, reach};
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::programs::{PIECE_MAX, ProgramOf};
use crate::rpc::connect::status_text;
use crate::rpc::pb;
use crate::rpc::pb::hand_piece::Piece;
use crate::rpc::pb::peers_client::PeersClient;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// How long a host may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How often one that has nothing to send says that it is there, and how long it may say nothing.
const ALIVE: Duration = Duration::from_secs(5);
const SILENT: Duration = Duration::from_secs(30);
/// How often all hosts are asked, and what lies between. (One may have the placement, and so the right to ask, a moment
/// later than another.)
const ROUNDS: u32 = 30;
const AGAIN: Duration = Duration::from_millis(500);
/// Pieces that wait to be sent.
const QUEUE: usize = 2;

/// Has a copy come from these hosts, the first before the next, and tells how that went.
pub(in crate::apinit::host) async fn take(
    copy: Arc<Copy>,
    of: ProgramOf,
    from: Vec<HostAddress>,
    network: Option<Arc<Network>>,
    events: Events,
) {
    let mut why = String::new();
    for round in 0..ROUNDS {
        if round > 0 {
            sleep(AGAIN).await;
        }
        for at in &from {
            match take_from(&copy, of, at, network.as_deref()).await {
                Ok(()) => return tell(&copy, &events).await,
                Err(text) => why = text,
            }
        }
    }
    copy.fail(why);
    tell(&copy, &events).await;
}

async fn tell(copy: &Copy, events: &Events) {
    let _ = events.send(TaskEvent::ProgramTaken(copy.key, copy.given())).await;
}

async fn take_from(
    copy: &Copy,
    of: ProgramOf,
    at: &HostAddress,
    network: Option<&Network>,
) -> Result<(), String> {
    let name = if at.host.is_empty() { &at.socket } else { &at.host };
    let late = || format!("{name} does not answer");
    let failed = |text: String| format!("{name}: {text}");
    let reached = timeout(ANSWER, reach(network, at)).await.map_err(|_| late())?;
    let Reached { channel, .. } = reached.map_err(failed)?;
    let mut offset = copy.bytes();
    let request = pb::FetchRequest {
        program: Some(of.into()),
        size: copy.program.size,
        name: copy.program.name.clone().into(),
        offset,
    };
    let mut client = PeersClient::new(channel).max_decoding_message_size(2 * PIECE_MAX);
    let answer = timeout(ANSWER, client.fetch(request)).await.map_err(|_| late())?;
    let mut stream = answer.map_err(|status| failed(status_text(status)))?.into_inner();
    loop {
        let piece = timeout(SILENT, stream.message()).await.map_err(|_| late())?;
        let Some(piece) = piece.map_err(|status| failed(status_text(status)))? else {
            return Err(failed("it has closed the stream".into()));
        };
        copy.write(offset, &piece.data).map_err(failed)?;
        offset = offset.saturating_add(piece.data.len() as u64);
        let Ok(digest) = <[u8; 32]>::try_from(&piece.digest[..]) else { continue };
        return match piece.no_room.is_empty() {
            true => copy.end(digest).map_err(failed),
            false => {
                copy.end_without(digest, failed(piece.no_room));
                Ok(())
            }
        };
    }
}

/// What comes from a front end, until it has said all or its stream breaks: then it comes again.
///
/// # Errors
/// What was wrong with it.
pub(in crate::apinit::host) async fn taken_from_front(
    copy: Arc<Copy>,
    mut stream: Streaming<pb::HandPiece>,
    events: Events,
) -> Result<(), Status> {
    let wrong = Status::invalid_argument;
    let mut offset = 0u64;
    while let Some(piece) = stream.message().await? {
        match piece.piece {
            Some(Piece::Data(data)) => {
                copy.write(offset, &data).map_err(wrong)?;
                offset = offset.saturating_add(data.len() as u64);
            }
            Some(Piece::Digest(digest)) => {
                let digest = <[u8; 32]>::try_from(&digest[..]);
                let digest = digest.map_err(|_| wrong("it is no SHA-256".into()))?;
                copy.end(digest).map_err(wrong)?;
                tell(&copy, &events).await;
                return Ok(());
            }
            Some(Piece::Failed(why)) => {
                copy.fail(why);
                tell(&copy, &events).await;
                return Ok(());
            }
            Some(Piece::Of(_)) | None => {}
        }
    }
    Err(Status::aborted("the program is not whole"))
}

/// Sends what there is of a copy from this byte on, and then what comes.
pub(in crate::apinit::host) fn give(
    copy: Arc<Copy>,
    offset: u64,
) -> ReceiverStream<Result<pb::FetchPiece, Status>> {
    let (says, said) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        if let Err(status) = send_all(&copy, offset, &says).await {
            let _ = says.send(Err(status)).await;
        }
    });
    ReceiverStream::new(said)
}

type Says = mpsc::Sender<Result<pb::FetchPiece, Status>>;

async fn send_all(copy: &Copy, mut offset: u64, says: &Says) -> Result<(), Status> {
    let mut progress = copy.progress();
    let gone = |_| Status::cancelled("nobody reads");
    loop {
        let now = progress.borrow_and_update().clone();
        let there = match &now {
            Progress::Coming(bytes) => *bytes,
            Progress::Whole(_) => copy.program.size,
            Progress::Failed(why) => return Err(Status::failed_precondition(why.clone())),
        };
        let no_room = copy.no_room();
        while offset < there && no_room.is_none() {
            let length = usize::try_from(there - offset).unwrap_or(PIECE_MAX).min(PIECE_MAX);
            let mut data = vec![0; length];
            let read = copy.read(offset, &mut data).map_err(|e| Status::aborted(e.to_string()))?;
            if read == 0 {
                // It has begun again.
                break;
            }
            data.truncate(read);
            offset += read as u64;
            let piece = pb::FetchPiece { data: data.into(), ..pb::FetchPiece::default() };
            says.send(Ok(piece)).await.map_err(gone)?;
        }
        if let Progress::Whole(digest) = now {
            let digest = Bytes::copy_from_slice(&digest);
            let no_room = no_room.unwrap_or_default();
            let last = pb::FetchPiece { data: Bytes::new(), digest, no_room };
            return says.send(Ok(last)).await.map_err(gone);
        }
        match timeout(ALIVE, progress.changed()).await {
            Ok(Ok(())) => {}
            // The application is over here.
            Ok(Err(_)) => return Err(Status::aborted("it is no longer here")),
            Err(_) => says.send(Ok(pb::FetchPiece::default())).await.map_err(gone)?,
        }
    }
}
