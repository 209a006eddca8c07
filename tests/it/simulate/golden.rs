//! The baselines on four recorded workloads start every job when the reference does.
//!
//! `PSCHED_TRACES` names their folder; the project does not carry them.

use super::simulate;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

struct Recorded {
    log: &'static str,
    words: &'static [&'static str],
    /// What the names of its golden files have in between.
    settings: &'static str,
    jobs: usize,
}

const LOGS: [Recorded; 4] = [
    Recorded { log: "KTH-SP2-1996-2.1-cln", words: &[], settings: "", jobs: 28_467 },
    Recorded { log: "SDSC-SP2-1998-4.2-cln", words: &[], settings: "", jobs: 53_999 },
    Recorded {
        log: "LANL-CM5-1994-4.1-cln",
        words: &["--overrun", "extend", "--no-estimate", "runtime"],
        settings: ".extend",
        jobs: 122_055,
    },
    Recorded {
        log: "Sandia-Ross-2001-1.1-cln",
        words: &["--no-estimate", "runtime"],
        settings: "",
        jobs: 55_595,
    },
];

/// Those of a line that the reference has too.
fn columns(line: &str) -> &str {
    line.match_indices('\t').nth(6).map_or(line, |(at, _)| &line[..at])
}

#[test]
fn every_job_starts_when_the_reference_says() {
    let Some(traces) = std::env::var_os("PSCHED_TRACES").filter(|t| !t.is_empty()) else {
        let test = "simulate::golden::every_job_starts_when_the_reference_says";
        // Nobody can install them: no failure where nothing else may be skipped.
        let _ = writeln!(std::io::stderr(), "skipped: {test}: PSCHED_TRACES names no logs");
        return;
    };
    let traces = Path::new(&traces);
    let folder = tempfile::tempdir().expect("made");
    for Recorded { log, words, settings, jobs } in LOGS {
        for policy in ["fcfs", "easy"] {
            let golden = traces.join(format!("golden/{log}{settings}.{policy}.batch.tsv.gz"));
            let out = folder.path().join("out.tsv");
            let name = out.to_str().expect("text");
            let words = [words, &["--policy", policy, "--out", name]].concat();
            let ran = simulate(&traces.join(format!("{log}.swf.gz")), &words).expect(0);
            // Progress is for terminals.
            assert_eq!(ran.stderr, "", "{log} {policy}");
            let golden = File::open(&golden).unwrap_or_else(|e| panic!("{golden:?}: {e}"));
            let mut golden = BufReader::new(MultiGzDecoder::new(golden)).lines();
            let mut ours = BufReader::new(File::open(&out).expect("written")).lines();
            let head = |line: Option<std::io::Result<String>>| line.expect("head").expect("text");
            let first = head(ours.next());
            assert_eq!(columns(&first), head(golden.next()).trim_start_matches('#'));
            let mut compared = 0;
            for (ours, golden) in ours.by_ref().zip(golden.by_ref()) {
                let (ours, golden) = (ours.expect("text"), golden.expect("text"));
                assert_eq!(columns(&ours), golden, "{log} {policy}");
                compared += 1;
            }
            assert!(ours.next().is_none() && golden.next().is_none(), "{log} {policy}: {compared}");
            assert_eq!(compared, jobs, "{log} {policy}");
        }
    }
}
