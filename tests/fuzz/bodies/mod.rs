//! What is tried and what must hold. Each body makes of its bytes a history, step by step, until they
//! are used up, and panics when something does not hold.

pub mod agent;
pub mod frames;
pub mod manifest;
pub mod pmi;
pub mod postings;
pub mod shepherd;
