//! The table of `aprun --report`: a line for each PE, as Cplant's yod had it.
//!
//! ```text
//! Name  Rank NID  PID Elapsed Exit Signal
//! a.out    0   3 4711  1.234s    0 -
//! a.out    1   4 9001  0.870s    - Killed
//! a.out    2   5    -       -    - -
//! ```
//!
//! The last one's node was lost, or has an apshepherd of a release that does not tell.

use crate::aprun::decide::session::ReportRow;
use crate::apteam::ending::{PeEnd, PeReport, signal_name};
use crate::console::table::{Cell, Report, Table};
use std::time::Duration;

/// The whole table, a line for each PE and one above them.
pub fn table(rows: &[ReportRow]) -> String {
    let mut table = Table::new("pes", "", "<Name >Rank >NID >PID >Elapsed >Exit <Signal");
    table.rows = rows.iter().map(cells).collect();
    Report { tables: vec![table], ..Report::default() }.text()
}

fn cells(row: &ReportRow) -> Vec<Cell> {
    let ReportRow { name, rank, nid, report } = row;
    let (exit, signal) = match report.as_ref().map(|report| report.end) {
        None => (Cell::None, Cell::None),
        Some(PeEnd::Exit(code)) => (Cell::Number(code.into()), Cell::None),
        Some(PeEnd::Signal(signal)) => {
            let name = signal_name(signal).map_or(format!("signal {signal}"), str::to_owned);
            (Cell::None, Cell::Text(name))
        }
    };
    let known = |of: &dyn Fn(&PeReport) -> Cell| report.as_ref().map_or(Cell::None, of);
    vec![
        Cell::text(name.clone()),
        Cell::Number((*rank).into()),
        Cell::Number(nid.0.into()),
        known(&|report| Cell::Number(report.pid.into())),
        known(&|report| Cell::Amount(seconds(report.elapsed))),
        exit,
        signal,
    ]
}

/// To the millisecond, rounded down.
fn seconds(time: Duration) -> String {
    format!("{}.{:03}s", time.as_secs(), time.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Nid;

    #[test]
    fn a_line_for_each_pe() {
        let row = |rank, nid, report: Option<(u32, u64, PeEnd)>| ReportRow {
            name: "a.out".into(),
            rank,
            nid: Nid(nid),
            report: report.map(|(pid, us, end)| PeReport {
                pid,
                elapsed: Duration::from_micros(us),
                end,
            }),
        };
        let rows = [
            row(0, 3, Some((4711, 1_234_999, PeEnd::Exit(0)))),
            row(1, 3, Some((4712, 93_600_050_000, PeEnd::Exit(255)))),
            row(2, 4, Some((9, 0, PeEnd::Signal(11)))),
            row(3, 4, Some((10, 10_000, PeEnd::Signal(34)))),
            row(4, 12, None),
        ];
        assert_eq!(
            table(&rows),
            "Name  Rank NID  PID    Elapsed Exit Signal\n\
             a.out    0   3 4711     1.234s    0 -\n\
             a.out    1   3 4712 93600.050s  255 -\n\
             a.out    2   4    9     0.000s    - Segmentation fault\n\
             a.out    3   4   10     0.010s    - signal 34\n\
             a.out    4  12    -          -    - -\n"
        );
    }
}
