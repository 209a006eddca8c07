//! Signals of this process: caught with their origin, from before the posting on.

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;
use signal_hook_tokio::SignalsInfo;
use std::io;

use crate::os::dispositions::{ignore, is_ignored};

/// What is passed on to the PEs.
pub const PASSED_ON: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGABRT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGURG,
    Signal::SIGWINCH,
];

/// Those that nohup, or a shell that puts a job into the background, may have had ignored: they
/// stay so.
const LEFT_ALONE: [Signal; 3] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT];

/// Installs the handlers. Must be called within the runtime.
pub fn catch() -> io::Result<SignalsInfo<WithRawSiginfo>> {
    // Rust's runtime ignores PIPE already. Reading from a terminal in the background would stop
    // this process, and its signals with it.
    ignore(Signal::SIGTTIN)?;
    let caught: Vec<Signal> = PASSED_ON
        .into_iter()
        .filter(|signal| !(LEFT_ALONE.contains(signal) && is_ignored(*signal)))
        .collect();
    let signals = SignalsInfo::with_exfiltrator(caught.iter().map(|s| *s as i32), WithRawSiginfo)?;
    // psched's USR1 has to come through whatever this process has inherited.
    let set: SigSet = caught.into_iter().collect();
    sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&set), None)?;
    Ok(signals)
}
