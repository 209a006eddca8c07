//! Where the daemons' diagnostics go.
//!
//! `PSCHED_LOG` is a filter in tracing's notation (`info`, `psched::apinit=debug`); without it there are
//! warnings, and psched's line of each application that has ended (`warn,usage=info`).
//! They go to the journal where stderr is connected to it; else to stderr, in lines for people, or
//! in JSON with `PSCHED_LOG_FORMAT=json`.
//!
//! psched and apinit do not wait for whoever reads that: a thread writes (see `queue`). Where it can't keep
//! up lines are dropped, and the log says how many. Whatever an event quotes, it is one line (see
//! `lines`).

mod journal;
mod lines;
mod queue;

use lines::{Lines, field};
use queue::{Queue, Sink};
use std::borrow::Cow;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::time::Duration;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::debug_fn;
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

/// How long the end of a daemon waits for what is to be written still.
const FLUSH_TIME: Duration = Duration::from_secs(1);
/// Until a stderr that takes nothing is tried again, where it does not make its writer wait.
const FULL_TIME: Duration = Duration::from_millis(20);

/// What a daemon's lines wait in.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Begins in a program of a user's, which writes its lines itself. A second call in one process has no
/// effect.
pub fn init(program: &'static str) {
    begin(program, false);
}

/// Begins in a daemon, whose loop waits for nobody. A second call in one process has no effect.
pub fn init_daemon(program: &'static str) {
    begin(program, true);
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        flush();
        say(panic);
    }));
}

/// Waits at the end of a daemon for what is to be written still, no longer than a second.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH_TIME);
    }
}

fn begin(program: &'static str, daemon: bool) {
    let text = std::env::var(FILTER_VARIABLE).unwrap_or_default();
    let text = if text.is_empty() { DEFAULT } else { &text };
    let (filter, wrong) = match EnvFilter::try_new(text) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(DEFAULT), Some(error)),
    };
    let json = std::env::var(FORMAT_VARIABLE).is_ok_and(|format| format == "json");
    let journal = (daemon && !json && is_journal()).then(|| journal::Journal::open(program));
    let queue = match journal {
        Some(Ok(journal)) => Queue::start(journal).ok().map(|queue| (queue, true)),
        _ if daemon => {
            Stderr::open(program).and_then(Queue::start).ok().map(|queue| (queue, false))
        }
        _ => None,
    };
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let layer = match queue {
        Some((queue, true)) => {
            let queue = QUEUE.get_or_init(|| queue).clone();
            journal::Messages { queue, program }.boxed()
        }
        Some((queue, false)) => {
            let queue = QUEUE.get_or_init(|| queue).clone();
            let to = Lines { to: queue, colours: colours && !json };
            match json {
                true => fmt::layer().json().with_writer(to).boxed(),
                false => fmt::layer()
                    .fmt_fields(debug_fn(field).delimited(" "))
                    .with_writer(to)
                    .with_ansi(colours)
                    .boxed(),
            }
        }
        None => {
            let to = Lines { to: std::io::stderr, colours: colours && !json };
            match json {
                true => fmt::layer().json().with_writer(to).boxed(),
                false => fmt::layer()
                    .fmt_fields(debug_fn(field).delimited(" "))
                    .with_writer(to)
                    .with_ansi(colours)
                    .boxed(),
            }
        }
    };
    // An Err: somebody has begun before.
    let begun = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
    if let (Ok(()), Some(error)) = (begun, wrong) {
        tracing::warn!("{FILTER_VARIABLE}={text} is not a filter ({error}): using {DEFAULT}");
    }
}

/// A text that others have a part in as one line of a log, without control characters: for a
/// program that writes its lines itself.
pub fn one_line(text: &str) -> Cow<'_, str> {
    lines::escaped(text, false)
}

/// Whether stderr goes to the journal.
fn is_journal() -> bool {
    let Ok(stderr) = std::fs::metadata("/proc/self/fd/2") else { return false };
    std::env::var(JOURNAL_VARIABLE)
        .is_ok_and(|stream| stream == format!("{}:{}", stderr.dev(), stderr.ino()))
}

/// What is said of lines that were dropped.
fn dropped(count: u64) -> String {
    format!("{count} lines of this log were dropped: its reader did not keep up")
}

/// stderr, past the lock of the standard library, which what a panic says must not wait for.
struct Stderr {
    file: std::fs::File,
    program: &'static str,
}

impl Stderr {
    fn open(program: &'static str) -> std::io::Result<Stderr> {
        let file = std::io::stderr().as_fd().try_clone_to_owned()?.into();
        Ok(Stderr { file, program })
    }
}

impl Sink for Stderr {
    fn put(&mut self, mut line: &[u8]) {
        while !line.is_empty() {
            match self.file.write(line) {
                Ok(count) if count > 0 => line = &line[count.min(line.len())..],
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // Another process has its end of it not wait.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::sleep(FULL_TIME);
                }
                // There is nobody who could be told.
                Ok(_) | Err(_) => return,
            }
        }
    }

    fn dropped(&self, count: u64) -> Vec<u8> {
        format!("{}: {}\n", self.program, dropped(count)).into_bytes()
    }
}
