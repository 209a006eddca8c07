//! Bringing an application back, as far as the one task has a part in it.

use super::apps::isolated;
use super::{Shell, TaskEvent, lost};
use crate::apinit::decide::{Agent, Event};
use crate::apinit::host::places;
use crate::apinit::host::restore::{Restoring, Returned};
use crate::apinit::host::shepherds;
use crate::apteam::Key;
use crate::apteam::protocol::node::PlaceCommand;
use std::fs;
use std::sync::Arc;

impl Shell {
    /// Begins it, beside the one task.
    pub(super) fn restore(&mut self, agent: &Agent, place: PlaceCommand, cpus: Vec<Vec<u32>>) {
        let key = place.key;
        let restoring = match self.restoring(agent, place, cpus) {
            Ok(restoring) => restoring,
            Err(why) => return self.happens(Event::Restored(key, Err(why))),
        };
        let Some(app) = self.apps.get(&key) else { return };
        let (span, events) = (app.span.clone(), self.events.clone());
        let copy = restoring.copy.clone();
        self.leaving.spawn(async move {
            let done = tokio::task::spawn_blocking(move || span.in_scope(|| restoring.carry_out()));
            let result = done.await.unwrap_or_else(lost);
            let _ = events.send(TaskEvent::Restored(key, result.map(Box::new))).await;
            // The copy of its images goes beside its start, which would wait for that else.
            let _ = tokio::task::spawn_blocking(move || drop(fs::remove_dir_all(copy))).await;
        });
    }

    /// All that it needs.
    fn restoring(
        &mut self,
        agent: &Agent,
        place: PlaceCommand,
        cpus: Vec<Vec<u32>>,
    ) -> Result<Restoring, String> {
        let Some(restart) = place.restart.clone() else {
            return Err("there is nothing to restore".into());
        };
        let nids = self.nids_here(&place);
        let limits =
            nids.into_iter().map(|nid| (nid, self.limits_of(agent, &place, nid))).collect();
        let app = self.apps.get_mut(&place.key).ok_or("it is no longer here")?;
        let from = app.restore_from.take().ok_or(
            "apinit has not received the folder of its checkpoint, or was restarted since: \
             restart it again (cpr -r)",
        )?;
        let sealing = self.sealing.clone();
        let sealing = sealing
            .ok_or("psched has sent no key to verify checkpoints with: see the log of psched")?;
        let groups = self.groups.clone().zip(app.groups.clone());
        let (groups, made) =
            groups.ok_or("without cgroups it can't be kept from running before its turn")?;
        let shelf = self.shelf.as_ref();
        let copy = shelf.map_or_else(|| app.directory.images(), |shelf| shelf.copy(place.key));
        Ok(Restoring {
            copy,
            promised: self.promised.clone(),
            criu: Arc::clone(&self.criu),
            from,
            sealing,
            restart,
            limits,
            cpus,
            directory: app.directory.clone(),
            groups,
            made,
            apshepherd: self.apshepherd.path().to_owned(),
            lifeline: self.lifeline.clone(),
            space: isolated(self.space.as_ref(), &place),
            place,
        })
    }

    /// It is back, or why not.
    pub(super) fn restored(
        &mut self,
        agent: &Agent,
        key: Key,
        result: Result<Box<Returned>, String>,
    ) {
        let place = self.apps.get(&key).and_then(|app| app.directory.place());
        let seats = result.as_ref().ok().zip(place);
        // Its groups have the names of the nodes on which it was launched.
        let seats =
            seats.map(|(returned, place)| self.seats(agent, &place, returned.groups.born()));
        let seats = seats.unwrap_or_default();
        let Some(app) = self.apps.get_mut(&key) else {
            // (The agent keeps it until it has heard.)
            return;
        };
        let _in = app.span.clone().entered();
        let returned = result.and_then(|returned| {
            let Returned { back, shepherd, first, groups, connection, total } = *returned;
            places::lock(&app.seating).seats = seats;
            app.groups = Some(groups);
            app.first = Some(first);
            app.forms = false;
            let shepherd = shepherds::connected(key, shepherd, connection, &self.events)?;
            tracing::info!(pid = shepherd.process.pid, ?total, "brought back");
            app.shepherd = Some(shepherd);
            Ok(Box::new(back))
        });
        if let Err(why) = &returned {
            tracing::warn!("the application was not restored: {why}");
        }
        self.happens(Event::Restored(key, returned));
    }
}
