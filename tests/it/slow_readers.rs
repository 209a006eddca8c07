//! Front ends on other hosts that do not read what their applications write: these are held up, and
//! no other.
//!
//! All applications here have the same hosts and the same head, and what they write goes through
//! the same connections: with a fan-out of 2 the head, h0, speaks with h2 through h1.

use crate::support::hosts::{Cluster, may_be};
use crate::support::*;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What each PE of a slow application writes: so many blocks of a line with its number and a
/// hundred lines of a kilobyte. It is more than all that is between the PE and aprun can hold.
const BLOCKS: usize = 120;
const LINES: usize = 100;
const PES: usize = 4;
/// How long an application that is not held up takes at most; alone it is done in less than a
/// second.
const QUICK: Duration = Duration::from_secs(40);

/// One PE on each host: two applications have the same nodes.
fn start(cluster: &Cluster, from: usize, number: usize, script: &str) -> Command {
    let first = number / 2;
    let nids = (0..PES).map(|host| (3 * host + first).to_string()).collect::<Vec<_>>().join(",");
    let options = format!("-q -T -n {PES} -N 1 --flexible -L {nids} sh -c");
    cluster.command(from, "aprun", words(&options).chain([script]))
}

/// An application whose aprun does not read, or is stopped.
struct Slow {
    number: usize,
    aprun: Child,
}

impl Slow {
    fn start(cluster: &Cluster, from: usize, number: usize) -> Slow {
        let folder = cluster.folder().display();
        let script = format!(
            "line=$ALPS_APP_PE; while [ ${{#line}} -lt 1000 ]; do line=\"$line .........\"; done; \
             text=$line; i=1; while [ $i -lt {LINES} ]; do i=$((i+1)); text=\"$text\n$line\"; done; \
             i=0; while [ $i -lt {BLOCKS} ]; do i=$((i+1)); echo \"$ALPS_APP_PE block $i\n$text\"; \
             echo $i > {folder}/at-{number}.$ALPS_APP_PE; done"
        );
        let mut command = start(cluster, from, number, &script);
        let aprun = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
        Slow { number, aprun }
    }

    /// How many blocks each PE has written.
    fn at(&self, cluster: &Cluster) -> Vec<usize> {
        let file = |pe| cluster.folder().join(format!("at-{}.{pe}", self.number));
        let text = |pe| std::fs::read_to_string(file(pe)).unwrap_or_default();
        (0..PES).map(|pe| text(pe).trim().parse().unwrap_or(0)).collect()
    }

    /// It is read from now on, and has written everything.
    #[track_caller]
    fn ends_well(mut self) {
        let mut text = String::new();
        let mut stdout = self.aprun.stdout.take().expect("piped");
        stdout.read_to_string(&mut text).expect("read");
        assert!(self.aprun.wait().expect("reaped").success(), "application {}", self.number);
        for pe in 0..PES {
            let start = format!("{pe} ");
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(&start));
            for block in 1..=BLOCKS {
                assert_eq!(lines.next(), Some(&*format!("block {block}")), "PE {pe}");
                let whole = lines.by_ref().take(LINES).filter(|line| line.len() > 990).count();
                assert_eq!(whole, LINES, "block {block} of PE {pe}");
            }
            assert_eq!(lines.next(), None, "PE {pe}");
        }
    }
}

#[test]
fn a_slow_reader_on_another_host_holds_up_its_own_application_only() {
    if !may_be("slow_readers::a_slow_reader_on_another_host_holds_up_its_own_application_only") {
        return;
    }
    let cluster = Cluster::start(PES, 3);
    cluster.set("fan_out=2");
    let apinits = || (0..PES).map(|host| resident_kib(cluster.apinit(host)));
    let before: Vec<u64> = apinits().collect();
    let slow: Vec<Slow> = [1, 2, 2, 3, 3]
        .iter()
        .enumerate()
        .map(|(number, from)| Slow::start(&cluster, *from, number))
        .collect();
    cluster.wait_for("running", slow.len());
    // Nobody reads what they write, and some are stopped as well.
    for stopped in [&slow[2], &slow[4]] {
        eventually(BOUND, "it writes", || stopped.at(&cluster).iter().all(|blocks| *blocks > 0));
        kill(stopped.aprun.id() as i32, 19);
    }
    let all = || slow.iter().map(|slow| slow.at(&cluster)).collect::<Vec<_>>();
    let mut last = (all(), Instant::now());
    eventually(BOUND, "the writers are held up", || {
        let now = all();
        if now != last.0 {
            last = (now, Instant::now());
        }
        last.0.iter().flatten().all(|blocks| *blocks > 0)
            && last.1.elapsed() > Duration::from_millis(700)
    });
    let held = last.0;
    assert!(held.iter().flatten().all(|blocks| *blocks < BLOCKS), "not held up: {held:?}");
    for (host, (before, now)) in before.iter().zip(apinits()).enumerate() {
        assert!(now < before + 64 * 1024, "apinit of h{host}: {before} to {now} KiB");
    }
    // Others write on, wherever their aprun is.
    for from in [0, 3, 2, 1] {
        let mut quick = start(&cluster, from, 5, "seq 1 20000");
        let (tell, told) = mpsc::channel();
        let quick = Running::start(&mut quick);
        std::thread::spawn(move || tell.send(quick.wait(BOUND)));
        let ran = told.recv_timeout(QUICK).unwrap_or_else(|_| panic!("from h{from}: held up"));
        let mut expected: Vec<String> =
            (1..=20_000).flat_map(|i| vec![i.to_string(); PES]).collect();
        expected.sort();
        let lines = ran.expect(0).sorted();
        assert!(lines == expected, "from h{from}: {} lines are not what was written", lines.len());
    }
    assert_eq!(all(), held, "the slow ones went on");
    for stopped in [&slow[2], &slow[4]] {
        kill(stopped.aprun.id() as i32, 18);
    }
    slow.into_iter().for_each(Slow::ends_well);
    cluster.wait_until_up();
}
