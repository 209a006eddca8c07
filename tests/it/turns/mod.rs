//! Gangs take turns: the real apinit with real PEs, psched being played.

mod exclusive;
mod lives;
mod rig;
mod signals;
