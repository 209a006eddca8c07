//! A real apshepherd, with this test in apinit's place.

use bytes::Bytes;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect, listen, recv,
    send, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use prost::Message;
use psched::apteam::Key;
use psched::apteam::ending::HostEnd;
use psched::apteam::launch::{HostLaunch, Launch, LocalPe};
use psched::apteam::protocol::notice::Notice;
use psched::apteam::protocol::shepherd::{FromShepherd, Hello, PROTOCOL, ToShepherd};
use psched::machine::Nid;
use psched::node::frames::{Joiner, PACKET_MAX, split};
use psched::rpc::pb;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn key() -> Key {
    Key::parse("12.1").expect("a key")
}

/// Both streams of each rank.
pub type Written = BTreeMap<(u32, bool), Vec<u8>>;

pub struct Rig {
    pub folder: tempfile::TempDir,
    pub process: Child,
    /// What `psched start` keeps open.
    pub lifeline: Option<OwnedFd>,
    link: Option<(OwnedFd, Joiner)>,
    /// Whether output is acknowledged as it comes.
    pub acknowledges: bool,
    /// Bytes of output received.
    pub received: u64,
    pub written: Written,
    pub notices: Vec<Notice>,
    pub credit: u64,
}

impl Rig {
    /// A shepherd that waits for its launch, connected, greeted.
    pub fn new() -> Rig {
        Rig::with_groups(&[])
    }

    /// The same; PEs of each of these nodes are born in the control group with this folder.
    pub fn with_groups(groups: &[(Nid, &Path)]) -> Rig {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("shepherd.sock");
        let socket = seqpacket();
        bind(socket.as_raw_fd(), &UnixAddr::new(&path).expect("a short path")).expect("bind");
        listen(&socket, Backlog::new(8).expect("8")).expect("listen");
        let (ours, theirs) = std::io::pipe().map(|(r, w)| (w, r)).expect("a pipe");
        // The descriptors come as stdin and stdout and are moved from there, so that no other
        // test's child inherits them.
        let mut command = Command::new("sh");
        assert!(groups.len() <= 4, "sh has one digit for a descriptor");
        let opened: String =
            groups.iter().zip(3..).map(|((_, path), fd)| format!("exec {fd}<{path:?}; ")).collect();
        let listed: Vec<String> =
            groups.iter().zip(3..).map(|((nid, _), fd)| format!("{nid}:{fd}")).collect();
        let script = "exec 8<&0 9<&1 0</dev/null 1>&2; exec \"$0\" \"$@\"";
        command.arg("-c").arg(opened + script).arg(env!("CARGO_BIN_EXE_apshepherd"));
        command.args([&key().to_string(), "--listen", "8", "--lifeline", "9"]);
        command.arg("--groups").arg(listed.join(","));
        let process = command
            .stdin(Stdio::from(socket))
            .stdout(Stdio::from(theirs))
            .spawn()
            .expect("apshepherd");
        let mut rig = Rig {
            folder,
            process,
            lifeline: Some(ours.into()),
            link: None,
            acknowledges: true,
            received: 0,
            written: Written::new(),
            notices: Vec::new(),
            credit: 0,
        };
        let hello = rig.connect();
        assert_eq!((hello.protocol, hello.launched), (PROTOCOL, false));
        rig
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn pid(&self) -> i32 {
        self.process.id() as i32
    }

    pub fn disconnect(&mut self) {
        self.link = None;
    }

    /// Connects and exchanges hellos.
    pub fn connect(&mut self) -> Hello {
        let fd = seqpacket();
        let path = self.folder.path().join("shepherd.sock");
        connect(fd.as_raw_fd(), &UnixAddr::new(&path).expect("a short path")).expect("connect");
        let limit = TimeVal::seconds(PATIENCE.as_secs() as i64);
        setsockopt(&fd, sockopt::ReceiveTimeout, &limit).expect("SO_RCVTIMEO");
        self.link = Some((fd, Joiner::default()));
        self.say(ToShepherd::Hello(Hello { protocol: 1, key: key(), ..Hello::default() }));
        match self.hear() {
            FromShepherd::Hello(hello) => hello,
            other => panic!("{other:?} before hello"),
        }
    }

    pub fn say(&mut self, message: ToShepherd) {
        let (fd, _) = self.link.as_ref().expect("connected");
        for packet in split(&pb::ToShepherd::from(message).encode_to_vec()) {
            send(fd.as_raw_fd(), &packet, MsgFlags::MSG_NOSIGNAL).expect("sent");
        }
    }

    /// The next message.
    pub fn hear(&mut self) -> FromShepherd {
        self.hear_within(PATIENCE).expect("a message")
    }

    /// The next message, if one comes within this time.
    pub fn hear_within(&mut self, time: Duration) -> Option<FromShepherd> {
        let (fd, joiner) = self.link.as_mut().expect("connected");
        let limit = TimeVal::microseconds(time.as_micros() as i64);
        setsockopt(fd, sockopt::ReceiveTimeout, &limit).expect("SO_RCVTIMEO");
        let mut packet = vec![0; PACKET_MAX];
        loop {
            let count = match recv(fd.as_raw_fd(), &mut packet, MsgFlags::empty()) {
                Ok(count) => count,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(nix::errno::Errno::EAGAIN) => return None,
                Err(errno) => panic!("apshepherd can't be heard: {errno}"),
            };
            assert!(count > 0, "apshepherd has hung up");
            if let Some(whole) = joiner.push(&packet[..count]).expect("a frame") {
                let message = pb::FromShepherd::decode(whole).expect("protobuf");
                return Some(FromShepherd::try_from(message).expect("sound"));
            }
        }
    }

    /// Takes output, notices and credit; gives anything else.
    pub fn next(&mut self) -> FromShepherd {
        loop {
            match self.hear() {
                FromShepherd::Output(output) => {
                    assert!(output.offset <= self.received, "a hole in the output");
                    let had = (self.received - output.offset).min(output.data.len() as u64);
                    let new = &output.data[had as usize..];
                    let stream = self.written.entry((output.rank, output.stderr)).or_default();
                    stream.extend_from_slice(new);
                    self.received += new.len() as u64;
                    if self.acknowledges {
                        self.say(ToShepherd::OutputTaken(self.received));
                    }
                }
                FromShepherd::Notice(notice) => self.notices.push(notice),
                FromShepherd::StdinCredit(credit) => self.credit = credit.credit,
                other => return other,
            }
        }
    }

    pub fn launch(&mut self, launch: HostLaunch) {
        self.say(ToShepherd::Launch(Box::new(launch)));
    }

    /// Up to where the PEs go.
    pub fn start(&mut self, launch: HostLaunch) {
        self.launch(launch);
        assert_eq!(self.next(), FromShepherd::Ready);
        self.say(ToShepherd::Go);
    }

    /// What comes until the end.
    pub fn end(&mut self) -> HostEnd {
        loop {
            match self.next() {
                FromShepherd::Ended(end) => return *end,
                FromShepherd::Decisive(_) | FromShepherd::Failed(_) => {}
                other => panic!("{other:?} instead of an end"),
            }
        }
    }

    pub fn run(&mut self, launch: HostLaunch) -> HostEnd {
        self.start(launch);
        self.end()
    }

    pub fn stdout(&self, rank: u32) -> String {
        self.stream(rank, false)
    }

    pub fn stream(&self, rank: u32, stderr: bool) -> String {
        let bytes = self.written.get(&(rank, stderr)).map_or(&[][..], |b| b);
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Waits until something has been written that `enough` likes.
    pub fn until_written(&mut self, enough: impl Fn(&Rig) -> bool) {
        let began = Instant::now();
        while !enough(self) {
            assert!(began.elapsed() < PATIENCE, "so far: {:?}", self.written);
            match self.hear() {
                FromShepherd::Output(output) => {
                    let stream = self.written.entry((output.rank, output.stderr)).or_default();
                    stream.extend_from_slice(&output.data);
                    self.received += output.data.len() as u64;
                    self.say(ToShepherd::OutputTaken(self.received));
                }
                FromShepherd::StdinCredit(credit) => self.credit = credit.credit,
                other => panic!("{other:?} instead of output"),
            }
        }
    }

    /// Waits until apshepherd has gone.
    pub fn gone(&mut self) -> Option<i32> {
        let mut status = None;
        within("apshepherd's end", || {
            status = self.process.try_wait().expect("a child");
            status.is_some()
        });
        status.and_then(|s| s.code())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn seqpacket() -> OwnedFd {
    socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("socket")
}

/// Awaits a condition, with a bound.
pub fn within(what: &str, mut met: impl FnMut() -> bool) {
    let began = Instant::now();
    while !met() {
        assert!(began.elapsed() < PATIENCE, "no {what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A launch of `width` PEs on two nodes in turn, all here.
pub fn launch(width: u32, program: &str, arguments: &[&str]) -> HostLaunch {
    let bytes = |s: &str| s.as_bytes().to_vec();
    let arguments = std::iter::once(&program).chain(arguments).map(|s| bytes(s)).collect();
    HostLaunch {
        key: key(),
        width,
        depth: 1,
        launch: Launch {
            executable: bytes(program),
            arguments,
            environment: vec![bytes("PATH=/usr/bin:/bin"), bytes("PMI_FD=777")],
            directory: bytes("/"),
            umask: 0o022,
            pmi: true,
            ..Launch::default()
        },
        pes: (0..width)
            .map(|rank| LocalPe { rank, nid: Nid(rank / 2), cpus: vec![], nice: 0, depth: 0 })
            .collect(),
        process_mapping: format!("(vector,(0,1,{width}))"),
        alone: true,
        others: Vec::new(),
        cpu_limit: None,
        stdin: false,
        kill_grace: Duration::from_secs(5),
        marker: "01234567.12.1".into(),
        memory_per_pe: None,
        pids_max: None,
        pmix_name: "psched.test".into(),
        bounds: Default::default(),
        host_index: 0,
        pmix_folder: String::new(),
        spawned: None,
    }
}

pub fn sh(width: u32, script: &str) -> HostLaunch {
    launch(width, "/bin/sh", &["-c", script])
}

/// Living processes with this in their environment.
pub fn marked(marker: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let has = |path: &PathBuf| {
        std::fs::read(path.join("environ")).is_ok_and(|environment| {
            environment.windows(marker.len()).any(|w| w == marker.as_bytes())
        })
    };
    entries.map(|e| e.path()).filter(has).collect()
}

pub fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}
