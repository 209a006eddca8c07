//! What apinit does: `apply(now, event) -> actions`.
//!
//! An apinit stands between psched, which places applications on its nodes; front ends (aprun, or
//! the apinit that is the *head* of an application spread over several), which launch them; and
//! apshepherds, one for each application, which run them. The agent is everything that it
//! decides, with no socket, clock or process: whatever happens comes in as a [`Event`],
//! whatever is to be done goes out as an [`Action`], in the order in which it is to be done.
//!
//! ```text
//!   psched   Place ----------> Placed --- shepherd is made and waits
//!   front    Launch(ticket) -> Launched - HostLaunch to the shepherd, Launch to the other hosts
//!   all      Ready ----------> Running -- Go to everybody
//!   shepherd Ended, groups empty -> Ended - reported each second until psched acknowledges
//!   psched   AcknowledgeEnd -> forgotten
//! ```
//!
//! The head (the apinit of `hosts[0]`, which holds PE 0) is to the other hosts what aprun is to
//! it: it passes the launch on, gathers `Ready`, `BarrierIn` and `Done`, and tells everybody `Go`,
//! `BarrierOut`, signals and ends. All hosts are otherwise alike, and each reports the end of its
//! own part to psched.
//!
//! Safety is local: no launch is given to a shepherd while another application that is not empty
//! has one of its processors; but those that share them all take turns ([`switcher`]).
//!
//! ```
//! # use psched_pure::{apinit::decide::*, machine::Nid};
//! let nids = [Nid(0)].into();
//! let me = Me { nids, uid: 0, cpus: vec![0, 1], numa: [].into(), boot_id: "boot".into() };
//! let mut agent = Agent::new(me, None);
//! let actions = agent.apply(0, Event::Linked(Default::default()));
//! assert!(actions.contains(&Action::Inventory { items: vec![], last_command: 0 }));
//! ```

mod application;
mod barriers;
mod bounds;
mod commands;
mod dumps;
mod ends;
mod foreign;
mod fronts;
mod launching;
mod memory_out;
mod moves;
mod output;
mod peers;
mod restores;
mod shepherds;
mod signals;
mod streams;
pub mod switcher;
#[cfg(test)]
mod tests;
mod timed;
mod turns;

use crate::apteam::Key;
use crate::apteam::bounds::HostBounds;
use crate::apteam::launch::HostLaunch;
use crate::apteam::place::HostPart;
use crate::apteam::posting::Owner;
use crate::apteam::protocol::attach::{FromApinit, ToApinit};
use crate::apteam::protocol::node::{
    Command, Foreign, NodeSpec, Phase, PlaceCommand, Report, Welcome,
};
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::apteam::protocol::shepherd::{FromShepherd, Hello, ToShepherd};
use crate::apteam::protocol::turns::SlicePlan;
use crate::machine::Nid;
use application::{App, Front};
pub use dumps::{DumpWord, NAME_WAIT, PARTS_WAIT};
use fronts::FrontEnd;
pub use memory_out::CameBack;
pub use moves::Rebind;
pub use restores::Back;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use streams::Opening;
use switcher::{Event as TurnEvent, News, Ran};
use timed::Timed;
pub use turns::TURN_WAIT;

/// How long a launch waits for its placement to come from psched.
pub const LAUNCH_WAIT: Duration = Duration::from_secs(10);
/// An end is reported again after this long, until psched acknowledges it.
pub const REPORT_AGAIN: Duration = Duration::from_secs(1);
/// How long a front end that can't be watched may stay away, and how long another host may.
pub const AWAY_MAX: Duration = Duration::from_secs(10);
/// How long a finished application is kept for a front end that is away and may resume.
pub const LINGER: Duration = Duration::from_secs(30);
/// So long after the time of an application's KILL apinit kills what its shepherd has not.
pub const BACKSTOP: Duration = Duration::from_secs(5);
/// And again, as long as it is not over.
pub const BACKSTOP_AGAIN: Duration = Duration::from_secs(30);
/// Between two attempts to reach another host's apinit.
pub const PEER_AGAIN: Duration = Duration::from_millis(250);

/// An attached stream: numbers given by the shell, none used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conn(pub u64);

/// The stream of a front end of which nothing is known any more.
pub const NO_CONN: Conn = Conn(u64::MAX);

/// What an apinit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Me {
    /// The nodes that it offers.
    pub nids: BTreeSet<Nid>,
    /// Who it runs as: only root can run other users' applications.
    pub uid: u32,
    /// Real processors that it may use.
    pub cpus: Vec<u32>,
    /// The NUMA node of each real processor. Those of which nothing is known are one.
    pub numa: BTreeMap<u32, u32>,
    /// The boot of its host: psched's clock is this one if it is psched's boot too.
    pub boot_id: String,
}

/// What happens to an apinit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// psched has taken this node.
    Linked(Welcome),
    /// The stream to psched is lost.
    Unlinked,
    /// psched's store has so many commits, all of them durable: told before what leaves psched
    /// after them.
    Counted(u64),
    /// psched said this, as the `u64`th command of the link.
    Command(u64, Command),
    /// A front end has opened a stream.
    FrontOpened {
        /// Which.
        conn: Conn,
        /// Its uid, as the kernel says.
        uid: u32,
        /// Its process is watched: [`Event::FrontDied`] comes when it dies.
        watched: bool,
    },
    /// It said this.
    FrontMessage(Conn, ToApinit),
    /// Its process is dead.
    FrontDied(Conn),
    /// Another apinit has opened a stream, as a head.
    HeadOpened {
        /// Which. A head has no number that a front end has.
        conn: Conn,
        /// Its uid, as the kernel says.
        uid: u32,
    },
    /// It said this.
    HeadMessage(Conn, ToPeer),
    /// The stream of a front end or a head is closed.
    StreamClosed(Conn),
    /// The shepherd of an application is there and hears.
    ShepherdSpawned(Key),
    /// It could not be made.
    SpawnFailed {
        /// Of which application.
        key: Key,
        /// Why, and what would cure it.
        text: String,
    },
    /// A shepherd said this.
    ShepherdMessage(Key, FromShepherd),
    /// A shepherd is dead, or can't be heard any more.
    ShepherdLost {
        /// Of which application.
        key: Key,
        /// What is known of it.
        text: String,
    },
    /// Another host's apinit said this.
    PeerMessage(Key, u32, FromPeer),
    /// The stream to it is closed, or could not be opened.
    PeerLost {
        /// For which application.
        key: Key,
        /// Index in its hosts.
        index: u32,
        /// Why.
        text: String,
    },
    /// What all processes that ever were in the groups have used, those too that nobody waited for.
    GroupsUsed {
        /// Of which application.
        key: Key,
        /// User CPU time.
        utime: Duration,
        /// System CPU time.
        stime: Duration,
    },
    /// No process is left in the groups.
    GroupsEmpty(Key),
    /// So many are, although they were waited for.
    GroupsStuck {
        /// Of which application.
        key: Key,
        /// How many.
        processes: u32,
        /// Those of them that have outlived a KILL, in words.
        named: Vec<String>,
    },
    /// An application of a former life of this apinit.
    Found(Box<Found>),
    /// Answer to [`Action::VerifyPlaces`]: they are; or what was found, in words.
    PlacesVerified(Key, Result<(), String>),
    /// Something of an application is not where it belongs, or was not: for its user.
    Strayed(Key, String),
    /// The switcher says this.
    Turns(News),
    /// Answer to [`Action::Rebind`]: all its threads are bound to their new processors, and that is kept; or
    /// all to their old ones, and why.
    Rebound(Key, Result<(), String>),
    /// Answer to [`Action::Restore`]: it is back and frozen, and its shepherd hears; or what stood in the way.
    Restored(Key, Result<Box<Back>, String>),
    /// An application has run so long: answer to [`Action::TellRan`], and once more at its end.
    Ran(Key, Ran),
    /// At its door, under this number, somebody with this uid wants a checkpoint of an application.
    DumpAsked {
        /// Of the question; none is used twice.
        number: u64,
        /// As the kernel says.
        uid: u32,
        /// Which application.
        key: Key,
        /// It is ended once the checkpoint has its name.
        end: bool,
    },
    /// Answer to [`Action::Dump`]: its images are made, or not; who asked has been told why not.
    Dumped {
        /// Of which application.
        key: Key,
        /// Of the question.
        number: u64,
        /// They are.
        made: bool,
    },
    /// Whoever asked says more, or is gone.
    DumpSaid {
        /// Of the question.
        number: u64,
        /// What.
        word: DumpWord,
    },
    /// Answer to [`Action::TakeOut`]: no process of it is left, and its images have so many bytes; or it is there
    /// as before, and why.
    TakenOut(Key, Result<u64, String>),
    /// Answer to [`Action::BringBack`]: it is back and frozen, and its shepherd hears; or nothing of it is left,
    /// and why.
    CameBack(Key, Result<Box<CameBack>, String>),
    /// The time of [`Action::SetTimer`] has come.
    Tick,
}

/// What is left in the runtime directory of an application when an apinit starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its placement.
    pub place: PlaceCommand,
    /// When its PEs began to go.
    pub going_ns: Option<u64>,
    /// (Of one that has been stopped to let others run.) How long they have run, as far as is known.
    pub ran_ns: Option<u64>,
    /// Its shepherd's hello; `None`: it has none any more. One of a release that is not understood
    /// ([`misfit`](crate::apteam::protocol::shepherd::misfit)) is told nothing more; its death is heard of.
    pub hello: Option<Hello>,
    /// (Without `hello`.) It lives, and has said nothing yet: it is stopped, or its host is busy. Its
    /// hello comes when it does.
    pub silent: bool,
    /// (Without `hello`.) Its memory is in a checkpoint of so many bytes, and no process of it is left.
    pub away: Option<u64>,
    /// The process of its front end, watched under this number; `None`: it had none.
    pub front: Option<Conn>,
    /// As [`Action::KeepGone`].
    pub gone: bool,
}

/// What an apinit is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make groups, runtime directory and socket of an application and start its shepherd. (One that is
    /// brought back from a checkpoint gets no shepherd, and is answered for as if it had.)
    MakeAndSpawn {
        /// The placement, which is also to be kept in the runtime directory.
        place: Box<PlaceCommand>,
        /// This apinit's nodes of it.
        nids: Vec<Nid>,
    },
    /// Tell a shepherd.
    SendShepherd(Key, ToShepherd),
    /// Tell a front end.
    SendFront(Conn, FromApinit),
    /// Tell a head.
    SendHead(Conn, FromPeer),
    /// Close the stream of a front end or a head, once all is sent, and watch a front end's process no more.
    CloseStream(Conn),
    /// This is the application's front end: keep that with its placement.
    KeepFront(Key, Conn),
    /// Its front end is gone, or was given up, and what it has not written is thrown away: keep that
    /// too, so that one that comes back hears of it.
    KeepGone(Key),
    /// Tell the switcher, which keeps what an application has run.
    Turns(TurnEvent),
    /// Say how long it has run.
    TellRan(Key),
    /// Keep these plans in the runtime directory, and no others.
    KeepPlans(Vec<SlicePlan>),
    /// Keep its placement so.
    KeepPlace(Box<PlaceCommand>),
    /// It stands. Bind its threads to other processors, all or none, and keep its placement so; once begun
    /// it is to be finished also by the next life of this apinit. Answered by [`Event::Rebound`].
    Rebind {
        /// Of which application.
        key: Key,
        /// Each node's part.
        parts: Vec<Rebind>,
        /// Its placement once that is done.
        place: Box<PlaceCommand>,
    },
    /// Keep its placement so, and bring it back from its checkpoint into frozen groups. Answered by
    /// [`Event::Restored`].
    Restore {
        /// Its placement.
        place: Box<PlaceCommand>,
        /// The real processors of each of its places.
        cpus: Vec<Vec<u32>>,
    },
    /// It stands. Hang up its shepherd's connection, dump it, and connect anew; answered by
    /// [`Event::Dumped`].
    Dump {
        /// Which application.
        key: Key,
        /// Of the question.
        number: u64,
    },
    /// It stands. Hang up its shepherd's connection, dump it and end its processes; what is to be said to its
    /// shepherd waits. Answered by [`Event::TakenOut`].
    TakeOut(Key),
    /// Bring it back, into the groups that it had, which are frozen; and say then what has waited for its shepherd.
    /// Answered by [`Event::CameBack`].
    BringBack {
        /// Its placement.
        place: Box<PlaceCommand>,
        /// The real processors of each of its places.
        cpus: Vec<Vec<u32>>,
    },
    /// Say to whoever asked why there is no checkpoint, or why its application was not ended.
    RefuseDump(u64, String),
    /// Say to whoever asked that its application is being ended.
    DumpEnds(u64),
    /// Its PEs go since then: keep that too.
    KeepGoing(Key, u64),
    /// Open a stream to another host's apinit.
    OpenPeer {
        /// For which application.
        key: Key,
        /// Index in its hosts.
        index: u32,
        /// Where.
        socket: String,
    },
    /// Tell it.
    SendPeer(Key, u32, ToPeer),
    /// Tell psched what is here: first after it has welcomed this node.
    Inventory {
        /// The applications.
        items: Vec<(Key, Phase)>,
        /// The last command seen.
        last_command: u64,
    },
    /// Tell psched.
    Report(Report),
    /// Tell this psched that it is not obeyed, and what is here.
    Foreign(Box<Foreign>),
    /// Keep these too, until the next [`Action::Remember`].
    Distrust(Vec<String>),
    /// Keep this in the runtime directory: the store that is obeyed, and what the nodes are.
    Remember(Welcome),
    /// Keep with it that its store has so many commits.
    RememberCommits(u64),
    /// Its PEs here stand before their first instruction, or it has been brought back and stands.
    /// Look whether each of them is in the group of its node, and nothing else in the others.
    /// Answered by [`Event::PlacesVerified`].
    VerifyPlaces {
        /// Of which application.
        key: Key,
        /// How many PEs each of its nodes here has.
        pes: Vec<(Nid, u32)>,
    },
    /// Let the PEs on these nodes, which all stand before their first instruction, give way to the system.
    Yield {
        /// Of which application.
        key: Key,
        /// Of its nodes here, those that are the system's too.
        nids: Vec<Nid>,
        /// How much nicer, 1 to 19. Their shepherd has made each of them so; sessions are left.
        nice: u32,
    },
    /// Kill every PE process in the groups, and the shepherd if it is lost; else let it continue, in
    /// case that it is stopped.
    KillGroups {
        /// Of which application.
        key: Key,
        /// The shepherd and its group too.
        shepherd: bool,
    },
    /// Wait, bounded, until the groups are empty, and tell.
    CheckGroupsEmpty(Key),
    /// For the log: something about an application that should not be.
    Warn(Key, String),
    /// Forget it first: an apinit that is killed in the middle is not to find an application whose
    /// shepherd has gone home, and take that for its death. Then let the shepherd go home, and remove
    /// groups and runtime directory. Nothing more happens with this key.
    Remove(Key),
    /// Send a [`Event::Tick`] then, and at no other time.
    SetTimer(Option<u64>),
}

/// Everything that an apinit knows.
#[derive(Debug)]
pub struct Agent {
    me: Me,
    /// What -m says is not enforced here.
    unlimited: bool,
    /// psched hears, and is obeyed.
    linked: bool,
    /// The last welcome of a psched that is obeyed: store, epoch and nodes.
    welcome: Option<Welcome>,
    /// The psched that this node is linked to and does not obey.
    stranger: Option<foreign::Stranger>,
    /// Ids of starts that were on old copies of the store, until another is obeyed.
    distrusted: Vec<String>,
    /// What psched's clock is ahead of this host's, in nanoseconds.
    clock_ahead_ns: i128,
    last_command: u64,
    /// Plans by generation, with times of this host's clock.
    plans: BTreeMap<u64, SlicePlan>,
    apps: Timed<Key, App>,
    fronts: Timed<Conn, FrontEnd>,
    heads: Timed<Conn, Opening<ToPeer>>,
    /// Whether ends are told, as it was when the deadlines of the applications were asked last.
    ends_heard: bool,
    timer_ns: Option<u64>,
}

/// Where an action goes.
type Out = Vec<Action>;

fn ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Agent {
    /// A new one, which remembers the welcome that a former life of it was given.
    pub fn new(me: Me, remembered: Option<Welcome>) -> Agent {
        Agent {
            me,
            unlimited: false,
            linked: false,
            welcome: remembered,
            stranger: None,
            distrusted: Vec::new(),
            clock_ahead_ns: 0,
            last_command: 0,
            plans: BTreeMap::new(),
            apps: Timed::default(),
            fronts: Timed::default(),
            heads: Timed::default(),
            ends_heard: false,
            timer_ns: None,
        }
    }

    /// With these limits enforced (`memory`): without it whoever names his memory is told that it is not.
    #[must_use]
    pub fn limiting(mut self, limits: &[String]) -> Agent {
        self.unlimited = !limits.iter().any(|limit| limit == "memory");
        self
    }

    /// The last command that it has seen, for heartbeats.
    pub fn last_command(&self) -> u64 {
        self.last_command
    }

    /// The store that it obeys, and its epoch; empty before the first.
    pub fn store(&self) -> (&str, u64) {
        self.welcome.as_ref().map_or(("", 0), |w| (&w.store_id, w.epoch))
    }

    /// Commits of that store that it has heard of.
    pub fn commits(&self) -> u64 {
        self.welcome.as_ref().map_or(0, |w| w.commits)
    }

    /// The first eight digits of the store's id, by which its groups and processes are known.
    pub fn store_mark(&self) -> &str {
        let id = self.store().0;
        id.get(..8).unwrap_or(id)
    }

    /// The uid that owns an application here.
    pub fn owner(&self, key: Key) -> Option<&Owner> {
        self.apps.get(&key).map(|app| &app.place.owner)
    }

    /// What it may hold: the defaults until a psched has been obeyed.
    pub fn bounds(&self) -> HostBounds {
        self.welcome.as_ref().map_or_else(HostBounds::default, |w| w.bounds)
    }

    /// Which part of an application is here, and of how many.
    pub fn part(&self, key: Key) -> Option<(usize, usize)> {
        let app = self.apps.get(&key)?;
        Some((app.index as usize, app.place.hosts.len()))
    }

    /// How many applications and streams of front ends and heads it holds.
    pub fn held(&self) -> (usize, usize) {
        (self.apps.len(), self.fronts.len() + self.heads.len())
    }

    /// Takes in what happens at `now_ns` (nanoseconds of CLOCK_MONOTONIC) and says what is to be
    /// done, in order.
    pub fn apply(&mut self, now_ns: u64, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        let o = &mut out;
        let ticked = event == Event::Tick;
        match event {
            Event::Linked(welcome) => self.linked(now_ns, welcome, o),
            Event::Unlinked => (self.linked, self.stranger) = (false, None),
            Event::Counted(commits) => self.counted(commits, o),
            Event::Command(seq, command) => self.command(now_ns, seq, command, o),
            Event::FrontOpened { conn, uid, watched } => {
                self.front_opened(now_ns, conn, uid, watched, o);
            }
            Event::FrontMessage(conn, message) => self.front_message(now_ns, conn, message, o),
            Event::FrontDied(conn) => self.front_died(now_ns, conn, o),
            Event::HeadOpened { conn, uid } => self.head_opened(now_ns, conn, uid, o),
            Event::HeadMessage(conn, message) => self.head_message(now_ns, conn, message, o),
            Event::StreamClosed(conn) => self.stream_closed(now_ns, conn, o),
            Event::ShepherdSpawned(key) => self.shepherd_spawned(now_ns, key, o),
            Event::SpawnFailed { key, text } => self.shepherd_lost(now_ns, key, text, o),
            Event::ShepherdMessage(key, message) => {
                self.shepherd_message(now_ns, key, message, o);
            }
            Event::ShepherdLost { key, text } => self.shepherd_lost(now_ns, key, text, o),
            Event::PeerMessage(key, index, message) => {
                self.peer_message(now_ns, key, index, message, o);
            }
            Event::PeerLost { key, index, text } => self.peer_lost(now_ns, key, index, text, o),
            Event::GroupsUsed { key, utime, stime } => self.groups_used(key, utime, stime),
            Event::GroupsEmpty(key) => self.groups_empty(now_ns, key, o),
            Event::GroupsStuck { key, processes, named } => {
                self.groups_stuck(key, processes, named, o);
            }
            Event::Found(found) => self.found(now_ns, *found, o),
            Event::PlacesVerified(key, result) => self.places_verified(now_ns, key, result, o),
            Event::Strayed(key, text) => self.strayed(key, text, o),
            Event::Turns(news) => self.news(now_ns, news, o),
            Event::Ran(key, ran) => self.ran(now_ns, key, ran, o),
            Event::Rebound(key, result) => self.rebound(now_ns, key, result, o),
            Event::Restored(key, result) => self.restored(now_ns, key, result, o),
            Event::DumpAsked { number, uid, key, end } => {
                self.dump_asked(number, uid, key, end, o);
            }
            Event::Dumped { key, number, made } => self.dumped(now_ns, key, number, made, o),
            Event::DumpSaid { number, word } => self.dump_said(now_ns, number, word, o),
            Event::TakenOut(key, result) => self.taken_out(now_ns, key, result, o),
            Event::CameBack(key, result) => self.came_back(now_ns, key, result, o),
            Event::Tick => self.tick(now_ns, o),
        }
        self.tell_stranger(now_ns, o);
        self.finish_purge(now_ns, o);
        let next = match self.next_timer() {
            // What is due and was not to be done just now must not hold up everything else for ever.
            Some(at) if ticked && at <= now_ns => Some(now_ns.saturating_add(ns(REPORT_AGAIN))),
            next => next,
        };
        if next != self.timer_ns {
            self.timer_ns = next;
            o.push(Action::SetTimer(next));
        }
        out
    }

    fn linked(&mut self, now: u64, welcome: Welcome, out: &mut Out) {
        match self.why_not(&welcome, out) {
            Some(why) => self.meet_stranger(welcome, why),
            None => self.obey(now, welcome, out),
        }
    }

    fn obey(&mut self, now: u64, welcome: Welcome, out: &mut Out) {
        (self.linked, self.stranger) = (true, None);
        self.distrusted.clear();
        self.clock_ahead_ns = match welcome.boot_id == self.me.boot_id {
            true => 0,
            false => i128::from(welcome.mono_ns) - i128::from(now),
        };
        out.push(Action::Remember(welcome.clone()));
        if self.welcome.as_ref().is_some_and(|known| known.store_id != welcome.store_id) {
            self.forget_plans(out);
        }
        self.welcome = Some(welcome);
        let items = self
            .apps
            .iter()
            .filter(|(_, app)| !app.over_with_psched())
            .map(|(key, app)| (*key, app.phase()))
            .collect();
        let keys: Vec<Key> = self.apps.keys().copied().collect();
        // Before its end, which is told by the nodes where it sat.
        keys.iter().for_each(|key| self.report_moved(*key, out));
        out.push(Action::Inventory { items, last_command: self.last_command });
        for key in keys {
            self.report_movable(key, out);
            self.report_end(now, key, out);
            self.report_stuck(key, out);
        }
    }

    fn tick(&mut self, now: u64, out: &mut Out) {
        self.streams_tick(now, out);
        let keys: Vec<Key> = self.apps.keys().copied().collect();
        for key in keys {
            self.time_limit_tick(now, key, out);
            let due = self.apps.get(&key).is_some_and(|app| app.report_due_ns() <= Some(now));
            if due {
                self.report_end(now, key, out);
            }
            self.front_away_tick(now, key, out);
            self.grace_tick(now, key, out);
            self.backstop_tick(now, key, out);
            self.dump_tick(now, key, out);
            // After what may end the application: hosts that are still to be reached are then told
            // in this tick.
            self.peers_tick(now, key, out);
            self.settle(now, key, out);
        }
    }

    /// A time of this host's clock on psched's.
    fn on_psched_clock(&self, at_ns: u64) -> u64 {
        let at = i128::from(at_ns) + self.clock_ahead_ns;
        u64::try_from(at.max(0)).unwrap_or(u64::MAX)
    }

    fn next_timer(&mut self) -> Option<u64> {
        let heard = self.reports_ends();
        if std::mem::replace(&mut self.ends_heard, heard) != heard {
            self.apps.touch_all();
        }
        let of_apps = self.apps.next(|app| app.deadlines(heard).min());
        let of_fronts = self.fronts.next(|front| front.opening.deadline());
        let of_heads = self.heads.next(Opening::deadline);
        [of_apps, of_fronts, of_heads].into_iter().flatten().min()
    }

    /// Reports, if there is somebody to report to: what has happened meanwhile, the next inventory
    /// tells.
    fn report(&self, report: Report, out: &mut Out) {
        if self.linked {
            out.push(Action::Report(report));
        }
    }
}

/// The nodes of a part that are also in a placement, in the placement's order.
fn own_nids(place: &PlaceCommand, nids: &BTreeSet<Nid>) -> Vec<Nid> {
    place.places.nids().filter(|nid| nids.contains(nid)).collect()
}

/// Which of the hosts offers these nodes.
fn own_index(hosts: &[HostPart], nids: &BTreeSet<Nid>) -> Option<u32> {
    let own = hosts.iter().position(|h| h.nids.iter().any(|nid| nids.contains(nid)))?;
    u32::try_from(own).ok()
}
