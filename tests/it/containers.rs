//! MPI programs in containers, which aprun starts once for each PE: the examples of aprun(1) for bubblewrap and
//! firejail, and its options for podman.

use crate::support::mpi;
use crate::support::*;
use std::ffi::OsStr;
use std::path::Path;
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

fn ring_of_two(shared: u32) -> [String; 2] {
    [0, 1].map(|rank| format!("rank {rank} of 2 appnum 0 sum 3 shared {shared}"))
}

/// With process IDs of their own, ranks of Open MPI die in what they share, under its own mpirun, too: they take one
/// another's memory for theirs. They meet by TCP, and this argument has the ring share nothing.
const APART: &str = "apart";
const BY_TCP: &str = "-q -n 2 --mca btl tcp,self";

/// Two PEs of MPICH that meet with process IDs of their own: UCX then uses TCP.
#[track_caller]
fn meet_by_tcp<S: AsRef<OsStr>>(instance: &Instance, line: impl IntoIterator<Item = S>) {
    mpi::meets_by_tcp(&mut instance.command("aprun", line), &ring_of_two(2));
    instance.wait_until_free();
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
    // (The kernel then knows PEs by other numbers than they do.)
    let pid = "bwrap --dev-bind / / --unshare-pid --proc /proc";
    for container in [dev, tmp, shm, pid] {
        for options in ["-q -n 2", "-q -n 2 --pmi=port"] {
            let line = words(options).chain(words(container));
            let line = line.chain([mpich.to_str().expect("text")]);
            if container == pid {
                meet_by_tcp(&instance, line);
                continue;
            }
            let run = instance.aprun(line).expect(0);
            assert_eq!(run.sorted(), ring_of_two(2), "{container} {options}: {}", run.stderr);
        }
        let apart = (0, BY_TCP, Some(APART));
        let (shared, options, apart) = if container == pid { apart } else { (2, "-q -n 2", None) };
        let line = words(options).chain(words(container)).chain([open.to_str().expect("text")]);
        let run = instance.aprun(line.chain(apart)).expect(0);
        assert_eq!(run.sorted(), ring_of_two(shared), "{container}: {}", run.stderr);
    }
}

/// What makes a container of podman out of this machine's programs, as a PE: podman's own files, and those of the
/// container, are in a folder in memory, which only this PE sees and which goes with it. (crun has no containers
/// where the groups of cgroup v2 are beside those of v1, and sets limits that may be above this process's.)
const PODMAN: &str = r#"
umount /sys/fs/cgroup/unified 2>/dev/null
mount -t tmpfs none "$1" && cd "$1" && mkdir root && cd root && mkdir proc sys dev tmp run root || exit 99
for name in usr etc bin lib lib64 sbin; do
    if [ -L /$name ]; then cp -d /$name .; elif [ -d /$name ]; then mkdir $name; mount --rbind /$name $name; fi
done
folder=$1
shift
cd /tmp
exec podman --root "$folder/storage" --runroot "$folder/run" --storage-driver vfs --cgroup-manager cgroupfs \
    run --rm --quiet --env-host --cgroups disabled --network host --ipc host --security-opt seccomp=unconfined \
    --ulimit nofile=512:512 --ulimit nproc=512:512 --volume /tmp:/tmp --rootfs "$folder/root" "$@"
"#;

/// podman closes the descriptor, too. (Without control groups, as here, its containers have process IDs of their own.)
#[test]
fn pes_in_podman_meet() {
    let test = "containers::pes_in_podman_meet";
    if !is_root() {
        return skip(test, "only root can mount");
    }
    let instance = instance(1, 2);
    let (script, folder) =
        (instance.directory().join("podman"), instance.directory().join("mount"));
    std::fs::create_dir(&folder).expect("made");
    write_program(&script, PODMAN, 0o755);
    let container = |program: &str| -> Vec<String> {
        let before =
            ["unshare", "-m", "sh", script.to_str().expect("text"), folder.to_str().expect("text")];
        before.into_iter().chain(words(program)).map(str::to_owned).collect()
    };
    let alone = container("true");
    if !may_be(test, &alone[0], &alone[1..].join(" "), "podman crun") {
        return;
    }
    let open = mpi::open("containers::pes_in_podman_meet.open", "ring");
    let (Some(mpich), Some(open)) = (mpi::program(test, "ring"), open) else { return };
    // (The container has /tmp.)
    let line = |options: &str, ring: &Path, apart: &str| {
        let inside = instance.directory().join("ring");
        copy_program(ring, &inside);
        let container = container(&format!("{} {apart}", inside.display()));
        words(options).map(str::to_owned).chain(container).collect::<Vec<_>>()
    };
    meet_by_tcp(&instance, line("-q -n 2 --pmi=port", &mpich, ""));
    let run = instance.aprun(line(BY_TCP, &open, APART)).expect(0);
    assert_eq!(run.sorted(), ring_of_two(0), "{}", run.stderr);
}

/// Where its options would take PEs apart, or out of the application.
#[test]
fn users_of_podman_are_told_what_it_needs() {
    let instance = instance(1, 2);
    let podman = instance.directory().join("podman");
    write_program(&podman, "#!/bin/sh\n", 0o755);
    let run = instance.aprun(["-n", "2", podman.to_str().expect("text"), "run", "image"]);
    run.expect(0).says("--cgroups");
    let run = instance.aprun(["-n", "2", podman.to_str().expect("text"), "version"]).expect(0);
    assert_eq!(run.stderr, "");
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
    let firejail = |options| words(options).chain(words("firejail --quiet --noprofile"));
    let (mpich, open) = (mpich.to_str().expect("text"), open.to_str().expect("text"));
    meet_by_tcp(&instance, firejail("-q -n 2 --pmi=port").chain([mpich]));
    let run = instance.aprun(firejail(BY_TCP).chain([open, APART])).expect(0);
    assert_eq!(run.sorted(), ring_of_two(0), "{}", run.stderr);
}
