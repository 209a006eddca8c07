//! Shepherds: making one, finding one again, talking with one.

use super::attach::wait_for_end;
use super::events::{Events, TaskEvent};
use super::runtime::{AppDirectory, Process};
use super::shepherd_handle::{PROGRAM, Shepherd};
use super::shepherd_sockets::{Connection, dial, listener, wire};
use super::shepherd_writer::{ShepherdWriter, Wire};
use crate::apteam::Key;
use crate::apteam::protocol::node::PlaceCommand;
use crate::apteam::protocol::shepherd::{FromShepherd, Hello, misfit};
use crate::node::frames::{Joiner, PACKET_MAX};
use crate::node::groups::AppGroups;
use crate::os::instance;
use crate::os::peer::is_running;
use crate::os::space::Space;
use crate::os::spawn::{Ids, Namespaces, Spawn, spawn};
use crate::rpc::pb;
use anyhow::Context;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{MsgFlags, recv};
use prost::Message;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::Interest;

/// How long a found one may take for its hello.
const HELLO: Duration = Duration::from_secs(2);
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
    let own = std::env::current_exe().context("can't find the path of apinit")?;
    let beside = own.parent().map(|folder| folder.join(PROGRAM));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM));
    beside.into_iter().chain(in_path).find(|p| p.is_file()).with_context(|| {
        format!("{PROGRAM} is neither next to {} nor in PATH: install it there", own.display())
    })
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
        let text = |t: String| CString::new(t).context("an argument of apshepherd has a NUL byte");
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
                return Err(error).context("can't connect to the new apshepherd");
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

/// Takes up a shepherd that has said hello already, on this connection.
///
/// # Errors
/// The connection can't be watched, or it has ended meanwhile.
pub(super) fn connected(
    key: Key,
    process: Process,
    connection: Connection,
    events: &Events,
) -> Result<Shepherd, String> {
    let failed = |why: &dyn std::fmt::Display| format!("its apshepherd does not answer: {why}");
    let pidfd = process.open().map_err(|error| failed(&error))?;
    let pidfd = pidfd.map(Arc::new).ok_or_else(|| failed(&"it has died"))?;
    let wire = Arc::new(wire(connection.0).map_err(|e| failed(&e))?);
    let mouth = Some(ShepherdWriter::open(key, &wire));
    let hung_up = Arc::<AtomicBool>::default();
    let hears = (Arc::clone(&hung_up), events.clone());
    tokio::spawn(hear(key, Reader::new(wire), Some(Arc::clone(&pidfd)), hears));
    Ok(Shepherd { process, pidfd: Some(pidfd), mouth, failure: None, hung_up })
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
    let opened = process.open().map(|pidfd| pidfd.map(Arc::new));
    let unsure = opened.is_err();
    let pidfd = opened.ok().flatten();
    let wire = Arc::new(wire(dial(&directory.socket()).ok()?).ok()?);
    let mouth = ShepherdWriter::open(key, &wire);
    let mut reader = Reader::new(wire);
    let hung_up = Arc::<AtomicBool>::default();
    let hears = (Arc::clone(&hung_up), events.clone());
    let hello = match tokio::time::timeout(HELLO, reader.next()).await {
        Ok(Ok(Some(FromShepherd::Hello(hello)))) if hello.key == key => hello,
        // Its socket has taken the connection: it is stopped, or the host is busy.
        Err(_) if unsure || pidfd.as_deref().is_some_and(is_running) => {
            tracing::warn!(%key, "the apshepherd of an application has not answered yet");
            tokio::spawn(hear(key, reader, pidfd.clone(), hears));
            let mouth = Some(mouth);
            return Some((Shepherd { process, pidfd, mouth, failure: None, hung_up }, None));
        }
        other => {
            tracing::warn!(%key, ?other, "its apshepherd does not answer");
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
            Err(text) => break format!("it sent a message that can't be decoded: {text}"),
        }
    };
    let lives = hung_up.load(Ordering::Relaxed);
    if let Some(pidfd) = pidfd.filter(|_| text.is_empty() && !lives) {
        let _ = tokio::time::timeout(Duration::from_secs(1), wait_for_end(pidfd)).await;
    }
    let _ = events.send(TaskEvent::ShepherdSilent(key, text)).await;
}
