//! What an apinit is to do.

use super::events::Conn;
use super::rebind::Rebind;
use super::switcher::Event as TurnEvent;
use crate::apteam::Key;
use crate::apteam::place::HostAddress;
use crate::apteam::protocol::attach::FromApinit;
use crate::apteam::protocol::node::{Foreign, Phase, PlaceCommand, Report, Welcome};
use crate::apteam::protocol::peers::{FromPeer, Onward, ToPeer};
use crate::apteam::protocol::programs::WantedProgram;
use crate::apteam::protocol::shepherd::ToShepherd;
use crate::apteam::protocol::turns::SlicePlan;
use crate::machine::Nid;

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
    /// The psched that is obeyed now has adopted it: keep that too.
    KeepAdopted(Key),
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
        at: HostAddress,
        /// It leads on to these.
        beyond: Vec<Onward>,
        /// It has so many streams for that at most.
        fan_out: u32,
    },
    /// Tell these, by their indices, which count up.
    SendPeers(Key, Vec<u32>, ToPeer),
    /// Have a copy of this program come from these hosts, the first before the next; from the front end, if there are
    /// none. Answered by [`Event::ProgramTaken`].
    TakeProgram {
        /// Of which application.
        key: Key,
        /// Which.
        program: WantedProgram,
        /// From where.
        from: Vec<HostAddress>,
    },
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

/// Where an action goes.
pub(super) type Out = Vec<Action>;
