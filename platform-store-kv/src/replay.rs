//! Replay: after a crash, brings the index, lists and trees up to date with the records, which are newer than the last
//! fold.
//!
//! Every record that was created, changed or deleted since the fold gets one [`Change`], from its version then (see
//! [`crate::replaced`]) to the present one. The result is a delta, as it was before the crash; the file is not changed,
//! unless the delta exceeds twice its bound.

use std::collections::BTreeMap;

use platform_engine::store::StoreError;

use crate::{
    bulk::Pending,
    index::{keys_of, own_keys_of},
    lists::{Change, Indexes, Version},
    record::{self, Keys, Stored},
    replaced::{self, Before, Replaced},
    rows::{Rows, RowsMut},
    schema::Names,
    state::State,
    transaction::Transaction,
};

/// Applies all changes since the last fold to `lists`, and returns the records that have replaced versions. Pending
/// records get only the keys of such records.
///
/// # Errors
/// [`StoreError::Corrupt`] if the file is damaged.
pub(crate) fn replay(
    transaction: Transaction<'_, impl RowsMut>,
    names: &Names,
    state: State,
    lists: &mut Indexes,
    pending: &Pending,
) -> Result<Replaced, StoreError> {
    let rows = transaction.rows;
    let before = replaced::load(rows, state)?;
    index(rows, state, &before, lists, pending)?;
    lists.start_replay();
    // Old positions are left before new ones are taken: a record may have been deleted and created again with the same
    // uid, and its entries have the same keys.
    for (id, before) in &before {
        let Before { kind, uid, revision, keys } = before;
        let old = Some(Version { revision: *revision, keys: Keys(keys) });
        let change = Change { kind: *kind, queue: names.is_queue(*kind), uid, id: *id, old, new: None, is_leaf: false };
        let copy = |stored: Stored<'_>| {
            let is_same = stored.kind == *kind && stored.uid == uid;
            is_same.then(|| (stored.revision, stored.keys.0.to_vec())).ok_or_else(|| record::misplaced(*id))
        };
        match record::find(rows, *id, copy)?.transpose()? {
            None => change.apply(transaction, lists)?,
            Some((revision, keys)) => {
                let new = Some(Version { revision, keys: Keys(&keys) });
                Change { new, ..change }.apply(transaction, lists)?;
            }
        }
    }
    record::each_from(rows, state.first, |Stored { id, kind, uid, revision, keys, .. }| {
        if pending.contains(kind, id) {
            return Ok(());
        }
        let new = Some(Version { revision, keys });
        Change { kind, queue: names.is_queue(kind), uid, id, old: None, new, is_leaf: false }.apply(transaction, lists)
    })?;
    lists.end_replay();
    // Only now, because the lists that the replay builds from the index must not have them.
    if !pending.is_empty() {
        record::each_from(rows, state.first, |Stored { id, kind, uid, keys, .. }| {
            if pending.contains(kind, id) {
                own_keys_of(kind, uid, keys).for_each(|key| lists.set_entry(key, Some(id)));
            }
            Ok(())
        })?;
    }
    Ok(Replaced::of(before.into_keys()))
}

/// Brings the index up to date, but for pending records, before lists are built from it.
fn index(
    rows: &impl Rows,
    state: State,
    before: &BTreeMap<i64, Before>,
    lists: &mut Indexes,
    pending: &Pending,
) -> Result<(), StoreError> {
    // All old entries are removed before new ones are added, because a record can have taken over the key of another.
    for Before { kind, uid, keys, .. } in before.values() {
        keys_of(*kind, uid, Keys(keys)).for_each(|key| lists.set_entry(key, None));
    }
    let mut add = |Stored { id, kind, uid, keys, .. }: Stored<'_>| {
        if !pending.contains(kind, id) {
            keys_of(kind, uid, keys).for_each(|key| lists.set_entry(key, Some(id)));
        }
    };
    for id in before.keys() {
        record::find(rows, *id, &mut add)?;
    }
    record::each_from(rows, state.first, |record| {
        add(record);
        Ok(())
    })
}
