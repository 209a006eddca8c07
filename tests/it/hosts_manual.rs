//! psched-hosts(7): all its commands are typed as they stand there, in hosts that are made for it.
//!
//! A line `h0# COMMAND` is typed by root on h0, `h2$ COMMAND` by a user on h2. The lines below it are
//! what the command prints; below `vi` and `systemctl edit` they are what the reader types into the
//! editor. Numbers (but not names of hosts), times and blanks are not compared; three dots stand for
//! other lines, or for other words of a line; a line that begins with eight blanks continues the line
//! above it.
//!
//! A command below which the page shows nothing prints nothing. Lines that are not shown may be printed where the page
//! has a line of three dots.
//!
//! The hosts have no systemd, no sshd and no editor: small scripts do the same ([`STUBS`]). The control group of
//! psched-groups.service has another name for each host, because the hosts have one kernel.

use crate::support::hosts::{Cluster, may_be};
use crate::support::manager::Unit;
use crate::support::transcripts::plain;
use crate::support::users::{ANNA, Bins};
use crate::support::*;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a command is repeated until it prints what the page shows.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long an MPI program may take, and how often it is started: MPICH 4.0.2 does not end now and
/// then, as the page says.
const MPI_RUNS: (&str, usize) = ("20", 10);

/// What the hosts lack, and the script in its place. FOLDER is the folder of the test, UNITS that of
/// the units, BINS that of psched's programs.
const STUBS: [(&str, &str); 4] = [
    ("vi", "#!/bin/sh\nexec cat > \"$1\"\n"),
    (
        "scp",
        r#"#!/bin/sh -e
[ "$1" = -p ] && shift
for to; do :; done
while [ $# -gt 1 ]; do
    cp -p "$1" "FOLDER/roots/${to%%:*}${to#*:}"
    shift
done
"#,
    ),
    (
        "journalctl",
        "#!/bin/sh -e\n[ \"$1 $3\" = '-u -n' ]\ntail -n \"$4\" \"$(cat /run/log-$2)\"\n",
    ),
    (
        "systemctl",
        r#"#!/bin/sh -e
verb=$1
shift
[ "$1" = --now ] && shift
for unit; do
    added=/etc/systemd/system/$unit.service.d
    if [ "$verb" = edit ]; then
        mkdir -p "$added"
        cat > "$added/override.conf"
        continue
    fi
    if [ "$verb" = stop ]; then
        pid=$(cat "/run/pid-$unit")
        kill "$pid"
        while [ -e "/proc/$pid/exe" ]; do sleep 0.05; done
        continue
    fi
    # The unit's group, if there may be one: a login host has none.
    group=$(cat "FOLDER/group-$(hostname)" 2>/dev/null) || group=
    [ "$unit$group" = psched-groups ] && continue
    named=${group:+--groups /${group##*/}}
    (
        cat "UNITS/$unit.service" "$added"/*.conf 2>/dev/null |
            sed -e ':more' -e '/\\$/{N; s/\\\n//; b more' -e '}' > "/run/unit-$unit"
        command=
        while read -r line; do
            case $line in
            Environment=*) export "${line#Environment=}" ;;
            ExecStart=*) command=${line#ExecStart=} ;;
            esac
        done < "/run/unit-$unit"
        command=$(printf %s "$command" | sed 's|^/usr/bin/|BINS/|')
        command=$(printf %s "$command" |
            sed "s|--groups  */system.slice/psched-groups.service|$named|")
        eval "set -- $command"
        log=FOLDER/log-psched
        case $unit in
        apinit) log=FOLDER/log-$(hostname | tr -d h) ;;
        psched-groups)
            log=FOLDER/groups-$(hostname)
            set -- sh -c 'echo 0 > "$0/cgroup.procs" && exec "$@"' "$group" "$@"
            ;;
        esac
        echo "$log" > "/run/log-$unit"
        setsid "$@" < /dev/null >> "$log" 2>&1 &
        echo $! > "/run/pid-$unit"
    )
done
"#,
    ),
];

/// A command of the page.
#[derive(Debug)]
struct Step {
    /// The line of the page, from 1.
    line: usize,
    host: usize,
    root: bool,
    command: String,
    /// The lines below it.
    shown: Vec<String>,
}

/// `h0# COMMAND`, without its first three characters and the blank.
fn typed(text: &str) -> Option<(usize, bool, &str)> {
    let rest = text.strip_prefix('h')?;
    let host = rest.chars().next()?.to_digit(10)?;
    let root = match rest.get(1..3)? {
        "# " => true,
        "$ " => false,
        _ => return None,
    };
    Some((host as usize, root, &rest[3..]))
}

/// The commands of a page. Each literal block of it begins with one.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut literal, mut first) = (false, false);
    for (at, line) in page.lines().enumerate() {
        match line {
            ".nf" => (literal, first) = (true, true),
            ".fi" => literal = false,
            _ if !literal => {}
            _ => {
                let text = line.replace("\\&", "").replace("\\-", "-").replace("\\e", "\\");
                if let Some((host, root, command)) = typed(&text) {
                    let (line, command) = (at + 1, command.to_owned());
                    steps.push(Step { line, host, root, command, shown: Vec::new() });
                } else {
                    assert!(!first, "line {}: a block does not begin with a command", at + 1);
                    steps.last_mut().expect("a command comes first").shown.push(text);
                }
                first = false;
            }
        }
    }
    steps
}

/// Lines with those that continue them.
fn joined(lines: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in lines {
        match (line.strip_prefix("        "), all.last_mut()) {
            (Some(rest), Some(above)) => *above = format!("{above} {rest}"),
            _ => all.push(line.clone()),
        }
    }
    all
}

/// A line without what differs from run to run; the names of hosts do not.
fn bare(line: &str) -> String {
    let named = ["h0", "h1", "h2"].iter().zip(["h-zero", "h-one", "h-two"]);
    plain(&named.fold(line.to_owned(), |line, (host, name)| line.replace(host, name)), "alice")
}

/// Whether a line is printed as it is shown, with any words at three dots.
fn is_shown(shown: &str, printed: &str) -> bool {
    let Some((before, after)) = shown.split_once("...") else {
        return bare(shown) == bare(printed);
    };
    let printed = bare(printed);
    let Some(mut rest) = printed.strip_prefix(&*bare(before)) else {
        return false;
    };
    after.split("...").map(bare).all(|part| match rest.split_once(&*part) {
        Some((_, behind)) => {
            rest = behind;
            true
        }
        None => false,
    })
}

/// What is printed otherwise than it is shown: lines that are missing, with a `-`, and lines that are not shown where
/// there are no three dots, with a `+`. A line that is shown twice is printed twice.
fn differences(shown: &[String], printed: &str) -> Vec<String> {
    let mut left: Vec<&str> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
    let mut differences = Vec::new();
    let (dots, lines): (Vec<_>, Vec<_>) = joined(shown).into_iter().partition(|line| line == "...");
    for line in lines {
        match left.iter().position(|one| is_shown(&line, one)) {
            Some(at) => drop(left.remove(at)),
            None => differences.push(format!("- {line}")),
        }
    }
    if dots.is_empty() {
        differences.extend(left.into_iter().map(|line| format!("+ {line}")));
    }
    differences
}

/// The hosts, and who types there.
struct Reader {
    cluster: Cluster,
    folder: PathBuf,
    path: String,
    _bins: Bins,
    /// The control groups of the hosts with nodes; none where none can be made.
    units: Vec<Unit>,
    /// What was started with &, and the lines that it is to print.
    background: Vec<(Running, Vec<String>)>,
}

impl Reader {
    fn new() -> Reader {
        let (cluster, bins) = (Cluster::new(3, 1), Bins::new());
        let folder = cluster.folder().to_owned();
        let text = |path: &Path| path.to_str().expect("text").to_owned();
        let mode = std::fs::Permissions::from_mode;
        for name in ["stubs", "roots", "home", "own"] {
            std::fs::create_dir(folder.join(name)).expect("made");
        }
        let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/systemd");
        let programs = bins.path("psched");
        let programs = text(programs.parent().expect("in a folder"));
        for (name, script) in STUBS {
            let script = script.replace("FOLDER", &text(&folder)).replace("BINS", &programs);
            let script = script.replace("UNITS", &text(&units));
            write_program(folder.join("stubs").join(name), script, 0o755);
        }
        for host in 0..3 {
            let name = format!("roots/h{host}");
            std::os::unix::fs::symlink(cluster.root(host), folder.join(name)).expect("linked");
            // Configuration and state of its own.
            let script = format!(
                "cp -a /etc /run/own; mount --bind /run/own /etc
                 echo alice:x:{}:{}::/:/bin/sh >> /etc/passwd
                 mkdir {folder}/var{host}; mount --bind {folder}/var{host} /var/lib",
                ANNA.uid,
                ANNA.gid,
                folder = folder.display()
            );
            let mut command = cluster.on(host, OsStr::new("sh"));
            run(command.args(["-e", "-c", &script])).expect(0);
        }
        // The folder that all hosts have at the same path.
        let home = folder.join("home");
        let ring = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/ring.c");
        std::fs::copy(ring, home.join("ring.c")).expect("copied");
        std::fs::set_permissions(home.join("ring.c"), mode(0o644)).expect("ours");
        std::os::unix::fs::chown(&home, Some(ANNA.uid), Some(ANNA.gid)).expect("given");
        let stubs = text(&folder.join("stubs"));
        let path = format!("{stubs}:{programs}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        let units: Option<Vec<Unit>> = (0..2).map(|i| Unit::make(&format!("hosts-{i}"))).collect();
        let units = units.unwrap_or_default();
        for (host, unit) in units.iter().enumerate() {
            std::fs::write(folder.join(format!("group-h{host}")), text(&unit.0)).expect("written");
        }
        Reader { cluster, folder, path, _bins: bins, units, background: Vec::new() }
    }

    /// A shell with this command.
    fn shell(&self, step: &Step, text: &str) -> Command {
        let folder = self.folder.join(if step.root { "own" } else { "home" });
        let text = format!("cd {} && {text}", folder.display());
        let (uid, gid) = (ANNA.uid.to_string(), ANNA.gid.to_string());
        let mut command = self.cluster.on(step.host, OsStr::new("setpriv"));
        if !step.root {
            command.args(["--reuid", &uid, "--regid", &gid, "--clear-groups"]);
        }
        command.args(["--", "sh", "-c", &text]).env("PATH", &self.path).env("HOME", "/");
        command.env_remove("PSCHED_SOCKET").env_remove("PSCHED_LOG");
        command
    }

    /// Types a command once; what is shown goes to its stdin if that is an editor.
    fn once(&self, step: &Step, text: &str) -> Run {
        let mut command = self.shell(step, text);
        if !edits(text) {
            return run(&mut command);
        }
        let mut running = Running::start(command.stdin(Stdio::piped()));
        let mut stdin = running.child.stdin.take().expect("piped");
        let lines = step.shown.join("\n") + "\n";
        stdin.write_all(lines.as_bytes()).expect("typed");
        drop(stdin);
        running.wait(BOUND)
    }

    fn play(&mut self, step: &Step) {
        let text = step.command.as_str();
        let at = format!("psched-hosts.7:{}: {text}", step.line);
        if let Some(text) = text.strip_suffix(" &") {
            let running = Running::start(&mut self.shell(step, &format!("exec {text}")));
            self.background.push((running, step.shown.clone()));
            self.cluster.wait_for("running", 1);
            let there = self.units.iter().all(Unit::has_groups);
            return assert!(there, "{at}: it is not in the groups that --groups names");
        }
        if text.ends_with("./ring") {
            return self.run_mpi(step, &at);
        }
        let looks =
            ["apstat", "psview", "psched certs show"].iter().any(|one| text.starts_with(one));
        let until = Instant::now() + PATIENCE;
        loop {
            let run = self.once(step, text);
            let printed = format!("{}\n{}", run.out(), run.stderr);
            if edits(text) {
                return drop(run.expect(0));
            }
            let differences = differences(&step.shown, &printed);
            let program = text.split(' ').next().unwrap_or_default();
            let error = step.shown.iter().any(|line| line.starts_with(&format!("{program}: ")));
            if differences.is_empty() && (run.status == 0) != error {
                return;
            }
            let again = looks && Instant::now() < until;
            assert!(again, "{at}: status {}, {differences:#?} in {printed}", run.status);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// An MPI program gives right answers each time, and ends at least once.
    fn run_mpi(&self, step: &Step, at: &str) {
        let (seconds, runs) = MPI_RUNS;
        for _ in 0..runs {
            let run = self.once(step, &format!("timeout {seconds} {}", step.command));
            let printed = run.out();
            let differences = differences(&step.shown, &printed);
            assert!(differences.is_empty(), "{at}: {differences:#?} in {printed} {}", run.stderr);
            match run.status {
                0 => return,
                124 => drop(self.cluster.wait_for("running", 0)),
                status => panic!("{at}: status {status}: {}", run.stderr),
            };
        }
        panic!("{at}: has not ended in {runs} runs");
    }
}

/// Whether a command reads what the page shows below it.
fn edits(command: &str) -> bool {
    command.starts_with("vi ") || command.starts_with("systemctl edit ")
}

#[test]
fn what_the_page_of_hosts_types_does_what_it_shows() {
    let test = "hosts_manual::what_the_page_of_hosts_types_does_what_it_shows";
    if !may_be(test) {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/psched-hosts.7");
    let steps = steps(&std::fs::read_to_string(path).expect("there"));
    assert!(steps.len() > 40, "{steps:#?}");
    let mut reader = Reader::new();
    if reader.units.is_empty() {
        skip(test, "the groups of applications: none can be made at the root of cgroup v2");
    }
    for step in &steps {
        let is_mpi = step.command.starts_with("mpicc") || step.command.ends_with("./ring");
        if is_mpi && !mpi::is_there() {
            skip(test, "the MPI program: mpicc.mpich is not installed");
            continue;
        }
        reader.play(step);
    }
    for (running, shown) in std::mem::take(&mut reader.background) {
        let run = running.wait(BOUND);
        let differences = differences(&shown, &run.stderr);
        assert!(differences.is_empty(), "{differences:#?} in {}", run.stderr);
    }
}

#[test]
fn lines_of_the_page_are_read() {
    let page = ".nf\nh1# a \\-b \\e\none\n        two\n\\&...\n.fi\nh0# no\n.nf\nh2$ c\n.fi\n";
    let steps = steps(page);
    let read = steps.iter().map(|s| (s.line, s.host, s.root, &*s.command)).collect::<Vec<_>>();
    assert_eq!(read, [(2, 1, true, "a -b \\"), (9, 2, false, "c")]);
    assert_eq!(joined(&steps[0].shown), ["one two", "..."]);
    assert!(differences(&steps[0].shown, "x\none   two").is_empty());
    let twice = ["h0", "h0"].map(str::to_owned);
    assert_eq!(differences(&twice, "h0\n\nx"), ["- h0", "+ x"]);
    assert_eq!(differences(&[], "x"), ["+ x"]);
    assert!(is_shown("h1 has 1", "h1 has 20") && !is_shown("h1 has 1", "h2 has 1"));
    assert!(is_shown("[NID 00001] ... lost: ...", "[NID 00002] 2026-11-28 it lost: b"));
    assert!(!is_shown("[NID 00001] ... lost: ...", "[NID 00002] 2026-11-28 it: b"));
}
