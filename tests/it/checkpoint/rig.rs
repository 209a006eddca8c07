//! An application whose apinit is gone, with the test in its place; and one that was restored.

use crate::shepherd::rig::seqpacket;
use crate::support::*;
use nix::sys::socket::{
    Backlog, MsgFlags, UnixAddr, bind, connect, listen, recv, send, setsockopt, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use prost::Message;
use psched::apteam::ending::HostEnd;
use psched::apteam::protocol::shepherd::{FromShepherd, Hello, PROTOCOL, ToShepherd};
use psched::machine::Nid;
use psched::node::checkpoint::criu::{Criu, CriuError};
use psched::node::checkpoint::{
    CheckpointError, Given, Late, Owner, Restored, Running as Application, read_late,
    restore_application,
};
use psched::node::frames::{Joiner, PACKET_MAX, split};
use psched::node::groups::AppGroups;
use psched::os::space::Space;
use psched::rpc::pb;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An empty directory that is root's alone, which goes at the end.
pub struct Images {
    folder: tempfile::TempDir,
    opened: File,
}

pub fn images() -> Images {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    let mut folder = tempfile::Builder::new();
    let folder = folder.prefix("images").permissions(mode).tempdir_in("/tmp").expect("made");
    let opened = File::open(folder.path()).expect("opened");
    Images { folder, opened }
}

impl Images {
    /// Takes away what CRIU needs only when it has been started: where it is, by the paths where it was.
    fn take_late(&self, to: &Path) -> Vec<(PathBuf, PathBuf)> {
        let late = listing(self.folder.path()).into_iter();
        let late = late.filter(|name| read_late(name.to_str().expect("text")));
        let late: Vec<_> =
            late.map(|name| (to.join(&name), self.folder.path().join(name))).collect();
        late.iter().for_each(|(there, here)| std::fs::rename(here, there).expect("moved"));
        assert!(!late.is_empty(), "there are no pages");
        late
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Whether a CRIU that has these open waits for a word.
    pub fn waited_for(&self) -> bool {
        let link = |entry: std::fs::DirEntry| std::fs::read_link(entry.path()).ok();
        pids().any(|pid| {
            let proc = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
            let title = std::fs::read_to_string(proc("cmdline")).unwrap_or_default();
            let mut open = std::fs::read_dir(proc("fd")).into_iter().flatten().flatten();
            let call = std::fs::read_to_string(proc("syscall")).unwrap_or_default();
            let call = call.split(' ').next().and_then(|number| number.parse().ok());
            title.contains("criu: restore")
                && call == Some(nix::libc::SYS_recvfrom)
                && open.any(|entry| link(entry).as_deref() == Some(self.folder.path()))
        })
    }
}

impl AsFd for Images {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.opened.as_fd()
    }
}

/// What a process maps.
pub fn maps(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default()
}

/// Whether whoever has its ids may trace a process: /proc is root's otherwise.
pub fn dumpable(pid: i32) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(format!("/proc/{pid}/fd")).expect("it lives").uid() != 0
}

/// Whether root can dump processes of others: that takes CAP_SYS_RESOURCE.
pub fn dumps_others() -> bool {
    psched::node::checkpoint::dumps_others()
}

/// The children of all of these.
pub fn below(pids: &[i32]) -> Vec<i32> {
    pids.iter().flat_map(|pid| children(*pid)).map(|(pid, _)| pid).collect()
}

/// An application that runs.
pub struct Taken {
    pub shepherd: i32,
    pub socket: PathBuf,
    groups: AppGroups,
    lifeline: Option<File>,
    owner: Owner,
}

/// Whose a process is.
fn owner_of(pid: i32) -> Owner {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let ids = |name: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("its ids");
        line.split_whitespace().map(|id| id.parse().expect("an id")).collect()
    };
    Owner { uid: ids("Uid:")[0], gid: ids("Gid:")[0], groups: ids("Groups:") }
}

const NIDS: [Nid; 1] = [Nid(0)];

impl Taken {
    /// That of a runtime directory, on NID 0; `start` holds the other end of its lifeline.
    pub fn of(runtime: &Path, start: Option<i32>) -> Taken {
        let read = |name| std::fs::read_to_string(runtime.join(name)).expect("kept");
        let shepherd = read("shepherd").split(' ').next().and_then(|p| p.parse().ok());
        let shepherd: i32 = shepherd.expect("a pid");
        let groups = AppGroups::found(read("groups").trim_end().into(), NIDS.into());
        Taken {
            shepherd,
            socket: runtime.join("shepherd.sock"),
            groups: groups.expect("its groups"),
            lifeline: start.map(|start| common_pipe(shepherd, start)),
            owner: owner_of(shepherd),
        }
    }

    pub fn running(&self) -> Application<'_> {
        Application {
            shepherd: self.shepherd,
            socket: &self.socket,
            lifeline: self.lifeline.as_ref().map(AsFd::as_fd),
            groups: &self.groups,
            owner: &self.owner,
        }
    }

    /// It is somebody else's from now on.
    pub fn belongs_to(&mut self, owner: Owner) {
        self.owner = owner;
    }

    /// Until the processes that come back of it are in their group, in which nothing else happens
    /// to them than that they are looked at.
    #[track_caller]
    pub fn wait_until_there(&self) {
        let beside = self.groups.path().parent().expect("a store's");
        eventually(BOUND, "its processes are there", || {
            let mut groups = listing(beside).into_iter().map(|name| beside.join(name));
            groups.any(|group| {
                let procs = std::fs::read_to_string(group.join("0/cgroup.procs"));
                group != self.groups.path() && procs.is_ok_and(|procs| !procs.is_empty())
            })
        });
    }

    /// (A script has an appmix beside its PE.)
    pub fn pes(&self) -> Vec<i32> {
        let all = children(self.shepherd).into_iter();
        all.filter(|(_, name)| name != "appmix").map(|(pid, _)| pid).collect()
    }
}

/// The pipe that both have open, and that is not where the first one's diagnostics go.
fn common_pipe(one: i32, other: i32) -> File {
    let links = |pid: i32| -> Vec<(PathBuf, PathBuf)> {
        let all = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("readable").flatten();
        all.filter_map(|e| Some((e.path(), std::fs::read_link(e.path()).ok()?)))
            .filter(|(_, link)| link.to_string_lossy().starts_with("pipe:"))
            .collect()
    };
    let others = links(other);
    let stderr = std::fs::read_link(format!("/proc/{one}/fd/2")).ok();
    let common =
        |link: &PathBuf| Some(link) != stderr.as_ref() && others.iter().any(|(_, l)| l == link);
    let found = links(one).into_iter().find(|(_, link)| common(link));
    File::open(found.expect("a lifeline").0).expect("opened")
}

/// A socket that listens there, as apinit makes one.
pub fn listener(path: &Path) -> OwnedFd {
    let listener = seqpacket();
    bind(listener.as_raw_fd(), &UnixAddr::new(path).expect("a short path")).expect("bind");
    listen(&listener, Backlog::new(8).expect("8")).expect("listen");
    let flags = nix::fcntl::OFlag::O_NONBLOCK;
    nix::fcntl::fcntl(&listener, nix::fcntl::FcntlArg::F_SETFL(flags)).expect("set");
    listener
}

/// An application that was restored.
#[derive(Debug)]
pub struct Back {
    pub restored: Restored,
    pub socket: PathBuf,
    pub lifeline: Option<OwnedFd>,
    reads: File,
    groups: PathBuf,
    owner: Owner,
    _folder: tempfile::TempDir,
    ended: bool,
}

impl Back {
    /// Restores what was taken. Pages come when CRIU waits for them.
    #[track_caller]
    pub fn restore(criu: &Criu, images: &Images, taken: &Taken) -> Back {
        let aside = tempfile::tempdir_in("/tmp").expect("a folder");
        let late = images.take_late(aside.path());
        let mut bring = |what| {
            if what == Late::Bring {
                eventually(BOUND, "CRIU waits", || images.waited_for());
                let back = |(there, here): &(PathBuf, PathBuf)| std::fs::rename(there, here);
                late.iter().for_each(|paths| back(paths).expect("moved back"));
            }
            Ok(())
        };
        Back::restore_with(criu, images, taken, &mut bring).expect("restored")
    }

    /// The same, or why not; then nothing is left of it.
    #[track_caller]
    pub fn try_restore(
        criu: &Criu,
        images: &Images,
        taken: &Taken,
    ) -> Result<Back, CheckpointError> {
        Back::restore_with(criu, images, taken, &mut |_| Ok(()))
    }

    /// Why not, where its pages turn out to be others when all its processes are there: none of them has gone on by
    /// then.
    #[track_caller]
    pub fn refuse_late(criu: &Criu, images: &Images, taken: &Taken) -> CheckpointError {
        let mut compare = |what| {
            if what == Late::Bring {
                return Ok(());
            }
            taken.wait_until_there();
            // (It has told of them, and may be on its way to the call in which it waits.)
            for _ in 0..50 {
                eventually(BOUND, "CRIU waits", || images.waited_for());
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(CriuError::Stage("they are others".to_owned()).into())
        };
        Back::restore_with(criu, images, taken, &mut compare).map(drop).expect_err("refused")
    }

    /// The same, and all that is to be done meanwhile.
    ///
    /// # Errors
    /// Why not.
    pub fn restore_with(
        criu: &Criu,
        images: &Images,
        taken: &Taken,
        late: &mut dyn FnMut(Late) -> Result<(), CheckpointError>,
    ) -> Result<Back, CheckpointError> {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("shepherd.sock");
        let listener = listener(&socket);
        // Groups beside those that it had.
        let name = format!("restored.{}", folder.path().file_name().expect("one").display());
        let groups = taken.groups.path().with_file_name(name);
        for group in ["shepherd", "0"] {
            std::fs::create_dir_all(groups.join(group)).expect("made");
        }
        let made = AppGroups::found(groups.clone(), NIDS.into()).expect("made");
        let log = File::create(folder.path().join("log")).expect("made");
        let (reads, writes) = std::io::pipe().expect("a pipe");
        let space = Space::prepare(false);
        let apshepherd = binaries().join("apshepherd");
        let given = Given {
            apshepherd: &apshepherd,
            listener: listener.as_fd(),
            lifeline: Some(reads.as_fd()),
            log: log.as_fd(),
            groups: &made,
            space: Some(&space),
            cpus: &[],
            owner: &taken.owner,
        };
        // Nothing runs before it is let.
        std::fs::write(groups.join("0/cgroup.freeze"), "1").expect("frozen");
        let restored = restore_application(criu, images.as_fd(), &given, BOUND, late);
        let restored = restored.inspect_err(|_| {
            assert!(made.empty() && made.shepherds().is_empty(), "something is left");
            assert!(made.remove(), "its groups are left");
        })?;
        let (reads, lifeline) = (OwnedFd::from(reads).into(), Some(OwnedFd::from(writes)));
        let ended = false;
        let owner = taken.owner.clone();
        let back =
            Back { restored, socket, lifeline, reads, groups, owner, _folder: folder, ended };
        let (outer, inner) = (back.taken(), |pid| format!("/proc/{pid}/cgroup"));
        assert!(!outer.pes().is_empty());
        for pid in outer.pes() {
            let group = std::fs::read_to_string(inner(pid)).expect("it lives");
            assert!(group.trim_end().ends_with("/0"), "{group}");
            use std::os::unix::fs::MetadataExt;
            let uid = std::fs::metadata(format!("/proc/{pid}")).expect("it lives").uid();
            assert_eq!(uid, back.owner.uid);
        }
        std::fs::write(back.groups.join("0/cgroup.freeze"), "0").expect("thawed");
        Ok(back)
    }

    /// It, to be dumped.
    pub fn taken(&self) -> Taken {
        Taken {
            shepherd: self.restored.shepherd,
            socket: self.socket.clone(),
            groups: AppGroups::found(self.groups.clone(), NIDS.into()).expect("there"),
            lifeline: Some(self.reads.try_clone().expect("cloned")),
            owner: self.owner.clone(),
        }
    }

    /// Waits for the end of everything, with this status.
    #[track_caller]
    pub fn gone(self, status: i32) {
        assert_eq!(self.gone_somehow(), status);
    }

    /// Waits for the end of everything.
    #[track_caller]
    pub fn gone_somehow(mut self) -> i32 {
        let mut status = None;
        eventually(BOUND, "the first process ends", || {
            status = self.ask();
            status.is_some()
        });
        let procs = self.groups.join("0/cgroup.events");
        eventually(BOUND, "nobody is left", || {
            std::fs::read_to_string(&procs).is_ok_and(|text| text.contains("populated 0"))
        });
        status.expect("it has ended")
    }

    fn ask(&mut self) -> Option<i32> {
        use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
        let pid = nix::unistd::Pid::from_raw(self.restored.first.pid);
        let status = match waitpid(pid, Some(WaitPidFlag::WNOHANG)).expect("a child") {
            WaitStatus::Exited(_, code) => code,
            WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
            _ => return None,
        };
        self.ended = true;
        Some(status)
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        if !self.ended {
            kill(self.restored.first.pid, 9);
            let pid = nix::unistd::Pid::from_raw(self.restored.first.pid);
            let _ = nix::sys::wait::waitpid(pid, None);
        }
        let below = ["shepherd", "0"].map(|group| self.groups.join(group));
        for group in below.into_iter().chain([self.groups.clone()]) {
            let gone = || std::fs::remove_dir(&group).is_ok() || !group.exists();
            let until = std::time::Instant::now() + BOUND;
            while !gone() && std::time::Instant::now() < until {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
        let _ = self.groups.parent().map(std::fs::remove_dir);
    }
}

/// A connection in apinit's place.
pub struct Talk {
    fd: OwnedFd,
    joiner: Joiner,
    /// What rank 0 has written to stdout, as far as it came here.
    pub written: String,
    offset: u64,
}

impl Talk {
    /// Connects, and exchanges hellos.
    #[track_caller]
    pub fn with(socket: &Path) -> Talk {
        let fd = seqpacket();
        connect(fd.as_raw_fd(), &UnixAddr::new(socket).expect("a short path")).expect("connect");
        let limit = TimeVal::seconds(BOUND.as_secs() as i64);
        setsockopt(&fd, sockopt::ReceiveTimeout, &limit).expect("SO_RCVTIMEO");
        let mut talk = Talk { fd, joiner: Joiner::default(), written: String::new(), offset: 0 };
        let FromShepherd::Hello(hello) = talk.hear() else { panic!("no hello") };
        assert!(hello.launched && hello.protocol == PROTOCOL, "{hello:?}");
        talk.say(ToShepherd::Hello(Hello {
            protocol: PROTOCOL,
            key: hello.key,
            ..Hello::default()
        }));
        talk
    }

    fn say(&self, message: ToShepherd) {
        for packet in split(&pb::ToShepherd::from(message).encode_to_vec()) {
            send(self.fd.as_raw_fd(), &packet, MsgFlags::MSG_NOSIGNAL).expect("sent");
        }
    }

    #[track_caller]
    fn hear(&mut self) -> FromShepherd {
        let mut packet = vec![0; PACKET_MAX];
        loop {
            let count = recv(self.fd.as_raw_fd(), &mut packet, MsgFlags::empty()).expect("heard");
            assert!(count > 0, "apshepherd has hung up");
            if let Some(whole) = self.joiner.push(&packet[..count]).expect("a frame") {
                let message = pb::FromShepherd::decode(whole).expect("protobuf");
                return FromShepherd::try_from(message).expect("sound");
            }
        }
    }

    /// Output is taken as it comes; anything else is given.
    #[track_caller]
    fn next(&mut self) -> Option<FromShepherd> {
        match self.hear() {
            FromShepherd::Output(output) => {
                self.offset = output.offset + output.data.len() as u64;
                if output.rank == 0 && !output.stderr {
                    self.written.push_str(&String::from_utf8_lossy(&output.data));
                }
                self.say(ToShepherd::OutputTaken(self.offset));
                None
            }
            other => Some(other),
        }
    }

    /// What was written, once there is enough of it.
    #[track_caller]
    pub fn until(&mut self, enough: impl Fn(&str) -> bool) -> String {
        let until = std::time::Instant::now() + BOUND;
        while !enough(&self.written) {
            assert!(std::time::Instant::now() < until, "so far: {}", self.written);
            self.next();
        }
        self.written.clone()
    }

    /// What is told of the end.
    #[track_caller]
    pub fn end(&mut self) -> HostEnd {
        loop {
            if let Some(FromShepherd::Ended(end)) = self.next() {
                return *end;
            }
        }
    }

    /// The end is known.
    pub fn release(&self) {
        self.say(ToShepherd::Release);
    }
}
