//! What is said to an apshepherd, also while it does not hear because it is dumped or away.

use super::{Driver, Heard, Outside, Work};
use crate::apinit::decide::{Action, CameBack, Event};
use crate::apteam::Key;
use crate::apteam::protocol::node::PlaceCommand;
use crate::apteam::protocol::shepherd::ToShepherd;

/// The most messages that wait for an apshepherd without a connection.
const WAITING_MAX: usize = 4096;

/// What the driver knows of an application.
#[derive(Debug, Default)]
pub(super) struct App {
    /// Its apshepherd has no connection.
    hung_up: Option<HungUp>,
    /// A dump that a former life of this apinit has begun is being ended: what is to be done after that.
    thawing: Option<Vec<Action>>,
    /// Its images are the application, and no process of it is there.
    pub(super) away: bool,
}

/// Why an apshepherd has no connection, and what waits for it.
#[derive(Debug, Default)]
struct HungUp {
    /// For this question of somebody's at the door; none: its memory goes out.
    number: Option<u64>,
    /// It has heard all and said all: it is dumped, away, or brought back.
    begun: bool,
    /// After that it was connected to again, and has died before that was told.
    died: bool,
    /// In order.
    waiting: Vec<ToShepherd>,
    /// What the agent hears once it is talked with again.
    then: Option<Event>,
}

impl App {
    /// One that a former life has left.
    pub(super) fn found(away: bool, thawing: bool) -> App {
        let hung_up = away.then(|| HungUp { begun: true, ..HungUp::default() });
        App { hung_up, thawing: thawing.then(Vec::new), away }
    }

    /// Its apshepherd is there and has no connection.
    pub(super) fn hears_nothing(&self) -> bool {
        self.hung_up.is_some() && !self.away
    }
}

impl Driver {
    /// Its processes are where they are on purpose: it is dumped, away or brought back, or what a dump has left is
    /// being ended.
    pub fn is_set_aside(&self, key: Key) -> bool {
        let aside = |app: &App| app.away || app.hung_up.is_some() || app.thawing.is_some();
        self.apps.get(&key).is_some_and(aside)
    }

    pub(super) fn tell_shepherd(&mut self, out: &mut impl Outside, key: Key, message: ToShepherd) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        // (Whoever has sent a letter sends it again.)
        if app.hung_up.is_some() && matches!(message, ToShepherd::Letter(_)) {
            return;
        }
        if let Some(hung_up) = &mut app.hung_up {
            hung_up.waiting.push(message);
            if hung_up.waiting.len() > WAITING_MAX {
                let text = "too many messages wait for it while it is checkpointed".to_owned();
                self.later(Event::ShepherdLost { key, text });
            }
        } else if !out.tell_shepherd(key, message) {
            let text = "it does not read its messages".to_owned();
            self.later(Event::ShepherdLost { key, text });
        }
    }

    /// It stands: nothing more is said to its apshepherd for now.
    pub(super) fn hang_up(&mut self, out: &mut impl Outside, key: Key, number: Option<u64>) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.hung_up = Some(HungUp { number, ..HungUp::default() });
        // (Where there is no connection, nothing is on its way.)
        if !out.hang_up_shepherd(key) {
            self.hung_up(out, key);
        }
    }

    /// The connection to an apshepherd is closed: as it was to be, or the apshepherd is lost.
    pub(super) fn silent(&mut self, out: &mut impl Outside, key: Key, text: String) {
        match self.apps.get_mut(&key).and_then(|app| app.hung_up.as_mut()) {
            Some(hung_up) if hung_up.begun => hung_up.died = true,
            Some(_) => self.hung_up(out, key),
            None => self.lost(out, key, text),
        }
    }

    fn lost(&mut self, out: &mut impl Outside, key: Key, text: String) {
        let text = out.fate(key, text);
        self.later(Event::ShepherdLost { key, text });
    }

    /// It has heard all and said all.
    fn hung_up(&mut self, out: &mut impl Outside, key: Key) {
        let hung_up = self.apps.get_mut(&key).and_then(|app| app.hung_up.as_mut());
        let Some(hung_up) = hung_up else { return };
        hung_up.begun = true;
        let work = match hung_up.number {
            None => Work::TakeOut(key),
            Some(number) => {
                let (output_received, stdin_taken) = self.agent.resume_point(key);
                Work::Dump { key, number, output_received, stdin_taken }
            }
        };
        out.begin(&self.agent, work);
    }

    /// Connects to its apshepherd again; then the agent hears this.
    pub(super) fn find(&mut self, out: &mut impl Outside, key: Key, then: Event) {
        let hung_up = self.apps.get_mut(&key).map(|app| &mut app.hung_up);
        let Some(hung_up) = hung_up else { return };
        hung_up.get_or_insert_default().then = Some(then);
        out.begin(&self.agent, Work::FindShepherd(key));
    }

    /// Its apshepherd is there again, or has gone: what has waited is said.
    pub(super) fn heard_again(&mut self, out: &mut impl Outside, key: Key, found: bool) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let HungUp { waiting, then, died, .. } = app.hung_up.take().unwrap_or_default();
        match found && !died {
            true => self.say_what_waited(out, key, waiting),
            false => self.lost(out, key, "it ended during its checkpoint".to_owned()),
        }
        self.pending.extend(then.map(Heard::Happens));
    }

    fn say_what_waited(&mut self, out: &mut impl Outside, key: Key, waiting: Vec<ToShepherd>) {
        for message in waiting {
            self.tell_shepherd(out, key, message);
        }
    }

    /// No process of it is left, or why not.
    pub(super) fn took_out(
        &mut self,
        out: &mut impl Outside,
        key: Key,
        result: Result<u64, String>,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        if result.is_err() {
            return self.find(out, key, Event::TakenOut(key, result));
        }
        app.away = true;
        out.is_away(key);
        self.later(Event::TakenOut(key, result));
    }

    /// It is to be there again. What is said to its apshepherd waits on.
    pub(super) fn bring_back(
        &mut self,
        out: &mut impl Outside,
        place: Box<PlaceCommand>,
        cpus: Vec<Vec<u32>>,
    ) {
        let Some(app) = self.apps.get_mut(&place.key) else { return };
        app.away = false;
        out.begin(&self.agent, Work::BringBack { place, cpus });
    }

    /// It is back, or why not.
    pub(super) fn came_back(
        &mut self,
        out: &mut impl Outside,
        key: Key,
        result: Result<Box<CameBack>, String>,
    ) {
        let Some(app) = self.apps.get_mut(&key) else { return };
        let HungUp { waiting, died, .. } = app.hung_up.take().unwrap_or_default();
        let back = result.is_ok();
        if back {
            self.say_what_waited(out, key, waiting);
        }
        self.later(Event::CameBack(key, result));
        if back && died {
            self.lost(out, key, String::new());
        }
    }

    /// What is killed while it is away has no process: its images go, and its apshepherd counts as lost.
    pub(super) fn kill(&mut self, out: &mut impl Outside, key: Key, shepherd: bool) {
        let Some(app) = self.apps.get_mut(&key).filter(|app| app.away) else {
            return out.kill(key, shepherd);
        };
        (app.away, app.hung_up) = (false, None);
        out.drop_images(key);
        self.lost(out, key, "it was ended while its memory was in a checkpoint".to_owned());
    }

    /// Whether a dump that a former life has begun of it is being ended.
    pub(super) fn is_thawing(&self, key: Key) -> bool {
        self.apps.get(&key).is_some_and(|app| app.thawing.is_some())
    }

    /// Does this only when that is over: it would let it run in the midst of another dump.
    pub(super) fn after_thaw(&mut self, key: Key, action: Action) {
        let waiting = self.apps.get_mut(&key).and_then(|app| app.thawing.as_mut());
        waiting.into_iter().for_each(|waiting| waiting.push(action.clone()));
    }

    /// That is over.
    pub(super) fn thawed(&mut self, out: &mut impl Outside, key: Key) {
        let waiting = self.apps.get_mut(&key).and_then(|app| app.thawing.take());
        for action in waiting.unwrap_or_default() {
            self.act(out, action);
        }
    }
}

#[cfg(test)]
mod tests;
