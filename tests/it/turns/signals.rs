//! Where there is no freezer: SIGSTOP and SIGCONT.

use super::rig::*;
use crate::apinit::rig::*;
use psched::apteam::protocol::turns::StopMeans;
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(100);

#[tokio::test]
async fn gangs_take_turns_by_signals() {
    let test = "turns::signals::gangs_take_turns_by_signals";
    if !crate::support::is_root() {
        return crate::support::skip(test, "only root can hide the groups");
    }
    let Some(program) = stamper("turns") else { return };
    let mut instance = Instance::new().await;
    let apinit = Apinit::start_without_groups(&instance, "0");
    let mut link = instance.link().await;
    assert_eq!(link.hello.stops, StopMeans::Signals, "{:?}", link.hello.notes);
    let mut gangs = Vec::new();
    for (name, script) in [("1.1", "exec STAMP spin"), ("2.1", "STAMP threads & exec STAMP fork")] {
        gangs.push(Gang::launch(&instance, &mut link, &program, name, script).await);
    }
    // (The second goes, and stands before its first instruction.)
    assert_eq!(gangs[1].runs(), []);
    planned(&mut link, plan(7, SLICE, &[gangs[0].key, gangs[1].key])).await;
    let told = switches(&mut link, 7, 20).await;
    let gaps = quantiles(told.iter().map(|s| s.gap_ns));
    eprintln!("{test}: gap {gaps:?} us (median, p99) of {}", told.len());
    exclusive(&[&gangs[0], &gangs[1]]);
    assert!(
        gangs.iter().all(|gang| gang.runs().len() >= 10),
        "they had no turns: {:?}",
        gangs.iter().map(|gang| gang.runs().len()).collect::<Vec<_>>()
    );
    kill(&mut link, gangs).await;
    apinit.end().await;
}
