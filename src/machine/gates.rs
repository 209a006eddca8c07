//! Gates: who is let into a region.
//!
//! # Problem
//! "No more than 8 PEs", "only the ocean group", "only at night", "only who is too wide for the ordinary
//! nodes": an administrator writes such conditions down once, and nothing may get round them, neither a
//! placement nor a move nor a restart.
//!
//! # Approach
//! [`Gate::lets`] is the one place where that is decided. It is told of an [`Applicant`] only what the kernel or
//! the posting said, and answers with the first condition that says no ([`Bar`]), so that people hear why.
//! Two things about it are not fixed: the time of day ([`Gate::open_at`]), and how wide is too wide for another
//! region, which is a question of placement and is asked back.

use crate::variables::units::{format_duration, format_size};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// Seconds of a day.
pub const DAY: u32 = 86_400;

/// From one number to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Between<T> {
    /// The least; none: any.
    pub least: Option<T>,
    /// The most; none: any.
    pub most: Option<T>,
}

impl<T: PartialOrd> Between<T> {
    fn has(&self, value: &T) -> bool {
        self.least.as_ref().is_none_or(|least| value >= least)
            && self.most.as_ref().is_none_or(|most| value <= most)
    }

    /// In words, each number as it is written.
    fn words(&self, write: impl Fn(&T) -> String) -> String {
        match (&self.least, &self.most) {
            (Some(least), Some(most)) => format!("{} to {}", write(least), write(most)),
            (Some(least), None) => format!("{} or more", write(least)),
            (None, Some(most)) => format!("{} or less", write(most)),
            (None, None) => "any".into(),
        }
    }
}

/// A time of every day, in local time: from the first second to before the last, over midnight where that is
/// the lower number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hours {
    /// Seconds since midnight.
    pub from: u32,
    /// Seconds since midnight.
    pub until: u32,
}

impl Hours {
    /// Whether this second of the day is in it.
    pub fn has(&self, second: u32) -> bool {
        match self.from < self.until {
            true => (self.from..self.until).contains(&second),
            false => second >= self.from || second < self.until,
        }
    }

    /// Seconds from this second of the day until it begins or ends.
    pub fn next_change(&self, second: u32) -> u32 {
        let until = |at: u32| (at + DAY - second % DAY - 1) % DAY + 1;
        until(self.from).min(until(self.until))
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |at: u32| format!("{:02}:{:02}", at / 3600, at / 60 % 60);
        write!(f, "{}-{}", time(self.from), time(self.until))
    }
}

/// With a terminal, or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Its aprun has a controlling terminal.
    Interactive,
    /// It has none: it was started by a batch system, a timer, a service.
    Batch,
}

impl Mode {
    /// The word in psched.yaml.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Interactive => "interactive",
            Mode::Batch => "batch",
        }
    }
}

/// Users and groups: whoever is one of the users, or in one of the groups, is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct People {
    /// Users, by name or by number.
    pub users: BTreeSet<Who>,
    /// Groups. Those by name are looked up when psched.yaml is read.
    pub groups: BTreeSet<Who>,
}

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Who {
    /// By number.
    Id(u32),
    /// By name.
    Name(String),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Id(id) => id.fmt(f),
            Who::Name(name) => name.fmt(f),
        }
    }
}

impl People {
    /// Whether nobody is named.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Whether this one is meant.
    pub fn has(&self, who: &Person<'_>) -> bool {
        self.users.contains(&Who::Id(who.uid))
            || !who.name.is_empty() && self.users.contains(&Who::Name(who.name.to_owned()))
            || self.groups.contains(&Who::Id(who.gid))
            || who.groups.iter().any(|gid| self.groups.contains(&Who::Id(*gid)))
    }

    /// Groups that are known by name only, each with its number, where it has one.
    pub fn look_up(&mut self, number: &mut dyn FnMut(&str) -> Option<u32>) {
        let known = std::mem::take(&mut self.groups).into_iter().map(|who| match who {
            Who::Name(name) => number(&name).map_or(Who::Name(name), Who::Id),
            id => id,
        });
        self.groups = known.collect();
    }
}

impl fmt::Display for People {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |all: &BTreeSet<Who>| {
            let names: Vec<String> = all.iter().map(Who::to_string).collect();
            names.join(", ")
        };
        let users = |f: &mut fmt::Formatter<'_>| {
            let s = if self.users.len() == 1 { "" } else { "s" };
            write!(f, "user{s} {}", names(&self.users))
        };
        let groups = |f: &mut fmt::Formatter<'_>| {
            let s = if self.groups.len() == 1 { "" } else { "s" };
            write!(f, "group{s} {}", names(&self.groups))
        };
        match (self.users.is_empty(), self.groups.is_empty()) {
            (false, true) => users(f),
            (true, false) => groups(f),
            (true, true) => f.write_str("nobody"),
            (false, false) => {
                users(f)?;
                f.write_str(" and ")?;
                groups(f)
            }
        }
    }
}

/// Somebody, as the kernel knows him.
#[derive(Clone, Copy, Debug, Default)]
pub struct Person<'a> {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'a [u32],
    /// His name, where he has one.
    pub name: &'a str,
}

/// An account, and who may use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountEntry {
    /// Its name.
    pub name: String,
    /// Who may; nobody named: everybody.
    pub people: People,
}

impl AccountEntry {
    /// Whether this one may use it.
    pub fn lets(&self, who: &Person<'_>) -> bool {
        self.people.is_empty() || self.people.has(who)
    }
}

/// The conditions for entering a region: all that are given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// PEs.
    pub width: Option<Between<u32>>,
    /// Only who has more PEs than this region could hold in their shape if nobody sat there: its name, and its
    /// place.
    pub too_wide_for: Option<(String, usize)>,
    /// Who.
    pub people: Option<People>,
    /// By what accounts.
    pub accounts: Option<BTreeSet<String>>,
    /// With a terminal, or without.
    pub mode: Option<Mode>,
    /// When, every day.
    pub hours: Option<Hours>,
    /// `--time-limit`: who gives none may run for ever.
    pub time_limit: Option<Between<Duration>>,
    /// `-m`, for each PE: who gives none asks for 0.
    pub memory: Option<Between<u64>>,
}

/// Who asks to be let in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Applicant<'a> {
    /// Whose it is, as the kernel said.
    pub person: Person<'a>,
    /// Its front end has a controlling terminal, as the kernel said.
    pub terminal: bool,
    /// PEs.
    pub width: u32,
    /// `--account`.
    pub account: Option<&'a str>,
    /// `--time-limit`.
    pub time_limit: Option<Duration>,
    /// `-m`, in bytes for each PE.
    pub memory_per_pe: Option<u64>,
}

/// What says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar<'a> {
    /// Its number of PEs.
    Width(Between<u32>),
    /// It fits in another region, of this name, in its shape.
    NotTooWide(&'a str),
    /// Whose it is.
    People(&'a People),
    /// Its account.
    Accounts(&'a BTreeSet<String>),
    /// Whether it has a terminal.
    Mode(Mode),
    /// Its time limit.
    TimeLimit(Between<Duration>),
    /// Its memory.
    Memory(Between<u64>),
    /// The time of day.
    Hours(Hours),
}

impl Bar<'_> {
    /// What follows the name of a region.
    pub fn only(&self) -> String {
        format!("lets in only {self}")
    }
}

impl fmt::Display for Bar<'_> {
    /// What follows "lets in only".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bar::Width(width) => {
                write!(f, "applications of {} PEs", width.words(u32::to_string))
            }
            Bar::NotTooWide(name) => write!(f, "applications too wide for region {name}"),
            Bar::People(people) => write!(f, "{people}"),
            Bar::Accounts(accounts) => {
                let names: Vec<&str> = accounts.iter().map(String::as_str).collect();
                let s = if names.len() == 1 { "" } else { "s" };
                write!(f, "account{s} {} (--account)", names.join(", "))
            }
            Bar::Mode(Mode::Interactive) => f.write_str("aprun with a terminal"),
            Bar::Mode(Mode::Batch) => f.write_str("aprun without a terminal"),
            Bar::TimeLimit(limit) => {
                let words = limit.words(|limit| format_duration(*limit));
                write!(f, "applications with a --time-limit of {words}")
            }
            Bar::Memory(memory) => {
                let words = memory.words(|bytes| format_size(*bytes));
                write!(f, "applications with -m {words}")
            }
            Bar::Hours(hours) => write!(f, "applications placed at {hours}"),
        }
    }
}

impl Gate {
    /// Whether it lets somebody in, the time of day aside. `holds`: how many PEs the region at that place could
    /// hold in this one's shape.
    ///
    /// # Errors
    /// The first condition that says no.
    pub fn lets(&self, who: &Applicant<'_>, holds: impl Fn(usize) -> u32) -> Result<(), Bar<'_>> {
        if let Some(width) = self.width.filter(|width| !width.has(&who.width)) {
            return Err(Bar::Width(width));
        }
        if let Some(people) = self.people.as_ref().filter(|people| !people.has(&who.person)) {
            return Err(Bar::People(people));
        }
        let by_none = |accounts: &&BTreeSet<String>| {
            who.account.is_none_or(|account| !accounts.contains(account))
        };
        if let Some(accounts) = self.accounts.as_ref().filter(by_none) {
            return Err(Bar::Accounts(accounts));
        }
        let mode = if who.terminal { Mode::Interactive } else { Mode::Batch };
        if let Some(wanted) = self.mode.filter(|wanted| *wanted != mode) {
            return Err(Bar::Mode(wanted));
        }
        let limit = who.time_limit.unwrap_or(Duration::MAX);
        if let Some(wanted) = self.time_limit.filter(|wanted| !wanted.has(&limit)) {
            return Err(Bar::TimeLimit(wanted));
        }
        let memory = who.memory_per_pe.unwrap_or(0);
        if let Some(wanted) = self.memory.filter(|wanted| !wanted.has(&memory)) {
            return Err(Bar::Memory(wanted));
        }
        match &self.too_wide_for {
            Some((name, region)) if who.width <= holds(*region) => Err(Bar::NotTooWide(name)),
            _ => Ok(()),
        }
    }

    /// Whether it lets anybody in at this second of the day.
    pub fn open_at(&self, second: u32) -> bool {
        self.hours.is_none_or(|hours| hours.has(second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between<T>(least: Option<T>, most: Option<T>) -> Option<Between<T>> {
        Some(Between { least, most })
    }

    #[test]
    fn each_condition_says_no_and_why() {
        let person = Person { uid: 7, gid: 70, groups: &[71], name: "alice" };
        let any = Applicant { person, terminal: true, width: 8, ..Applicant::default() };
        let check = |gate: Gate, who: Applicant<'_>, expected: &str| {
            let holds = |region| if region == 0 { 64 } else { 0 };
            let said = gate.lets(&who, holds).map_or_else(|bar| bar.to_string(), |()| "in".into());
            assert_eq!(said, expected);
        };
        let gate = Gate::default;
        check(gate(), any, "in");
        let wide = || Gate { width: between(Some(9), None), ..gate() };
        check(wide(), any, "applications of 9 or more PEs");
        check(wide(), Applicant { width: 9, ..any }, "in");
        let narrow = Gate { width: between(Some(1), Some(4)), ..gate() };
        check(narrow, any, "applications of 1 to 4 PEs");
        let overflow = || Gate { too_wide_for: Some(("ordinary".into(), 0)), ..gate() };
        let too_wide = "applications too wide for region ordinary";
        check(overflow(), Applicant { width: 64, ..any }, too_wide);
        check(overflow(), Applicant { width: 65, ..any }, "in");
        let people = |users: &[&str], groups: &[u32]| Gate {
            people: Some(People {
                users: users.iter().map(|name| Who::Name((*name).into())).collect(),
                groups: groups.iter().map(|gid| Who::Id(*gid)).collect(),
            }),
            ..gate()
        };
        check(people(&["alice"], &[]), any, "in");
        check(people(&["bob"], &[71]), any, "in");
        check(people(&["bob"], &[70]), any, "in");
        check(people(&["bob", "carol"], &[72]), any, "users bob, carol and group 72");
        let accounts = || Gate { accounts: Some(["ocean".into()].into()), ..gate() };
        check(accounts(), any, "account ocean (--account)");
        check(accounts(), Applicant { account: Some("ocean"), ..any }, "in");
        check(Gate { mode: Some(Mode::Interactive), ..gate() }, any, "in");
        check(Gate { mode: Some(Mode::Batch), ..gate() }, any, "aprun without a terminal");
        let hour = Duration::from_secs(3600);
        let short = || Gate { time_limit: between(None, Some(hour)), ..gate() };
        check(short(), any, "applications with a --time-limit of 1h or less");
        check(short(), Applicant { time_limit: Some(hour), ..any }, "in");
        let big = || Gate { memory: between(Some(1 << 30), None), ..gate() };
        check(big(), any, "applications with -m 1G or more");
        check(big(), Applicant { memory_per_pe: Some(2 << 30), ..any }, "in");
    }

    #[test]
    fn groups_are_looked_up_by_name() {
        let groups = ["ocean", "gone"].map(|name| Who::Name(name.into()));
        let mut people = People { groups: groups.into(), ..People::default() };
        people.look_up(&mut |name| (name == "ocean").then_some(71));
        assert!(people.has(&Person { groups: &[71], ..Person::default() }));
        assert_eq!(people.to_string(), "groups 71, gone");
    }

    #[test]
    fn hours_go_over_midnight() {
        let night = Hours { from: 20 * 3600, until: 6 * 3600 };
        let noon = 12 * 3600;
        assert_eq!([night.has(noon), night.has(0), night.has(6 * 3600)], [false, true, false]);
        assert_eq!(night.next_change(noon), 8 * 3600);
        assert_eq!(night.next_change(20 * 3600), 10 * 3600);
        assert_eq!(night.to_string(), "20:00-06:00");
        let day = Hours { from: 6 * 3600, until: 20 * 3600 };
        assert!((0..DAY).step_by(60).all(|second| day.has(second) != night.has(second)));
        assert!((0..DAY).step_by(60).all(|second| (1..=DAY).contains(&day.next_change(second))));
    }
}
