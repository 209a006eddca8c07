//! Unwanted descriptors that other users send (SCM_RIGHTS).
//!
//! # Problem
//! A descriptor that comes with bytes is closed by whoever reads these, or closes the connection
//! while they wait in it. Where it is the last one of a TCP socket with SO_LINGER whose peer reads
//! nothing, the kernel waits for as long as its owner has chosen, hours if he likes, in the thread
//! that closed it. One message would stop a daemon.
//!
//! # Approach
//! A socket that wants no descriptors says so to the kernel ([`refuse`], since Linux 6.16): they
//! can't be sent then. On older kernels, and where one is wanted, a reader looks at first whether a
//! descriptor comes with the bytes ([`read`]), and a connection in which descriptors wait is closed
//! by a thread of its own ([`close_aside`]). Signals end its waits.

use nix::libc;
use nix::sys::pthread::{pthread_kill, pthread_self};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, recv, recvmsg};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

/// Of <asm-generic/socket.h>; libc does not have it yet.
const SO_PASSRIGHTS: libc::c_int = 83;
/// For how long a connection may be closed before the wait is ended, where no other waits for that.
const CLOSE_WAIT: Duration = Duration::from_millis(100);

/// Has the kernel refuse descriptors that are sent to this socket, and to those that it will
/// accept, if it can ([`refuses`]): since Linux 6.16.
///
/// # Errors
/// It is no unix socket.
pub fn refuse(socket: &impl AsFd) -> io::Result<()> {
    let no: libc::c_int = 0;
    // SAFETY: the kernel reads an int from where `no` is, which lives through the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const no).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
            error => Err(error),
        },
    }
}

/// Whether the kernel refuses descriptors that are sent to this socket.
pub fn refuses(socket: &impl AsFd) -> bool {
    let (mut takes, mut bytes): (libc::c_int, _) = (1, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the kernel writes an int to where `takes` is, and its size to where `bytes` is; both
    // live through the call, and an int may have any value.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw mut takes).cast(),
            &raw mut bytes,
        )
    };
    done == 0 && takes == 0
}

/// Whether descriptors wait with the bytes that come next, which are put into `bytes` and stay
/// where they are; and how many bytes.
fn look(socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, bool)> {
    let mut pieces = [IoSliceMut::new(bytes)];
    let mut none = RecvAncillaryBuffer::default();
    // (There is no room for descriptors: the kernel says that they were left out, and they stay.)
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let seen = recvmsg(socket, &mut pieces, &mut none, flags)?;
    Ok((seen.bytes, seen.flags.contains(ReturnFlags::CTRUNC)))
}

/// Reads bytes that have come, 0 at the end, and takes no descriptor. An error of the kind
/// `InvalidData`: one comes with them, and the connection is to be closed aside.
///
/// # Errors
/// Those of recvmsg; `WouldBlock`: nothing has come.
pub fn read(socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    match look(socket, bytes)? {
        (_, true) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the peer sends file descriptors, which are not accepted here",
        )),
        (0, false) => Ok(0),
        // (What has come since may have some.)
        (count, false) => Ok(recv(socket, &mut bytes[..count], RecvFlags::DONTWAIT)?.0),
    }
}

/// How many wait to be closed aside.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Closes it in a thread of its own, within about [`CLOSE_WAIT`] after those before it, and sooner
/// the more wait.
pub fn close_aside(descriptor: OwnedFd) {
    static CLOSER: OnceLock<Mutex<mpsc::Sender<OwnedFd>>> = OnceLock::new();
    let closer = CLOSER.get_or_init(|| {
        let (sender, receiver) = mpsc::channel();
        start(receiver);
        Mutex::new(sender)
    });
    WAITING.fetch_add(1, Ordering::Relaxed);
    let sender = closer.lock().unwrap_or_else(PoisonError::into_inner);
    if sender.send(descriptor).is_err() {
        // There is no such thread: it has been closed here.
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many wait to be closed aside just now.
pub fn waiting() -> usize {
    WAITING.load(Ordering::Relaxed)
}

extern "C" fn ends_a_wait(_: libc::c_int) {}

fn start(descriptors: mpsc::Receiver<OwnedFd>) {
    let (begun, begins) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let close = move || {
        let mut set = SigSet::empty();
        set.add(Signal::SIGURG);
        let _ = set.thread_unblock();
        if begun.send(pthread_self()).is_err() {
            return;
        }
        for descriptor in descriptors {
            let _ = tell.send(true);
            drop(descriptor);
            WAITING.fetch_sub(1, Ordering::Relaxed);
            let _ = tell.send(false);
        }
    };
    let action =
        SigAction::new(SigHandler::Handler(ends_a_wait), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing, so it may run at any time.
    let caught = unsafe { sigaction(Signal::SIGURG, &action) };
    if let Err(error) = caught {
        tracing::warn!("descriptors that are sent here may keep others from being closed: {error}");
    }
    let hurry = move || {
        let Ok(thread) = begins.recv() else { return };
        let mut busy = false;
        loop {
            let wait = CLOSE_WAIT / u32::try_from(waiting()).unwrap_or(u32::MAX).max(1);
            let heard = match busy {
                true => told.recv_timeout(wait.max(Duration::from_micros(50))),
                false => told.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
            };
            match heard {
                Ok(now) => busy = now,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    // (It lives: it has not said that it has closed this one.)
                    let _ = pthread_kill(thread, Signal::SIGURG);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    };
    for (name, work) in
        [("closer", Box::new(close) as Box<dyn FnOnce() + Send>), ("closer-hurry", Box::new(hurry))]
    {
        if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(work) {
            tracing::warn!("no thread for descriptors that are sent here: {error}");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nix::sys::socket::sockopt::{Linger, RcvBuf};
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt};
    use std::io::{IoSlice, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    /// Whoever closes the second one last waits for 100 s, for the first is not read.
    pub(crate) fn slow_to_close() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        setsockopt(&listener, RcvBuf, &4_096).expect("set");
        let mut slow =
            TcpStream::connect(listener.local_addr().expect("known")).expect("connected");
        let (unread, _) = listener.accept().expect("accepted");
        slow.set_nonblocking(true).expect("set");
        while slow.write(&[b'x'; 65_536]).is_ok() {}
        let linger = libc::linger { l_onoff: 1, l_linger: 100 };
        setsockopt(&slow, Linger, &linger).expect("set");
        (unread, slow)
    }

    /// Sends bytes, and a descriptor with them.
    pub(crate) fn send(
        to: &impl AsRawFd,
        bytes: &[u8],
        descriptor: &impl AsRawFd,
    ) -> io::Result<()> {
        let fds = [descriptor.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&fds)];
        let pieces = [IoSlice::new(bytes)];
        sendmsg::<()>(to.as_raw_fd(), &pieces, &rights, MsgFlags::empty(), None)?;
        Ok(())
    }

    #[test]
    fn no_descriptor_is_taken_and_none_keeps_anybody_waiting() {
        let (ours, mut theirs) = UnixStream::pair().expect("two");
        let mut bytes = [0; 8];
        theirs.write_all(b"ab").expect("sent");
        assert_eq!(read(&ours, &mut bytes).expect("read"), 2);
        let nothing = read(&ours, &mut bytes).expect_err("nothing has come");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let (_unread, slow) = slow_to_close();
        send(&theirs, b"c", &slow).expect("sent");
        drop(slow);
        for _ in 0..2 {
            let refused = read(&ours, &mut bytes).expect_err("it stays where it is");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        }
        let begun = Instant::now();
        close_aside(ours.into());
        let (last, mut end) = UnixStream::pair().expect("two");
        close_aside(last.into());
        // It has been closed, and the one before it.
        end.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        assert_eq!(io::Read::read(&mut end, &mut bytes).expect("closed"), 0);
        assert!(begun.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn the_kernel_refuses_them_where_it_can() {
        let (ours, theirs) = UnixStream::pair().expect("two");
        let folder = std::fs::File::open("/").expect("opened");
        assert!(!refuses(&ours));
        refuse(&ours).expect("a socket");
        assert_eq!(send(&theirs, b"a", &folder).is_err(), refuses(&ours));
    }
}
