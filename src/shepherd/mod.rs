//! (empty)

pub mod mapping;
