//! Copies of programs in the simulated cluster: what comes of an apinit's asking another one, or a front end, for one.
//!
//! All front ends are on host 0, where each program is. On other hosts those of every other application are missing.

use super::MS;
use super::apinit::Slot;
use super::wire::Pid;
use super::world::{Ev, World};
use crate::apinit::decide::Event;
use crate::apteam::Key;
use crate::apteam::launch::{FileIdentity, HostLaunch, Launch};
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::programs::{GivenProgram, ProgramOf, WantedProgram};

/// Bytes of each program.
pub const SIZE: u64 = 4_096;
/// How often an apinit asks before it gives up.
const TRIES: u32 = 400;

/// A copy, as an apinit has it.
#[derive(Clone, Debug)]
pub struct Copy {
    program: WantedProgram,
    /// The apinits that are asked for it; none: the front end brings it.
    from: Vec<Option<usize>>,
    whole: bool,
}

/// What an apshepherd says of a launch whose program is not here.
pub fn wanted(launch: &HostLaunch, host: usize) -> Vec<WantedProgram> {
    let Launch { copies, identity, executable, .. } = &launch.launch;
    let missing = identity.filter(|_| *copies && host != 0);
    let program = |posted: FileIdentity| WantedProgram {
        part: 0,
        size: posted.size,
        name: executable.clone(),
    };
    missing.map(program).into_iter().collect()
}

impl World {
    /// An apinit begins to take one.
    pub fn take_program(
        &mut self,
        slot: usize,
        key: Key,
        program: WantedProgram,
        from: Vec<HostAddress>,
    ) {
        let from: Vec<_> = from.iter().map(|at| Slot::of_socket(&at.socket)).collect();
        let (asks, life) = (!from.is_empty(), self.slots[slot].life);
        self.counts.add("copies of programs");
        if let Some(proc) = &mut self.slots[slot].proc {
            proc.copies.insert(key, Copy { program, from, whole: false });
        }
        if asks {
            let wait = self.work.u64(MS / 10..5 * MS);
            self.after(wait, Ev::ProgramAsks { slot, life, key, tries: 0 });
        }
    }

    /// It asks one of its sources.
    pub fn program_asks(&mut self, slot: usize, life: u64, key: Key, tries: u32) {
        if self.slots[slot].life != life {
            return;
        }
        let copy = self.slots[slot].proc.as_ref().and_then(|proc| proc.copies.get(&key));
        let Some(copy) = copy.filter(|copy| !copy.whole) else { return };
        let (from, program) = (copy.from[tries as usize % copy.from.len()], copy.program.clone());
        if tries >= TRIES {
            return self.program_is(slot, key, false);
        }
        let reached = from.filter(|other| {
            let [here, there] = [self.slots[slot].host, self.slots[*other].host];
            !self.is_cut(here, there) && !self.is_cut(there, here)
        });
        let other = reached.and_then(|other| Some((other, self.slots[other].proc.as_ref()?)));
        match other.map(|(other, proc)| (other, proc.copies.get(&key).map(|copy| copy.whole))) {
            Some((_, Some(true))) => return self.program_is(slot, key, true),
            Some((other, None)) => {
                self.apinit_happens(other, Event::ProgramAsked(key, program));
            }
            Some((_, Some(false))) | None => {}
        }
        let wait = self.work.u64(MS..60 * MS);
        self.after(wait, Ev::ProgramAsks { slot, life, key, tries: tries + 1 });
    }

    /// It is here as a whole, or does not come.
    fn program_is(&mut self, slot: usize, key: Key, whole: bool) {
        let Some(proc) = &mut self.slots[slot].proc else { return };
        let Some(copy) = proc.copies.get_mut(&key) else { return };
        copy.whole = whole;
        let given = match whole {
            true => GivenProgram {
                path: format!("/copies/{key}").into_bytes(),
                identity: Some(FileIdentity::default()),
                ..GivenProgram::default()
            },
            false => GivenProgram { why_not: "nobody has it".into(), ..GivenProgram::default() },
        };
        self.apinit_happens(slot, Event::ProgramTaken(key, Box::new(given)));
    }

    /// A front end sends one to the apinit of PE 0.
    pub fn hands_program(&mut self, pid: Pid, link: u32, of: ProgramOf) {
        let wait = self.work.u64(MS / 10..20 * MS);
        self.after(wait, Ev::ProgramHanded { pid, link, key: of.key });
    }

    /// It has come, if that front end is still there and speaks with the same apinit.
    pub fn program_handed(&mut self, pid: Pid, link: u32, key: Key) {
        let wire = self.fronts.get(&pid).and_then(|aprun| aprun.apinit);
        if wire.is_none_or(|(_, of)| of != link) {
            return;
        }
        let waits = |slot: &Slot| {
            let copy = slot.proc.as_ref().and_then(|proc| proc.copies.get(&key));
            copy.is_some_and(|copy| copy.from.is_empty() && !copy.whole)
        };
        if let Some(slot) = self.slots.iter().position(waits) {
            self.program_is(slot, key, true);
        }
    }
}
