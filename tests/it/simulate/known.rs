//! A workload made here, whose answers were found by hand.

use super::simulate;
use flate2::{Compression, write::GzEncoder};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Seconds after which the same comes again; all is over by then.
const PERIOD: u64 = 1_000;
pub const TIMES: u64 = 40;

/// On ten processors: submit, width, run, estimate; when first come first served starts it, and EASY.
///
/// The second job needs all, and by the estimates can't have them before 150. EASY lets the third go
/// before it, which is over by then, and the fifth once there is room; the fourth, which would
/// not be over, not. The sixth can't start before 350, and then leaves two processors: the seventh may
/// have them for as long as it likes, and nobody else.
const EPISODE: [[u64; 6]; 8] = [
    [0, 6, 100, 150, 0, 0],
    [10, 10, 50, 60, 100, 100],
    [20, 4, 30, 40, 150, 20],
    [25, 3, 200, 200, 150, 150],
    [30, 2, 40, 90, 150, 50],
    [160, 8, 10, 10, 350, 350],
    [170, 2, 500, 500, 350, 170],
    [170, 1, 500, 500, 360, 360],
];

/// Width, run, estimate of what does not count: too wide, never ran, without an estimate.
const LEFT_OUT: [[i64; 3]; 3] = [[11, 10, 10], [1, 0, 10], [1, 10, -1]];

/// The log: the episode so many times.
pub fn log(times: u64) -> String {
    let mut text = String::from("; Computer: made up\n; MaxProcs: 10\n");
    let mut number = 0;
    let mut job = |submit: u64, width: i64, run: i64, estimate: i64| {
        number += 1;
        let allocated = if run == 0 { -1 } else { width };
        let _ = writeln!(
            text,
            "{number} {submit} -1 {run} {allocated} -1 -1 {width} {estimate} -1 1 1 -1 -1 -1 -1 -1 -1"
        );
    };
    for begin in (0..times).map(|n| n * PERIOD) {
        for [width, run, estimate] in LEFT_OUT {
            job(begin, width, run, estimate);
        }
        for [submit, width, run, estimate, ..] in EPISODE {
            job(begin + submit, width as i64, run as i64, estimate as i64);
        }
    }
    text
}

pub fn write(folder: &Path, name: &str, text: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("written");
    path
}

pub fn compressed(text: &[u8]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::default());
    gz.write_all(text).expect("in memory");
    gz.finish().expect("in memory")
}

/// What --out has of it.
fn expected(policy: &str) -> String {
    let mut text = String::from(
        "job\tsubmit\twidth\trun\test\tstart\tend\tstarts\tmoves\tlongest_stopped\tpolicy\n",
    );
    for n in 0..TIMES {
        for (i, [submit, width, run, estimate, fcfs, easy]) in (0..).zip(EPISODE) {
            let begin = n * PERIOD;
            let job = n * (EPISODE.len() + LEFT_OUT.len()) as u64 + LEFT_OUT.len() as u64 + i + 1;
            let start = begin + if policy == "fcfs" { fcfs } else { easy };
            let (submit, end) = (begin + submit, start + run);
            let _ = writeln!(
                text,
                "{job}\t{submit}\t{width}\t{run}\t{estimate}\t{start}\t{end}\t1\t0\t{}\t{policy}",
                start - submit
            );
        }
    }
    text
}

#[test]
fn a_workload_with_known_answers() {
    let folder = tempfile::tempdir().expect("made");
    let plain = write(folder.path(), "log.swf", log(TIMES).as_bytes());
    let packed = write(folder.path(), "log.swf.gz", &compressed(log(TIMES).as_bytes()));
    let out = folder.path().join("out.tsv");
    for log in [plain, packed] {
        for policy in ["fcfs", "easy"] {
            let words = ["--policy", policy, "--out", out.to_str().expect("text")];
            simulate(&log, &words).expect(0);
            let ours = std::fs::read_to_string(&out).expect("written");
            assert_eq!(ours, expected(policy), "{policy}");
        }
    }
}
