//! A queue of log lines and the thread that writes them.
//!
//! # Problem
//! A write to stderr waits when nobody reads the pipe behind it, and so does a message to a journald that
//! does not keep up. A loop that logs must wait for neither.
//!
//! # Approach
//! The loop appends to a queue with a bound in lines and in bytes; a thread writes. A line that does not
//! fit is dropped and counted, and the next one that fits comes after a line that says how many were.
//! At the end of the process [`Queue::flush`] waits for what is queued, with a bound.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Lines that may wait.
const LINES_MAX: usize = 16_384;
/// Bytes that may wait.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// The thread's stack: apinit locks its memory.
const STACK: usize = 256 * 1024;

/// Where lines go in the end. Its calls may wait.
pub trait Sink: Send + 'static {
    /// Writes one line.
    fn put(&mut self, line: &[u8]);
    /// The line that says how many were dropped.
    fn dropped(&self, count: u64) -> Vec<u8>;
}

/// The queue; a clone is the same one.
#[derive(Clone)]
pub struct Queue(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// There is a line.
    more: Condvar,
    /// There is none, and none is being written.
    idle: Condvar,
    /// The process that the thread is in: one that was forked from it has no such thread.
    process: u32,
}

struct State {
    lines: VecDeque<Line>,
    bytes: usize,
    dropped: u64,
    /// The thread is writing one.
    writes: bool,
}

enum Line {
    Text(Vec<u8>),
    /// So many were dropped here.
    Dropped(u64),
}

impl Queue {
    /// Starts the thread.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start(mut sink: impl Sink) -> io::Result<Queue> {
        let state = State { lines: VecDeque::new(), bytes: 0, dropped: 0, writes: false };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            more: Condvar::new(),
            idle: Condvar::new(),
            process: std::process::id(),
        });
        let of_thread = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("log".into()).stack_size(STACK);
        builder.spawn(move || {
            loop {
                match of_thread.next() {
                    Line::Text(line) => sink.put(&line),
                    Line::Dropped(count) => {
                        let line = sink.dropped(count);
                        sink.put(&line);
                    }
                }
            }
        })?;
        Ok(Queue(shared))
    }

    /// Appends a line, or drops it where the queue is full. Never waits for a sink.
    pub fn push(&self, line: Vec<u8>) {
        if std::process::id() != self.0.process {
            return;
        }
        let mut state = self.0.lock();
        if state.lines.len() >= LINES_MAX || state.bytes + line.len() > BYTES_MAX {
            state.dropped = state.dropped.saturating_add(1);
            return;
        }
        let dropped = std::mem::take(&mut state.dropped);
        if dropped > 0 {
            state.lines.push_back(Line::Dropped(dropped));
        }
        state.bytes += line.len();
        state.lines.push_back(Line::Text(line));
        drop(state);
        self.0.more.notify_one();
    }

    /// Waits until all is written, but no longer than this.
    pub fn flush(&self, bound: Duration) {
        if std::process::id() != self.0.process {
            return;
        }
        let end = Instant::now() + bound;
        let mut state = self.0.lock();
        while state.writes || !state.lines.is_empty() || state.dropped > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.0.idle.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The next line for the thread, which has written the one before.
    fn next(&self) -> Line {
        let mut state = self.lock();
        state.writes = false;
        loop {
            if let Some(line) = state.lines.pop_front() {
                if let Line::Text(text) = &line {
                    state.bytes -= text.len();
                }
                state.writes = true;
                return line;
            }
            // Nothing has come after them.
            if state.dropped > 0 {
                state.writes = true;
                return Line::Dropped(std::mem::take(&mut state.dropped));
            }
            self.idle.notify_all();
            state = self.more.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }
}

/// For the layer that makes lines.
impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Queue {
    type Writer = Writer<'a>;

    fn make_writer(&'a self) -> Writer<'a> {
        Writer(self)
    }
}

/// Takes each whole line in one call, as tracing's layer writes it.
pub struct Writer<'a>(&'a Queue);

impl io::Write for Writer<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Writes a line when it is told to.
    struct Slow {
        go: Receiver<()>,
        out: Sender<String>,
    }

    impl Sink for Slow {
        fn put(&mut self, line: &[u8]) {
            let _ = self.go.recv();
            let _ = self.out.send(String::from_utf8_lossy(line).into_owned());
        }

        fn dropped(&self, count: u64) -> Vec<u8> {
            format!("{count} dropped").into_bytes()
        }
    }

    fn slow() -> (Queue, Sender<()>, Receiver<String>) {
        let ((go, went), (out, written)) = (channel(), channel());
        (Queue::start(Slow { go: went, out }).expect("a thread"), go, written)
    }

    #[test]
    fn a_sink_that_waits_holds_up_nobody_and_what_is_dropped_is_counted() {
        let (queue, go, written) = slow();
        let count = LINES_MAX as u64 + 100;
        for number in 0..count {
            queue.push(number.to_string().into_bytes());
        }
        let kept = count - queue.0.lock().dropped;
        assert!((LINES_MAX as u64..=LINES_MAX as u64 + 1).contains(&kept), "{kept}");
        queue.flush(Duration::from_millis(1));
        let bound = Duration::from_secs(60);
        go.send(()).expect("it waits");
        assert_eq!(written.recv_timeout(bound).expect("the first"), "0");
        // (It has room when the thread has taken the next one.)
        let end = Instant::now() + bound;
        while queue.0.lock().lines.len() >= LINES_MAX && Instant::now() < end {
            std::thread::yield_now();
        }
        queue.push(b"last".to_vec());
        drop(go);
        let mut rest = Vec::new();
        while rest.last().is_none_or(|line| line != "last") {
            rest.push(written.recv_timeout(bound).expect("another"));
        }
        assert_eq!(rest.len() as u64, kept + 1);
        assert_eq!(rest[rest.len() - 2], format!("{} dropped", count - kept));
        queue.flush(bound);
        assert!(queue.0.lock().lines.is_empty());
    }

    #[test]
    fn bytes_have_a_bound_and_the_last_drop_is_told_too() {
        let (queue, go, written) = slow();
        queue.push(b"first".to_vec());
        (0..5).for_each(|_| queue.push(vec![b'x'; BYTES_MAX / 2 - 10]));
        drop(go);
        queue.flush(Duration::from_secs(60));
        let lines: Vec<String> = written.try_iter().collect();
        assert_eq!(lines.last().map(String::as_str), Some("3 dropped"));
        assert_eq!(lines.len(), 4);
    }
}
