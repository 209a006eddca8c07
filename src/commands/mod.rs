//! The commands beside aprun: apstat, apkill, cpr, psmgr, psview, snflv, `psched backup` and `restore`,
//! `psched certs`, `psched check`, `psched replay`, `psched start`, `psched simulate` and `psched torture`.

pub mod apkill;
pub mod apstat;
pub mod backup;
pub mod certs;
pub mod check;
pub mod cpr;
pub mod named;
mod other_schedulers;
mod pages;
pub mod psmgr;
pub mod psview;
pub(crate) mod question;
pub mod replay;
pub mod simulate;
pub mod snflv;
pub mod start;
pub mod torture;
pub mod worlds;

pub use question::{number, parsed};
