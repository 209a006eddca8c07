//! How cpr passes a folder to an apinit.
//!
//! # Problem
//! Images are root's business, and the folder in which they end up is a user's. Root that opened the path
//! which a user names would follow links that only he has laid. So cpr opens the folder, as the user, and
//! the descriptor itself has to go to apinit; gRPC has no place for one.
//!
//! # Approach
//! Beside its socket an apinit has a *door*: one connection is one question, with a descriptor on its first
//! byte (SCM_RIGHTS), and what is answered to it. Who asks is what the kernel says of the connection, and
//! when it is closed, whoever asked is gone: what has not been finished is undone.
//!
//! ```text
//!   cpr -c                            apinit
//!   Dump 12.1, its draft, a folder -->  looks who asks, lifts the gang, dumps, seals
//!   renames the folder             <--  Dumped
//!   Published                      -->  (-k) ends the application
//!                                  <--  Ended
//! ```
//!
//! Of an application on nodes of several apinits each has a folder in that one, and a connection. No part is
//! dumped before all stand, and none goes on before all are dumped:
//!
//! ```text
//!   cpr -c                            apinit 0                 apinit 1
//!   Dump, its draft, host-0        -->  lifts and freezes
//!   Dump, its draft, host-1        ---------------------------->  lifts and freezes
//!   AllStand                       <--  Stands            <----  Stands
//!                                  -->  dumps             ---->  dumps
//!   AllImaged                      <--  Imaged            <----  Imaged
//!                                  -->  goes on (-g)      ---->  goes on (-g)
//!                                  <--  Dumped, its part  <----  Dumped, its part
//!   Join, all parts                -->  looks whether they are of one moment
//!   writes it, renames the folder  <--  Joined, the manifest
//! ```

use super::CheckpointError;
use crate::apteam::{Key, Ticket};
use crate::rpc::{REQUEST_MAX, pb};
use crate::variables::units::nanos;
use bytes::Bytes;
use prost::Message;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The largest first frame, in bytes: a draft has neither environment nor files.
pub const FRAME_MAX: usize = 1024 * 1024;
/// The largest of those that follow: what is made of the parts of a checkpoint goes to psched in one request.
pub const PARTS_MAX: usize = REQUEST_MAX;
/// What an apinit's socket has behind its name, where its door is.
const SUFFIX: &str = "door";
/// Frames that wait to be taken.
const FRAMES: usize = 4;
/// How long a frame that has begun may take, all of it.
const FRAME_WAIT: Duration = Duration::from_secs(5);
/// How often one who waits for a frame looks whether his time is over.
const LOOK: Duration = Duration::from_millis(500);

/// What is asked at a door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Checkpoint this application into the folder.
    Dump {
        /// Which.
        key: Key,
        /// What psched has said of it, sealed ([`crate::checkpoint::Manifest::draft`]).
        draft: Bytes,
        /// It is ended once the checkpoint has its name.
        end: bool,
    },
    /// This placement is restored from the folder.
    Restore {
        /// Which.
        key: Key,
        /// The secret of the placement.
        ticket: Ticket,
    },
    /// The checkpoint has its name.
    Published,
    /// All parts stand: dump this one.
    AllStand,
    /// All parts are dumped: this one goes on, unless it is to end.
    AllImaged,
    /// Make the manifest of these parts, as [`Answer::Dumped`] had them.
    Join {
        /// Of each host one.
        parts: Vec<Bytes>,
    },
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The descriptor is kept for the launch.
    Taken,
    /// The placement has not come from psched yet.
    NotYet,
    /// The folder is a checkpoint, whole and sealed.
    Dumped {
        /// Bytes of its files.
        bytes: u64,
        /// For how long the application stood, if it goes on.
        frozen: Duration,
        /// From the question to the seal.
        total: Duration,
        /// Of a part of one: what was written, sealed ([`crate::checkpoint::Part`]).
        part: Bytes,
    },
    /// The part here stands still.
    Stands,
    /// Its images are written.
    Imaged,
    /// The text of the manifest.
    Joined(String),
    /// It is not done, and why.
    Refused(String),
    /// The application has been ended.
    Ended,
}

/// Where the door of the apinit is that has this socket.
pub fn beside(socket: &Path) -> PathBuf {
    socket.with_extension(SUFFIX)
}

impl From<Ask> for pb::DoorAsk {
    fn from(ask: Ask) -> Self {
        use pb::door_ask::Ask as Wire;
        let ask = match ask {
            Ask::Dump { key, draft, end } => {
                Wire::Dump(pb::DumpAsk { key: Some(key.into()), draft, end })
            }
            Ask::Restore { key, ticket } => Wire::Restore(pb::RestoreAsk {
                key: Some(key.into()),
                ticket: ticket.0.to_vec().into(),
            }),
            Ask::Published => Wire::Published(pb::DoorWord {}),
            Ask::AllStand => Wire::AllStand(pb::DoorWord {}),
            Ask::AllImaged => Wire::AllImaged(pb::DoorWord {}),
            Ask::Join { parts } => Wire::Join(pb::Parts { parts }),
        };
        pb::DoorAsk { ask: Some(ask) }
    }
}

impl TryFrom<pb::DoorAsk> for Ask {
    type Error = io::Error;
    fn try_from(wire: pb::DoorAsk) -> io::Result<Ask> {
        use pb::door_ask::Ask as Wire;
        let key = |key: Option<pb::ApplicationKey>| {
            key.and_then(|key| Key::try_from(key).ok()).ok_or_else(strange)
        };
        match wire.ask.ok_or_else(strange)? {
            Wire::Dump(ask) => Ok(Ask::Dump { key: key(ask.key)?, draft: ask.draft, end: ask.end }),
            Wire::Restore(ask) => {
                let ticket = ask.ticket[..].try_into().map_err(|_| strange())?;
                Ok(Ask::Restore { key: key(ask.key)?, ticket: Ticket(ticket) })
            }
            Wire::Published(_) => Ok(Ask::Published),
            Wire::AllStand(_) => Ok(Ask::AllStand),
            Wire::AllImaged(_) => Ok(Ask::AllImaged),
            Wire::Join(pb::Parts { parts }) => Ok(Ask::Join { parts }),
        }
    }
}

impl From<Answer> for pb::DoorAnswer {
    fn from(answer: Answer) -> Self {
        use pb::door_answer::Answer as Wire;
        let answer = match answer {
            Answer::Taken => Wire::Taken(pb::DoorWord {}),
            Answer::NotYet => Wire::NotYet(pb::DoorWord {}),
            Answer::Dumped { bytes, frozen, total, part } => {
                let (frozen_ns, total_ns) = (nanos(frozen), nanos(total));
                Wire::Dumped(pb::Dumped { bytes, frozen_ns, total_ns, part })
            }
            Answer::Stands => Wire::Stands(pb::DoorWord {}),
            Answer::Imaged => Wire::Imaged(pb::DoorWord {}),
            Answer::Joined(text) => Wire::Manifest(text),
            Answer::Refused(why) => Wire::Refused(why),
            Answer::Ended => Wire::Ended(pb::DoorWord {}),
        };
        pb::DoorAnswer { answer: Some(answer) }
    }
}

impl TryFrom<pb::DoorAnswer> for Answer {
    type Error = io::Error;
    fn try_from(wire: pb::DoorAnswer) -> io::Result<Answer> {
        use pb::door_answer::Answer as Wire;
        Ok(match wire.answer.ok_or_else(strange)? {
            Wire::Taken(_) => Answer::Taken,
            Wire::NotYet(_) => Answer::NotYet,
            Wire::Dumped(dumped) => Answer::Dumped {
                bytes: dumped.bytes,
                frozen: Duration::from_nanos(dumped.frozen_ns),
                total: Duration::from_nanos(dumped.total_ns),
                part: dumped.part,
            },
            Wire::Stands(_) => Answer::Stands,
            Wire::Imaged(_) => Answer::Imaged,
            Wire::Manifest(text) => Answer::Joined(text),
            Wire::Refused(why) => Answer::Refused(why),
            Wire::Ended(_) => Answer::Ended,
        })
    }
}

fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it sent a message that can't be decoded")
}

/// A message as it goes over a door.
fn frame(message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&length.to_le_bytes()[..], &bytes].concat()
}

/// What is asked, as it goes over a door.
pub fn frame_of(ask: Ask) -> Vec<u8> {
    frame(&pb::DoorAsk::from(ask))
}

/// What is answered, likewise.
pub fn answer_frame(answer: Answer) -> Vec<u8> {
    frame(&pb::DoorAnswer::from(answer))
}

/// The next frame on a connection that is passed on ([`crate::rpc::pb::ToDoor`]); none: it has ended.
///
/// # Errors
/// It is not understood, or the connection is broken.
async fn next_frame<M: Message + Default>(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<M>> {
    let mut length = [0; 4];
    if stream.read(&mut length[..1]).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut length[1..]).await?;
    let length = u32::from_le_bytes(length) as usize;
    if length > PARTS_MAX {
        return Err(strange());
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    M::decode(&*bytes).map(Some).map_err(|_| strange())
}

/// The frames of a connection that is passed on, and the task that reads them until the connection ends. It reads on
/// when the receiver has been dropped: until the end the other side may still do what it was asked.
pub fn frames<M: Message + Default + 'static>(
    mut stream: impl AsyncRead + Send + Unpin + 'static,
) -> (mpsc::Receiver<M>, JoinHandle<()>) {
    let (frames, taken) = mpsc::channel(FRAMES);
    let reads = tokio::spawn(async move {
        while let Ok(Some(frame)) = next_frame(&mut stream).await {
            // (Err: the receiver has been dropped.)
            let _ = frames.send(frame).await;
        }
    });
    (taken, reads)
}

/// Says it.
///
/// # Errors
/// The other end is gone, or does not read.
pub fn say(stream: &mut UnixStream, answer: Answer) -> io::Result<()> {
    stream.write_all(&frame(&pb::DoorAnswer::from(answer)))
}

/// Reads all of it before a moment, however small the pieces are in which it comes.
fn read_until(stream: &mut UnixStream, mut bytes: &mut [u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes = &mut std::mem::take(&mut bytes)[count..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// What is asked first, with the descriptor that comes with it.
///
/// # Errors
/// It is not understood, it has no descriptor, or it does not come within five seconds.
pub fn hear_first(stream: &mut UnixStream) -> io::Result<(Ask, OwnedFd)> {
    let until = Instant::now() + FRAME_WAIT;
    stream.set_read_timeout(Some(FRAME_WAIT))?;
    let mut first = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(&mut first)];
    let count = recvmsg(&*stream, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let mut given: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            given.extend(fds);
        }
    }
    read_until(stream, &mut first[count..], until)?;
    let ask = Ask::try_from(rest::<pb::DoorAsk>(stream, first, FRAME_MAX, until)?)?;
    let fd =
        given.pop().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no descriptor"))?;
    Ok((ask, fd))
}

/// What is said next; none: the other end has closed, or his time, which is asked for anew again
/// and again, is over.
///
/// # Errors
/// It is not understood, or the connection is broken.
pub fn hear_next(
    stream: &mut UnixStream,
    deadline: impl Fn() -> Instant,
) -> io::Result<Option<Ask>> {
    let mut first = [0; 4];
    loop {
        let left = deadline().saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left.min(LOOK)))?;
        match stream.read(&mut first[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(e) if is_timeout(&e) || e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let until = Instant::now() + FRAME_WAIT;
    read_until(stream, &mut first[1..], until)?;
    Ask::try_from(rest::<pb::DoorAsk>(stream, first, PARTS_MAX, until)?).map(Some)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The frame that has this length, and at most so many bytes.
fn rest<M: Message + Default>(
    stream: &mut UnixStream,
    length: [u8; 4],
    most: usize,
    until: Instant,
) -> io::Result<M> {
    let length = u32::from_le_bytes(length) as usize;
    if length > most {
        return Err(strange());
    }
    let mut bytes = vec![0; length];
    read_until(stream, &mut bytes, until)?;
    M::decode(&*bytes).map_err(|_| strange())
}

/// A question that has been asked.
#[derive(Debug)]
pub struct Door {
    stream: UnixStream,
}

impl From<UnixStream> for Door {
    /// One that is passed on to another host by whoever has the other end.
    fn from(stream: UnixStream) -> Door {
        Door { stream }
    }
}

/// Asks the apinit that has this socket, and passes it the descriptor.
///
/// # Errors
/// It has no door, or does not take it.
pub fn ask(socket: &Path, ask: &Ask, descriptor: BorrowedFd<'_>) -> Result<Door, CheckpointError> {
    let path = beside(socket);
    let failed = |e: io::Error| {
        CheckpointError::new(format!(
            "can't send the request to the apinit at {}: {e}; is it of this release?",
            path.display()
        ))
    };
    let mut stream = UnixStream::connect(&path).map_err(failed)?;
    let bytes = frame(&pb::DoorAsk::from(ask.clone()));
    let fds = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&fds));
    let pieces = [IoSlice::new(&bytes)];
    let sent = sendmsg(&stream, &pieces, &mut rights, SendFlags::NOSIGNAL).map_err(io::Error::from);
    // A broken pipe: it has refused without hearing what is asked, and its answer is there to be
    // read.
    match sent.and_then(|sent| stream.write_all(&bytes[sent..])) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(error)),
        _ => Ok(Door { stream }),
    }
}

/// Gives up a question whose answer somebody waits for.
#[derive(Debug)]
pub struct Leaver(UnixStream);

impl Leaver {
    /// Nothing more is said: the answer is that all is as it was, or nothing.
    pub fn leave(&self) {
        let _ = self.0.shutdown(std::net::Shutdown::Write);
    }
}

impl Door {
    /// What gives it up.
    ///
    /// # Errors
    /// There is no descriptor for it.
    pub fn leaver(&self) -> io::Result<Leaver> {
        self.stream.try_clone().map(Leaver)
    }

    /// Says more.
    ///
    /// # Errors
    /// The apinit is gone.
    pub fn say(&mut self, ask: &Ask) -> Result<(), CheckpointError> {
        let bytes = frame(&pb::DoorAsk::from(ask.clone()));
        let sent = self.stream.write_all(&bytes);
        sent.map_err(|e| CheckpointError::new(format!("can't send the message to apinit: {e}")))
    }

    /// What it answers within so long.
    ///
    /// # Errors
    /// Nothing: it is gone, or the time is over.
    pub fn answer(&mut self, bound: Duration) -> Result<Answer, CheckpointError> {
        let failed = |e: io::Error| {
            CheckpointError::new(match e.kind() {
                io::ErrorKind::UnexpectedEof => "apinit has closed the connection".to_owned(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    format!("apinit has not answered within {} s", bound.as_secs())
                }
                _ => format!("apinit does not answer: {e}"),
            })
        };
        let read = || -> io::Result<Answer> {
            let until = Instant::now() + bound;
            let mut length = [0; 4];
            let mut own = self.stream.try_clone()?;
            read_until(&mut own, &mut length, until)?;
            Answer::try_from(rest::<pb::DoorAnswer>(&mut own, length, PARTS_MAX, until)?)
        };
        read().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::{Apid, Incarnation};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixListener;

    fn key() -> Key {
        Key { apid: Apid(12), incarnation: Incarnation(1) }
    }

    #[test]
    fn a_question_its_descriptor_and_the_answers() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("apinit-0.sock");
        let listener = UnixListener::bind(beside(&socket)).expect("listens");
        let asks = [
            Ask::Dump { key: key(), draft: vec![7; 300_000].into(), end: true },
            Ask::Restore { key: key(), ticket: Ticket([3; 16]) },
        ];
        let answers = [
            Answer::Dumped {
                bytes: 5,
                frozen: Duration::from_millis(3),
                total: Duration::from_secs(2),
                part: vec![7; 300_000].into(),
            },
            Answer::Refused("no".into()),
        ];
        for (asked, answer) in asks.into_iter().zip(answers) {
            let (expected, said) = (asked.clone(), answer.clone());
            let accepted = std::thread::scope(|scope| {
                let apinit = scope.spawn(|| {
                    let (mut stream, _) = listener.accept().expect("somebody");
                    let (ask, fd) = hear_first(&mut stream).expect("a question");
                    assert_eq!(ask, expected);
                    assert!(std::fs::File::from(fd).metadata().expect("known").is_dir());
                    say(&mut stream, said).expect("he reads");
                    let later = || Instant::now() + Duration::from_secs(60);
                    let next = hear_next(&mut stream, later).expect("more");
                    assert_eq!(next, Some(Ask::Published));
                    assert_eq!(hear_next(&mut stream, later).expect("an end"), None);
                });
                let file = std::fs::File::open(folder.path()).expect("opened");
                let mut door = super::ask(&socket, &asked, file.as_fd()).expect("asked");
                assert_eq!(door.answer(Duration::from_secs(10)), Ok(answer));
                door.say(&Ask::Published).expect("said");
                drop(door);
                apinit.join()
            });
            accepted.expect("as expected");
        }
    }

    /// Time is that of the whole frame, and of the whole step.
    #[test]
    fn nobody_takes_for_ever() {
        let (mut ours, theirs) = UnixStream::pair().expect("two");
        let soon = Instant::now() + Duration::from_millis(50);
        assert_eq!(hear_next(&mut ours, || soon).expect("a silence"), None);
        // A byte now and then.
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| {
                for byte in frame(&pb::DoorAsk::from(Ask::Join { parts: vec![Bytes::new(); 400] }))
                {
                    if (&theirs).write_all(&[byte]).is_err() {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(25));
                }
            });
            let mut length = [0; 4];
            let until = begun + Duration::from_millis(200);
            read_until(&mut ours, &mut length, until).expect("that much");
            let error = rest::<pb::DoorAsk>(&mut ours, length, FRAME_MAX, until).expect_err("late");
            assert!(is_timeout(&error), "{error}");
            let _ = ours.shutdown(std::net::Shutdown::Both);
            slow.join().expect("ended");
        });
    }

    /// Rubbish, a length beyond all bounds, nothing, and no descriptor.
    #[test]
    fn what_is_no_question() {
        let huge = u32::MAX.to_le_bytes();
        let sound = frame(&pb::DoorAsk::from(Ask::Published));
        for bytes in [&b"\x02\0\0\0\xff\xff"[..], &huge, &sound, &[4, 0], &[]] {
            let (mut ours, mut theirs) = UnixStream::pair().expect("two");
            theirs.write_all(bytes).expect("written");
            drop(theirs);
            assert!(hear_first(&mut ours).is_err(), "{bytes:?}");
        }
    }
}
