//! psched, played, and the real apinit that dials it.

use psched::apshepherd::decide::mapping::mapping_of;
use psched::apteam::bounds::HostBounds;
use psched::apteam::ending::HostEnd;
use psched::apteam::part::{Part, RankMap};
use psched::apteam::place::{HostPart, Place, PlacementList};
use psched::apteam::posting::Owner;
use psched::apteam::protocol::node::{
    Command, Hello, HostNote, NodeSpec, Phase, PlaceCommand, Report, Welcome,
};
use psched::apteam::shape::Shape;
use psched::apteam::{Key, SealKey, Ticket};
use psched::machine::Nid;
use psched::rpc::listen::{Bounds, incoming, listen};
use psched::rpc::pb;
use psched::rpc::pb::nodes_server::{Nodes, NodesServer};
use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

pub const BOUND: Duration = Duration::from_secs(60);
/// What checkpoints are sealed with.
pub const SEALING: SealKey = SealKey([5; 32]);
pub const TICKET: Ticket = Ticket([9; 16]);
/// Groups are looked for by this: no other test has the same store.
pub fn store(instance: &Instance) -> String {
    format!("{:08x}-of-a-test", instance.number)
}

pub async fn bounded<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(BOUND, future).await;
    outcome.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// Looks again until it is so.
pub async fn until(what: &str, mut so: impl FnMut() -> bool) {
    bounded(what, async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

pub fn key(text: &str) -> Key {
    Key::parse(text).expect("a key")
}

/// A link that an apinit has opened.
pub struct Link {
    pub hello: Hello,
    pub inventory: Vec<(Key, Phase)>,
    /// The hello's, or those that came after.
    pub notes: watch::Receiver<Vec<HostNote>>,
    pub commands: mpsc::Sender<Result<pb::ToNode, Status>>,
    pub reports: mpsc::UnboundedReceiver<Report>,
    pub seq: u64,
}

impl Link {
    pub async fn send(&mut self, command: Command) {
        self.seq += 1;
        let message =
            pb::ToNode { seq: self.seq, message: Some(command.into()), ..Default::default() };
        self.commands.send(Ok(message)).await.expect("the link is open");
    }

    pub async fn place(&mut self, place: &PlaceCommand) {
        self.send(Command::Place(Box::new(place.clone()))).await;
    }

    pub async fn report(&mut self) -> Report {
        bounded("a report", self.reports.recv()).await.expect("the link is open")
    }

    /// The next but for what it tells of changes and of time had, each second and to a psched that is back,
    /// and of what can be moved.
    pub async fn word(&mut self) -> Report {
        loop {
            match self.report().await {
                Report::Switches(_) | Report::Movable { .. } => {}
                report => return report,
            }
        }
    }

    pub async fn ended(&mut self) -> HostEnd {
        loop {
            match self.word().await {
                Report::Ended(end) => return *end,
                Report::Launched(_) | Report::Running(_) => {}
                other => panic!("{other:?} instead of the end"),
            }
        }
    }

    pub async fn acknowledge(&mut self, key: Key) {
        self.send(Command::AcknowledgeEnd(key)).await;
    }
}

pub struct PlayedNodes {
    pub links: mpsc::UnboundedSender<Link>,
    pub store: String,
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
                boot_id: hello.boot_id.clone(),
                checkpoint_key: Some(SEALING),
                // It answers no heartbeats.
                bounds: HostBounds { silence: Duration::ZERO, ..HostBounds::default() },
                ..Welcome::default()
            };
            let welcome = Some(pb::to_node::Message::Welcome(welcome.into()));
            let _ = commands.send(Ok(pb::ToNode { message: welcome, ..Default::default() })).await;
            let (sender, reports) = mpsc::unbounded_channel();
            let (noted, notes) = watch::channel(hello.notes.clone());
            let mut link =
                Some(Link { hello, inventory: vec![], notes, commands, reports, seq: 0 });
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
                    Some(Message::Notes(notes)) => {
                        let (notes, _, _) = notes.try_into().expect("well-formed");
                        drop(noted.send(notes));
                    }
                    _ => {}
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// A folder with psched's socket in it.
pub struct Instance {
    pub folder: tempfile::TempDir,
    pub number: u32,
    pub links: mpsc::UnboundedReceiver<Link>,
    /// To psched when it is started.
    pub sender: mpsc::UnboundedSender<Link>,
    pub server: Option<tokio::task::JoinHandle<()>>,
}

impl Instance {
    pub async fn new() -> Instance {
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

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("psched.sock")
    }

    pub fn apinit_socket(&self, nid: u32) -> PathBuf {
        self.folder.path().join(format!("apinit-{nid}.sock"))
    }

    pub fn start_psched(&mut self) {
        let listener = listen(&self.socket(), 0o600).expect("it listens");
        let service = PlayedNodes { links: self.sender.clone(), store: store(self) };
        let server = tonic::transport::Server::builder().add_service(NodesServer::new(service));
        self.server = Some(tokio::spawn(async move {
            let _ = server.serve_with_incoming(incoming(listener, Bounds::default())).await;
        }));
    }

    /// As if killed: all its links break.
    pub async fn kill_psched(&mut self, link: Link) {
        drop(link);
        if let Some(server) = self.server.take() {
            server.abort();
            let _ = server.await;
        }
        std::fs::remove_file(self.socket()).expect("it was there");
    }

    pub async fn link(&mut self) -> Link {
        bounded("a link", self.links.recv()).await.expect("the sender is here")
    }

    /// The groups of this instance, if there are groups.
    pub fn groups(&self) -> Option<PathBuf> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("there is one");
        let mount = mounts.lines().find(|l| l.split(' ').nth(2) == Some("cgroup2"))?;
        let own = std::fs::read_to_string("/proc/self/cgroup").expect("there is one");
        let own = own.lines().find_map(|l| l.strip_prefix("0::/"))?.to_string();
        let base = Path::new(mount.split(' ').nth(1)?).join(own);
        Some(base.join(format!("psched.{:08x}", self.number)))
    }

    pub fn place(&self, name: &str, hosts: &[&[u32]], per_node: u32) -> PlaceCommand {
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
            ..HostPart::default()
        };
        let places = PlacementList(nids.iter().map(place).collect());
        let hosts: Vec<HostPart> = hosts.iter().map(part).collect();
        let map = RankMap::of(&places, &hosts);
        let process_mapping = mapping_of(&map, &hosts, true);
        PlaceCommand {
            part: Part { index: None, map, process_mapping },
            isolation: psched::variables::Isolation::Auto,
            user_bus: false,
            fan_out: 0,
            key: key(name),
            owner: own_ids(),
            shape: Shape { width: nids.len() as u32 * per_node, depth: 1, per_node: None },
            places,
            hosts: hosts.into(),
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
            shares: false,
            exclusive: false,
            account: None,
            yields: Default::default(),
            moved: Default::default(),
            restart: None,
        }
    }
}

pub fn own_ids() -> Owner {
    Owner {
        uid: nix::unistd::getuid().as_raw(),
        gid: nix::unistd::getgid().as_raw(),
        groups: vec![],
        name: "me".into(),
        terminal: false,
    }
}

pub struct Apinit {
    pub child: Child,
    /// As long as this is open it lives.
    pub lifeline: Option<OwnedFd>,
    pub runtime: PathBuf,
}

impl Apinit {
    pub fn start(instance: &Instance, nids: &str) -> Apinit {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
        Apinit::start_with(instance, nids, &read, Some(write))
    }

    pub fn start_with(
        instance: &Instance,
        nids: &str,
        read: &OwnedFd,
        lifeline: Option<OwnedFd>,
    ) -> Apinit {
        let program = std::process::Command::new(env!("CARGO_BIN_EXE_apinit"));
        Apinit::start_by(program, instance, nids, read, lifeline)
    }

    /// One that finds this CRIU.
    pub fn start_with_criu(
        instance: &Instance,
        nids: &str,
        read: &OwnedFd,
        lifeline: Option<OwnedFd>,
        criu: &Path,
    ) -> Apinit {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_apinit"));
        let folder = criu.parent().expect("a folder").display();
        let path = std::env::var("PATH").unwrap_or_default();
        program.env("PATH", format!("{folder}:{path}"));
        Apinit::start_by(program, instance, nids, read, lifeline)
    }

    /// Where no cgroup v2 is to be seen; by root only.
    pub fn start_without_groups(instance: &Instance, nids: &str) -> Apinit {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
        let mut program = std::process::Command::new("unshare");
        program.args(["-m", "sh", "-c", "umount -a -t cgroup2; exec \"$0\" \"$@\""]);
        program.arg(env!("CARGO_BIN_EXE_apinit"));
        Apinit::start_by(program, instance, nids, &read, Some(write))
    }

    fn start_by(
        mut program: std::process::Command,
        instance: &Instance,
        nids: &str,
        read: &OwnedFd,
        lifeline: Option<OwnedFd>,
    ) -> Apinit {
        use nix::fcntl::{FcntlArg, FdFlag, fcntl};
        fcntl(read, FcntlArg::F_SETFD(FdFlag::empty())).expect("it is open");
        let child = program
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

    pub fn app(&self, key: Key) -> PathBuf {
        self.runtime.join(key.to_string())
    }

    pub fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.child.id() as i32)
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(self.pid(), signal).expect("it is there");
    }

    pub async fn exit(&mut self) {
        let child = &mut self.child;
        until("apinit's end", || child.try_wait().expect("a child").is_some()).await;
    }

    /// Cuts the lifeline: nothing is left within the promised time.
    pub async fn end(mut self) {
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
