//! The freezer of one group.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// It, with its files open: a change of gangs opens none.
#[derive(Debug)]
pub struct Freezer {
    freeze: File,
    events: File,
    group: PathBuf,
}

/// The group has been removed, with everybody in it.
pub(super) fn gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOENT))
}

/// What a process can wait for that has something to do: processors, a disk, memory that is brought in.
const PRESSURES: [&str; 3] = ["cpu.pressure", "io.pressure", "memory.pressure"];

/// The time in which some process of a group waited for one of [`PRESSURES`]; zero for what is not there.
fn stalled(group: &Path) -> Duration {
    let text = |name: &&str| std::fs::read_to_string(group.join(name)).ok();
    PRESSURES.iter().filter_map(text).filter_map(|text| waited(&text)).sum()
}

/// The time in which some process waited, in the text of such a file.
fn waited(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split(' ').find_map(|word| word.strip_prefix("total="))?;
    total.trim().parse().ok().map(Duration::from_micros)
}

impl Freezer {
    /// That of this group.
    ///
    /// # Errors
    /// Those of open.
    pub(super) fn open(group: &Path) -> io::Result<Freezer> {
        Ok(Freezer {
            freeze: File::options().read(true).write(true).open(group.join("cgroup.freeze"))?,
            events: File::open(group.join("cgroup.events"))?,
            group: group.to_owned(),
        })
    }

    /// Sets it, or takes it away. Once it is set no process of the group runs an instruction of the
    /// user's any more.
    ///
    /// # Errors
    /// Those of write; none where the group has gone.
    pub fn freeze(&self, on: bool) -> io::Result<()> {
        let word: &[u8] = if on { b"1" } else { b"0" };
        match self.freeze.write_all_at(word, 0) {
            Err(error) if !gone(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether it is set.
    pub fn set(&self) -> bool {
        let mut text = [0; 8];
        self.freeze.read_at(&mut text, 0).is_ok_and(|read| text[..read].starts_with(b"1"))
    }

    /// Whether it is set, and every process stands. (Nobody is in a group that has gone.)
    pub fn frozen(&self) -> bool {
        let mut text = [0; 128];
        match self.events.read_at(&mut text, 0) {
            Ok(read) => text[..read].split(|b| *b == b'\n').any(|line| line == b"frozen 1"),
            Err(error) => gone(&error),
        }
    }

    /// The processor time of all that ever ran in it, the kernel's work for them included; `None`:
    /// it can't be read.
    pub fn used(&self) -> Option<Duration> {
        let (user, system) = super::cpu::cpu_of_group(&self.group)?;
        Some(user + system)
    }

    /// The time in which some process of it waited for a processor that others had, for a disk or for memory: it has
    /// something to do, and sleeps for nobody. Zero without pressure stall information in the kernel.
    pub fn stalled(&self) -> Duration {
        stalled(&self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read() {
        let text = "some avg10=1.00 avg60=0.00 avg300=0.00 total=5678\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!(waited(text), Some(Duration::from_micros(5_678)));
        assert_eq!(waited("full total=9\n"), None);
        assert_eq!(waited("some total=none\n"), None);
        let group = tempfile::tempdir().expect("a folder");
        assert_eq!(stalled(group.path()), Duration::ZERO);
        for (name, us) in [("cpu", 1), ("io", 20), ("memory", 300)] {
            let text = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={us}\n");
            std::fs::write(group.path().join(format!("{name}.pressure")), text).expect("written");
        }
        assert_eq!(stalled(group.path()), Duration::from_micros(321));
    }
}
