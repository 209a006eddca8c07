//! Bringing an application back from the folder that cpr has passed, on a thread of its own.
//!
//! # Problem
//! What is restored runs with the rights that its images say, and the images are in a folder of a user's, who
//! may change it at any moment. The processes come back with the nodes, the processors and the number that
//! they had; here they have others.
//!
//! # Approach
//! ```text
//!   manifest     sealed by psched's key, its owner's, of the application that was posted, of this shape
//!   fetch        every file is copied into a folder of root's, and compared on the way; pages of memory, the most
//!                of it, while CRIU is started, which waits for them, and compared while it makes processes of them,
//!                none of which runs before that
//!   groups       are made anew by the names of the nodes that its shepherd knows, and frozen
//!   restore      CRIU; each thread is bound to its processors of now
//!   rekey        the shepherd is told as which application it goes on
//! ```
//!
//! Whatever goes wrong, nothing of it runs, and the folder is as it was. The copy goes when it is over: once
//! psched has been told, for that may take as long as the copy has taken.

use super::coming::RestoreFrom;
use super::image_space::take_room;
use super::promised_room::{Promise, PromisedRoom};
use super::runtime::{AppDirectory, Process, fresh_folder};
use super::shepherd_handle::room_of_shepherd;
use super::shepherd_sockets::{self, Connection};
use crate::apinit::decide::Back;
use crate::apteam::SealKey;
use crate::apteam::part::RankMap;
use crate::apteam::protocol::node::{PlaceCommand, Restart};
use crate::checkpoint::{BackEnd, Flaw, HostImages, Image, Kind, Manifest, manifest_of};
use crate::machine::Nid;
use crate::node::checkpoint::dir::{Dir, compare_copies, refuse_fuse};
use crate::node::checkpoint::{
    CheckpointError, Given, Known, Late, Restored, all_is_sent, born_of, clock_ahead_ns, read_late,
    read_resume, restore_application,
};
use crate::node::groups::{AppGroups, Groups, Limits, processes_in};
use crate::os::space::Space;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// CRIU is killed after that: far longer than any disk takes.
const RESTORE_BOUND: Duration = Duration::from_secs(3600);

/// How long what is killed is waited for, and how often it is looked at.
const END: Duration = Duration::from_secs(5);
const END_LOOK: Duration = Duration::from_millis(2);

/// All that a restore needs.
#[derive(Debug)]
pub(super) struct Restoring {
    pub criu: Arc<Known>,
    /// What cpr has passed.
    pub from: RestoreFrom,
    /// Where that is copied to: nothing else is there.
    pub copy: PathBuf,
    pub promised: PromisedRoom,
    /// What its manifest is to be sealed by.
    pub sealing: SealKey,
    pub place: PlaceCommand,
    pub restart: Restart,
    /// What it may have on each of its nodes here, in the order of its places.
    pub limits: Vec<(Nid, Limits)>,
    /// Its real processors, likewise.
    pub cpus: Vec<Vec<u32>>,
    pub directory: AppDirectory,
    pub groups: Groups,
    pub made: AppGroups,
    pub apshepherd: PathBuf,
    pub lifeline: Option<Arc<OwnedFd>>,
    pub space: Option<Space>,
}

/// An application that is back. All of it is frozen, but for its shepherd.
#[derive(Debug)]
pub(super) struct Returned {
    pub back: Back,
    pub shepherd: Process,
    /// The first process of its PID namespace.
    pub first: i32,
    pub groups: AppGroups,
    /// To its shepherd, which has said hello by its new key.
    pub connection: Connection,
    /// How long CRIU took, and what is around it.
    pub total: Duration,
}

/// A copy that is being made.
struct Fetched {
    /// Where from, and where to.
    dir: Dir,
    to: OwnedFd,
    /// Its folder of images.
    images: OwnedFd,
    /// What is still to be copied, and the room for it.
    rest: Vec<Image>,
    room: Promise,
}

fn flawed(flaw: Flaw) -> Why {
    format!("its checkpoint can't be used: {flaw}")
}

/// What stood in the way, in words.
type Why = String;

impl Restoring {
    /// Does it. The copy of the images stays, and is to be removed: whoever waits for the application need not wait
    /// for the disk once more.
    ///
    /// # Errors
    /// What stood in the way. Nothing of it is left then but its groups.
    pub fn carry_out(self) -> Result<Returned, Why> {
        let result = self.restore();
        if result.is_err() {
            let _ = fs::remove_dir_all(&self.copy);
            // Whatever is there of it has run nothing, and is not to.
            self.made.kill(true);
            // (Its groups have names of which nobody else knows.)
            let until = Instant::now() + END;
            while !processes_in(self.made.path()).is_empty() && Instant::now() < until {
                std::thread::sleep(END_LOOK);
            }
        }
        result
    }

    fn restore(&self) -> Result<Returned, Why> {
        let Fetched { dir, to, images, rest, room: _room } = self.fetch()?;
        all_is_sent(images.as_fd()).map_err(|e| e.to_string())?;
        let born = born_of(images.as_fd()).map_err(|e| e.to_string())?;
        let groups = self.groups_of(&born)?;
        let frozen = groups.freezers().and_then(|all| all.iter().try_for_each(|f| f.freeze(true)));
        frozen.map_err(|e| format!("its control groups can't be frozen: {e}"))?;
        let (listener, log) = shepherd_sockets::given_anew(&self.directory)?;
        let criu = self.criu.good().map_err(|e| e.to_string())?;
        let given = Given {
            apshepherd: &self.apshepherd,
            listener: listener.as_fd(),
            lifeline: self.lifeline.as_deref().map(AsFd::as_fd),
            log: log.as_fd(),
            groups: &groups,
            space: self.space.as_ref(),
            cpus: &self.cpus,
            owner: &(&self.place.owner).into(),
        };
        let mut late = |what| {
            let done = match what {
                Late::Bring => dir.fetch_unseen(&rest, to.as_fd()),
                Late::Compare => compare_copies(&rest, to.as_fd()),
            };
            done.map_err(|flaw| CheckpointError::new(flawed(flaw)))
        };
        let restored = restore_application(&criu, images.as_fd(), &given, RESTORE_BOUND, &mut late);
        let Restored { first, shepherd, total } = restored.map_err(|e| e.to_string())?;
        // An apinit that is started again kills it by this.
        let shepherd = Process::now(shepherd);
        self.directory.keep_shepherd(shepherd).map_err(|e| format!("{e:#}"))?;
        let (connection, hello) =
            shepherd_sockets::rekey(&self.directory.socket(), self.restart.from, self.place.key)?;
        let clock_ns = clock_ahead_ns(shepherd.pid).map_err(|e| e.to_string())?;
        let resume = read_resume(images.as_fd());
        let output = resume.map_or(hello.output_taken, |resume| resume.output_received);
        let back = Back { born, hello, output, clock_ns };
        Ok(Returned { back, shepherd, first: first.pid, groups, connection, total })
    }

    /// A copy of its images, which nobody else can change, but for what CRIU needs later.
    fn fetch(&self) -> Result<Fetched, Why> {
        self.from.wait()?;
        let folder = self
            .from
            .folder
            .try_clone()
            .map_err(|e| format!("the folder of the checkpoint can't be used: {e}"))?;
        refuse_fuse(folder.as_fd()).map_err(flawed)?;
        let dir = Dir::new(folder).map_err(flawed)?;
        let manifest = manifest_of(&dir, Some(&self.sealing)).map_err(flawed)?;
        manifest.may_be_restarted_by(&self.place.owner).map_err(flawed)?;
        let nids: Vec<Nid> = self.limits.iter().map(|(nid, _)| *nid).collect();
        let name = fits(&manifest, &self.restart, &self.place.part.map, &nids)?.to_owned();
        let only = manifest.only(&name);
        let above = self.copy.parent().unwrap_or(&self.copy);
        let mut room = match self.from.promised() {
            // (It lies beside, and has as many files or more.)
            Some(room) => room,
            None => take_room(&self.promised, above, only.bytes())?,
        };
        room.keep(only.bytes());
        let to = fresh_folder(&self.copy);
        let to = to.map_err(|e| format!("can't make the folder {}: {e}", self.copy.display()))?;
        let all = only.files.into_iter();
        let (rest, first): (Vec<Image>, Vec<Image>) = all.partition(|file| read_late(&file.name));
        room.writes(&self.copy, room.bytes());
        dir.fetch(&first, to.as_fd()).map_err(flawed)?;
        room.keep(rest.iter().map(|file| file.size).sum());
        room.writes(&self.copy, room.bytes());
        let images = open_folder(to.as_fd(), &name);
        let images = images.map_err(|e| format!("its images can't be opened: {e}"))?;
        Ok(Fetched { dir, to, images, rest, room })
    }

    /// Its groups by the names that its shepherd has of its nodes.
    fn groups_of(&self, born: &[Nid]) -> Result<AppGroups, Why> {
        let now: Vec<Nid> = self.limits.iter().map(|(nid, _)| *nid).collect();
        if born.len() != now.len() {
            let (had, has) = (born.len(), now.len());
            return Err(format!("its images are of {had} nodes, and its placement has {has}"));
        }
        let failed = |e: std::io::Error| format!("can't make its control groups: {e}");
        let limits =
            born.iter().zip(&self.limits).map(|(born, (_, limits))| (*born, limits.clone()));
        let limits: BTreeMap<Nid, Limits> = limits.collect();
        let room = room_of_shepherd(&self.place);
        // What there is was made by its nodes of now, and has never been used.
        let made =
            self.groups.make_at(self.made.path().to_owned(), &limits, room).map_err(failed)?;
        let mut groups = AppGroups::found(made.path().to_owned(), born.to_vec())
            .ok_or_else(|| "its control groups are missing".to_owned())?;
        groups.moved(now);
        Ok(groups)
    }
}

/// Whether the checkpoint is of what was posted, and fits where that was placed: the folder of the images of
/// what is on these nodes, in the order of the places.
fn fits<'m>(
    manifest: &'m Manifest,
    restart: &Restart,
    map: &RankMap,
    nids: &[Nid],
) -> Result<&'m str, Why> {
    let recovery = &manifest.recovery;
    let Restart { from, .. } = restart;
    if (recovery.apid, recovery.incarnation) != (from.apid, from.incarnation) {
        return Err(format!(
            "the checkpoint is of application {}, and the posting names application {}",
            recovery.apid, from.apid
        ));
    }
    let Kind::Running { back_end: BackEnd::Criu { .. }, places: had, hosts } = &manifest.kind
    else {
        return Err("its checkpoint has no process images to restore".into());
    };
    if !had.0.iter().map(|part| part.pes).eq(map.all().map(|node| node.pes)) {
        return Err("its placement has another shape than its checkpoint".into());
    }
    // What sits on these nodes sat together on the nodes of one apinit.
    let then = had.nids().zip(map.all()).filter(|(_, now)| nids.contains(&now.nid));
    let mut then: Vec<Nid> = then.map(|(then, _)| then).collect();
    then.sort_unstable();
    let same = |host: &&HostImages| {
        let mut theirs = host.nids.clone();
        theirs.sort_unstable();
        theirs == then
    };
    let host = hosts.iter().find(same);
    let host = host.ok_or(
        "its placement gives the nodes of one apinit another part of it than \
                           its checkpoint has there",
    )?;
    Ok(&host.folder)
}

fn open_folder(at: BorrowedFd<'_>, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::place::{Place, PlacementList};
    use crate::apteam::{Apid, Incarnation, Key};
    use crate::checkpoint::example;

    fn restart(apid: u64) -> Restart {
        let from = Key { apid: Apid(apid), incarnation: Incarnation(1) };
        Restart { from, run: Duration::ZERO, parts: Vec::new() }
    }

    fn places(pes: &[u32]) -> RankMap {
        let place = |(n, pes): (usize, &u32)| Place {
            nid: Nid(n as u32 + 8),
            processors: (0..*pes).collect(),
            pes: *pes,
        };
        let places = PlacementList(pes.iter().enumerate().map(place).collect());
        RankMap::alone(&places)
    }

    #[test]
    fn it_is_of_what_was_posted_and_of_its_shape() {
        let mut manifest = example();
        let both = [Nid(8), Nid(9)];
        let fits = |manifest: &Manifest, apid, places: &RankMap| {
            fits(manifest, &restart(apid), places, &both).map(str::to_owned)
        };
        assert_eq!(fits(&manifest, 12, &places(&[1, 1])), Ok("host-0".into()));
        let why = fits(&manifest, 13, &places(&[1, 1])).expect_err("another's");
        assert!(why.contains("application 12") && why.contains("13"), "{why}");
        for other in [&[2][..], &[1], &[1, 2], &[1, 1, 1]] {
            let why = fits(&manifest, 12, &places(other)).expect_err("another shape");
            assert!(why.contains("another shape"), "{why}");
        }
        let waiting = Manifest { kind: Kind::Waiting, ..example() };
        assert!(fits(&waiting, 12, &places(&[1, 1])).is_err());
        // Of two apinits each brings back what was together.
        let Kind::Running { hosts, .. } = &mut manifest.kind else { unreachable!() };
        *hosts = vec![of_host(0, 3), of_host(1, 4)];
        let why = fits(&manifest, 12, &places(&[1, 1])).expect_err("one has both");
        assert!(why.contains("another part of it"), "{why}");
        let part = |nid| super::fits(&manifest, &restart(12), &places(&[1, 1]), &[Nid(nid)]);
        assert_eq!((part(8), part(9)), (Ok("host-0"), Ok("host-1")));
    }

    fn of_host(n: usize, nid: u32) -> HostImages {
        HostImages { folder: Kind::folder(n), host_id: "n0".into(), nids: vec![Nid(nid)] }
    }
}
