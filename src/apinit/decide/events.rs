//! What happens to an apinit.

use super::back::{Back, CameBack};
use super::clock::Reading;
use super::dumping::DumpWord;
use super::switcher::{News, Ran};
use crate::apteam::Key;
use crate::apteam::protocol::attach::ToApinit;
use crate::apteam::protocol::node::{Command, PlaceCommand, Welcome};
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::apteam::protocol::programs::{GivenProgram, WantedProgram};
use crate::apteam::protocol::shepherd::{FromShepherd, Hello};
use std::time::Duration;

/// An attached stream: numbers given by the shell, none used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conn(pub u64);

/// The stream of a front end of which nothing is known any more.
pub const NO_CONN: Conn = Conn(u64::MAX);

/// By whom the process of a front end is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// By no apinit: its death is not told.
    No,
    /// By this apinit: [`Event::FrontDied`] comes when it dies.
    Here,
    /// By the apinit of its own host, which tells psched, which tells this one.
    Elsewhere,
}

impl Watch {
    /// By whom the front end of an adopted application is watched, which psched may not know.
    pub fn of_adopted(self) -> Watch {
        if self == Watch::Elsewhere { Watch::No } else { self }
    }
}

/// What happens to an apinit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// psched has taken this node.
    Linked(Box<Welcome>),
    /// The stream to psched is lost.
    Unlinked,
    /// psched's store has so many commits, all of them durable: told before what leaves psched
    /// after them.
    Counted(u64),
    /// What is known of psched's clock now, if psched is on another host.
    Clock(Reading),
    /// psched said this, as the `u64`th command of the link.
    Command(u64, Command),
    /// A front end has opened a stream.
    FrontOpened {
        /// Which.
        conn: Conn,
        /// Its uid, as the kernel says.
        uid: u32,
        /// By whom its process is watched.
        watch: Watch,
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
        /// The name in the certificate of its host; empty: it is on this host.
        host: String,
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
    /// Another host of the application, which has its ticket, asks for a program that is not here.
    ProgramAsked(Key, WantedProgram),
    /// Answer to [`Action::TakeProgram`].
    ProgramTaken(Key, Box<GivenProgram>),
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
        /// Who asks is on another host.
        afar: bool,
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
    /// As [`Action::KeepAdopted`].
    pub adopted: bool,
}
