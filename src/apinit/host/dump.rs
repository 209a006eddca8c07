//! Writing a checkpoint of a running application into the folder that cpr has passed: what is done beside the one
//! task.
//!
//! # Problem
//! The application stands while its images are written, and every moment of that is felt. The folder is its user's,
//! who may look into it and change it, and is to have it back, empty, whatever goes wrong.
//!
//! # Approach
//! ```text
//!   prepare      the folder is borrowed, CRIU is started, and waits: the application runs
//!   carry out    everything stands; a part waits here until all parts do; CRIU dumps, into a folder of root's
//!   seal         each file is summed up, copied into the folder, and put on disk: the application runs again
//! ```
//!
//! What is summed up is what CRIU has written where nobody else can come to it, and never what the
//! user's folder gives back: its file system may be his (FUSE), or another host's.

use super::image_space::{needed, take_room};
use super::promised_room::{Promise, PromisedRoom};
use super::runtime::fresh_folder;
use crate::apteam::Key;
use crate::checkpoint::{BackEnd, Checksum, Kind, Made, Manifest, Part, SealKey};
use crate::node::checkpoint::dir::{BorrowedDir, Dir, refuse_fuse};
use crate::node::checkpoint::{
    Begun, CheckpointError, DumpOptions, Dumped, Known, Owner, Resume, Running, keep_resume, quiet,
};
use crate::node::groups::AppGroups;
use crate::os::host::{boot_id, hostname, monotonic_ns, wall_ns};
use bytes::Bytes;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

/// CRIU is killed after that, whatever becomes of what it dumps: far longer than any disk takes.
const BOUND: Duration = Duration::from_secs(3600);
/// How long a part that stands waits until all do: each is frozen within seconds, or can't be.
const STAND_WAIT: Duration = Duration::from_secs(60);

/// What is to be dumped.
#[derive(Debug)]
pub(super) struct Target {
    pub shepherd: i32,
    pub socket: PathBuf,
    pub lifeline: Option<Arc<OwnedFd>>,
    pub groups: AppGroups,
    /// Whose it is.
    pub owner: Owner,
    /// Bytes of removed files that are still open.
    pub ghost_limit: u64,
}

impl Target {
    fn running(&self) -> Running<'_> {
        Running {
            shepherd: self.shepherd,
            socket: &self.socket,
            lifeline: self.lifeline.as_deref().map(AsFd::as_fd),
            groups: &self.groups,
            owner: &self.owner,
        }
    }

    /// It stays frozen by its nodes' groups, and is ended by the agent if it is to end.
    fn options(&self) -> DumpOptions {
        DumpOptions { go_on: true, bound: BOUND, ghost_limit: self.ghost_limit }
    }
}

/// A folder that is borrowed, and a dump that is begun. Dropped, the folder is its user's again, and nothing has
/// been.
#[derive(Debug)]
pub(super) struct Prepared {
    /// (It ends before the folder is given back.)
    begun: Option<Begun>,
    /// Of one that is no part: the folder of its images in the one in which they are made.
    below: Option<OwnedFd>,
    stage: Stage,
    lent: BorrowedDir,
    user: (u32, u32),
}

impl Prepared {
    /// Borrows the folder from this user, for a `part` or a whole, of which the images are made at `stage`.
    /// Without a target, which is not there just now, nothing is begun.
    ///
    /// # Errors
    /// What stood in the way, in words.
    pub fn new(
        criu: &Known,
        folder: OwnedFd,
        user: (u32, u32),
        part: bool,
        stage: StageRoom,
        target: Option<&Target>,
    ) -> Result<Prepared, String> {
        refuse_fuse(folder.as_fd()).map_err(|e| e.to_string())?;
        let room = target.map(|target| stage.take(&target.groups)).transpose()?;
        let lent = BorrowedDir::new(folder, user).map_err(|e| e.to_string())?;
        let stage = Stage::new(stage, room)?;
        // A part has the whole folder that is lent, which is one in another.
        let below = match part {
            false => Some(stage.dir.folder(&Kind::folder(0)).map_err(|e| e.to_string())?),
            true => None,
        };
        let mut prepared = Prepared { begun: None, below, stage, lent, user };
        if let Some(target) = target {
            prepared.begun = Some(prepared.begin(criu, target)?);
        }
        Ok(prepared)
    }

    fn begin(&self, criu: &Known, target: &Target) -> Result<Begun, String> {
        let criu = criu.good().map_err(|e| e.to_string())?;
        let begun = Begun::new(&criu, &target.running(), self.images(), target.options());
        begun.map_err(|e| e.to_string())
    }

    fn images(&self) -> BorrowedFd<'_> {
        self.below.as_ref().map_or(self.stage.dir.as_fd(), AsFd::as_fd)
    }
}

/// Where images are made, and room for them.
#[derive(Debug)]
pub(super) struct StageRoom {
    /// Their folder.
    pub path: PathBuf,
    /// Its file system needs room for so many times their size: the folder that is lent may be there, too.
    pub times: u64,
    /// What is promised of it.
    pub promised: PromisedRoom,
}

impl StageRoom {
    /// Room for images of what is in these groups.
    fn take(&self, groups: &AppGroups) -> Result<Promise, String> {
        let bytes = needed(groups).saturating_mul(self.times);
        take_room(&self.promised, self.path.parent().unwrap_or(&self.path), bytes)
    }
}

/// A folder of root's in which images are made. Dropped, it is removed.
struct Stage {
    at: StageRoom,
    dir: Dir,
    /// For what is still to be written. (It goes after the folder.)
    room: Option<Promise>,
}

impl Stage {
    fn new(at: StageRoom, room: Option<Promise>) -> Result<Stage, String> {
        let made = fresh_folder(&at.path);
        let made = made.map_err(|e| format!("can't make the folder {}: {e}", at.path.display()))?;
        let dir = Dir::new(made).map_err(|e| e.to_string())?;
        Ok(Stage { at, dir, room })
    }

    /// CRIU writes the images from now on: what is there of them is not promised any more. (Another
    /// dump may ask meanwhile.)
    fn is_being_written(&mut self) {
        if let Some(room) = &mut self.room {
            let once = room.bytes() / self.at.times.max(1);
            room.writes(&self.at.path, once);
        }
    }

    /// Images of so many bytes are written: what is left to be is a copy of them, if that is there, too.
    fn is_written(&mut self, bytes: u64) {
        let copies = bytes.saturating_mul(self.at.times.saturating_sub(1));
        self.room.as_mut().into_iter().for_each(|room| room.keep(copies));
    }
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stage").field(&self.at).finish()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.at.path);
    }
}

/// All that a dump needs, on a thread of its own.
pub(super) struct Dump {
    pub criu: Arc<Known>,
    pub prepared: Prepared,
    /// Of a part: to stand until all do.
    pub standing: Option<Standing>,
    pub target: Target,
    pub resume: Resume,
}

impl Dump {
    /// Does it. Nobody may be connected to its shepherd.
    ///
    /// # Errors
    /// What stood in the way, in words. It is there as before, and the folder is its user's.
    pub fn carry_out(self) -> Result<Images, String> {
        let Dump { criu, mut prepared, standing, target, resume } = self;
        let begun = match prepared.begun.take() {
            Some(begun) => begun,
            None => {
                prepared.stage.room = Some(prepared.stage.at.take(&target.groups)?);
                prepared.begin(&criu, &target)?
            }
        };
        prepared.stage.is_being_written();
        let mut stood_ns = None;
        let mut stands = || {
            let Some(standing) = &standing else { return Ok(Vec::new()) };
            stood_ns = Some(standing.wait()?);
            quiet(&target.groups)
        };
        let dumped = begun.carry_on(&target.running(), &mut stands);
        let dumped = dumped.map_err(|e| e.to_string())?;
        keep_resume(prepared.images(), resume).map_err(|e| e.to_string())?;
        let Prepared { lent, mut stage, user, .. } = prepared;
        stage.is_written(dumped.bytes);
        Ok(Images { lent, stage, user, dumped, stood_ns })
    }
}

/// What a part needs to wait for the others.
pub(super) struct Standing {
    pub key: Key,
    /// Reports that the part stands still; false if apinit is ending.
    pub stands: Box<dyn Fn() -> bool + Send>,
    pub all_stand: mpsc::Receiver<()>,
}

impl Standing {
    /// Everything of it stands still. Says so, waits until all parts do, and gives from when to when this one
    /// has stood for certain.
    fn wait(&self) -> Result<(u64, u64), CheckpointError> {
        let from = monotonic_ns();
        let failed = |why: &str| Err(CheckpointError::new(why.to_owned()));
        if !(self.stands)() {
            return failed("apinit ends");
        }
        match self.all_stand.recv_timeout(STAND_WAIT) {
            Ok(()) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return failed("the cpr that requested the checkpoint has ended");
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let bound = STAND_WAIT.as_secs();
                return Err(CheckpointError::new(format!(
                    "another part of application {} was not frozen within {bound} s",
                    self.key.apid
                )));
            }
        }
        Ok((from, monotonic_ns()))
    }
}

/// Images, which are to be copied into the folder and sealed.
pub(super) struct Images {
    lent: BorrowedDir,
    stage: Stage,
    user: (u32, u32),
    dumped: Dumped,
    /// Of a part: from when to when it stood.
    stood_ns: Option<(u64, u64)>,
}

impl std::fmt::Debug for Images {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Images").field(&self.dumped).finish()
    }
}

impl Images {
    /// What has been written of a part, in this folder of the checkpoint: bytes of its files, and its text.
    pub fn seal_part(
        self,
        folder: &str,
        said: &[u8],
        key: &SealKey,
    ) -> Result<(u64, Bytes), String> {
        let own = nix::unistd::geteuid().as_raw();
        let user = (self.user.0 != own).then_some(self.user);
        let stood_ns =
            self.stood_ns.ok_or("this part did not wait until the other parts were frozen")?;
        let files =
            self.lent.dir().seal_part(&self.stage.dir, folder, user).map_err(|e| e.to_string())?;
        let part = Part {
            draft: Checksum::of(said),
            folder: folder.to_owned(),
            version: self.dumped.version.to_string(),
            boot: boot_id(),
            stood_ns,
            files,
        };
        let bytes = part.files.iter().map(|file| file.size).sum();
        self.lent.keep();
        Ok((bytes, part.seal(key).into()))
    }

    /// Makes a checkpoint of them: bytes of its files.
    pub fn seal(self, draft: Manifest, key: &SealKey) -> Result<u64, String> {
        let Kind::Running { places, hosts, .. } = draft.kind else {
            return Err("psched's draft is not of a running application".into());
        };
        let back_end = BackEnd::Criu { version: self.dumped.version.to_string() };
        let made = Made { at_ns: wall_ns(), host: hostname(), boot: boot_id(), ..draft.made };
        let kind = Kind::Running { back_end, places, hosts };
        let manifest = Manifest { made, kind, ..draft };
        let own = nix::unistd::geteuid().as_raw();
        let user = (self.user.0 != own).then_some(self.user);
        let sealed = self.lent.dir().seal_copies(&self.stage.dir, manifest, key, user);
        let sealed = sealed.map_err(|e| e.to_string())?;
        self.lent.keep();
        Ok(sealed.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dumps that begin at once have room beside each other, and keep it until their images are written.
    #[test]
    fn a_stage_has_its_room_until_it_is_written() {
        let folder = tempfile::tempdir().expect("made");
        let promised = PromisedRoom::with(1_000);
        let stage = |name: &str, times| {
            let at =
                StageRoom { path: folder.path().join(name), times, promised: promised.clone() };
            let room = promised.take(folder.path(), 300 * times, |_| 0).expect("mounted");
            Stage::new(at, Some(room.map_err(|room| format!("room for {room}"))?))
        };
        let mut first = stage("1", 2).expect("there is room");
        let second = stage("2", 1).expect("there is room");
        assert_eq!(stage("3", 1).expect_err("there is none"), "room for 100");
        // (What is written statvfs would count.)
        first.is_being_written();
        first.is_written(250);
        let left = || promised.take(folder.path(), 1_000, |_| 0).expect("mounted");
        assert_eq!(left().expect_err("promised"), 1_000 - 250 - 300);
        let path = second.at.path.clone();
        drop((first, second));
        assert!(!path.exists());
        assert!(left().is_ok());
    }
}
