//! Several statements of a batch as one. A statement costs the server and the client as much as several rows, so that
//! small batches would cost twice as much with one statement for each table.
//!
//! A database with Citus gets the statements one by one: each of them is about one organization.

use std::sync::OnceLock;

use tokio_postgres::{Row, types::FromSql};

use crate::{
    batch::statements::{PUT_BATCH, READ_BLOCKED, READ_EPOCHS, READ_HEADS, READ_OWNERS, READ_RECORDS, READ_SLOTS},
    error::{Failure, corrupt},
    rows::{CREATE_RECORDS, Call, PUT_DEEP, PUT_EPOCHS, PUT_HEADS, PUT_MEMBERS, PUT_OWNERS, PUT_RECORDS, PUT_TALLIES},
    split::number,
};

/// The statements that read what most batches need, with the columns of [`COLUMNS`] that their own columns become.
const READS: [(&str, &[usize]); 6] = [
    (READ_HEADS, &[0, 4]),
    (READ_EPOCHS, &[0, 4]),
    (READ_RECORDS, &[0, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14]),
    (READ_OWNERS, &[0, 2, 3]),
    (READ_BLOCKED, &[0, 1]),
    (READ_SLOTS, &[2, 3, 5]),
];

/// The types of the columns that the rows of all [`READS`] have, after the number of the statement.
const COLUMNS: [&str; 15] = [
    "int8", "uuid", "text", "text", "int8", "int4", "bool", "bytea", "bytea", "bytea", "bytea", "text[]", "bytea[]",
    "text[]", "bytea[]",
];

/// The statements that insert rows, each into another table or with other keys, so that their order does not matter. The
/// rows that the last one returns are those of the joined statement.
const WRITES: [&str; 9] =
    [PUT_BATCH, CREATE_RECORDS, PUT_RECORDS, PUT_DEEP, PUT_MEMBERS, PUT_OWNERS, PUT_EPOCHS, PUT_HEADS, PUT_TALLIES];

/// The joined statements that were used, by the set of the statements in them.
static JOINED_READS: [OnceLock<String>; 1 << READS.len()] = [const { OnceLock::new() }; 1 << READS.len()];
static JOINED_WRITES: [OnceLock<String>; 1 << WRITES.len()] = [const { OnceLock::new() }; 1 << WRITES.len()];

/// A row, with the columns of one of the statements that are joined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'r> {
    row: &'r Row,
    /// The columns of the row that are those of the statement; `None` for all.
    columns: Option<&'static [usize]>,
}

impl<'r> Found<'r> {
    /// Returns a row of a statement that was sent alone.
    pub(crate) const fn whole(row: &'r Row) -> Self {
        Self { row, columns: None }
    }

    pub(crate) fn try_get<T: FromSql<'r>>(&self, column: usize) -> Result<T, Failure> {
        let column = match self.columns {
            None => column,
            // The first column has the number of the statement.
            Some(columns) => *columns.get(column).ok_or_else(|| corrupt("a column is missing"))? + 1,
        };
        Ok(self.row.try_get(column)?)
    }
}

/// Returns calls in which all of [`READS`] are one, in the place of the last.
pub(crate) fn join_reads(calls: Vec<Call>) -> Vec<Call> {
    let place = |sql: &str| READS.iter().position(|(read, _)| *read == sql);
    join(calls, place, |set| JOINED_READS.get(set).map(|joined| joined.get_or_init(|| reads(set)).as_str()))
}

/// Returns calls in which all of [`WRITES`] are one, in the place of the last.
pub(crate) fn join_writes(calls: Vec<Call>) -> Vec<Call> {
    let place = |sql: &str| WRITES.iter().position(|write| *write == sql);
    join(calls, place, |set| JOINED_WRITES.get(set).map(|joined| joined.get_or_init(|| writes(set)).as_str()))
}

/// Joins the calls that have a place. Those of many rows, of which a statement has several calls, are left as they are.
fn join(
    calls: Vec<Call>,
    place: impl Fn(&str) -> Option<usize>,
    joined: impl Fn(usize) -> Option<&'static str>,
) -> Vec<Call> {
    let mut places: Vec<usize> = calls.iter().filter_map(|(sql, _)| place(sql)).collect();
    let count = places.len();
    places.sort_unstable();
    places.dedup();
    let set = places.iter().fold(0, |set, place| set | 1 << place);
    let Some(sql) = joined(set).filter(|_| places.len() == count && count > 1) else { return calls };
    let (mut parts, mut others) = (Vec::with_capacity(count), Vec::new());
    let mut at = 0;
    for (sql, params) in calls {
        match place(sql) {
            Some(place) => {
                at = others.len();
                parts.push((place, params));
            }
            None => others.push((sql, params)),
        }
    }
    parts.sort_unstable_by_key(|(place, _)| *place);
    others.insert(at, (sql, parts.into_iter().flat_map(|(_, params)| params).collect()));
    others
}

/// Returns the rows of one of [`READS`] among those of the calls that were made, joined or not.
pub(crate) fn rows_of<'r>(sql: &str, calls: &[Call], results: &'r [Vec<Row>]) -> Result<Vec<Found<'r>>, Failure> {
    if let Some(alone) = calls.iter().position(|(call, _)| *call == sql) {
        return Ok(results.get(alone).into_iter().flatten().map(Found::whole).collect());
    }
    let number = READS.iter().position(|(read, _)| *read == sql);
    let Some((number, (_, columns))) = number.and_then(|number| Some((number, READS.get(number)?))) else {
        return Ok(Vec::new());
    };
    let joined = calls.iter().position(|(call, _)| call.starts_with(JOINED));
    let mut rows = Vec::new();
    for row in joined.and_then(|joined| results.get(joined)).into_iter().flatten() {
        if usize::try_from(row.try_get::<_, i32>(0)?).is_ok_and(|of| of == number) {
            rows.push(Found { row, columns: Some(columns) });
        }
    }
    Ok(rows)
}

/// The beginning of joined reads, and of no other statement of a batch.
const JOINED: &str = "(SELECT ";

fn members<T: Copy, const N: usize>(of: [T; N], set: usize) -> impl Iterator<Item = (usize, T)> {
    of.into_iter().enumerate().filter(move |(place, _)| set & (1 << place) != 0)
}

fn reads(set: usize) -> String {
    let mut last = 0;
    let part = |(number, (sql, columns)): (usize, (&str, &[usize]))| {
        let own: Vec<String> = (0..columns.len()).map(|column| format!("c{column}")).collect();
        let all = COLUMNS.iter().enumerate().map(|(at, of)| match columns.iter().position(|column| *column == at) {
            Some(column) => format!("q.c{column}"),
            None => format!("NULL::{of}"),
        });
        let all: Vec<String> = all.collect();
        let (sql, params) = shifted(sql, last);
        last += params;
        format!("(SELECT {number}, {} FROM ({sql}) q({}))", all.join(", "), own.join(", "))
    };
    members(READS, set).map(part).collect::<Vec<_>>().join(" UNION ALL ")
}

fn writes(set: usize) -> String {
    let mut last = 0;
    let part = |(number, sql): (usize, &str)| {
        let (sql, params) = shifted(sql, last);
        last += params;
        (number, sql)
    };
    let mut parts: Vec<(usize, String)> = members(WRITES, set).map(part).collect();
    let (_, main) = parts.pop().unwrap_or_default();
    let others: Vec<String> = parts.into_iter().map(|(number, sql)| format!("w{number} AS ({sql})")).collect();
    format!("WITH {} {main}", others.join(", "))
}

/// Returns a statement whose parameters have higher numbers, and how many it has.
fn shifted(sql: &str, by: usize) -> (String, usize) {
    let mut parts = sql.split('$');
    let mut shifted = parts.next().unwrap_or_default().to_owned();
    let mut last = 0;
    for part in parts {
        match number(part) {
            Some((number, rest)) => {
                last = last.max(number);
                shifted.push_str(&format!("${}{rest}", number + by));
            }
            // Not a parameter.
            None => shifted.extend(["$", part]),
        }
    }
    (shifted, last)
}

/// Returns all joined reads, and the statement that joins all writes, for tests of their plans.
#[cfg(feature = "testing")]
pub(crate) fn all() -> Vec<(String, String)> {
    let reads = (1..1 << READS.len()).map(|set| (format!("joined reads {set:b}"), reads(set)));
    reads.chain([("joined writes".to_owned(), writes((1 << WRITES.len()) - 1))]).collect()
}
