//! psched, apinit, apshepherd or aprun goes while an application runs, and what becomes of that.

use super::front::*;
use super::rig::*;
use psched::apteam::ending::Cause;
use psched::apteam::fault::Fault;
use psched::apteam::protocol::attach::{OutputTaken, StdinPiece, ToApinit};
use psched::apteam::protocol::node::{Phase, Report};
use psched::machine::Nid;
use std::path::Path;
use std::time::{Duration, Instant};

#[tokio::test]
async fn psched_goes_and_comes_back() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 2);
    let key = place.key;
    link.place(&place).await;
    let script = "echo begun; read line; echo $line";
    let mut front = Front::launch(&instance.apinit_socket(0), key, script).await;
    front.until_going().await;
    front.until_output("begun\n").await;
    instance.kill_psched(link).await;
    // Meanwhile the application goes on, and ends.
    let data = b"words\n"[..].into();
    front.say(ToApinit::Stdin(StdinPiece { offset: 0, data })).await;
    front.say(ToApinit::StdinEnd(6)).await;
    front.until_done().await;
    assert_eq!(sorted(&front.output), ["", "begun", "begun", "words"]);
    instance.start_psched();
    let mut link = instance.link().await;
    assert_eq!(link.hello.store_id, store(&instance));
    assert_eq!(link.inventory, [(key, Phase::Ended)]);
    let end = link.ended().await;
    assert_eq!(end.ends, exits(0, 2));
    assert_eq!(link.word().await, Report::Ended(Box::new(end)));
    link.acknowledge(key).await;
    let app = apinit.app(key);
    until("the runtime directory to go", || !app.exists()).await;
    apinit.end().await;
}

#[tokio::test]
async fn apinit_is_killed_and_started_again() {
    let mut instance = Instance::new().await;
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
    let mut first = Apinit::start_with(&instance, "0", &read, None);
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 1);
    let key = place.key;
    link.place(&place).await;
    let script = "echo begun; while [ ! -e $GO ]; do sleep 0.01; done; echo ended";
    let go = instance.folder.path().join("go");
    let script = format!("GO={}; {script}", go.display());
    let mut front = Front::launch(&instance.apinit_socket(0), key, &script).await;
    front.until_going().await;
    front.until_output_untaken("begun\n").await;
    first.signal(nix::sys::signal::Signal::SIGKILL);
    first.exit().await;
    std::fs::write(&go, "").expect("written");
    let second = Apinit::start_with(&instance, "0", &read, Some(write));
    let mut link = instance.link().await;
    assert_eq!(
        (link.hello.store_id.clone(), &*link.inventory),
        (store(&instance), &[(key, Phase::Running)][..])
    );
    let had = front.had[&0];
    let taken = vec![OutputTaken { source: 0, offset: had }];
    let resume = ToApinit::Resume { key, ticket: TICKET, taken };
    let mut front = Front::attach(&instance.apinit_socket(0), resume).await;
    front.had.insert(0, had);
    front.until_going().await;
    front.until_done().await;
    assert_eq!(front.output, "ended\n");
    let end = link.ended().await;
    assert_eq!((end.ends.clone(), end.status()), (exits(0, 1), 0));
    link.acknowledge(key).await;
    let app = second.app(key);
    until("the runtime directory to go", || !app.exists()).await;
    second.end().await;
}

#[tokio::test]
async fn apinit_that_is_told_to_go_leaves_applications_running() {
    let mut instance = Instance::new().await;
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
    let mut first = Apinit::start_with(&instance, "0", &read, None);
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 1);
    link.place(&place).await;
    let script = "echo $$; exec sleep 1000";
    let mut front = Front::launch(&instance.apinit_socket(0), place.key, script).await;
    front.until_going().await;
    let pid = front.until_pid().await;
    let begun = Instant::now();
    first.signal(nix::sys::signal::Signal::SIGTERM);
    first.exit().await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(Path::new("/proc").join(&pid).exists(), "the application is gone");
    // The next one ends everything when its lifeline is cut, also what it has not started.
    let second = Apinit::start_with(&instance, "0", &read, Some(write));
    let link = instance.link().await;
    assert_eq!(link.inventory, [(place.key, Phase::Running)]);
    second.end().await;
    // (A zombie is as good as gone: whose child it is now is not up to apinit.)
    assert!(!Path::new("/proc").join(&pid).join("exe").exists(), "the application is left");
    if let Some(groups) = instance.groups() {
        assert!(!groups.exists());
    }
}

#[tokio::test]
async fn a_shepherd_is_killed() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 2);
    link.place(&place).await;
    let script = "echo $$; exec sleep 1000";
    let mut front = Front::launch(&instance.apinit_socket(0), place.key, script).await;
    front.until_going().await;
    front.until_output("\n").await;
    let kept = std::fs::read_to_string(apinit.app(place.key).join("shepherd")).expect("kept");
    let pid: i32 = kept.split(' ').next().and_then(|p| p.parse().ok()).expect("a pid");
    let kill = nix::sys::signal::Signal::SIGKILL;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), kill).expect("it is there");
    let end = link.ended().await;
    let text = "it died: Killed (signal 9)".to_string();
    let cause = Cause::ShepherdLost { nid: Nid(0), text, fault: Fault::Busy };
    assert_eq!(end.first.as_ref().map(|d| &d.cause), Some(&cause));
    assert_eq!((end.launched, end.status()), (true, 125));
    let pe = front.output.lines().next().expect("a pid").to_string();
    assert!(!Path::new("/proc").join(pe).join("exe").exists(), "a PE is left");
    front.until_done().await;
    link.acknowledge(place.key).await;
    apinit.end().await;
}

#[tokio::test]
async fn a_front_end_is_killed() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 2);
    link.place(&place).await;
    let script = "trap '' TERM; while :; do sleep 1; done";
    let mut front = front_process(&instance.apinit_socket(0), "12.1", script, None);
    loop {
        if link.word().await == Report::Running(place.key) {
            break;
        }
    }
    let begun = Instant::now();
    front.kill().expect("it is there");
    front.wait().expect("it is a child");
    let end = link.ended().await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(end.first.map(|d| d.cause), Some(Cause::FrontGone));
    link.acknowledge(place.key).await;
    let app = apinit.app(place.key);
    until("the runtime directory to go", || !app.exists()).await;
    apinit.end().await;
}

#[tokio::test]
async fn a_front_end_is_killed_while_apinit_is_away() {
    let mut instance = Instance::new().await;
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
    let mut first = Apinit::start_with(&instance, "0", &read, None);
    let mut link = instance.link().await;
    let place = instance.place("12.1", &[&[0]], 1);
    link.place(&place).await;
    let mut front = front_process(&instance.apinit_socket(0), "12.1", "exec sleep 1000", None);
    loop {
        if link.word().await == Report::Running(place.key) {
            break;
        }
    }
    // Stopped, so that it does not notice.
    first.signal(nix::sys::signal::Signal::SIGSTOP);
    front.kill().expect("it is there");
    front.wait().expect("it is a child");
    first.signal(nix::sys::signal::Signal::SIGKILL);
    first.exit().await;
    let second = Apinit::start_with(&instance, "0", &read, Some(write));
    let mut link = instance.link().await;
    assert_eq!(link.ended().await.first.map(|d| d.cause), Some(Cause::FrontGone));
    link.acknowledge(place.key).await;
    second.end().await;
}
