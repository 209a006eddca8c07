//! What values of variables are, and how people write them.

use super::units::{
    format_duration, format_size, format_thousandths, parse_duration, parse_size, parse_thousandths,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a variable's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A length of time; its number is nanoseconds.
    Duration,
    /// A whole number.
    Count,
    /// Of memory; its number is bytes.
    Size,
    /// Yes or no; its number is the place in `FLAG`.
    Flag,
    /// One of [`Isolation`]; its number is the place in [`Isolation::ALL`].
    Isolation,
    /// One of [`Allocator`]; its number is the place in [`Allocator::ALL`].
    Allocator,
    /// One of [`ShareBy`]; its number is the place in [`ShareBy::ALL`].
    ShareBy,
    /// One of [`Private`]; its number is the place in [`Private::ALL`].
    Private,
    /// A factor such as 1.5; its number is thousandths.
    Ratio,
    /// A share such as 5%; its number is thousandths of the whole.
    Percent,
}

/// What a flag may be, as people write it.
pub(super) const FLAG: [&str; 2] = ["yes", "no"];

/// Whose share of the processors the time of an application counts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ShareBy {
    /// Its user's.
    #[default]
    User,
    /// That of the account that it names; its user's where it names none.
    Account,
    /// There are no shares.
    Application,
}

impl ShareBy {
    /// All of them, with their names.
    pub const ALL: [(ShareBy, &str); 3] = [
        (ShareBy::User, "user"),
        (ShareBy::Account, "account"),
        (ShareBy::Application, "application"),
    ];
}

/// Which of several windows on free processors an application is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Allocator {
    /// The one that leaves least over on its nodes, in the smallest gap.
    #[default]
    BestFit,
    /// The one that begins at the lowest NID.
    FirstFit,
    /// The first one from the high end of the line for a wide application, from the low end for others.
    WideFromOneEnd,
}

impl Allocator {
    /// All of them, with their names.
    pub const ALL: [(Allocator, &str); 3] = [
        (Allocator::BestFit, "best-fit"),
        (Allocator::FirstFit, "first-fit"),
        (Allocator::WideFromOneEnd, "wide-from-one-end"),
    ];

    /// The end of the line nearest to which an application is placed; none: it goes by something else. `wide`: it
    /// has `application.allocator_wide` PEs or more.
    pub fn end(self, wide: bool) -> Option<End> {
        match self {
            Allocator::FirstFit => Some(End::Low),
            Allocator::WideFromOneEnd => Some(if wide { End::High } else { End::Low }),
            Allocator::BestFit => None,
        }
    }
}

/// An end of the line of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where the lowest NID is.
    Low,
    /// Where the highest is.
    High,
}

/// Whether an application has IPC and a /dev/shm of its own on each host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
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

/// What users who are no administrators do not see of others' applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Private {
    /// They see all.
    #[default]
    Off,
    /// Their command lines.
    Commands,
    /// That there are any.
    All,
}

impl Private {
    /// All of them, with their names.
    pub const ALL: [(Private, &str); 3] =
        [(Private::Off, "off"), (Private::Commands, "commands"), (Private::All, "all")];
}

impl Kind {
    /// The name on screens and in the manual.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Duration => "duration",
            Kind::Count => "count",
            Kind::Size => "size",
            Kind::Flag | Kind::Isolation | Kind::Allocator | Kind::ShareBy | Kind::Private => {
                "word"
            }
            Kind::Ratio => "ratio",
            Kind::Percent => "percentage",
        }
    }

    /// What a value of this kind looks like, for whoever gave another.
    pub(super) fn such(self) -> &'static str {
        match self {
            Kind::Duration => "a duration such as 500ms, 5s or 1m30s",
            Kind::Count => "a whole number",
            Kind::Size => "a size such as 512K, 100M or 8G",
            Kind::Flag | Kind::Isolation | Kind::Allocator | Kind::ShareBy | Kind::Private => {
                "a word"
            }
            Kind::Ratio => "a number such as 1.5",
            Kind::Percent => "a percentage such as 5%",
        }
    }

    /// A value as people write it.
    pub(super) fn format(self, value: u64) -> String {
        match self {
            Kind::Duration => format_duration(Duration::from_nanos(value)),
            Kind::Count => value.to_string(),
            Kind::Size => format_size(value),
            Kind::Flag => FLAG[usize::from(value != 0)].to_owned(),
            Kind::Isolation => one_of(&Isolation::ALL, value).1.to_owned(),
            Kind::Private => one_of(&Private::ALL, value).1.to_owned(),
            Kind::Allocator => one_of(&Allocator::ALL, value).1.to_owned(),
            Kind::ShareBy => one_of(&ShareBy::ALL, value).1.to_owned(),
            Kind::Ratio => format_thousandths(value),
            Kind::Percent => format!("{}%", format_thousandths(value.saturating_mul(100))),
        }
    }

    /// The value of this text; none: it is not of this kind.
    pub(super) fn parse(self, text: &str) -> Option<u64> {
        match self {
            Kind::Duration => parse_duration(text).ok()?.as_nanos().try_into().ok(),
            Kind::Count => text.trim().parse().ok(),
            Kind::Size => parse_size(text).ok(),
            Kind::Flag => FLAG.iter().position(|word| *word == text.trim())?.try_into().ok(),
            Kind::Isolation => place_of(&Isolation::ALL, text),
            Kind::Private => place_of(&Private::ALL, text),
            Kind::Allocator => place_of(&Allocator::ALL, text),
            Kind::ShareBy => place_of(&ShareBy::ALL, text),
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
pub(super) fn one_of<T: Copy>(all: &[(T, &'static str)], value: u64) -> (T, &'static str) {
    let last = all.len() - 1;
    all[usize::try_from(value).unwrap_or(last).min(last)]
}

/// The number of this word.
fn place_of<T>(all: &[(T, &str)], text: &str) -> Option<u64> {
    let place = all.iter().position(|(_, name)| *name == text.trim())?;
    u64::try_from(place).ok()
}
