//! Making the socket itself.

use crate::os::{peer, rights, trust};
use nix::fcntl::{Flock, FlockArg};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr};
use nix::sys::stat::{Mode, fchmod, umask};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};
use tokio::net::UnixListener;

/// The longest path of a unix socket in bytes: sun_path has 108, of which one is a NUL.
pub const PATH_MAX: usize = 107;

/// Connections that wait for accept; the kernel lowers it to net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// How long to wait for another process that is listening in the same directory just now. (Any user who
/// can read the directory can keep it locked. A daemon starts all the same.)
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// How long to wait for what a daemon that was killed was just starting: until it is executed it keeps the
/// daemon's socket.
const ORPHAN_WAIT: Duration = Duration::from_secs(1);

/// How long to wait before looking again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Why there is no listening on a path.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// It does not fit sun_path.
    #[error(
        "the path of the socket {path} has {length} bytes, and Linux takes at most {PATH_MAX}: \
         choose a shorter one"
    )]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// A psched (or an apinit) is there already.
    #[error("another daemon answers on {0}: stop it, or choose another socket")]
    Answered(PathBuf),
    /// The path is something else, which is not touched.
    #[error("{0} exists and is not a socket: remove it, or choose another path")]
    NotASocket(PathBuf),
    /// Its directory does not exist.
    #[error("the directory {0} does not exist: create it, or choose another path")]
    NoDirectory(PathBuf),
    /// Another user could change where it is.
    #[error(
        "a socket at {path} would not be safe: {why}; choose a directory that only root changes"
    )]
    Unsafe {
        /// The path.
        path: PathBuf,
        /// Who could.
        why: String,
    },
    /// Not allowed.
    #[error("not allowed to {doing} {path}: choose a directory of your own")]
    NotAllowed {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
    },
    /// Anything else that the system says.
    #[error("can't {doing} {path}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ListenError {
    /// The error, and where the path that it speaks of is chosen.
    pub fn chosen_by(self, setting: &str) -> anyhow::Error {
        anyhow::anyhow!("{:#} ({setting})", anyhow::Error::new(self))
    }
}

/// Listens on a path, with these permissions of the socket (`0o666`: everyone may connect). Where
/// the kernel can, it refuses descriptors that are sent to it.
///
/// To be called within a tokio runtime with I/O enabled.
///
/// # Errors
/// See [`ListenError`]; nothing has been changed then, except that a stale socket may be gone.
pub fn listen(path: &Path, mode: u32) -> Result<UnixListener, ListenError> {
    bound(path, mode, false)
}

/// Like [`listen`], where descriptors are wanted.
///
/// # Errors
/// As there.
pub fn listen_for_descriptors(path: &Path, mode: u32) -> Result<UnixListener, ListenError> {
    bound(path, mode, true)
}

fn bound(path: &Path, mode: u32, descriptors: bool) -> Result<UnixListener, ListenError> {
    let length = path.as_os_str().as_bytes().len();
    if length > PATH_MAX {
        return Err(ListenError::TooLong { path: path.to_owned(), length });
    }
    let system = |doing| move |error: io::Error| wrong(doing, path, error);
    // Two that find the same stale socket must not each unlink the other's new one.
    let _lock = lock_directory(path)?;
    let directory = directory_of(path);
    trust::check_directory(directory)
        .map_err(|why| ListenError::Unsafe { path: path.to_owned(), why })?;
    remove_stale(path)?;

    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)
        .map_err(|errno| system("create a socket for")(errno.into()))?;
    if !descriptors {
        rights::refuse(&socket).map_err(system("refuse descriptors on"))?;
    }
    // The file gets the mode of the socket less the umask, so that it never has more than `mode`. It has that mode from
    // the first: aprun ends at once without permission to connect, even before the daemon listens.
    fchmod(&socket, Mode::from_bits_truncate(mode & 0o777))
        .map_err(|errno| system("set the mode of")(errno.into()))?;
    bind_without_umask(&socket, path).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => ListenError::Answered(path.to_owned()),
        _ => wrong("create the socket", path, error),
    })?;
    // (Where a thread can't have a umask of its own.)
    fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o777))
        .map_err(system("set the mode of"))?;
    let listening = socket::Backlog::new(BACKLOG).and_then(|most| socket::listen(&socket, most));
    listening.map_err(|errno| system("listen on")(errno.into()))?;
    UnixListener::from_std(socket.into()).map_err(system("listen on"))
}

/// In a thread with a umask of its own, if there can be one.
fn bind_without_umask(socket: &OwnedFd, path: &Path) -> io::Result<()> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            if unshare(CloneFlags::CLONE_FS).is_ok() {
                umask(Mode::empty());
            }
            bind(socket, path)
        });
        match thread.map(|thread| thread.join()) {
            Ok(Ok(bound)) => bound,
            _ => bind(socket, path),
        }
    })
}

fn bind(socket: &OwnedFd, path: &Path) -> io::Result<()> {
    socket::bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(())
}

/// Removes a socket that nobody listens on.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(wrong("look at", path, error)),
    };
    if !kind.is_socket() {
        return Err(ListenError::NotASocket(path.to_owned()));
    }
    let until = Instant::now() + ORPHAN_WAIT;
    loop {
        match try_connect(path) {
            Ok(Answer::Orphan) if Instant::now() < until => std::thread::sleep(LOOK_AGAIN),
            Ok(_) => return Err(ListenError::Answered(path.to_owned())),
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::ConnectionRefused => fs::remove_file(path)
                        .map_err(|error| wrong("remove the stale socket", path, error)),
                    io::ErrorKind::NotFound => Ok(()),
                    // Somebody listens, and has more callers than the backlog takes.
                    io::ErrorKind::WouldBlock => Err(ListenError::Answered(path.to_owned())),
                    _ => Err(wrong("see who listens on", path, error)),
                };
            }
        }
    }
}

/// Who takes connections.
enum Answer {
    /// Somebody.
    Daemon,
    /// The kernel, for a process that has ended, and of which another has the socket still.
    Orphan,
}

/// Without waiting, for one who does not accept either.
fn try_connect(path: &Path) -> io::Result<Answer> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    match socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?) {
        // A socket of another type: datagrams, say.
        Err(nix::Error::EPROTOTYPE) => Ok(Answer::Daemon),
        Err(errno) => Err(errno.into()),
        Ok(()) if peer::has_ended(&socket) => Ok(Answer::Orphan),
        Ok(()) => Ok(Answer::Daemon),
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Whether there is no socket, and none is being made anew by a daemon that has just started: its stale one goes first.
pub fn is_absent(path: &Path) -> bool {
    if path.exists() {
        return false;
    }
    let Ok(directory) = fs::File::open(directory_of(path)) else { return true };
    match Flock::lock(directory, FlockArg::LockSharedNonblock) {
        Ok(_lock) => !path.exists(),
        Err((_, errno)) => errno != nix::Error::EWOULDBLOCK,
    }
}

/// A lock on the socket's directory, for as long as it is looked at and changed. `None`: another process keeps it for
/// longer than that takes.
fn lock_directory(path: &Path) -> Result<Option<Flock<fs::File>>, ListenError> {
    let directory = directory_of(path);
    let mut file = fs::File::open(directory).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ListenError::NoDirectory(directory.to_owned()),
        _ => wrong("open", directory, error),
    })?;
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(Some(lock)),
            Err((again, nix::Error::EWOULDBLOCK)) if Instant::now() < until => {
                file = again;
                std::thread::sleep(LOOK_AGAIN);
            }
            Err((_, nix::Error::EWOULDBLOCK)) => {
                tracing::warn!(
                    "another process keeps {} locked (flock; lslocks shows which): going on without that lock",
                    directory.display()
                );
                return Ok(None);
            }
            Err((_, errno)) => return Err(wrong("lock", directory, errno.into())),
        }
    }
}

fn wrong(doing: &'static str, path: &Path, source: io::Error) -> ListenError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => ListenError::NotAllowed { doing, path },
        _ => ListenError::System { doing, path, source },
    }
}
