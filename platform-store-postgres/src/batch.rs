//! One transaction of a lane: it takes locks, reads what its commits depend on, and writes what they change. Statements
//! are pipelined, so that it takes two round trips.

mod reads;
pub(crate) mod statements;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures_util::future::join_all;
use platform_engine::{
    store::{Commit, Conflict, Key},
    uid::Uid,
};
use tokio_postgres::{Row, Statement, types::ToSql};
use uuid::Uuid;

use self::{
    reads::Reads,
    statements::{MOST_BELOW, PUT_BATCH, READ_BELOW, READ_BLOCKED, READ_HEADS},
};
use crate::{
    changes::{self, Changes, Delta},
    commit::{Homes, State, Stored},
    connection::{Connection, Params},
    error::Failure,
    joined::{self, Found, join_reads, join_writes},
    locks::{LOCK, Locks},
    rows::{Call, Calls, DELETE_OWNERS, PUT_OWNERS, Range, Row as _, TallyKey},
    schema::{self, List, Org},
    split::{self, Part, Value},
};

/// The result of an attempt to commit a batch.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// The batch is durable: the outcome of each commit, the lists whose blocks have to be changed, and whether rows of
    /// several organizations were written.
    Done(Vec<Result<i64, Conflict>>, Vec<(List, Delta)>, bool),
    /// A kind or a sort key is not registered; nothing was written.
    Unregistered,
    /// Nothing was written.
    Failed(Failure),
    /// It is not known whether the batch was written. If it was, these are the outcomes.
    Unknown(Failure, Vec<Result<i64, Conflict>>),
}

/// The most statements that are sent without waiting for the results of those before, which bounds what is buffered.
const AT_ONCE: usize = 24;

/// Sends the statements one after another without waiting for their results, and returns the results.
pub(crate) async fn pipeline<S: AsRef<str>>(
    connection: &Connection,
    calls: &[(S, Params)],
) -> Result<Vec<Result<Vec<Row>, tokio_postgres::Error>>, Failure> {
    send(connection, &prepare(connection, calls).await?).await
}

/// A prepared statement and its parameters, and the number of the call that it is a part of.
type Prepared<'p> = (usize, Statement, Vec<Value<'p>>);

async fn prepare<'p, S: AsRef<str>>(
    connection: &Connection,
    calls: &'p [(S, Params)],
) -> Result<Vec<Prepared<'p>>, Failure> {
    let mut prepared = Vec::with_capacity(calls.len());
    for (call, (sql, params)) in calls.iter().enumerate() {
        let (sql, params) = (sql.as_ref(), refs(params));
        let parts =
            if connection.is_distributed() { split::parts(sql, &params)? } else { vec![Part::whole(sql, &params)] };
        for Part { sql, params } in parts {
            prepared.push((call, connection.prepare(&sql).await?, params));
        }
    }
    Ok(prepared)
}

async fn send(
    connection: &Connection,
    prepared: &[Prepared<'_>],
) -> Result<Vec<Result<Vec<Row>, tokio_postgres::Error>>, Failure> {
    let client = connection.client()?;
    let mut calls: Vec<Result<Vec<Row>, tokio_postgres::Error>> = Vec::new();
    for part in prepared.chunks(AT_ONCE) {
        let params: Vec<Vec<&(dyn ToSql + Sync)>> = part.iter().map(|(.., params)| split::refs(params)).collect();
        // The first poll of each, which is in this order, sends it.
        let running = part.iter().zip(&params).map(|((_, statement, _), params)| client.query(statement, params));
        let results = connection.run(join_all(running)).await?;
        for ((call, ..), result) in part.iter().zip(results) {
            calls.resize_with(calls.len().max(call + 1), || Ok(Vec::new()));
            match (calls.get_mut(*call), result) {
                (Some(Ok(rows)), Ok(more)) => rows.extend(more),
                (Some(first @ Ok(_)), Err(error)) => *first = Err(error),
                (Some(Err(_)) | None, _) => {}
            }
        }
    }
    Ok(calls)
}

/// Returns the first error of a pipeline, or else all rows. Only the first error is the cause: it aborts the
/// transaction, which makes the other statements fail.
pub(crate) fn all_of(results: Vec<Result<Vec<Row>, tokio_postgres::Error>>) -> Result<Vec<Vec<Row>>, Failure> {
    results.into_iter().map(|result| result.map_err(Failure::from)).collect()
}

pub(crate) const BEGIN: &str = "BEGIN";
pub(crate) const COMMIT: &str = "COMMIT";
pub(crate) const ROLLBACK: &str = "ROLLBACK";

/// A batch: its commits, what each of them touches, and the identifier of its row.
#[derive(Debug)]
pub(crate) struct Batch<'c> {
    pub(crate) commits: &'c [Commit],
    pub(crate) each: Vec<Homes>,
    /// The union of the homes of all commits.
    pub(crate) homes: Homes,
    pub(crate) id: Uuid,
}

impl<'c> Batch<'c> {
    pub(crate) fn new(commits: &'c [Commit], id: Uuid) -> Self {
        let each: Vec<Homes> = commits.iter().map(Homes::of).collect();
        let mut homes = Homes::default();
        each.iter().for_each(|one| homes.extend(one));
        Self { commits, each, homes, id }
    }

    /// Returns the organization of the batch's row.
    pub(crate) fn org(&self) -> Org {
        self.homes.written.first().copied().unwrap_or_else(schema::installation)
    }

    /// Returns the statement that takes the batch's locks.
    pub(crate) fn lock(&self, salt: u64) -> Call {
        let Locks { keys, exclusive } = Locks::of(&self.homes, salt);
        (LOCK, vec![Box::new(keys), Box::new(exclusive)])
    }

    /// Makes one attempt to commit the batch. `now` is the time in microseconds.
    pub(crate) async fn attempt(&self, connection: &Connection, salt: u64, now: i64) -> Attempt {
        let (mut state, blocked) = match self.read(connection, salt).await {
            Ok(read) => read,
            Err(failure) => return abandon(connection, failure).await,
        };
        let unregistered = self.commits.iter().flat_map(|commit| &commit.put).any(|put| {
            let kind = put.key.kind;
            !state.slots.has_kind(kind)
                || put.queue && !state.slots.is_queue(kind)
                || put.sort.iter().any(|(key, _)| !state.slots.knows(kind, key))
        });
        if unregistered {
            return match connection.execute(ROLLBACK, &[]).await {
                Ok(_) => Attempt::Unregistered,
                Err(failure) => Attempt::Failed(failure),
            };
        }
        let commits = self.commits.iter().zip(&self.each);
        let outcomes: Vec<_> = commits.map(|(commit, homes)| state.decide(commit, homes, now)).collect();
        if outcomes.iter().all(Result::is_err) {
            return match connection.execute(ROLLBACK, &[]).await {
                Ok(_) => Attempt::Done(outcomes, Vec::new(), false),
                Err(failure) => Attempt::Failed(failure),
            };
        }
        let mut changes = Changes::of(&state, salt);
        let (known, mut blocked) = blocked;
        let lists = changes.lists.keys().copied().chain(changes.any_filtered());
        let unknown: BTreeSet<List> = lists.filter(|list| !known.contains(list)).collect();
        match read_blocked(connection, unknown).await {
            Ok(others) => blocked.extend(others),
            Err(failure) => return abandon(connection, failure).await,
        }
        match read_blocked(connection, changes.maybe_filtered(&state, &blocked)).await {
            Ok(kept) => changes.filter(&state, kept),
            Err(failure) => return abandon(connection, failure).await,
        }
        changes.shift(&state, &blocked);
        self.write(connection, &state, &changes, outcomes).await
    }

    /// Takes the locks, and then reads the state before the batch: each statement sees what was committed before it
    /// began. Returns the lists of which it is known whether they have blocks, and those that have.
    async fn read(
        &self,
        connection: &Connection,
        salt: u64,
    ) -> Result<(State, (BTreeSet<List>, BTreeSet<List>)), Failure> {
        let reads = Reads::of(self, salt, connection.is_distributed());
        let mut calls = vec![(BEGIN, Vec::new()), self.lock(salt)];
        calls.extend(reads.calls());
        if !connection.is_distributed() {
            calls = join_reads(calls);
        }
        let mut results = all_of(pipeline(connection, &calls).await?)?;
        let mut state = State::default();
        let first = calls.iter().position(|(sql, _)| *sql == READ_BELOW).and_then(|index| results.get_mut(index));
        let first = first.map(std::mem::take).unwrap_or_default();
        read_ranges(connection, &mut state, reads.below.clone(), first).await?;
        let rows = |sql: &str| joined::rows_of(sql, &calls, &results);
        reads.add_to(&mut state, rows)?;
        let blocked = rows(READ_BLOCKED)?.into_iter().map(list).collect::<Result<_, _>>()?;
        if !reads.with.is_empty() {
            // The organizations of these records were not known before.
            let orgs: BTreeSet<Org> = state.records.keys().map(|key| schema::organization(&key.uid)).collect();
            let orgs: Vec<Org> = orgs.into_iter().collect();
            for row in connection.query(READ_HEADS, &[&orgs]).await? {
                state.heads.insert(row.try_get(0)?, row.try_get(1)?);
            }
        }
        Ok((state, (reads.lists, blocked)))
    }

    /// Writes the changes and commits the transaction.
    async fn write(
        &self,
        connection: &Connection,
        state: &State,
        changes: &Changes,
        outcomes: Vec<Result<i64, Conflict>>,
    ) -> Attempt {
        let params: Params = vec![Box::new(self.org()), Box::new(self.id)];
        let mut calls = vec![(PUT_BATCH, params)];
        calls.extend(changes::calls(state, changes));
        calls.push((COMMIT, Vec::new()));
        // A unique key is in an organization of its own.
        let has_owners = calls.iter().any(|(sql, _)| [PUT_OWNERS, DELETE_OWNERS].contains(sql));
        let is_spread = self.homes.written.len() > 1 || has_owners;
        if !connection.is_distributed() {
            calls = join_writes(calls);
        }
        let prepared = match prepare(connection, &calls).await {
            Ok(prepared) => prepared,
            // None was sent.
            Err(failure) => return abandon(connection, failure).await,
        };
        let results = send(connection, &prepared).await;
        // An error of COMMIT itself is that of a node of Citus, which may have committed.
        let is_unknown = connection.is_distributed()
            && results.as_ref().is_ok_and(|results| {
                results.split_last().is_some_and(|(commit, before)| commit.is_err() && before.iter().all(Result::is_ok))
            });
        match results.and_then(all_of) {
            Ok(rows) => {
                let mut changed: BTreeMap<List, Delta> = BTreeMap::new();
                // Only the statements about lists return rows.
                for row in rows.iter().flatten() {
                    let row = Found::whole(row);
                    let (Ok(list), Ok(true)) = (list(row), row.try_get(2)) else { continue };
                    changed.extend(changes.lists.get(&list).map(|delta| (list, delta.clone())));
                }
                Attempt::Done(outcomes, changed.into_iter().collect(), is_spread)
            }
            Err(failure @ (Failure::Lost(_) | Failure::Late(_))) => Attempt::Unknown(failure, outcomes),
            Err(failure) if is_unknown => Attempt::Unknown(failure, outcomes),
            // The statement COMMIT ended the aborted transaction.
            Err(failure) => Attempt::Failed(failure),
        }
    }
}

/// Ends the transaction after an error.
async fn abandon(connection: &Connection, failure: Failure) -> Attempt {
    if matches!(failure, Failure::Lost(_) | Failure::Late(_)) {
        return Attempt::Failed(failure);
    }
    match connection.execute(ROLLBACK, &[]).await {
        Ok(_) => Attempt::Failed(failure),
        Err(lost) => Attempt::Failed(lost),
    }
}

/// Adds the records of ranges to the state, of which the first rows were read. The others are read in parts, so that
/// their rows are not in memory together.
async fn read_ranges(
    connection: &Connection,
    state: &mut State,
    mut ranges: Vec<Range>,
    mut rows: Vec<Row>,
) -> Result<(), Failure> {
    while !ranges.is_empty() {
        let mut found: HashMap<i64, (usize, String)> = HashMap::new();
        for row in rows.iter().map(Found::whole) {
            let Some(range) = at(&ranges, row)? else { continue };
            let uid: &str = row.try_get(1)?;
            let key = Key::new(range.kind, Uid::opaque(uid));
            state.records.entry(key).or_default().before = Some(stored(row)?);
            let (count, last) = found.entry(row.try_get(0)?).or_default();
            *count += 1;
            uid.clone_into(last);
        }
        // Those of which there may be more.
        let more = ranges.into_iter().zip(1_i64..).filter_map(|(range, place)| {
            let (_, last) = found.remove(&place).filter(|(count, _)| *count >= MOST_BELOW)?;
            Some(Range { low: last, ..range })
        });
        ranges = more.collect();
        if !ranges.is_empty() {
            rows = connection.query(READ_BELOW, &refs(&Range::params(ranges.clone()))).await?;
        }
    }
    Ok(())
}

/// Returns references to parameters.
fn refs(params: &Params) -> Vec<&(dyn ToSql + Sync)> {
    params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
}

/// Returns the element that a row belongs to, by the place in its first column.
fn at<'a, T>(of: &'a [T], row: Found<'_>) -> Result<Option<&'a T>, Failure> {
    let place: i64 = row.try_get(0)?;
    Ok(usize::try_from(place).ok().and_then(|place| of.get(place.checked_sub(1)?)))
}

fn list(row: Found<'_>) -> Result<List, Failure> {
    Ok(List { org: row.try_get(0)?, id: row.try_get(1)? })
}

/// Returns those of the lists that have blocks, or are kept lists of filter values.
async fn read_blocked(connection: &Connection, lists: BTreeSet<List>) -> Result<BTreeSet<List>, Failure> {
    let mut calls = Calls::default();
    calls.add(READ_BLOCKED, lists.into_iter().map(TallyKey::from).collect());
    let mut blocked = BTreeSet::new();
    for (sql, params) in Vec::from(calls) {
        for row in connection.query(sql, &refs(&params)).await? {
            blocked.insert(list(Found::whole(&row))?);
        }
    }
    Ok(blocked)
}

/// Reads the columns of `stored!` after the first.
pub(crate) fn stored(row: Found<'_>) -> Result<Stored, Failure> {
    let pairs = |keys: usize| -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let (names, values) = (row.try_get::<Vec<String>>(keys)?, row.try_get::<Vec<Vec<u8>>>(keys + 1)?);
        Ok(names.into_iter().zip(values).collect())
    };
    Ok(Stored {
        revision: row.try_get(2)?,
        queue: row.try_get(3)?,
        sort: [row.try_get(4)?, row.try_get(5)?, row.try_get(6)?, row.try_get(7)?],
        filter: pairs(8)?,
        unique: pairs(10)?,
    })
}
