//! Values of options: numbers, sizes, lengths of time. Each refusal says what would be taken.

use crate::apteam::binding::{Binding, Lists};
use std::time::Duration;

/// The most PEs (`-n`).
pub const WIDTH_MAX: u32 = 1 << 20;
/// The most processors for a PE (`-d`) and the most PEs on a node (`-N`): the most processors that
/// a node can have.
pub const PER_NODE_MAX: u32 = 4096;
/// The longest time: ten years, in seconds.
pub const SECONDS_MAX: u64 = 10 * 365 * 24 * 3600;
/// The most memory for a PE: 1 EiB, in bytes.
pub const MEMORY_MAX: u64 = 1 << 60;

/// Text that was given, for a message: quoted, and cut if it is long.
pub fn shown(text: &[u8]) -> String {
    const SHOWN_MAX: usize = 60;
    let text = String::from_utf8_lossy(text);
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// A whole number from 1 to `max`, in decimal. `what` is its plural: `PEs`.
pub fn count(text: &[u8], what: &str, max: u64) -> Result<u64, String> {
    let refused = |why: &str| {
        Err(format!(
            "{} {why}: the number of {what} is a whole number from 1 to {max}",
            shown(text)
        ))
    };
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    if let Some(rest) = text.strip_prefix(b"-") {
        return refused(if is_digits(rest) { "is negative" } else { "is not a number" });
    }
    if !is_digits(digits) {
        return refused("is not a number");
    }
    match number(digits) {
        Some(0) => refused("is too small"),
        Some(n) if n <= max => Ok(n),
        _ => refused("is too large"),
    }
}

/// A size with K, M or G (powers of 1,024; a plain number is megabytes, as in ALPS), in bytes.
pub fn size(text: &[u8]) -> Result<u64, String> {
    const FORM: &str = "give a whole number from 1, with K, M (the default) or G, as in 512M";
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let scale = match unit {
        b"" | b"M" | b"m" => 1u64 << 20,
        b"K" | b"k" => 1 << 10,
        b"G" | b"g" => 1 << 30,
        b"h" | b"hs" | b"mh" | b"mhs" | b"Mh" | b"Mhs" | b"gh" | b"ghs" | b"Gh" | b"Ghs" => {
            return Err(format!(
                "{}: huge pages are not yet supported; leave out the h",
                shown(text)
            ));
        }
        _ => return Err(format!("{} is not a size: {FORM}", shown(text))),
    };
    if digits.is_empty() {
        return Err(format!("{} is not a size: {FORM}", shown(text)));
    }
    match number(digits).and_then(|n| n.checked_mul(scale)) {
        Some(0) => Err(format!("{} is too small: {FORM}", shown(text))),
        Some(bytes) if bytes <= MEMORY_MAX => Ok(bytes),
        _ => Err(format!("{} is too large: give at most {}G", shown(text), MEMORY_MAX >> 30)),
    }
}

/// A length of time: seconds, numbers with units as in `1h30m`, `10min` or `500ms`, or a clock's form as in
/// `10:00` (minutes and seconds), `00:10:00`, `1-00:00:00` (a day) or `1-12` (a day and twelve hours), which
/// Slurm reads in the same way.
pub fn duration(text: &[u8]) -> Result<Duration, String> {
    let refused = |why: &str| {
        Err(format!(
            "{} {why}: give seconds, or numbers with d, h, m, s or ms as in 1h30m, or HH:MM:SS, \
             from 1ms to {}d",
            shown(text),
            SECONDS_MAX / 86_400
        ))
    };
    if text.first() == Some(&b'-') {
        return refused("is negative");
    }
    if text.iter().any(|b| b":-".contains(b)) {
        return match clock(text) {
            None => refused("is not a time"),
            Some(0) => refused("is too short"),
            Some(seconds) if seconds <= SECONDS_MAX => Ok(Duration::from_secs(seconds)),
            Some(_) => refused("is too long"),
        };
    }
    let mut rest = text;
    let mut total_ms = 0u64;
    while !rest.is_empty() || text.is_empty() {
        let end = rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(end);
        let unit_end = after.iter().position(u8::is_ascii_digit).unwrap_or(after.len());
        let (unit, more) = after.split_at(unit_end);
        if digits.is_empty() {
            return refused("is not a time");
        }
        let unit_ms = match unit {
            b"ms" => 1,
            b"s" | b"sec" => 1_000,
            // Only a number alone is seconds: 1h30 could be read in two ways.
            b"" if digits.len() == text.len() => 1_000,
            b"m" | b"min" => 60_000,
            b"h" | b"hour" | b"hours" => 3_600_000,
            b"d" | b"day" | b"days" => 86_400_000,
            _ => return refused("is not a time"),
        };
        let Some(ms) = number(digits).and_then(|n| n.checked_mul(unit_ms)) else {
            return refused("is too long");
        };
        total_ms = total_ms.saturating_add(ms);
        rest = more;
    }
    match total_ms {
        0 => refused("is too short"),
        ms if ms <= SECONDS_MAX * 1_000 => Ok(Duration::from_millis(ms)),
        _ => refused("is too long"),
    }
}

/// The seconds of `[[D-]HH:]MM:SS`, `D-HH` or `D-HH:MM`; a number too large for its place is none, as in 10:75.
fn clock(text: &[u8]) -> Option<u64> {
    let place =
        |digits: &[u8], below: u64| number(digits).filter(|n| is_digits(digits) && *n < below);
    let (days, rest) = match text.iter().position(|b| *b == b'-') {
        Some(at) => (Some(place(&text[..at], u64::MAX)?), &text[at + 1..]),
        None => (None, text),
    };
    let places: Vec<&[u8]> = rest.split(|b| *b == b':').collect();
    let (hours, minutes, seconds) = match (days, places.as_slice()) {
        (Some(_), [h]) => (place(h, 24)?, 0, 0),
        (Some(_), [h, m]) => (place(h, 24)?, place(m, 60)?, 0),
        (Some(_), [h, m, s]) => (place(h, 24)?, place(m, 60)?, place(s, 60)?),
        // The first place may be as large as it likes: 36:00:00, 90:00.
        (None, [h, m, s]) => (place(h, u64::MAX)?, place(m, 60)?, place(s, 60)?),
        (None, [m, s]) => (0, place(m, u64::MAX)?, place(s, 60)?),
        _ => return None,
    };
    let whole = days.unwrap_or(0).checked_mul(86_400)?.checked_add(hours.checked_mul(3_600)?)?;
    whole.checked_add(minutes.checked_mul(60)?)?.checked_add(seconds)
}

/// How PEs are bound: a word, or lists of processors, by PE on each node.
pub fn binding(text: &[u8]) -> Result<Binding, String> {
    match text {
        b"cpu" => return Ok(Binding::Cpu),
        b"depth" => return Ok(Binding::Depth),
        b"numa_node" => return Ok(Binding::NumaNode),
        b"none" => return Ok(Binding::None),
        _ => {}
    }
    let mut lists = Vec::new();
    for list in text.split(|b| *b == b':') {
        lists.push(match list {
            b"x" => Vec::new(),
            _ => list.split(|b| *b == b',').map(range).collect::<Option<_>>().ok_or_else(|| {
                format!(
                    "{} is neither cpu, depth, numa_node or none, nor a list of processors for each \
                     PE, as in 0,2-3:1:x",
                    shown(text)
                )
            })?,
        });
    }
    Ok(Binding::Lists(Lists::new(lists).map_err(|e| format!("{}: {e}", shown(text)))?))
}

/// A number or a range, in either direction.
fn range(text: &[u8]) -> Option<(u32, u32)> {
    let one = |text: &[u8]| {
        let number = is_digits(text).then(|| number(text)).flatten();
        number.and_then(|n| u32::try_from(n).ok())
    };
    match text.iter().position(|b| *b == b'-') {
        None => one(text).map(|n| (n, n)),
        Some(at) => {
            let (a, b) = (one(&text[..at])?, one(&text[at + 1..])?);
            Some((a.min(b), a.max(b)))
        }
    }
}

fn is_digits(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

/// Digits as a number; `None` if it does not fit.
fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_their_limits() {
        assert_eq!(count(b"8", "PEs", 10), Ok(8));
        assert_eq!(count(b"+8", "PEs", 10), Ok(8));
        for (text, why) in [
            (&b"0"[..], "is too small"),
            (b"-3", "is negative"),
            (b"-x", "is not a number"),
            (b"11", "is too large"),
            (b"99999999999999999999999", "is too large"),
            (b"", "is not a number"),
            (b"4.5", "is not a number"),
            (b"0x10", "is not a number"),
            (b"8 ", "is not a number"),
        ] {
            let said = count(text, "PEs", 10).expect_err("refused");
            let form = "the number of PEs is a whole number from 1 to 10";
            assert_eq!(said, format!("{} {why}: {form}", shown(text)));
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size(b"16"), Ok(16 << 20));
        assert_eq!(size(b"16m"), Ok(16 << 20));
        assert_eq!(size(b"3K"), Ok(3 << 10));
        assert_eq!(size(b"2G"), Ok(2 << 30));
        for wrong in [&b""[..], b"K", b"1T", b"-1", b"0", b"1.5G", b"16h", b"99999999999G"] {
            assert!(size(wrong).is_err(), "{wrong:?}");
        }
        assert!(size(b"16h").expect_err("huge pages").contains("not yet supported"));
    }

    #[test]
    fn durations() {
        assert_eq!(duration(b"90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration(b"1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration(b"1d2s"), Ok(Duration::from_secs(86_402)));
        assert_eq!(duration(b"250ms"), Ok(Duration::from_millis(250)));
        for (text, seconds) in [
            (&b"10min"[..], 600),
            (b"2hours30sec", 7230),
            (b"00:10:00", 600),
            (b"10:00", 600),
            (b"90:00", 5400),
            (b"36:00:00", 129_600),
            (b"1-00:00:00", 86_400),
            (b"1-12", 129_600),
            (b"2-01:30", 178_200),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{}", shown(text));
        }
        for wrong in [
            &b"10:75"[..],
            b"1:2:3:4",
            b"1-25:00",
            b":10",
            b"10:",
            b"1-",
            b"1-2-3",
            b"00:00",
            b"1:1.5",
            b"9999999999999999999-00:00:00",
            b"99999999:00:00",
        ] {
            assert!(duration(wrong).is_err(), "{}", shown(wrong));
        }
        for wrong in
            [&b""[..], b"0", b"0s", b"-1", b"h", b"1x", b"1h30", b"1.5h", b"4000d", b"99999999999d"]
        {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn bindings() {
        let lists = |lists: &[&[(u32, u32)]]| {
            let lists = lists.iter().map(|l| l.to_vec()).collect();
            Ok(Binding::Lists(Lists::new(lists).expect("good")))
        };
        assert_eq!(binding(b"numa_node"), Ok(Binding::NumaNode));
        assert_eq!(binding(b"0"), lists(&[&[(0, 0)]]));
        assert_eq!(binding(b"0,1:2,3"), lists(&[&[(0, 1)], &[(2, 3)]]));
        assert_eq!(binding(b"x:3-1,7"), lists(&[&[], &[(1, 3), (7, 7)]]));
        let form = "nor a list of processors for each PE, as in 0,2-3:1:x";
        for wrong in
            [&b""[..], b":", b"0:", b"0,", b"-1", b"1-", b"0,x", b"y", b"1-2-3", b"9999999999"]
        {
            assert!(binding(wrong).expect_err("refused").ends_with(form), "{wrong:?}");
        }
        assert_eq!(
            binding(b"0-4096"),
            Err("\"0-4096\": 0-4096: a list counts processors of a node from 0, up to 4095".into())
        );
    }

    #[test]
    fn a_long_value_is_cut() {
        assert_eq!(shown(&[b'9'; 100]), format!("\"{}\"...", "9".repeat(60)));
    }
}
