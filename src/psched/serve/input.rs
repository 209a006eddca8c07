//! What comes into the loop.

use super::front_handle::FrontHandle;
use super::logins::LoginEvent;
use super::private::Viewer;
use super::tuner::{Answer, Reconfigured};
use crate::apteam::Apid;
use crate::apteam::change::By;
use crate::apteam::protocol::node::Hello;
use crate::machine::Machine;
use crate::psched::decide::outbox::Kept;
use crate::psched::decide::tuning::{Told, Wanted};
use crate::psched::decide::{Event, LinkId, Looked, ReplyId, Scheduler};
use crate::psched::drive::recorder::Recording;
use crate::psched::drive::requests::Kill;
use crate::psched::drive::{Front, Killed, Managed, Refused};
use crate::rpc::pb;
use crate::variables::Variables;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

/// Where a client hears of an application.
pub struct EventSender {
    /// Its stream.
    pub stream: mpsc::Sender<Result<pb::ApplicationEvent, Status>>,
    /// Who reads it.
    pub viewer: Viewer,
}

/// What an apinit's stream carries.
pub type LinkSender = mpsc::Sender<Result<pb::ToNode, Status>>;

/// An answer to a question that only looks, given with word whether what it says is on the disk.
pub type Look = Box<dyn FnOnce(Kept) + Send>;

/// A question that only looks.
pub type Read = Box<dyn FnOnce(&Scheduler) -> Look + Send>;

/// An event that is made with the number of its reply.
pub type Asked = Box<dyn FnOnce(ReplyId) -> Event + Send>;

/// A front end as it called.
pub type FrontEnd = Front<FrontHandle>;

/// What comes into the loop.
pub enum Input {
    /// A posting, with the stream for its events and the process that waits.
    Post { event: Asked, front: FrontEnd, events: EventSender },
    /// Events of an application from now on. The answer: whether it is there, or why it can't be
    /// watched.
    Watch {
        apid: Apid,
        front: Option<FrontEnd>,
        events: EventSender,
        found: oneshot::Sender<Result<bool, Refused>>,
    },
    /// The front end of a posting is to say what it would launch.
    AskLaunch { apid: Apid },
    /// A front end looks.
    Look { apid: Apid, answer: oneshot::Sender<Result<Looked, Refused>> },
    /// apkill.
    Kill { kill: Kill, answer: oneshot::Sender<Killed> },
    /// An order of psmgr's for the scheduler.
    Manage { event: Asked, answer: oneshot::Sender<Result<Managed, Refused>> },
    /// psmgr set.
    Set { wanted: Wanted, by: By, answer: oneshot::Sender<Result<Managed, Refused>> },
    /// psmgr show.
    Show { answer: oneshot::Sender<pb::ShowReply> },
    /// An apinit calls.
    LinkOpened { link: LinkId, hello: Box<Hello>, sender: LinkSender },
    /// An apinit's heartbeat.
    Beat(LinkId),
    /// The apinit of a login host calls, or its connection is closed.
    Login(LoginEvent),
    /// Anything for the scheduler that needs no answer.
    Event(Box<Event>),
    /// A question. What it returns is called when everything before it is durable, or is known to
    /// wait.
    Read(Read),
    /// The whole state, for whoever only looks at it.
    Snapshot {
        /// Whoever asked.
        answer: oneshot::Sender<Arc<Scheduler>>,
        /// It is for a page after the first: the copy of a moment ago will do.
        follows: bool,
    },
    /// psched.yaml was read again. The answer: what that changed of the variables.
    Reconfigured { new: Box<Reconfigured>, answer: oneshot::Sender<Answer> },
    /// What would that change, were it read? Of the variables, and for applications.
    Compare {
        variables: Box<Variables>,
        machine: Box<Machine>,
        answer: oneshot::Sender<(Told, Vec<String>)>,
    },
    /// What happened of late.
    Record { answer: oneshot::Sender<Recording> },
    /// Stop.
    Stop,
}
