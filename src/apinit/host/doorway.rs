//! The way to this apinit's door ([`super::fd_channel`]) from other hosts.
//!
//! # Problem
//! A cpr or an aprun on another host can pass no descriptor of a folder to this apinit.
//!
//! # Approach
//! The folder at the door is one of this apinit's own, below a folder that only root can enter, and its files come and go
//! in pieces:
//!
//! ```text
//!   cpr        its host's apinit     here, a folder and one end of a socket    the door, as for a cpr of this host
//!   Dump   ->  ------------------->  passes it on                        ->    makes the checkpoint in the folder
//!   writes <-  <-------------------  the files, and then the answer      <-    Dumped
//!   Restore -> ------------------->  passes it on                        ->    may he? the folder, which is empty
//!   reads  <-  <-------------------  the answer                          <-    Taken
//!   files  ->  ------------------->  looks at the seal of the manifest, which comes first, and writes the others
//! ```
//!
//! The application is launched meanwhile, for psched waits for that no longer than `ticket_time`: who restores it waits for
//! the files ([`super::coming`]).
//!
//! Everything else that is said goes as it is. So what is looked at is what is looked at for a cpr of this host: who
//! asks, as his host's apinit has it from the kernel, whether psched has sealed what it said of the application, and, of
//! what comes back, the seal and the sum of each file. Nothing is written here for one who has no ticket, and no more
//! than the manifest has.
//!
//! The folder goes when the question is over, or nobody wants what is in it any more; what a killed apinit leaves goes when
//! the next one starts. A question has its place among all of its user for as long.

use super::coming::Coming;
use super::events::{Events, TaskEvent};
use super::fd_channel::{Askers, FULL, Slot, hear};
use super::image_space::take_room;
use super::promised_room::{Promise, PromisedRoom};
use super::runtime::fresh_folder;
use crate::apteam::SealKey;
use crate::checkpoint::{MANIFEST_MAX, manifest_of};
use crate::node::checkpoint::dir::{Dir, Incoming};
use crate::node::checkpoint::fd_channel::{Answer, Ask, frame_of, frames};
use crate::rpc::listen::Peer;
use crate::rpc::pb;
use pb::from_door::Message as Told;
use pb::to_door::Message as Said;
use rustix::fs::{Gid, Uid};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tonic::{Request, Status, Streaming};

/// How long the first word may take.
const FIRST: Duration = Duration::from_secs(10);
/// How long one piece may take, in either direction.
const PIECE_WAIT: Duration = Duration::from_secs(60);
/// Bytes in a second, on average, that whoever reads or sends files has to reach after that time: until they have come or
/// gone they take room here.
const PACE: u64 = 1 << 20;
/// How long whoever has brought a checkpoint may wait for what is restored.
const RESTORED_WAIT: Duration = Duration::from_secs(2 * 3600);
/// Messages that wait to be sent.
const QUEUE: usize = 4;

type Sender = mpsc::Sender<Result<pb::FromDoor, Status>>;

/// Where questions come from other hosts.
pub(super) struct Doorway {
    /// The folders of those that are open are in there: nobody else can come to them.
    folder: PathBuf,
    askers: Askers,
    events: Events,
    next: AtomicU64,
    promised: PromisedRoom,
}

impl Doorway {
    /// Keeps its folders below this one, which is apinit's alone. `askers`: who asks, at the door too.
    pub fn new(above: &Path, askers: Askers, promised: PromisedRoom, events: Events) -> Doorway {
        let folder = above.join("afar");
        let _ = fs::remove_dir_all(&folder);
        Doorway { folder, askers, events, next: AtomicU64::new(0), promised }
    }

    /// Passes on a question, and gives what is answered.
    ///
    /// # Errors
    /// It can't be passed on.
    pub async fn ask(
        &self,
        request: Request<Streaming<pb::ToDoor>>,
    ) -> Result<mpsc::Receiver<Result<pb::FromDoor, Status>>, Status> {
        let unknown = || Status::internal("the kernel does not report the caller's user id");
        let peer = request.extensions().get::<Peer>().ok_or_else(unknown)?;
        let user = (peer.uid, peer.gid);
        let coming = Coming::default();
        let slot = Slot::take(&self.askers, user.0);
        let slot = slot.ok_or_else(|| Status::resource_exhausted(FULL))?;
        let mut said = request.into_inner();
        let first = timeout(FIRST, said.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no request was received"))??;
        let strange =
            || Status::invalid_argument("the first message asks for no checkpoint and no restart");
        let Some(Said::Ask(ask)) = first.and_then(|said| said.message) else {
            return Err(strange());
        };
        let ask = Ask::try_from(ask).map_err(|e| Status::invalid_argument(e.to_string()))?;
        if !matches!(ask, Ask::Dump { .. } | Ask::Restore { .. }) {
            return Err(strange());
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let folder = Folder(self.folder.join(number.to_string()));
        let (made, folder) = blocking(move || (folder.make(user), folder)).await?;
        let failed = |e: std::io::Error| {
            Status::unavailable(format!("no folder can be made for the checkpoint: {e}"))
        };
        let (dir, descriptor) = made.map_err(failed)?;
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let ours = tokio::net::UnixStream::from_std(ours).map_err(failed)?;
        let (events, afar) = (self.events.clone(), Some(coming.clone()));
        tokio::task::spawn_blocking(move || {
            hear(theirs, user, afar, (ask, descriptor), &events);
        });
        let (tells, told) = mpsc::channel(QUEUE);
        let passing = Passing {
            said,
            tells,
            folder,
            dir,
            coming,
            events: self.events.clone(),
            promised: self.promised.clone(),
            slot,
        };
        tokio::spawn(passing.pass(ours));
        Ok(told)
    }
}

async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(act).await;
    done.map_err(|error| Status::internal(error.to_string()))
}

/// A folder of this apinit's, removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    /// Makes it, for this user, who can't come to it: twice opened.
    fn make(&self, user: (u32, u32)) -> std::io::Result<(Dir, OwnedFd)> {
        // (What is above it is apinit's alone.)
        if let Some(above) = self.0.parent() {
            match fs::DirBuilder::new().mode(0o700).create(above) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        let made = fresh_folder(&self.0)?;
        if rustix::process::geteuid().is_root() {
            rustix::fs::fchown(&made, Some(Uid::from_raw(user.0)), Some(Gid::from_raw(user.1)))?;
        }
        let dir = Dir::new(made.try_clone()?).map_err(|e| std::io::Error::other(e.to_string()))?;
        Ok((dir, made))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.0);
        // (There may be much to remove, which nobody is to wait for.)
        let removes = move || drop(fs::remove_dir_all(path));
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(removes)),
            Err(_) => removes(),
        }
    }
}

/// A question that is passed on.
struct Passing {
    said: Streaming<pb::ToDoor>,
    tells: Sender,
    folder: Folder,
    dir: Dir,
    coming: Coming,
    events: Events,
    promised: PromisedRoom,
    slot: Slot,
}

impl Passing {
    /// Passes on all that is said, until one of both ends it.
    async fn pass(self, door: tokio::net::UnixStream) {
        let Passing { mut said, tells, folder, dir, coming, events, promised, slot } = self;
        let (reader, mut writer) = door.into_split();
        let (mut answered, reads) = frames::<pb::DoorAnswer>(reader);
        let (mut dir, mut folder) = (Some(dir), Some(folder));
        loop {
            let answer = tokio::select! {
                answer = answered.recv() => answer,
                message = said.message() => match message {
                    Ok(Some(pb::ToDoor { message: Some(Said::Ask(ask)) })) => {
                        let Ok(ask) = Ask::try_from(ask) else { break };
                        if writer.write_all(&frame_of(ask)).await.is_err() {
                            break;
                        }
                        continue;
                    }
                    Ok(Some(_)) => {
                        refuse(&tells, "cpr sent files before apinit was ready for them".to_owned()).await;
                        break;
                    }
                    // He is gone.
                    _ => break,
                },
            };
            let Some(wire) = answer else { break };
            let Ok(answer) = Answer::try_from(wire.clone()) else { break };
            let passed = match (&answer, dir.take()) {
                (Answer::Dumped { .. }, Some(dir)) => {
                    let brought = bring(dir, &tells).await;
                    // (It is sealed: nobody writes into it any more.)
                    folder = None;
                    match brought {
                        Ok(()) => tell(&tells, Told::Answer(wire)).await,
                        Err(why) => refuse(&tells, why).await,
                    }
                }
                (Answer::Taken, Some(dir)) => {
                    if !tell(&tells, Told::Answer(wire)).await {
                        break;
                    }
                    let at = folder.as_ref().map(|folder| folder.0.clone()).unwrap_or_default();
                    let to = Place { dir, folder: at, promised: promised.clone() };
                    let stored = store(to, &mut said, &events, &coming).await;
                    let came = stored.is_ok();
                    coming.ends(stored.map(|room| coming.promises(Some(room))));
                    if came {
                        // The folder stays for as long as somebody restores it, also if whoever has brought it is
                        // cut off.
                        let _ = timeout(RESTORED_WAIT, coming.given_up()).await;
                    }
                    break;
                }
                (_, kept) => {
                    dir = kept;
                    tell(&tells, Told::Answer(wire)).await
                }
            };
            if !passed {
                break;
            }
        }
        // What is begun is given up, and the folder goes when nobody writes into it any more.
        drop(answered);
        let _ = writer.shutdown().await;
        let _ = reads.await;
        coming.ends(Err("cpr, which brings its checkpoint, has ended".to_owned()));
        // (A copy that has begun has taken the room.)
        coming.promises(None);
        drop((folder, slot));
    }
}

/// How fast files come or go.
struct Pace {
    began: Instant,
    bytes: u64,
}

impl Pace {
    fn new() -> Pace {
        Pace { began: Instant::now(), bytes: 0 }
    }

    /// So much more has come or gone; false: that was too slow.
    fn holds(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.began.elapsed() <= PIECE_WAIT + Duration::from_secs(self.bytes / PACE)
    }
}

/// Tells him; false: he is gone, or does not read.
async fn tell(tells: &Sender, message: Told) -> bool {
    let message = pb::FromDoor { message: Some(message) };
    matches!(timeout(PIECE_WAIT, tells.send(Ok(message))).await, Ok(Ok(())))
}

/// Tells him why there is no checkpoint, or no restart; false: that was the last word.
async fn refuse(tells: &Sender, why: String) -> bool {
    tell(tells, Told::Answer(Answer::Refused(why).into())).await;
    false
}

/// Sends all files of a folder.
async fn bring(dir: Dir, tells: &Sender) -> Result<(), String> {
    let (tells, runtime) = (tells.clone(), Handle::current());
    let sent = tokio::task::spawn_blocking(move || {
        let (mut gone, mut pace) = (false, Pace::new());
        let read = dir.pieces(&mut |name, data| {
            let piece =
                pb::ImagePiece { name: name.to_owned(), data: data.to_vec().into(), last: false };
            gone = !runtime.block_on(tell(&tells, Told::Piece(piece))) || !pace.holds(data.len());
            !gone
        });
        match gone {
            true => Err("cpr does not read the files, or too slowly".to_owned()),
            false => read.map_err(|flaw| flaw.to_string()),
        }
    });
    sent.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// Where files are written.
struct Place {
    dir: Dir,
    folder: PathBuf,
    promised: PromisedRoom,
}

/// Writes all files that come, while somebody wants them.
async fn store(
    to: Place,
    said: &mut Streaming<pb::ToDoor>,
    events: &Events,
    coming: &Coming,
) -> Result<Promise, String> {
    let (pieces, mut come) = mpsc::channel::<pb::ImagePiece>(QUEUE);
    let mut pace = Pace::new();
    let (tells, key) = oneshot::channel();
    let gone = || "apinit is ending".to_owned();
    events.send(TaskEvent::SealingAsked(tells)).await.map_err(|_| gone())?;
    let key = key.await.map_err(|_| gone())?;
    let key =
        key.ok_or("psched has sent no key to verify checkpoints with: see the log of psched")?;
    let writes = tokio::task::spawn_blocking(move || write(to, &key, &mut come));
    let failed = loop {
        let message = tokio::select! {
            message = timeout(PIECE_WAIT, said.message()) => message,
            () = coming.given_up() => break Some("it is no longer restored".to_owned()),
        };
        match message {
            Ok(Ok(Some(pb::ToDoor { message: Some(Said::Piece(piece)) }))) => {
                let last = piece.last;
                if !pace.holds(piece.data.len()) {
                    break Some("the files of the checkpoint come too slowly".to_owned());
                }
                // (Not taken: it says why.)
                if pieces.send(piece).await.is_err() || last {
                    break None;
                }
            }
            Ok(Ok(_)) => break Some("the files of the checkpoint did not all come".to_owned()),
            Ok(Err(status)) => break Some(status.message().to_owned()),
            Err(_) => break Some(format!("no piece came within {} s", PIECE_WAIT.as_secs())),
        }
    };
    drop(pieces);
    let written = writes.await.unwrap_or_else(|error| Err(error.to_string()));
    failed.map_or(written, Err)
}

/// Writes these pieces, of a checkpoint that this key has sealed. Returned: room for a copy of them.
fn write(
    to: Place,
    key: &SealKey,
    come: &mut mpsc::Receiver<pb::ImagePiece>,
) -> Result<Promise, String> {
    let Place { dir, folder, promised } = to;
    // (Until there is room for all.)
    let mut first = Some(take_room(&promised, &folder, MANIFEST_MAX as u64)?);
    let flawed = |flaw: crate::checkpoint::Flaw| format!("its checkpoint can't be used: {flaw}");
    let mut incoming = Incoming::new(dir, false);
    let mut sealed: Option<(Promise, Promise)> = None;
    while let Some(piece) = come.blocking_recv() {
        // The first file is the manifest, and nothing of another is written before its seal is verified.
        let next = piece.last || !piece.name.is_empty();
        if sealed.is_none() && next && incoming.files() == 1 {
            incoming.close().map_err(flawed)?;
            let manifest = manifest_of(incoming.dir(), Some(key)).map_err(flawed)?;
            first = None;
            // (They are copied beside, before they are used.)
            let take = || take_room(&promised, &folder, manifest.bytes());
            sealed = Some((take()?, take()?));
            incoming.expect(&manifest);
        }
        if piece.last {
            let (_, copy) = sealed.ok_or("no file of the checkpoint has come")?;
            return incoming.done().map_err(flawed).map(|()| copy);
        }
        if sealed.is_none() && next && piece.name != crate::checkpoint::MANIFEST {
            return Err("the first file of the checkpoint is not its manifest".to_owned());
        }
        incoming.take(&piece.name, &piece.data).map_err(flawed)?;
        if let Some((files, _)) = &mut sealed {
            files.written(piece.data.len() as u64);
        }
    }
    drop(first);
    Err("the files of the checkpoint did not all come".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Checksum, Image, MANIFEST, Manifest, example};

    const KEY: SealKey = SealKey([7; 32]);

    /// What becomes of these pieces in an empty folder, and the names of what is there then.
    async fn written(
        pieces: Vec<(&str, Vec<u8>)>,
        last: bool,
    ) -> (Result<(), String>, Vec<String>) {
        let (result, names) = written_within(PromisedRoom::default(), pieces, last).await;
        (result.map(drop), names)
    }

    /// The same with this room. Returns also what stays promised for the copy.
    async fn written_within(
        promised: PromisedRoom,
        pieces: Vec<(&str, Vec<u8>)>,
        last: bool,
    ) -> (Result<Promise, String>, Vec<String>) {
        let folder = tempfile::tempdir().expect("made");
        let dir = Dir::new(fs::File::open(folder.path()).expect("opened").into()).expect("one");
        let (sends, mut come) = mpsc::channel(16);
        for (name, data) in pieces {
            let piece = pb::ImagePiece { name: name.into(), data: data.into(), last: false };
            sends.send(piece).await.expect("room");
        }
        if last {
            let piece = pb::ImagePiece { last: true, ..pb::ImagePiece::default() };
            sends.send(piece).await.expect("room");
        }
        drop(sends);
        let to = Place { dir, folder: folder.path().to_owned(), promised };
        let result = blocking(move || write(to, &KEY, &mut come)).await.expect("done");
        let dir = Dir::new(fs::File::open(folder.path()).expect("opened").into()).expect("one");
        let mut names = crate::checkpoint::Files::names(&dir).expect("readable");
        names.sort();
        (result, names)
    }

    fn manifest(key: &SealKey) -> Vec<u8> {
        let image = |data: &[u8]| Image {
            name: "host-0/a.img".into(),
            size: data.len() as u64,
            sum: Checksum::of(data),
        };
        let manifest = Manifest { files: vec![image(b"abc")], ..example() };
        manifest.seal(key).expect("sound").into_bytes()
    }

    /// A folder has as many bytes as psched's own key has sealed, and nothing is written before that is known.
    #[tokio::test]
    async fn no_more_is_written_than_was_sealed() {
        let image = |data: &[u8]| ("host-0/a.img", data.to_vec());
        let good = (MANIFEST, manifest(&KEY));
        let (result, names) = written(vec![good.clone(), image(b"abc")], true).await;
        assert_eq!((result, names.len()), (Ok(()), 2));
        for (pieces, last, why, left) in [
            (vec![image(b"abc"), good.clone()], true, "is not its manifest", 0),
            (vec![(MANIFEST, manifest(&SealKey([8; 32]))), image(b"abc")], true, "seal", 1),
            (vec![(MANIFEST, manifest(&SealKey([8; 32])))], true, "seal", 1),
            (vec![good.clone(), image(b"abcd")], true, "a.img has more", 2),
            (vec![good.clone(), ("host-0/b.img", Vec::new())], true, "b.img", 1),
            (vec![good.clone(), good.clone()], true, "manifest.json", 1),
            (vec![good.clone()], true, "a.img", 1),
            (vec![good.clone(), image(b"abc")], false, "did not all come", 2),
            (Vec::new(), true, "no file", 0),
            (vec![("", b"x".to_vec())], true, "", 0),
            (vec![(MANIFEST, vec![0; 100_000])], true, "at most", 1),
        ] {
            let (result, names) = written(pieces, last).await;
            let said = result.expect_err(why);
            assert!(said.contains(why), "{said:?} has no {why:?}");
            assert_eq!(names.len(), left, "{why}: {names:?}");
        }
    }
    /// What comes has room beside what else is written there, and so has its copy.
    #[tokio::test]
    async fn what_comes_has_room_for_its_copy_too() {
        let pieces = || vec![(MANIFEST, manifest(&KEY)), ("host-0/a.img", b"abc".to_vec())];
        let (room, bytes) = (MANIFEST_MAX as u64, 3);
        let account = PromisedRoom::with(room);
        let left = |bytes| account.take(&std::env::temp_dir(), bytes, |_| 0).expect("mounted");
        let (result, _) = written_within(account.clone(), pieces(), true).await;
        let copy = result.expect("there is room");
        // (What is written statvfs would count.)
        assert_eq!(left(room).expect_err("promised"), room - bytes);
        drop(copy);
        // Another writer has some of it.
        let other = left(bytes).expect("free");
        let (result, names) = written_within(account.clone(), pieces(), true).await;
        let why = result.expect_err("there is none");
        assert!(why.contains("No space left") && names.is_empty(), "{why} {names:?}");
        drop(other);
        left(room).expect("all is given back");
    }
}
