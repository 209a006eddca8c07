//! The client of CRIU: what is no CRIU is told apart, and bounded.

use crate::support::criu::criu;
use crate::support::*;
use psched::node::checkpoint::criu::{Criu, CriuError, LEAST};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A program that is to be taken for CRIU; `$2` is its socket.
fn pretender(folder: &Path, script: &str) -> Criu {
    let path = folder.join("criu");
    // By another process: what a test beside this one starts would for a moment have the file open for
    // writing, too, and nobody could execute it (ETXTBSY).
    let put = "printf '#!/bin/bash\n%s\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
    let written = Command::new("sh").args(["-c", put]).arg(&path).arg(script).status();
    assert!(written.expect("sh").success());
    Criu::find(Some(&path)).expect("it is there")
}

#[test]
fn a_real_one_is_good() {
    let Some(criu) = criu("checkpoint::a_real_one_is_good") else { return };
    let version = criu.version().expect("its version");
    assert!((version.major, version.minor) >= LEAST, "{version}");
    assert_eq!(criu.check().expect("good"), version);
}

#[test]
fn none_is_said() {
    let error = Criu::find(Some(Path::new("/no/such/criu"))).expect_err("none");
    let text = error.to_string();
    assert!(text.contains("at /no/such/criu") && text.contains("install CRIU 4.0"), "{text}");
}

#[test]
fn what_is_none_is_told_apart() {
    let folder = tempfile::tempdir().expect("made");
    let text =
        |script: &str| pretender(folder.path(), script).version().expect_err("no CRIU").to_string();
    // Whether it ends before or after it was asked is a matter of chance here.
    assert!(text("exit 3").contains("ended without an answer"), "{}", text("exit 3"));
    let hears = "dd bs=65536 count=1 <&$2 >/dev/null 2>&1";
    // A packet each: bash would send the part up to a newline by itself.
    let says = |bytes: &[u8]| {
        let path = folder.path().join("answer");
        std::fs::write(&path, bytes).expect("written");
        format!("{hears}; cat {} >&$2", path.display())
    };
    let nonsense = &format!("{hears}; echo nonsense >&$2");
    assert!(text(nonsense).contains("can't be decoded"), "{}", text(nonsense));
    // {type: VERSION, success: true, version: {3, 17, sublevel 1}}
    let old = says(b"\x08\x0a\x10\x01\x52\x06\x08\x03\x10\x11\x20\x01");
    let old = pretender(folder.path(), &old);
    let error = old.check().expect_err("too old").to_string();
    assert!(error.contains("is CRIU 3.17.1: 4.0 or newer is needed"), "{error}");
    // {type: EMPTY, success: false, cr_errmsg: "no"}
    let refused = says(b"\x08\x00\x10\x00\x4a\x02no");
    assert_eq!(text(&refused), "criu has not told its version: no");
}

#[test]
fn one_that_hangs_is_killed() {
    let folder = tempfile::tempdir().expect("made");
    let hangs = pretender(folder.path(), "exec sleep 1000.271").patient(Duration::from_secs(1));
    let error = hangs.version().expect_err("no answer");
    assert!(matches!(error, CriuError::Late { .. }), "{error}");
    assert!(error.to_string().contains("was killed"), "{error}");
    assert!(processes_with("1000.271").is_empty());
}

#[test]
fn it_gets_nothing_of_the_callers() {
    let folder = tempfile::tempdir().expect("made");
    let out = folder.path().join("out");
    let criu =
        pretender(folder.path(), &format!("env > {0}; ls /proc/$$/fd >> {0}", out.display()));
    criu.version().expect_err("no CRIU");
    let text = std::fs::read_to_string(&out).expect("written");
    let names: Vec<&str> = text.lines().filter_map(|l| Some(l.split_once('=')?.0)).collect();
    // Those that bash makes itself, and the two.
    assert!(names.iter().all(|n| ["PATH", "LC_ALL", "PWD", "SHLVL", "_"].contains(n)), "{text}");
    let files = text.lines().filter(|l| l.parse::<u32>().is_ok()).count();
    // Its three, its socket, and bash's script.
    assert!(files <= 5, "{text}");
}
