//! psched-tutorial(7): its commands are typed as they stand there, and print what stands there.
//!
//! A line behind `$` is a command, what is below it is printed, up to the next. Numbers, times and blanks are
//! not compared; three dots stand for any lines. `cat FILE` shows a file that the reader writes. What only
//! looks is asked again until it shows what the page does, for the page is read by people, who are slow; what
//! is done is done once, and its lines may come later, among those of programs in the background.

use crate::support::transcripts::{plain, printed as said};
use crate::support::*;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A command of the page, and the lines that it prints there.
struct Step {
    command: String,
    shown: Vec<String>,
}

/// The commands in a page's literal parts.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut literal = false;
    for line in page.lines() {
        match line {
            ".nf" => literal = true,
            ".fi" => literal = false,
            _ if !literal => {}
            _ => {
                let text = line.strip_prefix("\\&").unwrap_or(line).replace("\\-", "-");
                match text.strip_prefix("$ ") {
                    Some(command) => {
                        steps.push(Step { command: command.to_owned(), shown: Vec::new() });
                    }
                    None => steps.last_mut().expect("a command comes first").shown.push(text),
                }
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
        let (background, printed, shown) = (Vec::new(), String::new(), Vec::new());
        Session { instance: plan.start(), background, printed, shown, applications: 0 }
    }

    fn command(&self, text: &str) -> Command {
        let mut words = words(text);
        self.instance.command(words.next().expect("a command"), words)
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
    std::fs::copy(root.join("config/x1.yaml"), folder.path().join("x1.yaml")).expect("copied");
    let uid = nix::unistd::geteuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten().map(|user| user.name);
    let user = user.unwrap_or_else(|| uid.to_string());
    let mut session: Option<Session> = None;
    let mut sessions = 0;
    for step in steps(&page) {
        let text = step.command.as_str();
        if let Some(arguments) = text.strip_prefix("psched start") {
            sessions += 1;
            session = Some(Session::start(arguments, folder.path()));
        } else if text == "exit" {
            session.take().expect("a session").exit(&user);
        } else if let Some(file) = text.strip_prefix("cat ") {
            std::fs::write(folder.path().join(file), step.shown.join("\n") + "\n")
                .expect("written");
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
