//! What apstat and its like are told: reading only.

use super::postings::shape_text;
use super::{Link, Scheduler};
use crate::apteam::Apid;
use crate::apteam::change::{Closed, NodeOrder};
use crate::apteam::posting::Explanation;
use crate::apteam::record::{Apteam, State};
use crate::apteam::talk::turns::StopMeans;
use crate::machine::{Nid, Node, format_nids};
use crate::placement;
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
    /// Processors in use.
    pub used: u32,
    /// Applications on it.
    pub apids: Vec<Apid>,
    /// Their PEs on it.
    pub pes: u32,
    /// What its apinit says it can't do; of a foreign one, why and the cure.
    pub notes: Vec<String>,
    /// Limits that its apinit enforces.
    pub limits: Vec<String>,
    /// The host's name.
    pub host: String,
    /// How its apinit stops a gang, and the lowest of that one's NIDs, while one offers it.
    pub apinit: Option<(StopMeans, Nid)>,
    /// Memory in bytes: as configured, else an equal part of what its host has; 0: not known.
    pub memory: u64,
}

/// Of a node that is in use, and not in the configuration.
const RETIRED: &str = "not in psched.yaml any more, or with fewer processors than are in use: \
                       nothing new is placed there";

impl Scheduler {
    /// The application that was made of this posting, unless it has ended.
    pub fn requested(&self, request_id: &[u8; 16]) -> Option<Apid> {
        self.requests.get(request_id).copied()
    }

    /// Applications that have not ended, by number.
    pub fn teams(&self) -> impl Iterator<Item = &Apteam> {
        self.teams.values()
    }

    /// One of them.
    pub fn team(&self, apid: Apid) -> Option<&Apteam> {
        self.teams.get(&apid)
    }

    /// All nodes, by number.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.machine.nodes.values().map(|node| {
            let apids = self.occupancy.holders(node.nid);
            let teams = || apids.iter().filter_map(|a| self.teams.get(a));
            let link = self.offered.get(&node.nid).and_then(|l| self.links.get(l));
            let closed = self.closed(node.nid);
            let state = if closed.is_some_and(|c| c.closed == Closed::Down) {
                "down"
            } else if link.is_some_and(|l| l.foreign.is_some()) {
                "foreign"
            } else if closed.is_some() && apids.is_empty() {
                "drained"
            } else if !link.is_some_and(|l| l.known) {
                "suspect"
            } else if closed.is_some() {
                "draining"
            } else if apids.is_empty() {
                "free"
            } else if teams().all(|t| matches!(t.state, State::Placed | State::TakingBack)) {
                "pending"
            } else {
                "busy"
            };
            let pes = teams()
                .flat_map(|t| t.places.0.iter())
                .filter(|p| p.nid == node.nid)
                .map(|p| p.pes)
                .sum();
            let told = link.map_or(0, |l| l.hello.memory / l.hello.nids.len().max(1) as u64);
            NodeView {
                node,
                memory: if node.memory > 0 { node.memory } else { told },
                state,
                used: self.occupancy.used(node.nid),
                pes,
                apids,
                notes: link
                    .map(|l| self.notes(l))
                    .into_iter()
                    .flatten()
                    .chain(closed.map(NodeOrder::to_string))
                    .chain(self.stuck_on(node.nid))
                    .chain(self.retired.contains(&node.nid).then(|| RETIRED.to_owned()))
                    .collect(),
                limits: link.map(|l| l.hello.limits.clone()).unwrap_or_default(),
                apinit: link.and_then(|l| Some((l.hello.stops, *l.hello.nids.iter().min()?))),
                host: link.map(|l| l.hello.hostname.clone()).unwrap_or_else(|| node.host.clone()),
            }
        })
    }

    /// What a node can't do, by its own words and by what is configured, and whether it is foreign.
    fn notes(&self, link: &Link) -> Vec<String> {
        let Link { hello, foreign, .. } = link;
        let foreign = foreign.as_ref().map(|f| f.note(&hello.nids));
        let configured = match self.settings.isolation {
            Isolation::Off => Some("not isolated: isolation is off"),
            Isolation::Root if self.settings.only_uid.is_some() => {
                Some("not isolated: isolation is root, and apinit does not run as root")
            }
            Isolation::Auto | Isolation::Root => None,
        };
        let told =
            hello.notes.iter().filter(|t| configured.is_none() || !t.starts_with("not isolated"));
        told.cloned().chain(configured.map(str::to_owned)).chain(foreign).collect()
    }

    /// Why an application is where it is; the words that placement itself uses.
    pub fn why(&self, apid: Apid) -> Option<Explanation> {
        let team = self.teams.get(&apid)?;
        let plain = |obstacle: String| Explanation { obstacle, ..Explanation::default() };
        let nids = || format_nids(team.places.nids());
        let stuck = self.stuck_of(apid);
        Some(match team.state {
            _ if !stuck.is_empty() => plain(format!("it is being ended, and {stuck}")),
            State::Posted | State::Lapsed | State::Placed | State::Launching | State::Running
                if team.held.is_some() =>
            {
                Self::why_held(team).unwrap_or_default()
            }
            State::Posted => self.why_waiting(team),
            State::Lapsed => Explanation {
                obstacle: format!(
                    "application {apid} lost its place because its aprun did not answer"
                ),
                holder: team
                    .front
                    .map(|f| format!("aprun is process {}", f.pid))
                    .unwrap_or_default(),
                cure: "continue that aprun (kill -CONT), and it waits again".into(),
            },
            State::Placed => {
                plain(format!("it is placed on NIDs {}; its aprun is to launch it", nids()))
            }
            State::TakingBack => Explanation {
                obstacle: format!("its place on NIDs {} is being taken back", nids()),
                ..Explanation::default()
            },
            State::Launching => plain(format!("it is being launched on NIDs {}", nids())),
            State::Running if self.schedule.decision.is_out(apid) => Explanation {
                obstacle: "its memory is out, for others who ran where it sat".into(),
                cure: "it comes in when it has a place".into(),
                ..Explanation::default()
            },
            State::Running => plain(format!("it runs on NIDs {}", nids())),
            State::Ended => plain("it has ended".into()),
        })
    }

    /// Processes that outlive their KILL on the host whose first node of the application this is.
    fn stuck_on(&self, nid: Nid) -> impl Iterator<Item = String> {
        let of = move |(apid, nodes): (&Apid, &BTreeMap<Nid, Vec<String>>)| {
            let all = nodes.get(&nid)?.join("; ");
            (!all.is_empty()).then(|| format!("application {apid} is being ended, and {all}"))
        };
        self.stuck.iter().filter_map(of)
    }

    /// Its processes that outlive their KILL, in words; empty: there are none.
    pub fn stuck_of(&self, apid: Apid) -> String {
        let of_nodes = self.stuck.get(&apid).into_iter().flat_map(BTreeMap::values);
        let all: Vec<&str> = of_nodes.flatten().map(String::as_str).collect();
        all.join("; ")
    }

    /// Why placement said no, in words.
    pub(super) fn explain(&self, no_room: &placement::NoRoom) -> Explanation {
        no_room.explain(|a| self.name_of(a), |nid| self.is_foreign(nid), |nid| self.closed(nid))
    }

    fn why_waiting(&self, team: &Apteam) -> Explanation {
        let kept = self.kept_before(Some(team.apid));
        match placement::why_not(&self.occupancy, &(&team.posting).into(), &kept) {
            Some(no_room) => self.explain(&no_room),
            None if self.decides() => Explanation {
                obstacle: format!(
                    "{} waits for its turn: those run that have had as little time",
                    shape_text(&team.posting.shape)
                ),
                holder: self.who_runs(),
                cure: "it is placed when one of them ends, or has had more".into(),
            },
            None => Explanation {
                obstacle: format!(
                    "{} fits now and is placed next",
                    shape_text(&team.posting.shape)
                ),
                ..Explanation::default()
            },
        }
    }

    /// A few of those who run by the last decision.
    fn who_runs(&self) -> String {
        let party = &self.schedule.decision.party;
        let names: Vec<String> = party.iter().take(3).map(|apid| self.name_of(*apid)).collect();
        let more = if party.len() > names.len() { " and others" } else { "" };
        match names.is_empty() {
            true => String::new(),
            false => format!("{}{more}", names.join(", ")),
        }
    }

    /// How the changes of party went so far.
    pub fn measured(&self) -> &super::Measured {
        &self.measured
    }

    /// The real processors that the apinit of a node may use, by number; empty while none calls.
    pub fn cpus_of(&self, nid: Nid) -> &[u32] {
        self.offered
            .get(&nid)
            .and_then(|l| self.links.get(l))
            .map(|l| l.hello.cpus.as_slice())
            .unwrap_or_default()
    }
}
