//! Moving a running application to other nodes of this apinit, or to other processors of its nodes.
//!
//! # Problem
//! A gang that moves runs in its old place until it stands, and in its new one from then on, never in both
//! and never in part; ranks, files, statuses and its front end's stream stay what they are. A move may be
//! refused by the kernel in the middle, apinit may be killed in the middle, the application may end in the
//! middle.
//!
//! # Approach
//! Between nodes of one host no image is needed: the PEs stay the same processes, and only the processors
//! to which their threads are bound change.
//!
//! ```text
//!   psched    Move(number, places) ->  Hold            to the switcher: it is to stand
//!   switcher  Held               ->  Rebind          each thread from its old processors to its new ones
//!   shell     Rebound              ->  Seat, Moved     it may run there when its turn comes
//!             or what failed       ->  Seat, MoveFailed  where it was
//! ```
//!
//! A move that has failed is not begun again when it is said again, which psched does where the link has broken
//! before the answer: it may have heard meanwhile, and takes the other place for free.
//!
//! While it is on its way both its places are its own: nobody is launched there beside it who does not share.
//! Its placement is kept with the number of the move, so that the next life of this apinit knows where it
//! sits and psched, which says a move again until it is answered, is answered again. Its control groups keep
//! the names of the nodes on which it was launched ([`Moved::born`]).
//!
//! What can't be moved is said with the reason as soon as it runs ([`Report::Movable`]): parts on several
//! hosts, and PEs whose processors the user has named.
//!
//! [`Moved::born`]: crate::apteam::protocol::node::Moved::born

use super::application::App;
use super::moving::Moving;
use super::out_stage::OutStage;
use super::rebind::Rebind;
use super::switcher::{Event as TurnEvent, Gang};
use super::{Action, Agent, Out};
use crate::apteam::Key;
use crate::apteam::binding::Binding;
use crate::apteam::ending::Decisive;
use crate::apteam::launch::Launch;
use crate::apteam::migration_blocker::MigrationBlocker;
use crate::apteam::place::Place;
use crate::apteam::protocol::node::{MoveCommand, Moved, PlaceCommand, Report};
use crate::apteam::protocol::notice::{Notice, Seen};
use crate::machine::Nid;
use std::collections::BTreeSet;
use std::time::Duration;

impl Agent {
    /// psched wants it elsewhere.
    pub(super) fn start_move(&mut self, order: MoveCommand, out: &mut Out) {
        let MoveCommand { key, number, .. } = order;
        let nids = &self.me.nids;
        let Some(app) = self.apps.get_mut(&key) else {
            let why = MigrationBlocker::NotHere;
            return self.report(Report::MoveFailed { key, number, why }, out);
        };
        if app.place.moved.number >= number {
            let frozen = Duration::ZERO;
            return self.report(Report::Moved { key, number, frozen }, out);
        }
        if let Some((_, why)) = app.not_moved.as_ref().filter(|(failed, _)| *failed == number) {
            // psched may have heard by now that it sits where it sat.
            let why = why.clone();
            return self.report(Report::MoveFailed { key, number, why }, out);
        }
        let under_way = app.moving.as_ref().map(|moving| moving.order.number);
        if under_way == Some(number) {
            return;
        }
        let another = || under_way.map(|_| MigrationBlocker::AnotherMove);
        let dumped = || app.dumping.map(|_| MigrationBlocker::Checkpointing);
        let under_way = || app.on_its_way().then_some(MigrationBlocker::MemoryUnderWay);
        let blocker = app.migration_blocker().or_else(another).or_else(dumped).or_else(under_way);
        let blocker = blocker.or_else(|| app.unfit(&order.places.0, nids));
        if let Some(why) = blocker {
            app.not_moved = Some((number, why.clone()));
            return self.report(Report::MoveFailed { key, number, why }, out);
        }
        app.processors.extend(processors(&order.places.0));
        app.moving = Some(Moving { order, lifted_ns: None });
        out.push(Action::Turns(TurnEvent::Hold(key)));
    }

    /// It stands, and is not let run before it has been seated; or it can't be stopped.
    pub(super) fn lifted(&mut self, now: u64, key: Key, stands: bool, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let Some(moving) = app.moving.as_mut() else {
            return match app.dumping {
                Some(_) => self.lifted_for_dump(key, stands, out),
                None if app.away == Some(OutStage::Leaves) => {
                    self.lifted_to_go_out(key, stands, out)
                }
                // Nothing is wanted of it any more.
                None => self.seat(key, out),
            };
        };
        if !stands {
            return self.move_failed(key, MigrationBlocker::NotStopped, out);
        }
        if self.stranger.is_some() {
            // It judges by where everybody sits, and has been told that.
            return self.move_failed(key, MigrationBlocker::NotObeyed, out);
        }
        moving.lifted_ns = Some(now);
        let place = moved_to(&app.place, &moving.order);
        let Some(app) = self.apps.get(&key) else { return };
        let parts = app.place.places.0.iter().zip(place.places.0.iter()).zip(&place.moved.born);
        let parts = parts.map(|((from, to), born)| self.rebind(*born, from, to)).collect();
        out.push(Action::Rebind { key, parts, place: Box::new(place) });
    }

    /// Each old processor of a part with its new one. Several virtual processors may be one real one; then
    /// the first counts.
    fn rebind(&self, born: Nid, from: &Place, to: &Place) -> Rebind {
        let real = |nid, p| self.node(nid).and_then(|node| node.cpu(p, &self.me.cpus));
        let mut cpus: Vec<(u32, u32)> = Vec::with_capacity(from.processors.len());
        for (old, new) in from.processors.iter().zip(&to.processors) {
            if let (Some(old), Some(new)) = (real(from.nid, *old), real(to.nid, *new))
                && !cpus.iter().any(|(known, _)| *known == old)
            {
                cpus.push((old, new));
            }
        }
        Rebind { born, cpus }
    }

    /// Its threads are bound to the new processors, or to the old ones as before, and why.
    pub(super) fn rebound(
        &mut self,
        now: u64,
        key: Key,
        result: Result<(), String>,
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let Some(Moving { order, lifted_ns }) = app.moving.clone() else { return };
        if let Err(why) = result {
            return self.move_failed(key, MigrationBlocker::NotBound(why), out);
        }
        app.moving = None;
        app.place = moved_to(&app.place, &order);
        app.nids = app.place.places.nids().collect();
        app.processors = processors(&app.place.places.0).collect();
        self.seat(key, out);
        let frozen = now.saturating_sub(lifted_ns.unwrap_or(now));
        let (number, frozen) = (order.number, Duration::from_nanos(frozen));
        self.report(Report::Moved { key, number, frozen }, out);
        // Whoever waited for its old processors.
        self.start_others(out);
    }

    fn move_failed(&mut self, key: Key, why: MigrationBlocker, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let Some(Moving { order, .. }) = app.moving.take() else { return };
        app.processors =
            processors(&app.place.places.0).filter(|(n, _)| app.nids.contains(n)).collect();
        let number = order.number;
        app.not_moved = Some((number, why.clone()));
        out.push(Action::Warn(key, format!("the application was not moved: {why}")));
        self.seat(key, out);
        self.report(Report::MoveFailed { key, number, why }, out);
        self.start_others(out);
    }

    /// It may run where it sits now.
    pub(super) fn seat(&mut self, key: Key, out: &mut Out) {
        if let Some(app) = self.apps.get(&key) {
            out.push(Action::Turns(TurnEvent::Rebind(gang(app))));
        }
    }

    /// Says whether it can be moved.
    pub(super) fn report_movable(&self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get(&key).filter(|app| app.head()) else { return };
        if app.going_ns.is_some() && app.running() && app.doom.is_none() && !app.discarded {
            self.report(Report::Movable { key, blocker: app.migration_blocker() }, out);
        }
    }

    /// Says where its last move has brought it, to a psched that may not have heard.
    pub(super) fn report_moved(&self, key: Key, out: &mut Out) {
        let number = self.apps.get(&key).map_or(0, |app| app.place.moved.number);
        if number > 0 {
            self.report(Report::Moved { key, number, frozen: Duration::ZERO }, out);
        }
    }

    /// Its launch has named processors: kept, for the front end says it only once.
    pub(super) fn note_binding(&mut self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let named = |launch: &Launch| matches!(launch.binding, Binding::Lists(_));
        if app.launch.as_deref().is_some_and(named) {
            app.place.moved.fixed = true;
            out.push(Action::KeepPlace(Box::new(app.place.clone())));
        }
    }
}

/// What of an application takes turns here.
pub(super) fn gang(app: &App) -> Gang {
    let processors = app.processors.iter().copied().collect();
    let spread = app.place.places.nids().nth(1).is_some();
    Gang { key: app.key(), processors, spread, whole: app.place.host_count() <= 1 }
}

fn processors(places: &[Place]) -> impl Iterator<Item = (Nid, u32)> + '_ {
    places.iter().flat_map(|place| place.processors.iter().map(|number| (place.nid, *number)))
}

/// Its placement once it has moved.
fn moved_to(place: &PlaceCommand, order: &MoveCommand) -> PlaceCommand {
    let born = match place.moved.born.is_empty() {
        true => place.places.nids().collect(),
        false => place.moved.born.clone(),
    };
    let moved = Moved { number: order.number, born, ..place.moved };
    PlaceCommand { moved, ..place.alone(order.places.clone()) }
}

impl App {
    /// Where what was launched on that node is now: its shepherd knows no other name of it.
    pub(super) fn now_on(&self, born: Nid) -> Nid {
        let at = self.place.moved.born.iter().position(|nid| *nid == born);
        // (They are of the places here, as only what is on one apinit is moved.)
        let mut own = self.place.places.nids().filter(|nid| self.nids.contains(nid));
        at.and_then(|at| own.nth(at)).unwrap_or(born)
    }

    /// What its shepherd says for its user, with the node where that is.
    pub(super) fn moved_notice(&self, notice: Notice) -> Notice {
        match notice {
            Notice::Seen { nid, at_ns, what } => {
                let what = match what {
                    Seen::Ends(cause) => Seen::Ends(cause.moved(|nid| self.now_on(nid))),
                    other => other,
                };
                Notice::Seen { nid: self.now_on(nid), at_ns, what }
            }
            other => other,
        }
    }

    /// What its shepherd says of a PE, with the node where that is, and the time by this host's clock.
    pub(super) fn moved_decisive(&self, decisive: Decisive) -> Decisive {
        let at_ns = i128::from(decisive.at_ns) - i128::from(self.shift().clock_ns);
        let at_ns = u64::try_from(at_ns.max(0)).unwrap_or(u64::MAX);
        Decisive { at_ns, cause: decisive.cause.moved(|nid| self.now_on(nid)) }
    }

    /// Its threads are being bound to other processors: it is not known yet where it will sit.
    pub(super) fn is_being_bound(&self) -> bool {
        self.moving.as_ref().is_some_and(|moving| moving.lifted_ns.is_some())
    }

    /// Why it can't be moved at all, nor its processors be changed.
    fn migration_blocker(&self) -> Option<MigrationBlocker> {
        if self.place.host_count() > 1 {
            Some(MigrationBlocker::SeveralHosts)
        } else if self.place.moved.fixed {
            Some(MigrationBlocker::ProcessorsNamed)
        } else if self.going_ns.is_none() {
            Some(MigrationBlocker::NotGoing)
        } else if !self.running() || self.doom.is_some() {
            Some(MigrationBlocker::Ending)
        } else {
            None
        }
    }

    /// Why it can't sit there.
    fn unfit(&self, to: &[Place], own: &BTreeSet<Nid>) -> Option<MigrationBlocker> {
        let strange = to.iter().find(|place| !own.contains(&place.nid));
        if let Some(place) = strange {
            return Some(MigrationBlocker::StrangeNode(place.nid));
        }
        let from = &self.place.places.0;
        let alike =
            |(a, b): (&Place, &Place)| a.pes == b.pes && a.processors.len() == b.processors.len();
        let same_shape = from.len() == to.len() && from.iter().zip(to).all(alike);
        (!same_shape).then_some(MigrationBlocker::OtherShape)
    }
}
