//! Text for stdout.

use std::io::{self, Write};

/// Writes it to stdout.
///
/// # Errors
/// That of write, in words; a reader that has gone away (`apstat | head`) is none.
pub fn write_out(text: &str) -> Result<(), String> {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("can't write standard output: {e}"))
        }
        _ => Ok(()),
    }
}
