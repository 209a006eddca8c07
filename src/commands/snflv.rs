//! `snflv`: what nodes are for.
//!
//! Without flavors it shows those in force, nodes that are alike in a line; with flavors it gives them to
//! nodes, and `--reset` takes that back. psched decides, and answers once it is on its record.
//!
//! ```text
//! $ snflv
//! Flavors  Nodes NIDs From                                   Configured
//! su os        1 0    psched.yaml                            -
//! ap           5 1-5  psched.yaml                            -
//! su os ap     2 6-7  snflv (alice, 2026-03-01 18:00:04.211) ap
//! ```

use super::pages;
use super::psmgr::log::user;
use super::psmgr::nodes::{Nids, nids};
use super::psmgr::{ANSWER_BOUND, Client, client, done};
use super::question::{Does, again, ask, asked, parsed};
use crate::console::stdout::write_out;
use crate::console::table::{Cell, Report, Table, moment, terminal_columns};
use crate::machine::{Flavor, Flavors, Nid, format_nids};
use crate::rpc::pb;
use clap::Parser;
use jiff::tz::TimeZone;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::process::ExitCode;

/// Shows what nodes are for, and sets it.
#[derive(Parser, Debug)]
#[command(
    name = "snflv",
    version,
    max_term_width = 80,
    override_usage = "snflv [NIDS] [--json]\n       snflv [--dry-run] NIDS FLAVORS...\n       \
                      snflv [--dry-run] --reset NIDS",
    long_about = "Shows what nodes are for, and sets it. Only administrators can set \
                  flavors.\n\nA node has one or more of the flavors su (support: logins, \
                  commands), os (services of the system) and ap (applications); at least one \
                  node has each of them. Flavors that are set outlive a restart of psched and a \
                  reload of psched.yaml, until --reset. The exit status is 0 if all was done; 1 \
                  if not, and then nothing was changed; 2 if the command line is wrong."
)]
struct Cli {
    /// The nodes: 0-3,7; all if left out
    #[arg(value_name = "NIDS", value_parser = nids)]
    nids: Option<Nids>,
    /// The flavors to set: su, os, ap, separated by spaces or commas
    #[arg(value_name = "FLAVORS", value_parser = flavors)]
    flavors: Vec<Flavors>,
    /// Remove flavors that snflv has set: those of psched.yaml count again
    #[arg(long, requires = "nids", conflicts_with = "flavors")]
    reset: bool,
    /// Change nothing; show what would change
    #[arg(long, requires = "nids")]
    dry_run: bool,
    /// As JSON
    #[arg(long, conflicts_with_all = ["flavors", "reset", "dry_run"])]
    json: bool,
}

fn flavors(text: &str) -> Result<Flavors, String> {
    let names = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|name| !name.is_empty());
    let flavor = |name| {
        Flavor::parse(name)
            .ok_or_else(|| format!("{name} is not a flavor: the flavors are su, os and ap"))
    };
    let flavors: Flavors = names.map(flavor).collect::<Result<_, String>>()?;
    match flavors.is_empty() {
        true => Err("a node has at least one flavor: su, os, ap".into()),
        false => Ok(flavors),
    }
}

/// Runs it with this command line, and gives the status to exit with.
pub fn run(words: Vec<OsString>) -> ExitCode {
    let line = Cli::try_parse_from(words).and_then(|cli| match cli.wrong() {
        Some(text) => {
            let mut command = <Cli as clap::CommandFactory>::command();
            Err(command.error(clap::error::ErrorKind::ValueValidation, text))
        }
        None => Ok(cli),
    });
    match parsed("snflv", line, 2) {
        Ok(cli) => asked("snflv", async {
            let text = cli.run(&mut client().await?).await?;
            write_out(&text).map_err(|text| vec![text])
        }),
        Err(status) => status,
    }
}

impl Cli {
    /// What clap can't see is wrong with the command line.
    fn wrong(&self) -> Option<String> {
        let sets = self.reset || !self.flavors.is_empty();
        let text = "--dry-run shows what would change: give the flavors to set, or --reset";
        (self.dry_run && !sets).then(|| text.to_owned())
    }

    async fn run(self, client: &mut Client) -> Result<String, Vec<String>> {
        let nids = self.nids.map(|Nids(nids)| nids);
        let Some(set) = nids.clone().filter(|_| self.reset || !self.flavors.is_empty()) else {
            let reply = pages::list(client, pb::ListRequest::default(), ANSWER_BOUND)
                .await
                .map_err(|text| vec![text])?;
            let report = report(&reply, nids.as_ref(), &TimeZone::system()).map_err(|e| vec![e])?;
            return Ok(if self.json {
                report.json()
            } else {
                report.text_within(terminal_columns())
            });
        };
        let flavors = self.flavors.into_iter().fold(Flavors::default(), Flavors::and);
        let request = pb::SetFlavorsRequest {
            nids: set.into_iter().map(|nid| nid.0).collect(),
            flavors: flavors.iter().map(|flavor| flavor.name().to_owned()).collect(),
            reset: self.reset,
            dry_run: self.dry_run,
        };
        let said =
            done(again(ask!(client.set_flavors, request), Does::Change, ANSWER_BOUND)).await?;
        let head =
            if self.dry_run { "nothing was changed; this would be the result:\n" } else { "" };
        Ok(format!("{head}{said}"))
    }
}

/// The flavors of these nodes, or of all.
fn report(
    reply: &pb::ListReply,
    only: Option<&BTreeSet<Nid>>,
    zone: &TimeZone,
) -> Result<Report, String> {
    if let Some(only) = only {
        let known: BTreeSet<Nid> = reply.nodes.iter().map(|node| Nid(node.nid)).collect();
        let unknown: Vec<Nid> = only.difference(&known).copied().collect();
        if !unknown.is_empty() {
            let noun = if unknown.len() == 1 { "NID" } else { "NIDs" };
            return Err(format!(
                "{noun} {}: not in psched.yaml (snflv without arguments lists the nodes)",
                format_nids(unknown)
            ));
        }
    }
    // In order of their first NIDs.
    let mut lines: Vec<(&pb::NodeRow, Vec<Nid>)> = Vec::new();
    let mut at = BTreeMap::new();
    for node in reply.nodes.iter().filter(|node| only.is_none_or(|o| o.contains(&Nid(node.nid)))) {
        let by = node.flavors_by.as_ref().map(|by| (by.uid, &by.user, by.at_ns));
        let alike = (&node.flavors, &node.configured_flavors, by);
        let line = *at.entry(alike).or_insert_with(|| {
            lines.push((node, Vec::new()));
            lines.len() - 1
        });
        lines[line].1.push(Nid(node.nid));
    }
    let mut table = Table::new("flavors", "", "<Flavors >Nodes <NIDs <From <Configured")
        .cuts(&[("From", 11)])
        .wraps("NIDs")
        .drops(&["Nodes", "From", "Configured"]);
    for (node, nids) in lines {
        let pb::NodeRow { flavors, configured_flavors: configured, flavors_by, .. } = node;
        let from = match flavors_by {
            Some(by) => format!("snflv ({}, {})", user(by), moment(by.at_ns, zone).shown()),
            None => "psched.yaml".into(),
        };
        let other = if flavors == configured { String::new() } else { configured.join(" ") };
        table.rows.push(vec![
            Cell::text(flavors.join(" ")),
            Cell::Number(nids.len() as u64),
            Cell::text(format_nids(nids)),
            Cell::text(from),
            Cell::text(other),
        ]);
    }
    Ok(Report { tables: vec![table], ..Report::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(nid: u32, flavors: &str, configured: &str, by: Option<&str>) -> pb::NodeRow {
        let names = |text: &str| text.split(' ').map(str::to_owned).collect();
        let by = by.map(|user| pb::By { uid: 7, user: user.into(), at_ns: 1_500_000_000 });
        pb::NodeRow {
            nid,
            flavors: names(flavors),
            configured_flavors: names(configured),
            flavors_by: by,
            ..Default::default()
        }
    }

    #[test]
    fn nodes_that_are_alike_are_a_line() {
        let nodes = vec![
            node(0, "su os", "su os", None),
            node(1, "ap", "ap", None),
            node(2, "su os ap", "ap", Some("alice")),
            node(3, "ap", "ap", None),
            node(4, "su os ap", "ap", Some("alice")),
            node(5, "ap", "ap", Some("")),
        ];
        let reply = pb::ListReply { nodes, ..Default::default() };
        let shown = |only: Option<&BTreeSet<Nid>>| report(&reply, only, &TimeZone::UTC);
        assert_eq!(
            shown(None).expect("known").text(),
            "Flavors  Nodes NIDs From                                   Configured\n\
             su os        1 0    psched.yaml                            -\n\
             ap           2 1,3  psched.yaml                            -\n\
             su os ap     2 2,4  snflv (alice, 1970-01-01 00:00:01.500) ap\n\
             ap           1 5    snflv (7, 1970-01-01 00:00:01.500)     -\n"
        );
        let only = [Nid(4), Nid(0)].into();
        let some: serde_json::Value =
            serde_json::from_str(&shown(Some(&only)).expect("known").json()).expect("JSON");
        assert_eq!(some["flavors"][1]["nids"], "4");
        assert_eq!(some["flavors"][1]["configured"], "ap");
        assert_eq!(some["flavors"].as_array().map(Vec::len), Some(2));
        let strange = [Nid(0), Nid(7), Nid(8)].into();
        assert_eq!(
            shown(Some(&strange)).expect_err("unknown"),
            "NIDs 7-8: not in psched.yaml (snflv without arguments lists the nodes)"
        );
    }

    #[test]
    fn a_narrow_terminal() {
        let odd = (0..20).map(|n| node(2 * n, "su os ap", "ap", Some("alice")));
        let nodes = odd.chain([node(1, "ap", "ap", None)]).collect();
        let reply = pb::ListReply { nodes, ..Default::default() };
        let report = report(&reply, None, &TimeZone::UTC).expect("known");
        let golden = [
            "\
Flavors  Nodes NIDs                                       From        Configured
su os ap    20 0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,   snflv (ali+ ap
               30,32,34,36,38
ap           1 1                                          psched.yaml -
",
            "\
Flavors  NIDs
su os ap 0,2,4,6,8,10,12,14,16,18,20,22,
         24,26,28,30,32,34,36,38
ap       1
",
        ];
        assert_eq!([80, 40].map(|columns| report.text_within(columns)), golden);
    }

    #[test]
    fn command_lines() {
        let parse = |words: &[&str]| {
            let line = Cli::try_parse_from([&["snflv"], words].concat());
            line.ok().filter(|cli| cli.wrong().is_none())
        };
        let all = |words: &[&str]| {
            let cli = parse(words).expect("good");
            cli.flavors.into_iter().fold(Flavors::default(), Flavors::and).to_string()
        };
        assert_eq!(all(&[]), "");
        assert_eq!(all(&["0-3,7", "--json"]), "");
        for words in [
            &["4-7", "os su ap"][..],
            &["4-7", "os,su,ap"],
            &["4-7", "os", "su", "ap", "--dry-run"],
            &["4-7", "os, su", "ap ap"],
        ] {
            assert_eq!(all(words), "su os ap", "{words:?}");
        }
        assert!(parse(&["3", "--reset", "--dry-run"]).is_some());
        for words in [
            &["x"][..],
            &["3-1"],
            &["3", "app"],
            &["3", "ap", "xx"],
            &["3", ""],
            &["3", ","],
            &["--reset"],
            &["--dry-run"],
            &["3", "--dry-run"],
            &["3", "ap", "--reset"],
            &["3", "ap", "--json"],
            &["3", "--reset", "--json"],
        ] {
            assert!(parse(words).is_none(), "{words:?}");
        }
    }
}
