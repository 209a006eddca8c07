//! Events as messages of journald's native protocol.
//!
//! As the crate tracing-journald has it, which sends from the thread that logs and waits there for a
//! journald that does not keep up: the fields of an event and of the spans around it are fields of the
//! entry, in capitals (`journalctl APID=12`), with MESSAGE, PRIORITY, TARGET, CODE_FILE, CODE_LINE and
//! SYSLOG_IDENTIFIER. Here the message is only made, and goes into the [queue](super::queue).

use super::queue::{Queue, Sink};
use std::fmt::{Debug, Write};
use std::os::unix::net::UnixDatagram;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Where journald listens.
const SOCKET: &str = "/run/systemd/journal/socket";
/// The longest message, in bytes: what a datagram holds where nothing was tuned.
const MESSAGE_MAX: usize = 160 * 1024;

/// Sends messages to journald.
pub struct Journal {
    socket: UnixDatagram,
    program: &'static str,
}

impl Journal {
    /// Finds journald.
    ///
    /// # Errors
    /// There is none.
    pub fn open(program: &'static str) -> std::io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        // One without fields it throws away.
        socket.send_to(&[], SOCKET)?;
        Ok(Journal { socket, program })
    }
}

impl Sink for Journal {
    fn put(&mut self, line: &[u8]) {
        // There is nobody who could be told.
        let _ = self.socket.send_to(line, SOCKET);
    }

    fn dropped(&self, count: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, "PRIORITY", priority(&Level::WARN).as_bytes());
        put(&mut bytes, "SYSLOG_IDENTIFIER", self.program.as_bytes());
        put(&mut bytes, "MESSAGE", super::dropped(count).as_bytes());
        bytes
    }
}

/// Makes the messages.
pub struct Messages {
    pub queue: Queue,
    pub program: &'static str,
}

/// The fields of a span, as they stand in each message.
struct SpanFields(Vec<u8>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Messages {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut bytes = Vec::new();
        put(&mut bytes, "SPAN_NAME", span.name().as_bytes());
        attributes.record(&mut Fields(&mut bytes));
        span.extensions_mut().insert(SpanFields(bytes));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(SpanFields(bytes)) = span.extensions_mut().get_mut() {
            values.record(&mut Fields(bytes));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut bytes = Vec::with_capacity(512);
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(SpanFields(fields)) = span.extensions().get() {
                bytes.extend_from_slice(fields);
            }
        }
        put_metadata(&mut bytes, event.metadata());
        put(&mut bytes, "SYSLOG_IDENTIFIER", self.program.as_bytes());
        event.record(&mut Fields(&mut bytes));
        self.queue.push(bytes);
    }
}

fn priority(level: &Level) -> &'static str {
    match *level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "5",
        Level::DEBUG => "6",
        Level::TRACE => "7",
    }
}

fn put_metadata(bytes: &mut Vec<u8>, metadata: &Metadata<'_>) {
    put(bytes, "PRIORITY", priority(metadata.level()).as_bytes());
    put(bytes, "TARGET", metadata.target().as_bytes());
    if let Some(file) = metadata.file() {
        put(bytes, "CODE_FILE", file.as_bytes());
    }
    if let Some(line) = metadata.line() {
        put(bytes, "CODE_LINE", line.to_string().as_bytes());
    }
}

/// Appends a field: its name, the length of its value in eight bytes, lowest first, and its value.
fn put(bytes: &mut Vec<u8>, name: &str, value: &[u8]) {
    // What is left of a message that is too long is told.
    let value = &value[..value.len().min(MESSAGE_MAX.saturating_sub(bytes.len()))];
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(b'\n');
    bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
    bytes.extend_from_slice(value);
    bytes.push(b'\n');
}

/// Appends the fields of an event or a span.
struct Fields<'a>(&'a mut Vec<u8>);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            // (journalctl shows what has a line feed in it as several lines. Other fields are for
            // programs: they stay as they are.)
            let line = super::one_line(value);
            return put(self.0, "MESSAGE", line.as_bytes());
        }
        // Names have capitals, digits and underscores, none of these in front.
        let name: String = field
            .name()
            .chars()
            .map(|c| if c == '.' { '_' } else { c.to_ascii_uppercase() })
            .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        put(self.0, name.trim_start_matches('_'), value.as_bytes());
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        let _ = write!(text, "{value:?}");
        self.put(field, &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use tracing_subscriber::layer::SubscriberExt;

    struct Kept(Sender<Vec<u8>>);

    impl Sink for Kept {
        fn put(&mut self, line: &[u8]) {
            let _ = self.0.send(line.to_vec());
        }

        fn dropped(&self, _: u64) -> Vec<u8> {
            Vec::new()
        }
    }

    fn field(name: &str, value: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, name, value.as_bytes());
        bytes
    }

    #[test]
    fn fields_of_an_event_and_its_spans_are_fields_of_the_entry() {
        let (sender, kept) = channel();
        let queue = Queue::start(Kept(sender)).expect("a thread");
        let messages = Messages { queue, program: "psched" };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(messages), || {
            let span = tracing::info_span!("application", apid = 12, nid = tracing::field::Empty);
            span.record("nid", 3);
            span.in_scope(|| tracing::warn!(user.name = "al\nice", "hel\nlo\x1b[2J"));
        });
        let message = kept.recv_timeout(std::time::Duration::from_secs(60)).expect("a message");
        for (name, value) in [
            ("SPAN_NAME", "application"),
            ("APID", "12"),
            ("NID", "3"),
            ("PRIORITY", "4"),
            ("SYSLOG_IDENTIFIER", "psched"),
            ("USER_NAME", "al\nice"),
            ("MESSAGE", "hel\\nlo\\u001b[2J"),
        ] {
            let field = field(name, value);
            assert!(message.windows(field.len()).any(|part| part == field), "{name}");
        }
        assert_eq!(field("A", "b\n"), b"A\n\x02\0\0\0\0\0\0\0b\n\n");
        let long = field("LONG", &"x".repeat(2 * MESSAGE_MAX));
        assert!(long.len() < MESSAGE_MAX + 100);
    }
}
