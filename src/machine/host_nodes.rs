//! Names of hosts in lists of nodes: `h1,n[004-007],12`, where a host stands for all its nodes.
//!
//! ```
//! use psched_pure::machine::{Nid, names_hosts, with_numbers};
//! let nodes = [(Nid(0), "h0"), (Nid(1), "h1"), (Nid(2), "h1"), (Nid(3), "h2")];
//! assert!(names_hosts("h1,3") && !names_hosts("1-2,3"));
//! assert_eq!(with_numbers("h1,3", &nodes, Some("h0")).unwrap(), "1-2,3");
//! ```

use super::{Nid, parse_hosts};
use std::collections::{BTreeMap, BTreeSet};

/// What each host is called by itself.
const LOCALHOST: &str = "localhost";

/// Why the names of a list can't be replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostNodesError {
    /// No node is on a host of this name; there may be such a host, a login host for example.
    #[error("psched.yaml has no node on a host {0:?}: apstat -n -v shows nodes and their hosts")]
    NoneThere(String),
    /// It is no number, and no name.
    #[error(
        "{0:?} is neither the number of a node, nor a range such as 0-3, nor the name of a host: \
         apstat -n -v shows nodes and their hosts"
    )]
    Unknown(String),
    /// Brackets that are no range.
    #[error("{0}")]
    Malformed(String),
}

/// Whether a list has words that are names of hosts.
pub fn names_hosts(list: &str) -> bool {
    words(list).any(is_name)
}

/// The list with the numbers of nodes in place of the names of hosts, in ascending order; a list without names
/// as it is. A host counts once. `nodes`: all nodes of the machine, each with the name of its host. `own`: the name of this
/// host, which is called localhost, too, if no host of the machine is.
///
/// ```
/// # use psched_pure::machine::{Nid, with_numbers};
/// let nodes = [(Nid(0), "12ab"), (Nid(1), "h1"), (Nid(2), "h2")];
/// assert_eq!(with_numbers("h[1-2],localhost", &nodes, Some("h2")).unwrap(), "1,2");
/// assert_eq!(with_numbers("localhost", &nodes, Some("12ab")).unwrap(), "0");
/// ```
///
/// # Errors
/// A name that no host has.
pub fn with_numbers<'a>(
    list: &str,
    nodes: impl IntoIterator<Item = &'a (Nid, impl AsRef<str> + 'a)>,
    own: Option<&str>,
) -> Result<String, HostNodesError> {
    let mut of: BTreeMap<&str, Vec<(u32, u32)>> = BTreeMap::new();
    for (Nid(nid), host) in nodes {
        let ranges = of.entry(host.as_ref()).or_default();
        match ranges.last_mut().filter(|(_, last)| last.checked_add(1) == Some(*nid)) {
            Some((_, last)) => *last = *nid,
            None => ranges.push((*nid, *nid)),
        }
    }
    if !names_hosts(list) {
        return Ok(list.to_owned());
    }
    let (mut ranges, mut taken) = (Vec::new(), BTreeSet::new());
    for word in words(list) {
        if !is_name(word) {
            let (from, to) = word.split_once('-').unwrap_or((word, word));
            let number = |text: &str| text.parse::<u32>().ok();
            let range = number(from).zip(number(to));
            let (from, to) = range.ok_or_else(|| HostNodesError::Unknown(word.to_owned()))?;
            ranges.push((from.min(to), from.max(to)));
            continue;
        }
        let hosts =
            parse_hosts(word).map_err(|error| HostNodesError::Malformed(error.to_string()))?;
        for host in hosts {
            let called =
                own.filter(|_| host == LOCALHOST && !of.contains_key(LOCALHOST)).unwrap_or(&host);
            match of.get_key_value(called) {
                Some((host, nodes)) if taken.insert(*host) => ranges.extend(nodes),
                Some(_) => {}
                None => return Err(HostNodesError::NoneThere(host)),
            }
        }
    }
    ranges.sort_unstable();
    let range = |(from, to): (u32, u32)| match from == to {
        true => from.to_string(),
        false => format!("{from}-{to}"),
    };
    Ok(ranges.into_iter().map(range).collect::<Vec<_>>().join(","))
}

/// What stands between commas and blanks that are not in brackets.
fn words(list: &str) -> impl Iterator<Item = &str> {
    let mut within = false;
    let ends = move |c: char| {
        within = match c {
            '[' => true,
            ']' => false,
            _ => within,
        };
        !within && (c == ',' || c.is_ascii_whitespace())
    };
    list.split(ends).filter(|word| !word.is_empty())
}

/// Whether a word is meant as the name of a host. (`0-x` is a range with a slip.)
fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [(Nid, &str); 6] = [
        (Nid(0), "login"),
        (Nid(1), "n001"),
        (Nid(2), "n001"),
        (Nid(4), "n001"),
        (Nid(7), "n002"),
        (Nid(9), "12"),
    ];

    #[test]
    fn a_host_stands_for_all_its_nodes() {
        let read = |list: &str| {
            with_numbers(list, &NODES, Some("n002")).map_err(|error| error.to_string())
        };
        for (list, numbers) in [
            ("login", "0"),
            ("n001", "1-2,4"),
            ("n[001-002]", "1-2,4,7"),
            ("n[001, 002],login 9", "0,1-2,4,7,9"),
            ("login\n20-15", "0,15-20"),
            ("localhost,n002,n[001-002]", "1-2,4,7"),
            // Without a name it is for others to judge.
            ("5,3-1", "5,3-1"),
            ("", ""),
            ("0-x", "0-x"),
        ] {
            assert_eq!(read(list), Ok(numbers.into()), "{list}");
        }
        let see = "apstat -n -v shows nodes and their hosts";
        for list in ["n003", "n[001-003]"] {
            let none = format!("psched.yaml has no node on a host \"n003\": {see}");
            assert_eq!(read(list), Err(none), "{list}");
        }
        let unknown = format!(
            "\"0-x\" is neither the number of a node, nor a range such as 0-3, nor the name of a host: {see}"
        );
        assert_eq!(read("login,0-x"), Err(unknown));
        // A word with a digit first is a number, also where a host is called so.
        assert_eq!(read("login,12"), Ok("0,12".into()));
        assert_eq!(read("12"), Ok("12".into()));
        let slip = "\"n[1-\" is not a range in brackets such as n[000-003,17]";
        assert_eq!(read("n[1-"), Err(slip.into()));
    }

    #[test]
    fn what_a_name_is() {
        for list in ["h1", "3,h1", "n[0-3]", "a-b", "x-1"] {
            assert!(names_hosts(list), "{list}");
        }
        for list in ["", "1", "1-2,3", "0-x", "3com", "-x", "7,\n8", "[0-3]"] {
            assert!(!names_hosts(list), "{list}");
        }
    }
}
