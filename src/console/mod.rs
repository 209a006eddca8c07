//! What a person reads: tables, pages in a terminal, pictures, and how text gets to stdout and
//! stderr.

pub mod live;
pub mod stderr;
pub mod stdout;
pub mod svg;
pub mod table;
pub mod wrap;
