//! Where the shepherd's diagnostics go: to stderr, as apinit has it; or to the journal by itself.
//!
//! Under systemd stderr is a connection to the journal, and a process that holds one end of a connection
//! whose other end is outside can't be dumped for a checkpoint. So where it is, each line goes as a datagram
//! by itself, and stderr becomes /dev/null.

use crate::apteam::Key;
use crate::logging::one_line;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;

/// Set by systemd: `device:inode` of the stream to the journal.
const JOURNAL_VARIABLE: &str = "JOURNAL_STREAM";
/// Where the journal takes datagrams.
const JOURNAL: &str = "/run/systemd/journal/socket";
/// `warning`, as syslog counts.
const PRIORITY: u32 = 4;

/// The way they go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Diagnostics {
    key: Key,
    journal: bool,
}

impl Diagnostics {
    /// As stderr is; if that is a connection to the journal, it is closed.
    pub fn begin(key: Key) -> Diagnostics {
        let journal = is_journal() && close_stderr().is_ok();
        let diagnostics = Diagnostics { key, journal };
        if journal {
            std::panic::set_hook(Box::new(move |info| diagnostics.say(info)));
        }
        diagnostics
    }

    /// It is another application's shepherd from now on.
    pub fn rekeyed(&mut self, key: Key) {
        self.key = key;
    }

    /// Says something, if there is somebody to hear it.
    pub fn say(&self, text: impl std::fmt::Display) {
        // (A path that a user has chosen may be in it, and must not begin another line.)
        let text = format!("apshepherd {}: {text}", self.key);
        let text = one_line(&text);
        if !self.journal {
            eprintln!("{text}");
            return;
        }
        let datagram = datagram(self.key, &text);
        // An Err: the journal has gone, or is too busy.
        let _ = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.send_to(&datagram, JOURNAL)
        });
    }
}

fn is_journal() -> bool {
    let stream = std::env::var(JOURNAL_VARIABLE);
    let stderr = std::fs::metadata("/proc/self/fd/2");
    match (stream, stderr) {
        (Ok(stream), Ok(stderr)) => stream == format!("{}:{}", stderr.dev(), stderr.ino()),
        _ => false,
    }
}

fn close_stderr() -> std::io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stderr(null).map_err(std::io::Error::from)
}

/// A line in the journal's own form: NAME=VALUE, and for a value that may hold anything its name, its length
/// in eight bytes, and it.
fn datagram(key: Key, text: &str) -> Vec<u8> {
    let apid = key.apid;
    let mut bytes =
        format!("PRIORITY={PRIORITY}\nSYSLOG_IDENTIFIER=apshepherd\nAPID={apid}\nMESSAGE\n")
            .into_bytes();
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_as_the_journal_wants_it() {
        let key = Key::parse("12.1").expect("a key");
        let expected =
            b"PRIORITY=4\nSYSLOG_IDENTIFIER=apshepherd\nAPID=12\nMESSAGE\n\x03\0\0\0\0\0\0\0a\nb\n";
        assert_eq!(datagram(key, "a\nb"), expected);
    }
}
