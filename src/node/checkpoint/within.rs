//! The first process of a restored application's PID namespace.
//!
//! It is root's, in the shepherd's group, and does one thing after the other: it mounts a /proc
//! that shows this namespace, lays out the files of /dev/shm, looks whether the images have
//! anything that their owner could not have ([`access`]), runs CRIU, which waits before it makes a
//! process until all images are there, and follows no symbolic link meanwhile ([`NoLinks`]); and at
//! the stage at which everybody is there and nobody has run an instruction it puts each process
//! into the group that it was in, and looks at what each really has. From then on it waits for
//! children, as the first process has to, until the shepherd has ended; its end is the end of
//! whoever is left.

use super::access::{self, Given};
use super::criu::{Criu, RestoreRequest};
use super::images::Images;
use super::restore_order::{ARGUMENT, GO, MESSAGE_MAX, Order, Outcome, SURE};
use super::saved::Saved;
use super::{CheckpointError, binding, image_files, memory, tcp};
use crate::node::groups::Eager;
use crate::os::inherit;
use crate::os::mounts::NoLinks;
use nix::mount::{MsFlags, mount};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::fs::{Mode, OFlags};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

/// The stage at which nothing of it is there and no image of pages has been opened: CRIU obeys.
const EMPTY: &str = "pre-restore";
/// The stage at which all sockets are there and none has said a word: CRIU obeys.
const SILENT: &str = "post-restore";
/// The stage at which everybody is there and nobody runs.
const STAGE: &str = "pre-resume";
/// Its status where the shepherd's can't be told.
const UNKNOWN: u8 = 125;

/// The process, whole.
pub fn main(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let fd = arguments.next().and_then(|fd| fd.parse().ok());
    let taken = fd.and_then(|fd| inherit::take(fd).ok()).filter(|_| std::process::id() == 1);
    let Some(talk) = taken else {
        eprintln!("apshepherd {ARGUMENT}: it is started by apinit, which gives it its descriptors");
        return ExitCode::from(2);
    };
    let mut talk = UnixStream::from(talk);
    match restore(&mut talk) {
        Ok(pid) if tell(&mut talk, &Outcome::Restored(pid)) => {
            drop(talk);
            wait_for(pid)
        }
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            tell(&mut talk, &Outcome::Failed(error.to_string()));
            ExitCode::FAILURE
        }
    }
}

/// Whether somebody still listens.
fn tell(talk: &mut UnixStream, outcome: &Outcome) -> bool {
    serde_json::to_vec(outcome).is_ok_and(|text| talk.write_all(&text).is_ok())
}

fn restore(talk: &mut UnixStream) -> Result<i32, CheckpointError> {
    let failed = |what: &str, e: &dyn std::fmt::Display| {
        CheckpointError::new(format!("it can't be restored: {what}: {e}"))
    };
    let heard = talk.try_clone().map_err(|e| failed("its order", &e))?;
    let mut heard = BufReader::new(heard.take(MESSAGE_MAX));
    let mut text = Vec::new();
    heard.read_until(b'\n', &mut text).map_err(|e| failed("its order", &e))?;
    let order: Order = serde_json::from_slice(&text).map_err(|e| failed("its order", &e))?;
    // Each number once, however often it is named.
    let mut taken: BTreeMap<RawFd, OwnedFd> = BTreeMap::new();
    let numbers =
        order.files.iter().map(|(_, fd)| *fd).chain(order.groups.iter().map(|(_, fd)| *fd));
    for number in numbers.chain([order.images, order.own_group]) {
        if let std::collections::btree_map::Entry::Vacant(entry) = taken.entry(number) {
            entry.insert(inherit::take(number).map_err(|e| failed("what it was given", &e))?);
        }
    }
    let file = |number: &RawFd| taken.get(number).map(AsFd::as_fd);
    let images = file(&order.images).ok_or_else(|| failed("its images", &"not given"))?;
    let saved = Saved::read(images)?;

    // What is mounted here is nobody else's, and what is mounted outside later still comes in.
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)
        .map_err(|e| failed("its mounts", &e))?;
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), safe, none).map_err(|e| failed("/proc", &e))?;
    if order.own_memory {
        let image =
            image_files::open(images, memory::FILE).map_err(|e| failed(memory::FILE, &e))?;
        let to = File::open("/dev/shm").map_err(|e| failed("/dev/shm", &e))?;
        memory::unpack(&mut BufReader::new(image), to.as_fd(), &order.owner)?;
    }

    let mut inherit = Vec::new();
    for saved in &saved.files {
        let given = order.files.iter().find(|(role, _)| *role == saved.role);
        let given = given.and_then(|(_, number)| file(number));
        inherit.push((saved.key.clone(), given.ok_or_else(|| failed(&saved.key, &"not given"))?));
    }
    let said = Images::read(images).map_err(CheckpointError::new)?;
    let given = Given {
        numbers: numbers_of(taken.values()).map_err(|e| failed("what it was given", &e))?,
        keys: saved.files.iter().map(|file| file.key.clone()).collect(),
        appmix: appmix_number(),
        pes: saved.groups.iter().flat_map(|(_, pids)| pids).copied().collect(),
    };
    access::before(&order.owner, &said, &given).map_err(CheckpointError::new)?;

    let criu = Criu::find(Some(&order.criu)).map_err(|e| CheckpointError::new(e.to_string()))?;
    let bound = Duration::from_millis(order.bound_ms);
    let own_group = file(&order.own_group).ok_or_else(|| failed("its group", &"not given"))?;
    // Everybody is put into his group at the last stage, and stands until he is.
    let mut eager = Some(Eager::of(own_group));
    let no_links = Cell::new(None);
    let mut ready = || {
        let begun =
            NoLinks::begin().map_err(|e| format!("symbolic links can't be disabled: {e}"))?;
        no_links.set(Some(begun));
        Ok(())
    };
    let mut stage = |name: &str| {
        if name == EMPTY {
            hears(&mut heard, GO)?;
            // (It may have taken long.)
            eager = Some(Eager::of(own_group));
            return Ok(());
        }
        if name == SILENT {
            return tcp::wait_for(&saved.links);
        }
        if name != STAGE {
            return Ok(());
        }
        let pids: Vec<i32> = saved.groups.iter().flat_map(|(_, pids)| pids).copied().collect();
        let group =
            |nid| order.groups.iter().find(|(n, _)| *n == nid).and_then(|(_, number)| file(number));
        let ready = match pids.iter().chain([&saved.shepherd]).find(|pid| !said.pids.contains(pid))
        {
            None => into_groups(&saved, group),
            Some(pid) => Err(format!("process {pid} of the application is not in its images")),
        };
        let ready = ready.and_then(|()| binding::again(&saved.bound, &order.cpus));
        drop(eager.take());
        // (Late: they are compared meanwhile.)
        let ready = ready
            .and_then(|()| hears(&mut heard, SURE))
            .and_then(|()| access::after(&order.owner, &said, &given, saved.shepherd))
            .and_then(|()| {
                let ended = no_links.take().map_or(Ok(()), NoLinks::end);
                ended.map_err(|e| format!("symbolic links can't be enabled again: {e}"))
            });
        if let Err(why) = ready {
            // CRIU would let them run all the same: a no is not heard at this stage. The end of this
            // process is theirs, before they have run anything.
            tell(talk, &Outcome::Failed(why));
            end();
        }
        Ok(())
    };
    criu.restore(&RestoreRequest { images, inherit, bound }, &mut ready, &mut stage)
        .map_err(|e| CheckpointError::new(e.to_string()))
}

/// What this process has been given, and runs itself, by their numbers: root's, and the restored
/// shepherd's.
fn numbers_of<'a>(
    fds: impl Iterator<Item = &'a OwnedFd>,
) -> std::io::Result<BTreeSet<access::Number>> {
    let own = File::open("/proc/self/exe")?;
    let own = [rustix::fs::fstat(&own)];
    let all = fds.map(rustix::fs::fstat).chain(own);
    all.map(|stat| stat.map(|stat| (stat.st_dev, stat.st_ino)).map_err(Into::into)).collect()
}

/// The program beside this one that serves PMIx, if it is there.
fn appmix_number() -> Option<access::Number> {
    let path = std::env::current_exe().ok()?.with_file_name("appmix");
    let stat = rustix::fs::stat(path).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// Waits for this word.
fn hears(talk: &mut impl Read, word: u8) -> Result<(), String> {
    let mut heard = [0];
    match talk.read_exact(&mut heard) {
        Ok(()) if heard == [word] => Ok(()),
        _ => Err("it can't be restored: its images are missing or changed".to_owned()),
    }
}

/// Ends this process, and so everybody in its PID namespace, before one of them runs.
#[expect(
    clippy::disallowed_methods,
    reason = "CRIU must not get its answer, nor go on without one"
)]
fn end() -> ! {
    std::process::exit(1)
}

/// Puts every process that was in a node's group into that of now.
fn into_groups<'a>(
    saved: &Saved,
    group: impl Fn(u32) -> Option<std::os::fd::BorrowedFd<'a>>,
) -> Result<(), String> {
    for (nid, pids) in &saved.groups {
        let directory = group(*nid).ok_or_else(|| format!("NID {nid} has no group"))?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let procs = rustix::fs::openat(directory, "cgroup.procs", flags, Mode::empty())
            .map_err(|e| format!("the group of NID {nid}: {e}"))?;
        let procs = File::from(procs);
        for pid in pids {
            // A pid in this namespace: the kernel takes it as the writer's.
            procs.write_all_at(pid.to_string().as_bytes(), 0).map_err(|e| {
                format!("a restored process can't be put into the group of NID {nid}: {e}")
            })?;
        }
    }
    Ok(())
}

/// Waits for children until this one has ended: its code, or 128 and its signal.
fn wait_for(shepherd: i32) -> ExitCode {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == Pid::from_raw(shepherd) => {
                return ExitCode::from(u8::try_from(code).unwrap_or(UNKNOWN));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == Pid::from_raw(shepherd) => {
                return ExitCode::from(128 + signal as u8);
            }
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            // No child: it ended before it could be waited for.
            Err(_) => return ExitCode::from(UNKNOWN),
        }
    }
}
