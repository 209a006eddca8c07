//! Copies of the store: made while psched runs, and put in its place when it does not.
//!
//! A copy is made by SQLite's online backup: it has the store as it was at one commit, and is one
//! file. (`cp` may take the database of one moment and its log of another.) Once psched has
//! committed more the copy is an old one: nodes that have heard of later commits do not obey a
//! psched that is started on it, and what runs there runs on until an administrator has them
//! adopted or purged.

use super::{FILE, SCHEMA, StoreError, commits, explain, records, take_directory};
use crate::apteam::record::State;
use crate::os::new_file::{NewFile, NotDone, folder_of};
use crate::os::trust;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the store may be written to by others before a copy of it is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no copy, or none was put back.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Something is wrong with a store, or with the state directory.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is a file of that name.
    #[error("{0} exists already: choose another name, or replace it with --force")]
    Exists(PathBuf),
    /// Not what psched writes.
    #[error("{path} is not a store of psched: {why}")]
    NotAStore { path: PathBuf, why: String },
    /// The folder of a copy is not there.
    #[error("there is no folder {0}: make it, or choose another path for the copy")]
    NoFolder(PathBuf),
    /// Another user could change where a copy goes.
    #[error("a copy in {folder} would not be safe: {why}; choose a folder that only root changes")]
    Unsafe { folder: PathBuf, why: String },
    /// psched was never started on it.
    #[error("there is no store in {0}: name psched's state directory with --state")]
    None(PathBuf),
    /// A file can't be used.
    #[error("{path} can't be {what}")]
    File { path: PathBuf, what: &'static str, source: io::Error },
}

/// What is in a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The store's id.
    pub store_id: String,
    /// The last commit that it has.
    pub commits: u64,
    /// Applications that had not ended.
    pub applications: u64,
    /// Of these, those that had been started.
    pub running: u64,
}

type Result<T> = std::result::Result<T, BackupError>;

/// Writes a copy of the store in `directory` to `to`, as a whole or not at all. psched may run.
///
/// # Errors
/// What stood in the way; then `to` is as it was.
pub fn back_up(directory: &Path, to: &Path, replace: bool) -> Result<Contents> {
    let from = directory.join(FILE);
    if !from.is_file() {
        return Err(BackupError::None(directory.into()));
    }
    if !replace && fs::symlink_metadata(to).is_ok() {
        return Err(BackupError::Exists(to.into()));
    }
    let folder = folder_of(to);
    if !folder.is_dir() {
        return Err(BackupError::NoFolder(folder.into()));
    }
    let not_safe = |why| BackupError::Unsafe { folder: folder.into(), why };
    trust::check_directory(folder).map_err(not_safe)?;
    let new = NewFile::make(folder, to)?;
    let _journal = Journal::of(new.path());
    let source = open_to_read(&from)?;
    let contents = copy(&source, &from, new.path())?;
    new.put(to, replace)?;
    Ok(contents)
}

/// Puts a copy in place of the store in `directory`, on which no psched may run. Says what is in
/// it, and where the store is now that was there before, if one was.
///
/// # Errors
/// What stood in the way; then the store is as it was.
pub fn restore(directory: &Path, from: &Path) -> Result<(Contents, Option<PathBuf>)> {
    let source = open_to_read(from)?;
    judge(&source, from)?;
    let _lock = take_directory(directory)?;
    let path = directory.join(FILE);
    let new = NewFile::make(directory, &path)?;
    let _journal = Journal::of(new.path());
    let contents = copy(&source, from, new.path())?;
    let replaced = match path.exists() {
        true => Some(keep_beside(&path)?),
        false => None,
    };
    new.put(&path, true)?;
    Ok((contents, replaced))
}

fn open_to_read(path: &Path) -> Result<Connection> {
    let failed = |source| BackupError::File { path: path.into(), what: "opened", source };
    // (SQLite would say no more than that it can't.)
    let kind = fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_file() {
        let why = "it is not a file".to_owned();
        return Err(BackupError::NotAStore { path: path.into(), why });
    }
    File::open(path).map_err(failed)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|e| explain(path, &e))?;
    connection.busy_timeout(Duration::from_secs(2)).map_err(|e| explain(path, &e))?;
    Ok(connection)
}

/// A copy of all that is in `source` at one commit, durable, in this empty file.
fn copy(source: &Connection, from: &Path, to: &Path) -> Result<Contents> {
    let of_copy = |e: rusqlite::Error| explain(to, &e);
    let mut copy = Connection::open(to).map_err(of_copy)?;
    {
        let backup = Backup::new(source, &mut copy).map_err(|e| explain(from, &e))?;
        let begun = Instant::now();
        // All pages at once: readers do not hold up the writer, nor he them.
        loop {
            match backup.step(-1).map_err(|e| explain(to, &e))? {
                StepResult::Done => break,
                _ if begun.elapsed() > PATIENCE => {
                    let detail = "another process keeps it locked".to_owned();
                    return Err(StoreError::Failed { path: from.into(), detail }.into());
                }
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
    // One file: no log beside it.
    let mode = |r: &rusqlite::Row<'_>| r.get::<_, String>(0);
    copy.query_row("PRAGMA journal_mode = DELETE", [], mode).map_err(of_copy)?;
    let contents = judge(&copy, to).map_err(|error| match error {
        BackupError::NotAStore { why, .. } => BackupError::NotAStore { path: from.into(), why },
        other => other,
    })?;
    copy.close().map_err(|(_, e)| explain(to, &e))?;
    Ok(contents)
}

/// What is in a store, if it is one that this psched can go on from.
fn judge(store: &Connection, path: &Path) -> Result<Contents> {
    let told = |e: rusqlite::Error| explain(path, &e);
    let not = |why: String| BackupError::NotAStore { path: path.into(), why };
    let no_database = |e: rusqlite::Error| match explain(path, &e) {
        StoreError::Damaged { detail, .. } => not(detail),
        other => other.into(),
    };
    let number = |r: &rusqlite::Row<'_>| r.get::<_, i64>(0);
    let version = store.query_row("PRAGMA user_version", [], number).map_err(no_database)?;
    if version > SCHEMA {
        return Err(StoreError::Newer { path: path.into(), found: version }.into());
    }
    let text = |r: &rusqlite::Row<'_>| r.get::<_, String>(0);
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('meta', 'application', 'boot')";
    if version < 1 || store.query_row(tables, [], number).map_err(told)? != 3 {
        return Err(not("it does not have psched's tables".to_owned()));
    }
    let check = store.query_row("PRAGMA quick_check(1)", [], text).map_err(told)?;
    if check != "ok" {
        return Err(StoreError::Damaged { path: path.into(), detail: check }.into());
    }
    let id = "SELECT value FROM meta WHERE key = 'id'";
    let Some(store_id) = store.query_row(id, [], text).optional().map_err(told)? else {
        return Err(not("it has no store id".to_owned()));
    };
    let commits = u64::try_from(commits(store).map_err(told)?).unwrap_or(0);
    let mut contents = Contents { store_id, commits, ..Contents::default() };
    let mut rows =
        store.prepare("SELECT record FROM application WHERE state <> 'ended'").map_err(told)?;
    for record in rows.query_map([], |r| r.get::<_, Vec<u8>>(0)).map_err(told)? {
        contents.applications += 1;
        // (One that can't be read psched names when it starts.)
        let team = records::decode(&record.map_err(told)?).ok();
        contents.running += u64::from(team.is_some_and(|team| team.state == State::Running));
    }
    Ok(contents)
}

/// Gives the store another name beside its own, and leaves it its own too.
fn keep_beside(path: &Path) -> Result<PathBuf> {
    let with = |path: &Path, end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    // What is in its log comes into the database itself; one that can't be read is kept as it is.
    let whole = Connection::open(path).and_then(|store| {
        store.query_row("PRAGMA journal_mode = DELETE", [], |r| r.get::<_, String>(0))
    });
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let mut kept = with(path, &format!(".{now}"));
    for number in 1..100 {
        match fs::hard_link(path, &kept) {
            Ok(()) => break,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < 99 => {
                kept = with(path, &format!(".{now}-{number}"));
            }
            Err(source) => {
                return Err(BackupError::File { path: kept, what: "made", source });
            }
        }
    }
    if whole.is_err() {
        let _ = fs::rename(with(path, "-wal"), with(&kept, "-wal"));
    }
    // They would be taken for the new one's.
    for end in ["-wal", "-shm", "-journal"] {
        let _ = fs::remove_file(with(path, end));
    }
    Ok(kept)
}

impl From<NotDone> for BackupError {
    fn from(NotDone { path, what, source }: NotDone) -> BackupError {
        match source.kind() {
            io::ErrorKind::AlreadyExists if what == "made" => BackupError::Exists(path),
            _ => BackupError::File { path, what, source },
        }
    }
}

/// What SQLite may leave beside a copy that it was stopped at.
struct Journal(PathBuf);

impl Journal {
    fn of(path: &Path) -> Journal {
        let mut journal = path.as_os_str().to_owned();
        journal.push("-journal");
        Journal(journal.into())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
