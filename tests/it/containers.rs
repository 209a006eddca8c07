//! MPI programs in containers, which aprun starts once for each PE: the examples of aprun(1) for bubblewrap and firejail.

use crate::support::mpi;
use crate::support::*;
use std::process::Command;

/// Whether containers can be made by this program here; if not, the test is skipped.
fn may_be(test: &str, program: &str, options: &str, package: &str) -> bool {
    let made = Command::new(program).args(words(options)).arg("true").output();
    if made.is_ok_and(|made| made.status.success()) {
        return true;
    }
    skip(test, &format!("{program} makes no containers here (apt-get install {package})"));
    false
}

fn ring_of_two() -> [String; 2] {
    [0, 1].map(|rank| format!("rank {rank} of 2 appnum 0 sum 3 shared 2"))
}

/// PMI-1 by its descriptor or its port, and PMIx: all reach the inside.
#[test]
fn pes_in_bwrap_meet() {
    let test = "containers::pes_in_bwrap_meet";
    if !may_be(test, "bwrap", "--dev-bind / /", "bubblewrap") {
        return;
    }
    // (Two programs of one source: in files of their own.)
    let open = mpi::open("containers::pes_in_bwrap_meet.open", "ring");
    let (Some(mpich), Some(open)) = (mpi::program(test, "ring"), open) else { return };
    let instance = instance(1, 2);
    let dev = "bwrap --dev-bind / /";
    let tmp = "bwrap --ro-bind / / --dev-bind /dev /dev --bind /tmp /tmp";
    let shm = "bwrap --ro-bind / / --dev /dev --bind /dev/shm /dev/shm --bind /tmp /tmp";
    // (The kernel then knows PEs by other numbers than they do. Open MPI dies there under its own mpirun, too.)
    let pid = "bwrap --dev-bind / / --unshare-pid --proc /proc";
    for container in [dev, tmp, shm, pid] {
        for options in ["-q -n 2", "-q -n 2 --pmi=port"] {
            let line = words(options).chain(words(container));
            let run = instance.aprun(line.chain([mpich.to_str().expect("text")])).expect(0);
            assert_eq!(run.sorted(), ring_of_two(), "{container} {options}: {}", run.stderr);
        }
        if container == pid {
            continue;
        }
        let line = words("-q -n 2").chain(words(container));
        let run = instance.aprun(line.chain([open.to_str().expect("text")])).expect(0);
        assert_eq!(run.sorted(), ring_of_two(), "{container}: {}", run.stderr);
    }
}

/// firejail closes the descriptor of PMI-1, so that MPICH needs the port.
#[test]
fn pes_in_firejail_meet() {
    let test = "containers::pes_in_firejail_meet";
    if !may_be(test, "firejail", "--quiet --noprofile", "firejail") {
        return;
    }
    let open = mpi::open("containers::pes_in_firejail_meet.open", "ring");
    let (Some(mpich), Some(open)) = (mpi::program(test, "ring"), open) else { return };
    let instance = instance(1, 2);
    for (options, ring) in [("-q -n 2 --pmi=port", mpich), ("-q -n 2", open)] {
        let line = words(options).chain(words("firejail --quiet --noprofile"));
        let run = instance.aprun(line.chain([ring.to_str().expect("text")])).expect(0);
        assert_eq!(run.sorted(), ring_of_two(), "{options}: {}", run.stderr);
    }
}
