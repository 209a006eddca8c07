//! What apshepherd's driver needs of the world: one trait.

use crate::apshepherd::decide::pmix::ToMix;
use crate::apshepherd::decide::spawn::Request;
use crate::apshepherd::decide::{Action, Event, Left, Looked};
use crate::apteam::Key;
use crate::apteam::launch::HostLaunch;
use crate::apteam::posting::Mpi;
use crate::apteam::protocol::notice::Seen;
use crate::apteam::protocol::processes::{PeProcess, Question};
use crate::apteam::protocol::programs::GivenProgram;
use crate::apteam::protocol::shepherd::FromShepherd;
use crate::machine::Nid;
use bytes::Bytes;
use std::collections::BTreeMap;

/// The world outside of the driver: PEs, their pipes and PMI connections, and the connection to apinit.
///
/// apshepherd may be killed between any two calls; it keeps no records. No call waits for a PE or for apinit.
pub trait Outside {
    /// CLOCK_MONOTONIC as this process sees it, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// What has come of the calls before, in order. It is heard after the actions that are under way.
    fn happened(&mut self) -> Vec<Event>;

    /// For the log: this is heard now.
    fn hears(&mut self, event: &Event);

    /// For the log: this is done next.
    fn does(&mut self, action: &Action);

    // ---- processes ----

    /// Forks and executes the PEs, each to stop before user code; or [`Event::ProgramsWanted`].
    fn fork(&mut self, launch: Box<HostLaunch>);

    /// The same now, with these copies of programs that were not here.
    fn fork_with(&mut self, programs: Vec<GivenProgram>);

    /// Lets all PEs go.
    fn go(&mut self);

    /// Sends a signal to the process group of each PE that has not ended.
    fn signal(&mut self, signal: i32);

    /// Sends a signal to every process that descends from this one: how many are alive.
    fn signal_left(&mut self, signal: i32) -> u32;

    /// Whether they are frozen, since others have their turn.
    fn is_frozen(&self) -> bool;

    /// What descends from this process and lives.
    fn left(&self) -> Vec<Left>;

    /// The processes of the PEs that are asked for, by rank.
    fn processes(&self, question: &Question) -> Vec<PeProcess>;

    /// How these PEs are, as far as there are any.
    fn look_at_pes(&mut self, ranks: &[u32]) -> BTreeMap<u32, Looked>;

    /// Makes a debugger that will write the stacks of this PE, and tells apinit of it. It waits for
    /// [`Outside::let_debugger_work`]. [`Event::DebuggerEnded`] follows, unless it is left.
    fn start_debugger(&mut self, number: u64, rank: u32);

    /// It is in the control group of its node: lets it begin.
    fn let_debugger_work(&mut self, number: u64);

    /// Kills it, whose PE goes on.
    fn end_debugger(&mut self, number: u64);

    /// It was killed and does not end: nothing is to be heard of it any more.
    fn leave_debugger(&mut self, number: u64);

    /// Makes a process on the processors of this PE that will be what the PE spawns: [`Event::SpawnMade`], or
    /// [`Event::SpawnEnded`]. It waits for [`Outside::let_spawned_run`].
    fn spawn(&mut self, number: u64, rank: u32, request: Request);

    /// It is in the control group of its node: lets it run. [`Event::SpawnEnded`] follows.
    fn let_spawned_run(&mut self, number: u64);

    /// Kills it.
    fn end_spawned(&mut self, number: u64);

    /// Kills every process that descends from this one.
    fn kill_everything(&mut self);

    // ---- apinit ----

    /// Tells apinit, if it is connected.
    fn tell(&mut self, message: FromShepherd);

    /// Tells it, for the user, with the time.
    fn notice(&mut self, nid: Nid, what: Seen);

    /// Closes the connection, and listens for the next one. False: there was none.
    fn hang_up(&mut self) -> bool;

    /// From now on this process is named by this application.
    fn rekeyed(&mut self, key: Key);

    // ---- what PEs read and write ----

    /// Answers a PE on its PMI connection.
    fn answer_pmi(&mut self, rank: u32, data: Bytes);

    /// Closes a PE's PMI connection.
    fn close_pmi(&mut self, rank: u32);

    /// Which MPI each of these PEs has loaded, if it has.
    fn look_for_mpi(&mut self, ranks: &[u32]) -> BTreeMap<u32, Mpi>;

    /// Tells appmix, if it is there.
    fn tell_mix(&mut self, message: ToMix);

    /// Reads the PEs' output from now on, or lets it wait in their pipes.
    fn read_output(&mut self, on: bool);

    /// There is no child: reads one more piece of what a pipe holds, or closes it at its end. False: all are
    /// closed.
    fn drain(&mut self) -> bool;

    /// For PE 0's stdin, in order.
    fn write_stdin(&mut self, data: Bytes);

    /// Closes PE 0's stdin once all of that is written.
    fn close_stdin(&mut self);

    // ---- time ----

    /// [`Event::Tick`] is wanted then, and at no other time.
    fn set_timer(&mut self, at_ns: Option<u64>);

    /// It is over. Nothing more is called.
    fn exit(&mut self);
}
