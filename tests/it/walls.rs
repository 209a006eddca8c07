//! Walls between gangs: nobody puts a PE where no freezer holds it, nor on another gang's
//! processor.

use crate::support::hand::Hand;
use crate::support::mpi;
use crate::support::users::{self, ANNA, Bins};
use crate::support::*;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TWO: &str = "nodes:\n  - { nids: 0-1, processors: 1, flavors: [su, os, ap] }\n";

fn daemons(test: &str) -> Option<(Hand, Bins)> {
    users::daemons(&format!("walls::{test}"), TWO, "0-1")
}

/// aprun of hers.
fn start(hand: &Hand, bins: &Bins, options: &str, script: &str) -> Running {
    let line = words(options).chain(["sh", "-c", script]);
    let mut command = ANNA.command(bins.path("aprun"), line);
    Running::start(command.env("PSCHED_SOCKET", hand.socket()))
}

/// The control groups of an application, as apinit keeps their folder.
#[track_caller]
fn groups(hand: &Hand, apid: u64) -> PathBuf {
    let kept = hand.folder().join(format!("apps-0/{apid}.1/groups"));
    PathBuf::from(std::fs::read_to_string(kept).expect("kept").trim_end())
}

fn processes_of(group: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|pid| pid.parse().ok()).collect()
}

/// A process of the user's that is no PE: it stops the shepherd again and again, so that a launch
/// takes long, and opens whatever group it can, to put PEs there. What it could open.
fn accomplice(application: &Path, over: &AtomicBool) -> Vec<PathBuf> {
    let all = ["", "0", "1", "shepherd"].map(|group| application.join(group));
    let mut open: Vec<(PathBuf, File)> = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let shepherd = processes_of(&all[3]).first().copied();
        if let Some(shepherd) = shepherd {
            kill(shepherd, 19);
        }
        for _ in 0..10 {
            for group in &all {
                let procs = group.join("cgroup.procs");
                if let Ok(file) = File::options().write(true).open(&procs)
                    && !open.iter().any(|(path, _)| *path == procs)
                {
                    open.push((procs, file));
                }
            }
        }
        for pid in processes_of(&all[1]).into_iter().chain(processes_of(&all[2])) {
            for (_, file) in &mut open {
                let _ = write!(file, "{pid}");
            }
        }
        if let Some(shepherd) = shepherd {
            kill(shepherd, 18);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    open.into_iter().map(|(path, _)| path).collect()
}

#[test]
fn an_accomplice_moves_no_pe_during_a_launch() {
    let Some((hand, bins)) = daemons("an_accomplice_moves_no_pe_during_a_launch") else { return };
    let first = start(&hand, &bins, "-q", "sleep 1000; true");
    let apid = hand.wait_for("running", 1)[0];
    let Some(above) = groups(&hand, apid).parent().map(Path::to_owned) else { return };
    for group in ["", "0", "shepherd"] {
        use std::os::unix::fs::MetadataExt;
        let procs = groups(&hand, apid).join(group).join("cgroup.procs");
        assert_eq!(std::fs::metadata(&procs).expect("there").uid(), 0, "{}", procs.display());
    }
    run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    first.wait(BOUND).expect(137);
    for apid in 2..5 {
        let application = above.join(format!("{apid}.1"));
        let over = AtomicBool::new(false);
        let (run, opened) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| ANNA.does(|| accomplice(&application, &over)));
            let run = start(&hand, &bins, "-q -n 2 -N 1", "cat /proc/self/cgroup").wait(BOUND);
            over.store(true, Ordering::Relaxed);
            (run, thread.join().expect("it ends"))
        });
        assert_eq!(opened, [] as [PathBuf; 0]);
        let run = run.expect(0);
        let mut of: Vec<&str> = Vec::new();
        let out = run.out();
        of.extend(out.lines().filter_map(|line| line.strip_prefix("0::")));
        of.sort_unstable();
        let ends = |group: &&str, nid: u32| group.ends_with(&format!("/{apid}.1/{nid}"));
        assert!(of.len() == 2 && ends(&of[0], 0) && ends(&of[1], 1), "{of:?}");
    }
    hand.end();
}

/// User and system time of a process so far.
fn cpu_of(pid: i32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, fields) = stat.rsplit_once(')').expect("its name");
    let ticks = fields.split_whitespace().skip(11).take(2);
    Duration::from_millis(ticks.map(|t| t.parse::<u64>().expect("ticks") * 10).sum())
}

fn affinity(pid: i32) -> Vec<u32> {
    psched::os::affinity::get(pid).expect("it lives")
}

/// The PEs of an application, by nodes, once they are there.
#[track_caller]
fn pes(hand: &Hand, apid: u64) -> Vec<i32> {
    let groups = groups(hand, apid);
    let mut all = Vec::new();
    eventually(BOUND, "its PE is there", || {
        all = processes_of(&groups.join("0"));
        all.extend(processes_of(&groups.join("1")));
        !all.is_empty()
    });
    all
}

/// Who binds himself to a processor of another gang's does not keep it, and the other has its time.
#[test]
fn a_pe_that_rebinds_itself_takes_no_processor_of_others() {
    let test = "a_pe_that_rebinds_itself_takes_no_processor_of_others";
    let Some((hand, bins)) = daemons(test) else { return };
    let victim = start(&hand, &bins, "-q", "while :; do :; done");
    let first = hand.wait_for("running", 1)[0];
    let victims = pes(&hand, first)[0];
    let theirs = affinity(victims);
    let [theirs] = theirs[..] else { panic!("bound to {theirs:?}") };
    let bad = start(&hand, &bins, "", "while :; do :; done");
    hand.wait_for("running", 2);
    let rebinds = pes(&hand, first + 1)[0];
    let own = affinity(rebinds);
    if own == [theirs] {
        skip(&format!("walls::{test}"), "this host has one processor");
    } else {
        let both = [own[0], theirs];
        for asked in [&[theirs][..], &both] {
            // (Where the kernel confines it, it may refuse at once.)
            let _ = ANNA.does(|| psched::os::affinity::set(rebinds, asked));
            eventually(BOUND, "it is bound again", || affinity(rebinds) == own);
        }
        // It is told where processors are not enforced, and that they are not.
        let nodes = hand.apstat("-n").to_string();
        if nodes.contains("processors are not enforced") {
            let note = format!("application {}.1: process {rebinds} of it had bound", first + 1);
            eventually(BOUND, "it is told", || hand.apstat("-n").to_string().contains(&note));
        }
        let since = cpu_of(victims);
        let before = Instant::now();
        eventually(BOUND, "the other has its time", || {
            cpu_of(victims) - since > Duration::from_millis(300)
        });
        let took = before.elapsed();
        assert!(affinity(victims) == [theirs] && took < BOUND, "{took:?}");
    }
    for apid in [first, first + 1] {
        run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    }
    victim.wait(BOUND).expect(137);
    let told = bad.wait(BOUND).expect(137).stderr;
    assert!(own == [theirs] || told.is_empty() || told.contains("had bound itself"), "{told}");
    hand.end();
}

/// The freezer ends no system call. What the kernel does for one in the turns of another is given
/// back, and told.
#[test]
fn who_keeps_the_kernel_busy_has_no_more_than_others() {
    let test = "who_keeps_the_kernel_busy_has_no_more_than_others";
    let name = format!("walls::{test}");
    let config = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\nvariables:\n  \
                  application.max_resident: 2\n  application.time_slice: 200ms\n  \
                  application.level.bound: 365d\n";
    let Some((hand, bins)) = users::daemons(&name, config, "0") else { return };
    let Some(program) = mpi::plain("walls", "kernel") else { return };
    let kernel = bins.add(&program);
    let victim = start(&hand, &bins, "-q", "while :; do :; done");
    let first = hand.wait_for("running", 1)[0];
    let bad = start(&hand, &bins, "-q", &format!("exec {}", kernel.display()));
    hand.wait_for("running", 2);
    let used = |apid: u64| {
        let stat =
            std::fs::read_to_string(groups(&hand, apid).join("0/cpu.stat")).expect("it lives");
        let used = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
        Duration::from_micros(used.and_then(|used| used.parse().ok()).expect("a number"))
    };
    let note = format!("application {}.1: the kernel has worked ", first + 1);
    eventually(BOUND, "it is told", || hand.apstat("-n").to_string().contains(&note));
    let [before, theirs] = [first, first + 1].map(used);
    eventually(BOUND, "time goes by", || {
        used(first) + used(first + 1) - before - theirs > Duration::from_secs(16)
    });
    let [of, against] = [used(first) - before, used(first + 1) - theirs];
    let share = of.as_secs_f64() / (of + against).as_secs_f64();
    // (The first leads: it has three quarters.)
    assert!((0.62..0.88).contains(&share), "{of:?} against {against:?}: {share:.2}");
    for apid in [first, first + 1] {
        run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    }
    victim.wait(BOUND).expect(137);
    bad.wait(BOUND).expect(137);
    hand.end();
}

/// Even root does not get a PE out of the group of its node for long.
#[test]
fn what_is_moved_outside_comes_back() {
    let Some((hand, bins)) = daemons("what_is_moved_outside_comes_back") else { return };
    let app = start(&hand, &bins, "-n 2 -N 1", "exec sleep 1000");
    let apid = hand.wait_for("running", 1)[0];
    let (groups, pes) = (groups(&hand, apid), pes(&hand, apid));
    for (nid, pid) in pes.iter().enumerate() {
        let own = groups.join(nid.to_string());
        let Some(above) = groups.ancestors().nth(2) else { return };
        let mut moved = 0;
        for other in [groups.join("shepherd"), groups.clone(), above.to_owned()] {
            // (With controllers none can be in a group that has groups.)
            if std::fs::write(other.join("cgroup.procs"), pid.to_string()).is_err() {
                continue;
            }
            moved += 1;
            eventually(BOUND, "it comes back", || processes_of(&own).contains(pid));
        }
        assert!(moved > 0);
    }
    let note = format!("application {apid}.1: process {} of it was found in ", pes[0]);
    eventually(BOUND, "it is told", || hand.apstat("-n").to_string().contains(&note));
    run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    let told = app.wait(BOUND).expect(137).stderr;
    assert!(told.contains("outside of the control group of its node, and put back"), "{told}");
    hand.end();
}

/// A mount on a folder, which can't be removed as long as it is there.
struct Pin<'a>(&'a Path);

impl<'a> Pin<'a> {
    fn new(folder: &'a Path) -> Pin<'a> {
        let done = Command::new("mount").arg("--bind").args([folder; 2]).status();
        assert!(done.expect("mount is there").success());
        Pin(folder)
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        // (-l: apinit may have the folder open at this moment.)
        let done = Command::new("umount").arg("-l").arg(self.0).status();
        assert!(done.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

/// apinit removes a group even if that is possible only after a long time: a killed process that
/// waits for a disk may need minutes to end.
#[test]
fn a_group_is_removed_once_it_can_be() {
    let Some((hand, bins)) = daemons("a_group_is_removed_once_it_can_be") else { return };
    let app = start(&hand, &bins, "-n 1", "exec sleep 1000");
    let apid = hand.wait_for("running", 1)[0];
    let groups = groups(&hand, apid);
    let pin = Pin::new(&groups);
    run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    app.wait(BOUND).expect(137);
    let told = "a group can't be removed yet";
    eventually(BOUND, "apinit has waited for long", || hand.said().contains(told));
    assert!(groups.exists());
    drop(pin);
    eventually(BOUND, "it is removed", || !groups.exists());
    hand.end();
}
