//! aprun's driver: what happens goes to the pure [`Front`], and what it wants is done through [`Outside`].
//!
//! # Problem
//! The order of steps is as easily wrong as the decisions. The driver may take a late answer from a
//! closed connection for one from the next connection; a question may stay without an answer when
//! its connection breaks; a retried posting may look like a new one. The simulated cluster can't
//! find such a fault in a driver that it does not run.
//!
//! # Approach
//! One driver, generic over the world outside: aprun, mpirun, `cpr -r` and the simulated cluster run
//! it.
//!
//! - *Conversations have numbers.* The driver ignores what an older conversation says.
//! - *Each look and each kill is answered once*: by psched, or by the driver if the connection
//!   breaks or there is none.
//! - *Every posting after the first is marked as a retry.*

mod outside;

pub use outside::{Others, Outside};

use crate::aprun::decide::session::{Action, Event, Front, Looked, Setup};
use crate::apteam::protocol::attach::FromApinit;
use crate::machine::Nid;
use std::collections::VecDeque;

/// The conversation with psched.
#[derive(Debug, Default)]
struct Psched {
    link: u32,
    /// It has been reached.
    up: bool,
    /// Questions that have no answer yet.
    looks: u32,
    kills: u32,
}

/// An aprun, or a `cpr -r`.
#[derive(Debug)]
pub struct Driver {
    front: Front,
    psched: Psched,
    /// The number of the conversation with an apinit.
    apinit: u32,
    /// The posting may have come to psched.
    posted: bool,
    /// What has happened while something was done.
    pending: VecDeque<Event>,
}

impl Driver {
    /// Before anything has happened; the first is [`Event::Start`].
    pub fn new(setup: Setup) -> Driver {
        Driver {
            front: Front::new(setup),
            psched: Psched::default(),
            apinit: 0,
            posted: false,
            pending: VecDeque::new(),
        }
    }

    /// Makes the driver of the application that replaces this one. The numbers of conversations go on: a late
    /// message of a conversation of this driver reaches no other.
    #[must_use]
    pub fn next(&self, setup: Setup) -> Driver {
        let psched = Psched { link: self.psched.link, ..Psched::default() };
        let mut next = Driver { psched, apinit: self.apinit, ..Driver::new(setup) };
        next.front.keeps_failures_of(&self.front);
        next
    }

    /// The host of a node of the application, where it is known.
    pub fn host_of(&self, nid: Nid) -> Option<&str> {
        self.front.host_of(nid)
    }

    /// When [`Event::Time`] is wanted.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.front.deadline()
    }

    /// Hears an event, and carries out everything that follows from it at once. Returns the exit
    /// status when the front end is done; the driver must not be called after that.
    pub fn happens(&mut self, out: &mut impl Outside, event: Event) -> Option<u8> {
        self.pending.push_back(event);
        while let Some(next) = self.pending.pop_front() {
            if !self.is_awaited(&next) {
                continue;
            }
            out.hears(&next);
            let actions = self.front.apply(out.now_ns(), next);
            out.decides(&self.front, &actions);
            for action in actions {
                if let Action::Exit(status) = action {
                    return Some(status);
                }
                self.act(out, action);
            }
        }
        None
    }

    /// psched says something in the conversation of this number.
    pub fn psched(&mut self, out: &mut impl Outside, link: u32, said: Event) -> Option<u8> {
        match link == self.psched.link {
            true => self.happens(out, said),
            false => None,
        }
    }

    /// An apinit says something in the conversation of this number.
    pub fn apinit(&mut self, out: &mut impl Outside, link: u32, said: Event) -> Option<u8> {
        if link != self.apinit {
            return None;
        }
        if said == Event::Apinit(FromApinit::Going) {
            out.let_go();
        }
        self.happens(out, said)
    }

    /// Notes what becomes of the conversation with psched. False: an answer to what was answered already.
    fn is_awaited(&mut self, next: &Event) -> bool {
        let psched = &mut self.psched;
        let answers = |questions: &mut u32| {
            let awaited = *questions > 0;
            *questions -= u32::from(awaited);
            awaited
        };
        match next {
            Event::PschedUp { .. } => psched.up = true,
            // (Where psched has said that it can't do it now, it may still be asked something else.)
            Event::PschedDown { text, answered: false, .. } => {
                psched.up = false;
                let looked = || Event::Looked(Looked::Failed(text.clone()));
                self.pending.extend((0..psched.looks).map(|_| looked()));
                self.pending.extend((0..psched.kills).map(|_| Event::Killed));
            }
            Event::Looked(_) => return answers(&mut psched.looks),
            Event::Killed => return answers(&mut psched.kills),
            _ => {}
        }
        true
    }

    fn act(&mut self, out: &mut impl Outside, action: Action) {
        let psched = &mut self.psched;
        let at_once = match action {
            Action::Psched(ask) => {
                *psched = Psched { link: psched.link + 1, ..Psched::default() };
                out.converse(psched.link, ask, std::mem::replace(&mut self.posted, true))
            }
            Action::Look(apid) => {
                psched.looks += 1;
                match psched.up {
                    true => out.look(psched.link, apid),
                    false => {
                        let failed = Looked::Failed("not connected with psched".to_owned());
                        vec![Event::Looked(failed)]
                    }
                }
            }
            Action::Kill { apid, signal } => {
                psched.kills += 1;
                match psched.up {
                    true => out.kill(psched.link, apid, signal),
                    false => vec![Event::Killed],
                }
            }
            Action::Deposit(apid) => {
                if psched.up {
                    out.deposit(apid);
                }
                Vec::new()
            }
            Action::OpenFiles(placement) => {
                vec![Event::Files(out.make_files(&placement))]
            }
            Action::Attach { at, first } => {
                self.apinit += 1;
                let hosts = self.front.other_hosts();
                let elsewhere = self.front.is_elsewhere();
                out.attach(self.apinit, at, first, Others { hosts, elsewhere });
                Vec::new()
            }
            Action::Send(message) => {
                out.send(message);
                Vec::new()
            }
            Action::Hand(of) => {
                out.hand(self.apinit, of);
                Vec::new()
            }
            Action::ReadStdin(most) => out.read_stdin(most),
            Action::Write(output) => out.write(output),
            Action::Say(line) => out.say(line),
            Action::SayOfNode { nid, at_ns, text } => out.say_of_node(nid, at_ns, &text),
            Action::Warn(text) => {
                out.warn(text);
                Vec::new()
            }
            Action::Report(rows) => out.report(rows),
            Action::Close(ended) => out.close(ended),
            // It is over, and nothing of it is left to be done.
            Action::Exit(_) => Vec::new(),
        };
        self.pending.extend(at_once);
    }
}
