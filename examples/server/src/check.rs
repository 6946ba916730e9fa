//! `platform-server check`: proves the store.

use std::{
    io::{Write, stderr, stdout},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
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
    Ok(match store {
        Store::Sqlite(_) => {
            let found = SqliteStore::open(path)?.check().context(UNFINISHED)?;
            found.iter().map(|finding| line(&finding.what, finding.advice)).collect()
        }
        Store::Sled(_) => {
            let found = SledStore::open(path)?.check().context(UNFINISHED)?;
            found.iter().map(|finding| line(&finding.what, finding.advice)).collect()
        }
        Store::Memory => Vec::new(),
    })
}
