//! Memory of a gang that goes out by a checkpoint, where there is no swap.
//!
//! # Problem
//! A gang that has no turn for long is to leave its memory to others. Where nothing can be swapped its processes
//! can be dumped and ended, and brought back before its next turn. Nobody may notice: its front end stays, what
//! is said to it waits, its ranks and statuses are what they were; and apinit may be killed at any step.
//!
//! # Approach
//! The switcher asks ([`News::GoesOut`]) once the gang stands and has no turn soon. It is lifted, as for any
//! checkpoint, dumped, ended and seated again; when it is to run, the switcher waits for its memory as it waits
//! for memory that comes from swap.
//!
//! ```text
//!   switcher  GoesOut    ->  Hold
//!             Held     ->  TakeOut                     its shepherd is hung up on, the dump is made
//!   shell     TakenOut   ->  Seat, RolledOut to psched   no process of it is left
//!             or why not ->  Seat, RolledOut with that   it stands as before
//!   switcher  ComesIn    ->  BringBack                   its turn is there
//!   shell     Back       ->  KeepPlace, Brought          what has waited is said to its shepherd; it runs
//!             or why not ->                              it is lost, and ends
//! ```
//!
//! From the end of its processes on the images are the application. What is to end meanwhile, with a grace, hears
//! of it in its next turn, which psched brings forward; without one it is ended as it lies. One that somebody
//! wants to checkpoint is brought back first.
//!
//! An apinit that starts finds which are away by a mark in the runtime directory ([`Found::away`]). It is made when
//! the images are whole and before any process is ended, and removed when all are back and before any has run: so
//! at each moment either the images count or the processes do.
//!
//! [`Found::away`]: super::Found::away
//! [`News::GoesOut`]: super::switcher::News::GoesOut

use super::application::{App, Shepherd};
use super::back::CameBack;
use super::out_stage::OutStage;
use super::switcher::Event as TurnEvent;
use super::{Action, Agent, Out};
use crate::apteam::Key;
use crate::apteam::fault::Fault;
use crate::apteam::place::Place;
use crate::apteam::protocol::node::{Report, Restoring, Shift};
use crate::machine::Nid;

impl Agent {
    /// It stands and has no turn soon, and its host has no swap for it.
    pub(super) fn goes_out(&mut self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if let Some(OutStage::Gone(bytes)) = app.away {
            // psched has been started again, say, and takes everybody for resident.
            self.seat(key, out);
            return self.report(Report::RolledOut { key, bytes, why: None }, out);
        }
        if app.away.is_some() {
            return;
        }
        if let Some(why) = app.stays() {
            if app.dumping.is_none() && app.moving.is_none() {
                // Whoever waits for its processors need not any more.
                self.seat(key, out);
            }
            return self.report(Report::RolledOut { key, bytes: 0, why: Some(why) }, out);
        }
        app.away = Some(OutStage::Leaves);
        out.push(Action::Turns(TurnEvent::Hold(key)));
    }

    /// It stands, and is not let run before it is seated; or it can't be stopped.
    pub(super) fn lifted_to_go_out(&mut self, key: Key, stands: bool, out: &mut Out) {
        if stands {
            return out.push(Action::TakeOut(key));
        }
        self.stays_here(key, "it can't be stopped".to_owned(), out);
    }

    /// No process of it is left, and its images have so many bytes; or why it is there as before.
    pub(super) fn taken_out(
        &mut self,
        now: u64,
        key: Key,
        result: Result<u64, String>,
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if app.away != Some(OutStage::Leaves) {
            return;
        }
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(why) => return self.stays_here(key, why, out),
        };
        app.away = Some(OutStage::Gone(bytes));
        if !app.running() {
            return;
        }
        if app.dies_now(now) {
            return self.end_away(key, out);
        }
        self.seat(key, out);
        self.report(Report::RolledOut { key, bytes, why: None }, out);
    }

    fn stays_here(&mut self, key: Key, why: String, out: &mut Out) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.away = None;
        out.push(Action::Warn(key, format!("the application was not rolled out: {why}")));
        self.seat(key, out);
        self.report(Report::RolledOut { key, bytes: 0, why: Some(why) }, out);
    }

    /// It is to run, or to be dumped.
    pub(super) fn comes_in(&mut self, key: Key, out: &mut Out) {
        let Some(app) = self.apps.get(&key) else { return };
        if !matches!(app.away, Some(OutStage::Gone(_))) || !app.running() {
            return;
        }
        let cpus = self.cpus_of(app);
        let place = Box::new(app.place.clone());
        if let Some(app) = self.apps.get_mut(&key) {
            app.away = Some(OutStage::Comes);
        }
        out.push(Action::BringBack { place, cpus });
    }

    /// It is back and stands, and its shepherd hears; or why not, and nothing of it is left.
    pub(super) fn came_back(
        &mut self,
        now: u64,
        key: Key,
        result: Result<Box<CameBack>, String>,
        out: &mut Out,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if app.away != Some(OutStage::Comes) {
            return;
        }
        let back = match result {
            Ok(back) => *back,
            Err(why) => {
                let text = format!(
                    "the memory of the application was in a checkpoint and can't be restored: {why}"
                );
                return self.shepherd_lost(now, key, text, Fault::User, out);
            }
        };
        if app.dies_now(now) {
            return self.end_away(key, out);
        }
        app.away = None;
        if app.shepherd == Shepherd::Silent {
            // It was away when this life of apinit began.
            app.heard_of(&back.hello);
        }
        let shift = Shift { clock_ns: back.clock_ns, ..app.shift() };
        app.place.moved.restoring = Restoring::Done(shift);
        out.push(Action::KeepPlace(Box::new(app.place.clone())));
        out.push(Action::Turns(TurnEvent::Brought(key, back.bytes)));
        if let Some(number) = app.dumping.map(|dumping| dumping.number) {
            out.push(Action::Dump { key, number });
        }
    }

    /// It ends as it lies: there is nobody who could hear of it.
    pub(super) fn end_away(&self, key: Key, out: &mut Out) {
        // Where there is no process to kill the shell says at once that its shepherd is lost.
        out.push(Action::KillGroups { key, shepherd: true });
    }

    /// The real processors of each of its places here.
    pub(super) fn cpus_of(&self, app: &App) -> Vec<Vec<u32>> {
        let own = app.place.places.0.iter().filter(|place| app.nids.contains(&place.nid));
        own.map(|place| self.cpus_at(place)).collect()
    }

    /// The real processors of a place here.
    pub fn cpus_at(&self, place: &Place) -> Vec<u32> {
        let node = self.node(place.nid);
        place.processors.iter().filter_map(|p| node?.cpu(*p, &self.me.cpus)).collect()
    }

    /// All real processors of a node here, whoever has them.
    pub fn cpus_of_node(&self, nid: Nid) -> Vec<u32> {
        let Some(node) = self.node(nid) else { return Vec::new() };
        (0..node.processors).filter_map(|p| node.cpu(p, &self.me.cpus)).collect()
    }
}

impl App {
    /// Why its memory stays here, in words.
    fn stays(&self) -> Option<String> {
        if self.place.host_count() > 1 {
            return Some("it is on several apinits, and its host has no swap".to_owned());
        }
        self.undumpable().map(|why| format!("it {why}"))
    }

    /// No process of it is there, or may be: nobody hears.
    pub(super) fn is_away(&self) -> bool {
        matches!(self.away, Some(OutStage::Gone(_) | OutStage::Comes))
    }

    /// It is being dumped for that, or brought back.
    pub(super) fn on_its_way(&self) -> bool {
        matches!(self.away, Some(OutStage::Leaves | OutStage::Comes))
    }

    /// It is to end, and its grace is over or it has none.
    fn dies_now(&self, now: u64) -> bool {
        self.grace.is_none() && self.doom.as_ref().is_some_and(|doom| doom.kill_at_ns <= now)
    }
}
