//! What the loop knows of variables.

use crate::apteam::change::By;
use crate::machine::Machine;
use crate::psched::decide::tuning::{Told, Tuning};
use crate::variables::Variables;
use std::sync::Arc;

/// A psched.yaml that was read again.
#[derive(Debug)]
pub struct Reconfigured {
    pub variables: Variables,
    pub machine: Box<Machine>,
    /// Who has had it read; none: psched by itself, which is no change of an administrator's.
    pub by: Option<By>,
    /// What it changes that the loop does not know of.
    pub told: Told,
}

/// What has changed, and why that is not on record yet; or why nothing has.
pub type Answer = Result<(Told, Option<String>), String>;

/// What the loop knows of variables.
pub struct Tuner {
    /// What is set.
    pub tuning: Tuning,
    /// To be called with what is in force, for what is not the scheduler's.
    pub tuned: Arc<dyn Fn(&Variables) + Send + Sync>,
}
