//! EXAMPLES of every manual page: each command is typed as it stands there, and prints what stands there.
//!
//! [`crate::support::transcripts`] has the form. psched-tutorial(7) has no such section: `tutorial.rs` types
//! all of it, as `hosts_manual.rs` does with psched-hosts(7).

use crate::support::transcripts::{Step, examples, plain, play, sh_words};
use crate::support::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// How long a command that only shows something is repeated.
const PATIENCE: Duration = Duration::from_secs(20);

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("man")
}

fn four_nodes() -> Instance {
    let words = ["--nodes", "4", "--processors", "2"];
    words.into_iter().fold(Plan::new().shared(), Plan::arg).start()
}

#[track_caller]
fn check(name: &str) {
    let page = std::fs::read_to_string(folder().join(name)).expect("there");
    let steps = examples(&page).unwrap_or_else(|why| panic!("{name}: {why}"));
    if steps.is_empty() {
        return;
    }
    let problems = play(&page, four_nodes(), PATIENCE);
    assert!(problems.is_empty(), "{name}:\n{}", problems.join("\n"));
}

/// A test for each page, and the list of all.
macro_rules! pages {
    ($($test:ident: $page:literal),* $(,)?) => {
        const PAGES: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $test() {
                check($page);
            }
        )*
    };
}

pages! {
    apinit_8: "apinit.8",
    apkill_1: "apkill.1",
    aprun_1: "aprun.1",
    apshepherd_8: "apshepherd.8",
    apstat_1: "apstat.1",
    cpr_1: "cpr.1",
    mpirun_1: "mpirun.1",
    psched_7: "psched.7",
    psched_8: "psched.8",
    psched_internals_7: "psched-internals.7",
    psched_policy_7: "psched-policy.7",
    psched_security_7: "psched-security.7",
    psched_simulate_8: "psched-simulate.8",
    psched_yaml_5: "psched.yaml.5",
    psmgr_8: "psmgr.8",
    psview_1: "psview.1",
    snflv_8: "snflv.8",
}

/// Pages that have no test of their own here.
#[test]
fn other_pages() {
    let names = listing(&folder()).into_iter().filter_map(|name| name.into_string().ok());
    let there: BTreeSet<String> = names.collect();
    let own: BTreeSet<String> = PAGES.iter().map(|page| (*page).to_owned()).collect();
    assert!(own.is_subset(&there), "{own:?} in {there:?}");
    there.difference(&own).for_each(|name| check(name));
}

/// What the test of a page is to notice, and what it is to pass.
const FIXTURE: &str = r#".TH FIXTURE 1
.SH DESCRIPTION
.nf
$ not typed
.fi
.SH EXAMPLES
Some that are right:
.PP
.RS
.nf
$ aprun \-n 2 echo "a  b" \(aqc d\(aq
a  b c d
a  b c d
\&...
$ aprun \-n 8 sleep 100 &
$ apstat
Total placed applications: 1
\&...
$ apkill 2
apkill: \&...
.fi
.RE
.PP
.nf
# systemctl stop nothing that is run
and what it prints
.fi
And some that are wrong:
.nf
$ aprun \-n 1 false
$ aprun \-n 1 echo one
two
\&...
$ apstat \-\-nosuch
$ aprun \-\-nosuch hostname &
$ echo one
$ echo one | cat
$ nosuch
$ echo one two
one
$ apstat \-n
nothing of the kind
\&...
.fi
.SH SEE ALSO
"#;

#[test]
fn what_is_not_as_the_page_shows_is_noticed() {
    // (The line of apkill is only there to be read by people.)
    let page = FIXTURE.replace("apkill: \\&...\n", "");
    let problems = play(&page, four_nodes(), Duration::from_secs(5));
    let expected = [
        "aprun -n 1 false: status 1",
        "apstat --nosuch: status",
        "echo one | cat: there is no shell for |",
        "nosuch: there is no nosuch here",
        "echo one two: is printed and not shown: one two",
        "apstat -n: is not printed: nothing of the kind",
        "aprun --nosuch hostname &: status",
        "is not printed: two",
        "is not printed: one",
    ];
    let all = problems.join("\n");
    for one in expected {
        let found = problems.iter().filter(|problem| {
            problem
                .split_once(": ")
                .is_some_and(|(at, what)| at.starts_with("line ") && what.starts_with(one))
        });
        assert_eq!(found.count(), 1, "{one}\n{all}");
    }
    assert_eq!(problems.len(), expected.len(), "{all}");
}

#[test]
fn commands_and_lines_are_found() {
    let steps = examples(FIXTURE).expect("no macro");
    let first = Step {
        line: 11,
        command: "aprun -n 2 echo \"a  b\" 'c d'".into(),
        shown: ["a  b c d", "a  b c d", "..."].map(str::to_owned).into(),
    };
    assert_eq!(steps[0], first);
    assert_eq!(steps.len(), 13);
    assert_eq!(steps[3].shown.len(), 1, "what is behind # is left out");
    let wrong = ".SH EXAMPLES\n.nf\n$ a\n.B x\n.fi\n";
    assert!(examples(wrong).is_err_and(|why| why.starts_with("line 4: ")));
    assert!(examples(".SH EXAMPLES\n$ a\n").is_err_and(|why| why.starts_with("line 2: ")));
    let mdoc = ".Sh EXAMPLES\n.Bd -literal -offset indent\n$ a\nb\n.Ed\n$\n.Sh FILES\n";
    let step = Step { line: 3, command: "a".into(), shown: vec!["b".into()] };
    assert_eq!(examples(mdoc), Ok(vec![step]));
}

#[test]
fn words_are_those_of_sh() {
    let words = |text| sh_words(text).map(|words| words.join("|"));
    assert_eq!(
        words(r#"a  -b 'c  $d' "e 'f' \"g\"" h\ i ''"#),
        Ok(r#"a|-b|c  $d|e 'f' "g"|h i|"#.into())
    );
    assert_eq!(words("apstat -n   # who is where"), Ok("apstat|-n".into()));
    for wrong in ["a | b", "a > b", "echo $a", "echo \"$a\"", "a 'b", "a; b", "a && b"] {
        assert!(words(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn numbers_units_and_names_are_not_compared() {
    let same = |one: &str, other: &str| plain(one, "joe") == plain(other, "joe");
    assert!(same("  3 joe   8 0.9s", "12 anne 64  850ms"));
    assert!(same("took 1,944 KiB (0.1 s)", "took 2.5 MiB (12 ms)"));
    assert!(!same("frozen 0.9s", "runs"));
    assert!(!same("3 nodes", "3 notes"));
    assert!(!same("3 s", "3 KiB"));
}
