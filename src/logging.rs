//! Where the daemons' diagnostics go.
//!
//! `PSCHED_LOG` is a filter in tracing's notation (`info`, `psched::node=debug`); without it there are
//! warnings, and psched's line of each application that has ended (`warn,usage=info`).
//! They go to the journal where stderr is connected to it; else to stderr, in lines for people, or
//! in JSON with `PSCHED_LOG_FORMAT=json`.

use std::os::unix::fs::MetadataExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

/// The variable with the filter.
pub const FILTER_VARIABLE: &str = "PSCHED_LOG";
/// The variable with the format: `json`, or anything else for lines.
pub const FORMAT_VARIABLE: &str = "PSCHED_LOG_FORMAT";
/// The filter where the variable is not set.
const DEFAULT: &str = "warn,usage=info";
/// Set by systemd: `device:inode` of the stream to the journal.
const JOURNAL_VARIABLE: &str = "JOURNAL_STREAM";

/// Begins. A second call in one process has no effect.
pub fn init(program: &'static str) {
    let text = std::env::var(FILTER_VARIABLE).unwrap_or_default();
    let text = if text.is_empty() { DEFAULT } else { &text };
    let (filter, wrong) = match EnvFilter::try_new(text) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(DEFAULT), Some(error)),
    };
    let json = std::env::var(FORMAT_VARIABLE).is_ok_and(|format| format == "json");
    let layer = if json {
        fmt::layer().json().with_writer(std::io::stderr).boxed()
    } else if let Some(journal) = journal(program) {
        journal.boxed()
    } else {
        let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
        fmt::layer().with_writer(std::io::stderr).with_ansi(colours).boxed()
    };
    // An Err: somebody has begun before.
    let begun = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
    if let (Ok(()), Some(error)) = (begun, wrong) {
        tracing::warn!("{FILTER_VARIABLE}={text} is not a filter ({error}): using {DEFAULT}");
    }
}

/// The journal, if that is where stderr goes.
fn journal(program: &str) -> Option<tracing_journald::Layer> {
    let stderr = std::fs::metadata("/proc/self/fd/2").ok()?;
    let stream = std::env::var(JOURNAL_VARIABLE).ok()?;
    if stream != format!("{}:{}", stderr.dev(), stderr.ino()) {
        return None;
    }
    // No prefix: the fields of a span are then found as APID=12.
    let layer = tracing_journald::layer().ok()?;
    Some(layer.with_field_prefix(None).with_syslog_identifier(program.into()))
}
