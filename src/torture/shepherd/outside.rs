//! What is around an apshepherd's driver in the cluster. It may be killed before each call that changes something.

use super::Shep;
use crate::apshepherd::decide::pmix::ToMix;
use crate::apshepherd::decide::spawn::Request;
use crate::apshepherd::decide::{Action, Event, Left, Looked};
use crate::apshepherd::drive::Outside;
use crate::apteam::Key;
use crate::apteam::launch::HostLaunch;
use crate::apteam::posting::Mpi;
use crate::apteam::protocol::notice::{Notice, Seen};
use crate::apteam::protocol::processes::{PeProcess, Question};
use crate::apteam::protocol::programs::GivenProgram;
use crate::apteam::protocol::shepherd::FromShepherd;
use crate::machine::Nid;
use crate::torture::host::ProcId;
use crate::torture::programs::wanted;
use crate::torture::wire::{Msg, Pid};
use crate::torture::world::{Ev, World};
use crate::torture::{MS, US, trace};
use bytes::Bytes;
use std::collections::BTreeMap;

/// The world around one apshepherd.
pub struct Around<'w> {
    world: &'w mut World,
    pid: Pid,
}

impl Around<'_> {
    pub fn new(world: &mut World, pid: Pid) -> Around<'_> {
        Around { world, pid }
    }

    fn shep(&mut self) -> Option<&mut Shep> {
        self.world.sheps.get_mut(&self.pid)
    }

    /// It is alive, and stays so until the next call.
    fn steps(&mut self) -> Option<&mut Shep> {
        let dies = self.shep()?.dies_after.as_mut().is_some_and(|left| {
            let now = *left == 0;
            *left = left.saturating_sub(1);
            now
        });
        if dies {
            self.world.counts.killed_between += 1;
            self.world.kill_shepherd(self.pid);
        }
        self.shep()
    }

    /// PEs have been forked, and no child is left.
    pub fn is_childless(&self) -> bool {
        let shep = self.world.sheps.get(&self.pid);
        shep.is_some_and(|s| s.forked && s.kids == 0 && s.pes.values().all(|pe| pe.reaped))
    }

    /// Its processes, also those that PEs have started.
    fn own(&self) -> Vec<ProcId> {
        let own = self.world.procs.iter().filter(|(_, p)| p.shepherd == self.pid);
        own.map(|(id, _)| *id).collect()
    }
}

impl Outside for Around<'_> {
    fn now_ns(&self) -> u64 {
        self.world.shepherds_clock(self.pid).unwrap_or_default()
    }

    fn happened(&mut self) -> Vec<Event> {
        self.shep().map(|shep| std::mem::take(&mut shep.happened)).unwrap_or_default()
    }

    fn hears(&mut self, event: &Event) {
        let (pid, key) = (self.pid, self.shep().map(|shep| shep.key));
        if let Some(key) = key {
            self.world.note(|| format!("shepherd {pid} of {key}: {}", trace::cut(event)));
        }
    }

    fn does(&mut self, action: &Action) {
        let (pid, key) = (self.pid, self.shep().map(|shep| shep.key));
        if let Some(key) = key {
            self.world.note(|| format!("shepherd {pid} of {key} does {}", trace::cut(action)));
        }
    }

    // ---- processes ----

    fn fork(&mut self, launch: Box<HostLaunch>) {
        let Some(slot) = self.steps().map(|shep| shep.slot) else { return };
        let wanted = wanted(&launch, self.world.slots[slot].host);
        match wanted.is_empty() {
            true => self.world.fork(self.pid, launch),
            false => {
                if let Some(shep) = self.shep() {
                    shep.launch_waits = Some(launch);
                    shep.happened.push(Event::ProgramsWanted(wanted));
                }
            }
        }
    }

    fn fork_with(&mut self, programs: Vec<GivenProgram>) {
        let Some(launch) = self.steps().and_then(|shep| shep.launch_waits.take()) else { return };
        // (What could not be copied is found at its path.)
        if programs.iter().any(|program| program.path.is_empty()) {
            self.world.counts.add("programs that were not copied");
        }
        self.world.fork(self.pid, launch);
    }

    fn go(&mut self) {
        if self.steps().is_some() {
            self.world.go(self.pid);
        }
    }

    fn signal(&mut self, signal: i32) {
        if self.steps().is_some() {
            self.world.signal(self.pid, signal);
        }
    }

    fn signal_left(&mut self, signal: i32) -> u32 {
        match self.steps() {
            Some(_) => self.world.signal(self.pid, signal),
            None => 0,
        }
    }

    fn is_frozen(&self) -> bool {
        self.world.shepherd_is_frozen(self.pid)
    }

    fn left(&self) -> Vec<Left> {
        let left = |id: ProcId| {
            let nid = self.world.procs.get(&id)?.nid;
            Some(Left { pid: id.0 as i32, nid, text: format!("pid {}", id.0) })
        };
        self.own().into_iter().filter_map(left).collect()
    }

    /// (Nobody asks in the cluster.)
    fn processes(&self, _: &Question) -> Vec<PeProcess> {
        Vec::new()
    }

    /// (As above: there are no debuggers.)
    fn look_at_pes(&mut self, _: &[u32]) -> BTreeMap<u32, Looked> {
        BTreeMap::new()
    }

    fn start_debugger(&mut self, _: u64, _: u32) {}

    fn let_debugger_work(&mut self, _: u64) {}

    fn end_debugger(&mut self, _: u64) {}

    fn leave_debugger(&mut self, _: u64) {}

    /// (No program of the cluster spawns others.)
    fn spawn(&mut self, _: u64, _: u32, _: Request) {}

    fn let_spawned_run(&mut self, _: u64) {}

    fn end_spawned(&mut self, _: u64) {}

    fn kill_everything(&mut self) {
        if self.steps().is_some() {
            self.own().into_iter().for_each(|id| self.world.kill_proc(id));
        }
    }

    // ---- apinit ----

    fn tell(&mut self, message: FromShepherd) {
        if let Some(wire) = self.steps().and_then(|shep| shep.wire) {
            self.world.send(wire, 1, Msg::FromShepherd(Box::new(message)));
        }
    }

    fn notice(&mut self, nid: Nid, what: Seen) {
        let at_ns = self.world.now;
        self.tell(FromShepherd::Notice(Notice::Seen { nid, at_ns, what }));
    }

    fn hang_up(&mut self) -> bool {
        let wire = self.steps().and_then(|shep| shep.wire.take());
        if let Some(wire) = wire {
            self.world.hang_up(wire, 1);
        }
        wire.is_some()
    }

    /// What people are told of it they are told by its apinit.
    fn rekeyed(&mut self, _: Key) {}

    // ---- what PEs read and write ----

    fn answer_pmi(&mut self, rank: u32, data: Bytes) {
        if self.steps().is_some() {
            self.world.pmi_answer(self.pid, rank, &data);
        }
    }

    fn close_pmi(&mut self, _: u32) {}

    // (Programs of the cluster speak PMI-1.)
    fn look_for_mpi(&mut self, _: &[u32]) -> BTreeMap<u32, Mpi> {
        BTreeMap::new()
    }

    fn tell_mix(&mut self, _: ToMix) {}

    fn read_output(&mut self, on: bool) {
        let Some(shep) = self.steps() else { return };
        shep.reading = on;
        if on {
            for id in std::mem::take(&mut shep.stuck) {
                self.world.wake(id, 10 * US);
            }
        }
    }

    fn drain(&mut self) -> bool {
        let Some(shep) = self.shep() else { return false };
        let open = shep.pes.iter_mut().find(|(_, pe)| !pe.eof);
        let Some((rank, pe)) = open else { return false };
        pe.eof = true;
        for stderr in [false, true] {
            shep.happened.push(Event::OutputEof { rank: *rank, stderr });
        }
        true
    }

    fn write_stdin(&mut self, data: Bytes) {
        let Some(shep) = self.steps() else { return };
        shep.pouring += data.len() as u64;
        let key = shep.key;
        self.world.checks.read(key, &data);
        let late = self.world.work.u64(5 * US..2 * MS);
        self.world.after(late, Ev::StdinTaken(self.pid, data.len() as u64));
    }

    fn close_stdin(&mut self) {
        let Some(shep) = self.steps() else { return };
        shep.happened.push(Event::StdinClosed);
        shep.stdin_over = true;
        let (key, reads) = (shep.key, shep.reads.take());
        self.world.checks.read_all(key);
        if let Some(id) = reads {
            self.world.wake(id, 5 * MS);
        }
    }

    // ---- time ----

    fn set_timer(&mut self, at_ns: Option<u64>) {
        if let Some(shep) = self.steps() {
            shep.rings_at = at_ns;
            self.world.shepherd_sets_timer(self.pid);
        }
    }

    fn exit(&mut self) {
        if self.steps().is_some() {
            self.world.shepherd_gone(self.pid);
        }
    }
}
