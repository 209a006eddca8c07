//! psched.yaml, by examples and at random.

mod regions;

use super::*;
use crate::machine::format_nids;
use crate::variables::Variables;
use proptest::prelude::*;
use std::time::Duration;

const SHIPPED: &str = include_str!("../../config/psched.yaml");
const X1: &str = include_str!("../../config/x1.yaml");
const MANUAL: &str = include_str!("../../man/psched.yaml.5");

fn said(text: &str) -> Vec<String> {
    match read(text) {
        Ok(config) => panic!("no problem was found: {config:?}"),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

/// A file of one good node and these lines.
fn with(lines: &str) -> String {
    format!("nodes: [{{ nids: 0, processors: 2 }}]\n{lines}")
}

#[test]
fn a_whole_file_is_read() {
    let config = read(
        "nodes:
  - { nids: 0, processors: 2, memory: 8G, flavors: [os, su] }
  - { nids: '1-2,7', processors: 2, cpus: '4-5,9,8,0-1', host: big }
administrators: [1001, alice, 1001]
listening: /run/psched/psched.sock
state: /var/lib/psched
variables: { kill_grace: 500ms, postings_max: 7 }
",
    )
    .expect("a good file");
    let node = |nid| config.machine.nodes[&Nid(nid)].clone();
    assert_eq!(format_nids(config.machine.nodes.keys().copied()), "0-2,7");
    assert_eq!(node(0).flavors.to_string(), "su os");
    assert_eq!((node(0).memory, node(0).host.as_str()), (8 << 30, ""));
    assert_eq!((node(1).processors, node(1).flavors.to_string()), (2, "ap".into()));
    assert_eq!((node(1).cpus, node(2).cpus, node(7).cpus), (vec![4, 5], vec![9, 8], vec![0, 1]));
    assert_eq!(node(7).host, "big");
    let administrators = [Administrator::Uid(1001), Administrator::Name("alice".into())];
    assert_eq!(config.administrators, administrators);
    assert_eq!(config.listen.as_deref(), Some("/run/psched/psched.sock"));
    assert_eq!(config.state.as_deref(), Some("/var/lib/psched"));
    assert_eq!(config.variables.kill_grace(), Duration::from_millis(500));
    assert_eq!(config.variables.postings_max(), 7);
    assert_eq!(config.variables.ticket_time(), Duration::from_secs(60));
}

#[test]
fn nodes_may_have_a_host_each() {
    let read_hosts = |lines: &str| {
        let text = format!(
            "nodes:\n  - {{ nids: 0, processors: 1, host: login, flavors: [su, os, ap] }}\n{lines}"
        );
        read(&text).map(|config| {
            let node = |n: &Node| format!("{}={}{:?}", n.nid, n.host, n.cpus);
            config.machine.nodes.values().map(node).collect::<Vec<_>>().join(" ")
        })
    };
    assert_eq!(
        read_hosts("  - { nids: 1-3, processors: 2, hosts: 'n[08-09],x' }"),
        Ok("0=login[] 1=n08[] 2=n09[] 3=x[]".into())
    );
    // Two nodes on each of two hosts.
    assert_eq!(
        read_hosts(
            "  - { nids: 1-2, processors: 2, hosts: 'n[1-2]', cpus: 0-1 }\n  - { nids: 3-4, \
             processors: 2, hosts: 'n[1-2]', cpus: 2-3 }"
        ),
        Ok("0=login[] 1=n1[0, 1] 2=n2[0, 1] 3=n1[2, 3] 4=n2[2, 3]".into())
    );
    let said = |lines: &str| {
        let problems = read_hosts(lines).expect_err("problems");
        problems.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        said(
            "  - { nids: 1-2, processors: 2, hosts: 'n[1-3]' }\n  - { nids: 3-4, processors: 1, hosts: \
             'n1,n1' }\n  - { nids: 5, processors: 2, host: a, hosts: b, cpus: 0-3 }"
        ),
        [
            "3:40: nodes[1].hosts: 3 hosts are listed for 2 nodes; list one for each node, beginning \
             with the lowest NID",
            "4:40: nodes[2].hosts: host n1 is listed twice; give names such as n1,n2 or n[000-003]",
            "5:47: nodes[3].hosts: can't be given together with host; give host where all these \
             nodes are on one host, hosts where each has its own",
            "5:56: nodes[3].cpus: 4 numbers are listed for 2 processors; list one for each processor of a host",
        ]
    );
}

#[test]
fn a_single_node_has_all_flavors() {
    let config = read(&with("")).expect("a good file");
    assert_eq!(config, embedded(1, 2));
    assert_eq!(config.machine.nodes[&Nid(0)].flavors, Flavors::all());
}

#[test]
fn the_embedded_machine_is_that_of_a_file() {
    let file = "nodes: [{ nids: 0, processors: 3, flavors: [su, os, ap] }, \
                { nids: 1-3, processors: 3, flavors: [ap] }]";
    assert_eq!(Ok(embedded(4, 3)), read(file));
    let huge = embedded(0, u32::MAX);
    assert_eq!(huge.machine.nodes.len(), 1);
    assert_eq!(huge.machine.nodes[&Nid(0)].processors, PROCESSORS_MAX);
}

#[test]
fn the_shipped_file_is_good_with_and_without_its_comments() {
    let config = read(SHIPPED).expect("the shipped file");
    assert_eq!(config.machine.nodes.len(), 4);
    assert_eq!(config.variables, Variables::default(), "it shows the defaults");
    // What stands there as a comment that begins like a key is to be good as well.
    let on = |line: &str| match line.trim_start().strip_prefix("# ") {
        Some(key)
            if ["administrators", "listening", "state", "flavors", "host"]
                .iter()
                .any(|k| key.starts_with(&format!("{k}: "))) =>
        {
            line.replacen("# ", "", 1)
        }
        _ => line.to_string(),
    };
    let all: Vec<String> = SHIPPED.lines().map(on).collect();
    let config = read(&all.join("\n")).expect("the shipped file with what it offers");
    assert_eq!(config.administrators.len(), 2);
    assert_eq!(config.listen.as_deref(), Some("/run/psched/psched.sock"));
    assert_eq!(config.machine.nodes[&Nid(1)].host, "node1");
}

#[test]
fn the_example_of_a_large_host_is_good() {
    let config = read(include_str!("../../config/numa.yaml")).expect("the example");
    let processors = |nid| config.machine.nodes[&Nid(nid)].cpus.clone();
    assert_eq!((processors(0).last(), processors(2).first()), (Some(&15), Some(&32)));
    assert_eq!((config.machine.nodes.len(), config.machine.application_processors()), (4, 64));
}

#[test]
fn the_example_of_overflow_nodes_is_that_of_the_manual() {
    let shipped = read(X1).expect("the example").machine;
    let (_, manual) = MANUAL.split_once(".Sh REGIONS\n").expect("its section");
    let (_, manual) = manual.split_once(".Bd -literal -offset indent\n").expect("an example");
    let (manual, _) = manual.split_once(".Ed\n").expect("its end");
    let manual = read(manual).expect("the manual's").machine;
    assert_eq!(shipped.regions, manual.regions);
    let of = |machine: &crate::machine::Machine| {
        let node = |node: &Node| (node.nid, node.processors, node.flavors);
        machine.nodes.values().map(node).collect::<Vec<_>>()
    };
    assert_eq!(of(&shipped), of(&manual));
}

#[test]
fn the_manual_has_every_key() {
    for key in form::keys() {
        assert!(MANUAL.contains(&format!(".It Cm {key} ")), "psched.yaml(5) lacks {key}");
    }
    assert_eq!(MANUAL.matches(".It Cm ").count(), form::keys().count(), "it has other keys");
}

#[test]
fn the_example_of_the_manual_is_good() {
    let (_, example) = MANUAL.rsplit_once(".Bd -literal -offset indent\n").expect("an example");
    let (example, _) = example.split_once(".Ed\n").expect("its end");
    assert_eq!(read(example).map(|c| c.machine.nodes.len()), Ok(4));
}

#[test]
fn problems_of_form_are_all_found() {
    let text = "
nodes:
  - { nid: 0, processors: [1], flavors: ap }
  - nids: 1
    nids: 2
    processor: 4
    hots: x
  - 7
  - { <<: 3, nids: { a: b }, processors: 0 }
node: 1
administrators: alice
listening: [x]
variables:
  - kill_grace: 5s
state:
state: /var/lib/psched
colour: red
";
    assert_eq!(
        said(text),
        [
            "3:7: nodes[0].nid: there is no such key; did you mean nids?",
            "3:27: nodes[0].processors: found a list, and a word or a number is expected; write \
             it without brackets and dashes",
            "3:41: nodes[0].flavors: found a word, and a list is expected; write it in \
             brackets, such as [a, b]",
            "5:5: nodes[1].nids: is given twice, first on line 4; keep one of them",
            "6:5: nodes[1].processor: there is no such key; did you mean processors?",
            "7:5: nodes[1].hots: there is no such key; did you mean hosts?",
            "8:5: nodes[2]: keys and their values are expected here; the keys are nids, processors, cpus, memory, flavors, host, hosts",
            "9:7: nodes[3].<<: there is no such key; there are no merge keys: write out what is meant",
            "9:20: nodes[3].nids: found a map, and a word or a number is expected; write it \
             without brackets and dashes",
            "9:42: nodes[3].processors: \"0\" is not a number of processors; give 1 to 4096",
            "10:1: node: there is no such key; did you mean nodes?",
            "11:17: administrators: found a word, and a list is expected; write it in brackets, \
             such as [a, b]",
            "12:12: listening: found a list, and a word or a number is expected; write it \
             without brackets and dashes",
            "14:3: variables: found a list, and a map is expected; write NAME: VALUE, each on a \
             line of its own",
            "16:1: state: is given twice, first on line 15; keep one of them",
            "17:1: colour: there is no such key; the keys here are nodes, regions, accounts, administrators, listening, state, network, certificates, variables",
        ]
    );
}

#[test]
fn an_entry_of_a_list_is_not_left_out() {
    assert_eq!(
        said(&with("administrators: [alice, ~]\nkill: 1\n")),
        [
            "2:25: administrators[1]: found nothing, and a word or a number is expected; write \
             it without brackets and dashes",
            "3:1: kill: there is no such key; the keys here are nodes, regions, accounts, administrators, listening, state, network, certificates, variables",
        ]
    );
}

#[test]
fn what_is_no_yaml_or_has_no_meaning_here_is_told_where_it_stands() {
    let end = "correct this first: the rest of the file was not read";
    for (text, problem) in [
        (
            "nodes: [\n",
            format!("2:1: while parsing a node, did not find expected node content; {end}"),
        ),
        (
            "nodes:\n\t- nids: 0\n",
            "2:1: a tab indents this line; indent with spaces: YAML takes no tabs there".into(),
        ),
        (
            "nodes:\n  - nids: 0\n  \tprocessors: 2\n",
            "3:3: a tab indents this line; indent with spaces: YAML takes no tabs there".into(),
        ),
        (
            "nodes: &n [{ nids: 0 }]\n",
            "1:8: an anchor (&) is not supported; write out what is meant in each place".into(),
        ),
        ("nodes: *n\n", format!("1:8: while parsing node, found unknown anchor; {end}")),
        (
            "state: !!str 7\n",
            "1:8: a tag (!) is not supported; leave it out: each key has its type".into(),
        ),
        ("? [a]\n: 1\n", "1:3: a key is a list or a map; give a word as the key".into()),
        (": 1\n", "1:1: a key is missing; give a word as the key".into()),
        (
            "state: /a\n---\nstate: /b\n",
            "2:1: a second document is not supported; leave out the --- and what follows it".into(),
        ),
        (
            "just a word\n",
            "1:1: keys and their values are expected here; the keys are nodes, regions, accounts, administrators, \
             listening, state, network, certificates, variables"
                .into(),
        ),
        (
            "- nodes\n",
            "1:1: keys and their values are expected here; the keys are nodes, regions, accounts, administrators, \
             listening, state, network, certificates, variables"
                .into(),
        ),
    ] {
        assert_eq!(said(text).first(), Some(&problem), "{text}");
    }
}

#[test]
fn problems_of_meaning_are_all_found() {
    let text = "
nodes:
  - { nids: 0-3, processors: many, flavors: [su, os], memory: lots }
  - { processors: 0, host: 'a b' }
  - { nids: 3-1, cpus: 0-x }
  - { nids: 2-5, processors: 4097, cpus: 5-3 }
  - { nids: 9, processors: 2, cpus: 0-3 }
administrators: [alice, a b, -1, 4294967295, '']
listening: psched.sock
state: /var/
variables: { kill_grace: 5s, kill_grace: 6s, ticket_time: 0 }
";
    assert_eq!(
        said(text),
        [
            "3:30: nodes[0].processors: \"many\" is not a number of processors; give 1 to 4096",
            "3:63: nodes[0].memory: \"lots\" is not a size; write bytes, or 512K, 100M, 8G, 1.5T (powers of 1024); give a size such as 8G",
            "4:5: nodes[1].nids: is missing; give a list such as 0-3,8",
            "4:19: nodes[1].processors: \"0\" is not a number of processors; give 1 to 4096",
            "4:28: nodes[1].host: \"a b\" is not the name of a host; give its name, or leave it out for this host",
            "5:5: nodes[2].processors: is missing; give 1 to 4096",
            "5:13: nodes[2].nids: the range 3-1 runs backwards; give a list such as 0-3,8",
            "5:24: nodes[2].cpus: \"0-x\" is not a processor or a range of them; give a list such as 0-3,8 of processors from 0 to 65535",
            "6:13: nodes[3].nids: NID 2 is already in nodes[0]; give each node once",
            "6:30: nodes[3].processors: \"4097\" is not a number of processors; give 1 to 4096",
            "6:42: nodes[3].cpus: the range \"5-3\" runs backwards; give a list such as 0-3,8 of processors from 0 to 65535",
            "7:37: nodes[4].cpus: 4 numbers are listed for 2 processors; list one for each processor, \
             beginning with the lowest NID",
            "8:25: administrators[1]: \"a b\" is not a user; give a user's name or number",
            "8:30: administrators[2]: \"-1\" is not a user; give a user's name or number",
            "8:34: administrators[3]: \"4294967295\" is not a user; give a user's name or number",
            "8:46: administrators[4]: \"\" is not a user; give a user's name or number",
            "9:12: listening: \"psched.sock\" is not the path of a file or folder; give an absolute path that does not end in /",
            "10:8: state: \"/var/\" is not the path of a file or folder; give an absolute path that does not end in /",
            "11:30: variables.kill_grace: is set twice; set it once",
            "11:59: variables.ticket_time: 0 is out of the range of ticket_time; give a duration such as 500ms, 5s or 1m30s, 1s to 1h",
        ]
    );
}

#[test]
fn what_does_not_go_together_is_found() {
    let no_nodes = "1:1: nodes: there are no nodes; list at least one under nodes, such as \
                    { nids: 0-3, processors: 8 }";
    for text in ["", "# nothing\n", "state: /var/lib/psched\n", "nodes:\n", "nodes: []\n"] {
        assert_eq!(said(text), [no_nodes], "{text}");
    }
    assert_eq!(
        said("nodes: [{ nids: 0-1, processors: 1 }]"),
        [
            "1:1: nodes: no node has flavor su; add su to the flavors of one, such as flavors: [su, os, ap]",
            "1:1: nodes: no node has flavor os; add os to the flavors of one, such as flavors: [su, os, ap]",
        ]
    );
    // What is wrong with regions is told beside that.
    let all = said(
        "nodes: [{ nids: 0-1, processors: 1, flavors: [os, ap] }]\nregions: [{ name: a, nids: 0-2 }]",
    );
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0].contains("no node has flavor su"), "{all:?}");
    assert!(all[1].contains("regions[0].nids: there is no node 2"), "{all:?}");
    let nodes = |nodes: &str| {
        said(&format!(
            "nodes:\n  - {{ nids: 100, processors: 1, host: x, flavors: [su, os, ap] }}\n{nodes}"
        ))
    };
    assert_eq!(
        nodes("  - { nids: 1, processors: 1, flavors: [] }"),
        ["1:1: nodes: NID 1 has no flavor; give it one of su, os, ap, or leave flavors out"]
    );
    assert_eq!(
        nodes(
            "  - { nids: 1-2, processors: 2, cpus: '0-2,0' }\n  - { nids: 3, processors: 2, cpus: '4,4' }"
        ),
        [
            "3:39: nodes[1].cpus: processor 0 is given to NID 1 and NID 2; give each real processor of a host to one node",
            "4:37: nodes[2].cpus: processor 4 is given twice to NID 3; give each real processor of a host to one node",
        ]
    );
    // The same numbers on another host are other processors.
    let two_hosts = "nodes: [{ nids: 0, processors: 1, cpus: 0, flavors: [su, os, ap] }, \
                     { nids: 1, processors: 1, cpus: 0, host: other }]";
    assert_eq!(read(two_hosts).map(|c| c.machine.nodes.len()), Ok(2));
    assert_eq!(
        nodes("  - { nids: 1, processors: 1, cpus: 0 }\n  - { nids: 2, processors: 1 }"),
        [
            "1:1: nodes: on this host, NID 1 lists its cpus and NID 2 does not; list them for all nodes of a host, or for none"
        ]
    );
}

#[test]
fn everything_is_bounded() {
    let nodes =
        "nodes: [{ nids: 0-999998, processors: 1 }, { nids: 1000000-1000001, processors: 1 }]";
    assert_eq!(said(nodes), ["1:44: nodes[1]: there are more than 1000000 nodes; give fewer"]);
    let list =
        "1:17: nodes[0].nids: the list names more than 1000000 nodes; give a list such as 0-3,8";
    assert_eq!(said("nodes: [{ nids: 0-4294967295, processors: 1 }]"), [list]);

    let long = format!("listening: /{}", "x".repeat(107));
    assert_eq!(
        said(&with(&long)),
        ["2:12: listening: the path has 108 bytes; give a path of at most 107 bytes"]
    );
    let odd = format!("state: {}", "é".repeat(100));
    let cut = format!("2:8: state: \"{}...\" is not the path", "é".repeat(60));
    assert!(said(&with(&odd))[0].starts_with(&cut));

    let many: String = (0..1_000).map(|i| format!("  x{i}: 1\n")).collect();
    assert_eq!(said(&with(&format!("variables:\n{many}"))).len(), PROBLEMS_MAX);
    let big = format!("# {}", "x".repeat(SIZE_MAX));
    assert!(said(&big)[0].starts_with("the file has more than 10485760 bytes; "));
    // Ten megabytes of it: the parser would take a time that grows with the square of the depth.
    for open in ["[", "{a: ", "- "] {
        let begin = if open.len() == 2 { "nodes:\n  " } else { "nodes: " };
        let deep = format!("{begin}{}", open.repeat((SIZE_MAX - 20) / open.len()));
        let deepest = said(&deep);
        let nested = "lists and maps are nested more than 100 deep; close each where it ends";
        assert!(deepest[0].ends_with(nested), "{deepest:?}");
    }
    let flat = with(&format!("administrators: [{}]", "alice, ".repeat(10_000)));
    assert_eq!(read(&flat).map(|c| c.administrators.len()), Ok(1));
    let closed = with("# [[[ \n".repeat(1_000).as_str());
    assert!(read(&closed).is_ok(), "brackets in comments");
    let laughs: String = (1..30)
        .map(|i| format!("x{i}: &x{i} [{}]\n", format!("*x{}, ", i - 1).repeat(9)))
        .collect();
    assert!(said(&format!("x0: &x0 [a]\n{laughs}"))[0].starts_with("1:5: an anchor (&)"));
    let cpus = with("").replace("processors: 2", "processors: 2, cpus: '0-65535,0-65535'");
    assert!(said(&cpus)[0].starts_with("1:41: nodes[0].cpus: some processors are listed twice; "));
}

proptest! {
    /// Whatever the text is, there is a configuration or a problem.
    #[test]
    fn any_text_is_read_or_refused(
        lines in prop::collection::vec(prop_oneof![
            Just("nodes:".to_string()),
            Just("variables:".to_string()),
            "  - \\{ (nids|processors|cpus|memory|flavors): [0-9,-]{0,6} \\}",
            "  [a-z_]{1,12}: [0-9a-z]{0,6}",
            "[ a-z:\\[\\]{}&*!|>'\"%@`-]{0,20}",
        ], 0..8)
    ) {
        if let Err(problems) = read(&lines.join("\n")) {
            prop_assert!(!problems.is_empty());
        }
    }

    /// The shipped file with a few letters of another kind: every problem has its place, which is in the file.
    #[test]
    fn a_file_with_slips_is_read_or_refused(
        slips in prop::collection::vec(
            (0..SHIPPED.len(), "[ \\t\\n:,#&*!|>'\"%@`{}\\[\\]?~a0\u{e9}-]{0,3}"),
            1..6,
        )
    ) {
        let mut text = SHIPPED.to_owned();
        for (at, slip) in slips {
            let at = (0..=at.min(text.len() - 1)).rev().find(|at| text.is_char_boundary(*at));
            let at = at.expect("0 is one");
            let end = at + text[at..].chars().next().map_or(0, char::len_utf8);
            text.replace_range(at..end, &slip);
        }
        if let Err(problems) = read(&text) {
            prop_assert!(!problems.is_empty() && problems.is_sorted_by_key(|p| p.at));
            // (What is missing at the end is told on the line after it.)
            let lines = text.lines().count() as u32 + 1;
            for problem in problems {
                let at = problem.at.expect("a place");
                prop_assert!((1..=lines).contains(&at.line) && at.column > 0, "{}", problem);
            }
        }
    }
}
