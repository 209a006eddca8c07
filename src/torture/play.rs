//! A cluster that is led by a script: what the named scenarios are written with.
//!
//! # Problem
//! Seeds find what nobody has thought of. What somebody has thought of, a fault that another system
//! had, say, should be tried by name, at the moment that matters and at no other, and be read as a
//! story.
//!
//! # Approach
//! A [`Play`] is a small cluster with nothing left to chance but how long a message takes. The script
//! says who posts what, waits until something is so, does the harm, and says what must be so then.
//! The checkers look on as they do in every seed. When the script is over the cluster must come to
//! rest, with nothing lost and nothing left.
//!
//! # Example
//! ```text
//! let aprun = play.posts(1001, 2, sleeps(10 * SECOND));
//! play.until("it runs", |w| w.runs(aprun) == 2)?;
//! play.world.kill_psched();
//! play.until("it ends", |w| w.exit_of(aprun) == Some(0))
//! ```

use super::cpr::Cpr;
use super::front::owner_of;
use super::host::Host;
use super::memory::Memory;
use super::program::{PePlan, Plan, Step};
use super::wire::{Pid, Who, WireId};
use super::world::{Ev, World};
use super::{MS, Options, SECOND};
use crate::apteam::ending::PeEnd;
use crate::apteam::posting::Posting;
use crate::apteam::protocol::attach::ToApinit;
use crate::apteam::protocol::node::Report;
use crate::apteam::protocol::peers::ToPeer;
use crate::apteam::record::{Apteam, State};
use crate::apteam::shape::Shape;
use crate::apteam::{Apid, Key};
use crate::machine::{Flavors, Machine, Nid, Node};
use crate::psched::decide::{Effect, Event, LinkId, Looked, ReplyId};
use crate::psched::reason::Reason;
use std::collections::BTreeSet;

/// What a step of a script gives: an error says what is not as it must be.
pub type Played = Result<(), String>;

/// How long a script waits for something.
const PATIENCE: u64 = 120 * SECOND;

/// A cluster and its script's hands.
pub struct Play {
    pub world: World,
    /// Where aprun is typed.
    host: usize,
}

/// PEs that run for so long, write a line and end well.
pub fn sleeps(time: u64) -> Plan {
    plan(vec![Step::Work(time), Step::Say(100), Step::End(PeEnd::Exit(0))])
}

/// The random number, so to speak, of what an aprun posts.
fn request_of(aprun: Pid) -> [u8; 16] {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&aprun.to_le_bytes());
    id
}

/// PEs that do these steps.
pub fn plan(steps: Vec<Step>) -> Plan {
    Plan { mpi: false, stdin: 0, pes: vec![PePlan { steps, ignores_term: false, bad: None }] }
}

impl Play {
    /// A cluster whose hosts have these processors on each node; the login host, which is not among
    /// them, has none. It is up, and all nodes are open.
    ///
    /// # Errors
    /// It does not come up.
    pub fn new(hosts: &[&[u32]], lines: usize) -> Result<Play, String> {
        let options = Options { postings: 0, faults: Some(BTreeSet::new()), ..Options::new(1) };
        let mut world = World::new(options, lines);
        world.memory = Memory::none();
        // A host leads on to the next, and that one to its next.
        world.settings.fan_out = 1;
        let mut chance = fastrand::Rng::with_seed(1);
        world.cpr = Cpr::none(chance.fork());
        world.cpr.sure = true;
        world.machine = Machine::default();
        world.hosts = vec![Host::new("login".into(), &mut chance)];
        world.slots.clear();
        let mut nid = 0;
        for nodes in hosts {
            let host = world.hosts.len();
            let name = format!("host{host}");
            world.hosts.push(Host::new(name.clone(), &mut chance));
            let (mut nids, mut cpus) = (BTreeSet::new(), Vec::new());
            for processors in *nodes {
                let first = cpus.len() as u32;
                let own: Vec<u32> = (first..first + processors).collect();
                cpus.extend(&own);
                let node = Node {
                    nid: Nid(nid),
                    processors: *processors,
                    cpus: own,
                    memory: 1 << 30,
                    flavors: Flavors::all(),
                    host: name.clone(),
                };
                world.machine.nodes.insert(Nid(nid), node);
                nids.insert(Nid(nid));
                nid += 1;
            }
            world.slots.push(super::apinit::Slot::new(host, nids, cpus));
        }
        world.ready_faults();
        world.at(0, Ev::PschedStart);
        for slot in 0..world.slots.len() {
            world.at(MS, Ev::ApinitStart(slot));
        }
        let mut play = Play { world, host: 0 };
        play.until("all nodes are open", |w| w.open_nodes() == w.machine.nodes.len())?;
        Ok(play)
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: u64) {
        let until = self.world.now + time;
        while self.world.checks.sound() && self.world.step(until) {}
        self.world.now = self.world.now.max(until);
    }

    /// Lets things happen until this is so.
    ///
    /// # Errors
    /// It does not become so in a long time, or a checker found something broken before.
    pub fn until(&mut self, what: &str, so: impl Fn(&World) -> bool) -> Played {
        let until = self.world.now + PATIENCE;
        while !so(&self.world) {
            if !self.world.checks.sound() {
                return Err(format!("before this was so: {what}"));
            }
            if !self.world.step(until) {
                return Err(format!("it did not come to this: {what}"));
            }
        }
        Ok(())
    }

    /// Lets time pass in which this stays so.
    ///
    /// # Errors
    /// It does not.
    pub fn throughout(&mut self, time: u64, what: &str, so: impl Fn(&World) -> bool) -> Played {
        let until = self.world.now + time;
        loop {
            expect(what, so(&self.world))?;
            if !self.world.checks.sound() || !self.world.step(until) {
                self.world.now = self.world.now.max(until);
                return Ok(());
            }
        }
    }

    /// A user types aprun -n WIDTH; where the plan has one PE only, all do what that one does.
    pub fn posts(&mut self, uid: u32, width: u32, plan: Plan) -> Pid {
        self.posts_limited(uid, width, plan, None)
    }

    /// The same with a limit on the time that it runs.
    pub fn posts_limited(
        &mut self,
        uid: u32,
        width: u32,
        plan: Plan,
        limit: Option<std::time::Duration>,
    ) -> Pid {
        self.posts_as(uid, width, plan, |posting| posting.time_limit = limit)
    }

    /// The same of one whose launch is tried again where it fails by a node's fault.
    pub fn posts_and_retries(&mut self, uid: u32, width: u32, plan: Plan) -> Pid {
        self.posts_as(uid, width, plan, |posting| posting.tries_again = true)
    }

    /// The same on another host than psched's.
    pub fn posts_at(&mut self, host: usize, uid: u32, width: u32, plan: Plan) -> Pid {
        self.posts_at_as(host, uid, width, plan, |_| {})
    }

    /// The same, with another change of what is posted.
    pub fn posts_at_as(
        &mut self,
        host: usize,
        uid: u32,
        width: u32,
        plan: Plan,
        change: impl FnOnce(&mut Posting),
    ) -> Pid {
        self.host = host;
        let aprun = self.posts_as(uid, width, plan, change);
        self.host = 0;
        aprun
    }

    fn posts_as(
        &mut self,
        uid: u32,
        width: u32,
        mut plan: Plan,
        change: impl FnOnce(&mut Posting),
    ) -> Pid {
        let pid = self.world.new_pid();
        if let [only] = &plan.pes[..] {
            plan.pes = vec![only.clone(); width as usize];
        }
        let shape = Shape { width, depth: 1, per_node: None };
        let mut posting =
            Posting { command: format!("program{pid}"), ..Posting::plain(request_of(pid), shape) };
        change(&mut posting);
        self.world.front_is_on(pid, self.host);
        let owner = owner_of(uid);
        self.world.aprun_starts(pid, posting, owner, plan, false);
        pid
    }

    /// An aprun that posts and is stopped as soon as its posting is on record: its place comes, and
    /// nobody launches.
    ///
    /// # Errors
    /// It gets no place.
    pub fn posts_and_naps(
        &mut self,
        uid: u32,
        width: u32,
        plan: Plan,
        time: u64,
    ) -> Result<Pid, String> {
        let pid = self.posts(uid, width, plan);
        self.until("the posting is on record", |w| w.on_disk(pid).is_some())?;
        let until = self.world.now + time;
        self.world.nap(pid, until);
        self.until("its nodes have its place", |w| {
            let Some(team) = w.on_disk(pid).filter(|t| t.state == State::Placed) else {
                return false;
            };
            let has = |nid| {
                w.slots.iter().any(|s| s.nids.contains(&nid) && s.apps.contains_key(&team.key()))
            };
            team.places.nids().all(has)
        })?;
        Ok(pid)
    }

    /// Streams that an apinit has opened to others lose all that is on its way, and break.
    pub fn lose_peers(&mut self, slot: usize) {
        self.lose(|ends| matches!(ends[0], Who::ApinitPeer(of, ..) if of == slot));
    }

    /// Connections between psched and an apinit lose all that is on its way, and break.
    pub fn lose_link(&mut self, slot: usize) {
        self.lose(|ends| ends.contains(&Who::ApinitLink(slot)));
    }

    fn lose(&mut self, which: impl Fn(&[Who; 2]) -> bool) {
        let ids: Vec<WireId> =
            self.world.wires.iter().filter(|(_, w)| which(&w.ends)).map(|(id, _)| *id).collect();
        self.lose_wires(ids);
    }

    fn lose_wires(&mut self, ids: Vec<WireId>) {
        for id in ids {
            for side in 0..2 {
                if let Some(wire) = self.world.wires.get_mut(&id) {
                    wire.lost[side] = true;
                    wire.drop_messages(side);
                }
                self.world.after(MS, Ev::Lost(id, side));
            }
        }
    }

    /// There is a host without nodes as well, and users are on all hosts: its number.
    ///
    /// # Errors
    /// Their apinits do not come to psched.
    pub fn login_host(&mut self) -> Result<usize, String> {
        self.world.have_login_hosts(1);
        let hosts = self.world.hosts.len();
        // (Their apinits say on a new link where other hosts reach them.)
        (0..self.world.slots.len()).for_each(|slot| self.lose_link(slot));
        self.pass(SECOND);
        self.until("all nodes are open", |w| w.open_nodes() == w.machine.nodes.len())?;
        self.until("all login hosts are connected", |w| w.login_links() == hosts - 1)?;
        Ok(hosts - 1)
    }

    /// What is between a front end and the apinit of PE 0 loses all that is on its way, and breaks.
    pub fn lose_relay(&mut self, front: Pid) {
        let through = self.world.passes_for(front);
        self.lose(|ends| {
            ends[0] == Who::FrontApinit(front)
                || matches!(ends[0], Who::Relay(number) if through == Some(number))
        });
    }

    /// The login link of a host loses all that is on its way, and breaks.
    pub fn lose_login(&mut self, host: usize) {
        self.lose(|ends| ends[0] == Who::Login(host));
    }

    /// Nothing goes between psched's host and another for so long, whoever dials.
    pub fn cut_off(&mut self, host: usize, time: u64) {
        let until = self.world.now + time;
        self.world.cuts.insert((0, host), until);
        self.world.cuts.insert((host, 0), until);
        self.world.checks.cut(0, host, until);
        for slot in 0..self.world.slots.len() {
            if self.world.slots[slot].host == host {
                self.lose_link(slot);
            }
        }
    }

    /// Nothing goes between the host of an apinit and the hosts of all others for so long. (psched
    /// is reached.)
    pub fn cut_off_peers(&mut self, slot: usize, time: u64) {
        let until = self.world.now + time;
        let own = self.world.slots[slot].host;
        let others = self.world.slots.iter().map(|slot| slot.host).filter(|host| *host != own);
        for host in others.collect::<Vec<_>>() {
            for way in [(own, host), (host, own)] {
                self.world.cuts.insert(way, until);
            }
            self.world.checks.cut(own, host, until);
        }
        self.lose_peers_of(own);
    }

    /// Streams between apinits, of this host and others, lose all that is on its way, and break.
    fn lose_peers_of(&mut self, host: usize) {
        let wires = self.world.wires.iter().filter(|(_, wire)| {
            matches!(wire.ends[0], Who::ApinitPeer(..)) && wire.hosts.contains(&host)
        });
        let ids: Vec<WireId> = wires.map(|(id, _)| *id).collect();
        self.lose_wires(ids);
    }

    /// A report comes to psched, whoever has said it, and when.
    ///
    /// # Errors
    /// There is no link on which it could come.
    pub fn report_comes(&mut self, slot: usize, report: Report) -> Played {
        let link = self.world.link_of(slot).ok_or("no link")?;
        self.world.psched_event(Event::Report { link, report: Box::new(report) });
        Ok(())
    }

    /// A process of this user, which is no aprun of psched's, says this at an apinit's socket.
    pub fn stranger_says(&mut self, slot: usize, uid: u32, says: Vec<ToApinit>) {
        self.world.stranger_says(slot, uid, says);
    }

    /// The same, as a head would.
    pub fn stranger_says_as_head(&mut self, slot: usize, uid: u32, says: Vec<ToPeer>) {
        self.world.stranger_says_as_head(slot, uid, says);
    }

    /// What psched says of why a posting waits; the checkers hold it against the machine.
    ///
    /// # Errors
    /// It does not wait.
    pub fn why(&mut self, aprun: Pid) -> Result<Reason, String> {
        let apid = self.world.apid_of(aprun).ok_or("it has no number")?;
        let now = self.world.psched_now();
        let psched = self.world.psched.as_mut().ok_or("psched is not there")?;
        let event = Event::Looked { reply: ReplyId(u64::MAX), apid };
        // On a copy: nobody has asked for this.
        let mut scheduler = psched.driver.scheduler().clone();
        let effects = scheduler.apply(now, event);
        self.world.check_explanations(&scheduler, Some(apid), None, &effects);
        let found = effects.into_iter().find_map(|effect| match effect {
            Effect::Look { looked: Looked::Waiting(why), .. } => Some(*why),
            _ => None,
        });
        found.ok_or_else(|| "it does not wait".to_owned())
    }

    /// It ends with this status, and its aprun tells it.
    ///
    /// # Errors
    /// It does not.
    pub fn ends(&mut self, aprun: Pid, status: u8) -> Played {
        self.until("its aprun exits", |w| w.exit_of(aprun).is_some())?;
        let exit = self.world.exit_of(aprun);
        if exit != Some(status) {
            let said = self.world.checks.all_said_by(aprun).join("; ");
            return Err(format!("its aprun exits with {exit:?}, not {status}: {said}"));
        }
        Ok(())
    }
}

/// # Errors
/// This is not so.
pub fn expect(what: &str, so: bool) -> Played {
    if so { Ok(()) } else { Err(format!("this is not so: {what}")) }
}

/// What scripts ask.
impl World {
    /// Nodes on which psched would place something.
    pub fn open_nodes(&self) -> usize {
        let nodes = self.psched.iter().flat_map(|p| p.driver.scheduler().nodes());
        nodes.filter(|n| n.state != "suspect").count()
    }

    /// psched's link of an apinit.
    pub fn link_of(&self, slot: usize) -> Option<LinkId> {
        self.wires.values().find_map(|w| match (w.ends[1], w.ends[0]) {
            (Who::PschedLink(link), Who::ApinitLink(of)) if of == slot => Some(link),
            _ => None,
        })
    }

    /// An apinit has a stream to another.
    pub fn leads_on(&self, slot: usize) -> bool {
        self.wires.values().any(|w| matches!(w.ends[0], Who::ApinitPeer(of, ..) if of == slot))
    }

    /// An apinit has a stream to another for this application.
    pub fn leads_on_for(&self, slot: usize, key: Key) -> bool {
        let to = |who: Who| matches!(who, Who::ApinitPeer(of, k, ..) if of == slot && k == key);
        self.wires.values().any(|wire| to(wire.ends[0]))
    }

    /// The record on the disk.
    pub fn on_disk(&self, aprun: Pid) -> Option<&Apteam> {
        self.disk.teams.values().find(|t| t.posting.request_id == request_of(aprun))
    }

    /// What made it end, in words; empty: nothing bad.
    pub fn cause_of(&self, aprun: Pid) -> String {
        let end = self.on_disk(aprun).and_then(|t| t.end.as_ref());
        end.and_then(|e| e.first.as_ref()).map(|d| d.cause.to_string()).unwrap_or_default()
    }

    /// Its number: aprun may not have heard of it.
    pub fn apid_of(&self, aprun: Pid) -> Option<Apid> {
        self.on_disk(aprun).map(|t| t.apid)
    }

    /// Its number and incarnation on the disk.
    pub fn key_of(&self, aprun: Pid) -> Option<Key> {
        self.on_disk(aprun).map(Apteam::key)
    }

    /// What a front end's posting has become, by its own word.
    pub fn apid_of_front(&self, front: Pid) -> Option<Key> {
        let apid = self.fronts.get(&front)?.apid()?;
        self.disk.teams.get(&apid).map(Apteam::key)
    }

    /// Its state in psched's mind.
    pub fn state_of(&self, aprun: Pid) -> Option<State> {
        let apid = self.apid_of(aprun)?;
        self.scheduler()?.team(apid).map(|t| t.state)
    }

    /// PEs of it that run.
    pub fn runs(&self, aprun: Pid) -> usize {
        let Some(apid) = self.apid_of(aprun) else { return 0 };
        self.procs.values().filter(|p| p.key.apid == apid && p.runs).count()
    }

    /// Processors that psched says are in use.
    pub fn used(&self) -> u32 {
        self.psched.iter().flat_map(|p| p.driver.scheduler().nodes()).map(|n| n.used).sum()
    }

    /// How an aprun has ended.
    pub fn exit_of(&self, aprun: Pid) -> Option<u8> {
        self.checks.exit_of(aprun)
    }
}
