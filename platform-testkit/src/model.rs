//! The smallest store that is obviously correct: all records in one map, and a full scan for every query.
//!
//! It shares no code with the memory store, so that the two can be compared. The conformance suite compares stores with
//! it for large lists and for thousands of random operations.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use platform_engine::store::{
    Commit, Conflict, Delete, Epoch, Item, Key, KeyValue, OrderBy, Page, Position, Put, Query, Read, Record, Require,
    UniqueKey,
};

/// The expected content of a store after the applied commits.
///
/// It does not assign sequences: [`Model::apply`] takes the one that the store under test returned, because stores may
/// leave gaps between sequences.
#[derive(Debug, Clone, Default)]
pub struct Model {
    records: BTreeMap<Key, Stored>,
    epochs: BTreeMap<Epoch, u64>,
    /// The sequence of the last commit to each organization.
    last: BTreeMap<String, u64>,
}

#[derive(Debug, Clone)]
struct Stored {
    put: Put,
    revision: u64,
}

impl Model {
    /// Returns the expected result of [`Store::get`](platform_engine::store::Store::get).
    pub fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Read {
        let record = |key: &Key| self.records.get(key).map(Stored::record);
        Read { records: keys.iter().map(record).collect(), epochs: self.epochs(epochs) }
    }

    /// Returns the expected result of [`Store::list`](platform_engine::store::Store::list).
    pub fn list(&self, query: &Query) -> Page {
        self.listing(query).page(query)
    }

    /// Returns all records that match the query, in its order, regardless of `after`, `skip` and `limit`.
    pub fn listing(&self, query: &Query) -> Listing<'_> {
        let matching = self.records.values().filter(|stored| stored.matches(query));
        let mut sorted: Vec<_> = matching.map(|stored| (stored.position(query.order.by), stored)).collect();
        sorted.sort_by(|(left, _), (right, _)| compare(query, left, right));
        Listing { model: self, sorted }
    }

    /// Checks whether the commit is expected to succeed.
    ///
    /// # Errors
    /// The [`Conflict`] with which [`Store::commit`](platform_engine::store::Store::commit) must reject it.
    pub fn check(&self, commit: &Commit) -> Result<(), Conflict> {
        if let Some(index) = commit.require.iter().position(|require| !self.holds(require)) {
            return Err(Conflict::Require(index));
        }
        if let Some(index) = commit.require.iter().position(|require| self.exceeds(require, commit)) {
            return Err(Conflict::Require(index));
        }
        let replaced: BTreeSet<&Key> = commit.put.iter().map(|put| &put.key).collect();
        let mut taken: BTreeSet<&UniqueKey> = BTreeSet::new();
        for (key, stored) in self.records.iter().filter(|(_, stored)| !stored.put.unique.is_empty()) {
            if !replaced.contains(key) && !commit.delete.iter().any(|delete| stored.is_deleted_by(delete)) {
                taken.extend(&stored.put.unique);
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

    /// Returns the greatest sequence of the earlier commits to the organizations that a commit writes to or requires
    /// something of: the sequence of the commit must be greater.
    pub fn last_sequence(&self, commit: &Commit) -> u64 {
        let required = commit.require.iter().filter_map(|require| match require {
            Require::Absent(key) | Require::Exists(key) | Require::Revision(key, _) => Some(key.uid.root()),
            Require::NoneBelow(uid, _) | Require::AtMost(_, uid, _) => Some(uid.root()),
            Require::Epoch(epoch, _) => Some(epoch.organization()),
            // No organization in particular.
            Require::NoneWith(..) => None,
        });
        let written = self.written(commit);
        let all = required.chain(written.iter().map(String::as_str));
        all.filter_map(|organization| self.last.get(organization).copied()).max().unwrap_or_default()
    }

    /// Returns the organizations that a commit writes to.
    fn written(&self, commit: &Commit) -> BTreeSet<String> {
        let deleted = self.records.values().filter(|stored| commit.delete.iter().any(|one| stored.is_deleted_by(one)));
        let deleted = deleted.map(|stored| stored.put.key.uid.root());
        let put = commit.put.iter().map(|put| put.key.uid.root());
        deleted.chain(put).chain(commit.raise.iter().map(Epoch::organization)).map(str::to_owned).collect()
    }

    /// Applies a commit that [`Model::check`] accepts, with this sequence.
    pub fn apply(&mut self, commit: &Commit, sequence: u64) {
        self.last.extend(self.written(commit).into_iter().map(|organization| (organization, sequence)));
        self.records.retain(|_, stored| !commit.delete.iter().any(|delete| stored.is_deleted_by(delete)));
        for put in &commit.put {
            let revision = put.revision.unwrap_or(sequence);
            self.records.insert(put.key.clone(), Stored { put: put.clone(), revision });
        }
        for epoch in &commit.raise {
            self.epochs.insert(epoch.clone(), sequence);
        }
    }

    /// Returns all records with their revisions, in the order of their kinds and uids: the puts that make a copy.
    pub fn puts(&self) -> impl Iterator<Item = Put> {
        self.records.values().map(|stored| Put { revision: Some(stored.revision), ..stored.put.clone() })
    }

    fn holds(&self, require: &Require) -> bool {
        let none = |matches: &dyn Fn(&Put) -> bool| !self.records.values().any(|stored| matches(&stored.put));
        match require {
            Require::Absent(key) => !self.records.contains_key(key),
            Require::Exists(key) => self.records.contains_key(key),
            Require::Revision(key, revision) => self.records.get(key).is_some_and(|s| s.revision == *revision),
            Require::NoneBelow(uid, kinds) => none(&|put| kinds.contains(&put.key.kind) && put.key.uid.is_below(uid)),
            Require::NoneWith(kind, key, value) => none(&|put| put.key.kind == *kind && has(put, key, value)),
            Require::Epoch(epoch, value) => self.epochs.get(epoch).copied().unwrap_or(0) == *value,
            // Checked after the others, by [`Model::exceeds`].
            Require::AtMost(..) => true,
        }
    }

    /// Returns whether the commit would exceed a limit.
    fn exceeds(&self, require: &Require, commit: &Commit) -> bool {
        let Require::AtMost(kind, top, most) = require else { return false };
        let of_limit = |key: &&Key| key.kind == *kind && key.uid.is_at_or_below(top);
        let before: BTreeSet<&Key> = self.records.keys().filter(of_limit).collect();
        let is_kept = |key: &&Key| {
            self.records
                .get(*key)
                .is_some_and(|stored| !commit.delete.iter().any(|delete| stored.is_deleted_by(delete)))
        };
        let mut after: BTreeSet<&Key> = before.iter().copied().filter(is_kept).collect();
        after.extend(commit.put.iter().map(|put| &put.key).filter(of_limit));
        after.len() > before.len() && after.len() as u64 > *most
    }

    fn epochs(&self, epochs: &[Epoch]) -> Vec<u64> {
        epochs.iter().map(|epoch| self.epochs.get(epoch).copied().unwrap_or(0)).collect()
    }
}

/// The matches of a query, in its order, from which pages are taken.
#[derive(Debug)]
pub struct Listing<'a> {
    model: &'a Model,
    sorted: Vec<(Position, &'a Stored)>,
}

impl Listing<'_> {
    /// Returns the page of a query that differs from the listing's query only in `after`, `skip`, `limit`, `bytes` and
    /// `count`.
    pub fn page(&self, query: &Query) -> Page {
        let is_passed = |position: &Position| {
            query.after.as_ref().is_some_and(|after| compare(query, position, after) != Ordering::Greater)
        };
        let passed = self.sorted.partition_point(|(position, _)| is_passed(position));
        let start = usize::try_from(query.skip).map_or(usize::MAX, |skip| passed.saturating_add(skip));
        let rest = self.sorted.get(start..).unwrap_or_default();
        let page = rest.get(..query.limit).unwrap_or(rest);
        let mut bytes = 0;
        let fits = |(at, (_, stored)): &(usize, &(Position, &Stored))| {
            bytes += stored.put.body.len();
            *at == 0 || bytes <= query.bytes
        };
        let length = page.iter().enumerate().take_while(fits).count();
        let page = page.get(..length).unwrap_or(page);
        let last = page.last().filter(|_| page.len() < rest.len());
        Page {
            items: page.iter().map(|(_, stored)| stored.item()).collect(),
            next: last.map(|(position, _)| position.clone()),
            total: query.count.then_some(self.sorted.len() as u64),
            epochs: self.model.epochs(&query.epochs),
        }
    }

    /// Returns the number of matches.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Returns whether there are no matches.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

impl Stored {
    fn matches(&self, query: &Query) -> bool {
        self.put.key.kind == query.kind
            && query.scopes.iter().any(|scope| scope.contains(&self.put.key.uid))
            && query.filters.iter().all(|filter| filter.passes(&self.put.sort, &self.put.filter))
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
        let Put { key, rendering, body, private, .. } = self.put.clone();
        Item::new(key.uid, self.revision, rendering, body, !private.is_empty())
    }
}

fn has(put: &Put, name: &str, value: &KeyValue) -> bool {
    put.filter.iter().any(|(key, other)| *key == name && other == value)
}

fn compare(query: &Query, left: &Position, right: &Position) -> Ordering {
    let ascending = (&left.value, &left.uid).cmp(&(&right.value, &right.uid));
    if query.order.descending { ascending.reverse() } else { ascending }
}
