//! `apstat --stacks APID`: where the threads of all PEs stand.
//!
//! Stacks are written as they come, PE by PE; JSON when all of them have come. What is printed in all is bounded: a
//! program may have many thousands of PEs, and each a long text.

use crate::commands::pages;
use crate::console::stdout::write_out;
use crate::console::table::json_text;
use crate::rpc::pb;
use crate::rpc::pb::psched_client::PschedClient;
use crate::steering::steers;
use serde_json::{Value, json};
use std::time::Duration;
use tonic::transport::Channel;

/// How long psched may take for a page: it waits for turns of the gang, and for debuggers.
const PAGE_BOUND: Duration = Duration::from_secs(120);
/// Bytes of stacks, in all.
const ALL_MAX: usize = 64 << 20;

/// What has come so far.
#[derive(Debug, Default)]
struct Stacks {
    apid: u64,
    rows: usize,
    /// Those that have stacks.
    good: usize,
    bytes: usize,
    first_why: String,
    json: Option<Vec<Value>>,
}

/// Asks, and writes the answers.
pub(super) async fn show(
    client: &mut PschedClient<Channel>,
    apid: u64,
    as_json: bool,
) -> Result<(), String> {
    let json = as_json.then(Vec::new);
    let mut stacks = Stacks { apid, json, ..Stacks::default() };
    let mut first = 0;
    let end = loop {
        let (rows, next) = match pages::stacks(client, apid, first, PAGE_BOUND).await {
            Ok(page) => page,
            // What has come is told all the same.
            Err(why) if stacks.rows > 0 => break Err(format!("from rank {first} on: {why}")),
            Err(why) => return Err(why),
        };
        let text = stacks.take(rows);
        if !text.is_empty() {
            write_out(&text)?;
        }
        match next {
            Some(next) if stacks.bytes > ALL_MAX => {
                break Err(format!(
                    "from rank {next} on: left out, as those before have {} MiB of stacks",
                    ALL_MAX >> 20
                ));
            }
            Some(next) => first = next,
            None => break Ok(()),
        }
    };
    if let Some(rows) = stacks.json.take() {
        let whole = json!({ "application": apid, "pes": rows });
        write_out(&json_text(&whole))?;
    }
    end.and_then(|()| stacks.any())
}

impl Stacks {
    /// Some more: what to write of them now.
    fn take(&mut self, rows: Vec<pb::StacksRow>) -> String {
        let mut text = String::new();
        for row in rows {
            self.bytes += row.text.len();
            self.good += usize::from(row.why_not.is_empty());
            if self.rows == 0 {
                self.first_why.clone_from(&row.why_not);
            }
            match &mut self.json {
                Some(all) => all.push(value(&row)),
                None => {
                    text.push_str(if self.rows > 0 { "\n" } else { "" });
                    text.push_str(&section(&row));
                }
            }
            self.rows += 1;
        }
        text
    }

    /// It is a failure if nothing could be had.
    fn any(&self) -> Result<(), String> {
        match self.good {
            0 if self.rows > 0 => Err(format!(
                "no stacks of application {}: of rank 0, {}",
                self.apid,
                clean(&self.first_why)
            )),
            _ => Ok(()),
        }
    }
}

/// `PE 3, NID 1, host n7, pid 4711`, and below it the stacks.
fn section(row: &pb::StacksRow) -> String {
    let pb::StacksRow { rank, nid, pid, .. } = row;
    let mut text = format!("PE {rank}, NID {nid}, host {}", clean(&row.host));
    if *pid > 0 {
        text += &format!(", pid {pid}");
    }
    if !row.why_not.is_empty() {
        return format!("{text}: no stacks: {}\n", clean(&row.why_not));
    }
    text += "\n";
    for line in row.text.lines() {
        text += &clean(line);
        text.push('\n');
    }
    if row.cut {
        text += "(the rest of this PE is left out)\n";
    }
    text
}

fn value(row: &pb::StacksRow) -> Value {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "rank": row.rank,
        "nid": row.nid,
        "host": some(&row.host),
        "pid": (row.pid > 0).then_some(row.pid),
        "stacks": some(&row.text),
        "cut": row.cut,
        "why": some(&row.why_not),
    })
}

/// What a terminal may be given: names in it are of the program's making, which may be another user's.
fn clean(text: &str) -> String {
    text.chars().map(|c| if steers(c) && c != '\t' { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rank: u32, text: &str, why_not: &str) -> pb::StacksRow {
        let (text, why_not) = (text.to_owned(), why_not.to_owned());
        let pid = 70 + rank;
        pb::StacksRow { rank, nid: rank / 2, host: "n1".into(), pid, text, cut: false, why_not }
    }

    #[test]
    fn each_pe_has_a_heading_and_its_stacks() {
        let mut stacks = Stacks::default();
        let text = stacks.take(vec![row(0, "Thread 1:\n#0 f\u{1b}[2J\n", "")]);
        assert_eq!(text, "PE 0, NID 0, host n1, pid 70\nThread 1:\n#0 f?[2J\n");
        let cut = pb::StacksRow { cut: true, ..row(3, "#0 g\n", "") };
        let text = stacks.take(vec![row(2, "", "it has ended"), cut]);
        assert_eq!(
            text,
            "\nPE 2, NID 1, host n1, pid 72: no stacks: it has ended\n\nPE 3, NID 1, host n1, pid 73\n\
             #0 g\n(the rest of this PE is left out)\n"
        );
        assert_eq!((stacks.rows, stacks.good, stacks.any()), (3, 2, Ok(())));
    }

    #[test]
    fn nothing_at_all_is_a_failure() {
        let mut stacks = Stacks { apid: 7, json: Some(Vec::new()), ..Stacks::default() };
        assert_eq!(stacks.take(vec![row(0, "", "it is traced"), row(1, "", "other")]), "");
        let why = "no stacks of application 7: of rank 0, it is traced";
        assert_eq!(stacks.any(), Err(why.to_owned()));
        let rows = stacks.json.expect("asked for");
        assert_eq!(rows[1]["why"], "other");
        assert!(rows[1]["stacks"].is_null());
    }
}
