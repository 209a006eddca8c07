//! The commands: aprun, apstat, apkill, psmgr, psview, `psched start` and `psched torture`.

pub mod apkill;
pub mod aprun;
pub mod apstat;
pub mod psmgr;
pub mod psview;
mod question;
pub mod start;
pub mod table;
pub mod torture;
