//! Both clocks of this host.

use crate::os::host::{monotonic_ns, wall_ns};
use crate::psched::decide::Now;

/// Both clocks, now.
pub fn now() -> Now {
    Now { mono_ns: monotonic_ns(), wall_ns: wall_ns() }
}
