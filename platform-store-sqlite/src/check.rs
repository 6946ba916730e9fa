//! The consistency check: rows against checksums, indexes against records in both directions, lists against the
//! records that belong to them, and counts against entries.
//!
//! It works from the tables alone, without the cache, and compares numbers of entries with the numbers that the records
//! require: if every entry is valid and the numbers are equal, no entry is missing.

mod lists;
mod records;

use std::fmt;

use platform_engine::store::StoreError;
use rusqlite::Connection;

use crate::{error::store_error, schema::Names, writer::State};

/// An inconsistency that a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// A description of the inconsistency.
    pub what: String,
    /// The recommended remedy.
    pub advice: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.advice)
    }
}

/// The maximum number of findings that are reported.
const MAX_FINDINGS: usize = 100;

const RESTORE: &str = "stop the server and restore the file from a backup, because the file is damaged";

/// The findings so far.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, what: impl Into<String>) {
        if self.0.len() < MAX_FINDINGS {
            self.0.push(Finding { what: what.into(), advice: RESTORE });
        }
    }

    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.add(what());
        }
    }

    /// Converts [`StoreError::Corrupt`] to a finding and returns `None`; passes on other errors.
    fn catch<T>(&mut self, result: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(StoreError::Corrupt(cause)) => {
                self.add(cause.to_string());
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }
}

/// Checks everything in one snapshot of the file.
pub(crate) fn check(connection: &Connection) -> Result<Vec<Finding>, StoreError> {
    let mut findings = Findings::default();
    let checked = check_file(connection, &mut findings);
    findings.catch(checked)?;
    let state = findings.catch(State::load(connection))?.unwrap_or_default();
    if let Some(names) = findings.catch(Names::load(connection))? {
        let checked = records::check(connection, &names, state, &mut findings);
        findings.catch(checked)?;
        let checked = lists::check(connection, &names, &mut findings);
        findings.catch(checked)?;
    }
    Ok(findings.0)
}

/// Runs SQLite's own check of its structures, and of its indexes against the tables.
fn check_file(connection: &Connection, findings: &mut Findings) -> Result<(), StoreError> {
    let mut statement = connection.prepare("PRAGMA integrity_check").map_err(store_error)?;
    let mut rows = statement.query([]).map_err(store_error)?;
    while let Some(row) = rows.next().map_err(store_error)? {
        let line: String = row.get(0).map_err(store_error)?;
        findings.expect(line == "ok", || format!("SQLite reports: {line}"));
    }
    Ok(())
}

/// Returns the number that the statement selects.
fn number(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<u64, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(store_error)?;
    statement.query_row(params, |row| row.get::<_, i64>(0)).map(i64::cast_unsigned).map_err(store_error)
}
