//! What least attained service is to reach on a recorded workload.
//!
//! `PSCHED_TRACES` names the folder of the logs; the project does not carry them.

use super::simulate;
use serde_json::Value;
use std::io::Write;
use std::path::Path;

/// What a model of the policy reached at the same costs: mean response and mean bounded slowdown, the
/// latter's 99.9th percentile, and the longest total wait in hours.
const MODEL: (f64, f64, f64, f64) = (12_403.0, 1.47, 25.9, 79.0);

#[test]
fn least_attained_service_does_as_well_as_its_model() {
    let Some(traces) = std::env::var_os("PSCHED_TRACES").filter(|t| !t.is_empty()) else {
        let test = "simulate::figures::least_attained_service_does_as_well_as_its_model";
        let _ = writeln!(std::io::stderr(), "skipped: {test}: PSCHED_TRACES names no logs");
        return;
    };
    let log = Path::new(&traces).join("KTH-SP2-1996-2.1-cln.swf.gz");
    let order = ["--set", "application.order=least-attained-service"];
    let words = ["--set", "application.max_resident=8", "--moves", "all", "--json"];
    let ran = simulate(&log, &[&order[..], &words].concat()).expect(0);
    let told: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let number = |pointer: &str| told.pointer(pointer).and_then(Value::as_f64).expect("a number");
    let (response, slowdown, p999, wait) = MODEL;
    assert_eq!(number("/jobs"), 28_467.0);
    for (pointer, most) in [
        ("/response/mean", 1.02 * response),
        ("/bounded_slowdown/mean", 1.02 * slowdown),
        ("/bounded_slowdown/p999", 1.1 * p999),
        ("/longest_wait/seconds", 1.5 * 3600.0 * wait),
        ("/turns/moves/mean", 1.0),
    ] {
        assert!(number(pointer) <= most, "{pointer}: {} over {most}", number(pointer));
    }
}
