//! The one thread that writes: it takes the commits that are waiting, and does them in one transaction.
//!
//! However many wait, the file is synced once. Each commit is looked at before anything of it is written, so that
//! one that is refused does not spoil the others; when writing itself fails, each is tried again alone.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use futures_channel::oneshot;
use platform_engine::store::{Commit, Committed, KeyValue, StoreError};
use rusqlite::{Connection, ErrorCode, Row};

use crate::{
    cache::Cache,
    commit::{Plan, Target},
    error::{corrupt, store_error, unavailable},
    lists::Memory,
    schema::{Names, Table, Traits, checksum},
    transaction::Transaction,
};

/// No group has more records to write, unless one commit has.
const GROUP_RECORDS: usize = 2_000;
/// After this many records, what the log has is moved to the file.
const CHECKPOINT_RECORDS: usize = 4_000;
/// A log of more pages is emptied even if readers must be waited for.
const LONGEST_LOG: i64 = 100_000;
/// After this long without a commit, what the log has is moved to the file.
const IDLE: Duration = Duration::from_millis(500);

/// A commit that is waiting, and where to say how it went.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) commit: Commit,
    pub(crate) reply: oneshot::Sender<Result<Committed, StoreError>>,
}

impl Request {
    fn answer(self, outcome: Result<Committed, StoreError>) {
        // Nobody may be waiting any more: then nobody is told.
        drop(self.reply.send(outcome));
    }
}

/// What the writer works on.
#[derive(Debug)]
pub(crate) struct Writer {
    connection: Connection,
    /// What is known to readers; replaced before a commit that uses a new name is.
    names: Arc<ArcSwap<Names>>,
    /// What readers keep, which is told of each change.
    cache: Arc<Cache>,
    group_commits: usize,
    memory: Memory,
    state: State,
    /// The number of the next record.
    next: i64,
    /// Why nothing is written any more.
    failure: Option<String>,
    /// What the last commits met, for whoever asks.
    health: Arc<Health>,
    /// How many records were written since the last checkpoint.
    unmoved: usize,
}

/// What is wrong with writing, if anything is; shared with whoever asks.
#[derive(Debug, Default)]
pub(crate) struct Health(ArcSwapOption<Fault>);

#[derive(Debug)]
struct Fault {
    why: String,
    /// Whether room is all that is missing.
    full: bool,
}

impl Health {
    fn set(&self, why: String, full: bool) {
        self.0.store(Some(Arc::new(Fault { why, full })));
    }

    /// Forgets that there was no room, because there was.
    fn written(&self) {
        if self.0.load().as_ref().is_some_and(|fault| fault.full) {
            self.0.store(None);
        }
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.0.load().as_deref() {
            None => Ok(()),
            Some(Fault { why, full: true }) => Err(StoreError::Full(why.clone().into())),
            Some(Fault { why, full: false }) => Err(unavailable(why.clone())),
        }
    }
}

/// The row of the `state` table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The last commit's sequence.
    pub(crate) sequence: u64,
    /// See [`Target::digest`].
    pub(crate) digest: i64,
}

impl State {
    pub(crate) fn load(connection: &Connection) -> Result<Self, StoreError> {
        let select = "SELECT sequence, digest, sum FROM state WHERE id = 1";
        let load = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let row = connection.prepare_cached(select).and_then(|mut select| select.query_row([], load));
        let (sequence, digest, sum): (i64, i64, i64) = row.map_err(|error| match error {
            rusqlite::Error::QueryReturnedNoRows => corrupt("the row of the store's state is missing"),
            other => store_error(other),
        })?;
        let state = Self { sequence: sequence.cast_unsigned(), digest };
        if state.checksum() == sum { Ok(state) } else { Err(corrupt("the store's state does not pass its checksum")) }
    }

    pub(crate) fn save(self, connection: &Connection) -> Result<(), StoreError> {
        let insert = "INSERT OR REPLACE INTO state (id, sequence, digest, sum) VALUES (1, ?, ?, ?)";
        let row = (self.sequence.cast_signed(), self.digest, self.checksum());
        connection.prepare_cached(insert).and_then(|mut insert| insert.execute(row)).map(drop).map_err(store_error)
    }

    fn checksum(self) -> i64 {
        checksum(Table::State, [&self.sequence.to_le_bytes(), &self.digest.to_le_bytes()])
    }
}

impl Writer {
    pub(crate) fn new(
        connection: Connection,
        state: State,
        names: Arc<ArcSwap<Names>>,
        cache: Arc<Cache>,
        health: Arc<Health>,
        group_commits: usize,
    ) -> Result<Self, StoreError> {
        let last = connection.query_row("SELECT max(id) FROM record", [], |row| row.get::<_, Option<i64>>(0));
        let next = 1 + last.map_err(store_error)?.unwrap_or(0);
        let memory = Memory::default();
        Ok(Self { connection, names, cache, group_commits, memory, state, next, failure: None, health, unmoved: 0 })
    }

    /// Does commits until no more can come, and returns what is then to be closed.
    pub(crate) fn run(mut self, requests: &Receiver<Request>) -> Self {
        loop {
            let first = match requests.recv_timeout(IDLE) {
                Ok(first) => first,
                Err(RecvTimeoutError::Disconnected) => return self,
                Err(RecvTimeoutError::Timeout) => {
                    self.checkpoint();
                    let Ok(first) = requests.recv() else { return self };
                    first
                }
            };
            let mut records = first.commit.put.len();
            let mut group = vec![first];
            while group.len() < self.group_commits && records < GROUP_RECORDS {
                let Ok(next) = requests.try_recv() else { break };
                records += next.commit.put.len();
                group.push(next);
            }
            self.answer(group);
            self.unmoved += records;
            if self.unmoved > CHECKPOINT_RECORDS {
                self.checkpoint();
            }
        }
    }

    fn answer(&mut self, group: Vec<Request>) {
        if let Some(failure) = &self.failure {
            group.into_iter().for_each(|request| request.answer(Err(unavailable(failure.clone()))));
            return;
        }
        match self.transact(&group) {
            Ok(outcomes) => {
                if outcomes.iter().any(Result::is_ok) {
                    self.health.written();
                }
                group.into_iter().zip(outcomes).for_each(|(request, outcome)| request.answer(outcome));
            }
            Err(error) if group.len() == 1 => {
                self.note(&error);
                let mut error = Some(error);
                let take =
                    |request: Request| request.answer(Err(error.take().unwrap_or_else(|| unavailable("failed"))));
                group.into_iter().for_each(take);
            }
            Err(error) => {
                self.note(&error);
                group.into_iter().for_each(|request| self.answer(vec![request]));
            }
        }
    }

    /// Writes no more after an error that leaves open what the file holds.
    fn note(&mut self, error: &StoreError) {
        if let StoreError::Full(cause) = error {
            self.health.set(format!("there is no room ({cause})"), true);
        }
        let StoreError::Unavailable(cause) = error else { return };
        let code = cause.downcast_ref::<rusqlite::Error>().and_then(rusqlite::Error::sqlite_error_code);
        if let Some(code) = code
            && !matches!(code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        {
            let failure = format!("writing failed ({cause}), and stopped: reopen the store");
            self.health.set(failure.clone(), false);
            self.failure = Some(failure);
        }
    }

    /// Does the commits in one transaction, and returns how each went; on an error, none was done.
    fn transact(&mut self, group: &[Request]) -> Result<Vec<Result<Committed, StoreError>>, StoreError> {
        self.learn(group)?;
        let before = self.state;
        let outcomes = self.try_transact(group);
        if outcomes.is_err() {
            self.state = before;
            self.memory = Memory::default();
            // Where the transaction has ended by itself, this fails, and need not succeed.
            drop(self.connection.execute_batch("ROLLBACK"));
        }
        outcomes
    }

    fn try_transact(&mut self, group: &[Request]) -> Result<Vec<Result<Committed, StoreError>>, StoreError> {
        let execute = |connection: &Connection, sql| {
            connection.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map_err(store_error)
        };
        execute(&self.connection, "BEGIN IMMEDIATE")?;
        self.memory.begin(&self.connection)?;
        let names = self.names.load();
        let mut outcomes = Vec::with_capacity(group.len());
        for Request { commit, .. } in group {
            let plan = match Plan::make(&self.connection, &names, commit) {
                Ok(plan) => plan,
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
                Err(error) => {
                    outcomes.push(Err(error));
                    continue;
                }
            };
            let sequence = self.state.sequence + 1;
            self.state.sequence = sequence;
            let mut target = Target {
                transaction: Transaction { connection: &self.connection, cache: &self.cache, sequence },
                names: &names,
                memory: &mut self.memory,
                digest: &mut self.state.digest,
                next: &mut self.next,
            };
            target.apply(commit, &plan)?;
            outcomes.push(Ok(Committed { sequence }));
        }
        if outcomes.iter().any(Result::is_ok) {
            let sequence = self.state.sequence;
            self.memory.flush(Transaction { connection: &self.connection, cache: &self.cache, sequence })?;
            self.state.save(&self.connection)?;
        }
        execute(&self.connection, "COMMIT")?;
        self.cache.set_committed(self.state.sequence);
        Ok(outcomes)
    }

    /// Gives numbers to names that have none, in a transaction of its own, before anything uses them.
    fn learn(&self, group: &[Request]) -> Result<(), StoreError> {
        let mut news = BTreeSet::new();
        let names = self.names.load();
        for put in group.iter().flat_map(|request| &request.commit.put) {
            let filters = put.filter.iter().map(|(name, value)| (*name, value));
            let unique = put.unique.iter().map(|unique| (unique.space, &unique.value));
            let sort = put.sort.iter().map(|(name, value)| (*name, value));
            let mut previous: Vec<&str> = Vec::new();
            for (name, _) in filters.clone() {
                let several = previous.contains(&name);
                previous.push(name);
                if several && names.get(name).is_none_or(|name| !name.traits.has(Traits::SEVERAL)) {
                    news.insert((name, Traits::SEVERAL));
                }
            }
            for (name, value) in filters.chain(unique).chain(sort) {
                if value.as_bytes().len() > KeyValue::MAX_LEN {
                    return Err(unavailable(format!("a value of `{name}` is longer than {} bytes", KeyValue::MAX_LEN)));
                }
                if names.get(name).is_none() {
                    news.insert((name, Traits::default()));
                }
            }
            if names.get(put.key.kind).is_none() {
                // A kind that was none from the start has other lists, and keeps to them.
                news.insert((put.key.kind, if put.queue { Traits::QUEUE } else { Traits::default() }));
            }
        }
        if news.is_empty() {
            return Ok(());
        }
        let mut names = Names::clone(&names);
        let transaction = self.connection.unchecked_transaction().map_err(store_error)?;
        news.into_iter().try_for_each(|(name, traits)| names.learn(&transaction, name, traits))?;
        transaction.commit().map_err(store_error)?;
        self.names.store(Arc::new(names));
        Ok(())
    }

    /// Moves what the log has to the file, as far as readers let it.
    fn checkpoint(&mut self) {
        if self.unmoved == 0 || self.failure.is_some() {
            return;
        }
        self.unmoved = 0;
        let pages = |mode| self.connection.query_row(mode, [], |row| row.get::<_, i64>(1));
        // What cannot be moved now can be the next time; until then the log has it.
        if pages("PRAGMA wal_checkpoint(PASSIVE)").is_ok_and(|pages| pages > LONGEST_LOG) {
            drop(pages("PRAGMA wal_checkpoint(RESTART)"));
        }
    }
}
