//! Changes of the rows, in the batch of a transaction.

use platform_engine::store::StoreError;

use super::{Encoded, FORMAT_KEY, SEARCHED_FORMAT, STATE_KEY, list_key, sequence_key, stored};
use crate::{
    backend::{Backend, KeyRange, Snapshot as _, Space},
    overlay::Overlay,
    rows::{EpochRow, ListKey, NameRow, ReplacedRow, Rows as _, RowsMut, StateRow, Stored, UnindexedRow},
};

/// Concatenates numbers.
fn numbers<const N: usize>(numbers: [i64; N]) -> Vec<u8> {
    numbers.map(i64::to_le_bytes).as_flattened().to_vec()
}

/// Returns the bytes of a length. A longer part does not fit the memory of a commit.
fn len(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes()
}

impl<B: Backend> Encoded<Overlay<B>> {
    fn set(&self, space: Space, key: &[u8], value: Option<Vec<u8>>) -> Result<(), StoreError> {
        self.0.set(space, key, value)
    }

    /// Deletes the key by sequence of the record that a number has now.
    fn leave_sequence(&self, id: i64) -> Result<(), StoreError> {
        let key = id.to_be_bytes();
        let old = self.one(Space::Records, &key, |value| {
            let (stored, place) = stored(&key, value)?;
            Some(sequence_key(stored.kind, stored.revision.cast_signed(), place))
        })?;
        old.map_or(Ok(()), |old| self.set(Space::Sequence, &old, None))
    }

    /// Sets the number of the format.
    pub(crate) fn set_format(&self, format: u32) -> Result<(), StoreError> {
        self.set(Space::State, FORMAT_KEY, Some(format.to_le_bytes().to_vec()))
    }

    /// Deletes all keys of a space.
    fn clear(&self, space: Space) -> Result<(), StoreError> {
        let mut keys = Vec::new();
        self.0.range(KeyRange { space, from: &[], to: None, descending: false }, |key, _| {
            keys.push(key.to_vec());
            std::ops::ControlFlow::Continue(())
        })?;
        keys.into_iter().try_for_each(|key| self.set(space, &key, None))
    }
}

impl<B: Backend> RowsMut for Encoded<Overlay<B>> {
    fn begin(&self) -> Result<(), StoreError> {
        self.0.begin()
    }

    fn commit(&self) -> Result<(), StoreError> {
        self.0.commit()
    }

    fn roll_back(&self) {
        self.0.roll_back();
    }

    /// A failed batch does; whatever fails before changes only memory.
    fn is_stopped_by(&self, error: &StoreError) -> bool {
        matches!(error, StoreError::Unknown(_))
    }

    fn max_key(&self) -> usize {
        B::MAX_KEY
    }

    fn put_record(&self, record: &Stored<'_>, place: i64, exists: bool) -> Result<(), StoreError> {
        let Stored { id, kind, uid, revision, rendering, sum, keys, body, private } = *record;
        if exists {
            self.leave_sequence(id)?;
        }
        let mut value = numbers([sum, kind, revision.cast_signed(), place]);
        value.reserve(14 + uid.len() + keys.0.len() + body.len() + private.len());
        value.extend(rendering.to_le_bytes());
        [uid.as_bytes(), keys.0, body].into_iter().for_each(|part| value.extend(len(part)));
        [uid.as_bytes(), keys.0, body, private].into_iter().for_each(|part| value.extend_from_slice(part));
        self.set(Space::Records, &id.to_be_bytes(), Some(value))?;
        self.set(Space::Sequence, &sequence_key(kind, revision.cast_signed(), place), Some(numbers([id])))
    }

    fn delete_record(&self, id: i64) -> Result<(), StoreError> {
        self.leave_sequence(id)?;
        self.set(Space::Records, &id.to_be_bytes(), None)
    }

    fn set_entry(&self, key: &[u8], record: Option<i64>) -> Result<(), StoreError> {
        self.set(Space::Entries, key, record.map(|id| numbers([id])))
    }

    fn set_list(&self, key: &ListKey, list: Option<(&[u8], i64)>) -> Result<(), StoreError> {
        let value = list.map(|(roots, sum)| [&sum.to_le_bytes(), roots].concat());
        self.set(Space::Lists, &list_key(key), value)
    }

    fn set_node(&self, id: u64, node: Option<(&[u8], i64)>) -> Result<(), StoreError> {
        let value = node.map(|(bytes, sum)| [&sum.to_le_bytes(), bytes].concat());
        self.set(Space::Nodes, &id.to_be_bytes(), value)
    }

    fn set_epoch(&self, EpochRow { name, value, sum }: EpochRow<'_>) -> Result<(), StoreError> {
        self.set(Space::Epochs, name.as_bytes(), Some(numbers([sum, value])))
    }

    fn set_name(&self, name: NameRow<'_>) -> Result<(), StoreError> {
        let NameRow { id, text, flags, sum } = name;
        let value = [&sum.to_le_bytes()[..], &[flags], text.as_bytes()].concat();
        self.set(Space::Names, &id.to_be_bytes(), Some(value))?;
        if name.is_searched() { self.set_format(SEARCHED_FORMAT) } else { Ok(()) }
    }

    fn set_state(&self, StateRow { columns, sum }: StateRow) -> Result<(), StoreError> {
        let [sequence, digest, folded, first, replaced] = columns;
        let value = numbers([sequence, digest, folded, first, replaced, sum]);
        self.set(Space::State, STATE_KEY, Some(value))
    }

    fn add_replaced(&self, replaced: ReplacedRow<'_>) -> Result<(), StoreError> {
        let ReplacedRow { record, kind, uid, revision, keys, sum } = replaced;
        let mut value = numbers([sum, kind, revision.cast_signed()]);
        value.extend(len(uid.as_bytes()));
        value.extend([uid.as_bytes(), keys].concat());
        self.set(Space::Replaced, &record.to_be_bytes(), Some(value))
    }

    fn clear_replaced(&self) -> Result<(), StoreError> {
        if self.has_replaced()? { self.clear(Space::Replaced) } else { Ok(()) }
    }

    fn set_unindexed(&self, rows: &[UnindexedRow], had: bool) -> Result<(), StoreError> {
        if had {
            self.clear(Space::Unindexed)?;
        }
        rows.iter().try_for_each(|UnindexedRow { kind, first, sum }| {
            self.set(Space::Unindexed, &kind.to_be_bytes(), Some(numbers([*sum, *first])))
        })
    }

    fn when_idle(&self) {
        self.0.backend.when_idle();
    }
}
