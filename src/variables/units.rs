//! Durations and sizes as people write them.
//!
//! They stand here, at the bottom of the house, because psched.yaml, the variables and the options
//! of the commands (`aprun -m 2G --time-limit 1h30m`) are to be written in one way.

use std::fmt::Display;
use std::time::Duration;

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not written as one.
    #[error("\"{0}\" is not a duration; write 500ms, 5s, 1m30s or 2h (a bare number is seconds)")]
    Malformed(String),
    /// Longer than 500 years.
    #[error("\"{0}\" is too long; the maximum is 584 years")]
    TooLong(String),
}

/// The units of a duration and their nanoseconds, the largest first.
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// A span of time in nanoseconds; the longest that they count, 584 years, where it is longer.
///
/// ```
/// # use psched_pure::variables::units::nanos;
/// # use std::time::Duration;
/// assert_eq!(nanos(Duration::new(2, 5)), 2_000_000_005);
/// assert_eq!(nanos(Duration::from_nanos(u64::MAX)), u64::MAX);
/// assert_eq!(nanos(Duration::MAX), u64::MAX);
/// ```
pub fn nanos(time: Duration) -> u64 {
    // (In u64, for the scheduler calls it all the time: as_nanos counts in u128.)
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos().into())
}

/// Reads `500ms`, `5s`, `1m30s`, `2h`, `1.5h`, `7d`; a bare number is seconds. Units go from large
/// to small, each once.
///
/// # Errors
/// What is wrong with it, for its author.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let malformed = || DurationError::Malformed(text.into());
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(malformed());
    }
    let mut total = 0u128;
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number = &rest[..digits];
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "" if rest.is_empty() && units.len() == UNITS.len() => "s",
            unit => unit,
        };
        rest = &rest[letters..];
        // What was passed over can't come any more: so units only go down.
        let &(_, ns) = units.find(|(name, _)| *name == unit).ok_or_else(malformed)?;
        total = decimal(number, ns).ok_or_else(malformed)?.saturating_add(total);
        if total > u64::MAX.into() {
            return Err(DurationError::TooLong(text.into()));
        }
    }
    u64::try_from(total).map(Duration::from_nanos).map_err(|_| DurationError::TooLong(text.into()))
}

/// Writes a duration as [`parse_duration`] reads it: `1m30s`.
pub fn format_duration(duration: Duration) -> String {
    let mut rest = duration.as_nanos();
    if rest == 0 {
        return "0s".into();
    }
    let mut text = String::new();
    for (name, ns) in UNITS {
        let n = rest / u128::from(ns);
        rest %= u128::from(ns);
        if n > 0 {
            text.push_str(&format!("{n}{name}"));
        }
    }
    text
}

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not written as one.
    #[error("\"{0}\" is not a size; write bytes, or 512K, 100M, 8G, 1.5T (powers of 1024)")]
    Malformed(String),
    /// 2^64 bytes or more.
    #[error("\"{0}\" is too large; a size is less than 2^64 bytes")]
    TooLarge(String),
}

/// The units of a size.
const SIZES: [(&str, u64); 5] =
    [("", 1), ("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];

/// Reads `8G`: bytes, or K, M, G, T in powers of 1024, of either case, a `B` or `iB` after it or
/// not.
///
/// # Errors
/// What is wrong with it, for its author.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let malformed = || SizeError::Malformed(text.into());
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let unit = trimmed[digits..].trim_start().to_ascii_uppercase();
    let unit = unit.strip_suffix('B').unwrap_or(&unit);
    let unit = if unit.len() > 1 { unit.strip_suffix('I').unwrap_or(unit) } else { unit };
    let (_, bytes) = SIZES.iter().find(|(name, _)| *name == unit).ok_or_else(malformed)?;
    let size = decimal(&trimmed[..digits], *bytes).ok_or_else(malformed)?;
    u64::try_from(size).map_err(|_| SizeError::TooLarge(text.into()))
}

/// Writes a size as [`parse_size`] reads it, exactly: `8G`, `1536M`, `1000`.
pub fn format_size(bytes: u64) -> String {
    let fits = |(_, unit): &&(&str, u64)| bytes.is_multiple_of(*unit) && bytes >= *unit;
    match SIZES.iter().rev().find(fits) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// Writes a size for people: exactly where that is short, else with a decimal: `8G`, `6.1G`, `512M`.
///
/// ```
/// # use psched_pure::variables::units::about;
/// assert_eq!([about(8 << 30), about(6_549_825_126), about(1536 << 20)], ["8G", "6.1G", "1.5G"]);
/// assert_eq!([about(999), about(1000 << 10), about((1 << 30) - 1)], ["999", "1000K", "1G"]);
/// ```
pub fn about(bytes: u64) -> String {
    let tenths = |unit: u64| (u128::from(bytes) * 10 + u128::from(unit) / 2) / u128::from(unit);
    // The smallest unit of which there are, when rounded, fewer than the next one has.
    let fits = |(_, unit): &&(&str, u64)| tenths(*unit) < 10 * 1024;
    let (name, unit) = SIZES.iter().find(fits).unwrap_or(&SIZES[SIZES.len() - 1]);
    match tenths(*unit) {
        whole if whole % 10 == 0 => format!("{}{name}", whole / 10),
        tenths => format!("{}.{}{name}", tenths / 10, tenths % 10),
    }
}

/// A number of things in words.
///
/// ```
/// # use psched_pure::variables::units::count;
/// assert_eq!([count(1, "PE"), count(2, "PE"), count(0, "node")], ["1 PE", "2 PEs", "0 nodes"]);
/// ```
pub fn count<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// A number with or without decimals, times a unit, rounded down; `None`: not a number. What is
/// too large for the type is its largest value, which every caller has a bound below.
fn decimal(number: &str, unit: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    // More than 18 decimals make no difference to a whole number of bytes or nanoseconds.
    let fraction = &fraction[..fraction.len().min(18)];
    let part =
        fraction.parse::<u128>().ok()? * u128::from(unit) / 10u128.pow(fraction.len() as u32);
    let whole = whole.parse::<u128>().unwrap_or(u128::MAX).saturating_mul(unit.into());
    Some(whole.saturating_add(part))
}

/// A number with at most three places after the point, in thousandths: `1.5` is 1500.
pub fn parse_thousandths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 3 {
        return None;
    }
    let part: u64 = format!("{part:0<3}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(part)
}

/// The shortest text that [`parse_thousandths`] reads as this.
pub fn format_thousandths(value: u64) -> String {
    let text = format!("{}.{:03}", value / 1_000, value % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read() {
        for (text, ms) in [
            ("500ms", 500),
            ("5s", 5_000),
            ("5", 5_000),
            ("0.25", 250),
            ("1m30s", 90_000),
            (" 2h ", 7_200_000),
            ("1.5h", 5_400_000),
            ("7d", 604_800_000),
            ("1h1ms", 3_600_001),
            ("007s", 7_000),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "", " ", "s", "5x", "-1s", "1s1m", "1s1s", "1h30", "5 s", "1..5s", ".5s", "5.", "½s",
            "1e3",
        ] {
            assert_eq!(parse_duration(text), Err(DurationError::Malformed(text.into())), "{text}");
        }
        for text in ["214000d", "99999999999999999999999999999999999999999999s", "213503d100000h"] {
            assert_eq!(parse_duration(text), Err(DurationError::TooLong(text.into())), "{text}");
        }
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("1000", 1000),
            ("512K", 512 << 10),
            ("100m", 100 << 20),
            ("8G", 8 << 30),
            ("8 GiB", 8 << 30),
            ("8GB", 8 << 30),
            ("1.5T", 3 << 39),
            ("12B", 12),
            ("16777215T", 16_777_215 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "8X", "-1", "8GG", "8iB", "8i", "0x10", "1,5G", "8G8", "8BB"] {
            assert_eq!(parse_size(text), Err(SizeError::Malformed(text.into())), "{text}");
        }
        for text in
            ["16777216T", "18446744073709551616", "1000000000000000000000000000000000000000000"]
        {
            assert_eq!(parse_size(text), Err(SizeError::TooLarge(text.into())), "{text}");
        }
    }

    #[test]
    fn both_are_written_as_people_do() {
        for text in ["0s", "500ms", "1m30s", "2h", "7d", "1d1h1m1s1ms1us1ns"] {
            assert_eq!(format_duration(parse_duration(text).expect("a duration")), text);
        }
        for text in ["0", "1000", "1536M", "8G", "3T"] {
            assert_eq!(format_size(parse_size(text).expect("a size")), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(n in any::<u64>()) {
            let duration = Duration::from_nanos(n);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
            prop_assert_eq!(parse_size(&format_size(n)), Ok(n));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9.a-zGMK -]{0,40}") {
            let _ = (parse_duration(&text), parse_size(&text));
        }
    }
}
