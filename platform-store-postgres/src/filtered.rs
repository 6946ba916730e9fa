//! Kept lists of filter values: the records of a place that have a value, in each order, and their number, so that a page
//! and its total do not read all matches.
//!
//! Most values have few records, which are read and sorted for each query. A list of more than 2,048 records of a filter
//! value is kept: its entries are rows of `deep`, and its length is a row of `tally`. Batches keep both exact. This
//! module begins to keep lists, which lanes consider for every 64th record that they put, and drops those that have
//! become short, in transactions of its own.

use platform_engine::store::{Key, Put};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::{
    batch::{BEGIN, COMMIT, ROLLBACK, statements::READ_BLOCKED},
    commit::Homes,
    connection::Connection,
    error::Failure,
    locks::{LOCK, Locks},
    query::statements::READ_LENGTH,
    schema::{self, List, in_place},
    shared::Shared,
};

/// A list that is longer than this is kept, until it is half as long.
pub(crate) const LONG: i64 = 2_048;
/// A list that is already longer than this when it is considered is not kept, because it would take long to write its
/// entries while no other commit to its organization can proceed.
const MOST: i64 = 100_000;

/// Counts the records with filter values ($2) in an organization, up to one more than [`LONG`].
pub(crate) const COUNT_VALUES: &str = "SELECT (SELECT count(*) FROM (SELECT FROM member m WHERE m.org = $1 AND \
     m.value = v.value LIMIT 2049) m) FROM unnest($2::uuid[]) WITH ORDINALITY v(value, place) ORDER BY v.place";
/// Counts the records with a value ($2) in a place, up to one more than [`MOST`], of which it reads twice as many.
pub(crate) const COUNT_PLACE: &str = concat!(
    "SELECT count(*) FROM (SELECT m.uid FROM member m WHERE m.org = $1 AND m.value = $2 AND m.uid >= $3 AND m.uid < $5 \
     LIMIT 200000) m WHERE ",
    in_place!("m.uid", "$3", "$4", "$6")
);
pub(crate) const KEEP: &str = "INSERT INTO tally (org, list, kind, direct, deep, blocked) VALUES ($1, $2, $3, 0, 0, true) \
     ON CONFLICT (org, list) DO NOTHING";
/// The limit keeps the planner from reading all records of the organization for each member, which looks cheap while the
/// tables have no statistics.
pub(crate) const FILL: &str = concat!(
    "INSERT INTO deep (org, list, uid, kind, home, revision, s1, s2, s3, s4) SELECT r.org, $7, r.uid, r.kind, r.org, \
     r.revision, r.s1, r.s2, r.s3, r.s4 FROM (SELECT m.uid FROM member m WHERE m.org = $1 AND m.value = $2 AND \
     m.uid >= $3 AND m.uid < $5) m CROSS JOIN LATERAL (SELECT * FROM record r WHERE r.org = $1 AND r.kind = $8 AND \
     r.uid = m.uid LIMIT 1) r WHERE ",
    in_place!("r.uid", "$3", "$4", "$6"),
    " AND EXISTS (SELECT FROM unnest(r.filter_keys, r.filter_values) h(key, value) WHERE h.key = $9 AND h.value = $10)"
);
pub(crate) const SET_LENGTH: &str = "UPDATE tally SET deep = $3 WHERE org = $1 AND list = $2";
pub(crate) const EMPTY: &str = "DELETE FROM deep d WHERE d.org = $1 AND d.list = $2";
pub(crate) const FORGET: &str = "DELETE FROM tally t WHERE t.org = $1 AND t.list = $2";

/// A record that was put, and its filter values.
#[derive(Debug)]
pub(crate) struct Sample {
    key: Key,
    filter: Vec<(String, Vec<u8>)>,
}

impl Sample {
    /// Returns a sample of a record that can be in lists of filter values.
    pub(crate) fn of(put: &Put) -> Option<Self> {
        let mut filter: Vec<_> =
            put.filter.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        filter.sort_unstable();
        filter.dedup();
        (!put.queue && !filter.is_empty()).then(|| Self { key: put.key.clone(), filter })
    }
}

/// The records of a place with a filter value.
#[derive(Debug)]
struct Candidate<'s> {
    list: List,
    kind: &'static str,
    hash: Uuid,
    top: &'s str,
    low: String,
    high: String,
    children: bool,
    key: &'s str,
    value: &'s [u8],
}

impl<'s> Candidate<'s> {
    fn of(salt: u64, sample: &'s Sample, (key, value): (&'s str, &'s [u8])) -> impl Iterator<Item = Self> {
        let kind = sample.key.kind;
        schema::filtered_places(&sample.key.uid).map(move |(top, children)| Self {
            list: schema::filtered(salt, kind, (top, children), (key, value)),
            kind,
            hash: schema::filter_value(kind, key, value),
            top,
            low: format!("{top}/"),
            // `0` is the byte after `/`.
            high: format!("{top}0"),
            children,
            key,
            value,
        })
    }

    /// Returns the parameters of [`COUNT_PLACE`], with which those of [`FILL`] begin.
    fn place(&self) -> [&(dyn ToSql + Sync); 6] {
        [&self.list.org, &self.hash, &self.top, &self.low, &self.high, &self.children]
    }
}

/// Begins to keep the lists of filter values that a record is in and that are long.
pub(crate) async fn consider(shared: &Shared, sample: &Sample) -> Result<(), Failure> {
    let connection = shared.database.attempts().writer().await?.unlimited();
    let org = schema::organization(&sample.key.uid);
    let hashes: Vec<Uuid> =
        sample.filter.iter().map(|(key, value)| schema::filter_value(sample.key.kind, key, value)).collect();
    let counts = connection.query(COUNT_VALUES, &[&org, &hashes]).await?;
    let mut candidates = Vec::new();
    for (row, (key, value)) in counts.iter().zip(&sample.filter) {
        if row.try_get::<_, i64>(0)? > LONG {
            candidates.extend(Candidate::of(shared.salt, sample, (key, value)));
        }
    }
    let (orgs, lists): (Vec<_>, Vec<_>) = candidates.iter().map(|one| (one.list.org, one.list.id)).unzip();
    if lists.is_empty() {
        return Ok(());
    }
    let mut kept = Vec::new();
    for row in connection.query(READ_BLOCKED, &[&orgs, &lists]).await? {
        kept.push(row.try_get::<_, Uuid>(1)?);
    }
    for candidate in candidates.iter().filter(|candidate| !kept.contains(&candidate.list.id)) {
        let count = connection.query(COUNT_PLACE, &candidate.place()).await?;
        let count: i64 = count.first().map_or(Ok(0), |row| row.try_get(0))?;
        if count > LONG && count <= MOST {
            within(shared, &connection, candidate.list, keep(&connection, shared.salt, candidate)).await?;
        }
    }
    Ok(())
}

async fn keep(connection: &Connection, salt: u64, candidate: &Candidate<'_>) -> Result<(), Failure> {
    let List { org, id } = candidate.list;
    if connection.execute(KEEP, &[&org, &id, &candidate.kind]).await? == 0 {
        // Another server was faster.
        return Ok(());
    }
    let mut params: Vec<&(dyn ToSql + Sync)> = candidate.place().into();
    params.extend::<[&(dyn ToSql + Sync); 4]>([&id, &candidate.kind, &candidate.key, &candidate.value]);
    let count = connection.execute(FILL, &params).await?.cast_signed();
    connection.execute(SET_LENGTH, &[&org, &id, &count]).await?;
    let any = schema::any_filtered(salt, candidate.kind, org);
    connection.execute(KEEP, &[&any.org, &any.id, &candidate.kind]).await?;
    Ok(())
}

/// Drops a kept list that has become short.
pub(crate) async fn reconsider(shared: &Shared, list: List) -> Result<(), Failure> {
    let connection = shared.database.attempts().writer().await?.unlimited();
    let drop = async {
        let length = connection.query(READ_LENGTH, &[&list.org, &list.id]).await?;
        let length: i64 = length.first().map_or(Ok(0), |row| row.try_get(0))?;
        if length < LONG / 2 {
            connection.execute(EMPTY, &[&list.org, &list.id]).await?;
            connection.execute(FORGET, &[&list.org, &list.id]).await?;
        }
        Ok(())
    };
    within(shared, &connection, list, drop).await
}

/// Runs a change in a transaction that locks the list's organization.
async fn within(
    shared: &Shared,
    connection: &Connection,
    list: List,
    change: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let locks = Locks::of(&Homes { written: [list.org].into(), ..Homes::default() }, shared.salt);
    connection.execute(BEGIN, &[]).await?;
    let result = async {
        connection.query(LOCK, &[&locks.keys, &locks.exclusive]).await?;
        change.await
    };
    let result = result.await;
    let end = if result.is_ok() { COMMIT } else { ROLLBACK };
    connection.execute(end, &[]).await?;
    result
}
