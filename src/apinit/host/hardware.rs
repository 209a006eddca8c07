//! What this host is and has.

use crate::machine::node_memory::Bank;
use crate::node::groups::numbers;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Of each core the processor with the lowest number, of those allowed: the siblings of a core
/// never go to two gangs. `siblings` gives the processors of a processor's core.
fn one_of_each_core(allowed: &BTreeSet<u32>, siblings: impl Fn(u32) -> BTreeSet<u32>) -> Vec<u32> {
    let first = |cpu: u32| siblings(cpu).into_iter().find(|s| allowed.contains(s)).unwrap_or(cpu);
    allowed.iter().copied().filter(|cpu| first(*cpu) == *cpu).collect()
}

/// The real processors that this process may use, one of each core.
pub(super) fn cpus() -> Vec<u32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
    let allowed = numbers(line.unwrap_or("0"));
    one_of_each_core(&allowed, |cpu| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        fs::read_to_string(path).map(|text| numbers(&text)).unwrap_or_default()
    })
}

/// The NUMA node of each real processor, as this folder of /sys has it; empty where the kernel does not
/// say.
pub(super) fn numa_nodes(folder: &Path) -> BTreeMap<u32, u32> {
    let mut nodes = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|n| n.strip_prefix("node")?.parse::<u32>().ok());
        let Some(number) = number else { continue };
        let cpus = fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
        nodes.extend(numbers(&cpus).into_iter().map(|cpu| (cpu, number)));
    }
    nodes
}

/// The NUMA nodes that have processors, as this folder of /sys has them.
pub(super) fn banks(folder: &Path) -> Vec<Bank> {
    let mut banks: BTreeMap<u32, Bank> = BTreeMap::new();
    for (cpu, number) in numa_nodes(folder) {
        banks.entry(number).or_default().cpus.push(cpu);
    }
    for (number, bank) in &mut banks {
        let path = folder.join(format!("node{number}/meminfo"));
        bank.memory = total(&fs::read_to_string(path).unwrap_or_default());
    }
    banks.into_values().collect()
}

/// The NUMA nodes that have memory; empty where the kernel does not say.
pub(super) fn memory_nodes(folder: &Path) -> BTreeSet<u32> {
    numbers(&fs::read_to_string(folder.join("has_memory")).unwrap_or_default())
}

/// The NUMA nodes in which a psched node with these processors has its memory: its own, and those
/// that have no processors and are everybody's. Empty: all, or it is not known.
pub(super) fn mems_of(
    cpus: &[u32],
    numa: &BTreeMap<u32, u32>,
    with_memory: &BTreeSet<u32>,
) -> Vec<u32> {
    let own: BTreeSet<u32> = cpus.iter().filter_map(|cpu| numa.get(cpu).copied()).collect();
    let with_cpus: BTreeSet<u32> = numa.values().copied().collect();
    if own.is_empty() || !own.is_subset(with_memory) || own == with_cpus {
        return Vec::new();
    }
    let mine = |node: &u32| own.contains(node) || !with_cpus.contains(node);
    with_memory.iter().copied().filter(mine).collect()
}

/// Bytes of memory.
pub(super) fn memory() -> u64 {
    total(&fs::read_to_string("/proc/meminfo").unwrap_or_default())
}

/// `MemTotal` of a meminfo file, in bytes.
fn total(text: &str) -> u64 {
    let line = text.lines().find_map(|l| Some(l.split_once("MemTotal:")?.1)).unwrap_or_default();
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap_or(0);
    kib.saturating_mul(1024)
}

/// Its machine, as `uname -m` has it.
pub(super) fn arch() -> String {
    rustix::system::uname().machine().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_counts_once() {
        assert_eq!(numbers("0-3,8\n"), [0, 1, 2, 3, 8].into());
        assert_eq!(numbers(""), [].into());
        // Two threads a core, numbered 0-3 and 4-7.
        let core = |cpu: u32| [cpu % 4, cpu % 4 + 4].into();
        assert_eq!(one_of_each_core(&(0..8).collect(), core), [0, 1, 2, 3]);
        assert_eq!(one_of_each_core(&[1, 5, 6].into(), core), [1, 6]);
        // Nothing known of cores: each is one.
        assert_eq!(one_of_each_core(&[1, 5].into(), |_| [].into()), [1, 5]);
        assert!(!cpus().is_empty() && memory() > 0);
    }

    #[test]
    fn memory_is_of_the_nodes_own_numa_nodes() {
        let numa = [(0, 0), (1, 0), (2, 1), (3, 1)].into();
        let mems = |cpus: &[u32], with_memory: &[u32]| {
            mems_of(cpus, &numa, &with_memory.iter().copied().collect())
        };
        assert_eq!(mems(&[0, 1], &[0, 1]), [0]);
        assert_eq!(mems(&[2], &[0, 1]), [1]);
        // A NUMA node without processors is everybody's.
        assert_eq!(mems(&[2, 3], &[0, 1, 7]), [1, 7]);
        // All of them, one without memory, and nothing known: it is not confined.
        assert_eq!(mems(&[1, 2], &[0, 1]), [] as [u32; 0]);
        assert_eq!(mems(&[2], &[0]), [] as [u32; 0]);
        assert_eq!(mems(&[9], &[0, 1]), [] as [u32; 0]);
    }

    #[test]
    fn numa_nodes_are_as_the_kernel_has_them() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, cpus) in [("node0", "0-1,8\n"), ("node2", "2-3\n"), ("node5", "\n")] {
            fs::create_dir(folder.path().join(name)).expect("made");
            fs::write(folder.path().join(name).join("cpulist"), cpus).expect("written");
        }
        fs::write(folder.path().join("online"), "0,2\n").expect("written");
        fs::create_dir(folder.path().join("power")).expect("made");
        let expected = [(0, 0), (1, 0), (8, 0), (2, 2), (3, 2)].into();
        assert_eq!(numa_nodes(folder.path()), expected);
        let text = "Node 2 MemTotal:        1024 kB\nNode 2 MemFree:  1 kB\n";
        fs::write(folder.path().join("node2/meminfo"), text).expect("written");
        let bank = |cpus: &[u32], memory| Bank { cpus: cpus.to_vec(), memory };
        assert_eq!(banks(folder.path()), [bank(&[0, 1, 8], 0), bank(&[2, 3], 1 << 20)]);
        assert_eq!(numa_nodes(Path::new("/nonexistent")), [].into());
    }
}
