//! The registered kinds and the columns of their sort keys.

use std::collections::{BTreeMap, BTreeSet};

use platform_engine::store::Put;

use crate::{
    batch::{BEGIN, COMMIT, ROLLBACK, statements::READ_SLOTS},
    commit::Homes,
    connection::Connection,
    error::Failure,
    locks::{LOCK, Locks},
    schema::{SLOTS, Slots},
};

pub(crate) const LOAD: &str = "SELECT s.kind, s.key, s.slot FROM slot s ORDER BY s.kind, s.slot, s.key";

/// Returns all registered kinds.
pub(crate) async fn load(connection: &Connection) -> Result<Slots, Failure> {
    let mut slots = Slots::default();
    for row in connection.query(LOAD, &[]).await? {
        let read = || Ok::<_, tokio_postgres::Error>((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
        let (kind, key, slot) = read().map_err(Failure::from)?;
        slots.add(kind, key, slot);
    }
    Ok(slots)
}

/// Registers the kinds of records, and their sort keys, in a transaction of its own that excludes all batches.
///
/// Records that were put before their kind got a key have its empty value, so that they get it in the key's column.
pub(crate) async fn register<'p>(
    connection: &Connection,
    salt: u64,
    puts: impl Iterator<Item = &'p Put>,
) -> Result<(), Failure> {
    let mut wanted: BTreeMap<&str, (bool, Vec<&str>)> = BTreeMap::new();
    for put in puts {
        let (queue, keys) = wanted.entry(put.key.kind).or_default();
        *queue |= put.queue;
        for (key, _) in &put.sort {
            if !keys.contains(key) {
                keys.push(key);
            }
        }
    }
    connection.execute(BEGIN, &[]).await?;
    let result = write(connection, salt, &wanted).await;
    let end = if result.is_ok() { COMMIT } else { ROLLBACK };
    connection.execute(end, &[]).await?;
    result
}

async fn write(connection: &Connection, salt: u64, wanted: &BTreeMap<&str, (bool, Vec<&str>)>) -> Result<(), Failure> {
    let Locks { keys, exclusive } = Locks::of(&Homes { everywhere: true, ..Homes::default() }, salt);
    connection.query(LOCK, &[&keys, &exclusive]).await?;
    let kinds: Vec<&str> = wanted.keys().copied().collect();
    let mut slots = Slots::default();
    for row in connection.query(READ_SLOTS, &[&kinds]).await? {
        slots.add(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    }
    for (kind, (queue, keys)) in wanted {
        let is_new = !slots.has_kind(kind);
        connection.execute(PUT_KIND, &[kind, &i32::from(*queue || slots.is_queue(kind))]).await?;
        let known: BTreeSet<&str> = slots.keys(kind).iter().map(String::as_str).collect();
        let mut next = known.len();
        for key in keys.iter().filter(|key| !known.contains(**key)) {
            // The row of the kind itself sorts first.
            let slot = i32::try_from(next).unwrap_or(i32::MAX).saturating_add(2);
            connection.execute(PUT_SLOT, &[kind, key, &slot]).await?;
            if !is_new && next < SLOTS {
                for table in ["record", "deep"] {
                    connection.execute(&fill(table, next), &[kind]).await?;
                }
            }
            next += 1;
        }
        if !is_new && next > known.len() {
            // The blocks are made again with the new orders.
            connection.execute(UNBLOCK, &[kind]).await?;
            connection.execute(DROP_BLOCKS, &[kind]).await?;
        }
    }
    Ok(())
}

/// Returns the statement that gives the records of a kind the empty value of a sort key.
fn fill(table: &str, slot: usize) -> String {
    let column = format!("s{}", slot + 1);
    format!("UPDATE {table} SET {column} = '' WHERE kind = $1 AND {column} IS NULL")
}

/// Returns all statements of registrations, and whether they are about the table of sort keys alone, for tests.
#[cfg(feature = "testing")]
pub(crate) fn every_statement() -> impl Iterator<Item = (String, bool)> {
    let copies = [PUT_KIND, PUT_SLOT].map(|sql| (sql.to_owned(), true));
    let everywhere = [DROP_BLOCKS, UNBLOCK].map(|sql| (sql.to_owned(), false));
    let fills = ["record", "deep"].into_iter().flat_map(|table| (0..SLOTS).map(move |slot| fill(table, slot)));
    copies.into_iter().chain(everywhere).chain(fills.map(|sql| (sql, false)))
}

const PUT_KIND: &str = "INSERT INTO slot (kind, key, slot) VALUES ($1, '', $2) \
     ON CONFLICT (kind, key) DO UPDATE SET slot = excluded.slot";
const PUT_SLOT: &str = "INSERT INTO slot (kind, key, slot) VALUES ($1, $2, $3)";
const DROP_BLOCKS: &str = "DELETE FROM block b USING tally t WHERE b.org = t.org AND b.list = t.list AND t.kind = $1";
/// Kept lists of filter values have no blocks, and are kept.
const UNBLOCK: &str = "UPDATE tally t SET blocked = false WHERE t.kind = $1 AND t.blocked AND EXISTS (SELECT FROM block b \
     WHERE b.org = t.org AND b.list = t.list)";
