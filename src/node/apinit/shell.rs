//! The one task: events in, the agent, actions out.

use super::attach::{Front, next_conn, wait_for_end};
use super::link::{self, Link};
use super::peers::Peer;
use super::runtime::{AppDirectory, Process, Runtime};
use super::shepherds::{self, Making, Shepherd};
use super::{Options, Paths, host, marker, now_ns};
use crate::agent::{Action, Agent, Conn, Found, GroupsOwner, Happening, Me};
use crate::apteam::Key;
use crate::apteam::talk::attach::{FromApinit, ToApinit};
use crate::apteam::talk::node::{Command, Hello, PROTOCOL, PlaceCommand, Report, Welcome};
use crate::apteam::talk::shepherd::{FromShepherd, ToShepherd};
use crate::machine::Nid;
use crate::node::groups::{AppGroups, Groups};
use crate::rpc::listen::Peer as Caller;
use crate::rpc::pb;
use anyhow::Context;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Events that may wait: who tells more is held back.
const EVENTS: usize = 512;
/// How long groups are waited for before more is done about what is in them.
const EMPTY_WAIT: Duration = Duration::from_secs(1);
/// How long a shepherd may take to go home.
const GO_HOME: Duration = Duration::from_secs(5);

/// What a stream to a front end takes.
pub(super) type FrontSender = mpsc::UnboundedSender<Result<pb::FromApinit, tonic::Status>>;
/// Where the tasks tell.
pub(super) type Events = mpsc::Sender<Event>;

/// What the tasks tell.
#[derive(Debug)]
pub(super) enum Event {
    LinkUp(Link, Welcome),
    LinkDown,
    Commanded(u64, Command),
    FrontOpened { conn: Conn, peer: Caller, sender: FrontSender },
    FrontSaid(Conn, ToApinit),
    FrontMalformed(Conn, String),
    FrontClosed(Conn),
    FrontDied(Conn),
    ShepherdSaid(Key, FromShepherd),
    ShepherdSilent(Key, String),
    PeerSaid { key: Key, index: u32, generation: u64, message: FromApinit },
    PeerLost { key: Key, index: u32, generation: u64, text: String },
    GroupsEmpty(Key),
    GroupsStuck(Key, u32),
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// apinit goes, applications stay.
    Alone,
    /// Everything goes.
    Everything,
}

/// What there is of one application.
#[derive(Debug)]
struct App {
    directory: AppDirectory,
    groups: Option<AppGroups>,
    marker: String,
    owner: u32,
    shepherd: Option<Shepherd>,
    /// How it ended, if it has been waited for.
    exit: Option<String>,
    /// Its shepherd can't be heard any more.
    silent: bool,
    span: tracing::Span,
}

/// The one task's things.
pub(super) struct Shell {
    agent: Agent,
    runtime: Runtime,
    groups: Option<Groups>,
    apshepherd: PathBuf,
    lifeline: Option<Arc<OwnedFd>>,
    apps: BTreeMap<Key, App>,
    fronts: BTreeMap<Conn, Front>,
    peers: BTreeMap<(Key, u32), Peer>,
    generation: u64,
    link: Option<Link>,
    hello: watch::Sender<Hello>,
    notes: Vec<String>,
    psched: PathBuf,
    events: Events,
    incoming: mpsc::Receiver<Event>,
    /// What the shell itself has to say next.
    own: VecDeque<Happening>,
    timer_ns: Option<u64>,
    /// Shepherds on their way home, and what is to be removed after them.
    leaving: JoinSet<()>,
    children: Signal,
}

fn application_span(place: &PlaceCommand, nids: &[Nid]) -> tracing::Span {
    let nid = nids.first().map_or(0, |nid| nid.0);
    tracing::info_span!("application", apid = place.key.apid.0, nid, uid = place.owner.uid)
}

impl Shell {
    /// A new one, and where events are told to it.
    pub fn new(
        options: &Options,
        paths: &Paths,
        runtime: Runtime,
        apshepherd: PathBuf,
        lifeline: Option<OwnedFd>,
    ) -> anyhow::Result<(Shell, Events)> {
        let mut notes = Vec::new();
        let groups = match Groups::discover() {
            Ok(groups) => Some(groups),
            Err(why) => {
                notes.push(format!(
                    "no cgroups ({why}): what PEs leave behind is found by its environment only"
                ));
                None
            }
        };
        for note in &notes {
            tracing::warn!("{note}");
        }
        let me = Me {
            nids: options.nids.0.clone(),
            uid: nix::unistd::geteuid().as_raw(),
            cpus: host::cpus(),
        };
        let agent = Agent::new(me.clone(), runtime.remembered());
        let hello = Hello {
            protocol: PROTOCOL,
            socket: paths.own.to_string_lossy().into_owned(),
            hostname: options.host_id.clone().unwrap_or_else(host::hostname),
            boot_id: options.host_id.clone().unwrap_or_else(host::boot_id),
            nids: me.nids.iter().copied().collect(),
            notes: notes.clone(),
            store_id: agent.store().0.to_string(),
            epoch: agent.store().1,
            cpus: me.cpus,
            memory: host::memory(),
        };
        let (events, incoming) = mpsc::channel(EVENTS);
        let shell = Shell {
            agent,
            runtime,
            groups,
            apshepherd,
            lifeline: lifeline.map(Arc::new),
            apps: BTreeMap::new(),
            fronts: BTreeMap::new(),
            peers: BTreeMap::new(),
            generation: 0,
            link: None,
            hello: watch::Sender::new(hello),
            notes,
            psched: paths.psched.clone(),
            events: events.clone(),
            incoming,
            own: VecDeque::new(),
            timer_ns: None,
            leaving: JoinSet::new(),
            children: signal(SignalKind::child()).context("can't hear of children")?,
        };
        Ok((shell, events))
    }

    /// Takes up what a former life has left running.
    pub async fn take_up(&mut self) {
        for (key, directory) in self.runtime.applications() {
            let Some(place) = directory.place().filter(|place| place.key == key) else {
                // It had only begun to be made: psched will say it again.
                self.clear(&directory);
                continue;
            };
            let nids = self.nids_here(&place);
            let found = shepherds::find(key, &directory, &self.events).await;
            let (shepherd, hello) = found.unzip();
            if hello.is_none()
                && let Some(pidfd) = directory.process("shepherd").and_then(Process::open)
            {
                let _ = rustix::process::pidfd_send_signal(pidfd, rustix::process::Signal::KILL);
            }
            let groups = directory.groups();
            let groups = groups.and_then(|path| AppGroups::found(path, nids.clone()));
            let front = directory.process("front").map(|process| {
                let conn = next_conn();
                let pidfd = process.open().map(Arc::new);
                if pidfd.is_none() {
                    self.own.push_back(Happening::FrontDied(conn));
                }
                let front = Front::new(conn, None, Some(process), pidfd, &self.events);
                self.fronts.insert(conn, front);
                conn
            });
            let span = application_span(&place, &nids);
            span.in_scope(|| tracing::info!(shepherd = hello.is_some(), "found again"));
            let app = App {
                groups,
                marker: self.marker(key),
                owner: place.owner.uid,
                shepherd,
                exit: None,
                silent: false,
                span,
                directory: directory.clone(),
            };
            self.apps.insert(key, app);
            let going_ns = directory.going();
            let found = Found { place, going_ns, hello, front };
            self.own.push_front(Happening::Found(Box::new(found)));
        }
        self.apply_own();
    }

    fn nids_here(&self, place: &PlaceCommand) -> Vec<Nid> {
        let own = &self.hello.borrow().nids;
        place.places.nids().filter(|nid| own.contains(nid)).collect()
    }

    fn marker(&self, key: Key) -> String {
        format!("{}.{key}", self.agent.store_mark())
    }

    /// Ends and removes what has no placement.
    fn clear(&mut self, directory: &AppDirectory) {
        if let Some(pidfd) = directory.process("shepherd").and_then(Process::open) {
            let _ = rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL);
        }
        if let Some(groups) = directory.groups().and_then(|p| AppGroups::found(p, vec![])) {
            groups.kill(true);
            self.leaving.spawn(remove_groups(groups));
        }
        directory.remove();
    }

    /// Until a signal or the lifeline ends it.
    pub async fn run(&mut self) -> Ending {
        let ends = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let [Ok(mut term), Ok(mut int), Ok(mut hup)] = ends.map(signal) else {
            return Ending::Alone;
        };
        let dialling = tokio::spawn(link::keep(
            self.psched.clone(),
            self.hello.subscribe(),
            self.events.clone(),
        ));
        let lifeline = self.lifeline.clone();
        let cut = async move {
            match lifeline {
                Some(pipe) => lifeline_end(pipe).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(cut);
        let ending = loop {
            let timer = self.timer_ns.map(|at| Duration::from_nanos(at.saturating_sub(now_ns())));
            let due = async {
                match timer {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = &mut cut => break Ending::Everything,
                _ = term.recv() => break Ending::Alone,
                _ = int.recv() => break Ending::Alone,
                _ = hup.recv() => break Ending::Alone,
                _ = self.children.recv() => self.reap(),
                event = self.incoming.recv() => match event {
                    Some(event) => self.event(event),
                    None => break Ending::Alone,
                },
                () = due => {
                    self.timer_ns = None;
                    self.own.push_back(Happening::Tick);
                }
            }
            self.apply_own();
            while self.leaving.try_join_next().is_some() {}
        };
        dialling.abort();
        tracing::info!(?ending, "ending");
        ending
    }

    fn event(&mut self, event: Event) {
        let happening = match event {
            Event::LinkUp(link, welcome) => {
                self.link = Some(link);
                tracing::info!(store = welcome.store_id, epoch = welcome.epoch, "linked to psched");
                Happening::Linked(welcome)
            }
            Event::LinkDown => {
                self.link = None;
                Happening::Unlinked
            }
            Event::Commanded(seq, command) => Happening::Command(seq, command),
            Event::FrontOpened { conn, peer, sender } => {
                let own = nix::unistd::geteuid().as_raw();
                let process = Process { pid: peer.pid, started: peer.started };
                let process = (peer.started > 0).then_some(process);
                let watched = peer.pidfd.is_some();
                let front = Front::new(conn, Some(sender), process, peer.pidfd, &self.events);
                self.fronts.insert(conn, front);
                let trusted = peer.uid == 0 || peer.uid == own;
                Happening::AttachOpened { conn, uid: peer.uid, trusted, watched }
            }
            Event::FrontSaid(conn, message) => Happening::AttachMessage(conn, message),
            Event::FrontMalformed(conn, text) => {
                if let Some(sender) = self.fronts.get(&conn).and_then(|f| f.sender.as_ref()) {
                    let _ = sender.send(Err(tonic::Status::invalid_argument(text)));
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
            Event::GroupsEmpty(key) => Happening::GroupsEmpty(key),
            Event::GroupsStuck(key, processes) => Happening::GroupsStuck { key, processes },
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
            let of_pid = |app: &&mut App| {
                app.shepherd.as_ref().is_some_and(|s| s.process.pid == pid.as_raw())
            };
            if let Some(app) = self.apps.values_mut().find(of_pid) {
                app.exit = Some(how);
            }
        }
    }

    fn apply_own(&mut self) {
        while let Some(happening) = self.own.pop_front() {
            let actions = self.agent.apply(now_ns(), happening);
            for action in actions {
                self.act(action);
            }
        }
        if let Some(link) = &self.link {
            link.seen(&self.agent);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::MakeAndSpawn { place, nids } => self.make(*place, nids),
            Action::SendShepherd(key, message) => self.send_shepherd(key, message),
            Action::SendFront(conn, message) => {
                if let Some(sender) = self.fronts.get(&conn).and_then(|f| f.sender.as_ref()) {
                    let _ = sender.send(Ok(message.into()));
                }
            }
            Action::CloseFront(conn) => drop(self.fronts.remove(&conn)),
            Action::KeepFront(key, conn) => {
                let process = self.fronts.get(&conn).and_then(|f| f.process);
                if let (Some(app), Some(process)) = (self.apps.get(&key), process) {
                    app.directory.keep_process("front", process);
                    app.span.in_scope(|| tracing::info!(pid = process.pid, "front end attached"));
                }
            }
            Action::KeepGoing(key, at_ns) => {
                if let Some(app) = self.apps.get(&key) {
                    app.directory.keep_going(at_ns);
                    app.span.in_scope(|| tracing::info!("going"));
                }
            }
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
            Action::RefuseLink(text) => {
                tracing::warn!("{text}");
                self.set_notes(Some(text));
                if let Some(link) = self.link.take() {
                    link.hang_up();
                }
            }
            Action::Remember(welcome) => {
                self.set_notes(None);
                let (store_id, epoch) = (welcome.store_id.clone(), welcome.epoch);
                self.hello.send_modify(|hello| (hello.store_id, hello.epoch) = (store_id, epoch));
                self.runtime.remember(welcome);
            }
            Action::SetGroupsOwner { key, owner } => self.set_groups_owner(key, owner),
            Action::KillGroups { key, shepherd } => self.kill_groups(key, shepherd),
            Action::CheckGroupsEmpty(key) => self.check_groups(key),
            Action::Remove(key) => self.remove(key),
            Action::SetTimer(at_ns) => self.timer_ns = at_ns,
        }
    }

    fn set_notes(&mut self, more: Option<String>) {
        let notes: Vec<String> = self.notes.iter().cloned().chain(more).collect();
        self.hello.send_modify(|hello| hello.notes = notes);
    }

    fn tell_psched(&self, message: pb::from_node::Message) {
        if let Some(link) = &self.link {
            link.send(message);
        }
    }

    fn make(&mut self, place: PlaceCommand, nids: Vec<Nid>) {
        let key = place.key;
        let span = application_span(&place, &nids);
        let _in = span.clone().entered();
        let happening = match self.try_make(&place, nids, span) {
            Ok(()) => Happening::ShepherdSpawned(key),
            Err(error) => {
                tracing::warn!("no shepherd: {error:#}");
                Happening::SpawnFailed { key, text: format!("{error:#}") }
            }
        };
        tracing::info!("shepherd made");
        self.own.push_back(happening);
    }

    fn try_make(
        &mut self,
        place: &PlaceCommand,
        nids: Vec<Nid>,
        span: tracing::Span,
    ) -> anyhow::Result<()> {
        let key = place.key;
        let directory = self.runtime.make(key).context("can't make its runtime directory")?;
        let app = App {
            directory: directory.clone(),
            groups: None,
            marker: self.marker(key),
            owner: place.owner.uid,
            shepherd: None,
            exit: None,
            silent: false,
            span,
        };
        let app = self.apps.entry(key).insert_entry(app).into_mut();
        if let Some(groups) = &self.groups {
            let alone = place.hosts.len() == 1;
            let made = groups.make(self.agent.store_mark(), key, &nids, alone);
            let made = made.context("can't make its groups")?;
            directory.keep_groups(made.path());
            app.groups = Some(made);
        }
        let making = Making {
            program: &self.apshepherd,
            place,
            directory: &directory,
            groups: app.groups.as_ref(),
            lifeline: self.lifeline.as_deref(),
        };
        let shepherd = making.make(key, &self.events)?;
        directory.keep_process("shepherd", shepherd.process);
        app.shepherd = Some(shepherd);
        // Last: with this it counts as made.
        directory.keep_place(place.clone());
        Ok(())
    }

    fn send_shepherd(&mut self, key: Key, message: ToShepherd) {
        let Some(app) = self.apps.get(&key) else { return };
        let Some(shepherd) = &app.shepherd else { return };
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

    fn set_groups_owner(&mut self, key: Key, owner: GroupsOwner) {
        let Some(app) = self.apps.get(&key) else { return };
        let own = nix::unistd::geteuid();
        let Some(groups) = app.groups.as_ref().filter(|_| own.is_root()) else { return };
        let uid = match owner {
            GroupsOwner::User => app.owner,
            GroupsOwner::Apinit => own.as_raw(),
        };
        if let Err(error) = groups.give(uid) {
            let text = format!("its groups can't be given to user {uid}: {error}");
            self.own.push_back(Happening::ShepherdLost { key, text });
        }
    }

    fn kill_groups(&mut self, key: Key, shepherd: bool) {
        let Some(app) = self.apps.get(&key) else { return };
        if let Some(groups) = &app.groups {
            groups.kill(shepherd);
        }
        if let Some(known) = app.shepherd.as_ref().filter(|_| shepherd) {
            known.kill();
        }
        if app.groups.is_none() {
            let marker = app.marker.clone();
            self.leaving.spawn_blocking(move || marker::kill(&marker));
        }
    }

    /// Tells when nothing is left in the groups, or what is after a while. Where there are no
    /// groups a shepherd's word counts, which has waited for all its descendants; the marker tells
    /// of those whose shepherd has died.
    fn check_groups(&mut self, key: Key) {
        let Some(app) = self.apps.get(&key) else { return };
        let trusted = app.groups.is_none() && app.shepherd.is_some() && !app.silent;
        if trusted || app.groups.as_ref().is_some_and(AppGroups::empty) {
            self.own.push_back(Happening::GroupsEmpty(key));
            return;
        }
        let (groups, marker) = (app.groups.clone(), app.marker.clone());
        let events = self.events.clone();
        self.leaving.spawn(async move {
            let begun = tokio::time::Instant::now();
            let mut pause = Duration::from_micros(100);
            let event = loop {
                let left = match &groups {
                    Some(groups) if groups.empty() => 0,
                    Some(groups) => groups.processes().max(1),
                    None => {
                        let marker = marker.clone();
                        let count = tokio::task::spawn_blocking(move || marker::count(&marker));
                        count.await.unwrap_or(0)
                    }
                };
                if left == 0 {
                    break Event::GroupsEmpty(key);
                }
                if begun.elapsed() > EMPTY_WAIT {
                    break Event::GroupsStuck(key, left);
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(50));
            };
            let _ = events.send(event).await;
        });
    }

    /// Removes all of it, once its shepherd has gone.
    fn remove(&mut self, key: Key) {
        self.peers.retain(|(of, _), _| *of != key);
        let Some(app) = self.apps.remove(&key) else { return };
        app.span.in_scope(|| tracing::info!("forgotten"));
        // At once, so that a restart does not take it up.
        app.directory.drop_place();
        self.leaving.spawn(remove_app(app));
    }

    /// What is being removed has a moment for it.
    pub async fn finish(mut self) {
        let all = async { while self.leaving.join_next().await.is_some() {} };
        // An Err: a restart removes the rest.
        let _ = tokio::time::timeout(Duration::from_secs(1), all).await;
    }

    /// Kills what is left and removes every trace, within a bound.
    pub async fn end_everything(mut self) {
        let apps = std::mem::take(&mut self.apps);
        self.fronts.clear();
        self.peers.clear();
        self.link = None;
        for app in apps.into_values() {
            if let Some(groups) = &app.groups {
                groups.kill(true);
            }
            if let Some(shepherd) = &app.shepherd {
                shepherd.kill();
            }
            if app.groups.is_none() {
                marker::kill(&app.marker);
            }
            self.leaving.spawn(remove_app(app));
        }
        let runtime = self.runtime;
        let mut leaving = self.leaving;
        let all = async { while leaving.join_next().await.is_some() {} };
        if tokio::time::timeout(GO_HOME, all).await.is_err() {
            tracing::warn!("something does not die");
        }
        runtime.remove();
    }
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

async fn remove_app(app: App) {
    let App { directory, groups, shepherd, .. } = app;
    if let Some(shepherd) = shepherd {
        let pidfd = shepherd.pidfd.clone();
        if let Some(pidfd) = pidfd {
            let gone = tokio::time::timeout(GO_HOME, wait_for_end(pidfd)).await;
            if gone.is_err() {
                tracing::warn!(pid = shepherd.process.pid, "a shepherd does not go home");
                shepherd.kill();
            }
        }
    }
    directory.remove();
    if let Some(groups) = groups {
        remove_groups(groups).await;
    }
}

async fn remove_groups(groups: AppGroups) {
    let mut pause = Duration::from_micros(200);
    let begun = tokio::time::Instant::now();
    while !groups.remove() {
        if begun.elapsed() > GO_HOME {
            tracing::warn!(group = %groups.path().display(), "a group can't be removed");
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
