//! The smallest store that is obviously right: every record in one map, and a full scan for every question.
//!
//! It shares nothing with the memory store, so that the two can be held against each other. The conformance suite
//! compares stores with it over large lists and over thousands of random operations.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    Commit, Conflict, Delete, Epoch, Item, Key, KeyValue, OrderBy, Page, Position, Put, Query, Read, Record, Require,
    UniqueKey,
};

/// What a store should hold after the commits that were applied to it.
///
/// It gives out no sequences: [`Model::apply`] takes the one that the store under test returned, because stores may
/// leave gaps between theirs.
#[derive(Debug, Clone, Default)]
pub struct Model {
    records: BTreeMap<Key, Standing>,
    epochs: BTreeMap<Epoch, u64>,
}

#[derive(Debug, Clone)]
struct Standing {
    put: Put,
    revision: u64,
}

impl Model {
    /// Returns what [`Store::get`](super::Store::get) should return.
    pub fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Read {
        let record = |key: &Key| self.records.get(key).map(Standing::record);
        Read { records: keys.iter().map(record).collect(), epochs: self.epochs(epochs) }
    }

    /// Returns what [`Store::list`](super::Store::list) should return.
    pub fn list(&self, query: &Query) -> Page {
        self.listing(query).page(query)
    }

    /// Returns all that matches the query, in its order, whatever its `after`, `skip` and `limit`.
    pub fn listing(&self, query: &Query) -> Listing<'_> {
        let matching = self.records.values().filter(|standing| standing.matches(query));
        let mut sorted: Vec<_> = matching.map(|standing| (standing.position(query.order.by), standing)).collect();
        sorted.sort_by(|(left, _), (right, _)| compare(query, left, right));
        Listing { model: self, sorted }
    }

    /// Returns what stands against the commit.
    ///
    /// # Errors
    /// The [`Conflict`] with which [`Store::commit`](super::Store::commit) should refuse it.
    pub fn check(&self, commit: &Commit) -> Result<(), Conflict> {
        if let Some(index) = commit.require.iter().position(|require| !self.holds(require)) {
            return Err(Conflict::Require(index));
        }
        let replaced: BTreeSet<&Key> = commit.put.iter().map(|put| &put.key).collect();
        let mut taken: BTreeSet<&UniqueKey> = BTreeSet::new();
        for (key, standing) in self.records.iter().filter(|(_, standing)| !standing.put.unique.is_empty()) {
            if !replaced.contains(key) && !commit.delete.iter().any(|delete| standing.is_deleted_by(delete)) {
                taken.extend(&standing.put.unique);
            }
        }
        for (put, record) in commit.put.iter().enumerate() {
            if let Some(unique) = record.unique.iter().position(|unique| taken.contains(unique)) {
                return Err(Conflict::Unique { put, unique });
            }
            taken.extend(&record.unique);
        }
        Ok(())
    }

    /// Carries out a commit that nothing stands against, under this sequence.
    pub fn apply(&mut self, commit: &Commit, sequence: u64) {
        self.records.retain(|_, standing| !commit.delete.iter().any(|delete| standing.is_deleted_by(delete)));
        for put in &commit.put {
            self.records.insert(put.key.clone(), Standing { put: put.clone(), revision: sequence });
        }
        for epoch in &commit.raise {
            self.epochs.insert(epoch.clone(), sequence);
        }
    }

    fn holds(&self, require: &Require) -> bool {
        let none = |unwanted: &dyn Fn(&Put) -> bool| !self.records.values().any(|standing| unwanted(&standing.put));
        match require {
            Require::Absent(key) => !self.records.contains_key(key),
            Require::Exists(key) => self.records.contains_key(key),
            Require::Revision(key, revision) => self.records.get(key).is_some_and(|s| s.revision == *revision),
            Require::NoneBelow(uid, kinds) => none(&|put| kinds.contains(&put.key.kind) && put.key.uid.is_below(uid)),
            Require::NoneWith(kind, key, value) => none(&|put| put.key.kind == *kind && has(put, key, value)),
            Require::Epoch(epoch, value) => self.epochs.get(epoch).copied().unwrap_or(0) == *value,
        }
    }

    fn epochs(&self, epochs: &[Epoch]) -> Vec<u64> {
        epochs.iter().map(|epoch| self.epochs.get(epoch).copied().unwrap_or(0)).collect()
    }
}

/// What matches a query, in its order; cut into a page for each window that is wanted.
#[derive(Debug)]
pub struct Listing<'a> {
    model: &'a Model,
    sorted: Vec<(Position, &'a Standing)>,
}

impl Listing<'_> {
    /// Returns the page of a query that differs from the listing's at most in `after`, `skip`, `limit`, `bytes` and `count`.
    pub fn page(&self, query: &Query) -> Page {
        let is_passed = |position: &Position| {
            query.after.as_ref().is_some_and(|after| compare(query, position, after) != Ordering::Greater)
        };
        let passed = self.sorted.partition_point(|(position, _)| is_passed(position));
        let start = usize::try_from(query.skip).map_or(usize::MAX, |skip| passed.saturating_add(skip));
        let rest = self.sorted.get(start..).unwrap_or_default();
        let page = rest.get(..query.limit).unwrap_or(rest);
        let mut bytes = 0;
        let fits = |(at, (_, standing)): &(usize, &(Position, &Standing))| {
            bytes += standing.put.body.len();
            *at == 0 || bytes <= query.bytes
        };
        let length = page.iter().enumerate().take_while(fits).count();
        let page = page.get(..length).unwrap_or(page);
        let last = page.last().filter(|_| page.len() < rest.len());
        Page {
            items: page.iter().map(|(_, standing)| standing.item()).collect(),
            next: last.map(|(position, _)| position.clone()),
            total: query.count.then_some(self.sorted.len() as u64),
            epochs: self.model.epochs(&query.epochs),
        }
    }

    /// Returns how many match.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Tells whether nothing matches.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

impl Standing {
    fn matches(&self, query: &Query) -> bool {
        self.put.key.kind == query.kind
            && query.scopes.iter().any(|scope| scope.contains(&self.put.key.uid))
            && query.filters.iter().all(|filter| filter.passes(&self.put.filter))
    }

    fn is_deleted_by(&self, delete: &Delete) -> bool {
        let Key { kind, uid } = &self.put.key;
        match delete {
            Delete::Key(key) => *key == self.put.key,
            Delete::Below(top, kinds) => kinds.contains(kind) && uid.is_below(top),
            Delete::With(of, key, value) => kind == of && has(&self.put, key, value),
        }
    }

    fn position(&self, by: OrderBy) -> Position {
        let value = match by {
            OrderBy::Uid => KeyValue::default(),
            OrderBy::Sequence => KeyValue::integer(i64::try_from(self.revision).unwrap_or(i64::MAX)),
            OrderBy::Key(name) => {
                let found = self.put.sort.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| value.clone()).unwrap_or_default()
            }
        };
        Position { value, uid: self.put.key.uid.clone() }
    }

    fn record(&self) -> Record {
        let Put { key, rendering, body, private, .. } = self.put.clone();
        Record { key, revision: self.revision, rendering, body, private }
    }

    fn item(&self) -> Item {
        let Put { key, rendering, body, .. } = self.put.clone();
        Item { uid: key.uid, revision: self.revision, rendering, body }
    }
}

fn has(put: &Put, name: &str, value: &KeyValue) -> bool {
    put.filter.iter().any(|(key, other)| *key == name && other == value)
}

fn compare(query: &Query, left: &Position, right: &Position) -> Ordering {
    let ascending = (&left.value, &left.uid).cmp(&(&right.value, &right.uid));
    if query.order.descending { ascending.reverse() } else { ascending }
}
