//! Memory that goes out, to swap or into a checkpoint, while its gang keeps its place: what nodes can do.
//!
//! # Problem
//! `max_resident` bounds the gangs whose memory a node has to hold. One that stands for hours and whose
//! memory is out needs none of it, and yet nobody new was placed where as many sat as might be resident.
//!
//! # Approach
//! Where all nodes of a domain can bring memory out ([`Hello::roll_out`]), a newcomer is placed wherever a
//! decision finds it a place, up to [`SITS_MAX`] on a processor; and of those who stand there the one of the
//! highest level goes out, as long as more are resident than may be, or as those who are have more memory than
//! the node has. It keeps its place:
//!
//! ```text
//!   decision   3 is placed where 1 and 2 sit (max_resident 2)    RollOut 1    1 counts as out
//!   nodes      RolledOut 1: 612M                                 or why not: it counts as resident
//!   decision   1 starts                                          its nodes bring it in before it runs
//! ```
//!
//! The command is a hint. A node obeys it once the gang stands, and brings memory in before any turn, whoever
//! has brought it out: so one that is lost, said twice or said by a psched that has been killed since costs time,
//! and never a wrong turn. Nothing of it is on record. A psched that has been started again takes all for
//! resident and says it again; after a break of the link it is said again.
//!
//! By a checkpoint nobody's goes who is on several apinits: that is known beforehand. And on a node that takes
//! memory out so, nobody else runs on the processors of one that goes until it has gone: there is no kernel that
//! would make room meanwhile.
//!
//! Where somebody's memory does not go (it is locked, or swap is full) nobody is placed beyond `max_resident`
//! while that one stands, and `apstat --why` says so ([`Scheduler::no_roll_out`]). The same where a node can't,
//! with the reason.
//!
//! [`Hello::roll_out`]: crate::apteam::protocol::node::Hello::roll_out
//! [`SITS_MAX`]: crate::placement::packing::SITS_MAX

use super::rolled::Rolled;
use crate::apteam::Apid;
use crate::apteam::protocol::node::{Command, RollOut};
use crate::apteam::record::{Apteam, State};
use crate::machine::Nid;
use crate::psched::decide::domain::DomainId;
use crate::psched::decide::settings::RollsOut;
use crate::psched::decide::{Effect, LinkId, Now, Scheduler};
use crate::psched::reason::NoRollOut;
use crate::variables::units::about;
use std::collections::{BTreeMap, BTreeSet};

/// Reasons that are told, of many.
const REASONS: usize = 3;

impl Scheduler {
    /// Whether memory goes out in a domain where more sit than may be resident.
    pub(in crate::psched::decide) fn rolls_out(&self, domain: DomainId) -> bool {
        match self.settings.abilities.roll_out {
            RollsOut::Never => false,
            RollsOut::Anywhere => true,
            RollsOut::AtHome => {
                self.unable_in(domain).next().is_none() && self.stays_in(domain).is_none()
            }
        }
    }

    /// Notes whether an apinit can bring memory to swap, which may have changed.
    pub(in crate::psched::decide) fn note_roll_out(&mut self, link: LinkId) {
        let can = self.links.get(&link).is_none_or(|link| link.hello.roll_out.obstacle().is_none());
        let changed = match can {
            true => self.unable.remove(&link),
            false => self.unable.insert(link),
        };
        if changed {
            self.want_decisions();
        }
    }

    /// The apinits with nodes of a domain that can't.
    fn unable_in(&self, domain: DomainId) -> impl Iterator<Item = LinkId> {
        let regions = self.domain(domain).regions;
        let of = move |nid: &Nid| {
            let node = self.machine.nodes.get(nid);
            node.is_some_and(|node| regions.has(self.machine.region_of(node)))
        };
        let has = move |link: &&LinkId| {
            self.links.get(link).is_some_and(|link| link.hello.nids.iter().any(of))
        };
        self.unable.iter().filter(has).copied()
    }

    /// One of a domain whose memory did not go, and why.
    fn stays_in(&self, domain: DomainId) -> Option<(Apid, &str)> {
        let rolled = self.schedule.decision.rolled.iter();
        let stays = rolled.filter_map(|(apid, rolled)| match rolled {
            Rolled::Stays(why) => Some((*apid, &why[..])),
            _ => None,
        });
        stays.into_iter().find(|(apid, _)| self.is_of(*apid, domain))
    }

    /// Why nobody's memory goes out on these nodes of a domain; none: it does, or nobody's is asked for at all.
    pub(in crate::psched::decide) fn no_roll_out(
        &self,
        domain: DomainId,
        nids: &[Nid],
    ) -> Option<NoRollOut> {
        if self.settings.abilities.roll_out != RollsOut::AtHome {
            return None;
        }
        let mut reasons: BTreeMap<&str, Vec<Nid>> = BTreeMap::new();
        let mut elsewhere: BTreeMap<&str, Vec<Nid>> = BTreeMap::new();
        for link in self.unable_in(domain) {
            let Some(hello) = self.links.get(&link).map(|link| &link.hello) else { continue };
            let Some(why) = hello.roll_out.obstacle() else { continue };
            let here = || hello.nids.iter().filter(|nid| nids.contains(nid)).copied();
            match here().next() {
                Some(_) => reasons.entry(why).or_default().extend(here()),
                None => elsewhere.entry(why).or_default().extend(&hello.nids),
            }
        }
        let reasons = if reasons.is_empty() { elsewhere } else { reasons };
        let all = reasons.into_iter().take(REASONS).map(|(why, mut nids)| {
            nids.sort_unstable();
            (why.to_owned(), nids)
        });
        let all: Vec<(String, Vec<Nid>)> = all.collect();
        if !all.is_empty() {
            return Some(NoRollOut::Nodes(all));
        }
        let (apid, why) = self.stays_in(domain)?;
        Some(NoRollOut::Stays(self.app_name(apid), why.to_owned()))
    }

    /// Whether an apinit can bring memory to swap, in a word or two for a table; empty: it is not there.
    pub(in crate::psched::decide) fn roll_out_of(&self, nid: Nid) -> String {
        let link = self.offered.get(&nid).and_then(|link| self.links.get(link));
        link.map_or_else(String::new, |link| match link.hello.roll_out.obstacle() {
            Some(why) => why.to_owned(),
            None if link.hello.roll_out == RollOut::ByCheckpoint => "by checkpoint".to_owned(),
            None => "yes".to_owned(),
        })
    }

    /// How many bytes of it are in swap, as far as its nodes have said; none: it is resident.
    pub fn in_swap(&self, apid: Apid) -> Option<u64> {
        match self.schedule.decision.rolled.get(&apid) {
            Some(Rolled::Out(told)) => Some(told.values().fold(0, |a, b| a.saturating_add(*b))),
            _ => None,
        }
    }

    /// Where the memory of one goes, as what follows "goes".
    pub(in crate::psched::decide) fn way_out(&self, team: &Apteam) -> &'static str {
        let first = self.links_of(team).into_iter().next();
        let link = first.and_then(|link| self.links.get(&link));
        link.map_or("to swap", |link| link.hello.roll_out.way())
    }

    /// Whether it shares its processors with nobody, until it ends.
    pub fn sits_alone(&self, apid: Apid) -> bool {
        self.occupancy.sits_alone(apid)
    }

    /// Whether it runs by the last decision.
    #[cfg(test)]
    pub(in crate::psched::decide) fn runs_by_decision(&self, apid: Apid) -> bool {
        self.schedule.decision.party.contains(&apid)
    }

    /// These start: what of them is out comes in, and who stayed may go another time.
    pub(super) fn come_home(&mut self, started: &[Apid]) {
        for apid in started {
            let rolled = &mut self.schedule.decision.rolled;
            match rolled.remove(apid) {
                Some(Rolled::Out(_)) => drop(rolled.insert(*apid, Rolled::In)),
                // There is room for more again.
                Some(Rolled::Stays(_)) => self.want_decision_for(*apid),
                Some(Rolled::In) | None => {}
            }
            self.note_if_it_stays(*apid);
        }
    }

    /// One whose memory would go out by a checkpoint, and that can't be checkpointed by its apinits alone, stays.
    fn note_if_it_stays(&mut self, apid: Apid) {
        let Some(team) = self.teams.get(&apid).filter(|team| team.hosts.len() > 1) else { return };
        let by_checkpoint = |link: LinkId| {
            let link = self.links.get(&link);
            link.is_some_and(|link| link.hello.roll_out == RollOut::ByCheckpoint)
        };
        if self.links_of(team).into_iter().any(by_checkpoint) {
            let why = "it is on several apinits, and there is no swap".to_owned();
            self.schedule.decision.rolled.insert(apid, Rolled::Stays(why));
        }
    }

    /// Where more are resident than may be now that these have come, or have more memory than there is: who
    /// stands there goes out, of the highest level first.
    pub(super) fn roll_out_at_home(&mut self, now: Now, new: &[Apid], out: &mut Vec<Effect>) {
        let Some(first) = new.first() else { return };
        new.iter().for_each(|apid| self.note_if_it_stays(*apid));
        // (They are of one domain.)
        let most = self.domain(self.domain_of(*first)).turns.max_resident;
        let nodes: BTreeSet<usize> = {
            let notable = self.occupancy.notable();
            let held = new.iter().flat_map(|apid| self.occupancy.held(*apid)).map(|held| held.at);
            held.filter(|at| notable.full.contains(at) || notable.tight.contains(at)).collect()
        };
        for at in nodes {
            // (Each turn one more is out.)
            while let Some(apid) = self.surplus(at, most, new, now) {
                self.roll_out_from_home(apid, out);
            }
        }
    }

    /// Who is to go out on a node, if somebody is.
    fn surplus(&self, at: usize, most: u32, new: &[Apid], now: Now) -> Option<Apid> {
        let mut residents = vec![0u32; self.occupancy.residents(at).len()];
        let mut bytes = 0u64;
        let mut standing = Vec::new();
        for apid in self.occupancy.holders_at(at) {
            let held = self.occupancy.held(*apid).iter().find(|held| held.at == at);
            let Some(held) = held.filter(|_| !self.schedule.decision.is_rolled_out(*apid)) else {
                continue;
            };
            bytes = bytes.saturating_add(held.memory);
            for p in &held.processors {
                residents[*p as usize] += 1;
            }
            if let Some(levels) = self.schedule.levels.with(*apid)
                && !new.contains(apid)
                && self.may_go_out(*apid)
            {
                standing.push((levels.stands(*apid, now.mono_ns), *apid, held));
            }
        }
        let memory = self.occupancy.line()[at].memory;
        let tight = memory > 0 && bytes > memory;
        let goes = |((level, _), _, held): &((usize, u64), Apid, &crate::occupancy::Held)| {
            // (At the first level turns are short: what went would come in again at once.)
            tight && *level > 0 || held.processors.iter().any(|p| residents[*p as usize] > most)
        };
        standing.into_iter().filter(goes).max_by_key(|one| (one.0, one.1)).map(|one| one.1)
    }

    /// Whether it stands, and its memory can be asked for.
    fn may_go_out(&self, apid: Apid) -> bool {
        let decision = &self.schedule.decision;
        self.schedule.levels.with(apid).is_some_and(|levels| !levels.runs(apid))
            && !decision.away.contains(&apid)
            && !decision.party.contains(&apid)
            && !matches!(decision.rolled.get(&apid), Some(Rolled::Stays(_)))
            && !self.occupancy.sits_alone(apid)
            && self.teams.get(&apid).is_some_and(|team| {
                team.state == State::Running && team.doomed.is_none() && team.end.is_none()
            })
    }

    fn roll_out_from_home(&mut self, apid: Apid, out: &mut Vec<Effect>) {
        self.schedule.decision.rolled.insert(apid, Rolled::Out(BTreeMap::new()));
        self.schedule.concern(apid);
        out.push(Effect::Log { apid, name: "rolling-out", detail: String::new() });
        let Some(team) = self.teams.get(&apid) else { return };
        let key = team.key();
        for link in self.links_of(team) {
            out.push(Effect::Command { link, command: Command::RollOut(key) });
        }
    }

    /// Tells an apinit that has just come whose memory is to be out.
    pub(in crate::psched::decide) fn say_roll_out(
        &self,
        apid: Apid,
        link: LinkId,
        out: &mut Vec<Effect>,
    ) {
        if let Some(team) =
            self.teams.get(&apid).filter(|_| self.schedule.decision.is_rolled_out(apid))
        {
            out.push(Effect::Command { link, command: Command::RollOut(team.key()) });
        }
    }

    /// How it went on an apinit. What has been started meanwhile comes in, whatever went.
    pub(in crate::psched::decide) fn rolled_out(
        &mut self,
        link: LinkId,
        apid: Apid,
        bytes: u64,
        why: Option<String>,
        out: &mut Vec<Effect>,
    ) {
        let hello = self.links.get(&link).map(|link| &link.hello);
        let lowest = hello.and_then(|hello| hello.nids.iter().min().copied());
        let place = hello.map_or("in swap", |hello| hello.roll_out.place());
        let rolled = self.schedule.decision.rolled.get_mut(&apid);
        let (Some(lowest), Some(Rolled::Out(told))) = (lowest, rolled) else { return };
        told.insert(lowest, bytes);
        let (all, parts) = (told.values().fold(0u64, |a, b| a.saturating_add(*b)), told.len());
        if let Some(why) = why {
            let detail = match all {
                0 => why.clone(),
                some => format!("{why}; {} of it is {place}", about(some)),
            };
            out.push(Effect::Log { apid, name: "not-rolled-out", detail });
            self.schedule.decision.rolled.insert(apid, Rolled::Stays(why));
        } else if self.teams.get(&apid).is_some_and(|team| parts >= team.hosts.len()) {
            let detail = format!("{} {place}", about(all));
            out.push(Effect::Log { apid, name: "rolled-out", detail });
        }
    }

    /// These have been let run, with so much of their memory brought in before.
    pub(in crate::psched::decide) fn brought_in(
        &mut self,
        started: &[Apid],
        bytes: u64,
        out: &mut Vec<Effect>,
    ) {
        for apid in started {
            let rolled = &mut self.schedule.decision.rolled;
            if rolled.get(apid) == Some(&Rolled::In) {
                rolled.remove(apid);
                // (Where little had gone nothing is waited for.)
                let detail = match bytes {
                    0 => String::new(),
                    bytes => format!("{} brought in", about(bytes)),
                };
                out.push(Effect::Log { apid: *apid, name: "rolled-in", detail });
            }
        }
    }
}
