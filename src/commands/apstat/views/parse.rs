//! `apstat --nodes --parse`: the nodes for scripts, one line each.
//!
//! # Problem
//! A table is for eyes: its columns move, a name may have a space in it, and `busy` does not say whether
//! another PE would fit. Cplant's pingd had an answer that shells and awk could take as it came.
//!
//! # Approach
//! Its answer: fields between colons, `_` where there is nothing, no heading, and one word for what may
//! be done with the node.
//!
//! ```text
//!   4:n2:free:ap:8:0:8:33285996544:0:_:_:_:_:x86_64
//!   5:n2:busy:ap:8:8:0:33285996544:8:12,13:alice,bob:3600:8 of 8 processors are in use:x86_64
//! ```
//!
//! Whatever a user or a host is called, a line has as many colons as any other: `%`, `:`, `,`, control
//! characters and all that is not ASCII are written `%XX`, byte by byte. Fields are only ever added at
//! the end.

use crate::rpc::pb;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A line for each node.
pub fn parse(reply: &pb::ListReply) -> String {
    let applications: BTreeMap<u64, &pb::ApplicationRow> =
        reply.applications.iter().map(|row| (super::apid(row), row)).collect();
    reply.nodes.iter().map(|node| line(node, &applications, reply.now_ns) + "\n").collect()
}

fn line(
    node: &pb::NodeRow,
    applications: &BTreeMap<u64, &pb::ApplicationRow>,
    now_ns: u64,
) -> String {
    let here = || node.apids.iter().filter_map(|apid| applications.get(apid));
    // The first of them that was launched has been there for the longest.
    let since = here().map(|row| row.launched_at_ns).filter(|at| *at > 0).min();
    let seconds = since.map(|at| now_ns.saturating_sub(at) / 1_000_000_000);
    let number = |n: u64| if n == 0 { "_".to_owned() } else { n.to_string() };
    let fields = [
        node.nid.to_string(),
        field(&node.host),
        state(node).to_owned(),
        list(&node.flavors),
        node.processors.to_string(),
        node.used.to_string(),
        node.room.to_string(),
        number(node.memory),
        node.pes.to_string(),
        list(node.apids.iter().map(u64::to_string)),
        list(here().map(|row| super::user_name(row))),
        seconds.map_or_else(|| "_".into(), |s| s.to_string()),
        field(&node.why),
        field(&node.arch),
    ];
    fields.join(":")
}

/// What may be done with a node, in one word.
///
/// What an administrator has said comes first, then what is wrong with it, then what is on it.
fn state(node: &pb::NodeRow) -> &'static str {
    match node.state.as_str() {
        "down" => "down",
        "foreign" => "trouble",
        "drained" | "draining" => "drained",
        "suspect" if node.seen => "suspect",
        "suspect" => "down",
        _ if node.retired => "trouble",
        "pending" => "pending",
        "free" | "busy" if node.room > 0 => "free",
        "free" | "busy" => "busy",
        // Of a psched that knows more of them: nothing to build on.
        _ => "trouble",
    }
}

/// Values in one field, between commas.
fn list(values: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let all: Vec<String> = values.into_iter().map(|value| field(value.as_ref())).collect();
    if all.is_empty() { "_".into() } else { all.join(",") }
}

/// A value without a colon, a comma or the end of a line in it; `_` for none.
fn field(value: &str) -> String {
    match value {
        "" => return "_".into(),
        // Not the one for none.
        "_" => return "%5F".into(),
        _ => {}
    }
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b' '..=b'~' if !b"%:,".contains(&byte) => out.push(byte.into()),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW, node, place, row};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Each state, and what leads to it.
    #[test]
    fn every_state_has_one_meaning() {
        let of = |nid, state: &str, seen, room, used, apids: &[u64], why: &str| pb::NodeRow {
            host: "n".into(),
            flavors: vec!["ap".into()],
            processors: 2,
            why: why.into(),
            seen,
            room,
            ..node(nid, state, used, apids)
        };
        let mut old = row(12, "bob", 2, "running", "x");
        (old.places, old.launched_at_ns) = (vec![place(2, &[0], 1)], NOW - 3_600 * SECOND);
        let mut new = row(13, "", 1, "running", "y");
        (new.places, new.launched_at_ns) = (vec![place(2, &[1], 1)], NOW - SECOND);
        let placed = row(14, "alice", 1, "placed", "z");
        let retired = of(9, "busy", true, 0, 1, &[14], "no longer in psched.yaml");
        let login = pb::NodeRow { flavors: vec!["os".into(), "su".into()], ..Default::default() };
        let login = pb::NodeRow { nid: 10, state: "free".into(), processors: 1, ..login };
        let nodes = vec![
            of(0, "free", true, 2, 0, &[], ""),
            // It has room for one more.
            of(1, "busy", true, 1, 1, &[13], "1 of 2 processors are in use"),
            of(2, "busy", true, 0, 2, &[12, 13], "2 of 2 processors are in use"),
            of(
                3,
                "pending",
                true,
                1,
                1,
                &[14],
                "an application that is placed there is not \
                                                 launched yet",
            ),
            of(4, "suspect", true, 0, 0, &[], "its apinit does not answer"),
            of(5, "suspect", false, 0, 0, &[], "no apinit has ever offered it"),
            of(6, "down", true, 0, 0, &[], "declared down by root"),
            of(7, "draining", true, 0, 1, &[12], "drained by root: fan"),
            of(8, "foreign", true, 0, 0, &[], "another psched's"),
            pb::NodeRow { retired: true, ..retired },
            login,
            of(11, "drained", true, 0, 0, &[], "drained by root"),
            of(12, "something new", true, 2, 0, &[], ""),
        ];
        let applications = vec![old, new, placed];
        let reply = pb::ListReply { now_ns: NOW, applications, nodes, ..Default::default() };
        let golden = "0:n:free:ap:2:0:2:4194304:0:_:_:_:_:x86_64
\
                      1:n:free:ap:2:1:1:4194304:1:13:61234:1:1 of 2 processors are in \
                      use:x86_64
2:n:busy:ap:2:2:0:4194304:2:12,13:bob,61234:3600:2 of 2 \
                      processors are in use:x86_64
3:n:pending:ap:2:1:1:4194304:1:14:alice:_:an \
                      application that is placed there is not launched yet:x86_64
\
                      4:n:suspect:ap:2:0:0:4194304:0:_:_:_:its apinit does not answer:_
\
                      5:n:down:ap:2:0:0:4194304:0:_:_:_:no apinit has ever offered it:_
\
                      6:n:down:ap:2:0:0:4194304:0:_:_:_:declared down by root:x86_64
\
                      7:n:drained:ap:2:1:0:4194304:1:12:bob:3600:drained by root%3A fan:x86_64
\
                      8:n:trouble:ap:2:0:0:4194304:0:_:_:_:another psched's:x86_64
\
                      9:n:trouble:ap:2:1:0:4194304:1:14:alice:_:no longer in psched.yaml:x86_64
\
                      10:_:busy:os,su:1:0:0:_:0:_:_:_:_:_
\
                      11:n:drained:ap:2:0:0:4194304:0:_:_:_:drained by root:x86_64
\
                      12:n:trouble:ap:2:0:2:4194304:0:_:_:_:_:x86_64
";
        assert_eq!(parse(&reply), golden);
    }

    /// Whoever names hosts and users, a line is a line.
    #[test]
    fn nothing_in_a_name_makes_a_field_or_a_line() {
        for (name, written) in [
            ("a:b", "a%3Ab"),
            ("a\nb", "a%0Ab"),
            ("a,b", "a%2Cb"),
            ("100%", "100%25"),
            ("_", "%5F"),
            ("a_b", "a_b"),
            ("", "_"),
            ("é\u{2028}\u{85}", "%C3%A9%E2%80%A8%C2%85"),
            ("\x1b[2J\x7f", "%1B[2J%7F"),
            ("Jo Do", "Jo Do"),
        ] {
            assert_eq!(field(name), written);
            let mut its = row(7, name, 1, "running", "x");
            its.places = vec![place(0, &[0], 1)];
            let on = pb::NodeRow {
                host: name.into(),
                arch: name.into(),
                why: name.into(),
                flavors: vec![name.into(), name.into()],
                ..node(0, "busy", 1, &[7])
            };
            let reply =
                pb::ListReply { applications: vec![its], nodes: vec![on], ..Default::default() };
            let text = parse(&reply);
            assert_eq!(text.lines().count(), 1, "{text:?}");
            assert_eq!(text.matches(':').count(), 13, "{text:?}");
        }
    }
}
