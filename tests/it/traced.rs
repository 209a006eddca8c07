//! An application's owner who wants to trace his apshepherd, or to read or write its memory: with its rights he
//! could keep processes out of his application's groups.

use crate::support::hand::Hand;
use crate::support::users::{ANNA, Bins};
use crate::support::*;
use nix::sys::ptrace;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, Ordering};

const ONE: &str = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n";
/// Launches for each mode of the file. The old weakness showed at one of the first.
const LAUNCHES: usize = 12;

/// The children of apinit's main thread, whatever they are called by now.
fn made_by(apinit: i32) -> Vec<i32> {
    let path = format!("/proc/{apinit}/task/{apinit}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// What an owner may do to this process that he must not.
fn does_to(pid: i32) -> Option<&'static str> {
    let process = Pid::from_raw(pid);
    if ptrace::seize(process, ptrace::Options::empty()).is_ok() {
        // (It is ours now, and goes on when this thread ends.)
        return Some("ptrace");
    }
    let mem =
        |write| std::fs::File::options().read(true).write(write).open(format!("/proc/{pid}/mem"));
    if mem(false).is_ok() || mem(true).is_ok() {
        return Some("mem");
    }
    let mut byte = [0];
    let from = [RemoteIoVec { base: 0x1000, len: 1 }];
    match process_vm_readv(process, &mut [IoSliceMut::new(&mut byte)], &from) {
        // Nothing is there, which only one who may look is told.
        Ok(_) | Err(nix::Error::EFAULT) => Some("process_vm_readv"),
        Err(_) => None,
    }
}

#[test]
fn an_owner_never_traces_his_shepherd() {
    if !is_root() {
        return skip("traced::an_owner_never_traces_his_shepherd", "only root can be two users");
    }
    let bins = Bins::new();
    let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a folder");
    for name in ["apinit", "apshepherd"] {
        // A copy, for its mode is changed.
        copy_program(binaries().join(name), folder.path().join(name));
    }
    let open = |path: &std::path::Path, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("ours");
    };
    open(folder.path(), 0o755);
    let mut hand = Hand::start(ONE, &[("0", None)]);
    hand.open_to_all();
    hand.stop_apinit("0");
    hand.upgrade_apinit(folder.path().join("apinit"));
    hand.start_apinit("0", None);
    hand.wait_until_up();
    let apinit = hand.apinit_pid("0");
    for mode in [0o755, 0o711] {
        open(&folder.path().join("apshepherd"), mode);
        let over = AtomicBool::new(false);
        let (found, tried) = std::thread::scope(|scope| {
            let attack = scope.spawn(|| {
                ANNA.does(|| {
                    let mut tried: BTreeMap<i32, u64> = BTreeMap::new();
                    while !over.load(Ordering::Relaxed) {
                        for pid in made_by(apinit) {
                            *tried.entry(pid).or_default() += 1;
                            if let Some(how) = does_to(pid) {
                                return (Some(how), tried);
                            }
                        }
                    }
                    (None, tried)
                })
            });
            for _ in 0..LAUNCHES {
                let mut command = ANNA.command(bins.path("aprun"), ["-q", "true"]);
                let done = run(command.env("PSCHED_SOCKET", hand.socket()));
                if attack.is_finished() {
                    // What is traced may have been held up.
                    break;
                }
                done.expect(0);
            }
            over.store(true, Ordering::Relaxed);
            attack.join().expect("it does not panic")
        });
        assert_eq!(found, None, "with mode {mode:o}, of {} processes", tried.len());
        let often = tried.values().filter(|times| **times > 10).count();
        assert!(often >= LAUNCHES / 2, "too few were tried: {tried:?}");
    }
    hand.end();
}
