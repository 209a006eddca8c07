//! What became of each job, a line each.

use crate::simulate::Outcome;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

/// Columns whose names others know, then ours.
const COLUMNS: &str =
    "job\tsubmit\twidth\trun\test\tstart\tend\tstarts\tmoves\tlongest_stopped\tpolicy";

/// Writes them; `label` says what they were replayed under.
pub fn write(path: &Path, outcomes: &[Outcome], label: &str) -> std::io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    writeln!(out, "{COLUMNS}")?;
    for outcome in outcomes {
        let Outcome { job, start, end, turns } = outcome;
        let (number, submit, width) = (job.number, seconds(job.submit), job.width);
        let (run, estimate) = (seconds(job.run), seconds(job.estimate));
        let (start, end) = (seconds(*start), seconds(*end));
        let (starts, moves) = turns.map_or((1, 0), |turns| (turns.starts, turns.moves));
        let stopped = seconds(outcome.longest_stopped());
        write!(out, "{number}\t{submit}\t{width}\t{run}\t{estimate}\t{start}\t{end}")?;
        writeln!(out, "\t{starts}\t{moves}\t{stopped}\t{label}")?;
    }
    out.flush()
}

/// A time as a column has it: seconds, to the millisecond where they are not whole.
fn seconds(time: Duration) -> String {
    match time.subsec_millis() {
        0 => time.as_secs().to_string(),
        millis => format!("{}.{millis:03}", time.as_secs()),
    }
}
