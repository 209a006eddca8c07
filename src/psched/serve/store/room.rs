//! How large the file is: what one user's records may take of it, and how it gets smaller again.

use rusqlite::{Connection, Transaction};

/// Pages given back to the file system with one commit: a few milliseconds.
pub(super) const PAGES_EACH: i64 = 512;
/// The same when psched starts.
pub(super) const PAGES_AT_START: i64 = 65_536;
/// Free pages that are kept, for what comes next: more than the log has.
const PAGES_KEPT: i64 = 1_024;
/// Bytes of a page.
const PAGE_BYTES: u64 = 4_096;
/// A file of so many bytes is large.
const LARGE: u64 = 256 << 20;
/// The largest file, in pages, that is written anew once so that it can get smaller.
const PAGES_ANEW: i64 = 524_288;

/// Lets pages that are free be given back to the file system. A file of an older release is written anew for
/// that, once; where that fails it stays as it is.
pub(super) fn may_shrink(connection: &Connection) {
    let number = |pragma: &str| -> rusqlite::Result<i64> {
        connection.query_row(&format!("PRAGMA {pragma}"), [], |r| r.get(0))
    };
    let anew = || -> rusqlite::Result<()> {
        const INCREMENTAL: i64 = 2;
        if number("auto_vacuum")? == INCREMENTAL {
            return Ok(());
        }
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")?;
        match number("page_count")? {
            1..=PAGES_ANEW => connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)"),
            _ => Ok(()),
        }
    };
    if let Err(error) = anew() {
        tracing::warn!(%error, "the store can't be compacted: it does not get smaller");
    }
}

/// Forgets of each user's ended applications the oldest, so that the records of the others take at most so
/// many bytes. The newest row of all stays: the next number is made from it. All rows are looked at, so in a
/// large file this is done seldom; `turn` counts the times that it was asked for.
pub(super) fn forget_of_users(
    transaction: &Transaction<'_>,
    most: u64,
    turn: u64,
) -> rusqlite::Result<()> {
    let pages: u32 = transaction.query_row("PRAGMA page_count", [], |r| r.get(0))?;
    let in_all = u64::from(pages) * PAGE_BYTES;
    if in_all <= most || !turn.is_multiple_of(1 + in_all / LARGE) {
        return Ok(());
    }
    let mut forgotten = transaction.prepare(
        "DELETE FROM application WHERE apid < (SELECT max(apid) FROM application) AND apid IN
           (SELECT apid FROM
             (SELECT apid, sum(1024 + length(record) + 2 * length(command))
                OVER (PARTITION BY uid ORDER BY apid DESC) AS bytes
              FROM application WHERE state = 'ended')
            WHERE bytes > ?1)
         RETURNING apid",
    )?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let apids: Vec<i64> =
        forgotten.query_map([most], |r| r.get(0))?.collect::<rusqlite::Result<_>>()?;
    let mut events = transaction.prepare_cached("DELETE FROM event WHERE apid = ?1")?;
    apids.into_iter().try_for_each(|apid| events.execute([apid]).map(|_| ()))
}

/// Gives at most so many free pages back to the file system, where many are free. Whether there are more.
pub(super) fn shrink(connection: &Connection, most: i64) -> rusqlite::Result<bool> {
    let number = |pragma: &str| -> rusqlite::Result<i64> {
        connection.query_row(&format!("PRAGMA {pragma}"), [], |r| r.get(0))
    };
    let (free, pages) = (number("freelist_count")?, number("page_count")?);
    let kept = PAGES_KEPT.max((pages - free) / 4);
    let over = free - kept;
    if over <= 0 {
        return Ok(false);
    }
    let mut statement =
        connection.prepare(&format!("PRAGMA incremental_vacuum({})", over.min(most)))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(over > most)
}
