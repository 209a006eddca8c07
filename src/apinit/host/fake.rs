//! Faked hosts (`--fake`): everything of an apinit is real but its processes. PEs are timers, so that a machine of
//! thousands of nodes can be tried before there is one, and measured on a notebook.
//!
//! Each faked host has the agent, the driver, the link to psched and the socket that a real one has. Nothing is
//! executed: a PE runs for as many seconds as the first argument of its program says (`aprun -n 8 sleep 5`), or else
//! not at all, and ends with 0. Nothing outlives the process: to psched its end is that of the hosts, whose boot is
//! another one when it comes back.

use super::attach::{Front, watch_of};
use super::events::{Events, TaskEvent};
use super::hardware;
use super::network::Psched;
use super::open_link::Link;
use super::peers::Peer;
use super::stream_sender::{Head, tell};
use super::{HALVES, HALVES_OF_HOST, Options, Paths, attach, ended, heads, link};
use crate::apinit::decide::switcher::{
    Action as TurnAction, Event as TurnEvent, News, Outcome, Ran, Start, Switcher,
};
use crate::apinit::decide::{Action, Agent, Conn, Event, Me};
use crate::apinit::drive::{Driver, Heard, Outside, Record, Said, Work};
use crate::apteam::bounds::HostBounds;
use crate::apteam::ending::{Cause, Decisive, EndCount, HostEnd, PeEnd};
use crate::apteam::launch::HostLaunch;
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::attach::FromApinit;
use crate::apteam::protocol::node::{
    Hello, HostNote, PROTOCOL, PlaceCommand, Report, RollOut, Welcome,
};
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::apteam::protocol::processes::{Answer, Question};
use crate::apteam::protocol::programs::{GivenProgram, WantedProgram};
use crate::apteam::protocol::shepherd::{FromShepherd, Hello as ShepherdHello, ToShepherd};
use crate::apteam::protocol::stacks;
use crate::apteam::protocol::turns::{SWITCHES_MAX, StopMeans, Switches};
use crate::apteam::{Key, Ticket};
use crate::machine::Nid;
use crate::os::host::{boot_id, hostname, monotonic_ns};
use crate::os::notify::Notify;
use crate::os::wait;
use crate::rpc::listen::{
    Bounds, FILES_USUAL, admitted, incoming_within, listen, raise_descriptor_limit,
};
use crate::rpc::partial_messages::PartialMessages;
use crate::rpc::pb;
use crate::variables::units::nanos;
use anyhow::bail;
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;
use tonic::service::InterceptorLayer;
use tower::util::MapRequestLayer;

/// Events of one host that may wait.
const EVENTS: usize = 64;
/// Between two tellings of how changes went.
const TELL: Duration = Duration::from_secs(1);
/// What may have `--fake` at most.
pub(super) const HOSTS_MAX: u32 = 10_000;
/// The longest that a PE runs.
const LONGEST: f64 = 1e9;

/// Fakes so many hosts until a signal ends it.
pub(super) fn run(
    options: &Options,
    count: u32,
    directory: &Path,
    psched: &Psched,
) -> anyhow::Result<()> {
    let nids: Vec<Nid> = options.nodes().into_iter().collect();
    if nids.len() < count as usize {
        bail!("--fake {count}: there have to be as many nodes, and --nids names {}", nids.len())
    }
    raise_descriptor_limit()
        .inspect_err(|error| tracing::warn!(%error, "can't raise the limit of open files"))
        .ok();
    let runtime =
        tokio::runtime::Builder::new_current_thread().thread_name("apinit").enable_all().build()?;
    let outcome: anyhow::Result<()> = runtime.block_on(async {
        let ends = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let [mut term, mut int, mut hup] = ends.map(signal);
        let mut hosts = Vec::new();
        for number in 0..count as usize {
            let own = &nids[share(nids.len(), number, count)..share(nids.len(), number + 1, count)];
            hosts.push(host(number, own, directory, psched)?);
        }
        let notify = Notify::from_environment();
        notify.ready();
        let mut beat = notify.beat().map(tokio::time::interval);
        loop {
            tokio::select! {
                () = wait::tick(&mut beat) => notify.alive(),
                _ = ended(&mut term) => break,
                _ = ended(&mut int) => break,
                _ = ended(&mut hup) => break,
            }
        }
        notify.stopping();
        drop(hosts);
        Ok(())
    });
    runtime.shutdown_timeout(Duration::from_millis(500));
    outcome
}

/// The first of so many nodes that a host has, or the one before.
fn share(nodes: usize, number: usize, count: u32) -> usize {
    nodes * number / count.max(1) as usize
}

/// One host, until it is dropped.
struct Host {
    _tasks: [AbortOnDropHandle<()>; 3],
    socket: PathBuf,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn host(number: usize, nids: &[Nid], directory: &Path, psched: &Psched) -> anyhow::Result<Host> {
    let socket = Paths::new(directory, nids[0], false)?.own;
    let mode = if nix::unistd::geteuid().is_root() { 0o666 } else { 0o600 };
    let listener = listen(&socket, mode)?;
    let hello = hello(number, nids, &socket);
    let (events, incoming) = mpsc::channel(EVENTS);
    let HostBounds { connections, connections_user, .. } = HostBounds::default();
    let bounds = watch::Sender::new(Bounds::new(connections, connections_user, FILES_USUAL, 1));
    let connections = incoming_within(listener, bounds.subscribe());
    let halves = PartialMessages::new(HALVES, HALVES_OF_HOST);
    let served = tonic::transport::Server::builder()
        .max_concurrent_streams(4)
        .layer(InterceptorLayer::new(admitted))
        .layer(MapRequestLayer::new(move |request| halves.bound(request)))
        .add_service(attach::service(events.clone(), None))
        .add_service(heads::service(events.clone()))
        .serve_with_incoming(connections);
    let served = async move {
        let _bounds = bounds;
        // (None of its connections is an error.)
        let _ = served.await;
    };
    let me = Me {
        nids: nids.iter().copied().collect(),
        uid: nix::unistd::geteuid().as_raw(),
        cpus: hello.cpus.clone(),
        numa: BTreeMap::new(),
        boot_id: hello.boot_id.clone(),
    };
    let hello = watch::Sender::new(hello);
    let keep = link::keep(psched.clone(), hello.subscribe(), events.clone());
    let driver = Driver::new(Agent::new(me, None));
    let fake = Fake::new(hello, events);
    let tasks =
        [tokio::spawn(served), tokio::spawn(fake.live(driver, incoming)), tokio::spawn(keep)];
    Ok(Host { _tasks: tasks.map(AbortOnDropHandle::new), socket })
}

fn hello(number: usize, nids: &[Nid], socket: &Path) -> Hello {
    Hello {
        protocol: PROTOCOL,
        socket: socket.to_string_lossy().into_owned(),
        hostname: format!("{}-fake{number}", hostname()),
        // (Whoever is started again is another boot, for nothing of what there was is left.)
        boot_id: format!("{}-fake{number}-{}", boot_id(), monotonic_ns()),
        nids: nids.to_vec(),
        notes: vec![HostNote::of_host("faked: PEs are timers, and nothing is executed")],
        cpus: hardware::cpus(),
        memory: hardware::memory(),
        stops: StopMeans::Freezer,
        arch: hardware::arch(),
        roll_out: RollOut::Cant("its nodes are faked".to_owned()),
        parts: true,
        leads_on: true,
        stacks: true,
        ..Hello::default()
    }
}

/// For how long PEs run: what their program's first argument says in seconds.
fn run_time(launch: &HostLaunch) -> Duration {
    let said = launch.launch.arguments.get(1).and_then(|word| std::str::from_utf8(word).ok());
    let seconds: Option<f64> = said.and_then(|word| word.parse().ok());
    let seconds = seconds.filter(|seconds| (0.0..=LONGEST).contains(seconds)).unwrap_or(0.0);
    Duration::from_secs_f64(seconds)
}

/// The PEs of an application on a host.
#[derive(Debug, Default)]
struct Pes {
    count: u32,
    /// For how long they run still, in nanoseconds.
    left_ns: u64,
    /// They have been let go.
    goes: bool,
    frozen: bool,
    /// They run since.
    runs_since: Option<u64>,
    ran_ns: u64,
    ended: bool,
}

impl Pes {
    fn launched(&mut self, launch: &HostLaunch) {
        self.count = u32::try_from(launch.pes.len()).unwrap_or(u32::MAX);
        self.left_ns = nanos(run_time(launch));
    }

    /// They go, stand or run by what is known now.
    fn settle(&mut self, now: u64) {
        if let Some(since) = self.runs_since.take() {
            let ran = now.saturating_sub(since);
            self.ran_ns = self.ran_ns.saturating_add(ran);
            self.left_ns = self.left_ns.saturating_sub(ran);
        }
        self.runs_since = (self.goes && !self.frozen && !self.ended).then_some(now);
    }

    fn go(&mut self, now: u64) {
        self.goes = true;
        self.settle(now);
    }

    fn freeze(&mut self, now: u64, frozen: bool) {
        self.frozen = frozen;
        self.settle(now);
    }

    /// When their time is over.
    fn until_ns(&self) -> Option<u64> {
        self.runs_since.map(|since| since.saturating_add(self.left_ns))
    }

    /// They end, by themselves or because of this; none: they have ended.
    fn end(&mut self, now: u64, first: Option<Decisive>) -> Option<HostEnd> {
        if std::mem::replace(&mut self.ended, true) {
            return None;
        }
        self.settle(now);
        let how = match first {
            None => PeEnd::Exit(0),
            Some(_) => PeEnd::Signal(Signal::SIGTERM as i32),
        };
        let count = EndCount { end: how, count: self.count, consequence: first.is_some() };
        Some(HostEnd {
            launched: self.goes,
            first,
            ends: vec![count],
            run: Duration::from_nanos(self.ran_ns),
            ..HostEnd::default()
        })
    }
}

/// One faked host, as the driver sees it.
struct Fake {
    apps: BTreeMap<Key, Pes>,
    switcher: Switcher,
    /// How changes went, to be told.
    switches: Switches,
    tell_at_ns: Option<u64>,
    fronts: BTreeMap<Conn, Front>,
    heads: BTreeMap<Conn, Head>,
    peers: BTreeMap<(Key, u32), Peer>,
    link: Option<Link>,
    hello: watch::Sender<Hello>,
    events: Events,
    own: Vec<Heard>,
    timer_ns: Option<u64>,
}

impl Fake {
    fn new(hello: watch::Sender<Hello>, events: Events) -> Fake {
        Fake {
            apps: BTreeMap::new(),
            switcher: Switcher::default(),
            switches: Switches::default(),
            tell_at_ns: None,
            fronts: BTreeMap::new(),
            heads: BTreeMap::new(),
            peers: BTreeMap::new(),
            link: None,
            hello,
            events,
            own: Vec::new(),
            timer_ns: None,
        }
    }

    async fn live(mut self, mut driver: Driver, mut incoming: mpsc::Receiver<TaskEvent>) {
        driver.begin(&mut self);
        loop {
            let wait = self.next_ns().map(|at| at.saturating_sub(monotonic_ns()));
            tokio::select! {
                biased;
                event = incoming.recv() => match event {
                    Some(event) => self.event(event),
                    None => return,
                },
                () = wait::sleep(wait.map(Duration::from_nanos)) => self.tick(),
            }
            driver.settle(&mut self);
            driver.keep_plans(&mut self);
            if let Some(link) = &self.link {
                link.seen(driver.agent());
            }
        }
    }

    fn happens(&mut self, event: Event) {
        self.own.push(Heard::Happens(event));
    }

    fn says(&mut self, key: Key, message: FromShepherd) {
        self.happens(Event::ShepherdMessage(key, message));
    }

    fn next_ns(&self) -> Option<u64> {
        let ends = self.apps.values().filter_map(Pes::until_ns).min();
        [self.timer_ns, self.switcher.next_ns(), self.tell_at_ns, ends].into_iter().flatten().min()
    }

    fn tick(&mut self) {
        let now = monotonic_ns();
        let over = |at: Option<u64>| at.is_some_and(|at| at <= now);
        if over(self.timer_ns) {
            self.timer_ns = None;
            self.happens(Event::Tick);
        }
        if over(self.switcher.next_ns()) {
            self.switch(TurnEvent::Tick);
        }
        if over(self.tell_at_ns) {
            self.tell_at_ns = None;
            let told = Box::new(std::mem::take(&mut self.switches));
            self.happens(Event::Turns(News::Switches(told)));
        }
        let due = self.apps.iter().filter(|(_, pes)| over(pes.until_ns()));
        for key in due.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.end(key, None);
        }
    }

    /// Its PEs end.
    fn end(&mut self, key: Key, cause: Option<Cause>) {
        let now = monotonic_ns();
        let first = cause.map(|cause| Decisive { at_ns: now, cause });
        if let Some(end) = self.apps.get_mut(&key).and_then(|pes| pes.end(now, first)) {
            self.says(key, FromShepherd::Ended(Box::new(end)));
        }
    }

    fn event(&mut self, event: TaskEvent) {
        let event = match event {
            TaskEvent::LinkUp(link, welcome) => {
                self.link = Some(link);
                Event::Linked(Box::new(welcome))
            }
            TaskEvent::LinkDown => {
                self.link = None;
                Event::Unlinked
            }
            TaskEvent::ProcessesAsked(Question { number, key, .. }) => {
                let why_not = "its host is faked: its PEs are no processes".to_owned();
                let answer = Answer { number, key, processes: Vec::new(), why_not };
                if let Some(link) = &self.link {
                    link.send(pb::from_node::Message::Processes(answer.into()));
                }
                return;
            }
            // (It has been answered.)
            TaskEvent::StacksWithdrawn(_) => return,
            TaskEvent::StacksAsked(question) => {
                let why_not = "its host is faked: its PEs are no processes";
                let answer = stacks::Answer::none(question, why_not);
                if let Some(link) = &self.link {
                    link.send(pb::from_node::Message::Stacks(answer.into()));
                }
                return;
            }
            TaskEvent::Counted(commits) => Event::Counted(commits),
            TaskEvent::Clock(reading) => Event::Clock(reading),
            TaskEvent::Commanded(seq, command) => Event::Command(seq, command),
            TaskEvent::FrontOpened { conn, peer, sender, listening } => {
                let watch = watch_of(&peer);
                let (sender, listening) = (Some(sender), Some(listening));
                let front =
                    Front::new(conn, sender, None, peer.pidfd, listening, &self.events.clone());
                self.fronts.insert(conn, front);
                Event::FrontOpened { conn, uid: peer.uid, watch }
            }
            TaskEvent::FrontSaid(conn, message) => Event::FrontMessage(conn, message),
            TaskEvent::FrontDied(conn) => Event::FrontDied(conn),
            TaskEvent::HeadOpened { conn, uid, host, head } => {
                self.heads.insert(conn, head);
                Event::HeadOpened { conn, uid, host }
            }
            TaskEvent::HeadSaid(conn, message) => Event::HeadMessage(conn, message),
            TaskEvent::StreamMalformed(conn, _) | TaskEvent::StreamClosed(conn) => {
                if let Some(front) = self.fronts.get_mut(&conn) {
                    front.sender = None;
                }
                if let Some(head) = self.heads.get_mut(&conn) {
                    head.sender = None;
                }
                Event::StreamClosed(conn)
            }
            TaskEvent::PeerSaid { key, index, generation, message } => {
                return self.own.push(Heard::PeerSaid(key, index, generation, message));
            }
            TaskEvent::PeerLost { key, index, generation, text } => {
                return self.own.push(Heard::PeerLost(key, index, generation, text));
            }
            // (Nobody here tells the rest.)
            _ => return,
        };
        self.happens(event);
    }

    /// Gangs are stopped and let run at once.
    fn switch(&mut self, event: TurnEvent) {
        let mut todo = VecDeque::from([event]);
        while let Some(event) = todo.pop_front() {
            let now = monotonic_ns();
            for action in self.switcher.apply(now, event) {
                match action {
                    TurnAction::Stop(keys) => {
                        let stop = |key| (key, self.freeze(key, true, Outcome::Stopped));
                        todo.push_back(TurnEvent::Stopped(keys.into_iter().map(stop).collect()));
                    }
                    TurnAction::Start(keys) => {
                        let start = |key| (key, self.freeze(key, false, Start::Runs));
                        todo.push_back(TurnEvent::Started(keys.into_iter().map(start).collect()));
                    }
                    // (No gang is ever idle here.)
                    TurnAction::Look(keys) => {
                        let used = keys.into_iter().map(|key| (key, Some(now)));
                        todo.push_back(TurnEvent::Used(used.collect()));
                    }
                    TurnAction::MayGo(key) => self.happens(Event::Turns(News::MayGo(key))),
                    TurnAction::HasTurn(key) => self.happens(Event::Turns(News::HasTurn(key))),
                    TurnAction::Held(key, stands) => {
                        self.happens(Event::Turns(News::Held(key, stands)));
                    }
                    TurnAction::TakeOut(key) | TurnAction::RollOut(key) => {
                        let why = Some("its nodes are faked".to_owned());
                        self.happens(Event::Turns(News::RolledOut(key, 0, why)));
                    }
                    TurnAction::NotOut(key, why) => {
                        let why = Some(why.to_owned());
                        self.happens(Event::Turns(News::RolledOut(key, 0, why)));
                    }
                    TurnAction::Switched(switch) => {
                        if self.switches.switches.len() >= SWITCHES_MAX {
                            self.switches.switches.remove(0);
                            self.switches.left_out += 1;
                        }
                        self.switches.switches.push(switch);
                        self.tell_at_ns.get_or_insert(now.saturating_add(nanos(TELL)));
                    }
                    TurnAction::Hasten(_) | TurnAction::Ran(..) | TurnAction::WasIdle(..) => {}
                }
            }
        }
    }

    fn freeze<T>(&mut self, key: Key, frozen: bool, done: T) -> T {
        if let Some(pes) = self.apps.get_mut(&key) {
            pes.freeze(monotonic_ns(), frozen);
        }
        done
    }
}

impl Outside for Fake {
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn happened(&mut self) -> Vec<Heard> {
        std::mem::take(&mut self.own)
    }

    fn hears(&mut self, _event: &Event) {}

    fn does(&mut self, _agent: &Agent, action: &Action) {
        if let Action::Report(Report::Ended(end)) = action {
            tracing::debug!(application = %end.key, status = end.status(), "ended");
        }
    }

    /// (Nothing outlives it.)
    fn keep(&mut self, _record: Record) -> Result<(), String> {
        Ok(())
    }

    fn obey(&mut self, _agent: &Agent, welcome: Welcome) {
        let Welcome { store_id, epoch, .. } = welcome;
        self.hello.send_modify(|hello| (hello.store_id, hello.epoch) = (store_id, epoch));
    }

    fn make_folder(
        &mut self,
        _agent: &Agent,
        place: &PlaceCommand,
        _nids: &[Nid],
    ) -> Result<(), String> {
        self.apps.insert(place.key, Pes::default());
        Ok(())
    }

    fn make_groups(&mut self, _: &Agent, _: &PlaceCommand, _: &[Nid]) -> Result<(), String> {
        Ok(())
    }

    fn start_shepherd(&mut self, place: &PlaceCommand) -> Result<(), String> {
        let hello = ShepherdHello { key: place.key, ..ShepherdHello::default() };
        self.says(place.key, FromShepherd::Hello(hello));
        Ok(())
    }

    fn verify_places(&mut self, _: Key, _: &[(Nid, u32)]) -> Option<Result<(), String>> {
        Some(Ok(()))
    }

    fn yields(&mut self, _: Key, _: &[Nid], _: u32) {}

    fn kill(&mut self, key: Key, shepherd: bool) {
        let Some(pes) = self.apps.get_mut(&key) else { return };
        match shepherd {
            true => {
                pes.end(monotonic_ns(), None);
                self.own.push(Heard::ShepherdSilent(key, "it was killed".to_owned()));
            }
            false => self.end(key, Some(Cause::NoRecord)),
        }
    }

    fn drop_images(&mut self, _: Key) {}

    fn is_empty(&self, _: Key) -> bool {
        true
    }

    fn used(&self, _: Key) -> Option<(Duration, Duration)> {
        None
    }

    fn begin(&mut self, _: &Agent, work: Work) {
        let faked = || "its nodes are faked".to_owned();
        let heard = match work {
            Work::Empties(key) => Heard::GroupsEmpty(key),
            Work::Rebind { key, .. } => Heard::Happens(Event::Rebound(key, Ok(()))),
            Work::Restore { place, .. } => Heard::Happens(Event::Restored(place.key, Err(faked()))),
            Work::Dump { key, number, .. } => Heard::Imaged(key, number, false),
            Work::TakeOut(key) => Heard::TookOut(key, Err(faked())),
            Work::BringBack { place, .. } => Heard::CameBack(place.key, Err(faked())),
            Work::FindShepherd(key) => Heard::HeardAgain(key, true),
            Work::Remove(key) => {
                self.apps.remove(&key);
                return;
            }
        };
        self.own.push(heard);
    }

    fn tell_shepherd(&mut self, key: Key, message: ToShepherd) -> bool {
        let Some(pes) = self.apps.get_mut(&key) else { return true };
        match message {
            ToShepherd::Launch(launch) => {
                pes.launched(&launch);
                self.says(key, FromShepherd::Ready);
            }
            ToShepherd::Go => pes.go(monotonic_ns()),
            ToShepherd::Terminate { cause, .. } => self.end(key, Some(cause)),
            ToShepherd::Signal(signal) => self.says(key, FromShepherd::SignalsTaken(signal.number)),
            // (They read nothing, write nothing and are in no barrier.)
            ToShepherd::Hello(_)
            | ToShepherd::Stdin(_)
            | ToShepherd::StdinEnd(_)
            | ToShepherd::OutputTaken(_)
            | ToShepherd::BarrierOut(_)
            | ToShepherd::Letter(_)
            | ToShepherd::Release
            | ToShepherd::Rekey(_)
            | ToShepherd::Processes(_)
            | ToShepherd::Programs { .. }
            | ToShepherd::Stacks(_)
            | ToShepherd::StacksWithdrawn(_)
            | ToShepherd::DebuggerPlaced(_) => {}
        }
        true
    }

    /// (They execute nothing, and have nothing for others: these go by their paths.)
    fn take_program(
        &mut self,
        key: Key,
        program: WantedProgram,
        _: Vec<HostAddress>,
        _: (u32, Ticket),
    ) {
        let why_not = "its nodes are faked".to_owned();
        let given = GivenProgram { part: program.part, why_not, ..GivenProgram::default() };
        self.own.push(Heard::Happens(Event::ProgramTaken(key, Box::new(given))));
    }

    fn hang_up_shepherd(&mut self, _: Key) -> bool {
        false
    }

    fn fate(&mut self, _: Key, text: String) -> String {
        text
    }

    fn tell_front(&mut self, conn: Conn, message: FromApinit, room: u64) -> bool {
        self.fronts.get_mut(&conn).is_none_or(|front| tell(&mut front.sender, message, room))
    }

    fn tell_head(&mut self, conn: Conn, message: FromPeer, room: u64) -> bool {
        self.heads.get_mut(&conn).is_none_or(|head| tell(&mut head.sender, message, room))
    }

    fn close_stream(&mut self, conn: Conn) {
        self.fronts.remove(&conn);
        self.heads.remove(&conn);
    }

    fn open_peer(&mut self, key: Key, index: u32, generation: u64, at: HostAddress, room: u64) {
        let peer = Peer::open(key, index, generation, None, at, room, self.events.clone());
        self.peers.insert((key, index), peer);
    }

    fn tell_peer(&mut self, key: Key, index: u32, message: ToPeer) {
        if let Some(peer) = self.peers.get(&(key, index)) {
            peer.send(message);
        }
    }

    fn close_peer(&mut self, key: Key, index: u32) {
        self.peers.remove(&(key, index));
    }

    fn tell_psched(&mut self, said: Said) {
        if let Some(link) = &self.link {
            link.say(said);
        }
    }

    fn answer_dump(&mut self, _: u64, _: Option<String>) {}

    fn set_timer(&mut self, at_ns: Option<u64>) {
        self.timer_ns = at_ns;
    }

    fn turns(&mut self, event: TurnEvent) {
        self.switch(event);
    }

    fn is_away(&mut self, _: Key) {}

    fn ran(&self, key: Key) -> Option<Ran> {
        self.switcher.ran(key)
    }

    fn had(&mut self, _: bool) -> Option<Switches> {
        None
    }

    fn warn(&mut self, key: Key, text: &str) {
        tracing::warn!(%key, "{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_share_nodes_evenly() {
        let parts = |nodes, count: u32| {
            let part = |n| share(nodes, n + 1, count) - share(nodes, n, count);
            (0..count as usize).map(part).collect::<Vec<usize>>()
        };
        assert_eq!(parts(10, 3), [3, 3, 4]);
        assert_eq!(parts(3, 3), [1, 1, 1]);
    }

    /// Time in which they stand does not count.
    #[test]
    fn pes_run_for_their_time_and_stand_while_they_are_frozen() {
        let mut pes = Pes { count: 4, left_ns: 100, ..Pes::default() };
        assert_eq!(pes.until_ns(), None);
        pes.go(1_000);
        assert_eq!(pes.until_ns(), Some(1_100));
        pes.freeze(1_040, true);
        assert_eq!(pes.until_ns(), None);
        pes.freeze(2_000, false);
        assert_eq!(pes.until_ns(), Some(2_060));
        let end = pes.end(2_060, None).expect("they end");
        assert_eq!((end.run, end.status(), end.launched), (Duration::from_nanos(100), 0, true));
        assert_eq!((pes.end(2_070, None), pes.until_ns()), (None, None));
    }
}
