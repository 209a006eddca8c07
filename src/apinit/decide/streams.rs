//! The two kinds of streams to an application: of its front end, at the head, and of its head, elsewhere.
//!
//! A front end is a process of a user: it is known by its uid, has bounds of its own, and speaks for itself only. A head
//! is another apinit, and speaks for the whole application. Which of them a stream is follows from the service that was
//! called ([`Stream`]), and so does what can be said on it ([`ToApinit`], [`ToPeer`]). How a conversation begins is
//! common to both ([`Opening`]), and so are most answers ([`Told`]).

use super::actions::Action;
use super::events::{Conn, Watch};
use super::waits::LAUNCH_WAIT;
use crate::apteam::ending::Cause;
use crate::apteam::launch::Launch;
use crate::apteam::protocol::attach::{FromApinit, Output, OutputTaken, ToApinit};
use crate::apteam::protocol::notice::Notice;
use crate::apteam::protocol::peers::{FromPeer, ToPeer};
use crate::apteam::{Key, Ticket};
use crate::variables::units::nanos as ns;

/// Messages kept for a launch that waits for its placement: signals and the like.
pub(super) const KEPT_MAX: usize = 64;

/// A stream, and who is at its other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// A front end.
    Front(Conn),
    /// The head of an application.
    Head(Conn),
}

impl Stream {
    pub fn conn(self) -> Conn {
        match self {
            Stream::Front(conn) | Stream::Head(conn) => conn,
        }
    }

    /// Tells what either may hear.
    pub fn tell(self, told: Told) -> Action {
        match self {
            Stream::Front(conn) => Action::SendFront(conn, told.into()),
            Stream::Head(conn) => Action::SendHead(conn, told.into()),
        }
    }

    /// Tells what only a front end hears.
    pub fn tell_front(self, message: FromApinit) -> Option<Action> {
        match self {
            Stream::Front(conn) => Some(Action::SendFront(conn, message)),
            Stream::Head(_) => None,
        }
    }

    /// Tells what only a head hears.
    pub fn tell_head(self, message: FromPeer) -> Option<Action> {
        match self {
            Stream::Head(conn) => Some(Action::SendHead(conn, message)),
            Stream::Front(_) => None,
        }
    }
}

/// What a front end and a head are told alike.
pub(super) enum Told {
    Accepted,
    Refused { text: String, cause: Option<Cause> },
    NotNow(String),
    Going,
    Output(Output),
    SignalsTaken(u64),
    Notice(Notice),
    Done,
}

impl From<Told> for FromApinit {
    fn from(told: Told) -> FromApinit {
        match told {
            Told::Accepted => FromApinit::Accepted,
            Told::Refused { text, cause } => FromApinit::Refused { text, cause },
            Told::NotNow(text) => FromApinit::NotNow(text),
            Told::Going => FromApinit::Going,
            Told::Output(output) => FromApinit::Output(output),
            Told::SignalsTaken(number) => FromApinit::SignalsTaken(number),
            Told::Notice(notice) => FromApinit::Notice(notice),
            Told::Done => FromApinit::Done,
        }
    }
}

impl From<Told> for FromPeer {
    fn from(told: Told) -> FromPeer {
        match told {
            Told::Accepted => FromPeer::Accepted,
            Told::Refused { text, cause } => FromPeer::Refused { text, cause },
            Told::NotNow(text) => FromPeer::NotNow(text),
            Told::Going => FromPeer::Going,
            Told::Output(output) => FromPeer::Output(output),
            Told::SignalsTaken(number) => FromPeer::SignalsTaken(number),
            Told::Notice(notice) => FromPeer::Notice(notice),
            Told::Done => FromPeer::Done,
        }
    }
}

/// What a stream is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// Nothing said yet.
    New,
    /// Its launch came before its placement.
    Waiting { key: Key, ticket: Ticket, launch: Box<Launch>, bytes: u64 },
    /// It has this application.
    Has(Key),
}

/// A stream of either kind, and how far its conversation is.
#[derive(Debug)]
pub(super) struct Opening<Says> {
    pub since_ns: u64,
    pub purpose: Purpose,
    /// What was said after a launch that waits.
    pub kept: Vec<Says>,
}

/// The first message of a conversation.
pub(super) enum First {
    Launch { key: Key, ticket: Ticket, launch: Box<Launch> },
    Resume { key: Key, ticket: Ticket, taken: Vec<OutputTaken> },
}

/// What is said on a stream.
pub(super) trait Says: Sized {
    /// The beginning of a conversation, or this message as it is.
    fn first(self) -> Result<First, Self>;

    /// It may be kept for a launch that waits. (What is large comes only after the launch was taken.)
    fn small(&self) -> bool;
}

impl Says for ToApinit {
    fn first(self) -> Result<First, ToApinit> {
        match self {
            ToApinit::Launch { key, ticket, launch } => Ok(First::Launch { key, ticket, launch }),
            ToApinit::Resume { key, ticket, taken } => Ok(First::Resume { key, ticket, taken }),
            other => Err(other),
        }
    }

    fn small(&self) -> bool {
        use ToApinit::{OutputTaken, Signal, StdinEnd, Terminate};
        matches!(self, Signal(_) | Terminate { .. } | OutputTaken(_) | StdinEnd(_))
    }
}

impl Says for ToPeer {
    fn first(self) -> Result<First, ToPeer> {
        match self {
            ToPeer::Launch { key, ticket, launch } => Ok(First::Launch { key, ticket, launch }),
            ToPeer::Resume { key, ticket, taken } => Ok(First::Resume { key, ticket, taken }),
            other => Err(other),
        }
    }

    fn small(&self) -> bool {
        use ToPeer::{OutputTaken, Signal, Sources, Terminate};
        matches!(self, Signal(_) | Terminate { .. } | OutputTaken(_) | Sources { .. })
    }
}

/// What follows from a message.
pub(super) enum Heard<Says> {
    /// The conversation begins.
    First(First),
    /// It is about the stream's application.
    Of(Key, Says),
    /// It must not be said now.
    Refused(&'static str),
    /// It waits with the launch.
    Nothing,
}

impl<S: Says> Opening<S> {
    pub fn new(now: u64) -> Opening<S> {
        Opening { since_ns: now, purpose: Purpose::New, kept: Vec::new() }
    }

    pub fn hear(&mut self, message: S) -> Heard<S> {
        match self.purpose {
            Purpose::New => match message.first() {
                Ok(first) => Heard::First(first),
                Err(_) => {
                    Heard::Refused("the first message of a stream must be a launch or a resumption")
                }
            },
            Purpose::Waiting { .. } if message.small() && self.kept.len() < KEPT_MAX => {
                self.kept.push(message);
                Heard::Nothing
            }
            Purpose::Waiting { .. } => {
                Heard::Refused("too much data was sent before the launch was accepted")
            }
            Purpose::Has(key) => Heard::Of(key, message),
        }
    }

    /// Bytes of memory of the launch that waits, if one does.
    pub fn waiting_bytes(&self) -> Option<u64> {
        match self.purpose {
            Purpose::Waiting { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// Its launch waits for this placement.
    pub fn waits_for(&self, key: Key) -> bool {
        matches!(self.purpose, Purpose::Waiting { key: of, .. } if of == key)
    }

    /// The application that it has, whose ticket was shown on it.
    pub fn has(&self) -> Option<Key> {
        match self.purpose {
            Purpose::Has(key) => Some(key),
            _ => None,
        }
    }

    /// It has no application yet.
    pub fn is_early(&self) -> bool {
        !matches!(self.purpose, Purpose::Has(_))
    }

    /// When one that has no application yet is given up.
    pub fn deadline(&self) -> Option<u64> {
        match self.purpose {
            Purpose::New | Purpose::Waiting { .. } => {
                Some(self.since_ns.saturating_add(ns(LAUNCH_WAIT)))
            }
            Purpose::Has(_) => None,
        }
    }
}

/// A head's stream.
#[derive(Debug)]
pub(super) struct HeadStream {
    /// The name in the certificate of its host; empty: it is on this host.
    pub host: String,
    pub opening: Opening<ToPeer>,
}

/// A front end's stream.
#[derive(Debug)]
pub(super) struct FrontEnd {
    /// As the kernel says.
    pub uid: u32,
    pub(super) watch: Watch,
    pub opening: Opening<ToApinit>,
}
