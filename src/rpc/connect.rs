//! Calling psched, or an apinit, on its unix socket.
//!
//! [`connect`] opens the socket itself before tonic sees it, because tonic's own error for a socket
//! that is not there is `transport error`; here it is a sentence that names the path and the cure.
//! The channel connects anew by itself when a call finds the connection broken; that call fails, and
//! what it says goes through [`status_text`].
//!
//! ```no_run
//! use psched::rpc::{connect::{connect, socket_path, status_text}, pb};
//! # async fn example() -> Result<(), String> {
//! let channel = connect(&socket_path()).await.map_err(|e| e.to_string())?;
//! let mut psched = pb::psched_client::PschedClient::new(channel);
//! let list = psched.list(pb::ListRequest::default()).await.map_err(status_text)?;
//! # Ok(())
//! # }
//! ```

use super::caller::RELAY_SOCKET;
use super::listen::PATH_MAX;
use super::tls::DialError;
use hyper_util::rt::TokioIo;
use std::error::Error as _;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// The environment variable that names psched's socket.
pub const SOCKET_VARIABLE: &str = "PSCHED_SOCKET";
/// psched's socket where that variable is not set.
pub const SOCKET_DEFAULT: &str = "/run/psched/psched.sock";

/// HTTP/2's flow-control window for one stream, in bytes: output of an application is the only thing
/// that is ever large. (HTTP/2's own 64 KiB is one small message of output at a time.)
const STREAM_WINDOW: u32 = 1 << 20;
/// The same for all streams of a connection together.
const CONNECTION_WINDOW: u32 = 2 << 20;

/// How often, and after how long each time, a listener with a full backlog is tried again.
const BUSY_TRIES: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// psched's socket: `$PSCHED_SOCKET`, or the machine's.
pub fn socket_path() -> PathBuf {
    path_of(std::env::var_os(SOCKET_VARIABLE))
}

/// A variable that is set to nothing counts as not set.
fn path_of(variable: Option<OsString>) -> PathBuf {
    match variable {
        Some(path) if !path.is_empty() => path.into(),
        _ => SOCKET_DEFAULT.into(),
    }
}

/// Why nobody was reached.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no socket, or it is nobody's any more.
    #[error("no {who} answers on {0}: {cure}", who = whose(.0), cure = cure(.0))]
    NobodyAnswers(PathBuf),
    /// The socket, or a directory above it, is closed to the caller.
    #[error(
        "no permission to connect to {0}: ask the administrator of that psched for access, or start \
         a private one with `psched start`"
    )]
    NotAllowed(PathBuf),
    /// It does not accept, and its backlog is full.
    #[error(
        "psched does not accept connections on {0}: it is stopped or overloaded; try again \
             later"
    )]
    Busy(PathBuf),
    /// The path does not fit a socket's address.
    #[error(
        "the path of the socket {0} is longer than the {PATH_MAX} bytes that Linux takes: set \
         PSCHED_SOCKET to a shorter one"
    )]
    TooLong(PathBuf),
    /// Anything else that the system says.
    #[error("can't connect to {path}: {source}")]
    System {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// HTTP/2 did not begin.
    #[error(
        "connected to {path}, but it does not speak psched's protocol: {reason}; check the path \
         of the socket"
    )]
    Protocol {
        /// Where.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
}

/// Whether this is the socket on which apinit passes on to the hosts of PE 0.
fn is_relay(socket: &Path) -> bool {
    socket.file_name() == Some(RELAY_SOCKET.as_ref())
}

/// The daemon that listens on this socket.
fn whose(socket: &Path) -> &'static str {
    if is_relay(socket) { "apinit" } else { "psched" }
}

/// What to do where nothing answers on this socket: the machine's is its administrator's.
fn cure(socket: &Path) -> &'static str {
    if is_relay(socket) {
        return "it is being restarted, or does not run on this host; ask the administrator of this host \
                (systemctl status apinit)";
    }
    match socket == Path::new(SOCKET_DEFAULT) {
        true => {
            "psched is being restarted, or does not run on this machine; ask its administrator \
             (systemctl status psched, or apinit on a login host of a cluster), or start a \
             private psched with `psched start`"
        }
        false => "check PSCHED_SOCKET, or start a private psched with `psched start`",
    }
}

impl ConnectError {
    /// Whether it may be otherwise in a moment: psched is being restarted, say.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            ConnectError::NobodyAnswers(_) | ConnectError::Busy(_) | ConnectError::Protocol { .. }
        )
    }
}

/// Connects to a unix socket.
///
/// # Errors
/// See [`ConnectError`]: each says what to do.
pub async fn connect(path: &Path) -> Result<Channel, ConnectError> {
    let first = open(path).await?;
    begin(path, first).await
}

/// Like [`connect`]; says also which process listens there, as the kernel has it (0: it does not
/// say, or the process is in another pid namespace).
///
/// # Errors
/// See [`ConnectError`]: each says what to do.
pub async fn connect_to_process(path: &Path) -> Result<(Channel, i32), ConnectError> {
    let first = open(path).await?;
    let pid = first.peer_cred().ok().and_then(|c| c.pid()).unwrap_or(0);
    Ok((begin(path, first).await?, pid))
}

/// HTTP/2 on a connection that is there.
async fn begin(path: &Path, first: UnixStream) -> Result<Channel, ConnectError> {
    let mut first = Some(first);
    let again = path.to_owned();
    let connector = tower::service_fn(move |_| {
        let ready = first.take();
        let path = again.clone();
        async move {
            match ready {
                Some(stream) => Ok::<_, ConnectError>(TokioIo::new(stream)),
                None => Ok(TokioIo::new(open(&path).await?)),
            }
        }
    });
    endpoint().connect_with_connector(connector).await.map_err(|error| ConnectError::Protocol {
        path: path.to_owned(),
        reason: why(error.source().unwrap_or(&error)),
    })
}

/// How all channels speak HTTP/2.
pub(super) fn endpoint() -> Endpoint {
    // h2 refuses a path as :authority, and servers in other languages want one, so it is a name.
    Endpoint::from_static("http://localhost")
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
}

/// The connection itself.
async fn open(path: &Path) -> Result<UnixStream, ConnectError> {
    if path.as_os_str().as_bytes().len() > PATH_MAX {
        return Err(ConnectError::TooLong(path.to_owned()));
    }
    let mut tries = 0;
    loop {
        let error = match UnixStream::connect(path).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let path = path.to_owned();
        match error.kind() {
            // Reset: whoever listened died before it accepted.
            io::ErrorKind::NotFound
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset => {
                return Err(ConnectError::NobodyAnswers(path));
            }
            io::ErrorKind::PermissionDenied => return Err(ConnectError::NotAllowed(path)),
            io::ErrorKind::WouldBlock if tries < BUSY_TRIES => {
                tries += 1;
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            io::ErrorKind::WouldBlock => return Err(ConnectError::Busy(path)),
            _ => return Err(ConnectError::System { path, source: error }),
        }
    }
}

/// A failed call in plain words: what the other side said, or what became of the connection.
pub fn status_text(status: Status) -> String {
    let Some(source) = status.source() else {
        // From the other side, whose messages are sentences.
        return match (status.message(), status.code()) {
            ("", Code::Unimplemented) => {
                "the other side does not know this request: it is of an older release; upgrade it"
                    .to_owned()
            }
            ("", code) => format!("refused without a reason ({})", code.description()),
            // (Of the library here, which drops what it came from.)
            (message, _) if message.starts_with(OF_HTTP) => {
                format!("the connection broke: {}", plain(message))
            }
            (message, _) => message.to_owned(),
        };
    };
    if let Some(error) = find::<ConnectError>(source) {
        return error.to_string();
    }
    if let Some(error) = find::<DialError>(source) {
        return error.to_string();
    }
    match status.code() {
        Code::Cancelled | Code::DeadlineExceeded if status.message() == "Timeout expired" => {
            "the other side did not answer in time".to_owned()
        }
        _ => format!("the connection broke: {}", why(source)),
    }
}

/// As [`status_text`], of a connection that the other side has made: limits of connections here are no
/// reason for it to close one.
pub fn heard_text(status: Status) -> String {
    let text = status_text(status);
    match text.strip_suffix(CLOSED) {
        Some(before) => format!("{before}the other side closed it"),
        None => text,
    }
}

/// Whether an error says that there was no connection: nothing can have been sent.
pub fn is_not_connected(error: &(dyn std::error::Error + 'static)) -> bool {
    find::<ConnectError>(error).is_some() || find::<DialError>(error).is_some()
}

/// Why a connection broke. That the other side is gone is all that the system says of one that was
/// closed.
fn why(error: &(dyn std::error::Error + 'static)) -> String {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let closed = |error: &(dyn std::error::Error + 'static)| {
        let kind = error.downcast_ref().map(io::Error::kind);
        matches!(kind, Some(BrokenPipe | ConnectionReset | UnexpectedEof))
    };
    match causes(error).any(closed) {
        true => CLOSED.to_owned(),
        false => plain(&chain(error)),
    }
}

/// What is said of a connection that the other side has closed.
const CLOSED: &str = "the other side closed it: it is ending, or has reached connections_max or \
                      connections_user_max";
/// With what a text of the library begins. (h2 is HTTP/2, and reads as the name of a host.)
const OF_HTTP: &str = "h2 protocol error: ";
/// What the library says of a stream that ended before its time.
const CUT_OFF: &str = "error reading a body from connection";

/// The text of a library on a broken connection, in plain words where it is known what it means.
fn plain(text: &str) -> String {
    let text = text.strip_prefix(OF_HTTP).unwrap_or(text);
    let rest = text.strip_prefix(CUT_OFF).map(|rest| rest.trim_start_matches(": "));
    let of_pipe = |text: &str| text.ends_with("closed because of a broken pipe");
    match rest.unwrap_or(text) {
        "" if rest.is_some() => "it was cut off".to_owned(),
        text if of_pipe(text) || text.contains("without sending TLS close_notify") => {
            CLOSED.to_owned()
        }
        text => text.to_owned(),
    }
}

/// The error of this kind in a chain of sources.
fn find<'a, E: std::error::Error + 'static>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a E> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// An error and what it came from, each thing said once. (Many an error's text already ends with
/// that of its source, and some say nothing but that there is one.)
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    const EMPTY: [&str; 3] = ["transport error", "connection error", "Service was not ready"];
    let texts: Vec<String> = causes(error).map(ToString::to_string).collect();
    let telling = texts.iter().filter(|text| !EMPTY.contains(&text.as_str()));
    let said = telling.fold(String::new(), |said, more| match said.contains(more.as_str()) {
        true => said,
        false if said.is_empty() => more.clone(),
        false => format!("{said}: {more}"),
    });
    if said.is_empty() { texts.concat() } else { said }
}

fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    // No chain is as long; a source that leads back to itself would be endless.
    std::iter::successors(Some(error), |cause: &&'a (dyn std::error::Error + 'static)| {
        (*cause).source()
    })
    .take(32)
}

#[cfg(test)]
mod tests;
