//! Who changed what, and when.

use super::{ANSWER_BOUND, Client, answer};
use crate::commands::question::number;
use crate::commands::question::{Does, again, ask};
use crate::console::table::{Cell, Report, Table, moment, terminal_columns};
use crate::rpc::pb;
use clap::Args;
use jiff::tz::TimeZone;

/// The log.
#[derive(Args, Clone, Debug)]
pub struct Log {
    /// The newest so many changes
    #[arg(short = 'n', value_name = "COUNT", default_value_t = 20, value_parser = number::<u32>)]
    count: u32,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Log {
    pub(super) async fn run(self, client: &mut Client) -> Result<String, Vec<String>> {
        let reply = answer(again(
            ask!(client.log, pb::LogRequest { count: self.count }),
            Does::Read,
            ANSWER_BOUND,
        ))
        .await?;
        let report = report(&reply, &TimeZone::system());
        Ok(if self.json { report.json() } else { report.text_within(terminal_columns()) })
    }
}

/// The name of whoever it was, or his number.
pub(in crate::commands) fn user(by: &pb::By) -> String {
    if by.user.is_empty() { by.uid.to_string() } else { by.user.clone() }
}

fn report(reply: &pb::LogReply, zone: &TimeZone) -> Report {
    let mut table = Table::new("changes", "", "<Time <User <What <From <To")
        .cuts(&[("From", 8), ("To", 12), ("What", 16), ("User", 8)])
        .drops(&["From", "Time"]);
    for change in &reply.changes {
        let by = change.by.clone().unwrap_or_default();
        table.rows.push(vec![
            moment(by.at_ns, zone),
            Cell::text(user(&by)),
            Cell::text(change.what.clone()),
            Cell::text(change.before.clone()),
            Cell::text(change.after.clone()),
        ]);
    }
    Report { tables: vec![table], ..Report::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal() {
        let change = pb::ChangeRow {
            by: Some(pb::By { uid: 7, user: "alice".into(), at_ns: 1_500_000_000 }),
            what: "application.max_resident".into(),
            before: "weights of 20 users: alice 3, bob 2, carol 9".into(),
            after: "weights of 21 users: alice 3, bob 2, carol 9, dave 1".into(),
        };
        let report = report(&pb::LogReply { changes: vec![change] }, &TimeZone::UTC);
        let golden = [
            "\
Time                    User  What                     From     To
1970-01-01 00:00:01.500 alice application.max_resident weights+ weights of 21 u+
",
            "\
User  What                  To
alice application.max_resi+ weights of +
",
        ];
        assert_eq!([80, 40].map(|columns| report.text_within(columns)), golden);
    }

    #[test]
    fn a_line_for_each_change() {
        let by = pb::By { uid: 7, user: "alice".into(), at_ns: 1_500_000_000 };
        let change = pb::ChangeRow {
            by: Some(by),
            what: "kill_grace".into(),
            before: "5s".into(),
            after: "7s".into(),
        };
        let by = Some(pb::By { uid: 7, at_ns: 2_000_000_000, ..Default::default() });
        let other =
            pb::ChangeRow { by, what: "NID 3".into(), before: "open".into(), ..change.clone() };
        let reply = pb::LogReply { changes: vec![change, other] };
        assert_eq!(
            report(&reply, &TimeZone::UTC).text(),
            "Time                    User  What       From To\n\
             1970-01-01 00:00:01.500 alice kill_grace 5s   7s\n\
             1970-01-01 00:00:02.000 7     NID 3      open 7s\n"
        );
    }
}
