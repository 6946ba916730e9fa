//! Proofs that all that is stored agrees: each row with its checksum, each index with the records, each list with
//! what it should hold, each count with what it counts.

mod lists;
mod records;

use std::fmt;

use platform_engine::store::StoreError;
use rusqlite::Connection;

use crate::{error::store_error, schema::Names, writer::State};

/// Something that does not agree, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was found.
    pub what: String,
    /// What to do.
    pub advice: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.advice)
    }
}

/// After this many findings, no more are looked for.
const MOST: usize = 100;

const RESTORE: &str = "stop the server and restore the file from a backup, since what it holds is not what was written";

/// What has been found so far.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, what: impl Into<String>) {
        if self.0.len() < MOST {
            self.0.push(Finding { what: what.into(), advice: RESTORE });
        }
    }

    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.add(what());
        }
    }

    /// Makes a finding of damage, and passes on other errors.
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

/// Proves everything, in one state of the file.
pub(crate) fn check(connection: &Connection) -> Result<Vec<Finding>, StoreError> {
    let mut findings = Findings::default();
    let sound = check_file(connection, &mut findings);
    findings.catch(sound)?;
    let state = findings.catch(State::load(connection))?.unwrap_or_default();
    if let Some(names) = findings.catch(Names::load(connection))? {
        let checked = records::check(connection, &names, state, &mut findings);
        findings.catch(checked)?;
        let checked = lists::check(connection, &names, &mut findings);
        findings.catch(checked)?;
    }
    Ok(findings.0)
}

/// Has SQLite prove its own structures, and its indexes against the tables.
fn check_file(connection: &Connection, findings: &mut Findings) -> Result<(), StoreError> {
    let mut statement = connection.prepare("PRAGMA integrity_check").map_err(store_error)?;
    let mut rows = statement.query([]).map_err(store_error)?;
    while let Some(row) = rows.next().map_err(store_error)? {
        let line: String = row.get(0).map_err(store_error)?;
        findings.expect(line == "ok", || format!("SQLite finds: {line}"));
    }
    Ok(())
}

/// Returns the one number that the statement finds.
fn number(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<u64, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(store_error)?;
    statement.query_row(params, |row| row.get::<_, i64>(0)).map(i64::cast_unsigned).map_err(store_error)
}
