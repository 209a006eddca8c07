//! Making checkpoints: what is asked at the door, the dump beside the one task, the seal.
//!
//! ```text
//!   Asked        the draft is psched's and of now; the agent lifts the gang
//!   Dump         what waits for its shepherd is sent, and then nothing more
//!   silent       the shepherd has heard all, said all, and closed: a thread dumps
//!   Imaged       the shepherd is talked with again; the agent lets the gang go on, unless it is to end
//!   Sealed       the folder is a checkpoint, and the user's: he is told
//! ```
//!
//! Whatever goes wrong, the folder is the user's again, empty, and the application is as it was. An apinit
//! that is killed meanwhile leaves a frozen application: the next life of it lets that run when nobody dumps
//! it any more ([`Shell::thaw_dumped`]).

use super::{Event, Shell};
use crate::agent::Happening;
use crate::apteam::Key;
use crate::apteam::talk::shepherd::ToShepherd;
use crate::checkpoint::{BackEnd, HostImages, Kind, Made, Manifest, SealKey};
use crate::node::apinit::door::Asker;
use crate::node::apinit::shepherds;
use crate::node::checkpoint::criu::Criu;
use crate::node::checkpoint::dir::Lent;
use crate::node::checkpoint::door::{Answer, Ask};
use crate::node::checkpoint::{
    DumpOptions, Dumped, Known, Resume, Running, dump_application, keep_resume,
};
use crate::node::groups::AppGroups;
use crate::os::host::{boot_id, hostname, wall_ns};
use bytes::Bytes;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Images of a host are in this folder of a checkpoint.
pub(super) const IMAGES: &str = "host-0";
/// How old a draft may be: a later one has more time run on it.
const DRAFT_AGE: Duration = Duration::from_secs(60);
/// CRIU is killed after that, whatever becomes of what it dumps: far longer than any disk takes.
const DUMP_BOUND: Duration = Duration::from_secs(3600);
/// How often it is looked whether CRIU has let go.
const THAW_LOOK: Duration = Duration::from_millis(100);
/// Messages that wait for a shepherd while nobody talks with it.
const WAITING_MAX: usize = 4096;

/// A checkpoint that somebody wants.
#[derive(Debug)]
pub(in crate::node::apinit) struct Wanted {
    asker: Asker,
    key: Key,
    draft: Manifest,
    stage: Stage,
    since: Instant,
    /// How long the application stood, once it may go on.
    stood: Option<Duration>,
}

/// How far it has come.
#[derive(Debug)]
enum Stage {
    /// The application is brought to a stand; nobody has touched the folder.
    Asked(OwnedFd),
    /// The folder is written into.
    Written,
    /// So it is, and whoever wanted it has given it up: he waits until nobody writes there any more.
    GivenUp,
    /// It is a checkpoint, and whoever wanted it knows.
    Sealed,
}

impl Wanted {
    /// The folder, to write into it; none: somebody does, or has done so.
    fn written(&mut self) -> Option<OwnedFd> {
        match std::mem::replace(&mut self.stage, Stage::Written) {
            Stage::Asked(folder) => Some(folder),
            other => {
                self.stage = other;
                None
            }
        }
    }

    fn given_up(&self) -> bool {
        matches!(self.stage, Stage::GivenUp)
    }
}

/// What waits for a shepherd with whom nobody talks, because it is being dumped.
#[derive(Debug)]
pub(super) struct HungUp {
    number: u64,
    /// The application has stood since then.
    since: Instant,
    waiting: Vec<ToShepherd>,
}

impl HungUp {
    /// Keeps it; false: too much waits.
    pub fn keep(&mut self, message: ToShepherd) -> bool {
        self.waiting.push(message);
        self.waiting.len() <= WAITING_MAX
    }
}

/// All that a dump needs, on a thread of its own.
struct Dump {
    criu: Arc<Known>,
    folder: OwnedFd,
    user: (u32, u32),
    shepherd: i32,
    socket: PathBuf,
    lifeline: Option<Arc<OwnedFd>>,
    groups: AppGroups,
    resume: Resume,
}

/// A folder with images, that is to be sealed.
pub(in crate::node::apinit) struct Images {
    lent: Lent,
    user: (u32, u32),
    dumped: Dumped,
}

impl std::fmt::Debug for Images {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Images").field(&self.dumped).finish()
    }
}

impl Dump {
    fn carry_out(self) -> Result<Images, String> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let criu = self.criu.good().map_err(|e| words(&e))?;
        let lent = Lent::new(self.folder, self.user).map_err(|e| words(&e))?;
        let images = lent.dir().folder(IMAGES).map_err(|e| words(&e))?;
        let running = Running {
            shepherd: self.shepherd,
            socket: &self.socket,
            lifeline: self.lifeline.as_deref().map(AsFd::as_fd),
            groups: &self.groups,
        };
        // It stays frozen by its nodes' groups, and is ended by the agent if it is to end.
        let options = DumpOptions { go_on: true, bound: DUMP_BOUND };
        let dumped = dump_application(&criu, &running, images.as_fd(), options);
        let dumped = dumped.map_err(|e| words(&e))?;
        keep_resume(images.as_fd(), self.resume).map_err(|e| words(&e))?;
        Ok(Images { lent, user: self.user, dumped })
    }
}

impl Images {
    /// Makes a checkpoint of them: bytes of its files.
    fn seal(self, draft: Manifest, key: &SealKey) -> Result<u64, String> {
        let Kind::Running { places, hosts, .. } = draft.kind else {
            return Err("psched's draft is of no running application".into());
        };
        let back_end = BackEnd::Criu { version: self.dumped.version.to_string() };
        let hosts =
            hosts.into_iter().map(|host| HostImages { folder: IMAGES.into(), ..host }).collect();
        let made = Made { at_ns: wall_ns(), host: hostname(), boot: boot_id(), ..draft.made };
        let kind = Kind::Running { back_end, places, hosts };
        let manifest = Manifest { made, kind, ..draft };
        let own = nix::unistd::geteuid().as_raw();
        let user = (self.user.0 != own).then_some(self.user);
        let sealed = self.lent.dir().seal(manifest, key, user).map_err(|e| e.to_string())?;
        self.lent.keep();
        Ok(sealed.bytes())
    }
}

/// What can checkpoint applications here. One that is there and does not work is told among the notes.
pub(super) fn back_ends(criu: &Known, notes: &mut Vec<String>) -> Vec<String> {
    // Who is not root has no use for it, and where there is none nothing is wrong.
    let there = nix::unistd::geteuid().is_root() && Criu::here().is_ok();
    let checked = there.then(|| criu.good().and_then(|criu| criu.version()));
    let by_criu = checked.and_then(|checked| match checked {
        Ok(version) => Some(format!("criu {version}")),
        Err(why) => {
            tracing::warn!("applications can't be checkpointed by criu: {why}");
            notes.push(format!("no checkpoints by criu: {why}"));
            None
        }
    });
    // A program that saves itself needs nothing of its node.
    by_criu.into_iter().chain([BackEnd::Application.name().to_owned()]).collect()
}

impl Shell {
    /// Somebody is at the door.
    pub(super) fn asked(&mut self, mut asker: Asker, ask: Ask, descriptor: OwnedFd) {
        match ask {
            Ask::Dump { key, draft, end } => match self.want(&asker, key, &draft) {
                Err(why) => asker.say(Answer::Refused(why)),
                Ok(draft) => {
                    let (number, uid) = (asker.number, asker.uid);
                    let (stage, since) = (Stage::Asked(descriptor), Instant::now());
                    let wanted = Wanted { asker, key, draft, stage, since, stood: None };
                    self.wanted.insert(number, wanted);
                    self.own.push_back(Happening::DumpAsked { number, uid, key, end });
                }
            },
            Ask::Restore { key, ticket } => {
                let answer = match self.agent.may_restore(key, asker.uid, &ticket) {
                    Ok(true) => match self.apps.get_mut(&key) {
                        Some(app) => {
                            app.restore_from = Some(descriptor);
                            Answer::Taken
                        }
                        None => Answer::NotYet,
                    },
                    Ok(false) => Answer::NotYet,
                    Err(why) => Answer::Refused(why),
                };
                asker.say(answer);
            }
            Ask::Published => asker.say(Answer::Refused("nothing was asked for".into())),
        }
    }

    /// What psched has said of it, if that is true and of now.
    fn want(&self, asker: &Asker, key: Key, draft: &Bytes) -> Result<Manifest, String> {
        if !nix::unistd::geteuid().is_root() {
            return Err("the back end criu needs root, and apinit does not run as root: this \
                        instance can't checkpoint what runs"
                .into());
        }
        let sealing = self.sealing.as_ref();
        let sealing = sealing.ok_or("psched has given no key of checkpoints: see its log")?;
        let draft = Manifest::read_draft(draft, sealing).map_err(|_| {
            format!("user {} has brought something that psched has not said", asker.uid)
        })?;
        let age = Duration::from_nanos(wall_ns().saturating_sub(draft.made.at_ns));
        let of = Key { apid: draft.recovery.apid, incarnation: draft.recovery.incarnation };
        if of != key || age > DRAFT_AGE {
            return Err("what psched has said of it is of another application, or too old".into());
        }
        Ok(draft)
    }

    /// Whoever asked says more, or is gone.
    pub(super) fn asked_more(&mut self, number: u64, ask: Option<Ask>) {
        let named = ask == Some(Ask::Published);
        if let Some(wanted) = self.wanted.get_mut(&number).filter(|_| !named) {
            match wanted.stage {
                Stage::Written | Stage::GivenUp => wanted.stage = Stage::GivenUp,
                Stage::Asked(_) | Stage::Sealed => drop(self.wanted.remove(&number)),
            }
        }
        self.own.push_back(Happening::DumpSaid { number, named });
    }

    /// Tells whoever asked, for the last time.
    pub(super) fn answer_dump(&mut self, number: u64, answer: Answer) {
        if let Some(mut wanted) = self.wanted.remove(&number) {
            if let (Answer::Refused(why), Some(app)) = (&answer, self.apps.get(&wanted.key)) {
                app.span.in_scope(|| tracing::warn!("no checkpoint: {why}"));
            }
            wanted.asker.say(answer);
        }
    }

    /// It stands: nothing more is said to its shepherd for now.
    pub(super) fn dump(&mut self, key: Key, number: u64) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.hung_up = Some(HungUp { number, since: Instant::now(), waiting: Vec::new() });
        match &mut app.shepherd {
            // The rest follows when it has heard all and closed.
            Some(shepherd) => shepherd.hang_up(),
            None => drop(self.dump_hung_up(key)),
        }
    }

    /// Its shepherd has closed: nobody talks with it. False: it was not to.
    pub(super) fn dump_hung_up(&mut self, key: Key) -> bool {
        let Some(app) = self.apps.get(&key) else { return false };
        let Some(number) = app.hung_up.as_ref().map(|hung_up| hung_up.number) else { return false };
        let folder = self.wanted.get_mut(&number).and_then(Wanted::written);
        let asker = self.wanted.get(&number).map(|wanted| (wanted.asker.uid, wanted.asker.gid));
        let (output_received, stdin_taken) = self.agent.resume_point(key);
        let resume = Resume { output_received, stdin_taken };
        let ready = folder.zip(asker).zip(app.shepherd.as_ref()).zip(app.groups.clone());
        let events = self.events.clone();
        let Some((((folder, user), shepherd), groups)) = ready else {
            let why = match app.groups {
                Some(_) => "whoever asked for it is gone",
                None => "without cgroups it can't be frozen as a whole",
            };
            let why = why.to_owned();
            self.leaving.spawn(async move {
                let _ = events.send(Event::Imaged(key, number, Err(why))).await;
            });
            return true;
        };
        let dump = Dump {
            criu: Arc::clone(&self.criu),
            folder,
            user,
            shepherd: shepherd.process.pid,
            socket: app.directory.socket(),
            lifeline: self.lifeline.clone(),
            groups,
            resume,
        };
        let (span, directory) = (app.span.clone(), app.directory.clone());
        self.leaving.spawn(async move {
            directory.keep_dumped();
            let done = tokio::task::spawn_blocking(move || span.in_scope(|| dump.carry_out()));
            let result = done.await.unwrap_or_else(|e| Err(format!("a fault of apinit's: {e}")));
            directory.drop_dumped();
            let _ = events.send(Event::Imaged(key, number, result)).await;
        });
        true
    }

    /// The images are there, or not: its shepherd is talked with again.
    pub(super) fn imaged(&mut self, key: Key, number: u64, images: Result<Images, String>) {
        let made = images.is_ok();
        match images {
            Err(why) => self.answer_dump(number, Answer::Refused(why)),
            Ok(images) => match self.wanted.get(&number) {
                Some(wanted) if !wanted.given_up() => self.seal(number, images),
                _ => {
                    drop(images);
                    self.wanted.remove(&number);
                }
            },
        }
        let Some(app) = self.apps.get(&key) else { return };
        let (of, events) = (app.directory.clone(), self.events.clone());
        self.leaving.spawn(async move {
            let found = shepherds::find(key, &of, &events).await.map(|(shepherd, _)| shepherd);
            let _ = events.send(Event::HeardAgain { key, number, made, found }).await;
        });
    }

    /// Beside the one task: there may be much to read.
    fn seal(&mut self, number: u64, images: Images) {
        let Some(wanted) = self.wanted.get(&number) else { return };
        let draft = wanted.draft.clone();
        let (sealing, events) = (self.sealing.clone(), self.events.clone());
        self.leaving.spawn(async move {
            let sealed = tokio::task::spawn_blocking(move || match sealing {
                Some(key) => images.seal(draft, &key),
                None => Err("psched has given no key of checkpoints".to_owned()),
            });
            let sealed = sealed.await.unwrap_or_else(|e| Err(format!("a fault of apinit's: {e}")));
            let _ = events.send(Event::Sealed(number, sealed)).await;
        });
    }

    /// The folder is a checkpoint, of so many bytes; or not.
    pub(super) fn sealed(&mut self, number: u64, sealed: Result<u64, String>) {
        let bytes = match sealed {
            Ok(bytes) => bytes,
            Err(why) => {
                self.answer_dump(number, Answer::Refused(why));
                // One that is to end stands still.
                return self.own.push_back(Happening::DumpSaid { number, named: false });
            }
        };
        if self.wanted.get(&number).is_some_and(Wanted::given_up) {
            // What it leaves, sealed and whole, is his.
            self.wanted.remove(&number);
        } else if let Some(wanted) = self.wanted.get_mut(&number) {
            let app = self.apps.get(&wanted.key);
            // (It may not have been let go on yet.)
            let stands = app.and_then(|app| Some(app.hung_up.as_ref()?.since.elapsed()));
            let frozen = wanted.stood.or(stands).unwrap_or_default();
            let answer = Answer::Dumped { bytes, frozen, total: wanted.since.elapsed() };
            if let Some(app) = app {
                app.span.in_scope(|| tracing::info!(?answer, "checkpointed"));
            }
            wanted.stage = Stage::Sealed;
            wanted.asker.say(answer);
        }
    }

    /// Its shepherd is there again; what waited for it is said.
    pub(super) fn heard_again(
        &mut self,
        key: Key,
        number: u64,
        made: bool,
        found: Option<shepherds::Shepherd>,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let hung_up = app.hung_up.take();
        if let Some(wanted) = self.wanted.get_mut(&number) {
            wanted.stood = hung_up.as_ref().map(|hung_up| hung_up.since.elapsed());
        }
        let waiting = hung_up.map(|hung_up| hung_up.waiting).unwrap_or_default();
        match found {
            Some(shepherd) => {
                app.shepherd = Some(shepherd);
                for message in waiting {
                    self.send_shepherd(key, message);
                }
            }
            None => {
                app.silent = true;
                let text = "it did not outlive its checkpoint".to_owned();
                self.own.push_back(Happening::ShepherdLost { key, text });
            }
        }
        self.own.push_back(Happening::Dumped { key, number, made });
    }

    /// A former life of this apinit has ended while it was dumped: it is let go on once nobody dumps it any
    /// more. (CRIU goes on without its apinit, and lets go of every process in the end.)
    pub(super) fn thaw_dumped(&mut self, key: Key) {
        let Some(app) = self.apps.get(&key).filter(|app| app.directory.dumped()) else { return };
        let Some(groups) = app.groups.clone() else { return };
        let (directory, span) = (app.directory.clone(), app.span.clone());
        self.leaving.spawn(async move {
            let until = Instant::now() + DUMP_BOUND;
            let traced = || groups.left().iter().any(|(_, pid)| traced(*pid));
            // Looked at twice: CRIU takes one after the other.
            let mut free = 0;
            while free < 2 && Instant::now() < until {
                tokio::time::sleep(THAW_LOOK).await;
                free = if traced() { 0 } else { free + 1 };
            }
            let thawed = groups.freezer().and_then(|freezer| freezer.freeze(false));
            span.in_scope(|| match thawed {
                Ok(()) => tracing::info!("it goes on after a dump that was broken off"),
                Err(error) => tracing::warn!(%error, "it stays frozen after a dump"),
            });
            directory.drop_dumped();
        });
    }
}

/// Whether somebody traces this process.
fn traced(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}
