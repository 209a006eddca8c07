//! What can be retuned: shown, set and put back.

use super::log::user;
use super::{ANSWER_BOUND, Client, answer, done};
use crate::commands::question::{Does, again, ask};
use crate::console::table::{Cell, Report, Table, moment, terminal_columns};
use crate::rpc::pb;
use crate::variables;
use clap::Args;
use jiff::tz::TimeZone;

/// Shows variables.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = help())]
pub struct Show {
    /// Only variables whose names match: a pattern with * and ?, or a part of the name
    #[arg(value_name = "PATTERN", default_value = "")]
    pattern: String,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Sets variables.
#[derive(Args, Clone, Debug)]
#[command(
    after_long_help = help(),
    override_usage = "psmgr set NAME=VALUE...\n       psmgr set --reset NAME..."
)]
pub struct Set {
    /// Remove values that psmgr has set: those of psched.yaml count again, or the defaults
    #[arg(long)]
    reset: bool,
    /// Variables and their values; with --reset, names only
    #[arg(value_name = "NAME=VALUE", required = true)]
    values: Vec<String>,
}

/// The variables that this release knows.
fn help() -> String {
    let line = |row: &variables::Definition| {
        let (range, default) = (row.range(), row.default_text());
        format!("  {}\n      {} ({range}, default {default})\n", row.name, row.meaning)
    };
    format!("Variables:\n{}", variables::all().map(line).collect::<String>())
}

impl Show {
    pub(super) async fn run(self, client: &mut Client) -> Result<String, Vec<String>> {
        let mut reply =
            answer(again(ask!(client.show, pb::ShowRequest {}), Does::Read, ANSWER_BOUND)).await?;
        reply.variables.retain(|row| matches(&self.pattern, &row.name));
        if reply.variables.is_empty() {
            return Err(vec![format!(
                "no variable matches {}; psmgr show lists all",
                self.pattern
            )]);
        }
        let report = report(&reply, &TimeZone::system());
        Ok(if self.json { report.json() } else { report.text_within(terminal_columns()) })
    }
}

impl Set {
    /// What is wrong with the command line, if anything is.
    pub(super) fn check(&self) -> Result<(), String> {
        for text in &self.values {
            match (self.reset, text.split_once('=')) {
                (true, Some((name, _))) => {
                    return Err(format!("--reset takes a name without a value: {name}"));
                }
                (false, None) => return Err(format!("{text} lacks its value: give {text}=VALUE")),
                (false, Some(("", _))) => {
                    return Err(format!("{text} lacks the name of a variable: give NAME{text}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) async fn run(self, client: &mut Client) -> Result<String, Vec<String>> {
        let value = |text: &String| match text.split_once('=') {
            Some((name, value)) => pb::SetValue { name: name.into(), value: Some(value.into()) },
            None => pb::SetValue { name: text.clone(), value: None },
        };
        let values = self.values.iter().map(value).collect();
        done(again(ask!(client.set, pb::SetRequest { values }), Does::Change, ANSWER_BOUND)).await
    }
}

fn report(reply: &pb::ShowReply, zone: &TimeZone) -> Report {
    let mut table = Table::new("variables", "", "<Name >Value >Default <Range <From")
        .cuts(&[("From", 11), ("Range", 10), ("Value", 12), ("Name", 30)])
        .drops(&["Range", "Default", "From"]);
    let mut notices: Vec<String> = reply.notices.iter().map(|n| format!("psched: {n}")).collect();
    for row in &reply.variables {
        let from = match (&row.by, row.source.as_str()) {
            (Some(by), source) => {
                let at = moment(by.at_ns, zone).shown();
                format!("{source} ({}, {at})", user(by))
            }
            (None, source) => source.to_owned(),
        };
        table.rows.push(vec![
            Cell::text(row.name.clone()),
            Cell::Amount(row.value.clone()),
            Cell::Amount(row.default.clone()),
            Cell::text(row.range.clone()),
            Cell::text(from),
        ]);
        if !row.until_start.is_empty() {
            notices.push(format!("{} is {} until psched is restarted", row.name, row.until_start));
        }
    }
    Report { tables: vec![table], notices, ..Report::default() }
}

/// Whether a name is meant: `*` is any letters, `?` one; without either, a part is enough.
fn matches(pattern: &str, name: &str) -> bool {
    if !pattern.contains(['*', '?']) {
        return name.contains(pattern);
    }
    // What of the name the pattern so far may have taken: one bit a length.
    let letters: Vec<char> = name.chars().collect();
    let mut taken = vec![false; letters.len() + 1];
    taken[0] = true;
    for sign in pattern.chars() {
        let mut next = vec![false; letters.len() + 1];
        for end in 0..=letters.len() {
            next[end] = match sign {
                '*' => taken[end] || end > 0 && next[end - 1],
                '?' => end > 0 && taken[end - 1],
                letter => end > 0 && taken[end - 1] && letters[end - 1] == letter,
            };
        }
        taken = next;
    }
    taken[letters.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name) in [
            ("", "kill_grace"),
            ("grace", "kill_grace"),
            ("kill*", "kill_grace"),
            ("*grace", "kill_grace"),
            ("*", "x"),
            ("k*l*e", "kill_grace"),
            ("?ill_gr?ce", "kill_grace"),
            ("application.*", "application.floor"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("graces", "kill_grace"), ("grace*", "kill_grace"), ("?", "xy"), ("a*b", "acbd")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_narrow_terminal() {
        let row = pb::VariableRow {
            name: "application.max_resident".into(),
            value: "1000".into(),
            default: "16".into(),
            range: "1 to 1000000, or none".into(),
            source: "psmgr".into(),
            by: Some(pb::By { uid: 7, user: "alice".into(), at_ns: 1_000_000_000 }),
            ..Default::default()
        };
        let reply = pb::ShowReply { variables: vec![row], ..Default::default() };
        let report = report(&reply, &TimeZone::UTC);
        let golden = [
            "\
Name                     Value Default Range                 From
application.max_resident  1000      16 1 to 1000000, or none psmgr (alice, 1970+
",
            "\
Name                     Value
application.max_resident  1000
",
        ];
        assert_eq!([80, 40].map(|columns| report.text_within(columns)), golden);
    }

    #[test]
    fn shown_with_where_it_comes_from() {
        let row = pb::VariableRow {
            name: "history_max".into(),
            value: "7".into(),
            default: "10000".into(),
            range: "0 to 9".into(),
            source: "psmgr".into(),
            by: Some(pb::By { uid: 7, user: "alice".into(), at_ns: 1_000_000_000 }),
            until_start: "5".into(),
            ..Default::default()
        };
        let reply = pb::ShowReply { variables: vec![row], ..Default::default() };
        assert_eq!(
            report(&reply, &TimeZone::UTC).text(),
            "Name        Value Default Range  From\n\
             history_max     7   10000 0 to 9 psmgr (alice, 1970-01-01 00:00:01.000)\n\n\
             history_max is 5 until psched is restarted\n"
        );
        assert!(help().contains("\n  kill_grace\n      time between TERM and KILL"));
    }
}
