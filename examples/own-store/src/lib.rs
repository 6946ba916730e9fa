//! The smallest store that implements the contract, as a starting point for your own.
//!
//! The store has one map under one lock and scans all records for each query, so it is correct and slow. A real store
//! replaces the scans by indexes and must return the same results, which `tests/conformance.rs` verifies.

use std::collections::BTreeMap;

use async_trait::async_trait;
use parking_lot::Mutex;
use platform_engine::store::{
    Commit, Committed, Conflict, Delete, Epoch, Filter, Item, Key, KeyValue, KindName, OrderBy, Page, Position, Put,
    Query, Read, Record, Require, Scope, Store, StoreError, UniqueKey, order::sequence_value,
};
use platform_engine::uid::Uid;

/// A store that holds its records in a map, without persistence.
#[derive(Debug, Default)]
pub struct MapStore(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    sequence: u64,
    records: BTreeMap<Key, (u64, Put)>,
    epochs: BTreeMap<Epoch, u64>,
}

#[async_trait]
impl Store for MapStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        let state = self.0.lock();
        let record = |key: &Key| {
            state.records.get(key).map(|(revision, put)| Record {
                key: put.key.clone(),
                revision: *revision,
                rendering: put.rendering,
                body: put.body.clone(),
                private: put.private.clone(),
            })
        };
        Ok(Read { records: keys.iter().map(record).collect(), epochs: state.epochs(epochs) })
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let state = self.0.lock();
        let mut matching: Vec<_> = state.records.values().filter(|(_, put)| matches(query, put)).collect();
        matching.sort_by_cached_key(|(revision, put)| sort_key(query, *revision, put));
        if query.order.descending {
            matching.reverse();
        }
        let total = matching.len() as u64;
        // Positions are exclusive, and are compared by value even if their record was deleted since.
        let is_before_page = |(revision, put): &&&(u64, Put)| match &query.after {
            None => false,
            Some(after) => {
                let (key, after) = (sort_key(query, *revision, put), (after.value.clone(), after.uid.clone()));
                if query.order.descending { key >= after } else { key <= after }
            }
        };
        let skip = usize::try_from(query.skip).unwrap_or(usize::MAX);
        let mut rest = matching.iter().skip_while(is_before_page).skip(skip).peekable();
        let (mut page, mut bytes) = (Vec::new(), 0_usize);
        while page.len() < query.limit {
            // A page has at least one record, whatever its size, so that every list makes progress.
            let fits = |put: &Put| page.is_empty() || bytes.saturating_add(put.body.len()) <= query.bytes;
            let Some(record) = rest.next_if(|(_, put)| fits(put)) else { break };
            bytes = bytes.saturating_add(record.1.body.len());
            page.push(record);
        }
        let position = |(revision, put): &&&(u64, Put)| {
            let (value, uid) = sort_key(query, *revision, put);
            Position { value, uid }
        };
        let next = if rest.peek().is_some() { page.last().map(position) } else { None };
        let item = |(revision, put): &&(u64, Put)| {
            Item::new(put.key.uid.clone(), *revision, put.rendering, put.body.clone(), !put.private.is_empty())
        };
        Ok(Page {
            items: page.into_iter().map(item).collect(),
            next,
            total: query.count.then_some(total),
            epochs: state.epochs(&query.epochs),
        })
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let mut state = self.0.lock();
        if let Some(index) = commit.require.iter().position(|require| !state.holds(require)) {
            return Err(StoreError::Conflict(Conflict::Require(index)));
        }
        // Deleted and replaced records release their unique keys for the records of the same commit.
        let is_removed = |put: &Put| {
            commit.delete.iter().any(|delete| deletes(delete, put)) || commit.put.iter().any(|new| new.key == put.key)
        };
        let is_free = |unique: &UniqueKey| {
            Ok(!state.records.values().any(|(_, other)| other.unique.contains(unique) && !is_removed(other)))
        };
        let is_new = |at: usize| commit.put.get(at).is_some_and(|put| !state.records.contains_key(&put.key));
        let is_deleted = |put: &Put| {
            commit.delete.iter().any(|delete| deletes(delete, put)) && commit.put.iter().all(|new| new.key != put.key)
        };
        let count = |kind: KindName, top: &Uid, counts: &dyn Fn(&Put) -> bool| {
            let of_kind = |put: &Put| put.key.kind == kind && put.key.uid.is_at_or_below(top);
            state.records.values().filter(|(_, put)| of_kind(put) && counts(put)).count() as u64
        };
        let deleted = |kind: KindName, top: &Uid| count(kind, top, &is_deleted);
        if let Some(conflict) = commit.limit_conflict(is_new, deleted, |kind, top| Ok(count(kind, top, &|_| true)))? {
            return Err(StoreError::Conflict(conflict));
        }
        if let Some(conflict) = commit.unique_conflict(is_free)? {
            return Err(StoreError::Conflict(conflict));
        }
        state.records.retain(|_, (_, put)| !is_removed(put));
        state.sequence = commit.sequence(state.sequence + 1);
        let sequence = state.sequence;
        state
            .records
            .extend(commit.put.into_iter().map(|put| (put.key.clone(), (put.revision.unwrap_or(sequence), put))));
        state.epochs.extend(commit.raise.into_iter().map(|epoch| (epoch, sequence)));
        Ok(Committed { sequence })
    }

    /// A commit always succeeds.
    fn health(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// What is acknowledged is not lost while the process runs. A store that can fail over returns another number then.
    fn lineage(&self) -> u64 {
        0
    }
}

impl State {
    fn epochs(&self, epochs: &[Epoch]) -> Vec<u64> {
        epochs.iter().map(|epoch| self.epochs.get(epoch).copied().unwrap_or_default()).collect()
    }

    fn holds(&self, require: &Require) -> bool {
        match require {
            Require::Absent(key) => !self.records.contains_key(key),
            Require::Exists(key) => self.records.contains_key(key),
            Require::Revision(key, revision) => self.records.get(key).is_some_and(|(found, _)| found == revision),
            Require::NoneBelow(uid, kinds) => {
                !self.records.keys().any(|key| kinds.contains(&key.kind) && key.uid.is_below(uid))
            }
            Require::NoneWith(kind, key, value) => {
                let with = |put: &Put| put.key.kind == *kind && put.filter.contains(&(*key, value.clone()));
                !self.records.values().any(|(_, put)| with(put))
            }
            Require::Epoch(epoch, value) => self.epochs.get(epoch).copied().unwrap_or_default() == *value,
            // Checked by `Commit::limit_conflict`.
            Require::AtMost(..) => true,
        }
    }
}

fn deletes(delete: &Delete, put: &Put) -> bool {
    match delete {
        Delete::Key(key) => put.key == *key,
        Delete::Below(uid, kinds) => kinds.contains(&put.key.kind) && put.key.uid.is_below(uid),
        Delete::With(kind, key, value) => put.key.kind == *kind && put.filter.contains(&(*key, value.clone())),
    }
}

fn matches(query: &Query, put: &Put) -> bool {
    put.key.kind == query.kind
        && query.scopes.iter().any(|scope: &Scope| scope.contains(&put.key.uid))
        && query.filters.iter().all(|filter: &Filter| filter.passes(&put.filter))
}

/// Returns the position of a record in the order of the query; the uid breaks ties.
fn sort_key(query: &Query, revision: u64, put: &Put) -> (KeyValue, Uid) {
    let value = match query.order.by {
        OrderBy::Uid => KeyValue::default(),
        OrderBy::Sequence => KeyValue::from_bytes(sequence_value(revision)),
        OrderBy::Key(name) => {
            put.sort.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone()).unwrap_or_default()
        }
    };
    (value, put.key.uid.clone())
}
