//! Which limits groups can have, and why not others.
//!
//! A controller works in a group if it is in the `cgroup.subtree_control` of every group above.
//! From the root down to apinit's own group that is others' business (systemd's: `Delegate=yes`).
//! apinit enables it in its own group alone, and there the kernel has a condition: no process may be
//! in a group whose children have a controller. So apinit moves itself, and nobody else, into a leaf
//! ([`LEAF`]). If others are in its group as well, it is not apinit's alone, and nothing is enabled.
//!
//! **systemd** puts the process that it starts into the unit's own group, also while applications
//! of the one before run below it, and the kernel refuses that once a controller is enabled there:
//! the unit could not be started again (219/CGROUP). (`DelegateSubgroup=` cures that in some
//! versions and not in those before 254, nor in newer ones that begin in the unit's group and move
//! on.) So an apinit that systemd started enables nothing in its own group. Its applications'
//! groups are in that of another unit, which is never started again: a process that only
//! holds it ([`super::Groups::hold`]).

use std::fs;
use std::path::{Path, PathBuf};

/// The group of apinit itself, below the one that is delegated to it.
pub const LEAF: &str = "psched.daemon";

/// What there is below a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Controllers {
    /// `memory.max`.
    pub memory: bool,
    /// `pids.max`.
    pub pids: bool,
    /// `cpuset.cpus`, and `cpuset.mems`.
    pub cpuset: bool,
    /// What there is not, in words.
    pub notes: Vec<String>,
}

/// The controllers that are used, and what each is for.
const USED: [(&str, &str); 3] = [
    ("cpuset", "processors are not enforced"),
    ("memory", "memory is neither limited (-m) nor kept for a gang"),
    ("pids", "processes (pids_max) are not limited"),
];

fn words(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// The group below which an apinit in this group makes its own: itself, or the one that it has left
/// for its leaf.
pub fn base_of(own: PathBuf) -> PathBuf {
    match (own.file_name(), own.parent()) {
        (Some(name), Some(parent)) if name == LEAF => parent.to_owned(),
        _ => own,
    }
}

/// Enables what can be enabled below this group, and says what that is. `supervised`: it is the own
/// group of a process that will be started there again.
pub fn enable(base: &Path, supervised: bool) -> Controllers {
    let control = base.join("cgroup.subtree_control");
    let there = words(&base.join("cgroup.controllers"));
    let lacks = |enabled: &[String]| -> Vec<&str> {
        let wanted = USED.iter().map(|(name, _)| *name);
        wanted.filter(|n| there.iter().any(|t| t == n) && !enabled.iter().any(|e| e == n)).collect()
    };
    let mut why_not = String::new();
    let lacking = lacks(&words(&control));
    if !lacking.is_empty() {
        match make_room(base, supervised) {
            Ok(()) => {
                for name in lacking {
                    if let Err(error) = fs::write(&control, format!("+{name}")) {
                        why_not = format!("{}: {error}", control.display());
                    }
                }
            }
            Err(why) => why_not = why,
        }
    }
    let enabled = words(&control);
    let mut found = Controllers::default();
    for (name, what) in USED {
        if enabled.iter().any(|e| e == name) {
            match name {
                "memory" => found.memory = true,
                "cpuset" => found.cpuset = true,
                _ => found.pids = true,
            }
        } else if there.iter().any(|t| t == name) {
            found.notes.push(format!("{what}: {why_not}"));
        } else {
            let base = base.display();
            found.notes.push(format!("{what}: no {name} controller of cgroup v2 in {base}"));
        }
    }
    if let Some(group) = nothing_kept(base).filter(|_| found.memory) {
        found.notes.push(format!(
            "memory is not kept for a gang on several nodes while it runs: memory.min of {} is 0 \
             (systemd: MemoryMin= of the unit and of the slices above it)",
            group.display()
        ));
    }
    found
}

/// The first group from here upwards whose share of the memory that stays is nothing: then those below
/// have none either, whatever is said of them.
fn nothing_kept(base: &Path) -> Option<&Path> {
    let min = |group: &&Path| fs::read_to_string(group.join("memory.min")).ok();
    // (The root has none.)
    let mut groups = base.ancestors().map_while(|group| Some((group, min(&group)?)));
    groups.find(|(_, min)| min.trim() == "0").map(|(group, _)| group)
}

/// Sees to it that no process is in this group, by leaving it for the leaf, if that is all it takes.
fn make_room(base: &Path, supervised: bool) -> Result<(), String> {
    if !base.join("cgroup.type").exists() {
        // The root of all groups: its controllers are not ours to hand out.
        return Err(
            "apinit is in the root group: start it in a group of its own, delegated to it \
                    (systemd: Delegate=yes)"
                .into(),
        );
    }
    if supervised {
        return Err(format!(
            "systemd could not start apinit again in {}: give it the group of psched-groups.service \
             (--groups, see apinit(8))",
            base.display()
        ));
    }
    let own = std::process::id().to_string();
    let inside = words(&base.join("cgroup.procs"));
    if inside.iter().any(|pid| *pid != own) {
        return Err(format!(
            "other processes are in apinit's group {}: start it in a group of its own, delegated to \
             it (systemd: Delegate=yes)",
            base.display()
        ));
    }
    if inside.is_empty() {
        return Ok(());
    }
    let leaf = base.join(LEAF);
    let moved = fs::create_dir(&leaf)
        .or_else(|e| if leaf.is_dir() { Ok(()) } else { Err(e) })
        .and_then(|()| fs::write(leaf.join("cgroup.procs"), own));
    moved.map_err(|e| format!("apinit can't move itself into {}: {e}", leaf.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_and_what_is_not_is_said() {
        let group = tempfile::tempdir().expect("a directory");
        let write =
            |name: &str, text: &str| fs::write(group.path().join(name), text).expect("written");
        write("cgroup.controllers", "cpu pids\n");
        write("cgroup.subtree_control", "pids\n");
        let found = enable(group.path(), false);
        assert_eq!((found.memory, found.pids), (false, true));
        assert!(found.notes[0].starts_with("processors are not enforced: no cpuset controller"));
        assert!(found.notes[1].starts_with(
            "memory is neither limited (-m) nor kept for a gang: no memory controller"
        ));
        // Delegated, and somebody else is there.
        write("cgroup.controllers", "cpuset memory pids\n");
        write("cgroup.subtree_control", "cpuset pids\n");
        write("cgroup.type", "domain\n");
        write("cgroup.procs", "1\n");
        let found = enable(group.path(), false);
        assert_eq!((found.memory, found.cpuset, found.notes.len()), (false, true, 1));
        assert!(found.notes[0].contains("other processes are in apinit's group"), "{found:?}");
        assert!(enable(group.path(), true).notes[0].contains("psched-groups.service"));
        assert_eq!(
            fs::read_to_string(group.path().join("cgroup.subtree_control")).ok(),
            Some("cpuset pids\n".into())
        );
        // What is above decides whether memory can be kept.
        let below = group.path().join("below");
        fs::create_dir(&below).expect("made");
        for (name, text) in
            [("cgroup.controllers", "memory\n"), ("cgroup.subtree_control", "memory\n")]
        {
            fs::write(below.join(name), text).expect("written");
        }
        fs::write(below.join("memory.min"), "max\n").expect("written");
        write("memory.min", "0\n");
        let found = enable(&below, false);
        let note = found.notes.iter().find(|note| note.contains("memory.min of"));
        let above = format!("memory.min of {} is 0", group.path().display());
        assert!(note.is_some_and(|note| note.contains(&above)), "{found:?}");
        write("memory.min", "4096\n");
        assert!(!enable(&below, false).notes.iter().any(|note| note.contains("memory.min")));
        // The root has no type.
        fs::remove_file(group.path().join("cgroup.type")).expect("removed");
        assert!(enable(group.path(), false).notes[0].contains("the root group"));
    }

    #[test]
    fn the_unit_asks_systemd_for_those_that_are_used() {
        let unit = include_str!("../../../config/systemd/psched-groups.service");
        let asked: Vec<&str> = unit.lines().filter_map(|l| l.strip_prefix("Delegate=")).collect();
        // No other: with cpu, PEs that are nicer would give way to nobody but applications.
        assert_eq!(asked, [USED.map(|(name, _)| name).join(" ")]);
    }

    #[test]
    fn the_leaf_is_not_where_groups_are_made() {
        assert_eq!(base_of("/g/apinit.service".into()), Path::new("/g/apinit.service"));
        assert_eq!(
            base_of("/g/apinit.service/psched.daemon".into()),
            Path::new("/g/apinit.service")
        );
    }
}
