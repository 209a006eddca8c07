//! cpr -c and cpr -r as users type them, on real programs under real daemons.

use crate::mpis::fetched;
use crate::support::criu::criu;
use crate::support::hand::Hand;
use crate::support::*;
use psched::node::checkpoint::criu::Criu;
use std::ffi::OsString;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const CONFIG: &str = "nodes:\n  - { nids: 0-3, processors: 1, flavors: [su, os, ap] }\n";

/// Daemons of root's that know this CRIU, and a folder for checkpoints.
pub struct Rig {
    pub hand: Hand,
    pub work: tempfile::TempDir,
    /// The nodes of each apinit.
    apinits: Vec<String>,
}

impl Rig {
    fn new(criu: &Criu) -> Rig {
        Rig::with(criu, CONFIG)
    }

    pub fn with(criu: &Criu, config: &str) -> Rig {
        Rig::of(criu, config, &["0-3"])
    }

    /// With an apinit for each of these lists.
    pub fn of(criu: &Criu, config: &str, apinits: &[&str]) -> Rig {
        let named = format!("PSCHED_CRIU={}", criu.program().display());
        let prefix = ["env", &named, "PSCHED_LOG=info"].map(Into::into);
        let started: Vec<_> = apinits.iter().map(|nids| (*nids, None)).collect();
        Rig::by(Hand::start_by(&prefix, config, &started), apinits)
    }

    /// With an apinit for NID 0 that takes memory out by checkpoints, in this folder.
    pub fn that_rolls_out(criu: &Criu, config: &str, folder: &Path) -> Rig {
        Rig::given(criu, config, &format!("PSCHED_ROLL_OUT={}", folder.display()))
    }

    /// One whose daemons have this in their environment.
    pub fn given(criu: &Criu, config: &str, variable: &str) -> Rig {
        let named = format!("PSCHED_CRIU={}", criu.program().display());
        let prefix = ["env", &named, variable, "PSCHED_LOG=info"].map(Into::into);
        Rig::by(Hand::start_by(&prefix, config, &[("0", None)]), &["0"])
    }

    fn by(hand: Hand, apinits: &[&str]) -> Rig {
        let apinits = apinits.iter().map(|nids| (*nids).to_owned()).collect();
        Rig { hand, work: tempfile::tempdir().expect("a folder"), apinits }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    pub fn command(&self, name: &str, line: &str) -> Command {
        self.prepared(self.hand.command(name, words(line)))
    }

    fn prepared(&self, mut command: Command) -> Command {
        command.env("PSCHED_SOCKET", self.hand.socket()).stdin(Stdio::null());
        command.env("PSCHED_CHECKPOINT_KEY", self.hand.folder().join("state/checkpoint.key"));
        command.current_dir(self.work.path());
        command
    }

    #[track_caller]
    pub fn cpr(&self, line: &str) -> Run {
        run(&mut self.command("cpr", line))
    }

    /// The same; what it writes goes to this file.
    pub fn writes_to(&self, name: &str, line: &str, out: &str) -> Command {
        let program = binaries().join(name);
        let script =
            format!("exec {} {line} \"$@\" > {}", program.display(), self.at(out).display());
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]);
        self.prepared(command)
    }

    /// A program that counts up to a number, and what it has written ends up in this file.
    pub fn counts(&self, to: u32, out: &str) -> Running {
        let script = format!(
            "i=0; while [ $i -lt {to} ]; do i=$((i+1)); echo $i; sleep 0.0172; done; exit 3"
        );
        Running::start(self.writes_to("aprun", "-q sh -c", out).arg(script))
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    /// Until it has counted further.
    #[track_caller]
    pub fn goes_on(&self, name: &str) {
        let before = self.read(name).len();
        eventually(BOUND, "it counts", || self.read(name).len() > before);
    }

    #[track_caller]
    pub fn running(&self) -> u64 {
        self.hand.wait_for("running", 1)[0]
    }

    /// Of a restart that was disturbed: whether it counts on, for more bytes than were on their way; else it has
    /// said why not. Then it is ended, and nothing of it is left.
    #[track_caller]
    pub fn runs_on(&self, mut cpr: Running, out: &str, more: usize, what: &str) -> bool {
        let before = self.read(out).len();
        eventually(BOUND, "it goes on or has ended", || {
            self.read(out).len() > before + more || !cpr.runs()
        });
        let runs = cpr.runs();
        if runs {
            cpr.signal(15);
        }
        let status = cpr.wait(BOUND).status;
        assert!([125, 128 + 9, 128 + 15].contains(&status), "{what}: {status}");
        self.hand.wait_until_up();
        assert!(self.hand.wait_for("running", 0).is_empty());
        runs
    }

    /// The checkpoint can be restarted, once more.
    #[track_caller]
    pub fn can_be_restarted(&self, checkpoint: &str) {
        let rest = Running::start(&mut self.writes_to("cpr", &format!("-r {checkpoint}"), "last"));
        self.goes_on("last");
        rest.signal(15);
        rest.wait(BOUND).expect(128 + 15);
    }

    /// Everything of psched's ends, as when the machine is shut down, and is started again.
    pub fn restart_all(&mut self) {
        for nids in &self.apinits {
            self.hand.stop_apinit(nids);
        }
        self.hand.stop_psched();
        self.hand.start_psched();
        self.apinits.iter().for_each(|nids| self.hand.start_apinit(nids, None));
        self.hand.wait_until_up();
    }
}

/// The numbers up to this one, a line each.
pub fn numbers(to: u32) -> String {
    (1..=to).map(|n| format!("{n}\n")).collect()
}

/// It goes on as if nothing had been: nothing that it writes is missing or doubled.
#[test]
fn a_program_is_checkpointed_again_and_again_and_notices_nothing() {
    let test = "checkpoint::whole::a_program_is_checkpointed_again_and_again_and_notices_nothing";
    let Some(criu) = criu(test) else { return };
    let rig = Rig::new(&criu);
    let aprun = rig.counts(300, "out");
    let apid = rig.running();
    for _ in 0..3 {
        rig.goes_on("out");
        let done = rig.cpr(&format!("-c tonight -f -p {apid}")).expect(0).out();
        assert!(done.starts_with(&format!("application {apid} is checkpointed in tonight: ")));
        assert!(done.ends_with(" s; it goes on\n"), "{done}");
    }
    let told = rig.cpr("-i tonight").expect(0).out();
    assert!(told.contains("tonight    yes   verified running"), "{told}");
    rig.cpr(&format!("-c tonight -p {apid}")).expect(1).says("-f replaces an older checkpoint");
    aprun.wait(BOUND).expect(3);
    assert_eq!(rig.read("out"), numbers(300));
    rig.cpr(&format!("-c later -p {apid}")).expect(1).says("has ended");
    rig.cpr("-c later -p 77").expect(1).says("there is no application 77");
    assert!(!rig.at("later").exists());
}

/// A process that has vforked can't be stopped by anybody before its child has become another program.
#[test]
fn one_that_forks_all_the_time_is_checkpointed() {
    let test = "checkpoint::whole::one_that_forks_all_the_time_is_checkpointed";
    let Some(criu) = criu(test) else { return };
    let rig = Rig::new(&criu);
    let script = "while ! [ -e stop ]; do /bin/true; echo x >> out; done; exit 3";
    let line = words("-n2 -N1").chain(["sh", "-c", script]);
    let aprun = Running::start(rig.hand.command("aprun", line).current_dir(rig.work.path()));
    let apid = rig.running();
    for _ in 0..6 {
        rig.goes_on("out");
        rig.cpr(&format!("-c often -f -p {apid}")).expect(0);
    }
    std::fs::write(rig.at("stop"), "").expect("written");
    aprun.wait(BOUND).expect(3);
}

/// Whoever makes it is killed: the application goes on, also one that was to end.
#[test]
fn a_cpr_that_is_killed_leaves_the_application_as_it_was() {
    let test = "checkpoint::whole::a_cpr_that_is_killed_leaves_the_application_as_it_was";
    let Some(criu) = criu(test) else { return };
    let rig = Rig::new(&criu);
    let aprun = rig.counts(5_000, "out");
    let apid = rig.running();
    for (n, signal) in [9, 2, 9, 15, 9, 2, 9, 9].into_iter().enumerate() {
        rig.goes_on("out");
        let cpr = Running::start(&mut rig.command("cpr", &format!("-c x{n} -k -p {apid}")));
        // From before the question to after the dump.
        std::thread::sleep(Duration::from_millis(25 * n as u64));
        cpr.signal(signal);
        let ended = cpr.wait(BOUND);
        if ended.status == 0 {
            // It was faster: the application has ended.
            aprun.wait(BOUND).expect(137);
            assert!(rig.at(&format!("x{n}")).join("manifest.json").is_file());
            return;
        }
        if rig.at(&format!("x{n}")).join("manifest.json").is_file() {
            // It was killed so late that the checkpoint had its name: the application goes on, or has ended.
            let before = rig.read("out").len();
            let mut over = false;
            eventually(BOUND, "it counts, or has ended", || {
                over = rig.hand.apstat("")["applications"].as_array().is_some_and(Vec::is_empty);
                over || rig.read("out").len() > before
            });
            if over {
                aprun.wait(BOUND).expect(137);
                return;
            }
            continue;
        }
        if signal != 9 {
            // (It may not even have asked.)
            if ended.status != 128 + signal {
                ended.expect(1).says("no checkpoint was made, and the application goes on");
            }
            let left = std::fs::read_dir(rig.work.path()).expect("ours").flatten();
            let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
            let partial = format!(".x{n}.partial");
            let there = |name: &&OsString| name.to_string_lossy().starts_with(&partial);
            assert!(!left.iter().any(|name| there(&name)), "{left:?}");
        }
    }
    rig.goes_on("out");
    run(&mut rig.command("apkill", &format!("-9 {apid}"))).expect(0);
    aprun.wait(BOUND);
}

/// apinit is killed in the midst of a dump: the next one lets the application go on.
#[test]
fn an_apinit_that_is_killed_leaves_nobody_frozen() {
    let test = "checkpoint::whole::an_apinit_that_is_killed_leaves_nobody_frozen";
    let Some(criu) = criu(test) else { return };
    let mut rig = Rig::new(&criu);
    let aprun = rig.counts(100_000, "out");
    let apid = rig.running();
    for n in 0..5 {
        rig.goes_on("out");
        let cpr = Running::start(&mut rig.command("cpr", &format!("-c x{n} -p {apid}")));
        let dumped = rig.hand.folder().join(format!("apps-0/{apid}.1/dumped"));
        let until = std::time::Instant::now() + Duration::from_secs(2);
        while !dumped.exists() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(15 * n));
        rig.hand.kill_apinit(0);
        cpr.wait(BOUND);
        rig.hand.start_apinit("0-3", None);
        rig.goes_on("out");
        eventually(BOUND, "nothing is left to be done", || !dumped.exists());
    }
    rig.cpr(&format!("-c last -p {apid}")).expect(0);
    run(&mut rig.command("apkill", &format!("-9 {apid}"))).expect(0);
    aprun.wait(BOUND).expect(137);
}

/// What the issue of checkpoints ends with: a real MPI program is taken off, everything is stopped and
/// started again, it comes back and ends with the right answer.
#[test]
fn an_mpi_program_outlives_psched_and_all_its_nodes() {
    let test = "checkpoint::whole::an_mpi_program_outlives_psched_and_all_its_nodes";
    let Some(criu) = criu(test) else { return };
    let Some(laps) = mpi::program(test, "laps") else { return };
    let mut rig = Rig::new(&criu);
    let goal = rig.at("goal");
    let laps = laps.to_str().expect("text");
    let line = format!("-n 2 {laps} {}", goal.display());
    let mut command = rig.writes_to("aprun", &line, "first");
    command.env("UCX_TLS", "posix,self");
    let aprun = Running::start(&mut command);
    let apid = rig.running();
    eventually(BOUND, "it runs", || rig.read("first").contains("lap 500\n"));
    let done = rig.cpr(&format!("-c tonight -k -p {apid}")).expect(0).out();
    assert!(done.ends_with("; it was ended\n"), "{done}");
    aprun.wait(BOUND).expect(137).says("checkpointed and ended by root (cpr -k)");

    rig.restart_all();
    let cpr = Running::start(&mut rig.writes_to("cpr", "-r tonight", "second"));
    let again = rig.running();
    assert_ne!(again, apid);
    eventually(BOUND, "it runs on", || rig.read("second").contains("lap "));
    let events = run(&mut rig.command("apstat", &format!("--events {again}"))).expect(0).out();
    for step in ["created", "managed", "placed", "recovering", "unlocked"] {
        assert!(events.contains(step), "{step} is not in\n{events}");
    }
    std::fs::write(&goal, "").expect("written");
    cpr.wait(BOUND).expect(0);
    let (first, second) = (rig.read("first"), rig.read("second"));
    assert!(second.ends_with("ended together, 0 words wrong\n"), "{second}");
    // It went on where it was.
    let lap = |line: &str| line.strip_prefix("lap ").and_then(|n| n.parse::<u64>().ok());
    let last = first.lines().filter_map(lap).max().expect("some");
    assert_eq!(second.lines().find_map(lap), Some(last + 500), "{first}{second}");
    // The checkpoint is as it was, and can be used again.
    std::fs::remove_file(&goal).expect("removed");
    let cpr = Running::start(&mut rig.command("cpr", "-r tonight --output third"));
    eventually(BOUND, "it runs on", || rig.read("third").contains("lap "));
    std::fs::write(&goal, "").expect("written");
    cpr.wait(BOUND).expect(0);
    assert_eq!(rig.read("third").lines().find_map(lap), Some(last + 500));
}

/// By a port of 127.0.0.1 too, and by PMIx: the connections of its PEs lead to what is saved with them.
#[test]
fn mpi_programs_are_restarted_whose_pes_have_met_over_tcp() {
    let test = "checkpoint::whole::mpi_programs_are_restarted_whose_pes_have_met_over_tcp";
    let Some(criu) = criu(test) else { return };
    // (A file of its own for each of them.)
    let open = mpi::open(&format!("{test}-open"), "laps");
    let (Some(mpich), Some(open)) = (mpi::program(test, "laps"), open) else { return };
    let rig = Rig::new(&criu);
    for (name, options, laps) in [("port", "--pmi=port", &mpich), ("pmix", "", &open)] {
        let (goal, first, second) =
            (rig.at(&format!("{name}.goal")), format!("{name}.1"), format!("{name}.2"));
        let line = format!("-n 2 {options} {} {}", laps.display(), goal.display());
        let mut command = rig.writes_to("aprun", &line, &first);
        let aprun = Running::start(command.env("UCX_TLS", "posix,self"));
        let apid = rig.running();
        eventually(BOUND, "it runs", || rig.read(&first).contains("lap 500\n"));
        rig.cpr(&format!("-c {name} -k -p {apid}")).expect(0);
        aprun.wait(BOUND).expect(137);
        // Another one has come between.
        let beside = format!("-n 2 {options} {} {}", laps.display(), rig.at("never").display());
        let beside =
            Running::start(rig.writes_to("aprun", &beside, "beside").env("UCX_TLS", "posix,self"));
        eventually(BOUND, "it runs", || rig.read("beside").contains("lap "));
        let cpr = Running::start(&mut rig.writes_to("cpr", &format!("-r {name}"), &second));
        eventually(BOUND, "it runs on", || rig.read(&second).contains("lap "));
        std::fs::write(&goal, "").expect("written");
        cpr.wait(BOUND).expect(0);
        let text = rig.read(&second);
        assert!(text.ends_with("ended together, 0 words wrong\n"), "{name}: {text}");
        let other = rig.hand.wait_for("running", 1)[0];
        run(&mut rig.command("apkill", &format!("-9 {other}"))).expect(0);
        beside.wait(BOUND).expect(137);
    }
}

/// What PEs have spawned is saved and comes back with them.
#[test]
fn an_mpi_program_is_restarted_that_has_spawned() {
    let test = "checkpoint::whole::an_mpi_program_is_restarted_that_has_spawned";
    let Some(criu) = criu(test) else { return };
    let Some(library) = fetched(test, "mpich-4.3.2").map(|folder| folder.join("lib")) else {
        return;
    };
    let Some(laps) = mpi::of_abi(test, "laps", &library.join("libmpi.so.12")) else { return };
    let rig = Rig::with(&criu, "nodes:\n  - { nids: 0-3, processors: 2, flavors: [su, os, ap] }\n");
    let goal = rig.at("goal");
    let line = format!("-n 1 -d 2 {} {} 1", laps.display(), goal.display());
    let mut command = rig.writes_to("aprun", &line, "first");
    let aprun = Running::start(command.env("LD_LIBRARY_PATH", library));
    let apid = rig.running();
    eventually(BOUND, "it runs", || rig.read("first").contains("lap 500\n"));
    rig.cpr(&format!("-c tonight -k -p {apid}")).expect(0);
    aprun.wait(BOUND).expect(137);
    let cpr = Running::start(&mut rig.writes_to("cpr", "-r tonight", "second"));
    eventually(BOUND, "it runs on", || rig.read("second").contains("lap "));
    std::fs::write(&goal, "").expect("written");
    cpr.wait(BOUND).expect(0);
    let text = rig.read("second");
    assert!(text.ends_with("ended together, 0 words wrong\n"), "{text}");
}

/// Any user of a host can connect to a port of an application, and that does not prevent a checkpoint. A connection of
/// the application's own is not lost.
#[test]
fn a_connection_that_waits_to_be_accepted_is_left_out_if_it_is_a_strangers() {
    let test = "checkpoint::whole::a_connection_that_waits_to_be_accepted_is_left_out_if_it_is_a_strangers";
    let Some(criu) = criu(test) else { return };
    let rig = Rig::new(&criu);
    let own = "c = socket.create_connection(s.getsockname())";
    let half = format!("{own}; c.sendall(b'1'); c.shutdown(socket.SHUT_WR)");
    for (name, does) in [("strangers", "pass"), ("own", own), ("half", &half)] {
        let port = rig.at(&format!("{name}.port"));
        let script = format!(
            "import socket, time, os\n\
             s = socket.create_server(('127.0.0.1', 0))\n\
             {}\n\
             open('{1}.new', 'w').write(str(s.getsockname()[1])); os.rename('{1}.new', '{1}')\n\
             time.sleep(1000.385)",
            does,
            port.display()
        );
        let mut command = rig.writes_to("aprun", "-q python3 -B -c", &format!("{name}.out"));
        let aprun = Running::start(command.arg(&script));
        let apid = rig.running();
        eventually(BOUND, "it listens", || port.exists());
        let number: u16 = std::fs::read_to_string(&port).expect("read").parse().expect("a port");
        let stranger = TcpStream::connect(("127.0.0.1", number)).expect("connected");
        let cpr = rig.cpr(&format!("-c {name} -g -p {apid}"));
        match name {
            "strangers" => drop(cpr.expect(0)),
            _ => drop(cpr.expect(1).says("has not been accepted yet: try again")),
        }
        drop(stranger);
        run(&mut rig.command("apkill", &format!("-9 {apid}"))).expect(0);
        aprun.wait(BOUND).expect(137);
    }
}

/// What it writes before and after is all there, once; its stdin goes on, and its status is its own.
#[test]
fn output_and_status_go_on_where_they_were() {
    let test = "checkpoint::whole::output_and_status_go_on_where_they_were";
    let Some(criu) = criu(test) else { return };
    let rig = Rig::new(&criu);
    let aprun = rig.counts(120, "first");
    let apid = rig.running();
    rig.goes_on("first");
    rig.cpr(&format!("-c tonight -k -p {apid}")).expect(0);
    aprun.wait(BOUND).expect(137);
    let first = rig.read("first");
    let rest = rig.cpr("-r tonight").expect(3).out();
    assert_eq!(format!("{first}{rest}"), numbers(120));
    // On other nodes, with its turns.
    let wide = Running::start(&mut rig.command("aprun", "-q -n 1 sleep 1000.381"));
    rig.hand.wait_for("running", 1);
    let rest = rig.cpr("-r tonight").expect(3).out();
    assert_eq!(format!("{first}{rest}"), numbers(120));
    // It is dumped again, from where it was restored.
    let cpr = Running::start(&mut rig.writes_to("cpr", "-r tonight", "second"));
    let again = *rig.hand.wait_for("running", 2).last().expect("two");
    rig.goes_on("second");
    rig.cpr(&format!("-c later -k -p {again}")).expect(0);
    cpr.wait(BOUND).expect(137);
    let rest = rig.cpr("-r later").expect(3).out();
    assert_eq!(format!("{first}{}{rest}", rig.read("second")), numbers(120));
    wide.signal(9);
    wide.wait(BOUND);
}

/// In its PID namespace it has another number than on its host, which is what a debugger there wants.
#[test]
fn a_restored_process_is_known_by_the_number_of_its_host() {
    let test = "checkpoint::whole::a_restored_process_is_known_by_the_number_of_its_host";
    let Some(criu) = criu(test) else { return };
    let mut rig = Rig::new(&criu);
    let script = "echo $$; exec sleep 1000.382";
    let aprun = Running::start(rig.writes_to("aprun", "-q -n 2 sh -c", "first").arg(script));
    let apid = rig.running();
    eventually(BOUND, "both have said their numbers", || rig.read("first").lines().count() == 2);
    let pids = |apid: u64| -> Vec<u64> {
        let report = rig.hand.apstat(&format!("-A {apid} --pids"));
        let rows = report["processes"].as_array().expect("a list").iter();
        rows.filter_map(|row| row["pid"].as_u64()).collect()
    };
    let rank = |pid: &u64| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut all = environment.split(|byte| *byte == 0);
        all.find_map(|item| {
            String::from_utf8_lossy(item.strip_prefix(b"ALPS_APP_PE=")?).parse().ok()
        })
    };
    let mut said: Vec<u64> = pids(apid);
    assert_eq!(said.iter().map(rank).collect::<Vec<Option<u32>>>(), [Some(0), Some(1)]);
    said.sort_unstable();
    let mut own: Vec<u64> = rig.read("first").lines().filter_map(|l| l.parse().ok()).collect();
    own.sort_unstable();
    assert_eq!(said, own);
    rig.cpr(&format!("-c tonight -k -p {apid}")).expect(0);
    aprun.wait(BOUND).expect(137);
    let cpr = Running::start(&mut rig.writes_to("cpr", "-r tonight", "second"));
    let again = rig.running();
    let restored = pids(again);
    assert_eq!(restored.iter().map(rank).collect::<Vec<Option<u32>>>(), [Some(0), Some(1)]);
    // The next apinit knows it too.
    rig.hand.stop_apinit("0-3");
    rig.hand.start_apinit("0-3", None);
    rig.hand.wait_until_seen();
    let report = || rig.hand.apstat(&format!("-A {again} --pids"));
    let found = |report: serde_json::Value| report["processes"][1]["pid"].as_u64();
    eventually(BOUND, "it is told again", || found(report()) == Some(restored[1]));
    run(&mut rig.command("apkill", &format!("-9 {again}"))).expect(0);
    cpr.wait(BOUND).expect(137);
}

/// One that waits for a place has no images; it comes back under its number, when that is free.
#[test]
fn a_posting_that_waits_is_checkpointed_as_it_was_posted() {
    let test = "checkpoint::whole::a_posting_that_waits_is_checkpointed_as_it_was_posted";
    if !is_root() {
        return skip(test, "the key of checkpoints is root's");
    }
    let prefix = ["env", "PSCHED_LOG=info"].map(Into::into);
    let hand = Hand::start_by(&prefix, CONFIG, &[("0-3", None)]);
    let rig = Rig::by(hand, &["0-3"]);
    let first = Running::start(&mut rig.command("aprun", "-q -F exclusive -n 4 sleep 1000.382"));
    rig.running();
    std::fs::create_dir(rig.at("below")).expect("made");
    let mut command = rig.command("aprun", "-q -n 2 sh -c");
    command.arg("echo $KEPT; pwd; exit 4").env("KEPT", "as it was");
    let aprun = Running::start(command.current_dir(rig.at("below")));
    let apid = rig.hand.wait_for("posted", 1)[0];
    let done = rig.cpr(&format!("-c waits -p {apid}")).expect(0).out();
    assert!(done.ends_with("as it was posted; it waits on\n"), "{done}");
    let done = rig.cpr(&format!("-c waits -f -k -p {apid}")).expect(0).out();
    assert!(done.ends_with("; it was ended\n"), "{done}");
    aprun.wait(BOUND).expect(137);
    first.signal(9);
    first.wait(BOUND);
    let again = rig.cpr("-r waits").expect(4);
    let below = rig.at("below").canonicalize().expect("there");
    let line = format!("{}\n", below.display());
    assert_eq!(again.out(), format!("as it was\nas it was\n{line}{line}").as_str().sorted(&again));
    let history = rig.hand.apstat("--history 5");
    assert!(format!("{history}").contains("echo $KEPT"), "{history}");
}

/// What each of two PEs writes may come in any order.
trait Sorted {
    fn sorted(&self, run: &Run) -> String;
}

impl Sorted for str {
    /// This text, if the lines are those of the output.
    fn sorted(&self, run: &Run) -> String {
        let mut expected: Vec<&str> = self.lines().collect();
        expected.sort_unstable();
        assert_eq!(run.sorted(), expected);
        run.out()
    }
}

/// Changed, of another user's, in use: nothing runs of it, and each says why.
#[test]
fn what_can_not_be_restarted() {
    let test = "checkpoint::whole::what_can_not_be_restarted";
    let Some(criu) = criu(test) else { return };
    let rig = Rig::new(&criu);
    let aprun = rig.counts(100_000, "first");
    let apid = rig.running();
    rig.cpr(&format!("-c tonight -k -p {apid}")).expect(0);
    aprun.wait(BOUND).expect(137);
    // Two at once.
    let cpr = Running::start(&mut rig.command("cpr", "-r tonight --output out"));
    rig.running();
    let files: Vec<PathBuf> = files_of(&rig.at("tonight"));
    assert!(files.len() > 5, "{files:?}");
    cpr.signal(15);
    cpr.wait(BOUND);
    eventually(BOUND, "nothing is left", || rig.hand.wait_for("running", 0).is_empty());
    // Each file, one byte of it.
    for file in &files {
        let whole = std::fs::read(file).expect("ours");
        if whole.is_empty() {
            continue;
        }
        let mut changed = whole.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        std::fs::write(file, &changed).expect("changed");
        let refused = rig.cpr("-r tonight").expect(125);
        let why = refused.stderr.clone();
        assert!(why.contains("damaged") || why.contains("can't be read"), "{file:?}: {why}");
        std::fs::write(file, &whole).expect("as it was");
    }
    // A link in the place of a file.
    let (file, aside) = (&files[0], rig.at("aside"));
    std::fs::rename(file, &aside).expect("moved");
    std::os::unix::fs::symlink(&aside, file).expect("linked");
    rig.cpr("-r tonight").expect(125).says("symbolic link");
    std::fs::remove_file(file).expect("removed");
    rig.cpr("-r tonight").expect(125).says("missing");
    std::fs::rename(&aside, file).expect("back");
    std::os::unix::fs::symlink(rig.at("tonight"), rig.at("link")).expect("linked");
    rig.cpr("-r link").expect(125).says("symbolic link");
    // As it was.
    let cpr = Running::start(&mut rig.command("cpr", "-r tonight --output out"));
    rig.running();
    rig.goes_on("out");
    cpr.signal(15);
    cpr.wait(BOUND).expect(143);
}

/// On a disk that is full, in a folder that is not one's own, and of somebody who does not stand still: there
/// is no checkpoint, and the application goes on.
#[test]
fn what_can_not_be_checkpointed_goes_on() {
    let test = "checkpoint::whole::what_can_not_be_checkpointed_goes_on";
    let Some(criu) = criu(test) else { return };
    let rig = Rig::new(&criu);
    let small = rig.at("small");
    std::fs::create_dir(&small).expect("made");
    let (flags, size) = (nix::mount::MsFlags::empty(), Some("size=100k"));
    if nix::mount::mount(Some("none"), &small, Some("tmpfs"), flags, size).is_err() {
        return skip(test, "no file system can be mounted");
    }
    let aprun = rig.counts(100_000, "out");
    let apid = rig.running();
    for end in ["", "-k"] {
        rig.goes_on("out");
        let run = rig.cpr(&format!("-c small/tonight {end} -p {apid}"));
        run.expect(1).says("No space left on device");
        let left: Vec<_> = std::fs::read_dir(&small).expect("ours").flatten().collect();
        assert!(left.is_empty(), "{left:?}");
        rig.goes_on("out");
    }
    nix::mount::umount2(&small, nix::mount::MntFlags::MNT_DETACH).expect("ours");
    rig.cpr(&format!("-c missing/tonight -p {apid}")).expect(1).says("No such file");
    // PEs that come and go while it is made, and one that stops itself.
    let script = "while :; do sh -c 'exit 0' & sh -c 'kill -STOP $$' & sleep 0.0271; \
                  kill -CONT $!; echo on; done";
    let mut command = rig.writes_to("aprun", "-q -n 2 sh -c", "many");
    let many = Running::start(command.arg(script));
    let second = *rig.hand.wait_for("running", 2).last().expect("two");
    for n in 0..6 {
        rig.goes_on("many");
        let run = rig.cpr(&format!("-c many{n} -p {second}"));
        // It may be caught in a moment of which CRIU can make nothing, and then that is said.
        assert!(run.status == 0 || run.stderr.contains("criu"), "{run:?}");
        rig.goes_on("many");
    }
    for (apid, running) in [(apid, aprun), (second, many)] {
        run(&mut rig.command("apkill", &format!("-9 {apid}"))).expect(0);
        running.wait(BOUND).expect(137);
    }
}

/// Whoever is killed while an application is restarted, at whatever moment: it runs on, or nothing of it is
/// there, and it can be restarted again.
#[test]
fn whoever_is_killed_meanwhile_it_is_restarted_or_undone() {
    let test = "checkpoint::whole::whoever_is_killed_meanwhile_it_is_restarted_or_undone";
    let Some(criu) = criu(test) else { return };
    let mut rig = Rig::new(&criu);
    let aprun = rig.counts(100_000, "first");
    let apid = rig.running();
    rig.goes_on("first");
    rig.cpr(&format!("-c tonight -k -p {apid}")).expect(0);
    aprun.wait(BOUND).expect(137);
    let mut ran_on = 0;
    for who in ["cpr", "psched", "apinit", "apshepherd"] {
        for step in 0..5 {
            let out = format!("{who}{step}");
            let cpr = Running::start(&mut rig.writes_to("cpr", "-r tonight", &out));
            std::thread::sleep(Duration::from_millis(40 * step));
            match who {
                "cpr" => cpr.signal(9),
                "psched" => {
                    rig.hand.kill_psched();
                    rig.hand.start_psched();
                }
                "apinit" => {
                    rig.hand.kill_apinit(0);
                    rig.hand.start_apinit("0-3", None);
                }
                _ => {
                    let apps = rig.hand.folder().join("apps-0");
                    let apps = std::fs::read_dir(apps).expect("there").flatten();
                    for app in apps {
                        let pid = std::fs::read_to_string(app.path().join("shepherd"));
                        let pid = pid.ok().and_then(|t| t.split(' ').next()?.parse().ok());
                        if let Some(pid) = pid {
                            kill(pid, 9);
                        }
                    }
                }
            }
            ran_on += usize::from(rig.runs_on(cpr, &out, 50, &format!("{who} {step}")));
        }
    }
    println!("{ran_on} of 20 ran on");
    rig.can_be_restarted("tonight");
}

/// All files of a checkpoint.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("ours").flatten() {
        match entry.path().is_dir() {
            true => all.extend(files_of(&entry.path())),
            false => all.push(entry.path()),
        }
    }
    all.sort();
    all
}
