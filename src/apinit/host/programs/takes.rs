//! How bytes come here, and how they go on.

use super::places::Place;
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
use tonic::{Code, Status, Streaming};

/// How long a host may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How often one that has nothing to send says that it is there, and how long it may say nothing.
const ALIVE: Duration = Duration::from_secs(5);
const SILENT: Duration = Duration::from_secs(30);
/// Before all hosts are asked again: at first, and at most. (One may have the placement, and so the right to ask, a
/// moment later than another.)
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long a host that has not heard of the application yet is asked again before the next one is, the head at last:
/// the first pause, which doubles, and how many there are. (All hear of it within moments, and where a thousand hosts
/// went to the head for that it would send to all.)
const EARLY: (Duration, u32) = (Duration::from_millis(10), 5);
/// How often the head may say that it does not have the program.
const REFUSALS: u32 = 3;
/// Pieces that wait to be sent.
const QUEUE: usize = 1;
/// How long whoever writes a whole copy may go on to have it open, and how often it is looked.
const WRITTEN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(1));

/// Has a copy come from these hosts, the first before the next, and tells how that went.
pub(in crate::apinit::host) async fn take(
    copy: Arc<Copy>,
    of: ProgramOf,
    from: Vec<HostAddress>,
    network: Option<Arc<Network>>,
    events: Events,
) {
    let (mut wait, mut refusals) = (AGAIN.0, 0);
    let (mut early, mut pauses) = EARLY;
    let head = from.last();
    loop {
        for at in &from {
            let others = head.filter(|head| *head != at);
            let mut taken = take_from(&copy, of, at, others, network.as_deref()).await;
            while matches!(taken, Err(No::NotYet(_))) && others.is_some() && pauses > 0 {
                sleep(early).await;
                (early, pauses) = (early * 2, pauses - 1);
                taken = take_from(&copy, of, at, others, network.as_deref()).await;
            }
            match taken {
                Ok(()) => return tell(&copy, &events).await,
                // Only the head knows that it can't be had: others may have it from one that is away.
                Err(No::Not(text)) if others.is_none() => {
                    refusals += 1;
                    if refusals >= REFUSALS {
                        copy.fail(text);
                        return tell(&copy, &events).await;
                    }
                }
                Err(No::Not(text) | No::NotNow(text) | No::NotYet(text)) => {
                    tracing::debug!(key = %of.key, "{text}")
                }
            }
        }
        // (It ends with the application.)
        sleep(wait).await;
        wait = (wait * 2).min(AGAIN.1);
    }
}

/// Tells what its apshepherd is to be given, once nobody has it open for writing.
async fn tell(copy: &Copy, events: &Events) {
    let until = tokio::time::Instant::now() + WRITTEN.0;
    while copy.is_written() && tokio::time::Instant::now() < until {
        sleep(WRITTEN.1).await;
    }
    let _ = events.send(TaskEvent::ProgramTaken(copy.key, copy.given())).await;
}

/// Why a host does not send a program.
#[derive(Debug)]
enum No {
    /// It can't be had.
    Not(String),
    /// It may be had later, or from another host.
    NotNow(String),
    /// The same: this host has not heard of the program.
    NotYet(String),
}

/// A stream of a program from another host.
async fn fetch(
    copy: &Copy,
    of: ProgramOf,
    at: &HostAddress,
    offset: u64,
    network: Option<&Network>,
) -> Result<Streaming<pb::FetchPiece>, No> {
    let late = || No::NotNow(format!("{} does not answer", name(at)));
    let reached = timeout(ANSWER, reach(network, at)).await.map_err(|_| late())?;
    let Reached { channel, .. } = reached.map_err(|text| not_now(at, &text))?;
    let request = pb::FetchRequest {
        program: Some(of.into()),
        size: copy.program.size,
        name: copy.program.name.clone().into(),
        offset,
    };
    let mut client = PeersClient::new(channel).max_decoding_message_size(2 * PIECE_MAX);
    let answer = timeout(ANSWER, client.fetch(request)).await.map_err(|_| late())?;
    Ok(answer.map_err(|status| no(at, status))?.into_inner())
}

/// The next piece of such a stream.
async fn next(
    at: &HostAddress,
    stream: &mut Streaming<pb::FetchPiece>,
) -> Result<pb::FetchPiece, No> {
    let piece = timeout(SILENT, stream.message()).await;
    let piece = piece.map_err(|_| not_now(at, "it does not answer"))?;
    piece.map_err(|status| no(at, status))?.ok_or_else(|| not_now(at, "it has closed the stream"))
}

fn name(at: &HostAddress) -> &str {
    if at.host.is_empty() { &at.socket } else { &at.host }
}

fn not_now(at: &HostAddress, text: &str) -> No {
    No::NotNow(format!("{}: {text}", name(at)))
}

fn no(at: &HostAddress, status: Status) -> No {
    let code = status.code();
    let text = format!("{}: {}", name(at), status_text(status));
    match code {
        Code::FailedPrecondition => No::Not(text),
        Code::NotFound => No::NotYet(text),
        _ => No::NotNow(text),
    }
}

/// What the head says the SHA-256 is.
async fn digest_of(
    copy: &Copy,
    of: ProgramOf,
    head: &HostAddress,
    network: Option<&Network>,
) -> Result<[u8; 32], No> {
    let mut stream = fetch(copy, of, head, copy.program.size, network).await?;
    loop {
        if let Ok(digest) = next(head, &mut stream).await?.digest[..].try_into() {
            return Ok(digest);
        }
    }
}

/// `head`: if that is another host. It has the digest from the front end, and so no host decides what others execute.
async fn take_from(
    copy: &Copy,
    of: ProgramOf,
    at: &HostAddress,
    head: Option<&HostAddress>,
    network: Option<&Network>,
) -> Result<(), No> {
    let failed = |text: String| not_now(at, &text);
    let mut offset = copy.bytes();
    let mut stream = fetch(copy, of, at, offset, network).await?;
    loop {
        let piece = next(at, &mut stream).await?;
        copy.write(offset, &piece.data).map_err(failed)?;
        offset = offset.saturating_add(piece.data.len() as u64);
        let Ok(digest) = <[u8; 32]>::try_from(&piece.digest[..]) else { continue };
        if !piece.no_room.is_empty() {
            // Of another host that is no reason not to have it from the head.
            if head.is_some() {
                return Err(failed(piece.no_room));
            }
            copy.end_without(digest, format!("{}: {}", name(at), piece.no_room));
            return Ok(());
        }
        let digest = match head {
            Some(head) => digest_of(copy, of, head, network).await?,
            None => digest,
        };
        return copy.end(digest).map_err(failed);
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
    let _place = copy.front().ok_or_else(|| Status::aborted("others bring the program"))?;
    let mut offset = 0u64;
    let mut progress = copy.progress();
    loop {
        let piece = tokio::select! {
            biased;
            // Its application is over, or somebody else has brought it.
            _ = progress.wait_for(|progress| !matches!(progress, Progress::Coming(_))) => {
                return Ok(());
            }
            piece = stream.message() => piece?,
        };
        let Some(piece) = piece else { break };
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

/// Sends what there is of a copy from this byte on, and then what comes. `place`: this stream's, among those that there
/// may be.
pub(in crate::apinit::host) fn give(
    copy: Arc<Copy>,
    offset: u64,
    place: Place,
) -> ReceiverStream<Result<pb::FetchPiece, Status>> {
    let (says, said) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let _place = place;
        if let Err(status) = send_all(&copy, offset, &says).await {
            let _ = says.send(Err(status)).await;
        }
    });
    ReceiverStream::new(said)
}

type Says = mpsc::Sender<Result<pb::FetchPiece, Status>>;

async fn send_all(copy: &Copy, mut offset: u64, says: &Says) -> Result<(), Status> {
    let mut progress = copy.progress();
    // (One that does not read keeps the place of another.)
    let say = async |piece| match timeout(SILENT, says.send(Ok(piece))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Status::cancelled("nobody reads")),
    };
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
            say(piece).await?;
        }
        if let Progress::Whole(digest) = now {
            let digest = Bytes::copy_from_slice(&digest);
            let no_room = no_room.unwrap_or_default();
            let last = pb::FetchPiece { data: Bytes::new(), digest, no_room };
            return say(last).await;
        }
        match timeout(ALIVE, progress.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(Status::aborted("it is no longer here")),
            Err(_) => say(pb::FetchPiece::default()).await?,
        }
    }
}
