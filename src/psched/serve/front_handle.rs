//! What is kept of the process of a front end.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// By which the process of a front end is known.
#[derive(Debug)]
pub struct FrontHandle {
    /// None: it is on another host, whose apinit watches it.
    pub pidfd: Option<Arc<OwnedFd>>,
    /// The user, if the front end asks for SIGUSR1.
    pub signal_as: Option<u32>,
}
