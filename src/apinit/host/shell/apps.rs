//! Making, finding, emptying and removing applications.

use super::{GO_HOME, Shell, TaskEvent};
use crate::apinit::decide::{Agent, Event, Found};
use crate::apinit::drive::{Driver, Left};
use crate::apinit::host::attach::{Front, next_conn, wait_for_end};
use crate::apinit::host::coming::{Coming, RestoreFrom};
use crate::apinit::host::memory_out::bytes_in;
use crate::apinit::host::notes::Subject;
use crate::apinit::host::places::{self, Look, Seating, Stray};
use crate::apinit::host::process_tracking::{self, Born, Shepherds, Trail};
use crate::apinit::host::runtime::{AppDirectory, Process};
use crate::apinit::host::shepherd_handle::{Shepherd, room_of_shepherd};
use crate::apinit::host::shepherds::{self, Making};
use crate::apinit::host::switching::Meter;
use crate::apinit::host::{hardware, rebind};
use crate::apshepherd::decide::NAMED_MAX;
use crate::apteam::Key;
use crate::apteam::posting::Owner;
use crate::apteam::protocol::node::PlaceCommand;
use crate::apteam::protocol::shepherd::misfit;
use crate::machine::Nid;
use crate::node::groups::{AppGroups, Limits, Seat};
use crate::node::stuck::{self, Wait};
use crate::node::yields;
use crate::os::instance;
use crate::os::pmix_folder;
use crate::os::space::Space;
use crate::variables::Isolation;
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a group may take to be removed before what is in it is killed.
const GROUP_WAIT: Duration = Duration::from_millis(500);
/// How long groups are waited for before more is done about what is in them.
const EMPTY_WAIT: Duration = Duration::from_secs(1);

/// What there is of one application.
#[derive(Debug)]
pub(super) struct App {
    pub(super) directory: AppDirectory,
    pub(super) groups: Option<AppGroups>,
    /// By what its groups are known, and its processes.
    pub(super) mark: String,
    pub(super) marker: String,
    /// The PEs, leaders of sessions, where there are no groups.
    pub(super) sessions: Vec<Process>,
    pub(super) owner: Owner,
    pub(super) shepherd: Option<Shepherd>,
    /// (Of one that was brought back from a checkpoint.) The first process of its PID namespace, which ends
    /// as its shepherd does, and is a child of ours.
    pub(super) first: Option<i32>,
    /// How it ended, if it has been waited for.
    pub(super) exit: Option<String>,
    /// Its shepherd can't be heard any more.
    pub(super) silent: bool,
    /// Everything in it has had its KILL.
    pub(super) killed: bool,
    /// Its PEs are being made: until they stand before their first instruction they may still be on
    /// apshepherd's processors.
    pub(super) forms: bool,
    /// Where its processes belong.
    pub(super) seating: Arc<Mutex<Seating>>,
    /// Its threads at the last look for those, by number.
    pub(super) waits: BTreeMap<i32, Wait>,
    /// What it runs, once it has come.
    pub(super) meter: Option<Arc<Meter>>,
    /// Of its memory, as it was told last.
    pub(super) peaks: BTreeMap<Nid, u64>,
    /// It is being brought back from there: whether that is still wanted.
    pub(super) comes: Option<Arc<AtomicBool>>,
    /// Since when it has stood, without a connection to its shepherd.
    pub(super) stands_since: Option<Instant>,
    /// The question for which it is dumped.
    pub(super) dumped_for: Option<u64>,
    /// The folder of the checkpoint that it is restored from, until it is.
    pub(super) restore_from: Option<RestoreFrom>,
    /// Its files come from another host, for which its restore waits.
    pub(super) coming: Option<Coming>,
    /// Its PEs are kept from their user's session bus.
    pub(super) busless: bool,
    pub(super) span: tracing::Span,
}

impl App {
    /// Where there are no groups: what leads to its processes.
    pub(super) fn trail(&self, shepherds: &Shepherds) -> Trail {
        let gone = self.silent || self.shepherd.is_none();
        let shepherd = self.shepherd.as_ref().map(|shepherd| shepherd.process);
        let shepherd = shepherd.or_else(|| self.directory.process("shepherd"));
        let started = shepherd.map_or(0, |process| process.started);
        Trail {
            markers: [(self.marker.clone(), Born { uid: self.owner.uid, started })].into(),
            sessions: self.sessions.clone(),
            orphans: gone.then(|| shepherds.clone()),
        }
    }

    /// Its PEs are all there. Where there are no groups their sessions are kept.
    pub(super) fn keep_sessions(&mut self) {
        if let Some(shepherd) = self.shepherd.as_ref().filter(|_| self.groups.is_none()) {
            self.sessions = process_tracking::children(shepherd.process.pid);
            self.directory.keep_sessions(&self.sessions);
        }
    }
}

fn application_span(place: &PlaceCommand, nids: &[Nid]) -> tracing::Span {
    let nid = nids.first().map_or(0, |nid| nid.0);
    tracing::info_span!("application", apid = place.key.apid.0, nid, uid = place.owner.uid)
}

/// Where it is kept to itself, if it is to be.
pub(super) fn isolated(space: Option<&Space>, place: &PlaceCommand) -> Option<Space> {
    let space = space.filter(|space| match place.isolation {
        Isolation::Auto => true,
        Isolation::Root => !space.own_user(),
        Isolation::Off => false,
    })?;
    Some(match place.user_bus {
        true => space.clone(),
        false => space.of_user(place.owner.uid, place.owner.gid),
    })
}

/// Takes the session bus out of what PEs are given, where they are kept from it.
pub(super) fn without_bus(environment: &mut Vec<Vec<u8>>) {
    environment.retain(|item| !item.starts_with(b"DBUS_SESSION_BUS_ADDRESS="));
}

/// The first processes of those that are left, in words.
fn named(groups: Option<&AppGroups>, trail: &Trail, nid: Nid) -> Vec<String> {
    let (left, unseen) = match groups {
        Some(groups) => (groups.left(), Vec::new()),
        None => {
            let found = trail.find();
            (found.ours.iter().map(|process| (nid, process.pid)).collect(), found.unseen)
        }
    };
    let left = left.into_iter().filter_map(|(nid, pid)| stuck::describe(pid, None, nid));
    let unseen = unseen.iter().filter_map(|process| stuck::unseen(process.pid, nid));
    left.chain(unseen).take(NAMED_MAX).collect()
}

impl Shell {
    /// What a former life has left running.
    pub async fn take_up(&mut self, agent: &Agent) -> Vec<Left> {
        let (mut asked, mut cleared) = (Vec::new(), tokio::task::JoinSet::new());
        for (key, directory) in self.runtime.applications() {
            let begun = rebind::finish(&directory);
            let Some(place) = begun.or(directory.place()).filter(|place| place.key == key) else {
                // It had only begun to be made: psched will say it again.
                cleared.spawn(async move { clear(&directory).await });
                continue;
            };
            // All at once: each has to wake up, and one that is stopped holds up no other.
            let (of, events) = (directory.clone(), self.events.clone());
            let away = directory.away().is_some();
            let goes_on = Driver::goes_on(&place, away);
            let hello = tokio::spawn(async move {
                if goes_on { shepherds::find(key, &of, &events).await } else { None }
            });
            asked.push((key, directory, place, hello, away));
        }
        // (All have the same time.)
        cleared.join_all().await;
        let mut all = Vec::new();
        for (key, directory, place, hello, away) in asked {
            let nids = self.nids_here(&place);
            // An Err: it has panicked, which is as good as no answer.
            let found = hello.await.ok().flatten();
            let (shepherd, hello) = found.unzip();
            let hello = hello.flatten();
            let silent = shepherd.is_some() && hello.is_none();
            if shepherd.is_none()
                && let Some(pidfd) = directory.process("shepherd").and_then(Process::opened)
            {
                let _ = rustix::process::pidfd_send_signal(pidfd, rustix::process::Signal::KILL);
            }
            let groups = directory.groups();
            let born = match place.moved.born.is_empty() {
                true => nids.clone(),
                false => place.moved.born.clone(),
            };
            let mut groups = groups.and_then(|path| AppGroups::found(path, born));
            if let Some(groups) = groups.as_mut().filter(|_| !place.moved.born.is_empty()) {
                groups.moved(nids.clone());
            }
            if let Some(groups) = groups.as_ref().filter(|_| away) {
                // What is there of it is no more than its images are: it has run nothing since.
                directory.drop_dumped();
                let frozen = groups.freezers();
                let frozen = frozen.and_then(|all| all.iter().try_for_each(|f| f.freeze(true)));
                if let Err(error) = frozen {
                    tracing::warn!(%key, %error, "the control groups of an application can't be \
                                                  frozen");
                }
            }
            let mut front_died = false;
            let front = directory.process("front").map(|process| {
                let conn = next_conn();
                let opened = process.open().map(|pidfd| pidfd.map(Arc::new));
                front_died = matches!(opened, Ok(None));
                let events = &self.events;
                let front = match opened {
                    Ok(pidfd) => Front::new(conn, None, Some(process), pidfd, None, events),
                    Err(error) => {
                        tracing::warn!(pid = process.pid, %error, "can't watch an aprun yet");
                        Front::unopened(conn, process, events)
                    }
                };
                self.fronts.insert(conn, front);
                conn
            });
            let span = application_span(&place, &nids);
            span.in_scope(|| tracing::info!(shepherd = hello.is_some(), "found again"));
            let note = hello.as_ref().and_then(|hello| misfit(hello.protocol)).map(|why| {
                span.in_scope(|| tracing::warn!("its apshepherd does not answer: {why}"));
                format!("its apshepherd does not answer: {why}; or end the application with apkill")
            });
            self.note(Subject::Unheard(key), note);
            let app = App {
                groups,
                // (Not kept where there are groups, which need no trail.)
                mark: String::new(),
                marker: directory.marker().unwrap_or_else(|| Self::marker(agent, key)),
                sessions: directory.sessions(),
                owner: place.owner.clone(),
                shepherd,
                first: None,
                exit: None,
                silent: false,
                killed: false,
                span,
                forms: false,
                seating: Arc::new(Mutex::new(Seating::default())),
                waits: BTreeMap::new(),
                meter: None,
                peaks: BTreeMap::new(),
                comes: None,
                stands_since: None,
                dumped_for: None,
                restore_from: None,
                coming: None,
                busless: isolated(self.space.as_ref(), &place).is_some_and(|s| s.hides_user_bus()),
                directory: directory.clone(),
            };
            if let Some(groups) = &app.groups {
                places::lock(&app.seating).seats = self.seats(agent, &place, groups.born());
            }
            self.apps.insert(key, app);
            directory.drop_stages();
            let thawing = self.thaw_dumped(key);
            let going_ns = directory.going();
            let bytes = directory.away().map(|images| bytes_in(&images));
            let found = Found {
                place,
                going_ns,
                ran_ns: self.found_ran(key),
                hello,
                silent,
                away: bytes,
                front,
                gone: directory.gone(),
                adopted: directory.adopted(),
            };
            all.push(Left { found, front_died, thawing });
        }
        if let Some(shelf) = &self.shelf {
            let away = all.iter().map(|left| &left.found).filter(|found| found.away.is_some());
            shelf.keep_only(&away.map(|found| found.place.key).collect());
        }
        all
    }

    /// Ends applications that run in control groups of these nodes without a record in the runtime
    /// directory, which somebody has removed. Called once in a life of this apinit, when psched has
    /// accepted it: psched is about to be told that these nodes are empty, and would place other
    /// applications there. (An apinit that psched refuses has no say over these nodes.)
    pub(super) fn end_unrecorded(&mut self, agent: &Agent) {
        let Some(groups) = self.groups.as_ref().filter(|_| !self.unrecorded_ended) else { return };
        self.unrecorded_ended = true;
        let mut known = self.runtime.groups_on_record();
        let held = self.apps.values().filter_map(|app| app.groups.as_ref());
        known.extend(held.map(|groups| groups.path().to_owned()));
        let nids: BTreeSet<Nid> = self.hello.borrow().nids.iter().copied().collect();
        let mut ended = Vec::new();
        for (key, unknown) in groups.unknown(&Self::mark(agent), &nids, &known) {
            let note = "its processes were ended: the runtime directory of its apinit has no \
                        record of it";
            tracing::warn!(group = %unknown.path().display(), "application {key}: {note}");
            unknown.kill(true);
            ended.push((key, note.to_owned()));
            self.leaving.spawn(remove_groups(unknown));
        }
        for (key, note) in ended {
            self.note(Subject::Unrecorded(key), Some(note));
        }
    }

    pub(super) fn nids_here(&self, place: &PlaceCommand) -> Vec<Nid> {
        let own = &self.hello.borrow().nids;
        place.places.nids().filter(|nid| own.contains(nid)).collect()
    }

    /// By what new groups and processes are known: the beginning of the store's id, or the private instance.
    fn mark(agent: &Agent) -> String {
        match std::env::var_os(instance::RUNTIME) {
            Some(folder) => instance::mark(std::path::Path::new(&folder)),
            None => agent.store_mark().to_owned(),
        }
    }

    /// What a new one's processes bear. Another store may adopt it: it keeps what it was born with.
    fn marker(agent: &Agent, key: Key) -> String {
        format!("{}.{key}", Self::mark(agent))
    }

    /// Makes its folder. It is known from now on.
    pub(super) fn folder(
        &mut self,
        agent: &Agent,
        place: &PlaceCommand,
        nids: &[Nid],
    ) -> anyhow::Result<()> {
        let key = place.key;
        let directory = self.runtime.make(key).context("can't make its runtime directory")?;
        let app = App {
            directory,
            groups: None,
            mark: Self::mark(agent),
            marker: Self::marker(agent, key),
            sessions: Vec::new(),
            owner: place.owner.clone(),
            shepherd: None,
            first: None,
            exit: None,
            silent: false,
            killed: false,
            forms: true,
            seating: Arc::new(Mutex::new(Seating::at(self.seats(agent, place, nids)))),
            waits: BTreeMap::new(),
            meter: None,
            peaks: BTreeMap::new(),
            comes: None,
            stands_since: None,
            dumped_for: None,
            restore_from: None,
            coming: None,
            busless: false,
            span: application_span(place, nids),
        };
        self.apps.insert(key, app);
        Ok(())
    }

    /// Makes its groups.
    pub(super) fn groups(
        &mut self,
        agent: &Agent,
        place: &PlaceCommand,
        nids: &[Nid],
    ) -> anyhow::Result<()> {
        let limits: BTreeMap<Nid, Limits> =
            nids.iter().map(|nid| (*nid, self.limits_of(agent, place, *nid))).collect();
        let (key, alone, room) = (place.key, place.host_count() == 1, room_of_shepherd(place));
        if let Some((app, groups)) = self.apps.get_mut(&key).zip(self.groups.as_ref()) {
            let made = groups.make(&app.mark, key, &limits, alone, room);
            app.groups = Some(made.context("can't make its groups")?);
        }
        Ok(())
    }

    /// Starts its shepherd.
    pub(super) fn shepherd(&mut self, place: &PlaceCommand) -> anyhow::Result<()> {
        let key = place.key;
        let app = self.apps.get_mut(&key).context("it is no longer here")?;
        let space = isolated(self.space.as_ref(), place);
        app.busless = space.as_ref().is_some_and(Space::hides_user_bus);
        let making = Making {
            program: &self.apshepherd,
            place,
            directory: &app.directory,
            groups: app.groups.as_ref(),
            lifeline: self.lifeline.as_deref(),
            space: space.as_ref(),
        };
        let shepherd = making.make(key, &self.events)?;
        // At once: no other child of ours is believed to be somebody's.
        self.shepherds.made(shepherd.process.pid);
        app.shepherd = Some(shepherd);
        app.span.in_scope(|| tracing::info!("shepherd made"));
        Ok(())
    }

    /// Where an application may run on a node: on the processors that it has there.
    fn seat(&self, agent: &Agent, place: &PlaceCommand, nid: Nid) -> Seat {
        let Some(part) = place.places.0.iter().find(|part| part.nid == nid) else {
            return Seat::default();
        };
        let cpus: BTreeSet<u32> = agent.cpus_at(part).into_iter().collect();
        let all = agent.cpus_of_node(nid);
        let mems = hardware::mems_of(&all, &self.numa, &self.memory_nodes);
        Seat { cpus: cpus.into_iter().collect(), mems }
    }

    /// The same of all its nodes here, in the order of its places, by the names of its groups.
    pub(super) fn seats(
        &self,
        agent: &Agent,
        place: &PlaceCommand,
        born: &[Nid],
    ) -> BTreeMap<Nid, Seat> {
        let now = self.nids_here(place).into_iter().map(|nid| self.seat(agent, place, nid));
        born.iter().copied().zip(now).collect()
    }

    /// What an application may have on a node.
    pub(super) fn limits_of(&self, agent: &Agent, place: &PlaceCommand, nid: Nid) -> Limits {
        let pes = place.places.0.iter().find(|p| p.nid == nid).map_or(0, |p| p.pes);
        let memory = place.memory_per_pe.map(|each| each.saturating_mul(pes.into()));
        Limits { memory, pids: place.pids_max, seat: self.seat(agent, place, nid) }
    }

    /// Looks whether everything is where it belongs, beside the one task.
    pub(super) fn look_at_places(&mut self, driver: &Driver) {
        self.programs.let_leave();
        if self.looking {
            return;
        }
        // An application that is dumped or restored is moved about on purpose.
        let still = |key: &Key, app: &App| {
            let moved = app.comes.is_some() || driver.is_set_aside(*key);
            !moved && !app.forms && !app.killed && !app.silent
        };
        let look = |(key, app): (&Key, &App)| {
            let shepherd = app.shepherd.as_ref()?.process.pid;
            let (groups, seating) = (app.groups.clone()?, Arc::clone(&app.seating));
            Some(Look { key: *key, groups, shepherd, seating })
        };
        let apps = self.apps.iter().filter(|(key, app)| still(key, app));
        let all: Vec<Look> = apps.filter_map(look).collect();
        if all.is_empty() {
            return;
        }
        self.looking = true;
        let (last, events) = (self.looked_at, self.events.clone());
        self.leaving.spawn(async move {
            let done = tokio::task::spawn_blocking(move || places::round(all, last)).await;
            let (found, last) = done.unwrap_or_default();
            let _ = events.send(TaskEvent::Looked(found, last)).await;
        });
    }

    /// What was found.
    pub(super) fn looked_at_places(&mut self, strays: Vec<Stray>, last: Option<Key>) {
        (self.looking, self.looked_at) = (false, last);
        for Stray { key, text } in strays {
            let Some(app) = self.apps.get(&key) else { continue };
            app.span.in_scope(|| tracing::warn!("{text}"));
            // Its user and the node's notes are told of the first only: there may be one each
            // second.
            if self.notes.get(Subject::Strayed(key)).is_none() {
                self.note(Subject::Strayed(key), Some(text.clone()));
                self.happens(Event::Strayed(key, text));
            }
        }
    }

    /// The PEs on these nodes give way: their shepherd has made them nicer, and their sessions are left.
    pub(super) fn give_way(&mut self, key: Key, nids: &[Nid], nice: u32) {
        let Some(app) = self.apps.get(&key) else { return };
        let _in = app.span.enter();
        let first = !std::mem::replace(&mut self.yields_told, true);
        let Some(groups) = &app.groups else {
            if first {
                tracing::warn!(
                    "yield_nice: without cgroups only PEs are nicer, not their sessions"
                );
            }
            return;
        };
        let pes = groups.left().into_iter().filter(|(nid, _)| nids.contains(nid));
        if let Err(error) = yields::sessions(pes.map(|(_, pid)| pid), nice) {
            tracing::warn!("yield_nice: PEs are nicer, but not all of their sessions: {error}");
        }
        if let Some(group) = yields::cpu_group(groups.path()).filter(|_| first) {
            tracing::warn!(
                "yield_nice: PEs give way only to processes of their cpu group {group}; give \
                 that less weight than the system's (systemd: CPUWeight=, see apinit(8))"
            );
        }
    }

    /// Tells when nothing is left in its groups, or what is after a while. Where there are no groups a [`Trail`]
    /// leads to the processes of one whose shepherd has died.
    pub(super) fn wait_until_empty(&mut self, key: Key) {
        let Some(app) = self.apps.get(&key) else { return };
        let (groups, trail, killed) = (app.groups.clone(), app.trail(&self.shepherds), app.killed);
        let place = app.directory.place();
        let nid = place.and_then(|place| self.nids_here(&place).first().copied());
        let nid = nid.unwrap_or_default();
        let events = self.events.clone();
        self.leaving.spawn(async move {
            let begun = tokio::time::Instant::now();
            let mut pause = Duration::from_micros(100);
            let event = loop {
                let left = match &groups {
                    Some(groups) if groups.empty() => 0,
                    Some(groups) => groups.processes().max(1),
                    // On the one thread that also makes shepherds: none is made meanwhile.
                    None => u32::try_from(trail.find().len()).unwrap_or(u32::MAX),
                };
                if left == 0 {
                    break TaskEvent::GroupsEmpty(key);
                }
                if begun.elapsed() > EMPTY_WAIT {
                    let named = if killed { named(groups.as_ref(), &trail, nid) } else { vec![] };
                    break TaskEvent::GroupsStuck(key, left, named);
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(50));
            };
            let _ = events.send(event).await;
        });
    }

    /// Removes all of it, once its shepherd has gone.
    pub(super) fn remove(&mut self, key: Key) {
        let Some(app) = self.apps.remove(&key) else { return };
        self.programs.remove(key);
        if self.notes.forget(key) {
            self.tell_notes();
        }
        self.leaving.spawn(remove_app(app));
    }

    /// What is being removed has a moment for it.
    pub async fn finish(mut self) {
        let all = async { while self.leaving.join_next().await.is_some() {} };
        // An Err: a restart removes the rest.
        let _ = tokio::time::timeout(Duration::from_secs(1), all).await;
        self.programs.close();
    }

    /// Kills what is left and removes every trace, within a bound.
    pub async fn end_everything(mut self) {
        let apps = std::mem::take(&mut self.apps);
        let keys: Vec<Key> = apps.keys().copied().collect();
        self.fronts.clear();
        self.heads.clear();
        self.peers.clear();
        self.link = None;
        // Of all together: each search looks through all processes there are.
        let without = apps.values().filter(|app| app.groups.is_none());
        let trail = without.map(|app| app.trail(&self.shepherds)).reduce(Trail::and);
        for app in apps.into_values() {
            if let Some(groups) = &app.groups {
                groups.kill(true);
            }
            if let Some(shepherd) = &app.shepherd {
                shepherd.kill();
            }
            self.leaving.spawn(remove_app(app));
        }
        if let Some(trail) = trail {
            trail.kill();
        }
        keys.into_iter().for_each(|key| self.programs.remove(key));
        let (runtime, programs) = (self.runtime, self.programs);
        let mut leaving = self.leaving;
        let all = async { while leaving.join_next().await.is_some() {} };
        if tokio::time::timeout(GO_HOME, all).await.is_err() {
            tracing::warn!("some processes of applications do not die");
        }
        programs.close();
        runtime.remove();
        pmix_folder::wait(Duration::from_secs(1));
    }
}

/// How long what has no placement may take to die. (Nothing else remembers its groups: on a busy host it takes its
/// time.)
const CLEARED: Duration = Duration::from_secs(30);

/// Ends and removes what has no placement. That is waited for: psched will place it here again, and
/// what is born into a group that was killed may be killed as well.
async fn clear(directory: &AppDirectory) {
    if let Some(pidfd) = directory.process("shepherd").and_then(Process::opened) {
        let _ = rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL);
    }
    if let Some(groups) = directory.groups().and_then(|p| AppGroups::found(p, vec![])) {
        groups.kill(true);
        // An Err: what does not die is removed with the application that is placed here.
        let _ = tokio::time::timeout(CLEARED, remove_groups(groups)).await;
    }
    directory.remove();
}

async fn remove_app(app: App) {
    let App { directory, groups, shepherd, .. } = app;
    if let Some(shepherd) = shepherd {
        let pidfd = shepherd.pidfd.clone();
        if let Some(pidfd) = pidfd {
            let gone = tokio::time::timeout(GO_HOME, wait_for_end(pidfd)).await;
            if gone.is_err() {
                tracing::warn!(pid = shepherd.process.pid, "an apshepherd does not exit");
                shepherd.kill();
            }
        }
    }
    if let Some(groups) = groups {
        remove_groups(groups).await;
    }
    // Last: by it an apinit that is started again knows of the groups.
    directory.remove();
}

async fn remove_groups(groups: AppGroups) {
    let mut pause = Duration::from_micros(200);
    let begun = tokio::time::Instant::now();
    let (mut kills, mut told) = (GROUP_WAIT, false);
    while !groups.remove() {
        // A user may have traced the shepherd before it forbade that, and left something there. (And again later:
        // that may have had children.)
        if begun.elapsed() > kills {
            groups.kill(true);
            kills *= 2;
        }
        // (A killed process that waits for a disk in the kernel may need minutes to end.)
        if begun.elapsed() > GO_HOME && !std::mem::replace(&mut told, true) {
            tracing::warn!(group = %groups.path().display(), "a group can't be removed yet");
        }
        tokio::time::sleep(pause).await;
        pause =
            (pause * 2).min(if told { Duration::from_secs(1) } else { Duration::from_millis(50) });
    }
}
