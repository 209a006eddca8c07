//! The same content in every form: tables and JSON, refusals and explanations.

use crate::support::*;

/// The values of a row in JSON, in the order of the table's head, as the table writes them.
fn cells(head: &str, row: &serde_json::Value) -> Vec<String> {
    let cell = |name: &str| match &row[name.to_lowercase()] {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(list) => {
            list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    };
    words(head).map(cell).flat_map(|c| words(&c).map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn every_cell_of_a_table_is_in_json() {
    let instance = instance(3, 2);
    let long = instance.start_script("-q -n 3", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0].to_string();
    for (options, name, head) in [
        ("-a", "applications", "Apid ResId User PEs Nodes Age State Turn Command"),
        ("-n", "nodes", "NID Arch State HW Rv Pl PgSz Avl Conf Placed PEs Limits Apids"),
    ] {
        let text = instance.run("apstat", [options]).expect(0).out();
        let lines: Vec<Vec<&str>> = text.lines().map(|l| words(l).collect()).collect();
        let above = lines.iter().position(|l| *l == words(head).collect::<Vec<_>>());
        let above = above.unwrap_or_else(|| panic!("no {head} in {text}"));
        let all = instance.apstat(options);
        let rows = all[name].as_array().expect("a list");
        assert!(!rows.is_empty());
        for (row, line) in rows.iter().zip(&lines[above + 1..]) {
            // An empty list is a dash, or nothing.
            let line: Vec<&str> = line.iter().copied().filter(|w| *w != "-").collect();
            let mut row = cells(head, row);
            row.retain(|c| !["-", "null", ""].contains(&c.as_str()));
            assert_eq!(row, line, "{text}\n{all}");
        }
    }
    instance.run("apkill", ["-9", &apid]).expect(0);
    long.wait(BOUND).expect(137);
}

/// A line for a script, before and while something is there.
#[test]
fn nodes_for_scripts() {
    let instance = instance(2, 2);
    let lines = || {
        let text = instance.run("apstat", ["--nodes", "--parse"]).expect(0).out();
        let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
        text.lines().map(fields).collect::<Vec<Vec<String>>>()
    };
    let idle = lines();
    assert_eq!(idle.len(), 2, "{idle:?}");
    for (nid, line) in idle.iter().enumerate() {
        assert_eq!(line.len(), 14, "{line:?}");
        assert_eq!(line[0], nid.to_string());
        assert_eq!(line[2..3], ["free"]);
        assert_eq!(line[4..7], ["2", "0", "2"]);
        assert_eq!(line[8..13], ["0", "_", "_", "_", "_"]);
        assert_eq!(line[13], std::env::consts::ARCH, "{line:?}");
    }
    assert_eq!((&idle[0][3][..], &idle[1][3][..]), ("su,os,ap", "ap"));
    let long = instance.start_script("-q -n 3", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0].to_string();
    let user = instance.apstat("-a")["applications"][0]["user"].clone();
    let busy = lines();
    assert_eq!([&busy[0][2], &busy[1][2]], ["busy", "free"]);
    assert_eq!(busy[0][5..7], ["2", "0"]);
    assert_eq!(busy[1][5..7], ["1", "1"]);
    for (line, pes) in busy.iter().zip(["2", "1"]) {
        assert_eq!(line[8..10], [pes, &apid]);
        assert_eq!(line[10], user.as_str().expect("a name"));
        assert!(line[11].parse::<u64>().is_ok(), "{line:?}");
    }
    assert_eq!(busy[0][12], "2 of 2 processors are in use");
    instance.run("apkill", ["-9", &apid]).expect(0);
    long.wait(BOUND).expect(137);
}

/// Kept with it, by the store too, and also when it has ended.
#[test]
fn the_account_is_kept_and_shown() {
    let instance = instance(1, 2);
    let long = instance.start_script("-q --account climate-2.b", "exec sleep 1000");
    let apid = instance.wait_for("running", 1)[0];
    let of = |apid: u64| instance.apstat(&format!("-A {apid}"))["account"].clone();
    assert_eq!(of(apid), "climate-2.b");
    instance.run("apkill", ["-9", &apid.to_string()]).expect(0);
    long.wait(BOUND).expect(137);
    assert_eq!(of(apid), "climate-2.b");
    instance.script("-q", "true").expect(0);
    assert_eq!(of(apid + 1), serde_json::Value::Null);
    let refused = instance.aprun(["--account", "a b", "true"]).expect(125);
    assert!(refused.stderr.contains("--account: \"a b\" is not an account: an account is 1 to 64"));
}

#[test]
fn a_refusal_and_an_explanation_have_the_same_words() {
    let instance = instance(2, 2);
    let long = instance.start_script("-q -n 3", "exec sleep 1000");
    let holder = instance.wait_for("running", 1)[0].to_string();
    let waits = instance.start_script("-q -n 2", "true");
    let waiting = instance.wait_for("posted", 1)[0];
    let why = instance.apstat(&format!("--why {waiting}"));
    let obstacle = why["obstacle"].as_str().expect("words").to_owned();
    let run = instance.script("-q -n 2 --immediate", "true").expect(125);
    assert!(run.stderr.contains(&obstacle), "{obstacle:?} is not in {:?}", run.stderr);
    // What could never be: the same from a posting as from --dry-run.
    let posted = instance.script("-q -n 5", "true").expect(125);
    let tried = instance.aprun(["-q", "-n", "5", "--dry-run", "true"]).expect(125);
    assert_eq!(posted.stderr, tried.stderr);
    instance.run("apkill", ["-9", &holder]).expect(0);
    long.wait(BOUND).expect(137);
    waits.wait(BOUND).expect(0);
}
