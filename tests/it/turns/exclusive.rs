//! No user instruction of the outgoing gang after the incoming one's first, whatever the PEs do.

use super::rig::*;
use crate::apinit::rig::*;
use crate::stuck::Freezer;
use psched::apteam::protocol::node::HostNote;
use psched::apteam::protocol::turns::{PlannedSlice, Switch};
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(10);

/// Two gangs of this kind, a thousand changes; these, unless the test is skipped.
async fn two(test: &str, script: &str) -> Option<Vec<Switch>> {
    const COUNT: usize = 1_000;
    let test = &format!("turns::exclusive::{test}");
    let program = stamper("turns")?;
    let (instance, apinit, mut link) = open(test).await?;
    let one = Gang::launch(&instance, &mut link, &program, "1.1", script).await;
    let other = Gang::launch(&instance, &mut link, &program, "2.1", script).await;
    planned(&mut link, plan(7, SLICE, &[one.key, other.key])).await;
    let told = switches(&mut link, 7, COUNT).await;
    let gaps = quantiles(told.iter().map(|s| s.gap_ns));
    let late = quantiles(told.iter().map(|s| s.began_ns.saturating_sub(s.due_ns)));
    let not_yet = told.iter().filter(|s| s.not_yet_frozen > 0).count();
    eprintln!(
        "{test}: gap {gaps:?} us, late {late:?} us (median, p99), {not_yet} of {} not yet frozen",
        told.len()
    );
    let rounds = [one.rounds(), other.rounds()];
    assert!(
        script.contains("spin") || rounds.iter().all(|n| *n > 20),
        "nothing happened: {rounds:?}"
    );
    exclusive(&[&one, &other]);
    for gang in [&one, &other] {
        assert!(turns(gang.runs()) > COUNT / 4, "{} had no turns", gang.key);
    }
    kill(&mut link, vec![one, other]).await;
    apinit.end().await;
    Some(told)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_they_spin() {
    two("while_they_spin", "exec STAMP spin").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_they_fork() {
    two("while_they_fork", "exec STAMP fork").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_they_vfork() {
    two("while_they_vfork", "exec STAMP vfork").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_they_dump_core() {
    use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
    let limit = getrlimit(Resource::RLIMIT_CORE).expect("a limit").1;
    if limit != RLIM_INFINITY {
        let test = "turns::exclusive::while_they_dump_core";
        return crate::support::skip(test, "the hard limit on core files lets none be written");
    }
    two("while_they_dump_core", "exec STAMP core").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_they_stop_themselves() {
    two("while_they_stop_themselves", "exec STAMP stop").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_they_trace() {
    two("while_they_trace", "exec STAMP trace").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_they_make_threads() {
    two("while_they_make_threads", "exec STAMP threads").await;
}

/// The program's exit code where the kernel has no ring for it.
const NO_RING: i32 = 97;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_the_kernel_reads_for_them() {
    let test = "while_the_kernel_reads_for_them";
    let Some(program) = stamper("turns") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = tokio::process::Command::new(program);
    let mut child = command
        .arg(folder.path().join("table"))
        .arg("uring")
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let soon = tokio::time::timeout(Duration::from_millis(200), child.wait()).await;
    if soon.is_ok_and(|status| status.expect("a child").code() == Some(NO_RING)) {
        return crate::support::skip(&format!("turns::exclusive::{test}"), "no io_uring here");
    }
    two(test, "exec STAMP uring").await;
}

/// Who writes to a frozen file system sits in the kernel, and does not enter the freezer.
#[tokio::test(flavor = "multi_thread")]
async fn while_they_wait_for_a_file_system() {
    let test = "while_they_wait_for_a_file_system";
    let Some(mut disk) = Freezer::new(&format!("turns::exclusive::{test}")) else { return };
    let script = format!("exec STAMP write {}/$ALPS_APP_PE", disk.path().display());
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let until = std::sync::Arc::clone(&over);
    let freezes = tokio::task::spawn_blocking(move || {
        while !until.load(std::sync::atomic::Ordering::Relaxed) {
            disk.freeze();
            std::thread::sleep(Duration::from_millis(70));
            disk.thaw();
            std::thread::sleep(Duration::from_millis(40));
        }
    });
    let told = two(test, &script).await;
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    freezes.await.expect("it ends");
    // They did wait there, and nobody waited for them.
    let waited = |s: &Switch| s.not_yet_frozen > 0;
    assert!(told.is_none_or(|told| told.iter().filter(|s| waited(s)).count() > 20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn who_waits_for_a_file_system_is_named() {
    let test = "turns::exclusive::who_waits_for_a_file_system_is_named";
    let Some(mut disk) = Freezer::new(test) else { return };
    let Some(program) = stamper("turns") else { return };
    let Some((instance, apinit, mut link)) = open(test).await else { return };
    let script = format!("exec STAMP write {}/$ALPS_APP_PE", disk.path().display());
    let one = Gang::launch(&instance, &mut link, &program, "1.1", &script).await;
    let other = Gang::launch(&instance, &mut link, &program, "2.1", "exec STAMP spin").await;
    planned(&mut link, plan(7, SLICE, &[one.key, other.key])).await;
    let mut notes = link.notes.clone();
    let named = |notes: &Vec<HostNote>| {
        let its = |note: &&HostNote| note.to_string().contains("application 1.1: pid ");
        notes
            .iter()
            .find(its)
            .is_some_and(|note| note.text.contains(" waits in the kernel (D) on NID 0"))
    };
    disk.freeze();
    bounded("its name", notes.wait_for(named)).await.expect("the link stands");
    disk.thaw();
    bounded("the end of that", notes.wait_for(|notes| !named(notes))).await.expect("as before");
    kill(&mut link, vec![one, other]).await;
    apinit.end().await;
}

/// Traced from outside, by somebody who is in no group of theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_they_are_traced() {
    let test = "turns::exclusive::while_they_are_traced";
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        return crate::support::skip(test, "strace is not installed");
    }
    let Some(program) = stamper("turns") else { return };
    let Some((instance, apinit, mut link)) = open(test).await else { return };
    let one = Gang::launch(&instance, &mut link, &program, "1.1", "exec STAMP fork").await;
    let other = Gang::launch(&instance, &mut link, &program, "2.1", "exec STAMP fork").await;
    planned(&mut link, plan(7, SLICE, &[one.key, other.key])).await;
    switches(&mut link, 7, 10).await;
    let mut tracers = Vec::new();
    for gang in [&one, &other] {
        let procs = instance.groups().expect("groups").join(format!("{}/0/cgroup.procs", gang.key));
        let pids = std::fs::read_to_string(procs).expect("it is there");
        let mut strace = tokio::process::Command::new("strace");
        let calls = instance.folder.path().join(format!("calls-{}", gang.key));
        strace.args(["-f", "-qq", "-o"]).arg(&calls);
        // (Its children come and go.)
        strace.args(pids.lines().take(1).flat_map(|pid| ["-p", pid]));
        strace.kill_on_drop(true);
        tracers.push((strace.spawn().expect("it starts"), calls));
    }
    switches(&mut link, 7, 1_000).await;
    for (tracer, calls) in &mut tracers {
        assert!(tracer.try_wait().expect("a child").is_none(), "nobody is traced");
        let seen = std::fs::read_to_string(calls).unwrap_or_default();
        assert!(seen.lines().count() > 100, "no calls are seen: {seen}");
    }
    exclusive(&[&one, &other]);
    drop(tracers);
    kill(&mut link, vec![one, other]).await;
    apinit.end().await;
}

/// Others are launched over it, run where it does not, and die, by themselves or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_others_come_and_go() {
    let test = "turns::exclusive::while_others_come_and_go";
    let Some(program) = stamper("turns") else { return };
    let Some((instance, apinit, mut link)) = open(test).await else { return };
    let one = Gang::launch(&instance, &mut link, &program, "1.1", "exec STAMP fork").await;
    let nobody = PlannedSlice { length: SLICE, party: vec![] };
    let mut half = plan(7, SLICE, &[one.key]);
    half.slices.push(nobody);
    planned(&mut link, half).await;
    let mut gone = Vec::new();
    for number in 2..12 {
        let dies = number % 2 == 0;
        let script = match dies {
            true => "STAMP fork & sleep 0.05; kill -9 $!; wait",
            false => "exec STAMP spin",
        };
        let name = format!("{number}.1");
        let mut other = Gang::launch(&instance, &mut link, &program, &name, script).await;
        if dies {
            ended(&mut link, &mut other).await;
        } else {
            until("it to run", || !other.runs().is_empty()).await;
            end_now(&mut link, &mut other).await;
        }
        exclusive(&[&one, &other]);
        gone.push(other);
    }
    let ran = gone.iter().filter(|gang| !gang.runs().is_empty()).count();
    assert_eq!(ran, gone.len(), "some have never run");
    kill(&mut link, vec![one]).await;
    apinit.end().await;
}
