//! What users and accounts have had, in the store.

use super::administration::readable;
use crate::apteam::Apid;
use crate::gang::shares::REMEMBERED_MAX;
use crate::psched::decide::{HolderUsage, SharesRecord};
use rusqlite::{Connection, Result, Row, Transaction, params};
use std::time::Duration;

pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS share (
    holder TEXT PRIMARY KEY,
    had_s REAL NOT NULL,
    at_ns INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS charged (apid INTEGER PRIMARY KEY, ran_ns INTEGER NOT NULL);
";

fn number(row: &Row<'_>, at: usize) -> Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(at)?).unwrap_or(0))
}

pub(super) fn all(connection: &Connection) -> Result<SharesRecord> {
    let mut rows = connection.prepare("SELECT holder, had_s, at_ns FROM share ORDER BY holder")?;
    let row = |row: &Row<'_>| {
        let holder = row.get::<_, String>(0)?.into();
        Ok(HolderUsage { holder, had_s: row.get(1)?, at_ns: number(row, 2)? })
    };
    let had = readable(rows.query_map([], row)?, "share")?;
    let mut rows = connection.prepare("SELECT apid, ran_ns FROM charged ORDER BY apid")?;
    let row = |row: &Row<'_>| Ok((Apid(number(row, 0)?), Duration::from_nanos(number(row, 1)?)));
    Ok(SharesRecord { had, charged: readable(rows.query_map([], row)?, "charged")? })
}

/// Of more than psched remembers those go whose word is oldest.
pub(super) fn put(transaction: &Transaction<'_>, record: &SharesRecord) -> Result<()> {
    let number = |of: u64| i64::try_from(of).unwrap_or(i64::MAX);
    let mut statement =
        transaction.prepare_cached("INSERT OR REPLACE INTO share VALUES (?1, ?2, ?3)")?;
    for had in &record.had {
        statement.execute(params![&*had.holder, had.had_s, number(had.at_ns)])?;
    }
    let count: i64 = transaction.query_row("SELECT count(*) FROM share", [], |r| r.get(0))?;
    let over = count - i64::try_from(REMEMBERED_MAX).unwrap_or(i64::MAX);
    if over > 0 {
        transaction.execute(
            "DELETE FROM share WHERE holder IN (SELECT holder FROM share ORDER BY at_ns, holder LIMIT ?1)",
            [over],
        )?;
    }
    transaction.execute("DELETE FROM charged", [])?;
    let mut statement =
        transaction.prepare_cached("INSERT OR REPLACE INTO charged VALUES (?1, ?2)")?;
    for (apid, ran) in &record.charged {
        let ran_ns = u64::try_from(ran.as_nanos()).unwrap_or(u64::MAX);
        statement.execute([number(apid.0), number(ran_ns)])?;
    }
    Ok(())
}
