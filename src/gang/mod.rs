//! When: who competes with whom, who runs together, and in which slices.
//!
//! # The problem
//!
//! More applications are placed than processors can run at once. The PEs of one of them talk to each
//! other all the time, so that it makes progress only while all of them run: it is stopped and
//! started as a whole, a *gang*. Two gangs *compete* when they share a processor. Stopping one that
//! competes with nobody would be waste; running two that do at once would be worse.
//!
//! # The approach
//!
//! 1. [`competition`]: a graph of who competes with whom, kept up to date as gangs come and go. Its
//!    connected components have nothing to do with each other: each rotates by itself, and a change
//!    concerns one of them.
//! 2. [`party`]: the gangs that run in one slice. The one whose turn it is leads; then everyone else
//!    in order of turn who competes with nobody in it, and whose memory fits beside theirs, is
//!    promoted into it.
//! 3. [`levels`]: whose turn it is. Who has had least comes first, in a few levels. Who runs is one question
//!    with *where*: [`crate::placement::packing`] gives each in this order its place and turn. What each
//!    has had is on its account ([`accounts`], [`shares`]).
//! 4. [`plan`]: the coming parties with their lengths, as nodes follow them by their own clocks. Where a
//!    start costs little, those who wait have a part of each slice in turns ([`floor`]). A plan repeats when
//!    nobody renews it.
//!
//! What this and each of its numbers is worth:
//!
//! | mean response s / mean bounded slowdown | KTH-SP2 | SDSC-SP2 | LANL-CM5 | Sandia-Ross |
//! | --- | --- | --- | --- | --- |
//! | EASY backfilling, by users' estimates | 15,693 / 92.7 | 27,907 / 87.8 | 9,730 / 61.6 | 44,973 / 10.7 |
//! | least attained service | 12,323 / 1.43 | 17,386 / 1.94 | 6,613 / 1.82 | 44,333 / 1.20 |
//!
//! (gangs moved and rolled out, eight residents, a start 5 s, a move 30 s; benches/policy.md has one change at
//! a time.)
//!
//! ```text
//!   processor   0 1 2 3 4 5
//!   gangs       A A A A . .       B B . . . .       . . . . C C       . . D D D D
//!
//!   compete     A-B, A-D, C-D                       one component
//!   slice 1     A A A A C C                         A leads, C is promoted
//!   slice 2     B B D D D D                         B leads, D competes with C only
//!   (and again)
//! ```

use serde::{Deserialize, Serialize};

pub mod accounts;
pub mod competition;
pub mod dues;
pub mod floor;
pub mod levels;
pub mod member_index;
pub mod party;
pub mod plan;
pub mod shares;

/// What of a placed application decides whom it may run with. Nodes and processors by their place on
/// the line of the machine ([`crate::occupancy`]).
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Gang {
    /// Its processors, ascending.
    pub processors: Vec<u32>,
    /// Bytes of memory on each of its nodes, these ascending.
    pub memory: Vec<(u32, u64)>,
}
