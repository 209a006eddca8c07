//! What a person reads at a terminal: tables, and how text gets to stdout.

pub mod stdout;
pub mod table;
