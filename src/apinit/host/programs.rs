//! Copies of programs in the memory of this host: made from what another host or a front end sends, executed here, and
//! passed on while they come.
//!
//! # The problem
//! Where an application runs on a thousand hosts, each of them would read its program from one file server. A host may
//! not have it at all. And a path that a user names is nothing that root may open, or mount over.
//!
//! # The approach
//! A tmpfs of apinit's own, in which each application has a folder, and there is a file for each of its programs, with the
//! program's own name. An apinit asks for bytes as soon as its application wants them, and whoever asks it has those that
//! are there, and then the next ones: a program goes through a tree of hosts as through a pipe. The file becomes a program
//! once its SHA-256 is the one that the front end has made.
//!
//! **Rights.** The folder can be searched by everybody and listed by nobody. A file is root's, and an access control list
//! lets the owner of the application read and execute it: he can't make it longer, and has no folder in which he could
//! make others. An apinit that is not root's has no users but its own.
//!
//! **Bounds.** The variables program_memory_max and program_memory_user_max. What has no room is not kept, but read to
//! its end: its digest tells whether the file at its path is the same.

mod places;
mod store;
mod takes;

pub(super) use places::Places;
pub(super) use store::{Copy, Room, Store};
pub(super) use takes::{give, take, taken_from_front};

#[cfg(test)]
mod tests;
