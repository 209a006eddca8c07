//! Taking an application out of memory by a checkpoint of apinit's own, and bringing it back: what is done beside
//! the one task.
//!
//! # Problem
//! A gang whose next turn is far is to leave its memory to others, on a host without swap. What takes its place is
//! no checkpoint of the user's: nobody copies it or starts it elsewhere, and it must never be that both the images
//! and the processes count, or neither.
//!
//! # Approach
//! ```text
//!   take out     room and connections are looked at
//!                CRIU dumps; everything stands
//!                mark           from now on the images are the application
//!                each process is killed by its pid: its groups are used again
//!   bring back   what is there of it is killed
//!                CRIU restores, into the frozen groups
//!                no mark        from now on the processes are
//!                the images are removed
//! ```
//!
//! The groups stay, with their limits, freezers and counts. (They are not killed as groups: the kernel kills what
//! is born into one that ever was.)
//!
//! The images are in a folder below the one that `--roll-out` names, which is root's: `apinit-NID/APID.INCARNATION`.
//! What a killed apinit leaves there of an application that has no mark is removed by its next life. Images that cpr
//! has passed for a restart are copied there too.

use super::image_space::{self, BESIDE};
use super::promised_room::{Promise, PromisedRoom};
use super::runtime::{AppDirectory, Process, fresh_folder};
use super::shepherd_sockets::{self, Connection};
use crate::apinit::decide::CameBack;
use crate::apteam::Key;
use crate::apteam::protocol::node::{PlaceCommand, Restoring, RollOut, Shift};
use crate::machine::Nid;
use crate::node::checkpoint::{
    DumpOptions, Given, Known, Owner, Restored, Running, break_off, clock_ahead_ns,
    dump_application, leads_out, restore_application,
};
use crate::node::groups::AppGroups;
use crate::os::space::Space;
use crate::os::trust;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// CRIU is killed after that, whatever becomes of what it works at: far longer than any disk takes.
const BOUND: Duration = Duration::from_secs(3600);
/// How long what is killed is waited for.
const END: Duration = Duration::from_secs(5);
/// How often it is tried to bring one back, and the pause before it is tried again: a port that it had may be
/// somebody's just now.
const TRIES: u32 = 3;
const AGAIN: Duration = Duration::from_secs(1);

/// Where images are that this apinit makes for itself.
#[derive(Clone, Debug)]
pub(super) struct Shelf {
    path: PathBuf,
}

impl Shelf {
    /// Opens it below the folder that was named, or makes it.
    ///
    /// # Errors
    /// It can't be made, or others than root could change what is in there.
    pub fn open(below: &Path, lowest: Nid) -> anyhow::Result<Shelf> {
        use anyhow::Context;
        anyhow::ensure!(
            nix::unistd::geteuid().is_root(),
            "--roll-out: only root can dump and restore with CRIU: start apinit as root, or leave \
             --roll-out out"
        );
        let below = std::path::absolute(below)?;
        // What is in there runs with the rights that it says.
        trust::check_directory(&below).map_err(|why| anyhow::anyhow!("--roll-out: {why}"))?;
        let path = below.join(format!("apinit-{lowest}"));
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                trust::check_directory(&path)
                    .map_err(|why| anyhow::anyhow!("--roll-out: {why}"))?;
            }
            made => made
                .with_context(|| format!("--roll-out: can't make the folder {}", path.display()))?,
        }
        Ok(Shelf { path })
    }

    /// The folder of one application.
    pub fn folder(&self, key: Key) -> PathBuf {
        self.path.join(key.to_string())
    }

    /// The folder in which the images of a restart are copied. (What a killed apinit leaves there is no key, and
    /// goes: whoever it was to be is ended then.)
    pub fn copy(&self, key: Key) -> PathBuf {
        self.path.join(format!("{key}.copy"))
    }

    /// The folder in which images are made, before they are their user's.
    pub fn stage(&self, key: Key, number: u64) -> PathBuf {
        self.path.join(format!("{key}.dump-{number}"))
    }

    /// Where all of it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what is of none of these.
    pub fn keep_only(&self, keys: &BTreeSet<Key>) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let key = entry.file_name().to_str().and_then(Key::parse);
            if key.is_none_or(|key| !keys.contains(&key)) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Bytes that may be written there, and how many there are.
    fn room(&self) -> io::Result<(u64, u64)> {
        image_space::room(&self.path)
    }

    /// Whether memory can go there: what stands in the way, as what follows "NID 0 has".
    pub fn roll_out(&self, criu: &Known) -> RollOut {
        if let Err(why) = criu.good() {
            return RollOut::Cant(format!("no swap, and no checkpoints: {why}"));
        }
        match self.room() {
            Ok((0, _)) => RollOut::Cant(format!("no swap, and no room in {}", self.path.display())),
            Ok(_) => RollOut::ByCheckpoint,
            Err(error) => RollOut::Cant(format!("no swap, and {}: {error}", self.path.display())),
        }
    }
}

/// All that is needed to take one out.
#[derive(Debug)]
pub(super) struct TakeOut {
    pub criu: Arc<Known>,
    pub shelf: Shelf,
    pub promised: PromisedRoom,
    pub key: Key,
    pub shepherd: Process,
    pub directory: AppDirectory,
    pub lifeline: Option<Arc<OwnedFd>>,
    pub groups: AppGroups,
    pub owner: Owner,
    /// Bytes of removed files that are still open.
    pub ghost_limit: u64,
}

/// What stood in the way, in words.
type Why = String;

impl TakeOut {
    /// Does it: bytes of the images. Nobody may be connected to its shepherd.
    ///
    /// # Errors
    /// What stood in the way. It is there as before.
    pub fn carry_out(self) -> Result<u64, Why> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let criu = self.criu.good().map_err(|e| words(&e))?;
        // (While it is written. What is there statvfs counts.)
        let mut room = self.take_room()?;
        if let Some(there) = leads_out(&self.groups).map_err(|e| words(&e))? {
            return Err(format!(
                "it is connected to {there}, and a checkpoint would break that \
                                connection"
            ));
        }
        let path = self.shelf.folder(self.key);
        let images = fresh_folder(&path);
        let images = images.map_err(|e| format!("{}: {e}", path.display()))?;
        let running = Running {
            shepherd: self.shepherd.pid,
            socket: &self.directory.socket(),
            lifeline: self.lifeline.as_deref().map(AsFd::as_fd),
            groups: &self.groups,
            owner: &self.owner,
        };
        let options = DumpOptions { go_on: true, bound: BOUND, ghost_limit: self.ghost_limit };
        room.writes(&path, room.bytes());
        let dumped = dump_application(&criu, &running, images.as_fd(), options);
        drop(room);
        let marked = dumped.map_err(|e| words(&e)).and_then(|dumped| {
            self.directory.keep_away(&path).map_err(|e| format!("{e:#}"))?;
            Ok(dumped)
        });
        let dumped = marked.inspect_err(|_| drop(fs::remove_dir_all(&path)))?;
        break_off(&self.groups);
        end(&self.groups);
        tracing::info!(bytes = dumped.bytes, total = ?dumped.total, "memory rolled out to a \
                                                                     checkpoint");
        Ok(dumped.bytes)
    }

    fn take_room(&self) -> Result<Promise, Why> {
        let path = &self.shelf.path;
        let memory: u64 = self.groups.memory_had().map(|(_, bytes)| bytes).sum();
        let beside = u64::from(self.groups.processes()) * BESIDE;
        let taken = self.promised.take(path, memory.saturating_add(beside), image_space::kept);
        let taken = taken.map_err(|e: io::Error| format!("{}: {e}", path.display()))?;
        taken.map_err(|_| format!("there is no room for it in {}", path.display()))
    }
}

/// Kills all of it, by pid, and waits until it has gone. (None of it can make another: it stands, but for the
/// shepherd, which makes none.)
fn end(groups: &AppGroups) {
    if !groups.kill_each(END) {
        tracing::warn!(group = %groups.path().display(), "some processes of the application do \
                                                          not die");
    }
}

/// All that is needed to bring one back.
#[derive(Debug)]
pub(super) struct BringBack {
    /// False: it is killed meanwhile. Its groups kill what is born in them then, and it need not be tried again.
    pub wanted: Arc<AtomicBool>,
    pub criu: Arc<Known>,
    pub place: PlaceCommand,
    /// Its real processors on each of its nodes.
    pub cpus: Vec<Vec<u32>>,
    pub directory: AppDirectory,
    /// Which are frozen.
    pub groups: AppGroups,
    pub apshepherd: PathBuf,
    pub lifeline: Option<Arc<OwnedFd>>,
    pub space: Option<Space>,
}

/// One that is there again. All of it is frozen, but for its shepherd.
#[derive(Debug)]
pub(super) struct Returned {
    pub back: CameBack,
    pub shepherd: Process,
    /// The first process of its PID namespace.
    pub first: i32,
    /// To its shepherd, which has said hello.
    pub connection: Connection,
}

impl BringBack {
    /// Does it.
    ///
    /// # Errors
    /// What stood in the way. Nothing of it is left then, nor of its images.
    pub fn carry_out(self) -> Result<Returned, Why> {
        let path = self.directory.away().ok_or("its images are missing")?;
        let mut tries = TRIES;
        loop {
            // What another life of this apinit had begun to bring back has run nothing.
            end(&self.groups);
            let result = self.restore(&path);
            tries -= 1;
            match result {
                Ok(returned) => {
                    let _ = fs::remove_dir_all(&path);
                    return Ok(returned);
                }
                Err(why) if tries > 0 && self.wanted.load(Ordering::Relaxed) => {
                    tracing::warn!(
                        "the application was not rolled in, and apinit tries again: {why}"
                    );
                    std::thread::sleep(AGAIN);
                }
                Err(why) => {
                    end(&self.groups);
                    let _ = fs::remove_dir_all(&path);
                    self.directory.drop_away();
                    return Err(why);
                }
            }
        }
    }

    fn restore(&self, path: &Path) -> Result<Returned, Why> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let images = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let frozen =
            self.groups.freezers().and_then(|all| all.iter().try_for_each(|f| f.freeze(true)));
        frozen.map_err(|e| format!("its control groups can't be frozen: {e}"))?;
        let (listener, log) = shepherd_sockets::given_anew(&self.directory)?;
        let criu = self.criu.good().map_err(|e| words(&e))?;
        let given = Given {
            apshepherd: &self.apshepherd,
            listener: listener.as_fd(),
            lifeline: self.lifeline.as_deref().map(AsFd::as_fd),
            log: log.as_fd(),
            groups: &self.groups,
            space: self.space.as_ref(),
            cpus: &self.cpus,
            owner: &(&self.place.owner).into(),
        };
        let held = HeldSocket::new(&self.directory)?;
        let restored = restore_application(&criu, images.as_fd(), &given, BOUND, &mut |_| Ok(()));
        held.give_back();
        let Restored { first, shepherd, total } = restored.map_err(|e| words(&e))?;
        let shepherd = Process::now(shepherd);
        self.directory.keep_shepherd(shepherd).map_err(|e| format!("{e:#}"))?;
        let (connection, hello) = shepherd_sockets::meet(&self.directory.socket(), self.place.key)?;
        let clock_ns = clock_ahead_ns(shepherd.pid).map_err(|e| words(&e))?;
        // Its time is told by that clock from now on, in another life of this apinit too.
        let mut place = self.place.clone();
        let shift = match place.moved.restoring {
            Restoring::Done(shift) => shift,
            Restoring::No | Restoring::Begun => Shift::default(),
        };
        place.moved.restoring = Restoring::Done(Shift { clock_ns, ..shift });
        self.directory.keep_place(place).map_err(|e| format!("{e:#}"))?;
        let bytes = bytes_in(path);
        tracing::info!(bytes, ?total, "brought back");
        self.directory.drop_away();
        let back = CameBack { hello, bytes, clock_ns };
        Ok(Returned { back, shepherd, first: first.pid, connection })
    }
}

/// Another name of the socket that is given to a shepherd. CRIU removes the name that its own had, whatever has it
/// now: it would bind a new one there.
struct HeldSocket {
    socket: PathBuf,
    held: PathBuf,
}

impl HeldSocket {
    fn new(directory: &AppDirectory) -> Result<HeldSocket, Why> {
        let socket = directory.socket();
        let held = socket.with_extension("held");
        let _ = fs::remove_file(&held);
        fs::hard_link(&socket, &held).map_err(|e| format!("{}: {e}", held.display()))?;
        Ok(HeldSocket { socket, held })
    }

    fn give_back(self) {
        // (Where both are names of one file nothing is done.)
        let _ = fs::rename(&self.held, &self.socket);
        let _ = fs::remove_file(&self.held);
    }
}

/// What the files of a folder take.
pub(super) fn bytes_in(path: &Path) -> u64 {
    let files = fs::read_dir(path).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.blocks() * 512)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shelf_is_roots_alone_and_forgets_strangers() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = Shelf::open(folder.path(), Nid(3));
        if !nix::unistd::geteuid().is_root() {
            assert!(made.expect_err("not for all").to_string().contains("only root"));
            return;
        }
        let shelf = made.expect("it is made");
        let key = |text: &str| Key::parse(text).expect("a key");
        for name in ["7.1", "8.1", "7.1.copy"] {
            fs::create_dir(shelf.path.join(name)).expect("made");
        }
        shelf.keep_only(&[key("7.1")].into());
        assert!(shelf.folder(key("7.1")).is_dir());
        assert_eq!(fs::read_dir(&shelf.path).expect("readable").count(), 1);
        let (room, all) = shelf.room().expect("a file system");
        assert!(room < all);
        // Whoever can write there could have anything run as anybody.
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        let error = Shelf::open(folder.path(), Nid(3)).expect_err("it is everybody's");
        assert!(error.to_string().starts_with("--roll-out: "), "{error}");
    }
}
