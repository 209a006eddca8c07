//! What would be launched, as front ends say it for a checkpoint.

use crate::apteam::Apid;
use crate::apteam::launch::Launch;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Checkpoints without images that are made at once.
const DEPOSITS_MAX: usize = 64;

/// Who waits for the launch of which application.
#[derive(Clone, Debug, Default)]
pub struct Deposits(Arc<Mutex<Waiting>>);

impl Deposits {
    pub(super) fn expect(&self, apid: Apid) -> Option<oneshot::Receiver<Launch>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, waits| !waits.is_closed());
        if all.len() >= DEPOSITS_MAX {
            return None;
        }
        let (sender, launch) = oneshot::channel();
        let next = all.keys().map(|(_, number)| number + 1).max().unwrap_or(0);
        all.insert((apid, next), sender);
        Some(launch)
    }

    pub(super) fn came(&self, apid: Apid, launch: &Launch) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let keys: Vec<_> = all.keys().filter(|(of, _)| *of == apid).copied().collect();
        for key in keys {
            if let Some(waits) = all.remove(&key) {
                let _ = waits.send(launch.clone());
            }
        }
    }
}

/// Of each: the application, and a number that tells it from others who wait for the same.
type Waiting = BTreeMap<(Apid, u64), oneshot::Sender<Launch>>;
