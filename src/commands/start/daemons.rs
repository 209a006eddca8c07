//! The daemons of an instance: started, watched, started again when they die.
//!
//! Each has a task of its own that starts it, waits for it, and starts it again: at once if it had
//! been well, after a growing pause if it dies again and again, and no more after
//! [`FAILURES_MAX`] short lives in a row that it ended itself: one that is killed can do its work,
//! so it is tried for ever. What they write on stderr goes to the folder's `log`,
//! whose end is shown when one of them can't be had; with PSCHED_LOG set, to our own stderr.

use crate::machine::{Nid, format_nids, nids_text};
use crate::os::{affinity, instance, notify};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A daemon that lived longer was well.
const WELL: Duration = Duration::from_secs(2);
/// So many short lives in a row are enough.
const FAILURES_MAX: u32 = 6;
/// The pause after the second short life, doubled with each further one, up to 0.8 s.
const PAUSE: Duration = Duration::from_millis(100);
/// The log is cut when it grows longer.
const LOG_MAX: u64 = 8 * 1024 * 1024;
/// Lines of the log that are shown.
const TAIL_LINES: usize = 12;

/// The folder of the binaries: that of the running one.
pub fn own_folder() -> PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(Path::to_owned))
        .unwrap_or_default()
}

/// A binary beside the running one, else whatever PATH has.
fn binary(name: &str) -> PathBuf {
    Some(own_folder().join(name)).filter(|p| p.is_file()).unwrap_or_else(|| name.into())
}

/// What is to be kept running.
#[derive(Clone, Debug)]
pub struct Daemon {
    name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Daemon {
    /// psched.
    pub fn psched(config: &Path, state: &Path, folder: &Path) -> Daemon {
        let arguments = [
            "--config".into(),
            config.into(),
            "--state".into(),
            state.into(),
            "--runtime".into(),
            folder.as_os_str().to_owned(),
        ];
        Daemon { name: "psched".into(), program: binary("psched"), arguments: arguments.into() }
    }

    /// The apinit of some nodes.
    pub fn apinit(socket: &Path, nids: &[Nid]) -> Daemon {
        let nodes = nids.iter().copied();
        let nids = format_nids(nodes.clone());
        let arguments = ["--socket".into(), socket.into(), "--nids".into(), nids.clone().into()];
        Daemon {
            name: format!("apinit of {}", nids_text(nodes)),
            program: binary("apinit"),
            arguments: arguments.into(),
        }
    }
}

/// What a daemon's task tells.
enum News {
    /// It ended before the instance was there, by its own decision: it would do so again.
    FailedStart(String),
    /// It won't be started again.
    GivenUp(String),
}

/// All daemons of an instance.
pub struct Daemons {
    folder: PathBuf,
    lifeline: Arc<OwnedFd>,
    /// The processors that they may use; none: as this process.
    cpus: Option<Vec<u32>>,
    ready: CancellationToken,
    finish: CancellationToken,
    kill: CancellationToken,
    news: (mpsc::UnboundedSender<News>, mpsc::UnboundedReceiver<News>),
    tasks: Vec<JoinHandle<()>>,
}

impl Daemons {
    /// None yet. `lifeline` is the reading end that they are given.
    pub fn new(folder: &Path, lifeline: OwnedFd, cpus: Option<Vec<u32>>) -> Daemons {
        let folder = folder.to_owned();
        let log = folder.join("log");
        let finish = CancellationToken::new();
        let over = finish.clone();
        let cutter = tokio::spawn(async move {
            while over
                .run_until_cancelled(tokio::time::sleep(Duration::from_secs(10)))
                .await
                .is_some()
            {
                if std::fs::metadata(&log).is_ok_and(|m| m.len() > LOG_MAX) {
                    // They append: what is written next begins at 0.
                    let _ = OpenOptions::new().write(true).open(&log).and_then(|f| f.set_len(0));
                }
            }
        });
        Daemons {
            folder,
            lifeline: Arc::new(lifeline),
            cpus,
            ready: CancellationToken::new(),
            finish,
            kill: CancellationToken::new(),
            news: mpsc::unbounded_channel(),
            tasks: vec![cutter],
        }
    }

    /// Starts one, and keeps it running.
    pub fn start(&mut self, daemon: Daemon) {
        let keeper = Keeper {
            daemon,
            folder: self.folder.clone(),
            lifeline: self.lifeline.clone(),
            cpus: self.cpus.clone(),
            ready: self.ready.clone(),
            finish: self.finish.clone(),
            kill: self.kill.clone(),
            news: self.news.0.clone(),
        };
        self.tasks.push(tokio::spawn(keeper.keep()));
    }

    /// The instance is there: from now on whatever ends is started again.
    pub fn set_ready(&self) {
        self.ready.cancel();
    }

    /// Whether one has failed to start; why.
    pub fn failed_start(&mut self) -> Option<String> {
        match self.news.1.try_recv() {
            Ok(News::FailedStart(text) | News::GivenUp(text)) => Some(text),
            Err(_) => None,
        }
    }

    /// Waits until one is given up; why.
    pub async fn given_up(&mut self) -> String {
        loop {
            match self.news.1.recv().await {
                Some(News::GivenUp(text)) => return text,
                Some(News::FailedStart(_)) => (),
                None => std::future::pending().await,
            }
        }
    }

    /// The end of what they wrote, as lines below a message; empty: nothing.
    pub fn log_tail(&self) -> String {
        let Ok(text) = std::fs::read(self.folder.join("log")) else { return String::new() };
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].iter().map(|l| format!("\n  {l}")).collect()
    }

    /// None is started again; waits until all have ended, and kills those that have not within
    /// `bound`. The lifeline must be closed before.
    pub async fn finish(self, bound: Duration) {
        self.finish.cancel();
        let kill = self.kill;
        tokio::spawn(async move {
            tokio::time::sleep(bound).await;
            kill.cancel();
        });
        for task in self.tasks {
            // A task that panicked has dropped its child, which kills it.
            let _ = task.await;
        }
    }
}

/// The task of one daemon.
struct Keeper {
    daemon: Daemon,
    folder: PathBuf,
    lifeline: Arc<OwnedFd>,
    cpus: Option<Vec<u32>>,
    ready: CancellationToken,
    finish: CancellationToken,
    kill: CancellationToken,
    news: mpsc::UnboundedSender<News>,
}

impl Keeper {
    async fn keep(self) {
        let name = &self.daemon.name;
        let mut failures = 0;
        let mut short_lives = 0;
        while !self.finish.is_cancelled() {
            let began = Instant::now();
            let mut killed = false;
            let how = match self.spawn() {
                Err(error) => {
                    format!("can't be started ({}: {error})", self.daemon.program.display())
                }
                Ok(child) => {
                    let Some(status) = self.wait(child).await else { return };
                    if !self.ready.is_cancelled() && status.code().is_some() {
                        let text = format!("{name} could not start ({})", describe(status));
                        let _ = self.news.send(News::FailedStart(text));
                        return;
                    }
                    killed = status.signal() == Some(rustix::process::Signal::KILL.as_raw());
                    format!("ended ({})", describe(status))
                }
            };
            if began.elapsed() >= WELL {
                (failures, short_lives) = (0, 0);
            }
            failures += u32::from(!killed);
            short_lives = (short_lives + 1).min(FAILURES_MAX - 1);
            if failures >= FAILURES_MAX {
                let text = format!("{name} {how} {failures} times in a row; psched start gives up");
                let _ = self.news.send(News::GivenUp(text));
                return;
            }
            super::say(&format!("{name} {how}; psched start starts it again"));
            let pause =
                if short_lives == 1 { Duration::ZERO } else { PAUSE * (1 << (short_lives - 2)) };
            if self.finish.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    /// Until it has ended; `None`: and so has the instance.
    async fn wait(&self, mut child: Child) -> Option<ExitStatus> {
        tokio::select! {
            status = child.wait() => {
                // Ended because the instance does: that is no failure.
                (!self.finish.is_cancelled()).then_some(status.unwrap_or_default())
            }
            () = self.kill.cancelled() => {
                super::say(&format!("{} does not end; psched start kills it", self.daemon.name));
                let _ = child.kill().await;
                None
            }
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let mut command = Command::new(&self.daemon.program);
        command
            .args(&self.daemon.arguments)
            .arg("--lifeline")
            .arg(self.lifeline.as_raw_fd().to_string())
            .env(instance::RUNTIME, &self.folder)
            .env_remove(instance::SOCKET)
            .env_remove(instance::INSTANCE)
            .env_remove(notify::VARIABLES[0])
            .env_remove(notify::VARIABLES[1])
            .env_remove(notify::VARIABLES[2])
            .current_dir("/")
            // ^C is not for them.
            .process_group(0)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        if std::env::var_os("PSCHED_LOG").is_none() {
            let log = self.log()?;
            command.stdout(log.try_clone()?).stderr(log);
        }
        // Inherited by this child alone: nothing else is started in between, for there is one
        // thread and nothing is awaited.
        let inherit = |flags| rustix::io::fcntl_setfd(&*self.lifeline, flags);
        inherit(rustix::io::FdFlags::empty())?;
        let child = self.on_its_processors(|| command.spawn());
        inherit(rustix::io::FdFlags::CLOEXEC)?;
        child
    }

    /// Starts it with the processors that it may use. A child has those of the thread that starts it.
    fn on_its_processors(
        &self,
        start: impl FnOnce() -> std::io::Result<Child>,
    ) -> std::io::Result<Child> {
        let Some(cpus) = &self.cpus else { return start() };
        let own = affinity::get(0)?;
        affinity::set(0, cpus)?;
        let child = start();
        affinity::set(0, &own)?;
        child
    }

    fn log(&self) -> std::io::Result<File> {
        OpenOptions::new().create(true).append(true).mode(0o600).open(self.folder.join("log"))
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (_, Some(signal)) => crate::apteam::ending::signal_text(signal),
        (code, None) => format!("exit status {}", code.unwrap_or_default()),
    }
}
