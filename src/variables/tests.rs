use super::*;
use std::time::Duration;

#[test]
fn the_table_is_in_order_and_its_defaults_in_range() {
    assert!(TABLE.is_sorted_by(|a, b| a.name < b.name));
    for row in TABLE {
        assert!((row.min..=row.max).contains(&row.default), "{}", row.name);
        // A range and a default read back as what they are.
        for value in [row.min, row.max, row.default] {
            assert_eq!(row.kind.parse(&row.kind.format(value)), Some(value), "{}", row.name);
            let mut variables = Variables::default();
            assert_eq!(variables.set(row.name, &row.kind.format(value)), Ok(()));
        }
    }
}

#[test]
fn getters_tell_what_was_set() {
    let mut variables = Variables::default();
    assert_eq!(variables.kill_grace(), Duration::from_secs(5));
    assert_eq!(variables.ticket_time(), Duration::from_secs(60));
    assert_eq!(variables.pids_max(), 16_384);
    for (name, text) in [("kill_grace", "500ms"), ("ticket_time", "90"), ("pids_max", " 17 ")] {
        assert_eq!(variables.set(name, text), Ok(()), "{name}");
    }
    assert_eq!(variables.kill_grace(), Duration::from_millis(500));
    assert_eq!(variables.ticket_time(), Duration::from_secs(90));
    assert_eq!(variables.pids_max(), 17);
    let changed: Vec<_> =
        variables.show().into_iter().filter(|s| !s.is_default()).map(|s| s.value).collect();
    assert_eq!(changed, ["500ms", "17", "1m30s"]);
}

#[test]
fn what_cannot_be_set_is_said() {
    for (name, text, said) in [
        (
            "kill_grace",
            "2h",
            "2h is out of the range of kill_grace; \
             give a duration such as 500ms, 5s or 1m30s, 0s to 1h",
        ),
        (
            "kill_grace",
            "soon",
            "\"soon\" is not a value of kill_grace; give a duration such as 500ms, 5s or 1m30s, \
             0s to 1h",
        ),
        (
            "applications_max",
            "-1",
            "\"-1\" is not a value of applications_max; give a whole number, 1 to 65536",
        ),
        (
            "applications_max",
            "0",
            "0 is out of the range of applications_max; give a whole number, 1 to 65536",
        ),
        (
            "output_max",
            "much",
            "\"much\" is not a value of output_max; give a size such as 512K, 100M or 8G, 256K \
             to 64M",
        ),
        (
            "application.switch_share",
            "5",
            "\"5\" is not a value of application.switch_share; give a percentage such as 5%, \
             0.1% to 100%",
        ),
        (
            "application.memory_overcommit",
            "0.05",
            "0.05 is out of the range of application.memory_overcommit; \
             give a number such as 1.5, 0.1 to 100",
        ),
        (
            "application.load_balance.enabled",
            "true",
            "\"true\" is not a value of application.load_balance.enabled; give a word, yes, no",
        ),
        ("isolation", "on", "\"on\" is not a value of isolation; give a word, auto, root, off"),
        ("postngs_mx", "1", "there is no variable postngs_mx; did you mean postings_max?"),
        (
            "time_slice",
            "1s",
            "there is no variable time_slice; did you mean application.time_slice?",
        ),
        (
            "colour",
            "red",
            "there is no variable colour; psched.yaml(5) and psmgr show list all variables",
        ),
    ] {
        let mut variables = Variables::default();
        assert_eq!(variables.set(name, text).map_err(|e| e.to_string()), Err(said.into()));
        assert_eq!(variables, Variables::default());
    }
}

#[test]
fn users_have_weights() {
    let mut variables = Variables::default();
    for (user, weight) in [("alice", "1000"), ("bob", "1"), ("o'hara.x", "3")] {
        assert_eq!(variables.set(&format!("weight.user.{user}"), weight), Ok(()));
    }
    let weights = variables.weights();
    assert_eq!(weights, [("alice".into(), 1000), ("o'hara.x".into(), 3)].into());
    assert_eq!(variables.get("weight.user.alice").as_deref(), Some("1000"));
    assert_eq!(variables.get("weight.user.carol").as_deref(), Some("1"));
    assert_eq!(variables.get("weight"), None);
    let last: Vec<_> =
        variables.show().split_off(TABLE.len()).into_iter().map(|s| s.name).collect();
    assert_eq!(last, ["weight.user.alice", "weight.user.bob", "weight.user.o'hara.x"]);
    let before = variables.clone();
    for (name, text, said) in [
        (
            "weight.user.alice",
            "0",
            "0 is out of the range of weight.user.alice; give a whole number, 1 to 1000",
        ),
        (
            "weight.user.a b",
            "2",
            "weight.user.a b does not name a user; give the name of a user, of 64 bytes at most, such as \
             weight.user.alice",
        ),
    ] {
        assert_eq!(variables.set(name, text).map_err(|e| e.to_string()), Err(said.into()));
    }
    assert!(variables.set("weight.user.", "2").is_err());
    assert!(variables.set(&format!("weight.user.{}", "x".repeat(65)), "2").is_err());
    assert_eq!(variables, before);
    for n in variables.weights.len()..WEIGHTS_MAX {
        assert_eq!(variables.set(&format!("weight.user.u{n}"), "2"), Ok(()));
    }
    assert_eq!(variables.set("weight.user.one", "2"), Err(VariableError::TooMany));
    assert_eq!(variables.set("weight.user.bob", "2"), Ok(()));
}

#[test]
fn domains_have_variables_of_their_own() {
    let mut variables = Variables::default();
    let said = |variables: &mut Variables, name: &str, text: &str| {
        variables.set(name, text).map_err(|error| error.to_string())
    };
    assert_eq!(
        said(&mut variables, "quick.time_slice", "2s"),
        Err("no region of this machine has the domain quick; give a region the key domain, or use one of: application".into())
    );
    variables.set_domains(["quick", "application", "quick"]);
    assert_eq!(variables.domains().collect::<Vec<_>>(), ["application", "quick"]);
    assert_eq!(said(&mut variables, "quick.time_slice", "2s"), Ok(()));
    assert_eq!(said(&mut variables, "application.load_balance.moves_max", "3"), Ok(()));
    assert_eq!(said(&mut variables, "kill_grace", "9s"), Ok(()));
    let get = |name| variables.get(name).expect("a variable");
    assert_eq!([get("quick.time_slice"), get("application.time_slice")], ["2s", "1s"]);
    let of = variables.of_domain("quick");
    assert_eq!(of.application_time_slice(), Duration::from_secs(2));
    assert_eq!((of.application_load_balance_moves_max(), of.kill_grace().as_secs()), (8, 9));
    assert_eq!(variables.of_domain("slow"), variables);
    // A value of one is no value of the other, and bounds are the same.
    assert_eq!(
        said(&mut variables, "quick.time_slice", "2d"),
        Err("2d is out of the range of quick.time_slice; give a duration such as 500ms, 5s or 1m30s, 10ms to 1h".into())
    );
    for name in ["quick.kill_grace", "quick.", ".time_slice", "quick.weight.user.al"] {
        assert!(variables.set(name, "2s").is_err() && variables.get(name).is_none(), "{name}");
    }
    assert_eq!(
        said(&mut variables, "aplication.floor", "no"),
        Err("there is no variable aplication.floor; did you mean application.floor?".into())
    );
    // They are shown after the table, and those of a domain that goes are forgotten.
    let shown = variables.show();
    let last = &shown[TABLE.len()..];
    assert!(last.iter().all(|shown| shown.name.starts_with("quick.")), "{last:?}");
    assert_eq!(last.len(), TABLE.iter().filter(|r| r.name.starts_with("application.")).count());
    assert_eq!(row("quick.time_slice").map(|row| row.name), Ok("application.time_slice"));
    variables.set_domains(["other", "quick"]);
    assert_eq!(variables.get("quick.time_slice").as_deref(), Some("2s"));
    variables.set_domains([]);
    assert_eq!(variables.get("quick.time_slice"), None);
}
