//! What the driver does, for real.

use super::loaded::{LOOK_MAX, mpi_in};
use super::{Shell, descend};
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
use crate::os::host::monotonic_ns;
use bytes::Bytes;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;

impl Outside for Shell {
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn happened(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.happened)
    }

    fn hears(&mut self, _event: &Event) {}

    fn does(&mut self, _action: &Action) {}

    // ---- processes ----

    fn fork(&mut self, launch: Box<HostLaunch>) {
        self.make_pes(launch);
    }

    fn fork_with(&mut self, programs: Vec<GivenProgram>) {
        self.make_pes_with(programs);
    }

    fn go(&mut self) {
        self.let_go();
    }

    fn signal(&mut self, signal: i32) {
        self.signal_pes(signal);
    }

    fn signal_left(&mut self, signal: i32) -> u32 {
        let Ok(signal) = Signal::try_from(signal) else { return 0 };
        let left = descend::signal_all(signal, &self.groups);
        // (What traces them ends with them, and is nothing that they have left.)
        let own = |pid: i32| {
            self.pes.of_tracer(pid).is_some() || self.debuggers.is_one(pid) || self.mix.is_it(pid)
        };
        left.iter().filter(|pid| !own(pid.as_raw())).count() as u32
    }

    fn is_frozen(&self) -> bool {
        self.frozen()
    }

    fn left(&self) -> Vec<Left> {
        self.descendants()
    }

    fn processes(&self, question: &Question) -> Vec<PeProcess> {
        self.pes.named(|rank| question.asks(rank))
    }

    fn look_at_pes(&mut self, ranks: &[u32]) -> BTreeMap<u32, Looked> {
        self.looks_at_pes(ranks)
    }

    fn start_debugger(&mut self, number: u64, rank: u32) {
        self.starts_debugger(number, rank);
    }

    fn let_debugger_work(&mut self, number: u64) {
        self.lets_debugger_work(number);
    }

    fn end_debugger(&mut self, number: u64) {
        self.ends_debugger(number);
    }

    fn leave_debugger(&mut self, number: u64) {
        self.leaves_debugger(number);
    }

    fn spawn(&mut self, number: u64, rank: u32, request: Request) {
        self.spawns(number, rank, &request);
    }

    fn let_spawned_run(&mut self, number: u64) {
        self.spawned.let_run(number);
    }

    fn end_spawned(&mut self, number: u64) {
        self.spawned.end(number);
    }

    fn kill_everything(&mut self) {
        self.kill_all();
    }

    // ---- apinit ----

    fn tell(&mut self, message: FromShepherd) {
        if let Some(link) = &mut self.link {
            link.push(message);
        }
    }

    fn notice(&mut self, nid: Nid, what: Seen) {
        let now = jiff::Timestamp::now().as_nanosecond();
        let at_ns = u64::try_from(now).unwrap_or(0);
        self.tell(FromShepherd::Notice(Notice::Seen { nid, at_ns, what }));
    }

    fn hang_up(&mut self) -> bool {
        self.disconnect()
    }

    fn rekeyed(&mut self, key: Key) {
        self.options.key = key;
        self.diagnostics.rekeyed(key);
        self.remake_mix_folder();
    }

    // ---- what PEs read and write ----

    fn answer_pmi(&mut self, rank: u32, data: Bytes) {
        if let Some((index, pe)) = self.pes.of_rank(rank) {
            pe.answers.extend(&data[..]);
            self.answer(index);
        }
    }

    fn close_pmi(&mut self, rank: u32) {
        if let Some((index, _)) = self.pes.of_rank(rank) {
            self.close_pmi_of(index);
        }
    }

    fn look_for_mpi(&mut self, ranks: &[u32]) -> BTreeMap<u32, Mpi> {
        let own = self.pes.named(|rank| ranks.contains(&rank)).into_iter();
        // (Each has its part, so that a PE of many large processes hides no other one.)
        let each = LOOK_MAX / ranks.len().max(1) as u64;
        let own = own.filter(|pe| pe.pid > 0);
        let found = own.map(|pe| (pe.rank, mpi_in(pe.pid as i32, &mut { each })));
        found.filter(|(_, mpi)| *mpi != Mpi::None).collect()
    }

    fn tell_mix(&mut self, message: ToMix) {
        self.say_to_mix(message);
    }

    fn read_output(&mut self, on: bool) {
        self.set_reading(on);
    }

    fn drain(&mut self) -> bool {
        while let Some(pe) = self.pes.all.get(self.drained) {
            match pe.output.iter().position(|pipe| pipe.fd.is_some()) {
                Some(pipe) => {
                    self.read_pipe(self.drained, pipe == 1, true);
                    return true;
                }
                None => self.drained += 1,
            }
        }
        false
    }

    fn write_stdin(&mut self, data: Bytes) {
        self.stdin.waiting.push_back(data);
        self.pour_stdin();
    }

    fn close_stdin(&mut self) {
        self.stdin.closing = true;
        self.pour_stdin();
    }

    // ---- time ----

    fn set_timer(&mut self, at_ns: Option<u64>) {
        self.timer = at_ns;
    }

    fn exit(&mut self) {
        self.over = true;
    }
}
