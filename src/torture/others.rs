//! Those who have no business with an apinit: users who try their luck at what is not theirs, a
//! psched that is not the machine's, and a head that says what no head says.

use super::MS;
use super::wire::{Msg, Pid, Target, Who, WireId};
use super::world::{Ev, World};
use crate::apteam::launch::Launch;
use crate::apteam::protocol::attach::{FrontReason, ToApinit};
use crate::apteam::protocol::node::{Command, NodeSpec, Welcome};
use crate::apteam::protocol::peers::ToPeer;
use crate::apteam::record::{Apteam, State};
use crate::apteam::{Key, Ticket};
use crate::psched::decide::Settings;

impl World {
    /// A process of this user, which is no aprun of psched's, says this at an apinit's socket.
    pub fn stranger_says(&mut self, slot: usize, uid: u32, says: Vec<ToApinit>) {
        let says = says.into_iter().map(|message| Msg::ToApinit(Box::new(message))).collect();
        self.stranger_comes_with(slot, says, |front| Target::Apinit { slot, front, uid });
    }

    /// The same of somebody who takes himself for a head.
    pub fn stranger_says_as_head(&mut self, slot: usize, uid: u32, says: Vec<ToPeer>) {
        let says = says.into_iter().map(|message| Msg::ToPeer(Box::new(message))).collect();
        self.stranger_comes_with(slot, says, |_| Target::Peers { slot, uid });
    }

    /// Root of the host of an application's head has it say this to another host's apinit, on a
    /// stream of its own.
    pub fn hostile_head_says(&mut self, from: usize, slot: usize, key: Key, says: Vec<ToPeer>) {
        self.checks.hostile_head(key.apid);
        let hosts = [self.slots[from].host, self.slots[slot].host];
        // (Its apinit takes no answer for its own: it has given no stream this number.)
        let who = Who::ApinitPeer(from, key, u32::MAX, u64::MAX);
        let wire = self.connect(who, hosts, Target::Peers { slot, uid: 0 });
        for message in says {
            self.send(wire, 0, Msg::ToPeer(Box::new(message)));
        }
    }

    fn stranger_comes_with(&mut self, slot: usize, says: Vec<Msg>, to: impl Fn(Pid) -> Target) {
        let pid = self.new_pid();
        self.checks.stranger(pid);
        let host = self.slots[slot].host;
        let wire = self.connect(Who::FrontApinit(pid), [0, host], to(pid));
        for message in says {
            self.send(wire, 0, message);
        }
    }

    /// Somebody who is not the owner, has not the ticket, or comes to a host that is not the head's,
    /// tries to launch an application or to end it.
    pub fn stranger_comes(&mut self) {
        let has_place =
            |t: &&Apteam| matches!(t.state, State::Placed | State::Launching | State::Running);
        let teams: Vec<Apteam> = self.disk.teams.values().filter(has_place).cloned().collect();
        let Some(team) = self.faults.choice(&teams) else { return };
        let (key, mut ticket, mut uid) = (team.key(), team.ticket, team.owner.uid);
        let head = team.places.nids().next();
        let with = |nid| self.slots.iter().position(|s| s.nids.contains(&nid));
        let (Some(at_head), Some(last)) =
            (head.and_then(with), team.places.nids().last().and_then(with))
        else {
            return;
        };
        let mut slot = at_head;
        match self.faults.u32(0..3) {
            0 => uid += 1,
            1 => ticket = Ticket([7; 16]),
            _ if last != at_head => slot = last,
            _ => return,
        }
        self.counts.add("strangers");
        let executable = team.front.as_ref().map_or(0, |f| f.pid).to_string().into_bytes();
        let launch = Box::new(Launch { executable, ..Launch::default() });
        let first = match self.faults.bool() {
            true => ToApinit::Launch { key, ticket, launch },
            false => ToApinit::Resume { key, ticket, taken: vec![] },
        };
        let kill_after = std::time::Duration::ZERO;
        let terminate = ToApinit::Terminate { reason: FrontReason::Gone, kill_after };
        self.stranger_says(slot, uid, vec![first, terminate]);
    }

    /// What a psched says that does not know this machine, or has an old copy of its state.
    pub fn wrong_psched_says(&mut self, wire: WireId, slot: usize, msg: Msg) {
        match msg {
            Msg::Hello(hello) => {
                let old = hello.epoch > 1 && self.faults.bool();
                let spec = |nid: &crate::machine::Nid| NodeSpec {
                    nid: *nid,
                    processors: self.machine.nodes[nid].processors,
                    cpus: self.machine.nodes[nid].cpus.clone(),
                    first_processor: self.machine.first_processor(*nid),
                    memory: 1 << 30,
                };
                let welcome = Welcome {
                    store_id: if old { hello.store_id.clone() } else { "another0store".into() },
                    epoch: if old { hello.epoch - 1 } else { 1 },
                    nodes: self.slots[slot].nids.iter().map(spec).collect(),
                    kill_grace: Settings::default().kill_grace,
                    mono_ns: self.mono(0),
                    boot_id: self.hosts[0].boot_id(),
                    next_apid: u64::MAX,
                    starts: Vec::new(),
                    commits: 0,
                    unreadable: Vec::new(),
                    bounds: Default::default(),
                    checkpoint_key: None,
                };
                self.send(wire, 1, Msg::Welcome(Box::new(welcome)));
                let late = self.net.u64(10 * MS..3_000 * MS);
                self.after(late, Ev::Lost(wire, 1));
                self.after(late, Ev::Lost(wire, 0));
            }
            Msg::Inventory(items) => {
                let keys: Vec<Key> = items.into_iter().map(|(key, _)| key).collect();
                for (seq, key) in keys.into_iter().enumerate() {
                    let discard = Box::new(Command::Discard(key));
                    self.send(wire, 1, Msg::Command(seq as u64 + 1, 0, discard));
                }
            }
            _ => {}
        }
    }
}
