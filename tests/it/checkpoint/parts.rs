//! Checkpoints of applications that are on nodes of several apinits, by real daemons and a real CRIU.

use super::whole::Rig;
use crate::support::criu::criu;
use crate::support::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// A place for three parts of two nodes each.
const CONFIG: &str = "nodes:\n  - { nids: 0-5, processors: 1, flavors: [su, os, ap] }\n";
const APINITS: [&str; 3] = ["0-1", "2-3", "4-5"];

/// Four PEs that count up to a number, two on each of two apinits.
fn counts(rig: &Rig, to: u32, out: &str) -> Running {
    let script = format!(
        "i=0; while [ $i -lt {to} ]; do i=$((i+1)); echo $ALPS_APP_PE $i; sleep 0.0172; done; exit 3"
    );
    Running::start(rig.writes_to("aprun", "-q -n 4 -N 1 sh -c", out).arg(script))
}

/// What each PE has written, in order.
fn by_pe(text: &str) -> BTreeMap<u32, Vec<u32>> {
    let mut all: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for line in text.lines() {
        let (pe, number) = line.split_once(' ').expect("two numbers");
        let number = number.parse().expect("a number");
        all.entry(pe.parse().expect("a number")).or_default().push(number);
    }
    all
}

/// Nothing is missing, and nothing doubled.
#[track_caller]
fn counted(text: &str, to: u32) {
    let all = by_pe(text);
    assert_eq!(all.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
    for (pe, numbers) in all {
        assert!(numbers.iter().copied().eq(1..=to), "PE {pe}: {numbers:?}");
    }
}

#[test]
fn parts_go_on_as_if_nothing_had_been() {
    let test = "checkpoint::parts::parts_go_on_as_if_nothing_had_been";
    let Some(criu) = criu(test) else { return };
    let rig = Rig::of(&criu, CONFIG, &APINITS);
    let aprun = counts(&rig, 400, "out");
    let apid = rig.running();
    for _ in 0..3 {
        rig.goes_on("out");
        let done = rig.cpr(&format!("-c tonight -f -p {apid}")).expect(0).out();
        println!("{done}");
        assert!(done.starts_with(&format!("application {apid} is checkpointed in tonight: ")));
        assert!(done.ends_with(" s; it goes on\n"), "{done}");
    }
    let told = rig.cpr("-i tonight").expect(0).out();
    assert!(told.contains("tonight    yes   verified running"), "{told}");
    for part in ["host-0", "host-1"] {
        assert!(rig.at("tonight").join(part).join("application.json").is_file(), "{part}");
    }
    let left = std::fs::read_dir(rig.work.path()).expect("ours").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.len() == 2, "{left:?}");
    aprun.wait(BOUND).expect(3);
    counted(&rig.read("out"), 400);
}

#[test]
fn parts_come_back_on_other_nodes() {
    let test = "checkpoint::parts::parts_come_back_on_other_nodes";
    let Some(criu) = criu(test) else { return };
    let mut rig = Rig::of(&criu, CONFIG, &APINITS);
    let aprun = counts(&rig, 150, "first");
    let apid = rig.running();
    rig.goes_on("first");
    let done = rig.cpr(&format!("-c tonight -k -p {apid}")).expect(0).out();
    assert!(done.ends_with("; it was ended\n"), "{done}");
    aprun.wait(BOUND).expect(137).says("checkpointed and ended by root (cpr -k)");
    let first = rig.read("first");
    let rest = rig.cpr("-r tonight").expect(3).out();
    counted(&format!("{first}{rest}"), 150);
    // Everything was stopped meanwhile, and its first node is not there any more.
    rig.restart_all();
    run(&mut rig.command("psmgr", "drain 0")).expect(0);
    let cpr = Running::start(&mut rig.writes_to("cpr", "-r tonight", "second"));
    let again = rig.running();
    let events = run(&mut rig.command("apstat", &format!("--events {again}"))).expect(0).out();
    assert!(events.contains("on NIDs 2-5"), "{events}");
    rig.goes_on("second");
    // It is dumped again, from where it was restored.
    rig.cpr(&format!("-c later -k -p {again}")).expect(0);
    cpr.wait(BOUND).expect(137);
    let rest = rig.cpr("-r later").expect(3).out();
    counted(&format!("{first}{}{rest}", rig.read("second")), 150);
    // No two apinits are left for its two parts.
    run(&mut rig.command("psmgr", "drain 4")).expect(0);
    let cpr = Running::start(&mut rig.command("cpr", "-r later"));
    let waits = rig.hand.wait_for("posted", 1)[0];
    run(&mut rig.command("apstat", &format!("--why {waits}"))).expect(0);
    cpr.signal(15);
    cpr.wait(BOUND).expect(143);
}

/// Output that PEs have left in their pipes is in the images. Only the restored application prints
/// it.
#[test]
fn what_is_in_images_is_printed_once() {
    const LINES: u32 = 400_000;
    let test = "checkpoint::parts::what_is_in_images_is_printed_once";
    let Some(criu) = criu(test) else { return };
    let rig = Rig::of(&criu, CONFIG, &APINITS);
    // More than an aprun that does not read has PEs write, whatever is kept on the way.
    let script = format!(
        "while ! [ -e go ]; do sleep 0.01; done; seq -f \"$ALPS_APP_PE %.0f\" {LINES}; exit 3"
    );
    let aprun =
        Running::start(rig.writes_to("aprun", "-q -T -n 4 -N 1 sh -c", "first").arg(script));
    let apid = rig.running();
    aprun.signal(nix::libc::SIGSTOP);
    std::fs::write(rig.at("go"), "").expect("written");
    rig.cpr(&format!("-c tonight -k -p {apid}")).expect(0);
    aprun.signal(nix::libc::SIGCONT);
    aprun.wait(BOUND).expect(137);
    let rest = rig.cpr("-r tonight").expect(3).out();
    assert!(rest.lines().count() > 1000, "nothing was left of it");
    counted(&format!("{}{rest}", rig.read("first")), LINES);
}

/// PE 0 listens, on a port that it tells by a file; PE 3, on another apinit, sends what PE 0 sends back.
const TALK: &str = r#"
import os, socket, sys
pe, to, at = int(os.environ["ALPS_APP_PE"]), int(sys.argv[1]), sys.argv[2]
if pe in (1, 2): sys.exit(0)
if pe == 0:
    s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
    open(at + ".new", "w").write(str(s.getsockname()[1])); os.rename(at + ".new", at)
    c, _ = s.accept()
else:
    while not os.path.exists(at): pass
    c = socket.create_connection(("127.0.0.1", int(open(at).read())))
pad = b"x" * 3000
f = c.makefile("rb")
for n in range(1, to + 1):
    # One of three laps sends far more than is read at once.
    line = b"%d " % n + pad * (n % 3 * 40) + b"\n"
    if pe == 0:
        got = f.readline(); c.sendall(got)
    else:
        c.sendall(line); got = f.readline()
    assert got == line, (n, got[:30], len(got))
    if n % 100 == 0: print(pe, n // 100, flush=True)
"#;

/// What is on its way between two parts is neither lost nor doubled, at whatever moment.
#[test]
fn a_connection_between_two_parts_goes_on() {
    let test = "checkpoint::parts::a_connection_between_two_parts_goes_on";
    let Some(criu) = criu(test) else { return };
    let rig = Rig::of(&criu, CONFIG, &APINITS);
    std::fs::write(rig.at("talk.py"), TALK).expect("written");
    let mut command = rig.writes_to("aprun", "-q -n 4 -N 1 python3 talk.py 100000000 port", "out");
    let aprun = Running::start(&mut command);
    let mut apid = rig.running();
    rig.goes_on("out");
    for _ in 0..4 {
        rig.cpr(&format!("-c tonight -f -p {apid}")).expect(0);
        rig.goes_on("out");
    }
    let mut runs = vec![aprun];
    for n in 0..3 {
        rig.cpr(&format!("-c tonight -f -k -p {apid}")).expect(0);
        runs.pop().expect("one").wait(BOUND).expect(137);
        let out = format!("out{n}");
        runs.push(Running::start(&mut rig.writes_to("cpr", "-r tonight", &out)));
        apid = rig.running();
        rig.goes_on(&out);
        rig.goes_on(&out);
    }
    run(&mut rig.command("apkill", &format!("-9 {apid}"))).expect(0);
    runs.pop().expect("one").wait(BOUND).expect(137);
}

/// An MPI program whose parts talk by TCP, as those on two hosts do.
#[test]
fn an_mpi_program_on_two_apinits_comes_back() {
    let test = "checkpoint::parts::an_mpi_program_on_two_apinits_comes_back";
    let Some(laps) = mpi::program(test, "laps") else { return };
    comes_back_on_its_apinits(test, &laps, &[("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo")]);
}

/// The same with Open MPI. Its PEs use PMIx, and each apshepherd has an appmix that serves it.
#[test]
fn one_of_open_mpi_on_two_apinits_comes_back() {
    let test = "checkpoint::parts::one_of_open_mpi_on_two_apinits_comes_back";
    let Some(laps) = mpi::open(test, "laps") else { return };
    let by_tcp = [("OMPI_MCA_btl", "tcp,self"), ("OMPI_MCA_btl_tcp_if_include", "lo")];
    comes_back_on_its_apinits(test, &laps, &by_tcp);
}

fn comes_back_on_its_apinits(test: &str, laps: &Path, transport: &[(&str, &str)]) {
    let Some(criu) = criu(test) else { return };
    let mut rig = Rig::of(&criu, CONFIG, &APINITS);
    let goal = rig.at("goal");
    let line = format!("-n 4 -N 1 {} {}", laps.to_str().expect("text"), goal.display());
    let mut command = rig.writes_to("aprun", &line, "first");
    let aprun = Running::start(command.envs(transport.iter().copied()));
    let apid = rig.running();
    eventually(BOUND, "it runs", || rig.read("first").contains("lap 500\n"));
    let done = rig.cpr(&format!("-c go -p {apid}")).expect(0).out();
    println!("4 PEs on two apinits: {done}");
    rig.goes_on("first");
    let done = rig.cpr(&format!("-c tonight -k -p {apid}")).expect(0).out();
    println!("4 PEs on two apinits: {done}");
    aprun.wait(BOUND).expect(137);
    rig.restart_all();
    let began = std::time::Instant::now();
    let cpr = Running::start(&mut rig.writes_to("cpr", "-r tonight", "second"));
    rig.running();
    println!("restarted in {:?}", began.elapsed());
    eventually(BOUND, "it runs on", || rig.read("second").contains("lap "));
    std::fs::write(&goal, "").expect("written");
    // (MPICH's MPI_Finalize hangs now and then where it talks by TCP, without any checkpoint too.)
    let right = "ended together, 0 words wrong\n";
    eventually(BOUND, "the answer is right", || rig.read("second").ends_with(right));
    cpr.signal(15);
    cpr.wait(BOUND);
    let (first, second) = (rig.read("first"), rig.read("second"));
    let lap = |line: &str| line.strip_prefix("lap ").and_then(|n| n.parse::<u64>().ok());
    let last = first.lines().filter_map(lap).max().expect("some");
    assert_eq!(second.lines().find_map(lap), Some(last + 500), "{first}{second}");
}

/// Whoever is killed while it is made: it goes on, with all its parts, and so does one that was to end.
#[test]
fn whoever_is_killed_meanwhile_all_parts_go_on() {
    let test = "checkpoint::parts::whoever_is_killed_meanwhile_all_parts_go_on";
    let Some(criu) = criu(test) else { return };
    let mut rig = Rig::of(&criu, CONFIG, &APINITS);
    let aprun = counts(&rig, 1_000_000, "out");
    let apid = rig.running();
    // Every PE is further than it was.
    let all_go_on = |rig: &Rig| {
        let far = |text: &str| -> Vec<usize> { by_pe(text).values().map(Vec::len).collect() };
        let text = |rig: &Rig| {
            let text = rig.read("out");
            text[..text.rfind('\n').map_or(0, |end| end + 1)].to_owned()
        };
        let before = far(&text(rig));
        eventually(BOUND, "all PEs count", || {
            let now = far(&text(rig));
            now.len() == 4 && before.iter().zip(&now).all(|(before, now)| now > before)
        });
    };
    all_go_on(&rig);
    for n in 0..12 {
        let after = if n % 4 == 3 { "" } else { "-k" };
        let cpr = Running::start(&mut rig.command("cpr", &format!("-c x{n} {after} -p {apid}")));
        std::thread::sleep(Duration::from_millis(30 * (n / 3)));
        match n % 3 {
            0 => cpr.signal(9),
            1 => cpr.signal(2),
            _ => {
                let nids = APINITS[(n as usize / 3) % 2];
                rig.hand.kill_apinit_of(nids);
                let ended = cpr.wait(BOUND);
                rig.hand.start_apinit(nids, None);
                if ended.status == 0 && after == "-k" {
                    return;
                }
                all_go_on(&rig);
                continue;
            }
        }
        let ended = cpr.wait(BOUND);
        if ended.status == 0 && after == "-k" {
            // It was faster.
            aprun.wait(BOUND).expect(137);
            return;
        }
        all_go_on(&rig);
    }
    rig.cpr(&format!("-c last -p {apid}")).expect(0);
    run(&mut rig.command("apkill", &format!("-9 {apid}"))).expect(0);
    aprun.wait(BOUND).expect(137);
}

/// The parts share what others of their host write too: that can't be of one moment.
#[test]
fn parts_that_share_memory_are_refused() {
    let test = "checkpoint::parts::parts_that_share_memory_are_refused";
    let Some(criu) = criu(test) else { return };
    let config = format!("{CONFIG}variables: {{ isolation: off }}\n");
    let rig = Rig::of(&criu, &config, &APINITS);
    let aprun = counts(&rig, 1_000_000, "out");
    let apid = rig.running();
    let run_ = rig.cpr(&format!("-c tonight -p {apid}"));
    run_.expect(1).says("isolation=off");
    assert!(!rig.at("tonight").exists());
    rig.goes_on("out");
    run(&mut rig.command("apkill", &format!("-9 {apid}"))).expect(0);
    aprun.wait(BOUND).expect(137);
}

/// Where one part can't be brought back, or whoever is killed meanwhile, nothing of it stays; and it comes back
/// all the same when it is tried again.
#[test]
fn all_parts_come_back_or_none() {
    let test = "checkpoint::parts::all_parts_come_back_or_none";
    let Some(criu) = criu(test) else { return };
    let mut rig = Rig::of(&criu, CONFIG, &APINITS);
    let aprun = counts(&rig, 1_000_000, "first");
    let apid = rig.running();
    rig.goes_on("first");
    rig.cpr(&format!("-c tonight -k -p {apid}")).expect(0);
    aprun.wait(BOUND).expect(137);
    // One byte of the second part.
    let file = rig.at("tonight/host-1/inventory.img");
    let whole = std::fs::read(&file).expect("ours");
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    std::fs::write(&file, &changed).expect("changed");
    let refused = rig.cpr("-r tonight").expect(125);
    assert!(refused.stderr.contains("damaged") && refused.out().is_empty(), "{refused:?}");
    std::fs::write(&file, &whole).expect("as it was");
    rig.hand.wait_until_up();
    let mut ran_on = 0;
    for who in ["cpr", "psched", "0-1", "2-3"] {
        for step in 0..4 {
            let out = format!("{who}{step}");
            let cpr = Running::start(&mut rig.writes_to("cpr", "-r tonight", &out));
            std::thread::sleep(Duration::from_millis(80 * step));
            match who {
                "cpr" => cpr.signal(9),
                "psched" => {
                    rig.hand.kill_psched();
                    rig.hand.start_psched();
                }
                nids => {
                    rig.hand.kill_apinit_of(nids);
                    rig.hand.start_apinit(nids, None);
                }
            }
            ran_on += usize::from(rig.runs_on(cpr, &out, 200, &format!("{who} {step}")));
        }
    }
    println!("{ran_on} of 16 ran on");
    rig.can_be_restarted("tonight");
}

/// Its apinit dies with all that it had, and its node is declared down: its images go on on another apinit.
#[test]
fn an_aprun_restarts_what_has_lost_its_node() {
    let test = "checkpoint::parts::an_aprun_restarts_what_has_lost_its_node";
    let Some(criu) = criu(test) else { return };
    let mut rig = Rig::of(&criu, CONFIG, &["0-1", "2-5"]);
    let script = "i=0; while [ $i -lt 150 ]; do i=$((i+1)); echo $i; sleep 0.0172; done; exit 3";
    let line = "-q --restart-from tonight sh -c";
    let aprun = Running::start(rig.writes_to("aprun", line, "out").arg(script));
    let apid = rig.running();
    rig.goes_on("out");
    rig.cpr(&format!("-c tonight -p {apid}")).expect(0);
    let runtime = rig.hand.folder().join(format!("apps-0/{apid}.1/shepherd"));
    let shepherd = std::fs::read_to_string(runtime).expect("kept");
    let shepherd: i32 = shepherd.split(' ').next().and_then(|pid| pid.parse().ok()).expect("a pid");
    rig.hand.kill_apinit_of("0-1");
    for (pid, _) in children(shepherd).into_iter().chain([(shepherd, String::new())]) {
        kill(pid, 9);
    }
    run(&mut rig.command("psmgr", "down 0-1 no power")).expect(0);
    let run = aprun.wait(BOUND).expect(3);
    let run = run.says(&format!("aprun: application {apid} was lost with NID 0"));
    run.says("it is restarted from its checkpoint tonight, made 20");
    // It has counted on from the checkpoint, which was made when it had come as far as this or farther.
    let text = rig.read("out");
    let numbers: Vec<u32> = text.lines().map(|line| line.parse().expect("a number")).collect();
    let back = numbers.windows(2).filter(|two| two[1] != two[0] + 1).collect::<Vec<_>>();
    assert!(back.len() <= 1 && back.iter().all(|two| 1 < two[1] && two[1] <= two[0]), "{back:?}");
    assert_eq!((numbers.first(), numbers.last()), (Some(&1), Some(&150)));
}
