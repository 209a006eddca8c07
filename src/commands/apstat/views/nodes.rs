//! `apstat -n`: the nodes as ALPS shows them, and their summary.

use crate::console::table::{Cell, Table};
use crate::rpc::pb;
use std::collections::BTreeSet;

/// Pages, in which ALPS counts memory.
const PAGE: u64 = 4096;

/// The nodes, with `verbose` also what ALPS has no column for; and their summary.
pub fn nodes(reply: &pb::ListReply, verbose: bool) -> [Table; 2] {
    let columns = match verbose {
        false => ">NID <Arch <State >HW >Rv >Pl >PgSz >Avl >Conf >Placed >PEs <Limits <Apids",
        true => {
            ">NID <Arch <State >HW >Rv >Pl >PgSz >Avl >Conf >Placed >PEs <Limits <Apids \
             <Host <Flavors <Configured <Region <Domain >Memory >Room >Residents <Rollout <Why"
        }
    };
    let (cuts, drops): (&[_], &[_]) = match verbose {
        false => (
            &[("Apids", 8), ("Limits", 6)],
            &["PgSz", "Conf", "Rv", "Placed", "Avl", "Arch", "Limits", "PEs"],
        ),
        true => (
            &[("Limits", 6), ("Apids", 8), ("Rollout", 8), ("Why", 16)],
            &[
                "PgSz",
                "Conf",
                "Rv",
                "Placed",
                "Avl",
                "Arch",
                "Limits",
                "Configured",
                "Residents",
                "Domain",
                "Rollout",
                "PEs",
                "Memory",
                "Host",
                "Region",
                "Room",
                "Apids",
                "Flavors",
            ],
        ),
    };
    let mut table = Table::new("nodes", "", columns).cuts(cuts).drops(drops);
    table.rows = reply.nodes.iter().map(|node| row(reply, node, verbose)).collect();
    [table, summary(reply)]
}

fn row(reply: &pb::ListReply, node: &pb::NodeRow, verbose: bool) -> Vec<Cell> {
    // Of each application on this node: its PEs here times what each may have.
    let placed: u64 = reply
        .applications
        .iter()
        .flat_map(|a| a.places.iter().map(move |p| (p, a.memory_per_pe)))
        .filter(|(p, _)| p.nid == node.nid)
        .map(|(p, each)| u64::from(p.pes).saturating_mul(each))
        .fold(0, u64::saturating_add)
        / PAGE;
    let known = |cell| if node.memory == 0 { Cell::None } else { cell };
    let mut cells = vec![
        Cell::Number(node.nid.into()),
        Cell::text(node.arch.clone()),
        Cell::text(node.state.clone()),
        Cell::Number(node.processors.into()),
        // Reservations are a batch system's; there are none yet, and each placement reserves its own.
        Cell::Number(node.used.into()),
        Cell::Number(node.used.into()),
        Cell::Amount("4K".into()),
        known(Cell::Number(node.memory / PAGE)),
        // Confirmed reservations: none yet.
        Cell::Number(0),
        Cell::Number(placed),
        Cell::Number(node.pes.into()),
        Cell::text(node.limits.join(",")),
        Cell::List(node.apids.clone()),
    ];
    if verbose {
        let other = node.flavors != node.configured_flavors;
        let configured = if other { node.configured_flavors.join(",") } else { String::new() };
        cells.extend([
            Cell::text(node.host.clone()),
            Cell::text(node.flavors.join(",")),
            Cell::text(configured),
            Cell::text(node.region.clone()),
            Cell::text(node.domain.clone()),
            known(Cell::Amount(mebibytes(node.memory))),
            Cell::Number(node.room.into()),
            Cell::Number(node.residents.into()),
            Cell::text(node.roll_out.clone()),
            Cell::text(node.why.clone()),
        ]);
    }
    cells
}

/// Rounded down: no node has more than is said.
fn mebibytes(bytes: u64) -> String {
    format!("{}M", bytes >> 20)
}

fn summary(reply: &pb::ListReply) -> Table {
    let count = |state: &str| reply.nodes.iter().filter(|n| n.state == state).count() as u64;
    let (all, down) =
        (reply.nodes.len() as u64, ["suspect", "foreign", "down"].map(count).iter().sum());
    // One row, for psched has one line of nodes, whatever they are made of.
    let machines = reply.nodes.iter().map(|n| n.arch.as_str()).filter(|a| !a.is_empty());
    let machines: Vec<&str> = machines.collect::<BTreeSet<_>>().into_iter().collect();
    let columns = "<arch >config >up >resv >use >avail >down";
    let mut summary = Table::new("summary", "Compute node summary", columns)
        .cuts(&[("arch", 6)])
        .drops(&["resv"]);
    summary.rows.push(vec![
        Cell::text(machines.join(",")),
        Cell::Number(all),
        Cell::Number(all - down),
        Cell::Number(count("pending")),
        Cell::Number(count("busy") + count("draining")),
        Cell::Number(count("free")),
        Cell::Number(down),
    ]);
    summary
}

#[cfg(test)]
mod tests {
    use super::super::notices;
    use super::super::tests::{narrow, node, of, reply, text};
    use super::*;

    #[test]
    fn nodes_and_their_summary() {
        let golden = "\
NID Arch   State   HW Rv Pl PgSz  Avl Conf Placed PEs Limits        Apids
  0 x86_64 busy     2  2  2   4K 1024    0    512   2 memory        7
  1 x86_64 busy     2  2  2   4K 1024    0    256   2 memory,memory 7,12
  2 -      suspect  2  0  0   4K 1024    0      0   0 -             -

Compute node summary
arch   config up resv use avail down
x86_64      3  2    0   2     0    1
";
        assert_eq!(text(nodes(&reply(), false)), golden);
        assert_eq!(
            notices(&reply(), true),
            ["psched: the store is nearly full", "NIDs 0-2: no cgroups: the tree is not ours"]
        );
        assert_eq!(notices(&reply(), false).len(), 1);
    }

    #[test]
    fn the_newest_note_comes_first() {
        let with = |nid, notes: &[(&str, u64)]| pb::NodeRow {
            notes: notes.iter().map(|(note, _)| (*note).to_owned()).collect(),
            notes_at_ns: notes.iter().map(|(_, at_ns)| *at_ns).collect(),
            ..node(nid, "free", 0, &[])
        };
        let of_before = pb::NodeRow {
            notes: vec!["not isolated".into(), "a release before".into()],
            ..node(2, "free", 0, &[])
        };
        let nodes = vec![
            with(0, &[("not isolated", 0), ("drained by ann", 5)]),
            with(1, &[("not isolated", 0), ("suspect: it is away", 9), ("drained by ann", 6)]),
            of_before,
        ];
        let reply = pb::ListReply { nodes, ..pb::ListReply::default() };
        assert_eq!(
            notices(&reply, true),
            [
                "NID 1: suspect: it is away",
                "NIDs 0-1: drained by ann",
                "NID 2: a release before",
                "NIDs 0-2: not isolated",
            ]
        );
    }

    #[test]
    fn narrow_nodes() {
        let mut reply = reply();
        for node in &mut reply.nodes {
            node.memory = 256 << 30;
            node.host = format!("rack-3-node-{}.cluster.example", node.nid);
            node.flavors = vec!["os".into(), "su".into(), "ap".into()];
            node.configured_flavors = vec!["ap".into()];
            (node.region, node.domain) = ("overflow".into(), "quick".into());
            node.why = "2 of 2 processors are in use".into();
        }
        reply.nodes[0].apids = (1..20).collect();
        let golden = [
            "\
NID Arch   State   HW Rv Pl PgSz      Avl Conf Placed PEs Limits        Apids
  0 x86_64 busy     2  2  2   4K 67108864    0    512   2 memory        1,2,3,4+
  1 x86_64 busy     2  2  2   4K 67108864    0    256   2 memory,memory 7,12
  2 -      suspect  2  0  0   4K 67108864    0      0   0 -             -

Compute node summary
arch   config up resv use avail down
x86_64      3  2    0   2     0    1
",
            "\
NID State   HW Pl PEs Limits    Apids
  0 busy     2  2   2 memory    1,2,3,4+
  1 busy     2  2   2 memory,m+ 7,12
  2 suspect  2  0   0 -         -

Compute node summary
arch   config up resv use avail down
x86_64      3  2    0   2     0    1
",
        ];
        assert_eq!(narrow(&of(nodes(&reply, false))), golden);
        let golden = [
            "\
NID State   HW Pl Apids      Flavors  Region   Room Why
  0 busy     2  2 1,2,3,4,5+ os,su,ap overflow    0 2 of 2 processors are in use
  1 busy     2  2 7,12       os,su,ap overflow    0 2 of 2 processors are in use
  2 suspect  2  0 -          os,su,ap overflow    0 2 of 2 processors are in use

Compute node summary
arch   config up resv use avail down
x86_64      3  2    0   2     0    1
",
            "\
NID State   HW Pl Why
  0 busy     2  2 2 of 2 processors are+
  1 busy     2  2 2 of 2 processors are+
  2 suspect  2  0 2 of 2 processors are+

Compute node summary
arch   config up resv use avail down
x86_64      3  2    0   2     0    1
",
        ];
        assert_eq!(narrow(&of(nodes(&reply, true))), golden);
    }

    #[test]
    fn verbose_says_what_stands_in_the_way() {
        let busy = pb::NodeRow {
            arch: "x86_64".into(),
            host: "n0".into(),
            flavors: vec!["os".into(), "su".into(), "ap".into()],
            configured_flavors: vec!["ap".into()],
            region: "overflow".into(),
            domain: "quick".into(),
            residents: 2,
            roll_out: "no swap".into(),
            why: "2 of 2 processors are in use".into(),
            ..node(0, "busy", 2, &[7])
        };
        let free = pb::NodeRow {
            arch: "aarch64".into(),
            host: "n1".into(),
            flavors: vec!["ap".into()],
            configured_flavors: vec!["ap".into()],
            room: 2,
            memory: 0,
            ..node(1, "free", 0, &[])
        };
        let reply = pb::ListReply { nodes: vec![busy, free], ..pb::ListReply::default() };
        let golden = "\
NID Arch    State HW Rv Pl PgSz  Avl Conf Placed PEs Limits Apids Host Flavors  Configured Region   Domain Memory Room Residents Rollout Why
  0 x86_64  busy   2  2  2   4K 1024    0      0   2 memory 7     n0   os,su,ap ap         overflow quick      4M    0         2 no swap 2 of 2 processors are in use
  1 aarch64 free   2  0  0   4K    -    0      0   0 -      -     n1   ap       -          -        -           -    2         0 -       -

Compute node summary
arch           config up resv use avail down
aarch64,x86_64      2  2    0   1     1    0
";
        assert_eq!(text(nodes(&reply, true)), golden);
    }
}
