//! psview on real processes, and in a terminal.

use crate::support::hand::Hand;
use crate::support::*;
use nix::fcntl::OFlag;
use nix::pty::{OpenptyResult, Winsize, grantpt, openpty, posix_openpt, ptsname_r, unlockpt};
use nix::sys::termios::{Termios, tcgetattr};
use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

const ONE: &str = "nodes:\n  - { nids: 0, processors: 1, flavors: [su, os, ap] }\n";

fn view(instance: &Instance, options: &str) -> String {
    instance.run("psview", words(options)).expect(0).out()
}

fn json(instance: &Instance) -> serde_json::Value {
    serde_json::from_str(&view(instance, "--json")).expect("JSON")
}

#[test]
fn an_empty_machine_and_one_application() {
    let instance = instance(3, 2);
    let text = view(&instance, "");
    assert!(text.starts_with("3 nodes: nothing runs; slices of 1s, "), "{text}");
    let empty = json(&instance);
    assert_eq!(empty["nodes"].as_array().map(Vec::len), Some(3));
    for list in ["plans", "applications"] {
        assert_eq!(empty[list].as_array().map(Vec::len), Some(0), "{empty}");
    }

    let long = instance.start_script("-q -n 3", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0];
    let all = json(&instance);
    let row = &all["applications"][0];
    assert_eq!((&row["apid"], &row["turn"]), (&apid.into(), &"runs".into()), "{all}");
    assert_eq!((&row["had"], &row["due"], &row["nids"][1]), (&1.0.into(), &1.0.into(), &1.into()));
    let text = view(&instance, "");
    assert!(text.starts_with("3 nodes: 1 application alone"), "{text}");
    let own = |line: &&str| words(line).next() == Some(&apid.to_string());
    let line = text.lines().find(own).unwrap_or_else(|| panic!("no {apid} in {text}"));
    assert!(words(line).any(|word| word == "runs"), "{text}");

    // How each node stops gangs is on its line, and the weaker means below them.
    let stops = all["nodes"][0]["stops"].as_str().expect("its apinit said it").to_owned();
    let nodes = view(&instance, "-n");
    let word = if stops == "signals" { "SIGSTOP" } else { "freezer" };
    let lines = nodes.lines().filter(|line| words(line).any(|w| w == word)).count();
    assert!(lines >= 3, "{nodes}");
    assert_eq!(
        nodes.contains("stopped by SIGSTOP, not by the freezer"),
        stops == "signals",
        "{nodes}"
    );
    let notes = all["nodes"][0]["notes"].as_array().expect("a list");
    for note in notes.iter().filter_map(|note| note.as_str()) {
        let joined: Vec<&str> = nodes.split_whitespace().collect();
        assert!(joined.join(" ").contains(note), "{note:?} is not in {nodes}");
    }

    let file = instance.folder().join("trace.json");
    let run = instance.run("psview", ["--trace", &file.display().to_string()]).expect(0);
    run.says("changes of party written to ");
    let trace: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).expect("written")).expect("JSON");
    let names = trace.as_array().expect("an array").iter();
    let names = names.filter(|event| event["name"] == "process_name").count();
    assert_eq!(names, 3, "{trace}");
    std::fs::remove_file(&file).expect("removed");

    let file = instance.folder().join("turns.svg");
    let run = instance.run("psview", ["--svg", &file.display().to_string()]).expect(0);
    run.says("changes of party written to ");
    let picture = std::fs::read_to_string(&file).expect("written");
    assert!(picture.starts_with("<svg ") && picture.contains(">NID 2</text>"), "{picture}");
    std::fs::remove_file(&file).expect("removed");

    instance.run("apkill", ["-9", &apid.to_string()]).expect(0);
    long.wait(BOUND).expect(137);
}

#[test]
fn it_says_what_stands_in_its_way() {
    let instance = instance(1, 1);
    let run = instance.run("psview", ["-w"]).expect(1);
    run.says("psview: -w needs a terminal, and standard output is not one");
    let file = instance.folder().join("no").join("trace.json");
    let run = instance.run("psview", ["--trace", &file.display().to_string()]).expect(1);
    run.says("psview: can't write ");
}

/// psview -w or apstat -w, and what it has written so far.
struct Live {
    running: std::process::Child,
    /// The terminal's both ends.
    keyboard: File,
    terminal: File,
    before: Termios,
    written: Arc<Mutex<String>>,
}

impl Live {
    fn start(hand: &Hand, command: &str) -> Live {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(&size, None).expect("a terminal");
        let (keyboard, terminal) = (File::from(master), File::from(slave));
        let before = tcgetattr(&terminal).expect("its settings");
        let end = || Stdio::from(terminal.try_clone().expect("one more"));
        let mut command = hand.command(command, ["-w"]);
        let running = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("it runs");
        let written = Arc::new(Mutex::new(String::new()));
        let (mut screen, to) = (keyboard.try_clone().expect("one more"), written.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                to.lock().expect("whole").push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Live { running, keyboard, terminal, before, written }
    }

    /// Waits for words on the screen, and forgets what was written up to now.
    #[track_caller]
    fn shows(&self, words: &str) {
        eventually(BOUND, words, || self.written.lock().expect("whole").contains(words));
        self.written.lock().expect("whole").clear();
    }

    #[track_caller]
    fn ends(mut self) {
        let mut status = None;
        eventually(BOUND, "psview ends", || {
            status = self.running.try_wait().expect("asked");
            status.is_some()
        });
        assert_eq!(status.map(status_of), Some(0));
        let written = || self.written.lock().expect("whole").clone();
        // The other screen is left, and the cursor is there.
        eventually(BOUND, "the terminal is put back", || {
            written().contains("\x1b[?1049l") && written().contains("\x1b[?25h")
        });
        assert_eq!(tcgetattr(&self.terminal).expect("its settings"), self.before);
    }
}

#[test]
fn a_live_terminal_is_put_back_at_any_end() {
    let mut hand = Hand::start(ONE, &[("0", None)]);
    hand.wait_until_up();
    let mut live = Live::start(&hand, "psview");
    live.shows("nothing");
    // psched goes, and comes back.
    hand.kill_psched();
    // (Blanks are passed over, so that a word alone is found.)
    live.shows("answer");
    hand.start_psched();
    live.shows("nothing");
    live.keyboard.write_all(b"?").expect("pressed");
    live.shows("Memory");
    live.keyboard.write_all(b"?n").expect("pressed");
    live.shows("Stops");
    live.keyboard.write_all(b"q").expect("pressed");
    live.ends();

    let mut live = Live::start(&hand, "psview");
    live.shows("nothing");
    live.keyboard.write_all(b"\x03").expect("pressed");
    live.ends();

    let live = Live::start(&hand, "psview");
    live.shows("nothing");
    kill(live.running.id() as i32, 15);
    live.ends();
    hand.end();
}

#[test]
fn apstat_is_live_in_a_terminal() {
    let hand = Hand::start(ONE, &[("0", None)]);
    hand.wait_until_up();
    let mut live = Live::start(&hand, "apstat");
    // (Blanks are not written, but passed over.)
    live.shows("applications:");
    live.keyboard.write_all(b"jq").expect("pressed");
    live.ends();
    hand.end();
}

/// As a window does that is closed: there is nobody left to tell.
#[test]
fn a_live_terminal_that_is_closed_ends_it() {
    let hand = Hand::start(ONE, &[("0", None)]);
    hand.wait_until_up();
    // No child of this process may hold the other side.
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let mut screen = posix_openpt(flags).expect("a terminal");
    grantpt(&screen).and_then(|()| unlockpt(&screen)).expect("it is ours");
    let path = ptsname_r(&screen).expect("its name");
    let terminal = File::options().read(true).write(true).open(path).expect("it is there");
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&terminal, size).expect("its size");
    let end = || Stdio::from(terminal.try_clone().expect("one more"));
    let mut command = hand.command("psview", ["-w"]);
    let mut running = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("it runs");
    drop(terminal);
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("nothing") {
        let mut bytes = [0; 4096];
        let count = screen.read(&mut bytes).expect("it is drawn");
        seen.extend_from_slice(&bytes[..count]);
    }
    drop(screen);
    let mut status = None;
    eventually(BOUND, "psview ends", || {
        status = running.try_wait().expect("asked");
        status.is_some()
    });
    assert_eq!(status.map(status_of), Some(129));
    hand.end();
}

/// Two that want the whole machine take turns: one runs, the other is frozen, and each has its share.
#[test]
fn two_gangs_in_turns() {
    let config = "nodes:\n  - { nids: 0-1, processors: 1, flavors: [su, os, ap] }\n\
                  variables:\n  application.max_resident: 2\n  application.time_slice: 100ms\n";
    let hand = Hand::start(config, &[("0-1", None)]);
    let spin = "while :; do :; done";
    let both = [hand.start_script("-q -n 2", spin), hand.start_script("-q -n 2", spin)];
    let apids = hand.wait_for("running", 2);
    let seen = || -> serde_json::Value {
        let run = run(&mut hand.command("psview", ["--json"])).expect(0);
        serde_json::from_slice(&run.stdout).expect("JSON")
    };
    // Each is seen to lead while the other is frozen.
    for leader in 0..2 {
        eventually(BOUND, "it leads", || {
            let all = seen();
            let turn = |apid: u64| {
                let rows = all["applications"].as_array().expect("a list").iter();
                let row = rows.clone().find(|row| row["apid"] == apid);
                row.map_or(String::new(), |row| row["turn"].as_str().unwrap_or("").to_owned())
            };
            turn(apids[leader]) == "leads" && turn(apids[1 - leader]) == "frozen"
        });
    }
    eventually(BOUND, "changes are measured, and shares are even", || {
        let all = seen();
        let had = |at: usize| all["applications"][at]["had"].as_f64().expect("a share");
        let even = (0..2).all(|at| (had(at) - 0.5).abs() < 0.1);
        even && all["changes"]["all"]["gap"]["count"].as_u64() > Some(10)
    });
    let text = run(&mut hand.command("psview", [] as [&str; 0])).expect(0).out();
    for apid in &apids {
        assert!(text.contains(&format!("*{apid} *{apid}")), "{text}");
    }
    assert!(text.contains("Changes of party:") && text.contains("Frozen: "), "{text}");
    let row = hand.apstat("-a -v")["applications"][0].clone();
    assert_eq!(row["due"], "50.0%", "{row}");

    let file = hand.folder().join("trace.json");
    run(&mut hand.command("psview", ["--trace", &file.display().to_string()])).expect(0);
    let trace: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).expect("written")).expect("JSON");
    // On each node they run one after the other.
    for nid in 0..2 {
        let events = trace.as_array().expect("an array").iter();
        let runs = events.filter(|event| event["cat"] == "gang" && event["pid"] == nid);
        let time = |event: &serde_json::Value, of: &str| event[of].as_f64().expect("a time");
        let mut runs: Vec<(f64, f64)> =
            runs.map(|run| (time(run, "ts"), time(run, "ts") + time(run, "dur"))).collect();
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(runs.len() > 5, "{trace}");
        assert!(runs.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{runs:?}");
    }
    for apid in &apids {
        run(&mut hand.command("apkill", ["-9", &apid.to_string()])).expect(0);
    }
    for running in both {
        running.wait(BOUND).expect(137);
    }
    hand.end();
}
