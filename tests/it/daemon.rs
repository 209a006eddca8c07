//! psched by hand: a configuration, a state directory, a socket, and what comes in on it.

use psched::rpc::{connect, pb};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A psched without nodes, in a folder of its own.
struct Daemon {
    folder: tempfile::TempDir,
    child: Child,
}

const TWO_NODES: &str = "nodes:\n  - { nids: 0-1, processors: 2, flavors: [su, os, ap] }\n";

impl Daemon {
    fn folder() -> tempfile::TempDir {
        tempfile::Builder::new().prefix("pd").tempdir_in("/tmp").expect("a folder")
    }

    fn start() -> Daemon {
        let folder = Daemon::folder();
        let socket = folder.path().join("s");
        let config = format!("{TWO_NODES}listening: {}\n", socket.display());
        std::fs::write(folder.path().join("c.yaml"), config).expect("written");
        let child = Daemon::spawn(folder.path());
        let daemon = Daemon { folder, child };
        daemon.answers();
        daemon
    }

    fn spawn(folder: &Path) -> Child {
        command(folder).stderr(Stdio::piped()).spawn().expect("psched starts")
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    fn answers(&self) {
        let end = Instant::now() + Duration::from_secs(10);
        while UnixStream::connect(self.socket()).is_err() {
            assert!(Instant::now() < end, "psched does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// kill -9, and again.
    fn restart(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("reaped");
        self.child = Daemon::spawn(self.folder.path());
        self.answers();
    }

    async fn client(&self) -> pb::psched_client::PschedClient<tonic::transport::Channel> {
        let channel = connect::connect(&self.socket()).await.expect("connected");
        pb::psched_client::PschedClient::new(channel)
    }

    async fn list(&self) -> pb::ListReply {
        let request = pb::ListRequest { history: 10, ..Default::default() };
        self.client().await.list(request).await.expect("an answer").into_inner()
    }

    /// Posts; the stream goes on as long as it is kept.
    async fn post(
        &self,
        number: u8,
        width: u32,
    ) -> Result<tonic::Streaming<pb::ApplicationEvent>, tonic::Status> {
        let reply = self.client().await.post(posting(number, width)).await;
        reply.map(tonic::Response::into_inner)
    }

    /// TERM, and psched ends in bounded time.
    fn end(mut self) -> String {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("signalled");
        let status = wait(&mut self.child, Duration::from_secs(8));
        assert!(status.success(), "{status}");
        assert!(!self.socket().exists(), "the socket is left");
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut said).expect("text");
        }
        said
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_psched"));
    command.arg("--config").arg(folder.join("c.yaml")).arg("--state").arg(folder.join("state"));
    command.stdin(Stdio::null());
    command
}

/// Runs psched on a folder where it can't start, and gives what it says.
fn refused(folder: &Path) -> String {
    let mut child = Daemon::spawn(folder);
    let status = wait(&mut child, Duration::from_secs(8));
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!(status.code(), Some(1), "{said}");
    said
}

fn wait(child: &mut Child, bound: Duration) -> std::process::ExitStatus {
    let end = Instant::now() + bound;
    loop {
        if let Some(status) = child.try_wait().expect("waited") {
            return status;
        }
        if Instant::now() > end {
            let _ = child.kill();
            panic!("psched does not end within {bound:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn posting(number: u8, width: u32) -> pb::PostRequest {
    pb::PostRequest {
        request_id: vec![number; 16].into(),
        shape: Some(pb::Shape { width, depth: 1, per_node: 0 }),
        command: format!("command {number}"),
        executable: Some(pb::Executable { path: "/bin/true".into(), ..Default::default() }),
        ..Default::default()
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), future).await.expect("in time")
    })
}

async fn accepted(stream: &mut tonic::Streaming<pb::ApplicationEvent>) -> u64 {
    match stream.message().await.expect("a message").expect("an event").event {
        Some(pb::application_event::Event::Accepted(accepted)) => accepted.apid,
        other => panic!("not accepted but {other:?}"),
    }
}

#[test]
fn postings_survive_a_kill_and_numbers_are_never_used_twice() {
    run(async {
        let mut daemon = Daemon::start();
        let mut first = daemon.post(1, 2).await.expect("posted");
        let mut second = daemon.post(2, 2).await.expect("posted");
        assert_eq!((accepted(&mut first).await, accepted(&mut second).await), (1, 2));
        let killed =
            daemon.client().await.kill(pb::KillRequest { apids: vec![2], signal: 0 }).await;
        assert_eq!(killed.expect("an answer").into_inner().problems, [""]);
        let epoch = daemon.list().await.epoch;
        daemon.restart();
        let list = daemon.list().await;
        assert_eq!(list.epoch, epoch + 1);
        let waiting: Vec<_> = list
            .applications
            .iter()
            .map(|a| (a.key.unwrap_or_default().apid, a.state.as_str()))
            .collect();
        assert_eq!(waiting, [(1, "posted")]);
        let ended: Vec<_> =
            list.history.iter().map(|a| (a.key.unwrap_or_default().apid, a.status)).collect();
        assert_eq!(ended, [(2, 143)]);
        // The same posting again, by a front end that did not hear the answer, is the same one.
        assert_eq!(accepted(&mut daemon.post(1, 2).await.expect("posted")).await, 1);
        assert_eq!(accepted(&mut daemon.post(3, 2).await.expect("posted")).await, 3);
        // So it is when it has ended meanwhile, where the front end says that it posts again.
        let again = async |number| {
            let request = pb::PostRequest { again: true, ..posting(number, 2) };
            daemon.client().await.post(request).await.expect("posted").into_inner()
        };
        assert_eq!(accepted(&mut again(1).await).await, 1);
        let event = again(2).await.message().await.expect("a message").expect("an event").event;
        let Some(pb::application_event::Event::Ended(end)) = event else {
            panic!("not ended but {event:?}");
        };
        assert_eq!(
            (end.end.and_then(|end| end.key).unwrap_or_default().apid, end.status),
            (2, 143)
        );
        assert_eq!(accepted(&mut again(4).await).await, 4);
        let watch =
            daemon.client().await.watch(pb::WatchRequest { apid: 2, ..Default::default() }).await;
        let event = watch.expect("there").into_inner().message().await.expect("a message");
        let Some(pb::application_event::Event::Ended(end)) = event.expect("an event").event else {
            panic!("not ended");
        };
        assert_eq!(end.status, 143);
        let events =
            daemon.client().await.events(pb::EventsRequest { apid: 2, ..Default::default() }).await;
        let names: Vec<_> =
            events.expect("there").into_inner().events.into_iter().map(|e| e.name).collect();
        assert_eq!(names, ["posted", "signal", "ended"]);
    });
}

#[test]
fn impossible_postings_and_unknown_applications_are_refused() {
    run(async {
        let daemon = Daemon::start();
        let status = daemon.post(1, 1_000).await.expect_err("refused");
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert!(status.message().contains("ask for -n 4 or less"), "{}", status.message());
        let status = daemon.post(1, 0).await.expect_err("refused");
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        let watch =
            daemon.client().await.watch(pb::WatchRequest { apid: 77, ..Default::default() }).await;
        assert_eq!(watch.expect_err("refused").code(), tonic::Code::NotFound);
        let now = pb::PostRequest { immediate: true, ..posting(4, 1) };
        let status = daemon.client().await.post(now).await.expect_err("no node is offered");
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        assert!(daemon.list().await.applications.is_empty());
    });
}

#[test]
fn garbage_and_huge_messages_and_idle_connections_harm_nobody() {
    run(async {
        let daemon = Daemon::start();
        let mut garbage = UnixStream::connect(daemon.socket()).expect("connected");
        let _ = garbage.write_all(&b"GET / HTTP/1.1\r\n\r\n\x00\xff\xfe garbage".repeat(100));
        let mut preface = UnixStream::connect(daemon.socket()).expect("connected");
        preface.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("written");
        let _ = preface.write_all(&[0xff; 4_096]);
        let huge = pb::PostRequest { command: "x".repeat(5 << 20), ..posting(1, 1) };
        assert!(daemon.client().await.post(huge).await.is_err());
        let mut bogus = posting(2, 1);
        bogus.request_id = vec![1, 2].into();
        let status = daemon.client().await.post(bogus).await.expect_err("refused");
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        let idle: Vec<_> =
            (0..1_000).filter_map(|_| UnixStream::connect(daemon.socket()).ok()).collect();
        assert_eq!(idle.len(), 1_000);
        assert_eq!(accepted(&mut daemon.post(3, 1).await.expect("posted")).await, 1);
        // Nor do they hold up the end.
        daemon.end();
    });
}

#[test]
fn psched_that_cannot_start_says_why() {
    let daemon = Daemon::start();
    let said = refused(daemon.folder.path());
    assert!(said.contains("in use by another psched"), "{said}");

    let folder = Daemon::folder();
    let write = |listening: &str| {
        let config = format!("{TWO_NODES}listening: {listening}\n");
        std::fs::write(folder.path().join("c.yaml"), config).expect("written");
    };
    let said = refused(folder.path());
    assert!(said.contains("c.yaml can't be read"), "{said}");
    write(&daemon.socket().to_string_lossy());
    let said = refused(folder.path());
    assert!(said.contains("another daemon answers"), "{said}");
    write(&format!("/tmp/{}", "x".repeat(200)));
    let said = refused(folder.path());
    assert!(said.contains("107"), "{said}");
    let file = folder.path().join("file");
    std::fs::write(&file, "not a socket").expect("written");
    write(&file.to_string_lossy());
    let said = refused(folder.path());
    assert!(file.exists() && said.contains("not a socket"), "{said}");
    std::fs::write(folder.path().join("c.yaml"), "nodes: [{nids: 0, processors: 0}]")
        .expect("written");
    let said = refused(folder.path());
    assert!(said.contains("nodes[0].processors"), "{said}");
}

#[test]
fn a_stale_socket_is_taken_over() {
    run(async {
        let mut daemon = Daemon::start();
        daemon.child.kill().expect("killed");
        daemon.child.wait().expect("reaped");
        assert!(daemon.socket().exists());
        daemon.child = Daemon::spawn(daemon.folder.path());
        daemon.answers();
        daemon.list().await;
        daemon.end();
    });
}
