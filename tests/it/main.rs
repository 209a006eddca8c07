//! What a user or an administrator would see, on real processes.

mod shepherd;
