//! The rows that a batch writes: the difference between the records before and after it.

use std::collections::{BTreeMap, BTreeSet};

use platform_engine::store::{Key, order::sequence_value, place::Place};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::{
    commit::{After, State, Stored},
    connection::Params,
    schema::{self, Column, List, Org, Part},
};

/// A statement and its parameters.
pub(crate) type Call = (&'static str, Params);

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

/// Returns the position of a record in an order, as the table `block` has it; `None` if the kind has no such key.
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

    /// Returns the lists that stand for the kept lists of filter values which a changed record could be in.
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

/// Collects one column of rows.
fn column<'r, R, T>(rows: &'r [R], of: impl Fn(&'r R) -> T) -> Box<dyn ToSql + Sync + Send>
where
    Vec<T>: ToSql + Sync + Send,
    T: 'static,
{
    Box::new(rows.iter().map(of).collect::<Vec<T>>())
}

/// The most rows of a statement.
const MOST_ROWS: usize = 4_096;
/// The most bytes of the bodies in a statement, unless the first one is longer. A message to the server has at most 1 GiB,
/// and the server holds it several times.
const MOST_BYTES: usize = 16 << 20;

/// The statements of a batch.
#[derive(Debug, Default)]
struct Calls(Vec<Call>);

impl Calls {
    /// Adds a statement for rows, or several for many rows, or none.
    fn add<R>(&mut self, sql: &'static str, rows: &[R], params: impl Fn(&[R]) -> Params) {
        self.0.extend(rows.chunks(MOST_ROWS).map(|rows| (sql, params(rows))));
    }

    /// Adds statements for rows of different lengths.
    fn add_sized<R>(
        &mut self,
        sql: &'static str,
        mut rows: &[R],
        len: impl Fn(&R) -> usize,
        params: impl Fn(&[R]) -> Params,
    ) {
        while !rows.is_empty() {
            let mut bytes = 0_usize;
            let fits = rows.iter().take(MOST_ROWS).take_while(|row| {
                bytes = bytes.saturating_add(len(row));
                bytes <= MOST_BYTES
            });
            let (first, rest) = rows.split_at(fits.count().clamp(1, rows.len()));
            self.0.push((sql, params(first)));
            rows = rest;
        }
    }
}

/// Returns the parameters of [`CREATE_RECORDS`] and [`PUT_RECORDS`].
fn records(state: &State, put: &[&After]) -> Params {
    let mut params = vec![
        column(put, |after| schema::organization(&after.put.key.uid)),
        column(put, |after| after.put.key.kind),
        column(put, |after| after.put.key.uid.to_string()),
        column(put, |after| schema::own_list(after.put.key.kind, &after.put.key.uid)),
        column(put, |after| after.stored.revision),
        column(put, |after| i32::from(after.put.rendering)),
        column(put, |after| after.put.queue),
    ];
    for slot in 0..schema::SLOTS {
        params.push(column(put, |after| after.stored.sort.get(slot).cloned().flatten()));
    }
    let other = |after: &&After| {
        let own = after.put.sort.iter();
        let others = own.filter(|(key, _)| state.slots.slot(after.put.key.kind, key).is_none());
        others.map(|(key, value)| (*key, value.as_bytes().to_vec())).collect::<Vec<_>>()
    };
    params.extend([
        column(put, |after| schema::texts_literal(other(after).iter().map(|(key, _)| *key))),
        column(put, |after| schema::bytes_literal(other(after).iter().map(|(_, value)| &**value))),
        column(put, |after| schema::texts_literal(after.stored.filter.iter().map(|(key, _)| &**key))),
        column(put, |after| schema::bytes_literal(after.stored.filter.iter().map(|(_, value)| &**value))),
        column(put, |after| schema::texts_literal(after.stored.unique.iter().map(|(key, _)| &**key))),
        column(put, |after| schema::bytes_literal(after.stored.unique.iter().map(|(_, value)| &**value))),
        column(put, |after| after.put.body.to_vec()),
        column(put, |after| after.put.private.to_vec()),
    ]);
    params
}

/// The writes of a batch, in order: deletions, inserts, and what depends on the lengths of lists.
pub(crate) fn calls(state: &State, changes: &Changes) -> Vec<Call> {
    let mut calls = Calls::default();
    let changed: Vec<_> = state.records.iter().filter(|(_, change)| change.after.is_some()).collect();

    let mut deleted: Vec<&Key> = Vec::new();
    let (mut created, mut replaced) = (Vec::new(), Vec::new());
    for (key, change) in &changed {
        match change.after.as_ref().and_then(Option::as_ref) {
            Some(after) if change.before.is_none() => created.push(after),
            Some(after) => replaced.push(after),
            None if change.before.is_some() => deleted.push(key),
            None => {}
        }
    }
    // The order of rows in an index is that of their uids.
    created.sort_unstable_by(|left: &&After, right| left.put.key.cmp(&right.put.key));
    // Entries of further ancestors, and of filter values.
    let entry = |key: &Key, stored: &Stored| -> Vec<List> {
        let lists = schema::lists(key.kind, &key.uid, stored.queue);
        let deep = lists.filter(|(_, part)| *part == Part::Deep).map(|(list, _)| list);
        deep.chain(changes.kept_of(key, stored)).collect()
    };
    let mut gone: Vec<(List, String)> = Vec::new();
    let mut entries: Vec<(List, &Key, &Stored)> = Vec::new();
    for (key, change) in &changed {
        let after = change.after.as_ref().and_then(Option::as_ref);
        let kept = after.map(|after| entry(key, &after.stored)).unwrap_or_default();
        if let Some(before) = &change.before {
            let dropped = entry(key, before).into_iter().filter(|list| !kept.contains(list));
            gone.extend(dropped.map(|list| (list, key.uid.to_string())));
        }
        if let Some(after) = after {
            entries.extend(kept.into_iter().map(|list| (list, *key, &after.stored)));
        }
    }
    // Filter values and unique keys.
    let (mut members, mut left) = (Vec::new(), Vec::new());
    let (mut owners, mut released) = (BTreeSet::new(), BTreeSet::new());
    for (key, change) in &changed {
        let after = change.after.as_ref().and_then(Option::as_ref).map(|after| &after.stored);
        let values = |stored: Option<&Stored>| -> BTreeSet<Uuid> {
            let all = stored.into_iter().flat_map(|stored| &stored.filter);
            all.map(|(name, value)| schema::filter_value(key.kind, name, value)).collect()
        };
        let (old, new) = (values(change.before.as_ref()), values(after));
        members.extend(new.difference(&old).map(|value| (*value, key.uid.to_string())));
        left.extend(old.difference(&new).map(|value| (*value, key.uid.to_string())));
        let unique = |stored: &Stored| -> Vec<(String, Vec<u8>, &'static str, String)> {
            let all = stored.unique.iter();
            all.map(|(space, value)| (space.clone(), value.clone(), key.kind, key.uid.to_string())).collect()
        };
        owners.extend(after.map(unique).unwrap_or_default());
        released.extend(change.before.as_ref().map(unique).unwrap_or_default());
    }

    // Before rows are inserted: a unique key may have another owner afterwards.
    calls.add(DELETE_RECORDS, &deleted, |deleted| {
        vec![
            column(deleted, |key| schema::organization(&key.uid)),
            column(deleted, |key| key.kind),
            column(deleted, |key| key.uid.to_string()),
        ]
    });
    calls.add(DELETE_DEEP, &gone, |gone| {
        vec![
            column(gone, |(list, _)| list.org),
            column(gone, |(list, _)| list.id),
            column(gone, |(_, uid)| uid.clone()),
        ]
    });
    let params = |rows: &[(Uuid, String)]| -> Params {
        vec![
            column(rows, |(_, uid)| schema::organization(uid)),
            column(rows, |(value, _)| *value),
            column(rows, |(_, uid)| uid.clone()),
        ]
    };
    calls.add(DELETE_MEMBERS, &left, params);
    let unique = |rows: &[&(String, Vec<u8>, &'static str, String)]| -> Params {
        vec![
            column(rows, |(space, value, ..)| schema::organization_of_unique(space, value)),
            column(rows, |(space, ..)| space.clone()),
            column(rows, |(_, value, ..)| value.clone()),
            column(rows, |(.., kind, _)| *kind),
            column(rows, |(.., uid)| uid.clone()),
        ]
    };
    let dropped: Vec<_> = released.difference(&owners).collect();
    calls.add(DELETE_OWNERS, &dropped, unique);

    // Inserts, which one statement can do.
    let len = |after: &&After| after.put.body.len() + after.put.private.len();
    calls.add_sized(CREATE_RECORDS, &created, len, |put| records(state, put));
    calls.add_sized(PUT_RECORDS, &replaced, len, |put| records(state, put));
    entries.sort_unstable_by_key(|(list, key, _)| (*list, *key));
    calls.add(PUT_DEEP, &entries, |entries| {
        let mut params = vec![
            column(entries, |(list, ..)| list.org),
            column(entries, |(list, ..)| list.id),
            column(entries, |(_, key, _)| key.uid.to_string()),
            column(entries, |(_, key, _)| key.kind),
            column(entries, |(_, key, _)| schema::organization(&key.uid)),
            column(entries, |(.., stored)| stored.revision),
        ];
        for slot in 0..schema::SLOTS {
            params.push(column(entries, |(.., stored)| stored.sort.get(slot).cloned().flatten()));
        }
        params
    });
    calls.add(PUT_MEMBERS, &members, params);
    // In the order of the keys, so that two batches that insert the same keys do not wait for each other.
    let taken: Vec<_> = owners.difference(&released).collect();
    calls.add(PUT_OWNERS, &taken, unique);
    let epochs: Vec<(Org, String, i64)> = state
        .raised
        .iter()
        .map(|(epoch, value)| {
            let (org, name) = schema::epoch(epoch);
            (org, name, *value)
        })
        .collect();
    calls.add(PUT_EPOCHS, &epochs, |epochs| {
        vec![
            column(epochs, |(org, ..)| *org),
            column(epochs, |(_, name, _)| name.clone()),
            column(epochs, |(.., value)| *value),
        ]
    });
    let heads: Vec<(Org, i64)> =
        state.moved.iter().map(|org| (*org, state.heads.get(org).copied().unwrap_or(0))).collect();
    calls.add(PUT_HEADS, &heads, |heads| vec![column(heads, |(org, _)| *org), column(heads, |(_, head)| *head)]);
    let tallies: Vec<_> = changes.lists.iter().filter(|(_, delta)| (delta.direct, delta.deep) != (0, 0)).collect();
    calls.add(PUT_TALLIES, &tallies, |tallies| {
        vec![
            column(tallies, |(list, _)| list.org),
            column(tallies, |(list, _)| list.id),
            column(tallies, |(_, delta)| delta.kind),
            column(tallies, |(_, delta)| delta.direct),
            column(tallies, |(_, delta)| delta.deep),
        ]
    });

    // What depends on the lengths of lists.
    let shorter: Vec<_> =
        tallies.iter().filter(|(_, delta)| delta.direct < 0 || delta.deep < 0).map(|(list, _)| **list).collect();
    calls.add(DELETE_TALLIES, &shorter, |lists| vec![column(lists, |list| list.org), column(lists, |list| list.id)]);
    calls.add(SHIFT_BLOCKS, &changes.shifts, |shifts| {
        vec![
            column(shifts, |shift| shift.list.org),
            column(shifts, |shift| shift.list.id),
            column(shifts, |shift| shift.column.number()),
            column(shifts, |shift| shift.value.clone()),
            column(shifts, |shift| shift.uid.clone()),
            column(shifts, |shift| shift.delta),
        ]
    });
    calls.0
}

pub(crate) const DELETE_RECORDS: &str = "DELETE FROM record r USING unnest($1::int8[], $2::text[], $3::text[]) \
     k(org, kind, uid) WHERE r.org = k.org AND r.kind = k.kind AND r.uid = k.uid";
macro_rules! create_records {
    () => {
        "INSERT INTO record (org, kind, uid, list, revision, rendering, queue, s1, s2, s3, s4, sort_keys, sort_values, \
         filter_keys, filter_values, unique_spaces, unique_values, body, private) SELECT k.org, k.kind, k.uid, k.list, \
         k.revision, k.rendering, k.queue, k.s1, k.s2, k.s3, k.s4, k.sk::text[], k.sv::bytea[], k.fk::text[], \
         k.fv::bytea[], k.us::text[], k.uv::bytea[], k.body, k.private FROM unnest($1::int8[], $2::text[], $3::text[], \
         $4::uuid[], $5::int8[], $6::int4[], $7::bool[], $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[], \
         $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::bytea[], $19::bytea[]) \
         k(org, kind, uid, list, revision, rendering, queue, s1, s2, s3, s4, sk, sv, fk, fv, us, uv, body, private)"
    };
}

/// Inserts records that do not exist, which costs less than [`PUT_RECORDS`].
pub(crate) const CREATE_RECORDS: &str = create_records!();
pub(crate) const PUT_RECORDS: &str = concat!(
    create_records!(),
    " ON CONFLICT (org, kind, uid) DO UPDATE SET list = excluded.list, revision = excluded.revision, \
     rendering = excluded.rendering, queue = excluded.queue, s1 = excluded.s1, s2 = excluded.s2, s3 = excluded.s3, \
     s4 = excluded.s4, sort_keys = excluded.sort_keys, sort_values = excluded.sort_values, \
     filter_keys = excluded.filter_keys, filter_values = excluded.filter_values, \
     unique_spaces = excluded.unique_spaces, unique_values = excluded.unique_values, body = excluded.body, \
     private = excluded.private"
);
pub(crate) const DELETE_DEEP: &str = "DELETE FROM deep d USING unnest($1::int8[], $2::uuid[], $3::text[]) \
     k(org, list, uid) WHERE d.org = k.org AND d.list = k.list AND d.uid = k.uid";
pub(crate) const PUT_DEEP: &str = "INSERT INTO deep (org, list, uid, kind, home, revision, s1, s2, s3, s4) SELECT * \
     FROM unnest($1::int8[], $2::uuid[], $3::text[], $4::text[], $5::int8[], $6::int8[], $7::bytea[], $8::bytea[], \
     $9::bytea[], $10::bytea[]) ON CONFLICT (org, list, uid) DO UPDATE SET revision = excluded.revision, \
     s1 = excluded.s1, s2 = excluded.s2, s3 = excluded.s3, s4 = excluded.s4";
pub(crate) const DELETE_MEMBERS: &str = "DELETE FROM member m USING unnest($1::int8[], $2::uuid[], $3::text[]) \
     k(org, value, uid) WHERE m.org = k.org AND m.value = k.value AND m.uid = k.uid";
pub(crate) const PUT_MEMBERS: &str =
    "INSERT INTO member (org, value, uid) SELECT * FROM unnest($1::int8[], $2::uuid[], $3::text[])";
pub(crate) const DELETE_OWNERS: &str = "DELETE FROM owner o USING unnest($1::int8[], $2::text[], $3::bytea[], \
     $4::text[], $5::text[]) k(org, space, value, kind, uid) WHERE o.org = k.org AND o.space = k.space AND \
     o.value = k.value AND o.kind = k.kind AND o.uid = k.uid";
pub(crate) const PUT_OWNERS: &str = "INSERT INTO owner (org, space, value, kind, uid) \
     SELECT * FROM unnest($1::int8[], $2::text[], $3::bytea[], $4::text[], $5::text[])";
/// Returns the lists whose blocks have to be made or dropped.
pub(crate) const PUT_TALLIES: &str = "INSERT INTO tally AS t (org, list, kind, direct, deep) \
     SELECT * FROM unnest($1::int8[], $2::uuid[], $3::text[], $4::int8[], $5::int8[]) \
     ON CONFLICT (org, list) DO UPDATE SET direct = t.direct + excluded.direct, deep = t.deep + excluded.deep \
     RETURNING t.org, t.list, CASE WHEN t.blocked THEN t.direct + t.deep < 1024 ELSE t.direct + t.deep > 4096 END";
pub(crate) const DELETE_TALLIES: &str = "DELETE FROM tally t USING unnest($1::int8[], $2::uuid[]) k(org, list) \
     WHERE t.org = k.org AND t.list = k.list AND t.direct = 0 AND t.deep = 0 AND NOT t.blocked";
/// Returns the lists with blocks that are too long or empty.
pub(crate) const SHIFT_BLOCKS: &str = "WITH d AS MATERIALIZED (SELECT k.org, k.list, k.ord, v.level, l.low, l.low_uid, \
     sum(k.delta)::int4 AS delta FROM unnest($1::int8[], $2::uuid[], $3::int4[], $4::bytea[], $5::text[], $6::int4[]) \
     k(org, list, ord, value, uid, delta) CROSS JOIN (VALUES (1), (2)) v(level) CROSS JOIN LATERAL (SELECT b.low, \
     b.low_uid FROM block b WHERE b.org = k.org AND b.list = k.list AND b.ord = k.ord AND b.level = v.level AND \
     (b.low, b.low_uid) <= (k.value, k.uid) ORDER BY b.low DESC, b.low_uid DESC LIMIT 1) l GROUP BY 1, 2, 3, 4, 5, 6) \
     UPDATE block b SET n = b.n + d.delta FROM d WHERE b.org = d.org AND b.list = d.list AND b.ord = d.ord AND \
     b.level = d.level AND b.low = d.low AND b.low_uid = d.low_uid \
     RETURNING b.org, b.list, b.level = 1 AND (b.n > 1024 OR b.n = 0)";
pub(crate) const PUT_EPOCHS: &str = "INSERT INTO epoch (org, name, value) \
     SELECT * FROM unnest($1::int8[], $2::text[], $3::int8[]) \
     ON CONFLICT (org, name) DO UPDATE SET value = excluded.value";
pub(crate) const PUT_HEADS: &str = "INSERT INTO head (org, sequence) SELECT * FROM unnest($1::int8[], $2::int8[]) \
     ON CONFLICT (org) DO UPDATE SET sequence = excluded.sequence";
