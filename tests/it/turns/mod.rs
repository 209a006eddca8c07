//! Gangs take turns: the real apinit with real PEs, psched being played; in [`whole`] and [`alone`] it is
//! real too.

mod alone;
mod exclusive;
mod lives;
mod rig;
mod signals;
mod whole;
