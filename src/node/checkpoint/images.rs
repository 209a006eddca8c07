//! What CRIU's images say of ids, files and sockets.
//!
//! # The problem
//! CRIU restores as root whatever its images say: the ids of each process, the files that it has
//! open, the names of its sockets. They are sealed, so that only root's daemons can have written
//! them; but what they were written of was a user's, and the seal is one wall and not two.
//!
//! # The approach
//! The few images that name users and paths are read, before CRIU reads them, and once more before
//! they are given to their user. An image is two numbers that tell its kind, and then entries: the
//! length of a message, and the message. Only the fields are known here that are asked for; all
//! others are left out.

use super::image_files;
use crate::apteam::posting;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;

/// The largest image that is read: there is an entry for each open file.
const BYTES_MAX: u64 = 256 * 1024 * 1024;
/// What every image begins with.
const COMMON: u32 = 0x5456_4319;
/// And then that of its kind.
const CORE: u32 = 0x5505_3847;
const PSTREE: u32 = 0x5027_3030;
const FILES: u32 = 0x5630_3138;
const REMAPS: u32 = 0x5913_3954;
const GHOST: u32 = 0x5258_3605;
const MEMFD: u32 = 0x4845_3499;
const TTY_INFO: u32 = 0x5945_3036;
const QUEUES: u32 = 0x5626_4026;
const SHM: u32 = 0x4628_3044;
const MSG: u32 = 0x5545_3737;
const SEM: u32 = 0x5957_3019;
pub(super) const TCP_STREAM: u32 = 0x5146_5506;

/// Images of namespaces that an application does not make, and of what only root can have: with
/// these CRIU would set up what is the host's.
const FOREIGN: [&str; 16] = [
    "userns-",
    "utsns-",
    "mountpoints-",
    "netdev-",
    "netns-",
    "ifaddr-",
    "route-",
    "route6-",
    "rule-",
    "iptables-",
    "ip6tables-",
    "nftables-",
    "tmpfs-",
    "autofs-",
    "binfmt-misc",
    "apparmor",
];

/// Kinds of open files (`fd_types` of CRIU) that only root can open, or that are others' business.
const FOREIGN_FILES: [(i32, &str); 6] = [
    (10, "a packet socket"),
    (12, "a fanotify group"),
    (15, "a TUN device"),
    (16, "a file that a plug-in knows"),
    (19, "a BPF map"),
    (65535, "a pipe of autofs"),
];

/// `S_IFMT` and what of it is a device, and the bits of a mode that lend rights.
const KIND: u32 = 0o170_000;
const DEVICES: [u32; 2] = [0o020_000, 0o060_000];
const LENDS: u32 = 0o6000;
/// A bit of the securebits that any process may set (SECBIT_KEEP_CAPS).
const KEEP_CAPS: u32 = 1 << 4;

/// Ids of a thread, as CRIU gives them to it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Creds {
    #[prost(uint32, tag = "1")]
    uid: u32,
    #[prost(uint32, tag = "2")]
    gid: u32,
    #[prost(uint32, tag = "3")]
    euid: u32,
    #[prost(uint32, tag = "4")]
    egid: u32,
    #[prost(uint32, tag = "5")]
    suid: u32,
    #[prost(uint32, tag = "6")]
    sgid: u32,
    #[prost(uint32, tag = "7")]
    fsuid: u32,
    #[prost(uint32, tag = "8")]
    fsgid: u32,
    #[prost(uint32, repeated, packed = "false", tag = "9")]
    inheritable: Vec<u32>,
    #[prost(uint32, repeated, packed = "false", tag = "10")]
    permitted: Vec<u32>,
    #[prost(uint32, repeated, packed = "false", tag = "11")]
    effective: Vec<u32>,
    #[prost(uint32, tag = "13")]
    securebits: u32,
    #[prost(uint32, repeated, packed = "false", tag = "14")]
    groups: Vec<u32>,
    #[prost(uint32, repeated, packed = "false", tag = "19")]
    ambient: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct Thread {
    #[prost(message, optional, tag = "10")]
    creds: Option<Creds>,
}

#[derive(Clone, PartialEq, Message)]
struct Task {
    #[prost(uint32, tag = "1")]
    state: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Core {
    #[prost(message, optional, tag = "3")]
    task: Option<Task>,
    #[prost(message, optional, tag = "5")]
    thread: Option<Thread>,
}

impl Core {
    /// Whether it has ended, and only its parent has yet to hear of that: it has no ids then, and
    /// never runs.
    fn is_over(&self) -> bool {
        const OVER: [u32; 2] = [2, 6];
        self.task.as_ref().is_some_and(|task| OVER.contains(&task.state))
    }
}

#[derive(Clone, PartialEq, Message)]
struct Process {
    #[prost(uint32, tag = "1")]
    pid: u32,
    #[prost(uint32, repeated, packed = "false", tag = "5")]
    threads: Vec<u32>,
}

/// To whom the kernel sends signals about a file, and as whom.
#[derive(Clone, PartialEq, Message)]
struct Signals {
    #[prost(uint32, tag = "1")]
    uid: u32,
    #[prost(uint32, tag = "2")]
    euid: u32,
    #[prost(uint32, tag = "5")]
    pid: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Regular {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(uint32, tag = "2")]
    flags: u32,
    #[prost(message, optional, tag = "5")]
    signals: Option<Signals>,
    #[prost(bytes = "vec", tag = "6")]
    name: Vec<u8>,
    #[prost(bool, tag = "9")]
    external: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Permissions {
    #[prost(uint32, tag = "1")]
    mode: u32,
    #[prost(uint32, tag = "2")]
    uid: u32,
    #[prost(uint32, tag = "3")]
    gid: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Unix {
    #[prost(uint32, tag = "2")]
    ino: u32,
    #[prost(message, optional, tag = "9")]
    signals: Option<Signals>,
    #[prost(bytes = "vec", tag = "11")]
    name: Vec<u8>,
    #[prost(message, optional, tag = "13")]
    permissions: Option<Permissions>,
    #[prost(bytes = "vec", tag = "14")]
    directory: Vec<u8>,
    #[prost(bool, tag = "15")]
    deleted: bool,
}

/// Of an entry whose fourth field tells to whom signals go.
#[derive(Clone, PartialEq, Message)]
struct Pipe {
    #[prost(message, optional, tag = "4")]
    signals: Option<Signals>,
}

#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(message, optional, tag = "3")]
    regular: Option<Regular>,
    #[prost(message, optional, tag = "16")]
    unix: Option<Unix>,
    #[prost(message, optional, tag = "18")]
    pipe: Option<Pipe>,
}

#[derive(Clone, PartialEq, Message)]
struct Remap {
    #[prost(uint32, tag = "1")]
    file: u32,
    #[prost(uint32, tag = "2")]
    to: u32,
    /// 0: another name of the file, 1: a ghost, 2: of /proc.
    #[prost(int32, tag = "3")]
    kind: i32,
}

#[derive(Clone, PartialEq, Message)]
struct GhostFile {
    #[prost(uint32, tag = "1")]
    uid: u32,
    #[prost(uint32, tag = "2")]
    gid: u32,
    #[prost(uint32, tag = "3")]
    mode: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Memory {
    #[prost(uint32, tag = "2")]
    uid: u32,
    #[prost(uint32, tag = "3")]
    gid: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Terminal {
    #[prost(uint32, optional, tag = "14")]
    uid: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct Descriptors {
    #[prost(uint32, repeated, packed = "false", tag = "2")]
    rights: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint32, tag = "2")]
    length: u32,
    #[prost(message, repeated, tag = "4")]
    descriptors: Vec<Descriptors>,
}

#[derive(Clone, PartialEq, Message)]
struct IpcOwner {
    #[prost(uint32, tag = "2")]
    uid: u32,
    #[prost(uint32, tag = "3")]
    gid: u32,
    #[prost(uint32, tag = "4")]
    creator: u32,
    #[prost(uint32, tag = "5")]
    creator_gid: u32,
}

/// A segment of shared memory (`size`), a set of semaphores (as many), or a message queue (bytes,
/// and then messages).
#[derive(Clone, PartialEq, Message)]
struct Ipc {
    #[prost(message, optional, tag = "1")]
    owner: Option<IpcOwner>,
    #[prost(uint64, tag = "2")]
    size: u64,
    /// Its data is elsewhere; or messages.
    #[prost(uint32, tag = "3")]
    third: u32,
}

#[derive(Clone, PartialEq, Message)]
struct QueuedMessage {
    #[prost(uint32, tag = "2")]
    size: u32,
}

/// A file that has a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub path: Vec<u8>,
    /// As open(2) had them.
    pub flags: u32,
}

/// A unix socket with a name in the file system.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Socket {
    pub path: Vec<u8>,
    /// Its number, by which `socket:[7]` is called.
    pub ino: u32,
    /// Its name was removed.
    pub deleted: bool,
    permissions: Option<Permissions>,
}

/// A removed file that is in the images, or has another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Removed {
    pub path: Vec<u8>,
    /// Whose it is and its mode; none: its data is not in the images.
    pub ghost: Option<(u32, u32, u32)>,
}

/// What is asked of images.
#[derive(Clone, Debug, Default)]
pub(super) struct Images {
    pub creds: Vec<(String, Creds)>,
    /// Every process.
    pub pids: BTreeSet<i32>,
    /// Files that are opened by their paths.
    pub named: Vec<Named>,
    /// Files that were removed.
    pub removed: Vec<Removed>,
    pub sockets: Vec<Socket>,
    /// Whose something is, and what: of what has neither a process nor a path.
    pub owners: Vec<(String, u32, Option<u32>)>,
}

/// Whose an application is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl From<&posting::Owner> for Owner {
    fn from(owner: &posting::Owner) -> Owner {
        Owner { uid: owner.uid, gid: owner.gid, groups: owner.groups.clone() }
    }
}

impl Owner {
    pub(super) fn has_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// The entries of an image of this kind, and what is left behind one.
pub(super) struct Entries<'a> {
    rest: &'a [u8],
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number), rest))
}

impl<'a> Entries<'a> {
    pub(super) fn of(bytes: &'a [u8], kind: u32) -> Option<Entries<'a>> {
        let (common, rest) = number(bytes)?;
        let (own, rest) = number(rest)?;
        (common == COMMON && own == kind).then_some(Entries { rest })
    }

    fn next<M: Message + Default>(&mut self) -> Option<Result<M, ()>> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.bytes();
        Some(entry.and_then(|entry| M::decode(entry).ok()).ok_or(()))
    }

    /// The next one as it is. None: there is no whole one.
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = number(self.rest)?;
        let (entry, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(entry)
    }

    /// What is behind those that were read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn skip(&mut self, bytes: u64) -> Result<(), ()> {
        let bytes = usize::try_from(bytes).map_err(|_| ())?;
        self.rest = self.rest.get(bytes..).ok_or(())?;
        Ok(())
    }
}

impl Images {
    /// Reads those that there are.
    ///
    /// # Errors
    /// One can't be read, or is of no form that is known; or there is one that an application does
    /// not make.
    pub fn read(images: BorrowedFd<'_>) -> Result<Images, String> {
        let failed = |e: &dyn std::fmt::Display| format!("its images can't be read: {e}");
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(images).map_err(|e| failed(&e))? {
            let entry = entry.map_err(|e| failed(&e))?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        if let Some(name) = names.iter().find(|n| FOREIGN.iter().any(|f| n.starts_with(f))) {
            return Err(format!(
                "its images have {name}, which belongs to the host: only objects of the user's \
                 processes can be checkpointed"
            ));
        }
        let bytes = |name: &str| image_files::read(images, name, BYTES_MAX);
        let mut all = Images::default();
        let mut remaps: BTreeMap<u32, Remap> = BTreeMap::new();
        // Each file of `files.img` may be a removed one.
        names.sort_by_key(|name| name == "files.img");
        for name in &names {
            let Some((stem, _)) = name.rsplit_once(".img") else { continue };
            let kind = stem.trim_end_matches(|c: char| c.is_ascii_digit());
            let number = match kind {
                "core-" => CORE,
                "pstree" => PSTREE,
                "files" => FILES,
                "remap-fpath" => REMAPS,
                "memfd" => MEMFD,
                "tty-info" => TTY_INFO,
                "sk-queues" => QUEUES,
                "ipcns-shm-" => SHM,
                "ipcns-msg-" => MSG,
                "ipcns-sem-" => SEM,
                _ => continue,
            };
            let text = bytes(name).map_err(|e| failed(&format_args!("{name}: {e}")))?;
            let strange = |()| failed(&format_args!("{name} has an unknown format"));
            let mut entries = Entries::of(&text, number).ok_or(()).map_err(strange)?;
            let mut ghost = |id: u32| -> Result<GhostFile, String> {
                let name = format!("ghost-file-{id:x}.img");
                // (Its data is behind the entry.)
                let text = image_files::first(images, &name, 64 * 1024);
                let text = text.map_err(|e| failed(&format_args!("{name}: {e}")))?;
                let first = Entries::of(&text, GHOST).and_then(|mut all| all.next());
                let first = first.and_then(Result::ok);
                first.ok_or_else(|| failed(&format_args!("{name} has an unknown format")))
            };
            all.take(name, number, &mut entries, &mut remaps, &mut ghost)
                .map_err(|why| why.unwrap_or_else(|| strange(())))?;
        }
        match all.creds.is_empty() || all.pids.is_empty() {
            true => Err(failed(&"there is no process in them")),
            false => Ok(all),
        }
    }

    /// Takes what an image says. An error without words: it is of no form that is known.
    fn take(
        &mut self,
        name: &str,
        kind: u32,
        entries: &mut Entries<'_>,
        remaps: &mut BTreeMap<u32, Remap>,
        ghost: &mut dyn FnMut(u32) -> Result<GhostFile, String>,
    ) -> Result<(), Option<String>> {
        let none = |()| None;
        match kind {
            CORE => {
                while let Some(core) = entries.next::<Core>() {
                    let core = core.map_err(none)?;
                    let is_over = core.is_over();
                    match core.thread.and_then(|thread| thread.creds) {
                        Some(creds) => self.creds.push((name.to_owned(), creds)),
                        None if is_over => {}
                        None => return Err(None),
                    }
                }
            }
            PSTREE => {
                while let Some(process) = entries.next::<Process>() {
                    let pid = i32::try_from(process.map_err(none)?.pid).map_err(|_| None)?;
                    self.pids.insert(pid);
                }
            }
            REMAPS => {
                while let Some(remap) = entries.next::<Remap>() {
                    let remap = remap.map_err(none)?;
                    remaps.insert(remap.file, remap);
                }
            }
            FILES => {
                while let Some(file) = entries.next::<File>() {
                    self.file(file.map_err(none)?, remaps, ghost).map_err(Some)?;
                }
            }
            MEMFD => {
                while let Some(memory) = entries.next::<Memory>() {
                    let Memory { uid, gid } = memory.map_err(none)?;
                    self.owners.push(("anonymous memory (memfd)".into(), uid, Some(gid)));
                }
            }
            TTY_INFO => {
                while let Some(terminal) = entries.next::<Terminal>() {
                    if let Some(uid) = terminal.map_err(none)?.uid {
                        self.owners.push(("a terminal".into(), uid, None));
                    }
                }
            }
            QUEUES => {
                while let Some(packet) = entries.next::<Packet>() {
                    let packet = packet.map_err(none)?;
                    if packet.descriptors.iter().any(|some| !some.rights.is_empty()) {
                        return Err(Some(
                            "a descriptor is in transit in one of its sockets (SCM_RIGHTS) and \
                             can't be inspected: the application must receive it first"
                                .into(),
                        ));
                    }
                    entries.skip(packet.length.into()).map_err(none)?;
                }
            }
            _ => {
                while let Some(ipc) = entries.next::<Ipc>() {
                    let ipc = ipc.map_err(none)?;
                    let of = ipc.owner.clone().ok_or(None)?;
                    let what = || "System V IPC".to_owned();
                    self.owners.push((what(), of.uid, Some(of.gid)));
                    self.owners.push((what(), of.creator, Some(of.creator_gid)));
                    let up = |bytes: u64, to: u64| bytes.checked_next_multiple_of(to).ok_or(None);
                    match kind {
                        SHM if ipc.third != 0 => {}
                        SHM => entries.skip(up(ipc.size, 4)?).map_err(none)?,
                        SEM => entries.skip(up(ipc.size.saturating_mul(2), 8)?).map_err(none)?,
                        _ => {
                            for _ in 0..ipc.third {
                                let message = entries.next::<QueuedMessage>().ok_or(None)?;
                                let size = message.map_err(none)?.size;
                                entries.skip(up(size.into(), 8)?).map_err(none)?;
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn file(
        &mut self,
        file: File,
        remaps: &BTreeMap<u32, Remap>,
        ghost: &mut dyn FnMut(u32) -> Result<GhostFile, String>,
    ) -> Result<(), String> {
        if let Some((_, what)) = FOREIGN_FILES.iter().find(|(kind, _)| *kind == file.kind) {
            return Err(format!("the application has {what} open, which can't be checkpointed"));
        }
        let File { regular, unix, pipe, .. } = file;
        let signals = [
            regular.as_ref().and_then(|f| f.signals.as_ref()),
            unix.as_ref().and_then(|f| f.signals.as_ref()),
            pipe.as_ref().and_then(|f| f.signals.as_ref()),
        ];
        for signals in signals.into_iter().flatten().filter(|signals| signals.pid != 0) {
            for uid in [signals.uid, signals.euid] {
                self.owners.push(("a file that sends signals".into(), uid, None));
            }
        }
        if let Some(Regular { id, flags, name, external: false, .. }) = regular {
            match remaps.get(&id) {
                None => self.named.push(Named { path: name, flags }),
                Some(Remap { kind: 1, to, .. }) => {
                    let GhostFile { uid, gid, mode } = ghost(*to)?;
                    self.removed.push(Removed { path: name, ghost: Some((uid, gid, mode)) });
                }
                // What it has by another name is looked at when it is there.
                Some(_) => self.removed.push(Removed { path: name, ghost: None }),
            }
        }
        if let Some(Unix { ino, name, permissions, directory, deleted, .. }) = unix
            && name.first().is_some_and(|first| *first != 0)
        {
            let name = name.split(|b| *b == 0).next().unwrap_or_default();
            let mut path = Vec::new();
            if !name.starts_with(b"/") {
                path.extend_from_slice(&directory);
                path.push(b'/');
            }
            path.extend_from_slice(name);
            self.sockets.push(Socket { path, ino, deleted, permissions });
        }
        Ok(())
    }

    /// Whether all that they say of users and groups is this owner's. `given` are the sockets that
    /// will be another's, by their numbers; capabilities and securebits may be those of this
    /// process. Of root only the ids of processes are asked: what else there is it may have given
    /// away.
    ///
    /// # Errors
    /// What is not.
    pub fn check(&self, owner: &Owner, given: &[u32]) -> Result<(), String> {
        let own = Limits::own();
        for (name, creds) in &self.creds {
            creds.check(owner, &own).map_err(|why| format!("{name}: a process has {why}"))?;
        }
        if owner.uid == 0 {
            return Ok(());
        }
        for (what, uid, gid) in &self.owners {
            if *uid != owner.uid {
                return Err(format!(
                    "{what} belongs to user {uid}, and the application to user {}",
                    owner.uid
                ));
            }
            if let Some(gid) = gid.filter(|gid| !owner.has_group(*gid)) {
                return Err(format!(
                    "{what} belongs to group {gid}, in which user {} is not",
                    owner.uid
                ));
            }
        }
        for socket in self.sockets.iter().filter(|socket| !given.contains(&socket.ino)) {
            let of = socket.permissions.as_ref();
            if let Some(of) = of.filter(|of| of.uid != owner.uid || !owner.has_group(of.gid)) {
                let path = String::from_utf8_lossy(&socket.path);
                return Err(format!(
                    "the socket {path} belongs to user {}, group {}, and not to the owner of the \
                     application",
                    of.uid, of.gid
                ));
            }
        }
        for removed in &self.removed {
            let Some((uid, gid, mode)) = removed.ghost else { continue };
            let path = String::from_utf8_lossy(&removed.path);
            if DEVICES.contains(&(mode & KIND)) {
                return Err(format!(
                    "the application has {path} open, a device that has been removed"
                ));
            }
            let other = uid != owner.uid || !owner.has_group(gid);
            if other && mode & LENDS != 0 {
                return Err(format!(
                    "the application has {path} open, a removed file that gives the rights of \
                     user {uid}, group {gid} (set-user-ID)"
                ));
            }
        }
        Ok(())
    }
}

/// What a process may have because this one, which makes it, has it.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    inheritable: u64,
    securebits: u32,
}

impl Limits {
    /// Those of this process.
    pub fn own() -> Limits {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("CapInh:"));
        let inheritable = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        let securebits = rustix::thread::capabilities_secure_bits();
        let securebits = securebits.map_or(0, |bits| bits.bits());
        Limits { inheritable: inheritable.unwrap_or(0), securebits }
    }

    /// Whether one may have these inheritable capabilities.
    pub fn inherits(&self, capabilities: u64) -> bool {
        capabilities & !self.inheritable == 0
    }
}

impl Creds {
    fn check(&self, owner: &Owner, own: &Limits) -> Result<(), String> {
        let uids = [self.uid, self.euid, self.suid, self.fsuid];
        if let Some(uid) = uids.into_iter().find(|uid| *uid != owner.uid) {
            return Err(format!(
                "the rights of user {uid}, and the application belongs to user {}",
                owner.uid
            ));
        }
        let gids = [self.gid, self.egid, self.sgid, self.fsgid];
        let mut gids = gids.iter().chain(&self.groups);
        if let Some(gid) = gids.find(|gid| !owner.has_group(**gid)) {
            return Err(format!("the rights of group {gid}, in which user {} is not", owner.uid));
        }
        if owner.uid == 0 {
            return Ok(());
        }
        let some = |words: &[u32]| words.iter().any(|word| *word != 0);
        let word = |n: usize| u64::from(self.inheritable.get(n).copied().unwrap_or(0));
        let inheritable = word(0) | word(1) << 32;
        if [&self.permitted, &self.effective, &self.ambient].into_iter().any(|set| some(set))
            || !own.inherits(inheritable)
            || self.inheritable.len() > 2
        {
            return Err("capabilities that its user does not have".into());
        }
        if self.securebits & !(own.securebits | KEEP_CAPS) != 0 {
            return Err(format!("securebits that its user can't set ({:#x})", self.securebits));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::path::Path;

    const ANNA: u32 = 1001;

    fn anna() -> Owner {
        Owner { uid: ANNA, gid: 101, groups: vec![101, 27] }
    }

    fn creds() -> Creds {
        Creds {
            uid: ANNA,
            gid: 101,
            euid: ANNA,
            egid: 101,
            suid: ANNA,
            sgid: 101,
            fsuid: ANNA,
            fsgid: 27,
            inheritable: vec![0, 0],
            permitted: vec![0, 0],
            effective: vec![0, 0],
            securebits: KEEP_CAPS,
            groups: vec![27],
            ambient: vec![],
        }
    }

    fn image(kind: u32, entries: &[(Vec<u8>, &[u8])]) -> Vec<u8> {
        let mut bytes = [COMMON.to_le_bytes(), kind.to_le_bytes()].concat();
        for (entry, data) in entries {
            bytes.extend_from_slice(&(entry.len() as u32).to_le_bytes());
            bytes.extend_from_slice(entry);
            bytes.extend_from_slice(data);
        }
        bytes
    }

    fn core(creds: Creds) -> Vec<u8> {
        let task = Some(Task { state: 1 });
        Core { task, thread: Some(Thread { creds: Some(creds) }) }.encode_to_vec()
    }

    /// A folder of images of one process, with these beside it.
    fn folder(creds: Creds, more: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("made");
        let process = Process { pid: 7, threads: vec![7] }.encode_to_vec();
        let put = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).expect("written");
        };
        put("core-7.img", &image(CORE, &[(core(creds), b"")]));
        put("pstree.img", &image(PSTREE, &[(process, b"")]));
        more.iter().for_each(|(name, bytes)| put(name, bytes));
        folder
    }

    fn read(folder: &Path) -> Result<Images, String> {
        let opened = std::fs::File::open(folder).expect("opened");
        Images::read(opened.as_fd())
    }

    fn checked(creds: Creds, more: &[(&str, Vec<u8>)]) -> Result<(), String> {
        read(folder(creds, more).path())?.check(&anna(), &[9])
    }

    #[test]
    fn each_id_is_the_owners() {
        assert_eq!(checked(creds(), &[]), Ok(()));
        let changes: [&dyn Fn(&mut Creds); 14] = [
            &|c| c.uid = 0,
            &|c| c.euid = 0,
            &|c| c.suid = 1002,
            &|c| c.fsuid = 0,
            &|c| c.gid = 0,
            &|c| c.egid = 5,
            &|c| c.sgid = 0,
            &|c| c.fsgid = 0,
            &|c| c.groups.push(0),
            &|c| c.permitted[1] = 1,
            &|c| c.effective[0] = 1,
            &|c| c.ambient = vec![1],
            &|c| c.inheritable = vec![0, 0, 1],
            &|c| c.securebits |= 1 << 10,
        ];
        for (n, change) in changes.iter().enumerate() {
            let mut creds = creds();
            change(&mut creds);
            let why = checked(creds.clone(), &[]).expect_err("not hers");
            assert!(why.starts_with("core-7.img: a process has "), "{n}: {why}");
            // Root's may have nobody else's either.
            let root = Owner { uid: 0, gid: 0, groups: vec![] };
            assert!(read(folder(creds, &[]).path()).expect("read").check(&root, &[]).is_err());
        }
    }

    /// What root runs for itself has all capabilities. Only what has ended has no ids.
    #[test]
    fn ids_are_asked_of_roots_and_of_all_that_run() {
        let root = Owner { uid: 0, gid: 0, groups: vec![] };
        let all = Creds { permitted: vec![u32::MAX, 0x1ff], ..Creds::default() };
        assert_eq!(read(folder(all, &[]).path()).expect("read").check(&root, &[]), Ok(()));
        // As CRIU has written it.
        let ended =
            b"\x08\x01\x1a\x11\x08\x02\x10\x00\x18\x00\x20\x00\x28\x00\x32\x05sleep".to_vec();
        assert_eq!(checked(creds(), &[("core-8.img", image(CORE, &[(ended, b"")]))]), Ok(()));
        for (state, known) in [(1, false), (2, true), (3, false), (6, true)] {
            let core = Core { task: Some(Task { state }), thread: None }.encode_to_vec();
            let done = checked(creds(), &[("core-8.img", image(CORE, &[(core, b"")]))]);
            assert_eq!(done.is_ok(), known, "{state}: {done:?}");
        }
    }

    fn regular(id: u32, name: &str) -> File {
        let regular = Regular { id, name: name.into(), ..Regular::default() };
        File { kind: 1, regular: Some(regular), ..File::default() }
    }

    #[test]
    fn files_that_were_removed_are_told_from_others() {
        let ghost =
            |mode, uid| image(GHOST, &[(GhostFile { uid, gid: 0, mode }.encode_to_vec(), b"data")]);
        let files = [regular(1, "/home/a"), regular(2, "/tmp/gone"), regular(3, "/tmp/linked")];
        let files: Vec<_> = files.iter().map(|file| (file.encode_to_vec(), &b""[..])).collect();
        let remaps = [
            Remap { file: 2, to: 0x1a, kind: 1 }.encode_to_vec(),
            Remap { file: 3, to: 4, kind: 0 }.encode_to_vec(),
        ];
        let remaps: Vec<_> = remaps.into_iter().map(|remap| (remap, &b""[..])).collect();
        let more = |mode, uid| {
            [
                ("files.img", image(FILES, &files)),
                ("remap-fpath.img", image(REMAPS, &remaps)),
                ("ghost-file-1a.img", ghost(mode, uid)),
            ]
        };
        let images = read(folder(creds(), &more(0o100_600, ANNA)).path()).expect("read");
        assert_eq!(images.named, [Named { path: b"/home/a".into(), flags: 0 }]);
        let paths: Vec<&[u8]> = images.removed.iter().map(|removed| &removed.path[..]).collect();
        assert_eq!(paths, [&b"/tmp/gone"[..], b"/tmp/linked"]);
        assert_eq!(images.pids, [7].into());
        // A library of root's that was replaced is nothing to be afraid of, unlike these.
        assert_eq!(checked(creds(), &more(0o100_755, 0)), Ok(()));
        assert_eq!(checked(creds(), &more(0o104_755, ANNA)).map_err(|_| ()), Err(()));
        let why = checked(creds(), &more(0o104_755, 0)).expect_err("set-user-ID");
        assert!(why.contains("/tmp/gone") && why.contains("user 0"), "{why}");
        let why = checked(creds(), &more(0o060_660, ANNA)).expect_err("a disk");
        assert!(why.contains("a device"), "{why}");
        let mut gone = more(0o100_600, ANNA);
        gone[2].0 = "other.img";
        assert!(checked(creds(), &gone).is_err());
    }

    #[test]
    fn what_has_neither_process_nor_path_is_the_owners_too() {
        let queued = |rights| {
            let packet = |rights| Packet { length: 3, descriptors: vec![Descriptors { rights }] };
            let packets = [packet(vec![]), packet(rights)].map(|packet| packet.encode_to_vec());
            let packets = packets.map(|packet| (packet, &b"abc"[..]));
            [("sk-queues.img", image(QUEUES, &packets))]
        };
        assert_eq!(checked(creds(), &queued(vec![])), Ok(()));
        let why = checked(creds(), &queued(vec![4])).expect_err("a descriptor");
        assert!(why.contains("SCM_RIGHTS"), "{why}");
        let ipc = |uid, third, size| {
            let owner = IpcOwner { uid, gid: 101, creator: ANNA, creator_gid: 101 };
            Ipc { owner: Some(owner), size, third }.encode_to_vec()
        };
        let message = QueuedMessage { size: 5 }.encode_to_vec();
        let mut behind = (message.len() as u32).to_le_bytes().to_vec();
        behind.extend_from_slice(&message);
        behind.extend_from_slice(&[0; 8]);
        for uid in [ANNA, 0] {
            for (name, kind, entries) in [
                ("ipcns-shm-9.img", SHM, [(ipc(ANNA, 0, 5), &[0; 8][..]), (ipc(uid, 1, 5), b"")]),
                ("ipcns-sem-9.img", SEM, [(ipc(ANNA, 0, 3), &[0; 8]), (ipc(uid, 0, 4), &[0; 8])]),
                ("ipcns-msg-9.img", MSG, [(ipc(ANNA, 1, 0), &behind), (ipc(uid, 1, 0), &behind)]),
            ] {
                let done = checked(creds(), &[(name, image(kind, &entries))]);
                assert_eq!(done.is_ok(), uid == ANNA, "{name}: {done:?}");
            }
            let memory = Memory { uid, gid: 101 }.encode_to_vec();
            let done = checked(creds(), &[("memfd.img", image(MEMFD, &[(memory, b"")]))]);
            assert_eq!(done.is_ok(), uid == ANNA);
            let signals = Some(Signals { uid: ANNA, euid: uid, pid: 1 });
            let pipe = File { kind: 2, pipe: Some(Pipe { signals }), ..File::default() };
            let files = image(FILES, &[(pipe.encode_to_vec(), b"")]);
            assert_eq!(checked(creds(), &[("files.img", files)]).is_ok(), uid == ANNA);
            for (ino, good) in [(8, uid == ANNA), (9, true)] {
                let permissions = Some(Permissions { mode: 0o666, uid, gid: 101 });
                let unix = Unix { ino, name: b"/tmp/s\0".into(), permissions, ..Unix::default() };
                let socket = File { kind: 5, unix: Some(unix), ..File::default() };
                let files = image(FILES, &[(socket.encode_to_vec(), b"")]);
                assert_eq!(checked(creds(), &[("files.img", files)]).is_ok(), good);
            }
        }
    }

    #[test]
    fn what_is_none_of_an_application_is_refused() {
        for name in ["userns-13.img", "mountpoints-12.img", "netns-10.img", "apparmor.img"] {
            let why = checked(creds(), &[(name, Vec::new())]).expect_err("the host's");
            assert!(why.contains(name), "{why}");
        }
        let tun = File { kind: 15, ..File::default() }.encode_to_vec();
        assert!(checked(creds(), &[("files.img", image(FILES, &[(tun, b"")]))]).is_err());
        // Cut off, or of another kind.
        let whole = image(CORE, &[(core(creds()), b"")]);
        for bytes in [&whole[..whole.len() - 1], &whole[..9], &image(FILES, &[]), b""] {
            assert!(checked(creds(), &[("core-8.img", bytes.to_vec())]).is_err());
        }
        assert!(read(tempfile::tempdir().expect("made").path()).is_err());
    }
}
