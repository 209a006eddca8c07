//! Reading beside the writer: what is asked seldom, and too much to be kept in memory.

use super::{LogLine, StoreError, administration, explain, records};
use crate::apteam::Apid;
use crate::apteam::change::Change;
use crate::apteam::record::Apteam;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a question may take.
const READ_TIME: Duration = Duration::from_secs(20);

/// Reads history and logs.
pub struct Reader {
    connection: Connection,
    path: PathBuf,
}

impl Reader {
    /// Opens the store for reading.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn open(path: &Path) -> Result<Reader, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection =
            Connection::open_with_flags(path, flags).map_err(|e| explain(path, &e))?;
        connection.busy_timeout(Duration::from_secs(2)).map_err(|e| explain(path, &e))?;
        // As long as it reads, the log can't begin again.
        let end = Instant::now() + READ_TIME;
        connection
            .progress_handler(10_000, Some(move || Instant::now() >= end))
            .map_err(|e| explain(path, &e))?;
        Ok(Reader { connection, path: path.to_path_buf() })
    }

    /// One application, in whatever state.
    ///
    /// # Errors
    /// What is wrong with the store.
    pub fn team(&self, apid: Apid) -> Result<Option<Apteam>, StoreError> {
        let apid = i64::try_from(apid.0).unwrap_or(-1);
        let blob: Option<Vec<u8>> = self
            .connection
            .query_row("SELECT record FROM application WHERE apid = ?1", [apid], |r| r.get(0))
            .optional()
            .map_err(|e| explain(&self.path, &e))?;
        Ok(blob.and_then(|b| records::decode(&b).ok()))
    }

    /// The application of this user that has ended and was made of this posting. It looks through all
    /// that are kept: a question for when an answer was lost.
    ///
    /// # Errors
    /// What is wrong with the store.
    pub fn requested(&self, uid: u32, request_id: [u8; 16]) -> Result<Option<Apid>, StoreError> {
        let told = |e: rusqlite::Error| explain(&self.path, &e);
        let question = "SELECT record FROM application
                        WHERE state = 'ended' AND uid = ?1 AND instr(record, ?2) > 0";
        let mut rows = self.connection.prepare(question).map_err(told)?;
        let blob = |r: &rusqlite::Row<'_>| r.get::<_, Vec<u8>>(0);
        for row in rows.query_map(params![uid, &request_id[..]], blob).map_err(told)? {
            let team = records::decode(&row.map_err(told)?).ok();
            // The bytes might be something else's.
            if let Some(team) = team.filter(|team| team.posting.request_id == request_id) {
                return Ok(Some(team.apid));
            }
        }
        Ok(None)
    }

    /// Which of these numbers ended applications have.
    ///
    /// # Errors
    /// What is wrong with the store.
    pub fn which(&self, apids: BTreeSet<Apid>) -> Result<BTreeSet<Apid>, StoreError> {
        let told = |e: rusqlite::Error| explain(&self.path, &e);
        let question = "SELECT 1 FROM application WHERE apid = ?1 AND state = 'ended'";
        let mut known = self.connection.prepare(question).map_err(told)?;
        let mut which = BTreeSet::new();
        for apid in apids {
            if known.exists([i64::try_from(apid.0).unwrap_or(-1)]).map_err(told)? {
                which.insert(apid);
            }
        }
        Ok(which)
    }

    /// The newest ended applications, the newest first.
    ///
    /// # Errors
    /// What is wrong with the store.
    #[cfg(test)]
    pub fn history(&self, most: u32) -> Result<Vec<Apteam>, StoreError> {
        self.history_before(None, None, most)
    }

    /// The newest of those that ended before this one did (the time and its number), of all or of one user.
    ///
    /// # Errors
    /// What is wrong with the store.
    pub fn history_before(
        &self,
        before: Option<(u64, u64)>,
        uid: Option<u32>,
        most: u32,
    ) -> Result<Vec<Apteam>, StoreError> {
        let told = |e: rusqlite::Error| explain(&self.path, &e);
        let mut rows = self
            .connection
            .prepare(
                "SELECT record FROM application WHERE state = 'ended'
                 AND (ended_at_ns, apid) < (?1, ?2) AND (?3 IS NULL OR uid = ?3)
                 ORDER BY ended_at_ns DESC, apid DESC LIMIT ?4",
            )
            .map_err(told)?;
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let (at_ns, apid) = before.unwrap_or((u64::MAX, u64::MAX));
        let asked = params![number(at_ns), number(apid), uid, most];
        let rows = rows.query_map(asked, |r| r.get::<_, Vec<u8>>(0)).map_err(told)?;
        let mut teams = Vec::new();
        for row in rows {
            teams.extend(records::decode(&row.map_err(told)?).ok());
        }
        Ok(teams)
    }

    /// The newest changes by administrators, of those the oldest first.
    ///
    /// # Errors
    /// What is wrong with the store.
    pub fn changes(&self, most: u32) -> Result<Vec<Change>, StoreError> {
        administration::changes(&self.connection, most).map_err(|e| explain(&self.path, &e))
    }

    /// An application's event log, oldest line first, at most 10,000 lines.
    ///
    /// # Errors
    /// What is wrong with the store.
    #[cfg(test)]
    pub fn events(&self, apid: Apid) -> Result<Vec<LogLine>, StoreError> {
        self.events_after(apid, 0, 10_000)
    }

    /// The oldest lines of an application's event log behind that of this number.
    ///
    /// # Errors
    /// What is wrong with the store.
    pub fn events_after(
        &self,
        apid: Apid,
        number: u64,
        most: u32,
    ) -> Result<Vec<LogLine>, StoreError> {
        let told = |e: rusqlite::Error| explain(&self.path, &e);
        let mut rows = self
            .connection
            .prepare(
                "SELECT number, at_ns, name, detail FROM event WHERE apid = ?1 AND number > ?2
                 ORDER BY number LIMIT ?3",
            )
            .map_err(told)?;
        let signed = |n: u64, else_: i64| i64::try_from(n).unwrap_or(else_);
        let asked = params![signed(apid.0, -1), signed(number, i64::MAX), most];
        let rows = rows
            .query_map(asked, |r| {
                let count = |signed: i64| u64::try_from(signed).unwrap_or(0);
                let (number, at_ns) = (count(r.get(0)?), count(r.get(1)?));
                Ok(LogLine { number, at_ns, name: r.get(2)?, detail: r.get(3)? })
            })
            .map_err(told)?;
        rows.collect::<Result<_, _>>().map_err(told)
    }
}
