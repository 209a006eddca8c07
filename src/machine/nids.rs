//! Lists of NIDs as people write them: `0-3,8`.

use super::Nid;
use std::collections::BTreeSet;

/// Why a list of NIDs can't be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NidListError {
    /// Something that is not a number or a range.
    #[error("\"{0}\" is not a node number or a range such as 0-3")]
    NotANumber(String),
    /// A range whose end is below its start.
    #[error("the range {0} runs backwards")]
    Backwards(String),
    /// The same NID twice.
    #[error("node {0} is named twice")]
    Twice(Nid),
    /// More than a million nodes.
    #[error("the list names more than {0} nodes")]
    TooMany(usize),
    /// Nothing at all.
    #[error("the list is empty")]
    Empty,
}

/// A set of nodes that is made once and asked often: a lookup in a range of NIDs is two comparisons.
///
/// ```
/// # use psched_pure::machine::{Nid, NidSet};
/// let set: NidSet = [Nid(8), Nid(2), Nid(3), Nid(2)].into_iter().collect();
/// assert!(set.contains(Nid(3)) && set.contains(Nid(8)));
/// assert!(!set.contains(Nid(4)) && !set.contains(Nid(9)) && !NidSet::default().contains(Nid(0)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct NidSet(Vec<Nid>);

impl FromIterator<Nid> for NidSet {
    fn from_iter<I: IntoIterator<Item = Nid>>(nids: I) -> NidSet {
        let mut nids: Vec<Nid> = nids.into_iter().collect();
        nids.sort_unstable();
        nids.dedup();
        NidSet(nids)
    }
}

impl NidSet {
    /// The nodes of a list.
    pub fn of(nids: &[Nid]) -> NidSet {
        nids.iter().copied().collect()
    }

    /// Whether it is among them.
    pub fn contains(&self, nid: Nid) -> bool {
        let (Some(least), Some(most)) = (self.0.first(), self.0.last()) else { return false };
        if nid < *least || nid > *most {
            return false;
        }
        // Nodes of one host mostly follow each other.
        let in_a_row = (most.0 - least.0) as usize + 1 == self.0.len();
        in_a_row || self.0.binary_search(&nid).is_ok()
    }
}

/// The largest number of nodes that a list may name.
const LIST_MAX: usize = 1_000_000;

/// Reads `0-3,8`: numbers and ascending ranges, each NID once.
///
/// # Errors
/// What is wrong with the list, in words for its author.
pub fn parse_nids(text: &str) -> Result<BTreeSet<Nid>, NidListError> {
    let mut nids = BTreeSet::new();
    let number = |part: &str, whole: &str| {
        part.trim().parse::<u32>().map_err(|_| NidListError::NotANumber(whole.trim().into()))
    };
    for part in text.split(',') {
        if part.trim().is_empty() {
            return Err(if text.trim().is_empty() {
                NidListError::Empty
            } else {
                NidListError::NotANumber(part.into())
            });
        }
        let (from, to) = match part.split_once('-') {
            Some((a, b)) => (number(a, part)?, number(b, part)?),
            None => (number(part, part)?, number(part, part)?),
        };
        if to < from {
            return Err(NidListError::Backwards(part.trim().into()));
        }
        if (to - from) as usize >= LIST_MAX || nids.len() + (to - from) as usize >= LIST_MAX {
            return Err(NidListError::TooMany(LIST_MAX));
        }
        for nid in from..=to {
            if !nids.insert(Nid(nid)) {
                return Err(NidListError::Twice(Nid(nid)));
            }
        }
    }
    Ok(nids)
}

/// Writes a list as [`parse_nids`] reads it, ranges where there are any.
pub fn format_nids(nids: impl IntoIterator<Item = Nid>) -> String {
    let mut sorted: Vec<u32> = nids.into_iter().map(|n| n.0).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for nid in sorted {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == nid => *end = nid,
            _ => ranges.push((nid, nid)),
        }
    }
    let parts: Vec<String> = ranges
        .into_iter()
        .map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") })
        .collect();
    parts.join(",")
}

/// The same with its noun: `NID 4`, `NIDs 0-3,8`.
pub fn nids_text(nids: impl IntoIterator<Item = Nid>) -> String {
    let nids: Vec<Nid> = nids.into_iter().collect();
    let noun = if nids.len() == 1 { "NID" } else { "NIDs" };
    format!("{noun} {}", format_nids(nids))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for text in ["0", "0-3,8", "1-2,4,6-9"] {
            assert_eq!(format_nids(parse_nids(text).expect("a good list")), text);
        }
        assert_eq!(format_nids(parse_nids("8, 0 - 3").expect("spaces")), "0-3,8");
        assert_eq!([nids_text([Nid(4)]), nids_text([Nid(4), Nid(3)])], ["NID 4", "NIDs 3-4"]);
        for (text, error) in [
            ("", NidListError::Empty),
            ("0,,1", NidListError::NotANumber("".into())),
            ("x", NidListError::NotANumber("x".into())),
            ("-1", NidListError::NotANumber("-1".into())),
            ("3-0", NidListError::Backwards("3-0".into())),
            ("0-3,2", NidListError::Twice(Nid(2))),
            ("0-4294967295", NidListError::TooMany(LIST_MAX)),
        ] {
            assert_eq!(parse_nids(text), Err(error), "{text}");
        }
    }
}
