//! What apstat and its like are told: reading only.

pub(super) mod nodes;

use super::domain::DomainId;
use super::postings::HEAD_MAX;
use super::regions::of_shared;
use super::unheard::Unheard;
use super::{LinkId, Scheduler};
use crate::apteam::Apid;
use crate::apteam::change::NodeOrder;
use crate::apteam::posting::{Owner, Posting};
use crate::apteam::record::{Apteam, State};
use crate::machine::{Nid, nids_text};
use crate::occupancy::{Occupancy, Rules};
use crate::placement::packing::SITS_MAX;
use crate::placement::{self, NAMED_MAX, Shut, Wanted, try_place_among};
use crate::psched::reason::{AppName, Full, Obstacle, Reason, There, Wait};
use crate::variables::units::nanos;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of the time at which a posting gets its place.
///
/// Nobody knows when those who hold the processors end, so mostly it is a bound: from then on no newcomer
/// is placed where it could go, and what ends there makes room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Nothing.
    Unknown,
    /// Nodes are kept for it, from now on.
    Kept,
    /// Nodes will be kept for it from then on, in nanoseconds since the epoch.
    KeptAt(u64),
    /// When an administrator releases it.
    Held,
}

/// Processes that outlive their KILL that are named of an application: it may be on a thousand
/// hosts.
const STUCK_SHOWN: usize = 16;

/// The first [`STUCK_SHOWN`] of these texts, and how many there are beside.
fn some_of<'a>(mut texts: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut some: Vec<String> = texts.by_ref().take(STUCK_SHOWN).cloned().collect();
    match texts.count() {
        0 => {}
        others => some.push(format!("{others} more")),
    }
    some
}

impl Scheduler {
    /// The application that was made of this posting, unless it has ended.
    pub fn requested(&self, request_id: &[u8; 16]) -> Option<Apid> {
        self.requests.get(request_id).copied()
    }

    /// Applications that have not ended, by number.
    pub fn teams(&self) -> impl Iterator<Item = &Apteam> {
        self.teams.values()
    }

    /// Those of a higher number.
    pub fn teams_after(&self, apid: Apid) -> impl Iterator<Item = &Apteam> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.teams.range((Excluded(apid), Unbounded)).map(|(_, team)| team)
    }

    /// One of them.
    pub fn team(&self, apid: Apid) -> Option<&Apteam> {
        self.teams.get(&apid)
    }

    /// Why an application is where it is.
    pub fn why(&self, apid: Apid) -> Option<Reason> {
        self.why_and_when(apid).map(|(why, _)| why)
    }

    /// The same, and of a posting what is known of when it gets its place.
    pub fn why_and_when(&self, apid: Apid) -> Option<(Reason, When)> {
        let team = self.teams.get(&apid)?;
        if team.state == State::Posted && team.held.is_none() && self.stuck_of(apid).is_empty() {
            return Some(self.why_waiting(team));
        }
        let held = team.held.is_some() && matches!(team.state, State::Posted | State::Lapsed);
        let when = if held { When::Held } else { When::Unknown };
        Some((self.why_there(team), when))
    }

    /// Nodes that an application has, and whose apinits do not answer any more.
    pub fn away_of(&self, team: &Apteam) -> Vec<Nid> {
        let ran = matches!(team.state, State::Launching | State::Running);
        if !ran || self.left_ns.is_empty() {
            return Vec::new();
        }
        let away = |nid: &Nid| self.left_ns.contains_key(nid) && !self.offered.contains_key(nid);
        team.places.nids().filter(away).collect()
    }

    /// Of one that does not wait for its place in line.
    fn why_there(&self, team: &Apteam) -> Reason {
        let apid = team.apid;
        let nids = || team.places.nids().collect();
        let stuck = self.stuck_said(apid);
        if !stuck.is_empty() {
            return There::Stuck(stuck).into();
        }
        let away = self.away_of(team);
        if !away.is_empty() {
            let hosts = away.iter().filter_map(|nid| self.machine.nodes.get(nid));
            let hosts: BTreeSet<&String> =
                hosts.map(|node| &node.host).filter(|host| !host.is_empty()).collect();
            let hosts = hosts.into_iter().cloned().collect();
            let refused: BTreeSet<&Unheard> =
                away.iter().filter_map(|nid| self.refused.get(nid)).collect();
            let revoked = refused.iter().filter_map(|unheard| match unheard {
                Unheard::Revoked(host) => Some(host.clone()),
                Unheard::Unfit(_) => None,
            });
            let revoked = revoked.collect();
            let mut why: Vec<String> = refused.iter().map(ToString::to_string).collect();
            let silent: Vec<Nid> =
                away.iter().copied().filter(|nid| !self.refused.contains_key(nid)).collect();
            if !why.is_empty() && !silent.is_empty() {
                why.push(format!("the apinit of {} does not answer", nids_text(silent)));
            }
            return There::Away { nids: away, hosts, why, revoked }.into();
        }
        let held = match team.state {
            State::TakingBack | State::Ended => None,
            _ => Self::why_held(team),
        };
        if let Some(held) = held {
            return held;
        }
        if let Some(by) = team.stopped.clone().filter(|_| team.state == State::Running) {
            return There::Stopped { apid, by }.into();
        }
        match team.state {
            State::Posted => self.why_waiting(team).0,
            State::Lapsed => {
                Wait::Lapsed { apid, pid: team.front.as_ref().map(|front| front.pid) }.into()
            }
            State::Placed => There::Placed(nids()).into(),
            State::TakingBack => There::TakingBack(nids()).into(),
            State::Launching => There::Launching(nids()).into(),
            State::Running if self.schedule.decision.is_out(apid) => There::Out.into(),
            State::Running => match self.in_swap(apid) {
                Some(bytes) => {
                    There::GoingOut { nids: nids(), way: self.way_out(team), bytes }.into()
                }
                None => There::Runs(nids()).into(),
            },
            State::Ended => There::Ended.into(),
        }
    }

    /// What its nodes say of processes that outlive their KILL.
    fn stuck_said(&self, apid: Apid) -> Vec<String> {
        let of_nodes = self.stuck.get(&apid).into_iter().flat_map(BTreeMap::values);
        some_of(of_nodes.flatten())
    }

    /// Its processes that outlive their KILL, in words; empty: there are none.
    pub fn stuck_of(&self, apid: Apid) -> String {
        self.stuck_said(apid).join("; ")
    }

    /// Why placement said no.
    pub(super) fn explain(&self, wanted: &Wanted, no_room: placement::NoRoom) -> Reason {
        let domain = self.domain_reached(wanted.reach.passes);
        let named = no_room.holders.iter().take(NAMED_MAX);
        let full = Full {
            flexible: Vec::new(),
            holders: named.map(|apid| self.app_name(*apid)).collect(),
            shut: self.shut(&no_room.closed),
            domain: domain.to_owned(),
            no_roll_out: self.no_roll_out(self.domain_named(domain), &no_room.window),
            no_room,
        };
        Wait::Full(Box::new(full)).into()
    }

    /// The same reason, with the nodes on which the posting would have room now with --flexible, if
    /// its user can give this option. `kept`: the nodes of its domain that are kept for other
    /// postings.
    pub(super) fn or_flexible(
        &self,
        mut why: Reason,
        posting: &Posting,
        owner: &Owner,
        (domain, kept): (DomainId, &BTreeSet<Nid>),
    ) -> Reason {
        if let Obstacle::Waits(Wait::Full(full)) = &mut why.obstacle
            // (What cpr posts has the options of its checkpoint.)
            && !posting.flexible
            && !posting.brings_images
        {
            full.flexible = self.flexible_nodes(posting, owner, (domain, kept));
        }
        why
    }

    /// The nodes on which a posting would have room now if it were flexible. Gates ask the flexible
    /// posting: one that fits a region in pieces is not too wide for it.
    fn flexible_nodes(
        &self,
        posting: &Posting,
        owner: &Owner,
        (domain, kept): (DomainId, &BTreeSet<Nid>),
    ) -> Vec<Nid> {
        let posting = Posting { flexible: true, ..posting.clone() };
        if self.may_ever(&posting, owner).is_err() {
            return Vec::new();
        }
        let its = self.domain_for(&posting, owner);
        let of_other = (its != domain).then(|| self.kept(its));
        let wanted = self.wanted_by(&posting, owner, its);
        // (As the machine is, also where memory may be rolled out: not for a flexible one.)
        let kept = of_other.as_ref().unwrap_or(kept);
        let there = try_place_among(&self.occupancy, &wanted, kept, &posting.choice);
        let nids: BTreeSet<Nid> = there.iter().flat_map(|list| list.nids()).collect();
        nids.into_iter().collect()
    }

    /// Why these nodes are closed.
    fn shut(&self, nids: &[Nid]) -> Shut {
        let mut ordered: BTreeMap<String, (NodeOrder, Vec<Nid>)> = BTreeMap::new();
        let mut shut = Shut::default();
        for nid in nids.iter().copied() {
            if let Some(order) = self.closed(nid) {
                let same = ordered.entry(order.to_string());
                same.or_insert_with(|| (order.clone(), Vec::new())).1.push(nid);
            } else if let Some(together) = self.foreign_together(nid) {
                shut.foreign.push(nid);
                shut.obeying.extend(together.iter().copied().chain([nid]));
            } else if self.leaving.contains(&nid) {
                shut.leaving.push(nid);
            } else if let Some(why) = self.refused.get(&nid) {
                shut.refused.entry(why.to_string()).or_default().push(nid);
            } else {
                shut.silent.push(nid);
            }
        }
        shut.ordered = ordered.into_values().collect();
        shut
    }

    fn why_waiting(&self, team: &Apteam) -> (Reason, When) {
        let kept = self.kept_before(team.apid);
        if let Err((_, why)) = self.may_ever(&team.posting, &team.owner) {
            // It could be placed when it was posted: gates, nodes or flavors have changed since.
            return (*why, When::Unknown);
        }
        if let Some(why) = self.waits_for_hours(team) {
            return (why, self.kept_when(team));
        }
        let wanted = self.wanted(team);
        let why = match self.sits_anywhere(team) {
            // A decision gives it a place wherever its turn does.
            true => placement::why_not(&self.roomy(), &wanted, &kept)
                .map(|no_room| of_shared(&team.posting, self.explain(&wanted, *no_room))),
            false => self.why_no_room_for(team, &wanted, &kept),
        };
        let why = match why {
            // (What comes from a checkpoint keeps the options of its posting.)
            Some(why) if team.restart.is_some() => self.with_bars(why, team),
            Some(why) => {
                let there = (self.domain_named(&team.domain), &kept);
                let why = self.or_flexible(why, &team.posting, &team.owner, there);
                self.with_bars(why, team)
            }
            None => {
                let (running, more) = self.who_runs(self.domain_named(&team.domain));
                Wait::Turn { shape: team.posting.shape, running, more }.into()
            }
        };
        (why, self.kept_when(team))
    }

    /// Whether it is placed where as many sit as may be resident too, for whoever stands there goes out.
    fn sits_anywhere(&self, team: &Apteam) -> bool {
        let (domain, posting) = (self.domain_named(&team.domain), &team.posting);
        // (One that is restored is placed where there is room: a decision gives it no seat.)
        let decided = team.is_plain() && !posting.flexible && !posting.immediate;
        decided && self.rolls_out(domain)
    }

    /// The machine as such a one finds it.
    fn roomy(&self) -> Occupancy {
        let mut roomy = self.occupancy.clone();
        let of =
            |rules| Rules { max_resident: SITS_MAX.into(), memory_overcommit: u64::MAX, ..rules };
        roomy.set_rules(roomy.rules().with(of));
        roomy
    }

    /// When psched begins to keep nodes for a posting. This is not known of a posting that is far
    /// back in the queue: psched keeps nodes for the first ones only.
    fn kept_when(&self, team: &Apteam) -> When {
        let domain = self.domain_named(&team.domain);
        let mut head = self.waits(domain, HEAD_MAX);
        let Some((_, waited)) = head.find(|(one, _)| one.apid == team.apid) else {
            return When::Unknown;
        };
        let longest = self.turns_of(team).longest_wait;
        match longest.checked_sub(waited).filter(|left| !left.is_zero()) {
            None => When::Kept,
            Some(left) => When::KeptAt(self.wall_ns.saturating_add(nanos(left))),
        }
    }

    /// The first applications of those that run by the last decision, and whether there are more.
    fn who_runs(&self, domain: DomainId) -> (Vec<AppName>, bool) {
        let party = self.schedule.decision.party.iter();
        let mut party = party.copied().filter(|apid| self.is_of(*apid, domain));
        let first = party.by_ref().take(3).map(|apid| self.app_name(apid)).collect();
        (first, party.next().is_some())
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

    /// The link of the apinit that offers a node, if one does.
    pub fn link_of(&self, nid: Nid) -> Option<LinkId> {
        self.offered.get(&nid).copied()
    }

    /// The name of a node's host, as its apinit says it; else as configured, or empty.
    pub fn host_of(&self, nid: Nid) -> &str {
        let link = self.link_of(nid).and_then(|link| self.links.get(&link));
        let told = link.map(|link| link.hello.hostname.as_str());
        let named = || self.machine.nodes.get(&nid).map(|node| node.host.as_str());
        told.or_else(named).unwrap_or_default()
    }
}
