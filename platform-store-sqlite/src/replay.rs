//! Replay: after a crash, brings the index, lists and trees up to date with the records, which are newer than the last
//! fold.
//!
//! Every record that was created, changed or deleted since the fold gets one [`Change`], from what it was then (see
//! [`crate::replaced`]) to what it is now. The result is a delta, as it was before the crash; the file is not changed,
//! unless the delta exceeds twice its bound.

use std::collections::BTreeMap;

use platform_engine::store::StoreError;
use rusqlite::Connection;

use crate::{
    bulk::Pending,
    error::store_error,
    index::{keys_of, own_keys_of},
    lists::{Change, Indexes, Version},
    record::{self, Keys, Stored, columns},
    replaced::{self, Before, Replaced},
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
    transaction: Transaction<'_>,
    names: &Names,
    state: State,
    lists: &mut Indexes,
    pending: &Pending,
) -> Result<Replaced, StoreError> {
    let connection = transaction.connection;
    let before = replaced::load(connection, state)?;
    index(connection, state, &before, lists, pending)?;
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
        match record::Finder::new(connection)?.get(*id, copy)?.transpose()? {
            None => change.apply(transaction, lists)?,
            Some((revision, keys)) => {
                let new = Some(Version { revision, keys: Keys(&keys) });
                Change { new, ..change }.apply(transaction, lists)?;
            }
        }
    }
    each_new(connection, state, |Stored { id, kind, uid, revision, keys, .. }| {
        if pending.contains(kind, id) {
            return Ok(());
        }
        let new = Some(Version { revision, keys });
        Change { kind, queue: names.is_queue(kind), uid, id, old: None, new, is_leaf: false }.apply(transaction, lists)
    })?;
    lists.end_replay();
    // Only now, because the lists that the replay builds from the index must not have them.
    if !pending.is_empty() {
        each_new(connection, state, |Stored { id, kind, uid, keys, .. }| {
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
    connection: &Connection,
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
    let mut finder = record::Finder::new(connection)?;
    for id in before.keys() {
        finder.get(*id, &mut add)?;
    }
    each_new(connection, state, |record| {
        add(record);
        Ok(())
    })
}

/// Calls the function with the records that were created since the last fold.
fn each_new(
    connection: &Connection,
    state: State,
    use_record: impl FnMut(Stored<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let select = concat!("SELECT ", columns!(), " FROM record WHERE id >= ?");
    let mut select = connection.prepare_cached(select).map_err(store_error)?;
    record::for_each(&mut select, [state.first], use_record)
}
