//! Which nodes an application asks for: aprun's `-L`, `-l` and `-E`.
//!
//! A list is numbers and ranges, `1-5,9`. One whose ranges run down, `9,5-1`, says the same nodes, and that
//! ranks are to begin at the high end: PE 0 is on the highest of the nodes that the application gets.
//!
//! ```
//! # use psched_pure::{apteam::choice::Choice, machine::Nid};
//! let choice = Choice::default().only("9,5-1").unwrap().not("3").unwrap();
//! assert!(choice.downwards() && choice.has(Nid(9)) && !choice.has(Nid(3)) && !choice.has(Nid(6)));
//! assert_eq!(choice.to_string(), "-L 1-5,9 -E 3");
//! assert!(Choice::default().only("1-5,9-7").is_err());
//! ```

use crate::machine::Nid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Numbers and ranges that a list may have.
pub const RANGES_MAX: usize = 10_000;

/// From one node to another, both included.
pub type Range = (Nid, Nid);

/// Nodes that are asked for. By default all are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Only these, ascending, none twice; empty: any.
    only: Vec<Range>,
    /// None of these, likewise.
    not: Vec<Range>,
    downwards: bool,
}

impl Choice {
    /// From ranges in any order, as they come over the wire.
    ///
    /// # Errors
    /// A range that runs backwards, two that overlap, or too many; in words.
    pub fn new(only: Vec<Range>, not: Vec<Range>, downwards: bool) -> Result<Choice, String> {
        let downwards = downwards && !only.is_empty();
        Ok(Choice { only: ordered(only)?, not: ordered(not)?, downwards })
    }

    /// Of these only.
    ///
    /// # Errors
    /// What is wrong with the list, in words.
    pub fn only(self, list: &str) -> Result<Choice, String> {
        let (only, downwards) = parse(list)?;
        Choice::new(only, self.not, downwards)
    }

    /// None of these.
    ///
    /// # Errors
    /// What is wrong with the list, in words.
    pub fn not(self, list: &str) -> Result<Choice, String> {
        let (not, _) = parse(list)?;
        Choice::new(self.only, not, self.downwards)
    }

    /// None of these either. `None`: the list would be too long.
    ///
    /// ```
    /// # use psched_pure::{apteam::choice::Choice, machine::Nid};
    /// let choice = Choice::default().not("3").unwrap().without(&[Nid(4), Nid(3), Nid(5)]);
    /// assert_eq!(choice.unwrap().to_string(), "-E 3,4-5");
    /// ```
    pub fn without(self, nids: &[Nid]) -> Option<Choice> {
        let more: BTreeSet<Nid> =
            nids.iter().copied().filter(|nid| !within(&self.not, *nid)).collect();
        let mut not = self.not;
        let known = not.len();
        for nid in more {
            match not[known..].last_mut() {
                Some((_, last)) if last.0.checked_add(1) == Some(nid.0) => *last = nid,
                _ => not.push((nid, nid)),
            }
        }
        Choice::new(self.only, not, self.downwards).ok()
    }

    /// Whether some nodes are asked for, rather than any.
    pub fn names_some(&self) -> bool {
        !self.only.is_empty()
    }

    /// Whether any node will do.
    pub fn is_any(&self) -> bool {
        self.only.is_empty() && self.not.is_empty()
    }

    /// Whether ranks begin at the high end.
    pub fn downwards(&self) -> bool {
        self.downwards
    }

    /// Whether a node may be taken.
    pub fn has(&self, nid: Nid) -> bool {
        (self.only.is_empty() || self.asks_for(nid)) && !within(&self.not, nid)
    }

    /// Whether a node is among those asked for.
    pub fn asks_for(&self, nid: Nid) -> bool {
        within(&self.only, nid)
    }

    /// How many ranges it has, of both kinds.
    pub fn ranges(&self) -> usize {
        self.only.len() + self.not.len()
    }

    /// The ranges of those asked for, of those not wanted, and whether ranks begin at the high end.
    pub fn parts(self) -> (Vec<Range>, Vec<Range>, bool) {
        (self.only, self.not, self.downwards)
    }
}

fn within(ranges: &[Range], nid: Nid) -> bool {
    let at = ranges.partition_point(|(_, last)| *last < nid);
    ranges.get(at).is_some_and(|(first, _)| *first <= nid)
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ranges: &[Range]| {
            let range = |(first, last): &Range| match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            };
            ranges.iter().map(range).collect::<Vec<_>>().join(",")
        };
        let only = (!self.only.is_empty()).then(|| format!("-L {}", list(&self.only)));
        let not = (!self.not.is_empty()).then(|| format!("-E {}", list(&self.not)));
        let said: Vec<String> = only.into_iter().chain(not).collect();
        f.write_str(&said.join(" "))
    }
}

fn ordered(mut ranges: Vec<Range>) -> Result<Vec<Range>, String> {
    if ranges.len() > RANGES_MAX {
        return Err(format!("a list has at most {RANGES_MAX} numbers and ranges"));
    }
    ranges.sort_unstable();
    if let Some((first, last)) = ranges.iter().find(|(first, last)| last < first) {
        return Err(format!("the range {first}-{last} runs backwards"));
    }
    match ranges.windows(2).find(|two| two[1].0 <= two[0].1) {
        Some(two) => Err(format!("node {} is named twice", two[1].0)),
        None => Ok(ranges),
    }
}

/// Numbers and ranges between commas and blanks; and whether they run down.
fn parse(list: &str) -> Result<(Vec<Range>, bool), String> {
    let number = |text: &str| {
        let number = text.parse().map(Nid);
        number.map_err(|_| format!("\"{text}\" is not a node number or a range such as 0-3"))
    };
    let mut ranges: Vec<Range> = Vec::new();
    // What runs up and what runs down, of ranges and from one to the next.
    let (mut up, mut down) = (false, false);
    let mut before = None;
    let words = list.split(|c: char| c == ',' || c.is_ascii_whitespace());
    for word in words.filter(|word| !word.is_empty()) {
        let (from, to) = match word.split_once('-') {
            Some((from, to)) => (number(from)?, number(to)?),
            None => (number(word)?, number(word)?),
        };
        let mut runs = |one: Nid, next: Nid| {
            up |= one < next;
            down |= next < one;
        };
        if let Some(before) = before {
            runs(before, from);
        }
        runs(from, to);
        before = Some(to);
        ranges.push((from.min(to), from.max(to)));
        if ranges.len() > RANGES_MAX {
            return Err(format!("a list has at most {RANGES_MAX} numbers and ranges"));
        }
    }
    match ranges.is_empty() {
        true => Err("the list is empty".into()),
        false if up && down => {
            Err("the list runs up and down: write it in one direction, which decides where PE 0 is"
                .into())
        }
        false => Ok((ranges, down)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(list: &str) -> String {
        Choice::default().only(list).expect_err("a slip")
    }

    #[test]
    fn lists_are_read_or_refused() {
        let choice = |list: &str| Choice::default().only(list).expect("good");
        assert_eq!(choice("1-5,9").to_string(), "-L 1-5,9");
        assert_eq!(choice(" 1\n2 3,\n").to_string(), "-L 1,2,3");
        assert!(choice("7,3").downwards() && !choice("7").downwards());
        assert!(!Choice::default().not("9-1").expect("good").downwards());
        assert_eq!(wrong(","), "the list is empty");
        assert_eq!(wrong("1-x"), "\"x\" is not a node number or a range such as 0-3");
        assert_eq!(wrong("-1"), "\"\" is not a node number or a range such as 0-3");
        assert_eq!(wrong("1-3,3"), "node 3 is named twice");
        assert!(wrong("3,1-2").starts_with("the list runs up and down"));
        assert!(wrong(&"1,".repeat(RANGES_MAX + 1)).contains("at most"));
        assert!(Choice::default().is_any() && !choice("1").is_any());
    }
}
