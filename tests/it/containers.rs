//! MPI programs in containers, which aprun starts once for each PE: the examples of aprun(1) that need only bubblewrap.

use crate::support::mpi;
use crate::support::*;
use std::process::Command;

/// Whether containers can be made here; if not, the test is skipped.
fn may_be(test: &str) -> bool {
    let made = Command::new("bwrap").args(["--dev-bind", "/", "/", "true"]).output();
    if made.is_ok_and(|made| made.status.success()) {
        return true;
    }
    skip(test, "bwrap makes no containers here (apt-get install bubblewrap)");
    false
}

fn ring_of_two() -> [String; 2] {
    [0, 1].map(|rank| format!("rank {rank} of 2 appnum 0 sum 3 shared 2"))
}

/// PMI-1 by its descriptor or its port, and PMIx: all reach the inside.
#[test]
fn pes_in_bwrap_meet() {
    let test = "containers::pes_in_bwrap_meet";
    if !may_be(test) {
        return;
    }
    // (Two programs of one source: in files of their own.)
    let open = mpi::open("containers::pes_in_bwrap_meet.open", "ring");
    let (Some(mpich), Some(open)) = (mpi::program(test, "ring"), open) else { return };
    let instance = instance(1, 2);
    let dev = "bwrap --dev-bind / /";
    let tmp = "bwrap --ro-bind / / --dev-bind /dev /dev --bind /tmp /tmp";
    let shm = "bwrap --ro-bind / / --dev /dev --bind /dev/shm /dev/shm --bind /tmp /tmp";
    for container in [dev, tmp, shm] {
        for options in ["-q -n 2", "-q -n 2 --pmi=port"] {
            let line = words(options).chain(words(container));
            let run = instance.aprun(line.chain([mpich.to_str().expect("text")])).expect(0);
            assert_eq!(run.sorted(), ring_of_two(), "{container} {options}: {}", run.stderr);
        }
        let line = words("-q -n 2").chain(words(container));
        let run = instance.aprun(line.chain([open.to_str().expect("text")])).expect(0);
        assert_eq!(run.sorted(), ring_of_two(), "{container}: {}", run.stderr);
    }
}
