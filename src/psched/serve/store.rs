//! The store: SQLite, in WAL mode with synchronous=FULL, one writer.
//!
//! An application is one row: columns that an operator can read with `sqlite3`, and the whole
//! record as a protobuf blob. A *commit* is what one event left to be kept; many commits go into
//! one transaction, so that the disk is waited for once for all of them ([`super::committer`]).
//!
//! The store has a random id and an epoch that counts psched's starts on it: nodes remember both,
//! so that an empty or wrong state directory can't be taken for the machine's memory. It also
//! counts its commits: nodes remember the highest number that they were told, so that a copy of the
//! store, whenever it was made, is not taken for the store that went on.
//!
//! # When the disk fails
//! A transaction that failed is never synced again as it was: SQLite writes its pages anew with the next
//! one, for after a failed fsync the kernel takes pages for clean that never came to the disk. What an
//! earlier life of psched had written that way, and what was written before an I/O error, goes from
//! the log into the database before anything is confirmed that comes after it in the log
//! ([`Store::empty_log`]): the log is read up to its first gap.

mod administration;
mod aside;
pub mod backup;
mod reader;
mod room;
mod shares;

pub use reader::Reader;

use super::records;
use crate::apteam::Apid;
use crate::apteam::change::Orders;
use crate::apteam::protocol::node::Start;
use crate::apteam::record::{Apteam, State};
use crate::machine::Nid;
use crate::os::trust;
use crate::psched::decide::SetValue;
use crate::psched::decide::{SharesRecord, next_of};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use std::collections::{BTreeMap, HashMap};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Version of the tables, in `PRAGMA user_version`.
const SCHEMA: i64 = 2;

/// What is wrong with the store, and what would cure it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another psched has it.
    #[error(
        "the state directory {0} is in use by another psched: stop that one, or choose another with --state"
    )]
    InUse(PathBuf),
    /// Another user could change where it is.
    #[error(
        "the state directory {path} would not be safe: {why}; choose one that only root changes (--state, or \
         `state:` in psched.yaml)"
    )]
    Unsafe {
        /// Which.
        path: PathBuf,
        /// Who could.
        why: String,
    },
    /// Written by a later release.
    #[error(
        "the store {path} has version {found}, this psched knows {SCHEMA}: install the release that wrote it, or a newer one"
    )]
    Newer { path: PathBuf, found: i64 },
    /// Not a database, or not a sound one.
    #[error(
        "the store {path} is damaged ({detail}): restore it from a backup, or move it away to begin with an empty one (applications that still run are then left alone as foreign)"
    )]
    Damaged { path: PathBuf, detail: String },
    /// The disk is full.
    #[error("the file system of {path} is full: make room there")]
    Full { path: PathBuf },
    /// It can't be written.
    #[error(
        "the store {path} can't be written ({detail}): make it writable for this user, or choose another directory with --state"
    )]
    ReadOnly { path: PathBuf, detail: String },
    /// The database has been removed while it is in use, or another one is in its place.
    #[error(
        "the store {path} was removed or replaced while psched runs, so that new records would be lost: put it \
         back, and restart psched"
    )]
    Removed { path: PathBuf },
    /// The directory can't be used.
    #[error("the state directory {path} can't be used; choose another with --state")]
    Directory { path: PathBuf, source: std::io::Error },
    /// The disk, or the file system.
    #[error(
        "the disk of the store {path} fails ({detail}): see the kernel's log (dmesg); psched \
         keeps trying"
    )]
    Disk { path: PathBuf, detail: String },
    /// Anything else.
    #[error("the store {path} failed: {detail}")]
    Failed { path: PathBuf, detail: String },
}

pub use crate::psched::decide::Record;

/// The open store.
pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// Held as long as the store is open.
    _lock: File,
    /// The database, by device and inode.
    file: (u64, u64),
    /// Random, made with the store.
    pub id: String,
    /// How many times psched has started on it.
    pub epoch: u64,
    /// The last of psched's starts by epoch, this one too.
    pub starts: Vec<Start>,
    /// Commits that are durable.
    commits: Arc<AtomicU64>,
    /// Ended applications that are kept.
    pub history_max: u64,
    /// Bytes that the records of one user's ended applications may take.
    pub records_user_max: Arc<AtomicU64>,
    since_prune: u64,
    /// How often it was looked for that.
    prunes: u64,
    /// Much of the file is free: it is made smaller with each of the next commits.
    shrinks: bool,
    /// An I/O error has come, and since then the log has not been emptied.
    suspect: bool,
    /// When the log, which is too long, can be tried to be emptied again.
    next_emptying: Option<Instant>,
    /// Lines in the event logs of applications that have not ended, as far as they are known.
    logged: HashMap<Apid, u64>,
}

/// What a psched that starts finds.
#[derive(Debug, Default)]
pub struct Restored {
    /// Applications that have not ended.
    pub teams: Vec<Apteam>,
    /// Boots of the nodes.
    pub boots: BTreeMap<Nid, String>,
    /// What administrators have said of nodes.
    pub orders: Orders,
    /// Variables that psmgr has set.
    pub variables: BTreeMap<String, SetValue>,
    /// What users and accounts have had.
    pub shares: SharesRecord,
    /// The next application's number.
    pub next_apid: u64,
    /// All numbers on record are below this one: that of an application that was adopted may be far
    /// above the next.
    pub numbers_below: u64,
    /// Applications whose records can't be read, now or at a start before, in ascending order: the newest 1,000.
    pub unreadable: Vec<Apid>,
}

/// One line of an application's event log.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// Its number, which is higher than that of any older line.
    pub number: u64,
    /// Nanoseconds since the epoch.
    pub at_ns: u64,
    /// What.
    pub name: String,
    /// More of it.
    pub detail: String,
}

impl Store {
    /// Opens the store of a state directory, which is made where it is missing. The files are their
    /// owner's alone: they hold tickets, and whoever could open them could lock psched out.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn open(directory: &Path) -> Result<Store, StoreError> {
        let in_directory = |source| StoreError::Directory { path: directory.into(), source };
        let lock = take_directory(directory)?;
        let path = directory.join(FILE);
        // SQLite gives its other files the mode of this one. (A read-only one is its to complain of.)
        if !path.exists() {
            own_file(directory, FILE)?;
        }
        let told = |e: rusqlite::Error| explain(&path, &e);
        let mut connection = Connection::open(&path).map_err(told)?;
        connection.busy_timeout(Duration::from_secs(2)).map_err(told)?;
        let version: i64 =
            connection.query_row("PRAGMA user_version", [], |r| r.get(0)).map_err(told)?;
        if version > SCHEMA {
            return Err(StoreError::Newer { path, found: version });
        }
        room::may_shrink(&connection);
        connection.pragma_update(None, "journal_mode", "WAL").map_err(told)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(told)?;
        let check: String =
            connection.query_row("PRAGMA quick_check(1)", [], |r| r.get(0)).map_err(told)?;
        if check != "ok" {
            return Err(StoreError::Damaged { path, detail: check });
        }
        let transaction = connection.transaction().map_err(told)?;
        upgrade(&transaction, version).map_err(told)?;
        transaction.execute_batch(TABLES).map_err(told)?;
        transaction.execute_batch(administration::TABLES).map_err(told)?;
        transaction.execute_batch(aside::TABLES).map_err(told)?;
        transaction.execute_batch(shares::TABLES).map_err(told)?;
        // A release before left lines of applications that are not there any more.
        transaction
            .execute("DELETE FROM event WHERE apid NOT IN (SELECT apid FROM application)", [])
            .map_err(told)?;
        transaction.pragma_update(None, "user_version", SCHEMA).map_err(told)?;
        // The highest number that this psched has given. (A release before took the highest on
        // record for it.)
        transaction
            .execute(
                "INSERT OR IGNORE INTO meta SELECT 'posted', coalesce(max(apid), 0)
                 FROM (SELECT apid FROM application UNION ALL SELECT apid FROM set_aside)",
                [],
            )
            .map_err(told)?;
        let id: Option<String> = transaction
            .query_row("SELECT value FROM meta WHERE key = 'id'", [], |r| r.get(0))
            .optional()
            .map_err(told)?;
        let id = match id {
            Some(id) => id,
            None => {
                let id = random_id().map_err(in_directory)?;
                transaction.execute("INSERT INTO meta VALUES ('id', ?1)", [&id]).map_err(told)?;
                id
            }
        };
        transaction
            .execute(
                "INSERT INTO meta VALUES ('epoch', 1)
                 ON CONFLICT (key) DO UPDATE SET value = value + 1",
                [],
            )
            .map_err(told)?;
        let epoch: i64 = transaction
            .query_row("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'epoch'", [], |r| {
                r.get(0)
            })
            .map_err(told)?;
        let start_id = random_id().map_err(in_directory)?;
        transaction
            .execute("INSERT OR REPLACE INTO start VALUES (?1, ?2)", params![epoch, start_id])
            .map_err(told)?;
        transaction
            .execute("DELETE FROM start WHERE epoch <= ?1", [epoch - STARTS_KEPT])
            .map_err(told)?;
        let before = commits(&transaction).map_err(told)?;
        transaction
            .execute("INSERT OR REPLACE INTO start_commits VALUES (?1, ?2)", params![epoch, before])
            .map_err(told)?;
        transaction
            .execute("DELETE FROM start_commits WHERE epoch <= ?1", [epoch - STARTS_KEPT])
            .map_err(told)?;
        let commits = count_commit(&transaction).map_err(told)?;
        let starts = starts(&transaction).map_err(told)?;
        transaction.commit().map_err(told)?;
        let _ = room::shrink(&connection, room::PAGES_AT_START);
        make_room(&mut connection, &path).map_err(told)?;
        let file = file_at(&path).ok_or_else(|| StoreError::Removed { path: path.clone() })?;
        Ok(Store {
            connection,
            file,
            path,
            _lock: lock,
            id,
            epoch: u64::try_from(epoch).unwrap_or(1),
            starts,
            commits: Arc::new(AtomicU64::new(commits)),
            history_max: 10_000,
            records_user_max: Arc::new(AtomicU64::new(u64::MAX)),
            // It may be one of a release, or with a variable, that kept more.
            since_prune: PRUNE_EVERY,
            prunes: 0,
            shrinks: false,
            suspect: false,
            next_emptying: None,
            logged: HashMap::new(),
        })
    }

    /// Everything that a starting psched goes on from.
    ///
    /// # Errors
    /// What is wrong with the store.
    pub fn restore(&self) -> Result<Restored, StoreError> {
        let told = |e: rusqlite::Error| explain(&self.path, &e);
        let mut restored = Restored { next_apid: 1, ..Restored::default() };
        let mut unreadable = Vec::new();
        let mut rows = self
            .connection
            .prepare("SELECT apid, record FROM application WHERE state <> 'ended' ORDER BY apid")
            .map_err(told)?;
        let row = |r: &rusqlite::Row<'_>| Ok((r.get::<_, i64>(0)?, restored_row(r)));
        for row in rows.query_map([], row).map_err(told)? {
            match row.map_err(told)? {
                (_, Ok(team)) => restored.teams.push(team),
                (apid, Err(why)) => unreadable.push((apid, why)),
            }
        }
        drop(rows);
        aside::put(&self.connection, &unreadable).map_err(told)?;
        for (apid, why) in unreadable {
            tracing::error!(
                "the record of application {apid} can't be read ({why}): it was set aside (table \
                 set_aside of {}); if its nodes have it, it is put on record again as it runs there",
                self.path.display()
            );
        }
        restored.unreadable = aside::all(&self.connection).map_err(told)?;
        let mut highest = self
            .connection
            .prepare(
                "SELECT max(apid) FROM (SELECT max(apid) AS apid FROM application WHERE apid <= ?1
                 UNION ALL SELECT max(apid) FROM set_aside WHERE apid <= ?1)",
            )
            .map_err(told)?;
        let mut up_to = |most: u64| -> Result<Option<u64>, StoreError> {
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let found: Option<i64> = highest.query_row([most], |r| r.get(0)).map_err(told)?;
            Ok(found.and_then(|n| u64::try_from(n).ok()))
        };
        restored.numbers_below = up_to(u64::MAX)?.map_or(0, |n| n.saturating_add(1));
        let posted = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'posted'";
        let posted: i64 = self.connection.query_row(posted, [], |r| r.get(0)).map_err(told)?;
        let own = u64::try_from(posted).unwrap_or(0).saturating_add(1);
        restored.next_apid = next_of(own, up_to)?;
        let mut boots = self.connection.prepare("SELECT nid, boot_id FROM boot").map_err(told)?;
        let boots =
            boots.query_map([], |r| Ok((Nid(r.get(0)?), r.get::<_, String>(1)?))).map_err(told)?;
        restored.boots = administration::readable(boots, "boot").map_err(told)?;
        restored.orders.closed = administration::closed(&self.connection).map_err(told)?;
        restored.orders.flavors = administration::flavors(&self.connection).map_err(told)?;
        restored.variables = administration::variables(&self.connection).map_err(told)?;
        restored.shares = shares::all(&self.connection).map_err(told)?;
        Ok(restored)
    }

    /// Keeps all of these or none, durably.
    ///
    /// # Errors
    /// Why nothing was kept.
    pub fn write(&mut self, records: &[&Record]) -> Result<(), StoreError> {
        if self.suspect {
            // What was confirmed before the error does not depend on the log any more.
            if !self.empty_log()? {
                let (path, detail) = (self.path.clone(), "a reader holds up its log".into());
                return Err(StoreError::Disk { path, detail });
            }
            self.suspect = false;
        }
        let written = self.transact(records);
        if let Err(StoreError::Disk { .. }) = written {
            self.suspect = true;
        }
        if written.is_err() {
            // Counted, and not kept.
            self.logged.clear();
        }
        written?;
        self.bound_log();
        // SQLite goes on with a file that has no name any more, and the next psched would not find it.
        match file_at(&self.path) == Some(self.file) {
            true => Ok(()),
            false => Err(StoreError::Removed { path: self.path.clone() }),
        }
    }

    /// # Errors
    /// Why nothing was kept.
    fn transact(&mut self, records: &[&Record]) -> Result<(), StoreError> {
        let path = self.path.clone();
        let told = |e: rusqlite::Error| explain(&path, &e);
        let prune = self.since_prune >= PRUNE_EVERY;
        let transaction = self.connection.transaction().map_err(told)?;
        for record in records {
            put(&transaction, record, &mut self.logged).map_err(told)?;
        }
        // (With no records too this is a page to be written: so the store is tried after it has
        // failed.)
        let commits = count_commit(&transaction).map_err(told)?;
        if prune {
            let last = transaction
                .query_row(
                    "SELECT apid FROM application WHERE state = 'ended'
                     ORDER BY apid DESC LIMIT 1 OFFSET ?1",
                    [i64::try_from(self.history_max.max(1)).unwrap_or(i64::MAX)],
                    |r| r.get::<_, i64>(0),
                )
                .optional()
                .map_err(told)?
                .unwrap_or(i64::MIN);
            // The newest row stays whatever the bound says: the next number is made from it.
            transaction
                .execute(
                    "DELETE FROM event WHERE apid IN
                       (SELECT apid FROM application WHERE state = 'ended' AND apid <= ?1)",
                    [last],
                )
                .map_err(told)?;
            let most = self.records_user_max.load(Ordering::Relaxed);
            room::forget_of_users(&transaction, most, self.prunes).map_err(told)?;
            transaction
                .execute("DELETE FROM application WHERE state = 'ended' AND apid <= ?1", [last])
                .map_err(told)?;
        }
        transaction.commit().map_err(told)?;
        self.commits.store(commits, Ordering::Release);
        let weight: u64 = records.iter().map(|record| weight(record)).sum();
        self.prunes += u64::from(prune);
        self.since_prune = if prune { 0 } else { self.since_prune + weight };
        if prune || self.shrinks {
            // What was to be kept is kept: it can be made smaller another time.
            self.shrinks = room::shrink(&self.connection, room::PAGES_EACH).unwrap_or(false);
        }
        Ok(())
    }

    /// Keeps the log short.
    fn bound_log(&mut self) {
        let length = std::fs::metadata(log_of(&self.path)).map_or(0, |m| m.len());
        let due = self.next_emptying.is_none_or(|at| at <= Instant::now());
        if length > LOG_MAX && due {
            // A reader may hold it up for once; an error is one of the database's, and of what is in
            // the log nothing is lost.
            let emptied = self.empty_log().inspect_err(|why| tracing::warn!("{why}"));
            self.next_emptying =
                (!emptied.unwrap_or(false)).then(|| Instant::now() + EMPTYING_PAUSE);
        }
    }

    /// Copies everything in the log into the database, durably, so that it begins again. False: a
    /// reader holds it up.
    ///
    /// # Errors
    /// The disk fails.
    fn empty_log(&mut self) -> Result<bool, StoreError> {
        empty_log(&self.connection).map_err(|e| explain(&self.path, &e))
    }

    /// The number of commits that are durable. It goes with all that leaves psched for its nodes.
    pub fn commits(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.commits)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// After so many records it is looked for what is to be forgotten.
const PRUNE_EVERY: u64 = 1_000;

/// Large records count for more: so that what is kept beyond its bounds is bounded in bytes too.
fn weight(record: &Record) -> u64 {
    match record {
        Record::Posted(team) | Record::Adopted(team) => 1 + team.posting.kept_bytes() / 16_384,
        _ => 1,
    }
}

/// The database, in the state directory.
const FILE: &str = "psched.db";

/// Makes a state directory where it is missing, and holds it: nobody else has it as long as the
/// returned file is open.
fn take_directory(directory: &Path) -> Result<File, StoreError> {
    let in_directory = |source| StoreError::Directory { path: directory.into(), source };
    // Before anything is made there: what there is of the path.
    let absolute = std::path::absolute(directory).map_err(in_directory)?;
    absolute.ancestors().find(|d| d.is_dir()).map_or(Ok(()), check_trust)?;
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(in_directory)?;
    check_trust(directory)?;
    let lock = own_file(directory, "lock")?;
    match lock.try_lock() {
        Ok(()) => {
            shut_out_others(directory).map_err(in_directory)?;
            Ok(lock)
        }
        Err(std::fs::TryLockError::WouldBlock) => Err(StoreError::InUse(directory.into())),
        Err(std::fs::TryLockError::Error(e)) => Err(in_directory(e)),
    }
}

/// What is kept there has command lines and the secrets of launches. A copy of the directory may
/// have been made without its modes.
fn shut_out_others(directory: &Path) -> std::io::Result<()> {
    let close = |path: &Path, mode: u32| -> std::io::Result<()> {
        let found = path.symlink_metadata()?;
        if found.file_type().is_symlink() || found.mode() & 0o077 == 0 {
            return Ok(());
        }
        let shown = path.display();
        match std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)) {
            Ok(()) => {
                tracing::warn!("other users could read {shown}: its mode is {mode:o} now")
            }
            Err(error) => tracing::warn!(
                "other users can read {shown}: its mode can't be set: \
                                          {error}"
            ),
        }
        Ok(())
    };
    close(directory, 0o700)?;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            close(&entry.path(), 0o600)?;
        }
    }
    Ok(())
}

fn check_trust(directory: &Path) -> Result<(), StoreError> {
    let unsafe_place = |why| StoreError::Unsafe { path: directory.into(), why };
    trust::check_directory(directory).map_err(unsafe_place)
}

/// A file of its owner's alone, made where it is missing.
fn own_file(directory: &Path, name: &str) -> Result<File, StoreError> {
    let mut options = File::options();
    options.create(true).truncate(false).write(true).mode(0o600);
    let failed = |source| StoreError::Directory { path: directory.into(), source };
    options.open(directory.join(name)).map_err(failed)
}

/// Pages of the log after which it is copied into the database and begun again from its start.
const LOG_PAGES: i64 = 256;
/// Its size then, in bytes: a page of 4,096 and its header of 24 each.
const LOG_BYTES: u64 = LOG_PAGES as u64 * (4_096 + 24);

/// Its size, in bytes, at which it is emptied by force: a reader that goes on for long keeps it from being
/// begun again.
const LOG_MAX: u64 = 16 * LOG_BYTES;
/// Until that is tried again, where a reader holds it up: writers wait for it.
const EMPTYING_PAUSE: Duration = Duration::from_secs(10);

/// The log of a database.
fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

/// Copies everything in the log into the database, durably, so that it begins again. False: a reader
/// holds it up.
fn empty_log(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |r| {
        let (pages, copied): (i64, i64) = (r.get(1)?, r.get(2)?);
        Ok(pages == copied)
    })
}

/// Lets the log have its full size from the beginning. A sync of bytes that are written over costs
/// the file system its data only; where the file grows, its journal too: 0.4 ms instead of 0.15 for
/// each durable posting.
///
/// What an earlier life of psched has left in the log goes into the database first.
fn make_room(connection: &mut Connection, path: &Path) -> rusqlite::Result<()> {
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", LOG_PAGES * (4_096 + 24))?;
    empty_log(connection)?;
    if std::fs::metadata(log_of(path)).is_ok_and(|m| m.len() >= LOG_BYTES) {
        return Ok(());
    }
    // Through the log and out again; the pages in the database are used again for what comes.
    let transaction = connection.transaction()?;
    transaction.execute("CREATE TABLE room (bytes BLOB)", [])?;
    transaction.execute("INSERT INTO room VALUES (zeroblob(?1))", [LOG_PAGES * 4_096])?;
    transaction.commit()?;
    connection.execute_batch("DROP TABLE room; PRAGMA wal_checkpoint(RESTART);")
}

/// Starts of psched that are on record: a node that was away for more of them takes the next by its
/// number.
const STARTS_KEPT: i64 = 256;

fn starts(transaction: &rusqlite::Transaction<'_>) -> rusqlite::Result<Vec<Start>> {
    let mut rows = transaction.prepare(
        "SELECT epoch, id, commits FROM start LEFT JOIN start_commits USING (epoch) ORDER BY epoch",
    )?;
    let number = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    let row = |r: &rusqlite::Row<'_>| {
        Ok(Start { epoch: number(r.get(0)?), id: r.get(1)?, commits: number(r.get(2)?) })
    };
    rows.query_map([], row)?.collect()
}

/// Commits of the store so far; a store that no release has counted in yet has none.
fn commits(connection: &Connection) -> rusqlite::Result<i64> {
    let counted = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'commits'";
    Ok(connection.query_row(counted, [], |r| r.get(0)).optional()?.unwrap_or(0))
}

/// Counts this one, and says which it is.
fn count_commit(transaction: &rusqlite::Transaction<'_>) -> rusqlite::Result<u64> {
    transaction
        .prepare_cached(
            "INSERT INTO meta VALUES ('commits', 1)
             ON CONFLICT (key) DO UPDATE SET value = value + 1",
        )?
        .execute([])?;
    Ok(u64::try_from(commits(transaction)?).unwrap_or(0))
}

fn put(
    transaction: &rusqlite::Transaction<'_>,
    record: &Record,
    logged: &mut HashMap<Apid, u64>,
) -> rusqlite::Result<()> {
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    match record {
        Record::Posted(team) | Record::Adopted(team) => {
            if matches!(record, Record::Posted(_)) {
                transaction
                    .prepare_cached(
                        "UPDATE meta SET value = ?1
                         WHERE key = 'posted' AND CAST(value AS INTEGER) < ?1",
                    )?
                    .execute([number(team.apid.0)])?;
            }
            transaction
                .prepare_cached(
                    "INSERT OR REPLACE INTO application
                     (apid, state, uid, command, posted_at_ns, ended_at_ns, status, record)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                )?
                .execute(params![
                    number(team.apid.0),
                    team.state.name(),
                    team.owner.uid,
                    team.posting.command,
                    number(team.posted_at_ns),
                    number(team.ended_at_ns),
                    status(team),
                    records::encode(team),
                ])?;
        }
        Record::Update { team, .. } => {
            transaction
                .prepare_cached(
                    "UPDATE application SET state = ?2, ended_at_ns = ?3, status = ?4,
                     record = ?5 WHERE apid = ?1",
                )?
                .execute(params![
                    number(team.apid.0),
                    team.state.name(),
                    number(team.ended_at_ns),
                    status(team),
                    records::encode(team),
                ])?;
        }
        Record::Log { apid, at_ns, name, detail } => {
            put_event(transaction, *apid, *at_ns, (*name, detail.as_str()), logged)?;
        }
        Record::Boot(nids, boot_id) => {
            let mut statement =
                transaction.prepare_cached("INSERT OR REPLACE INTO boot VALUES (?1, ?2)")?;
            for nid in nids {
                statement.execute(params![nid.0, boot_id])?;
            }
        }
        Record::Nodes(nids, order) => {
            administration::put_nodes(transaction, nids, order.as_deref())?
        }
        Record::Flavors(nids, order) => {
            administration::put_flavors(transaction, nids, order.as_deref())?;
        }
        Record::Variable { name, set } => {
            administration::put_variable(transaction, name, set.as_ref())?;
        }
        Record::Change(change) => administration::put_change(transaction, change)?,
        Record::Shares(record) => shares::put(transaction, record)?,
    }
    Ok(())
}

/// Lines of an application's event log. Whatever more happens is counted in one line; its end has
/// its own.
const EVENTS_MAX: u64 = 1_000;
/// The line that counts.
const MORE: &str = "more";
/// The last line.
const ENDED: &str = "ended";
/// Applications whose lines are counted in memory: far more than there can be.
const LOGGED_MAX: usize = 100_000;

fn put_event(
    transaction: &rusqlite::Transaction<'_>,
    apid: Apid,
    at_ns: u64,
    (name, detail): (&str, &str),
    logged: &mut HashMap<Apid, u64>,
) -> rusqlite::Result<()> {
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let before = match logged.get(&apid) {
        Some(before) => *before,
        None => lines_of(transaction, apid)?,
    };
    if name == ENDED {
        logged.remove(&apid);
    } else {
        if logged.len() >= LOGGED_MAX {
            logged.clear();
        }
        logged.insert(apid, before.saturating_add(1));
    }
    if before < EVENTS_MAX || name == ENDED {
        transaction
            .prepare_cached(
                "INSERT INTO event (apid, at_ns, name, detail) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![number(apid.0), number(at_ns), name, detail])?;
        return Ok(());
    }
    let more = before - EVENTS_MAX + 1;
    let detail = format!("{more} further events are not kept (the last: {name})");
    let changed = transaction
        .prepare_cached(
            "UPDATE event SET at_ns = ?2, detail = ?4 WHERE number =
               (SELECT max(number) FROM event WHERE apid = ?1 AND name = ?3)",
        )?
        .execute(params![number(apid.0), number(at_ns), MORE, detail])?;
    if changed == 0 {
        transaction
            .prepare_cached(
                "INSERT INTO event (apid, at_ns, name, detail) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![number(apid.0), number(at_ns), MORE, detail])?;
    }
    Ok(())
}

/// How many lines the log of an application would have if all were kept.
fn lines_of(transaction: &rusqlite::Transaction<'_>, apid: Apid) -> rusqlite::Result<u64> {
    let apid = i64::try_from(apid.0).unwrap_or(i64::MAX);
    let lines: i64 = transaction
        .prepare_cached("SELECT count(*) FROM event WHERE apid = ?1 AND name <> ?2")?
        .query_row(params![apid, MORE], |row| row.get(0))?;
    let more: Option<String> = transaction
        .prepare_cached("SELECT detail FROM event WHERE apid = ?1 AND name = ?2")?
        .query_row(params![apid, MORE], |row| row.get(0))
        .optional()?;
    let more = more.and_then(|detail| detail.split(' ').next()?.parse().ok()).unwrap_or(0u64);
    Ok(u64::try_from(lines).unwrap_or(0).saturating_add(more))
}

fn status(team: &Apteam) -> Option<u8> {
    (team.state == State::Ended).then(|| team.end.as_ref().map_or(0, |e| e.status()))
}

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS application (
    apid INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    uid INTEGER NOT NULL,
    command TEXT NOT NULL,
    posted_at_ns INTEGER NOT NULL,
    ended_at_ns INTEGER NOT NULL,
    status INTEGER,
    record BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS application_ended ON application (ended_at_ns, apid)
    WHERE state = 'ended';
CREATE INDEX IF NOT EXISTS application_live ON application (apid) WHERE state <> 'ended';
CREATE TABLE IF NOT EXISTS event (
    number INTEGER PRIMARY KEY,
    apid INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,
    name TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS event_apid ON event (apid);
CREATE TABLE IF NOT EXISTS start (epoch INTEGER PRIMARY KEY, id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS start_commits (epoch INTEGER PRIMARY KEY, commits INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS boot (nid INTEGER PRIMARY KEY, boot_id TEXT NOT NULL);
";

/// Brings the tables of an earlier version to this one's.
fn upgrade(transaction: &rusqlite::Transaction<'_>, version: i64) -> rusqlite::Result<()> {
    if version < 2 {
        // Version 1 counted the postings that started past a waiting one. A new store has neither
        // table yet, and a store of an early release has no `set_aside`.
        for table in ["application", "set_aside"] {
            if transaction.column_exists(None, table, "passed_over")? {
                let drop = format!("ALTER TABLE {table} DROP COLUMN passed_over");
                transaction.execute(&drop, [])?;
            }
        }
    }
    Ok(())
}

/// What a row of an application that has not ended says.
///
/// # Errors
/// Why it can't be read.
fn restored_row(row: &rusqlite::Row<'_>) -> Result<Apteam, String> {
    let apid: i64 = row.get(0).map_err(|e| e.to_string())?;
    let blob: Vec<u8> = row.get(1).map_err(|e| e.to_string())?;
    let team = records::decode(&blob).map_err(|e| e.to_string())?;
    match i64::try_from(team.apid.0) == Ok(apid) {
        true => Ok(team),
        false => Err(format!("it is of application {}", team.apid)),
    }
}

/// No more can be written in the file system of this path, as far as the kernel says.
fn is_full(path: &Path) -> bool {
    /// SQLite writes more than a page: its log, and the map of that.
    const ROOM: u64 = 256 * 1024;
    rustix::fs::statvfs(path).is_ok_and(|s| {
        s.f_bavail.saturating_mul(s.f_frsize) < ROOM || s.f_files > 0 && s.f_favail == 0
    })
}

/// What SQLite calls a failed operation of a file.
fn operation(extended: i32) -> Option<&'static str> {
    use rusqlite::ffi;
    Some(match extended {
        ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_SHORT_READ => "reading",
        ffi::SQLITE_IOERR_WRITE => "writing",
        ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC => "fsync",
        ffi::SQLITE_IOERR_TRUNCATE => "truncating",
        ffi::SQLITE_IOERR_SHMOPEN
        | ffi::SQLITE_IOERR_SHMSIZE
        | ffi::SQLITE_IOERR_SHMMAP
        | ffi::SQLITE_IOERR_SHMLOCK => "mapping its log",
        _ => return None,
    })
}

/// Which file is there now, by device and inode.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// What SQLite's error means to an administrator.
fn explain(path: &Path, error: &rusqlite::Error) -> StoreError {
    let (path, mut detail) = (path.to_path_buf(), error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full { path },
        // Of some files SQLite only says that something went wrong with them.
        Some(ErrorCode::SystemIoFailure) if is_full(&path) => StoreError::Full { path },
        Some(ErrorCode::SystemIoFailure) => {
            let extended = error.sqlite_error().map_or(0, |e| e.extended_code);
            if let Some(operation) = operation(extended) {
                detail = format!("{detail}: {operation}");
            }
            StoreError::Disk { path, detail }
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Damaged { path, detail }
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            StoreError::ReadOnly { path, detail }
        }
        _ => StoreError::Failed { path, detail },
    }
}

/// 32 hexadecimal digits from the kernel.
fn random_id() -> std::io::Result<String> {
    let mut bytes = [0u8; 16];
    std::io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_others_could_read_is_shut() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        drop(take_directory(&state).expect("made"));
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
        };
        let file = state.join(FILE);
        std::fs::write(&file, "x").expect("written");
        let outside = folder.path().join("outside");
        std::fs::write(&outside, "x").expect("written");
        std::os::unix::fs::symlink(&outside, state.join("link")).expect("made");
        mode(&file, 0o644);
        mode(&outside, 0o644);
        mode(&state, 0o755);
        drop(take_directory(&state).expect("it may be used"));
        let found =
            [&state, &file, &outside].map(|path| path.metadata().expect("there").mode() & 0o777);
        assert_eq!(found, [0o700, 0o600, 0o644]);
    }
}
