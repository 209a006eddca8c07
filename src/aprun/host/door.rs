//! The door of an apinit ([`crate::node::checkpoint::fd_channel`]), on this host or on another.
//!
//! To an apinit of another host no descriptor of a folder can go. What is said at its door goes through an apinit of this
//! host, and the files of the folder with it, in pieces ([`pb::FromDoor`]). They are read and written here, with the rights
//! of the user alone. Whoever asks sees no difference: once the answer is `Dumped` the files are in the folder, and on
//! disk; once it is `Taken` the application can be launched, and the files go there meanwhile: the door has to stay open.

use super::attach::Target;
use crate::checkpoint::{listed, manifest_of};
use crate::node::checkpoint::dir::{Dir, Incoming};
use crate::node::checkpoint::fd_channel::{
    self, Answer, Ask, Door, PARTS_MAX, answer_frame, frames,
};
use crate::rpc::caller::HEAD_HEADER;
use crate::rpc::connect::{connect, status_text};
use crate::rpc::pb;
use pb::apinit_client::ApinitClient;
use pb::from_door::Message as Told;
use pb::to_door::Message as Said;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming};

/// Messages that wait to be sent, and pieces that wait to be written.
const QUEUE: usize = 4;
/// What a broken connection ends with.
const BROKEN: [Code; 4] = [Code::Unavailable, Code::Internal, Code::Cancelled, Code::Unknown];
/// What a message has beside the longest answer, in bytes.
const BESIDE: usize = 1024;

/// Why a question was not asked.
#[derive(Debug)]
pub struct NotAsked {
    /// In words.
    pub text: String,
    /// Nothing would be otherwise in a moment.
    pub for_good: bool,
}

impl NotAsked {
    fn now(text: impl ToString) -> NotAsked {
        NotAsked { text: text.to_string(), for_good: false }
    }
}

/// Asks this apinit, with a folder of the caller's.
///
/// # Errors
/// It can't be reached, or has no door.
pub async fn ask(target: &Target, ask: &Ask, folder: BorrowedFd<'_>) -> Result<Door, NotAsked> {
    let Some(head) = &target.head else {
        let asked = fd_channel::ask(&target.socket, ask, folder);
        return asked.map_err(NotAsked::now);
    };
    let failed = |error: std::io::Error| NotAsked::now(error);
    let folder = folder.try_clone_to_owned().map_err(failed)?;
    let dir = Dir::new(folder).map_err(NotAsked::now)?;
    let channel = connect(&target.socket).await;
    let channel = channel.map_err(NotAsked::now)?;
    let (says, said) = mpsc::channel(QUEUE);
    let first = pb::ToDoor { message: Some(Said::Ask(ask.clone().into())) };
    // (There is room for it.)
    let _ = says.send(first).await;
    let mut request = Request::new(ReceiverStream::new(said));
    request.metadata_mut().insert(HEAD_HEADER, head.clone());
    let mut client = ApinitClient::new(channel).max_decoding_message_size(PARTS_MAX + BESIDE);
    let told = client.images(request).await.map_err(refused)?.into_inner();
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    theirs.set_nonblocking(true).map_err(failed)?;
    let theirs = tokio::net::UnixStream::from_std(theirs).map_err(failed)?;
    let restores = matches!(ask, Ask::Restore { .. });
    tokio::spawn(pass(theirs, says, told, dir, restores));
    Ok(Door::from(ours))
}

fn refused(status: Status) -> NotAsked {
    let for_good = [Code::Unimplemented, Code::FailedPrecondition, Code::InvalidArgument];
    let for_good = for_good.contains(&status.code());
    let text = match status.code() {
        Code::Unimplemented => {
            "its apinit is of an older release, which makes and restores checkpoints on its own \
                                host only: upgrade apinit"
                .to_owned()
        }
        _ => status_text(status),
    };
    NotAsked { text, for_good }
}

/// What can be said to whoever has asked.
struct Outlet(OwnedWriteHalf);

impl Outlet {
    /// Says it; false: he is gone.
    async fn say(&mut self, answer: Answer) -> bool {
        self.0.write_all(&answer_frame(answer)).await.is_ok()
    }
}

/// Passes on what is said, until one of both ends it. When this ends nobody reads or writes the folder any more.
async fn pass(
    door: tokio::net::UnixStream,
    says: mpsc::Sender<pb::ToDoor>,
    mut told: Streaming<pb::FromDoor>,
    dir: Dir,
    restores: bool,
) {
    let (reader, writer) = door.into_split();
    let mut outlet = Outlet(writer);
    let (mut asked, reads) = frames::<pb::DoorAsk>(reader);
    let mut folder = Folder::Idle(dir);
    let mut sent: Option<JoinHandle<Result<(), String>>> = None;
    let refusal = loop {
        let message = tokio::select! {
            ask = asked.recv() => match ask {
                Some(ask) => {
                    let message = pb::ToDoor { message: Some(Said::Ask(ask)) };
                    match says.send(message).await {
                        Ok(()) => continue,
                        Err(_) => break None,
                    }
                }
                // It is given up.
                None => break None,
            },
            why = failure(&mut sent) => break Some(why),
            message = told.message() => message,
        };
        let message = match message {
            Ok(Some(pb::FromDoor { message: Some(message) })) => message,
            Ok(_) => break None,
            // Its way is broken, and may not be in a moment.
            Err(status) if restores && BROKEN.contains(&status.code()) => break None,
            Err(status) => break Some(status_text(status)),
        };
        let answer = match message {
            Told::Piece(piece) => match folder.write(piece).await {
                Ok(()) => continue,
                Err(why) => break Some(why),
            },
            Told::Answer(answer) => match Answer::try_from(answer) {
                Ok(answer) => answer,
                Err(error) => break Some(error.to_string()),
            },
        };
        match &answer {
            // (It is launched meanwhile.)
            Answer::Taken => sent = folder.read(&says),
            Answer::Dumped { .. } => {
                if let Err(why) = folder.checked(&answer).await {
                    break Some(why);
                }
            }
            Answer::Refused(why) => break Some(why.clone()),
            _ => {}
        }
        if !outlet.say(answer).await {
            break None;
        }
    };
    drop((told, says, asked));
    let _ = folder.written().await;
    if let Some(sent) = sent {
        let _ = sent.await;
    }
    // (Who hears that removes the folder.)
    if let Some(why) = refusal {
        outlet.say(Answer::Refused(why)).await;
    }
    reads.abort();
}

/// Why the files could not be sent, when that is known.
async fn failure(sent: &mut Option<JoinHandle<Result<(), String>>>) -> String {
    let Some(handle) = sent else { return std::future::pending().await };
    let result = handle.await.unwrap_or_else(|error| Err(error.to_string()));
    *sent = None;
    match result {
        Err(why) => why,
        Ok(()) => std::future::pending().await,
    }
}

/// The folder of the question.
enum Folder {
    Idle(Dir),
    /// A thread writes what comes.
    Written {
        pieces: mpsc::Sender<pb::ImagePiece>,
        writes: JoinHandle<Result<(), String>>,
        /// The folder once more, to look at what has come.
        again: Option<Dir>,
    },
    /// Another one has it, or it is done.
    Over,
}

impl Folder {
    /// Writes a piece.
    async fn write(&mut self, piece: pb::ImagePiece) -> Result<(), String> {
        if let Folder::Idle(_) = self
            && let Folder::Idle(dir) = std::mem::replace(self, Folder::Over)
        {
            let (pieces, mut come) = mpsc::channel::<pb::ImagePiece>(QUEUE);
            let again = dir.as_fd().try_clone_to_owned().map_err(|e| e.to_string())?;
            let again = Some(Dir::new(again).map_err(|flaw| flaw.to_string())?);
            let writes = tokio::task::spawn_blocking(move || {
                let mut incoming = Incoming::new(dir, true);
                while let Some(piece) = come.blocking_recv() {
                    incoming.take(&piece.name, &piece.data).map_err(|flaw| flaw.to_string())?;
                }
                incoming.done().map_err(|flaw| flaw.to_string())
            });
            *self = Folder::Written { pieces, writes, again };
        }
        match self {
            Folder::Written { pieces, .. } if pieces.send(piece).await.is_ok() => Ok(()),
            Folder::Written { .. } => {
                let why = self.written().await.err();
                Err(why.unwrap_or_else(|| "its files can't be written".to_owned()))
            }
            _ => Err("apinit sent files that were not requested".to_owned()),
        }
    }

    /// All has come that is to come, and is on disk.
    async fn written(&mut self) -> Result<(), String> {
        match std::mem::replace(self, Folder::Over) {
            Folder::Written { pieces, writes, .. } => {
                drop(pieces);
                writes.await.unwrap_or_else(|error| Err(error.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// The same; and where that is to be a whole checkpoint, it is one by its manifest.
    async fn checked(&mut self, dumped: &Answer) -> Result<(), String> {
        let of = match self {
            Folder::Written { again, .. } => again.take(),
            _ => None,
        };
        self.written().await?;
        if matches!(dumped, Answer::Dumped { part, .. } if !part.is_empty()) {
            return Ok(());
        }
        let dir = of.ok_or("apinit sent no files")?;
        let checks = move || {
            let manifest = manifest_of(&dir, None)?;
            listed(&manifest, &dir)
        };
        let checked = tokio::task::spawn_blocking(checks).await.map_err(|e| e.to_string())?;
        checked.map_err(|flaw| flaw.to_string())
    }

    /// Sends all files of it.
    fn read(&mut self, says: &mpsc::Sender<pb::ToDoor>) -> Option<JoinHandle<Result<(), String>>> {
        let Folder::Idle(dir) = std::mem::replace(self, Folder::Over) else { return None };
        let says = says.clone();
        Some(tokio::task::spawn_blocking(move || {
            let say = |name: &str, data: &[u8], last| {
                let data = data.to_vec().into();
                let piece = pb::ImagePiece { name: name.to_owned(), data, last };
                // An Err: nobody takes them any more, and says why.
                says.blocking_send(pb::ToDoor { message: Some(Said::Piece(piece)) }).is_ok()
            };
            dir.pieces(&mut |name, data| say(name, data, false))
                .map_err(|flaw| flaw.to_string())?;
            say("", &[], true);
            Ok(())
        }))
    }
}
