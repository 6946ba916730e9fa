//! The check of index entries, lengths, blocks, unique keys and epochs against the records.
//!
//! Each organization is read in one snapshot, so that commits of other servers do not look like inconsistencies. Sums of
//! hashes are compared instead of rows, so that memory is bounded by the number of lists.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use futures_util::{TryStreamExt, pin_mut};
use platform_engine::store::{
    MAX_SEQUENCE, StoreError,
    check::{Finding, Findings},
    place::Place,
};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;

use crate::{
    blocks,
    commit::Stored,
    connection::Connection,
    error::Failure,
    query::statements::COUNTS,
    registry,
    schema::{self, Column, List, Org, Part, Slots},
    shared::Shared,
};

/// The recommended remedy.
const RESTORE: &str = "restore a backup, or export the resources and import them into an empty database";

pub(crate) async fn check(shared: &Shared) -> Result<Vec<Finding>, StoreError> {
    let connection = shared.database.attempts().reader().await?.unlimited();
    let found = run(&connection, shared.salt).await;
    if found.is_err() {
        // It may be in a transaction, in which nobody else may read.
        connection.close();
    }
    found
}

async fn run(connection: &Connection, salt: u64) -> Result<Vec<Finding>, StoreError> {
    let mut findings = Findings::new(RESTORE);
    let orgs: Vec<Org> = column(connection, ORGANIZATIONS, &[]).await?;
    for org in orgs {
        connection.execute(BEGIN, &[]).await?;
        let checked = organization(connection, org, salt, &mut findings).await;
        connection.execute("ROLLBACK", &[]).await?;
        checked?;
    }
    if connection.is_distributed() {
        // These statements compare rows of different nodes.
        return Ok(findings.into_vec());
    }
    connection.execute(BEGIN, &[]).await?;
    let checked = everywhere(connection, &mut findings).await;
    connection.execute("ROLLBACK", &[]).await?;
    checked?;
    Ok(findings.into_vec())
}

pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
/// All organizations with any row, so that rows without a head are found.
pub(crate) const ORGANIZATIONS: &str = "SELECT org FROM head UNION SELECT org FROM record UNION SELECT org FROM deep \
     UNION SELECT org FROM tally UNION SELECT org FROM epoch UNION SELECT org FROM member";

async fn column<T>(connection: &Connection, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<T>, Failure>
where
    T: for<'r> tokio_postgres::types::FromSql<'r>,
{
    let rows = connection.query(sql, params).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Calls a function with each row of a result, which need not fit into memory.
async fn each(
    connection: &Connection,
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
    mut run: impl FnMut(&Row) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let statement = connection.prepare(sql).await?;
    let rows = connection.client()?.query_raw(&statement, params.iter().copied()).await?;
    pin_mut!(rows);
    while let Some(row) = rows.try_next().await? {
        run(&row)?;
    }
    Ok(())
}

/// A sum of the hashes of rows, and their number. It does not depend on their order.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Sum(u64, i64);

impl Sum {
    fn add(&mut self, parts: &[&[u8]]) {
        let mut hasher = Xxh3::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        self.0 = self.0.wrapping_add(hasher.digest());
        self.1 += 1;
    }
}

fn sort_bytes(sort: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in sort {
        bytes.push(u8::from(value.is_some()));
        let value = value.as_deref().unwrap_or_default();
        bytes.extend((value.len() as u64).to_le_bytes());
        bytes.extend(value);
    }
    bytes
}

const RECORDS: &str = "SELECT r.kind, r.uid, r.revision, r.queue, r.s1, r.s2, r.s3, r.s4, r.filter_keys, \
     r.filter_values, r.unique_spaces, r.unique_values, r.list FROM record r WHERE r.org = $1";
const DEEP: &str = "SELECT d.list, d.uid, d.home, d.revision, d.s1, d.s2, d.s3, d.s4 FROM deep d WHERE d.org = $1";
const MEMBERS: &str = "SELECT m.value, m.uid FROM member m WHERE m.org = $1";
const TALLIES: &str = "SELECT t.list, t.kind, t.direct, t.deep, t.blocked FROM tally t WHERE t.org = $1";
const BLOCKED: &str = "SELECT t.list FROM tally t WHERE t.org = $1 AND t.blocked";
const HEAD: &str = "SELECT h.sequence FROM head h WHERE h.org = $1";
const EPOCHS: &str = "SELECT e.name, e.value FROM epoch e WHERE e.org = $1";
const LOST_BLOCKS: &str = "SELECT count(*) FROM block b WHERE b.org = $1 AND NOT EXISTS (SELECT FROM tally t \
     WHERE t.org = $1 AND t.list = b.list AND t.blocked)";

/// The statements about one organization, for tests.
#[cfg(feature = "testing")]
pub(crate) const STATEMENTS: [&str; 8] = [BLOCKED, RECORDS, DEEP, MEMBERS, TALLIES, HEAD, EPOCHS, LOST_BLOCKS];

/// The rows of the other tables by the records of an organization.
#[derive(Debug, Default)]
struct Expected {
    direct: HashMap<Uuid, i64>,
    deep: HashMap<Uuid, Sum>,
    members: Sum,
    greatest: i64,
    /// The uids of lists, for their blocks.
    tops: HashMap<Uuid, String>,
    /// The lists with blocks or of filter values that are kept, and which of them are of filter values.
    blocked: HashSet<Uuid>,
    filtered: HashSet<Uuid>,
    salt: u64,
}

impl Expected {
    /// Adds the entry of a record in `deep`.
    fn add(&mut self, list: List, home: Org, uid: &str, stored: &Stored) {
        let (home, revision) = (home.to_le_bytes(), stored.revision.to_le_bytes());
        let parts: [&[u8]; 4] = [uid.as_bytes(), &home, &revision, &sort_bytes(&stored.sort)];
        self.deep.entry(list.id).or_default().add(&parts);
    }
}

async fn organization(connection: &Connection, org: Org, salt: u64, findings: &mut Findings) -> Result<(), Failure> {
    let name = |what: &str| format!("{what} of the organization with the hash {org}");
    let slots = registry::load(connection).await?;
    let blocked: Vec<Uuid> = column(connection, BLOCKED, &[&org]).await?;
    let mut expected = Expected { salt, blocked: blocked.into_iter().collect(), ..Expected::default() };
    let mut wrong = Vec::new();
    each(connection, RECORDS, &[&org], |row| record(row, org, &slots, &mut expected, &mut wrong)).await?;
    wrong.into_iter().for_each(|what| findings.add(what));

    let mut found: HashMap<Uuid, Sum> = HashMap::new();
    let is_installation = org == schema::installation();
    each(connection, DEEP, &[&org], |row| {
        let (list, uid, home): (Uuid, &str, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let sort: [Option<Vec<u8>>; 4] = [row.try_get(4)?, row.try_get(5)?, row.try_get(6)?, row.try_get(7)?];
        let revision: i64 = row.try_get(3)?;
        let parts: [&[u8]; 4] = [uid.as_bytes(), &home.to_le_bytes(), &revision.to_le_bytes(), &sort_bytes(&sort)];
        found.entry(list).or_default().add(&parts);
        Ok(())
    })
    .await?;
    let lists: BTreeSet<Uuid> = found.keys().chain(expected.deep.keys()).copied().collect();
    for list in lists {
        let sums = [expected.deep.get(&list), found.get(&list)].map(|sum| sum.copied().unwrap_or_default());
        // The list of roots belongs to all organizations and is compared with all of them.
        findings.expect(is_installation || sums[0] == sums[1], || {
            format!(
                "list {list} has {} entries instead of {}, or others, {}",
                sums[1].1,
                sums[0].1,
                name("in the lists")
            )
        });
    }
    let mut members = Sum::default();
    each(connection, MEMBERS, &[&org], |row| {
        let (value, uid): (Uuid, &str) = (row.try_get(0)?, row.try_get(1)?);
        members.add(&[value.as_bytes(), uid.as_bytes()]);
        Ok(())
    })
    .await?;
    findings.expect(members == expected.members, || {
        format!("{} rows instead of {}, or others, {}", members.1, expected.members.1, name("in the filter values"))
    });

    let mut direct = expected.direct.clone();
    for row in connection.query(TALLIES, &[&org]).await? {
        let (list, kind): (Uuid, String) = (row.try_get(0)?, row.try_get(1)?);
        let (length, deep): (i64, i64) = (row.try_get(2)?, row.try_get(3)?);
        let counted = [direct.remove(&list).unwrap_or(0), found.remove(&list).map_or(0, |sum| sum.1)];
        findings.expect([length, deep] == counted, || {
            format!(
                "list {list} has {counted:?} records, but its length is {:?}, {}",
                [length, deep],
                name("in the lengths")
            )
        });
        // Lists of filter values have no blocks, and none are needed once a list is empty.
        let has_blocks = !expected.filtered.contains(&list) && [length, deep] != [0, 0];
        if row.try_get(4)? && has_blocks {
            let top = expected.tops.get(&list).map_or("", String::as_str);
            self::blocks(connection, List { org, id: list }, (&kind, top), &slots, findings).await?;
        }
    }
    for list in direct.keys().chain(found.keys()) {
        findings.add(format!("list {list} has records, but no length, {}", name("in the lengths")));
    }
    let lost: Vec<i64> = column(connection, LOST_BLOCKS, &[&org]).await?;
    findings.expect(lost == [0], || name("there are blocks of lists without blocks, in the blocks"));

    let head: Vec<i64> = column(connection, HEAD, &[&org]).await?;
    let head = head.first().copied().unwrap_or(0);
    findings.expect(head.cast_unsigned() <= MAX_SEQUENCE, || {
        format!(
            "the last sequence {} is greater than that of any store, {}",
            head.cast_unsigned(),
            name("in the heads")
        )
    });
    findings.expect(expected.greatest <= head, || {
        format!(
            "a record has revision {}, but the last sequence is {head}, {}",
            expected.greatest,
            name("in the records")
        )
    });
    for row in connection.query(EPOCHS, &[&org]).await? {
        let (epoch, value): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        findings
            .expect(value <= head, || format!("epoch {epoch} has the value {value}, but the last sequence is {head}"));
        let uid = epoch.split_once('/').map_or("", |(_, uid)| uid);
        findings.expect(schema::organization(uid) == org, || format!("epoch {epoch} is in another organization"));
    }
    Ok(())
}

/// Adds what a record makes of the other tables.
fn record(row: &Row, org: Org, slots: &Slots, expected: &mut Expected, wrong: &mut Vec<String>) -> Result<(), Failure> {
    let (kind, uid): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
    let stored: Stored = crate::batch::stored(crate::joined::Found::whole(row))?;
    // The number of findings is bounded, and so are these.
    let mut wrong = |what: &str| {
        if wrong.len() < 100 {
            wrong.push(format!("{kind} {uid} {what}"));
        }
    };
    if schema::organization(uid) != org || row.try_get::<_, Uuid>(12)? != schema::own_list(kind, uid) {
        wrong("is in another organization or list");
    }
    if stored.sort.iter().filter(|value| value.is_some()).count() != slots.used(kind) {
        wrong("lacks a sort key, or has one too many");
    }
    expected.greatest = expected.greatest.max(stored.revision);
    if !stored.queue && expected.blocked.contains(&schema::any_filtered(expected.salt, kind, org).id) {
        for list in schema::filtered_lists(expected.salt, kind, uid, &stored.filter) {
            if expected.blocked.contains(&list.id) {
                expected.filtered.insert(list.id);
                expected.add(list, org, uid, &stored);
            }
        }
    }
    let tops = Place::of(uid, stored.queue).filter(|place| *place != Place::All);
    for ((list, part), place) in schema::lists(kind, uid, stored.queue).zip(tops) {
        if let Place::At(top) = place {
            expected.tops.entry(list.id).or_insert_with(|| top.to_owned());
        }
        match part {
            Part::Direct => *expected.direct.entry(list.id).or_default() += 1,
            Part::Deep if list.org == org => expected.add(list, org, uid, &stored),
            Part::Deep | Part::Top => {}
        }
    }
    let values: BTreeSet<Uuid> =
        stored.filter.iter().map(|(key, value)| schema::filter_value(kind, key, value)).collect();
    values.iter().for_each(|value| expected.members.add(&[value.as_bytes(), uid.as_bytes()]));
    Ok(())
}

/// Compares the counts of blocks with the records between their positions, and the levels with each other.
async fn blocks(
    connection: &Connection,
    list: List,
    (kind, top): (&str, &str),
    slots: &Slots,
    findings: &mut Findings,
) -> Result<(), Failure> {
    for column in Column::INDEXED.into_iter().take(2 + slots.used(kind)) {
        let (lower, upper) =
            (blocks::read(connection, list, column, 1).await?, blocks::read(connection, list, column, 2).await?);
        let Some(statement) = COUNTS.get(&column) else { continue };
        let mut counted = BTreeMap::new();
        for (index, block) in lower.iter().enumerate() {
            // The end of the last block is after all positions.
            let end = lower.get(index + 1);
            let (low, high) = (
                blocks::value(column, &block.low),
                end.map_or_else(|| greatest(column), |end| blocks::value(column, &end.low)),
            );
            let end_uid = end.map_or_else(|| char::MAX.to_string().repeat(256), |end| end.uid.clone());
            let params: [&(dyn ToSql + Sync); 8] =
                [&list.org, &list.id, &kind, &*low, &block.uid, &*high, &end_uid, &top];
            let count: Vec<i64> = self::column(connection, statement, &params).await?;
            let count = count.first().copied().unwrap_or(0);
            findings.expect(count == block.n, || {
                format!(
                    "a block of list {} in order {} counts {} records instead of {count}",
                    list.id,
                    column.number(),
                    block.n
                )
            });
            counted.insert((block.low.clone(), block.uid.clone()), block.n);
        }
        for (index, block) in upper.iter().enumerate() {
            let start = (block.low.clone(), block.uid.clone());
            let end = upper.get(index + 1).map(|end| (end.low.clone(), end.uid.clone()));
            let sum: i64 = counted
                .range(start.clone()..)
                .take_while(|(position, _)| end.as_ref().is_none_or(|end| *position < end))
                .map(|(_, n)| n)
                .sum();
            findings.expect(counted.contains_key(&start) && sum == block.n, || {
                format!("the levels of the blocks of list {} in order {} differ", list.id, column.number())
            });
        }
        // A list that has just become empty keeps its blocks until the lane has dropped them.
        let begins =
            |blocks: &[blocks::Block]| blocks.first().is_some_and(|block| block.low.is_empty() && block.uid.is_empty());
        findings.expect(begins(&lower) && begins(&upper), || {
            format!("the blocks of list {} in order {} do not begin with its first record", list.id, column.number())
        });
        let (lower, upper): (i64, i64) =
            (lower.iter().map(|block| block.n).sum(), upper.iter().map(|block| block.n).sum());
        findings.expect(lower == upper, || {
            format!("the blocks of list {} in order {} count {lower} and {upper} records", list.id, column.number())
        });
    }
    Ok(())
}

fn greatest(column: Column) -> Box<dyn ToSql + Sync + Send> {
    match column {
        Column::Sequence => Box::new(i64::MAX),
        _ => Box::new(vec![u8::MAX; 1_032]),
    }
}

const LOST_ROOTS: &str = "SELECT r.kind, r.uid FROM record r WHERE strpos(r.uid, '/') = 0 AND NOT EXISTS (SELECT FROM \
     deep d WHERE d.org = $1 AND d.kind = r.kind AND d.uid = r.uid AND d.home = r.org AND d.list = r.list AND \
     d.revision = r.revision AND (d.s1, d.s2, d.s3, d.s4) IS NOT DISTINCT FROM (r.s1, r.s2, r.s3, r.s4)) LIMIT 10";
const EXTRA_ROOTS: &str = "SELECT d.kind, d.uid FROM deep d WHERE d.org = $1 AND NOT EXISTS (SELECT FROM record r \
     WHERE r.org = d.home AND r.kind = d.kind AND r.uid = d.uid) LIMIT 10";
const OWNERS: &str = "SELECT o.org, o.space, o.value, o.kind, o.uid, EXISTS (SELECT FROM record r CROSS JOIN LATERAL \
     unnest(r.unique_spaces, r.unique_values) u(space, value) WHERE r.kind = o.kind AND r.uid = o.uid AND \
     u.space = o.space AND u.value = o.value) FROM owner o";
const OF_OWNERS: &str = "SELECT (SELECT count(*) FROM (SELECT DISTINCT r.kind, r.uid, u.space, u.value FROM record r \
     CROSS JOIN LATERAL unnest(r.unique_spaces, r.unique_values) u(space, value)) x)";

/// Checks what belongs to several organizations: the list of roots and unique keys.
async fn everywhere(connection: &Connection, findings: &mut Findings) -> Result<(), Failure> {
    for (sql, what) in
        [(LOST_ROOTS, "lacks its entry in the list of roots"), (EXTRA_ROOTS, "is in a list, but not stored")]
    {
        for row in connection.query(sql, &[&schema::installation()]).await? {
            let (kind, uid): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
            findings.add(format!("{kind} {uid} {what}"));
        }
    }
    let mut owned = 0;
    let mut wrong = Vec::new();
    each(connection, OWNERS, &[], |row| {
        owned += 1;
        let (org, space, value): (i64, &str, &[u8]) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let (kind, uid, has): (&str, &str, bool) = (row.try_get(3)?, row.try_get(4)?, row.try_get(5)?);
        if wrong.len() < 100 && (!has || org != schema::organization_of_unique(space, value)) {
            wrong.push(format!("a unique key of {space} belongs to {kind} {uid}, which does not have it"));
        }
        Ok(())
    })
    .await?;
    wrong.into_iter().for_each(|what| findings.add(what));
    let keys: Vec<i64> = column(connection, OF_OWNERS, &[]).await?;
    findings.expect(keys == [owned], || format!("records have {keys:?} unique keys, but {owned} are stored"));
    Ok(())
}
