//! Applications that go on from a checkpoint when a host of a cluster is lost: `aprun --restart-from`.

use crate::support::hosts::{Cluster, may_be};
use crate::support::*;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

/// Says from where it goes on, and waits for the file that ends it, with the status in there.
const SCRIPT: &str = "cd $1; n=0; [ -e saved ] && n=$(cat saved); echo from $n on $(hostname); : > up.$n; \
                      until [ -s end ]; do sleep 0.01; done; exit $(cat end)";
/// It has got so far.
const SAVES: &str = "--checkpoint=echo $(($(cat SAVED 2>/dev/null || echo 0) + 1)) > SAVED";

struct Rig {
    cluster: Cluster,
}

/// Has an application end.
type End = dyn Fn(&Rig, &Running, u64);

impl Rig {
    fn new(hosts: usize) -> Rig {
        Rig { cluster: Cluster::start(hosts, 1) }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.cluster.folder().join(name)
    }

    fn dir(&self) -> String {
        self.at("tonight").display().to_string()
    }

    /// An aprun of h0 for one PE of this script on these nodes.
    fn command(&self, options: &str, script: &str) -> std::process::Command {
        let (dir, folder) = (self.dir(), self.cluster.folder().display().to_string());
        let saves = SAVES.replace("SAVED", &self.at("saved").display().to_string());
        let rest = ["--restart-from", &dir, &saves, "sh", "-c", script, "sh", &folder];
        self.cluster.command(0, "aprun", words(options).chain(rest))
    }

    fn begun(&self, options: &str) -> (Running, u64) {
        let aprun = Running::start(&mut self.command(options, SCRIPT));
        self.wait_until_up(0);
        (aprun, self.cluster.wait_for("running", 1)[0])
    }

    /// The same with a time limit, and saved before it is over: a busy machine may need a longer one.
    fn begun_with_a_limit(&self) -> (Running, u64) {
        for seconds in [3, 10, 30] {
            let (aprun, apid) = self.begun(&format!("--time-limit {seconds} -L 1"));
            let line = format!("-c {} -f -g -p {apid}", self.dir());
            if run(&mut self.cluster.command(0, "cpr", words(&line))).status == 0 {
                return (aprun, apid);
            }
            aprun.wait(BOUND).expect(124);
            let _ = std::fs::remove_file(self.at("up.0"));
        }
        panic!("no checkpoint within 30 s");
    }

    #[track_caller]
    fn wait_until_up(&self, from: u32) {
        eventually(BOUND, &format!("it runs from {from}"), || {
            self.at(&format!("up.{from}")).exists()
        });
    }

    #[track_caller]
    fn saves(&self, apid: u64) {
        let line = format!("-c {} -f -g -p {apid}", self.dir());
        run(&mut self.cluster.command(0, "cpr", words(&line))).expect(0);
    }

    /// (Until psched has seen that the host's connection is closed, none of it is down.)
    #[track_caller]
    fn psmgr(&self, line: &str) {
        let psmgr = || run(&mut self.cluster.command(0, "psmgr", words(line)));
        let mut last = psmgr();
        eventually(BOUND, "psched has seen it", || {
            let early = last.stderr.contains("connected, so not down");
            if early {
                last = psmgr();
            }
            !early
        });
        last.expect(0);
    }

    /// All processes of a host are gone at once.
    fn dies(&mut self, host: usize) {
        self.cluster.loses_power(host);
    }

    fn ends_with(&self, status: u8) {
        std::fs::write(self.at("end"), status.to_string()).expect("written");
    }

    /// It is over, and none of it is left.
    #[track_caller]
    fn nothing_runs(&self) {
        eventually(BOUND, "no application is on record", || {
            self.cluster.apstat("")["applications"].as_array().expect("a list").is_empty()
        });
    }
}

/// Its host is declared down: it goes on on another one, with the same stdin and output.
#[test]
fn a_lost_host_is_declared_down() {
    if !may_be("host_restarts::a_lost_host_is_declared_down") {
        return;
    }
    let mut rig = Rig::new(3);
    let script = SCRIPT.replace("from $n", "$(head -n 1) from $n");
    let mut command = rig.command("-L 1-2", &script);
    let mut aprun = Running::start(command.stdin(Stdio::piped()));
    let mut stdin = aprun.child.stdin.take().expect("piped");
    stdin.write_all(b"one\n").expect("written");
    rig.wait_until_up(0);
    let apid = rig.cluster.wait_for("running", 1)[0];
    rig.saves(apid);
    rig.dies(1);
    rig.psmgr("down 1 no power");
    // (What aprun reads before is the first one's.)
    eventually(BOUND, "another application runs", || {
        let all = rig.cluster.apstat("-a");
        let rows = all["applications"].as_array().expect("a list");
        rows.iter().any(|row| row["state"] == "running" && row["apid"] == apid + 1)
    });
    stdin.write_all(b"two\n").expect("written");
    rig.wait_until_up(1);
    rig.ends_with(0);
    let run = aprun.wait(BOUND).expect(0);
    assert_eq!(run.out(), "one from 0 on h1\ntwo from 1 on h2\n", "{}", run.stderr);
    let dir = rig.dir();
    let run = run
        .says(&format!(
            "aprun: application {apid} was lost with NID 1 of host h1: it was declared down by root: no power"
        ))
        .says(&format!("; it is restarted from its checkpoint {dir}, made 20"))
        .says(&format!("aprun: application {apid} is restarted as {}\n", apid + 1));
    // The lost one has no closing lines, and the other one ended well.
    assert!(!run.stderr.contains(&format!("Application {apid} ")), "{}", run.stderr);
    assert!(!run.stderr.contains(" took "), "{}", run.stderr);
    rig.nothing_runs();
}

/// Its host comes back with another boot. With -q one line tells; a file of output is written on.
#[test]
fn a_lost_host_comes_back_with_another_boot() {
    if !may_be("host_restarts::a_lost_host_comes_back_with_another_boot") {
        return;
    }
    let mut rig = Rig::new(3);
    let out = rig.at("out").display().to_string();
    let (aprun, apid) = rig.begun(&format!("-q -L 1-2 --output {out}"));
    rig.saves(apid);
    rig.psmgr("drain 1 it is loud");
    rig.dies(1);
    rig.cluster.boots_anew(1);
    rig.cluster.start_apinit(1, 1);
    rig.wait_until_up(1);
    rig.ends_with(3);
    let run = aprun.wait(BOUND).expect(3);
    assert_eq!(run.out(), "");
    let written = std::fs::read_to_string(&out).expect("made");
    assert_eq!(written, "from 0 on h1\nfrom 1 on h2\n");
    // (That its apinit is silent is said, too.)
    let told: Vec<&str> = run
        .stderr
        .lines()
        .filter(|line| line.to_lowercase().contains("application 1 was"))
        .collect();
    assert_eq!(told.len(), 1, "{}", run.stderr);
    let why = "lost with NID 1 of host h1: its host was restarted; it is restarted from";
    assert!(told[0].contains(why), "{told:?}");
    for closing in ["is restarted as", "Application ", "took"] {
        assert!(!run.stderr.contains(closing), "{}", run.stderr);
    }
    rig.nothing_runs();
}

#[test]
fn without_a_checkpoint_a_lost_host_is_an_end() {
    if !may_be("host_restarts::without_a_checkpoint_a_lost_host_is_an_end") {
        return;
    }
    let mut rig = Rig::new(3);
    let (aprun, apid) = rig.begun("-L 1-2");
    rig.dies(1);
    rig.psmgr("down 1 no power");
    let (run, dir) = (aprun.wait(BOUND).expect(125), rig.dir());
    let run = run
        .says("the node (host h1) lost the application: it was declared down by root: no power")
        .says(&format!(
            "aprun: application {apid} is not restarted: {dir}: there is no such folder\n"
        ));
    assert_eq!(run.out(), "from 0 on h1\n");
    // One of another application, and one that is not whole.
    std::fs::remove_file(rig.at("up.0")).expect("there");
    let (other, first) = rig.begun("-L 2");
    rig.saves(first);
    rig.ends_with(0);
    other.wait(BOUND).expect(0);
    for name in ["end", "saved", "up.0"] {
        std::fs::remove_file(rig.at(name)).expect("there");
    }
    let (aprun, apid) = rig.begun("-L 2");
    rig.dies(2);
    rig.psmgr("down 2 no power");
    let of = format!("the checkpoint is of application {first}, not of application {apid}\n");
    aprun.wait(BOUND).expect(125).says(&of);
    rig.nothing_runs();
}

/// What its program, its user or a limit has ended stays ended, however whole the checkpoint.
#[test]
fn what_has_not_lost_a_host_is_not_restarted() {
    if !may_be("host_restarts::what_has_not_lost_a_host_is_not_restarted") {
        return;
    }
    let mut rig = Rig::new(2);
    let ends: [(i32, &End); 4] = [
        (3, &|rig, _, _| rig.ends_with(3)),
        (137, &|rig, _, apid| {
            let line = format!("-9 {apid}");
            run(&mut rig.cluster.command(0, "apkill", words(&line))).expect(0);
        }),
        (143, &|_, aprun, _| aprun.signal(15)),
        (124, &|_, _, _| {}),
    ];
    for (status, end) in ends {
        for name in ["end", "saved", "up.0"] {
            // An Err: there is none.
            let _ = std::fs::remove_file(rig.at(name));
        }
        let (aprun, apid) = match status {
            124 => rig.begun_with_a_limit(),
            _ => rig.begun("-L 1"),
        };
        if status != 124 {
            rig.saves(apid);
        }
        end(&rig, &aprun, apid);
        let run = aprun.wait(BOUND).expect(status);
        assert!(!run.stderr.contains("restarted"), "{}", run.stderr);
        rig.nothing_runs();
    }
    // Its user has given it up before its host was declared down.
    let _ = std::fs::remove_file(rig.at("up.0"));
    let _ = std::fs::remove_file(rig.at("saved"));
    let (aprun, apid) = rig.begun("-L 1");
    rig.saves(apid);
    rig.dies(1);
    aprun.signal(2);
    eventually(BOUND, "its node is suspect", || rig.cluster.states()[1] == "suspect");
    rig.psmgr("down 1 no power");
    let run = aprun.wait(BOUND);
    assert!(run.status == 125 || run.status == 130, "{run:?}");
    assert!(!run.stderr.contains("it is restarted"), "{}", run.stderr);
    rig.nothing_runs();
}

/// A second loss soon after the first: only from a checkpoint that was made in between.
#[test]
fn the_same_checkpoint_is_not_used_twice_in_a_row() {
    if !may_be("host_restarts::the_same_checkpoint_is_not_used_twice_in_a_row") {
        return;
    }
    let mut rig = Rig::new(4);
    let (aprun, first) = rig.begun("-L 1-3");
    rig.saves(first);
    rig.dies(1);
    rig.psmgr("down 1 no power");
    rig.wait_until_up(1);
    let second = rig.cluster.wait_for("running", 1)[0];
    rig.saves(second);
    rig.dies(2);
    rig.psmgr("down 2 no power");
    rig.wait_until_up(2);
    let third = rig.cluster.wait_for("running", 1)[0];
    rig.dies(3);
    rig.psmgr("down 3 no power");
    let run = aprun.wait(BOUND).expect(125);
    assert_eq!(run.out(), "from 0 on h1\nfrom 1 on h2\nfrom 2 on h3\n", "{}", run.stderr);
    let dir = rig.dir();
    run.says(&format!(
        "aprun: application {third} is not restarted: {dir}: application {third} was restarted from this \
         checkpoint, and ran for less than 1m before it was lost, too; cpr -r restarts it once more"
    ));
    rig.nothing_runs();
}

/// What can't be the folder of a checkpoint is said before anything is posted.
#[test]
fn a_folder_that_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().expect("made");
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("file"), "").expect("written");
    let refused = |dir: &str, words: &str| {
        let mut aprun = std::process::Command::new(binaries().join("aprun"));
        aprun.args(["--restart-from", dir, "true"]).env("PSCHED_SOCKET", at("none"));
        run(&mut aprun).expect(125).says(&format!("aprun: --restart-from: {dir}: ")).says(words);
    };
    refused(&at("file"), "a checkpoint is a folder, and file is ");
    refused(&at("nope/tonight"), "No such file or directory");
    refused("/", "a checkpoint is a folder in another one");
    refused(&at(".tonight.partial-0123456789abcdef"), "the name of an unfinished checkpoint");
    refused("/proc", "a file system is mounted there");
    if is_root() {
        std::fs::create_dir(at("anna")).expect("made");
        std::os::unix::fs::chown(at("anna"), Some(users::ANNA.uid), None).expect("hers");
        let whose = format!("belongs to user {}, and you are user 0", users::ANNA.uid);
        refused(&at("anna"), &whose);
    }
}

/// Images are made of applications on one host: of others cpr says so, and stops nothing. A program that saves itself is
/// saved from any host, on any number of hosts.
#[test]
fn cpr_on_another_host_than_the_application() {
    if !may_be("host_restarts::cpr_on_another_host_than_the_application") {
        return;
    }
    let rig = Rig::new(3);
    let cpr = |host: usize, line: &str| run(&mut rig.cluster.command(host, "cpr", words(line)));
    let dir = rig.dir();
    let sleeps = |options: &str| {
        let words = words(options).chain(["sleep", "1000"]);
        Running::start(&mut rig.cluster.command(0, "aprun", words))
    };
    // (Of one on one host: host_images.)
    let aprun = sleeps("-q -n 2 -N 1 -L 1-2");
    let apid = rig.cluster.wait_for("running", 1)[0];
    let said = cpr(1, &format!("-c {dir} -k -p {apid}"));
    let why = "runs on several hosts (h1, h2), and images of processes";
    said.expect(1).says(&format!("cpr: application {apid} ")).says(why);
    assert!(!rig.at("tonight").exists());
    assert_eq!(rig.cluster.wait_for("running", 1), [apid]);
    aprun.signal(15);
    aprun.wait(BOUND).expect(143);
    rig.nothing_runs();
    let saves = "trap 'exit 0' USR1; : > $1/up.$ALPS_APP_PE; while :; do sleep 0.01; done";
    let folder = rig.cluster.folder().display().to_string();
    let line = words("-q -n 2 -N 1 -L 1-2 --checkpoint USR1 sh -c");
    let line = line.chain([saves, "sh", &folder]);
    let aprun = Running::start(&mut rig.cluster.command(0, "aprun", line));
    rig.wait_until_up(0);
    rig.wait_until_up(1);
    let apid = rig.cluster.wait_for("running", 1)[0];
    cpr(2, &format!("-c {dir} -p {apid}")).expect(0);
    aprun.wait(BOUND).expect(0);
    for pe in ["up.0", "up.1"] {
        std::fs::remove_file(rig.at(pe)).expect("there");
    }
    let again = Running::start(&mut rig.cluster.command(1, "cpr", ["-r", &dir]));
    rig.wait_until_up(0);
    rig.wait_until_up(1);
    again.signal(15);
    again.wait(BOUND).expect(143);
    rig.nothing_runs();
}
