//! What apinit's driver needs of the world: one trait, and what is said through it.

use crate::apinit::decide::switcher::{Event as TurnEvent, Ran};
use crate::apinit::decide::{Action, Agent, CameBack, Conn, Event, Rebind};
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::attach::FromApinit;
use crate::apteam::protocol::node::{Foreign, Phase, PlaceCommand, Report, Welcome};
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::apteam::protocol::programs::WantedProgram;
use crate::apteam::protocol::shepherd::ToShepherd;
use crate::apteam::protocol::turns::{SlicePlan, Switches};
use crate::apteam::{Key, Ticket};
use crate::machine::Nid;
use std::time::Duration;

/// The world outside of the driver: control groups, processes, connections and the runtime directory.
///
/// apinit may be killed between any two calls. What a call does is over when it returns, except for
/// [`Outside::begin`]. No call waits for a peer or for a process. Records survive the death of apinit,
/// and go with the host.
pub trait Outside {
    /// CLOCK_MONOTONIC of this host, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// What has come of the calls before, in order. It is heard after the actions that are under way.
    fn happened(&mut self) -> Vec<Heard>;

    /// For the log: this is heard now.
    fn hears(&mut self, event: &Event);

    /// For the log: this is done next.
    fn does(&mut self, agent: &Agent, action: &Action);

    // ---- records ----

    /// Keeps a record.
    ///
    /// # Errors
    /// There is no room, say. Of what runs already only the next life of this apinit would miss it:
    /// then the error is for the log.
    fn keep(&mut self, record: Record) -> Result<(), String>;

    /// Keeps whom this apinit obeys, and sees to what the welcome says.
    fn obey(&mut self, agent: &Agent, welcome: Welcome);

    // ---- an application ----

    /// Makes the runtime directory of an application, new and empty.
    ///
    /// # Errors
    /// What stood in the way.
    fn make_folder(
        &mut self,
        agent: &Agent,
        place: &PlaceCommand,
        nids: &[Nid],
    ) -> Result<(), String>;

    /// Makes its control groups, where there are any.
    ///
    /// # Errors
    /// What stood in the way.
    fn make_groups(
        &mut self,
        agent: &Agent,
        place: &PlaceCommand,
        nids: &[Nid],
    ) -> Result<(), String>;

    /// Starts its apshepherd in them, and connects to it.
    ///
    /// # Errors
    /// What stood in the way.
    fn start_shepherd(&mut self, place: &PlaceCommand) -> Result<(), String>;

    /// Whether its PEs, which stand before their first instruction, are in the groups of their nodes; an Err: what was found
    /// instead. `None`: its shepherd has ended meanwhile, as will be said, and processes have lost their parent.
    fn verify_places(&mut self, key: Key, pes: &[(Nid, u32)]) -> Option<Result<(), String>>;

    /// Lets its PEs on these nodes give way to the system.
    fn yields(&mut self, key: Key, nids: &[Nid], nice: u32);

    /// Kills what is in its groups; `shepherd`: all of it, else the shepherd is to go on if it is stopped. One
    /// that is being brought back is not to come.
    fn kill(&mut self, key: Key, shepherd: bool);

    /// Removes the images that are in place of its processes, and the mark that says so.
    fn drop_images(&mut self, key: Key);

    /// Whether no process of it is left.
    fn is_empty(&self, key: Key) -> bool;

    /// Processor time of all processes that ever were in its groups, where that is known: user, system.
    fn used(&self, key: Key) -> Option<(Duration, Duration)>;

    /// Begins what takes time. Its end is told by the event that [`Work`] names.
    fn begin(&mut self, agent: &Agent, work: Work);

    // ---- connections ----

    /// Tells its apshepherd. False: the apshepherd does not take what is sent.
    fn tell_shepherd(&mut self, key: Key, message: ToShepherd) -> bool;

    /// Sends what waits for its apshepherd, and then nothing more. The apshepherd closes when it has heard all
    /// of it: [`Heard::ShepherdSilent`]. False: there is no connection.
    fn hang_up_shepherd(&mut self, key: Key) -> bool;

    /// Its apshepherd can't be heard any more: what became of it. `text`: what is known already.
    fn fate(&mut self, key: Key, text: String) -> String;

    /// Tells a front end, for which so many bytes of output may wait. False: it does not read, and its stream has
    /// been closed.
    fn tell_front(&mut self, conn: Conn, message: FromApinit, room: u64) -> bool;

    /// The same for the head of an application.
    fn tell_head(&mut self, conn: Conn, message: FromPeer, room: u64) -> bool;

    /// Closes the stream of a front end or a head once all is sent; a front end's process is not watched any more.
    fn close_stream(&mut self, conn: Conn);

    /// Opens a stream to another apinit, in place of one for the same index. If more than `room` bytes wait to be
    /// sent on it, it breaks.
    fn open_peer(&mut self, key: Key, index: u32, generation: u64, at: HostAddress, room: u64);

    /// Tells another apinit. A stream that has broken tells so itself.
    fn tell_peer(&mut self, key: Key, index: u32, message: ToPeer);

    /// Closes it.
    fn close_peer(&mut self, key: Key, index: u32);

    /// Has a copy of a program come from these hosts, or from the front end if there are none: [`Event::ProgramTaken`].
    /// It is passed on to hosts that ask for it. `of`: the application's owner and ticket.
    fn take_program(
        &mut self,
        key: Key,
        program: WantedProgram,
        from: Vec<HostAddress>,
        of: (u32, Ticket),
    );

    /// Tells psched, if it is connected.
    fn tell_psched(&mut self, said: Said);

    /// Answers a request for a checkpoint: why there is none, or that the application is being ended.
    fn answer_dump(&mut self, number: u64, refused: Option<String>);

    // ---- time ----

    /// [`Event::Tick`] is wanted then, and at no other time.
    fn set_timer(&mut self, at_ns: Option<u64>);

    /// Tells the switcher.
    fn turns(&mut self, event: TurnEvent);

    /// Tells the switcher that no process of this application is left: it is to be brought back before its turn.
    fn is_away(&mut self, key: Key);

    /// How long it has run, if the switcher knows it.
    fn ran(&self, key: Key) -> Option<Ran>;

    /// The memory that applications have had at most, where that has grown; `all`: that of each, and how long
    /// each has run.
    fn had(&mut self, all: bool) -> Option<Switches>;

    /// For the log: something about an application that should not be.
    fn warn(&mut self, key: Key, text: &str);
}

/// What the driver hears.
#[derive(Debug)]
pub enum Heard {
    /// The agent hears this.
    Happens(Event),
    /// The stream to another apinit, by its generation, brings this.
    PeerSaid(Key, u32, u64, FromPeer),
    /// It is closed, and why.
    PeerLost(Key, u32, u64, String),
    /// The connection to an apshepherd is closed, and why if that is known.
    ShepherdSilent(Key, String),
    /// No process of it is left.
    GroupsEmpty(Key),
    /// The images for this request are made (true), or the user has been told why not.
    Imaged(Key, u64, bool),
    /// Its memory is out, in so many bytes of images, or why it is there as before.
    TookOut(Key, Result<u64, String>),
    /// It is back, or why not.
    CameBack(Key, Result<Box<CameBack>, String>),
    /// Its apshepherd is connected to again, or has gone.
    HeardAgain(Key, bool),
    /// The dump that a former apinit had begun is over, and the application runs.
    Thawed(Key),
}

/// What is kept in the runtime directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The store that is obeyed has so many commits.
    Commits(u64),
    /// These starts of psched are not obeyed, until another welcome is kept.
    Distrusted(Vec<String>),
    /// These slice plans, and no others.
    Plans(Vec<SlicePlan>),
    /// Where the groups of this application will be, on these nodes; or what its processes bear. Kept
    /// before they are made: by it the next apinit removes them.
    Groups {
        /// Which.
        key: Key,
        /// Its nodes here.
        nids: Vec<Nid>,
        /// It is on no other apinit's nodes.
        alone: bool,
    },
    /// The process of its apshepherd.
    Shepherd(Key),
    /// Its placement. With it, it counts as made.
    Place(Box<PlaceCommand>),
    /// It counts as removed.
    NoPlace(Key),
    /// The process of its front end.
    Front(Key, Conn),
    /// Its front end is gone.
    Gone(Key),
    /// Another psched has adopted it than placed it.
    Adopted(Key),
    /// Its PEs go since then.
    Going(Key, u64),
    /// It had run so long, in nanoseconds, at that time.
    Ran(Key, u64, u64),
}

/// What takes time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Wait, within a bound, until no process of it is left: [`Heard::GroupsEmpty`] or
    /// [`Event::GroupsStuck`].
    Empties(Key),
    /// Bind its threads to other processors: [`Event::Rebound`].
    Rebind {
        /// Of which application.
        key: Key,
        /// Each node's part.
        parts: Vec<Rebind>,
        /// Its placement then.
        place: Box<PlaceCommand>,
    },
    /// Bring it back from the checkpoint that cpr has passed: [`Event::Restored`].
    Restore {
        /// Its placement.
        place: Box<PlaceCommand>,
        /// The real processors of each of its places.
        cpus: Vec<Vec<u32>>,
    },
    /// Dump it. Its apshepherd has no connection: [`Heard::Imaged`].
    Dump {
        /// Which application.
        key: Key,
        /// Of the question.
        number: u64,
        /// Bytes of output that have been received from its apshepherd.
        output_received: u64,
        /// Bytes of stdin that its apshepherd has taken.
        stdin_taken: u64,
    },
    /// Dump it and end its processes: [`Heard::TookOut`].
    TakeOut(Key),
    /// Bring it back from these images: [`Heard::CameBack`].
    BringBack {
        /// Its placement.
        place: Box<PlaceCommand>,
        /// The real processors of each of its places.
        cpus: Vec<Vec<u32>>,
    },
    /// Connect to its apshepherd again: [`Heard::HeardAgain`].
    FindShepherd(Key),
    /// Wait until its apshepherd has gone, then remove its groups, then its folder.
    Remove(Key),
}

/// What psched is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// What is here, and the last command that was seen.
    Inventory(Vec<(Key, Phase)>, u64),
    /// A report.
    Report(Box<Report>),
    /// It is not obeyed.
    Foreign(Box<Foreign>),
}
