//! Counted blocks: how many records of a long list lie in each stretch of an order, so that a skip does not read what it
//! passes over.
//!
//! A list of more than 4,096 records has blocks of up to 1,024 records in each order (level 1), and groups of 64 of
//! them (level 2). Batches keep the counts exact. This module makes, divides and drops blocks, in transactions of its
//! own after a batch that made it necessary.

use platform_engine::store::order::sequence_of;
use platform_engine::store::order::sequence_value;
use tokio_postgres::types::ToSql;

use crate::{
    batch::{BEGIN, COMMIT, ROLLBACK},
    changes::Delta,
    commit::Homes,
    connection::Connection,
    error::Failure,
    locks::{LOCK, Locks},
    query::statements::BOUNDARIES,
    registry,
    schema::{Column, List},
    shared::Shared,
};

/// A list has blocks when it is longer than this.
pub(crate) const LONG: i64 = 4_096;
/// A list that is shorter than this loses its blocks.
pub(crate) const SHORT: i64 = 1_024;
/// The length of a new block.
const NEW: i64 = 512;
/// The greatest length of a block.
pub(crate) const MOST: i64 = 1_024;
/// The number of blocks that form a block of level 2.
const GROUP: usize = 64;

/// A block: its first position and its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) low: Vec<u8>,
    pub(crate) uid: String,
    pub(crate) n: i64,
}

/// Brings the blocks of a list into shape.
pub(crate) async fn maintain(shared: &Shared, list: List, delta: &Delta) -> Result<(), Failure> {
    // Long lists are divided in one transaction.
    let connection = shared.database.attempts().writer().await?.unlimited();
    connection.execute(BEGIN, &[]).await?;
    let result = maintain_in(&connection, shared.salt, list, delta).await;
    let end = if result.is_ok() { COMMIT } else { ROLLBACK };
    match connection.execute(end, &[]).await {
        Ok(_) => result,
        Err(failure) => {
            connection.close();
            result.and(Err(failure))
        }
    }
}

pub(crate) const READ_TALLY: &str = "SELECT t.direct + t.deep, t.blocked FROM tally t WHERE t.org = $1 AND t.list = $2";
pub(crate) const READ_TOP: &str = "SELECT count(*) FROM record r WHERE r.org = $1 AND r.kind = $2 AND r.uid = $3";
pub(crate) const READ_BLOCKS: &str = "SELECT b.low, b.low_uid, b.n FROM block b \
     WHERE b.org = $1 AND b.list = $2 AND b.ord = $3 AND b.level = $4 ORDER BY b.low, b.low_uid";
pub(crate) const DELETE_BLOCKS: &str = "DELETE FROM block b WHERE b.org = $1 AND b.list = $2";
pub(crate) const DELETE_SOME: &str = "DELETE FROM block b USING unnest($4::bytea[], $5::text[]) k(low, uid) \
     WHERE b.org = $1 AND b.list = $2 AND b.ord = $3 AND b.level = 1 AND b.low = k.low AND b.low_uid = k.uid";
pub(crate) const DELETE_GROUPS: &str =
    "DELETE FROM block b WHERE b.org = $1 AND b.list = $2 AND b.ord = $3 AND b.level = 2";
pub(crate) const PUT_BLOCKS: &str = "INSERT INTO block (org, list, ord, level, low, low_uid, n) SELECT * FROM \
     unnest($1::int8[], $2::uuid[], $3::int4[], $4::int4[], $5::bytea[], $6::text[], $7::int4[])";
pub(crate) const SET_BLOCKED: &str = "UPDATE tally SET blocked = $3 WHERE org = $1 AND list = $2";

async fn maintain_in(connection: &Connection, salt: u64, list: List, delta: &Delta) -> Result<(), Failure> {
    let locks = Locks::of(&Homes { written: [list.org].into(), ..Homes::default() }, salt);
    connection.query(LOCK, &[&locks.keys, &locks.exclusive]).await?;
    let rows = connection.query(READ_TALLY, &[&list.org, &list.id]).await?;
    let Some(tally) = rows.first() else { return Ok(()) };
    let (length, is_blocked): (i64, bool) = (tally.try_get(0)?, tally.try_get(1)?);
    if if is_blocked { length < SHORT } else { length <= LONG } {
        connection.execute(DELETE_BLOCKS, &[&list.org, &list.id]).await?;
        connection.execute(SET_BLOCKED, &[&list.org, &list.id, &false]).await?;
        return Ok(());
    }
    let slots = registry::load(connection).await?;
    let mut delta = delta.clone();
    if slots.is_queue(delta.kind) {
        // Batches do not count the record at the top of a queue's list, which is only listed by its children.
        delta.top.clear();
    }
    let used = Column::INDEXED.into_iter().take(2 + slots.used(delta.kind));
    for column in used {
        let old = if is_blocked {
            read(connection, list, column, 1).await?
        } else {
            let top = connection.query(READ_TOP, &[&list.org, &delta.kind, &delta.top]).await?;
            let top: i64 = top.first().map_or(Ok(0), |row| row.try_get(0))?;
            vec![Block { low: Vec::new(), uid: String::new(), n: length + top }]
        };
        let new = divided(connection, list, &delta, column, &old).await?;
        if is_blocked && new == old {
            continue;
        }
        let gone: Vec<&Block> = old.iter().filter(|block| !new.contains(block)).collect();
        let lows: Vec<&[u8]> = gone.iter().map(|block| &*block.low).collect();
        let uids: Vec<&str> = gone.iter().map(|block| &*block.uid).collect();
        connection.execute(DELETE_SOME, &[&list.org, &list.id, &column.number(), &lows, &uids]).await?;
        let added: Vec<Block> = new.iter().filter(|block| !is_blocked || !old.contains(block)).cloned().collect();
        put(connection, list, column, 1, &added).await?;
        connection.execute(DELETE_GROUPS, &[&list.org, &list.id, &column.number()]).await?;
        put(connection, list, column, 2, &groups(&new)).await?;
    }
    connection.execute(SET_BLOCKED, &[&list.org, &list.id, &true]).await?;
    Ok(())
}

/// Returns the blocks of level 2.
fn groups(blocks: &[Block]) -> Vec<Block> {
    let group = |of: &[Block]| {
        let first = of.first()?;
        Some(Block { n: of.iter().map(|block| block.n).sum(), ..first.clone() })
    };
    blocks.chunks(GROUP).filter_map(group).collect()
}

/// Reads the blocks of one level of an order.
pub(crate) async fn read(
    connection: &Connection,
    list: List,
    column: Column,
    level: i32,
) -> Result<Vec<Block>, Failure> {
    let rows = connection.query(READ_BLOCKS, &[&list.org, &list.id, &column.number(), &level]).await?;
    let block = |row: &tokio_postgres::Row| {
        Ok(Block { low: row.try_get(0)?, uid: row.try_get(1)?, n: row.try_get::<_, i32>(2)?.into() })
    };
    rows.iter().map(block).collect()
}

async fn put(connection: &Connection, list: List, column: Column, level: i32, blocks: &[Block]) -> Result<(), Failure> {
    let lows: Vec<&[u8]> = blocks.iter().map(|block| &*block.low).collect();
    let uids: Vec<&str> = blocks.iter().map(|block| &*block.uid).collect();
    let counts: Vec<i32> = blocks.iter().map(|block| i32::try_from(block.n).unwrap_or(i32::MAX)).collect();
    let (orgs, lists) = (vec![list.org; blocks.len()], vec![list.id; blocks.len()]);
    let (orders, levels) = (vec![column.number(); blocks.len()], vec![level; blocks.len()]);
    let params: [&(dyn ToSql + Sync); 7] = [&orgs, &lists, &orders, &levels, &lows, &uids, &counts];
    connection.execute(PUT_BLOCKS, &params).await?;
    Ok(())
}

/// Returns the blocks without those that are empty, except the first, and with those divided that are too long.
async fn divided(
    connection: &Connection,
    list: List,
    delta: &Delta,
    column: Column,
    blocks: &[Block],
) -> Result<Vec<Block>, Failure> {
    let mut new = Vec::with_capacity(blocks.len());
    for (index, block) in blocks.iter().enumerate() {
        if block.n > MOST {
            new.extend(divide(connection, list, delta, column, block).await?);
        } else if block.n > 0 || index == 0 {
            new.push(block.clone());
        }
    }
    Ok(new)
}

/// Returns a position's value as a parameter of the type that the order compares.
pub(crate) fn value(column: Column, low: &[u8]) -> Box<dyn ToSql + Sync + Send> {
    match (column, <[u8; 8]>::try_from(low)) {
        (Column::Sequence, Ok(value)) => Box::new(sequence_of(value).cast_signed()),
        (Column::Sequence, Err(_)) => Box::new(i64::MIN),
        _ => Box::new(low.to_vec()),
    }
}

async fn divide(
    connection: &Connection,
    list: List,
    delta: &Delta,
    column: Column,
    block: &Block,
) -> Result<Vec<Block>, Failure> {
    let Some(statement) = BOUNDARIES.get(&column) else { return Ok(vec![block.clone()]) };
    let low = value(column, &block.low);
    let params: [&(dyn ToSql + Sync); 8] =
        [&list.org, &list.id, &delta.kind, &*low, &block.uid, &block.n, &NEW, &delta.top];
    let rows = connection.query(statement, &params).await?;
    let mut parts = vec![Block { n: NEW, ..block.clone() }];
    for row in &rows {
        let low = match column {
            Column::Uid => Vec::new(),
            Column::Sequence => sequence_value(row.try_get::<_, i64>(0)?.cast_unsigned()).to_vec(),
            _ => row.try_get(0)?,
        };
        parts.push(Block { low, uid: row.try_get(1)?, n: NEW });
    }
    // The last part has the rest, and is joined with the one before if it is short.
    let rest = block.n - NEW * (i64::try_from(parts.len()).unwrap_or(i64::MAX) - 1);
    if let Some(last) = parts.last_mut() {
        last.n = rest;
    }
    if rest < NEW / 2 && parts.len() > 1 {
        parts.pop();
        if let Some(last) = parts.last_mut() {
            last.n += rest;
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_the_sums_of_their_blocks() {
        let block = |number: u8| Block { low: vec![number], uid: String::new(), n: number.into() };
        let all: Vec<Block> = (0..100).map(block).collect();
        let sums: Vec<i64> = groups(&all).iter().map(|group| group.n).collect();
        assert_eq!(sums, [(0..64).sum::<i64>(), (64..100).sum()]);
        assert_eq!(groups(&all)[1].low, [64]);
    }
}
