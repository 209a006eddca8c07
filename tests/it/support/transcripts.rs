//! Transcripts in manual pages: commands that are typed, and what they print.
//!
//! A transcript stands in the literal blocks (`.nf` to `.fi`, `.Bd` to `.Ed` in mdoc) of a section EXAMPLES. A line `$ command` is
//! typed; the lines below it are what the command prints, on stdout or on stderr, in any order. Numbers,
//! units of time and size, blanks and the names of the user and the host are not compared. A line `...`
//! stands for any lines. Without any lines the output is not compared. The status must be 0 unless the lines
//! show an error message or an exit status. A block or a part of one behind the prompt `# ` is not run.
//!
//! There is no shell: a command has words, quoted as in sh, and ` &` at its end puts it in the background.
//! A line `^C` below an aprun interrupts it once it runs.
//!
//! A command that only shows something is repeated until it prints what the page shows, because a reader
//! types more slowly than a test does. Lines of a background program may stand below a later command.

use super::*;

/// A command of a page, and the lines that it prints there.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// The line of the page, from 1.
    pub line: usize,
    pub command: String,
    pub shown: Vec<String>,
}

/// The text of a line of troff in a literal block.
fn text_of(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let names: [(&str, &str); 15] = [
            ("&", ""),
            ("-", "-"),
            ("e", "\\"),
            (" ", " "),
            ("~", " "),
            ("|", ""),
            ("^", ""),
            ("(aq", "'"),
            ("(dq", "\""),
            ("(ga", "`"),
            ("(ha", "^"),
            ("(ti", "~"),
            ("(rs", "\\"),
            ("(en", "\u{2013}"),
            ("(hy", "-"),
        ];
        if let Some((name, means)) = names.iter().find(|(name, _)| after.starts_with(name)) {
            text.push_str(means);
            rest = &after[name.len()..];
        } else if let Some(font) = after.strip_prefix('f') {
            rest = match font.as_bytes().first() {
                Some(b'[') => font.split_once(']').map_or("", |(_, rest)| rest),
                Some(b'(') => font.get(3..).unwrap_or(""),
                _ => font.get(1..).unwrap_or(""),
            };
        } else {
            text.push('\\');
            rest = after;
        }
    }
    text + rest
}

/// The commands in the section EXAMPLES of a page.
///
/// # Errors
/// A macro within a literal block, or a command outside of one, with its line.
pub fn examples(page: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut here, mut literal, mut typed) = (false, false, false);
    for (at, line) in page.lines().enumerate() {
        if let Some(name) = line.strip_prefix(".SH ").or(line.strip_prefix(".Sh ")) {
            (here, literal) = (name.trim_matches('"') == "EXAMPLES", false);
        }
        match line {
            _ if !here => {}
            ".nf" | ".EX" => (literal, typed) = (true, false),
            _ if line.starts_with(".Bd -literal") => (literal, typed) = (true, false),
            ".fi" | ".EE" | ".Ed" => literal = false,
            _ if !literal && line.starts_with("$ ") => {
                return Err(format!("line {}: is not in a literal block: {line}", at + 1));
            }
            _ if !literal || line.starts_with(".\\\"") => {}
            _ if line.starts_with(['.', '\'']) => {
                let at = at + 1;
                return Err(format!(
                    "line {at}: a macro in a literal block (text is \\&.): {line}"
                ));
            }
            _ => {
                let text = text_of(line);
                if let Some(command) = text.strip_prefix("$ ") {
                    typed = true;
                    let (line, command) = (at + 1, command.trim().to_owned());
                    steps.push(Step { line, command, shown: Vec::new() });
                } else if text.starts_with("# ") {
                    typed = false;
                } else if typed && let Some(step) = steps.last_mut() {
                    step.shown.push(text);
                }
            }
        }
    }
    Ok(steps)
}

/// The words of a command, as sh takes them; without what only a shell can do.
///
/// # Errors
/// A character that only a shell understands, or a quote without its end.
pub fn sh_words(text: &str) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let into = |word: &mut Option<String>, c| word.get_or_insert_default().push(c);
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '#' if word.is_none() => break,
            '\'' | '"' => {
                word.get_or_insert_default();
                loop {
                    match chars.next() {
                        None => return Err(format!("no {c} at the end")),
                        Some(end) if end == c => break,
                        Some('\\') if c == '"' => {
                            let next = chars.next().ok_or("no \" at the end")?;
                            if !['"', '\\', '$', '`'].contains(&next) {
                                into(&mut word, '\\');
                            }
                            into(&mut word, next);
                        }
                        Some(it @ ('$' | '`')) if c == '"' => {
                            return Err(format!("there is no shell for {it}"));
                        }
                        Some(it) => into(&mut word, it),
                    }
                }
            }
            '\\' => into(&mut word, chars.next().ok_or("a backslash at the end")?),
            '$' | '`' | '|' | '&' | ';' | '<' | '>' | '(' | ')' | '*' | '?' => {
                return Err(format!("there is no shell for {c}"));
            }
            c => into(&mut word, c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// A line without what differs from run to run.
pub fn plain(line: &str, user: &str) -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let host = host.to_string_lossy();
    let words = line.split_whitespace().map(|word| {
        match word.trim_matches(|c: char| ":;,.()".contains(c)) {
            name if name == user || name == "anne" => word.replace(name, "root"),
            name if name == host => word.replace(name, "host"),
            _ => word.to_owned(),
        }
    });
    let text = words.collect::<Vec<_>>().join(" ");
    // 12, 0.9 and 1,000 are the same number.
    let mut numbers = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' | '.' if numbers.ends_with('#') => {}
            '0'..='9' if numbers.ends_with("#,") => {
                numbers.pop();
            }
            '0'..='9' => numbers.push('#'),
            c => numbers.push(c),
        }
    }
    // 0.9s and 850ms are the same length of time.
    const TIMES: [&str; 7] = ["ns", "us", "ms", "s", "m", "h", "d"];
    const SIZES: [&str; 12] =
        ["B", "K", "M", "G", "KB", "MB", "GB", "kB", "KiB", "MiB", "GiB", "TiB"];
    let mut parts = numbers.split('#');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push('#');
        let unit = part.strip_prefix(' ').unwrap_or(part);
        let end = unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len());
        let (unit, rest) = unit.split_at(end);
        match () {
            () if TIMES.contains(&unit) => plain = plain + "t" + rest,
            () if SIZES.contains(&unit) => plain = plain + "B" + rest,
            () => plain.push_str(part),
        }
    }
    plain
}

/// What a command has printed, without what depends on the host.
pub fn printed(run: &Run) -> String {
    let mut text = format!("{}\n{}", run.out(), run.stderr);
    // Why nobody's memory goes to swap depends on the host.
    while let Some(at) = text.find(" (no roll-out here: ") {
        let end = text[at..].find(')').map_or(text.len(), |end| at + end + 1);
        text.replace_range(at..end, "");
    }
    text
}

/// Whether a line that is shown says why the status is not 0.
fn tells_an_error(line: &str, program: &str) -> bool {
    let message = line.strip_prefix(program).is_some_and(|rest| rest.starts_with(':'));
    message || line == "^C" || line.starts_with("Application ") && line.contains("exit")
}

/// The lines of a page that were not printed, and the others that were printed.
fn compare(shown: &[String], text: &str, user: &str) -> (Vec<String>, Vec<String>) {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let mut left: Vec<(String, String)> =
        lines.map(|line| (plain(line, user), line.to_owned())).collect();
    let mut missing = Vec::new();
    for line in shown.iter().filter(|l| !matches!(l.trim(), "" | "..." | "^C")) {
        let wanted = plain(line, user);
        match left.iter().position(|(one, _)| *one == wanted) {
            Some(at) => drop(left.remove(at)),
            None => missing.push(line.clone()),
        }
    }
    (missing, left.into_iter().map(|(_, line)| line).collect())
}

/// Whether a command only shows something.
fn only_shows(words: &[String]) -> bool {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    match word(0) {
        "apstat" | "psview" => true,
        "psmgr" => matches!(word(1), "show" | "log" | "counters"),
        "snflv" => words.iter().skip(1).all(|word| word.starts_with('-')),
        _ => false,
    }
}

struct Background {
    line: usize,
    command: String,
    shown: Vec<String>,
    running: Running,
}

/// One shell in one private instance, in which a page's commands are typed.
pub struct Session {
    instance: Instance,
    user: String,
    /// How long a command that only shows something is repeated.
    patience: Duration,
    background: Vec<Background>,
    /// Lines that a program in the background may print later.
    awaited: Vec<(usize, String)>,
    problems: Vec<String>,
}

impl Session {
    pub fn new(instance: Instance, patience: Duration) -> Session {
        let uid = nix::unistd::geteuid();
        let user = nix::unistd::User::from_uid(uid).ok().flatten().map(|user| user.name);
        Session {
            instance,
            user: user.unwrap_or_else(|| uid.to_string()),
            patience,
            background: Vec::new(),
            awaited: Vec::new(),
            problems: Vec::new(),
        }
    }

    fn command(&self, words: &[String]) -> Result<Command, String> {
        let (program, arguments) = words.split_first().ok_or("no command")?;
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.instance.bins.display());
        let mut folders = std::env::split_paths(&path);
        if !program.contains('/') && !folders.any(|folder| folder.join(program).is_file()) {
            return Err(format!("there is no {program} here"));
        }
        let mut command = self.instance.command(program, arguments);
        // (No pager and no colours: stdout is a pipe.)
        command.env("PATH", path).env("COLUMNS", "80").current_dir(self.instance.directory());
        Ok(command)
    }

    /// The rows of the applications that have not ended.
    fn rows(&self) -> Vec<serde_json::Value> {
        let run = self.instance.run("apstat", ["-a", "--json"]);
        let all: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap_or_default();
        all["applications"].as_array().cloned().unwrap_or_default()
    }

    fn last_apid(&self) -> u64 {
        self.rows().iter().filter_map(|row| row["apid"].as_u64()).max().unwrap_or(0)
    }

    /// Waits until what was started has posted its application, and for a moment for its place.
    fn wait_for_the_next(&self, before: u64, running: &mut Running) {
        let until = Instant::now() + self.patience;
        let mut patience = None;
        while Instant::now() < patience.unwrap_or(until) && running.runs() {
            let rows = self.rows();
            let mut new = rows.iter().filter(|row| row["apid"].as_u64() > Some(before));
            if let Some(row) = new.next() {
                patience.get_or_insert(Instant::now() + Duration::from_secs(2).min(self.patience));
                if row["state"] == "running" {
                    return;
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn problem(&mut self, step: &Step, what: impl std::fmt::Display) {
        self.problems.push(format!("line {}: {}: {what}", step.line, step.command));
    }

    /// Types one command. What it does that is not on the page is a problem.
    pub fn play(&mut self, step: &Step) {
        let (text, behind) = match step.command.strip_suffix(" &") {
            Some(text) => (text, true),
            None => (step.command.as_str(), false),
        };
        let words = sh_words(text);
        let command = words.as_ref().map_err(Clone::clone).and_then(|words| self.command(words));
        let (words, mut command) = match (words, command) {
            (Ok(words), Ok(command)) => (words, command),
            (_, Err(why)) | (Err(why), _) => return self.problem(step, why),
        };
        if behind {
            let before = self.last_apid();
            let mut running = Running::start(&mut command);
            self.wait_for_the_next(before, &mut running);
            let (line, command, shown) = (step.line, step.command.clone(), step.shown.clone());
            self.background.push(Background { line, command, shown, running });
            return;
        }
        let run = if step.shown.iter().any(|line| line == "^C") {
            let before = self.last_apid();
            let mut running = Running::start(&mut command);
            self.wait_for_the_next(before, &mut running);
            running.signal(2);
            running.wait(BOUND)
        } else if only_shows(&words) && !step.shown.is_empty() {
            let until = Instant::now() + self.patience;
            loop {
                let run = run(&mut command);
                let (missing, _) = compare(&step.shown, &printed(&run), &self.user);
                if missing.is_empty() || Instant::now() > until {
                    break run;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        } else {
            run(&mut command)
        };
        let told = step.shown.iter().any(|line| tells_an_error(line, &words[0]));
        if run.status != 0 && !told {
            self.problem(step, format!("status {}: {}", run.status, printed(&run).trim()));
            return;
        }
        if step.shown.is_empty() {
            return;
        }
        let (missing, others) = compare(&step.shown, &printed(&run), &self.user);
        if only_shows(&words) {
            for line in missing {
                self.problem(step, format!("is not printed: {line}\n{}", printed(&run)));
            }
        } else {
            self.awaited.extend(missing.into_iter().map(|line| (step.line, line)));
        }
        // Messages depend on the moment; what a command writes to its stdout does not.
        if !step.shown.iter().any(|line| line == "...") {
            let out = run.out();
            for line in others.iter().filter(|other| out.lines().any(|line| line == *other)) {
                self.problem(step, format!("is printed and not shown: {line}"));
            }
        }
    }

    /// Leaves the shell, and tells everything that was not as the page shows it.
    pub fn exit(mut self) -> Vec<String> {
        // What prints something of its own is waited for; the rest ends with the instance.
        let until = Instant::now() + self.patience;
        let rests = |row: &serde_json::Value| {
            let sleeps = row["command"].as_str().is_some_and(|c| c.starts_with("sleep"));
            sleeps && row["state"] != "ending" && row["kill_in_ns"].is_null()
        };
        while Instant::now() < until && !self.rows().iter().all(rests) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut ended: Vec<bool> = Vec::new();
        for one in &mut self.background {
            // A front end may end a moment after its application.
            let until = Instant::now() + Duration::from_millis(500);
            while one.running.runs() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            ended.push(!one.running.runs());
        }
        self.instance.end(15);
        let mut pool = String::new();
        for (one, ended) in std::mem::take(&mut self.background).into_iter().zip(ended) {
            let (line, command) = (one.line, one.command);
            let run = one.running.wait(BOUND);
            let program = command.split(' ').next().unwrap_or_default().to_owned();
            let told = one.shown.iter().any(|line| tells_an_error(line, &program));
            // (Those that a signal has ended were ended by apkill.)
            if ended && !told && (1..128).contains(&run.status) {
                let what = format!("status {}: {}", run.status, printed(&run).trim());
                self.problems.push(format!("line {line}: {command}: {what}"));
            }
            pool += &printed(&run);
            self.awaited.extend(one.shown.into_iter().map(|shown| (line, shown)));
        }
        let shown: Vec<String> = self.awaited.iter().map(|(_, line)| line.clone()).collect();
        let (missing, _) = compare(&shown, &pool, &self.user);
        for line in missing {
            let at = self.awaited.iter().find(|(_, one)| *one == line).map_or(0, |(at, _)| *at);
            self.problems.push(format!("line {at}: is not printed: {line}"));
        }
        self.problems
    }
}

/// Types all examples of a page in an instance, and tells what is not as the page shows it.
pub fn play(page: &str, instance: Instance, patience: Duration) -> Vec<String> {
    let steps = match examples(page) {
        Ok(steps) => steps,
        Err(why) => return vec![why],
    };
    let mut session = Session::new(instance, patience);
    for step in &steps {
        session.play(step);
    }
    session.exit()
}
