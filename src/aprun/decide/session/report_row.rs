//! How one PE has ended.

use crate::apteam::ending::PeReport;
use crate::machine::Nid;

/// What is known of a PE when its application has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportRow {
    /// The file that it has executed, without its folder.
    pub name: String,
    /// Its rank.
    pub rank: u32,
    /// Its node.
    pub nid: Nid,
    /// How it ended; none: nobody has told.
    pub report: Option<PeReport>,
}
