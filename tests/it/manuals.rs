//! Each command has a page, and the page has the flags that the command knows, no more, no fewer.

use crate::support::binaries;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What --help prints, on either stream.
fn help(arguments: &[&str]) -> String {
    let program = binaries().join(arguments[0]);
    let output =
        Command::new(program).args(&arguments[1..]).arg("--help").output().expect("it runs");
    String::from_utf8(output.stdout).expect("text")
        + &String::from_utf8(output.stderr).expect("text")
}

/// Flags in what --help prints: those at the beginnings of lines, and those of a usage in brackets.
fn flags_of_help(text: &str) -> BTreeSet<String> {
    let mut flags = BTreeSet::new();
    let usage_alone = !text.lines().any(|l| l.trim_start().starts_with('-'));
    for line in text.lines() {
        let line = line.trim_start();
        if line.starts_with('-') {
            flags.extend(flags_of_words(line));
        } else if usage_alone && line.starts_with("usage:") {
            let words = line.split_whitespace().map(|w| w.trim_matches(['[', ']']));
            flags.extend(words.filter(|w| w.starts_with("--")).map(str::to_owned));
        }
    }
    flags
}

/// The flags with which a line begins: `-n, --pes PES  the width`.
fn flags_of_words(line: &str) -> Vec<String> {
    let words = line.split_whitespace().take_while(|w| w.starts_with('-'));
    words
        .map(|w| w.trim_end_matches(',').split(['=', '[']).next().unwrap_or(w).to_owned())
        .collect()
}

/// Flags in a page: those with which a tagged paragraph begins.
fn flags_of_page(text: &str) -> BTreeSet<String> {
    let mut flags = BTreeSet::new();
    let mut tag = false;
    for line in text.lines() {
        if tag && let Some((".B" | ".BR" | ".BI" | ".RB", words)) = line.split_once(' ') {
            let words = words.replace("\\-", "-").replace("\\fI", "").replace("\\fR", "");
            flags.extend(flags_of_words(words.trim_start_matches('"')));
        }
        tag = line.starts_with(".TP") || (tag && line.starts_with(".TQ"));
    }
    flags
}

#[track_caller]
fn check(page: &str, commands: &[&[&str]]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("man").join(page);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{page}: {e}"));
    let known: BTreeSet<String> = commands.iter().flat_map(|c| flags_of_help(&help(c))).collect();
    let written = flags_of_page(&text);
    let missing: Vec<_> = known.difference(&written).collect();
    assert!(missing.is_empty(), "{page} does not have {missing:?}");
    let unknown: Vec<_> = written.difference(&known).collect();
    assert!(unknown.is_empty(), "{page} has {unknown:?}, which the command does not know");
    assert!(!known.is_empty(), "{page}: nothing was compared");
}

#[test]
fn psched_8() {
    check(
        "psched.8",
        &[
            &["psched"],
            &["psched", "backup"],
            &["psched", "check"],
            &["psched", "replay"],
            &["psched", "restore"],
            &["psched", "start"],
            &["psched", "torture"],
        ],
    );
}

#[test]
fn psched_simulate_8() {
    check("psched-simulate.8", &[&["psched", "simulate"]]);
}

/// What `psched torture` knows by name it names where the name is wrong.
#[test]
fn psched_8_has_every_fault_and_scenario() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/psched.8");
    let page = std::fs::read_to_string(path).expect("there").replace("\\-", "-");
    let (_, page) = page.split_once(".B --faults").expect("the option");
    let word = |line| -> Option<&str> {
        let words = <str>::strip_prefix(line, ".BR ").or(<str>::strip_prefix(line, ".B "))?;
        words.split_whitespace().next()
    };
    let named: BTreeSet<&str> = page.lines().filter_map(word).collect();
    for (option, some) in [("--faults", "strangers"), ("--scenario", "row-lost")] {
        let mut command = Command::new(binaries().join("psched"));
        let output = command.args(["torture", option, "no-such"]).output().expect("it runs");
        let said = String::from_utf8(output.stderr).expect("text");
        let (_, names) = said.split_once("it is one of ").expect("it names them");
        let names = names.lines().next().unwrap_or_default().split(", ");
        let missing: Vec<&str> = names.clone().filter(|name| !named.contains(name)).collect();
        assert!(missing.is_empty(), "psched.8 does not have {missing:?}");
        assert!(names.clone().any(|name| name == some), "{said}");
    }
}

/// It has no flags: what it says of waits and graces is as it is.
#[test]
fn psched_7_has_the_figures_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/psched.7");
    let page = std::fs::read_to_string(path).expect("there");
    let wait = psched::apinit::decide::TURN_WAIT.as_secs();
    let moment = psched::apshepherd::decide::LINGER.as_millis();
    for figure in [format!("within {wait} s"), format!("their {moment} ms")] {
        assert!(page.contains(&figure), "psched.7 does not say {figure}");
    }
}

#[test]
fn apinit_8() {
    check("apinit.8", &[&["apinit"]]);
}

#[test]
fn apshepherd_8() {
    check("apshepherd.8", &[&["apshepherd"]]);
}

#[test]
fn aprun_1() {
    check("aprun.1", &[&["aprun"]]);
}

#[test]
fn apstat_1() {
    check("apstat.1", &[&["apstat"]]);
}

#[test]
fn apkill_1() {
    check("apkill.1", &[&["apkill"]]);
}

#[test]
fn cpr_1() {
    check("cpr.1", &[&["cpr"]]);
}

#[test]
fn psview_1() {
    check("psview.1", &[&["psview"]]);
}

#[test]
fn snflv_8() {
    check("snflv.8", &[&["snflv"]]);
}

#[test]
fn psmgr_8() {
    let commands = [
        "show", "set", "reload", "drain", "resume", "down", "hold", "release", "migrate",
        "compact", "log", "counters", "record", "adopt", "purge",
    ];
    let commands = commands.map(|command| ["psmgr", command]);
    let mut all: Vec<&[&str]> = vec![&["psmgr"]];
    all.extend(commands.iter().map(|command| &command[..]));
    check("psmgr.8", &all);
    // And none is left out.
    let said = help(&["psmgr"]);
    let (_, known) = said.split_once("Commands:\n").expect("it lists them");
    let (known, _) = known.split_once("\n\n").expect("options follow");
    let known = known.lines().filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    assert_eq!(known.count(), commands.len() + 1, "help is one more");
}

/// mpirun is aprun; its page tells the one flag that is its own, and sends the reader to aprun(1).
#[test]
fn mpirun_1() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/mpirun.1");
    let text = std::fs::read_to_string(path).expect("there");
    assert!(text.contains("\\-np") && text.contains("aprun"), "{text}");
    let own: BTreeSet<String> = flags_of_help(&help(&["mpirun"]))
        .difference(&flags_of_help(&help(&["aprun"])))
        .cloned()
        .collect();
    assert_eq!(own, BTreeSet::from(["-np".to_owned()]));
}

#[test]
fn flags_are_found() {
    let set = |words: &str| words.split(' ').map(str::to_owned).collect::<BTreeSet<String>>();
    let help = "Usage: x\n  -a, --all\n     All of them -b\n      --history [<N>]\n  -cc, --bind cpu|none\n";
    assert_eq!(flags_of_help(help), set("-a --all --history -cc --bind"));
    assert_eq!(flags_of_help("usage: x A --listen FD [--to FD,...]\n"), set("--listen --to"));
    let page =
        ".TP\n.B \\-a, \\-\\-all\nAll but\n.B \\-x\n.TP\n.BI \\-\\-history \" N\"\n.TP\n.B x\n";
    assert_eq!(flags_of_page(page), set("-a --all --history"));
}
