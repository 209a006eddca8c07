//! The lines with which aprun tells how an application ended. Scripts that were written for ALPS find its words;
//! the last line is ALPS's with `--closing alps` only, for people want units.
//!
//! ```text
//! [NID 00002] 2026-11-21 22:21:27 Apid 12: PE 5 died: Segmentation fault (signal 11); initiated application termination
//! Application 12 exit signals: Segmentation fault
//! Application 12 took 5.3 s (4.0 s without its turn): user 0.4 s, system 1.3 s, peak memory 9.3M
//! ```
//!
//! A program that ended well has said all that its user wants to know, so nothing is added to it unless the user asks
//! ([`Detail`]). What psched ended in consequence of something else is not counted among the ends, unless there
//! is nothing else to tell (apkill, say).

use crate::apteam::Apid;
use crate::apteam::ending::{
    Cause, EndCount, HostEnd, NO_INTERPRETER, PeEnd, STATUS_NOT_FOUND, TERMINATION, Usage,
    signal_name,
};
use crate::machine::{Nid, nids_text};
use crate::variables::units::{about, format_duration};
use std::time::Duration;

/// How an application ended, as psched says it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Ended {
    /// aprun's exit status.
    pub status: u8,
    /// The rest, of all hosts.
    pub end: HostEnd,
    /// The line about what ended it has been shown already, when it happened.
    pub told: bool,
    /// What psched calls the user who has ended it, if a user has; empty: the user has no name, or it is not known.
    pub by_name: String,
    /// The host of the node that has lost the application, or another host than aprun's on which a
    /// PE could not be started; empty: neither, or it has no name.
    pub host: String,
    /// That host got no copy of the program (`-b`).
    pub no_copy: bool,
}

/// How the last line tells times and memory (`--closing`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Form {
    /// With units: `took 5.3 s: user 0.4 s, system 1.3 s, peak memory 9.3M`.
    #[default]
    Plain,
    /// As ALPS does: `resources: utime ~0s, stime ~1s, Rss ~9496, inblocks ~11665, outblocks ~19014`.
    Alps,
}

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Detail {
    /// Only what ended the application before its time, and what was lost (`-q`).
    Little,
    /// How PEs ended, if the exit status is not 0, and what they have used then.
    #[default]
    Usual,
    /// The last line also of an application that ended well (`-v`, `--closing`).
    All,
}

/// A closing line: what it tells, and who tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// What happened on a node, with its number and the time in front.
    OfNode(String),
    /// What the front end says, behind the name of its program.
    OfProgram(String),
    /// What is said of this application as a whole, behind its number.
    OfApplication(Apid, String),
}

impl Line {
    /// As it is shown by this program. `inside`: the application tells of its end in the same words, of which
    /// those of what runs inside it differ (`aprun --inside`).
    pub fn words(&self, program: &str, inside: bool) -> String {
        match self {
            Line::OfNode(text) => text.clone(),
            Line::OfProgram(text) => format!("{program}: {text}"),
            Line::OfApplication(apid, text) if inside => {
                format!("Inside application {apid} {text}")
            }
            Line::OfApplication(apid, text) => format!("Application {apid} {text}"),
        }
    }
}

/// All closing lines, for stderr. `stamp` is the local time of the decisive end.
pub fn lines(ended: &Ended, stamp: &str, detail: Detail, form: Form) -> Vec<Line> {
    let quiet = detail == Detail::Little;
    let apid = ended.end.key.apid;
    let cause = ended.end.first.as_ref().map(|d| &d.cause);
    let mut lines: Vec<Line> = Vec::new();
    if let Some(cause) = cause
        && (cause.ends_application() || !quiet)
        && !ended.told
    {
        lines.push(cause_line(apid, cause, stamp, ended));
    }
    if !ended.end.launched {
        return lines;
    }
    lines.extend(lost_line(apid, &ended.end.lost));
    if quiet {
        return lines;
    }
    if ended.end.leftovers > 0 {
        lines.push(leftovers_line(apid, ended.end.leftovers));
    }
    lines.extend(exit_lines(apid, &ended.end.ends));
    if ended.status != 0 || detail == Detail::All {
        lines.push(match form {
            Form::Plain => took_line(&ended.end),
            Form::Alps => resources_line(apid, &ended.end.usage),
        });
    }
    lines
}

/// Signals by which programs die with a core: SIGQUIT, ILL, ABRT, BUS, FPE, SEGV, XCPU and SYS.
const CORE_SIGNALS: [i32; 8] = [3, 4, 6, 7, 8, 11, 24, 31];

/// `Application N ...` about the files of `-g`, where there may be some.
pub fn stacks_line(ended: &Ended) -> Option<Line> {
    let apid = ended.end.key.apid;
    let core = |end: &EndCount| matches!(end.end, PeEnd::Signal(s) if CORE_SIGNALS.contains(&s));
    ended.end.ends.iter().any(core).then(|| {
        let text = format!(
            "left the stacks of PEs that died by a signal in its working directory on their hosts, in \
             files PROGRAM.{apid}.RANK.stack"
        );
        Line::OfApplication(apid, text)
    })
}

/// `Application N ...` about nodes that could not tell how their part ended.
fn lost_line(apid: Apid, lost: &[Nid]) -> Option<Line> {
    let nodes = nids_text(lost.iter().copied());
    (!lost.is_empty()).then(|| {
        let text = format!(
            "lost its apshepherd on {nodes}: the last output of its PEs there may be missing, and \
             their exit statuses are unknown"
        );
        Line::OfApplication(apid, text)
    })
}

/// A line about something on a node, and when it happened.
pub fn of_node(nid: Nid, stamp: &str, text: &str) -> String {
    format!("[NID {:05}] {stamp} {text}", nid.0)
}

/// The line about what decided the end.
fn cause_line(apid: Apid, cause: &Cause, stamp: &str, ended: &Ended) -> Line {
    let Ended { by_name, host, no_copy, status, .. } = ended;
    let on =
        |nid: Nid, text: String| Line::OfNode(of_node(nid, stamp, &format!("Apid {apid}: {text}")));
    if let Some((nid, text)) = cause.notice() {
        return on(nid, text);
    }
    let ended = TERMINATION;
    match cause {
        Cause::PeExit { rank, nid, code } => on(*nid, format!("PE {rank} exited with code {code}")),
        Cause::LaunchFailed { rank, nid, errno, text, .. } => {
            let (there, cure) = match host.is_empty() {
                true => (String::new(), ""),
                // (An interpreter is not sent with the program.)
                false if *no_copy && *status == STATUS_NOT_FOUND && *errno != NO_INTERPRETER => (
                    format!(" on host {host}"),
                    ": leave out -b, and aprun sends the program there",
                ),
                false => (format!(" on host {host}"), ""),
            };
            on(*nid, format!("PE {rank} could not be started{there}, so no PE runs: {text}{cure}"))
        }
        Cause::ShepherdLost { nid, text, .. } => {
            on(*nid, format!("its apshepherd was lost: {text}{ended}"))
        }
        Cause::NodeLost { nid, text } => {
            let host = if host.is_empty() { String::new() } else { format!(" (host {host})") };
            on(*nid, format!("the node{host} lost the application: {text}{ended}"))
        }
        // An aprun that can say so has not died.
        Cause::FrontGone => {
            Line::OfProgram(format!("Apid {apid}: contact with this aprun was lost{ended}"))
        }
        Cause::PeSignal { .. }
        | Cause::Abort { .. }
        | Cause::NoFinalize { .. }
        | Cause::Garbage { .. }
        | Cause::NotMet { .. }
        | Cause::SpawnedEnd { .. }
        | Cause::OverMemory { .. }
        | Cause::HostMemory { .. }
        | Cause::Kill { .. }
        | Cause::TimeLimit { .. }
        | Cause::StdoutClosed
        | Cause::NoRecord
        | Cause::Purge { .. }
        | Cause::Checkpointed { .. } => {
            let name = |_| (!by_name.is_empty()).then(|| by_name.to_owned());
            Line::OfProgram(format!("Apid {apid}: {}{ended}", cause.words(name)))
        }
    }
}

/// `Application N exit codes: ...` and `Application N exit signals: ...`, where there are any.
pub fn exit_lines(apid: Apid, ends: &[EndCount]) -> Vec<Line> {
    let bad = |consequence: bool| {
        let bad: Vec<PeEnd> = ends
            .iter()
            .filter(|e| e.consequence == consequence && e.count > 0 && e.end != PeEnd::Exit(0))
            .map(|e| e.end)
            .collect();
        Some(bad).filter(|b| !b.is_empty())
    };
    let ends = bad(false).or_else(|| bad(true)).unwrap_or_default();
    let codes: Vec<String> = ends
        .iter()
        .filter_map(|e| match e {
            PeEnd::Exit(code) => Some(code.to_string()),
            PeEnd::Signal(_) => None,
        })
        .collect();
    let signals: Vec<String> = ends
        .iter()
        .filter_map(|e| match e {
            PeEnd::Signal(n) => Some(signal_name(*n).map_or(format!("signal {n}"), str::to_owned)),
            PeEnd::Exit(_) => None,
        })
        .collect();
    let line = |what: &str, ends: Vec<String>| {
        let text = || format!("exit {what}: {}", ends.join(", "));
        (!ends.is_empty()).then(|| Line::OfApplication(apid, text()))
    };
    line("codes", codes).into_iter().chain(line("signals", signals)).collect()
}

/// `Application N took ...`: the time from its start to its end, the processor time of all its processes, and the
/// largest resident set of a PE.
pub fn took_line(end: &HostEnd) -> Line {
    let without = match end.frozen {
        frozen if frozen >= SHOWN_MIN => format!(" ({} without its turn)", span(frozen)),
        _ => String::new(),
    };
    let Usage { utime, stime, max_rss_kib, .. } = end.usage;
    let text = format!(
        "took {}{without}: user {}, system {}, peak memory {}",
        span(end.run.saturating_add(end.frozen)),
        span(utime),
        span(stime),
        about(max_rss_kib.saturating_mul(1024))
    );
    Line::OfApplication(end.key.apid, text)
}

/// The least time without a turn that is told of.
const SHOWN_MIN: Duration = Duration::from_millis(50);

/// A span of time: to the millisecond below one second, to the tenth of a second below 100, else in whole
/// seconds, as in `0.016 s`, `5.3 s`, `2h3m20s`.
fn span(time: Duration) -> String {
    match time.as_millis() {
        ms @ ..1_000 => format!("0.{ms:03} s"),
        ms @ ..99_950 => format!("{}.{} s", (ms + 50) / 1_000, (ms + 50) % 1_000 / 100),
        _ => format_duration(Duration::from_secs((time + Duration::from_millis(500)).as_secs())),
    }
}

/// `Application N resources: ...`, as ALPS tells them.
pub fn resources_line(apid: Apid, usage: &Usage) -> Line {
    // ALPS gives whole seconds, rounded.
    let seconds = |time: Duration| (time + Duration::from_millis(500)).as_secs();
    let text = format!(
        "resources: utime ~{}s, stime ~{}s, Rss ~{}, inblocks ~{}, outblocks ~{}",
        seconds(usage.utime),
        seconds(usage.stime),
        usage.max_rss_kib,
        usage.inblocks,
        usage.outblocks
    );
    Line::OfApplication(apid, text)
}

/// The line about processes that the PEs left behind.
pub fn leftovers_line(apid: Apid, leftovers: u32) -> Line {
    let (what, were) = if leftovers == 1 { ("process", "was") } else { ("processes", "were") };
    Line::OfApplication(apid, format!("left {leftovers} {what} behind, which {were} ended"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apteam::Key;
    use crate::apteam::ending::Decisive;
    use crate::apteam::fault::Fault;

    fn ended(cause: Option<Cause>, ends: &[(PeEnd, u32, bool)]) -> Ended {
        let end = HostEnd {
            key: Key { apid: Apid(12), ..Key::default() },
            launched: true,
            first: cause.map(|cause| Decisive { at_ns: 5, cause }),
            ends: ends
                .iter()
                .map(|(end, count, consequence)| EndCount {
                    end: *end,
                    count: *count,
                    consequence: *consequence,
                })
                .collect(),
            usage: Usage {
                utime: Duration::from_millis(400),
                stime: Duration::from_millis(1_300),
                max_rss_kib: 9496,
                inblocks: 11665,
                outblocks: 19014,
            },
            run: Duration::from_millis(1_300),
            frozen: Duration::from_millis(4_000),
            ..HostEnd::default()
        };
        Ended {
            status: end.status(),
            end,
            told: false,
            by_name: String::new(),
            host: String::new(),
            no_copy: false,
        }
    }

    fn in_words(lines: Vec<Line>) -> Vec<String> {
        lines.iter().map(|line| line.words("aprun", false)).collect()
    }

    fn shown(ended: &Ended, stamp: &str, quiet: bool) -> Vec<String> {
        let detail = if quiet { Detail::Little } else { Detail::All };
        in_words(lines(ended, stamp, detail, Form::Plain))
    }

    /// Another program has its name in front, and what runs inside an application is told from that.
    #[test]
    fn who_tells_it() {
        let said = Line::OfProgram("Apid 12: ended".into());
        assert_eq!(said.words("cpr", false), "cpr: Apid 12: ended");
        let of_all = Line::OfApplication(Apid(12), "exit codes: 3".into());
        assert_eq!(of_all.words("aprun", true), "Inside application 12 exit codes: 3");
        assert_eq!(of_all.words("aprun", false), "Application 12 exit codes: 3");
    }

    const TOOK: &str = "Application 12 took 5.3 s (4.0 s without its turn): user 0.400 s, system 1.3 s, \
                        peak memory 9.3M";
    const STAMP: &str = "2026-11-21 22:21:27";

    #[test]
    fn a_good_end() {
        let good = ended(None, &[(PeEnd::Exit(0), 4, false)]);
        assert_eq!(shown(&good, STAMP, false), [TOOK]);
        assert!(shown(&good, STAMP, true).is_empty());
        let usual = |ended: &Ended| in_words(lines(ended, STAMP, Detail::Usual, Form::Plain));
        assert!(usual(&good).is_empty());
        // What is left behind is news, and so is a bad end.
        let mut behind = good.clone();
        behind.end.leftovers = 1;
        assert_eq!(usual(&behind), ["Application 12 left 1 process behind, which was ended"]);
        let bad = ended(
            Some(Cause::PeExit { rank: 1, nid: Nid(4), code: 3 }),
            &[(PeEnd::Exit(0), 3, false), (PeEnd::Exit(3), 1, false)],
        );
        assert_eq!(usual(&bad), shown(&bad, STAMP, false));
    }

    /// What scripts read that were written for ALPS.
    #[test]
    fn in_alps_s_form() {
        let good = ended(None, &[(PeEnd::Exit(0), 4, false)]);
        let alps = "Application 12 resources: utime ~0s, stime ~1s, Rss ~9496, inblocks ~11665, outblocks ~19014";
        assert_eq!(in_words(lines(&good, STAMP, Detail::All, Form::Alps)), [alps]);
    }

    #[test]
    fn times_have_a_unit() {
        let shown = [0, 16, 999, 1_000, 5_349, 99_949, 99_950, 7_400_499]
            .map(|ms| span(Duration::from_millis(ms)));
        let text =
            ["0.000 s", "0.016 s", "0.999 s", "1.0 s", "5.3 s", "99.9 s", "1m40s", "2h3m20s"];
        assert_eq!(shown, text);
    }

    /// A few milliseconds of another's turn are no news.
    #[test]
    fn what_had_its_turn_all_the_time() {
        let mut good = ended(None, &[(PeEnd::Exit(0), 4, false)]);
        good.end.frozen = Duration::from_millis(49);
        assert_eq!(
            shown(&good, STAMP, false),
            ["Application 12 took 1.3 s: user 0.400 s, system 1.3 s, peak memory 9.3M"]
        );
    }

    #[test]
    fn an_exit_code_does_not_end_the_others() {
        let cause = Cause::PeExit { rank: 1, nid: Nid(4), code: 127 };
        let bad = ended(Some(cause), &[(PeEnd::Exit(0), 3, false), (PeEnd::Exit(127), 1, false)]);
        assert_eq!(
            shown(&bad, STAMP, false),
            [
                "[NID 00004] 2026-11-21 22:21:27 Apid 12: PE 1 exited with code 127",
                "Application 12 exit codes: 127",
                TOOK
            ]
        );
        assert!(shown(&bad, STAMP, true).is_empty());
    }

    #[test]
    fn a_death_and_its_consequences() {
        let cause = Cause::PeSignal { rank: 5, nid: Nid(2), signal: 11 };
        let bad =
            ended(Some(cause), &[(PeEnd::Signal(11), 1, false), (PeEnd::Signal(15), 7, true)]);
        let died = "[NID 00002] 2026-11-21 22:21:27 Apid 12: PE 5 died: Segmentation fault \
                    (signal 11); initiated application termination";
        assert_eq!(
            shown(&bad, STAMP, false),
            [died, "Application 12 exit signals: Segmentation fault", TOOK]
        );
        assert_eq!(shown(&bad, STAMP, true), [died]);
        // Shown when it happened: not again.
        let told = Ended { told: true, ..bad };
        assert!(shown(&told, STAMP, true).is_empty());
    }

    #[test]
    fn apkill_and_leftovers() {
        let cause = Cause::Kill { signal: 9, uid: 1000 };
        let mut bad = ended(Some(cause), &[(PeEnd::Signal(9), 2, true)]);
        bad.end.leftovers = 3;
        assert_eq!(
            shown(&bad, STAMP, false),
            [
                "aprun: Apid 12: killed by user 1000: Killed (signal 9); initiated application \
                 termination",
                "Application 12 left 3 processes behind, which were ended",
                "Application 12 exit signals: Killed",
                TOOK
            ]
        );
    }

    #[test]
    fn users_are_named() {
        for (cause, line) in [
            (
                Cause::Kill { signal: 15, uid: 1003 },
                "aprun: Apid 12: killed by carol: Terminated (signal 15); initiated application \
                 termination",
            ),
            (
                Cause::Checkpointed { uid: 1003 },
                "aprun: Apid 12: checkpointed and ended by carol (cpr -k); initiated application \
                 termination",
            ),
        ] {
            let ended = Ended { by_name: "carol".to_owned(), ..ended(Some(cause), &[]) };
            assert_eq!(shown(&ended, STAMP, true), [line]);
        }
    }

    #[test]
    fn a_lost_host_is_named() {
        let cause = Cause::NodeLost { nid: Nid(3), text: "its host was restarted".to_owned() };
        for (host, named) in [("n3", "the node (host n3)"), ("", "the node")] {
            let ended = Ended { host: host.to_owned(), ..ended(Some(cause.clone()), &[]) };
            let line = format!(
                "[NID 00003] {STAMP} Apid 12: {named} lost the application: its host was restarted; initiated \
                 application termination"
            );
            assert_eq!(shown(&ended, STAMP, true), [line]);
        }
    }

    #[test]
    fn taken_for_dead() {
        let mut end = ended(Some(Cause::FrontGone), &[]);
        let line =
            "aprun: Apid 12: contact with this aprun was lost; initiated application termination";
        assert_eq!(shown(&end, STAMP, true), [line]);
        end.told = true;
        assert!(shown(&end, STAMP, true).is_empty());
    }

    #[test]
    fn what_could_not_be_told_is_said_even_where_little_is() {
        let cause = Cause::PeExit { rank: 0, nid: Nid(0), code: 3 };
        let mut part = ended(Some(cause), &[(PeEnd::Exit(3), 1, false)]);
        part.end.lost = vec![Nid(1), Nid(2)];
        let lost = "Application 12 lost its apshepherd on NIDs 1-2: the last output of its PEs there \
                    may be missing, and their exit statuses are unknown";
        assert_eq!(shown(&part, STAMP, true), [lost]);
        assert_eq!(shown(&part, STAMP, false)[1..], [lost, "Application 12 exit codes: 3", TOOK]);
    }

    #[test]
    fn several_codes_and_signals() {
        let counts = [
            (PeEnd::Exit(2), 1, false),
            (PeEnd::Exit(7), 2, false),
            (PeEnd::Signal(9), 1, false),
            (PeEnd::Signal(40), 1, false),
        ];
        let all = ended(None, &counts);
        assert_eq!(
            in_words(exit_lines(Apid(3), &all.end.ends)),
            ["Application 3 exit codes: 2, 7", "Application 3 exit signals: Killed, signal 40"]
        );
    }

    #[test]
    fn stacks_are_named_where_some_may_be() {
        let line = |end| stacks_line(&ended(None, &[(PeEnd::Exit(0), 2, false), (end, 1, false)]));
        assert_eq!(line(PeEnd::Signal(9)), None);
        assert_eq!(line(PeEnd::Exit(139)), None);
        let text = in_words(line(PeEnd::Signal(11)).into_iter().collect());
        let apid = ended(None, &[]).end.key.apid;
        assert!(text[0].ends_with(&format!("in files PROGRAM.{apid}.RANK.stack")), "{text:?}");
    }

    #[test]
    fn what_never_ran_used_nothing() {
        let cause = Cause::LaunchFailed {
            rank: 0,
            nid: Nid(1),
            errno: 2,
            text: "./a.out: no such file".to_owned(),
            fault: Fault::User,
        };
        let mut never = ended(Some(cause), &[]);
        never.end.launched = false;
        assert_eq!(
            shown(&never, STAMP, false),
            ["[NID 00001] 2026-11-21 22:21:27 Apid 12: PE 0 could not be started, so no PE runs: \
              ./a.out: no such file"]
        );
        assert_eq!(never.status, 127);
        // Of another host than aprun's the name is said, and why the program may be missing there.
        (never.status, never.host) = (127, "h1".to_owned());
        let line = "[NID 00001] 2026-11-21 22:21:27 Apid 12: PE 0 could not be started on host h1, so no PE runs: \
                    ./a.out: no such file";
        assert_eq!(shown(&never, STAMP, false), [line]);
        never.no_copy = true;
        let cure = format!("{line}: leave out -b, and aprun sends the program there");
        assert_eq!(shown(&never, STAMP, false), [cure]);
        let no_interpreter = |cause: &mut Cause| {
            if let Cause::LaunchFailed { errno, .. } = cause {
                *errno = NO_INTERPRETER;
            }
            assert_eq!(cause.status(), 127);
        };
        let first = never.end.first.as_mut();
        first.into_iter().for_each(|first| no_interpreter(&mut first.cause));
        assert_eq!(shown(&never, STAMP, false), [line]);
        never.status = 126;
        assert_eq!(shown(&never, STAMP, false), [line]);
    }
}
