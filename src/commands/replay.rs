//! `psched replay`: what psched was told, and what it decided on that, out of a recording.
//!
//! The steps are read one after the other, and each is given to the scheduler that the recording begins with. What
//! that decides is what the daemon decided, as the fingerprint in the recording confirms; a psched of another
//! release may decide otherwise, and then it is said.

use super::question::ended;
use crate::apteam::Apid;
use crate::apteam::posting::{Owner, Posting, cut};
use crate::apteam::protocol::node::joined;
use crate::apteam::record::Apteam;
use crate::apteam::struck_out::struck_out;
use crate::console::table;
use crate::machine::nids_text;
use crate::psched::decide::{Effect, Event, Looked, Record, Scheduler};
use crate::psched::drive::recorder::form::Reader;
use crate::psched::drive::recorder::{Gave, Step, Told};
use crate::steering::steers;
use clap::Args;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

/// The longest text of a line that is shown, in bytes: `--json` has all of it.
const TEXT_MAX: usize = 400;

/// Show what psched decided on what it was told, from a recording
#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// The recording: of psmgr record, or of the state directory
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// As JSON: a line for each step
    #[arg(long)]
    json: bool,
}

/// Why it does not go on.
enum Stopped {
    /// The reader of the output has closed it.
    NoReader,
    Because(String),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Stopped {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Stopped::NoReader,
            _ => Stopped::Because(format!("can't write standard output: {error}")),
        }
    }
}

/// Runs `psched replay`, and gives the status to exit with.
pub fn run(args: &ReplayArgs) -> ExitCode {
    let named = |text: String| format!("{}: {text}", args.file.display());
    let end = match File::open(&args.file) {
        Ok(file) => {
            let mut out = BufWriter::new(io::stdout().lock());
            let end = replay(BufReader::new(file), args.json, &mut out);
            // (What was found before an error is shown.)
            end.and(out.flush().map_err(Stopped::from))
        }
        Err(error) => Err(Stopped::Because(format!("can't be read: {error}"))),
    };
    match end {
        Ok(()) | Err(Stopped::NoReader) => ExitCode::SUCCESS,
        Err(Stopped::Because(text)) => ended("psched replay", Err(vec![named(text)])),
    }
}

fn replay(from: impl BufRead, json: bool, out: &mut impl Write) -> Result<(), Stopped> {
    // (A text of the file's may be in it.)
    let because = |text: &dyn ToString| Stopped::Because(one_line(text.to_string()));
    let opened = catch_unwind(AssertUnwindSafe(|| Reader::open(from)));
    let Ok(opened) = opened else {
        let text = "its first state is impossible: the recording is damaged, or of another release";
        return Err(Stopped::Because(text.into()));
    };
    let (steps, mut scheduler) = opened.map_err(|error| because(&error))?;
    let header = steps.header().clone();
    if !json {
        let written = table::moment(header.written_ns, &jiff::tz::TimeZone::UTC);
        let (psched, why) = (one_line(header.psched.clone()), one_line(header.why.clone()));
        writeln!(out, "written {} UTC by psched {psched}: {why}", written.shown())?;
        writeln!(out, "{}", beginning(&scheduler))?;
    }
    let mut others = 0_usize;
    for (number, step) in (1..).zip(steps) {
        let step = step.map_err(|error| because(&error))?;
        let effects = catch_unwind(AssertUnwindSafe(|| step.replay(&mut scheduler)));
        let differs = match &effects {
            Ok(effects) => step.gave.is_some_and(|gave| gave != Gave::of(effects)),
            Err(_) => false,
        };
        others += usize::from(differs);
        let shown = effects.as_deref().unwrap_or_default();
        match json {
            true => put_json(number, &step, shown, out)?,
            false => put_text(number, &step, shown, differs, out)?,
        }
        if effects.is_err() {
            return Err(Stopped::Because(format!("the scheduler panics at step {number}")));
        }
    }
    match others {
        0 => Ok(()),
        others => Err(Stopped::Because(format!(
            "psched {}, which was recorded, decided otherwise than this psched {} in {others} of {} steps",
            one_line(header.psched),
            env!("CARGO_PKG_VERSION"),
            header.steps
        ))),
    }
}

fn beginning(scheduler: &Scheduler) -> String {
    let (nodes, teams) = (scheduler.machine().nodes.len(), scheduler.teams().count());
    format!("begins with {nodes} nodes and {teams} applications that had not ended")
}

/// A line of `--json`.
#[derive(serde::Serialize)]
struct Line<'a> {
    step: u64,
    #[serde(flatten)]
    told: &'a Step,
    effects: &'a [Effect],
}

fn put_json(
    step: u64,
    told: &Step,
    effects: &[Effect],
    out: &mut impl Write,
) -> Result<(), Stopped> {
    let line = serde_json::to_string(&Line { step, told, effects });
    Ok(writeln!(out, "{}", line.map_err(io::Error::from)?)?)
}

fn put_text(
    number: u64,
    step: &Step,
    effects: &[Effect],
    differs: bool,
    out: &mut impl Write,
) -> Result<(), Stopped> {
    let events: Vec<String> = match &step.told {
        Told::Events(events) => events.iter().map(told).collect(),
        Told::End => vec!["psched ends".to_owned()],
    };
    let time = time_of_day(step.now.wall_ns);
    for event in events {
        writeln!(out, "{number} {time} {event}")?;
    }
    for effect in effects {
        writeln!(out, "    {}", done(effect))?;
    }
    match (differs, step.gave) {
        (true, Some(gave)) => {
            writeln!(out, "    ! the recorded psched gave {} effects, not these", gave.effects)?;
        }
        (_, None) => writeln!(out, "    ! the recorded psched did not finish this step")?,
        _ => {}
    }
    Ok(())
}

/// UTC, to the microsecond.
fn time_of_day(wall_ns: u64) -> String {
    let second = wall_ns / 1_000_000_000 % 86_400;
    let (h, m, s) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{h:02}:{m:02}:{s:02}.{:06}", wall_ns / 1_000 % 1_000_000)
}

/// A line of an event.
fn told(event: &Event) -> String {
    let more = match event {
        Event::Posted { posting, owner, .. } | Event::Restarted { posting, owner, .. } => {
            posted(posting, owner)
        }
        Event::Looked { apid, .. } | Event::FrontGone { apid } => format!("application {apid}"),
        Event::Kill { apids, signal, uid, .. } => {
            format!("{}, signal {signal}, by uid {uid}", list(apids))
        }
        Event::LinkOpened { link, hello } => {
            format!(
                "link {}, {}, {}",
                link.0,
                hello.hostname,
                nids_text(hello.nids.iter().copied())
            )
        }
        Event::Inventory { link, items } => {
            let items = items.iter().map(|(key, phase)| format!("{key} {phase:?}"));
            format!("link {}: {}", link.0, joined(items))
        }
        Event::Foreign { link, foreign } => {
            let has = foreign.applications.iter().map(|one| one.place.key);
            format!("link {}, {}: {}", link.0, foreign.why, joined(has))
        }
        Event::Manage { what, nids, by, .. } => {
            format!("{what:?} {}, by {}", nids_text(nids.iter().copied()), by.name)
        }
        Event::Nodes { to, nids, reason, by, .. } => {
            format!("{to:?} {}, by {}: {reason}", nids_text(nids.iter().copied()), by.name)
        }
        Event::Flavors { nids, to, by, .. } => {
            format!("{to:?} {}, by {}", nids_text(nids.iter().copied()), by.name)
        }
        Event::Hold { apids, hold, by, .. } => {
            let what = if *hold { "hold" } else { "release" };
            format!("{what} {}, by {}", joined(apids), by.name)
        }
        Event::Noted { link, notes, .. } => format!("link {}: {}", link.0, joined(notes)),
        Event::Revoked { link } | Event::LinkClosed { link } => format!("link {}", link.0),
        Event::Report { link, report } => format!("link {}, {report}", link.0),
        Event::StoreRefused { apid, why } => format!("application {apid}: {why}"),
        Event::RolledIn { key } => key.to_string(),
        Event::Migrate { apid, nids, dry_run, by, .. } => {
            let to =
                nids.as_ref().map_or("anywhere".to_owned(), |nids| nids_text(nids.iter().copied()));
            format!("{apid} to {to}, by {}{}", by.name, dry(*dry_run))
        }
        Event::Compact { region, dry_run, by, .. } => {
            format!("{region}, by {}{}", by.name, dry(*dry_run))
        }
        Event::Machine(machine) => format!("{} nodes", machine.nodes.len()),
        Event::Tick | Event::Settings(_) => String::new(),
    };
    line(event.kind(), more)
}

fn dry(run: bool) -> &'static str {
    if run { ", dry run" } else { "" }
}

fn posted(posting: &Posting, owner: &Owner) -> String {
    let shape = &posting.shape;
    let each = shape.per_node.map_or_else(String::new, |each| format!(" -N {each}"));
    format!(
        "-n {} -d {}{each} by {} (uid {}): {}",
        shape.width,
        shape.depth,
        owner.name,
        owner.uid,
        struck_out(&posting.command)
    )
}

/// A line of an effect.
fn done(effect: &Effect) -> String {
    let more = match effect {
        Effect::Keep(record) => kept(record),
        Effect::Log { apid, name, detail } => format!("{apid} {name}: {detail}"),
        Effect::Accept { apid, .. } => format!("application {apid}"),
        Effect::Refuse { refusal, reason, .. } => format!("{refusal:?}: {reason}"),
        Effect::Look { looked: Looked::Placed(team), .. } => team_text(team),
        Effect::Look { looked: Looked::Waiting(why), .. } => format!("it waits: {why}"),
        Effect::Killed { problems, .. } => joined(problems.iter().flatten()),
        Effect::Managed { done, problems, .. } => joined(done.iter().chain(problems)),
        Effect::Command { link, command } => format!("link {}, {command}", link.0),
        Effect::RollIn { key, to } => format!("{key} on {}", nids_text(to.nids())),
        Effect::RollOut { key } => key.to_string(),
        Effect::Welcome { link, nids } => {
            format!("link {}, {}", link.0, nids_text(nids.iter().copied()))
        }
        Effect::RefuseLink { link, why } => format!("link {}: {why}", link.0),
        Effect::CloseLink { link } => format!("link {}", link.0),
        Effect::SignalFront { apid, front } => format!("application {apid}, process {}", front.pid),
        Effect::Tell { apid, .. } => format!("application {apid}"),
        Effect::TellEnd { apid, end } => {
            format!("application {apid}, status {}", end.status())
        }
        Effect::Warn(text) | Effect::Fault(text) => text.clone(),
    };
    line(effect.kind(), more)
}

fn kept(record: &Record) -> String {
    match record {
        Record::Posted(team) | Record::Adopted(team) | Record::Update { team, .. } => {
            team_text(team)
        }
        Record::Log { apid, name, detail, .. } => format!("{apid} {name}: {detail}"),
        Record::Boot(nids, boot) => format!("{} {boot}", nids_text(nids.iter().copied())),
        Record::Nodes(nids, order) => {
            let order = order.as_ref().map(|order| order.closed);
            format!(
                "{} {}",
                nids_text(nids.iter().copied()),
                order.map_or("open".into(), |o| format!("{o:?}"))
            )
        }
        Record::Flavors(nids, _) => nids_text(nids.iter().copied()),
        Record::Variable { name, .. } => name.clone(),
        Record::Change(change) => {
            format!("{}: {} -> {}", change.what, change.before, change.after)
        }
        Record::Shares(shares) => format!("{} users or accounts", shares.had.len()),
    }
}

fn team_text(team: &Apteam) -> String {
    let on = match team.places.0.is_empty() {
        true => String::new(),
        false => format!(" on {}", nids_text(team.places.nids())),
    };
    format!("{} {}{on}", team.key(), team.state.name())
}

fn list(apids: &[Apid]) -> String {
    joined(apids)
}

/// The text with a blank for each control character: a hostile recording can't steer the terminal.
fn one_line(text: String) -> String {
    text.chars().map(|c| if steers(c) { ' ' } else { c }).collect()
}

/// One line, whatever is in the text.
fn line(kind: &str, more: String) -> String {
    let more = one_line(more);
    match more.is_empty() {
        true => kind.to_owned(),
        false => cut(format!("{kind}: {more}"), TEXT_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::psched::decide::{Now, Settings};
    use crate::psched::drive::recorder::Recorder;

    /// Two ticks of an empty machine.
    fn written() -> Vec<u8> {
        let mut scheduler = Scheduler::new(Default::default(), Settings::default());
        let mut recorder = Recorder::new(&scheduler);
        for mono_ns in [1, 2] {
            let now = Now { mono_ns, wall_ns: 3_661_000_001_000 };
            recorder.tells(now, &scheduler, &[Event::Tick]);
            recorder.gave(&scheduler.apply(now, Event::Tick));
        }
        let mut written = Vec::new();
        recorder.recording().write("a test", 1_500_000_000, &mut written).expect("memory");
        written
    }

    fn shown(written: &[u8], json: bool) -> (String, Option<String>) {
        let mut out = Vec::new();
        let why = match replay(written, json, &mut out) {
            Ok(()) => None,
            Err(Stopped::Because(why)) => Some(why),
            Err(Stopped::NoReader) => Some("no reader".into()),
        };
        (String::from_utf8(out).expect("text"), why)
    }

    #[test]
    fn a_line_for_each_event() {
        let (text, why) = shown(&written(), false);
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            text,
            format!(
                "written 1970-01-01 00:00:01.500 UTC by psched {version}: a test\n\
                 begins with 0 nodes and 0 applications that had not ended\n\
                 1 01:01:01.000001 time\n\
                 2 01:01:01.000001 time\n"
            )
        );
        assert_eq!(why, None);
        let (json, why) = shown(&written(), true);
        assert_eq!((json.lines().count(), why), (2, None));
        for line in json.lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(line["told"]["Events"][0], "Tick");
        }
    }

    #[test]
    fn what_is_cut_is_shown_up_to_there() {
        let whole = written();
        let text = String::from_utf8(whole.clone()).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        let cut = lines[..3].join("\n") + "\n";
        let (text, why) = shown(cut.as_bytes(), false);
        assert!(text.ends_with("1 01:01:01.000001 time\n"), "{text}");
        assert_eq!(why.as_deref(), Some("it is cut: 1 of 2 steps are there"));
        // Other effects than it says.
        let other =
            String::from_utf8(whole).expect("text").replacen("\"effects\":0", "\"effects\":7", 1);
        let (text, why) = shown(other.as_bytes(), false);
        assert!(text.contains("! the recorded psched gave 7 effects"), "{text}");
        assert!(why.expect("an error").contains("the checksum of the whole is wrong"));
    }
}
