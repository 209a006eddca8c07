//! The commands: aprun, apstat, apkill, psmgr, `psched start` and `psched torture`.

pub mod apkill;
pub mod aprun;
pub mod apstat;
pub mod psmgr;
pub mod start;
pub mod table;
pub mod torture;
