//! Replay: after a crash, brings lists and trees up to date with the records, which are newer than the last fold.
//!
//! Every record that was created, changed or deleted since the fold gets one [`Change`], from what it was then (see
//! [`crate::replaced`]) to what it is now. The result is a delta, as it was before the crash; the file is not changed,
//! unless the delta exceeds its bound.

use platform_engine::store::StoreError;

use crate::{
    error::store_error,
    lists::{Change, ListCache, Version},
    record::{self, Keys, Stored, columns},
    replaced::{self, Before, Replaced},
    schema::Names,
    state::State,
    transaction::Transaction,
};

/// Applies all changes since the last fold to `lists`, and returns the records that have replaced versions.
///
/// # Errors
/// [`StoreError::Corrupt`] if the file is damaged.
pub(crate) fn replay(
    transaction: Transaction<'_>,
    names: &Names,
    state: State,
    lists: &mut ListCache,
) -> Result<Replaced, StoreError> {
    let connection = transaction.connection;
    let before = replaced::load(connection, state)?;
    lists.start_replay();
    // Old positions are left before new ones are taken: a record may have been deleted and created again with the same
    // uid, and its entries have the same keys.
    for (id, before) in &before {
        let Before { kind, uid, revision, keys } = before;
        let old = Some(Version { revision: *revision, keys: Keys(keys) });
        let change = Change { kind: *kind, queue: names.is_queue(*kind), uid, id: *id, old, new: None };
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
    let select = concat!("SELECT ", columns!(), " FROM record WHERE id >= ?");
    let mut select = connection.prepare(select).map_err(store_error)?;
    let mut rows = select.query([state.first]).map_err(store_error)?;
    while let Some(row) = rows.next().map_err(store_error)? {
        let Stored { id, kind, uid, revision, keys, .. } = Stored::read(row)?;
        let new = Some(Version { revision, keys });
        Change { kind, queue: names.is_queue(kind), uid, id, old: None, new }.apply(transaction, lists)?;
    }
    lists.end_replay();
    Ok(Replaced::of(before.into_keys()))
}
