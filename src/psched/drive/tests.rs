//! What clients hear of the driver, in a world in which nothing fails.

use super::recorder::Recording;
use super::{Answer, Driver, Front, Identity, Note, Outside, Refused, Reply, Sent, Told, Waits};
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::protocol::node::{Hello, PROTOCOL, Report};
use crate::apteam::record::FrontProcess;
use crate::apteam::shape::Shape;
use crate::apteam::{Apid, Incarnation, Key, Ticket};
use crate::machine::{Machine, Nid, Node};
use crate::psched::decide::outbox::{Commit, Kept, Outbox, Outcome};
use crate::psched::decide::{Effect, Event, LinkId, Now, Scheduler, Settings};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// A disk that takes everything, and clients that read everything.
#[derive(Default)]
struct World {
    now: Now,
    commits: VecDeque<Commit<()>>,
    durable: u64,
    answers: Vec<Answer>,
    watched: Vec<Apid>,
}

/// What a client has been told.
type Heard = Rc<RefCell<Vec<Told>>>;

impl Outside for World {
    type Caller<T: Reply> = ();
    type Stream = Heard;
    type Front = ();
    type Link = ();
    type Look = ();

    fn now(&self) -> Now {
        self.now
    }

    fn commits(&self) -> u64 {
        self.durable
    }

    fn waits(&self) -> Option<Waits> {
        None
    }

    fn commit(&mut self, commit: Commit<()>) {
        self.commits.push_back(commit);
    }

    fn answer<T: Reply>(&mut self, (): (), reply: T) {
        self.answers.push(reply.into_answer());
    }

    fn look(&mut self, (): (), _: Kept) {}

    fn listens(&self, _: &Heard) -> bool {
        true
    }

    fn tell(&mut self, stream: &mut Heard, told: &Told) -> bool {
        stream.borrow_mut().push(told.clone());
        true
    }

    fn refuse(&mut self, _: Heard, why: Refused) {
        panic!("{why:?}");
    }

    fn send(&mut self, (): &mut (), _: Sent) -> bool {
        true
    }

    fn hang_up(&mut self, (): ()) {}

    fn watch_front(&mut self, apid: Apid, _: Front<()>) {
        self.watched.push(apid);
    }

    fn find_front(&mut self, _: Apid, _: FrontProcess) -> bool {
        true
    }

    fn forget_front(&mut self, apid: Apid) {
        self.watched.retain(|watched| *watched != apid);
    }

    fn signal_front(&mut self, _: Apid, _: FrontProcess) {}

    fn note(&mut self, note: Note) {
        panic!("{note:?}");
    }

    fn keep_recording(&mut self, _: Recording, why: String) {
        panic!("{why}");
    }

    fn decided(&mut self, _: &Scheduler, _: &[Effect]) {}
}

struct Driven {
    driver: Driver<World>,
    world: World,
}

const LINK: LinkId = LinkId(1);

fn front() -> FrontProcess {
    FrontProcess::here(4, 5)
}

impl Driven {
    /// psched and an apinit with one node of two processors.
    fn new() -> Driven {
        let machine: Machine = [Node::plain(Nid(0), 2)].into_iter().collect();
        let scheduler = Scheduler::new(machine, Settings::default());
        let driver = Driver::new(scheduler, Outbox::default(), Identity::default());
        let mut driven = Driven { driver, world: World::default() };
        let hello = Hello { protocol: PROTOCOL, nids: [Nid(0)].into(), ..Hello::default() };
        driven.driver.link_opened(&mut driven.world, LINK, Box::new(hello), ());
        driven.event(Event::Inventory { link: LINK, items: Vec::new() });
        driven
    }

    /// Applies an event, and writes what there is to be written.
    fn event(&mut self, event: Event) {
        self.world.now.mono_ns += 1;
        self.driver.event(&mut self.world, event);
        self.written();
    }

    fn written(&mut self) {
        while let Some(commit) = self.world.commits.pop_front() {
            self.world.durable += 1;
            self.driver.outcomes(&mut self.world, vec![Outcome::Release(commit.releases)]);
        }
    }

    /// A posting for both processors, and what its front end has heard.
    fn post(&mut self, number: u8) -> Heard {
        let heard = Heard::default();
        let event = |reply| Event::Posted {
            reply,
            posting: Box::new(Posting::plain(
                [number; 16],
                Shape { width: 2, depth: 1, per_node: None },
            )),
            owner: Owner { uid: 1000, name: "ann".into(), ..Owner::default() },
            front: front(),
            secret: Ticket([number; 16]),
        };
        let front = Front { process: front(), handle: () };
        self.driver.post(&mut self.world, event, front, Rc::clone(&heard));
        self.written();
        heard
    }

    /// What a client hears that asks for an application as this process.
    fn watch(&mut self, apid: Apid, process: FrontProcess) -> Vec<Told> {
        let heard = Heard::default();
        let front = Some(Front { process, handle: () });
        self.driver.watch(&mut self.world, apid, front, Rc::clone(&heard), ());
        heard.take()
    }
}

#[test]
fn a_front_end_that_comes_back_hears_where_it_is() {
    let mut driven = Driven::new();
    let (first, apid) = (driven.post(1), Apid(1));
    let placed = [Told::Accepted(apid), Told::Placed(Incarnation(1))];
    assert_eq!(first.take(), placed);
    // An application that waits has no place that its front end could look for.
    assert_eq!(driven.post(2).take(), [Told::Accepted(Apid(2))]);
    assert_eq!(driven.watch(Apid(2), front()), [Told::Accepted(Apid(2))]);
    // It has not heard that it has a place: its connection was broken.
    assert_eq!(driven.watch(apid, front()), placed);
    let key = Key { apid, incarnation: Incarnation(1) };
    let report = |report| Event::Report { link: LINK, report: Box::new(report) };
    driven.event(report(Report::Launched(key)));
    assert_eq!(driven.watch(apid, front()), placed);
    driven.event(report(Report::Running(key)));
    let runs = [Told::Accepted(apid), Told::Launched(Incarnation(1))];
    assert_eq!(driven.watch(apid, front()), runs);
    assert_eq!(first.take(), [Told::Launched(Incarnation(1))]);
    // Another client hears the same, and its end is nothing to psched.
    driven.world.watched.clear();
    assert_eq!(driven.watch(apid, FrontProcess::here(9, 9)), runs);
    assert!(driven.world.watched.is_empty());
    driven.watch(apid, front());
    assert_eq!(driven.world.watched, [apid]);
    // A client that asks for an unknown application hears that there is none.
    driven.world.answers.clear();
    assert_eq!(driven.watch(Apid(77), front()), []);
    assert_eq!(driven.world.answers, [Answer::Watched(Ok(false))]);
}
