//! The commands: aprun, apstat, apkill, and `psched start`.

pub mod apkill;
pub mod aprun;
pub mod apstat;
pub mod start;
