//! The content of the store at one moment: an immutable value with cheap clones, from which a commit derives the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use super::{
    super::{Commit, Conflict, Delete, Epoch, Key, KindName, Put, Read, Require, StoreError, UniqueKey},
    kind::Kind,
    order::Records,
    rank_tree::RankTree,
    record::{NameId, Packed},
};
use crate::uid::{self, Uid};

/// The content of the store.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    sequence: u64,
    records: Records,
    kinds: BTreeMap<KindName, Arc<Kind>>,
    /// The owners of the unique keys of all records, sorted.
    unique: RankTree<Owner>,
    spaces: Vec<&'static str>,
    /// Has random keys, so that callers cannot choose values with equal hashes.
    hasher: RandomState,
    epochs: rpds::HashTrieMapSync<Epoch, u64>,
}

/// The hash of a unique key, and the number of the record that has the key. Records are only read where the hashes are
/// equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Owner {
    hash: u32,
    id: u32,
}

/// Allocates record numbers, and reuses those of deleted records. A number can be reused at once, because readers of an
/// earlier state have their own table of records.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordNumbers {
    used: u32,
    free: Vec<u32>,
}

impl RecordNumbers {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        })
    }

    fn has(&self, count: usize) -> bool {
        (u32::MAX - self.used) as usize + self.free.len() >= count
    }
}

impl State {
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(super) fn records(&self) -> &Records {
        &self.records
    }

    pub(super) fn kind(&self, name: &str) -> Option<&Kind> {
        self.kinds.get(name).map(|kind| &**kind)
    }

    pub(super) fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Read {
        // The keys of a page follow each other in the index by uid.
        let mut next = None;
        let record = |key: &Key| {
            let (rank, id) = self.kind(key.kind)?.find_near(&key.uid, next, &self.records)?;
            next = Some(rank + 1);
            Some(self.records.get(id)?.record(key.kind))
        };
        Read { records: keys.iter().map(record).collect(), epochs: self.epochs(epochs) }
    }

    pub(super) fn epochs(&self, epochs: &[Epoch]) -> Vec<u64> {
        epochs.iter().map(|epoch| self.epoch(epoch)).collect()
    }

    /// Returns the state after the commit. Allocates numbers for new records and frees those of deleted ones.
    pub(super) fn after(&self, commit: &Commit, numbers: &mut RecordNumbers) -> Result<Self, StoreError> {
        if let Some(index) = commit.require.iter().position(|require| !self.holds(require)) {
            return Err(StoreError::Conflict(Conflict::Require(index)));
        }
        let deleted: BTreeSet<(KindName, u32)> =
            commit.delete.iter().flat_map(|delete| self.deleted_by(delete)).collect();
        let existing: Vec<Option<u32>> = commit.put.iter().map(|put| self.find(&put.key)).collect();
        let is_new = |at: usize| existing.get(at).is_some_and(Option::is_none);
        let put: BTreeSet<u32> = existing.iter().copied().flatten().collect();
        let dropped = |name: KindName, top: &Uid| {
            let of_limit = |(kind, id): &&(KindName, u32)| {
                let is_below = |record: &Packed| uid::is_at_or_below(record.uid_text(), top);
                *kind == name && !put.contains(id) && self.records.get(*id).is_some_and(is_below)
            };
            deleted.iter().filter(of_limit).count() as u64
        };
        if let Some(conflict) = commit.limit_conflict(is_new, dropped, |kind, top| Ok(self.count(kind, top)))? {
            return Err(StoreError::Conflict(conflict));
        }
        // The unique keys of deleted and replaced records are released before any is taken, so that records can
        // exchange their keys.
        let released: BTreeSet<u32> =
            deleted.iter().map(|(_, id)| *id).chain(existing.iter().copied().flatten()).collect();
        let is_free = |key: &UniqueKey| Ok(self.owner(key).is_none_or(|owner| released.contains(&owner)));
        if let Some(conflict) = commit.unique_conflict(is_free)? {
            return Err(StoreError::Conflict(conflict));
        }
        if !numbers.has(commit.put.len()) {
            return Err(StoreError::Full("there are no free record numbers".into()));
        }

        // From here on nothing fails: `numbers` is not part of a state, and a rejected commit must not change it.
        let mut next = self.clone();
        next.sequence = commit.sequence(next.sequence + 1);
        for id in released {
            next.remove_unique(id);
        }
        for (kind, id) in &deleted {
            next.change(kind, *id, None);
            numbers.free.push(*id);
        }
        // The contract does not allow two puts of the same key; the last one wins.
        let last: BTreeMap<&Key, usize> = commit.put.iter().map(|put| &put.key).zip(0..).collect();
        for ((place, put), existing) in commit.put.iter().enumerate().zip(existing) {
            if last.get(&put.key) != Some(&place) {
                continue;
            }
            let id = existing.filter(|id| !deleted.contains(&(put.key.kind, *id)));
            next.put(put, id.unwrap_or_else(|| numbers.take()));
        }
        for epoch in &commit.raise {
            next.epochs.insert_mut(epoch.clone(), next.sequence);
        }
        Ok(next)
    }

    /// Returns this state as the one that follows `current`: with the next sequence, and with every epoch that either
    /// state has raised to it.
    pub(super) fn following(&self, current: &Self) -> Self {
        let sequence = current.sequence.max(self.sequence) + 1;
        let epochs = self.epochs.keys().chain(current.epochs.keys());
        let epochs = epochs.map(|epoch| (epoch.clone(), sequence)).collect();
        Self { sequence, epochs, ..self.clone() }
    }

    fn epoch(&self, epoch: &Epoch) -> u64 {
        self.epochs.get(epoch).copied().unwrap_or(0)
    }

    fn find(&self, key: &Key) -> Option<u32> {
        self.kind(key.kind)?.find(&key.uid, &self.records)
    }

    fn holds(&self, require: &Require) -> bool {
        match require {
            Require::Absent(key) => self.find(key).is_none(),
            Require::Exists(key) => self.find(key).is_some(),
            Require::Revision(key, revision) => {
                let record = self.find(key).and_then(|id| self.records.get(id));
                record.is_some_and(|record| record.revision() == *revision)
            }
            Require::NoneBelow(uid, kinds) => kinds.iter().all(|kind| self.below(kind, uid).is_empty()),
            Require::NoneWith(kind, key, value) => self.with(kind, key, value.as_bytes()).is_empty(),
            Require::Epoch(epoch, value) => self.epoch(epoch) == *value,
            // Checked when the changes of the commit are known.
            Require::AtMost(..) => true,
        }
    }

    /// Returns the number of records of a kind at or below a uid.
    fn count(&self, kind: &str, top: &Uid) -> u64 {
        let own = |kind: &Kind| usize::from(kind.find(top, &self.records).is_some());
        let all = |kind: &Kind| own(kind) + kind.below(top, None, &self.records).len();
        self.kind(kind).map_or(0, all) as u64
    }

    /// Returns the records that the delete applies to.
    fn deleted_by(&self, delete: &Delete) -> Vec<(KindName, u32)> {
        match delete {
            Delete::Key(key) => self.find(key).map(|id| (key.kind, id)).into_iter().collect(),
            Delete::Below(uid, kinds) => {
                kinds.iter().flat_map(|kind| self.below(kind, uid).into_iter().map(|id| (*kind, id))).collect()
            }
            Delete::With(kind, key, value) => {
                self.with(kind, key, value.as_bytes()).into_iter().map(|id| (*kind, id)).collect()
            }
        }
    }

    fn below(&self, kind: &str, uid: &Uid) -> Vec<u32> {
        self.kind(kind).map_or_else(Vec::new, |kind| kind.ids(None, kind.below(uid, None, &self.records)))
    }

    fn with(&self, kind: &str, key: &str, value: &[u8]) -> Vec<u32> {
        let found = self.kind(kind).and_then(|kind| Some((kind, kind.filter_id(key)?)));
        found.map_or_else(Vec::new, |(kind, id)| {
            let filter = Some((id, value));
            kind.ids(filter, kind.below("", filter, &self.records))
        })
    }

    /// Returns the number of the record that has the unique key.
    fn owner(&self, key: &UniqueKey) -> Option<u32> {
        let space = self.spaces.iter().position(|space| *space == key.space)? as NameId;
        let value = key.value.as_bytes();
        let has_key = |record: &Packed| record.uniques().any(|(own, other)| own == space && *other == *value);
        let hash = self.hash(space, value);
        let start = self.unique_rank(Owner { hash, id: 0 });
        let mut alike = self.unique.range(start..self.unique.len()).take_while(|owner| owner.hash == hash);
        alike.find(|owner| self.records.get(owner.id).is_some_and(has_key)).map(|owner| owner.id)
    }

    fn hash(&self, space: NameId, value: &[u8]) -> u32 {
        self.hasher.hash_one((space, value)) as u32
    }

    fn unique_rank(&self, owner: Owner) -> usize {
        self.unique.partition_point(|other| other < owner)
    }

    /// Returns the entries of the record with this number in the index of unique keys.
    fn owners(&self, id: u32, record: &Packed) -> Vec<Owner> {
        record.uniques().map(|(space, value)| Owner { hash: self.hash(space, &value), id }).collect()
    }

    fn remove_unique(&mut self, id: u32) {
        let owners = self.records.get(id).map_or_else(Vec::new, |record| self.owners(id, record));
        for owner in owners {
            self.unique.remove(self.unique_rank(owner));
        }
    }

    fn insert_unique(&mut self, id: u32, record: &Packed) {
        for owner in self.owners(id, record) {
            self.unique.insert(self.unique_rank(owner), owner);
        }
    }

    fn put(&mut self, put: &Put, id: u32) {
        let kind = Arc::make_mut(self.kinds.entry(put.key.kind).or_default());
        let spaces = &mut self.spaces;
        let space_id = |space| {
            let known = spaces.iter().position(|known| *known == space);
            known.unwrap_or_else(|| {
                spaces.push(space);
                spaces.len() - 1
            }) as NameId
        };
        let sort = kind.sort_names(put.sort.iter().map(|(name, _)| *name));
        let record =
            Packed::new(put, put.revision.unwrap_or(self.sequence), &sort, |name| kind.intern_filter(name), space_id);
        self.change(put.key.kind, id, Some(record.clone()));
        self.insert_unique(id, &record);
    }

    fn change(&mut self, kind: KindName, id: u32, now: Option<Packed>) {
        if let Some(kind) = self.kinds.get_mut(kind) {
            Arc::make_mut(kind).change(id, now, &mut self.records);
        }
    }
}
