//! Memory that is brought to swap before anybody needs the room.
//!
//! # The problem
//!
//! Where more gangs sit than fit in a node's memory, the one whose turn begins takes its memory page by page
//! from those who stand, and waits for the disk each time. Of one that has no turn for long all that can be
//! done before, by nobody's time.
//!
//! # The approach
//!
//! `memory.reclaim` (Linux 5.19) of a group takes a number of bytes, and the kernel reclaims as many of that
//! group's, or fails with EAGAIN where less went. It is asked for [`PIECE`] after piece, so that it can be
//! ended between two; a group of which a piece takes nearly nothing has no more that can go (locked memory,
//! say). Nothing is asked for where little swap is left: what others need later would find none.
//!
//! ```text
//!   roll_out()     whether that can be done here at all, and what stands in the way
//!   bring_out()    does it for some groups, until it is told to end
//! ```

use super::Groups;
use crate::apteam::protocol::node::RollOut;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes that are asked for at once: what a slow disk takes in a fraction of a second.
const PIECE: u64 = 8 << 20;
/// A piece that took less was in vain.
const LEAST: u64 = 256 << 10;
/// Of the swap that there is so much stays free, one part in this many.
const KEPT: u64 = 16;
/// Where there is that little.
const LITTLE: &str = "little swap left";

/// Bytes of swap: what there is, and what of it is free.
fn swap(meminfo: &str) -> (u64, u64) {
    let of = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap_or(0);
        kib.saturating_mul(1024)
    };
    (of("SwapTotal:"), of("SwapFree:"))
}

/// What is wanting in swap, as what follows "NID 0 has".
fn swap_wanting(meminfo: &str) -> Option<&'static str> {
    match swap(meminfo) {
        (0, _) => Some("no swap"),
        (all, free) if free < (all / KEPT).max(PIECE) => Some(LITTLE),
        _ => None,
    }
}

/// The first group from here upwards that may have nothing in swap.
fn swap_forbidden(base: &Path) -> Option<&Path> {
    base.ancestors().find(|group| {
        let max = fs::read_to_string(group.join("memory.swap.max"));
        max.is_ok_and(|max| max.trim() == "0")
    })
}

fn meminfo() -> String {
    fs::read_to_string("/proc/meminfo").unwrap_or_default()
}

impl Groups {
    /// Whether memory of these groups can be brought to swap now.
    pub fn roll_out(&self) -> RollOut {
        roll_out(&self.base, self.controllers.memory, &meminfo())
    }
}

fn roll_out(base: &Path, measured: bool, meminfo: &str) -> RollOut {
    let why = if !measured {
        "no memory controller of cgroup v2".to_owned()
    } else if !base.join("memory.reclaim").exists() {
        "no memory.reclaim (Linux 5.19)".to_owned()
    } else if let Some(why) = swap_wanting(meminfo) {
        why.to_owned()
    } else if let Some(group) = swap_forbidden(base) {
        format!("no swap for its groups (memory.swap.max of {} is 0)", group.display())
    } else {
        return RollOut::Can;
    };
    RollOut::Cant(why)
}

/// How one went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Out {
    /// What of the groups is in swap now.
    pub bytes: u64,
    /// Why no more of it went; none: what can go has gone.
    pub why: Option<String>,
}

fn number(group: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(group.join(name)).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Brings the memory of these groups to swap, until `over` says so. It takes as long as the disk wants.
pub fn bring_out(groups: &[PathBuf], over: impl Fn() -> bool) -> Out {
    let ask = |group: &Path| fs::write(group.join("memory.reclaim"), PIECE.to_string());
    let why = bring(groups, over, || swap_wanting(&meminfo()), ask);
    let bytes = groups.iter().map(|group| number(group, "memory.swap.current"));
    let bytes = bytes.fold(0, u64::saturating_add);
    let nothing = || "none of its memory can go to swap".to_owned();
    Out { bytes, why: why.or_else(|| (bytes == 0).then(nothing)) }
}

/// The same, by these means; why it ended before its time.
fn bring(
    groups: &[PathBuf],
    over: impl Fn() -> bool,
    wanting: impl Fn() -> Option<&'static str>,
    ask: impl Fn(&Path) -> io::Result<()>,
) -> Option<String> {
    for group in groups {
        let mut left = number(group, "memory.current");
        // Each piece takes something: there are no more of them than that.
        while left >= LEAST {
            if over() {
                return Some("its turn has come".to_owned());
            }
            if let Some(why) = wanting() {
                return Some(format!("its node has {why}"));
            }
            match ask(group) {
                Ok(()) => {}
                Err(error) => match Errno::from_io_error(&error) {
                    // Less went than was asked for, or a signal came.
                    Some(Errno::AGAIN | Errno::INTR) => {}
                    _ => return Some(format!("memory.reclaim: {error}")),
                },
            }
            let now = number(group, "memory.current");
            if now.saturating_add(LEAST) > left {
                break;
            }
            left = now;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const MUCH: &str = "MemTotal: 1000 kB\nSwapTotal:  2097152 kB\nSwapFree:   2000000 kB\n";

    #[test]
    fn what_stands_in_the_way_is_said() {
        let group = tempfile::tempdir().expect("a directory");
        let said = |measured, meminfo: &str| roll_out(group.path(), measured, meminfo);
        let cant = |why: &str| RollOut::Cant(why.to_owned());
        assert_eq!(said(false, MUCH), cant("no memory controller of cgroup v2"));
        assert_eq!(said(true, MUCH), cant("no memory.reclaim (Linux 5.19)"));
        fs::write(group.path().join("memory.reclaim"), "").expect("written");
        assert_eq!(said(true, MUCH), RollOut::Can);
        assert_eq!(said(true, "SwapTotal: 0 kB\nSwapFree: 0 kB\n"), cant("no swap"));
        assert_eq!(said(true, ""), cant("no swap"));
        let little = "SwapTotal: 2097152 kB\nSwapFree: 131071 kB\n";
        assert_eq!(said(true, little), cant("little swap left"));
        fs::write(group.path().join("memory.swap.max"), "0\n").expect("written");
        let RollOut::Cant(why) = said(true, MUCH) else { panic!("it can") };
        assert!(why.starts_with("no swap for its groups (memory.swap.max of /"), "{why}");
    }

    /// A group with so much memory, of which so much is locked, and how often it is asked.
    fn brought(current: u64, locked: u64, ends_at: u32, swap: bool) -> (Option<String>, u64, u32) {
        let group = tempfile::tempdir().expect("a directory");
        let file = group.path().join("memory.current");
        fs::write(&file, current.to_string()).expect("written");
        let asked = Cell::new(0);
        let ask = |group: &Path| {
            asked.set(asked.get() + 1);
            let left = number(group, "memory.current");
            let goes = PIECE.min(left - locked);
            fs::write(&file, (left - goes).to_string()).expect("written");
            match goes {
                PIECE => Ok(()),
                _ => Err(Errno::AGAIN.into()),
            }
        };
        let wanting = || (!swap).then_some(LITTLE);
        let why = bring(&[group.path().to_owned()], || asked.get() >= ends_at, wanting, ask);
        (why, number(group.path(), "memory.current"), asked.get())
    }

    #[test]
    fn it_goes_piece_by_piece_until_nothing_more_can() {
        let most = u32::MAX;
        assert_eq!(brought(3 * PIECE, 0, most, true), (None, 0, 3));
        // The last piece, which takes next to nothing, tells that the rest stays.
        assert_eq!(brought(2 * PIECE + 1, PIECE, most, true), (None, PIECE, 2));
        assert_eq!(brought(2 * PIECE + LEAST, PIECE, most, true), (None, PIECE, 3));
        assert_eq!(brought(LEAST - 1, 0, most, true), (None, LEAST - 1, 0));
        let turn = Some("its turn has come".to_owned());
        assert_eq!(brought(3 * PIECE, 0, 1, true), (turn, 2 * PIECE, 1));
        let little = Some("its node has little swap left".to_owned());
        assert_eq!(brought(3 * PIECE, 0, most, false), (little, 3 * PIECE, 0));
        // A group that has gone has no memory.
        assert_eq!(bring(&["/nowhere".into()], || false, || None, |_| Ok(())), None);
    }
}
