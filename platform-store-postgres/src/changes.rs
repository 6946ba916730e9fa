//! The rows that a batch writes: the difference between the records before and after it.

use std::collections::{BTreeMap, BTreeSet};

use platform_engine::store::{Key, order::sequence_value, place::Place};
use uuid::Uuid;

use crate::{
    commit::{After, Change, State, Stored},
    rows::{
        Block, CREATE_RECORDS, Call, Calls, DELETE_DEEP, DELETE_MEMBERS, DELETE_OWNERS, DELETE_RECORDS, DELETE_TALLIES,
        Deep, DeepKey, EpochValue, Head, Member, Owner, PUT_DEEP, PUT_EPOCHS, PUT_HEADS, PUT_MEMBERS, PUT_OWNERS,
        PUT_RECORDS, PUT_TALLIES, Record, RecordKey, SHIFT_BLOCKS, Tally, TallyKey,
    },
    schema::{self, Column, List, Part},
};

/// The difference that a batch makes to a list.
#[derive(Debug, Clone)]
pub(crate) struct Delta {
    pub(crate) kind: &'static str,
    /// The uid of the list; empty for the list of roots.
    pub(crate) top: String,
    pub(crate) direct: i64,
    pub(crate) deep: i64,
    /// Whether the list is one of a filter value.
    pub(crate) filtered: bool,
}

/// A change to a list with counted blocks: a record appears at or disappears from a position of an order.
#[derive(Debug, Clone)]
pub(crate) struct Shift {
    pub(crate) list: List,
    pub(crate) column: Column,
    pub(crate) value: Vec<u8>,
    pub(crate) uid: String,
    pub(crate) delta: i32,
}

/// The rows of a batch.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// The lists whose lengths change, and those in which a record changes its place.
    pub(crate) lists: BTreeMap<List, Delta>,
    pub(crate) shifts: Vec<Shift>,
    /// The kept lists of filter values that a changed record is in.
    filtered: BTreeSet<List>,
    salt: u64,
}

/// Returns the position of a record in an order, by the table `block`; `None` if the kind has no such key.
pub(crate) fn position(stored: &Stored, column: Column) -> Option<Vec<u8>> {
    match column {
        Column::Uid => Some(Vec::new()),
        Column::Sequence => Some(sequence_value(stored.revision.cast_unsigned()).to_vec()),
        Column::Slot(slot) => stored.sort.get(slot)?.clone(),
        Column::Other => None,
    }
}

impl Changes {
    /// Collects the lists that the batch changes.
    pub(crate) fn of(state: &State, salt: u64) -> Self {
        let mut changes = Self { salt, ..Self::default() };
        for (key, change) in &state.records {
            let Some(after) = &change.after else { continue };
            let (before, after) = (change.before.as_ref(), after.as_ref().map(|after| &after.stored));
            for (stored, sign) in [(before, -1), (after, 1)] {
                let Some(stored) = stored else { continue };
                let tops = Place::of(&key.uid, stored.queue).filter(|place| *place != Place::All);
                for ((list, part), place) in schema::lists(key.kind, &key.uid, stored.queue).zip(tops) {
                    let top = if let Place::At(uid) = place { uid } else { "" };
                    let new = || Delta { kind: key.kind, top: top.to_owned(), direct: 0, deep: 0, filtered: false };
                    let delta = changes.lists.entry(list).or_insert_with(new);
                    match part {
                        Part::Direct => delta.direct += sign,
                        Part::Deep => delta.deep += sign,
                        Part::Top => {}
                    }
                }
            }
        }
        changes
    }

    /// Returns the lists that represent the kept lists of filter values which a changed record could be in.
    pub(crate) fn any_filtered(&self) -> BTreeSet<List> {
        self.lists.iter().map(|(list, delta)| schema::any_filtered(self.salt, delta.kind, list.org)).collect()
    }

    /// Returns the lists of filter values that changed records are in, if any of their kind are kept.
    pub(crate) fn maybe_filtered(&self, state: &State, blocked: &BTreeSet<List>) -> BTreeSet<List> {
        let mut lists = BTreeSet::new();
        if self.any_filtered().is_disjoint(blocked) {
            return lists;
        }
        for (key, change) in &state.records {
            let Some(after) = &change.after else { continue };
            let any = schema::any_filtered(self.salt, key.kind, schema::organization(&key.uid));
            if blocked.contains(&any) {
                let both = change.before.iter().chain(after.as_ref().map(|after| &after.stored));
                both.for_each(|stored| lists.extend(self.lists_of(key, stored)));
            }
        }
        lists
    }

    fn lists_of(&self, key: &Key, stored: &Stored) -> BTreeSet<List> {
        if stored.queue {
            return BTreeSet::new();
        }
        schema::filtered_lists(self.salt, key.kind, &key.uid, &stored.filter)
    }

    /// Collects the changes to these kept lists of filter values.
    pub(crate) fn filter(&mut self, state: &State, kept: BTreeSet<List>) {
        self.filtered = kept;
        if self.filtered.is_empty() {
            return;
        }
        for (key, change) in &state.records {
            let Some(after) = &change.after else { continue };
            let after = after.as_ref().map(|after| &after.stored);
            for (stored, sign) in [(change.before.as_ref(), -1), (after, 1)] {
                let Some(stored) = stored else { continue };
                for list in self.kept_of(key, stored) {
                    let new = || Delta { kind: key.kind, top: String::new(), direct: 0, deep: 0, filtered: true };
                    self.lists.entry(list).or_insert_with(new).deep += sign;
                }
            }
        }
    }

    /// Returns the kept lists of filter values that a record is in.
    fn kept_of(&self, key: &Key, stored: &Stored) -> BTreeSet<List> {
        if self.filtered.is_empty() {
            BTreeSet::new()
        } else {
            self.lists_of(key, stored).intersection(&self.filtered).copied().collect()
        }
    }

    /// Collects the changes to the counted blocks of these lists.
    pub(crate) fn shift(&mut self, state: &State, blocked: &BTreeSet<List>) {
        if blocked.is_empty() {
            return;
        }
        for (key, change) in &state.records {
            let Some(after) = &change.after else { continue };
            let after = after.as_ref().map(|after| &after.stored);
            self.shift_record(key, change.before.as_ref(), after, blocked);
        }
    }

    fn shift_record(&mut self, key: &Key, before: Option<&Stored>, after: Option<&Stored>, blocked: &BTreeSet<List>) {
        let queue = after.or(before).is_some_and(|stored| stored.queue);
        for (list, _) in schema::lists(key.kind, &key.uid, queue).filter(|(list, _)| blocked.contains(list)) {
            for column in Column::INDEXED {
                let [old, new] = [before, after].map(|stored| stored.and_then(|stored| position(stored, column)));
                if old == new {
                    continue;
                }
                for (value, delta) in [(old, -1), (new, 1)] {
                    let Some(value) = value else { continue };
                    self.shifts.push(Shift { list, column, value, uid: key.uid.to_string(), delta });
                }
            }
        }
    }
}

/// The writes of a batch, in order: deletions, inserts, and what depends on the lengths of lists.
pub(crate) fn calls(state: &State, changes: &Changes) -> Vec<Call> {
    let changed: Vec<_> = state.records.iter().filter(|(_, change)| change.after.is_some()).collect();
    let records = Records::of(state, &changed);
    let (gone, entries) = entries(changes, &changed);
    let values = Values::of(&changed);

    let mut calls = Calls::default();
    // Before rows are inserted: a unique key may have another owner afterwards.
    calls.add(DELETE_RECORDS, records.deleted);
    calls.add(DELETE_DEEP, gone);
    calls.add(DELETE_MEMBERS, values.left);
    calls.add(DELETE_OWNERS, values.released.difference(&values.owners).cloned().collect());

    // Inserts, which one statement can do.
    calls.add_sized(CREATE_RECORDS, records.created, Record::bytes);
    calls.add_sized(PUT_RECORDS, records.replaced, Record::bytes);
    calls.add(PUT_DEEP, entries);
    calls.add(PUT_MEMBERS, values.members);
    // In the order of the keys, so that two batches that insert the same keys do not wait for each other.
    calls.add(PUT_OWNERS, values.owners.difference(&values.released).cloned().collect());
    let epochs = state.raised.iter().map(|(epoch, value)| {
        let (org, name) = schema::epoch(epoch);
        EpochValue { org, name, value: *value }
    });
    calls.add(PUT_EPOCHS, epochs.collect());
    let heads = state.moved.iter().map(|org| Head { org: *org, sequence: state.heads.get(org).copied().unwrap_or(0) });
    calls.add(PUT_HEADS, heads.collect());
    let tallies = changes.lists.iter().filter(|(_, delta)| (delta.direct, delta.deep) != (0, 0));
    let tallies: Vec<_> = tallies.map(|(list, delta)| Tally::new(*list, delta)).collect();
    let shorter = tallies.iter().filter(|tally| tally.direct < 0 || tally.deep < 0);
    let shorter: Vec<_> = shorter.map(|tally| TallyKey { org: tally.org, list: tally.list }).collect();
    calls.add(PUT_TALLIES, tallies);

    // The decisions that depend on the lengths of lists.
    calls.add(DELETE_TALLIES, shorter);
    calls.add(SHIFT_BLOCKS, changes.shifts.iter().map(Block::from).collect());
    calls.into()
}

/// The rows of records.
#[derive(Debug, Default)]
struct Records {
    deleted: Vec<RecordKey>,
    created: Vec<Record>,
    replaced: Vec<Record>,
}

impl Records {
    fn of(state: &State, changed: &[(&Key, &Change)]) -> Self {
        let mut records = Self::default();
        let mut created: Vec<&After> = Vec::new();
        for (key, change) in changed {
            match change.after.as_ref().and_then(Option::as_ref) {
                Some(after) if change.before.is_none() => created.push(after),
                Some(after) => records.replaced.push(Record::new(after, &state.slots)),
                None if change.before.is_some() => records.deleted.push(RecordKey::new(key)),
                None => {}
            }
        }
        // The order of rows in an index is that of their uids.
        created.sort_unstable_by(|left, right| left.put.key.cmp(&right.put.key));
        records.created = created.into_iter().map(|after| Record::new(after, &state.slots)).collect();
        records
    }
}

/// Returns the entries of further ancestors and of filter values that records leave, and those that they have then, in
/// the order of their keys.
fn entries(changes: &Changes, changed: &[(&Key, &Change)]) -> (Vec<DeepKey>, Vec<Deep>) {
    let lists = |key: &Key, stored: &Stored| -> Vec<List> {
        let lists = schema::lists(key.kind, &key.uid, stored.queue);
        let deep = lists.filter(|(_, part)| *part == Part::Deep).map(|(list, _)| list);
        deep.chain(changes.kept_of(key, stored)).collect()
    };
    let (mut gone, mut entries) = (Vec::new(), Vec::new());
    for (key, change) in changed {
        let after = change.after.as_ref().and_then(Option::as_ref);
        let kept = after.map(|after| lists(key, &after.stored)).unwrap_or_default();
        if let Some(before) = &change.before {
            let dropped = lists(key, before).into_iter().filter(|list| !kept.contains(list));
            gone.extend(dropped.map(|list| DeepKey { org: list.org, list: list.id, uid: key.uid.to_string() }));
        }
        if let Some(after) = after {
            entries.extend(kept.into_iter().map(|list| (list, *key, &after.stored)));
        }
    }
    entries.sort_unstable_by_key(|(list, key, _)| (*list, *key));
    (gone, entries.into_iter().map(|(list, key, stored)| Deep::new(list, key, stored)).collect())
}

/// The rows of filter values and unique keys.
#[derive(Debug, Default)]
struct Values {
    /// The filter values that records have now, and had before.
    members: Vec<Member>,
    left: Vec<Member>,
    /// The unique keys of all changed records after and before the batch.
    owners: BTreeSet<Owner>,
    released: BTreeSet<Owner>,
}

impl Values {
    fn of(changed: &[(&Key, &Change)]) -> Self {
        let mut all = Self::default();
        for (key, change) in changed {
            let after = change.after.as_ref().and_then(Option::as_ref).map(|after| &after.stored);
            let values = |stored: Option<&Stored>| -> BTreeSet<Uuid> {
                let filter = stored.into_iter().flat_map(|stored| &stored.filter);
                filter.map(|(name, value)| schema::filter_value(key.kind, name, value)).collect()
            };
            let (old, new) = (values(change.before.as_ref()), values(after));
            all.members.extend(new.difference(&old).map(|value| Member::new(*value, key)));
            all.left.extend(old.difference(&new).map(|value| Member::new(*value, key)));
            let owners = |stored: &Stored| -> Vec<Owner> {
                stored.unique.iter().map(|(space, value)| Owner::new(space, value, key)).collect()
            };
            all.owners.extend(after.map(owners).unwrap_or_default());
            all.released.extend(change.before.as_ref().map(owners).unwrap_or_default());
        }
        all
    }
}
