//! Validates a commit and computes the entries that it writes.

use std::collections::{BTreeMap, BTreeSet};

use platform_engine::{
    store::{Commit, Conflict, Delete, Key, KindName, Require, StoreError, UniqueKey},
    uid::Uid,
};

use super::lists::{ListUpdates, Lists};
use crate::{
    entries::Entries,
    error::{corrupt, from_sled},
    query,
    schema::{self, Header, Row, Stored},
};

/// A valid commit, ready to be applied.
pub(super) struct Plan {
    pub(super) header: Header,
    pub(super) entries: Entries,
    /// The changes of the writer's state of lists.
    pub(super) lists: ListUpdates,
}

/// A record before and after a commit; `new` is encoded.
#[derive(Default)]
pub(super) struct Change {
    pub(super) old: Option<Stored>,
    pub(super) new: Option<Vec<u8>>,
}

/// The records that a commit changes, by kind and uid.
pub(super) type Changes = BTreeMap<(String, Uid), Change>;

impl Plan {
    /// Validates a commit and plans its writes. Nothing is written.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if a requirement does not hold or a unique key is taken.
    pub(super) fn make(db: &sled::Db, header: &Header, lists: &Lists, commit: &Commit) -> Result<Self, StoreError> {
        for (index, require) in commit.require.iter().enumerate() {
            if !holds(db, require)? {
                return Err(StoreError::Conflict(Conflict::Require(index)));
            }
        }
        let mut header = Header { sequence: commit.sequence(header.sequence + 1), ..*header };
        let mut changes = Changes::new();
        // A record that is deleted and put is one change, from its old state to the new one.
        for delete in &commit.delete {
            for (kind, uid) in deleted(db, delete)? {
                let old = query::record(db, &kind, &uid)?;
                changes.entry((kind, uid)).or_insert(Change { old, new: None });
            }
        }
        for put in &commit.put {
            let key = (put.key.kind.to_owned(), put.key.uid.clone());
            if !changes.contains_key(&key) {
                let old = query::record(db, put.key.kind, &put.key.uid)?;
                changes.insert(key.clone(), Change { old, new: None });
            }
            changes.entry(key).or_default().new = Some(Row::encode(put, put.revision.unwrap_or(header.sequence)));
        }
        let is_new = |at: usize| {
            let change =
                commit.put.get(at).and_then(|put| changes.get(&(put.key.kind.to_owned(), put.key.uid.clone())));
            change.is_some_and(|change| change.old.is_none())
        };
        let dropped = |kind: KindName, top: &Uid| {
            let is_dropped = |change: &Change| change.old.is_some() && change.new.is_none();
            let of_limit = |((name, uid), change): &(&(String, Uid), &Change)| {
                name == kind && uid.is_at_or_below(top) && is_dropped(change)
            };
            changes.iter().filter(of_limit).count() as u64
        };
        if let Some(conflict) = commit.limit_conflict(is_new, dropped, |kind, top| count(db, lists, kind, top))? {
            return Err(StoreError::Conflict(conflict));
        }
        if let Some(conflict) = commit.unique_conflict(|key| is_free(db, key, &changes))? {
            return Err(StoreError::Conflict(conflict));
        }

        // All removals come before all insertions: an index entry that one record removes and another sets, such as a
        // unique key that changes its owner, must be set in the end.
        let mut writes = Writes::default();
        let mut digest = Digest(header.digest);
        for ((kind, uid), change) in &changes {
            if let Some(old) = &change.old {
                digest.remove(old.seal);
                writes.remove_record(kind, uid, old)?;
            }
        }
        for ((kind, uid), change) in &changes {
            if let Some(new) = &change.new {
                digest.add(writes.insert_record(kind, uid, new)?);
            }
        }
        let lists = lists.plan(db, &changes, &mut header.next_list, &mut writes)?;
        for epoch in commit.raise.iter().collect::<BTreeSet<_>>() {
            let key = schema::epoch_key(epoch);
            let value = header.sequence.to_le_bytes();
            if let Some(old) = read(db, &key)? {
                digest.remove(schema::checksum(&key, &old));
            }
            digest.add(schema::checksum(&key, &value));
            writes.set(key, value.to_vec());
        }
        header.digest = digest.0;
        writes.set(schema::header_key(), header.encode());
        Ok(Self { header, entries: writes.entries(), lists })
    }
}

/// The sum of the checksums of all records and epochs; see [`Header::digest`].
struct Digest(u64);

impl Digest {
    fn add(&mut self, checksum: u64) {
        self.0 = self.0.wrapping_add(checksum);
    }

    fn remove(&mut self, checksum: u64) {
        self.0 = self.0.wrapping_sub(checksum);
    }
}

/// Returns the number of records of a kind at or below a uid.
fn count(db: &sled::Db, lists: &Lists, kind: KindName, top: &Uid) -> Result<u64, StoreError> {
    if let Some(all) = lists.len(kind, top) {
        return Ok(all);
    }
    let own = u64::from(query::record(db, kind, top)?.is_some());
    below(db, kind, top)?.try_fold(own, |count, key| key.map(|_| count + 1))
}

/// Returns whether a requirement holds.
fn holds(db: &sled::Db, require: &Require) -> Result<bool, StoreError> {
    let record = |key: &Key| query::record(db, key.kind, &key.uid);
    Ok(match require {
        Require::Absent(key) => record(key)?.is_none(),
        Require::Exists(key) => record(key)?.is_some(),
        Require::Revision(key, revision) => match record(key)? {
            Some(stored) => stored.row()?.revision == *revision,
            None => false,
        },
        Require::NoneBelow(uid, kinds) => {
            for kind in kinds {
                if below(db, kind, uid)?.next().transpose()?.is_some() {
                    return Ok(false);
                }
            }
            true
        }
        Require::NoneWith(kind, name, value) => {
            let prefix = schema::filter_prefix(kind, name, value.as_bytes());
            db.scan_prefix(prefix).next().transpose().map_err(from_sled)?.is_none()
        }
        Require::Epoch(epoch, value) => query::epoch(db, epoch)? == *value,
        // Checked when the changes of the commit are known.
        Require::AtMost(..) => true,
    })
}

/// Iterates over the keys of the descendants of a uid.
fn below(
    db: &sled::Db,
    kind: KindName,
    uid: &Uid,
) -> Result<impl Iterator<Item = Result<(String, Uid), StoreError>>, StoreError> {
    let prefix = schema::record_key(kind, &format!("{uid}/"));
    Ok(db.scan_prefix(prefix).keys().map(|key| {
        let key = key.map_err(from_sled)?;
        schema::split_record_key(&key).ok_or_else(|| corrupt("the key of a record is malformed"))
    }))
}

/// Returns the keys of the records that match a delete; with [`Delete::Key`], whether or not the record exists.
fn deleted(db: &sled::Db, delete: &Delete) -> Result<Vec<(String, Uid)>, StoreError> {
    match delete {
        Delete::Key(key) => Ok(vec![(key.kind.to_owned(), key.uid.clone())]),
        Delete::Below(uid, kinds) => {
            let mut all = Vec::new();
            for kind in kinds {
                for key in below(db, kind, uid)? {
                    all.push(key?);
                }
            }
            Ok(all)
        }
        Delete::With(kind, name, value) => {
            let prefix = schema::filter_prefix(kind, name, value.as_bytes());
            let uid = |key: sled::Result<sled::IVec>| {
                let uid = query::rest_as_uid(&key.map_err(from_sled)?, prefix.len(), "")?;
                Ok(((*kind).to_owned(), uid))
            };
            db.scan_prefix(&prefix).keys().map(uid).collect()
        }
    }
}

/// Returns whether a unique key has no owner, or one that the commit changes.
fn is_free(db: &sled::Db, key: &UniqueKey, changes: &Changes) -> Result<bool, StoreError> {
    let Some(owner) = read(db, &schema::unique_key(key.space, key.value.as_bytes()))? else { return Ok(true) };
    let owner = schema::split_record_key(&owner).ok_or_else(|| corrupt("the owner of a unique key is malformed"))?;
    Ok(changes.contains_key(&owner))
}

/// The entries to remove and to set, by key. An entry that is removed and then set to the same value is not written.
#[derive(Default)]
pub(super) struct Writes(BTreeMap<Vec<u8>, Write>);

struct Write {
    /// The current value, if it was given to [`Writes::remove`].
    old: Option<Vec<u8>>,
    new: Option<Vec<u8>>,
}

impl Writes {
    /// Removes an entry whose current value is `value`. Must come before a [`Writes::set`] of the same key.
    pub(super) fn remove(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.0.insert(key, Write { old: Some(value), new: None });
    }

    /// Sets an entry.
    pub(super) fn set(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.0.entry(key).or_insert(Write { old: None, new: None }).new = Some(value);
    }

    fn entries(self) -> Entries {
        let mut entries = Entries::default();
        for (key, Write { old, new }) in self.0 {
            match new {
                Some(value) if Some(&value) == old.as_ref() => {}
                Some(value) => {
                    let sealed = schema::seal(&key, &value);
                    entries.set(key, Some(sealed));
                }
                None => entries.set(key, None),
            }
        }
        entries
    }

    /// Removes a record and the entries that lead to it, except those of lists.
    fn remove_record(&mut self, kind: &str, uid: &Uid, old: &Stored) -> Result<(), StoreError> {
        // The empty value differs from every new value, so a replaced record is always written.
        self.remove(schema::record_key(kind, uid), Vec::new());
        for number in 0..old.pieces {
            self.remove(schema::piece_key(kind, uid, number), Vec::new());
        }
        for (key, value) in entries(kind, uid, &old.row()?) {
            self.remove(key, value);
        }
        Ok(())
    }

    /// Writes a record and the entries that lead to it, except those of lists; returns the record's checksum.
    fn insert_record(&mut self, kind: &str, uid: &Uid, new: &[u8]) -> Result<u64, StoreError> {
        let row = Row::parse(new).ok_or_else(|| corrupt("a new record is malformed"))?;
        for (key, value) in entries(kind, uid, &row) {
            self.set(key, value);
        }
        let (head, pieces) = Stored::split(new);
        for (number, piece) in (0..).zip(pieces) {
            self.set(schema::piece_key(kind, uid, number), piece.to_vec());
        }
        let key = schema::record_key(kind, uid);
        let checksum = schema::checksum(&key, &head);
        self.set(key, head);
        Ok(checksum)
    }
}

/// Returns the entries that lead to a record by filter value, sequence and unique key; those of lists are not included.
pub(crate) fn entries(kind: &str, uid: &Uid, row: &Row<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let filters = row.filters().into_iter();
    let mut entries: Vec<_> =
        filters.map(|(name, value)| (schema::filter_key(kind, name, value, uid), Vec::new())).collect();
    entries.push((schema::sequence_key(kind, row.revision, uid), Vec::new()));
    let owner = schema::record_key(kind, uid);
    entries.extend(row.unique.iter().map(|(space, value)| (schema::unique_key(space, value), owner.clone())));
    entries
}

/// Returns the value under a key, without its checksum.
fn read(db: &sled::Db, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let stored = db.get(key).map_err(from_sled)?;
    stored.map(|stored| Ok(schema::unseal(key, &stored)?.0.to_vec())).transpose()
}
