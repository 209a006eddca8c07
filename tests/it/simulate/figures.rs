//! What least attained service is to reach on a recorded workload.
//!
//! `PSCHED_TRACES` names the folder of the logs; the project does not carry them.

use super::simulate;
use flate2::read::MultiGzDecoder;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

/// How many lines of the KTH-SP2's log are replayed: what a build without optimisation does in seconds.
const LINES: usize = 6_017;
/// What it reached on these at first (a model of the same policy reached the same on the whole log): mean
/// response and mean bounded slowdown, the latter's 99.9th percentile, and the longest total wait in hours.
const REACHED: (f64, f64, f64, f64) = (11_614.0, 1.67, 26.2, 73.0);

/// The beginning of a log, with its header.
fn beginning(of: &Path, to: &Path) {
    let log = BufReader::new(MultiGzDecoder::new(File::open(of).expect("the log")));
    let mut text = String::new();
    let mut jobs = 0;
    for line in log.lines().map(|line| line.expect("a line")) {
        jobs += usize::from(!line.starts_with(';'));
        if jobs > LINES {
            break;
        }
        text += &line;
        text.push('\n');
    }
    std::fs::write(to, text).expect("a copy");
}

#[test]
fn least_attained_service_does_as_well_as_it_did() {
    let Some(traces) = std::env::var_os("PSCHED_TRACES").filter(|t| !t.is_empty()) else {
        let test = "simulate::figures::least_attained_service_does_as_well_as_it_did";
        let _ = writeln!(std::io::stderr(), "skipped: {test}: PSCHED_TRACES names no logs");
        return;
    };
    let folder = tempfile::tempdir().expect("made");
    let log = folder.path().join("kth.swf");
    beginning(&Path::new(&traces).join("KTH-SP2-1996-2.1-cln.swf.gz"), &log);
    let words = ["--set", "application.max_resident=8", "--moves", "all", "--json"];
    let ran = simulate(&log, &words).expect(0);
    let told: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let number = |pointer: &str| told.pointer(pointer).and_then(Value::as_f64).expect("a number");
    let (response, slowdown, p999, wait) = REACHED;
    assert_eq!(number("/jobs"), 6_014.0);
    for (pointer, most) in [
        ("/response/mean", 1.02 * response),
        ("/bounded_slowdown/mean", 1.02 * slowdown),
        ("/bounded_slowdown/p999", 1.1 * p999),
        ("/longest_wait/seconds", 1.2 * 3600.0 * wait),
        ("/turns/moves/mean", 1.0),
    ] {
        assert!(number(pointer) <= most, "{pointer}: {} over {most}", number(pointer));
    }
}
