//! psched and apinits started by hand, each with its command line, as an administrator would.

use super::*;

/// A psched and apinits in a folder of their own; dropping it leaves nothing.
pub struct Hand {
    folder: tempfile::TempDir,
    psched: Option<Child>,
    apinits: Vec<Child>,
}

impl Hand {
    /// `config` lacks `listening` and `state`; apinits are NIDs and the host that they look like.
    #[track_caller]
    pub fn start(config: &str, apinits: &[(&str, Option<&str>)]) -> Hand {
        let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a folder");
        let path = folder.path().display();
        let text = format!("{config}listening: {path}/psched.sock\nstate: {path}/state\n");
        std::fs::write(folder.path().join("psched.yaml"), text).expect("written");
        let mut hand = Hand { folder, psched: None, apinits: Vec::new() };
        hand.start_psched();
        for (nids, host) in apinits {
            hand.start_apinit(nids, *host);
        }
        hand.wait_until_up();
        hand
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("psched.sock")
    }

    /// psched --config FILE, until it listens.
    #[track_caller]
    pub fn start_psched(&mut self) {
        let config = self.folder.path().join("psched.yaml");
        let mut command = self.command("psched", ["--config"]);
        command.arg(config).stdout(Stdio::null()).stderr(Stdio::null());
        self.psched = Some(command.spawn().expect("psched starts"));
        let socket = self.socket();
        eventually(BOUND, "psched listens", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
    }

    /// apinit --socket PATH --nids LIST.
    pub fn start_apinit(&mut self, nids: &str, host: Option<&str>) {
        let socket = self.socket();
        let mut command = self.command("apinit", ["--nids", nids, "--socket"]);
        command.arg(socket).stdout(Stdio::null()).stderr(Stdio::null());
        command.args(host.into_iter().flat_map(|host| ["--host-id", host]));
        self.apinits.push(command.spawn().expect("apinit starts"));
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
        apinit.kill().expect("killed");
        apinit.wait().expect("reaped");
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
        let left = processes_with(self.folder.path().to_str().expect("text"));
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
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
/// wait for the next apinit, and their control groups. Each has a folder that names both.
fn clear_applications(folder: &Path) {
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
