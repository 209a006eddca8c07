//! Why there is no plan, as data and in words.

use super::gate::{FAMILY, Hindrance};
use crate::apteam::Apid;
use crate::apteam::posting::Explanation;
use crate::machine::{Nid, format_nids};
use crate::placement::explain::named;
use crate::variables::raise;
use crate::variables::units::format_thousandths;
use std::fmt;

/// Applications that a sentence names before it counts the others.
const NAMED_MAX: usize = 4;

/// Why nobody is moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Migration is switched off.
    Disabled,
    /// The application that waits is too narrow to have others moved.
    Narrow {
        /// Its processors.
        processors: u64,
        /// So many it needs.
        width_min: u64,
    },
    /// There are too few processors, wherever the others were.
    TooFew {
        /// Processors that are wanted.
        processors: u64,
        /// Those that there are, on nodes that may be used.
        free: u64,
    },
    /// Nodes that may be used hold no window even with nobody on them.
    NoNodes,
    /// Wherever a window could be, somebody is who can't be moved now.
    Hindered {
        /// The window with the fewest of them.
        window: Vec<Nid>,
        /// Who they are.
        by: Vec<(Apid, Hindrance)>,
    },
    /// Who is in the way would find no place elsewhere, in any way that was looked at.
    Homeless {
        /// The first of them, in the window looked at first.
        apid: Apid,
    },
    /// The cheapest plan moves too many.
    TooMany {
        /// So many.
        moves: usize,
        /// So many may be.
        moves_max: usize,
    },
    /// The cheapest plan is not worth its cost.
    TooDear {
        /// How often its gain outweighs its cost, in thousandths.
        gain: u64,
        /// So often it must.
        least_gain: u64,
    },
    /// Moves wait for each other, and there is no place to go meanwhile.
    Circle {
        /// Those who do, by number.
        apids: Vec<Apid>,
    },
    /// A place is held by somebody who stays, or on a node to which nobody may come.
    Blocked {
        /// Whose place.
        apid: Apid,
        /// The first such node.
        nid: Nid,
    },
}

impl Refusal {
    /// In words; `name` names applications.
    pub fn explain(&self, name: impl Fn(Apid) -> String) -> Explanation {
        let (obstacle, cure): (String, String);
        let mut holder = String::new();
        let lower = |row: &str, value: String| {
            format!("have an administrator lower {FAMILY}{row} ({value}) with psmgr set")
        };
        match self {
            Refusal::Disabled => {
                obstacle = "applications are not moved here".into();
                cure = format!("have an administrator set {FAMILY}enabled to yes with psmgr set");
            }
            Refusal::Narrow { processors, width_min } => {
                obstacle = format!(
                    "others are moved for applications of {width_min} processors or more, \
                     and this one wants {processors}"
                );
                cure = lower("width_min", width_min.to_string());
            }
            Refusal::TooFew { processors, free } => {
                obstacle = format!("{processors} processors are wanted, and there are {free}");
                cure = "it may fit when others have ended".into();
            }
            Refusal::NoNodes => {
                obstacle = "the nodes that are open and kept for nobody hold no window".into();
                cure = "it may fit when more nodes are open".into();
            }
            Refusal::Hindered { window, by } => {
                let nids = format_nids(window.iter().copied());
                obstacle = "no window can be made by moving others".into();
                let all: Vec<String> = by
                    .iter()
                    .take(NAMED_MAX)
                    .map(|(a, why)| format!("{} {why}", name(*a)))
                    .collect();
                let more = by.len().saturating_sub(NAMED_MAX);
                let more = if more > 0 { format!(" and {more} others") } else { String::new() };
                holder = format!("on NIDs {nids}, {}{more}", all.join(", "));
                cure = "it may fit later, or when they have ended".into();
            }
            Refusal::Homeless { apid } => {
                obstacle = "no window can be made by moving others".into();
                holder = format!("{} would find no other place", name(*apid));
                cure = "it may fit when others have ended".into();
            }
            Refusal::TooMany { moves, moves_max } => {
                obstacle = format!("{moves} applications would have to be moved");
                cure = raise(&format!("{FAMILY}moves_max"), moves_max);
            }
            Refusal::TooDear { gain, least_gain } => {
                obstacle = format!(
                    "moving others would gain {} times what it costs",
                    format_thousandths(*gain)
                );
                cure = lower("least_gain", format_thousandths(*least_gain));
            }
            Refusal::Circle { apids } => {
                obstacle = "moves would wait for each other".into();
                holder = format!("{} hold each other's places", named(apids, name));
                cure = "it may go when there is a free place for one of them for a while".into();
            }
            Refusal::Blocked { apid, nid } => {
                obstacle = format!("{} can't come to NID {nid}", name(*apid));
                cure = "it may when who is there has ended, and the node is open".into();
            }
        }
        Explanation { obstacle, holder, cure }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.explain(|apid| format!("application {apid}")).fmt(f)
    }
}

impl std::error::Error for Refusal {}
