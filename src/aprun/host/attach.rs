//! The conversation with the apinit of PE 0.

use super::note::Note;
use crate::aprun::decide::session::Event;
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::attach::{FromApinit, ToApinit};
use crate::node::checkpoint::fd_channel::Door;
use crate::rpc::caller::{HEAD_HEADER, RELAY_SOCKET};
use crate::rpc::connect::{connect, status_text};
use crate::rpc::pb;
use pb::apinit_client::ApinitClient;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc::{Sender, UnboundedReceiver};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request, Status};

/// What may lie behind a launch that is not understood.
const SEVERAL: &str = "; an apinit of an older release can't launch several programs as one application: upgrade apinit, or start each program with an aprun of its own";

/// Where the apinit of PE 0 is reached.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its socket, or that of an apinit of this host that passes on what is said.
    pub socket: PathBuf,
    /// To whom it is passed on.
    pub head: Option<MetadataValue<Ascii>>,
}

impl Target {
    /// An apinit of another host is reached through one of this host, whose socket is beside
    /// psched's.
    pub fn new(at: HostAddress, psched: &Path) -> Target {
        let head = format!("{} {}", at.host, at.address).parse().ok();
        match head.filter(|_| !at.address.is_empty()) {
            Some(head) => Target { socket: psched.with_file_name(RELAY_SOCKET), head: Some(head) },
            None => Target { socket: at.socket.into(), head: None },
        }
    }
}

/// Connects, says what comes from the loop (the first message is there already), and passes on what
/// the apinit says, until the stream ends.
///
/// What is to be said is not bounded by the queue but by the conversation: stdin by its credit,
/// reports of output by the output. `several`: it begins with a launch of several programs. `doors`: through
/// which the images of a checkpoint went to all that have it; they stay open until what was restored runs.
pub async fn converse(
    link: u32,
    target: Target,
    several: bool,
    says: UnboundedReceiver<ToApinit>,
    notes: Sender<Note>,
    mut doors: Vec<Door>,
) {
    let tell = async |event| {
        let _ = notes.send(Note::Apinit { link, event }).await;
    };
    let down = |text: String, connected| Event::ApinitDown { text, connected };
    let ended = |status: Status| match status.code() {
        // It has not understood what was said, and would not understand it if it were said again.
        Code::InvalidArgument => {
            let mut text = status_text(status);
            if several {
                text.push_str(SEVERAL);
            }
            Event::Apinit(FromApinit::Refused { text, cause: None })
        }
        _ => down(status_text(status), true),
    };
    let channel = match connect(&target.socket).await {
        Ok(channel) => channel,
        Err(error) => return tell(down(error.to_string(), false)).await,
    };
    let says = UnboundedReceiverStream::new(says).map(pb::ToApinit::from);
    let mut request = Request::new(says);
    if let Some(head) = target.head {
        request.metadata_mut().insert(HEAD_HEADER, head);
    }
    let mut stream = match ApinitClient::new(channel).attach(request).await {
        Ok(stream) => stream.into_inner(),
        Err(status) => return tell(ended(status)).await,
    };
    loop {
        let event = match stream.message().await {
            Ok(Some(message)) => match FromApinit::try_from(message) {
                Ok(message) => Event::Apinit(message),
                Err(error) => {
                    let text = format!("apinit sent a message that aprun can't decode: {error}");
                    return tell(down(text, true)).await;
                }
            },
            Ok(None) => return tell(down("apinit closed the connection".to_owned(), true)).await,
            Err(status) => return tell(ended(status)).await,
        };
        if event == Event::Apinit(FromApinit::Going) {
            doors.clear();
        }
        tell(event).await;
    }
}
