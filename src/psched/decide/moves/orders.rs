//! Moves that an administrator orders: `psmgr migrate` and `psmgr compact`.
//!
//! What is ordered is planned first, and shown with what it costs; a dry run ends there. Then the moves are
//! made one after the other, and the answer comes when the last is over, or one has failed.

use super::{Order, Sequence};
use crate::apteam::Apid;
use crate::apteam::change::Change;
use crate::apteam::place::PlacementList;
use crate::apteam::record::Apteam;
use crate::machine::{Nid, nids_text};
use crate::placement::migration::{
    Move, Mover, Situation, Target, compacted, elsewhere, order as in_order,
};
use crate::psched::decide::{Effect, LinkId, Now, Record, Scheduler};
use crate::psched::reason::Immovable;
use crate::variables::units::{count, format_duration};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Moves of one order: as many as are put in order at once.
const MOVES_MAX: usize = 256;
/// Applications, or apinits, that a sentence names before it counts the others.
const NAMED_MAX: usize = 4;
/// What is compacted where psched.yaml has no regions: all nodes.
const ALL: &str = "all";

impl Scheduler {
    /// psmgr migrate.
    pub(in crate::psched::decide) fn migrate(
        &mut self,
        now: Now,
        order: Order,
        apid: Apid,
        nids: Option<&BTreeSet<Nid>>,
        out: &mut Vec<Effect>,
    ) {
        let planned = self.migration_of(apid, nids).map(|moves| self.in_words_with(moves));
        self.ordered_moves(now, order, planned, &format!("application {apid}"), out);
    }

    /// psmgr compact.
    pub(in crate::psched::decide) fn compact(
        &mut self,
        now: Now,
        order: Order,
        region: &str,
        out: &mut Vec<Effect>,
    ) {
        let planned = self.nodes_of_region(region).and_then(|nodes| {
            let moves = self.compaction_of(&nodes)?;
            Ok(match moves.is_empty() {
                true => (moves, vec![self.why_nothing_moves(&nodes)]),
                false => self.in_words_with(moves),
            })
        });
        self.ordered_moves(now, order, planned, &format!("region {region}"), out);
    }

    /// # Errors
    /// Why it can't be moved there, and what would cure it.
    fn migration_of(&self, apid: Apid, nids: Option<&BTreeSet<Nid>>) -> Result<Vec<Move>, String> {
        let Some(team) = self.teams.get(&apid) else {
            return Err(format!(
                "there is no application {apid}, or it has ended (apstat --history)"
            ));
        };
        if let Some(why) = self.immovable(team) {
            return Err(format!("application {} can't be moved: {why}", self.name_of(apid)));
        }
        let unknown: Vec<Nid> = nids
            .into_iter()
            .flatten()
            .copied()
            .filter(|nid| !self.machine.nodes.contains_key(nid))
            .collect();
        if !unknown.is_empty() {
            return Err(format!(
                "{}: not in psched.yaml (apstat -n lists the nodes)",
                nids_text(unknown)
            ));
        }
        let wanted = team.places.0.len();
        if let Some(nids) = nids.filter(|nids| nids.len() != wanted) {
            return Err(format!(
                "application {} keeps its shape, on {}: {} are {}",
                self.name_of(apid),
                count(wanted, "node"),
                nids_text(nids.iter().copied()),
                nids.len()
            ));
        }
        if nids.is_some_and(|nids| team.places.nids().all(|nid| nids.contains(&nid))) {
            return Err(format!(
                "application {} is there already: on {}",
                self.name_of(apid),
                nids_text(team.places.nids())
            ));
        }
        let here = self.of_its_host(team);
        let movers = self.movers();
        let situation = self.situation(team, &movers);
        match elsewhere(&situation, apid, nids, |nid| here.contains(&nid)) {
            Some(to) => {
                let cost = situation.gate.cost_of_all(&movers[&apid]);
                Ok(vec![Move { apid, to, cost }])
            }
            None => Err(self.no_place(team, nids, &here)),
        }
    }

    /// Nodes of the apinit that has it.
    fn of_its_host(&self, team: &Apteam) -> BTreeSet<Nid> {
        let links = self.links_of(team);
        let of = links.iter().filter_map(|link| self.links.get(link));
        of.flat_map(|link| link.hello.nids.iter().copied()).collect()
    }

    fn no_place(
        &self,
        team: &Apteam,
        nids: Option<&BTreeSet<Nid>>,
        here: &BTreeSet<Nid>,
    ) -> String {
        let name = self.name_of(team.apid);
        let Some(nids) = nids else {
            return format!(
                "application {name} has no other place among its apinit's nodes: it needs {} \
                 neighbouring nodes that are open to it, with processors and memory free \
                 (apstat -n)",
                team.places.0.len()
            );
        };
        let far: Vec<Nid> = nids.iter().copied().filter(|nid| !here.contains(nid)).collect();
        if !far.is_empty() {
            return format!(
                "application {name}: {} another apinit's, and applications move only between \
                 nodes of their own apinit: name nodes of {}",
                match far.len() {
                    1 => format!("{} is", nids_text(far)),
                    _ => format!("{} are", nids_text(far)),
                },
                nids_text(here.iter().copied())
            );
        }
        let holders: BTreeSet<Apid> =
            nids.iter().flat_map(|nid| self.occupancy.holders(*nid)).collect();
        let holders = holders.into_iter().filter(|a| *a != team.apid).map(|a| self.name_of(a));
        let holders: Vec<String> = holders.collect();
        let held = match holders.is_empty() {
            true => String::new(),
            false => format!(" ({})", crate::psched::reason::name_list(holders)),
        };
        format!(
            "application {name} does not fit on {}{held}: it needs neighbouring open nodes in a \
             region whose gate lets it in, with room for its PEs on each (apstat -n)",
            nids_text(nids.iter().copied())
        )
    }

    /// # Errors
    /// Why not, and what would cure it.
    fn compaction_of(&self, nodes: &BTreeSet<Nid>) -> Result<Vec<Move>, String> {
        let movers = self.movers();
        let Some(team) = self.teams.values().find(|team| movers.contains_key(&team.apid)) else {
            return Ok(Vec::new());
        };
        let situation = self.situation(team, &movers);
        let links: BTreeMap<Apid, Vec<LinkId>> = movers
            .keys()
            .filter_map(|apid| Some((*apid, self.links_of(self.teams.get(apid)?))))
            .collect();
        // Each stays with its apinit.
        let may = |apid: Apid, nid: Nid| {
            let link = self.offered.get(&nid);
            link.is_some_and(|link| links.get(&apid).is_some_and(|own| own.contains(link)))
        };
        let targets: Vec<Target> = compacted(&situation, nodes, may);
        if targets.len() > MOVES_MAX {
            return Err(format!(
                "{} applications would move, and one order moves at most {MOVES_MAX}: use psmgr \
                 migrate for single applications",
                targets.len()
            ));
        }
        in_order(&situation, &targets)
            .map_err(|refusal| refusal.explain(|apid| self.name_of(apid)).to_string())
    }

    /// Why nobody goes anywhere on these nodes, in words.
    fn why_nothing_moves(&self, nodes: &BTreeSet<Nid>) -> String {
        let here = |team: &&Apteam| {
            team.state.holds_processors() && team.places.nids().any(|nid| nodes.contains(&nid))
        };
        let here: Vec<&Apteam> = self.teams.values().filter(here).collect();
        let say = |why: &str| format!("nothing to move: {why}");
        if here.is_empty() {
            return say("no application runs there");
        }
        let mut stay: Vec<String> = Vec::new();
        let mut some_can = false;
        for team in &here {
            let why = match self.immovable(team) {
                Some(why) => why,
                None if team.places.nids().all(|nid| nodes.contains(&nid)) => {
                    some_can = true;
                    continue;
                }
                None => Immovable::OtherRegions,
            };
            stay.push(format!("application {}: {why}", self.name_of(team.apid)));
        }
        let mut why = Vec::new();
        if some_can {
            let nobody = "no movable application would find enough free processors at lower NIDs";
            why.push(nobody.to_owned());
        }
        let mut apinits: BTreeMap<LinkId, Vec<Nid>> = BTreeMap::new();
        for nid in nodes {
            if let Some(link) = self.offered.get(nid) {
                apinits.entry(*link).or_default().push(*nid);
            }
        }
        if some_can && apinits.len() > 1 {
            let mut all: Vec<Vec<Nid>> = apinits.into_values().collect();
            all.sort_unstable();
            let more = all.len().saturating_sub(NAMED_MAX);
            let all: Vec<String> = all.into_iter().take(NAMED_MAX).map(nids_text).collect();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let all = all.join("; ");
            why.push(format!("each stays on the nodes of its apinit ({all}{more})"));
        }
        let more = stay.len().saturating_sub(NAMED_MAX);
        stay.truncate(NAMED_MAX);
        if !stay.is_empty() {
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            why.push(format!("some can't be moved ({}{more})", stay.join("; ")));
        }
        say(&why.join(", "))
    }

    /// # Errors
    /// There is no such region.
    fn nodes_of_region(&self, name: &str) -> Result<BTreeSet<Nid>, String> {
        let (regions, nodes) = (&self.machine.regions, &self.machine.nodes);
        if regions.is_empty() && name == ALL {
            return Ok(nodes.keys().copied().collect());
        }
        if let Some(region) = regions.iter().find(|region| region.name == name) {
            let members = nodes.values().filter(|node| region.members.has(node));
            return Ok(members.map(|node| node.nid).collect());
        }
        let names: Vec<&str> = regions.iter().map(|one| one.name.as_str()).collect();
        Err(match names.is_empty() {
            true => format!("there is no region {name}: psched.yaml has none; {ALL} is all nodes"),
            false => format!("there is no region {name}: there are {}", names.join(", ")),
        })
    }

    fn situation<'a>(&'a self, team: &Apteam, movers: &'a BTreeMap<Apid, Mover>) -> Situation<'a> {
        let gate = self.turns_of(team).migration;
        Situation { occupancy: &self.occupancy, movers, gate }
    }

    /// Shows what is planned, and does it.
    fn ordered_moves(
        &mut self,
        now: Now,
        order: Order,
        planned: Result<(Vec<Move>, Vec<String>), String>,
        what: &str,
        out: &mut Vec<Effect>,
    ) {
        let Order { reply, dry_run, by } = order;
        let refuse = |why: String| Effect::Managed { reply, done: Vec::new(), problems: vec![why] };
        let (moves, done) = match planned {
            Ok(planned) => planned,
            Err(why) => return out.push(refuse(why)),
        };
        if dry_run || moves.is_empty() {
            return out.push(Effect::Managed { reply, done, problems: Vec::new() });
        }
        if self.is_moving() {
            let why = "other moves are in progress: try again in a moment";
            return out.push(refuse(why.to_owned()));
        }
        out.push(Effect::Keep(Record::Change(Change {
            by,
            what: what.to_owned(),
            before: String::new(),
            after: done.join("; "),
        })));
        self.begin_moves(now, Sequence::of(moves, reply), out);
    }

    fn in_words_with(&self, moves: Vec<Move>) -> (Vec<Move>, Vec<String>) {
        let words = self.in_words(&moves);
        (moves, words)
    }

    /// A sentence for each move, and one for all.
    fn in_words(&self, moves: &[Move]) -> Vec<String> {
        let mut at: BTreeMap<Apid, PlacementList> = BTreeMap::new();
        let (mut lines, mut work) = (Vec::new(), Duration::ZERO);
        for Move { apid, to, cost } in moves {
            let Some(team) = self.teams.get(apid) else { continue };
            let from = at.insert(*apid, to.clone()).unwrap_or_else(|| team.places.clone());
            lines.push(format!(
                "application {}: {} to {}, {}",
                self.name_of(*apid),
                nids_text(from.nids()),
                nids_text(to.nids()),
                count(team.posting.shape.width as usize, "PE")
            ));
            let processors = to.0.iter().map(|place| place.processors.len()).sum::<usize>();
            work = work
                .saturating_add(cost.saturating_mul(u32::try_from(processors).unwrap_or(u32::MAX)));
        }
        lines.push(format!(
            "{}, estimated with {} of processor time (application.load_balance.move_cost)",
            count(lines.len(), "move"),
            format_duration(rounded(work))
        ));
        lines
    }

    /// What migration is to know of the applications that hold processors.
    fn movers(&self) -> BTreeMap<Apid, Mover> {
        let holds = self.teams.values().filter(|team| team.state.holds_processors());
        let mover = |team: &Apteam| Mover {
            places: team.places.clone(),
            claim: team.into(),
            reach: self.wanted(team).reach,
            bytes: self.occupancy.held(team.apid).iter().map(|held| held.memory).collect(),
            stays: self.immovable(team).is_some(),
        };
        holds.map(|team| (team.apid, mover(team))).collect()
    }
}

/// In whole seconds, where it is any.
fn rounded(time: Duration) -> Duration {
    match time.as_secs() {
        0 => Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        seconds => Duration::from_secs(seconds),
    }
}
