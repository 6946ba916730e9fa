//! The decision about each commit of a batch, in memory: a rejected commit changes nothing that the others see.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    convert::Infallible,
};

use platform_engine::store::{
    Commit, Conflict, Delete, Epoch, Key, KeyName, KeyValue, KindName, Put, Require, StoreError, UniqueKey,
};
use platform_engine::uid::{self, Uid};
use uuid::Uuid;

use crate::schema::{self, Org, SLOTS, Slots};

/// The index data of a stored record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) revision: i64,
    pub(crate) queue: bool,
    pub(crate) sort: [Option<Vec<u8>>; SLOTS],
    pub(crate) filter: Vec<(String, Vec<u8>)>,
    pub(crate) unique: Vec<(String, Vec<u8>)>,
}

impl Stored {
    /// Returns the index data of a record to write.
    pub(crate) fn of(put: &Put, revision: i64, slots: &Slots) -> Self {
        let mut sort: [Option<Vec<u8>>; SLOTS] = Default::default();
        // A record without a key has its empty value, so that the index contains the record.
        let used = sort.iter_mut().zip(slots.keys(put.key.kind));
        for (slot, key) in used {
            let own = put.sort.iter().find(|(name, _)| name == key);
            *slot = Some(own.map(|(_, value)| value.as_bytes().to_vec()).unwrap_or_default());
        }
        let filter = put.filter.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        let unique = put.unique.iter().map(|key| (key.space.to_owned(), key.value.as_bytes().to_vec())).collect();
        Self { revision, queue: put.queue, sort, filter, unique }
    }
}

/// The locks of a batch, and the organizations whose sequence a commit continues.
#[derive(Debug, Clone, Default)]
pub(crate) struct Homes {
    /// The organizations that are changed.
    pub(crate) written: BTreeSet<Org>,
    /// The organizations that requirements read.
    pub(crate) read: BTreeSet<Org>,
    /// The filters, each a kind and a filter key, of which records that are put have values.
    pub(crate) valued: BTreeSet<(KindName, KeyName)>,
    /// The filters of which no record of any organization may get certain values.
    pub(crate) barred: BTreeSet<(KindName, KeyName)>,
    /// Whether the commit changes organizations that are not known in advance.
    pub(crate) everywhere: bool,
}

impl Homes {
    pub(crate) fn of(commit: &Commit) -> Self {
        let mut homes = Self::default();
        for require in &commit.require {
            match require {
                Require::Absent(key) | Require::Exists(key) | Require::Revision(key, _) => {
                    homes.read.insert(schema::organization(&key.uid));
                }
                Require::NoneBelow(uid, _) | Require::AtMost(_, uid, _) => {
                    homes.read.insert(schema::organization(uid));
                }
                Require::NoneWith(kind, key, _) => drop(homes.barred.insert((*kind, *key))),
                Require::Epoch(epoch, _) => drop(homes.read.insert(schema::epoch(epoch).0)),
            }
        }
        for delete in &commit.delete {
            match delete {
                Delete::Key(key) => homes.write(&key.uid),
                Delete::Below(uid, _) => drop(homes.written.insert(schema::organization(uid))),
                Delete::With(..) => homes.everywhere = true,
            }
        }
        for put in &commit.put {
            homes.write(&put.key.uid);
            homes.valued.extend(put.filter.iter().map(|(key, _)| (put.key.kind, *key)));
        }
        homes.written.extend(commit.raise.iter().map(|epoch| schema::epoch(epoch).0));
        homes
    }

    fn write(&mut self, uid: &str) {
        self.written.insert(schema::organization(uid));
        if uid::parent(uid).is_none() {
            // The list of roots.
            self.written.insert(schema::installation());
        }
    }

    /// Returns a batch's locks together with those of another commit.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.written.extend(&other.written);
        self.read.extend(&other.read);
        self.valued.extend(&other.valued);
        self.barred.extend(&other.barred);
        self.everywhere |= other.everywhere;
    }
}

/// Rejects a commit that the database cannot store.
///
/// # Errors
/// [`StoreError::Invalid`].
pub(crate) fn verify(commit: &Commit) -> Result<(), StoreError> {
    let required = commit.require.iter().filter_map(|require| match require {
        Require::Absent(key) | Require::Exists(key) | Require::Revision(key, _) => Some(&key.uid),
        Require::NoneBelow(uid, _) | Require::AtMost(_, uid, _) => Some(uid),
        Require::Epoch(epoch, _) => Some(&epoch.uid),
        Require::NoneWith(..) => None,
    });
    let deleted = commit.delete.iter().filter_map(|delete| match delete {
        Delete::Key(key) => Some(&key.uid),
        Delete::Below(uid, _) => Some(uid),
        Delete::With(..) => None,
    });
    let put = commit.put.iter().map(|put| &put.key.uid);
    schema::verify(required.chain(deleted).chain(put).chain(commit.raise.iter().map(|epoch| &epoch.uid)))
}

/// Returns whether a commit depends on records that are not known in advance. Such a commit is the first of its batch,
/// so that what was read of the database is the state that it is checked against.
pub(crate) fn is_open(commit: &Commit) -> bool {
    commit.require.iter().any(|require| matches!(require, Require::NoneBelow(..) | Require::NoneWith(..)))
        || commit.delete.iter().any(|delete| !matches!(delete, Delete::Key(_)))
}

/// The records of a kind with a value under a filter key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct With {
    pub(crate) kind: KindName,
    pub(crate) key: KeyName,
    pub(crate) value: KeyValue,
}

/// The reads of a batch before its commits are decided.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) keys: HashSet<Key>,
    pub(crate) epochs: HashSet<Epoch>,
    pub(crate) unique: HashSet<UniqueKey>,
    /// Records below uids of which none may exist, and those to delete.
    pub(crate) none_below: Vec<(KindName, String)>,
    /// Records at or below uids, which limits count.
    pub(crate) counts: HashSet<Key>,
    pub(crate) below: Vec<(KindName, String)>,
    pub(crate) none_with: Vec<With>,
    pub(crate) with: Vec<(KindName, Uuid)>,
}

impl Wanted {
    pub(crate) fn add(&mut self, commit: &Commit) {
        for require in &commit.require {
            match require {
                Require::Absent(key) | Require::Exists(key) | Require::Revision(key, _) => {
                    self.keys.insert(key.clone());
                }
                Require::NoneBelow(uid, kinds) => {
                    self.none_below.extend(kinds.iter().map(|kind| (*kind, uid.to_string())));
                }
                Require::NoneWith(kind, key, value) => {
                    self.none_with.push(With { kind, key, value: value.clone() });
                }
                Require::Epoch(epoch, _) => drop(self.epochs.insert(epoch.clone())),
                Require::AtMost(kind, top, _) => {
                    let top = Key::new(kind, top.clone());
                    self.keys.insert(top.clone());
                    self.counts.insert(top);
                }
            }
        }
        for delete in &commit.delete {
            match delete {
                Delete::Key(key) => drop(self.keys.insert(key.clone())),
                Delete::Below(uid, kinds) => self.below.extend(kinds.iter().map(|kind| (*kind, uid.to_string()))),
                Delete::With(kind, key, value) => {
                    self.with.push((*kind, schema::filter_value(kind, key, value.as_bytes())));
                }
            }
        }
        for put in &commit.put {
            self.keys.insert(put.key.clone());
            self.unique.extend(put.unique.iter().cloned());
        }
    }
}

/// A record that a batch reads or changes.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// The record before the batch.
    pub(crate) before: Option<Stored>,
    /// The record after the commits that were decided, if they changed it.
    pub(crate) after: Option<Option<After>>,
}

/// A record that a batch writes.
#[derive(Debug)]
pub(crate) struct After {
    pub(crate) put: Put,
    pub(crate) stored: Stored,
}

impl Change {
    fn now(&self) -> Option<&Stored> {
        match &self.after {
            None => self.before.as_ref(),
            Some(after) => after.as_ref().map(|after| &after.stored),
        }
    }
}

/// The state that the commits of a batch are checked against: what was read, and the changes of the commits before.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) records: HashMap<Key, Change>,
    pub(crate) epochs: HashMap<Epoch, u64>,
    /// The epochs that the batch raises.
    pub(crate) raised: HashMap<Epoch, i64>,
    /// The owner of each unique key that was read.
    pub(crate) owners: HashMap<UniqueKey, (String, String)>,
    pub(crate) heads: HashMap<Org, i64>,
    /// The organizations whose heads the batch raises.
    pub(crate) moved: BTreeSet<Org>,
    /// The records that exist of [`Wanted::none_below`] and [`Wanted::none_with`].
    pub(crate) found_below: HashSet<(KindName, String)>,
    pub(crate) found_with: HashSet<With>,
    /// The number of records of each of [`Wanted::counts`], after the commits that were decided.
    pub(crate) counts: HashMap<Key, u64>,
    pub(crate) slots: Slots,
}

impl State {
    /// Decides about a commit, and applies it to the state if nothing is in the way. Returns its sequence.
    pub(crate) fn decide(&mut self, commit: &Commit, homes: &Homes, now: i64) -> Result<i64, Conflict> {
        if let Some(index) = commit.require.iter().position(|require| !self.holds(require)) {
            return Err(Conflict::Require(index));
        }
        let deleted = self.deleted(commit);
        let is_new = |at: usize| commit.put.get(at).is_some_and(|put| !self.exists(&put.key));
        let dropped = |kind: KindName, top: &Uid| {
            let is_put = |key: &Key| commit.put.iter().any(|put| put.key == *key);
            let of_limit = |key: &&Key| key.kind == kind && key.uid.is_at_or_below(top) && !is_put(key);
            deleted.iter().filter(of_limit).count() as u64
        };
        let count = |kind: KindName, top: &Uid| {
            Ok::<_, Infallible>(self.counts.get(&Key::new(kind, top.clone())).copied().unwrap_or_default())
        };
        let Ok(conflict) = commit.limit_conflict(is_new, dropped, count);
        if let Some(conflict) = conflict {
            return Err(conflict);
        }
        let changed: HashSet<(&str, &str)> = deleted
            .iter()
            .chain(commit.put.iter().map(|put| &put.key))
            .map(|key| (key.kind, key.uid.as_str()))
            .collect();
        let conflict = commit.unique_conflict(|key| {
            let owner = self.owners.get(key);
            Ok::<_, Infallible>(owner.is_none_or(|(kind, uid)| changed.contains(&(kind.as_str(), uid.as_str()))))
        });
        let Ok(conflict) = conflict;
        if let Some(conflict) = conflict {
            return Err(conflict);
        }
        Ok(self.apply(commit, deleted, homes, now))
    }

    fn holds(&self, require: &Require) -> bool {
        let revision = |key: &Key| self.records.get(key)?.now().map(|stored| stored.revision.cast_unsigned());
        match require {
            Require::Absent(key) => revision(key).is_none(),
            Require::Exists(key) => revision(key).is_some(),
            Require::Revision(key, wanted) => revision(key) == Some(*wanted),
            Require::NoneBelow(uid, kinds) => {
                !kinds.iter().any(|kind| self.found_below.contains(&(*kind, uid.to_string())))
            }
            Require::NoneWith(kind, key, value) => !self.found_with.contains(&With { kind, key, value: value.clone() }),
            Require::Epoch(epoch, wanted) => {
                let raised = self.raised.get(epoch).map(|value| value.cast_unsigned());
                raised.or_else(|| self.epochs.get(epoch).copied()).unwrap_or(0) == *wanted
            }
            // Checked when the changes of the commit are known.
            Require::AtMost(..) => true,
        }
    }

    fn exists(&self, key: &Key) -> bool {
        self.records.get(key).is_some_and(|change| change.now().is_some())
    }

    /// Adds what a commit creates and deletes to the counts.
    fn count(&mut self, commit: &Commit, deleted: &HashSet<Key>) {
        if self.counts.is_empty() {
            return;
        }
        let is_put = |key: &Key| commit.put.iter().any(|put| put.key == *key);
        let dropped: Vec<&Key> = deleted.iter().filter(|key| !is_put(key)).collect();
        let created: Vec<&Key> = commit.put.iter().map(|put| &put.key).filter(|key| !self.exists(key)).collect();
        for (top, count) in &mut self.counts {
            let of_limit = |key: &&&Key| key.kind == top.kind && key.uid.is_at_or_below(&top.uid);
            let added = created.iter().filter(of_limit).count() as u64;
            let removed = dropped.iter().filter(of_limit).count() as u64;
            *count = count.saturating_add(added).saturating_sub(removed);
        }
    }

    /// Returns the existing records that a commit deletes.
    fn deleted(&self, commit: &Commit) -> HashSet<Key> {
        let exists = |key: &&Key| self.exists(key);
        let has = |stored: &Stored, key: KeyName, value: &KeyValue| {
            stored.filter.iter().any(|(own, other)| own == key && other == value.as_bytes())
        };
        let mut deleted = HashSet::new();
        for delete in &commit.delete {
            match delete {
                Delete::Key(key) => deleted.extend(Some(key).filter(exists).cloned()),
                Delete::Below(top, kinds) => {
                    let below = |key: &&Key| kinds.contains(&key.kind) && key.uid.is_below(top);
                    deleted.extend(self.records.keys().filter(below).filter(exists).cloned());
                }
                Delete::With(kind, name, value) => {
                    let matches = |(key, change): &(&Key, &Change)| {
                        key.kind == *kind && change.now().is_some_and(|stored| has(stored, name, value))
                    };
                    deleted.extend(self.records.iter().filter(matches).map(|(key, _)| key.clone()));
                }
            }
        }
        deleted
    }

    fn apply(&mut self, commit: &Commit, deleted: HashSet<Key>, homes: &Homes, now: i64) -> i64 {
        let touched: BTreeSet<Org> =
            homes.written.iter().copied().chain(deleted.iter().map(|key| schema::organization(&key.uid))).collect();
        let head = |org: &Org| self.heads.get(org).copied().unwrap_or(0);
        let last = touched.iter().chain(&homes.read).map(head).max().unwrap_or(0);
        // A clock makes sequences of different organizations comparable, roughly, and an epoch that was lost in a
        // failover is not given again. The order in an organization does not rest on it.
        let sequence = last.saturating_add(1).max(now);
        let sequence = commit.sequence(sequence.cast_unsigned()).cast_signed();
        for org in touched {
            self.heads.insert(org, sequence);
            self.moved.insert(org);
        }
        let changed: HashSet<(&str, &str)> = deleted
            .iter()
            .chain(commit.put.iter().map(|put| &put.key))
            .map(|key| (key.kind, key.uid.as_str()))
            .collect();
        let has_unique =
            |key: &Key| self.records.get(key).and_then(Change::now).is_some_and(|stored| !stored.unique.is_empty());
        if deleted.iter().chain(commit.put.iter().map(|put| &put.key)).any(has_unique) {
            self.owners.retain(|_, (kind, uid)| !changed.contains(&(kind, uid)));
        }
        self.count(commit, &deleted);
        for key in deleted {
            self.records.entry(key).or_default().after = Some(None);
        }
        for put in commit.put.iter().cloned() {
            for key in &put.unique {
                self.owners.insert(key.clone(), (put.key.kind.to_owned(), put.key.uid.to_string()));
            }
            let revision = put.revision.map_or(sequence, u64::cast_signed);
            let stored = Stored::of(&put, revision, &self.slots);
            let key = put.key.clone();
            self.records.entry(key).or_default().after = Some(Some(After { put, stored }));
        }
        for epoch in &commit.raise {
            self.raised.insert(epoch.clone(), sequence);
        }
        sequence
    }
}
