//! Control groups: one for the PEs of each node, by which "nothing is left" is known for sure.
//!
//! Only cgroup v2 is used, wherever it is mounted (a hybrid machine has it at
//! /sys/fs/cgroup/unified), below apinit's own group:
//!
//! ```text
//!   psched.<8 digits of the store>/12.1/0          PEs on NID 0
//!                                      /1          PEs on NID 1
//!                                      /shepherd   their apshepherd
//! ```
//!
//! Processes are born in their group (clone3). The kernel lets a process put another into a group
//! if it may write `cgroup.procs` of that group and of the nearest group above both. So while the
//! shepherd, which is the user's, forks the PEs, those files are the user's, and apinit's again
//! before any of them has run an instruction ([`AppGroups::give`]).
//!
//! Where no group can be made there are none, which is said, and the marker in the environment of
//! each PE stands in ([`super::apinit`]).

use crate::apteam::Key;
use crate::machine::Nid;
use nix::unistd::{Gid, Uid, chown};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Where groups can be made.
#[derive(Clone, Debug)]
pub struct Groups {
    base: PathBuf,
}

/// The groups of one application on this host.
#[derive(Clone, Debug)]
pub struct AppGroups {
    path: PathBuf,
    nids: Vec<Nid>,
}

/// The v2 mount in /proc/self/mountinfo: (its root, where it is mounted).
fn v2_mount(mountinfo: &str) -> Option<(String, String)> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (after.split(' ').next() == Some("cgroup2")).then(|| (unescape(root), unescape(point)))
    })
}

/// mountinfo writes blanks and the like as `\040`.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        match after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &after[3..];
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out + rest
}

/// The v2 line of /proc/self/cgroup.
fn v2_group(cgroup: &str) -> Option<&str> {
    cgroup.lines().find_map(|line| line.strip_prefix("0::"))
}

/// The directory of a group, seen through a mount that may show only a part of the tree.
fn directory(root: &str, point: &str, group: &str) -> Option<PathBuf> {
    let below = group.strip_prefix(root.trim_end_matches('/'))?;
    Some(Path::new(point).join(below.trim_start_matches('/')))
}

impl Groups {
    /// Finds apinit's own group and tries whether groups can be made there.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn discover() -> Result<Groups, String> {
        let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
        let (root, point) = v2_mount(&read("/proc/self/mountinfo")?)
            .ok_or("no cgroup v2 file system is mounted")?;
        let own = read("/proc/self/cgroup")?;
        let group = v2_group(&own).ok_or("this process is in no v2 group")?;
        let base = directory(&root, &point, group)
            .ok_or_else(|| format!("its own group {group} is not below {point}"))?;
        Groups::at(base)
    }

    /// Groups below this one, if they can be made.
    fn at(base: PathBuf) -> Result<Groups, String> {
        let probe = base.join(format!("psched.probe.{}", std::process::id()));
        fs::create_dir(&probe)
            .map_err(|e| format!("no group can be made in {}: {e}", base.display()))?;
        let works = probe.join("cgroup.kill").exists();
        let _ = fs::remove_dir(&probe);
        if works {
            Ok(Groups { base })
        } else {
            Err("the kernel has no cgroup.kill (Linux 5.14)".into())
        }
    }

    /// Makes the groups of an application. `mark` is the beginning of the store's id, `alone` that
    /// no other apinit has a part of the application: one on the same host would have its own.
    ///
    /// # Errors
    /// Those of mkdir.
    pub fn make(&self, mark: &str, key: Key, nids: &[Nid], alone: bool) -> io::Result<AppGroups> {
        let name = match nids.first() {
            Some(first) if !alone => format!("{key}.{first}"),
            _ => key.to_string(),
        };
        let path = self.base.join(format!("psched.{mark}")).join(name);
        fs::create_dir_all(&path)?;
        let groups = AppGroups { path, nids: nids.to_vec() };
        for directory in groups.directories() {
            match fs::create_dir(&directory) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                    groups.remove();
                    return Err(e);
                }
                _ => {}
            }
        }
        Ok(groups)
    }
}

impl AppGroups {
    /// Those that a former life of this apinit has made.
    pub fn found(path: PathBuf, nids: Vec<Nid>) -> Option<AppGroups> {
        path.join("cgroup.procs").exists().then_some(AppGroups { path, nids })
    }

    /// Where they are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn of_nid(&self, nid: Nid) -> PathBuf {
        self.path.join(nid.to_string())
    }

    fn directories(&self) -> Vec<PathBuf> {
        let nids = self.nids.iter().map(|nid| self.of_nid(*nid));
        nids.chain([self.path.join("shepherd")]).collect()
    }

    /// The directory of the shepherd's group, and that of each node's.
    ///
    /// # Errors
    /// Those of open.
    pub fn open(&self) -> io::Result<(OwnedFd, Vec<(Nid, OwnedFd)>)> {
        let open = |path: PathBuf| File::open(path).map(OwnedFd::from);
        let nids: io::Result<_> =
            self.nids.iter().map(|nid| Ok((*nid, open(self.of_nid(*nid))?))).collect();
        Ok((open(self.path.join("shepherd"))?, nids?))
    }

    /// Lets this user put processes into the groups of the nodes; or, with apinit's own id, no more.
    ///
    /// # Errors
    /// Those of chown.
    pub fn give(&self, uid: u32) -> io::Result<()> {
        for nid in &self.nids {
            self.give_one(&self.of_nid(*nid), uid)?;
        }
        self.give_one(&self.path, uid)
    }

    fn give_one(&self, group: &Path, uid: u32) -> io::Result<()> {
        let file = group.join("cgroup.procs");
        chown(&file, Some(Uid::from_raw(uid)), None::<Gid>).map_err(io::Error::from)
    }

    /// Kills all PEs and what they have made; the shepherd too if so wanted.
    pub fn kill(&self, shepherd: bool) {
        let killed = match shepherd {
            true => fs::write(self.path.join("cgroup.kill"), "1"),
            false => self
                .nids
                .iter()
                .try_for_each(|nid| fs::write(self.of_nid(*nid).join("cgroup.kill"), "1")),
        };
        if let Err(error) = killed {
            tracing::warn!(group = %self.path.display(), %error, "can't kill");
        }
    }

    /// Whether no PE, and nothing that one has made, is alive. (A group that is gone is empty.)
    pub fn empty(&self) -> bool {
        self.nids.iter().all(|nid| {
            let events = fs::read_to_string(self.of_nid(*nid).join("cgroup.events"));
            events.map_or_else(
                |error| error.kind() == io::ErrorKind::NotFound,
                |text| text.lines().any(|line| line == "populated 0"),
            )
        })
    }

    /// How many processes are alive there.
    pub fn processes(&self) -> u32 {
        fn count(directory: &Path) -> usize {
            let own = fs::read_to_string(directory.join("cgroup.procs"));
            let below = fs::read_dir(directory).into_iter().flatten().flatten();
            let below = below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
            own.map_or(0, |text| text.lines().count())
                + below.map(|e| count(&e.path())).sum::<usize>()
        }
        let all = self.nids.iter().map(|nid| count(&self.of_nid(*nid))).sum::<usize>();
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    /// Removes them; says whether they are gone. They are not while a process is in one.
    pub fn remove(&self) -> bool {
        fn remove_tree(directory: &Path) {
            let below = fs::read_dir(directory).into_iter().flatten().flatten();
            for entry in below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
                remove_tree(&entry.path());
            }
            let _ = fs::remove_dir(directory);
        }
        remove_tree(&self.path);
        let gone = !self.path.exists();
        if let Some(above) = self.path.parent().filter(|_| gone) {
            // The last application takes the store's group with it: an Err is that others are left.
            let _ = fs::remove_dir(above);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_found_wherever_it_is() {
        let hybrid = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
             32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
             41 31 0:31 / /sys/fs/cgroup/unified rw,relatime shared:3 - cgroup2 cgroup2 rw\n";
        let (root, point) = v2_mount(hybrid).expect("there is one");
        assert_eq!((&*root, &*point), ("/", "/sys/fs/cgroup/unified"));
        let group = v2_group("4:memory:/x\n0::/system.slice/apinit.service\n").expect("one");
        assert_eq!(
            directory(&root, &point, group),
            Some("/sys/fs/cgroup/unified/system.slice/apinit.service".into())
        );
        let part = "9 8 0:2 /docker/ab /sys/fs/my\\040groups rw - cgroup2 none rw\n";
        let (root, point) = v2_mount(part).expect("there is one");
        assert_eq!(directory(&root, &point, "/docker/ab/x"), Some("/sys/fs/my groups/x".into()));
        assert_eq!(directory(&root, &point, "/elsewhere"), None);
        assert_eq!(v2_mount("1 2 0:3 / / rw - ext4 /dev/a rw\n"), None);
        assert_eq!(v2_group("1:cpu:/\n"), None);
    }
}
