//! The rows that a batch writes and deletes, and the statements for them.
//!
//! A statement about any number of rows has an array of values for each column: `unnest($1::int8[], …)`. The fields of a
//! row type are these columns, in the order of the statement.

use platform_engine::store::{Epoch, Key, UniqueKey, place::below};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::{
    changes::{Delta, Shift},
    commit::{After, Stored, With},
    connection::Params,
    schema::{self, List, Org, Slots},
};

/// A statement and its parameters.
pub(crate) type Call = (&'static str, Params);

/// The most rows of a statement.
const MOST_ROWS: usize = 4_096;
/// The most bytes of the bodies in a statement, unless the first one is longer. A message to the server has at most 1 GiB,
/// and the server holds it several times.
const MOST_BYTES: usize = 16 << 20;

/// The statements of a batch.
#[derive(Debug, Default)]
pub(crate) struct Calls(Vec<Call>);

impl Calls {
    /// Adds a statement for rows, or several for many rows, or none.
    pub(crate) fn add<R: Row>(&mut self, sql: &'static str, rows: Vec<R>) {
        self.add_sized(sql, rows, |_| 0);
    }

    /// Adds a statement for rows, or several for many or long rows, or none.
    pub(crate) fn add_sized<R: Row>(&mut self, sql: &'static str, rows: Vec<R>, bytes_of: impl Fn(&R) -> usize) {
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            let (mut some, mut bytes) = (Vec::new(), 0_usize);
            while let Some(row) = rows.next_if(|row| {
                some.is_empty() || (some.len() < MOST_ROWS && bytes.saturating_add(bytes_of(row)) <= MOST_BYTES)
            }) {
                bytes = bytes.saturating_add(bytes_of(&row));
                some.push(row);
            }
            self.0.push((sql, R::params(some)));
        }
    }

    /// Adds one statement for all rows, if there are any: the statement numbers them.
    pub(crate) fn add_whole<R: Row>(&mut self, sql: &'static str, rows: impl Iterator<Item = R>) {
        let rows: Vec<R> = rows.collect();
        if !rows.is_empty() {
            self.0.push((sql, R::params(rows)));
        }
    }
}

impl From<Calls> for Vec<Call> {
    fn from(calls: Calls) -> Self {
        calls.0
    }
}

/// A row of a statement.
pub(crate) trait Row: Sized {
    /// Returns an array for each column.
    fn params(rows: Vec<Self>) -> Params;
}

/// Returns the values of a column, taken out of its rows.
fn column<R, T>(rows: &mut [R], take: impl Fn(&mut R) -> T) -> Box<dyn ToSql + Sync + Send>
where
    Vec<T>: ToSql + Sync + Send + 'static,
{
    Box::new(rows.iter_mut().map(take).collect::<Vec<T>>())
}

/// Declares row types by their columns.
macro_rules! rows {
    ($($(#[$doc:meta])* $name:ident { $($column:ident: $ty:ty),* $(,)? })*) => {$(
        $(#[$doc])* #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name { $(pub(crate) $column: $ty),* }
        impl Row for $name {
            fn params(mut rows: Vec<Self>) -> Params {
                vec![$(column(&mut rows, |row| std::mem::take(&mut row.$column))),*]
            }
        }
    )*};
}

rows! {
    /// A record to delete.
    RecordKey { org: Org, kind: &'static str, uid: String }

    /// A record to write. The arrays in a column are literals ([`schema::texts_literal`]).
    Record {
        org: Org,
        kind: &'static str,
        uid: String,
        list: Uuid,
        revision: i64,
        rendering: i32,
        queue: bool,
        s1: Option<Vec<u8>>,
        s2: Option<Vec<u8>>,
        s3: Option<Vec<u8>>,
        s4: Option<Vec<u8>>,
        sort_keys: String,
        sort_values: String,
        filter_keys: String,
        filter_values: String,
        unique_spaces: String,
        unique_values: String,
        body: Vec<u8>,
        private: Vec<u8>,
    }

    /// An entry of a list of a further ancestor or of a filter value, to delete.
    DeepKey { org: Org, list: Uuid, uid: String }

    /// An entry of a list of a further ancestor or of a filter value. `home` is the organization of the record.
    Deep {
        org: Org,
        list: Uuid,
        uid: String,
        kind: &'static str,
        home: Org,
        revision: i64,
        s1: Option<Vec<u8>>,
        s2: Option<Vec<u8>>,
        s3: Option<Vec<u8>>,
        s4: Option<Vec<u8>>,
    }

    /// A filter value of a record.
    Member { org: Org, value: Uuid, uid: String }

    /// A unique key, and the record that has it.
    Owner { org: Org, space: String, value: Vec<u8>, kind: &'static str, uid: String }

    EpochKey { org: Org, name: String }

    EpochValue { org: Org, name: String, value: i64 }

    OrgRow { org: Org }

    KindRow { kind: &'static str }

    /// The records of a kind between two uids, both exclusive.
    Range { org: Org, kind: &'static str, low: String, high: String }

    /// A filter value of records of a kind: its hash, and the value.
    WithRow { hash: Uuid, kind: &'static str, key: &'static str, value: Vec<u8> }

    /// The hash of a filter value of records of a kind.
    MemberKey { kind: &'static str, value: Uuid }

    /// A unique key.
    OwnerKey { org: Org, space: &'static str, value: Vec<u8> }

    /// The sequence of the last commit of an organization.
    Head { org: Org, sequence: i64 }

    /// The difference that the batch makes to the length of a list.
    Tally { org: Org, list: Uuid, kind: &'static str, direct: i64, deep: i64 }

    /// A list.
    TallyKey { org: Org, list: Uuid }

    /// The difference that the batch makes to the counted block at a position of a list in an order.
    Block { org: Org, list: Uuid, ord: i32, value: Vec<u8>, uid: String, delta: i32 }
}

impl RecordKey {
    pub(crate) fn new(key: &Key) -> Self {
        Self { org: schema::organization(&key.uid), kind: key.kind, uid: key.uid.to_string() }
    }
}

impl Range {
    /// Returns the records of a kind below a uid.
    pub(crate) fn below(kind: &'static str, uid: &str) -> Self {
        let (low, high) = below(uid);
        Self { org: schema::organization(uid), kind, low, high }
    }
}

impl WithRow {
    pub(crate) fn new(with: &With) -> Self {
        let value = with.value.as_bytes();
        let hash = schema::filter_value(with.kind, with.key, value);
        Self { hash, kind: with.kind, key: with.key, value: value.to_vec() }
    }
}

impl OwnerKey {
    pub(crate) fn new(key: &UniqueKey) -> Self {
        let value = key.value.as_bytes();
        Self { org: schema::organization_of_unique(key.space, value), space: key.space, value: value.to_vec() }
    }
}

impl EpochKey {
    pub(crate) fn new(epoch: &Epoch) -> Self {
        let (org, name) = schema::epoch(epoch);
        Self { org, name }
    }
}

impl From<Org> for OrgRow {
    fn from(org: Org) -> Self {
        Self { org }
    }
}

impl From<List> for TallyKey {
    fn from(list: List) -> Self {
        Self { org: list.org, list: list.id }
    }
}

impl Record {
    pub(crate) fn new(after: &After, slots: &Slots) -> Self {
        let After { put, stored } = after;
        let [s1, s2, s3, s4] = stored.sort.clone();
        let others = put.sort.iter().filter(|(key, _)| slots.slot(put.key.kind, key).is_none());
        let others: Vec<_> = others.map(|(key, value)| (*key, value.as_bytes())).collect();
        Self {
            org: schema::organization(&put.key.uid),
            kind: put.key.kind,
            uid: put.key.uid.to_string(),
            list: schema::own_list(put.key.kind, &put.key.uid),
            revision: stored.revision,
            rendering: i32::from(put.rendering),
            queue: put.queue,
            s1,
            s2,
            s3,
            s4,
            sort_keys: schema::texts_literal(others.iter().map(|(key, _)| *key)),
            sort_values: schema::bytes_literal(others.iter().map(|(_, value)| *value)),
            filter_keys: schema::texts_literal(stored.filter.iter().map(|(key, _)| &**key)),
            filter_values: schema::bytes_literal(stored.filter.iter().map(|(_, value)| &**value)),
            unique_spaces: schema::texts_literal(stored.unique.iter().map(|(space, _)| &**space)),
            unique_values: schema::bytes_literal(stored.unique.iter().map(|(_, value)| &**value)),
            body: put.body.to_vec(),
            private: put.private.to_vec(),
        }
    }

    /// Returns the length of the columns that may be long.
    pub(crate) fn bytes(&self) -> usize {
        self.body.len().saturating_add(self.private.len())
    }
}

impl Deep {
    pub(crate) fn new(list: List, key: &Key, stored: &Stored) -> Self {
        let [s1, s2, s3, s4] = stored.sort.clone();
        let (uid, home) = (key.uid.to_string(), schema::organization(&key.uid));
        Self { org: list.org, list: list.id, uid, kind: key.kind, home, revision: stored.revision, s1, s2, s3, s4 }
    }
}

impl Member {
    pub(crate) fn new(value: Uuid, key: &Key) -> Self {
        Self { org: schema::organization(&key.uid), value, uid: key.uid.to_string() }
    }
}

impl Owner {
    pub(crate) fn new(space: &str, value: &[u8], key: &Key) -> Self {
        let org = schema::organization_of_unique(space, value);
        Self { org, space: space.to_owned(), value: value.to_vec(), kind: key.kind, uid: key.uid.to_string() }
    }
}

impl Tally {
    pub(crate) fn new(list: List, delta: &Delta) -> Self {
        Self { org: list.org, list: list.id, kind: delta.kind, direct: delta.direct, deep: delta.deep }
    }
}

impl From<&Shift> for Block {
    fn from(shift: &Shift) -> Self {
        Self {
            org: shift.list.org,
            list: shift.list.id,
            ord: shift.column.number(),
            value: shift.value.clone(),
            uid: shift.uid.clone(),
            delta: shift.delta,
        }
    }
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
