use super::*;
use crate::rpc::raw_requests;
use crate::rpc::request_turns::RequestTurns;
use nix::sys::stat::{Mode, umask};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_stream::StreamExt;
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;
use tonic::codegen::http;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A user of this host.
pub(crate) fn peer_of(uid: u32) -> Peer {
    Peer {
        uid,
        gid: uid,
        groups: Vec::new(),
        pid: 0,
        pidfd: None,
        started: 0,
        doubt: None,
        turned: None,
        hang_up: CancellationToken::new(),
        relayed: None,
    }
}

/// Each await of a test has this bound.
async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("within 10 s")
}

async fn connect(path: &Path) -> UnixStream {
    UnixStream::connect(path).await.expect("somebody listens")
}

#[tokio::test]
async fn the_mode_is_as_asked_whatever_the_umask() {
    let folder = folder();
    let runtime = tokio::runtime::Handle::current();
    let modes = [0o666, 0o600, 0o660];
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // From here on this thread's umask is its own.
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).expect("always allowed");
            umask(Mode::from_bits_truncate(0o077));
            let _runtime = runtime.enter();
            for mode in modes {
                listen(&folder.path().join(format!("{mode:o}")), mode).expect("a free path");
            }
        });
    });
    for mode in modes {
        let metadata = fs::metadata(folder.path().join(format!("{mode:o}")));
        assert_eq!(metadata.expect("it is there").permissions().mode() & 0o7777, mode);
    }
}

/// A user who is refused would not try again.
#[tokio::test]
async fn the_mode_is_as_asked_from_the_first() {
    let folder = folder();
    let (path, made) = (folder.path().join("s"), AtomicBool::new(false));
    let runtime = tokio::runtime::Handle::current();
    std::thread::scope(|threads| {
        let looks = threads.spawn(|| {
            let mut seen = BTreeSet::new();
            while !made.load(Ordering::Relaxed) {
                seen.extend(
                    fs::metadata(&path).ok().map(|found| found.permissions().mode() & 0o777),
                );
            }
            seen
        });
        threads.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).expect("always allowed");
            umask(Mode::from_bits_truncate(0o077));
            let _runtime = runtime.enter();
            (0..200).for_each(|_| drop(listen(&path, 0o666).expect("stale each time")));
            made.store(true, Ordering::Relaxed);
        });
        assert!(looks.join().expect("no panic").into_iter().all(|mode| mode == 0o666));
    });
}

#[tokio::test]
async fn a_socket_that_somebody_answers_on_is_left_alone() {
    let folder = folder();
    let path = folder.path().join("s");
    let _first = listen(&path, 0o600).expect("a free path");
    let inode = fs::metadata(&path).expect("it is there").ino();
    let error = listen(&path, 0o600).expect_err("it is taken");
    let said =
        format!("another daemon answers on {}: stop it, or choose another socket", path.display());
    assert_eq!(error.to_string(), said);
    assert_eq!(fs::metadata(&path).expect("still there").ino(), inode);
    connect(&path).await;
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_nothing_else_is() {
    let folder = folder();
    let path = folder.path().join("s");
    drop(listen(&path, 0o600).expect("a free path"));
    assert!(path.exists(), "dropping it leaves the file: it is stale now");
    let _again = listen(&path, 0o600).expect("a stale socket is no obstacle");
    connect(&path).await;

    let file = folder.path().join("file");
    fs::write(&file, "precious").expect("written");
    assert!(matches!(listen(&file, 0o600), Err(ListenError::NotASocket(_))));
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("file", &link).expect("linked");
    assert!(matches!(listen(&link, 0o600), Err(ListenError::NotASocket(_))));
    assert_eq!(fs::read_to_string(&file).expect("still there"), "precious");

    let datagrams = folder.path().join("d");
    let _socket = std::os::unix::net::UnixDatagram::bind(&datagrams).expect("bound");
    assert!(matches!(listen(&datagrams, 0o600), Err(ListenError::Answered(_))));
}

/// Between a daemon's stale socket and its new one there is none.
#[tokio::test]
async fn a_socket_that_is_being_made_is_not_absent() {
    use nix::fcntl::{Flock, FlockArg};
    let folder = folder();
    let path = folder.path().join("s");
    assert!(is_absent(&path) && is_absent(&folder.path().join("none/s")));
    let directory = || fs::File::open(folder.path()).expect("it is there");
    let daemon = Flock::lock(directory(), FlockArg::LockExclusive).expect("locked");
    assert!(!is_absent(&path));
    drop(daemon);
    // Another who looks is no daemon.
    let caller = Flock::lock(directory(), FlockArg::LockShared).expect("locked");
    assert!(is_absent(&path));
    // A daemon starts although another process has the lock.
    let _listens = listen(&path, 0o600).expect("without the lock");
    drop(caller);
    assert!(!is_absent(&path));
    connect(&path).await;
}

/// A daemon is killed while it starts a program, which has its socket until it is executed: here `sleep`.
#[tokio::test]
async fn a_socket_that_a_killed_daemons_child_has_is_soon_stale() {
    const PATH: &str = "PSCHED_TEST_LISTENS_ON";
    if let Some(path) = std::env::var_os(PATH) {
        let socket = std::os::unix::net::UnixListener::bind(path).expect("bound");
        let mut shell = std::process::Command::new("sh");
        let shell = shell.args(["-c", "sleep 0.3 &"]).stdout(OwnedFd::from(socket)).status();
        assert!(shell.expect("spawned").success());
        return;
    }
    let folder = folder();
    let path = folder.path().join("s");
    let mut daemon = std::process::Command::new(std::env::current_exe().expect("this program"));
    let name = "rpc::listen::tests::a_socket_that_a_killed_daemons_child_has_is_soon_stale";
    let ended = daemon.args(["--exact", name]).env(PATH, &path).stdout(Stdio::null()).status();
    assert!(ended.expect("spawned").success());
    std::os::unix::net::UnixStream::connect(&path).expect("it still takes connections");
    let _again = listen(&path, 0o600).expect("until the child has gone");
    connect(&path).await;
}

#[tokio::test]
async fn a_path_too_long_is_refused_with_its_length_and_the_cure() {
    let folder = folder();
    let room = PATH_MAX - folder.path().as_os_str().len() - 1;
    listen(&folder.path().join("x".repeat(room)), 0o600).expect("just fits");
    let error = listen(&folder.path().join("x".repeat(room + 1)), 0o600).expect_err("too long");
    let said = error.to_string();
    assert!(
        said.contains("has 108 bytes, and Linux takes at most 107: choose a shorter"),
        "{said}"
    );
}

#[tokio::test]
async fn a_missing_directory_is_named() {
    let folder = folder();
    let error = listen(&folder.path().join("no/s"), 0o600).expect_err("no such directory");
    let no = folder.path().join("no");
    let said =
        format!("the directory {} does not exist: create it, or choose another path", no.display());
    assert_eq!(error.to_string(), said);
}

/// Of many that start at once on one stale socket, one gets it.
#[tokio::test]
async fn of_two_at_once_one_listens() {
    let folder = folder();
    let path = folder.path().join("s");
    drop(listen(&path, 0o600).expect("a free path"));
    let tries = (0..8).map(|_| {
        let path = path.clone();
        tokio::task::spawn_blocking(move || listen(&path, 0o600))
    });
    let mut listening = Vec::new();
    for outcome in tries.collect::<Vec<_>>() {
        match soon(outcome).await.expect("no panic") {
            Ok(listener) => listening.push(listener),
            Err(error) => assert!(matches!(error, ListenError::Answered(_)), "{error}"),
        }
    }
    assert_eq!(listening.len(), 1);
}

#[tokio::test]
async fn the_peer_is_known() {
    let folder = folder();
    let path = folder.path().join("s");
    let mut connections = incoming(listen(&path, 0o600).expect("free"), Bounds::default());
    let _client = connect(&path).await;
    let stream = soon(connections.next()).await.expect("endless").expect("no error");
    let peer = stream.connect_info();
    assert_eq!(peer.uid, nix::unistd::geteuid().as_raw());
    assert_eq!(peer.gid, nix::unistd::getegid().as_raw());
    assert_eq!(peer.pid, nix::unistd::getpid().as_raw());
    assert_eq!(peer.started, peer::process_started(peer.pid).expect("we run"));
    assert!(peer.pidfd.is_some());
    let expected = (peer.uid == OVERFLOW_UID).then_some(Doubt::UnmappedUid);
    assert_eq!(peer.doubt, expected);
}

/// Its connection may still be open when a process has ended: a child of its has it, say.
#[tokio::test]
async fn a_peer_that_has_ended_is_doubtful() {
    let folder = folder();
    let path = folder.path().join("s");
    let listener = listen(&path, 0o600).expect("free");
    // Connects, and ends before anybody accepts.
    let script = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
    let mut python = std::process::Command::new("python3");
    let Ok(status) = python.args(["-c", script]).arg(&path).status() else {
        eprintln!("skipped: a_peer_that_has_ended_is_doubtful needs python3");
        return;
    };
    assert!(status.success());
    let mut connections = incoming(listener, Bounds::default());
    let stream = soon(connections.next()).await.expect("endless").expect("no error");
    assert_eq!(stream.connect_info().doubt, Some(Doubt::NoProcess));
    assert_eq!(stream.connect_info().started, 0);
}

/// One is taken all the same, to be told why, and closed in the end.
#[tokio::test]
async fn connections_beyond_the_bound_are_told_and_places_come_back() {
    let folder = folder();
    let path = folder.path().join("s");
    let preface_wait = Duration::from_millis(20);
    let bounds = Bounds { connections: 1, reserved: 0, preface_wait, ..Bounds::default() };
    let told = watch::Sender::new(bounds);
    let listener = listen(&path, 0o600).expect("free");
    let mut connections = incoming_within(listener, told.subscribe());
    let _one = connect(&path).await;
    let first = soon(connections.next()).await.expect("endless").expect("no error");
    assert_eq!(first.connect_info().turned, None);
    let _two = connect(&path).await;
    let mut second = soon(connections.next()).await.expect("endless").expect("no error");
    let why = second.connect_info().turned.expect("one too many");
    assert!(why.contains("raise connections_max (1) with psmgr set"), "{why}");
    let mut byte = [0];
    let error = soon(second.read(&mut byte)).await.expect_err("it never asks");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(first);
    let _three = connect(&path).await;
    let third = soon(connections.next()).await.expect("endless").expect("no error");
    assert_eq!(third.connect_info().turned, None, "there is a place again");
    // A new bound is that of the next one.
    told.send_modify(|bounds| bounds.connections = 2);
    let _four = connect(&path).await;
    let fourth = soon(connections.next()).await.expect("endless").expect("no error");
    assert_eq!(fourth.connect_info().turned, None);
}

#[tokio::test]
async fn who_never_speaks_loses_the_connection() {
    let bounds = Bounds { preface_wait: Duration::from_millis(20), ..Bounds::default() };
    let folder = folder();
    let path = folder.path().join("s");
    let mut connections = incoming(listen(&path, 0o600).expect("free"), bounds);
    let mut halfway = connect(&path).await;
    let mut stream = soon(connections.next()).await.expect("endless").expect("no error");
    halfway.write_all(b"PRI * HTTP/2.0\r\n").await.expect("taken");
    let mut read = vec![];
    let error = soon(stream.read_to_end(&mut read)).await.expect_err("it never comes");
    assert_eq!((error.kind(), &read[..]), (io::ErrorKind::TimedOut, &b"PRI * HTTP/2.0\r\n"[..]));

    let mut whole = connect(&path).await;
    let mut stream = soon(connections.next()).await.expect("endless").expect("no error");
    whole.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("taken");
    let mut preface = [0; PREFACE_BYTES];
    soon(stream.read_exact(&mut preface)).await.expect("it came");
    let silence = tokio::time::timeout(bounds.preface_wait * 10, stream.read(&mut preface)).await;
    assert!(silence.is_err(), "one that has spoken may be silent");
}

/// Whatever waits to be sent on it: who serves it reads, and is told.
#[tokio::test]
async fn a_connection_that_is_hung_up_on_ends() {
    let folder = folder();
    let path = folder.path().join("s");
    let mut incoming = incoming(listen(&path, 0o600).expect("a free path"), Bounds::default());
    let _caller = connect(&path).await;
    let mut stream = soon(incoming.next()).await.expect("one").expect("no error");
    let hang_up = stream.connect_info().hang_up;
    let reads = tokio::spawn(async move {
        let read = stream.read_u8().await.map_err(|error| error.kind());
        let written = stream.write_u8(1).await.map_err(|error| error.kind());
        (read, written)
    });
    tokio::task::yield_now().await;
    assert!(!reads.is_finished());
    hang_up.cancel();
    let aborted = io::ErrorKind::ConnectionAborted;
    assert_eq!(soon(reads).await.expect("no panic"), (Err(aborted), Err(aborted)));
}

/// Whoever sends a descriptor that is slow to close hangs himself up, and keeps nobody waiting: on
/// kernels that refuse it, and on others.
#[tokio::test]
async fn what_is_slow_to_close_keeps_nobody_waiting() {
    use crate::os::rights::tests::{send, slow_to_close};
    for old_kernel in [false, true] {
        let folder = folder();
        let path = folder.path().join("s");
        let listener = match old_kernel {
            true => listen_for_descriptors(&path, 0o600),
            false => listen(&path, 0o600),
        };
        let mut connections = incoming(listener.expect("a free path"), Bounds::default());
        let (refuses, mut held) = (connections.refuses_descriptors, Vec::new());
        // Read, hung up on unread, and not even accepted as a known peer.
        for unread in [false, true] {
            let theirs = std::os::unix::net::UnixStream::connect(&path).expect("connected");
            let (other, slow) = slow_to_close();
            held.push(other);
            assert_eq!(send(&theirs, b"PRI * HTTP/2", &slow).is_err(), refuses);
            // (Where it is refused nobody but us closes it.)
            match refuses {
                true => drop(std::os::fd::IntoRawFd::into_raw_fd(slow)),
                false => drop(slow),
            }
            let mut ours = soon(connections.next()).await.expect("one").expect("known");
            if !refuses && !unread {
                let mut bytes = [0; 100];
                let error = soon(ours.read(&mut bytes)).await.expect_err("hung up on");
                assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            }
            // This thread is not kept.
            let begun = std::time::Instant::now();
            drop(ours);
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        let mut theirs = connect(&path).await;
        theirs.write_all(b"more").await.expect("sent");
        let mut ours = soon(connections.next()).await.expect("one").expect("known");
        let mut bytes = [0; 4];
        soon(ours.read_exact(&mut bytes)).await.expect("read");
        assert_eq!(&bytes, b"more");
    }
}

/// A connection of a user, and its other end.
fn of_user(uid: u32, rounds: &Arc<Rounds>) -> (UnixStream, PeerStream) {
    let (theirs, ours) = UnixStream::pair().expect("a pair");
    let peer = peer_of(uid);
    let stream = PeerStream {
        connection: Connection::new(ours, true),
        reading: Reading::new(Some(Arc::clone(rounds)), Bounds::default().portion),
        preface: None,
        end: None,
        hung_up: Box::pin(peer.hang_up.clone().cancelled_owned()),
        peer,
        slot: Counts::default().take(&Bounds::default(), uid).expect("a place"),
    };
    (theirs, stream)
}

/// Counts the requests that are begun, of each user, and refuses all of them.
#[derive(Clone, Default)]
struct Begun(Arc<std::sync::Mutex<BTreeMap<u32, usize>>>);

impl Begun {
    fn of(&self, uid: u32) -> usize {
        self.0.lock().expect("sound").get(&uid).copied().unwrap_or(0)
    }
}

impl tonic::server::NamedService for Begun {
    const NAME: &'static str = "psched.v1.Psched";
}

impl tower::Service<http::Request<Body>> for Begun {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<http::Response<Body>, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let uid = request.extensions().get::<Peer>().expect("a user").uid;
        *self.0.lock().expect("sound").entry(uid).or_default() += 1;
        std::future::ready(Ok(tonic::Status::not_found("none").into_http()))
    }
}

/// Some connections of a user write requests without a pause, and read nothing. Another user's
/// first request is begun within some rounds of hers: of what is read, and of what is begun.
#[tokio::test]
async fn a_flood_of_one_user_holds_up_another_for_some_rounds() {
    const FLOOD: u32 = 15_800;
    const ROUNDS: usize = 20;
    const HER: u32 = 70_001;
    const HIS: u32 = 70_002;
    let (hers, his) = (Arc::new(reading::rounds()), Arc::new(reading::rounds()));
    let (accepts, accepted) = tokio::sync::mpsc::channel(16);
    let (begun, turns) = (Begun::default(), RequestTurns::new(4_096, 4_096));
    let server = tonic::transport::Server::builder()
        .max_concurrent_streams(256)
        .layer(turns)
        .add_service(begun.clone());
    let accepted = tokio_stream::wrappers::ReceiverStream::new(accepted).map(Ok::<_, io::Error>);
    let _server = AbortOnDropHandle::new(tokio::spawn(server.serve_with_incoming(accepted)));
    let requests: Arc<[u8]> = raw_requests::requests(FLOOD).into();
    let mut flood = Vec::new();
    for _ in 0..8 {
        // (HTTP/2 closes a connection on which it has refused some thousand requests.)
        let (requests, hers, accepts) = (Arc::clone(&requests), Arc::clone(&hers), accepts.clone());
        flood.push(AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let (mut theirs, stream) = of_user(HER, &hers);
                accepts.send(stream).await.expect("it serves");
                let _ = theirs.write_all(&requests).await;
            }
        })));
    }
    let flows = async {
        while hers.over() < 100 || begun.of(HER) < 100 {
            tokio::task::yield_now().await;
        }
    };
    soon(flows).await;
    let (read, asked) = (hers.over(), begun.of(HER));
    let (mut theirs, stream) = of_user(HIS, &his);
    theirs.write_all(&raw_requests::requests(1)).await.expect("written");
    accepts.send(stream).await.expect("it serves");
    let is_begun = async {
        while begun.of(HIS) == 0 {
            tokio::task::yield_now().await;
        }
    };
    soon(is_begun).await;
    let (read, asked) = (hers.over() - read, begun.of(HER) - asked);
    eprintln!("{read} rounds were read of hers meanwhile, and {asked} requests begun");
    assert!(read <= ROUNDS && asked <= ROUNDS * 16, "{read} rounds, {asked} requests");
}
