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
//! Of an application on nodes of several apinits each borrows a folder of its own in that of the checkpoint, and
//! the thread waits where everything stands still until cpr says that so do the other parts. What is sealed then
//! is the part, and the agent lets the gang go on when cpr says that all are dumped:
//!
//! ```text
//!   silent       a thread freezes it
//!   Stands       cpr is told, and says AllStand when all do: the thread dumps
//!   Imaged       cpr is told, and says AllImaged when all are
//!   Sealed       cpr is told what has been written, and has one of us make the manifest of all parts
//! ```
//!
//! Whatever goes wrong, the folder is the user's again, empty, and the application is as it was. An apinit
//! that is killed meanwhile leaves a frozen application: the next life of it lets that run when nobody dumps
//! it any more ([`Shell::thaw_dumped`]).

use super::apps::App;
use super::{Event, Shell};
use crate::agent::{Action, DumpWord, Happening};
use crate::apteam::Key;
use crate::apteam::talk::shepherd::ToShepherd;
use crate::checkpoint::{BackEnd, Checksum, Kind, Made, Manifest, Part, SealKey, join};
use crate::node::apinit::door::Asker;
use crate::node::apinit::shepherds;
use crate::node::checkpoint::criu::CriuError;
use crate::node::checkpoint::dir::Lent;
use crate::node::checkpoint::door::{Answer, Ask};
use crate::node::checkpoint::{
    CheckpointError, DumpOptions, Dumped, Known, Resume, Running, dump_part, has_own_space,
    keep_resume, quiet,
};
use crate::node::groups::AppGroups;
use crate::os::host::{boot_id, hostname, monotonic_ns, wall_ns};
use bytes::Bytes;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How old a draft may be: a later one has more time run on it.
const DRAFT_AGE: Duration = Duration::from_secs(60);
/// CRIU is killed after that, whatever becomes of what it dumps: far longer than any disk takes.
const DUMP_BOUND: Duration = Duration::from_secs(3600);
/// How long a part that stands waits until all do: each is frozen within seconds, or can't be.
const STAND_WAIT: Duration = Duration::from_secs(60);
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
    /// The same as psched has said it.
    said: Bytes,
    /// Of an application on several apinits: the folder of the part here, as the draft has it.
    part: Option<String>,
    /// (Of a part.) Whoever waits for the word that all stand.
    all_stand: Option<mpsc::SyncSender<()>>,
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
    /// For this question of somebody's at the door; none: its memory goes out.
    number: Option<u64>,
    /// The application has stood since then.
    since: Instant,
    waiting: Vec<ToShepherd>,
}

impl HungUp {
    /// Of one whose memory goes out.
    pub fn to_go_out() -> HungUp {
        HungUp { number: None, since: Instant::now(), waiting: Vec::new() }
    }

    /// What has waited, in order.
    pub fn waited(self) -> Vec<ToShepherd> {
        self.waiting
    }

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
    /// Of a part: to stand until all do.
    standing: Option<Standing>,
    user: (u32, u32),
    shepherd: i32,
    socket: PathBuf,
    lifeline: Option<Arc<OwnedFd>>,
    groups: AppGroups,
    resume: Resume,
}

/// What a part needs to wait for the others.
struct Standing {
    key: Key,
    number: u64,
    events: super::Events,
    all_stand: mpsc::Receiver<()>,
}

impl Standing {
    /// Everything of it stands still. Says so, waits until all parts do, and gives from when to when this one
    /// has stood for certain.
    fn wait(&self) -> Result<(u64, u64), CheckpointError> {
        let from = monotonic_ns();
        let failed = |why: &str| Err(CheckpointError::new(why.to_owned()));
        if self.events.blocking_send(Event::Stands(self.number)).is_err() {
            return failed("apinit ends");
        }
        match self.all_stand.recv_timeout(STAND_WAIT) {
            Ok(()) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return failed("whoever asked for it is gone");
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let bound = STAND_WAIT.as_secs();
                return Err(CheckpointError::new(format!(
                    "another part of application {} did not stand still within {bound} s",
                    self.key.apid
                )));
            }
        }
        Ok((from, monotonic_ns()))
    }
}

/// A folder with images, that is to be sealed.
pub(in crate::node::apinit) struct Images {
    lent: Lent,
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

impl Dump {
    fn carry_out(self) -> Result<Images, String> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let criu = self.criu.good().map_err(|e| words(&e))?;
        let lent = Lent::new(self.folder, self.user).map_err(|e| words(&e))?;
        // A part has the whole folder that is lent, which is one in another.
        let below = match self.standing {
            None => Some(lent.dir().folder(&Kind::folder(0)).map_err(|e| words(&e))?),
            Some(_) => None,
        };
        let images = below.as_ref().map_or(lent.dir().as_fd(), AsFd::as_fd);
        let running = Running {
            shepherd: self.shepherd,
            socket: &self.socket,
            lifeline: self.lifeline.as_deref().map(AsFd::as_fd),
            groups: &self.groups,
        };
        // It stays frozen by its nodes' groups, and is ended by the agent if it is to end.
        let options = DumpOptions { go_on: true, bound: DUMP_BOUND };
        let mut stood_ns = None;
        let mut stands = || {
            let Some(standing) = &self.standing else { return Ok(Vec::new()) };
            stood_ns = Some(standing.wait()?);
            quiet(&self.groups)
        };
        let dumped = dump_part(&criu, &running, images, options, &mut stands);
        let dumped = dumped.map_err(|e| words(&e))?;
        keep_resume(images, self.resume).map_err(|e| words(&e))?;
        drop(below);
        Ok(Images { lent, user: self.user, dumped, stood_ns })
    }
}

impl Images {
    /// What has been written of a part, in this folder of the checkpoint: bytes of its files, and its text.
    fn seal_part(self, folder: &str, said: &[u8], key: &SealKey) -> Result<(u64, Bytes), String> {
        let own = nix::unistd::geteuid().as_raw();
        let user = (self.user.0 != own).then_some(self.user);
        let stood_ns = self.stood_ns.ok_or("it did not wait for the other parts")?;
        let files = self.lent.dir().seal_part(folder, user).map_err(|e| e.to_string())?;
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
    fn seal(self, draft: Manifest, key: &SealKey) -> Result<u64, String> {
        let Kind::Running { places, hosts, .. } = draft.kind else {
            return Err("psched's draft is of no running application".into());
        };
        let back_end = BackEnd::Criu { version: self.dumped.version.to_string() };
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
    let root = nix::unistd::geteuid().is_root();
    let checked = root.then(|| criu.good().and_then(|criu| criu.version()));
    let by_criu = checked.and_then(|checked| match checked {
        Ok(version) => Some(format!("criu {version}")),
        Err(CriuError::Missing(_)) => None,
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
                Ok((said, part)) => {
                    let (number, uid) = (asker.number, asker.uid);
                    let wanted = Wanted {
                        asker,
                        key,
                        draft: said,
                        said: draft,
                        part,
                        all_stand: None,
                        stage: Stage::Asked(descriptor),
                        since: Instant::now(),
                        stood: None,
                    };
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
            Ask::Published | Ask::AllStand | Ask::AllImaged | Ask::Join { .. } => {
                asker.say(Answer::Refused("nothing was asked for".into()));
            }
        }
    }

    /// What psched has said of it, if that is true and of now; and where it is on several apinits the folder of
    /// the part here.
    fn want(
        &self,
        asker: &Asker,
        key: Key,
        draft: &Bytes,
    ) -> Result<(Manifest, Option<String>), String> {
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
        let hosts = match &draft.kind {
            Kind::Running { hosts, .. } => &hosts[..],
            Kind::Waiting => &[],
        };
        let part = match self.agent.part(key) {
            // (The agent says that it is not here.)
            None | Some((_, 1)) if hosts.len() == 1 => None,
            Some((index, all)) if all == hosts.len() => Some(hosts[index].folder.clone()),
            _ => return Err("what psched has said of it is of other nodes than it has".into()),
        };
        let shepherd = self.apps.get(&key).and_then(|app| app.shepherd.as_ref());
        let shares = || shepherd.is_some_and(|s| matches!(has_own_space(s.process.pid), Ok(false)));
        if part.is_some() && shares() {
            return Err(format!(
                "the parts of application {} share /dev/shm and IPC with all of their host, as it was started \
                 with isolation=off: so only one that is on nodes of one apinit can be checkpointed",
                key.apid
            ));
        }
        Ok((draft, part))
    }

    /// Whoever asked says more, or is gone.
    pub(super) fn asked_more(&mut self, number: u64, ask: Option<Ask>) {
        let word = match ask {
            Some(Ask::Published) => DumpWord::Named,
            Some(Ask::AllImaged) => DumpWord::AllImaged,
            Some(Ask::AllStand) => {
                let waits = self.wanted.get_mut(&number).and_then(|wanted| wanted.all_stand.take());
                // An Err: it has waited for too long, and whoever asked is told.
                let _ = waits.map(|waits| waits.send(()));
                return;
            }
            Some(Ask::Join { parts }) => return self.join(number, parts),
            _ => DumpWord::Gone,
        };
        let gone = word == DumpWord::Gone;
        if let Some(wanted) = self.wanted.get_mut(&number).filter(|_| gone) {
            wanted.all_stand = None;
            match wanted.stage {
                // Whoever has lent the folder waits until nobody writes into it any more.
                Stage::Written | Stage::GivenUp => wanted.stage = Stage::GivenUp,
                Stage::Asked(_) | Stage::Sealed => drop(self.wanted.remove(&number)),
            }
        }
        self.own.push_back(Happening::DumpSaid { number, word });
    }

    /// A part stands still.
    pub(super) fn stands(&mut self, number: u64) {
        if let Some(wanted) = self.wanted.get_mut(&number) {
            wanted.asker.say(Answer::Stands);
        }
    }

    /// Makes the manifest of these parts, beside the one task.
    fn join(&mut self, number: u64, parts: Vec<Bytes>) {
        let sealed = |wanted: &&Wanted| matches!(wanted.stage, Stage::Sealed);
        let Some(wanted) = self.wanted.get(&number).filter(sealed) else { return };
        let (said, sealing, events) =
            (wanted.said.clone(), self.sealing.clone(), self.events.clone());
        self.leaving.spawn(async move {
            let joined = tokio::task::spawn_blocking(move || {
                let key = sealing.ok_or("psched has given no key of checkpoints")?;
                let manifest = join(&said, &parts, wall_ns(), &key);
                manifest.and_then(|manifest| manifest.seal(&key)).map_err(|e| e.to_string())
            });
            let joined = joined.await.unwrap_or_else(|e| Err(format!("a fault of apinit's: {e}")));
            let _ = events.send(Event::Joined(number, joined)).await;
        });
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
        app.hung_up =
            Some(HungUp { number: Some(number), since: Instant::now(), waiting: Vec::new() });
        match &mut app.shepherd {
            // The rest follows when it has heard all and closed.
            Some(shepherd) => shepherd.hang_up(),
            None => drop(self.dump_hung_up(key)),
        }
    }

    /// Its shepherd has closed: nobody talks with it. False: it was not to.
    pub(super) fn dump_hung_up(&mut self, key: Key) -> bool {
        let hung_up = self.apps.get(&key).and_then(|app| app.hung_up.as_ref());
        let Some(hung_up) = hung_up else { return false };
        let Some(number) = hung_up.number else {
            self.take_out_hung_up(key);
            return true;
        };
        let standing = self.standing(key, number);
        let Some(app) = self.apps.get(&key) else { return false };
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
            standing,
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

    /// Of a part: how it waits for the others.
    fn standing(&mut self, key: Key, number: u64) -> Option<Standing> {
        let events = self.events.clone();
        let wanted = self.wanted.get_mut(&number).filter(|wanted| wanted.part.is_some())?;
        let (sender, all_stand) = mpsc::sync_channel(1);
        // (Of one who is gone nobody is told any more.)
        wanted.all_stand = (!wanted.given_up()).then_some(sender);
        Some(Standing { key, number, events, all_stand })
    }

    /// The images are there, or not: its shepherd is talked with again.
    pub(super) fn imaged(&mut self, key: Key, number: u64, images: Result<Images, String>) {
        let made = images.is_ok();
        match images {
            Err(why) => self.answer_dump(number, Answer::Refused(why)),
            Ok(images) => match self.wanted.get_mut(&number) {
                Some(wanted) if !wanted.given_up() => {
                    if wanted.part.is_some() {
                        wanted.asker.say(Answer::Imaged);
                    }
                    self.seal(number, images);
                }
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
            let then = Happening::Dumped { key, number, made };
            let _ = events.send(Event::HeardAgain { key, found, then: Box::new(then) }).await;
        });
    }

    /// Beside the one task: there may be much to read.
    fn seal(&mut self, number: u64, images: Images) {
        let Some(wanted) = self.wanted.get(&number) else { return };
        let draft = wanted.draft.clone();
        let (said, part) = (wanted.said.clone(), wanted.part.clone());
        let (sealing, events) = (self.sealing.clone(), self.events.clone());
        self.leaving.spawn(async move {
            let sealed = tokio::task::spawn_blocking(move || {
                let key = sealing.ok_or("psched has given no key of checkpoints")?;
                match part {
                    Some(folder) => images.seal_part(&folder, &said, &key),
                    None => images.seal(draft, &key).map(|bytes| (bytes, Bytes::new())),
                }
            });
            let sealed = sealed.await.unwrap_or_else(|e| Err(format!("a fault of apinit's: {e}")));
            let _ = events.send(Event::Sealed(number, sealed)).await;
        });
    }

    /// The manifest is made of all parts, or not.
    pub(super) fn joined(&mut self, number: u64, joined: Result<String, String>) {
        match (joined, self.wanted.get(&number)) {
            (Ok(text), Some(wanted)) => wanted.asker.say_much(Answer::Joined(text)),
            (Ok(_), None) => {}
            (Err(why), _) => self.no_dump(number, why),
        }
    }

    /// The folder is no checkpoint, and whoever wanted it is told.
    fn no_dump(&mut self, number: u64, why: String) {
        self.answer_dump(number, Answer::Refused(why));
        // One that is to end stands still.
        self.own.push_back(Happening::DumpSaid { number, word: DumpWord::Gone });
    }

    /// The folder is a checkpoint of so many bytes, or a part of one, which is said so; or not.
    pub(super) fn sealed(&mut self, number: u64, sealed: Result<(u64, Bytes), String>) {
        let (bytes, part) = match sealed {
            Ok(sealed) => sealed,
            Err(why) => return self.no_dump(number, why),
        };
        if self.wanted.get(&number).is_some_and(Wanted::given_up) {
            // What it leaves, sealed and whole, is his.
            self.wanted.remove(&number);
        } else if let Some(wanted) = self.wanted.get_mut(&number) {
            let app = self.apps.get(&wanted.key);
            // (It may not have been let go on yet.)
            let stands = app.and_then(|app| Some(app.hung_up.as_ref()?.since.elapsed()));
            let frozen = wanted.stood.or(stands).unwrap_or_default();
            let total = wanted.since.elapsed();
            if let Some(app) = app {
                app.span.in_scope(|| tracing::info!(bytes, ?frozen, ?total, "checkpointed"));
            }
            wanted.stage = Stage::Sealed;
            wanted.asker.say_much(Answer::Dumped { bytes, frozen, total, part });
        }
    }

    /// Its shepherd is there again; what waited for it is said, and then that happens.
    pub(super) fn heard_again(
        &mut self,
        key: Key,
        found: Option<shepherds::Shepherd>,
        then: Happening,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let hung_up = app.hung_up.take();
        if let Happening::Dumped { number, .. } = &then
            && let Some(wanted) = self.wanted.get_mut(number)
        {
            wanted.stood = hung_up.as_ref().map(|hung_up| hung_up.since.elapsed());
        }
        let waiting = hung_up.map(HungUp::waited).unwrap_or_default();
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
        self.own.push_back(then);
    }

    /// A former life of this apinit has ended while it was dumped: it is let go on once nobody dumps it any
    /// more. (CRIU goes on without its apinit, and lets go of every process in the end.)
    pub(super) fn thaw_dumped(&mut self, key: Key) {
        let dumped = |app: &&mut App| app.directory.dumped();
        let Some(app) = self.apps.get_mut(&key).filter(dumped) else { return };
        let Some(groups) = app.groups.clone() else { return };
        app.thawing = Some(Vec::new());
        let (directory, span) = (app.directory.clone(), app.span.clone());
        let events = self.events.clone();
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
            let _ = events.send(Event::Thawed(key)).await;
        });
    }

    /// Whether something is to be done with it only when a dump of a former life is over, which would let it run in
    /// the midst of another; kept until then.
    pub(super) fn waits_for_thaw(&mut self, key: Key, action: &Action) -> bool {
        let waiting = self.apps.get_mut(&key).and_then(|app| app.thawing.as_mut());
        waiting.map(|waiting| waiting.push(action.clone())).is_some()
    }

    /// It is over.
    pub(super) fn thawed(&mut self, key: Key) {
        let waiting = self.apps.get_mut(&key).and_then(|app| app.thawing.take());
        for action in waiting.unwrap_or_default() {
            self.act(action);
        }
    }
}

/// Whether somebody traces this process.
fn traced(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}
