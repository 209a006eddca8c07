//! The variables that the scheduler obeys, and what its nodes can do.

use crate::apteam::bounds::{Bounds, HostBounds};
use crate::apteam::posting::Owner;
use crate::apteam::record::Apteam;
use crate::gang::plan::amortised;
use crate::gang::shares::Holder;
use crate::gang::{floor, levels};
use crate::occupancy::Rules;
use crate::placement::migration::MigrationLimits;
use crate::variables::{APPLICATION, Allocator, Isolation, Private, ShareBy, Variables};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The variables that the scheduler obeys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How long a placed front end may be silent.
    pub ticket_time: Duration,
    /// From TERM to KILL.
    pub kill_grace: Duration,
    /// From apkill's TERM to KILL.
    pub apkill_grace: Duration,
    /// Processes and threads that an application may have on each node.
    pub pids_max: u64,
    /// From TERM to KILL when the aprun has died.
    pub front_kill_grace: Duration,
    /// What may be kept of an application.
    pub bounds: Bounds,
    /// What an apinit may hold.
    pub host_bounds: HostBounds,
    /// To how many hosts one host of an application has a stream.
    pub fan_out: u32,
    /// Orders of psmgr that wait for their nodes.
    pub orders_max: usize,
    /// Streams that watch one application: for whoever has the streams.
    pub watches_max: usize,
    /// Whether applications have IPC and a /dev/shm of their own.
    pub isolation: Isolation,
    /// Whether PEs reach the service manager and the session bus of their user.
    pub user_bus: bool,
    /// How much nicer PEs are on nodes that are the system's too.
    pub yield_nice: u32,
    /// PEs of an application that may share a processor.
    pub oversubscribe_max: u32,
    /// How often a launch that failed by a node's fault is tried again.
    pub launch_retries: u32,
    /// After how many such failures in a row a node is drained; 0: never.
    pub launch_failures_to_drain: usize,
    /// Waiting postings altogether.
    pub postings_max: usize,
    /// Waiting postings of one user.
    pub postings_user_max: usize,
    /// Bytes of the records of one user's applications that have not ended.
    pub records_user_max: u64,
    /// What users who are no administrators do not see of others' applications.
    pub private: Private,
    /// After how long what a share has had counts half as much.
    pub half_life: Duration,
    /// What users have had is put on record.
    pub keeps_shares: bool,
    /// How competing applications take turns, in the domain `application`.
    pub turns: Turns,
    /// The same of other domains.
    pub domains: BTreeMap<String, Turns>,
    /// The only user whose programs the nodes can run: where psched has no privilege.
    pub only_uid: Option<u32>,
    /// What nodes can do beside stopping a gang and letting it go on.
    pub abilities: Abilities,
    /// Seconds by which the local time is ahead of UTC: gates open and close by local time.
    pub utc_offset: i32,
}

/// A gang is aged later by this share of the time that it has had, in thousandths.
const AGING_SHARE: u64 = 250;
/// The level that an aged gang counts as, if its own is not lower. An aged gang on the lowest level
/// would keep short runs waiting for hours.
const AGING_LEVEL: usize = 2;
/// An aged gang that runs counts as aged for at least this long.
const AGING_GRANT: Duration = Duration::from_secs(600);
/// An aged gang that runs counts as aged for at least this share of its wait, in thousandths.
const AGING_GRANT_SHARE: u64 = 200;
/// The least bound of the lowest level, in starts: the logs of benches/policy.md with starts of 5 s are best with a
/// minute.
const STARTS_OF_A_LEVEL: u32 = 12;

/// What nodes can do with a gang that stands: what they can't is never planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abilities {
    /// Give it other processors, here or on other nodes.
    pub moves: bool,
    /// They say of each application whether they can move it; before they have, they can't.
    pub says: bool,
    /// Take its memory out, and bring it in again.
    pub roll_out: RollsOut,
}

/// How memory goes out of those who stand, where more sit than may be resident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RollsOut {
    /// It does not.
    #[default]
    Never,
    /// Anywhere, and it comes in on whichever nodes: as it is simulated.
    Anywhere,
    /// Where all nodes of a domain say that they can, to swap: who is out keeps its place.
    AtHome,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            ticket_time: Duration::from_secs(60),
            kill_grace: Duration::from_secs(5),
            apkill_grace: Duration::from_secs(300),
            front_kill_grace: Duration::from_secs(2),
            bounds: Bounds::default(),
            host_bounds: HostBounds::default(),
            fan_out: 32,
            orders_max: 64,
            watches_max: 64,
            pids_max: 16_384,
            isolation: Isolation::default(),
            user_bus: false,
            yield_nice: 0,
            oversubscribe_max: 64,
            launch_retries: 3,
            launch_failures_to_drain: 3,
            postings_max: 100_000,
            postings_user_max: 10_000,
            records_user_max: 64 << 20,
            private: Private::default(),
            half_life: Duration::from_secs(3_600),
            keeps_shares: false,
            turns: Turns::default(),
            domains: BTreeMap::new(),
            only_uid: None,
            abilities: Abilities::default(),
            utc_offset: 0,
        }
    }
}

impl From<&Variables> for Settings {
    fn from(v: &Variables) -> Settings {
        let count = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        Settings {
            ticket_time: v.ticket_time(),
            kill_grace: v.kill_grace(),
            front_kill_grace: v.front_kill_grace(),
            bounds: v.into(),
            host_bounds: v.into(),
            fan_out: u32::try_from(v.fan_out()).unwrap_or(u32::MAX),
            orders_max: count(v.orders_max()),
            watches_max: count(v.watches_max()),
            isolation: v.isolation(),
            user_bus: !v.hide_user_bus(),
            yield_nice: u32::try_from(v.yield_nice()).unwrap_or(0),
            oversubscribe_max: u32::try_from(v.oversubscribe_max()).unwrap_or(1),
            launch_retries: u32::try_from(v.launch_retries()).unwrap_or(0),
            launch_failures_to_drain: count(v.launch_failures_to_drain()),
            apkill_grace: v.apkill_grace(),
            pids_max: v.pids_max(),
            postings_max: count(v.postings_max()),
            postings_user_max: count(v.postings_user_max()),
            records_user_max: v.records_user_max(),
            private: v.private(),
            half_life: v.share_half_life(),
            turns: v.into(),
            domains: {
                let others = v.domains().filter(|name| *name != APPLICATION);
                others.map(|name| (name.to_owned(), Turns::from(&v.of_domain(name)))).collect()
            },
            ..Settings::default()
        }
    }
}

impl Settings {
    /// How the applications of a domain take turns; of one that has no variables of its own: as in the
    /// domain `application`.
    pub fn turns_of(&self, domain: &str) -> &Turns {
        self.domains.get(domain).unwrap_or(&self.turns)
    }
}

/// How competing applications take turns: the variables of a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    /// How long a cycle with floors is, and how long one leads where psched is dead.
    pub time_slice: Duration,
    /// Gangs on one processor.
    pub max_resident: u32,
    /// Who has waited so long leads next.
    pub longest_wait: Duration,
    /// How much of a node's memory may be promised, in thousandths.
    pub memory_overcommit: u64,
    /// Which of several windows on free processors is taken.
    pub allocator: Allocator,
    /// PEs from which on an application is wide, for one of these rules.
    pub allocator_wide: u64,
    /// The share of a slice that bringing memory in may take, in thousandths.
    pub switch_share: u64,
    /// Who waits has a floor: a start costs little beside it.
    pub floors: bool,
    /// Whose share an application counts to, where there are floors.
    pub share_by: ShareBy,
    /// By what rules gangs are put in order.
    pub levels: levels::Rules,
    /// How often it is looked again who is to run.
    pub reconsider: Duration,
    /// How long one has not run before others are moved aside for it.
    pub compact_after: Duration,
    /// What a start is taken to cost until it has been measured.
    pub start_cost: Duration,
    /// What migration may do.
    pub migration: MigrationLimits,
    /// From the sending of a plan to its beginning.
    pub plan_lead: Duration,
    /// Weights of users by name, where they are not 1.
    pub weights: BTreeMap<String, u32>,
}

impl From<&Variables> for Turns {
    fn from(variables: &Variables) -> Turns {
        Turns {
            time_slice: variables.application_time_slice(),
            max_resident: u32::try_from(variables.application_max_resident()).unwrap_or(u32::MAX),
            longest_wait: variables.application_longest_wait(),
            memory_overcommit: variables.application_memory_overcommit(),
            allocator: variables.application_allocator(),
            allocator_wide: variables.application_allocator_wide(),
            switch_share: variables.application_switch_share(),
            floors: {
                let (cost, share) =
                    (variables.application_start_cost(), variables.application_switch_share());
                let floor = floor::length(variables.application_time_slice());
                variables.application_floor() && amortised(cost, share) <= floor
            },
            share_by: variables.share_by(),
            levels: level_rules(variables),
            reconsider: variables.application_reconsider(),
            compact_after: variables.application_compact_after(),
            start_cost: variables.application_start_cost(),
            migration: MigrationLimits::from(variables),
            plan_lead: variables.plan_lead(),
            weights: variables.weights(),
        }
    }
}

fn level_rules(v: &Variables) -> levels::Rules {
    let ratio = u32::try_from(v.application_level_ratio()).unwrap_or(u32::MAX);
    // A start that costs seconds is not paid for a level of one.
    let start = v.application_start_cost().saturating_mul(STARTS_OF_A_LEVEL);
    let bound = v.application_level_bound().max(start);
    let bounds = std::iter::successors(Some(bound), |bound| Some(bound.saturating_mul(ratio)));
    let last = v.application_level_last();
    let bounds = bounds.take_while(|bound| *bound <= last).take(levels::LEVELS_MAX - 1);
    levels::Rules {
        bounds: bounds.collect(),
        stickiness: v.application_level_stickiness(),
        aging_after: v.application_aging_after(),
        aging_share: AGING_SHARE,
        aging_level: AGING_LEVEL,
        aging_grant: AGING_GRANT,
        aging_grant_share: AGING_GRANT_SHARE,
        longest_wait: v.application_longest_wait(),
        wide_first: v.application_level_wide_first(),
        width_exponent: v.application_level_width_exponent(),
    }
}

impl Default for Turns {
    fn default() -> Turns {
        (&Variables::default()).into()
    }
}

impl Turns {
    /// How many times as large the share of this user is.
    pub(super) fn weight(&self, owner: &Owner) -> u32 {
        self.weight_of(&owner.name)
    }

    /// The same of a user by name.
    pub(super) fn weight_of(&self, user: &str) -> u32 {
        self.weights.get(user).copied().unwrap_or(1)
    }

    /// To whose share the time of an application counts; none: there are no shares.
    pub(super) fn holder(&self, team: &Apteam) -> Option<Holder> {
        match (self.share_by, &team.posting.account) {
            (ShareBy::Application, _) => None,
            (ShareBy::Account, Some(account)) => Some(account.as_str().into()),
            _ => Some(team.owner.name.as_str().into()),
        }
    }

    /// How many may sit where.
    pub(super) fn rules(&self) -> Rules {
        Rules {
            max_resident: self.max_resident,
            memory_overcommit: self.memory_overcommit,
            allocator: self.allocator,
            allocator_wide: self.allocator_wide,
        }
    }
}
