//! MPI_Comm_spawn: programs that PEs start, with libraries of MPICH whose network has it. (Debian's, over UCX, has not.)

use super::mpis::{fetched, mpi4py};
use crate::support::hosts::{Cluster, may_be};
use crate::support::mpi;
use crate::support::*;
use std::path::PathBuf;
use std::process::Command;

/// The libraries.
const LIBRARIES: [&str; 2] = ["mpich-4.3.2", "mpich-5.0.2"];

/// A program of a library's ABI, and where the library is; `None` without one, and the test is skipped.
fn built(test: &str, library: &str) -> Option<(String, PathBuf)> {
    let folder = fetched(test, library)?.join("lib");
    let program = mpi::of_abi(test, "family", &folder.join("libmpi.so.12"))?;
    Some((program.to_str().expect("text").to_owned(), folder))
}

/// aprun of that program, the words of its options and of its arguments.
fn family(mut aprun: Command, (program, library): &(String, PathBuf), arguments: &str) -> Command {
    aprun.env("LD_LIBRARY_PATH", library).arg(program).args(words(arguments));
    if let Some(root) = library.parent() {
        aprun.env("OPAL_PREFIX", root);
    }
    aprun
}

/// What parents and children say that have met, sorted.
fn met(parents: u32, children: u32) -> Vec<String> {
    let all = parents + children;
    let sum = all * (all + 1) / 2;
    let child =
        |rank| format!("child rank {rank} of {all} sum {sum} an argument: a = b in its group");
    let parent = |rank| format!("parent rank {rank} of {all} sum {sum}  in its group");
    (parents..all).map(child).chain((0..parents).map(parent)).collect()
}

#[test]
fn pes_meet_those_that_they_spawn() {
    let test = "spawns::pes_meet_those_that_they_spawn";
    let instance = instance(1, 8);
    for library in LIBRARIES {
        let Some(program) = built(test, library) else { return };
        let aprun = |line: &str| instance.command("aprun", words(line));
        let run = run(&mut family(aprun("-q -n 2 -d 3"), &program, "2")).expect(0);
        assert_eq!(run.sorted(), met(2, 2), "{library}: {}", run.stderr);
        assert_eq!(run.stderr, "");
    }
    instance.wait_until_free();
}

#[test]
fn several_programs_are_spawned_by_a_port_and_in_another_folder() {
    let test = "spawns::several_programs_are_spawned_by_a_port_and_in_another_folder";
    let Some(program) = built(test, LIBRARIES[0]) else { return };
    let instance = instance(1, 8);
    let aprun = |line: &str| instance.command("aprun", words(line));
    let two = run(&mut family(aprun("-q -n 1 -d 3"), &program, "1 two")).expect(0);
    assert_eq!(two.sorted(), met(1, 2), "{}", two.stderr);
    let port = run(&mut family(aprun("-q -n 1 -d 2 --pmi=port"), &program, "1")).expect(0);
    assert_eq!(port.sorted(), met(1, 1), "{}", port.stderr);
    let folder = run(&mut family(aprun("-q -n 1 -d 2"), &program, "1 wdir")).expect(0);
    assert!(folder.out().contains("its group/\n"), "{}", folder.out());
    // What is spawned speaks for its parent.
    let label = run(&mut family(aprun("-q -n 1 -d 2 --label"), &program, "1")).expect(0);
    assert!(label.out().lines().all(|line| line.starts_with("0: ")), "{}", label.out());
    instance.wait_until_free();
}

#[test]
fn there_is_room_beside_the_pes() {
    let test = "spawns::there_is_room_beside_the_pes";
    let Some(program) = built(test, LIBRARIES[0]) else { return };
    let instance = instance(1, 4);
    let aprun = |line: &str| instance.command("aprun", words(line));
    let none = run(&mut family(aprun("-q -n 2"), &program, "1"));
    none.expect(3).says(
        "called MPI_Comm_spawn in vain: a process for which it has no processor but those on which",
    );
    let shared = run(&mut family(aprun("-q -n 2 --oversubscribe"), &program, "2")).expect(0);
    assert_eq!(shared.sorted(), met(2, 2), "{}", shared.stderr);
    let common = run(&mut family(aprun("-q -n 2 -d 2 -cc none"), &program, "2")).expect(0);
    assert_eq!(common.sorted(), met(2, 2), "{}", common.stderr);
    instance.wait_until_free();
}

#[test]
fn an_application_lasts_until_what_it_has_spawned_has_ended() {
    let test = "spawns::an_application_lasts_until_what_it_has_spawned_has_ended";
    let Some(program) = built(test, LIBRARIES[0]) else { return };
    let instance = instance(1, 2);
    let run =
        run(&mut family(instance.command("aprun", words("-q -n 1 -d 2")), &program, "1 later"));
    assert!(run.expect(0).out().ends_with("child has the last word\n"));
    instance.wait_until_free();
}

/// The processor of the last child is free a moment after it has disconnected.
#[test]
fn a_pe_spawns_again_as_soon_as_its_child_has_disconnected() {
    let test = "spawns::a_pe_spawns_again_as_soon_as_its_child_has_disconnected";
    let instance = instance(1, 2);
    let again = |of: &(String, PathBuf)| {
        let aprun = instance.command("aprun", words("-q -n 1 -d 2"));
        let run = run(&mut family(aprun, of, "1 again")).expect(0);
        let mut all = vec![met(1, 1); 5].concat();
        all.sort();
        assert_eq!(run.sorted(), all, "{:?}: {}", of.1, run.stderr);
    };
    let Some(program) = built(test, LIBRARIES[0]) else { return };
    again(&program);
    // (Its program has the same file.)
    let Some((program, libraries)) = open_mpi(test) else { return };
    libraries.into_iter().for_each(|library| again(&(program.clone(), library)));
    instance.wait_until_free();
}

#[test]
fn output_goes_where_that_of_the_pe_goes() {
    let test = "spawns::output_goes_where_that_of_the_pe_goes";
    let Some((program, library)) = built(test, LIBRARIES[0]) else { return };
    let instance = instance(1, 2);
    let to = instance.directory().join("output");
    let mut aprun = instance.command("aprun", words("-q -n 1 -d 2 sh -c"));
    aprun.arg("exec \"$0\" 1 > \"$1\" 2>&1").arg(program).arg(&to).env("LD_LIBRARY_PATH", library);
    assert_eq!(run(&mut aprun).expect(0).out(), "");
    let said = std::fs::read_to_string(&to).expect("written");
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort();
    assert_eq!(lines, met(1, 1));
    instance.wait_until_free();
}

/// A user could make a folder of its name, where Open MPI would remove files.
#[test]
fn the_folder_of_pmix_stays_while_its_application_runs() {
    let test = "spawns::the_folder_of_pmix_stays_while_its_application_runs";
    let Some((program, libraries)) = open_mpi(test) else { return };
    let instance = instance(1, 2);
    for library in libraries {
        let mut aprun = instance.command("aprun", words("-q -n 1 -d 2 sh -c"));
        aprun.arg(
            "for i in 1 2; do \"$0\" 1; done > /dev/null; cd \"$PMIX_SERVER_TMPDIR\" && ls -d 0/kept kept",
        );
        let of = (program.clone(), library);
        let run = run(&mut family(aprun, &of, "")).expect(0);
        assert!(run.out().ends_with("\n0/kept\nkept\n"), "{:?}: {}", of.1, run.out());
    }
    instance.wait_until_free();
}

/// Whatever ends badly, nothing is left.
#[test]
fn bad_ends_end_parents_and_children() {
    let test = "spawns::bad_ends_end_parents_and_children";
    let Some(program) = built(test, LIBRARIES[0]) else { return };
    let instance = instance(1, 2);
    let aprun = |line: &str| instance.command("aprun", words(line));
    let abort = run(&mut family(aprun("-q -n 1 -d 2"), &program, "1 abort"));
    abort.expect(7).says("a program that PE 0 has spawned ended with code 7");
    let missing = run(&mut family(aprun("-q -n 1 -d 2"), &program, "1 - ./no-such-program"));
    missing.expect(127).says("no-such-program").says("that PE 0 has spawned ended with code 127");
    // ^C, with both waiting.
    let waits = Running::start(&mut family(aprun("-q -n 1 -d 2"), &program, "1 wait"));
    eventually(BOUND, "both wait", || waits.lines_so_far() == ["child waits", "parent waits"]);
    assert!(!processes_with(&program.0).is_empty());
    waits.signal(libc::SIGINT);
    waits.wait(BOUND).expect(128 + libc::SIGINT);
    instance.wait_until_free();
    assert_eq!(processes_with(&program.0), []);
}

/// What a user of mpi4py writes. As many workers as there is room for (MPI_UNIVERSE_SIZE).
#[test]
fn a_pool_of_mpi4py_spawns_its_workers() {
    const POOL: &str = "from mpi4py.futures import MPIPoolExecutor as P\n\
                        if __name__ == '__main__':\n\
                        \x20   with P() as pool:\n\
                        \x20       print(pool.num_workers, sum(pool.map(abs, range(-10, 1))))\n";
    let test = "spawns::a_pool_of_mpi4py_spawns_its_workers";
    let Some(mpi4py) = mpi4py(test) else { return };
    let instance = instance(1, 4);
    let pool = instance.directory().join("pool.py");
    std::fs::write(&pool, POOL).expect("written");
    for (library, abi) in [(LIBRARIES[0], "mpich"), ("openmpi-5.0.11", "openmpi")] {
        let Some(root) = fetched(test, library) else { return };
        let mut aprun = instance.command("aprun", words("-q -n 1 -d 3 python3"));
        aprun.arg(&pool).env("PYTHONPATH", &mpi4py).env("MPI4PY_MPIABI", abi);
        aprun.env("LD_LIBRARY_PATH", root.join("lib")).env("OPAL_PREFIX", root);
        assert_eq!(run(&mut aprun).expect(0).out(), "2 55\n", "{library}");
    }
    instance.wait_until_free();
}

/// apkill stops what was spawned, too, and lets it go on.
#[test]
fn what_was_spawned_is_stopped_and_ended_with_its_application() {
    let test = "spawns::what_was_spawned_is_stopped_and_ended_with_its_application";
    let Some(program) = built(test, LIBRARIES[0]) else { return };
    let instance = instance(1, 2);
    let aprun = instance.command("aprun", words("-q -n 1 -d 2"));
    let waits = Running::start(&mut family(aprun, &program, "1 wait"));
    eventually(BOUND, "both wait", || waits.lines_so_far() == ["child waits", "parent waits"]);
    let states = || {
        let all = processes_with(&program.0).into_iter();
        // (aprun and psched start have the name among their arguments.)
        let own = all.filter(|(_, line)| line.starts_with(&program.0));
        let stat =
            own.filter_map(|(pid, _)| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
        stat.filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next()).collect::<String>()
    };
    let [apid] = instance.apids("running")[..] else { panic!("one runs") };
    let apkill = |signal: &str| instance.run("apkill", ["-s", signal, &apid.to_string()]).expect(0);
    apkill("STOP");
    eventually(BOUND, "both are stopped", || states() == "TT");
    apkill("CONT");
    eventually(BOUND, "both go on", || states().len() == 2 && !states().contains('T'));
    apkill("STOP");
    eventually(BOUND, "both are stopped", || states() == "TT");
    apkill("TERM");
    waits.wait(BOUND).expect(128 + libc::SIGTERM);
    instance.wait_until_free();
    assert_eq!(processes_with(&program.0), []);
}

/// The program for Open MPI, and the folder of each library: Debian's, and those that were fetched.
fn open_mpi(test: &str) -> Option<(String, Vec<PathBuf>)> {
    let program = mpi::open(test, "family")?;
    let mut libraries = vec![PathBuf::new()];
    let fetched = ["openmpi-4.1.8", "openmpi-5.0.11"].map(|name| fetched(test, name));
    libraries.extend(fetched.into_iter().flatten().map(|folder| folder.join("lib")));
    Some((program.to_str().expect("text").to_owned(), libraries))
}

#[test]
fn open_mpi_spawns() {
    let test = "spawns::open_mpi_spawns";
    let Some((program, libraries)) = open_mpi(test) else { return };
    let instance = instance(1, 8);
    for library in libraries {
        let of = (program.clone(), library);
        let aprun = |line: &str| instance.command("aprun", words(line));
        let one = run(&mut family(aprun("-q -n 2 -d 3"), &of, "2")).expect(0);
        assert_eq!(one.sorted(), met(2, 2), "{:?}: {}", of.1, one.stderr);
        let two = run(&mut family(aprun("-q -n 1 -d 3"), &of, "1 two")).expect(0);
        assert_eq!(two.sorted(), met(1, 2), "{:?}: {}", of.1, two.stderr);
        let folder = run(&mut family(aprun("-q -n 1 -d 2"), &of, "1 wdir")).expect(0);
        assert!(folder.out().contains("its group/\n"), "{:?}: {}", of.1, folder.out());
        let deep = run(&mut family(aprun("-q -n 1 -d 3"), &of, "1 deep")).expect(0);
        let mut both = [met(1, 1), met(1, 1)].concat();
        both.sort();
        assert_eq!(deep.sorted(), both, "{:?}: {}", of.1, deep.stderr);
        let orphan = run(&mut family(aprun("-q -n 1 -d 3"), &of, "1 orphan")).expect(0);
        assert_eq!(orphan.sorted(), both, "{:?}: {}", of.1, orphan.stderr);
        let none = run(&mut family(aprun("-q -n 1"), &of, "1"));
        none.expect(3)
            .says("called MPI_Comm_spawn in vain: a process for which it has no processor");
        let abort = run(&mut family(aprun("-q -n 1 -d 2"), &of, "1 abort"));
        abort.expect(7).says("that PE 0 has spawned ended with code 7");
    }
    instance.wait_until_free();
}

/// PEs of the host that has none of the new ones meet them, too.
#[test]
fn open_mpi_spawns_across_hosts() {
    let test = "spawns::open_mpi_spawns_across_hosts";
    let Some((program, libraries)) = open_mpi(test) else { return };
    if !may_be(test) {
        return;
    }
    let two = Cluster::start(2, 1);
    for library in libraries {
        let of = (program.clone(), library);
        let aprun = |line: &str| two.command(0, "aprun", words(line));
        let one = |arguments| run(&mut family(aprun("-q -n 2 -d 2 -N 1"), &of, arguments));
        if of.1.ends_with("openmpi-4.1.8/lib") {
            one("1 refused").expect(3).says(
                "called MPI_Comm_spawn in vain: PEs are on several hosts, and its Open MPI has PMIx 3",
            );
            continue;
        }
        let (one, abort) = (one("1").expect(0), one("1 abort"));
        assert_eq!(one.sorted(), met(2, 1), "{:?}: {}", of.1, one.stderr);
        abort.expect(7).says("has spawned ended with code 7");
    }
    two.wait_until_up();
}

/// The PE that spawns is on the second host.
#[test]
fn a_pe_of_another_host_spawns() {
    let test = "spawns::a_pe_of_another_host_spawns";
    let Some(program) = built(test, LIBRARIES[1]) else { return };
    if !may_be(test) {
        return;
    }
    let two = Cluster::start(2, 1);
    let aprun = two.command(0, "aprun", words("-q -n 2 -d 2 -N 1"));
    let run = run(&mut family(aprun, &program, "1")).expect(0);
    assert_eq!(run.sorted(), met(2, 1), "{}", run.stderr);
    two.wait_until_up();
}
