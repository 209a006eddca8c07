//! Why a posting is refused or waits, and why an application is where it is: as data.
//!
//! The scheduler decides by these values and gives them with its effects. The words are made where a user is
//! told ([`Reason::words`]), because they depend on who that is: the variable `private` hides the applications of
//! other users ([`AppName`]).
//!
//! ```text
//!   Reason   what stands in the way   obstacle   8 PEs of depth 1 need 8 processors, and no more than ...
//!            of which posting         scope      among the nodes that it has chosen, on one host, ...
//!            which regions refuse it  barred     region night lets in only ...
//! ```

mod immovable;
mod notes;
mod words;

pub use immovable::Immovable;
pub use notes::{ForeignNote, NodeNote, name_list};
pub use words::shape_text;

use crate::apteam::Apid;
use crate::apteam::change::By;
use crate::apteam::choice::Choice;
use crate::apteam::layout::Layout;
use crate::apteam::shape::Shape;
use crate::machine::Nid;
use crate::placement::{Impossible, NoRoom, Shut, Unshared};
use serde::Serialize;

/// The name of an application in a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AppName {
    /// Its number.
    pub apid: Apid,
    /// The user whose application it is: the number and the name. `None` if psched does not know the application.
    pub owner: Option<(u32, String)>,
}

/// Whether the reader may know of the applications of this user.
pub type Sees<'a> = &'a dyn Fn(u32) -> bool;

/// Reads everything: administrators, logs and tests.
pub fn sees_all(_: u32) -> bool {
    true
}

/// Why a posting is refused or waits, or why an application is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// What stands in the way.
    pub obstacle: Obstacle,
    /// What the obstacle was looked for.
    pub scope: Scope,
    /// The regions that do not let it in.
    pub barred: Vec<Barred>,
    /// Its PEs would fit if they shared this number of processors (`--oversubscribe`).
    pub could_share: Option<u32>,
}

/// What an obstacle was looked for: the whole machine and the posting as it is, by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Scope {
    /// The nodes that the posting has chosen.
    pub among: Option<Choice>,
    /// So many PEs share so many processors: placement sees one PE on each processor.
    pub shares: Option<(u32, u32)>,
    /// The nodes of one host: a checkpoint is restored there.
    pub one_host: bool,
}

/// A region that does not let an application in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Barred {
    /// Its name.
    pub region: String,
    /// The rule of its gate, as what follows the name of the region.
    pub rule: String,
}

/// Why memory of no application goes out on some nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum NoRollOut {
    /// Apinits can't do it: what is wanting, and on which nodes.
    Nodes(Vec<(String, Vec<Nid>)>),
    /// The memory of this application did not go, and why.
    Stays(AppName, String),
}

/// No room now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Full {
    /// What placement found.
    pub no_room: NoRoom,
    /// Where the same posting with --flexible would go now; empty: nowhere, or that is no cure for
    /// it.
    pub flexible: Vec<Nid>,
    /// The applications that hold the window, as far as they are named.
    pub holders: Vec<AppName>,
    /// Why nodes of the window are closed.
    pub shut: Shut,
    /// With what the names of variables begin: `application` or `domain.NAME`.
    pub domain: String,
    /// Why no application's memory goes out for it, where memory goes out in general.
    pub no_roll_out: Option<NoRollOut>,
}

/// What stands in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Obstacle {
    /// The posting is refused.
    Denied(Denial),
    /// The posting waits.
    Waits(Wait),
    /// The application has a place, and this is its state there.
    There(There),
}

/// Why a posting is refused, or could not be placed any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Denial {
    /// A width, depth or count for each node of 0.
    Zero,
    /// This psched runs as an ordinary user, who is not the one who asks.
    OtherUser {
        /// The user that psched runs as.
        only: u32,
    },
    /// The queue is full.
    QueueFull {
        /// `postings_max`.
        most: usize,
    },
    /// The user has too many postings in the queue.
    QueueFullOfUser {
        /// `postings_user_max`.
        most: usize,
    },
    /// The records of the user would take too much.
    RecordsFull {
        /// `records_user_max`, in bytes.
        most: u64,
    },
    /// The number of the posting is that of another user's.
    RequestInUse,
    /// There is no such application.
    NoApplication(Apid),
    /// Only administrators may adopt and purge nodes.
    NoAdministrator {
        /// Who asked.
        uid: u32,
    },
    /// PEs of this shape can't share processors.
    CantShare,
    /// They could, and not on this machine.
    Unshared(Unshared),
    /// The account is not for this user, or there is none of this name.
    Account {
        /// The name.
        name: String,
        /// For whom it is; `None` if there is no such account.
        people: Option<String>,
        /// The accounts that the user may name.
        own: Vec<String>,
    },
    /// The empty machine could not hold it.
    Impossible(Impossible),
    /// No region lets it in.
    NoRegion,
    /// The empty machine could not hold PEs laid out so.
    LayoutImpossible {
        /// The nodes that it has chosen.
        choice: Choice,
        /// The layout.
        layout: Layout,
        /// Its nodes need not be contiguous.
        flexible: bool,
    },
    /// The choice of nodes leaves none.
    NoNodeChosen {
        /// The choice.
        choice: Choice,
        /// All nodes of the machine, if none of them is asked for.
        instead: Option<Vec<Nid>>,
    },
}

/// What a posting waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Wait {
    /// There is no room for it now, for a reason that can't be told.
    NoRoom,
    /// Applications, closed nodes or nodes that are kept are in the way.
    Full(Box<Full>),
    /// The same of PEs that are laid out.
    LayoutFull {
        /// The layout.
        layout: Layout,
        /// Its nodes need not be contiguous.
        flexible: bool,
        /// Of the window that needs the fewest applications to end: the nodes on which those are.
        nids: Vec<Nid>,
        /// The first of those applications.
        holders: Vec<AppName>,
        /// There are more of them.
        more: bool,
    },
    /// No set of apinits has room for the parts of a checkpoint.
    PartsFull {
        /// How many parts it has.
        parts: usize,
    },
    /// No host alone has room for a checkpoint.
    NoHost,
    /// The host of a checkpoint has no room, or no apinit, and its front end brings it to no other
    /// host.
    ImagesStay {
        /// Where it is; empty: on psched's host.
        host: String,
        /// An apinit of that host is connected.
        connected: bool,
    },
    /// The time of day: rules of the gates of regions.
    Hours(Vec<Barred>),
    /// Others have had less attained service.
    Turn {
        /// Its shape.
        shape: Shape,
        /// The first applications of those that run.
        running: Vec<AppName>,
        /// There are more of them.
        more: bool,
    },
    /// An administrator holds it.
    Held {
        /// The application.
        apid: Apid,
        /// The administrator.
        by: By,
    },
    /// Its aprun did not answer.
    Lapsed {
        /// The application.
        apid: Apid,
        /// The process of aprun.
        pid: Option<i32>,
    },
}

/// What an application that does not wait is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum There {
    /// Its aprun is to launch it.
    Placed(Vec<Nid>),
    /// Its place is being taken back.
    TakingBack(Vec<Nid>),
    /// It is being launched.
    Launching(Vec<Nid>),
    /// It runs.
    Runs(Vec<Nid>),
    /// A signal has stopped its PEs.
    Stopped {
        /// The application.
        apid: Apid,
        /// The user who has sent it.
        by: By,
    },
    /// Its memory is out.
    Out,
    /// Its memory is going out.
    GoingOut {
        /// Where it stands.
        nids: Vec<Nid>,
        /// Where its memory goes, as what follows "its memory goes".
        way: &'static str,
        /// How much of it has gone, in bytes.
        bytes: u64,
    },
    /// It is being ended, and processes of it outlive their KILL: what its nodes say of them.
    Stuck(Vec<String>),
    /// Apinits of nodes of it do not answer: what its PEs there do is not known.
    Away {
        /// These nodes.
        nids: Vec<Nid>,
        /// Their hosts, as far as psched.yaml names them.
        hosts: Vec<String>,
        /// Why psched takes no connection of theirs, where it knows that.
        why: Vec<String>,
        /// The hosts of these whose certificates were revoked.
        revoked: Vec<String>,
    },
    /// It has ended.
    Ended,
}

impl From<Obstacle> for Reason {
    fn from(obstacle: Obstacle) -> Reason {
        Reason { obstacle, scope: Scope::default(), barred: Vec::new(), could_share: None }
    }
}

impl From<Denial> for Reason {
    fn from(denial: Denial) -> Reason {
        Obstacle::Denied(denial).into()
    }
}

impl From<Denial> for Box<Reason> {
    fn from(denial: Denial) -> Box<Reason> {
        Box::new(denial.into())
    }
}

impl From<Wait> for Box<Reason> {
    fn from(wait: Wait) -> Box<Reason> {
        Box::new(wait.into())
    }
}

impl From<Wait> for Reason {
    fn from(wait: Wait) -> Reason {
        Obstacle::Waits(wait).into()
    }
}

impl From<There> for Reason {
    fn from(there: There) -> Reason {
        Obstacle::There(there).into()
    }
}

impl Reason {
    /// Among the nodes that the posting has chosen.
    pub fn among(mut self, choice: &Choice) -> Reason {
        self.scope.among = Some(choice.clone());
        self
    }

    /// On the nodes of one host.
    pub fn on_one_host(mut self) -> Reason {
        self.scope.one_host = true;
        self
    }

    /// It says who is in the way, or which rule of a region.
    pub fn names_holders(&self) -> bool {
        match &self.obstacle {
            Obstacle::Waits(Wait::LayoutFull { holders, .. }) => !holders.is_empty(),
            Obstacle::Waits(Wait::Full(full)) => !full.no_room.window.is_empty(),
            _ => !self.barred.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests;
