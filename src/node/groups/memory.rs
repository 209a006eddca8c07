//! The memory of a gang: kept for it while it runs, anybody's while it stands.
//!
//! # The problem
//!
//! Gangs that take turns may have more memory than a node. What stands is to make room for what runs, and
//! not the other way round: the PEs of a gang wait for each other all the time, so that one page of one of
//! them that is not there stops them all.
//!
//! # The approach
//!
//! While a gang on more than one node runs, `memory.min` of its groups is what they have: nobody can take
//! that. It is 0 while the gang stands. The kernel keeps no more for a group than for the one above it, so
//! the groups above have the sum of those below: that of the application, and that of the store, which
//! holds the applications of all apinits of this host. (Two of them may sum up at once, and one of the
//! sums is then wrong until the next change, which costs time at most. What is above is not psched's:
//! [`super::controllers`] looks whether it allows anything.)
//!
//! A gang with a limit (`-m`) has nothing in swap while it runs: it would crawl instead of being told that
//! it is over it. While it stands it may go there.
//!
//! How much has gone is known from what it had when it was stopped.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Less than this is not brought in: the kernel counts each processor's next pages as a group's, up to
/// 256 KiB, and what is missing comes by itself in no time.
const OUT_MIN: u64 = 4 << 20;

/// The memory of one application's groups on this host, with the files open: a change of gangs opens none
/// but those of the sum.
#[derive(Debug)]
pub struct Memory {
    nodes: Vec<OfNode>,
    /// Of a gang on more than one node.
    above: Option<Above>,
    /// A failure has been told.
    said: bool,
}

#[derive(Debug)]
struct OfNode {
    path: PathBuf,
    current: File,
    min: File,
    /// Of one with a limit.
    swap_max: Option<File>,
    /// What it had when it was stopped; in bytes, as everything here.
    held: u64,
}

#[derive(Debug)]
struct Above {
    application: File,
    store: File,
    /// The directory of the store's group.
    of_store: PathBuf,
}

fn number(file: &File) -> io::Result<u64> {
    let mut text = [0; 32];
    let read = file.read_at(&mut text, 0)?;
    parse(&String::from_utf8_lossy(&text[..read]))
}

fn parse(text: &str) -> io::Result<u64> {
    match text.trim() {
        "max" => Ok(u64::MAX),
        text => text.parse().map_err(io::Error::other),
    }
}

impl OfNode {
    fn open(path: PathBuf, stands: bool) -> io::Result<OfNode> {
        let write = |name: &str| File::options().write(true).open(path.join(name));
        let current = File::open(path.join("memory.current"))?;
        // What is in swap is counted in until it is known what is not.
        let swapped = fs::read_to_string(path.join("memory.swap.current"));
        let swapped = swapped.ok().filter(|_| stands).and_then(|text| parse(&text).ok());
        let held = number(&current)?.saturating_add(swapped.unwrap_or(0));
        let limited = parse(&fs::read_to_string(path.join("memory.max"))?)? < u64::MAX;
        // Absent where the kernel has no swap.
        let swap_max = match limited {
            true => write("memory.swap.max").ok(),
            false => None,
        };
        Ok(OfNode { current, min: write("memory.min")?, swap_max, held, path })
    }
}

impl Memory {
    /// That of these groups of nodes, below `application`, below the store's. `locks`: it is kept while
    /// the gang runs. `stands`: the gang is stopped already.
    ///
    /// # Errors
    /// Those of open, and of files with other contents than the kernel's.
    pub(super) fn open(
        application: &Path,
        nodes: impl Iterator<Item = PathBuf>,
        locks: bool,
        stands: bool,
    ) -> io::Result<Memory> {
        let min = |group: &Path| File::options().write(true).open(group.join("memory.min"));
        let above = match application.parent().filter(|_| locks) {
            Some(store) => Some(Above {
                application: min(application)?,
                store: min(store)?,
                of_store: store.to_owned(),
            }),
            None => None,
        };
        let nodes = nodes.map(|path| OfNode::open(path, stands)).collect::<io::Result<_>>()?;
        Ok(Memory { nodes, above, said: false })
    }

    /// The groups.
    pub fn groups(&self) -> impl Iterator<Item = &Path> {
        self.nodes.iter().map(|node| node.path.as_path())
    }

    /// Bytes that have gone since it was stopped; 0 where that is not worth bringing in.
    pub fn out(&self) -> u64 {
        let out = |node: &OfNode| match number(&node.current) {
            Ok(now) => node.held.saturating_sub(now),
            Err(_) => 0,
        };
        let out = self.nodes.iter().map(out).fold(0, u64::saturating_add);
        if out < OUT_MIN { 0 } else { out }
    }

    /// It stands: its memory may go if somebody needs the room.
    pub fn release(&mut self) {
        let mut done = Ok(());
        for node in &mut self.nodes {
            match number(&node.current) {
                Ok(now) => node.held = now,
                Err(error) => done = Err(error),
            }
            if let Some(swap_max) = &node.swap_max {
                done = done.and(swap_max.write_all_at(b"max", 0));
            }
        }
        let locked = self.lock(|_| Ok(0));
        self.say(done.and(locked));
    }

    /// It is about to run: what it has stays.
    pub fn keep(&mut self) {
        let mut done = Ok(());
        for swap_max in self.nodes.iter().filter_map(|node| node.swap_max.as_ref()) {
            done = done.and(swap_max.write_all_at(b"0", 0));
        }
        let locked = self.lock(|node| number(&node.current));
        self.say(done.and(locked));
    }

    fn lock(&self, bytes: impl Fn(&OfNode) -> io::Result<u64>) -> io::Result<()> {
        let Some(above) = &self.above else { return Ok(()) };
        let mut sum = 0u64;
        for node in &self.nodes {
            let bytes = bytes(node)?;
            node.min.write_all_at(bytes.to_string().as_bytes(), 0)?;
            sum = sum.saturating_add(bytes);
        }
        above.application.write_all_at(sum.to_string().as_bytes(), 0)?;
        let mut all = 0u64;
        for entry in fs::read_dir(&above.of_store)?.flatten() {
            // (A file has none, nor has a group that has just gone.)
            if let Ok(text) = fs::read_to_string(entry.path().join("memory.min")) {
                all = all.saturating_add(parse(&text)?);
            }
        }
        above.store.write_all_at(all.to_string().as_bytes(), 0)
    }

    /// A group that has gone has no memory; everything else is told once.
    fn say(&mut self, done: io::Result<()>) {
        let Err(error) = done else { return };
        if !super::freezer::gone(&error) && !std::mem::replace(&mut self.said, true) {
            let group = self.groups().next().unwrap_or(Path::new("?")).display();
            tracing::warn!(%group, %error, "memory.min of an application can't be set");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as the kernel's: what is written takes the place of what was there.
    fn group(path: &Path, current: u64, max: &str) {
        fs::create_dir_all(path).expect("made");
        for (name, text) in [
            ("memory.current", current.to_string()),
            ("memory.min", "0".into()),
            ("memory.max", max.into()),
            ("memory.swap.max", "0".into()),
            ("memory.swap.current", "0".into()),
        ] {
            fs::write(path.join(name), text + "\n").expect("written");
        }
    }

    fn first(path: &Path, name: &str) -> String {
        let text = fs::read_to_string(path.join(name)).expect("there");
        text.lines().next().expect("a line").to_owned()
    }

    #[test]
    fn the_groups_above_keep_the_sum() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = folder.path();
        let (application, other) = (store.join("1.1"), store.join("2.1"));
        group(store, 0, "max");
        group(&application, 0, "max");
        group(&other, 0, "max");
        fs::write(other.join("memory.min"), "1000\n").expect("written");
        let nodes = [application.join("0"), application.join("1")];
        group(&nodes[0], 10_000_000, "max");
        group(&nodes[1], 20_000_000, "max");
        let open = |locks| {
            Memory::open(&application, nodes.iter().cloned(), locks, false).expect("opened")
        };
        let mut memory = open(true);
        memory.keep();
        assert_eq!(first(&nodes[1], "memory.min"), "20000000");
        assert_eq!(first(&application, "memory.min"), "30000000");
        assert_eq!(first(store, "memory.min"), "30001000");
        assert_eq!(first(&nodes[0], "memory.swap.max"), "0");
        // It has no more than one node: nobody's page is waited for elsewhere.
        fs::write(application.join("memory.min"), "0\n").expect("written");
        open(false).keep();
        assert_eq!(first(&application, "memory.min"), "0");
    }

    #[test]
    fn what_has_gone_since_it_stands_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let application = folder.path().join("1.1");
        group(folder.path(), 0, "max");
        group(&application, 0, "max");
        let node = application.join("0");
        group(&node, 10 << 20, "20000000");
        let nodes = || std::iter::once(node.clone());
        let mut memory = Memory::open(&application, nodes(), true, false).expect("opened");
        memory.release();
        assert_eq!(first(&node, "memory.swap.max"), "max");
        assert_eq!(memory.out(), 0);
        fs::write(node.join("memory.current"), "9000000\n").expect("written");
        assert_eq!(memory.out(), 0);
        fs::write(node.join("memory.current"), "1048576\n").expect("written");
        assert_eq!(memory.out(), 9 << 20);
        // Another life of apinit finds it standing: what is in swap may have gone.
        fs::write(node.join("memory.swap.current"), "8388608\n").expect("written");
        let memory = Memory::open(&application, nodes(), true, true).expect("opened");
        assert_eq!(memory.out(), 8 << 20);
    }
}
