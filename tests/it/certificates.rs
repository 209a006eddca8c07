//! Certificates that are renewed, replaced with their authority and revoked, while applications
//! start, write, wire up and take turns on all hosts.

use crate::host_faults::nothing_is_left;
use crate::support::hosts::{Cluster, NETWORK, may_be};
use crate::support::users::Bins;
use crate::support::*;
use psched::certs::making::certificate;
use psched::certs::{AUTHORITIES, HOST, HOST_KEY, Keyring, Role};
use psched::rpc::tls::{Expect, open};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What a daemon logs when it has read changed files.
const IN_FORCE: &str = "new certificates are in force";
/// Launches from each host that are to succeed between two steps.
const BETWEEN: usize = 2;

/// The steps of a section of psched-certs(8), each as it is read.
fn steps(section: &str) -> Vec<String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("man/psched-certs.8");
    let page = std::fs::read_to_string(path).expect("there");
    let (_, rest) = page.split_once(&format!(".SH {section}\n")).expect("a section");
    let (own, _) = rest.split_once("\n.SH ").expect("another one");
    let plain = |step: &str| {
        let lines = step.lines().skip(1);
        let lines = lines.map(|line| line.trim_start_matches(".B ").trim_start_matches(".I "));
        lines.collect::<Vec<_>>().join(" ").replace("\\-", "-")
    };
    own.split(".IP ").skip(1).map(plain).collect()
}

/// Where the certificate of a host is made.
fn made(cluster: &Cluster, host: usize) -> PathBuf {
    match host {
        0 => cluster.certificates(),
        _ => cluster.certificates().join(format!("hosts/h{host}")),
    }
}

/// The serial number of the certificate that a daemon shows in a handshake: the apinit of a host,
/// or psched.
fn shown(cluster: &Cluster, host: usize, port: u16, role: Role) -> String {
    let network = cluster.root(0).parent().expect("of a process").join("ns/net");
    let address = format!("{NETWORK}.{}:{port}", host + 1);
    let name = Some(format!("h{host}"));
    // (A key is used only in a folder whose path is trusted, which the root of a host is not.)
    let folder = tempfile::Builder::new().prefix("it").tempdir_in("/tmp").expect("a folder");
    for file in [AUTHORITIES, HOST, HOST_KEY] {
        std::fs::copy(cluster.certificates().join(file), folder.path().join(file)).expect("copied");
    }
    // (A thread may be in another network than its process.)
    let asks = std::thread::spawn(move || {
        let network = std::fs::File::open(network).expect("a network");
        nix::sched::setns(network, nix::sched::CloneFlags::CLONE_NEWNET).expect("root may");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("one").block_on(async {
            let keyring = Keyring::open(folder.path()).expect("good");
            let stream = open(&address, &Expect { name, role }, &keyring).await;
            stream.expect("connected").peer().serial.to_string()
        })
    });
    asks.join().expect("it is shown")
}

/// Waits until every daemon shows the certificate of its host that was made last.
#[track_caller]
fn wait_until_shown(cluster: &Cluster, hosts: usize) {
    for host in 0..hosts {
        let serial = certificate(&made(cluster, host).join(HOST)).expect("made").serial;
        let apinit = || shown(cluster, host, 7118, Role::Node);
        eventually(BOUND, &format!("h{host} shows its certificate"), || apinit() == serial);
    }
    let serial = certificate(&made(cluster, 0).join(HOST)).expect("made").serial;
    let psched = || shown(cluster, 0, 7117, Role::Control);
    eventually(BOUND, "psched shows its certificate", || psched() == serial);
}

/// What the daemons of these hosts have logged.
fn logs(cluster: &Cluster, hosts: usize) -> Vec<(String, String)> {
    let names = ["psched".to_owned()].into_iter().chain((0..hosts).map(|host| host.to_string()));
    names.map(|name| (name.clone(), cluster.said(&name))).collect()
}

/// Copies a file of the folder where certificates are made, whole or not at all.
fn copy(cluster: &Cluster, host: usize, file: &str) {
    let to = cluster.root(host).join("run/certs");
    std::fs::copy(cluster.certificates().join(file), to.join("new")).expect("copied");
    std::fs::rename(to.join("new"), to.join(file)).expect("named");
}

/// Applications from each host, one after the other, until they are to stop. Each is of another
/// user, so that each has new connections.
struct Launches<'a> {
    cluster: &'a Cluster,
    bins: Bins,
    stop: AtomicBool,
    done: Vec<AtomicUsize>,
}

impl<'a> Launches<'a> {
    fn new(cluster: &'a Cluster, hosts: usize) -> Launches<'a> {
        let done = (0..hosts).map(|_| AtomicUsize::new(0)).collect();
        Launches { cluster, bins: Bins::new(), stop: AtomicBool::new(false), done }
    }

    /// Starts applications from one host.
    fn from(&self, host: usize) {
        let expected: Vec<String> = (0..self.done.len()).map(|host| format!("h{host}")).collect();
        let options = format!("-q -n {} -N 1 hostname", expected.len());
        while !self.stop.load(Ordering::Acquire) {
            let number = self.done[host].load(Ordering::Acquire);
            let uid = (70_000 + 1_000 * host + number).to_string();
            let mut command = self.cluster.on(host, "setpriv".as_ref());
            command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"]);
            command.arg(self.bins.path("aprun")).args(words(&options)).env("HOME", "/");
            command.env_remove("PSCHED_SOCKET").env_remove("PSCHED_LOG").current_dir("/");
            let run = Running::start(&mut command).wait(BOUND).expect(0);
            assert_eq!((run.sorted(), &*run.stderr), (expected.clone(), ""), "from h{host}");
            self.done[host].fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Waits until some more from each host have ended well.
    #[track_caller]
    fn go_on(&self, when: &str) {
        let count =
            || self.done.iter().map(|done| done.load(Ordering::Acquire)).collect::<Vec<_>>();
        let before = count();
        eventually(BOUND, &format!("applications start: {when}"), || {
            count().iter().zip(&before).all(|(now, before)| *now >= before + BETWEEN)
        });
    }
}

/// Ends what runs beside a test, also where that fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// An application that counts on each PE until it is to stop.
fn counts(cluster: &Cluster, from: usize, options: &str) -> Running {
    let script = count_script(cluster);
    let arguments = words(options).chain(["sh", "-c", &script]);
    Running::start(&mut cluster.command(from, "aprun", arguments))
}

fn count_script(cluster: &Cluster) -> String {
    format!(
        "i=0; until [ -e {}/stop ]; do i=$((i+1)); echo $ALPS_APP_PE $i; sleep 0.05; done; \
         echo $ALPS_APP_PE end $i",
        cluster.folder().display()
    )
}

/// One PE on host 0 that counts, started on host 1. The stderr of aprun is the file `told`.
fn counts_from_1(cluster: &Cluster, told: &Path) -> Running {
    let told_by = format!("exec \"$@\" 2>{}", told.display());
    let aprun = binaries().join("aprun");
    let script = count_script(cluster);
    let mut command = cluster.on(1, "sh".as_ref());
    command.env_remove("PSCHED_SOCKET").env_remove("PSCHED_LOG");
    command.args(["-c", &*told_by, "sh"]).arg(aprun).args(words("-n 1 -L 0 sh -c")).arg(script);
    Running::start(&mut command)
}

/// Each PE has counted without a gap, and said so.
#[track_caller]
fn counted(run: &Run, pes: usize) {
    for pe in 0..pes {
        let prefix = format!("{pe} ");
        let out = run.out();
        let own: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix(&*prefix)).collect();
        let count = own.len().saturating_sub(1);
        let mut expected: Vec<String> = (1..=count).map(|i| i.to_string()).collect();
        expected.push(format!("end {count}"));
        assert_eq!(own, expected, "PE {pe}");
        assert!(count > 0, "PE {pe} has not run");
    }
}

/// The section of psched-certs(8) is done step by step, after certificates were renewed.
#[test]
fn certificates_and_authorities_are_replaced_under_load() {
    if !may_be("certificates::certificates_and_authorities_are_replaced_under_load") {
        return;
    }
    let cluster = Cluster::start(3, 1);
    let set = "set application.time_slice=50ms application.max_resident=6";
    run(&mut cluster.command(0, "psmgr", words(set))).expect(0);
    // Two of them want all processors and take turns.
    let wide = [1, 2].map(|from| counts(&cluster, from, "-q -n 6"));
    cluster.wait_for("running", 2);
    let launches = Launches::new(&cluster, 3);
    // Each daemon has read changed files so often.
    let read = || -> Vec<usize> {
        logs(&cluster, 3).iter().map(|(_, said)| said.matches(IN_FORCE).count()).collect()
    };
    std::thread::scope(|scope| {
        let _stop = Stop(&launches.stop);
        let launches = &launches;
        (0..3).for_each(|host| drop(scope.spawn(move || launches.from(host))));
        launches.go_on("before");
        cluster.certs("renew h0 h1 h2").expect(0);
        (1..3).for_each(|host| cluster.copy_certificates(host));
        wait_until_shown(&cluster, 3);
        launches.go_on("with renewed certificates");

        let steps = steps("REPLACE THE AUTHORITY");
        assert_eq!(steps.len(), 6, "{steps:?}");
        let first = certificate(&made(&cluster, 1).join(HOST)).expect("made");
        for step in &steps {
            let before = read();
            let changed = match step.as_str() {
                "Copy authorities.pem to all hosts. From now on every host accepts both authorities."
                | "Copy authorities.pem again." => {
                    (1..3).for_each(|host| copy(&cluster, host, AUTHORITIES));
                    2..4
                }
                "Copy the files of each host." => {
                    (1..3).for_each(|host| cluster.copy_certificates(host));
                    wait_until_shown(&cluster, 3);
                    0..0
                }
                command => {
                    let command = command.strip_prefix("psched certs ").expect("a known step");
                    cluster.certs(command).expect(0);
                    0..2
                }
            };
            // (psched and the apinit of h0 read the files where they are made.)
            eventually(BOUND, &format!("it is in force: {step}"), || {
                let now = read();
                changed.clone().all(|daemon| now[daemon] > before[daemon])
            });
            launches.go_on(step);
        }
        let last = certificate(&made(&cluster, 1).join(HOST)).expect("made");
        assert_ne!(first.authority, last.authority);
        let show = cluster.certs("show").expect(0).out();
        assert_eq!(show.matches("psched authority of").count(), 1 + 3, "{show}");
    });
    std::fs::write(cluster.folder().join("stop"), "").expect("written");
    for wide in wide {
        let run = wide.wait(BOUND).expect(0);
        counted(&run, 6);
        assert_eq!(run.stderr, "");
    }
    for (name, said) in logs(&cluster, 3) {
        for wrong in ["refused", "refuses", "has gone", "can't be reached"] {
            let line = said.lines().find(|line| line.contains(wrong));
            assert!(line.is_none(), "{name} says {line:?}");
        }
    }
    cluster.wait_until_up();
    nothing_is_left(&cluster, 0..3);
}

/// One host is revoked while applications on it and on the others start, wire up and write. Those
/// on the others do not notice; those on the revoked host end well, or are said to be lost.
#[test]
fn a_host_is_revoked_under_load() {
    let test = "certificates::a_host_is_revoked_under_load";
    if !may_be(test) {
        return;
    }
    let Some(phases) = mpi::plain("certificates", "phases") else { return };
    let cluster = Cluster::start(3, 1);
    let set = "set application.time_slice=50ms application.max_resident=6";
    run(&mut cluster.command(0, "psmgr", words(set))).expect(0);
    // It writes to an aprun on the host that is revoked, and to another one.
    let told = cluster.folder().join("told");
    let writes = [counts_from_1(&cluster, &told), counts(&cluster, 2, "-q -n 1 -L 0")];
    cluster.wait_for("running", 2);
    // (A program that may end when it is wired up.)
    std::fs::write(cluster.folder().join("go"), "").expect("written");
    let launch = |from: usize, options: &str| {
        let arguments = words(options);
        let folder = cluster.folder().to_str().expect("text").to_owned();
        let mut command = cluster.command(from, "aprun", arguments);
        command.arg(&phases).args([&*folder, "10", "0"]);
        Running::start(&mut command).wait(BOUND)
    };
    let whole = |run: &Run, pes: usize| {
        let out = run.out();
        (0..pes).all(|rank| out.lines().any(|line| line.starts_with(&format!("{rank} O end "))))
    };
    let stop = AtomicBool::new(false);
    let narrow = [0, 2].map(|from| (from, AtomicUsize::new(0)));
    let (begun, lost) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        for (from, done) in &narrow {
            let (stop, launch) = (&stop, &launch);
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    let run = launch(*from, "-q -n 2 -N 1 --flexible -L 0,2").expect(0);
                    assert!(whole(&run, 2), "from h{from}: {run:?}");
                    done.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        for from in [0, 2] {
            let (stop, launch, begun, lost) = (&stop, &launch, &begun, &lost);
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    let run = launch(from, "-n 3 -N 1");
                    match run.status {
                        0 => assert!(whole(&run, 3), "from h{from}: {run:?}"),
                        125 => {
                            let named = ["NID 1", "NID 00001", "h1"];
                            let named = named.iter().any(|name| run.stderr.contains(name));
                            assert!(named, "from h{from}: {run:?}");
                            lost.fetch_add(1, Ordering::AcqRel);
                            return;
                        }
                        _ => panic!("from h{from}: {run:?}"),
                    }
                    begun.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        let go_on = |when: &str| {
            let count = || narrow.each_ref().map(|(_, done)| done.load(Ordering::Acquire));
            let before = count();
            eventually(BOUND, &format!("applications start: {when}"), || {
                count().iter().zip(&before).all(|(now, before)| *now >= before + BETWEEN)
            });
        };
        go_on("before");
        eventually(BOUND, "some have run on all hosts", || begun.load(Ordering::Acquire) >= 2);
        cluster.certs("revoke h1").expect(0);
        cluster.copy_certificates(2);
        eventually(BOUND, "its node is suspect", || cluster.states()[1] == "suspect");
        go_on("beside the revoked host");
        eventually(BOUND, "its aprun says why it hears nothing", || {
            let told = std::fs::read_to_string(&told).unwrap_or_default();
            told.contains("its certificate has been revoked")
        });
        run(&mut cluster.command(0, "psmgr", words("down 1 stolen"))).expect(0);
        go_on("without it");
        // The host gets another certificate, and the aprun that waited there goes on.
        cluster.certs("host h1 --role node,login").expect(0);
        cluster.copy_certificates(1);
        run(&mut cluster.command(0, "psmgr", words("resume 1"))).expect(0);
        eventually(BOUND, "the host is back", || {
            !["suspect", "down"].contains(&cluster.states()[1].as_str())
        });
        go_on("with the host");
    });
    std::fs::write(cluster.folder().join("stop"), "").expect("written");
    let [there, elsewhere] = writes.map(|writes| writes.wait(BOUND).expect(0));
    [&there, &elsewhere].into_iter().for_each(|run| counted(run, 1));
    assert_eq!(elsewhere.stderr, "");
    eprintln!("{} ran on all hosts, {} were lost", begun.into_inner(), lost.into_inner());
    nothing_is_left(&cluster, 0..3);
}
