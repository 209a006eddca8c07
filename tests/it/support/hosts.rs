//! Hosts of a cluster on this machine: each has a network, mounts, a host name, IPC, clocks and a
//! boot id of its own, and shares with the others a bridge, processors and the file system of /tmp.
//!
//! A host lives as long as the process that holds its namespaces, which ends with the test.

use super::hand::clear_applications;
use super::*;

/// The first three numbers of the hosts' addresses.
pub const NETWORK: &str = "10.77.0";
/// By how much the monotonic clock of each host is ahead of that of the host before, in seconds.
const CLOCKS_APART: u64 = 5_000;

/// A process that holds namespaces until its stdin ends.
struct Holder {
    child: Child,
    /// The process whose namespaces these are.
    pid: i32,
}

impl Holder {
    #[track_caller]
    fn start(unshare: &[&str], script: &str) -> Holder {
        let mut child = Command::new("unshare")
            .args(unshare)
            .args(["--", "sh", "-e", "-c", &format!("{script}\necho $$\nexec cat")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is installed");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("read");
        let pid = line.trim().parse().expect("the namespaces are set up");
        Holder { child, pid }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        kill(self.pid, 9);
        let _ = self.child.wait();
    }
}

/// A cluster: psched on the first host, and an apinit on each.
pub struct Cluster {
    folder: tempfile::TempDir,
    switch: Holder,
    hosts: Vec<Holder>,
    psched: Option<Child>,
    apinits: Vec<Option<Child>>,
    /// The CRIU of its apinits, if it is not the one that they find by themselves.
    criu: Option<PathBuf>,
}

/// Whether there may be such hosts here; the test is skipped, by name, where not.
pub fn may_be(test: &str) -> bool {
    let there = |program: &str| {
        Command::new(program).arg("--help").output().is_ok_and(|output| output.status.success())
    };
    let ip = Command::new("ip").arg("-V").output().is_ok_and(|output| output.status.success());
    let why = match () {
        () if !is_root() => "only root can make hosts on this machine",
        () if !ip => "ip is not installed (apt-get install iproute2)",
        () if !there("unshare") || !there("nsenter") => "unshare and nsenter are not installed",
        () => return true,
    };
    skip(test, why);
    false
}

impl Cluster {
    /// Hosts h0 to h(N-1), without daemons; `nodes` nodes of two processors on each.
    #[track_caller]
    pub fn new(count: usize, nodes: u32) -> Cluster {
        let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a folder");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
            .expect("ours");
        let bridge = "ip link set lo up; ip link add br0 type bridge; ip link set br0 up";
        let switch = Holder::start(&["--net"], bridge);
        let mut names = "127.0.0.1 localhost\n".to_owned();
        for i in 0..count {
            names += &format!("{NETWORK}.{} h{i}\n", i + 1);
        }
        std::fs::write(folder.path().join("hosts"), names).expect("written");
        let hosts: Vec<Holder> = (0..count).map(|i| host(i, folder.path())).collect();
        for (i, host) in hosts.iter().enumerate() {
            let peer = host.pid.to_string();
            let (port, address) = (format!("p{i}"), format!("{NETWORK}.{}/24", i + 1));
            let link = ["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns"];
            ip(&switch, &[&link[..], &[&peer]].concat());
            ip(&switch, &["link", "set", &port, "master", "br0", "up"]);
            ip(host, &["addr", "add", &address, "dev", "eth0"]);
            ip(host, &["link", "set", "eth0", "up"]);
        }
        let apinits = (0..count).map(|_| None).collect();
        let cluster = Cluster { folder, switch, hosts, psched: None, apinits, criu: None };
        let mut config = format!(
            "network: {NETWORK}.1:7117\ncertificates: /run/certs\nlistening: \
             /run/psched/psched.sock\nstate: {}/state\nnodes:\n",
            cluster.folder.path().display()
        );
        for i in 0..count as u32 {
            let (first, last) = (i * nodes, (i + 1) * nodes - 1);
            let flavors = if i == 0 { ", flavors: [su, os, ap]" } else { "" };
            let host = if i == 0 { String::new() } else { format!(", host: h{i}") };
            config += &format!(
                "  - {{ nids: {first}-{last}, processors: 2, memory: 1G{host}{flavors} }}\n"
            );
        }
        std::fs::write(cluster.folder.path().join("psched.yaml"), unshared(&config))
            .expect("written");
        cluster
    }

    /// A cluster with certificates and daemons, whose nodes are all up.
    #[track_caller]
    pub fn start(count: usize, nodes: u32) -> Cluster {
        Cluster::start_with(count, nodes, None)
    }

    /// The same whose apinits have this CRIU.
    #[track_caller]
    pub fn start_with(count: usize, nodes: u32, criu: Option<PathBuf>) -> Cluster {
        let mut cluster = Cluster::new(count, nodes);
        cluster.criu = criu;
        cluster.certify();
        cluster.start_psched();
        for i in 0..count {
            cluster.start_apinit(i, nodes);
        }
        cluster.wait_until_up();
        cluster
    }

    /// The folder in which certificates are made: that of h0.
    pub fn certificates(&self) -> PathBuf {
        self.root(0).join("run/certs")
    }

    /// `psched certs` on h0.
    pub fn certs(&self, line: &str) -> Run {
        let arguments = words(line).chain(["--folder", "/run/certs"]);
        run(&mut self.command(0, "psched", ["certs"].into_iter().chain(arguments)))
    }

    /// Makes certificates of all hosts, and copies them there.
    #[track_caller]
    pub fn certify(&self) {
        self.certs("init").expect(0);
        for i in 1..self.hosts.len() {
            self.certs(&format!("host h{i} --role node,login")).expect(0);
            self.copy_certificates(i);
        }
    }

    /// Copies what is to be copied to a host.
    #[track_caller]
    pub fn copy_certificates(&self, host: usize) {
        let (from, to) = (self.certificates().join(format!("hosts/h{host}")), self.root(host));
        let to = to.join("run/certs");
        std::fs::create_dir_all(&to).expect("a folder");
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o700)).expect("ours");
        for name in listing(&from) {
            // Whole or not at all, as an administrator's tool does it.
            let new = to.join("new");
            std::fs::copy(from.join(&name), &new).expect("copied");
            std::fs::rename(new, to.join(&name)).expect("named");
        }
    }

    /// How many hosts there are.
    pub fn count(&self) -> usize {
        self.hosts.len()
    }

    /// Sets variables (`NAME=VALUE ...`).
    #[track_caller]
    pub fn set(&self, variables: &str) {
        let line = words("set").chain(words(variables));
        run(&mut self.command(0, "psmgr", line)).expect(0);
    }

    /// The folder that all hosts share.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The root of a host's file system.
    pub fn root(&self, host: usize) -> PathBuf {
        format!("/proc/{}/root", self.hosts[host].pid).into()
    }

    /// A program of ours on a host.
    pub fn command<S: AsRef<OsStr>>(
        &self,
        host: usize,
        name: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let program = binaries().join(name);
        let mut command = self.on(host, program.as_os_str());
        command.args(arguments).env_remove("PSCHED_SOCKET").env_remove("PSCHED_LOG");
        command
    }

    /// Any program on a host.
    pub fn on(&self, host: usize, program: &OsStr) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.hosts[host].pid.to_string();
        command.args(["-t", &pid, "-n", "-u", "-m", "-i", "-T", "--"]).arg(program);
        command.env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
        command
    }

    /// A program of a user on a host.
    pub fn of_user(&self, host: usize, uid: u32, program: &Path) -> Command {
        let mut command = self.on(host, "setpriv".as_ref());
        let uid = uid.to_string();
        command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"]).arg(program);
        command.env_remove("PSCHED_SOCKET").env_remove("PSCHED_LOG").env("HOME", "/");
        command
    }

    fn log(&self, of: &str) -> std::fs::File {
        let path = self.folder.path().join(format!("log-{of}"));
        std::fs::OpenOptions::new().create(true).append(true).open(path).expect("a log")
    }

    /// What a daemon has said so far: `psched`, or the number of an apinit's host.
    pub fn said(&self, of: &str) -> String {
        let path = self.folder.path().join(format!("log-{of}"));
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
    }

    /// psched on h0, until it listens.
    #[track_caller]
    pub fn start_psched(&mut self) {
        let config = self.folder.path().join("psched.yaml");
        let mut command = self.command(0, "psched", [OsStr::new("--config"), config.as_os_str()]);
        command.env("PSCHED_LOG", "info").stdout(Stdio::null()).stderr(self.log("psched"));
        self.psched = Some(command.spawn().expect("psched starts"));
        let socket = self.root(0).join("run/psched/psched.sock");
        eventually(BOUND, "psched listens", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
    }

    /// The apinit of a host.
    pub fn start_apinit(&mut self, host: usize, nodes: u32) {
        self.start_apinit_of(host, nodes, binaries());
    }

    /// The apinit in this folder.
    #[track_caller]
    pub fn start_apinit_of(&mut self, host: usize, nodes: u32, programs: &Path) {
        let (first, last) = (host as u32 * nodes, (host as u32 + 1) * nodes - 1);
        let nids = format!("{first}-{last}");
        let psched = match host {
            0 => ["--socket".to_owned(), "/run/psched/psched.sock".to_owned()],
            _ => ["--psched".to_owned(), "h0".to_owned()],
        };
        let rest = ["--nids", &nids, "--certificates", "/run/certs"].map(str::to_owned);
        let mut command = self.on(host, programs.join("apinit").as_os_str());
        command.args(psched.into_iter().chain(rest)).env_remove("PSCHED_SOCKET");
        command.envs(self.criu.as_ref().map(|criu| ("PSCHED_CRIU", criu)));
        let log = self.log(&host.to_string());
        command.env("PSCHED_LOG", "info").stdout(Stdio::null()).stderr(log);
        self.apinits[host] = Some(command.spawn().expect("apinit starts"));
    }

    /// The process of a host's apinit.
    pub fn apinit(&self, host: usize) -> i32 {
        self.apinits[host].as_ref().expect("it runs").id() as i32
    }

    /// kill -9 of a host's apinit.
    pub fn kill_apinit(&mut self, host: usize) {
        let mut apinit = self.apinits[host].take().expect("it runs");
        apinit.kill().expect("killed");
        apinit.wait().expect("reaped");
    }

    /// All processes of a host are gone at once.
    pub fn loses_power(&mut self, host: usize) {
        self.kill_apinit(host);
        for (pid, _) in self.others(host) {
            kill(pid, 9);
        }
    }

    /// The host has another boot: what was in its /run is gone.
    #[track_caller]
    pub fn boots_anew(&self, host: usize) {
        let boot = self.root(host).join("run/etc/boot_id");
        std::fs::write(boot, "00000000-0000-4000-8000-0000000000ff\n").expect("written");
        let runtime = self.root(host).join("run/psched");
        for name in listing(&runtime) {
            let path = runtime.join(name);
            let removed = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
            removed.expect("removed");
        }
    }

    /// kill -9 of psched.
    pub fn kill_psched(&mut self) {
        let mut psched = self.psched.take().expect("it runs");
        psched.kill().expect("killed");
        psched.wait().expect("reaped");
    }

    /// Has a host's apinit (`None`: psched) stand still, or go on.
    pub fn stand_still(&self, apinit: Option<usize>, still: bool) {
        let child = match apinit {
            Some(host) => &self.apinits[host],
            None => &self.psched,
        };
        let pid = child.as_ref().expect("it runs").id();
        kill(pid as i32, if still { 19 } else { 18 });
    }

    /// Pulls a host's cable, or puts it back.
    pub fn cable(&self, host: usize, plugged: bool) {
        let state = if plugged { "up" } else { "down" };
        ip(&self.switch, &["link", "set", &format!("p{host}"), state]);
    }

    /// A program on the switch: port `pN` is the other end of the cable of host N.
    pub fn on_switch(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.switch.pid.to_string();
        command.args(["-t", &pid, "-n", "--", program]).stdin(Stdio::null());
        command
    }

    /// TCP segments that the hosts have sent again so far.
    pub fn sent_again(&self) -> u64 {
        let of = |host: &Holder| {
            let path = format!("/proc/{}/net/snmp", host.pid);
            let text = std::fs::read_to_string(path).expect("its counters");
            let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
            let names = lines.next().expect("a line of names").split(' ');
            let mut all = names.zip(lines.next().expect("a line of values").split(' '));
            let value = all.find(|(name, _)| *name == "RetransSegs").expect("counted").1;
            value.parse::<u64>().expect("a number")
        };
        self.hosts.iter().map(of).sum()
    }

    /// Bytes that a host has sent to others so far.
    pub fn sent_bytes(&self, host: usize) -> u64 {
        let path = format!("/proc/{}/net/dev", self.hosts[host].pid);
        let text = std::fs::read_to_string(path).expect("its counters");
        let mut lines = text.lines().filter_map(|line| line.trim().strip_prefix("eth0:"));
        // (Eight columns of what it has received come first.)
        let sent = lines.next().expect("its cable").split_whitespace().nth(8);
        sent.expect("counted").parse().expect("a number")
    }

    /// The processes of a host other than its daemons and what holds it: pid and command line.
    pub fn others(&self, host: usize) -> Vec<(i32, String)> {
        const OWN: [&str; 4] = ["apinit", "nsenter", "psched", "unshare"];
        let holder = self.hosts[host].pid;
        let own = network(holder);
        pids()
            .filter(|pid| *pid != holder && network(*pid) == own)
            .filter_map(|pid| {
                let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
                let text = String::from_utf8_lossy(&line).replace('\0', " ");
                // (A zombie has no program.)
                let own = OWN.iter().any(|own| program.file_name() == Some(OsStr::new(own)));
                (!own).then_some((pid, text))
            })
            .collect()
    }

    /// What `apstat ... --json` says on h0.
    #[track_caller]
    pub fn apstat(&self, options: &str) -> serde_json::Value {
        let mut command = self.command(0, "apstat", words(options).chain(["--json"]));
        serde_json::from_slice(&run(&mut command).expect(0).stdout).expect("JSON")
    }

    /// The states of all nodes, in order of their NIDs.
    pub fn states(&self) -> Vec<String> {
        let all = self.apstat("-n");
        let nodes = all["nodes"].as_array().expect("a list").iter();
        nodes.map(|node| node["state"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Waits until every node is free.
    #[track_caller]
    pub fn wait_until_up(&self) {
        eventually(BOUND, "every node is up", || self.states().iter().all(|s| s == "free"));
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
}

/// A host's namespaces.
#[track_caller]
fn host(i: usize, folder: &Path) -> Holder {
    let clock = (CLOCKS_APART * i as u64).to_string();
    let unshare = [
        "--net",
        "--uts",
        "--mount",
        "--ipc",
        "--propagation",
        "private",
        "--time",
        "--monotonic",
        &clock,
        "--fork",
    ];
    let script = format!(
        "hostname h{i}\n\
         mount -t tmpfs -o mode=755 run /run\n\
         mkdir -p /run/etc /run/psched\n\
         mount -t tmpfs -o mode=1777 shm /dev/shm\n\
         mount --bind {hosts} /etc/hosts\n\
         echo h{i} > /run/etc/hostname; mount --bind /run/etc/hostname /etc/hostname\n\
         (cat /etc/passwd; echo only{i}:x:{uid}:{uid}::/:/bin/sh) > /run/etc/passwd\n\
         mount --bind /run/etc/passwd /etc/passwd\n\
         echo 00000000-0000-4000-8000-00000000000{i} > /run/etc/boot_id\n\
         mount --bind /run/etc/boot_id /proc/sys/kernel/random/boot_id\n\
         ip link set lo up",
        hosts = folder.join("hosts").display(),
        uid = 4_000 + i,
    );
    Holder::start(&unshare, &script)
}

/// The network that a process is in.
fn network(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

/// `ip` in the network of a holder.
#[track_caller]
fn ip(of: &Holder, arguments: &[&str]) {
    let mut command = Command::new("nsenter");
    command.args(["-t", &of.pid.to_string(), "-n", "--", "ip"]).args(arguments);
    run(&mut command).expect(0);
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for of in ["psched".to_owned()].into_iter().chain((0..9).map(|i| i.to_string())) {
                let said = self.said(&of);
                if !said.is_empty() {
                    eprintln!("the log of {of}:\n{}", tail(&said, 60));
                }
            }
        }
        for daemon in self.apinits.iter_mut().flatten().chain(self.psched.as_mut()) {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        // Whatever lives in the network of a host: the other namespaces may be others.
        for host in &self.hosts {
            let own = network(host.pid);
            for _ in 0..3 {
                for pid in pids().filter(|pid| *pid != host.pid && network(*pid) == own) {
                    kill(pid, 9);
                }
            }
            clear_applications(Path::new(&format!("/proc/{}/root/run/psched", host.pid)));
        }
    }
}
