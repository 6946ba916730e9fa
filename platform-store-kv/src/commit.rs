//! One commit: its validation, and its changes to the records and the index.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::Hash,
};

use platform_engine::store::{Commit, Conflict, Delete, Epoch, Key, Put, Require, StoreError, place::Place};
use platform_engine::uid;
use quick_cache::DefaultHashBuilder;

use crate::{
    bulk::Pending,
    cache::Row,
    error::corrupt,
    index::{self, Index, Range},
    list::{FilterValue, ListKey},
    lists::{Change, Indexes, Version},
    record::{self, Keys, Stored},
    replaced::Replaced,
    rows::{EpochRow, Rows, RowsMut},
    schema::{Name, NameFlags, NameId, Names, Table, checksum},
    state::State,
    transaction::Transaction,
};

/// A record as it was before the commit, without its body.
#[derive(Debug)]
struct Old {
    id: i64,
    kind: NameId,
    uid: String,
    revision: u64,
    sum: i64,
    keys: Vec<u8>,
}

impl Old {
    fn of(stored: Stored<'_>) -> Self {
        let Stored { id, kind, revision, sum, .. } = stored;
        Self { id, kind, uid: stored.uid.to_owned(), revision, sum, keys: stored.keys.0.to_vec() }
    }

    fn version(&self) -> Version<'_> {
        Version { revision: self.revision, keys: Keys(&self.keys) }
    }
}

/// The record with the uid of a put before the commit.
#[derive(Debug)]
enum Previous {
    Record(Old),
    /// No record.
    Nothing {
        /// Whether it is known that no record of the kind is below the uid.
        is_leaf: bool,
    },
}

impl Previous {
    /// Returns the record that the put replaces.
    fn record(&self) -> Option<&Old> {
        match self {
            Self::Record(old) => Some(old),
            Self::Nothing { .. } => None,
        }
    }

    /// Looks up whether nothing has a uid; `None` if there is a record.
    fn nothing(index: Index<'_, impl Rows>, kind: NameId, uid: &str) -> Result<Option<Self>, StoreError> {
        // One search finds that there is no record, and none below, which nearly all new records need to know.
        if !index.has(&Range::at_or_below(kind, uid))? {
            return Ok(Some(Self::Nothing { is_leaf: true }));
        }
        let record = index.find(kind, uid, |_| ())?;
        Ok(record.is_none().then_some(Self::Nothing { is_leaf: false }))
    }
}

/// A valid commit's effect on existing records.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The records to delete, by number, except those that a put replaces.
    deleted: BTreeMap<i64, Old>,
    /// For each put, what has its uid.
    previous: Vec<Previous>,
}

impl Plan {
    /// Validates a commit. Only reads, so that a rejected commit leaves the transaction of its group intact.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if a requirement does not hold or a unique key is taken.
    pub(crate) fn make(
        rows: &impl Rows,
        lists: &Indexes,
        names: &Names,
        known: &mut Known,
        commit: &Commit,
    ) -> Result<Self, StoreError> {
        let index = lists.index(rows);
        // Records whose absence was just verified as a requirement need no second lookup.
        let mut absent = Absent::default();
        for (at, require) in commit.require.iter().enumerate() {
            if !holds(index, names, known, &mut absent, require)? {
                return Err(StoreError::Conflict(Conflict::Require(at)));
            }
        }
        let mut deleted = BTreeMap::new();
        for delete in &commit.delete {
            find_deleted(index, names, delete, &mut deleted)?;
        }
        let mut previous = Vec::with_capacity(commit.put.len());
        for put in &commit.put {
            if let Some(nothing) = absent.remove(&put.key) {
                previous.push(nothing);
                continue;
            }
            let old = index.find(names.id(put.key.kind)?, &put.key.uid, Old::of)?;
            // A record that is deleted and put in the same commit is replaced, and keeps its number.
            if let Some(old) = &old {
                deleted.remove(&old.id);
            }
            previous.push(old.map_or(Previous::Nothing { is_leaf: false }, Previous::Record));
        }
        let is_new = |at: usize| previous.get(at).is_some_and(|previous| previous.record().is_none());
        let dropped = |kind: &str, top: &str| {
            let Some(kind) = names.get(kind) else { return 0 };
            let of_limit = |old: &&Old| old.kind == kind.id && uid::is_at_or_below(&old.uid, top);
            deleted.values().filter(of_limit).count() as u64
        };
        let count = |kind: &str, top: &str| count(rows, names, lists, kind, top);
        if let Some(conflict) =
            commit.limit_conflict(is_new, |kind, top| dropped(kind, top), |kind, top| count(kind, top))?
        {
            return Err(StoreError::Conflict(conflict));
        }
        let changed: BTreeSet<i64> = previous.iter().filter_map(Previous::record).map(|old| old.id).collect();
        let conflict = commit.unique_conflict(|key| {
            let owner = owner(index, (names.id(key.space)?, key.value.as_bytes()))?;
            Ok::<_, StoreError>(owner.is_none_or(|id| changed.contains(&id) || deleted.contains_key(&id)))
        })?;
        match conflict {
            None => Ok(Self { deleted, previous }),
            Some(conflict) => Err(StoreError::Conflict(conflict)),
        }
    }

    /// Returns the kinds of the records that the commit replaces or deletes.
    pub(crate) fn changed(&self) -> HashSet<NameId> {
        self.old().map(|old| old.kind).collect()
    }

    /// Returns the records that the commit replaces or deletes.
    fn old(&self) -> impl Iterator<Item = &Old> {
        self.deleted.values().chain(self.previous.iter().filter_map(Previous::record))
    }
}

/// Returns whether a commit reads the filter index or the lists of records that are not indexed yet.
pub(crate) fn reads_index(commit: &Commit, names: &Names, pending: &Pending) -> bool {
    let is_pending = |kind: &str| names.get(kind).is_some_and(|kind| pending.has(kind.id));
    let requires = |require: &Require| match require {
        Require::NoneWith(kind, ..) | Require::AtMost(kind, ..) => is_pending(kind),
        _ => false,
    };
    commit.require.iter().any(requires)
        || commit.delete.iter().any(|delete| matches!(delete, Delete::With(kind, ..) if is_pending(kind)))
}

/// The keys that a commit requires to be absent.
type Absent<'c> = HashMap<&'c Key, Previous, DefaultHashBuilder>;

/// Returns whether a requirement holds. A name that is not registered has no records.
fn holds<'c>(
    index: Index<'_, impl Rows>,
    names: &Names,
    known: &mut Known,
    absent: &mut Absent<'c>,
    require: &'c Require,
) -> Result<bool, StoreError> {
    let revision = |kind: &str, uid: &str| match names.get(kind) {
        Some(kind) => index.find(kind.id, uid, |stored| stored.revision),
        None => Ok(None),
    };
    Ok(match require {
        Require::Absent(key) => {
            let Some(kind) = names.get(key.kind) else { return Ok(true) };
            let is_last = kind.flags.has(NameFlags::QUEUE) && known.is_after_queue(index, kind.id, &key.uid)?;
            let nothing = if is_last {
                Some(Previous::Nothing { is_leaf: false })
            } else {
                Previous::nothing(index, kind.id, &key.uid)?
            };
            nothing.map(|nothing| absent.insert(key, nothing)).is_some()
        }
        Require::Exists(key) => match names.get(key.kind) {
            Some(kind) => known.exists(index, kind.id, &key.uid)?,
            None => false,
        },
        Require::Revision(key, wanted) => revision(key.kind, &key.uid)? == Some(*wanted),
        Require::NoneBelow(uid, kinds) => {
            for kind in kinds.iter().filter_map(|kind| names.get(kind)) {
                if index.has(&Range::below(kind.id, None, uid))? {
                    return Ok(false);
                }
            }
            true
        }
        Require::NoneWith(kind, key, value) => {
            let (Some(kind), Some(key)) = (names.get(kind), names.get(key)) else { return Ok(true) };
            !index.has(&Range::of(kind.id, Some((key.id, value.as_bytes()))))?
        }
        Require::Epoch(epoch, wanted) => known.epoch(index.rows, epoch)? == *wanted,
        // Checked when the changes of the commit are known.
        Require::AtMost(..) => true,
    })
}

/// Returns the number of records of a kind at or below a uid.
fn count(rows: &impl Rows, names: &Names, lists: &Indexes, kind: &str, top: &str) -> Result<u64, StoreError> {
    let Some(kind) = names.get(kind) else { return Ok(0) };
    if let Some(list) = lists.find(&ListKey::new(kind.id, Place::At(top), None), rows)? {
        return Ok(list.direct + list.deep);
    }
    // The list is not materialized, and so it is short.
    let index = lists.index(rows);
    let own = index.get(&index::key(kind.id, None, top))?;
    Ok(u64::from(own.is_some()) + index.count(&Range::below(kind.id, None, top), u64::MAX)?)
}

/// Returns the value of an epoch: 0 if it was never raised.
pub(crate) fn epoch(rows: &impl Rows, epoch: &Epoch) -> Result<u64, StoreError> {
    let name = epoch.to_string();
    let Some((value, sum)) = rows.epoch(&name)? else { return Ok(0) };
    if epoch_checksum(&name, value) == sum {
        return Ok(value.cast_unsigned());
    }
    Err(corrupt(format!("the row of epoch `{name}` does not match its checksum")))
}

/// Facts about the store that the writer has read: nearly every commit requires the same epochs and parents, and these
/// rarely change. Outlives transactions; emptied when one is rolled back.
#[derive(Debug, Default)]
pub(crate) struct Known {
    epochs: HashMap<Epoch, u64, DefaultHashBuilder>,
    /// The epochs that the transaction raises. Commits of a group often raise the same ones, each of which is written
    /// once, at the end.
    raised: HashMap<Epoch, Raised, DefaultHashBuilder>,
    /// The uids of records that were required to exist, by kind.
    existing: HashMap<NameId, HashMap<Box<str>, (), DefaultHashBuilder>>,
    /// For each kind that is a queue and each parent, a uid that no child's is greater than.
    last: HashMap<NameId, HashMap<Box<str>, Box<str>, DefaultHashBuilder>>,
}

/// The value of an epoch before a transaction, and after its last commit that raises it.
#[derive(Debug, Clone, Copy)]
struct Raised {
    before: u64,
    after: u64,
}

/// The number of epochs, and of records or parents of a kind, above which the writer forgets them all.
const MAX_KNOWN: usize = 10_000;

impl Known {
    /// Returns the value of an epoch: 0 if it was never raised.
    fn epoch(&mut self, rows: &impl Rows, epoch: &Epoch) -> Result<u64, StoreError> {
        if let Some(raised) = self.raised.get(epoch) {
            return Ok(raised.after);
        }
        if let Some(value) = self.epochs.get(epoch) {
            return Ok(*value);
        }
        let value = self::epoch(rows, epoch)?;
        self.set_epoch(epoch, value);
        Ok(value)
    }

    /// Raises an epoch to the sequence of a commit. [`Known::write_epochs`] writes it.
    fn raise(&mut self, rows: &impl Rows, epoch: &Epoch, sequence: u64) -> Result<(), StoreError> {
        if let Some(raised) = self.raised.get_mut(epoch) {
            raised.after = sequence;
            return Ok(());
        }
        let before = self.epoch(rows, epoch)?;
        self.raised.insert(epoch.clone(), Raised { before, after: sequence });
        Ok(())
    }

    /// Writes the epochs that the transaction has raised.
    pub(crate) fn write_epochs(
        &mut self,
        transaction: Transaction<'_, impl RowsMut>,
        state: &mut State,
    ) -> Result<(), StoreError> {
        for (epoch, Raised { before, after }) in std::mem::take(&mut self.raised) {
            let name = epoch.to_string();
            if before != 0 {
                state.digest = state.digest.wrapping_sub(epoch_checksum(&name, before.cast_signed()));
            }
            let value = after.cast_signed();
            let sum = epoch_checksum(&name, value);
            state.digest = state.digest.wrapping_add(sum);
            transaction.invalidate(Row::Epoch(&epoch));
            transaction.rows.set_epoch(EpochRow { name: &name, value, sum })?;
            self.set_epoch(&epoch, after);
        }
        Ok(())
    }

    fn set_epoch(&mut self, epoch: &Epoch, value: u64) {
        remember(&mut self.epochs, epoch.clone(), value);
    }

    /// Returns whether a record exists.
    fn exists(&mut self, index: Index<'_, impl Rows>, kind: NameId, uid: &str) -> Result<bool, StoreError> {
        let existing = self.existing.entry(kind).or_default();
        if existing.contains_key(uid) {
            return Ok(true);
        }
        let exists = index.find(kind, uid, |_| ())?.is_some();
        if exists {
            remember(existing, uid.into(), ());
        }
        Ok(exists)
    }

    /// Returns whether a uid is greater than those of all other children of its parent, so that no record of a queue has
    /// it. Records are usually added to a queue in the order of their uids.
    fn is_after_queue(&mut self, index: Index<'_, impl Rows>, kind: NameId, uid: &str) -> Result<bool, StoreError> {
        let Some(parent) = uid::parent(uid) else { return Ok(false) };
        let queues = self.last.entry(kind).or_default();
        if let Some(last) = queues.get(parent) {
            return Ok(uid > &**last);
        }
        let last = index.last(&Range::below(kind, None, parent))?.unwrap_or_default();
        let is_after = *uid > *last;
        remember(queues, parent.into(), last.into());
        Ok(is_after)
    }

    /// Records that a record was added to a queue.
    fn put_in_queue(&mut self, kind: NameId, uid: &str) {
        let queues = self.last.get_mut(&kind);
        if let Some(last) = queues.zip(uid::parent(uid)).and_then(|(queues, parent)| queues.get_mut(parent))
            && *uid > **last
        {
            *last = uid.into();
        }
    }

    /// Records that a record was deleted.
    fn delete(&mut self, kind: NameId, uid: &str) {
        if let Some(existing) = self.existing.get_mut(&kind) {
            existing.remove(uid);
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Adds a fact, and forgets the others if there are as many as are remembered.
fn remember<K: Eq + Hash, V>(facts: &mut HashMap<K, V, DefaultHashBuilder>, key: K, value: V) {
    if facts.len() >= MAX_KNOWN {
        facts.clear();
    }
    facts.insert(key, value);
}

pub(crate) fn epoch_checksum(name: &str, value: i64) -> i64 {
    checksum(Table::Epoch, [name.as_bytes(), &value.to_le_bytes()])
}

/// Returns the number of the record that owns a unique key.
fn owner(index: Index<'_, impl Rows>, unique: (NameId, &[u8])) -> Result<Option<i64>, StoreError> {
    let Some(id) = index.get(&index::unique_key(unique))? else { return Ok(None) };
    if record::at(index.rows, id, |stored| stored.keys.unique().any(|other| other == unique))? {
        return Ok(Some(id));
    }
    Err(record::misplaced(id))
}

/// Adds the records that match a delete to `found`.
fn find_deleted(
    index: Index<'_, impl Rows>,
    names: &Names,
    delete: &Delete,
    found: &mut BTreeMap<i64, Old>,
) -> Result<(), StoreError> {
    let mut take = |stored: Stored<'_>, belongs: bool| {
        if !belongs {
            return Err(record::misplaced(stored.id));
        }
        found.insert(stored.id, Old::of(stored));
        Ok(())
    };
    match delete {
        Delete::Key(key) => {
            let Some(kind) = names.get(key.kind) else { return Ok(()) };
            index.find(kind.id, &key.uid, |stored| take(stored, true))?.unwrap_or(Ok(()))
        }
        Delete::Below(uid, kinds) => kinds.iter().filter_map(|kind| names.get(kind)).try_for_each(|kind| {
            index.each_record(&Range::below(kind.id, None, uid), |stored| {
                take(stored, stored.kind == kind.id && uid::is_at_or_below(stored.uid, uid))
            })
        }),
        Delete::With(kind, key, value) => {
            let (Some(kind), Some(key)) = (names.get(kind), names.get(key)) else { return Ok(()) };
            let filter = (key.id, value.as_bytes());
            index.each_record(&Range::of(kind.id, Some(filter)), |stored| {
                take(stored, stored.kind == kind.id && stored.keys.has(filter))
            })
        }
    }
}

/// The state that commits of a group change: tables, lists and counters.
#[derive(Debug)]
pub(crate) struct Target<'a, W> {
    pub(crate) transaction: Transaction<'a, W>,
    pub(crate) names: &'a Names,
    pub(crate) lists: &'a mut Indexes,
    pub(crate) known: &'a mut Known,
    pub(crate) state: &'a mut State,
    /// `None` if the transaction ends with a fold, so that replaced versions are not needed.
    pub(crate) replaced: Option<&'a mut Replaced>,
    /// The number of the next record.
    pub(crate) next: &'a mut i64,
    /// Records that are indexed later.
    pub(crate) pending: &'a mut Pending,
    /// The kinds whose new records are added to `pending`.
    pub(crate) deferred: &'a HashSet<NameId>,
}

impl<W: RowsMut> Target<'_, W> {
    /// Writes a commit, with the sequence of the transaction.
    pub(crate) fn apply(&mut self, commit: &Commit, plan: &Plan) -> Result<(), StoreError> {
        // First release the unique keys of all changed records, because a put may take over the key of another one.
        for old in plan.old() {
            for unique in Keys(&old.keys).unique() {
                self.lists.set_entry(index::unique_key(unique), None);
            }
        }
        for old in plan.deleted.values() {
            self.delete(old)?;
        }
        // Number the puts in the order of their uids, which breaks ties in the order by sequence.
        let mut puts: Vec<_> = commit.put.iter().zip(&plan.previous).collect();
        puts.sort_unstable_by_key(|(put, _)| (put.key.kind, &put.key.uid));
        for (place, (put, previous)) in (0_i64..).zip(puts) {
            let place = match put.revision {
                Some(revision) => self.next_place(put, revision)?,
                None => place,
            };
            self.put(put, previous, place)?;
        }
        let Transaction { rows, sequence, .. } = self.transaction;
        commit.raise.iter().try_for_each(|epoch| self.known.raise(rows, epoch, sequence))
    }

    /// Records what a record is, before it is deleted or replaced.
    fn log(&mut self, old: &Old) -> Result<(), StoreError> {
        let version = (old.kind, &*old.uid, old.revision, &*old.keys);
        match &mut self.replaced {
            Some(replaced) => replaced.add(self.transaction.rows, self.state, old.id, version),
            None => Ok(()),
        }
    }

    fn delete(&mut self, old: &Old) -> Result<(), StoreError> {
        self.log(old)?;
        self.known.delete(old.kind, &old.uid);
        self.invalidate(old.id, (old.kind, &old.uid));
        self.transaction.rows.delete_record(old.id)?;
        self.lists.set_entry(index::key(old.kind, None, &old.uid), None);
        for filter in Keys(&old.keys).filter() {
            self.lists.set_entry(index::key(old.kind, Some(filter), &old.uid), None);
        }
        self.state.digest = self.state.digest.wrapping_sub(old.sum);
        let Old { id, kind, uid, .. } = old;
        let queue = self.names.is_queue(*kind);
        let change = Change { kind: *kind, queue, uid, id: *id, old: Some(old.version()), new: None, is_leaf: false };
        change.apply(self.transaction, self.lists)
    }

    /// Returns the place of a record that is put with the revision of other records of its kind.
    fn next_place(&self, put: &Put, revision: u64) -> Result<i64, StoreError> {
        let last = self.transaction.rows.last_place(self.names.id(put.key.kind)?, revision.cast_signed())?;
        Ok(last.map_or(0, |last| last + 1))
    }

    fn put(&mut self, put: &Put, previous: &Previous, place: i64) -> Result<(), StoreError> {
        let old = previous.record();
        let revision = put.revision.unwrap_or(self.transaction.sequence);
        let (Name { id: kind, flags }, uid) = (self.names.registered(put.key.kind)?, &*put.key.uid);
        let id = old.map_or(*self.next, |old| old.id);
        let keys = Keys::encode(put, self.names)?;
        let keys = Keys(&keys);
        let (rendering, body, private) = (put.rendering, &*put.body, &*put.private);
        let mut stored = Stored { id, kind, uid, revision, rendering, sum: 0, keys, body, private };
        stored.sum = stored.checksum();
        self.invalidate(id, (kind, uid));
        if let Some(old) = old {
            self.log(old)?;
            self.transaction.rows.put_record(&stored, place, true)?;
            self.state.digest = self.state.digest.wrapping_sub(old.sum);
        } else {
            self.transaction.rows.put_record(&stored, place, false)?;
            self.lists.set_entry(index::key(kind, None, uid), Some(id));
            *self.next += 1;
        }
        self.state.digest = self.state.digest.wrapping_add(stored.sum);
        for unique in keys.unique() {
            self.lists.set_entry(index::unique_key(unique), Some(id));
        }
        if old.is_none() && self.deferred.contains(&kind) {
            self.pending.add(kind, id);
            return self.lists.trim(self.transaction);
        }
        self.put_filters(&stored, old);
        let new = Some(Version { revision, keys });
        let queue = flags.has(NameFlags::QUEUE);
        if queue {
            self.known.put_in_queue(kind, uid);
        }
        let is_leaf = matches!(previous, Previous::Nothing { is_leaf: true });
        let old = old.map(Old::version);
        Change { kind, queue, uid, id, old, new, is_leaf }.apply(self.transaction, self.lists)
    }

    /// Updates the entries of filter values; only values that were added or removed are changed.
    fn put_filters(&mut self, new: &Stored<'_>, old: Option<&Old>) {
        let had: Vec<FilterValue<'_>> = old.into_iter().flat_map(|old| Keys(&old.keys).filter()).collect();
        for filter in had.iter().filter(|filter| !new.keys.has(**filter)) {
            self.lists.set_entry(index::key(new.kind, Some(*filter), new.uid), None);
        }
        for filter in new.keys.filter().filter(|filter| !had.contains(filter)) {
            self.lists.set_entry(index::key(new.kind, Some(filter), new.uid), Some(new.id));
        }
    }

    /// Invalidates a record. Readers cache it under two keys, by number and by kind and uid.
    fn invalidate(&self, id: i64, (kind, uid): (NameId, &str)) {
        self.transaction.invalidate(Row::At(kind, uid));
        self.transaction.invalidate(Row::Record(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_facts_is_remembered() {
        let mut facts = HashMap::default();
        (0..MAX_KNOWN).for_each(|key| remember(&mut facts, key, key));
        assert_eq!(facts.len(), MAX_KNOWN);
        remember(&mut facts, MAX_KNOWN, 0);
        assert_eq!(facts.into_iter().collect::<Vec<_>>(), [(MAX_KNOWN, 0)]);
    }
}
