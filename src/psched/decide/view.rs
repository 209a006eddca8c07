//! What apstat and its like are told: reading only.

pub(super) mod nodes;

use super::Scheduler;
use super::domains::DomainId;
use super::ends::nanos;
use super::postings::{HEAD_MAX, shape_text};
use super::regions::of_shared;
use crate::apteam::Apid;
use crate::apteam::posting::Explanation;
use crate::apteam::record::{Apteam, State};
use crate::machine::{Nid, nids_text};
use crate::occupancy::{Occupancy, Rules};
use crate::placement::packing::SITS_MAX;
use crate::placement::{self, Shut, Wanted};
use crate::variables::units::about;
use std::collections::BTreeMap;

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

    /// Why an application is where it is; the words that placement itself uses.
    pub fn why(&self, apid: Apid) -> Option<Explanation> {
        self.why_and_when(apid).map(|(why, _)| why)
    }

    /// The same, and of a posting what is known of when it gets its place.
    pub fn why_and_when(&self, apid: Apid) -> Option<(Explanation, When)> {
        let team = self.teams.get(&apid)?;
        if team.state == State::Posted && team.held.is_none() && self.stuck_of(apid).is_empty() {
            return Some(self.why_waiting(team));
        }
        let held = team.held.is_some() && matches!(team.state, State::Posted | State::Lapsed);
        let when = if held { When::Held } else { When::Unknown };
        Some((self.why_there(team), when))
    }

    /// Of one that does not wait for its place in line.
    fn why_there(&self, team: &Apteam) -> Explanation {
        let apid = team.apid;
        let plain = |obstacle: String| Explanation { obstacle, ..Explanation::default() };
        let nids = || nids_text(team.places.nids());
        let stuck = self.stuck_of(apid);
        match team.state {
            _ if !stuck.is_empty() => plain(format!("it is being ended, and {stuck}")),
            State::Posted | State::Lapsed | State::Placed | State::Launching | State::Running
                if team.held.is_some() =>
            {
                Self::why_held(team).unwrap_or_default()
            }
            State::Posted => self.why_waiting(team).0,
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
                plain(format!("it is placed on {}; its aprun is to launch it", nids()))
            }
            State::TakingBack => Explanation {
                obstacle: format!("its place on {} is being taken back", nids()),
                ..Explanation::default()
            },
            State::Launching => plain(format!("it is being launched on {}", nids())),
            State::Running if self.schedule.decision.is_out(apid) => Explanation {
                obstacle: "its memory is out, for others who ran where it sat".into(),
                cure: "it comes in when it has a place".into(),
                ..Explanation::default()
            },
            State::Running if self.in_swap(apid).is_some() => {
                let bytes = self.in_swap(apid).filter(|bytes| *bytes > 0);
                let so_far = bytes.map_or_else(String::new, |b| format!(" ({} so far)", about(b)));
                Explanation {
                    obstacle: format!(
                        "it stands on {}, and its memory goes {}{so_far}",
                        nids(),
                        self.way_out(team)
                    ),
                    cure: "it comes in before its next turn".into(),
                    ..Explanation::default()
                }
            }
            State::Running => plain(format!("it runs on {}", nids())),
            State::Ended => plain("it has ended".into()),
        }
    }

    /// Its processes that outlive their KILL, in words; empty: there are none.
    pub fn stuck_of(&self, apid: Apid) -> String {
        let of_nodes = self.stuck.get(&apid).into_iter().flat_map(BTreeMap::values);
        let all: Vec<&str> = of_nodes.flatten().map(String::as_str).collect();
        all.join("; ")
    }

    /// Why placement said no, in words.
    pub(super) fn explain(&self, wanted: &Wanted, no_room: &placement::NoRoom) -> Explanation {
        let shut = |nid: Nid| match self.closed(nid) {
            Some(order) => Shut::Ordered(order),
            None => match self.foreign_together(nid) {
                Some(nids) => Shut::Foreign(nids),
                None if self.leaving.contains(&nid) => Shut::Leaving,
                None => self.refused.get(&nid).map_or(Shut::Silent, |why| Shut::Refused(why)),
            },
        };
        let domain = self.domain_reached(wanted.reach.passes);
        let no_roll_out = self.no_roll_out(self.domain_named(domain), &no_room.window);
        no_room.explain(domain, |a| self.name_of(a), shut, no_roll_out.as_deref())
    }

    fn why_waiting(&self, team: &Apteam) -> (Explanation, When) {
        let kept = self.kept_before(team.apid);
        if let Err((_, why)) = self.may_ever(&team.posting, &team.owner) {
            // It could be placed when it was posted: gates, nodes or flavors have changed since.
            return (why, When::Unknown);
        }
        if let Some(why) = self.waits_for_hours(team) {
            return (why, self.kept_when(team));
        }
        let wanted = self.wanted(team);
        let why = match self.sits_anywhere(team) {
            // A decision gives it a place wherever its turn does.
            true => placement::why_not(&self.roomy(), &wanted, &kept)
                .map(|no_room| of_shared(&team.posting, self.explain(&wanted, &no_room))),
            false => self.why_no_room_for(team, &wanted, &kept),
        };
        let why = match why {
            Some(why) => self.with_bars(why, team),
            None => Explanation {
                obstacle: format!(
                    "{} waits for its turn: those run that have had as little time",
                    shape_text(&team.posting.shape)
                ),
                holder: self.who_runs(self.domain_named(&team.domain)),
                cure: "it is placed when one of them ends, or has had more".into(),
            },
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
        if !self.line_of(domain).take(HEAD_MAX).any(|apid| apid == team.apid) {
            return When::Unknown;
        }
        if self.waits_too_long(team) {
            return When::Kept;
        }
        let longest = nanos(self.turns_of(team).longest_wait);
        When::KeptAt(team.posted_at_ns.saturating_add(longest))
    }

    /// A few of those who run by the last decision.
    fn who_runs(&self, domain: DomainId) -> String {
        let party = self.schedule.decision.party.iter();
        let party: Vec<Apid> = party.copied().filter(|apid| self.is_of(*apid, domain)).collect();
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
