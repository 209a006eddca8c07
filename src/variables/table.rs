//! The table of variables, and what is made of its rows: a getter for each.

use super::kind::{Allocator, FLAG, Isolation, Kind, Private, ShareBy, one_of};
use super::{VariableError, Variables, retired};
use std::time::Duration;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The least value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
    /// The value where nobody set one.
    pub default: u64,
    /// It is only looked at when psched starts: it shapes what is made then.
    pub at_start: bool,
    /// What it does, in a line.
    pub meaning: &'static str,
    /// What else the manual says of it, in whole sentences.
    pub more: &'static str,
}

impl Definition {
    /// The value of this text.
    ///
    /// # Errors
    /// It is no value of this variable's, or out of its range. `name`: of the variable, where the row
    /// is of many.
    pub(super) fn value(&'static self, name: &str, text: &str) -> Result<u64, VariableError> {
        let (row, name, text) = (self, name.to_owned(), text.to_owned());
        match row.kind.parse(&text) {
            None => Err(match retired::became_of_value(row.name, text.trim()) {
                Some(became) => VariableError::RetiredValue { row, name, text, became },
                None => VariableError::NotAValue { row, name, text },
            }),
            Some(value) if value < row.min || value > row.max => {
                Err(VariableError::OutOfRange { row, name, text })
            }
            Some(value) => Ok(value),
        }
    }

    /// Its range as people write it: `0s to 1h`.
    pub fn range(&self) -> String {
        match self.kind {
            Kind::Duration | Kind::Count | Kind::Size | Kind::Ratio | Kind::Percent => {
                format!("{} to {}", self.kind.format(self.min), self.kind.format(self.max))
            }
            Kind::Flag => FLAG.join(", "),
            Kind::Private => Private::ALL.map(|(_, name)| name).join(", "),
            Kind::Isolation => Isolation::ALL.map(|(_, name)| name).join(", "),
            Kind::Allocator => Allocator::ALL.map(|(_, name)| name).join(", "),
            Kind::ShareBy => ShareBy::ALL.map(|(_, name)| name).join(", "),
        }
    }

    /// Its default as people write it.
    pub fn default_text(&self) -> String {
        self.kind.format(self.default)
    }
}

/// The Rust type of a kind.
macro_rules! value_type {
    (Duration) => {
        Duration
    };
    (Count) => {
        u64
    };
    (Size) => {
        u64
    };
    (Flag) => {
        bool
    };
    (Isolation) => {
        Isolation
    };
    (Private) => {
        Private
    };
    (Allocator) => {
        Allocator
    };
    (ShareBy) => {
        ShareBy
    };
    (Ratio) => {
        u64
    };
    (Percent) => {
        u64
    };
}

/// The Rust value of a kind.
macro_rules! typed {
    (Duration, $value:expr) => {
        Duration::from_nanos($value)
    };
    (Count, $value:expr) => {
        $value
    };
    (Size, $value:expr) => {
        $value
    };
    (Flag, $value:expr) => {
        $value == 0
    };
    (Isolation, $value:expr) => {
        one_of(&Isolation::ALL, $value).0
    };
    (Private, $value:expr) => {
        one_of(&Private::ALL, $value).0
    };
    (Allocator, $value:expr) => {
        one_of(&Allocator::ALL, $value).0
    };
    (ShareBy, $value:expr) => {
        one_of(&ShareBy::ALL, $value).0
    };
    (Ratio, $value:expr) => {
        $value
    };
    (Percent, $value:expr) => {
        $value
    };
}

/// Makes the table, and a getter for each of its rows: `application_floor` for `application.floor`
/// too, which is given in quotes.
macro_rules! variables {
    ($($name:ident $(= $text:literal)?: $kind:ident, $min:expr => $max:expr, default $default:expr,
        $(at $start:ident,)? $meaning:literal $(, $more:literal)?;)*) => {
        /// All variables, by name.
        pub const TABLE: &[Definition] = &[$(Definition {
            name: variables!(@name $name $($text)?),
            kind: Kind::$kind,
            min: $min,
            max: $max,
            default: $default,
            at_start: variables!(@start $($start)?),
            meaning: $meaning,
            more: concat!($($more)?),
        }),*];

        /// Rows of the table, by name.
        #[allow(non_camel_case_types)]
        pub(super) enum Row { $($name),* }

        /// One getter for each variable.
        impl Variables {
            $(
                #[doc = $meaning]
                pub fn $name(&self) -> value_type!($kind) {
                    typed!($kind, self.values[Row::$name as usize])
                }
            )*
        }
    };
    (@start) => {
        false
    };
    (@start start) => {
        true
    };
    (@name $name:ident) => {
        stringify!($name)
    };
    (@name $name:ident $text:literal) => {
        $text
    };
}

variables! {
    answer_time: Duration, SECOND => 10 * MINUTE, default 10 * SECOND, at start,
        "how long a connection may leave a keepalive unanswered before it is closed";
    apkill_grace: Duration, 0 => 24 * HOUR, default 5 * MINUTE,
        "time between the TERM of apkill and the KILL that follows it";
    application_aging_after = "application.aging.after": Duration, 0 => 365 * DAY, default 48 * HOUR,
        "how long a gang that has not run at all waits until it is aged",
        "A gang that has run waits longer: by a quarter of its processor time so far. An aged \
         gang counts as one of the third level, if its own level is higher. Once it runs it \
         counts so for ten minutes, or for a fifth of its wait if that is longer.";
    application_allocator = "application.allocator": Allocator, 0 => Allocator::ALL.len() as u64 - 1, default 0,
        "which one of several windows on free processors an application gets",
        "best-fit: the window that leaves the fewest free processors on its own nodes; of equal \
         ones the window in the smallest gap, then the one with the fewest nodes, then the one at \
         the lowest NID. first-fit: the window at the lowest NID. wide-from-one-end: the window \
         at the highest NID for an application of application.allocator_wide PEs or more, and at \
         the lowest NID for others; so wide applications find room that narrow ones have not \
         broken up. A gap is an unbroken run of nodes that have room for the application's PEs. \
         On a machine with very many gaps psched looks at some of them only, beginning with the \
         smallest that suffice. An application that has to share processors goes to those with \
         the fewest applications, whatever the allocator.";
    application_allocator_wide = "application.allocator_wide": Count, 1 => 1_000_000_000, default 64,
        "PEs from which on an application is wide, for wide-from-one-end of application.allocator";
    application_compact_after = "application.compact_after": Duration, 0 => 365 * DAY, default 5 * MINUTE,
        "how long a gang or posting has not run before psched moves others aside for it";
    application_floor = "application.floor": Flag, 0 => 1, default 0,
        "whether waiting gangs get a quarter of each time slice, in turns",
        "The users with the least attained service for their share (share.by) come first. A gang \
         waits for at most one slice for each user, and one for each other gang of its own user, \
         that wants the same processors. There is no floor if a start costs more than \
         application.switch_share of that quarter.";
    application_idle_after = "application.idle_after": Duration, 0 => SECOND, default 4 * MS,
        "how long a gang uses next to no processor time in its turn before it gives the rest away",
        "Other gangs then have its processors, as if their next turn had come. The gang gets them \
         back for a moment every 50 to 200 ms, so that psched sees whether it has work. A gang \
         that waits for a processor, a disk or memory is not idle. With 0 every gang keeps its \
         turn. Gangs on several apinits keep theirs, and so do all gangs on hosts without control \
         groups.";
    application_level_bound = "application.level.bound": Duration, 100 * MS => 365 * DAY, default SECOND,
        "the attained service at which a gang leaves the lowest level",
        "If a start costs more, it is twelve times application.start_cost.";
    application_level_last = "application.level.last": Duration, 0 => 365 * DAY, default 40 * MINUTE,
        "the largest attained service at which a gang leaves a level",
        "There are as many levels as bounds of levels up to it, and one more, 16 at most. A \
         larger value makes long applications wait for weeks, a smaller one keeps short \
         applications waiting.";
    application_level_ratio = "application.level.ratio": Count, 2 => 1_000, default 6,
        "how many times as long each next level is";
    application_level_stickiness = "application.level.stickiness": Duration, 0 => 365 * DAY, default 8 * HOUR,
        "how much earlier a running gang counts as having entered its level",
        "Within a level gangs go by the time of entry: a running gang is preempted only for a \
         gang that has waited for so much longer. With less, gangs are preempted and moved more \
         often.";
    application_level_wide_first = "application.level.wide_first": Duration, 0 => 365 * DAY, default 14 * HOUR,
        "how much earlier a gang as wide as the machine counts as having entered the highest \
         level",
        "For a narrower gang it is less, in proportion. Without it wide long gangs pay for what \
         all others gain; with much more the others pay.";
    application_level_width_exponent = "application.level.width_exponent": Ratio, 0 => 1_000, default 100,
        "how much more the service of wide gangs counts",
        "Attained service counts times the gang's share of the machine's processors to this \
         power: with 0 width does not count, with 0.1 the service of a gang on a thousandth of \
         the machine counts half.";
    application_load_balance_enabled = "application.load_balance.enabled": Flag, 0 => 1, default 0,
        "whether psched moves running applications if a waiting one finds no window";
    application_load_balance_least_attained = "application.load_balance.least_attained": Duration, 0 => 365 * DAY, default 1_000 * SECOND,
        "how long an application has run at least before it is moved";
    application_load_balance_least_gain = "application.load_balance.least_gain": Ratio, 0 => 1_000_000_000, default 20_000,
        "how many times as much moves must gain as they cost",
        "The gain is the time that the waiting application has run so far, or a minute if that is \
         more, times its processors. The cost is the time that each moved application loses, \
         times its processors.";
    application_load_balance_move_cost = "application.load_balance.move_cost": Duration, 0 => HOUR, default SECOND,
        "the time that an application loses by a move, whatever its memory",
        "A move within a host freezes the application for a few milliseconds; then it has its \
         caches to fill.";
    application_load_balance_move_rate = "application.load_balance.move_rate": Size, MIB => MIB << 30, default 1_024 * MIB,
        "bytes a second at which the memory of an application is taken to move",
        "It counts for memory that goes to another node.";
    application_load_balance_moves_max = "application.load_balance.moves_max": Count, 1 => 64, default 8,
        "applications that are moved at most to make one window";
    application_load_balance_quiet_time = "application.load_balance.quiet_time": Duration, 0 => 365 * DAY, default HOUR,
        "how long an application stays where it is after a move";
    application_load_balance_width_min = "application.load_balance.width_min": Count, 1 => 1_000_000_000, default 1,
        "processors from which on a waiting application may have others moved";
    application_longest_wait = "application.longest_wait": Duration, MINUTE => 365 * DAY, default 7 * DAY,
        "how long a gang or posting may wait before it leads next",
        "psched keeps nodes for a posting that has waited so long and is among the first 64 of \
         its domain: later postings get none of the nodes that it could use.";
    application_max_resident = "application.max_resident": Count, 1 => 4_096, default 1_024,
        "gangs that may be on a processor, taking turns",
        "With 1 no two applications share a processor, and an application that finds none free \
         waits. An application that was placed while the value was 1 shares with no other until \
         it ends. More gangs may be there on nodes that bring the memory of waiting gangs to \
         swap, or out by a checkpoint.";
    application_memory_overcommit = "application.memory_overcommit": Ratio, 100 => 100_000, default 1_000,
        "how many times a node's memory may be promised to the applications on it",
        "A lower value takes nothing away from applications that are there. An application that \
         says nothing of its memory (-m) is placed beside others only if a sixteenth of the \
         memory is left, because programs grow before that is measured.";
    application_reconsider = "application.reconsider": Duration, SECOND => HOUR, default 5 * MINUTE,
        "how often psched decides anew which gangs run, if gangs wait and nothing happens";
    application_start_cost = "application.start_cost": Duration, 0 => HOUR, default 0,
        "the assumed cost of a start of a gang until its nodes have measured it";
    application_switch_share = "application.switch_share": Percent, 1 => 1_000, default 50,
        "the share of a slice that bringing memory in may take before the slice is lengthened",
        "If the memory of a gang was out when its turn came, its slices become longer by the time \
         that this took, and no shorter than that time divided by this share, up to an hour. The \
         slices of gangs with which it takes turns are no shorter either.";
    application_time_slice = "application.time_slice": Duration, 10 * MS => HOUR, default SECOND,
        "the length of a cycle in which waiting gangs get a quarter (application.floor)",
        "Without floors it is how long each waiting gang runs while psched is away.";
    applications_max: Count, 1 => 65_536, default 4_096,
        "applications on a host at once",
        "One more ends with 125.";
    connections_max: Count, 16 => 1_000_000, default 8_192,
        "connections at once to psched's socket, and to that of each apinit",
        "A few of them are kept for root and for the user that the daemon runs as. If the hard \
         limit of open files (ulimit -Hn, LimitNOFILE= of a unit) allows fewer, there are fewer, \
         and the log says so. A connection takes two files of psched's, and eight of an apinit's \
         together with its application.";
    connections_user_max: Count, 4 => 1_000_000, default 2_048,
        "connections at once to each of these sockets of one user other than root and the \
         daemon's own",
        "An aprun has one to psched and one to an apinit, so this is also how many apruns a user \
         may have. A command that is refused says so: an aprun that has posted nothing yet ends \
         with 125 after five seconds, any other waits.";
    fan_out: Count, 2 => 1_024, default 32,
        "hosts with which one host of an application speaks at most",
        "Launches, signals and PMI barriers go through a tree of hosts: from the host of PE 0 to so \
         many, and from each of them to so many others. If a host is lost, the host of PE 0 speaks \
         itself with those that were reached through it.";
    freeze_wait: Duration, 0 => SECOND, default MS,
        "how long apinit waits for a frozen gang's last process before it lets the next gang run";
    front_kill_grace: Duration, 0 => MINUTE, default 2 * SECOND,
        "time between TERM and KILL for an application whose aprun has died";
    hide_user_bus: Flag, 0 => 1, default 0,
        "whether PEs are kept from their user's service manager and session bus, if apinit runs \
         as root",
        "It counts on hosts where isolation is on. /run/user is then the application's own, with \
         nothing in it but an empty folder of its user, and DBUS_SESSION_BUS_ADDRESS is not set: \
         systemd-run --user can't take processes out of the application. See apinit(8).";
    history_max: Count, 0 => 10_000_000, default 10_000, at start,
        "ended applications of which a record is kept";
    host_silence: Duration, 6 * SECOND => HOUR, default 15 * SECOND,
        "how long a host and psched may hear nothing of each other before they hang up",
        "The nodes of a host that is hung up on are suspect until it calls again: no application is \
         placed there, and the applications that are there run on. For as long again no other apinit is \
         taken for them. An apinit says every 5 s that it is there, and more often if this is less \
         than 15 s; psched answers. A connection on which data is not acknowledged for 20 s ends before.";
    isolation: Isolation, 0 => Isolation::ALL.len() as u64 - 1, default 0,
        "whether an application has its own IPC and its own /dev/shm on each host",
        "With auto wherever that is possible, with root only if apinit runs as root, with off \
         never. See apinit(8).";
    kill_grace: Duration, 0 => HOUR, default 5 * SECOND,
        "time between TERM and KILL when an application is ended";
    launch_failures_to_drain: Count, 0 => 1_000, default 3,
        "launches that fail in a row by a node's fault before psched drains the node; 0: never",
        "They must be of as many applications, and of two users (or of root), so that no user can \
         drain nodes. What a user can cause does not count: a missing file, a limit, a program \
         that can't be executed. A launch that succeeds on the node and psmgr resume set the count \
         back. psmgr resume undoes the drain. See psched(8).";
    launch_memory_max: Size, 16 * MIB => 16_384 * MIB, default 128 * MIB,
        "memory on a host for launches that wait for psched's word of their placement",
        "If it is used up, an aprun tries again for a while.";
    launch_memory_user_max: Size, MIB => 16_384 * MIB, default 32 * MIB,
        "memory on a host for such launches of one user",
        "One more is refused, and its aprun ends with 125.";
    launch_retries: Count, 0 => 100, default 3,
        "how often an application is launched again elsewhere if a launch fails by a node's fault",
        "Only if no PE of it has run. Its aprun says so. See psched(8).";
    launches_user_max: Count, 1 => 65_536, default 64,
        "launches of one user that wait at once on a host for psched's word of their placement";
    login_host_away: Duration, MINUTE => 365 * DAY, default DAY,
        "how long a login host may be away before psched takes the apruns there for dead",
        "Their applications are ended then. After another boot of the host they are ended at once.";
    orders_max: Count, 1 => 10_000, default 64,
        "orders of psmgr that wait for their nodes at once";
    output_max: Size, 256 * KIB => 64 * MIB, default 2 * MIB,
        "output of an application kept on each host for an aprun that does not read it",
        "When there is as much, its PEs wait. On more than 32 hosts (or fan_out, if that is more) each has its \
         share of what so many may keep, and no less than 64 KiB.";
    oversubscribe_max: Count, 1 => 1_024, default 64,
        "PEs of an oversubscribed application that may share a processor",
        "With 1 none may, and aprun's option --oversubscribe has no effect.";
    pids_max: Count, 16 => 4_194_304, default 16_384,
        "processes and threads that an application may have on each node";
    plan_lead: Duration, MS => 10 * SECOND, default 20 * MS,
        "how long before its beginning a slice plan is sent to its nodes";
    pmi_max: Size, MIB => 1_024 * MIB, default 64 * MIB,
        "keys and values that the PEs of an application may put by PMI-1 or PMIx";
    postings_max: Count, 1 => 10_000_000, default 100_000,
        "postings that wait at once";
    postings_user_max: Count, 1 => 10_000_000, default 10_000,
        "postings of one user that wait at once";
    private: Private, 0 => Private::ALL.len() as u64 - 1, default 0,
        "what ordinary users do not see of others' applications",
        "commands hides their command lines (and the command of --checkpoint). all hides the \
         applications: none is listed or has a history, events or a turn that others see, \
         explanations and nodes do not tell them apart, and a user who asks for one by its number \
         is told that there is none. All users see how many processors of a node are in use. See \
         psmgr(8).";
    program_memory_max: Size, MIB => 1_024 * 1_024 * MIB, default 1_024 * MIB,
        "memory on a host for copies of programs that were posted on another host",
        "A program for which there is no room is executed at its path, if the same program is there.";
    program_memory_user_max: Size, MIB => 1_024 * 1_024 * MIB, default 512 * MIB,
        "memory on a host for such copies of one user's programs";
    records_user_max: Size, MIB => 64 * 1_024 * MIB, default 64 * MIB,
        "bytes of psched's records that the applications of one user may take",
        "psched refuses a posting if applications that have not ended would take more. If ended \
         ones take more, it forgets the oldest.";
    share_by = "share.by": ShareBy, 0 => ShareBy::ALL.len() as u64 - 1, default 0,
        "whose share of the processors the time of an application counts to (application.floor)",
        "The share with the least attained service for each unit of weight comes first. With \
         account the time of an application counts to the account that it names (--account), to \
         its user if it names none. psched checks which users may name an account only if \
         psched.yaml has accounts. With application there are no shares. Shares have an effect only \
         if there is a floor (application.floor).";
    share_half_life = "share.half_life": Duration, 0 => 365 * DAY, default HOUR,
        "after how long the attained service of a share counts half as much";
    stdin_max: Size, 64 * KIB => 16 * MIB, default 256 * KIB,
        "stdin of an application that is read before PE 0 has read it";
    streams_max: Count, 16 => 4_096, default 256, at start,
        "requests at once on a connection to psched's socket; more wait at the caller";
    ticket_time: Duration, SECOND => HOUR, default 60 * SECOND,
        "how long a placement waits for its launch before its nodes are taken back";
    watches_max: Count, 1 => 65_536, default 64,
        "streams that watch one application at once",
        "The stream of its aprun is not counted.";
    yield_nice: Count, 0 => 19, default 0,
        "how much nicer PEs are than others on nodes that also serve the system (su or os)",
        "There they give way to the system's own work: with 10 a busy PE gets a tenth of a \
         processor that a busy process of the system wants too, with 19 a sixtieth; with 0 they \
         share it evenly. The flavors of a node at the time of the placement count. See \
         apinit(8).";
}

/// Weights of users, each a variable of its own. It stands behind the others wherever variables are
/// listed.
pub const WEIGHTS: Definition = Definition {
    name: "weight.user.NAME",
    kind: Kind::Count,
    min: 1,
    max: 1_000,
    default: 1,
    at_start: false,
    meaning: "how many times as large the share of the user NAME is",
    more: "The time of that user's gangs counts for so much less. NAME is the name of a user; a number \
     counts only for a user without a name. At most 10000 users have one.",
};

/// What the names of [`WEIGHTS`] begin with.
pub const WEIGHT: &str = "weight.user.";
/// Users that have a weight.
pub const WEIGHTS_MAX: usize = 10_000;
/// The longest name of a user that has one, in bytes.
pub(super) const USER_MAX: usize = 64;

/// All variables for lists: those of the table, then [`WEIGHTS`].
pub fn all() -> impl Iterator<Item = &'static Definition> {
    TABLE.iter().chain(std::iter::once(&WEIGHTS))
}
