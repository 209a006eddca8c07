//! Sockets of shepherds: on which they listen, and connections to them.

use super::runtime::AppDirectory;
use super::shepherd_writer::Wire;
use crate::apteam::Key;
use crate::apteam::protocol::shepherd::{FromShepherd, Hello, ToShepherd, misfit};
use crate::node::frames::{Joiner, PACKET_MAX, split};
use crate::os::watch::watch;
use crate::rpc::pb;
use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect, listen, recv,
    send, setsockopt, socket, sockopt,
};
use prost::Message;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::Interest;

/// Asked of the kernel for each socket.
const SEND_BUFFER: usize = 1024 * 1024;
/// How long a shepherd that was brought back may take for its hello: it takes its new key first.
const REKEY: Duration = Duration::from_secs(10);

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

pub(super) fn dial(path: &Path) -> io::Result<OwnedFd> {
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
pub(super) struct Connection(pub OwnedFd);

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
                Ok(0) => return Err(format!("it has sent no message for {REKEY:?}")),
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.to_string()),
            }
            let count = match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err("it has closed its connection".into()),
                Ok(count) => count,
                Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => continue,
                Err(error) => return Err(error.to_string()),
            };
            let whole = joiner.push(&buffer[..count]).map_err(|e| e.to_string())?;
            let Some(whole) = whole else { continue };
            let message = pb::FromShepherd::decode(whole).map_err(|e| e.to_string())?;
            return match FromShepherd::try_from(message) {
                Ok(FromShepherd::Hello(hello)) => Ok(hello),
                other => Err(format!("its first message is not a hello: {other:?}")),
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
    // The socket of a former life, on which no process listens.
    let _ = std::fs::remove_file(&socket);
    let listener = listener(&socket).map_err(|e| format!("{e:#}"))?;
    let log = log().map_err(|e| format!("can't open the log of its apshepherd: {e}"))?;
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
    let failed = |why: String| format!("its apshepherd does not answer: {why}");
    let connection = dial(socket).map(Connection).map_err(|e| failed(e.to_string()))?;
    let hello = connection.hear().map_err(failed)?;
    if let Some(why) = misfit(hello.protocol) {
        return Err(failed(why));
    }
    if hello.key != key {
        return Err(failed(format!("it is the apshepherd of application {}", hello.key)));
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
        _ => Err(failed(
            "its release does not support this; restart the checkpoint under the apinit of that \
             release"
                .into(),
        )),
    }
}
