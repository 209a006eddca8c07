//! What psched is busy with: how many events of each kind it has heard, and what it has decided.

use super::{ANSWER_BOUND, Client, answer};
use crate::commands::question::{Does, again, ask};
use crate::console::table::{Cell, Report, Table, moment, terminal_columns};
use crate::rpc::pb;
use clap::Args;
use jiff::tz::TimeZone;

/// The counters.
#[derive(Args, Clone, Debug)]
pub struct Counters {
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Counters {
    pub(super) async fn run(self, client: &mut Client) -> Result<String, Vec<String>> {
        let reply =
            answer(again(ask!(client.counters, pb::CountersRequest {}), Does::Read, ANSWER_BOUND))
                .await?;
        let report = report(&reply, &TimeZone::system());
        Ok(if self.json { report.json() } else { report.text_within(terminal_columns()) })
    }
}

fn report(reply: &pb::CountersReply, zone: &TimeZone) -> Report {
    let mut table = Table::new("counters", "", "<Since <What >Count <Kind")
        .cuts(&[("Kind", 24)])
        .drops(&["Since"]);
    let rows = |what: &'static str, of: &[pb::CounterRow]| {
        let row = |row: &pb::CounterRow| {
            vec![
                moment(reply.since_ns, zone),
                Cell::text(what),
                Cell::Number(row.count),
                Cell::text(row.kind.clone()),
            ]
        };
        of.iter().map(row).collect::<Vec<_>>()
    };
    table.rows.extend(rows("heard", &reply.events));
    table.rows.extend(rows("decided", &reply.effects));
    Report { tables: vec![table], ..Report::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal() {
        let kind = "answer: refused, for it is not the application's user who asks".to_owned();
        let row = pb::CounterRow { kind, count: 1_234_567 };
        let reply =
            pb::CountersReply { since_ns: 1_500_000_000, effects: vec![row], ..Default::default() };
        let report = report(&reply, &TimeZone::UTC);
        let golden = [
            "\
Since                   What      Count Kind
1970-01-01 00:00:01.500 decided 1234567 answer: refused, for it is not the appl+
",
            "\
What      Count Kind
decided 1234567 answer: refused, for it+
",
        ];
        assert_eq!([80, 40].map(|columns| report.text_within(columns)), golden);
    }

    #[test]
    fn a_line_for_each_kind() {
        let row = |kind: &str, count| pb::CounterRow { kind: kind.into(), count };
        let reply = pb::CountersReply {
            since_ns: 1_500_000_000,
            events: vec![row("posting", 12), row("report: ended", 11)],
            effects: vec![row("answer: accepted", 12)],
        };
        assert_eq!(
            report(&reply, &TimeZone::UTC).text(),
            "Since                   What    Count Kind\n\
             1970-01-01 00:00:01.500 heard      12 posting\n\
             1970-01-01 00:00:01.500 heard      11 report: ended\n\
             1970-01-01 00:00:01.500 decided    12 answer: accepted\n"
        );
    }
}
