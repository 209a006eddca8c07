//! What can be retuned: name, type, unit, range, default and meaning of each variable, in one
//! table.
//!
//! The table is the only place that names a variable: the getters of [`Variables`], what psched.yaml
//! may set, the error for a value that is out of range and the lists on screens all come from it.
//! (The manual psched.yaml(5) is written by hand; a test compares it with the table.)
//!
//! ```
//! # use psched::variables::Variables;
//! # use std::time::Duration;
//! let mut variables = Variables::default();
//! variables.set("kill_grace", "1m30s").unwrap();
//! assert_eq!(variables.kill_grace(), Duration::from_secs(90));
//! assert_eq!(
//!     variables.set("kill_grase", "5s").unwrap_err().to_string(),
//!     "there is no variable kill_grase; did you mean kill_grace?"
//! );
//! ```
//!
//! Durations are kept in nanoseconds. How durations and sizes are written is in [`units`].

pub mod units;

use std::fmt;
use std::time::Duration;
use units::{
    format_duration, format_size, format_thousandths, parse_duration, parse_size, parse_thousandths,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What a variable's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A length of time; its number is nanoseconds.
    Duration,
    /// A whole number.
    Count,
    /// Of memory; its number is bytes.
    Size,
    /// One of [`Isolation`]; its number is the place in [`Isolation::ALL`].
    Isolation,
    /// One of [`Order`]; its number is the place in [`Order::ALL`].
    Order,
    /// A factor such as 1.5; its number is thousandths.
    Ratio,
    /// A share such as 5%; its number is thousandths of the whole.
    Percent,
}

/// In which order gangs that compete have their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Order {
    /// Who has waited longest leads for one time slice.
    #[default]
    RoundRobin,
    /// By the time had so far, in a few levels; within a level by arrival.
    LeastAttainedService,
}

impl Order {
    /// All of them, with their names.
    pub const ALL: [(Order, &str); 2] = [
        (Order::RoundRobin, "round-robin"),
        (Order::LeastAttainedService, "least-attained-service"),
    ];
}

/// Whether an application has IPC and a /dev/shm of its own on each host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Wherever that is possible: for an ordinary user's apinit by a user namespace.
    #[default]
    Auto,
    /// Only where apinit is root's, and so no user namespace is needed.
    Root,
    /// Never.
    Off,
}

impl Isolation {
    /// All of them, with their names.
    pub const ALL: [(Isolation, &str); 3] =
        [(Isolation::Auto, "auto"), (Isolation::Root, "root"), (Isolation::Off, "off")];
}

impl Kind {
    /// The name on screens and in the manual.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Duration => "duration",
            Kind::Count => "count",
            Kind::Size => "size",
            Kind::Isolation | Kind::Order => "word",
            Kind::Ratio => "ratio",
            Kind::Percent => "percentage",
        }
    }

    /// A value as people write it.
    fn format(self, value: u64) -> String {
        match self {
            Kind::Duration => format_duration(Duration::from_nanos(value)),
            Kind::Count => value.to_string(),
            Kind::Size => format_size(value),
            Kind::Isolation => one_of(&Isolation::ALL, value).1.to_owned(),
            Kind::Order => one_of(&Order::ALL, value).1.to_owned(),
            Kind::Ratio => format_thousandths(value),
            Kind::Percent => format!("{}%", format_thousandths(value.saturating_mul(100))),
        }
    }

    fn parse(self, text: &str) -> Option<u64> {
        match self {
            Kind::Duration => parse_duration(text).ok()?.as_nanos().try_into().ok(),
            Kind::Count => text.trim().parse().ok(),
            Kind::Size => parse_size(text).ok(),
            Kind::Isolation => place_of(&Isolation::ALL, text),
            Kind::Order => place_of(&Order::ALL, text),
            Kind::Ratio => parse_thousandths(text.trim()),
            // A hundredth of a percent is beyond what is kept.
            Kind::Percent => {
                let hundredfold = parse_thousandths(text.trim().strip_suffix('%')?.trim_end())?;
                (hundredfold % 100 == 0).then_some(hundredfold / 100)
            }
        }
    }
}

/// The word of this number; beyond them the last.
fn one_of<T: Copy>(all: &[(T, &'static str)], value: u64) -> (T, &'static str) {
    let last = all.len() - 1;
    all[usize::try_from(value).unwrap_or(last).min(last)]
}

/// The number of this word.
fn place_of<T>(all: &[(T, &str)], text: &str) -> Option<u64> {
    let place = all.iter().position(|(_, name)| *name == text.trim())?;
    u64::try_from(place).ok()
}

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
    /// What it does, in a line.
    pub meaning: &'static str,
}

impl Definition {
    /// Its range as people write it: `0s to 1h`.
    pub fn range(&self) -> String {
        match self.kind {
            Kind::Duration | Kind::Count | Kind::Size | Kind::Ratio | Kind::Percent => {
                format!("{} to {}", self.kind.format(self.min), self.kind.format(self.max))
            }
            Kind::Isolation => Isolation::ALL.map(|(_, name)| name).join(", "),
            Kind::Order => Order::ALL.map(|(_, name)| name).join(", "),
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
    (Isolation) => {
        Isolation
    };
    (Order) => {
        Order
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
    (Isolation, $value:expr) => {
        one_of(&Isolation::ALL, $value).0
    };
    (Order, $value:expr) => {
        one_of(&Order::ALL, $value).0
    };
    (Ratio, $value:expr) => {
        $value
    };
    (Percent, $value:expr) => {
        $value
    };
}

/// Makes the table, and a getter for each of its rows: `application_order` for `application.order`
/// too, which is given in quotes.
macro_rules! variables {
    ($($name:ident $(= $text:literal)?: $kind:ident, $min:expr => $max:expr, default $default:expr, $meaning:literal;)*) => {
        /// All variables, by name.
        pub const TABLE: &[Definition] = &[$(Definition {
            name: variables!(@name $name $($text)?),
            kind: Kind::$kind,
            min: $min,
            max: $max,
            default: $default,
            meaning: $meaning,
        }),*];

        /// Rows of the table, by name.
        #[allow(non_camel_case_types)]
        enum Row { $($name),* }

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
    (@name $name:ident) => {
        stringify!($name)
    };
    (@name $name:ident $text:literal) => {
        $text
    };
}

variables! {
    answer_time: Duration, SECOND => 10 * MINUTE, default 10 * SECOND,
        "how long a connection may leave a keepalive unanswered before it is closed";
    apkill_grace: Duration, 0 => 24 * HOUR, default 5 * MINUTE,
        "time between the TERM of apkill and the KILL that follows it";
    application_longest_wait = "application.longest_wait": Duration, MINUTE => 365 * DAY, default 7 * DAY,
        "how long a gang or posting may wait before it leads next, whatever the order";
    application_max_resident = "application.max_resident": Count, 1 => 64, default 4,
        "gangs that may sit on a processor, taking turns; 1: nobody shares";
    application_memory_overcommit = "application.memory_overcommit": Ratio, 100 => 100_000, default 1_000,
        "how often a node's memory may be promised to the applications on it";
    application_order = "application.order": Order, 0 => Order::ALL.len() as u64 - 1, default 0,
        "in which order gangs that compete have their turns";
    application_switch_share = "application.switch_share": Percent, 1 => 1_000, default 50,
        "the share of a slice that bringing memory in may take before the slice is lengthened";
    application_time_slice = "application.time_slice": Duration, 10 * MS => HOUR, default SECOND,
        "how long a gang leads before the turn of the next (round-robin)";
    applications_max: Count, 1 => 65_536, default 4_096,
        "applications on a host at once";
    connections_max: Count, 16 => 1_000_000, default 8_192,
        "connections at once to psched's socket, and to that of each apinit";
    connections_user_max: Count, 4 => 1_000_000, default 2_048,
        "connections at once to each of these sockets of one user other than root and the daemon's own";
    freeze_wait: Duration, 0 => SECOND, default MS,
        "how long a frozen gang's last process is waited for before the next gang is let run";
    front_kill_grace: Duration, 0 => MINUTE, default 2 * SECOND,
        "time between TERM and KILL for an application whose aprun has died";
    history_max: Count, 0 => 10_000_000, default 10_000,
        "ended applications of which a record is kept";
    isolation: Isolation, 0 => Isolation::ALL.len() as u64 - 1, default 0,
        "whether an application has IPC and a /dev/shm of its own on each host";
    kill_grace: Duration, 0 => HOUR, default 5 * SECOND,
        "time between TERM and KILL when an application is ended";
    launches_user_max: Count, 1 => 65_536, default 64,
        "launches of one user that wait at once on a host for psched's word of their placement";
    orders_max: Count, 1 => 10_000, default 64,
        "orders of psmgr that wait for their nodes at once";
    output_max: Size, 256 * KIB => 64 * MIB, default 2 * MIB,
        "output of an application kept on each host for an aprun that does not read it";
    passed_over_max: Count, 1 => 1_000_000, default 50,
        "how many later postings may start past a waiting one before nodes are kept for it";
    pids_max: Count, 16 => 4_194_304, default 16_384,
        "processes and threads that an application may have on each node";
    plan_lead: Duration, MS => 10 * SECOND, default 20 * MS,
        "how long before its beginning a slice plan is sent to its nodes";
    pmi_max: Size, MIB => 1_024 * MIB, default 64 * MIB,
        "keys and values that the PEs of an application may put by PMI";
    postings_max: Count, 1 => 10_000_000, default 100_000,
        "postings that wait at once";
    postings_user_max: Count, 1 => 10_000_000, default 10_000,
        "postings of one user that wait at once";
    stdin_max: Size, 64 * KIB => 16 * MIB, default 256 * KIB,
        "stdin of an application that is read before PE 0 has read it";
    streams_max: Count, 16 => 4_096, default 256,
        "requests at once on a connection to psched's socket; more wait at the caller";
    ticket_time: Duration, SECOND => HOUR, default 60 * SECOND,
        "how long a placement waits for its launch before its nodes are taken back";
    watches_max: Count, 1 => 65_536, default 64,
        "streams that watch one application at once";
}

/// What cures a refusal at a bound: `have an administrator raise postings_max (100000) in
/// psched.yaml`. `value` is the variable's value now, as text.
pub fn raise(name: &str, value: impl fmt::Display) -> String {
    debug_assert!(TABLE.iter().any(|row| row.name == name), "{name} is no variable");
    format!("have an administrator raise {name} ({value}) in psched.yaml")
}

/// The value of every variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variables {
    values: [u64; TABLE.len()],
}

impl Default for Variables {
    fn default() -> Variables {
        let mut values = [0; TABLE.len()];
        for (value, row) in values.iter_mut().zip(TABLE) {
            *value = row.default;
        }
        Variables { values }
    }
}

/// Why a variable can't be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariableError {
    /// There is none of this name.
    Unknown {
        /// The name given.
        name: String,
        /// The name that it resembles.
        nearest: Option<&'static str>,
    },
    /// The value is not of the variable's type.
    NotAValue {
        /// Which variable.
        row: Definition,
        /// The value given.
        text: String,
    },
    /// The value is out of range.
    OutOfRange {
        /// Which variable.
        row: Definition,
        /// The value given.
        text: String,
    },
}

impl std::error::Error for VariableError {}

impl VariableError {
    /// What is wrong.
    pub fn what(&self) -> String {
        match self {
            VariableError::Unknown { name, .. } => format!("there is no variable {name}"),
            VariableError::NotAValue { row, text } => {
                format!("\"{text}\" is no value of {}", row.name)
            }
            VariableError::OutOfRange { row, text } => {
                format!("{text} is out of the range of {}", row.name)
            }
        }
    }

    /// What would cure it.
    pub fn cure(&self) -> String {
        match self {
            VariableError::Unknown { nearest: Some(nearest), .. } => {
                format!("did you mean {nearest}?")
            }
            VariableError::Unknown { nearest: None, .. } => {
                let names: Vec<&str> = TABLE.iter().map(|row| row.name).collect();
                format!("there are {}", names.join(", "))
            }
            VariableError::NotAValue { row, .. } | VariableError::OutOfRange { row, .. } => {
                let such = match row.kind {
                    Kind::Duration => "a duration such as 500ms, 5s or 1m30s",
                    Kind::Count => "a whole number",
                    Kind::Size => "a size such as 512K, 100M or 8G",
                    Kind::Isolation | Kind::Order => "a word",
                    Kind::Ratio => "a number such as 1.5",
                    Kind::Percent => "a percentage such as 5%",
                };
                format!("give {such}, {}", row.range())
            }
        }
    }
}

impl fmt::Display for VariableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what(), self.cure())
    }
}

/// A variable and its value, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its row of the table.
    pub row: Definition,
    /// Its value.
    pub value: String,
    /// The value is the default.
    pub is_default: bool,
}

impl Variables {
    /// Sets a variable from text.
    ///
    /// # Errors
    /// An unknown name, a text that is no value of its type, or a value out of its range; nothing
    /// is changed then.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), VariableError> {
        let Some(at) = TABLE.iter().position(|row| row.name == name) else {
            return Err(VariableError::Unknown { name: name.into(), nearest: nearest(name) });
        };
        let row = TABLE[at];
        let Some(value) = row.kind.parse(text) else {
            return Err(VariableError::NotAValue { row, text: text.into() });
        };
        if value < row.min || value > row.max {
            return Err(VariableError::OutOfRange { row, text: text.into() });
        }
        self.values[at] = value;
        Ok(())
    }

    /// All of them with their values, by name.
    pub fn show(&self) -> Vec<Shown> {
        let shown = |(row, value): (&Definition, &u64)| Shown {
            row: *row,
            value: row.kind.format(*value),
            is_default: *value == row.default,
        };
        TABLE.iter().zip(&self.values).map(shown).collect()
    }
}

/// The known name that is a typing error or two away.
fn nearest(name: &str) -> Option<&'static str> {
    let far = 1 + name.len() / 5;
    let near = TABLE.iter().map(|row| (distance(name, row.name), row.name)).min()?;
    (near.0 <= far).then_some(near.1)
}

/// Letters to be changed, added or removed to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    // A name that is no name need not be compared in full.
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_its_defaults_in_range() {
        assert!(TABLE.is_sorted_by(|a, b| a.name < b.name));
        for row in TABLE {
            assert!((row.min..=row.max).contains(&row.default), "{}", row.name);
            // A range and a default read back as what they are.
            for value in [row.min, row.max, row.default] {
                assert_eq!(row.kind.parse(&row.kind.format(value)), Some(value), "{}", row.name);
                let mut variables = Variables::default();
                assert_eq!(variables.set(row.name, &row.kind.format(value)), Ok(()));
            }
        }
    }

    #[test]
    fn getters_tell_what_was_set() {
        let mut variables = Variables::default();
        assert_eq!(variables.kill_grace(), Duration::from_secs(5));
        assert_eq!(variables.ticket_time(), Duration::from_secs(60));
        assert_eq!(variables.passed_over_max(), 50);
        for (name, text) in
            [("kill_grace", "500ms"), ("ticket_time", "90"), ("passed_over_max", " 7 ")]
        {
            assert_eq!(variables.set(name, text), Ok(()), "{name}");
        }
        assert_eq!(variables.kill_grace(), Duration::from_millis(500));
        assert_eq!(variables.ticket_time(), Duration::from_secs(90));
        assert_eq!(variables.passed_over_max(), 7);
        let changed: Vec<_> =
            variables.show().into_iter().filter(|s| !s.is_default).map(|s| s.value).collect();
        assert_eq!(changed, ["500ms", "7", "1m30s"]);
    }

    #[test]
    fn what_cannot_be_set_is_said() {
        for (name, text, said) in [
            (
                "kill_grace",
                "2h",
                "2h is out of the range of kill_grace; \
                 give a duration such as 500ms, 5s or 1m30s, 0s to 1h",
            ),
            (
                "kill_grace",
                "soon",
                "\"soon\" is no value of kill_grace; \
                 give a duration such as 500ms, 5s or 1m30s, 0s to 1h",
            ),
            (
                "passed_over_max",
                "-1",
                "\"-1\" is no value of passed_over_max; give a whole number, 1 to 1000000",
            ),
            (
                "passed_over_max",
                "0",
                "0 is out of the range of passed_over_max; give a whole number, 1 to 1000000",
            ),
            (
                "output_max",
                "much",
                "\"much\" is no value of output_max; \
                 give a size such as 512K, 100M or 8G, 256K to 64M",
            ),
            (
                "application.switch_share",
                "5",
                "\"5\" is no value of application.switch_share; \
                 give a percentage such as 5%, 0.1% to 100%",
            ),
            (
                "application.memory_overcommit",
                "0.05",
                "0.05 is out of the range of application.memory_overcommit; \
                 give a number such as 1.5, 0.1 to 100",
            ),
            ("isolation", "on", "\"on\" is no value of isolation; give a word, auto, root, off"),
            (
                "pased_over_mx",
                "1",
                "there is no variable pased_over_mx; did you mean passed_over_max?",
            ),
            (
                "colour",
                "red",
                "there is no variable colour; there are answer_time, apkill_grace, \
                 application.longest_wait, application.max_resident, application.memory_overcommit, \
                 application.order, application.switch_share, application.time_slice, \
                 applications_max, \
                 connections_max, connections_user_max, freeze_wait, front_kill_grace, history_max, \
                 isolation, \
                 kill_grace, launches_user_max, orders_max, output_max, passed_over_max, pids_max, \
                 plan_lead, \
                 pmi_max, postings_max, postings_user_max, stdin_max, streams_max, ticket_time, \
                 watches_max",
            ),
        ] {
            let mut variables = Variables::default();
            assert_eq!(variables.set(name, text).map_err(|e| e.to_string()), Err(said.into()));
            assert_eq!(variables, Variables::default());
        }
    }
}
