//! Statements about rows of several organizations, and the statements about one organization each that a database with
//! Citus gets instead.
//!
//! Citus runs a statement on one node if every table in it is compared with one value of the distribution column. A
//! statement *of rows* compares it with the columns of arrays: its first parameter has the organization of each row, as
//! `unnest($1::int8[], …) k(org, …)`, or is a set of organizations, `ANY($1::int8[])`. The statements about one
//! organization are derived from it, so that there is one text of both.

use std::{borrow::Cow, collections::BTreeMap, error::Error};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::{
    error::{Failure, corrupt},
    schema::Org,
};

/// A parameter of a statement.
#[derive(Debug)]
pub(crate) enum Value<'p> {
    Of(&'p (dyn ToSql + Sync)),
    Org(Org),
    /// A value in the binary format; `None` for null.
    Raw(Option<Bytes>),
}

impl ToSql for Value<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Of(value) => value.to_sql_checked(ty, out),
            Self::Org(org) => org.to_sql_checked(ty, out),
            Self::Raw(None) => Ok(IsNull::Yes),
            Self::Raw(Some(bytes)) => {
                out.put_slice(bytes);
                Ok(IsNull::No)
            }
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A statement and its parameters.
#[derive(Debug)]
pub(crate) struct Part<'p> {
    pub(crate) sql: Cow<'p, str>,
    pub(crate) params: Vec<Value<'p>>,
}

impl<'p> Part<'p> {
    /// Returns a statement as it is.
    pub(crate) fn whole(sql: &'p str, params: &[&'p (dyn ToSql + Sync)]) -> Self {
        Self { sql: sql.into(), params: params.iter().map(|param| Value::Of(*param)).collect() }
    }
}

/// Returns references to parameters.
pub(crate) fn refs<'v>(params: &'v [Value<'_>]) -> Vec<&'v (dyn ToSql + Sync)> {
    params.iter().map(|param| param as _).collect()
}

/// The greatest numbers of rows of an `INSERT`: each number has a statement of its own.
pub(crate) const SIZES: [usize; 3] = [64, 8, 1];

/// Returns the statements about one organization each that do together what a statement does: those of its rows, or
/// else the statement itself.
pub(crate) fn parts<'p>(sql: &'p str, params: &[&'p (dyn ToSql + Sync)]) -> Result<Vec<Part<'p>>, Failure> {
    let Some(arrays) = arrays(sql) else { return Ok(vec![Part::whole(sql, params)]) };
    let mut columns = Vec::with_capacity(arrays.len());
    for (number, of) in &arrays {
        let param = number.checked_sub(1).and_then(|index| params.get(index));
        columns.push(Column::of(*param.ok_or_else(|| corrupt("a parameter is missing"))?, of)?);
    }
    let mut by_org: BTreeMap<Org, Vec<usize>> = BTreeMap::new();
    for (row, org) in columns.first().into_iter().flat_map(|orgs| &orgs.values).enumerate() {
        let org = org.as_deref().and_then(|org| org.try_into().ok()).map(Org::from_be_bytes);
        by_org.entry(org.ok_or_else(|| corrupt("a row has no organization"))?).or_default().push(row);
    }
    let mut parts = Vec::new();
    for (org, rows) in by_org {
        if sql.starts_with("INSERT") {
            insert_rows(sql, org, &rows, columns.get(1..).unwrap_or_default(), &mut parts);
            continue;
        }
        if sql.contains(ANY) {
            parts.push(Part { sql: local(sql).sql.into(), params: vec![Value::Org(org)] });
            continue;
        }
        let mut own: Vec<Value<'p>> = params.iter().map(|param| Value::Of(*param)).collect();
        for ((number, _), column) in arrays.iter().zip(&columns) {
            if let Some(param) = number.checked_sub(1).and_then(|index| own.get_mut(index)) {
                *param = Value::Raw(Some(column.encode(rows.iter().copied())));
            }
        }
        own.push(Value::Org(org));
        let (sql, has_places) = local_of_rows(sql);
        if has_places {
            let places = rows.iter().map(|row| Some(Bytes::copy_from_slice(&(*row as i64 + 1).to_be_bytes())));
            let places = Column { of: Type::INT8, values: places.collect() };
            own.push(Value::Raw(Some(places.encode(0..rows.len()))));
        }
        parts.push(Part { sql: sql.into(), params: own });
    }
    Ok(parts)
}

fn insert_rows(sql: &str, org: Org, rows: &[usize], columns: &[Column], parts: &mut Vec<Part<'_>>) {
    let mut left = rows;
    for size in SIZES {
        while let Some((some, rest)) = left.split_at_checked(size) {
            let mut params = vec![Value::Org(org)];
            for row in some {
                params.extend(columns.iter().map(|column| Value::Raw(column.values.get(*row).cloned().flatten())));
            }
            parts.push(Part { sql: insert(sql, size).into(), params });
            left = rest;
        }
    }
}

/// An array, as its elements in the binary format.
#[derive(Debug)]
struct Column {
    of: Type,
    values: Vec<Option<Bytes>>,
}

impl Column {
    /// Returns the elements of a parameter. The format of an array is: the number of dimensions, whether there are nulls,
    /// and the type; for each dimension its length and lower bound; for each element its length, or -1, and its bytes.
    fn of(param: &(dyn ToSql + Sync), of: &Type) -> Result<Self, Failure> {
        let wrong = || Failure::from(corrupt("a parameter is not an array"));
        let array = match *of {
            Type::INT8 => Type::INT8_ARRAY,
            Type::INT4 => Type::INT4_ARRAY,
            Type::BOOL => Type::BOOL_ARRAY,
            Type::UUID => Type::UUID_ARRAY,
            Type::BYTEA => Type::BYTEA_ARRAY,
            Type::TEXT => Type::TEXT_ARRAY,
            _ => return Err(corrupt("a parameter has a type that no column has").into()),
        };
        let mut bytes = BytesMut::new();
        param.to_sql_checked(&array, &mut bytes).map_err(|error| corrupt(error.to_string()))?;
        let mut bytes = bytes.freeze();
        let dimensions = bytes.try_get_i32().map_err(|_| wrong())?;
        let mut values = Vec::new();
        if dimensions > 0 {
            let header = [(); 4].map(|()| bytes.try_get_i32().unwrap_or(0));
            let [_, _, count, _] = header;
            for _ in 0..count {
                let length = bytes.try_get_i32().map_err(|_| wrong())?;
                values.push(match usize::try_from(length) {
                    Ok(length) if length <= bytes.len() => Some(bytes.split_to(length)),
                    Ok(_) => return Err(wrong()),
                    Err(_) => None,
                });
            }
        }
        Ok(Self { of: of.clone(), values })
    }

    /// Returns the array of some of the elements.
    fn encode(&self, rows: impl ExactSizeIterator<Item = usize>) -> Bytes {
        let length = |length: usize| i32::try_from(length).unwrap_or(i32::MAX);
        let mut bytes = BytesMut::new();
        bytes.put_i32(1);
        bytes.put_i32(1);
        bytes.put_u32(self.of.oid());
        bytes.put_i32(length(rows.len()));
        bytes.put_i32(1);
        for row in rows {
            match self.values.get(row).and_then(Option::as_ref) {
                None => bytes.put_i32(-1),
                Some(value) => {
                    bytes.put_i32(length(value.len()));
                    bytes.put_slice(value);
                }
            }
        }
        bytes.freeze()
    }
}

const ROWS: &str = "unnest($1::int8[]";

/// Returns the parameters of a statement of rows that have their columns, and the types of their elements; `None` for
/// other statements.
pub(crate) fn arrays(sql: &str) -> Option<Vec<(usize, Type)>> {
    if sql.contains(ANY) {
        return Some(vec![(1, Type::INT8)]);
    }
    let (_, rest) = sql.split_once(ROWS)?;
    let (columns, rest) = rest.split_once(')')?;
    let is_of_rows = rest.starts_with(" k(") || rest.starts_with(" WITH ORDINALITY k(") || sql.starts_with("INSERT");
    let of = |column: &str| {
        let (number, of) = parameter(column.trim_start())?;
        Some((
            number,
            match of.strip_prefix("::")?.strip_suffix("[]")? {
                "int8" => Type::INT8,
                "int4" => Type::INT4,
                "bool" => Type::BOOL,
                "uuid" => Type::UUID,
                "bytea" => Type::BYTEA,
                "text" => Type::TEXT,
                _ => return None,
            },
        ))
    };
    let others = columns.split(',').skip(1).map(of);
    is_of_rows.then(|| std::iter::once(Some((1, Type::INT8))).chain(others).collect())?
}

/// Returns the statement about one organization of a statement of rows, and whether its last parameter has the places of
/// the rows among all: the ordinal numbers would be those among its own.
pub(crate) fn local_of_rows(sql: &str) -> (String, bool) {
    let Local { sql, org, .. } = local(sql);
    let Some((before, rest)) = sql.split_once(ROWS) else { return (sql, false) };
    let Some((columns, rest)) = rest.split_once(") WITH ORDINALITY k(") else { return (sql, false) };
    (format!("{before}{ROWS}{columns}, ${}::int8[]) k({rest}", org + 1), true)
}

/// A statement about one organization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Local {
    pub(crate) sql: String,
    /// The number of the parameter with the organization.
    pub(crate) org: usize,
    /// Whether that parameter was added, after all others.
    pub(crate) appended: bool,
}

const ORG: &str = ".org = ";
const ANY: &str = "ANY($1::int8[])";

/// Returns the statement that compares the organization of each table with one parameter: one that it has, or one more.
pub(crate) fn local(sql: &str) -> Local {
    let own = sql.split(ORG).skip(1).find_map(|part| match part.strip_prefix(ANY) {
        // The only use of the array: its place is free.
        Some(_) => Some(1),
        None => parameter(part).filter(|(_, rest)| !rest.starts_with("::int8[]")).map(|(number, _)| number),
    });
    let own = own.or_else(|| sql.split_once(" WHERE org = ").and_then(|(_, rest)| Some(parameter(rest)?.0)));
    let last = sql.split('$').skip(1).filter_map(number).map(|(number, _)| number).max().unwrap_or(0);
    let (org, appended) = own.map_or((last + 1, true), |number| (number, false));
    let mut parts = sql.split(ORG);
    let mut local = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        local.push_str(ORG);
        match compared(part) {
            Some(rest) => {
                local.push_str(&format!("${org}"));
                if part.starts_with("($1") {
                    // The type of a parameter that is not used is not known.
                    local.push_str(" AND $1::int8[] IS NOT NULL");
                }
                local.push_str(rest);
            }
            None => local.push_str(part),
        }
    }
    Local { sql: local, org, appended }
}

/// Returns what follows a value that is not a parameter: an element of the array of organizations, or a column.
fn compared(part: &str) -> Option<&str> {
    if let Some(rest) = part.strip_prefix(ANY) {
        return Some(rest);
    }
    if let Some(rest) = part.strip_prefix("($1::int8[])[") {
        return rest.split_once(']').map(|(_, rest)| rest);
    }
    let (table, rest) = part.split_once('.')?;
    let is_name = !table.is_empty() && table.chars().all(|char| char.is_ascii_lowercase() || char == '_');
    is_name.then_some(rest)?.strip_prefix("org").or_else(|| rest.strip_prefix("home"))
}

/// Returns the number of a parameter at the beginning of a text, and what follows.
fn parameter(text: &str) -> Option<(usize, &str)> {
    number(text.strip_prefix('$')?)
}

/// Returns the number at the beginning of a text, and what follows.
pub(crate) fn number(text: &str) -> Option<(usize, &str)> {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, rest))
}

/// Returns the statement that inserts a number of rows of the organization $1 by `VALUES`. Citus would send the rows of
/// a `SELECT` through files.
pub(crate) fn insert(sql: &str, rows: usize) -> String {
    let (into, select) = sql.split_once(" SELECT ").unwrap_or((sql, ""));
    let (items, from) = select.split_once(" FROM unnest(").unwrap_or_default();
    let (arrays, rest) = from.split_once(')').unwrap_or_default();
    let end = [" ON CONFLICT", " RETURNING"].iter().filter_map(|word| rest.find(word)).min();
    let end = end.and_then(|end| rest.get(end..)).unwrap_or_default();
    let types: Vec<&str> = arrays.split(", ").filter_map(|array| array.split_once("::")).map(|(_, of)| of).collect();
    let casts: Vec<&str> = items.split(", ").map(|item| item.split_once("::").map_or("", |(_, cast)| cast)).collect();
    let mut statement = format!("{into} VALUES ");
    let mut next = 2;
    for row in 0..rows {
        statement.push_str(if row == 0 { "($1::int8" } else { ", ($1::int8" });
        for (column, of) in types.iter().enumerate().skip(1) {
            statement.push_str(&format!(", ${next}::{}", of.strip_suffix("[]").unwrap_or(of)));
            if let Some(cast) = casts.get(column).filter(|cast| !cast.is_empty()) {
                statement.push_str(&format!("::{cast}"));
            }
            next += 1;
        }
        statement.push(')');
    }
    statement.push_str(end);
    statement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_about_one_organization_compares_each_table_with_one_parameter() {
        let local = |sql| {
            let Local { sql, org, appended } = local(sql);
            (sql, org, appended)
        };
        assert_eq!(
            local(
                "SELECT FROM unnest($1::int8[], $2::text[]) k(org, uid) JOIN record r ON r.org = k.org AND r.uid = $2"
            ),
            (
                "SELECT FROM unnest($1::int8[], $2::text[]) k(org, uid) JOIN record r ON r.org = $3 AND r.uid = $2"
                    .to_owned(),
                3,
                true
            )
        );
        assert_eq!(
            local("SELECT (SELECT FROM epoch e WHERE e.org = ($1::int8[])[2]) FROM head h WHERE h.org = $4 AND $5"),
            (
                "SELECT (SELECT FROM epoch e WHERE e.org = $4 AND $1::int8[] IS NOT NULL) FROM head h WHERE h.org = $4 \
                 AND $5"
                    .to_owned(),
                4,
                false
            )
        );
        assert_eq!(
            local("SELECT FROM head h WHERE h.org = ANY($1::int8[])"),
            ("SELECT FROM head h WHERE h.org = $1".to_owned(), 1, false)
        );
        let join = "SELECT FROM deep d JOIN record r ON r.org = d.home";
        assert_eq!(local(join).0, "SELECT FROM deep d JOIN record r ON r.org = $1");
    }

    #[test]
    fn the_places_of_rows_are_those_among_all_rows() {
        let sql = "SELECT k.place FROM unnest($1::int8[], $2::text[]) WITH ORDINALITY k(org, uid, place), record r \
             WHERE r.org = k.org AND r.uid = k.uid";
        let local = "SELECT k.place FROM unnest($1::int8[], $2::text[], $4::int8[]) k(org, uid, place), record r \
             WHERE r.org = $3 AND r.uid = k.uid";
        assert_eq!(local_of_rows(sql), (local.to_owned(), true));
        let (orgs, uids) = (vec![7_i64, 5, 7], vec!["a", "b", "c"]);
        let parts = parts(sql, &[&orgs, &uids]).unwrap();
        let texts = |param: &Value<'_>| match param {
            Value::Raw(Some(bytes)) => bytes.to_vec(),
            other => panic!("{other:?}"),
        };
        let encoded = |of: &(dyn ToSql + Sync), ty: &Type| {
            let mut bytes = BytesMut::new();
            of.to_sql_checked(ty, &mut bytes).unwrap();
            // This writes no nulls, which the store does not know.
            bytes[7] = 1;
            bytes.to_vec()
        };
        assert_eq!(parts.iter().map(|part| &*part.sql).collect::<Vec<_>>(), [local; 2]);
        assert_eq!(texts(&parts[1].params[1]), encoded(&vec!["a", "c"], &Type::TEXT_ARRAY));
        assert_eq!(texts(&parts[1].params[3]), encoded(&vec![1_i64, 3], &Type::INT8_ARRAY));
        assert!(matches!(parts[1].params[2], Value::Org(7)));
    }

    #[test]
    fn an_insert_of_rows_names_the_organization_once() {
        let plain = "INSERT INTO t (org, a, b) SELECT k.org, k.a, k.b::text[] FROM unnest($1::int8[], $2::uuid[], \
             $3::text[]) k(org, a, b) ON CONFLICT (org) DO UPDATE SET a = excluded.a";
        assert_eq!(
            insert(plain, 2),
            "INSERT INTO t (org, a, b) VALUES ($1::int8, $2::uuid, $3::text::text[]), \
             ($1::int8, $4::uuid, $5::text::text[]) ON CONFLICT (org) DO UPDATE SET a = excluded.a"
        );
        let plain = "INSERT INTO t (org, a) SELECT * FROM unnest($1::int8[], $2::bytea[])";
        assert_eq!(insert(plain, 1), "INSERT INTO t (org, a) VALUES ($1::int8, $2::bytea)");
    }

    #[test]
    fn rows_are_inserted_by_organization_and_size() {
        let orgs: Vec<Org> = std::iter::repeat_n(7, 73).chain([5, 7]).collect();
        let numbers: Vec<Option<i32>> = (0..75).map(Some).collect();
        let sql = "INSERT INTO t (org, a) SELECT * FROM unnest($1::int8[], $2::int4[])";
        let parts = parts(sql, &[&orgs, &numbers]).unwrap();
        let lengths: Vec<usize> = parts.iter().map(|part| part.params.len() - 1).collect();
        assert_eq!(lengths, [1, 64, 8, 1, 1]);
        let sql = "SELECT $1::text";
        assert_eq!(self::parts(sql, &[&"a"]).unwrap()[0].sql, sql);
    }
}
