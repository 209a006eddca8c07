//! Two users on one psched and one apinit, which run as root: neither has anything of the other's.

use crate::support::hand::Hand;
use crate::support::users::{self, ANNA, BERT, Bins, User};
use crate::support::*;
use prost::Message;
use psched::apteam::launch::Launch;
use psched::apteam::protocol::attach::ToApinit;
use psched::apteam::protocol::node::PlaceCommand;
use psched::rpc::connect::connect;
use psched::rpc::pb;
use psched::rpc::pb::apinit_client::ApinitClient;
use psched::rpc::pb::psched_client::PschedClient;
use std::io::ErrorKind;
use std::path::Path;
use tokio_stream::StreamExt;
use tonic::Code;

const ONE: &str = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";

fn daemons(test: &str) -> Option<(Hand, Bins)> {
    users::daemons(&format!("two_users::{test}"), ONE, "0")
}

fn start(hand: &Hand, bins: &Bins, user: User, options: &str, script: &str) -> Running {
    let line = words(options).chain(["sh", "-c", script]);
    let mut command = user.command(bins.path("aprun"), line);
    Running::start(command.env("PSCHED_SOCKET", hand.socket()))
}

/// The folder of the one application of this apinit.
#[track_caller]
fn runtime(hand: &Hand, apid: u64) -> std::path::PathBuf {
    hand.folder().join(format!("apps-0/{apid}.1"))
}

/// The shepherd, and what runs below it.
#[track_caller]
fn processes(hand: &Hand, apid: u64) -> Vec<i32> {
    let text = std::fs::read_to_string(runtime(hand, apid).join("shepherd")).expect("kept");
    let shepherd: i32 = text.split(' ').next().and_then(|t| t.parse().ok()).expect("a pid");
    let mut all = vec![shepherd];
    eventually(BOUND, "its PE is there", || {
        all.truncate(1);
        all.extend(children(shepherd).into_iter().map(|(pid, _)| pid));
        all.len() > 1
    });
    all
}

/// Asks psched something, as whoever this thread is.
fn ask<T>(
    socket: &Path,
    question: impl AsyncFnOnce(PschedClient<tonic::transport::Channel>) -> T,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let channel = connect(socket).await.expect("psched answers");
        question(PschedClient::new(channel)).await
    })
}

#[test]
fn both_run_at_once_as_themselves() {
    let Some((hand, bins)) = daemons("both_run_at_once_as_themselves") else { return };
    let folders = [ANNA.folder(), BERT.folder()];
    let mut runs = Vec::new();
    for (user, folder) in [ANNA, BERT].into_iter().zip(&folders) {
        let own = folder.path().display();
        let script = format!(
            "id -u; id -g; id -G; umask 0; echo mine > {own}/file; until [ -e {own}/go ]; do sleep 0.02; done"
        );
        runs.push(start(&hand, &bins, user, "-q", &script));
    }
    hand.wait_for("running", 2);
    for folder in &folders {
        std::fs::write(folder.path().join("go"), "").expect("written");
    }
    for ((user, folder), run) in [ANNA, BERT].into_iter().zip(&folders).zip(runs) {
        let User { uid, gid, groups } = user;
        let groups: Vec<String> = [gid].iter().chain(groups).map(u32::to_string).collect();
        let expected = format!("{uid}\n{gid}\n{}\n", groups.join(" "));
        assert_eq!(run.wait(BOUND).expect(0).out(), expected);
        let file = std::fs::metadata(folder.path().join("file")).expect("written by the PE");
        use std::os::unix::fs::MetadataExt;
        assert_eq!((file.uid(), file.gid()), (uid, gid));
    }
    hand.end();
}

#[test]
fn neither_ends_or_sees_into_the_others() {
    let Some((hand, bins)) = daemons("neither_ends_or_sees_into_the_others") else { return };
    let shared = format!("/dev/shm/it-{}-hers", std::process::id());
    let script = format!("echo secret > {shared}; exec sleep 1000");
    let running = start(&hand, &bins, ANNA, "-q", &script);
    let apid = hand.wait_for("running", 1)[0];
    let processes = processes(&hand, apid);
    for signal in ["-TERM", "-9"] {
        let mut command = BERT.command(bins.path("apkill"), [signal, &apid.to_string()]);
        let run = run(command.env("PSCHED_SOCKET", hand.socket())).expect(1);
        assert!(run.stderr.contains("only its owner"), "{}", run.stderr);
    }
    BERT.does(|| {
        for pid in &processes {
            let pid = nix::unistd::Pid::from_raw(*pid);
            assert_eq!(nix::sys::signal::kill(pid, None), Err(nix::Error::EPERM));
            for file in ["environ", "root/dev/shm", "fd", "mem", "ns/ipc", "cwd"] {
                let path = format!("/proc/{pid}/{file}");
                let read = match file {
                    "ns/ipc" | "cwd" => std::fs::read_link(&path).map(drop),
                    "root/dev/shm" | "fd" => std::fs::read_dir(&path).map(drop),
                    _ => std::fs::read(&path).map(drop),
                };
                assert_eq!(read.map_err(|e| e.kind()), Err(ErrorKind::PermissionDenied), "{path}");
            }
        }
    });
    // What apinit keeps is not even the owner's: a shepherd obeys apinit alone.
    for user in [ANNA, BERT] {
        let own = runtime(&hand, apid);
        let socket = own.join("shepherd.sock");
        assert!(socket.exists());
        user.does(|| {
            for path in [own.parent().expect("apps-0"), &own] {
                let read = std::fs::read_dir(path).map(drop).map_err(|e| e.kind());
                assert_eq!(read, Err(ErrorKind::PermissionDenied), "{}", path.display());
            }
            let address = nix::sys::socket::UnixAddr::new(&socket).expect("short");
            let kind = nix::sys::socket::SockType::SeqPacket;
            let flags = nix::sys::socket::SockFlag::SOCK_CLOEXEC;
            let family = nix::sys::socket::AddressFamily::Unix;
            let fd = nix::sys::socket::socket(family, kind, flags, None).expect("a socket");
            let raw = std::os::fd::AsRawFd::as_raw_fd(&fd);
            assert_eq!(nix::sys::socket::connect(raw, &address), Err(nix::Error::EACCES));
        });
        let state = hand.folder().join("state");
        user.does(|| assert!(std::fs::read_dir(&state).is_err(), "{} is open", state.display()));
    }
    // Questions that are its owner's alone.
    BERT.does(|| {
        ask(&hand.socket(), async |mut psched| {
            let looked = psched.look(pb::LookRequest { apid }).await;
            assert_eq!(looked.expect_err("not his").code(), Code::PermissionDenied);
            let watched = psched.watch(pb::WatchRequest { apid, ..Default::default() }).await;
            assert_eq!(watched.expect_err("not his").code(), Code::PermissionDenied);
        });
    });
    assert_eq!(hand.wait_for("running", 1), [apid]);
    // Not even root sees it, unless a container forbids isolation.
    let notes = run(&mut hand.command("apstat", ["-n"])).expect(0).out();
    let on_host = std::fs::remove_file(&shared).is_ok();
    assert_eq!(on_host, notes.contains("not isolated"), "{notes}");
    let mut command = ANNA.command(bins.path("apkill"), ["-9", &apid.to_string()]);
    run(command.env("PSCHED_SOCKET", hand.socket())).expect(0);
    running.wait(BOUND).expect(137);
    hand.end();
}

/// He is told that he may not, and nothing has become of it.
#[test]
fn managing_is_for_administrators() {
    let Some((mut hand, bins)) = daemons("managing_is_for_administrators") else { return };
    let running = start(&hand, &bins, ANNA, "-q", "exec sleep 1000");
    let apid = hand.wait_for("running", 1)[0].to_string();
    hand.kill_psched();
    hand.start_psched_on("empty");
    let is_foreign = || hand.apstat("-n")["nodes"][0]["state"] == "foreign";
    eventually(BOUND, "the node is foreign", is_foreign);
    let psmgr = |user: User, what| {
        let mut command = user.command(bins.path("psmgr"), [what, "0"]);
        run(command.env("PSCHED_SOCKET", hand.socket()))
    };
    // Not even what is hers may she adopt.
    for (user, what) in [(BERT, "adopt"), (BERT, "purge"), (ANNA, "adopt")] {
        psmgr(user, what)
            .expect(1)
            .says(&format!("user {} is not an administrator of this psched", user.uid))
            .says("the administrators of psched.yaml may");
        assert!(is_foreign());
    }
    // One whom the configuration names may.
    hand.reconfigure(&format!("{ONE}administrators: [{}]\n", BERT.uid));
    eventually(BOUND, "it is read", || hand.said().contains("read again: administrators"));
    let told = psmgr(BERT, "adopt").expect(0).out();
    assert!(told.contains("NID 0: "), "{told}");
    assert_eq!(hand.wait_for("running", 1)[0].to_string(), apid);
    let mut command = ANNA.command(bins.path("apkill"), ["-9", &apid]);
    run(command.env("PSCHED_SOCKET", hand.socket())).expect(0);
    running.wait(BOUND).expect(137);
    hand.end();
}

/// Another user's ticket is of no use, even to one who has it.
#[test]
fn a_ticket_is_its_owners() {
    let Some((hand, bins)) = daemons("a_ticket_is_its_owners") else { return };
    let long = start(&hand, &bins, BERT, "-q -n 2", "exec sleep 1000");
    let held = hand.wait_for("running", 1)[0].to_string();
    let waits = start(&hand, &bins, ANNA, "-q -n 2", "id -u");
    let apid = hand.wait_for("posted", 1)[0];
    // Stopped it can't take its place when it has one.
    waits.signal(19);
    let mut command = BERT.command(bins.path("apkill"), ["-9", &held]);
    run(command.env("PSCHED_SOCKET", hand.socket())).expect(0);
    long.wait(BOUND).expect(137);
    assert_eq!(hand.wait_for("placed", 1), [apid]);
    let mut kept = Vec::new();
    eventually(BOUND, "apinit has the placement", || {
        kept = std::fs::read(runtime(&hand, apid).join("place")).unwrap_or_default();
        !kept.is_empty()
    });
    let place = pb::PlaceCommand::decode(&*kept).expect("a placement");
    let place = PlaceCommand::try_from(place).expect("a placement");
    let ran = BERT.folder();
    let script = format!("touch {}/ran", ran.path().display());
    let launch = Launch {
        executable: b"/bin/sh".to_vec(),
        arguments: ["sh", "-c", &script].map(|a| a.as_bytes().to_vec()).to_vec(),
        directory: b"/".to_vec(),
        ..Launch::default()
    };
    let launch =
        ToApinit::Launch { key: place.key, ticket: place.ticket, launch: Box::new(launch) };
    let socket = hand.folder().join("apinit-0.sock");
    let said = BERT.does(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let mut apinit = ApinitClient::new(connect(&socket).await.expect("apinit answers"));
            let says = tokio_stream::iter([pb::ToApinit::from(launch)]);
            let says = says.chain(tokio_stream::pending());
            let mut hears = apinit.attach(says).await.expect("attached").into_inner();
            format!("{:?}", hears.message().await)
        })
    });
    // As if it were not there: he waits for it, and is put off.
    assert!(said.contains("NotNow") && said.contains("has not placed application"), "{said}");
    waits.signal(18);
    assert_eq!(waits.wait(BOUND).expect(0).out(), format!("{0}\n{0}\n", ANNA.uid));
    assert!(!ran.path().join("ran").exists());
    hand.end();
}
