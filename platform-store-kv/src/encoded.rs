//! The rows of the engine as keys and values of a backend.
//!
//! | Space | Key | Value |
//! |---|---|---|
//! | `state` | `f` | the number of this format |
//! | `state` | `s` | the five numbers of the state, the checksum |
//! | `names` | number | checksum, flags, text |
//! | `records` | number | checksum, kind, revision, place, rendering, lengths of the uid, the keys and the body; these, and the private part |
//! | `sequence` | kind, revision, place | the number of the record |
//! | `entries` | the key of the entry | the number of the record |
//! | `epochs` | name | checksum, value |
//! | `lists` | kind, filter key, length of the place, place, filter value | checksum, roots |
//! | `nodes` | number | checksum, bytes |
//! | `replaced` | number of the record | checksum, kind, revision, length of the uid, uid, keys |
//! | `unindexed` | kind | checksum, number of the record |
//!
//! Numbers in keys are big-endian, so that they sort; others are little-endian. All have 8 bytes, but the flags 1,
//! `rendering` 2, and lengths 4.

mod write;

use std::ops::{Bound, ControlFlow};

use platform_engine::store::StoreError;

use crate::{
    backend::{KeyRange, Snapshot, Space},
    error::corrupt,
    record,
    rows::{
        EntryRange, EpochRow, Keys, ListKey, NameId, NameRow, ReplacedRow, Rows, SequenceRange, StateRow, Stored,
        UnindexedRow,
    },
};

/// The key of the number of the format, in [`Space::State`].
pub(crate) const FORMAT_KEY: &[u8] = b"f";
/// The number of the format of a store that has, or had, search indexes. Nothing else differs.
pub(crate) const SEARCHED_FORMAT: u32 = 2;
/// The key of the state.
const STATE_KEY: &[u8] = b"s";

/// The rows in one state of a backend.
#[derive(Debug)]
pub(crate) struct Encoded<S>(pub(crate) S);

/// Reads consecutive parts of a key or of a value; `None` at the end.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn number(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// Reads a number of a key.
    fn ordered(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    fn len(&mut self) -> Option<usize> {
        usize::try_from(u32::from_le_bytes(self.array()?)).ok()
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self, len: usize) -> Option<&'a str> {
        std::str::from_utf8(self.bytes(len)?).ok()
    }
}

/// A record and its place.
fn stored<'a>(key: &[u8], value: &'a [u8]) -> Option<(Stored<'a>, i64)> {
    let mut parts = Parts(value);
    let id = Parts(key).ordered()?;
    let (sum, kind, revision, place) = (parts.number()?, parts.number()?, parts.number()?, parts.number()?);
    let rendering = u16::from_le_bytes(parts.array()?);
    let (uid, keys, body) = (parts.len()?, parts.len()?, parts.len()?);
    let (uid, keys, body) = (parts.text(uid)?, Keys(parts.bytes(keys)?), parts.bytes(body)?);
    let revision = revision.cast_unsigned();
    Some((Stored { id, kind, uid, revision, rendering, sum, keys, body, private: parts.0 }, place))
}

fn replaced<'a>(key: &[u8], value: &'a [u8]) -> Option<ReplacedRow<'a>> {
    let mut parts = Parts(value);
    let (record, sum, kind) = (Parts(key).ordered()?, parts.number()?, parts.number()?);
    let (revision, uid) = (parts.number()?.cast_unsigned(), parts.len()?);
    Some(ReplacedRow { record, kind, uid: parts.text(uid)?, revision, keys: parts.0, sum })
}

fn list_key(key: &ListKey) -> Vec<u8> {
    let len = u32::try_from(key.place.len()).unwrap_or(u32::MAX);
    let numbers = [key.kind, key.key].map(i64::to_be_bytes);
    [numbers.as_flattened(), &len.to_le_bytes(), &key.place, &key.value].concat()
}

fn parse_list_key(key: &[u8]) -> Option<ListKey> {
    let mut parts = Parts(key);
    let (kind, key, place) = (parts.ordered()?, parts.ordered()?, parts.len()?);
    Some(ListKey { kind, place: parts.bytes(place)?.to_vec(), key, value: parts.0.to_vec() })
}

/// The kind, the revision and the place of a key by sequence.
fn sequence_key(kind: NameId, revision: i64, place: i64) -> [u8; 24] {
    let mut key = [0; 24];
    key.as_chunks_mut().0.iter_mut().zip([kind, revision, place]).for_each(|(to, from)| *to = from.to_be_bytes());
    key
}

/// Splits a value into its checksum and the rest.
fn summed(value: &[u8]) -> Option<(i64, &[u8])> {
    let mut parts = Parts(value);
    Some((parts.number()?, parts.0))
}

fn malformed(space: Space) -> StoreError {
    corrupt(format!("a value in {} is malformed", space.name()))
}

impl<S: Snapshot> Encoded<S> {
    /// Reads a value with the function.
    fn one<T>(&self, space: Space, key: &[u8], read: impl FnOnce(&[u8]) -> Option<T>) -> Result<Option<T>, StoreError> {
        self.0.get(space, key, read)?.map(|read| read.ok_or_else(|| malformed(space))).transpose()
    }

    /// Calls the function with the keys and values of a range, until it fails or returns [`ControlFlow::Break`].
    fn each(
        &self,
        range: KeyRange<'_>,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        if range.to.is_some_and(|to| range.from >= to) {
            return Ok(());
        }
        let mut result = Ok(());
        self.0.range(range, |key, value| {
            take(key, value).unwrap_or_else(|error| {
                result = Err(error);
                ControlFlow::Break(())
            })
        })?;
        result
    }

    fn all(
        &self,
        space: Space,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let range = KeyRange { space, from: &[], to: None, descending: false };
        self.each(range, |key, value| take(key, value).map(ControlFlow::Continue))
    }

    /// Returns the last number that is a key.
    fn last(&self, space: Space) -> Result<i64, StoreError> {
        let mut last = 0;
        self.each(KeyRange { space, from: &[], to: None, descending: true }, |key, _| {
            last = Parts(key).ordered().ok_or_else(|| malformed(space))?;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(last)
    }

    /// Calls the function with the places and the records of a kind with a revision, in the order of their places.
    fn each_of_revision(
        &self,
        kind: NameId,
        revision: i64,
        descending: bool,
        mut take: impl FnMut(i64, i64) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let (from, to) = (sequence_key(kind, revision, 0), sequence_key(kind, revision, i64::MAX));
        self.each(KeyRange { space: Space::Sequence, from: &from, to: Some(&to), descending }, |key, value| {
            let place = key.last_chunk().map(|place| i64::from_be_bytes(*place));
            let (place, id) = place.zip(Parts(value).number()).ok_or_else(|| malformed(Space::Sequence))?;
            take(place, id)
        })
    }
}

impl<S: Snapshot> Rows for Encoded<S> {
    fn state(&self) -> Result<Option<StateRow>, StoreError> {
        self.one(Space::State, STATE_KEY, |value| {
            let mut parts = Parts(value);
            let mut number = || parts.number();
            let columns = [number()?, number()?, number()?, number()?, number()?];
            Some(StateRow { columns, sum: number()? })
        })
    }

    fn each_name(&self, mut take: impl FnMut(NameRow<'_>) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.all(Space::Names, |key, value| {
            let read = || {
                let mut parts = Parts(value);
                let (id, sum, [flags]) = (Parts(key).ordered()?, parts.number()?, parts.array()?);
                Some(NameRow { id, text: std::str::from_utf8(parts.0).ok()?, flags, sum })
            };
            take(read().ok_or_else(|| malformed(Space::Names))?)
        })
    }

    fn record<T>(&self, id: i64, use_record: impl FnOnce(Stored<'_>) -> T) -> Result<Option<T>, StoreError> {
        let key = id.to_be_bytes();
        self.one(Space::Records, &key, |value| stored(&key, value).map(|(stored, _)| use_record(stored)))
    }

    fn each_record(
        &self,
        from: i64,
        mut take: impl FnMut(Result<Stored<'_>, StoreError>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let from = from.max(0).to_be_bytes();
        self.each(KeyRange { space: Space::Records, from: &from, to: None, descending: false }, |key, value| {
            let read = stored(key, value).map(|(stored, _)| stored);
            take(read.ok_or_else(|| malformed(Space::Records))).map(ControlFlow::Continue)
        })
    }

    fn count_records(&self, kind: NameId, from: i64) -> Result<u64, StoreError> {
        let mut count = 0;
        let bounds = (sequence_key(kind, 0, 0), sequence_key(kind + 1, 0, 0));
        let range = KeyRange { space: Space::Sequence, from: &bounds.0, to: Some(&bounds.1), descending: false };
        self.each(range, |_, value| {
            count += u64::from(Parts(value).number().is_some_and(|id| id >= from));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(count)
    }

    fn last_record(&self) -> Result<i64, StoreError> {
        self.last(Space::Records)
    }

    /// Passes over the keys of a `skip`.
    fn by_sequence(
        &self,
        range: SequenceRange,
        mut take: impl FnMut(Stored<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let SequenceRange { kind, after, descending, mut skip, mut limit } = range;
        let (mut from, mut to) = (sequence_key(kind, 0, 0), sequence_key(kind + 1, 0, 0));
        if let Bound::Included((revision, place)) | Bound::Excluded((revision, place)) = after {
            if descending {
                to = sequence_key(kind, revision, place.max(0));
            } else {
                // The position immediately after it.
                from = sequence_key(kind, revision, place.saturating_add(1));
            }
        }
        let range = KeyRange { space: Space::Sequence, from: &from, to: Some(&to), descending };
        self.each(range, |key, value| {
            if skip > 0 {
                skip -= 1;
                return Ok(ControlFlow::Continue(()));
            }
            if limit == 0 {
                return Ok(ControlFlow::Break(()));
            }
            limit -= 1;
            let id = Parts(value).number().ok_or_else(|| malformed(Space::Sequence))?;
            let found = self.one(Space::Records, &id.to_be_bytes(), |value| {
                let (stored, place) = stored(&id.to_be_bytes(), value)?;
                let own = sequence_key(stored.kind, stored.revision.cast_signed(), place);
                Some((own == key).then(|| take(stored)))
            })?;
            found.ok_or_else(|| record::missing(id))?.ok_or_else(|| record::misplaced(id))
        })
    }

    fn each_in_sequence(&self, mut take: impl FnMut(NameId, i64, &str)) -> Result<(), StoreError> {
        self.all(Space::Sequence, |_, value| {
            let id = Parts(value).number().ok_or_else(|| malformed(Space::Sequence))?;
            let found = self.record(id, |stored| take(stored.kind, stored.revision.cast_signed(), stored.uid))?;
            found.ok_or_else(|| record::missing(id))
        })
    }

    fn place(&self, id: i64, revision: i64) -> Result<Option<i64>, StoreError> {
        let key = id.to_be_bytes();
        let found = self.one(Space::Records, &key, |value| {
            let (stored, place) = stored(&key, value)?;
            Some((stored.revision.cast_signed() == revision).then_some(place))
        })?;
        Ok(found.flatten())
    }

    fn last_place(&self, kind: NameId, revision: i64) -> Result<Option<i64>, StoreError> {
        let mut last = None;
        self.each_of_revision(kind, revision, true, |place, _| {
            last = Some(place);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(last)
    }

    fn neighbor_place(
        &self,
        kind: NameId,
        revision: i64,
        uid: &str,
        descending: bool,
    ) -> Result<Option<i64>, StoreError> {
        let mut found = None;
        self.each_of_revision(kind, revision, descending, |place, id| {
            let is_beyond = self.record(id, |stored| if descending { stored.uid < uid } else { stored.uid > uid })?;
            if is_beyond.ok_or_else(|| record::missing(id))? {
                found = Some(place);
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    fn entry(&self, key: &[u8]) -> Result<Option<i64>, StoreError> {
        self.one(Space::Entries, key, |value| Parts(value).number())
    }

    fn entries(
        &self,
        range: EntryRange<'_>,
        mut take: impl FnMut(&[u8], i64) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let EntryRange { from, to, descending } = range;
        self.each(KeyRange { space: Space::Entries, from, to: Some(to), descending }, |key, value| {
            take(key, Parts(value).number().ok_or_else(|| malformed(Space::Entries))?)
        })
    }

    fn list<T>(&self, key: &ListKey, use_list: impl FnOnce(&[u8], i64) -> T) -> Result<Option<T>, StoreError> {
        self.one(Space::Lists, &list_key(key), |value| summed(value).map(|(sum, roots)| use_list(roots, sum)))
    }

    fn each_list(&self, mut take: impl FnMut(ListKey, &[u8], i64) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.all(Space::Lists, |key, value| {
            let parsed = parse_list_key(key).zip(summed(value));
            let (key, (sum, roots)) = parsed.ok_or_else(|| malformed(Space::Lists))?;
            take(key, roots, sum)
        })
    }

    fn node<T>(&self, id: u64, use_node: impl FnOnce(&[u8], i64) -> T) -> Result<Option<T>, StoreError> {
        self.one(Space::Nodes, &id.to_be_bytes(), |value| summed(value).map(|(sum, bytes)| use_node(bytes, sum)))
    }

    fn count_nodes(&self) -> Result<u64, StoreError> {
        let mut count = 0;
        self.all(Space::Nodes, |_, _| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }

    fn last_node(&self) -> Result<u64, StoreError> {
        self.last(Space::Nodes).map(i64::cast_unsigned)
    }

    fn epoch(&self, name: &str) -> Result<Option<(i64, i64)>, StoreError> {
        self.one(Space::Epochs, name.as_bytes(), |value| {
            let mut parts = Parts(value);
            let sum = parts.number()?;
            Some((parts.number()?, sum))
        })
    }

    fn each_epoch(&self, mut take: impl FnMut(EpochRow<'_>)) -> Result<(), StoreError> {
        self.all(Space::Epochs, |key, value| {
            let mut parts = Parts(value);
            let mut read = || {
                let sum = parts.number()?;
                Some(EpochRow { name: std::str::from_utf8(key).ok()?, value: parts.number()?, sum })
            };
            take(read().ok_or_else(|| malformed(Space::Epochs))?);
            Ok(())
        })
    }

    fn each_replaced(&self, mut take: impl FnMut(ReplacedRow<'_>) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.all(Space::Replaced, |key, value| take(replaced(key, value).ok_or_else(|| malformed(Space::Replaced))?))
    }

    fn has_replaced(&self) -> Result<bool, StoreError> {
        let mut has = false;
        let range = KeyRange { space: Space::Replaced, from: &[], to: None, descending: false };
        self.each(range, |_, _| {
            has = true;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(has)
    }

    fn unindexed(&self) -> Result<Vec<UnindexedRow>, StoreError> {
        let mut found = Vec::new();
        self.all(Space::Unindexed, |key, value| {
            let mut parts = Parts(value);
            let mut read = || {
                let (kind, sum) = (Parts(key).ordered()?, parts.number()?);
                Some(UnindexedRow { kind, first: parts.number()?, sum })
            };
            found.push(read().ok_or_else(|| malformed(Space::Unindexed))?);
            Ok(())
        })?;
        Ok(found)
    }

    /// Checks the keys by sequence against the records. No one is missing if their number is right.
    fn check(&self, mut report: impl FnMut(String)) -> Result<(), StoreError> {
        let (mut records, mut keys) = (0_u64, 0_u64);
        self.all(Space::Records, |_, _| {
            records += 1;
            Ok(())
        })?;
        self.all(Space::Sequence, |key, value| {
            keys += 1;
            let id = Parts(value).number().ok_or_else(|| malformed(Space::Sequence))?;
            let own = self.one(Space::Records, &id.to_be_bytes(), |value| {
                let (stored, place) = stored(&id.to_be_bytes(), value)?;
                Some(sequence_key(stored.kind, stored.revision.cast_signed(), place))
            })?;
            if own.is_none_or(|own| own != key) {
                report(format!("record {id} has a wrong key by sequence"));
            }
            Ok(())
        })?;
        if records != keys {
            report(format!("{keys} keys by sequence for {records} records"));
        }
        Ok(())
    }
}
