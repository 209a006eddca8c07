//! Regions, gates and accounts: what they mean, and every slip in them.

use super::super::read;
use crate::machine::gates::Applicant;
use crate::machine::{Domain, Nid, RegionId};

const NODES: &str = "
nodes:
  - { nids: 0, processors: 4, memory: 4G, flavors: [su, os] }
  - { nids: 1-8, processors: 4, memory: 4G }
  - { nids: 9-10, processors: 4, memory: 4G, flavors: [ap, os, su] }
";

fn said(text: &str) -> Vec<String> {
    let problems = read(&format!("{NODES}{text}")).expect_err("problems");
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn regions_are_by_number_or_by_signature() {
    let text = format!(
        "{NODES}regions:
  - {{ name: ordinary, flavors: [ap] }}
  - name: overflow
    nids: 9-10
    gates:
      width: too wide for ordinary
      users: [alice, 1001]
      groups: [71]
      accounts: [ocean]
      mode: batch
      hours: 20:00-06:30
      time_limit: -1h
      memory: 1G-2G
accounts:
  - {{ name: ocean, users: [alice] }}
"
    );
    let machine = read(&text).expect("a good file").machine;
    let region = |nid: u32| machine.region_of(&machine.nodes[&Nid(nid)]).index();
    assert_eq!([region(0), region(1), region(8), region(10)], [None, Some(0), Some(0), Some(1)]);
    assert_eq!(machine.region_of(&machine.nodes[&Nid(0)]), RegionId::NONE);
    let gate = &machine.regions[1].gate;
    assert_eq!(gate.too_wide_for, Some(("ordinary".into(), 0)));
    assert_eq!(
        gate.people.as_ref().map(ToString::to_string).as_deref(),
        Some("users 1001, alice and group 71")
    );
    assert_eq!(gate.hours.map(|hours| hours.to_string()).as_deref(), Some("20:00-06:30"));
    let said = |who: Applicant<'_>| gate.lets(&who, |_| 32).expect_err("a bar").to_string();
    let person = crate::machine::gates::Person { uid: 1001, ..Default::default() };
    let who = Applicant { person, account: Some("ocean"), width: 33, ..Applicant::default() };
    assert_eq!(said(who), "applications with a --time-limit of 1h or less");
    assert_eq!(machine.accounts[0].people.to_string(), "user alice");
}

#[test]
fn domains_have_regions_and_variables_of_their_own() {
    let regions = "regions:
  - { name: tests, nids: 9-10, domain: quick }
  - { name: low, nids: 1-4 }
  - { name: high, nids: 5-8, domain: application }
";
    let text = format!(
        "{NODES}{regions}variables: {{ quick.time_slice: 100ms, application.max_resident: 2 }}\n"
    );
    let config = read(&text).expect("a good file");
    let domains = config.machine.domains();
    let domain = |domain: &Domain| {
        (domain.name.clone(), domain.regions.iter().collect::<Vec<_>>(), domain.processors)
    };
    assert_eq!(
        domains.iter().map(domain).collect::<Vec<_>>(),
        [("quick".into(), vec![0], 8), ("application".into(), vec![1, 2], 32)]
    );
    let slice = |domain| config.variables.of_domain(domain).application_time_slice().as_millis();
    assert_eq!([slice("quick"), slice("application")], [100, 1_000]);
    assert_eq!(config.variables.of_domain("quick").application_max_resident(), 1_024);
    // What spans is of one domain: what is too wide for a region of another must fit here alone.
    let wide = "regions:
  - { name: tests, nids: 9-10, domain: quick, gates: { width: too wide for low } }
  - { name: low, nids: 1-8 }
variables: { quik.time_slice: 1s, slow.max_resident: 2, quick.kill_grace: 1s }
";
    assert_eq!(
        said(wide),
        [
            "7:63: regions[0].gates.width: no application can pass this gate; applications too \
             wide for region low must fit here, or on nodes of both regions with consecutive \
             NIDs",
            "9:31: variables.quik.time_slice: no region of this machine has the domain quik; give a region \
             the key domain, or use one of: application, quick",
            "9:54: variables.slow.max_resident: no region of this machine has the domain slow; give a region \
             the key domain, or use one of: application, quick",
            "9:75: variables.quick.kill_grace: there is no variable quick.kill_grace; \
             psched.yaml(5) and psmgr show list all variables",
        ]
    );
    assert_eq!(
        said("regions: [{ name: all, nids: 1-10, domain: a.b }]"),
        [
            "6:44: regions[0].domain: \"a.b\" is not a name; give 1 to 64 letters, digits, underscores and hyphens",
        ]
    );
    assert_eq!(
        said("regions: [{ name: all, nids: 1-10, domain: weight }]"),
        [
            "6:44: regions[0].domain: weight is reserved: weight.* are variables of the machine; give the domain \
             another name",
        ]
    );
}

#[test]
fn each_slip_has_its_place_and_its_cure() {
    assert_eq!(
        said(
            "regions:
  - { name: a b, nids: '1-8,99', flavors: [ap] }
  - { nids: 1-3, gates: { width: 9-3, mode: fast, hours: 20:00 } }
  - { name: big, nids: 4-5, gates: { width: too wide for bog, users: [], time_limit: 1h } }
  - { name: big, gates: { users: ['a:b', -1], accounts: [ocean] } }
  - { name: self, flavors: [op], gates: { width: too wide for self, memory: 4G } }
  - { name: late, nids: 6, gate: { width: 3 }, gates: [1] }
"
        ),
        [
            "7:5: regions[0]: has both nids and flavors; give one of them: nids: 1-3, or flavors: [ap] for all nodes with just these",
            "7:13: regions[0].name: \"a b\" is not a name; give 1 to 64 letters, digits, dots, underscores and hyphens",
            "8:5: regions[1].name: is missing; give a name",
            "8:34: regions[1].gates.width: no application can pass this gate; put the lower \
             number first",
            "8:45: regions[1].gates.mode: \"fast\" is not a mode; give interactive or batch",
            "8:58: regions[1].gates.hours: \"20:00\" is not a span of local time; give local \
             times such as 20:00-06:00",
            "9:45: regions[2].gates.width: there is no region \"bog\"; name one of the regions of this file",
            "9:63: regions[2].gates.users: no application can pass this gate; name a user or a \
             group, or leave it out",
            "9:86: regions[2].gates.time_limit: \"1h\" is not a range; give durations such as -1h for an hour at most",
            "10:5: regions[3]: has neither nids nor flavors; give one of them: nids: 1-3, or flavors: [ap] for all nodes with just these",
            "10:13: regions[3].name: region big is defined twice; give each region a name of its own",
            "10:35: regions[3].gates.users[0]: \"a:b\" is not a user; give a user's name or number",
            "10:42: regions[3].gates.users[1]: \"-1\" is not a user; give a user's name or number",
            "10:47: regions[3].gates.accounts: account \"ocean\" is not defined; add it to accounts, with its users",
            "11:19: regions[4].flavors: \"op\" is not a flavor; the flavors are su, os, ap",
            "11:50: regions[4].gates.width: the gate names its own region; name the region for which \
             applications must be too wide",
            "11:77: regions[4].gates.memory: \"4G\" is not a range; give sizes such as 4G- for 4G or more",
            "12:28: regions[5].gate: there is no such key; did you mean gates?",
            "12:55: regions[5].gates: found a list, and a map is expected; write { KEY: VALUE }",
        ]
    );
}

#[test]
fn nodes_are_in_one_region_and_each_region_has_some() {
    assert_eq!(
        said(
            "regions:
  - { name: one, nids: 1-5 }
  - { name: two, nids: 4-7 }
  - { name: three, flavors: [ap] }
  - { name: four, flavors: [os, ap] }
  - { name: five, nids: 0 }
  - { name: six, nids: 20-21 }
"
        ),
        [
            "8:24: regions[1].nids: NIDs 4-5 are in region one already; give each node to one region",
            "9:20: regions[2].flavors: NIDs 1-7 are in region one already; give each node to one region",
            "10:19: regions[3].flavors: no node has just the flavors os ap; give the region at least one node",
            "11:25: regions[4].nids: no node of the region has flavor ap, so that nothing can be placed there; give the region nodes with ap, or leave the region out",
            "12:24: regions[5].nids: there is no node 20-21; list nodes of this file",
        ]
    );
}

#[test]
fn a_gate_that_nobody_can_pass_is_found() {
    assert_eq!(
        said(
            "regions:
  - { name: ordinary, flavors: [ap], gates: { width: 99- } }
  - { name: overflow, nids: 9, gates: { width: too wide for ordinary, memory: 8G- } }
  - { name: other, nids: 10, gates: { hours: '06:00-06:00', accounts: [] } }
"
        ),
        [
            "7:54: regions[0].gates.width: no application can pass this gate; no more than 40 \
             PEs have room here",
            "8:79: regions[1].gates.memory: no application can pass this gate; no node has so \
             much memory",
            "9:46: regions[2].gates.hours: \"06:00-06:00\" is not a span of local time; give \
             local times such as 20:00-06:00",
            "9:61: regions[2].gates.accounts: no application can pass this gate; name an \
             account, or leave it out",
        ]
    );
    // Two nodes apart from eight: what is too wide for these fits nowhere.
    assert_eq!(
        said(
            "  - { nids: 20-21, processors: 4, memory: 4G, flavors: [ap, os] }
regions:
  - { name: ordinary, flavors: [ap] }
  - { name: rest, nids: 9-10 }
  - { name: overflow, flavors: [os, ap], gates: { width: too wide for ordinary } }
"
        ),
        ["10:58: regions[2].gates.width: no application can pass this gate; applications too \
             wide for region ordinary must fit here, or on nodes of both regions with \
             consecutive NIDs",]
    );
}
