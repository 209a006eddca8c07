//! What is told of nodes: what each has, who is on it, and why it takes nothing more.
//!
//! Two things are told apart that one word would hide. Whether a node *may* take applications is its
//! state; whether it *has room* for another PE is a number beside it: a node with one of its eight
//! processors in use is `busy`, and has room for seven.
//!
//! ```text
//!   NID 4   busy      room 7   applications 12 (8 processors, 1 of them in use)
//!   NID 5   suspect   room 0   seen: its apinit has called once, and does not now
//!   NID 6   suspect   room 0   not seen: no apinit has ever offered it
//! ```

use super::some_of;
use crate::apteam::Apid;
use crate::apteam::change::{Closed, FlavorOrder, NodeOrder};
use crate::apteam::protocol::node::{ClockTold, HostNote, NoteAbout};
use crate::apteam::protocol::turns::StopMeans;
use crate::apteam::record::{Apteam, State};
use crate::apteam::shape::Shape;
use crate::machine::{Flavors, Nid, NidSet, Node};
use crate::occupancy::Terms;
use crate::psched::decide::{Link, LinkId, Scheduler};
use crate::psched::reason::NodeNote;
use crate::variables::Isolation;
use std::collections::BTreeMap;

/// One node, for a table.
#[derive(Clone, Debug)]
pub struct NodeView<'a> {
    /// As configured.
    pub node: &'a Node,
    /// `free`, `busy`, `pending` (all its applications are placed, none launched), `suspect` (no
    /// apinit offers it), `foreign` (its apinit obeys another psched), or closed by an administrator:
    /// `drained`, `draining` while applications are on it, `down`.
    pub state: &'static str,
    /// Why it is not free; empty: it is.
    pub why: NodeNote,
    /// Processors in use.
    pub used: u32,
    /// PEs of one processor each, of applications that name no memory, for which it has processors that
    /// nobody holds.
    pub room: u32,
    /// The most applications on one of its processors.
    pub residents: u32,
    /// Applications on it.
    pub apids: Vec<Apid>,
    /// Their PEs on it.
    pub pes: u32,
    /// What its apinit says it can't do; of a foreign one, why and the cure.
    pub notes: Vec<NodeNote>,
    /// Limits that its apinit enforces.
    pub limits: Vec<String>,
    /// Whether memory can be brought to swap there: `yes`, or what stands in the way; empty: no apinit offers
    /// it.
    pub roll_out: String,
    /// What it knows of psched's clock.
    pub clock: ClockTold,
    /// The host's name.
    pub host: String,
    /// The machine of its host, as `uname -m` has it; empty: its apinit has not told.
    pub arch: String,
    /// What can checkpoint applications there.
    pub back_ends: Vec<String>,
    /// How its apinit stops a gang, and the lowest of that one's NIDs, while one offers it.
    pub apinit: Option<(StopMeans, Nid)>,
    /// Memory in bytes: as configured, else an equal part of what its host has; 0: not known.
    pub memory: u64,
    /// When its apinit went away, on the clock of [`Now::mono_ns`](crate::psched::decide::Now); none: it is
    /// there, or was not since psched was started.
    pub silent_since_ns: Option<u64>,
    /// An apinit has offered it at least once, now or at an earlier time of this store.
    pub seen: bool,
    /// It is in use, and not in the configuration any more.
    pub retired: bool,
    /// Flavors that psched.yaml gives it; none: it does not know it.
    pub configured_flavors: Flavors,
    /// Those that an administrator has given it, if he has.
    pub flavor_order: Option<&'a FlavorOrder>,
}

/// Of a node in use that is of another domain than who sits there.
const LEAVING: &str = "moves to another domain when it is empty; nothing new is placed there";
/// Of a node that is not in the configuration.
const TAKEN_OUT: &str = "no longer in psched.yaml: nothing new is placed there, and psmgr reload takes it away \
                         when it is empty";
/// Of a node that has fewer processors in the configuration than are in use.
const SMALLER: &str = "psched.yaml gives it fewer processors than are in use: nothing new is placed there \
                       until it is empty";

/// Said of a node where `hide_user_bus` is not kept.
const BUS: &str = "applications can reach their users' service managers (systemd): programs \
                   started through these run outside the application, its turns and its limits";

impl Scheduler {
    /// What the apinit on this link has told of psched's clock.
    pub fn clock_of(&self, link: LinkId) -> Option<ClockTold> {
        self.links.get(&link).map(|link| link.clock)
    }

    /// All nodes, by number.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.machine.nodes.values().map(|node| self.node_view(node))
    }

    /// Those of this number or a higher one.
    pub fn nodes_from(&self, nid: Nid) -> impl Iterator<Item = NodeView<'_>> {
        self.machine.nodes.range(nid..).map(|(_, node)| self.node_view(node))
    }

    fn node_view<'a>(&'a self, node: &'a Node) -> NodeView<'a> {
        let apids = self.occupancy.holders(node.nid);
        let teams = || apids.iter().filter_map(|a| self.teams.get(a));
        let link = self.offered.get(&node.nid).and_then(|l| self.links.get(l));
        let closed = self.closed(node.nid);
        let state = state_of(link, closed, teams());
        let (room, residents) = self.room_of(node.nid);
        let retired = self.retired.contains(&node.nid);
        let configured = self.configured.nodes.contains_key(&node.nid);
        let retired = retired.then_some(if configured { SMALLER } else { TAKEN_OUT });
        let configured_flavors = self.configured_flavors(node.nid).unwrap_or_default();
        let flavor_order = self.flavor_order(node.nid);
        let flavors = flavor_order.map(|order| {
            let kept = node.flavors.without(order.flavors);
            let kept = if kept.is_empty() {
                String::new()
            } else {
                format!(" (and {kept}, which no other node has)")
            };
            let configured = match configured_flavors.is_empty() {
                true => String::new(),
                false => format!("; psched.yaml: {configured_flavors}"),
            };
            let text = format!("flavors {order}{kept}{configured}");
            NodeNote::Ordered { text, at_ns: order.by.at_ns }
        });
        let pes = teams().map(|team| team.places.pes_on(node.nid)).sum();
        let used = self.occupancy.used(node.nid);
        let seen = self.boots.contains_key(&node.nid);
        let said = match state {
            "free" if retired.is_some() => retired.unwrap_or_default().to_owned(),
            "free" if self.leaving.contains(&node.nid) => LEAVING.to_owned(),
            "free" => String::new(),
            "busy" => format!("{used} of {} processors are in use", node.processors),
            "pending" => "an application that is placed there is not launched yet".into(),
            "suspect" if link.is_some() => {
                "its apinit has not reported its applications yet".into()
            }
            "suspect" if self.refused.contains_key(&node.nid) => {
                let why = self.refused.get(&node.nid).map(ToString::to_string).unwrap_or_default();
                format!("psched refuses the apinit that offers it: {why}")
            }
            "suspect" if seen => "its apinit does not answer".into(),
            "suspect" => "no apinit has ever offered it".into(),
            _ => closed.map(NodeOrder::to_string).unwrap_or_default(),
        };
        let foreign = link.and_then(|l| Some(l.foreign.as_ref()?.note(&l.hello.nids)));
        let why = match foreign.filter(|_| state == "foreign") {
            Some(foreign) => NodeNote::Foreign(foreign),
            None => NodeNote::Said(said),
        };
        let ordered = |order: &NodeOrder| NodeNote::Ordered {
            text: order.to_string(),
            at_ns: order.by.at_ns,
        };
        let own = closed.map(ordered).into_iter().chain(flavors);
        let ways = retired.into_iter();
        let ways = ways.chain(self.leaving.contains(&node.nid).then_some(LEAVING));
        NodeView {
            node,
            memory: node.memory,
            state,
            why,
            used,
            room,
            residents,
            pes,
            apids,
            notes: link
                .map(|l| self.notes(l))
                .into_iter()
                .flatten()
                .chain(own)
                .chain(self.stuck_on(node.nid))
                .chain(ways.map(|text| NodeNote::Said(text.to_owned())))
                .collect(),
            limits: link.map(|l| l.hello.limits.clone()).unwrap_or_default(),
            back_ends: link.map(|l| l.hello.back_ends.clone()).unwrap_or_default(),
            roll_out: self.roll_out_of(node.nid),
            clock: link.map(|l| l.clock).unwrap_or_default(),
            apinit: link.and_then(|l| Some((l.hello.stops, *l.hello.nids.iter().min()?))),
            host: link.map(|l| l.hello.hostname.clone()).unwrap_or_else(|| node.host.clone()),
            arch: link.map(|l| l.hello.arch.clone()).unwrap_or_default(),
            silent_since_ns: match link {
                Some(_) => None,
                None => self.left_ns.get(&node.nid).copied(),
            },
            seen,
            retired: retired.is_some(),
            configured_flavors,
            flavor_order,
        }
    }

    /// For how many PEs it has processors that nobody holds, and the most residents of one.
    fn room_of(&self, nid: Nid) -> (u32, u32) {
        let line = self.occupancy.line();
        let Ok(at) = line.binary_search_by_key(&nid, |slot| slot.nid) else { return (0, 0) };
        let terms = Terms::of(&Shape { width: 1, depth: 1, per_node: None }, None, 0);
        (self.occupancy.room(at, &terms).pes, self.occupancy.most_residents(at))
    }

    /// What a node can't do, by its own words and by what is configured, and whether it is foreign.
    fn notes(&self, link: &Link) -> Vec<NodeNote> {
        let Link { hello, foreign, .. } = link;
        let configured = match self.settings.isolation {
            Isolation::Off => Some("not isolated: isolation is off"),
            Isolation::Root if self.settings.only_uid.is_some() => {
                Some("not isolated: isolation is root, and apinit does not run as root")
            }
            Isolation::Auto | Isolation::Root => None,
        };
        let told = hello.notes.iter();
        let told = told.filter(|note| match note.about {
            NoteAbout::Host => true,
            NoteAbout::Isolation => configured.is_none(),
            // (A note about an application of other hosts only does not count.)
            NoteAbout::App(key) => {
                !self.teams.contains_key(&key.apid) || self.is_on(key, &NidSet::of(&hello.nids))
            }
        });
        let told = told.map(|HostNote { about, text }| match about {
            NoteAbout::Host | NoteAbout::Isolation => NodeNote::Said(text.clone()),
            NoteAbout::App(key) => NodeNote::Of(*key, self.app_name(key.apid), text.clone()),
        });
        // (A private instance has one user only.)
        let reachable = self.settings.only_uid.is_none()
            && (self.settings.user_bus || self.settings.isolation == Isolation::Off);
        let bus = reachable.then_some(BUS);
        let own = configured.into_iter().chain(bus).map(|text| NodeNote::Said(text.to_owned()));
        let foreign = foreign.as_ref().map(|f| NodeNote::Foreign(f.note(&hello.nids)));
        told.chain(own).chain(foreign).collect()
    }

    /// Processes that outlive their KILL on the host whose first node of the application this is.
    fn stuck_on(&self, nid: Nid) -> impl Iterator<Item = NodeNote> {
        let of = move |(apid, nodes): (&Apid, &BTreeMap<Nid, Vec<String>>)| {
            let some = some_of(nodes.get(&nid)?.iter()).join("; ");
            (!some.is_empty()).then(|| NodeNote::Stuck(self.app_name(*apid), some))
        };
        self.stuck.iter().filter_map(of)
    }
}

fn state_of<'a>(
    link: Option<&Link>,
    closed: Option<&NodeOrder>,
    mut teams: impl Iterator<Item = &'a Apteam> + Clone,
) -> &'static str {
    let empty = teams.clone().next().is_none();
    if closed.is_some_and(|c| c.closed == Closed::Down) {
        "down"
    } else if link.is_some_and(|l| l.foreign.is_some()) {
        "foreign"
    } else if closed.is_some() && empty {
        "drained"
    } else if !link.is_some_and(|l| l.known) {
        "suspect"
    } else if closed.is_some() {
        "draining"
    } else if empty {
        "free"
    } else if teams.all(|t| matches!(t.state, State::Placed | State::TakingBack)) {
        "pending"
    } else {
        "busy"
    }
}
