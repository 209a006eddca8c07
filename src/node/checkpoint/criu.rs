//! A client of CRIU, as `criu swrk FD` serves it.
//!
//! CRIU has no library that psched would want to be linked with, and its command line can't be given
//! descriptors. But started as `criu swrk FD` it takes one request on a SOCK_SEQPACKET socket, does it and
//! ends ([`proto`] has the messages). It inherits what it is to use: the directory of the images and, for a
//! restore, the files that take the place of those that were open.
//!
//! It is another program, run as root: it gets an environment of two lines, no file but those, a bound on
//! its time, and is killed when that is over. What it has to say is in its log, in the directory of the
//! images; the lines that tell the reason become the error.

use super::errors;
use crate::os::spawn::{Failure, Namespaces, Spawn, Spawned, spawn};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, recv, send, socketpair,
};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use prost::Message;
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Code generated from `proto/criu.proto`, which documents it.
pub mod proto {
    #![allow(missing_docs, clippy::all, clippy::pedantic)]
    include!(concat!(env!("OUT_DIR"), "/psched.criu.rs"));
}

/// The name of CRIU's log in the directory of the images.
pub const DUMP_LOG: &str = "dump.log";
/// The same of a restore.
pub const RESTORE_LOG: &str = "restore.log";
/// The least version: before it CRIU can't be told the directory of the images by a path, and fails on
/// current kernels.
pub const LEAST: (i32, i32) = (4, 0);
/// How long CRIU may take to tell its version, or to check what it needs, if nobody says otherwise.
const QUICK: Duration = Duration::from_secs(30);
/// The largest answer that is taken.
const ANSWER_MAX: usize = 64 * 1024;
/// Stages that it may tell of: there are about ten.
const STAGES_MAX: u32 = 1000;
/// What it did that says nothing and hangs up, whether it has heard what it was asked or not.
const ENDED: &str = "ended without an answer";
/// How long it may take to end once it has answered.
const END: Duration = Duration::from_secs(10);

/// Why CRIU did not do it, in words.
#[derive(Debug, thiserror::Error)]
pub enum CriuError {
    /// There is none.
    #[error(
        "there is no criu {0}: install CRIU {least} or newer (Debian's package criu), or name one in apinit's \
         environment as PSCHED_CRIU",
        least = least()
    )]
    Missing(String),
    /// It is too old.
    #[error("{program} is CRIU {found}: {least} or newer is needed", least = least())]
    Old {
        /// Where it is.
        program: String,
        /// What it says it is.
        found: Version,
    },
    /// It could not be started.
    #[error("{0} can't be started: {1}")]
    Start(String, std::io::Error),
    /// It did not answer in time, and was killed.
    #[error("criu had not {what} within {bound:?} and was killed")]
    Late {
        /// What it was to do, as a participle.
        what: &'static str,
        /// The bound.
        bound: Duration,
    },
    /// It ended, or said what is not understood.
    #[error("criu has not {what}: it {how}{reason}")]
    Broken {
        /// What it was to do.
        what: &'static str,
        /// What it did instead.
        how: String,
        /// Of its log.
        reason: String,
    },
    /// It refused.
    #[error("criu has not {what}{reason}")]
    Refused {
        /// What it was to do.
        what: &'static str,
        /// Its reasons, and the cure.
        reason: String,
    },
    /// Someone said no to a stage.
    #[error("{0}")]
    Stage(String),
}

fn least() -> String {
    format!("{}.{}", LEAST.0, LEAST.1)
}

/// A version of CRIU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 4 of 4.2.1.
    pub major: i32,
    /// 2 of 4.2.1.
    pub minor: i32,
    /// 1 of 4.2.1.
    pub sublevel: i32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.sublevel > 0 { write!(f, ".{}", self.sublevel) } else { Ok(()) }
    }
}

/// What is to be dumped, and how.
#[derive(Debug)]
pub struct DumpRequest<'a> {
    /// Root of the tree of processes, as CRIU sees it where it runs.
    pub pid: i32,
    /// Where the images go.
    pub images: BorrowedFd<'a>,
    /// The namespaces of the tree that CRIU is to see as its own: their mounts and pids are then not
    /// part of the dump.
    pub within: Namespaces<'a>,
    /// They run on; else they are left stopped, as by SIGSTOP. CRIU could kill them, and would be killed
    /// with them where the end of one is the end of the PID namespace that it is in.
    pub leave_running: bool,
    /// The group in which all of them are, as CRIU sees it. It may be frozen already, and is left as it
    /// was; but none below it may be: CRIU has the processes run code of its own.
    pub group: &'a Path,
    /// What a restore will be given.
    pub external: Vec<String>,
    /// Bytes up to which a removed file that is still open is kept.
    pub ghost_limit: u32,
    /// It is killed after that.
    pub bound: Duration,
}

/// What is to be restored, and how. CRIU restores into the namespaces that its caller is in.
#[derive(Debug)]
pub struct RestoreRequest<'a> {
    /// Where the images are.
    pub images: BorrowedFd<'a>,
    /// What is given in the place of what was open, by the names of `InheritFd::key`.
    pub inherit: Vec<(String, BorrowedFd<'a>)>,
    /// It is killed after that.
    pub bound: Duration,
}

/// A CRIU.
#[derive(Clone, Debug)]
pub struct Criu {
    program: PathBuf,
    /// How long it may take to tell its version, or to check what it needs.
    quick: Duration,
    /// The version, if it has told it.
    version: Option<Version>,
}

impl Criu {
    /// The one that is named, else the first `criu` in PATH or where administrators' programs are.
    ///
    /// # Errors
    /// There is none.
    pub fn find(named: Option<&Path>) -> Result<Criu, CriuError> {
        if let Some(named) = named {
            let there = std::path::absolute(named).ok().filter(|p| p.is_file());
            let program =
                there.ok_or_else(|| CriuError::Missing(format!("at {}", named.display())))?;
            return Ok(Criu { program, quick: QUICK, version: None });
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
        let mut all = folders.filter(|f| f.is_absolute()).map(|folder| folder.join("criu"));
        let program = all.find(|p| p.is_file());
        let program = program.ok_or_else(|| CriuError::Missing("in apinit's PATH".into()))?;
        Ok(Criu { program, quick: QUICK, version: None })
    }

    /// The one that the environment names (PSCHED_CRIU), else as [`Criu::find`] without a name.
    ///
    /// # Errors
    /// There is none.
    pub fn here() -> Result<Criu, CriuError> {
        Criu::find(std::env::var_os("PSCHED_CRIU").as_deref().map(Path::new))
    }

    /// The same, which may take so long to tell its version or to check what it needs.
    pub fn patient(self, quick: Duration) -> Criu {
        Criu { quick, ..self }
    }

    /// The same, which is known to be of this version, and is not asked any more.
    pub fn of_version(self, version: Version) -> Criu {
        Criu { version: Some(version), ..self }
    }

    /// Where it is.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// What it says it is.
    ///
    /// # Errors
    /// It can't be started, or says nothing of the kind.
    pub fn version(&self) -> Result<Version, CriuError> {
        if let Some(known) = self.version {
            return Ok(known);
        }
        let what = "told its version";
        let request =
            proto::Request { r#type: proto::RequestType::Version.into(), ..Default::default() };
        let within = Namespaces::default();
        let asking = Asking { what, within, keep: &[], log: None, bound: self.quick };
        let answer = self.start(request, asking)?.answer(&mut |_| Ok(()))?;
        let found = answer.version.ok_or_else(|| broken(what, "has not said it"))?;
        Ok(Version {
            major: found.major_number,
            minor: found.minor_number,
            sublevel: found.sublevel.unwrap_or(0),
        })
    }

    /// Whether it works on this kernel, with what it is.
    ///
    /// # Errors
    /// What is missing, and what would help.
    pub fn check(&self) -> Result<Version, CriuError> {
        let version = self.version()?;
        if (version.major, version.minor) < LEAST {
            let program = self.program.display().to_string();
            return Err(CriuError::Old { program, found: version });
        }
        let what = "found what it needs";
        let folder = nix::unistd::mkdtemp(&std::env::temp_dir().join("criu-check-XXXXXX"))
            .map_err(|e| CriuError::Start("a folder for its log".into(), e.into()))?;
        let checked = File::open(&folder)
            .map_err(|e| CriuError::Start("a folder for its log".into(), e))
            .and_then(|opened| {
                let log = Some((opened.as_fd(), DUMP_LOG));
                let request = proto::Request {
                    r#type: proto::RequestType::Check.into(),
                    opts: Some(options(opened.as_fd(), DUMP_LOG)),
                    ..Default::default()
                };
                let keep = [opened.as_fd()];
                let asking = Asking {
                    what,
                    within: Namespaces::default(),
                    keep: &keep,
                    log,
                    bound: self.quick,
                };
                self.start(request, asking)?.answer(&mut |_| Ok(()))
            });
        // Its own, and not needed whatever has come of it.
        let _ = std::fs::remove_dir_all(&folder);
        checked.map(|_| version)
    }

    /// Starts it to dump a tree of processes. It has looked at the kernel then, and waits before it looks at a
    /// process: the tree may run on until [`Waiting::dump`].
    ///
    /// # Errors
    /// It can't be started.
    pub fn begin_dump(&self, request: &DumpRequest<'_>) -> Result<Waiting, CriuError> {
        let opts = proto::Options {
            pid: Some(request.pid),
            leave_running: Some(request.leave_running),
            leave_stopped: Some(!request.leave_running),
            ghost_limit: Some(request.ghost_limit),
            external: request.external.clone(),
            freeze_cgroup: request.group.to_str().map(str::to_owned),
            // Its first stage is the last thing that it does before it looks at a process.
            notify_scripts: Some(true),
            ..options(request.images, DUMP_LOG)
        };
        let ask = proto::Request {
            r#type: proto::RequestType::Dump.into(),
            opts: Some(opts),
            ..Default::default()
        };
        let asking = Asking {
            what: "dumped it",
            within: request.within,
            keep: &[request.images],
            log: Some((request.images, DUMP_LOG)),
            bound: request.bound,
        };
        let waiting = self.start(ask, asking)?;
        // Whatever it says, it is heard later: that it waits, or what it lacks.
        readable(waiting.socket.as_fd(), Instant::now() + self.quick);
        Ok(waiting)
    }

    /// Restores a tree of processes: the pid of its root, as the caller sees it. It is a descendant
    /// of the first process of the caller's PID namespace, or of its nearest subreaper. `ready` is
    /// called when CRIU has been loaded, with all its libraries, and has looked at nothing else.
    /// `stage` is called at each stage by CRIU's name for it: at `pre-resume` all processes are
    /// there, and none has run an instruction. But CRIU goes on there whatever it is told; at
    /// `post-restore`, before they have their ids, it obeys.
    ///
    /// # Errors
    /// Why not. Nothing of it runs then, unless `stage` has said no too late.
    pub fn restore(
        &self,
        request: &RestoreRequest<'_>,
        ready: &mut dyn FnMut() -> Result<(), String>,
        stage: &mut dyn FnMut(&str) -> Result<(), String>,
    ) -> Result<i32, CriuError> {
        let given = request.inherit.iter();
        let inherit_fd = given
            .map(|(key, fd)| proto::InheritFd { key: key.clone(), fd: fd.as_raw_fd() })
            .collect();
        let opts = proto::Options {
            notify_scripts: Some(true),
            inherit_fd,
            // What is given in the place of a log or a group has permissions of its own.
            skip_file_rwx_check: Some(true),
            ..options(request.images, RESTORE_LOG)
        };
        let ask = proto::Request {
            r#type: proto::RequestType::Restore.into(),
            opts: Some(opts),
            ..Default::default()
        };
        let mut keep = vec![request.images];
        keep.extend(request.inherit.iter().map(|(_, fd)| *fd));
        let what = "restored it";
        let asking = Asking {
            what,
            within: Namespaces::default(),
            keep: &keep,
            log: Some((request.images, RESTORE_LOG)),
            bound: request.bound,
        };
        // It answers this one first, and waits for another.
        let first = proto::Request {
            r#type: proto::RequestType::Version.into(),
            keep_open: Some(true),
            ..Default::default()
        };
        let waiting = self.start(first, asking)?.again(ask, ready)?;
        let answer = waiting.answer(stage)?;
        answer.restore.map(|r| r.pid).ok_or_else(|| broken(what, "names no process"))
    }

    /// Starts it, and asks.
    fn start(&self, request: proto::Request, asking: Asking<'_>) -> Result<Waiting, CriuError> {
        let failed = |e: std::io::Error| CriuError::Start(self.program.display().to_string(), e);
        let flags = SockFlag::SOCK_CLOEXEC;
        let log = asking.log.map(|(folder, name)| Ok((folder.try_clone_to_owned()?, name)));
        let log = log.transpose().map_err(failed)?;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
            .map_err(|e| failed(e.into()))?;
        let text = |t: &str| CString::new(t).unwrap_or_default();
        let mut keep = vec![theirs.as_fd()];
        keep.extend(asking.keep);
        let spawned = spawn(&Spawn {
            program: CString::new(self.program.as_os_str().as_bytes())
                .map_err(|e| failed(e.into()))?,
            arguments: vec![text("criu"), text("swrk"), text(&theirs.as_raw_fd().to_string())],
            environment: vec![text("PATH=/usr/sbin:/usr/bin:/sbin:/bin"), text("LC_ALL=C")],
            keep,
            group: None,
            ids: None,
            space: None,
            soft_files: None,
            within: asking.within,
        })
        .map_err(failed)?;
        drop(theirs);
        let child = Child { spawned, ended: false };
        let Asking { what, bound, .. } = asking;
        let asked = send(ours.as_raw_fd(), &request.encode_to_vec(), MsgFlags::MSG_NOSIGNAL);
        Ok(Waiting {
            program: self.program.clone(),
            what,
            kind: request.r#type,
            bound,
            log,
            child,
            socket: ours,
            asked: asked.map(drop),
        })
    }
}

/// A CRIU that has been asked, and to whom nobody has listened yet. Dropped, it is killed.
#[derive(Debug)]
pub struct Waiting {
    program: PathBuf,
    what: &'static str,
    kind: i32,
    bound: Duration,
    log: Option<(OwnedFd, &'static str)>,
    child: Child,
    socket: OwnedFd,
    /// Whether it could be asked.
    asked: nix::Result<()>,
}

impl Waiting {
    /// Dumps what it was started for. What all processes are told by it, and what they are in, must be as it was
    /// then.
    ///
    /// # Errors
    /// Why not. Where CRIU was killed in the midst of it ([`CriuError::Late`]), the processes may have
    /// been left in any state; otherwise they are as they were.
    pub fn dump(self) -> Result<(), CriuError> {
        self.answer(&mut |_| Ok(())).map(|_| ())
    }

    /// Takes its answer to a request after which it waits for another, does that, and asks the
    /// other.
    fn again(
        mut self,
        request: proto::Request,
        between: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Waiting, CriuError> {
        let answer = self.converse(&mut |_| Ok(())).map(drop);
        let done = answer.and_then(|()| between().map_err(CriuError::Stage));
        if let Err(error) = done {
            self.child.kill();
            self.child.wait(END);
            return Err(match self.child.failure() {
                Some(why) => CriuError::Start(self.program.display().to_string(), why),
                None => error,
            });
        }
        let bytes = request.encode_to_vec();
        self.asked = send(self.socket.as_raw_fd(), &bytes, MsgFlags::MSG_NOSIGNAL).map(drop);
        self.kind = request.r#type;
        Ok(self)
    }

    /// Waits for its answer and its end, and answers what it asks in between.
    fn answer(
        mut self,
        stage: &mut dyn FnMut(&str) -> Result<(), String>,
    ) -> Result<proto::Response, CriuError> {
        let answer = self.converse(stage);
        // It waits for nobody any more.
        let _ = nix::sys::socket::shutdown(self.socket.as_raw_fd(), Shutdown::Both);
        if answer.is_err() {
            self.child.kill();
        }
        self.child.wait(END);
        match (answer, self.child.failure()) {
            (Err(_), Some(why)) => Err(CriuError::Start(self.program.display().to_string(), why)),
            (answer, _) => answer,
        }
    }

    /// Answers what it asks in between, and takes its answer.
    fn converse(
        &self,
        stage: &mut dyn FnMut(&str) -> Result<(), String>,
    ) -> Result<proto::Response, CriuError> {
        let (what, socket, bound) = (self.what, &self.socket, self.bound);
        let until = Instant::now() + bound;
        let reason = || {
            let log = self.log.as_ref();
            log.map(|(folder, name)| errors::reasons(folder.as_fd(), name)).unwrap_or_default()
        };
        let broken = |how: String| CriuError::Broken { what, how, reason: reason() };
        let heard = |said: nix::Result<()>| {
            said.map_err(|e| {
                broken(match e {
                    nix::errno::Errno::EPIPE => ENDED.into(),
                    e => format!("does not listen ({e})"),
                })
            })
        };
        heard(self.asked)?;
        let mut buffer = vec![0; ANSWER_MAX];
        for _ in 0..STAGES_MAX {
            if !readable(socket.as_fd(), until) {
                return Err(CriuError::Late { what, bound });
            }
            let count = match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(0) => return Err(broken(ENDED.into())),
                Ok(count) => count,
                // ECONNRESET: it has ended with something unread; what it said comes after that.
                Err(nix::errno::Errno::EINTR | nix::errno::Errno::ECONNRESET) => continue,
                Err(e) => return Err(broken(format!("can't be heard ({e})"))),
            };
            let answer = proto::Response::decode(&buffer[..count])
                .map_err(|e| broken(format!("sent a message that can't be decoded ({e})")))?;
            if answer.r#type() == proto::RequestType::Notify && answer.success {
                let name = answer.notify.and_then(|n| n.script).unwrap_or_default();
                let outcome = stage(&name);
                let word = proto::Request {
                    r#type: proto::RequestType::Notify.into(),
                    notify_success: Some(outcome.is_ok()),
                    ..Default::default()
                };
                let word = word.encode_to_vec();
                heard(send(socket.as_raw_fd(), &word, MsgFlags::MSG_NOSIGNAL).map(drop))?;
                // It undoes what it has done, and ends.
                if let Err(why) = outcome {
                    while readable(socket.as_fd(), until.min(Instant::now() + END))
                        && recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())
                            .is_ok_and(|n| n > 0)
                    {}
                    return Err(CriuError::Stage(why));
                }
                continue;
            }
            if !answer.success {
                let mut reason = reason();
                if reason.is_empty() {
                    reason = errors::told(answer.cr_errmsg.as_deref(), answer.cr_errno);
                }
                return Err(CriuError::Refused { what, reason });
            }
            if answer.r#type != self.kind {
                return Err(broken("answered something else".into()));
            }
            return Ok(answer);
        }
        Err(broken("went through too many stages".into()))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.child.wait(Duration::ZERO) {
            self.child.kill();
            self.child.wait(END);
        }
    }
}

/// How one request is asked.
#[derive(Clone, Copy)]
struct Asking<'a> {
    /// What it is to do, as a participle.
    what: &'static str,
    within: Namespaces<'a>,
    keep: &'a [BorrowedFd<'a>],
    /// Where its log will be.
    log: Option<(BorrowedFd<'a>, &'static str)>,
    bound: Duration,
}

fn broken(what: &'static str, how: &str) -> CriuError {
    CriuError::Broken { what, how: how.into(), reason: String::new() }
}

/// What all requests with images have in common.
fn options(images: BorrowedFd<'_>, log: &str) -> proto::Options {
    proto::Options {
        images_dir_fd: -1,
        // By the number that it keeps: the caller's own pid may be unknown where CRIU runs.
        images_dir: Some(format!("/proc/self/fd/{}", images.as_raw_fd())),
        log_file: Some(log.into()),
        // Warnings: what is said before an error may be its reason.
        log_level: Some(2),
        // Groups are the caller's business, who has others now.
        manage_cgroups_mode: Some(proto::CgroupMode::Ignore.into()),
        tcp_established: Some(true),
        // (Any user of the host can have one wait at any port. For the application's own see `tcp`.)
        tcp_skip_in_flight: Some(true),
        // Both ends of a connection between PEs are in the dump, frozen; rules of a firewall would be
        // the host's.
        network_lock: Some(proto::NetworkLock::Skip.into()),
        file_locks: Some(true),
        link_remap: Some(true),
        ..Default::default()
    }
}

/// Waits until there is something to read; false: the time is over.
pub(super) fn readable(fd: BorrowedFd<'_>, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left_ms = u16::try_from(left.as_millis().saturating_add(1)).unwrap_or(u16::MAX);
        let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(left_ms)) {
            Ok(0) if Instant::now() >= until => return false,
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            // An Err: reading it tells why.
            _ => return true,
        }
    }
}

/// A started process that is not left behind.
#[derive(Debug)]
pub(super) struct Child {
    pub spawned: Spawned,
    pub ended: bool,
}

impl Child {
    pub fn kill(&self) {
        // An Err: it has ended.
        let _ =
            rustix::process::pidfd_send_signal(&self.spawned.pidfd, rustix::process::Signal::KILL);
    }

    /// Waits for its end; false: it still runs.
    pub fn wait(&mut self, bound: Duration) -> bool {
        if self.ended {
            return true;
        }
        if !readable(self.spawned.pidfd.as_fd(), Instant::now() + bound) {
            return false;
        }
        let pid = Pid::from_raw(self.spawned.pid);
        let waited = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        // An Err: somebody else has waited for it.
        self.ended = !matches!(waited, Ok(WaitStatus::StillAlive));
        self.ended
    }

    /// Why it could not be executed, if so. To be asked when it has ended.
    pub fn failure(&self) -> Option<std::io::Error> {
        let mut bytes = [0; Failure::SIZE];
        let mut pipe = File::from(self.spawned.failure.try_clone().ok()?);
        (self.ended && pipe.read_exact(&mut bytes).is_ok()).then(|| Failure::parse(bytes).error)
    }
}
