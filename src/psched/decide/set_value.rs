//! A value of a variable that psmgr has set.

use crate::apteam::change::By;

/// A value that psmgr has set.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SetValue {
    /// The value, as people write it.
    pub value: String,
    /// By whom, and when.
    pub by: By,
}
