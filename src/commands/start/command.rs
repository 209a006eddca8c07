//! The user's command: started, waited for, and the terminal given back.

use crate::os::instance;
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use signal_hook_tokio::SignalsInfo;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use tokio::process::Child;
use tokio_stream::StreamExt;

/// How the command ended.
pub enum Ending {
    /// Its exit code.
    Exit(u8),
    /// The signal that ended it.
    Signal(i32),
}

/// Signals that end an instance.
pub struct Signals {
    stream: SignalsInfo<WithOrigin>,
}

impl Signals {
    /// Watches for TERM, HUP, INT and QUIT; not for those that are ignored already (nohup, a
    /// shell's background job).
    pub fn new() -> io::Result<Signals> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let ignored = status
            .lines()
            .find_map(|l| l.strip_prefix("SigIgn:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .unwrap_or(0);
        let watched = [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT]
            .into_iter()
            .filter(|signal| ignored & 1 << (signal - 1) == 0);
        Ok(Signals { stream: SignalsInfo::with_exfiltrator(watched, WithOrigin::default())? })
    }

    async fn next(&mut self) -> Origin {
        match self.stream.next().await {
            Some(origin) => origin,
            None => std::future::pending().await,
        }
    }

    /// The next one, whoever sent it.
    pub async fn any(&mut self) -> i32 {
        self.next().await.signal
    }

    /// The next one that is for us: INT and QUIT from the terminal go to the command as well, and
    /// it decides what they mean.
    pub async fn ending(&mut self) -> i32 {
        loop {
            let origin = self.next().await;
            let typed = matches!(origin.signal, libc::SIGINT | libc::SIGQUIT)
                && matches!(origin.cause, Cause::Kernel);
            if !typed {
                return origin.signal;
            }
        }
    }
}

/// Whether there is a terminal to have a shell on, and it is ours at the moment.
pub fn has_terminal() -> bool {
    io::stdin().is_terminal()
        && io::stderr().is_terminal()
        && tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}

/// What is to be run.
pub struct Command {
    program: OsString,
    arguments: Vec<OsString>,
}

impl Command {
    /// The user's; not empty.
    pub fn given(words: &[OsString]) -> Command {
        let (program, arguments) =
            words.split_first().map_or_else(Default::default, |(p, a)| (p.clone(), a.to_vec()));
        Command { program, arguments }
    }

    /// The user's shell.
    pub fn shell() -> Command {
        let shell = std::env::var_os("SHELL").filter(|s| !s.is_empty());
        Command { program: shell.unwrap_or_else(|| "/bin/sh".into()), arguments: Vec::new() }
    }

    /// Starts it in our process group.
    ///
    /// # Errors
    /// The status to exit with, and what to say.
    pub fn start(self, binaries: &Path, folder: &Path) -> Result<Running, (u8, String)> {
        let path = std::env::var_os("PATH");
        let mut folders = vec![binaries.to_owned()];
        folders.extend(path.iter().flat_map(std::env::split_paths));
        let path = std::env::join_paths(folders)
            .map_err(|e| (super::STATUS_FAILED, format!("{}: {e}", binaries.display())))?;
        let terminal = tcgetpgrp(io::stdin()).ok().filter(|group| *group == getpgrp());
        let child = tokio::process::Command::new(&self.program)
            .args(&self.arguments)
            .env("PATH", path)
            .env(instance::SOCKET, folder.join(instance::SOCKET_FILE))
            .env(instance::INSTANCE, folder)
            .env_remove(instance::RUNTIME)
            .spawn()
            .map_err(|error| refusal(&self.program, &error))?;
        Ok(Running { child, terminal })
    }
}

fn refusal(program: &OsStr, error: &io::Error) -> (u8, String) {
    let is_directory = Path::new(program).is_dir();
    let program = program.to_string_lossy();
    match error.kind() {
        io::ErrorKind::PermissionDenied if is_directory && program.contains('/') => {
            (126, format!("{program}: not executable: it is a directory"))
        }
        io::ErrorKind::NotFound => {
            (127, format!("{program}: not found; give its path, or check PATH"))
        }
        io::ErrorKind::PermissionDenied => {
            (126, format!("{program}: not executable ({error}); check its permissions"))
        }
        _ => (126, format!("{program}: can't be executed ({error})")),
    }
}

/// A command that runs.
pub struct Running {
    child: Child,
    /// Our group, where it had the terminal when the command began.
    terminal: Option<Pid>,
}

impl Running {
    /// Until it ends. The terminal is ours again then, also when it was a shell that was killed.
    pub async fn wait(&mut self) -> io::Result<Ending> {
        let status = self.child.wait().await?;
        if let Some(group) = self.terminal
            && tcgetpgrp(io::stdin()).is_ok_and(|now| now != group)
        {
            // From a background group it would stop us, unless TTOU is blocked.
            let mut ttou = nix::sys::signal::SigSet::empty();
            ttou.add(nix::sys::signal::Signal::SIGTTOU);
            if ttou.thread_block().is_ok() {
                let _ = tcsetpgrp(io::stdin(), group);
                let _ = ttou.thread_unblock();
            }
        }
        Ok(match (status.code(), status.signal()) {
            (_, Some(signal)) => Ending::Signal(signal),
            (code, None) => Ending::Exit(code.unwrap_or_default() as u8),
        })
    }

    /// Sends it a signal; none if it has ended.
    pub fn signal(&self, signal: i32) {
        let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id as i32)) else { return };
        if let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
            let _ = rustix::process::kill_process(pid, signal);
            // One that is stopped would not hear it.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
        }
    }
}
