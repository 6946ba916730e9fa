//! The reads of a batch: everything that its commits depend on.

use std::collections::BTreeSet;

use platform_engine::{
    store::{Epoch, Key, KindName, UniqueKey, place::Place},
    uid::Uid,
};
use uuid::Uuid;

use super::{
    Batch, at,
    statements::{
        FIND_BELOW, FIND_WITH, FIND_WITH_EVERYWHERE, LOCK_HEADS, READ_BELOW, READ_BLOCKED, READ_EPOCHS, READ_HEADS,
        READ_LENGTHS, READ_OWNERS, READ_RECORDS, READ_SLOTS, READ_WITH, READ_WITH_EVERYWHERE,
    },
    stored,
};
use crate::{
    commit::{State, Wanted, With},
    error::Failure,
    joined::Found,
    rows::{Call, Calls, EpochKey, KindRow, MemberKey, OrgRow, OwnerKey, Range, RecordKey, TallyKey, WithRow},
    schema::{self, List, Org},
};

/// The reads of a batch: the rows of each statement, in the order of its parameters. Most rows that are found have the
/// place of the row that they were found for.
#[derive(Debug)]
pub(super) struct Reads {
    /// Whether the database is one of Citus.
    is_distributed: bool,
    /// The organizations that the batch writes to, and those that it reads or writes.
    written: Vec<Org>,
    orgs: Vec<Org>,
    epochs: Vec<Epoch>,
    keys: Vec<Key>,
    none_below: Vec<(KindName, String)>,
    pub(super) below: Vec<Range>,
    none_with: Vec<With>,
    pub(super) with: Vec<(KindName, Uuid)>,
    unique: Vec<UniqueKey>,
    /// The lists of which it is read whether they have blocks.
    pub(super) lists: BTreeSet<List>,
    counts: Vec<Key>,
    kinds: BTreeSet<KindName>,
}

impl Reads {
    pub(super) fn of(batch: &Batch<'_>, salt: u64, is_distributed: bool) -> Self {
        let mut wanted = Wanted::default();
        batch.commits.iter().for_each(|commit| wanted.add(commit));
        let keys: Vec<Key> = wanted.keys.into_iter().collect();
        let own = keys.iter().flat_map(|key| schema::lists(key.kind, &key.uid, false).map(|(list, _)| list));
        let filtered = keys.iter().map(|key| schema::any_filtered(salt, key.kind, schema::organization(&key.uid)));
        let lists = own.chain(filtered).collect();
        Self {
            is_distributed,
            written: batch.homes.written.iter().copied().collect(),
            orgs: batch.homes.written.union(&batch.homes.read).copied().collect(),
            epochs: wanted.epochs.into_iter().collect(),
            keys,
            none_below: wanted.none_below,
            below: wanted.below.iter().map(|(kind, uid)| Range::below(kind, uid)).collect(),
            none_with: wanted.none_with,
            with: wanted.with,
            unique: wanted.unique.into_iter().collect(),
            lists,
            counts: wanted.counts.into_iter().collect(),
            kinds: batch.commits.iter().flat_map(|commit| &commit.put).map(|put| put.key.kind).collect(),
        }
    }

    /// Returns the statement that finds records with values, and the one that reads those to delete.
    const fn with_values(&self) -> (&'static str, &'static str) {
        if self.is_distributed { (FIND_WITH_EVERYWHERE, READ_WITH_EVERYWHERE) } else { (FIND_WITH, READ_WITH) }
    }

    /// Returns the statements, those with rows.
    pub(super) fn calls(&self) -> Vec<Call> {
        let (find_with, read_with) = self.with_values();
        let mut calls = Calls::default();
        if self.is_distributed {
            calls.add_whole(LOCK_HEADS, self.written.iter().copied().map(OrgRow::from));
        }
        calls.add_whole(READ_HEADS, self.orgs.iter().copied().map(OrgRow::from));
        calls.add_whole(READ_EPOCHS, self.epochs.iter().map(EpochKey::new));
        calls.add_whole(READ_RECORDS, self.keys.iter().map(RecordKey::new));
        calls.add_whole(FIND_BELOW, self.none_below.iter().map(|(kind, uid)| Range::below(kind, uid)));
        calls.add_whole(READ_BELOW, self.below.iter().cloned());
        calls.add_whole(find_with, self.none_with.iter().map(WithRow::new));
        calls.add_whole(read_with, self.with.iter().map(|(kind, value)| MemberKey { kind, value: *value }));
        calls.add_whole(READ_OWNERS, self.unique.iter().map(OwnerKey::new));
        calls.add_whole(READ_BLOCKED, self.lists.iter().copied().map(TallyKey::from));
        let list_of = |key: &Key| TallyKey {
            org: schema::organization(&key.uid),
            list: schema::list(key.kind, Place::At(&key.uid)),
        };
        calls.add_whole(READ_LENGTHS, self.counts.iter().map(list_of));
        calls.add_whole(READ_SLOTS, self.kinds.iter().map(|kind| KindRow { kind }));
        calls.into()
    }

    /// Adds to the state the rows that each statement has found, except those of ranges.
    pub(super) fn add_to<'r>(
        &self,
        state: &mut State,
        rows: impl Fn(&str) -> Result<Vec<Found<'r>>, Failure>,
    ) -> Result<(), Failure> {
        let (find_with, read_with) = self.with_values();
        for row in rows(READ_HEADS)? {
            state.heads.insert(row.try_get(0)?, row.try_get(1)?);
        }
        for row in rows(READ_EPOCHS)? {
            if let Some(epoch) = at(&self.epochs, row)? {
                state.epochs.insert(epoch.clone(), row.try_get::<i64>(1)?.cast_unsigned());
            }
        }
        for row in rows(READ_SLOTS)? {
            state.slots.add(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        }
        for row in rows(READ_RECORDS)? {
            if let Some(key) = at(&self.keys, row)? {
                state.records.entry(key.clone()).or_default().before = Some(stored(row)?);
            }
        }
        for row in rows(read_with)? {
            if let Some((kind, _)) = at(&self.with, row)? {
                let key = Key::new(kind, Uid::opaque(row.try_get::<&str>(1)?));
                state.records.entry(key).or_default().before = Some(stored(row)?);
            }
        }
        for top in &self.counts {
            let own = state.records.get(top).is_some_and(|change| change.before.is_some());
            state.counts.insert(top.clone(), u64::from(own));
        }
        for row in rows(READ_LENGTHS)? {
            if let Some(count) = at(&self.counts, row)?.and_then(|top| state.counts.get_mut(top)) {
                *count = count.saturating_add(row.try_get::<i64>(1)?.cast_unsigned());
            }
        }
        for row in rows(FIND_BELOW)? {
            state.found_below.extend(at(&self.none_below, row)?.cloned());
        }
        for row in rows(find_with)? {
            state.found_with.extend(at(&self.none_with, row)?.cloned());
        }
        for row in rows(READ_OWNERS)? {
            if let Some(key) = at(&self.unique, row)? {
                state.owners.insert(key.clone(), (row.try_get(1)?, row.try_get(2)?));
            }
        }
        Ok(())
    }
}
