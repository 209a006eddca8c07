//! One of the line of those who may run.

use crate::apteam::Apid;
use crate::gang::levels::{Place, Turn};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One of the line: its place in the order of turn, and how it stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct InLine {
    pub(super) place: Place,
    pub(super) apid: Apid,
    pub(super) stands: Stands,
}

/// How one of the line stands.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Stands {
    /// It takes turns.
    Turn(Turn),
    /// It is on its way to its place.
    Comes,
    /// It has waited so long for a place.
    Waits(Duration),
}
