//! A machine whose daemons are killed: under `psched start`, which starts them again, or by hand,
//! where the test does.

use super::hand::Hand;
use super::*;
use psched::apteam::Key;

/// Which daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemon {
    Psched,
    /// The one that offers this node.
    Apinit(u32),
}

/// Who starts a daemon again that was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    UnderStart,
    ByHand,
}

/// Two nodes of two processors, each with an apinit of its own, so that an application can be had
/// on one host or across two.
pub enum Machine {
    Started(Instance),
    Hand(Hand),
}

/// One application's folder in the runtime directory of an apinit.
#[derive(Clone, Debug)]
pub struct AppFolder {
    pub key: Key,
    pub path: PathBuf,
}

impl AppFolder {
    pub fn has(&self, name: &str) -> bool {
        self.path.join(name).exists()
    }

    /// Its shepherd, if it runs.
    pub fn shepherd(&self) -> Option<i32> {
        let text = std::fs::read_to_string(self.path.join("shepherd")).ok()?;
        let pid: i32 = text.split(' ').next()?.parse().ok()?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name.trim_end() == "apshepherd").then_some(pid)
    }
}

impl Machine {
    pub fn start(way: Way) -> Machine {
        match way {
            Way::UnderStart => {
                Machine::Started(Plan::new().nodes(2, 2).arg("--apinits").arg("2").start())
            }
            Way::ByHand => {
                let config = "nodes:\n  - { nids: 0, processors: 2, flavors: [su, os, ap] }\n  - { nids: 1, processors: 2 }\n";
                Machine::Hand(Hand::start(config, &[("0", None), ("1", None)]))
            }
        }
    }

    pub fn folder(&self) -> PathBuf {
        match self {
            Machine::Started(instance) => instance.folder(),
            Machine::Hand(hand) => hand.path().to_owned(),
        }
    }

    pub fn command<S: AsRef<OsStr>>(
        &self,
        name: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        match self {
            Machine::Started(instance) => instance.command(name, arguments),
            Machine::Hand(hand) => hand.command(name, arguments),
        }
    }

    /// What `apstat ... --json` says; asked again while psched is away.
    #[track_caller]
    pub fn apstat(&self, options: &str) -> serde_json::Value {
        let mut said = serde_json::Value::Null;
        eventually(BOUND, "apstat is answered", || {
            let run = run(&mut self.command("apstat", words(options).chain(["--json"])));
            said = serde_json::from_slice(&run.stdout).unwrap_or_default();
            run.status == 0
        });
        said
    }

    /// The process of a daemon; waits for it where it is just being started.
    #[track_caller]
    pub fn pid(&self, daemon: Daemon) -> i32 {
        match (self, daemon) {
            (Machine::Hand(hand), Daemon::Psched) => hand.psched_pid(),
            (Machine::Hand(hand), Daemon::Apinit(nid)) => hand.apinit_pid(&nid.to_string()),
            (Machine::Started(instance), _) => {
                let parent = instance.child.as_ref().expect("it runs").pid();
                let is_it = |(pid, name): &(i32, String)| match daemon {
                    Daemon::Psched => name == "psched",
                    Daemon::Apinit(nid) => {
                        name == "apinit" && last_argument_is(*pid, "--nids", &nid.to_string())
                    }
                };
                let mut found = None;
                eventually(BOUND, "the daemon runs", || {
                    found = children(parent).into_iter().find(is_it).map(|(pid, _)| pid);
                    found.is_some()
                });
                found.expect("found")
            }
        }
    }

    /// kill -9. By hand it is started again after a pause.
    pub fn kill(&mut self, daemon: Daemon, pause: Duration) {
        match (&mut *self, daemon) {
            (Machine::Started(_), _) => kill(self.pid(daemon), 9),
            (Machine::Hand(hand), Daemon::Psched) => {
                hand.kill_psched();
                std::thread::sleep(pause);
                hand.start_psched();
            }
            (Machine::Hand(hand), Daemon::Apinit(nid)) => {
                let nids = nid.to_string();
                hand.kill_apinit_of(&nids);
                std::thread::sleep(pause);
                hand.start_apinit(&nids, None);
            }
        }
    }

    /// Folders of applications in the apinits' runtime directories.
    pub fn applications(&self) -> Vec<AppFolder> {
        let below = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
        below(&self.folder())
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("apps-"))
            .flat_map(|entry| below(&entry.path()))
            .filter_map(|entry| {
                let key = Key::parse(entry.file_name().to_str()?)?;
                Some(AppFolder { key, path: entry.path() })
            })
            .collect()
    }

    /// Waits until psched has heard of all daemons.
    pub fn wait_until_up(&self) {
        eventually(BOUND, "every node is there", || {
            let all = self.apstat("-n");
            all["nodes"].as_array().expect("a list").iter().all(|node| node["state"] != "suspect")
        });
    }

    /// Waits until nothing of any application is left here: no folder, which goes last, and none of
    /// these control groups.
    #[track_caller]
    pub fn wait_until_clear(&self, groups: &[PathBuf]) {
        let left = || {
            let folders = self.applications().into_iter().map(|a| a.path);
            let groups = groups.iter().filter(|group| group.exists()).cloned();
            folders.chain(groups).collect::<Vec<PathBuf>>()
        };
        let until = Instant::now() + BOUND;
        while !left().is_empty() {
            assert!(
                Instant::now() < until,
                "after {BOUND:?} there is still {:#?}, with {}",
                left(),
                in_groups(groups)
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends it, and checks that nothing is left.
    pub fn end(self) {
        match self {
            Machine::Started(mut instance) => {
                instance.end(15);
            }
            Machine::Hand(hand) => hand.end(),
        }
    }
}

fn last_argument_is(pid: i32, option: &str, value: &str) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
    words.windows(2).any(|pair| pair[0] == option.as_bytes() && pair[1] == value.as_bytes())
}

/// What is in these control groups, with what each process waits for in the kernel.
fn in_groups(groups: &[PathBuf]) -> String {
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let mut all = String::new();
    for group in groups {
        let below = std::fs::read_dir(group).into_iter().flatten().flatten().map(|e| e.path());
        for folder in std::iter::once(group.clone()).chain(below.filter(|path| path.is_dir())) {
            for pid in read(folder.join("cgroup.threads")).lines() {
                let of = |file: &str| read(Path::new("/proc").join(pid).join(file));
                all += &format!("{}: {}{}", folder.display(), of("status"), of("stack"));
            }
        }
    }
    all
}
