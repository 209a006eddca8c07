//! Applications whose memory goes out by a checkpoint of apinit's own, as far as the one task has a part in it.
//!
//! ```text
//!   TakeOut      what waits for its shepherd is sent, and then nothing more: it waits here
//!   silent       the shepherd has closed: a thread dumps it and ends its processes
//!   TookOut      it is away: the thread that changes gangs knows; or its shepherd is talked with again
//!   BringBack    a thread restores it
//!   CameBack     its shepherd is told what has waited
//! ```
//!
//! What is killed while it is away has no process: its images go, and its shepherd counts as lost.

use super::apps::isolated;
use super::checkpoints::HungUp;
use super::{Event, Shell};
use crate::apinit::decide::Happening;
use crate::apinit::host::away::{BringBack, Returned, TakeOut};
use crate::apinit::host::shepherds::{self, Shepherd};
use crate::apteam::Key;
use crate::apteam::talk::node::{PlaceCommand, RollOut};
use crate::node::groups::Groups;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

impl Shell {
    /// Whether memory can be brought out here, to swap or else by a checkpoint.
    pub(super) fn roll_out(&self) -> RollOut {
        let swap = self.groups.as_ref().map(Groups::roll_out);
        match (swap, &self.shelf) {
            (None, _) => RollOut::Cant("no cgroups".to_owned()),
            (Some(RollOut::Cant(_)), Some(shelf)) => shelf.roll_out(&self.criu),
            (Some(swap), _) => swap,
        }
    }

    /// It stands: nothing more is said to its shepherd for now.
    pub(super) fn take_out(&mut self, key: Key) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.hung_up = Some(HungUp::to_go_out());
        match &mut app.shepherd {
            // The rest follows when it has heard all and closed.
            Some(shepherd) => shepherd.hang_up(),
            None => self.took_out(key, Err("its apshepherd can't be heard".to_owned())),
        }
    }

    /// Its shepherd has closed.
    pub(super) fn take_out_hung_up(&mut self, key: Key) {
        let Some(app) = self.apps.get(&key) else { return };
        let ready = app.shepherd.as_ref().zip(app.groups.clone()).zip(self.shelf.clone());
        let Some((((shepherd, groups), shelf), owner)) = ready.zip(self.agent.owner(key)) else {
            return self.took_out(key, Err("there is no folder for it".to_owned()));
        };
        let take_out = TakeOut {
            criu: Arc::clone(&self.criu),
            shelf,
            key,
            shepherd: shepherd.process,
            directory: app.directory.clone(),
            lifeline: self.lifeline.clone(),
            groups,
            owner: owner.into(),
            ghost_limit: self.ghost_limit,
        };
        let (span, directory) = (app.span.clone(), app.directory.clone());
        let events = self.events.clone();
        self.leaving.spawn(async move {
            directory.keep_dumped();
            let done = tokio::task::spawn_blocking(move || span.in_scope(|| take_out.carry_out()));
            let result = done.await.unwrap_or_else(|e| Err(format!("a fault of apinit's: {e}")));
            directory.drop_dumped();
            let _ = events.send(Event::TookOut(key, result)).await;
        });
    }

    /// No process of it is left, or why not.
    pub(super) fn took_out(&mut self, key: Key, result: Result<u64, String>) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if result.is_ok() {
            (app.shepherd, app.first, app.away) = (None, None, true);
            self.switching.away(key);
            return self.own.push_back(Happening::TakenOut(key, result));
        }
        let (of, events) = (app.directory.clone(), self.events.clone());
        self.leaving.spawn(async move {
            let found = shepherds::find(key, &of, &events).await.map(|(shepherd, _)| shepherd);
            let then = Happening::TakenOut(key, result);
            let _ = events.send(Event::HeardAgain { key, found, then: Box::new(then) }).await;
        });
    }

    /// Begins to bring it back, beside the one task.
    pub(super) fn bring_back(&mut self, place: PlaceCommand, cpus: Vec<Vec<u32>>) {
        let key = place.key;
        let Some(app) = self.apps.get_mut(&key) else { return };
        let Some(groups) = app.groups.clone() else { return };
        app.away = false;
        let wanted = Arc::new(AtomicBool::new(true));
        app.comes = Some(Arc::clone(&wanted));
        let bring_back = BringBack {
            wanted,
            criu: Arc::clone(&self.criu),
            cpus,
            directory: app.directory.clone(),
            groups,
            apshepherd: self.apshepherd.path().to_owned(),
            lifeline: self.lifeline.clone(),
            space: isolated(self.space.as_ref(), &place),
            place,
        };
        let (span, events) = (app.span.clone(), self.events.clone());
        self.leaving.spawn(async move {
            let done =
                tokio::task::spawn_blocking(move || span.in_scope(|| bring_back.carry_out()));
            let result = done.await.unwrap_or_else(|e| Err(format!("a fault of apinit's: {e}")));
            let _ = events.send(Event::CameBack(key, result.map(Box::new))).await;
        });
    }

    /// It is back, or why not.
    pub(super) fn came_back(&mut self, key: Key, result: Result<Box<Returned>, String>) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let _in = app.span.clone().entered();
        app.comes = None;
        let mut waiting = Vec::new();
        let back = result.and_then(|returned| {
            let Returned { back, shepherd, first, connection } = *returned;
            (app.first, app.exit) = (Some(first), None);
            app.shepherd = Some(Shepherd::connected(key, shepherd, connection, &self.events)?);
            waiting = app.hung_up.take().map(HungUp::waited).unwrap_or_default();
            Ok(Box::new(back))
        });
        if let Err(why) = &back {
            app.hung_up = None;
            tracing::warn!("not brought back: {why}");
        }
        for message in waiting {
            self.send_shepherd(key, message);
        }
        self.own.push_back(Happening::CameBack(key, back));
    }

    /// It is killed, and has no process: its images go.
    pub(super) fn killed_away(&mut self, key: Key) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        (app.away, app.hung_up, app.silent) = (false, None, true);
        if let Some(images) = app.directory.away() {
            let _ = std::fs::remove_dir_all(images);
        }
        app.directory.drop_away();
        let text = "it was ended while its memory was in a checkpoint".to_owned();
        self.own.push_back(Happening::ShepherdLost { key, text });
    }
}
