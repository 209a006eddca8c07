//! psmgr: what administrators do with a live machine.
#![no_main]

use std::ffi::CStr;

#[path = "../os/launcher.rs"]
mod launcher;

/// What it is called.
const NAME: &CStr = c"psmgr";
/// What it executes, beside it.
const PROGRAM: &CStr = c"psched-commands";
/// The status where that can't be executed.
const STATUS: i32 = 127;
