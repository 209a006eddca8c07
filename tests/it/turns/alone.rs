//! `aprun -F exclusive` under a real psched: nodes of its own, in space and in time.

use super::rig::{runs_of, stamper};
use crate::support::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Where everybody else shares, and turns are short.
const CONFIG: &str = "nodes:\n  - { nids: 0-1, processors: 2, flavors: [su, os, ap] }\n\
                      variables:\n  application.max_resident: 3\n  application.time_slice: 50ms\n";

/// An application whose PEs stamp when they run.
struct Stamping {
    running: Running,
    table: PathBuf,
}

impl Stamping {
    fn start(instance: &Instance, program: &Path, options: &str, name: &str) -> Stamping {
        let table = instance.directory().join(name);
        let script = format!("exec {} {} spin", program.display(), table.display());
        Stamping { running: instance.start_script(options, &script), table }
    }

    #[track_caller]
    fn end(self, instance: &Instance, apid: u64) -> PathBuf {
        instance.run("apkill", ["-9", &apid.to_string()]).expect(0);
        self.running.wait(BOUND).expect(137);
        self.table
    }
}

/// Waits for one more application in this state: its number.
#[track_caller]
fn new(instance: &Instance, state: &str, known: &[u64]) -> u64 {
    let mut found = None;
    eventually(BOUND, &format!("one more is {state}"), || {
        found = instance.apids(state).into_iter().find(|apid| !known.contains(apid));
        found.is_some()
    });
    found.expect("found")
}

fn view(instance: &Instance) -> Value {
    serde_json::from_str(&instance.run("psview", ["--json"]).expect(0).out()).expect("JSON")
}

/// The row of an application in psview.
fn row(all: &Value, apid: u64) -> &Value {
    let rows = all["applications"].as_array().expect("a list");
    rows.iter().find(|row| row["apid"] == apid).unwrap_or_else(|| panic!("no {apid} in {all}"))
}

#[track_caller]
fn why(instance: &Instance, apid: u64) -> String {
    instance.run("apstat", ["--why", &apid.to_string()]).expect(0).out()
}

/// Waits until each of these has been seen to run while others of them were frozen.
#[track_caller]
fn take_turns(instance: &Instance, apids: &[u64]) {
    for apid in apids {
        for frozen in [true, false] {
            eventually(BOUND, &format!("{apid} is frozen: {frozen}"), || {
                (row(&view(instance), *apid)["turn"] == "frozen") == frozen
            });
        }
    }
}

#[test]
fn it_shares_neither_nodes_nor_turns() {
    let Some(program) = stamper("turns") else { return };
    let instance = Plan::new().config(CONFIG).start();
    let start = |options: &str, name: &str| Stamping::start(&instance, &program, options, name);

    // It waits as long as anybody sits there, though a third one could share.
    let first = start("-q -n 4", "first");
    let one = new(&instance, "running", &[]);
    let second = start("-q -n 4", "second");
    let two = new(&instance, "running", &[one]);
    take_turns(&instance, &[one, two]);
    let own = start("-q -n 1 -F exclusive", "own");
    let exclusive = new(&instance, "posted", &[]);
    let text = why(&instance, exclusive);
    assert!(text.contains("one node that no other application uses"), "{text}");
    assert!(text.contains(&format!("applications {one}")), "{text}");
    first.end(&instance, one);
    let text = why(&instance, exclusive);
    assert!(text.contains("posted"), "{text}");
    assert!(text.contains(&format!("application {two} of ")), "{text}");
    second.end(&instance, two);
    assert_eq!(instance.wait_for("running", 1), [exclusive]);

    // The processor that its PE leaves free is nobody's: three share the other node, in turns.
    let mut others = Vec::new();
    for options in ["-q -n 2", "-q -n 1", "-q -n 1"] {
        let known: Vec<u64> = others.iter().map(|(apid, _)| *apid).chain([exclusive]).collect();
        let other = start(options, &format!("other{}", known.len()));
        others.push((new(&instance, "running", &known), other));
    }
    let numbers: Vec<u64> = others.iter().map(|(apid, _)| *apid).collect();
    take_turns(&instance, &numbers);
    let wide = start("-q -n 4", "wide");
    let waits = new(&instance, "posted", &[]);
    let text = why(&instance, waits);
    assert!(text.contains(&format!("application {exclusive} of ")), "{text}");

    let all = view(&instance);
    let its = row(&all, exclusive);
    assert_eq!(its["nids"].as_array().map(Vec::len), Some(1), "{all}");
    assert_eq!((&its["had"], &its["due"]), (&1.0.into(), &1.0.into()), "{all}");
    for apid in &numbers {
        assert_ne!(row(&all, *apid)["nids"], its["nids"], "{all}");
    }
    assert_eq!(its["turn"], "runs", "{all}");
    let named = all["plans"].as_array().expect("a list").iter();
    let named = named.filter(|plan| plan["members"].to_string().contains(&exclusive.to_string()));
    assert_eq!(named.count(), 0, "{all}");

    let own = own.end(&instance, exclusive);
    let last = runs_of(&own).iter().map(|run| run.1).max();
    assert_eq!(new(&instance, "running", &numbers), waits);
    let came = || runs_of(&wide.table).iter().map(|run| run.0).min();
    eventually(BOUND, "the wide one runs", || came().is_some());
    assert!(last.is_some() && came() > last, "{waits} ran before {exclusive} had ended");
    wide.end(&instance, waits);
    for (apid, other) in others {
        other.end(&instance, apid);
    }
}
