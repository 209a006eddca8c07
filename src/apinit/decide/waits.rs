//! How long an apinit waits for what.

use std::time::Duration;

/// How long a launch waits for its placement to come from psched.
pub const LAUNCH_WAIT: Duration = Duration::from_secs(10);

/// An end is reported again after this long, until psched acknowledges it.
pub const REPORT_AGAIN: Duration = Duration::from_secs(1);

/// How long a front end that can't be watched may stay away, and how long another host may.
pub const AWAY_MAX: Duration = Duration::from_secs(10);

/// How long a finished application is kept for a front end that is away and may resume.
pub const LINGER: Duration = Duration::from_secs(30);

/// So long after the time of an application's KILL apinit kills what its shepherd has not.
pub const BACKSTOP: Duration = Duration::from_secs(5);

/// And again, as long as it is not over.
pub const BACKSTOP_AGAIN: Duration = Duration::from_secs(30);

/// Between two attempts to reach another host's apinit: at first, and at most. The longer it has
/// not been reached, the longer is this time.
pub const PEER_AGAIN: Duration = Duration::from_millis(250);
pub const PEER_AGAIN_MAX: Duration = Duration::from_secs(2);

/// Hosts that say a complete barrier again within this time are answered together.
pub const BARRIER_AGAIN: Duration = Duration::from_millis(100);

/// A host of an application that has been lost for so long does not answer, as its user is told.
pub const SILENT_AFTER: Duration = Duration::from_secs(3);

/// Between two messages about hosts that do not answer.
pub const SILENT_PAUSE: Duration = Duration::from_secs(10);
