//! Gangs take turns: the real apinit with real PEs, psched being played; in [`whole`], [`alone`] and [`crowd`] it is
//! real too.

mod alone;
mod crowd;
mod exclusive;
mod lives;
pub mod rig;
mod signals;
mod whole;
