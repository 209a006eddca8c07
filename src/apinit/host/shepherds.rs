//! Shepherds: making one, finding one again, talking with one.

use super::attach::wait_for_end;
use super::runtime::{AppDirectory, Process};
use super::shell::{Events, TaskEvent};
use super::shepherd_writer::{ShepherdWriter, Wire};
use crate::apteam::Key;
use crate::apteam::protocol::node::PlaceCommand;
use crate::apteam::protocol::shepherd::{FromShepherd, Hello, ToShepherd, misfit};
use crate::node::frames::{Joiner, PACKET_MAX, split};
use crate::node::groups::AppGroups;
use crate::os::instance;
use crate::os::space::Space;
use crate::os::spawn::{Failure, Ids, Namespaces, Spawn, spawn};
use crate::os::watch::watch;
use crate::rpc::pb;
use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect, listen, recv,
    send, setsockopt, socket, sockopt,
};
use prost::Message;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::Interest;

/// The program.
pub(super) const PROGRAM: &str = "apshepherd";
/// Asked of the kernel for each socket.
const SEND_BUFFER: usize = 1024 * 1024;
/// How long a found one may take for its hello.
const HELLO: Duration = Duration::from_secs(2);
/// The same of one that was brought back, and has its new key to take.
const REKEY: Duration = Duration::from_secs(10);

/// What shepherds are made of, whatever the application.
#[derive(Clone, Debug)]
pub(super) struct Program {
    path: PathBuf,
    /// The soft limit of open files with which apinit was started: it raises its own.
    soft_files: Option<u64>,
}

impl Program {
    /// To be called before apinit raises its own limits.
    pub fn find() -> anyhow::Result<Program> {
        let files = getrlimit(Resource::RLIMIT_NOFILE);
        Ok(Program { path: find_program()?, soft_files: files.ok().map(|(soft, _)| soft) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Where apshepherd is: next to this program, else in PATH.
fn find_program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("can't tell where apinit is")?;
    let beside = own.parent().map(|folder| folder.join(PROGRAM));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM));
    beside.into_iter().chain(in_path).find(|p| p.is_file()).with_context(|| {
        format!("{PROGRAM} is neither next to {} nor in PATH: install it there", own.display())
    })
}

/// Why an apshepherd that is dead could not be executed, if so, by what its pipe brings.
pub(super) fn not_executed(pipe: OwnedFd) -> Option<String> {
    let mut bytes = [0; Failure::SIZE];
    // It is dead, so the pipe is at its end.
    File::from(pipe).read_exact(&mut bytes).ok()?;
    let Failure { step, error } = Failure::parse(bytes);
    Some(match step {
        Some(step) => format!("it can't be isolated: {}", step.explain(&error)),
        None => format!("{PROGRAM} could not be executed: {error}"),
    })
}

/// A shepherd that is being talked with.
#[derive(Debug)]
pub(super) struct Shepherd {
    pub process: Process,
    pub pidfd: Option<Arc<OwnedFd>>,
    /// `None`: it is of a release that is not understood.
    mouth: Option<ShepherdWriter>,
    /// Brings the errno if it could not be executed.
    failure: Option<OwnedFd>,
    /// It closes because it was asked to: it is not waited for its death then.
    hung_up: Arc<AtomicBool>,
}

impl Shepherd {
    /// Tells it; false: too much waits for it already.
    pub fn send(&self, message: ToShepherd) -> bool {
        self.mouth.as_ref().is_none_or(|mouth| mouth.send(message))
    }

    /// Why it could not be executed, if so.
    pub fn failure(&mut self) -> Option<String> {
        not_executed(self.failure.take()?)
    }

    /// One that has said hello already, on this connection.
    ///
    /// # Errors
    /// The connection can't be watched, or it has ended meanwhile.
    pub fn connected(
        key: Key,
        process: Process,
        connection: Connection,
        events: &Events,
    ) -> Result<Shepherd, String> {
        let failed = |why: &dyn std::fmt::Display| format!("its apshepherd can't be heard: {why}");
        let pidfd = process.open().map(Arc::new).ok_or_else(|| failed(&"it has died"))?;
        let wire = Arc::new(wire(connection.0).map_err(|e| failed(&e))?);
        let mouth = Some(ShepherdWriter::open(key, &wire));
        let hung_up = Arc::<AtomicBool>::default();
        let hears = (Arc::clone(&hung_up), events.clone());
        tokio::spawn(hear(key, Reader::new(wire), Some(Arc::clone(&pidfd)), hears));
        Ok(Shepherd { process, pidfd: Some(pidfd), mouth, failure: None, hung_up })
    }

    /// Says what waits, and then nothing more: once it has heard all of it the shepherd closes, which is
    /// told as its silence. One that somebody has stopped goes on.
    pub fn hang_up(&mut self) {
        self.hung_up.store(true, Ordering::Relaxed);
        self.mouth = None;
        self.resume();
    }

    pub fn kill(&self) {
        self.signal(rustix::process::Signal::KILL);
    }

    /// Lets it go on if it is stopped.
    pub fn resume(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(pidfd) = &self.pidfd {
            // An Err: it is dead.
            let _ = rustix::process::pidfd_send_signal(pidfd, signal);
        }
    }
}

/// What a new shepherd is made of.
pub(super) struct Making<'a> {
    pub program: &'a Program,
    pub place: &'a PlaceCommand,
    pub directory: &'a AppDirectory,
    pub groups: Option<&'a AppGroups>,
    pub lifeline: Option<&'a OwnedFd>,
    /// Its own, if it is to have one.
    pub space: Option<&'a Space>,
}

/// Variables of apinit's own that its shepherds get.
const HANDED_ON: [&str; 5] =
    ["PSCHED_LOG", "PSCHED_LOG_FORMAT", "JOURNAL_STREAM", "RUST_BACKTRACE", instance::RUNTIME];

impl Making<'_> {
    /// Makes the socket, starts the shepherd and connects to it: it need not be there yet, the
    /// socket is.
    pub fn make(&self, key: Key, events: &Events) -> anyhow::Result<Shepherd> {
        let listener = listener(&self.directory.socket())?;
        let opened = self.groups.map(AppGroups::open).transpose().context("its groups")?;
        let nids = opened.as_ref().map_or(&[][..], |(_, nids)| nids);
        let groups: Vec<String> =
            nids.iter().map(|(nid, fd)| format!("{nid}:{}", fd.as_raw_fd())).collect();
        let lifeline = self.lifeline.map_or(-1, AsRawFd::as_raw_fd);
        let text = |t: String| CString::new(t).context("a zero byte");
        let mut environment = Vec::new();
        for name in HANDED_ON {
            if let Ok(value) = std::env::var(name) {
                environment.push(text(format!("{name}={value}"))?);
            }
        }
        let owner = &self.place.owner;
        let root = nix::unistd::geteuid().is_root();
        let ids = root.then(|| Ids {
            gid: owner.gid,
            groups: (!own_groups(&owner.groups)).then(|| owner.groups.clone()),
        });
        let mut arguments = vec![
            text(PROGRAM.into())?,
            text(key.to_string())?,
            text("--listen".into())?,
            text(listener.as_raw_fd().to_string())?,
            text("--lifeline".into())?,
            text(lifeline.to_string())?,
            text("--groups".into())?,
            text(groups.join(","))?,
        ];
        if root {
            arguments.extend([text("--uid".into())?, text(owner.uid.to_string())?]);
        }
        let keep = [listener.as_fd()]
            .into_iter()
            .chain(self.lifeline.map(AsFd::as_fd))
            .chain(nids.iter().map(|(_, fd)| fd.as_fd()));
        let spawned = spawn(&Spawn {
            program: CString::new(self.program.path.as_os_str().as_bytes())?,
            arguments,
            environment,
            keep: keep.collect(),
            group: opened.as_ref().map(|(shepherd, _)| shepherd.as_fd()),
            ids,
            space: self.space,
            soft_files: self.program.soft_files,
            within: Namespaces::default(),
        })
        .with_context(|| format!("can't start {}", self.program.path.display()))?;
        let process = Process::now(spawned.pid);
        let pidfd = Arc::new(spawned.pidfd);
        let wire = match dial(&self.directory.socket()).and_then(wire) {
            Ok(wire) => Arc::new(wire),
            Err(error) => {
                // Nobody would know it.
                let kill = rustix::process::Signal::KILL;
                let _ = rustix::process::pidfd_send_signal(&pidfd, kill);
                return Err(error).context("can't connect to it");
            }
        };
        let mouth = ShepherdWriter::open(key, &wire);
        let hung_up = Arc::<AtomicBool>::default();
        let hears = (Arc::clone(&hung_up), events.clone());
        tokio::spawn(hear(key, Reader::new(wire), Some(Arc::clone(&pidfd)), hears));
        let failure = Some(spawned.failure);
        Ok(Shepherd { process, pidfd: Some(pidfd), mouth: Some(mouth), failure, hung_up })
    }
}

/// Whether these are this process's own supplementary groups, in any order.
fn own_groups(groups: &[u32]) -> bool {
    let sorted = |mut groups: Vec<u32>| {
        groups.sort_unstable();
        groups
    };
    let own = nix::unistd::getgroups();
    own.is_ok_and(|own| sorted(own.iter().map(|g| g.as_raw()).collect()) == sorted(groups.to_vec()))
}

fn seqpacket() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?)
}

/// The socket on which a shepherd listens. It is apinit's own: no user can connect.
pub(super) fn listener(path: &Path) -> anyhow::Result<OwnedFd> {
    listening(&UnixAddr::new(path)?)
        .with_context(|| format!("can't make the socket {}", path.display()))
}

/// A socket that listens under this name.
pub(super) fn listening(name: &UnixAddr) -> io::Result<OwnedFd> {
    let fd = seqpacket()?;
    bind(fd.as_raw_fd(), name)?;
    listen(&fd, Backlog::new(8)?)?;
    Ok(fd)
}

fn dial(path: &Path) -> io::Result<OwnedFd> {
    dial_name(&UnixAddr::new(path)?)
}

/// A connection to a shepherd that listens under this name.
pub(super) fn dial_name(name: &UnixAddr) -> io::Result<OwnedFd> {
    let fd = seqpacket()?;
    // Refused: then there are more wake-ups.
    let _ = setsockopt(&fd, sockopt::SndBuf, &SEND_BUFFER);
    connect(fd.as_raw_fd(), name)?;
    Ok(fd)
}

pub(super) fn wire(connection: OwnedFd) -> io::Result<Wire> {
    watch(Arc::new(connection), Interest::READABLE | Interest::WRITABLE)
}

/// A connection to a shepherd that has said hello.
#[derive(Debug)]
pub(super) struct Connection(OwnedFd);

impl Connection {
    /// What it says next.
    fn hear(&self) -> Result<Hello, String> {
        let (mut joiner, mut buffer) = (Joiner::default(), vec![0; PACKET_MAX + 1]);
        let until = Instant::now() + REKEY;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, left) {
                Ok(0) => return Err(format!("it has said nothing for {REKEY:?}")),
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.to_string()),
            }
            let count = match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err("it has hung up".into()),
                Ok(count) => count,
                Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => continue,
                Err(error) => return Err(error.to_string()),
            };
            let whole = joiner.push(&buffer[..count]).map_err(|e| e.to_string())?;
            let Some(whole) = whole else { continue };
            let message = pb::FromShepherd::decode(whole).map_err(|e| e.to_string())?;
            return match FromShepherd::try_from(message) {
                Ok(FromShepherd::Hello(hello)) => Ok(hello),
                other => Err(format!("it has said no hello, but {other:?}")),
            };
        }
    }

    fn say(&self, message: ToShepherd) -> Result<(), String> {
        for packet in split(&pb::ToShepherd::from(message).encode_to_vec()) {
            send(self.0.as_raw_fd(), &packet, MsgFlags::MSG_NOSIGNAL).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

/// A socket on which a shepherd that is brought back listens, and where its diagnostics go.
///
/// # Errors
/// They can't be made.
pub(super) fn given_anew(directory: &AppDirectory) -> Result<(OwnedFd, File), String> {
    let socket = directory.socket();
    // One of a former life, on which nobody listens.
    let _ = std::fs::remove_file(&socket);
    let listener = listener(&socket).map_err(|e| format!("{e:#}"))?;
    let log = log().map_err(|e| format!("no log for its apshepherd: {e}"))?;
    Ok((listener, log))
}

/// Where apinit's own diagnostics go, unless that is a connection: one could not be dumped again.
fn log() -> io::Result<File> {
    use std::os::unix::fs::FileTypeExt;
    let own = File::from(std::io::stderr().as_fd().try_clone_to_owned()?);
    if own.metadata()?.file_type().is_socket() {
        return File::options().append(true).open("/dev/null");
    }
    Ok(own)
}

/// Connects to a shepherd that was brought back. To be called where it may be waited.
///
/// # Errors
/// Why it can't be heard, or that it is another's.
pub(super) fn meet(socket: &Path, key: Key) -> Result<(Connection, Hello), String> {
    let failed = |why: String| format!("its apshepherd can't be heard: {why}");
    let connection = dial(socket).map(Connection).map_err(|e| failed(e.to_string()))?;
    let hello = connection.hear().map_err(failed)?;
    if let Some(why) = misfit(hello.protocol) {
        return Err(failed(why));
    }
    if hello.key != key {
        return Err(failed(format!("it is that of {}", hello.key)));
    }
    Ok((connection, hello))
}

/// Connects to a shepherd that was brought back, and tells it as which application it goes on. To be called
/// where it may be waited.
///
/// # Errors
/// Why it does not.
pub(super) fn rekey(socket: &Path, from: Key, key: Key) -> Result<(Connection, Hello), String> {
    let failed = |why: String| format!("its apshepherd can't go on as application {key}: {why}");
    let (connection, _) = meet(socket, from)?;
    connection.say(ToShepherd::Rekey(key)).map_err(failed)?;
    match connection.hear() {
        Ok(hello) if hello.key == key => Ok((connection, hello)),
        // One that skips what it does not know.
        _ => {
            Err(failed("it is of a release that can't; restart it under that one's apinit".into()))
        }
    }
}

/// Connects to the shepherd of a former life and hears its hello. One that lives and says nothing for
/// now is heard when it does. If it is of a release that is not understood, nothing more is said, and
/// nothing that it says is heard.
pub(super) async fn find(
    key: Key,
    directory: &AppDirectory,
    events: &Events,
) -> Option<(Shepherd, Option<Hello>)> {
    let process = directory.process("shepherd")?;
    let pidfd = process.open().map(Arc::new);
    let wire = Arc::new(wire(dial(&directory.socket()).ok()?).ok()?);
    let mouth = ShepherdWriter::open(key, &wire);
    let mut reader = Reader::new(wire);
    let hung_up = Arc::<AtomicBool>::default();
    let hears = (Arc::clone(&hung_up), events.clone());
    let hello = match tokio::time::timeout(HELLO, reader.next()).await {
        Ok(Ok(Some(FromShepherd::Hello(hello)))) if hello.key == key => hello,
        // Its socket has taken the connection: it is stopped, or the host is busy.
        Err(_) if pidfd.as_deref().is_some_and(is_alive) => {
            tracing::warn!(%key, "its shepherd says nothing yet");
            tokio::spawn(hear(key, reader, pidfd.clone(), hears));
            let mouth = Some(mouth);
            return Some((Shepherd { process, pidfd, mouth, failure: None, hung_up }, None));
        }
        other => {
            tracing::warn!(%key, ?other, "its shepherd does not answer");
            return None;
        }
    };
    let understood = misfit(hello.protocol).is_none();
    let mouth = understood.then_some(mouth);
    if understood {
        tokio::spawn(hear(key, reader, pidfd.clone(), hears));
    } else {
        let (pidfd, events) = (pidfd.clone()?, events.clone());
        tokio::spawn(async move {
            wait_for_end(pidfd).await;
            let _ = events.send(TaskEvent::ShepherdSilent(key, "it has died".into())).await;
        });
    }
    Some((Shepherd { process, pidfd, mouth, failure: None, hung_up }, Some(hello)))
}

/// Whether the process has not ended yet.
fn is_alive(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO) == Ok(0)
}

/// The side that hears.
pub(super) struct Reader {
    wire: Arc<Wire>,
    joiner: Joiner,
    buffer: Vec<u8>,
}

impl Reader {
    pub fn new(wire: Arc<Wire>) -> Reader {
        Reader { wire, joiner: Joiner::default(), buffer: vec![0; PACKET_MAX + 1] }
    }

    /// The next message; `None`: the shepherd has hung up.
    pub async fn next(&mut self) -> Result<Option<FromShepherd>, String> {
        loop {
            let buffer = &mut self.buffer;
            let read = self.wire.async_io(Interest::READABLE, |fd| {
                recv(fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT).map_err(io::Error::from)
            });
            let count = match read.await {
                Ok(0) => return Ok(None),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error.to_string()),
            };
            // Copied once, at its true length: a few bytes must not hold a whole buffer.
            let whole = self.joiner.push(&self.buffer[..count]).map_err(|e| e.to_string())?;
            let Some(whole) = whole else { continue };
            let message = pb::FromShepherd::decode(whole).map_err(|e| e.to_string())?;
            if message.message.is_none() {
                // Something that a newer shepherd says.
                continue;
            }
            return FromShepherd::try_from(message).map(Some).map_err(|e| e.to_string());
        }
    }
}

/// Hears until the shepherd hangs up; then waits a moment for its death, so that it can be told how
/// it died.
async fn hear(
    key: Key,
    mut reader: Reader,
    pidfd: Option<Arc<OwnedFd>>,
    (hung_up, events): (Arc<AtomicBool>, Events),
) {
    let text = loop {
        match reader.next().await {
            Ok(Some(message)) => {
                if events.send(TaskEvent::ShepherdSaid(key, message)).await.is_err() {
                    return;
                }
            }
            Ok(None) => break String::new(),
            Err(text) => break format!("it sent what is not understood: {text}"),
        }
    };
    let lives = hung_up.load(Ordering::Relaxed);
    if let Some(pidfd) = pidfd.filter(|_| text.is_empty() && !lives) {
        let _ = tokio::time::timeout(Duration::from_secs(1), wait_for_end(pidfd)).await;
    }
    let _ = events.send(TaskEvent::ShepherdSilent(key, text)).await;
}
