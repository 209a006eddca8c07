//! What a person reads: tables, pages in a terminal, pictures, and how text gets to stdout.

pub mod live;
pub mod stdout;
pub mod svg;
pub mod table;
