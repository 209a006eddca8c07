//! The operating-system seam: the only room with `unsafe`, each use with its reason.
//!
//! It lies below every impure room, because aprun, apinit, apshepherd and the daemon all need a
//! system call that no safe crate has. What belongs to a private instance ([`instance`]) is here
//! for the same reason: `psched start`, psched and apinit share it. (`own_users_only.rs` is a part of
//! the program appmix alone.)

#![allow(unsafe_code)]

pub mod access;
pub mod acting;
pub mod affinity;
mod capabilities;
pub mod claims;
mod clone;
pub mod dispositions;
pub mod environ;
pub mod fork;
pub mod host;
pub mod inherit;
pub mod instance;
pub mod mounts;
pub mod name;
pub mod new_file;
pub mod notify;
pub mod nudge;
pub mod peer;
pub mod placing;
pub mod pmix;
pub mod pmix_folder;
pub mod realtime;
pub mod regular;
pub mod reset_inherited;
pub mod rights;
pub mod signal_helper;
pub mod space;
pub mod spawn;
pub mod standard;
pub mod trust;
pub mod untraced;
pub mod wait;
pub mod watch;
