//! No user instruction of the outgoing gang after the incoming one's first, whatever the PEs do.

use super::rig::*;
use crate::apinit::rig::*;
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(10);

/// Two gangs of this kind, this many changes.
async fn two(test: &str, script: &str, count: usize) {
    let test = &format!("turns::exclusive::{test}");
    let Some(program) = stamper("turns") else { return };
    let mut instance = Instance::new().await;
    let apinit = Apinit::start(&instance, "0");
    let mut link = instance.link().await;
    if !freezes(test, &link) {
        return apinit.end().await;
    }
    let one = Gang::launch(&instance, &mut link, &program, "1.1", script).await;
    let other = Gang::launch(&instance, &mut link, &program, "2.1", script).await;
    planned(&mut link, plan(7, SLICE, &[one.key, other.key])).await;
    let told = switches(&mut link, 7, count).await;
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
        assert!(gang.runs().len() > count / 4, "{} had no turns", gang.key);
    }
    kill(&mut link, vec![one, other]).await;
    apinit.end().await;
}

#[tokio::test]
async fn while_they_spin() {
    two("while_they_spin", "exec STAMP spin", 1_000).await;
}

#[tokio::test]
async fn while_they_fork() {
    two("while_they_fork", "exec STAMP fork", 200).await;
}

#[tokio::test]
async fn while_they_vfork() {
    two("while_they_vfork", "exec STAMP vfork", 200).await;
}
