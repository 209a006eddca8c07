//! Room for images where apinit keeps its own copy of them: looked at before they are written
//! there.
//!
//! The copy is below `--roll-out` if that was given, else in the runtime directory, which mostly is
//! memory: were it filled, everything else on the host would suffer.

use super::promised_room::{Promise, PromisedRoom};
use crate::node::groups::AppGroups;
use crate::variables::units::about;
use std::fs;
use std::io;
use std::path::Path;

/// Of the file system so much stays free, one part in this many.
const KEPT: u64 = 16;
/// The most that stays free otherwise, in bytes: a large disk that is nearly full has room for images.
const KEPT_MAX: u64 = 4 << 30;
/// The most that stays free where a user asked for the images, in bytes.
const KEPT_MAX_ASKED: u64 = 256 << 20;
/// CRIU writes so much beside the memory of each process, in bytes, at most.
pub(super) const BESIDE: u64 = 4 << 20;

/// Bytes of a file system that are free for users, and all that it has.
pub(super) fn space(path: &Path) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::statvfs(path)?;
    Ok((stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
}

/// Bytes that may be written there, and how many there are.
///
/// # Errors
/// The errors of statvfs.
pub(super) fn room(path: &Path) -> io::Result<(u64, u64)> {
    let (free, all) = space(path)?;
    Ok((free.saturating_sub(kept(all)), all))
}

/// What stays free of so many bytes, where no user asked for the images.
pub(super) fn kept(all: u64) -> u64 {
    (all / KEPT).min(KEPT_MAX)
}

/// Room for images of about so many bytes, for which a user has asked.
///
/// # Errors
/// There is none, and what would help.
pub(super) fn take_room(
    promised: &PromisedRoom,
    path: &Path,
    bytes: u64,
) -> Result<Promise, String> {
    let taken = promised.take(path, bytes, |all| (all / KEPT).min(KEPT_MAX_ASKED));
    let taken = taken.map_err(|e| format!("{}: {e}", path.display()))?;
    taken.map_err(|room| format!(
        "its images take about {}, and {} has room for {} (No space left on device): make room there, or start \
         apinit with --roll-out FOLDER on a larger disk",
        about(bytes),
        path.display(),
        about(room)
    ))
}

/// What images of an application take: about the memory that it has.
pub(super) fn needed(groups: &AppGroups) -> u64 {
    let measured: u64 = groups.memory_had().map(|(_, bytes)| bytes).sum();
    let memory = if measured > 0 { measured } else { resident(groups) };
    memory.saturating_add(u64::from(groups.processes()) * BESIDE)
}

/// The same where the groups do not measure it: of memory that is shared the largest part counts.
fn resident(groups: &AppGroups) -> u64 {
    let (mut own, mut shared) = (0_u64, 0);
    for (_, pid) in groups.left() {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        own += kib(&status, "RssAnon:") + kib(&status, "VmSwap:");
        shared = shared.max(kib(&status, "RssShmem:"));
    }
    own.saturating_add(shared).saturating_mul(1024)
}

fn kib(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_told_with_its_cure() {
        let folder = tempfile::tempdir().expect("a folder");
        let promised = PromisedRoom::default();
        take_room(&promised, folder.path(), 0).expect("none is needed");
        let why = take_room(&promised, folder.path(), u64::MAX).expect_err("too much");
        assert!(why.contains("No space left") && why.contains("--roll-out"), "{why}");
        assert!(take_room(&promised, &folder.path().join("none"), 0).is_err());
        let status = "Name:\tx\nRssAnon:\t     136 kB\nVmSwap:\t0 kB\n";
        assert_eq!((kib(status, "RssAnon:"), kib(status, "RssShmem:")), (136, 0));
    }
}
