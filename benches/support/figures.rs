//! Figures: when to take them, what they are of, and what they say together.

use std::time::Duration;

/// Whether `cargo bench` has called: `cargo test --all-targets` runs these programs too, and shall
/// not wait for them.
pub fn is_bench(name: &str) -> bool {
    let asked = std::env::args().any(|argument| argument == "--bench");
    if !asked {
        println!("{name}: measures only under `cargo bench --bench {name}`");
    }
    asked
}

/// Lengths of time, sorted.
pub struct Sample(Vec<Duration>);

impl Sample {
    pub fn new(mut times: Vec<Duration>) -> Sample {
        times.sort_unstable();
        Sample(times)
    }

    /// The smallest one that at least `percent` of all do not exceed, in milliseconds.
    pub fn percentile_ms(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }

    pub fn median_ms(&self) -> f64 {
        self.percentile_ms(50)
    }
}

/// The machine, in a line: figures mean nothing without it.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "{cpus} processors ({}), Linux {}, load {}",
        model.map_or("of an unknown model", |(_, name)| name),
        read("/proc/sys/kernel/osrelease").trim(),
        read("/proc/loadavg").split(' ').next().unwrap_or("unknown"),
    )
}
