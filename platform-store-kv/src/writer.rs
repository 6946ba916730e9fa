//! The writer thread: group commit. It takes the commits that are queued and writes them in one transaction, with one
//! sync for the whole group.
//!
//! Each commit is validated before any of it is written, so that a rejected commit does not affect the others of its
//! group. If writing fails, the group is rolled back and each of its commits is retried in a transaction of its own.
//!
//! The order of steps around a transaction matters to readers, who take no lock:
//!
//! 1. New names are registered in a transaction of their own and published, before any row uses their numbers.
//! 2. Within the transaction, cached rows are invalidated before they are changed.
//! 3. The snapshot after the group is announced before `COMMIT` and published after it, and then the commits are
//!    acknowledged (see [`Snapshots`]).
//!
//! A group writes records; index entries, lists and tree nodes stay in the delta. When the delta or the number of
//! changed records exceeds its bound, the group's transaction ends with a fold, and commits wait for it. So the delta is
//! never larger than its bound, and a replay never longer. Only the delta that a replay makes can be up to twice as
//! large, because it does not have the changes in the same pieces; the first commit folds it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use futures_channel::oneshot;
use metrics::{Histogram, histogram};
use platform_engine::store::{Commit, Committed, KeyValue, Require, StoreError};

use crate::{
    bulk::{self, Pending, load::Loading},
    cache::Cache,
    commit::{Known, Plan, Target, reads_index},
    delta::{Delta, Snapshot, Snapshots},
    error::unavailable,
    index,
    lists::Indexes,
    replaced::Replaced,
    replay::replay,
    rows::RowsMut,
    schema::{NameFlags, NameId, Names},
    state::State,
    transaction::Transaction,
};

/// A group with this many puts gets no further commits, which limits the latency of its first one.
const GROUP_RECORDS: usize = 2_000;
/// The number of records that changed since the last fold above which the next one runs. It bounds the time of a replay.
const FOLD_RECORDS: u64 = 50_000;
/// The time without a commit after which the tables do their upkeep; our choice.
const IDLE: Duration = Duration::from_millis(500);

/// A request to the writer.
pub(crate) enum Task<W> {
    Commit(Request),
    BackUp(Box<dyn Backup<W>>),
}

/// Copies the tables while commits go on, on the thread of the writer.
pub trait Backup<W>: Send {
    /// Makes the copy, and calls `between` from time to time, without a transaction: then a group of commits is written.
    ///
    /// # Errors
    /// Any, for the caller of the backup. Commits are not affected.
    fn run(&self, rows: &W, between: &mut dyn FnMut()) -> Result<(), StoreError>;

    /// Passes the result to the caller: the sequence of the last commit in the copy.
    fn reply(self: Box<Self>, result: Result<u64, StoreError>);
}

/// A queued commit and the channel for its result.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) commit: Commit,
    pub(crate) reply: oneshot::Sender<Result<Committed, StoreError>>,
    /// Whether all records must be indexed with it.
    pub(crate) index: bool,
}

impl Request {
    fn reply(self, outcome: Result<Committed, StoreError>) {
        // The send fails if the caller was canceled; the commit is done nevertheless.
        drop(self.reply.send(outcome));
    }
}

/// The state of the writer thread. It borrows the tables, as a backup does that goes on while commits are made.
#[derive(Debug)]
pub(crate) struct Writer<'c, W> {
    rows: &'c W,
    /// The registered names, shared with readers. New names are published before a commit that uses them.
    names: Arc<ArcSwap<Names>>,
    /// The readers' cache, in which the writer invalidates the rows that it changes.
    cache: Arc<Cache>,
    group_commits: usize,
    snapshots: Arc<Snapshots>,
    lists: Indexes,
    known: Known,
    state: State,
    replaced: Replaced,
    /// The number of the next record.
    next: i64,
    /// Records that are not indexed yet.
    pending: Pending,
    /// The first pending record of each kind, as the tables have them.
    saved: BTreeMap<NameId, i64>,
    bulk: Bulk,
    /// The reason why the store rejects all commits, after an error that left the tables in an unknown state.
    failure: Option<String>,
    health: Arc<Health>,
    /// For metrics.
    group_sizes: Histogram,
}

/// When and how new records are indexed together.
#[derive(Debug, Clone)]
pub(crate) struct Bulk {
    /// The number of puts of one kind in a group from which its new records are indexed together.
    pub(crate) records: usize,
    /// The directory of temporary files.
    pub(crate) directory: PathBuf,
    /// Set in a bulk load, in which records stay pending after a transaction.
    pub(crate) loading: Option<Arc<Loading>>,
}

/// The current fault of the writer, if any; shared with [`Store::health`](platform_engine::store::Store::health).
#[derive(Debug, Default)]
pub(crate) struct Health(ArcSwapOption<Fault>);

#[derive(Debug)]
struct Fault {
    why: String,
    /// Whether the disk is full, which a later commit can disprove. Other faults are permanent.
    full: bool,
}

impl Health {
    fn set(&self, why: String, full: bool) {
        self.0.store(Some(Arc::new(Fault { why, full })));
    }

    /// Clears the fault of a full disk, after a commit has succeeded.
    fn clear_full(&self) {
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

impl<'c, W: RowsMut> Writer<'c, W> {
    /// Returns a writer, with the delta of the changes since the last fold.
    pub(crate) fn new(
        rows: &'c W,
        names: Arc<ArcSwap<Names>>,
        cache: Arc<Cache>,
        health: Arc<Health>,
        lists: Indexes,
        group_commits: usize,
        bulk: Bulk,
    ) -> Result<Self, StoreError> {
        let state = State::load(rows)?;
        // Numbers of records from before the last fold are not used again, because a replay takes them for old records.
        let next = state.first.max(1 + rows.last_record()?);
        let pending = Pending::load(rows)?;
        let saved = pending.first().clone();
        let snapshot = Snapshot { sequence: state.sequence, folded: state.folded, delta: Delta::default() };
        let mut writer = Self {
            rows,
            names,
            cache,
            group_commits,
            snapshots: Arc::new(Snapshots::new(snapshot)),
            lists,
            known: Known::default(),
            state,
            replaced: Replaced::default(),
            next,
            pending,
            saved,
            bulk,
            failure: None,
            health,
            group_sizes: histogram!("platform_store_group_commits"),
        };
        writer.replay()?;
        Ok(writer)
    }

    /// Returns the snapshots that this writer publishes.
    pub(crate) fn snapshots(&self) -> Arc<Snapshots> {
        self.snapshots.clone()
    }

    /// Computes the delta, after a crash.
    fn replay(&mut self) -> Result<(), StoreError> {
        let is_folded = self.next == self.state.first && self.state.replaced == 0 && !self.rows.has_replaced()?;
        if is_folded {
            return Ok(());
        }
        self.rows.begin()?;
        self.lists.begin(self.rows)?;
        let names = self.names.load();
        let sequence = self.state.sequence;
        let transaction = Transaction { rows: self.rows, cache: &self.cache, sequence };
        self.replaced = replay(transaction, &names, self.state, &mut self.lists, &self.pending)?;
        self.lists.settle(transaction)?;
        if self.lists.has_spilled() {
            self.end(true)?;
        } else {
            // Nothing is written, so that a store can be opened on a full disk, and soon. A delta above its bound is
            // folded by the first commit.
            self.rows.commit()?;
        }
        let delta = self.lists.snapshot();
        self.snapshots = Arc::new(Snapshots::new(Snapshot { sequence, folded: self.state.folded, delta }));
        Ok(())
    }

    /// Ends a transaction that has changed the store: commits and publishes it. Folds first if `fold` is set or the
    /// delta has reached a bound.
    fn end(&mut self, fold: bool) -> Result<(), StoreError> {
        let sequence = self.state.sequence;
        let transaction = Transaction { rows: self.rows, cache: &self.cache, sequence };
        // The changes of a group are invalidated with the sequence of its last commit. The group becomes visible as a
        // whole, so no snapshot is between its commits.
        self.lists.settle(transaction)?;
        self.known.write_epochs(transaction, &mut self.state)?;
        let changed = (self.next - self.state.first).unsigned_abs() + self.replaced.len() as u64;
        // Pending records are replayed fast, because they have no lists.
        let is_long = changed > FOLD_RECORDS && self.pending.is_empty();
        if fold || is_long || self.lists.must_fold() {
            self.lists.fold(transaction)?;
            self.replaced.clear(self.rows, &mut self.state)?;
            (self.state.folded, self.state.first) = (sequence, self.next);
        }
        self.state.save(self.rows)?;
        let delta = self.lists.snapshot();
        let snapshot = Arc::new(Snapshot { sequence, folded: self.state.folded, delta });
        self.snapshots.announce(&snapshot);
        self.rows.commit()?;
        self.snapshots.publish(snapshot);
        self.lists.commit();
        self.replaced.commit();
        Ok(())
    }

    /// Does what is queued, until the queue is closed.
    pub(crate) fn run(mut self, tasks: &Receiver<Task<W>>) {
        loop {
            let task = match tasks.recv_timeout(IDLE) {
                Ok(task) => task,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.do_upkeep();
                    let Ok(task) = tasks.recv() else { break };
                    task
                }
            };
            let backup = match task {
                Task::Commit(first) => self.commit_queued(first, tasks),
                Task::BackUp(backup) => Some(backup),
            };
            if let Some(backup) = backup {
                self.back_up(backup, tasks);
            }
        }
        // Completes a bulk load. A step that fails now is repeated when the store is opened.
        if let Err(error) = self.finish_load() {
            self.record_failure(&error);
        }
        self.close();
    }

    /// Writes a commit and those that are queued after it in one group, up to a backup, which is returned.
    fn commit_queued(&mut self, first: Request, tasks: &Receiver<Task<W>>) -> Option<Box<dyn Backup<W>>> {
        let mut records = first.commit.put.len();
        // With room for all that are queued: a commit is large, and a vector that grows moves those it has.
        let mut group = Vec::with_capacity(self.group_commits.min(tasks.len() + 1));
        group.push(first);
        let mut backup = None;
        while group.len() < self.group_commits && records < GROUP_RECORDS {
            match tasks.try_recv() {
                Ok(Task::Commit(next)) => {
                    records += next.commit.put.len();
                    group.push(next);
                }
                Ok(Task::BackUp(next)) => {
                    backup = Some(next);
                    break;
                }
                Err(_) => break,
            }
        }
        self.group_sizes.record(group.len() as f64);
        self.commit_group(group);
        if self.failure.is_none() {
            self.rows.after_group(self.bulk.loading.is_some());
        }
        backup
    }

    /// Makes a backup, and writes the commits that are queued in the meantime: a group after each step.
    fn back_up(&mut self, backup: Box<dyn Backup<W>>, tasks: &Receiver<Task<W>>) {
        let copied = match &self.failure {
            Some(failure) => Err(unavailable(failure.clone())),
            None => backup.run(self.rows, &mut || {
                let other = match tasks.try_recv() {
                    Ok(Task::Commit(first)) => self.commit_queued(first, tasks),
                    Ok(Task::BackUp(other)) => Some(other),
                    Err(_) => None,
                };
                if let Some(other) = other {
                    other.reply(Err(unavailable("another backup is being made")));
                }
            }),
        };
        // The copy has everything that was committed until its last step.
        backup.reply(copied.map(|()| self.state.sequence));
    }

    /// Folds, so that opening the store needs no replay. If that fails, the next opening replays.
    fn close(&mut self) {
        let is_clean = self.lists.delta().is_empty() && self.replaced.len() == 0;
        if is_clean || self.failure.is_some() {
            return;
        }
        if self.rows.begin().is_ok() && self.end(true).is_err() {
            self.roll_back();
        }
    }

    /// Writes a group and sends the results. If the transaction fails, retries each commit alone, so that one that is
    /// too large for the disk does not fail the others.
    fn commit_group(&mut self, group: Vec<Request>) {
        if let Some(failure) = &self.failure {
            group.into_iter().for_each(|request| request.reply(Err(unavailable(failure.clone()))));
            return;
        }
        let mut result = self.transact(&group, false);
        if let (1, Err(StoreError::Full(_))) = (group.len(), &result) {
            // With a fold, a commit that deletes records needs no further pages.
            result = self.transact(&group, true);
        }
        match result {
            Ok(outcomes) => {
                if outcomes.iter().any(Result::is_ok) {
                    self.health.clear_full();
                }
                group.into_iter().zip(outcomes).for_each(|(request, outcome)| request.reply(outcome));
            }
            Err(error) if group.len() == 1 => {
                self.record_failure(&error);
                let mut error = Some(error);
                let take = |request: Request| request.reply(Err(error.take().unwrap_or_else(|| unavailable("failed"))));
                group.into_iter().for_each(take);
            }
            Err(StoreError::Unknown(cause)) => {
                let why = cause.to_string();
                self.record_failure(&StoreError::Unknown(cause));
                group.into_iter().for_each(|request| request.reply(Err(StoreError::Unknown(why.clone().into()))));
            }
            Err(error) => {
                self.record_failure(&error);
                group.into_iter().for_each(|request| self.commit_group(vec![request]));
            }
        }
    }

    /// Records a failed write in the health, and stops all writing unless the state of the tables is still known: a full
    /// disk and a lock that was not granted leave them unchanged, but after a failed write or sync their content is
    /// unknown, and a repeated sync may report success for data that was lost.
    fn record_failure(&mut self, error: &StoreError) {
        if let StoreError::Full(cause) = error {
            self.health.set(format!("the disk is full ({cause})"), true);
        }
        let (StoreError::Unavailable(cause) | StoreError::Unknown(cause)) = error else { return };
        if self.rows.is_stopped_by(error) {
            let failure = format!("a write failed ({cause}), and the store accepts no more: reopen the store");
            self.health.set(failure.clone(), false);
            self.failure = Some(failure);
        }
    }

    /// Writes a group in one transaction and returns the result of each commit. On an error, nothing was written, unless
    /// it is [`StoreError::Unknown`].
    fn transact(&mut self, group: &[Request], fold: bool) -> Result<Vec<Result<Committed, StoreError>>, StoreError> {
        self.register_names(group)?;
        let before = (self.state, self.pending.clone(), self.saved.clone());
        let outcomes = self.try_transact(group, fold);
        if outcomes.is_err() {
            (self.state, self.pending, self.saved) = before;
            self.roll_back();
        }
        if let Some(loading) = &self.bulk.loading {
            loading.set(&self.pending);
        }
        outcomes
    }

    /// Rolls the transaction back. (`next` may stay: numbers of records can have gaps.)
    fn roll_back(&mut self) {
        self.lists.roll_back(&self.snapshots.current().delta);
        self.known.clear();
        self.replaced.roll_back();
        self.rows.roll_back();
    }

    fn try_transact(
        &mut self,
        group: &[Request],
        mut fold: bool,
    ) -> Result<Vec<Result<Committed, StoreError>>, StoreError> {
        self.rows.begin()?;
        self.lists.begin(self.rows)?;
        let names = self.names.load_full();
        let large = self.large_kinds(group, &names);
        let (mut outcomes, mut indexed_at) = (Vec::with_capacity(group.len()), None);
        for Request { commit, index, .. } in group {
            if *index || reads_index(commit, &names, &self.pending) {
                indexed_at = indexed_at.max(self.index_pending(self.state.sequence + 1)?);
            }
            let plan = match Plan::make(self.rows, &self.lists, &names, &mut self.known, commit) {
                Ok(plan) => plan,
                // A failed read fails the whole group; conflicts and damaged records fail one commit.
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
                Err(error) => {
                    outcomes.push(Err(error));
                    continue;
                }
            };
            // The lists of a kind can be changed for one record only while all of its other records are indexed.
            let changed = plan.changed();
            if changed.iter().any(|kind| self.pending.has(*kind)) {
                indexed_at = indexed_at.max(self.index_pending(self.state.sequence + 1)?);
            }
            let deferred = self.pending.kinds().chain(large.difference(&changed).copied()).collect();
            let sequence = commit.sequence(self.state.sequence + 1);
            self.state.sequence = sequence;
            let mut target = Target {
                transaction: Transaction { rows: self.rows, cache: &self.cache, sequence },
                names: &names,
                lists: &mut self.lists,
                known: &mut self.known,
                state: &mut self.state,
                replaced: (!fold).then_some(&mut self.replaced),
                next: &mut self.next,
                pending: &mut self.pending,
                deferred: &deferred,
            };
            target.apply(commit, &plan)?;
            // Records that are indexed together change the tables, so the transaction must end with a fold. Those that
            // stay pending do not.
            fold |= self.bulk.loading.is_none() && !self.pending.is_empty();
            outcomes.push(Ok(Committed { sequence }));
        }
        drop(names);
        let is_applied = outcomes.iter().any(Result::is_ok);
        // Readers distinguish states by their sequences, so that this is a new state even if all commits were rejected.
        self.state.sequence = self.state.sequence.max(indexed_at.unwrap_or(0));
        if indexed_at.is_some() || is_applied {
            let may_leave = |loading: &Arc<Loading>| loading.may_leave(&self.pending);
            if !self.bulk.loading.as_ref().is_some_and(may_leave) {
                indexed_at = indexed_at.max(self.index_pending(self.state.sequence)?);
            }
            self.pending.save(self.rows, &mut self.saved)?;
            self.end(fold || indexed_at.is_some())?;
        } else {
            self.rows.commit()?;
        }
        Ok(outcomes)
    }

    /// Returns the kinds of which the group has so many puts that new records are indexed together.
    fn large_kinds(&self, group: &[Request], names: &Names) -> HashSet<NameId> {
        let mut puts: HashMap<&str, usize> = HashMap::new();
        for put in group.iter().flat_map(|request| &request.commit.put) {
            *puts.entry(put.key.kind).or_default() += 1;
        }
        // A commit with a limit reads the lists, in which all records before must be.
        for require in group.iter().flat_map(|request| &request.commit.require) {
            if let Require::AtMost(kind, ..) = require {
                puts.remove(kind);
            }
        }
        let large = puts.into_iter().filter(|(_, puts)| *puts >= self.bulk.records);
        let kinds = large.filter_map(|(kind, _)| names.get(kind));
        kinds.filter(|kind| !kind.flags.has(NameFlags::QUEUE)).map(|kind| kind.id).collect()
    }

    /// Indexes all records that are not indexed yet, as a part of a state with this sequence, which must be higher than
    /// that of any state that was read. Returns the sequence if there were any.
    fn index_pending(&mut self, sequence: u64) -> Result<Option<u64>, StoreError> {
        if self.pending.is_empty() {
            return Ok(None);
        }
        let transaction = Transaction { rows: self.rows, cache: &self.cache, sequence };
        bulk::index(transaction, &mut self.lists, &self.pending, &self.bulk.directory)?;
        self.pending = Pending::default();
        Ok(Some(sequence))
    }

    /// Indexes the records that a bulk load has left.
    ///
    /// # Errors
    /// Those of a commit; nothing was changed.
    pub(crate) fn finish_load(&mut self) -> Result<(), StoreError> {
        if self.pending.is_empty() || self.failure.is_some() {
            return Ok(());
        }
        let (reply, _) = oneshot::channel();
        let outcomes = self.transact(&[Request { commit: Commit::default(), reply, index: true }], true)?;
        self.do_upkeep();
        outcomes.into_iter().try_for_each(|outcome| outcome.map(drop))
    }

    /// Registers the new names and flags of a group, in a transaction of its own, and publishes them before any row
    /// uses them: readers assume that every name in their snapshot has been published.
    fn register_names(&self, group: &[Request]) -> Result<(), StoreError> {
        let mut changes = BTreeSet::new();
        let names = self.names.load();
        for put in group.iter().flat_map(|request| &request.commit.put) {
            let filters = put.filter.iter().map(|(name, value)| (*name, value));
            let unique = put.unique.iter().map(|unique| (unique.space, &unique.value));
            let sort = put.sort.iter().map(|(name, value)| (*name, value));
            // Before anything is written: index entries are written by a later commit, which must not fail.
            let value = put.filter.iter().map(|(_, value)| value.as_bytes().len()).max().unwrap_or(0);
            if index::max_len(&put.key.uid, value) > self.rows.max_key() {
                return Err(unavailable(format!("the uid of {} bytes is too long for the store", put.key.uid.len())));
            }
            let mut previous: Vec<&str> = Vec::new();
            for (name, _) in filters.clone() {
                let several = previous.contains(&name);
                previous.push(name);
                if several && names.get(name).is_none_or(|name| !name.flags.has(NameFlags::MULTI_VALUED)) {
                    changes.insert((name, NameFlags::MULTI_VALUED));
                }
            }
            for (name, value) in filters.chain(unique).chain(sort) {
                if value.as_bytes().len() > KeyValue::MAX_LEN {
                    return Err(unavailable(format!("a value of `{name}` is longer than {} bytes", KeyValue::MAX_LEN)));
                }
                if names.get(name).is_none() {
                    changes.insert((name, NameFlags::default()));
                }
            }
            for name in put.sort.iter().map(|(name, _)| *name).filter(|name| put.search.contains(name)) {
                if names.get(name).is_none_or(|name| !name.flags.has(NameFlags::SEARCHED)) {
                    changes.insert((name, NameFlags::SEARCHED));
                }
            }
            if names.get(put.key.kind).is_none() {
                // Only when the kind is new: an existing kind has the lists of its flag and cannot change it.
                changes.insert((put.key.kind, if put.queue { NameFlags::QUEUE } else { NameFlags::default() }));
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        let mut names = Names::clone(&names);
        self.rows.begin()?;
        let mut registered = changes.into_iter().try_for_each(|(name, flags)| names.register(self.rows, name, flags));
        registered = registered.and_then(|()| self.rows.commit());
        if registered.is_err() {
            self.rows.roll_back();
        }
        registered.map_err(|error| match error {
            // Names may be registered now, but no part of the commits is.
            StoreError::Unknown(cause) => StoreError::Unavailable(cause),
            other => other,
        })?;
        self.names.store(Arc::new(names));
        Ok(())
    }

    fn do_upkeep(&mut self) {
        if self.failure.is_none() {
            self.rows.when_idle();
        }
    }
}
