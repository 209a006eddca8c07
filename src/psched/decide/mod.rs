//! The scheduler: every decision of psched, as a pure function of what it has been told.
//!
//! # Problem
//! psched must decide where and when applications run while front ends die, nodes vanish and come
//! back, reports arrive late or twice, and psched itself may be killed at any instruction. Locks
//! and callbacks make such a program untestable; so there is one owner of all state and one way in.
//!
//! # Approach
//! [`Scheduler::apply`] takes an [`Event`] and the time, changes the state, and returns what is to
//! be done as [`Effect`]s. Nothing is done here: no clock, no disk, no network. Effects that keep
//! or log are records; the others leave psched only once the records of the same batch, and of all
//! before it, are durable, but for a few ([`Effect::waits_for_nothing`]). So whatever anybody
//! outside has seen is on disk, and after a crash [`Scheduler::restore`] goes on from there.
//!
//! # Example
//! A posting on an idle machine gives, in this order: a saved record (already placed), log lines,
//! the acceptance for aprun, the placement for the node, and the signal to aprun:
//!
//! ```text
//! Posted{..}  ->  Keep(Posted 12: placed on 0-1)  Log(posted)  Log(placed)
//!                 Accept(12)  Command(Place 12.1)  Look(12)
//! ```
//!
//! # Where things are
//! The state is in `scheduler.rs`. What it is told is in `event.rs`, what it wants done in `effect.rs`, what is kept of it in `keeping.rs`, what it obeys in
//! `settings.rs`.
//! Postings, looks and the line are in `postings.rs`; places that are given and taken back in
//! `placed.rs`; ends and kills in `ends.rs`, launches that are tried again in `retries.rs`; links, inventories and reports in `nodes.rs`, and what the word of a host counts for in `words.rs`; nodes that
//! obey another psched in `foreign.rs`, nodes that an administrator has closed in `drain.rs`, or has
//! given flavors in `flavors.rs`; parts of the machine that are scheduled apart in `domains.rs`;
//! applications that he holds in `hold.rs`; the links of an application's nodes in `app_links.rs`; who
//! runs when in `turns.rs`, and who runs where in `decisions.rs`; what users have had in `shares.rs`; how a move
//! goes in `moves.rs`; how the changes went in `measured.rs`, with how much memory applications count in
//! `memory.rs`, and how much of the records they take in `kept.rs`; what `apstat` is told in `view.rs`; for
//! whoever drives a scheduler, the order of records and effects in [`outbox`], and the values of variables in
//! [`tuning`].

mod app_links;
mod compare;
mod counters;
mod decisions;
mod domain;
mod domains;
mod drain;
mod effect;
mod ends;
mod event;
mod flavor_orders;
mod flavors;
mod foreign;
mod hold;
mod invariants;
mod keeping;
mod kept;
mod known_regions;
pub mod login_hosts;
mod measured;
mod memory;
mod move_sequence;
mod moves;
mod nodes;
mod nodes_to;
mod now;
mod origin;
pub mod outbox;
mod placed;
mod postings;
mod purged;
mod reconfigure;
mod regions;
mod restarts;
mod retired;
mod retries;
mod scheduler;
mod set_value;
mod settings;
mod shares;
mod shares_record;
mod stranger;
pub mod tuning;
mod turns;
mod unheard;
mod view;
mod words;

pub use counters::Counters;
pub use effect::{Effect, Looked, News, Refusal};
pub use ends::SIGNALS_MAX;
pub use event::{Event, LinkId, Manage, ReplyId};
pub use foreign::next_of;
pub use keeping::Record;
pub use measured::{Figures, Histogram, Latest, Measured, Partial};
pub use nodes::LACKS;
pub use nodes_to::NodesTo;
pub use now::Now;
pub use origin::Origin;
pub use purged::PurgedEnd;
use scheduler::Link;
pub use scheduler::Scheduler;
pub use set_value::SetValue;
pub use settings::{Abilities, RollsOut, Settings, Turns};
pub use shares::Holding;
pub use shares_record::{HolderUsage, SharesRecord};
pub use turns::{PlanView, Share, Turn};
pub use view::When;
pub use view::nodes::NodeView;

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
