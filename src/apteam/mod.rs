//! What runs: applications, their shapes, placement lists and ends, as plain data.
//!
//! An *application* is one parallel program; its *apteam* is the record that psched creates and
//! destroys. Everything about it that crosses a wall of the house is here: the record itself
//! ([`record`]), what is asked for ([`posting`], [`shape`]), where it goes ([`place`]), what is to be executed
//! ([`launch`]), on which nodes it is to be ([`choice`]) and how many PEs on each ([`layout`]), how it is bound to processors
//! ([`binding`]) and may share them ([`oversubscribe`]), within which bounds ([`bounds`]), how it saves itself ([`saving`]), how it ends ([`ending`]), whose fault a failed launch is ([`fault`]), what
//! administrators change ([`change`]), and the messages that the processes exchange ([`protocol`]).

pub mod binding;
pub mod bounds;
pub mod change;
pub mod choice;
pub mod ending;
pub mod fault;
mod ids;
pub mod launch;
pub mod launcher_variables;
pub mod layout;
pub mod library_variables;
pub mod migration_blocker;
pub mod oversubscribe;
pub mod part;
pub mod place;
pub mod posting;
pub mod protocol;
pub mod record;
pub mod saving;
pub mod shape;
pub mod signal;
pub mod silence;
pub mod struck_out;

pub use ids::{Apid, Incarnation, Key, SealKey, Ticket};
