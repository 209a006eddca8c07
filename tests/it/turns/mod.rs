//! Gangs take turns: the real apinit with real PEs, psched being played; in [`whole`] it is real too.

mod exclusive;
mod lives;
mod rig;
mod signals;
mod whole;
