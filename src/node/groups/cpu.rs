//! Processor time of groups.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// User and system time of all that ever ran in this group; `None`: it can't be read.
pub(super) fn cpu_of_group(group: &Path) -> Option<(Duration, Duration)> {
    cpu_of(&fs::read_to_string(group.join("cpu.stat")).ok()?)
}

/// User and system time in the text of cpu.stat.
fn cpu_of(text: &str) -> Option<(Duration, Duration)> {
    let value = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse().ok().map(Duration::from_micros)
    };
    Some((value("user_usec")?, value("system_usec")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read() {
        let text = "usage_usec 7\nuser_usec 5\nsystem_usec 2\nnice_usec 0\n";
        assert_eq!(cpu_of(text), Some((Duration::from_micros(5), Duration::from_micros(2))));
        assert_eq!(cpu_of("usage_usec 7\n"), None);
    }
}
