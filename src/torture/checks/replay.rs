//! The replay property: what a psched has decided comes out of its recording again, to the letter.
//!
//! While it runs, the effects of its last steps are remembered. When it has died, and at the end, its recording is
//! written, read again and replayed.

use crate::psched::decide::Effect;
use crate::psched::drive::recorder::Gave;
use crate::psched::drive::recorder::form::Reader;
use crate::torture::world::World;
use std::collections::VecDeque;

/// Events of a part: so few that most recordings begin in the middle of a history.
pub const EVENTS: usize = 96;
/// Steps whose effects are remembered: more than a recording has.
const STEPS_MAX: usize = 4 * EVENTS;

/// What came of the last steps that had any effect.
#[derive(Debug, Default)]
pub struct Given(VecDeque<Vec<Effect>>);

impl Given {
    /// A step had these.
    pub fn push(&mut self, effects: &[Effect]) {
        if self.0.len() >= STEPS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(effects.to_vec());
    }
}

impl World {
    /// Replays the recording of the psched that runs.
    pub fn check_replay(&mut self) {
        let Some(psched) = &self.psched else { return };
        let recording = psched.driver.recording();
        let mut written = Vec::new();
        let found = match recording.write("the end", 0, &mut written) {
            Ok(()) => differs(&written, &self.given),
            Err(error) => Some(error.to_string()),
        };
        self.given = Given::default();
        match found {
            Some(text) => self.checks.broken(format!("a recording is not what happened: {text}")),
            None => self.checks.replayed += recording.len() as u64,
        }
    }
}

/// The first step whose effects are other ones.
fn differs(written: &[u8], given: &Given) -> Option<String> {
    let (steps, mut scheduler) = match Reader::open(written) {
        Ok(opened) => opened,
        Err(error) => return Some(error.to_string()),
    };
    let mut again = Vec::new();
    for step in steps {
        let step = match step {
            Ok(step) => step,
            Err(error) => return Some(error.to_string()),
        };
        let effects = step.replay(&mut scheduler);
        // (Where it died within a step, nobody knows all that would have come of it.)
        if step.gave.is_some_and(|gave| gave != Gave::of(&effects)) {
            return Some(format!("{step:?} gives {effects:?}"));
        }
        if !effects.is_empty() {
            again.push((step, effects));
        }
    }
    // (Before the first step are the effects of the restoration, which is none.)
    let before = given.0.len().checked_sub(again.len());
    let Some(before) = before else { return Some("there are more effects than there were".into()) };
    let text = |effect: &Effect| format!("{effect:?}");
    given.0.iter().skip(before).zip(&again).find_map(|(was, (step, is))| {
        let same = was.len() == is.len() && was.iter().zip(is).all(|(a, b)| text(a) == text(b));
        (!same).then(|| format!("{step:?} gives {is:?} in place of {was:?}"))
    })
}
