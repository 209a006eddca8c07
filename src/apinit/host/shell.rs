//! The one task: events in, the agent, actions out.

mod apps;
mod away;
mod checkpoints;
mod restores;
mod turns;

use super::attach::{Front, FrontSender};
use super::away::{Returned as OfAway, Shelf};
use super::claims::Claims;
use super::door::Asker;
use super::dump::{Images, Prepared};
use super::link::{self, Link};
use super::peers::Peer;
use super::places;
use super::restore::Returned;
use super::runtime::{Process, Runtime};
use super::shepherds::{Program, Shepherd};
use super::switching::Switching;
use super::trail::Shepherds;
use super::{Options, Paths, hardware};
use crate::apinit::decide::switcher::News;
use crate::apinit::decide::{Action, Agent, Conn, Happening, Me};
use crate::apteam::bounds::HostBounds;
use crate::apteam::ending::Cause;
use crate::apteam::talk::attach::{FromApinit, ToApinit};
use crate::apteam::talk::node::{Command, Hello, NodeSpec, PROTOCOL, Report, RollOut, Welcome};
use crate::apteam::talk::shepherd::{FromShepherd, ToShepherd};
use crate::apteam::talk::turns::{SlicePlan, StopMeans};
use crate::apteam::{Key, SealKey};
use crate::machine::{Nid, nids_text};
use crate::node::checkpoint::door::{Answer, Ask};
use crate::node::checkpoint::{Known, break_off};
use crate::node::groups::Groups;
use crate::os::host::{monotonic_ns, return_memory};
use crate::os::notify::Notify;
use crate::os::shed::dumps_all;
use crate::os::space::Space;
use crate::os::wait;
use crate::rpc::listen::{Bounds, Peer as Caller};
use crate::rpc::pb;
use anyhow::Context;
use apps::App;
pub(super) use apps::room_of_shepherd;
use bytes::Bytes;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::DropGuard;
use tokio_util::task::AbortOnDropHandle;

/// Events that may wait: who tells more is held back.
const EVENTS: usize = 512;
/// How long a shepherd may take to go home.
const GO_HOME: Duration = Duration::from_secs(4);
/// While events wait, slice plans that have changed are kept once for so many: where hundreds of
/// applications end at once each would have the file of all plans written anew.
const PLANS_FOR: u32 = 64;

/// Bytes of launches that have waited and wait no more, after which their memory is given back: as
/// a rule no such launch is large.
const MEMORY_RETURNED: u64 = 8 * 1024 * 1024;

/// A connection takes its socket and its peer's pidfd, and usually brings an application: what apinit
/// has open for that one's shepherd, groups and files.
const FILES_EACH: u64 = 8;

/// Where the tasks tell.
pub(super) type Events = mpsc::Sender<Event>;

/// What the tasks tell.
#[derive(Debug)]
pub(super) enum Event {
    LinkUp(Link, Welcome),
    LinkDown,
    Commanded(u64, Command),
    /// Commits of its store.
    Counted(u64),
    FrontOpened {
        conn: Conn,
        peer: Caller,
        sender: FrontSender,
        listening: DropGuard,
    },
    FrontSaid(Conn, ToApinit),
    FrontMalformed(Conn, String),
    FrontClosed(Conn),
    FrontDied(Conn),
    ShepherdSaid(Key, FromShepherd),
    ShepherdSilent(Key, String),
    PeerSaid {
        key: Key,
        index: u32,
        generation: u64,
        message: FromApinit,
    },
    PeerLost {
        key: Key,
        index: u32,
        generation: u64,
        text: String,
    },
    GroupsEmpty(Key),
    GroupsStuck(Key, u32, Vec<String>),
    Turns(News),
    /// How it went, and where the application is then.
    Rebound(Key, Vec<Nid>, Result<(), String>),
    /// What was brought back, or why not.
    Restored(Key, Result<Box<Returned>, String>),
    /// The kernel has worked for it in turns of others: all its processor time there so far.
    Overran(Key, Duration),
    /// The thread that changes gangs has ended by itself.
    SwitchingDead,
    /// At the door.
    Asked {
        asker: Asker,
        ask: Ask,
        descriptor: OwnedFd,
    },
    /// Under this number; none: he is gone.
    AskedMore(u64, Option<Ask>),
    /// The folder that came with the question of this number is borrowed, and a dump is begun; or why not.
    Prepared(u64, Result<Box<Prepared>, String>),
    /// A part of an application stands still, for the question of this number.
    Stands(u64),
    /// Images are made, or why not.
    Imaged(Key, u64, Result<Images, String>),
    /// His folder is a checkpoint of so many bytes, or a part of one, which is said so; or why not.
    Sealed(u64, Result<(u64, Bytes), String>),
    /// The text of the manifest of all parts, or why there is none.
    Joined(u64, Result<String, String>),
    /// A shepherd that was dumped, if it lives; and what is to happen once it is talked with again.
    HeardAgain {
        key: Key,
        found: Option<Shepherd>,
        then: Box<Happening>,
    },
    /// A dump that a former life had begun of one is over.
    Thawed(Key),
    /// An application's memory is out, in so many bytes of images, or why not.
    TookOut(Key, Result<u64, String>),
    /// It is back, or why not.
    CameBack(Key, Result<Box<OfAway>, String>),
    /// What was found of applications where it does not belong, and which of them was the last to
    /// be looked at.
    Looked(Vec<places::Stray>, Option<Key>),
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// apinit goes, applications stay.
    Alone,
    /// Everything goes.
    Everything,
}

/// The one task's things.
pub(super) struct Shell {
    agent: Agent,
    runtime: Runtime,
    groups: Option<Groups>,
    switching: Switching,
    /// Without the thread that changes gangs nothing goes on here: another apinit has to take over.
    broken: bool,
    /// Where an application is kept to itself, if that is possible here.
    space: Option<Space>,
    apshepherd: Program,
    lifeline: Option<Arc<OwnedFd>>,
    apps: BTreeMap<Key, App>,
    shepherds: Shepherds,
    fronts: BTreeMap<Conn, Front>,
    peers: BTreeMap<(Key, u32), Peer>,
    generation: u64,
    link: Option<Link>,
    hello: watch::Sender<Hello>,
    /// The limit of open files.
    files: u64,
    /// How many connections there may be.
    bounds: watch::Sender<Bounds>,
    psched: PathBuf,
    /// Which processors are used here, for other pscheds.
    claims: Claims,
    events: Events,
    incoming: mpsc::Receiver<Event>,
    /// What the shell itself has to say next.
    own: VecDeque<Happening>,
    /// The most that launches which wait have had since memory was given back.
    waiting_bytes: u64,
    timer_ns: Option<u64>,
    /// Slice plans that are still to be kept, and the events since.
    plans_due: Option<Vec<SlicePlan>>,
    plans_wait: u32,
    /// The NUMA node of each real processor.
    numa: BTreeMap<u32, u32>,
    /// The NUMA nodes that have memory.
    memory_nodes: BTreeSet<u32>,
    /// The application at whose places was looked last.
    looked_at: Option<Key>,
    /// It is being looked.
    looking: bool,
    /// It was said what keeps PEs from giving way.
    yields_told: bool,
    /// It was looked for groups of applications that are not on record.
    unrecorded_ended: bool,
    /// Checkpoints that somebody at the door wants, by the number of the question.
    wanted: BTreeMap<u64, checkpoints::Wanted>,
    /// What they are sealed with, once psched has said it.
    sealing: Option<SealKey>,
    /// What makes their images.
    criu: Arc<Known>,
    /// Where memory goes that no swap takes.
    shelf: Option<Shelf>,
    /// Bytes that an application may have in removed files which are still open, where it is
    /// dumped.
    ghost_limit: u64,
    /// Shepherds on their way home, and what is to be removed after them.
    leaving: JoinSet<()>,
    children: Signal,
}

/// What the note begins with of an apinit whose nodes have more processors than its host.
const CROWDED: &str = "its nodes have";

impl Shell {
    /// A new one, and where events are told to it.
    pub fn new(
        options: &Options,
        paths: &Paths,
        runtime: Runtime,
        files: u64,
        apshepherd: Program,
        lifeline: Option<OwnedFd>,
    ) -> anyhow::Result<(Shell, Events)> {
        let mut notes = Vec::new();
        let groups = match Groups::discover(options.groups.as_deref()) {
            Ok(groups) => Some(groups),
            // Asked for, so not to be done without.
            Err(why) if options.groups.is_some() => anyhow::bail!(
                "--groups: {why}; is psched-groups.service running? (systemctl start psched-groups)"
            ),
            Err(why) => {
                notes.push(format!(
                    "no cgroups ({why}): processes are found by descent, session and environment, \
                     memory (-m) and processes (pids_max) are not limited, processors are not enforced"
                ));
                None
            }
        };
        let (events, incoming) = mpsc::channel(EVENTS);
        let plans = runtime.plans();
        let (switching, late) = Switching::start(events.clone(), plans.clone())?;
        let root = nix::unistd::geteuid().is_root();
        let space = Space::prepare(!root);
        let space = match space.probe() {
            Ok(()) => Some(space),
            Err(why) => {
                let bus = if root { ", and reach the service managers of their users" } else { "" };
                notes.push(format!(
                    "not isolated: {why}; applications share /dev/shm and System V IPC with everybody{bus}"
                ));
                None
            }
        };
        if root && dumps_all() {
            notes.push(
                "users can trace their apshepherds while these begin, and so keep processes out of \
                 their applications: set the sysctl fs.suid_dumpable to 0 or 2"
                    .into(),
            );
        }
        for note in &notes {
            tracing::warn!("{note}");
        }
        // What is not limited here, and not on time, is so in most private instances.
        for note in groups.iter().flat_map(Groups::notes).chain(&late) {
            tracing::info!("{note}");
            notes.push(note.clone());
        }
        let (claims, cpus) = match lifeline {
            Some(_) => (Claims::default(), hardware::cpus()),
            None => {
                let nids = nids_text(options.nodes());
                let name = format!("the apinit of {nids} of {}", paths.psched.display());
                Claims::begin(&paths.psched, name, &runtime, hardware::cpus())
            }
        };
        let me = Me {
            nids: options.nodes(),
            uid: nix::unistd::geteuid().as_raw(),
            cpus,
            numa: hardware::numa_nodes(Path::new("/sys/devices/system/node")),
            boot_id: options.host_id.clone().unwrap_or_else(crate::os::host::boot_id),
        };
        let criu = Arc::<Known>::default();
        let back_ends = checkpoints::back_ends(&criu, &mut notes);
        let lowest = me.nids.first().copied().unwrap_or_default();
        let shelf =
            options.roll_out.as_ref().map(|below| Shelf::open(below, lowest)).transpose()?;
        let numa = me.numa.clone();
        let agent = Agent::new(me.clone(), runtime.remembered());
        let limits = groups.as_ref().map(Groups::limits).unwrap_or_default();
        let agent = agent.distrusting(runtime.distrusted()).planned(plans);
        let agent = agent.limiting(&limits);
        switching.obey(&agent.bounds());
        let hello = Hello {
            protocol: PROTOCOL,
            socket: paths.own.to_string_lossy().into_owned(),
            hostname: options.host_id.clone().unwrap_or_else(crate::os::host::hostname),
            boot_id: me.boot_id,
            nids: me.nids.iter().copied().collect(),
            pid: 0,
            notes,
            store_id: agent.store().0.to_string(),
            epoch: agent.store().1,
            cpus: me.cpus,
            memory: hardware::memory(),
            banks: hardware::banks(Path::new("/sys/devices/system/node")),
            limits,
            stops: if groups.is_some() { StopMeans::Freezer } else { StopMeans::Signals },
            arch: hardware::arch(),
            back_ends,
            // Told by the shell that is there then.
            roll_out: RollOut::Untold,
        };
        let bounds = watch::Sender::new(listening(agent.bounds(), files));
        let shell = Shell {
            agent,
            runtime,
            groups,
            switching,
            broken: false,
            space,
            apshepherd,
            lifeline: lifeline.map(Arc::new),
            apps: BTreeMap::new(),
            shepherds: Shepherds::begin(),
            fronts: BTreeMap::new(),
            peers: BTreeMap::new(),
            generation: 0,
            link: None,
            hello: watch::Sender::new(hello),
            files,
            bounds,
            psched: paths.psched.clone(),
            claims,
            events: events.clone(),
            incoming,
            own: VecDeque::new(),
            waiting_bytes: 0,
            timer_ns: None,
            plans_due: None,
            plans_wait: 0,
            numa,
            memory_nodes: hardware::memory_nodes(Path::new("/sys/devices/system/node")),
            looked_at: None,
            looking: false,
            yields_told: false,
            unrecorded_ended: false,
            wanted: BTreeMap::new(),
            sealing: None,
            criu,
            shelf,
            ghost_limit: options.ghost_limit,
            leaving: JoinSet::new(),
            children: signal(SignalKind::child()).context("can't hear of children")?,
        };
        shell.tell_roll_out();
        Ok((shell, events))
    }

    /// How many connections there may be, now and later.
    pub fn bounds(&self) -> watch::Receiver<Bounds> {
        self.bounds.subscribe()
    }

    /// Dials psched from now on. What a former life has left is to be taken up before: the hello
    /// has notes of it, and the inventory all of it.
    pub fn dial(&self) -> AbortOnDropHandle<()> {
        let (hello, events) = (self.hello.subscribe(), self.events.clone());
        AbortOnDropHandle::new(tokio::spawn(link::keep(self.psched.clone(), hello, events)))
    }

    /// Until a signal or the lifeline ends it.
    pub async fn run(&mut self, notify: &Notify) -> Ending {
        let ends = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let [Ok(mut term), Ok(mut int), Ok(mut hup)] = ends.map(signal) else {
            return Ending::Alone;
        };
        let lifeline = self.lifeline.clone();
        let cut = async move {
            match lifeline {
                Some(pipe) => lifeline_end(pipe).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(cut);
        let mut beat = notify.beat().map(tokio::time::interval);
        let measured = self.groups.as_ref().is_some_and(Groups::measures_memory);
        let mut peaks = measured.then(|| tokio::time::interval(turns::PEAKS));
        let mut places = tokio::time::interval(places::PERIOD);
        places.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut taken = 0;
        let ending = loop {
            let timer =
                self.timer_ns.map(|at| Duration::from_nanos(at.saturating_sub(monotonic_ns())));
            // What has come is taken before the timer: after a stall nothing is given up for want of
            // what has been said long ago. But the timer waits for so many events only.
            let due_now = timer.is_some_and(|wait| wait.is_zero());
            taken = if due_now { taken } else { 0 };
            tokio::select! {
                biased;
                // From here, so that it says that the loop turns.
                () = wait::tick(&mut beat) => notify.alive(),
                () = &mut cut => break Ending::Everything,
                _ = term.recv() => break Ending::Alone,
                _ = int.recv() => break Ending::Alone,
                _ = hup.recv() => break Ending::Alone,
                _ = self.children.recv() => self.reap(),
                () = wait::tick(&mut peaks) => {
                    self.tell_had(false);
                    self.tell_roll_out();
                }
                _ = places.tick() => self.look_at_places(),
                event = self.incoming.recv(), if taken < EVENTS => match event {
                    Some(event) => {
                        taken += 1;
                        self.event(event);
                    }
                    None => break Ending::Alone,
                },
                () = wait::sleep(timer) => {
                    self.timer_ns = None;
                    self.own.push_back(Happening::Tick);
                }
            }
            self.apply_own();
            self.keep_plans();
            if self.broken {
                break Ending::Alone;
            }
            while self.leaving.try_join_next().is_some() {}
        };
        tracing::info!(?ending, "ending");
        if let Some(plans) = self.plans_due.take() {
            self.runtime.keep_plans(plans);
        }
        ending
    }

    /// Keeps slice plans that have changed: at once, but in a burst of events not after each.
    fn keep_plans(&mut self) {
        self.plans_wait += 1;
        if !self.incoming.is_empty() && self.plans_wait < PLANS_FOR {
            return;
        }
        self.plans_wait = 0;
        if let Some(plans) = self.plans_due.take() {
            self.runtime.keep_plans(plans);
        }
    }

    fn event(&mut self, event: Event) {
        let happening = match event {
            Event::LinkUp(link, welcome) => {
                self.link = Some(link);
                tracing::info!(store = welcome.store_id, epoch = welcome.epoch, "linked to psched");
                let shared = self.claims.linked(&welcome.nodes);
                shared.iter().for_each(|text| tracing::warn!("{text}"));
                if !shared.is_empty() {
                    self.hello.send_modify(|hello| hello.notes.extend(shared));
                }
                self.own.push_back(Happening::Linked(welcome));
                self.tell_had(true);
                return;
            }
            Event::LinkDown => {
                self.link = None;
                Happening::Unlinked
            }
            Event::Counted(commits) => Happening::Counted(commits),
            Event::Commanded(seq, command) => {
                let adopted = matches!(command, Command::Adopt);
                self.own.push_back(Happening::Command(seq, command));
                if adopted {
                    self.tell_had(true);
                }
                return;
            }
            Event::FrontOpened { conn, peer, sender, listening } => {
                let own = nix::unistd::geteuid().as_raw();
                let process = Process { pid: peer.pid, started: peer.started };
                let process = (peer.started > 0).then_some(process);
                let watched = peer.pidfd.is_some();
                let (sender, listening) = (Some(sender), Some(listening));
                let events = &self.events;
                let front = Front::new(conn, sender, process, peer.pidfd, listening, events);
                self.fronts.insert(conn, front);
                let trusted = peer.uid == 0 || peer.uid == own;
                Happening::AttachOpened { conn, uid: peer.uid, trusted, watched }
            }
            Event::FrontSaid(conn, message) => Happening::AttachMessage(conn, message),
            Event::FrontMalformed(conn, text) => {
                if let Some(sender) = self.fronts.get(&conn).and_then(|f| f.sender.as_ref()) {
                    sender.refuse(tonic::Status::invalid_argument(text));
                }
                return;
            }
            Event::FrontClosed(conn) => {
                if let Some(front) = self.fronts.get_mut(&conn) {
                    front.sender = None;
                }
                Happening::AttachClosed(conn)
            }
            Event::FrontDied(conn) => Happening::FrontDied(conn),
            Event::ShepherdSaid(key, message) => Happening::ShepherdMessage(key, message),
            Event::ShepherdSilent(key, text) => {
                if self.dump_hung_up(key) {
                    return;
                }
                self.reap();
                let text = self.shepherd_fate(key, text);
                Happening::ShepherdLost { key, text }
            }
            Event::PeerSaid { key, index, generation, message } => {
                if !self.is_current(key, index, generation) {
                    return;
                }
                Happening::PeerMessage(key, index, message)
            }
            Event::PeerLost { key, index, generation, text } => {
                if !self.is_current(key, index, generation) {
                    return;
                }
                self.peers.remove(&(key, index));
                Happening::PeerLost { key, index, text }
            }
            Event::GroupsEmpty(key) => {
                self.groups_empty(key);
                return;
            }
            Event::GroupsStuck(key, processes, named) => {
                Happening::GroupsStuck { key, processes, named }
            }
            Event::Turns(mut news) => {
                if let News::Switches(told) = &mut news {
                    self.name_unfrozen(told);
                    self.say_ran(told);
                }
                Happening::Turns(news)
            }
            Event::Overran(key, used) => return self.name_overran(key, used),
            Event::Rebound(key, now, result) => {
                if let (Ok(()), Some(app)) = (&result, self.apps.get_mut(&key)) {
                    app.peaks.clear();
                    if let Some(groups) = &mut app.groups {
                        groups.moved(now);
                    }
                }
                Happening::Rebound(key, result)
            }
            Event::Restored(key, result) => return self.restored(key, result),
            Event::SwitchingDead => {
                tracing::error!(
                    "the thread that changes gangs has ended; apinit is to be started again"
                );
                self.broken = true;
                return;
            }
            Event::Asked { asker, ask, descriptor } => return self.asked(asker, ask, descriptor),
            Event::AskedMore(number, ask) => return self.asked_more(number, ask),
            Event::Prepared(number, prepared) => return self.prepared(number, prepared),
            Event::Stands(number) => return self.stands(number),
            Event::Imaged(key, number, images) => return self.imaged(key, number, images),
            Event::Sealed(number, sealed) => return self.sealed(number, sealed),
            Event::Joined(number, joined) => return self.joined(number, joined),
            Event::HeardAgain { key, found, then } => return self.heard_again(key, found, *then),
            Event::Thawed(key) => return self.thawed(key),
            Event::TookOut(key, result) => return self.took_out(key, result),
            Event::CameBack(key, result) => return self.came_back(key, result),
            Event::Looked(strays, last) => return self.looked_at_places(strays, last),
        };
        self.own.push_back(happening);
    }

    fn is_current(&self, key: Key, index: u32, generation: u64) -> bool {
        self.peers.get(&(key, index)).is_some_and(|p| p.generation == generation)
    }

    /// What became of a shepherd that is silent, in words.
    fn shepherd_fate(&mut self, key: Key, text: String) -> String {
        let Some(app) = self.apps.get_mut(&key) else { return text };
        app.silent = true;
        if !text.is_empty() {
            return text;
        }
        let failure = app.shepherd.as_mut().and_then(Shepherd::failure);
        failure.or(app.exit.take()).unwrap_or_else(|| "it has hung up".into())
    }

    /// Waits for all children that have ended: shepherds, and what comes to us when one dies.
    fn reap(&mut self) {
        loop {
            let (pid, how) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, format!("it exited with code {code}")),
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    let signal = crate::apteam::ending::signal_text(signal as i32);
                    (pid, format!("it died: {signal}"))
                }
                Ok(WaitStatus::StillAlive) | Err(_) => return,
                Ok(_) => continue,
            };
            self.shepherds.reaped(pid.as_raw());
            let of_pid = |app: &&mut App| {
                let shepherd = app.shepherd.as_ref().map(|shepherd| shepherd.process.pid);
                // Of one that was brought back this is told by the first process of its namespace.
                app.first.or(shepherd) == Some(pid.as_raw())
            };
            if let Some(app) = self.apps.values_mut().find(of_pid) {
                app.exit = Some(how);
            }
        }
    }

    fn apply_own(&mut self) {
        while let Some(happening) = self.own.pop_front() {
            let actions = self.agent.apply(monotonic_ns(), happening);
            for action in actions {
                self.act(action);
            }
        }
        if let Some(link) = &self.link {
            link.seen(&self.agent);
        }
        let waiting = self.agent.waiting_bytes();
        self.waiting_bytes = self.waiting_bytes.max(waiting);
        if waiting + MEMORY_RETURNED <= self.waiting_bytes {
            self.waiting_bytes = waiting;
            return_memory();
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::MakeAndSpawn { place, nids } => self.make(*place, nids),
            Action::SendShepherd(key, message) => self.send_shepherd(key, message),
            Action::SendFront(conn, message) => {
                let room = match message {
                    FromApinit::Output(_) => self.agent.output_room(conn),
                    _ => u64::MAX,
                };
                let Some(front) = self.fronts.get_mut(&conn) else { return };
                if let Some(sender) = front.sender.take_if(|sender| !sender.send(message, room)) {
                    tracing::warn!("a front end does not read what it is told; it is hung up on");
                    sender.hang_up();
                    self.own.push_back(Happening::AttachClosed(conn));
                }
            }
            Action::CloseFront(conn) => drop(self.fronts.remove(&conn)),
            Action::KeepFront(key, conn) => {
                let process = self.fronts.get(&conn).and_then(|f| f.process);
                if let (Some(app), Some(process)) = (self.apps.get(&key), process) {
                    app.directory.keep_front(process);
                    app.span.in_scope(|| tracing::info!(pid = process.pid, "front end attached"));
                }
            }
            Action::KeepGone(key) => {
                if let Some(app) = self.apps.get(&key) {
                    app.directory.keep_gone();
                }
            }
            Action::KeepPlace(place) => {
                if let Some(app) = self.apps.get(&place.key) {
                    app.directory.keep_place_anew(*place).unwrap_or_else(|error| {
                        app.span.in_scope(|| tracing::warn!("{error:#}"));
                    });
                }
            }
            Action::Rebind { key, parts, place } => self.rebind(key, parts, *place),
            Action::Restore { place, cpus } => self.restore(*place, cpus),
            Action::Dump { key, .. } | Action::TakeOut(key)
                if self.waits_for_thaw(key, &action) => {}
            Action::Dump { key, number } => self.dump(key, number),
            Action::TakeOut(key) => self.take_out(key),
            Action::BringBack { place, cpus } => self.bring_back(*place, cpus),
            Action::RefuseDump(number, why) => self.answer_dump(number, Answer::Refused(why)),
            Action::DumpEnds(number) => self.answer_dump(number, Answer::Ended),
            Action::KeepGoing(key, at_ns) => {
                if let Some(app) = self.apps.get_mut(&key) {
                    app.directory.keep_going(at_ns);
                    app.keep_sessions();
                    app.span.in_scope(|| tracing::info!("going"));
                }
            }
            Action::Turns(event) => self.tell_switcher(event),
            Action::TellRan(key) => self.tell_ran(key),
            Action::KeepPlans(plans) => self.plans_due = Some(plans),
            Action::OpenPeer { key, index, socket } => {
                self.generation += 1;
                let events = self.events.clone();
                let peer = Peer::open(key, index, self.generation, socket.into(), events);
                self.peers.insert((key, index), peer);
            }
            Action::SendPeer(key, index, message) => {
                if let Some(peer) = self.peers.get(&(key, index)) {
                    peer.send(message);
                }
            }
            Action::Inventory { items, last_command } => {
                let inventory = pb::Inventory { last_command, ..pb::Inventory::from(items) };
                self.tell_psched(pb::from_node::Message::Inventory(inventory));
            }
            Action::Report(report) => {
                if let Report::Ended(end) = &report
                    && let Some(app) = self.apps.get(&end.key)
                {
                    app.span
                        .in_scope(|| tracing::info!(first = ?end.first, "ended, telling psched"));
                }
                self.tell_psched(pb::from_node::Message::Report(report.into()));
            }
            Action::Foreign(foreign) => {
                tracing::warn!(
                    applications = foreign.applications.len(),
                    "this psched is not obeyed: {}; psmgr(8) adopts or purges this node",
                    foreign.why
                );
                self.tell_psched(pb::from_node::Message::Foreign((*foreign).into()));
            }
            Action::Distrust(starts) => self.runtime.distrust(&starts),
            Action::RememberCommits(commits) => self.runtime.remember_commits(commits),
            Action::Remember(welcome) => {
                let (store_id, epoch) = (welcome.store_id.clone(), welcome.epoch);
                self.bounds.send_replace(listening(welcome.bounds, self.files));
                self.switching.obey(&welcome.bounds);
                self.sealing.clone_from(&welcome.checkpoint_key);
                tracing::info!(store = store_id, epoch, "obeying psched");
                self.hello.send_modify(|hello| (hello.store_id, hello.epoch) = (store_id, epoch));
                self.note_crowded(&welcome.nodes);
                self.runtime.remember(welcome);
                self.end_unrecorded();
            }
            Action::VerifyPlaces { key, pes } => self.verify_places(key, &pes),
            Action::Yield { key, nids, nice } => self.yields(key, &nids, nice),
            Action::KillGroups { key, shepherd } => self.kill_groups(key, shepherd),
            Action::CheckGroupsEmpty(key) => self.check_groups(key),
            Action::Warn(key, text) => match self.apps.get(&key) {
                Some(app) => app.span.in_scope(|| tracing::warn!("{text}")),
                None => tracing::warn!(%key, "{text}"),
            },
            Action::Remove(key) => self.remove(key),
            Action::SetTimer(at_ns) => self.timer_ns = at_ns,
        }
    }

    /// Says so, as long as it is so, where psched.yaml gives its nodes more processors than the host has. (A
    /// private instance is asked for that.)
    fn note_crowded(&self, nodes: &[NodeSpec]) {
        let real = self.hello.borrow().cpus.clone();
        let wanted: u32 = nodes.iter().map(|node| node.processors).sum();
        let cpus = nodes.iter().flat_map(|node| {
            (0..node.processors).filter_map(|processor| node.cpu(processor, &real))
        });
        let had = cpus.collect::<BTreeSet<_>>().len();
        let crowded = (wanted as usize > had && self.lifeline.is_none()).then(|| {
            format!(
                "{CROWDED} {wanted} processors for {had} real ones of this host: applications that \
                 were placed apart share them (psched.yaml(5): processors, cpus)"
            )
        });
        self.hello.send_if_modified(|hello| {
            let before = hello.notes.clone();
            hello.notes.retain(|note| !note.starts_with(CROWDED));
            hello.notes.extend(crowded);
            hello.notes != before
        });
    }

    fn tell_psched(&self, message: pb::from_node::Message) {
        if let Some(link) = &self.link {
            link.send(message);
        }
    }

    fn send_shepherd(&mut self, key: Key, mut message: ToShepherd) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if let Some(hung_up) = &mut app.hung_up {
            if !hung_up.keep(message) {
                let text = "too much waits for it while it is checkpointed".to_owned();
                self.own.push_back(Happening::ShepherdLost { key, text });
            }
            return;
        }
        let Some(shepherd) = &app.shepherd else { return };
        if let ToShepherd::Launch(launch) = &mut message {
            launch.marker.clone_from(&app.marker);
            if app.busless {
                apps::without_bus(&mut launch.launch.environment);
            }
        }
        if let (ToShepherd::Terminate { cause: Cause::Checkpointed { .. }, .. }, Some(groups)) =
            (&message, &app.groups)
        {
            // It goes on where it is restored, and its connections with it.
            break_off(groups);
        }
        if matches!(message, ToShepherd::Launch(_) | ToShepherd::Terminate { .. }) {
            app.span.in_scope(|| {
                tracing::info!(launch = matches!(message, ToShepherd::Launch(_)), "to its shepherd")
            });
        }
        if !shepherd.send(message) {
            let text = "it does not take what is sent to it".to_string();
            self.own.push_back(Happening::ShepherdLost { key, text });
        }
    }
}

/// How many connections there may be.
fn listening(bounds: HostBounds, files: u64) -> Bounds {
    let HostBounds { connections, connections_user, .. } = bounds;
    Bounds::new(connections, connections_user, files, FILES_EACH)
}

/// The lifeline has reached its end. (Nothing is ever written to it.)
async fn lifeline_end(pipe: Arc<OwnedFd>) {
    match crate::os::watch::watch(pipe, tokio::io::Interest::READABLE) {
        Ok(pipe) => {
            let _ = pipe.readable().await;
        }
        Err(error) => tracing::warn!(%error, "the lifeline can't be watched"),
    }
}
