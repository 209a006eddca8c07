//! What this machine has: NUMA domains, real cores, memory, as far as the caller may use them.
//!
//! A processor is a core: of its SMT siblings only the lowest-numbered one that the caller may run
//! on counts. Everything is read from /sys and /proc, below a root that tests replace.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// One NUMA domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// One real processor number for each core, ascending; at least one.
    pub cpus: Vec<u32>,
    /// Bytes.
    pub memory: u64,
}

/// The machine, domain by domain, those without a usable core left out; at least one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// In the order of their numbers.
    pub domains: Vec<Domain>,
}

impl Topology {
    /// Real cores in all.
    pub fn cores(&self) -> u32 {
        self.domains.iter().map(|d| d.cpus.len() as u32).sum()
    }

    /// Memory in all, in bytes.
    pub fn memory(&self) -> u64 {
        self.domains.iter().map(|d| d.memory).sum()
    }

    /// Real cores, ascending.
    pub fn cpus(&self) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.domains.iter().flat_map(|d| d.cpus.iter().copied()).collect();
        cpus.sort_unstable();
        cpus
    }

    /// Of it these cores only; all of it where none of them is there.
    pub fn only(&self, cpus: &[u32]) -> Topology {
        let mut domains = self.domains.clone();
        domains.iter_mut().for_each(|domain| domain.cpus.retain(|cpu| cpus.contains(cpu)));
        domains.retain(|domain| !domain.cpus.is_empty());
        if domains.is_empty() { self.clone() } else { Topology { domains } }
    }

    /// Reads it below `root` (`/`, but for tests). What can't be read is made up from what can: at
    /// worst there is one domain with one core.
    pub fn read(root: &Path) -> Topology {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let status = text("proc/self/status");
        let allowed = status
            .lines()
            .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))
            .map(cpu_list)
            .filter(|cpus| !cpus.is_empty())
            .unwrap_or_else(|| BTreeSet::from([0]));
        let cores: BTreeSet<u32> = allowed
            .iter()
            .copied()
            .filter(|cpu| {
                let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
                let siblings = cpu_list(&text(&format!("{topology}/thread_siblings_list")));
                siblings.iter().find(|s| allowed.contains(s)).is_none_or(|lowest| lowest == cpu)
            })
            .collect();
        let mut numbers: Vec<u32> = fs::read_dir(root.join("sys/devices/system/node"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.strip_prefix("node")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        let domains: Vec<Domain> = numbers
            .into_iter()
            .filter_map(|n| {
                let directory = format!("sys/devices/system/node/node{n}");
                let here = cpu_list(&text(&format!("{directory}/cpulist")));
                let cpus: Vec<u32> = cores.intersection(&here).copied().collect();
                let memory = mem_total(&text(&format!("{directory}/meminfo"))).unwrap_or(0);
                (!cpus.is_empty()).then_some(Domain { cpus, memory })
            })
            .collect();
        if domains.is_empty() {
            let memory = mem_total(&text("proc/meminfo")).unwrap_or(1 << 30);
            return Topology {
                domains: vec![Domain { cpus: cores.into_iter().collect(), memory }],
            };
        }
        Topology { domains }
    }
}

/// Linux's lists of processors: `0-3,8`. What can't be read is left out.
fn cpu_list(text: &str) -> BTreeSet<u32> {
    /// More than any machine has: a broken file must not become a long loop.
    const CPU_MAX: u32 = 1 << 16;
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.trim().parse::<u32>(), to.trim().parse::<u32>()) {
            cpus.extend(from..=to.min(CPU_MAX));
        }
    }
    cpus
}

/// `MemTotal` of a meminfo file, in bytes.
fn mem_total(text: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.contains("MemTotal:"))?;
    let kib: u64 =
        line.split("MemTotal:").nth(1)?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("made");
            fs::write(path, text).expect("written");
        }
        root
    }

    #[test]
    fn siblings_are_one_processor_and_domains_are_nodes() {
        let mut files = vec![
            ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-5,7\n"),
            ("sys/devices/system/node/node0/cpulist", "0-1,4-5\n"),
            (
                "sys/devices/system/node/node0/meminfo",
                "Node 0 MemTotal:  1024 kB\nNode 0 MemFree: 1 kB\n",
            ),
            ("sys/devices/system/node/node1/cpulist", "2-3,6-7\n"),
            ("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:  2048 kB\n"),
            // Memory alone: no node.
            ("sys/devices/system/node/node2/cpulist", "\n"),
            ("sys/devices/system/node/online", "0-2\n"),
        ];
        let siblings: Vec<(String, String)> = (0..8)
            .map(|c| {
                let path = format!("sys/devices/system/cpu/cpu{c}/topology/thread_siblings_list");
                (path, format!("{},{}\n", c % 4, c % 4 + 4))
            })
            .collect();
        files.extend(siblings.iter().map(|(a, b)| (a.as_str(), b.as_str())));
        let root = machine(&files);
        let found = Topology::read(root.path());
        let domain = |cpus: &[u32], memory| Domain { cpus: cpus.to_vec(), memory };
        assert_eq!(found.domains, [domain(&[0, 1], 1024 * 1024), domain(&[2, 3], 2 * 1024 * 1024)]);
        assert_eq!((found.cores(), found.memory()), (4, 3 * 1024 * 1024));
        // cpu 3 not allowed: its sibling stands for the core.
        fs::write(root.path().join("proc/self/status"), "Cpus_allowed_list:\t2,4,7\n").expect("ok");
        let found = Topology::read(root.path());
        assert_eq!(
            found.domains.iter().map(|d| d.cpus.clone()).collect::<Vec<_>>(),
            [vec![4], vec![2, 7]]
        );
    }

    #[test]
    fn a_machine_without_domains_is_one() {
        let root = machine(&[
            ("proc/self/status", "Cpus_allowed_list:\t0-1\n"),
            ("proc/meminfo", "MemTotal:       24 kB\n"),
        ]);
        let all = Domain { cpus: vec![0, 1], memory: 24 * 1024 };
        assert_eq!(Topology::read(root.path()).domains, [all]);
        let empty = machine(&[]);
        assert_eq!(Topology::read(empty.path()).cores(), 1);
    }
}
