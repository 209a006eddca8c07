//! The manifest as data, and what must be true of one.

use super::{FILES_MAX, Flaw, MANIFEST};
use crate::apteam::launch::{LAUNCH_MAX, Launch, Limit};
use crate::apteam::launcher_variables::Rendezvous;
use crate::apteam::place::{HostPart, Place, PlacementList};
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::record::{Apteam, State};
use crate::apteam::shape::Shape;
use crate::apteam::{Apid, Incarnation};
use crate::machine::Nid;
use std::collections::BTreeSet;
use std::time::Duration;

/// What a checkpoint says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// When and where it was made.
    pub made: Made,
    /// What it has images of.
    pub kind: Kind,
    /// What psched takes the application back by.
    pub recovery: Recovery,
    /// What is to be executed, with its environment and directory: of one that waited, and of one that saved
    /// itself.
    pub launch: Option<Launch>,
    /// Its files but the manifest, in order of their names, none twice.
    pub files: Vec<Image>,
}

/// When and where a checkpoint was made.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Made {
    /// When, in nanoseconds since the epoch.
    pub at_ns: u64,
    /// The name of the host.
    pub host: String,
    /// The kernel's id of that boot.
    pub boot: String,
    /// The id of psched's store, which gave the apid.
    pub store: String,
    /// The version of psched.
    pub psched: String,
}

/// What was checkpointed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An application that ran.
    Running {
        /// What wrote the images, and is to read them.
        back_end: BackEnd,
        /// Where it was.
        places: PlacementList,
        /// The hosts of these nodes, that of PE 0 first: each has its images in a folder of its own.
        hosts: Vec<HostImages>,
    },
    /// A posting that still waited for a place: there is no image.
    Waiting,
}

impl Kind {
    /// What a checkpoint of an application is now. One that runs and does not save itself is left to CRIU.
    ///
    /// # Errors
    /// There can be none: it is on its way from one state to the next, or over; in words.
    pub fn of(apteam: &Apteam) -> Result<Kind, String> {
        let (apid, state) = (apteam.apid, apteam.state.name());
        match apteam.state {
            State::Posted | State::Lapsed if apteam.restart.is_some() => Err(format!(
                "application {apid} waits to be restarted from a checkpoint, which still has \
                 its whole state"
            )),
            State::Posted | State::Lapsed => Ok(Kind::Waiting),
            State::Running => {
                let part = |(n, part): (usize, &HostPart)| HostImages {
                    folder: Kind::folder(n),
                    host_id: part.host_id.clone(),
                    nids: part.nids.clone(),
                };
                let hosts = apteam.hosts.iter().enumerate().map(part).collect();
                let back_end = match apteam.posting.saving {
                    Some(_) => BackEnd::Application,
                    // Which version, the apinit knows.
                    None => BackEnd::Criu { version: String::new() },
                };
                Ok(Kind::Running { back_end, places: apteam.places.clone(), hosts })
            }
            State::Placed | State::TakingBack | State::Launching => Err(format!(
                "application {apid} is being launched ({state}): try again when it runs"
            )),
            State::Ended => Err(format!("application {apid} has ended")),
        }
    }

    /// Whether it has images of processes; else there is something to be executed.
    pub fn is_dumped(&self) -> bool {
        matches!(self, Kind::Running { back_end: BackEnd::Criu { .. }, .. })
    }

    /// The folder of what that host of a running application has written.
    pub fn folder(host: usize) -> String {
        format!("host-{host}")
    }

    /// The name on screens and in manifests.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Running { .. } => "running",
            Kind::Waiting => "waiting",
        }
    }
}

/// The part of a checkpoint that one host has written, and that one host is to read.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct HostImages {
    /// The folder of its files, in that of the checkpoint: `host-0`.
    pub folder: String,
    /// What told the host from others.
    pub host_id: String,
    /// The nodes that it had of the application.
    pub nids: Vec<Nid>,
}

/// What writes images of processes, and makes processes of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackEnd {
    /// CRIU, of this version.
    Criu {
        /// As CRIU says it.
        version: String,
    },
    /// The program saves itself; it is executed again.
    Application,
}

impl BackEnd {
    /// The name on screens and in manifests.
    pub fn name(&self) -> &'static str {
        match self {
            BackEnd::Criu { .. } => "criu",
            BackEnd::Application => "application",
        }
    }
}

/// psched's recovery information: what it makes the apteam anew of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Its number.
    pub apid: Apid,
    /// Which placement it was; 0: none yet.
    pub incarnation: Incarnation,
    /// Whose it is, as the kernel said when it was posted.
    pub owner: Owner,
    /// What was asked for.
    pub posting: Posting,
    /// The domain of the machine that it was scheduled in.
    pub domain: String,
    /// When it was posted, in nanoseconds since the epoch.
    pub posted_at_ns: u64,
    /// When its PEs began, since the epoch; 0: not yet.
    pub running_at_ns: u64,
    /// Time that it has run, which its time limit counts. (To the nanosecond, up to 584 years.)
    pub run: Duration,
}

impl Recovery {
    /// That of an application which has run for so long.
    pub fn of(apteam: &Apteam, run: Duration) -> Recovery {
        Recovery {
            apid: apteam.apid,
            incarnation: apteam.incarnation,
            owner: apteam.owner.clone(),
            posting: apteam.posting.clone(),
            domain: apteam.domain.to_string(),
            posted_at_ns: apteam.posted_at_ns,
            running_at_ns: apteam.running_at_ns,
            run,
        }
    }

    /// What is left of its time limit, if it has one.
    pub fn time_left(&self) -> Option<Duration> {
        self.posting.time_limit.map(|limit| limit.saturating_sub(self.run))
    }
}

/// A file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its name in the folder, or in one below it: `core-12.img`, `host-0/core-12.img`.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Their checksum.
    pub sum: super::Checksum,
}

/// Whether a file of a checkpoint can have this name: one of letters and digits of ASCII, dots,
/// underscores and hyphens that does not begin with a dot, or two such with a slash between; and not the
/// manifest's.
///
/// ```
/// # use psched_pure::checkpoint::name_fits;
/// assert!(name_fits("pages-1.img") && name_fits("host-0/pages-1.img"));
/// for name in ["", ".", "..", "a/../b", "/etc", "a/", "a/b/c", ".hidden", "a b", "manifest.json"] {
///     assert!(!name_fits(name), "{name}");
/// }
/// ```
pub fn name_fits(name: &str) -> bool {
    let good = |part: &str| {
        (1..=255).contains(&part.len())
            && !part.starts_with('.')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    let parts = name.split('/').count();
    parts <= 2 && name.split('/').all(good) && name.split('/').next() != Some(MANIFEST)
}

/// The folders that these files are in, in order. (Files are in the order of their names.)
pub fn folders(files: &[Image]) -> Vec<&str> {
    let folder = |file: &'_ Image| file.name.split_once('/').map(|(folder, _)| folder.len());
    let mut all: Vec<&str> =
        files.iter().filter_map(|file| Some(&file.name[..folder(file)?])).collect();
    all.dedup();
    all
}

impl Manifest {
    /// Bytes of all its files but the manifest.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
    }

    /// The same with the files of this folder alone; of one host all are its own, wherever they are.
    pub fn only(mut self, folder: &str) -> Manifest {
        if let Kind::Running { hosts, .. } = &self.kind
            && hosts.len() > 1
        {
            self.files.retain(|file| file.name.split_once('/').is_some_and(|(of, _)| of == folder));
        }
        self
    }

    /// Whether one of its files, the manifest not counted, has this name.
    pub fn lists(&self, name: &str) -> bool {
        self.files.binary_search_by(|file| file.name[..].cmp(name)).is_ok()
    }

    /// The folders below its own that it has files in, in order.
    pub fn folders(&self) -> Vec<&str> {
        folders(&self.files)
    }

    /// Whether this caller, as the kernel says who it is, may restart it: its owner, with every group that
    /// the application had.
    ///
    /// # Errors
    /// It may not.
    pub fn may_be_restarted_by(&self, caller: &Owner) -> Result<(), Flaw> {
        let Owner { uid, gid, groups, .. } = &self.recovery.owner;
        if *uid != caller.uid {
            return Err(Flaw::NotOwner { owner: *uid, caller: caller.uid });
        }
        let has = |group: &u32| caller.gid == *group || caller.groups.contains(group);
        match groups.iter().chain([gid]).find(|group| !has(group)) {
            Some(group) => Err(Flaw::NotMember { group: *group }),
            None => Ok(()),
        }
    }

    /// What is true of every manifest, whoever wrote it.
    ///
    /// # Errors
    /// What is not; to be read after "a checkpoint".
    pub(super) fn check(&self) -> Result<(), String> {
        let Shape { width, depth, per_node } = self.recovery.posting.shape;
        if width == 0 || depth == 0 || per_node == Some(0) {
            return Err("has at least one PE of one processor, on one node".into());
        }
        if self.files.len() > FILES_MAX {
            return Err(format!("has at most {FILES_MAX} files, not {}", self.files.len()));
        }
        if let Some(file) = self.files.iter().find(|file| !name_fits(&file.name)) {
            return Err(format!("can't have a file named {:?}", file.name));
        }
        if let Some(two) = self.files.windows(2).find(|two| two[0].name >= two[1].name) {
            return Err(format!(
                "has its files in order of their names, and {} is not",
                two[1].name
            ));
        }
        if let Some(launch) = &self.launch {
            launch.fits(width)?;
            if launch.bytes() > LAUNCH_MAX {
                return Err(format!("has a launch of at most {LAUNCH_MAX} bytes"));
            }
        }
        match &self.kind {
            Kind::Running { back_end, places, hosts } => {
                if !places.fits_or_shares(&self.recovery.posting.shape) {
                    return Err("of a running application has its whole placement".into());
                }
                self.check_hosts(places, hosts)?;
                match back_end {
                    BackEnd::Criu { .. } => self.has_images(hosts),
                    BackEnd::Application => self.has_launch(),
                }
            }
            Kind::Waiting => self.has_launch(),
        }
    }

    fn has_launch(&self) -> Result<(), String> {
        if !self.files.is_empty() {
            return Err("that executes a program has no process images".into());
        }
        let missing = || "without process images names the program to execute".to_owned();
        self.launch.is_some().then_some(()).ok_or_else(missing)
    }

    fn has_images(&self, hosts: &[HostImages]) -> Result<(), String> {
        let folders: BTreeSet<&str> = self.folders().into_iter().collect();
        match hosts.iter().find(|host| !folders.contains(&host.folder[..])) {
            Some(host) => Err(format!("by criu has images in {}", host.folder)),
            None => Ok(()),
        }
    }

    /// Each node is of one host, and each host has a folder.
    fn check_hosts(&self, places: &PlacementList, hosts: &[HostImages]) -> Result<(), String> {
        let mut placed: Vec<Nid> = places.nids().collect();
        let mut theirs: Vec<Nid> = hosts.iter().flat_map(|host| host.nids.clone()).collect();
        placed.sort_unstable();
        theirs.sort_unstable();
        if placed != theirs || hosts.iter().any(|host| host.nids.is_empty()) {
            return Err("names the host of each of its nodes, and of no other node".into());
        }
        let mut folders: Vec<&str> = hosts.iter().map(|host| &host.folder[..]).collect();
        if let Some(bad) = folders.iter().find(|name| !name_fits(name) || name.contains('/')) {
            return Err(format!("can't have a folder named {bad:?}"));
        }
        folders.sort_unstable();
        match folders.windows(2).find(|two| two[0] == two[1]) {
            Some(two) => {
                Err(format!("has a folder for each host, and {} belongs to two hosts", two[0]))
            }
            None => Ok(()),
        }
    }
}

/// One to look at: of two PEs on two nodes, with two images.
pub fn example() -> Manifest {
    let owner =
        Owner { uid: 1000, gid: 100, groups: vec![100, 27], name: "alice".into(), terminal: true };
    let shape = Shape { width: 2, depth: 1, per_node: Some(1) };
    let posting = Posting {
        memory_per_pe: Some(64 << 20),
        command: "./ring 1000".into(),
        time_limit: Some(Duration::from_secs(3600)),
        ..Posting::plain([9; 16], shape)
    };
    let place = |nid, processor| Place { nid: Nid(nid), processors: vec![processor], pes: 1 };
    let image = |name: &str, bytes: &[u8]| Image {
        name: name.into(),
        size: bytes.len() as u64,
        sum: super::Checksum::of(bytes),
    };
    Manifest {
        made: Made {
            at_ns: 1_780_000_000_000_000_000,
            host: "n0".into(),
            boot: "6c9e8f0e-0000-4000-8000-000000000001".into(),
            store: "5ca1ab1e".into(),
            psched: "0.1.0".into(),
        },
        kind: Kind::Running {
            back_end: BackEnd::Criu { version: "4.2".into() },
            places: PlacementList([place(3, 0), place(4, 1)].into()),
            hosts: vec![HostImages {
                folder: "host-0".into(),
                host_id: "n0".into(),
                nids: vec![Nid(3), Nid(4)],
            }],
        },
        recovery: Recovery {
            apid: Apid(12),
            incarnation: Incarnation(1),
            owner,
            posting,
            domain: "application".into(),
            posted_at_ns: 1_779_999_000_000_000_000,
            running_at_ns: 1_779_999_001_000_000_000,
            run: Duration::from_millis(900_500),
        },
        launch: Some(Launch {
            executable: b"./ring".to_vec(),
            arguments: vec![b"./ring".to_vec(), b"1000".to_vec()],
            environment: vec![b"HOME=/home/alice".to_vec(), b"RATE=100%".to_vec()],
            directory: b"/home/alice/work".to_vec(),
            umask: 0o022,
            limits: vec![Limit { resource: 7, soft: 1024 }],
            binding: crate::apteam::binding::Binding::Cpu,
            pmi: true,
            rendezvous: Some(Rendezvous::default()),
            ..Launch::default()
        }),
        files: vec![image("core-1.img", b"core"), image("host-0/pages-1.img", b"pages")],
    }
}
