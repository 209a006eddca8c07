//! mpirun: aprun under another name; see man/mpirun.1.
#![no_main]

use std::ffi::CStr;

#[path = "../os/launcher.rs"]
mod launcher;

/// What it is called.
const NAME: &CStr = c"mpirun";
/// What it executes, beside it.
const PROGRAM: &CStr = c"aprun";
/// The status where that can't be executed: aprun's own, for 127 says that the application is not found.
const STATUS: i32 = 125;
