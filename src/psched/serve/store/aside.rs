//! Rows of applications that can't be read: kept for whoever may mend them, and out of the way.

use crate::apteam::Apid;
use rusqlite::{Connection, Result, params};

/// Rows that are kept: the newest.
const KEPT: i64 = 1_000;

/// The columns of `application`, when it was set aside, and why.
pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS set_aside (
    apid INTEGER PRIMARY KEY,
    state, uid, command, posted_at_ns, ended_at_ns, status, record,
    at_ns INTEGER NOT NULL,
    why TEXT NOT NULL
);
";

/// The applications whose rows are kept here and that have not been put on record since, in ascending
/// order.
pub(super) fn all(connection: &Connection) -> Result<Vec<Apid>> {
    let mut rows = connection.prepare(
        "SELECT apid FROM set_aside
                 WHERE apid NOT IN (SELECT apid FROM application) ORDER BY apid",
    )?;
    let apids = rows.query_map([], |row| row.get::<_, i64>(0))?;
    apids.map(|apid| Ok(Apid(u64::try_from(apid?).unwrap_or_default()))).collect()
}

/// Takes these applications out of the table of those that psched goes on with.
pub(super) fn put(connection: &Connection, unreadable: &[(i64, String)]) -> Result<()> {
    if unreadable.is_empty() {
        return Ok(());
    }
    let at_ns = i64::try_from(crate::os::host::wall_ns()).unwrap_or(i64::MAX);
    let transaction = connection.unchecked_transaction()?;
    for (apid, why) in unreadable {
        transaction.execute(
            "INSERT OR REPLACE INTO set_aside
             SELECT apid, state, uid, command, posted_at_ns, ended_at_ns, status, record, ?2, ?3
             FROM application WHERE apid = ?1",
            params![apid, at_ns, why],
        )?;
        transaction.execute("DELETE FROM application WHERE apid = ?1", [apid])?;
        transaction.execute("DELETE FROM event WHERE apid = ?1", [apid])?;
    }
    // The newest of all stays: the next number is made from it.
    transaction.execute(
        "DELETE FROM set_aside WHERE apid NOT IN
           (SELECT apid FROM set_aside ORDER BY apid DESC LIMIT ?1)",
        [KEPT],
    )?;
    transaction.commit()
}
