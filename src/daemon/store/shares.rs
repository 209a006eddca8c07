//! What users and accounts have had, in the store.

use super::administration::readable;
use crate::gang::shares::REMEMBERED_MAX;
use crate::scheduler::Had;
use rusqlite::{Connection, Result, Row, Transaction, params};

pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS share (
    holder TEXT PRIMARY KEY,
    had_s REAL NOT NULL,
    at_ns INTEGER NOT NULL
) WITHOUT ROWID;
";

pub(super) fn all(connection: &Connection) -> Result<Vec<Had>> {
    let mut rows = connection.prepare("SELECT holder, had_s, at_ns FROM share ORDER BY holder")?;
    let row = |row: &Row<'_>| {
        let at_ns = u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0);
        Ok(Had { holder: row.get::<_, String>(0)?.into(), had_s: row.get(1)?, at_ns })
    };
    readable(rows.query_map([], row)?, "share")
}

/// Of more than psched remembers those go whose word is oldest.
pub(super) fn put(transaction: &Transaction<'_>, all: &[Had]) -> Result<()> {
    let mut statement =
        transaction.prepare_cached("INSERT OR REPLACE INTO share VALUES (?1, ?2, ?3)")?;
    for had in all {
        let at_ns = i64::try_from(had.at_ns).unwrap_or(i64::MAX);
        statement.execute(params![&*had.holder, had.had_s, at_ns])?;
    }
    let count: i64 = transaction.query_row("SELECT count(*) FROM share", [], |r| r.get(0))?;
    let over = count - i64::try_from(REMEMBERED_MAX).unwrap_or(i64::MAX);
    if over > 0 {
        transaction.execute(
            "DELETE FROM share WHERE holder IN (SELECT holder FROM share ORDER BY at_ns, holder LIMIT ?1)",
            [over],
        )?;
    }
    Ok(())
}
