//! Who changed what, and when.

use super::{Client, answer};
use crate::commands::question::number;
use crate::console::table::{Cell, Report, Table, moment};
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
        let reply = answer(client.log(pb::LogRequest { count: self.count })).await?;
        let report = report(&reply, &TimeZone::system());
        Ok(if self.json { report.json() } else { report.text() })
    }
}

/// The name of whoever it was, or his number.
pub(in crate::commands) fn user(by: &pb::By) -> String {
    if by.user.is_empty() { by.uid.to_string() } else { by.user.clone() }
}

fn report(reply: &pb::LogReply, zone: &TimeZone) -> Report {
    let mut table = Table::new("changes", "", "<Time <User <What <From <To");
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
