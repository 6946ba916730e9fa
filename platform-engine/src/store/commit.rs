//! An atomic change of a store: its requirements, its deletes and its puts.

use std::collections::HashMap;

use bytes::Bytes;

use super::{Conflict, Epoch, Key, KeyName, KeyValue, KindName, Put, UniqueKey};
use crate::uid::Uid;

/// The kind and the namespace of the puts of a preview, of which there are never records.
const PREVIEW: &str = "Preview";

/// An atomic change, and its requirements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commit {
    /// The requirements.
    pub require: Vec<Require>,
    /// The records to delete, before the puts.
    pub delete: Vec<Delete>,
    /// The records to write, no two with the same key.
    pub put: Vec<Put>,
    /// The epochs to raise, each to this commit's sequence.
    pub raise: Vec<Epoch>,
}

impl Commit {
    /// Returns the sequence of the commit, of which `next` is the least that is possible: the greatest revision that a
    /// put has, if that is greater.
    pub fn sequence(&self, next: u64) -> u64 {
        self.put.iter().filter_map(|put| put.revision).fold(next, u64::max)
    }

    /// Turns the commit into a preview, which changes nothing: it gets two more puts, which share a unique key. A store
    /// checks unique keys last and in their order, so this conflict, which is returned, means that the commit would have
    /// been applied. So no store needs another method, nor can one forget a check.
    pub fn make_preview(&mut self) -> Conflict {
        let in_delete = |delete: &Delete| match delete {
            Delete::Key(key) => Some(key.uid.clone()),
            Delete::Below(uid, _) => Some(uid.clone()),
            Delete::With(..) => None,
        };
        // In an organization that the commit changes anyway.
        let uid = self.put.first().map(|put| put.key.uid.clone());
        let uid = uid.or_else(|| self.delete.iter().find_map(in_delete));
        let uid = uid.or_else(|| self.raise.first().map(|epoch| epoch.uid.clone())).unwrap_or_default();
        let shared = UniqueKey { space: PREVIEW, value: KeyValue::text(PREVIEW) };
        for name in ["preview-1", "preview-2"] {
            self.put.push(Put {
                key: Key::new(PREVIEW, Uid::opaque(format!("{}/{name}", uid.root()))),
                sort: Vec::new(),
                filter: Vec::new(),
                unique: vec![shared.clone()],
                search: Vec::new(),
                rendering: 0,
                body: Bytes::new(),
                private: Bytes::new(),
                queue: false,
                revision: None,
            });
        }
        Conflict::Unique { put: self.put.len() - 1, unique: 0 }
    }

    /// Returns the conflict of the first unique key that two of the puts share, or that belongs to a record that the
    /// commit neither deletes nor replaces. `is_free` returns whether a key does not belong to such a record.
    ///
    /// # Errors
    /// Those of `is_free`.
    pub fn unique_conflict<E>(
        &self,
        mut is_free: impl FnMut(&UniqueKey) -> Result<bool, E>,
    ) -> Result<Option<Conflict>, E> {
        let mut taken: HashMap<&UniqueKey, usize> = HashMap::new();
        for (put, record) in self.put.iter().enumerate() {
            for (unique, key) in record.unique.iter().enumerate() {
                if *taken.entry(key).or_insert(put) != put || !is_free(key)? {
                    return Ok(Some(Conflict::Unique { put, unique }));
                }
            }
        }
        Ok(None)
    }

    /// Returns the conflict of the first [`Require::AtMost`] that does not hold. `is_new` returns whether the put at this
    /// index creates a record; `deleted` returns the number of records of a kind at or below a uid that the commit deletes
    /// and does not put; `count` returns the number of those that exist before it, and is called only if the commit adds
    /// records.
    ///
    /// # Errors
    /// Those of `count`.
    pub fn limit_conflict<E>(
        &self,
        is_new: impl Fn(usize) -> bool,
        deleted: impl Fn(KindName, &Uid) -> u64,
        mut count: impl FnMut(KindName, &Uid) -> Result<u64, E>,
    ) -> Result<Option<Conflict>, E> {
        for (index, require) in self.require.iter().enumerate() {
            let Require::AtMost(kind, top, most) = require else { continue };
            let is_counted = |key: &Key| key.kind == *kind && key.uid.is_at_or_below(top);
            let created = self.put.iter().enumerate().filter(|(at, put)| is_counted(&put.key) && is_new(*at)).count();
            let added = (created as u64).saturating_sub(deleted(kind, top));
            if added > 0 && count(kind, top)?.saturating_add(added) > *most {
                return Ok(Some(Conflict::Require(index)));
            }
        }
        Ok(None)
    }
}

/// A condition without which a commit is rejected: on the state before it, except [`Require::AtMost`].
///
/// Exhaustive, because each store must implement every case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Require {
    /// The record does not exist.
    Absent(Key),
    /// The record exists.
    Exists(Key),
    /// The record exists and has this revision.
    Revision(Key, u64),
    /// No record of these kinds lies below the uid, at any depth.
    NoneBelow(Uid, Vec<KindName>),
    /// No record of the kind has this value under this filter key.
    NoneWith(KindName, KeyName, KeyValue),
    /// The epoch has this value.
    Epoch(Epoch, u64),
    /// After the commit, at most this many records of the kind are at or below the uid, or no more than before. So where
    /// there are more already, only commits that add records are rejected. The kind is no [queue](Put::queue).
    AtMost(KindName, Uid, u64),
}

/// The records to delete. Records that do not exist are ignored.
///
/// Exhaustive, because each store must implement every case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delete {
    /// One record.
    Key(Key),
    /// All records of these kinds below the uid, at any depth.
    Below(Uid, Vec<KindName>),
    /// All records of the kind with this value under this filter key.
    With(KindName, KeyName, KeyValue),
}

/// The result of [`Store::commit`](super::Store::commit).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The commit's sequence: the revision of every record that it put, and the value of every epoch that it raised.
    /// Sequences begin at 1, and may have gaps.
    pub sequence: u64,
}
