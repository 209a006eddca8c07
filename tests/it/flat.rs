//! Launch after launch, nothing grows: open descriptors and memory of the daemons, control groups,
//! runtime directories, the store.
//!
//! `PSCHED_LAUNCHES=10000 cargo test --test it flat:: -- --nocapture` shows the figures of a long
//! run.

use crate::support::*;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Without PSCHED_LAUNCHES.
const LAUNCHES: u64 = 300;
/// Launches before the first look: caches and pools fill with them.
const WARM: u64 = 50;
/// Looks after that.
const LOOKS: u64 = 5;
/// Who launch at the same time.
const USERS: u64 = 2;
/// Descriptors that come and go with connections.
const SLACK: usize = 6;
/// What a daemon may grow by, in KiB: freed memory that malloc keeps.
const GROWTH_KIB: u64 = 16 * 1024;
/// What the store may grow by for each launch, of which it keeps the record and its events.
const RECORD_BYTES: u64 = 16 * 1024;

/// What there is at one moment.
#[derive(Debug)]
struct Look {
    launches: u64,
    /// psched and apinit.
    descriptors: [usize; 2],
    rss_kib: [u64; 2],
    groups: usize,
    folders: usize,
    store_bytes: u64,
}

fn entries(path: &Path) -> impl Iterator<Item = std::fs::DirEntry> {
    std::fs::read_dir(path).into_iter().flatten().flatten()
}

fn groups_below(path: &Path) -> usize {
    let below = entries(path).filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    below.map(|e| 1 + groups_below(&e.path())).sum()
}

fn look(instance: &Instance, launches: u64) -> Look {
    let pids = ["psched", "apinit"].map(|name| instance.daemon(name));
    let rss = |pid: i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
    };
    let folder = instance.folder();
    let group = std::fs::read_to_string(folder.join("groups")).unwrap_or_default();
    let size = |e: std::fs::DirEntry| e.metadata().map_or(0, |m| m.len());
    Look {
        launches,
        descriptors: pids.map(|pid| entries(Path::new(&format!("/proc/{pid}/fd"))).count()),
        rss_kib: pids.map(rss),
        groups: group.lines().map(|group| groups_below(Path::new(group))).sum(),
        folders: entries(&folder.join("apps-0")).filter(|e| e.path().is_dir()).count(),
        store_bytes: entries(&folder.join("state")).map(size).sum(),
    }
}

fn launch(instance: &Instance, count: u64) {
    let left = AtomicU64::new(count);
    std::thread::scope(|scope| {
        for _ in 0..USERS {
            scope.spawn(|| {
                let take = |n: u64| n.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    instance.aprun(["-q", "-n", "2", "true"]).expect(0);
                }
            });
        }
    });
    instance.wait_until_free();
    // Folders and groups go a moment after the processors are free.
    eventually(BOUND, "nothing of an application is left", || {
        let look = look(instance, 0);
        (look.groups, look.folders) == (0, 0)
    });
}

#[test]
fn launches_leave_nothing() {
    let given = std::env::var("PSCHED_LAUNCHES").ok().and_then(|text| text.parse().ok());
    let launches = given.unwrap_or(LAUNCHES).max(LOOKS);
    let instance = Plan::new().nodes(2, 2).start();
    launch(&instance, WARM);
    let mut looks = vec![look(&instance, 0)];
    for number in 1..=LOOKS {
        launch(&instance, launches / LOOKS);
        looks.push(look(&instance, number * (launches / LOOKS)));
    }
    for look in &looks {
        eprintln!("{look:?}");
    }
    let (first, last) = (&looks[0], &looks[LOOKS as usize]);
    for daemon in 0..2 {
        assert!(last.descriptors[daemon] <= first.descriptors[daemon] + SLACK, "{looks:#?}");
        assert!(last.rss_kib[daemon] <= first.rss_kib[daemon] + GROWTH_KIB, "{looks:#?}");
    }
    let most = first.store_bytes + last.launches * RECORD_BYTES;
    assert!(last.store_bytes <= most, "{looks:#?}");
}
