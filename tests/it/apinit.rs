//! The real apinit with the real apshepherd; psched and aprun are played.

use psched::apteam::ending::{Cause, EndCount, HostEnd, PeEnd};
use psched::apteam::launch::Launch;
use psched::apteam::place::{HostPart, Place, PlacementList};
use psched::apteam::posting::{Owner, Shape};
use psched::apteam::talk::attach::{FromApinit, OutputTaken, StdinPiece, ToApinit};
use psched::apteam::talk::node::{Command, Hello, NodeSpec, Phase, PlaceCommand, Report, Welcome};
use psched::apteam::{Key, Ticket};
use psched::machine::Nid;
use psched::rpc::connect::connect;
use psched::rpc::listen::{Bounds, incoming, listen};
use psched::rpc::pb;
use psched::rpc::pb::apinit_client::ApinitClient;
use psched::rpc::pb::nodes_server::{Nodes, NodesServer};
use std::collections::BTreeMap;
use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

const BOUND: Duration = Duration::from_secs(20);
const TICKET: Ticket = Ticket([9; 16]);
/// Groups are looked for by this: no other test has the same store.
fn store(instance: &Instance) -> String {
    format!("{:08x}-of-a-test", instance.number)
}

async fn bounded<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(BOUND, future).await;
    outcome.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// Looks again until it is so.
async fn until(what: &str, mut so: impl FnMut() -> bool) {
    bounded(what, async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

fn key(text: &str) -> Key {
    Key::parse(text).expect("a key")
}

// ---- psched, played ----

/// A link that an apinit has opened.
struct Link {
    hello: Hello,
    inventory: Vec<(Key, Phase)>,
    commands: mpsc::Sender<Result<pb::ToNode, Status>>,
    reports: mpsc::UnboundedReceiver<Report>,
    seq: u64,
}

impl Link {
    async fn send(&mut self, command: Command) {
        self.seq += 1;
        let message = pb::ToNode { seq: self.seq, message: Some(command.into()) };
        self.commands.send(Ok(message)).await.expect("the link is open");
    }

    async fn place(&mut self, place: &PlaceCommand) {
        self.send(Command::Place(Box::new(place.clone()))).await;
    }

    async fn report(&mut self) -> Report {
        bounded("a report", self.reports.recv()).await.expect("the link is open")
    }

    async fn ended(&mut self) -> HostEnd {
        loop {
            match self.report().await {
                Report::Ended(end) => return *end,
                Report::Launched(_) | Report::Running(_) => {}
                other => panic!("{other:?} instead of the end"),
            }
        }
    }

    async fn acknowledge(&mut self, key: Key) {
        self.send(Command::AcknowledgeEnd(key)).await;
    }
}

struct PlayedNodes {
    links: mpsc::UnboundedSender<Link>,
    store: String,
}

#[tonic::async_trait]
impl Nodes for PlayedNodes {
    type LinkStream = Pin<Box<dyn Stream<Item = Result<pb::ToNode, Status>> + Send>>;

    async fn link(
        &self,
        request: Request<Streaming<pb::FromNode>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        use pb::from_node::Message;
        let mut stream = request.into_inner();
        let (commands, receiver) = mpsc::channel(64);
        let (links, store) = (self.links.clone(), self.store.clone());
        tokio::spawn(async move {
            let Ok(Some(pb::FromNode { message: Some(Message::Hello(hello)) })) =
                stream.message().await
            else {
                return;
            };
            let hello = Hello::try_from(hello).expect("a good hello");
            let node = |(i, nid): (usize, &Nid)| NodeSpec {
                nid: *nid,
                processors: 2,
                cpus: vec![],
                first_processor: i as u32 * 2,
                memory: 1 << 30,
            };
            let welcome = Welcome {
                store_id: store,
                next_apid: 1_000,
                epoch: 1,
                nodes: hello.nids.iter().enumerate().map(node).collect(),
                kill_grace: Duration::from_secs(5),
                ..Welcome::default()
            };
            let welcome = Some(pb::to_node::Message::Welcome(welcome.into()));
            let _ = commands.send(Ok(pb::ToNode { seq: 0, message: welcome })).await;
            let (sender, reports) = mpsc::unbounded_channel();
            let mut link = Some(Link { hello, inventory: vec![], commands, reports, seq: 0 });
            while let Ok(Some(said)) = stream.message().await {
                match said.message {
                    Some(Message::Inventory(inventory)) => {
                        let mut link = link.take().expect("one inventory a link");
                        link.inventory = inventory.try_into().expect("a good inventory");
                        let _ = links.send(link);
                    }
                    Some(Message::Report(report)) => {
                        let report = report.try_into().expect("a good report");
                        let _ = sender.send(report);
                    }
                    _ => {}
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// A folder with psched's socket in it.
struct Instance {
    folder: tempfile::TempDir,
    number: u32,
    links: mpsc::UnboundedReceiver<Link>,
    /// To psched when it is started.
    sender: mpsc::UnboundedSender<Link>,
    server: Option<tokio::task::JoinHandle<()>>,
}

impl Instance {
    async fn new() -> Instance {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let folder = tempfile::Builder::new().prefix("pa").tempdir_in("/tmp").expect("a folder");
        // Also other users' front ends go in there.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("it is ours");
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let number = std::process::id() * 64 + count;
        let (sender, links) = mpsc::unbounded_channel();
        let mut instance = Instance { folder, number, links, sender, server: None };
        instance.start_psched();
        instance
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("psched.sock")
    }

    fn apinit_socket(&self, nid: u32) -> PathBuf {
        self.folder.path().join(format!("apinit-{nid}.sock"))
    }

    fn start_psched(&mut self) {
        let listener = listen(&self.socket(), 0o600).expect("it listens");
        let service = PlayedNodes { links: self.sender.clone(), store: store(self) };
        let server = tonic::transport::Server::builder().add_service(NodesServer::new(service));
        self.server = Some(tokio::spawn(async move {
            let _ = server.serve_with_incoming(incoming(listener, Bounds::default())).await;
        }));
    }

    /// As if killed: all its links break.
    async fn kill_psched(&mut self, link: Link) {
        drop(link);
        if let Some(server) = self.server.take() {
            server.abort();
            let _ = server.await;
        }
        std::fs::remove_file(self.socket()).expect("it was there");
    }

    async fn link(&mut self) -> Link {
        bounded("a link", self.links.recv()).await.expect("the sender is here")
    }

    /// The groups of this instance, if there are groups.
    fn groups(&self) -> Option<PathBuf> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("there is one");
        let mount = mounts.lines().find(|l| l.split(' ').nth(2) == Some("cgroup2"))?;
        let own = std::fs::read_to_string("/proc/self/cgroup").expect("there is one");
        let own = own.lines().find_map(|l| l.strip_prefix("0::/"))?.to_string();
        let base = Path::new(mount.split(' ').nth(1)?).join(own);
        Some(base.join(format!("psched.{:08x}", self.number)))
    }

    fn place(&self, name: &str, hosts: &[&[u32]], per_node: u32) -> PlaceCommand {
        let nids: Vec<u32> = hosts.concat();
        let place = |nid: &u32| Place {
            nid: Nid(*nid),
            processors: (0..per_node).collect(),
            pes: per_node,
        };
        let part = |nids: &&[u32]| HostPart {
            nids: nids.iter().map(|n| Nid(*n)).collect(),
            socket: self.apinit_socket(nids[0]).to_string_lossy().into_owned(),
            host_id: format!("host{}", nids[0]),
        };
        PlaceCommand {
            isolation: psched::variables::Isolation::Auto,
            key: key(name),
            owner: own_ids(),
            shape: Shape { width: nids.len() as u32 * per_node, depth: 1, per_node: None },
            places: PlacementList(nids.iter().map(place).collect()),
            hosts: hosts.iter().map(part).collect(),
            ticket: TICKET,
            ticket_left: Duration::from_secs(60),
            cpu_limit: None,
            time_limit: None,
            kill_grace: Duration::from_secs(2),
            memory_per_pe: None,
            pids_max: None,
            front_kill_grace: Duration::from_secs(2),
            bounds: Default::default(),
            request_id: [1; 16],
            command: name.into(),
        }
    }
}

fn own_ids() -> Owner {
    Owner {
        uid: nix::unistd::getuid().as_raw(),
        gid: nix::unistd::getgid().as_raw(),
        groups: vec![],
        name: "me".into(),
    }
}

// ---- apinit, real ----

struct Apinit {
    child: Child,
    /// As long as this is open it lives.
    lifeline: Option<OwnedFd>,
    runtime: PathBuf,
}

impl Apinit {
    fn start(instance: &Instance, nids: &str) -> Apinit {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
        Apinit::start_with(instance, nids, &read, Some(write))
    }

    fn start_with(
        instance: &Instance,
        nids: &str,
        read: &OwnedFd,
        lifeline: Option<OwnedFd>,
    ) -> Apinit {
        use nix::fcntl::{FcntlArg, FdFlag, fcntl};
        fcntl(read, FcntlArg::F_SETFD(FdFlag::empty())).expect("it is open");
        let child = std::process::Command::new(env!("CARGO_BIN_EXE_apinit"))
            .arg("--socket")
            .arg(instance.socket())
            .args(["--nids", nids, "--lifeline", &read.as_raw_fd().to_string()])
            .args(["--host-id", &format!("host-of-{nids}")])
            .stdin(Stdio::null())
            .spawn()
            .expect("apinit starts");
        let first = nids.split(['-', ',']).next().expect("a number");
        let runtime = instance.folder.path().join(format!("apps-{first}"));
        Apinit { child, lifeline, runtime }
    }

    fn app(&self, key: Key) -> PathBuf {
        self.runtime.join(key.to_string())
    }

    fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.child.id() as i32)
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(self.pid(), signal).expect("it is there");
    }

    async fn exit(&mut self) {
        let child = &mut self.child;
        until("apinit's end", || child.try_wait().expect("a child").is_some()).await;
    }

    /// Cuts the lifeline: nothing is left within the promised time.
    async fn end(mut self) {
        let begun = Instant::now();
        drop(self.lifeline.take());
        self.exit().await;
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(!self.runtime.exists(), "the runtime directory is left");
    }
}

impl Drop for Apinit {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        if std::thread::panicking() {
            std::thread::sleep(Duration::from_millis(300));
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

// ---- aprun, played ----

struct Front {
    sender: mpsc::Sender<pb::ToApinit>,
    stream: Streaming<pb::FromApinit>,
    output: String,
    /// Of each source, so many bytes.
    had: BTreeMap<u32, u64>,
}

impl Front {
    async fn attach(socket: &Path, first: ToApinit) -> Front {
        let channel = connect(socket).await.expect("apinit answers");
        let (sender, receiver) = mpsc::channel(64);
        sender.send(first.into()).await.expect("it is open");
        let stream = ApinitClient::new(channel).attach(ReceiverStream::new(receiver)).await;
        let stream = stream.expect("apinit takes it").into_inner();
        Front { sender, stream, output: String::new(), had: BTreeMap::new() }
    }

    async fn launch(socket: &Path, key: Key, script: &str) -> Front {
        Front::attach(socket, launch(key, script)).await
    }

    async fn say(&self, message: ToApinit) {
        self.sender.send(message.into()).await.expect("it is open");
    }

    /// The next message that is not output; output is taken. `None`: the stream has ended.
    async fn next(&mut self) -> Option<FromApinit> {
        loop {
            let message = bounded("apinit", self.stream.message()).await.expect("no error")?;
            let message = FromApinit::try_from(message).expect("a good message");
            let FromApinit::Output(output) = message else { return Some(message) };
            let had = self.had.entry(output.source).or_default();
            assert_eq!(*had, output.offset, "output without gaps");
            *had += output.data.len() as u64;
            self.output += std::str::from_utf8(&output.data).expect("text");
            let taken = OutputTaken { source: output.source, offset: *had };
            // An Err: it is over.
            let _ = self.sender.send(ToApinit::OutputTaken(taken).into()).await;
        }
    }

    async fn until_done(&mut self) {
        while let Some(message) = self.next().await {
            if message == FromApinit::Done {
                return;
            }
        }
        panic!("the stream has ended before Done");
    }

    async fn until_going(&mut self) {
        assert_eq!(self.next().await, Some(FromApinit::Accepted));
        loop {
            match self.next().await {
                Some(FromApinit::Going) => return,
                Some(FromApinit::StdinCredit(_) | FromApinit::Notice(_)) => {}
                other => panic!("{other:?} instead of Going"),
            }
        }
    }

    /// Without saying that it has been taken.
    async fn until_output_untaken(&mut self, text: &str) {
        while !self.output.contains(text) {
            let message = bounded("output", self.stream.message()).await.expect("no error");
            let message = FromApinit::try_from(message.expect("it goes on")).expect("a good one");
            if let FromApinit::Output(output) = message {
                *self.had.entry(output.source).or_default() += output.data.len() as u64;
                self.output += std::str::from_utf8(&output.data).expect("text");
            }
        }
    }
}

fn launch(key: Key, script: &str) -> ToApinit {
    let launch = Launch {
        executable: b"/bin/bash".to_vec(),
        arguments: ["sh", "-c", script].iter().map(|a| a.as_bytes().to_vec()).collect(),
        environment: vec![b"PATH=/usr/bin:/bin".to_vec()],
        directory: b"/".to_vec(),
        umask: 0o22,
        pmi: true,
        ..Launch::default()
    };
    ToApinit::Launch { key, ticket: TICKET, launch: Box::new(launch) }
}

fn exits(code: u8, count: u32) -> Vec<EndCount> {
    vec![EndCount { end: PeEnd::Exit(code), count, consequence: false }]
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

// ---- tests ----

#[tokio::test]
async fn a_life() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0-1");
    let mut link = instance.link().await;
    assert_eq!(link.hello.nids, [Nid(0), Nid(1)]);
    assert_eq!(Path::new(&link.hello.socket), instance.apinit_socket(0));
    assert_eq!((link.hello.store_id.as_str(), link.hello.hostname.as_str()), ("", "host-of-0-1"));
    assert!(!link.hello.cpus.is_empty() && link.hello.memory > 0 && link.inventory.is_empty());
    let place = instance.place("12.1", &[&[0, 1]], 2);
    let key = place.key;
    link.place(&place).await;
    let script = "echo $ALPS_APP_PE of $PMI_SIZE; exit 3";
    let mut front = Front::launch(&instance.apinit_socket(0), key, script).await;
    front.until_going().await;
    front.until_done().await;
    assert_eq!(sorted(&front.output), ["0 of 4", "1 of 4", "2 of 4", "3 of 4"]);
    assert_eq!(link.report().await, Report::Launched(key));
    assert_eq!(link.report().await, Report::Running(key));
    let end = link.ended().await;
    assert_eq!((end.key, &*end.nids, end.launched), (key, &[Nid(0), Nid(1)][..], true));
    assert_eq!((end.ends.clone(), end.leftovers, end.status()), (exits(3, 4), 0, 3));
    // Again and again until it is acknowledged.
    assert_eq!(link.report().await, Report::Ended(Box::new(end)));
    assert!(apinit.app(key).exists());
    link.acknowledge(key).await;
    assert_eq!(front.next().await, None, "the stream is closed");
    let app = apinit.app(key);
    until("the runtime directory to go", || !app.exists()).await;
    if let Some(groups) = instance.groups() {
        until("the groups to go", || !groups.exists()).await;
    }
    apinit.end().await;
    assert!(!instance.apinit_socket(0).exists());
}

/// What waits for it must not fill apinit's memory.
#[tokio::test]
async fn a_front_end_that_asks_and_never_reads_is_hung_up_on() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("8.1", &[&[0]], 1);
    let key = place.key;
    link.place(&place).await;
    let mut front = Front::launch(&instance.apinit_socket(0), key, "exec sleep 1000").await;
    front.until_going().await;
    // Each is answered by a line for its stderr: far more than a connection holds.
    const ASKED: u32 = 40_000;
    bounded("all to be said", async {
        for _ in 0..ASKED {
            // An Err: that is what it is about.
            let _ = front.sender.send(launch(key, "true").into()).await;
        }
    })
    .await;
    let mut answers = 0;
    // The stream is reset, so that what waits is not kept until it is read.
    while let Ok(message) = bounded("an answer", front.stream.message()).await {
        assert!(message.is_some(), "the rest of {answers} answers was kept");
        answers += 1;
    }
    assert!(answers < ASKED, "all {answers} were kept for it");
    // Its application has not noticed, and it may come back.
    let taken = Vec::new();
    let resume = ToApinit::Resume { key, ticket: TICKET, taken };
    let mut front = Front::attach(&instance.apinit_socket(0), resume).await;
    assert_eq!(front.next().await, Some(FromApinit::Accepted));
    front.say(ToApinit::Terminate { cause: Cause::StdoutClosed, kill_after: Duration::ZERO }).await;
    let end = link.ended().await;
    link.acknowledge(end.key).await;
    apinit.end().await;
}

#[tokio::test]
async fn what_pes_leave_behind_is_gone_before_the_end_is_told() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("7.1", &[&[0]], 1);
    link.place(&place).await;
    let script = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!";
    let mut front = Front::launch(&instance.apinit_socket(0), place.key, script).await;
    front.until_going().await;
    let left = Path::new("/proc").join(front.until_pid().await);
    let end = link.ended().await;
    assert!(!left.exists(), "{left:?} is left");
    assert_eq!((end.leftovers, end.status()), (1, 0));
    link.acknowledge(place.key).await;
    apinit.end().await;
}

impl Front {
    async fn until_output(&mut self, text: &str) {
        self.until_output_untaken(text).await;
        for (source, offset) in self.had.clone() {
            self.say(ToApinit::OutputTaken(OutputTaken { source, offset })).await;
        }
    }

    async fn until_pid(&mut self) -> String {
        self.until_output("\n").await;
        self.output.trim().to_string()
    }
}

#[tokio::test]
async fn a_wrong_ticket_and_a_placement_taken_back() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 1);
    let key = place.key;
    link.place(&place).await;
    let app = apinit.app(key);
    until("the shepherd's socket", || app.join("shepherd.sock").exists()).await;
    let ToApinit::Launch { launch, .. } = launch(key, "echo no") else { panic!("it is one") };
    let guess = ToApinit::Launch { key, ticket: Ticket([1; 16]), launch };
    let mut front = Front::attach(&instance.apinit_socket(0), guess).await;
    let text = "the ticket is not the one of application 12.1".to_string();
    assert_eq!(front.next().await, Some(FromApinit::Refused { text, cause: None }));
    assert_eq!(front.next().await, None);
    link.send(Command::TakeBack(key)).await;
    assert_eq!(link.report().await, Report::TakenBack(key));
    until("the runtime directory to go", || !app.exists()).await;
    apinit.end().await;
}

#[tokio::test]
async fn psched_goes_and_comes_back() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 2);
    let key = place.key;
    link.place(&place).await;
    let script = "echo begun; read line; echo $line";
    let mut front = Front::launch(&instance.apinit_socket(0), key, script).await;
    front.until_going().await;
    front.until_output("begun\n").await;
    instance.kill_psched(link).await;
    // Meanwhile the application goes on, and ends.
    let data = b"words\n"[..].into();
    front.say(ToApinit::Stdin(StdinPiece { offset: 0, data })).await;
    front.say(ToApinit::StdinEnd(6)).await;
    front.until_done().await;
    assert_eq!(sorted(&front.output), ["", "begun", "begun", "words"]);
    instance.start_psched();
    let mut link = instance.link().await;
    assert_eq!(link.hello.store_id, store(&instance));
    assert_eq!(link.inventory, [(key, Phase::Ended)]);
    let end = link.ended().await;
    assert_eq!(end.ends, exits(0, 2));
    assert_eq!(link.report().await, Report::Ended(Box::new(end)));
    link.acknowledge(key).await;
    let app = apinit.app(key);
    until("the runtime directory to go", || !app.exists()).await;
    apinit.end().await;
}

#[tokio::test]
async fn apinit_is_killed_and_started_again() {
    let mut instance = Instance::new().await;
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
    let mut first = Apinit::start_with(&instance, "0", &read, None);
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 1);
    let key = place.key;
    link.place(&place).await;
    let script = "echo begun; while [ ! -e $GO ]; do sleep 0.01; done; echo ended";
    let go = instance.folder.path().join("go");
    let script = format!("GO={}; {script}", go.display());
    let mut front = Front::launch(&instance.apinit_socket(0), key, &script).await;
    front.until_going().await;
    front.until_output_untaken("begun\n").await;
    first.signal(nix::sys::signal::Signal::SIGKILL);
    first.exit().await;
    std::fs::write(&go, "").expect("written");
    let second = Apinit::start_with(&instance, "0", &read, Some(write));
    let mut link = instance.link().await;
    assert_eq!(
        (link.hello.store_id.clone(), &*link.inventory),
        (store(&instance), &[(key, Phase::Running)][..])
    );
    let had = front.had[&0];
    let taken = vec![OutputTaken { source: 0, offset: had }];
    let resume = ToApinit::Resume { key, ticket: TICKET, taken };
    let mut front = Front::attach(&instance.apinit_socket(0), resume).await;
    front.had.insert(0, had);
    front.until_going().await;
    front.until_done().await;
    assert_eq!(front.output, "ended\n");
    let end = link.ended().await;
    assert_eq!((end.ends.clone(), end.status()), (exits(0, 1), 0));
    link.acknowledge(key).await;
    let app = second.app(key);
    until("the runtime directory to go", || !app.exists()).await;
    second.end().await;
}

#[tokio::test]
async fn apinit_that_is_told_to_go_leaves_applications_running() {
    let mut instance = Instance::new().await;
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
    let mut first = Apinit::start_with(&instance, "0", &read, None);
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 1);
    link.place(&place).await;
    let script = "echo $$; exec sleep 1000";
    let mut front = Front::launch(&instance.apinit_socket(0), place.key, script).await;
    front.until_going().await;
    let pid = front.until_pid().await;
    let begun = Instant::now();
    first.signal(nix::sys::signal::Signal::SIGTERM);
    first.exit().await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(Path::new("/proc").join(&pid).exists(), "the application is gone");
    // The next one ends everything when its lifeline is cut, also what it has not started.
    let second = Apinit::start_with(&instance, "0", &read, Some(write));
    let link = instance.link().await;
    assert_eq!(link.inventory, [(place.key, Phase::Running)]);
    second.end().await;
    // (A zombie is as good as gone: whose child it is now is not up to apinit.)
    assert!(!Path::new("/proc").join(&pid).join("exe").exists(), "the application is left");
    if let Some(groups) = instance.groups() {
        assert!(!groups.exists());
    }
}

#[tokio::test]
async fn a_shepherd_is_killed() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 2);
    link.place(&place).await;
    let script = "echo $$; exec sleep 1000";
    let mut front = Front::launch(&instance.apinit_socket(0), place.key, script).await;
    front.until_going().await;
    front.until_output("\n").await;
    let kept = std::fs::read_to_string(apinit.app(place.key).join("shepherd")).expect("kept");
    let pid: i32 = kept.split(' ').next().and_then(|p| p.parse().ok()).expect("a pid");
    let kill = nix::sys::signal::Signal::SIGKILL;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), kill).expect("it is there");
    let end = link.ended().await;
    let text = "it died: Killed (signal 9)".to_string();
    let cause = Cause::ShepherdLost { nid: Nid(0), text };
    assert_eq!(end.first.as_ref().map(|d| &d.cause), Some(&cause));
    assert_eq!((end.launched, end.status()), (true, 125));
    let pe = front.output.lines().next().expect("a pid").to_string();
    assert!(!Path::new("/proc").join(pe).join("exe").exists(), "a PE is left");
    front.until_done().await;
    link.acknowledge(place.key).await;
    apinit.end().await;
}

#[tokio::test]
async fn one_application_on_two_apinits() {
    let mut instance = Instance::new().await;
    let head = Apinit::start(&instance, "0");
    let mut links = vec![instance.link().await];
    let other = Apinit::start(&instance, "1");
    links.push(instance.link().await);
    let place = instance.place("12.1", &[&[0], &[1]], 2);
    let key = place.key;
    for link in &mut links {
        link.place(&place).await;
    }
    // Each puts its rank, and reads its neighbour's after the barrier.
    let script = r#"
        ask() { echo "$1" >&$PMI_FD; read -r answer <&$PMI_FD; }
        ask "cmd=init pmi_version=1 pmi_subversion=1"
        ask "cmd=get_my_kvsname"; name=${answer##*kvsname=}
        ask "cmd=put kvsname=$name key=k$PMI_RANK value=v$PMI_RANK"
        ask "cmd=barrier_in"
        next=$(( (PMI_RANK + 1) % PMI_SIZE ))
        ask "cmd=get kvsname=$name key=k$next"; echo "$PMI_RANK ${answer##*value=}"
        ask "cmd=finalize"
    "#;
    let mut front = Front::launch(&instance.apinit_socket(0), key, script).await;
    front.until_going().await;
    front.until_done().await;
    assert_eq!(sorted(&front.output), ["0 v1", "1 v2", "2 v3", "3 v0"]);
    assert_eq!(front.had.keys().copied().collect::<Vec<_>>(), [0, 1], "one source a host");
    for (nid, link) in (0..).zip(&mut links) {
        let end = link.ended().await;
        assert_eq!((end.nids.clone(), end.ends.clone()), (vec![Nid(nid)], exits(0, 2)));
        link.acknowledge(key).await;
    }
    assert_eq!(front.next().await, None);
    for apinit in [&head, &other] {
        let app = apinit.app(key);
        until("the runtime directory to go", || !app.exists()).await;
    }

    // A PE of the other host dies: so do those of the head.
    let place = instance.place("13.1", &[&[0], &[1]], 1);
    for link in &mut links {
        link.place(&place).await;
    }
    let script = "if [ $PMI_RANK = 1 ]; then kill -SEGV $$; fi; exec sleep 1000";
    let mut front = Front::launch(&instance.apinit_socket(0), place.key, script).await;
    front.until_going().await;
    front.until_done().await;
    let mut ends = Vec::new();
    for link in &mut links {
        ends.push(link.ended().await);
    }
    let whole = ends.into_iter().reduce(HostEnd::and).expect("two");
    assert_eq!(whole.status(), 128 + 11, "{whole:?}");
    let own = |e: &&EndCount| !e.consequence;
    let own: Vec<_> = whole.ends.iter().filter(own).map(|e| (e.end, e.count)).collect();
    assert_eq!(own, [(PeEnd::Signal(11), 1)], "{whole:?}");
    head.end().await;
    other.end().await;
}

/// How a front end that is a process of its own is told what to do.
const HELPER: &str = "PSCHED_TEST_FRONT";

/// Not a test: what [`front_process`] starts.
#[tokio::test]
#[ignore = "a helper of other tests"]
async fn helper() {
    let Ok(told) = std::env::var(HELPER) else { return };
    let mut told = told.splitn(3, ' ');
    let mut word = || told.next().expect("three words");
    let (socket, name, script) = (word(), word(), word());
    let mut front = Front::launch(Path::new(socket), key(name), script).await;
    while let Some(message) = front.next().await {
        println!("<{message:?}>");
        if message == FromApinit::Done {
            break;
        }
    }
    println!("<{}>", front.output);
}

/// A front end in a process of its own, as another user if so wanted.
fn front_process(socket: &Path, name: &str, script: &str, uid: Option<u32>) -> Child {
    let own = std::env::current_exe().expect("it is here");
    let mut command = match uid {
        Some(uid) => {
            let mut command = std::process::Command::new("setpriv");
            command.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--groups=54000"]);
            command.arg("--").arg(own);
            command
        }
        None => std::process::Command::new(own),
    };
    command
        .args(["--exact", "apinit::helper", "--ignored", "--nocapture"])
        .env(HELPER, format!("{} {name} {script}", socket.display()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts")
}

#[tokio::test]
async fn a_front_end_is_killed() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 2);
    link.place(&place).await;
    let script = "trap '' TERM; while :; do sleep 1; done";
    let mut front = front_process(&instance.apinit_socket(0), "12.1", script, None);
    loop {
        if link.report().await == Report::Running(place.key) {
            break;
        }
    }
    let begun = Instant::now();
    front.kill().expect("it is there");
    front.wait().expect("it is a child");
    let end = link.ended().await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(end.first.map(|d| d.cause), Some(Cause::FrontGone));
    link.acknowledge(place.key).await;
    let app = apinit.app(place.key);
    until("the runtime directory to go", || !app.exists()).await;
    apinit.end().await;
}

#[tokio::test]
async fn a_front_end_is_killed_while_apinit_is_away() {
    let mut instance = Instance::new().await;
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
    let mut first = Apinit::start_with(&instance, "0", &read, None);
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 1);
    link.place(&place).await;
    let mut front = front_process(&instance.apinit_socket(0), "12.1", "exec sleep 1000", None);
    loop {
        if link.report().await == Report::Running(place.key) {
            break;
        }
    }
    // Stopped, so that it does not notice.
    first.signal(nix::sys::signal::Signal::SIGSTOP);
    front.kill().expect("it is there");
    front.wait().expect("it is a child");
    first.signal(nix::sys::signal::Signal::SIGKILL);
    first.exit().await;
    let second = Apinit::start_with(&instance, "0", &read, Some(write));
    let mut link = instance.link().await;
    assert_eq!(link.ended().await.first.map(|d| d.cause), Some(Cause::FrontGone));
    link.acknowledge(place.key).await;
    second.end().await;
}

#[tokio::test]
async fn every_byte_of_much_output_arrives() {
    const BYTES: u64 = 24 << 20;
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 2);
    link.place(&place).await;
    let script = format!("head -c {} /dev/zero | tr '\\0' $PMI_RANK", BYTES / 2);
    let mut front = Front::launch(&instance.apinit_socket(0), place.key, &script).await;
    front.until_going().await;
    front.until_done().await;
    let of = |c: u8| front.output.bytes().filter(|b| *b == c).count() as u64;
    assert_eq!((front.had[&0], of(b'0'), of(b'1')), (BYTES, BYTES / 2, BYTES / 2));
    assert_eq!(link.ended().await.ends, exits(0, 2));
    link.acknowledge(place.key).await;
    apinit.end().await;
}

#[tokio::test]
async fn a_large_environment_arrives() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 1);
    link.place(&place).await;
    let mut first = launch(place.key, "echo $((${#V0} + ${#V1} + ${#V2} + ${#V3}))");
    if let ToApinit::Launch { launch, .. } = &mut first {
        // More than one packet takes.
        let variable = |n| format!("V{n}={}", "x".repeat(100_000)).into_bytes();
        launch.environment.extend((0..4).map(variable));
    }
    let mut front = Front::attach(&instance.apinit_socket(0), first).await;
    front.until_going().await;
    front.until_done().await;
    assert_eq!(front.output, "400000\n");
    assert_eq!(link.ended().await.ends, exits(0, 1));
    link.acknowledge(place.key).await;
    apinit.end().await;
}

#[tokio::test]
async fn an_application_runs_as_its_owner() {
    if !nix::unistd::getuid().is_root() {
        eprintln!("skipped: an_application_runs_as_its_owner (only root can be somebody else)");
        return;
    }
    let uid = 54_321;
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let mut place = instance.place("12.1", &[&[0]], 1);
    place.owner = Owner { uid, gid: uid, groups: vec![54_000], name: uid.to_string() };
    link.place(&place).await;
    // Its group is apinit's again before it runs: it can put nobody there, nor leave.
    let script = "id -u; id -G; g=$(sed -n 's/^0:://p' /proc/self/cgroup); echo group $g; \
                  for f in /sys/fs/cgroup/unified$g /sys/fs/cgroup$g; do for d in $f $f/..; do \
                  if [ -e $d/cgroup.procs ]; then echo 0 2>/dev/null >$d/cgroup.procs \
                  && echo escaped; fi; done; done";
    let front = front_process(&instance.apinit_socket(0), "12.1", script, Some(uid));
    let end = link.ended().await;
    let said = tokio::task::spawn_blocking(|| front.wait_with_output().expect("it ends")).await;
    let said = String::from_utf8(said.expect("it ends").stdout).expect("text");
    assert!(said.contains("54321\n54321 54000\n"), "{said}");
    assert!(!said.contains("escaped"), "{said}");
    if instance.groups().is_some_and(|g| g.exists()) {
        assert!(said.contains("/12.1/0\n"), "{said}");
    }
    assert_eq!(end.first, None, "{said}");
    link.acknowledge(place.key).await;
    apinit.end().await;
}

#[test]
fn the_command_line_is_checked() {
    let apinit = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_apinit"));
        let output = command.args(args).output().expect("it starts");
        (output.status.success(), String::from_utf8(output.stderr).expect("text"))
    };
    for (args, needle) in [
        (&["--socket", "/tmp/x/s", "--nids", "3-1"][..], "the range 3-1 runs backwards"),
        (&["--socket", "/no/such/s", "--nids", "0"], "/no/such is not a directory"),
        (&["--nids", "0"], "--socket"),
        (&["--socket", "/tmp/s", "--nids", "0", "--lifeline", "77"], "--lifeline 77"),
    ] {
        let (success, said) = apinit(args);
        assert!(!success && said.contains(needle), "{args:?}: {said}");
    }
    let long = format!("/tmp/{}/s", "x".repeat(60));
    let (success, said) = apinit(&["--socket", &long, "--nids", "0"]);
    assert!(!success && said.contains("too long for apinit's sockets"), "{said}");
}
