//! psched-tutorial(7): its commands are typed as they stand there, and print what stands there.
//!
//! A line behind `$ ` is a command. The lines below it are what the command prints. Numbers, times and
//! blanks are not compared; three dots stand for any lines; a line that begins with eight blanks continues
//! the line above it. A block that begins with `# ` can't be typed here (it needs a second user) and is
//! skipped. `cat FILE` shows a file that the reader writes.
//!
//! The test repeats a command that only shows something until it prints what the page has, because readers
//! are slow. It types any other command once; what such a command prints may come later, among the lines of
//! programs in the background.

use crate::support::transcripts::{plain, printed as said};
use crate::support::*;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A command of the page, and the lines that it prints there.
struct Step {
    command: String,
    shown: Vec<String>,
}

/// Where a line of the page continues the line above it.
const CONTINUED: &str = "        ";

/// The commands in the literal blocks of a page.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.split("\n.nf\n").skip(1) {
        let (block, _) = block.split_once("\n.fi").expect("a block ends");
        if block.starts_with("# ") {
            continue;
        }
        for line in block.lines() {
            let text = line.strip_prefix("\\&").unwrap_or(line).replace("\\-", "-");
            if let Some(command) = text.strip_prefix("$ ") {
                steps.push(Step { command: command.to_owned(), shown: Vec::new() });
                continue;
            }
            let shown = &mut steps.last_mut().expect("a command comes first").shown;
            match (text.strip_prefix(CONTINUED), shown.last_mut()) {
                (Some(rest), Some(above)) => *above = format!("{above} {rest}"),
                _ => shown.push(text),
            }
        }
    }
    steps
}

/// Those of the lines shown that are not printed.
fn missing<'a>(shown: &'a [String], printed: &str, user: &str) -> Vec<&'a String> {
    let printed: Vec<String> = printed.lines().map(|line| plain(line, user)).collect();
    // (Why it waits is said after a moment, which people give it. apstat --why is asked too.)
    let waits = |line: &str| line.starts_with("aprun: ") && line.contains(" waits for a place: ");
    // (One that has ended already when apkill looks is not said to be ending.)
    let ending = |line: &str| line.starts_with("apkill: ") && line.contains(": ending, KILL in ");
    let left_out = |line: &str| {
        line == "..." || line == "^C" || line.is_empty() || waits(line) || ending(line)
    };
    let lacks = |line: &&String| !left_out(line) && !printed.contains(&plain(line, user));
    shown.iter().filter(lacks).collect()
}

/// A shell that `psched start` has made, from there to its `exit`.
struct Session {
    instance: Instance,
    /// The reader's working directory.
    folder: PathBuf,
    /// What was started with & and may have something to say.
    background: Vec<Running>,
    /// What was printed so far by what is done once, and is to be printed in all.
    printed: String,
    shown: Vec<String>,
    applications: u64,
}

impl Session {
    fn start(arguments: &str, folder: &Path) -> Session {
        let mut plan = Plan::new().shared();
        for word in words(arguments) {
            plan =
                if word.ends_with(".yaml") { plan.arg(folder.join(word)) } else { plan.arg(word) };
        }
        Session {
            instance: plan.start(),
            folder: folder.to_owned(),
            background: Vec::new(),
            printed: String::new(),
            shown: Vec::new(),
            applications: 0,
        }
    }

    fn command(&self, text: &str) -> Command {
        let mut words = words(text);
        let mut command = self.instance.command(words.next().expect("a command"), words);
        // Scripts of the page call aprun.
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.instance.bins.display());
        command.env("PATH", path).current_dir(&self.folder);
        command
    }

    fn is_running(&self, apid: u64) -> bool {
        let run = self.instance.run("apstat", ["-A", &apid.to_string()]);
        run.out().lines().any(|line| line.split_whitespace().eq(["State:", "running"]))
    }

    fn play(&mut self, step: &Step, user: &str) {
        let text = step.command.as_str();
        self.applications += u64::from(text.starts_with("aprun"));
        let apid = self.applications;
        let looks = text.starts_with("apstat") || text.starts_with("ps") && !text.contains(" set ");
        let done_once = ["psmgr drain", "psmgr resume"].iter().any(|done| text.starts_with(done));
        if let Some(text) = text.strip_suffix(" &") {
            self.background.push(Running::start(&mut self.command(text)));
            eventually(BOUND, text, || {
                self.instance.run("apstat", ["-A", &apid.to_string()]).status == 0
            });
            self.shown.extend(step.shown.iter().cloned());
        } else if step.shown.iter().any(|line| line == "^C") {
            let running = Running::start(&mut self.command(text));
            eventually(BOUND, text, || self.is_running(apid));
            running.signal(2);
            self.printed += &said(&running.wait(BOUND));
            self.shown.extend(step.shown.iter().cloned());
        } else if looks && !done_once {
            let mut printed = String::new();
            eventually_or(&mut printed, |printed| {
                *printed = said(&run(&mut self.command(text)));
                missing(&step.shown, printed, user).is_empty()
            })
            .unwrap_or_else(|printed| {
                panic!("{text}: {:#?} not in {printed}", missing(&step.shown, printed, user))
            });
        } else {
            self.printed += &said(&run(&mut self.command(text)));
            self.shown.extend(step.shown.iter().cloned());
        }
    }

    /// All that was to be printed has been.
    fn exit(mut self, user: &str) {
        // What prints something of its own is waited for; the rest ends with the instance.
        eventually(BOUND, "only sleep is left", || {
            let all = self.instance.apstat("-a");
            let mut rows = all["applications"].as_array().expect("a list").iter();
            rows.all(|row| row["command"].as_str().is_some_and(|c| c.starts_with("sleep")))
        });
        self.instance.end(15);
        for running in self.background {
            self.printed += &said(&running.wait(BOUND));
        }
        let missing = missing(&self.shown, &self.printed, user);
        assert!(missing.is_empty(), "{missing:#?} not in {}", self.printed);
    }
}

/// Repeats it until it is so, for as long as a slow machine may take.
fn eventually_or(
    printed: &mut String,
    mut is_so: impl FnMut(&mut String) -> bool,
) -> Result<(), &str> {
    let until = std::time::Instant::now() + BOUND;
    while !is_so(printed) {
        if std::time::Instant::now() > until {
            return Err(printed);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[test]
fn what_the_tutorial_types_does_what_it_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("man/psched-tutorial.7")).expect("there");
    let folder = tempfile::tempdir().expect("a folder");
    for file in ["config/x1.yaml", "tests/programs/ring.c"] {
        let name = Path::new(file).file_name().expect("a file");
        std::fs::copy(root.join(file), folder.path().join(name)).expect("copied");
    }
    let uid = nix::unistd::geteuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten().map(|user| user.name);
    let user = user.unwrap_or_else(|| uid.to_string());
    let mut session: Option<Session> = None;
    let mut sessions = 0;
    for step in steps(&page) {
        let text = step.command.as_str();
        let compiles = text.starts_with("mpicc");
        if (compiles || text.ends_with("./ring")) && !mpi::is_there() {
            if compiles {
                skip(
                    "tutorial::the_mpi_program",
                    "mpicc.mpich is not installed (apt-get install mpich libmpich-dev)",
                );
            }
            continue;
        }
        if let Some(arguments) = text.strip_prefix("psched start") {
            sessions += 1;
            session = Some(Session::start(arguments, folder.path()));
        } else if text == "exit" {
            session.take().expect("a session").exit(&user);
        } else if let Some(file) = text.strip_prefix("cat ") {
            write_program(folder.path().join(file), step.shown.join("\n") + "\n", 0o644);
        } else if text.starts_with("psched check") {
            let mut command = Command::new(binaries().join("psched"));
            let printed = said(&run(command.args(words(text).skip(1)).current_dir(folder.path())));
            let missing = missing(&step.shown, &printed, &user);
            assert!(missing.is_empty(), "{text}: {missing:#?} not in {printed}");
        } else {
            session.as_mut().expect("a session").play(&step, &user);
        }
    }
    assert!(session.is_none() && sessions == 3, "{sessions} sessions");
}

#[test]
fn what_differs_from_run_to_run_is_not_compared() {
    let same = |one: &str, other: &str| plain(one, "anne") == plain(other, "anne");
    assert!(same("   3 root   8 0.9s", "12 anne 64  1.25s"));
    assert!(!same("frozen 0.9s", "runs"));
    let shown = ["a 1", "...", "b"].map(str::to_owned);
    assert!(missing(&shown, "b\nx\na 77\n", "anne").is_empty());
    assert_eq!(missing(&shown, "b\nx\n", "anne"), [&shown[0]]);
}

#[test]
fn lines_are_continued_and_blocks_for_others_skipped() {
    let page = "\n.nf\n$ a \\-b\none\n        two\n    three\n\\&...\n.fi\n.nf\n# c\nx\n.fi\n";
    let steps = steps(page);
    let shown = ["one two", "    three", "..."].map(str::to_owned);
    assert_eq!(steps.len(), 1);
    assert_eq!((steps[0].command.as_str(), &steps[0].shown[..]), ("a -b", &shown[..]));
}
