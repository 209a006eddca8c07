//! Processes that do not die: who they are and where the kernel holds them.
//!
//! A process in uninterruptible sleep (state D: a file system that hangs, a device that does not
//! answer) takes its KILL when that sleep ends and not before. Nobody can do more about it than say
//! which it is, so that somebody can see to the file system.

use crate::machine::Nid;
use std::fs;

/// Name and state in the text of /proc/PID/stat.
fn name_and_state(stat: &str) -> Option<(&str, char)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    Some((name, after.trim_start().chars().next()?))
}

/// The process in words; `None`: it is gone, or ended and only to be waited for.
pub fn describe(pid: i32, rank: Option<u32>, nid: Nid) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (name, state) = name_and_state(&stat)?;
    // Empty, `0`, or not to be read: not known.
    let place = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    words(pid, name, state, rank, nid, &place)
}

/// One that may be an application's in words: nothing more can be learned of it for now.
pub fn unseen(pid: i32, nid: Nid) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (name, state) = name_and_state(&stat)?;
    let name = printable(name);
    Some(format!(
        "pid {pid} '{name}' may be its own on NID {nid}, and can't be looked at: it waits in the \
         kernel (state {state}) with its memory locked; until that wait ends the processors stay held"
    ))
}

/// A program gives itself its name, and terminals obey what they are sent.
fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn words(
    pid: i32,
    name: &str,
    state: char,
    rank: Option<u32>,
    nid: Nid,
    place: &str,
) -> Option<String> {
    let name = printable(name);
    let of = rank.map(|rank| format!(" of PE {rank}")).unwrap_or_default();
    let place = place.trim();
    let place = if ["", "0"].contains(&place) { String::new() } else { format!(", in {place}") };
    match state {
        'Z' | 'X' => None,
        'D' => Some(format!(
            "pid {pid} '{name}'{of} waits in the kernel (D) on NID {nid}{place}; it ends when that \
             wait does, and its processors stay held until then"
        )),
        other => Some(format!(
            "pid {pid} '{name}'{of} does not die on NID {nid} (state {other}); its processors stay \
             held until it does"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_who_waits_where() {
        assert_eq!(name_and_state("12 (a) (b) D 7 12"), Some(("a) (b", 'D')));
        assert_eq!(name_and_state(""), None);
        let said = |state, rank, place| words(4711, "a.\u{1b}out", state, rank, Nid(2), place);
        assert_eq!(
            said('D', Some(3), "percpu_rwsem_wait").as_deref(),
            Some(
                "pid 4711 'a.?out' of PE 3 waits in the kernel (D) on NID 2, in \
                 percpu_rwsem_wait; it ends when that wait does, and its processors stay held until \
                 then"
            )
        );
        assert!(
            said('D', None, "0")
                .expect("said")
                .contains("'a.?out' waits in the kernel (D) on NID 2; ")
        );
        assert!(said('R', None, "").expect("said").contains("does not die on NID 2 (state R)"));
        assert_eq!(said('Z', None, ""), None);
        let own = std::process::id() as i32;
        assert!(describe(own, None, Nid(0)).is_some_and(|text| text.contains(&own.to_string())));
    }
}
