//! What can be retuned: name, type, unit, range, default and meaning of each variable, in one
//! table.
//!
//! The table is the only place that names a variable: the getters of [`Variables`], what psched.yaml
//! may set, the error for a value that is out of range, the lists on screens and the manuals all come
//! from it ([`table`]; a test says what the manuals are to say of a variable).
//!
//! ```
//! # use psched_pure::variables::Variables;
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
//!
//! Beside the variables of the table there is one for each user: `weight.user.NAME` ([`WEIGHTS`]). And those
//! that begin with `application.` are there once for each domain of the machine: where its regions name
//! a domain `batch`, `batch.time_slice` is that domain's, and `application.time_slice` is not.

mod kind;
#[cfg(test)]
mod manual;
mod retired;
mod table;
#[cfg(test)]
mod tests;
pub mod units;

pub use kind::{Allocator, End, Isolation, Kind, Private, ShareBy};
pub use table::{Definition, TABLE, WEIGHT, WEIGHTS, WEIGHTS_MAX, all};

/// The domain of regions that name none, and of a machine without regions.
pub const APPLICATION: &str = "application";

use std::collections::BTreeMap;
use std::fmt;
use table::USER_MAX;

/// What cures a refusal at a bound: `have an administrator raise postings_max (100000) with
/// psmgr set`. `value` is the variable's value now, as text.
pub fn raise(name: &str, value: impl fmt::Display) -> String {
    debug_assert!(TABLE.iter().any(|row| row.name == name), "{name} is no variable");
    format!("have an administrator raise {name} ({value}) with psmgr set")
}

/// The value of every variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variables {
    values: [u64; TABLE.len()],
    /// Of the users to whom one was given.
    weights: BTreeMap<String, u32>,
    /// The domains beside [`APPLICATION`], each with what its variables of the table are.
    domains: BTreeMap<String, [u64; TABLE.len()]>,
}

impl Default for Variables {
    fn default() -> Variables {
        let mut values = [0; TABLE.len()];
        for (value, row) in values.iter_mut().zip(TABLE) {
            *value = row.default;
        }
        Variables { values, weights: BTreeMap::new(), domains: BTreeMap::new() }
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
    /// There was one of this name in an earlier release.
    Retired {
        /// The name given.
        name: String,
        /// What became of it.
        became: &'static str,
    },
    /// It is of a domain that this machine has not.
    NoDomain {
        /// The domain.
        domain: String,
        /// Those that there are.
        domains: Vec<String>,
    },
    /// The value is not of the variable's type.
    NotAValue {
        /// Which variable.
        row: &'static Definition,
        /// Its name: the row may be of many.
        name: String,
        /// The value given.
        text: String,
    },
    /// The variable could have this value in an earlier release.
    RetiredValue {
        /// Which variable.
        row: &'static Definition,
        /// Its name.
        name: String,
        /// The value given.
        text: String,
        /// What became of it.
        became: &'static str,
    },
    /// The value is out of range.
    OutOfRange {
        /// Which variable.
        row: &'static Definition,
        /// Its name.
        name: String,
        /// The value given.
        text: String,
    },
    /// A weight is for somebody who can't be a user.
    NotAUser {
        /// The name given.
        name: String,
    },
    /// As many users have a weight as may.
    TooMany,
}

impl std::error::Error for VariableError {}

impl VariableError {
    /// What is wrong.
    pub fn what(&self) -> String {
        match self {
            VariableError::Unknown { name, .. } => format!("there is no variable {name}"),
            VariableError::Retired { name, became } => {
                format!("variable {name} was removed: {became}")
            }
            VariableError::NoDomain { domain, .. } => {
                format!("no region of this machine has the domain {domain}")
            }
            VariableError::NotAValue { name, text, .. } => {
                format!("\"{text}\" is not a value of {name}")
            }
            VariableError::RetiredValue { name, text, became, .. } => {
                format!("{name} can no longer be {text}: {became}")
            }
            VariableError::OutOfRange { name, text, .. } => {
                format!("{text} is out of the range of {name}")
            }
            VariableError::NotAUser { name } => format!("{name} does not name a user"),
            VariableError::TooMany => format!("{WEIGHTS_MAX} users have a weight, the maximum"),
        }
    }

    /// What would cure it.
    pub fn cure(&self) -> String {
        match self {
            VariableError::Unknown { nearest: Some(nearest), .. } => {
                format!("did you mean {nearest}?")
            }
            VariableError::Unknown { nearest: None, .. } => {
                "psched.yaml(5) and psmgr show list all variables".into()
            }
            VariableError::Retired { .. } => "leave it out".into(),
            VariableError::NoDomain { domains, .. } => {
                format!("give a region the key domain, or use one of: {}", domains.join(", "))
            }
            VariableError::NotAValue { row, .. }
            | VariableError::RetiredValue { row, .. }
            | VariableError::OutOfRange { row, .. } => {
                format!("give {}, {}", row.kind.such(), row.range())
            }
            VariableError::NotAUser { .. } => format!(
                "give the name of a user, of {USER_MAX} bytes at most, such as {WEIGHT}alice"
            ),
            VariableError::TooMany => "remove the weight of another user first".into(),
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
    /// Its name.
    pub name: String,
    /// Its row of the table.
    pub row: Definition,
    /// Its value.
    pub value: String,
}

impl Shown {
    /// The value is the default.
    pub fn is_default(&self) -> bool {
        self.value == self.row.default_text()
    }
}

impl Variables {
    /// Sets a variable from text.
    ///
    /// # Errors
    /// An unknown name, a text that is no value of its type, or a value out of its range; nothing
    /// is changed then.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), VariableError> {
        if let Some(user) = name.strip_prefix(WEIGHT) {
            let value = WEIGHTS.value(name, text)?;
            return self.set_weight(name, user, value as u32);
        }
        let (domain, at) = self.find(name)?;
        let value = TABLE[at].value(name, text)?;
        match self.domains.get_mut(domain) {
            Some(values) => values[at] = value,
            None => self.values[at] = value,
        }
        Ok(())
    }

    /// The domain of a variable, and its row; of one of the machine's: [`APPLICATION`].
    fn find<'a>(&self, name: &'a str) -> Result<(&'a str, usize), VariableError> {
        let (domain, at) = find(name)?;
        if domain == APPLICATION || self.domains.contains_key(domain) {
            return Ok((domain, at));
        }
        match nearest(name, spellings()) {
            Some(near) => Err(VariableError::Unknown { name: name.into(), nearest: Some(near) }),
            None => Err(VariableError::NoDomain {
                domain: domain.into(),
                domains: self.domains().map(str::to_owned).collect(),
            }),
        }
    }

    /// The row of a variable of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn row(&self, name: &str) -> Result<&'static Definition, VariableError> {
        match name.starts_with(WEIGHT) {
            true => Ok(&WEIGHTS),
            false => Ok(&TABLE[self.find(name)?.1]),
        }
    }

    /// There are these domains, and no others, beside [`APPLICATION`]. A new one has the defaults of
    /// `application.*`; those that were there keep what was set.
    pub fn set_domains<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let fresh = Variables::default().values;
        let mut before = std::mem::take(&mut self.domains);
        let others = names.into_iter().filter(|name| *name != APPLICATION);
        self.domains =
            others.map(|name| (name.into(), before.remove(name).unwrap_or(fresh))).collect();
    }

    /// The domains, [`APPLICATION`] first.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        std::iter::once(APPLICATION).chain(self.domains.keys().map(String::as_str))
    }

    /// As they are for one domain: its variables stand where those of [`APPLICATION`] do. One that is not
    /// there has those of [`APPLICATION`].
    #[must_use]
    pub fn of_domain(&self, name: &str) -> Variables {
        let mut of = self.clone();
        if let Some(values) = self.domains.get(name) {
            for (at, row) in TABLE.iter().enumerate() {
                if in_domains(row).is_some() {
                    of.values[at] = values[at];
                }
            }
        }
        of
    }

    fn set_weight(&mut self, name: &str, user: &str, value: u32) -> Result<(), VariableError> {
        let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, ':' | '/' | '=');
        if user.is_empty() || user.len() > USER_MAX || user.contains(odd) {
            return Err(VariableError::NotAUser { name: name.chars().take(100).collect() });
        }
        if self.weights.len() >= WEIGHTS_MAX && !self.weights.contains_key(user) {
            return Err(VariableError::TooMany);
        }
        self.weights.insert(user.to_owned(), value);
        Ok(())
    }

    /// The value of a variable as people write it; none: there is no such variable.
    pub fn get(&self, name: &str) -> Option<String> {
        if let Some(user) = name.strip_prefix(WEIGHT) {
            let weight = self.weights.get(user).map_or(WEIGHTS.default, |w| u64::from(*w));
            return Some(WEIGHTS.kind.format(weight));
        }
        let (domain, at) = self.find(name).ok()?;
        let values = self.domains.get(domain).unwrap_or(&self.values);
        Some(TABLE[at].kind.format(values[at]))
    }

    /// Weights of users, by name, where they are not 1.
    pub fn weights(&self) -> BTreeMap<String, u32> {
        let other = |(_, weight): &(&String, &u32)| u64::from(**weight) != WEIGHTS.default;
        self.weights.iter().filter(other).map(|(user, weight)| (user.clone(), *weight)).collect()
    }

    /// All of them with their values, by name, then those of other domains, and of users.
    pub fn show(&self) -> Vec<Shown> {
        let shown = |(row, value): (&Definition, &u64)| Shown {
            name: row.name.to_owned(),
            row: *row,
            value: row.kind.format(*value),
        };
        let of_user = |(user, weight): (&String, &u32)| Shown {
            name: format!("{WEIGHT}{user}"),
            row: WEIGHTS,
            value: WEIGHTS.kind.format(u64::from(*weight)),
        };
        let of_domain = |(domain, values): (&String, &[u64; TABLE.len()])| {
            let rows = TABLE.iter().zip(values).filter_map(|(row, value)| {
                let name = format!("{domain}.{}", in_domains(row)?);
                Some(Shown { name, row: *row, value: row.kind.format(*value) })
            });
            rows.collect::<Vec<_>>()
        };
        let of_domains = self.domains.iter().flat_map(of_domain);
        let of_users = self.weights.iter().map(of_user);
        TABLE.iter().zip(&self.values).map(shown).chain(of_domains).chain(of_users).collect()
    }
}

/// The name within its domain of a variable that each domain has.
fn in_domains(row: &Definition) -> Option<&'static str> {
    row.name.strip_prefix(APPLICATION)?.strip_prefix('.')
}

/// The domain that a variable names, there or not, and its row; of one of the machine's: [`APPLICATION`].
fn find(name: &str) -> Result<(&str, usize), VariableError> {
    if let Some(at) = TABLE.iter().position(|row| row.name == name) {
        return Ok((APPLICATION, at));
    }
    let of_domain = name.split_once('.').and_then(|(domain, rest)| {
        Some((domain, TABLE.iter().position(|row| in_domains(row) == Some(rest))?))
    });
    let unknown = || match retired::became(name) {
        Some(became) => VariableError::Retired { name: name.into(), became },
        None => VariableError::Unknown { name: name.into(), nearest: nearest(name, spellings()) },
    };
    of_domain.filter(|(domain, _)| !domain.is_empty()).ok_or_else(unknown)
}

/// The row of a variable of this name, of any domain.
///
/// # Errors
/// There is none.
pub fn row(name: &str) -> Result<&'static Definition, VariableError> {
    match name.starts_with(WEIGHT) {
        true => Ok(&WEIGHTS),
        false => Ok(&TABLE[find(name)?.1]),
    }
}

/// The known name that is a typing error or two away: of these, each a spelling and the name that it stands for.
pub fn nearest<'a>(
    name: &str,
    spellings: impl Iterator<Item = (&'a str, &'a str)>,
) -> Option<&'a str> {
    let far = 1 + name.len() / 5;
    let near = spellings.map(|(spelling, known)| (distance(name, spelling), known)).min()?;
    (near.0 <= far).then_some(near.1)
}

/// Names of variables, also where the domain is left out.
fn spellings() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.iter().flat_map(|row| {
        let short = row.name.strip_prefix("application.").unwrap_or(row.name);
        [(row.name, row.name), (short, row.name)]
    })
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
