//! Which MPI a process has loaded, and which PMIx: by what is mapped in its memory.

use crate::aprun::decide::elf::mpi_of;
use crate::apteam::posting::Mpi;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;

/// Bytes of a process's map that are read: more than a program with a thousand libraries has.
const MAP_MAX: u64 = 1024 * 1024;
/// Bytes of maps that are read in one look at all PEs together: the kernel writes them anew for each reader, and a PE may
/// have many processes of many maps.
pub const LOOK_MAX: u64 = 16 * MAP_MAX;
/// Processes of a PE that are looked at: a shell, an interpreter, what it runs.
const PROCESSES_MAX: usize = 16;
/// Threads of each whose children are.
const THREADS_MAX: usize = 64;

/// Bytes of the list of those: a few hundred.
const CHILDREN_MAX: u64 = 4096;

/// What these run is a program of their own, whose processes they look after. (The kernel knows 15 bytes of a name.)
const LAUNCHERS: [&str; 18] = [
    "aprun",
    "apshepherd",
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "mpirun.openmpi",
    "mpiexec.openmpi",
    "mpirun.mpich",
    "mpiexec.mpich",
    "mpirun.psched",
    "mpiexec.psched",
    "prun",
    "orterun",
    "prterun",
    "orted",
    "prted",
    "prte",
    "srun",
];

/// The MPI that a process, or one that descends from it, has loaded, launchers and what they run apart; `left`: so many
/// bytes of maps may still be read.
pub fn mpi_in(pid: i32, left: &mut u64) -> Mpi {
    let mpis = looked_at(pid, left, |libraries| {
        libraries.map(mpi_of_loaded).find(|mpi| *mpi != Mpi::None)
    });
    mpis.unwrap_or_default()
}

/// Whether a process, or one that descends from it, has an Open MPI with a PMIx of release 3: one of release 4 without a
/// libpmix beside it, or with libpmix.so.2.2.*, as the file of those releases is called. `left` as above.
pub fn has_pmix_3(pid: i32, left: &mut u64) -> bool {
    looked_at(pid, left, |libraries| pmix_3_in(libraries).then_some(())).is_some()
}

fn pmix_3_in<'a>(libraries: impl Iterator<Item = &'a [u8]>) -> bool {
    let (mut of_4, mut beside) = (false, false);
    for library in libraries {
        of_4 |= library.starts_with(b"libopen-pal.so.40");
        beside |= library.starts_with(b"libpmix.so") && !library.starts_with(b"libpmix.so.2.2.");
    }
    of_4 && !beside
}

/// Looks at the libraries of each of these processes in turn, until something is found.
fn looked_at<T>(
    pid: i32,
    left: &mut u64,
    look: impl Fn(&mut dyn Iterator<Item = &[u8]>) -> Option<T>,
) -> Option<T> {
    let mut todo = VecDeque::from([pid]);
    for _ in 0..PROCESSES_MAX {
        let pid = todo.pop_front()?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if LAUNCHERS.contains(&name.trim_end()) {
            continue;
        }
        let map = map_of(pid, left);
        if let Some(found) = look(&mut libraries_in(&map)) {
            return Some(found);
        }
        todo.extend(children_of(pid, THREADS_MAX).take(PROCESSES_MAX));
    }
    None
}

/// (Each thread has those that it has forked.)
fn children_of(pid: i32, threads_max: usize) -> impl Iterator<Item = i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.take(threads_max).filter_map(|thread| {
        let (file, mut list) = (File::open(thread.path().join("children")).ok()?, String::new());
        file.take(CHILDREN_MAX).read_to_string(&mut list).ok()?;
        Some(list.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<i32>>())
    });
    lists.flatten()
}

fn map_of(pid: i32, left: &mut u64) -> Vec<u8> {
    let mut text = Vec::new();
    // (An Err: it has ended, or is of another user.)
    let _ = File::open(format!("/proc/{pid}/maps"))
        .and_then(|file| file.take(MAP_MAX.min(*left)).read_to_end(&mut text));
    *left = left.saturating_sub(text.len() as u64);
    text
}

/// The names of the files of a map.
fn libraries_in(map: &[u8]) -> impl Iterator<Item = &[u8]> {
    map.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b'/')?;
        line[at..].rsplit(|byte| *byte == b'/').next()
    })
}

/// (The library of MPI's own ABI is MPICH's so far. What is linked with it may be started with another that is of Open MPI,
/// so that aprun takes such a program for one of either.)
fn mpi_of_loaded(library: &[u8]) -> Mpi {
    match mpi_of(library) {
        Mpi::None if library.starts_with(b"libmpi_abi.so") => Mpi::Mpich,
        mpi => mpi,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_of_all_threads_are_found() {
        let child = std::thread::spawn(|| {
            let child = std::process::Command::new("sleep").arg("100").spawn().expect("it starts");
            // (Other tests have threads, too.)
            let mut all = children_of(std::process::id() as i32, usize::MAX);
            let found = all.any(|pid| pid == child.id() as i32);
            (child, found)
        });
        let (mut child, found) = child.join().expect("it does not fail");
        child.kill().expect("killed");
        child.wait().expect("reaped");
        assert!(found);
    }

    #[test]
    fn this_test_has_loaded_none() {
        let mut left = LOOK_MAX;
        assert_eq!(mpi_in(std::process::id() as i32, &mut left), Mpi::None);
        assert!(left < LOOK_MAX);
        assert_eq!(mpi_in(-1, &mut left), Mpi::None);
    }

    #[test]
    fn a_library_of_the_abi_is_mpich_s() {
        for (name, mpi) in [
            ("libmpi_abi.so.0", Mpi::Mpich),
            ("libmpi_abi.so.0.0.0", Mpi::Mpich),
            ("libmpi.so.12", Mpi::Mpich),
            ("libmpi.so.20", Mpi::OpenMpi),
            ("libmpi_abi", Mpi::None),
            ("libc.so.6", Mpi::None),
        ] {
            assert_eq!(mpi_of_loaded(name.as_bytes()), mpi, "{name}");
        }
    }

    #[test]
    fn open_mpi_4_without_a_libpmix_has_release_3() {
        for (map, has) in [
            ("7f00-7f01 r-xp 00000000 fe:01 7 /a/libopen-pal.so.40\n", true),
            (
                "7f00-7f01 r-xp 0 fe:01 7 /a/libopen-pal.so.40.30.2\n7f01-7f02 /b/libpmix.so.2.6.2\n",
                false,
            ),
            (
                "7f00-7f01 r-xp 0 fe:01 7 /a/libopen-pal.so.40\n7f01-7f02 /b/libpmix.so.2.2.25\n",
                true,
            ),
            ("7f00-7f01 r-xp 00000000 fe:01 7 /a/libopen-pal.so.80\n", false),
            ("7f00-7f01 rw-p 00000000 00:00 0\n", false),
        ] {
            assert_eq!(pmix_3_in(libraries_in(map.as_bytes())), has, "{map}");
        }
    }

    #[test]
    fn no_more_is_read_than_may_be() {
        let mut left = 100;
        assert_eq!(mpi_in(std::process::id() as i32, &mut left), Mpi::None);
        assert_eq!(left, 0);
        assert_eq!(mpi_in(std::process::id() as i32, &mut left), Mpi::None);
        assert_eq!(left, 0);
    }
}
