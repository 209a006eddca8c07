//! PMI-1 with real MPI programs, and with rubbish.

use super::rig::*;
use psched::apshepherd::decide::mapping::process_mapping;
use psched::apteam::ending::{Cause, HostEnd};
use psched::apteam::launch::HostLaunch;
use psched::apteam::protocol::notice::{Notice, Seen};
use psched::apteam::protocol::peers::{BarrierOut, PmiEntry};
use psched::apteam::protocol::shepherd::{FromShepherd, ToShepherd};
use psched::machine::Nid;
use std::path::PathBuf;
use std::process::Command;

const RING: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    int rank, size, *app, set, sum, got;
    MPI_Comm node;
    int local;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *what = argc > 1 ? argv[1] : "ring";
    if (!strcmp(what, "abort") && rank == 1) MPI_Abort(MPI_COMM_WORLD, 3);
    if (!strcmp(what, "exit")) { if (rank == 1) _Exit(0); MPI_Barrier(MPI_COMM_WORLD); }
    if (!strcmp(what, "spawn")) {
        MPI_Comm other;
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        int rc = MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD,
                                &other, MPI_ERRCODES_IGNORE);
        printf("spawn %s\n", rc == MPI_SUCCESS ? "worked" : "refused");
    }
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &app, &set);
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &got, 1, MPI_INT,
                 (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &local);
    printf("%d/%d got %d sum %d appnum %d local %d\n", rank, size, got, sum, set ? *app : -1, local);
    MPI_Finalize();
    return 0;
}
"#;

/// The program, compiled; `None`, said by name, where there is no compiler.
fn compiled(rig: &Rig, test: &str) -> Option<PathBuf> {
    if Command::new("mpicc.mpich").arg("-show").output().is_err() {
        println!("{test} skipped: no mpicc.mpich");
        return None;
    }
    let source = rig.folder().join("ring.c");
    std::fs::write(&source, RING).expect("written");
    let program = rig.folder().join("ring");
    let compiler = Command::new("mpicc.mpich").arg("-o").arg(&program).arg(&source).output();
    let output = compiler.expect("mpicc.mpich");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

fn mpi(width: u32, program: &std::path::Path, arguments: &[&str]) -> HostLaunch {
    let mut launch = launch(width, program.to_str().expect("utf-8"), arguments);
    launch.launch.environment.push(b"HOME=/tmp".to_vec());
    launch
}

#[test]
fn a_ring_of_mpich_ranks() {
    let mut rig = Rig::new();
    let Some(program) = compiled(&rig, "a_ring_of_mpich_ranks") else { return };
    let end = rig.run(mpi(4, &program, &[]));
    assert_eq!(end.status(), 0, "{end:?} {:?}", rig.written);
    for rank in 0..4 {
        let got = (rank + 3) % 4;
        let line = format!("{rank}/4 got {got} sum 6 appnum 0 local 4\n");
        assert_eq!(rig.stdout(rank), line);
    }
}

#[test]
fn mpi_abort_has_its_code() {
    let mut rig = Rig::new();
    let Some(program) = compiled(&rig, "mpi_abort_has_its_code") else { return };
    let end = rig.run(mpi(3, &program, &["abort"]));
    assert_eq!(end.status(), 3, "{end:?}");
    assert!(matches!(end.first.map(|d| d.cause), Some(Cause::Abort { rank: 1, code: 3, .. })));
    let abort = Seen::Ends(Cause::Abort { rank: 1, nid: Nid(0), code: 3 });
    assert!(
        matches!(&rig.notices[0], Notice::Seen { what, .. } if *what == abort),
        "{:?}",
        rig.notices
    );
}

#[test]
fn an_exit_without_finalize_ends_the_others() {
    let mut rig = Rig::new();
    let Some(program) = compiled(&rig, "an_exit_without_finalize_ends_the_others") else { return };
    let end = rig.run(mpi(2, &program, &["exit"]));
    assert_eq!(end.status(), 1, "{end:?}");
    assert!(matches!(end.first.map(|d| d.cause), Some(Cause::NoFinalize { rank: 1, code: 0, .. })));
}

/// Debian's MPICH gives up a spawn before it asks for one.
#[test]
fn a_spawn_is_given_up_and_the_program_goes_on() {
    let mut rig = Rig::new();
    let Some(program) = compiled(&rig, "a_spawn_is_given_up_and_the_program_goes_on") else {
        return;
    };
    let end = rig.run(mpi(1, &program, &["spawn"]));
    assert_eq!(end.status(), 0, "{end:?} {:?}", rig.written);
    assert!(rig.stdout(0).starts_with("spawn refused\n"), "{:?}", rig.written);
}

#[test]
fn a_request_to_spawn_without_room_is_answered_and_explained() {
    let mut rig = Rig::new();
    let script = "printf 'mcmd=spawn\nnprocs=1\nexecname=./a\ntotspawns=1\nspawnssofar=1\n\
                  endcmd\n' >&$PMI_FD; read -r answer <&$PMI_FD; echo \"$answer\"";
    let end = rig.run(launch(1, "/bin/bash", &["-c", script]));
    assert_eq!(end.status(), 0);
    assert_eq!(rig.stdout(0), "cmd=spawn_result rc=-1 msg=not_spawned\n");
    let Notice::Seen { what: Seen::Pmi { rank: 0, text }, .. } = &rig.notices[0] else {
        panic!("{:?}", rig.notices)
    };
    assert!(
        text.starts_with("called MPI_Comm_spawn in vain: a process for which it has no"),
        "{text}"
    );
}

/// Two shepherds, as if on two hosts: the test passes their barriers on as the head's apinit does.
#[test]
fn two_made_up_hosts_meet_in_the_barrier() {
    let mut first = Rig::new();
    let Some(program) = compiled(&first, "two_made_up_hosts_meet_in_the_barrier") else { return };
    let mut second = Rig::new();
    let mut whole = mpi(3, &program, &[]);
    whole.alone = false;
    whole.process_mapping = process_mapping([("one", 2), ("other", 1)]);
    let mut rest = whole.clone();
    rest.pes = whole.pes.split_off(2);
    first.launch(whole);
    second.launch(rest);
    assert_eq!(first.next(), FromShepherd::Ready);
    assert_eq!(second.next(), FromShepherd::Ready);
    first.say(ToShepherd::Go);
    second.say(ToShepherd::Go);
    let (mut ends, mut barriers) = (Vec::<HostEnd>::new(), 0);
    while ends.is_empty() {
        let mut entries = Vec::<PmiEntry>::new();
        for rig in [&mut first, &mut second] {
            match rig.next() {
                FromShepherd::BarrierIn(arrival) => {
                    assert_eq!(arrival.generation, barriers + 1);
                    entries.extend(arrival.entries);
                }
                FromShepherd::Ended(end) => ends.push(*end),
                other => panic!("{other:?}"),
            }
        }
        if ends.is_empty() {
            barriers += 1;
            for piece in BarrierOut::pieces(barriers, entries) {
                first.say(ToShepherd::BarrierOut(piece.clone()));
                second.say(ToShepherd::BarrierOut(piece));
            }
        }
    }
    assert!(barriers > 0);
    assert_eq!(ends.iter().map(HostEnd::status).collect::<Vec<_>>(), [0, 0], "{ends:?}");
    assert_eq!(first.stdout(0), "0/3 got 2 sum 3 appnum 0 local 2\n");
    assert_eq!(first.stdout(1), "1/3 got 0 sum 3 appnum 0 local 2\n");
    assert_eq!(second.stdout(2), "2/3 got 1 sum 3 appnum 0 local 1\n");
}

#[test]
fn rubbish_on_the_pmi_connection_ends_its_application() {
    let mut rig = Rig::new();
    let script = "[ $PMI_RANK = 1 ] && printf 'hello\\nworld\\n' >&$PMI_FD; exec sleep 1000";
    let end = rig.run(launch(2, "/bin/bash", &["-c", script]));
    let Some(Cause::Garbage { rank: 1, text, .. }) = end.first.as_ref().map(|d| &d.cause) else {
        panic!("{end:?}")
    };
    assert_eq!(text, "\"hello\" is not a command");
    assert_eq!((end.status(), rig.notices.len()), (1, 1));
}
