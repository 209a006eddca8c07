//! A program, sent to the apinit of PE 0 for hosts that do not have it.

use super::attach::Target;
use super::program::Program;
use crate::apteam::protocol::programs::{PIECE_MAX, ProgramOf};
use crate::rpc::caller::HEAD_HEADER;
use crate::rpc::connect::{connect, status_text};
use crate::rpc::pb;
use pb::apinit_client::ApinitClient;
use pb::hand_piece::Piece;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request};

/// Pieces that wait to be sent.
const QUEUE: usize = 2;
/// Before it is tried again: at first, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Sends all of a program. What breaks begins again, as long as the conversation goes on in which it was asked for.
pub async fn hand(target: Target, of: ProgramOf, programs: Arc<[Program]>) {
    let mut wait = AGAIN.0;
    while let Err(text) = send(&target, of, &programs).await {
        tracing::debug!(part = of.part, "a program was not sent: {text}");
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(AGAIN.1);
    }
}

async fn send(target: &Target, of: ProgramOf, programs: &Arc<[Program]>) -> Result<(), String> {
    let channel = connect(&target.socket).await.map_err(|error| error.to_string())?;
    let (says, said) = mpsc::channel(QUEUE);
    let programs = Arc::clone(programs);
    let reads = tokio::task::spawn_blocking(move || read(of, &programs, &says));
    let mut request = Request::new(ReceiverStream::new(said));
    if let Some(head) = &target.head {
        request.metadata_mut().insert(HEAD_HEADER, head.clone());
    }
    let answer = ApinitClient::new(channel).hand(request).await;
    // (It ends with the request, which reads what it sends.)
    let _ = reads.await;
    match answer {
        Ok(_) => Ok(()),
        // Nobody waits for it any more.
        Err(status) if status.code() == Code::NotFound => Ok(()),
        Err(status) => Err(status_text(status)),
    }
}

/// Reads the program from its beginning and passes its pieces on, until nobody takes them.
fn read(of: ProgramOf, programs: &[Program], says: &mpsc::Sender<pb::HandPiece>) {
    let say = |piece| says.blocking_send(pb::HandPiece { piece: Some(piece) }).is_ok();
    if !say(Piece::Of(of.into())) {
        return;
    }
    let Some(program) = programs.get(of.part as usize) else {
        say(Piece::Failed("aprun has no such program".into()));
        return;
    };
    // (One that has grown is no longer what was posted, which is noticed at its end.)
    let mut reader = program.reader().take(program.identity.size);
    let mut hash = Sha256::new();
    loop {
        let mut data = vec![0; PIECE_MAX];
        let read = match reader.read(&mut data) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                say(Piece::Failed(format!("it can't be read: {error}")));
                return;
            }
        };
        if read == 0 {
            break;
        }
        data.truncate(read);
        hash.update(&data);
        if !say(Piece::Data(data.into())) {
            return;
        }
    }
    let last = match program.unchanged() {
        Ok(()) => Piece::Digest(hash.finalize().to_vec().into()),
        Err(error) => Piece::Failed(error.to_string()),
    };
    say(last);
}
