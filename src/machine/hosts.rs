//! Lists of hosts as people write them: `login,n[000-003,17]`.

/// Why a list of hosts can't be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostListError {
    /// A name that is none.
    #[error("{0:?} is not the name of a host")]
    NotAName(String),
    /// Brackets that are not closed, or hold something else.
    #[error("{0:?} is not a range in brackets such as n[000-003,17]")]
    NotARange(String),
    /// A range whose end is below its start.
    #[error("the range {0} runs backwards")]
    Backwards(String),
    /// The same host twice.
    #[error("host {0} is listed twice")]
    Twice(String),
    /// More than a million.
    #[error("the list names more than {0} hosts")]
    TooMany(usize),
}

/// The largest number of hosts that a list may name.
const LIST_MAX: usize = 1_000_000;
/// The longest name of a host, as DNS has it.
const NAME_MAX: usize = 253;

/// Whether this may be the name of a host.
pub fn is_host(name: &str) -> bool {
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '[' | ']' | ',');
    name.len() <= NAME_MAX && !name.contains(odd)
}

/// Reads `login,n[000-003,17]`: names, each with one pair of brackets at most, in which numbers and ascending
/// ranges stand. A number has as many digits as the beginning of its range is written with. In the order given,
/// each host once.
///
/// ```
/// use psched_pure::machine::parse_hosts;
/// let hosts = parse_hosts("login,n[008-010]-ib").unwrap();
/// assert_eq!(hosts, ["login", "n008-ib", "n009-ib", "n010-ib"]);
/// ```
///
/// # Errors
/// What is wrong with the list, in words for its author.
pub fn parse_hosts(text: &str) -> Result<Vec<String>, HostListError> {
    let mut hosts = Vec::new();
    let mut rest = text;
    loop {
        // A comma within brackets is not the end of a name.
        let open = rest.find('[').unwrap_or(rest.len());
        let close = rest[open..].find(']').map_or(rest.len(), |at| open + at);
        let comma = match rest.find(',') {
            Some(comma) if comma < open => Some(comma),
            _ => rest[close..].find(',').map(|at| close + at),
        };
        let name = rest[..comma.unwrap_or(rest.len())].trim();
        expand(name, &mut hosts)?;
        match comma {
            Some(comma) => rest = &rest[comma + 1..],
            None => break,
        }
    }
    let mut sorted: Vec<&String> = hosts.iter().collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(HostListError::Twice(pair[0].clone())),
        None => Ok(hosts),
    }
}

/// The hosts of one name.
fn expand(name: &str, hosts: &mut Vec<String>) -> Result<(), HostListError> {
    let mut add = |host: String| {
        if !is_host(&host) || host.is_empty() {
            return Err(HostListError::NotAName(host));
        }
        if hosts.len() == LIST_MAX {
            return Err(HostListError::TooMany(LIST_MAX));
        }
        hosts.push(host);
        Ok(())
    };
    let Some((before, ranges)) = name.split_once('[') else { return add(name.to_owned()) };
    let wrong = || HostListError::NotARange(name.to_owned());
    let (ranges, after) = ranges.split_once(']').ok_or_else(wrong)?;
    let number = |text: &str| {
        let digits = (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u32>().ok().filter(|_| digits).ok_or_else(wrong)
    };
    for range in ranges.split(',').map(str::trim) {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (number(from)?, number(to)?);
        if last < first {
            return Err(HostListError::Backwards(range.to_owned()));
        }
        for number in first..=last {
            add(format!("{before}{number:0digits$}{after}", digits = from.len()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let read = |text: &str| parse_hosts(text).map(|hosts| hosts.join(" "));
        assert_eq!(read("a"), Ok("a".into()));
        assert_eq!(read("n[0-2],n[10, 12]x, b"), Ok("n0 n1 n2 n10x n12x b".into()));
        assert_eq!(read("n[098-101]"), Ok("n098 n099 n100 n101".into()));
        let wrong = |text: &str| parse_hosts(text).map_err(|error| error.to_string());
        for (text, error) in [
            ("", "\"\" is not the name of a host"),
            ("a,,b", "\"\" is not the name of a host"),
            ("a b", "\"a b\" is not the name of a host"),
            ("n[0-3", "\"n[0-3\" is not a range in brackets such as n[000-003,17]"),
            ("n[0-x]", "\"n[0-x]\" is not a range in brackets such as n[000-003,17]"),
            ("n[]", "\"n[]\" is not a range in brackets such as n[000-003,17]"),
            ("n[1][2]", "\"n1[2]\" is not the name of a host"),
            ("n[3-0]", "the range 3-0 runs backwards"),
            ("n[0-3],n2", "host n2 is listed twice"),
            ("n[0-999999999]", "the list names more than 1000000 hosts"),
            (
                "n[0-9999999999]",
                "\"n[0-9999999999]\" is not a range in brackets such as n[000-003,17]",
            ),
        ] {
            assert_eq!(wrong(text), Err(error.into()), "{text}");
        }
    }
}
