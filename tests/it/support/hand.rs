//! psched and apinits started by hand, each with its command line, as an administrator would.

use super::wire::Wire;
use super::*;

/// A psched and apinits in a folder of their own; dropping it leaves nothing.
pub struct Hand {
    folder: tempfile::TempDir,
    psched: Option<Child>,
    apinits: Vec<Child>,
    /// What is put in front of the daemons' command lines.
    prefix: Vec<OsString>,
    /// What each of them offers.
    offered: Vec<String>,
    /// Where the next apinit is found, and its apshepherd with it.
    apinit: PathBuf,
    /// Where the daemons log, if that is no file: the end that nobody reads, and theirs.
    unread: Option<(std::io::PipeReader, std::io::PipeWriter)>,
}

impl Hand {
    /// `config` lacks `listening` and `state`; apinits are NIDs and the host that they look like.
    #[track_caller]
    pub fn start(config: &str, apinits: &[(&str, Option<&str>)]) -> Hand {
        Hand::start_by(&[], config, apinits)
    }

    /// The same, where a program starts the daemons: its command line, to which theirs is added.
    #[track_caller]
    pub fn start_by(prefix: &[OsString], config: &str, apinits: &[(&str, Option<&str>)]) -> Hand {
        let mut hand = Hand::without_apinits(prefix, config);
        for (nids, host) in apinits {
            hand.start_apinit(nids, *host);
        }
        hand.wait_until_up();
        hand
    }

    /// psched with so many faked hosts, which share these nodes.
    #[track_caller]
    pub fn start_faked(config: &str, hosts: u32, nids: &str) -> Hand {
        let mut hand = Hand::without_apinits(&[], config);
        hand.spawn_apinit(nids, &["--fake", &hosts.to_string()]);
        hand.wait_until_up();
        hand
    }

    /// The same, where what they and psched send each other is counted.
    #[track_caller]
    pub fn start_faked_by_wire(config: &str, hosts: u32, nids: &str) -> (Hand, Wire) {
        let mut hand = Hand::without_apinits(&[], config);
        let path = hand.folder.path().join("wire.sock");
        let wire = Wire::start(path.clone(), &hand.socket());
        hand.spawn_apinit_at(&path, nids, &["--fake", &hosts.to_string()]);
        hand.wait_until_up();
        (hand, wire)
    }

    #[track_caller]
    fn without_apinits(prefix: &[OsString], config: &str) -> Hand {
        let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a folder");
        let path = folder.path().display();
        let config = unshared(config);
        let text = format!("{config}listening: {path}/psched.sock\nstate: {path}/state\n");
        std::fs::write(folder.path().join("psched.yaml"), text).expect("written");
        let prefix = prefix.to_vec();
        let apinit = binaries().join("apinit");
        let (apinits_here, offered) = (Vec::new(), Vec::new());
        let unread = None;
        let mut hand =
            Hand { folder, psched: None, apinits: apinits_here, offered, prefix, apinit, unread };
        hand.start_psched();
        hand
    }

    /// Where the daemons write what they have to say.
    fn log(&self) -> std::fs::File {
        let path = self.folder.path().join("log");
        std::fs::OpenOptions::new().create(true).append(true).open(path).expect("a log")
    }

    fn stderr(&self) -> Stdio {
        match &self.unread {
            None => self.log().into(),
            Some((_, writer)) => writer.try_clone().expect("another").into(),
        }
    }

    /// Daemons that are started from now on log everything into a pipe that nobody reads.
    pub fn log_unread(&mut self) {
        self.unread = Some(std::io::pipe().expect("a pipe"));
    }

    /// psched's socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("psched.sock")
    }

    /// The folder with the sockets, the state and the runtime directories.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Lets every user come to the sockets, as in /run.
    pub fn open_to_all(&self) {
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.folder.path(), mode).expect("ours");
    }

    /// psched --config FILE, until it listens.
    #[track_caller]
    pub fn start_psched(&mut self) {
        self.start_psched_on("state");
    }

    /// The same with another state directory.
    #[track_caller]
    pub fn start_psched_on(&mut self, state: &str) {
        let config = self.folder.path().join("psched.yaml");
        let mut command = self.daemon(&binaries().join("psched"));
        command.arg("--config").arg(config).arg("--state").arg(self.folder.path().join(state));
        command.stdout(Stdio::null()).stderr(self.stderr());
        self.psched = Some(command.spawn().expect("psched starts"));
        let socket = self.socket();
        eventually(BOUND, "psched listens", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
    }

    /// Apinits that are started from now on are this program.
    pub fn upgrade_apinit(&mut self, program: PathBuf) {
        self.apinit = program;
    }

    /// apinit --socket PATH --nids LIST.
    pub fn start_apinit(&mut self, nids: &str, host: Option<&str>) {
        let host: Vec<&str> = host.into_iter().flat_map(|host| ["--host-id", host]).collect();
        self.spawn_apinit(nids, &host);
    }

    fn spawn_apinit(&mut self, nids: &str, options: &[&str]) {
        self.spawn_apinit_at(&self.socket(), nids, options);
    }

    /// The same, by this socket.
    fn spawn_apinit_at(&mut self, socket: &Path, nids: &str, options: &[&str]) {
        let mut command = self.daemon(&self.apinit);
        command
            .args(["--nids", nids, "--socket"])
            .arg(socket)
            .stdout(Stdio::null())
            .stderr(self.stderr());
        command.args(options);
        self.apinits.push(command.spawn().expect("apinit starts"));
        self.offered.push(nids.to_owned());
    }

    fn daemon(&self, path: &Path) -> Command {
        let mut command = match self.prefix.split_first() {
            // A failure shows the end of it.
            None => {
                let mut command = Command::new(path);
                let level = if self.unread.is_some() { "trace" } else { "info" };
                command.env("PSCHED_LOG", level);
                command
            }
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(path).env_remove("PSCHED_LOG");
                command
            }
        };
        command.env("PSCHED_SOCKET", self.socket()).stdin(Stdio::null());
        command
    }

    /// What the daemons have said so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Replaces psched.yaml but for `listening` and `state`, and says so to psched.
    #[track_caller]
    pub fn reconfigure(&self, config: &str) {
        self.write_config(config);
        kill(self.psched_pid(), 1);
    }

    /// The same, without a word to psched.
    pub fn write_config(&self, config: &str) {
        let path = self.folder.path().display();
        let config = unshared(config);
        let text = format!("{config}listening: {path}/psched.sock\nstate: {path}/state\n");
        std::fs::write(self.folder.path().join("psched.yaml"), text).expect("written");
    }

    /// TERM to psched: it ends with 0, and how long that took.
    #[track_caller]
    pub fn stop_psched(&mut self) -> Duration {
        stop(self.psched.take().expect("it runs"))
    }

    /// The same for the apinit of these NIDs.
    #[track_caller]
    pub fn stop_apinit(&mut self, nids: &str) -> Duration {
        let number = self.number_of(nids);
        self.offered.remove(number);
        stop(self.apinits.remove(number))
    }

    /// kill -9, and nobody starts another.
    pub fn kill_psched(&mut self) {
        let mut psched = self.psched.take().expect("it runs");
        psched.kill().expect("killed");
        psched.wait().expect("reaped");
    }

    /// kill -9 of one of the apinits, in the order in which they were started.
    pub fn kill_apinit(&mut self, number: usize) {
        let mut apinit = self.apinits.remove(number);
        self.offered.remove(number);
        apinit.kill().expect("killed");
        apinit.wait().expect("reaped");
    }

    /// kill -9 of the apinit that was started with these NIDs.
    pub fn kill_apinit_of(&mut self, nids: &str) {
        self.kill_apinit(self.number_of(nids));
    }

    fn number_of(&self, nids: &str) -> usize {
        self.offered.iter().position(|of| of == nids).expect("an apinit of these NIDs")
    }

    pub fn apinit_pid(&self, nids: &str) -> i32 {
        self.apinits[self.number_of(nids)].id() as i32
    }

    pub fn psched_pid(&self) -> i32 {
        self.psched.as_ref().expect("it runs").id() as i32
    }

    /// The folder of all its things.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A command that finds this psched by PSCHED_SOCKET.
    pub fn command<S: AsRef<OsStr>>(
        &self,
        name: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(binaries().join(name));
        command.env("PSCHED_SOCKET", self.socket()).env_remove("PSCHED_LOG").args(arguments);
        command.stdin(Stdio::null());
        command
    }

    /// aprun of a shell script: options, script.
    pub fn start_script(&self, options: &str, script: &str) -> Running {
        Running::start(&mut self.command("aprun", words(options).chain(["sh", "-c", script])))
    }

    /// What `apstat ... --json` says.
    #[track_caller]
    pub fn apstat(&self, options: &str) -> serde_json::Value {
        let run = run(&mut self.command("apstat", words(options).chain(["--json"]))).expect(0);
        serde_json::from_slice(&run.stdout).expect("JSON")
    }

    /// Waits until so many applications are in this state, and gives their numbers.
    #[track_caller]
    pub fn wait_for(&self, state: &str, count: usize) -> Vec<u64> {
        let mut apids = Vec::new();
        eventually(BOUND, &format!("{count} applications {state}"), || {
            let all = self.apstat("-a");
            let rows = all["applications"].as_array().expect("a list").iter();
            apids =
                rows.filter(|r| r["state"] == state).filter_map(|r| r["apid"].as_u64()).collect();
            apids.len() == count
        });
        apids
    }

    /// Waits until an application could be placed on every node.
    #[track_caller]
    pub fn wait_until_up(&self) {
        eventually(BOUND, "every node is up", || {
            let all = self.apstat("-n");
            all["nodes"].as_array().expect("a list").iter().all(|n| n["state"] == "free")
        });
    }

    /// Waits until every node is there, whatever runs on it.
    #[track_caller]
    pub fn wait_until_seen(&self) {
        eventually(BOUND, "every node is there", || {
            let all = self.apstat("-n");
            let mut nodes = all["nodes"].as_array().expect("a list").iter();
            nodes.all(|n| n["state"] != "suspect")
        });
    }

    /// TERM to the daemons, whose applications have ended: they go, and take their sockets along.
    #[track_caller]
    pub fn end(mut self) {
        for mut daemon in self.apinits.drain(..).chain(self.psched.take()) {
            kill(daemon.id() as i32, 15);
            eventually(BOUND, "a daemon ends", || daemon.try_wait().expect("asked").is_some());
            assert_eq!(status_of(daemon.wait().expect("ended")), 0);
        }
        let left: Vec<_> = listing(self.folder.path())
            .into_iter()
            .filter(|n| n.as_encoded_bytes().ends_with(b".sock"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        // (psched's signal helper sees that psched has ended, and ends itself.)
        let folder = self.folder.path().to_str().expect("text").to_owned();
        eventually(BOUND, "no process of it is left", || processes_with(&folder).is_empty());
    }
}

#[track_caller]
fn stop(mut daemon: Child) -> Duration {
    let began = Instant::now();
    kill(daemon.id() as i32, 15);
    let mut ended = None;
    eventually(BOUND, "a daemon ends", || {
        ended = daemon.try_wait().expect("asked");
        ended.is_some()
    });
    assert_eq!(ended.map(status_of), Some(0));
    began.elapsed()
}

impl Drop for Hand {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
            eprintln!("the daemons' log:\n{}", tail(&String::from_utf8_lossy(&log), 200));
        }
        let text = self.folder.path().to_str().expect("text").to_owned();
        // Those of the applications too; a shepherd may have started one meanwhile.
        for _ in 0..3 {
            for daemon in self.apinits.iter_mut().chain(self.psched.as_mut()) {
                let _ = daemon.kill();
            }
            for (pid, _) in processes_with(&text) {
                kill(pid, 9);
            }
        }
        for mut daemon in self.apinits.drain(..).chain(self.psched.take()) {
            let _ = daemon.wait();
        }
        clear_applications(self.folder.path());
    }
}

/// Ends what apinits that are gone have left: shepherds whose end nobody has acknowledged, which
/// wait for the next apinit, their control groups and folders of PMIx. Each has a folder that names them.
pub fn clear_applications(folder: &Path) {
    let below = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    let applications = below(folder)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("apps-"))
        .flat_map(|entry| below(&entry.path()));
    for application in applications {
        let read =
            |name| std::fs::read_to_string(application.path().join(name)).unwrap_or_default();
        if let Some(pid) = read("shepherd").split(' ').next().and_then(|pid| pid.parse().ok()) {
            kill(pid, 9);
        }
        if let Some((_, folder)) = read("pmix").split_once(" /tmp/psched.pmix.") {
            let _ = std::fs::remove_dir_all(format!("/tmp/psched.pmix.{folder}"));
        }
        let groups = read("groups");
        let path = Path::new(groups.trim_end());
        if groups.is_empty() || !path.is_dir() {
            continue;
        }
        let _ = std::fs::write(path.join("cgroup.kill"), "1");
        eventually(BOUND, "the groups of an application are gone", || {
            for group in below(path).map(|entry| entry.path()).filter(|path| path.is_dir()) {
                let _ = std::fs::remove_dir(group);
            }
            std::fs::remove_dir(path).is_ok() || !path.exists()
        });
        let _ = path.parent().map(std::fs::remove_dir);
    }
}
