//! The consistency check: rows against checksums, indexes against records in both directions, lists against the
//! records that belong to them, and counts against entries.
//!
//! The check reads only the tables and the delta, not the cache, and compares numbers of entries with the numbers that
//! the records require: if every entry is valid and the numbers are equal, no entry is missing.

mod lists;
mod records;

use std::collections::{BTreeMap, BTreeSet};

use platform_engine::store::{
    StoreError,
    check::{Finding, Findings},
};

use crate::{delta::Snapshot, index::Index, replaced, rows::Rows, schema::Names, state::State};

/// The advice of each finding.
pub(crate) const RESTORE: &str = "stop the server and restore a backup, because the store is damaged";

/// Checks everything in one snapshot.
pub(crate) fn check(tables: &impl Rows, snapshot: &Snapshot) -> Result<Vec<Finding>, StoreError> {
    let mut findings = Findings::new(RESTORE);
    let checked = tables.check(|problem| findings.add(problem));
    findings.catch(checked)?;
    let state = findings.catch(State::load(tables))?.unwrap_or_default();
    let replaced = findings.catch(replaced::load(tables, state))?.unwrap_or_default();
    if let Some(names) = findings.catch(Names::load(tables))? {
        let index = Index { rows: tables, delta: &snapshot.delta };
        let (mut kinds, mut searched) = (BTreeSet::new(), BTreeMap::new());
        let checked = records::check(index, &names, state, &replaced, &mut kinds, &mut searched, &mut findings);
        findings.catch(checked)?;
        let checked = lists::check(index, &names, &kinds, searched, &mut findings);
        findings.catch(checked)?;
    }
    Ok(findings.into_vec())
}
