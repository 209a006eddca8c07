//! Applications whose memory goes out by a checkpoint of apinit's own, as far as the one task has a part in it.
//!
//! What comes before and after that, and in which order, is the driver's ([`crate::apinit::drive`]).

use super::apps::isolated;
use super::{Shell, TaskEvent, lost};
use crate::apinit::drive::Heard;
use crate::apinit::host::memory_out::{BringBack, Returned, TakeOut};
use crate::apinit::host::shepherds;
use crate::apteam::Key;
use crate::apteam::protocol::node::{PlaceCommand, RollOut};
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

    /// A thread dumps it and ends its processes. Its shepherd has no connection.
    pub(super) fn take_out(&mut self, key: Key) {
        let Some(app) = self.apps.get(&key) else { return };
        let ready = app.shepherd.as_ref().zip(app.groups.clone()).zip(self.shelf.clone());
        let Some(((shepherd, groups), shelf)) = ready else {
            let why = "apinit has no --roll-out folder or no cgroups for it, or its apshepherd \
                       does not answer"
                .to_owned();
            return self.own.push(Heard::TookOut(key, Err(why)));
        };
        let take_out = TakeOut {
            criu: Arc::clone(&self.criu),
            shelf,
            promised: self.promised.clone(),
            key,
            shepherd: shepherd.process,
            directory: app.directory.clone(),
            lifeline: self.lifeline.clone(),
            groups,
            owner: (&app.owner).into(),
            ghost_limit: self.ghost_limit,
        };
        let (span, directory) = (app.span.clone(), app.directory.clone());
        let events = self.events.clone();
        self.leaving.spawn(async move {
            directory.keep_dumped();
            let done = tokio::task::spawn_blocking(move || span.in_scope(|| take_out.carry_out()));
            let result = done.await.unwrap_or_else(lost);
            directory.drop_dumped();
            let _ = events.send(TaskEvent::TookOut(key, result)).await;
        });
    }

    /// No process of it is left, or why not.
    pub(super) fn took_out(&mut self, key: Key, result: Result<u64, String>) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if result.is_ok() {
            (app.shepherd, app.first) = (None, None);
        }
        self.own.push(Heard::TookOut(key, result));
    }

    /// Begins to bring it back, beside the one task.
    pub(super) fn bring_back(&mut self, place: PlaceCommand, cpus: Vec<Vec<u32>>) {
        let key = place.key;
        let Some(app) = self.apps.get_mut(&key) else { return };
        let Some(groups) = app.groups.clone() else { return };
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
            let result = done.await.unwrap_or_else(lost);
            let _ = events.send(TaskEvent::CameBack(key, result.map(Box::new))).await;
        });
    }

    /// It is back, or why not.
    pub(super) fn came_back(&mut self, key: Key, result: Result<Box<Returned>, String>) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let _in = app.span.clone().entered();
        app.comes = None;
        let back = result.and_then(|returned| {
            let Returned { back, shepherd, first, connection } = *returned;
            (app.first, app.exit) = (Some(first), None);
            app.shepherd = Some(shepherds::connected(key, shepherd, connection, &self.events)?);
            Ok(Box::new(back))
        });
        if let Err(why) = &back {
            tracing::warn!("the application was not rolled in: {why}");
        }
        self.own.push(Heard::CameBack(key, back));
    }
}
