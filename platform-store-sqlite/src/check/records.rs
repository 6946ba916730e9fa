//! Checks records and epochs against their checksums and the digest, and the index against records.

use std::{collections::BTreeMap, ops::ControlFlow};

use platform_engine::store::{StoreError, check::Findings};
use rusqlite::{Connection, Params, Row};

use crate::{
    commit::epoch_checksum,
    error::store_error,
    index::{Index, Range, keys_of},
    record::{self, Stored, columns},
    replaced::Before,
    schema::{NameId, Names},
    state::State,
};

pub(super) fn check(
    index: Index<'_>,
    names: &Names,
    state: State,
    replaced: &BTreeMap<i64, Before>,
    findings: &mut Findings,
) -> Result<(), StoreError> {
    let connection = index.connection;
    let (mut digest, mut entries) = (0_i64, 0);
    let select = concat!("SELECT ", columns!(), " FROM record NOT INDEXED");
    for_each_row(connection, select, [], |row| {
        let Some(stored) = findings.catch(Stored::read(row))? else { return Ok(()) };
        digest = digest.wrapping_add(stored.sum);
        entries += 1 + (stored.keys.filter().count() + stored.keys.unique().count()) as u64;
        let is_possible = stored.revision <= state.sequence && names.has_id(stored.kind);
        findings.expect(is_possible, || format!("record {} has an impossible revision or kind", stored.id));
        // A replay takes the record for unchanged since the last fold if it has no replaced version.
        let is_new = stored.id >= state.first || replaced.contains_key(&stored.id);
        findings.expect(is_new || stored.revision <= state.folded, || {
            format!("the replaced version of record {} is missing", stored.id)
        });
        Ok(())
    })?;
    for_each_row(connection, "SELECT name, value, sum FROM epoch", [], |row| {
        let name: String = row.get(0).map_err(store_error)?;
        let (value, sum): (i64, i64) = (row.get(1).map_err(store_error)?, row.get(2).map_err(store_error)?);
        digest = digest.wrapping_add(sum);
        let is_valid = epoch_checksum(&name, value) == sum && value.cast_unsigned() <= state.sequence;
        findings.expect(is_valid, || format!("the row of epoch `{name}` does not match its checksum"));
        Ok(())
    })?;
    findings.expect(digest == state.digest, || {
        "records or epochs are missing or outdated: the sum of their checksums is wrong".to_owned()
    });
    check_sequence(connection, findings)?;
    check_index(index, findings, entries)
}

fn check_sequence(connection: &Connection, findings: &mut Findings) -> Result<(), StoreError> {
    let mut previous: (NameId, i64, String) = (0, 0, String::new());
    let select = "SELECT kind, revision, uid FROM record INDEXED BY record_sequence ORDER BY kind, revision, place";
    for_each_row(connection, select, [], |row| {
        let read = || Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let next = read().map_err(store_error)?;
        findings.expect(previous < next, || format!("`{}` is out of order by sequence", next.2));
        previous = next;
        Ok(())
    })
}

/// Checks that each entry belongs to its record. No entry is missing if their number is right.
fn check_index(index: Index<'_>, findings: &mut Findings, expected: u64) -> Result<(), StoreError> {
    let mut count = 0;
    index.each(&Range::all(), false, |key, id| {
        count += 1;
        let belongs = |r: Stored<'_>| keys_of(r.kind, r.uid, r.keys).any(|other| other == key);
        if findings.catch(record::at(index.connection, id, belongs))? == Some(false) {
            findings.add(format!("the index has a wrong entry for record {id}"));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    findings.expect(count == expected, || format!("the index has {count} of {expected} entries"));
    Ok(())
}

pub(super) fn for_each_row(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    mut use_row: impl FnMut(&Row<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare(sql).map_err(store_error)?;
    let mut rows = statement.query(params).map_err(store_error)?;
    while let Some(row) = rows.next().map_err(store_error)? {
        use_row(row)?;
    }
    Ok(())
}
