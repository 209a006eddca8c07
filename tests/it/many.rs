//! What the end of one application costs must not depend on how much else goes on on the host.

use crate::support::hand::Hand;
use crate::support::users::{ANNA, Bins};
use crate::support::*;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Applications that end at once.
const APPLICATIONS: usize = 16;
/// Processes that have nothing to do with them.
const OTHERS: usize = 1_200;
/// Processor time that the end of one may take, of its shepherd and its PE. To look through all
/// processes takes several times as much.
const EACH: Duration = Duration::from_millis(18);

/// A shell with as many children, all of which end with this.
struct Others(Child);

impl Others {
    fn start() -> Others {
        let script = format!("for i in $(seq {OTHERS}); do sleep 1000 & done; echo; wait");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).stdout(Stdio::piped()).process_group(0);
        let mut child = shell.spawn().expect("a shell");
        let mut said = [0; 1];
        let out = child.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(out, &mut said).expect("it has made them");
        Others(child)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        kill(-(self.0.id() as i32), 9);
        let _ = self.0.wait();
    }
}

#[test]
fn an_end_costs_the_same_however_many_processes_there_are() {
    let test = "many::an_end_costs_the_same_however_many_processes_there_are";
    if !is_root() {
        return skip(test, "only root can keep the groups of another user's application to itself");
    }
    let config =
        format!("nodes:\n  - {{ nids: 0, processors: {APPLICATIONS}, flavors: [su, os, ap] }}\n");
    let hand = Hand::start(&config, &[("0", None)]);
    hand.open_to_all();
    let bins = Bins::new();
    let runs: Vec<Running> = (0..APPLICATIONS)
        .map(|_| {
            let mut command = ANNA.command(bins.path("aprun"), ["-q", "sleep", "1000"]);
            Running::start(command.env("PSCHED_SOCKET", hand.socket()))
        })
        .collect();
    let apids = hand.wait_for("running", APPLICATIONS);
    let _others = Others::start();
    let apinit = hand.apinit_pid("0");
    let shepherds: Vec<i32> = children(apinit).into_iter().map(|(pid, _)| pid).collect();
    assert_eq!(shepherds.len(), APPLICATIONS);
    let family = shepherds.iter().flat_map(|pid| {
        [*pid].into_iter().chain(children(*pid).into_iter().map(|(pid, _)| pid)).collect::<Vec<_>>()
    });
    let before = ticks(apinit, true) + family.map(|pid| ticks(pid, false)).sum::<u64>();
    let apids = apids.iter().map(u64::to_string);
    let mut command = ANNA.command(bins.path("apkill"), ["-9".to_owned()].into_iter().chain(apids));
    run(command.env("PSCHED_SOCKET", hand.socket())).expect(0);
    for running in runs {
        running.wait(BOUND).expect(137);
    }
    eventually(BOUND, "every shepherd has gone", || children(apinit).is_empty());
    let taken = ticks(apinit, true).saturating_sub(before);
    let each = Duration::from_millis(taken * 10) / APPLICATIONS as u32;
    eprintln!("{each:?} for each of {APPLICATIONS}");
    assert!(each < EACH, "{each:?} for each of {APPLICATIONS}");
    hand.end();
}
