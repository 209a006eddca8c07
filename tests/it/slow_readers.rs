//! Front ends on other hosts that do not read what their applications write: these are held up, and
//! no other.
//!
//! All applications here have the same hosts and the same head, and what they write goes through
//! the same connections: with a fan-out of 2 the head, h0, speaks with h2 through h1.

use crate::support::hosts::{Cluster, may_be};
use crate::support::*;
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// What each PE of a slow application writes: so many blocks of a line with its number and a
/// hundred lines of a kilobyte. It is more than all that is between the PE and aprun can hold.
const BLOCKS: usize = 120;
const LINES: usize = 100;
const PES: usize = 4;

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
            "echo $$ > {folder}/pid-{number}.$ALPS_APP_PE; line=$ALPS_APP_PE; while [ ${{#line}} -lt 1000 ]; do line=\"$line .........\"; done; \
             text=$line; i=1; while [ $i -lt {LINES} ]; do i=$((i+1)); text=\"$text\n$line\"; done; \
             i=0; while [ $i -lt {BLOCKS} ]; do i=$((i+1)); echo \"$ALPS_APP_PE block $i\n$text\"; \
             echo $i > {folder}/at-{number}.$ALPS_APP_PE; done"
        );
        let mut command = start(cluster, from, number, &script);
        let aprun = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
        Slow { number, aprun }
    }

    /// What each PE has said in its file of this name; `None`: it has none.
    fn said(&self, cluster: &Cluster, name: &str) -> impl Iterator<Item = Option<usize>> {
        let file = |pe| cluster.folder().join(format!("{name}-{}.{pe}", self.number));
        let files: Vec<_> = (0..PES).map(file).collect();
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        files.into_iter().map(move |path| text(path).trim().parse().ok())
    }

    /// How many blocks each PE has written.
    fn at(&self, cluster: &Cluster) -> Vec<usize> {
        self.said(cluster, "at").map(Option::unwrap_or_default).collect()
    }

    /// Each PE has begun to write, and waits for room.
    fn stands(&self, cluster: &Cluster) -> bool {
        let pids = self.said(cluster, "pid").map(|pid| pid.and_then(|pid| i32::try_from(pid).ok()));
        self.at(cluster).iter().all(|blocks| *blocks > 0)
            && pids.into_iter().all(|pid| pid.is_some_and(waits_for_room))
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

/// An application on the hosts of the others, that is read: it is not held up by them.
#[track_caller]
fn quick(cluster: &Cluster, from: usize, lines: usize) {
    let mut command = start(cluster, from, 5, &format!("seq 1 {lines}"));
    let run = Running::start(&mut command).wait(BOUND).expect(0);
    let mut expected: Vec<String> = (1..=lines).flat_map(|i| vec![i.to_string(); PES]).collect();
    expected.sort();
    let written = run.sorted();
    assert!(written == expected, "from h{from}: {} lines are not what was written", written.len());
}

/// A writer waits for room once its pipe is full. A process that sleeps for another reason does not,
/// nor does one whose stdout is no pipe.
#[test]
fn a_writer_waits_for_room_when_its_pipe_is_full() {
    let start = |script: &str, stdout: Stdio| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(stdout);
        command.spawn().expect("it starts")
    };
    let mut all = [
        start("exec yes", Stdio::piped()),
        start("echo begun; exec sleep 1000", Stdio::piped()),
        start("exec sleep 1000", Stdio::null()),
    ];
    let waits = |child: &Child| waits_for_room(child.id() as i32);
    eventually(BOUND, "the pipe is full", || waits(&all[0]));
    let mut begun = [0; 6];
    all[1].stdout.as_mut().expect("piped").read_exact(&mut begun).expect("it has begun");
    for sleeper in &all[1..] {
        let stat = format!("/proc/{}/stat", sleeper.id());
        let sleeps = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
        eventually(BOUND, "it sleeps", sleeps);
    }
    assert_eq!(all.each_ref().map(waits), [true, false, false]);
    for child in &mut all {
        child.kill().and_then(|()| child.wait()).expect("ended");
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
    // None goes on while others come and go by each of their ways.
    let mut held = Vec::new();
    eventually(BOUND, "the writers are held up", || {
        if !slow.iter().all(|slow| slow.stands(&cluster)) {
            return false;
        }
        held = all();
        [1, 2, 3].into_iter().for_each(|from| quick(&cluster, from, 100));
        slow.iter().all(|slow| slow.stands(&cluster)) && all() == held
    });
    assert!(held.iter().flatten().all(|blocks| *blocks < BLOCKS), "not held up: {held:?}");
    for (host, (before, now)) in before.iter().zip(apinits()).enumerate() {
        assert!(now < before + 64 * 1024, "apinit of h{host}: {before} to {now} KiB");
    }
    // Others write on, wherever their aprun is.
    for from in [0, 3, 2, 1] {
        quick(&cluster, from, 20_000);
    }
    assert!(slow.iter().all(|slow| slow.stands(&cluster)), "the slow ones go on");
    assert_eq!(all(), held, "the slow ones went on");
    for stopped in [&slow[2], &slow[4]] {
        kill(stopped.aprun.id() as i32, 18);
    }
    slow.into_iter().for_each(Slow::ends_well);
    cluster.wait_until_up();
}
