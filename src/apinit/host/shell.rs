//! The one task: events in, the driver, and what it does to this host.
//!
//! | file | subject |
//! | --- | --- |
//! | this one | the loop, and what each event means |
//! | `outside` | what the driver does ([`Outside`](crate::apinit::drive::Outside)) |
//! | `apps` | folders, groups, shepherds: made, found again, emptied and removed |
//! | `processes` | which process is which PE |
//! | `programs` | copies of programs |
//! | `stacks` | where the threads of PEs stand |
//! | `turns`, `memory_out`, `restores`, `checkpoints` | what is done beside the one task, and its ends |

mod apps;
mod checkpoints;
mod memory_out;
mod outside;
mod processes;
mod programs;
mod restores;
mod stacks;
mod switching_task;

use super::attach::{Front, watch_of};
use super::claims::Claims;
use super::events::{Events, TaskEvent};
use super::link;
use super::memory_out::Shelf;
use super::network::{Network, Psched};
use super::notes::{Notes, Subject};
use super::open_link::Link;
use super::peers::Peer;
use super::places;
use super::process_tracking::Shepherds;
use super::programs::{Room, Store};
use super::promised_room::PromisedRoom;
use super::runtime::{Process, Runtime};
use super::shepherds::Program;
use super::stream_sender::Head;
use super::switching::Switching;
use super::{Options, Paths, hardware};
use crate::apinit::decide::switcher::News;
use crate::apinit::decide::{Agent, Conn, Event, Me};
use crate::apinit::drive::{Driver, Heard};
use crate::apteam::bounds::HostBounds;
use crate::apteam::protocol::node::{Hello, NodeSpec, PROTOCOL, RollOut};
use crate::apteam::protocol::shepherd::FromShepherd;
use crate::apteam::protocol::turns::StopMeans;
use crate::apteam::{Key, SealKey};
use crate::machine::nids_text;
use crate::node::checkpoint::Known;
use crate::node::groups::Groups;
use crate::os::host::{monotonic_ns, return_memory};
use crate::os::notify::Notify;
use crate::os::reset_inherited::dumps_all;
use crate::os::space::Space;
use crate::os::wait;
use crate::rpc::listen::Bounds;
use anyhow::Context;
use apps::App;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
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

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// apinit goes, applications stay.
    Alone,
    /// Everything goes.
    Everything,
}

/// The one task.
pub(super) struct Task {
    driver: Driver,
    shell: Shell,
}

/// The host, as the driver sees it.
struct Shell {
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
    heads: BTreeMap<Conn, Head>,
    peers: BTreeMap<(Key, u32), Peer>,
    link: Option<Link>,
    hello: watch::Sender<Hello>,
    /// The limit of open files.
    files: u64,
    /// What is said of its nodes, which is in the hello too.
    notes: Notes,
    /// How many connections there may be.
    bounds: watch::Sender<Bounds>,
    psched: Psched,
    /// How other hosts are reached; none: there are none.
    network: Option<Arc<Network>>,
    /// Which processors are used here, for other pscheds.
    claims: Claims,
    events: Events,
    incoming: mpsc::Receiver<TaskEvent>,
    /// What the driver is to hear next.
    own: Vec<Heard>,
    /// The most that launches which wait have had since memory was given back.
    waiting_bytes: u64,
    timer_ns: Option<u64>,
    /// Events since slice plans were kept.
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
    /// Questions to apshepherds that wait for an answer.
    asked: processes::Asked,
    /// The same for stacks.
    stacks_asked: stacks::Asked,
    /// Checkpoints that somebody at the door wants, by the number of the question.
    wanted: BTreeMap<u64, checkpoints::Wanted>,
    /// What they are sealed with, once psched has said it.
    sealing: Option<SealKey>,
    /// What makes their images.
    criu: Arc<Known>,
    /// Where memory goes that no swap takes.
    shelf: Option<Shelf>,
    /// Room that is promised to all who write images or copies here.
    promised: PromisedRoom,
    /// Copies of programs.
    programs: Store,
    /// How many bytes these may have.
    programs_room: Room,
    /// Who has asked about them since the driver was last heard.
    programs_asked: Vec<programs::AskedAbout>,
    /// Bytes that an application may have in removed files which are still open, where it is
    /// dumped.
    ghost_limit: u64,
    /// Shepherds on their way home, and what is to be removed after them.
    leaving: JoinSet<()>,
    children: Signal,
}

impl Task {
    /// A new one, and where events are told to it.
    pub fn new(
        options: &Options,
        paths: &Paths,
        runtime: Runtime,
        files: u64,
        apshepherd: Program,
        lifeline: Option<OwnedFd>,
        (psched, network): (Psched, Option<Arc<Network>>),
    ) -> anyhow::Result<(Task, Events)> {
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
        let (space, not_isolated) = match space.probe() {
            Ok(()) => (Some(space), None),
            Err(why) => {
                let bus = if root { ", and reach the service managers of their users" } else { "" };
                let text = format!(
                    "not isolated: {why}; applications share /dev/shm and System V IPC with all \
                     processes of the host{bus}"
                );
                (None, Some(text))
            }
        };
        if root && dumps_all() {
            notes.push(
                "users can trace their apshepherds while these begin, and so keep processes out of \
                 their applications: set the sysctl fs.suid_dumpable to 0 or 2"
                    .into(),
            );
        }
        for note in notes.iter().chain(&not_isolated) {
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
                let name = format!("the apinit of {nids} of {psched}");
                Claims::begin(&psched.to_string(), name, &runtime, hardware::cpus())
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
        let agent = Agent::new(me.clone(), runtime.obeyed.remembered());
        let limits = groups.as_ref().map(Groups::limits).unwrap_or_default();
        let agent = agent.distrusting(runtime.obeyed.distrusted()).planned(plans);
        let agent = agent.limiting(&limits);
        switching.obey(&agent.bounds());
        let notes = Notes::new(notes, not_isolated);
        let hello = Hello {
            protocol: PROTOCOL,
            socket: paths.own.to_string_lossy().into_owned(),
            hostname: options.host_id.clone().unwrap_or_else(crate::os::host::hostname),
            boot_id: me.boot_id,
            nids: me.nids.iter().copied().collect(),
            pid: 0,
            notes: notes.all(),
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
            host: network.as_ref().map(|n| n.host.clone()).unwrap_or_default(),
            address: network.as_ref().map(|n| n.told()).unwrap_or_default(),
            remote: false,
            parts: true,
            leads_on: true,
            stacks: true,
            images: true,
        };
        let bounds_of_host = agent.bounds();
        let others = network.is_some();
        let bounds = watch::Sender::new(listening(bounds_of_host, files, others));
        let known = runtime.applications().into_iter();
        let known = known.filter_map(|(key, kept)| Some((key, kept.place()?.owner.uid))).collect();
        let promised = PromisedRoom::default();
        let shell = Shell {
            promised: promised.clone(),
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
            heads: BTreeMap::new(),
            peers: BTreeMap::new(),
            link: None,
            hello: watch::Sender::new(hello),
            notes,
            files,
            bounds,
            psched,
            claims,
            events: events.clone(),
            incoming,
            own: Vec::new(),
            waiting_bytes: 0,
            timer_ns: None,
            plans_wait: 0,
            numa,
            memory_nodes: hardware::memory_nodes(Path::new("/sys/devices/system/node")),
            looked_at: None,
            looking: false,
            yields_told: false,
            unrecorded_ended: false,
            wanted: BTreeMap::new(),
            asked: BTreeMap::new(),
            stacks_asked: stacks::Asked::default(),
            sealing: None,
            criu,
            shelf,
            programs_room: Room::from(bounds_of_host),
            programs_asked: Vec::new(),
            programs: match network {
                Some(_) => Store::open(paths.programs.clone(), &known, promised.clone()),
                None => Store::none("this host takes no connections of other hosts"),
            },
            network,
            ghost_limit: options.ghost_limit,
            leaving: JoinSet::new(),
            children: signal(SignalKind::child()).context("can't watch child processes")?,
        };
        shell.tell_roll_out();
        Ok((Task { driver: Driver::new(agent), shell }, events))
    }

    /// Room that is promised to all who write images or copies here.
    pub fn promised(&self) -> PromisedRoom {
        self.shell.promised.clone()
    }

    /// The folder for images that `--roll-out` names, if it does.
    pub fn shelf(&self) -> Option<std::path::PathBuf> {
        self.shell.shelf.as_ref().map(|shelf| shelf.path().to_owned())
    }

    /// How many connections there may be, now and later.
    pub fn bounds(&self) -> watch::Receiver<Bounds> {
        self.shell.bounds.subscribe()
    }

    /// Takes up what a former life has left running.
    pub async fn take_up(&mut self) {
        for left in self.shell.take_up(self.driver.agent()).await {
            self.driver.left(left);
        }
        self.driver.begin(&mut self.shell);
    }

    /// Dials psched from now on. What a former life has left is to be taken up before: the hello
    /// has notes of it, and the inventory all of it.
    pub fn dial(&self) -> AbortOnDropHandle<()> {
        let Shell { hello, events, psched, .. } = &self.shell;
        let keep = link::keep(psched.clone(), hello.subscribe(), events.clone());
        AbortOnDropHandle::new(tokio::spawn(keep))
    }

    /// Until a signal or the lifeline ends it.
    pub async fn run(&mut self, notify: &Notify) -> Ending {
        let ends = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let [Ok(mut term), Ok(mut int), Ok(mut hup)] = ends.map(signal) else {
            return Ending::Alone;
        };
        let Task { driver, shell } = self;
        let lifeline = shell.lifeline.clone();
        let cut = async move {
            match lifeline {
                Some(pipe) => lifeline_end(pipe).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(cut);
        let mut beat = notify.beat().map(tokio::time::interval);
        let measured = shell.groups.as_ref().is_some_and(Groups::measures_memory);
        let mut peaks = measured.then(|| tokio::time::interval(switching_task::PEAKS));
        let mut places = tokio::time::interval(places::PERIOD);
        places.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut taken = 0;
        let ending = loop {
            let timer =
                shell.timer_ns.map(|at| Duration::from_nanos(at.saturating_sub(monotonic_ns())));
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
                _ = shell.children.recv() => shell.reap(),
                () = wait::tick(&mut peaks) => {
                    shell.tell_had();
                    shell.tell_roll_out();
                }
                _ = places.tick() => {
                    shell.look_at_places(driver);
                    shell.catch_up();
                }
                event = shell.incoming.recv(), if taken < EVENTS => match event {
                    Some(event) => {
                        taken += 1;
                        shell.event(driver.agent(), event);
                    }
                    None => break Ending::Alone,
                },
                () = wait::sleep(timer) => {
                    shell.timer_ns = None;
                    shell.happens(Event::Tick);
                }
            }
            driver.settle(shell);
            shell.settled(driver.agent());
            // At once, but in a burst of events not after each.
            shell.plans_wait += 1;
            if shell.incoming.is_empty() || shell.plans_wait >= PLANS_FOR {
                shell.plans_wait = 0;
                driver.keep_plans(shell);
            }
            if shell.broken {
                break Ending::Alone;
            }
            while shell.leaving.try_join_next().is_some() {}
        };
        tracing::info!(?ending, "ending");
        driver.keep_plans(shell);
        ending
    }

    /// What is being removed has a moment for it.
    pub async fn finish(self) {
        self.shell.finish().await;
    }

    /// Kills what is left and removes every trace, within a bound.
    pub async fn end_everything(self) {
        self.shell.end_everything().await;
    }
}

impl Shell {
    /// The agent is to hear this.
    fn happens(&mut self, event: Event) {
        self.own.push(Heard::Happens(event));
    }

    /// Says this of a subject from now on; none: nothing.
    fn note(&mut self, subject: Subject, text: Option<String>) {
        if self.notes.set(subject, text) {
            self.tell_notes();
        }
    }

    /// Writes which psched is obeyed where that could not be written, and says so until it is.
    fn catch_up(&mut self) {
        let why = self.runtime.obeyed.catch_up().map(|why| {
            format!("{why}: make room there, else its next apinit may obey another psched")
        });
        self.note(Subject::Unwritten, why);
    }

    fn tell_notes(&self) {
        self.hello.send_modify(|hello| hello.notes = self.notes.all());
    }

    /// What came together has been heard.
    fn settled(&mut self, agent: &Agent) {
        if let Some(link) = &self.link {
            link.seen(agent);
        }
        self.answer_for_programs();
        let waiting = agent.waiting_bytes();
        self.waiting_bytes = self.waiting_bytes.max(waiting);
        if waiting + MEMORY_RETURNED <= self.waiting_bytes {
            self.waiting_bytes = waiting;
            return_memory();
        }
    }

    fn event(&mut self, agent: &Agent, event: TaskEvent) {
        let event = match event {
            TaskEvent::LinkUp(link, welcome) => {
                self.link = Some(link);
                tracing::info!(store = welcome.store_id, epoch = welcome.epoch, "linked to psched");
                let shared = self.claims.linked(&welcome.nodes);
                shared.iter().for_each(|text| tracing::warn!("{text}"));
                for (n, text) in shared.into_iter().enumerate() {
                    self.note(Subject::Shared(n), Some(text));
                }
                Event::Linked(Box::new(welcome))
            }
            TaskEvent::LinkDown => {
                self.link = None;
                self.withdraw_stacks();
                Event::Unlinked
            }
            TaskEvent::Counted(commits) => Event::Counted(commits),
            TaskEvent::Clock(reading) => Event::Clock(reading),
            TaskEvent::Commanded(seq, command) => Event::Command(seq, command),
            TaskEvent::FrontOpened { conn, peer, sender, listening } => {
                let process = Process { pid: peer.pid, started: peer.started };
                let process = (peer.started > 0 && peer.relayed.is_none()).then_some(process);
                let watch = watch_of(&peer);
                let (sender, listening) = (Some(sender), Some(listening));
                let events = &self.events;
                let front = Front::new(conn, sender, process, peer.pidfd, listening, events);
                self.fronts.insert(conn, front);
                Event::FrontOpened { conn, uid: peer.uid, watch }
            }
            TaskEvent::FrontSaid(conn, message) => Event::FrontMessage(conn, message),
            TaskEvent::HeadOpened { conn, uid, host, head } => {
                self.heads.insert(conn, head);
                Event::HeadOpened { conn, uid, host }
            }
            TaskEvent::HeadSaid(conn, message) => Event::HeadMessage(conn, message),
            TaskEvent::StreamMalformed(conn, text) => {
                let status = tonic::Status::invalid_argument(text);
                if let Some(sender) = self.fronts.get(&conn).and_then(|f| f.sender.as_ref()) {
                    sender.refuse(status);
                } else if let Some(sender) = self.heads.get(&conn).and_then(|h| h.sender.as_ref()) {
                    sender.refuse(status);
                }
                return;
            }
            TaskEvent::StreamClosed(conn) => {
                if let Some(front) = self.fronts.get_mut(&conn) {
                    front.sender = None;
                }
                if let Some(head) = self.heads.get_mut(&conn) {
                    head.sender = None;
                }
                Event::StreamClosed(conn)
            }
            TaskEvent::FrontDied(conn) => Event::FrontDied(conn),
            TaskEvent::ProcessesAsked(question) => return self.processes_asked(question),
            TaskEvent::ShepherdSaid(key, FromShepherd::Processes(answer)) => {
                return self.processes_named(key, answer);
            }
            TaskEvent::StacksAsked(question) => return self.stacks_asked(agent, question),
            TaskEvent::StacksWithdrawn(number) => return self.stacks_withdrawn(number),
            TaskEvent::ShepherdSaid(key, FromShepherd::DebuggerMade(made)) => {
                return self.debugger_made(key, made);
            }
            TaskEvent::ShepherdSaid(key, FromShepherd::Stacks(answer)) => {
                return self.stacks_told(key, answer);
            }
            TaskEvent::ShepherdSaid(key, message) => Event::ShepherdMessage(key, message),
            TaskEvent::ShepherdSilent(key, text) => {
                self.reap();
                return self.own.push(Heard::ShepherdSilent(key, text));
            }
            TaskEvent::PeerSaid { key, index, generation, message } => {
                return self.own.push(Heard::PeerSaid(key, index, generation, message));
            }
            TaskEvent::PeerLost { key, index, generation, text } => {
                return self.own.push(Heard::PeerLost(key, index, generation, text));
            }
            TaskEvent::ProgramAsked(of, program, answer) => {
                return self.program_asked(agent, of, program, answer);
            }
            TaskEvent::ProgramBrought(of, uid, answer) => {
                return self.program_brought(agent, of, uid, answer);
            }
            TaskEvent::ProgramTaken(key, given) => Event::ProgramTaken(key, Box::new(given)),
            TaskEvent::GroupsEmpty(key) => return self.own.push(Heard::GroupsEmpty(key)),
            TaskEvent::GroupsStuck(key, processes, named) => {
                Event::GroupsStuck { key, processes, named }
            }
            TaskEvent::Turns(mut news) => {
                if let News::Switches(told) = &mut news {
                    self.name_unfrozen(told);
                    self.say_ran(told);
                }
                Event::Turns(news)
            }
            TaskEvent::Overran(key, used) => return self.name_overran(key, used),
            TaskEvent::Rebound(key, now, result) => {
                if let (Ok(()), Some(app)) = (&result, self.apps.get_mut(&key)) {
                    app.peaks.clear();
                    if let Some(groups) = &mut app.groups {
                        groups.moved(now);
                    }
                }
                Event::Rebound(key, result)
            }
            TaskEvent::Restored(key, result) => return self.restored(agent, key, result),
            TaskEvent::SwitchingDead => {
                tracing::error!("the gang-switching thread has ended; restart apinit");
                self.broken = true;
                return;
            }
            TaskEvent::Asked { asker, ask, descriptor } => {
                return self.asked(agent, asker, ask, descriptor);
            }
            TaskEvent::SealingAsked(answer) => {
                // (An Err: whoever asked is gone.)
                let _ = answer.send(self.sealing.clone());
                return;
            }
            TaskEvent::AskedMore(number, ask) => return self.asked_more(number, ask),
            TaskEvent::Prepared(number, prepared) => return self.prepared(number, prepared),
            TaskEvent::Stands(number) => return self.stands(number),
            TaskEvent::Imaged(key, number, images) => return self.imaged(key, number, images),
            TaskEvent::Sealed(number, sealed) => return self.sealed(number, sealed),
            TaskEvent::Joined(number, joined) => return self.joined(number, joined),
            TaskEvent::HeardAgain(key, found) => return self.heard_again(key, found),
            TaskEvent::Thawed(key) => return self.own.push(Heard::Thawed(key)),
            TaskEvent::TookOut(key, result) => return self.took_out(key, result),
            TaskEvent::CameBack(key, result) => return self.came_back(key, result),
            TaskEvent::Looked(strays, last) => return self.looked_at_places(strays, last),
        };
        self.happens(event);
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

    /// Says so, as long as it is so, where psched.yaml gives its nodes more processors than the host has. (A
    /// private instance is asked for that.)
    fn note_crowded(&mut self, nodes: &[NodeSpec]) {
        let real = self.hello.borrow().cpus.clone();
        let wanted: u32 = nodes.iter().map(|node| node.processors).sum();
        let cpus = nodes.iter().flat_map(|node| {
            (0..node.processors).filter_map(|processor| node.cpu(processor, &real))
        });
        let had = cpus.collect::<BTreeSet<_>>().len();
        let crowded = (wanted as usize > had && self.lifeline.is_none()).then(|| {
            format!(
                "the nodes of this apinit have {wanted} processors, and its host has {had} real \
                 ones: applications on different nodes share them (psched.yaml(5): processors, \
                 cpus)"
            )
        });
        self.note(Subject::Crowded, crowded);
    }
}

/// How many connections there may be on each socket. `others`: the sockets for users of psched on other hosts have as
/// many.
fn listening(bounds: HostBounds, files: u64, others: bool) -> Bounds {
    let HostBounds { connections, connections_user, .. } = bounds;
    let each = FILES_EACH + if others { super::relay::FILES_EACH } else { 0 };
    Bounds { portion: super::PORTION, ..Bounds::new(connections, connections_user, files, each) }
}

/// What a task gives that was lost, for it has panicked.
fn lost<T>(error: tokio::task::JoinError) -> Result<T, String> {
    Err(format!("internal error of apinit: {error}"))
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
