//! The simulated cluster without the rest of psched: `torture FIRST COUNT [CLASS,...]`.

// A program, not a room: it is told what to try, and prints what it found.
#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::disallowed_macros)]

use psched_worlds::torture::scenarios::SCENARIOS;
use psched_worlds::torture::{Counts, Options, run_traced};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some("scenarios") = arguments.first().map(String::as_str) {
        return scenarios(&arguments[1..]);
    }
    let number = |at: usize| arguments.get(at).and_then(|a| a.parse::<u64>().ok());
    let (Some(first), Some(count)) = (number(0), number(1)) else {
        println!("usage: torture FIRST COUNT [CLASS,...|none]");
        println!("       torture scenarios [NAME]...");
        return ExitCode::from(2);
    };
    let faults = arguments.get(2).map(|names| match names.as_str() {
        "none" => Default::default(),
        names => names.split(',').map(str::to_owned).collect(),
    });
    let (mut failed, mut with_moves, mut all) = (0, 0, Counts::default());
    for seed in first..first.saturating_add(count) {
        // Of a single seed the whole story.
        let lines = if count == 1 { 1_000_000 } else { 1 };
        match run_traced(&Options { faults: faults.clone(), ..Options::new(seed) }, lines) {
            Ok(summary) if count == 1 => println!("{:?}", summary.counts),
            Ok(summary) => {
                with_moves += u64::from(summary.counts.moved > 0);
                all.and(&summary.counts);
            }
            Err(failure) if count == 1 => {
                println!("{failure}");
                return ExitCode::FAILURE;
            }
            Err(failure) => {
                failed += 1;
                println!("seed {seed}: {}", failure.text);
            }
        }
    }
    println!("{all:?}; {with_moves} seeds with moves");
    println!("{count} seeds, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// Plays these scenarios, or all.
fn scenarios(names: &[String]) -> ExitCode {
    let mut failed = 0;
    for scenario in SCENARIOS {
        if !names.is_empty() && !names.iter().any(|name| name == scenario.name) {
            continue;
        }
        if let Err(failure) = scenario.run() {
            failed += 1;
            match names.len() {
                1 => println!("{failure}"),
                _ => println!("{}", failure.text),
            }
        }
    }
    println!("{failed} scenarios failed");
    ExitCode::from(u8::from(failed > 0))
}
