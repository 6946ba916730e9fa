//! `platform-server check`: proves the store.

use std::{
    io::{Write, stderr, stdout},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use platform_core::{outbox, store};
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;

use crate::{
    config::{Config, Store},
    installation::store_path,
};

const UNFINISHED: &str = "the check did not come to its end";

pub(crate) fn run(config: &Config) -> Result<ExitCode> {
    let Some(path) = store_path(config) else {
        bail!("a memory store ends with its server: there is nothing to check");
    };
    if !path.exists() {
        bail!("there is no store at {}: name it with --data-dir or --store", path.display());
    }
    let findings = findings(&config.store, &path)?;
    for finding in &findings {
        writeln!(stdout(), "{finding}")?;
    }
    let (count, path) = (findings.len(), path.display());
    match count {
        0 => writeln!(stderr(), "{path} is sound")?,
        _ => writeln!(stderr(), "{path} is damaged: {count} findings")?,
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns what does not agree, and what to do about it.
fn findings(store: &Store, path: &Path) -> Result<Vec<String>> {
    let line = |what: &str, advice: &str| format!("{what}; {advice}");
    let (found, store): (Vec<_>, Box<dyn store::Store>) = match store {
        Store::Sqlite(_) => {
            let store = SqliteStore::open(path)?;
            let found = store.check().context(UNFINISHED)?;
            (found.iter().map(|finding| line(&finding.what, finding.advice)).collect(), Box::new(store))
        }
        Store::Sled(_) => {
            let store = SledStore::open(path)?;
            let found = store.check().context(UNFINISHED)?;
            (found.iter().map(|finding| line(&finding.what, finding.advice)).collect(), Box::new(store))
        }
        Store::Memory => return Ok(Vec::new()),
    };
    // What a damaged store says of its records need not be true.
    if found.is_empty() { lost_data(&*store) } else { Ok(found) }
}

/// Returns the events and dead letters whose data is not in the store.
fn lost_data(store: &dyn store::Store) -> Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let lost = runtime.block_on(outbox::lost_bodies(store)).context(UNFINISHED)?;
    let line = |(key, data): &(store::Key, _)| {
        let store::Key { kind, uid } = key;
        format!("the data {data} of the {kind} {uid} is missing; restore a backup, or delete the subscription")
    };
    Ok(lost.iter().map(line).collect())
}
