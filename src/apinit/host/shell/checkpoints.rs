//! Making checkpoints: what is asked at the door, the dump beside the one task, the seal.
//!
//! ```text
//!   Asked        the draft is psched's and of now: a thread borrows the folder, and starts CRIU
//!   Prepared     the agent lifts the gang
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
use super::{Shell, TaskEvent, lost};
use crate::apinit::decide::{Agent, DumpWord, Event, NAME_WAIT, PARTS_WAIT};
use crate::apinit::drive::Heard;
use crate::apinit::host::asker::Asker;
use crate::apinit::host::coming::RestoreFrom;
use crate::apinit::host::dump::{Dump, Images, Prepared, StageRoom, Standing, Target};
use crate::apinit::host::shepherd_handle::Shepherd;
use crate::apinit::host::shepherds;
use crate::apteam::Key;
use crate::checkpoint::{BackEnd, Kind, Manifest, join};
use crate::node::checkpoint::criu::CriuError;
use crate::node::checkpoint::fd_channel::{Answer, Ask};
use crate::node::checkpoint::{Known, OF_ROOT_ALONE, Resume, dumps_others, has_own_space};
use crate::node::tracer::tracer;
use crate::os::host::wall_ns;
use bytes::Bytes;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long one who has begun a dump is waited for while there is something to do here: as long as
/// cpr waits.
const DUMP_WAIT: Duration = PARTS_WAIT;
/// How much longer than the agent waits for the word that a checkpoint has its name.
const NAME_MARGIN: Duration = Duration::from_secs(60);
/// How old a draft may be: a later one has more time run on it.
const DRAFT_AGE: Duration = Duration::from_secs(60);
/// How long a CRIU of a former life is waited for.
const THAW_BOUND: Duration = Duration::from_secs(3600);
/// How often it is looked whether CRIU has let go.
const THAW_LOOK: Duration = Duration::from_millis(100);

/// A checkpoint that somebody wants.
#[derive(Debug)]
pub(in crate::apinit::host) struct Wanted {
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
    /// The application is to be ended.
    end: bool,
    /// How long the application stood, once it may go on.
    stood: Option<Duration>,
}

/// How far it has come.
#[derive(Debug)]
enum Stage {
    /// The folder is being borrowed; the application runs.
    Prepares,
    /// The application is brought to a stand.
    Asked(Box<Prepared>),
    /// The folder is written into.
    Written,
    /// So it is, and whoever wanted it has given it up: he waits until nobody writes there any more.
    GivenUp,
    /// It is a checkpoint, and whoever wanted it knows.
    Sealed,
}

impl Wanted {
    /// The folder, to write into it; none: somebody does, or has done so.
    fn written(&mut self) -> Option<Box<Prepared>> {
        match std::mem::replace(&mut self.stage, Stage::Written) {
            Stage::Asked(prepared) => Some(prepared),
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

/// What can checkpoint applications here. One that is there and does not work is told among the notes.
pub(super) fn back_ends(criu: &Known, notes: &mut Vec<String>) -> Vec<String> {
    // Who is not root has no use for it, and where there is none nothing is wrong.
    let root = nix::unistd::geteuid().is_root();
    let checked = root.then(|| criu.good().and_then(|criu| criu.version()));
    let by_criu = checked.and_then(|checked| match checked {
        Ok(version) if dumps_others() => Some(format!("criu {version}")),
        Ok(version) => Some(format!("criu {version}{OF_ROOT_ALONE}")),
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
    pub(super) fn asked(&mut self, agent: &Agent, mut asker: Asker, ask: Ask, descriptor: OwnedFd) {
        match ask {
            Ask::Dump { key, draft, end } => match self
                .want(agent, &asker, key, &draft)
                .and_then(|wanted| self.is_no_copy(key).map(|()| wanted))
            {
                Err(why) => asker.say(Answer::Refused(why)),
                Ok((said, part)) => {
                    let number = asker.number;
                    asker.expect_within(DUMP_WAIT);
                    let wanted = Wanted {
                        asker,
                        key,
                        draft: said,
                        said: draft,
                        part,
                        all_stand: None,
                        stage: Stage::Prepares,
                        since: Instant::now(),
                        end,
                        stood: None,
                    };
                    self.wanted.insert(number, wanted);
                    self.prepare(number, descriptor);
                }
            },
            Ask::Restore { key, ticket } => {
                let answer = match agent.may_restore(key, asker.uid, &ticket) {
                    Ok(true) => match self.apps.get_mut(&key) {
                        Some(app) => {
                            app.coming = asker.afar.clone();
                            let from = RestoreFrom::new(descriptor, asker.afar.clone());
                            app.restore_from = Some(from);
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
                asker
                    .say(Answer::Refused("no checkpoint was requested before this message".into()));
            }
        }
    }

    /// A copy of a program goes with its application: whatever was restored would not find it.
    fn is_no_copy(&self, key: Key) -> Result<(), String> {
        match self.programs.has(key) {
            false => Ok(()),
            true => Err("it executes a copy of its program in its host's memory, which a checkpoint does not have: \
                         launch it with aprun -b, with the program at its path on each host"
                .into()),
        }
    }

    /// What psched has said of it, if that is true and of now; and where it is on several apinits the folder of
    /// the part here.
    fn want(
        &self,
        agent: &Agent,
        asker: &Asker,
        key: Key,
        draft: &Bytes,
    ) -> Result<(Manifest, Option<String>), String> {
        if !nix::unistd::geteuid().is_root() {
            return Err("the back end criu needs root, and apinit does not run as root: this \
                        instance can't checkpoint running applications"
                .into());
        }
        let sealing = self.sealing.as_ref();
        let sealing = sealing
            .ok_or("psched has sent no key to seal checkpoints with: see the log of psched")?;
        let draft = Manifest::read_draft(draft, sealing)
            .map_err(|_| format!("user {} passed a draft that psched has not made", asker.uid))?;
        if draft.recovery.owner.uid != 0 && !dumps_others() {
            return Err("root lacks the capability CAP_SYS_RESOURCE here, so that it can dump its own processes \
                        only"
                .into());
        }
        let age = Duration::from_nanos(wall_ns().saturating_sub(draft.made.at_ns));
        let of = Key { apid: draft.recovery.apid, incarnation: draft.recovery.incarnation };
        if of != key || age > DRAFT_AGE {
            return Err(
                "psched's draft of the checkpoint is of another application, or too old: try again"
                    .into(),
            );
        }
        if let Some(why) = agent.hinders_dump(asker.uid, key) {
            return Err(why);
        }
        let hosts = match &draft.kind {
            Kind::Running { hosts, .. } => &hosts[..],
            Kind::Waiting => &[],
        };
        let part = match agent.part(key) {
            // (The agent says that it is not here.)
            None | Some((_, 1)) if hosts.len() == 1 => None,
            Some((index, all)) if all == hosts.len() => Some(hosts[index].folder.clone()),
            _ => {
                return Err("psched's draft of the checkpoint names other nodes than the \
                             application has: try again"
                    .into());
            }
        };
        let shepherd = self.apps.get(&key).and_then(|app| app.shepherd.as_ref());
        let shares = || shepherd.is_some_and(|s| matches!(has_own_space(s.process.pid), Ok(false)));
        if part.is_some() && shares() {
            return Err(format!(
                "application {} was started with isolation=off and shares /dev/shm and IPC with \
                 its host: it can be checkpointed only if all its nodes belong to one apinit",
                key.apid
            ));
        }
        Ok((draft, part))
    }

    /// What there is to be dumped of an application, if it is there just now.
    fn target(&self, key: Key) -> Option<Target> {
        let app = self.apps.get(&key)?;
        Some(Target {
            shepherd: app.shepherd.as_ref()?.process.pid,
            socket: app.directory.socket(),
            lifeline: self.lifeline.clone(),
            groups: app.groups.clone()?,
            owner: (&app.owner).into(),
            ghost_limit: self.ghost_limit,
        })
    }

    /// Borrows the folder, and begins a dump, beside the one task.
    fn prepare(&mut self, number: u64, folder: OwnedFd) {
        let Some(wanted) = self.wanted.get(&number) else { return };
        let user = (wanted.asker.uid, wanted.asker.gid);
        let (part, target) = (wanted.part.is_some(), self.target(wanted.key));
        // (The folder of one on another host is beside the one in which images are made.)
        let times = if wanted.asker.afar.is_some() { 2 } else { 1 };
        let path = match (&self.shelf, self.apps.get(&wanted.key)) {
            (Some(shelf), _) => shelf.stage(wanted.key, number),
            (None, Some(app)) => app.directory.stage(number),
            (None, None) => {
                let why = format!("application {} is no longer here", wanted.key.apid);
                return self.answer(number, Answer::Refused(why));
            }
        };
        let stage = StageRoom { path, times, promised: self.promised.clone() };
        let (criu, events) = (Arc::clone(&self.criu), self.events.clone());
        self.leaving.spawn(async move {
            let done = tokio::task::spawn_blocking(move || {
                let target = target.as_ref();
                Prepared::new(&criu, folder, user, part, stage, target).map(Box::new)
            });
            let result = done.await.unwrap_or_else(lost);
            let _ = events.send(TaskEvent::Prepared(number, result)).await;
        });
    }

    /// It is begun, or why not: the application is brought to a stand.
    pub(super) fn prepared(&mut self, number: u64, prepared: Result<Box<Prepared>, String>) {
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(why) => return self.answer(number, Answer::Refused(why)),
        };
        let Some(wanted) = self.wanted.get_mut(&number) else { return };
        let gone = wanted.given_up();
        wanted.stage = Stage::Asked(prepared);
        if gone {
            return self.give_up(number, None);
        }
        let (uid, afar) = (wanted.asker.uid, wanted.asker.afar.is_some());
        let (key, end) = (wanted.key, wanted.end);
        self.happens(Event::DumpAsked { number, uid, key, end, afar });
    }

    /// Gives back what was lent, and then tells whoever asked, if there is something to tell, for the last time.
    fn give_up(&mut self, number: u64, answer: Option<Answer>) {
        let Some(mut wanted) = self.wanted.remove(&number) else { return };
        let prepared = wanted.written();
        if prepared.is_none() {
            return answer.into_iter().for_each(|answer| wanted.asker.say(answer));
        }
        // CRIU ends before its folder is given back, which is waited for.
        self.leaving.spawn(async move {
            let given_back = tokio::task::spawn_blocking(move || {
                drop(prepared);
                answer.into_iter().for_each(|answer| wanted.asker.say(answer));
            });
            let _ = given_back.await;
        });
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
                Stage::Prepares | Stage::Written | Stage::GivenUp => wanted.stage = Stage::GivenUp,
                Stage::Asked(_) | Stage::Sealed => self.give_up(number, None),
            }
        }
        self.happens(Event::DumpSaid { number, word });
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
                let key = sealing.ok_or("psched has sent no key to seal checkpoints with")?;
                let manifest = join(&said, &parts, wall_ns(), &key);
                manifest.and_then(|manifest| manifest.seal(&key)).map_err(|e| e.to_string())
            });
            let joined = joined.await.unwrap_or_else(lost);
            let _ = events.send(TaskEvent::Joined(number, joined)).await;
        });
    }

    /// Tells whoever asked, for the last time.
    pub(super) fn answer(&mut self, number: u64, answer: Answer) {
        let Some(wanted) = self.wanted.get(&number) else { return };
        if let (Answer::Refused(why), Some(app)) = (&answer, self.apps.get(&wanted.key)) {
            app.span.in_scope(|| tracing::warn!("no checkpoint: {why}"));
        }
        self.give_up(number, Some(answer));
    }

    /// A thread dumps it. Its shepherd has no connection.
    pub(super) fn dump(&mut self, key: Key, number: u64, output_received: u64, stdin_taken: u64) {
        let standing = self.standing(key, number);
        let prepared = self.wanted.get_mut(&number).and_then(Wanted::written);
        let target = self.target(key);
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.dumped_for = Some(number);
        let resume = Resume { output_received, stdin_taken };
        let events = self.events.clone();
        let (prepared, target) = match (prepared, target) {
            (Some(prepared), Some(target)) => (*prepared, target),
            (prepared, _) => {
                let why = match app.groups {
                    Some(_) => "the cpr that requested the checkpoint has ended",
                    None => "without cgroups the application can't be frozen as a whole",
                };
                let why = why.to_owned();
                self.leaving.spawn(async move {
                    let _ = tokio::task::spawn_blocking(move || drop(prepared)).await;
                    let _ = events.send(TaskEvent::Imaged(key, number, Err(why))).await;
                });
                return;
            }
        };
        let criu = Arc::clone(&self.criu);
        let dump = Dump { criu, prepared, standing, target, resume };
        let (span, directory) = (app.span.clone(), app.directory.clone());
        self.leaving.spawn(async move {
            directory.keep_dumped();
            let done = tokio::task::spawn_blocking(move || span.in_scope(|| dump.carry_out()));
            let result = done.await.unwrap_or_else(lost);
            directory.drop_dumped();
            let _ = events.send(TaskEvent::Imaged(key, number, result)).await;
        });
    }

    /// Of a part: how it waits for the others.
    fn standing(&mut self, key: Key, number: u64) -> Option<Standing> {
        let events = self.events.clone();
        let wanted = self.wanted.get_mut(&number).filter(|wanted| wanted.part.is_some())?;
        let (sender, all_stand) = mpsc::sync_channel(1);
        // (Of one who is gone nobody is told any more.)
        wanted.all_stand = (!wanted.given_up()).then_some(sender);
        let stands = Box::new(move || events.blocking_send(TaskEvent::Stands(number)).is_ok());
        Some(Standing { key, stands, all_stand })
    }

    /// The images are there, or not: its shepherd is talked with again.
    pub(super) fn imaged(&mut self, key: Key, number: u64, images: Result<Images, String>) {
        let made = images.is_ok();
        match images {
            Err(why) => self.answer(number, Answer::Refused(why)),
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
        self.own.push(Heard::Imaged(key, number, made));
    }

    /// Connects to its shepherd again.
    pub(super) fn find_shepherd(&mut self, key: Key) {
        let Some(app) = self.apps.get(&key) else { return };
        let (of, events) = (app.directory.clone(), self.events.clone());
        self.leaving.spawn(async move {
            let found = shepherds::find(key, &of, &events).await.map(|(shepherd, _)| shepherd);
            let _ = events.send(TaskEvent::HeardAgain(key, found)).await;
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
                let key = sealing.ok_or("psched has sent no key to seal checkpoints with")?;
                match part {
                    Some(folder) => images.seal_part(&folder, &said, &key),
                    None => images.seal(draft, &key).map(|bytes| (bytes, Bytes::new())),
                }
            });
            let sealed = sealed.await.unwrap_or_else(lost);
            let _ = events.send(TaskEvent::Sealed(number, sealed)).await;
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
        self.answer(number, Answer::Refused(why));
        // One that is to end stands still.
        self.happens(Event::DumpSaid { number, word: DumpWord::Gone });
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
            let stands = app.and_then(|app| Some(app.stands_since?.elapsed()));
            let frozen = wanted.stood.or(stands).unwrap_or_default();
            let total = wanted.since.elapsed();
            if let Some(app) = app {
                app.span.in_scope(|| tracing::info!(bytes, ?frozen, ?total, "checkpointed"));
            }
            wanted.stage = Stage::Sealed;
            // The application has gone on by then; and his place here is another's.
            let long = wanted.part.is_some() || wanted.asker.afar.is_some();
            let wait = if long { PARTS_WAIT } else { NAME_WAIT };
            wanted.asker.expect_within(wait + NAME_MARGIN);
            wanted.asker.say_much(Answer::Dumped { bytes, frozen, total, part });
        }
    }

    /// Its shepherd is there again, or has gone.
    pub(super) fn heard_again(&mut self, key: Key, found: Option<Shepherd>) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let stood = app.stands_since.take().map(|since| since.elapsed());
        let number = app.dumped_for.take();
        if let Some(wanted) = number.and_then(|number| self.wanted.get_mut(&number)) {
            wanted.stood = stood;
        }
        let there = found.is_some();
        if there {
            app.shepherd = found;
        }
        self.own.push(Heard::HeardAgain(key, there));
    }

    /// A former life of this apinit has ended while it was dumped: it is let go on once nobody dumps it any
    /// more. (CRIU goes on without its apinit, and lets go of every process in the end.)
    /// False: it was not dumped then.
    pub(super) fn thaw_dumped(&mut self, key: Key) -> bool {
        let dumped = |app: &&App| app.directory.dumped();
        let Some(app) = self.apps.get(&key).filter(dumped) else { return false };
        let Some(groups) = app.groups.clone() else { return false };
        let (directory, span) = (app.directory.clone(), app.span.clone());
        let events = self.events.clone();
        self.leaving.spawn(async move {
            let until = Instant::now() + THAW_BOUND;
            let traced = || groups.left().iter().any(|(_, pid)| tracer(*pid).is_some());
            // Looked at twice: CRIU takes one after the other.
            let mut free = 0;
            while free < 2 && Instant::now() < until {
                tokio::time::sleep(THAW_LOOK).await;
                free = if traced() { 0 } else { free + 1 };
            }
            let thawed = groups.freezer().and_then(|freezer| freezer.freeze(false));
            span.in_scope(|| match thawed {
                Ok(()) => tracing::info!("the application continues after an interrupted dump"),
                Err(error) => tracing::warn!(%error, "the application stays frozen after a dump"),
            });
            directory.drop_dumped();
            let _ = events.send(TaskEvent::Thawed(key)).await;
        });
        true
    }
}
