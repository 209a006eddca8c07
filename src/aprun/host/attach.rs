//! The conversation with the apinit of PE 0.

use super::note::Note;
use crate::aprun::decide::session::Event;
use crate::apteam::protocol::attach::{FromApinit, ToApinit};
use crate::node::checkpoint::fd_channel::Door;
use crate::rpc::connect::{connect, status_text};
use crate::rpc::pb;
use pb::apinit_client::ApinitClient;
use std::path::PathBuf;
use tokio::sync::mpsc::{Sender, UnboundedReceiver};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status};

/// What may lie behind a launch that is not understood.
const SEVERAL: &str = "; an apinit of an older release can't launch several programs as one application: upgrade apinit, or start each program with an aprun of its own";

/// Connects, says what comes from the loop (the first message is there already), and passes on what
/// the apinit says, until the stream ends.
///
/// What is to be said is not bounded by the queue but by the conversation: stdin by its credit,
/// reports of output by the output. `several`: it begins with a launch of several programs. `doors`: through
/// which the images of a checkpoint went to all that have it; they stay open until what was restored runs.
pub async fn converse(
    link: u32,
    socket: PathBuf,
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
    let channel = match connect(&socket).await {
        Ok(channel) => channel,
        Err(error) => return tell(down(error.to_string(), false)).await,
    };
    let says = UnboundedReceiverStream::new(says).map(pb::ToApinit::from);
    let mut stream = match ApinitClient::new(channel).attach(says).await {
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
