//! The consistency check: rows against checksums, indexes against records in both directions, lists against the
//! records that belong to them, and counts against entries.
//!
//! The check reads only the tables and the delta, not the cache, and compares numbers of entries with the numbers that
//! the records require: if every entry is valid and the numbers are equal, no entry is missing.

mod lists;
mod records;

use platform_engine::store::{
    StoreError,
    check::{Finding, Findings},
};
use rusqlite::Connection;

use crate::{delta::Snapshot, error::store_error, index::Index, replaced, schema::Names, state::State};

const RESTORE: &str = "stop the server and restore the file from a backup, because the file is damaged";

/// Checks everything in one snapshot.
pub(crate) fn check(connection: &Connection, snapshot: &Snapshot) -> Result<Vec<Finding>, StoreError> {
    let mut findings = Findings::new(RESTORE);
    let checked = check_file(connection, &mut findings);
    findings.catch(checked)?;
    let state = findings.catch(State::load(connection))?.unwrap_or_default();
    let replaced = findings.catch(replaced::load(connection, state))?.unwrap_or_default();
    if let Some(names) = findings.catch(Names::load(connection))? {
        let index = Index { connection, delta: &snapshot.delta };
        let checked = records::check(index, &names, state, &replaced, &mut findings);
        findings.catch(checked)?;
        let checked = lists::check(index, &names, &mut findings);
        findings.catch(checked)?;
    }
    Ok(findings.into_vec())
}

/// Runs SQLite's own check of its structures, and of its indexes against the tables.
fn check_file(connection: &Connection, findings: &mut Findings) -> Result<(), StoreError> {
    records::for_each_row(connection, "PRAGMA integrity_check", [], |row| {
        let line: String = row.get(0).map_err(store_error)?;
        findings.expect(line == "ok", || format!("SQLite reports: {line}"));
        Ok(())
    })
}
