//! Restoring an application of this host, in a PID namespace of its own.
//!
//! The pids that its processes had may be anybody's now, so they come back in a PID namespace of their own,
//! whose first process is an apshepherd with another task ([`super::within`]): it mounts /proc, lays out
//! /dev/shm, runs CRIU, puts everybody into his group, and waits until the restored shepherd has ended.
//! This room starts it, tells it what to do in one line, and then two words: when all images are there ([`GO`]),
//! without which CRIU makes no process, and when they are known to be what they were ([`SURE`]), without which nothing
//! runs. It hears in one message what has come of it.

use super::criu::{Child, Criu, readable};
use super::images::Owner;
use super::restore_order::{ARGUMENT, GO, MESSAGE_MAX, Order, Outcome, SURE};
use super::saved::{Role, Saved};
use super::{CheckpointError, proc, root_alone};
use crate::machine::Nid;
use crate::node::groups::AppGroups;
use crate::os::space::Space;
use crate::os::spawn::{Namespaces, Spawn, Spawned, spawn};
use rustix::fs::{Mode, OFlags};
use std::ffi::CString;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// What the first process of the namespace may take beyond CRIU's own bound.
const BEYOND: Duration = Duration::from_secs(20);

/// What a restored application is given in the place of what it had.
#[derive(Debug)]
pub struct Given<'a> {
    /// apshepherd, which is the first process of the PID namespace too.
    pub apshepherd: &'a Path,
    /// A socket of type SEQPACKET that listens, for its shepherd.
    pub listener: BorrowedFd<'a>,
    /// The pipe at whose end it ends; `None`: it ends without.
    pub lifeline: Option<BorrowedFd<'a>>,
    /// Where its shepherd's diagnostics go.
    pub log: BorrowedFd<'a>,
    /// Its groups, which have been made for the same nodes. Where one is frozen, the processes stand
    /// still in it until it is thawed.
    pub groups: &'a AppGroups,
    /// A /dev/shm of its own, if it had one.
    pub space: Option<&'a Space>,
    /// The real processors of each node's part, in the order of the groups: threads that were bound are
    /// bound to these. Without, and where there are none, they are not bound any more.
    pub cpus: &'a [Vec<u32>],
    /// Whose it is, as psched's record says: it is given nothing that he could not have.
    pub owner: &'a Owner,
}

/// A restored application.
#[derive(Debug)]
pub struct Restored {
    /// The first process of its PID namespace: it ends when the shepherd has, with its status, and all
    /// others end with it. It is to be waited for.
    pub first: Spawned,
    /// Its shepherd.
    pub shepherd: i32,
    /// How long it took.
    pub total: Duration,
}

/// The nodes of an application by the names that its shepherd and its groups have for them, in the order of
/// its places: those on which it was launched.
///
/// # Errors
/// The images are of no application.
pub fn born_of(images: BorrowedFd<'_>) -> Result<Vec<Nid>, CheckpointError> {
    Ok(Saved::read(images)?.groups.iter().map(|(nid, _)| Nid(*nid)).collect())
}

/// What CLOCK_MONOTONIC of a process is ahead of ours, in nanoseconds: one that was restored has a clock of
/// its own, which has gone on from where it was.
///
/// # Errors
/// It can't be read.
pub fn clock_ahead_ns(pid: i32) -> Result<i64, CheckpointError> {
    let text = match std::fs::read_to_string(format!("/proc/{pid}/timens_offsets")) {
        // A kernel without such clocks. (Or it has ended, as is found out soon.)
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        text => text.map_err(|e| CheckpointError::new(format!("its clock can't be read: {e}")))?,
    };
    let line = text.lines().find_map(|line| line.strip_prefix("monotonic"));
    let mut numbers = line.into_iter().flat_map(str::split_ascii_whitespace).map(str::parse::<i64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(seconds)), Some(Ok(ns))) => {
            Ok(seconds.saturating_mul(1_000_000_000).saturating_add(ns))
        }
        _ => Err(CheckpointError::new("its clock can't be read: its offsets can't be parsed")),
    }
}

/// What is to become of the files that CRIU reads late ([`read_late`]), while it does something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// They are to be there. CRIU starts meanwhile.
    Bring,
    /// They are to be known for what they were. CRIU makes processes of them meanwhile, none of which has run an
    /// instruction before this has been done.
    Compare,
}

/// Whether this file of a folder of images is opened by CRIU only beyond its start: those with pages of memory.
/// (Its processes open them.)
pub fn read_late(name: &str) -> bool {
    let name = name.rsplit_once('/').map_or(name, |(_, name)| name);
    name.starts_with("pages-") && name.ends_with(".img")
}

/// Restores it from the images that [`super::dump_application`] has made. Those that CRIU needs at its start are
/// there; `late` is called for each that there is to be done with the others, in order.
///
/// # Errors
/// What stood in the way, or what `late` has said. Nothing of it runs then.
pub fn restore_application(
    criu: &Criu,
    images: BorrowedFd<'_>,
    given: &Given<'_>,
    bound: Duration,
    late: &mut dyn FnMut(Late) -> Result<(), CheckpointError>,
) -> Result<Restored, CheckpointError> {
    let began = Instant::now();
    root_alone(images, false)?;
    let saved = Saved::read(images)?;
    let failed = |e: std::io::Error| CheckpointError::new(format!("it can't be restored: {e}"));
    let (group, groups) = given.groups.open().map_err(failed)?;
    let space = given.space.filter(|_| saved.own_memory);
    if saved.own_memory && space.is_none() {
        let text = "it had a /dev/shm of its own, and this host can't give it one (isolation)";
        return Err(CheckpointError::new(text));
    }
    let null: OwnedFd =
        std::fs::File::options().read(true).write(true).open("/dev/null").map_err(failed)?.into();
    // A writing end that only the first process holds: then it is that which keeps it alive.
    let (own_lifeline, _end) =
        nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|e| failed(e.into()))?;
    let mut files = vec![
        (Role::Null, null.as_fd()),
        (Role::Log, given.log),
        (Role::Listener, given.listener),
        (Role::Lifeline, given.lifeline.unwrap_or(own_lifeline.as_fd())),
    ];
    files.extend(groups.iter().map(|(nid, fd)| (Role::Group(nid.0), fd.as_fd())));
    let events: Vec<(Role, OwnedFd)> =
        groups.iter().flat_map(|(nid, fd)| events(nid.0, fd)).collect();
    files.extend(events.iter().map(|(role, fd)| (*role, fd.as_fd())));
    for file in &saved.files {
        if !files.iter().any(|(role, _)| *role == file.role) {
            let text = format!("its {:?} is needed to restore it, and was not passed", file.role);
            return Err(CheckpointError::new(text));
        }
    }
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let order = Order {
        criu: criu.program().to_owned(),
        images: images.as_raw_fd(),
        files: files.iter().map(|(role, fd)| (*role, fd.as_raw_fd())).collect(),
        groups: groups.iter().map(|(nid, fd)| (nid.0, fd.as_raw_fd())).collect(),
        own_group: group.as_raw_fd(),
        own_memory: space.is_some(),
        cpus: groups.iter().zip(given.cpus).map(|((nid, _), cpus)| (nid.0, cpus.clone())).collect(),
        owner: given.owner.clone(),
        bound_ms: u64::try_from(bound.as_millis()).unwrap_or(u64::MAX),
    };
    let mut keep = vec![theirs.as_fd(), images, group.as_fd()];
    keep.extend(files.iter().map(|(_, fd)| *fd));
    if given.lifeline.is_none() {
        keep.push(_end.as_fd());
    }
    let text = |t: &str| CString::new(t).unwrap_or_default();
    let number = theirs.as_raw_fd().to_string();
    let spawned = spawn(&Spawn {
        program: CString::new(given.apshepherd.as_os_str().as_bytes())
            .map_err(|e| failed(e.into()))?,
        arguments: vec![text("apshepherd"), text(ARGUMENT), text(&number)],
        environment: vec![text("PATH=/usr/sbin:/usr/bin:/sbin:/bin")],
        keep,
        group: Some(group.as_fd()),
        ids: None,
        space,
        soft_files: None,
        within: Namespaces { first: true, ..Namespaces::default() },
    })
    .map_err(failed)?;
    drop(theirs);
    let mut first = Child { spawned, ended: false };
    let outcome = told(ours, &order, late, Instant::now() + bound + BEYOND);
    let shepherd = match outcome {
        Ok(Outcome::Restored(pid)) => outer_pid(first.spawned.pid, pid),
        Ok(Outcome::Failed(why)) => Err(CheckpointError::new(why)),
        Err(error) => Err(error),
    };
    match shepherd {
        Ok(shepherd) => Ok(Restored { first: first.spawned, shepherd, total: began.elapsed() }),
        Err(error) => {
            // With it everything in the namespace ends.
            first.kill();
            first.wait(BEYOND);
            match first.failure() {
                Some(why) => Err(CheckpointError::new(format!(
                    "{} can't be started: {why}",
                    given.apshepherd.display()
                ))),
                None => Err(error),
            }
        }
    }
}

/// What tells of the limits of a node's group, where there are some.
fn events(nid: u32, group: &OwnedFd) -> Vec<(Role, OwnedFd)> {
    let open = |(role, name)| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Some((role, rustix::fs::openat(group, name, flags, Mode::empty()).ok()?))
    };
    Role::of_group(nid).into_iter().filter_map(open).collect()
}

/// Tells the first process what to do, and hears what has come of it.
fn told(
    mut ours: UnixStream,
    order: &Order,
    late: &mut dyn FnMut(Late) -> Result<(), CheckpointError>,
    until: Instant,
) -> Result<Outcome, CheckpointError> {
    let lost = || {
        CheckpointError::new(
            "it can't be restored: the restoring process has ended, see its \
                                 log",
        )
    };
    let mut text = serde_json::to_vec(order).map_err(|_| lost())?;
    text.push(b'\n');
    ours.write_all(&text).map_err(|_| lost())?;
    // An Err of a word: it has ended by now, and may have said why.
    late(Late::Bring)?;
    let _ = ours.write_all(&[GO]);
    late(Late::Compare)?;
    let _ = ours.write_all(&[SURE]).and_then(|()| ours.shutdown(std::net::Shutdown::Write));
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        if !readable(ours.as_fd(), until) {
            return Err(CheckpointError::new("it can't be restored: it takes too long"));
        }
        match ours.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            // It has ended without hearing a word of ours, which is told once; what it said comes after that.
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(_) => return Err(lost()),
        }
        if answer.len() as u64 > MESSAGE_MAX {
            return Err(lost());
        }
    }
    serde_json::from_slice(&answer).map_err(|_| lost())
}

/// The pid, here, of the child of the first process that has this one there.
fn outer_pid(first: i32, inner: i32) -> Result<i32, CheckpointError> {
    let children = proc::children(first)?;
    let found = children.into_iter().find(|child| proc::inner_pid(*child).ok() == Some(inner));
    found.ok_or_else(|| CheckpointError::new("it ended right after it was restored"))
}
