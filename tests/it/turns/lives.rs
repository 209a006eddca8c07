//! What goes on while gangs take turns: apinit is stopped or killed, gangs are ended.

use super::rig::*;
use crate::apinit::rig::*;
use nix::sys::signal::Signal;
use psched::apteam::Key;
use psched::apteam::ending::{Cause, HostEnd};
use psched::apteam::protocol::node::{Command, PlaceCommand, Report};
use psched::apteam::protocol::turns::{SlicePlan, Switch};
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(50);

/// Waits until a gang is over, and takes up all changes that began before that.
async fn ended_and_switches(link: &mut Link, gang: &mut Gang) -> (HostEnd, Vec<Switch>) {
    gang.front.until_done().await;
    let (mut end, mut told) = (None, Vec::<Switch>::new());
    loop {
        match link.report().await {
            Report::Ended(ended) if ended.key == gang.key => end = Some(*ended),
            Report::Switches(switches) => {
                assert_eq!(switches.left_out, 0, "changes are missing");
                told.extend(switches.switches);
            }
            _ => {}
        }
        let over = end.as_ref().and_then(|end| end.first.as_ref()).map(|first| first.at_ns);
        if over.is_some_and(|over| told.iter().any(|switch| switch.began_ns > over)) {
            link.acknowledge(gang.key).await;
            return (end.expect("told"), told);
        }
    }
}

/// How long a gang ran, and how long it stood meanwhile, until then.
fn times_of(key: Key, switches: &[Switch], until_ns: u64) -> (Duration, Duration) {
    let (mut ran, mut begun, mut since) = (0, None, None);
    for switch in switches {
        if switch.started.contains(&key) {
            let at = switch.began_ns + switch.gap_ns;
            (begun, since) = (begun.or(Some(at)), Some(at));
        }
        if switch.stopped.contains(&key) {
            let at = (switch.began_ns + switch.freeze_ns).min(until_ns);
            ran += since.take().map_or(0, |since| at.saturating_sub(since));
        }
    }
    ran += since.map_or(0, |since| until_ns.saturating_sub(since));
    let all = begun.map_or(0, |begun| until_ns.saturating_sub(begun));
    (Duration::from_nanos(ran), Duration::from_nanos(all.saturating_sub(ran)))
}

/// Whose slice is on at that time, by number.
fn whose(plan: &SlicePlan, at: u64) -> usize {
    let slice = plan.slices[0].length.as_nanos() as u64;
    ((at - plan.begins_ns) / slice) as usize % plan.slices.len()
}

/// Each change was to the gang whose slice was on when it began, however late that was.
#[track_caller]
fn in_their_slices(plan: &SlicePlan, gangs: [&Gang; 2], switches: &[Switch]) {
    let slice = plan.slices[0].length.as_nanos() as u64;
    for switch in switches {
        let late = switch.began_ns.saturating_sub(switch.due_ns);
        assert!(switch.due_ns <= switch.began_ns && late < slice, "of a slice before: {switch:?}");
        let its = gangs[whose(plan, switch.due_ns)].key;
        assert_eq!(switch.started, [its], "in the slice of {its}: {switch:?}");
    }
}

#[tokio::test]
async fn an_apinit_that_was_stopped_comes_back_in_the_right_slice() {
    let test = "turns::lives::an_apinit_that_was_stopped_comes_back_in_the_right_slice";
    let Some(program) = stamper("turns") else { return };
    let Some((instance, apinit, mut link)) = open(test).await else { return };
    let one = Gang::launch(&instance, &mut link, &program, "1.1", "exec STAMP spin").await;
    let other = Gang::launch(&instance, &mut link, &program, "2.1", "exec STAMP spin").await;
    let plan = plan(7, SLICE, &[one.key, other.key]);
    planned(&mut link, plan.clone()).await;
    switches(&mut link, 7, 10).await;
    apinit.signal(Signal::SIGSTOP);
    // One thread takes the signal, and may have to wait for a processor to do so.
    until("it to stop", || stands(apinit.pid())).await;
    let stopped = now_ns();
    // What it is about: so long that it would have missed a hundred changes.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let changes = |gang: &Gang| gang.runs().iter().any(|run| run.0 > stopped + 200 * MS);
    let ran = [changes(&one), changes(&other)];
    let back = now_ns();
    apinit.signal(Signal::SIGCONT);
    let mut told = Vec::new();
    while told.len() < 10 {
        let all = switches(&mut link, 7, 1).await;
        told.extend(all.into_iter().filter(|switch| switch.began_ns > back));
    }
    exclusive(&[&one, &other]);
    assert!(ran != [true, true], "somebody else has changed gangs");
    in_their_slices(&plan, [&one, &other], &told);
    until("both to run", || one.last() > back && other.last() > back).await;
    kill(&mut link, vec![one, other]).await;
    apinit.end().await;
}

#[tokio::test]
async fn an_apinit_that_was_killed_goes_on_with_its_plans() {
    let test = "turns::lives::an_apinit_that_was_killed_goes_on_with_its_plans";
    let Some(program) = stamper("turns") else { return };
    let mut instance = Instance::new().await;
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
    let mut apinit = Apinit::start_with(&instance, "0", &read, None);
    let mut link = instance.link().await;
    if !freezes(test, link.hello.stops) {
        drop(write);
        return apinit.exit().await;
    }
    let one = Gang::launch(&instance, &mut link, &program, "1.1", "exec STAMP fork").await;
    let other = Gang::launch(&instance, &mut link, &program, "2.1", "exec STAMP fork").await;
    planned(&mut link, plan(7, Duration::from_millis(10), &[one.key, other.key])).await;
    for _ in 0..6 {
        switches(&mut link, 7, 5).await;
        apinit.signal(Signal::SIGKILL);
        apinit.exit().await;
        apinit = Apinit::start_with(&instance, "0", &read, None);
        link = instance.link().await;
    }
    // psched has said nothing more.
    switches(&mut link, 7, 20).await;
    exclusive(&[&one, &other]);
    // One of them is frozen, most likely; both die with the lifeline.
    let groups = instance.groups().expect("groups");
    drop((read, write));
    apinit.exit().await;
    assert!(!groups.exists(), "something is left");
}

/// Slices so long that a test sees only the first, which is `one`'s.
fn for_ever(gangs: [&Gang; 2]) -> SlicePlan {
    plan(7, Duration::from_secs(3_600), &gangs.map(|gang| gang.key))
}

#[tokio::test]
async fn kill_reaches_a_frozen_gang_at_once() {
    let test = "turns::lives::kill_reaches_a_frozen_gang_at_once";
    let Some(program) = stamper("turns") else { return };
    let Some((instance, apinit, mut link)) = open(test).await else { return };
    let one = Gang::launch(&instance, &mut link, &program, "1.1", "exec STAMP spin").await;
    let mut other = Gang::launch(&instance, &mut link, &program, "2.1", "exec STAMP fork").await;
    planned(&mut link, for_ever([&one, &other])).await;
    let begun = Instant::now();
    end_now(&mut link, &mut other).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(other.runs(), [], "it has never had a turn");
    kill(&mut link, vec![one]).await;
    apinit.end().await;
}

/// The other is let run a second after it was told to end, with a grace that would have been over.
#[tokio::test]
async fn a_grace_begins_with_the_next_turn() {
    let test = "turns::lives::a_grace_begins_with_the_next_turn";
    let Some(program) = stamper("turns") else { return };
    let Some((instance, apinit, mut link)) = open(test).await else { return };
    let one = Gang::launch(&instance, &mut link, &program, "1.1", "exec STAMP spin").await;
    let script = "trap 'echo heard; exit 0' TERM; while :; do sleep 0.01; done";
    let mut other = Gang::launch(&instance, &mut link, &program, "2.1", script).await;
    let keys = [one.key, other.key];
    planned(&mut link, plan(7, Duration::from_millis(200), &keys)).await;
    // By then it has set its trap.
    switches(&mut link, 7, 5).await;
    let last = SlicePlan { generation: 8, ..for_ever([&one, &other]) };
    let begun = last.begins_ns + 100 * MS;
    planned(&mut link, last).await;
    until("the last plan to be on", || one.last() > begun).await;
    let cause = Cause::Kill { uid: 0, signal: 15 };
    let kill_after = Duration::from_millis(500);
    link.send(Command::Terminate { key: other.key, cause, kill_after }).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!other.front.output.contains("heard"));
    // psched gives it an early turn.
    planned(&mut link, plan(9, Duration::from_secs(3_600), &[other.key, one.key])).await;
    ended(&mut link, &mut other).await;
    assert_eq!(other.front.output.matches("heard").count(), 2, "{}", other.front.output);
    kill(&mut link, vec![one]).await;
    apinit.end().await;
}

/// A PE of a frozen gang is killed from outside: the others hear of it in their next turn, which comes
/// when their grace would have been over.
#[tokio::test]
async fn the_others_have_their_grace_when_a_frozen_pe_is_killed() {
    let test = "turns::lives::the_others_have_their_grace_when_a_frozen_pe_is_killed";
    let Some(program) = stamper("turns") else { return };
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    if !freezes(test, link.hello.stops) {
        return apinit.end().await;
    }
    let one = Gang::launch(&instance, &mut link, &program, "1.1", "exec STAMP spin").await;
    let script = "echo $$ >pid.$ALPS_APP_PE; trap 'echo heard; exit 0' TERM; \
                  while :; do sleep 0.01; done";
    let mut other = Gang::launch(&instance, &mut link, &program, "2.1", script).await;
    planned(&mut link, plan(7, Duration::from_millis(200), &[one.key, other.key])).await;
    // By then it has set its trap.
    switches(&mut link, 7, 5).await;
    let last = SlicePlan { generation: 8, ..for_ever([&one, &other]) };
    let begun = last.begins_ns + 100 * MS;
    planned(&mut link, last).await;
    until("the last plan to be on", || one.last() > begun).await;
    let pid = std::fs::read_to_string(instance.folder.path().join("pid.0")).expect("written");
    crate::support::kill(pid.trim().parse().expect("a pid"), 9);
    // (The placement has two seconds.)
    tokio::time::sleep(Duration::from_secs(3)).await;
    planned(&mut link, plan(9, Duration::from_secs(3_600), &[other.key, one.key])).await;
    let end = ended(&mut link, &mut other).await;
    assert_eq!(other.front.output.matches("heard").count(), 1, "{}", other.front.output);
    let first = end.first.map(|first| first.cause);
    assert!(matches!(first, Some(Cause::PeSignal { rank: 0, signal: 9, .. })), "{first:?}");
    kill(&mut link, vec![one]).await;
    apinit.end().await;
}

#[tokio::test]
async fn a_time_limit_counts_time_run() {
    let test = "turns::lives::a_time_limit_counts_time_run";
    let Some(program) = stamper("turns") else { return };
    let Some((instance, apinit, mut link)) = open(test).await else { return };
    let other = Gang::launch(&instance, &mut link, &program, "2.1", "exec STAMP spin").await;
    let limit = Duration::from_millis(1_000);
    let place = instance.place("1.1", &[&[0]], 2);
    let place = PlaceCommand { shares: true, time_limit: Some(limit), ..place };
    // (It is frozen until its first slice.)
    let mut one =
        Gang::launch_placed(&instance, &mut link, &program, place, "exec STAMP spin").await;
    let quarter = plan(7, SLICE, &[one.key, other.key, other.key, other.key]);
    let members = vec![one.key, other.key];
    planned(&mut link, SlicePlan { members, ..quarter }).await;
    let (end, told) = ended_and_switches(&mut link, &mut one).await;
    let first = end.first.expect("told");
    assert_eq!(first.cause, Cause::TimeLimit { limit });
    // By the changes of gangs, of which a busy machine makes some late.
    let (ran, stood) = times_of(one.key, &told, first.at_ns);
    eprintln!("{test}: ran {ran:?}, stood {stood:?}; {:?} by its end", end.run);
    assert!(ran + SLICE > limit, "ended after {ran:?}, and {stood:?} in which it stood");
    assert!(end.run >= limit && end.run < ran + stood, "{:?} are not {ran:?}", end.run);
    kill(&mut link, vec![other]).await;
    apinit.end().await;
}

/// What a PE has left goes on when others have had their turn, and is not ended for its silence.
#[tokio::test]
async fn what_is_left_has_its_moment_in_its_own_turns() {
    let test = "turns::lives::what_is_left_has_its_moment_in_its_own_turns";
    let Some(program) = stamper("turns") else { return };
    let Some((instance, apinit, mut link)) = open(test).await else { return };
    let one = Gang::launch(&instance, &mut link, &program, "1.1", "exec STAMP spin").await;
    // Its child sleeps through most of what it has, and has most of the rest still to do.
    let script = "trap '' HUP; (sleep 0.3; echo written) & exit 0";
    let mut other = Gang::launch(&instance, &mut link, &program, "2.1", script).await;
    let mut uneven = plan(7, Duration::from_millis(400), &[one.key, other.key]);
    uneven.slices[1].length = Duration::from_millis(30);
    planned(&mut link, uneven).await;
    let end = ended(&mut link, &mut other).await;
    assert_eq!(other.front.output.matches("written").count(), 2, "{:?}", other.front.output);
    assert_eq!(end.leftovers, 0, "{end:?}");
    kill(&mut link, vec![one]).await;
    apinit.end().await;
}

/// apinit is killed while one of them is frozen, and nobody comes in its place.
#[tokio::test]
async fn a_frozen_gang_dies_with_its_instance() {
    let test = "turns::lives::a_frozen_gang_dies_with_its_instance";
    let Some(program) = stamper("turns") else { return };
    let mut instance = Instance::new().await;
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
    let mut apinit = Apinit::start_with(&instance, "0", &read, None);
    let mut link = instance.link().await;
    if !freezes(test, link.hello.stops) {
        drop(write);
        return apinit.exit().await;
    }
    let one = Gang::launch(&instance, &mut link, &program, "1.1", "exec STAMP spin").await;
    let other = Gang::launch(&instance, &mut link, &program, "2.1", "exec STAMP spin").await;
    apinit.signal(Signal::SIGKILL);
    apinit.exit().await;
    let groups = instance.groups().expect("groups");
    let nodes = [&one, &other].map(|gang| groups.join(format!("{}/0", gang.key)));
    let is = |node: &std::path::Path, file: &str, line: &str| {
        std::fs::read_to_string(node.join(file)).expect("it is there").lines().any(|l| l == line)
    };
    assert!(is(&nodes[1], "cgroup.freeze", "1") && is(&nodes[1], "cgroup.events", "populated 1"));
    drop(write);
    for node in &nodes {
        until("the PEs to go", || is(node, "cgroup.events", "populated 0")).await;
    }
    // The next one clears what there was.
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
    let next = Apinit::start_with(&instance, "0", &read, Some(write));
    instance.link().await;
    next.end().await;
    assert!(!groups.exists(), "something is left");
}

/// Whether all threads of a process are stopped.
fn stands(pid: nix::unistd::Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let mut states = threads.map(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).expect("it runs");
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    });
    states.all(|stopped| stopped)
}

/// How often the threads of a process have gone to sleep, and what processor time they have had.
fn wakes_and_time(pid: nix::unistd::Pid) -> (u64, Duration) {
    let mut all = (0, Duration::ZERO);
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten() {
        let status = std::fs::read_to_string(thread.path().join("status")).expect("it runs");
        let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        all.0 += line.and_then(|n| n.trim().parse::<u64>().ok()).expect("a number");
        let schedstat = std::fs::read_to_string(thread.path().join("schedstat")).expect("it runs");
        let run = schedstat.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
        all.1 += Duration::from_nanos(run);
    }
    all
}

/// Field 41 of /proc/PID/stat, counted from the one behind the name.
const POLICY: usize = 38;

#[tokio::test]
async fn the_thread_that_changes_gangs_comes_first_or_it_is_said_why_not() {
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let link = instance.link().await;
    let own = std::path::PathBuf::from(format!("/proc/{}", apinit.pid()));
    let text = |path: std::path::PathBuf| std::fs::read_to_string(path).expect("it runs");
    let threads = std::fs::read_dir(own.join("task")).expect("it runs").flatten();
    let mut threads = threads.filter(|t| text(t.path().join("comm")) == "apinit-switch\n");
    let stat = text(threads.next().expect("the thread").path().join("stat"));
    let policy = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(POLICY));
    let fifo = policy.and_then(|p| p.parse().ok()) == Some(nix::libc::SCHED_FIFO);
    let status = text(own.join("status"));
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let locked = locked.is_some_and(|kib| !kib.trim().starts_with("0 "));
    let said = |words: &str| link.hello.notes.iter().any(|note| note.text.contains(words));
    assert_eq!(fifo, !said("SCHED_FIFO"), "{stat} {:?}", link.hello.notes);
    assert_eq!(locked, !said("memory can't be locked"), "{status} {:?}", link.hello.notes);
    apinit.end().await;
}

#[tokio::test]
async fn what_turns_cost_on_a_node() {
    let test = "turns::lives::what_turns_cost_on_a_node";
    let Some(program) = stamper("turns") else { return };
    let Some((instance, apinit, mut link)) = open(test).await else { return };
    let one = Gang::launch(&instance, &mut link, &program, "1.1", "exec STAMP spin").await;
    planned(&mut link, plan(7, Duration::from_millis(100), &[one.key])).await;
    let second = Duration::from_secs(1);
    tokio::time::sleep(second).await;
    let before = wakes_and_time(apinit.pid());
    tokio::time::sleep(4 * second).await;
    let after = wakes_and_time(apinit.pid());
    let wakes = after.0 - before.0;
    // A heartbeat in five seconds wakes it several times, and so does, with two threads each
    // second, the look whether every process is where it belongs.
    assert!(wakes <= 24, "alone, it woke {wakes} times in 4 s");
    let other = Gang::launch(&instance, &mut link, &program, "2.1", "exec STAMP spin").await;
    planned(&mut link, plan(8, Duration::from_millis(100), &[one.key, other.key])).await;
    tokio::time::sleep(second).await;
    let before = wakes_and_time(apinit.pid());
    tokio::time::sleep(4 * second).await;
    let after = wakes_and_time(apinit.pid());
    let turns = after.0 - before.0;
    // (Wakes, because what it takes of a processor depends on who else runs tests: 1 to 4 %. At
    // leisure it is woken 160 times, where processors are busy 640; a look each 2 ms would be 2,000.)
    let share = (after.1 - before.1).as_secs_f64() / 4.0 * 1e2;
    eprintln!(
        "{test}: alone {wakes} wakes in 4 s; two at 100 ms {turns}, {share:.2} % of a processor"
    );
    assert!(turns <= 1_600, "two gangs woke it {turns} times in 4 s");
    kill(&mut link, vec![one, other]).await;
    apinit.end().await;
}
