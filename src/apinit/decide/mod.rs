//! What apinit does: `apply(now, event) -> actions`.
//!
//! An apinit stands between psched, which places applications on its nodes; front ends (aprun, or
//! the apinit that is the *head* of an application spread over several), which launch them; and
//! apshepherds, one for each application, which run them. The agent is everything that it
//! decides, with no socket, clock or process: whatever happens comes in as a [`Event`],
//! whatever is to be done goes out as an [`Action`], in the order in which it is to be done.
//!
//! ```text
//!   psched   Place ----------> Placed --- shepherd is made and waits
//!   front    Launch(ticket) -> Launched - HostLaunch to the shepherd, Launch to the other hosts
//!   all      Ready ----------> Running -- Go to everybody
//!   shepherd Ended, groups empty -> Ended - reported each second until psched acknowledges
//!   psched   AcknowledgeEnd -> forgotten
//! ```
//!
//! The head (the apinit of `hosts[0]`, which holds PE 0) is to the other hosts what aprun is to
//! it: it passes the launch on, gathers `Ready`, `BarrierIn` and `Done`, and tells everybody `Go`,
//! `BarrierOut`, signals and ends. All hosts are otherwise alike, and each reports the end of its
//! own part to psched.
//!
//! Safety is local: no launch is given to a shepherd while another application that is not empty
//! has one of its processors; but those that share them all take turns ([`switcher`]).
//!
//! ```
//! # use psched_pure::{apinit::decide::*, machine::Nid};
//! let nids = [Nid(0)].into();
//! let me = Me { nids, uid: 0, cpus: vec![0, 1], numa: [].into(), boot_id: "boot".into() };
//! let mut agent = Agent::new(me, None);
//! let actions = agent.apply(0, Event::Linked(Default::default()));
//! assert!(actions.contains(&Action::Inventory { items: vec![], last_command: 0 }));
//! ```

mod actions;
mod agent;
mod application;
mod arrivals;
mod back;
mod barriers;
mod bounds;
mod branches;
pub mod clock;
mod commands;
mod dumping;
mod dumps;
mod ends;
mod events;
pub mod exchanges;
mod foreign;
mod fronts;
mod kept_output;
mod kept_signals;
mod launching;
mod letters;
pub mod login;
mod memory_out;
mod moves;
mod moving;
mod out_stage;
mod output;
mod peer;
mod peers;
mod programs;
mod rebind;
mod restores;
mod shepherds;
mod signals;
mod silent_peers;
mod stranger;
mod streams;
pub mod switcher;
#[cfg(test)]
pub(in crate::apinit) mod tests;
mod timed;
mod turns;
mod waits;

use crate::variables::units::nanos as ns;
pub use actions::Action;
use actions::Out;
use agent::own_nids;
pub use agent::{Agent, Me};
use application::Front;
pub use back::{Back, CameBack};
pub use branches::branches;
pub use dumping::{DumpWord, NAME_WAIT, PARTS_WAIT};
pub use events::{Conn, Event, Found, NO_CONN, Watch};
pub use rebind::Rebind;
pub use turns::TURN_WAIT;
pub use waits::{
    AWAY_MAX, BACKSTOP, BACKSTOP_AGAIN, BARRIER_AGAIN, LAUNCH_WAIT, LINGER, PEER_AGAIN,
    PEER_AGAIN_MAX, REPORT_AGAIN, SILENT_AFTER, SILENT_PAUSE,
};
