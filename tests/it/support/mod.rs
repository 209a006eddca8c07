//! What the tests share: a private instance, commands with a bound on their time, waiting.
//!
//! Every instance has a base directory of its own (as TMPDIR), so that two tests can't meet, and
//! dropping it checks that nothing of it is left: no process, no group, no folder.

// Each helper is used by some module, not by each.
#![allow(dead_code)]

pub mod cables;
pub mod criu;
pub mod dice;
pub mod hand;
pub mod hosts;
pub mod machine;
pub mod manager;
pub mod mpi;
pub mod nasty;
pub mod phases;
pub mod programs;
pub mod release;
pub mod transcripts;
pub mod users;
pub mod wire;

pub use programs::{copy_program, write_program};
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A uid of the tests' own: no passwd entry has it.
pub const USER: u32 = 61234;

/// How long a command may take: much longer than it does, on a busy machine too.
pub const BOUND: Duration = Duration::from_secs(180);

/// How a command ended.
#[derive(Debug)]
pub struct Run {
    /// Its exit code, or 128 and its signal.
    pub status: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub took: Duration,
}

impl Run {
    /// stdout as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// stdout's lines, sorted: PEs write in any order.
    pub fn sorted(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.out().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// Fails the test unless the status is this one; says everything.
    #[track_caller]
    pub fn expect(self, status: i32) -> Run {
        assert_eq!(self.status, status, "stdout: {}\nstderr: {}", self.out(), self.stderr);
        self
    }

    /// Fails the test unless stderr has these words.
    #[track_caller]
    pub fn says(self, words: &str) -> Run {
        assert!(self.stderr.contains(words), "{words:?} is not in stderr: {}", self.stderr);
        self
    }
}

/// 128 and the signal, or the code.
pub fn status_of(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|s| 128 + s)).expect("one of them")
}

/// A command that runs, its output being read all the time.
pub struct Running {
    pub child: Child,
    what: String,
    began: Instant,
    stdout: Reader,
    stderr: Reader,
}

/// A thread that reads a pipe to its end, and what it has read so far.
struct Reader {
    all: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Reader {
    fn of<R: Read + Send + 'static>(from: Option<R>) -> Reader {
        let (all, mut from) = (Arc::new(Mutex::new(Vec::new())), from.expect("a pipe"));
        let into = all.clone();
        let thread = std::thread::spawn(move || {
            let mut part = [0; 4096];
            loop {
                match from.read(&mut part) {
                    Ok(count @ 1..) => {
                        into.lock().expect("whole").extend_from_slice(&part[..count])
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    _ => break,
                }
            }
        });
        Reader { all, thread }
    }

    fn so_far(&self) -> Vec<u8> {
        self.all.lock().expect("whole").clone()
    }
}

impl Running {
    /// Starts it with stdout and stderr read; stdin is /dev/null unless the command says otherwise.
    pub fn start(command: &mut Command) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (stdout, stderr) = (Reader::of(child.stdout.take()), Reader::of(child.stderr.take()));
        Running { child, what: format!("{command:?}"), began: Instant::now(), stdout, stderr }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: i32) {
        kill(self.pid(), signal);
    }

    /// Whether this is in its stderr by now.
    pub fn has_said(&self, words: &str) -> bool {
        String::from_utf8_lossy(&self.stderr.so_far()).contains(words)
    }

    /// The lines of its stdout by now, in order.
    pub fn lines_so_far(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.stdout.so_far()).into_owned();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("asked").is_none()
    }

    /// Waits for its end, at most so long.
    #[track_caller]
    pub fn wait(self, bound: Duration) -> Run {
        let Running { mut child, what, began, stdout, stderr } = self;
        let until = Instant::now() + bound;
        let status = loop {
            if let Some(status) = child.try_wait().expect("asked") {
                break Some(status);
            }
            if Instant::now() > until {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let took = began.elapsed();
        let all = |reader: Reader| {
            // Whatever still holds the pipe holds the test up no longer than the bound.
            let is_read = || reader.thread.is_finished();
            while !is_read() && Instant::now() < until + Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(2));
            }
            if is_read() { reader.so_far() } else { b"(still open)".to_vec() }
        };
        let (stdout, stderr) = (all(stdout), all(stderr));
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        match status {
            Some(status) => Run { status: status_of(status), stdout, stderr, took },
            None => panic!(
                "{what} had not ended after {bound:?}\nstdout: {}\nstderr: {stderr}",
                String::from_utf8_lossy(&stdout)
            ),
        }
    }
}

/// Runs a command to its end, within [`BOUND`].
#[track_caller]
pub fn run(command: &mut Command) -> Run {
    Running::start(command).wait(BOUND)
}

/// Sends a signal; to nobody if the process has gone.
pub fn kill(pid: i32, signal: i32) {
    let signal = nix::sys::signal::Signal::try_from(signal).expect("a signal");
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
}

/// Waits until something is so; fails the test, saying what, if that takes longer than the bound.
#[track_caller]
pub fn eventually(bound: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + bound;
    while !condition() {
        assert!(Instant::now() < until, "not within {bound:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Says that a test is skipped, by name, past the capture of its output. With PSCHED_NO_SKIP=1
/// (.ci/run sets it) that is a failure.
pub fn skip(name: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {why}");
    assert!(std::env::var_os("PSCHED_NO_SKIP").is_none_or(|v| v != "1"), "{name}: {why}");
}

pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// What an ordinary user needs a copy of: the build may be where only root may look.
pub const COPIED: [&str; 14] = [
    "psched",
    "apinit",
    "apshepherd",
    "appmix",
    "aprun",
    "mpirun",
    "mpiexec",
    "apstat",
    "apkill",
    "cpr",
    "psmgr",
    "psview",
    "snflv",
    "psched-commands",
];

/// The folder of the binaries under test.
pub fn binaries() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_psched")).parent().expect("it is in a folder")
}

/// Memory that a process has in RAM.
pub fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Whether a process waits until there is room in the pipe that is its stdout: it sleeps, and the
/// pipe is full. (/proc/PID/wchan would say so, but many kernels do not show it.)
pub fn waits_for_room(pid: i32) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let sleeps = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'));
    let mut open = std::fs::OpenOptions::new();
    open.write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
    let Ok(pipe) = open.open(format!("/proc/{pid}/fd/1")) else { return false };
    if !sleeps || !pipe.metadata().is_ok_and(|file| file.file_type().is_fifo()) {
        return false;
    }
    let mut one = [PollFd::new(&pipe, PollFlags::OUT)];
    poll(&mut one, Some(&Timespec::default())) == Ok(0)
}

/// All processes.
pub fn pids() -> impl Iterator<Item = i32> {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Processes, not zombies, whose command line or environment has this text.
pub fn processes_with(text: &str) -> Vec<(i32, String)> {
    let has = |bytes: &[u8]| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    let own = std::process::id() as i32;
    pids()
        .filter(|pid| *pid != own)
        .filter_map(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            (has(&line) || has(&environment))
                .then(|| (pid, String::from_utf8_lossy(&line).replace('\0', " ")))
        })
        .collect()
}

/// Processor time of a process, or of its children that have been waited for, in clock ticks.
pub fn ticks(pid: i32, of_children: bool) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let first = if of_children { 13 } else { 11 };
    fields.iter().skip(first).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// Children of a process: pid and name.
pub fn children(pid: i32) -> Vec<(i32, String)> {
    pids()
        .filter_map(|child| {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
            let (before, after) = stat.rsplit_once(')')?;
            let name = before.split_once('(')?.1.to_owned();
            let mut fields = after.split_whitespace();
            let state = fields.next()?;
            let parent: i32 = fields.next()?.parse().ok()?;
            (parent == pid && state != "Z").then_some((child, name))
        })
        .collect()
}

/// The same psched.yaml, in which nobody shares a processor unless it says how many do.
pub fn unshared(config: &str) -> String {
    let own = "application.max_resident: 1";
    if config.contains("application.max_resident") {
        return config.to_owned();
    }
    match config.split_once("variables:") {
        None => format!("{config}variables: {{ {own} }}\n"),
        Some((before, after)) => match after.trim_start().strip_prefix('{') {
            Some(rest) => format!("{before}variables: {{ {own}, {rest}"),
            None => format!("{before}variables:\n  {own}{after}"),
        },
    }
}

/// What an instance is to be.
pub struct Plan {
    arguments: Vec<OsString>,
    user: bool,
    config: Option<String>,
    shared: bool,
}

impl Plan {
    pub fn new() -> Plan {
        Plan { arguments: Vec::new(), user: false, config: None, shared: false }
    }

    /// With this psched.yaml.
    pub fn config(mut self, text: &str) -> Plan {
        self.config = Some(text.to_owned());
        self
    }

    /// So many nodes, of which the first is for everything.
    pub fn nodes(self, nodes: u32, processors: u32) -> Plan {
        let mut text =
            format!("nodes:\n  - {{ nids: 0, processors: {processors}, flavors: [su, os, ap] }}\n");
        if nodes > 1 {
            let last = nodes - 1;
            text.push_str(&format!("  - {{ nids: 1-{last}, processors: {processors} }}\n"));
        }
        self.config(&text)
    }

    /// As it is told, and no more: applications share processors.
    pub fn shared(mut self) -> Plan {
        self.shared = true;
        self
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Plan {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// As a user without a passwd entry; only root can become one.
    pub fn for_user(mut self) -> Plan {
        self.user = true;
        self
    }

    /// Starts it, and waits until it answers.
    #[track_caller]
    pub fn start(self) -> Instance {
        let base = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a base");
        let mut bins = binaries().to_owned();
        if self.user {
            // The build may be where only root may look.
            bins = base.path().join("bin");
            std::fs::create_dir(&bins).expect("made");
            for name in COPIED {
                copy_program(binaries().join(name), bins.join(name));
                let mode = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(bins.join(name), mode).expect("executable");
            }
        }
        let tmp = base.path().join("t");
        std::fs::create_dir(&tmp).expect("made");
        let mode = |m| std::fs::Permissions::from_mode(m);
        std::fs::set_permissions(base.path(), mode(0o755)).expect("mode");
        if self.user {
            std::os::unix::fs::chown(&tmp, Some(USER), Some(USER)).expect("its own");
        }
        let mut instance = Instance {
            child: None,
            socket: PathBuf::new(),
            base,
            tmp,
            bins,
            user: self.user,
            group: None,
        };
        let mut command = instance.bare("psched");
        command.arg("start").args(&self.arguments);
        if let Some(text) = &self.config {
            let path = instance.base.path().join("psched.yaml");
            let text = if self.shared { text.clone() } else { unshared(text) };
            std::fs::write(&path, text).expect("written");
            command.arg("--config").arg(path);
        } else if !self.shared && !self.arguments.iter().any(|a| a == "--config") {
            command.args(["--set", "application.max_resident=1"]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("psched start");
        let mut stdout = child.stdout.take().expect("piped");
        // One line, then nothing until the end: read byte by byte, so that no reader is left over.
        let mut line = Vec::new();
        let mut byte = [0];
        while stdout.read(&mut byte).is_ok_and(|n| n == 1) && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        let Some(socket) = line.strip_prefix("PSCHED_SOCKET=") else {
            let mut error = String::new();
            let _ = child.wait();
            let _ = child.stderr.take().expect("piped").read_to_string(&mut error);
            panic!("psched start did not start: {error}");
        };
        instance.socket = socket.into();
        instance.child = Some(Running {
            what: "psched start".into(),
            began: Instant::now(),
            stdout: Reader::of(Some(stdout)),
            stderr: Reader::of(child.stderr.take()),
            child,
        });
        instance.group = std::fs::read_to_string(instance.folder().join("groups"))
            .ok()
            .and_then(|g| g.lines().next().map(PathBuf::from));
        instance
    }
}

/// A private instance that runs.
pub struct Instance {
    pub child: Option<Running>,
    pub socket: PathBuf,
    base: tempfile::TempDir,
    tmp: PathBuf,
    pub bins: PathBuf,
    user: bool,
    group: Option<PathBuf>,
}

/// Nodes and processors, as most tests want them.
pub fn instance(nodes: u32, processors: u32) -> Instance {
    Plan::new().nodes(nodes, processors).start()
}

impl Instance {
    /// The instance's folder.
    pub fn folder(&self) -> PathBuf {
        self.socket.parent().expect("in a folder").to_owned()
    }

    /// A directory that the instance's user can write to, for the test's files.
    pub fn directory(&self) -> PathBuf {
        let directory = self.base.path().join("d");
        if !directory.exists() {
            std::fs::create_dir(&directory).expect("made");
            if self.user {
                std::os::unix::fs::chown(&directory, Some(USER), Some(USER)).expect("its own");
            }
        }
        directory
    }

    /// A command of psched, as the instance's user, without its socket.
    fn bare(&self, name: &str) -> Command {
        let own = self.bins.join(name);
        let program = if own.is_file() { own } else { name.into() };
        let mut command = if self.user {
            let mut command = Command::new("setpriv");
            let uid = USER.to_string();
            command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("PSCHED_LOG")
            .env("TMPDIR", &self.tmp)
            // The caller's may have folders that the instance's user may not search.
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .stdin(Stdio::null());
        if self.user {
            command.current_dir(self.base.path());
        }
        command
    }

    /// A command of this instance: `apstat`, or a path.
    pub fn command<S: AsRef<OsStr>>(
        &self,
        name: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = self.bare(name);
        command.env("PSCHED_SOCKET", &self.socket).args(arguments);
        command
    }

    /// Runs a command to its end.
    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(&self, name: &str, arguments: impl IntoIterator<Item = S>) -> Run {
        run(&mut self.command(name, arguments))
    }

    /// Runs aprun to its end.
    #[track_caller]
    pub fn aprun<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Run {
        self.run("aprun", arguments)
    }

    /// aprun of a shell script: options, script.
    #[track_caller]
    pub fn script(&self, options: &str, script: &str) -> Run {
        self.aprun(words(options).chain(["sh", "-c", script]))
    }

    /// The same, not waited for.
    pub fn start_script(&self, options: &str, script: &str) -> Running {
        Running::start(&mut self.command("aprun", words(options).chain(["sh", "-c", script])))
    }

    /// What `apstat ... --json` says.
    #[track_caller]
    pub fn apstat(&self, options: &str) -> serde_json::Value {
        let run = self.run("apstat", words(options).chain(["--json"])).expect(0);
        serde_json::from_slice(&run.stdout).expect("JSON")
    }

    /// Applications in this state.
    pub fn apids(&self, state: &str) -> Vec<u64> {
        let all = self.apstat("-a");
        let rows = all["applications"].as_array().expect("a list").iter();
        rows.filter(|r| r["state"] == state).filter_map(|r| r["apid"].as_u64()).collect()
    }

    /// Waits until so many applications are in this state, and gives their numbers.
    #[track_caller]
    pub fn wait_for(&self, state: &str, count: usize) -> Vec<u64> {
        let mut apids = Vec::new();
        eventually(BOUND, &format!("{count} applications {state}"), || {
            apids = self.apids(state);
            apids.len() == count
        });
        apids
    }

    /// Waits until every processor is free.
    #[track_caller]
    pub fn wait_until_free(&self) {
        eventually(BOUND, "all nodes are free", || {
            let all = self.apstat("-n");
            all["nodes"].as_array().expect("a list").iter().all(|n| n["pl"] == 0)
        });
    }

    /// The daemon's process.
    #[track_caller]
    pub fn daemon(&self, name: &str) -> i32 {
        let parent = self.child.as_ref().expect("it runs").pid();
        let mut found = None;
        eventually(BOUND, &format!("{name} is a child of psched start"), || {
            found = children(parent).into_iter().find(|(_, n)| n == name).map(|(pid, _)| pid);
            found.is_some()
        });
        found.expect("found")
    }

    /// All daemons of this name that run now.
    pub fn daemons(&self, name: &str) -> Vec<i32> {
        let parent = self.child.as_ref().expect("it runs").pid();
        let mut all: Vec<i32> =
            children(parent).into_iter().filter(|(_, n)| n == name).map(|(pid, _)| pid).collect();
        all.sort_unstable();
        all
    }

    /// Ends it with a signal, waits, and checks that nothing is left.
    #[track_caller]
    pub fn end(&mut self, signal: i32) -> Option<Run> {
        let running = self.child.take()?;
        running.signal(signal);
        let run = running.wait(Duration::from_secs(30));
        self.check_gone(Duration::from_secs(10));
        Some(run)
    }

    /// Waits until nothing of it is left.
    #[track_caller]
    pub fn check_gone(&self, bound: Duration) {
        let name = self.folder();
        let name = name.to_str().expect("text");
        let until = Instant::now() + bound;
        loop {
            let mut left: Vec<String> = processes_with(name)
                .into_iter()
                .map(|(pid, line)| format!("{pid} {line}"))
                .collect();
            if self.folder().exists() {
                left.push(format!("{name} with {:?}", listing(&self.folder())));
            }
            left.extend(self.group.iter().filter(|g| g.exists()).map(|g| g.display().to_string()));
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "after {bound:?} there is still {left:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

pub fn listing(directory: &Path) -> Vec<OsString> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.file_name()).collect()
}

impl Drop for Instance {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // (One that has not started has no folder.)
            if let Some(folder) = self.socket.parent() {
                let log = std::fs::read(folder.join("log")).unwrap_or_default();
                eprintln!("the daemons' log:\n{}", tail(&String::from_utf8_lossy(&log), 60));
            }
            // One failure is enough to tell; but nothing is to stay.
            if let Some(running) = self.child.take() {
                running.signal(15);
                let mut child = running.child;
                let until = Instant::now() + Duration::from_secs(20);
                while child.try_wait().is_ok_and(|s| s.is_none()) && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(10));
                }
                let _ = child.kill();
                let _ = child.wait();
            }
        } else {
            self.end(15);
        }
    }
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Options as one text.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|w| !w.is_empty())
}
