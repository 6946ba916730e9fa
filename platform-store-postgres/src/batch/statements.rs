//! The statements that a batch reads with, and those of its own row.
//!
//! A subquery with `OFFSET 0` is planned by itself, so that it looks up rows for each row of the function or the subquery
//! before it. Otherwise the planner may join in another order while the tables have few rows or no statistics.

pub(crate) const READ_HEADS: &str = "SELECT h.org, h.sequence FROM head h WHERE h.org = ANY($1::int8[])";
/// Locks the heads of organizations that are written to, in a database with Citus: waits for a commit of several nodes
/// that one of them has not ended, because it failed, while the advisory locks are already released.
pub(crate) const LOCK_HEADS: &str = "SELECT h.sequence FROM head h WHERE h.org = ANY($1::int8[]) FOR NO KEY UPDATE";
pub(crate) const READ_EPOCHS: &str = "SELECT k.place, e.value FROM unnest($1::int8[], $2::text[]) WITH ORDINALITY \
     k(org, name, place) CROSS JOIN LATERAL (SELECT e.value FROM epoch e WHERE e.org = k.org AND e.name = k.name OFFSET 0) e";

macro_rules! stored {
    () => {
        "r.uid, r.revision, r.queue, r.s1, r.s2, r.s3, r.s4, r.filter_keys, r.filter_values, r.unique_spaces, \
         r.unique_values FROM "
    };
}

pub(crate) const READ_RECORDS: &str = concat!(
    "SELECT k.place, ",
    stored!(),
    "unnest($1::int8[], $2::text[], $3::text[]) WITH ORDINALITY k(org, kind, uid, place) CROSS JOIN LATERAL \
     (SELECT * FROM record r WHERE r.org = k.org AND r.kind = k.kind AND r.uid = k.uid OFFSET 0) r"
);
/// Reads at most [`MOST_BELOW`] records of each range.
pub(crate) const READ_BELOW: &str = concat!(
    "SELECT k.place, ",
    stored!(),
    "unnest($1::int8[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY k(org, kind, low, high, place) \
     CROSS JOIN LATERAL (SELECT * FROM record r WHERE r.org = k.org AND r.kind = k.kind AND r.uid > k.low AND \
     r.uid < k.high ORDER BY r.uid LIMIT 1000) r"
);
pub(crate) const MOST_BELOW: usize = 1_000;
pub(crate) const READ_WITH: &str = concat!(
    "SELECT k.place, ",
    stored!(),
    "unnest($1::text[], $2::uuid[]) WITH ORDINALITY k(kind, value, place) CROSS JOIN LATERAL \
     (SELECT m.org, m.uid FROM member m WHERE m.value = k.value OFFSET 0) m CROSS JOIN LATERAL \
     (SELECT * FROM record r WHERE r.org = m.org AND r.kind = k.kind AND r.uid = m.uid OFFSET 0) r"
);
/// As [`READ_WITH`], on several nodes, where a subquery that is planned by itself cannot depend on another one.
pub(crate) const READ_WITH_EVERYWHERE: &str = concat!(
    "SELECT k.place, ",
    stored!(),
    "unnest($1::text[], $2::uuid[]) WITH ORDINALITY k(kind, value, place) JOIN member m ON m.value = k.value \
     JOIN record r ON r.org = m.org AND r.kind = k.kind AND r.uid = m.uid"
);
pub(crate) const FIND_BELOW: &str = "SELECT k.place FROM unnest($1::int8[], $2::text[], $3::text[], $4::text[]) \
     WITH ORDINALITY k(org, kind, low, high, place) WHERE EXISTS (SELECT FROM record r WHERE r.org = k.org AND \
     r.kind = k.kind AND r.uid > k.low AND r.uid < k.high)";
/// The values themselves are compared too: others can have the same hash.
pub(crate) const FIND_WITH: &str = "SELECT k.place FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[]) \
     WITH ORDINALITY k(hash, kind, key, value, place) WHERE EXISTS (SELECT FROM (SELECT m.org, m.uid FROM member m \
     WHERE m.value = k.hash OFFSET 0) m CROSS JOIN LATERAL (SELECT FROM record r WHERE r.org = m.org AND \
     r.kind = k.kind AND r.uid = m.uid AND EXISTS (SELECT FROM unnest(r.filter_keys, r.filter_values) h(key, value) \
     WHERE h.key = k.key AND h.value = k.value) OFFSET 0) r)";
/// As [`FIND_WITH`], on several nodes, where a subquery cannot depend on a function.
pub(crate) const FIND_WITH_EVERYWHERE: &str = "SELECT DISTINCT k.place FROM unnest($1::uuid[], $2::text[], $3::text[], \
     $4::bytea[]) WITH ORDINALITY k(hash, kind, key, value, place) JOIN member m ON m.value = k.hash JOIN record r ON \
     r.org = m.org AND r.kind = k.kind AND r.uid = m.uid WHERE EXISTS (SELECT FROM \
     unnest(r.filter_keys, r.filter_values) h(key, value) WHERE h.key = k.key AND h.value = k.value)";
pub(crate) const READ_OWNERS: &str = "SELECT k.place, o.kind, o.uid FROM unnest($1::int8[], $2::text[], $3::bytea[]) \
     WITH ORDINALITY k(org, space, value, place) CROSS JOIN LATERAL (SELECT o.kind, o.uid FROM owner o \
     WHERE o.org = k.org AND o.space = k.space AND o.value = k.value OFFSET 0) o";
pub(crate) const READ_BLOCKED: &str = "SELECT t.org, t.list FROM unnest($1::int8[], $2::uuid[]) k(org, list) \
     CROSS JOIN LATERAL (SELECT t.org, t.list FROM tally t WHERE t.org = k.org AND t.list = k.list AND t.blocked OFFSET 0) t";
/// Returns the lengths of lists, without the records at their uids.
pub(crate) const READ_LENGTHS: &str = "SELECT k.place, t.length FROM unnest($1::int8[], $2::uuid[]) WITH ORDINALITY \
     k(org, list, place) CROSS JOIN LATERAL (SELECT t.direct + t.deep AS length FROM tally t WHERE t.org = k.org AND \
     t.list = k.list OFFSET 0) t";
pub(crate) const READ_SLOTS: &str = "SELECT s.kind, s.key, s.slot FROM slot s WHERE s.kind = ANY($1::text[]) \
     ORDER BY s.kind, s.slot, s.key";
/// The time is that of the database, since the clocks of its clients differ.
pub(crate) const PUT_BATCH: &str =
    "INSERT INTO batch (org, id, at) VALUES ($1, $2, (extract(epoch FROM now()) * 1000000)::int8)";
/// Returns the time of a batch; 0 if it has no row, which this statement then inserts. So it waits for a transaction that
/// has inserted the row and not ended, as one that is prepared on a node of Citus. An existing row is updated, so that the
/// transaction of this statement waits for the synchronous standbys: the batch may be durable on the primary alone.
pub(crate) const FIND_BATCH: &str = "INSERT INTO batch AS b (org, id, at) VALUES ($1, $2, 0) \
     ON CONFLICT (org, id) DO UPDATE SET at = b.at RETURNING b.at";
