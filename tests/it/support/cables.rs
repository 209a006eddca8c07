//! Faults of the cables between the hosts of a [`Cluster`]: a cable that is out, that carries one
//! direction only, that loses packets, that is slow.
//!
//! The switch of the hosts makes the faults: its port goes down, its nftables drop what goes in or
//! out of the port, its queue lets through so much. They end with the switch. That something was
//! sent in vain is seen by segments of TCP that are sent again.

use super::hosts::{Cluster, may_be};
use super::*;
use std::sync::OnceLock;

/// Segments that have been sent again before a fault counts as one that has been noticed.
const NOTICED: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// The link is down.
    Out,
    /// The host is sent nothing.
    Deaf,
    /// Nothing that the host sends arrives.
    Mute,
    /// A fifth of the packets is lost, in each direction: see [`LOST`].
    Lossy,
    /// 100 kbit/s, in both directions.
    Slow,
}

/// Which packets of twenty a direction of a lossy cable drops: counted, so that each run loses the
/// same share, and no connection has all of its packets dropped by chance. Two of them follow each
/// other, so that what is sent again may be lost again.
const LOST: &str = "numgen inc mod 20 { 3, 7, 8, 14 } drop";

/// How slow a slow cable is.
const SLOW: &str = "rate 100kbit burst 1600 latency 100ms";

/// Nothing at all arrives, in one direction at least.
pub const CUTS: [Fault; 3] = [Fault::Out, Fault::Deaf, Fault::Mute];

/// Whether there may be such faults here; the test is skipped, by name, where not.
pub fn faults_may_be(test: &str) -> bool {
    // What the faults are made of, in a network of its own.
    let parts = format!(
        "ip link set lo up
        tc qdisc add dev lo root tbf {SLOW}
        nft 'table bridge faults {{ chain f {{ type filter hook forward priority 0; \
             iifname \"p1\" {LOST}; }}; }}'"
    );
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    if !may_be(test) {
        return false;
    }
    let missing = MISSING.get_or_init(|| {
        for (program, package) in [("nft", "nftables"), ("tc", "iproute2")] {
            if Command::new(program).arg("-V").output().is_err() {
                return Some(format!("{program} is not installed (apt-get install {package})"));
            }
        }
        let tried = run(Command::new("unshare").args(["--net", "sh", "-e", "-c", &parts]));
        let why = tried.stderr.trim();
        (tried.status != 0).then(|| format!("the kernel has no faults of cables: {why}"))
    });
    match missing {
        Some(why) => skip(test, why),
        None => return true,
    }
    false
}

/// The cable of a host has a fault from now on.
#[track_caller]
pub fn break_cable(cluster: &Cluster, host: usize, fault: Fault) {
    let port = format!("p{host}");
    let filter = |rules: &str| {
        let table = format!(
            "table bridge {port} {{ chain f {{ type filter hook forward priority 0; {rules} }}; }}"
        );
        run(cluster.on_switch("nft").arg(table)).expect(0);
    };
    match fault {
        Fault::Out => cluster.cable(host, false),
        Fault::Deaf => filter(&format!("oifname {port} drop;")),
        Fault::Mute => filter(&format!("iifname {port} drop;")),
        Fault::Lossy => filter(&format!("iifname {port} {LOST}; oifname {port} {LOST};")),
        Fault::Slow => {
            let options = |device: &str| format!("qdisc add dev {device} root tbf {SLOW}");
            run(cluster.on_switch("tc").args(words(&options(&port)))).expect(0);
            run(cluster.on(host, "tc".as_ref()).args(words(&options("eth0")))).expect(0);
        }
    }
}

/// It has the fault no longer.
#[track_caller]
pub fn mend_cable(cluster: &Cluster, host: usize, fault: Fault) {
    let port = format!("p{host}");
    match fault {
        Fault::Out => cluster.cable(host, true),
        Fault::Deaf | Fault::Mute | Fault::Lossy => {
            run(cluster.on_switch("nft").args(["delete", "table", "bridge", &port])).expect(0);
        }
        Fault::Slow => {
            run(cluster.on_switch("tc").args(["qdisc", "del", "dev", &port, "root"])).expect(0);
            run(cluster.on(host, "tc".as_ref()).args(words("qdisc del dev eth0 root"))).expect(0);
        }
    }
}

/// Waits until somebody has sent in vain since then.
#[track_caller]
pub fn wait_for_noticed(cluster: &Cluster, since: u64) {
    eventually(BOUND, "hosts send again what was lost", || cluster.sent_again() >= since + NOTICED);
}

/// A cut, something that begins while it lasts, and its end after it has been noticed.
#[track_caller]
pub fn while_cut<T>(cluster: &Cluster, host: usize, fault: Fault, begins: impl FnOnce() -> T) -> T {
    let before = cluster.sent_again();
    break_cable(cluster, host, fault);
    let begun = begins();
    wait_for_noticed(cluster, before);
    mend_cable(cluster, host, fault);
    begun
}
