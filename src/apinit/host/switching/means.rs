//! How a gang is stopped and let run: by the freezer of its groups, or by signals.
//!
//! The freezer can't be seen by programs, nor evaded: once it is set, no process of the group runs one
//! more instruction of the user's, even if it is only then born. So it is not waited for for long.
//!
//! Signals are the weaker means, where there are no groups. Who forks meanwhile is caught as well, and as
//! long as not everyone stands the gang counts as one that runs. But who has a right to send SIGCONT
//! lets others go on, and nobody looks at them again before their next turn is over.

use super::super::process_tracking::Trail;
use crate::apinit::decide::switcher::Outcome;
use crate::node::groups::Freezer;
use std::time::{Duration, Instant};

/// How often a group that freezes is looked at.
const LOOK_AGAIN: Duration = Duration::from_micros(50);
/// How long processes have to stop by signals.
const SIGNALS_WAIT: Duration = Duration::from_millis(100);

/// How one gang is stopped.
#[derive(Debug)]
pub enum Means {
    /// Its groups, one for each node.
    Freezer(Vec<Freezer>),
    /// What leads to its processes.
    Signals(Trail),
    /// There is none: it can't be stopped.
    None,
}

impl Means {
    /// Whether it is stopped. What a killed apinit has left half done is done first.
    pub fn stopped(&mut self) -> bool {
        match self {
            Means::Freezer(groups) => {
                let set = groups.iter().filter(|group| group.set()).count();
                let all = set == groups.len();
                if set > 0 && !all {
                    return groups.iter().all(|group| group.freeze(true).is_ok());
                }
                set > 0
            }
            Means::Signals(trail) => {
                if !trail.any_stopped() {
                    return false;
                }
                trail.stop(Instant::now() + SIGNALS_WAIT) || {
                    trail.resume();
                    false
                }
            }
            Means::None => false,
        }
    }

    /// Begins to stop it; false: it can't be.
    fn stop(&mut self) -> bool {
        match self {
            Means::Freezer(groups) => {
                let frozen = groups.iter().try_for_each(|group| group.freeze(true));
                if let Err(error) = &frozen {
                    tracing::warn!(%error, "a group can't be frozen");
                    self.start();
                }
                frozen.is_ok()
            }
            Means::Signals(_) => true,
            Means::None => false,
        }
    }

    /// Whether it stands by then; of a frozen one, how many groups do not.
    fn confirm(&mut self, until: Instant) -> Outcome {
        match self {
            Means::Freezer(groups) => {
                let mut waited: Vec<&Freezer> = groups.iter().collect();
                loop {
                    waited.retain(|group| !group.frozen());
                    if waited.is_empty() {
                        return Outcome::Stopped;
                    }
                    if Instant::now() >= until {
                        let left = u32::try_from(waited.len()).unwrap_or(u32::MAX);
                        return Outcome::NotYet(left);
                    }
                    std::thread::sleep(LOOK_AGAIN);
                }
            }
            Means::Signals(trail) => {
                if trail.stop(Instant::now() + SIGNALS_WAIT) {
                    return Outcome::Stopped;
                }
                trail.resume();
                Outcome::Failed
            }
            Means::None => Outcome::Failed,
        }
    }

    /// Whether no process of the gang is on a processor any more.
    pub fn frozen(&self) -> bool {
        match self {
            Means::Freezer(groups) => groups.iter().all(Freezer::frozen),
            Means::Signals(_) | Means::None => true,
        }
    }

    /// The processor time that its groups have used so far; `None`: it is not known.
    pub fn used(&self) -> Option<Duration> {
        match self {
            Means::Freezer(groups) => groups.iter().map(Freezer::used).sum(),
            Means::Signals(_) | Means::None => None,
        }
    }

    /// The time in which it waited for a processor that others had.
    pub fn stalled(&self) -> Duration {
        match self {
            Means::Freezer(groups) => groups.iter().map(Freezer::stalled).sum(),
            Means::Signals(_) | Means::None => Duration::ZERO,
        }
    }

    /// Lets it run.
    pub fn start(&mut self) {
        match self {
            Means::Freezer(groups) => {
                for group in groups {
                    if let Err(error) = group.freeze(false) {
                        tracing::warn!(%error, "a group can't be thawed");
                    }
                }
            }
            Means::Signals(trail) => trail.resume(),
            Means::None => {}
        }
    }
}

/// Stops all of these: first all are told, then each is waited for, no longer than `wait` in all.
pub fn stop_all<'a>(gangs: impl Iterator<Item = &'a mut Means>, wait: Duration) -> Vec<Outcome> {
    let told: Vec<(&mut Means, bool)> = gangs
        .map(|means| {
            let told = means.stop();
            (means, told)
        })
        .collect();
    let until = Instant::now() + wait;
    told.into_iter()
        .map(|(means, told)| if told { means.confirm(until) } else { Outcome::Failed })
        .collect()
}
