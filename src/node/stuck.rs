//! Processes that do not die, or do not stop: who they are and where the kernel holds them.
//!
//! A process in uninterruptible sleep (state D: a file system that hangs, a device that does not
//! answer) takes its KILL when that sleep ends and not before. Nobody can do more about it than say
//! which it is, so that somebody can see to the file system. One of a gang that was frozen enters the
//! freezer when that sleep ends; until then it runs no instruction of its program either.

use crate::machine::Nid;
use crate::steering::steers;
use std::fs;

/// Name and state in the text of /proc/PID/stat.
fn name_and_state(stat: &str) -> Option<(&str, char)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    Some((name, after.trim_start().chars().next()?))
}

/// The process in words; `None`: it is gone, or ended and only to be waited for.
pub fn describe(pid: i32, rank: Option<u32>, nid: Nid) -> Option<String> {
    let (stat, place) = stat_and_place(&pid.to_string())?;
    let (name, state) = name_and_state(&stat)?;
    words(pid, name, state, rank, nid, &place)
}

/// The text of /proc/PID/stat, and where in the kernel it waits.
fn stat_and_place(process: &str) -> Option<(String, String)> {
    let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
    let place = fs::read_to_string(format!("/proc/{process}/wchan")).unwrap_or_default();
    Some((String::from_utf8_lossy(&stat).into_owned(), place))
}

/// A place in the kernel, in words.
fn at(place: &str) -> String {
    match place.trim() {
        // Not known, or not to be read.
        "" | "0" => String::new(),
        place => format!(", in {place}"),
    }
}

/// Name, fit for a terminal, and state of a process.
fn shown(pid: i32) -> Option<(String, char)> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (name, state) = name_and_state(&stat)?;
    Some((printable(name), state))
}

/// A process of an application that does not freeze, in words; `None`: it has ended.
pub fn unfrozen(pid: i32, nid: Nid) -> Option<String> {
    let (name, state) = shown(pid)?;
    Some(format!("pid {pid} '{name}' on NID {nid} is in state {state}"))
}

/// One that may be an application's in words: nothing more can be learned of it for now.
pub fn unseen(pid: i32, nid: Nid) -> Option<String> {
    let (name, state) = shown(pid)?;
    Some(format!(
        "pid {pid} '{name}' on NID {nid} may belong to it, and can't be examined: that process \
         waits in the kernel (state {state}) with its memory locked; until that wait ends the \
         processors stay held"
    ))
}

/// What is seen of a thread that may be waiting in the kernel, at one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// It in words, as of a look at which it did wait.
    pub words: Option<String>,
    /// Changes when it runs an instruction of its program (or so it may be assumed).
    done: Vec<String>,
}

impl Wait {
    /// A look at all threads of a process, by their numbers.
    pub fn look(pid: i32, nid: Nid) -> impl Iterator<Item = (i32, Wait)> {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let threads = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        threads.filter_map(move |thread| Some((thread, Wait::look_at(pid, thread, nid)?)))
    }

    /// `None`: it stands, or is gone. (Being told to stop wakes one that waits for an instant.)
    fn look_at(pid: i32, thread: i32, nid: Nid) -> Option<Wait> {
        // A thread's own are there too.
        let (stat, place) = stat_and_place(&format!("{pid}/task/{thread}"))?;
        let (name, state) = name_and_state(&stat)?;
        let words = match state {
            'D' => Some(format!(
                "pid {pid} '{}' waits in the kernel (D) on NID {nid}{}: while that lasts it can't be \
                 frozen, and runs no instruction",
                printable(name),
                at(&place)
            )),
            'R' => None,
            _ => return None,
        };
        // Page faults, user time; calls that read and write, where that may be seen.
        let fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let fields = fields.enumerate().filter(|(at, _)| [7, 9, 11].contains(at));
        let io = format!("/proc/{pid}/task/{thread}/io");
        let io = fs::read_to_string(io).unwrap_or_default();
        let done = fields.map(|(_, word)| word.to_owned()).chain([io]).collect();
        Some(Wait { words, done })
    }

    /// With what was seen before, if it has been in the same wait since.
    pub fn same(mut self, before: &Wait) -> Option<Wait> {
        self.words = self.words.or_else(|| before.words.clone());
        (self.done == before.done && self.words.is_some()).then_some(self)
    }
}

/// A program gives itself its name, and terminals obey what they are sent.
fn printable(name: &str) -> String {
    name.chars().map(|c| if steers(c) { '?' } else { c }).collect()
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
    let place = at(place);
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
        assert_eq!((at("fuse_wait\n"), at("0")), (", in fuse_wait".into(), String::new()));
        let own = unfrozen(std::process::id() as i32, Nid(1)).expect("it lives");
        assert!(own.contains(" on NID 1 is in state "), "{own}");
        assert_eq!(unfrozen(i32::MAX, Nid(1)), None);
        let look = |words: Option<&str>, done: &str| Wait {
            words: words.map(str::to_owned),
            done: vec![done.to_owned()],
        };
        assert_eq!(look(None, "7").same(&look(Some("a"), "7")), Some(look(Some("a"), "7")));
        assert_eq!(look(Some("b"), "7").same(&look(None, "7")), Some(look(Some("b"), "7")));
        assert_eq!(look(Some("b"), "8").same(&look(Some("a"), "7")), None);
        assert_eq!(look(None, "7").same(&look(None, "7")), None);
        let own = std::process::id() as i32;
        assert!(describe(own, None, Nid(0)).is_some_and(|text| text.contains(&own.to_string())));
    }
}
