//! Manual pages: each command has a page with the flags that the command knows, no more, no fewer; and every
//! page is clean: it has the sections that it must have, and neither mandoc nor groff complains.

use crate::support::{binaries, skip};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What --help prints, on either stream.
fn help(arguments: &[&str]) -> String {
    let program = binaries().join(arguments[0]);
    let output =
        Command::new(program).args(&arguments[1..]).arg("--help").output().expect("it runs");
    String::from_utf8(output.stdout).expect("text")
        + &String::from_utf8(output.stderr).expect("text")
}

/// Flags in what --help prints: those at the beginnings of indented lines, and those of a usage in brackets. (What is
/// farther on the right, or not indented, is text that goes on.)
fn flags_of_help(text: &str) -> BTreeSet<String> {
    let mut flags = BTreeSet::new();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let has_flag =
        |line: &str| (1..=8).contains(&indent(line)) && line.trim_start().starts_with('-');
    let usage_alone = !text.lines().any(has_flag);
    for line in text.lines() {
        let is_flag = has_flag(line);
        let line = line.trim_start();
        if is_flag {
            flags.extend(flags_of_words(line));
        } else if usage_alone && (line.starts_with("usage:") || line.starts_with('[')) {
            let words = line.split_whitespace().map(|w| w.trim_matches(['[', ']']));
            flags.extend(words.filter(|w| w.starts_with("--")).map(str::to_owned));
        }
    }
    flags
}

/// The flags with which a line begins: `-n, --pes PES  the width`.
fn flags_of_words(line: &str) -> Vec<String> {
    let words = line.split_whitespace().take_while(|w| w.starts_with('-'));
    words
        .map(|w| w.trim_end_matches(',').split(['=', '[']).next().unwrap_or(w).to_owned())
        .collect()
}

/// Flags in a page: those with which a tagged paragraph begins.
fn flags_of_page(text: &str) -> BTreeSet<String> {
    let mut flags = BTreeSet::new();
    let mut tag = false;
    for line in text.lines() {
        if tag && let Some((".B" | ".BR" | ".BI" | ".RB", words)) = line.split_once(' ') {
            let words = words.replace("\\-", "-").replace("\\fI", "").replace("\\fR", "");
            flags.extend(flags_of_words(words.trim_start_matches('"')));
        }
        tag = line.starts_with(".TP") || line.starts_with(".TQ");
    }
    flags
}

#[track_caller]
fn check(page: &str, commands: &[&[&str]]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("man").join(page);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{page}: {e}"));
    let known: BTreeSet<String> = commands.iter().flat_map(|c| flags_of_help(&help(c))).collect();
    for command in commands {
        for line in help(command).lines() {
            assert!(line.chars().count() <= 80, "{command:?} --help: {line:?} is too wide");
        }
    }
    let written = flags_of_page(&text);
    let missing: Vec<_> = known.difference(&written).collect();
    assert!(missing.is_empty(), "{page} does not have {missing:?}");
    let unknown: Vec<_> = written.difference(&known).collect();
    assert!(unknown.is_empty(), "{page} has {unknown:?}, which the command does not know");
    assert!(!known.is_empty(), "{page}: nothing was compared");
}

#[test]
fn psched_8() {
    check(
        "psched.8",
        &[
            &["psched"],
            &["psched", "backup"],
            &["psched", "check"],
            &["psched", "replay"],
            &["psched", "restore"],
            &["psched", "start"],
            &["psched", "torture"],
        ],
    );
}

#[test]
fn psched_certs_8() {
    let commands = ["init", "host", "renew", "revoke", "show"];
    let commands = commands.map(|command| ["psched", "certs", command]);
    check("psched-certs.8", &commands.each_ref().map(|command| &command[..]));
}

#[test]
fn psched_simulate_8() {
    check("psched-simulate.8", &[&["psched", "simulate"]]);
}

/// What `psched torture` knows by name it names where the name is wrong.
#[test]
fn psched_8_has_every_fault_and_scenario() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/psched.8");
    let page = std::fs::read_to_string(path).expect("there").replace("\\-", "-");
    let (_, page) = page.split_once(".B --faults").expect("the option");
    let word = |line| -> Option<&str> {
        let words = <str>::strip_prefix(line, ".BR ").or(<str>::strip_prefix(line, ".B "))?;
        words.split_whitespace().next()
    };
    let named: BTreeSet<&str> = page.lines().filter_map(word).collect();
    for (option, some) in [("--faults", "strangers"), ("--scenario", "row-lost")] {
        let mut command = Command::new(binaries().join("psched"));
        let output = command.args(["torture", option, "no-such"]).output().expect("it runs");
        let said = String::from_utf8(output.stderr).expect("text");
        let (_, names) = said.split_once("expected one of ").expect("it names them");
        let names = names.lines().next().unwrap_or_default().split(", ");
        let missing: Vec<&str> = names.clone().filter(|name| !named.contains(name)).collect();
        assert!(missing.is_empty(), "psched.8 does not have {missing:?}");
        assert!(names.clone().any(|name| name == some), "{said}");
    }
}

/// It has no flags: what it says of waits and graces is as it is.
#[test]
fn psched_7_has_the_figures_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/psched.7");
    let page = std::fs::read_to_string(path).expect("there");
    let wait = psched::apinit::decide::TURN_WAIT.as_secs();
    let moment = psched::apshepherd::decide::LINGER.as_millis();
    for figure in [format!("within {wait} s"), format!("their {moment} ms")] {
        assert!(page.contains(&figure), "psched.7 does not say {figure}");
    }
}

#[test]
fn apinit_8() {
    check("apinit.8", &[&["apinit"]]);
}

#[test]
fn appmix_8() {
    check("appmix.8", &[&["appmix"]]);
}

#[test]
fn apshepherd_8() {
    check("apshepherd.8", &[&["apshepherd"]]);
}

#[test]
fn aprun_1() {
    check("aprun.1", &[&["aprun"]]);
}

#[test]
fn apstat_1() {
    check("apstat.1", &[&["apstat"]]);
}

#[test]
fn apkill_1() {
    check("apkill.1", &[&["apkill"]]);
}

#[test]
fn cpr_1() {
    check("cpr.1", &[&["cpr"]]);
}

#[test]
fn psview_1() {
    check("psview.1", &[&["psview"]]);
}

#[test]
fn snflv_8() {
    check("snflv.8", &[&["snflv"]]);
}

#[test]
fn psmgr_8() {
    let commands = [
        "show", "set", "reload", "drain", "resume", "down", "hold", "release", "migrate",
        "compact", "log", "counters", "record", "adopt", "purge",
    ];
    let commands = commands.map(|command| ["psmgr", command]);
    let mut all: Vec<&[&str]> = vec![&["psmgr"]];
    all.extend(commands.iter().map(|command| &command[..]));
    check("psmgr.8", &all);
    // And none is left out.
    let said = help(&["psmgr"]);
    let (_, known) = said.split_once("Commands:\n").expect("it lists them");
    let (known, _) = known.split_once("\n\n").expect("options follow");
    let known = known.lines().filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    assert_eq!(known.count(), commands.len() + 1, "help is one more");
}

/// mpirun is aprun; its page tells a few flags, and sends the reader to aprun(1).
#[test]
fn mpirun_1() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/mpirun.1");
    let text = std::fs::read_to_string(path).expect("there");
    assert!(text.contains("\\-np") && text.contains("aprun"), "{text}");
    for name in ["mpirun", "mpiexec"] {
        assert_eq!(flags_of_help(&help(&[name])), flags_of_help(&help(&["aprun"])), "{name}");
        assert!(text.contains(&format!(".B {name}\n")), "{name}");
    }
}

#[test]
fn flags_are_found() {
    let set = |words: &str| words.split(' ').map(str::to_owned).collect::<BTreeSet<String>>();
    let help = "Usage: x\n  -a, --all\n     All of them -b\n      --history [<N>]\n  -cc, --bind cpu|none\n";
    assert_eq!(flags_of_help(help), set("-a --all --history -cc --bind"));
    assert_eq!(flags_of_help("usage: x A --listen FD [--to FD,...]\n"), set("--listen --to"));
    let page = ".TP\n.B \\-a\n.TQ\n.B \\-\\-all\nAll but\n.B \\-x\n.TP\n.BI \\-\\-history \" N\"\n.TP\n.B x\n";
    assert_eq!(flags_of_page(page), set("-a --all --history"));
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("man")
}

/// The names and texts of all pages.
fn pages() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(folder()).expect("there").flatten();
    let mut pages: Vec<(String, String)> = entries
        .map(|entry| {
            let name = entry.file_name().into_string().expect("text");
            let text = std::fs::read_to_string(entry.path()).expect("text");
            (name, text)
        })
        .collect();
    pages.sort();
    assert!(pages.len() > 15, "{pages:?}");
    pages
}

/// Fails with all problems of all pages.
#[track_caller]
fn clean(problems: Vec<String>) {
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

/// What a formatter prints for a page, and what it complains about; none where it is not installed.
fn formatted(
    test: &str,
    program: &str,
    arguments: &[&str],
    page: &str,
) -> Option<(String, String)> {
    let mut command = Command::new(program);
    // (No colours and no emphasis but by overstriking.)
    command.args(arguments).arg(folder().join(page)).env("GROFF_NO_SGR", "1").stdin(Stdio::null());
    match command.output() {
        Ok(output) => {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            Some((text(&output.stdout), text(&output.stderr)))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip(test, &format!("there is no {program}"));
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

/// The groff that is needed writes for terminals: Debian's groff-base does.
const GROFF: [&str; 5] = ["-ww", "-man", "-Tutf8", "-rLL=78n", "-P-c"];

#[test]
fn mandoc_has_nothing_to_say() {
    let mut problems = Vec::new();
    for (name, _) in pages() {
        let test = "manuals::mandoc_has_nothing_to_say";
        let Some((out, err)) = formatted(test, "mandoc", &["-T", "lint"], &name) else { return };
        problems.extend((out + &err).lines().map(str::to_owned));
    }
    clean(problems);
}

#[test]
fn groff_has_nothing_to_say() {
    let mut problems = Vec::new();
    for (name, _) in pages() {
        let test = "manuals::groff_has_nothing_to_say";
        let Some((_, err)) = formatted(test, "groff", &GROFF, &name) else { return };
        problems.extend(err.lines().map(str::to_owned));
    }
    clean(problems);
}

/// The columns of a line that a terminal shows.
fn columns(line: &str) -> usize {
    let mut columns = 0usize;
    for c in line.chars() {
        match c {
            '\u{8}' => columns = columns.saturating_sub(1),
            _ => columns += 1,
        }
    }
    columns
}

#[test]
fn no_page_is_wider_than_a_terminal() {
    let mut problems = Vec::new();
    for (name, _) in pages() {
        let mandoc = &["-T", "utf8", "-O", "width=78"][..];
        for (program, arguments) in [("mandoc", mandoc), ("groff", &GROFF[..])] {
            let test = "manuals::no_page_is_wider_than_a_terminal";
            let Some((out, _)) = formatted(test, program, arguments, &name) else { return };
            assert!(out.lines().count() > 20, "{name}: {program} prints {out:?}");
            let wide = out.lines().filter(|line| columns(line) > 80);
            problems.extend(wide.map(|line| format!("{name}: {program}: {line}")));
        }
    }
    clean(problems);
}

#[test]
fn no_line_of_a_source_is_long() {
    let mut problems = Vec::new();
    for (name, text) in pages() {
        // (A row of the table of variables is one line, which another test compares.)
        let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with(".It Va "));
        let long = lines.filter(|(_, line)| line.len() > 80);
        problems.extend(long.map(|(at, line)| format!("{name}:{}: {line}", at + 1)));
    }
    clean(problems);
}

/// The heading of a section: `.SH SEE ALSO`, or `.Sh` in mdoc.
fn heading(line: &str) -> Option<&str> {
    let title = line.strip_prefix(".SH ").or(line.strip_prefix(".Sh "))?;
    Some(title.trim().trim_matches('"'))
}

/// A section of a page: its lines.
fn section<'a>(page: &'a str, title: &str) -> Vec<&'a str> {
    let mut lines = page.lines().skip_while(|line| heading(line) != Some(title));
    lines.next();
    lines.take_while(|line| heading(line).is_none()).collect()
}

/// The page that a line refers to: `.BR aprun (1),` is aprun.1, as are `.Xr aprun 1 ,` and
/// `.Sy aprun Ns Pq 1 ,` in mdoc. (mandoc complains about `.Xr` to a page that is not installed.)
fn referred(line: &str) -> Option<String> {
    let line = line.replace("\\-", "-");
    if let Some(line) = line.strip_prefix(".Sy ")
        && let Some((name, number)) = line.split_once(" Ns Pq ")
    {
        return Some(format!("{name}.{}", number.split(' ').next()?));
    }
    if let Some(line) = line.strip_prefix(".Xr ") {
        let mut words = line.split_whitespace();
        return Some(format!("{}.{}", words.next()?, words.next()?));
    }
    let line = line.strip_prefix(".BR ").or(line.strip_prefix(".RB "))?;
    let is_name = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic())
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
    };
    let mut words = line.split_whitespace();
    let name = words.find(is_name)?;
    let (number, _) = words.next()?.strip_prefix('(')?.split_once(')')?;
    number.parse::<u8>().ok().map(|number| format!("{name}.{number}"))
}

/// Pages of Linux, of its tools and of libraries to which pages of psched may refer: names, by section.
const OF_THE_SYSTEM: [(u8, &str); 6] = [
    (
        1,
        "bash column coredumpctl cp gdb gzip install journalctl jq kill mpicc mpiexec mv nice nohup perf ps rsync scp \
         screen script sed sh sqlite3 srun ssh \
         strace systemctl systemd tar taskset tmux watch",
    ),
    (
        2,
        "clock_gettime epoll_wait execve fcntl flock fork getrusage kill listen nanosleep poll ptrace select \
         sched_setaffinity setitimer setpriority setrlimit sigaction timerfd_create times waitpid",
    ),
    (3, "execvp shm_overview sigqueue"),
    (5, "core crontab logind.conf systemd.exec systemd.service systemd.unit proc sysctl.conf"),
    (
        7,
        "cgroups cpuset credentials kernel-command-line namespaces numa pid_namespaces sched signal \
         shm_overview time unix",
    ),
    (8, "criu numactl sysctl logrotate mount swapon update-alternatives useradd"),
];

fn is_of_the_system(page: &str) -> bool {
    let (name, number) = page.rsplit_once('.').expect("a section");
    let row = OF_THE_SYSTEM.iter().find(|(section, _)| section.to_string() == number);
    row.is_some_and(|(_, names)| names.split_whitespace().any(|one| one == name))
}

#[test]
fn every_page_has_its_sections() {
    let pages = pages();
    let names: BTreeSet<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
    let mut problems = Vec::new();
    for (name, text) in &pages {
        let (title, number) = name.rsplit_once('.').expect("a section");
        let title = title.to_uppercase();
        let (man, mdoc) = (format!(".TH {title} {number} 20"), format!(".Dt {title} {number}"));
        let is_head = |line: &str| {
            let line = line.replace("\\-", "-");
            line.starts_with(&man) || line == mdoc
        };
        if !text.lines().any(is_head) {
            problems.push(format!("{name}: does not begin with {man}YY-MM-DD"));
        }
        if section(text, "EXAMPLES").is_empty() && ["1", "8"].contains(&number) {
            problems.push(format!("{name}: has no EXAMPLES"));
        }
        let see = section(text, "SEE ALSO");
        if !see.iter().any(|line| referred(line).is_some()) {
            problems.push(format!("{name}: has no SEE ALSO"));
        }
        let unread = see.iter().filter(|l| !l.starts_with(".\\\"") && referred(l).is_none());
        problems.extend(unread.map(|line| format!("{name}: SEE ALSO: is no page: {line}")));
        for other in text.lines().filter_map(referred) {
            if !names.contains(other.as_str()) && !is_of_the_system(&other) {
                problems.push(format!("{name}: refers to {other}, which is unknown"));
            }
        }
        if see.iter().filter_map(|line| referred(line)).any(|other| other == *name) {
            problems.push(format!("{name}: SEE ALSO names the page itself"));
        }
    }
    clean(problems);
}

/// The values of an attribute in HTML.
fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!(" {name}=\"");
    html.split(&begin).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn the_pages_as_html_refer_to_each_other() {
    let test = "manuals::the_pages_as_html_refer_to_each_other";
    if formatted(test, "mandoc", &["-T", "lint"], "aprun.1").is_none() {
        return;
    }
    let to = tempfile::tempdir().expect("a folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/html/build");
    let output = Command::new(script).arg(to.path()).output().expect("it runs");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let index = to.path().join("index.html");
    assert_eq!(text(&output.stdout), format!("{}\n", index.display()), "{}", text(&output.stderr));
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));

    let html = |name: &str| std::fs::read_to_string(to.path().join(name)).unwrap_or_default();
    let of_index = html("index.html");
    let linked: BTreeSet<&str> = attributes(&of_index, "href").into_iter().collect();
    let mut problems = Vec::new();
    for (name, page) in pages() {
        let file = format!("{name}.html");
        if !linked.contains(file.as_str()) {
            problems.push(format!("index.html has no link to {file}"));
        }
        let text = html(&file);
        let links = attributes(&text, "href");
        for link in &links {
            let (other, part) = link.split_once('#').unwrap_or((link, ""));
            let there = match other {
                "" => text.clone(),
                _ if other.starts_with("https://man7.org/") => continue,
                other => html(other),
            };
            let found = part.is_empty() || attributes(&there, "id").contains(&part);
            if there.is_empty() || !found {
                problems.push(format!("{file}: the link {link} leads nowhere"));
            }
        }
        // What the page refers to is linked.
        let see = section(&page, "SEE ALSO").into_iter().filter_map(referred);
        for other in see.filter(|other| folder().join(other).is_file()) {
            if !links.contains(&format!("{other}.html").as_str()) {
                problems.push(format!("{file}: has no link to {other}"));
            }
        }
        if !links.contains(&"index.html") {
            problems.push(format!("{file}: has no link to the index"));
        }
    }
    // Each page says in the index what it is about.
    assert!(!of_index.contains("<dd></dd>"), "{of_index}");
    clean(problems);
}

#[test]
fn pages_are_looked_at() {
    assert_eq!(columns("N\u{8}NA\u{8}A_\u{8}M"), 3);
    assert_eq!(referred(".BR psched\\-policy (7),").as_deref(), Some("psched-policy.7"));
    assert_eq!(referred(".RB ( apstat (1)).").as_deref(), Some("apstat.1"));
    assert_eq!(referred(".BR \\-n (4)"), None);
    assert_eq!(referred(".BR kill_grace of").as_deref(), None);
    assert_eq!(referred(".Xr psched.yaml 5 ,").as_deref(), Some("psched.yaml.5"));
    assert_eq!(referred(".Sy psmgr Ns Pq 8").as_deref(), Some("psmgr.8"));
    assert_eq!(referred(".Sy not").as_deref(), None);
    assert!(is_of_the_system("signal.7") && !is_of_the_system("signal.2"));
    assert_eq!(attributes("<a class=\"x\" href=\"y\"><i href=\"\">", "href"), ["y", ""]);
    assert_eq!(section(".SH A\nx\n.SH SEE ALSO\ny\nz\n.SH C\n", "SEE ALSO"), ["y", "z"]);
}
