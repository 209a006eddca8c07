//! What psched's driver needs of the world: one trait, and what is said through it.

use crate::apteam::ending::HostEnd;
use crate::apteam::protocol::node::{Command, Welcome};
use crate::apteam::record::{FailedLaunch, FrontProcess};
use crate::apteam::{Apid, Incarnation};
use crate::psched::decide::outbox::{Commit, Kept};
use crate::psched::decide::{Effect, Looked, Now, Refusal, Scheduler};
use crate::psched::drive::recorder::Recording;
use crate::psched::reason::{Reason, Sees};

/// The world outside of the driver: clocks, the store, connections and processes.
///
/// psched may be killed between any two calls. What a call does is over when it returns, except for
/// [`Outside::commit`]; no call waits for a disk, a client or a node.
pub trait Outside: Sized {
    /// A call that waits for one answer.
    type Caller<T: Reply>;
    /// The stream on which a client is told of an application.
    type Stream;
    /// A handle of a front end's process.
    type Front;
    /// The connection of an apinit; dropped or [`Outside::hang_up`]: closed.
    type Link;
    /// A question that only looks at psched's state, with the answer that was found.
    type Look;

    /// Both clocks.
    fn now(&self) -> Now;

    /// The number of commits of the store that are durable.
    fn commits(&self) -> u64;

    /// Why records wait for the disk, if they do.
    fn waits(&self) -> Option<Waits>;

    /// Hands records to the store. When they are durable, or one of them can't be kept,
    /// [`super::Driver::outcomes`] is to be called with the outcome, in the order of the commits.
    fn commit(&mut self, commit: Commit<Self::Look>);

    /// Answers a call. The caller may have gone.
    fn answer<T: Reply>(&mut self, caller: Self::Caller<T>, reply: T);

    /// Gives a question its answer. Everything that the answer rests on is durable, or known to wait.
    fn look(&mut self, look: Self::Look, kept: Kept);

    /// Whether the client of a stream still listens.
    fn listens(&self, stream: &Self::Stream) -> bool;

    /// Tells a client of an application. False: the client has gone, or does not read.
    fn tell(&mut self, stream: &mut Self::Stream, told: &Told) -> bool;

    /// Ends a stream with the reason for it.
    fn refuse(&mut self, stream: Self::Stream, why: Refused);

    /// Sends to an apinit. False: the apinit does not read.
    fn send(&mut self, link: &mut Self::Link, sent: Sent) -> bool;

    /// Closes the connection of an apinit, once what was sent has left.
    fn hang_up(&mut self, link: Self::Link);

    /// From now on the end of this process is an [`crate::psched::decide::Event::FrontGone`].
    fn watch_front(&mut self, apid: Apid, front: Front<Self::Front>);

    /// The same for a process that a former psched has watched. False: the process has ended.
    fn find_front(&mut self, apid: Apid, process: FrontProcess) -> bool;

    /// The application has ended: its front end is not watched for it any more.
    fn forget_front(&mut self, apid: Apid);

    /// Sends SIGUSR1 to a front end that asks for it. A lost signal does no harm: the stream says the
    /// same.
    fn signal_front(&mut self, apid: Apid, process: FrontProcess);

    /// Something for psched's log.
    fn note(&mut self, note: Note);

    /// Keeps a recording, from which a fault of psched can be examined.
    fn keep_recording(&mut self, recording: Recording, why: String);

    /// The scheduler has decided these effects; none of them has been carried out.
    fn decided(&mut self, scheduler: &Scheduler, effects: &[Effect]);
}

/// An answer of psched's to a call, of one kind.
pub trait Reply {
    /// As one type.
    fn into_answer(self) -> Answer;
}

/// All kinds of answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Of [`super::Driver::looked`].
    Looked(Result<Looked, Refused>),
    /// Of [`super::Driver::kill`].
    Killed(Killed),
    /// Of [`super::Driver::manage`].
    Managed(Result<Managed, Refused>),
    /// Of [`super::Driver::watch`]: whether the application is there.
    Watched(Result<bool, Refused>),
}

/// What became of a signal to applications.
#[derive(Clone, Debug, PartialEq)]
pub struct Killed {
    /// For each application, what stood in the way.
    pub problems: Vec<Option<String>>,
    /// Whether it is on record.
    pub kept: Kept,
}

/// What became of an administrator's order.
#[derive(Clone, Debug, PartialEq)]
pub struct Managed {
    /// What is so now.
    pub done: Vec<String>,
    /// What stood in the way.
    pub problems: Vec<String>,
    /// Whether it is on record.
    pub kept: Kept,
}

impl Reply for Result<Looked, Refused> {
    fn into_answer(self) -> Answer {
        Answer::Looked(self)
    }
}

impl Reply for Killed {
    fn into_answer(self) -> Answer {
        Answer::Killed(self)
    }
}

impl Reply for Result<Managed, Refused> {
    fn into_answer(self) -> Answer {
        Answer::Managed(self)
    }
}

impl Reply for Result<bool, Refused> {
    fn into_answer(self) -> Answer {
        Answer::Watched(self)
    }
}

/// Why psched does not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not now: the caller may ask again.
    Now(String),
    /// By a decision of the scheduler.
    Decided(Refusal, Box<Reason>),
}

impl Refused {
    /// The reason in words, for a reader who may know of the applications of some users.
    pub fn words(&self, sees: Sees<'_>) -> String {
        match self {
            Refused::Now(text) => text.clone(),
            Refused::Decided(_, reason) => reason.words(sees).to_string(),
        }
    }
}

/// What a client is told of an application.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// Its posting is on record.
    Accepted(Apid),
    /// It may have a place: the front end is to look.
    Placed(Incarnation),
    /// Its PEs run.
    Launched(Incarnation),
    /// A launch has failed by a node's fault, and it waits for another place: the how many-th retry this is,
    /// and of how many.
    Retried { failed: Box<FailedLaunch>, count: u32, most: u32 },
    /// It has ended.
    Ended(Box<HostEnd>),
    /// Its front end is to say what it would launch.
    AskLaunch,
}

/// A message to an apinit.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// The number of the message on this connection, from 1; 0: of a welcome, or of no message.
    pub seq: u64,
    /// Commits of the store that were durable as it left.
    pub commits: u64,
    /// None: only that.
    pub message: Option<ToNode>,
}

/// What an apinit is told.
#[derive(Clone, Debug, PartialEq)]
pub enum ToNode {
    /// Its nodes are taken.
    Welcome(Box<Welcome>),
    /// They are not, and why.
    Refused(String),
    /// A command.
    Command(Box<Command>),
}

/// A front end.
#[derive(Clone, Debug)]
pub struct Front<F> {
    /// As it is on record.
    pub process: FrontProcess,
    /// By which its end is seen and a signal sent.
    pub handle: F,
}

/// Why records wait for the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// Since when, in nanoseconds since the epoch.
    pub since_ns: u64,
    /// What is wrong, and what would cure it.
    pub why: String,
    /// The disk refuses. If not, it does not answer, and may do so in the end.
    pub refuses: bool,
}

/// Something for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A warning of the scheduler's.
    Warning(String),
    /// A fault of psched itself.
    Fault(String),
    /// An apinit is refused. (It calls again every second or so.)
    Refused(String),
    /// An apinit does not read what it is sent, and its connection is closed.
    TooSlow(crate::psched::decide::LinkId),
    /// An apinit was not listened to while the disk was full: it is to say everything again.
    SayAgain(crate::psched::decide::LinkId),
}
