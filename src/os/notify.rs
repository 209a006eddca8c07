//! Telling the service manager: systemd's notification protocol, in the few words that are needed.
//!
//! The manager names a datagram socket in NOTIFY_SOCKET. It is told when the daemon answers
//! (`READY=1`), reads its configuration again (`RELOADING=1`, then `READY=1`), ends (`STOPPING=1`),
//! and, where it has set WATCHDOG_USEC, that the daemon's loop turns (`WATCHDOG=1`): a daemon that
//! falls silent is started again. What is told is never waited for.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The manager's socket.
const MANAGER: &str = "NOTIFY_SOCKET";
/// What a manager says to the one process that it starts, and not to those below.
pub const VARIABLES: [&str; 3] = [MANAGER, "WATCHDOG_USEC", "WATCHDOG_PID"];

/// The manager, if there is one.
#[derive(Debug, Default)]
pub struct Notify {
    manager: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// Whether a manager has started this process and not another above it: the daemons hand the
    /// variable on to nobody.
    pub fn has_manager() -> bool {
        std::env::var_os(MANAGER).is_some()
    }

    /// As the environment says. No manager: nothing is told to anybody.
    pub fn from_environment() -> Notify {
        let Some(manager) = std::env::var_os(MANAGER).and_then(|name| {
            let name = name.as_bytes();
            let address = match name.strip_prefix(b"@") {
                Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
                None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)),
            };
            let socket = UnixDatagram::unbound().ok()?;
            // A manager that does not read costs the message, not our time.
            socket.set_nonblocking(true).ok()?;
            Some((socket, address.ok()?))
        }) else {
            return Notify::default();
        };
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|usec| ours && *usec > 0);
        Notify { manager: Some(manager), watchdog: watchdog.map(Duration::from_micros) }
    }

    /// How often [`Notify::alive`] is to be called, if at all: twice in the time after which the
    /// manager takes the daemon for dead.
    pub fn beat(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 2)
    }

    /// The daemon answers.
    pub fn ready(&self) {
        self.say("READY=1");
    }

    /// The loop turns.
    pub fn alive(&self) {
        self.say("WATCHDOG=1");
    }

    /// The configuration is read again; [`Notify::ready`] tells the end of that.
    pub fn reloading(&self) {
        let usec = super::host::monotonic_ns() / 1_000;
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={usec}"));
    }

    /// The daemon ends.
    pub fn stopping(&self) {
        self.say("STOPPING=1");
    }

    fn say(&self, words: &str) {
        if let Some((socket, address)) = &self.manager {
            let _ = socket.send_to_addr(words.as_bytes(), address);
        }
    }
}
