//! Making an application's part here, finding it again in a later life, and removing it.

use super::shepherd::App;
use super::{Driver, Heard, Outside, Record, Work};
use crate::apinit::decide::switcher::Event as TurnEvent;
use crate::apinit::decide::{Event, Found};
use crate::apteam::Key;
use crate::apteam::protocol::node::{PlaceCommand, Restoring};
use crate::apteam::protocol::shepherd::ToShepherd;
use crate::machine::Nid;

/// What a former life of this apinit has left of an application.
#[derive(Debug)]
pub struct Left {
    /// What is told the agent of it.
    pub found: Found,
    /// The process of its front end has ended.
    pub front_died: bool,
    /// A dump of it was under way. It continues when that dump is over: [`Heard::Thawed`].
    pub thawing: bool,
}

impl Driver {
    /// Whether to ask the apshepherd of an application that was found again for its hello. A restore that was not
    /// finished is given up. An application whose memory is out has no apshepherd.
    pub fn goes_on(place: &PlaceCommand, away: bool) -> bool {
        let whole = place.restart.is_none() || matches!(place.moved.restoring, Restoring::Done(_));
        whole && !away
    }

    /// This is left of an application. All of them are to be told before [`Driver::begin`].
    pub fn left(&mut self, left: Left) {
        let Left { found, front_died, thawing } = left;
        let key = found.place.key;
        self.apps.insert(key, App::found(found.away.is_some(), thawing));
        if let Some(conn) = found.front.filter(|_| front_died) {
            self.later(Event::FrontDied(conn));
        }
        self.pending.push_front(Heard::Happens(Event::Found(Box::new(found))));
    }

    /// All that a former life has left is known, to the agent and then to the switcher.
    pub fn begin(&mut self, out: &mut impl Outside) {
        self.settle(out);
        out.turns(TurnEvent::Begin);
        self.settle(out);
    }

    pub(super) fn make(&mut self, out: &mut impl Outside, place: PlaceCommand, nids: &[Nid]) {
        let key = place.key;
        self.apps.insert(key, App::default());
        let made = match self.try_make(out, place, nids) {
            Ok(()) => Event::ShepherdSpawned(key),
            Err(text) => {
                out.warn(key, &format!("no apshepherd was started: {text}"));
                Event::SpawnFailed { key, text }
            }
        };
        self.later(made);
    }

    fn try_make(
        &mut self,
        out: &mut impl Outside,
        place: PlaceCommand,
        nids: &[Nid],
    ) -> Result<(), String> {
        let (key, alone) = (place.key, place.host_count() == 1);
        out.make_folder(&self.agent, &place, nids)?;
        out.keep(Record::Groups { key, nids: nids.to_vec(), alone })?;
        out.make_groups(&self.agent, &place, nids)?;
        if place.restart.is_some() {
            // Its apshepherd comes with it.
            return out.keep(Record::Place(Box::new(place)));
        }
        out.start_shepherd(&place)?;
        // Last: with its placement it counts as made. What is not on record would be killed by an
        // apinit that is started again; nothing has been launched yet.
        let kept = out.keep(Record::Shepherd(key));
        let kept = kept.and_then(|()| out.keep(Record::Place(Box::new(place))));
        kept.inspect_err(|_| out.kill(key, true))
    }

    /// Removes all of it.
    pub(super) fn remove(&mut self, out: &mut impl Outside, key: Key) {
        self.close_own_ways(out, key);
        let Some(app) = self.apps.remove(&key) else { return };
        // At once, so that a restart does not take it up.
        self.keep(out, Record::NoPlace(key));
        match app.hears_nothing() {
            // It has ended while it was to go out or to be dumped: its apshepherd hears nothing, and has
            // said all.
            true => out.kill(key, true),
            // What waits for it is sent still. False: it does not read, and is killed in a while.
            false => drop(out.tell_shepherd(key, ToShepherd::Release)),
        }
        out.begin(&self.agent, Work::Remove(key));
    }
}
