//! What administrators have said, in the store: nodes that are closed, or have been given flavors,
//! variables that are set, and the log of all changes.

use crate::apteam::change::{By, Change, Closed, FlavorOrder, NodeOrder};
use crate::machine::{Flavor, Flavors, Nid};
use crate::psched::decide::SetValue;
use rusqlite::{Connection, Result, Row, Transaction, params};
use std::collections::BTreeMap;

/// Changes that are kept: the newest.
pub const CHANGES_KEPT: i64 = 10_000;

pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS node (
    nid INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    uid INTEGER NOT NULL,
    user TEXT NOT NULL,
    at_ns INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS flavors (
    nid INTEGER PRIMARY KEY,
    flavors TEXT NOT NULL,
    uid INTEGER NOT NULL,
    user TEXT NOT NULL,
    at_ns INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS variable (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    uid INTEGER NOT NULL,
    user TEXT NOT NULL,
    at_ns INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS change (
    number INTEGER PRIMARY KEY,
    at_ns INTEGER NOT NULL,
    uid INTEGER NOT NULL,
    user TEXT NOT NULL,
    what TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL
);
";

/// Who and when, of three columns from this one on.
fn by(row: &Row<'_>, first: usize) -> Result<By> {
    let at_ns = u64::try_from(row.get::<_, i64>(first + 2)?).unwrap_or(0);
    Ok(By { uid: row.get(first)?, name: row.get(first + 1)?, at_ns })
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// What can be read of the rows of a table. One that can't be is named in the log, and left there: no
/// psched should fail to start for it.
pub(super) fn readable<T, C: FromIterator<T>>(
    rows: impl Iterator<Item = Result<T>>,
    table: &str,
) -> Result<C> {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
    let known = |row: &Result<T>| match row {
        Err(
            why @ (InvalidColumnType(..)
            | FromSqlConversionFailure(..)
            | IntegralValueOutOfRange(..)),
        ) => {
            tracing::error!("a row of the store's table {table} can't be read ({why}): left out");
            false
        }
        _ => true,
    };
    rows.filter(known).collect()
}

pub(super) fn closed(connection: &Connection) -> Result<BTreeMap<Nid, NodeOrder>> {
    let mut rows = connection.prepare("SELECT nid, state, reason, uid, user, at_ns FROM node")?;
    let row = |row: &Row<'_>| {
        // A way of closing that this release does not know: at least nothing new goes there.
        let closed = Closed::parse(&row.get::<_, String>(1)?).unwrap_or(Closed::Drained);
        Ok((Nid(row.get(0)?), NodeOrder { closed, reason: row.get(2)?, by: by(row, 3)? }))
    };
    readable(rows.query_map([], row)?, "node")
}

pub(super) fn put_nodes(
    transaction: &Transaction<'_>,
    nids: &[Nid],
    order: Option<&NodeOrder>,
) -> Result<()> {
    let Some(NodeOrder { closed, reason, by }) = order else {
        let mut statement = transaction.prepare_cached("DELETE FROM node WHERE nid = ?1")?;
        return nids.iter().try_for_each(|nid| statement.execute([nid.0]).map(|_| ()));
    };
    let mut statement = transaction
        .prepare_cached("INSERT OR REPLACE INTO node VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    for nid in nids {
        let at_ns = number(by.at_ns);
        statement.execute(params![nid.0, closed.name(), reason, by.uid, by.name, at_ns])?;
    }
    Ok(())
}

/// As signatures have it: `su os`.
pub(super) fn flavors(connection: &Connection) -> Result<BTreeMap<Nid, FlavorOrder>> {
    let mut rows = connection.prepare("SELECT nid, flavors, uid, user, at_ns FROM flavors")?;
    let row = |row: &Row<'_>| {
        let names = row.get::<_, String>(1)?;
        let flavors: Flavors = names.split(' ').filter_map(Flavor::parse).collect();
        Ok((Nid(row.get(0)?), FlavorOrder { flavors, by: by(row, 2)? }))
    };
    // Of flavors that only another release knows nothing is left: psched.yaml says what it has.
    let known = |row: &Result<(Nid, FlavorOrder)>| {
        !row.as_ref().is_ok_and(|(_, order)| order.flavors.is_empty())
    };
    readable(rows.query_map([], row)?.filter(known), "flavors")
}

pub(super) fn put_flavors(
    transaction: &Transaction<'_>,
    nids: &[Nid],
    order: Option<&FlavorOrder>,
) -> Result<()> {
    let Some(FlavorOrder { flavors, by }) = order else {
        let mut statement = transaction.prepare_cached("DELETE FROM flavors WHERE nid = ?1")?;
        return nids.iter().try_for_each(|nid| statement.execute([nid.0]).map(|_| ()));
    };
    let mut statement =
        transaction.prepare_cached("INSERT OR REPLACE INTO flavors VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let (flavors, at_ns) = (flavors.to_string(), number(by.at_ns));
    for nid in nids {
        statement.execute(params![nid.0, flavors, by.uid, by.name, at_ns])?;
    }
    Ok(())
}

pub(super) fn variables(connection: &Connection) -> Result<BTreeMap<String, SetValue>> {
    let mut rows = connection.prepare("SELECT name, value, uid, user, at_ns FROM variable")?;
    let row = |row: &Row<'_>| {
        Ok((row.get::<_, String>(0)?, SetValue { value: row.get(1)?, by: by(row, 2)? }))
    };
    readable(rows.query_map([], row)?, "variable")
}

pub(super) fn put_variable(
    transaction: &Transaction<'_>,
    name: &str,
    set: Option<&SetValue>,
) -> Result<()> {
    match set {
        None => transaction
            .prepare_cached("DELETE FROM variable WHERE name = ?1")?
            .execute([name])
            .map(|_| ()),
        Some(SetValue { value, by }) => transaction
            .prepare_cached("INSERT OR REPLACE INTO variable VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![name, value, by.uid, by.name, number(by.at_ns)])
            .map(|_| ()),
    }
}

pub(super) fn put_change(transaction: &Transaction<'_>, change: &Change) -> Result<()> {
    let Change { by, what, before, after } = change;
    transaction
        .prepare_cached(
            "INSERT INTO change (at_ns, uid, user, what, before, after)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![number(by.at_ns), by.uid, by.name, what, before, after])?;
    let oldest = transaction.last_insert_rowid() - CHANGES_KEPT;
    transaction
        .prepare_cached("DELETE FROM change WHERE number <= ?1")?
        .execute([oldest])
        .map(|_| ())
}

pub(super) fn changes(connection: &Connection, most: u32) -> Result<Vec<Change>> {
    let mut rows = connection.prepare(
        "SELECT uid, user, at_ns, what, before, after FROM change ORDER BY number DESC LIMIT ?1",
    )?;
    let row = |row: &Row<'_>| {
        let by = by(row, 0)?;
        Ok(Change { by, what: row.get(3)?, before: row.get(4)?, after: row.get(5)? })
    };
    let mut changes: Vec<Change> = rows.query_map([most], row)?.collect::<Result<_>>()?;
    changes.reverse();
    Ok(changes)
}
