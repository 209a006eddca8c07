//! Dumping an application of this host: its shepherd, its PEs and all that they have made.
//!
//! An application stands while it is dumped, and what can be done before that is: CRIU is started and looks at the
//! kernel while everything runs, and waits then ([`Begun`]).
//!
//! ```text
//!   begun      CRIU is there, and has been told whom to dump, by what we know of its shepherd
//!   frozen     all stands; what we keep ourselves is written
//!   dumped     CRIU goes on, if what it was told is so still; else another is started
//!   thawed
//! ```

use super::access::{self, Given};
use super::criu::{Criu, CriuError, DumpRequest, Version, Waiting};
use super::images::{Images, Owner};
use super::proc::{self, State};
use super::saved::{self, Role, Saved, SavedFile};
use super::tcp::Link;
use super::{CheckpointError, binding, image_files, memory, root_alone, tcp};
use crate::machine::Nid;
use crate::node::groups::{AppGroups, Freezer};
use crate::node::stuck;
use crate::os::spawn::Namespaces;
use crate::variables::units::about;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the shepherd may take to close what apinit has hung up.
const HANG_UP: Duration = Duration::from_secs(5);
/// How often CRIU is asked, where what hinders it may pass.
const DUMP_TRIES: u32 = 3;
/// How long all of it is let run, so that one that can't be stopped where it waits comes on.
const MOMENT_MAX: Duration = Duration::from_millis(20);
/// How long it may take until everything stands still.
const FREEZE: Duration = Duration::from_secs(5);

/// A running application of this host.
#[derive(Debug)]
pub struct Running<'a> {
    /// Its shepherd.
    pub shepherd: i32,
    /// The path of the socket on which that listens. Nobody may be connected.
    pub socket: &'a Path,
    /// The pipe that it was given.
    pub lifeline: Option<BorrowedFd<'a>>,
    /// Its groups.
    pub groups: &'a AppGroups,
    /// Whose it is, as psched's record says.
    pub owner: &'a Owner,
}

/// How it is dumped.
#[derive(Clone, Copy, Debug)]
pub struct DumpOptions {
    /// It goes on as if nothing had been; else it is ended.
    pub go_on: bool,
    /// CRIU is killed after that. It should be far more than it takes to write all memory: what CRIU has
    /// not let go of then is lost.
    pub bound: Duration,
    /// Bytes that it may have in removed files which are still open: these become images.
    pub ghost_limit: u64,
}

/// What a dump has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dumped {
    /// How long no process of it ran; of one that is ended: until its images were written.
    pub frozen: Duration,
    /// How long all took.
    pub total: Duration,
    /// Bytes of the images.
    pub bytes: u64,
    /// Of the CRIU that has written the images.
    pub version: Version,
}

/// Dumps it into an empty directory that is root's alone.
///
/// # Errors
/// What stood in the way. The application runs on then (but see [`DumpOptions::bound`]); what was written
/// is of no use.
pub fn dump_application(
    criu: &Criu,
    running: &Running<'_>,
    images: BorrowedFd<'_>,
    options: DumpOptions,
) -> Result<Dumped, CheckpointError> {
    Begun::new(criu, running, images, options)?.carry_on(running, &mut || Ok(Vec::new()))
}

/// A dump that has been begun: CRIU is there, and waits before it looks at a process. The application runs, and
/// may be talked with.
#[derive(Debug)]
pub struct Begun {
    criu: Criu,
    images: OwnedFd,
    options: DumpOptions,
    /// What CRIU was told of it.
    asked: Asked,
    waiting: Waiting,
    began: Instant,
}

impl Begun {
    /// Begins one, into an empty directory that is root's alone.
    ///
    /// # Errors
    /// What stood in the way.
    pub fn new(
        criu: &Criu,
        running: &Running<'_>,
        images: BorrowedFd<'_>,
        options: DumpOptions,
    ) -> Result<Begun, CheckpointError> {
        let began = Instant::now();
        root_alone(images, true)?;
        let images = images.try_clone_to_owned().map_err(|e| failed("the images", e))?;
        let tree = Tree::of(running)?;
        let waiting = criu.begin_dump(&tree.request(running, images.as_fd(), options))?;
        Ok(Begun { criu: criu.clone(), images, options, asked: tree.asked, waiting, began })
    }

    /// Dumps it, or a part of one. Nobody may be connected to its shepherd. `stands` is called when all of it stands
    /// still, and before anything of it is written; it gives the connections to other parts of the application, if
    /// it is one.
    ///
    /// # Errors
    /// As of [`dump_application`]; or what `stands` has said.
    pub fn carry_on(
        self,
        running: &Running<'_>,
        stands: &mut dyn FnMut() -> Result<Vec<Link>, CheckpointError>,
    ) -> Result<Dumped, CheckpointError> {
        let Begun { criu, images, options, asked, waiting, began } = self;
        let images = images.as_fd();
        let version = criu.version()?;
        wait_until_alone(running.socket)?;

        let frozen_at = Instant::now();
        let frozen = Frozen::all_of(running)?;
        has_its_owners(running, options.ghost_limit)?;
        let links = stands()?;
        tcp::all_accepted(running.groups)?;
        let tree = Tree::of(running)?;
        tree.save(running, version, links, images)?;
        // (It is another one where its shepherd has opened something since.)
        let mut begun = Some(waiting).filter(|_| tree.asked == asked);
        let mut tries = DUMP_TRIES;
        loop {
            let waiting = match begun.take() {
                Some(waiting) => waiting,
                None => {
                    clear(images)?;
                    criu.begin_dump(&tree.request(running, images, options))?
                }
            };
            let Err(error) = waiting.dump() else { break };
            tries -= 1;
            if tries == 0 || !may_pass(&error) {
                return Err(error.into());
            }
            tracing::info!(%error, "dumped once more");
        }
        // What only root could read of it is not given to anybody.
        let said = Images::read(images).and_then(|said| {
            let listener = listener(running).map_err(|e| e.to_string())?;
            said.check(
                running.owner,
                &Given { keys: [listener.key].into(), ..Given::default() }.sockets(),
            )
        });
        if let Err(why) = said {
            if !options.go_on {
                go_on(running);
            }
            return Err(CheckpointError::new(why));
        }
        if !options.go_on {
            // Frozen and stopped: it has run no instruction since.
            running.groups.kill(true);
        }
        drop(frozen);
        let frozen = frozen_at.elapsed();
        let bytes = bytes_in(images)?;
        Ok(Dumped { frozen, total: began.elapsed(), bytes, version })
    }
}

/// What CRIU is told of an application at once, and of which: one whose memory was out meanwhile has another shepherd,
/// with the same number in another PID namespace.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    /// Its shepherd as this host sees it, and the number of its PID namespace, if it has one of its own.
    shepherd: (i32, Option<u64>),
    /// Its shepherd as CRIU sees it.
    root: i32,
    /// What a restore will be given.
    external: Vec<String>,
}

/// What there is to be known of an application before it is dumped.
struct Tree {
    asked: Asked,
    /// Its shepherd, as that sees itself.
    pid: i32,
    mounts: Option<OwnedFd>,
    pids: Option<OwnedFd>,
    groups: Vec<(Nid, OwnedFd)>,
    files: Vec<SavedFile>,
}

impl Tree {
    fn of(running: &Running<'_>) -> Result<Tree, CheckpointError> {
        let (_, groups) = running.groups.open().map_err(|e| failed("its groups", e))?;
        let mounts = proc::other_namespace(running.shepherd, "mnt")?;
        let pids = proc::other_namespace(running.shepherd, "pid")?;
        let pid = proc::inner_pid(running.shepherd)?;
        let root = if pids.is_some() { pid } else { running.shepherd };
        let files = files(running, &groups)?;
        let number = pids.as_ref().map(rustix::fs::fstat).transpose();
        let number = number.map_err(|e| failed("its PID namespace", e.into()))?;
        let shepherd = (running.shepherd, number.map(|stat| stat.st_ino));
        let keys = files.iter().map(|file| &file.key);
        let external = keys.filter(|key| key.starts_with("file[")).cloned().collect();
        let asked = Asked { shepherd, root, external };
        Ok(Tree { asked, pid, mounts, pids, groups, files })
    }

    fn request<'a>(
        &'a self,
        running: &Running<'a>,
        images: BorrowedFd<'a>,
        options: DumpOptions,
    ) -> DumpRequest<'a> {
        DumpRequest {
            pid: self.asked.root,
            images,
            within: Namespaces {
                mounts: self.mounts.as_ref().map(AsFd::as_fd),
                pids: self.pids.as_ref().map(AsFd::as_fd),
                first: false,
            },
            leave_running: options.go_on,
            group: running.groups.path(),
            external: self.asked.external.clone(),
            ghost_limit: u32::try_from(options.ghost_limit).unwrap_or(u32::MAX),
            bound: options.bound,
        }
    }

    /// Writes what a restore needs beside the images. It stands still.
    fn save(
        &self,
        running: &Running<'_>,
        version: Version,
        links: Vec<Link>,
        images: BorrowedFd<'_>,
    ) -> Result<(), CheckpointError> {
        let mut saved = Saved::new(version.to_string(), self.pid);
        saved.links = links;
        saved.own_memory = self.mounts.is_some();
        saved.files = self.files.clone();
        saved.files.push(listener(running)?);
        let left = running.groups.left_by_birth();
        for (nid, _) in &self.groups {
            let there = left.iter().filter(|(of, _)| of == nid).map(|(_, pid)| *pid);
            let pids: Result<Vec<i32>, _> = there.clone().map(proc::inner_pid).collect();
            saved.groups.push((nid.0, pids?));
            saved.bound.push((nid.0, binding::of(there)?));
        }
        if self.mounts.is_some() {
            let memory = File::open(format!("/proc/{}/root/dev/shm", running.shepherd))
                .map_err(|e| failed("its /dev/shm", e))?;
            let image =
                image_files::create(images, memory::FILE).map_err(|e| failed("the images", e))?;
            let mut image = BufWriter::new(image);
            memory::pack(memory.as_fd(), &mut image, running.owner)?;
            image.flush().map_err(|e| failed("the images", e))?;
        }
        saved.write(images)
    }
}

/// Whether an application has a /dev/shm and IPC of its own, by its shepherd.
///
/// # Errors
/// It can't be found out.
pub fn has_own_space(shepherd: i32) -> Result<bool, CheckpointError> {
    proc::other_namespace(shepherd, "mnt").map(|space| space.is_some())
}

fn failed(what: &str, error: std::io::Error) -> CheckpointError {
    CheckpointError::new(format!("{what} can't be opened: {error}"))
}

/// Lets go of what CRIU has left stopped.
fn go_on(running: &Running<'_>) {
    let all = running.groups.left().into_iter().map(|(_, pid)| pid).chain([running.shepherd]);
    for pid in all {
        let pid = nix::unistd::Pid::from_raw(pid);
        // An Err: it has ended.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT);
    }
}

/// Whether all that its processes have could be given back to its owner, who is to have the images
/// too; and whether what it has open of removed files is no more than that.
fn has_its_owners(running: &Running<'_>, ghost_limit: u64) -> Result<(), CheckpointError> {
    let pids: Vec<i32> = running.groups.left().into_iter().map(|(_, pid)| pid).collect();
    let removed = access::standing(running.owner, &pids).map_err(CheckpointError::new)?;
    if removed > ghost_limit {
        return Err(CheckpointError::new(format!(
            "the application has {} of removed files open, and at most {} are saved (apinit \
             --ghost-limit): it must close them, or not remove them",
            about(removed),
            about(ghost_limit)
        )));
    }
    Ok(())
}

/// An application that stands still, until this is dropped.
///
/// It is frozen by the group of all of it, and by none below: CRIU has each process run a piece of code
/// of its own, for which it thaws the group that it is told, and it alone. Those of nodes that were frozen,
/// because others have their turn, are so again before the whole is thawed.
struct Frozen {
    whole: Freezer,
    below: Vec<Freezer>,
}

impl Frozen {
    fn all_of(running: &Running<'_>) -> Result<Frozen, CheckpointError> {
        let cannot = |e: std::io::Error| {
            CheckpointError::new(format!("the application can't be frozen: {e}"))
        };
        let freezer = running.groups.freezer().map_err(cannot)?;
        freezer.freeze(true).map_err(cannot)?;
        let mut frozen = Frozen { whole: freezer, below: Vec::new() };
        frozen.wait(running)?;
        for below in running.groups.freezers().map_err(cannot)? {
            if below.set() {
                below.freeze(false).map_err(cannot)?;
                frozen.below.push(below);
            }
        }
        // One that has vforked waits for its child where no CRIU can stop it, and the child stands: so all of it
        // runs for a moment, until none is found in that.
        let until = Instant::now() + FREEZE;
        let mut moment = Duration::from_micros(500);
        let any = |state| {
            running.groups.left().iter().any(|(_, pid)| proc::has_thread(*pid, state))
                || proc::has_thread(running.shepherd, state)
        };
        while Instant::now() < until {
            // (On its way to wait for its child one counts as frozen, and does not wait yet.)
            if any(State::Runs) {
                std::thread::sleep(Duration::from_micros(100));
                continue;
            }
            if !any(State::Waits) {
                break;
            }
            frozen.whole.freeze(false).map_err(cannot)?;
            std::thread::sleep(moment);
            // On a busy host nobody of it may have had a processor meanwhile.
            moment = (moment * 2).min(MOMENT_MAX);
            frozen.whole.freeze(true).map_err(cannot)?;
            frozen.wait(running)?;
        }
        Ok(frozen)
    }

    /// Until it is frozen.
    fn wait(&self, running: &Running<'_>) -> Result<(), CheckpointError> {
        let until = Instant::now() + FREEZE;
        while !self.whole.frozen() {
            if Instant::now() > until {
                let stuck = running.groups.left().into_iter();
                let stuck: Vec<String> =
                    stuck.filter_map(|(nid, pid)| stuck::unfrozen(pid, nid)).take(3).collect();
                let set = match self.whole.set() {
                    true => "",
                    false => "; cgroup.freeze of its group has been set back to 0",
                };
                let stuck = stuck.join("; ");
                let text =
                    format!("the application was not frozen within {FREEZE:?}: {stuck}{set}");
                return Err(CheckpointError::new(text));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let again = self.below.iter().try_for_each(|below| below.freeze(true));
        if let Err(error) = again.and_then(|()| self.whole.freeze(false)) {
            tracing::warn!(%error, "an application stays frozen after its dump");
        }
    }
}

/// Whether a second attempt may do: on a busy host a process may not have stopped within CRIU's own time.
fn may_pass(error: &CriuError) -> bool {
    matches!(error, CriuError::Refused { reason, .. } if reason.contains("Unseizable"))
}

/// Removes what CRIU has written of a dump that has come to nothing.
fn clear(images: BorrowedFd<'_>) -> Result<(), CheckpointError> {
    let gone = |e: rustix::io::Errno| failed("the images", e.into());
    for entry in rustix::fs::Dir::read_from(images).map_err(gone)? {
        let entry = entry.map_err(gone)?;
        let name = entry.file_name();
        let ours = [saved::FILE, memory::FILE].iter().any(|own| own.as_bytes() == name.to_bytes());
        if !ours && name != c"." && name != c".." {
            rustix::fs::unlinkat(images, name, rustix::fs::AtFlags::empty()).map_err(gone)?;
        }
    }
    Ok(())
}

/// Waits until the shepherd has closed the connection that apinit has hung up.
fn wait_until_alone(socket: &Path) -> Result<(), CheckpointError> {
    let until = Instant::now() + HANG_UP;
    while proc::sockets_at(socket)?.iter().any(|s| !s.listens) {
        if Instant::now() > until {
            let text = "a process is connected to its apshepherd: apinit must close that \
                        connection first";
            return Err(CheckpointError::new(text));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The socket on which its shepherd listens. (Where that was made again somebody else may listen by the same
/// path.)
fn listener(running: &Running<'_>) -> Result<SavedFile, CheckpointError> {
    let Running { shepherd, socket, .. } = running;
    let open = proc::open_files(*shepherd)?;
    let is_its = |inode| open.iter().any(|file| file.path == format!("socket:[{inode}]"));
    let all = proc::sockets_at(socket)?;
    let found = all.iter().find(|s| s.listens && is_its(s.inode));
    let found = found.ok_or_else(|| {
        CheckpointError::new(format!("no process listens at {}", socket.display()))
    })?;
    Ok(SavedFile { key: format!("socket:[{}]", found.inode), role: Role::Listener })
}

/// The files of the shepherd's that came from outside.
fn files(
    running: &Running<'_>,
    groups: &[(Nid, OwnedFd)],
) -> Result<Vec<SavedFile>, CheckpointError> {
    let lifeline = running.lifeline.map(rustix::fs::fstat).transpose();
    let lifeline = lifeline.map_err(|e| failed("its lifeline", e.into()))?;
    let mut of_groups = Vec::new();
    for (nid, fd) in groups {
        let stat = rustix::fs::fstat(fd).map_err(|e| failed("its groups", e.into()))?;
        of_groups.push((Role::Group(nid.0), stat.st_dev, stat.st_ino));
        for (role, name) in Role::of_group(nid.0) {
            // An Err: there is no such controller.
            if let Ok(stat) = rustix::fs::statat(fd, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
                of_groups.push((role, stat.st_dev, stat.st_ino));
            }
        }
    }
    let mounts = proc::mounts(running.shepherd)?;
    let mut found: Vec<SavedFile> = Vec::new();
    for open in proc::open_files(running.shepherd)? {
        let of_group = of_groups.iter().find(|(_, dev, ino)| (open.dev, open.ino) == (*dev, *ino));
        let is_lifeline =
            lifeline.as_ref().is_some_and(|l| (l.st_dev, l.st_ino) == (open.dev, open.ino));
        let outside = !mounts.contains(&open.mount) && open.path.starts_with('/');
        let role = match of_group {
            Some((role, ..)) => *role,
            None if is_lifeline => Role::Lifeline,
            None if open.null && outside => Role::Null,
            None if open.number == 2 && !open.null => Role::Log,
            None if outside => {
                let text = format!(
                    "its apshepherd has {} open, which does not belong to the application",
                    open.path
                );
                return Err(CheckpointError::new(text));
            }
            None => continue,
        };
        let key = match open.path.starts_with('/') {
            // CRIU's own name of a file that it finds on no mount that it knows; or that is another one
            // later, which a log that has grown is to it.
            true if outside || role == Role::Log => {
                format!("file[{:x}:{:x}]", open.mount, open.ino)
            }
            true => open.path[1..].to_owned(),
            false => open.path,
        };
        if key.starts_with("socket:") {
            let text = "its apshepherd's diagnostics go to a socket, which can't be dumped";
            return Err(CheckpointError::new(text));
        }
        if !found.iter().any(|f| f.key == key) {
            found.push(SavedFile { key, role });
        }
    }
    Ok(found)
}

/// Bytes of all files in the directory of the images and in the one below it.
fn bytes_in(images: BorrowedFd<'_>) -> Result<u64, CheckpointError> {
    fn count(at: BorrowedFd<'_>, depth: u32) -> rustix::io::Result<u64> {
        let mut sum = 0;
        for entry in rustix::fs::Dir::read_from(at)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let stat = rustix::fs::statat(at, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
            if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let below = rustix::fs::openat(at, name, flags, Mode::empty())?;
                if depth > 0 {
                    sum += count(below.as_fd(), depth - 1)?;
                }
            } else {
                // What it takes on the disk: ghost files have holes.
                sum += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
            }
        }
        Ok(sum)
    }
    count(images, 16).map_err(|e| failed("the images", e.into()))
}
