//! `cpr -i`: what is in checkpoints, and whether they are whole.

use super::problem;
use crate::checkpoint::{BackEnd, Flaw, Kind, Manifest, SealKey, manifest_of, verify};
use crate::commands::question::{Does, answer_again, ask};
use crate::console::stdout::write_out;
use crate::console::table::{Cell, Report, Table, clean, json_text, moment, terminal_columns};
use crate::node::checkpoint::dir::{self, KEY_FILE, Leftover, Spot, load_key};
use crate::rpc::connect::{connect, socket_path};
use crate::rpc::pb;
use crate::variables::units::about;
use jiff::tz::TimeZone;
use pb::psched_client::PschedClient;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names the file of the key, where it is not root's.
const KEY_VARIABLE: &str = "PSCHED_CHECKPOINT_KEY";
/// The state directory of a machine's psched, where none answers.
const STATE: &str = "/var/lib/psched";
/// How long psched may take to say where it has its own.
const ANSWER_BOUND: Duration = Duration::from_secs(10);

/// What is known of who sealed a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Sealed {
    /// This machine's psched did.
    Verified,
    /// Nobody who has this machine's key.
    Foreign,
    /// The key can't be read.
    NotVerified,
}

impl Sealed {
    fn words(self) -> &'static str {
        match self {
            Sealed::Verified => "verified",
            Sealed::Foreign => "foreign",
            Sealed::NotVerified => "not verified",
        }
    }
}

/// One checkpoint, looked at.
struct Look {
    dir: PathBuf,
    /// What it says of itself, and who sealed that; none: it can't be read.
    found: Option<(Manifest, Sealed)>,
    /// Why it can't be used.
    flaw: Option<Flaw>,
    leftovers: Vec<Leftover>,
}

/// Tells what is in them.
///
/// # Errors
/// What is wrong with each, once all has been told.
pub fn info(dirs: &[PathBuf], json: bool) -> Result<(), Vec<String>> {
    let (key, no_key) = key();
    let looks: Vec<Look> = dirs.iter().map(|dir| look(dir, key.as_ref())).collect();
    let told = match json {
        true => write_out(&as_json(&looks)),
        false => write_out(&as_text(&looks, &no_key, terminal_columns(), &TimeZone::system())),
    };
    let problems = looks.iter().filter_map(|look| Some(problem(&look.dir, look.flaw.as_ref()?)));
    let problems: Vec<String> = told.err().into_iter().chain(problems).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// The key, or why there is none.
fn key() -> (Option<SealKey>, String) {
    const ROOT: &str = "only root can read the key";
    let (path, silent) = match std::env::var_os(KEY_VARIABLE) {
        Some(path) => (PathBuf::from(path), None),
        None => match state() {
            Ok(state) => (state.join(KEY_FILE), None),
            Err(why) => (Path::new(STATE).join(KEY_FILE), Some(why)),
        },
    };
    // (A user reads that of his private instance.)
    let closed = std::fs::File::open(&path)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
    if closed || (silent.is_some() && !rustix::process::geteuid().is_root()) {
        return (None, ROOT.into());
    }
    let silent = silent.map(|why| format!(", and psched does not say where its key is: {why}"));
    match load_key(&path) {
        Ok(Some(key)) => (Some(key), String::new()),
        Ok(None) => {
            let silent = silent.unwrap_or_default();
            (None, format!("there is no key in {}{silent}", path.display()))
        }
        Err(flaw) => (None, flaw.to_string()),
    }
}

/// Where the psched that is asked keeps its state.
fn state() -> Result<PathBuf, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let state = runtime.map_err(|e| e.to_string())?.block_on(async {
        let channel = connect(&socket_path()).await.map_err(|e| e.to_string())?;
        let client = &PschedClient::new(channel);
        answer_again(ask!(client.show, pb::ShowRequest {}), Does::Read, ANSWER_BOUND).await
    })?;
    match state.state_directory {
        empty if empty.is_empty() => Err("it is of an older release; upgrade it".into()),
        state => Ok(state.into()),
    }
}

fn look(path: &Path, key: Option<&SealKey>) -> Look {
    let mut look = Look { dir: path.to_owned(), found: None, flaw: None, leftovers: Vec::new() };
    look.flaw = look_into(&mut look, key).err();
    look
}

/// # Errors
/// Why it can't be used; what is known of it is written down all the same.
fn look_into(look: &mut Look, key: Option<&SealKey>) -> Result<(), Flaw> {
    let spot = Spot::of(&look.dir)?;
    if spot.is_partial() {
        return Err(Flaw::Partial);
    }
    look.leftovers = dir::leftovers(&spot)?;
    let Some(dir) = spot.open()? else {
        return Err(Flaw::NoFolder);
    };
    let manifest = manifest_of(&dir, None)?;
    let foreign = key.map(|key| manifest_of(&dir, Some(key)) == Err(Flaw::Foreign));
    let sealed = match foreign {
        Some(true) => Sealed::Foreign,
        Some(false) => Sealed::Verified,
        None => Sealed::NotVerified,
    };
    let (manifest, _) = look.found.insert((manifest, sealed));
    verify(manifest, &dir)?;
    if sealed == Sealed::Foreign { Err(Flaw::Foreign) } else { Ok(()) }
}

fn user(manifest: &Manifest) -> String {
    let owner = &manifest.recovery.owner;
    if owner.name.is_empty() { owner.uid.to_string() } else { owner.name.clone() }
}

fn back_end(manifest: &Manifest) -> String {
    match &manifest.kind {
        Kind::Waiting => String::new(),
        Kind::Running { back_end: BackEnd::Criu { version }, .. } => format!("criu {version}"),
        Kind::Running { back_end, .. } => back_end.name().into(),
    }
}

/// For people; the table has lines of at most so many letters, 0: of any number.
fn as_text(looks: &[Look], no_key: &str, columns: usize, zone: &TimeZone) -> String {
    const HEADINGS: &str = "<Checkpoint <Whole <Seal <Kind >Apid <User >PEs >Size <Made <Host \
                            <Back-end <Command";
    let mut table = Table::new("checkpoints", "", HEADINGS)
        .cuts(&[("Command", 10), ("Host", 8), ("Checkpoint", 16), ("User", 8)])
        .drops(&[
            "Back-end", "Host", "Size", "PEs", "Kind", "Command", "User", "Seal", "Made", "Apid",
        ]);
    for look in looks {
        let name = Cell::text(look.dir.display().to_string());
        let whole = Cell::text(if look.flaw.is_none() { "yes" } else { "no" });
        let Some((manifest, sealed)) = &look.found else {
            let rest = std::iter::repeat_n(Cell::None, table.columns.len() - 2);
            table.rows.push([name, whole].into_iter().chain(rest).collect());
            continue;
        };
        let recovery = &manifest.recovery;
        table.rows.push(vec![
            name,
            whole,
            Cell::text(sealed.words()),
            Cell::text(manifest.kind.name()),
            Cell::Number(recovery.apid.0),
            Cell::text(user(manifest)),
            Cell::Number(recovery.posting.shape.width.into()),
            Cell::Amount(about(manifest.bytes())),
            moment(manifest.made.at_ns, zone),
            Cell::text(&manifest.made.host),
            Cell::text(back_end(manifest)),
            Cell::text(&recovery.posting.command),
        ]);
    }
    let mut text = Report { tables: vec![table], ..Report::default() }.text_within(columns);
    let not_verified = |look: &Look| matches!(look.found, Some((_, Sealed::NotVerified)));
    if looks.iter().any(not_verified) {
        text.push_str(&clean(&format!("not verified: {no_key}")));
        text.push('\n');
    }
    for look in looks {
        for leftover in &look.leftovers {
            let name = leftover.name.to_string_lossy();
            let dir = look.dir.display();
            let line = match leftover.busy {
                true => format!("{dir}: {name}, beside it, is being written or removed"),
                false => format!(
                    "{dir}: {name}, beside it, is of an unfinished checkpoint; cpr -D {dir} removes both, \
                     cpr -D with the name of the unfinished checkpoint removes that one alone"
                ),
            };
            text.push_str(&clean(&line));
            text.push('\n');
        }
    }
    text
}

/// What a program is told of a checkpoint.
#[derive(Serialize)]
struct Row<'a> {
    dir: String,
    whole: bool,
    /// Why it can't be used.
    problem: Option<String>,
    /// Partial ones beside it.
    leftovers: Vec<String>,
    #[serde(flatten)]
    found: Option<Found<'a>>,
}

#[derive(Serialize)]
struct Found<'a> {
    seal: Sealed,
    kind: &'static str,
    back_end: Option<&'static str>,
    back_end_version: Option<&'a str>,
    apid: u64,
    uid: u32,
    user: String,
    pes: u32,
    depth: u32,
    nids: Vec<u32>,
    domain: &'a str,
    account: Option<&'a str>,
    command: &'a str,
    time_left_ms: Option<u128>,
    made_at_ns: u64,
    host: &'a str,
    boot: &'a str,
    psched: &'a str,
    bytes: u64,
    files: usize,
}

fn as_json(looks: &[Look]) -> String {
    let rows: Vec<Row> = looks.iter().map(Row::of).collect();
    let all = serde_json::json!({ "checkpoints": rows });
    json_text(&all)
}

impl Row<'_> {
    fn of(look: &Look) -> Row<'_> {
        Row {
            dir: look.dir.display().to_string(),
            whole: look.flaw.is_none(),
            problem: look.flaw.as_ref().map(Flaw::to_string),
            leftovers: look.leftovers.iter().map(|l| l.name.to_string_lossy().into()).collect(),
            found: look.found.as_ref().map(|(manifest, sealed)| Found::of(manifest, *sealed)),
        }
    }
}

impl Found<'_> {
    fn of(manifest: &Manifest, seal: Sealed) -> Found<'_> {
        let Manifest { made, kind, recovery, files, .. } = manifest;
        let (back_end, places) = match kind {
            Kind::Waiting => (None, None),
            Kind::Running { back_end, places, .. } => (Some(back_end), Some(places)),
        };
        let version = match back_end {
            Some(BackEnd::Criu { version }) => Some(&version[..]),
            _ => None,
        };
        Found {
            seal,
            kind: kind.name(),
            back_end: back_end.map(BackEnd::name),
            back_end_version: version,
            apid: recovery.apid.0,
            uid: recovery.owner.uid,
            user: user(manifest),
            pes: recovery.posting.shape.width,
            depth: recovery.posting.shape.depth,
            nids: places.iter().flat_map(|list| list.nids()).map(|nid| nid.0).collect(),
            domain: &recovery.domain,
            account: recovery.posting.account.as_ref().map(|account| account.as_str()),
            command: &recovery.posting.command,
            time_left_ms: recovery.time_left().map(|left| left.as_millis()),
            made_at_ns: made.at_ns,
            host: &made.host,
            boot: &made.boot,
            psched: &made.psched,
            bytes: manifest.bytes(),
            files: files.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::example;

    fn looks() -> Vec<Look> {
        let mut waiting = example();
        (waiting.kind, waiting.files) = (Kind::Waiting, Vec::new());
        waiting.recovery.owner.name.clear();
        let of =
            |dir: &str, found, flaw| Look { dir: dir.into(), found, flaw, leftovers: Vec::new() };
        let mut looks = vec![
            of("tonight", Some((example(), Sealed::Verified)), None),
            of("w", Some((waiting, Sealed::NotVerified)), None),
            of("x\u{1b}[2J", None, Some(Flaw::NoManifest)),
        ];
        looks[1].leftovers = vec![
            Leftover { name: ".w.partial-0123456789abcdef".into(), busy: false },
            Leftover { name: ".w.partial-1123456789abcdef".into(), busy: true },
        ];
        looks
    }

    #[test]
    fn for_people() {
        let text = as_text(&looks(), "only root can", 0, &TimeZone::UTC);
        assert_eq!(
            text,
            "Checkpoint Whole Seal         Kind    Apid User  PEs Size Made                    \
             Host Back-end Command\n\
             tonight    yes   verified     running   12 alice   2    9 2026-05-28 20:26:40.000 \
             n0   criu 4.2 ./ring 1000\n\
             w          yes   not verified waiting   12 1000    2    0 2026-05-28 20:26:40.000 \
             n0   -        ./ring 1000\n\
             x?[2J      no    -            -          - -       -    - -                       \
             -    -        -\n\
             not verified: only root can\n\
             w: .w.partial-0123456789abcdef, beside it, is of an unfinished checkpoint; cpr -D w \
             removes both, cpr -D with the name of the unfinished checkpoint removes that one alone\n\
             w: .w.partial-1123456789abcdef, beside it, is being written or removed\n"
        );
        // Where there is less room columns are left out, and nothing that is said.
        let narrow = as_text(&looks(), "only root can", 16, &TimeZone::UTC);
        let lines: Vec<&str> = narrow.lines().collect();
        assert_eq!(&lines[..2], ["Checkpoint Whole", "tonight    yes"]);
        assert_eq!(lines[4..], text.lines().collect::<Vec<_>>()[4..]);
        let table = |columns| {
            let text = as_text(&looks(), "only root can", columns, &TimeZone::UTC);
            text.lines().take(4).map(|line| format!("{line}\n")).collect::<String>()
        };
        let golden = [
            "\
Checkpoint Whole Seal         Apid User  Made                    Command
tonight    yes   verified       12 alice 2026-05-28 20:26:40.000 ./ring 1000
w          yes   not verified   12 1000  2026-05-28 20:26:40.000 ./ring 1000
x?[2J      no    -               - -     -                       -
",
            "\
Checkpoint Whole Apid
tonight    yes     12
w          yes     12
x?[2J      no       -
",
        ];
        assert_eq!([80, 40].map(table), golden);
    }

    #[test]
    fn for_programs() {
        let all: serde_json::Value = serde_json::from_str(&as_json(&looks())).expect("JSON");
        let row = |n: usize| &all["checkpoints"][n];
        assert_eq!(
            *row(0),
            serde_json::json!({
                "dir": "tonight", "whole": true, "problem": null, "leftovers": [],
                "seal": "verified", "kind": "running", "back_end": "criu",
                "back_end_version": "4.2", "apid": 12, "uid": 1000, "user": "alice", "pes": 2,
                "depth": 1, "nids": [3, 4], "domain": "application", "account": null,
                "command": "./ring 1000", "time_left_ms": 2_699_500,
                "made_at_ns": 1_780_000_000_000_000_000_u64, "host": "n0",
                "boot": "6c9e8f0e-0000-4000-8000-000000000001", "psched": "0.1.0", "bytes": 9,
                "files": 2,
            })
        );
        assert_eq!(row(1)["back_end"], serde_json::Value::Null);
        assert_eq!(row(1)["leftovers"].as_array().map(Vec::len), Some(2));
        assert_eq!(row(2)["whole"], false);
        assert!(row(2)["problem"].as_str().expect("why").contains("manifest.json"));
        assert_eq!(row(2).get("apid"), None);
    }
}
