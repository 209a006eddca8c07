//! Log lines that stay one line and steer no terminal.
//!
//! # Problem
//! Events quote what users and other hosts say: paths, names, the words of an error. A line feed in
//! such a text began a line of its own, which could have the form of any other event, and an escape
//! sequence steered the terminal of the log's reader.
//!
//! # Approach
//! The layer that makes lines hands each of them over whole. Every character in it that steers
//! ([`steers`]), except the line feed at its end, is written as JSON writes it (`\n`, `\u001b`): so
//! one function does for lines and for JSON. The colours that the layer itself has put in pass.
//! Colours in a quotation are escaped before the layer adds its own: [`field`].

use crate::steering::steers;
use std::borrow::Cow;
use std::fmt::{Debug, Write as _};
use std::io::{self, Write};
use tracing::field::Field;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format as fmt;

/// A line without control characters, but for the line feed at its end. `colours`: those of the
/// layer stay.
pub fn escaped(line: &str, colours: bool) -> Cow<'_, str> {
    let (text, end) = match line.strip_suffix('\n') {
        Some(text) => (text, "\n"),
        None => (line, ""),
    };
    if !text.contains(steers) {
        return Cow::Borrowed(line);
    }
    let (mut clean, mut rest) = (String::with_capacity(line.len() + 64), text);
    while let Some(at) = rest.find(steers) {
        clean.push_str(&rest[..at]);
        rest = &rest[at..];
        if colours && let Some(colour) = colour(rest) {
            clean.push_str(colour);
            rest = &rest[colour.len()..];
            continue;
        }
        let mut letters = rest.chars();
        match letters.next() {
            Some('\n') => clean.push_str("\\n"),
            Some('\r') => clean.push_str("\\r"),
            Some('\t') => clean.push_str("\\t"),
            Some(control) => {
                let _ = write!(clean, "\\u{:04x}", u32::from(control));
            }
            None => {}
        }
        rest = letters.as_str();
    }
    clean.push_str(rest);
    clean.push_str(end);
    Cow::Owned(clean)
}

/// The sequences with which the layer sets colours. (Not any: one would hide what follows it.)
const COLOURS: [&str; 9] = [
    "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[3m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[34m",
    "\x1b[35m",
];

/// That with which a text begins.
fn colour(text: &str) -> Option<&'static str> {
    COLOURS.into_iter().find(|colour| text.starts_with(colour))
}

/// One field of an event or a span, for a layer that makes lines: what it quotes is written as
/// [`escaped`] writes it before the layer puts in its colours, from which those of the quotation
/// could not be told.
pub fn field(writer: &mut fmt::Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let value = format!("{value:?}");
    let value = escaped(&value, false);
    match field.name() {
        "message" => write!(writer, "{value}"),
        name if writer.has_ansi_escapes() => {
            write!(writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m{value}")
        }
        name => write!(writer, "{name}={value}"),
    }
}

/// Writes lines in this way.
pub struct Lines<T> {
    /// Where they go.
    pub to: T,
    /// The layer uses colours.
    pub colours: bool,
}

impl<'a, T: MakeWriter<'a>> MakeWriter<'a> for Lines<T> {
    type Writer = Writer<T::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Writer { to: self.to.make_writer(), colours: self.colours }
    }
}

/// Takes each whole line in one call, and gives it on in one.
pub struct Writer<W> {
    to: W,
    colours: bool,
}

impl<W: Write> Write for Writer<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.to.write_all(escaped(&text, self.colours).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex, PoisonError};
    use tracing_subscriber::field::MakeExt as _;
    use tracing_subscriber::fmt::format::debug_fn;
    use tracing_subscriber::layer::SubscriberExt;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Kept {
        fn text(&self) -> String {
            let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            String::from_utf8(bytes).expect("text")
        }
    }

    /// What comes of a user's path and of a host's words.
    fn log() {
        let path = "/x\n2026-11-30T16:00:00Z  WARN psched: FALSE \x1b[2J\u{9b}31m\r\t\x7f\x1b[31mRED\u{202e}";
        let span = tracing::info_span!("application", name = %path);
        span.in_scope(|| tracing::warn!(error = %path, "can't execute {path}"));
    }

    #[test]
    fn an_event_is_one_line_whatever_it_quotes() {
        for colours in [false, true] {
            let kept = Kept::default();
            let to = kept.clone();
            let to = Lines { to: move || to.clone(), colours };
            let layer = tracing_subscriber::fmt::layer().with_writer(to).with_ansi(colours);
            let layer = layer.fmt_fields(debug_fn(field).delimited(" "));
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
            let text = kept.text();
            assert_eq!(text.matches('\n').count(), 1, "{text:?}");
            assert!(text.ends_with('\n'), "{text:?}");
            assert_eq!(
                text.matches("/x\\n2026-11-30T16:00:00Z  WARN psched: FALSE ").count(),
                3,
                "{text:?}"
            );
            assert!(!text.contains("\x1b[2J") && !text.contains('\u{9b}'), "{text:?}");
            assert!(!text.contains(['\r', '\t', '\x7f', '\u{202e}']), "{text:?}");
            assert!(!text.contains("\x1b[31mRED"), "a quoted colour: {text:?}");
            // The layer's own colours stay.
            assert_eq!(text.contains("\x1b["), colours, "{text:?}");
        }
    }

    #[test]
    fn an_event_as_json_stays_json() {
        let kept = Kept::default();
        let to = kept.clone();
        let layer = tracing_subscriber::fmt::layer()
            .json()
            .with_writer(Lines { to: move || to.clone(), colours: false });
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let text = kept.text();
        assert!(!text.trim_end_matches('\n').contains(char::is_control), "{text:?}");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let message = value["fields"]["message"].as_str().expect("a message");
        assert!(message.contains("\u{9b}31m\r\t\x7f\x1b[31mRED\u{202e}"), "{message:?}");
    }

    #[test]
    fn what_has_no_control_characters_stays_as_it_is() {
        for text in ["", "\n", "an event\n", "Gr\u{fc}\u{df}e, \u{4f60}\u{597d}", "C:\\new"] {
            assert!(
                matches!(escaped(text, false), Cow::Borrowed(same) if same == text),
                "{text:?}"
            );
        }
        assert_eq!(escaped("a\n\n", false), "a\\n\n");
        assert_eq!(escaped("\0\x1b\u{85}", false), "\\u0000\\u001b\\u0085");
        // Of sequences only those pass that the layer writes.
        assert_eq!(escaped("\x1b[31ma\x1b[0m", true), "\x1b[31ma\x1b[0m");
        for other in ["\x1b[8m", "\x1b[31;8m", "\x1b[2J", "\x1b[m", "\x1b[31\u{e9}m", "\x1b"] {
            assert_eq!(escaped(other, true), other.replace('\x1b', "\\u001b"), "{other:?}");
        }
    }
}
